//! Listening: addresses, and connections within limits, with or without TLS.
//!
//! Connections beyond `max_connections` are not refused: they wait in the system's queue until another one ends, or is silent and
//! ends in their favour (see `places`). Each connection does its TLS handshake in its own task, so that a client that dawdles
//! holds up nobody.

use std::borrow::Cow;
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::pin::Pin;
use std::str::FromStr;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use component::kept;
use config::{ConfigError, Node};
use rustix::net::sockopt::{
    set_socket_keepalive, set_tcp_keepcnt, set_tcp_keepidle, set_tcp_keepintvl,
};
use rustls::ServerConfig;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Deserializer, Error as _};
use serde::{Deserialize, Serialize, Serializer};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpSocket, TcpStream, lookup_host};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::notice::Notice;
use crate::places::{Places, Stopping, Watched};
use crate::tls::{ServerContext, explained};

/// How many connections the system holds until they are accepted; its own limit may be lower.
const BACKLOG: u32 = 1024;

/// How long a client may take for the TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// When a client that was silent is asked whether it is still there, how often it is asked again, and how many answers may be missing.
const KEEPALIVE_AFTER: Duration = Duration::from_secs(120);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);
const KEEPALIVE_PROBES: u32 = 8;

/// How long to wait after the system refused to accept a connection: it has no descriptors left, usually.
const PAUSE: Duration = Duration::from_millis(100);

/// An address to listen on: `8080` is that port on this machine only (127.0.0.1), `:8080` the port on every address
/// of the machine, and `HOST:8080` the port on one address. Port 0 has the system choose one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    host: Host,
    port: u16,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Host {
    Loopback,
    Every,
    Named(String),
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (host, port) = match text.rsplit_once(':') {
            None if text.bytes().all(|byte| byte.is_ascii_digit()) => (Host::Loopback, text),
            None if text.starts_with(|first: char| first.is_ascii_digit())
                && !text.contains('.') =>
            {
                return Err(format!(
                    "`{text}` is not a port: expected a number from 0 to 65535, such as 8080, or HOST:8080"
                ));
            }
            None => {
                return Err(format!(
                    "`{text}` has no port: use {text}:8080, or 8080 for that port on this machine only"
                ));
            }
            Some(("", port)) => (Host::Every, port),
            Some((host, port)) => (Host::Named(named(text, host)?), port),
        };
        let number = port.parse().ok().filter(|_| !port.starts_with('+'));
        let port = number
            .ok_or_else(|| format!("`{port}` is not a port: expected a number from 0 to 65535"))?;
        Ok(Self { host, port })
    }
}

/// The host of an address, the brackets of IPv6 taken off.
pub(crate) fn named(text: &str, host: &str) -> Result<String, String> {
    if let Some(inner) = host.strip_prefix('[') {
        let inner = inner.strip_suffix(']').unwrap_or(inner);
        return match inner.parse::<Ipv6Addr>() {
            Ok(_) => Ok(inner.to_owned()),
            Err(_) => Err(format!("`{inner}` is not an IPv6 address")),
        };
    }
    if host.contains(['/', ' ', '@']) {
        return Err(format!(
            "`{text}` is not an address: expected 8080, :8080 or HOST:8080"
        ));
    }
    if host.contains(':') {
        return Err(format!(
            "`{text}` is ambiguous: put an IPv6 address in brackets, as in [::1]:8080"
        ));
    }
    Ok(host.to_owned())
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let port = self.port;
        match &self.host {
            Host::Loopback => write!(f, "127.0.0.1:{port}"),
            Host::Every => write!(f, ":{port}"),
            Host::Named(host) if host.contains(':') => write!(f, "[{host}]:{port}"),
            Host::Named(host) => write!(f, "{host}:{port}"),
        }
    }
}

impl<'de> Deserialize<'de> for Address {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(D::Error::custom)
    }
}

impl Serialize for Address {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl JsonSchema for Address {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Address".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": ["string", "integer"],
            "examples": [8080, ":8080", "0.0.0.0:8080", "[::1]:8080", "collector.example:8080"],
        })
    }
}

impl Address {
    /// A port on this machine only.
    pub fn loopback(port: u16) -> Self {
        Self {
            host: Host::Loopback,
            port,
        }
    }

