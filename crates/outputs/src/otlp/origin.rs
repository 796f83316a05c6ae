//! Where log records come from: resources and instrumentation scopes, and how a request says so.
//!
//! A request consists of fields, each with its length before it, and Protocol Buffers allow to join such messages. So there are two kinds
//! of requests, which are different destinations for the engine:
//!
//! - Events without a resource of their own are fields `log_records`. The one head before them, which says how long they are together, is made
//!   when the request is sent ([`Head`]). Their destination is the resource's attributes as JSON.
//! - An event with `resource` or `scope` is a whole field `resource_logs` ([`ALONE`]), so that events of any number of resources share a request.
//!
//! A head costs 10 bytes a request and each record 2 to 3; alone, a record costs 6 more and its resource. Receivers handle one list of records
//! much faster than many lists of one.
//!
//! In a request that is compressed with gzip, the head goes into a block of its own that is not compressed, before those that are there.

use std::sync::Arc;

use batch::json::{self, Kind};
use batch::{Batch, Bitmap};
use bytes::Bytes;
use codec::otlp::any::{string_body, write_member, write_text};
use codec::otlp::wire::{Open, bytes_tag, varint_len, varint_tag, write_bytes, write_varint};
use crc32fast::Hasher;
use expr::{Absent, BoundTemplate, Template};

use crate::partition::{Group, partition};

/// The destination of events that are alone.
pub const ALONE: &str = "alone";

/// The head and the trailer of a gzip stream.
const GZIP_HEAD_BYTES: usize = 10;
const GZIP_TRAILER_BYTES: usize = 8;

/// The most bytes of a block that is not compressed.
const STORED_BYTES_MAX: usize = 0xFFFF;

/// The resource and the scope of events that have none.
#[derive(Debug, Default)]
pub struct Origins {
    resource: Vec<(String, Template)>,
    /// The field `scope` of `ScopeLogs`.
    scope: Vec<u8>,
}

impl Origins {
    /// Attributes of the resource, and name and version of the scope.
    pub fn new(resource: Vec<(String, Template)>, name: &str, version: &str) -> Self {
        let mut scope = Vec::new();
        if !(name.is_empty() && version.is_empty()) {
            let open = Open::begin(&mut scope, bytes_tag(1), 1);
            for (number, text) in [(1, name), (2, version)] {
                if !text.is_empty() {
                    write_bytes(&mut scope, bytes_tag(number), text.as_bytes());
                }
            }
            open.end(&mut scope);
        }
        Self { resource, scope }
    }

    /// The field `scope`, as bytes.
    pub fn scope(&self) -> &[u8] {
        &self.scope
    }

    /// The templates of attributes.
    pub fn templates(&self) -> impl Iterator<Item = &Template> {
        self.resource.iter().map(|(_, template)| template)
    }

