//! What the queue's integration tests share.
#![allow(dead_code, reason = "each test uses a part of it")]

pub mod batches;
pub mod blocks;
