//! Rotation torture: every line of a log that is rotated, compressed, cut and deleted while Millpond reads it and is
//! killed again and again, is delivered, and counted by id exactly once.
//!
//! A run is given by its seed, which it prints first, with the command that replays the schedule: what is written, how files
//! are rotated, when Millpond is killed. (The instants are those of the clock, so what meets what may differ.) The short
//! form runs with the other tests, a long one by `bench/torture`. A run that fails keeps its folder and says where it is.

mod check;
mod compress;
mod history;
mod ledger;
mod lines;
mod rotator;
pub mod service;
pub mod settings;
mod writer;

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use serde_json::Value;

use check::{Checker, Report};
use history::History;
use ledger::Ledger;
use lines::{Journal, Lines};
use rotator::{Done, Rotated, Rotator};
use service::Service;
use settings::{Mode, Settings};
use writer::Writer;

/// How long Millpond may take to read what is left, or to start.
const CATCH_UP: Duration = Duration::from_secs(120);

#[test]
fn every_line_is_delivered_once_across_rotations_and_kills() {
    let settings = Settings::from_env("bench/torture", 8, &Mode::ALL);
    perform(&settings, &configuration, Run::torture);
}

/// The service reads `logs` of the folder into `out.ndjson`; `data` is the data directory.
fn configuration(folder: &Path) -> String {
    let place = folder.display();
    format!(
        "data_dir: '{place}/data'
shutdown_deadline: 30s
pipelines:
  torture:
    input:
      file: {{ paths: ['{place}/logs/app.log*'], exclude: ['*.part'] }}
    processors:
      - set: {{ field: id, value: '%{{@metadata.id}}' }}
    outputs:
      - file: {{ path: '{place}/out.ndjson' }}
"
    )
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
    journal: Journal,
    rotated: Rotated,
}

impl Run {
    fn new(settings: &Settings, folder: &Path, configuration: &str) -> Result<Self> {
        fs::create_dir(folder.join("logs"))?;
        Ok(Self {
            folder: folder.to_owned(),
            settings: settings.clone(),
            lines: Lines::new(settings.seed),
            ledger: Ledger(folder.join("data")),
            service: Service::new(folder, configuration)?,
            history: History::new(folder)?,
        })
    }

    fn torture(&mut self) -> Result<String> {
        let written = self.abuse()?;
        self.settle(&written)?;
        let output = File::open(self.folder.join("out.ndjson"))?;
        let (report, compressed) = self.verdict(&written, BufReader::new(output))?;
        Ok(self.summary(&written, &report, compressed))
    }

    /// Has the log written and rotated, and Millpond killed and started again meanwhile.
    pub fn abuse(&mut self) -> Result<Written> {
        self.service.start()?;
        let ledger = self.ledger.clone();
        await_until("the data directory", &mut self.service, || {
            Ok(ledger.text().is_ok())
        })?;
        let done: Done = Box::new(move |file, bytes| ledger.is_done(file, bytes));
        let logs = self.folder.join("logs");
        let (writer, rotator) = start(&self.settings, &self.lines, &logs, done, &self.history)?;
        let killed = self.kill_again_and_again(|| writer.is_alive() && rotator.is_alive());
        let (rotated, journal) = (rotator.stop(), writer.stop());
        killed?;
        let (journal, rotated) = (journal?, rotated?);
        Ok(Written { journal, rotated })
    }

    /// Waits until Millpond has read everything, and stops it.
    pub fn settle(&mut self, written: &Written) -> Result<()> {
        self.catch_up(written)?;
        self.service.stop()
    }

    /// What helps to understand a failure.
    fn circumstances(&self) -> String {
        let files = self.ledger.text();
        let files = files.unwrap_or_else(|error| format!("{error:#}"));
        let printed = self.service.printed();
        format!("millpond printed:\n{printed}\nits ledger:\n{files}")
    }

