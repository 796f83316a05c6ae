//! Outputs, one file each.
//!
//! Adding one touches its own file, two lines here (its module, and its place by name in [`SPECS`]), and `tests/conformance.rs`.
//!
//! What several of them share: `format` (rows of a batch as bytes), `partition` (rows by where they go), `compression` and
//! `schema` (settings), `members` (members of JSON objects, made by templates), `times` (times as protocols want them), `answer` (what HTTP servers say), `hosts` and `failover` (which of several servers gets a request) and `sink` (bytes to a file descriptor, in one piece or not at all).

mod answer;
mod clickhouse;
mod compression;
mod discard;
mod elasticsearch;
mod failover;
mod file;
mod format;
mod hosts;
mod http;
mod loki;
mod members;
mod partition;
mod pipeline;
mod pretty;
mod schema;
mod sink;
mod splunk_hec;
mod stdout;
mod times;

#[cfg(test)]
mod testing;

/// Decoders of what servers answer, without connections: for the crate `fuzzkit` alone.
#[doc(hidden)]
pub mod probe {
    pub use crate::elasticsearch::probe::reply;
}

use component::Spec;

/// Every output, by name.
pub static SPECS: &[Spec] = &[
    clickhouse::SPEC,
    discard::SPEC,
    elasticsearch::SPEC,
    file::SPEC,
    http::SPEC,
    loki::SPEC,
    pipeline::SPEC,
    splunk_hec::SPEC,
    stdout::SPEC,
];
