//! The events of a message: checked as a whole, then listed for batches.
//!
//! A message is checked to its end before the first event is handed on, and its events are listed on the way, but no more than
//! [`LISTED_MAX`]: an empty record takes three bytes, and a list of them would take ten times the memory of the message. What
//! is beyond is checked, and read again when its turn comes. Records stay the bytes that they were; copied are only those
//! whose keys are put in order (see [`batch::msgpack`]). Entries may lie in several buffers, each of them in one.

use batch::msgpack::{Checked, Checks, Head, Value, find, head, normalise, read};
use batch::{BatchBuilder, Span, json::Scan};
use bytes::Bytes;

use super::ForwardError;
use super::buffers::{self, Position};
use crate::{BATCH_BYTES_MAX, BATCH_EVENTS_MAX};

/// How many events are listed at a time.
const LISTED_MAX: usize = 4 * BATCH_EVENTS_MAX;

/// How many bytes of rewritten records are kept at a time, the last record not counted.
const SIDE_BYTES_MAX: usize = 1 << 20;

/// The times with which Fluent Bit marks the start and the end of a group: −1 and −2 as 32-bit numbers. What is common to the
/// events of the group is the record of the first one.
const GROUP_MARKS: [EventTime; 2] = [
    EventTime::At(0xFFFF_FFFF * 1_000_000_000),
    EventTime::At(0xFFFF_FFFE * 1_000_000_000),
];

/// When an event happened, as its sender says.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum EventTime {
    /// Nanoseconds since 1970.
    At(i64),
    /// The sender does not say: nil, or zero, as senders without a clock write it.
    Absent,
    /// Whole seconds that are no time between 1678 and 2262; likely they are another unit.
    BeyondRange(i64),
    /// Something else that is no time.
    Invalid,
}

/// The events of a message. Reused from message to message, so that its memory stays warm.
#[derive(Debug, Default)]
pub struct Events {
    checks: Checks,
    /// Some record may have one of the keys that are looked for.
    has_key: bool,
    /// How many events the message has.
    count: usize,
    /// Those that are listed, from number `first` on.
    list: Vec<Event>,
    first: usize,
    /// The metadata of those that have some, by their place in the list.
    metadata: Vec<(usize, MapSpan)>,
    /// What had to be rewritten, while the list is made and then for the batches.
    rewritten: Vec<u8>,
    side: Bytes,
    dotted: bool,
    /// Where the list ends in the message.
    rest: Rest,
    /// The number of the buffer that is being read.
    reading: u32,
    /// None while events are listed: how many were only checked.
    checked: Option<usize>,
}

#[derive(Debug, Clone, Copy)]
struct Event {
    record: MapSpan,
    time: EventTime,
}

/// Where a map lies, in the message or beside it.
#[derive(Debug, Clone, Copy)]
struct MapSpan {
    start: u32,
    len: u32,
    /// The number of the buffer, or [`BESIDE`].
    buffer: u32,
}

/// The number of what lies beside the message.
const BESIDE: u32 = u32::MAX;

/// Entries that are still to be listed.
#[derive(Debug, Clone, Copy)]
struct Rest {
    at: Position,
    until: Until,
}

/// Where entries end.
#[derive(Debug, Clone, Copy)]
pub(super) enum Until {
    /// So many are still to come.
    Count(u64),
    /// Here.
    End(Position),
}

impl Default for Rest {
    fn default() -> Self {
        Self {
            at: Position::default(),
            until: Until::Count(0),
        }
    }
}

impl Rest {
    fn is_empty(self) -> bool {
        match self.until {
            Until::Count(left) => left == 0,
            Until::End(end) => self.at >= end,
        }
    }
}

impl Events {
    /// Events whose records are checked so.
    pub fn new(checks: Checks) -> Self {
        Self {
            checks,
            ..Self::default()
        }
    }

    /// Whether some record may have one of the keys that are looked for. Where this says no, none has.
    pub fn has_key(&self) -> bool {
        self.has_key
    }

    /// Reads the entries of a packed message, forgetting the events before; gives how many there are. They are a range of the
    /// buffers as if these were one.
    ///
    /// # Errors
    /// What is wrong with one of them. There are no events then.
    pub fn read_packed(
        &mut self,
        buffers: &[Bytes],
        entries: std::ops::Range<usize>,
    ) -> Result<usize, ForwardError> {
        self.clear();
        let place = |at| buffers::position(buffers, at);
        let until = Until::End(place(entries.end));
        self.read(buffers, place(entries.start), until)?;
        Ok(self.count)
    }

