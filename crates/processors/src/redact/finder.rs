//! Finding secrets in a text.
//!
//! Most presets begin at the first letter or digit of a word, or around a sign such as `@`; `candidates` finds these places. Only there, and
//! of letters only where the first two begin a token or an IBAN, the exact rules are asked, in `numbers`, `addresses` and `tokens`. What they
//! look at is bounded, so that no text costs more than a few looks at each byte.
//!
//! A word consists of ASCII letters and digits; everything else separates, also `_` and letters of other scripts, which stand next
//! to numbers without a blank. So do escapes that end with a letter or a digit: `%20`, `\n`, `\u0022`, and colours of terminals.

use std::cmp::Reverse;
use std::ops::Range;

use regex_automata::Input;
use regex_automata::meta::Regex;

use super::candidates::{Beginnings, Candidates};
use super::preset::{Preset, PresetSet, SecretMatch};
use super::tokens::TokenShape;
use super::{addresses, numbers, tokens};

/// The shortest secret: `::1`.
const BYTES_MIN: usize = 3;

/// The shortest one without a colon or `@`: `1.1.1.1`.
const PLAIN_BYTES_MIN: usize = 7;

/// How the names of AWS's secrets begin, and those parts of them that follow a sign.
const AWS_NAMES: [[u8; 2]; 6] = [*b"aw", *b"Aw", *b"AW", *b"se", *b"Se", *b"SE"];

/// Finds the secrets of some presets and patterns.
#[derive(Debug, Clone)]
pub(super) struct SecretFinder {
    presets: PresetSet,
    patterns: Vec<Regex>,
    beginnings: Beginnings,
    /// The shapes of tokens, sorted by their first two letters, and those of each letter.
    shapes: Vec<TokenShape>,
    shapes_of: [Range<u8>; 128],
}

/// A pass over a text.
struct Pass<'a> {
    finder: &'a SecretFinder,
    text: &'a [u8],
    found: &'a mut Vec<SecretMatch>,
    /// Behind the colons and digits that were looked at as an IPv6 address.
    colons_end: usize,
    /// Behind the first part of what was looked at as a JSON Web Token.
    jwt_end: usize,
}

impl SecretFinder {
    pub fn new(presets: PresetSet, patterns: Vec<Regex>) -> Self {
        let mut finder = Self {
            presets,
            patterns,
            beginnings: Beginnings::new(presets.has(Preset::Iban)),
            shapes: TokenShape::of(presets).collect(),
            shapes_of: [const { 0..0 }; 128],
        };
        finder.add_beginnings();
        finder
    }

    /// Notes the first two letters of everything that begins with letters, apart from IBANs, which may begin with any.
    fn add_beginnings(&mut self) {
        self.shapes.sort_by_key(|shape| shape.begin());
        let mut begins: Vec<[u8; 2]> = self.shapes.iter().map(|shape| shape.begin()).collect();
        for (place, [first, _]) in (0..).zip(&begins) {
            let range = &mut self.shapes_of[usize::from(*first)];
            let is_first = range.end == 0;
            *range = if is_first { place } else { range.start }..place + 1;
        }
        let mut add = |preset, more: &[[u8; 2]]| {
            if self.presets.has(preset) {
                begins.extend(more);
            }
        };
        add(Preset::Jwt, &[*b"ey"]);
        add(Preset::PrivateKey, &[*b"BE"]);
        add(Preset::Aws, &AWS_NAMES);
        for begin in begins {
            self.beginnings.add(begin);
        }
    }

    /// Whether texts of so many bytes hold no secret.
    #[inline]
    pub fn is_too_short(&self, len: usize) -> bool {
        len < BYTES_MIN && self.patterns.is_empty()
    }

    /// Whether a JSON value holds no secret for certain. Its texts begin and end with quotes, at which all presets stop.
    pub fn is_free(&self, json: &[u8], found: &mut Vec<SecretMatch>) -> bool {
        if !self.patterns.is_empty() || batch::json::has_escape(json) {
            return false;
        }
        self.find_presets(json, found);
        found.is_empty()
    }

