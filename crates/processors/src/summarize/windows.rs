//! Groups of events by time and key, and what is worked out of each.
//!
//! A window is open until the time of events has gone beyond its end by the lateness. That time is the latest one of any event, but no later than the event was received: one with a
//! time in the future closes nothing before its time.

use crate::remembered::{
    Fingerprint, Fingerprinted, SENSELESS, SavedBytes, SipKey, SlotTable, save_text,
};

use super::functions::{Plan, Work};

const VERSION: u64 = 2;

/// So many windows are open at most, once a batch is done.
const WINDOWS_MAX: usize = 10_000;

/// Where windows begin and end, in nanoseconds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Span {
    /// How long a window is; none where there is a single one.
    pub every: Option<i64>,
    /// How long it stays open behind its end; none where it does until the end of the run.
    pub lateness: Option<i64>,
}

impl Span {
    /// Where the window of a time begins.
    #[inline]
    pub fn start(&self, time: i64) -> i64 {
        self.every
            .map_or(0, |every| time.saturating_sub(time.rem_euclid(every)))
    }

    /// Where the window ends that begins there.
    pub fn end(&self, start: i64) -> i64 {
        self.every
            .map_or(i64::MAX, |every| start.saturating_add(every))
    }
}

/// A key, with what is worked out of its events.
#[derive(Debug, Clone)]
struct Group {
    fingerprint: Fingerprint,
    /// Where its values lie among those of the window.
    key: (usize, usize),
}

impl Fingerprinted for Group {
    fn fingerprint(&self) -> &Fingerprint {
        &self.fingerprint
    }
}

/// The events of a stretch of time.
#[derive(Debug, Clone)]
pub(super) struct Window {
    /// Where it begins.
    pub start: i64,
    /// A number made of the id of its first event.
    pub first: u64,
    /// How many events it has, and a number made of the id of the last one; where there is a single window.
    pub extent: (u64, u64),
    table: SlotTable,
    groups: Vec<Group>,
    /// The values of all keys, one after the other.
    keys: Vec<u8>,
    /// What each task has of each group, in the order of these.
    works: Vec<Work>,
    /// What tasks have of events whose key found no room; empty where there are none.
    others: Vec<Work>,
}

impl Window {
    fn new(start: i64, first: u64) -> Self {
        Self {
            start,
            first,
            extent: (0, 0),
            table: SlotTable::small(),
            groups: Vec::new(),
            keys: Vec::new(),
            works: Vec::new(),
            others: Vec::new(),
        }
    }

    /// How many rows its result has.
    pub fn len(&self) -> usize {
        self.groups.len() + usize::from(!self.others.is_empty())
    }

    /// The key of a row of the result, and what tasks have of it. No key for those that found no room.
    pub fn row(&self, row: usize, tasks: usize) -> (Option<&[u8]>, &[Work]) {
        match self.groups.get(row) {
            Some(group) => {
                let key = &self.keys[group.key.0..group.key.1];
                (Some(key), &self.works[row * tasks..(row + 1) * tasks])
            }
            None => (None, &self.others),
        }
    }

    /// What the first task counted for a row of the result.
    pub fn count(&self, row: usize, tasks: usize) -> u64 {
        match self.row(row, tasks).1.first() {
            Some(Work::Count(count)) => *count,
            _ => 0,
        }
    }

    fn add_group(&mut self, fingerprint: Fingerprint, key: &[u8]) -> usize {
        self.table.make_slots(self.groups.len());
        let begin = self.keys.len();
        self.keys.extend_from_slice(key);
        self.groups.push(Group {
            fingerprint,
            key: (begin, self.keys.len()),
        });
        let place = self.groups.len() - 1;
        self.table.put_new(&fingerprint, place);
        place
    }
}

/// Windows that are open.
#[derive(Debug, Clone)]
pub(super) struct Windows {
    span: Span,
    max_keys: usize,
    secret: SipKey,
    /// By their starts.
    open: Vec<Window>,
    /// Where the last event's window stands.
    last: usize,
    /// Groups in all of them.
    groups: usize,
    /// How far the time of events has come.
    reached: i64,
    /// No window that ends there or before is opened any more.
    closed: i64,
    /// The same, where they were closed to have room for others.
    crowded_out: i64,
}

impl Windows {
    pub fn new(span: Span, max_keys: usize) -> Self {
        Self {
            span,
            max_keys,
            secret: SipKey::random(),
            open: Vec::new(),
            last: 0,
            groups: 0,
            reached: i64::MIN,
            closed: i64::MIN,
            crowded_out: i64::MIN,
        }
    }

    /// What tasks have of the group of an event. None where its window is closed. Whether there was no room for its key.
    #[inline]
    pub fn works(
        &mut self,
        plan: &Plan,
        time: i64,
        key: &[u8],
        first: impl FnOnce() -> u64,
    ) -> Option<(&mut [Work], bool)> {
        let start = self.span.start(time);
        let is_current = self.open.get(self.last).is_some_and(|it| it.start == start);
        if !is_current {
            if self.span.end(start) <= self.closed {
                return None;
            }
            self.last = match self.open.binary_search_by_key(&start, |it| it.start) {
                Ok(index) => index,
                Err(index) => {
                    self.open.insert(index, Window::new(start, first()));
                    index
                }
            };
        }
        let window = &mut self.open[self.last];
        let fingerprint = self.secret.hash(key);
        let tasks = plan.tasks.len();
        if let Some((_, place)) = window.table.find(&window.groups, &fingerprint) {
            return Some((&mut window.works[place * tasks..(place + 1) * tasks], false));
        }
        if self.groups >= self.max_keys {
            if window.others.is_empty() {
                window.others = plan.begin().collect();
            }
            return Some((&mut window.others, true));
        }
        self.groups += 1;
        let place = window.add_group(fingerprint, key);
        window.works.extend(plan.begin());
        Some((&mut window.works[place * tasks..], false))
    }

