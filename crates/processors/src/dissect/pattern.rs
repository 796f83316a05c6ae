//! Dissect patterns: texts with `%{keys}` between them.
//!
//! A pattern is parsed into steps, each of which captures up to its delimiter, and into what becomes of the captures.
//! Matching is one pass over the text with a substring search a step; nothing ever goes back.

use std::ops::Range;

use batch::FieldPath;
use memchr::memmem::Finder;

use crate::names::overlap;

/// A place in the text: from one byte to another.
pub(super) type Capture = (usize, usize);

/// A parsed pattern.
#[derive(Debug, Clone)]
pub(super) struct Pattern {
    /// What the text must begin with.
    prefix: Box<[u8]>,
    steps: Vec<DelimitedKey>,
    pub outputs: Vec<Output>,
    pub pairs: Vec<NamedByText>,
}

/// A key with the text after it.
#[derive(Debug, Clone)]
struct DelimitedKey {
    /// Without a delimiter the capture takes the rest of the text.
    delimiter: Option<Finder<'static>>,
    /// Whether the delimiter may come several times in a row.
    padded: bool,
    /// As it stands in the pattern, for messages.
    key: Box<str>,
}

/// A field that one or several captures make.
#[derive(Debug, Clone)]
pub(super) struct Output {
    pub path: FieldPath,
    /// The steps whose captures it is made of, in order, each with the text to put before it.
    pub parts: Vec<(usize, Box<[u8]>)>,
    /// The type that the pattern gives it, with its place in the pattern.
    pub kind: Option<(Box<str>, Range<usize>)>,
}

/// A field whose name is captured too.
#[derive(Debug, Clone, Copy)]
pub(super) struct NamedByText {
    pub name: usize,
    pub value: usize,
}

/// Why a text is no pattern, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub(super) struct PatternError {
    pub message: String,
    pub at: Range<usize>,
}

/// What a key does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    Field,
    Append,
    Skip,
    /// Names a field.
    Name,
    /// Gives the value of a field that another capture names.
    Value,
}

struct Key<'p> {
    name: &'p str,
    role: Role,
    order: u32,
    padded: bool,
    kind: Option<&'p str>,
    /// The literal text before it.
    before: &'p str,
    at: Range<usize>,
}

impl Pattern {
    /// Parses a pattern.
    ///
    /// # Errors
    /// Keys that are broken, stand side by side, contradict each other or miss their partner.
    pub fn parse(text: &str) -> Result<Self, PatternError> {
        let (keys, tail) = keys_of(text)?;
        let step = |(index, key): (usize, &Key<'_>)| DelimitedKey {
            delimiter: match keys.get(index + 1).map_or(tail, |next| next.before) {
                "" => None,
                delimiter => Some(Finder::new(delimiter).into_owned()),
            },
            padded: key.padded,
            key: text[key.at.clone()].into(),
        };
        Ok(Self {
            prefix: keys[0].before.as_bytes().into(),
            steps: keys.iter().enumerate().map(step).collect(),
            outputs: outputs(&keys)?,
            pairs: pairs(&keys)?,
        })
    }

    /// Captures from a text; `captures` gets one for each step.
    ///
    /// # Errors
    /// What was not found, and where it was looked for.
    #[inline]
    pub fn captures(&self, text: &[u8], captures: &mut Vec<Capture>) -> Result<(), String> {
        captures.clear();
        if !text.starts_with(&self.prefix) {
            return Err(format!(
                "the text does not begin with `{}`",
                String::from_utf8_lossy(&self.prefix)
            ));
        }
        let mut pos = self.prefix.len();
        for step in &self.steps {
            let Some(delimiter) = &step.delimiter else {
                captures.push((pos, text.len()));
                break;
            };
            let needle = delimiter.needle();
            let found = match needle {
                [byte] => memchr::memchr(*byte, &text[pos..]),
                _ => delimiter.find(&text[pos..]),
            };
            let Some(found) = found else {
                return Err(step.not_found(pos));
            };
            captures.push((pos, pos + found));
            pos += found + needle.len();
            while step.padded && text[pos..].starts_with(needle) {
                pos += needle.len();
            }
        }
        Ok(())
    }
}

