//! Code that was made while a program runs, from `/tmp/perf-PID.map`.
//!
//! Lines are `START SIZE NAME`, numbers in hexadecimal; a later line takes the place of what it covers, since code is moved and freed.
//! Source: `tools/perf/Documentation/jit-interface.txt` of the Linux kernel.
//!
//! A program goes on writing the file, and some write it anew. So it is read again when its size or time has changed, or when it is another file,
//! and the last line, which may not be whole, counts only with its line end. What is written over while it is read could give lines of two versions:
//! a file counts only if it is the same when it is read a second time; until then the names from before stay. Any process can leave a file there, and
//! an earlier one with the same number may have: so only a regular file is read that is the process's user's (or root's), and that was written since
//! the process began.
//!
//! # Limits
//! A file has up to [`FILE_BYTES_MAX`]; of a larger one nothing is read. Names are cut behind [`NAME_BYTES_MAX`].

use std::collections::BTreeMap;
use std::fs::{self, File, Metadata};
use std::io::{self, Read, Seek};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::demangle::demangle;
use crate::process_status::{Status, began};

/// The most bytes of a file.
pub const FILE_BYTES_MAX: u64 = 256 << 20;
/// The most bytes of a name.
pub const NAME_BYTES_MAX: usize = 4096;

/// How exact the time is at which a process began.
const ROUNDED: Duration = Duration::from_secs(2);

/// Names of the code of one process.
#[derive(Debug, Default)]
pub struct PerfMap {
    path: PathBuf,
    /// The user who may have written it, and since when; anybody and ever where that is not known.
    writer: Option<(u32, SystemTime)>,
    read: Option<Version>,
    /// By where it begins: the end, and the name.
    functions: BTreeMap<u64, (u64, String)>,
}

/// Which file was read, and its state: device and number, bytes, and when it was changed, in seconds and nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Version([u64; 3], [i64; 2]);

impl Version {
    fn of(data: &Metadata) -> Self {
        Self(
            [data.dev(), data.ino(), data.len()],
            [data.mtime(), data.mtime_nsec()],
        )
    }
}

impl PerfMap {
    /// The map of a process, which may have its own `/tmp` and its own number.
    pub fn of(pid: u32) -> Self {
        let status = Status::of(pid);
        let inner = status.map_or(pid, |status| status.number);
        let inside = PathBuf::from(format!("/proc/{pid}/root/tmp/perf-{inner}.map"));
        let map = match inside.exists() {
            true => Self::at(&inside),
            false => Self::at(Path::new(&format!("/tmp/perf-{pid}.map"))),
        };
        Self {
            writer: status.map(|status| status.uid).zip(began(pid)),
            ..map
        }
    }

    /// The map in a file, which need not be there yet.
    pub fn at(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            ..Self::default()
        }
    }

    /// Reads the file if it has changed.
    ///
    /// # Errors
    /// It is not there, too large, may be of another process, or was written over while it was read.
    pub fn refresh(&mut self) -> io::Result<()> {
        if self.read == Some(Version::of(&fs::metadata(&self.path)?)) {
            return Ok(());
        }
        let mut file = disk::regular::open(&self.path)?;
        let data = file.metadata()?;
        if let Some((user, since)) = self.writer {
            let is_own = [0, user].contains(&data.uid());
            if !is_own || data.modified()? + ROUNDED < since {
                return Err(io::ErrorKind::PermissionDenied.into());
            }
        }
        if data.len() > FILE_BYTES_MAX {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let bytes = stable(&mut file, data.len())?;
        self.replace(&bytes);
        self.read = Some(Version::of(&data));
        Ok(())
    }

    /// Takes the lines of a map in place of all that was known.
    pub fn replace(&mut self, text: &[u8]) {
        self.functions.clear();
        self.add(text);
    }

    /// Whether no function is known.
    pub fn is_empty(&self) -> bool {
        self.functions.is_empty()
    }

    /// Takes the lines of a file, behind those that were taken before.
    pub fn add(&mut self, text: &[u8]) {
        for line in text.split_inclusive(|byte| *byte == b'\n') {
            if let Some(line) = line.strip_suffix(b"\n") {
                self.line(&String::from_utf8_lossy(line));
            }
        }
    }

    fn line(&mut self, line: &str) {
        let mut fields = line.trim_end_matches('\r').splitn(3, ' ');
        let number = |field: Option<&str>| {
            let digits = field?.trim_start_matches("0x");
            u64::from_str_radix(digits, 16).ok()
        };
        let (start, bytes) = (number(fields.next()), number(fields.next()));
        if let (Some(start), Some(bytes), Some(name)) = (start, bytes, fields.next()) {
            let name = &name[..name.floor_char_boundary(NAME_BYTES_MAX)];
            self.insert(start, start.saturating_add(bytes), name);
        }
    }

    fn insert(&mut self, start: u64, end: u64, name: &str) {
        if end <= start {
            return;
        }
        let below = self.functions.range(..end).rev();
        let covered = below.take_while(|(_, (other, _))| *other > start);
        let gone: Vec<u64> = covered.map(|(other, _)| *other).collect();
        for other in gone {
            self.functions.remove(&other);
        }
        self.functions.insert(start, (end, name.to_owned()));
    }

    /// The function at an address.
    pub fn name(&self, address: u64) -> Option<String> {
        let (_, (end, name)) = self.functions.range(..=address).next_back()?;
        (address < *end).then(|| demangle(name))
    }
}

