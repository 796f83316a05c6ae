//! Fields that processors and conditions read and that no event had, reported at the end of a run.

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};

use batch::{Batch, Bitmap, FieldRead, JsonWriter};
use serde_json::Value;

/// How many events of the first batch tell which fields there are.
const EVENTS_MAX: usize = 16;

/// The shortest name of an optional field whose misspelling can be told from another name.
const TELLING_LENGTH: usize = 5;

/// What one operator reads.
pub struct Reading {
    reads: Vec<Arc<FieldRead>>,
    /// Fields of the first events that the operator got, for suggestions.
    names: OnceLock<BTreeSet<String>>,
}

impl Reading {
    pub fn new(reads: impl IntoIterator<Item = Arc<FieldRead>>) -> Self {
        Self {
            reads: reads.into_iter().collect(),
            names: OnceLock::new(),
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
            None if is_word(&name) => Some(format!(
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
