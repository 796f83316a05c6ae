//! Objects in a directory: their names, their ends, and what a crash does to them.

use std::collections::BTreeMap;
use std::io;
use std::io::Read;

use std::sync::atomic::{AtomicU64, Ordering};

use flate2::read::MultiGzDecoder;

use super::*;
use crate::testing;

/// A queue on disk that has everything settled up to a sequence.
#[derive(Default)]
struct Queue {
    settled: AtomicU64,
    passed: AtomicU64,
    kept: Mutex<Vec<u8>>,
}

impl Anchor for Queue {
    fn settled(&self) -> u64 {
        self.settled.load(Ordering::SeqCst)
    }

    fn passed(&self) -> u64 {
        self.passed.load(Ordering::SeqCst)
    }

    fn read(&self) -> io::Result<Vec<u8>> {
        Ok(self.kept.lock().clone())
    }

    fn write(&self, bytes: &[u8]) -> io::Result<()> {
        *self.kept.lock() = bytes.to_vec();
        Ok(())
    }
}

struct Lake {
    folder: tempfile::TempDir,
    queue: Arc<Queue>,
    settings: String,
}

impl Lake {
    fn new(settings: &str) -> Self {
        let queue = Queue::default();
        queue.settled.store(u64::MAX, Ordering::SeqCst);
        Self {
            folder: tempfile::tempdir().expect("a folder"),
            queue: Arc::new(queue),
            settings: settings.to_owned(),
        }
    }

    /// An output that begins a run. Dropped without its end, it was killed.
    async fn begin(&self) -> Arc<dyn Writer> {
        let url = self.folder.path().display();
        let yaml = format!("{{url: '{url}', {}}}", self.settings);
        let output = testing::build(&SPEC, &yaml).expect("it builds");
        output.open().await.expect("it opens");
        let begun = collector(&output).begin(Some(self.queue.clone())).await;
        begun.expect("it begins");
        output
    }

    /// The paths and contents of objects, in order.
    fn objects(&self) -> Vec<(String, String)> {
        let mut objects = Vec::new();
        for (name, path) in files(self.folder.path()) {
            let folder = name.rsplit_once('/').map_or("", |(folder, _)| folder);
            let bytes = std::fs::read(path).expect("an object");
            let mut text = String::new();
            match name.ends_with(".gz") {
                true => MultiGzDecoder::new(&*bytes)
                    .read_to_string(&mut text)
                    .map(drop),
                false => (&*bytes).read_to_string(&mut text).map(drop),
            }
            .expect("it is whole");
            objects.push((folder.to_owned(), text));
        }
        objects.sort();
        objects
    }
}

/// The files below a folder, with their names in it.
fn files(folder: &Path) -> BTreeMap<String, PathBuf> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in std::fs::read_dir(next).expect("a folder") {
            let path = entry.expect("an entry").path();
            match path.is_dir() {
                true => folders.push(path),
                false => {
                    let name = path.strip_prefix(folder).expect("it is below");
                    found.insert(name.display().to_string(), path);
                }
            }
        }
    }
    found
}

fn collector(output: &Arc<dyn Writer>) -> &dyn Collector {
    output.collector().expect("it collects")
}

async fn take(output: &Arc<dyn Writer>, sequence: u64, documents: &[&str]) {
    let encoded = testing::encode(&**output, &testing::documents(documents));
    let taken = collector(output).collect(&encoded, sequence).await;
    taken.expect("it takes them");
}

