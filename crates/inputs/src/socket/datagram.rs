//! Datagrams: UDP, and datagram sockets of Unix. Each is an event.
//!
//! One thread takes up to [`AT_ONCE`] datagrams with a call and gives those of each sender to the batcher. Where the queue is full it
//! takes none; then the system drops what does not fit into the socket's buffer. How many those were comes with the next datagram
//! (`SO_RXQ_OVFL`); where none follows, the system's table of sockets says it.
//!
//! While datagrams of UDP come quickly, the thread lets them gather in the socket's buffer for [`gather_time`]: waking it and the
//! batcher for every few of them costs more than taking them. Senders to sockets of Unix would have to wait meanwhile.

use std::collections::{HashMap, VecDeque};
use std::convert::Infallible;
use std::fs::File;
use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use batch::Stream;
use codec::Chunk;
use component::{InputContext, Limit};
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, ControlMessageOwned, MsgFlags, MultiHeaders, SockaddrLike, SockaddrStorage,
    getsockname, recvmmsg, setsockopt, sockopt,
};
use nix::sys::time::{TimeVal, TimeValLike};

use super::decode::{Decoding, Message};
use super::identities::Identities;
use crate::connections::answer::{Awaited, answer};
use crate::connections::batcher::Inbox;
use crate::error::RunError;

/// Datagrams that are taken with one call.
const AT_ONCE: usize = 64;

/// The largest datagram of IP; those of Unix sockets may be larger and are truncated here.
const DATAGRAM_MAX: usize = 64 << 10;

/// How long datagrams gather at most.
const GATHER_TIME_MAX: Duration = Duration::from_micros(500);

/// How long datagrams of UDP gather: no longer than 8 GBit/s take to fill half of what the system holds, which is twice
/// `buffer_bytes` with its own needs.
pub(super) fn gather_time(buffer_bytes: usize) -> Duration {
    Duration::from_nanos(buffer_bytes as u64).min(GATHER_TIME_MAX)
}

/// How long a call waits before it is looked whether to stop.
const STOP_CHECK_TIME: Duration = Duration::from_millis(100);

/// Messages that may be under way; the memory budget is reached earlier, unless they are small.
const AHEAD_MAX: usize = 4096;

/// Senders that are remembered.
const SENDERS_MAX: usize = 10_000;

/// Receives datagrams.
pub(super) struct Receiver {
    socket: OwnedFd,
    inbox: Inbox<Decoding>,
    ctx: InputContext,
    identities: Identities,
    /// How long datagrams gather while they come quickly.
    gather_time: Duration,
    senders: HashMap<Option<SockaddrStorage>, Sender>,
    /// Whether it is a socket of Unix. Its senders have no addresses as a rule, and what `nix` has for such an address may be memory
    /// that nobody has written, which it then panics over.
    is_local: bool,
    ahead: VecDeque<Awaited<Infallible>>,
    /// What the system says it has dropped.
    dropped: u32,
    /// Datagrams came since the system's table of sockets was read.
    is_table_due: bool,
}

/// A sender: its stream, and the number of its next datagram.
struct Sender {
    stream: Arc<Stream>,
    next: u64,
}

/// Datagrams of one sender that came after each other.
struct Run {
    sender: Option<SockaddrStorage>,
    /// Their places among those received.
    slots: Range<usize>,
}

impl Receiver {
    /// Makes a socket ready. `buffer_bytes` is how much the system is asked to hold; gives what it holds.
    ///
    /// # Errors
    /// What the system says.
    pub(super) fn prepare(socket: &impl AsFd, buffer_bytes: usize) -> io::Result<usize> {
        setsockopt(socket, sockopt::RxqOvfl, &1)?;
        let wait = TimeVal::milliseconds(STOP_CHECK_TIME.as_millis() as i64);
        setsockopt(socket, sockopt::ReceiveTimeout, &wait)?;
        // Beyond the limit of the system only where Millpond may.
        if setsockopt(socket, sockopt::RcvBufForce, &buffer_bytes).is_err() {
            setsockopt(socket, sockopt::RcvBuf, &buffer_bytes)?;
        }
        // The system counts its own needs too, and says twice what it was asked for.
        Ok(nix::sys::socket::getsockopt(socket, sockopt::RcvBuf)? / 2)
    }

    pub(super) fn new(
        socket: OwnedFd,
        inbox: Inbox<Decoding>,
        ctx: InputContext,
        identities: Identities,
        gather_time: Duration,
    ) -> Self {
        let own = getsockname::<SockaddrStorage>(socket.as_raw_fd());
        Self {
            is_local: own.is_ok_and(|own| own.family() == Some(AddressFamily::Unix)),
            socket,
            inbox,
            ctx,
            identities,
            gather_time,
            senders: HashMap::new(),
            ahead: VecDeque::new(),
            dropped: 0,
            is_table_due: false,
        }
    }

