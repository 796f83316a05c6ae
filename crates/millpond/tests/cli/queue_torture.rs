//! Torture of the disk queue: as for files (`torture`), with a disk queue between two outputs, which are down again and
//! again, and the log.
//!
//! A log is rotated, compressed, cut and deleted as soon as the queue has it, while Millpond is killed again and again. Both
//! outputs must have every line at the end, under one id; nothing comes twice where nothing was killed. The queue is small, so
//! that it is full at times, and its settings are drawn by the seed. The long form is `bench/queue-torture`.

use std::io::Cursor;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use fastrand::Rng;

use crate::queue_outlet::Outlet;
use crate::torture::service::EXECUTABLE;
use crate::torture::settings::{Mode, Schedule, Settings};
use crate::torture::{Run, paths, perform, say};

const COMMAND: &str = "bench/queue-torture";

/// The outputs: which, and the part of the time that each is down.
const OUTPUTS: [(&str, f64); 2] = [("one", 0.1), ("two", 0.6)];

#[test]
fn both_outputs_have_every_line_after_kills() {
    let settings = settings(10);
    let queue = format!("disk: {}", drawn_disk(&settings, true));
    perform_with(&settings, &queue);
}

#[test]
fn both_outputs_have_every_line_after_kills_with_overflow() {
    let settings = settings(6);
    let queue = format!(
        "memory: {{ max_bytes: 512KiB, overflow: {{ disk: {} }} }}",
        drawn_disk(&settings, false)
    );
    perform_with(&settings, &queue);
}

#[test]
fn nothing_comes_twice_where_nothing_is_killed() {
    let settings = Settings {
        duration: Duration::from_secs(4),
        kills: 5,
        megabytes: 20,
        stops: 1.0,
        ..settings(0)
    };
    let queue = format!("disk: {}", drawn_disk(&settings, true));
    perform_with(&settings, &queue);
}

/// Logs are renamed, unless the environment says otherwise. Copies that are truncated test how the file input knows them,
/// and by time-outs that a busy machine does not keep.
fn settings(kills: u32) -> Settings {
    Settings::from_env_or(COMMAND, Schedule::Plain, |settings| {
        (settings.mode, settings.kills) = (Mode::Rename, kills);
    })
}

fn perform_with(settings: &Settings, queue: &str) {
    say(&format!("the queue: {queue}"));
    let torn = |run: &mut Run| torture(run, queue);
    perform(settings, &configuration(settings, queue, true), torn);
}

/// Settings of a small disk queue.
fn drawn_disk(settings: &Settings, with_memory: bool) -> String {
    let mut rng = settings.rng(10);
    let of = |rng: &mut Rng, all: &[&str]| all[rng.usize(..all.len())].to_owned();
    let mut all = vec![
        "min_free_bytes: 0".to_owned(),
        of(
            &mut rng,
            &[
                "segment_bytes: 64KiB",
                "segment_bytes: 256KiB",
                "segment_bytes: 1MiB",
            ],
        ),
        of(
            &mut rng,
            &["max_bytes: 4MiB", "max_bytes: 16MiB", "max_bytes: 1GiB"],
        ),
        of(
            &mut rng,
            &["compression: none", "compression: lz4", "compression: zstd"],
        ),
        of(
            &mut rng,
            &[
                "durability: fsync",
                "group_bytes: 0",
                "group_time: 50ms",
                "durability: interval",
                "durability: interval, sync_interval: 50ms",
            ],
        ),
    ];
    if with_memory {
        all.push(of(
            &mut rng,
            &[
                "cache_bytes: 64KiB",
                "cache_bytes: 1MiB",
                "cache_bytes: 4MiB",
            ],
        ));
    }
    format!("{{ {} }}", all.join(", "))
}

