//! Ports for programs under test.

use std::net::{TcpListener, UdpSocket};
use std::sync::atomic::{AtomicU16, Ordering};

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
        let address = ("127.0.0.1", port);
        if TcpListener::bind(address).is_ok() && UdpSocket::bind(address).is_ok() {
            return port;
        }
    }
    panic!("no port is free");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_given_once() {
        let ports: std::collections::BTreeSet<u16> = (0..100).map(|_| free_port()).collect();
        assert_eq!(ports.len(), 100);
        assert!(
            ports
                .iter()
                .all(|port| (FIRST..FIRST + COUNT).contains(port))
        );
    }
}
