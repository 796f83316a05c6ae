//! Reads a stream as a member of a consumer group.
//!
//! An entry that was read stays in the group's list of pending entries until it is acknowledged. After a connection is made, the
//! reader's own pending entries come first: those that are in flight are passed over, and the others come again. Entries that other consumers
//! have left for `claim_after` are taken over; those in flight are claimed anew before that, so that nobody else takes them.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use batch::{Source, Stream, json};
use bytes::Bytes;
use component::Limit;
use net::redis::{Value, Values};

use super::link::{Link, Server, failed};
use crate::messages::gather::Gathered;
use crate::messages::in_flight::InFlight;
use crate::messages::settings::Start;
use crate::messages::working::{MessageServer, ServerError};
use crate::reading::identity::Identity;

/// How many ids go into one command.
const IDS_AT_ONCE: usize = 1000;

/// How often it is looked for entries that others have left, at most and at least.
const CLAIM_MIN: Duration = Duration::from_secs(1);
const CLAIM_MAX: Duration = Duration::from_secs(60);

/// How many bits of an entry's number are for its place among those of one millisecond.
const SEQUENCE_BITS: u32 = 22;

/// The id of an entry: milliseconds, and a number among those of one millisecond.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct EntryId {
    millis: u64,
    sequence: u64,
}

impl EntryId {
    const ZERO: Self = Self {
        millis: 0,
        sequence: 0,
    };

    fn read(text: &[u8]) -> Option<Self> {
        let (millis, sequence) = std::str::from_utf8(text).ok()?.split_once('-')?;
        Some(Self {
            millis: millis.parse().ok()?,
            sequence: sequence.parse().ok()?,
        })
    }

    /// Its number in the stream of all entries; none where it has no room in 64 bits.
    fn number(self) -> Option<u64> {
        let fits = self.sequence >> SEQUENCE_BITS == 0 && self.millis >> (64 - SEQUENCE_BITS) == 0;
        fits.then_some(self.millis << SEQUENCE_BITS | self.sequence)
    }
}

impl fmt::Display for EntryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.millis, self.sequence)
    }
}

/// What is read next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    /// The reader's own pending entries behind this one.
    Own(EntryId),
    /// Those that others have left, from this one on.
    Left(EntryId),
    /// What nobody has read.
    New,
}

/// A server with a stream.
pub(super) struct StreamServer {
    server: Server,
    next: Next,
    stream: Arc<Stream>,
    /// Whether the group was there once.
    was_open: bool,
    /// The last entry that was there at the start.
    end: EntryId,
    looked: Instant,
    kept: Instant,
    /// Whether the server can tell what others have left.
    can_claim: bool,
}

impl StreamServer {
    pub(super) fn new(server: Server) -> Self {
        let key = server.settings.own.key.clone();
        let stream = stream(&server, &key, None);
        Self {
            next: Next::Own(EntryId::ZERO),
            stream,
            was_open: false,
            end: EntryId::ZERO,
            looked: Instant::now(),
            kept: Instant::now(),
            can_claim: true,
            server,
        }
    }

    fn key(&self) -> &[u8] {
        self.server.settings.own.key.as_bytes()
    }

    fn group(&self) -> &[u8] {
        self.server.settings.group.as_bytes()
    }

    fn claim_after(&self) -> Duration {
        self.server.settings.own.claim_after.get().0
    }

    /// Makes the group where it is not there.
    async fn create_group(&mut self, link: &mut Link) -> Result<(), ServerError> {
        let start = match (self.was_open, self.server.settings.start) {
            // It was there, and what has come since is not to be lost.
            (true, _) | (_, Start::Beginning) => "0".to_owned(),
            (_, Start::End) => "$".to_owned(),
            (_, Start::Time(millis)) => {
                let before = u64::try_from(millis).unwrap_or_default().checked_sub(1);
                before.map_or("0".to_owned(), |before| format!("{before}-{}", u64::MAX))
            }
        };
        let (key, group) = (self.key(), self.group());
        link.command(&[
            b"XGROUP",
            b"CREATE",
            key,
            group,
            start.as_bytes(),
            b"MKSTREAM",
        ]);
        let answer = link.any_answer().await?;
        match Values::new(&answer).next() {
            Some(Value::Error(text)) if !text.starts_with(b"BUSYGROUP") => Err(failed(text)),
            _ => Ok(()),
        }
    }

