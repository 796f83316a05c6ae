//! Library definitions with code of their own.
//!
//! A definition is known by what it expands to, not by its name, so a user who redefines `MONTH` gets a
//! `HTTPDATE` that follows. Two kinds exist: those that have at most one choice at any place, whose code
//! replaces the definition, and [`Shortcut`]s, whose code finds the definition's first choice in the usual
//! spelling and otherwise says nothing.

use super::program::Shortcut;
use crate::Options;
use crate::ast::Node;
use crate::library::{Library, PatternSet};
use crate::parse::parse;

/// A definition with code of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Atom {
    /// `IPV4`.
    Ipv4,
    /// `IPV6`: the code only tells where none can be.
    Ipv6,
    /// `BASE10NUM`.
    Number,
    /// `QUOTEDSTRING`.
    Quoted,
    /// The first choice of a definition.
    Shortcut(Shortcut),
}

const NAMES: [(&str, Atom); 10] = [
    ("IPV4", Atom::Ipv4),
    ("IPV6", Atom::Ipv6),
    ("BASE10NUM", Atom::Number),
    ("QUOTEDSTRING", Atom::Quoted),
    ("HTTPDATE", Atom::Shortcut(Shortcut::HttpDate)),
    ("TIMESTAMP_ISO8601", Atom::Shortcut(Shortcut::Iso8601)),
    ("SYSLOGTIMESTAMP", Atom::Shortcut(Shortcut::SyslogTime)),
    ("IP", Atom::Shortcut(Shortcut::Ipv4First)),
    ("IPORHOST", Atom::Shortcut(Shortcut::Ipv4First)),
    ("HTTPDUSER", Atom::Shortcut(Shortcut::HttpdUser)),
];

