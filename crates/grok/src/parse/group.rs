//! What stands in parentheses.

use super::{Flags, Parser};
use crate::CaptureType;
use crate::ast::Node;
use crate::error::GrokError;

/// Makes a group of its content.
type MakeGroup = fn(Box<Node>) -> Node;

impl Parser<'_, '_> {
    /// Parses a group whose opening parenthesis at `start` has just been read.
    pub(super) fn group(&mut self, start: usize) -> Result<Option<Node>, GrokError> {
        if !self.eat("?") {
            return self.body(start).map(Some);
        }
        if self.eat("#") {
            return match self.until(')') {
                Some(_) => Ok(None),
                None => Err(self.error(start, "this comment is never closed")),
            };
        }
        let simple: [(&str, MakeGroup); 6] = [
            (":", |node| *node),
            (">", Node::Atomic),
            ("=", |node| Node::Look {
                behind: false,
                negative: false,
                node,
            }),
            ("!", |node| Node::Look {
                behind: false,
                negative: true,
                node,
            }),
            ("<=", |node| Node::Look {
                behind: true,
                negative: false,
                node,
            }),
            ("<!", |node| Node::Look {
                behind: true,
                negative: true,
                node,
            }),
        ];
        for (mark, make) in simple {
            if self.eat(mark) {
                return Ok(Some(make(Box::new(self.body(start)?))));
            }
        }
        if self.eat("<") || self.eat("P<") || self.eat("'") {
            return self.named_group(start).map(Some);
        }
        if self.eat("~") || self.eat("(") {
            return Err(self.error(
                start,
                "absence operators and conditionals are not supported",
            ));
        }
        self.flag_group(start).map(Some)
    }

    /// The alternatives of a group and its closing parenthesis; flags end with the group.
    fn body(&mut self, start: usize) -> Result<Node, GrokError> {
        let outside = self.flags;
        let node = self.alternatives()?;
        self.flags = outside;
        if !self.eat(")") {
            return Err(self.error(start, "this parenthesis is never closed"));
        }
        Ok(node)
    }

    fn named_group(&mut self, start: usize) -> Result<Node, GrokError> {
        let end = if self.source[..self.at].ends_with('\'') {
            '\''
        } else {
            '>'
        };
        let at = self.at;
        let Some(name) = self.until(end) else {
            return Err(self.error(start, "the name of this group is never closed"));
        };
        let path = self.path(name, at)?;
        let number = self.capture(path, CaptureType::Text);
        Ok(Node::Capture(number, Box::new(self.body(start)?)))
    }

    /// `(?im-x:…)`, or `(?im-x)` for everything up to the end of the enclosing group: in this dialect
    /// that takes the alternatives which follow in as well.
    fn flag_group(&mut self, start: usize) -> Result<Node, GrokError> {
        let outside = self.flags;
        let mut on = true;
        loop {
            let at = self.at;
            match self.next() {
                Some('-') => on = false,
                Some('m') => self.flags.dot_all = on,
                Some('i') => self.flags.fold = on,
                Some('x') => self.flags.extended = on,
                // Ruby's character set flags: (?d) is what this dialect does anyway.
                Some('d') => {}
                Some(':') => {
                    let inside = self.flags;
                    let node = self.flagged(inside, |parser| parser.body(start));
                    self.flags = outside;
                    return node;
                }
                Some(')') => return self.alternatives(),
                _ => return Err(self.error(at, "unknown group; accepted are (?:, (?<name>, (?>, (?=, (?!, (?<=, (?<!, (?#, and the flags i, m and x")),
            }
        }
    }

    fn flagged(
        &mut self,
        flags: Flags,
        parse: impl FnOnce(&mut Self) -> Result<Node, GrokError>,
    ) -> Result<Node, GrokError> {
        self.flags = flags;
        parse(self)
    }
}
