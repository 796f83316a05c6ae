//! Bytes to a file descriptor: partial writes, interruptions, and what an error means for the pipeline.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use component::WriteError;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

/// Where bytes go. A trait, so that tests can make it fail.
pub trait Sink: Send {
    /// Writes some of the bytes and says how many.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize>;

    /// Waits until a write that would have blocked is worth another try.
    fn wait(&mut self) -> io::Result<()>;
}

impl Sink for OwnedFd {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(rustix::io::write(self, bytes)?)
    }

    fn wait(&mut self) -> io::Result<()> {
        wait_writable(self.as_fd())
    }
}

/// Waits until a descriptor takes bytes again.
pub fn wait_writable(fd: BorrowedFd<'_>) -> io::Result<()> {
    poll(&mut [PollFd::new(&fd, PollFlags::OUT)], None)?;
    Ok(())
}

/// Writes `bytes` from `done` on, which moves along: after an error it says how much arrived.
///
/// # Errors
/// What the sink says, interruptions aside.
pub fn write_rest(
    sink: &mut (impl Sink + ?Sized),
    bytes: &[u8],
    done: &mut usize,
) -> io::Result<()> {
    while *done < bytes.len() {
        let outcome = match sink.write(&bytes[*done..]) {
            Ok(0) => Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => {
                *done += written;
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => sink.wait(),
            Err(error) => Err(error),
        };
        match outcome {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// What an error means: whether another try can help, and a sentence that names the destination. What a person can mend
/// without stopping us is no reason to end: directories come back, file systems are made writable again.
pub fn failure(destination: &str, error: &io::Error) -> WriteError {
    let message = format!("{destination}: {error}");
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::PIPE) => WriteError::Closed,
        Some(
            Errno::ACCESS
            | Errno::PERM
            | Errno::ROFS
            | Errno::NOENT
            | Errno::ISDIR
            | Errno::NOTDIR
            | Errno::LOOP
            | Errno::NXIO
            | Errno::NODEV
            | Errno::FBIG,
        ) => WriteError::Blocked(message),
        Some(Errno::NAMETOOLONG | Errno::INVAL | Errno::BADF) => WriteError::Fatal(message),
        _ => WriteError::Retry(message),
    }
}

#[cfg(test)]
pub mod tests {
    use parking_lot::Mutex;
    use std::collections::VecDeque;
    use std::sync::Arc;

    use super::*;

    /// What a scripted sink does with one write.
    #[derive(Debug, Clone, Copy)]
    pub enum ScriptedWrite {
        /// Takes at most so many bytes.
        Take(usize),
        /// Fails.
        Fail(Errno),
    }

    /// A sink that follows a script and takes everything once that has ended.
    #[derive(Debug, Clone, Default)]
    pub struct Script {
        pub steps: Arc<Mutex<VecDeque<ScriptedWrite>>>,
        pub taken: Arc<Mutex<Vec<u8>>>,
        pub waits: Arc<Mutex<usize>>,
    }

    impl Script {
        pub fn new(steps: impl IntoIterator<Item = ScriptedWrite>) -> Self {
            Self {
                steps: Arc::new(Mutex::new(steps.into_iter().collect())),
                ..Self::default()
            }
        }
    }

    impl Sink for Script {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let len = match self.steps.lock().pop_front() {
                Some(ScriptedWrite::Fail(errno)) => return Err(errno.into()),
                Some(ScriptedWrite::Take(len)) => len.min(bytes.len()),
                None => bytes.len(),
            };
            self.taken.lock().extend_from_slice(&bytes[..len]);
            Ok(len)
        }

        fn wait(&mut self) -> io::Result<()> {
            *self.waits.lock() += 1;
            Ok(())
        }
    }

    #[test]
    fn short_writes_and_interruptions_are_not_seen_outside() {
        let mut sink = Script::new([
            ScriptedWrite::Take(2),
            ScriptedWrite::Fail(Errno::INTR),
            ScriptedWrite::Fail(Errno::AGAIN),
            ScriptedWrite::Take(1),
            ScriptedWrite::Fail(Errno::NOSPC),
        ]);
        let mut done = 0;
        let error = write_rest(&mut sink, b"abcdef", &mut done).expect_err("the disk is full");
        assert_eq!(
            (done, error.raw_os_error()),
            (3, Some(Errno::NOSPC.raw_os_error()))
        );
        write_rest(&mut sink, b"abcdef", &mut done).expect("there is free space again");
        assert_eq!(*sink.taken.lock(), b"abcdef");
        assert_eq!(*sink.waits.lock(), 1);
    }

    #[test]
    fn a_sink_that_takes_nothing_is_an_error() {
        let mut sink = Script::new([ScriptedWrite::Take(0)]);
        assert!(write_rest(&mut sink, b"a", &mut 0).is_err());
    }

    #[test]
    fn a_full_pipe_is_waited_for() {
        let (reader, mut writer) = io::pipe().expect("a pipe");
        rustix::io::ioctl_fionbio(&writer, true).expect("a pipe that does not block");
        let expected: Vec<u8> = (0..1_000_000_u32).map(|n| n as u8).collect();
        let bytes = expected.clone();
        let thread = std::thread::spawn(move || {
            let mut fd = OwnedFd::from(writer.try_clone().expect("a second descriptor"));
            write_rest(&mut fd, &bytes, &mut 0).expect("the reader reads");
            io::Write::flush(&mut writer).expect("nothing to flush");
        });
        let mut read = Vec::new();
        io::Read::read_to_end(&mut io::BufReader::new(reader), &mut read).expect("the pipe reads");
        thread.join().expect("the writer ends");
        assert_eq!(read, expected);
    }

    #[test]
    fn errors_say_whether_another_try_helps() {
        for (errno, expected) in [
            (Errno::PIPE, WriteError::Closed),
            (
                Errno::NOSPC,
                WriteError::Retry("x: No space left on device (os error 28)".into()),
            ),
            (
                Errno::ACCESS,
                WriteError::Blocked("x: Permission denied (os error 13)".into()),
            ),
            (
                Errno::ROFS,
                WriteError::Blocked("x: Read-only file system (os error 30)".into()),
            ),
            (
                Errno::BADF,
                WriteError::Fatal("x: Bad file descriptor (os error 9)".into()),
            ),
        ] {
            assert_eq!(failure("x", &errno.into()), expected);
        }
    }
}