/// The definitions that the code was written for, as far as a pattern uses their names.
pub(super) struct Known {
    nodes: Vec<(&'static str, Node)>,
}

impl Known {
    /// Expands the definitions whose names occur in `node`.
    pub fn new(node: &Node) -> Known {
        let used =
            |wanted: &str| node.any(&|node| matches!(node, Node::Named(name, _) if name == wanted));
        let wanted: Vec<(&'static str, Atom)> =
            NAMES.into_iter().filter(|(name, _)| used(name)).collect();
        if wanted.is_empty() {
            return Known { nodes: Vec::new() };
        }
        let mut nodes = Vec::new();
        for library in [
            Library::new(PatternSet::Legacy),
            Library::new(PatternSet::EcsV1),
        ] {
            for &(name, _) in &wanted {
                if let Ok((Node::Named(_, node), _)) =
                    parse(&library, &format!("%{{{name}}}"), &Options::default())
                {
                    nodes.push((name, *node));
                }
            }
        }
        Known { nodes }
    }

    /// The code for a definition, if its expansion is one that the code was written for.
    pub fn find(&self, name: &str, node: &Node) -> Option<Atom> {
        let (_, atom) = NAMES.into_iter().find(|(known, _)| *known == name)?;
        self.nodes
            .iter()
            .any(|(known, expected)| *known == name && expected == node)
            .then_some(atom)
    }
}

fn digit(text: &[u8], at: usize) -> bool {
    text.get(at).is_some_and(u8::is_ascii_digit)
}

const ONES: u64 = 0x0101_0101_0101_0101;

/// The top bit of every byte of `word` that is no digit.
#[inline(always)]
fn no_digits(word: u64) -> u64 {
    let low = word ^ (ONES * 0x30);
    (((low & (ONES * 0x7f)) + ONES * 0x76) | low) & (ONES * 0x80)
}

/// The end of the digits that begin at `at`.
#[inline(always)]
fn digits_end(text: &[u8], at: usize) -> usize {
    let mut end = at;
    while let Some(chunk) = text.get(end..).and_then(|rest| rest.first_chunk::<8>()) {
        let others = no_digits(u64::from_le_bytes(*chunk));
        if others != 0 {
            return end + others.trailing_zeros() as usize / 8;
        }
        end += 8;
    }
    while digit(text, end) {
        end += 1;
    }
    end
}

/// Whether `at` can begin an IPv6 address: a colon, or one to four hex digits and a colon.
#[inline(always)]
pub(super) fn may_be_ipv6(text: &[u8], at: usize) -> bool {
    for offset in 0..5 {
        match text.get(at + offset) {
            Some(b':') => return true,
            Some(b) if b.is_ascii_hexdigit() => {}
            _ => return false,
        }
    }
    false
}

/// `IPV4`: four numbers up to 255, of up to three digits, with no digit before or after.
#[inline(always)]
pub(super) fn ipv4(text: &[u8], start: usize) -> Option<usize> {
    if start > 0 && text[start - 1].is_ascii_digit() {
        return None;
    }
    let (mut at, mut fits) = (start, true);
    for part in 0..4 {
        let (length, valid, next) = octet(four_bytes(text, at));
        fits &= valid & (part == 3 || next == b'.');
        at += length + 1;
    }
    fits.then_some(at - 1)
}

/// Four bytes of the text, with zeros behind its end.
#[inline(always)]
fn four_bytes(text: &[u8], at: usize) -> u32 {
    let rest = text.get(at..).unwrap_or_default();
    match rest.first_chunk::<4>() {
        Some(chunk) => u32::from_le_bytes(*chunk),
        None => rest
            .iter()
            .rev()
            .fold(0, |word, &byte| word << 8 | u32::from(byte)),
    }
}

/// How many digits begin a word, whether they are a number up to 255 of up to three digits, and the byte after
/// them. There are no branches on lengths, which change from line to line.
#[inline(always)]
fn octet(word: u32) -> (usize, bool, u8) {
    let low = word ^ 0x3030_3030;
    let others = (((low & 0x7f7f_7f7f) + 0x7676_7676) | low) & 0x8080_8080;
    let length = others.trailing_zeros() / 8;
    // The digits behind zeros, the first one highest: numbers of three digits are ordered as their digits are.
    let digits = low.wrapping_shl(32 - 8 * length).swap_bytes();
    let valid = length.wrapping_sub(1) < 3 && digits <= 0x02_05_05;
    (length as usize, valid, word.wrapping_shr(8 * length) as u8)
}

/// `HTTPDUSER`: an account name that a blank follows, so no mail address begins here.
#[inline(always)]
fn httpd_user(text: &[u8], start: usize) -> Option<usize> {
    if text[start..].starts_with(b"- ") {
        return Some(start + 1);
    }
    let name = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
    let length = text[start..].iter().position(|b| !name(b))?;
    (length > 0 && text[start + length] == b' ').then_some(start + length)
}

/// `BASE10NUM`: an atomic group, so there is one choice only.
#[inline]
pub(super) fn number(text: &[u8], start: usize) -> Option<usize> {
    if start > 0 && matches!(text[start - 1], b'0'..=b'9' | b'.' | b'+' | b'-') {
        return None;
    }
    if let Some(chunk) = text.get(start..)?.first_chunk::<8>() {
        // Nearly all numbers are a few digits and something else than a point.
        let word = u64::from_le_bytes(*chunk);
        let bits = no_digits(word).trailing_zeros() & !7;
        if bits.wrapping_sub(8) < 56 && (word >> bits) as u8 != b'.' {
            return Some(start + bits as usize / 8);
        }
    }
    let mut at = start;
    if matches!(text.get(at)?, b'+' | b'-') {
        at += 1;
    }
    let whole = digits_end(text, at.min(text.len()));
    if text.get(whole) == Some(&b'.') && digit(text, whole + 1) {
        return Some(digits_end(text, whole + 1));
    }
    (whole > at).then_some(whole)
}

/// `QUOTEDSTRING`: the innermost groups are atomic and no item begins with the quote, so there is one
/// choice only.
#[inline]
pub(super) fn quoted(text: &[u8], start: usize) -> Option<usize> {
    let quote = *text.get(start)?;
    if !matches!(quote, b'"' | b'\'' | b'`') || (start > 0 && text[start - 1] == b'\\') {
        return None;
    }
    let mut at = start + 1;
    loop {
        at = quote_or_backslash(text, at, quote)?;
        if text[at] == quote {
            return Some(at + 1);
        }
        // An escaped line feed is no item: the dot does not take it.
        if *text.get(at + 1)? == b'\n' {
            return None;
        }
        at += 2;
    }
}

/// The first quote or backslash at or after `from`. Whole chunks are looked over at once, which the compiler
/// turns into vector code; a call into a library costs more than most quoted strings are long.
#[inline(always)]
fn quote_or_backslash(text: &[u8], from: usize, quote: u8) -> Option<usize> {
    let mut at = from;
    while let Some(chunk) = text.get(at..)?.first_chunk::<32>() {
        let mut found = 0u8;
        for &byte in chunk {
            found |= u8::from(byte == quote) | u8::from(byte == b'\\');
        }
        if found != 0 {
            break;
        }
        at += 32;
    }
    let is_end = |&byte: &u8| byte == quote || byte == b'\\';
    while let Some(chunk) = text.get(at..)?.first_chunk::<8>() {
        let word = u64::from_le_bytes(*chunk);
        let ends =
            zeros(word ^ (ONES * u64::from(quote))) | zeros(word ^ (ONES * u64::from(b'\\')));
        if ends != 0 {
            return Some(at + ends.trailing_zeros() as usize / 8);
        }
        at += 8;
    }
    text[at..].iter().position(is_end).map(|found| at + found)
}

/// The top bit of the first byte of `word` that is zero, and maybe of bytes after it.
#[inline(always)]
fn zeros(word: u64) -> u64 {
    word.wrapping_sub(ONES) & !word & (ONES * 0x80)
}

/// The end of a definition's first choice at `start`, in the usual spelling.
#[inline]
pub(super) fn shortcut(kind: Shortcut, text: &[u8], start: usize) -> Option<usize> {
    match kind {
        Shortcut::HttpDate => http_date(text, start),
        Shortcut::Iso8601 => iso8601(text, start),
        Shortcut::SyslogTime => syslog_time(text, start),
        Shortcut::Ipv4First => {
            if may_be_ipv6(text, start) {
                None
            } else {
                ipv4(text, start)
            }
        }
        Shortcut::HttpdUser => httpd_user(text, start),
    }
}

/// Whether the low three bytes are the usual short name of a month.
#[inline(always)]
fn is_month(name: u32) -> bool {
    const fn month(name: &[u8; 3]) -> u32 {
        u32::from_le_bytes([name[0], name[1], name[2], 0])
    }
    const NAMES: [u32; 12] = [
        month(b"Jan"),
        month(b"Feb"),
        month(b"Mar"),
        month(b"Apr"),
        month(b"May"),
        month(b"Jun"),
        month(b"Jul"),
        month(b"Aug"),
        month(b"Sep"),
        month(b"Oct"),
        month(b"Nov"),
        month(b"Dec"),
    ];
    NAMES
        .iter()
        .fold(false, |found, &known| found | (known == name & 0xff_ffff))
}

/// What eight bytes have to be, tested at once.
struct Shape {
    base: u64,
    add: u64,
    mask: u64,
}

impl Shape {
    /// `0` to `9` stand for a digit up to this one, `?` for any byte, everything else for itself.
    const fn new(spec: &[u8; 8]) -> Shape {
        let (mut base, mut add, mut mask) = ([0; 8], [0; 8], [0; 8]);
        let mut at = 0;
        while at < 8 {
            match spec[at] {
                b'?' => {}
                largest @ b'0'..=b'9' => {
                    (base[at], add[at], mask[at]) = (b'0', 0x7f - (largest - b'0'), 0x80)
                }
                byte => (base[at], add[at], mask[at]) = (byte, 0x7f, 0x80),
            }
            at += 1;
        }
        Shape {
            base: u64::from_le_bytes(base),
            add: u64::from_le_bytes(add),
            mask: u64::from_le_bytes(mask),
        }
    }

