//! What the queue's integration tests share.
#![allow(dead_code, reason = "each test uses a part of it")]
#![allow(clippy::print_stdout, reason = "a failing seed is told")]

pub mod batches;
pub mod blocks;
pub mod disk;
pub mod seeds;