/// So many bytes from the beginning of a file, if they are the same when they are read again.
fn stable(file: &mut File, bytes: u64) -> io::Result<Vec<u8>> {
    let mut first = Vec::new();
    file.by_ref().take(bytes).read_to_end(&mut first)?;
    file.rewind()?;
    let (mut rest, mut piece) = (&*first, vec![0; 64 << 10]);
    while !rest.is_empty() {
        let wanted = rest.len().min(piece.len());
        let again = &mut piece[..wanted];
        file.read_exact(again)?;
        let (before, others) = rest.split_at(wanted);
        if before != again {
            return Err(io::Error::other("it was written over while it was read"));
        }
        rest = others;
    }
    Ok(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_lines_replace_what_they_cover() {
        let mut map = PerfMap::default();
        map.add(b"1000 100 a\n1100 100 b c\nx\n1080 100 d\n2000 0 e\n0x3000 10 f\n4000 10 torn");
        let names = [
            0x1000, 0x1080, 0x117f, 0x1180, 0x1190, 0x3005, 0x3010, 0x4000,
        ];
        let names: Vec<Option<String>> = names.map(|address| map.name(address)).to_vec();
        let name = |name: &str| Some(name.to_owned());
        assert_eq!(
            names,
            [
                None,
                name("d"),
                name("d"),
                None,
                None,
                name("f"),
                None,
                None
            ]
        );
        map.add(b"1100 10 b c\n");
        assert_eq!(map.name(0x1100), name("b c"));
    }

    #[test]
    fn what_another_process_may_have_written_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("perf-1.map");
        fs::write(&path, "10 10 a\n").unwrap();
        let data = fs::metadata(&path).unwrap();
        let written = data.modified().unwrap();
        // Root may write for everybody.
        let other = if data.uid() == 0 { 0 } else { data.uid() + 1 };
        let minute = Duration::from_secs(60);
        for (user, since, is_read) in [
            (data.uid(), written, true),
            (data.uid(), written - minute, true),
            (data.uid(), written + minute, false),
            (other, written, data.uid() == 0),
        ] {
            let mut map = PerfMap {
                writer: Some((user, since)),
                ..PerfMap::at(&path)
            };
            assert_eq!(map.refresh().is_ok(), is_read, "{user} {since:?}");
        }
    }

    #[test]
    fn a_file_is_read_again_when_it_changes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("perf-1.map");
        let mut map = PerfMap::at(&path);
        assert!(map.refresh().is_err());
        fs::write(&path, "10 10 a\n").unwrap();
        map.refresh().unwrap();
        assert_eq!(map.name(0x11).as_deref(), Some("a"));
        fs::write(&path, "10 10 another\n").unwrap();
        map.refresh().unwrap();
        assert_eq!(map.name(0x11).as_deref(), Some("another"));
    }
}
