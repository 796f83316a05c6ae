//! Inputs, one file each.
//!
//! Adding one touches its own file and two lines here: its module and its place in [`SPECS`].

mod beats;
mod connections;
mod elasticsearch;
mod file;
mod forward;
mod generate;
mod http;
mod paths;
mod pipeline;
mod reading;
mod socket;
mod stdin;

use component::Spec;

pub use file::{FileEntries, read_ledger};

/// Every input, by name.
pub static SPECS: &[Spec] = &[
    beats::SPEC,
    elasticsearch::SPEC,
    file::SPEC,
    forward::SPEC,
    generate::SPEC,
    http::SPEC,
    pipeline::SPEC,
    stdin::SPEC,
    socket::SYSLOG,
    socket::TCP,
    socket::UDP,
    socket::UNIX,
];
