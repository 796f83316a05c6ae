//! The objects that are open, and when they end.
//!
//! There is one open object for each path. It ends when it has its size or age, when too many are open or hold too much memory, when the engine is in
//! a hurry, or where an earlier run ended it ([`Known::Begun`]); always between two batches, so that a range of batches says what is in it. Then
//! it waits until its batches are settled, is noted in the ledger, and is completed.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use component::{Anchor, Encoded, Limit, Warning, WriteError};
use jiff::Timestamp;
use stores::Location;

use super::format::{Content, Format};
use super::ledger::{Known, Ledger, Record};
use super::traffic::{Sending, Traffic};

/// The size of a part. The least that S3 takes is 5 MiB; some stores want all of them to be of one size.
pub const PART_BYTES: usize = 8 << 20;

/// What open objects hold in memory together, besides what compressors hold.
const BUFFERED_MAX: usize = 64 << 20;

/// When objects end, and what they are.
pub struct ObjectSettings {
    pub location: Location,
    pub format: Format,
    /// What their names end with.
    pub ending: String,
    /// Bytes of rows before compression.
    pub size_max: u64,
    pub age_max: Duration,
    pub open_max: usize,
    /// Tells the names of this run from those of others.
    pub run: String,
}

/// The objects of an output.
pub struct Objects {
    settings: ObjectSettings,
    traffic: Traffic,
    ledger: Ledger,
    open: HashMap<Arc<str>, OpenObject>,
    /// By the number of their way to the store.
    ended: BTreeMap<u64, EndedObject>,
    /// The sequence behind that of the last batch.
    next: u64,
    number: u64,
    was_hurried: bool,
    counters: Counters,
    pub warnings: Vec<Warning>,
}

#[derive(Default)]
struct Counters {
    objects: u64,
    repeated: u64,
}

struct OpenObject {
    name: Arc<str>,
    first: u64,
    last: u64,
    /// The last batch with rows for it, where an earlier run has said which.
    fixed_end: Option<u64>,
    opened: Instant,
    /// Bytes of its rows.
    size: u64,
    content: Content,
    /// What is not on its way.
    buffer: Vec<u8>,
    sending: Sending,
}

struct EndedObject {
    record: Record,
    /// Until it is noted and completed.
    waiting: Option<(Sending, Bytes)>,
}

impl Objects {
    pub fn new(settings: ObjectSettings, traffic: Traffic) -> Self {
        Self {
            settings,
            traffic,
            ledger: Ledger::default(),
            open: HashMap::new(),
            ended: BTreeMap::new(),
            next: 0,
            number: 0,
            was_hurried: false,
            counters: Counters::default(),
            warnings: Vec::new(),
        }
    }

    /// Goes on where an earlier run ended.
    pub fn begin(&mut self, anchor: Option<Arc<dyn Anchor>>) {
        let (ledger, error) = Ledger::open(anchor);
        self.ledger = ledger;
        if let Some(error) = error {
            let text = format!(
                "the list of objects of the last run cannot be read: {error}; events of objects that were complete may be written a second time"
            );
            self.warnings
                .push(Warning::limited(Limit::once("ledger"), text));
        }
    }

    /// The sequence behind that of the last batch, for batches without one.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Takes the rows of a batch.
    ///
    /// # Errors
    /// Why nothing gets to the store at the moment; then nothing was taken. Or the compressor does not work.
    pub fn take(&mut self, encoded: &Encoded, sequence: u64) -> Result<(), WriteError> {
        if let Some(trouble) = self.traffic.trouble() {
            return Err(trouble);
        }
        self.next = sequence + 1;
        for part in &encoded.parts {
            let rows = &encoded.bytes[part.bytes.clone()];
            self.add(&part.destination, rows, part.rows.len(), sequence)
                .map_err(|error| WriteError::Fatal(format!("cannot encode events: {error}")))?;
        }
        Ok(())
    }

