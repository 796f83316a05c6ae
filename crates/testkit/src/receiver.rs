//! A strict receiver of Lumberjack and Forward, which answers as a test wants. It keeps what it took, acknowledged or not, and what
//! a client did wrong.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use batch::msgpack::{Extent, Value, elements, find, read, to_json};
use flate2::read::{GzDecoder, ZlibDecoder};
use parking_lot::Mutex;

use crate::ports::free_port;

/// A protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Speaks {
    /// Lumberjack, version 2.
    Lumberjack,
    /// Forward, version 1, without a handshake.
    Forward,
}

/// What a receiver does with a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reply {
    /// It acknowledges all events.
    Acknowledge,
    /// It acknowledges so many events (Lumberjack only), then the others.
    InSteps(usize),
    /// It says so often that it is at work (Lumberjack only), every 50 ms, then acknowledges.
    KeepAlives(usize),
    /// It acknowledges so many events (Lumberjack only) and closes the connection.
    CloseAfter(usize),
    /// It says nothing, and reads nothing more from the connection.
    Silence,
    /// It sends what is no answer.
    Nonsense,
}

/// An event as it arrived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arrived {
    /// The tag, in Forward.
    pub tag: String,
    /// The id that it carries.
    pub id: Option<String>,
    /// The document as JSON.
    pub document: String,
    /// Whether it was acknowledged.
    pub is_acknowledged: bool,
}

type Behaviour = dyn Fn(usize) -> Reply + Send + Sync;

struct Shared {
    speaks: Speaks,
    behaviour: Box<Behaviour>,
    messages: AtomicUsize,
    arrived: Mutex<Vec<Arrived>>,
    faults: Mutex<Vec<String>>,
    connections: Mutex<Vec<TcpStream>>,
    is_over: AtomicBool,
}

/// A receiver on this machine, for as long as it lives.
pub struct Receiver {
    address: SocketAddr,
    shared: Arc<Shared>,
}

impl Receiver {
    /// One that acknowledges everything. Port 0 has the system choose one.
    ///
    /// # Panics
    /// The port is taken.
    pub fn start(port: u16, speaks: Speaks) -> Self {
        Self::with(port, speaks, |_| Reply::Acknowledge)
    }

    /// One that does with each message what the function says of its number.
    ///
    /// # Panics
    /// The port is taken.
    pub fn with(
        port: u16,
        speaks: Speaks,
        behaviour: impl Fn(usize) -> Reply + Send + Sync + 'static,
    ) -> Self {
        // A port that it can have again after a stop.
        let port = if port == 0 { free_port() } else { port };
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).expect("a port");
        let address = listener.local_addr().expect("an address");
        let shared = Arc::new(Shared {
            speaks,
            behaviour: Box::new(behaviour),
            messages: AtomicUsize::new(0),
            arrived: Mutex::default(),
            faults: Mutex::default(),
            connections: Mutex::default(),
            is_over: AtomicBool::new(false),
        });
        let accepting = shared.clone();
        thread::spawn(move || {
            for client in listener.incoming() {
                if accepting.is_over.load(Ordering::Relaxed) {
                    return;
                }
                let Ok(client) = client else { continue };
                let kept = client.try_clone().expect("a descriptor");
                accepting.connections.lock().push(kept);
                let shared = accepting.clone();
                thread::spawn(move || shared.serve(client));
            }
        });
        Self { address, shared }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// How many events arrived.
    pub fn events(&self) -> usize {
        self.shared.arrived.lock().len()
    }

    /// What arrived.
    pub fn arrived(&self) -> Vec<Arrived> {
        self.shared.arrived.lock().clone()
    }

    /// How many connections were made.
    pub fn connections(&self) -> usize {
        self.shared.connections.lock().len()
    }

    /// Closes every connection.
    pub fn cut(&self) {
        for connection in &*self.shared.connections.lock() {
            let _ = connection.shutdown(Shutdown::Both);
        }
    }

    /// What clients did wrong.
    pub fn faults(&self) -> Vec<String> {
        self.shared.faults.lock().clone()
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
        self.cut();
        // Wakes the thread that accepts.
        let _ = TcpStream::connect(self.address);
    }
}

impl Shared {
    fn serve(&self, mut client: TcpStream) {
        let served = match self.speaks {
            Speaks::Lumberjack => self.serve_lumberjack(&mut client),
            Speaks::Forward => self.serve_forward(&mut client),
        };
        if let Err(Stop::Fault(fault)) = served {
            self.faults.lock().push(fault);
        }
        let _ = client.shutdown(Shutdown::Both);
    }

