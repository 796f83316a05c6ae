//! The functions of the language: one table that the checker, the evaluator and the reference pages read.
//!
//! Every function may be written in front of its arguments or behind the first one: `size(tags)` and `tags.size()` are
//! the same. A function of an absent or null first argument gives that back; a question about such a text
//! (`contains`, `startsWith`, `endsWith`, `matches`) is answered with false. `type` and `has` take everything.

mod convert;
mod table;
mod text;

pub use table::FUNCTIONS;

use crate::fault::What;
use crate::time::Part;
use crate::value::Val;

/// What the reference says of a function.
#[derive(Clone, Copy, Debug)]
pub struct FunctionDoc {
    /// The name.
    pub name: &'static str,
    /// How it is called and what comes out; what stands in square brackets may be left out.
    pub signature: &'static str,
    /// What it does, in a sentence.
    pub summary: &'static str,
    /// An expression that is true for [`EXAMPLE_DOCUMENT`].
    pub example: &'static str,
    /// The least and the greatest number of arguments, the one before the dot included.
    pub(crate) arguments: (usize, usize),
    pub(crate) kind: Kind,
}

/// The event that the functions' examples are about.
pub const EXAMPLE_DOCUMENT: &str = concat!(
    r#"{"@timestamp":"2024-02-29T12:34:56.789Z","message":"GET /index.html 502","method":"get","status":"502","#,
    r#""bytes":2048,"took":1.5,"tags":["web","slow"],"http":{"user-agent":"curl/8.5.0"},"note":null}"#,
);

/// A function of values that are there.
pub(crate) type Call = for<'a> fn(&[Val<'a>]) -> Result<Val<'a>, What>;

/// How a function is evaluated.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    Has,
    Now,
    Type,
    Matches,
    Question(Question),
    Call(Call),
    Part(Part),
    Macro(Macro),
}

/// A question about two texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Question {
    Contains,
    StartsWith,
    EndsWith,
}

impl Question {
    pub fn answer(self, text: &[u8], part: &[u8]) -> bool {
        match self {
            Self::Contains => memchr::memmem::find(text, part).is_some(),
            Self::StartsWith => text.starts_with(part),
            Self::EndsWith => text.ends_with(part),
        }
    }
}

/// A function that evaluates its last argument for every element of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Macro {
    Exists,
    All,
    Filter,
    Map,
}

/// The function of that name.
pub(crate) fn find(name: &str) -> Option<&'static FunctionDoc> {
    FUNCTIONS.iter().find(|function| function.name == name)
}

/// Names that other languages have for functions.
const HABITS: [(&str, &str); 12] = [
    ("lower", "lowerAscii"),
    ("tolower", "lowerAscii"),
    ("upper", "upperAscii"),
    ("toupper", "upperAscii"),
    ("len", "size"),
    ("length", "size"),
    ("includes", "contains"),
    ("regex", "matches"),
    ("any", "exists"),
    ("str", "string"),
    ("substr", "substring"),
    ("strip", "trim"),
];

/// The function that somebody who wrote `name` may have meant.
pub(crate) fn closest(name: &str) -> Option<&'static str> {
    let lower = name.to_ascii_lowercase().replace('_', "");
    if let Some((_, meant)) = HABITS.iter().find(|(habit, _)| *habit == lower) {
        return Some(meant);
    }
    let distance = |known: &str| strsim::damerau_levenshtein(&lower, &known.to_ascii_lowercase());
    let (distance, best) = FUNCTIONS
        .iter()
        .map(|function| (distance(function.name), function.name))
        .min()?;
    (distance <= 1 + lower.len() / 4).then_some(best)
}

/// The text of an argument.
fn text_of<'v>(value: &'v Val<'_>) -> Result<&'v str, What> {
    match value {
        // Text is UTF-8 where it enters; what is not would be a defect elsewhere, and has no characters to count.
        Val::Text(text) => std::str::from_utf8(text).map_err(|_| What::Unreadable("UTF-8")),
        other => Err(What::Needs("a text", other.kind())),
    }
}

/// The whole number of an argument, cut to 64 bits.
fn whole_of(value: &Val<'_>) -> Result<i64, What> {
    match value.number() {
        Some(crate::number::Num::Int(n)) => Ok(n.clamp(i64::MIN.into(), i64::MAX.into()) as i64),
        _ => Err(What::Needs("a whole number", value.kind())),
    }
}

/// A part of a time or a duration, in a zone if there is a second argument.
pub(crate) fn part<'a>(part: Part, args: &[Val<'a>]) -> Result<Val<'a>, What> {
    if let Val::Duration(nanos) = args[0] {
        return part
            .of_duration(nanos)
            .map(Val::Int)
            .ok_or(What::Needs("a timestamp", args[0].kind()));
    }
    let Some(nanos) = args[0].time() else {
        return Err(What::Needs("a timestamp", args[0].kind()));
    };
    let zone = args.get(1).map(text_of).transpose()?;
    part.of_time(nanos, zone)
        .map(Val::Int)
        .ok_or(What::Unreadable("a time zone"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_closest_name_is_the_one_that_was_meant() {
        let cases = [
            ("contain", Some("contains")),
            ("startswith", Some("startsWith")),
            ("starts_with", Some("startsWith")),
            ("len", Some("size")),
            ("to_lower", Some("lowerAscii")),
            ("match", Some("matches")),
            ("getHour", Some("getHours")),
            ("frobnicate", None),
        ];
        for (name, meant) in cases {
            assert_eq!(closest(name), meant, "{name}");
        }
    }

    #[test]
    fn names_are_unique_and_signatures_begin_with_them() {
        for (index, function) in FUNCTIONS.iter().enumerate() {
            assert!(
                FUNCTIONS[..index]
                    .iter()
                    .all(|other| other.name != function.name),
                "{}",
                function.name
            );
            assert!(
                function.signature.contains(&format!("{}(", function.name)),
                "{}",
                function.name
            );
            assert!(
                function.example.contains(&format!("{}(", function.name)),
                "{}",
                function.name
            );
            assert!(
                function.arguments.0 <= function.arguments.1,
                "{}",
                function.name
            );
        }
    }
}
