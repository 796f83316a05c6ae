//! Runs the target of the crate `fuzzkit` that the variable `FUZZ_TARGET` names.
//!
//! One program for all of them: each would link all of Millpond.
#![no_main]

use std::sync::OnceLock;

use fuzzkit::{TARGETS, Target};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    static TARGET: OnceLock<Target> = OnceLock::new();
    let target = TARGET.get_or_init(|| {
        let wanted = std::env::var("FUZZ_TARGET").unwrap_or_default();
        let found = TARGETS.iter().find(|(name, _)| *name == wanted);
        let names: Vec<_> = TARGETS.iter().map(|(name, _)| *name).collect();
        found
            .unwrap_or_else(|| panic!("FUZZ_TARGET is {wanted:?}, and not one of {names:?}"))
            .1
    });
    target(bytes);
});
