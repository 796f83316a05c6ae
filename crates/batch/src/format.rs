//! What differs between the formats that events are written in.
//!
//! An object is opened, its members are written one after the other, and it is closed with their number. JSON's first
//! comma gives way to the brace, so that no member has to know whether it is the first; formats with lengths or counts set
//! these at the end, in front of what was written.

use std::borrow::Cow;

use crate::cell::Value;
use crate::{json, msgpack};

/// A format that events are written in. A member is begun, then come its key and its value, which may be an object, then it is ended.
pub trait EventFormat {
    /// Whether it costs more to write a JSON value than to copy it, so that one which many rows share is kept as it was written.
    const REWRITES_JSON: bool;

    /// Begins an object; the result is for [`Self::close`].
    fn open(out: &mut Vec<u8>) -> usize;

    /// Ends the object that was opened at `start`.
    fn close(start: usize, members: usize, out: &mut Vec<u8>);

    /// Begins a member, of the event itself or of an object in it; the result is for [`Self::end`].
    #[inline]
    fn begin(_is_of_event: bool, _out: &mut Vec<u8>) -> usize {
        0
    }

    /// Ends the member that was begun at `start`.
    #[inline]
    fn end(_start: usize, _out: &mut Vec<u8>) {}

    /// Appends a member's key with all that stands between it and its value.
    fn key(key: &[u8], out: &mut Vec<u8>);

    /// Appends a key as a JSON document spells it, as [`Self::key`].
    fn json_key(raw: &[u8], out: &mut Vec<u8>);

    /// Appends a value that is text.
    fn text(text: &[u8], out: &mut Vec<u8>);

    /// Appends a value; an absent one as null.
    fn value(value: Value<'_>, out: &mut Vec<u8>);
}

/// JSON, without whitespace.
#[derive(Debug)]
pub enum Json {}

impl EventFormat for Json {
    const REWRITES_JSON: bool = false;

    #[inline]
    fn open(out: &mut Vec<u8>) -> usize {
        out.len()
    }

    #[inline]
    fn close(start: usize, _: usize, out: &mut Vec<u8>) {
        match out.get_mut(start) {
            Some(first) => {
                *first = b'{';
                out.push(b'}');
            }
            None => out.extend_from_slice(b"{}"),
        }
    }

    fn key(key: &[u8], out: &mut Vec<u8>) {
        out.push(b',');
        json::write_string(out, key);
        out.push(b':');
    }

    fn json_key(raw: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(b",\"");
        out.extend_from_slice(raw);
        out.extend_from_slice(b"\":");
    }

    #[inline]
    fn text(text: &[u8], out: &mut Vec<u8>) {
        json::write_string(out, text);
    }

    #[inline]
    fn value(value: Value<'_>, out: &mut Vec<u8>) {
        value.write_json(out);
    }
}

/// MessagePack, each value in its smallest encoding.
#[derive(Debug)]
pub enum MsgPack {}

impl EventFormat for MsgPack {
    const REWRITES_JSON: bool = true;

    #[inline]
    fn open(out: &mut Vec<u8>) -> usize {
        msgpack::open_map(out)
    }

    #[inline]
    fn close(start: usize, members: usize, out: &mut Vec<u8>) {
        msgpack::close_map(start, members, out);
    }

    fn key(key: &[u8], out: &mut Vec<u8>) {
        msgpack::write_str(out, key);
    }

    fn json_key(raw: &[u8], out: &mut Vec<u8>) {
        msgpack::write_str(out, &unescaped(raw));
    }

    #[inline]
    fn text(text: &[u8], out: &mut Vec<u8>) {
        msgpack::write_str(out, text);
    }

    #[inline]
    fn value(value: Value<'_>, out: &mut Vec<u8>) {
        value.write_msgpack(out);
    }
}

/// The key that a JSON document spells as `raw`.
pub(crate) fn unescaped(raw: &[u8]) -> Cow<'_, [u8]> {
    if !json::has_escape(raw) {
        return Cow::Borrowed(raw);
    }
    let mut plain = Vec::new();
    json::unescape(raw, &mut plain);
    Cow::Owned(plain)
}
