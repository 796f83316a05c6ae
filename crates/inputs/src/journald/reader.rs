//! Reads the journal through journalctl, and sends batches.

use std::io::{self, BufRead, BufReader};
use std::os::fd::AsFd;
use std::process::{Child, ChildStderr, ChildStdout, ExitStatus};
use std::sync::Arc;
use std::time::{Duration, Instant};

use batch::{BatchBuilder, Encoding, Source, Stream};
use component::{InputContext, Limit, Stopped, thread};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::export::Export;
use super::position::{Position, Sent};
use super::settings::Config;
use super::{command, document};
use crate::connections::rendered::Rendered;
use crate::reading::describe::describe;
use crate::reading::emitter::now;
use crate::reading::identity::Identity;

/// How long an entry waits for others to go with it.
const AGE_MAX: Duration = Duration::from_millis(50);

/// How long to wait for entries before looking whether to stop, and what is safe.
const LOOK_TIME: Duration = Duration::from_millis(100);

/// How long to wait before journalctl is started again: the first time, and at most.
const DELAY_MIN: Duration = Duration::from_secs(1);
const DELAY_MAX: Duration = Duration::from_secs(30);

const CHUNK_BYTES: usize = 64 << 10;

/// Reads the journal.
pub(super) struct JournalReader<'c> {
    ctx: &'c mut InputContext,
    config: &'c Config,
    follows: bool,
    position: Position,
    stream: Arc<Stream>,
    /// The number of the next entry that is sent.
    next: u64,
    export: Export,
    rendered: Rendered,
    /// The cursors of what was rendered, as places of its text.
    cursors: Vec<(u32, u32)>,
    /// When the first entry of the chunk was read.
    began: Instant,
    /// The cursor of the last entry that was read, with which journalctl begins next time.
    last: Option<String>,
    /// Whether the next entry should be the one of that cursor.
    is_resuming: bool,
    /// Entries of the process.
    read: u64,
}

/// Why reading ended.
#[derive(Debug, PartialEq, Eq)]
enum End {
    /// It is to stop, or nobody wants more.
    Stopped,
    /// The process ended.
    Process,
}

impl<'c> JournalReader<'c> {
    /// A reader that resumes behind an entry.
    pub(super) fn new(
        ctx: &'c mut InputContext,
        config: &'c Config,
        follows: bool,
        (position, last): (Position, Option<String>),
    ) -> Self {
        let identity = Identity::new([ctx.host.name.as_bytes(), b"journald", ctx.scope.as_bytes()]);
        Self {
            ctx,
            config,
            follows,
            position,
            stream: Arc::new(Stream::new(identity.id(), Source::Unnamed)),
            next: 0,
            export: Export::new(config.max_event_bytes.0 as usize),
            rendered: Rendered::default(),
            cursors: Vec::new(),
            began: Instant::now(),
            last,
            is_resuming: false,
            read: 0,
        }
    }

    /// Reads until it is to stop, or, where it does not follow, to the end; gives what went wrong.
    pub(super) fn run(mut self) -> Vec<String> {
        let mut delay = DELAY_MIN;
        let mut problems = Vec::new();
        loop {
            let status = match self.process() {
                Ok((End::Stopped, _)) => break,
                Ok((End::Process, status)) => status.map(|status| (status.success(), status)),
                Err(error) => Err(error),
            };
            let what = match status {
                Ok((true, _)) if !self.follows => break,
                Ok((_, status)) => format!("journalctl ended ({status})"),
                Err(error) => format!("journalctl cannot be run: {}", describe(&error)),
            };
            if !self.follows {
                problems.push(what);
                break;
            }
            if self.read > 0 {
                delay = DELAY_MIN;
            }
            self.ctx.metrics.count("restarts", 1);
            let seconds = delay.as_secs();
            let text = || format!("{what}; it is started again in {seconds} s");
            let limit = Limit::events("restarts");
            self.ctx.diagnostics.warn_limited(limit, text);
            if self.pause(delay).is_err() {
                break;
            }
            delay = (2 * delay).min(DELAY_MAX);
        }
        self.ctx.end_sending();
        self.position.finish(self.ctx);
        problems
    }

    /// Waits, and looks what is safe meanwhile.
    fn pause(&mut self, time: Duration) -> Result<(), Stopped> {
        let begin = Instant::now();
        while begin.elapsed() < time {
            if self.is_stopped() {
                return Err(Stopped);
            }
            std::thread::sleep(LOOK_TIME);
            self.position.look(self.ctx);
        }
        Ok(())
    }

    fn is_stopped(&self) -> bool {
        self.ctx.stop.is_stopped() || self.position.has_ended()
    }

    /// Reads what one process gives.
    fn process(&mut self) -> io::Result<(End, io::Result<ExitStatus>)> {
        self.export.restart();
        self.is_resuming = self.last.is_some();
        self.read = 0;
        let mut command = command::read(self.config, self.follows, self.last.as_deref());
        let mut child = command.spawn()?;
        let errors = child.stderr.take().map(|errors| self.pass_on(errors));
        let end = match child.stdout.take() {
            Some(output) => self.output(&output),
            None => Ok(End::Process),
        };
        // It may have ended already.
        let is_over = matches!(end, Ok(End::Process));
        if !is_over {
            let _ = child.kill();
        }
        let status = ended(&mut child);
        drop(errors);
        Ok((end?, status))
    }