    /// Gives 0 when the word has the shape. A byte that is too large, or has its top bit set, leaves a bit.
    #[inline(always)]
    fn misfits(&self, word: u64) -> u64 {
        let low = word ^ self.base;
        (((low & (ONES * 0x7f)) + self.add) | low) & self.mask
    }
}

/// The number that the digits at two bytes of a word are.
#[inline(always)]
fn two_at(word: u64, byte: u32) -> u32 {
    let pair = (word >> (8 * byte)) as u32 & 0x0f0f;
    (pair & 0xff) * 10 + (pair >> 8)
}

#[inline(always)]
fn word_at(text: &[u8], at: usize) -> Option<u64> {
    text.get(at..)?
        .first_chunk::<8>()
        .map(|chunk| u64::from_le_bytes(*chunk))
}

/// Two digits as a number; something above 99 for anything else.
fn two(tens: u8, ones: u8) -> u32 {
    let (tens, ones) = (
        u32::from(tens.wrapping_sub(b'0')),
        u32::from(ones.wrapping_sub(b'0')),
    );
    if ones > 9 { 1000 } else { tens * 10 + ones }
}

/// `dd/Mon/yyyy:hh:mm:ss +hhmm`.
#[inline(always)]
fn http_date(text: &[u8], start: usize) -> Option<usize> {
    const DAY_TO_YEAR: Shape = Shape::new(b"39/???/9");
    const YEAR_TO_MINUTE: Shape = Shape::new(b"999:29:5");
    const MINUTE_TO_ZONE: Shape = Shape::new(b":59:59 ?");
    let day = word_at(text, start)?;
    let hour = word_at(text, start + 8)?;
    let second = word_at(text, start + 14)?;
    let misfits =
        DAY_TO_YEAR.misfits(day) | YEAR_TO_MINUTE.misfits(hour) | MINUTE_TO_ZONE.misfits(second);
    let fits = (misfits == 0)
        & (two_at(day, 0).wrapping_sub(1) < 31)
        & (two_at(hour, 4) < 24)
        & is_month((day >> 24) as u32);
    if !fits {
        return None;
    }
    let zone = start + 21 + usize::from(matches!((second >> 56) as u8, b'+' | b'-'));
    let end = digits_end(text, zone);
    (end > zone).then_some(end)
}

/// `yyyy-mm-ddThh:mm:ss.fff+hh:mm`; fraction and zone may be missing.
#[inline(always)]
fn iso8601(text: &[u8], start: usize) -> Option<usize> {
    const YEAR_TO_MONTH: Shape = Shape::new(b"9999-19-");
    const DAY_TO_MINUTE: Shape = Shape::new(b"39?29:59");
    const HOUR_TO_SECOND: Shape = Shape::new(b"29:59:59");
    let month = word_at(text, start)?;
    let day = word_at(text, start + 8)?;
    let hour = word_at(text, start + 11)?;
    let misfits =
        YEAR_TO_MONTH.misfits(month) | DAY_TO_MINUTE.misfits(day) | HOUR_TO_SECOND.misfits(hour);
    let fits = (misfits == 0)
        & (two_at(month, 5).wrapping_sub(1) < 12)
        & (two_at(day, 0).wrapping_sub(1) < 31)
        & matches!((day >> 16) as u8, b'T' | b' ')
        & (two_at(hour, 0) < 24);
    if !fits {
        return None;
    }
    let end = fraction_end(text, start + 19);
    match text.get(end) {
        Some(b'Z') => Some(end + 1),
        Some(b'+' | b'-') => {
            let hour: &[u8; 2] = text.get(end + 1..end + 3)?.try_into().ok()?;
            let at = end + 3 + usize::from(text.get(end + 3) == Some(&b':'));
            let minute: &[u8; 2] = text.get(at..at + 2)?.try_into().ok()?;
            (two(hour[0], hour[1]) < 24 && two(minute[0], minute[1]) < 60).then_some(at + 2)
        }
        _ => Some(end),
    }
}

/// The end of `[:.,][0-9]+`, if it stands at `at`; otherwise `at`.
fn fraction_end(text: &[u8], at: usize) -> usize {
    if matches!(text.get(at), Some(b':' | b'.' | b',')) && digit(text, at + 1) {
        return digits_end(text, at + 1);
    }
    at
}

/// `Mon dd hh:mm:ss`.
fn syslog_time(text: &[u8], start: usize) -> Option<usize> {
    if start > 0
        && !(text[start - 1].is_ascii()
            && !text[start - 1].is_ascii_alphanumeric()
            && text[start - 1] != b'_')
    {
        return None;
    }
    let [m1, m2, m3, b' '] = *<&[u8; 4]>::try_from(text.get(start..start + 4)?).ok()? else {
        return None;
    };
    let mut at = start + 4;
    while text.get(at) == Some(&b' ') {
        at += 1;
    }
    let length = digits_end(text, at) - at;
    let day = match length {
        1 => two(b'0', text[at]),
        2 => two(text[at], text[at + 1]),
        _ => 1000,
    };
    at += length;
    let [b' ', h, i, b':', m, n, b':', s, t] = *<&[u8; 9]>::try_from(text.get(at..at + 9)?).ok()?
    else {
        return None;
    };
    let fits = is_month(u32::from_le_bytes([m1, m2, m3, 0]))
        & (1..=31).contains(&day)
        & (two(h, i) < 24)
        & (two(m, n) < 60)
        & (two(s, t) < 60);
    let end = fraction_end(text, at + 9);
    (fits && !digit(text, end)).then_some(end)
}