impl DelimitedKey {
    #[cold]
    fn not_found(&self, pos: usize) -> String {
        let delimiter = self
            .delimiter
            .as_ref()
            .map(|finder| String::from_utf8_lossy(finder.needle()));
        format!(
            "no `{}` after byte {pos}, where {} begins",
            delimiter.unwrap_or_default(),
            self.key
        )
    }
}

/// The keys of a pattern in order, and the text after the last one.
fn keys_of(text: &str) -> Result<(Vec<Key<'_>>, &str), PatternError> {
    let mut keys: Vec<Key<'_>> = Vec::new();
    let mut pos = 0;
    while let Some(open) = text[pos..].find("%{") {
        let start = pos + open;
        let Some(length) = text[start..].find('}') else {
            return Err(error("this key is not closed with `}`", start..text.len()));
        };
        let at = start..start + length + 1;
        if open == 0 && !keys.is_empty() {
            return Err(error("two keys need a delimiter between them", at));
        }
        keys.push(key_of(
            &text[start + 2..start + length],
            &text[pos..start],
            at.clone(),
        )?);
        pos = at.end;
    }
    if keys.is_empty() {
        return Err(error(
            "the pattern has no key, such as %{name}",
            0..text.len(),
        ));
    }
    Ok((keys, &text[pos..]))
}

fn key_of<'p>(inside: &'p str, before: &'p str, at: Range<usize>) -> Result<Key<'p>, PatternError> {
    let (rest, padded) = match inside.strip_suffix("->") {
        Some(rest) => (rest, true),
        None => (inside, false),
    };
    let (rest, kind) = match rest.split_once('|') {
        Some((rest, kind)) => (rest, Some(kind)),
        None => (rest, None),
    };
    let (role, name) = match rest.chars().next() {
        None => (Role::Skip, ""),
        Some('?') => (Role::Skip, &rest[1..]),
        Some('+') => (Role::Append, &rest[1..]),
        Some('*') => (Role::Name, &rest[1..]),
        Some('&') => (Role::Value, &rest[1..]),
        Some(_) => (Role::Field, rest),
    };
    if matches!(role, Role::Append | Role::Value) && name.starts_with(['+', '&']) {
        let message =
            "`+` and `&` cannot be combined: a value whose name is captured cannot be appended to";
        return Err(error(message, at));
    }
    if role != Role::Skip
        && let Some(second) = name.chars().next().filter(|c| "?+*&".contains(*c))
    {
        let first = rest.chars().next().unwrap_or_default();
        let message = format!(
            "`{first}` and `{second}` cannot be combined; text to leave out is `%{{}}` or `%{{?name}}`"
        );
        return Err(error(message, at));
    }
    let (name, order) = match name.rsplit_once('/') {
        Some((name, order)) if role == Role::Append => {
            let order = order
                .parse()
                .map_err(|_| error(format!("`{order}` is not a number to order by"), at.clone()))?;
            (name, order)
        }
        _ => (name, 0),
    };
    if name.is_empty() && role != Role::Skip {
        return Err(error("this key has no name", at));
    }
    if kind.is_some() && !matches!(role, Role::Field | Role::Append) {
        return Err(error("only fields have a type", at));
    }
    Ok(Key {
        name,
        role,
        order,
        padded,
        kind,
        before,
        at,
    })
}

