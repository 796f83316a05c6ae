//! Names of files and folders of a store.
//!
//! A file is called `20261124T131500.000Z+60s.pb.gz`: when it begins, in UTC, and how long it is, in seconds, or in milliseconds (`+1500ms`). Where
//! there are several of the same time, later ones end in `-2.pb.gz` and so on. A folder is called as its host, but for characters other than
//! letters, digits, `-`, `_` and `.`, which are written as `%` and two hexadecimal digits for each byte; so is a `.` at the beginning.

use std::fmt;
use std::fmt::Write;
use std::time::{SystemTime, UNIX_EPOCH};

use datetime::civil::{date_of, days_from_civil};

use crate::profile::Window;

/// What names of files end in.
const ENDING: &str = ".pb.gz";

const MS_NS: i64 = 1_000_000;
const DAY_MS: i64 = 86_400_000;

/// The time in nanoseconds since 1970.
pub fn nanoseconds(time: SystemTime) -> i64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}

/// The name of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct SliceName {
    /// When it begins, in milliseconds since 1970.
    pub start_ms: i64,
    /// How long it is, in milliseconds.
    pub length_ms: i64,
    /// Which of the same time it is, from 1 on.
    pub count: u32,
}

impl SliceName {
    /// The name for a window, to the next millisecond.
    pub fn of(window: Window) -> Self {
        let start_ms = window.start_ns.div_euclid(MS_NS);
        let length_ms = i64::try_from(window.duration_ns).unwrap_or(i64::MAX) / MS_NS;
        Self {
            start_ms: start_ms.clamp(0, 4_000_000_000 * 1000),
            length_ms,
            count: 1,
        }
    }

    /// Its window.
    pub fn window(self) -> Window {
        Window {
            start_ns: self.start_ms.saturating_mul(MS_NS),
            duration_ns: self.length_ms.saturating_mul(MS_NS).unsigned_abs(),
        }
    }

    /// Reads a name; none where it is another file's.
    pub fn parse(name: &str) -> Option<Self> {
        let (start, rest) = name.strip_suffix(ENDING)?.split_once('+')?;
        let (length, count) = match rest.split_once('-') {
            Some((length, count)) => (length, count.parse().ok().filter(|count| *count > 1)?),
            None => (rest, 1),
        };
        let length_ms = match length.strip_suffix("ms") {
            Some(ms) => ms.parse::<u32>().ok()?.into(),
            None => i64::from(length.strip_suffix('s')?.parse::<u32>().ok()?) * 1000,
        };
        let parsed = Self {
            start_ms: parse_time(start)?,
            length_ms,
            count,
        };
        // A name has one spelling.
        (parsed.to_string() == name).then_some(parsed)
    }
}

impl fmt::Display for SliceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let day = self.start_ms.div_euclid(DAY_MS);
        let of_day = self.start_ms.rem_euclid(DAY_MS);
        let (year, month, day) = date_of(day);
        let (hour, minute) = (of_day / 3_600_000, of_day / 60_000 % 60);
        let (second, ms) = (of_day / 1000 % 60, of_day % 1000);
        write!(
            f,
            "{year:04}{month:02}{day:02}T{hour:02}{minute:02}{second:02}.{ms:03}Z+"
        )?;
        match self.length_ms % 1000 {
            0 => write!(f, "{}s", self.length_ms / 1000)?,
            _ => write!(f, "{}ms", self.length_ms)?,
        }
        if self.count > 1 {
            write!(f, "-{}", self.count)?;
        }
        f.write_str(ENDING)
    }
}

