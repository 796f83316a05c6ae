//! Profiles that are still to be sent.
//!
//! They are links to files of the store, in a folder of their own below it, until a server has them: a process that is killed, and a server that is
//! away, lose none. Those that are sent together are moved to a folder first, so that they are sent in the same message again if nobody knows whether
//! it arrived. Whoever receives such a repeat finds the same file in its store.
//!
//! # Limits
//! [`FILES_MAX`] files, of a minute each, wait; older ones are given up, and stay in the store.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use component::{Diagnostics, Limit, plural};
use profiler::store::{Store, name};
use profiler::{Profile, pprof};

/// How many files wait: a day of them.
const FILES_MAX: usize = 24 * 60;

/// How many files are sent in one message.
const TOGETHER: usize = 5;

/// The folder below the store.
const FOLDER: &str = ".unsent";

/// The folder of what is sent together.
const SENDING: &str = "sending";

/// The folder of what a server has, until it is deleted.
const SENT: &str = "sent";

/// Profiles of one host that are still to be sent.
pub struct Outbox {
    folder: PathBuf,
}

impl Outbox {
    /// That of a host in a store.
    ///
    /// # Errors
    /// The folder cannot be made.
    pub fn open(store: &Store, host: &str) -> io::Result<Self> {
        let folder = store.folder().join(FOLDER).join(name::folder_of(host));
        fs::create_dir_all(&folder)?;
        Ok(Self { folder })
    }

    /// Adds a file of the store.
    ///
    /// # Errors
    /// It cannot be linked or copied.
    pub fn put(&self, file: &Path, diagnostics: &Diagnostics) -> io::Result<()> {
        let target = self.folder.join(file.file_name().unwrap_or_default());
        // Not every file system has links.
        if fs::hard_link(file, &target).is_err() {
            fs::copy(file, &target)?;
        }
        let waiting = self.waiting()?;
        let too_many = waiting.len().saturating_sub(FILES_MAX);
        for old in &waiting[..too_many] {
            fs::remove_file(self.folder.join(old))?;
        }
        if too_many > 0 {
            diagnostics.warn_limited(Limit::events("profile_unsent"), || {
                let files = plural(too_many as u64, "profile");
                format!(
                    "{files} could not be sent for a day and will not be: only the store has them"
                )
            });
        }
        Ok(())
    }

    /// What is to be sent next, as one profile; none where everything was sent.
    ///
    /// # Errors
    /// A folder or file cannot be read.
    pub fn next(&self) -> io::Result<Option<Profile>> {
        let sending = self.folder.join(SENDING);
        loop {
            if !sending.is_dir() && !self.choose(&sending)? {
                return Ok(None);
            }
            let mut joined = Profile::default();
            for name in files(&sending)? {
                // One that is damaged is of no use to anybody.
                if let Ok(profile) = pprof::read(&fs::read(sending.join(name))?) {
                    joined.merge(&profile, |_| true);
                }
            }
            if !joined.is_empty() {
                return Ok(Some(joined));
            }
            self.done()?;
        }
    }

    /// What [`Self::next`] gave need not be sent again.
    ///
    /// # Errors
    /// It cannot be deleted.
    pub fn done(&self) -> io::Result<()> {
        let sent = self.folder.join(SENT);
        // Of a process that was killed.
        if sent.is_dir() {
            fs::remove_dir_all(&sent)?;
        }
        // All of it at once.
        fs::rename(self.folder.join(SENDING), &sent)?;
        fs::remove_dir_all(&sent)
    }

    /// Moves the oldest files to the folder of what is sent together; whether there are any.
    fn choose(&self, sending: &Path) -> io::Result<bool> {
        let waiting = self.waiting()?;
        if waiting.is_empty() {
            return Ok(false);
        }
        fs::create_dir(sending)?;
        for name in waiting.iter().take(TOGETHER) {
            fs::rename(self.folder.join(name), sending.join(name))?;
        }
        Ok(true)
    }

    /// The files that wait, the oldest first.
    fn waiting(&self) -> io::Result<Vec<OsString>> {
        files(&self.folder)
    }
}

/// The names of the files in a folder, in order, which is that of time.
fn files(folder: &Path) -> io::Result<Vec<OsString>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            names.push(entry.file_name());
        }
    }
    names.sort();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use profiler::collapsed;
    use profiler::profile::Window;

    use super::*;

    /// Writes a minute's profile, with so many samples, to a store, and puts it into the outbox.
    fn put(store: &Store, outbox: &Outbox, minute: i64, samples: u64) {
        let mut profile = collapsed::read(&format!("main;work {samples}\n"), 20.0).unwrap();
        profile.window = Window {
            start_ns: (1_790_000_000 + minute * 60) * 1_000_000_000,
            duration_ns: 60_000_000_000,
        };
        for file in store.write(&profile, "a").unwrap() {
            outbox.put(&file, &Diagnostics::silent()).unwrap();
        }
    }

    fn next(outbox: &Outbox) -> Option<u64> {
        let profile = outbox.next().unwrap();
        profile.map(|profile| profile.total().samples)
    }

    #[test]
    fn what_nobody_has_is_sent_again_together() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::at(folder.path());
        let outbox = Outbox::open(&store, "a").unwrap();
        assert_eq!(next(&outbox), None);
        put(&store, &outbox, 0, 1);
        put(&store, &outbox, 1, 2);
        assert_eq!(next(&outbox), Some(3));
        // The process is killed here; what comes later is another message.
        let outbox = Outbox::open(&store, "a").unwrap();
        for minute in 2..8 {
            put(&store, &outbox, minute, 10);
        }
        assert_eq!(next(&outbox), Some(3));
        outbox.done().unwrap();
        assert_eq!(next(&outbox), Some(50));
        outbox.done().unwrap();
        assert_eq!(next(&outbox), Some(10));
        outbox.done().unwrap();
        assert_eq!(next(&outbox), None);
        // The store has them all, and no host more.
        assert_eq!(store.slices(&(i64::MIN..i64::MAX)).unwrap().len(), 8);
        assert_eq!(store.hosts().unwrap(), ["a"]);
    }

    #[test]
    fn it_is_bounded_and_skips_what_is_damaged() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::at(folder.path());
        let outbox = Outbox::open(&store, "a").unwrap();
        put(&store, &outbox, 0, 1);
        put(&store, &outbox, 1, 2);
        let damaged = outbox.folder.join(&outbox.waiting().unwrap()[0]);
        fs::remove_file(&damaged).unwrap();
        fs::write(&damaged, "no profile").unwrap();
        assert_eq!(next(&outbox), Some(2));
        outbox.done().unwrap();
        for index in 0..FILES_MAX + 2 {
            fs::write(outbox.folder.join(format!("1{index:06}")), "").unwrap();
        }
        put(&store, &outbox, 3, 4);
        assert_eq!(outbox.waiting().unwrap().len(), FILES_MAX);
        // Only damaged ones are left, and the last.
        assert_eq!(next(&outbox), Some(4));
    }
}
