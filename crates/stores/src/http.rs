//! The HTTP client of the other components in the place of the one that the library for object stores would bring.

use std::fmt;

use async_trait::async_trait;
use net::client::{body, joined_body};
use net::{Client, RequestError};
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpRequestBody,
    HttpResponse, HttpService,
};

/// Gives the library this client.
#[derive(Clone)]
pub struct Connector(pub Client);

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Connector")
    }
}

impl HttpConnector for Connector {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(self.clone()))
    }
}

#[async_trait]
impl HttpService for Connector {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let (parts, content) = request.into_parts();
        let url = parts.uri.to_string().parse();
        let url = url.map_err(|error| HttpError::new(HttpErrorKind::Unknown, error))?;
        let request = self.0.request(parts.method, url).map_err(failed)?;
        let request = request.headers(parts.headers).body(whole(content).await?);
        let response = self.0.send(request).await.map_err(failed)?;
        let status = response.status();
        let headers = response.headers().clone();
        let content = response.bytes().await;
        let content = content.map_err(|error| failed(RequestError::from(error)))?;
        let mut response = HttpResponse::new(content.into());
        *response.status_mut() = status;
        *response.headers_mut() = headers;
        Ok(response)
    }
}

/// The body of a request, whose length is known.
async fn whole(content: HttpRequestBody) -> Result<net::client::reqwest::Body, HttpError> {
    use http_body_util::BodyExt;
    if let Some(bytes) = content.as_bytes() {
        return Ok(body(bytes.clone()));
    }
    let mut content = content;
    let mut pieces = Vec::new();
    while let Some(frame) = content.frame().await {
        pieces.extend(frame?.into_data().ok());
    }
    Ok(joined_body(pieces))
}

fn failed(error: RequestError) -> HttpError {
    let kind = match &error {
        RequestError::Connect(_) => HttpErrorKind::Connect,
        RequestError::Timeout(_) => HttpErrorKind::Timeout,
        RequestError::Broken(_) => HttpErrorKind::Request,
        RequestError::Redirect { .. } | RequestError::Secret(_) | RequestError::NoHeader(_) => {
            HttpErrorKind::Unknown
        }
    };
    HttpError::new(kind, error)
}
