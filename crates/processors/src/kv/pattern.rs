//! Splitting at regular expressions, by the same rules as [`super::split`] at characters.
//!
//! Both splitters are expressions here; where only one is given, the other is a class of its characters. They run in
//! time linear in the text; look-around and back references are not supported. A splitter after a backslash splits nothing.

use regex_automata::meta::Regex;
use regex_automata::{Anchored, Input};

use super::split::{Pair, Quotes};

/// How a text is split.
#[derive(Debug, Clone)]
pub(super) struct PatternSplitter {
    fields: Regex,
    values: Regex,
    quotes: Quotes,
    lenient: bool,
}

/// A place in the text: from one byte to another.
type ByteRange = (usize, usize);

/// An expression that is a splitter.
///
/// # Errors
/// One that is invalid, or matches an empty text.
pub(super) fn compile(pattern: &str) -> Result<Regex, String> {
    let hir = regex_syntax::parse(pattern)
        .map_err(|error| format!("`{pattern}` is not a supported regular expression: {error}"))?;
    if hir.properties().minimum_len() == Some(0) {
        return Err(format!(
            "`{pattern}` matches an empty text, which splits nothing"
        ));
    }
    Regex::builder()
        .build_from_hir(&hir)
        .map_err(|error| format!("`{pattern}` cannot be used: {error}"))
}

/// The expression that matches each of some characters.
pub(super) fn class(characters: &str) -> String {
    let one = |character: char| regex_syntax::escape(character.encode_utf8(&mut [0; 4]));
    let all: Vec<String> = characters.chars().map(one).collect();
    format!("(?:{})", all.join("|"))
}

impl PatternSplitter {
    pub fn new(fields: Regex, values: Regex, quotes: Quotes, lenient: bool) -> Self {
        Self {
            fields,
            values,
            quotes,
            lenient,
        }
    }

    /// The first pair at or after `pos`, and where to go on.
    pub fn next(&self, text: &[u8], mut pos: usize) -> Option<(Pair, usize)> {
        while pos < text.len() {
            if let Some(end) = at(&self.values, text, pos).or_else(|| at(&self.fields, text, pos)) {
                pos = end;
                continue;
            }
            let field = first(&self.fields, text, pos, text.len());
            let (field_start, field_end) = field.unwrap_or((text.len(), text.len()));
            // A pair's splitter begins before the next pair does, or where that begins and is preferred to it.
            let value = first(&self.values, text, pos, field_end)
                .filter(|(start, _)| *start <= field_start)
                .or_else(|| at(&self.values, text, field_start).map(|end| (field_start, end)))
                .or_else(|| self.after_blanks(text, field_start));
            let Some((start, end)) = value else {
                pos = field_end;
                continue;
            };
            let spaces = text[pos..start].iter().rev();
            let spaces = spaces.take_while(|byte| self.lenient && **byte == b' ');
            let key_end = start - spaces.count();
            let (value, next) = self.value(text, end, key_end < start);
            let key = (pos, key_end);
            return Some((Pair { key, value }, next));
        }
        None
    }

    /// The splitter of key and value that stands after one or more blanks at `start`.
    fn after_blanks(&self, text: &[u8], start: usize) -> Option<ByteRange> {
        let blanks = blanks(text, start);
        let start = start + blanks;
        let end = at(&self.values, text, start)?;
        (self.lenient && blanks > 0).then_some((start, end))
    }

    /// The value that begins at `pos`, after its splitter, and where to go on. `spaced` says that there were blanks before
    /// the splitter.
    fn value(&self, text: &[u8], mut pos: usize, spaced: bool) -> (ByteRange, usize) {
        let blanks = blanks(text, pos);
        if self.lenient && blanks > 0 {
            if !spaced && self.begins_pair(text, pos, pos + blanks) {
                return ((pos, pos), pos);
            }
            pos += blanks;
        }
        let ends = |after: usize| after == text.len() || at(&self.fields, text, after).is_some();
        if let Some(end) = self.quotes.end_of_quoted(text, pos, ends) {
            return ((pos + 1, end), end + 1);
        }
        let end = first(&self.fields, text, pos, text.len()).map_or(text.len(), |(start, _)| start);
        ((pos, end), end)
    }

