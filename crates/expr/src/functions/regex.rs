//! Regular expressions. They are literals and compiled when the expression is checked: one that came from an event would have to
//! be compiled for every event, and could be anything.

use regex::bytes::{CaptureLocations, Regex};

use super::Takes::{Text, Whole};
use super::bind::{Refused, Run};
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
            r#"regex.extract(message, r"(\d+)$") == '502' && !has(url.host) && regex.extract(message, 'no match') ?? 'none' == 'none'"#,
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

/// Compiles a regular expression.
pub(crate) fn compile(pattern: &[u8]) -> Result<Regex, String> {
    Regex::new(&String::from_utf8_lossy(pattern)).map_err(|error| regex_message(&error))
}

/// The one line of a regex error that says what is wrong.
fn regex_message(error: &regex::Error) -> String {
    let text = error.to_string();
    let reason = text
        .lines()
        .rev()
        .find_map(|line| line.trim().strip_prefix("error: "));
    format!(
        "broken regular expression: {}",
        reason.unwrap_or(text.trim())
    )
}

/// Whether a text can hardly be meant literally: it has `\d` or the like, a class such as `[0-9]`, `.*` or `.+`.
pub(super) fn looks_like_a_regex(text: &str) -> bool {
    let bytes = text.as_bytes();
    let is_class = |pair: &[u8]| pair[0] == b'\\' && b"dDwWsS".contains(&pair[1]);
    let escapes = bytes.windows(2).enumerate().any(|(at, pair)| {
        // A letter behind it rather is a Windows path such as `C:\data`.
        let next = bytes.get(at + 2).copied().unwrap_or(b' ');
        is_class(pair) && !next.is_ascii_alphanumeric() && next != b'\\'
    });
    let classes = ["[0-9", "[a-z", "[A-Z", ".*", ".+", "(?:", "(?i)"];
    escapes || classes.iter().any(|class| text.contains(class))
}

fn compiled(args: &[Option<&Val<'static>>], name: &str) -> Result<Regex, Refused> {
    let Some(Some(Val::Text(pattern))) = args.get(1) else {
        let message = format!("the regular expression of `{name}` must be a text literal");
        return Err(Refused::new(1, message));
    };
    compile(pattern).map_err(|message| Refused::new(1, message))
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
    if group == 0 {
        return Ok(Run::call(move |args| {
            let found = regex.find(text_of(&args[0])?.as_bytes());
            Ok(found.map_or(Val::Absent, |found| {
                piece(&args[0], found.start(), found.end())
            }))
        }));
    }
    Ok(Run::call(move |args| {
        let found = regex.captures(text_of(&args[0])?.as_bytes());
        let found = found.and_then(|found| found.get(1).map(|group| group.range()));
        Ok(found.map_or(Val::Absent, |at| piece(&args[0], at.start, at.end)))
    }))
}

fn extract_all(args: &[Option<&Val<'static>>]) -> Result<Run, Refused> {
    let (regex, group) = extracting(args, "regex.extractAll")?;
    Ok(Run::call(move |args| {
        let text = text_of(&args[0])?.as_bytes();
        let mut found = Vec::new();
        if group == 0 {
            found.extend(
                regex
                    .find_iter(text)
                    .map(|found| piece(&args[0], found.start(), found.end())),
            );
        } else {
            let groups = regex.captures_iter(text).filter_map(|found| found.get(1));
            found.extend(groups.map(|group| piece(&args[0], group.start(), group.end())));
        }
        Ok(Val::list(found))
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
    let text = text_of(text)?.as_bytes();
    let times = times.map(whole_of).transpose()?.unwrap_or(-1);
    let times = usize::try_from(times).unwrap_or(usize::MAX);
    let mut end = 0;
    if by.pieces.is_empty() {
        for found in regex.find_iter(text).take(times) {
            out.extend_from_slice(&text[end..found.start()]);
            out.extend_from_slice(&by.last);
            end = found.end();
        }
        out.extend_from_slice(&text[end..]);
        return Ok(());
    }
    // The groups' places are made where there is something to replace.
    let mut groups: Option<CaptureLocations> = None;
    for found in regex.find_iter(text).take(times) {
        let groups = groups.get_or_insert_with(|| regex.capture_locations());
        regex.captures_read_at(groups, text, found.start());
        out.extend_from_slice(&text[end..found.start()]);
        for (literal, group) in &by.pieces {
            out.extend_from_slice(literal);
            if let Some((start, end)) = groups.get(*group) {
                out.extend_from_slice(&text[start..end]);
            }
        }
        out.extend_from_slice(&by.last);
        end = found.end();
    }
    out.extend_from_slice(&text[end..]);
    Ok(())
}
