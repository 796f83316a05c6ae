//! HTTP requests: one [`Client`] an output, which pools its connections.
//!
//! It is `reqwest` with HTTP/1.1 (or HTTP/2 for gRPC) and our own TLS. Redirects are never followed, because a `POST` that is followed arrives as a
//! `GET` without its events: they are an error that names the place. Nothing is repeated here: retrying belongs to
//! whoever sends.

use std::collections::BTreeMap;
use std::error::Error as _;
use std::sync::Arc;

use config::{ConfigError, Node, Period, Positive};
use http::header::{AUTHORIZATION, HeaderMap, LOCATION};
use http::{HeaderName, HeaderValue, Method, StatusCode};
use reqwest::redirect::Policy;
use reqwest::{NoProxy, Proxy, RequestBuilder, Response, Url};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::auth::{Auth, AuthError};
use crate::secret::{HIDDEN, Secret, SecretError};
use crate::tls::{ClientContext, ClientTls};

pub use crate::body::{body, joined_body};
pub use reqwest;

/// The settings of HTTP requests. A component that has them among its own reads them from the same node.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ClientSettings {
    /// The maximum time to establish a connection, including TLS.
    pub connect_timeout: Positive<Period>,
    /// The maximum time for a request, from connecting to the end of the response.
    pub timeout: Positive<Period>,
    /// The maximum number of idle connections per host that are kept open for later requests.
    pub idle_connections: usize,
    /// How long an idle connection stays open.
    pub idle_timeout: Positive<Period>,
    /// The proxy to use, such as `http://proxy:3128`, with `USER:PASSWORD@` if it requires them; `none` for no proxy.
    /// `${VARIABLE}` and `file:PATH` work as for passwords. Default: the environment variables `http_proxy`,
    /// `https_proxy` and `no_proxy`.
    pub proxy: Option<Secret>,
    /// The credentials of the client.
    pub auth: Option<Auth>,
    /// Headers for every request. A value may be `file:PATH` for the content of a file.
    pub headers: BTreeMap<String, Secret>,
    /// TLS settings.
    pub tls: ClientTls,
}

/// Secrets shorter than this are not looked for in answers: they would be found in any text.
const HIDDEN_BYTES_MIN: usize = 4;

impl Default for ClientSettings {
    fn default() -> Self {
        Self {
            connect_timeout: Positive::<Period>::from_secs(10),
            timeout: Positive::<Period>::from_secs(60),
            idle_connections: 32,
            idle_timeout: Positive::<Period>::from_secs(60),
            proxy: None,
            auth: None,
            headers: BTreeMap::new(),
            tls: ClientTls::default(),
        }
    }
}

/// Sends requests. Cheap to clone; clones share their connections.
#[derive(Clone)]
pub struct Client {
    http: reqwest::Client,
    auth: Option<Auth>,
    headers: Arc<[(HeaderName, Secret)]>,
    tls: ClientContext,
}

/// Why there is no answer. Holds no secret.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// The server cannot be reached: its name, its port, its certificate.
    #[error("cannot connect: {0}")]
    Connect(String),
    /// It took too long.
    #[error("no response within the timeout{0}")]
    Timeout(&'static str),
    /// The answer says to go somewhere else.
    #[error(
        "the response is a redirect ({status}) to {location}, which is not followed: use that address if it is correct"
    )]
    Redirect {
        /// The status.
        status: StatusCode,
        /// Where to.
        location: String,
    },
    /// A secret cannot be read.
    #[error(transparent)]
    Secret(#[from] SecretError),
    /// A secret cannot be sent.
    #[error(
        "the setting `{0}` contains characters that are not allowed in a header, such as a newline"
    )]
    NoHeader(String),
    /// The connection broke, or the answer is no HTTP.
    #[error("the request failed: {0}")]
    Broken(String),
}

