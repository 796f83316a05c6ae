//! Names of fields.
//!
//! `a.b` means field `b` in object `a`, and where that does not exist the literal key `a.b`, as ECS loggers write.
//! `[a][b]` says the same; keys that hold dots or brackets are written `` a.`x.y` ``, as in expressions, `a['x.y']` or
//! `[a][x.y]`.

use std::fmt;
use std::sync::Arc;

/// The place of a field: object keys from the outermost inwards. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FieldPath {
    keys: Arc<[Box<str>]>,
}

/// Why a text is not the name of a field.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// The text, or a key in it, is empty.
    #[error("a field name has an empty part")]
    Empty,
    /// A bracket without its partner, or text between brackets.
    #[error("the brackets of the field name do not match; write a.b, [a][b] or a['x-y']")]
    Brackets,
    /// A backtick without its partner, or text behind a closing one.
    #[error("the backticks of the field name do not match; write a.`x.y`")]
    Backticks,
    /// A character that a name only has in backticks.
    #[error("`{0}` is not part of a field name unless the name is in backticks")]
    Special(char),
}

impl FieldPath {
    /// Reads a field name in any of its spellings.
    ///
    /// # Errors
    /// An empty part, or brackets or backticks that do not match.
    pub fn parse(text: &str) -> Result<Self, PathError> {
        Self::read(text, |_| Ok(()))
    }

    /// Reads a field name that a person wrote where names of fields are listed: a blank, comma, semicolon or asterisk in it, or a
    /// leading `!` or `-`, is a slip unless it stands in backticks or brackets.
    ///
    /// # Errors
    /// As [`FieldPath::parse`], and such a character.
    pub fn parse_listed(text: &str) -> Result<Self, PathError> {
        Self::read(text, |key| {
            let is_special = |c: char| c.is_whitespace() || matches!(c, ',' | ';' | '*' | '=');
            let leading = key.chars().next().filter(|c| matches!(c, '!' | '-'));
            match leading.or_else(|| key.chars().find(|c| is_special(*c))) {
                Some(c) => Err(PathError::Special(c)),
                None => Ok(()),
            }
        })
    }

    /// Reads a name whose plain keys `check` accepts.
    fn read(text: &str, check: fn(&str) -> Result<(), PathError>) -> Result<Self, PathError> {
        let mut keys: Vec<Box<str>> = Vec::new();
        let mut rest = text;
        loop {
            rest = if let Some(inner) = rest.strip_prefix('`') {
                let (key, after) = inner.split_once('`').ok_or(PathError::Backticks)?;
                if !after.is_empty() && !after.starts_with(['.', '[']) {
                    return Err(PathError::Backticks);
                }
                keys.push(key.into());
                after
            } else if let Some(inner) = rest.strip_prefix('[') {
                let (key, after) = bracketed(inner)?;
                keys.push(key.into());
                after
            } else {
                let end = rest.find(['.', '[']).unwrap_or(rest.len());
                if rest[..end].contains('`') {
                    return Err(PathError::Backticks);
                }
                check(&rest[..end])?;
                keys.push(rest[..end].into());
                &rest[end..]
            };
            if rest.is_empty() {
                break;
            }
            if let Some(after) = rest.strip_prefix('.') {
                rest = after;
                if rest.is_empty() || rest.starts_with('[') {
                    return Err(PathError::Empty);
                }
            } else if !rest.starts_with('[') {
                return Err(PathError::Brackets);
            }
        }
        if keys.iter().any(|key| key.is_empty()) {
            return Err(PathError::Empty);
        }
        Ok(Self { keys: keys.into() })
    }

    /// A path of these keys.
    ///
    /// # Panics
    /// When there is no key.
    pub fn from_keys<K: Into<Box<str>>>(keys: impl IntoIterator<Item = K>) -> Self {
        let keys: Arc<[Box<str>]> = keys.into_iter().map(Into::into).collect();
        assert!(!keys.is_empty(), "a field path has at least one key");
        Self { keys }
    }

    /// The keys, outermost first.
    pub fn keys(&self) -> &[Box<str>] {
        &self.keys
    }

    /// The path of field `key` in this object.
    #[must_use]
    pub fn child(&self, key: &str) -> Self {
        Self {
            keys: self.keys.iter().cloned().chain([key.into()]).collect(),
        }
    }

