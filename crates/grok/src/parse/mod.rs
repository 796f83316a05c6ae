//! From pattern text to tree: Oniguruma's dialect as Ruby sets it up, plus `%{NAME:field:type}`.
//!
//! A definition is parsed where it is referred to, as a group of its own: flags such as `(?i)` that hold there
//! hold in it, its own flags end with it, and an error knows the definition and the byte in it. Decisions where
//! the dialect leaves one:
//!
//! - The dot takes line feeds, as if every pattern began with `(?m)`; `(?-m)` ends that.
//! - `\d`, `\w`, `\s` and `\h` are ASCII, `\b` and `[[:alpha:]]` know Unicode, as in Ruby.
//! - Plain parentheses group only; fields come from `%{NAME:field}` and `(?<field>…)`.
//! - `(?i)` folds single code points; no expansion such as `ß` to `ss` takes place.
//! - Refused, because a grok pattern has no use for them: numbered back-references, calls `\g<…>`,
//!   conditionals and absence operators.

mod class;
mod escape;
mod group;
mod reference;

use std::collections::BTreeMap;

use crate::ast::{Assertion, Greed, Node};
use crate::class::{Class, SetExpr, other_cases};
use crate::error::{ErrorPosition, GrokError};
use crate::library::Library;
use crate::{Capture, CaptureType, Options};

/// Nodes that a pattern may expand to; more is a definition that multiplies itself.
const NODES_MAX: usize = 400_000;

/// Nesting of groups and definitions that is accepted.
const DEPTH_MAX: usize = 200;

/// The largest count in `{n,m}`; PCRE2 takes no larger one.
const COUNT_MAX: u32 = 65_535;

/// Parses a whole pattern and names its captures.
pub(crate) fn parse(
    library: &Library,
    source: &str,
    options: &Options,
) -> Result<(Node, Vec<Capture>), GrokError> {
    let mut shared = Shared {
        library,
        options,
        captures: Vec::new(),
        open: Vec::new(),
        inline: BTreeMap::new(),
        nodes: 0,
        depth: 0,
    };
    let parser = Parser {
        shared: &mut shared,
        definition: None,
        source,
        at: 0,
        flags: Flags::default(),
    };
    let node = parser.whole()?;
    Ok((node, shared.captures))
}

/// What all definitions of one pattern share.
struct Shared<'a> {
    library: &'a Library,
    options: &'a Options,
    captures: Vec<Capture>,
    /// The definitions being parsed, outermost first.
    open: Vec<String>,
    /// What `%{NAME=expression}` defined so far.
    inline: BTreeMap<String, String>,
    nodes: usize,
    depth: usize,
}

#[derive(Clone, Copy)]
struct Flags {
    /// `(?m)`: the dot takes line feeds.
    dot_all: bool,
    /// `(?i)`.
    fold: bool,
    /// `(?x)`.
    extended: bool,
}

impl Default for Flags {
    /// Logstash compiles every pattern with `(?m)`, and some of its definitions rely on it.
    fn default() -> Flags {
        Flags {
            dot_all: true,
            fold: false,
            extended: false,
        }
    }
}

struct Parser<'a, 's> {
    shared: &'s mut Shared<'a>,
    definition: Option<String>,
    source: &'s str,
    at: usize,
    flags: Flags,
}

impl<'a, 's> Parser<'a, 's> {
    fn whole(mut self) -> Result<Node, GrokError> {
        let node = self.alternatives()?;
        match self.peek() {
            None => Ok(node),
            Some(_) => Err(self.error(self.at, "this parenthesis was never opened")),
        }
    }

    fn error(&self, offset: usize, message: impl Into<String>) -> GrokError {
        GrokError::Syntax {
            place: self.place(offset),
            message: message.into(),
        }
    }

    fn place(&self, offset: usize) -> ErrorPosition {
        ErrorPosition {
            definition: self.definition.clone(),
            offset,
        }
    }

    fn peek(&self) -> Option<char> {
        self.source[self.at..].chars().next()
    }

    fn next(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.at += c.len_utf8();
        Some(c)
    }

    fn eat(&mut self, text: &str) -> bool {
        let found = self.source[self.at..].starts_with(text);
        if found {
            self.at += text.len();
        }
        found
    }

