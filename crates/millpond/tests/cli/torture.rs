//! Rotation torture: every line of a log that is rotated, compressed, cut and deleted while Millpond reads it and is
//! killed again and again, is delivered, and counted by id exactly once; but for those that nature loses.
//!
//! A run is given by its settings, which it prints first, as the command that replays the schedule: what is written, how
//! files are rotated, when Millpond is killed. (The instants are those of the clock, so what meets what may differ.) The
//! short forms run with the other tests, a long one by `bench/torture`. A run that fails keeps its folder and says where
//! it is; `history.log` in it tells what happened when.

mod check;
mod compress;
mod crowd;
mod dry;
mod history;
mod journal;
mod ledger;
mod lines;
mod log;
mod rotator;
pub mod service;
pub mod settings;
mod writer;

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use fastrand::Rng;
use serde_json::Value;

use check::{Checker, Delivered, Report};
use crowd::{Crowd, Small};
use history::History;
use journal::{End, Layout};
use ledger::Ledger;
use lines::Lines;
use rotator::{Done, Origin, Rotated, Rotator};
use service::Service;
use settings::{Schedule, Settings};
use writer::{Signals, Writer};

/// How long Millpond may take to read what is left, or to start.
const CATCH_UP: Duration = Duration::from_secs(120);

/// How long Millpond may make no progress while something is left to read: it waits for nothing as long as that.
const IDLE: Duration = Duration::from_secs(30);

/// How long nothing must have come where nobody can say what is still to come: longer than Millpond waits for anything
/// but the end of a line.
const SILENCE: Duration = Duration::from_secs(12);

/// The longest time that Millpond stands still.
const STALL: f64 = 8.0;

/// A position is saved for the first time so long after the start, at the latest.
const FIRST_SAVE: Duration = Duration::from_millis(250);

#[test]
fn every_line_is_delivered_once_across_rotations_and_kills() {
    torture(Schedule::Plain);
}

#[test]
fn lines_are_delivered_once_where_a_log_is_truncated_beside_its_writer() {
    torture(Schedule::Live);
}

#[test]
fn lines_are_delivered_once_across_stalls() {
    torture(Schedule::Stalls);
}

#[test]
fn lines_are_delivered_once_that_members_of_a_growing_log_cut() {
    torture(Schedule::Members);
}

#[test]
fn lines_are_delivered_once_while_old_files_are_slowly_compressed() {
    torture(Schedule::Slow);
}

#[test]
fn lines_are_delivered_once_where_a_log_is_written_over_while_millpond_is_down() {
    torture(Schedule::Rewrites);
}

#[test]
fn lines_are_delivered_once_beside_thousands_of_files() {
    torture(Schedule::Crowd);
}

fn torture(schedule: Schedule) {
    let settings = Settings::from_env("bench/torture", schedule);
    perform(&settings, &configuration(&settings), Run::torture);
}

/// The service reads `logs` of the folder into `out.ndjson`; `data` is the data directory.
fn configuration(settings: &Settings) -> impl Fn(&Path) -> String {
    move |folder| {
        let (place, paths) = (folder.display(), paths(settings, folder));
        format!(
            "data_dir: '{place}/data'
shutdown_deadline: 30s
pipelines:
  torture:
    input:
      file: {{ {paths} }}
    processors:
      - set: {{ fields: {{ id: '@metadata.id' }} }}
    outputs:
      - file: {{ path: '{place}/out.ndjson' }}
"
        )
    }
}

/// Settings of the input: what it reads. The log comes behind the small files.
pub fn paths(settings: &Settings, folder: &Path) -> String {
    let mut paths = vec!["logs/app.log*"];
    if settings.crowd > 0 {
        // What stands for nothing is a problem where files are read once.
        paths.insert(0, "crowd/*.log");
    }
    let paths = paths
        .iter()
        .map(|path| format!("'{}/{path}'", folder.display()));
    let paths: Vec<String> = paths.collect();
    format!("paths: [{}], exclude: ['*.part']", paths.join(", "))
}

/// Performs a run in a folder of its own, which is kept where it fails; what it says at its end is printed.
pub fn perform(
    settings: &Settings,
    configuration: &dyn Fn(&Path) -> String,
    run: impl FnOnce(&mut Run) -> Result<String>,
) {
    say(&format!("replay with: {settings}"));
    let mut folder = tempfile::tempdir().expect("a temporary folder");
    // Kept whatever ends the run, a panic too.
    folder.disable_cleanup(true);
    let configuration = configuration(folder.path());
    let begun = Run::new(settings, folder.path(), &configuration);
    let outcome = begun.and_then(|mut one| {
        let outcome = run(&mut one);
        outcome.map_err(|error| anyhow!("{error:#}\n{}", one.circumstances()))
    });
    match outcome {
        Ok(summary) => say(&summary),
        Err(error) => panic!(
            "{error:#}\nreplay with: {settings}\nthe folder is kept: {}",
            folder.path().display()
        ),
    }
    folder.disable_cleanup(false);
}

