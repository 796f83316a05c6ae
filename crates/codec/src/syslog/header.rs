//! The header of a message: everything before its text.
//!
//! ```text
//! RFC 5424   "<" PRI ">" VERSION SP (TIME / "-") SP HOST SP APP SP PROCID SP MSGID SP (DATA / "-") [SP TEXT]
//! RFC 3164   ["<" PRI ">" *SP] [TIME SP [HOST SP]] [NAME ["[" PID "]"] [":"] [SP]] TEXT
//! devices    "<" PRI ">" [SEQUENCE] ":" SP [HOST ":" SP] [TIME [SP ZONE] ":" SP] [NAME ":" SP] TEXT
//! ```
//! In RFC 3164 everything is optional, but one of priority and time must be there. What cannot be told apart as host or
//! name stays part of the text; a time that is there and cannot be read is an error. A byte order mark before the text
//! goes. [`device`] says more about the third form.

use batch::Span;

use super::clock::Clock;
use super::data::{self, Scratch};
use super::device;
use super::stamp::{self, Seconds, Stamp};
use super::{Format, Problem, is_name};

/// A part of a line; empty for a field that is not there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct FieldSpan {
    start: u32,
    end: u32,
}

impl FieldSpan {
    fn new(start: usize, end: usize) -> Self {
        Self {
            start: start as u32,
            end: end as u32,
        }
    }

    #[inline]
    pub fn is_empty(self) -> bool {
        self.start == self.end
    }

    /// Where the part of `line` lies.
    #[inline]
    pub fn of(self, line: Span) -> Span {
        Span {
            start: line.start + self.start,
            len: self.end - self.start,
            ..line
        }
    }
}

/// What was read of a line. Fields of the other form than the line's are empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Header {
    /// 0 to 191.
    pub priority: Option<u8>,
    /// Nanoseconds since 1970.
    pub time: Option<i64>,
    pub version: FieldSpan,
    pub hostname: FieldSpan,
    pub appname: FieldSpan,
    pub procid: FieldSpan,
    pub msgid: FieldSpan,
    /// A device's count of its messages.
    pub sequence: Option<i64>,
    /// Whether there are elements of structured data.
    pub has_data: bool,
    /// All of the line after the header.
    pub text: FieldSpan,
}

const PRIORITY_MAX: u32 = 191;
const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

impl Header {
    /// Reads a line. Its structured data goes to `structured`.
    pub fn parse(
        line: &[u8],
        format: Format,
        clock: &mut Clock<'_>,
        structured: &mut Scratch,
    ) -> Result<Self, Problem> {
        let (priority, at) = match line.first() {
            Some(b'<') => {
                let (priority, end) = priority(line)?;
                (priority, after_blanks(line, end))
            }
            _ if format == Format::Rfc5424 => {
                return Err(Problem::new("expected a priority such as `<34>`", 0));
            }
            _ => (None, 0),
        };
        let mut header = Self {
            priority,
            ..Self::default()
        };
        let version = match format {
            Format::Rfc3164 => None,
            Format::Auto => version(line, at)
                .filter(|&end| is_ietf(line, at, end))
                .filter(|&end| stamp::epoch(line, end + 1).is_none()),
            Format::Rfc5424 => {
                let end = version(line, at);
                Some(end.ok_or(Problem::new("expected a version followed by a space", at))?)
            }
        };
        let text = match version.filter(|_| priority.is_some()) {
            Some(end) => {
                header.version = FieldSpan::new(at, end);
                header.ietf(line, end + 1, clock, structured)?
            }
            None => header.bsd(line, at, clock)?,
        };
        let mark = line[text..].starts_with(BYTE_ORDER_MARK);
        let text = text + if mark { BYTE_ORDER_MARK.len() } else { 0 };
        header.text = FieldSpan::new(text, line.len());
        Ok(header)
    }

