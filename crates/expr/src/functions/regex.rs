//! Regular expressions. They are literals and compiled when the expression is checked: one that came from an event would have to
//! be compiled for every event, and could be anything.
//!
//! What they find becomes text, so they match whole characters only; their groups' places lie on the stack.

use std::ops::Range;

use regex_automata::Input;
use regex_automata::meta::{BuildError, Regex};
use regex_automata::util::primitives::NonMaxUsize;

use super::Takes::{Text, Whole};
use super::run::{Refused, Run};
use super::text::piece;
use super::{FunctionDoc, Kind, text_of, whole_of};
use crate::fault::What;
use crate::value::Val;

pub(super) const FUNCTIONS: &[FunctionDoc] = &[
    FunctionDoc::new(
        "matches",
        &[Text, Text],
        Kind::Matches,
        [
            "text.matches(regex) -> bool",
            "Whether the regular expression, a literal, matches somewhere in the text; in time linear in the text.",
            r#"message.matches(r"^(GET|POST) /\S+ 5\d\d$")"#,
        ],
    )
    .of_nothing(),
    FunctionDoc::new(
        "regex.extract",
        &[Text, Text],
        Kind::Prepared(extract),
        [
            "regex.extract(text, regex) -> string",
            "The first match of a regular expression, a literal: its one group if it has a group, else all of it. Absent where nothing matches. More than one group is refused: `(?:…)` groups without capturing.",
            r#"regex.extract(message, r"(\d+)$") == '502' && (regex.extract(message, 'no match') ?? 'none') == 'none'"#,
        ],
    ),
    FunctionDoc::new(
        "regex.extractAll",
        &[Text, Text],
        Kind::Prepared(extract_all),
        [
            "regex.extractAll(text, regex) -> list",
            "All matches of a regular expression, as `regex.extract` gives one; an empty list where nothing matches.",
            r#"regex.extractAll('a=1 b=22', r"=(\d+)") == ['1', '22']"#,
        ],
    ),
    FunctionDoc::new(
        "regex.replace",
        &[Text, Text, Text, Whole],
        Kind::Prepared(replace),
        [
            "regex.replace(text, regex, by[, times]) -> string",
            r"The text with the matches of a regular expression, a literal, replaced, everywhere or the first so many times (a negative number: everywhere). In `by`, `\1` to `\9` stand for what a group matched, `\0` for the match, `\\` for a backslash and `\$` for a dollar sign; write it as `r'…'`.",
            r#"regex.replace(message, r"\d{3}", "XXX") == 'GET /index.html XXX' && regex.replace('b=1', r"(\w)=(\w)", r"\2=\1") == '1=b'"#,
        ],
    )
    .optional(1),
];

/// Compiles a regular expression that is asked only whether it matches.
pub(crate) fn compile(pattern: &[u8]) -> Result<regex::bytes::Regex, String> {
    let regex = regex::bytes::Regex::new(&String::from_utf8_lossy(pattern));
    regex.map_err(|error| regex_message(&error.to_string()))
}

/// The one line of a regex error that says what is wrong.
fn regex_message(text: &str) -> String {
    let reason = text
        .lines()
        .rev()
        .find_map(|line| line.trim().strip_prefix("error: "));
    format!(
        "broken regular expression: {}",
        reason.unwrap_or(text.trim())
    )
}

fn build_message(error: &BuildError) -> String {
    match (error.syntax_error(), error.size_limit()) {
        (Some(error), _) => regex_message(&error.to_string()),
        (None, Some(_)) => regex_message("it is too large when compiled"),
        (None, None) => regex_message(&error.to_string()),
    }
}

