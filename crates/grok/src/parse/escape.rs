//! What follows a backslash, inside and outside of brackets.

use super::Parser;
use crate::ast::{Assertion, Node};
use crate::class::{Property, SetExpr};
use crate::error::GrokError;

/// An escape that stands for code points.
pub(super) enum Escaped {
    /// One code point.
    Char(char),
    /// A set.
    Set(SetExpr),
}

impl Parser<'_, '_> {
    /// Parses an escape outside of brackets whose backslash at `start` has just been read.
    pub(super) fn escape(&mut self, start: usize) -> Result<Node, GrokError> {
        let Some(c) = self.peek() else {
            return Err(self.error(start, "a backslash ends the pattern"));
        };
        let node = match c {
            'A' | 'G' => Node::Assert(Assertion::TextStart),
            'z' => Node::Assert(Assertion::TextEnd),
            'Z' => Node::Assert(Assertion::TextEndLine),
            'b' => Node::Assert(Assertion::WordEdge),
            'B' => Node::Assert(Assertion::NoWordEdge),
            'R' => Node::Foreign("\\R"),
            'X' => Node::Foreign("\\X"),
            'K' => Node::Foreign("\\K"),
            'k' => return self.back_reference(start),
            'g' => return Err(self.error(start, "calls of groups are not supported")),
            '1'..='9' => return Err(self.error(
                start,
                "numbered back-references are not supported; name the group and write \\k<name>",
            )),
            _ => {
                return Ok(match self.escaped(start)? {
                    Escaped::Char(c) => self.literal(c),
                    Escaped::Set(set) => Node::Class(set.freeze()),
                });
            }
        };
        self.at += 1;
        Ok(node)
    }

    fn back_reference(&mut self, start: usize) -> Result<Node, GrokError> {
        self.at += 1;
        let name = if self.eat("<") { self.until('>') } else { None };
        let Some(name) = name else {
            return Err(self.error(start, "a back-reference is written \\k<name>"));
        };
        let path = self.path(name, start + 3)?;
        let found = self
            .shared
            .captures
            .iter()
            .rposition(|capture| capture.path == path);
        found
            .map(Node::Backref)
            .ok_or_else(|| self.error(start, format!("no group before this one is named {name}")))
    }

    /// An escape that is the same inside and outside of brackets.
    pub(super) fn escaped(&mut self, start: usize) -> Result<Escaped, GrokError> {
        let Some(c) = self.next() else {
            return Err(self.error(start, "a backslash ends the pattern"));
        };
        let set = match c {
            'd' | 'D' => digits(),
            'w' | 'W' => word(),
            's' | 'S' => space(),
            'h' | 'H' => SetExpr::ranges(&[('0', '9'), ('A', 'F'), ('a', 'f')]),
            'p' | 'P' => {
                let set = self.property(start)?;
                return Ok(Escaped::Set(if c == 'P' { set.negate() } else { set }));
            }
            other => return self.code_point(start, other).map(Escaped::Char),
        };
        Ok(Escaped::Set(if c.is_ascii_uppercase() {
            set.negate()
        } else {
            set
        }))
    }

    fn code_point(&mut self, start: usize, c: char) -> Result<char, GrokError> {
        Ok(match c {
            't' => '\t',
            'n' => '\n',
            'r' => '\r',
            'f' => '\u{c}',
            'v' => '\u{b}',
            'a' => '\u{7}',
            'e' => '\u{1b}',
            '0' => self.digits(start, 8, 0, 2)?,
            'u' => self.digits(start, 16, 4, 4)?,
            'x' if self.eat("{") => {
                let code = self.digits(start, 16, 1, 6)?;
                if !self.eat("}") {
                    return Err(self.error(start, "\\x{ is never closed by a }"));
                }
                code
            }
            'x' => self.digits(start, 16, 1, 2)?,
            'c' => match self.next() {
                Some(letter) if letter.is_ascii() => char::from(letter as u8 & 0x1f),
                _ => return Err(self.error(start, "\\c needs an ASCII letter")),
            },
            c if c.is_ascii_alphabetic()
                && !matches!(c, 'i' | 'j' | 'l' | 'm' | 'o' | 'q' | 'y')
                && c.is_ascii_uppercase() =>
            {
                return Err(self.error(start, format!("unknown escape \\{c}")));
            }
            other => other,
        })
    }

    fn digits(
        &mut self,
        start: usize,
        radix: u32,
        least: usize,
        most: usize,
    ) -> Result<char, GrokError> {
        let rest = &self.source[self.at..];
        let length = rest
            .chars()
            .take(most)
            .take_while(|c| c.is_digit(radix))
            .count();
        if length < least {
            return Err(self.error(start, "this escape lacks its digits"));
        }
        self.at += length;
        let code = u32::from_str_radix(&rest[..length], radix).unwrap_or(0);
        char::from_u32(code).ok_or_else(|| self.error(start, "this is no code point"))
    }

    /// `{Name}`, `{^Name}` after `\p`.
    fn property(&mut self, start: usize) -> Result<SetExpr, GrokError> {
        let name = if self.eat("{") { self.until('}') } else { None };
        let Some(name) = name else {
            return Err(self.error(start, "a property is written \\p{Name}"));
        };
        let (negative, name) = name
            .strip_prefix('^')
            .map_or((false, name), |name| (true, name));
        let set = match posix(&name.to_ascii_lowercase()) {
            Some(set) => set,
            None if !name.is_empty()
                && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') =>
            {
                SetExpr::Items(
                    vec![],
                    vec![Property {
                        text: format!("\\p{{{name}}}"),
                        ascii: None,
                    }],
                )
            }
            None => return Err(self.error(start, format!("{name:?} is no property"))),
        };
        Ok(if negative { set.negate() } else { set })
    }
}

fn digits() -> SetExpr {
    SetExpr::ranges(&[('0', '9')])
}

fn word() -> SetExpr {
    SetExpr::ranges(&[('0', '9'), ('A', 'Z'), ('_', '_'), ('a', 'z')])
}

fn space() -> SetExpr {
    SetExpr::ranges(&[('\t', '\r'), (' ', ' ')])
}

/// The bracket class of a name, which knows Unicode.
pub(super) fn posix(name: &str) -> Option<SetExpr> {
    let test: fn(u8) -> bool = match name {
        "alnum" => |b| b.is_ascii_alphanumeric(),
        "alpha" => |b| b.is_ascii_alphabetic(),
        "ascii" => return Some(SetExpr::ranges(&[('\0', '\x7f')])),
        "blank" => |b| b == b' ' || b == b'\t',
        "cntrl" => |b| b.is_ascii_control(),
        "digit" => |b| b.is_ascii_digit(),
        "graph" => |b| b.is_ascii_graphic(),
        "lower" => |b| b.is_ascii_lowercase(),
        "print" => |b| b.is_ascii_graphic() || b == b' ',
        "punct" => |b| b.is_ascii_punctuation(),
        "space" => |b| matches!(b, b'\t'..=b'\r' | b' '),
        "upper" => |b| b.is_ascii_uppercase(),
        "xdigit" => return Some(SetExpr::ranges(&[('0', '9'), ('A', 'F'), ('a', 'f')])),
        "word" => |b| b.is_ascii_alphanumeric() || b == b'_',
        _ => return None,
    };
    let ascii = Some(crate::class::bits(test));
    Some(SetExpr::Items(
        vec![],
        vec![Property {
            text: format!("[:{name}:]"),
            ascii,
        }],
    ))
}
