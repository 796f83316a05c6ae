//! What the file system knows of a file.

use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use component::FileIdentity;
use rustix::fs::{AtFlags, CWD, FileType, Statx, StatxFlags, StatxTimestamp};
use rustix::io::Errno;

/// What the file system knows of a file. Times are in nanoseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Meta {
    pub(crate) device: u64,
    pub(crate) inode: u64,
    /// When the inode was made; not every file system knows.
    pub(crate) born_ns: Option<i64>,
    pub(crate) size: u64,
    pub(crate) modified_ns: i64,
    /// When the inode changed last, by a write, a rename, a new link or new rights.
    pub(crate) changed_ns: i64,
    /// Names the inode has.
    pub(crate) links: u64,
    pub(crate) kind: Kind,
}

/// What a path leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    File,
    Directory,
    /// A pipe, a socket, a device.
    Other,
}

impl Kind {
    pub(super) fn of_type(found: FileType) -> Self {
        match found {
            FileType::RegularFile => Self::File,
            FileType::Directory => Self::Directory,
            _ => Self::Other,
        }
    }
}

impl Meta {
    /// What tells the file from all others.
    pub(crate) fn identity(&self) -> FileIdentity {
        FileIdentity {
            device: self.device,
            inode: self.inode,
            born_ns: self.born_ns,
        }
    }

    /// Of the file that the path leads to, through links.
    ///
    /// # Errors
    /// Those of `statx`.
    pub(crate) fn of(path: &Path) -> io::Result<Self> {
        Ok(stat_at(CWD, path, AtFlags::empty())?.0)
    }

    /// Of an open file.
    ///
    /// # Errors
    /// Those of `statx`.
    pub(crate) fn of_fd(file: impl AsFd) -> io::Result<Self> {
        Ok(stat_at(file, c"", AtFlags::EMPTY_PATH)?.0)
    }
}

/// `statx` below an open folder, and `fstatat` where there is no `statx`; also tells a link, where it is not followed.
pub(super) fn stat_at<P: rustix::path::Arg + Copy>(
    folder: impl AsFd,
    path: P,
    flags: AtFlags,
) -> rustix::io::Result<(Meta, FileType)> {
    let wanted = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
    match rustix::fs::statx(&folder, path, flags, wanted) {
        Ok(found) => Ok(of_statx(&found)),
        Err(Errno::NOSYS) => Ok(of_stat(&rustix::fs::statat(&folder, path, flags)?)),
        Err(error) => Err(error),
    }
}

fn of_statx(found: &Statx) -> (Meta, FileType) {
    let ns = |time: StatxTimestamp| nanoseconds(time.tv_sec, i64::from(time.tv_nsec));
    let has_born = StatxFlags::from_bits_retain(found.stx_mask).contains(StatxFlags::BTIME);
    let file_type = FileType::from_raw_mode(u32::from(found.stx_mode));
    let meta = Meta {
        device: rustix::fs::makedev(found.stx_dev_major, found.stx_dev_minor),
        inode: found.stx_ino,
        born_ns: has_born.then(|| ns(found.stx_btime)),
        size: found.stx_size,
        modified_ns: ns(found.stx_mtime),
        changed_ns: ns(found.stx_ctime),
        links: u64::from(found.stx_nlink),
        kind: Kind::of_type(file_type),
    };
    (meta, file_type)
}

// The fields' types differ between platforms.
#[allow(clippy::unnecessary_cast)]
fn of_stat(found: &rustix::fs::Stat) -> (Meta, FileType) {
    let file_type = FileType::from_raw_mode(found.st_mode);
    let meta = Meta {
        device: found.st_dev as u64,
        inode: found.st_ino as u64,
        born_ns: None,
        size: u64::try_from(found.st_size).unwrap_or(0),
        modified_ns: nanoseconds(found.st_mtime as i64, found.st_mtime_nsec as i64),
        changed_ns: nanoseconds(found.st_ctime as i64, found.st_ctime_nsec as i64),
        links: found.st_nlink as u64,
        kind: Kind::of_type(file_type),
    };
    (meta, file_type)
}

fn nanoseconds(seconds: i64, rest: i64) -> i64 {
    seconds.saturating_mul(1_000_000_000).saturating_add(rest)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn both_calls_and_the_standard_library_agree() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a");
        fs::write(&path, "hello").expect("written");
        fs::hard_link(&path, folder.path().join("b")).expect("linked");
        std::os::unix::fs::symlink(&path, folder.path().join("l")).expect("linked");
        let open = File::open(&path).expect("opened");
        let meta = Meta::of(&folder.path().join("l")).expect("it exists");
        assert_eq!(meta, Meta::of_fd(&open).expect("it is open"));

        let found = fs::metadata(&path).expect("it exists");
        assert_eq!((meta.device, meta.inode), (found.dev(), found.ino()));
        assert_eq!((meta.size, meta.links), (5, 2));
        assert_eq!(
            meta.modified_ns,
            nanoseconds(found.mtime(), found.mtime_nsec())
        );
        let (mut old, _) = of_stat(&rustix::fs::fstat(&open).expect("it is open"));
        old.born_ns = meta.born_ns;
        assert_eq!(meta, old, "without statx");
    }

    #[test]
    fn kinds() {
        let folder = tempfile::tempdir().expect("a folder");
        let kind = |path: &Path| Meta::of(path).map(|meta| meta.kind);
        assert_eq!(kind(folder.path()).expect("it exists"), Kind::Directory);
        assert_eq!(kind(Path::new("/dev/null")).expect("exists"), Kind::Other);
        let missing = kind(&folder.path().join("none")).expect_err("it is missing");
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    }
}
