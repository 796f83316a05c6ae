//! The specialised matcher.
//!
//! One engine runs most patterns. A pattern becomes a flat program that tries its choices in exactly the order in
//! which PCRE2 tries them, so the first path that succeeds is the match that PCRE2 finds: it backtracks, and agrees
//! by construction. Differential property tests compare every definition of the libraries, and random patterns,
//! with PCRE2. Everything that makes it fast leaves that order alone, or leaves out choices that are known to fail:
//!
//! - A branch is skipped when the next byte cannot begin it and what follows ([`first`]).
//! - A repetition of one class gives nothing back when what follows cannot begin with a member.
//! - Some library definitions have code of their own ([`atom`]); it either has the same only choice as the
//!   definition, or gives the definition's first choice and leaves the others to the program.
//! - What a pattern surely contains is looked for before a second start is tried ([`search`]).
//!
//! A search is quick first. Whatever it cannot decide ends as [`Verdict::Unsure`]: `\b` or a class beside a code
//! point whose properties it does not know, a count of code points that are not ASCII, and running out of its
//! budget of steps, which is linear in the length of the text. A thorough search then goes through the same program
//! and asks PCRE2 about single code points, remembers what failed ([`machine`]), and has the pattern's match limit as
//! its budget. Only what that does not decide is left to PCRE2.
//!
//! | file | holds |
//! | --- | --- |
//! | `lower` | tree to matcher's tree: literals joined, definitions with code of their own found |
//! | `first` | which bytes can begin a part of the pattern |
//! | `compile` | matcher's tree to program |
//! | `layout` | the order of the operations |
//! | `program` | the operations and their tables |
//! | `machine` | runs them |
//! | `atom` | code for library definitions |
//! | `lanes` | searches for bytes |
//! | `search` | where in the text to try |

mod atom;
mod compile;
mod first;
mod lanes;
mod layout;
mod lower;
mod machine;
mod program;
mod search;
#[cfg(test)]
mod tests;

use crate::ast::Node;
use crate::capture::Span;
use machine::{Frame, Memo};
use program::Program;

/// What the specialised matcher says about a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The captures are those of the match.
    Match,
    /// The pattern is not in the text.
    NoMatch,
    /// Something else has to decide.
    Unsure,
}

/// A pattern's program.
#[derive(Debug)]
pub(crate) struct Matcher {
    program: Program,
    search: search::Search,
}

/// What one worker needs to run a [`Matcher`].
#[derive(Clone, Debug, Default)]
pub(crate) struct MatcherScratch {
    frames: Vec<Frame>,
    registers: Vec<u32>,
    memo: Memo,
}

impl Matcher {
    /// Compiles the tree, or says which construct stands in the way.
    pub fn new(node: &Node) -> Result<Matcher, &'static str> {
        let (tree, classes) = lower::lower(node)?;
        let search = search::Search::new(&tree);
        let mut program = compile::compile(&tree)?;
        program.classes = classes;
        Ok(Matcher { program, search })
    }

    /// Searches `text` for the leftmost match. After [`Verdict::Match`] every span has been written.
    #[inline]
    pub fn run(&self, text: &[u8], scratch: &mut MatcherScratch, spans: &mut [Span]) -> Verdict {
        if scratch.registers.len() < self.program.registers {
            scratch.registers.resize(self.program.registers, 0);
        }
        self.search.run(&self.program, text, scratch, spans)
    }

    /// The same for a text of which [`Matcher::run`] was not sure, in up to `budget` steps. Gives the steps as well.
    #[cold]
    pub fn run_thoroughly(
        &self,
        text: &[u8],
        budget: i64,
        scratch: &mut MatcherScratch,
        spans: &mut [Span],
    ) -> (Verdict, i64) {
        scratch.registers.resize(self.program.registers, 0);
        scratch.memo.clear();
        let found = self
            .search
            .run_thoroughly(&self.program, text, budget, scratch, spans);
        scratch.memo.clear();
        found
    }

    /// How many operations the program has.
    pub fn operations(&self) -> usize {
        self.program.steps.len()
    }
}