/// The address in a setting: `http` or `https`, without user and password.
///
/// # Errors
/// Another text, at the place of the setting.
pub fn url(node: &Node, text: &str) -> Result<Url, ConfigError> {
    let form = "use http://HOST:PORT/PATH or https://HOST:PORT/PATH";
    // `localhost:9200` reads as a scheme and a path.
    let has_scheme = text.contains("://") || text.starts_with('/');
    if !has_scheme
        && Url::parse(&format!("http://{text}")).is_ok_and(|url| url.username().is_empty())
    {
        let error = node.error("expected an http or https URL, such as http://localhost:9200");
        return Err(error.note(format!("write `http://{text}` or `https://{text}`")));
    }
    let url =
        Url::parse(text).map_err(|error| node.error(format!("invalid URL: {error}")).note(form))?;
    if !["http", "https"].contains(&url.scheme()) {
        let scheme = url.scheme();
        let message = format!("expected an http or https URL, not `{scheme}`");
        return Err(node.error(message).note(form));
    }
    if !url.username().is_empty() || url.password().is_some() {
        let message = "the URL contains a user name or a password, which would appear in messages: use `auth` instead";
        return Err(node.error(message).hiding_value());
    }
    Ok(url)
}

impl Client {
    /// Reads certificates and checks the settings, which `node` holds. `https` says whether any address is one of TLS: only
    /// then are the system's certificates needed.
    ///
    /// # Errors
    /// A setting that cannot be used, with its place.
    pub fn build(settings: &ClientSettings, node: &Node, https: bool) -> Result<Self, ConfigError> {
        Self::build_with(settings, node, https, |builder, tls| {
            builder.http1_only().tls_backend_preconfigured(tls)
        })
    }

    /// As [`Client::build`], for servers that are known to speak HTTP/2.
    ///
    /// # Errors
    /// A setting that cannot be used, with its place.
    pub fn build_http2(
        settings: &ClientSettings,
        node: &Node,
        https: bool,
    ) -> Result<Self, ConfigError> {
        Self::build_with(settings, node, https, |builder, mut tls| {
            tls.alpn_protocols = vec![b"h2".to_vec()];
            builder
                .http2_prior_knowledge()
                .tls_backend_preconfigured(tls)
        })
    }

