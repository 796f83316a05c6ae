//! Messages with their length before them, `LENGTH SP MESSAGE`, and syslog messages as streams carry them (RFC 6587): so, or as lines.
//!
//! Which of the two it is shows in each frame of syslog: digits, a space and `<` begin a frame with a length; everything else begins a
//! line, which ends with a line feed, or with a zero byte, as `syslog(3)` writes it. Senders that change their framing therefore need no
//! new connection. Where the messages are not syslog, a line cannot be told from a frame: what does not begin with a length is a fault,
//! behind which nothing can be read. Line feeds and zero bytes between frames, which some senders add, are passed over.
//!
//! A message longer than the limit is given as soon as its first bytes are there, up to the limit, and the rest is read over.

use bytes::Bytes;

use super::window::Window;
use super::{Chunk, LineFormat, Record, Records};
use crate::resume::Resume;

/// Digits of a length at most.
const DIGITS_MAX: usize = 10;

/// The largest length: what the limit of a message can be set to. Larger numbers are something else, such as a time.
const LENGTH_MAX: u64 = 1 << 30;

/// Bytes of what is no length that are shown.
const SHOWN_MAX: usize = 32;

/// What is read over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Over {
    Nothing,
    Bytes(u64),
    /// Up to and with the next line feed or zero byte.
    Line,
}

/// How the bytes behind a place go on.
enum Next {
    /// So many bytes belong to what is read over, or lie between frames.
    Pass(usize),
    /// A message: its place, and how many bytes its frame has so far.
    Message {
        start: usize,
        len: usize,
        frame: usize,
        over: Over,
    },
    /// More must be read first.
    Incomplete,
    /// There is no length where one must be.
    Malformed,
}

/// Makes records of frames.
#[derive(Debug)]
pub(super) struct Counted {
    record_max: usize,
    /// Messages begin with `<`, and may be lines.
    is_syslog: bool,
    /// Why nothing behind the last record can be read.
    fault: Option<String>,
    /// Offset behind the last frame that was looked at.
    scanned: u64,
    /// Offset up to which the line at `scanned` does not end.
    searched: u64,
    over: Over,
    records: Vec<Record>,
}

impl Counted {
    pub(super) fn new(record_max: usize, start: u64, is_syslog: bool) -> Self {
        Self {
            record_max,
            is_syslog,
            fault: None,
            scanned: start,
            searched: start,
            over: Over::Nothing,
            records: Vec::new(),
        }
    }

    pub(super) fn is_ready(&self) -> bool {
        !self.records.is_empty()
    }

    /// Why nothing behind the last record can be read.
    pub(super) fn fault(&self) -> Option<&str> {
        self.fault.as_deref()
    }

    /// Looks at the whole frames of the window.
    pub(super) fn scan(&mut self, window: &mut Window) {
        while self.fault.is_none() {
            let from = (self.scanned - window.start()) as usize;
            match self.next(&window.bytes()[from..]) {
                Next::Pass(0) | Next::Incomplete => break,
                Next::Pass(bytes) => self.scanned += bytes as u64,
                Next::Malformed => self.fail(&window.bytes()[from..]),
                Next::Message {
                    start,
                    len,
                    frame,
                    over,
                } => {
                    let is_cut = over != Over::Nothing;
                    self.push(start, len, frame, is_cut);
                    self.over = over;
                }
            }
        }
        self.searched = window.end();
        if self.records.is_empty() {
            window.forget((self.scanned - window.start()) as usize);
        }
    }