    /// Whether only programs of this machine can connect, as far as that is known before it is listened on.
    pub fn is_loopback(&self) -> bool {
        match &self.host {
            Host::Loopback => true,
            Host::Every => false,
            Host::Named(host) => {
                let address: Result<IpAddr, _> = host.parse();
                host.eq_ignore_ascii_case("localhost") || address.is_ok_and(|it| it.is_loopback())
            }
        }
    }

    /// Starts to listen. `node` is the setting.
    ///
    /// # Errors
    /// The address is taken, or is none of this machine, at the place of the setting.
    pub async fn bind(&self, node: &Node) -> Result<TcpListener, ConfigError> {
        let name = format!("tcp {self}");
        if let Some((socket, _)) = kept::take(&name)
            && let Ok(listener) = TcpListener::from_std(socket.into())
        {
            return Ok(listener);
        }
        let listening = self.listen().await;
        let kept = listening.and_then(|listener| {
            kept::put(&name, &listener, None)?;
            Ok(listener)
        });
        kept.map_err(|error| self.refused(node, 't', &error))
    }

    /// A socket that receives datagrams. `node` is the setting.
    ///
    /// # Errors
    /// The address is taken, or is none of this machine, at the place of the setting.
    pub async fn bind_udp(&self, node: &Node) -> Result<UdpSocket, ConfigError> {
        let name = format!("udp {self}");
        if let Some((socket, _)) = kept::take(&name) {
            return Ok(socket.into());
        }
        let bound = match &self.host {
            Host::Loopback => UdpSocket::bind((Ipv4Addr::LOCALHOST, self.port)),
            // An IPv6 socket takes IPv4 datagrams too; a machine may be without IPv6.
            Host::Every => match UdpSocket::bind((Ipv6Addr::UNSPECIFIED, self.port)) {
                Err(error) if error.kind() != io::ErrorKind::AddrInUse => {
                    UdpSocket::bind((Ipv4Addr::UNSPECIFIED, self.port))
                }
                other => other,
            },
            Host::Named(host) => match lookup_host((host.as_str(), self.port)).await {
                Ok(addresses) => UdpSocket::bind(&addresses.collect::<Vec<_>>()[..]),
                Err(error) => Err(error),
            },
        };
        let kept = bound.and_then(|socket| {
            kept::put(&name, &socket, None)?;
            Ok(socket)
        });
        kept.map_err(|error| self.refused(node, 'u', &error))
    }

    /// Why the address cannot be had; `protocol` is the letter of TCP or UDP for `ss`.
    fn refused(&self, node: &Node, protocol: char, error: &io::Error) -> ConfigError {
        let failed = |reason: &str| node.error(format!("cannot listen on {self}: {reason}"));
        match error.kind() {
            io::ErrorKind::AddrInUse => {
                let command = format!("ss -ln{protocol}p 'sport = :{}'", self.port);
                failed("another program is already listening there")
                    .note(format!("find it with `{command}`"))
            }
            io::ErrorKind::PermissionDenied => failed(&error.to_string())
                .note("ports below 1024 require root or the capability CAP_NET_BIND_SERVICE"),
            io::ErrorKind::AddrNotAvailable => failed("this machine does not have that address"),
            _ => failed(&error.to_string()),
        }
    }

