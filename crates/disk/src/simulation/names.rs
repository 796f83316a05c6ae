//! The names of a simulated disk: those that programs see, those on disk, and the changes between.

use std::collections::BTreeMap;

use fastrand::Rng;

use super::content::{happens, survival};

type Map = BTreeMap<String, u64>;

/// Names and the numbers of their files.
#[derive(Debug, Clone, Default)]
pub struct Names {
    live: Map,
    durable: Map,
    /// Changes that may be undone, in the order in which they were made.
    pending: Vec<Change>,
}

#[derive(Debug, Clone)]
enum Change {
    Made(String, u64),
    Renamed { from: String, to: String, file: u64 },
    Removed(String, u64),
}

fn folder_of(name: &str) -> &str {
    name.rsplit_once('/').map_or("", |(folder, _)| folder)
}

impl Change {
    fn apply(&self, names: &mut Map) {
        match self {
            Self::Made(name, file) => {
                names.insert(name.clone(), *file);
            }
            Self::Renamed { from, to, file } => {
                Self::Removed(from.clone(), *file).apply(names);
                names.insert(to.clone(), *file);
            }
            Self::Removed(name, file) => {
                if names.get(name) == Some(file) {
                    names.remove(name);
                }
            }
        }
    }

    /// Whether syncing that folder makes it durable. File systems write a rename between two folders as one change.
    fn is_of(&self, folder: &str) -> bool {
        match self {
            Self::Made(name, _) | Self::Removed(name, _) => folder_of(name) == folder,
            Self::Renamed { from, to, .. } => folder_of(from) == folder || folder_of(to) == folder,
        }
    }
}

impl Names {
    pub fn get(&self, name: &str) -> Option<u64> {
        self.live.get(name).copied()
    }

    /// The names of a folder, without the folder's.
    pub fn of_folder<'a>(&'a self, folder: &'a str) -> impl Iterator<Item = (&'a str, u64)> {
        let found = self.live.iter();
        let found = found.filter(move |(name, _)| folder_of(name) == folder);
        found.map(|(name, file)| (name.rsplit('/').next().unwrap_or(name), *file))
    }

    pub fn all(&self) -> impl Iterator<Item = (&str, u64)> {
        self.live.iter().map(|(name, file)| (name.as_str(), *file))
    }

    fn change(&mut self, change: Change) {
        change.apply(&mut self.live);
        self.pending.push(change);
    }

    pub fn make(&mut self, name: &str, file: u64) {
        self.change(Change::Made(name.to_owned(), file));
    }

    pub fn rename(&mut self, from: &str, to: &str, file: u64) {
        self.change(Change::Renamed {
            from: from.to_owned(),
            to: to.to_owned(),
            file,
        });
    }

    pub fn remove(&mut self, name: &str, file: u64) {
        self.change(Change::Removed(name.to_owned(), file));
    }

    pub fn sync(&mut self, folder: &str) {
        let pending = std::mem::take(&mut self.pending);
        for change in pending {
            if change.is_of(folder) {
                change.apply(&mut self.durable);
            } else {
                self.pending.push(change);
            }
        }
    }

    /// The names that are left after a crash: any subset of the changes is undone.
    pub fn crash(&self, random: &mut Rng) -> Self {
        let survival = survival(random);
        let mut left = self.durable.clone();
        for change in &self.pending {
            if happens(random, survival) {
                change.apply(&mut left);
            }
        }
        Self {
            live: left.clone(),
            durable: left,
            pending: Vec::new(),
        }
    }

    /// Whether a crash may still bring that file back.
    pub fn may_need(&self, file: u64) -> bool {
        let is_named = |names: &Map| names.values().any(|found| *found == file);
        let is_pending = self.pending.iter().any(|change| match change {
            Change::Made(_, found) | Change::Removed(_, found) => *found == file,
            Change::Renamed { file: found, .. } => *found == file,
        });
        is_named(&self.live) || is_named(&self.durable) || is_pending
    }
}