    fn fail(&mut self, bytes: &[u8]) {
        let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(SHOWN_MAX)]);
        self.fault = Some(format!(
            "a message must begin with its length, digits up to {LENGTH_MAX} and a space, and one begins with {shown:?}"
        ));
    }

    fn push(&mut self, start: usize, len: usize, frame: usize, is_cut: bool) {
        self.records.push(Record {
            at: self.scanned + start as u64,
            len,
            in_side: false,
            is_cut,
            replaced: false,
            start: self.scanned,
            end: self.scanned + frame as u64,
            origin: None,
        });
        self.scanned += frame as u64;
    }

    fn next(&mut self, bytes: &[u8]) -> Next {
        match self.over {
            Over::Bytes(left) => {
                let passed = bytes.len().min(usize::try_from(left).unwrap_or(usize::MAX));
                let left = left - passed as u64;
                self.over = if left == 0 {
                    Over::Nothing
                } else {
                    Over::Bytes(left)
                };
                return Next::Pass(passed);
            }
            Over::Line => {
                let Some(end) = memchr::memchr2(b'\n', 0, bytes) else {
                    return Next::Pass(bytes.len());
                };
                self.over = Over::Nothing;
                return Next::Pass(end + 1);
            }
            Over::Nothing => {}
        }
        match bytes.first() {
            None => Next::Incomplete,
            Some(b'\n' | b'\r' | 0) => Next::Pass(1),
            Some(_) => match self.length(bytes) {
                Length::Is { digits, len } => self.counted(bytes, digits + 1, len),
                Length::Incomplete => Next::Incomplete,
                Length::None if self.is_syslog => self.line(bytes),
                Length::None => Next::Malformed,
            },
        }
    }

    /// The length that a frame begins with.
    fn length(&self, bytes: &[u8]) -> Length {
        match (length(bytes), self.is_syslog) {
            (Length::Is { digits, len }, true) => match bytes.get(digits + 1) {
                Some(b'<') => Length::Is { digits, len },
                Some(_) => Length::None,
                None => Length::Incomplete,
            },
            (length, _) => length,
        }
    }

    /// A message of `len` bytes from `start` on.
    fn counted(&self, bytes: &[u8], start: usize, len: u64) -> Next {
        let there = bytes.len() - start;
        let is_long = len > self.record_max as u64;
        let kept = if is_long {
            self.record_max
        } else {
            len as usize
        };
        if there < kept {
            return Next::Incomplete;
        }
        let over = match len - kept as u64 {
            0 => Over::Nothing,
            left => Over::Bytes(left),
        };
        // Some senders count a line feed as a part of the message.
        let text = &bytes[start..start + kept];
        let len = if is_long { kept } else { without_end(text) };
        Next::Message {
            start,
            len,
            frame: start + kept,
            over,
        }
    }

    /// A message that ends with a line feed or a zero byte.
    fn line(&self, bytes: &[u8]) -> Next {
        let from = (self.searched.saturating_sub(self.scanned) as usize).min(bytes.len());
        let end = memchr::memchr2(b'\n', 0, &bytes[from..]).map(|at| from + at);
        // A line that is too long is cut there, however much of it was read.
        if let Some(end) = end.filter(|end| *end <= self.record_max) {
            let len = without_end(&bytes[..end]);
            return Next::Message {
                start: 0,
                len,
                frame: end + 1,
                over: Over::Nothing,
            };
        }
        if bytes.len() <= self.record_max {
            return Next::Incomplete;
        }
        Next::Message {
            start: 0,
            len: self.record_max,
            frame: self.record_max,
            over: Over::Line,
        }
    }

    /// Makes a record of what there is, because nothing follows.
    pub(super) fn end(&mut self, window: &mut Window) {
        let from = (self.scanned - window.start()) as usize;
        let bytes = &window.bytes()[from..];
        if bytes.is_empty() || self.fault.is_some() {
            return;
        }
        let (start, is_counted) = match self.length(bytes) {
            Length::Is { digits, .. } => (digits + 1, true),
            _ if self.is_syslog => (0, false),
            _ => return self.fail(bytes),
        };
        let (len, frame) = (without_end(&bytes[start..]), bytes.len());
        self.push(start, len, frame, is_counted);
    }

    /// The records so far as a chunk.
    pub(super) fn take(&mut self, window: &mut Window, format: LineFormat) -> Option<Chunk> {
        if self.records.is_empty() {
            return None;
        }
        let base = window.start();
        let mut list = std::mem::take(&mut self.records);
        for record in &mut list {
            record.at -= base;
        }
        let at = (self.scanned - base) as usize;
        let after = Resume {
            offset: self.scanned,
            check: window.check(at),
            ..Resume::default()
        };
        let mut chunk = Chunk::cut(window.cut_off(at), base, after, format);
        chunk.records = Some(Box::new(Records {
            list,
            side: Bytes::new(),
            attrs: Default::default(),
            blank: 0,
        }));
        Some(chunk)
    }
}

enum Length {
    Is {
        digits: usize,
        len: u64,
    },
    /// There are only digits so far.
    Incomplete,
    None,
}

