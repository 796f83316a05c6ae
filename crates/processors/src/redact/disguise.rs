//! What stands in the place of a secret.

use std::net::IpAddr;

use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};

use super::preset::{Preset, SecretMatch};
use crate::text::write_hex;

/// The bytes of a hash that are written, in hexadecimal: 64 bits are enough to tell millions of values apart.
const HASH_BYTES: usize = 8;

/// What replaces a secret.
#[derive(Debug, Clone)]
pub(super) enum Disguise {
    /// A text, and the last characters of the secret.
    Mask { text: Box<str>, keep: usize },
    /// The beginning of its SHA-256.
    Hash,
    /// The beginning of its HMAC with SHA-256.
    Hmac(Box<Hmac<Sha256>>),
}

impl Disguise {
    /// An HMAC with a key.
    pub fn hmac(key: &[u8]) -> Option<Self> {
        let mac = <Hmac<Sha256> as KeyInit>::new_from_slice(key).ok()?;
        Some(Self::Hmac(Box::new(mac)))
    }

    /// Appends what replaces the secret.
    pub fn write(&self, text: &[u8], secret: &SecretMatch, out: &mut Vec<u8>) {
        let value = &text[secret.start..secret.end];
        match self {
            Self::Mask { text, keep } => {
                out.extend_from_slice(text.as_bytes());
                out.extend_from_slice(last(value, *keep));
            }
            Self::Hash => write_hash(&Sha256::digest(plain(value, secret.preset)), out),
            Self::Hmac(mac) => {
                let mut mac = mac.clone();
                mac.update(&plain(value, secret.preset));
                write_hash(&mac.finalize().into_bytes(), out);
            }
        }
    }
}

/// The last characters of a text; none where that were more than half of it.
fn last(text: &[u8], characters: usize) -> &[u8] {
    let is_first = |byte: &u8| byte & 0xc0 != 0x80;
    let all = text.iter().filter(|byte| is_first(byte)).count();
    if characters == 0 || characters > all / 2 {
        return &[];
    }
    let firsts = text.iter().enumerate().rev();
    let mut firsts = firsts.filter(|(_, byte)| is_first(byte));
    let start = firsts
        .nth(characters - 1)
        .map_or(text.len(), |(start, _)| start);
    &text[start..]
}

/// A secret as it is hashed: the same for all ways to write it.
fn plain(text: &[u8], preset: Option<Preset>) -> Vec<u8> {
    let decoded = || percent_encoding::percent_decode(text).collect::<Vec<u8>>();
    match preset {
        Some(Preset::Card) => {
            let mut digits = decoded();
            digits.retain(u8::is_ascii_digit);
            digits
        }
        Some(Preset::Iban) => {
            let mut characters = decoded();
            characters.retain(u8::is_ascii_alphanumeric);
            characters.make_ascii_uppercase();
            characters
        }
        Some(Preset::Email) => decoded().to_ascii_lowercase(),
        Some(Preset::Ip) => {
            let address = std::str::from_utf8(text).ok();
            let address = address.and_then(|text| text.parse::<IpAddr>().ok());
            address.map_or_else(|| text.to_vec(), |address| address.to_string().into_bytes())
        }
        _ => text.to_vec(),
    }
}

fn write_hash(hash: &[u8], out: &mut Vec<u8>) {
    write_hex(&hash[..HASH_BYTES], out);
}
