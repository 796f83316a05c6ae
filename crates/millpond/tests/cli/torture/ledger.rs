//! The ledger as `millpond files --json` gives it, and the sum that must hold in it.

use std::ffi::OsStr;
use std::io::{Read, Seek};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Deserializer, Value};

use super::service::EXECUTABLE;

const ANSWER: Duration = Duration::from_secs(30);

/// Where the ledger is.
#[derive(Clone)]
pub struct Ledger(pub PathBuf);

/// What the ledger says about a file. Bytes are those of the source, decompressed.
#[derive(Debug)]
pub struct Entry {
    id: String,
    path: String,
    device: u64,
    inode: u64,
    size: u64,
    position: u64,
    lag_bytes: u64,
    state: String,
    pub dropped_bytes: u64,
    in_flight_bytes: u64,
    acknowledged_events: u64,
    /// The entry as it was printed.
    pub all: Value,
}

impl Ledger {
    /// What `millpond files --json` prints; an error where it fails or takes too long.
    pub fn text(&self) -> Result<String> {
        let (mut out, mut err) = (tempfile::tempfile()?, tempfile::tempfile()?);
        let mut child = Command::new(EXECUTABLE)
            .args(["files", "--json", "--data-dir"])
            .arg(&self.0)
            .stdin(Stdio::null())
            .stdout(out.try_clone()?)
            .stderr(err.try_clone()?)
            .spawn()?;
        let begin = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait()? {
                break status;
            }
            if begin.elapsed() > ANSWER {
                child.kill()?;
                child.wait()?;
                bail!("waited {ANSWER:?} for `millpond files` to end");
            }
            std::thread::sleep(Duration::from_millis(2));
        };
        let mut text = [String::new(), String::new()];
        for (file, text) in [&mut out, &mut err].into_iter().zip(&mut text) {
            file.rewind()?;
            file.read_to_string(text)?;
        }
        let [out, err] = text;
        ensure!(status.success(), "`millpond files`: {status}\n{err}{out}");
        Ok(out)
    }

    /// The entries, whose sums were checked.
    pub fn entries(&self) -> Result<Vec<Entry>> {
        let text = self.text()?;
        parse(&text).with_context(|| format!("the ledger\n{text}"))
    }

    /// Whether a file of so many bytes, decompressed, was read to its end and delivered.
    pub fn is_done(&self, file: &Path, bytes: u64) -> Result<bool> {
        if bytes == 0 {
            // There is nothing to tell of it.
            return Ok(true);
        }
        // By size too, as an entry of a file that is gone may have the same inode.
        self.holds(file, |entry, _| {
            entry.position == bytes && entry.in_flight_bytes == 0 && entry.lag_bytes == 0
        })
    }

    /// Whether the whole lines of a copy, which may end within a line, were delivered.
    pub fn is_copy_done(&self, file: &Path, whole_bytes: u64) -> Result<bool> {
        // What was read from the log may be more than the copy has.
        self.holds(file, |entry, size| {
            entry.size == size && entry.position >= whole_bytes
        })
    }

    /// Whether an entry of this very file, whose size on disk is given, is as it should be.
    fn holds(&self, file: &Path, is_right: impl Fn(&Entry, u64) -> bool) -> Result<bool> {
        let meta = std::fs::metadata(file)?;
        let ending = file.extension().and_then(OsStr::to_str);
        let is_packed = matches!(ending, Some("gz" | "zst"));
        // By inode, as the ledger may learn the new name of a renamed file later.
        Ok(self.entries()?.iter().any(|entry| {
            (entry.device, entry.inode) == (meta.dev(), meta.ino())
                && (!is_packed || entry.state == "done")
                && is_right(entry, meta.len())
        }))
    }

    /// The bytes of small files that were delivered.
    pub fn crowd(&self) -> Result<u64> {
        let entries = self.entries()?;
        let small = entries
            .iter()
            .filter(|entry| entry.path.contains("/crowd/"));
        Ok(small.map(|entry| entry.position).sum())
    }

    /// What changes whenever something is delivered.
    pub fn progress(&self) -> Result<(usize, u64)> {
        let entries = self.entries()?;
        let delivered = entries.iter().map(|entry| entry.acknowledged_events);
        Ok((entries.len(), delivered.sum()))
    }
}

