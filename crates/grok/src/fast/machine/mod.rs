//! Runs a program at one start.
//!
//! A search is quick or thorough. The quick one gives up when it has used a budget that is linear in the text, and
//! beside code points that its tables do not know; it decides nearly all texts. The thorough one knows all code
//! points ([`thorough`]) and tries nothing twice ([`memo`]).
//!
//! The state is the operation, the place in the text, and a stack of choices that may be revised. A frame
//! names the operation that pushed it; what its two numbers mean is that operation's affair:
//!
//! | operation | `at` | `aux` |
//! | --- | --- | --- |
//! | `Switch` | the place | the branches not tried yet |
//! | `Greedy` | the end tried last | the smallest end |
//! | `Lazy` | the end tried last | – |
//! | `NotStart` | the place | – |
//! | `CaptureGuard` | the capture's start | its end |
//! | `Shortcut` | the place | the end of the first choice |

mod memo;
mod runs;
mod thorough;

use crate::capture::Span;
use crate::fast::atom;
use crate::fast::lower::member;
use crate::fast::program::{Index, Instruction, Op, Program};
use crate::fast::{MatcherScratch, Verdict};
pub(super) use memo::Memo;
pub(super) use thorough::chooses;

/// A choice that may be revised.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    op: Index,
    at: Index,
    aux: u32,
}

/// More choices than this and PCRE2 decides; bounds the memory of a scratch.
const FRAMES_MAX: usize = 1 << 16;

/// So many bytes of a run cost as much as a step: 2 to this power.
const BYTES_PER_STEP_LOG2: u32 = 4;

/// What an operation returns instead of the next operation.
const FAIL: Index = Index::MAX;
const UNSURE: Index = Index::MAX - 1;
const MATCH: Index = Index::MAX - 2;

/// A program at work on a text.
pub(super) struct Machine<'m, const THOROUGH: bool> {
    pub program: &'m Program,
    pub text: &'m [u8],
    pub spans: &'m mut [Span],
    pub scratch: &'m mut MatcherScratch,
    /// Steps left; when it is used up, the search is given up.
    pub budget: i64,
    /// A thorough search remembers failures from here on: most end before that is worth its cost.
    pub memo_below: i64,
}

