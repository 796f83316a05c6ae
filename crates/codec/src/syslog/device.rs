//! What network devices put around the time, and times that cannot be read.
//!
//! ```text
//! <189>29: r1: *Mar  1 18:46:11.123 UTC: %LINK-3-UPDOWN: Interface Gi0/1, changed state to down
//!      SEQ HOST MARK TIME           ZONE
//! ```
//! Cisco's IOS counts its messages and may name the device; NX-OS leaves the count out and keeps its colon. A mark says
//! that the device's clock is not set (`*`) or not in step (`.`). The forms are those of the manuals' chapter "System
//! Message Format". Where the device writes its uptime instead of a time, that stays in the text.

use super::header::is_name;
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

/// Where the name ends that stands at `at` with `: ` after it.
pub(super) fn name(line: &[u8], at: usize) -> Option<usize> {
    let len = line[at..].iter().position(|byte| !is_name(*byte))?;
    (len > 0 && line[at + len..].starts_with(b": ")).then_some(at + len)
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
    let end = if is_time_of_day(text) {
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

/// The zone that stands at `at`, after a time, with a blank before it and `: ` after it: its offset in seconds, where it
/// is UTC, and where it ends. Another name is one only before a message of a device: it might be a program's. What it
/// means differs from place to place, so that it says nothing.
#[inline]
pub(super) fn zone(line: &[u8], at: usize) -> Option<(Option<i32>, usize)> {
    let rest = line[at..].strip_prefix(b" ")?;
    let len = rest.iter().position(|byte| !byte.is_ascii_uppercase())?;
    if !(1..=5).contains(&len) || !rest[len..].starts_with(b": ") {
        return None;
    }
    let end = at + 1 + len;
    match &rest[..len] {
        b"UTC" | b"GMT" | b"Z" => Some((Some(0), end)),
        _ => is_mnemonic(line, end + 2).then_some((None, end)),
    }
}

/// Whether a time stands at `at`, whatever its form: numbers, months and weekdays, then a time of day.
pub(super) fn looks_like_time(line: &[u8], at: usize) -> bool {
    /// Longer than the date of any form.
    const DATE_LENGTH_MAX: usize = 32;
    let text = &line[at..];
    let Some(len) = (0..text.len().min(DATE_LENGTH_MAX)).find(|&len| is_time_of_day(&text[len..]))
    else {
        return false;
    };
    let signs = |byte: &u8| b" T,.*-/".contains(byte);
    text[..len].split(signs).all(|word| {
        word.iter().all(u8::is_ascii_digit)
            || word.len() >= 3 && (month(word).is_some() || is_weekday(word))
    })
}

/// Whether `22:14:15` stands at the start.
fn is_time_of_day(text: &[u8]) -> bool {
    let form = |(place, byte): (usize, &u8)| match place {
        2 | 5 => *byte == b':',
        _ => byte.is_ascii_digit(),
    };
    text.len() >= 8 && text.iter().take(8).enumerate().all(form)
}

fn is_weekday(word: &[u8]) -> bool {
    let days: [&[u8]; 7] = [b"mon", b"tue", b"wed", b"thu", b"fri", b"sat", b"sun"];
    word.get(..3)
        .is_some_and(|name| days.iter().any(|day| name.eq_ignore_ascii_case(day)))
}
