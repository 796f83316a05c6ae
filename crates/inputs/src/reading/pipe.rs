//! A pipe, a terminal or a socket as a source of bytes, and a file that is read like one: each byte comes once, and the next
//! one may come much later.
//!
//! A read never waits: it gives nothing until [`Pipe::wait`] has said that there is something.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use codec::Decompressor;
use codec::compress::{is_undecided, recognise};
use component::{InputContext, Limit};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::content::{ByteSource, Got};
use super::settings::Compression;

/// How long to wait for bytes before looking whether to stop.
pub(super) const STOP_CHECK_TIME: Duration = Duration::from_millis(100);

/// How long a pipe may lack a writer before somebody is told.
const WRITER_PATIENCE: Duration = Duration::from_secs(1);

/// Bytes read at once where they go to no buffer of the pool: compressed ones, and the first ones.
const AHEAD_BYTES: usize = 32 * 1024;

/// Bytes that come one after the other.
#[derive(Debug)]
pub(crate) struct Pipe {
    fd: OwnedFd,
    /// Whether its next bytes may come much later.
    may_wait: bool,
    /// Whether the next read gives something at once.
    is_ready: bool,
    /// Bytes that were read and that nobody has asked behind yet.
    ahead: Vec<u8>,
    /// Offset of the first of these.
    ahead_at: u64,
}

impl Pipe {
    /// A pipe, a terminal or a socket.
    pub(crate) fn new(fd: OwnedFd) -> Self {
        Self {
            fd,
            may_wait: true,
            is_ready: false,
            ahead: Vec::new(),
            ahead_at: 0,
        }
    }

    /// A regular file, from where it stands: it never keeps us waiting for long.
    pub(crate) fn of_file(file: File) -> Self {
        Self {
            may_wait: false,
            is_ready: true,
            ..Self::new(file.into())
        }
    }

    /// Whether a read may find nothing.
    pub(crate) fn may_wait(&self) -> bool {
        self.may_wait
    }

    /// Waits until the next read gives something, but no longer than `time`.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn wait(&mut self, time: Duration) -> io::Result<()> {
        if self.is_ready {
            return Ok(());
        }
        let time = Timespec {
            tv_sec: time.as_secs() as i64,
            tv_nsec: i64::from(time.subsec_nanos()),
        };
        let mut polled = [PollFd::new(&self.fd, PollFlags::IN)];
        match poll(&mut polled, Some(&time)) {
            // An error or a hang-up shows in the read.
            Ok(ready) => self.is_ready = ready > 0,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// What decompresses the content, which its first bytes tell where the settings do not. No answer as long as too few of them
    /// have come.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn recognise(
        &mut self,
        compression: Compression,
    ) -> io::Result<Option<Option<Decompressor>>> {
        if compression != Compression::Auto {
            return Ok(Some(compression.format().map(Decompressor::new)));
        }
        let mut read = vec![0; AHEAD_BYTES];
        while is_undecided(&self.ahead) {
            match self.read_now(&mut read)? {
                Got::Bytes(bytes) => self.ahead.extend_from_slice(&read[..bytes]),
                // It is found again behind these bytes.
                Got::End => break,
                _ => return Ok(None),
            }
        }
        Ok(Some(recognise(&self.ahead).map(Decompressor::new)))
    }

    /// The bytes from `offset` on that were read ahead.
    fn ahead(&self, offset: u64) -> &[u8] {
        let passed = (offset - self.ahead_at).min(self.ahead.len() as u64);
        &self.ahead[passed as usize..]
    }

    /// Reads what is there.
    fn read_now(&mut self, into: &mut [u8]) -> io::Result<Got> {
        if !self.is_ready {
            return Ok(Got::Nothing);
        }
        self.is_ready = !self.may_wait;
        match rustix::io::read(self.fd.as_fd(), into) {
            Ok(0) => Ok(Got::End),
            Ok(read) => Ok(Got::Bytes(read)),
            Err(Errno::INTR | Errno::AGAIN) => Ok(Got::Nothing),
            Err(error) => Err(error.into()),
        }
    }
}

impl ByteSource for Pipe {
    fn read(&mut self, offset: u64, into: &mut [u8]) -> io::Result<Got> {
        let ahead = self.ahead(offset);
        if ahead.is_empty() {
            self.ahead = Vec::new();
            return self.read_now(into);
        }
        let read = into.len().min(ahead.len());
        into[..read].copy_from_slice(&ahead[..read]);
        Ok(Got::Bytes(read))
    }

    fn compressed<'a>(
        &'a mut self,
        offset: u64,
        _: &'a mut [u8],
        is_first: bool,
    ) -> io::Result<Option<&'a [u8]>> {
        if !is_first {
            return Ok(None);
        }
        if self.ahead(offset).is_empty() {
            let mut ahead = std::mem::take(&mut self.ahead);
            ahead.resize(AHEAD_BYTES, 0);
            let got = self.read_now(&mut ahead);
            ahead.truncate(match &got {
                Ok(Got::Bytes(read)) => *read,
                _ => 0,
            });
            (self.ahead, self.ahead_at) = (ahead, offset);
            if let Got::Nothing = got? {
                return Ok(None);
            }
        }
        Ok(Some(self.ahead(offset)))
    }
}

/// Opens a pipe on a thread of its own, because a named one keeps its opener until a writer comes; none when it was time to
/// stop before. The thread then waits on, and ends with the process at the latest.
pub(super) fn open_patiently(path: &Path, ctx: &InputContext) -> io::Result<Option<File>> {
    let (opened, receiver) = sync_channel(1);
    let owned = path.to_owned();
    // Where nobody waits any more the file is closed again.
    let open = move || drop(opened.send(File::open(owned)));
    thread::Builder::new().name("open".to_owned()).spawn(open)?;
    let begin = Instant::now();
    while !ctx.stop.is_stopped() {
        match receiver.recv_timeout(STOP_CHECK_TIME) {
            Ok(file) => return file.map(Some),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                return Err(io::Error::other("the thread that opens it has ended"));
            }
        }
        if begin.elapsed() >= WRITER_PATIENCE {
            let shown = path.display().to_string();
            let limit = Limit::once_for("pipe without writer", &shown);
            ctx.diagnostics.warn_limited(limit, || {
                format!("{shown}: is a pipe without a writer; waiting for one")
            });
        }
    }
    Ok(None)
}
