//! What stands in brackets: ranges, escapes, `[:name:]`, nested sets and `&&`.

use super::Parser;
use super::escape::{Escaped, posix};
use crate::ast::Node;
use crate::class::SetExpr;
use crate::error::GrokError;

impl Parser<'_, '_> {
    /// Parses a class whose opening bracket at `start` has just been read.
    pub(super) fn bracket_class(&mut self, start: usize) -> Result<Node, GrokError> {
        let set = self.set(start, 0)?;
        let set = if self.flags.fold {
            set.fold_case()
        } else {
            set
        };
        Ok(Node::Class(set.freeze()))
    }

    fn set(&mut self, start: usize, depth: usize) -> Result<SetExpr, GrokError> {
        if depth > 20 {
            return Err(self.error(start, "brackets nest too deeply"));
        }
        let negative = self.eat("^");
        let mut whole: Option<SetExpr> = None;
        let mut part = SetExpr::Items(vec![], vec![]);
        let mut first = true;
        loop {
            let at = self.at;
            if self.eat("&&") {
                whole = Some(intersect(
                    whole,
                    std::mem::replace(&mut part, SetExpr::Items(vec![], vec![])),
                ));
                continue;
            }
            match self.next() {
                None => return Err(self.error(start, "this bracket is never closed")),
                Some(']') if !first => break,
                Some('[') => part = part.union(self.nested(at, depth)?),
                Some(c) => part = part.union(self.member(at, c)?),
            }
            first = false;
        }
        let set = match whole {
            Some(whole) => intersect(Some(whole), part),
            None => part,
        };
        Ok(if negative { set.negate() } else { set })
    }

    fn nested(&mut self, at: usize, depth: usize) -> Result<SetExpr, GrokError> {
        if !self.source[self.at..].starts_with(':') {
            return self.set(at, depth + 1);
        }
        let rest = &self.source[self.at + 1..];
        let Some((name, _)) = rest.split_once(":]") else {
            return self.set(at, depth + 1);
        };
        let (negative, plain) = name
            .strip_prefix('^')
            .map_or((false, name), |name| (true, name));
        let Some(set) = posix(plain) else {
            return Err(self.error(at, format!("[:{name}:] is no class")));
        };
        self.at += name.len() + 3;
        Ok(if negative { set.negate() } else { set })
    }

    /// A single member or a range that starts with it.
    fn member(&mut self, at: usize, c: char) -> Result<SetExpr, GrokError> {
        let low = match self.member_char(at, c)? {
            Escaped::Char(low) => low,
            Escaped::Set(set) => return Ok(set),
        };
        let rest = &self.source[self.at..];
        let is_range = rest.starts_with('-')
            && !rest[1..].starts_with(']')
            && !rest[1..].starts_with('[')
            && rest.len() > 1;
        if !is_range {
            return Ok(SetExpr::ranges(&[(low, low)]));
        }
        let back = self.at;
        self.at += 1;
        let high_at = self.at;
        let Some(c) = self.next() else {
            return Err(self.error(at, "this bracket is never closed"));
        };
        match self.member_char(high_at, c)? {
            Escaped::Char(high) if high >= low => Ok(SetExpr::ranges(&[(low, high)])),
            Escaped::Char(_) => Err(self.error(at, "this range is upside down")),
            Escaped::Set(_) => {
                // `[a-\d]`: the hyphen is a member.
                self.at = back;
                Ok(SetExpr::ranges(&[(low, low)]))
            }
        }
    }

    fn member_char(&mut self, at: usize, c: char) -> Result<Escaped, GrokError> {
        match c {
            '\\' if self.eat("b") => Ok(Escaped::Char('\u{8}')),
            '\\' => self.escaped(at),
            c => Ok(Escaped::Char(c)),
        }
    }
}

fn intersect(whole: Option<SetExpr>, part: SetExpr) -> SetExpr {
    match whole {
        Some(whole) => SetExpr::And(Box::new(whole), Box::new(part)),
        None => part,
    }
}
