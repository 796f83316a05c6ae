//! Names of months, weekdays and halves of the day in languages other than English.
//!
//! They are those of the GNU C library's locales, by which programs write them. Both lengths are known, in the form that stands
//! in a date and in the one that stands alone where these differ; case does not matter, nor does the point after an
//! abbreviation. English needs no such list and is read faster.

use pure_rust_locales::{Locale, locale_match};

/// The names of a language, each list from the longest to the shortest.
#[derive(Clone, Debug)]
pub(super) struct Names {
    /// 1 to 12.
    months: Vec<Name>,
    /// 1 to 7, from Monday.
    weekdays: Vec<Name>,
    /// 0 for the first half of the day, 1 for the second.
    half_days: Vec<Name>,
}

/// A name in small letters without a point at its end, and what it stands for.
#[derive(Clone, Debug)]
struct Name {
    text: Box<str>,
    number: u32,
}

/// Which names to look for.
#[derive(Clone, Copy, Debug)]
pub(super) enum NameOf {
    Month,
    Weekday,
    HalfDay,
}

/// The territory that a language alone stands for, where it is not called like the language.
const TERRITORIES: [(&str, &str); 22] = [
    ("ar", "EG"),
    ("ca", "ES"),
    ("cs", "CZ"),
    ("da", "DK"),
    ("el", "GR"),
    ("et", "EE"),
    ("eu", "ES"),
    ("fa", "IR"),
    ("ga", "IE"),
    ("gl", "ES"),
    ("he", "IL"),
    ("hi", "IN"),
    ("ja", "JP"),
    ("ko", "KR"),
    ("nb", "NO"),
    ("nn", "NO"),
    ("sl", "SI"),
    ("sr", "RS"),
    ("sv", "SE"),
    ("uk", "UA"),
    ("vi", "VN"),
    ("zh", "CN"),
];

/// A locale that is not known.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct UnknownLocale;

impl Names {
    /// The names of a locale such as `de`, `de-DE` or `de_DE`; nothing for English.
    pub fn of(locale: &str) -> Result<Option<Self>, UnknownLocale> {
        let (language, territory) = match locale.split_once(['-', '_']) {
            Some((language, territory)) => (language, Some(territory)),
            None => (locale, None),
        };
        let language = language.to_ascii_lowercase();
        let territory = match territory {
            Some(territory) => territory.to_ascii_uppercase(),
            None => {
                let mut known = TERRITORIES.iter().filter(|(known, _)| *known == language);
                let known = known.next().map(|(_, territory)| (*territory).to_owned());
                known.unwrap_or_else(|| language.to_ascii_uppercase())
            }
        };
        if language == "en" {
            return Ok(None);
        }
        let name = format!("{language}_{territory}");
        let locale = Locale::try_from(name.as_str()).map_err(|_| UnknownLocale)?;
        Ok(Some(Self::new(locale)))
    }

    fn new(locale: Locale) -> Self {
        let months = [
            Some(locale_match!(locale => LC_TIME::MON)),
            Some(locale_match!(locale => LC_TIME::ABMON)),
            locale_match!(locale => LC_TIME::ALT_MON),
            locale_match!(locale => LC_TIME::AB_ALT_MON),
        ];
        let days = [
            locale_match!(locale => LC_TIME::DAY),
            locale_match!(locale => LC_TIME::ABDAY),
        ];
        let half_days = [locale_match!(locale => LC_TIME::AM_PM), &["am", "pm"]];
        let number = |index| index as u32;
        Self {
            months: list(months.into_iter().flatten(), |index| number(index) + 1),
            // The library's weeks begin on Sunday.
            weekdays: list(days, |index| if index == 0 { 7 } else { number(index) }),
            half_days: list(half_days, number),
        }
    }

    /// Reads a name at the start of a text, and gives its number and how many bytes it took.
    pub fn read(&self, of: NameOf, text: &[u8]) -> Option<(u32, usize)> {
        let names = match of {
            NameOf::Month => &self.months,
            NameOf::Weekday => &self.weekdays,
            NameOf::HalfDay => &self.half_days,
        };
        let text = std::str::from_utf8(text).ok()?;
        let found = |name: &Name| Some((name.number, length_of(&name.text, text)?));
        names.iter().find_map(found)
    }
}

/// The names of some lists as one, without those that are empty.
fn list<'n>(
    lists: impl IntoIterator<Item = &'n [&'n str]>,
    number: impl Fn(usize) -> u32,
) -> Vec<Name> {
    let mut names = Vec::new();
    for list in lists {
        for (index, name) in list.iter().enumerate() {
            let small: String = name.chars().flat_map(char::to_lowercase).collect();
            let text = small.trim().trim_end_matches('.');
            if !text.is_empty() {
                names.push(Name {
                    text: text.into(),
                    number: number(index),
                });
            }
        }
    }
    names.sort_by_key(|name| std::cmp::Reverse(name.text.len()));
    names
}

/// How many bytes a name in small letters takes at the start of a text in any case.
fn length_of(name: &str, text: &str) -> Option<usize> {
    let mut wanted = name.chars();
    let mut length = 0;
    for character in text.chars() {
        if wanted.as_str().is_empty() {
            break;
        }
        if character
            .to_lowercase()
            .any(|small| wanted.next() != Some(small))
        {
            return None;
        }
        length += character.len_utf8();
    }
    wanted.as_str().is_empty().then_some(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locales_in_their_spellings() {
        for locale in ["en", "en-US", "en_GB", "EN"] {
            assert!(matches!(Names::of(locale), Ok(None)), "{locale}");
        }
        for locale in [
            "de", "de-AT", "de_DE", "DE_de", "ja", "zh-TW", "nb", "uk", "sv",
        ] {
            assert!(matches!(Names::of(locale), Ok(Some(_))), "{locale}");
        }
        for locale in ["", "xx", "de-XX", "German"] {
            assert!(Names::of(locale).is_err(), "{locale}");
        }
        for (language, territory) in TERRITORIES {
            assert!(Names::of(language).is_ok(), "{language} {territory}");
        }
    }

    #[test]
    fn names_are_read_in_any_case_and_length() {
        use NameOf::{HalfDay, Month, Weekday};
        for (locale, of, text, expected) in [
            ("de", Month, "März 2024", Some((3, 5))),
            ("de", Month, "MÄR", Some((3, 4))),
            ("de", Month, "Mai", Some((5, 3))),
            ("de", Month, "May", None),
            ("de", Weekday, "So, 1.", Some((7, 2))),
            ("de", Weekday, "Montag", Some((1, 6))),
            ("fr", Month, "févr.", Some((2, 5))),
            ("fr", Month, "août", Some((8, 5))),
            ("ru", Month, "мая", Some((5, 6))),
            ("ru", Month, "Май", Some((5, 6))),
            ("ja", Month, "12月", Some((12, 5))),
            ("es", Weekday, "sábado", Some((6, 7))),
            ("de", HalfDay, "PM", Some((1, 2))),
            ("ja", HalfDay, "午後", Some((1, 6))),
        ] {
            let names = Names::of(locale).expect(locale).expect(locale);
            assert_eq!(
                names.read(of, text.as_bytes()),
                expected,
                "{text} in {locale}"
            );
        }
    }
}
