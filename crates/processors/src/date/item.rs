//! What a time format is made of, and the letters of Joda-Time for it.

/// One thing to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum FormatItem {
    /// These bytes.
    Text(Box<[u8]>),
    /// Any number of blanks.
    Pad,
    /// A number of 1 to `digits` digits within bounds.
    Number {
        part: NumberField,
        digits: u8,
        least: u16,
        most: u16,
    },
    /// A year of `least` to `most` digits.
    Year {
        week_based: bool,
        least: u8,
        most: u8,
    },
    /// The last two digits of a year.
    ShortYear { week_based: bool },
    /// The digits after the decimal point, at most so many.
    Fraction { digits: u8 },
    /// The name of a month.
    Month,
    /// The name of a weekday.
    Weekday,
    /// AM or PM.
    HalfDay,
    /// AD or BC.
    Era,
    /// `Z` or an offset from Greenwich.
    Offset,
    /// The IANA name of a zone, or an offset.
    Zone,
}

/// What a number is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NumberField {
    Month,
    Day,
    DayOfYear,
    Week,
    Weekday,
    Hour,
    /// 1 to 24.
    HourFromOne,
    /// 0 to 11.
    HalfDayHour,
    /// 1 to 12.
    HalfDayHourFromOne,
    Minute,
    Second,
}

/// Why a text is no format, with the byte to look at.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct FormatError {
    pub offset: usize,
    pub message: String,
}

/// The letters that a format may hold.
pub(super) const LETTERS: &str = "y M d D w x e E a H h K k m s S Z G";

/// The step of a letter that stands `run` times.
pub(super) fn step(letter: u8, run: usize) -> Result<FormatItem, String> {
    let number = |part, digits, least, most| {
        Ok(FormatItem::Number {
            part,
            digits,
            least,
            most,
        })
    };
    match letter {
        b'y' | b'Y' | b'x' if run == 2 => Ok(FormatItem::ShortYear { week_based: letter == b'x' }),
        b'y' | b'Y' | b'x' => Ok(FormatItem::Year { week_based: letter == b'x', least: run.min(9) as u8, most: 9 }),
        b'M' if run > 2 => Ok(FormatItem::Month),
        b'M' => number(NumberField::Month, 2, 1, 12),
        b'd' => number(NumberField::Day, 2, 1, 31),
        b'D' => number(NumberField::DayOfYear, 3, 1, 366),
        b'w' => number(NumberField::Week, 2, 1, 53),
        b'e' => number(NumberField::Weekday, 1, 1, 7),
        b'E' => Ok(FormatItem::Weekday),
        b'a' => Ok(FormatItem::HalfDay),
        b'G' => Ok(FormatItem::Era),
        b'H' => number(NumberField::Hour, 2, 0, 23),
        b'k' => number(NumberField::HourFromOne, 2, 1, 24),
        b'K' => number(NumberField::HalfDayHour, 2, 0, 11),
        b'h' => number(NumberField::HalfDayHourFromOne, 2, 1, 12),
        b'm' => number(NumberField::Minute, 2, 0, 59),
        // A leap second counts as the next minute's first.
        b's' => number(NumberField::Second, 2, 0, 60),
        b'S' => Ok(FormatItem::Fraction { digits: run.min(255) as u8 }),
        b'Z' if run > 2 => Ok(FormatItem::Zone),
        b'Z' => Ok(FormatItem::Offset),
        b'z' => Err("names of zones such as `CST` mean several places and cannot be read; use `Z` for offsets, `ZZZ` for \
                     names such as `Europe/Berlin`, or quote the text and set `timezone`"
            .to_owned()),
        _ => {
            let letter = char::from(letter);
            Err(format!("`{letter}` is not a letter of time formats; the letters are {LETTERS}, and other text must be quoted: '{letter}'"))
        }
    }
}

/// Adds a text, to the one before where that is the last item.
pub(super) fn add_text(list: &mut Vec<FormatItem>, text: &[u8]) {
    match list.last_mut() {
        Some(FormatItem::Text(before)) => *before = [before, text].concat().into(),
        _ => list.push(FormatItem::Text(text.into())),
    }
}
