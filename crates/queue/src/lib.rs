//! Queues between inputs and workers.
//!
//! A queue is a log with one cursor for each output. Batches get a sequence number when they come in, leave to workers in
//! sequence, and their room is given back, and their receipts resolve, when every output's cursor has passed.

pub mod cursor;
pub mod disk;
mod error;
pub mod inspect;
pub mod log;
mod memory;
pub mod pages;
mod settings;
pub mod storage;

pub use error::QueueError;
pub use memory::{Entry, Inlet, Limits, MemoryQueue, Ticket};
pub use settings::{DiskSettings, Durability, NewOutput, WhenFull};
