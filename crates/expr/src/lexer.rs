//! Text to tokens: CEL's lexical grammar, and the names that log fields have.
//!
//! Beyond CEL a name may hold `@` and letters of any script, and `` `x-y` `` quotes one. Bytes literals are refused,
//! because no field holds bytes. Every token knows its byte range, so that an error points into the text as written.

use std::ops::Range;

use crate::ExprError;

/// What a token is.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Tok {
    /// A word: a name, a keyword or a reserved word; the parser tells them apart.
    Name(Box<str>),
    /// A name in backticks, never a keyword.
    Quoted(Box<str>),
    /// A number without sign, in decimal notation.
    Number(Box<str>),
    /// A text literal, escapes resolved.
    Text(Box<str>),
    /// An operator or a bracket.
    Symbol(&'static str),
    /// The end of the text.
    End,
}

/// A token and where it stands.
#[derive(Clone, Debug)]
pub(crate) struct Token {
    pub tok: Tok,
    pub at: Range<usize>,
}

/// Longer ones before their prefixes.
const SYMBOLS: [&str; 26] = [
    "??", "&&", "||", "==", "!=", "<=", ">=", "<", ">", "+", "-", "*", "/", "%", "!", "?", ":",
    ",", ".", "(", ")", "[", "]", "{", "}", ";",
];

/// What people write out of habit, and what it is here.
const HABITS: [(&str, &str); 8] = [
    ("=>", "list.exists(x, condition)"),
    ("=<", "<="),
    ("<>", "!="),
    ("===", "=="),
    ("=~", ".matches(\"…\")"),
    ("=", "=="),
    ("&", "&&"),
    ("|", "||"),
];

/// All tokens of `text`, the last one [`Tok::End`].
pub(crate) fn tokens(text: &str) -> Result<Vec<Token>, ExprError> {
    let mut lexer = Lexer { text, pos: 0 };
    let mut tokens = Vec::new();
    loop {
        lexer.skip_blank()?;
        let start = lexer.pos;
        let tok = lexer.next()?;
        let end = tok == Tok::End;
        tokens.push(Token {
            tok,
            at: start..lexer.pos,
        });
        if end {
            return Ok(tokens);
        }
    }
}

struct Lexer<'t> {
    text: &'t str,
    pos: usize,
}

