//! The registry of a running instance: opening, reading, committing.
//!
//! Invariants: only the holder of `writer` changes file or index. The index names bytes of `View::file` that are never
//! changed, so a reader that took file and place together may read without a lock, also while a compaction puts a new
//! file in place. The log's length on disk is `Writer::length`, except while `must_cut` or within a commit.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use disk::{FolderStorage, Storage, StoredFile};
use parking_lot::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::compact::{self, Fresh};
use crate::error::{self, RegistryError};
use crate::folder::{Folder, LOG, TMP};
use crate::format::FrameBuilder;
use crate::index::Index;
use crate::recover::{self, Loaded};
use crate::{Change, Key};

/// A smaller log is never compacted.
const COMPACTION_BYTES_MIN: u64 = 1 << 20;

/// What inputs remember across runs.
#[derive(Debug)]
pub struct Registry {
    folder: Folder,
    writer: Mutex<Writer>,
    view: RwLock<View>,
}

/// What readers see.
#[derive(Debug)]
struct View {
    file: Arc<dyn StoredFile>,
    index: Index,
}

#[derive(Debug)]
struct Writer {
    log: u64,
    /// Of the last frame.
    sequence: u64,
    /// Where the next frame goes.
    length: u64,
    /// Bytes of a failed commit may lie beyond `length`.
    must_cut: bool,
    /// A sync failed: what was written before may not reach the disk, whatever a later sync says.
    is_suspect: bool,
    /// After a failed compaction: the length at which to try again.
    compact_at: u64,
}

/// A data directory that this process has locked, and whose registry is not read yet. Dropping it unlocks the directory.
#[derive(Debug)]
pub struct LockedDirectory {
    directory: PathBuf,
    storage: FolderStorage,
}

impl LockedDirectory {
    /// Locks a data directory, which is created where it is missing.
    ///
    /// # Errors
    /// Another instance holds the directory; the system refuses.
    pub fn take(directory: &Path) -> Result<Self, RegistryError> {
        Ok(Self {
            directory: directory.to_owned(),
            storage: FolderStorage::open(directory)?,
        })
    }

    /// Opens the registry, as [`Registry::open`] does.
    ///
    /// # Errors
    /// The log has a newer version; the system refuses.
    pub fn open(self) -> Result<(Registry, Vec<String>), RegistryError> {
        let warning = self.storage.warning();
        let (registry, sentences) = Registry::open_on(&self.directory, Arc::new(self.storage))?;
        Ok((registry, warning.into_iter().chain(sentences).collect()))
    }
}

impl Registry {
    /// Opens the registry of a data directory, which is created where it is missing, and locks the directory until the
    /// registry is dropped. What is damaged is set aside; the sentences say what was lost.
    ///
    /// # Errors
    /// Another instance holds the directory; the log has a newer version; the system refuses.
    pub fn open(directory: &Path) -> Result<(Self, Vec<String>), RegistryError> {
        LockedDirectory::take(directory)?.open()
    }

    /// Opens a registry on any storage; `directory` is what messages call it.
    ///
    /// # Errors
    /// As for [`Registry::open`].
    pub fn open_on(
        directory: &Path,
        storage: Arc<dyn Storage>,
    ) -> Result<(Self, Vec<String>), RegistryError> {
        let folder = Folder::new(directory, storage);
        // Whatever a crash left there; the log is whole without it.
        let removed = folder.storage.remove(TMP);
        removed.map_err(error::io("remove", &folder.tmp()))?;
        let mut sentences = Vec::new();
        let (view, writer) = match folder.open_log()? {
            Some(file) => load(&folder, file, &mut sentences)?,
            None => install(&folder, compact::write(&folder, None)?, Index::default())?,
        };
        let registry = Self {
            folder,
            writer: Mutex::new(writer),
            view: RwLock::new(view),
        };
        Ok((registry, sentences))
    }

    /// The data directory.
    pub fn directory(&self) -> &Path {
        &self.folder.directory
    }

