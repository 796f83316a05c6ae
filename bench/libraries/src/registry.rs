//! The registry against redb: what inputs remember of many files.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use redb::{Database, Durability, ReadableDatabase, ReadableTable, TableDefinition};
use registry::{Change, Key, Registry};

use crate::process::Used;

const TABLE: TableDefinition<u128, &[u8]> = TableDefinition::new("files");

/// What the registry keeps of a file has about so many bytes.
const VALUE_BYTES: usize = 160;

/// Files that changed since the last save.
const CHANGED: u64 = 100;

/// Who keeps what is known of files.
trait Store: Sized {
    fn open(folder: &Path) -> Self;
    /// Gives these files new values. With `durable` they survive a power failure. Without it they survive a kill of the process in the
    /// registry, and nothing in redb.
    fn save(&self, files: impl Iterator<Item = u64>, round: u64, durable: bool);
    /// Reads everything; how many files there are.
    fn load(&self) -> u64;
}

fn id(file: u64) -> u128 {
    // As spread as a hash.
    u128::from(file).wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835)
}

fn value(file: u64, round: u64) -> [u8; VALUE_BYTES] {
    let mut value = [b'a'; VALUE_BYTES];
    value[..8].copy_from_slice(&file.to_le_bytes());
    value[8..16].copy_from_slice(&round.to_le_bytes());
    value
}

struct Ours(Registry);

impl Store for Ours {
    fn open(folder: &Path) -> Self {
        let (registry, sentences) = Registry::open(folder).expect("a folder");
        assert!(sentences.is_empty(), "{sentences:?}");
        Self(registry)
    }

    fn save(&self, files: impl Iterator<Item = u64>, round: u64, durable: bool) {
        let change = |file| {
            let key = Key {
                kind: 1,
                id: id(file),
            };
            Change::Put(key, value(file, round).to_vec())
        };
        let changes: Vec<_> = files.map(change).collect();
        self.0.commit(&changes, durable).expect("a disk");
    }

    fn load(&self) -> u64 {
        let mut files = 0;
        let mut each = |_, value: &[u8]| files += u64::from(value.len() == VALUE_BYTES);
        self.0.for_each(1, &mut each).expect("a log");
        files
    }
}

struct Redb(Database);

impl Store for Redb {
    fn open(folder: &Path) -> Self {
        Self(Database::create(folder.join("redb")).expect("a folder"))
    }

    fn save(&self, files: impl Iterator<Item = u64>, round: u64, durable: bool) {
        let mut transaction = self.0.begin_write().expect("a transaction");
        let durability = match durable {
            true => Durability::Immediate,
            false => Durability::None,
        };
        transaction
            .set_durability(durability)
            .expect("a durability");
        {
            let mut table = transaction.open_table(TABLE).expect("a table");
            for file in files {
                let old = table.insert(id(file), &value(file, round)[..]);
                drop(old.expect("a disk"));
            }
        }
        transaction.commit().expect("a disk");
    }

    fn load(&self) -> u64 {
        let transaction = self.0.begin_read().expect("a transaction");
        let table = transaction.open_table(TABLE).expect("a table");
        let entries = table.iter().expect("a table");
        let values = entries.map(|entry| entry.expect("an entry").1);
        values
            .filter(|value| value.value().len() == VALUE_BYTES)
            .count() as u64
    }
}

/// Runs every step of both, each in a process of its own.
pub fn compare(files: u64) {
    let folder = std::env::temp_dir().join(format!("libraries-{}", std::process::id()));
    for store in ["registry", "redb"] {
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir(&folder).expect("a folder for temporary files");
        for step in ["fill", "load", "saves", "durable"] {
            let program = std::env::current_exe().expect("this program");
            let mut child = Command::new(program);
            child.args(["measure", "registry", store, step]);
            child.arg(&folder).arg(files.to_string());
            assert!(child.status().expect("this program").success());
        }
        let bytes = |entry: std::io::Result<fs::DirEntry>| {
            entry
                .and_then(|entry| entry.metadata())
                .map_or(0, |data| data.len())
        };
        let size: u64 = fs::read_dir(&folder).expect("the folder").map(bytes).sum();
        println!("{store:9} {:8} {:6.0} MB on disk", "", size as f64 / 1e6);
    }
    fs::remove_dir_all(&folder).expect("the folder");
}

/// Takes one step and prints what it cost.
pub fn measure(step: &[&str]) {
    let [store, step, folder, files] = step else {
        panic!("registry or redb, a step, a folder, a number of files");
    };
    let files = files.parse().expect("a number of files");
    let begin = Instant::now();
    match *store {
        "registry" => take::<Ours>(step, Path::new(folder), files),
        _ => take::<Redb>(step, Path::new(folder), files),
    }
    let wall = begin.elapsed();
    let used = Used::now();
    println!(
        "{store:9} {step:8} {:6} ms CPU, {:6} ms wall, {:6.1} MB written, {:4} MiB peak",
        used.cpu_ms,
        wall.as_millis(),
        used.written as f64 / 1e6,
        used.peak_kib >> 10,
    );
}

fn take<S: Store>(step: &str, folder: &Path, files: u64) {
    let store = S::open(folder);
    match step {
        // As a first look at many files: a thousand at a time, and all safe at the end.
        "fill" => {
            for first in (0..files).step_by(1000) {
                let last = (first + 1000).min(files);
                store.save(first..last, 0, last == files);
            }
        }
        "load" => assert_eq!(store.load(), files),
        // As four times a second, while some files grow. A thousand saves.
        "saves" | "durable" => {
            for round in 1..=1000 {
                let changed = (0..CHANGED).map(|file| (round * 7919 + file * 5003) % files);
                store.save(changed, round, step == "durable");
            }
        }
        step => panic!("no such step: {step}"),
    }
}
