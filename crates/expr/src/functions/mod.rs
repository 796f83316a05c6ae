//! The functions of the language: tables that the checker, the evaluator and the reference pages read.
//!
//! Every function without a namespace may be written in front of its arguments or behind the first one: `size(tags)` and
//! `tags.size()` are the same. A function of an absent or null first argument gives that back, unless its table entry says
//! otherwise ([`FunctionDoc::of_nothing`]); a question about such a text (`contains`, `startsWith`, `endsWith`, `matches`) is
//! answered with false.
//!
//! Names and meanings are those of the CEL specification and of cel-go's extensions where those have the function. Where
//! cel-go gives an optional the result is absent instead, and what are bytes there is text here.
//!
//! What does not depend on the event is done once: regexes, networks, formats and zones that are constants are read by
//! [`Kind::Prepared`] when the expression is checked. Functions that write text ([`Kind::Write`]) write it straight into
//! the column of results where they are the outermost part of an expression.

mod bind;
mod bytes;
mod convert;
mod event;
mod hash;
mod list;
mod math;
mod net;
mod regex;
mod run;
mod structured;
mod text;
mod text_format;
mod time;

use crate::fault::What;
use crate::time::TimePart;
use crate::types::Known;
use crate::value::Val;

pub(crate) use bind::{Bound, bind, bind_format};
pub(crate) use convert::read_bytes;
pub use net::read_network;
pub(crate) use regex::compile;
use regex::{looks_like_a_group, regex_in};
pub(crate) use run::Refused;

/// Functions that belong together.
#[derive(Clone, Copy, Debug)]
pub struct FunctionGroup {
    /// The heading in the reference.
    pub title: &'static str,
    /// The functions, in the order of the reference.
    pub functions: &'static [FunctionDoc],
}

/// All functions, in the order of the reference.
pub const FUNCTION_GROUPS: &[FunctionGroup] = &[
    group("Fields and events", event::FUNCTIONS),
    group("Text", text::FUNCTIONS),
    group("Regular expressions", regex::FUNCTIONS),
    group("Numbers", math::FUNCTIONS),
    group("Conversions", convert::FUNCTIONS),
    group("Lists and maps", list::FUNCTIONS),
    group("Time", time::FUNCTIONS),
    group("Structured text", structured::FUNCTIONS),
    group("Encodings and URLs", bytes::FUNCTIONS),
    group("Hashes", hash::FUNCTIONS),
    group("Addresses", net::FUNCTIONS),
];

const fn group(title: &'static str, functions: &'static [FunctionDoc]) -> FunctionGroup {
    FunctionGroup { title, functions }
}

/// All functions, in the order of the reference.
pub fn functions() -> impl Iterator<Item = &'static FunctionDoc> {
    FUNCTION_GROUPS.iter().flat_map(|group| group.functions)
}

/// What the reference says of a function.
#[derive(Clone, Copy, Debug)]
pub struct FunctionDoc {
    /// The name, with its namespace.
    pub name: &'static str,
    /// How it is called and what comes out; what stands in square brackets may be left out.
    pub signature: &'static str,
    /// What it does, in a sentence or two.
    pub summary: &'static str,
    /// An expression that is true for [`EXAMPLE_DOCUMENT`].
    pub example: &'static str,
    pub(crate) kind: Kind,
    /// What the arguments may be, the one before the dot included.
    takes: &'static [Takes],
    /// How many of them may be left out at the end.
    optional: usize,
    /// Whether the last one may be repeated.
    repeats: bool,
    /// Whether it is computed of an absent or null first argument as well.
    of_nothing: bool,
}

