//! Outputs, one file each.
//!
//! Adding one touches its own file, two lines here (its module, and its place by name in [`SPECS`]), and `tests/conformance.rs`.
//!
//! What several of them share: `format` (rows of a batch as bytes), `partition` (rows by where they go), `compression` and
//! `schema` (settings), `answer` (what HTTP servers say), `hosts` (which of several servers gets a request) and `sink` (bytes to a file descriptor, in one piece or not at all).

mod answer;
mod compression;
mod discard;
mod elasticsearch;
mod exchange;
mod file;
mod format;
mod forward;
mod hosts;
mod http;
mod logstash;
mod otlp;
mod partition;
mod pipeline;
mod pretty;
mod schema;
mod sink;
mod stdout;

#[cfg(test)]
mod testing;

/// Decoders of what servers answer, and writers, without connections: for the crate `fuzzkit` alone.
#[doc(hidden)]
pub mod probe {
    pub use crate::elasticsearch::probe::reply;
    pub use crate::otlp::probe::otlp;
}

use component::Spec;

/// Every output, by name.
pub static SPECS: &[Spec] = &[
    discard::SPEC,
    elasticsearch::SPEC,
    file::SPEC,
    forward::SPEC,
    http::SPEC,
    logstash::SPEC,
    otlp::SPEC,
    pipeline::SPEC,
    stdout::SPEC,
];
