//! What was received, in buffers of the pool.
//!
//! [`Pages`] are filled from a socket or by a decompressor. What has more bytes than a buffer of the pool takes several, so that
//! memory is reused and nothing is moved to make room; where its reader needs whole lines, each buffer ends with one, and
//! what follows is moved to the next. Only a line, or a body that is one value, takes a larger buffer.
//!
//! What is received is divided as it comes and as it is decompressed: bulk bodies behind line ends, compressed data anywhere
//! (of frames, see [`Intake::load_divided`](super::intake::Intake::load_divided)), entries of `forward` behind an entry
//! ([`codec::forward::Cuts`]). Not divided are a single event, and a body of `http` that is not compressed, whose formats may be
//! one value. The pool keeps buffers of up to 4 MiB for the next frame, because fresh memory costs more than reading into it:
//! with bulk requests of 1.4 MB, reuse raised the rate from 1.2 to 1.5 million events per CPU-second.

use batch::{BufferPool, PooledBuffer, Reservation};
use bytes::Bytes;

/// Where a body is cut into buffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cut {
    /// Nowhere: it takes one buffer.
    Nowhere,
    /// Behind line ends.
    Lines,
    /// Anywhere.
    Anywhere,
}

/// Takes a body, a buffer at a time.
pub(crate) trait Take {
    /// Begins to take a buffer.
    fn page(&mut self, page: Bytes);

    /// Goes on with it, and stops where it needs memory beside the buffer; gives how much, in bytes. None when it is done with the
    /// buffer.
    fn go_on(&mut self) -> Option<usize>;

    /// Takes a page. `grow` reserves what that needs beside it.
    fn take(
        &mut self,
        page: Bytes,
        reservation: &mut Reservation,
        mut grow: impl FnMut(&mut Reservation, usize),
    ) {
        self.page(page);
        while let Some(wanted) = self.go_on() {
            grow(reservation, wanted);
            reservation.spend(wanted);
        }
    }
}

/// Buffers that are kept as they are.
impl Take for Vec<Bytes> {
    fn page(&mut self, page: Bytes) {
        self.push(page);
    }

    fn go_on(&mut self) -> Option<usize> {
        None
    }
}

/// A body that is being received or decompressed.
pub(crate) struct Pages {
    cut: Cut,
    pool: BufferPool,
    buffer: PooledBuffer,
    filled: usize,
    /// How many bytes are in buffers that were taken already.
    taken: usize,
    /// How long it is, where that is known.
    known: Option<usize>,
    /// How long it may be.
    largest: usize,
}

impl Pages {
    /// How much is to be reserved for the first buffer of a body with `likely` bytes, which has `largest` at most.
    pub(crate) fn first_bytes(cut: Cut, pool: &BufferPool, likely: usize) -> usize {
        match cut {
            Cut::Nowhere => pool.fitting(likely),
            Cut::Lines | Cut::Anywhere => pool.fitting(likely.min(pool.buffer_size())),
        }
    }

    /// Begins with a buffer of `first` bytes of those reserved, for a body that is as long as is known, or may be as long as is allowed.
    pub(crate) fn new(
        cut: Cut,
        (known, largest): (Option<usize>, usize),
        first: usize,
        reservation: &mut Reservation,
    ) -> Self {
        Self {
            cut,
            pool: reservation.pool(),
            buffer: reservation.take(first),
            filled: 0,
            taken: 0,
            known,
            largest,
        }
    }

    /// How many bytes there are in all.
    pub(crate) fn len(&self) -> usize {
        self.taken + self.filled
    }

    /// Where the next bytes go. Empty where [`Self::wanted`] must be reserved, and [`Self::turn`] called, before.
    pub(crate) fn room(&mut self) -> &mut [u8] {
        &mut self.buffer[self.filled..]
    }

    /// Says that bytes were written to the room.
    pub(crate) fn fill(&mut self, bytes: usize) {
        self.filled += bytes;
    }

    /// How to go on where there is no room.
    pub(crate) fn plan(&self) -> Plan {
        let (pooled, size) = (self.pool.buffer_size(), self.buffer.len());
        let end = match self.cut {
            Cut::Lines if size >= pooled => memchr::memrchr(b'\n', &self.buffer[..self.filled]),
            Cut::Anywhere if size >= pooled => self.filled.checked_sub(1),
            _ => None,
        };
        let left = self.largest.saturating_sub(self.len());
        match end {
            Some(end) => {
                let rest = self.filled - (end + 1);
                // A rest that is longer than a buffer is the beginning of a long line.
                let likely = (rest + left).min(pooled.max(2 * rest));
                Plan {
                    end: Some(end + 1),
                    bytes: self.pool.fitting(likely).max(likely),
                }
            }
            None => {
                let wanted = (self.filled + left).min(2 * size).max(size + 1);
                let is_large = wanted.max(self.known.unwrap_or(0)) > pooled / 2;
                let reused = self.pool.reused_size(wanted);
                let wanted = match is_large && reused >= wanted {
                    true => reused,
                    false => wanted,
                };
                Plan {
                    end: None,
                    bytes: wanted - size,
                }
            }
        }
    }