impl FunctionDoc {
    const fn new(
        name: &'static str,
        takes: &'static [Takes],
        kind: Kind,
        [signature, summary, example]: [&'static str; 3],
    ) -> Self {
        Self {
            name,
            signature,
            summary,
            example,
            kind,
            takes,
            optional: 0,
            repeats: false,
            of_nothing: false,
        }
    }

    /// The last so many arguments may be left out.
    const fn optional(mut self, count: usize) -> Self {
        self.optional = count;
        self
    }

    /// The last argument may be repeated.
    const fn repeats(mut self) -> Self {
        self.repeats = true;
        self
    }

    /// It is computed of an absent or null first argument as well.
    const fn of_nothing(mut self) -> Self {
        self.of_nothing = true;
        self
    }

    /// Whether it may be called with so many arguments.
    pub(crate) fn accepts_count(&self, count: usize) -> bool {
        count >= self.takes.len() - self.optional && (self.repeats || count <= self.takes.len())
    }

    /// Whether a constant may be the argument with this number.
    pub(crate) fn check(&self, argument: usize, constant: &Val<'_>) -> Result<(), String> {
        if (argument == 0 || self.repeats) && constant.is_nothing() {
            return Ok(());
        }
        self.takes(argument).map_or(Ok(()), |takes| {
            takes.check(constant).map_err(|what| what.to_string())
        })
    }

    fn takes(&self, argument: usize) -> Option<Takes> {
        self.takes.get(argument).or(self.takes.last()).copied()
    }

    /// Whether a value of this type may be the argument with this number.
    pub(crate) fn check_type(&self, argument: usize, kind: Known) -> Result<(), String> {
        let Some(takes) = self.takes(argument).filter(|takes| !takes.accepts(kind)) else {
            return Ok(());
        };
        let hint = match (takes, kind) {
            (Takes::Number | Takes::Whole | Takes::Within(..), Known::Text) => {
                "; `int(…)` or `double(…)` makes a number of a text"
            }
            (Takes::Text | Takes::Plain(_) | Takes::Among(..), _) => {
                "; `string(…)` makes a text of any value"
            }
            _ => "",
        };
        let (name, needs, is) = (self.name, takes.name(), kind.name());
        Err(format!("`{name}` needs {needs}, and this is {is}{hint}"))
    }

    /// Refuses a literal that can hardly be meant as plain text where the function takes that.
    pub(crate) fn check_plain(&self, argument: usize, text: &str) -> Result<(), String> {
        let name = self.name;
        match self.takes(argument) {
            Some(Takes::Plain(other)) => match regex_in(text) {
                Some(at) => Err(format!(
                    "`{name}` takes plain text, and this reads as a regular expression, which `{other}` takes; a text that is meant as \
                     it stands is written in two parts: {:?} + {:?}",
                    &text[..at],
                    &text[at..]
                )),
                None => Ok(()),
            },
            Some(Takes::Replacement) if looks_like_a_group(text) => Err(format!(
                "`{name}` puts this in as it stands; groups of a regular expression are for `regex.replace`, as in \
                 regex.replace(text, r\"(\\w+)=\", r\"\\1:\")"
            )),
            _ => Ok(()),
        }
    }
}

/// What an argument may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Takes {
    Any,
    Text,
    /// A text that stands for itself; and the function that takes a regular expression instead.
    Plain(&'static str),
    /// The plain text that stands for what was found.
    Replacement,
    /// One of a few texts; and what to say otherwise.
    Among(&'static [&'static str], &'static str),
    /// A text that is not empty.
    Separator,
    Whole,
    /// A whole number within bounds; and what to say otherwise.
    Within(i64, i64, &'static str),
    Number,
    List,
    Map,
    /// A timestamp, or a text that reads as one.
    Time,
}

/// A position in a text or a list.
const INDEX: Takes = Takes::Within(0, i64::MAX, BELOW_ZERO);
const BELOW_ZERO: &str = "positions are counted from 0, so that none is below it";

impl Takes {
    /// Whether values of this type may do.
    fn accepts(self, kind: Known) -> bool {
        match self {
            Self::Any => true,
            Self::Text | Self::Plain(_) | Self::Replacement | Self::Among(..) | Self::Separator => {
                kind == Known::Text
            }
            Self::Whole | Self::Within(..) | Self::Number => kind == Known::Number,
            Self::List => kind == Known::List,
            Self::Map => kind == Known::Map,
            Self::Time => matches!(kind, Known::Time | Known::Text),
        }
    }

    /// What it takes, with its article.
    fn name(self) -> &'static str {
        match self {
            Self::Any => "a value",
            Self::Text | Self::Plain(_) | Self::Replacement | Self::Among(..) | Self::Separator => {
                "a text"
            }
            Self::Whole | Self::Within(..) => "a whole number",
            Self::Number => "a number",
            Self::List => "a list",
            Self::Map => "a map",
            Self::Time => "a timestamp",
        }
    }

    fn check(self, value: &Val<'_>) -> Result<(), What> {
        match self {
            Self::Any => Ok(()),
            Self::Text | Self::Plain(_) | Self::Replacement => text_of(value).map(drop),
            Self::Among(texts, message) => match texts.contains(&text_of(value)?) {
                true => Ok(()),
                false => Err(What::Other(message)),
            },
            Self::Separator => match text_of(value)?.is_empty() {
                true => Err(What::Other("a separator is not empty")),
                false => Ok(()),
            },
            Self::Within(least, most, message) => {
                match (least..=most).contains(&whole_of(value)?) {
                    true => Ok(()),
                    false => Err(What::Other(message)),
                }
            }
            Self::Whole => whole_of(value).map(drop),
            Self::Number => number_of(value).map(drop),
            Self::List => list_of(value).map(drop),
            Self::Map => match value.members() {
                Some(_) => Ok(()),
                None => Err(What::Needs("a map", value.kind())),
            },
            Self::Time => time_of(value).map(drop),
        }
    }
}

/// The event that the functions' examples are about.
pub const EXAMPLE_DOCUMENT: &str = concat!(
    r#"{"@timestamp":"2024-02-29T12:34:56.789Z","message":"GET /index.html 502","method":"get","status":"502","#,
    r#""bytes":2048,"took":1.5,"tags":["web","slow"],"http":{"user-agent":"curl/8.5.0"},"note":null,"#,
    r#""client":{"ip":"10.1.2.3"},"url":"https://example.com:8443/a%20b?q=1"}"#,
);

/// A function of values.
pub(crate) type Call = for<'a> fn(&[Val<'a>]) -> Result<Val<'a>, What>;