impl<'t> Lexer<'t> {
    fn rest(&self) -> &'t str {
        &self.text[self.pos..]
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    /// Takes characters as long as `wanted` likes them.
    fn take_while(&mut self, wanted: impl Fn(char) -> bool) -> &'t str {
        let rest = self.rest();
        let len = rest.find(|c| !wanted(c)).unwrap_or(rest.len());
        self.pos += len;
        &rest[..len]
    }

    /// Skips whitespace and `//` comments, which end with their line. Where there is one line only, `//` is a division that other
    /// languages have, and would silently take the rest of the expression away.
    fn skip_blank(&mut self) -> Result<(), ExprError> {
        loop {
            self.take_while(char::is_whitespace);
            if !self.rest().starts_with("//") {
                return Ok(());
            }
            if !self.text.trim().contains('\n') {
                let message = "`//` starts a comment, which only an expression of several lines may have; `/` divides whole numbers \
                               without decimals, and `int(a / b)` any others";
                return Err(ExprError::new(message, self.pos..self.pos + 2).suggest("/"));
            }
            self.take_while(|c| c != '\n');
        }
    }

    fn next(&mut self) -> Result<Tok, ExprError> {
        let Some(first) = self.peek() else {
            return Ok(Tok::End);
        };
        if first == '"' || first == '\'' {
            return self.string(false);
        }
        if first == '`' {
            return self.quoted_name();
        }
        let second = self.rest().chars().nth(1);
        if first.is_ascii_digit() || first == '.' && second.is_some_and(|c| c.is_ascii_digit()) {
            return self.number();
        }
        if is_name_start(first) {
            return self.name();
        }
        if let Some((habit, right)) = HABITS.iter().find(|(habit, _)| self.is_habit(habit)) {
            let at = self.pos..self.pos + habit.len();
            let before = self.text[..self.pos].matches('(').count();
            let is_argument = before > self.text[..self.pos].matches(')').count();
            let right = match *habit {
                "=>" if !is_argument => ">=",
                _ => right,
            };
            return Err(ExprError::new(format!("`{habit}` is not an operator"), at).suggest(right));
        }
        if "“”„‘’‚«»".contains(first) {
            let message = format!("`{first}` is a typographic quote; texts stand in straight ones");
            let at = self.pos..self.pos + first.len_utf8();
            return Err(ExprError::new(message, at).suggest("\""));
        }
        let Some(symbol) = SYMBOLS
            .iter()
            .find(|symbol| self.rest().starts_with(**symbol))
        else {
            let at = self.pos..self.pos + first.len_utf8();
            return Err(ExprError::new(
                format!("unexpected character `{first}`"),
                at,
            ));
        };
        self.pos += symbol.len();
        Ok(Tok::Symbol(symbol))
    }

    /// Whether the text goes on with a wrong operator that is no part of a right one.
    fn is_habit(&self, habit: &str) -> bool {
        let rest = self.rest();
        let is_longer = |symbol: &&str| symbol.len() >= habit.len() && rest.starts_with(*symbol);
        rest.starts_with(habit) && !SYMBOLS.iter().any(is_longer)
    }

    fn name(&mut self) -> Result<Tok, ExprError> {
        let start = self.pos;
        let name = self.take_while(is_name);
        if matches!(self.peek(), Some('"' | '\'')) {
            match &*name.to_ascii_lowercase() {
                "r" => return self.string(true),
                "b" | "rb" | "br" => {
                    let message = "bytes literals are not supported; write the text without `b`";
                    return Err(ExprError::new(message, start..self.pos));
                }
                _ => {}
            }
        }
        Ok(Tok::Name(name.into()))
    }

    fn quoted_name(&mut self) -> Result<Tok, ExprError> {
        let start = self.pos;
        self.pos += 1;
        let name = self.take_while(|c| c != '`');
        if self.peek().is_none() {
            return Err(ExprError::new(
                "the quoted name has no closing backtick",
                start..self.pos,
            ));
        }
        self.pos += 1;
        Ok(Tok::Quoted(name.into()))
    }

    fn number(&mut self) -> Result<Tok, ExprError> {
        let start = self.pos;
        let rest = self.rest();
        if rest.starts_with("0x") || rest.starts_with("0X") {
            self.pos += 2;
            let digits = self.take_while(|c| c.is_ascii_hexdigit());
            let value = u64::from_str_radix(digits, 16).map_err(|_| {
                ExprError::new("a hexadecimal number has 1 to 16 digits", start..self.pos)
            })?;
            self.end_of_number(start, true)?;
            return Ok(Tok::Number(value.to_string().into()));
        }
        let digits = |lexer: &mut Self| lexer.take_while(|c| c.is_ascii_digit()).len();
        digits(self);
        let mut whole = true;
        let mut after = self.rest().chars();
        if after.next() == Some('.') && after.next().is_some_and(|c| c.is_ascii_digit()) {
            self.pos += 1;
            digits(self);
            whole = false;
        }
        let exponent = self.rest().strip_prefix(['e', 'E']);
        if let Some(exponent) = exponent.map(|text| text.strip_prefix(['+', '-']).unwrap_or(text))
            && exponent.starts_with(|c: char| c.is_ascii_digit())
        {
            self.pos = self.text.len() - exponent.len();
            digits(self);
            whole = false;
        }
        let text = &self.text[start..self.pos];
        self.refuse_more_dots(start)?;
        self.end_of_number(start, whole)?;
        check_number(text, start)?;
        let zero = if text.starts_with('.') { "0" } else { "" };
        Ok(Tok::Number(format!("{zero}{text}").into()))
    }

    /// Refuses `1.2.3` and `10.0.0.1`, which no number is.
    fn refuse_more_dots(&mut self, start: usize) -> Result<(), ExprError> {
        let mut after = self.rest().chars();
        if after.next() != Some('.') || !after.next().is_some_and(|c| c.is_ascii_digit()) {
            return Ok(());
        }
        self.take_while(|c| c.is_ascii_digit() || c == '.');
        let text = &self.text[start..self.pos];
        let message = format!("`{text}` is not a number; a text stands in quotes");
        Err(ExprError::new(message, start..self.pos).suggest(&format!("\"{text}\"")))
    }

    /// Takes the `u` of an unsigned number, which says nothing here, and refuses letters that stick to a number.
    fn end_of_number(&mut self, start: usize, whole: bool) -> Result<(), ExprError> {
        if whole && self.rest().starts_with(['u', 'U']) {
            self.pos += 1;
        }
        if self.take_while(is_name).is_empty() {
            return Ok(());
        }
        let text = &self.text[start..self.pos];
        let error = ExprError::new(format!("`{text}` is not a number"), start..self.pos);
        let is_duration = datetime::span::parse(text).is_some();
        Err(if is_duration {
            error.suggest(&format!("duration(\"{text}\")"))
        } else {
            error
        })
    }

    /// A text literal in single, double or triple quotes.
    fn string(&mut self, raw: bool) -> Result<Tok, ExprError> {
        let start = self.pos;
        let rest = self.rest();
        let triple = rest.starts_with("\"\"\"") || rest.starts_with("'''");
        let quotes = &rest[..if triple { 3 } else { 1 }];
        self.pos += quotes.len();
        let mut out = String::new();
        loop {
            if self.rest().starts_with(quotes) {
                self.pos += quotes.len();
                return Ok(Tok::Text(out.into()));
            }
            match self.peek() {
                None => {
                    return Err(ExprError::new(
                        "the text has no closing quote",
                        start..self.pos,
                    ));
                }
                Some('\n') if !triple => {
                    let message = "the text has no closing quote on its line";
                    return Err(ExprError::new(message, start..self.pos));
                }
                Some('\\') if !raw => out.push(self.escape()?),
                Some(c) => {
                    out.push(c);
                    self.pos += c.len_utf8();
                }
            }
        }
    }

    fn escape(&mut self) -> Result<char, ExprError> {
        let start = self.pos;
        self.pos += 1;
        let Some(letter) = self.peek() else {
            return Err(ExprError::new(
                "the text has no closing quote",
                start..self.pos,
            ));
        };
        self.pos += letter.len_utf8();
        let code = match letter {
            'n' => return Ok('\n'),
            't' => return Ok('\t'),
            'r' => return Ok('\r'),
            'a' => return Ok('\u{7}'),
            'b' => return Ok('\u{8}'),
            'f' => return Ok('\u{c}'),
            'v' => return Ok('\u{b}'),
            '\\' | '\'' | '"' | '`' | '?' => return Ok(letter),
            'x' | 'X' => self.code(16, 2),
            'u' => self.code(16, 4),
            'U' => self.code(16, 8),
            '0'..='3' => {
                self.pos -= 1;
                self.code(8, 3)
            }
            _ => {
                let message = format!(
                    "`\\{letter}` is not an escape; in a regex write `\\\\{letter}`, or r\"…\" for the whole"
                );
                return Err(ExprError::new(message, start..self.pos));
            }
        };
        code.and_then(char::from_u32).ok_or_else(|| {
            let message =
                "this escape does not name a character (\\x41, \\u0041, \\U00000041, \\101)";
            ExprError::new(message, start..self.pos)
        })
    }

    fn code(&mut self, radix: u32, digits: usize) -> Option<u32> {
        let text = self.rest().get(..digits)?;
        if !text.chars().all(|c| c.is_digit(radix)) {
            return None;
        }
        self.pos += digits;
        u32::from_str_radix(text, radix).ok()
    }
}