    /// Everything up to and without `end`, which is consumed.
    fn until(&mut self, end: char) -> Option<&'s str> {
        let length = self.source[self.at..].find(end)?;
        let text = &self.source[self.at..self.at + length];
        self.at += length + end.len_utf8();
        Some(text)
    }

    /// Alternatives up to a closing parenthesis or the end.
    fn alternatives(&mut self) -> Result<Node, GrokError> {
        self.shared.depth += 1;
        if self.shared.depth > DEPTH_MAX {
            return Err(self.error(self.at, format!("groups nest deeper than {DEPTH_MAX}")));
        }
        let mut all = vec![self.sequence()?];
        while self.eat("|") {
            all.push(self.sequence()?);
        }
        self.shared.depth -= 1;
        Ok(if all.len() == 1 {
            all.remove(0)
        } else {
            Node::Alt(all)
        })
    }

    fn sequence(&mut self) -> Result<Node, GrokError> {
        let mut all = Vec::new();
        loop {
            self.skip_extended();
            let start = self.at;
            match self.peek() {
                None | Some('|' | ')') => break,
                Some('*' | '+' | '?') => {
                    return Err(self.error(start, "nothing stands here that could be repeated"));
                }
                Some(_) => {}
            }
            let Some(node) = self.item()? else { continue };
            let node = self.quantifiers(node)?;
            self.shared.nodes += 1;
            if self.shared.nodes > NODES_MAX {
                return Err(self.error(start, "the definitions expand to too large a pattern"));
            }
            all.push(node);
        }
        Ok(match all.len() {
            0 => Node::Empty,
            1 => all.remove(0),
            _ => Node::Concat(all),
        })
    }

    /// Under `(?x)`, blanks and comments mean nothing.
    fn skip_extended(&mut self) {
        while self.flags.extended {
            match self.peek() {
                Some('#') => {
                    let rest = &self.source[self.at..];
                    self.at += rest.find('\n').map_or(rest.len(), |line| line + 1);
                }
                Some(c) if c.is_ascii_whitespace() => self.at += 1,
                _ => break,
            }
        }
    }

    /// One item without its quantifiers; `None` for a comment or a flag that changes what follows.
    fn item(&mut self) -> Result<Option<Node>, GrokError> {
        if self.source[self.at..].starts_with("%{") {
            return self.reference().map(Some);
        }
        let start = self.at;
        let Some(c) = self.next() else {
            return Ok(None);
        };
        Ok(Some(match c {
            '(' => return self.group(start),
            '[' => self.bracket_class(start)?,
            '\\' => self.escape(start)?,
            '.' => Node::Class(self.dot()),
            '^' => Node::Assert(Assertion::LineStart),
            '$' => Node::Assert(Assertion::LineEnd),
            c => self.literal(c),
        }))
    }

    fn dot(&self) -> Class {
        let none = if self.flags.dot_all {
            vec![]
        } else {
            vec![('\n', '\n')]
        };
        SetExpr::ranges(&none).negate().freeze()
    }

    fn literal(&self, c: char) -> Node {
        if self.flags.fold && other_cases(c as u32).next().is_some() {
            return Node::Class(SetExpr::ranges(&[(c, c)]).fold_case().freeze());
        }
        Node::Char(c)
    }

    fn quantifiers(&mut self, mut node: Node) -> Result<Node, GrokError> {
        loop {
            self.skip_extended();
            let (min, max, braces) = match self.peek() {
                Some('*') => (0, None, false),
                Some('+') => (1, None, false),
                Some('?') => (0, Some(1), false),
                Some('{') => match self.braces()? {
                    Some((min, max)) => (min, max, true),
                    None => return Ok(node),
                },
                _ => return Ok(node),
            };
            if !braces {
                self.at += 1;
            }
            node = self.repeat(node, min, max, braces);
        }
    }

    /// Reads what follows a quantifier. Ruby reads `{n,m}+` and `{n}?` as two quantifiers, not as one.
    fn repeat(&mut self, node: Node, min: u32, max: Option<u32>, braces: bool) -> Node {
        let fixed = braces && max == Some(min);
        let greed = if !fixed && self.eat("?") {
            Greed::Lazy
        } else if !braces && self.eat("+") {
            Greed::Possessive
        } else {
            Greed::Greedy
        };
        match node {
            // `.?*` is `.*`: without this the inner repetition could match nothing for ever.
            Node::Repeat {
                node,
                min: 0 | 1,
                max: None | Some(1),
                greed: Greed::Greedy,
            } if greed == Greed::Greedy && max.is_none() && min == 0 => Node::Repeat {
                node,
                min: 0,
                max: None,
                greed,
            },
            // `([a-z]+)+` ends where `[a-z]+` ends, in the same order, and would try each end many times.
            Node::Repeat {
                node,
                min: least @ (0 | 1),
                max: None,
                greed: Greed::Greedy,
            } if greed == Greed::Greedy
                && min <= 1
                && max != Some(0)
                && matches!(*node, Node::Char(_) | Node::Class(_)) =>
            {
                Node::Repeat {
                    node,
                    min: least * min,
                    max: None,
                    greed,
                }
            }
            node => Node::Repeat {
                node: Box::new(node),
                min,
                max,
                greed,
            },
        }
    }

    /// `{n}`, `{n,}`, `{,m}` or `{n,m}`; anything else is literal text.
    fn braces(&mut self) -> Result<Option<(u32, Option<u32>)>, GrokError> {
        let start = self.at;
        let rest = &self.source[start + 1..];
        let Some(length) = rest.find('}') else {
            return Ok(None);
        };
        let body = &rest[..length];
        let (low, high) = body.split_once(',').unwrap_or((body, body));
        let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
        if !digits(low) || !digits(high) || (low.is_empty() && high.is_empty()) {
            return Ok(None);
        }
        let number = |text: &str| text.parse::<u32>().ok().filter(|&n| n <= COUNT_MAX);
        let too_large = || self.error(start, format!("a repetition counts up to {COUNT_MAX}"));
        let min = if low.is_empty() {
            0
        } else {
            number(low).ok_or_else(too_large)?
        };
        let max = if high.is_empty() {
            None
        } else {
            Some(number(high).ok_or_else(too_large)?)
        };
        if max.is_some_and(|max| max < min) {
            return Err(self.error(start, "the first count is larger than the second"));
        }
        self.at = start + length + 2;
        Ok(Some((min, max)))
    }

    /// Adds a capture and gives its number.
    fn capture(&mut self, path: Vec<String>, kind: CaptureType) -> usize {
        self.shared.captures.push(Capture { path, kind });
        self.shared.captures.len() - 1
    }
}

#[cfg(test)]
mod tests;