/// Tells what the test runner shows where a test fails, or where it is asked to.
#[expect(clippy::print_stdout, reason = "which is what the test runner keeps")]
pub fn say(text: &str) {
    println!("{text}");
}

/// Millpond, and what it is told to do.
pub struct Run {
    pub folder: PathBuf,
    pub settings: Settings,
    lines: Lines,
    ledger: Ledger,
    pub service: Service,
    pub history: History,
}

/// What was written, and where it is.
pub struct Written {
    layout: Layout,
    rotated: Rotated,
    small: Small,
}

impl Run {
    fn new(settings: &Settings, folder: &Path, configuration: &str) -> Result<Self> {
        fs::create_dir(folder.join("logs"))?;
        fs::create_dir(folder.join("crowd"))?;
        Ok(Self {
            folder: folder.to_owned(),
            settings: settings.clone(),
            lines: Lines::new(settings.seed, settings.header_bytes),
            ledger: Ledger(folder.join("data")),
            service: Service::new(folder, configuration)?,
            history: History::new(folder)?,
        })
    }

    fn torture(&mut self) -> Result<String> {
        let written = self.abuse()?;
        let settled = self.settle(&written);
        // What came says more than what did not.
        let output = File::open(self.folder.join("out.ndjson"))?;
        let verdict = self.verdict(&written, BufReader::new(output));
        if let Err(unsettled) = settled {
            return Err(match verdict {
                Ok(_) => unsettled,
                Err(fault) => fault.context(format!("{unsettled:#}")),
            });
        }
        let (report, compressed) = verdict?;
        Ok(self.summary(&written, &report, compressed))
    }

    /// Has the log written and rotated, and Millpond killed and started again meanwhile.
    pub fn abuse(&mut self) -> Result<Written> {
        self.service.start()?;
        let ledger = self.ledger.clone();
        await_until("the data directory", &mut self.service, || {
            Ok(ledger.text().is_ok())
        })?;
        let done: Done = Box::new(move |file, old| match old.origin {
            Origin::Copy(_) => ledger.is_copy_done(file, old.whole_bytes),
            _ => ledger.is_done(file, old.bytes),
        });
        let logs = self.folder.join("logs");
        let (writer, rotator) = start(&self.settings, &self.lines, &logs, done, &self.history)?;
        let crowd = self.folder.join("crowd");
        let (files, time) = (self.settings.crowd, self.settings.duration);
        let crowd = Crowd::start(&crowd, files, time, self.settings.rng(4));
        let signals = writer.signals();
        let hit = self.hit_again_and_again(&signals, || writer.is_alive() && rotator.is_alive());
        let (rotated, journal) = (rotator.stop(), writer.stop());
        let small = crowd.stop();
        hit?;
        let (journal, rotated, small) = (journal?, rotated?, small?);
        let layout = Layout::new(&self.lines, journal, &rotated.copies)?;
        Ok(Written {
            layout,
            rotated,
            small,
        })
    }

    /// Waits until Millpond has read everything, and stops it.
    pub fn settle(&mut self, written: &Written) -> Result<()> {
        self.catch_up(written)?;
        if self.settings.loses() {
            self.await_silence()?;
        }
        self.service.stop()
    }

    /// What helps to understand a failure.
    fn circumstances(&self) -> String {
        let files = self.ledger.text();
        let files = files.unwrap_or_else(|error| format!("{error:#}"));
        let printed = self.service.printed();
        format!("millpond printed:\n{printed}\nits ledger:\n{files}")
    }

