//! The files of the last scan, found by path, and which of them were written to.

use std::borrow::Borrow;
use std::cell::Cell;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::hash::{Hash, Hasher};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

/// The files of the last scan.
#[derive(Default)]
pub(super) struct Known {
    /// With whether it is in `written`.
    files: HashMap<Key, Cell<bool>>,
    written: Vec<Arc<Path>>,
    /// The path that is looked up.
    path: Vec<u8>,
}

/// A path, compared by its bytes: comparing it by its names costs four times as much.
struct Key(Arc<Path>);

impl Borrow<[u8]> for Key {
    fn borrow(&self) -> &[u8] {
        self.0.as_os_str().as_bytes()
    }
}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Borrow::<[u8]>::borrow(self).hash(state);
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.0.as_os_str() == other.0.as_os_str()
    }
}

impl Eq for Key {}

impl Known {
    pub(super) fn with_capacity(files: usize) -> Self {
        Self {
            files: HashMap::with_capacity(files),
            ..Self::default()
        }
    }

    /// Adds a file; false if it is there already.
    pub(super) fn add(&mut self, path: &Arc<Path>) -> bool {
        let key = Key(path.clone());
        self.files.insert(key, Cell::new(false)).is_none()
    }

    /// Notes that a file was written to; false if it is not known.
    pub(super) fn mark(&mut self, path: &Path) -> bool {
        self.path.clear();
        self.path.extend_from_slice(path.as_os_str().as_bytes());
        self.mark_path()
    }

    /// Notes that the file of this name in the folder was written to; false if it is not known.
    pub(super) fn mark_in(&mut self, folder: &Path, name: &OsStr) -> bool {
        self.path.clear();
        self.path.extend_from_slice(folder.as_os_str().as_bytes());
        if self.path.last() != Some(&b'/') {
            self.path.push(b'/');
        }
        self.path.extend_from_slice(name.as_bytes());
        self.mark_path()
    }

    fn mark_path(&mut self) -> bool {
        let Some((key, is_written)) = self.files.get_key_value(self.path.as_slice()) else {
            return false;
        };
        if !is_written.replace(true) {
            self.written.push(key.0.clone());
        }
        true
    }

    /// The files that were written to since the last call.
    pub(super) fn take_written(&mut self) -> Vec<Arc<Path>> {
        let written = std::mem::take(&mut self.written);
        for path in &written {
            if let Some(is_written) = self.files.get(path.as_os_str().as_bytes()) {
                is_written.set(false);
            }
        }
        written
    }
}
