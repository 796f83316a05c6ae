//! What the service manager is told: started, reloading, stopping, alive.
//!
//! The protocol is that of systemd: datagrams of `NAME=value` lines to the socket that `NOTIFY_SOCKET` names, a path or an abstract name
//! after `@`. Without that variable nothing is sent.
//!
//! The watchdog is fed from the runtime that inputs, signals and the end of the run depend on: if no task of it is run any more, the
//! messages stop, and systemd ends the process after `WATCHDOG_USEC`. An output whose destination is away does not stop them.
//!
//! Source: sd_notify(3), sd_watchdog_enabled(3).

use std::env;
use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Arc;
use std::time::Duration;

use component::{Diagnostics, Stop, plural};
use rustix::time::{ClockId, clock_gettime};
use tokio::time::{Interval, MissedTickBehavior, interval};

/// How long a message may wait for a service manager that reads none.
const SEND_TIMEOUT: Duration = Duration::from_millis(200);

/// A connection to the service manager.
pub struct Notifier {
    socket: UnixDatagram,
    /// How long it waits for a sign of life.
    watchdog: Option<Duration>,
    diagnostics: Diagnostics,
    /// The end of the run, after which nothing is said of reloads.
    stop: Stop,
}

impl Notifier {
    /// The service manager that the environment names; none where there is none.
    ///
    /// # Errors
    /// There is one, and it cannot be reached.
    pub fn from_environment(diagnostics: &Diagnostics, stop: &Stop) -> io::Result<Option<Self>> {
        let Some(name) = env::var_os("NOTIFY_SOCKET") else {
            return Ok(None);
        };
        let number = |name| env::var(name).ok()?.parse::<u64>().ok();
        // A process that the service started has the same variables.
        let is_other =
            number("WATCHDOG_PID").is_some_and(|pid| pid != u64::from(std::process::id()));
        let watchdog = number("WATCHDOG_USEC").filter(|limit| *limit > 0 && !is_other);
        let watchdog = watchdog.map(Duration::from_micros);
        Self::connect(&name, watchdog, diagnostics.clone(), stop.clone()).map(Some)
    }

    fn connect(
        name: &OsStr,
        watchdog: Option<Duration>,
        diagnostics: Diagnostics,
        stop: Stop,
    ) -> io::Result<Self> {
        let address = match name.as_bytes() {
            [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
            _ => SocketAddr::from_pathname(name)?,
        };
        let socket = UnixDatagram::unbound()?;
        socket.connect_addr(&address)?;
        socket.set_write_timeout(Some(SEND_TIMEOUT))?;
        Ok(Self {
            socket,
            watchdog,
            diagnostics,
            stop,
        })
    }

    /// Sends lines of `NAME=value`. Warns where the service manager is gone, or reads nothing for [`SEND_TIMEOUT`].
    fn tell(&self, lines: &str) {
        if let Err(error) = self.socket.send(lines.as_bytes()) {
            let words = format!("the service manager cannot be told {lines:?}: {error}");
            self.diagnostics.warn(&words);
        }
    }

    /// As [`Self::tell`], but not after a stop.
    fn tell_before_stop(&self, lines: &str) {
        if !self.stop.is_stopped() {
            self.tell(lines);
        }
    }

    /// Says that this many pipelines are at work.
    pub fn running(&self, pipelines: usize) {
        let count = plural(pipelines as u64, "pipeline");
        self.tell_before_stop(&format!("READY=1\nSTATUS=running {count}"));
    }

    /// Says that a reload begins; its end is to be said with [`Self::running`] or [`Self::kept`].
    pub fn reloading(&self) {
        // By which the manager knows which request to reload this answers.
        let now = clock_gettime(ClockId::Monotonic);
        let microseconds = now.tv_sec * 1_000_000 + now.tv_nsec / 1_000;
        self.tell_before_stop(&format!(
            "RELOADING=1\nMONOTONIC_USEC={microseconds}\nSTATUS=reloading the configuration"
        ));
    }

    /// Says that a reload ended without effect, and why.
    pub fn kept(&self, version: u64, reason: &str) {
        // A value has one line.
        let reason = reason.lines().next().unwrap_or_default();
        self.tell_before_stop(&format!(
            "READY=1\nSTATUS=the configuration was not reloaded, version {version} stays in force: {reason}"
        ));
    }

    /// Says that every pipeline has started, then that the process is alive, and when it begins to stop. Does not end.
    pub async fn attend(self: Arc<Self>, pipelines: usize) {
        self.running(pipelines);
        let mut signs = self.watchdog.map(|limit| interval(limit / 2));
        if let Some(signs) = &mut signs {
            signs.set_missed_tick_behavior(MissedTickBehavior::Delay);
        }
        let mut is_stopping = false;
        loop {
            tokio::select! {
                () = self.stop.stopped(), if !is_stopping => {
                    is_stopping = true;
                    self.tell("STOPPING=1\nSTATUS=stopping: delivering the events already read");
                }
                () = next(&mut signs) => self.tell("WATCHDOG=1"),
            }
        }
    }
}

/// The next time for a sign of life; never where nobody waits for one.
async fn next(signs: &mut Option<Interval>) {
    match signs {
        Some(signs) => {
            signs.tick().await;
        }
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use tokio::runtime::Builder;

    #[test]
    fn a_runtime_that_runs_nothing_feeds_no_watchdog() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let manager = UnixDatagram::bind(&path).unwrap();
        manager
            .set_read_timeout(Some(Duration::from_millis(400)))
            .unwrap();
        let limit = Duration::from_millis(100);
        let silent = Diagnostics::silent();
        let (name, stop) = (path.as_os_str(), Stop::default());
        let notifier = Notifier::connect(name, Some(limit), silent, stop).unwrap();
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        runtime.spawn(Arc::new(notifier).attend(1));
        let mut message = [0; 200];
        let mut receive = || {
            let length = manager.recv(&mut message)?;
            io::Result::Ok(String::from_utf8_lossy(&message[..length]).into_owned())
        };
        assert_eq!(receive().unwrap(), "READY=1\nSTATUS=running 1 pipeline");
        for _ in 0..3 {
            assert_eq!(receive().unwrap(), "WATCHDOG=1");
        }
        let (release, blocked) = mpsc::sync_channel::<()>(1);
        let (begin, begun) = mpsc::sync_channel(1);
        runtime.spawn(async move {
            begin.send(()).unwrap();
            let _ = blocked.recv();
        });
        begun.recv().unwrap();
        // What was sent before.
        while receive().is_ok() {}
        assert!(receive().is_err());
        release.send(()).unwrap();
        assert_eq!(receive().unwrap(), "WATCHDOG=1");
        runtime.shutdown_background();
    }
}
