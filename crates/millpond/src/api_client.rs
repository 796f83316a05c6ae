//! Asks the HTTP API of a running Millpond, for commands that show what it does.

use std::path::PathBuf;
use std::str::FromStr;

use anyhow::anyhow;
use clap::Args;
use config::{ConfigError, Period, Positive, Source};
use http::{Method, StatusCode};
use http_body_util::{BodyExt, Limited};
use net::client::reqwest::{Body, Url};
use net::{Address, Auth, Client, ClientSettings, ClientTls, RequestError, Secret};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::api::settings::PORT;

/// How long a connection may take to be made.
const CONNECT_TIMEOUT: Positive<Period> = Positive::<Period>::from_secs(5);

/// The most bytes of an answer that are read.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// Which Millpond is asked, and how it knows who asks.
#[derive(Debug, Clone, Args)]
pub struct ApiArgs {
    /// The address of the API: a port of this machine, HOST:PORT, or a URL. Default: 127.0.0.1:9610.
    #[arg(long, value_name = "ADDRESS")]
    api: Option<String>,
    /// A file with the token of the API, where it asks for one.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// The certificates of the authorities that may vouch for the API, as PEM, in place of the system's.
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// The certificate to show, as PEM, where the API asks for one.
    #[arg(long, value_name = "FILE", requires = "key")]
    cert: Option<PathBuf>,
    /// The private key of --cert.
    #[arg(long, value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,
}

/// Asks one API.
pub struct ApiClient {
    client: Client,
    url: Url,
}

/// Why the API gave nothing.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    /// Nobody answers.
    #[error(
        "no Millpond answers at {url}: {reason}\n  note: a service has an API at 127.0.0.1:{PORT} unless `api` in its configuration says otherwise; a run of a one-line pipeline has one with `--api {PORT}`; `--api ADDRESS` asks at another address"
    )]
    Unreachable {
        /// Where it was asked.
        url: Url,
        /// Why.
        reason: RequestError,
    },
    /// It does not say that to this client.
    #[error(
        "the API at {url} refuses the request: {reason}\n  note: give the token with `--token-file FILE`, or the certificate with `--cert` and `--key`"
    )]
    Unauthorized {
        /// Where it was asked.
        url: Url,
        /// What it says.
        reason: String,
    },
    /// It says no.
    #[error("{reason}")]
    Refused {
        /// With this status.
        status: StatusCode,
        /// For this reason.
        reason: String,
    },
    /// What answers is something else.
    #[error("what answers at {url} is not the API of a Millpond: {reason}")]
    Foreign {
        /// Where it was asked.
        url: Url,
        /// What shows that.
        reason: String,
    },
}

impl ApiArgs {
    /// A client, which has not connected yet.
    ///
    /// # Errors
    /// The address is none, or a file cannot be read.
    pub fn connect(&self) -> anyhow::Result<ApiClient> {
        let uses_tls = self.ca.is_some() || self.cert.is_some();
        let url = url(self.api.as_deref(), uses_tls)?;
        let node = config::parse_yaml(&Source::new("--api", url.as_str()))?;
        let token = self.token_file.as_ref();
        let token = token.map(|file| Secret::new(&format!("file:{}", file.display())));
        let auth = token.map(Auth::Bearer);
        // The file is at fault, not the address that errors would point at.
        let plain = |error: ConfigError| anyhow!("{}", error.message());
        if let Some(auth) = &auth {
            auth.check(&node).map_err(plain)?;
        }
        let settings = ClientSettings {
            connect_timeout: CONNECT_TIMEOUT,
            proxy: Some(Secret::new("none")),
            auth,
            tls: ClientTls {
                ca: self.ca.clone(),
                cert: self.cert.clone(),
                key: self.key.clone(),
                ..ClientTls::default()
            },
            ..ClientSettings::default()
        };
        let client = Client::build(&settings, &node, url.scheme() == "https").map_err(plain)?;
        Ok(ApiClient { client, url })
    }
}

