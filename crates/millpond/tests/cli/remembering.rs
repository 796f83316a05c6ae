//! Processors that remember something, in runs that are killed, and with several workers.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;

use crate::program::{Folder, millpond};
use crate::running::{Service, append};
use crate::torture::say;

/// How often a pipeline is killed, mostly.
pub const KILLS: u64 = 30;

/// By how many lines the log grows before each of them.
pub const LINES_EACH: u64 = 4_000;

/// The lines of a log, each with its number as `n`.
pub trait Lines {
    fn next(&mut self, rng: &mut fastrand::Rng, number: u64) -> String;
}

/// A log that grows, and a pipeline with processors and a small disk queue that reads it into `one.ndjson` and `away/two.ndjson`. The second one
/// cannot be written before a file is gone that stands in the place of its folder.
pub struct Growing<L> {
    pub folder: Folder,
    pub lines: L,
    processors: &'static str,
    rng: fastrand::Rng,
    count: u64,
}

impl<L: Lines> Growing<L> {
    pub fn new(processors: &'static str, lines: L) -> Self {
        let seed = fastrand::u64(..);
        say(&format!("seed {seed}"));
        let folder = Folder::new();
        folder.write("away", "a file in the place of a folder");
        Self {
            folder,
            lines,
            processors,
            rng: fastrand::Rng::with_seed(seed),
            count: 0,
        }
    }

    pub fn grow(&mut self, lines: u64) {
        let numbers = self.count..self.count + lines;
        self.count = numbers.end;
        let more: String = numbers
            .map(|number| self.lines.next(&mut self.rng, number))
            .collect();
        append(&self.folder.path("a.ndjson"), &more);
    }

    pub fn configuration(&self, follow: bool, outputs: &[&str]) -> String {
        let (place, processors) = (self.folder.path(""), self.processors);
        let outputs: String = outputs
            .iter()
            .map(|out| {
                let name = out.rsplit('/').next().unwrap_or_default();
                format!("      - file: {{ name: {name}, path: '{place}/{out}.ndjson' }}\n")
            })
            .collect();
        let text = format!(
            "data_dir: '{place}/data'
api: false
pipelines:
  one:
    input:
      file: {{ paths: ['{place}/a.ndjson'], follow: {follow} }}
    queue: {{ disk: {{ max_bytes: 16MiB, segment_bytes: 256KiB, cache_bytes: 256KiB, min_free_bytes: 0 }} }}
    processors:
      - {processors}
    retry: {{ initial: 20ms, max: 100ms }}
    outputs:
{outputs}"
        );
        self.folder.write(&format!("follow-{follow}.yaml"), text)
    }

    pub fn come_back(&self) {
        std::fs::remove_file(self.folder.path("away")).expect("it is there");
    }

    /// The events that an output has, in sequence. The last line may be half written.
    pub fn events(&self, output: &str) -> Vec<Value> {
        let text = std::fs::read_to_string(self.folder.path(&format!("{output}.ndjson")));
        let text = text.unwrap_or_default();
        let event = |line| serde_json::from_str(line).ok();
        text.lines().filter_map(event).collect()
    }

    /// Kills the pipeline again and again while the log grows, and lets a last run come to its end.
    pub fn kill_again_and_again(&mut self, kills: u64, outputs: &[&str]) {
        let path = self.configuration(true, outputs);
        for _ in 0..kills {
            self.grow(LINES_EACH);
            let service = Service::start(&self.folder, &["run", &path]);
            std::thread::sleep(Duration::from_millis(self.rng.u64(50..400)));
            service.kill();
        }
        self.come_back();
        let ended = millpond(&["run", &self.configuration(false, outputs)]).expect(0);
        for bad in ["remembers nothing", "internal error", "remain in"] {
            assert!(!ended.err.contains(bad), "{}", ended.err);
        }
        let kept = self.folder.path("data/queue/one/snapshot-a");
        assert!(std::path::Path::new(&kept).exists());
    }
}

/// The number of an event.
pub fn number_of(event: &Value) -> u64 {
    event["n"].as_u64().expect("a number")
}

/// Runs a processor over a log with 1, 2 and 7 workers, which has to give the same, and gives the events and the processor's counters.
pub fn run_with_any_workers(log: &str, processor: &str) -> (String, BTreeMap<String, u64>) {
    let (name, _) = processor.split_once(':').expect("a name and settings");
    let folder = Folder::new();
    let run = |workers: usize| {
        let path = folder.write(
            "run.yaml",
            format!(
                "workers: {workers}\npipelines:\n  one:\n    input:\n      file: {{ paths: ['{log}'], follow: false }}\n    processors:\n      - {processor}\n    outputs: [stdout]\n"
            ),
        );
        let ended = millpond(&["run", &path, "--metrics"]).expect(0);
        let row = ended.err.lines().find(|line| line.starts_with(name));
        let (_, counters) = row
            .and_then(|row| row.split_once('('))
            .expect("the counters of the processor");
        let counters = counters.trim_end_matches(')').split(", ");
        let counters = counters.map(|counter| {
            let (name, count) = counter.split_once(' ').expect("a name and a count");
            let count = count.replace(',', "").parse().expect("a count");
            (name.to_owned(), count)
        });
        (ended.out, counters.collect::<BTreeMap<_, _>>())
    };
    let one = run(1);
    for workers in [2, 7] {
        let other = run(workers);
        assert!(other == one, "{workers} workers: {:?} {:?}", other.1, one.1);
    }
    one
}
