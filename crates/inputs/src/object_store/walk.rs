//! The objects of a directory: files at any depth, in the order of their paths as stores have it.
//!
//! Only the names of the folders on the way to the next file are held. Links to files count as files, links to folders are not followed. Names that
//! begin with a dot are left out: those of the output `object_store` are files that are not complete.

use std::collections::VecDeque;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::listed::{Listed, StoreError, version_of};
use crate::paths::meta::{Kind, Meta};
use crate::reading::describe::describe;

/// A directory that is being listed.
pub(super) struct Walk {
    root: PathBuf,
    after: Option<String>,
    /// What is left of each folder on the way, the root first.
    folders: Vec<VecDeque<WalkEntry>>,
}

struct WalkEntry {
    /// The path below the root; that of a folder ends with a slash.
    key: String,
    is_folder: bool,
}

impl Walk {
    /// Lists a directory, the objects behind the key `after`.
    ///
    /// # Errors
    /// It cannot be listed.
    pub(super) fn new(root: PathBuf, after: Option<String>) -> Result<Self, StoreError> {
        let entries = entries(&root, "").map_err(|error| {
            let text = format!("{}: {}", root.display(), describe(&error));
            match error.kind() {
                io::ErrorKind::NotFound => {
                    StoreError::Refused(format!("{}: no such directory", root.display()))
                }
                io::ErrorKind::PermissionDenied | io::ErrorKind::NotADirectory => {
                    StoreError::Refused(text)
                }
                _ => StoreError::Failed(text),
            }
        })?;
        Ok(Self {
            root,
            after,
            folders: vec![entries],
        })
    }

    /// The next file; none at the end.
    pub(super) fn next(&mut self) -> Option<Result<Listed, StoreError>> {
        loop {
            let Some(entry) = self.folders.last_mut()?.pop_front() else {
                self.folders.pop();
                continue;
            };
            if self.is_passed(&entry) {
                continue;
            }
            if entry.is_folder {
                match entries(&self.root, &entry.key) {
                    Ok(entries) => self.folders.push(entries),
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    Err(error) => {
                        let path = self.root.join(&entry.key);
                        let text = format!("{}: {}", path.display(), describe(&error));
                        return Some(Err(StoreError::LeftOut(text)));
                    }
                }
                continue;
            }
            // One that was deleted meanwhile is no object.
            if let Ok(meta) = Meta::of(&self.root.join(&entry.key))
                && meta.kind == Kind::File
            {
                return Some(Ok(Listed {
                    version: version_of(&meta),
                    key: entry.key,
                    size: meta.size,
                    modified_ns: meta.modified_ns,
                    has_etag: false,
                }));
            }
        }
    }

    /// Whether it lies before what is asked for, with everything in it.
    fn is_passed(&self, entry: &WalkEntry) -> bool {
        let Some(after) = self.after.as_deref() else {
            return false;
        };
        match entry.is_folder {
            true => *entry.key < *after && !after.starts_with(&entry.key),
            false => *entry.key <= *after,
        }
    }
}

/// What is in a folder, in order: a folder stands where its files do.
fn entries(root: &Path, folder: &str) -> io::Result<VecDeque<WalkEntry>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(root.join(folder))? {
        let entry = entry?;
        let kind = entry.file_type()?;
        // A name that is not UTF-8 cannot be that of an object.
        let Ok(name) = entry.file_name().into_string() else {
            continue;
        };
        if name.starts_with('.') {
            continue;
        }
        let slash = if kind.is_dir() { "/" } else { "" };
        found.push(WalkEntry {
            key: format!("{folder}{name}{slash}"),
            is_folder: kind.is_dir(),
        });
    }
    found.sort_by(|one, other| one.key.cmp(&other.key));
    Ok(found.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(root: &Path, after: Option<&str>) -> Vec<String> {
        let mut walk = Walk::new(root.to_owned(), after.map(str::to_owned)).expect("a folder");
        let mut keys = Vec::new();
        while let Some(next) = walk.next() {
            keys.push(next.expect("a file").key);
        }
        keys
    }

    #[test]
    fn files_come_in_the_order_of_their_paths() {
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path();
        for name in ["b/x", "a/2", "a/1/z", "a.b/c", "c", "b/.hidden", ".d/x"] {
            let path = root.join(name);
            fs::create_dir_all(path.parent().expect("a parent")).expect("created");
            fs::write(path, "x").expect("written");
        }
        let all = ["a.b/c", "a/1/z", "a/2", "b/x", "c"];
        assert_eq!(keys(root, None), all);
        for (index, key) in all.iter().enumerate() {
            assert_eq!(keys(root, Some(key)), all[index + 1..], "{key}");
        }
        assert_eq!(keys(root, Some("a/")), all[1..]);
        assert_eq!(keys(root, Some("a/1")), all[1..]);
        assert_eq!(keys(root, Some("b")), ["b/x", "c"]);
        assert!(Walk::new(root.join("none"), None).is_err());
    }
}