    /// How many events there are.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Adds the events from the one numbered `from` on, as many as the batch takes; gives the number behind the last one,
    /// with which the next call goes on. `message` are the buffers that were read. Event `n` starts at `first + n` in its stream. For each
    /// event that was added, `added` is given its time and its metadata, a map in normal form, where that is not empty and holds more
    /// than the id of the event, `_id`.
    pub fn push(
        &mut self,
        message: &[Bytes],
        from: usize,
        first: u64,
        builder: &mut BatchBuilder,
        mut added: impl FnMut(EventTime, Option<Bytes>),
    ) -> usize {
        if from < self.count && from == self.first + self.list.len() {
            self.first = from;
            if let Err(error) = self.fill(message) {
                unreachable!("the message was checked: {error}");
            }
        }
        let mut names = Names::default();
        if self.dotted {
            builder.dotted_keys();
        }
        let skipped = from - self.first;
        let with_less = |(at, _): &(usize, MapSpan)| *at < skipped;
        let mut metadata = &self.metadata[self.metadata.partition_point(with_less)..];
        let mut next = from;
        for event in &self.list[skipped..] {
            if builder.len() >= BATCH_EVENTS_MAX || builder.size() >= BATCH_BYTES_MAX {
                break;
            }
            let span = names.span(event.record, message, &self.side, builder);
            let place = first + next as u64;
            builder.push(span, place, place + 1);
            let mut of_event = None;
            if let Some(((at, place), rest)) = metadata.split_first()
                && *at == next - self.first
            {
                metadata = rest;
                let bytes = place.of(message, &self.side);
                let id = id_in(&bytes).filter(|id| {
                    let mut id_span = names.span(*place, message, &self.side, builder);
                    id_span.start += id.at.start as u32;
                    id_span.len = id.at.len() as u32;
                    builder.id_last(id_span).is_ok()
                });
                of_event = (!id.is_some_and(|id| id.is_alone)).then_some(bytes);
            }
            added(event.time, of_event);
            next += 1;
        }
        if next == self.count {
            self.side = Bytes::new();
        }
        next
    }

    /// Forgets all events.
    pub(super) fn clear(&mut self) {
        self.list.clear();
        self.metadata.clear();
        self.rewritten.clear();
        *self = Self {
            checks: std::mem::take(&mut self.checks),
            list: std::mem::take(&mut self.list),
            metadata: std::mem::take(&mut self.metadata),
            rewritten: std::mem::take(&mut self.rewritten),
            ..Self::default()
        };
    }

    /// Reads the entries from `at` on; gives where they end.
    pub(super) fn read(
        &mut self,
        buffers: &[Bytes],
        at: Position,
        until: Until,
    ) -> Result<Position, ForwardError> {
        self.rest = Rest { at, until };
        let read = self.check(buffers);
        if read.is_err() {
            self.clear();
        }
        read
    }

    fn check(&mut self, buffers: &[Bytes]) -> Result<Position, ForwardError> {
        self.fill(buffers)?;
        self.count = self.list.len();
        let mut end = self.rest;
        if !end.is_empty() {
            self.checked = Some(0);
            let scanned = self.scan(buffers, end);
            self.count += self.checked.take().unwrap_or_default();
            end = scanned?;
        }
        Ok(end.at)
    }

    /// Reads the time and the record of a message that is one event; gives where they end.
    pub(super) fn read_one(&mut self, bytes: &[u8], at: usize) -> Result<usize, ForwardError> {
        let (time, record) = time(bytes, at)?;
        self.reading = 0;
        let end = self.record(bytes, record, time)?;
        self.count = 1;
        self.finish_list();
        Ok(end)
    }

    /// Lists the events behind those that are listed, instead of them.
    fn fill(&mut self, buffers: &[Bytes]) -> Result<(), ForwardError> {
        self.list.clear();
        self.metadata.clear();
        self.rest = self.scan(buffers, self.rest)?;
        self.finish_list();
        Ok(())
    }

