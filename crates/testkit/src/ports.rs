//! Ports for programs under test.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicU16, Ordering};

use tokio::net::TcpSocket;

/// Below the ports that Linux gives to outgoing connections, so that none of them takes one between its choice and its use.
const FIRST: u16 = 10_000;
const COUNT: u16 = 22_000;

static NEXT: AtomicU16 = AtomicU16::new(0);

/// A port on which nobody listens, and which this process gives once.
///
/// # Panics
/// When there is none.
pub fn free_port() -> u16 {
    // Processes that run at the same time begin elsewhere.
    let begin = (std::process::id() % u32::from(COUNT)) as u16;
    for _ in 0..COUNT {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let port = FIRST + (begin.wrapping_add(number)) % COUNT;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        if can_listen(address) && UdpSocket::bind(address).is_ok() {
            return port;
        }
    }
    panic!("no port is free");
}

/// As [`free_port`], where nobody is given the next port either.
///
/// # Panics
/// When there is none.
pub fn free_port_before_another() -> u16 {
    let mut port = free_port();
    loop {
        let next = free_port();
        if next == port + 1 {
            return port;
        }
        port = next;
    }
}

/// Whether a program could listen there. Nothing does so here, not for a moment: a process that another test starts just then has the
/// socket too until it runs its own program, and who waits for the port would take it for the program that is to listen.
fn can_listen(address: SocketAddr) -> bool {
    let socket = TcpSocket::new_v4();
    socket.is_ok_and(|socket| socket.set_reuseaddr(true).is_ok() && socket.bind(address).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_given_once() {
        let port = free_port_before_another();
        assert!((0..100).all(|_| ![port, port + 1].contains(&free_port())));
        let ports: std::collections::BTreeSet<u16> = (0..100).map(|_| free_port()).collect();
        assert_eq!(ports.len(), 100);
        assert!(
            ports
                .iter()
                .all(|port| (FIRST..FIRST + COUNT).contains(port))
        );
    }
}
