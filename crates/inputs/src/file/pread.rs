//! Reading at a place of a file, whatever interrupts it.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;

use rustix::io::{Errno, pread};

/// Reads until the buffer is full or the file ends.
///
/// # Errors
/// What the system says.
pub(crate) fn read_exact_at(file: &File, into: &mut [u8], at: u64) -> io::Result<usize> {
    let mut filled = 0;
    while filled < into.len() {
        let read = retry(|| pread(file.as_fd(), &mut into[filled..], at + filled as u64))?;
        if read == 0 {
            break;
        }
        filled += read;
    }
    Ok(filled)
}

/// Reads again as long as something interrupts it.
///
/// # Errors
/// What the system says.
pub(crate) fn retry(mut read: impl FnMut() -> rustix::io::Result<usize>) -> io::Result<usize> {
    loop {
        match read() {
            Err(Errno::INTR) => {}
            other => return other.map_err(io::Error::from),
        }
    }
}
