//! Entries of streams, and how they are written as documents:
//!
//! ```text
//! {"@timestamp": TIME, "message": LINE, "labels": {…}, "structured_metadata": {…}}
//! ```

use std::ops::Range;

use batch::json;
use datetime::rfc3339::write_rfc3339;

use super::item::{Entry, Line, Pairs};
use super::{labels, proto};
use crate::connections::rendered::{Rendered, Row, on_one_line};

/// Writes entries of streams as documents.
#[derive(Debug, Default)]
pub(super) struct Writing {
    /// The labels of the stream, as a JSON object.
    labels: Vec<u8>,
    /// Some name of them has a dot.
    has_dots: bool,
    /// Where pairs are put in normal form.
    normal: Vec<u8>,
    /// Where the metadata lies in the chunk.
    metadata: Range<usize>,
}

impl Writing {
    /// Begins with a stream.
    ///
    /// # Errors
    /// Its labels are malformed.
    pub(super) fn stream(&mut self, labels: Pairs<'_>) -> Result<(), String> {
        let mut text = std::mem::take(&mut self.labels);
        text.clear();
        let written = self.pairs(labels, &mut text);
        self.labels = text;
        self.has_dots = written?;
        Ok(())
    }

    /// How many bytes the labels of the stream add to each of its entries.
    pub(super) fn labels_size(&self) -> usize {
        self.labels.len()
    }

    /// Begins with a chunk whose events have this object under `@metadata`.
    pub(super) fn chunk(&mut self, metadata: &[u8], rendered: &mut Rendered) {
        let start = rendered.position();
        rendered.out().extend_from_slice(metadata);
        self.metadata = start..rendered.position();
    }

    /// Writes an entry of the stream. `id_key` is the name in its structured metadata whose value is its id.
    pub(super) fn entry(
        &mut self,
        entry: &Entry<'_>,
        id_key: Option<&[u8]>,
        rendered: &mut Rendered,
    ) -> Result<(), String> {
        let mut has_dots = self.has_dots;
        let (start, out) = (rendered.position(), rendered.out());
        out.extend_from_slice(b"{\"@timestamp\":\"");
        write_rfc3339(out, entry.nanos);
        out.extend_from_slice(b"\",\"message\":");
        match entry.line {
            Line::Json(quoted) => out.extend_from_slice(quoted),
            Line::Text(text) => write_text(text, out),
        }
        if self.labels.len() > b"{}".len() {
            out.extend_from_slice(b",\"labels\":");
            out.extend_from_slice(&self.labels);
        }
        let mut pairs = 0..0;
        if let Some(metadata) = entry.metadata {
            let before = out.len();
            out.extend_from_slice(b",\"structured_metadata\":");
            let object = out.len();
            has_dots |= self.pairs(metadata, out)?;
            pairs = object..out.len();
            if pairs.len() == b"{}".len() {
                out.truncate(before);
                pairs = 0..0;
            }
        }
        out.push(b'}');
        on_one_line(&mut out[start..]);
        let mut row = Row {
            document: start..out.len(),
            metadata: self.metadata.clone(),
            ..Row::default()
        };
        if let (Some(key), false) = (id_key, pairs.is_empty()) {
            self.normal.clear();
            self.normal.extend_from_slice(&out[pairs]);
            row.write_id(&self.normal, key, out);
        }
        rendered.push(row);
        if has_dots {
            rendered.dotted_keys();
        }
        Ok(())
    }

    /// Writes pairs as an object in normal form; gives whether some name has a dot, which of JSON the decoder says.
    fn pairs(&mut self, pairs: Pairs<'_>, out: &mut Vec<u8>) -> Result<bool, String> {
        let start = out.len();
        match pairs {
            Pairs::Json(object) => {
                out.extend_from_slice(object);
                return Ok(false);
            }
            Pairs::Text(text) => {
                out.push(b'{');
                labels::each(text, |name, value| write_pair(name, value, start, out))?;
            }
            Pairs::Fields(entry) => {
                out.push(b'{');
                proto::pairs(entry).for_each(|(name, value)| write_pair(name, value, start, out));
            }
        }
        out.push(b'}');
        let scan = json::validate_object(&out[start..]);
        let scan = scan.map_err(|error| format!("malformed names or values: {error}"))?;
        if scan.rewrite {
            self.normal.clear();
            json::normalise(&out[start..], &mut self.normal);
            out.truncate(start);
            out.extend_from_slice(&self.normal);
        }
        Ok(scan.dotted_keys)
    }
}

fn write_pair(name: &[u8], value: &[u8], start: usize, out: &mut Vec<u8>) {
    if out.len() > start + 1 {
        out.push(b',');
    }
    write_text(name, out);
    out.push(b':');
    write_text(value, out);
}

/// Writes text as JSON; what is not UTF-8 becomes U+FFFD.
fn write_text(text: &[u8], out: &mut Vec<u8>) {
    match simdutf8::basic::from_utf8(text) {
        Ok(_) => json::write_string(out, text),
        Err(_) => json::write_string(out, String::from_utf8_lossy(text).as_bytes()),
    }
}
