//! A connection or a socket of datagrams: what an output of this kind sends its requests with.

use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::Duration;

use component::{
    Compression, Framing as Around, Request, RequestLimits, RequestOrder, Requests, SendError,
    Sent, Warning,
};
use config::{ConfigError, Node};
use net::Endpoint;

use super::address::socket_address;
use super::datagrams::DatagramClient;
use super::stream::{StreamClient, Target};

/// Either of the two.
pub enum Channel {
    Stream(StreamClient),
    Datagrams(DatagramClient),
}

impl Channel {
    /// As [`component::Output::open`].
    ///
    /// # Errors
    /// A file that cannot be used, with the place of its setting.
    pub fn open(&self) -> Result<(), ConfigError> {
        match self {
            Self::Stream(stream) => stream.open(),
            Self::Datagrams(_) => Ok(()),
        }
    }

    /// What requests look like. On a connection, each waits for a round trip: they are large, so that it costs little.
    pub fn requests(&self) -> Requests {
        let (size_max, rows_max) = match self {
            Self::Stream(_) => (8 << 20, 50_000),
            Self::Datagrams(_) => (256 << 10, 1000),
        };
        Requests {
            framing: Around::default(),
            compression: Compression::None,
            limits: RequestLimits {
                size_max,
                rows_max,
                age_max: Duration::from_millis(200),
                is_filled: false,
            },
            order: RequestOrder::ByDestination,
        }
    }

    /// As [`component::Sender::send`].
    ///
    /// # Errors
    /// The request may not have arrived, and is to be sent again.
    pub async fn send(&self, request: &Request) -> Result<Sent, SendError> {
        match self {
            Self::Stream(stream) => stream.send(&request.body).await.map(|()| Sent::default()),
            Self::Datagrams(socket) => socket.send(&request.body).await,
        }
    }

    /// The counters since the last call.
    pub fn take_counters(&self) -> Vec<(&'static str, u64)> {
        match self {
            Self::Stream(stream) => stream.take_counters(),
            Self::Datagrams(_) => Vec::new(),
        }
    }

    /// What a user should hear since the last call.
    pub fn take_warnings(&self) -> Vec<Warning> {
        let warnings = match self {
            Self::Stream(stream) => stream.take_warnings(),
            Self::Datagrams(_) => Vec::new(),
        };
        warnings.into_iter().map(Warning::from).collect()
    }
}

/// The servers in the setting `address` of `node`; the protocol's own port, where it has one, for those without.
///
/// # Errors
/// There is none, or one is no address, with its place.
pub fn servers(
    addresses: &[String],
    port: Option<u16>,
    node: &Node,
) -> Result<Target, ConfigError> {
    let at = node.nearest("address");
    if addresses.is_empty() {
        return Err(at.error("expected the address of a server: HOST:PORT"));
    }
    let items = at.items().iter().zip(addresses);
    let servers = items.map(|(at, text)| {
        let server = text.parse::<Endpoint>().map_err(|error| at.error(error))?;
        match port {
            Some(port) => Ok(server.or_port(port)),
            None => server.with_port(at),
        }
    });
    Ok(Target::Servers(servers.collect::<Result<_, _>>()?))
}

/// The destination that is a path, or with `@` before it an abstract name (unix(7)). `node` is the setting.
///
/// # Errors
/// It is empty or too long for the address of a socket.
pub fn local(path: &str, node: &Node) -> Result<Target, ConfigError> {
    let bytes = match path.strip_prefix('@') {
        Some(name) => [b"\0", name.as_bytes()].concat(),
        None => path.as_bytes().to_vec(),
    };
    if bytes.len() <= usize::from(bytes[..].first() == Some(&0)) {
        return Err(node.error("expected the path of a socket, or `@` and an abstract name"));
    }
    let address = PathBuf::from(std::ffi::OsStr::from_bytes(&bytes));
    socket_address(&address).map_err(|error| node.error(format!("invalid path: {error}")))?;
    Ok(Target::Local(address, path.to_owned()))
}