    /// Reads what follows the version in RFC 5424, and gives the text's place.
    fn ietf(
        &mut self,
        line: &[u8],
        at: usize,
        clock: &mut Clock<'_>,
        structured: &mut Scratch,
    ) -> Result<usize, Problem> {
        let mut at = if line[at..].starts_with(b"- ") {
            at + 2
        } else {
            let (stamp, end) = stamp::rfc3339(line, at, Seconds::Required)?;
            if line.get(end) != Some(&b' ') {
                return Err(Problem::new("expected a space after the time", end));
            }
            self.time = Some(resolve(clock, &stamp, at)?);
            end + 1
        };
        for field in [
            &mut self.hostname,
            &mut self.appname,
            &mut self.procid,
            &mut self.msgid,
        ] {
            let end = match memchr::memchr(b' ', &line[at..]) {
                Some(0) => return Err(Problem::new("an empty header field", at)),
                Some(len) => at + len,
                None => return Err(Problem::new("the header ends unexpectedly", line.len())),
            };
            *field = part_or_nil(line, at, end);
            at = end + 1;
        }
        let end = if line.get(at) == Some(&b'-') {
            at + 1
        } else {
            self.has_data = true;
            data::parse(line, at, structured)?
        };
        match line.get(end) {
            None => Ok(end),
            Some(b' ') => Ok(end + 1),
            Some(_) => Err(Problem::new(
                "expected a space after the structured data",
                end,
            )),
        }
    }

    /// Reads what follows the priority in RFC 3164, and gives the text's place.
    fn bsd(&mut self, line: &[u8], at: usize, clock: &mut Clock<'_>) -> Result<usize, Problem> {
        match bsd_time(line, at, clock) {
            Ok(time) => {
                self.time = Some(time.nanos);
                let end = if time.has_colon {
                    time.end
                } else {
                    self.host(line, time.end)
                };
                Ok(self.tag(line, end))
            }
            Err(problem) if self.priority.is_none() => Err(problem),
            Err(problem) => self.without_time(line, at, problem, clock),
        }
    }

    /// Reads the host where there is one, and gives the place after it.
    #[inline]
    fn host(&mut self, line: &[u8], at: usize) -> usize {
        let start = after_blanks(line, at);
        let Some(end) = hostname(line, start) else {
            return at;
        };
        let at = start;
        self.hostname = part_or_nil(line, at, end);
        // Firewalls write `host : %ASA-6-302013: text`.
        let has_colon = line[end..].starts_with(b" : ") && device::is_mnemonic(line, end + 3);
        end + if has_colon { 3 } else { 1 }
    }

    /// Reads a message with a priority that does not begin with its time, and gives the text's place. `problem` says what
    /// is wrong with the time.
    #[cold]
    fn without_time(
        &mut self,
        line: &[u8],
        at: usize,
        problem: Problem,
        clock: &mut Clock<'_>,
    ) -> Result<usize, Problem> {
        if device::is_uptime(line, at) {
            return Ok(at);
        }
        // Meraki's version is that of RFC 5424, and its time is not.
        let after_version = version(line, at).map_or(at, |end| end + 1);
        if let Some((nanos, end)) = [at, after_version]
            .iter()
            .find_map(|at| stamp::epoch(line, *at))
        {
            self.time = Some(nanos);
            let text = self.host(line, end + 1);
            return Ok(self.tag(line, text));
        }
        if line.get(at) == Some(&b'[')
            && let Some((time, end)) = bracketed_time(line, at, clock)?
        {
            self.time = Some(time);
            let text = self.host(line, end);
            return Ok(self.tag(line, text));
        }
        if let Some(prefix) = device::prefix(line, at)
            && let Some(text) = self.device(line, prefix.end, clock)?
        {
            self.sequence = self.sequence.or(prefix.sequence);
            return Ok(text);
        }
        // IOS-XR names the node, without a blank before the time.
        if let Some(start) = device::node(line, at)
            && let Some(text) = self.device(line, start, clock)?
        {
            return Ok(text);
        }
        if device::looks_like_time(line, at) {
            return Err(problem);
        }
        // A priority makes everything a message, as RFC 3164 has it in section 4.3.
        Ok(self.tag(line, at))
    }

