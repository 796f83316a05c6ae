//! Finding messages in what a connection sends.
//!
//! A message says nothing of its length: its end is where its last value ends, and each head is read once on the way there.
//! What is there is read in large pieces. Messages that are there at the same time become one load, so that a client that sends
//! an event a message does not cost a buffer and an answer for each; what was read of the one behind them begins the next load.
//! A message that is larger than the largest buffer of the pool lies in several ones, each of which ends behind an entry.

use batch::msgpack::{Extent, MsgPackError};
use codec::forward::Cuts;
use tokio::io::AsyncRead;

use crate::connections::closing::{Ending, Fault};
use crate::connections::intake::{AHEAD_BYTES, Intake, Load, LoadPosition};

/// A load takes no further message once it has so many bytes.
const LOAD_BYTES: usize = 128 << 10;

/// How much is read at a time, if it is there, where the message needs less.
const PIECE_BYTES: usize = 64 << 10;

/// Reads the messages of a connection.
pub(super) struct Messages<R> {
    intake: Intake<R>,
    /// How far the end of the next message is known.
    extent: Extent,
    /// Where it may be divided, and how much of it is in buffers that were divided off.
    cuts: Cuts,
    divided: usize,
    message_max: usize,
    /// The load that begins with what was read beyond the one before.
    begun: Option<Load>,
    /// How the connection ends, where messages before that are taken first.
    ending: Option<Ending>,
}

impl<R: AsyncRead + Unpin> Messages<R> {
    pub(super) fn new(intake: Intake<R>, message_max: usize) -> Self {
        Self {
            intake,
            extent: Extent::default(),
            cuts: Cuts::default(),
            divided: 0,
            message_max,
            begun: None,
            ending: None,
        }
    }

    /// Waits for the next message to begin; false when the client has closed its side.
    async fn begin(&mut self) -> Result<bool, Ending> {
        let has_begun = self.intake.begin().await?;
        // No message begins like a TLS handshake, which two bytes show.
        if self.intake.ahead() == [0x16] {
            self.intake.need(2).await?;
        }
        match Fault::tls(self.intake.ahead()) {
            Some(fault) => Err(fault.into()),
            None => Ok(has_begun),
        }
    }

    /// The next message, for which no memory is reserved; none when the client has closed its side. It must be shorter than
    /// what is read ahead.
    pub(super) async fn next_small(&mut self) -> Result<Option<Vec<u8>>, Ending> {
        if !self.begin().await? {
            return Ok(None);
        }
        loop {
            if let Some(len) = self.whole_ahead()? {
                let message = self.intake.ahead()[..len].to_vec();
                self.intake.skip(len);
                self.end_message();
                return Ok(Some(message));
            }
            let there = self.intake.ahead().len();
            if there >= AHEAD_BYTES {
                let reason =
                    format!("a message of the handshake is longer than {AHEAD_BYTES} bytes");
                return Err(Fault::too_large(reason).into());
            }
            self.intake.need(there + 1).await?;
        }
    }

    /// The next messages, one or more; none when the client has closed its side.
    pub(super) async fn next(&mut self) -> Result<Option<Load>, Ending> {
        if let Some(ending) = self.ending.take() {
            return Err(ending);
        }
        let mut load = match self.begun.take() {
            Some(load) => {
                // The pipeline may have kept it waiting.
                self.intake.renew();
                load
            }
            None => {
                if !self.begin().await? {
                    return Ok(None);
                }
                let ahead = self.intake.ahead().len();
                let mut load = self.intake.reserve(ahead).await;
                self.intake.load(&mut load, ahead).await?;
                load
            }
        };
        // Up to where it holds whole messages.
        let mut whole = LoadPosition::default();
        match self.fill(&mut load, &mut whole).await {
            Ok(()) => {}
            // Messages before the fault are taken first.
            Err(fault) if whole != LoadPosition::default() => {
                load.truncate(whole);
                self.ending = Some(fault.into());
            }
            Err(fault) => return Err(fault.into()),
        }
        self.end_message();
        Ok(Some(load))
    }

    /// Reads messages into a load: at least one, and those that are there at the same time. `whole` is where they end so far.
    async fn fill(&mut self, load: &mut Load, whole: &mut LoadPosition) -> Result<(), Fault> {
        // Where the message begins, or goes on, in the last buffer.
        let mut begin = 0;
        loop {
            while let Some(len) = self.whole(&load.bytes()[begin..])? {
                begin += len;
                *whole = load.place(begin);
                self.end_message();
            }
            if *whole == load.place(begin) && begin > 0 {
                let is_enough = load.is_divided() || load.len() >= LOAD_BYTES;
                if !is_enough && self.intake.load_ready(load, PIECE_BYTES).await {
                    continue;
                }
                if self.end_load(load, begin) {
                    return Ok(());
                }
                // There is no memory for the beginning of another load: the message is read to its end.
            }
            let there = (load.len() - begin) as u64;
            let missing = self.extent.len_min().saturating_sub(there).max(1) as usize;
            let mut room = self.intake.room(load);
            if room == 0 {
                if let Some(at) = self.cuts.cut(&load.bytes()[begin..]) {
                    self.extent.forget(at);
                    self.divided += at;
                    let size = load.len() - begin - at + missing;
                    self.intake.divide(load, begin + at, size).await;
                    begin = 0;
                    continue;
                }
                // An entry that is larger than a buffer.
                room = load.len();
            }
            let (least, most) = (missing.min(room), missing.max(PIECE_BYTES).min(room));
            self.intake.load_more(load, least, most).await?;
        }
    }

