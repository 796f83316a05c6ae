//! The rotator: what logrotate does to a log and its old files, at random times.
//!
//! By *rename*: `app.log` becomes `app.log.1` (after `app.log.1` became `app.log.2`, and so on) and the writer opens a new
//! one some time after. By *copytruncate*: the writer pauses, `app.log` is copied to `app.log.1` and cut to nothing. By
//! *live* copytruncate: the same while the writer goes on, also between the end of the copy and the cut.
//! From `app.log.2` on, old files are compressed. The oldest ones are deleted once the ledger shows that they are done,
//! and only then.

use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use fastrand::Rng;

use super::compress::{compress, compress_slowly, pause};
use super::history::History;
use super::journal::{End, Layout};
use super::settings::{Compressing, Mode, Packing, Settings};
use super::writer::{Left, Signals};

/// Whether an old file, at this path, was delivered and may be deleted.
pub type Done = Box<dyn Fn(&Path, &Old) -> Result<bool> + Send>;

/// The running rotator.
pub struct Rotator {
    stop: Sender<()>,
    thread: JoinHandle<Result<Rotated>>,
}

/// What the rotator did.
#[derive(Default)]
pub struct Rotated {
    /// The old files that are there, `app.log.1` first.
    pub kept: VecDeque<Old>,
    pub deleted: Vec<Origin>,
    /// The sizes of the copies that were made while the writer wrote.
    pub copies: Vec<u64>,
    pub renames: u32,
    pub truncations: u32,
    pub compressed: u32,
}

/// What is in an old file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A span of what was written, all of it.
    Span(usize),
    /// A copy that was made while the writer wrote: which of them.
    Copy(usize),
    /// What the writer is still at.
    Unknown,
}

/// An old file.
#[derive(Debug)]
pub struct Old {
    pub origin: Origin,
    /// Bytes of the file, decompressed.
    pub bytes: u64,
    /// Bytes of its whole lines: a copy may end within a line.
    pub whole_bytes: u64,
    /// What its name ends with because it was compressed.
    ending: &'static str,
}

impl Old {
    const NEW: Self = Self {
        origin: Origin::Unknown,
        bytes: 0,
        whole_bytes: 0,
        ending: "",
    };
}

impl Rotated {
    /// Where the lines of a span are.
    pub fn place(&self, layout: &Layout, span: usize) -> String {
        let is_span = |origin: &Origin| match *origin {
            Origin::Span(other) => other == span,
            Origin::Copy(copy) => layout.spans_by(End::Truncated).nth(copy) == Some(span),
            Origin::Unknown => false,
        };
        if layout.spans_by(End::Overwritten).any(|over| over == span) {
            return format!("span {span}, written over");
        }
        if self.deleted.iter().any(is_span) {
            return format!("span {span}, deleted when the ledger showed it done");
        }
        let mut kept = self.kept.iter().enumerate();
        match kept.find(|(_, old)| is_span(&old.origin)) {
            Some((index, old)) => format!("span {span}, {}", name(index, old)),
            None => format!("span {span}, app.log"),
        }
    }

    /// The old files with their names.
    pub fn files(&self) -> impl Iterator<Item = (String, &Old)> {
        let named = |(index, old)| (name(index, old), old);
        self.kept.iter().enumerate().map(named)
    }
}

/// The name of the old file at an index: the first is `app.log.1`.
fn name(index: usize, old: &Old) -> String {
    format!("app.log.{}{}", index + 1, old.ending)
}

impl Rotator {
    /// Starts to rotate `app.log` in `dir`.
    pub fn start(
        dir: &Path,
        settings: &Settings,
        signals: Signals,
        done: Done,
        history: History,
    ) -> Self {
        let (stop, stopped) = channel();
        let mut rng = settings.rng(2);
        let keep = rng.usize(2..7);
        let mut state = State {
            dir: dir.to_owned(),
            settings: settings.clone(),
            rng,
            most_pause: (settings.duration / 16).min(Duration::from_secs(1)),
            keep,
            signals,
            done,
            history,
            rotated: Rotated::default(),
        };
        let thread = std::thread::spawn(move || {
            state.run(&stopped)?;
            Ok(state.rotated)
        });
        Self { stop, thread }
    }

    pub fn is_alive(&self) -> bool {
        !self.thread.is_finished()
    }

    /// Ends the rotator after the rotation that it is at.
    pub fn stop(self) -> Result<Rotated> {
        // Where nobody receives, the thread's own error says more.
        let _ = self.stop.send(());
        let ended = self.thread.join();
        ended.map_err(|_| anyhow!("the rotator panicked"))?
    }
}

struct State {
    dir: PathBuf,
    settings: Settings,
    rng: Rng,
    /// The longest pause between two rotations.
    most_pause: Duration,
    keep: usize,
    signals: Signals,
    done: Done,
    history: History,
    rotated: Rotated,
}

