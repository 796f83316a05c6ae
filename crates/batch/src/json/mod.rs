//! JSON as bytes: checked once where it enters, then walked without being parsed.
//!
//! # How it is used
//! [`validate_object`] runs on every event that arrives. Everything else trusts its answer: the walkers ([`find`],
//! [`members`], [`elements`], [`skip_value`]) neither check nor allocate, and on text that was not validated they return
//! nonsense, but never panic and always end. Texts are UTF-8; whoever calls checks that first.
//!
//! # Normal form
//! A text whose [`Scan::rewrite`] is set goes through [`normalise`] once. Afterwards no object holds the same key twice,
//! and a key holds an escape only where JSON demands one (quote, backslash, control characters). So two keys are
//! equal exactly when their bytes are, and [`find`] takes a key as [`write_string_body`] writes it.
//!
//! # Limits
//! Containers nest [`DEPTH_MAX`] deep at most. Lone surrogates (`"\ud800"`), which RFC 8259 leaves open, are accepted and
//! kept as they came; [`unescape`] reads them as U+FFFD. Numbers are text of any length.

pub(crate) mod duplicates;
pub(crate) mod lanes;
mod normalise;
mod search;
mod strings;
mod validate;
mod walk;
mod write;

pub use normalise::normalise;
pub(crate) use search::Keys;
pub(crate) use strings::has_escape_at;
pub use strings::{escaped_len, has_escape, unescape, write_string, write_string_body};
pub(crate) use validate::{Noted, validate_object_noting};
pub use validate::{validate, validate_object, validate_object_at, validate_object_within};
pub use walk::{
    Elements, Kind, Member, Members, elements, find, is_empty, kind, members, skip_value,
};
pub(crate) use walk::{
    NotedKey, SharedNesting, StringBody, end_before, find_noted, members_noted, string_at,
};
pub use write::{write_f64, write_i64, write_u64};

/// How deep arrays and objects may nest; the same for MessagePack.
pub const DEPTH_MAX: usize = 1024;

/// What a validator learned about a text besides that it is valid.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scan {
    /// The text must be rewritten before it is walked: some object, at any depth, has a duplicate key or an escaped one
    /// (MessagePack: a key that is not a string of UTF-8).
    pub rewrite: bool,
    /// Some key, at any depth, contains a dot. (MessagePack: any key that is neither a string nor an integer counts.)
    pub dotted_keys: bool,
}

/// Why a text is not valid JSON, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kind} at byte {offset}")]
pub struct JsonError {
    /// Bytes from the start of the text.
    pub offset: usize,
    /// What is wrong there.
    pub kind: JsonErrorKind,
}

/// What can be wrong with a JSON text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JsonErrorKind {
    /// The text is another value than an object, or none at all.
    #[error("not a JSON object")]
    NotAnObject,
    /// The text stops in the middle of a value.
    #[error("unexpected end of JSON")]
    UnexpectedEnd,
    /// A byte that cannot stand there.
    #[error("unexpected character")]
    UnexpectedByte,
    /// A byte below 0x20 inside a string.
    #[error("control character in a string")]
    ControlCharacter,
    /// A backslash with something else than JSON's escapes after it.
    #[error("invalid escape in a string")]
    InvalidEscape,
    /// A number that breaks JSON's grammar, such as `01`, `1.` or `-`.
    #[error("invalid number")]
    InvalidNumber,
    /// More than whitespace after the value.
    #[error("unexpected characters after the JSON value")]
    TrailingBytes,
    /// Containers nest deeper than this, at most [`DEPTH_MAX`].
    #[error("nested deeper than {0} levels")]
    TooDeep(usize),
}

/// The first position at or after `pos` that holds no whitespace.
#[inline(always)]
fn skip_whitespace(text: &[u8], pos: usize) -> usize {
    if byte_at(text, pos) > b' ' {
        pos
    } else {
        skip_some_whitespace(text, pos)
    }
}

#[inline(never)]
fn skip_some_whitespace(text: &[u8], mut pos: usize) -> usize {
    while let Some(b' ' | b'\n' | b'\r' | b'\t') = text.get(pos) {
        pos += 1;
    }
    pos
}

/// The byte at `pos`; zero, which occurs nowhere in JSON, beyond the end.
#[inline(always)]
fn byte_at(text: &[u8], pos: usize) -> u8 {
    text.get(pos).copied().unwrap_or(0)
}
