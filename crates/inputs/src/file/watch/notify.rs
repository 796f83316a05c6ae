//! Inotify: which folders the kernel watches, and what its events are about.
//!
//! Folders are watched, not files: one watch tells of all files in it. A file that is read through a link lies
//! elsewhere, so the folder of the link's target is watched for that one name (an *alias*).
//!
//! # Invariants
//! - Watches are set by path before a folder is read, in every scan: what changes later is told, and a folder that
//!   was replaced under its name is watched anew. Watches that a scan did not set again are given back.
//! - Flags of a watch are only ever added, because two paths may lead to one folder.

use std::collections::{HashMap, HashSet};
use std::ffi::{CStr, OsStr, OsString};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;

/// Bytes of events that are read at once: some 2,000 of them.
const BUFFER_BYTES: usize = 64 * 1024;
/// Events after which reading pauses, so that a flood cannot hold up what is due. The kernel's queue holds as many.
const EVENTS_AT_ONCE: usize = 16_384;
/// Links that lead to links are followed this far, like the kernel does.
const LINKS_MAX: usize = 40;

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Happened {
    /// The content or the attributes of the name changed.
    Written { is_folder: bool },
    /// The name came or went.
    Named { is_folder: bool },
    /// The watched folder itself came or went, or events were lost.
    Lost,
}

/// What a watched folder is for.
#[derive(Debug, Default)]
pub(super) struct WatchedFolder {
    /// Indices of the scan's folders.
    pub(super) folders: Vec<usize>,
    /// Paths of links that lead to names in it.
    pub(super) aliases: HashMap<OsString, Vec<Arc<Path>>>,
}

/// The kernel's watches.
pub(super) struct Notify {
    queue: OwnedFd,
    places: HashMap<i32, WatchedFolder>,
    before: HashMap<i32, WatchedFolder>,
    buffer: Vec<MaybeUninit<u8>>,
    /// Watch and name of what was written, of the events that are being handled.
    written: HashSet<Vec<u8>>,
}

impl Notify {
    /// # Errors
    /// The limit on instances, the one on open files, or a kernel without inotify.
    pub(super) fn new() -> Result<Self, Errno> {
        Ok(Self {
            queue: inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?,
            places: HashMap::new(),
            before: HashMap::new(),
            buffer: vec![MaybeUninit::uninit(); BUFFER_BYTES],
            written: HashSet::new(),
        })
    }

    /// Readable when there are events.
    pub(super) fn queue(&self) -> BorrowedFd<'_> {
        self.queue.as_fd()
    }

    /// A scan begins: the watches it sets again stay, the others are given back when it is over.
    pub(super) fn begin(&mut self) {
        self.before = std::mem::take(&mut self.places);
    }

    /// Watches a folder: for names that come and go and, with `writes`, for what is written in it.
    ///
    /// # Errors
    /// A folder that cannot be watched, or a limit of the kernel.
    pub(super) fn watch(&mut self, path: &Path, writes: bool, folder: usize) -> Result<(), Errno> {
        let id = self.add(path, writes)?;
        self.places.entry(id).or_default().folders.push(folder);
        Ok(())
    }

    fn add(&self, path: &Path, writes: bool) -> Result<i32, Errno> {
        let mut flags = WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::MOVE
            | WatchFlags::DELETE_SELF
            | WatchFlags::MOVE_SELF
            | WatchFlags::ONLYDIR
            | WatchFlags::MASK_ADD;
        if writes {
            flags |= WatchFlags::MODIFY | WatchFlags::CLOSE_WRITE | WatchFlags::ATTRIB;
        }
        inotify::add_watch(&self.queue, path, flags)
    }

    /// Watches what a link leads to, on each link of the way; says whether one of them was not watched before.
    ///
    /// # Errors
    /// A folder that cannot be watched.
    pub(super) fn watch_target(&mut self, link: &Arc<Path>) -> Result<bool, Errno> {
        let mut is_new = false;
        let mut path = PathBuf::from(&**link);
        for _ in 0..LINKS_MAX {
            let Ok(target) = std::fs::read_link(&path) else {
                break;
            };
            let parent = path.parent().unwrap_or(Path::new("/"));
            path = parent.join(target);
            is_new |= self.watch_name(&path, link)?;
        }
        Ok(is_new)
    }

    /// Watches for a path, in the nearest folder around it that exists.
    fn watch_name(&mut self, path: &Path, link: &Arc<Path>) -> Result<bool, Errno> {
        let mut path = path;
        while let (Some(parent), Some(name)) = (path.parent(), path.file_name()) {
            let id = match self.alias(parent, name, link) {
                Err(Errno::NOENT | Errno::NOTDIR) => {
                    path = parent;
                    continue;
                }
                found => found?,
            };
            let before = self.before.get(&id).and_then(|it| it.aliases.get(name));
            return Ok(before.is_none_or(|links| !links.contains(link)));
        }
        Ok(false)
    }

    fn alias(&mut self, parent: &Path, name: &OsStr, link: &Arc<Path>) -> Result<i32, Errno> {
        let id = self.add(parent, true)?;
        let place = self.places.entry(id).or_default();
        let links = place.aliases.entry(name.to_owned()).or_default();
        if !links.contains(link) {
            links.push(link.clone());
        }
        Ok(id)
    }

    /// A scan is over.
    pub(super) fn end(&mut self) {
        for id in self.before.drain().map(|(id, _)| id) {
            if !self.places.contains_key(&id) {
                // Fails if the folder is gone, and the watch with it.
                let _ = inotify::remove_watch(&self.queue, id);
            }
        }
    }

    /// Calls `handle` with every event that waits, up to a limit; once for all writes to a name.
    pub(super) fn drain(
        &mut self,
        mut handle: impl FnMut(Option<&WatchedFolder>, &OsStr, Happened),
    ) {
        let mut events = inotify::Reader::new(&self.queue, &mut self.buffer);
        self.written.clear();
        let mut key = Vec::new();
        let mut left = EVENTS_AT_ONCE;
        // What is in the buffer has left the kernel's queue and is handled before a pause.
        while left > 0 || !events.is_buffer_empty() {
            left = left.saturating_sub(1);
            // The only other error is an interruption; the events stay for the next time.
            let Ok(event) = events.next() else {
                return;
            };
            let flags = event.events();
            if flags.contains(ReadFlags::IGNORED) {
                self.places.remove(&event.wd());
                continue;
            }
            let name = event.file_name().map(CStr::to_bytes);
            let happened = happened(flags, name.is_some());
            let name = name.unwrap_or_default();
            if matches!(happened, Happened::Written { .. }) {
                key.clear();
                key.extend_from_slice(&event.wd().to_ne_bytes());
                key.extend_from_slice(name);
                if self.written.contains(&key) {
                    continue;
                }
                self.written.insert(key.clone());
            }
            let place = self.places.get(&event.wd());
            if place.is_some() || flags.contains(ReadFlags::QUEUE_OVERFLOW) {
                handle(place, OsStr::from_bytes(name), happened);
            }
        }
    }
}

fn happened(flags: ReadFlags, has_name: bool) -> Happened {
    let named = ReadFlags::CREATE | ReadFlags::DELETE | ReadFlags::MOVED_FROM | ReadFlags::MOVED_TO;
    let is_folder = flags.contains(ReadFlags::ISDIR);
    if !has_name {
        Happened::Lost
    } else if flags.intersects(named) {
        Happened::Named { is_folder }
    } else {
        Happened::Written { is_folder }
    }
}