    async fn find_end(&mut self, link: &mut Link) -> Result<(), ServerError> {
        link.command(&[b"XINFO", b"STREAM", self.key()]);
        let answer = link.answer().await?;
        let mut values = Values::new(&answer);
        let count = values.array().unwrap_or_default();
        for _ in 0..count / 2 {
            match values.text() {
                Some(b"last-generated-id") => {
                    let id = values.text().and_then(EntryId::read);
                    self.end = id.unwrap_or(EntryId::ZERO);
                }
                _ => values.pass_over(1),
            }
        }
        Ok(())
    }

    /// Writes down commands that acknowledge; gives how many.
    fn acknowledging(&self, link: &mut Link, safe: &[EntryId]) -> usize {
        let command: [&[u8]; 3] = [b"XACK", self.key(), self.group()];
        self.with_ids(link, &command, safe, &[])
    }

    fn with_ids(
        &self,
        link: &mut Link,
        command: &[&[u8]],
        ids: &[EntryId],
        behind: &[&[u8]],
    ) -> usize {
        for ids in ids.chunks(IDS_AT_ONCE) {
            let texts: Vec<String> = ids.iter().map(EntryId::to_string).collect();
            let mut command = command.to_vec();
            command.extend(texts.iter().map(String::as_bytes));
            command.extend_from_slice(behind);
            link.command(&command);
        }
        ids.len().div_ceil(IDS_AT_ONCE)
    }

    /// Writes down the command that reads what is next.
    fn reading(&self, link: &mut Link) {
        let count = self.server.count.to_string();
        let consumer = self.server.consumer.as_bytes();
        let (key, group) = (self.key(), self.group());
        let from = match self.next {
            Next::New => ">".to_owned(),
            Next::Own(id) => id.to_string(),
            Next::Left(id) => {
                let (idle, id) = (self.claim_after().as_millis().to_string(), id.to_string());
                let command: [&[u8]; 8] = [
                    b"XAUTOCLAIM",
                    key,
                    group,
                    consumer,
                    idle.as_bytes(),
                    id.as_bytes(),
                    b"COUNT",
                    count.as_bytes(),
                ];
                return link.command(&command);
            }
        };
        link.command(&[
            b"XREADGROUP",
            b"GROUP",
            group,
            consumer,
            b"COUNT",
            count.as_bytes(),
            b"STREAMS",
            key,
            from.as_bytes(),
        ]);
    }

    /// Takes what was read, but for what is in flight; gives what comes next.
    fn take(
        &mut self,
        answer: &Bytes,
        safe: &mut Vec<EntryId>,
        in_flight: &InFlight<EntryId>,
        gathered: &mut Gathered<EntryId>,
    ) -> Result<Next, ServerError> {
        let mut values = Values::new(answer);
        let known: HashSet<EntryId> = match self.next {
            Next::New => HashSet::new(),
            _ => in_flight.tokens().copied().collect(),
        };
        if let Next::Left(_) = self.next {
            values.array().ok_or_else(no_answer)?;
            let cursor = values.text().and_then(EntryId::read);
            let cursor = cursor.ok_or_else(no_answer)?;
            self.take_entries(&mut values, &known, safe, gathered)?;
            return Ok(match cursor {
                EntryId::ZERO => Next::New,
                _ => Next::Left(cursor),
            });
        }
        // Of one stream, which may have nothing.
        if values.array().is_none() {
            return Ok(self.after_own());
        }
        values.array().ok_or_else(no_answer)?;
        values.text();
        let last = self.take_entries(&mut values, &known, safe, gathered)?;
        Ok(match (self.next, last) {
            (Next::Own(_), Some(last)) => Next::Own(last),
            _ => self.after_own(),
        })
    }

    fn after_own(&self) -> Next {
        match (self.next, self.can_claim) {
            (Next::Own(_), true) => Next::Left(EntryId::ZERO),
            _ => Next::New,
        }
    }

    /// Takes entries; gives the last one.
    fn take_entries(
        &mut self,
        values: &mut Values<'_>,
        known: &HashSet<EntryId>,
        safe: &mut Vec<EntryId>,
        gathered: &mut Gathered<EntryId>,
    ) -> Result<Option<EntryId>, ServerError> {
        let mut last = None;
        for _ in 0..values.array().ok_or_else(no_answer)? {
            // Before version 7, one that was deleted may be nothing.
            if values.array().is_none() {
                continue;
            }
            let id = values.text().and_then(EntryId::read);
            let id = id.ok_or_else(no_answer)?;
            last = Some(id);
            match values.array() {
                Some(count) if known.contains(&id) => values.pass_over(count),
                Some(count) => self.take_entry(id, values, count / 2, gathered),
                None => {
                    // It was deleted before it was delivered.
                    self.server.ctx.metrics.count("deleted_entries", 1);
                    safe.push(id);
                }
            }
        }
        Ok(last)
    }