    /// Reads what follows the count of a device's messages, and gives the text's place; nothing for other messages that
    /// begin with a number and a colon.
    fn device(
        &mut self,
        line: &[u8],
        start: usize,
        clock: &mut Clock<'_>,
    ) -> Result<Option<usize>, Problem> {
        let unnamed = (FieldSpan::default(), Some(start));
        let name = |(end, next)| (FieldSpan::new(start, end), Some(next));
        let named = device::name(line, start).map_or((FieldSpan::default(), None), name);
        let mut problem = None;
        for (hostname, at) in [unnamed, named] {
            let Some(at) = at.map(|at| after_blanks(line, at)) else {
                continue;
            };
            // `service sequence-numbers` counts a second time.
            let counted = device::prefix(line, at).filter(|prefix| prefix.sequence.is_some());
            let at = counted.map_or(at, |prefix| after_blanks(line, prefix.end));
            let text = match bsd_time(line, at, clock) {
                Ok(time) if time.has_colon => {
                    self.time = Some(time.nanos);
                    self.tag(line, time.end)
                }
                Ok(time) => {
                    problem = Some(Problem::new("no colon after a device's time", time.end));
                    continue;
                }
                Err(_) if device::is_mnemonic(line, at) => self.tag(line, at),
                Err(_) if device::is_uptime(line, at) => at,
                Err(error) => {
                    if device::looks_like_time(line, at) {
                        problem = Some(error);
                    }
                    continue;
                }
            };
            self.hostname = hostname;
            self.sequence = counted.and_then(|prefix| prefix.sequence);
            return Ok(Some(text));
        }
        match problem {
            Some(problem) => Err(problem),
            None if device::has_mnemonic(line, start) => Err(Problem::new(
                "no time that is known before the message of a device",
                start,
            )),
            None => Ok(None),
        }
    }

    /// Reads `name:`, `name[pid]:` or `name[pid]` where it is there, and gives the place after it and one space.
    #[inline]
    fn tag(&mut self, line: &[u8], at: usize) -> usize {
        let text = &line[at..];
        let len = text.iter().position(|byte| !is_name(*byte));
        let end = at + len.unwrap_or(text.len());
        if !line[at..end].iter().any(u8::is_ascii_alphabetic) {
            return at;
        }
        let mut procid = FieldSpan::default();
        let mut next = end;
        if line.get(end) == Some(&b'[') {
            let inner = &line[end + 1..];
            let Some(len) = inner
                .iter()
                .position(|byte| matches!(byte, b']' | b'[' | b' '))
                .filter(|&len| inner[len] == b']')
            else {
                return at;
            };
            procid = part_or_nil(line, end + 1, end + 1 + len);
            next = end + len + 2;
        }
        let has_brackets = next > end;
        let has_colon = line.get(next) == Some(&b':');
        next += usize::from(has_colon);
        match line.get(next) {
            Some(b' ') if has_colon || has_brackets => next += 1,
            None if has_colon || has_brackets => {}
            // `name:` without a space after it is more likely an address than a name.
            Some(_) if has_colon && has_brackets => {}
            _ => return at,
        }
        self.appname = FieldSpan::new(at, end);
        self.procid = procid;
        next
    }
}

/// A time, and what separates it from what follows.
struct Time {
    /// Nanoseconds since 1970.
    nanos: i64,
    /// Network devices put a colon behind their time, and no host after it.
    has_colon: bool,
    /// The place after both.
    end: usize,
}

/// Reads a time that is not one of RFC 5424.
#[inline]
fn bsd_time(line: &[u8], at: usize, clock: &mut Clock<'_>) -> Result<Time, Problem> {
    let (mut stamp, mut end) = stamp::any(line, at)?;
    if let Some((offset, zone_end)) = device::zone(line, end) {
        stamp.offset = stamp.offset.or(offset);
        end = zone_end;
        if stamp.year.is_none()
            && let Some((year, year_end)) = stamp::year_behind(line, end)
        {
            stamp.year = Some(year);
            end = year_end;
        }
    }
    let (has_colon, next) = match &line[end..] {
        [] => (false, end),
        [b' ', ..] => (false, end + 1),
        [b':', b' ', ..] => (true, end + 2),
        _ => return Err(Problem::new("expected a space after the time", end)),
    };
    Ok(Time {
        nanos: resolve(clock, &stamp, at)?,
        has_colon,
        end: next,
    })
}

