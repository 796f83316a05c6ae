//! Fields that processors and conditions read and that no event had, reported at the end of a run, and once by a run that
//! has gone on for a while.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use batch::{Batch, Bitmap, FieldRead, JsonWriter};
use serde_json::Value;

/// How many events of the first batch tell which fields there are.
const EVENTS_MAX: usize = 16;

/// The shortest name of an optional field whose misspelling can be told from another name: `levl` where a letter is missing,
/// doubled or in the wrong place, a longer one also where a letter is replaced, as `date` and `data` are both common.
const TELLING_LENGTH: usize = 4;

/// Fields that only events have about which there is something to tell: on a good day no event has them.
const NOTES: [&str; 3] = ["tags", "error", "error.message"];

/// How long a run goes on before it reports what is likely a slip, rather than at its end.
pub const LONG_RUN: Duration = Duration::from_secs(60);

/// How many events must have come by then.
const EVENTS_MANY: u64 = 1000;

/// What one operator reads.
pub struct Reading {
    reads: Vec<Arc<FieldRead>>,
    /// Fields of the first events that the operator got, for suggestions.
    names: OnceLock<BTreeSet<String>>,
    begin: Instant,
    /// Events that were looked at, each once.
    events: AtomicU64,
    /// Whether missing fields have been reported before the end.
    has_reported: AtomicBool,
}

impl Reading {
    pub fn new(reads: impl IntoIterator<Item = Arc<FieldRead>>) -> Self {
        let is_telling = |read: &Arc<FieldRead>| !NOTES.contains(&read.path().to_string().as_str());
        Self {
            reads: reads.into_iter().filter(is_telling).collect(),
            names: OnceLock::new(),
            begin: Instant::now(),
            events: AtomicU64::new(0),
            has_reported: AtomicBool::new(false),
        }
    }

    /// Counts the events of a batch, which is processed for the first time.
    pub fn count(&self, events: usize) {
        self.events.fetch_add(events as u64, Relaxed);
    }

    /// How many events were counted.
    pub fn events(&self) -> u64 {
        self.events.load(Relaxed)
    }

    /// What [`Reading::missing`] gives, once, after the run's first minute and its first thousand events.
    pub fn missing_so_far(&self, now: Instant) -> Vec<String> {
        let is_due = !self.has_reported.load(Relaxed)
            && now.saturating_duration_since(self.begin) >= LONG_RUN
            && self.events() >= EVENTS_MANY;
        match is_due && !self.has_reported.swap(true, Relaxed) {
            true => self.missing(),
            false => Vec::new(),
        }
    }

    /// Looks at a batch that the operator gets; `rows` are those that it handles.
    pub fn note(&self, batch: &Batch, rows: &Bitmap) {
        if self.reads.is_empty() || rows.is_empty() {
            return;
        }
        self.names.get_or_init(|| field_names(batch, rows));
        for read in self.reads.iter().filter(|read| read.waits_for_note()) {
            read.note(&batch.column(read.path()), rows);
        }
    }

    /// A sentence for every field that was looked for and that no event had.
    pub fn missing(&self) -> Vec<String> {
        let missing = self.reads.iter().filter(|read| read.is_missing());
        let mut sentences: Vec<String> = missing.filter_map(|read| self.sentence(read)).collect();
        sentences.dedup();
        sentences
    }

    /// A field that events may do without is only worth a word where its name is likely misspelt.
    fn sentence(&self, read: &FieldRead) -> Option<String> {
        let name = read.path().to_string();
        let meant = self.meant(&name, read.is_optional());
        match meant {
            Some(meant) => Some(format!(
                "no event had the field `{name}`; did you mean `{meant}`?"
            )),
            None if read.is_optional() => None,
            None if read.is_in_expression() && is_word(&name) => Some(format!(
                "no event had the field `{name}`; a text stands in quotes: \"{name}\""
            )),
            None => Some(format!("no event had the field `{name}`")),
        }
    }