    /// Whether more may be taken.
    pub fn has_room(&self) -> bool {
        self.traffic.has_room()
    }

    fn add(&mut self, path: &Arc<str>, rows: &[u8], count: usize, sequence: u64) -> io::Result<()> {
        let (name, fixed_end) = match self.ledger.known(path, sequence) {
            Known::Complete => {
                self.counters.repeated += count as u64;
                return Ok(());
            }
            // In another format it is another object.
            Known::Begun { name, last } if name.ends_with(&*self.settings.ending) => {
                (Some(name), Some(last))
            }
            Known::Begun { .. } | Known::New => (None, None),
        };
        let size_max = self.settings.size_max;
        if let Some(open) = self.open.get(path)
            && sequence > open.last
            && (open.fixed_end != fixed_end || (fixed_end.is_none() && open.size >= size_max))
        {
            self.end(path)?;
        }
        if !self.open.contains_key(path) {
            let name = name.unwrap_or_else(|| self.name());
            let object = self.open(path, name, fixed_end, sequence)?;
            self.open.insert(path.clone(), object);
        }
        let Some(open) = self.open.get_mut(path) else {
            return Ok(());
        };
        open.last = sequence;
        open.size += rows.len() as u64;
        open.content.write(rows, &mut open.buffer)?;
        open.send_parts();
        Ok(())
    }

    fn open(
        &self,
        path: &str,
        name: Arc<str>,
        fixed_end: Option<u64>,
        sequence: u64,
    ) -> io::Result<OpenObject> {
        let whole = match path.is_empty() {
            true => name.to_string(),
            false => format!("{path}/{name}"),
        };
        let mut buffer = Vec::new();
        Ok(OpenObject {
            name,
            first: sequence,
            last: sequence,
            fixed_end,
            opened: Instant::now(),
            size: 0,
            content: self.settings.format.begin(&mut buffer)?,
            buffer,
            sending: self.traffic.begin(self.settings.location.key(&whole)),
        })
    }

    /// A name that no other object has.
    fn name(&mut self) -> Arc<str> {
        let now = Timestamp::try_from(SystemTime::now()).unwrap_or(Timestamp::UNIX_EPOCH);
        self.number += 1;
        let time = now.strftime("%Y%m%dT%H%M%SZ");
        let (run, number, ending) = (&self.settings.run, self.number, &self.settings.ending);
        format!("{time}-{run}-{number:06}{ending}").into()
    }

    fn end(&mut self, path: &Arc<str>) -> io::Result<()> {
        let Some(mut open) = self.open.remove(path) else {
            return Ok(());
        };
        open.content.finish(&mut open.buffer)?;
        open.send_parts();
        let record = Record {
            path: path.to_string(),
            name: open.name.to_string(),
            first: open.first,
            last: open.last,
            complete: false,
        };
        let waiting = Some((open.sending, Bytes::from(open.buffer)));
        let id = waiting.as_ref().map_or(0, |(sending, _)| sending.id);
        self.ended.insert(id, EndedObject { record, waiting });
        Ok(())
    }

    /// Does what is due. All batches that were taken and whose sequence is below the result are safe.
    ///
    /// # Errors
    /// Why nothing gets to the store at the moment, or the ledger cannot be written.
    pub fn tend(&mut self, hurry: bool) -> Result<u64, WriteError> {
        let is_new_hurry = hurry && !self.was_hurried;
        self.was_hurried = hurry;
        let ended = self.end_due(is_new_hurry);
        ended.map_err(|error| WriteError::Fatal(format!("cannot encode events: {error}")))?;
        if !self.ended.is_empty() {
            self.go_on()?;
        }
        match self.traffic.trouble() {
            Some(trouble) => Err(trouble),
            None => Ok(self.safe()),
        }
    }

