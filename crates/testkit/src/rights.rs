//! What tests need of the machine: rights, and tools that are not part of it everywhere.
//!
//! The gate (`.ci/run`) sets `CI=true`, runs as root and installs the tools: there a test that lacks something fails. A
//! developer's `./test` leaves such a test out and names it at the end, so that nobody takes it for passed.

use std::fs::OpenOptions;
use std::io::Write;
use std::thread;

use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};

/// Leaves the calling test out, which lacks something and has to return. `./test` lists it.
///
/// # Panics
/// Under `CI=true`, where no test may be left out.
pub fn leave_out(why: &str) {
    let is_gate = std::env::var("CI").is_ok_and(|value| !matches!(&*value, "" | "0" | "false"));
    assert!(!is_gate, "under CI every test has to run, and {why}");
    let current = thread::current();
    let line = format!("{}: {why}\n", current.name().unwrap_or("a test"));
    // Past the test runner, which hides what tests that pass have printed.
    let _ = write!(std::io::stderr().lock(), "LEFT OUT: {line}");
    if let Some(list) = std::env::var_os("MILLPOND_LEFT_OUT") {
        let opened = OpenOptions::new().append(true).create(true).open(list);
        let mut list = opened.expect("the list of tests that are left out");
        list.write_all(line.as_bytes()).expect("it is written");
    }
}

/// Does some work as somebody to whom permissions apply. Root is refused nothing, so that a thread of its own gives up root's
/// powers; threads that it starts have none either.
pub fn without_powers<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    let none = CapabilitySets {
        effective: CapabilitySet::empty(),
        permitted: CapabilitySet::empty(),
        inheritable: CapabilitySet::empty(),
    };
    let powerless = || {
        set_capabilities(None, none).expect("powers can always be given up");
        work()
    };
    thread::scope(|scope| match scope.spawn(powerless).join() {
        Ok(result) => result,
        Err(panic) => std::panic::resume_unwind(panic),
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::process::Command;

    use super::*;

    #[test]
    fn permissions_apply_without_powers() {
        let closed = tempfile::NamedTempFile::new().expect("a file");
        std::fs::set_permissions(closed.path(), PermissionsExt::from_mode(0o000))
            .expect("it is ours");
        let read = without_powers(|| std::fs::read(closed.path()));
        let error = read.expect_err("nobody may read it");
        assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied);
    }

    /// The test that the next one starts in a process of its own.
    #[test]
    fn left_out_where_it_is_told_to() {
        if std::env::var_os("MILLPOND_TEST_LEAVES_OUT").is_some() {
            leave_out("there is no such thing");
        }
    }

    #[test]
    fn what_is_left_out_fails_under_ci_and_is_listed_elsewhere() {
        let folder = tempfile::tempdir().expect("a folder");
        let list = folder.path().join("list");
        for (ci, passes) in [("true", false), ("1", false), ("false", true), ("", true)] {
            let mut command = Command::new(std::env::current_exe().expect("this test"));
            command
                .args(["--exact", "rights::tests::left_out_where_it_is_told_to"])
                .env("MILLPOND_TEST_LEAVES_OUT", "yes")
                .env("MILLPOND_LEFT_OUT", &list)
                .env("CI", ci);
            let output = command.output().expect("it runs");
            assert_eq!(output.status.success(), passes, "{ci}");
            let said = String::from_utf8_lossy(&output.stderr).contains("LEFT OUT");
            assert_eq!(said, passes, "{ci}");
        }
        let line =
            "rights::tests::left_out_where_it_is_told_to: there is no such thing\n".to_owned();
        let listed = std::fs::read_to_string(list).expect("it was written");
        assert_eq!(listed, line.repeat(2));
    }
}