    fn finish_list(&mut self) {
        self.side = if self.rewritten.is_empty() {
            Bytes::new()
        } else {
            Bytes::copy_from_slice(&self.rewritten)
        };
        self.rewritten.clear();
        self.rewritten.shrink_to(SIDE_BYTES_MAX);
    }

    /// Reads entries to their end or until the list is full; gives what is left.
    fn scan(&mut self, buffers: &[Bytes], mut rest: Rest) -> Result<Rest, ForwardError> {
        while !rest.is_empty() && !self.is_full() {
            let number = rest.at.buffer;
            self.reading = number as u32;
            let scanned = self.scan_buffer(&buffers[number], &mut rest);
            scanned.map_err(|error| error.behind(buffers::len(&buffers[..number])))?;
            rest.at = rest.at.normal(buffers);
        }
        Ok(rest)
    }

    /// Reads the entries of a buffer: one at least.
    fn scan_buffer(&mut self, bytes: &[u8], rest: &mut Rest) -> Result<(), ForwardError> {
        let (bytes, mut left) = match rest.until {
            Until::Count(left) => (bytes, left),
            Until::End(end) if end.buffer == rest.at.buffer => (&bytes[..end.at], u64::MAX),
            Until::End(_) => (bytes, u64::MAX),
        };
        loop {
            rest.at.at = self.entry(bytes, rest.at.at)?;
            left -= 1;
            if rest.at.at >= bytes.len() || left == 0 || self.is_full() {
                break;
            }
        }
        if let Until::Count(count) = &mut rest.until {
            *count = left;
        }
        Ok(())
    }

    fn is_full(&self) -> bool {
        let is_listed = self.checked.is_none();
        is_listed && (self.list.len() >= LISTED_MAX || self.rewritten.len() >= SIDE_BYTES_MAX)
    }

    /// Reads the entry at `at`; gives where it ends.
    #[inline]
    fn entry(&mut self, bytes: &[u8], at: usize) -> Result<usize, ForwardError> {
        let (Head::Array(2), first) = head(bytes, at)? else {
            let what = "an array of a time and a record as an entry";
            return Err(ForwardError::expected(at, what));
        };
        if !matches!(bytes.get(first), Some(0x90..=0x9F | 0xDC | 0xDD)) {
            let (time, record) = time(bytes, first)?;
            return self.record(bytes, record, time);
        }
        let (Head::Array(2), first) = head(bytes, first)? else {
            let what = "an array of a time and metadata at the start of an entry";
            return Err(ForwardError::expected(first, what));
        };
        let (mut time, metadata) = time(bytes, first)?;
        if GROUP_MARKS.contains(&time) {
            time = EventTime::Absent;
        }
        let Checked { scan, end, .. } = self.checks.map_at(bytes, metadata)?;
        let is_empty = matches!(head(bytes, metadata)?, (Head::Map(0), _));
        if !is_empty && self.checked.is_none() {
            let place = self.place(bytes, metadata..end, scan);
            self.metadata.push((self.list.len(), place));
        }
        self.record(bytes, end, time)
    }

    /// Reads the record at `at`; gives where it ends.
    #[inline]
    fn record(&mut self, bytes: &[u8], at: usize, time: EventTime) -> Result<usize, ForwardError> {
        let Checked { scan, end, has_key } = self.checks.map_at(bytes, at)?;
        self.dotted |= scan.dotted_keys;
        self.has_key |= has_key;
        if let Some(checked) = &mut self.checked {
            *checked += 1;
            return Ok(end);
        }
        let record = self.place(bytes, at..end, scan);
        self.list.push(Event { record, time });
        Ok(end)
    }

    /// Where a map lies, in normal form.
    #[inline]
    fn place(&mut self, bytes: &[u8], map: std::ops::Range<usize>, scan: Scan) -> MapSpan {
        self.dotted |= scan.dotted_keys;
        if !scan.rewrite {
            return MapSpan {
                start: map.start as u32,
                len: map.len() as u32,
                buffer: self.reading,
            };
        }
        let start = self.rewritten.len();
        normalise(&bytes[map], &mut self.rewritten);
        MapSpan {
            start: start as u32,
            len: (self.rewritten.len() - start) as u32,
            buffer: BESIDE,
        }
    }
}