/// The fields that keys make, in the order of their first key.
fn outputs(keys: &[Key<'_>]) -> Result<Vec<Output>, PatternError> {
    let mut outputs: Vec<Output> = Vec::new();
    for (first, key) in keys.iter().enumerate() {
        let same = |other: &&Key<'_>| other.name == key.name;
        let is_output = matches!(key.role, Role::Field | Role::Append);
        if is_output
            && keys[..first]
                .iter()
                .filter(same)
                .any(|other| matches!(other.role, Role::Field | Role::Append))
        {
            if key.role == Role::Field {
                let message = format!(
                    "`{}` is captured twice; write %{{+{}}} to append",
                    key.name, key.name
                );
                return Err(error(message, key.at.clone()));
            }
            continue;
        }
        if !is_output {
            continue;
        }
        let path = FieldPath::parse(key.name).map_err(|reason| {
            error(
                format!("`{}` is not a field name: {reason}", key.name),
                key.at.clone(),
            )
        })?;
        if let Some(other) = outputs.iter().find(|other| overlap(&other.path, &path)) {
            let message = format!(
                "{path} and {} cannot both be set: one lies in the other",
                other.path
            );
            return Err(error(message, key.at.clone()));
        }
        let parts = parts(keys, first);
        let typed = keys
            .iter()
            .filter(same)
            .find_map(|other| Some((other.kind?.into(), other.at.clone())));
        outputs.push(Output {
            path,
            parts,
            kind: typed,
        });
    }
    Ok(outputs)
}

/// The steps that make the field of the key at `first`: itself, and what is appended.
fn parts(keys: &[Key<'_>], first: usize) -> Vec<(usize, Box<[u8]>)> {
    let name = keys[first].name;
    let appends = |index: &usize| {
        *index == first || keys[*index].role == Role::Append && keys[*index].name == name
    };
    let mut steps: Vec<usize> = (first..keys.len()).filter(appends).collect();
    steps.sort_by_key(|index| keys[*index].order);
    let separator = |step: usize| match keys[step].before {
        "" => " ",
        before => before,
    };
    let part = |(place, step): (usize, usize)| {
        let before = if place == 0 { "" } else { separator(step) };
        (step, before.as_bytes().into())
    };
    steps.into_iter().enumerate().map(part).collect()
}

/// The captures that are values, with those that name them.
fn pairs(keys: &[Key<'_>]) -> Result<Vec<NamedByText>, PatternError> {
    let mut pairs = Vec::new();
    for (value, key) in keys
        .iter()
        .enumerate()
        .filter(|(_, key)| key.role == Role::Value)
    {
        let names = |other: &Key<'_>| {
            other.name == key.name && !matches!(other.role, Role::Value | Role::Append)
        };
        let Some(name) = keys.iter().position(names) else {
            let message = format!(
                "no key captures the name for this value: add %{{*{}}}",
                key.name
            );
            return Err(error(message, key.at.clone()));
        };
        pairs.push(NamedByText { name, value });
    }
    let is_used = |key: &Key<'_>| {
        keys.iter()
            .any(|other| other.role == Role::Value && other.name == key.name)
    };
    if let Some(lonely) = keys
        .iter()
        .find(|key| key.role == Role::Name && !is_used(key))
    {
        let message = format!(
            "no key captures the value for this name: add %{{&{}}}",
            lonely.name
        );
        return Err(error(message, lonely.at.clone()));
    }
    Ok(pairs)
}

fn error(message: impl Into<String>, at: Range<usize>) -> PatternError {
    PatternError {
        message: message.into(),
        at,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn captures(pattern: &str, text: &str) -> Result<Vec<String>, String> {
        let pattern = Pattern::parse(pattern).expect(pattern);
        let mut found = Vec::new();
        pattern.captures(text.as_bytes(), &mut found)?;
        Ok(found
            .into_iter()
            .map(|(start, end)| text[start..end].to_owned())
            .collect())
    }

    #[test]
    fn captures_end_at_their_delimiters() {
        for (pattern, text, expected) in [
            ("%{a}", "all of it", "all of it"),
            ("%{a} %{b}", "1 2 3", "1|2 3"),
            ("%{a} %{b} ", "1 2 3", "1|2"),
            ("%{a} - %{b}", "1 - 2 - 3", "1|2 - 3"),
            ("<%{a}>%{b}: %{c}", "<34>su: x", "34|su|x"),
            ("%{a},%{b},%{c}", ",,", "||"),
            ("%{a} %{b}", "1  2", "1| 2"),
            ("%{a->} %{b}", "1    2", "1|2"),
            ("%{a->}, %{b}", "1, , , 2, 3", "1|2, 3"),
            ("[%{a}]%{->}[%{b}]", "[1]   [2]", "1|   |2"),
            ("%{a} %{a2->}", "1 2  ", "1|2  "),
            ("%{ä}→%{b}", "é→ü", "é|ü"),
        ] {
            assert_eq!(
                captures(pattern, text).map(|found| found.join("|")),
                Ok(expected.to_owned()),
                "{pattern} on {text}"
            );
        }
    }

    #[test]
    fn misses_say_what_and_where() {
        for (pattern, text, expected) in [
            ("<%{a}>", "34>", "the text does not begin with `<`"),
            (
                "%{a} - %{b}",
                "1 -2",
                "no ` - ` after byte 0, where %{a} begins",
            ),
            (
                "%{a} %{b}:",
                "1 2",
                "no `:` after byte 2, where %{b} begins",
            ),
            (
                "%{a->}  %{b} %{c}",
                "1      2",
                "no ` ` after byte 7, where %{b} begins",
            ),
        ] {
            assert_eq!(
                captures(pattern, text),
                Err(expected.to_owned()),
                "{pattern} on {text}"
            );
        }
    }

    #[test]
    fn broken_patterns_are_refused_with_their_place() {
        for (pattern, message, at) in [
            ("no keys", "the pattern has no key", 0..7),
            ("%{a} %{b", "not closed", 5..8),
            ("%{a}%{b}", "two keys need a delimiter between them", 4..8),
            (
                "%{a} %{a}",
                "`a` is captured twice; write %{+a} to append",
                5..9,
            ),
            ("%{+} x", "this key has no name", 0..4),
            ("%{?x}=%{+&x}", "`+` and `&` cannot be combined", 6..12),
            ("%{?x}=%{&+x}", "`+` and `&` cannot be combined", 6..12),
            ("%{+a/x} x", "`x` is not a number to order by", 0..7),
            ("%{a..b}", "`a..b` is not a field name", 0..7),
            ("%{a} %{[a][b]}", "a.b and a cannot both be set", 5..14),
            (
                "%{&a} %{b}",
                "no key captures the name for this value: add %{*a}",
                0..5,
            ),
            (
                "%{*a} %{b}",
                "no key captures the value for this name: add %{&a}",
                0..5,
            ),
            ("%{?a|int} %{b}", "only fields have a type", 0..9),
        ] {
            let error = Pattern::parse(pattern).expect_err(pattern);
            assert!(
                error.message.contains(message),
                "{pattern}: {}",
                error.message
            );
            assert_eq!(error.at, at, "{pattern}");
        }
    }

    proptest! {
        /// Against splitting at each delimiter in turn.
        #[test]
        fn as_a_naive_splitter(delimiters in prop::collection::vec("[ ,:-]{1,3}", 0..5), text in "[a-c ,:-]{0,30}") {
            let mut pattern = String::from("%{k0}");
            for (index, delimiter) in delimiters.iter().enumerate() {
                pattern.push_str(&format!("{delimiter}%{{k{}}}", index + 1));
            }
            let mut model = Some(Vec::new());
            let mut rest = text.as_str();
            for delimiter in &delimiters {
                let split = rest.split_once(delimiter.as_str());
                model = model.zip(split).map(|(mut found, (before, after))| {
                    found.push(before.to_owned());
                    rest = after;
                    found
                });
            }
            if let Some(found) = &mut model {
                found.push(rest.to_owned());
            }
            prop_assert_eq!(captures(&pattern, &text).ok(), model);
        }
    }
}
