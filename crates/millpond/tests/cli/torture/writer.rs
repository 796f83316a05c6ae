//! The writer: a daemon that appends lines to its log at full speed, in bursts, and is told about rotations late.
//!
//! Writes often end within a line. Where a file ends for the writer (it opens the log anew, or pauses for copy and
//! truncation) it first ends the line, as nobody could join the halves of a line in two files. Where the log is truncated
//! while it writes, it learns of that from where its next write ends.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use fastrand::Rng;
use parking_lot::{Mutex, MutexGuard};

use super::journal::{End, Journal};
use super::lines::Lines;
use super::log::Log;
use super::settings::Settings;

/// How long an answer of the writer may take.
const ANSWER: Duration = Duration::from_secs(60);

/// What the writer left behind when it went on to another file.
pub struct Left {
    pub span: usize,
    /// Bytes of its last file, decompressed.
    pub bytes: u64,
}

enum Command {
    /// Open the log anew after this time; write to the old one until then.
    Reopen(Duration, Sender<Left>),
    /// Write nothing until the log was truncated.
    Pause(Sender<Left>, Receiver<()>),
    /// Write over the log in place: so many times what it has now.
    Rewrite(f64, Sender<Left>),
    Stop,
}

/// The running writer.
pub struct Writer {
    signals: Signals,
    thread: JoinHandle<Result<Journal>>,
}

/// Tells the writer about rotations.
#[derive(Clone)]
pub struct Signals {
    commands: Sender<Command>,
    /// Who has it copies and truncates the log, or has it written over: a mix of two contents is nobody's log.
    turn: Arc<Mutex<()>>,
}

impl Writer {
    /// Starts to write to `log`, spread over the time of the run.
    pub fn start(log: &Path, lines: Lines, settings: &Settings) -> Result<Self> {
        let (commands, received) = channel();
        let mut state = State {
            log: Log::open(log, settings.packing)?,
            lines,
            rng: settings.rng(1),
            journal: Journal::default(),
            pending: Vec::new(),
            span_bytes: 0,
            pace: Pace {
                begin: Instant::now(),
                duration: settings.duration,
                bytes: settings.megabytes * 1_000_000,
                // A reader that is always busy is ahead of whoever looks at many other files first.
                bursts: if settings.crowd > 0 { 2_000 } else { 16 },
                burst: 0..0,
            },
            reopen: None,
        };
        let thread = std::thread::spawn(move || state.run(&received));
        let signals = Signals {
            commands,
            turn: Arc::default(),
        };
        Ok(Self { signals, thread })
    }

    pub fn signals(&self) -> Signals {
        self.signals.clone()
    }

    pub fn is_alive(&self) -> bool {
        !self.thread.is_finished()
    }

    /// Ends the writer at the end of a line.
    pub fn stop(self) -> Result<Journal> {
        // Where nobody receives, the thread's own error says more.
        let _ = self.signals.commands.send(Command::Stop);
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

    /// Has the log written over, so many times what it has now.
    pub fn rewrite(&self, times: f64) -> Result<Left> {
        let _turn = self.take_turn();
        let (sender, answer) = channel();
        self.send(Command::Rewrite(times, sender))?;
        Answer(answer).wait()
    }

    /// Nobody has the log written over while this is held.
    pub fn take_turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock()
    }

    fn send(&self, command: Command) -> Result<()> {
        self.commands
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

struct State {
    log: Log,
    lines: Lines,
    rng: Rng,
    journal: Journal,
    /// The rest of a line whose beginning was written, and lines after it.
    pending: Vec<u8>,
    /// Bytes of the current span.
    span_bytes: u64,
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
                    self.leave(&left)?;
                    resume
                        .recv_timeout(ANSWER)
                        .context("waiting for the truncation")?;
                    self.log.is_truncated();
                }
                Ok(Command::Rewrite(times, left)) => self.rewrite(times, &left)?,
                Ok(Command::Stop) | Err(RecvTimeoutError::Disconnected) => {
                    self.end_line()?;
                    self.notice_truncation()?;
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
            self.leave(&left)?;
            self.log.reopen()?;
        }
        Ok(())
    }

    /// Ends what it writes at the end of a line.
    fn leave(&mut self, left: &Sender<Left>) -> Result<()> {
        self.end_line()?;
        self.notice_truncation()?;
        let (span, bytes) = (self.journal.span(), self.span_bytes);
        self.end_span(End::Left);
        // A rotator that failed no longer waits.
        let _ = left.send(Left { span, bytes });
        Ok(())
    }

    fn end_span(&mut self, by: End) {
        self.journal.end_span(by);
        self.span_bytes = 0;
    }

    fn notice_truncation(&mut self) -> Result<()> {
        if self.log.was_truncated()? {
            self.end_span(End::Truncated);
        }
        Ok(())
    }

    fn rewrite(&mut self, times: f64, left: &Sender<Left>) -> Result<()> {
        self.end_line()?;
        self.notice_truncation()?;
        let before = self.span_bytes;
        self.log.truncate()?;
        self.end_span(End::Overwritten);
        let size = (before as f64 * times) as usize;
        self.compose(size.max(1))?;
        self.end_line()?;
        let (span, bytes) = (self.journal.span(), self.span_bytes);
        let _ = left.send(Left { span, bytes });
        Ok(())
    }

    /// One `write(2)` of some lines, whose end may lie within a line.
    fn write_some(&mut self) -> Result<()> {
        let size = 1 << self.rng.u32(6..17);
        self.compose(size)?;
        let cut = match self.rng.bool() {
            true => self.pending.len(),
            false => self.rng.usize(1..=self.pending.len()),
        };
        self.write(cut)
    }

    /// Makes so many bytes ready to be written, or a few more.
    fn compose(&mut self, size: usize) -> Result<()> {
        while self.pending.len() < size {
            let is_first = self.lines.has_header() && self.pending.is_empty();
            let is_first = is_first && self.log.is_empty()?;
            self.journal
                .compose(&self.lines, is_first, &mut self.pending);
        }
        Ok(())
    }

    fn end_line(&mut self) -> Result<()> {
        while !self.pending.is_empty() {
            self.write(self.pending.len())?;
        }
        Ok(())
    }

    fn write(&mut self, bytes: usize) -> Result<()> {
        let (taken, was_truncated) = self.log.append(&self.pending[..bytes])?;
        if was_truncated {
            self.end_span(End::Truncated);
        }
        self.pending.drain(..taken);
        self.journal.bytes += taken as u64;
        self.span_bytes += taken as u64;
        Ok(())
    }
}

/// Bursts at full speed with pauses between them, so that the bytes of the run spread over its time.
struct Pace {
    begin: Instant,
    duration: Duration,
    bytes: u64,
    /// The fewest bursts.
    bursts: u64,
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
            let most = (self.bytes / self.bursts).max(2_048);
            self.burst = written..written + rng.u64(1_024..most);
        }
        let part = self.burst.start as f64 / self.bytes as f64;
        let due = self.duration.mul_f64(part);
        due.saturating_sub(self.begin.elapsed())
    }
}