    /// The message ends, and another one may begin.
    fn end_message(&mut self) {
        self.extent = Extent::default();
        self.cuts = Cuts::default();
        self.divided = 0;
    }

    /// Ends a load behind `whole` bytes of its last buffer; what lies behind is kept for the next one. Gives whether it could be
    /// kept.
    fn end_load(&mut self, load: &mut Load, whole: usize) -> bool {
        if load.len() == whole {
            return true;
        }
        self.begun = self.intake.split(load, whole);
        self.begun.is_some() || self.intake.unread(load, whole)
    }

    /// How long the message is that these bytes begin with, if all of it is there.
    fn whole(&mut self, bytes: &[u8]) -> Result<Option<usize>, Fault> {
        let whole = self.extent.advance(bytes);
        self.check(whole)
    }

    /// The length of the next message, if all of it is read ahead.
    fn whole_ahead(&mut self) -> Result<Option<usize>, Fault> {
        let whole = self.extent.advance(self.intake.ahead());
        self.check(whole)
    }

    /// Refuses what is no message, or too long.
    fn check(&self, whole: Result<Option<usize>, MsgPackError>) -> Result<Option<usize>, Fault> {
        let whole =
            whole.map_err(|error| Fault::malformed(format!("malformed message: {error}")))?;
        if self.extent.len_min() + self.divided as u64 > self.message_max as u64 {
            let reason = format!(
                "a message is longer than {} bytes (`max_message_bytes`)",
                self.message_max
            );
            return Err(Fault::too_large(reason));
        }
        Ok(whole)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use batch::Budget;
    use batch::msgpack::{write_array_header, write_bin, write_map_header, write_str};
    use tokio::io::{AsyncWriteExt, DuplexStream, duplex};

    use super::*;
    use crate::connections::testing::reading_context;

    fn messages(budget: &Arc<Budget>, max: usize) -> (Messages<DuplexStream>, DuplexStream) {
        let (ours, theirs) = duplex(64 << 10);
        let pool = budget.pool(0, 64 << 10);
        let ctx = reading_context(pool);
        let timeout = Duration::from_secs(20);
        (
            Messages::new(Intake::new(ours, ctx, timeout, timeout), max),
            theirs,
        )
    }

    fn packed(len: usize) -> Vec<u8> {
        let mut out = Vec::new();
        write_array_header(&mut out, 2);
        write_str(&mut out, b"tag");
        write_bin(&mut out, &vec![0xC1; len]);
        out
    }

    /// A message of many values.
    fn listed(count: usize) -> Vec<u8> {
        let mut out = Vec::new();
        write_array_header(&mut out, 2);
        write_str(&mut out, b"tag");
        write_array_header(&mut out, count);
        for _ in 0..count {
            out.extend_from_slice(&[0x92, 1]);
            write_map_header(&mut out, 1);
            write_str(&mut out, b"key");
            write_str(&mut out, b"a value of forty bytes, give or take one");
        }
        out
    }

    #[tokio::test]
    async fn messages_come_whole_whatever_their_size_and_the_pieces() {
        let budget = Budget::new(16 << 20);
        let sent = [
            vec![0xC0],
            packed(0),
            listed(3),
            packed(AHEAD_BYTES - 10),
            packed(AHEAD_BYTES),
            listed(5000),
            vec![0xC0],
            packed(300_000),
            listed(1),
        ];
        let all = sent.concat();
        for piece in [1, 7, 4000, all.len()] {
            let (mut messages, mut client) = messages(&budget, 1 << 20);
            let (data, is_slow) = (all.clone(), piece < 100);
            let sender = tokio::spawn(async move {
                for piece in data.chunks(piece) {
                    client.write_all(piece).await.expect("written");
                    if is_slow {
                        tokio::task::yield_now().await;
                    }
                }
            });
            let mut come = Vec::new();
            while let Some(load) = messages.next().await.expect("good messages") {
                // A load ends where a message does.
                let mut at = 0;
                while at < load.len() {
                    at += batch::msgpack::value_len(load.bytes(), at).expect("whole");
                }
                assert_eq!(at, load.len());
                come.extend_from_slice(load.bytes());
            }
            assert_eq!(come, all, "{piece}");
            sender.await.expect("no panic");
        }
        assert_eq!(budget.used(), 0);
    }

    #[tokio::test]
    async fn a_large_message_lies_in_buffers_of_the_pool() {
        let budget = Budget::new(64 << 20);
        let largest = 16 * (64 << 10);
        // Entries, bytes that are none, and entries that are larger than a buffer.
        let message = listed(60_000);
        let mut large = Vec::new();
        write_array_header(&mut large, 2);
        write_str(&mut large, b"tag");
        write_array_header(&mut large, 2);
        for len in [5 << 20, 3 << 20] {
            write_array_header(&mut large, 2);
            write_bin(&mut large, &vec![0xC1; len]);
            write_map_header(&mut large, 0);
        }
        for (message, buffers, most) in [
            (message, 3, largest),
            (packed(3 << 20), 3, largest),
            (large, 2, 8 << 20),
        ] {
            let (mut messages, mut client) = messages(&budget, 16 << 20);
            let sent = [&listed(2)[..], &message, &listed(3)].concat();
            let data = sent.clone();
            let sender = tokio::spawn(async move {
                client.write_all(&data).await.expect("written");
            });
            let (mut come, mut most_buffers) = (Vec::new(), 0);
            while let Some(load) = messages.next().await.expect("good messages") {
                let loaded = load.finish();
                most_buffers = most_buffers.max(loaded.before.len() + 1);
                for filled in loaded.before.into_iter().chain([loaded.last]) {
                    let buffer = filled.freeze();
                    assert!(buffer.len() <= most);
                    come.extend_from_slice(&buffer);
                }
            }
            assert!(come == sent);
            assert!(most_buffers >= buffers, "{most_buffers} buffers");
            sender.await.expect("no panic");
        }
        assert_eq!(budget.used(), 0);
    }

    #[tokio::test]
    async fn a_fault_in_a_large_message_leaves_those_before_it() {
        let half = listed(30_000);
        // As many more are announced.
        let half = [&listed(60_000)[..8], &half[8..]].concat();
        for (bad, counter) in [
            ([half, vec![0xC1; 100_000]].concat(), "malformed_frames"),
            (listed(60_000)[..2 << 20].to_vec(), "cut_connections"),
            (packed(5 << 20), "oversized_frames"),
            (listed(100_000), "oversized_frames"),
        ] {
            // No memory for a load that begins with the next message: both are read into one.
            let budget = Budget::new(8 << 10);
            let (mut messages, mut client) = messages(&budget, 4 << 20);
            let sent = [&listed(2)[..], &bad].concat();
            tokio::spawn(async move {
                // It may be refused before.
                let _ = client.write_all(&sent).await;
            });
            let load = messages.next().await.expect("good").expect("a message");
            assert_eq!(load.bytes(), listed(2));
            drop(load);
            let Err(Ending::Fault(fault)) = messages.next().await.map(|load| load.is_some()) else {
                panic!("{counter}: it is taken")
            };
            assert_eq!(fault.counter, counter);
        }
    }

    #[tokio::test]
    async fn what_is_no_message_comes_after_those_before_it() {
        for (bad, counter) in [
            (vec![0xC1], "malformed_frames"),
            (packed(2000), "oversized_frames"),
            (vec![0xDD, 0xFF, 0xFF, 0xFF, 0xFF], "oversized_frames"),
            (packed(900)[..800].to_vec(), "cut_connections"),
        ] {
            let budget = Budget::new(1 << 20);
            let (mut messages, mut client) = messages(&budget, 1000);
            let good = listed(2);
            let sent = [&good[..], &bad].concat();
            client.write_all(&sent).await.expect("written");
            client.shutdown().await.expect("closed");
            let load = messages.next().await.expect("good").expect("a message");
            assert_eq!(load.bytes(), good);
            let Err(Ending::Fault(fault)) = messages.next().await.map(|load| load.is_some()) else {
                panic!("{bad:x?} is taken")
            };
            assert_eq!(fault.counter, counter);
        }
    }

    #[tokio::test]
    async fn the_handshake_takes_no_memory_of_the_budget() {
        let budget = Budget::new(1 << 20);
        let (mut messages, mut client) = messages(&budget, 1 << 20);
        client.write_all(&listed(2)).await.expect("written");
        client
            .write_all(&packed(AHEAD_BYTES))
            .await
            .expect("written");
        let small = messages.next_small().await.expect("good");
        assert_eq!((small, budget.used()), (Some(listed(2)), 0));
        let Err(Ending::Fault(fault)) = messages.next_small().await else {
            panic!("a long one is taken")
        };
        assert_eq!((fault.counter, budget.used()), ("oversized_frames", 0));
    }
}
