//! A folder of profiles: ordinary pprof files, one for each host and slice of time, that any pprof tool opens.
//!
//! | module | holds |
//! | --- | --- |
//! | [`name`] | names of files and folders |
//! | [`compaction`] | joins slices to hours and hours to days |
//! | [`query`] | tables and profiles of a range of time |
//! | [`small`] | keeps such profiles small |
//! | `tables` | what functions took, beside each compacted file |
//!
//! Below the store there is a folder for each host, and in it files such as `20261124T131500.000Z+60s.pb.gz`: when they begin, and how long
//! they are. Each is written under another name and renamed, so that none is ever seen half. Any number of processes may write to a
//! store and read it.
//!
//! # Limits
//! A store on a disk that is full, or fails, loses slices, which are counted and said by whoever writes them.

pub mod compaction;
pub mod name;
pub mod query;
pub mod small;
mod tables;

use std::borrow::Cow;
use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::pprof;
use crate::profile::{Profile, SECOND_NS, Window, label};
use name::SliceName;

/// What the name of a file begins with that is being written.
const UNFINISHED: &str = ".writing-";

/// Files of this length and more have tables.
const HOUR_NS: u64 = 3600 * SECOND_NS;

/// How old a file is at least that nobody goes on writing.
const UNFINISHED_TIME: Duration = Duration::from_secs(24 * 3600);

/// A folder of profiles.
#[derive(Debug, Clone)]
pub struct Store {
    folder: PathBuf,
}

/// A file of a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slice {
    /// The host.
    pub host: String,
    /// When it was recorded, to the millisecond.
    pub window: Window,
    /// The file.
    pub path: PathBuf,
    /// Its size.
    pub bytes: u64,
    /// Its table, which says what functions took, and the table's size; none where there is none yet.
    pub table: Option<(PathBuf, u64)>,
}

/// What was deleted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Expired {
    /// How many files.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl Slice {
    /// The bytes that it takes on disk.
    fn bytes_with_table(&self) -> u64 {
        self.bytes + self.table.as_ref().map_or(0, |(_, bytes)| *bytes)
    }
}

impl Store {
    /// A store, whose folder is made where it is not there.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn create(folder: &Path) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        Ok(Self::at(folder))
    }

    /// A store, as it is.
    pub fn at(folder: &Path) -> Self {
        Self {
            folder: folder.to_owned(),
        }
    }

    /// Its folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Writes a profile, a file for each host that it has samples of; what has no host gets the label of `host`.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn write(&self, profile: &Profile, host: &str) -> io::Result<Vec<PathBuf>> {
        let parts = by_host(profile, host);
        let files = parts
            .iter()
            .map(|(host, part)| self.write_of_host(part, host));
        files.collect()
    }

    fn write_of_host(&self, profile: &Profile, host: &str) -> io::Result<PathBuf> {
        let folder = self.folder.join(name::folder_of(host));
        fs::create_dir_all(&folder)?;
        let mut sets = profile.label_sets();
        let is_labelled = sets.all(|set| profile.label_of(set, label::HOST).is_some());
        let bytes = match is_labelled {
            true => pprof::write(profile),
            false => pprof::write(&with_host(profile, host)),
        };
        write_file(&folder, SliceName::of(profile.window), &bytes)
    }

    /// The hosts, in order.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn hosts(&self) -> io::Result<Vec<String>> {
        let mut hosts = Vec::new();
        for entry in fs::read_dir(&self.folder)? {
            let entry = entry?;
            let name = entry.file_name().into_string().unwrap_or_default();
            if let (Some(host), true) = (name::host_of(&name), entry.path().is_dir()) {
                hosts.push(host);
            }
        }
        hosts.sort();
        Ok(hosts)
    }

    /// The files of a host, in the order of time.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn slices_of(&self, host: &str) -> io::Result<Vec<Slice>> {
        let folder = self.folder.join(name::folder_of(host));
        let mut slices = Vec::new();
        // What is being joined counts instead of what it will be.
        let mut joined = Vec::new();
        let mut tables = HashMap::new();
        for entry in entries(&folder)? {
            let name = entry.file_name().into_string().unwrap_or_default();
            if let Some(target) = compaction::target_of(&name) {
                joined.push(folder.join(target));
                for entry in entries(&entry.path())? {
                    slices.extend(slice(host, &entry));
                }
            } else if tables::is_table(&name) {
                let bytes = entry.metadata().map_or(0, |data| data.len());
                tables.insert(name, (entry.path(), bytes));
            } else {
                slices.extend(slice(host, &entry));
            }
        }
        slices.retain(|slice| !joined.contains(&slice.path));
        for slice in &mut slices {
            let name = tables::name_of(&slice.path, slice.bytes);
            slice.table = name.and_then(|name| tables.remove(&name));
        }
        slices.sort_by(|one, other| {
            let key = |slice: &Slice| (slice.window.start_ns, slice.path.clone());
            key(one).cmp(&key(other))
        });
        Ok(slices)
    }

    /// The files of all hosts that are of a range of time, from its beginning until before its end, in nanoseconds since 1970.
    ///
    /// # Errors
    /// A folder cannot be read.
    pub fn slices(&self, range: &std::ops::Range<i64>) -> io::Result<Vec<Slice>> {
        let mut slices = Vec::new();
        for host in self.hosts()? {
            slices.extend(self.slices_of(&host)?);
        }
        slices.retain(|slice| {
            slice.window.start_ns < range.end && slice.window.end_ns() > range.start
        });
        Ok(slices)
    }

    /// Deletes files that ended more than `max_age` ago, and of the others the oldest until the rest has at most `max_bytes`.
    ///
    /// # Errors
    /// A folder cannot be read, or a file not be deleted.
    pub fn expire(
        &self,
        now: SystemTime,
        max_age: Option<Duration>,
        max_bytes: Option<u64>,
    ) -> io::Result<Expired> {
        let now_ns = name::nanoseconds(now);
        let age_ns = max_age.map(|age| i64::try_from(age.as_nanos()).unwrap_or(i64::MAX));
        let mut slices = self.slices(&(i64::MIN..i64::MAX))?;
        slices.sort_by_key(|slice| slice.window.end_ns());
        let mut rest: u64 = slices.iter().map(Slice::bytes_with_table).sum();
        let mut expired = Expired::default();
        for slice in slices {
            let is_old =
                age_ns.is_some_and(|age| slice.window.end_ns() < now_ns.saturating_sub(age));
            if !is_old && max_bytes.is_none_or(|max| rest <= max) {
                break;
            }
            match fs::remove_file(&slice.path) {
                // Another process that writes to the store was faster.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                removed => removed?,
            }
            rest -= slice.bytes_with_table();
            expired.files += 1;
            expired.bytes += slice.bytes_with_table();
        }
        self.sweep(now)?;
        Ok(expired)
    }

    /// Deletes what processes left that were killed while they wrote, and folders of hosts without files.
    fn sweep(&self, now: SystemTime) -> io::Result<()> {
        for host in self.hosts()? {
            let folder = self.folder.join(name::folder_of(&host));
            for entry in entries(&folder)? {
                let name = entry.file_name().into_string().unwrap_or_default();
                let changed = entry.metadata().and_then(|data| data.modified());
                let age = changed.map(|time| now.duration_since(time).unwrap_or_default());
                if name.starts_with(UNFINISHED) && age.is_ok_and(|age| age > UNFINISHED_TIME) {
                    // What cannot be deleted now is deleted the next time.
                    let _ = fs::remove_file(entry.path());
                }
            }
            tables::remove_others(&folder, &self.slices_of(&host)?)?;
            // One that is not empty stays.
            let _ = fs::remove_dir(&folder);
        }
        Ok(())
    }
}

