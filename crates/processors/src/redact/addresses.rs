//! Addresses that are recognised by a sign within them: emails by `@`, IPv6 by `:`, passwords of URLs by `://`.

use std::net::Ipv6Addr;
use std::ops::Range;

/// The longest local part that is looked at; RFC 5321 allows 64 bytes, and percent-encoding makes three of one.
const LOCAL_BYTES_MAX: usize = 192;

/// The longest text of an IPv6 address, with an IPv4 address at its end.
const IPV6_BYTES_MAX: usize = 45;

/// What stands between the scheme of a URL and its host, and how JSON may write it.
pub(super) const URL_SIGN: &[u8] = b"://";
pub(super) const URL_SIGN_ESCAPED: &[u8] = b":\\/\\/";

/// The longest user and password of a URL that are looked at.
const USER_BYTES_MAX: usize = 1024;

/// The endings of files and of units of systemd, which are no top-level domains: `logo@2x.png`, `getty@tty1.service`.
const NO_DOMAINS: [&[u8]; 14] = [
    b"png", b"jpg", b"jpeg", b"gif", b"webp", b"svg", b"avif", b"css", b"js", b"service",
    b"socket", b"timer", b"slice", b"mount",
];

/// The email address whose `@`, or `%40`, lies at `sign`. Nothing in front of `floor` belongs to it.
pub(super) fn email(text: &[u8], sign: Range<usize>, floor: usize) -> Option<Range<usize>> {
    let end = domain(text, sign.end)?;
    let floor = floor.max(sign.start.saturating_sub(LOCAL_BYTES_MAX));
    let local = &text[floor.min(sign.start)..sign.start];
    if local.ends_with(b"\"") {
        let quoted = &local[..local.len() - 1];
        let quote = memchr::memrchr2(b'"', b'\n', quoted)?;
        return (quoted[quote] == b'"' && quote + 1 < quoted.len())
            .then_some(sign.start - local.len() + quote..end);
    }
    let mut start = local.len();
    while start > 0 && is_local(local, start - 1) {
        start -= 1;
    }
    // It does not begin with a sign.
    while start < local.len() && !(local[start].is_ascii_alphanumeric() || local[start] >= 0x80) {
        start += 1;
    }
    (start < local.len()).then(|| sign.start - local.len() + start..end)
}

/// Whether a byte belongs to the local part of an email address. What else RFC 5322 allows is not used, and separates in logs.
fn is_local(local: &[u8], at: usize) -> bool {
    match local[at] {
        b'.' | b'_' | b'-' | b'+' | b'%' | b'~' | b'!' | b'#' | b'$' | b'*' | 0x80.. => true,
        b'\'' => at > 0 && local[at - 1].is_ascii_alphanumeric(),
        byte => byte.is_ascii_alphanumeric(),
    }
}

/// Where the domain that begins at `start` ends: names with points, the last one no number.
fn domain(text: &[u8], start: usize) -> Option<usize> {
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte >= 0x80;
    let mut end = None;
    let mut at = start;
    loop {
        let rest = &text[at..];
        let len = rest.iter().take_while(|byte| is_name(**byte)).count();
        let name = &rest[..len];
        let dashes = name.iter().rev().take_while(|byte| **byte == b'-').count();
        let name = &name[..len - dashes];
        let begins = |byte: &u8| byte.is_ascii_alphabetic() || *byte >= 0x80;
        let is_top = at > start && name.len() >= 2 && name.first().is_some_and(begins);
        if is_top && !NO_DOMAINS.contains(&name) {
            end = Some(at + name.len());
        }
        if len == 0 || rest.get(len) != Some(&b'.') {
            return end;
        }
        at += len + 1;
    }
}

/// Whether the digits, colons and points right before the end of a range have a colon among them: then what is there belongs to that one, be it an
/// IPv6 address or not.
pub(super) fn has_colon_before(text: &[u8], range: Range<usize>) -> bool {
    let is_part = |at: &usize| is_ipv6_part(text, *at);
    let others = range.rev().take_while(is_part);
    others.map(|at| text[at]).any(|byte| byte == b':')
}

