//! Runs a scenario for many seeds, or for the one that failed.

#![allow(clippy::print_stdout, reason = "a failing seed is told")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use parking_lot::Mutex;

use super::SimDisk;

/// How many seeds a plain `cargo test` runs.
const SEEDS: u64 = 300;

/// How many failures are looked for.
const FAILURES_MAX: usize = 10;

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().expect("a number"))
}

/// Where a scenario shows its disk, so that what happened can be told.
#[derive(Debug, Clone, Default)]
pub struct Stage {
    tells: bool,
    disk: Arc<Mutex<Option<SimDisk>>>,
}

impl Stage {
    /// Whether what happens is told.
    pub fn tells(&self) -> bool {
        self.tells
    }

    /// Shows the disk that is in use from now on.
    pub fn show(&self, disk: &SimDisk) {
        if self.tells && disk.trace().is_empty() {
            disk.start_trace();
        }
        *self.disk.lock() = Some(disk.clone());
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        // The last one of its clones tells.
        if !self.tells || Arc::strong_count(&self.disk) > 1 {
            return;
        }
        let disk = self.disk.lock();
        for line in disk.iter().flat_map(SimDisk::trace) {
            println!("{line}");
        }
    }
}

/// Calls `scenario` with each seed. `SEEDS=n` sets how many there are and `FIRST_SEED=n` where they begin; `SEED=n` runs that
/// one alone and tells what happens.
///
/// # Panics
/// When seeds fail; the message names them.
pub fn for_each_seed(scenario: impl Fn(u64, &Stage)) {
    if let Some(seed) = number("SEED") {
        let tells = true;
        let disk = Arc::default();
        scenario(seed, &Stage { tells, disk });
        return;
    }
    let first = number("FIRST_SEED").unwrap_or(0);
    let mut failed = Vec::new();
    for seed in first..first + number("SEEDS").unwrap_or(SEEDS) {
        // What is left of a scenario that failed is not used again.
        let done = catch_unwind(AssertUnwindSafe(|| scenario(seed, &Stage::default())));
        if done.is_err() {
            println!("seed {seed} fails; SEED={seed} replays it");
            failed.push(seed);
        }
        if failed.len() == FAILURES_MAX {
            break;
        }
    }
    assert!(failed.is_empty(), "these seeds fail: {failed:?}");
}