    /// Collects the secrets of a text, in sequence; what overlaps is joined.
    pub fn find(&self, text: &[u8], found: &mut Vec<SecretMatch>) {
        self.find_presets(text, found);
        self.find_patterns(text, found);
        if found.len() > 1 {
            join(found);
        }
    }

    fn find_patterns(&self, text: &[u8], found: &mut Vec<SecretMatch>) {
        let mut push = |span: Range<usize>| {
            if !span.is_empty() {
                found.push(SecretMatch {
                    start: span.start,
                    end: span.end,
                    preset: None,
                });
            }
        };
        for pattern in &self.patterns {
            if pattern.captures_len() == 1 {
                pattern
                    .find_iter(text)
                    .for_each(|matched| push(matched.range()));
                continue;
            }
            for captures in pattern.captures_iter(Input::new(text)) {
                let groups = captures.iter().skip(1).flatten();
                groups.for_each(|group| push(group.range()));
            }
        }
    }

    fn find_presets(&self, text: &[u8], found: &mut Vec<SecretMatch>) {
        found.clear();
        let is_sign = |byte: &u8| matches!(byte, b':' | b'@');
        let is_free = text.len() < PLAIN_BYTES_MIN && !text.iter().any(is_sign);
        if is_free || self.presets.is_empty() {
            return;
        }
        let mut pass = Pass {
            finder: self,
            text,
            found,
            colons_end: 0,
            jwt_end: 0,
        };
        // Behind what was found last.
        let mut floor = 0;
        for mut at in Candidates::new(text, &self.beginnings) {
            while at >= floor
                && let Some(end) = pass.look(at)
            {
                floor = end;
                // What ends within a word may be followed by something at once.
                if is_word(text, end - 1) && is_word(text, end) {
                    at = end;
                }
            }
        }
    }
}