    /// Kills Millpond, or has it stand still, at random instants that are spread over the time of the run.
    fn hit_again_and_again(
        &mut self,
        signals: &Signals,
        others_work: impl Fn() -> bool,
    ) -> Result<()> {
        let mut rng = self.settings.rng(3);
        let hits = self.hits(&mut rng);
        let begin = Instant::now();
        let average = self.settings.duration / u32::try_from(hits.len().max(1))?;
        for (number, hit) in (0..).zip(hits) {
            // Some come right after the start, before it found its place or saved it.
            let usual = average.mul_f64(f64::from(number) + rng.f64());
            let early = begin.elapsed() + FIRST_SAVE.mul_f64(rng.f64());
            let often = if hit == Hit::Rewrite { 2 } else { 1 };
            let at = if rng.u32(..4) < often { early } else { usual };
            self.go_on(at.saturating_sub(begin.elapsed()), &others_work)?;
            if hit == Hit::Stall {
                self.stall(&mut rng, &others_work)?;
                continue;
            }
            self.end(&mut rng)?;
            if hit == Hit::Rewrite {
                self.rewrite(signals, &mut rng)?;
            }
            // Mostly at once; else files are rotated, compressed and cut in the meantime.
            if rng.u32(..3) == 0 {
                self.go_on(average.mul_f64(rng.f64()), &others_work)?;
            }
            self.service.start()?;
            self.history.note("Millpond is started");
        }
        let rest = self.settings.duration.saturating_sub(begin.elapsed());
        self.go_on(rest, &others_work)
    }

    /// What happens to Millpond, in the order that the seed gives.
    fn hits(&self, rng: &mut Rng) -> Vec<Hit> {
        let Settings {
            kills,
            rewrites,
            stalls,
            ..
        } = self.settings;
        let of = |hit, times| std::iter::repeat_n(hit, times as usize);
        let hits = of(Hit::Kill, kills).chain(of(Hit::Rewrite, rewrites));
        let mut hits: Vec<Hit> = hits.chain(of(Hit::Stall, stalls)).collect();
        rng.shuffle(&mut hits);
        hits
    }

    fn end(&mut self, rng: &mut Rng) -> Result<()> {
        let what = if rng.f64() < self.settings.stops {
            self.service.stop()?;
            "stopped"
        } else {
            self.service.kill()?;
            "killed"
        };
        self.history.note(&format!("Millpond is {what}"));
        Ok(())
    }

    /// Has Millpond stand still for a while, short or long enough to miss rotations.
    fn stall(&mut self, rng: &mut Rng, others_work: impl Fn() -> bool) -> Result<()> {
        let most = STALL.min(self.settings.duration.as_secs_f64() / 2.0);
        let time = 0.1 * (most / 0.1).powf(rng.f64());
        self.service.stall(true)?;
        self.history.note("Millpond stands still");
        let others = self.go_on(Duration::from_secs_f64(time), others_work);
        self.service.stall(false)?;
        self.history.note("Millpond goes on");
        others
    }

    /// Has the log written over with more than it has, or less.
    fn rewrite(&self, signals: &Signals, rng: &mut Rng) -> Result<()> {
        let times = match rng.bool() {
            true => rng.f64(),
            false => 1.0 + rng.f64(),
        };
        let left = signals.rewrite(times)?;
        self.history.note(&format!(
            "the log was written over, span {} has {} bytes now",
            left.span, left.bytes
        ));
        Ok(())
    }

    /// Lets time pass, as long as everybody is at work.
    fn go_on(&mut self, time: Duration, others_work: impl Fn() -> bool) -> Result<()> {
        let until = Instant::now() + time;
        while let Some(left) = until.checked_duration_since(Instant::now()) {
            std::thread::sleep(left.min(Duration::from_millis(50)));
            self.service.expect_alive()?;
            if !others_work() {
                // Stopping them gives their errors.
                return Ok(());
            }
        }
        Ok(())
    }

    /// Waits until the ledger shows every file that is there as read and delivered.
    fn catch_up(&mut self, written: &Written) -> Result<()> {
        let logs = self.folder.join("logs");
        let log_bytes = written.layout.last_bytes();
        // What Millpond makes of a copy that holds less than it has read is its own affair.
        let files = written.rotated.files();
        let files = files.filter(|(_, old)| !matches!(old.origin, Origin::Copy(_)));
        let files = files.map(|(name, old)| (name, old.bytes));
        for (name, bytes) in files.chain([("app.log".into(), log_bytes)]) {
            let what = format!("{name} to be done, with {bytes} bytes");
            let mut progress = Progress::new(&self.ledger);
            let done = || {
                progress.expect()?;
                self.ledger.is_done(&logs.join(&name), bytes)
            };
            await_until(&what, &mut self.service, done).context(what)?;
        }
        let bytes = written.small.bytes;
        let what = format!("small files to be done, with {bytes} bytes");
        await_until(&what, &mut self.service, || {
            Ok(bytes == 0 || self.ledger.crowd()? >= bytes)
        })
    }

