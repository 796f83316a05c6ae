//! Writes small MaxMind databases: what tests and samples look addresses up in.
//!
//! The layout is that of the MaxMind DB format, version 2.0 (<https://maxmind.github.io/MaxMind-DB/>): a binary tree over
//! the bits of IPv6 addresses with IPv4 below `::/96`, records of 32 bits; 16 zero bytes; the values; a marker; the
//! metadata. Everything is big-endian. Same input, same bytes. Limits: no pointers inside values, fewer than 2³² nodes.

use std::collections::HashMap;
use std::net::IpAddr;

use serde_json::Value;

/// What stands before the metadata.
const MARKER: &[u8] = b"\xab\xcd\xefMaxMind.com";

/// The bytes of a database of this type (such as `GeoLite2-City`) that gives each network (such as `81.2.69.0/24`) its
/// value. Where networks overlap, the smaller one counts.
///
/// # Panics
/// When a network is not one.
pub fn write_database(kind: &str, networks: &[(&str, Value)]) -> Vec<u8> {
    let mut values = Values::default();
    let mut tree = Tree {
        nodes: vec![[Record::Nothing; 2]],
    };
    let mut networks: Vec<(u128, u32, &Value)> = networks
        .iter()
        .map(|(network, value)| {
            let (bits, length) =
                parse_network(network).unwrap_or_else(|| panic!("`{network}` is not a network"));
            (bits, length, value)
        })
        .collect();
    networks.sort_by_key(|(_, length, _)| *length);
    for (bits, length, value) in networks {
        tree.insert(bits, length, values.add(value));
    }
    let mut out = tree.bytes();
    out.extend_from_slice(&[0; 16]);
    out.extend_from_slice(&values.bytes);
    out.extend_from_slice(MARKER);
    write_metadata(kind, tree.nodes.len() as u32, &mut out);
    out
}

/// The bits of a network and how many of them count.
fn parse_network(text: &str) -> Option<(u128, u32)> {
    let (address, length) = text.split_once('/')?;
    let length: u32 = length.parse().ok()?;
    let (bits, length) = match address.parse().ok()? {
        IpAddr::V4(v4) => (u128::from(u32::from(v4)), length.checked_add(96)?),
        IpAddr::V6(v6) => (u128::from(v6), length),
    };
    (length <= 128).then_some((bits, length))
}

/// One side of a node.
#[derive(Clone, Copy)]
enum Record {
    Nothing,
    Node(u32),
    /// Offset into the values.
    Value(u32),
}

struct Tree {
    nodes: Vec<[Record; 2]>,
}

impl Tree {
    /// Sets a network, over larger ones that were set before.
    fn insert(&mut self, bits: u128, length: u32, value: u32) {
        let side = |depth: u32| (bits >> (127 - depth) & 1) as usize;
        let mut node = 0;
        for depth in 0..length.max(1) - 1 {
            let record = self.nodes[node][side(depth)];
            node = match record {
                Record::Node(next) => next as usize,
                // A larger network is split: both halves keep what it had.
                other => {
                    self.nodes.push([other; 2]);
                    let next = self.nodes.len() - 1;
                    self.nodes[node][side(depth)] = Record::Node(next as u32);
                    next
                }
            };
        }
        if length == 0 {
            self.nodes[0] = [Record::Value(value); 2];
        } else {
            self.nodes[node][side(length - 1)] = Record::Value(value);
        }
    }

    fn bytes(&self) -> Vec<u8> {
        let count = self.nodes.len() as u32;
        let number = |record: &Record| match record {
            Record::Nothing => count,
            Record::Node(node) => *node,
            Record::Value(offset) => count + 16 + offset,
        };
        self.nodes
            .iter()
            .flatten()
            .flat_map(|record| number(record).to_be_bytes())
            .collect()
    }
}

/// The section of values, each written once.
#[derive(Default)]
struct Values {
    bytes: Vec<u8>,
    offsets: HashMap<String, u32>,
}

impl Values {
    fn add(&mut self, value: &Value) -> u32 {
        let offset = self.bytes.len() as u32;
        let known = *self.offsets.entry(value.to_string()).or_insert(offset);
        if known == offset {
            write_value(value, &mut self.bytes);
        }
        known
    }
}

