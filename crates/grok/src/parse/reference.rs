//! `%{NAME}`, `%{NAME:field}` and `%{NAME:field:type}`, each with `=expression` before the brace to define the
//! name, or with a blank and a remark.

use std::borrow::Cow;
use std::ops::Range;

use super::Parser;
use crate::CaptureType;
use crate::ast::Node;
use crate::error::GrokError;
use crate::library::is_name_byte;

impl<'a, 's> Parser<'a, 's> {
    /// Parses the reference at the current place and the definition that it names.
    pub(super) fn reference(&mut self) -> Result<Node, GrokError> {
        let start = self.at;
        self.at += 2;
        let name_at = self.at;
        let name = self.part(start, ":=}")?;
        if name.is_empty() || !name.bytes().all(is_name_byte) {
            return Err(self.error(
                name_at,
                format!("{name:?} is not a pattern name; write %{{NAME:field:type}}"),
            ));
        }
        let (mut path, mut kind) = (None, CaptureType::Text);
        if self.eat(":") {
            let at = self.at;
            let field = self.part(start, ":=}")?;
            path = Some(self.path(field, at)?);
            if self.eat(":") {
                let at = self.at;
                let text = self.part(start, "=}")?;
                kind = self.capture_type(text, at)?;
            }
        } else if !self.shared.options.named_captures_only {
            path = Some(vec![name.to_owned()]);
        }
        let inline = if self.eat("=") {
            Some(self.inline(name, start)?)
        } else {
            self.remark(start)?;
            None
        };
        let number = path.map(|path| self.capture(path, kind));
        let node = self.definition(name, inline, start)?;
        Ok(match number {
            Some(number) => Node::Capture(number, Box::new(node)),
            None => node,
        })
    }

    /// A name, field or type: everything up to a blank or one of `ends`.
    fn part(&mut self, start: usize, ends: &str) -> Result<&'s str, GrokError> {
        let rest = &self.source[self.at..];
        let is_end = |c: char| c.is_whitespace() || ends.contains(c);
        match rest.find(is_end) {
            Some(length) => {
                self.at += length;
                Ok(&rest[..length])
            }
            None => Err(self.unclosed(start)),
        }
    }

    fn unclosed(&self, start: usize) -> GrokError {
        self.error(start, "this %{ is never closed by a }")
    }

    /// What follows a blank up to the closing brace is a remark; Logstash reads it so.
    fn remark(&mut self, start: usize) -> Result<(), GrokError> {
        let at = self.at;
        let Some(remark) = self.until('}') else {
            return Err(self.unclosed(start));
        };
        // In Logstash this captures nothing, which nobody means.
        if remark.trim_start().starts_with([':', '=']) {
            return Err(self.error(at, "no blank may stand before : and ="));
        }
        Ok(())
    }

    /// The expression of `%{NAME=expression}`: up to the brace that closes the reference. Gives where it stands.
    fn inline(&mut self, name: &str, start: usize) -> Result<Range<usize>, GrokError> {
        let at = self.at;
        let mut depth = 0;
        loop {
            match self.next() {
                None => return Err(self.unclosed(start)),
                Some('\\') => {
                    self.next();
                }
                Some('{') => depth += 1,
                Some('}') if depth == 0 => break,
                Some('}') => depth -= 1,
                Some(_) => {}
            }
        }
        let range = at..self.at - 1;
        if range.is_empty() {
            return Err(self.error(at, format!("the definition of {name} is empty")));
        }
        Ok(range)
    }

    /// Parses what `name` stands for: the part of this text that defines it, or else what the pattern or the
    /// library has for it. The flags that hold here hold there too.
    fn definition(
        &mut self,
        name: &str,
        inline: Option<Range<usize>>,
        start: usize,
    ) -> Result<Node, GrokError> {
        if let Some(first) = self.shared.open.iter().position(|open| open == name) {
            let mut cycle = self.shared.open[first..].to_vec();
            cycle.push(name.to_owned());
            return Err(GrokError::Recursion {
                place: self.place(start),
                cycle,
            });
        }
        let (source, at, definition) = match inline {
            Some(range) => {
                let text = self.source[range.clone()].to_owned();
                self.shared.inline.insert(name.to_owned(), text);
                let source = self.source[..range.end].to_owned();
                (Cow::Owned(source), range.start, self.definition.clone())
            }
            None => match self.text_of(name) {
                Some(text) => (text, 0, Some(name.to_owned())),
                None => {
                    return Err(GrokError::UnknownPattern {
                        place: self.place(start),
                        name: name.to_owned(),
                        closest: self.shared.library.closest(name),
                    });
                }
            },
        };
        let flags = self.flags;
        self.shared.open.push(name.to_owned());
        let inner = Parser {
            shared: self.shared,
            definition,
            source: &source,
            at,
            flags,
        };
        let node = inner.whole()?;
        self.shared.open.pop();
        Ok(Node::Named(name.to_owned(), Box::new(node)))
    }

    /// The definition of a name; one that stands further left in the pattern goes before the library's.
    fn text_of(&self, name: &str) -> Option<Cow<'a, str>> {
        match self.shared.inline.get(name) {
            Some(text) => Some(Cow::Owned(text.clone())),
            None => self.shared.library.get(name).map(Cow::Borrowed),
        }
    }

    fn capture_type(&self, text: &str, offset: usize) -> Result<CaptureType, GrokError> {
        match text {
            "int" | "integer" | "long" => Ok(CaptureType::Int),
            "float" | "double" => Ok(CaptureType::Float),
            "string" | "text" => Ok(CaptureType::Text),
            other => Err(self.error(
                offset,
                format!("unknown type {other:?}; accepted are int, float and string"),
            )),
        }
    }

    /// The keys that a field name stands for: `[a][b]` and `a.b` are both `a`, then `b`.
    pub(super) fn path(&self, field: &str, offset: usize) -> Result<Vec<String>, GrokError> {
        // A question mark after the name stands in two stock definitions and has no meaning there.
        let name = field.strip_suffix('?').unwrap_or(field);
        let inner = name
            .strip_prefix('[')
            .and_then(|name| name.strip_suffix(']'));
        let keys: Vec<&str> = match inner {
            Some(inner) => inner.split("][").collect(),
            None => name.split('.').collect(),
        };
        let bad = |key: &&str| key.is_empty() || key.contains(['[', ']', '{', '<', '>']);
        if keys.iter().any(bad) {
            return Err(self.error(
                offset,
                format!("{field:?} is no field name; write name, a.b or [a][b]"),
            ));
        }
        Ok(keys.into_iter().map(str::to_owned).collect())
    }
}
