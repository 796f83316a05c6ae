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
    match text.get(start..).and_then(|rest| rest.first_chunk::<16>()) {
        Some(chunk) => ipv4_in_chunk(chunk).map(|length| start + length),
        None => {
            let mut chunk = [0; 16];
            let rest = text.get(start..)?;
            chunk[..rest.len()].copy_from_slice(rest);
            ipv4_in_chunk(&chunk).map(|length| start + length)
        }
    }
}

/// The length of the address that begins a chunk. An address has 15 bytes at most, so the byte after it, which
/// must be no digit, is in the chunk too. There are no branches on lengths, which change from line to line.
#[inline(always)]
fn ipv4_in_chunk(chunk: &[u8; 16]) -> Option<usize> {
    let word = u128::from_le_bytes(*chunk);
    let (low, high) = (word as u64, (word >> 64) as u64);
    let mut others = u128::from(no_digits(high)) << 64 | u128::from(no_digits(low));
    let digits = word ^ (u128::from(ONES * 0x30) << 64 | u128::from(ONES * 0x30));
    let (mut at, mut fits) = (0, true);
    for part in 0..4 {
        // No bit left means sixteen digits, or a length that does not fit in any case.
        let end = others.trailing_zeros() / 8;
        let length = end.wrapping_sub(at);
        fits &= length.wrapping_sub(1) < 3;
        // The digits, the last one in the top byte.
        let number = ((digits >> (8 * (at & 15))) as u32) << (8 * (4u32.wrapping_sub(length) & 3));
        let value = (number >> 8 & 0xff) * 100 + (number >> 16 & 0xff) * 10 + (number >> 24);
        fits &= value <= 255;
        fits &= part == 3 || chunk[end as usize & 15] == b'.';
        others &= others.wrapping_sub(1);
        at = end + 1;
    }
    (fits && at <= 17).then_some(at as usize - 1)
}

/// `HTTPDUSER`: an account name that a blank follows, so no mail address begins here.
#[inline(always)]
fn httpd_user(text: &[u8], start: usize) -> Option<usize> {
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
        at += memchr::memchr2(quote, b'\\', &text[at..])?;
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

fn is_month(name: [u8; 3]) -> bool {
    matches!(
        &name,
        b"Jan"
            | b"Feb"
            | b"Mar"
            | b"Apr"
            | b"May"
            | b"Jun"
            | b"Jul"
            | b"Aug"
            | b"Sep"
            | b"Oct"
            | b"Nov"
            | b"Dec"
    )
}

/// Two digits as a number; something above 99 for anything else.
fn two(tens: u8, ones: u8) -> u32 {
    let (tens, ones) = (
        u32::from(tens.wrapping_sub(b'0')),
        u32::from(ones.wrapping_sub(b'0')),
    );
    if ones > 9 { 1000 } else { tens * 10 + ones }
}

fn four(digits: [u8; 4]) -> bool {
    digits.iter().all(u8::is_ascii_digit)
}

/// `dd/Mon/yyyy:hh:mm:ss +hhmm`.
fn http_date(text: &[u8], start: usize) -> Option<usize> {
    let head: &[u8; 22] = text.get(start..start + 22)?.try_into().ok()?;
    let [
        d,
        e,
        b'/',
        m1,
        m2,
        m3,
        b'/',
        y1,
        y2,
        y3,
        y4,
        b':',
        h,
        i,
        b':',
        m,
        n,
        b':',
        s,
        t,
        b' ',
        sign,
    ] = *head
    else {
        return None;
    };
    let fits = (1..=31).contains(&two(d, e))
        & is_month([m1, m2, m3])
        & four([y1, y2, y3, y4])
        & (two(h, i) < 24)
        & (two(m, n) < 60)
        & (two(s, t) < 60);
    if !fits {
        return None;
    }
    let zone = if matches!(sign, b'+' | b'-') {
        start + 22
    } else {
        start + 21
    };
    let end = digits_end(text, zone);
    (end > zone).then_some(end)
}

/// `yyyy-mm-ddThh:mm:ss.fff+hh:mm`; fraction and zone may be missing.
fn iso8601(text: &[u8], start: usize) -> Option<usize> {
    let head: &[u8; 19] = text.get(start..start + 19)?.try_into().ok()?;
    let [
        y1,
        y2,
        y3,
        y4,
        b'-',
        o,
        p,
        b'-',
        d,
        e,
        b'T' | b' ',
        h,
        i,
        b':',
        m,
        n,
        b':',
        s,
        t,
    ] = *head
    else {
        return None;
    };
    let fits = four([y1, y2, y3, y4])
        & (1..=12).contains(&two(o, p))
        & (1..=31).contains(&two(d, e))
        & (two(h, i) < 24)
        & (two(m, n) < 60)
        & (two(s, t) < 60);
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
    let fits = is_month([m1, m2, m3])
        & (1..=31).contains(&day)
        & (two(h, i) < 24)
        & (two(m, n) < 60)
        & (two(s, t) < 60);
    let end = fraction_end(text, at + 9);
    (fits && !digit(text, end)).then_some(end)
}