    /// Whether the blanks at `pos` split pairs, and the next word at `start` is a pair of its own, so that `a= b=1` has no
    /// value for `a`.
    fn begins_pair(&self, text: &[u8], pos: usize, start: usize) -> bool {
        if at(&self.fields, text, pos).is_none() {
            return false;
        }
        let field = first(&self.fields, text, start, text.len());
        let (_, end) = field.unwrap_or((text.len(), text.len()));
        first(&self.values, text, start, end).is_some_and(|(value, _)| value > start)
    }
}

/// Where the match ends that begins at `pos`.
fn at(regex: &Regex, text: &[u8], pos: usize) -> Option<usize> {
    let input = Input::new(text).span(pos..text.len());
    let found = regex.search(&input.anchored(Anchored::Yes))?;
    Some(found.end())
}

/// The first match between `pos` and `end` that does not stand after a backslash.
fn first(regex: &Regex, text: &[u8], pos: usize, end: usize) -> Option<ByteRange> {
    let mut from = pos;
    loop {
        let found = regex.search(&Input::new(text).span(from..end))?;
        let before = &text[pos..found.start()];
        let backslashes = before.iter().rev().take_while(|byte| **byte == b'\\');
        if backslashes.count() % 2 == 0 {
            return Some((found.start(), found.end()));
        }
        from = found.start() + 1;
    }
}

/// How many blanks stand at `pos`.
fn blanks(text: &[u8], pos: usize) -> usize {
    text[pos..].iter().take_while(|byte| **byte == b' ').count()
}

#[cfg(test)]
mod tests {
    use super::super::split::Splitter;
    use super::*;
    use proptest::prelude::*;

    fn splitter(fields: &str, values: &str, lenient: bool) -> PatternSplitter {
        let quotes = Quotes { brackets: true };
        PatternSplitter::new(
            compile(fields).expect(fields),
            compile(values).expect(values),
            quotes,
            lenient,
        )
    }

    type Pairs = Vec<(ByteRange, ByteRange)>;

    fn all(mut next: impl FnMut(usize) -> Option<(Pair, usize)>) -> Pairs {
        let mut found = Vec::new();
        let mut pos = 0;
        while let Some((pair, end)) = next(pos) {
            assert!(end > pos, "it moves on");
            pos = end;
            found.push((pair.key, pair.value));
        }
        found
    }

    #[test]
    fn pairs_are_found() {
        for (fields, values, text, expected) in [
            (
                ":+",
                "=",
                "k1=v1:k2=v2::k3=v3:::k4=v4",
                "k1:v1|k2:v2|k3:v3|k4:v4",
            ),
            (r"\+\+", "=", "k1=v1++k2=v+2++k3=v3", "k1:v1|k2:v+2|k3:v3"),
            (", ", "->", "a->1, b->2,3, c", "a:1|b:2,3"),
            (" ", " -> ", "a -> b c -> d", "a:b|c:d"),
            (" ", "(?:->|:=)", "a -> b c:=d e := f", "a:b|c:d|e:f"),
            (" ", "(?:->|:=)", "a-> b->1", "a:|b:1"),
            (
                r"\|\|",
                "=",
                r#"a="x||y"||b=(1||2)||c=z"#,
                "a:x||y|b:1||2|c:z",
            ),
            (r"\|\|", "=", r"a=x\||y||b=1", r"a:x\||y|b:1"),
            ("→", "≡", "é≡ü→ü≡é", "é:ü|ü:é"),
            (r"\s+", "=", "a=1\t b=2\n c=3", "a:1|b:2|c:3"),
        ] {
            let splitter = splitter(fields, values, true);
            let found: Vec<String> = all(|pos| splitter.next(text.as_bytes(), pos))
                .into_iter()
                .map(|(key, value)| format!("{}:{}", &text[key.0..key.1], &text[value.0..value.1]))
                .collect();
            assert_eq!(found.join("|"), expected, "{fields} and {values} on {text}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]
        /// Splitting at classes of characters is splitting at characters.
        #[test]
        fn as_splitting_at_characters(
            text in "[ab=\" '\\\\(\\[<>\\])é:,]{0,40}",
            lenient in any::<bool>(),
            (fields, values) in prop::sample::select(vec![(" ", "="), (",", "=:"), (" ,", ":")]),
        ) {
            let characters = Splitter::new(fields, values, true, lenient);
            let patterns = splitter(&class(fields), &class(values), lenient);
            prop_assert_eq!(
                all(|pos| patterns.next(text.as_bytes(), pos)),
                all(|pos| characters.next(text.as_bytes(), pos))
            );
        }
    }
}
