//! A name server over UDP that answers as a test says (RFC 1035).

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// The bytes before the question.
const HEADER: usize = 12;

/// What a server does about a question.
#[derive(Debug, Clone)]
pub enum NameReply {
    /// Gives these records, which hold for so many seconds.
    Records(u32, Vec<NameRecord>),
    /// There is no such name.
    NoName,
    /// It cannot tell.
    ServerFailure,
    /// Does not answer.
    Nothing,
    /// Does this, but only after a while. All questions that wait at the same time wait equally long.
    After(Duration, Box<NameReply>),
}

/// What a record says.
#[derive(Debug, Clone)]
pub enum NameRecord {
    /// The name of an address.
    Name(&'static str),
    /// An address of a name. It is in the answer if it is of the kind that was asked for.
    Address(IpAddr),
}

/// A name server on a port of its own, as long as the process runs.
#[derive(Debug)]
pub struct NameServer {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<String>>>,
}

impl NameServer {
    /// Starts a server that does about a name, in small letters and without a dot at its end, what `reply` says.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn start(reply: impl Fn(&str) -> NameReply + Send + 'static) -> Self {
        Self::start_by_kind(move |name, _| reply(name))
    }

    /// Starts a server that does about a name and a kind of records, by its number, what `reply` says.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn start_by_kind(reply: impl Fn(&str, u16) -> NameReply + Send + 'static) -> Self {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let address = socket.local_addr().expect("a bound socket has an address");
        let asked = Arc::<Mutex<Vec<String>>>::default();
        let (later, waiting) = sync_channel(10_000);
        let (sender, log) = (socket.try_clone().expect("a socket"), asked.clone());
        thread::spawn(move || send_when_due(&waiting, &sender));
        thread::spawn(move || {
            let mut buffer = [0; 1500];
            while let Ok((len, peer)) = socket.recv_from(&mut buffer) {
                let Some(question) = Question::read(&buffer[..len]) else {
                    continue;
                };
                log.lock().push(question.name.clone());
                let (delay, reply) = match reply(&question.name, question.kind) {
                    NameReply::After(delay, reply) => (Some(delay), *reply),
                    reply => (None, reply),
                };
                let Some(message) = question.answered(&reply) else {
                    continue;
                };
                match delay {
                    Some(delay) => drop(later.send((Instant::now() + delay, message, peer))),
                    None => drop(socket.send_to(&message, peer)),
                }
            }
        });
        Self { address, asked }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The names that it was asked for so far, in their order, once for each kind of record.
    pub fn asked(&self) -> Vec<String> {
        self.asked.lock().clone()
    }
}

fn send_when_due(waiting: &Receiver<(Instant, Vec<u8>, SocketAddr)>, socket: &UdpSocket) {
    for (due, message, peer) in waiting {
        thread::sleep(due.saturating_duration_since(Instant::now()));
        // A client that is gone by then is nobody's concern.
        drop(socket.send_to(&message, peer));
    }
}

/// A question as it came.
struct Question<'m> {
    id: [u8; 2],
    name: String,
    /// The number of the kind of records: 1 is `A`, 12 is `PTR`, 28 is `AAAA`.
    kind: u16,
    bytes: &'m [u8],
}

impl<'m> Question<'m> {
    fn read(message: &'m [u8]) -> Option<Self> {
        let id = *message.first_chunk()?;
        let mut labels = Vec::new();
        let mut at = HEADER;
        while let Some(len) = message
            .get(at)
            .map(|len| usize::from(*len))
            .filter(|len| *len > 0)
        {
            let label = message.get(at + 1..at + 1 + len)?;
            labels.push(String::from_utf8_lossy(label).to_lowercase());
            at += 1 + len;
        }
        let kind = u16::from_be_bytes(*message.get(at + 1..)?.first_chunk()?);
        Some(Self {
            id,
            name: labels.join("."),
            kind,
            bytes: message.get(HEADER..at + 5)?,
        })
    }

    fn answered(&self, reply: &NameReply) -> Option<Vec<u8>> {
        let none = (0, Vec::new());
        let (code, (ttl, records)) = match reply {
            NameReply::Records(ttl, records) => (0, (*ttl, records.clone())),
            NameReply::NoName => (3, none),
            NameReply::ServerFailure => (2, none),
            NameReply::Nothing | NameReply::After(..) => return None,
        };
        let records: Vec<Vec<u8>> = records.iter().filter_map(|it| it.data(self.kind)).collect();
        let mut message = self.id.to_vec();
        message.extend([0x81, 0x80 | code, 0, 1, 0, records.len() as u8, 0, 0, 0, 0]);
        message.extend(self.bytes);
        for data in records {
            // The name is that of the question, which lies behind the header.
            message.extend([0xc0, HEADER as u8]);
            message.extend(self.kind.to_be_bytes());
            message.extend([0, 1]);
            message.extend(ttl.to_be_bytes());
            message.extend((data.len() as u16).to_be_bytes());
            message.extend(data);
        }
        Some(message)
    }
}

impl NameRecord {
    /// Its data, if it is of that kind.
    fn data(&self, kind: u16) -> Option<Vec<u8>> {
        match (self, kind) {
            (Self::Address(IpAddr::V4(address)), 1) => Some(address.octets().to_vec()),
            (Self::Address(IpAddr::V6(address)), 28) => Some(address.octets().to_vec()),
            (Self::Name(name), 12) => {
                let label = |label: &str| [&[label.len() as u8], label.as_bytes()].concat();
                let labels = name.split('.').map(label);
                Some(labels.chain([vec![0]]).collect::<Vec<_>>().concat())
            }
            _ => None,
        }
    }
}