    /// Kills Millpond at random instants, spread over the time of the run, and starts it again.
    fn kill_again_and_again(&mut self, others_work: impl Fn() -> bool) -> Result<()> {
        let mut rng = self.settings.rng(3);
        let kills = self.settings.kills;
        let begin = Instant::now();
        let average = self.settings.duration / kills.max(1);
        for kill in 0..kills {
            // Some come right after the start, before it found its place.
            let usual = average.mul_f64(f64::from(kill) + rng.f64());
            let early = begin.elapsed() + Duration::from_millis(rng.u64(..150));
            let at = if rng.u32(..4) == 0 { early } else { usual };
            self.go_on(at.saturating_sub(begin.elapsed()), &others_work)?;
            if rng.f64() < self.settings.stops {
                self.service.stop()?;
                self.history.note("Millpond is stopped");
            } else {
                self.service.kill()?;
                self.history.note("Millpond is killed");
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
        let log_bytes = fs::metadata(logs.join("app.log"))?.len();
        let files = written
            .rotated
            .files()
            .chain([("app.log".into(), log_bytes)]);
        for (name, bytes) in files {
            let what = format!("{name} to be done, with {bytes} bytes");
            let done = || self.ledger.is_done(&logs.join(&name), bytes);
            await_until(&what, &mut self.service, done)?;
        }
        Ok(())
    }

    /// Holds an output against what was written; also how many events came from compressed files.
    pub fn verdict(&self, written: &Written, mut output: impl BufRead) -> Result<(Report, u64)> {
        let mut checker = Checker::new(&self.lines, &written.journal);
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
            checker.add(text("/id")?, text("/message")?);
            compressed += u64::from(text("/log/file/path")?.ends_with(".gz"));
        }
        let (report, fault) = checker.finish(|generation| written.rotated.place(generation));
        if let Some(fault) = fault {
            bail!("{fault}");
        }
        for entry in self.ledger.entries()? {
            ensure!(
                entry.dropped_bytes == 0,
                "nothing was to be dropped: {}",
                entry.all
            );
        }
        Ok((report, compressed))
    }

    pub fn summary(&self, written: &Written, report: &Report, compressed: u64) -> String {
        let (journal, rotated) = (&written.journal, &written.rotated);
        format!(
            "{} lines, {} bytes written; {} ids delivered, {} repeats of an id, {compressed} events from compressed files\n\
             {} starts; {} rotations by rename, {} by copytruncate; {} files compressed, {} deleted, {} kept",
            journal.lines,
            journal.bytes,
            report.ids,
            report.repeats,
            self.service.starts,
            rotated.renames,
            rotated.truncations,
            rotated.compressed,
            rotated.deleted.len(),
            rotated.kept.len(),
        )
    }
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

/// Without Millpond: what lies in the files at the end is exactly what was written.
#[test]
fn the_rotated_files_hold_what_was_written() {
    for (seed, mode) in Mode::ALL.into_iter().enumerate() {
        let settings = Settings {
            seed: seed as u64,
            kills: 0,
            duration: Duration::from_millis(1_500),
            megabytes: 4,
            mode,
            stops: 0.0,
            command: "",
        };
        dry_run(&settings).unwrap_or_else(|error| panic!("{mode}: {error:#}"));
    }
}

fn dry_run(settings: &Settings) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let lines = Lines::new(settings.seed);
    let never: Done = Box::new(|_, _| Ok(false));
    let logs = folder.path().join("logs");
    fs::create_dir(&logs)?;
    let history = History::new(folder.path())?;
    let (writer, rotator) = start(settings, &lines, &logs, never, &history)?;
    std::thread::sleep(settings.duration);
    let (rotated, journal) = (rotator.stop()?, writer.stop()?);
    ensure!(
        rotated.kept.len() > 2 && rotated.compressed > 0,
        "enough happened"
    );
    ensure!(
        journal.bytes >= settings.megabytes * 900_000,
        "{} bytes",
        journal.bytes
    );
    let mut checker = Checker::new(&lines, &journal);
    for (name, bytes) in rotated.files().chain([("app.log".into(), 0)]) {
        let mut content = Vec::new();
        let file = File::open(logs.join(&name))?;
        if name.ends_with(".gz") {
            flate2::read::MultiGzDecoder::new(file).read_to_end(&mut content)?;
        } else {
            BufReader::new(file).read_to_end(&mut content)?;
        }
        ensure!(
            name == "app.log" || content.len() as u64 == bytes,
            "{name} is whole"
        );
        for (number, line) in content.as_slice().lines().enumerate() {
            checker.add(&format!("{name}-{number}"), &line?);
        }
    }
    let (report, fault) = checker.finish(|generation| rotated.place(generation));
    ensure!(fault.is_none(), "{}", fault.unwrap_or_default());
    ensure!(
        report.ids as u64 == journal.lines && report.repeats == 0,
        "{report:?}"
    );
    ensure!(
        fs::read_dir(&logs)?.count() == rotated.kept.len() + 1,
        "nothing else is there"
    );
    Ok(())
}
