//! Which compressed files an output has open, written down beside them, so that the next start finds the torn ones.
//!
//! A process that is killed leaves a compressed file with a torn end. That end is cut when the file is opened again, but a
//! file with a time or a field in its name may never be, and of a file whose first member is torn nothing tells that it is
//! ours. So before a file is opened it is noted in a journal, with what identifies it (inode and time of birth) and its size
//! once it is open: what follows is ours. When it is closed, and thereby whole, that is noted too. [`super::mend`] reads the
//! journals of earlier runs.
//!
//! # Layout
//! `.millpond-HASH-NUMBER.writing` in the directory that all paths of the output have in common, where `HASH` stands for
//! the `path` setting. Each journal is locked by the process that writes it; the number makes the name new. A journal is
//! lines of JSON ([`Line`]); what does not parse, a torn last line, says nothing. It is emptied when no file is open and
//! removed at the end.

use std::collections::HashMap;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::storage::lock;

/// Bytes of a journal that are worth starting over, when most of them tell of closed files.
const COMPACT_FROM: u64 = 1 << 20;

/// How many journals there may be beside each other: one for each process that writes to the same `path`.
const NUMBERS_MAX: u32 = 1000;

/// What identifies a file, and how much of it was there before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    inode: u64,
    /// Nanoseconds since 1970. An inode's number is used again once its file is deleted.
    born: u64,
    /// The file's size when it was opened.
    pub size: u64,
}

impl Identity {
    /// None where the file system does not tell when a file was born.
    fn of(metadata: &Metadata) -> Option<Self> {
        let born = metadata.created().ok()?.duration_since(UNIX_EPOCH).ok()?;
        Some(Self {
            inode: metadata.ino(),
            born: u64::try_from(born.as_nanos()).ok()?,
            size: metadata.len(),
        })
    }

    /// The file's inode number.
    pub fn inode(&self) -> u64 {
        self.inode
    }

    /// Whether it is this file, whatever its size is now.
    pub fn is_of(&self, metadata: &Metadata) -> bool {
        metadata.is_file()
            && Self::of(metadata).is_some_and(|it| (it.inode, it.born) == (self.inode, self.born))
    }
}

/// A file that was open when a journal ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Noted {
    /// Where it was.
    pub path: PathBuf,
    /// None when it was about to be opened, or made.
    pub identity: Option<Identity>,
}

/// A line of a journal. Paths are relative to its directory, so that it can be moved together with the files.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Line {
    Opening(String),
    Open(String, Identity),
    Closed(String),
}

/// Where the journals of an output are.
#[derive(Debug, Clone)]
pub struct Journals {
    directory: PathBuf,
    prefix: String,
}

/// The journal that is being written.
#[derive(Debug)]
pub struct Journal {
    place: Journals,
    path: PathBuf,
    file: File,
    size: u64,
    /// The lines of the files that are open.
    open: HashMap<Arc<str>, Vec<u8>>,
    mode: u32,
}

/// The journal of an earlier run, locked.
#[derive(Debug)]
pub struct Stale {
    path: PathBuf,
    directory: PathBuf,
    file: File,
}

impl Journals {
    /// The place for an output with this `path` setting, whose files are all below `directory`.
    pub fn new(directory: &Path, setting: &str) -> Self {
        let mut hash = flate2::Crc::new();
        hash.update(setting.as_bytes());
        let prefix = format!(".millpond-{:08x}-", hash.sum());
        let directory = match directory == Path::new("") {
            true => PathBuf::from("."),
            false => directory.to_owned(),
        };
        Self { directory, prefix }
    }

    /// Where they are.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Begins a journal.
    ///
    /// # Errors
    /// What the system says to making one.
    pub fn begin(&self, mode: u32) -> io::Result<Journal> {
        for number in 0..NUMBERS_MAX {
            let path = self
                .directory
                .join(format!("{}{number}.writing", self.prefix));
            let mut options = OpenOptions::new();
            options.append(true).create_new(true).mode(mode);
            let file = match options.open(&path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                other => other?,
            };
            // Somebody who takes it for that of an earlier run may be faster, and then removes it.
            if !is_locked_at(&file, &path)? {
                continue;
            }
            return Ok(Journal {
                place: self.clone(),
                path,
                file,
                size: 0,
                open: HashMap::new(),
                mode,
            });
        }
        Err(io::Error::other("there are already too many journals"))
    }

