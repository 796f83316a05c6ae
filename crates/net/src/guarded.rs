//! A connection that a client cannot hold for ever by not reading, and that keeps small buffers.
//!
//! - **Reading.** hyper doubles its buffer when a read fills it, up to [`BUFFER_BYTES_MAX`], and keeps it while the connection is open.
//!   Whatever waits in the system fills it, also for clients that send a few kilobytes, and thousands of them took 50 KiB
//!   each. So requests of less than [`BUFFER_BYTES_MAX`] come in reads that do not fill hyper's first buffer, until a larger one comes.
//! - **Resting.** Between requests, nothing but the connection is needed. [`Guarded::rests`] says when it is so, and
//!   [`Guarded::wait`] reads what comes then.
//! - **Writing.** A client that takes nothing of an answer for a while loses its connection.
//! - **Closing.** A socket that is closed while unread bytes lie in it is reset, and a reset destroys the answer that is on
//!   its way. A client that sends the whole of a body before it reads would never see why the body was refused. So only
//!   our side is closed, and what still comes is read and thrown away, until the client closes its side: at most
//!   [`LINGER_BYTES_MAX`], [`LINGER`] in all, and [`LINGER_IDLE`] without a byte.
//!
//! Nothing is allocated for either before it is needed.

use std::future::poll_fn;
use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

use crate::listen::Connection;

/// How much of a connection hyper buffers at most. Half as much cost 5 % more for bulk requests of 1.3 MB, in system calls.
pub const BUFFER_BYTES_MAX: usize = 64 * 1024;

/// How much is thrown away behind the last answer.
const LINGER_BYTES_MAX: usize = 64 << 20;

/// How long the rest is waited for.
const LINGER: Duration = Duration::from_secs(30);

/// How long its next byte is waited for.
const LINGER_IDLE: Duration = Duration::from_secs(5);

/// How much is thrown away at once. It lies on the stack.
const DISCARD_BYTES: usize = 16 << 10;

/// One byte less than the buffer that hyper begins with.
const SMALL_READ_BYTES: usize = (8 << 10) - 1;

/// A connection with limits on writing and closing.
pub struct Guarded {
    connection: Connection,
    has_small_reads: bool,
    write_timeout: Duration,
    /// Runs while a write waits for the client.
    deadline: Option<Pin<Box<Sleep>>>,
    /// Bytes since something was written.
    read_bytes: usize,
    /// Bytes came since an answer, or a part of one, was written.
    has_begun: bool,
    /// Bytes that were read already, and come first.
    ahead: Bytes,
    rests: Option<Arc<AtomicBool>>,
    /// The client has closed its side.
    is_ended: bool,
    closing: Closing,
}

/// How far the connection is closed.
enum Closing {
    Not,
    /// Our side is closed.
    Lingering {
        idle: Pin<Box<Sleep>>,
        end: Instant,
        bytes_left: usize,
    },
    Done,
}

impl Guarded {
    /// A client that takes nothing of an answer for `write_timeout` is disconnected.
    pub fn new(connection: Connection, write_timeout: Duration) -> Self {
        Self {
            connection,
            has_small_reads: false,
            write_timeout,
            deadline: None,
            read_bytes: 0,
            has_begun: false,
            ahead: Bytes::new(),
            rests: None,
            is_ended: false,
            closing: Closing::Not,
        }
    }

    /// The connection between two requests, which `ahead` was already read of: it will be read in small pieces at first, so that
    /// hyper keeps a small buffer.
    pub(crate) fn resting(self, ahead: &[u8]) -> Self {
        Self {
            has_small_reads: true,
            // A copy, because hyper's whole buffer would be kept with the bytes, even with none.
            ahead: Bytes::copy_from_slice(ahead),
            // Made now, because what is kept beyond a request must not lie between what is freed after it.
            rests: Some(self.rests.unwrap_or_default()),
            ..self
        }
    }

    /// What says, from now on, whether all that was read is answered and all that was written is sent. Bytes that were read together
    /// with a request that is answered do not count.
    pub(crate) fn rests(&mut self) -> Arc<AtomicBool> {
        self.rests.get_or_insert_default().clone()
    }

    /// Whether bytes came that are not answered.
    pub(crate) fn has_begun(&self) -> bool {
        self.has_begun
    }

    /// Something of an answer may have been written: what comes then belongs to the next request. A flush says nothing, as
    /// hyper flushes between two pieces of a body, too.
    fn note_written(&mut self, written: &Poll<io::Result<usize>>) {
        if written.is_ready() {
            self.has_begun = false;
            self.read_bytes = 0;
        }
    }

    fn note_rest(&self) {
        if let Some(rests) = &self.rests {
            let is_open = matches!(self.closing, Closing::Not) && !self.is_ended;
            let is_quiet = !self.has_begun && self.deadline.is_none();
            rests.store(is_open && is_quiet, Ordering::Relaxed);
        }
    }

