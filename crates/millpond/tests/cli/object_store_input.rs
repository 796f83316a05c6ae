//! The `object_store` input: every event is read once, whatever is killed, from a directory and from a double of S3.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use fastrand::Rng;
use serde_json::Value;
use testkit::http::HttpServer;
use testkit::s3::{S3, SECRET_KEY, one_line_settings, settings};

use crate::object_store_output::in_directory;
use crate::program::{Folder, gzip, millpond, run};
use crate::running::{Service, ledger};

/// Lines with numbers from `first` on, as an object and what its name ends with.
fn object(rng: &mut Rng, first: u64, lines: u64) -> (Vec<u8>, &'static str) {
    let text = (first..first + lines).map(|n| format!("{{\"n\":{n}}}\n"));
    let text = text.collect::<String>().into_bytes();
    match rng.usize(0..3) {
        0 => (text, "ndjson"),
        1 => (gzip(&text), "ndjson.gz"),
        _ => {
            let zstd = zstd::encode_all(&*text, 3).expect("compressed");
            (zstd, "ndjson.zst")
        }
    }
}

/// Reads what `input` names with kills, while `write` adds objects with so many lines each; checks that every line is in one object of the
/// output in the end.
fn survives_kills(
    folder: &Folder,
    input: &str,
    kills: usize,
    mut write: impl FnMut(&mut Rng, u64) -> u64,
    is_done: impl Fn() -> bool,
) {
    let lake = folder.path("lake");
    let yaml = format!(
        "data_dir: '{data}'
pipelines:
  one:
    input:
      object_store: {{ {input}, scan_interval: 50ms }}
    queue: disk
    processors:
      - set kind = n % 3
    output:
      object_store: {{ url: '{lake}', path: 'kind=%{{kind}}', max_bytes: 64KiB, max_age: 200ms }}
    retry: {{ initial: 20ms, max: 100ms }}
",
        data = folder.path("data"),
    );
    let path = folder.write("service.yaml", yaml);
    let mut rng = Rng::with_seed(11);
    let mut written = 0;
    for _ in 0..kills {
        let service = Service::start(folder, &["run", &path]);
        for _ in 0..rng.usize(2..20) {
            written += write(&mut rng, written);
            std::thread::sleep(Duration::from_millis(rng.u64(1..50)));
        }
        service.kill();
    }
    written += write(&mut rng, written);
    let mut service = Service::start(folder, &["run", &path]);
    let count = || in_directory(Path::new(&lake));
    service.until("every event", || count().len() as u64 == written);
    service.until("the end", is_done);
    std::thread::sleep(Duration::from_millis(300));
    service.stop();
    let counts = count();
    let twice: Vec<_> = counts.iter().filter(|(_, count)| **count > 1).collect();
    assert!(twice.is_empty(), "of {written}: {twice:?}");
    assert_eq!(counts.len() as u64, written);
}

#[test]
fn every_event_of_a_directory_is_read_once_through_kills() {
    let folder = Folder::new();
    let root = folder.path("in");
    let mut number = 0;
    let write = |rng: &mut Rng, first| {
        let lines = if number % 40 == 7 {
            120_000
        } else {
            rng.u64(1..3000)
        };
        number += 1;
        let (content, ending) = object(rng, first, lines);
        let day = Path::new(&root).join(format!("day-{}", number % 4));
        fs::create_dir_all(&day).expect("a folder");
        let hidden = day.join(".writing");
        fs::write(&hidden, content).expect("written");
        fs::rename(hidden, day.join(format!("{number:05}.{ending}"))).expect("renamed");
        lines
    };
    survives_kills(&folder, &format!("url: '{root}'"), 12, write, || true);
    let objects = ledger(&folder.path("data"));
    assert_eq!(objects.len(), number);
    for object in objects {
        assert_eq!(object["state"], "done", "{object}");
        assert_eq!(
            object["read_bytes"], object["acknowledged_bytes"],
            "{object}"
        );
    }
}

