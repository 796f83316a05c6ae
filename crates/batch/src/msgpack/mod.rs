//! MessagePack as bytes: checked once where it enters, then walked without being decoded.
//!
//! # How it is used
//! [`validate_map`] runs on every event that arrives. The walkers ([`find`], [`members`], [`elements`], [`skip_value`])
//! trust its answer; on other bytes they return nonsense, but never panic and always end. A length or count that a value
//! declares is never trusted beyond the bytes that are there, and nothing is allocated for it.
//!
//! # Normal form
//! A map whose [`Scan::rewrite`](crate::json::Scan::rewrite) is set goes through [`normalise`] once. Afterwards all keys
//! are strings of UTF-8, and none comes twice in a map. Strings that are values may hold any bytes, as senders put logs of any
//! encoding there: they stay as they came, and whoever reads one as text replaces what is not UTF-8 by U+FFFD.
//!
//! # Limits
//! Containers nest [`DEPTH_MAX`](crate::json::DEPTH_MAX) deep at most. A map or an array may be a key (its JSON text
//! becomes the key), but not inside another such key: each level would double the escapes of the one below.
//!
//! The format: <https://github.com/msgpack/msgpack/blob/master/spec.md>.

mod convert;
mod extent;
mod normalise;
mod validate;
mod walk;
mod write;

pub use convert::{from_json, to_json};
pub use extent::Extent;
pub use normalise::normalise;
pub use validate::{Checked, Checks, validate_map, validate_map_at};
pub use walk::{
    Elements, Member, Members, Value, elements, find, members, read, skip_value, value_len,
};
pub(crate) use write::{close_map, open_map};
pub use write::{
    write_array_header, write_bin, write_bool, write_ext, write_f64, write_i64, write_map_header,
    write_nil, write_str, write_u64,
};

/// Why bytes are not a valid MessagePack map, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kind} at byte {offset}")]
pub struct MsgPackError {
    /// Bytes from the start of the input.
    pub offset: usize,
    /// What is wrong there.
    pub kind: MsgPackErrorKind,
}

/// What can be wrong with MessagePack bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MsgPackErrorKind {
    /// The bytes are another value than a map.
    #[error("not a MessagePack map")]
    NotAMap,
    /// The bytes stop inside a value.
    #[error("unexpected end of MessagePack")]
    Truncated,
    /// The byte 0xC1, which begins no value.
    #[error("reserved MessagePack byte")]
    Reserved,
    /// More bytes after the map.
    #[error("unexpected bytes after the MessagePack map")]
    TrailingBytes,
    /// Containers nest deeper than [`DEPTH_MAX`](crate::json::DEPTH_MAX).
    #[error("nested too deeply")]
    TooDeep,
    /// A map or an array as a key within another one.
    #[error("container as a map key inside another such key")]
    NestedKey,
}

/// What a value's first bytes say. Declared lengths and counts are those of the sender.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Head {
    /// Nil
    Nil,
    /// A boolean
    Bool(bool),
    /// Any integer that 64 bits with a sign hold
    Int(i64),
    /// An integer beyond that
    UInt(u64),
    /// A float
    F64(f64),
    /// A string, with its length in bytes
    Str(usize),
    /// Binary data, with its length in bytes
    Bin(usize),
    /// An extension's type, and its length in bytes
    Ext(i8, usize),
    /// An array, with the number of its elements
    Array(usize),
    /// A map, with the number of its members
    Map(usize),
}

impl Head {
    /// How many bytes follow that are no values of their own.
    #[inline(always)]
    fn body_len(self) -> usize {
        match self {
            Self::Str(len) | Self::Bin(len) | Self::Ext(_, len) => len,
            _ => 0,
        }
    }

    /// How many values follow that belong to this one.
    #[inline(always)]
    fn values(self) -> u64 {
        match self {
            Self::Array(count) => count as u64,
            Self::Map(count) => 2 * count as u64,
            _ => 0,
        }
    }
}

/// Reads a value's head at `pos`; returns it with the position behind it. A body, where there is one, lies whole within
/// the bytes; the values of a container may not.
///
/// # Errors
/// The head or the body is truncated, or the reserved byte stands there.
#[inline(always)]
pub fn head(bytes: &[u8], pos: usize) -> Result<(Head, usize), MsgPackError> {
    let (head, body) = bare_head(bytes, pos)?;
    if head.body_len() > bytes.len() - body {
        return Err(truncated(bytes));
    }
    Ok((head, body))
}

