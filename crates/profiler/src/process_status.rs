//! What `/proc` tells of a process. Source: proc_pid_status(5), proc_pid_stat(5).

use std::fs;
use std::time::{Duration, SystemTime};

use rustix::time::{ClockId, clock_gettime};

/// Ticks a second in these files, on every processor that Linux runs on here.
const TICKS: u64 = 100;

/// A process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Status {
    /// Its number as it sees it itself.
    pub(crate) number: u32,
    /// Its effective user.
    pub(crate) uid: u32,
    /// Its effective group.
    pub(crate) gid: u32,
    /// The signals that it handles, a bit each.
    pub(crate) caught: u64,
    /// Whether it was stopped.
    pub(crate) is_stopped: bool,
}

impl Status {
    /// That of a process; none where there is no such one.
    pub(crate) fn of(pid: u32) -> Option<Self> {
        Self::parse(&fs::read_to_string(format!("/proc/{pid}/status")).ok()?)
    }

    fn parse(text: &str) -> Option<Self> {
        let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name));
        // The real one, the effective one, and two more.
        let effective = |name: &str| field(name)?.split_whitespace().nth(1)?.parse().ok();
        // A process that has a number in several namespaces has its own as the last.
        let number = field("NSpid:").or_else(|| field("Pid:"));
        Some(Self {
            number: number?.split_whitespace().last()?.parse().ok()?,
            uid: effective("Uid:")?,
            gid: effective("Gid:")?,
            caught: u64::from_str_radix(field("SigCgt:")?.trim(), 16).ok()?,
            is_stopped: field("State:")?.trim_start().starts_with(['T', 't']),
        })
    }
}

/// Whether a process was started with an option, on its command line or in its environment.
pub(crate) fn has_option(pid: u32, option: &str) -> bool {
    ["cmdline", "environ"].iter().any(|name| {
        let text = fs::read(format!("/proc/{pid}/{name}")).unwrap_or_default();
        String::from_utf8_lossy(&text).contains(option)
    })
}

/// When a process began; none where there is no such one.
pub(crate) fn began(pid: u32) -> Option<SystemTime> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let ticks: u64 = ticks(&stat)?;
    let now = clock_gettime(ClockId::Boottime);
    let now = Duration::from_secs(u64::try_from(now.tv_sec).ok()?);
    let since = now.saturating_sub(Duration::from_secs(ticks / TICKS));
    SystemTime::now().checked_sub(since)
}

/// Ticks from the start of the machine to that of the process: the 22nd field. The second one is its name, which may hold anything.
fn ticks(stat: &str) -> Option<u64> {
    let (_, rest) = stat.rsplit_once(") ")?;
    rest.split(' ').nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_is_read() {
        let text = "Name:\tx\nState:\tT (stopped)\nPid:\t30\nUid:\t1000\t1001\t1\t1\nGid:\t5\t6\t5\t5\nNSpid:\t30\t7\nSigCgt:\t0000000000000004\n";
        let status = Status {
            number: 7,
            uid: 1001,
            gid: 6,
            caught: 4,
            is_stopped: true,
        };
        assert_eq!(Status::parse(text), Some(status));
        assert_eq!(Status::parse("Name:\tx\n"), None);
        let own = Status::of(std::process::id()).unwrap();
        assert_eq!(own.uid, rustix::process::geteuid().as_raw());
        assert!(!own.is_stopped);
        assert_eq!(Status::of(u32::MAX), None);
    }

    #[test]
    fn processes_began_before_now() {
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let (parents, childs) = (began(std::process::id()), began(child.id()));
        let now = SystemTime::now();
        child.kill().unwrap();
        child.wait().unwrap();
        // Ticks and seconds are rounded.
        let round = Duration::from_secs(2);
        let (parents, childs) = (parents.unwrap(), childs.unwrap());
        assert!(parents < childs + round && childs < now + round);
        assert!(now < childs + 30 * round, "{childs:?}");
        assert_eq!(began(u32::MAX), None);
        let stat = "1 (a) b) S 1 1 1 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 77 0";
        assert_eq!(ticks(stat), Some(77));
        assert_eq!(ticks("1 (a) S 1"), None);
    }
}
