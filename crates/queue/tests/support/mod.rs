//! What the queue's integration tests share.
#![allow(dead_code, clippy::print_stdout)] // Each test uses a part of it.

pub mod disk;
pub mod seeds;