/// Whether a byte may belong to an IPv6 address.
fn is_ipv6_part(text: &[u8], at: usize) -> bool {
    match text.get(at) {
        Some(b':') => true,
        Some(b'.') => text.get(at + 1).is_some_and(u8::is_ascii_digit),
        byte => byte.is_some_and(u8::is_ascii_hexdigit),
    }
}

/// The IPv6 address whose first colon lies at `colon`, and where the hexadecimal digits and colons around it end.
pub(super) fn ipv6(text: &[u8], colon: usize) -> (Option<Range<usize>>, usize) {
    let mut run = colon + 1;
    let (mut colons, mut is_short) = (1, false);
    while is_ipv6_part(text, run) {
        if text[run] == b':' {
            colons += 1;
            is_short |= text[run - 1] == b':';
        }
        run += 1;
    }
    if !is_short && colons < 6 || run - colon > IPV6_BYTES_MAX + 2 {
        return (None, run);
    }
    let group = text[..colon].iter().rev().take(4);
    let group = group.take_while(|byte| byte.is_ascii_hexdigit()).count();
    let ends = |end: usize| !text.get(end).is_some_and(u8::is_ascii_alphanumeric);
    let mut groups = (0..=group).rev().map(|len| colon - len);
    let starts = [
        groups.find(|start| begins_word(text, *start)),
        Some(colon + 1),
    ];
    let span = &text[colon..run];
    let last_colon = memchr::memrchr(b':', span).map(|at| colon + at);
    let first_dot = memchr::memchr(b'.', span).map(|at| colon + at);
    let run_ends = [Some(run).filter(|end| ends(*end)), first_dot, last_colon];
    for start in starts.into_iter().flatten() {
        for end in run_ends.into_iter().flatten().filter(|end| *end > start) {
            if is_ipv6(&text[start..end]) {
                return (Some(start..end), run);
            }
        }
    }
    (None, run)
}

/// Whether a word may begin at `at`: behind something else, or behind an escape that ends with a letter or a digit.
pub(super) fn begins_word(text: &[u8], at: usize) -> bool {
    let before = &text[..at];
    let is_colour = || {
        let codes = before.strip_suffix(b"m").unwrap_or_default();
        let is_code = |byte: &&u8| byte.is_ascii_digit() || **byte == b';';
        let len = codes.iter().rev().take(20).take_while(is_code).count();
        codes[..codes.len() - len].ends_with(b"\x1b[")
    };
    match before {
        [] => true,
        [.., last] if !last.is_ascii_alphanumeric() => true,
        [.., b'\\', _] => true,
        [.., b'%', high, low] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => true,
        [.., b'\\', b'u', _, _, _, _] => true,
        _ => is_colour(),
    }
}

/// Whether a text is an IPv6 address other than `::`.
fn is_ipv6(text: &[u8]) -> bool {
    text.len() > 2
        && text.len() <= IPV6_BYTES_MAX
        && std::str::from_utf8(text).is_ok_and(|text| text.parse::<Ipv6Addr>().is_ok())
}

/// The password of a URL whose `://`, or `:\/\/` of JSON within the text, lies at `colon`: what is between the colon and the `@` behind it.
pub(super) fn url_password(text: &[u8], colon: usize) -> Option<Range<usize>> {
    let rest = &text[colon..];
    let rest = rest
        .strip_prefix(URL_SIGN)
        .or(rest.strip_prefix(URL_SIGN_ESCAPED))?;
    let start = text.len() - rest.len();
    let ends = |byte: &u8| byte.is_ascii_whitespace() || b"/?#\"<>".contains(byte);
    let len = rest.iter().take(USER_BYTES_MAX).position(ends);
    let authority = &rest[..len.unwrap_or(rest.len().min(USER_BYTES_MAX))];
    let at = memchr::memrchr(b'@', authority)?;
    let password = memchr::memchr(b':', &authority[..at])? + 1;
    (password < at).then_some(start + password..start + at)
}