/// Where in a text there is what can hardly be meant literally: `\d` or `\.`, a class such as `[0-9]`, `.*`, words with `|` between
/// them, `^` in front, `$` at the end, `+` or `*` behind a letter or a blank at the end. Never the very start of the text.
pub(super) fn regex_in(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let at = |index: usize| bytes.get(index).copied();
    let is_word = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric());
    let found = (0..bytes.len()).find(|&index| match bytes[index] {
        b'\\' => is_regex_escape(&bytes[index..]) && !text.contains(".."),
        b'[' => {
            is_word(at(index + 1)) && at(index + 2) == Some(b'-') && is_word(at(index + 3))
                || at(index + 1) == Some(b'^') && text[index..].contains(']')
        }
        b'.' => matches!(at(index + 1), Some(b'*' | b'+')),
        b']' | b')' => matches!(at(index + 1), Some(b'+' | b'*')),
        b'(' => {
            at(index + 1) == Some(b'?')
                && matches!(at(index + 2), Some(b':' | b'i' | b'=' | b'!' | b'<' | b'P'))
        }
        b'|' => {
            let is_between_words =
                is_word(index.checked_sub(1).and_then(at)) && is_word(at(index + 1));
            is_between_words && !text.starts_with('|') && !text.ends_with('|')
        }
        b'^' => index == 0 && bytes.len() > 1,
        b'$' if index == 0 => bytes.len() == 2 && bytes[1].is_ascii_digit(),
        b'$' => index + 1 == bytes.len(),
        b'+' | b'*' if index > 0 && index + 1 == bytes.len() => {
            let before = at(index - 1);
            is_word(before) || matches!(before, Some(b' ' | b','))
        }
        b'*' => index == 0 && at(1) == Some(b'.') && is_word(at(2)),
        _ => false,
    })?;
    // Split there, neither part reads as one.
    Some(if found == 0 { 1 } else { found })
}

/// Whether a backslash begins `\d` or the like, or stands before what is a sign of regular expressions.
fn is_regex_escape(bytes: &[u8]) -> bool {
    let next = bytes.get(2).copied().unwrap_or(b' ');
    match bytes.get(1) {
        // A letter behind it rather is a Windows path such as `C:\data`.
        Some(b'd' | b'D' | b'w' | b'W' | b's' | b'S' | b'b') => {
            !next.is_ascii_alphanumeric() && next != b'\\'
        }
        Some(b'.' | b'|' | b'[' | b']' | b'(' | b')' | b'+' | b'*' | b'?' | b'^' | b'{') => true,
        _ => false,
    }
}

/// Whether a text that is put in stands for a group: `\1`, or `$1` and no price.
pub(super) fn looks_like_a_group(text: &str) -> bool {
    let is_group = |pair: &[u8]| pair[0] == b'\\' && pair[1].is_ascii_digit();
    let is_dollar =
        text.len() == 2 && text.starts_with('$') && text.ends_with(|c: char| c.is_ascii_digit());
    is_dollar || text.starts_with("${") || text.as_bytes().windows(2).any(is_group)
}

