//! Rotation: when a file is put aside, and what it is called then.
//!
//! `app.ndjson.gz` becomes `app-20240229T123456Z-000.ndjson.gz`: the time of the rotation in UTC and a number that makes
//! the name new. An existing file is never overwritten. Names sort by age, and a file keeps its ending.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use jiff::tz::TimeZone;
use rustix::fs::{CWD, RenameFlags};
use rustix::io::Errno;

/// When files are rotated.
#[derive(Debug, Clone, Copy, Default)]
pub struct Rotation {
    /// Bytes that a file may have.
    pub size: Option<u64>,
    /// Seconds after which a new file begins, counted from 1970.
    pub interval: Option<i64>,
    /// How many rotated files of a path are kept.
    pub keep: Option<usize>,
}

impl Rotation {
    /// The number of the interval that a time (in seconds since 1970) lies in.
    pub fn interval_of(&self, time: i64) -> i64 {
        self.interval
            .map_or(0, |interval| time.div_euclid(interval))
    }
}

/// Puts a file aside under a new name, which is returned. `now` is in seconds since 1970.
///
/// # Errors
/// What the system says to the renaming.
pub fn put_aside(path: &Path, now: i64) -> io::Result<PathBuf> {
    let (stem, ending) = split(path);
    let time = jiff::Timestamp::from_second(now).unwrap_or_default();
    let time = TimeZone::UTC
        .to_datetime(time)
        .strftime("%Y%m%dT%H%M%SZ")
        .to_string();
    // A number is not used again when its file is gone: names have to sort by age.
    let same_second = rotated(path)?.into_iter().filter(|file| file.time == time);
    let mut number = same_second.map(|file| file.number + 1).max().unwrap_or(0);
    loop {
        let target = path.with_file_name(format!("{stem}-{time}-{number:03}{ending}"));
        if rename_to_new(path, &target)? {
            return Ok(target);
        }
        number += 1;
    }
}

/// Removes the oldest rotated files of a path, so that `keep` are left. Returns how many were removed.
///
/// # Errors
/// What the system says to listing or removing.
pub fn prune(path: &Path, keep: usize) -> io::Result<usize> {
    let mut rotated = rotated(path)?;
    rotated.sort();
    let surplus = rotated.len().saturating_sub(keep);
    for file in &rotated[..surplus] {
        fs::remove_file(&file.path)?;
    }
    Ok(surplus)
}

/// A file that was put aside; the oldest is the least.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Rotated {
    time: String,
    number: u64,
    path: PathBuf,
}

/// The files of a path that were put aside.
fn rotated(path: &Path) -> io::Result<Vec<Rotated>> {
    let (stem, ending) = split(path);
    let parent = match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    let mut rotated = Vec::new();
    for entry in fs::read_dir(parent)? {
        let entry = entry?;
        if let Some((time, number)) = entry
            .file_name()
            .to_str()
            .and_then(|name| age(name, &stem, &ending))
        {
            rotated.push(Rotated {
                time,
                number,
                path: entry.path(),
            });
        }
    }
    Ok(rotated)
}

/// Time and number of a rotated file's name; none for other names.
fn age(name: &str, stem: &str, ending: &str) -> Option<(String, u64)> {
    let middle = name
        .strip_prefix(stem)?
        .strip_prefix('-')?
        .strip_suffix(ending)?;
    let (time, number) = middle.split_once('-')?;
    let fits = |(at, byte): (usize, u8)| match at {
        8 => byte == b'T',
        15 => byte == b'Z',
        _ => byte.is_ascii_digit(),
    };
    let is_time = time.len() == 16 && time.bytes().enumerate().all(fits);
    let is_number = number.len() >= 3 && number.bytes().all(|byte| byte.is_ascii_digit());
    (is_time && is_number).then(|| Some((time.to_owned(), number.parse().ok()?)))?
}

/// The file's name without and its ending: `.ndjson.gz` of `app-1.2.ndjson.gz`.
fn split(path: &Path) -> (String, String) {
    let name = path
        .file_name()
        .map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default();
    let base = name
        .strip_suffix(".gz")
        .or_else(|| name.strip_suffix(".zst"))
        .unwrap_or(&name);
    let at = match base.rfind('.') {
        Some(at)
            if at > 0
                && base[at + 1..].starts_with(|letter: char| letter.is_ascii_alphabetic()) =>
        {
            at
        }
        _ => base.len(),
    };
    (name[..at].to_owned(), name[at..].to_owned())
}

/// Renames where nothing is called so yet; false where something is.
fn rename_to_new(from: &Path, to: &Path) -> io::Result<bool> {
    match rustix::fs::renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        Ok(()) => Ok(true),
        Err(Errno::EXIST) => Ok(false),
        // File systems that know no such renaming: there is one writer only, so that looking first is nearly as good.
        Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) if to.symlink_metadata().is_ok() => {
            Ok(false)
        }
        Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => fs::rename(from, to).map(|()| true),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(directory: &Path) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(directory)
            .expect("a directory")
            .map(|entry| {
                entry
                    .expect("an entry")
                    .file_name()
                    .into_string()
                    .expect("text")
            })
            .collect();
        names.sort();
        names
    }

    #[test]
    fn endings_stay() {
        for (name, stem, ending) in [
            ("app.ndjson.gz", "app", ".ndjson.gz"),
            ("app-2024.01.02.log", "app-2024.01.02", ".log"),
            ("app-2024.01.02", "app-2024.01.02", ""),
            ("app.zst", "app", ".zst"),
            (".hidden", ".hidden", ""),
            ("app", "app", ""),
        ] {
            assert_eq!(
                split(Path::new(name)),
                (stem.to_owned(), ending.to_owned()),
                "{name}"
            );
        }
    }

    #[test]
    fn nothing_is_overwritten_and_the_oldest_go_first() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("app.log");
        let others = [
            "app-20240229T120000Z-00x.log",
            "app-x.log",
            "application-20200101T000000Z-000.log",
        ];
        for name in others {
            fs::write(directory.path().join(name), "other").expect("it writes");
        }
        for time in [1_709_208_000, 1_709_208_000, 1_709_208_001] {
            fs::write(&path, "x").expect("it writes");
            put_aside(&path, time).expect("it renames");
        }
        let rotated = [
            "app-20240229T120000Z-000.log",
            "app-20240229T120000Z-001.log",
            "app-20240229T120001Z-000.log",
        ];
        let mut expected: Vec<&str> = rotated.iter().chain(&others).copied().collect();
        expected.sort_unstable();
        assert_eq!(names(directory.path()), expected);
        assert_eq!(prune(&path, 1).expect("it removes"), 2);
        expected.retain(|name| !rotated[..2].contains(name));
        assert_eq!(names(directory.path()), expected);
        assert!(
            put_aside(&path, 0).is_err(),
            "there is no such file any more"
        );
    }
}