#[test]
fn every_event_of_a_bucket_is_read_once_and_its_object_deleted_through_kills_and_failures() {
    let s3 = S3::new("lake");
    let server = s3.failing(13);
    let folder = Folder::new();
    s3.put("logs-of-others/a.ndjson", "{\"n\":1}\n");
    let input = format!("{}, delete_after: 0s", settings("lake", &server));
    let mut number = 0;
    let write = |rng: &mut Rng, first| {
        let mut lines = 0;
        for _ in 0..if number == 0 { 1000 } else { 3 } {
            let more = rng.u64(1..40);
            let (content, ending) = object(rng, first + lines, more);
            s3.put(&format!("logs/{number:05}.{ending}"), content);
            lines += more;
            number += 1;
        }
        lines
    };
    survives_kills(&folder, &input, 8, write, || s3.objects().len() == 1);
    let left: Vec<_> = s3.objects().into_keys().collect();
    assert_eq!(left, ["logs-of-others/a.ndjson"], "of {number}");
    // A kill right behind a deletion leaves what is known of the object, for a day.
    for object in ledger(&folder.path("data")) {
        let state = object["state"].as_str();
        assert!(matches!(state, Some("done" | "gone")), "{object}");
    }
}

#[test]
fn a_large_object_is_read_in_windows() {
    let s3 = S3::new("lake");
    let server = s3.failing(13);
    let text: String = (0..1_000_000).map(|n| format!("{{\"n\":{n}}}\n")).collect();
    s3.put("logs/plain.ndjson", text.clone());
    s3.put("logs/packed.ndjson.gz", gzip(text.as_bytes()));
    let pipeline = format!(
        "object_store {} | summarize count(), sum(n), max(n) | stdout codec=json",
        one_line_settings("lake", &server)
    );
    let ended = run(&pipeline).expect(0);
    let event = &ended.events()[0];
    assert_eq!(event["count"], 2_000_000, "{event}");
    assert_eq!(event["n_sum"].as_f64(), Some(999_999_000_000.0), "{event}");
    let requests = server.taken();
    let windows = requests.iter().filter(|it| !it.header("range").is_empty());
    assert!(windows.count() > 3);
}

#[test]
fn wrong_credentials_and_missing_buckets_are_told_at_once() {
    let s3 = S3::new("lake");
    let taken = s3.clone();
    let server = HttpServer::start(move |request, _| taken.answer(request));
    for (from, to, expected) in [
        (SECRET_KEY, "wrong", "SignatureDoesNotMatch"),
        ("s3://lake", "s3://lakes", "NoSuchBucket"),
    ] {
        let settings = one_line_settings("lake", &server);
        let settings = settings.replace(&format!("={from}"), &format!("={to}"));
        let settings = settings.replace(from, to);
        let ended = run(&format!("object_store {settings} | stdout")).expect(1);
        assert!(ended.err.contains(expected), "{}", ended.err);
        assert!(!ended.err.contains(SECRET_KEY), "{}", ended.err);
    }
}

/// How often each number comes out of a run that reads what is there.
fn read_once(folder: &Folder, settings: &str) -> (BTreeMap<u64, usize>, String) {
    let pipeline = format!(
        "object_store {} {settings} | stdout codec=json",
        folder.path("in")
    );
    let ended = millpond(&["run", "--data-dir", &folder.path("data"), &pipeline]);
    let mut counts = BTreeMap::new();
    // Half a line of broken data is text.
    for number in ended.events().iter().filter_map(|it| it["n"].as_u64()) {
        *counts.entry(number).or_default() += 1;
    }
    (counts, ended.err)
}

fn put(folder: &Folder, name: &str, numbers: std::ops::Range<u64>) {
    let path = Path::new(&folder.path("in")).join(name);
    fs::create_dir_all(path.parent().expect("a folder")).expect("created");
    let text: String = numbers.map(|n| format!("{{\"n\":{n}}}\n")).collect();
    fs::write(path, text).expect("written");
}

