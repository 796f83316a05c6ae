//! What the queue's integration tests share.
#![allow(dead_code)] // Each test uses a part of it.

pub mod disk;
