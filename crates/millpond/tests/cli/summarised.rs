//! The processor `summarize`.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::program::{Folder, millpond, run};
use crate::queue_place::folder_size;
use crate::remembering::{Growing, KILLS, Lines, run_with_any_workers};
use crate::running::{Service, append};

/// Counts and sums of each key in each ten seconds.
type Sums = BTreeMap<(String, u64), (u64, u64)>;

/// Lines a second and a half apart in steps of ten a second, some of which are late, but never too late.
#[derive(Default)]
struct Timed(Sums);

fn written(second: u64) -> String {
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    format!("2026-05-01T{hour:02}:{minute:02}:{second:02}.000Z")
}

impl Lines for Timed {
    fn next(&mut self, rng: &mut fastrand::Rng, number: u64) -> String {
        let (key, value) = (rng.u64(..40), rng.u64(..1_000));
        let second = (20 + number / 200).saturating_sub(rng.u64(..15));
        let window = written(second - second % 10);
        let sums = self.0.entry((window, key)).or_default();
        sums.0 += 1;
        sums.1 += value;
        let time = written(second);
        format!("{{\"@timestamp\":\"{time}\",\"n\":{number},\"k\":{key},\"v\":{value}}}\n")
    }
}

/// The results that an output has. It may have one twice, which then is the same.
fn sums(events: &[Value]) -> Sums {
    let mut all = Sums::new();
    for event in events {
        let number = |name: &str| event[name].as_u64().expect("a number");
        let window = event["@timestamp"].as_str().expect("a time").to_owned();
        let result = (number("count"), number("v_sum"));
        let known = all.insert((window, number("k")), result);
        assert!(
            known.is_none_or(|known| known == result),
            "{event} and {known:?}"
        );
    }
    all
}

const STAGE: &str =
    "summarize: { functions: ['count()', 'sum(v)'], by: [k], every: 10s, lateness: 20s }";

#[test]
fn sums_are_exact_after_kills_also_for_an_output_that_was_away() {
    for outputs in [&["one"][..], &["one", "away/two"]] {
        let mut growing = Growing::new(STAGE, Timed::default());
        growing.kill_again_and_again(KILLS, outputs);
        for output in outputs {
            let got = sums(&growing.events(output));
            let expected = &growing.lines.0;
            let wrong = got
                .iter()
                .filter(|(key, sums)| expected.get(key) != Some(sums));
            let wrong: Vec<_> = wrong.collect();
            assert!(
                wrong.is_empty(),
                "{output}: {} wrong, such as {:?}",
                wrong.len(),
                wrong[0]
            );
            assert_eq!(got.len(), expected.len(), "{output}");
        }
    }
}

#[test]
fn results_are_the_same_whatever_the_workers() {
    let folder = Folder::new();
    let mut rng = fastrand::Rng::with_seed(5);
    let mut timed = Timed::default();
    let lines: String = (0..60_000).map(|n| timed.next(&mut rng, n)).collect();
    let log = folder.write("a.ndjson", lines);
    let (out, counters) = run_with_any_workers(&log, STAGE);
    let events = out
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"));
    assert_eq!(sums(&events.collect::<Vec<_>>()), timed.0);
    assert_eq!(counters["events_late"], 0);
}

#[test]
fn a_million_keys_are_summed() {
    let folder = Folder::new();
    let lines: String = (0..1_000_000_u64)
        .map(|n| format!("{{\"k\":\"{:08}\",\"v\":{n}}}\n", n * 7_919 % 1_000_003))
        .collect();
    let log = folder.write("a.ndjson", lines);
    let out = folder.path("out");
    let pipeline = format!(
        "file {log} | summarize count(), sum(v) by=[k] | summarize count(), sum(v_sum), max(count) | file {out}"
    );
    run(&pipeline).expect(0);
    let told = std::fs::read_to_string(out).expect("there is a result");
    let expected = "{\"count\":1000000,\"v_sum_sum\":499999500000,\"count_max\":1}\n";
    assert_eq!(told, expected);
}

