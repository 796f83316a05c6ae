//! What has to hold of a process before a signal is sent to it.

use std::ffi::OsStr;
use std::fs;
use std::io::Read;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, geteuid, pidfd_open};

use super::AttachError;
use crate::process_status::{Status, has_option};

/// Bit of `SIGQUIT`, 3, in the masks of `/proc/PID/status`.
const QUIT: u64 = 1 << 2;

/// In which data of a JVM for tools its first character says whether it takes commands. Source: `Management::init` and `perfMemory.hpp` of OpenJDK.
const CAPABILITIES: &[u8] = b"sun.rt.jvmCapabilities\0";

/// The most bytes of such data.
const TOOL_BYTES_MAX: u64 = 1 << 20;

/// A JVM that takes commands of this user.
#[derive(Debug)]
pub struct Jvm {
    /// The process, whichever other one may get its number later.
    pub process: OwnedFd,
    /// The folder that is `/tmp` for it.
    pub temp: OwnedFd,
    /// The number of the process as it sees it itself.
    pub number: u32,
    /// Its user.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
}

impl Jvm {
    /// A process, if it is a JVM that takes commands.
    ///
    /// # Errors
    /// It is not, or belongs to another user.
    pub fn find(pid: u32) -> Result<Self, AttachError> {
        let raw = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let raw = raw.ok_or(AttachError::Ended)?;
        // From here on the number stands for this process as long as it lives.
        let process = pidfd_open(raw, PidfdFlags::empty()).map_err(|error| match error {
            Errno::SRCH => AttachError::Ended,
            error => AttachError::io("open the process")(error),
        })?;
        let status = Status::of(pid).ok_or(AttachError::Ended)?;
        let own = geteuid().as_raw();
        if own != 0 && own != status.uid {
            return Err(AttachError::OtherUser(status.uid));
        }
        if !is_jvm(pid) {
            return Err(AttachError::Ended);
        }
        // One that is stopped would get the signal when all is over.
        if status.caught & QUIT == 0 || status.is_stopped {
            return Err(AttachError::NotReady);
        }
        let temp = temp(pid).map_err(AttachError::io("open its /tmp"))?;
        let takes_commands = takes_commands(pid, status.number, &temp);
        takes_commands.then_some(()).ok_or(AttachError::Disabled)?;
        Ok(Self {
            process,
            temp,
            number: status.number,
            uid: status.uid,
            gid: status.gid,
        })
    }
}

/// Whether a process runs HotSpot. Another JVM would do something else with the signal.
fn is_jvm(pid: u32) -> bool {
    let maps = fs::read(format!("/proc/{pid}/maps")).unwrap_or_default();
    let maps = String::from_utf8_lossy(&maps);
    let names = || maps.lines().filter_map(|line| line.rsplit('/').next());
    names().any(|name| name == "libjvm.so") && !names().any(|name| name.starts_with("libj9"))
}

/// The folder that is `/tmp` for a process. Links in it lead to where they lead for the process, not for this one.
fn temp(pid: u32) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = openat(CWD, format!("/proc/{pid}/root"), flags, Mode::empty())?;
    openat2(root, "tmp", flags, Mode::empty(), ResolveFlags::IN_ROOT)
}

/// Whether a JVM takes commands: as it says itself, else as its options say.
fn takes_commands(pid: u32, number: u32, temp: &OwnedFd) -> bool {
    let mut said = said(number, temp).peekable();
    if said.peek().is_some() {
        return said.all(|takes| takes);
    }
    !has_option(pid, "-XX:+DisableAttachMechanism")
}

/// What data for tools in a folder say of a JVM with a number.
fn said(number: u32, temp: &OwnedFd) -> impl Iterator<Item = bool> {
    let temp = format!("/proc/self/fd/{}", temp.as_raw_fd());
    let folders = fs::read_dir(temp).into_iter().flatten().flatten();
    let of_user = |name: &OsStr| name.as_encoded_bytes().starts_with(b"hsperfdata_");
    folders
        .filter(move |folder| of_user(&folder.file_name()))
        .filter_map(move |folder| {
            let file = disk::regular::open(&folder.path().join(number.to_string())).ok()?;
            let mut data = Vec::new();
            file.take(TOOL_BYTES_MAX).read_to_end(&mut data).ok()?;
            capability(&data)
        })
}

/// Whether a JVM's data for tools say that it takes commands; none where they say nothing of it.
fn capability(data: &[u8]) -> Option<bool> {
    /// Where an entry has its name, and where the offset of its value.
    const NAME: usize = 20;
    const VALUE: usize = 16;
    let name = data
        .windows(CAPABILITIES.len())
        .position(|bytes| bytes == CAPABILITIES)?;
    let entry = name.checked_sub(NAME)?;
    let offset = data.get(entry + VALUE..)?.first_chunk()?;
    let value = entry.checked_add(usize::try_from(u32::from_ne_bytes(*offset)).ok()?)?;
    Some(*data.get(value)? == b'1')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_for_tools_say_whether_commands_are_taken() {
        let entry = |value: u8| {
            let mut data = vec![0; 32];
            let mut entry = [0_u8; 20];
            entry[16..].copy_from_slice(&48_u32.to_ne_bytes());
            data.extend(entry);
            data.extend(CAPABILITIES);
            data.resize(32 + 48, 0);
            data.push(value);
            data
        };
        assert_eq!(capability(&entry(b'1')), Some(true));
        assert_eq!(capability(&entry(b'0')), Some(false));
        let whole = entry(b'1');
        assert_eq!(capability(&whole[..whole.len() - 1]), None);
        assert_eq!(capability(&whole[32 + 5..]), None);
        assert_eq!(capability(b"x"), None);
    }

    #[test]
    fn other_programs_and_processes_that_are_gone_get_no_signal() {
        let error = Jvm::find(std::process::id()).unwrap_err();
        assert!(matches!(error, AttachError::Ended), "{error}");
        let error = Jvm::find(u32::MAX).unwrap_err();
        assert!(matches!(error, AttachError::Ended), "{error}");
    }
}
