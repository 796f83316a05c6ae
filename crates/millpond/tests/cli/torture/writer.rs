//! The writer: a daemon that appends lines to its log at full speed, in bursts, and is told about rotations late.
//!
//! Writes often end within a line. Where a file ends for the writer (it opens the log anew, or pauses for copy and
//! truncation) it first ends the line, as nobody could join the halves of a line in two files.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use fastrand::Rng;

use super::lines::{Journal, Lines};
use super::settings::Settings;

/// How long an answer of the writer may take.
const ANSWER: Duration = Duration::from_secs(60);

/// What the writer left behind when it went on to another file.
pub struct Left {
    pub generation: u32,
    pub bytes: u64,
}

enum Command {
    /// Open the log anew after this time; write to the old one until then.
    Reopen(Duration, Sender<Left>),
    /// Write nothing until the log was truncated.
    Pause(Sender<Left>, Receiver<()>),
    Stop,
}

/// The running writer.
pub struct Writer {
    commands: Sender<Command>,
    thread: JoinHandle<Result<Journal>>,
}

/// Tells the writer about rotations.
#[derive(Clone)]
pub struct Signals(Sender<Command>);

impl Writer {
    /// Starts to write to `log`, spread over the time of the run.
    pub fn start(log: &Path, lines: Lines, settings: &Settings) -> Result<Self> {
        let (commands, received) = channel();
        let mut state = State {
            file: open(log)?,
            log: log.to_owned(),
            lines,
            rng: settings.rng(1),
            journal: Journal {
                firsts: vec![0],
                ..Journal::default()
            },
            pending: Vec::new(),
            generation_bytes: 0,
            pace: Pace {
                begin: Instant::now(),
                duration: settings.duration,
                bytes: settings.megabytes * 1_000_000,
                burst: 0..0,
            },
            reopen: None,
        };
        let thread = std::thread::spawn(move || state.run(&received));
        Ok(Self { commands, thread })
    }

    pub fn signals(&self) -> Signals {
        Signals(self.commands.clone())
    }

    pub fn is_alive(&self) -> bool {
        !self.thread.is_finished()
    }

    /// Ends the writer at the end of a line.
    pub fn stop(self) -> Result<Journal> {
        // Where nobody receives, the thread's own error says more.
        let _ = self.commands.send(Command::Stop);
        let ended = self.thread.join();
        ended.map_err(|_| anyhow!("the writer panicked"))?
    }
}

impl Signals {
    /// Has the log opened anew after this time; what is given tells when it was.
    pub fn reopen(&self, after: Duration) -> Result<Answer> {
        let (sender, answer) = channel();
        self.send(Command::Reopen(after, sender))?;
        Ok(Answer(answer))
    }

    /// Runs `truncate` while the writer pauses, and has it go on after.
    pub fn paused<T>(&self, truncate: impl FnOnce() -> Result<T>) -> Result<(Left, T)> {
        let (sender, answer) = channel();
        let (resume, resumed) = channel();
        self.send(Command::Pause(sender, resumed))?;
        let left = Answer(answer).wait()?;
        let done = truncate()?;
        resume.send(()).context("the writer ended in a pause")?;
        Ok((left, done))
    }

    fn send(&self, command: Command) -> Result<()> {
        self.0
            .send(command)
            .map_err(|_| anyhow!("the writer ended early"))
    }
}

/// Becomes what the writer left.
pub struct Answer(Receiver<Left>);

impl Answer {
    pub fn wait(self) -> Result<Left> {
        self.0
            .recv_timeout(ANSWER)
            .context("waiting for the writer to leave its file")
    }
}

fn open(log: &Path) -> Result<File> {
    let mut options = OpenOptions::new();
    let opened = options.append(true).create(true).open(log);
    opened.context("opening the log")
}

struct State {
    log: PathBuf,
    file: File,
    lines: Lines,
    rng: Rng,
    journal: Journal,
    /// The rest of a line whose beginning was written.
    pending: Vec<u8>,
    generation_bytes: u64,
    pace: Pace,
    reopen: Option<(Instant, Sender<Left>)>,
}

