//! An output file that is down for as long as a test likes, while the service runs and across its runs.
//!
//! The `file` output locks its file, and tries again where somebody else has the lock. So an output is down while the test
//! holds the lock of the file at its path: the file with events is exchanged for a locked one, atomically, and stays as an
//! earlier *part*. What was delivered is what all parts hold.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FlockOperation, RenameFlags, flock, renameat_with};
use serde_json::Value;

/// An output file.
pub struct Outlet {
    path: PathBuf,
    parts: usize,
    held: Option<File>,
}

impl Outlet {
    /// One that is up. Its earlier parts lie beside it, with a number at the end of their names.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            parts: 0,
            held: None,
        }
    }

    /// The path to configure.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn part(&self, number: usize) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(format!(".{number}"));
        name.into()
    }

    /// From now on writes fail, and are tried again.
    pub fn down(&mut self) {
        if self.held.is_some() {
            return;
        }
        let part = self.part(self.parts);
        let lock = File::create_new(&part).expect("a writable folder");
        flock(&lock, FlockOperation::NonBlockingLockExclusive).expect("nobody else has it");
        // There may be none yet, which must not be made between looking and renaming.
        OpenOptions::new()
            .append(true)
            .create(true)
            .open(&self.path)
            .expect("a writable folder");
        renameat_with(CWD, &part, CWD, &self.path, RenameFlags::EXCHANGE).expect("exchanged");
        self.parts += 1;
        self.held = Some(lock);
    }

    /// Writes succeed again.
    pub fn up(&mut self) {
        self.held = None;
    }

    /// What was delivered so far, as lines. A line without its end is left out: the writer was killed, or is at it.
    pub fn content(&self) -> String {
        let mut all = String::new();
        for path in (0..self.parts).map(|number| self.part(number)) {
            all.push_str(whole_lines(&read(&path)));
        }
        all.push_str(whole_lines(&read(&self.path)));
        all
    }

    /// How many events were delivered, repeats counted.
    pub fn count(&self) -> usize {
        self.content().lines().count()
    }

    /// The messages that were delivered, by id, and how often an id came again. An id stands for one message.
    pub fn delivered(&self) -> (BTreeMap<String, String>, usize) {
        let mut events = BTreeMap::new();
        let mut repeats = 0;
        for line in self.content().lines() {
            let event: Value = serde_json::from_str(line).expect("a JSON line");
            let text = |field: &str| event[field].as_str().expect("text").to_owned();
            let message = text("message");
            if let Some(before) = events.insert(text("id"), message.clone()) {
                assert_eq!(before, message, "one id for two lines");
                repeats += 1;
            }
        }
        (events, repeats)
    }

    /// Checks that exactly these lines were delivered, each under one id; how many came again.
    pub fn expect_lines(&self, lines: &str) -> usize {
        let (delivered, repeats) = self.delivered();
        let messages: BTreeSet<&str> = delivered.values().map(String::as_str).collect();
        let expected: BTreeSet<&str> = lines.lines().collect();
        let lost: Vec<_> = expected.difference(&messages).collect();
        let foreign: Vec<_> = messages.difference(&expected).take(3).collect();
        assert!(
            lost.is_empty() && foreign.is_empty(),
            "{}: {} of {} lost, {:?} to {:?}; not written, such as {foreign:?}",
            self.path.display(),
            lost.len(),
            expected.len(),
            lost.first(),
            lost.last(),
        );
        assert_eq!(delivered.len(), expected.len(), "a line has several ids");
        repeats
    }

    /// As [`Self::expect_lines`], with nothing twice.
    pub fn expect_once(&self, lines: &str) {
        let repeats = self.expect_lines(lines);
        assert_eq!(repeats, 0, "{} came again", self.path.display());
    }
}

fn read(path: &Path) -> String {
    match fs::read(path) {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
        Err(error) => panic!("{}: {error}", path.display()),
    }
}

fn whole_lines(text: &str) -> &str {
    text.rfind('\n').map_or("", |end| &text[..=end])
}
