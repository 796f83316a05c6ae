//! The input `file` on logs that are written, renamed, copied, truncated, compressed and deleted while it reads them.
//!
//! Each scenario runs in several modes: followed by inotify and by polling, in a new run after each step, and read once
//! after each step. The scenarios of a table run side by side, because most of their time is waiting.
//! `SCENARIO=name cargo test -p inputs --test follow` runs those whose name contains this.

#[path = "../common/mod.rs"]
mod common;
mod world;

mod appending;
mod compressed;
mod copying;
mod identity;
mod likeness;
mod many;
mod receipts;
mod rotating;
mod rules;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use world::{Mode, World};

/// Name, modes, and what happens.
pub type Scenario = (&'static str, &'static [Mode], Act);

/// What happens in a scenario.
type Act = fn(&mut World);

/// Scenarios at a time: they wait more than they work.
const SIDE_BY_SIDE: usize = 8;

/// Runs a table of scenarios in all of their modes, and fails with the names of those that failed.
pub fn run(table: &[Scenario]) {
    let wanted = std::env::var("SCENARIO").unwrap_or_default();
    let mut runs: Vec<(&str, Mode, Act)> = Vec::new();
    for (name, modes, act) in table {
        if name.contains(&wanted) {
            runs.extend(modes.iter().map(|mode| (*name, *mode, *act)));
        }
    }
    let (next, failed) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..SIDE_BY_SIDE.min(runs.len()) {
            scope.spawn(|| {
                while let Some((name, mode, act)) = runs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let outcome = catch_unwind(AssertUnwindSafe(|| {
                        let mut world = World::new(*mode);
                        act(&mut world);
                        world.finish();
                    }));
                    if let Err(panic) = outcome {
                        let text = panic.downcast_ref::<String>().cloned();
                        let text =
                            text.or(panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
                        let text = text.unwrap_or_default();
                        let told = format!("{name} ({mode:?}): {text}");
                        failed.lock().push(told);
                    }
                }
            });
        }
    });
    let failed = failed.into_inner();
    assert!(failed.is_empty(), "\n{}", failed.join("\n\n"));
}