/// The number before a space that bytes begin with; none begins with a zero.
fn length(bytes: &[u8]) -> Length {
    if bytes.first() == Some(&b'0') {
        return Length::None;
    }
    let digits = bytes.iter().take(DIGITS_MAX + 1);
    let digits = digits.take_while(|byte| byte.is_ascii_digit()).count();
    if digits == 0 || digits > DIGITS_MAX {
        return Length::None;
    }
    match bytes.get(digits) {
        None => Length::Incomplete,
        Some(b' ') => {
            let value = |len: u64, digit: &u8| len * 10 + u64::from(digit - b'0');
            let len = bytes[..digits].iter().fold(0, value);
            if len > LENGTH_MAX {
                return Length::None;
            }
            Length::Is { digits, len }
        }
        Some(_) => Length::None,
    }
}

/// How long a message is without the line feed, carriage return or zero byte at its end.
fn without_end(text: &[u8]) -> usize {
    let is_end = |byte: &u8| matches!(byte, b'\n' | b'\r' | 0);
    text.iter()
        .rposition(|byte| !is_end(byte))
        .map_or(0, |last| last + 1)
}

#[cfg(test)]
mod tests {
    use batch::{Budget, Encoding};

    use crate::{Chunker, Settings};

    /// The messages of a stream that is read in pieces of these lengths, with whether they are cut.
    fn messages(
        stream: &[u8],
        record_max: usize,
        piece: impl FnMut() -> usize,
    ) -> Vec<(String, bool)> {
        found(&syslog(record_max), stream, piece).0
    }

    fn counted(record_max: usize) -> Settings {
        let mut settings = Settings::new(Encoding::Text, record_max);
        settings.is_counted = true;
        settings
    }

    fn syslog(record_max: usize) -> Settings {
        use crate::syslog::{Format, Syslog};
        use datetime::Zone;
        let mut settings = counted(record_max);
        settings.syslog = Some(Syslog::new(Format::Auto, Zone::UTC));
        settings
    }

    /// The messages, and why nothing behind them can be read.
    fn found(
        settings: &Settings,
        stream: &[u8],
        mut piece: impl FnMut() -> usize,
    ) -> (Vec<(String, bool)>, Option<String>) {
        let pool = Budget::new(64 << 20).pool(64 << 20, 4096);
        let mut chunker = Chunker::new(settings);
        let mut found = Vec::new();
        let mut collect = |chunk: crate::Chunk| {
            let records = chunk.records.expect("it has records");
            for record in &records.list {
                let start = record.at as usize;
                let text = &chunk.bytes[start..start + record.len];
                let text = String::from_utf8_lossy(text).into_owned();
                found.push((text, record.is_cut));
            }
        };
        let mut left = stream;
        while !left.is_empty() && !chunker.is_broken() {
            if chunker.is_full() {
                chunker.take().into_iter().for_each(&mut collect);
            }
            if let Some(size) = chunker.needs() {
                chunker.give(pool.take_sized(size));
            }
            let space = chunker.space();
            let read = left.len().min(space.len()).min(piece().max(1));
            space[..read].copy_from_slice(&left[..read]);
            left = &left[read..];
            chunker.advance(read);
            if read.is_multiple_of(3) {
                chunker.take().into_iter().for_each(&mut collect);
            }
        }
        while let Some(chunk) = chunker.finish() {
            collect(chunk);
        }
        (found, chunker.fault().map(str::to_owned))
    }