fn numbers(counts: &BTreeMap<u64, usize>) -> Vec<u64> {
    assert!(counts.values().all(|count| *count == 1), "{counts:?}");
    counts.keys().copied().collect()
}

#[test]
fn objects_are_remembered_and_read_again_when_they_change() {
    let folder = Folder::new();
    put(&folder, "a/1.ndjson", 0..3);
    put(&folder, "b/2.ndjson", 3..5);
    put(&folder, "b/3.log", 8..9);
    let json = "codec=json";
    let first = read_once(&folder, &format!("match=*.ndjson {json}"));
    assert_eq!(numbers(&first.0), [0, 1, 2, 3, 4]);
    assert!(read_once(&folder, json).0.keys().eq([&8]));
    assert!(read_once(&folder, json).0.is_empty());
    put(&folder, "a/1.ndjson", 10..12);
    put(&folder, "c.ndjson", 20..21);
    let again = read_once(&folder, &format!("exclude=c* {json}"));
    assert_eq!(numbers(&again.0), [10, 11]);
    let rest = read_once(&folder, &format!("start_after=b/3.log {json}"));
    assert_eq!(numbers(&rest.0), [20]);
}

#[test]
fn what_names_that_grow_have_passed_is_not_remembered() {
    let folder = Folder::new();
    for number in 0..20 {
        put(
            &folder,
            &format!("2026/{number:02}.ndjson"),
            number..number + 1,
        );
    }
    let ordered = "ordered=true lookback=0s";
    assert_eq!(read_once(&folder, ordered).0.len(), 20);
    assert_eq!(ledger(&folder.path("data")).len(), 20);
    put(&folder, "2026/30.ndjson", 30..31);
    put(&folder, "2026/05a.ndjson", 40..41);
    // The next list passes what was read; the one after it begins behind that.
    assert_eq!(numbers(&read_once(&folder, ordered).0), [30, 40]);
    put(&folder, "2026/04a.ndjson", 50..51);
    put(&folder, "2026/40.ndjson", 60..61);
    let later = read_once(&folder, ordered).0;
    assert_eq!(numbers(&later), [60]);
    assert!(ledger(&folder.path("data")).len() < 20);
}

#[test]
fn a_broken_object_is_told_and_holds_no_other_up() {
    let folder = Folder::new();
    put(&folder, "z.ndjson", 0..3);
    let whole = gzip(&b"{\"n\":7}\n".repeat(1000));
    let mut broken = whole[..whole.len() - 20].to_vec();
    broken.extend([9; 40]);
    fs::write(Path::new(&folder.path("in")).join("a.ndjson.gz"), broken).expect("written");
    let (counts, err) = read_once(&folder, "delete_after=0s");
    assert!([0, 1, 2].iter().all(|n| counts[n] == 1), "{counts:?}");
    assert!(
        err.contains("a.ndjson.gz: the gzip data is truncated"),
        "{err}"
    );
    let left: Vec<_> = fs::read_dir(folder.path("in")).expect("a folder").collect();
    assert_eq!(left.len(), 1, "only the broken one is left");
    let entries = ledger(&folder.path("data"));
    assert_eq!(entries.len(), 1);
    assert_eq!(entries[0]["state"], "broken");
    // It is not tried again.
    let (counts, err) = read_once(&folder, "");
    assert!(counts.is_empty() && !err.contains("gzip data"), "{err}");
}

#[test]
fn events_say_where_they_come_from() {
    let s3 = S3::new("lake");
    s3.put("logs/a.log", "one\ntwo\n");
    let taken = s3.clone();
    let server = HttpServer::start(move |request, _| taken.answer(request));
    let pipeline = format!(
        "object_store {} | stdout codec=json",
        one_line_settings("lake", &server)
    );
    let ended = run(&pipeline).expect(0);
    let events: Vec<Value> = ended.events();
    assert_eq!(events[1]["message"], "two");
    assert_eq!(events[1]["log"]["file"]["path"], "s3://lake/logs/a.log");
    assert_eq!(events[1]["log"]["offset"], 4);
}
