//! Writing an event, and its time.

/// An event that is being written into a buffer.
pub(super) struct Line<'b> {
    bytes: &'b mut [u8],
    len: usize,
}

impl<'b> Line<'b> {
    /// An empty line at the start of `bytes`, which are as many as the longest event has.
    pub(super) fn new(bytes: &'b mut [u8]) -> Self {
        Self { bytes, len: 0 }
    }

    /// Bytes so far.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Appends bytes.
    #[inline]
    pub(super) fn put(&mut self, bytes: impl AsRef<[u8]>) -> &mut Self {
        let bytes = bytes.as_ref();
        self.bytes[self.len..][..bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
        self
    }

    /// Appends a number.
    pub(super) fn number(&mut self, mut number: u64) -> &mut Self {
        let mut digits = [0; 20];
        let mut at = digits.len();
        loop {
            at -= 1;
            digits[at] = b'0' + (number % 10) as u8;
            number /= 10;
            if number == 0 {
                return self.put(&digits[at..]);
            }
        }
    }

    /// Appends a number with leading zeros.
    pub(super) fn padded(&mut self, mut number: u64, width: usize) -> &mut Self {
        for digit in self.bytes[self.len..][..width].iter_mut().rev() {
            *digit = b'0' + (number % 10) as u8;
            number /= 10;
        }
        self.len += width;
        self
    }

    /// Cuts the line to half of its bytes.
    pub(super) fn halve(&mut self) {
        self.len /= 2;
    }
}

/// 2026-01-01T00:00:00Z in seconds since 1970.
const START_SECONDS: i64 = 1_767_225_600;

/// Events for each second of their time.
const EVENTS_PER_SECOND: u64 = 1000;

const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];

/// The time of events, as text that is made once a second of it.
pub(super) struct Clock {
    second: Option<u64>,
    text: String,
    render: fn(&Moment<'_>) -> String,
}

/// A second, in parts of text.
pub(super) struct Moment<'t> {
    /// `2026-01-31T12:34:56`
    pub(super) date_time: &'t str,
    /// `2026`
    pub(super) year: &'t str,
    /// `Jan`
    pub(super) month: &'t str,
    /// `31`
    pub(super) day: &'t str,
    /// `12:34:56`
    pub(super) time: &'t str,
}

impl Clock {
    /// A clock that shows seconds as `render` writes them.
    pub(super) fn new(render: fn(&Moment<'_>) -> String) -> Self {
        Self {
            second: None,
            text: String::new(),
            render,
        }
    }

    /// The second of event number `number`.
    pub(super) fn at(&mut self, number: u64) -> &str {
        let second = number / EVENTS_PER_SECOND;
        if self.second != Some(second) {
            self.second = Some(second);
            self.text = self.render(second);
        }
        &self.text
    }

    fn render(&self, second: u64) -> String {
        // Beyond the years that have four digits, the time starts again.
        const SECONDS_MAX: u64 = 250_000_000_000;
        let mut text = Vec::new();
        let written = datetime::rfc3339::write_seconds_and_nanos(
            &mut text,
            START_SECONDS + (second % SECONDS_MAX) as i64,
            0,
        );
        debug_assert!(written, "the year has four digits");
        let text = String::from_utf8(text).unwrap_or_default();
        let month = text[5..7].parse::<usize>().unwrap_or(1);
        (self.render)(&Moment {
            date_time: &text[..19],
            year: &text[..4],
            month: MONTHS[(month - 1) % MONTHS.len()],
            day: &text[8..10],
            time: &text[11..19],
        })
    }
}

/// The microseconds of event number `number` within its second.
pub(super) fn micros(number: u64) -> u64 {
    number % EVENTS_PER_SECOND * (1_000_000 / EVENTS_PER_SECOND)
        + number.wrapping_mul(0x9E37_79B9) % 1000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_starts_in_2026_and_goes_on() {
        let mut clock = Clock::new(|moment| {
            let Moment {
                date_time,
                year,
                month,
                day,
                time,
            } = moment;
            format!("{date_time} {day} {month} {year} {time}")
        });
        assert_eq!(clock.at(0), "2026-01-01T00:00:00 01 Jan 2026 00:00:00");
        assert_eq!(clock.at(999), "2026-01-01T00:00:00 01 Jan 2026 00:00:00");
        assert_eq!(
            clock.at(31 * 86_400_000 + 61_500),
            "2026-02-01T00:01:01 01 Feb 2026 00:01:01"
        );
        assert!(!clock.at(u64::MAX).is_empty());
        assert!(
            (0..5000)
                .map(micros)
                .zip((1..5000).map(micros))
                .filter(|(a, b)| a > b)
                .count()
                < 5
        );
    }

    #[test]
    fn numbers() {
        let mut bytes = [0; 64];
        let mut line = Line::new(&mut bytes);
        line.number(0)
            .put(" ")
            .number(u64::MAX)
            .put(" ")
            .padded(42, 6);
        let len = line.len();
        assert_eq!(&bytes[..len], b"0 18446744073709551615 000042");
    }
}