/// The types of values, by their numbers in the format.
mod kind {
    pub const STRING: u8 = 2;
    pub const DOUBLE: u8 = 3;
    pub const UINT16: u8 = 5;
    pub const UINT32: u8 = 6;
    pub const MAP: u8 = 7;
    pub const INT32: u8 = 8;
    pub const UINT64: u8 = 9;
    pub const ARRAY: u8 = 11;
    pub const BOOLEAN: u8 = 14;
}

/// Writes type and size of a value. Types from 8 on take a byte of their own, sizes from 29 on up to three.
fn write_head(kind: u8, size: usize, out: &mut Vec<u8>) {
    let (low, more): (u8, Vec<u8>) = match size {
        0..29 => (size as u8, Vec::new()),
        29..285 => (29, vec![(size - 29) as u8]),
        285..65_821 => (30, ((size - 285) as u16).to_be_bytes().to_vec()),
        _ => (31, ((size - 65_821) as u32).to_be_bytes()[1..].to_vec()),
    };
    if kind < 8 {
        out.push(kind << 5 | low);
    } else {
        out.extend_from_slice(&[low, kind - 7]);
    }
    out.extend_from_slice(&more);
}

fn write_string(text: &str, out: &mut Vec<u8>) {
    write_head(kind::STRING, text.len(), out);
    out.extend_from_slice(text.as_bytes());
}

/// Writes a number without its leading zero bytes.
fn write_uint(kind: u8, number: u64, out: &mut Vec<u8>) {
    let bytes = number.to_be_bytes();
    let used = &bytes[number.leading_zeros() as usize / 8..];
    write_head(kind, used.len(), out);
    out.extend_from_slice(used);
}

/// Writes a JSON value. Numbers with a point (`0.0`) are doubles, as coordinates must be, others are whole; null is an
/// empty map.
fn write_value(value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::Null => write_head(kind::MAP, 0, out),
        Value::Bool(truth) => write_head(kind::BOOLEAN, usize::from(*truth), out),
        Value::String(text) => write_string(text, out),
        Value::Array(items) => {
            write_head(kind::ARRAY, items.len(), out);
            items.iter().for_each(|item| write_value(item, out));
        }
        Value::Object(members) => {
            write_head(kind::MAP, members.len(), out);
            for (key, value) in members {
                write_string(key, out);
                write_value(value, out);
            }
        }
        Value::Number(number) => {
            if let Some(whole) = number.as_u64() {
                let kind = if u32::try_from(whole).is_ok() {
                    kind::UINT32
                } else {
                    kind::UINT64
                };
                write_uint(kind, whole, out);
            } else if let Some(whole) = number.as_i64().and_then(|whole| i32::try_from(whole).ok())
            {
                write_head(kind::INT32, 4, out);
                out.extend_from_slice(&whole.to_be_bytes());
            } else {
                write_head(kind::DOUBLE, 8, out);
                out.extend_from_slice(&number.as_f64().unwrap_or_default().to_be_bytes());
            }
        }
    }
}

fn write_metadata(database_type: &str, nodes: u32, out: &mut Vec<u8>) {
    write_head(kind::MAP, 9, out);
    for (key, kind, number) in [
        ("binary_format_major_version", kind::UINT16, 2),
        ("binary_format_minor_version", kind::UINT16, 0),
        // A fixed day, 2024-01-01, so that the same networks give the same bytes.
        ("build_epoch", kind::UINT64, 1_704_067_200),
        ("ip_version", kind::UINT16, 6),
        ("node_count", kind::UINT32, u64::from(nodes)),
        ("record_size", kind::UINT16, 32),
    ] {
        write_string(key, out);
        write_uint(kind, number, out);
    }
    write_string("database_type", out);
    write_string(database_type, out);
    write_string("description", out);
    write_value(
        &serde_json::json!({ "en": "made by Millpond's testkit" }),
        out,
    );
    write_string("languages", out);
    write_value(&serde_json::json!(["en"]), out);
}
