//! Facilities and severities: their numbers and names, and the priority that they make (RFC 5424, section 6.2.1).

use std::sync::Arc;

use batch::{Batch, FieldRead};

use super::choice::{BoundChoice, Choice};

/// The facility of events that name none: user-level messages.
const FACILITY_DEFAULT: u8 = 1;

/// The severity of events that name none. With the facility, it makes the priority 13, which RFC 3164 gives to messages without one
/// (section 4.3.3).
const SEVERITY_DEFAULT: u8 = 5;

/// Names of facilities: the usual short ones, which the input `syslog` writes, and other spellings.
const FACILITIES: &[(&str, u8)] = &[
    ("kern", 0),
    ("user", 1),
    ("mail", 2),
    ("daemon", 3),
    ("auth", 4),
    ("syslog", 5),
    ("lpr", 6),
    ("news", 7),
    ("uucp", 8),
    ("cron", 9),
    ("authpriv", 10),
    ("ftp", 11),
    ("ntp", 12),
    ("security", 13),
    ("audit", 13),
    ("console", 14),
    ("solaris-cron", 15),
    ("clock", 15),
    ("local0", 16),
    ("local1", 17),
    ("local2", 18),
    ("local3", 19),
    ("local4", 20),
    ("local5", 21),
    ("local6", 22),
    ("local7", 23),
];

/// Names of severities: those of the RFCs, short ones, and the levels of the usual logging libraries.
const SEVERITIES: &[(&str, u8)] = &[
    ("info", 6),
    ("informational", 6),
    ("information", 6),
    ("error", 3),
    ("err", 3),
    ("severe", 3),
    ("warn", 4),
    ("warning", 4),
    ("debug", 7),
    ("trace", 7),
    ("verbose", 7),
    ("notice", 5),
    ("critical", 2),
    ("crit", 2),
    ("fatal", 2),
    ("alert", 1),
    ("emergency", 0),
    ("emerg", 0),
    ("panic", 0),
];

/// What makes the priority of a message.
#[derive(Debug, Clone)]
pub struct Priority {
    pub facility: Choice,
    pub severity: Choice,
}

/// The same over the columns of one batch.
pub struct BoundPriority<'a> {
    facility: Level<'a>,
    severity: Level<'a>,
    scratch: Vec<u8>,
}

enum Level<'a> {
    Constant(u8),
    ByRow(BoundChoice<'a>, fn(&[u8]) -> Option<u8>, u8),
}

impl Priority {
    /// Where the facility is in events that were received as syslog.
    pub const FACILITY_FIELDS: &'static [&'static str] =
        &["log.syslog.facility.code", "log.syslog.facility.name"];

    /// Where the severity is: in events that were received as syslog, and in others.
    pub const SEVERITY_FIELDS: &'static [&'static str] = &[
        "log.syslog.severity.code",
        "log.syslog.severity.name",
        "log.level",
    ];

    /// The fields of both.
    pub fn reads(&self) -> impl Iterator<Item = Arc<FieldRead>> {
        self.facility.reads().chain(self.severity.reads())
    }

    /// Both over the columns of one batch.
    pub fn bind<'a>(&'a self, batch: &Batch) -> BoundPriority<'a> {
        BoundPriority {
            facility: Level::bind(&self.facility, batch, facility, FACILITY_DEFAULT),
            severity: Level::bind(&self.severity, batch, severity, SEVERITY_DEFAULT),
            scratch: Vec::new(),
        }
    }
}

impl<'a> Level<'a> {
    fn bind(choice: &'a Choice, batch: &Batch, read: fn(&[u8]) -> Option<u8>, default: u8) -> Self {
        match choice.bind(batch, |_, _| {}) {
            BoundChoice::Constant(text) => Self::Constant(read(&text).unwrap_or(default)),
            by_row @ BoundChoice::ByRow(_) => Self::ByRow(by_row, read, default),
        }
    }

    #[inline]
    fn of(&mut self, row: usize, scratch: &mut Vec<u8>) -> u8 {
        match self {
            Self::Constant(level) => *level,
            Self::ByRow(choice, read, default) => {
                scratch.clear();
                choice.write(row, scratch, |_, _| {});
                read(scratch).unwrap_or(*default)
            }
        }
    }
}

impl BoundPriority<'_> {
    /// Appends the priority of a row in its brackets.
    #[inline]
    pub fn write(&mut self, row: usize, out: &mut Vec<u8>) {
        let facility = self.facility.of(row, &mut self.scratch);
        let severity = self.severity.of(row, &mut self.scratch);
        let priority = facility * 8 + severity;
        out.push(b'<');
        if priority >= 100 {
            out.push(b'0' + priority / 100);
        }
        if priority >= 10 {
            out.push(b'0' + priority / 10 % 10);
        }
        out.extend([b'0' + priority % 10, b'>']);
    }
}

/// The number of a facility, given as number or name.
pub fn facility(text: &[u8]) -> Option<u8> {
    level(text, 23, FACILITIES)
}

/// The number of a severity, given as number or name.
pub fn severity(text: &[u8]) -> Option<u8> {
    level(text, 7, SEVERITIES)
}

fn level(text: &[u8], max: u8, names: &[(&str, u8)]) -> Option<u8> {
    let text = text.trim_ascii();
    match text {
        [ones @ b'0'..=b'9'] => Some(ones - b'0'),
        [tens @ b'0'..=b'9', ones @ b'0'..=b'9'] => Some((tens - b'0') * 10 + ones - b'0'),
        _ => {
            let is_it = |(name, _): &&(&str, u8)| name.as_bytes().eq_ignore_ascii_case(text);
            names.iter().find(is_it).map(|(_, level)| *level)
        }
    }
    .filter(|level| *level <= max)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    #[test]
    fn levels_have_numbers_and_names() {
        for (text, expected) in [
            ("0", Some(0)),
            ("23", Some(23)),
            ("24", None),
            ("LOCAL7", Some(23)),
            ("security", Some(13)),
            ("kern ", Some(0)),
            ("100", None),
            ("", None),
        ] {
            assert_eq!(facility(text.as_bytes()), expected, "{text}");
        }
        for (text, expected) in [
            ("7", Some(7)),
            ("8", None),
            ("Informational", Some(6)),
            ("WARN", Some(4)),
            ("fatal", Some(2)),
            ("level", None),
        ] {
            assert_eq!(severity(text.as_bytes()), expected, "{text}");
        }
    }

    #[test]
    fn the_priority_is_always_valid() {
        let priority = Priority {
            facility: Choice::fields(Priority::FACILITY_FIELDS),
            severity: Choice::fields(Priority::SEVERITY_FIELDS),
        };
        for (document, expected) in [
            ("{}", "<13>"),
            (r#"{"log":{"level":"ERROR"}}"#, "<11>"),
            (r#"{"log":{"level":"??"}}"#, "<13>"),
            (
                r#"{"log":{"level":"debug","syslog":{"facility":{"code":23},"severity":{"name":"Alert"}}}}"#,
                "<185>",
            ),
            (
                r#"{"log":{"syslog":{"facility":{"code":0},"severity":{"code":0}}}}"#,
                "<0>",
            ),
            (
                r#"{"log":{"syslog":{"facility":{"code":999},"severity":{"code":-1}}}}"#,
                "<13>",
            ),
        ] {
            let batch = testing::documents(&["{}", document]);
            let mut out = Vec::new();
            priority.bind(&batch).write(1, &mut out);
            assert_eq!(String::from_utf8_lossy(&out), expected, "{document}");
        }
    }
}
