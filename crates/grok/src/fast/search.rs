//! Where in a text a match may begin, and proof that there is none.

use memchr::memmem::Finder;

use super::first::{First, first};
use super::lower::{Tree, member};
use super::machine::Machine;
use super::program::Program;
use super::{MatcherScratch, Verdict};
use crate::ast::Assertion;
use crate::capture::Span;

/// Steps that every text may take, and steps for every byte of it.
const BUDGET_BASE: i64 = 1024;
const BUDGET_PER_BYTE: i64 = 4;

/// A thorough search begins to remember failures after so many steps; in unit tests at once, where texts are short.
const MEMO_AFTER: i64 = if cfg!(test) { 0 } else { 256 };

/// In texts that are longer, what every match contains is looked for before the first start is tried.
const LONG_TEXT_BYTES: usize = 4096;

/// Where a match may begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Anchor {
    Text,
    Line,
    None,
}

/// What is known of a pattern before it is run.
#[derive(Debug)]
pub(super) struct Search {
    anchor: Anchor,
    /// The bytes that can begin a match.
    can_begin: Box<[bool; 256]>,
    /// Whether a match can begin at the end of the text.
    end: bool,
    /// Literals that every match contains, in this order.
    needles: Vec<Finder<'static>>,
}

impl Search {
    /// Looks a pattern over.
    pub fn new(tree: &Tree) -> Search {
        let begin = first(tree, &First::accept());
        let mut literals = vec![Vec::new()];
        collect_literals(tree, &mut literals);
        let needles = literals
            .iter()
            .filter(|l| !l.is_empty())
            .map(|l| Finder::new(l).into_owned())
            .collect();
        Search {
            anchor: anchor(tree),
            can_begin: Box::new(begin.bytes),
            end: begin.end,
            needles,
        }
    }

    /// Searches `text` for the leftmost match.
    #[inline]
    pub fn run(
        &self,
        program: &Program,
        text: &[u8],
        scratch: &mut MatcherScratch,
        spans: &mut [Span],
    ) -> Verdict {
        let budget = BUDGET_BASE + BUDGET_PER_BYTE * text.len() as i64;
        self.run_in::<false>(&mut Machine {
            program,
            text,
            spans,
            scratch,
            budget,
            memo_below: 0,
        })
    }

    /// The same thoroughly; gives the steps that were taken as well.
    pub fn run_thoroughly(
        &self,
        program: &Program,
        text: &[u8],
        budget: i64,
        scratch: &mut MatcherScratch,
        spans: &mut [Span],
    ) -> (Verdict, i64) {
        let mut machine = Machine {
            program,
            text,
            spans,
            scratch,
            budget,
            memo_below: budget - MEMO_AFTER,
        };
        let verdict = self.run_in::<true>(&mut machine);
        (verdict, budget - machine.budget)
    }

    #[inline(always)]
    fn run_in<const THOROUGH: bool>(&self, machine: &mut Machine<'_, THOROUGH>) -> Verdict {
        let text = machine.text;
        let Some(mut start) = self.next_start(text, 0) else {
            return Verdict::NoMatch;
        };
        let long = text.len() > LONG_TEXT_BYTES;
        if long && !self.has_needles(&text[start..]) {
            return Verdict::NoMatch;
        }
        match machine.run(start) {
            Verdict::NoMatch => {}
            verdict => return verdict,
        }
        if !long && !self.has_needles(&text[start..]) {
            return Verdict::NoMatch;
        }
        while let Some(next) = self.next_start(text, start + 1) {
            start = next;
            machine.budget -= 1;
            if machine.budget < 0 {
                return Verdict::Unsure;
            }
            match machine.run(start) {
                Verdict::NoMatch => {}
                verdict => return verdict,
            }
        }
        Verdict::NoMatch
    }

    /// The first place at or after `from` where a match may begin.
    #[inline]
    fn next_start(&self, text: &[u8], from: usize) -> Option<usize> {
        let mut at = from;
        loop {
            match self.anchor {
                Anchor::Text if at > 0 => return None,
                Anchor::Line if at > 0 => at += memchr::memchr(b'\n', text.get(at - 1..)?)?,
                _ => {}
            }
            let Some(&byte) = text.get(at) else {
                return (at == text.len() && self.end).then_some(at);
            };
            if self.can_begin[usize::from(byte)] && byte & 0xc0 != 0x80 {
                return Some(at);
            }
            at += 1;
        }
    }

    fn has_needles(&self, text: &[u8]) -> bool {
        let mut rest = text;
        for needle in &self.needles {
            match needle.find(rest) {
                Some(found) => rest = &rest[found + needle.needle().len()..],
                None => return false,
            }
        }
        true
    }
}

fn anchor(tree: &Tree) -> Anchor {
    match tree {
        Tree::Assert(Assertion::TextStart) => Anchor::Text,
        Tree::Assert(Assertion::LineStart) => Anchor::Line,
        Tree::Concat(all) => all.first().map_or(Anchor::None, anchor),
        Tree::Capture(_, body) | Tree::Atomic(body) | Tree::Atom(_, body) => anchor(body),
        _ => Anchor::None,
    }
}

/// Gathers what every match contains, in order. The last entry is still open: what comes next stands right
/// after it.
fn collect_literals(tree: &Tree, literals: &mut Vec<Vec<u8>>) {
    match tree {
        Tree::Empty | Tree::Look { .. } | Tree::Assert(_) => {}
        Tree::Literal(text) => literals
            .last_mut()
            .expect("there is always an open entry")
            .extend(text),
        Tree::Set(table) => {
            let mut members = (0..=255u8).filter(|&b| table[usize::from(b)] != member::NO);
            match (members.next(), members.next()) {
                (Some(only), None) => literals
                    .last_mut()
                    .expect("there is always an open entry")
                    .push(only),
                _ => literals.push(Vec::new()),
            }
        }
        Tree::Concat(all) => all.iter().for_each(|part| collect_literals(part, literals)),
        Tree::Capture(_, body) | Tree::Atomic(body) | Tree::Atom(_, body) => {
            collect_literals(body, literals);
        }
        Tree::Alt(_) => literals.push(Vec::new()),
        Tree::Repeat { body, min, .. } => {
            literals.push(Vec::new());
            if *min > 0 {
                collect_literals(body, literals);
                literals.push(Vec::new());
            }
        }
    }
}
