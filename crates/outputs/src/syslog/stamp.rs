//! The time of a message: its `@timestamp`, or else when the event was received.
//!
//! RFC 5424 has times of RFC 3339 with at most microseconds; of RFC 3164, the local `Mmm dd hh:mm:ss`, whose day is padded with a blank.

use std::sync::Arc;

use batch::{Batch, Column, FieldPath, Value};
use datetime::Zone;
use datetime::rfc3339::write_rfc3339;
use expr::{Absent, BoundTemplate, EventTimes, Template};

/// How times are written.
#[derive(Debug, Clone)]
pub enum Stamp {
    /// As RFC 5424 has it.
    Rfc5424,
    /// As RFC 3164 has it.
    Rfc3164(Template),
}

/// The same over the columns of one batch.
pub enum BoundStamp<'a> {
    Rfc5424(Arc<Column>, EventTimes),
    Rfc3164(BoundTemplate<'a>),
}

impl Stamp {
    /// Local times of a zone.
    ///
    /// # Panics
    /// The format is none, which a test finds.
    pub fn rfc3164(zone: Zone) -> Self {
        let template = Template::parse("%{+%b %e %H:%M:%S}").expect("a constant that is a format");
        Self::Rfc3164(template.in_zone(zone))
    }

    /// Times over the columns of one batch.
    pub fn bind<'a>(&'a self, batch: &Batch) -> BoundStamp<'a> {
        match self {
            Self::Rfc5424 => {
                let column = batch.column(&FieldPath::from_keys(["@timestamp"]));
                BoundStamp::Rfc5424(column, EventTimes::of(batch))
            }
            Self::Rfc3164(template) => BoundStamp::Rfc3164(template.bind(batch, Absent::Text(""))),
        }
    }
}

impl BoundStamp<'_> {
    /// Appends the time of a row.
    #[inline]
    pub fn write(&mut self, row: usize, out: &mut Vec<u8>) {
        match self {
            Self::Rfc3164(template) => template.write(row, out),
            Self::Rfc5424(column, times) => {
                // Most texts need not be read.
                if let Value::Text(text) = column.value(row)
                    && write_text(text, out)
                {
                    return;
                }
                let nanos = times.nanos(row);
                write_rfc3339(out, nanos - nanos.rem_euclid(1000));
            }
        }
    }
}

/// Appends a time that is already written as RFC 5424 wants it, apart from digits beyond microseconds; `false` if it is not.
fn write_text(text: &[u8], out: &mut Vec<u8>) -> bool {
    const DATE_TIME: &[u8] = b"0000-00-00T00:00:00";
    let Some((time, rest)) = text.split_at_checked(DATE_TIME.len()) else {
        return false;
    };
    let has_form = time.iter().zip(DATE_TIME).all(|(byte, form)| match form {
        b'0' => byte.is_ascii_digit(),
        form => byte == form,
    });
    let number = |at: usize| (time[at] & 15) * 10 + (time[at + 1] & 15);
    let is_time = has_form
        && (1..=12).contains(&number(5))
        && (1..=28).contains(&number(8))
        && number(11) < 24
        && number(14) < 60
        && number(17) < 60;
    if !is_time {
        return false;
    }
    let digits = match rest.split_first() {
        Some((b'.', after)) => after
            .iter()
            .take_while(|byte| byte.is_ascii_digit())
            .count(),
        _ => 0,
    };
    let fraction = if digits > 0 { digits + 1 } else { 0 };
    let zone = &rest[fraction..];
    let is_zone = match zone {
        [b'Z'] => true,
        [b'+' | b'-', h1, h2, b':', m1, m2] => {
            [h1, h2, m1, m2].iter().all(|byte| byte.is_ascii_digit())
                && (h1 & 15) * 10 + (h2 & 15) < 24
                && *m1 < b'6'
        }
        _ => false,
    };
    if is_zone {
        out.extend_from_slice(time);
        out.extend_from_slice(&rest[..fraction.min(7)]);
        out.extend_from_slice(zone);
    }
    is_zone
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    #[test]
    fn times_have_microseconds_at_most() {
        let rfc3164 = Stamp::rfc3164(Zone::named("Europe/Berlin").expect("a zone"));
        for (time, modern, old) in [
            (
                "2024-02-09T12:34:56Z",
                "2024-02-09T12:34:56Z",
                "Feb  9 13:34:56",
            ),
            (
                "2024-07-09T12:34:56.123456789Z",
                "2024-07-09T12:34:56.123456Z",
                "Jul  9 14:34:56",
            ),
            (
                "2024-02-09T12:34:56.1+02:00",
                "2024-02-09T12:34:56.1+02:00",
                "Feb  9 11:34:56",
            ),
            (
                "2024-02-29 12:34:56.9999999Z",
                "2024-02-29T12:34:56.999999Z",
                "Feb 29 13:34:56",
            ),
            (
                "2024-02-29T12:34:56z",
                "2024-02-29T12:34:56.000Z",
                "Feb 29 13:34:56",
            ),
            (
                "2024-02-30T12:34:56Z",
                "1970-01-01T00:00:00.000Z",
                "Jan  1 01:00:00",
            ),
            (
                "1969-12-31T23:59:59.9999999Z",
                "1969-12-31T23:59:59.999999Z",
                "Jan  1 00:59:59",
            ),
            ("nonsense", "1970-01-01T00:00:00.000Z", "Jan  1 01:00:00"),
        ] {
            let document = format!(r#"{{"@timestamp":"{time}"}}"#);
            let batch = testing::documents(&[&document]);
            for (stamp, expected) in [(&Stamp::Rfc5424, modern), (&rfc3164, old)] {
                let mut out = Vec::new();
                stamp.bind(&batch).write(0, &mut out);
                assert_eq!(String::from_utf8_lossy(&out), expected, "{time}");
            }
        }
        let batch = testing::lines(&["x"]);
        let mut out = Vec::new();
        Stamp::Rfc5424.bind(&batch).write(0, &mut out);
        assert_eq!(out, b"1970-01-01T00:00:00.000Z");
    }
}