    /// The journals that nobody writes to any more.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn stale(&self) -> io::Result<Vec<Stale>> {
        let mut stale = Vec::new();
        for entry in fs::read_dir(&self.directory)? {
            let entry = entry?;
            let name = entry.file_name();
            let Some(name) = name.to_str().filter(|name| self.is_journal(name)) else {
                continue;
            };
            let path = self.directory.join(name);
            let mut options = OpenOptions::new();
            let file = match options.read(true).write(true).open(&path) {
                // Another process was faster.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                other => other?,
            };
            if is_locked_at(&file, &path)? {
                stale.push(Stale {
                    path,
                    directory: self.directory.clone(),
                    file,
                });
            }
        }
        Ok(stale)
    }

    fn is_journal(&self, name: &str) -> bool {
        let rest = name.strip_prefix(&self.prefix);
        let number = rest.and_then(|rest| rest.strip_suffix(".writing"));
        number.is_some_and(|number| number.parse::<u32>().is_ok())
    }

    /// A file's path as journals write it.
    fn relative(&self, path: &str) -> String {
        match Path::new(path).strip_prefix(&self.directory) {
            Ok(relative) => relative.display().to_string(),
            Err(_) => path.to_owned(),
        }
    }
}

/// Locks a file; false where another one has it, or it is no longer what the path names.
fn is_locked_at(file: &File, path: &Path) -> io::Result<bool> {
    match lock(file) {
        Err(error) if error.raw_os_error() == Some(Errno::WOULDBLOCK.raw_os_error()) => {
            return Ok(false);
        }
        other => other?,
    }
    let own = file.metadata()?;
    Ok(fs::symlink_metadata(path)
        .is_ok_and(|there| (there.dev(), there.ino()) == (own.dev(), own.ino())))
}

impl Journal {
    /// Notes that a file is about to be opened.
    ///
    /// # Errors
    /// What the system says to writing it down; the same for the other functions.
    pub fn opening(&mut self, path: &Arc<str>) -> io::Result<()> {
        let line = Line::Opening(self.place.relative(path));
        self.note(path, &line)
    }

    /// Notes that a file is open. `sync` says whether that has to outlast a power failure.
    pub fn opened(&mut self, path: &Arc<str>, metadata: &Metadata, sync: bool) -> io::Result<()> {
        let Some(identity) = Identity::of(metadata) else {
            return Ok(());
        };
        let line = Line::Open(self.place.relative(path), identity);
        self.note(path, &line)?;
        match sync {
            true => self.file.sync_data(),
            false => Ok(()),
        }
    }

    /// Notes that a file is closed and whole.
    pub fn closed(&mut self, path: &Arc<str>) -> io::Result<()> {
        if self.open.remove(path).is_none() {
            return Ok(());
        }
        if self.open.is_empty() {
            self.size = 0;
            return self.file.set_len(0);
        }
        let line = Line::Closed(self.place.relative(path));
        self.append(&text(&line)?)?;
        let live: usize = self.open.values().map(Vec::len).sum();
        if self.size > COMPACT_FROM.max(2 * live as u64) {
            self.start_over()?;
        }
        Ok(())
    }

    /// Removes the journal, as all files are closed.
    pub fn end(self) -> io::Result<()> {
        fs::remove_file(&self.path)
    }

    fn note(&mut self, path: &Arc<str>, line: &Line) -> io::Result<()> {
        let line = text(line)?;
        // Opening a file may be tried again and again.
        if self.open.get(path) == Some(&line) {
            return Ok(());
        }
        self.append(&line)?;
        self.open.insert(path.clone(), line);
        Ok(())
    }

    fn append(&mut self, line: &[u8]) -> io::Result<()> {
        if let Err(error) = self.file.write_all(line) {
            // Half a line would take the next one with it.
            self.file.set_len(self.size)?;
            return Err(error);
        }
        self.size += line.len() as u64;
        Ok(())
    }

