//! The reply to a request whose events are safe. It is written before they are, and sent then.
//!
//! Of a document that was taken it says index, id and status, unless `filter_path` asks for less: with what agents ask for, an
//! item is 25 bytes.

use batch::{PooledBuffer, Stream, json};
use bytes::Bytes;
use http::StatusCode;

use super::bulk::{ItemError, Items};
use super::failure::write_cause;
use super::filter::Filter;
use super::target::Verb;

/// Room for the milliseconds that a request took, which are written last.
const TOOK: &[u8] = b"          ";

/// How much of the memory for a large reply is kept for the next ones.
const KEPT_BYTES: usize = 1 << 20;

/// How many bytes of a reply are charged at a time, while it is written. The first ones are not.
const CHARGED_BYTES: usize = 256 << 10;

/// A reply that is written, but for how long the request took.
pub(super) struct Reply {
    status: StatusCode,
    body: PooledBuffer,
    /// Where the milliseconds go.
    took: Option<usize>,
}

/// A reply that is being written.
#[derive(Debug, Default)]
pub(super) struct Draft {
    pub(super) status: StatusCode,
    pub(super) body: Vec<u8>,
    took: Option<usize>,
}

impl Draft {
    /// The reply, in a buffer that holds a copy of what was written.
    pub(super) fn finish(&mut self, charged: impl FnOnce(&[u8]) -> PooledBuffer) -> Reply {
        let body = charged(&self.body);
        self.body.clear();
        self.body.shrink_to(KEPT_BYTES);
        Reply {
            status: self.status,
            body,
            took: self.took,
        }
    }

    /// Writes the reply to a bulk request. The ids that it gives are those of the events, which begin at `first` in
    /// their stream. `grow` reserves memory for it.
    pub(super) fn bulk(
        &mut self,
        items: &Items,
        (stream, first): (&Stream, u64),
        filter: &Filter,
        mut grow: impl FnMut(usize),
    ) {
        let mut charged = CHARGED_BYTES;
        (self.status, self.took) = (StatusCode::OK, None);
        let wanted = Verb::ALL.map(|verb| Wanted::new(filter, verb));
        let out = &mut self.body;
        out.clear();
        out.push(b'{');
        if filter.wants(&["errors"]) {
            let errors = !items.errors().is_empty();
            out.extend_from_slice(format!("\"errors\":{errors}").as_bytes());
        }
        if filter.wants(&["took"]) {
            comma(out, 1);
            out.extend_from_slice(b"\"took\":");
            self.took = Some(out.len());
            out.extend_from_slice(TOOK);
        }
        let before = out.len();
        comma(out, 1);
        out.extend_from_slice(b"\"items\":[");
        let start = out.len();
        for (number, (target, id, error)) in (first..).zip(items.each()) {
            let wanted = &wanted[target.verb as usize];
            let item = out.len();
            if item > charged {
                grow(CHARGED_BYTES);
                charged += CHARGED_BYTES;
            }
            comma(out, start);
            out.extend_from_slice(&wanted.open);
            let fields = out.len();
            if wanted.index {
                out.extend_from_slice(b",\"_index\":");
                json::write_string(out, target.index.as_bytes());
            }
            if wanted.id {
                write_id(stream, number, id, out);
            }
            match error {
                None => out.extend_from_slice(&wanted.done),
                Some(error) => wanted.failed(error, out),
            }
            match out.get_mut(fields) {
                // The comma before the first field.
                Some(first) => {
                    *first = b'{';
                    out.extend_from_slice(b"}}");
                }
                None => out.truncate(item),
            }
        }
        match out.len() > start {
            true => out.push(b']'),
            // Elasticsearch leaves out what a filter leaves nothing of.
            false => out.truncate(before),
        }
        out.push(b'}');
    }

    /// Writes the reply to a document that was taken.
    pub(super) fn document(&mut self, items: &Items, (stream, first): (&Stream, u64)) {
        (self.status, self.took) = (StatusCode::CREATED, None);
        let out = &mut self.body;
        out.clear();
        for (target, id, _) in items.each() {
            out.extend_from_slice(b"{\"_index\":");
            json::write_string(out, target.index.as_bytes());
            write_id(stream, first, id, out);
        }
        out.extend_from_slice(
            br#","_version":1,"result":"created","_shards":{"total":1,"successful":1,"failed":0},"_seq_no":0,"_primary_term":1}"#,
        );
    }
}

impl Reply {
    /// Status and body of the reply to a request that took so long.
    pub(super) fn sent(mut self, took_ms: u128) -> (StatusCode, Bytes) {
        if let Some(at) = self.took {
            // Spaces before a number mean nothing in JSON.
            let digits = took_ms.to_string();
            let end = at + TOOK.len();
            if let Some(start) = end.checked_sub(digits.len()).filter(|start| *start >= at) {
                self.body[start..end].copy_from_slice(digits.as_bytes());
            }
        }
        let len = self.body.len();
        (self.status, self.body.freeze(len))
    }
}

fn comma(out: &mut Vec<u8>, start: usize) {
    if out.len() > start {
        out.push(b',');
    }
}

/// Appends the id that the client gave, or that the event has.
fn write_id(stream: &Stream, number: u64, id: Option<&[u8]>, out: &mut Vec<u8>) {
    out.extend_from_slice(b",\"_id\":");
    match id {
        Some(id) => json::write_string(out, id),
        None => {
            out.push(b'"');
            stream.write_id(number, number + 1, out);
            out.push(b'"');
        }
    }
}

/// What is wanted of the items of an action.
struct Wanted {
    /// What stands before the fields.
    open: Vec<u8>,
    index: bool,
    id: bool,
    /// The other fields of a document that was taken.
    done: Vec<u8>,
    status: bool,
    kind: bool,
    reason: bool,
}

impl Wanted {
    fn new(filter: &Filter, verb: Verb) -> Self {
        let wants = |field: &str| filter.wants(&["items", verb.word(), field]);
        let of_error = |field: &str| filter.wants(&["items", verb.word(), "error", field]);
        let mut done = Vec::new();
        for (field, value) in [
            ("_version", "1"),
            ("result", "\"created\""),
            ("status", "201"),
        ] {
            if wants(field) {
                done.extend_from_slice(format!(",\"{field}\":{value}").as_bytes());
            }
        }
        Self {
            open: format!("{{\"{}\":", verb.word()).into(),
            index: wants("_index"),
            id: wants("_id"),
            done,
            status: wants("status"),
            kind: of_error("type"),
            reason: of_error("reason"),
        }
    }

    #[cold]
    fn failed(&self, error: &ItemError, out: &mut Vec<u8>) {
        if self.status {
            out.extend_from_slice(format!(",\"status\":{}", error.status.as_u16()).as_bytes());
        }
        if self.kind && self.reason {
            out.extend_from_slice(b",\"error\":");
            return write_cause(error.kind, &error.reason, out);
        }
        let field = match (self.kind, self.reason) {
            (true, _) => ("type", error.kind),
            (_, true) => ("reason", &*error.reason),
            _ => return,
        };
        out.extend_from_slice(format!(",\"error\":{{\"{}\":", field.0).as_bytes());
        json::write_string(out, field.1.as_bytes());
        out.push(b'}');
    }
}
