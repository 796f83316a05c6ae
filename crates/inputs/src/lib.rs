//! Inputs, one file each.
//!
//! Adding one touches its own file and two lines here: its module and its place in [`SPECS`].

mod file;
mod paths;
mod reading;

use component::Spec;

/// Every input, by name.
pub static SPECS: &[Spec] = &[file::SPEC];