/// Reads a time in brackets with a blank behind them: the time and the place after the blank; nothing where there is none.
///
/// # Errors
/// It looks like a time and cannot be read.
#[cold]
fn bracketed_time(
    line: &[u8],
    at: usize,
    clock: &mut Clock<'_>,
) -> Result<Option<(i64, usize)>, Problem> {
    let (stamp, end) = match stamp::any(line, at + 1) {
        Ok(read) => read,
        Err(problem) => {
            return match device::looks_like_time(line, at + 1) {
                true => Err(problem),
                false => Ok(None),
            };
        }
    };
    match &line[end..] {
        [b']', b' ', ..] => Ok(Some((resolve(clock, &stamp, at)?, end + 2))),
        _ => Err(Problem::new("expected `]` and a space after the time", end)),
    }
}

/// Reads `<34>`, and gives the place after it.
#[inline]
fn priority(line: &[u8]) -> Result<(Option<u8>, usize), Problem> {
    let mut value = 0;
    for (at, byte) in line.iter().enumerate().skip(1).take(4) {
        match byte {
            b'0'..=b'9' if at < 4 => value = value * 10 + u32::from(byte - b'0'),
            b'>' if at > 1 => {
                if value > PRIORITY_MAX {
                    return Err(Problem::new("the priority is above 191", 1));
                }
                return Ok((Some(value as u8), at + 1));
            }
            _ => break,
        }
    }
    Err(Problem::new(
        "expected a number of up to three digits and `>`",
        1,
    ))
}

/// The first place at or after `at` without a blank.
#[inline]
fn after_blanks(line: &[u8], at: usize) -> usize {
    at + line[at..].iter().take_while(|byte| **byte == b' ').count()
}

/// Where the version ends that stands at `at`: up to three digits, the first no zero, with a space after them.
#[inline]
fn version(line: &[u8], at: usize) -> Option<usize> {
    let text = &line[at..];
    let len = text.iter().take(4).position(|byte| *byte == b' ')?;
    let digits = text[..len].iter().all(u8::is_ascii_digit);
    (len > 0 && digits && text[0] != b'0').then_some(at + len)
}

/// Whether what looks like a version is one: the only one there is, or one with a time after it.
#[inline]
fn is_ietf(line: &[u8], at: usize, end: usize) -> bool {
    &line[at..end] == b"1"
        || match &line[end + 1..] {
            [b'-', b' ', ..] => true,
            rest => match rest.split_at_checked(4) {
                Some((year, [b'-', ..])) => year.iter().all(u8::is_ascii_digit),
                _ => false,
            },
        }
}

/// The time in nanoseconds since 1970.
#[inline]
fn resolve(clock: &mut Clock<'_>, stamp: &Stamp, at: usize) -> Result<i64, Problem> {
    let range = Problem::new("a time outside the years 1677 to 2262", at);
    clock.resolve(stamp).ok_or(range)
}

/// The part from `start` to `end`; empty for `-`, which stands for nothing.
#[inline]
fn part_or_nil(line: &[u8], start: usize, end: usize) -> FieldSpan {
    if &line[start..end] == b"-" {
        FieldSpan::default()
    } else {
        FieldSpan::new(start, end)
    }
}

/// Where the host ends that stands at `at`: a word with a space after it that does not look like the message's name.
#[inline]
fn hostname(line: &[u8], at: usize) -> Option<usize> {
    let text = &line[at..];
    let mut has_bracket = false;
    let mut len = 0;
    loop {
        match text.get(len)? {
            b' ' => break,
            b'[' if len > 0 => has_bracket = true,
            b':' | b'[' | b']' => {}
            byte if is_name(*byte) => {}
            _ => return None,
        }
        len += 1;
    }
    let is_tag = len == 0 || has_bracket || text[len - 1] == b':';
    (!is_tag).then_some(at + len)
}