    /// The rows of a batch by the attributes of their resource.
    pub fn groups(&self, batch: &Batch, rows: &Bitmap) -> Vec<Group> {
        let is_constant = self.templates().all(|text| text.constant().is_some());
        let bound = self.resource.iter();
        let mut bound: Vec<(&str, BoundTemplate<'_>)> = bound
            .map(|(name, template)| (&**name, template.bind(batch, Absent::Text(""))))
            .collect();
        let mut text = Vec::new();
        let mut render = |row: usize, out: &mut Vec<u8>| {
            for (name, template) in &mut bound {
                text.clear();
                template.write(row, &mut text);
                if !text.is_empty() {
                    out.push(if out.is_empty() { b'{' } else { b',' });
                    json::write_string(out, name.as_bytes());
                    out.push(b':');
                    json::write_string(out, &text);
                }
            }
            if !out.is_empty() {
                out.push(b'}');
            }
        };
        let check = |text: &[u8]| Ok(Arc::from(String::from_utf8_lossy(text)));
        if !is_constant {
            return partition(batch, rows, render, check);
        }
        let mut destination = Vec::new();
        if let Some(row) = rows.iter().next() {
            render(row, &mut destination);
        }
        vec![Group {
            destination: check(&destination),
            rows: rows.clone(),
        }]
    }
}

/// Whether every member of an object is one of these, with a value of that kind, and there is one.
fn has_only(value: &[u8], known: &[(&[u8], Kind)]) -> bool {
    let mut is_empty = true;
    json::kind(value) == Kind::Object
        && json::members(value).all(|member| {
            is_empty = false;
            let member_value = &value[member.value];
            known.iter().any(|(key, kind)| {
                *key == member.key
                    && json::kind(member_value) == *kind
                    && (*kind != Kind::Number || dropped(member_value) != 0)
                    && !matches!(member_value, b"\"\"" | b"{}")
            })
        })
        && !is_empty
}

/// Whether the value of a field `resource` is one.
pub fn is_resource(value: &[u8]) -> bool {
    has_only(
        value,
        &[
            (b"attributes", Kind::Object),
            (b"schema_url", Kind::String),
            (b"dropped_attributes_count", Kind::Number),
        ],
    )
}

/// Whether the value of a field `scope` is one.
pub fn is_scope(value: &[u8]) -> bool {
    has_only(
        value,
        &[
            (b"name", Kind::String),
            (b"version", Kind::String),
            (b"attributes", Kind::Object),
            (b"schema_url", Kind::String),
            (b"dropped_attributes_count", Kind::Number),
        ],
    )
}

fn dropped(value: &[u8]) -> u32 {
    let text = std::str::from_utf8(value).unwrap_or_default();
    text.parse().unwrap_or(0)
}

/// Appends the fields of `ResourceLogs` that a field `resource` stands for.
pub fn write_resource(value: &[u8], out: &mut Vec<u8>) {
    let resource = Open::begin(out, bytes_tag(1), 1);
    write_fields(value, 1, 2, out);
    resource.end(out);
    write_schema(value, out);
}

/// Appends the fields of `ScopeLogs` that a field `scope` stands for.
pub fn write_scope(value: &[u8], out: &mut Vec<u8>) {
    let scope = Open::begin(out, bytes_tag(1), 1);
    for (key, number) in [(&b"name"[..], 1), (b"version", 2)] {
        if let Some(at) = json::find(value, key) {
            write_text(out, bytes_tag(number), string_body(&value[at]));
        }
    }
    write_fields(value, 3, 4, out);
    scope.end(out);
    write_schema(value, out);
}

/// Appends attributes and how many were dropped, as fields with these numbers.
fn write_fields(value: &[u8], attributes: u8, dropped_count: u8, out: &mut Vec<u8>) {
    if let Some(at) = json::find(value, b"attributes") {
        let list = &value[at];
        for member in json::members(list) {
            write_member(out, bytes_tag(attributes), member.key, &list[member.value]);
        }
    }
    if let Some(at) = json::find(value, b"dropped_attributes_count") {
        out.push(varint_tag(dropped_count));
        write_varint(out, u64::from(dropped(&value[at])));
    }
}

fn write_schema(value: &[u8], out: &mut Vec<u8>) {
    if let Some(at) = json::find(value, b"schema_url") {
        write_text(out, bytes_tag(3), string_body(&value[at]));
    }
}

/// Appends the field `resource` with the attributes in a destination.
pub fn write_attributes(destination: &str, out: &mut Vec<u8>) {
    if destination.is_empty() {
        return;
    }
    let resource = Open::begin(out, bytes_tag(1), 1);
    let list = destination.as_bytes();
    for member in json::members(list) {
        write_member(out, bytes_tag(1), member.key, &list[member.value]);
    }
    resource.end(out);
}

/// What stands before the records of a request.
pub struct Head(Vec<u8>);

impl Head {
    /// The head of records that go to a destination and have so many bytes.
    pub fn new(destination: &str, scope: &[u8], records: usize) -> Self {
        let mut resource = Vec::new();
        write_attributes(destination, &mut resource);
        let scope_logs = scope.len() + records;
        let sized = |bytes: usize| 1 + varint_len(bytes as u64) + bytes;
        let mut out = Vec::with_capacity(resource.len() + scope.len() + 12);
        out.push(bytes_tag(1));
        write_varint(&mut out, (resource.len() + sized(scope_logs)) as u64);
        out.extend_from_slice(&resource);
        out.push(bytes_tag(2));
        write_varint(&mut out, scope_logs as u64);
        out.extend_from_slice(scope);
        Self(out)
    }

