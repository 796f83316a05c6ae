//! Millpond as a service: started, killed at any instant, started again, stopped.

use std::fs::{File, OpenOptions};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};

pub const EXECUTABLE: &str = env!("CARGO_BIN_EXE_millpond");

/// How long a stop may take: more than the deadline that the service has.
const STOP: Duration = Duration::from_secs(60);

/// So long after its start SIGTERM may still end the service at once, as any process.
const BEGIN: Duration = Duration::from_millis(500);

/// A service in a folder of its own, by the configuration `millpond.yaml` in it.
pub struct Service {
    folder: PathBuf,
    child: Option<Child>,
    started: Instant,
    pub starts: u32,
}

impl Service {
    pub fn new(folder: &Path, configuration: &str) -> Result<Self> {
        std::fs::write(folder.join("millpond.yaml"), configuration)?;
        Ok(Self {
            folder: folder.to_owned(),
            child: None,
            started: Instant::now(),
            starts: 0,
        })
    }

    pub fn start(&mut self) -> Result<()> {
        let child = Command::new(EXECUTABLE)
            .env_remove("RUST_LOG")
            .arg("run")
            .arg(self.folder.join("millpond.yaml"))
            .stdin(Stdio::null())
            .stdout(self.log()?)
            .stderr(self.log()?)
            .spawn()?;
        self.child = Some(child);
        self.started = Instant::now();
        self.starts += 1;
        Ok(())
    }

    fn log(&self) -> Result<File> {
        let mut options = OpenOptions::new();
        let path = self.folder.join("service.log");
        Ok(options.append(true).create(true).open(path)?)
    }

    /// What all runs printed, its end at least.
    pub fn printed(&self) -> String {
        let all = std::fs::read(self.folder.join("service.log")).unwrap_or_default();
        let end = &all[all.len().saturating_sub(4_000)..];
        String::from_utf8_lossy(end).into_owned()
    }

    /// An error if the service ended by itself.
    pub fn expect_alive(&mut self) -> Result<()> {
        if let Some(child) = &mut self.child
            && let Some(status) = child.try_wait()?
        {
            self.child = None;
            bail!("the service ended by itself, with {status}");
        }
        Ok(())
    }

    /// Ends the service with SIGKILL.
    pub fn kill(&mut self) -> Result<()> {
        self.expect_alive()?;
        if let Some(mut child) = self.child.take() {
            child.kill()?;
            child.wait()?;
        }
        Ok(())
    }

    /// Has the service stand still, or go on.
    pub fn stall(&mut self, is_stalled: bool) -> Result<()> {
        self.expect_alive()?;
        let child = self.child.as_ref().context("the service runs")?;
        let signal = if is_stalled {
            Signal::STOP
        } else {
            Signal::CONT
        };
        Ok(kill_process(Pid::from_child(child), signal)?)
    }

    /// Ends the service with SIGTERM; its exit code must be 0, unless it has just begun.
    pub fn stop(&mut self) -> Result<()> {
        self.expect_alive()?;
        let mut child = self.child.take().context("the service runs")?;
        let has_just_begun = self.started.elapsed() < BEGIN;
        kill_process(Pid::from_child(&child), Signal::TERM)?;
        let begin = Instant::now();
        loop {
            if let Some(status) = child.try_wait()? {
                let is_unhandled = status.signal() == Some(Signal::TERM.as_raw());
                ensure!(
                    status.success() || (is_unhandled && has_just_begun),
                    "after SIGTERM the service ended with {status}"
                );
                return Ok(());
            }
            if begin.elapsed() > STOP {
                child.kill()?;
                child.wait()?;
                bail!("waited {STOP:?} for the service to end after SIGTERM");
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            // It may have ended by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
