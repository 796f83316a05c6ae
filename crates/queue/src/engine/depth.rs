//! How much a queue holds, and how long the oldest of it has waited.
//!
//! When batches came in is noted for one in [`GAP`] at most, and for [`MARKS_MAX`] of them: of a longer backlog every other note
//! goes and those that follow are twice as far apart, so that the age is exact to some thousandths of it. Of what earlier runs left on disk the age is that of its segment.

use std::collections::VecDeque;
use std::time::Duration;

use super::Queue;

/// The least time between two notes, in nanoseconds.
const GAP: i64 = 50_000_000;

/// The most notes.
const MARKS_MAX: usize = 1024;

/// What a queue holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Depth {
    /// Events that came in and that some output has not passed.
    pub events: u64,
    /// Bytes of the batches that wait in memory or are being worked on.
    pub memory_bytes: u64,
    /// Bytes of the files on disk, room that is reserved included.
    pub disk_bytes: u64,
    /// How long the oldest of these events has been in the queue; none where there are no events.
    pub oldest: Option<Duration>,
    /// Whether events cannot be stored for now, because the disk is full or fails.
    pub is_paused: bool,
}

/// When batches came in. Invariant: sequences and times ascend.
#[derive(Debug)]
pub struct Arrivals {
    marks: VecDeque<(u64, i64)>,
    /// The least time between two notes at the moment.
    gap: i64,
}

impl Default for Arrivals {
    fn default() -> Self {
        Self {
            marks: VecDeque::new(),
            gap: GAP,
        }
    }
}

impl Arrivals {
    /// A batch came in at this time, in nanoseconds.
    pub fn note(&mut self, sequence: u64, now: i64) {
        if let Some((_, last)) = self.marks.back()
            && now < last.saturating_add(self.gap)
        {
            return;
        }
        if self.marks.len() == MARKS_MAX {
            let mut count = 0;
            self.marks.retain(|_| {
                count += 1;
                count % 2 == 1
            });
            self.gap = self.gap.saturating_mul(2);
        } else if self.marks.len() < MARKS_MAX / 4 {
            self.gap = GAP;
        }
        self.marks.push_back((sequence, now));
    }

    /// When the batch came in, as far as that is noted. Nobody will ask for an earlier one.
    pub fn of(&mut self, sequence: u64) -> Option<i64> {
        while self.marks.get(1).is_some_and(|(next, _)| *next <= sequence) {
            self.marks.pop_front();
        }
        let (first, time) = self.marks.front()?;
        (*first <= sequence).then_some(*time)
    }
}

impl Queue {
    /// How much it holds.
    pub fn depth(&self) -> Depth {
        let (held, lowest, arrived, is_paused) = {
            let mut state = self.lock();
            let lowest = state.lowest_cursor();
            (
                state.held(),
                lowest,
                state.arrivals.of(lowest),
                state.commit.is_paused(),
            )
        };
        let events = held.stored_events + held.unsafe_events;
        let since = match events {
            0 => None,
            _ => arrived.or_else(|| self.stored_since(lowest)),
        };
        let age = |since: i64| {
            let nanoseconds = (self.clock)().saturating_sub(since);
            Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(0))
        };
        Depth {
            events,
            memory_bytes: held.memory_size as u64,
            disk_bytes: self.disk.as_ref().map_or(0, |disk| disk.log.size()),
            oldest: since.map(age),
            is_paused,
        }
    }

    /// When the first batch of the segment came in that has this one.
    fn stored_since(&self, sequence: u64) -> Option<i64> {
        let segments = self.disk.as_ref()?.log.first_of_segments();
        let behind = segments.partition_point(|one| one.first_sequence <= sequence);
        let segment = segments.get(behind.saturating_sub(1))?;
        (segment.first_time > 0).then_some(segment.first_time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_is_found_whatever_was_passed() {
        let mut arrivals = Arrivals::default();
        assert_eq!(arrivals.of(0), None);
        for sequence in 0..10_u64 {
            arrivals.note(sequence, sequence as i64 * GAP);
            // Too soon to be noted.
            arrivals.note(sequence, sequence as i64 * GAP + 1);
        }
        assert_eq!(arrivals.of(0), Some(0));
        assert_eq!(arrivals.of(7), Some(7 * GAP));
        assert_eq!(arrivals.of(6), None, "it was passed");
        assert_eq!(arrivals.of(100), Some(9 * GAP));
    }

    #[test]
    fn a_long_backlog_takes_little_memory() {
        let mut arrivals = Arrivals::default();
        let many = 100_000;
        for sequence in 0..many {
            arrivals.note(sequence, sequence as i64 * GAP);
        }
        assert!(arrivals.marks.len() <= MARKS_MAX);
        assert_eq!(arrivals.of(0), Some(0));
        let half = arrivals.of(many / 2).expect("noted") / GAP;
        let off = (many as i64 / 2 - half).unsigned_abs();
        assert!(off <= many / 250, "{off}");
    }
}