    fn build_with(
        settings: &ClientSettings,
        node: &Node,
        https: bool,
        version: impl FnOnce(reqwest::ClientBuilder, rustls::ClientConfig) -> reqwest::ClientBuilder,
    ) -> Result<Self, ConfigError> {
        let tls = if https || node.get("tls").is_some() {
            settings.tls.open(node.nearest("tls"))?
        } else {
            ClientContext::trusting_nobody(node)?
        };
        let builder = reqwest::Client::builder()
            .user_agent(concat!("millpond/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(settings.connect_timeout.get().0)
            .timeout(settings.timeout.get().0)
            .pool_max_idle_per_host(settings.idle_connections)
            .pool_idle_timeout(settings.idle_timeout.get().0)
            .redirect(Policy::none())
            .retry(reqwest::retry::never());
        let builder = version(builder, rustls::ClientConfig::clone(tls.config()));
        let http = through(builder, settings.proxy.as_ref(), node)?
            .build()
            .map_err(|error| node.error(format!("cannot create requests: {}", chain(&error))))?;
        let client = Self {
            http,
            auth: settings.auth.clone(),
            headers: headers(settings, node)?,
            tls,
        };
        client.check(node)?;
        Ok(client)
    }

    /// Whether secrets can be read and sent.
    fn check(&self, node: &Node) -> Result<(), ConfigError> {
        if let Some(auth) = &self.auth {
            auth.check(node.nearest("auth"))?;
        }
        for (name, value) in &*self.headers {
            let settings = node.nearest("headers");
            let mut entries = settings.as_map().unwrap_or_default().iter();
            let entry = entries.find(|(key, _)| {
                key.as_str()
                    .is_some_and(|key| key.eq_ignore_ascii_case(name.as_str()))
            });
            header_value(name, value).map_err(|error| {
                let value = entry.map_or(settings, |(_, value)| value);
                value.error(error.to_string()).hiding_value()
            })?;
        }
        Ok(())
    }

    /// A request with the headers that every request has.
    ///
    /// # Errors
    /// A secret cannot be read.
    pub fn request(&self, method: Method, url: Url) -> Result<RequestBuilder, RequestError> {
        let mut headers = HeaderMap::with_capacity(self.headers.len() + 1);
        if let Some(auth) = &self.auth {
            let value = auth.header().map_err(|error| match error {
                AuthError::Secret(error) => RequestError::Secret(error),
                AuthError::NoHeader => RequestError::NoHeader("auth".into()),
            })?;
            headers.insert(AUTHORIZATION, value);
        }
        for (name, value) in &*self.headers {
            headers.insert(name.clone(), header_value(name, value)?);
        }
        Ok(self.http.request(method, url).headers(headers))
    }

    /// Sends a request and gives the answer, whatever its status, its body unread.
    ///
    /// # Errors
    /// There is no answer, or it is a redirect.
    pub async fn send(&self, request: RequestBuilder) -> Result<Response, RequestError> {
        let answer = request.send().await?;
        let status = answer.status();
        let location = answer.headers().get(LOCATION);
        if let Some(location) = location.filter(|_| status.is_redirection()) {
            let location = String::from_utf8_lossy(location.as_bytes()).into_owned();
            return Err(RequestError::Redirect { status, location });
        }
        Ok(answer)
    }

    /// A text of the server's, such as the body of an error, with `[secret]` in the place of what was sent to it as a secret.
    pub fn without_secrets(&self, mut text: String) -> String {
        let auth = self.auth.iter().flat_map(Auth::hidden);
        let headers = self.headers.iter();
        let headers = headers.filter_map(|(_, value)| Some(value.reveal().ok()?.to_string()));
        for secret in auth.chain(headers) {
            if secret.len() >= HIDDEN_BYTES_MIN && text.contains(&secret) {
                text = text.replace(&secret, HIDDEN);
            }
        }
        text
    }

    /// What a person should hear, such as a renewed certificate that cannot be used, since the last call.
    pub fn take_warnings(&self) -> Vec<String> {
        self.tls.take_warnings()
    }
}

/// Goes through the proxy of the setting.
fn through(
    builder: reqwest::ClientBuilder,
    setting: Option<&Secret>,
    node: &Node,
) -> Result<reqwest::ClientBuilder, ConfigError> {
    let Some(setting) = setting else {
        return Ok(builder);
    };
    let node = node.nearest("proxy");
    let address = setting
        .reveal()
        .map_err(|error| node.error(error.to_string()).hiding_value())?;
    if &*address == "none" {
        return Ok(builder.no_proxy());
    }
    let known = ["http://", "https://"];
    let proxy = Proxy::all(&*address).ok();
    let proxy = proxy.filter(|_| known.iter().any(|scheme| address.starts_with(scheme)));
    let proxy = proxy.ok_or_else(|| {
        node.error("expected `none`, http://HOST:PORT or https://HOST:PORT")
            .hiding_value()
    })?;
    Ok(builder.proxy(proxy.no_proxy(NoProxy::from_env())))
}

/// The headers of the settings, their names checked.
fn headers(
    settings: &ClientSettings,
    node: &Node,
) -> Result<Arc<[(HeaderName, Secret)]>, ConfigError> {
    let node = node.nearest("headers");
    let checked = settings.headers.iter().map(|(name, value)| {
        let header = HeaderName::try_from(name.as_str());
        let header =
            header.map_err(|_| node.error(format!("`{name}` is not the name of a header")))?;
        Ok((header, value.clone()))
    });
    checked.collect()
}

fn header_value(name: &HeaderName, value: &Secret) -> Result<HeaderValue, RequestError> {
    let value = HeaderValue::try_from(&*value.reveal()?);
    let mut value = value.map_err(|_| RequestError::NoHeader(format!("headers.{name}")))?;
    value.set_sensitive(true);
    Ok(value)
}

impl From<reqwest::Error> for RequestError {
    fn from(error: reqwest::Error) -> Self {
        let error = error.without_url();
        if error.is_timeout() {
            let during = if error.is_connect() {
                " of connecting"
            } else {
                ""
            };
            return Self::Timeout(during);
        }
        let mut chain = chain(&error);
        // As the library says it of an answer that begins with anything but a TLS record.
        if chain.contains("InvalidContentType") {
            chain =
                "the server does not use TLS on this port: use http:// or another port".to_owned();
        }
        // As the library says it of an answer of HTTP/1.1, whose first bytes are no frame.
        if chain.contains("frame with invalid size") {
            chain = format!("{chain}: the server does not speak HTTP/2 on this port");
        }
        if error.is_connect() {
            Self::Connect(chain)
        } else {
            Self::Broken(chain)
        }
    }
}

/// The causes of an error, the innermost last; what a cause repeats of the one above is left out.
fn chain(error: &reqwest::Error) -> String {
    let mut causes = Vec::new();
    let mut next = error.source();
    while let Some(cause) = next {
        causes.push(cause.to_string());
        next = cause.source();
    }
    match causes.pop() {
        // What is wrapped around says little more than "error sending request".
        Some(innermost) => innermost,
        None => error.to_string(),
    }
}