    fn take(&self, arrived: Vec<Arrived>) -> std::ops::Range<usize> {
        let mut all = self.arrived.lock();
        let start = all.len();
        all.extend(arrived);
        start..all.len()
    }

    fn acknowledged(&self, events: std::ops::Range<usize>) {
        let mut all = self.arrived.lock();
        all[events]
            .iter_mut()
            .for_each(|event| event.is_acknowledged = true);
    }

    fn next_reply(&self) -> Reply {
        (self.behaviour)(self.messages.fetch_add(1, Ordering::Relaxed))
    }

    fn serve_lumberjack(&self, client: &mut TcpStream) -> Result<(), Stop> {
        while let Some(events) = read_window(client)? {
            let places = self.take(events);
            let count = places.len();
            let reply = self.next_reply();
            let first = match reply {
                Reply::InSteps(events) | Reply::CloseAfter(events) => events.min(count),
                _ => 0,
            };
            if first > 0 {
                self.acknowledged(places.start..places.start + first);
                client.write_all(&acknowledgement(first))?;
            }
            match reply {
                Reply::CloseAfter(_) => return Ok(()),
                Reply::Silence => return silent(client),
                Reply::Nonsense => client.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")?,
                Reply::KeepAlives(times) => {
                    for _ in 0..times {
                        client.write_all(&acknowledgement(0))?;
                        thread::sleep(Duration::from_millis(50));
                    }
                }
                Reply::Acknowledge | Reply::InSteps(_) => {}
            }
            self.acknowledged(places);
            client.write_all(&acknowledgement(count))?;
        }
        Ok(())
    }

    fn serve_forward(&self, client: &mut TcpStream) -> Result<(), Stop> {
        let mut received = Vec::new();
        loop {
            let end = Extent::default().advance(&received);
            let end = end.map_err(|error| Stop::Fault(format!("no MessagePack: {error}")))?;
            let Some(end) = end else {
                let before = received.len();
                let mut buffer = [0; 64 << 10];
                let read = client.read(&mut buffer)?;
                received.extend_from_slice(&buffer[..read]);
                if received.len() == before {
                    return Ok(());
                }
                continue;
            };
            let message: Vec<u8> = received.drain(..end).collect();
            let (events, chunk) = read_message(&message)?;
            let places = self.take(events);
            match self.next_reply() {
                Reply::CloseAfter(_) => return Ok(()),
                Reply::Silence => return silent(client),
                Reply::Nonsense => client.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")?,
                _ => {}
            }
            self.acknowledged(places);
            let mut ack = vec![0x81, 0xA3];
            ack.extend_from_slice(b"ack");
            ack.extend_from_slice(&chunk);
            client.write_all(&ack)?;
        }
    }
}

/// Why a connection ends.
enum Stop {
    /// The client, or the test, closed it.
    Closed,
    /// The client did something wrong.
    Fault(String),
}

impl From<io::Error> for Stop {
    fn from(_: io::Error) -> Self {
        Self::Closed
    }
}

fn fault(what: impl Into<String>) -> Stop {
    Stop::Fault(what.into())
}