/// The configuration for a folder; `follow` or to the end of what is there.
fn configuration(
    settings: &Settings,
    queue: &str,
    follow: bool,
) -> impl Fn(&Path) -> String + use<> {
    let workers = [1, 2, 4][settings.rng(11).usize(..3)];
    let (settings, queue) = (settings.clone(), queue.to_owned());
    move |folder| {
        let (place, paths) = (folder.display(), paths(&settings, folder));
        let output =
            |(name, _)| format!("{{ file: {{ name: {name}, path: '{place}/{name}.ndjson' }} }}");
        let outputs = OUTPUTS.map(output).join(", ");
        format!(
            "data_dir: '{place}/data'
shutdown_deadline: 30s
workers: {workers}
pipelines:
  torture:
    input:
      file: {{ {paths}, follow: {follow} }}
    queue: {{ {queue} }}
    processors:
      - set: {{ fields: {{ id: '@metadata.id' }} }}
    outputs: [{outputs}]
    retry: {{ initial: 20ms, max: 100ms }}
"
        )
    }
}

fn torture(run: &mut Run, queue: &str) -> Result<String> {
    let outages = Outages::start(run);
    let written = run.abuse();
    let outlets = outages.stop()?;
    let written = written?;
    run.settle(&written)?;
    // What stays in the queue is delivered by a run that ends by itself.
    let last = configuration(&run.settings, queue, false)(&run.folder);
    deliver_rest(&run.folder, &last)?;
    let mut summaries = Vec::new();
    for (outlet, (name, _)) in outlets.iter().zip(OUTPUTS) {
        let content = Cursor::new(outlet.content());
        let verdict = run.verdict(&written, content);
        let (report, compressed) = verdict.with_context(|| format!("output {name}"))?;
        ensure!(
            run.settings.stops < 1.0 || report.repeats == 0,
            "output {name}: {} events came again although nothing was killed",
            report.repeats
        );
        let summary = run.summary(&written, &report, compressed);
        summaries.push(format!("output {name}: {summary}"));
    }
    Ok(summaries.join("\n"))
}

/// Runs to the end, which must be a clean one.
fn deliver_rest(folder: &Path, configuration: &str) -> Result<()> {
    let path = folder.join("last.yaml");
    std::fs::write(&path, configuration)?;
    let mut command = Command::new(EXECUTABLE);
    let ended = command
        .arg("run")
        .arg(&path)
        .stdin(Stdio::null())
        .output()?;
    let said = String::from_utf8_lossy(&ended.stderr);
    ensure!(
        ended.status.success(),
        "the last run ended with {}: {said}",
        ended.status
    );
    ensure!(
        !said.contains("remain in the disk queue"),
        "the last run did not deliver everything: {said}"
    );
    Ok(())
}

/// Makes outputs go down and up.
struct Outages(Vec<(Sender<()>, JoinHandle<Outlet>)>);

impl Outages {
    fn start(run: &Run) -> Self {
        let mut threads = Vec::new();
        for (number, (name, part)) in (20..).zip(OUTPUTS) {
            let outlet = Outlet::new(run.folder.join(format!("{name}.ndjson")));
            let (rng, history) = (run.settings.rng(number), run.history.clone());
            let (stop, stopped) = channel();
            let note = move |what: &str| history.note(&format!("output {name} goes {what}"));
            let outages = move || go_down_and_up(outlet, part, rng, &stopped, note);
            threads.push((stop, std::thread::spawn(outages)));
        }
        Self(threads)
    }

    /// The outputs, up.
    fn stop(self) -> Result<Vec<Outlet>> {
        let ended = self.0.into_iter().map(|(stop, thread)| {
            drop(stop);
            thread.join()
        });
        ended
            .map(|outlet| outlet.map_err(|_| anyhow!("an outage panicked")))
            .collect()
    }
}

/// Until it is to stop; `part` is the part of the time that the output is down.
fn go_down_and_up(
    mut outlet: Outlet,
    part: f64,
    mut rng: Rng,
    stopped: &Receiver<()>,
    note: impl Fn(&str),
) -> Outlet {
    let mut is_over = |most: f64| {
        let time = Duration::from_secs_f64(most * rng.f64());
        stopped.recv_timeout(time) == Err(RecvTimeoutError::Disconnected)
    };
    loop {
        note("down");
        outlet.down();
        let over = is_over(part * 2.0);
        note("up");
        outlet.up();
        if over || is_over((1.0 - part) * 2.0) {
            return outlet;
        }
    }
}
