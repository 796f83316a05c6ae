//! The expanded pattern as a tree: what both engines are made from.
//!
//! Invariant: captures are numbered in the order of their opening parentheses and every number occurs
//! once, so number `k` of the tree is group `k + 1` of the PCRE2 text.

use crate::class::Class;

/// How a repetition gives up what it took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Greed {
    /// As much as possible first.
    Greedy,
    /// As little as possible first.
    Lazy,
    /// As much as possible, and nothing is given back.
    Possessive,
}

/// A place in the text that must hold, without consuming anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Assertion {
    /// `^`: the start of the text or after a line feed that is not the last byte.
    LineStart,
    /// `$`: the end of the text or before a line feed.
    LineEnd,
    /// `\A` and `\G`.
    TextStart,
    /// `\z`.
    TextEnd,
    /// `\Z`: the end of the text or before a line feed that ends it.
    TextEndLine,
    /// `\b`.
    WordEdge,
    /// `\B`.
    NoWordEdge,
}

/// A pattern or a part of one.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Node {
    /// Matches without consuming.
    Empty,
    /// One code point.
    Char(char),
    /// One code point of a class.
    Class(Class),
    /// One after the other.
    Concat(Vec<Node>),
    /// The first that leads to a match.
    Alt(Vec<Node>),
    /// A repetition; `max` of `None` means without end.
    Repeat {
        node: Box<Node>,
        min: u32,
        max: Option<u32>,
        greed: Greed,
    },
    /// A capture and its number.
    Capture(usize, Box<Node>),
    /// `(?>…)`.
    Atomic(Box<Node>),
    /// `(?=…)`, `(?!…)`, `(?<=…)`, `(?<!…)`.
    Look {
        behind: bool,
        negative: bool,
        node: Box<Node>,
    },
    /// `^`, `$`, `\b` and so on.
    Assert(Assertion),
    /// What a capture took, again.
    Backref(usize),
    /// A construct that is only known to PCRE2 (`\R`, `\X`, `\K`), in its spelling.
    Foreign(&'static str),
    /// A library definition; the name is kept because some have a matcher of their own.
    Named(String, Box<Node>),
}

impl Node {
    /// The nodes directly below this one.
    pub fn children(&self) -> &[Node] {
        match self {
            Node::Concat(all) | Node::Alt(all) => all,
            Node::Repeat { node, .. }
            | Node::Capture(_, node)
            | Node::Atomic(node)
            | Node::Look { node, .. }
            | Node::Named(_, node) => std::slice::from_ref(node),
            _ => &[],
        }
    }

    /// Whether `test` holds for this node or any below it.
    pub fn any(&self, test: &dyn Fn(&Node) -> bool) -> bool {
        test(self) || self.children().iter().any(|child| child.any(test))
    }
}
