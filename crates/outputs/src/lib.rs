//! Outputs, one file each.
//!
//! Adding one touches its own file and two lines here: its module and its place in [`SPECS`].
//!
//! What several of them share: `format` (rows of a batch as bytes), `partition` (rows by where they go), `compression` (its
//! settings) and `sink` (bytes to a file descriptor, in one piece or not at all).

mod compression;
mod discard;
mod file;
mod format;
mod http;
mod partition;
mod pretty;
mod sink;
mod stdout;

#[cfg(test)]
mod testing;

use component::Spec;

/// Every output, by name.
pub static SPECS: &[Spec] = &[discard::SPEC, file::SPEC, http::SPEC, stdout::SPEC];
