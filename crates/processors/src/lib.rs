//! Processors, one file each.
//!
//! Adding one touches its own file and two lines here: its module and its place in [`SPECS`].

mod date;
mod dissect;
mod drop_;
mod head;
mod json;
mod keyed;
mod kv;
mod literal;
mod object_cache;
mod remove;
mod rename;
mod sample;
#[cfg(test)]
mod testing;
mod text;
mod user_agent;

use component::Spec;

/// Every processor, by name.
pub static SPECS: &[Spec] = &[
    date::SPEC,
    dissect::SPEC,
    drop_::SPEC,
    head::SPEC,
    json::SPEC,
    kv::SPEC,
    remove::SPEC,
    rename::SPEC,
    sample::SPEC,
    user_agent::SPEC,
];
