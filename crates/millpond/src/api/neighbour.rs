//! Which user of this machine a client is.
//!
//! Without a token, every program of the machine may ask for counters. Events are another matter: Millpond may read logs that most users may
//! not. So they are shown only to a client of Millpond's own user, or of root. The system knows who has the other end of a
//! connection to this machine: `/proc/self/net/tcp` has a line for each socket, with its user.

use std::fs::read_to_string;
use std::net::{IpAddr, SocketAddr};

/// Whether the client at `peer`, connected to our `port`, is of the user that this process runs as, or root. Not where the system does not say.
pub fn is_own_user(peer: SocketAddr, port: u16) -> bool {
    let tables = ["/proc/self/net/tcp", "/proc/self/net/tcp6"];
    let texts = tables.map(|path| read_to_string(path).unwrap_or_default());
    let user = texts.iter().find_map(|text| user_of(text, peer, port));
    let own = rustix::process::geteuid();
    user.is_some_and(|user| user == 0 || user == own.as_raw())
}

/// The user in a table whose socket has this address, and the other end at this port.
fn user_of(table: &str, peer: SocketAddr, port: u16) -> Option<u32> {
    let (of_peer, of_port) = (addresses(peer), format!(":{port:04X}"));
    table.lines().find_map(|line| {
        let mut fields = line.split_whitespace();
        let (local, remote) = (fields.nth(1)?, fields.next()?);
        let is_it = of_peer.iter().any(|address| address == local) && remote.ends_with(&of_port);
        // st, queues, timer, retransmits, uid
        is_it.then(|| fields.nth(4)?.parse().ok()).flatten()
    })
}

/// How the kernel writes an address and a port: words in the order of the machine. One of IPv4 may be that of a socket of IPv6.
fn addresses(address: SocketAddr) -> Vec<String> {
    let port = address.port();
    let words = |bytes: &[u8]| -> String {
        let words = bytes.chunks_exact(4);
        let word = words.map(|it| u32::from_ne_bytes([it[0], it[1], it[2], it[3]]));
        word.map(|word| format!("{word:08X}")).collect()
    };
    match address.ip() {
        IpAddr::V4(ip) => {
            let mapped = words(&ip.to_ipv6_mapped().octets());
            vec![
                format!("{}:{port:04X}", words(&ip.octets())),
                format!("{mapped}:{port:04X}"),
            ]
        }
        IpAddr::V6(ip) => vec![format!("{}:{port:04X}", words(&ip.octets()))],
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn the_user_of_a_client_is_known() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(address) else {
                continue;
            };
            let local = listener.local_addr().expect("an address");
            let client = TcpStream::connect(local).expect("it listens");
            let peer = client.local_addr().expect("an address");
            assert!(is_own_user(peer, local.port()), "{peer}");
            assert!(!is_own_user(peer, local.port() ^ 1));
            let other = SocketAddr::new(peer.ip(), peer.port() ^ 1);
            assert!(!is_own_user(other, local.port()));
        }
    }

    #[test]
    fn lines_of_the_kernel_are_understood() {
        let peer: SocketAddr = "127.0.0.1:43690".parse().expect("an address");
        let line = |local: &str, remote: &str, uid: u32| {
            format!(
                "  1: {local} {remote} 01 00000000:00000000 00:00000000 00000000 {uid:>5}        0 12 1 0 20 4 0 10 -1\n"
            )
        };
        let head = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n";
        let word = format!("{:08X}", u32::from_ne_bytes([127, 0, 0, 1]));
        let table = [
            head.to_owned(),
            line(&format!("{word}:258A"), &format!("{word}:AAAA"), 0),
            line(&format!("{word}:AAAA"), &format!("{word}:258A"), 65534),
        ];
        assert_eq!(user_of(&table.concat(), peer, 0x258A), Some(65534));
        assert_eq!(user_of(head, peer, 0x258A), None);
    }
}