fn compiled(args: &[Option<&Val<'static>>], name: &str) -> Result<Regex, Refused> {
    let Some(Some(Val::Text(pattern))) = args.get(1) else {
        let message = format!("the regular expression of `{name}` must be a text literal");
        return Err(Refused::new(1, message));
    };
    Regex::new(&String::from_utf8_lossy(pattern))
        .map_err(|error| Refused::new(1, build_message(&error)))
}

/// The match and the groups `\1` to `\9`: where they begin and end.
const PLACES: usize = 20;

/// The places of the match and its groups, of the first match that begins at `start` or behind it.
fn search(regex: &Regex, text: &str, start: usize) -> Option<[Option<NonMaxUsize>; PLACES]> {
    let mut places = [None; PLACES];
    regex.search_slots(&Input::new(text).range(start..), &mut places)?;
    Some(places)
}

/// The range of a group that matched.
fn range(places: &[Option<NonMaxUsize>; PLACES], group: usize) -> Option<Range<usize>> {
    match (places.get(2 * group)?, places.get(2 * group + 1)?) {
        (Some(start), Some(end)) => Some(start.get()..end.get()),
        _ => None,
    }
}

/// A regular expression with a group at most, and the number of what it extracts.
fn extracting(args: &[Option<&Val<'static>>], name: &str) -> Result<(Regex, usize), Refused> {
    let regex = compiled(args, name)?;
    let groups = regex.captures_len() - 1;
    if groups > 1 {
        let message = format!(
            "`{name}` takes a regular expression with one group at most, this has {groups}; `(?:…)` groups without capturing"
        );
        return Err(Refused::new(1, message));
    }
    Ok((regex, groups))
}

fn extract(args: &[Option<&Val<'static>>]) -> Result<Run, Refused> {
    let (regex, group) = extracting(args, "regex.extract")?;
    Ok(Run::call(move |args| {
        let found = search(&regex, text_of(&args[0])?, 0);
        let found = found.and_then(|places| range(&places, group));
        Ok(found.map_or(Val::Absent, |at| piece(&args[0], at.start, at.end)))
    }))
}

fn extract_all(args: &[Option<&Val<'static>>]) -> Result<Run, Refused> {
    let (regex, group) = extracting(args, "regex.extractAll")?;
    Ok(Run::call(move |args| {
        let text = text_of(&args[0])?;
        let found = regex.find_iter(text).filter_map(|found| {
            let at = match group {
                0 => found.range(),
                _ => range(&search(&regex, text, found.start())?, group)?,
            };
            Some(piece(&args[0], at.start, at.end))
        });
        Ok(Val::list(found.collect()))
    }))
}

fn replace(args: &[Option<&Val<'static>>]) -> Result<Run, Refused> {
    let regex = compiled(args, "regex.replace")?;
    if let Some(Some(Val::Text(by))) = args.get(2) {
        let by = Replacement::parse(by, regex.captures_len())
            .map_err(|what| Refused::new(2, what.to_string()))?;
        return Ok(Run::write(move |args, out| {
            replace_all(&regex, &args[0], &by, args.get(3), out)
        }));
    }
    Ok(Run::write(move |args, out| {
        let by = Replacement::parse(text_of(&args[2])?.as_bytes(), regex.captures_len())?;
        replace_all(&regex, &args[0], &by, args.get(3), out)
    }))
}

/// What stands for a match: texts, and groups between them.
struct Replacement {
    /// A text and the group behind it.
    pieces: Vec<(Box<[u8]>, usize)>,
    last: Box<[u8]>,
}

impl Replacement {
    /// Reads a replacement for a regular expression with so many groups, the whole match included.
    fn parse(text: &[u8], groups: usize) -> Result<Self, What> {
        let mut pieces = Vec::new();
        let mut literal = Vec::new();
        let mut rest = text.iter();
        while let Some(&byte) = rest.next() {
            let after = rest.as_slice().first();
            match (byte, after) {
                (b'\\', Some(digit @ b'0'..=b'9')) => {
                    let group = usize::from(digit - b'0');
                    if group >= groups {
                        return Err(What::Other("the regular expression has no such group"));
                    }
                    pieces.push((std::mem::take(&mut literal).into(), group));
                    rest.next();
                }
                (b'\\', Some(&escaped @ (b'\\' | b'$'))) => {
                    literal.push(escaped);
                    rest.next();
                }
                (b'\\', _) => {
                    let message = r"in a replacement `\` stands before a group's digit, `\` or `$`";
                    return Err(What::Other(message));
                }
                (b'$', Some(b'0'..=b'9' | b'{')) => {
                    let message = r"a group is written `\1`, not `$1`; a dollar sign before a digit or brace is `\$`";
                    return Err(What::Other(message));
                }
                _ => literal.push(byte),
            }
        }
        let last = literal.into();
        Ok(Self { pieces, last })
    }
}

fn replace_all(
    regex: &Regex,
    text: &Val<'_>,
    by: &Replacement,
    times: Option<&Val<'_>>,
    out: &mut Vec<u8>,
) -> Result<(), What> {
    let text = text_of(text)?;
    let bytes = text.as_bytes();
    let times = times.map(whole_of).transpose()?.unwrap_or(-1);
    let times = usize::try_from(times).unwrap_or(usize::MAX);
    let mut end = 0;
    for found in regex.find_iter(text).take(times) {
        out.extend_from_slice(&bytes[end..found.start()]);
        if !by.pieces.is_empty() {
            let places = search(regex, text, found.start()).unwrap_or([None; PLACES]);
            for (literal, group) in &by.pieces {
                out.extend_from_slice(literal);
                let at = range(&places, *group).unwrap_or(0..0);
                out.extend_from_slice(&bytes[at]);
            }
        }
        out.extend_from_slice(&by.last);
        end = found.end();
    }
    out.extend_from_slice(&bytes[end..]);
    Ok(())
}