    async fn listen(&self) -> io::Result<TcpListener> {
        match &self.host {
            Host::Loopback => listen((Ipv4Addr::LOCALHOST, self.port).into()),
            // An IPv6 socket takes IPv4 connections too; a machine may be without IPv6.
            Host::Every => match listen((Ipv6Addr::UNSPECIFIED, self.port).into()) {
                Err(error) if error.kind() != io::ErrorKind::AddrInUse => {
                    listen((Ipv4Addr::UNSPECIFIED, self.port).into())
                }
                other => other,
            },
            Host::Named(host) => {
                let mut failed = None;
                for address in lookup_host((host.as_str(), self.port)).await? {
                    match listen(address) {
                        Ok(listener) => return Ok(listener),
                        Err(error) => failed = Some(error),
                    }
                }
                Err(failed.unwrap_or_else(|| io::Error::other("the host name has no address")))
            }
        }
    }
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    // A restart need not wait for the last connections of the run before to be forgotten.
    socket.set_reuseaddr(true)?;
    // Connections inherit it: those of clients that vanished end also where a client may be silent for ever.
    set_socket_keepalive(&socket, true)?;
    set_tcp_keepidle(&socket, KEEPALIVE_AFTER)?;
    set_tcp_keepintvl(&socket, KEEPALIVE_INTERVAL)?;
    set_tcp_keepcnt(&socket, KEEPALIVE_PROBES)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Accepts connections.
pub struct Listener {
    tcp: TcpListener,
    tls: Option<ServerContext>,
    places: Places,
    refused: Option<String>,
}

impl Listener {
    /// Connections of `tcp`, at most `max_connections` at a time.
    pub fn new(tcp: TcpListener, tls: Option<ServerContext>, max_connections: usize) -> Self {
        Self {
            tcp,
            tls,
            places: Places::new(max_connections),
            refused: None,
        }
    }

    /// Where it listens.
    ///
    /// # Errors
    /// The system does not say.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.tcp.local_addr()
    }

    /// The next connection, once there is room for it. Safe to cancel.
    pub async fn accept(&mut self, notice: &impl Fn(Notice<'_>)) -> Incoming {
        loop {
            match self.tcp.accept().await {
                Ok((tcp, peer)) => {
                    // Answers are small and shall not wait for more; where that cannot be set, they wait.
                    let _ = tcp.set_nodelay(true);
                    let place = self.places.take(notice).await;
                    return Incoming {
                        tcp: Watched::new(tcp, place),
                        // An IPv4 client of a port on every address is shown as such.
                        peer: SocketAddr::new(peer.ip().to_canonical(), peer.port()),
                        tls: self.tls.as_ref().map(ServerContext::config),
                    };
                }
                Err(error) if is_about_one_connection(&error) => {}
                Err(error) => {
                    let message = format!("cannot accept connections: {error}; trying again");
                    self.refused = Some(message);
                    sleep(PAUSE).await;
                }
            }
        }
    }

    /// What a person should hear, since the last call.
    pub fn take_warnings(&mut self) -> Vec<String> {
        let tls = self.tls.as_ref();
        let renewal = tls.map_or_else(Vec::new, ServerContext::take_warnings);
        self.refused.take().into_iter().chain(renewal).collect()
    }

    /// Closes the port, tells every client to leave, and waits until the last one has left.
    pub async fn close(self) {
        drop(self.tcp);
        self.places.close().await;
    }
}

fn is_about_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionRefused
    )
}

/// A connection that was accepted, before its TLS handshake.
pub struct Incoming {
    tcp: Watched<TcpStream>,
    peer: SocketAddr,
    tls: Option<Arc<ServerConfig>>,
}

impl Incoming {
    /// Who it comes from.
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// When the client is to leave.
    pub fn stopping(&self) -> Stopping {
        self.tcp.place().stopping()
    }

    /// Does the handshake, where the listener speaks TLS. None where the client closes the connection before it has sent
    /// anything, as those do that only look whether the port is open.
    ///
    /// # Errors
    /// The client speaks no TLS, shows no good certificate, or takes longer than ten seconds.
    pub async fn handshake(self) -> io::Result<Option<Connection>> {
        let stream = match self.tls {
            None => Stream::Plain(self.tcp),
            Some(config) => {
                let handshake = async {
                    if self.tcp.get_ref().peek(&mut [0]).await? == 0 {
                        return Ok(None);
                    }
                    TlsAcceptor::from(config).accept(self.tcp).await.map(Some)
                };
                let done = match timeout(HANDSHAKE_TIMEOUT, handshake).await {
                    Ok(done) => done.map_err(explained)?,
                    Err(_) => {
                        let reason = format!("it took longer than {HANDSHAKE_TIMEOUT:?}");
                        return Err(io::Error::new(io::ErrorKind::TimedOut, reason));
                    }
                };
                let Some(stream) = done else {
                    return Ok(None);
                };
                Stream::Tls(Box::new(stream))
            }
        };
        Ok(Some(Connection {
            stream,
            peer: self.peer,
        }))
    }
}