impl State {
    fn run(&mut self, commands: &Receiver<Command>) -> Result<Journal> {
        loop {
            match commands.recv_timeout(self.wait()) {
                Ok(Command::Reopen(after, left)) => {
                    self.reopen = Some((Instant::now() + after, left));
                }
                Ok(Command::Pause(left, resume)) => {
                    self.end_generation(&left)?;
                    resume
                        .recv_timeout(ANSWER)
                        .context("waiting for the truncation")?;
                    self.begin_generation();
                }
                Ok(Command::Stop) | Err(RecvTimeoutError::Disconnected) => {
                    self.end_line()?;
                    return Ok(std::mem::take(&mut self.journal));
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
            self.reopen_when_due()?;
            if self.pace.wait(self.journal.bytes, &mut self.rng).is_zero() {
                self.write_some()?;
            }
        }
    }

    /// Until there is something to do.
    fn wait(&mut self) -> Duration {
        let pace = self.pace.wait(self.journal.bytes, &mut self.rng);
        match &self.reopen {
            Some((due, _)) => pace.min(due.saturating_duration_since(Instant::now())),
            None => pace,
        }
    }

    fn reopen_when_due(&mut self) -> Result<()> {
        if let Some((_, left)) = self.reopen.take_if(|(due, _)| *due <= Instant::now()) {
            self.end_generation(&left)?;
            self.file = open(&self.log)?;
            self.begin_generation();
        }
        Ok(())
    }

    fn end_generation(&mut self, left: &Sender<Left>) -> Result<()> {
        self.end_line()?;
        let generation = self.generation();
        let bytes = self.generation_bytes;
        // A rotator that failed no longer waits.
        let _ = left.send(Left { generation, bytes });
        Ok(())
    }

    fn begin_generation(&mut self) {
        self.journal.firsts.push(self.journal.lines);
        self.generation_bytes = 0;
    }

    fn generation(&self) -> u32 {
        u32::try_from(self.journal.firsts.len() - 1).expect("few generations")
    }

    /// One `write(2)` of some lines, whose end may lie within a line.
    fn write_some(&mut self) -> Result<()> {
        let size = 1 << self.rng.u32(6..17);
        while self.pending.len() < size {
            let generation = self.generation();
            self.lines
                .append(generation, self.journal.lines, &mut self.pending);
            self.pending.push(b'\n');
            self.journal.lines += 1;
        }
        let cut = match self.rng.bool() {
            true => self.pending.len(),
            false => self.rng.usize(1..=self.pending.len()),
        };
        self.write(cut)
    }

    fn end_line(&mut self) -> Result<()> {
        self.write(self.pending.len())
    }

    fn write(&mut self, bytes: usize) -> Result<()> {
        self.file
            .write_all(&self.pending[..bytes])
            .context("writing the log")?;
        self.pending.drain(..bytes);
        self.journal.bytes += bytes as u64;
        self.generation_bytes += bytes as u64;
        Ok(())
    }
}

/// Bursts at full speed with pauses between them, so that the bytes of the run spread over its time.
struct Pace {
    begin: Instant,
    duration: Duration,
    bytes: u64,
    /// The current burst, in bytes of the run.
    burst: Range<u64>,
}

impl Pace {
    /// How long to write nothing, where so many bytes are written.
    fn wait(&mut self, written: u64, rng: &mut Rng) -> Duration {
        if written >= self.bytes {
            // Only a command can come.
            return Duration::from_secs(1);
        }
        if written >= self.burst.end {
            let most = (self.bytes / 16).max(2_048);
            self.burst = written..written + rng.u64(1_024..most);
        }
        let part = self.burst.start as f64 / self.bytes as f64;
        let due = self.duration.mul_f64(part);
        due.saturating_sub(self.begin.elapsed())
    }
}
