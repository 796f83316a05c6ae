//! Asks Java virtual machines for the names of their compiled code.
//!
//! | module | holds |
//! | --- | --- |
//! | [`asking`] | a thread that asks one after the other, so that nobody waits for them |
//! | `process` | what has to hold of a process before a signal is sent to it |
//!
//! HotSpot has an *attach protocol*: whoever leaves a file `.attach_pidN` in `/tmp` and sends `SIGQUIT` gets a socket `/tmp/.java_pidN`, and over it
//! can give commands. `Compiler.perfmap` writes `/tmp/perf-N.map` (Java 17 and later). `N` is the number and `/tmp` the folder that the
//! process sees, which may be others than this one's. A map that was not there before is taken away again.
//!
//! A JVM that does not take part would do something else with the signal: print a dump of its threads, or end. So the signal is only sent to one that says
//! it takes part, and that handles the signal ([`process`]).
//!
//! Source: `src/hotspot/os/posix/attachListener_posix.cpp` and `src/hotspot/share/services/attachListener.cpp` of OpenJDK.

pub mod asking;
mod process;

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat, fchown, fstat, openat, statat, unlinkat};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use rustix::process::{Gid, Signal, Uid, pidfd_send_signal};

use process::Jvm;

use crate::symbols::perf_map::FILE_BYTES_MAX;

/// How long a JVM may take to open its socket, and then to answer.
const TIME_MAX: Duration = Duration::from_secs(5);

/// How often it is looked for the socket.
const LOOK: Duration = Duration::from_millis(20);

/// The most bytes of an answer that are read.
const ANSWER_BYTES_MAX: usize = 4096;

/// Version 1, the command `jcmd`, its line, and two arguments that it does not have.
const REQUEST: &[u8] = b"1\0jcmd\0Compiler.perfmap\0\0\0";

/// Why a JVM has written no map.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// It is no longer there, or another program.
    #[error("the process has ended")]
    Ended,
    /// It handles no `SIGQUIT`, perhaps only not yet.
    #[error("it handles no SIGQUIT, as with -Xrs")]
    NotReady,
    /// It is told not to answer.
    #[error("it takes no commands, as with -XX:+DisableAttachMechanism")]
    Disabled,
    /// Only its user or root may ask it.
    #[error("it is of user {0}, and only that user or root may ask it")]
    OtherUser(u32),
    /// Something that is not its map stands where it would write.
    #[error("/tmp/perf-{0}.map is not a file of its user, and it would be overwritten")]
    Occupied(u32),
    /// It has no socket, or says nothing on it.
    #[error("it did not answer within {} s", TIME_MAX.as_secs())]
    Silent,
    /// It answers that it cannot.
    #[error("it answers: {0}")]
    Refused(String),
    /// The system refuses.
    #[error("cannot {action}: {source}")]
    Io {
        /// What was tried.
        action: &'static str,
        /// What the system says.
        source: io::Error,
    },
}

impl AttachError {
    fn io(action: &'static str) -> impl Fn(Errno) -> Self {
        move |error| Self::Io {
            action,
            source: error.into(),
        }
    }

    /// Whether another attempt may succeed.
    pub fn may_pass(&self) -> bool {
        matches!(self, Self::NotReady)
    }
}

/// The map of a JVM's code, as `perf` reads it. It is asked, and waited for.
///
/// # Errors
/// The process is not a JVM that takes commands from this user, or does not answer.
pub fn map(pid: u32) -> Result<Vec<u8>, AttachError> {
    let jvm = Jvm::find(pid)?;
    let name = format!("perf-{}.map", jvm.number);
    let was_there = is_there(&jvm, &name)?;
    let mut stream = match open_socket(&jvm)? {
        Some(stream) => stream,
        None => call(&jvm)?,
    };
    let text = ask(&mut stream).map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => AttachError::Silent,
        _ => AttachError::Io {
            action: "talk with it",
            source: error,
        },
    })?;
    // The code of the result, and what the command says.
    match text.split_once('\n') {
        Some(("0", _)) => {}
        Some((_, reason)) => return Err(AttachError::Refused(first_line(reason))),
        None => return Err(AttachError::Refused(first_line(&text))),
    }
    let map = written(&jvm, &name);
    if !was_there {
        // What does not go away harms nobody.
        let _ = unlinkat(&jvm.temp, &name, AtFlags::empty());
    }
    map
}

/// What a JVM has written.
fn written(jvm: &Jvm, name: &str) -> Result<Vec<u8>, AttachError> {
    let read = AttachError::io("read its map");
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = openat(&jvm.temp, name, flags, Mode::empty()).map_err(&read)?;
    let data = fstat(&file).map_err(&read)?;
    if !is_own(&data, jvm) {
        return Err(AttachError::Occupied(jvm.number));
    }
    let mut map = Vec::new();
    let read = File::from(file).take(FILE_BYTES_MAX).read_to_end(&mut map);
    match read {
        Ok(_) => Ok(map),
        Err(source) => Err(AttachError::Io {
            action: "read its map",
            source,
        }),
    }
}