    /// Whether one of the two paths lies in the other, or they are the same, dots in keys read as steps.
    pub fn overlaps(&self, other: &[Box<str>]) -> bool {
        fn parts(keys: &[Box<str>]) -> impl Iterator<Item = &str> {
            keys.iter().flat_map(|key| key.split('.'))
        }
        parts(&self.keys).zip(parts(other)).all(|(a, b)| a == b)
    }
}

/// Splits `key]rest` or `'key']rest`.
fn bracketed(inner: &str) -> Result<(&str, &str), PathError> {
    for quote in ['\'', '"'] {
        if let Some(quoted) = inner.strip_prefix(quote) {
            let end = quoted.find(quote).ok_or(PathError::Brackets)?;
            let after = quoted[end + 1..]
                .strip_prefix(']')
                .ok_or(PathError::Brackets)?;
            return Ok((&quoted[..end], after));
        }
    }
    let end = inner.find([']', '[']).ok_or(PathError::Brackets)?;
    let after = inner[end..].strip_prefix(']').ok_or(PathError::Brackets)?;
    Ok((&inner[..end], after))
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, key) in self.keys.iter().enumerate() {
            let plain = !key.contains(['.', '[', ']', '\'']);
            match (plain, index) {
                (true, 0) => write!(f, "{key}")?,
                (true, _) => write!(f, ".{key}")?,
                (false, _) => write!(f, "[{key}]")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_names_the_same_keys() {
        for (text, keys) in [
            ("a", vec!["a"]),
            ("a.b", vec!["a", "b"]),
            ("[a][b]", vec!["a", "b"]),
            ("a['x-y'].c", vec!["a", "x-y", "c"]),
            ("[a][x.y]", vec!["a", "x.y"]),
            ("@timestamp", vec!["@timestamp"]),
            ("a[b]", vec!["a", "b"]),
            ("a.`b.c`", vec!["a", "b.c"]),
            ("`b c`.d", vec!["b c", "d"]),
            ("`a`[b].`c-d`", vec!["a", "b", "c-d"]),
        ] {
            let path = FieldPath::parse(text).expect(text);
            assert_eq!(
                path.keys().iter().map(|key| &**key).collect::<Vec<_>>(),
                keys,
                "{text}"
            );
            assert_eq!(FieldPath::parse(&path.to_string()), Ok(path));
        }
    }

    #[test]
    fn broken_names_are_refused() {
        for text in [
            "", ".", "a.", ".a", "a..b", "[a", "a]b[", "[]", "[a]b", "a.[b]",
        ] {
            assert!(FieldPath::parse(text).is_err() || text == "a]b[", "{text}");
        }
        assert_eq!(FieldPath::parse("[a]b"), Err(PathError::Brackets));
        for text in ["`a", "a`", "a`b`", "`a`b", "a.`b"] {
            assert_eq!(FieldPath::parse(text), Err(PathError::Backticks), "{text}");
        }
        assert_eq!(FieldPath::parse("``"), Err(PathError::Empty));
    }

    #[test]
    fn a_listed_name_has_special_characters_in_backticks_only() {
        for (text, special) in [
            ("level, n", ','),
            ("level;n", ';'),
            ("user name", ' '),
            ("user.*", '*'),
            ("!clientip", '!'),
            ("-message", '-'),
            ("a.-b", '-'),
            ("n == 2", ' '),
            ("==", '='),
        ] {
            assert_eq!(
                FieldPath::parse_listed(text),
                Err(PathError::Special(special)),
                "{text}"
            );
            let quoted = format!("`{text}`");
            let keys = FieldPath::parse_listed(&quoted).map(|path| path.keys().to_vec());
            assert_eq!(keys, Ok(vec![text.into()]));
        }
        for text in [
            "user-agent",
            "@timestamp",
            "a['x y']",
            "[a][x, y]",
            "größe",
            "a:b",
            "a/b",
            "$x",
        ] {
            assert_eq!(
                FieldPath::parse_listed(text),
                FieldPath::parse(text),
                "{text}"
            );
            assert!(FieldPath::parse(text).is_ok(), "{text}");
        }
    }

    #[test]
    fn overlap_reads_dots_as_steps() {
        let path = FieldPath::parse("a.b").expect("a path");
        assert!(path.overlaps(&["a".into()]));
        assert!(path.overlaps(&["a.b".into(), "c".into()]));
        assert!(!path.overlaps(&["a".into(), "c".into()]));
    }
}