    /// Every entry of a kind as of now, in no order that means anything. Reads the log once from front to back and holds
    /// 32 bytes for each entry meanwhile. `each` may use the registry.
    ///
    /// # Errors
    /// The log cannot be read.
    pub fn for_each(
        &self,
        kind: u8,
        each: &mut dyn FnMut(u128, &[u8]),
    ) -> Result<(), RegistryError> {
        let (file, entries) = {
            let view = self.view();
            (Arc::clone(&view.file), view.index.in_log_order(kind))
        };
        recover::each_value(&*file, &self.folder.log(), &entries, each)
    }

    /// The value of an entry.
    ///
    /// # Errors
    /// The log cannot be read.
    pub fn get(&self, key: Key) -> Result<Option<Vec<u8>>, RegistryError> {
        let (file, place) = {
            let view = self.view();
            let Some(place) = view.index.get(key) else {
                return Ok(None);
            };
            (Arc::clone(&view.file), place)
        };
        let mut value = vec![0; place.length()];
        let read = file.read_at(&mut value, place.offset());
        let whole = read.and_then(|read| match read == value.len() {
            true => Ok(Some(value)),
            false => Err(io::ErrorKind::UnexpectedEof.into()),
        });
        whole.map_err(error::io("read the registry", &self.folder.log()))
    }

    /// Applies all changes, in order, or none, also across a crash. With `durable` it returns once this commit and all
    /// before it are on disk (no changes are needed for that); otherwise a crash of the system, though not one of this
    /// process, may undo it. Whoever reads sees the changes when it returns.
    ///
    /// # Errors
    /// A value or the commit is too large, or the disk refuses; the commit did not happen, and the next one may.
    pub fn commit(&self, changes: &[Change], durable: bool) -> Result<(), RegistryError> {
        let mut frame = FrameBuilder::of(changes)?;
        let mut writer = self.writer.lock();
        if durable && writer.is_suspect {
            self.compact(&mut writer)?;
        }
        let file = Arc::clone(&self.view().file);
        if changes.is_empty() {
            return match durable {
                true => writer.sync(&self.folder, &*file),
                false => Ok(()),
            };
        }
        let bytes = frame.finish(writer.log, writer.sequence + 1);
        let offset = writer.length;
        writer.append(&self.folder, &*file, bytes, durable)?;
        self.view_mut().index.apply(bytes, offset);
        self.compact_when_due(&mut writer);
        Ok(())
    }

    fn compact_when_due(&self, writer: &mut Writer) {
        let is_large = writer.length > COMPACTION_BYTES_MIN.max(writer.compact_at);
        if !is_large || self.view().index.live_bytes() * 2 >= writer.length {
            return;
        }
        if self.compact(writer).is_err() {
            writer.compact_at = writer.length * 2;
        }
    }

    /// Puts a new log in place of the old one.
    fn compact(&self, writer: &mut Writer) -> Result<(), RegistryError> {
        let fresh = {
            let view = self.view();
            compact::write(&self.folder, Some((&*view.file, &view.index)))?
        };
        rename(&self.folder)?;
        let mut view = self.view_mut();
        view.index.relocate(&fresh.moved);
        *writer = Writer::of(&fresh);
        view.file = fresh.file;
        drop(view);
        // Until the directory is on disk, a crash brings back the old log without what goes to the new one.
        writer.is_suspect = true;
        sync_directory(&self.folder)?;
        writer.is_suspect = false;
        Ok(())
    }

    fn view(&self) -> RwLockReadGuard<'_, View> {
        self.view.read()
    }

    fn view_mut(&self) -> RwLockWriteGuard<'_, View> {
        self.view.write()
    }
}

impl Writer {
    fn of(fresh: &Fresh) -> Self {
        Self {
            log: fresh.log,
            sequence: fresh.sequence,
            length: fresh.length,
            must_cut: false,
            is_suspect: false,
            compact_at: 0,
        }
    }