impl Pass<'_> {
    /// Looks for a secret at or around a byte. Where it ends.
    #[inline(never)]
    fn look(&mut self, at: usize) -> Option<usize> {
        match is_word(self.text, at) {
            true => self.start(at),
            false => self.sign(at),
        }
    }

    fn has(&self, preset: Preset) -> bool {
        self.finder.presets.has(preset)
    }

    fn push(&mut self, span: Range<usize>, preset: Preset) -> Option<usize> {
        let end = span.end;
        self.found.push(SecretMatch {
            start: span.start,
            end,
            preset: Some(preset),
        });
        Some(end)
    }

    /// Looks for what begins with the first byte of a word.
    #[inline]
    fn start(&mut self, at: usize) -> Option<usize> {
        let byte = *self.text.get(at)?;
        if byte.is_ascii_digit() {
            return self.number(at);
        }
        let second = *self.text.get(at + 1).filter(|byte| byte.is_ascii())?;
        if self.finder.beginnings.has(byte, second)
            && let Some(end) = self.word(at, [byte, second])
        {
            return Some(end);
        }
        let has_digits = self.text.get(at + 2).is_some_and(u8::is_ascii_digit);
        if !has_digits || !self.has(Preset::Iban) {
            return None;
        }
        let end = numbers::iban(self.text, at)?;
        self.push(at..end, Preset::Iban)
    }

    fn number(&mut self, at: usize) -> Option<usize> {
        let text = self.text;
        let digits = numbers::digits_at(text, at, 4);
        if digits == 4 {
            let end = self.has(Preset::Card).then(|| numbers::card(text, at))??;
            return self.push(at..end, Preset::Card);
        }
        if text.get(at + digits) != Some(&b'.') || !self.has(Preset::Ip) {
            return None;
        }
        let end = numbers::ipv4(text, at)?;
        self.push(at..end, Preset::Ip)
    }

    fn word(&mut self, at: usize, begin: [u8; 2]) -> Option<usize> {
        let text = self.text;
        let finder = self.finder;
        let Range { start, end } = finder.shapes_of[usize::from(begin[0])];
        let shapes = &finder.shapes[usize::from(start)..usize::from(end)];
        for shape in shapes.iter().filter(|shape| shape.begin() == begin) {
            if let Some(span) = shape.find(text, at) {
                return self.push(span, shape.preset());
            }
        }
        if begin == *b"ey" && self.has(Preset::Jwt) && at >= self.jwt_end {
            let (token, header) = tokens::jwt(text, at);
            self.jwt_end = header;
            return self.push(token?, Preset::Jwt);
        }
        if begin == *b"BE" && self.has(Preset::PrivateKey) {
            return self.push(tokens::private_key(text, at)?, Preset::PrivateKey);
        }
        if AWS_NAMES.contains(&begin) && self.has(Preset::Aws) {
            return self.push(tokens::aws_secret(text, at)?, Preset::Aws);
        }
        None
    }

    /// Looks for what lies around a sign.
    fn sign(&mut self, at: usize) -> Option<usize> {
        let text = self.text;
        match text[at] {
            b'@' => self.email(at..at + 1),
            b':' => self.colon(at),
            b'=' => {
                let key = self.has(Preset::Azure);
                let key = key.then(|| tokens::azure_key(text, at))??;
                self.push(key, Preset::Azure)
            }
            b'%' => self.percent(at),
            b'\\' if text.get(at + 1) == Some(&b'u') => self.start(at + 6),
            b'\\' => self.start(at + 2),
            _ => self.colour(at),
        }
    }

    fn email(&mut self, sign: Range<usize>) -> Option<usize> {
        let last = self.found.last().copied();
        let is_url =
            |last: &SecretMatch| last.preset == Some(Preset::UrlPassword) && last.end == sign.start;
        if !self.has(Preset::Email) || last.as_ref().is_some_and(is_url) {
            return None;
        }
        // A name that was found as something else becomes part of the address.
        let floor = match last {
            Some(last) if last.end == sign.start => last.start,
            Some(last) => last.end,
            None => 0,
        };
        let span = addresses::email(self.text, sign, floor)?;
        self.push(span, Preset::Email)
    }

    fn colon(&mut self, at: usize) -> Option<usize> {
        let rest = &self.text[at..];
        if rest.starts_with(addresses::URL_SIGN) || rest.starts_with(addresses::URL_SIGN_ESCAPED) {
            let password = self
                .has(Preset::UrlPassword)
                .then(|| addresses::url_password(self.text, at))??;
            return self.push(password, Preset::UrlPassword);
        }
        if at < self.colons_end || !self.has(Preset::Ip) {
            return None;
        }
        // What was found before ends with the last one.
        let begin = self.found.last().map_or(0, |last| last.end);
        if addresses::has_colon_before(self.text, begin..at) {
            return None;
        }
        let (address, end) = addresses::ipv6(self.text, at);
        self.colons_end = end;
        self.push(address?, Preset::Ip)
    }

    /// An encoded byte ends with a digit or a letter, and a word begins behind it. `%B` is the beginning of a card's track.
    fn percent(&mut self, at: usize) -> Option<usize> {
        let rest = &self.text[at + 1..];
        if rest.starts_with(b"40")
            && let Some(end) = self.email(at..at + 3)
        {
            return Some(end);
        }
        if let [b'B', digit, ..] = rest
            && digit.is_ascii_digit()
            && let Some(end) = self.start(at + 2)
        {
            return Some(end);
        }
        match rest {
            [high, low, ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                self.start(at + 3)
            }
            _ => None,
        }
    }

    /// A word may begin behind the colour of a terminal, such as `ESC[31m`.
    fn colour(&mut self, at: usize) -> Option<usize> {
        const BYTES_MAX: usize = 20;
        let rest = self.text[at + 1..].strip_prefix(b"[")?;
        let is_number = |byte: &&u8| byte.is_ascii_digit() || **byte == b';';
        let numbers = rest.iter().take(BYTES_MAX).take_while(is_number).count();
        (rest.get(numbers) == Some(&b'm')).then(|| self.start(at + 3 + numbers))?
    }
}

