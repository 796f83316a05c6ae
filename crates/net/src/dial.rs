//! Connecting to servers that speak a protocol of their own: an [`Endpoint`] and a [`Dialer`] give a [`Dialed`] connection, with or
//! without TLS, within a time limit.

use std::borrow::Cow;
use std::fmt;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use config::{ConfigError, Node};
use rustix::net::sockopt::{
    set_socket_keepalive, set_tcp_keepcnt, set_tcp_keepidle, set_tcp_keepintvl,
};
use rustls::{Error as TlsError, InvalidMessage};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Deserializer, Error as _};
use serde::{Deserialize, Serialize, Serializer};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream, lookup_host};
use tokio::time::timeout;
use tokio_rustls::client::TlsStream;

use crate::listen::named;
use crate::tls::{ClientContext, ClientTls};

/// When a server that is silent is asked whether it is still there, how often it is asked again, and how many answers may be missing.
const KEEPALIVE_AFTER: Duration = Duration::from_secs(30);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
const KEEPALIVE_PROBES: u32 = 6;

/// The address of a server: `HOST:PORT`, or `HOST` where the protocol has a port of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    host: String,
    port: Option<u16>,
}

impl Endpoint {
    /// The address in a setting, `node`, whose protocol has no port of its own.
    ///
    /// # Errors
    /// The port is missing, at the place of the setting.
    pub fn with_port(self, node: &Node) -> Result<Self, ConfigError> {
        match self.port {
            Some(_) => Ok(self),
            None => Err(node.error(format!("`{self}` has no port: use {self}:PORT"))),
        }
    }

    /// The same address, with this port where it has none.
    #[must_use]
    pub fn or_port(self, port: u16) -> Self {
        Self {
            port: self.port.or(Some(port)),
            ..self
        }
    }

    /// The name or the IP address of the server, without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port; 0 where none was given.
    pub fn port(&self) -> u16 {
        self.port.unwrap_or_default()
    }
}

impl std::str::FromStr for Endpoint {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected = || format!("`{text}` is not the address of a server: expected HOST:PORT");
        if text.contains("://") {
            let rest = text.split("://").nth(1).unwrap_or_default();
            return Err(format!("{}; try `{rest}`", expected()));
        }
        let has_port = match text.rfind(']') {
            Some(end) => text[end..].contains(':'),
            None => text.contains(':'),
        };
        let (host, port) = match text.rsplit_once(':').filter(|_| has_port) {
            None => (text, None),
            Some((host, port)) => {
                let number = port.parse::<u16>().ok();
                let number = number.filter(|number| *number > 0 && !port.starts_with('+'));
                let wrong = || format!("`{port}` is not a port: expected a number from 1 to 65535");
                (host, Some(number.ok_or_else(wrong)?))
            }
        };
        if host.is_empty() || host.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(expected());
        }
        let host = named(text, host)?;
        Ok(Self { host, port })
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]", self.host)?,
            false => f.write_str(&self.host)?,
        }
        self.port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

impl<'de> Deserialize<'de> for Endpoint {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(D::Error::custom)
    }
}

impl Serialize for Endpoint {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl JsonSchema for Endpoint {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Endpoint".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "examples": ["collector.example:5044", "10.0.0.1:5044", "[::1]:5044"],
        })
    }
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    /// Nobody listens there, or the name is unknown.
    #[error("cannot connect: {0}")]
    Connect(io::Error),
    /// It took too long.
    #[error("cannot connect within {}", config::Period(*.0))]
    Timeout(Duration),
    /// The handshake of TLS failed.
    #[error("cannot connect: {0}")]
    Tls(String),
    /// The server refuses the client: a person must mend something. For protocols whose servers say so while a connection is made.
    #[error("{0}")]
    Refused(String),
}

/// Makes connections, all in the same way. Cheap to clone.
#[derive(Clone)]
pub struct Dialer {
    tls: Option<ClientContext>,
    connect_timeout: Duration,
}

impl Dialer {
    /// Reads the certificates, if the settings say that TLS is spoken; `node` holds the settings of the component.
    ///
    /// # Errors
    /// A file that cannot be used, with the place of its setting.
    pub fn new(
        tls: Option<&ClientTls>,
        connect_timeout: Duration,
        node: &Node,
    ) -> Result<Self, ConfigError> {
        let tls = tls.map(|tls| tls.open(node.nearest("tls"))).transpose()?;
        Ok(Self {
            tls,
            connect_timeout,
        })
    }

    /// A connection to a server.
    ///
    /// # Errors
    /// There is none within the time limit.
    pub async fn dial(&self, endpoint: &Endpoint) -> Result<Dialed, DialError> {
        self.within(async {
            let tcp = connect(endpoint).await.map_err(DialError::Connect)?;
            self.secure(Dialed::Plain(tcp), endpoint).await
        })
        .await
    }

    /// A connection to a server on which TLS is not spoken yet, for protocols that begin without.
    ///
    /// # Errors
    /// There is none within the time limit.
    pub async fn dial_plain(&self, endpoint: &Endpoint) -> Result<Dialed, DialError> {
        self.within(async {
            let tcp = connect(endpoint).await;
            tcp.map(Dialed::Plain).map_err(DialError::Connect)
        })
        .await
    }