    /// The field that is likely meant: one of a similar name, or the only one whose name ends like this.
    fn meant(&self, name: &str, is_optional: bool) -> Option<&str> {
        let names = self.names.get()?;
        let similar = config::closest(name, names.iter().map(String::as_str));
        if is_optional {
            let last = name.rsplit('.').next().unwrap_or(name);
            return similar.filter(|similar| {
                last.len() >= TELLING_LENGTH
                    && similar.len().abs_diff(name.len()) <= 1
                    && similar.chars().next() == name.chars().next()
                    && (last.len() > TELLING_LENGTH || !is_substitution(name, similar))
            });
        }
        similar.or_else(|| {
            let suffix = format!(".{name}");
            let mut longer = names.iter().filter(|other| other.ends_with(&suffix));
            let only = longer.next()?;
            longer.next().is_none().then_some(only)
        })
    }
}

/// Whether two names of one length differ in a letter that stands for another one, and not in two that changed places.
fn is_substitution(one: &str, other: &str) -> bool {
    let sorted = |name: &str| {
        let mut letters: Vec<char> = name.to_lowercase().chars().collect();
        letters.sort_unstable();
        letters
    };
    one.len() == other.len() && sorted(one) != sorted(other)
}

/// Whether it is spelled as constants are, such as `DEBUG`, and fields hardly ever.
fn is_word(name: &str) -> bool {
    name.len() > 1
        && name
            .bytes()
            .all(|byte| byte.is_ascii_uppercase() || byte == b'_')
}

/// The names of all fields of some events, those within objects included.
fn field_names(batch: &Batch, rows: &Bitmap) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let writer = JsonWriter::new(batch);
    let mut text = Vec::new();
    for row in rows.iter().take(EVENTS_MAX) {
        text.clear();
        writer.write(row, &mut text);
        if let Ok(event) = serde_json::from_slice(&text) {
            add_names(&event, "", &mut names);
        }
    }
    names
}

fn add_names(value: &Value, above: &str, names: &mut BTreeSet<String>) {
    let Value::Object(members) = value else {
        return;
    };
    for (key, value) in members {
        let name = format!("{above}{key}");
        add_names(value, &format!("{name}."), names);
        names.insert(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use batch::{Cell, Column, FieldPath};

    fn missing(read: FieldRead, name: &str) -> Reading {
        let column = Column::constant(Cell::Missing, 1);
        read.note(&column, &Bitmap::from_fn(1, |_| true));
        let reading = Reading::new([Arc::new(read)]);
        let _ = reading.names.set(BTreeSet::from([name.to_owned()]));
        reading
    }

    fn field(name: &str) -> FieldRead {
        FieldRead::always(FieldPath::parse(name).expect(name))
    }

    #[test]
    fn optional_fields_are_reported_where_their_name_is_misspelt() {
        for (name, existing, is_reported) in [
            ("levl", "level", true),
            ("leevl", "level", true),
            ("lvel", "level", true),
            ("mesage", "message", true),
            ("hots", "host", true),
            ("date", "data", false),
            ("usr", "user", false),
            ("respomse", "response", true),
            ("http.levl", "http.level", true),
            ("other", "level", false),
        ] {
            let reading = missing(field(name).may_be_absent(true), existing);
            assert_eq!(!reading.missing().is_empty(), is_reported, "{name}");
        }
    }

    #[test]
    fn tags_and_errors_are_never_missing() {
        for (name, is_reported) in [("tags", false), ("error.message", false), ("tag", true)] {
            let reading = missing(field(name), "message");
            assert_eq!(!reading.missing().is_empty(), is_reported, "{name}");
        }
    }

    #[test]
    fn a_long_run_reports_once_before_its_end() {
        let reading = missing(field("a"), "b");
        let late = reading.begin + LONG_RUN;
        assert!(reading.missing_so_far(late).is_empty(), "too few events");
        reading.count(1000);
        assert!(reading.missing_so_far(reading.begin).is_empty(), "too soon");
        assert_eq!(reading.missing_so_far(late), ["no event had the field `a`"]);
        assert!(reading.missing_so_far(late).is_empty(), "once");
        assert_eq!(reading.missing().len(), 1, "the end reports it again");
    }
}