    fn take_entry(
        &self,
        id: EntryId,
        values: &mut Values<'_>,
        fields: usize,
        gathered: &mut Gathered<EntryId>,
    ) {
        let own = &self.server.settings.own;
        let mut event = None;
        let mut others: Vec<(&[u8], &[u8])> = Vec::new();
        for _ in 0..fields {
            let name = values.text().unwrap_or_default();
            let value = values.text().unwrap_or_default();
            match name == own.field.as_bytes() && event.is_none() {
                true => event = Some(value),
                // Of several with the same name the first counts.
                false if others.iter().any(|(known, _)| *known == name) => {}
                false => others.push((name, value)),
            }
        }
        let of_time;
        let (stream, number) = match id.number() {
            Some(number) => (&self.stream, number),
            None => {
                of_time = stream(&self.server, &own.key, Some(id.millis));
                (&of_time, id.sequence.min(u64::MAX - 1))
            }
        };
        let write = |out: &mut Vec<u8>| match event {
            Some(event) => out.extend_from_slice(event),
            None => write_object(&others, out),
        };
        let about = |out: &mut Vec<u8>| {
            out.extend_from_slice(format!("{{\"id\":\"{id}\"").as_bytes());
            if event.is_some() && !others.is_empty() {
                out.extend_from_slice(b",\"fields\":");
                write_object(&others, out);
            }
            out.push(b'}');
        };
        gathered.push((stream, number), id, write, about);
    }

    /// Goes on without what others have left, where the server cannot tell.
    fn cannot_claim(&mut self, text: &[u8]) -> Result<(), ServerError> {
        if memchr::memmem::find(text, b"unknown command").is_none() {
            return Err(failed(text));
        }
        self.can_claim = false;
        self.next = Next::New;
        let limit = Limit::once("xautoclaim");
        self.server.ctx.diagnostics.warn_limited(limit, || {
            "the server has no command XAUTOCLAIM (Redis 6.2): entries that other consumers have left are not taken over".to_owned()
        });
        Ok(())
    }
}

/// The stream of all entries of a key, or of one millisecond.
fn stream(server: &Server, key: &str, millis: Option<u64>) -> Arc<Stream> {
    let (host, db) = (server.endpoint.to_string(), server.settings.own.db);
    let (db, millis) = (db.to_be_bytes(), millis.map(u64::to_be_bytes));
    let mut parts: Vec<&[u8]> = vec![b"redis", host.as_bytes(), &db, key.as_bytes()];
    parts.extend(millis.iter().map(|millis| &millis[..]));
    let source = Source::Topic {
        name: key.into(),
        partition: 0,
    };
    Arc::new(Stream::new(Identity::new(parts).id(), source))
}

/// Writes a JSON object of texts; what is not UTF-8 is replaced by U+FFFD.
fn write_object(fields: &[(&[u8], &[u8])], out: &mut Vec<u8>) {
    let text = |bytes: &[u8], out: &mut Vec<u8>| {
        json::write_string(out, String::from_utf8_lossy(bytes).as_bytes());
    };
    out.push(b'{');
    for (number, (name, value)) in fields.iter().enumerate() {
        if number > 0 {
            out.push(b',');
        }
        text(name, out);
        out.push(b':');
        text(value, out);
    }
    out.push(b'}');
}

impl MessageServer for StreamServer {
    type Token = EntryId;
    type Link = Link;

    fn name(&self) -> String {
        self.server.endpoint.to_string()
    }

    async fn connect(&mut self, _: &mut InFlight<EntryId>) -> Result<Link, ServerError> {
        let mut link = self.server.link().await?;
        self.create_group(&mut link).await?;
        if !self.was_open && self.server.settings.own.until.is_some() {
            self.find_end(&mut link).await?;
        }
        self.was_open = true;
        self.next = Next::Own(EntryId::ZERO);
        Ok(link)
    }