fn silent(client: &mut TcpStream) -> Result<(), Stop> {
    let mut ignored = [0; 4096];
    while client.peek(&mut ignored)? > 0 {
        thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

fn acknowledgement(events: usize) -> Vec<u8> {
    [b"2A".as_slice(), &(events as u32).to_be_bytes()].concat()
}

fn number(source: &mut impl Read) -> io::Result<usize> {
    let mut bytes = [0; 4];
    source.read_exact(&mut bytes)?;
    Ok(u32::from_be_bytes(bytes) as usize)
}

/// The events of a window; none where the client has closed the connection.
fn read_window(client: &mut TcpStream) -> Result<Option<Vec<Arrived>>, Stop> {
    let mut head = [0; 2];
    match client.read(&mut head[..1])? {
        0 => return Ok(None),
        _ => client.read_exact(&mut head[1..])?,
    }
    if &head != b"2W" {
        return Err(fault(format!("a window was expected, not {head:?}")));
    }
    let count = number(client)?;
    let mut events = Vec::new();
    while events.len() < count {
        client.read_exact(&mut head)?;
        if &head == b"2J" {
            events.push(read_event(client, events.len())?);
            continue;
        }
        if &head != b"2C" {
            return Err(fault(format!("a frame was expected, not {head:?}")));
        }
        let len = number(client)?;
        let mut packed = vec![0; len];
        client.read_exact(&mut packed)?;
        let mut frames = Vec::new();
        ZlibDecoder::new(&packed[..])
            .read_to_end(&mut frames)
            .map_err(|error| fault(format!("no zlib: {error}")))?;
        let mut frames = &frames[..];
        while !frames.is_empty() {
            let bad = |_| fault("a frame is cut off within a compressed one");
            frames.read_exact(&mut head).map_err(bad)?;
            if &head != b"2J" {
                return Err(fault(format!("an event was expected, not {head:?}")));
            }
            events.push(read_event(&mut frames, events.len())?);
        }
    }
    match events.len() == count {
        true => Ok(Some(events)),
        false => Err(fault("more events than the window announced")),
    }
}

/// The rest of the frame of an event, before which so many came.
fn read_event(source: &mut impl Read, before: usize) -> Result<Arrived, Stop> {
    let sequence = number(source)?;
    if sequence != before + 1 {
        return Err(fault(format!("sequence {sequence} after {before} events")));
    }
    let len = number(source)?;
    let mut document = vec![0; len];
    source.read_exact(&mut document)?;
    let parsed: serde_json::Value = serde_json::from_slice(&document)
        .map_err(|error| fault(format!("a document is no JSON: {error}")))?;
    if !parsed.is_object() {
        return Err(fault("a document is no object"));
    }
    let id = parsed["@metadata"]["_id"].as_str().map(str::to_owned);
    Ok(Arrived {
        tag: String::new(),
        id,
        document: String::from_utf8_lossy(&document).into_owned(),
        is_acknowledged: false,
    })
}

/// The events of a message in the mode PackedForward, and its chunk as it was sent.
fn read_message(message: &[u8]) -> Result<(Vec<Arrived>, Vec<u8>), Stop> {
    let parts: Vec<_> = elements(message).collect();
    let [tag, entries, options] = &parts[..] else {
        return Err(fault("a message has three elements"));
    };
    let tag = match read(message, tag.start).0 {
        Value::Str(tag) => String::from_utf8_lossy(tag).into_owned(),
        _ => return Err(fault("a tag is a string")),
    };
    let options = &message[options.clone()];
    let option = |key: &[u8]| find(options, key).map(|at| &options[at]);
    let chunk = option(b"chunk").ok_or_else(|| fault("a message without a chunk"))?;
    let entries = match read(message, entries.start).0 {
        Value::Bin(entries) => entries,
        _ => return Err(fault("entries are binary data")),
    };
    let mut inflated = Vec::new();
    let compressed = option(b"compressed").map(|value| match read(value, 0).0 {
        Value::Str(name) => name,
        _ => b"?",
    });
    let entries = match compressed {
        None => entries,
        Some(b"gzip") => {
            let read = GzDecoder::new(entries).read_to_end(&mut inflated);
            read.map_err(|error| fault(format!("no gzip: {error}")))?;
            &inflated
        }
        Some(b"zstd") => {
            inflated = zstd::decode_all(entries).map_err(|error| fault(error.to_string()))?;
            &inflated
        }
        Some(other) => return Err(fault(format!("compression {other:?}"))),
    };
    let events = read_entries(entries, &tag)?;
    let size = option(b"size").map(|value| read(value, 0).0);
    match size {
        Some(Value::Int(size)) if size == events.len() as i64 => {}
        Some(Value::UInt(size)) if size == events.len() as u64 => {}
        size => return Err(fault(format!("{} events, and size {size:?}", events.len()))),
    }
    Ok((events, chunk.to_vec()))
}

fn read_entries(mut entries: &[u8], tag: &str) -> Result<Vec<Arrived>, Stop> {
    let mut events = Vec::new();
    while !entries.is_empty() {
        let end = Extent::default().advance(entries);
        let end = end
            .ok()
            .flatten()
            .ok_or_else(|| fault("entries are cut off"))?;
        let (entry, rest) = entries.split_at(end);
        entries = rest;
        let parts: Vec<_> = elements(entry).collect();
        let [time, record] = &parts[..] else {
            return Err(fault("an entry has two elements"));
        };
        let id = match read(entry, time.start).0 {
            Value::Array(_) => {
                let time = &entry[time.clone()];
                let metadata = elements(time).nth(1).map(|at| &time[at]);
                let metadata = metadata.ok_or_else(|| fault("no metadata behind a time"))?;
                find(metadata, b"_id").and_then(|at| match read(metadata, at.start).0 {
                    Value::Str(id) => Some(String::from_utf8_lossy(id).into_owned()),
                    _ => None,
                })
            }
            _ => None,
        };
        let mut document = Vec::new();
        to_json(&entry[record.clone()], &mut document);
        events.push(Arrived {
            tag: tag.to_owned(),
            id,
            document: String::from_utf8_lossy(&document).into_owned(),
            is_acknowledged: false,
        });
    }
    Ok(events)
}