    /// Has a thread report what journalctl says.
    fn pass_on(&self, errors: ChildStderr) -> Option<thread::Work<()>> {
        let diagnostics = self.ctx.diagnostics.clone();
        let pass = move || {
            for line in BufReader::new(errors).lines().map_while(Result::ok) {
                if !line.trim().is_empty() {
                    let limit = Limit::once_for("journalctl", &line);
                    diagnostics.warn_limited(limit, || format!("journalctl: {line}"));
                }
            }
        };
        // Without the thread, nobody reads what it says, and the pipe is closed.
        thread::start("journal", pass).ok()
    }

    fn output(&mut self, output: &ChildStdout) -> io::Result<End> {
        let mut chunk = vec![0; CHUNK_BYTES];
        loop {
            if self.is_stopped() {
                // What was read is sent again after the next start, unless it is safe before.
                return Ok(End::Stopped);
            }
            let has_waiting = self.rendered.len() > 0;
            let time = match has_waiting {
                true => AGE_MAX.saturating_sub(self.began.elapsed()),
                false => LOOK_TIME,
            };
            let mut read = None;
            if wait(output, time)? {
                match rustix::io::read(output.as_fd(), &mut chunk[..]) {
                    Ok(count) => read = Some(count),
                    Err(Errno::INTR | Errno::AGAIN) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            if let Some(count) = read {
                self.ctx.metrics.bytes(count);
                if self.chunk(&chunk[..count]).is_err() {
                    return Ok(End::Stopped);
                }
            }
            let is_over = read == Some(0);
            let is_due = is_over || self.began.elapsed() >= AGE_MAX;
            if self.rendered.len() > 0 && is_due && self.send().is_err() {
                return Ok(End::Stopped);
            }
            self.position.look(self.ctx);
            if is_over {
                return Ok(End::Process);
            }
        }
    }

    /// Takes bytes that came.
    fn chunk(&mut self, mut bytes: &[u8]) -> Result<(), Stopped> {
        let mut begin = Instant::now();
        while !bytes.is_empty() {
            let (read, is_entry) = self.export.read(bytes);
            bytes = &bytes[read..];
            if is_entry {
                self.entry();
                if self.rendered.is_full() {
                    self.ctx.metrics.busy(begin.elapsed());
                    self.send()?;
                    begin = Instant::now();
                }
            }
        }
        self.ctx.metrics.busy(begin.elapsed());
        Ok(())
    }

    /// Takes an entry.
    fn entry(&mut self) {
        let cursor = self.export.fields().find(|(name, _)| *name == b"__CURSOR");
        let cursor = cursor.map(|(_, cursor)| String::from_utf8_lossy(cursor).into_owned());
        if std::mem::take(&mut self.is_resuming) {
            if cursor == self.last {
                return;
            }
            self.warn_of_gap();
        }
        self.read += 1;
        let mut fields = self.export.fields();
        let is_kernel = fields.any(|(name, value)| name == b"_TRANSPORT" && value == b"kernel");
        drop(fields);
        if is_kernel && self.config.leaves_out_kernel() {
            return;
        }
        if self.rendered.len() == 0 {
            self.began = Instant::now();
        }
        if self.export.is_cut() {
            self.ctx.metrics.count("truncated_events", 1);
        }
        document::write(&self.export, now(), &mut self.rendered);
        let place = self.rendered.position();
        if let Some(cursor) = cursor {
            self.rendered.out().extend_from_slice(cursor.as_bytes());
            self.last = Some(cursor);
        }
        self.cursors
            .push((place as u32, self.rendered.position() as u32));
    }

    fn warn_of_gap(&self) {
        self.ctx.metrics.count("lost_positions", 1);
        self.ctx.diagnostics.warn(
            "the entry at the saved position is not in the journal: entries behind it may have been deleted before they were read, or the settings that select entries were changed; reading continues at the next entry that is there",
        );
    }

    /// Sends the chunk.
    fn send(&mut self) -> Result<(), Stopped> {
        let len = self.rendered.position();
        let pool = &self.ctx.pool;
        let mut buffer = match len < pool.buffer_size() {
            true => pool.take_small(len),
            false => pool.take_sized(len),
        };
        buffer[..len].copy_from_slice(self.rendered.written());
        let buffer = buffer.freeze_fitting(len);
        let mut from = 0;
        while from < self.rendered.len() {
            let host = &self.ctx.host;
            let mut builder = BatchBuilder::new(Encoding::Json, host, now(), false);
            builder.stream(&self.stream);
            let next = self.rendered.fill(from, self.next, &buffer, &mut builder);
            let receipt = self.ctx.send_blocking(builder.finish())?;
            let sent = Sent {
                first: self.next + from as u64,
                cursors: self.cursors[from..next].to_vec(),
                buffer: buffer.clone(),
            };
            self.position.sent(receipt, sent);
            from = next;
        }
        self.next += from as u64;
        self.rendered.clear();
        self.cursors.clear();
        Ok(())
    }
}

/// Waits for the end of a process, which was told to end or has closed its output.
fn ended(child: &mut Child) -> io::Result<ExitStatus> {
    let begin = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if begin.elapsed() > LOOK_TIME {
            child.kill()?;
            return child.wait();
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Waits until there is something to read, but no longer than `time`.
fn wait(output: &ChildStdout, time: Duration) -> io::Result<bool> {
    let time = Timespec {
        tv_sec: time.as_secs() as i64,
        tv_nsec: i64::from(time.subsec_nanos()),
    };
    let mut polled = [PollFd::new(output, PollFlags::IN)];
    match poll(&mut polled, Some(&time)) {
        Ok(ready) => Ok(ready > 0),
        Err(Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}
