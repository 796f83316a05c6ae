//! One scan: walks the folders, sets the kernel's watches on the way, and keeps what is polled.

use std::io;
use std::path::Path;
use std::sync::Arc;

use rustix::io::Errno;

use super::found::{FoundFile, WatchMode};
use super::notify::Notify;
use crate::paths::walk::{Entry, Folder, Visitor};

/// A folder without watch, and what was in it.
pub(super) struct Polled {
    /// Its index among the scan's folders.
    pub(super) folder: usize,
    pub(super) entries: Vec<Entry>,
}

/// What a scan finds.
pub(super) struct Scan<'a> {
    mode: WatchMode,
    notify: Option<&'a mut Notify>,
    /// Each in the slot it got when it was entered.
    folders: Vec<Option<Folder>>,
    /// The folders around: their slots, and whether they are polled.
    around: Vec<(usize, bool)>,
    pub(super) polled: Vec<Polled>,
    /// With the pattern that stands for it.
    pub(super) files: Vec<(usize, FoundFile)>,
    /// Links whose targets were not watched before.
    pub(super) new_links: Vec<Arc<Path>>,
    /// The first folder that could not be watched for want of a resource.
    pub(super) refused: Option<(String, Errno)>,
    pub(super) has_watched: bool,
}

impl<'a> Scan<'a> {
    pub(super) fn new(mode: WatchMode, notify: Option<&'a mut Notify>) -> Self {
        Self {
            mode,
            notify,
            folders: Vec::new(),
            around: Vec::new(),
            polled: Vec::new(),
            files: Vec::new(),
            new_links: Vec::new(),
            refused: None,
            has_watched: false,
        }
    }

    /// The folders that were visited.
    pub(super) fn take_folders(&mut self) -> Vec<Folder> {
        self.folders.drain(..).flatten().collect()
    }

    /// Whether the kernel watches the folder from now on.
    fn watch(&mut self, folder: &Folder, slot: usize) -> bool {
        let Some(notify) = &mut self.notify else {
            return false;
        };
        if self.mode == WatchMode::Auto && is_remote(&folder.full) {
            return false;
        }
        let watched = notify.watch(&folder.full, folder.has_files, slot);
        self.noted(&folder.full, watched).is_some()
    }

    /// The result; where it failed for want of a resource, that is noted.
    fn noted<T>(&mut self, path: &Path, result: Result<T, Errno>) -> Option<T> {
        if let Err(error @ (Errno::NOSPC | Errno::NOMEM | Errno::MFILE)) = result {
            self.refused
                .get_or_insert_with(|| (path.display().to_string(), error));
        }
        result.ok()
    }

    /// Whether the kernel tells of what happens where the link leads to.
    fn watch_target(&mut self, link: &Arc<Path>) -> bool {
        let Some(notify) = &mut self.notify else {
            return false;
        };
        if self.mode == WatchMode::Auto && is_remote(link) {
            return false;
        }
        let watched = notify.watch_target(link);
        let is_new = self.noted(link, watched);
        if is_new == Some(true) {
            self.new_links.push(link.clone());
        }
        is_new.is_some()
    }
}

impl Visitor for Scan<'_> {
    fn enter(&mut self, folder: &Folder) {
        let slot = self.folders.len();
        self.folders.push(None);
        let is_watched = self.watch(folder, slot);
        self.has_watched |= is_watched;
        self.around.push((slot, !is_watched));
    }

    fn file(&mut self, folder: &Folder, entry: &Entry, pattern: usize) {
        if let Some(meta) = entry.meta {
            let path = folder.path_of(&entry.name);
            self.files.push((pattern, FoundFile { path, meta }));
        }
    }

    fn leave(&mut self, folder: Folder, entries: Vec<Entry>) {
        let Some((slot, mut is_polled)) = self.around.pop() else {
            return;
        };
        for entry in entries.iter().filter(|entry| entry.is_link) {
            is_polled |= !self.watch_target(&folder.path_of(&entry.name));
        }
        if is_polled {
            let folder = slot;
            self.polled.push(Polled { folder, entries });
        }
        self.folders[slot] = Some(folder);
    }
}

/// What became of a folder since it was looked at last.
pub(super) enum Difference<'a> {
    /// Only the content of these changed.
    Written(Vec<&'a Entry>),
    /// Names, or what they lead to.
    Named,
}

/// Compares a folder's entries, both sorted by name.
pub(super) fn difference<'a>(old: &[Entry], new: &'a [Entry]) -> Difference<'a> {
    if old.len() != new.len() {
        return Difference::Named;
    }
    let mut written = Vec::new();
    for (old, new) in old.iter().zip(new) {
        let same = old.name == new.name
            && (old.kind, old.is_link, old.file) == (new.kind, new.is_link, new.file)
            && old.is_way() == new.is_way();
        if !same {
            return Difference::Named;
        }
        // Folders are polled themselves.
        let (Some(before), Some(now), Some(_)) = (old.meta, new.meta, new.file) else {
            continue;
        };
        let id =
            |meta: crate::paths::meta::Meta| (meta.device, meta.inode, meta.born_ns, meta.links);
        if id(before) != id(now) {
            return Difference::Named;
        }
        if before != now {
            written.push(new);
        }
    }
    Difference::Written(written)
}

/// Whether others than this host's kernel may change what is there, or the kernel does not tell.
///
/// Numbers: `linux/magic.h`, and `stat.c` of the GNU coreutils for those outside the kernel.
fn is_remote(path: &Path) -> bool {
    const MAGICS: [u32; 24] = [
        0x0000_6969, // NFS
        0x0000_517b, // SMB
        0xff53_4d42, // CIFS
        0xfe53_4d42, // SMB 2
        0x6573_5546, // FUSE
        0x0102_1997, // 9P
        0x5346_414f, // AFS
        0x6b41_4653, // AFS of the kernel
        0x7375_7245, // Coda
        0x00c3_6400, // Ceph
        0x0bd0_0bd0, // Lustre
        0x4750_4653, // GPFS
        0x7461_636f, // OCFS2
        0x0116_1970, // GFS2
        0x786f_4256, // folders of VirtualBox
        0xbacb_acbc, // folders of VMware
        0x7c7c_6673, // folders of Parallels
        0x0000_564c, // NetWare
        0x1983_0326, // BeeGFS
        0xaad7_aaea, // PanFS
        0x2003_0528, // OrangeFS
        0x6163_6673, // ACFS
        0x0000_9fa0, // proc
        0x6265_6572, // sysfs
    ];
    // The field's type differs between platforms, the numbers have 32 bits.
    #[allow(clippy::cast_sign_loss, clippy::cast_possible_truncation)]
    rustix::fs::statfs(path).is_ok_and(|found| MAGICS.contains(&(found.f_type as u32)))
}

/// Why folders are polled that need not be.
pub(super) fn refusal(path: Option<&str>, error: Errno) -> String {
    let limit = match (path, error) {
        (Some(_), Errno::NOSPC) => "fs.inotify.max_user_watches is exhausted".to_owned(),
        (None, Errno::MFILE) => {
            "fs.inotify.max_user_instances or the limit on open files is exhausted".to_owned()
        }
        _ => crate::reading::describe::describe(&io::Error::from(error)),
    };
    match path {
        Some(path) => format!("{path} and possibly other directories are polled: {limit}"),
        None => format!("all directories are polled: {limit}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_systems() {
        assert!(is_remote(Path::new("/proc/self")));
        let folder = tempfile::tempdir().expect("a folder");
        assert!(!is_remote(folder.path()), "the one tests run on is local");
        assert!(!is_remote(&folder.path().join("missing")));
    }
}
