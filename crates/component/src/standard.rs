//! What is wrong with standard input and standard output.
//!
//! Where one of them is closed, the standard library opens `/dev/null` in its place before `main` begins, so that no other
//! file gets its number. What is written there is then lost without an error, and `/dev/null` may as well be what somebody
//! wanted. So this module looks before that: in a function that the system calls while it loads the program. That takes
//! `unsafe`, which only three modules of the workspace may hold.

#![allow(unsafe_code)]

use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{OFlags, fcntl_getfl};
use rustix::io::{Errno, fcntl_getfd};
use rustix::stdio::{stdin, stdout};

/// Whether standard input was closed when the process began. Static, because nothing else exists at that time.
static HAD_NO_STDIN: AtomicBool = AtomicBool::new(false);

/// The same of standard output.
static HAD_NO_STDOUT: AtomicBool = AtomicBool::new(false);

/// What the system calls before anything else of the program runs.
// SAFETY: `.init_array` is an array of pointers to functions, which the system calls once, on the only thread there is, with
// arguments that a C function may ignore. `look` makes two calls of the system and needs nothing that is set up later.
#[used]
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = look;

extern "C" fn look() {
    let is_closed = |found: Result<_, Errno>| found.err() == Some(Errno::BADF);
    HAD_NO_STDIN.store(is_closed(fcntl_getfd(stdin())), Ordering::Relaxed);
    HAD_NO_STDOUT.store(is_closed(fcntl_getfd(stdout())), Ordering::Relaxed);
}

/// Why nothing can be read from standard input, where that is known.
pub fn stdin_fault() -> Option<&'static str> {
    HAD_NO_STDIN
        .load(Ordering::Relaxed)
        .then_some("standard input is closed")
}

/// Why nothing that is written to standard output would arrive, where that is known.
pub fn stdout_fault() -> Option<&'static str> {
    if HAD_NO_STDOUT.load(Ordering::Relaxed) {
        return Some("standard output is closed");
    }
    let mode = fcntl_getfl(stdout()).map(|flags| flags & OFlags::RWMODE);
    (mode == Ok(OFlags::RDONLY)).then_some("standard output is open for reading only")
}