    /// Receives until it is time to stop, and waits until what was received is safe.
    ///
    /// # Errors
    /// Nothing more can be received.
    pub(super) fn run(mut self) -> Result<(), RunError> {
        let mut slots = vec![0; AT_ONCE * DATAGRAM_MAX];
        let mut received = Ok(());
        while received.is_ok() && !self.ctx.stop.is_stopped() {
            let begin = Instant::now();
            match self.receive(&mut slots) {
                Ok(count) => {
                    self.is_table_due = true;
                    // Where more are there, or none come soon, there is nothing to wait for.
                    if count < AT_ONCE && begin.elapsed() < self.gather_time {
                        std::thread::sleep(self.gather_time);
                    }
                }
                Err(Errno::EAGAIN) => self.note_last_losses(),
                Err(Errno::EINTR) => {}
                Err(error) => received = Err(RunError::Datagrams(error)),
            }
        }
        self.note_last_losses();
        for outcome in std::mem::take(&mut self.ahead) {
            // No sender can be told what was not delivered.
            let _ = outcome.blocking_recv();
        }
        received
    }

    /// Receives what there is, waiting for the first datagram; gives how many came.
    fn receive(&mut self, slots: &mut [u8]) -> Result<usize, Errno> {
        let control = nix::cmsg_space!(u32);
        let mut headers = MultiHeaders::<SockaddrStorage>::preallocate(AT_ONCE, Some(control));
        let mut lens = [0; AT_ONCE];
        let mut runs: Vec<Run> = Vec::new();
        let mut count = 0;
        {
            let mut space: Vec<[IoSliceMut<'_>; 1]> = slots
                .chunks_mut(DATAGRAM_MAX)
                .map(|slot| [IoSliceMut::new(slot)])
                .collect();
            let received = recvmmsg(
                self.socket.as_raw_fd(),
                &mut headers,
                space.iter_mut(),
                MsgFlags::MSG_WAITFORONE,
                None,
            )?;
            let mut truncated = 0;
            let mut dropped = self.dropped;
            for (slot, message) in received.enumerate() {
                lens[slot] = message.bytes;
                count += 1;
                truncated += u64::from(message.flags.contains(MsgFlags::MSG_TRUNC));
                for control in message.cmsgs()? {
                    if let ControlMessageOwned::RxqOvfl(total) = control {
                        dropped = total;
                    }
                }
                let sender = message.address.filter(|_| !self.is_local);
                match runs.last_mut() {
                    Some(run) if run.sender == sender => run.slots.end = slot + 1,
                    _ => runs.push(Run {
                        sender,
                        slots: slot..slot + 1,
                    }),
                }
            }
            self.note_losses(dropped, truncated);
        }
        for run in runs {
            self.take(&run, slots, &lens);
        }
        self.make_way();
        Ok(count)
    }

    /// Counts what the system dropped behind the last datagram.
    fn note_last_losses(&mut self) {
        if std::mem::take(&mut self.is_table_due)
            && let Some(dropped) = drops(&self.socket)
        {
            self.note_losses(dropped, 0);
        }
    }

    /// Counts what the system dropped and what was too large.
    fn note_losses(&mut self, dropped: u32, truncated: u64) {
        let more = grown(self.dropped, dropped);
        if more > 0 {
            self.dropped = dropped;
            self.ctx.metrics.count("kernel_drops", u64::from(more));
            let text = || {
                format!(
                    "datagrams were dropped by the system, {dropped} so far, because they came faster than they were taken; a larger `receive_buffer_bytes` or `queue: disk` helps"
                )
            };
            self.ctx
                .diagnostics
                .warn_limited(Limit::events("kernel_drops"), text);
        }
        if truncated > 0 {
            self.ctx.metrics.count("truncated_datagrams", truncated);
        }
    }

    /// Hands over the datagrams of one sender.
    fn take(&mut self, run: &Run, slots: &[u8], lens: &[usize; AT_ONCE]) {
        let datagrams = run.slots.clone().map(|slot| {
            let start = slot * DATAGRAM_MAX;
            without_end(&slots[start..start + lens[slot]])
        });
        let total: usize = datagrams.clone().map(<[u8]>::len).sum();
        if total == 0 {
            return;
        }
        let mut buffer = self.ctx.pool.take_small(total);
        let mut places = Vec::with_capacity(run.slots.len());
        let mut filled = 0;
        for datagram in datagrams.filter(|datagram| !datagram.is_empty()) {
            buffer[filled..filled + datagram.len()].copy_from_slice(datagram);
            places.push(filled..filled + datagram.len());
            filled += datagram.len();
        }
        self.ctx.metrics.bytes(total);
        let sender = self.sender(run.sender);
        let chunk = Chunk::of_messages(buffer.freeze(filled), &places, sender.next);
        sender.next += places.len() as u64;
        let stream = sender.stream.clone();
        let (answer, outcome) = answer();
        let message = Message {
            stream,
            chunk,
            broken: None,
        };
        self.inbox.put(message, answer);
        self.ahead.push_back(outcome);
    }

    fn sender(&mut self, address: Option<SockaddrStorage>) -> &mut Sender {
        if self.senders.len() >= SENDERS_MAX && !self.senders.contains_key(&address) {
            // Those that still send get a new stream.
            self.senders.clear();
        }
        let identities = &mut self.identities;
        self.senders.entry(address).or_insert_with(|| {
            let shown = address.and_then(shown);
            Sender {
                stream: identities.stream(shown.as_deref()),
                next: 0,
            }
        })
    }

    /// Forgets messages that are safe; waits while too many are not.
    fn make_way(&mut self) {
        while let Some(first) = self.ahead.front_mut() {
            let is_waiting =
                first.try_recv() == Err(tokio::sync::oneshot::error::TryRecvError::Empty);
            if is_waiting && self.ahead.len() <= AHEAD_MAX {
                return;
            }
            if let Some(first) = self.ahead.pop_front()
                && is_waiting
            {
                let _ = first.blocking_recv();
            }
        }
    }
}

/// By how much a counter of the system has grown, which begins again at 0 when it is full. A datagram names what was dropped before it
/// was queued, which may be less than the table of sockets said meanwhile: that is no growth.
fn grown(before: u32, now: u32) -> u32 {
    let more = now.wrapping_sub(before);
    if more > u32::MAX / 2 { 0 } else { more }
}

/// How many datagrams a UDP socket has dropped, as the system's tables say; none for other sockets.
fn drops(socket: &OwnedFd) -> Option<u32> {
    let socket = File::from(socket.try_clone().ok()?);
    let inode = socket.metadata().ok()?.ino().to_string();
    ["/proc/self/net/udp", "/proc/self/net/udp6"]
        .iter()
        .filter_map(|table| std::fs::read_to_string(table).ok())
        .find_map(|table| drops_in(&table, &inode))
}

/// The same in a table: its tenth column is the inode of a socket, its last one what was dropped. See proc_net_udp in the sources of
/// Linux (`net/ipv4/udp.c`, `udp4_format_sock`).
fn drops_in(table: &str, inode: &str) -> Option<u32> {
    table.lines().find_map(|line| {
        let mut columns = line.split_ascii_whitespace();
        (columns.nth(9)? == inode).then(|| columns.last()?.parse().ok())?
    })
}

/// A datagram without the line end or zero byte that many senders add.
fn without_end(datagram: &[u8]) -> &[u8] {
    let is_end = |byte: &u8| matches!(byte, b'\n' | b'\r' | 0);
    let len = datagram.iter().rposition(|byte| !is_end(byte));
    &datagram[..len.map_or(0, |last| last + 1)]
}

/// How a sender is shown: an IPv4 address as such, also where the port is open for both kinds of addresses. None for a Unix socket
/// without a name.
fn shown(address: SockaddrStorage) -> Option<String> {
    address
        .family()
        .filter(|family| *family != AddressFamily::Unspec)?;
    let text = address.to_string();
    Some(match text.parse::<SocketAddr>() {
        Ok(address) => SocketAddr::new(address.ip().to_canonical(), address.port()).to_string(),
        Err(_) => text,
    })
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;

    #[test]
    fn datagrams_gather_no_longer_than_there_is_room_for_them() {
        let times = [4096, 212_992, 16 << 20].map(|bytes| gather_time(bytes).as_micros());
        assert_eq!(times, [4, 212, 500]);
    }

    #[test]
    fn a_counter_grows_over_its_end_and_never_back() {
        assert_eq!(grown(5, 7), 2);
        assert_eq!(grown(u32::MAX, 1), 2);
        assert_eq!((grown(7, 7), grown(7, 5)), (0, 0));
    }

    #[test]
    fn the_table_of_sockets_says_what_was_dropped() {
        let table = "   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops\n\
              47: 0100007F:0035 00000000:0000 07 00000000:00000000 00:00000000 00000000   102        0 1700 2 0000000000000000 0\n\
             158: 00000000:1492 00000000:0000 07 00000000:00034200 00:00000000 00000000     0        0 170 2 0000000000000000 4872\n";
        assert_eq!(drops_in(table, "170"), Some(4872));
        assert_eq!(drops_in(table, "1700"), Some(0));
        assert_eq!(drops_in(table, "17"), None);
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        let address = socket.local_addr().expect("an address");
        let socket = OwnedFd::from(socket);
        setsockopt(&socket, sockopt::RcvBuf, &4096).expect("a small buffer");
        assert_eq!(drops(&socket), Some(0));
        let sender = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        for _ in 0..100 {
            sender.send_to(&[b'a'; 1000], address).expect("sent");
        }
        // Not even the first ones were taken: no datagram says what was dropped.
        let dropped = drops(&socket).expect("it is in the table");
        assert!((50..100).contains(&dropped), "{dropped}");
    }
}
