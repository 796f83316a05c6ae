//! Queues between inputs and workers.
//!
//! A queue is a log with one cursor for each output. Batches get a sequence number when they come in, leave to workers in
//! sequence, and their room is given back, and their receipts resolve, when every output's cursor has passed.

mod budget;
pub mod cursor;
mod engine;
mod error;
pub mod inspect;
pub mod letters;
pub mod log;
mod settings;
mod snapshot;
mod spans;
mod streams;
mod synced;

pub use budget::DiskBudget;
pub use engine::{
    AHEAD_MAX, Bell, Clock, Depth, DiskOptions, Entry, Held, Inlet, Joined, LaneTurn, Next, Offer,
    Queue, QueuePhase, Refused, Taken, Ticket, was_dropped,
};
pub use error::QueueError;
pub use settings::{
    DISK_SIZE_MIN, DiskSettings, Durability, Limits, MemoryQueueSettings, Mode, NewOutput,
    Overflow, QueueSettings, WhenFull, check_file_name,
};
pub use snapshot::ProcessorState;
