//! Time formats whose letters cannot be meant so: `yyyy-mm-dd`, `dd/mm/yyyy HH:mm`, `YYYY-MM-DD`, `%d/%M/%Y`, `hh:mm`.
//!
//! The letters of Joda-Time and those of strftime differ from each other and from other tools' in case alone, and a wrong one
//! reads or writes a wrong time without any error. Whatever reads or writes times asks here when a format is compiled.

use std::ops::Range;

/// A letter of a time format that cannot be meant so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MisusedLetter {
    /// Its bytes in the format.
    pub at: Range<usize>,
    /// What is wrong, and what is likely meant.
    pub message: String,
}

/// What a format is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FormatUse {
    /// Reading a time, for which a part stands once.
    Read,
    /// Writing a time, where a part may stand again, as in `yyyy/MM/yyyy-MM-dd`.
    Write,
}

/// Part of a time, by its letter in Joda-Time; `Y` is `y`, `k` is `H` and `K` is `h`.
type Kind = char;

/// The letters of strftime that stand for one part.
const STRFTIME: &[(char, Kind)] = &[
    ('Y', 'y'),
    ('y', 'y'),
    ('m', 'M'),
    ('b', 'N'),
    ('B', 'N'),
    ('h', 'N'),
    ('d', 'd'),
    ('e', 'd'),
    ('j', 'D'),
    ('V', 'w'),
    ('H', 'H'),
    ('k', 'H'),
    ('I', 'h'),
    ('l', 'h'),
    ('p', 'a'),
    ('P', 'a'),
    ('M', 'm'),
    ('S', 's'),
    ('f', 'S'),
    ('N', 'S'),
    ('L', 'S'),
];

/// Letters of strftime that stand for several parts.
const STRFTIME_SEVERAL: &[(char, &str)] = &[
    ('F', "yMd"),
    ('T', "Hms"),
    ('R', "Hm"),
    ('D', "Mdy"),
    ('r', "hmsa"),
    ('c', "Ndyhmsa"),
];

/// How the parts that are suggested are written: in Joda-Time's letters, and in those of strftime.
const SUGGESTIONS: &[(Kind, &str, &str)] = &[
    ('M', "MM", "%m"),
    ('d', "dd", "%d"),
    ('H', "HH", "%H"),
    ('h', "hh", "%I"),
    ('m', "mm", "%M"),
    ('s', "ss", "%S"),
    ('a', "a", "%p"),
];

struct FormatPart {
    kind: Kind,
    at: Range<usize>,
}

/// The parts of a time that a format names.
struct Parts<'f> {
    format: &'f str,
    used: FormatUse,
    list: Vec<FormatPart>,
}

/// Looks for letters that cannot be meant so. The format is valid otherwise.
///
/// # Errors
/// The first such letter.
pub fn check_time_letters(format: &str, used: FormatUse) -> Result<(), MisusedLetter> {
    let list = match format.contains('%') {
        true => strftime_parts(format),
        false => joda_parts(format),
    };
    let parts = Parts { format, used, list };
    let found = [
        Parts::minute_for_month,
        Parts::month_for_minute,
        Parts::day_of_year,
        Parts::given_twice,
        Parts::day_without_month,
        Parts::half_day,
        Parts::fraction,
    ];
    match found.iter().find_map(|find| find(&parts)) {
        Some(misused) => Err(misused),
        None => Ok(()),
    }
}

/// The runs of letters outside of quotes. A month's name is `N`.
fn joda_parts(format: &str) -> Vec<FormatPart> {
    let bytes = format.as_bytes();
    let (mut list, mut at, mut is_quoted) = (Vec::new(), 0, false);
    while let Some(&byte) = bytes.get(at) {
        let run = bytes[at..].iter().take_while(|&&next| next == byte).count();
        if byte == b'\'' {
            is_quoted ^= run % 2 == 1;
        } else if !is_quoted && byte.is_ascii_alphabetic() {
            let kind = match byte {
                b'Y' => 'y',
                b'k' => 'H',
                b'K' => 'h',
                b'M' if run > 2 => 'N',
                other => char::from(other),
            };
            let at = at..at + run;
            list.push(FormatPart { kind, at });
        }
        at += run;
    }
    list
}

fn strftime_parts(format: &str) -> Vec<FormatPart> {
    let (mut list, mut at) = (Vec::new(), 0);
    while let Some(next) = format[at..].find('%') {
        let start = at + next;
        let is_mark = |c: char| !c.is_ascii_alphabetic() && c != '%';
        let rest = format[start + 1..].trim_start_matches(is_mark);
        let Some(letter) = rest.chars().next() else {
            break;
        };
        at = format.len() - rest.len() + letter.len_utf8();
        let known = STRFTIME.iter().filter(|(known, _)| *known == letter);
        let one = known.map(|(_, kind)| *kind);
        let several = STRFTIME_SEVERAL
            .iter()
            .filter(|(known, _)| *known == letter);
        let several = several.flat_map(|(_, kinds)| kinds.chars());
        list.extend(one.chain(several).map(|kind| FormatPart {
            kind,
            at: start..at,
        }));
    }
    list
}