    /// The only window got so many events, of which the last one's id makes this number.
    pub fn extend(&mut self, events: usize, last: u64) {
        if let Some(window) = self.open.last_mut() {
            window.extent = (window.extent.0 + events as u64, last);
        }
    }

    /// An event of this time was received then.
    #[inline]
    pub fn reach(&mut self, time: i64, received: i64) {
        self.reached = self.reached.max(time.min(received));
    }

    /// Whether the window of an event was closed to have room for others.
    pub fn was_crowded_out(&self, time: i64) -> bool {
        self.span.end(self.span.start(time)) <= self.crowded_out
    }

    /// Takes the windows that are over.
    pub fn take_closed(&mut self) -> Vec<Window> {
        // Windows take memory, whatever the limit of groups.
        let beyond = self.open.len().saturating_sub(WINDOWS_MAX);
        if let Some(last) = beyond.checked_sub(1) {
            self.crowded_out = self.span.end(self.open[last].start);
        }
        let Some(lateness) = self.span.lateness.filter(|_| self.span.every.is_some()) else {
            return self.close(beyond, i64::MIN);
        };
        let over = self.reached.saturating_sub(lateness);
        let count = self
            .open
            .partition_point(|it| self.span.end(it.start) <= over);
        self.close(count.max(beyond), over)
    }

    /// Takes the first windows; none is opened again that ends there, or before that time.
    fn close(&mut self, count: usize, over: i64) -> Vec<Window> {
        let last = count.checked_sub(1).map(|last| self.open[last].start);
        let end = last.map_or(i64::MIN, |start| self.span.end(start));
        self.closed = self.closed.max(over).max(end);
        self.take(count)
    }

    /// Takes all windows.
    pub fn take_all(&mut self) -> Vec<Window> {
        self.take(self.open.len())
    }

    fn take(&mut self, count: usize) -> Vec<Window> {
        let taken: Vec<Window> = self.open.drain(..count).collect();
        self.groups -= taken.iter().map(|it| it.groups.len()).sum::<usize>();
        self.last = 0;
        taken
    }

    /// Where a window ends.
    pub fn end(&self, window: &Window) -> i64 {
        self.span.end(window.start)
    }

    /// All that is remembered, as bytes.
    pub fn save(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let number = |out: &mut Vec<u8>, number: u64| out.extend(number.to_le_bytes());
        number(&mut out, VERSION);
        number(&mut out, self.reached.cast_unsigned());
        number(&mut out, self.closed.cast_unsigned());
        number(&mut out, self.open.len() as u64);
        for window in &self.open {
            number(&mut out, window.start.cast_unsigned());
            for number_of in [window.first, window.extent.0, window.extent.1] {
                number(&mut out, number_of);
            }
            number(&mut out, window.groups.len() as u64);
            for group in &window.groups {
                let key = &window.keys[group.key.0..group.key.1];
                save_text(key, &mut out);
            }
            window.works.iter().for_each(|work| work.save(&mut out));
            out.push(u8::from(!window.others.is_empty()));
            window.others.iter().for_each(|work| work.save(&mut out));
        }
        out
    }

    /// Goes on from what was saved with the same settings.
    pub fn restore(&mut self, plan: &Plan, saved: &[u8]) -> Result<(), String> {
        let mut saved = SavedBytes(saved);
        if saved.number() != Some(VERSION) {
            return Err("it was kept by another version of Millpond".to_owned());
        }
        let mut restored = Self::new(self.span, self.max_keys);
        let read = restored.read(plan, &mut saved);
        if read.is_none() || !saved.0.is_empty() {
            return Err(SENSELESS.to_owned());
        }
        *self = restored;
        Ok(())
    }

    fn read(&mut self, plan: &Plan, saved: &mut SavedBytes<'_>) -> Option<()> {
        self.reached = saved.number()?.cast_signed();
        self.closed = saved.number()?.cast_signed();
        for _ in 0..saved.number()? {
            let start = saved.number()?.cast_signed();
            let mut window = Window::new(start, saved.number()?);
            window.extent = (saved.number()?, saved.number()?);
            let groups = saved.number()?;
            for _ in 0..groups {
                let key = saved.text()?;
                window.add_group(self.secret.hash(key), key);
            }
            for _ in 0..groups {
                read_works(plan, saved, &mut window.works)?;
            }
            if saved.byte()? != 0 {
                read_works(plan, saved, &mut window.others)?;
            }
            self.groups += window.groups.len();
            self.open.push(window);
        }
        Some(())
    }
}

/// Adds what each task had of one group.
fn read_works(plan: &Plan, saved: &mut SavedBytes<'_>, works: &mut Vec<Work>) -> Option<()> {
    for mut work in plan.begin() {
        work.restore(saved)?;
        works.push(work);
    }
    Some(())
}