/// The URL of an address. `uses_tls` says whether it is one of TLS where nothing else says so.
fn url(address: Option<&str>, uses_tls: bool) -> anyhow::Result<Url> {
    let text = match address {
        Some(url) if url.contains("://") => url.to_owned(),
        address => {
            let address = match address {
                None => Address::loopback(PORT),
                Some(address) => Address::from_str(address)
                    .map_err(|error| anyhow!("--api is not an address: {error}"))?,
            };
            let scheme = if uses_tls { "https" } else { "http" };
            let address = address.to_string();
            match address.starts_with(':') {
                // Listeners have it for every address of a machine; of these the nearest is asked.
                true => format!("{scheme}://127.0.0.1{address}"),
                false => format!("{scheme}://{address}"),
            }
        }
    };
    let node = config::parse_yaml(&Source::new("--api", text.as_str()))?;
    Ok(net::client::url(&node, &text)?)
}

impl ApiClient {
    /// What the API says at a path, which begins with a slash, with these parameters.
    ///
    /// # Errors
    /// It does not answer, or not with that.
    pub async fn get<T: DeserializeOwned>(
        &self,
        path: &str,
        query: &[(&str, &str)],
    ) -> Result<T, ApiError> {
        self.ask(Method::GET, path, query).await
    }

    /// As [`Self::get`], with another method.
    ///
    /// # Errors
    /// It does not answer, or not with that.
    pub async fn ask<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        query: &[(&str, &str)],
    ) -> Result<T, ApiError> {
        let mut url = self.at(path);
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        let (status, body) = self.exchange(method, url).await?;
        if status.is_success() {
            let read = serde_json::from_slice(&body);
            return read.map_err(|error| self.foreign(&format!("{status}, {error}")));
        }
        let answer: Option<Value> = serde_json::from_slice(&body).ok();
        let reason = answer.as_ref().and_then(|answer| answer["error"].as_str());
        let Some(reason) = reason else {
            return Err(self.foreign(&status.to_string()));
        };
        let reason = self.client.without_secrets(reason.to_owned());
        Err(match status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => ApiError::Unauthorized {
                url: self.url.clone(),
                reason,
            },
            _ => ApiError::Refused { status, reason },
        })
    }

    /// What the API says at a path whose answer is the same with any status, and whether the status is one of success.
    ///
    /// # Errors
    /// It does not answer, or not with that.
    pub async fn look<T: DeserializeOwned>(&self, path: &str) -> Result<(bool, T), ApiError> {
        let (status, body) = self.exchange(Method::GET, self.at(path)).await?;
        match serde_json::from_slice(&body) {
            Ok(answer) => Ok((status.is_success(), answer)),
            Err(error) => Err(self.foreign(&format!("{status}, {error}"))),
        }
    }

    fn at(&self, path: &str) -> Url {
        let mut url = self.url.clone();
        url.set_path(&format!("{}{path}", self.url.path().trim_end_matches('/')));
        url
    }

    /// Sends a request; the status and the body of the answer.
    async fn exchange(&self, method: Method, url: Url) -> Result<(StatusCode, Vec<u8>), ApiError> {
        let unreachable = |reason| ApiError::Unreachable {
            url: self.url.clone(),
            reason,
        };
        let request = self.client.request(method, url).map_err(unreachable)?;
        let response = self.client.send(request).await.map_err(unreachable)?;
        let (head, body) = http::Response::<Body>::from(response).into_parts();
        let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
        let body = body.map_err(|error| unreachable(RequestError::Broken(error.to_string())))?;
        Ok((head.status, body.to_bytes().to_vec()))
    }

    fn foreign(&self, reason: &str) -> ApiError {
        ApiError::Foreign {
            url: self.url.clone(),
            reason: reason.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_ports_hosts_and_urls() {
        for (address, uses_tls, expected) in [
            (None, false, Some("http://127.0.0.1:9610/")),
            (None, true, Some("https://127.0.0.1:9610/")),
            (Some("9999"), false, Some("http://127.0.0.1:9999/")),
            (Some(":9999"), false, Some("http://127.0.0.1:9999/")),
            (Some("[::1]:9999"), false, Some("http://[::1]:9999/")),
            (
                Some("logs.example:1"),
                true,
                Some("https://logs.example:1/"),
            ),
            (
                Some("https://a.example/m"),
                false,
                Some("https://a.example/m"),
            ),
            (Some("logs.example"), false, None),
            (Some("ftp://a.example"), false, None),
            (Some("http://user:word@a.example"), false, None),
        ] {
            let found = url(address, uses_tls);
            let found = found.as_ref().map(Url::as_str).ok();
            assert_eq!(found, expected, "{address:?}");
        }
    }
}
