//! What a running service is asked to do with its dead letters.
//!
//! A tool leaves `requests/ID.request` in the store: a JSON object with what to do and the numbers of the letters. It is written
//! under another name, synced and renamed, so that it is there whole. The process that has the store looks there twice a second,
//! does what it says, keeps `requests/ID.result` up to date meanwhile, and removes the request when it is done. One that is
//! killed leaves the request, and its next start goes on with the letters that are still there.

use std::fs::{self, File};
use std::io::{self, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};

use super::Purge;
use disk::folders;
use serde::{Deserialize, Serialize};

const FOLDER: &str = "requests";
const REQUEST: &str = "request";
const RESULT: &str = "result";

/// What is asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// What to do.
    pub action: Action,
    /// Which letters, by ranges of their numbers: begin and end.
    pub numbers: Vec<(u64, u64)>,
    /// What is purged with them, and not counted: see [`Purge::others`].
    #[serde(default)]
    pub others: Vec<(u64, u64)>,
    /// See [`Purge::cleared`].
    #[serde(default)]
    pub cleared: Option<Vec<(u64, u64, u64)>>,
}

/// What is done with letters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// They go on where they stopped.
    Replay,
    /// They go through everything again.
    ReplayFromStart,
    /// They are removed.
    Purge,
    /// They are removed because another pipeline has delivered them, of which nothing is said.
    HandedOn,
}

impl Action {
    /// Whether letters are removed, whatever becomes of them.
    pub fn removes(self) -> bool {
        matches!(self, Self::Purge | Self::HandedOn)
    }
}

/// What became of a request.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// Letters that are delivered, or safe in the disk queue on their way.
    pub delivered: u64,
    /// Letters that were refused or failed again, and are letters still.
    pub again: u64,
    /// Letters that the queue dropped, because it is full and is set to drop what comes; they stay letters.
    #[serde(default)]
    pub dropped: u64,
    /// Letters that were not there any more.
    #[serde(default)]
    pub gone: u64,
    /// Letters that were removed.
    pub purged: u64,
    /// What is in the way, for each letter or for all.
    pub problem: Option<String>,
    /// Whether nothing more comes.
    pub is_done: bool,
    /// Whether a disk queue has taken what was delivered.
    pub is_queued: bool,
}

impl Request {
    /// Leaves it in a store.
    ///
    /// # Errors
    /// The system refused.
    pub fn leave(&self, store: &Path) -> io::Result<String> {
        let folder = store.join(FOLDER);
        folders::make(&folder)?;
        let id = format!("{:016x}-{:08x}", super::now(), std::process::id());
        write(
            &folder.join(format!("{id}.{REQUEST}")),
            &serde_json::to_vec(self)?,
            true,
        )?;
        folders::sync(&folder)?;
        Ok(id)
    }

    /// Whether it asks for some of these numbers.
    pub fn wants(&self, numbers: &Range<u64>) -> bool {
        let begins = self
            .numbers
            .partition_point(|(_, end)| *end <= numbers.start);
        self.numbers
            .get(begins)
            .is_some_and(|(start, _)| *start < numbers.end)
    }

    /// How many numbers it asks for.
    pub fn count(&self) -> u64 {
        let counts = self.numbers.iter().map(|(start, end)| end - start);
        counts.sum()
    }

    /// What it has removed, where that is what it asks for.
    pub fn purge(&self) -> Purge {
        let ranges = |pairs: &[(u64, u64)]| {
            let pairs = pairs.iter();
            pairs.map(|(start, end)| *start..*end).collect()
        };
        Purge {
            letters: ranges(&self.numbers),
            others: ranges(&self.others),
            cleared: self.cleared.clone(),
        }
    }
}

/// Why a request cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// The system refused.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The file does not hold a request.
    #[error("{0}")]
    Content(#[from] serde_json::Error),
}

/// The requests that were left in a store, the oldest first. One that cannot be read is named by an error.
///
/// # Errors
/// The folder cannot be read.
pub fn left(store: &Path) -> io::Result<Vec<(String, Result<Request, RequestError>)>> {
    let entries = match fs::read_dir(store.join(FOLDER)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let path = entry?.path();
        let (Some(id), Some(kind)) = (
            path.file_stem().and_then(|id| id.to_str()),
            path.extension(),
        ) else {
            continue;
        };
        if kind == REQUEST {
            let read = fs::read(&path).map_err(RequestError::from);
            let request = read.and_then(|json| Ok(serde_json::from_slice(&json)?));
            found.push((id.to_owned(), request));
        }
    }
    found.sort_by(|one, other| one.0.cmp(&other.0));
    Ok(found)
}

/// Whether a request is there still.
pub fn is_left(store: &Path, id: &str) -> bool {
    file(store, id, REQUEST).exists()
}

/// Says how far a request is.
///
/// # Errors
/// The system refused.
pub fn report(store: &Path, id: &str, outcome: &Outcome) -> io::Result<()> {
    write(
        &file(store, id, RESULT),
        &serde_json::to_vec(outcome)?,
        false,
    )
}

/// Takes a request away.
///
/// # Errors
/// The system refused.
pub fn finish(store: &Path, id: &str) -> io::Result<()> {
    match fs::remove_file(file(store, id, REQUEST)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => folders::sync(&store.join(FOLDER)),
    }
}

/// How far a request is; `None` where nobody has begun.
pub fn outcome(store: &Path, id: &str) -> Option<Outcome> {
    serde_json::from_slice(&fs::read(file(store, id, RESULT)).ok()?).ok()
}

/// Takes away what was said of a request.
pub fn forget(store: &Path, id: &str) {
    // What stays is a few bytes that nobody reads.
    let _ = fs::remove_file(file(store, id, RESULT));
}

fn file(store: &Path, id: &str, kind: &str) -> PathBuf {
    store.join(FOLDER).join(format!("{id}.{kind}"))
}

fn write(path: &Path, bytes: &[u8], durable: bool) -> io::Result<()> {
    let new = path.with_extension("new");
    let mut file = File::create(&new)?;
    file.write_all(bytes)?;
    if durable {
        file.sync_all()?;
    }
    fs::rename(&new, path)
}