    /// Goes on with objects that have ended: they are noted, completed, and noted as complete.
    fn go_on(&mut self) -> Result<(), WriteError> {
        for id in self.traffic.take_complete() {
            if let Some(object) = self.ended.get_mut(&id) {
                object.record.complete = true;
                self.ledger.note(object.record.clone());
            }
        }
        let settled = self.ledger.settled();
        let ready = |object: &EndedObject| object.waiting.is_some() && object.record.last < settled;
        for object in self.ended.values().filter(|object| ready(object)) {
            self.ledger.note(object.record.clone());
        }
        self.ledger.save().map_err(|error| {
            WriteError::Retry(format!("the list of objects cannot be written: {error}"))
        })?;
        for object in self.ended.values_mut() {
            if ready(object)
                && let Some((sending, rest)) = object.waiting.take()
            {
                sending.complete(rest);
            }
        }
        let before = self.ended.len();
        self.ended.retain(|_, object| !object.record.complete);
        self.counters.objects += (before - self.ended.len()) as u64;
        Ok(())
    }

    /// The lowest batch that is in an object which is not complete; the next one where there is none.
    fn safe(&self) -> u64 {
        let open = self.open.values().map(|object| object.first);
        let ended = self.ended.values().map(|object| object.record.first);
        open.chain(ended).fold(self.next, u64::min)
    }

    fn end_due(&mut self, all: bool) -> io::Result<()> {
        let due = self.open.iter().filter(|(_, open)| match open.fixed_end {
            Some(end) => self.next > end,
            None => {
                all || open.size >= self.settings.size_max
                    || open.opened.elapsed() >= self.settings.age_max
            }
        });
        let due: Vec<Arc<str>> = due.map(|(path, _)| path.clone()).collect();
        due.iter().try_for_each(|path| self.end(path))?;
        while self.open.len() > self.settings.open_max {
            // The one without events for longest.
            let Some(path) = self.choose(|open| u64::MAX - open.last) else {
                break;
            };
            self.end(&path)?;
        }
        while self.buffered() > BUFFERED_MAX {
            let Some(path) = self.choose(|open| open.held() as u64) else {
                break;
            };
            self.end(&path)?;
        }
        Ok(())
    }

    fn buffered(&self) -> usize {
        self.open.values().map(OpenObject::held).sum()
    }

    /// The path of the object with the highest rank, of those that may end at any time.
    fn choose(&self, rank: impl Fn(&OpenObject) -> u64) -> Option<Arc<str>> {
        let open = self.open.iter();
        let open = open.filter(|(_, object)| object.fixed_end.is_none());
        let chosen = open.max_by_key(|(_, object)| rank(object));
        chosen.map(|(path, _)| path.clone())
    }

    /// Ends all objects. One that an earlier run has begun and whose batches have not all come is left to the next run.
    ///
    /// # Errors
    /// The compressor does not work.
    pub fn end_all(&mut self) -> Result<(), WriteError> {
        let ended = self.end_due(true);
        ended.map_err(|error| WriteError::Fatal(format!("cannot encode events: {error}")))
    }

    /// Whether an object is on its way.
    pub fn has_ended(&self) -> bool {
        !self.ended.is_empty()
    }

    /// Waits until something may have changed, for a while at most.
    pub fn traffic(&self) -> &Traffic {
        &self.traffic
    }

    pub fn take_counters(&mut self) -> Vec<(&'static str, u64)> {
        let Counters { objects, repeated } = std::mem::take(&mut self.counters);
        vec![
            ("objects", objects),
            ("repeated", repeated),
            ("sent_bytes", self.traffic.take_sent()),
        ]
    }
}

impl OpenObject {
    /// Bytes that are not on their way.
    fn held(&self) -> usize {
        self.buffer.len() + self.content.held()
    }

    /// Sends what fills whole parts. The last bytes stay, so that there is something left to complete it with.
    fn send_parts(&mut self) {
        while self.buffer.len() > PART_BYTES {
            let rest = self.buffer.split_off(PART_BYTES);
            let part = std::mem::replace(&mut self.buffer, rest);
            self.sending.part(part.into());
        }
    }
}
