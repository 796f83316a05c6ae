//! A strict client of Lumberjack: it accepts no acknowledgement that a receiver must not send.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use flate2::Compression;
use flate2::write::ZlibEncoder;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};

/// A window frame.
pub fn window(version: u8, events: u32) -> Vec<u8> {
    [&[version, b'W'][..], &events.to_be_bytes()].concat()
}

/// An event as JSON.
pub fn json(sequence: u32, document: impl AsRef<[u8]>) -> Vec<u8> {
    let document = document.as_ref();
    let length = document.len() as u32;
    let (sequence, length) = (sequence.to_be_bytes(), length.to_be_bytes());
    [b"2J", &sequence[..], &length, document].concat()
}

/// An event as pairs of keys and values, as clients of version 1 send them.
pub fn pairs(sequence: u32, pairs: &[(&[u8], &[u8])]) -> Vec<u8> {
    let count = (pairs.len() as u32).to_be_bytes();
    let mut frame = [b"1D", &sequence.to_be_bytes()[..], &count].concat();
    for text in pairs.iter().flat_map(|(key, value)| [key, value]) {
        frame.extend((text.len() as u32).to_be_bytes());
        frame.extend(*text);
    }
    frame
}

/// Frames in a compressed frame, at the level that Beats use.
///
/// # Panics
/// Memory cannot be written to.
pub fn compressed(version: u8, frames: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::new(3));
    encoder.write_all(frames).expect("memory takes everything");
    let content = encoder.finish().expect("memory takes everything");
    let length = (content.len() as u32).to_be_bytes();
    [&[version, b'C'][..], &length, &content].concat()
}

/// A window of events with a number each, as JSON, in a compressed frame or not.
pub fn numbered(numbers: impl IntoIterator<Item = u64>, is_compressed: bool) -> Vec<u8> {
    let numbered = (1..).zip(numbers);
    let events: Vec<_> = numbered
        .map(|(sequence, number)| json(sequence, format!("{{\"n\":{number}}}")))
        .collect();
    let mut frames = window(b'2', events.len() as u32);
    let events = events.concat();
    frames.extend(match is_compressed {
        true => compressed(b'2', &events),
        false => events,
    });
    frames
}

/// A window of these documents in a compressed frame.
pub fn compressed_window<D: AsRef<[u8]>>(documents: impl IntoIterator<Item = D>) -> Vec<u8> {
    let numbered = (1..).zip(documents);
    let events: Vec<_> = numbered
        .map(|(sequence, document)| json(sequence, document))
        .collect();
    let window = window(b'2', events.len() as u32);
    [window, compressed(b'2', &events.concat())].concat()
}

/// A connection.
#[derive(Debug)]
pub struct Client<S> {
    stream: S,
    /// How many keep-alives came.
    pub keep_alives: usize,
    /// How many acknowledgements came that were not the last one of their window.
    pub partial: usize,
}

impl Client<TcpStream> {
    /// Connects. Waiting for an answer ends after a minute.
    ///
    /// # Errors
    /// Nobody listens.
    pub fn connect(address: impl ToSocketAddrs) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        stream.set_nodelay(true)?;
        Ok(Self::over(stream))
    }
}

impl Client<StreamOwned<ClientConnection, TcpStream>> {
    /// Connects with TLS to a server that is called `localhost`. What is wrong with either certificate may show only when
    /// something is read.
    ///
    /// # Errors
    /// Nobody listens.
    ///
    /// # Panics
    /// The settings cannot work.
    pub fn connect_tls(address: impl ToSocketAddrs, tls: Arc<ClientConfig>) -> io::Result<Self> {
        let tcp = Client::connect(address)?.stream;
        let name = ServerName::try_from("localhost").expect("a name");
        let tls = ClientConnection::new(tls, name).expect("settings that work");
        Ok(Self::over(StreamOwned::new(tls, tcp)))
    }
}

impl<S: Read + Write> Client<S> {
    /// Speaks over a stream.
    pub fn over(stream: S) -> Self {
        Self {
            stream,
            keep_alives: 0,
            partial: 0,
        }
    }

    /// The stream.
    pub fn stream(&mut self) -> &mut S {
        &mut self.stream
    }

    /// Sends frames.
    ///
    /// # Errors
    /// The connection broke.
    pub fn send(&mut self, frames: &[u8]) -> io::Result<()> {
        self.stream.write_all(frames)?;
        self.stream.flush()
    }

    /// Waits until a window of this many events is acknowledged, whose sequences begin with 1.
    ///
    /// # Errors
    /// The connection broke, or was closed.
    ///
    /// # Panics
    /// What came is no acknowledgement, or not one of this window.
    pub fn acknowledged(&mut self, version: u8, events: u32) -> io::Result<()> {
        let mut last = 0;
        loop {
            let sequence = self.acknowledgement(version)?;
            if sequence == 0 && events > 0 {
                assert_eq!(version, b'2', "version 1 has no keep-alives");
                self.keep_alives += 1;
                continue;
            }
            assert!(
                sequence <= events && (sequence > last || events == 0),
                "{sequence} after {last} of {events}"
            );
            last = sequence;
            if sequence == events {
                return Ok(());
            }
            assert_eq!(version, b'2', "version 1 has no partial ones");
            self.partial += 1;
        }
    }

    /// The next acknowledgement.
    ///
    /// # Errors
    /// The connection broke, or was closed.
    ///
    /// # Panics
    /// What came is none.
    pub fn acknowledgement(&mut self, version: u8) -> io::Result<u32> {
        let mut frame = [0; 6];
        self.stream.read_exact(&mut frame)?;
        let [is_version, kind, sequence @ ..] = frame;
        assert_eq!([is_version, kind], [version, b'A'], "{frame:?}");
        Ok(u32::from_be_bytes(sequence))
    }

    /// What still comes until the connection is closed.
    pub fn rest(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        // A connection that is reset has brought what it brought.
        let _ = self.stream.read_to_end(&mut rest);
        rest
    }
}
