//! What `flatten` and `nest` share: events that are written anew as a whole.
//!
//! An event is written as JSON, and its new form made of that text in one walk. Events that it does not change keep their form.

use std::collections::HashSet;
use std::sync::Arc;

use batch::{Batch, Bitmap, Cell, ColumnBuilder, Failures, JsonWriter, json};
use config::{ConfigError, Node};

/// Writes the new form of an event.
pub(crate) trait Reshape {
    /// Appends the new form of an object. `false` where it is the same, whatever was appended.
    ///
    /// # Errors
    /// There is no such form, and why.
    fn write(&mut self, object: &[u8], out: &mut Vec<u8>) -> Result<bool, String>;
}

/// Gives the events in `rows` their new form, which may have dots in its keys or not. Those that have none fail and stay.
pub(crate) fn reshape(
    batch: &mut Batch,
    rows: &Bitmap,
    shape: &mut impl Reshape,
    dotted_keys: bool,
    tag: &Arc<str>,
) -> Failures {
    let mut failures = Failures::none();
    let mut documents = ColumnBuilder::new(batch.len());
    let writer = JsonWriter::new(batch);
    let mut written = Vec::new();
    for row in rows.iter() {
        let event = writer.document(row).unwrap_or_else(|| {
            written.clear();
            writer.write(row, &mut written);
            &written
        });
        let mut result = Ok(false);
        let span = documents.append(|out| {
            let start = out.len();
            result = shape.write(event, out);
            if result != Ok(true) {
                out.truncate(start);
            }
        });
        match result {
            Ok(false) => {}
            Ok(true) => documents.set(row, Cell::Json(span)),
            Err(reason) => failures.push(row, tag, &reason.into()),
        }
    }
    if !documents.is_untouched() {
        batch.replace(documents.finish(), dotted_keys);
    }
    failures
}

/// The setting `separator`, as it stands in keys of JSON.
///
/// # Errors
/// It is empty.
pub(crate) fn separator(node: &Node, text: &str) -> Result<Vec<u8>, ConfigError> {
    if text.is_empty() {
        let place = node.nearest("separator");
        return Err(place.error("the text between names is empty"));
    }
    let mut out = Vec::new();
    json::write_string_body(&mut out, text.as_bytes());
    Ok(out)
}

/// Refuses an object with two members of one name.
///
/// # Errors
/// There are two, and what they are called.
pub(crate) fn check_names(object: &[u8]) -> Result<(), String> {
    let mut names: HashSet<&[u8], foldhash::fast::RandomState> = HashSet::default();
    match json::members(object).find(|member| !names.insert(member.key)) {
        Some(twice) => Err(called_twice(&shown(twice.key))),
        None => Ok(()),
    }
}

/// Why an event fails in which two fields would have a name.
pub(crate) fn called_twice(name: &str) -> String {
    format!("two fields would be called {name}")
}

/// Appends a key, as it stands in JSON.
pub(crate) fn write_key(key: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    out.extend_from_slice(key);
    out.extend_from_slice(b"\":");
}

/// Ends the object that begins at `start`, whose members end with commas.
pub(crate) fn close(start: usize, out: &mut Vec<u8>) {
    if out.len() > start + 1 {
        out.pop();
    }
    out.push(b'}');
}

/// A name as messages show it.
pub(crate) fn shown(name: &[u8]) -> String {
    let mut text = Vec::new();
    json::unescape(name, &mut text);
    String::from_utf8_lossy(&text).into_owned()
}
