//! The registry on a disk that loses what was not synced and fails at any operation: commits fail whole, what was durable is
//! there, and whatever is on disk opens. `SEEDS=n` and `SEED=n` as for the queue.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use common::{Map, entries, key, put};
use disk::simulation::seeds::{Stage, for_each_seed};
use disk::simulation::{Kind, SimDisk};
use fastrand::Rng;
use registry::{Change, Key, Registry, RegistryError};

const DIRECTORY: &str = "/data";

/// What changes the disk or asks it.
const KINDS: [Kind; 11] = [
    Kind::List,
    Kind::Open,
    Kind::Create,
    Kind::Link,
    Kind::Rename,
    Kind::Remove,
    Kind::SyncFolder,
    Kind::Read,
    Kind::Write,
    Kind::Sync,
    Kind::Cut,
];

fn open(disk: &SimDisk) -> Result<(Registry, Vec<String>), RegistryError> {
    Registry::open_on(Path::new(DIRECTORY), Arc::new(disk.clone()))
}

#[test]
fn commits_are_whole_and_durable() {
    for_each_seed(|seed, stage| Scene::new(seed, stage).live());
}

/// What the entries may be.
#[derive(Default)]
struct Model {
    /// What whoever reads sees.
    now: Map,
    /// What a power cut may leave: the values of keys since the last durable commit, of commits that failed as well.
    since: BTreeMap<u128, BTreeSet<Option<Vec<u8>>>>,
    /// Keys that changed in this run.
    changed: BTreeSet<u128>,
    /// An earlier run ended after a failed sync, so nobody knows whether what it wrote is on disk.
    is_vague: bool,
}

impl Model {
    fn value(&self, id: u128) -> Option<Vec<u8>> {
        self.now.get(&key(id)).cloned()
    }

    fn may_be(&mut self, id: u128, value: Option<Vec<u8>>) {
        let before = self.value(id);
        let values = self.since.entry(id);
        let values = values.or_insert_with(|| BTreeSet::from([before]));
        values.insert(value);
    }

    fn note(&mut self, changes: &[Change], succeeded: bool) {
        for change in changes {
            let (id, value) = match change {
                Change::Put(key, value) => (key.id, Some(value.clone())),
                Change::Delete(key) => (key.id, None),
            };
            self.may_be(id, value);
            self.changed.insert(id);
        }
        if succeeded {
            common::apply(&mut self.now, changes);
        }
    }

    fn is_durable(&mut self) {
        if self.is_vague {
            let changed = &self.changed;
            self.since.retain(|id, _| !changed.contains(id));
        } else {
            self.since.clear();
        }
    }

    /// What was found after a power cut.
    fn take(&mut self, found: Map) {
        let ids = found.keys().chain(self.now.keys()).map(|key| key.id);
        for id in ids.collect::<BTreeSet<_>>() {
            let value = found.get(&key(id)).cloned();
            match self.since.get(&id) {
                Some(values) => assert!(values.contains(&value), "{id} is {:?}", size(&value)),
                None => assert_eq!(size(&value), size(&self.value(id)), "{id} was durable"),
            }
        }
        self.now = found;
    }
}

fn size(value: &Option<Vec<u8>>) -> Option<(usize, Option<u8>)> {
    value
        .as_ref()
        .map(|value| (value.len(), value.first().copied()))
}

struct Scene {
    stage: Stage,
    random: Rng,
    disk: SimDisk,
    model: Model,
}

impl Scene {
    fn new(seed: u64, stage: &Stage) -> Self {
        let mut random = Rng::with_seed(seed);
        let disk = SimDisk::new(random.u64(..));
        stage.show(&disk);
        Self {
            stage: stage.clone(),
            random,
            disk,
            model: Model::default(),
        }
    }

    fn live(mut self) {
        for _ in 0..self.random.usize(2..6) {
            let is_healthy = self.random.u8(..4) == 0;
            if !is_healthy {
                self.plan_faults();
            }
            let syncs_failed = self.run();
            self.end(syncs_failed);
        }
        let (registry, _) = open(&self.disk).unwrap();
        assert_eq!(entries(&registry), self.model.now);
    }

    fn plan_faults(&mut self) {
        for _ in 0..self.random.usize(..4) {
            let kind = KINDS[self.random.usize(..KINDS.len())];
            self.disk.fail(kind, self.random.u64(..30));
        }
        if self.random.bool() {
            self.disk.stop_after(Some(self.random.u64(..120)));
        }
    }

    /// A run of the program; whether a log whose sync failed may be left.
    fn run(&mut self) -> bool {
        let opened = open(&self.disk);
        let Ok((registry, _)) = opened else {
            // What a start that failed had synced is not known to be on disk.
            return true;
        };
        let mut failed = false;
        for _ in 0..self.random.usize(1..30) {
            let durable = self.random.u8(..4) == 0;
            let changes = self.changes(durable);
            let done = registry.commit(&changes, durable);
            self.model.note(&changes, done.is_ok());
            if durable {
                failed = done.is_err();
            }
            if durable && !failed {
                self.model.is_durable();
            }
            if self.random.u8(..8) == 0 && self.disk.is_well() {
                assert_eq!(entries(&registry), self.model.now, "whoever reads sees it");
            }
        }
        failed
    }

    fn changes(&mut self, durable: bool) -> Vec<Change> {
        let count = self.random.usize(usize::from(!durable)..5);
        let changes = (0..count).map(|_| self.change());
        changes.collect()
    }

    fn change(&mut self) -> Change {
        let id = self.random.u128(..6);
        let length = match self.random.u8(..8) {
            0 => self.random.usize(..300_000),
            1 => self.random.usize(..9000),
            _ => self.random.usize(..60),
        };
        match self.random.u8(..6) {
            0 => Change::Delete(Key { kind: 1, id }),
            _ => put(id, vec![self.random.u8(..); length]),
        }
    }

    /// The run ends, and the next one finds what it may find.
    fn end(&mut self, syncs_failed: bool) {
        let is_power_cut = self.random.bool();
        let nothing_failed = self.disk.failures() == 0 && !self.disk.is_down();
        self.disk = match is_power_cut {
            true => self.disk.crash(),
            false => self.disk.restart(),
        };
        self.stage.show(&self.disk);
        let (registry, said) = open(&self.disk).expect("it always opens on a disk that is well");
        let found = entries(&registry);
        drop(registry);
        self.disk = self.disk.restart();
        self.stage.show(&self.disk);
        let is_damage = said.iter().any(|said| said.contains("was damaged"));
        assert!(is_power_cut || !is_damage, "{said:?}");
        if nothing_failed && !is_power_cut {
            assert_eq!(found, self.model.now, "what was written is there");
        }
        self.model.take(found);
        // What was found was synced; where a sync had failed before, that says nothing.
        self.model.is_vague = !is_power_cut && (syncs_failed || self.model.is_vague);
        self.model.changed.clear();
        if !self.model.is_vague {
            self.model.since.clear();
        }
    }
}
