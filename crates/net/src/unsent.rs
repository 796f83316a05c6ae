//! How many bytes of a connection the other side has not confirmed.
//!
//! No safe interface of `rustix` or `tokio` has the request `SIOCOUTQ`. This is one of the modules of the workspace that may hold
//! `unsafe`, which a test checks (`testkit/tests/tidy.rs`); what it gives out is safe.

#![allow(unsafe_code)]

use std::ffi::c_int;
use std::io;
use std::os::fd::AsFd;

use rustix::ioctl::{Getter, Opcode, ioctl};

/// `SIOCOUTQ` of `linux/sockios.h`, which is `TIOCOUTQ` of `asm-generic/ioctls.h`.
const SIOCOUTQ: Opcode = 0x5411;

/// How many bytes were written and are not confirmed: over TCP those that the system of the other side has not acknowledged (tcp(7)),
/// for a socket of Unix what its process has not read, in bytes of the system's memory (unix(7)).
///
/// # Errors
/// It is no socket of these kinds.
pub(crate) fn unsent(socket: impl AsFd) -> io::Result<usize> {
    // SAFETY: the kernel writes one `int` through the pointer that it is given for this request, which is what a `Getter` of that
    // type provides, and reads nothing through it.
    let count = unsafe { ioctl(socket, Getter::<SIOCOUTQ, c_int>::new()) }?;
    Ok(usize::try_from(count).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn what_the_other_side_has_not_read_is_counted() {
        let (mut near, mut far) = UnixStream::pair().expect("sockets");
        assert_eq!(unsent(&near).expect("a count"), 0);
        near.write_all(b"12345").expect("room");
        assert!(unsent(&near).expect("a count") >= 5);
        far.read_exact(&mut [0; 5]).expect("five bytes");
        assert_eq!(unsent(&near).expect("a count"), 0);
    }
}