/// [`head`] where the body may lie beyond the bytes.
///
/// # Errors
/// The head is truncated, or the reserved byte stands there.
#[inline(always)]
pub fn bare_head(bytes: &[u8], pos: usize) -> Result<(Head, usize), MsgPackError> {
    let Some(&marker) = bytes.get(pos) else {
        return Err(truncated(bytes));
    };
    let (head, body) = match marker {
        0x00..=0x7F => (Head::Int(i64::from(marker)), pos + 1),
        0x80..=0x8F => (Head::Map(usize::from(marker & 0x0F)), pos + 1),
        0x90..=0x9F => (Head::Array(usize::from(marker & 0x0F)), pos + 1),
        0xA0..=0xBF => (Head::Str(usize::from(marker & 0x1F)), pos + 1),
        0xE0..=0xFF => (Head::Int(i64::from(marker as i8)), pos + 1),
        _ => long_head(bytes, pos, marker)?,
    };
    Ok((head, body))
}

/// [`bare_head`] for the markers that have more bytes to them.
fn long_head(bytes: &[u8], pos: usize, marker: u8) -> Result<(Head, usize), MsgPackError> {
    let at = pos + 1;
    let head = match marker {
        0xC0 => return Ok((Head::Nil, at)),
        0xC2 | 0xC3 => return Ok((Head::Bool(marker == 0xC3), at)),
        0xC4 => (Head::Bin(size::<1>(bytes, at)?), 1),
        0xC5 => (Head::Bin(size::<2>(bytes, at)?), 2),
        0xC6 => (Head::Bin(size::<4>(bytes, at)?), 4),
        0xC7 => (
            Head::Ext(array::<1>(bytes, at + 1)?[0] as i8, size::<1>(bytes, at)?),
            2,
        ),
        0xC8 => (
            Head::Ext(array::<1>(bytes, at + 2)?[0] as i8, size::<2>(bytes, at)?),
            3,
        ),
        0xC9 => (
            Head::Ext(array::<1>(bytes, at + 4)?[0] as i8, size::<4>(bytes, at)?),
            5,
        ),
        0xCA => (
            Head::F64(f64::from(f32::from_be_bytes(array(bytes, at)?))),
            4,
        ),
        0xCB => (Head::F64(f64::from_be_bytes(array(bytes, at)?)), 8),
        0xCC => (Head::Int(size::<1>(bytes, at)? as i64), 1),
        0xCD => (Head::Int(size::<2>(bytes, at)? as i64), 2),
        0xCE => (
            Head::Int(i64::from(u32::from_be_bytes(array(bytes, at)?))),
            4,
        ),
        0xCF => (unsigned(u64::from_be_bytes(array(bytes, at)?)), 8),
        0xD0 => (
            Head::Int(i64::from(i8::from_be_bytes(array(bytes, at)?))),
            1,
        ),
        0xD1 => (
            Head::Int(i64::from(i16::from_be_bytes(array(bytes, at)?))),
            2,
        ),
        0xD2 => (
            Head::Int(i64::from(i32::from_be_bytes(array(bytes, at)?))),
            4,
        ),
        0xD3 => (Head::Int(i64::from_be_bytes(array(bytes, at)?)), 8),
        0xD4..=0xD8 => (
            Head::Ext(array::<1>(bytes, at)?[0] as i8, 1 << (marker - 0xD4)),
            1,
        ),
        0xD9 => (Head::Str(size::<1>(bytes, at)?), 1),
        0xDA => (Head::Str(size::<2>(bytes, at)?), 2),
        0xDB => (Head::Str(size::<4>(bytes, at)?), 4),
        0xDC => (Head::Array(size::<2>(bytes, at)?), 2),
        0xDD => (Head::Array(size::<4>(bytes, at)?), 4),
        0xDE => (Head::Map(size::<2>(bytes, at)?), 2),
        0xDF => (Head::Map(size::<4>(bytes, at)?), 4),
        _ => {
            return Err(MsgPackError {
                offset: pos,
                kind: MsgPackErrorKind::Reserved,
            });
        }
    };
    Ok((head.0, at + head.1))
}

#[inline(always)]
fn unsigned(value: u64) -> Head {
    i64::try_from(value).map_or(Head::UInt(value), Head::Int)
}

/// A big-endian length of `N` bytes, four at most.
#[inline(always)]
fn size<const N: usize>(bytes: &[u8], pos: usize) -> Result<usize, MsgPackError> {
    Ok(array::<N>(bytes, pos)?
        .iter()
        .fold(0, |size, &byte| size << 8 | usize::from(byte)))
}

#[inline(always)]
fn array<const N: usize>(bytes: &[u8], pos: usize) -> Result<[u8; N], MsgPackError> {
    bytes
        .get(pos..)
        .and_then(|rest| rest.first_chunk())
        .copied()
        .ok_or_else(|| truncated(bytes))
}

#[cold]
fn truncated(bytes: &[u8]) -> MsgPackError {
    MsgPackError {
        offset: bytes.len(),
        kind: MsgPackErrorKind::Truncated,
    }
}