/// Milliseconds since 1970 of `20261124T131500.000Z`.
fn parse_time(text: &str) -> Option<i64> {
    let bytes = text.as_bytes();
    let is_right = bytes.len() == 20 && bytes[8] == b'T' && bytes[15] == b'.' && bytes[19] == b'Z';
    if !is_right {
        return None;
    }
    let number = |from: usize, to: usize| -> Option<i64> {
        let digits = text.get(from..to)?;
        let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
        digits.parse().ok().filter(|_| is_number)
    };
    let (month, day) = (number(4, 6)?, number(6, 8)?);
    let day = days_from_civil(
        number(0, 4)?,
        u32::try_from(month).ok()?,
        u32::try_from(day).ok()?,
    );
    let seconds = number(9, 11)? * 3600 + number(11, 13)? * 60 + number(13, 15)?;
    Some(day * DAY_MS + seconds * 1000 + number(16, 19)?)
}

/// The folder of a host.
pub fn folder_of(host: &str) -> String {
    let mut folder = String::new();
    for (index, byte) in host.bytes().enumerate() {
        match byte {
            b'.' if index > 0 => folder.push('.'),
            b'-' | b'_' => folder.push(byte.into()),
            byte if byte.is_ascii_alphanumeric() => folder.push(byte.into()),
            byte => {
                // Writing to a string never fails.
                let _ = write!(folder, "%{byte:02X}");
            }
        }
    }
    match &*folder {
        "" => "%".to_owned(),
        _ => folder,
    }
}

/// The host of a folder; none for other names.
pub fn host_of(folder: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut rest = folder;
    while let Some(next) = rest.chars().next() {
        rest = &rest[next.len_utf8()..];
        match next {
            '%' if folder == "%" => {}
            '%' => {
                bytes.push(u8::from_str_radix(rest.get(..2)?, 16).ok()?);
                rest = &rest[2..];
            }
            _ => bytes.push(u8::try_from(next).ok()?),
        }
    }
    let host = String::from_utf8(bytes).ok()?;
    (folder_of(&host) == folder).then_some(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        for (start_ms, length_ms, count, name) in [
            (
                1_795_526_100_000,
                60_000,
                1,
                "20261124T131500.000Z+60s.pb.gz",
            ),
            (
                1_795_526_100_123,
                1_500,
                1,
                "20261124T131500.123Z+1500ms.pb.gz",
            ),
            (0, 86_400_000, 12, "19700101T000000.000Z+86400s-12.pb.gz"),
        ] {
            let slice = SliceName {
                start_ms,
                length_ms,
                count,
            };
            assert_eq!(slice.to_string(), name);
            assert_eq!(SliceName::parse(name), Some(slice));
        }
        let window = Window {
            start_ns: 1_500_000_000,
            duration_ns: 2_000_000_000,
        };
        let name = SliceName::of(window);
        assert_eq!(name.to_string(), "19700101T000001.500Z+2s.pb.gz");
        assert_eq!(name.window(), window);
    }

    #[test]
    fn other_names_are_of_no_slice() {
        for name in [
            "",
            ".pb.gz",
            "20261124T131500.000Z+60s",
            "20261124T131500.000Z+60.pb.gz",
            "20261124T131500.000Z+060s.pb.gz",
            "20261124T131500.000Z+60s-1.pb.gz",
            "20261324T131500.000Z+60s.pb.gz",
            "2026112éT13150.000Z+60s.pb.gz",
            "20261124T251500.000Z+60s.pb.gz",
            ".writing-7-20261124T131500.000Z+60s.pb.gz",
        ] {
            assert_eq!(SliceName::parse(name), None, "{name}");
        }
    }

    #[test]
    fn any_host_has_a_folder() {
        for (host, folder) in [
            ("web-1.example.org", "web-1.example.org"),
            ("", "%"),
            ("..", "%2E."),
            ("a/b", "a%2Fb"),
            ("ü", "%C3%BC"),
            ("%", "%25"),
        ] {
            assert_eq!(folder_of(host), folder);
            assert_eq!(host_of(folder).as_deref(), Some(host));
        }
        for folder in ["a%2", "a%zz", "a b", "%2f", ".hidden", "a%2%"] {
            assert_eq!(host_of(folder), None, "{folder}");
        }
    }
}
