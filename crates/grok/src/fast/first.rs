//! Which bytes can begin a part of the pattern together with what follows it.
//!
//! The sets may be too large, never too small: a byte that is not in the set cannot begin a match.

use super::lower::{Table, Tree, member};
use crate::ast::Assertion;

/// A set of bytes, and whether the end of the text will do.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct First {
    /// The bytes.
    pub bytes: [bool; 256],
    /// Whether a match is possible at the end of the text.
    pub end: bool,
    /// Whether what follows always succeeds, whatever stands there: then no choice before it is ever revised.
    pub always: bool,
}

impl First {
    /// What follows accepts everything and cannot fail.
    pub fn accept() -> First {
        First {
            bytes: [true; 256],
            end: true,
            always: true,
        }
    }

    fn none() -> First {
        First {
            bytes: [false; 256],
            end: false,
            always: false,
        }
    }

    /// Either of two.
    pub fn or(mut self, other: &First) -> First {
        self.bytes
            .iter_mut()
            .zip(&other.bytes)
            .for_each(|(a, b)| *a |= b);
        self.end |= other.end;
        self.always = false;
        self
    }

    /// What is left when a condition has to hold here as well.
    fn only(mut self, test: impl Fn(usize) -> bool, end: bool) -> First {
        self.bytes
            .iter_mut()
            .enumerate()
            .for_each(|(byte, can)| *can &= test(byte));
        self.end &= end;
        self.always = false;
        self
    }

    /// Whether a member of the class can begin what follows.
    pub fn meets(&self, table: &Table) -> bool {
        table
            .iter()
            .zip(&self.bytes)
            .any(|(&value, &can)| can && value != member::NO)
    }

    /// The bytes that can begin a member of the class.
    pub fn of_table(table: &Table) -> First {
        let mut first = First::none();
        first
            .bytes
            .iter_mut()
            .zip(table)
            .for_each(|(can, &value)| *can = value != member::NO);
        first
    }
}

/// The set of `tree` when `follow` is that of what comes after it.
pub(super) fn first(tree: &Tree, follow: &First) -> First {
    match tree {
        Tree::Empty => follow.clone(),
        Tree::Look {
            behind: false,
            negative: false,
            body,
        } => match body.as_ref() {
            Tree::Set(table) => follow.clone().only(|byte| table[byte] != member::NO, false),
            _ => follow.clone().only(|_| true, true),
        },
        Tree::Assert(Assertion::LineEnd | Assertion::TextEndLine) => {
            follow.clone().only(|byte| byte == usize::from(b'\n'), true)
        }
        Tree::Assert(Assertion::TextEnd) => follow.clone().only(|_| false, true),
        Tree::Look { .. } | Tree::Assert(_) => follow.clone().only(|_| true, true),
        Tree::Literal(text) => {
            let mut first = First::none();
            first.bytes[usize::from(text[0])] = true;
            first
        }
        Tree::Set(table) => First::of_table(table),
        Tree::Concat(all) => first_of_all(all, follow),
        Tree::Alt(all) => all
            .iter()
            .fold(First::none(), |set, branch| set.or(&first(branch, follow))),
        Tree::Repeat { body, min, max, .. } => {
            if *max == Some(0) {
                return follow.clone();
            }
            let entered = first(body, follow);
            if *min == 0 {
                entered.or(follow)
            } else {
                entered
            }
        }
        // What follows an atomic group does not choose within it, yet whatever it chooses begins with its own
        // bytes, or with those of what follows when it chooses nothing.
        Tree::Capture(_, body) | Tree::Atomic(body) | Tree::Atom(_, body) => first(body, follow),
    }
}

/// The set of several trees one after the other.
pub(super) fn first_of_all(all: &[Tree], follow: &First) -> First {
    // Nothing behind the first part that must consume something can be reached.
    let reachable = all
        .iter()
        .position(|tree| !tree.nullable())
        .map_or(all.len(), |last| last + 1);
    all[..reachable]
        .iter()
        .rev()
        .fold(follow.clone(), |follow, tree| first(tree, &follow))
}
