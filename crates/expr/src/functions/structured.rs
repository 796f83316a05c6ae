//! Texts that hold values: JSON, and pairs of keys and values.

use batch::json;

use super::Takes::{Any, Separator, Text};
use super::{FunctionDoc, Kind, text_of};
use crate::fault::What;
use crate::value::{Val, map_of};

pub(super) const FUNCTIONS: &[FunctionDoc] = &[
    FunctionDoc::new(
        "parseJson",
        &[Text],
        Kind::Call(parse_json),
        [
            "parseJson(text) -> value",
            "The value that a JSON text stands for; numbers keep every digit. A text that is no JSON is an error.",
            r#"parseJson('{"a": [1, 2]}').a[1] == 2"#,
        ],
    ),
    FunctionDoc::new(
        "toJson",
        &[Any],
        Kind::Write(to_json),
        [
            "toJson(value) -> string",
            "The value as JSON; a timestamp or a duration as a text.",
            r#"toJson({'tags': tags}) == '{"tags":["web","slow"]}'"#,
        ],
    ),
    FunctionDoc::new(
        "parseKv",
        &[Text, Separator, Separator],
        Kind::Call(parse_kv),
        [
            "parseKv(text[, between_pairs[, between_key_and_value]]) -> map",
            r#"The pairs of a text such as `a=1 b="two words"`, all values being texts. Pairs are separated by whitespace, or by the text given; keys from values by `=`, or by the text given. A value in double or single quotes may hold both; `\"` in it is a quote. A word without a value is left out; of a repeated key the last one counts."#,
            r#"parseKv('level=info msg="not found"').msg == 'not found' && parseKv('a:1; b:2', ';', ':') == {'a': '1', 'b': '2'}"#,
        ],
    )
    .optional(2),
];

fn parse_json<'a>(args: &[Val<'a>]) -> Result<Val<'a>, What> {
    let text = text_of(&args[0])?.trim_matches([' ', '\t', '\r', '\n']);
    let scan = json::validate(text.as_bytes()).map_err(|_| What::Unreadable("JSON"))?;
    if scan.rewrite {
        let mut normal = Vec::with_capacity(text.len());
        json::normalise(text.as_bytes(), &mut normal);
        return Ok(Val::from_json(&normal).into_owned());
    }
    // A value within the batch is not copied.
    match &args[0] {
        Val::Text(std::borrow::Cow::Borrowed(whole)) => {
            let start = text.as_ptr() as usize - whole.as_ptr() as usize;
            Ok(Val::from_json(&whole[start..start + text.len()]))
        }
        _ => Ok(Val::from_json(text.as_bytes()).into_owned()),
    }
}

fn to_json(args: &[Val<'_>], out: &mut Vec<u8>) -> Result<(), What> {
    args[0].write_json(out);
    Ok(())
}

fn parse_kv<'a>(args: &[Val<'a>]) -> Result<Val<'a>, What> {
    let text = text_of(&args[0])?;
    let between_pairs = args.get(1).map(text_of).transpose()?;
    let assign = args.get(2).map(text_of).transpose()?.unwrap_or("=");
    if between_pairs == Some("") || assign.is_empty() {
        return Err(What::Other("a separator is not empty"));
    }
    let pairs = Pairs {
        rest: text,
        between_pairs,
        assign,
    };
    let entries: Vec<_> = pairs
        .map(|(key, value)| (Val::Text(key.as_bytes().into()), value))
        .collect();
    map_of(&entries).map(Val::into_owned)
}

/// The pairs of a text.
struct Pairs<'t> {
    rest: &'t str,
    /// What separates them, if not whitespace.
    between_pairs: Option<&'t str>,
    assign: &'t str,
}

impl<'t> Pairs<'t> {
    /// Where the next separator of pairs stands, and its length; the end of the text if there is none.
    fn separator(&self, text: &str) -> (usize, usize) {
        let found = match self.between_pairs {
            Some(separator) => text.find(separator).map(|at| (at, separator.len())),
            None => text
                .find(char::is_whitespace)
                .map(|at| (at, text[at..].chars().next().map_or(0, char::len_utf8))),
        };
        found.unwrap_or((text.len(), 0))
    }

    /// The value at the start of the rest, which is moved behind it.
    fn value(&mut self) -> Val<'t> {
        if let Some(quote @ ('"' | '\'')) = self.rest.chars().next()
            && let Some((value, len)) = quoted(&self.rest[1..], quote)
        {
            self.rest = &self.rest[1 + len..];
            // What sticks to the closing quote belongs to nothing.
            let (end, separator) = self.separator(self.rest);
            self.rest = &self.rest[end + separator..];
            return value;
        }
        let (end, separator) = self.separator(self.rest);
        let value = self.rest[..end].trim_end();
        self.rest = &self.rest[end + separator..];
        Val::Text(value.as_bytes().into())
    }
}

impl<'t> Iterator for Pairs<'t> {
    type Item = (&'t str, Val<'t>);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            self.rest = self.rest.trim_start();
            if self.rest.is_empty() {
                return None;
            }
            let (end, separator) = self.separator(self.rest);
            match self.rest.find(self.assign).filter(|at| *at < end) {
                Some(at) => {
                    let key = self.rest[..at].trim_end();
                    self.rest = &self.rest[at + self.assign.len()..];
                    if self.between_pairs.is_some() {
                        self.rest = self.rest.trim_start();
                    }
                    let value = self.value();
                    if !key.is_empty() {
                        return Some((key, value));
                    }
                }
                None => self.rest = &self.rest[end + separator..],
            }
        }
    }
}

/// A quoted text without its quotes, from behind the opening one, and where it ends behind the closing one.
fn quoted(text: &str, quote: char) -> Option<(Val<'_>, usize)> {
    let mut own: Option<String> = None;
    let mut characters = text.char_indices();
    while let Some((at, c)) = characters.next() {
        if c == quote {
            let value = match own {
                Some(own) => Val::text(own),
                None => Val::Text(text.as_bytes()[..at].into()),
            };
            return Some((value, at + 1));
        }
        if c == '\\'
            && matches!(characters.as_str().chars().next(), Some(next) if next == quote || next == '\\')
        {
            let escaped = characters.next().map_or('\\', |(_, next)| next);
            own.get_or_insert_with(|| text[..at].to_owned())
                .push(escaped);
        } else if let Some(own) = &mut own {
            own.push(c);
        }
    }
    None
}
