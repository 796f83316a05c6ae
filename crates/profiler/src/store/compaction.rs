//! Joins slices to hours and hours to days, so that a query reads few files.
//!
//! Slices of an hour are joined [`HOUR_REST`] after it has ended, hours of a day [`DAY_REST`] after it has ended: the hours of the last day or two can be told
//! apart. Process numbers are left out, since nobody asks for them after an hour, and what had no name gets one where it can.
//!
//! Files of an hour or more get a table beside them ([`super::tables`]), those too that others wrote.
//!
//! # What a crash leaves
//! The files to be joined are moved to a folder called as the file to come, with `.parts` behind it. While that folder is there, its files
//! count, and a file of its name does not. When the new file is on disk, the folder is renamed, from which moment on the new file counts; then it is
//! deleted. So at each moment everything counts once, and the next compaction goes on where one was interrupted.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::name::{self, SliceName};
use super::{Slice, Store, sync, write_file};
use crate::pprof;
use crate::profile::{Profile, label};

/// How long after its end an hour is joined.
pub const HOUR_REST: Duration = Duration::from_secs(600);

/// How long after its end a day is joined.
pub const DAY_REST: Duration = Duration::from_secs(24 * 3600);

const HOUR_MS: i64 = 3_600_000;
const DAY_MS: i64 = 24 * HOUR_MS;

/// What the name of a folder ends in whose files are being joined.
const PARTS: &str = ".parts";

/// What the name of a folder begins with whose files were joined.
const JOINED: &str = ".joined-";

/// What the name of a file begins with that is no profile.
const DAMAGED: &str = ".damaged-";

/// The file of a host's folder that whoever compacts has locked.
const LOCK: &str = ".lock";

/// What was done.
#[derive(Debug, Default)]
pub struct Compacted {
    /// Files that were joined.
    pub joined: u64,
    /// Files that came of it.
    pub made: u64,
    /// Files that are damaged, with why; they were put aside.
    pub damaged: Vec<(PathBuf, pprof::PprofError)>,
}

/// The name of the file that a folder's files are joined to.
pub(super) fn target_of(folder: &str) -> Option<&str> {
    let target = folder.strip_suffix(PARTS)?;
    SliceName::parse(target).map(|_| target)
}

impl Store {
    /// Joins what can be joined, of all hosts or of one. `name` gives a profile's addresses names where it can. Hosts that another process
    /// compacts are left to it.
    ///
    /// # Errors
    /// A file or folder cannot be read or written; what was done by then is done.
    pub fn compact(
        &self,
        now: SystemTime,
        host: Option<&str>,
        mut name: impl FnMut(&str, &Profile) -> Profile,
    ) -> io::Result<Compacted> {
        let mut compacted = Compacted::default();
        let hosts = match host {
            Some(host) => vec![host.to_owned()],
            None => self.hosts()?,
        };
        for host in hosts {
            let folder = self.folder.join(name::folder_of(&host));
            if !folder.is_dir() {
                continue;
            }
            if !is_of_store(&folder, &self.slices_of(&host)?)? {
                continue;
            }
            let lock = File::options()
                .write(true)
                .create(true)
                .truncate(false)
                .open(folder.join(LOCK))?;
            if lock.try_lock().is_err() {
                continue;
            }
            remove_joined(&folder)?;
            for length_ms in [HOUR_MS, DAY_MS] {
                let groups = groups(&folder, &self.slices_of(&host)?, length_ms, now);
                for (target, parts) in groups {
                    let mut named = |profile: &Profile| name(&host, profile);
                    join(&folder, target, &parts, &mut named, &mut compacted)?;
                }
            }
            self.write_tables(&host)?;
            // It is deleted last, so that an empty folder can be deleted too.
            let _ = fs::remove_file(folder.join(LOCK));
        }
        Ok(compacted)
    }
}

/// Whether a folder has profiles, or what is left of joining them. Others are not touched: their `.lock` may be somebody else's.
fn is_of_store(folder: &Path, slices: &[Slice]) -> io::Result<bool> {
    if !slices.is_empty() {
        return Ok(true);
    }
    for entry in fs::read_dir(folder)? {
        if entry?.file_name().to_string_lossy().starts_with(JOINED) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The files to be joined, by what they are joined to.
fn groups(
    folder: &Path,
    slices: &[Slice],
    length_ms: i64,
    now: SystemTime,
) -> BTreeMap<SliceName, Vec<PathBuf>> {
    let rest = match length_ms {
        HOUR_MS => HOUR_REST,
        _ => DAY_REST,
    };
    let latest = name::nanoseconds(now) / 1_000_000 - rest.as_millis() as i64;
    let mut groups: BTreeMap<SliceName, Vec<PathBuf>> = BTreeMap::new();
    for slice in slices {
        let start_ms = slice.window.start_ns / 1_000_000;
        let target = SliceName {
            start_ms: start_ms.div_euclid(length_ms) * length_ms,
            length_ms,
            count: 1,
        };
        let is_over = target.start_ms + length_ms <= latest;
        let is_shorter = slice.window.duration_ns < length_ms.unsigned_abs() * 1_000_000;
        if is_over && is_shorter {
            groups.entry(target).or_default().push(slice.path.clone());
        }
    }
    groups.retain(|target, parts| {
        let is_begun = folder.join(format!("{target}{PARTS}")).exists();
        // What comes late waits for the day, or stays as it is.
        let is_there = folder.join(target.to_string()).exists();
        is_begun || (!is_there && (parts.len() > 1 || length_ms == HOUR_MS))
    });
    groups
}

fn join(
    folder: &Path,
    target: SliceName,
    parts: &[PathBuf],
    name: &mut dyn FnMut(&Profile) -> Profile,
    compacted: &mut Compacted,
) -> io::Result<()> {
    let parts_folder = folder.join(format!("{target}{PARTS}"));
    fs::create_dir_all(&parts_folder)?;
    for part in parts {
        let Some(file) = part.file_name() else {
            continue;
        };
        let inside = parts_folder.join(file);
        if *part != inside {
            fs::rename(part, inside)?;
        }
    }
    sync(&parts_folder)?;
    sync(folder)?;
    let mut whole = Profile::default();
    for entry in fs::read_dir(&parts_folder)? {
        let path = entry?.path();
        match pprof::read(&fs::read(&path)?) {
            Ok(profile) => {
                let named = name(&profile);
                whole.merge(&named, |label| label != label::PID);
                compacted.joined += 1;
            }
            Err(error) => {
                let file = path.file_name().unwrap_or_default().to_string_lossy();
                let aside = folder.join(format!("{DAMAGED}{file}"));
                fs::rename(&path, &aside)?;
                compacted.damaged.push((aside, error));
            }
        }
    }
    if !whole.is_empty() || whole.events().next().is_some() {
        // A run that was interrupted may have written it.
        match fs::remove_file(folder.join(target.to_string())) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => write_file(folder, target, &pprof::write(&whole))?,
        };
        compacted.made += 1;
    }
    fs::rename(&parts_folder, folder.join(format!("{JOINED}{target}")))?;
    sync(folder)?;
    remove_joined(folder)
}

/// Deletes the folders whose files were joined.
fn remove_joined(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(JOINED) {
            fs::remove_dir_all(entry.path())?;
        }
    }
    Ok(())
}
