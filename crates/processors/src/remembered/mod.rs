//! What processors need that remember something of every key, as `dedupe` and `throttle` do: keys of the values of events, tables that find
//! them, and what both keep for a later run.
//!
//! Of a key, a hash of 128 bits ([`sip`]) is remembered, keyed with a secret of this installation. With a million keys, one is mistaken for another one
//! with a probability of 10^6 / 2^128, about 3 in 10^33, also if somebody chooses the values who knows everything but the secret. The result therefore
//! does not depend on the secret.

mod sip;
mod slots;

use std::sync::Arc;

use batch::{Column, FieldPath, FieldRead, Value};
use config::{ConfigError, Count, Node};

pub(crate) use sip::{Fingerprint, SipKey};
pub(crate) use slots::{Fingerprinted, PREPARED_KEYS, SlotTable};

/// The most keys that can be remembered: a place in a table plus one has 32 bits.
const KEYS_MAX: u64 = 1_000_000_000;

/// The field with the time of an event, where no other one is named.
pub(crate) const TIME: &str = "@timestamp";

/// Why something that was kept cannot be used.
pub(crate) const SENSELESS: &str = "what was kept makes no sense";

/// The default of the setting `time`.
pub(crate) fn default_time() -> String {
    TIME.to_owned()
}

/// The default of the setting `max_keys`.
pub(crate) fn default_max_keys() -> Count {
    Count(1_000_000)
}

/// The setting `max_keys`.
pub(crate) fn max_keys(node: &Node, max_keys: Count) -> Result<usize, ConfigError> {
    if max_keys.0 == 0 || max_keys.0 > KEYS_MAX {
        return Err(node
            .nearest("max_keys")
            .error(format!("`max_keys` must be from 1 to {}", Count(KEYS_MAX))));
    }
    Ok(max_keys.0 as usize)
}

/// What is read: the fields of the key, and the time. Only a field that was asked for has to be there.
pub(crate) fn reads(fields: Option<&[FieldPath]>, time: Option<&FieldPath>) -> Vec<Arc<FieldRead>> {
    let fields = fields.unwrap_or_default().iter().cloned();
    let time = time.map(|path| {
        let is_default = path.to_string() == TIME;
        FieldRead::always(path.clone()).may_be_absent(is_default)
    });
    let fields = fields.map(FieldRead::always);
    fields.chain(time).map(Arc::new).collect()
}

/// Replaces a text by the values of a row, so that no two sequences of different values give the same one. Whether there is a value other than null.
#[inline]
pub(crate) fn write_values(columns: &[Arc<Column>], row: usize, text: &mut Vec<u8>) -> bool {
    text.clear();
    let mut has_value = false;
    for column in columns {
        let value = column.value(row);
        has_value |= !matches!(value, Value::Missing | Value::Null);
        add_value(value, text);
    }
    has_value
}

/// Appends a value so that no two sequences of different values give the same bytes: its length, and what it is as JSON, but a text
/// without escapes and its last quote. Nothing else begins with a quote. Where the field is absent, the length is 0.
#[inline]
fn add_value(value: Value<'_>, out: &mut Vec<u8>) {
    match value {
        Value::Text(text) => {
            let [a, b, c, d] = (text.len() as u32 + 1).to_le_bytes();
            out.extend_from_slice(&[a, b, c, d, b'"']);
            return out.extend_from_slice(text);
        }
        Value::Number(json) | Value::Json(json) => {
            out.extend_from_slice(&(json.len() as u32).to_le_bytes());
            return out.extend_from_slice(json);
        }
        _ => {}
    }
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    match value {
        Value::Missing => {}
        Value::Time(_) => {
            out.push(b'"');
            value.write_text(out);
        }
        _ => value.write_json(out),
    }
    // Values lie in buffers of less than 4 GiB.
    let len = (out.len() - start - 4) as u32;
    out[start..start + 4].copy_from_slice(&len.to_le_bytes());
}

/// A number of 8 bytes, little-endian.
type SavedNumber = [u8; 8];

/// Takes apart what was saved as numbers: the version, `HEAD` numbers, and `EACH` for each key.
///
/// # Errors
/// It has another version or length.
pub(crate) fn saved_parts<const HEAD: usize, const EACH: usize>(
    saved: &[u8],
    version: u64,
) -> Result<(&[SavedNumber; HEAD], &[[SavedNumber; EACH]]), String> {
    let (numbers, rest) = saved.as_chunks::<8>();
    let ([found, numbers @ ..], []) = (numbers, rest) else {
        return Err("what was kept is too short".to_owned());
    };
    if *found != version.to_le_bytes() {
        return Err("it was kept by another version of Millpond".to_owned());
    }
    let parts = numbers.split_first_chunk::<HEAD>();
    let (head, keys) = parts.ok_or("what was kept is too short")?;
    match keys.as_chunks::<EACH>() {
        (keys, []) => Ok((head, keys)),
        _ => Err(SENSELESS.to_owned()),
    }
}

/// What was saved, read from its front. Every function gives nothing where there is not enough left.
pub(crate) struct SavedBytes<'s>(pub &'s [u8]);

impl<'s> SavedBytes<'s> {
    pub fn bytes(&mut self, len: usize) -> Option<&'s [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    pub fn byte(&mut self) -> Option<u8> {
        self.bytes(1).map(|byte| byte[0])
    }

    pub fn number(&mut self) -> Option<u64> {
        let bytes = self.bytes(8)?.try_into().ok()?;
        Some(u64::from_le_bytes(bytes))
    }

    pub fn wide(&mut self) -> Option<i128> {
        let bytes = self.bytes(16)?.try_into().ok()?;
        Some(i128::from_le_bytes(bytes))
    }

    /// A length that fits into memory.
    pub fn len(&mut self) -> Option<usize> {
        usize::try_from(self.number()?).ok()
    }

    /// What [`save_text`] wrote.
    pub fn text(&mut self) -> Option<&'s [u8]> {
        let len = self.len()?;
        self.bytes(len)
    }
}

/// Appends a text behind its length.
pub(crate) fn save_text(text: &[u8], out: &mut Vec<u8>) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend_from_slice(text);
}