#[test]
fn the_end_comes_after_head_and_below_outputs_and_in_pipelines_that_are_fed() {
    let folder = Folder::new();
    let lines: String = (0..20_000).map(|n| format!("{{\"v\":{n}}}\n")).collect();
    let log = folder.write("a.ndjson", lines);
    let ended = run(&format!(
        "file {log} | head 5000 | summarize count() | stdout"
    ));
    assert_eq!(ended.expect(0).out, "{\"count\":5000}\n");
    let ended = run(&format!(
        "file {log} | summarize count() by=[v] | head 3 | summarize count() | stdout"
    ));
    assert_eq!(ended.expect(0).out, "{\"count\":3}\n");
    let path = folder.write(
        "a.yaml",
        format!(
            "pipelines:
  one:
    input: {{ file: {{ paths: ['{log}'], follow: false }} }}
    processors:
      - summarize: {{ functions: ['count()'], by: [v] }}
    outputs:
      - file: {{ path: '{out}', processors: [{{ summarize: {{ functions: ['sum(count)', 'count()'] }} }}] }}
      - pipeline: two
  two:
    input: pipeline
    processors:
      - summarize: {{ functions: ['max(v)'] }}
    output: stdout
",
            out = folder.path("out")
        ),
    );
    let ended = millpond(&["run", &path]).expect(0);
    assert_eq!(ended.out, "{\"v_max\":19999}\n");
    let below = std::fs::read_to_string(folder.path("out")).expect("there is a result");
    assert_eq!(below, "{\"count_sum\":20000,\"count\":20000}\n");
}

#[test]
fn a_service_with_a_memory_queue_tells_at_the_stop_what_there_is() {
    let folder = Folder::new();
    let log = folder.path("a.ndjson");
    append(&log, "{\"k\":1}\n{\"k\":1}\n{\"k\":2}\n");
    let path = folder.write(
        "a.yaml",
        format!(
            "api: false
pipelines:
  one:
    input: {{ file: {{ paths: ['{log}'] }} }}
    processors:
      - summarize: {{ functions: ['count()'], by: [k] }}
      - set at = k
    outputs:
      - file: {{ path: '{out}' }}
",
            out = folder.path("out"),
        ),
    );
    let service = Service::start(&folder, &["run", &path]);
    std::thread::sleep(std::time::Duration::from_millis(700));
    service.stop();
    let told = std::fs::read_to_string(folder.path("out")).expect("there is a result");
    assert_eq!(
        told,
        "{\"k\":1,\"count\":2,\"at\":1}\n{\"k\":2,\"count\":1,\"at\":2}\n"
    );
}

#[test]
fn what_is_dropped_with_a_processor_that_is_taken_out_is_reported() {
    let folder = Folder::new();
    let run = |processors: &str| {
        append(&folder.path("a.ndjson"), "{\"k\":1}\n");
        let place = folder.path("");
        let text = format!(
            "data_dir: '{place}/data'
api: false
pipelines:
  one:
    input: {{ file: {{ paths: ['{place}/a.ndjson'] }} }}
    queue: disk
    processors: [{processors}]
    output: {{ file: {{ path: '{place}/out' }} }}
"
        );
        let mut service = Service::start(&folder, &["run", &folder.write("a.yaml", text)]);
        let kept = folder.path("data/queue/one/snapshot-a");
        service.until_said("pipeline one: started");
        std::thread::sleep(std::time::Duration::from_millis(500));
        let (_, said) = service.end();
        assert!(std::path::Path::new(&kept).exists());
        said
    };
    let count = "{ summarize: { functions: ['count()'], every: 1h } }";
    let dedupe = "{ dedupe: { fields: [k], within: 1h } }";
    let both = run(&format!("{dedupe}, {count}"));
    assert!(!both.contains("dropped"), "{both}");
    let without = run(dedupe);
    let expected = "what the processor `summarize` remembered of events before this run is dropped";
    assert!(without.contains(expected), "{without}");
    assert!(!without.contains("`dedupe`"), "{without}");
    for name in ["snapshot-a", "snapshot-b"] {
        let path = folder.path(&format!("data/queue/one/{name}"));
        let mut bytes = std::fs::read(&path).expect("it is there");
        bytes[20] ^= 1;
        std::fs::write(&path, bytes).expect("is written");
    }
    let damaged = run(dedupe);
    assert!(
        damaged.contains("are damaged: they remember nothing"),
        "{damaged}"
    );
    let nothing = run("set a = 1");
    let expected = "is dropped: the pipeline no longer has `dedupe`";
    assert!(nothing.contains(expected), "{nothing}");
}

