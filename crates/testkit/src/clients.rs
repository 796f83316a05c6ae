//! Clients of a server that is a part of a test.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::thread;

/// Listens on this machine, and serves each client on a thread of its own, until the test ends. Port 0 has the system choose one.
///
/// # Panics
/// The port is taken.
pub(crate) fn serve_clients(
    port: u16,
    serve: impl Fn(TcpStream) + Clone + Send + 'static,
) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).expect("a port");
    let address = listener.local_addr().expect("an address");
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let serve = serve.clone();
            thread::spawn(move || serve(client));
        }
    });
    address
}
