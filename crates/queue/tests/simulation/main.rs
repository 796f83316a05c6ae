//! The queue's real code on a simulated disk: machines stop at any operation, disks lose what was not synced, fail, fill up
//! and flip bits. Everything follows from a seed.
//!
//! `SEEDS=10000 cargo test --release -p queue --test simulation` runs so many seeds of each scenario; `SEED=n` runs that one
//! alone. The seed of a scenario that fails is printed, and what it did.

#[path = "../support/mod.rs"]
mod support;

mod damage;
mod log;
mod queue;