impl Parts<'_> {
    fn has(&self, kinds: &str) -> bool {
        self.list.iter().any(|part| kinds.contains(part.kind))
    }

    fn first(&self, kinds: &str) -> Option<&FormatPart> {
        self.list.iter().find(|part| kinds.contains(part.kind))
    }

    /// Whether the part before or after this one is of these kinds.
    fn is_beside(&self, index: usize, kinds: &str) -> bool {
        let before = index.checked_sub(1).and_then(|index| self.list.get(index));
        let after = self.list.get(index + 1);
        let mut beside = before.into_iter().chain(after);
        beside.any(|part| kinds.contains(part.kind))
    }

    fn spelling(&self, kind: Kind) -> &'static str {
        let found = SUGGESTIONS.iter().find(|(known, _, _)| *known == kind);
        match found {
            Some((_, _, strftime)) if self.format.contains('%') => strftime,
            Some((_, joda, _)) => joda,
            None => "",
        }
    }

    /// That `part` is not what its letter says, but that other part.
    fn misused(&self, part: &FormatPart, is: &str, meant: Kind) -> MisusedLetter {
        let (text, meant) = (&self.format[part.at.clone()], self.spelling(meant));
        MisusedLetter {
            at: part.at.clone(),
            message: format!("`{text}` is {is}; did you mean `{meant}`?"),
        }
    }

    /// `yyyy-mm-dd`: minutes beside a day or a year, without an hour or given once more beside it.
    fn minute_for_month(&self) -> Option<MisusedLetter> {
        let minutes = || self.list.iter().filter(|part| part.kind == 'm').count();
        if self.has("MN") || (self.has("Hh") && minutes() < 2) {
            return None;
        }
        let is_month = |(index, part): &(usize, &FormatPart)| {
            part.kind == 'm' && self.is_beside(*index, "dy") && !self.is_beside(*index, "Hh")
        };
        let (_, part) = self.list.iter().enumerate().find(is_month)?;
        Some(self.misused(part, "the minute", 'M'))
    }

    /// `HH:MM`: a month where the minute stands, which is not there.
    fn month_for_minute(&self) -> Option<MisusedLetter> {
        if self.has("m") {
            return None;
        }
        let is_minute = |(index, part): &(usize, &FormatPart)| {
            let after = self.list.get(index + 1).map(|part| part.kind);
            part.kind == 'M'
                && self.is_beside(*index, "Hh")
                && matches!(after, None | Some('s' | 'S' | 'a' | 'Z'))
        };
        let (_, part) = self.list.iter().enumerate().find(is_minute)?;
        Some(self.misused(part, "the month", 'm'))
    }

    /// `YYYY-MM-DD`: a day of the year beside a month.
    fn day_of_year(&self) -> Option<MisusedLetter> {
        let part = self.first("D").filter(|_| self.has("MN"))?;
        // `DDD` is written so on purpose.
        if self.used == FormatUse::Write && &self.format[part.at.clone()] != "DD" {
            return None;
        }
        Some(self.misused(part, "the day of the year", 'd'))
    }

    fn given_twice(&self) -> Option<MisusedLetter> {
        const ONCE: &str = "yMNdDHhms";
        if self.used == FormatUse::Write {
            return None;
        }
        let again = |(index, part): &(usize, &FormatPart)| {
            ONCE.contains(part.kind)
                && self.list[..*index]
                    .iter()
                    .any(|before| before.kind == part.kind)
        };
        let (_, part) = self.list.iter().enumerate().find(again)?;
        let text = &self.format[part.at.clone()];
        Some(MisusedLetter {
            at: part.at.clone(),
            message: format!("`{text}` is given for a second time, with another place in the text"),
        })
    }

    fn day_without_month(&self) -> Option<MisusedLetter> {
        let part = self.first("d")?;
        if !self.has("y") || self.has("MNDw") {
            return None;
        }
        let month = self.spelling('M');
        Some(MisusedLetter {
            at: part.at.clone(),
            message: format!("a year and a day need the month between them: `{month}`"),
        })
    }

    /// `hh:mm` without AM or PM, and AM or PM beside an hour of 24.
    fn half_day(&self) -> Option<MisusedLetter> {
        if let Some(part) = self.first("h").filter(|_| !self.has("aH")) {
            let is = format!(
                "an hour of 12 and needs `{}` for AM or PM",
                self.spelling('a')
            );
            return Some(self.misused(part, &is, 'H'));
        }
        let part = self.first("H").filter(|_| self.has("a"))?;
        if self.has("h") {
            return None;
        }
        Some(self.misused(part, "an hour of 24, which AM and PM do not change", 'h'))
    }

    /// `HH:mm:SS`: a fraction of a second that is not there.
    fn fraction(&self) -> Option<MisusedLetter> {
        let part = self.first("S")?;
        if self.has("s") || !self.has("m") {
            return None;
        }
        Some(self.misused(part, "the fraction of a second", 's'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_that_cannot_be_meant_are_found() {
        for (format, at, parts) in [
            (
                "dd/mm/yyyy HH:mm",
                "mm",
                ["the minute", "did you mean `MM`"],
            ),
            ("yyyy-mm-dd HH:mm:ss", "mm", ["the minute", "`MM`"]),
            ("yyyy-mm-dd", "mm", ["the minute", "`MM`"]),
            ("mm/dd/yyyy", "mm", ["the minute", "`MM`"]),
            ("yyyy.mm", "mm", ["the minute", "`MM`"]),
            ("%d/%M/%Y %H:%M", "%M", ["the minute", "`%m`"]),
            ("%Y-%M-%d", "%M", ["the minute", "`%m`"]),
            ("%H:%m:%S", "%m", ["the month", "`%M`"]),
            ("HH:MM:ss", "MM", ["the month", "`mm`"]),
            ("dd.yyyy HH:MM", "MM", ["the month", "`mm`"]),
            ("yyyy-MM-dd HH:MM:ss", "MM", ["the month", "`mm`"]),
            ("YYYY-MM-DD HH:mm:ss", "DD", ["the day of the year", "`dd`"]),
            (
                "DD/MMM/YYYY:HH:mm:ss Z",
                "DD",
                ["the day of the year", "`dd`"],
            ),
            ("%Y-%m-%j", "%j", ["the day of the year", "`%d`"]),
            ("yyyy-MM-dd dd", "dd", ["for a second time", "`dd`"]),
            ("%F %d", "%d", ["for a second time", "`%d`"]),
            ("dd yyyy", "dd", ["need the month", "`MM`"]),
            (
                "yyyy-MM-dd hh:mm:ss",
                "hh",
                ["an hour of 12 and needs `a`", "`HH`"],
            ),
            ("KK:mm", "KK", ["an hour of 12", "`HH`"]),
            ("%I:%M", "%I", ["needs `%p`", "`%H`"]),
            ("HH:mm a", "HH", ["an hour of 24", "`hh`"]),
            ("HH:mm:SS", "SS", ["the fraction", "`ss`"]),
        ] {
            let misused = check_time_letters(format, FormatUse::Read).expect_err(format);
            assert_eq!(&format[misused.at], at, "{format}");
            for part in parts {
                let message = &misused.message;
                assert!(message.contains(part), "{format}: {message}");
            }
        }
    }

    #[test]
    fn formats_that_are_in_use_are_left_alone() {
        for format in [
            "ISO8601",
            "MMM dd yyyy HH:mm:ss",
            "MMM  d HH:mm:ss",
            "EEE MMM dd HH:mm:ss yyyy",
            "EEE, dd MMM yyyy HH:mm:ss Z",
            "dd/MMM/yyyy:HH:mm:ss Z",
            "yyyy-MM-dd'T'HH:mm:ss.SSSZZ",
            "YYYY-MM-dd HH:mm:ss,SSS",
            "dd MMM yyyy hh:mm:ss a",
            "MM/dd/yyyy hh:mm:ss.SSS a",
            "yyyyMMddHHmmssSSS",
            "yyyy-DDD",
            "xxxx-'W'ww-e",
            "xxxx.ww",
            "yyyy.MM.dd",
            "yyyy/MM/dd/HH/mm",
            "yyyy-MM-dd-HH",
            "HH:mm",
            "mm:ss",
            "mm",
            "SSS",
            "d 'de' MMMM 'de' yyyy",
            "yyyy'mm'MM'o''clock mm'dd",
            "HH:mm:ss dd.MM.yyyy",
            "HH dd MM",
            "MM HH",
            "dd HH:mm:ss",
            "%d/%b/%Y:%H:%M:%S %z",
            "%b %e %Y %I:%M:%S %p",
            "%Y-%m-%dT%H:%M:%S%.fZ",
            "%F %T,%3f",
            "%s %j %3f",
            "%r %D",
            "100%% %H",
        ] {
            for used in [FormatUse::Read, FormatUse::Write] {
                assert_eq!(check_time_letters(format, used), Ok(()), "{format}");
            }
        }
    }

    #[test]
    fn what_is_written_may_stand_again() {
        for (format, is_fine) in [
            ("yyyy/MM/dd/yyyy-MM-dd-HH", true),
            ("yyyy-MM-dd DDD", true),
            ("yyyy-MM-DD", false),
            ("yyyy-mm-dd", false),
        ] {
            let checked = check_time_letters(format, FormatUse::Write);
            assert_eq!(checked.is_ok(), is_fine, "{format}");
        }
    }
}
