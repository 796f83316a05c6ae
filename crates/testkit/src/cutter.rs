//! A TCP proxy that cuts connections at random bytes, the same ones for the same seed.
//!
//! Each connection may carry a number of bytes, drawn by the seed and its number, in either direction; then both sides are closed.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::thread;

/// A proxy on this machine, for as long as it lives.
pub struct Cutter {
    address: SocketAddr,
    cut: Arc<AtomicUsize>,
    is_over: Arc<AtomicBool>,
}

impl Cutter {
    /// One in front of a server, which cuts a connection after fewer than `bytes_max` bytes.
    ///
    /// # Panics
    /// When the machine has no port left.
    pub fn start(server: SocketAddr, seed: u64, bytes_max: i64) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let address = listener.local_addr().expect("an address");
        let (cut, is_over) = (Arc::<AtomicUsize>::default(), Arc::<AtomicBool>::default());
        let (count, ends) = (cut.clone(), is_over.clone());
        thread::spawn(move || {
            for (number, client) in (0..).zip(listener.incoming()) {
                if ends.load(Ordering::Relaxed) {
                    return;
                }
                let mut random = fastrand::Rng::with_seed(seed.wrapping_add(number));
                let room = random.i64(1..bytes_max);
                if let (Ok(client), Ok(server)) = (client, TcpStream::connect(server)) {
                    carry(client, server, room, &count);
                }
            }
        });
        Self {
            address,
            cut,
            is_over,
        }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// How many connections it has cut.
    pub fn cut(&self) -> usize {
        self.cut.load(Ordering::Relaxed)
    }
}

impl Drop for Cutter {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        // Wakes the thread that accepts.
        let _ = TcpStream::connect(self.address);
    }
}

/// Carries bytes both ways until there is no room left.
fn carry(client: TcpStream, server: TcpStream, room: i64, cut: &Arc<AtomicUsize>) {
    let room = Arc::new(AtomicI64::new(room));
    let both = Arc::new((client, server));
    for is_up in [true, false] {
        let (both, room, cut) = (both.clone(), room.clone(), cut.clone());
        thread::spawn(move || {
            let (from, to) = match is_up {
                true => (&both.0, &both.1),
                false => (&both.1, &both.0),
            };
            if pump(from, to, &room).is_err() && room.swap(i64::MIN, Ordering::Relaxed) > i64::MIN {
                cut.fetch_add(1, Ordering::Relaxed);
            }
            let _ = both.0.shutdown(Shutdown::Both);
            let _ = both.1.shutdown(Shutdown::Both);
        });
    }
}

/// Carries bytes one way until the connection ends.
fn pump(mut from: &TcpStream, mut to: &TcpStream, room: &AtomicI64) -> io::Result<()> {
    let mut buffer = vec![0; 16 * 1024];
    loop {
        let Ok(read @ 1..) = from.read(&mut buffer) else {
            return Ok(());
        };
        let before = room.fetch_sub(read as i64, Ordering::Relaxed);
        let may = before.clamp(0, read as i64) as usize;
        // What breaks of itself is not cut by us.
        if to.write_all(&buffer[..may]).is_err() {
            return Ok(());
        }
        if may < read {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
    }
}
