//! Inputs, one file each.
//!
//! Adding one touches its own file, two lines here (its module, and its place by name in [`SPECS`]), and `tests/conformance.rs`.

mod beats;
mod connections;
mod elasticsearch;
mod error;
mod file;
mod forward;
mod generate;
mod http;
mod journald;
mod kafka;
mod loki;
mod messages;
mod nats;
mod object_store;
mod otlp;
mod own;
mod paths;
mod pipeline;
mod profile;
mod reading;
mod redis;
mod socket;
mod splunk_hec;
mod stdin;

/// Decoders of what clients send, without connections: for the crate `fuzzkit` alone.
#[doc(hidden)]
pub mod probe {
    pub use crate::beats::probe::beats;
    pub use crate::connections::batcher::probe::Decoded;
    pub use crate::connections::inflate::probe::{PROBED, inflated};
    pub use crate::elasticsearch::probe::{bulk, route};
    pub use crate::forward::probe::{forward, handshake};
    pub use crate::journald::probe::journal;
    pub use crate::loki::probe::loki;
    pub use crate::otlp::probe::{Sending, otlp, otlp_json};
    pub use crate::splunk_hec::probe::splunk_hec;
}

use component::Spec;

pub use file::{FileEntries, Fixture, fixture, read_ledger};
pub use kafka::queue_input;

/// Every input, by name.
pub static SPECS: &[Spec] = &[
    beats::SPEC,
    own::letters::SPEC,
    elasticsearch::SPEC,
    file::SPEC,
    forward::SPEC,
    generate::SPEC,
    http::SPEC,
    own::log::SPEC,
    journald::SPEC,
    kafka::SPEC,
    loki::SPEC,
    own::metrics::SPEC,
    nats::SPEC,
    object_store::SPEC,
    otlp::SPEC,
    pipeline::SPEC,
    profile::SPEC,
    redis::SPEC,
    splunk_hec::SPEC,
    stdin::SPEC,
    socket::specs::SYSLOG,
    socket::specs::TCP,
    socket::specs::UDP,
    socket::specs::UNIX,
];

/// Those that this build is without: their settings are known, and building one is an error that says how to get it.
pub static ABSENT: &[&str] = if cfg!(feature = "kafka") {
    &[]
} else {
    &["kafka"]
};
