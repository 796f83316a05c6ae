//! Which batches went into which object, so that batches that come again after a crash make no second object of the same events.
//!
//! An object's *range* is the sequences of the first and the last batch with rows for it. It is written down, on disk, before the object can become
//! visible, and again when the object is complete; only then may its batches pass. So of a batch that comes again:
//!
//! - rows for an object that is known to be complete are left out;
//! - rows for an object that may be complete make an object of the same name and range, which takes the place of the other one;
//! - all others are new.
//!
//! The ledger is lines of JSON ([`Record`]), kept where [`Anchor`] says. Records of batches that do not come again are dropped.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use component::Anchor;
use serde::{Deserialize, Serialize};

/// An object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// What `path` gave for its events.
    pub path: String,
    /// Its name behind that.
    pub name: String,
    /// The first batch with rows for it.
    pub first: u64,
    /// The last one.
    pub last: u64,
    /// Whether it is known to be complete.
    #[serde(default)]
    pub complete: bool,
}

/// What is known of a row of a batch that comes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Known {
    /// It is in no object.
    New,
    /// It is in an object that is complete.
    Complete,
    /// It belongs into this object.
    Begun {
        /// Its name.
        name: Arc<str>,
        /// The last batch with rows for it.
        last: u64,
    },
}

/// The objects of batches that may come again.
#[derive(Default)]
pub struct Ledger {
    anchor: Option<Arc<dyn Anchor>>,
    /// By the name, which begins with the path.
    records: BTreeMap<(String, u64), Record>,
    /// Batches from here on did not come before this run.
    new_from: u64,
    is_changed: bool,
}

impl Ledger {
    /// The ledger of an earlier run; an empty one that is kept nowhere without an anchor.
    ///
    /// # Errors
    /// It cannot be read. Then some events may be written a second time.
    pub fn open(anchor: Option<Arc<dyn Anchor>>) -> (Self, Option<io::Error>) {
        let read = anchor.as_ref().map_or(Ok(Vec::new()), |it| it.read());
        let (text, error) = match read {
            Ok(text) => (text, None),
            Err(error) => (Vec::new(), Some(error)),
        };
        let lines = text.split(|&byte| byte == b'\n');
        let records = lines.filter_map(|line| serde_json::from_slice::<Record>(line).ok());
        let records = records.map(|record| ((record.path.clone(), record.first), record));
        let records: BTreeMap<_, _> = records.collect();
        let new_from = records.values().map(|record| record.last + 1).max();
        let ledger = Self {
            anchor,
            records,
            new_from: new_from.unwrap_or(0),
            is_changed: false,
        };
        (ledger, error)
    }

    /// Batches with a sequence below this have it in every run.
    pub fn settled(&self) -> u64 {
        self.anchor.as_ref().map_or(u64::MAX, |it| it.settled())
    }

    /// What is known of rows with this path in a batch.
    pub fn known(&self, path: &str, sequence: u64) -> Known {
        if sequence >= self.new_from {
            return Known::New;
        }
        let before = self
            .records
            .range(..=(path.to_owned(), sequence))
            .next_back();
        let record = before.map(|(_, record)| record);
        match record.filter(|record| record.path == path && record.last >= sequence) {
            None => Known::New,
            Some(record) if record.complete => Known::Complete,
            Some(record) => Known::Begun {
                name: record.name.as_str().into(),
                last: record.last,
            },
        }
    }

    /// Notes an object. What is noted holds after [`Ledger::save`].
    pub fn note(&mut self, record: Record) {
        if self.anchor.is_none() {
            return;
        }
        let key = (record.path.clone(), record.first);
        self.is_changed |= self.records.get(&key) != Some(&record);
        self.records.insert(key, record);
    }

    /// Makes what was noted safe.
    ///
    /// # Errors
    /// The system refused.
    pub fn save(&mut self) -> io::Result<()> {
        let Some(anchor) = self.anchor.as_ref().filter(|_| self.is_changed) else {
            return Ok(());
        };
        let passed = anchor.passed();
        self.records.retain(|_, record| record.last >= passed);
        let mut text = Vec::new();
        for record in self.records.values() {
            serde_json::to_writer(&mut text, record)?;
            text.push(b'\n');
        }
        anchor.write(&text)?;
        self.is_changed = false;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use parking_lot::Mutex;

    #[derive(Default)]
    struct Memory(Mutex<Vec<u8>>);

    impl Anchor for Memory {
        fn settled(&self) -> u64 {
            u64::MAX
        }

        fn passed(&self) -> u64 {
            3
        }

        fn read(&self) -> io::Result<Vec<u8>> {
            Ok(self.0.lock().clone())
        }

        fn write(&self, bytes: &[u8]) -> io::Result<()> {
            *self.0.lock() = bytes.to_vec();
            Ok(())
        }
    }

    fn record(path: &str, name: &str, range: (u64, u64), complete: bool) -> Record {
        Record {
            path: path.into(),
            name: name.into(),
            first: range.0,
            last: range.1,
            complete,
        }
    }

    #[test]
    fn a_later_run_knows_objects_by_path_and_range() {
        let anchor: Arc<dyn Anchor> = Arc::new(Memory::default());
        let (mut ledger, error) = Ledger::open(Some(anchor.clone()));
        assert!(error.is_none());
        ledger.note(record("a", "gone", (0, 2), true));
        ledger.note(record("a", "1", (4, 6), false));
        ledger.note(record("a", "1", (4, 6), true));
        ledger.note(record("a", "2", (8, 9), false));
        ledger.note(record("b", "3", (5, 12), false));
        ledger.save().expect("it writes");
        let (ledger, _) = Ledger::open(Some(anchor));
        let begun = |name: &str, last| Known::Begun {
            name: name.into(),
            last,
        };
        for (path, sequence, expected) in [
            ("a", 2, Known::New),
            ("a", 4, Known::Complete),
            ("a", 6, Known::Complete),
            ("a", 7, Known::New),
            ("a", 8, begun("2", 9)),
            ("a", 10, Known::New),
            ("b", 4, Known::New),
            ("b", 5, begun("3", 12)),
            ("b", 12, begun("3", 12)),
            ("b", 13, Known::New),
            ("c", 5, Known::New),
        ] {
            assert_eq!(ledger.known(path, sequence), expected, "{path} {sequence}");
        }
    }
}