#[test]
fn what_a_stop_would_lose_is_refused() {
    let folder = Folder::new();
    let check = |queue: &str, processors: &str, below: &str| {
        let path = folder.write(
            "a.yaml",
            format!(
                "data_dir: '{data}'
pipelines:
  one:
    input: {{ file: {{ paths: ['{log}'] }} }}
    queue: {queue}
    processors: {processors}
    outputs:
      - file: {{ path: '{out}', processors: {below} }}
",
                data = folder.path("data"),
                log = folder.path("a.ndjson"),
                out = folder.path("out"),
            ),
        );
        millpond(&["check", &path]).expect(2).err
    };
    let overflow = check(
        "{ memory: { overflow: disk } }",
        "['summarize count()']",
        "[]",
    );
    assert!(
        overflow.contains("does not keep them over a stop"),
        "{overflow}"
    );
    let below = check("disk", "[]", "['top k']");
    assert!(
        below.contains("put it among the processors of the pipeline"),
        "{below}"
    );
}

/// A full queue is given as a whole before its outputs have come to where processors were asked last what they remember. They are asked
/// again then, or nothing could be removed and nothing new come in.
#[test]
fn a_full_queue_goes_on_when_its_output_is_back() {
    let folder = Folder::new();
    let place = folder.path("");
    let fill = "x".repeat(150);
    let lines: String = (0..60_000)
        .map(|n| format!("{{\"n\":{n},\"fill\":\"{fill}\"}}\n"))
        .collect();
    folder.write("a.ndjson", lines);
    let configuration = |follow: bool| {
        folder.write(
            &format!("{follow}.yaml"),
            format!(
                "data_dir: '{place}/data'
api: false
pipelines:
  one:
    input: {{ file: {{ paths: ['{place}/a.ndjson'], follow: {follow} }} }}
    queue: {{ disk: {{ max_bytes: 2MiB, segment_bytes: 256KiB, min_free_bytes: 0 }} }}
    processors: [{{ dedupe: {{ fields: [n] }} }}]
    retry: {{ initial: 20ms, max: 100ms }}
    output: {{ file: {{ path: '{place}/away/out.ndjson' }} }}
"
            ),
        )
    };
    folder.write("away", "a file in the place of a folder");
    let queue = folder.path("data/queue/one");
    let mut service = Service::start(&folder, &["run", &configuration(true)]);
    service.until("the queue fills", || folder_size(&queue) >= 3 << 19);
    std::thread::sleep(std::time::Duration::from_millis(300));
    service.end();
    std::fs::remove_file(folder.path("away")).expect("it is there");
    millpond(&["run", &configuration(false)]).expect(0);
    let out = folder.read("away/out.ndjson");
    assert_eq!(out.lines().count(), 60_000);
}

#[test]
fn it_is_said_where_nothing_is_left_of_what_was_remembered() {
    let folder = Folder::new();
    let place = folder.path("");
    let run = |lines: u64| {
        append(
            &folder.path("a.ndjson"),
            &"{\"k\":1}\n".repeat(lines as usize),
        );
        let text = format!(
            "data_dir: '{place}/data'
api: false
pipelines:
  one:
    input: {{ file: {{ paths: ['{place}/a.ndjson'], follow: false }} }}
    queue: {{ disk: {{ segment_bytes: 1MiB, min_free_bytes: 0 }} }}
    processors: [{{ dedupe: {{ fields: [k] }} }}]
    output: {{ file: {{ path: '{place}/out' }} }}
"
        );
        millpond(&["run", &folder.write("a.yaml", text)])
            .expect(0)
            .err
    };
    let said = "remember nothing of events before this run";
    assert!(!run(2_000).contains(said));
    assert!(!run(2_000).contains(said));
    for name in ["snapshot-a", "snapshot-b"] {
        let path = folder.path(&format!("data/queue/one/{name}"));
        std::fs::remove_file(path).expect("it is there");
    }
    assert!(run(1).contains(said));
    assert_eq!(folder.read("out").lines().count(), 2);
}