    /// Goes on in a new journal without the lines of closed files. In between there are two, which does no harm.
    fn start_over(&mut self) -> io::Result<()> {
        let mut next = self.place.begin(self.mode)?;
        next.append(&self.open.values().flatten().copied().collect::<Vec<u8>>())?;
        next.file.sync_data()?;
        next.open = std::mem::take(&mut self.open);
        std::mem::replace(self, next).end()
    }
}

fn text(line: &Line) -> io::Result<Vec<u8>> {
    let mut text = serde_json::to_vec(line)?;
    text.push(b'\n');
    Ok(text)
}

impl Stale {
    /// The files that were open when it ended.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn noted(&mut self) -> io::Result<Vec<Noted>> {
        let mut text = Vec::new();
        self.file.read_to_end(&mut text)?;
        let mut open: HashMap<String, Option<Identity>> = HashMap::new();
        for line in text.split(|&byte| byte == b'\n') {
            match serde_json::from_slice(line) {
                // An earlier line may tell more: that of a file that could not be closed properly.
                Ok(Line::Opening(path)) => drop(open.entry(path).or_default()),
                Ok(Line::Open(path, identity)) => drop(open.insert(path, Some(identity))),
                Ok(Line::Closed(path)) => drop(open.remove(&path)),
                Err(_) => {}
            }
        }
        let noted = open.into_iter().map(|(path, identity)| Noted {
            path: self.directory.join(path),
            identity,
        });
        let mut noted: Vec<Noted> = noted.collect();
        noted.sort_by(|one, other| one.path.cmp(&other.path));
        Ok(noted)
    }

    /// Removes it, as everything in it is mended.
    ///
    /// # Errors
    /// What the system says.
    pub fn remove(self) -> io::Result<()> {
        fs::remove_file(&self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_tells_of_open_files_only_and_stays_small() {
        let directory = tempfile::tempdir().expect("a directory");
        let journals = Journals::new(directory.path(), "a setting");
        let made = File::create(directory.path().join("file")).expect("a file");
        let metadata = made.metadata().expect("a file");
        let path = |number: usize| -> Arc<str> {
            let name = format!("{number}-{}", "x".repeat(200));
            directory.path().join(name).display().to_string().into()
        };
        let mut journal = journals.begin(0o600).expect("it begins");
        for number in 0..20_000 {
            journal.opening(&path(number)).expect("it writes");
            let is_opened = journal.opened(&path(number), &metadata, false);
            is_opened.expect("it writes");
            if number >= 10 {
                journal.closed(&path(number - 10)).expect("it writes");
            }
            assert!(journal.size < 2 * COMPACT_FROM);
        }
        journal.opening(&path(0)).expect("it writes");
        assert!(
            journals.stale().expect("it reads").is_empty(),
            "it is in use"
        );
        journal
            .file
            .write_all(b"{\"closed\":\"0-")
            .expect("it writes");
        drop(journal);
        let mut stale = journals.stale().expect("it reads");
        assert_eq!(stale.len(), 1);
        let noted = stale.remove(0).noted().expect("it reads");
        assert_eq!(noted.len(), 11);
        for noted in noted {
            assert!(noted.path.starts_with(directory.path()));
            let is_first = *noted.path == *path(0);
            assert_eq!(noted.identity.is_none(), is_first);
            assert!(is_first || noted.identity.is_some_and(|it| it.is_of(&metadata)));
        }
    }

    #[test]
    fn journals_of_several_processes_lie_side_by_side() {
        let directory = tempfile::tempdir().expect("a directory");
        let here = Journals::new(directory.path(), "a setting");
        let other = Journals::new(directory.path(), "another setting");
        let first = here.begin(0o600).expect("it begins");
        let second = here.begin(0o600).expect("it begins");
        drop(first);
        assert_eq!(here.stale().expect("it reads").len(), 1);
        assert!(other.stale().expect("it reads").is_empty());
        second.end().expect("it is removed");
        let mut stale = here.stale().expect("it reads");
        stale.remove(0).remove().expect("it is removed");
        assert_eq!(
            fs::read_dir(directory.path()).expect("a directory").count(),
            0
        );
    }
}
