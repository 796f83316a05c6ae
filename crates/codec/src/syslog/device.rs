//! What network devices put around the time, and times that cannot be read.
//!
//! ```text
//! <189>29: r1: *Mar  1 18:46:11.123 UTC: %LINK-3-UPDOWN: Interface Gi0/1, changed state to down
//!      SEQ HOST MARK TIME           ZONE
//! ```
//! Cisco's IOS counts its messages and may name the device; NX-OS leaves the count out and keeps its colon. A mark says
//! that the device's clock is not set (`*`) or not in step (`.`). The forms are those of the manuals' chapter "System
//! Message Format". Where the device writes its uptime instead of a time, that stays in the text.

use super::is_name;
use super::stamp::month;

/// What stands before the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Prefix {
    /// The device's count of its messages.
    pub sequence: Option<i64>,
    /// Where what follows it begins.
    pub end: usize,
}

/// Reads `29: `, `: ` or `:`.
pub(super) fn prefix(line: &[u8], at: usize) -> Option<Prefix> {
    let text = &line[at..];
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (sequence, blanks) = match (digits, &text[digits..]) {
        (0, [b':', b' ', ..]) => (None, 1),
        (0, [b':', b'A'..=b'Z' | b'*' | b'.' | b'%', ..]) => (None, 0),
        (1.., [b':', b' ', ..]) => {
            let number = std::str::from_utf8(&text[..digits]).ok()?;
            (Some(number.parse().ok()?), 1)
        }
        _ => return None,
    };
    let end = at + digits + 1 + blanks;
    Some(Prefix { sequence, end })
}

/// Where the name ends that stands at `at` with `: ` after it, and where what follows begins. IOS-XR leaves the blank out.
pub(super) fn name(line: &[u8], at: usize) -> Option<(usize, usize)> {
    let len = line[at..].iter().position(|byte| !is_name(*byte))?;
    let end = at + len;
    match &line[end..] {
        [b':', b' ', ..] if len > 0 => Some((end, end + 2)),
        [b':', ..] if line[at..end].contains(&b'/') => Some((end, end + 1)),
        _ => None,
    }
}

/// Where the node of IOS-XR begins that stands at `at`, such as `RP/0/RSP0/CPU0:Mar  1 18:46:11`.
pub(super) fn node(line: &[u8], at: usize) -> Option<usize> {
    let (end, next) = name(line, at)?;
    let is_node = line[at..end].iter().filter(|byte| **byte == b'/').count() >= 2;
    (is_node && next == end + 1 && looks_like_time(line, next)).then_some(at)
}

/// Whether `%LINK-3-UPDOWN:` stands at `at`, or anything else of this form.
pub(super) fn is_mnemonic(line: &[u8], at: usize) -> bool {
    let Some((b'%', rest)) = line[at..].split_first() else {
        return false;
    };
    let len = rest.iter().position(|byte| !is_name(*byte));
    let mut parts = rest[..len.unwrap_or(rest.len())].split(|byte| *byte == b'-');
    parts.next().is_some_and(|facility| !facility.is_empty())
        && parts.any(|severity| matches!(severity, [b'0'..=b'7']))
}

/// Whether anything of the form `%LINK-3-UPDOWN` stands at or after `at`.
pub(super) fn has_mnemonic(line: &[u8], at: usize) -> bool {
    memchr::memchr_iter(b'%', &line[at..]).any(|found| is_mnemonic(line, at + found))
}

/// Whether an uptime such as `00:00:46` or `3w4d` stands at `at`, before a message of a device.
pub(super) fn is_uptime(line: &[u8], at: usize) -> bool {
    let text = &line[at..];
    let len = text.iter().position(|byte| *byte == b':' || *byte == b' ');
    let units = &text[..len.unwrap_or(text.len())];
    let end = if is_time_of_day(text) && text[1] != b':' {
        8
    } else if let [b'0'..=b'9', .., b'y' | b'w' | b'd' | b'h' | b'm'] = units
        && units
            .iter()
            .all(|byte| byte.is_ascii_digit() || b"ywdhm".contains(byte))
    {
        units.len()
    } else {
        return false;
    };
    text[end..].starts_with(b": ") && is_mnemonic(text, end + 2)
}

