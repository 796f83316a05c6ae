//! Where bytes come from.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Where bytes come from.
#[derive(Debug)]
pub(crate) enum Source {
    /// A regular file, which never keeps us waiting for long.
    File(File),
    /// A pipe, a terminal or a socket, which may give its next bytes much later.
    Pipe(OwnedFd),
}

/// What a read gave.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Got {
    /// So many bytes.
    Bytes(usize),
    /// Nothing was there in time.
    Nothing,
    /// There will be no more.
    End,
}

impl Source {
    /// Whether a read may find nothing.
    pub(crate) fn may_wait(&self) -> bool {
        matches!(self, Self::Pipe(_))
    }

    /// Waits until a read gives bytes at once, but no longer than `time`; whether it does.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn wait(&self, time: Duration) -> io::Result<bool> {
        let Self::Pipe(pipe) = self else {
            return Ok(true);
        };
        let time = Timespec {
            tv_sec: time.as_secs() as i64,
            tv_nsec: i64::from(time.subsec_nanos()),
        };
        let mut polled = [PollFd::new(pipe, PollFlags::IN)];
        match poll(&mut polled, Some(&time)) {
            // An error or a hang-up shows in the read.
            Ok(ready) => Ok(ready > 0),
            Err(rustix::io::Errno::INTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Reads what is there, `into` at most.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn read(&mut self, into: &mut [u8]) -> io::Result<Got> {
        let read = match self {
            Self::File(file) => file.read(into),
            Self::Pipe(pipe) => rustix::io::read(pipe.as_fd(), into).map_err(io::Error::from),
        };
        match read {
            Ok(0) => Ok(Got::End),
            Ok(read) => Ok(Got::Bytes(read)),
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock
                ) =>
            {
                Ok(Got::Nothing)
            }
            Err(error) => Err(error),
        }
    }
}