/// A file that only the JVM's user can have made.
fn is_own(data: &Stat, jvm: &Jvm) -> bool {
    let is_file = FileType::from_raw_mode(data.st_mode) == FileType::RegularFile;
    is_file && data.st_uid == jvm.uid && data.st_nlink == 1
}

fn first_line(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    line.chars()
        .filter(|char| !char.is_control())
        .take(200)
        .collect()
}

/// Whether its map is there already. A JVM writes it wherever that name leads, so nobody else may have put something there.
fn is_there(jvm: &Jvm, name: &str) -> Result<bool, AttachError> {
    match statat(&jvm.temp, name, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => Ok(false),
        Err(error) => Err(AttachError::io("look for its map")(error)),
        Ok(found) if is_own(&found, jvm) => Ok(true),
        Ok(_) => Err(AttachError::Occupied(jvm.number)),
    }
}

/// The socket of a JVM that was asked before; none where it has none, or one that nobody listens to.
fn open_socket(jvm: &Jvm) -> Result<Option<UnixStream>, AttachError> {
    let name = format!(".java_pid{}", jvm.number);
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let socket = match openat(&jvm.temp, name, flags, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(None),
        opened => opened.map_err(AttachError::io("open its socket"))?,
    };
    let data = fstat(&socket).map_err(AttachError::io("look at its socket"))?;
    let is_socket = FileType::from_raw_mode(data.st_mode) == FileType::Socket;
    if !is_socket || ![0, jvm.uid].contains(&data.st_uid) {
        return Ok(None);
    }
    match connected(&socket) {
        Ok(stream) => Ok(Some(stream)),
        Err(Errno::CONNREFUSED | Errno::NOENT) => Ok(None),
        // As many others wait for it as it lets wait.
        Err(Errno::AGAIN) => Err(AttachError::Silent),
        Err(error) => Err(AttachError::io("connect to its socket")(error)),
    }
}

/// A connection to the socket behind a descriptor, without waiting for it.
fn connected(socket: &OwnedFd) -> Result<UnixStream, Errno> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let stream = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    let path = format!("/proc/self/fd/{}", socket.as_raw_fd());
    connect(&stream, &SocketAddrUnix::new(path)?)?;
    let stream = UnixStream::from(stream);
    let errno = |error: io::Error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
    stream.set_nonblocking(false).map_err(errno)?;
    stream.set_write_timeout(Some(TIME_MAX)).map_err(errno)?;
    Ok(stream)
}

/// Has a JVM open its socket.
fn call(jvm: &Jvm) -> Result<UnixStream, AttachError> {
    let name = format!(".attach_pid{}", jvm.number);
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mode = Mode::RUSR | Mode::WUSR;
    let file = match openat(&jvm.temp, &name, flags, mode) {
        // Somebody else is attaching.
        Err(Errno::EXIST) => return Err(AttachError::NotReady),
        opened => opened.map_err(AttachError::io("leave it a file in /tmp"))?,
    };
    let stream = answered(jvm, file.as_fd());
    // Nobody needs it any more; what does not go away harms nobody.
    let _ = unlinkat(&jvm.temp, &name, AtFlags::empty());
    stream
}

fn answered(jvm: &Jvm, file: impl AsFd) -> Result<UnixStream, AttachError> {
    let (user, group) = (Uid::from_raw(jvm.uid), Gid::from_raw(jvm.gid));
    if user != rustix::process::geteuid() {
        // Some versions take only files of their own user.
        fchown(file, Some(user), Some(group)).map_err(AttachError::io("give it a file"))?;
    }
    pidfd_send_signal(&jvm.process, Signal::QUIT).map_err(AttachError::io("send it SIGQUIT"))?;
    let end = Instant::now() + TIME_MAX;
    while Instant::now() < end {
        std::thread::sleep(LOOK);
        if let Some(stream) = open_socket(jvm)? {
            return Ok(stream);
        }
    }
    Err(AttachError::Silent)
}

fn ask(stream: &mut UnixStream) -> io::Result<String> {
    let end = Instant::now() + TIME_MAX;
    stream.write_all(REQUEST)?;
    let mut answer = Vec::new();
    let mut buffer = [0; 512];
    while answer.len() < ANSWER_BYTES_MAX {
        let rest = end.saturating_duration_since(Instant::now());
        if rest.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(rest))?;
        match stream.read(&mut buffer) {
            Ok(0) => break,
            Ok(bytes) => answer.extend_from_slice(&buffer[..bytes]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(String::from_utf8_lossy(&answer).into_owned())
}
