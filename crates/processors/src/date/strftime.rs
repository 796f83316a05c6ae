//! Time formats in the letters of strftime: `%d/%b/%Y:%H:%M:%S %z`.
//!
//! A format with a percent sign is read here. Its letters become the steps that the letters of Joda-Time give.

use super::item::{FormatError, FormatItem, add_text, step};

/// The letters with the Joda-Time letter that each stands for, and how often that one stands.
const LETTERS: [(char, u8, usize); 29] = [
    ('Y', b'y', 4),
    ('y', b'y', 2),
    ('G', b'x', 4),
    ('g', b'x', 2),
    ('m', b'M', 2),
    ('b', b'M', 3),
    ('B', b'M', 4),
    ('h', b'M', 3),
    ('d', b'd', 2),
    ('e', b'd', 1),
    ('j', b'D', 3),
    ('V', b'w', 2),
    ('u', b'e', 1),
    ('a', b'E', 3),
    ('A', b'E', 4),
    ('H', b'H', 2),
    ('k', b'H', 1),
    ('I', b'h', 2),
    ('l', b'h', 1),
    ('p', b'a', 1),
    ('P', b'a', 1),
    ('M', b'm', 2),
    ('S', b's', 2),
    ('f', b'S', 9),
    ('N', b'S', 9),
    ('L', b'S', 9),
    ('z', b'Z', 1),
    ('Q', b'Z', 3),
    ('Z', b'z', 1),
];

/// Letters that stand for several others.
const SHORT_FORMS: [(char, &str); 5] = [
    ('F', "%Y-%m-%d"),
    ('T', "%H:%M:%S"),
    ('R', "%H:%M"),
    ('D', "%m/%d/%y"),
    ('r', "%I:%M:%S %p"),
];

/// Makes steps of a format.
pub(super) fn compile(text: &str) -> Result<Vec<FormatItem>, FormatError> {
    let mut list = Vec::new();
    add(text, 0, &mut list)?;
    Ok(list)
}

fn add(text: &str, offset: usize, list: &mut Vec<FormatItem>) -> Result<(), FormatError> {
    let mut at = 0;
    while let Some(next) = text[at..].find('%') {
        add_literal(list, &text[at..at + next]);
        let start = at + next;
        let fault = |message: String| FormatError {
            offset: offset + start,
            message,
        };
        let rest = &text[start + 1..];
        // `%.3f`, `%3f`, `%:z`, `%-d`: marks, a width, a letter.
        let marks = rest
            .find(|c: char| !matches!(c, '.' | ':' | '-' | '_' | '^' | '0'))
            .unwrap_or(rest.len());
        let digits = rest[marks..]
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(rest.len() - marks);
        let width: Option<usize> = rest[marks..marks + digits].parse().ok();
        let Some(letter) = rest[marks + digits..].chars().next() else {
            return Err(fault(
                "a letter is missing after the `%`; a percent sign is `%%`".to_owned(),
            ));
        };
        at = start + 1 + marks + digits + letter.len_utf8();
        if letter == '%' {
            add_text(list, b"%");
            continue;
        }
        if let Some((_, long)) = SHORT_FORMS.iter().find(|(short, _)| *short == letter) {
            add(long, offset + start, list)?;
            continue;
        }
        let known = LETTERS.iter().find(|(known, _, _)| *known == letter);
        let Some((_, joda, run)) = known.filter(|_| !matches!(letter, 'n' | 't')) else {
            if matches!(letter, 'n' | 't') {
                add_text(list, if letter == 'n' { b"\n" } else { b"\t" });
                continue;
            }
            let letters: Vec<String> = LETTERS
                .iter()
                .map(|(letter, _, _)| letter.to_string())
                .collect();
            let short = SHORT_FORMS.iter().map(|(letter, _)| letter.to_string());
            let all: Vec<String> = letters.into_iter().chain(short).collect();
            let message = format!(
                "`%{letter}` cannot be read; known are % and {}, and `%s` alone",
                all.join(" ")
            );
            return Err(fault(message));
        };
        if rest.starts_with('.') {
            add_text(list, b".");
        }
        if matches!(letter, 'e' | 'k' | 'l') {
            list.push(FormatItem::Pad);
        }
        let run = match letter {
            'f' | 'N' | 'L' => width.unwrap_or(*run),
            _ => *run,
        };
        list.push(step(*joda, run).map_err(|message| fault(strftime_words(&message)))?);
    }
    add_literal(list, &text[at..]);
    Ok(())
}

fn add_literal(list: &mut Vec<FormatItem>, text: &str) {
    if !text.is_empty() {
        add_text(list, text.as_bytes());
    }
}

/// What Joda-Time's letters are called here.
fn strftime_words(message: &str) -> String {
    message
        .replace("`ZZZ`", "`%Q`")
        .replace("`Z`", "`%z`")
        .replace("quote the text", "write the text itself")
}

#[cfg(test)]
mod tests {
    use super::super::format::Format;

    #[test]
    fn letters_give_what_those_of_joda_time_give() {
        for (strftime, joda) in [
            ("%Y-%m-%d %H:%M:%S", "yyyy-MM-dd HH:mm:ss"),
            ("%d/%b/%Y:%H:%M:%S %z", "dd/MMM/yyyy:HH:mm:ss Z"),
            ("%F %T,%3f", "yyyy-MM-dd HH:mm:ss,SSS"),
            ("%Y%m%d", "yyyyMMdd"),
            ("%FT%T%.fZ", "yyyy-MM-dd'T'HH:mm:ss.SSSSSSSSS'Z'"),
            ("%a %b %d %I:%M %p %y", "EEE MMM dd hh:mm a yy"),
            ("%j of %Y, %Q", "DDD' of 'yyyy', 'ZZZ"),
            ("%G-W%V-%u", "xxxx-'W'ww-e"),
            ("%-d.%-m.%Y 100%%", "dd.MM.yyyy' 100%'"),
        ] {
            let Ok(Format::Steps(expected)) = Format::joda(joda, None) else {
                panic!("{joda}")
            };
            let Ok(Format::Steps(steps)) = Format::compile(strftime, None) else {
                panic!("{strftime}")
            };
            assert_eq!(steps.list, expected.list, "{strftime}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_pointed_at() {
        for (text, offset, part) in [
            ("%Y-%q", 3, "`%q` cannot be read"),
            ("%H:%M %Z", 6, "%Q"),
            ("%Y %", 3, "a letter is missing"),
            ("100%%", 0, "needs letters"),
            ("%s.%f", 0, "`%s` cannot be read"),
        ] {
            let error = Format::compile(text, None).expect_err(text);
            assert_eq!(error.offset, offset, "{text}: {}", error.message);
            assert!(error.message.contains(part), "{text}: {}", error.message);
        }
        assert!(matches!(
            Format::compile("%s", None),
            Ok(Format::Literal(_))
        ));
    }
}
