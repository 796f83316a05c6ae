//! `%{NAME}`, `%{NAME:field}` and `%{NAME:field:type}`.

use super::Parser;
use crate::CaptureType;
use crate::ast::Node;
use crate::error::GrokError;
use crate::library::is_name_byte;

impl Parser<'_, '_> {
    /// Parses the reference at the current place and the definition that it names.
    pub(super) fn reference(&mut self) -> Result<Node, GrokError> {
        let start = self.at;
        self.at += 2;
        let Some(body) = self.until('}') else {
            return Err(self.error(start, "this %{ is never closed by a }"));
        };
        let mut parts = body.splitn(3, ':');
        let name = parts.next().unwrap_or_default();
        if name.is_empty() || !name.bytes().all(is_name_byte) {
            return Err(self.error(
                start + 2,
                format!("{name:?} is no pattern name; write %{{NAME:field:type}}"),
            ));
        }
        let field = parts.next();
        let kind = match parts.next() {
            None => CaptureType::Text,
            Some(text) => self.capture_type(text, start + 2 + body.len() - text.len())?,
        };
        let path = match field {
            Some(field) => Some(self.path(field, start + 2 + name.len() + 1)?),
            None if self.shared.options.named_captures_only => None,
            None => Some(vec![name.to_owned()]),
        };
        let number = path.map(|path| self.capture(path, kind));
        let node = self.definition(name, start)?;
        Ok(match number {
            Some(number) => Node::Capture(number, Box::new(node)),
            None => node,
        })
    }

    fn definition(&mut self, name: &str, start: usize) -> Result<Node, GrokError> {
        let Some(text) = self.shared.library.get(name) else {
            let closest = self.shared.library.closest(name);
            return Err(GrokError::UnknownPattern {
                place: self.place(start),
                name: name.to_owned(),
                closest,
            });
        };
        if let Some(first) = self.shared.open.iter().position(|open| open == name) {
            let mut cycle = self.shared.open[first..].to_vec();
            cycle.push(name.to_owned());
            return Err(GrokError::Recursion {
                place: self.place(start),
                cycle,
            });
        }
        self.shared.open.push(name.to_owned());
        let node = Parser::new(self.shared, Some(name.to_owned()), text).whole()?;
        self.shared.open.pop();
        Ok(Node::Named(name.to_owned(), Box::new(node)))
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