impl MapSpan {
    fn of(self, message: &[Bytes], side: &Bytes) -> Bytes {
        let start = self.start as usize;
        let buffer = match self.buffer {
            BESIDE => side,
            number => &message[number as usize],
        };
        buffer.slice(start..start + self.len as usize)
    }
}

/// The time at `at`, and where it ends.
#[inline]
fn time(bytes: &[u8], at: usize) -> Result<(EventTime, usize), ForwardError> {
    let (time, body) = head(bytes, at)?;
    let time = match time {
        Head::Ext(0, 8) => {
            let time = event_time(&bytes[body..body + 8]);
            return Ok((time, body + 8));
        }
        Head::Int(0) | Head::Nil => EventTime::Absent,
        Head::Int(seconds) => match seconds.checked_mul(1_000_000_000) {
            Some(nanos) => EventTime::At(nanos),
            None => EventTime::BeyondRange(seconds),
        },
        Head::F64(seconds) => {
            // Floats of this size are 240 ns apart: what is beyond microseconds is noise.
            let micros = (seconds * 1e6).round();
            let nanos = match micros.is_finite() {
                true => (micros as i64).checked_mul(1000),
                false => None,
            };
            nanos.map_or(EventTime::Invalid, EventTime::At)
        }
        Head::UInt(_) => EventTime::Invalid,
        _ => {
            return Err(ForwardError::expected(
                at,
                "a time (an integer, a float or an EventTime)",
            ));
        }
    };
    Ok((time, body))
}

/// Seconds and nanoseconds of 32 bits each, with the first byte first.
#[inline]
fn event_time(data: &[u8]) -> EventTime {
    let word = |bytes: &[u8]| {
        let word = bytes
            .iter()
            .fold(0, |word, &byte| word << 8 | u32::from(byte));
        i64::from(word)
    };
    let (seconds, nanos) = (word(&data[..4]), word(&data[4..]));
    match (seconds, nanos) {
        (0, 0) => EventTime::Absent,
        (_, ..1_000_000_000) => EventTime::At(seconds * 1_000_000_000 + nanos),
        _ => EventTime::Invalid,
    }
}

/// What a batch calls the buffers that it needs.
#[derive(Default)]
struct Names {
    /// What lies beside the message.
    beside: Option<u32>,
    /// The last one of the message, by its number.
    last: Option<(u32, u32)>,
}

impl Names {
    /// Where a map lies for a batch.
    #[inline]
    fn span(
        &mut self,
        place: MapSpan,
        message: &[Bytes],
        side: &Bytes,
        builder: &mut BatchBuilder,
    ) -> Span {
        let MapSpan {
            start,
            len,
            buffer: number,
        } = place;
        let buffer = match self.last {
            Some((of, name)) if of == number => name,
            _ if number == BESIDE => *self
                .beside
                .get_or_insert_with(|| builder.buffer(side.clone())),
            _ => {
                let name = builder.shared_buffer(&message[number as usize]);
                self.last = Some((number, name));
                name
            }
        };
        Span { buffer, start, len }
    }
}

/// The id of an event in its metadata.
struct MetadataId {
    /// Where its text lies.
    at: std::ops::Range<usize>,
    /// The metadata has nothing else.
    is_alone: bool,
}

/// The text `_id` of a map of metadata, with which the output `forward` of Millpond carries the id of an event.
fn id_in(metadata: &[u8]) -> Option<MetadataId> {
    let value = find(metadata, b"_id")?;
    let Value::Str(text) = read(metadata, value.start).0 else {
        return None;
    };
    let at = value.end - text.len()..value.end;
    let is_alone = matches!(head(metadata, 0), Ok((Head::Map(1), _)));
    Some(MetadataId { at, is_alone })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_of_a_message_is_bounded() {
        // Records of three bytes, and records with keys that are rewritten.
        let small = [0x92, 1, 0x80].repeat(1_000_000);
        let rewritten = [0x92, 1, 0x81, 1, 1].repeat(1_000_000);
        let mut events = Events::default();
        for message in [small, rewritten] {
            let len = message.len();
            let count = events.read_packed(&[message.into()], 0..len);
            assert_eq!(count, Ok(1_000_000));
            assert!(events.list.capacity() <= 2 * LISTED_MAX);
            assert!(events.rewritten.capacity() <= 2 * SIDE_BYTES_MAX);
            assert!(events.side.len() <= SIDE_BYTES_MAX + 3);
        }
    }
}