    #[test]
    fn what_the_messages_are_does_not_depend_on_how_they_are_read() {
        let long = format!("<{}", "z".repeat(299));
        type Case<'c> = (&'c str, String, &'c [(&'c str, bool)]);
        let table: &[Case<'_>] = &[
            (
                "counted",
                "5 <1>ab6 <2>c\ne".into(),
                &[("<1>ab", false), ("<2>c\ne", false)],
            ),
            (
                "lines",
                "<1>a\r\n<2>b\n".into(),
                &[("<1>a", false), ("<2>b", false)],
            ),
            (
                "both, with line feeds between",
                "5 <1>ab\n<2>line\n6 <3>abc\n\n4 <4>d".into(),
                &[
                    ("<1>ab", false),
                    ("<2>line", false),
                    ("<3>abc", false),
                    ("<4>d", false),
                ],
            ),
            (
                "a line feed that counts",
                "4 <1>\n4 <2>\n".into(),
                &[("<1>", false), ("<2>", false)],
            ),
            ("the end is missing", "9 <1>abc".into(), &[("<1>abc", true)]),
            (
                "a line without its end",
                "<1>abc".into(),
                &[("<1>abc", false)],
            ),
            (
                "too long, with a zero byte at its end",
                format!("{long}\0<2>b\0"),
                &[(&long[..100], true), ("<2>b", false)],
            ),
            (
                "zero bytes",
                "<1>a\n\0<2>b\0<3>c\0".into(),
                &[("<1>a", false), ("<2>b", false), ("<3>c", false)],
            ),
            (
                "a length that can be none",
                "1073741825 <1>a\n9999999999 <1>b\n".into(),
                &[("1073741825 <1>a", false), ("9999999999 <1>b", false)],
            ),
            (
                "digits and something else",
                "12x y\n<1>a\n".into(),
                &[("12x y", false), ("<1>a", false)],
            ),
            (
                "too long, counted",
                format!("300 {long}3 <1>"),
                &[(&long[..100], true), ("<1>", false)],
            ),
            (
                "too long, a line",
                format!("{long}\n3 <1>"),
                &[(&long[..100], true), ("<1>", false)],
            ),
            (
                "more digits than a length has",
                "12345678901 x\n".into(),
                &[("12345678901 x", false)],
            ),
        ];
        let mut random = fastrand::Rng::with_seed(5);
        for (name, stream, wanted) in table {
            for most in [1, 2, 7, 4000] {
                for _ in 0..20 {
                    let found = messages(stream.as_bytes(), 100, || random.usize(1..=most));
                    let found: Vec<(&str, bool)> =
                        found.iter().map(|(text, cut)| (&**text, *cut)).collect();
                    assert_eq!(found, *wanted, "{name}, read by {most}");
                }
            }
        }
    }

    #[test]
    fn a_syslog_frame_has_a_message_that_begins_as_one() {
        let read = |stream: &str, piece: usize| messages(stream.as_bytes(), 100, || piece);
        for piece in [1, 7, 4000] {
            let lines = "5 <1>ab1700000000 unix time\n2026 was fine\n0 <1>\n007 agents\n9 <1>a";
            let lines = read(lines, piece);
            let wanted = [
                ("<1>ab", false),
                ("1700000000 unix time", false),
                ("2026 was fine", false),
                ("0 <1>", false),
                ("007 agents", false),
                ("<1>a", true),
            ];
            assert_eq!(lines, wanted.map(|(text, cut)| (text.to_owned(), cut)));
            assert_eq!(read("12 ", piece), [("12 ".to_owned(), false)]);
        }
    }

    #[test]
    fn what_is_no_length_is_a_fault_unless_the_messages_are_syslog() {
        for (stream, wanted, shown) in [
            ("1 a2 bc", &["a", "bc"][..], None),
            ("1 a\n\r\0\x31 b\n", &["a", "b"], None),
            ("1 ahello 1 b", &["a"], Some("hello")),
            ("2026: was fine", &[], Some("2026:")),
            ("1 a007 agents", &["a"], Some("0")),
            ("0 1 a", &[], Some("0")),
            ("-1 a", &[], Some("-")),
            ("12345678901 x", &[], Some("12345678901")),
            ("1073741825 x", &[], Some("1073741825 ")),
            ("9999999999 x", &[], Some("9999999999 ")),
            ("1 a12", &["a"], Some("12")),
            ("1 a12 b", &["a", "b"], None),
        ] {
            for piece in [1, 3, 4000] {
                let (texts, fault) = found(&counted(100), stream.as_bytes(), || piece);
                let texts: Vec<&str> = texts.iter().map(|(text, _)| &**text).collect();
                assert_eq!(texts, wanted, "{stream}");
                let begun = shown.map(|shown| format!("begins with \"{}", &shown[..1]));
                match (&fault, begun) {
                    (Some(fault), Some(begun)) => assert!(fault.contains(&begun), "{fault}"),
                    (None, None) => {}
                    other => panic!("{stream}: {other:?}"),
                }
                if let (4000, Some(shown)) = (piece, shown) {
                    assert!(fault.is_some_and(|fault| fault.contains(shown)), "{stream}");
                }
            }
        }
    }

    #[test]
    fn anything_can_be_read() {
        let mut random = fastrand::Rng::with_seed(9);
        let letters = b"0123456789 <>\na";
        for _ in 0..300 {
            let stream: Vec<u8> = (0..random.usize(..400))
                .map(|_| letters[random.usize(..letters.len())])
                .collect();
            for settings in [syslog(50), counted(50)] {
                let (whole, fault) = found(&settings, &stream, || usize::MAX);
                let (pieces, other) = found(&settings, &stream, || random.usize(1..9));
                let text = String::from_utf8_lossy(&stream);
                assert_eq!(
                    (whole, fault.is_some()),
                    (pieces, other.is_some()),
                    "{text:?}"
                );
            }
        }
    }
}