    async fn read(
        &mut self,
        link: &mut Link,
        safe: &mut Vec<EntryId>,
        in_flight: &InFlight<EntryId>,
        gathered: &mut Gathered<EntryId>,
    ) -> Result<bool, ServerError> {
        let pause = (self.claim_after() / 10).clamp(CLAIM_MIN, CLAIM_MAX);
        if self.next == Next::New && self.can_claim && self.looked.elapsed() >= pause {
            self.next = Next::Left(EntryId::ZERO);
        }
        if let Next::Left(_) = self.next {
            self.looked = Instant::now();
        }
        let acknowledged = self.acknowledging(link, safe);
        self.reading(link);
        for _ in 0..acknowledged {
            link.answer().await?;
        }
        safe.clear();
        let answer = link.any_answer().await?;
        if let Some(Value::Error(text)) = Values::new(&answer).next() {
            return match self.next {
                Next::Left(_) => self.cannot_claim(text).map(|()| false),
                _ => Err(failed(text)),
            };
        }
        let before = self.next;
        self.next = self.take(&answer, safe, in_flight, gathered)?;
        self.server.learn(gathered.len(), gathered.values.len());
        if before != Next::New {
            return Ok(false);
        }
        let last = gathered.messages.last().map(|last| last.token);
        let is_finite = self.server.settings.own.until.is_some();
        if last.is_none() && !is_finite {
            self.server.rest().await;
        }
        Ok(last.is_none_or(|last| last >= self.end))
    }

    async fn acknowledge(
        &mut self,
        link: &mut Link,
        safe: &mut Vec<EntryId>,
    ) -> Result<(), ServerError> {
        for _ in 0..self.acknowledging(link, safe) {
            link.answer().await?;
        }
        safe.clear();
        Ok(())
    }

    async fn keep(
        &mut self,
        link: &mut Link,
        in_flight: &InFlight<EntryId>,
    ) -> Result<(), ServerError> {
        if self.kept.elapsed() < self.claim_after() / 4 {
            return Ok(());
        }
        self.kept = Instant::now();
        let ids: Vec<EntryId> = in_flight.tokens().copied().collect();
        let consumer = self.server.consumer.as_bytes();
        let command: [&[u8]; 5] = [b"XCLAIM", self.key(), self.group(), consumer, b"0"];
        for _ in 0..self.with_ids(link, &command, &ids, &[b"JUSTID"]) {
            link.answer().await?;
        }
        Ok(())
    }

    async fn lag(&mut self, link: &mut Link) -> Result<Option<u64>, ServerError> {
        link.command(&[b"XINFO", b"GROUPS", self.key()]);
        let answer = link.answer().await?;
        Ok(lag_of(&answer, self.group()))
    }
}

/// How many entries of a group are pending or not read, if the server knows (Redis 7.0).
fn lag_of(answer: &[u8], group: &[u8]) -> Option<u64> {
    let mut values = Values::new(answer);
    for _ in 0..values.array()? {
        let (mut is_it, mut pending, mut lag) = (false, None, None);
        for _ in 0..values.array()? / 2 {
            let name = values.text()?;
            match (name, values.next()?) {
                (b"name", Value::Text(text)) => is_it = text == group,
                (b"pending", Value::Number(number)) => pending = u64::try_from(number).ok(),
                (b"lag", Value::Number(number)) => lag = u64::try_from(number).ok(),
                (_, Value::Array(count)) => values.pass_over(count),
                _ => {}
            }
        }
        if is_it {
            return Some(pending? + lag?);
        }
    }
    None
}

fn no_answer() -> ServerError {
    ServerError::Broken("the server sent another answer than was expected".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_numbers_where_they_have_room() {
        let id = |text: &[u8]| EntryId::read(text).expect("an id");
        assert_eq!(id(b"5-3").number(), Some(5 << 22 | 3));
        assert_eq!(id(b"5-4194303").number(), Some((6 << 22) - 1));
        assert_eq!(id(b"5-4194304").number(), None);
        assert_eq!(id(b"4398046511104-0").number(), None);
        assert_eq!(id(b"5-3").to_string(), "5-3");
        for nonsense in ["", "5", "5-", "-3", "5-3-1", "a-1"] {
            assert_eq!(EntryId::read(nonsense.as_bytes()), None, "{nonsense}");
        }
    }

    #[test]
    fn the_lag_is_that_of_the_group() {
        let answer = b"*2\r\n*4\r\n$4\r\nname\r\n$1\r\na\r\n$7\r\npending\r\n:9\r\n\
            *8\r\n$4\r\nname\r\n$1\r\nb\r\n$7\r\npending\r\n:2\r\n$9\r\nconsumers\r\n*1\r\n:1\r\n$3\r\nlag\r\n:3\r\n";
        assert_eq!(lag_of(answer, b"b"), Some(5));
        assert_eq!(lag_of(answer, b"a"), None, "an old server does not tell");
        assert_eq!(lag_of(answer, b"c"), None);
    }
}
