//! Tokens of the one-line form.

use std::sync::Arc;

use crate::error::ConfigError;
use crate::source::{Source, Span};

/// A text put together from plain and quoted pieces.
#[derive(Debug, Clone)]
pub(super) struct Word {
    pub(super) span: Span,
    pub(super) text: String,
    /// True when any piece of it was quoted.
    pub(super) quoted: bool,
}

/// One thing that a stage says.
#[derive(Debug)]
pub(super) enum Token {
    Positional(Word),
    Setting { name: Word, value: Value },
}

/// What is given to a setting.
#[derive(Debug)]
pub(super) enum Value {
    One(Word),
    List(Span, Vec<Word>),
}

/// A position in the text of a pipeline.
pub(super) struct Cursor<'s> {
    pub(super) source: &'s Arc<Source>,
    /// The source's text up to where this ends.
    text: &'s str,
    at: usize,
}

impl<'s> Cursor<'s> {
    pub(super) fn new(source: &'s Arc<Source>) -> Self {
        Self::within(source, Span::new(0, source.text.len()))
    }

    /// A position at the beginning of a part of the source.
    pub(super) fn within(source: &'s Arc<Source>, part: Span) -> Self {
        Self {
            source,
            text: &source.text[..part.end],
            at: part.start,
        }
    }

    /// How far it is, in bytes of the source.
    pub(super) fn place(&self) -> usize {
        self.at
    }