impl State {
    fn run(&mut self, stopped: &Receiver<()>) -> Result<()> {
        loop {
            let pause = self.most_pause.mul_f64(self.rng.f64());
            match stopped.recv_timeout(pause) {
                Err(RecvTimeoutError::Timeout) => {}
                _ => return Ok(()),
            }
            match self.settings.mode.draw(&mut self.rng) {
                Mode::Rename => self.rename().context("rotating by rename")?,
                Mode::Live => {
                    self.copy_live().context("rotating beside the writer")?;
                    self.compress_some()?;
                }
                _ => {
                    self.copy_and_truncate().context("rotating by copy")?;
                    self.compress_some()?;
                }
            }
            self.delete_done()?;
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Renames all old files to make room for a new `app.log.1`.
    fn shift(&mut self) -> Result<()> {
        for (index, old) in self.rotated.kept.iter().enumerate().rev() {
            let (from, to) = (name(index, old), name(index + 1, old));
            fs::rename(self.path(&from), self.path(&to))?;
        }
        Ok(())
    }

    fn rename(&mut self) -> Result<()> {
        self.shift()?;
        fs::rename(self.path("app.log"), self.path("app.log.1"))?;
        self.history.note("app.log is now app.log.1");
        if self.rng.bool() {
            pause(&mut self.rng, 50);
            File::create(self.path("app.log"))?;
        }
        let delay = self.rng.u64(..400) * self.rng.u64(..2);
        let answer = self.signals.reopen(Duration::from_millis(delay))?;
        // The writer is still at the new `app.log.1`; what was there before has all its lines.
        self.rotated.kept.push_front(Old::NEW);
        self.compress_some()?;
        let left = answer.wait()?;
        self.rotated.renames += 1;
        self.fill_first(&left)
    }

    fn copy_and_truncate(&mut self) -> Result<()> {
        let signals = self.signals.clone();
        let (left, ()) = signals.paused(|| {
            self.shift()?;
            self.copy()?;
            pause(&mut self.rng, 200);
            self.truncate()?;
            pause(&mut self.rng, 200);
            Ok(())
        })?;
        self.rotated.truncations += 1;
        self.rotated.kept.push_front(Old::NEW);
        self.fill_first(&left)
    }

    /// As above, but nobody tells the writer.
    fn copy_live(&mut self) -> Result<()> {
        let signals = self.signals.clone();
        let _turn = signals.take_turn();
        if fs::metadata(self.path("app.log"))?.len() == 0 {
            return Ok(());
        }
        self.shift()?;
        let (bytes, whole_bytes) = self.copy()?;
        // Mostly at once, as logrotate does, but the system may have other things to do.
        let most = [0.01, 0.1, 1.0][self.rng.usize(..3)];
        std::thread::sleep(self.settings.gap.mul_f64(most * self.rng.f64()));
        self.truncate()?;
        self.rotated.truncations += 1;
        self.rotated.kept.push_front(Old {
            origin: Origin::Copy(self.rotated.copies.len()),
            bytes,
            whole_bytes,
            ..Old::NEW
        });
        self.rotated.copies.push(bytes);
        Ok(())
    }

    fn truncate(&self) -> Result<()> {
        let log = OpenOptions::new().write(true).open(self.path("app.log"))?;
        let bytes = log.metadata()?.len();
        log.set_len(0)?;
        self.history
            .note(&format!("app.log was truncated, with some {bytes} bytes"));
        Ok(())
    }

    /// Copies `app.log` to `app.log.1` piece by piece; gives how many bytes, and how many of them are whole lines.
    fn copy(&mut self) -> Result<(u64, u64)> {
        let mut from = File::open(self.path("app.log"))?;
        let mut to = File::create(self.path("app.log.1"))?;
        let mut piece = vec![0; self.rng.usize(16..1024) * 1024];
        let (mut copied, mut whole) = (0, 0);
        loop {
            let size = from.read(&mut piece)?;
            if size == 0 {
                let note = format!("app.log was copied to app.log.1, {copied} bytes");
                self.history.note(&note);
                return Ok((copied, whole));
            }
            to.write_all(&piece[..size])?;
            if let Some(end) = piece[..size].iter().rposition(|byte| *byte == b'\n') {
                whole = copied + end as u64 + 1;
            }
            copied += size as u64;
            pause(&mut self.rng, 10);
        }
    }

    fn fill_first(&mut self, left: &Left) -> Result<()> {
        let (span, bytes) = (left.span, left.bytes);
        if self.settings.packing == Packing::Plain {
            let size = fs::metadata(self.path("app.log.1"))?.len();
            ensure!(size == bytes, "app.log.1 holds what the writer wrote");
        }
        let first = &mut self.rotated.kept[0];
        first.origin = Origin::Span(span);
        (first.bytes, first.whole_bytes) = (bytes, bytes);
        self.history
            .note(&format!("span {span} ended with {bytes} bytes"));
        Ok(())
    }

    /// Compresses most of the plain files that are older than `app.log.1`.
    fn compress_some(&mut self) -> Result<()> {
        if self.settings.packing != Packing::Plain {
            return Ok(());
        }
        for index in 1..self.rotated.kept.len() {
            let old = &self.rotated.kept[index];
            if !old.ending.is_empty() || self.rng.u32(..4) == 0 {
                continue;
            }
            let name = name(index, old);
            self.history.note(&format!("{name} is being compressed"));
            let (path, rng) = (self.path(&name), &mut self.rng);
            let ending = match self.settings.compressing {
                Compressing::Quick => compress(&path, rng),
                Compressing::Slow => compress_slowly(&path, false, rng),
                Compressing::Hidden => compress_slowly(&path, true, rng),
            };
            let ending = ending.context("compressing an old file")?;
            self.rotated.kept[index].ending = ending;
            self.history.note(&format!("{name} is now {name}{ending}"));
            self.rotated.compressed += 1;
        }
        Ok(())
    }

    fn delete_done(&mut self) -> Result<()> {
        while self.rotated.kept.len() > self.keep {
            let index = self.rotated.kept.len() - 1;
            let old = &self.rotated.kept[index];
            let name = name(index, old);
            if !(self.done)(&self.path(&name), old)? {
                break;
            }
            fs::remove_file(self.path(&name))?;
            self.history
                .note(&format!("{name} is done and deleted, {:?}", old.origin));
            self.rotated.deleted.push(old.origin);
            self.rotated.kept.pop_back();
        }
        Ok(())
    }
}