impl<const THOROUGH: bool> Machine<'_, THOROUGH> {
    /// Whether the program matches at `start`.
    #[inline]
    pub fn run(&mut self, start: usize) -> Verdict {
        self.scratch.frames.clear();
        let program = self.program;
        let steps = program.steps.as_slice();
        let (mut pc, mut at) = (0, start);
        let mut resumed = start;
        loop {
            let step = &steps[pc as usize];
            let next = if THOROUGH && self.failed_before(pc, at) {
                FAIL
            } else {
                self.step(program, step, pc, &mut at)
            };
            if next < MATCH {
                pc = next;
                continue;
            }
            match next {
                MATCH => return Verdict::Match,
                UNSURE => return Verdict::Unsure,
                _ => {
                    // What the failed path took is charged here, so that the way to a match is free of it.
                    self.charge(resumed, at);
                    match self.backtrack(&mut at) {
                        MATCH => return Verdict::NoMatch,
                        UNSURE => return Verdict::Unsure,
                        next => pc = next,
                    }
                    resumed = at;
                }
            }
        }
    }

    /// Takes the bytes that were looked at off the budget.
    #[inline(always)]
    fn charge(&mut self, from: usize, to: usize) {
        self.budget -= (to.saturating_sub(from) >> BYTES_PER_STEP_LOG2) as i64;
    }

    /// The same for a quoted string that was looked for and not found: a quote without an end was looked for
    /// in all of the text.
    #[cold]
    #[inline(never)]
    fn charge_unclosed(&mut self, start: usize) {
        if matches!(self.text.get(start), Some(b'"' | b'\'' | b'`')) {
            self.charge(start, self.text.len());
        }
    }

    #[inline(always)]
    fn peek(&self, at: usize) -> usize {
        self.text.get(at).map_or(256, |&b| usize::from(b))
    }

    #[inline(always)]
    fn push(&mut self, op: Index, at: usize, aux: u32) {
        self.scratch.frames.push(Frame {
            op,
            at: at as Index,
            aux,
        });
    }

    /// Fills a capture with what an operation took.
    #[inline(always)]
    fn fill(&mut self, capture: u16, start: usize, end: usize) {
        if let Some(span) = self.spans.get_mut(usize::from(capture)) {
            *span = Span::new(start, end);
        }
    }

    /// Moves the end of a capture whose operation took another choice. Where it began still stands: nothing
    /// after the operation writes the capture, except in a loop, where the guard has restored it by now.
    fn refill(&mut self, capture: u16, end: usize) {
        if let Some(span) = self.spans.get_mut(usize::from(capture)) {
            span.end = end as u32;
        }
    }

    /// Runs one operation: gives the next one, or how the path ended.
    #[inline(always)]
    fn step(&mut self, program: &Program, step: &Instruction, pc: Index, at: &mut usize) -> Index {
        let (next, then) = (pc + 1, step.then);
        let start = *at;
        match step.op {
            Op::Match => MATCH,
            Op::Byte(byte) => {
                *at += 1;
                verdict(self.text.get(start) == Some(&byte), next)
            }
            Op::Short { short } => {
                let short = &program.shorts[usize::from(short)];
                *at += short.len;
                verdict(short.fits(self.text, start), next)
            }
            Op::Set { table } => self.set(table, at, next),
            Op::Run { scan, min, capture } => {
                let next = self.run_of(&program.scans[usize::from(scan)], min, at, next);
                self.fill(capture, start, *at);
                self.then(then, at, next)
            }
            Op::Word { scan, capture } => {
                let next = self.word(&program.scans[usize::from(scan)], at, next);
                self.fill(capture, start, *at);
                self.then(then, at, next)
            }
            Op::Greedy { greedy, capture } => {
                let next = self.greedy(program, greedy, pc, at, next);
                self.fill(capture, start, *at);
                next
            }
            Op::Lazy { lazy, capture } => {
                let next = self.lazy(lazy, pc, at, next);
                self.fill(capture, start, *at);
                next
            }
            Op::Ipv4 { capture } => {
                self.only(atom::ipv4(self.text, start), capture, at, next, then)
            }
            Op::Number { capture } => {
                self.only(atom::number(self.text, start), capture, at, next, then)
            }
            Op::Quoted { capture } => {
                let end = atom::quoted(self.text, start);
                if end.is_none() {
                    self.charge_unclosed(start);
                }
                self.only(end, capture, at, next, then)
            }
            Op::Shortcut {
                shortcut,
                register,
                capture,
                other,
            } => match atom::shortcut(shortcut, self.text, start) {
                Some(to) => {
                    self.push(pc, start, to as u32);
                    self.only(Some(to), capture, at, next, then)
                }
                None => {
                    self.scratch.registers[usize::from(register)] = u32::MAX;
                    other
                }
            },
            other => self.steer(program, other, then, pc, at),
        }
    }

    /// The operations that choose a branch or mark a capture.
    #[inline(always)]
    fn steer(&mut self, program: &Program, op: Op, then: u16, pc: Index, at: &mut usize) -> Index {
        let (start, next) = (*at, pc + 1);
        match op {
            Op::Switch { switch, likely } => {
                let viable = program.switches[usize::from(switch)].viable[self.peek(start)];
                self.branch(switch, likely, viable, pc, start)
            }
            Op::SwitchIpv6 {
                switch,
                likely,
                ipv6,
            } => {
                let mut viable = program.switches[usize::from(switch)].viable[self.peek(start)];
                if !atom::may_be_ipv6(self.text, start) {
                    viable &= !(1 << ipv6);
                }
                self.branch(switch, likely, viable, pc, start)
            }
            Op::CaptureStart(capture) => {
                self.spans[usize::from(capture)].start = start as u32;
                next
            }
            Op::CaptureEnd(capture) => {
                self.spans[usize::from(capture)].end = start as u32;
                self.then(then, at, next)
            }
            Op::CaptureClear(capture) => {
                self.spans[usize::from(capture)] = Span::NONE;
                self.then(then, at, next)
            }
            other => self.rare(other, next, pc, at),
        }
    }

    /// What a definition with one choice took.
    #[inline(always)]
    fn only(
        &mut self,
        end: Option<usize>,
        capture: u16,
        at: &mut usize,
        next: Index,
        then: u16,
    ) -> Index {
        let Some(end) = end else { return fail() };
        self.fill(capture, *at, end);
        *at = end;
        self.then(then, at, next)
    }

    /// The literal that an operation took in; its own operation is passed over.
    #[inline(always)]
    fn then(&self, then: u16, at: &mut usize, next: Index) -> Index {
        if next >= MATCH {
            return next;
        }
        let Some(short) = self.program.shorts.get(usize::from(then)) else {
            return next;
        };
        let fits = short.fits(self.text, *at);
        *at += short.len;
        verdict(fits, next + 1)
    }

    /// The operations for assertions and what else is seldom run. They are not inlined, so that the loop
    /// over the operations keeps its state in registers.
    #[inline(never)]
    fn rare(&mut self, op: Op, next: Index, pc: Index, at: &mut usize) -> Index {
        let text = self.text;
        match op {
            Op::Jump(target) => target,
            Op::Literal { at: from, len } => {
                let literal = &self.program.literals[from as usize..(from + len) as usize];
                let fits = text
                    .get(*at..)
                    .is_some_and(|rest| rest.starts_with(literal));
                *at += len as usize;
                verdict(fits, next)
            }
            Op::RunCounted { table, min, max } => self.run_counted(table, min, max, at, next),
            Op::Ipv6Guard => verdict(atom::may_be_ipv6(text, *at), next),
            // What failed once is known to fail, so a thorough search need not ask whether this is the first choice.
            Op::ShortcutEnd { register } => verdict(
                THOROUGH || self.scratch.registers[usize::from(register)] != *at as u32,
                next,
            ),
            Op::LineStart => verdict(
                *at == 0 || (text[*at - 1] == b'\n' && *at < text.len()),
                next,
            ),
            Op::LineEnd => verdict(*at == text.len() || text[*at] == b'\n', next),
            Op::TextStart => verdict(*at == 0, next),
            Op::TextEnd => verdict(*at == text.len(), next),
            Op::TextEndLine => verdict(matches!(text[*at..], [] | [b'\n']), next),
            Op::WordEdge { negative } => self.word_edge(*at, negative, next),
            Op::BehindSet { table, negative } => {
                let Some(last) = at.checked_sub(1) else {
                    return verdict(negative, next);
                };
                let value = self.value(table, last);
                if THOROUGH && value >= member::UNSURE {
                    return self.wide_look(value, runs::before(text, *at), negative, next);
                }
                look(value, negative, next)
            }
            Op::BehindLiteral {
                at: from,
                len,
                negative,
            } => {
                let literal =
                    &self.program.literals[from as usize..from as usize + usize::from(len)];
                verdict(text[..*at].ends_with(literal) != negative, next)
            }
            Op::AheadSet { table, negative } => {
                let value = if *at < text.len() {
                    self.value(table, *at)
                } else {
                    member::NO
                };
                if THOROUGH && value >= member::UNSURE {
                    return self.wide_look(value, *at, negative, next);
                }
                look(value, negative, next)
            }
            other => self.group(other, next, pc, at),
        }
    }

    /// The operations that begin and end groups, and the guard of a capture.
    #[inline]
    fn group(&mut self, op: Op, next: Index, pc: Index, at: &mut usize) -> Index {
        match op {
            Op::CaptureGuard(capture) => {
                let Span { start, end } = self.spans[usize::from(capture)];
                self.push(pc, start as usize, end);
                next
            }
            Op::AtomicStart { register } => {
                self.scratch.registers[usize::from(register)] = self.scratch.frames.len() as u32;
                next
            }
            Op::AtomicEnd { register } => {
                self.commit(register);
                next
            }
            Op::LookStart { register } => {
                self.scratch.registers[usize::from(register)] = self.scratch.frames.len() as u32;
                self.scratch.registers[usize::from(register) + 1] = *at as u32;
                next
            }
            Op::LookEnd { register } => {
                self.commit(register);
                self.charge(
                    self.scratch.registers[usize::from(register) + 1] as usize,
                    *at,
                );
                *at = self.scratch.registers[usize::from(register) + 1] as usize;
                next
            }
            Op::NotStart { register, .. } => {
                self.scratch.registers[usize::from(register)] = self.scratch.frames.len() as u32;
                self.push(pc, *at, 0);
                next
            }
            Op::NotEnd { register } => {
                self.commit(register);
                FAIL
            }
            _ => UNSURE,
        }
    }

    /// Makes the choices since a group began final.
    fn commit(&mut self, register: u16) {
        let height = self.scratch.registers[usize::from(register)] as usize;
        self.scratch.frames.truncate(height);
    }

    /// Whether a word begins or ends at `at`.
    #[inline(always)]
    fn word_edge(&self, at: usize, negative: bool, next: Index) -> Index {
        let before = if at > 0 { self.text[at - 1] } else { b' ' };
        let after = self.text.get(at).copied().unwrap_or(b' ');
        if !(before | after).is_ascii() {
            return if THOROUGH {
                self.wide_word_edge(at, negative, next)
            } else {
                UNSURE
            };
        }
        let word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
        verdict((word(before) != word(after)) != negative, next)
    }

    /// The class membership of the code point that the byte at `at` belongs to.
    #[inline(always)]
    fn value(&self, table: u16, at: usize) -> u8 {
        self.program.tables[usize::from(table)][usize::from(self.text[at])]
    }

    /// Takes the first of the viable branches.
    #[inline(always)]
    fn branch(&mut self, switch: u16, likely: u8, viable: u32, pc: Index, at: usize) -> Index {
        if viable == 0 {
            return fail();
        }
        let rest = viable & (viable - 1);
        if rest != 0 {
            self.push(pc, at, rest);
        }
        let branch = viable.trailing_zeros();
        if branch == u32::from(likely) {
            return pc + 1;
        }
        self.program.switches[usize::from(switch)].targets[branch as usize]
    }

    /// Revises the last choice: gives the operation to go on with, `MATCH` when there is no choice left.
    #[inline(never)]
    fn backtrack(&mut self, at: &mut usize) -> Index {
        loop {
            let Some(frame) = self.scratch.frames.pop() else {
                return MATCH;
            };
            self.budget -= 1;
            if self.budget < 0 || self.scratch.frames.len() > FRAMES_MAX {
                return UNSURE;
            }
            if THOROUGH && self.is_marker(frame) {
                continue;
            }
            let Frame {
                op: pc,
                at: place,
                aux,
            } = frame;
            *at = place as usize;
            let next = match self.program.steps[pc as usize].op {
                Op::Switch { switch, likely } | Op::SwitchIpv6 { switch, likely, .. } => {
                    self.branch(switch, likely, aux, pc, *at)
                }
                Op::Greedy { capture, .. } => {
                    let next = self.give_back(pc, at, aux as usize);
                    self.refill(capture, *at);
                    next
                }
                Op::Lazy { lazy, capture } => {
                    let table = self.program.lazies[usize::from(lazy)].table;
                    let next = match self.set(table, at, pc) {
                        verdict @ (FAIL | UNSURE) => verdict,
                        _ => self.take_more(pc, at),
                    };
                    self.refill(capture, *at);
                    next
                }
                Op::NotStart { otherwise, .. } => otherwise,
                Op::CaptureGuard(capture) => {
                    self.spans[usize::from(capture)] = Span {
                        start: place,
                        end: aux,
                    };
                    FAIL
                }
                Op::Shortcut {
                    register, other, ..
                } => {
                    self.scratch.registers[usize::from(register)] = aux;
                    other
                }
                _ => UNSURE,
            };
            if next != FAIL {
                return next;
            }
        }
    }
}

/// The next operation, or failure. The failure is a call so that it stays a branch: as a conditional move it
/// would make every later operation wait for the comparison.
#[inline(always)]
fn verdict(fits: bool, next: Index) -> Index {
    if fits { next } else { fail() }
}

#[cold]
#[inline(never)]
fn fail() -> Index {
    FAIL
}

fn look(value: u8, negative: bool, next: Index) -> Index {
    match value {
        member::UNSURE.. => UNSURE,
        value => verdict((value != member::NO) != negative, next),
    }
}