    /// A body with this head.
    pub fn before(self, body: Bytes) -> Vec<Bytes> {
        vec![self.0.into(), body]
    }

    /// A body that is compressed with gzip, with this head. None where it is no such body.
    pub fn before_gzip(self, body: &Bytes) -> Option<Vec<Bytes>> {
        let (head, rest) = body.split_first_chunk::<GZIP_HEAD_BYTES>()?;
        let (_, trailer) = rest.split_last_chunk::<GZIP_TRAILER_BYTES>()?;
        // Neither name nor anything else stands in the head.
        if !head.starts_with(&[0x1F, 0x8B, 8, 0]) {
            return None;
        }
        let [a, b, c, d, e, f, g, h] = *trailer;
        let (sum, length) = (
            u32::from_le_bytes([a, b, c, d]),
            u32::from_le_bytes([e, f, g, h]),
        );
        let mut start = head.to_vec();
        for block in self.0.chunks(STORED_BYTES_MAX) {
            let length = block.len() as u16;
            start.push(0);
            start.extend_from_slice(&length.to_le_bytes());
            start.extend_from_slice(&(!length).to_le_bytes());
            start.extend_from_slice(block);
        }
        let mut whole = Hasher::new();
        whole.update(&self.0);
        whole.combine(&Hasher::new_with_initial_len(sum, u64::from(length)));
        let mut end = whole.finalize().to_le_bytes().to_vec();
        end.extend_from_slice(&length.wrapping_add(self.0.len() as u32).to_le_bytes());
        let data = body.slice(GZIP_HEAD_BYTES..body.len() - GZIP_TRAILER_BYTES);
        Some(vec![start.into(), data, end.into()])
    }
}

/// How many bytes a body has decompressed, as its gzip trailer says.
pub fn gzip_length(body: &[u8]) -> usize {
    let length = body.last_chunk::<4>().copied().unwrap_or_default();
    u32::from_le_bytes(length) as usize
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use flate2::read::GzDecoder;

    use super::*;
    use crate::testing::gzip;

    #[test]
    fn a_head_joins_what_is_compressed() {
        for records in [&b""[..], b"x", &[7; 100_000]] {
            for attributes in [0, 10, 20_000] {
                let members: Vec<_> = (0..attributes).map(|n| format!("\"{n}\":\"v\"")).collect();
                let destination = format!("{{{}}}", members.join(","));
                let plain = Head::new(&destination, b"scope", records.len());
                let expected = plain.before(Bytes::copy_from_slice(records)).concat();
                let body = Bytes::from(gzip(records));
                assert_eq!(gzip_length(&body), records.len());
                let head = Head::new(&destination, b"scope", records.len());
                let joined = head.before_gzip(&body).expect("gzip").concat();
                let mut read = Vec::new();
                let decoder = GzDecoder::new(&*joined).read_to_end(&mut read);
                decoder.expect("one stream with the right sum");
                assert!(read == expected);
            }
        }
        let head = Head::new("", b"", 0);
        assert!(head.before_gzip(&Bytes::from_static(b"no gzip")).is_none());
    }

    #[test]
    fn only_what_comes_back_is_a_resource() {
        for (value, expected) in [
            (r#"{"attributes":{"a":1}}"#, true),
            (
                r#"{"attributes":{"a":1},"schema_url":"x","dropped_attributes_count":2}"#,
                true,
            ),
            (r#"{"attributes":{"a":1},"other":1}"#, false),
            (r#"{"attributes":{}}"#, false),
            (r#"{"schema_url":""}"#, false),
            (r#"{"dropped_attributes_count":0}"#, false),
            (r#"{"attributes":"text"}"#, false),
            ("{}", false),
            ("\"text\"", false),
        ] {
            assert_eq!(is_resource(value.as_bytes()), expected, "{value}");
        }
        assert!(is_scope(br#"{"name":"a","version":"1"}"#));
        assert!(!is_scope(br#"{"name":"a","title":"1"}"#));
    }
}
