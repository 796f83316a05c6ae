//! What a client learns of a connection on which nothing is answered: whether the server has closed it, and what it has confirmed.
//!
//! If a process ends while its system still holds bytes that it has not read, Linux resets its connections instead of closing them
//! in the usual way (RFC 2525, section 2.17, and `tcp_close` of the kernel). So a reset tells that something was lost, and the usual
//! end that everything was read.

use std::future::poll_fn;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::Pin;
use std::task::Poll;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::sockopt::socket_error;
use rustix::net::{RecvFlags, recv};
use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::TcpStream;
use tokio::task::yield_now;
use tokio::time::sleep;

use crate::dial::Dialed;
use crate::unsent::unsent;

/// How long a reset may take that follows the end of a connection.
const RESET_AFTER: Duration = Duration::from_millis(20);

/// How often it is looked whether a server has said something.
const LOOK_PAUSE: Duration = Duration::from_millis(2);

/// How often records of TLS are read that hold nothing for us, such as tickets.
const RECORDS_MAX: usize = 8;

/// How a connection is.
#[derive(Debug)]
pub enum Health {
    /// Open, as far as is known.
    Open,
    /// The server has closed it, after its process had read everything.
    Closed,
    /// It broke: what was sent last may not have been read.
    Broken(io::Error),
}

/// What a connection has for its reader.
enum Incoming {
    Nothing,
    Bytes,
    End,
    Failed(io::Error),
}

impl Dialed {
    /// How the connection is. What the server sends is dropped.
    pub async fn health(&mut self) -> Health {
        let incoming = match self {
            Self::Tls(_) => self.of_tls().await,
            _ => drained(self.socket()),
        };
        match incoming {
            Incoming::Nothing | Incoming::Bytes => Health::Open,
            Incoming::Failed(error) => Health::Broken(error),
            Incoming::End => {
                sleep(RESET_AFTER).await;
                broken(self.socket()).map_or(Health::Closed, Health::Broken)
            }
        }
    }

    /// How the connection is after so long at most: whoever is not wanted learns that at the beginning. A server that speaks TLS has
    /// made up its mind when it says something. What the server sends is dropped.
    pub async fn first_word(&mut self, within: Duration) -> Health {
        let begin = Instant::now();
        loop {
            let says_nothing = matches!(peeked(self.socket()), Incoming::Nothing);
            match self.health().await {
                Health::Open => {}
                ended => return ended,
            }
            let is_tls = matches!(self, Self::Tls(_));
            if is_tls && !says_nothing || begin.elapsed() > within {
                return Health::Open;
            }
            sleep(LOOK_PAUSE).await;
        }
    }

    /// Why the connection broke, if it did. Nothing that was received is dropped.
    pub fn failure(&self) -> Option<io::Error> {
        match peeked(self.socket()) {
            Incoming::Failed(error) => Some(error),
            // A reset after that is no error of reading any more, or not yet.
            Incoming::End | Incoming::Bytes => broken(self.socket()),
            Incoming::Nothing => None,
        }
    }

    /// How many bytes that were written are not confirmed: by the system of the server, or on the same machine by its process.
    ///
    /// # Errors
    /// The system does not say.
    pub fn unconfirmed(&self) -> io::Result<usize> {
        unsent(self.socket())
    }

    /// Says goodbye to a server that speaks TLS, which could otherwise not tell the end from an attack. To be called before a
    /// connection is dropped.
    pub fn goodbye(&mut self) {
        if let Self::Tls(tls) = self {
            let (tcp, session) = tls.get_mut();
            session.send_close_notify();
            // Where there is no room for it, the connection ends without.
            let _ = session.write_tls(&mut AtOnce(tcp));
        }
    }

    fn socket(&self) -> BorrowedFd<'_> {
        match self {
            Self::Plain(tcp) => tcp.as_fd(),
            Self::Tls(tls) => tls.get_ref().0.as_fd(),
            Self::Unix(unix) => unix.as_fd(),
        }
    }

    /// As [`drained`], where records have to be decrypted.
    async fn of_tls(&mut self) -> Incoming {
        for _ in 0..RECORDS_MAX {
            match peeked(self.socket()) {
                Incoming::Bytes => {}
                other => return other,
            }
            // Or the runtime does not know yet that there is something.
            yield_now().await;
            let mut space = [0; 4096];
            let read = poll_fn(|context| {
                let mut buffer = ReadBuf::new(&mut space);
                Poll::Ready(match Pin::new(&mut *self).poll_read(context, &mut buffer) {
                    Poll::Pending => None,
                    Poll::Ready(read) => Some(read.map(|()| buffer.filled().len())),
                })
            });
            match read.await {
                Some(Ok(0)) => return Incoming::End,
                Some(Err(error)) => return Incoming::Failed(error),
                Some(Ok(_)) | None => {}
            }
        }
        Incoming::Nothing
    }
}

/// The error that a socket has.
fn broken(socket: BorrowedFd<'_>) -> Option<io::Error> {
    match socket_error(socket) {
        Ok(Ok(())) => None,
        Ok(Err(error)) | Err(error) => Some(error.into()),
    }
}

/// What is there to be read, which stays there.
fn peeked(socket: BorrowedFd<'_>) -> Incoming {
    received(socket, RecvFlags::PEEK)
}

/// Reads and drops what is there.
fn drained(socket: BorrowedFd<'_>) -> Incoming {
    loop {
        match received(socket, RecvFlags::empty()) {
            Incoming::Bytes => {}
            other => return other,
        }
    }
}

fn received(socket: BorrowedFd<'_>, flags: RecvFlags) -> Incoming {
    let mut space = [0; 4096];
    loop {
        return match recv(socket, &mut space, flags | RecvFlags::DONTWAIT) {
            Ok((_, 0)) => Incoming::End,
            Ok(_) => Incoming::Bytes,
            Err(Errno::AGAIN) => Incoming::Nothing,
            Err(Errno::INTR) => continue,
            Err(error) => Incoming::Failed(error.into()),
        };
    }
}

/// Writes what fits at once.
struct AtOnce<'a>(&'a TcpStream);

impl Write for AtOnce<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
