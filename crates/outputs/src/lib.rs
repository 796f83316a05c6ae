//! Outputs, one file each.
//!
//! Adding one touches its own file, two lines here (its module, and its place by name in [`SPECS`]), and `tests/conformance.rs`.
//!
//! What several of them share: `codec` (events as bytes), `partition` (rows by where they go), `compression` and
//! `schema` (settings), `answer` (what HTTP servers say), `hosts` (which of several servers gets a request), `exchange`
//! (connections to servers that acknowledge) and `sink` (bytes to a
//! file descriptor, in one piece or not at all).

mod answer;
mod codec;
mod compression;
mod discard;
mod elasticsearch;
mod exchange;
mod file;
mod forward;
mod hosts;
mod http;
mod logstash;
mod partition;
mod pipeline;
mod pretty;
mod schema;
mod sink;
mod socket;
mod stdout;
mod syslog;
mod tcp;
mod udp;
mod unix;

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
    discard::SPEC,
    elasticsearch::SPEC,
    file::SPEC,
    forward::SPEC,
    http::SPEC,
    logstash::SPEC,
    pipeline::SPEC,
    stdout::SPEC,
    syslog::SPEC,
    tcp::SPEC,
    udp::SPEC,
    unix::SPEC,
];
