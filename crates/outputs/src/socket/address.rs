//! Addresses of sockets on this machine: a path, or a zero byte and an abstract name (unix(7)).

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::net::SocketAddrUnix;
use tokio::net::UnixDatagram;

/// The address of a path, which may be an abstract name behind a zero byte.
///
/// # Errors
/// It is too long.
pub fn socket_address(path: &Path) -> io::Result<SocketAddrUnix> {
    let address = match path.as_os_str().as_bytes().split_first() {
        Some((0, name)) => SocketAddrUnix::new_abstract_name(name),
        _ => SocketAddrUnix::new(path),
    };
    Ok(address?)
}

/// Connects a socket of datagrams to such a path.
///
/// # Errors
/// Nobody receives there.
pub fn connect_datagrams(socket: &UnixDatagram, path: &Path) -> io::Result<()> {
    Ok(rustix::net::connect(socket, &socket_address(path)?)?)
}