    /// Begins TLS on a connection, if the settings say that it is spoken.
    ///
    /// # Errors
    /// The handshake failed.
    pub async fn secure(&self, dialed: Dialed, endpoint: &Endpoint) -> Result<Dialed, DialError> {
        match (&self.tls, dialed) {
            (Some(tls), Dialed::Plain(tcp)) => {
                let stream = tls.connect(tcp, endpoint.host()).await;
                let stream = stream.map_err(|error| DialError::Tls(explained(&error)))?;
                Ok(Dialed::Tls(Box::new(stream)))
            }
            (_, dialed) => Ok(dialed),
        }
    }

    /// Whether TLS is spoken.
    pub fn has_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// A connection to a socket of this machine, without TLS.
    ///
    /// # Errors
    /// There is none within the time limit.
    pub async fn dial_unix(&self, path: &Path) -> Result<Dialed, DialError> {
        self.within(async {
            let stream = UnixStream::connect(path).await;
            stream.map(Dialed::Unix).map_err(DialError::Connect)
        })
        .await
    }

    async fn within(
        &self,
        dialing: impl Future<Output = Result<Dialed, DialError>>,
    ) -> Result<Dialed, DialError> {
        let dialed = timeout(self.connect_timeout, dialing).await;
        dialed.unwrap_or(Err(DialError::Timeout(self.connect_timeout)))
    }

    /// What a person should hear, such as a renewed certificate that cannot be used, since the last call.
    pub fn take_warnings(&self) -> Vec<String> {
        let tls = self.tls.as_ref();
        tls.map_or_else(Vec::new, ClientContext::take_warnings)
    }
}

/// Connects to the first of the server's addresses that answers.
async fn connect(endpoint: &Endpoint) -> io::Result<TcpStream> {
    let mut failed = None;
    for address in lookup_host((endpoint.host(), endpoint.port())).await? {
        match TcpStream::connect(address).await {
            Ok(tcp) => {
                tcp.set_nodelay(true)?;
                set_socket_keepalive(&tcp, true)?;
                set_tcp_keepidle(&tcp, KEEPALIVE_AFTER)?;
                set_tcp_keepintvl(&tcp, KEEPALIVE_INTERVAL)?;
                set_tcp_keepcnt(&tcp, KEEPALIVE_PROBES)?;
                return Ok(tcp);
            }
            Err(error) => failed = Some(error),
        }
    }
    Err(failed.unwrap_or_else(|| io::Error::other("the host name has no address")))
}

/// What went wrong in a handshake.
fn explained(error: &io::Error) -> String {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref());
    match inner {
        Some(TlsError::InvalidMessage(InvalidMessage::InvalidContentType)) => {
            "the server does not use TLS on this port".to_owned()
        }
        None if error.kind() == io::ErrorKind::UnexpectedEof => {
            "the server closed the connection during the TLS handshake".to_owned()
        }
        _ => error.to_string(),
    }
}

/// A connection to a server.
pub enum Dialed {
    /// TCP.
    Plain(TcpStream),
    /// TLS over TCP.
    Tls(Box<TlsStream<TcpStream>>),
    /// A socket of this machine.
    Unix(UnixStream),
}

impl AsyncRead for Dialed {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match &mut *self {
            Self::Plain(tcp) => Pin::new(tcp).poll_read(cx, buffer),
            Self::Tls(tls) => Pin::new(tls).poll_read(cx, buffer),
            Self::Unix(unix) => Pin::new(unix).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for Dialed {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match &mut *self {
            Self::Plain(tcp) => Pin::new(tcp).poll_write(cx, bytes),
            Self::Tls(tls) => Pin::new(tls).poll_write(cx, bytes),
            Self::Unix(unix) => Pin::new(unix).poll_write(cx, bytes),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut *self {
            Self::Plain(tcp) => Pin::new(tcp).poll_write_vectored(cx, slices),
            Self::Tls(tls) => Pin::new(tls).poll_write_vectored(cx, slices),
            Self::Unix(unix) => Pin::new(unix).poll_write_vectored(cx, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Self::Plain(tcp) => Pin::new(tcp).poll_flush(cx),
            Self::Tls(tls) => Pin::new(tls).poll_flush(cx),
            Self::Unix(unix) => Pin::new(unix).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Self::Plain(tcp) => Pin::new(tcp).poll_shutdown(cx),
            Self::Tls(tls) => Pin::new(tls).poll_shutdown(cx),
            Self::Unix(unix) => Pin::new(unix).poll_shutdown(cx),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_read_and_display() {
        for (text, host, port) in [
            ("h:5044", "h", 5044),
            ("h.example", "h.example", 0),
            ("10.0.0.1:1", "10.0.0.1", 1),
            ("[::1]:65535", "::1", 65535),
            ("[::1]", "::1", 0),
        ] {
            let endpoint: Endpoint = text.parse().expect(text);
            assert_eq!((endpoint.host(), endpoint.port()), (host, port), "{text}");
            assert_eq!(endpoint.to_string(), text);
        }
        let endpoint: Endpoint = "h".parse().expect("a host");
        assert_eq!(endpoint.or_port(5044).to_string(), "h:5044");
    }

    #[test]
    fn what_is_no_endpoint_is_refused() {
        for (text, part) in [
            ("", "expected HOST:PORT"),
            ("5044", "expected HOST:PORT"),
            (":5044", "expected HOST:PORT"),
            ("h:", "`` is not a port"),
            ("h:0", "from 1 to 65535"),
            ("h:+1", "`+1` is not a port"),
            ("::1:80", "in brackets"),
            ("tcp://h:5044", "try `h:5044`"),
            ("[::x]:80", "`::x` is not an IPv6 address"),
        ] {
            let error = text.parse::<Endpoint>().expect_err(text);
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
