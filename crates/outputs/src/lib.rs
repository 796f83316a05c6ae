//! Outputs, one file each.
//!
//! Adding one touches its own file, two lines here (its module, and its place by name in [`SPECS`]), and `tests/conformance.rs`.
//!
//! What several of them share:
//!
//! | module | holds |
//! | --- | --- |
//! | `codec` | events as bytes |
//! | `partition` | rows by where they go |
//! | `members`, `times` | members of JSON objects, made by templates; times as protocols want them |
//! | `compression`, `schema` | settings |
//! | `compressor` | bytes compressed in members |
//! | `hosts`, `failover` | which of several servers gets a request |
//! | `answer` | what HTTP servers say |
//! | `exchange` | connections to servers that acknowledge |
//! | `socket` | connections to servers that do not |
//! | `sink` | bytes to a file descriptor, in one piece or not at all |

mod answer;
mod clickhouse;
mod codec;
mod compression;
mod compressor;
mod discard;
mod elasticsearch;
mod exchange;
mod failover;
mod file;
mod forward;
mod hosts;
mod http;
mod kafka;
mod logstash;
mod loki;
mod members;
mod nats;
mod object_store;
mod otlp;
mod partition;
mod pipeline;
mod pretty;
mod redis;
mod schema;
mod sink;
mod socket;
mod splunk_hec;
mod stdout;
mod syslog;
mod tcp;
mod times;
mod udp;
mod unix;

#[cfg(test)]
mod testing;

/// Decoders of what servers answer, and writers, without connections: for the crate `fuzzkit` alone.
#[doc(hidden)]
pub mod probe {
    pub use crate::elasticsearch::probe::reply;
    pub use crate::otlp::probe::otlp;
}

use component::Spec;

pub use kafka::queue_output;

/// Every output, by name.
pub static SPECS: &[Spec] = &[
    clickhouse::SPEC,
    discard::SPEC,
    elasticsearch::SPEC,
    file::SPEC,
    forward::SPEC,
    http::SPEC,
    kafka::SPEC,
    logstash::SPEC,
    loki::SPEC,
    nats::SPEC,
    object_store::SPEC,
    otlp::SPEC,
    pipeline::SPEC,
    redis::SPEC,
    splunk_hec::SPEC,
    stdout::SPEC,
    syslog::SPEC,
    tcp::SPEC,
    udp::SPEC,
    unix::SPEC,
];

/// Those that this build is without: their settings are known, and building one is an error that says how to get it.
pub static ABSENT: &[&str] = if cfg!(feature = "kafka") {
    &[]
} else {
    &["kafka"]
};
