//! Envelopes around events: `{"time": 1447828325, "host": "web1", "event": {…}}`, one after the other.
//!
//! A body is read twice: checked, then written as documents. Nothing is kept of it in between, so that a body of many small
//! envelopes takes no list of them.

use batch::json::{self, Kind};

use super::failure::Failure;
use super::time;

/// What an envelope says. Values are JSON as it came.
#[derive(Debug, Default)]
pub(super) struct Envelope<'a> {
    /// All of it, in normal form.
    pub(super) text: &'a [u8],
    pub(super) event: &'a [u8],
    /// As it came, and in nanoseconds since 1970.
    pub(super) time: Option<(&'a [u8], i64)>,
    pub(super) host: Option<&'a [u8]>,
    pub(super) source: Option<&'a [u8]>,
    pub(super) sourcetype: Option<&'a [u8]>,
    pub(super) index: Option<&'a [u8]>,
    pub(super) fields: Option<&'a [u8]>,
    /// It has other members.
    pub(super) has_others: bool,
}

/// Members of an envelope that have a meaning.
pub(super) fn is_known(key: &[u8]) -> bool {
    matches!(
        key,
        b"event" | b"time" | b"host" | b"source" | b"sourcetype" | b"index" | b"fields"
    )
}

impl<'a> Envelope<'a> {
    /// Reads a valid object in normal form.
    fn read(text: &'a [u8]) -> Result<Self, Failure> {
        let mut envelope = Self {
            text,
            ..Self::default()
        };
        let mut event = None;
        for member in json::members(text) {
            let value = &text[member.value];
            let kind = json::kind(value);
            if kind == Kind::Null && is_known(member.key) {
                continue;
            }
            match member.key {
                b"event" => event = Some(value),
                b"time" => envelope.time = Some((value, time_of(value)?)),
                b"host" => envelope.host = Some(scalar("host", value)?),
                b"source" => envelope.source = Some(scalar("source", value)?),
                b"sourcetype" => envelope.sourcetype = Some(scalar("sourcetype", value)?),
                b"index" => envelope.index = Some(scalar("index", value)?),
                b"fields" if kind == Kind::Object => envelope.fields = Some(value),
                b"fields" => return Err(Failure::fields("`fields` is not an object")),
                _ => envelope.has_others = true,
            }
        }
        envelope.event = match event {
            None => return Err(Failure::event_required()),
            Some(b"\"\"") => return Err(Failure::event_blank()),
            Some(event) => event,
        };
        Ok(envelope)
    }
}

fn scalar<'a>(name: &str, value: &'a [u8]) -> Result<&'a [u8], Failure> {
    match json::kind(value) {
        Kind::Object | Kind::Array => Err(Failure::invalid_format(format!("`{name}` is not text"))),
        _ => Ok(value),
    }
}

fn time_of(value: &[u8]) -> Result<i64, Failure> {
    let text = value.strip_prefix(b"\"").unwrap_or(value);
    let text = text.strip_suffix(b"\"").unwrap_or(text);
    time::nanos(text).ok_or_else(|| {
        let shown = String::from_utf8_lossy(&value[..value.len().min(50)]);
        Failure::invalid_format(format!(
            "`time` is not a number of seconds since 1970: {shown}"
        ))
    })
}

/// Reads the envelopes of a body.
#[derive(Debug, Default)]
pub(super) struct Envelopes {
    /// Some envelope is not in normal form.
    is_rewritten: bool,
    /// Some key has a dot.
    pub(super) has_dots: bool,
    /// An envelope in normal form that did not come in it.
    normal: Vec<u8>,
    /// How much of the body was read, and how many envelopes that were.
    at: usize,
    count: usize,
}

impl Envelopes {
    /// Checks a body; gives how many events it has.
    pub(super) fn check(&mut self, body: &[u8]) -> Result<usize, Failure> {
        if u32::try_from(body.len()).is_err() {
            return Err(Failure::invalid_format("the body is too long"));
        }
        if simdutf8::basic::from_utf8(body).is_err() {
            let valid = std::str::from_utf8(body);
            let at = valid.map_or_else(|error| error.valid_up_to(), str::len);
            let reason = format!("the body is not UTF-8 at byte {at}");
            return Err(Failure::invalid_format(reason));
        }
        (self.is_rewritten, self.has_dots) = (false, false);
        self.restart(body);
        while self.next_checked(body)?.is_some() {}
        match self.count {
            0 => Err(Failure::no_data()),
            count => Ok(count),
        }
    }

    /// Goes back to the first envelope.
    pub(super) fn restart(&mut self, body: &[u8]) {
        let mark = b"\xEF\xBB\xBF";
        self.at = if body.starts_with(mark) {
            mark.len()
        } else {
            0
        };
        self.count = 0;
        self.normal.shrink_to(64 << 10);
    }

    /// The next envelope of a body that was checked.
    pub(super) fn next<'a>(&'a mut self, body: &'a [u8]) -> Option<Envelope<'a>> {
        if self.is_rewritten {
            return self.next_checked(body).ok().flatten();
        }
        let start = skip_whitespace(body, self.at);
        if start == body.len() {
            return None;
        }
        self.at = json::skip_value(body, start);
        self.count += 1;
        Envelope::read(&body[start..self.at]).ok()
    }

    fn next_checked<'a>(&'a mut self, body: &'a [u8]) -> Result<Option<Envelope<'a>>, Failure> {
        let start = skip_whitespace(body, self.at);
        if start == body.len() {
            return Ok(None);
        }
        let number = self.count;
        let (scan, end) = json::validate_object_at(body, start).map_err(|error| {
            let reason = format!("{} at byte {}", error.kind, error.offset);
            Failure::invalid_format(reason).of_event(number)
        })?;
        (self.at, self.count) = (end, self.count + 1);
        self.has_dots |= scan.dotted_keys;
        let text = match scan.rewrite {
            true => {
                self.is_rewritten = true;
                self.normal.clear();
                json::normalise(&body[start..end], &mut self.normal);
                &self.normal[..]
            }
            false => &body[start..end],
        };
        let envelope = Envelope::read(text);
        envelope
            .map(Some)
            .map_err(|failure| failure.of_event(number))
    }
}

fn skip_whitespace(text: &[u8], at: usize) -> usize {
    let rest = text.get(at..).unwrap_or_default();
    at + (rest.len() - rest.trim_ascii_start().len())
}
