//! The programs that are profiled.

use std::path::{Path, PathBuf};

/// The source of one. Its place is said at run time: a test that was built in another clone may be run here.
pub fn program(name: &str) -> PathBuf {
    let package = std::env::var_os("CARGO_MANIFEST_DIR").expect("run by Cargo");
    Path::new(&package).join("tests/programs").join(name)
}