    fn rest(&self) -> &'s str {
        &self.text[self.at..]
    }

    pub(super) fn error(&self, span: Span, message: impl Into<String>) -> ConfigError {
        ConfigError::in_source(self.source, span, message)
    }

    pub(super) fn skip_space(&mut self) {
        self.at = self.text.len() - self.rest().trim_start().len();
    }

    /// The place of the stage's end when nothing but space stands before it.
    pub(super) fn at_stage_end(&mut self) -> Option<Span> {
        self.skip_space();
        match self.rest().chars().next() {
            None => Some(Span::empty(self.at)),
            Some('|') if !self.rest().starts_with("||") => Some(Span::new(self.at, self.at + 1)),
            Some(_) => None,
        }
    }

    /// Steps over the `|` that ends a stage; false at the end of the text.
    pub(super) fn next_stage(&mut self) -> bool {
        let is_bar = self.rest().starts_with('|');
        self.at += usize::from(is_bar);
        is_bar
    }

    /// The component's name: everything up to whitespace or a `|`.
    pub(super) fn name(&mut self) -> Word {
        let start = self.at;
        let ends = |c: char| c.is_whitespace() || c == '|';
        let length = self.rest().find(ends).unwrap_or(self.rest().len());
        self.at += length;
        let text = self.text[start..self.at].to_owned();
        Word {
            span: Span::new(start, self.at),
            text,
            quoted: false,
        }
    }

    /// The next token of the stage; none at its end. `stops` end values as blanks do.
    pub(super) fn token(&mut self, stops: &[char]) -> Result<Option<Token>, ConfigError> {
        if self.at_stage_end().is_some() {
            return Ok(None);
        }
        let Some(name) = self.setting_name() else {
            return Ok(Some(Token::Positional(self.lone_word(stops)?)));
        };
        if let Some(list) = self.list()? {
            return Ok(Some(Token::Setting { name, value: list }));
        }
        let mut value = self.word(&[])?;
        // As in a shell, nothing after the `=` is the empty text, not null.
        value.quoted |= value.text.is_empty();
        let value = Value::One(value);
        Ok(Some(Token::Setting { name, value }))
    }

    /// The name of a setting, where one stands here.
    pub(super) fn peek_setting(&mut self) -> Option<Word> {
        let place = self.at;
        let name = self.setting_name();
        self.at = place;
        name
    }

    /// Steps over `name=` or `name.key=` when a setting starts here. A key is whatever somebody calls a field or an
    /// entry, so it may have any character that needs no quotes.
    fn setting_name(&mut self) -> Option<Word> {
        let (name, after) = self.rest().split_once('=')?;
        let (setting, key) = match name.split_once('.') {
            Some((setting, key)) => (setting, Some(key)),
            None => (name, None),
        };
        let is_setting = setting.starts_with(|c: char| c.is_ascii_lowercase() || c == '_')
            && setting
                .bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
        let ends = |c: char| c.is_whitespace() || matches!(c, '|' | '\'' | '"');
        let is_key = key.is_none_or(|key| !key.is_empty() && !key.contains(ends));
        if !is_setting || !is_key || after.starts_with('=') {
            return None;
        }
        let span = Span::new(self.at, self.at + name.len());
        self.at = span.end + 1;
        let text = name.to_owned();
        Some(Word {
            span,
            text,
            quoted: false,
        })
    }

    /// A word by position. `||` alone is most likely an expression in the wrong place.
    fn lone_word(&mut self, stops: &[char]) -> Result<Word, ConfigError> {
        let word = self.word(stops)?;
        if word.text.is_empty() && !word.quoted {
            return Err(self.error(self.next_char(), "a value is missing before this `,`"));
        }
        if word.text.starts_with("||") && !word.quoted {
            let span = Span::new(word.span.start, word.span.start + 2);
            return Err(self
                .error(span, "`||` is only valid inside an expression")
                .note(
                    "stages are separated by a single `|`; an expression with spaces needs quotes here",
                ));
        }
        Ok(word)
    }

    /// `[a, 'b c']`, when a bracket opens here and its closing one ends the value. A value that goes on after the
    /// bracket, as `[a-z]+` does, is no list.
    fn list(&mut self) -> Result<Option<Value>, ConfigError> {
        let start = self.at;
        if !self.rest().starts_with('[') {
            return Ok(None);
        }
        self.at += 1;
        let mut items = Vec::new();
        loop {
            self.skip_space();
            if self.rest().starts_with(']') {
                break;
            }
            let item = self.word(&[',', ']'])?;
            self.skip_space();
            let next = self.rest().chars().next();
            if !matches!(next, Some(',' | ']')) || (item.text.is_empty() && !item.quoted) {
                return Err(self.broken_list(start, next));
            }
            items.push(item);
            self.at += usize::from(next == Some(','));
        }
        self.at += 1;
        if self.ends_value() {
            return Ok(Some(Value::List(Span::new(start, self.at), items)));
        }
        self.at = start;
        Ok(None)
    }

    /// Why what opens as a list does not go on as one.
    fn broken_list(&self, start: usize, next: Option<char>) -> ConfigError {
        let message = match next {
            Some(',') => "an item is missing before this `,`",
            Some(c) if c != '|' => "expected `,` or `]` here",
            _ => return self.error(Span::new(start, start + 1), "this list has no closing `]`"),
        };
        let span = Span::new(self.at, self.at + next.map_or(0, char::len_utf8));
        self.error(span, message)
            .note("`[a, b]` is a list; put a text that starts with `[` in quotes")
    }

    fn ends_value(&self) -> bool {
        let ends = |c: char| c.is_whitespace() || c == '|';
        self.rest().chars().next().is_none_or(ends)
    }

    /// A word up to whitespace, the end of the stage or one of the characters `stops`. A comma alone stops no word within
    /// braces and brackets, which are wildcards there.
    fn word(&mut self, stops: &[char]) -> Result<Word, ConfigError> {
        let start = self.at;
        let mut depth = 0_usize;
        let (mut text, mut quoted) = (String::new(), false);
        while let Some(c) = self.rest().chars().next() {
            match c {
                '\'' | '"' => {
                    self.quoted_piece(c, &mut text)?;
                    quoted = true;
                }
                // The name of a field, which keeps them.
                '`' if self.rest()[1..].contains('`') => text.push_str(self.backticks()?),
                '|' if self.rest().starts_with("||") => {
                    text.push_str("||");
                    self.at += 2;
                }
                c if c == '|' || c.is_whitespace() => break,
                ',' if stops == [','] && depth > 0 => {
                    text.push(c);
                    self.at += 1;
                }
                c if stops.contains(&c) => break,
                c => {
                    depth += usize::from(matches!(c, '{' | '['));
                    depth = depth.saturating_sub(usize::from(matches!(c, '}' | ']')));
                    text.push(c);
                    self.at += c.len_utf8();
                }
            }
        }
        let span = Span::new(start, self.at);
        Ok(Word { span, text, quoted })
    }

    /// Appends what stands in the quotes that open here.
    fn quoted_piece(&mut self, quote: char, text: &mut String) -> Result<(), ConfigError> {
        let start = self.at;
        self.at += 1;
        let mut chars = self.rest().char_indices().peekable();
        while let Some((offset, c)) = chars.next() {
            match c {
                c if c == quote => {
                    self.at += offset + 1;
                    return Ok(());
                }
                '\\' if quote == '"' => {
                    let escaped = chars.next_if(|(_, next)| matches!(next, '"' | '\\'));
                    text.push(escaped.map_or('\\', |(_, next)| next));
                }
                c => text.push(c),
            }
        }
        Err(self.unterminated(start, quote))
    }

    /// Steps over what stands in the backticks that open here; it, with them.
    fn backticks(&mut self) -> Result<&'s str, ConfigError> {
        let start = self.at;
        match self.rest()[1..].find('`') {
            Some(length) => {
                self.at += length + 2;
                Ok(&self.text[start..self.at])
            }
            None => Err(self.unterminated(start, '`')),
        }
    }

    fn unterminated(&self, start: usize, quote: char) -> ConfigError {
        let span = Span::new(start, start + 1);
        self.error(
            span,
            format!("the quote {quote} opened here is never closed"),
        )
    }

    /// The rest of the stage as it stands, trimmed.
    pub(super) fn expression(&mut self) -> Result<Word, ConfigError> {
        self.expression_up_to(&[])
    }

    /// `name = expression`, up to a comma or the end of the stage.
    pub(super) fn assignment(&mut self) -> Result<(Word, Word), ConfigError> {
        let name = self.field(&['='])?;
        if !self.rest().starts_with('=') || self.rest().starts_with("==") {
            let message = format!("expected `=` and an expression after `{}`", name.text);
            return Err(self.error(self.next_char(), message).note(
                "example: set total = bytes_in + bytes_out, env = \"prod\" (text needs quotes; a name without quotes is a field)",
            ));
        }
        self.at += 1;
        let value = self.expression_up_to(&[','])?;
        if value.text.is_empty() {
            let message = format!("expected an expression for `{}` here", name.text);
            return Err(self.error(self.next_char(), message));
        }
        Ok((name, value))
    }

    /// `name -> new name`.
    pub(super) fn new_name(&mut self) -> Result<(Word, Word), ConfigError> {
        let old = self.field(&['-'])?;
        if !self.rest().starts_with("->") {
            let message = format!("expected `->` and the new name after `{}`", old.text);
            let error = self.error(self.next_char(), message);
            return Err(
                error.note("example: rename clientip -> source.ip, verb -> http.request.method")
            );
        }
        self.at += 2;
        Ok((old, self.field(&[])?))
    }

    /// A field's name: plain, or in quotes or backticks where it has characters that end it. Backticks are part of the
    /// text, since only one key of the name may stand in them. Steps over blanks after it.
    pub(super) fn field(&mut self, stops: &[char]) -> Result<Word, ConfigError> {
        self.skip_space();
        let start = self.at;
        let mut word = Word {
            span: Span::empty(start),
            text: String::new(),
            quoted: false,
        };
        while let Some(c) = self.rest().chars().next() {
            let is_stop = match c {
                '-' if stops.contains(&c) => self.rest().starts_with("->"),
                c => matches!(c, ',' | '|') || c.is_whitespace() || stops.contains(&c),
            };
            match c {
                _ if is_stop => break,
                '=' => {
                    let error = self.error(self.next_char(), "expected a name here, not a setting");
                    return Err(error.note(
                        "settings of this component can only be given in YAML; put a name that contains `=` in backticks",
                    ));
                }
                '\'' | '"' => {
                    self.quoted_piece(c, &mut word.text)?;
                    word.quoted = true;
                }
                '`' => {
                    word.text.push_str(self.backticks()?);
                    word.quoted = true;
                }
                c => {
                    word.text.push(c);
                    self.at += c.len_utf8();
                }
            }
        }
        word.span = Span::new(start, self.at);
        if word.text.is_empty() {
            return Err(self.error(self.next_char(), "the name of a field is missing here"));
        }
        self.skip_space();
        Ok(word)
    }

    /// Steps over a comma; whether there was one.
    pub(super) fn comma(&mut self) -> bool {
        self.skip_space();
        let is_comma = self.rest().starts_with(',');
        self.at += usize::from(is_comma);
        is_comma
    }

    /// The place of the next character, where something else was expected.
    pub(super) fn next_char(&self) -> Span {
        let length = self.rest().chars().next().map_or(0, char::len_utf8);
        Span::new(self.at, self.at + length)
    }

    /// An expression up to the end of the stage, or to one of these characters outside of all brackets; trimmed.
    fn expression_up_to(&mut self, stops: &[char]) -> Result<Word, ConfigError> {
        self.skip_space();
        let start = self.at;
        let mut depth = 0_usize;
        while let Some(c) = self.rest().chars().next() {
            match c {
                '\'' | '"' => {
                    self.skip_literal(c, start)?;
                    continue;
                }
                '`' => {
                    let rest = &self.rest()[1..];
                    let length = rest.find('`').map_or(rest.len(), |length| length + 1);
                    self.at += 1 + length;
                    continue;
                }
                '|' if self.rest().starts_with("||") => self.at += 1,
                '|' if depth > 0 => {
                    return Err(self
                        .error(self.next_char(), "`|` is not an operator of expressions")
                        .suggest("||")
                        .note("`|` separates stages, and a bracket is still open here"));
                }
                '|' => break,
                '(' | '[' | '{' => depth += 1,
                ')' | ']' | '}' => depth = depth.saturating_sub(1),
                '=' if depth == 0 && self.is_setting_sign(start) => {
                    return Err(self.second_setting(start, stops));
                }
                ';' if depth == 0 => {
                    return Err(self
                        .error(self.next_char(), "`;` separates nothing here")
                        .note("assignments are separated by commas, stages by `|`"));
                }
                c if depth == 0 && stops.contains(&c) => break,
                _ => {}
            }
            self.at += c.len_utf8();
        }
        let text = self.text[start..self.at].trim_end().to_owned();
        let span = Span::new(start, start + text.len());
        Ok(Word {
            span,
            text,
            quoted: true,
        })
    }

    /// Whether the `=` here is part of no operator and stands directly behind a name that follows a blank, as in
    /// `set a = 1 b = 2` and `drop n == 1 on_failure=drop`.
    fn is_setting_sign(&self, start: usize) -> bool {
        let before = &self.text[start..self.at];
        let after = &self.rest()[1..];
        if after.starts_with(['=', '~']) || before.ends_with(['=', '!', '<', '>']) {
            return false;
        }
        let is_name = |c: char| c.is_alphanumeric() || matches!(c, '_' | '.' | '@' | '-' | '`');
        let name = before.trim_end();
        let rest = name.trim_end_matches(is_name);
        let behind = rest.trim_end();
        rest.len() < name.len()
            && behind.len() < rest.len()
            && behind.ends_with(|c: char| is_name(c) || matches!(c, '"' | '\'' | ')' | ']' | '}'))
    }

    /// The error for such an `=`.
    fn second_setting(&self, start: usize, stops: &[char]) -> ConfigError {
        let before = self.text[start..self.at].trim_end();
        let name = before
            .rsplit(char::is_whitespace)
            .next()
            .unwrap_or_default();
        let end = start + before.len();
        let span = Span::new(end - name.len(), end);
        if stops.is_empty() {
            return self
                .error(
                    span,
                    format!("`{name}` cannot be set behind an expression, which takes the rest of the stage"),
                )
                .note(format!("in YAML, `{name}` can be set like any other setting; to compare, write `==`"));
        }
        self.error(span, format!("a comma is missing before `{name}`"))
            .note("example: set total = bytes_in + bytes_out, env = \"prod\"")
    }

    /// Steps over a string literal of the expression language: in one or three quotes, with backslash escapes unless
    /// an `r` stands before it.
    fn skip_literal(&mut self, quote: char, expression_start: usize) -> Result<(), ConfigError> {
        let start = self.at;
        let triple: String = [quote; 3].iter().collect();
        let delimiter = if self.rest().starts_with(&triple) {
            &triple[..]
        } else {
            &triple[..1]
        };
        let raw = is_raw(&self.text[expression_start..start]);
        self.at += delimiter.len();
        while !self.rest().starts_with(delimiter) {
            let mut chars = self.rest().chars();
            match chars.next() {
                Some('\\') if !raw => self.at += 1 + chars.next().map_or(0, char::len_utf8),
                Some(c) => self.at += c.len_utf8(),
                None => return Err(self.unterminated(start, quote)),
            }
        }
        self.at += delimiter.len();
        Ok(())
    }
}

/// True when what stands before a quote ends in the prefix of a raw literal, and not in a name that ends in `r`.
fn is_raw(before: &str) -> bool {
    let prefix = before
        .rsplit(|c: char| !c.is_alphanumeric() && c != '_')
        .next();
    prefix.is_some_and(|prefix| ["r", "rb", "br"].contains(&prefix.to_ascii_lowercase().as_str()))
}