/// A connection that can be read and written. Its place among `max_connections` is free when it is dropped.
pub struct Connection {
    stream: Stream,
    peer: SocketAddr,
}

impl Connection {
    /// Who it comes from.
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Says that the client did something other than sending.
    pub(crate) fn heard(&self) {
        let watched = match &self.stream {
            Stream::Plain(tcp) => tcp,
            Stream::Tls(tls) => tls.get_ref().0,
        };
        watched.place().heard();
    }

    /// Reads what the client sends as it is, TLS not taken off: for what is thrown away.
    pub(crate) fn poll_discard(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let tcp = match &mut self.stream {
            Stream::Plain(tcp) => tcp,
            Stream::Tls(tls) => tls.get_mut().0,
        };
        Pin::new(tcp).poll_read(cx, buffer)
    }
}

/// The bytes of a connection.
pub enum Stream {
    /// As they are.
    Plain(Watched<TcpStream>),
    /// Encrypted.
    Tls(Box<TlsStream<Watched<TcpStream>>>),
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match &mut self.stream {
            Stream::Plain(tcp) => Pin::new(tcp).poll_read(cx, buffer),
            Stream::Tls(tls) => match ready!(Pin::new(tls).poll_read(cx, buffer)) {
                // Many clients close the connection without saying so in TLS before. Whether something is missing shows in
                // what they sent.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Poll::Ready(Ok(())),
                done => Poll::Ready(done),
            },
        }
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match &mut self.stream {
            Stream::Plain(tcp) => Pin::new(tcp).poll_write(cx, bytes),
            Stream::Tls(tls) => Pin::new(tls).poll_write(cx, bytes),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut self.stream {
            Stream::Plain(tcp) => Pin::new(tcp).poll_write_vectored(cx, slices),
            Stream::Tls(tls) => Pin::new(tls).poll_write_vectored(cx, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match &self.stream {
            Stream::Plain(tcp) => tcp.is_write_vectored(),
            Stream::Tls(tls) => tls.is_write_vectored(),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.stream {
            Stream::Plain(tcp) => Pin::new(tcp).poll_flush(cx),
            Stream::Tls(tls) => Pin::new(tls).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.stream {
            Stream::Plain(tcp) => Pin::new(tcp).poll_shutdown(cx),
            Stream::Tls(tls) => Pin::new(tls).poll_shutdown(cx),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_read_and_display() {
        for (text, shown) in [
            ("8080", "127.0.0.1:8080"),
            (":8080", ":8080"),
            ("0.0.0.0:80", "0.0.0.0:80"),
            ("localhost:0", "localhost:0"),
            ("[::]:9200", "[::]:9200"),
            ("[::1]:65535", "[::1]:65535"),
        ] {
            let address: Address = text.parse().expect(text);
            assert_eq!(address.to_string(), shown, "{text}");
            assert_eq!(
                shown.parse().map(|again: Address| again.to_string()),
                Ok(shown.into())
            );
        }
    }

    #[test]
    fn what_is_no_address_is_refused() {
        for (text, part) in [
            ("", "is not a port"),
            ("localhost", "`localhost` has no port: use localhost:8080"),
            ("80a", "`80a` is not a port: expected a number"),
            ("10.0.0.1", "`10.0.0.1` has no port: use 10.0.0.1:8080"),
            ("localhost:", "`` is not a port"),
            ("localhost:http", "`http` is not a port"),
            ("65536", "`65536` is not a port"),
            (":+1", "`+1` is not a port"),
            ("::1:80", "in brackets"),
            ("[::x]:80", "`::x` is not an IPv6 address"),
            ("http://localhost:80", "expected"),
        ] {
            let error = text.parse::<Address>().expect_err(text);
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn a_number_is_an_address_too() {
        let source = config::Source::new("t.yaml", "a: 8080\nb: ':1'\nc: x\n");
        let node = config::parse_yaml(&source).expect("YAML");
        let read = |key| node.get(key).expect("a key").deserialize::<Address>();
        assert_eq!(read("a").expect("an address").to_string(), "127.0.0.1:8080");
        assert_eq!(read("b").expect("an address").to_string(), ":1");
        assert_eq!(read("c").expect_err("no address").path(), "c");
    }
}