/// Refuses numbers that would silently be others: `00123`, which rather is a code of digits, and `1e400`.
fn check_number(text: &str, start: usize) -> Result<(), ExprError> {
    let at = start..start + text.len();
    let mut bytes = text.bytes();
    if bytes.next() == Some(b'0') && bytes.next().is_some_and(|next| next.is_ascii_digit()) {
        let message =
            format!("`{text}` begins with a zero, which a number does not; a text is quoted");
        return Err(ExprError::new(message, at).suggest(&format!("\"{text}\"")));
    }
    // Whole numbers keep their digits, however many.
    let is_float = text.contains(['.', 'e', 'E']);
    match text.parse::<f64>() {
        Ok(number) if is_float && number.is_infinite() => {
            let message = format!("`{text}` is beyond the range of 64-bit floats, about 1.8e308");
            Err(ExprError::new(message, at))
        }
        _ => Ok(()),
    }
}

fn is_name_start(c: char) -> bool {
    c.is_alphabetic() || c == '_' || c == '@'
}

fn is_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_' || c == '@'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_and_names() {
        let cases = [
            (r#""a\n\"\u00e4""#, Tok::Text("a\n\"ä".into())),
            (r"r'\d+'", Tok::Text(r"\d+".into())),
            ("'''it's'''", Tok::Text("it's".into())),
            (r"'\101\x42'", Tok::Text("AB".into())),
            ("0xFF", Tok::Number("255".into())),
            ("12u", Tok::Number("12".into())),
            (".5", Tok::Number("0.5".into())),
            ("0", Tok::Number("0".into())),
            ("0.25", Tok::Number("0.25".into())),
            ("1.5e-3", Tok::Number("1.5e-3".into())),
            ("@timestamp", Tok::Name("@timestamp".into())),
            ("größe", Tok::Name("größe".into())),
            ("`x-y`", Tok::Quoted("x-y".into())),
        ];
        for (text, expected) in cases {
            let tokens = tokens(text).expect(text);
            assert_eq!(tokens[0].tok, expected, "{text}");
            assert_eq!(tokens[0].at, 0..text.len(), "{text}");
            assert_eq!(tokens.len(), 2, "{text}");
        }
    }

    #[test]
    fn symbols_comments_and_blanks() {
        let kinds: Vec<Tok> = tokens("a<=b // less\n&& c")
            .expect("valid")
            .into_iter()
            .map(|t| t.tok)
            .collect();
        let name = |text: &str| Tok::Name(text.into());
        let expected = [
            name("a"),
            Tok::Symbol("<="),
            name("b"),
            Tok::Symbol("&&"),
            name("c"),
            Tok::End,
        ];
        assert_eq!(kinds, expected);
    }

    #[test]
    fn errors_point_at_their_place() {
        let cases = [
            ("a = 1", 2..3, Some("==")),
            ("a === 1", 2..5, Some("==")),
            ("a =~ 'x'", 2..4, Some(".matches(\"…\")")),
            ("a & b", 2..3, Some("&&")),
            ("a | b", 2..3, Some("||")),
            ("x > 5m", 4..6, Some("duration(\"5m\")")),
            ("12abc", 0..5, None),
            ("'abc", 0..4, None),
            ("'ab\nc'", 0..3, None),
            (r"'a\d'", 2..4, None),
            (r"'\ud800'", 1..7, None),
            ("b'x'", 0..1, None),
            ("`x", 0..2, None),
            ("ä # b", 3..4, None),
            ("0x", 0..2, None),
            ("zip == 00123", 7..12, Some("\"00123\"")),
            ("x > 007.5", 4..9, Some("\"007.5\"")),
            ("x < 1e400", 4..9, None),
            ("x > -1.5e999", 5..12, None),
            ("seconds // 60", 8..10, Some("/")),
            ("a == 1 // one\n", 7..9, Some("/")),
            ("v == 1.2.3", 5..10, Some("\"1.2.3\"")),
            ("ip == 10.0.0.1", 6..14, Some("\"10.0.0.1\"")),
            ("a == “x”", 5..8, Some("\"")),
            ("a <> 1", 2..4, Some("!=")),
            ("f(t => t)", 4..6, Some("list.exists(x, condition)")),
            ("f(a) =>t", 5..7, Some(">=")),
            ("a =< 1", 2..4, Some("<=")),
        ];
        for (text, at, suggestion) in cases {
            let error = tokens(text).expect_err(text);
            assert_eq!(
                (error.at, error.suggestion.as_deref()),
                (at, suggestion),
                "{text}: {}",
                error.message
            );
        }
    }
}
