//! The `object_store` output: every event is in one object, whatever is killed, in a directory and in a double of S3.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;
use std::time::Duration;

use fastrand::Rng;
use flate2::read::MultiGzDecoder;
use serde_json::Value;
use testkit::http::HttpServer;
use testkit::s3::{S3, SECRET_KEY, one_line_settings, settings};

use crate::program::{Folder, millpond, run};
use crate::running::{Service, append};

/// How often each line is in objects that end so.
fn counted<'a>(objects: impl Iterator<Item = (&'a str, Vec<u8>)>) -> BTreeMap<u64, usize> {
    let mut counts = BTreeMap::new();
    for (name, bytes) in objects {
        assert!(name.ends_with(".ndjson.gz"), "{name}");
        let mut text = String::new();
        let read = MultiGzDecoder::new(&*bytes).read_to_string(&mut text);
        read.unwrap_or_else(|error| panic!("{name} is not whole: {error}"));
        for line in text.lines() {
            let event: Value = serde_json::from_str(line).expect("a JSON line");
            let number = event["n"].as_u64().expect("a number");
            let kind = format!("kind={}/", number % 3);
            assert!(name.contains(&kind), "{number} is in {name}");
            *counts.entry(number).or_default() += 1;
        }
    }
    counts
}

pub fn in_directory(lake: &Path) -> BTreeMap<u64, usize> {
    let mut found = Vec::new();
    let mut folders = vec![lake.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten() {
            let path = entry.expect("an entry").path();
            match path.is_dir() {
                true => folders.push(path),
                false => found.push((path.display().to_string(), std::fs::read(&path))),
            }
        }
    }
    let objects = found.iter();
    counted(objects.map(|(name, bytes)| {
        let bytes = bytes.as_ref().expect("an object");
        (name.as_str(), bytes.clone())
    }))
}

fn in_bucket(s3: &S3) -> BTreeMap<u64, usize> {
    let objects = s3.objects();
    counted(
        objects
            .iter()
            .map(|(name, bytes)| (name.as_str(), bytes.to_vec())),
    )
}

/// Follows a log that grows, with kills, and checks that every line is in one object in the end.
fn survives_kills(output: &str, kills: usize, count: impl Fn() -> BTreeMap<u64, usize>) {
    let folder = Folder::new();
    let yaml = format!(
        "data_dir: '{data}'
pipelines:
  one:
    input:
      file: {{ paths: ['{log}'], start_at: beginning, codec: json }}
    queue: disk
    processors:
      - set kind = n % 3
    output:
      object_store: {{ {output}, path: 'kind=%{{kind}}', max_bytes: 4KiB, max_age: 300ms }}
    retry: {{ initial: 20ms, max: 100ms }}
",
        data = folder.path("data"),
        log = folder.path("app.log"),
    );
    let path = folder.write("service.yaml", yaml);
    let mut rng = Rng::with_seed(7);
    let mut written = 0;
    let mut write = |lines: u64| {
        let text = (written..written + lines).map(|n| format!("{{\"n\":{n}}}\n"));
        append(&folder.path("app.log"), &text.collect::<String>());
        written += lines;
        written
    };
    for _ in 0..kills {
        let service = Service::start(&folder, &["run", &path]);
        for _ in 0..rng.usize(2..30) {
            write(rng.u64(1..200));
            std::thread::sleep(Duration::from_millis(rng.u64(1..40)));
        }
        service.kill();
    }
    let total = write(100) as usize;
    let mut service = Service::start(&folder, &["run", &path]);
    service.until("every event", || count().len() == total);
    service.stop();
    let counts = count();
    let twice: Vec<_> = counts.iter().filter(|(_, count)| **count > 1).collect();
    assert!(twice.is_empty(), "of {total}: {twice:?}");
    assert_eq!(counts.len(), total);
}

#[test]
fn every_event_is_in_one_object_of_a_directory_after_kills() {
    let lake = Folder::new();
    let root = lake.path("lake");
    survives_kills(&format!("url: '{root}'"), 15, || {
        in_directory(Path::new(&root))
    });
}

#[test]
fn every_event_is_in_one_object_of_a_bucket_after_kills_and_failures() {
    let s3 = S3::new("lake");
    let server = s3.failing(11);
    survives_kills(&settings("lake", &server), 8, || in_bucket(&s3));
    assert!(s3.objects().keys().all(|key| key.starts_with("logs/kind=")));
}

#[test]
fn a_large_object_is_sent_in_parts() {
    let s3 = S3::new("lake");
    let server = s3.failing(11);
    let settings = one_line_settings("lake", &server);
    let ended = run(&format!(
        "generate apache count=100k seed=1 | object_store {settings} path='' compression=none max_bytes=1GiB"
    ));
    ended.expect(0);
    let objects = s3.objects();
    assert_eq!(objects.len(), 1);
    let object = objects.values().next().expect("an object");
    assert!(object.len() > 2 * (8 << 20), "{} bytes", object.len());
    let lines = object.split(|byte| *byte == b'\n');
    let events = lines.filter(|line| serde_json::from_slice::<Value>(line).is_ok());
    assert_eq!(events.count(), 100_000);
    let parts = server.taken();
    let parts = parts
        .iter()
        .filter(|taken| taken.path.contains("partNumber"));
    assert!(parts.count() > 2);
}

#[test]
fn wrong_credentials_and_missing_buckets_are_told_at_the_start() {
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
        let ended = run(&format!(
            "generate apache count=10 | object_store {settings}"
        ));
        let ended = ended.expect(1);
        assert!(ended.err.contains(expected), "{}", ended.err);
        assert!(
            !ended.err.contains(SECRET_KEY) && !ended.err.contains('<'),
            "{}",
            ended.err
        );
    }
    assert!(s3.objects().is_empty());
    assert_eq!(s3.uploads(), 0);
}

#[test]
fn inputs_whose_senders_wait_need_a_queue_on_disk() {
    let folder = Folder::new();
    let check = |input: &str, queue: &str| {
        let lake = folder.path("lake");
        let yaml = format!(
            "data_dir: '{}'\npipelines:\n  one:\n    input: {input}\n    queue: {queue}\n    output: {{ object_store: {{ url: '{lake}', path: '' }} }}\n",
            folder.path("state")
        );
        millpond(&["check", &folder.write("t.yaml", yaml)])
    };
    let tcp = "{ tcp: { address: '127.0.0.1:0' } }";
    let said = check(tcp, "memory").expect(2).err;
    assert!(
        said.contains("senders to the input `tcp` would wait"),
        "{said}"
    );
    assert!(said.contains("use `queue: disk`"), "{said}");
    check(tcp, "{ memory: { overflow: disk } }").expect(2);
    check(tcp, "disk").expect(0);
    check(
        &format!("{{ file: {{ paths: ['{}'] }} }}", folder.path("a.log")),
        "memory",
    )
    .expect(0);
}
