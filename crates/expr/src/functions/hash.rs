//! Hashes of texts, in lower-case hexadecimal.

use std::borrow::Cow;

use hmac::{Hmac, KeyInit, Mac};
use md5::Md5;
use sha1::Sha1;
use sha2::{Digest, Sha256, Sha512};

use super::Takes::{Among, Any, Text};
use super::{FunctionDoc, Kind, Write, text_of};
use crate::fault::What;
use crate::value::Val;

pub(super) const FUNCTIONS: &[FunctionDoc] = &[
    FunctionDoc::new(
        "sha256",
        &[Any],
        Kind::Write(digest::<Sha256>),
        [
            "sha256(value) -> string",
            "The SHA-256 of a text, or of what `string(value)` gives, in 64 hexadecimal digits.",
            "sha256('abc') == 'ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad'",
        ],
    ),
    FunctionDoc::new(
        "sha512",
        &[Any],
        Kind::Write(digest::<Sha512>),
        [
            "sha512(value) -> string",
            "The SHA-512 of a text, or of what `string(value)` gives, in 128 hexadecimal digits.",
            "sha512('abc').startsWith('ddaf35a193617abacc417349ae204131')",
        ],
    ),
    FunctionDoc::new(
        "sha1",
        &[Any],
        Kind::Write(digest::<Sha1>),
        [
            "sha1(value) -> string",
            "The SHA-1 of a text, or of what `string(value)` gives, in 40 hexadecimal digits. Not for security.",
            "sha1('abc') == 'a9993e364706816aba3e25717850c26c9cd0d89d'",
        ],
    ),
    FunctionDoc::new(
        "md5",
        &[Any],
        Kind::Write(digest::<Md5>),
        [
            "md5(value) -> string",
            "The MD5 of a text, or of what `string(value)` gives, in 32 hexadecimal digits. Not for security.",
            "md5('abc') == '900150983cd24fb0d6963f7d28e17f72'",
        ],
    ),
    FunctionDoc::new(
        "xxh3",
        &[Any],
        Kind::Write(xxh3),
        [
            "xxh3(value) -> string",
            "The 64-bit XXH3 of a text, or of what `string(value)` gives, in 16 hexadecimal digits: fast, for grouping and sharding, not for security.",
            "xxh3('abc') == '78af5f94892f3950'",
        ],
    ),
    FunctionDoc::new(
        "hmac",
        &[Any, Text, Among(&["sha256", "sha512", "sha1", "md5"], ALGORITHMS)],
        Kind::Write(hmac),
        [
            "hmac(value, key[, algorithm]) -> string",
            "The HMAC of a text, or of what `string(value)` gives, with a key: `sha256` (the default), `sha512`, `sha1` or `md5`; in hexadecimal. Pseudonyms that nobody can look up without the key: `hmac(user.name, env('KEY'))`.",
            "hmac('what do ya want for nothing?', 'Jefe', 'md5') == '750c783e6ab0b503eaa86e310a5db738'",
        ],
    )
    .optional(1),
];

const ALGORITHMS: &str = "the algorithm is sha256, sha512, sha1 or md5";

/// The bytes that are hashed.
fn bytes_of<'v>(value: &'v Val<'_>) -> Cow<'v, [u8]> {
    match value {
        Val::Text(text) | Val::Number(text) | Val::Json(text) => Cow::Borrowed(text),
        other => {
            let mut text = Vec::new();
            other.with_value(|value| value.write_text(&mut text));
            Cow::Owned(text)
        }
    }
}

fn digest<D: Digest>(args: &[Val<'_>], out: &mut Vec<u8>) -> Result<(), What> {
    write_hex(&D::digest(bytes_of(&args[0])), out);
    Ok(())
}

fn xxh3(args: &[Val<'_>], out: &mut Vec<u8>) -> Result<(), What> {
    let hash = xxhash_rust::xxh3::xxh3_64(&bytes_of(&args[0]));
    write_hex(&hash.to_be_bytes(), out);
    Ok(())
}

fn hmac(args: &[Val<'_>], out: &mut Vec<u8>) -> Result<(), What> {
    let key = text_of(&args[1])?.as_bytes();
    let text = bytes_of(&args[0]);
    match args.get(2).map(text_of).transpose()? {
        None | Some("sha256") => code::<Hmac<Sha256>>(key, &text, out),
        Some("sha512") => code::<Hmac<Sha512>>(key, &text, out),
        Some("sha1") => code::<Hmac<Sha1>>(key, &text, out),
        Some("md5") => code::<Hmac<Md5>>(key, &text, out),
        Some(_) => Err(What::Other(ALGORITHMS)),
    }
}

fn code<M: Mac + KeyInit>(key: &[u8], text: &[u8], out: &mut Vec<u8>) -> Result<(), What> {
    let mac = <M as KeyInit>::new_from_slice(key);
    let mut mac = mac.map_err(|_| What::Other("the key cannot be used"))?;
    mac.update(text);
    write_hex(&mac.finalize().into_bytes(), out);
    Ok(())
}

/// Appends bytes in lower-case hexadecimal.
pub(super) fn write_hex(bytes: &[u8], out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for byte in bytes {
        out.push(DIGITS[usize::from(byte >> 4)]);
        out.push(DIGITS[usize::from(byte & 15)]);
    }
}

/// Appends a UUID made of a name: version 5, in the name space of object identifiers (RFC 9562).
pub(super) const UUID: Write = |args, out| {
    const NAME_SPACE: [u8; 16] = [
        0x6b, 0xa7, 0xb8, 0x12, 0x9d, 0xad, 0x11, 0xd1, 0x80, 0xb4, 0x00, 0xc0, 0x4f, 0xd4, 0x30,
        0xc8,
    ];
    let mut hash = Sha1::new();
    hash.update(NAME_SPACE);
    hash.update(text_of(&args[0])?);
    let mut bytes: [u8; 16] = [0; 16];
    bytes.copy_from_slice(&hash.finalize()[..16]);
    bytes[6] = bytes[6] & 0x0f | 0x50;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    for (index, part) in [0..4, 4..6, 6..8, 8..10, 10..16].into_iter().enumerate() {
        if index > 0 {
            out.push(b'-');
        }
        write_hex(&bytes[part], out);
    }
    Ok(())
};
