//! What is missing where the kernel refuses to sample, and what works without it.
//!
//! Source: `Documentation/admin-guide/perf-security.rst` of the Linux kernel, and perf_event_open(2).

use std::fs;
use std::io;

/// Why nothing can be sampled.
#[derive(Debug, thiserror::Error)]
pub enum SamplingError {
    /// The kernel refuses.
    #[error("the kernel refuses to sample {what}: {advice}")]
    Forbidden {
        /// What was to be sampled.
        what: &'static str,
        /// What to do.
        advice: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// The kernel, or the machine, has no such events.
    #[error(
        "this kernel has no performance events (CONFIG_PERF_EVENTS), or they are blocked, as by a container's seccomp profile"
    )]
    Unsupported(#[source] io::Error),
    /// A process is not there.
    #[error("there is no process {0}")]
    NoProcess(u32),
    /// Something else failed.
    #[error("cannot {action}")]
    Io {
        /// What was tried.
        action: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

/// What the kernel allows those without rights, from 2 (their own processes) on upwards; none where it does not say.
fn paranoia() -> Option<i32> {
    let text = fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").ok()?;
    text.trim().parse().ok()
}

impl SamplingError {
    /// By what perf_event_open(2) said.
    pub(super) fn of_open(error: io::Error, is_whole_host: bool) -> Self {
        let what = match is_whole_host {
            true => "the whole machine",
            false => "this process",
        };
        match error.kind() {
            io::ErrorKind::PermissionDenied => Self::Forbidden {
                what,
                advice: advice(paranoia(), is_whole_host),
                source: error,
            },
            io::ErrorKind::Unsupported | io::ErrorKind::NotFound => Self::Unsupported(error),
            _ if error.raw_os_error() == Some(rustix::io::Errno::NOSYS.raw_os_error()) => {
                Self::Unsupported(error)
            }
            _ => Self::Io {
                action: "open a performance event",
                source: error,
            },
        }
    }
}

fn advice(paranoia: Option<i32>, is_whole_host: bool) -> String {
    let now = paranoia.map_or_else(String::new, |level| format!(" (it is {level} now)"));
    let capability = "give the program the capability CAP_PERFMON (setcap cap_perfmon,cap_sys_ptrace=ep, or AmbientCapabilities= of systemd), run it as root";
    match is_whole_host {
        true => format!(
            "{capability}, or set the sysctl kernel.perf_event_paranoid to -1{now}; without it, processes of the same user can be sampled with --pid"
        ),
        false if paranoia.is_some_and(|level| level <= 2) => {
            format!("it is of another user; {capability}")
        }
        false => {
            format!("{capability}, or set the sysctl kernel.perf_event_paranoid to 2 or less{now}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_say_what_to_do() {
        let refused = io::Error::from(io::ErrorKind::PermissionDenied);
        let text = SamplingError::of_open(refused, true).to_string();
        assert!(
            text.contains("CAP_PERFMON") && text.contains("--pid"),
            "{text}"
        );
        assert!(advice(Some(3), false).contains("(it is 3 now)"));
        assert!(advice(Some(2), false).starts_with("it is of another user; "));
        let missing = io::Error::from_raw_os_error(rustix::io::Errno::NOSYS.raw_os_error());
        let error = SamplingError::of_open(missing, true);
        assert!(matches!(error, SamplingError::Unsupported(_)), "{error}");
    }
}