    /// Goes on with the bytes of a plan, which are reserved now; gives the buffer that is done, if one is.
    pub(crate) fn turn(&mut self, plan: Plan, reservation: &mut Reservation) -> Option<Bytes> {
        let Some(end) = plan.end else {
            reservation.extend(&mut self.buffer, plan.bytes);
            return None;
        };
        let mut next = reservation.take(plan.bytes);
        let rest = &self.buffer[end..self.filled];
        next[..rest.len()].copy_from_slice(rest);
        self.filled = rest.len();
        self.taken += end;
        Some(std::mem::replace(&mut self.buffer, next).freeze(end))
    }

    /// The last buffer. There is no room then.
    pub(crate) fn finish(&mut self, reservation: &mut Reservation) -> Bytes {
        let (last, filled) = (&mut self.buffer, std::mem::take(&mut self.filled));
        self.taken += filled;
        std::mem::replace(last, reservation.take(0)).freeze_fitting(filled)
    }
}

/// How a body goes on that fills its buffer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    /// Where the buffer is cut. None where it becomes larger.
    end: Option<usize>,
    /// How many bytes are to be reserved.
    pub(crate) bytes: usize,
}

#[cfg(test)]
mod tests {
    use batch::Budget;

    use super::*;

    const POOLED: usize = 1000;

    /// The buffers that bytes are cut into, which come in pieces of any size.
    async fn cut(cut: Cut, bytes: &[u8], is_known: bool, piece: usize) -> Vec<Bytes> {
        let budget = Budget::new(1 << 20);
        let pool = budget.pool(0, POOLED);
        let known = is_known.then_some(bytes.len());
        let largest = known.unwrap_or(1 << 20);
        let first = Pages::first_bytes(cut, &pool, 100.min(largest));
        let mut reservation = pool.reserve(first).await;
        let mut pages = Pages::new(cut, (known, largest), first, &mut reservation);
        let mut done = Vec::new();
        for mut piece in bytes.chunks(piece) {
            while !piece.is_empty() {
                if pages.room().is_empty() {
                    let plan = pages.plan();
                    reservation.grow(plan.bytes).await;
                    done.extend(pages.turn(plan, &mut reservation));
                }
                let room = pages.room();
                let count = piece.len().min(room.len());
                room[..count].copy_from_slice(&piece[..count]);
                pages.fill(count);
                piece = &piece[count..];
            }
        }
        assert_eq!(pages.len(), bytes.len());
        done.push(pages.finish(&mut reservation));
        drop(reservation);
        let content: usize = done.iter().map(Bytes::len).sum();
        // A buffer that a long line has made larger may be half empty.
        let most = 2 * content + 2 * POOLED;
        assert!(budget.used() <= most, "{} for {content}", budget.used());
        assert_eq!(done.concat(), bytes);
        drop(done.clone());
        done
    }

    #[tokio::test]
    async fn a_body_takes_buffers_of_the_pool() {
        let text: Vec<u8> = (0..3000_u32)
            .flat_map(|n| format!("line {n}\n").into_bytes())
            .collect();
        for (is_known, piece) in [(true, 7), (true, 5000), (false, 7), (false, 5000)] {
            let lines = cut(Cut::Lines, &text, is_known, piece).await;
            assert!(lines.len() > text.len() / POOLED, "{}", lines.len());
            assert!(lines.iter().all(|page| page.len() <= POOLED));
            assert!(lines.iter().all(|page| page.ends_with(b"\n")));
            let anywhere = cut(Cut::Anywhere, &text, is_known, piece).await;
            assert!(anywhere.iter().all(|page| page.len() <= POOLED));
            let whole = cut(Cut::Nowhere, &text, is_known, piece).await;
            assert_eq!(whole.len(), 1);
        }
    }

    #[tokio::test]
    async fn only_a_long_line_takes_a_larger_buffer() {
        let long = [b"short\n", &[b'x'; 5500][..], b"\n", &[b'y'; 30][..], b"\n"].concat();
        for text in [long.clone(), [&long[..], &long, b"no end"].concat()] {
            for piece in [1, 64, 10_000] {
                let pages = cut(Cut::Lines, &text, false, piece).await;
                let (last, others) = pages.split_last().expect("a page");
                assert!(others.iter().all(|page| page.ends_with(b"\n")));
                assert_eq!(last.ends_with(b"\n"), text.ends_with(b"\n"));
                assert!(others.len() >= usize::from(text.len() > long.len()));
            }
        }
        let empty = cut(Cut::Lines, b"", true, 1).await;
        assert_eq!(empty, [Bytes::new()]);
    }
}