/// A function that appends a text.
pub(crate) type Write = for<'a> fn(&[Val<'a>], &mut Vec<u8>) -> Result<(), What>;

/// How a function is evaluated.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    Has,
    Now,
    Type,
    Matches,
    /// The first of its arguments that is neither absent nor null.
    Coalesce,
    /// The first of its arguments that can be computed and is neither absent nor null.
    Try,
    /// The value of a field that every event has.
    Metadata(&'static [&'static str]),
    /// A text made of such a field.
    WriteMetadata(&'static [&'static str], Write),
    Question(Question),
    Call(Call),
    Write(Write),
    Prepared(run::Prepare),
    /// A text with the elements of a list in it.
    Format,
    Part(TimePart),
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
    ExistsOne,
    All,
    Filter,
    Map,
}

/// The function of that name.
pub(crate) fn find(name: &str) -> Option<&'static FunctionDoc> {
    functions().find(|function| function.name == name)
}

/// Whether some function's name begins with this word and a dot.
pub(crate) fn is_namespace(word: &str) -> bool {
    functions().any(|function| {
        function
            .name
            .split_once('.')
            .is_some_and(|(space, _)| space == word)
    })
}

/// Names that other languages have for functions.
const HABITS: [(&str, &str); 69] = [
    ("parseint", "int"),
    ("parsefloat", "double"),
    ("parsenumber", "double"),
    ("tonumber", "double"),
    ("tofloat", "double"),
    ("todouble", "double"),
    ("toboolean", "bool"),
    ("tobool", "bool"),
    ("todate", "timestamp"),
    ("totimestamp", "timestamp"),
    ("parsetime", "timestamp"),
    ("isnull", "has"),
    ("isnotnull", "has"),
    ("isset", "has"),
    ("isdefined", "has"),
    ("defined", "has"),
    ("isempty", "size"),
    ("ispresent", "has"),
    ("orelse", "try"),
    ("catch", "try"),
    ("default", "coalesce"),
    ("isip", "ip.isValid"),
    ("isipv4", "ip.isValid"),
    ("isvalidip", "ip.isValid"),
    ("concat", "format"),
    ("concatenate", "format"),
    ("datediff", "duration"),
    ("parseduration", "parseDuration"),
    ("trunc", "math.trunc"),
    ("tolower", "lower"),
    ("lowercase", "lower"),
    ("downcase", "lower"),
    ("toupper", "upper"),
    ("uppercase", "upper"),
    ("upcase", "upper"),
    ("len", "size"),
    ("length", "size"),
    ("count", "size"),
    ("includes", "contains"),
    ("regex", "matches"),
    ("match", "matches"),
    ("gsub", "regex.replace"),
    ("extract", "regex.extract"),
    ("extractall", "regex.extractAll"),
    ("any", "exists"),
    ("existsone", "exists_one"),
    ("str", "string"),
    ("tostring", "string"),
    ("toint", "int"),
    ("substr", "substring"),
    ("strip", "trim"),
    ("strlen", "size"),
    ("ifnull", "coalesce"),
    ("round", "math.round"),
    ("floor", "math.floor"),
    ("ceil", "math.ceil"),
    ("abs", "math.abs"),
    ("min", "math.least"),
    ("max", "math.greatest"),
    ("incidr", "ip.inCidr"),
    ("cidrmatch", "ip.inCidr"),
    ("isprivate", "ip.isPrivate"),
    ("unique", "distinct"),
    ("strftime", "formatTime"),
    ("hostname", "host"),
    ("getenv", "env"),
    ("parseurl", "url.parse"),
    ("fromjson", "parseJson"),
    ("sprintf", "format"),
];