    /// Appends a frame; on failure nothing of it stays.
    fn append(
        &mut self,
        folder: &Folder,
        file: &dyn StoredFile,
        frame: &[u8],
        durable: bool,
    ) -> Result<(), RegistryError> {
        if self.must_cut {
            self.cut(folder, file)?;
        }
        self.must_cut = true;
        let written = file.write_at(frame, self.length);
        let written = written.map_err(error::io("write to the registry", &folder.log()));
        let result = match written {
            Ok(()) if durable => self.sync(folder, file),
            other => other,
        };
        match result {
            Ok(()) => {
                self.must_cut = false;
                self.length += frame.len() as u64;
                self.sequence += 1;
            }
            // A failure here is made good before the next append.
            Err(_) => drop(self.cut(folder, file)),
        }
        result
    }

    fn cut(&mut self, folder: &Folder, file: &dyn StoredFile) -> Result<(), RegistryError> {
        let cut = file.cut(self.length);
        cut.map_err(error::io("truncate the registry", &folder.log()))?;
        self.must_cut = false;
        Ok(())
    }

    fn sync(&mut self, folder: &Folder, file: &dyn StoredFile) -> Result<(), RegistryError> {
        let synced = file.sync();
        self.is_suspect |= synced.is_err();
        synced.map_err(error::io("sync the registry", &folder.log()))
    }
}

/// Reads the log that is there; sets aside and writes anew what is damaged.
fn load(
    folder: &Folder,
    file: Arc<dyn StoredFile>,
    sentences: &mut Vec<String>,
) -> Result<(View, Writer), RegistryError> {
    let loaded = recover::load(&*file, &folder.log())?;
    if !loaded.damage.is_any() {
        return reuse(folder, file, loaded, sentences);
    }
    let mut sentence = loaded.damage.describe(&folder.log());
    let fresh = compact::write(folder, Some((&*file, &loaded.index)))?;
    match folder.set_aside() {
        Ok(copy) => sentence += &format!("; the damaged log has been kept as {}", copy.display()),
        Err(failure) => sentence += &format!("; the damaged log could not be kept: {failure}"),
    }
    sentences.push(sentence);
    install(folder, fresh, loaded.index)
}

/// Goes on with a log that is well but for a torn end. What is read counts as durable from here on, so it is synced, and so is
/// its name.
fn reuse(
    folder: &Folder,
    file: Arc<dyn StoredFile>,
    loaded: Loaded,
    sentences: &mut Vec<String>,
) -> Result<(View, Writer), RegistryError> {
    let (path, torn) = (&folder.log(), loaded.torn_bytes);
    if torn > 0 {
        let cut = file.cut(loaded.end);
        cut.map_err(error::io("truncate the registry", path))?;
        sentences.push(format!(
            "the last write to the registry {} was interrupted by a crash: its {torn} bytes were discarded",
            path.display()
        ));
    }
    let synced = file.sync();
    synced.map_err(error::io("sync the registry", path))?;
    // A run that ended while it put a new log in place left a name that is not on disk yet.
    sync_directory(folder)?;
    let writer = Writer {
        log: loaded.log,
        sequence: loaded.sequence,
        length: loaded.end,
        must_cut: false,
        is_suspect: false,
        compact_at: 0,
    };
    let view = View {
        file,
        index: loaded.index,
    };
    Ok((view, writer))
}

/// Makes a new log the log.
fn install(
    folder: &Folder,
    fresh: Fresh,
    mut index: Index,
) -> Result<(View, Writer), RegistryError> {
    rename(folder)?;
    sync_directory(folder)?;
    index.relocate(&fresh.moved);
    let writer = Writer::of(&fresh);
    let file = fresh.file;
    Ok((View { file, index }, writer))
}

fn rename(folder: &Folder) -> Result<(), RegistryError> {
    let renamed = folder.storage.rename(TMP, LOG);
    if renamed.is_err() {
        // As after a failed write: the next attempt removes it too.
        let _ = folder.storage.remove(TMP);
    }
    renamed.map_err(error::io("replace the registry", &folder.log()))
}

fn sync_directory(folder: &Folder) -> Result<(), RegistryError> {
    let synced = folder.storage.sync_folder("");
    synced.map_err(error::io("sync the data directory", &folder.directory))
}
