//! The rotator: what logrotate does to a log and its old files, at random times.
//!
//! By *rename*: `app.log` becomes `app.log.1` (after `app.log.1` became `app.log.2`, and so on) and the writer opens a new
//! one some time after. By *copytruncate*: the writer pauses, `app.log` is copied to `app.log.1` and cut to nothing.
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

use super::compress::{compress, pause};
use super::history::History;
use super::settings::{Mode, Settings};
use super::writer::{Left, Signals};

/// Whether a file of so many bytes, decompressed, was delivered and may be deleted.
pub type Done = Box<dyn Fn(&Path, u64) -> Result<bool> + Send>;

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
    pub deleted: Vec<u32>,
    pub renames: u32,
    pub truncations: u32,
    pub compressed: u32,
}

/// An old file.
pub struct Old {
    pub generation: u32,
    /// Bytes of the file, decompressed.
    pub bytes: u64,
    pub gzip: bool,
}

impl Rotated {
    /// Where the lines of a generation are.
    pub fn place(&self, generation: u32) -> String {
        let mut kept = self.kept.iter().enumerate();
        if self.deleted.contains(&generation) {
            return "deleted when the ledger showed it done".into();
        }
        match kept.find(|(_, old)| old.generation == generation) {
            Some((index, old)) => name(index, old.gzip),
            None => "app.log".into(),
        }
    }

    /// The names of the old files and their sizes, decompressed.
    pub fn files(&self) -> impl Iterator<Item = (String, u64)> {
        let named = |(index, old): (usize, &Old)| (name(index, old.gzip), old.bytes);
        self.kept.iter().enumerate().map(named)
    }
}

/// The name of the old file at an index: the first is `app.log.1`.
fn name(index: usize, gzip: bool) -> String {
    let ending = if gzip { ".gz" } else { "" };
    format!("app.log.{}{ending}", index + 1)
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
            mode: settings.mode,
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
    mode: Mode,
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
            let rename = match self.mode {
                Mode::Rename => true,
                Mode::CopyTruncate => false,
                Mode::Mixed => self.rng.bool(),
            };
            if rename {
                self.rename().context("rotating by rename")?;
            } else {
                self.copy_and_truncate().context("rotating by copy")?;
                self.compress_some()?;
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
            let (from, to) = (name(index, old.gzip), name(index + 1, old.gzip));
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
        self.rotated.kept.push_front(Old {
            generation: u32::MAX,
            bytes: 0,
            gzip: false,
        });
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
            self.history.note("app.log was copied to app.log.1");
            pause(&mut self.rng, 200);
            let mut log = OpenOptions::new();
            log.write(true).open(self.path("app.log"))?.set_len(0)?;
            self.history.note("app.log was truncated");
            pause(&mut self.rng, 200);
            Ok(())
        })?;
        self.rotated.truncations += 1;
        self.rotated.kept.push_front(Old {
            generation: u32::MAX,
            bytes: 0,
            gzip: false,
        });
        self.fill_first(&left)
    }

    /// Copies `app.log` to `app.log.1` piece by piece.
    fn copy(&mut self) -> Result<()> {
        let mut from = File::open(self.path("app.log"))?;
        let mut to = File::create(self.path("app.log.1"))?;
        let mut piece = vec![0; self.rng.usize(16..1024) * 1024];
        loop {
            let size = from.read(&mut piece)?;
            if size == 0 {
                return Ok(());
            }
            to.write_all(&piece[..size])?;
            pause(&mut self.rng, 10);
        }
    }

    fn fill_first(&mut self, left: &Left) -> Result<()> {
        let size = fs::metadata(self.path("app.log.1"))?.len();
        ensure!(size == left.bytes, "app.log.1 holds what the writer wrote");
        let first = &mut self.rotated.kept[0];
        (first.generation, first.bytes) = (left.generation, left.bytes);
        let (generation, bytes) = (left.generation, left.bytes);
        self.history
            .note(&format!("generation {generation} ended with {bytes} bytes"));
        Ok(())
    }

    /// Compresses most of the plain files that are older than `app.log.1`.
    fn compress_some(&mut self) -> Result<()> {
        for index in 1..self.rotated.kept.len() {
            if self.rotated.kept[index].gzip || self.rng.u32(..4) == 0 {
                continue;
            }
            let (plain, target) = (
                self.path(&name(index, false)),
                self.path(&name(index, true)),
            );
            compress(&plain, &target, &mut self.rng).context("compressing an old file")?;
            self.rotated.kept[index].gzip = true;
            self.history
                .note(&format!("{} is compressed", name(index, false)));
            self.rotated.compressed += 1;
        }
        Ok(())
    }

    fn delete_done(&mut self) -> Result<()> {
        while self.rotated.kept.len() > self.keep {
            let index = self.rotated.kept.len() - 1;
            let old = &self.rotated.kept[index];
            let path = self.path(&name(index, old.gzip));
            if !(self.done)(&path, old.bytes)? {
                break;
            }
            fs::remove_file(&path)?;
            self.history.note(&format!(
                "{} is done and deleted, generation {}",
                name(index, old.gzip),
                old.generation
            ));
            self.rotated.deleted.push(old.generation);
            self.rotated.kept.pop_back();
        }
        Ok(())
    }
}