/// What a folder has; nothing where it is gone.
fn entries(folder: &Path) -> io::Result<Vec<fs::DirEntry>> {
    match fs::read_dir(folder) {
        Ok(entries) => entries.collect(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// A file of a store, where it is one.
fn slice(host: &str, entry: &fs::DirEntry) -> Option<Slice> {
    let name = entry.file_name().into_string().ok()?;
    let name = SliceName::parse(&name)?;
    let data = entry.metadata().ok()?;
    data.is_file().then(|| Slice {
        host: host.to_owned(),
        window: name.window(),
        path: entry.path(),
        bytes: data.len(),
        table: None,
    })
}

/// Writes a file under its name, or a later one where there is another already. One with the same content is the same profile, which somebody sent twice.
fn write_file(folder: &Path, name: SliceName, bytes: &[u8]) -> io::Result<PathBuf> {
    let mut name = name;
    let unfinished = format!("{UNFINISHED}{}-{name}", std::process::id());
    let unfinished = folder.join(unfinished);
    let written = File::create(&unfinished).and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_all()
    });
    let renamed = written.and_then(|()| {
        loop {
            let path = folder.join(name.to_string());
            match content(&path)? {
                None => return fs::rename(&unfinished, &path).map(|()| path),
                Some(known) if known == bytes => {
                    return fs::remove_file(&unfinished).map(|()| path);
                }
                Some(_) => name.count += 1,
            }
        }
    });
    if renamed.is_err() {
        // On a full disk it would take room that others need.
        let _ = fs::remove_file(&unfinished);
    }
    let path = renamed?;
    sync(folder)?;
    Ok(path)
}

/// What a file holds; none where it is gone, or was never there.
fn content(path: &Path) -> io::Result<Option<Vec<u8>>> {
    match fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        content => content.map(Some),
    }
}

/// Makes names of a folder survive a power failure.
fn sync(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// A profile by its hosts; what has none is of `default`. There is always one at least.
pub fn by_host<'p>(profile: &'p Profile, default: &str) -> Vec<(String, Cow<'p, Profile>)> {
    let mut hosts: Vec<&str> = profile
        .label_sets()
        .map(|set| profile.label_of(set, label::HOST).unwrap_or(default))
        .collect();
    hosts.sort_unstable();
    hosts.dedup();
    match hosts[..] {
        [] => vec![(default.to_owned(), Cow::Borrowed(profile))],
        [only] => vec![(only.to_owned(), Cow::Borrowed(profile))],
        _ => {
            let part = |host: &str| Cow::Owned(of_host(profile, host, default));
            let parts = hosts.iter().map(|host| (String::from(*host), part(host)));
            parts.collect()
        }
    }
}

/// The part of a profile that is of one host; what has none is of `default`.
fn of_host(profile: &Profile, host: &str, default: &str) -> Profile {
    let takes = |labels| profile.label_of(labels, label::HOST).unwrap_or(default) == host;
    profile.part(takes, |_, labels| takes(labels))
}

/// A profile whose samples without a host are of this one.
fn with_host(profile: &Profile, host: &str) -> Profile {
    let labels = |set| {
        let mut labels: Vec<_> = profile.labels_of(set).collect();
        if profile.label_of(set, label::HOST).is_none() {
            labels.push((label::HOST, host));
        }
        labels
    };
    profile.relabelled(|_| true, |_, _| true, labels)
}

#[cfg(test)]
mod tests;
