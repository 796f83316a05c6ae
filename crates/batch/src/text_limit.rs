//! How long a text may be, and where it is cut.
//!
//! A cut falls between two characters, and not before one that belongs to the character in front of it: an accent, a joiner, a
//! variant, a skin tone, or the second letter of a flag. Where not one whole character fits, it is cut all the same. So far back as [`JOINED_BYTES_MAX`] only; a longer sequence, which no language has, is cut between
//! any of its characters.

use crate::change_texts::{NewText, TextChange};

/// A limit for the size of texts, with what stands at the end of those that were cut.
#[derive(Debug, Clone)]
pub struct TextLimit {
    bytes_max: usize,
    suffix: Box<str>,
}

/// How many bytes of a character with all that belongs to it are kept together.
const JOINED_BYTES_MAX: usize = 64;

/// Joins the characters on both sides to one, such as that of a family.
const JOINER: char = '\u{200d}';

impl TextLimit {
    /// Texts have at most `bytes_max` bytes; those that were cut end with `suffix`, which counts. None where it does not fit.
    pub fn new(bytes_max: usize, suffix: &str) -> Option<Self> {
        (suffix.len() <= bytes_max).then(|| Self {
            bytes_max,
            suffix: suffix.into(),
        })
    }

    /// The number of bytes that are left of a text that is too long, in front of the suffix. `text` is UTF-8.
    fn kept_len(&self, text: &[u8]) -> usize {
        let room = (self.bytes_max - self.suffix.len()).min(text.len());
        let end = boundary_before(text, room);
        let is_ascii = |at: Option<&u8>| at.is_none_or(u8::is_ascii);
        if is_ascii(text.get(end)) {
            return match text[..end].ends_with("\u{200d}".as_bytes()) {
                true if end > JOINER.len_utf8() => end - JOINER.len_utf8(),
                _ => end,
            };
        }
        let mut at = end;
        while is_joined(text, at) {
            if at == 0 || end - at > JOINED_BYTES_MAX {
                return end;
            }
            at = boundary_before(text, at - 1);
        }
        // Better a letter without its accent than no text.
        if at == 0 { end } else { at }
    }
}

impl TextChange for TextLimit {
    #[inline]
    fn leaves_len(&self, len: usize) -> bool {
        len <= self.bytes_max
    }

    fn would_change(&mut self, text: &[u8]) -> bool {
        text.len() > self.bytes_max
    }

    fn change(&mut self, text: &[u8], out: &mut Vec<u8>) -> NewText {
        if text.len() <= self.bytes_max {
            return NewText::Same;
        }
        let kept = self.kept_len(text);
        if self.suffix.is_empty() {
            return NewText::Start(kept);
        }
        out.extend_from_slice(&text[..kept]);
        out.extend_from_slice(self.suffix.as_bytes());
        NewText::Written
    }
}

/// The last place at or before `at` where a character begins or the text ends.
fn boundary_before(text: &[u8], mut at: usize) -> usize {
    while text.get(at).is_some_and(|byte| byte & 0xc0 == 0x80) {
        at -= 1;
    }
    at
}

/// Whether the characters before and behind `at` belong together.
fn is_joined(text: &[u8], at: usize) -> bool {
    text[..at].ends_with("\u{200d}".as_bytes())
        || char_at(text, at)
            .is_some_and(|c| extends(c) || is_flag(c) && flags_before(text, at) % 2 == 1)
}

/// How many letters of flags stand in front of `at`, two of which make one.
fn flags_before(text: &[u8], at: usize) -> usize {
    const LETTER_BYTES: usize = 4;
    let letters = text[..at].rchunks(LETTER_BYTES);
    let letters = letters.take(JOINED_BYTES_MAX / LETTER_BYTES);
    let is_letter = |letter: &&[u8]| char_at(letter, 0).is_some_and(is_flag);
    letters.take_while(is_letter).count()
}

