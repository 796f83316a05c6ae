//! Sockets of datagrams: UDP and those of Unix.
//!
//! A datagram is delivered when this machine's system has accepted it; over a socket of Unix, when the receiver's queue has it.
//! The socket is connected to its destination, so that the system reports that nobody receives there, if it learns of it. The whole
//! request is sent again then.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use component::{RowAnswer, SendError, Sent};
use rustix::io::Errno;
use rustix::net::sockopt::socket_error;
use tokio::net::{UdpSocket, UnixDatagram, lookup_host};
use tokio::sync::Mutex;
use tokio::time::timeout;

use super::address::connect_datagrams;
use super::framing::datagrams;
use super::stream::Target;

/// Sends datagrams to one destination.
pub struct DatagramClient {
    target: Target,
    /// How long a datagram may wait for room.
    write_timeout: Duration,
    socket: Mutex<Option<DatagramSocket>>,
}

enum DatagramSocket {
    Udp(UdpSocket),
    Unix(UnixDatagram),
}

impl DatagramClient {
    /// A client that has no socket yet.
    pub fn new(target: Target, write_timeout: Duration) -> Self {
        Self {
            target,
            write_timeout,
            socket: Mutex::new(None),
        }
    }

    /// Sends the datagrams of a request.
    ///
    /// # Errors
    /// Nobody receives there, as far as this machine knows: the request is to be sent again.
    pub async fn send(&self, body: &[u8]) -> Result<Sent, SendError> {
        let name = self.target.name(0);
        let failed = |error: io::Error| SendError::Retry(format!("{name}: {error}"));
        let mut place = self.socket.lock().await;
        let socket = match place.take() {
            Some(socket) => socket,
            None => {
                let opened = DatagramSocket::open(&self.target).await;
                opened.map_err(|error| {
                    SendError::Retry(format!("{name}: cannot send there: {error}"))
                })?
            }
        };
        let mut sent = Sent::default();
        for (row, datagram) in datagrams(body).enumerate() {
            let sending = timeout(self.write_timeout, socket.send(datagram)).await;
            match sending.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
                Ok(()) => {}
                Err(error) if error.raw_os_error() == Some(Errno::MSGSIZE.raw_os_error()) => {
                    let reason = format!(
                        "the system sends no datagram of {} bytes to {name}",
                        datagram.len()
                    );
                    let reason = reason.into();
                    sent.refused.push(RowAnswer { row, reason });
                }
                Err(error) => return Err(failed(explained(error))),
            }
        }
        // What the system has learned since the last datagram.
        socket.failure().map_err(|error| failed(explained(error)))?;
        *place = Some(socket);
        Ok(sent)
    }
}

fn explained(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => io::Error::new(error.kind(), "nobody receives there"),
        io::ErrorKind::TimedOut => io::Error::new(
            error.kind(),
            "the receiver takes no datagrams (`write_timeout`)",
        ),
        _ => error,
    }
}

impl DatagramSocket {
    async fn open(target: &Target) -> io::Result<Self> {
        match target {
            Target::Local(path, _) => {
                let socket = UnixDatagram::unbound()?;
                connect_datagrams(&socket, path)?;
                Ok(Self::Unix(socket))
            }
            Target::Servers(servers) => {
                let mut failed = io::Error::other("the host name has no address");
                for server in servers {
                    for address in lookup_host((server.host(), server.port())).await? {
                        match connect(address).await {
                            Ok(socket) => return Ok(Self::Udp(socket)),
                            Err(error) => failed = error,
                        }
                    }
                }
                Err(failed)
            }
        }
    }

    async fn send(&self, datagram: &[u8]) -> io::Result<()> {
        match self {
            Self::Udp(socket) => socket.send(datagram).await,
            Self::Unix(socket) => socket.send(datagram).await,
        }
        .map(drop)
    }

    fn failure(&self) -> io::Result<()> {
        let error = match self {
            Self::Udp(socket) => socket_error(socket),
            Self::Unix(socket) => socket_error(socket),
        };
        error?.map_err(io::Error::from)
    }
}

async fn connect(address: SocketAddr) -> io::Result<UdpSocket> {
    let local: SocketAddr = match address {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let socket = UdpSocket::bind(local).await?;
    socket.connect(address).await?;
    Ok(socket)
}
