//! The table itself, in the order of the reference.

use super::{FunctionDoc, Kind, Macro, Question, convert, text};
use crate::time::Part;

const fn doc(
    name: &'static str,
    arguments: (usize, usize),
    kind: Kind,
    [signature, summary, example]: [&'static str; 3],
) -> FunctionDoc {
    FunctionDoc {
        name,
        signature,
        summary,
        example,
        arguments,
        kind,
    }
}

/// All functions, in the order of the reference.
pub const FUNCTIONS: &[FunctionDoc] = &[
    doc(
        "has",
        (1, 1),
        Kind::Has,
        [
            "has(field) -> bool",
            "Whether the event has the field; one that is null is there.",
            "has(note) && has(http['user-agent']) && !has(user.name)",
        ],
    ),
    doc(
        "type",
        (1, 1),
        Kind::Type,
        [
            "type(value) -> string",
            "The type: `absent`, `null`, `bool`, `int`, `double`, `string`, `timestamp`, `duration`, `list` or `map`.",
            "type(bytes) == 'int' && type(user) == 'absent'",
        ],
    ),
    doc(
        "contains",
        (2, 2),
        Kind::Question(Question::Contains),
        [
            "text.contains(part) -> bool",
            "Whether the text holds the part, byte for byte.",
            "message.contains('index')",
        ],
    ),
    doc(
        "startsWith",
        (2, 2),
        Kind::Question(Question::StartsWith),
        [
            "text.startsWith(part) -> bool",
            "Whether the text begins with the part.",
            "message.startsWith('GET ')",
        ],
    ),
    doc(
        "endsWith",
        (2, 2),
        Kind::Question(Question::EndsWith),
        [
            "text.endsWith(part) -> bool",
            "Whether the text ends with the part.",
            "message.endsWith(' 502')",
        ],
    ),
    doc(
        "matches",
        (2, 2),
        Kind::Matches,
        [
            "text.matches(regex) -> bool",
            "Whether the regular expression, a literal, matches somewhere in the text; in time linear in the text.",
            r#"message.matches(r"^(GET|POST) /\S+ 5\d\d$")"#,
        ],
    ),
    doc(
        "size",
        (1, 1),
        Kind::Call(text::size),
        [
            "size(value) -> int",
            "How many characters a text has, elements a list, members a map.",
            "size(tags) == 2 && size(method) == 3",
        ],
    ),
    doc(
        "lowerAscii",
        (1, 1),
        Kind::Call(text::lower),
        [
            "text.lowerAscii() -> string",
            "The text with its letters A to Z in lower case.",
            "'GET'.lowerAscii() == method",
        ],
    ),
    doc(
        "upperAscii",
        (1, 1),
        Kind::Call(text::upper),
        [
            "text.upperAscii() -> string",
            "The text with its letters a to z in upper case.",
            "method.upperAscii() == 'GET'",
        ],
    ),
    doc(
        "trim",
        (1, 1),
        Kind::Call(text::trim),
        [
            "text.trim() -> string",
            "The text without whitespace at its ends.",
            "'  get\\n'.trim() == method",
        ],
    ),
    doc(
        "replace",
        (3, 4),
        Kind::Call(text::replace),
        [
            "text.replace(part, by[, times]) -> string",
            "The text with the part replaced, everywhere or the first so many times.",
            "message.replace('/', '_') == 'GET _index.html 502'",
        ],
    ),
    doc(
        "split",
        (2, 3),
        Kind::Call(text::split),
        [
            "text.split(separator[, pieces]) -> list",
            "The pieces of the text between the separators, at most so many; an empty separator splits into characters.",
            "message.split(' ')[2] == status",
        ],
    ),
    doc(
        "join",
        (1, 2),
        Kind::Call(text::join),
        [
            "list.join([separator]) -> string",
            "The elements of a list as one text.",
            "tags.join(', ') == 'web, slow'",
        ],
    ),
    doc(
        "substring",
        (2, 3),
        Kind::Call(text::substring),
        [
            "text.substring(start[, end]) -> string",
            "The characters from `start` up to but without `end`, counted from 0; what lies beyond the text is left out.",
            "message.substring(0, 3).lowerAscii() == method",
        ],
    ),
    doc(
        "int",
        (1, 1),
        Kind::Call(convert::int),
        [
            "int(value) -> int",
            "A whole number from a text or a number, cut towards zero; from a timestamp its seconds since 1970.",
            "int(status) + 1 == 503 && int(took) == 1",
        ],
    ),
    doc(
        "double",
        (1, 1),
        Kind::Call(convert::double),
        [
            "double(value) -> double",
            "A floating-point number from a text or a number.",
            "double(status) / 4 == 125.5",
        ],
    ),
    doc(
        "float",
        (1, 1),
        Kind::Call(convert::double),
        [
            "float(value) -> double",
            "The same as `double`.",
            "float('1.50') == took",
        ],
    ),
    doc(
        "string",
        (1, 1),
        Kind::Call(convert::string),
        [
            "string(value) -> string",
            "The value as text: a timestamp in RFC 3339, a duration in seconds, a list or map in JSON.",
            "string(bytes) + ' bytes' == '2048 bytes'",
        ],
    ),
    doc(
        "bool",
        (1, 1),
        Kind::Call(convert::bool),
        [
            "bool(value) -> bool",
            "A truth value from the texts `true` and `false` (also `True`, `TRUE`, `t`, `1` and so on).",
            "bool('true') && !bool('0')",
        ],
    ),
    doc(
        "exists",
        (3, 3),
        Kind::Macro(Macro::Exists),
        [
            "list.exists(x, condition) -> bool",
            "Whether the condition is true for some element `x` of the list, or some key of the map.",
            "tags.exists(tag, tag.startsWith('sl'))",
        ],
    ),
    doc(
        "all",
        (3, 3),
        Kind::Macro(Macro::All),
        [
            "list.all(x, condition) -> bool",
            "Whether the condition is true for every element `x` of the list, or every key of the map.",
            "tags.all(tag, size(tag) < 5)",
        ],
    ),
    doc(
        "filter",
        (3, 3),
        Kind::Macro(Macro::Filter),
        [
            "list.filter(x, condition) -> list",
            "The elements `x` for which the condition is true.",
            "tags.filter(tag, tag != 'web') == ['slow']",
        ],
    ),
    doc(
        "map",
        (3, 3),
        Kind::Macro(Macro::Map),
        [
            "list.map(x, value) -> list",
            "The value for every element `x`.",
            "tags.map(tag, tag.upperAscii()) == ['WEB', 'SLOW']",
        ],
    ),
    doc(
        "now",
        (0, 0),
        Kind::Now,
        [
            "now() -> timestamp",
            "When the batch that the event came in was received: the same in every pass over it.",
            "now() > @timestamp",
        ],
    ),
    doc(
        "timestamp",
        (1, 1),
        Kind::Call(convert::timestamp),
        [
            "timestamp(value) -> timestamp",
            "A point in time from an RFC 3339 text, or from a whole number of seconds since 1970.",
            "timestamp(@timestamp) - timestamp('2024-02-29T12:00:00Z') > duration('30m')",
        ],
    ),
    doc(
        "duration",
        (1, 1),
        Kind::Call(convert::duration),
        [
            "duration(text) -> duration",
            "A span of time; units are `ns`, `us`, `ms`, `s`, `m`, `h` and `d` (24 hours).",
            "duration('1h30m') == duration('90m')",
        ],
    ),
    doc(
        "getFullYear",
        (1, 2),
        Kind::Part(Part::FullYear),
        [
            "time.getFullYear([zone]) -> int",
            "The year of a timestamp, in UTC or a time zone such as `Europe/Berlin` or `+02:00`.",
            "@timestamp.getFullYear() == 2024",
        ],
    ),
    doc(
        "getMonth",
        (1, 2),
        Kind::Part(Part::Month),
        [
            "time.getMonth([zone]) -> int",
            "The month of a timestamp, January being 0.",
            "@timestamp.getMonth() == 1",
        ],
    ),
    doc(
        "getDate",
        (1, 2),
        Kind::Part(Part::Date),
        [
            "time.getDate([zone]) -> int",
            "The day of the month, the first being 1.",
            "@timestamp.getDate() == 29",
        ],
    ),
    doc(
        "getDayOfMonth",
        (1, 2),
        Kind::Part(Part::DayOfMonth),
        [
            "time.getDayOfMonth([zone]) -> int",
            "The day of the month, the first being 0.",
            "@timestamp.getDayOfMonth() == 28",
        ],
    ),
    doc(
        "getDayOfWeek",
        (1, 2),
        Kind::Part(Part::DayOfWeek),
        [
            "time.getDayOfWeek([zone]) -> int",
            "The day of the week, Sunday being 0.",
            "@timestamp.getDayOfWeek() == 4",
        ],
    ),
    doc(
        "getDayOfYear",
        (1, 2),
        Kind::Part(Part::DayOfYear),
        [
            "time.getDayOfYear([zone]) -> int",
            "The day of the year, the first being 0.",
            "@timestamp.getDayOfYear() == 59",
        ],
    ),
    doc(
        "getHours",
        (1, 2),
        Kind::Part(Part::Hours),
        [
            "time.getHours([zone]) -> int",
            "The hour of a timestamp; of a duration all of it in whole hours.",
            "@timestamp.getHours() == 12 && @timestamp.getHours('+02:00') == 14 && duration('90m').getHours() == 1",
        ],
    ),
    doc(
        "getMinutes",
        (1, 2),
        Kind::Part(Part::Minutes),
        [
            "time.getMinutes([zone]) -> int",
            "The minute of a timestamp; of a duration all of it in whole minutes.",
            "@timestamp.getMinutes() == 34 && duration('90m').getMinutes() == 90",
        ],
    ),
    doc(
        "getSeconds",
        (1, 2),
        Kind::Part(Part::Seconds),
        [
            "time.getSeconds([zone]) -> int",
            "The second of a timestamp; of a duration all of it in whole seconds.",
            "@timestamp.getSeconds() == 56 && duration('2m').getSeconds() == 120",
        ],
    ),
    doc(
        "getMilliseconds",
        (1, 2),
        Kind::Part(Part::Milliseconds),
        [
            "time.getMilliseconds([zone]) -> int",
            "The milliseconds of a timestamp or a duration beyond its whole seconds.",
            "@timestamp.getMilliseconds() == 789 && duration('1.5s').getMilliseconds() == 500",
        ],
    ),
];