/// Tends until everything below a sequence is safe.
async fn safe(output: &Arc<dyn Writer>, sequence: u64) {
    for _ in 0..1000 {
        let safe = collector(output).tend(false).await.expect("it works");
        if safe >= sequence {
            assert_eq!(safe, sequence);
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
    panic!("not safe");
}

fn pairs(objects: &[(String, String)]) -> Vec<(&str, &str)> {
    let pairs = objects.iter();
    pairs.map(|(name, text)| (&**name, &**text)).collect()
}

#[tokio::test]
async fn every_path_has_its_own_objects() {
    let lake = Lake::new("path: 'a=%{a}'");
    let output = lake.begin().await;
    take(&output, 0, &[r#"{"a":"x"}"#, r#"{"a":"../y"}"#]).await;
    take(&output, 1, &[r#"{"a":"x","n":1}"#]).await;
    assert_eq!(collector(&output).tend(false).await, Ok(0));
    assert!(lake.objects().is_empty(), "nothing is complete");
    output.close().await.expect("it closes");
    assert_eq!(collector(&output).tend(false).await, Ok(2));
    assert_eq!(
        pairs(&lake.objects()),
        [
            ("a=.._y", "{\"a\":\"../y\"}\n"),
            ("a=x", "{\"a\":\"x\"}\n{\"a\":\"x\",\"n\":1}\n"),
        ]
    );
    assert_eq!(output.take_counters()[0], ("objects", 2));
}

#[tokio::test]
async fn fields_make_no_hidden_names() {
    let lake = Lake::new("path: '%{a}/x%{a}'");
    let output = lake.begin().await;
    take(&output, 0, &[r#"{"a":".b"}"#, r#"{"a":"../y"}"#]).await;
    output.close().await.expect("it closes");
    let objects = lake.objects();
    let names: Vec<&str> = pairs(&objects).iter().map(|(name, _)| *name).collect();
    assert_eq!(names, ["_._y/x.._y", "_b/x.b"]);
}

#[tokio::test]
async fn an_object_ends_at_its_size_or_age_between_two_batches() {
    let lake = Lake::new("path: '', max_bytes: 10B, compression: none");
    let output = lake.begin().await;
    // Batches that processors derived of one have its sequence.
    for (sequence, document) in [(0, r#"{"n":10}"#), (0, r#"{"n":11}"#), (1, r#"{"n":12}"#)] {
        take(&output, sequence, &[document]).await;
    }
    safe(&output, 1).await;
    let expected = ("", "{\"n\":10}\n{\"n\":11}\n");
    assert_eq!(pairs(&lake.objects()), [expected]);
    drop(output);

    let lake = Lake::new("path: '', max_age: 30ms");
    let output = lake.begin().await;
    take(&output, 0, &[r#"{"n":1}"#]).await;
    assert_eq!(collector(&output).tend(false).await, Ok(0));
    safe(&output, 1).await;
    drop(output);

    let lake = Lake::new("path: ''");
    let output = lake.begin().await;
    for (sequence, document) in [(0, r#"{"n":1}"#), (1, r#"{"n":2}"#)] {
        take(&output, sequence, &[document]).await;
        // In a hurry; what comes behind that is left open until it is in a hurry again.
        let _ = collector(&output).tend(true).await.expect("it works");
        safe(&output, sequence + 1).await;
    }
    assert_eq!(lake.objects().len(), 2);
}

#[tokio::test]
async fn names_that_no_store_takes_are_refused() {
    let lake = Lake::new("path: 'k=%{k}/x'");
    let output = lake.begin().await;
    for (value, part) in [
        ("x".repeat(253), None),
        ("x".repeat(254), Some("a part of the `path`")),
        ("é".repeat(126), None),
        ("é".repeat(127), Some("has 256 bytes")),
    ] {
        let document = format!("{{\"k\":\"{value}\"}}");
        let encoded = testing::encode(&*output, &testing::documents(&[&document]));
        match part {
            None => assert!(encoded.refused.is_empty(), "{value}"),
            Some(part) => {
                let reason = &encoded.refused.first().expect("refused").reason;
                assert!(reason.contains(part), "{reason}");
            }
        }
    }
}

#[tokio::test]
async fn the_object_that_was_without_events_for_longest_ends_beyond_the_maximum() {
    let lake = Lake::new("path: '%{a}', max_open_objects: 2, compression: none");
    let output = lake.begin().await;
    for (sequence, document) in [r#"{"a":1}"#, r#"{"a":2}"#, r#"{"a":1,"n":0}"#, r#"{"a":3}"#]
        .into_iter()
        .enumerate()
    {
        take(&output, sequence as u64, &[document]).await;
        let _ = collector(&output).tend(false).await.expect("it works");
    }
    for _ in 0..1000 {
        if !lake.objects().is_empty() {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
    assert_eq!(pairs(&lake.objects()), [("2", "{\"a\":2}\n")]);
}

#[tokio::test]
async fn a_complete_object_is_not_made_again() {
    let lake = Lake::new("path: '%{a}', max_bytes: 1B, compression: none");
    let output = lake.begin().await;
    take(&output, 5, &[r#"{"a":1}"#, r#"{"a":2}"#]).await;
    take(&output, 6, &[r#"{"a":1,"n":2}"#]).await;
    // Objects of batches that are not settled are not even noted.
    lake.queue.settled.store(6, Ordering::SeqCst);
    safe(&output, 6).await;
    let before = lake.objects();
    assert_eq!(before.len(), 2);
    drop(output);

    let output = lake.begin().await;
    take(&output, 5, &[r#"{"a":1}"#, r#"{"a":2}"#]).await;
    take(&output, 6, &[r#"{"a":1,"n":2}"#]).await;
    lake.queue.settled.store(7, Ordering::SeqCst);
    output.close().await.expect("it closes");
    assert_eq!(collector(&output).tend(false).await, Ok(7));
    assert_eq!(output.take_counters()[1], ("repeated", 2));
    let after = lake.objects();
    assert_eq!(
        pairs(&after),
        [
            ("1", "{\"a\":1,\"n\":2}\n"),
            ("1", "{\"a\":1}\n"),
            ("2", "{\"a\":2}\n"),
        ]
    );
}

#[tokio::test]
async fn an_object_that_may_be_complete_is_made_again_under_its_name() {
    let lake = Lake::new("path: '', compression: none");
    let output = lake.begin().await;
    take(&output, 0, &[r#"{"n":0}"#]).await;
    take(&output, 1, &[r#"{"n":1}"#]).await;
    output.close().await.expect("it closes");
    // As if it was killed before it heard that the object was complete.
    let noted = String::from_utf8(lake.queue.read().expect("it reads")).expect("text");
    assert!(noted.contains("\"complete\":true"), "{noted}");
    let begun = noted.replace("\"complete\":true", "\"complete\":false");
    lake.queue.write(begun.as_bytes()).expect("it writes");
    let names = files(lake.folder.path());
    drop(output);

    let output = lake.begin().await;
    take(&output, 0, &[r#"{"n":0}"#]).await;
    // A stop in between leaves it to the next run.
    output.close().await.expect("it closes");
    assert_eq!(collector(&output).tend(false).await, Ok(0));
    drop(output);

    let output = lake.begin().await;
    for (sequence, document) in [r#"{"n":0}"#, r#"{"n":1}"#, r#"{"n":2}"#]
        .iter()
        .enumerate()
    {
        take(&output, sequence as u64, &[document]).await;
        let _ = collector(&output).tend(false).await.expect("it works");
    }
    output.close().await.expect("it closes");
    assert_eq!(
        pairs(&lake.objects()),
        [("", "{\"n\":0}\n{\"n\":1}\n"), ("", "{\"n\":2}\n")]
    );
    let after = files(lake.folder.path());
    assert!(names.keys().all(|name| after.contains_key(name)));
    // What does not come again is forgotten.
    lake.queue.passed.store(3, Ordering::SeqCst);
    take(&output, 3, &[r#"{"n":3}"#]).await;
    output.close().await.expect("it closes");
    let noted = String::from_utf8(lake.queue.read().expect("it reads")).expect("text");
    assert_eq!(noted.lines().count(), 1, "{noted}");
}

#[tokio::test]
async fn a_directory_that_cannot_be_written_is_reported_and_loses_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let place = folder.path().join("lake");
    let url = place.display();
    let output = testing::build(&SPEC, &format!("{{url: '{url}', path: ''}}")).expect("it builds");
    output.open().await.expect("it opens");
    std::fs::write(&place, "in the way").expect("it writes");
    let begun = collector(&output).begin(None).await;
    assert!(begun.is_err());
    take(&output, 0, &[r#"{"n":1}"#]).await;
    let said = output.flush().await.expect_err("it does not work");
    assert!(said.to_string().contains("lake"), "{said}");
    std::fs::remove_file(&place).expect("it is there");
    for _ in 0..100 {
        if output.flush().await.is_ok() {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    assert_eq!(files(&place).len(), 1);
}

#[test]
fn settings_are_checked() {
    for (settings, expected) in [
        ("{}", "url"),
        ("{url: nowhere}", "expected a URL"),
        ("{url: 's3://b', account: x}", "`account` is for az:// URLs"),
        (
            "{url: ./x, endpoint: 'http://x'}",
            "a directory has no `endpoint`",
        ),
        (
            "{url: 's3://b', endpoint: 'x:9'}",
            "expected an http or https URL",
        ),
        (
            "{url: 's3://b', access_key_id: k}",
            "`access_key_id` and `secret_access_key` require each other",
        ),
        ("{url: ./x, path: '../%{a}'}", "empty or consists of dots"),
        ("{url: ./x, max_age: 0}", "greater than 0"),
        (
            "{url: ./x, compression: none, compression_level: 3}",
            "requires a `compression`",
        ),
    ] {
        let said = match testing::build(&SPEC, settings) {
            Ok(_) => panic!("{settings} is accepted"),
            Err(error) => error.to_string(),
        };
        assert!(said.contains(expected), "{settings}: {said}");
    }
}
