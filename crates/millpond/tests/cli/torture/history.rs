//! What happened when: `history.log` in the run's folder, to be read beside what Millpond printed.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::Result;

/// Notes of all threads, each with the seconds since the start.
#[derive(Clone)]
pub struct History {
    begin: Instant,
    file: Arc<File>,
}

impl History {
    pub fn new(folder: &Path) -> Result<Self> {
        Ok(Self {
            begin: Instant::now(),
            file: Arc::new(File::create(folder.join("history.log"))?),
        })
    }

    pub fn note(&self, what: &str) {
        let line = format!("{:8.3} {what}\n", self.begin.elapsed().as_secs_f64());
        // One write, so that the notes of two threads do not mix. A test does not fail for a note.
        let _ = (&*self.file).write_all(line.as_bytes());
    }
}