/// The function that somebody who wrote `name` may have meant.
pub(crate) fn closest(name: &str) -> Option<&'static str> {
    let lower = name.to_ascii_lowercase().replace('_', "");
    if let Some((_, meant)) = HABITS.iter().find(|(habit, _)| *habit == lower) {
        return Some(meant);
    }
    let distance = |known: &str| strsim::damerau_levenshtein(&lower, &known.to_ascii_lowercase());
    let (distance, best) = functions()
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

/// The number of an argument.
fn number_of<'v>(value: &'v Val<'_>) -> Result<crate::number::Num<'v>, What> {
    value.number().ok_or(What::Needs("a number", value.kind()))
}

/// The elements of an argument that is a list.
fn list_of<'a>(value: &Val<'a>) -> Result<Vec<Val<'a>>, What> {
    value.elements().ok_or(What::Needs("a list", value.kind()))
}

/// What is said of a time that does not fit into nanoseconds since 1970.
const BEYOND: What = What::Other("the time is out of range, which is 1677-09-21 to 2262-04-11");

/// The point in time of an argument, in nanoseconds since 1970.
fn time_of(value: &Val<'_>) -> Result<i64, What> {
    match value {
        Val::Text(text) => value.time().ok_or(match crate::time::is_beyond(text) {
            true => BEYOND,
            false => What::Unreadable("an RFC 3339 timestamp"),
        }),
        _ => value.time().ok_or(What::Needs("a timestamp", value.kind())),
    }
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
            ("to_lower", Some("lower")),
            ("match", Some("matches")),
            ("getHour", Some("getHours")),
            ("base64.encod", Some("base64.encode")),
            ("parse_json", Some("parseJson")),
            ("frobnicate", None),
        ];
        for (name, meant) in cases {
            assert_eq!(closest(name), meant, "{name}");
        }
        for (_, meant) in HABITS {
            assert!(find(meant).is_some(), "{meant} is a function");
        }
    }

    #[test]
    fn names_are_unique_and_signatures_begin_with_them() {
        let all: Vec<&FunctionDoc> = functions().collect();
        for (index, function) in all.iter().enumerate() {
            let name = function.name;
            assert!(
                all[..index].iter().all(|other| other.name != name),
                "{name}"
            );
            let call = format!("{name}(");
            assert!(function.signature.contains(&call), "{name}");
            assert!(function.example.contains(&call), "{name}");
            assert!(function.optional <= function.takes.len(), "{name}");
        }
    }
}
