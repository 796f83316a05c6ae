//! Values that hold pairs themselves, as `recursive` makes objects of them.

use std::borrow::Cow;
use std::collections::HashMap;

use batch::json;

use super::{Kv, change};
use crate::keyed::{Keyed, Value, ValueLocation, distinct_if, write_values};
use crate::text::Trim;

/// How deep objects may lie in each other; what lies deeper stays text.
const DEPTH_MAX: usize = 8;

/// The value of a nested pair.
struct Inner<'t> {
    bytes: Cow<'t, [u8]>,
    is_json: bool,
}

impl Kv {
    /// The value as an object of the pairs in it; itself when it has none, or nobody asked.
    #[inline]
    pub(super) fn nested_in<N: Fn(&[u8]) -> Option<String>>(
        &self,
        text: &[u8],
        value: ValueLocation,
        fields: &mut Keyed<'_, N>,
    ) -> ValueLocation {
        if !self.config.recursive {
            return value;
        }
        let bytes = match value {
            ValueLocation::Text(start, end) => Cow::from(&text[start..end]),
            ValueLocation::Changed(start, end) => Cow::from(fields.changed[start..end].to_vec()),
            ValueLocation::Json(..) => return value,
        };
        let start = fields.changed.len();
        let out = &mut fields.changed;
        match self.write_nested(&bytes, 1, out, &mut fields.dotted_keys) {
            true => ValueLocation::Json(start, fields.changed.len()),
            false => value,
        }
    }

    /// Appends the object of the pairs in a text; nothing, and `false`, where there are none.
    fn write_nested(
        &self,
        text: &[u8],
        depth: usize,
        out: &mut Vec<u8>,
        dotted: &mut bool,
    ) -> bool {
        let mut places: HashMap<String, usize> = HashMap::new();
        let mut groups: Vec<(String, Vec<Inner<'_>>)> = Vec::new();
        let mut pos = 0;
        while let Some((pair, next)) = self.splitter.next(text, pos) {
            pos = next;
            let (start, end) = Trim::All.range(text, pair.value, &self.config.trim_value);
            if start == end && !self.config.allow_empty_values {
                continue;
            }
            let Some(name) = self.name(&text[pair.key.0..pair.key.1]) else {
                continue;
            };
            *dotted |= name.contains('.');
            let inner = self.inner(&text[start..end], depth, dotted);
            let place = *places.entry(name).or_insert_with_key(|name| {
                groups.push((name.clone(), Vec::new()));
                groups.len() - 1
            });
            groups[place].1.push(inner);
        }
        for (index, (name, group)) in groups.iter().enumerate() {
            out.push(if index == 0 { b'{' } else { b',' });
            json::write_string(out, name.as_bytes());
            out.push(b':');
            let values = group.iter().map(|inner| Value {
                bytes: &inner.bytes,
                is_json: inner.is_json,
            });
            write_values(
                &distinct_if(!self.config.allow_duplicate_values, values),
                out,
            );
        }
        if !groups.is_empty() {
            out.push(b'}');
        }
        !groups.is_empty()
    }

    fn inner<'t>(&self, text: &'t [u8], depth: usize, dotted: &mut bool) -> Inner<'t> {
        let config = &self.config;
        let bytes = if self.plain_values {
            Cow::from(text)
        } else {
            let text = String::from_utf8_lossy(text);
            let value = change(text, &config.remove_char_value, config.transform_value);
            Cow::from(value.into_owned().into_bytes())
        };
        let mut object = Vec::new();
        if depth < DEPTH_MAX && self.write_nested(&bytes, depth + 1, &mut object, dotted) {
            return Inner {
                bytes: object.into(),
                is_json: true,
            };
        }
        Inner {
            bytes,
            is_json: false,
        }
    }
}
