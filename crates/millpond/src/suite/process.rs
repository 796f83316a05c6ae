//! Processes of a run: started, watched, ended.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, getpid, kill_process_group, set_child_subreaper, waitid,
};

use super::child::{End, Told};
use super::measure::{Sample, sample};
use crate::interruption::Interruption;
use crate::proc_status::ProcStatus;

/// How often memory and CPU time are looked at: after a part of the time so far, within these limits, so that a long run has no more than some
/// hundred samples.
const SAMPLE: (Duration, Duration) = (Duration::from_millis(5), Duration::from_secs(1));
const SAMPLE_PART: u32 = 200;
/// How long a program may take to end that is asked to.
const END: Duration = Duration::from_secs(10);
/// How long a receiver may take to start.
const START: Duration = Duration::from_secs(30);
/// How often it is looked whether something has happened.
pub const LOOK: Duration = Duration::from_millis(5);
/// The most lines of a program that failed that are shown.
const LINES_MAX: usize = 10;

/// A program, in a process group of its own, which ends as a whole when nobody waits for it any more.
///
/// Processes of the group whose parent has ended become children of this process, so that they are waited for as well.
pub struct Process {
    child: Child,
    status: Option<ExitStatus>,
}

impl Process {
    /// Starts it.
    pub fn start(command: &mut Command) -> std::io::Result<Self> {
        // Where the system does not know this, such processes are asked to end and not waited for.
        let _ = set_child_subreaper(Some(getpid()));
        Ok(Self {
            child: command.stdin(Stdio::null()).process_group(0).spawn()?,
            status: None,
        })
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    fn pid(&self) -> Option<Pid> {
        Pid::from_raw(self.id() as i32).filter(|_| self.status.is_none())
    }

    /// Whether it has ended. What it used can be read until its status is asked for.
    pub fn has_ended(&self) -> anyhow::Result<bool> {
        let Some(pid) = self.pid() else {
            return Ok(true);
        };
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        Ok(waitid(WaitId::Pid(pid), options)?.is_some())
    }

    /// How it ended; waits for that.
    pub fn status(&mut self) -> anyhow::Result<ExitStatus> {
        let status = self.child.wait()?;
        self.status = Some(status);
        Ok(status)
    }

    /// How it ended; waits for that as long as nothing interrupts.
    ///
    /// # Errors
    /// Something does.
    pub fn wait(&mut self, interruption: &Interruption) -> anyhow::Result<ExitStatus> {
        while !self.has_ended()? {
            interruption.check()?;
            thread::sleep(LOOK);
        }
        self.status()
    }

    /// Asks the group to end, and makes it where it does not.
    pub fn end(&mut self) -> anyhow::Result<()> {
        let Some(group) = Pid::from_raw(self.id() as i32) else {
            return Ok(());
        };
        if self.is_gone(group)? {
            return Ok(());
        }
        // A group that has ended in the meantime is no error.
        let _ = kill_process_group(group, Signal::TERM);
        let begin = Instant::now();
        while !self.is_gone(group)? {
            if begin.elapsed() > END {
                let _ = kill_process_group(group, Signal::KILL);
            }
            thread::sleep(LOOK);
        }
        Ok(())
    }

    /// Whether the whole group has ended.
    fn is_gone(&mut self, group: Pid) -> anyhow::Result<bool> {
        // The program itself first, whose status is wanted.
        if !self.has_ended()? {
            return Ok(false);
        }
        if self.status.is_none() {
            self.status()?;
        }
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
        loop {
            match waitid(WaitId::Pgid(Some(group)), options) {
                Ok(Some(_)) => {}
                Ok(None) => return Ok(false),
                Err(Errno::CHILD) => return Ok(true),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

/// What a process uses over time.
pub struct Watched {
    process: u32,
    pub begin: Instant,
    next: Instant,
    pub samples: Vec<Sample>,
    peak: u64,
}

impl Watched {
    pub fn new(process: u32) -> Self {
        let begin = Instant::now();
        Self {
            process,
            begin,
            next: begin,
            samples: Vec::new(),
            peak: 0,
        }
    }

    /// Takes a sample if it is time for one.
    pub fn look(&mut self) {
        if Instant::now() >= self.next {
            let pause = (self.begin.elapsed() / SAMPLE_PART).clamp(SAMPLE.0, SAMPLE.1);
            self.next = Instant::now() + pause;
            self.take();
        }
    }

    /// Takes a sample; the last one with everything that the process has used.
    pub fn take(&mut self) -> Sample {
        let taken = sample(self.process, self.begin.elapsed());
        // Of a process that was waited for nothing is known any more.
        let last = self.samples.last().copied().unwrap_or_default();
        if taken.cpu_seconds < last.cpu_seconds {
            return last;
        }
        let peak = taken.memory_bytes.max(ProcStatus::of(self.process).peak());
        self.peak = self.peak.max(peak);
        self.samples.push(taken);
        taken
    }

    /// The most memory of the process and its children at a time.
    pub fn peak(&self) -> u64 {
        self.peak
    }
}

/// A run of a pipeline in a process of its own.
pub struct Own {
    pub process: Process,
    told: Receiver<Told>,
    /// Events so far.
    pub events: u64,
    /// When there were more.
    pub changed: Instant,
    end: Option<End>,
    log: PathBuf,
}

impl Own {
    /// Starts it.
    ///
    /// # Errors
    /// The system refuses.
    pub fn start(
        pipeline: &str,
        data_dir: Option<PathBuf>,
        variables: &BTreeMap<String, String>,
        work: &Path,
    ) -> anyhow::Result<Self> {
        let log = work.join("millpond.log");
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["bench", "suite-run", pipeline]);
        if let Some(data_dir) = data_dir {
            command.arg("--data-dir").arg(data_dir);
        }
        command.envs(variables).env_remove("NOTIFY_SOCKET");
        command.stdout(Stdio::piped()).stderr(File::create(&log)?);
        let mut process = Process::start(&mut command).context("cannot start Millpond")?;
        let out = process.child.stdout.take();
        let (teller, told) = sync_channel(1000);
        let read = move |out: ChildStdout| {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                let told = serde_json::from_str(&line).unwrap_or_default();
                if teller.send(told).is_err() {
                    break;
                }
            }
        };
        if let Some(out) = out {
            thread::Builder::new().spawn(move || read(out))?;
        }
        Ok(Self {
            process,
            told,
            events: 0,
            changed: Instant::now(),
            end: None,
            log,
        })
    }

    /// What it says on standard error.
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// Takes what the process tells within a time; false when it will tell nothing more.
    fn take(&mut self, time: Duration) -> bool {
        match self.told.recv_timeout(time) {
            Ok(told) => {
                if told.events > self.events {
                    self.changed = Instant::now();
                }
                self.events = self.events.max(told.events);
                self.end = self.end.take().or(told.end);
                true
            }
            Err(RecvTimeoutError::Timeout) => true,
            Err(RecvTimeoutError::Disconnected) => false,
        }
    }

    /// Listens for a time, or until there is something new.
    ///
    /// # Errors
    /// The process has ended.
    pub fn listen(&mut self, time: Duration) -> anyhow::Result<()> {
        match self.take(time) {
            true => Ok(()),
            false => bail!("Millpond ended{}", last_lines(&self.log)),
        }
    }

    /// Waits until it has started.
    ///
    /// # Errors
    /// It ended, takes too long, or the suite is interrupted.
    pub fn wait_until_ready(&mut self, interruption: &Interruption) -> anyhow::Result<()> {
        let begin = Instant::now();
        loop {
            interruption.check()?;
            match self.told.recv_timeout(LOOK) {
                Ok(_) => return Ok(()),
                Err(RecvTimeoutError::Timeout) if begin.elapsed() < START => {}
                Err(_) => bail!("Millpond cannot receive{}", last_lines(&self.log)),
            }
        }
    }

    /// How many events there were, and what they cost, once the process ends by itself or was told to.
    ///
    /// # Errors
    /// It failed.
    pub fn finish(mut self) -> anyhow::Result<(u64, End)> {
        while self.take(END) {}
        let status = match self.process.status {
            Some(status) => status,
            None => self.process.status()?,
        };
        match self.end {
            Some(end) if status.success() => Ok((self.events, end)),
            _ => bail!("Millpond ended with {status}{}", last_lines(&self.log)),
        }
    }
}

/// What a program said last, to be shown below an error.
pub fn last_lines(log: &Path) -> String {
    let text = fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    let lines = &lines[lines.len().saturating_sub(LINES_MAX)..];
    let lines = lines.iter().map(|line| format!("\n  {line}"));
    lines.collect()
}