/// Takes one object a line, or an array of them.
pub fn parse(text: &str) -> Result<Vec<Entry>> {
    let mut entries = Vec::new();
    for value in Deserializer::from_str(text).into_iter() {
        match value? {
            Value::Array(all) => entries.extend(all),
            one => entries.push(one),
        }
    }
    let entries: Result<Vec<Entry>> = entries.into_iter().map(Entry::new).collect();
    let entries = entries?;
    let mut ids: Vec<&str> = entries.iter().map(|entry| entry.id.as_str()).collect();
    ids.sort_unstable();
    ids.dedup();
    ensure!(ids.len() == entries.len(), "two files have the same id");
    Ok(entries)
}

impl Entry {
    fn new(all: Value) -> Result<Self> {
        let number = |name: &str| {
            let value = all.get(name).and_then(Value::as_u64);
            value.with_context(|| format!("`{name}` is no number in {all}"))
        };
        let text = |name: &str| {
            let value = all.get(name).and_then(Value::as_str);
            let value = value.with_context(|| format!("`{name}` is no text in {all}"));
            value.map(str::to_owned)
        };
        let dropped = all.get("dropped").and_then(Value::as_array);
        let dropped_events: u64 = dropped
            .with_context(|| format!("`dropped` is no list in {all}"))?
            .iter()
            .filter_map(|part| part.get("events").and_then(Value::as_u64))
            .sum();
        let bytes =
            number("acknowledged_bytes")? + number("dropped_bytes")? + number("in_flight_bytes")?;
        let events = number("acknowledged_events")? + dropped_events + number("in_flight_events")?;
        ensure!(
            number("read_bytes")? == bytes,
            "bytes do not add up in {all}"
        );
        ensure!(
            number("read_events")? == events,
            "events do not add up in {all}"
        );
        Ok(Self {
            id: text("id")?,
            path: text("path")?,
            size: number("size")?,
            acknowledged_events: number("acknowledged_events")?,
            device: number("device")?,
            inode: number("inode")?,
            position: number("position")?,
            // How far behind the end of a compressed file is may be unknown.
            lag_bytes: all.get("lag_bytes").and_then(Value::as_u64).unwrap_or(0),
            state: text("state")?,
            dropped_bytes: number("dropped_bytes")?,
            in_flight_bytes: number("in_flight_bytes")?,
            all,
        })
    }
}

#[test]
fn a_ledger_that_does_not_add_up_is_refused() {
    let entry = |id: u32, acknowledged_bytes: u32, in_flight_events: u32| {
        format!(
            r#"{{"pipeline":"p","input":"file","path":"/x","id":"{id}","device":1,"inode":2,"size":100,"position":60,
            "lag_bytes":40,"lag_seconds":0.1,"read_bytes":100,"acknowledged_bytes":{acknowledged_bytes},
            "dropped_bytes":10,"in_flight_bytes":30,"read_events":10,"acknowledged_events":6,
            "dropped":[{{"reason":"drop","events":1,"bytes":10}}],"in_flight_events":{in_flight_events},
            "state":"open","checkpoints":0}}"#
        )
    };
    let (one, two) = (entry(1, 60, 3), entry(2, 60, 3));
    for right in [format!("{one}\n{two}\n"), format!("[{one},{two}]")] {
        let entries = parse(&right).expect("it adds up");
        assert_eq!((entries.len(), entries[1].position), (2, 60));
    }
    assert!(parse("").expect("nothing was read").is_empty());
    let same_id = format!("{one}\n{one}");
    let incomplete = one.replace("\"inode\":2,", "");
    for wrong in [entry(1, 61, 3), entry(1, 60, 4), same_id, incomplete] {
        assert!(parse(&wrong).is_err(), "{wrong}");
    }
}