/// The zone that stands at `at`, after a time, with a blank before it and a blank or `: ` after it: its offset in seconds, where it is
/// known, and where it ends. Another name is one only before a message of a device: it might be a host's. What it means differs
/// from place to place, so that it says nothing.
#[inline]
pub(super) fn zone(line: &[u8], at: usize) -> Option<(Option<i32>, usize)> {
    let rest = line[at..].strip_prefix(b" ")?;
    let len = rest.iter().position(|byte| !byte.is_ascii_uppercase())?;
    if !(1..=5).contains(&len) {
        return None;
    }
    let end = at + 1 + len;
    let has_colon = rest[len..].starts_with(b": ");
    if (has_colon || rest[len] == b' ')
        && let Some(hours) = hours_of(&rest[..len])
    {
        return Some((Some(hours * 3600), end));
    }
    (has_colon && is_mnemonic(line, end + 2)).then_some((None, end))
}

/// The offset of a zone in hours: those of RFC 822, section 5.1, and those of Europe and Japan that stand for one zone only.
fn hours_of(name: &[u8]) -> Option<i32> {
    Some(match name {
        b"UTC" | b"UT" | b"GMT" | b"Z" | b"WET" => 0,
        b"CET" | b"WEST" => 1,
        b"CEST" | b"EET" => 2,
        b"EEST" | b"MSK" => 3,
        b"JST" => 9,
        b"EDT" => -4,
        b"EST" | b"CDT" => -5,
        b"CST" | b"MDT" => -6,
        b"MST" | b"PDT" => -7,
        b"PST" => -8,
        _ => return None,
    })
}

/// Whether a time stands at `at`, whatever its form: numbers, months and weekdays, then a time of day. A single other word before a
/// day counts as a month that nobody knows.
pub(super) fn looks_like_time(line: &[u8], at: usize) -> bool {
    /// Longer than the date of any form.
    const DATE_LENGTH_MAX: usize = 32;
    let text = &line[at..];
    // ISO 8601's basic format has no colons.
    let basic = text.get(..15).and_then(|text| text.split_at_checked(8));
    if let Some((date, [b'T', time @ ..])) = basic
        && date.iter().chain(time).all(u8::is_ascii_digit)
    {
        return true;
    }
    let Some(len) = (0..text.len().min(DATE_LENGTH_MAX)).find(|&len| is_time_of_day(&text[len..]))
    else {
        return false;
    };
    let signs = |byte: &u8| b" T,.*-/[".contains(byte);
    let is_number = |word: &[u8]| word.iter().all(u8::is_ascii_digit);
    let is_known = |word: &[u8]| {
        is_number(word) || word.len() >= 3 && (month(word).is_some() || is_weekday(word))
    };
    let date = &text[..len];
    let mut words = date.split(signs).filter(|word| !word.is_empty());
    let (first, second, third) = (words.next(), words.next(), words.next());
    let is_foreign = match (first, second, third) {
        (Some(name), Some(day), None) => {
            let is_letter = |byte: &u8| byte.is_ascii_alphabetic() || !byte.is_ascii();
            name.len() >= 3 && name.iter().all(is_letter) && is_number(day) && day.len() <= 2
        }
        _ => false,
    };
    is_foreign || date.split(signs).all(is_known)
}

/// Whether `22:14:15` stands at the start, or `2:14:15`.
fn is_time_of_day(text: &[u8]) -> bool {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let form = |(place, byte): (usize, &u8)| match place {
        0 | 3 => *byte == b':',
        _ => byte.is_ascii_digit(),
    };
    matches!(digits, 1 | 2)
        && text.len() >= digits + 6
        && text[digits..].iter().take(6).enumerate().all(form)
}

fn is_weekday(word: &[u8]) -> bool {
    let days: [&[u8]; 7] = [b"mon", b"tue", b"wed", b"thu", b"fri", b"sat", b"sun"];
    word.get(..3)
        .is_some_and(|name| days.iter().any(|day| name.eq_ignore_ascii_case(day)))
}
