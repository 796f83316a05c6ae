//! Encodings of texts, and the parts of URLs.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use super::Takes::{Any, Text};
use super::{FunctionDoc, Kind, hash, text_of};
use crate::fault::What;
use crate::number::Num;
use crate::url::{UrlError, UrlParts};
use crate::value::{Val, map_of};

pub(super) const FUNCTIONS: &[FunctionDoc] = &[
    FunctionDoc::new(
        "base64.encode",
        &[Text],
        Kind::Write(base64_encode),
        [
            "base64.encode(text) -> string",
            "The text in base64, padded with `=`.",
            "base64.encode('hello') == 'aGVsbG8='",
        ],
    ),
    FunctionDoc::new(
        "base64.decode",
        &[Text],
        Kind::Write(base64_decode),
        [
            "base64.decode(text) -> string",
            "The text that is encoded in base64. Missing padding, other characters and bytes that are not UTF-8 are an error.",
            "base64.decode('aGVsbG8=') == 'hello'",
        ],
    ),
    FunctionDoc::new(
        "hex",
        &[Any],
        Kind::Write(hex),
        [
            "hex(value) -> string",
            "The bytes of a text, or a whole number, in lower-case hexadecimal.",
            "hex('abc') == '616263' && hex(255) == 'ff'",
        ],
    ),
    FunctionDoc::new(
        "url.encode",
        &[Text],
        Kind::Write(url_encode),
        [
            "url.encode(text) -> string",
            "The text with `%20` and the like for all but ASCII letters, digits, `-`, `.`, `_` and `~`: for use as a part of a URL.",
            "url.encode('a b/ä') == 'a%20b%2F%C3%A4'",
        ],
    ),
    FunctionDoc::new(
        "url.decode",
        &[Text],
        Kind::Write(url_decode),
        [
            "url.decode(text) -> string",
            "The text with the characters that `%20` and the like stand for; a `+` stays, and so does a `%` without two hexadecimal digits. Bytes that are not UTF-8 are an error.",
            "url.decode('a%20b%2Fc+d') == 'a b/c+d'",
        ],
    ),
    FunctionDoc::new(
        "url.parse",
        &[Text],
        Kind::Call(url_parse),
        [
            "url.parse(text) -> map",
            "The parts of a URL as they stand there: `scheme`, `username`, `password`, `domain`, `port` (a number), `path`, `query`, `fragment`; only those that are there. A path alone, as in access logs, is a URL too; it begins with `/`. Anything else without a scheme (`example.com:8080/a`, `not a url`) is an error. Other names of parts are refused at the start.",
            "url.parse(url).domain == 'example.com' && url.parse(url).port == 8443 && url.parse('/a?b=c') == {'path': '/a', 'query': 'b=c'}",
        ],
    ),
];

/// Everything but the unreserved characters of RFC 3986.
const RESERVED: AsciiSet = NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

fn base64_encode(args: &[Val<'_>], out: &mut Vec<u8>) -> Result<(), What> {
    let text = text_of(&args[0])?.as_bytes();
    let start = out.len();
    out.resize(start + text.len().div_ceil(3) * 4, 0);
    let written = STANDARD.encode_slice(text, &mut out[start..]);
    let len = written.map_err(|_| What::Other("the text cannot be encoded"))?;
    out.truncate(start + len);
    Ok(())
}

fn base64_decode(args: &[Val<'_>], out: &mut Vec<u8>) -> Result<(), What> {
    let text = text_of(&args[0])?.as_bytes();
    let start = out.len();
    STANDARD
        .decode_vec(text, out)
        .map_err(|_| What::Unreadable("base64"))?;
    utf8(&out[start..])
}

fn utf8(bytes: &[u8]) -> Result<(), What> {
    match std::str::from_utf8(bytes) {
        Ok(_) => Ok(()),
        Err(_) => Err(What::Other("the decoded bytes are not UTF-8")),
    }
}

fn hex(args: &[Val<'_>], out: &mut Vec<u8>) -> Result<(), What> {
    use std::io::Write;
    match (&args[0], args[0].number()) {
        (Val::Text(text), _) => {
            hash::write_hex(text, out);
            Ok(())
        }
        (_, Some(Num::Int(number))) => {
            let sign = if number < 0 { "-" } else { "" };
            write!(out, "{sign}{:x}", number.unsigned_abs())
                .map_err(|_| What::Other("the value cannot be written"))
        }
        (other, _) => Err(What::Needs("a text or a whole number", other.kind())),
    }
}

fn url_encode(args: &[Val<'_>], out: &mut Vec<u8>) -> Result<(), What> {
    for part in utf8_percent_encode(text_of(&args[0])?, &RESERVED) {
        out.extend_from_slice(part.as_bytes());
    }
    Ok(())
}

fn url_decode(args: &[Val<'_>], out: &mut Vec<u8>) -> Result<(), What> {
    let start = out.len();
    out.extend(percent_decode_str(text_of(&args[0])?));
    utf8(&out[start..])
}

/// The parts that there are.
const PARTS: [&str; 8] = [
    "scheme", "username", "password", "domain", "port", "path", "query", "fragment",
];

/// What other tools call the parts.
const PART_HABITS: [(&str, &str); 12] = [
    ("host", "domain"),
    ("hostname", "domain"),
    ("authority", "domain"),
    ("address", "domain"),
    ("protocol", "scheme"),
    ("user", "username"),
    ("pathname", "path"),
    ("params", "query"),
    ("search", "query"),
    ("querystring", "query"),
    ("hash", "fragment"),
    ("anchor", "fragment"),
];

/// What is wrong with a part of a URL that nothing is called, and what may be meant.
pub(super) fn unknown_part(name: &str) -> Option<(String, Option<&'static str>)> {
    if PARTS.contains(&name) {
        return None;
    }
    let message = format!(
        "a URL has no part `{name}`; its parts are {}",
        PARTS.join(", ")
    );
    let lower = name.to_ascii_lowercase();
    let habit = PART_HABITS.iter().find(|(habit, _)| *habit == lower);
    let distance = |part: &&str| strsim::damerau_levenshtein(part, &lower);
    let close = PARTS.iter().copied().min_by_key(distance);
    let close = close.filter(|part| distance(part) <= 2);
    Some((message, habit.map(|(_, part)| *part).or(close)))
}

/// The parts that a URL has, in the order in which they stand in it.
fn url_parse<'a>(args: &[Val<'a>]) -> Result<Val<'a>, What> {
    let parts = UrlParts::read(text_of(&args[0])?);
    let parts = parts.map_err(|UrlError(wanted)| What::Unreadable(wanted))?;
    let text = |text: Option<&'_ str>| text.map(part).map(Val::into_owned);
    let values = [
        text(parts.scheme),
        text(parts.username),
        text(parts.password),
        text(parts.domain),
        parts.port.map(|port| Val::Int(port.into())),
        text(parts.path),
        text(parts.query),
        text(parts.fragment),
    ];
    let there = PARTS.into_iter().zip(values);
    let entries: Vec<_> = there
        .filter_map(|(name, value)| Some((part(name), value?)))
        .collect();
    map_of(&entries).map(Val::into_owned)
}

fn part(text: &str) -> Val<'_> {
    Val::Text(text.as_bytes().into())
}