/// Whether this is a letter of a flag.
fn is_flag(c: char) -> bool {
    matches!(c, '\u{1f1e6}'..='\u{1f1ff}')
}

fn char_at(text: &[u8], at: usize) -> Option<char> {
    let len = match text.get(at)? {
        0..0x80 => 1,
        0x80..0xe0 => 2,
        0xe0..0xf0 => 3,
        _ => 4,
    };
    let bytes = text.get(at..at + len)?;
    std::str::from_utf8(bytes).ok()?.chars().next()
}

/// Whether a character belongs to the one before it: the blocks of combining marks, and what emoji are made of.
fn extends(c: char) -> bool {
    matches!(c,
        '\u{300}'..='\u{36f}'
        | '\u{1ab0}'..='\u{1aff}'
        | '\u{1dc0}'..='\u{1dff}'
        | JOINER
        | '\u{20d0}'..='\u{20ff}'
        | '\u{fe00}'..='\u{fe0f}'
        | '\u{fe20}'..='\u{fe2f}'
        | '\u{1f3fb}'..='\u{1f3ff}')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn cut(text: &str, bytes_max: usize) -> &str {
        let limit = TextLimit::new(bytes_max, "").expect("no suffix always fits");
        &text[..limit.kept_len(text.as_bytes())]
    }

    #[test]
    fn characters_stay_whole() {
        for (text, bytes_max, kept) in [
            ("abcdef", 3, "abc"),
            ("aé", 2, "a"),
            ("aéb", 3, "aé"),
            ("日本語", 5, "日"),
            ("a😀", 4, "a"),
            ("😀", 3, ""),
            ("", 3, ""),
        ] {
            assert_eq!(cut(text, bytes_max), kept, "{text} at {bytes_max}");
        }
    }

    #[test]
    fn what_belongs_to_a_character_stays_with_it() {
        for (text, bytes_max, kept) in [
            ("ae\u{301}b", 2, "a"),
            ("ae\u{301}b", 3, "a"),
            ("ae\u{301}b", 4, "ae\u{301}"),
            ("ae\u{301}\u{302}b", 4, "a"),
            ("x👩\u{200d}🚀", 5, "x"),
            ("x👩\u{200d}🚀", 8, "x"),
            ("x👩\u{200d}z", 8, "x👩"),
            ("x👍\u{1f3fd}y", 5, "x"),
            ("e\u{301}b", 1, "e"),
            ("👩\u{200d}🚀", 8, "👩\u{200d}"),
            ("\u{200d}z", 3, "\u{200d}"),
            ("x🇩🇪y", 5, "x"),
            ("x🇩🇪y", 9, "x🇩🇪"),
            ("x🇩🇪🇫🇷", 16, "x🇩🇪"),
            ("🇩🇪", 4, "🇩"),
        ] {
            assert_eq!(cut(text, bytes_max), kept, "{text:?} at {bytes_max}");
        }
    }

    #[test]
    fn marks_without_end_are_cut() {
        let text = format!("a{}", "\u{301}".repeat(500));
        assert_eq!(cut(&text, 401).len(), 401);
        let marks = "\u{301}".repeat(10);
        assert_eq!(cut(&marks, 6).len(), 6, "nothing stands before the marks");
    }

    #[test]
    fn the_suffix_counts() {
        let limit = TextLimit::new(6, "…").expect("it fits");
        assert_eq!(limit.kept_len(b"abcdefgh"), 3);
        assert!(TextLimit::new(3, "…").is_some() && TextLimit::new(2, "…").is_none());
    }

    proptest! {
        #[test]
        fn cuts_are_within_the_limit(text in "[a-cé\u{301}\u{200d}😀\u{1f3fd}日]{0,40}", bytes_max in 0..60usize) {
            let kept = cut(&text, bytes_max);
            prop_assert!(kept.len() <= bytes_max && text.starts_with(kept));
            prop_assert!(kept.len() + JOINED_BYTES_MAX + 8 > bytes_max.min(text.len()));
        }
    }
}
