//! Syslog messages in lines of text: RFC 5424, RFC 3164, and what the servers of today write into files.
//!
//! | form | looks like |
//! | --- | --- |
//! | RFC 5424 | `<34>1 2003-10-11T22:14:15.003Z host su 230 ID47 [id@32473 key="value"] text` |
//! | RFC 3164 | `<34>Oct 11 22:14:15 host su[230]: text` |
//! | files | `Oct 11 22:14:15 host su[230]: text`, `2003-10-11T22:14:15.003Z host su[230]: text` |
//! | network devices | `<189>29: r1: *Mar  1 18:46:11.123 UTC: %LINK-3-UPDOWN: text` |
//!
//! What the message says goes to the fields that ECS has for it, below `log.syslog`; `message` becomes the message's own
//! text and `@timestamp` its time; a device's count of its messages is `event.sequence`. Values are views into the line; only structured data is written anew, as JSON. A nil
//! value (`-`) gives no field. A line that is not a syslog message, or has a time that cannot be read, stays as it is and
//! gets the tag `_syslogparsefailure` with the reason and its place in `error.message`.
//!
//! # Where this is more lenient than the RFCs
//! - No length of a field is checked, and a fraction of a second may have any number of digits; nine of them count.
//! - A time without an offset is one of the default zone, in RFC 5424 too. Second 60 is the next minute's first.
//! - An element of structured data that comes several times, which RFC 5424 forbids, gives an array of objects.
//! - `]` inside a value of structured data may go without its backslash, and there may be more spaces between parameters.
//! - There may be blanks after the priority, and a blank for the `T` of a time.
//! - A time may be one of ISO 8601's basic format, stand in brackets, have an hour of one digit or no seconds; behind a priority it may
//!   count seconds since 1970, as Meraki writes it.
//! - In RFC 3164 the year may stand before the month, before or after the time of day; the time may be one of RFC 3339
//!   or missing; the host may be missing where the tag's colon or bracket shows it; a name takes more than 32 characters.
//!
//! # Limits
//! Without a priority a line must begin with a time, or every line would be a message. Times reach from 1677 to 2262.
//! Of zones' names those of RFC 822 (UT, GMT, Z, EST, EDT, CST, CDT, MST, MDT, PST, PDT) are known, and UTC, WET, WEST, CET, CEST, EET, EEST,
//! MSK and JST. Others mean several places, such as IST and BST: the default zone stands for them before a device's message, and
//! elsewhere they are taken for the host.
//!
//! # Years that are not written
//! A time without a year gets the latest year that puts it at most a day after the receive time: logs tell of the past,
//! and clocks differ by less than a day. The year that puts it closest to the receive time would move a line of February
//! that is read in September into the future; the current year, which rsyslog and Filebeat take, does so with a line of October that
//! is read in June (reported as <https://github.com/elastic/beats/issues/34779>). Logstash takes the current year too, except
//! between December and January.

mod clock;
mod columns;
mod data;
mod device;
mod header;
mod stamp;

use std::sync::Arc;

use batch::{Batch, Cell, Failures, FieldPath};

use clock::Clock;
use columns::{Columns, Fields, Hosts};
use datetime::Zone;
use header::Header;

const FAILURE_TAG: &str = "_syslogparsefailure";

/// Which form the messages have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// RFC 5424 where a version follows the priority, else RFC 3164.
    #[default]
    Auto,
    /// RFC 3164 and its kin, with or without a priority.
    Rfc3164,
    /// RFC 5424.
    Rfc5424,
}

/// What was met in a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Lines that are no syslog message, tagged `_syslogparsefailure` and kept as text.
    pub failures: u64,
    /// The offset in its stream of the first of them.
    pub first_failure: Option<u64>,
    /// The row of the first of them.
    pub first_row: Option<usize>,
}

/// Why a line is not a syslog message, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a syslog message: {reason} at byte {at} of the line")]
struct Problem {
    reason: &'static str,
    /// Bytes from the line's start.
    at: usize,
}

impl Problem {
    fn new(reason: &'static str, at: usize) -> Self {
        Self { reason, at }
    }
}

/// Whether a byte may stand in the name of a host or a program. Quotes, brackets and what separates keys from values
/// are left out, so that a text in some other syntax is not taken for a name.
#[inline]
fn is_name(byte: u8) -> bool {
    const NAME: [bool; 256] = {
        let mut table = [false; 256];
        let mut byte = 0x21;
        while byte < 0x7F {
            table[byte] = !matches!(
                byte as u8,
                b'"' | b'\''
                    | b'`'
                    | b'{'
                    | b'}'
                    | b'['
                    | b']'
                    | b'<'
                    | b'>'
                    | b'='
                    | b','
                    | b';'
                    | b':'
                    | b'|'
                    | b'\\'
            );
            byte += 1;
        }
        table
    };
    NAME[usize::from(byte)]
}

/// Reads the lines of batches as syslog messages.
#[derive(Clone, Debug)]
pub struct Syslog {
    format: Format,
    zone: Zone,
    fields: Arc<Fields>,
    tag: Arc<str>,
}

impl Syslog {
    /// A reader of messages of this form. Times that name no offset are those of `zone`.
    pub fn new(format: Format, zone: Zone) -> Self {
        Self {
            format,
            zone,
            fields: Arc::new(Fields::new()),
            tag: FAILURE_TAG.into(),
        }
    }

    /// Reads `message` of every row as a syslog message and sets the message's fields, all in one change. Rows without a
    /// text there, dropped ones and sealed ones stay as they are.
    pub fn apply(&self, batch: &mut Batch) -> Counts {
        let lines = batch.column(&FieldPath::from_keys(["message"]));
        let mut clock = Clock::new(&self.zone, batch.received());
        let mut columns =
            Columns::new(&self.fields, batch.len(), lines.buffers(), Hosts::of(batch));
        let mut structured = data::Scratch::default();
        let mut failures = Failures::none();
        // Broken lines tend to be broken in the same way: they share the text that says how.
        let mut last: Option<(Problem, Arc<str>)> = None;
        for row in batch.alive().iter() {
            let Cell::Text(span) = lines.cell(row) else {
                continue;
            };
            if batch.sealed().contains(row) {
                continue;
            }
            match Header::parse(lines.bytes(span), self.format, &mut clock, &mut structured) {
                Ok(header) => columns.put(row, span, &header, &structured),
                Err(problem) => {
                    columns.put_unread(row, span);
                    if last.as_ref().is_none_or(|(known, _)| *known != problem) {
                        last = Some((problem, problem.to_string().into()));
                    }
                    if let Some((_, reason)) = &last {
                        failures.push(row, &self.tag, reason);
                    }
                }
            }
        }
        failures.extend_refused(batch.apply(columns.finish()), &self.tag);
        batch.mark_failed(&failures, false);
        let first = failures.rows().iter().map(|failure| failure.row).min();
        Counts {
            failures: failures.rows().len() as u64,
            first_failure: first.map(|row| batch.origin().start(row)),
            first_row: first,
        }
    }
}