/// Whether a byte belongs to a word.
#[inline]
fn is_word(text: &[u8], at: usize) -> bool {
    text.get(at).is_some_and(u8::is_ascii_alphanumeric)
}

/// Sorts what was found and joins what overlaps. What begins first counts, of two that begin together the longer one.
fn join(found: &mut Vec<SecretMatch>) {
    found.sort_by_key(|secret| (secret.start, Reverse(secret.end)));
    found.dedup_by(|next, last| {
        let overlaps = next.start < last.end;
        if overlaps && next.end > last.end {
            last.end = next.end;
        }
        overlaps
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    impl SecretFinder {
        /// As [`SecretFinder::find`], with a look at every sign and at the beginning of every word.
        fn find_slowly(&self, text: &[u8], found: &mut Vec<SecretMatch>) {
            let mut pass = Pass {
                finder: self,
                text,
                found,
                colons_end: 0,
                jwt_end: 0,
            };
            let mut at = 0;
            while at < text.len() {
                let is_word = is_word(text, at);
                let may_begin = is_word || b"@:=%\\\x1b".contains(&text[at]);
                if may_begin && let Some(end) = pass.look(at) {
                    at = end;
                    continue;
                }
                at += 1;
                while is_word && super::is_word(text, at) {
                    at += 1;
                }
            }
            if pass.found.len() > 1 {
                join(pass.found);
            }
        }
    }

    const PIECES: [&str; 40] = [
        "4111111111111111",
        "4111 1111 1111 1111",
        "1.1.1.1",
        "192.168.0.12",
        "::1",
        "2001:db8::8a2e:370:7334",
        "1:2:3:4:5:6:7:8",
        "12:34:56",
        "sha256:",
        "abababababababab",
        "a@b.co",
        "joe%40example.com",
        "joe@example.com",
        "DE89370400440532013000",
        "ghp_a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1",
        "AKIAIOSFODNN7EXAMPLE",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.abcDEF_-123456",
        "aws_secret_access_key=wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
        "https://u:p4ss@h.example/x",
        "-----BEGIN RSA PRIVATE KEY-----",
        "%20",
        "\\n",
        "\\u0022",
        "\u{1b}[31m",
        "%B",
        "==",
        "=",
        ":",
        ".",
        "-",
        "_",
        " ",
        "/",
        "é",
        "x",
        "7",
        "2026",
        "5.0",
        "secret",
        "GET ",
    ];

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(3000))]

        #[test]
        fn a_look_at_every_byte_finds_the_same(pieces in prop::collection::vec(0..PIECES.len(), 0..24)) {
            let text: String = pieces.into_iter().map(|piece| PIECES[piece]).collect();
            let finder = SecretFinder::new(PresetSet::from_iter([Preset::All]), Vec::new());
            let (mut found, mut slowly) = (Vec::new(), Vec::new());
            finder.find(text.as_bytes(), &mut found);
            finder.find_slowly(text.as_bytes(), &mut slowly);
            let spans = |found: &[SecretMatch]| -> Vec<_> {
                found.iter().map(|one| (one.start, one.end, one.preset)).collect()
            };
            prop_assert_eq!(spans(&found), spans(&slowly), "{}", text);
        }
    }

    #[test]
    fn what_follows_the_first_colon_of_a_run_is_no_address_wherever_it_stands() {
        let finder = SecretFinder::new(PresetSet::from_iter([Preset::All]), Vec::new());
        for pad in 0..140 {
            let text = format!(
                "{}sha256:{}:1:2:3:4:5:6:7:8",
                ".".repeat(pad),
                "ab".repeat(32)
            );
            let mut found = Vec::new();
            finder.find(text.as_bytes(), &mut found);
            assert!(found.is_empty(), "{text}");
        }
    }
}