    /// Waits until nothing has been delivered for a while.
    fn await_silence(&mut self) -> Result<()> {
        let mut progress = Progress::new(&self.ledger);
        let is_silent = || Ok(progress.silence()? >= SILENCE);
        await_until("silence", &mut self.service, is_silent)
    }

    /// Holds an output against what was written; also how many events came from compressed files.
    pub fn verdict(&self, written: &Written, mut output: impl BufRead) -> Result<(Report, u64)> {
        let is_killed = self.service.starts > 1;
        let mut checker = Checker::new(&written.layout, &written.small, is_killed);
        let mut compressed = 0;
        let mut line = Vec::new();
        for number in 1.. {
            line.clear();
            if output.read_until(b'\n', &mut line)? == 0 {
                break;
            }
            let event: Value = serde_json::from_slice(&line)
                .with_context(|| format!("line {number} of the output is no event"))?;
            let text = |name: &str| {
                let value = event.pointer(name).and_then(Value::as_str);
                value.with_context(|| format!("line {number} of the output has no {name}"))
            };
            let offset = event.pointer("/log/offset").and_then(Value::as_u64);
            checker.add(&Delivered {
                id: text("/id")?,
                message: text("/message")?,
                offset: offset
                    .with_context(|| format!("line {number} of the output has no offset"))?,
            });
            let path = text("/log/file/path")?;
            compressed += u64::from(path.ends_with(".gz") || path.ends_with(".zst"));
        }
        let place = |span| written.rotated.place(&written.layout, span);
        let (report, fault) = checker.finish(place);
        if let Some(fault) = fault {
            bail!("{fault}");
        }
        for entry in self.ledger.entries()? {
            ensure!(
                entry.dropped_bytes == 0 || self.settings.loses(),
                "nothing was to be dropped: {}",
                entry.all
            );
        }
        Ok((report, compressed))
    }

    pub fn summary(&self, written: &Written, report: &Report, compressed: u64) -> String {
        let (layout, rotated) = (&written.layout, &written.rotated);
        format!(
            "{} lines, {} bytes written; {} ids delivered, {} repeats of an id, {compressed} events from compressed files\n\
             {} lines in gaps, {} written over; of these {} are lost; {} came cut\n\
             {} starts; {} rotations by rename, {} by copytruncate; {} files compressed, {} deleted, {} kept; {} small files",
            layout.lines(),
            layout.bytes(),
            report.ids,
            report.repeats,
            layout.unsure(End::Truncated),
            layout.unsure(End::Overwritten),
            report.lost_by_nature,
            report.halves,
            self.service.starts,
            rotated.renames,
            rotated.truncations,
            rotated.compressed,
            rotated.deleted.len(),
            rotated.kept.len(),
            written.small.lines.len(),
        )
    }
}

/// Watches whether anything is delivered.
struct Progress {
    ledger: Ledger,
    last: Option<(usize, u64)>,
    since: Instant,
}

impl Progress {
    fn new(ledger: &Ledger) -> Self {
        Self {
            ledger: ledger.clone(),
            last: None,
            since: Instant::now(),
        }
    }

    /// How long nothing was delivered.
    fn silence(&mut self) -> Result<Duration> {
        let now = Some(self.ledger.progress()?);
        if self.last != now {
            (self.last, self.since) = (now, Instant::now());
        }
        Ok(self.since.elapsed())
    }

    fn expect(&mut self) -> Result<()> {
        ensure!(self.silence()? < IDLE, "nothing was delivered for {IDLE:?}");
        Ok(())
    }
}

/// What happens to Millpond.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hit {
    /// It is killed, or stopped, and started again.
    Kill,
    /// The log is written over while it is down.
    Rewrite,
    /// It stands still for a while.
    Stall,
}

/// Starts the writer and the rotator.
fn start(
    settings: &Settings,
    lines: &Lines,
    logs: &Path,
    done: Done,
    history: &History,
) -> Result<(Writer, Rotator)> {
    let writer = Writer::start(&logs.join("app.log"), lines.clone(), settings)?;
    let rotator = Rotator::start(logs, settings, writer.signals(), done, history.clone());
    Ok((writer, rotator))
}

/// Waits until the condition holds, as long as the service lives.
fn await_until(
    what: &str,
    service: &mut Service,
    mut condition: impl FnMut() -> Result<bool>,
) -> Result<()> {
    let begin = Instant::now();
    while !condition()? {
        service.expect_alive()?;
        if begin.elapsed() > CATCH_UP {
            bail!("waited {CATCH_UP:?} for {what}");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}