    /// Waits until the client has sent something, which is read next; gives whether it has, or has closed its side. Nothing is
    /// allocated meanwhile.
    pub(crate) async fn wait(&mut self) -> io::Result<bool> {
        if self.ahead.is_empty() {
            self.ahead = poll_fn(|cx| {
                let mut space = [MaybeUninit::uninit(); SMALL_READ_BYTES];
                let mut piece = ReadBuf::uninit(&mut space);
                ready!(Pin::new(&mut self.connection).poll_read(cx, &mut piece))?;
                Poll::Ready(io::Result::Ok(Bytes::copy_from_slice(piece.filled())))
            })
            .await?;
        }
        Ok(!self.ahead.is_empty())
    }

    /// Waits as [`Guarded::wait`] does, and for more as long as what came is only the beginning of these bytes.
    pub(crate) async fn wait_beyond(&mut self, bytes: &[u8]) -> io::Result<bool> {
        if !self.wait().await? {
            return Ok(false);
        }
        while self.ahead.len() < bytes.len() && bytes.starts_with(&self.ahead) {
            let first = std::mem::take(&mut self.ahead);
            let read = self.wait().await;
            self.ahead = [&*first, &*self.ahead].concat().into();
            if !read? {
                break;
            }
        }
        Ok(true)
    }

    /// Whether what comes next begins with these bytes.
    pub(crate) fn is_ahead(&self, bytes: &[u8]) -> bool {
        self.ahead.starts_with(bytes)
    }

    /// Takes what was read already.
    fn take_ahead(&mut self, buffer: &mut ReadBuf<'_>) {
        let bytes = buffer.remaining().min(self.ahead.len());
        buffer.put_slice(&self.ahead.split_to(bytes));
        if self.ahead.is_empty() {
            // Its memory too.
            self.ahead = Bytes::new();
        }
    }

    /// The result of a write, or an error when it has waited for too long.
    fn within_deadline<T>(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            if self.deadline.take().is_some() {
                // The client read, which it shows by that alone.
                self.connection.heard();
            }
            self.note_rest();
            return written;
        }
        let timeout = self.write_timeout;
        let deadline = self
            .deadline
            .get_or_insert_with(|| Box::pin(sleep(timeout)));
        let is_over = deadline.as_mut().poll(cx);
        self.note_rest();
        ready!(is_over);
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }

    /// Closes our side, then waits for the client to close its side.
    fn poll_close(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Closing::Not = self.closing {
            let closed = Pin::new(&mut self.connection).poll_shutdown(cx);
            ready!(self.within_deadline(cx, closed))?;
            self.closing = if self.is_ended {
                Closing::Done
            } else {
                Closing::Lingering {
                    idle: Box::pin(sleep(LINGER_IDLE)),
                    end: Instant::now() + LINGER,
                    bytes_left: LINGER_BYTES_MAX,
                }
            };
        }
        if let Closing::Lingering {
            idle,
            end,
            bytes_left,
        } = &mut self.closing
        {
            while idle.as_mut().poll(cx).is_pending() {
                let mut space = [MaybeUninit::uninit(); DISCARD_BYTES];
                let mut buffer = ReadBuf::uninit(&mut space);
                let read = ready!(self.connection.poll_discard(cx, &mut buffer));
                let bytes = buffer.filled().len();
                if read.is_err() || bytes == 0 || bytes >= *bytes_left {
                    break;
                }
                *bytes_left -= bytes;
                idle.as_mut()
                    .reset((Instant::now() + LINGER_IDLE).min(*end));
            }
            self.closing = Closing::Done;
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncRead for Guarded {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.remaining();
        if !self.ahead.is_empty() {
            self.take_ahead(buffer);
        } else if !self.has_small_reads {
            ready!(Pin::new(&mut self.connection).poll_read(cx, buffer))?;
        } else {
            let mut space = [MaybeUninit::uninit(); SMALL_READ_BYTES];
            let mut piece = ReadBuf::uninit(&mut space[..before.min(SMALL_READ_BYTES)]);
            ready!(Pin::new(&mut self.connection).poll_read(cx, &mut piece))?;
            buffer.put_slice(piece.filled());
        }
        let read = before - buffer.remaining();
        self.read_bytes += read;
        self.has_begun |= read > 0;
        // hyper's buffer has grown by now, and does not shrink.
        self.has_small_reads &= self.read_bytes < BUFFER_BYTES_MAX;
        self.is_ended |= before > 0 && read == 0;
        self.note_rest();
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Guarded {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.connection).poll_write(cx, bytes);
        self.note_written(&written);
        self.within_deadline(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.connection).poll_write_vectored(cx, slices);
        self.note_written(&written);
        self.within_deadline(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.connection.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.connection).poll_flush(cx);
        self.within_deadline(cx, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_close(cx)
    }
}
