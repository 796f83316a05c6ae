//! Walking valid MessagePack: skipping values, iterating over members and elements, finding one member.

use std::ops::Range;

use super::{Head, MsgPackError, head};

/// A value as read from its bytes.
#[derive(Clone, Debug, PartialEq)]
pub enum Value<'a> {
    /// Nil
    Nil,
    /// A boolean
    Bool(bool),
    /// Any integer that 64 bits with a sign hold, however it was encoded
    Int(i64),
    /// An integer beyond that
    UInt(u64),
    /// A float; one of 32 bits is widened
    F64(f64),
    /// A string's bytes
    Str(&'a [u8]),
    /// Binary data
    Bin(&'a [u8]),
    /// Where a whole array lies, head included: what [`elements`] takes
    Array(Range<usize>),
    /// Where a whole map lies, head included: what [`members`] and [`find`] take
    Map(Range<usize>),
    /// An extension's type and data
    Ext(i8, &'a [u8]),
}

/// Reads the value at `pos` of valid bytes; returns it with the position behind it. Reads nil at the end of all bytes
/// where there is none.
#[inline]
pub fn read(bytes: &[u8], pos: usize) -> (Value<'_>, usize) {
    let Ok((head, body)) = head(bytes, pos) else {
        return (Value::Nil, bytes.len());
    };
    let end = body + head.body_len();
    let value = match head {
        Head::Nil => Value::Nil,
        Head::Bool(value) => Value::Bool(value),
        Head::Int(value) => Value::Int(value),
        Head::UInt(value) => Value::UInt(value),
        Head::F64(value) => Value::F64(value),
        Head::Str(_) => Value::Str(&bytes[body..end]),
        Head::Bin(_) => Value::Bin(&bytes[body..end]),
        Head::Ext(kind, _) => Value::Ext(kind, &bytes[body..end]),
        Head::Array(_) | Head::Map(_) => {
            let end = skip_value(bytes, pos);
            let range = pos..end;
            return (
                if matches!(head, Head::Map(_)) {
                    Value::Map(range)
                } else {
                    Value::Array(range)
                },
                end,
            );
        }
    };
    (value, end)
}

/// How many bytes the value at `pos` has. Checks that they are all there, and nothing else about it: depth, strings and
/// keys are [`super::validate_map`]'s affair.
///
/// # Errors
/// The value is truncated or holds the reserved byte.
#[inline]
pub fn value_len(bytes: &[u8], pos: usize) -> Result<usize, MsgPackError> {
    let mut at = pos;
    // Each turn takes a byte at least, so that a count beyond the bytes ends in an error, not in a long loop.
    let mut left = 1u64;
    while left > 0 {
        let (head, body) = head(bytes, at)?;
        at = body + head.body_len();
        left = left - 1 + head.values();
    }
    Ok(at - pos)
}

/// Where the value at `pos` of valid bytes ends.
#[inline]
pub fn skip_value(bytes: &[u8], pos: usize) -> usize {
    value_len(bytes, pos).map_or(bytes.len(), |len| pos + len)
}

/// One member of a map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member<'a> {
    /// The key's text; for a key that is no string, which normal form has none of, its encoded bytes.
    pub key: &'a [u8],
    /// Where the key's first byte stands, in bytes from the start of the map.
    pub start: usize,
    /// Where the value lies, in the same measure. The member ends with it.
    pub value: Range<usize>,
}

/// The members of a map in their order; see [`members`].
#[derive(Clone, Debug)]
pub struct Members<'a> {
    bytes: &'a [u8],
    pos: usize,
    left: usize,
}

/// Iterates over the members of a valid map, which begins with the first byte. Anything else has no members.
#[inline]
pub fn members(map: &[u8]) -> Members<'_> {
    match head(map, 0) {
        Ok((Head::Map(left), pos)) => Members {
            bytes: map,
            pos,
            left,
        },
        _ => Members {
            bytes: map,
            pos: 0,
            left: 0,
        },
    }
}

impl Members<'_> {
    /// How many members are still to come, as the map's head declares it.
    pub fn left(&self) -> usize {
        self.left
    }
}

impl<'a> Iterator for Members<'a> {
    type Item = Member<'a>;

    #[inline]
    fn next(&mut self) -> Option<Member<'a>> {
        self.left = self.left.checked_sub(1)?;
        let (start, bytes) = (self.pos, self.bytes);
        let (head, body) = head(bytes, start).ok()?;
        let (key, value) = match head {
            Head::Str(len) => (&bytes[body..body + len], body + len),
            _ => {
                let end = skip_value(bytes, start);
                (&bytes[start..end], end)
            }
        };
        self.pos = skip_value(bytes, value);
        Some(Member {
            key,
            start,
            value: value..self.pos,
        })
    }
}

/// The elements of an array in their order; see [`elements`].
#[derive(Clone, Debug)]
pub struct Elements<'a> {
    bytes: &'a [u8],
    pos: usize,
    left: usize,
}

/// Iterates over where the elements of a valid array lie, which begins with the first byte. Anything else has none.
#[inline]
pub fn elements(array: &[u8]) -> Elements<'_> {
    match head(array, 0) {
        Ok((Head::Array(left), pos)) => Elements {
            bytes: array,
            pos,
            left,
        },
        _ => Elements {
            bytes: array,
            pos: 0,
            left: 0,
        },
    }
}

impl Elements<'_> {
    /// How many elements are still to come, as the array's head declares it.
    pub fn left(&self) -> usize {
        self.left
    }
}

impl Iterator for Elements<'_> {
    type Item = Range<usize>;

    #[inline]
    fn next(&mut self) -> Option<Range<usize>> {
        self.left = self.left.checked_sub(1)?;
        let start = self.pos;
        self.pos = skip_value(self.bytes, start);
        (start < self.pos).then_some(start..self.pos)
    }
}

/// Where the value of `map`'s member `key` lies.
#[inline]
pub fn find(map: &[u8], key: &[u8]) -> Option<Range<usize>> {
    let Ok((Head::Map(count), mut pos)) = head(map, 0) else {
        return None;
    };
    for _ in 0..count {
        let (head, body) = head(map, pos).ok()?;
        let value = match head {
            Head::Str(len) if map[body..body + len] == *key => {
                return Some(body + len..skip_value(map, body + len));
            }
            Head::Str(len) => body + len,
            _ => skip_value(map, pos),
        };
        pos = skip_value(map, value);
    }
    None
}
