//! Runs a program at one start.
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

use super::atom;
use super::lower::member;
use super::program::{Index, Op, Program, Shortcut, stop};
use super::{MatcherScratch, Verdict};
use crate::pattern::Span;

/// A choice that may be revised.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    op: Index,
    at: Index,
    aux: u32,
}

/// More choices than this and PCRE2 decides; bounds the memory of a scratch.
const FRAMES_MAX: usize = 1 << 16;

/// What an operation returns instead of the next operation.
const FAIL: Index = Index::MAX;
const UNSURE: Index = Index::MAX - 1;
const MATCH: Index = Index::MAX - 2;

/// A program at work on a text.
pub(super) struct Machine<'m> {
    pub program: &'m Program,
    pub text: &'m [u8],
    pub spans: &'m mut [Span],
    pub scratch: &'m mut MatcherScratch,
    /// Steps left; when it is used up, PCRE2 decides.
    pub budget: i64,
}

impl Machine<'_> {
    /// Whether the program matches at `start`.
    #[inline]
    pub fn run(&mut self, start: usize) -> Verdict {
        self.scratch.frames.clear();
        let (mut pc, mut at) = (0, start);
        loop {
            let next = self.step(pc, &mut at);
            if next < MATCH {
                pc = next;
                continue;
            }
            match next {
                MATCH => return Verdict::Match,
                UNSURE => return Verdict::Unsure,
                _ => match self.backtrack(&mut at) {
                    MATCH => return Verdict::NoMatch,
                    UNSURE => return Verdict::Unsure,
                    next => pc = next,
                },
            }
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

    /// Runs one operation: gives the next one, or how the path ended.
    #[inline(always)]
    fn step(&mut self, pc: Index, at: &mut usize) -> Index {
        let next = pc + 1;
        match self.program.ops[pc as usize] {
            Op::Match => MATCH,
            Op::Byte(byte) => {
                let fits = self.text.get(*at) == Some(&byte);
                *at += 1;
                if fits { next } else { FAIL }
            }
            Op::Literal { at: from, len } => {
                let literal = &self.program.literals[from as usize..(from + len) as usize];
                let fits = self
                    .text
                    .get(*at..)
                    .is_some_and(|rest| rest.starts_with(literal));
                *at += len as usize;
                if fits { next } else { FAIL }
            }
            Op::Set { table } => self.set(table, at, next),
            Op::Run { scan, min } => self.run_op(scan, min, at, next),
            Op::CaptureRun { scan, min, capture } => {
                let start = *at;
                let next = self.run_op(scan, min, at, next);
                self.spans[usize::from(capture)] = Span::new(start, *at);
                next
            }
            Op::RunCounted { table, min, max } => self.run_counted(table, min, max, at, next),
            Op::Greedy { greedy } => self.greedy(greedy, pc, at, next),
            Op::Lazy { lazy } => self.lazy(lazy, pc, at, next),
            Op::Switch { switch } => {
                let viable = self.program.switches[usize::from(switch)].viable[self.peek(*at)];
                self.branch(switch, viable, pc, *at)
            }
            Op::Jump(target) => target,
            Op::CaptureStart(capture) => {
                self.spans[usize::from(capture)].start = *at as u32;
                next
            }
            Op::CaptureEnd(capture) => {
                self.spans[usize::from(capture)].end = *at as u32;
                next
            }
            Op::CaptureClear(capture) => {
                self.spans[usize::from(capture)] = Span::NONE;
                next
            }
            Op::Ipv4 => jump_to(atom::ipv4(self.text, *at), at, next),
            Op::Number => jump_to(atom::number(self.text, *at), at, next),
            Op::Quoted => jump_to(atom::quoted(self.text, *at), at, next),
            Op::Ipv6Guard => verdict(atom::may_be_ipv6(self.text, *at), next),
            Op::Shortcut {
                shortcut,
                register,
                end,
            } => self.shortcut(shortcut, register, end, pc, at),
            Op::ShortcutEnd { register } => verdict(
                self.scratch.registers[usize::from(register)] != *at as u32,
                next,
            ),
            other => self.rare(other, pc, at),
        }
    }

    /// The operations that stand for groups and assertions.
    #[inline]
    fn rare(&mut self, op: Op, pc: Index, at: &mut usize) -> Index {
        let next = pc + 1;
        let text = self.text;
        match op {
            Op::LineStart => verdict(
                *at == 0 || (text[*at - 1] == b'\n' && *at < text.len()),
                next,
            ),
            Op::LineEnd => verdict(*at == text.len() || text[*at] == b'\n', next),
            Op::TextStart => verdict(*at == 0, next),
            Op::TextEnd => verdict(*at == text.len(), next),
            Op::TextEndLine => verdict(matches!(text[*at..], [] | [b'\n']), next),
            Op::WordEdge { negative } => word_edge(text, *at, negative, next),
            Op::BehindSet { table, negative } => {
                let value = at
                    .checked_sub(1)
                    .map_or(member::NO, |before| self.value(table, before));
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
                look(value, negative, next)
            }
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

    /// The class membership of the code point that the byte at `at` belongs to.
    #[inline(always)]
    fn value(&self, table: u16, at: usize) -> u8 {
        self.program.tables[usize::from(table)][usize::from(self.text[at])]
    }

    #[inline(always)]
    fn set(&self, table: u16, at: &mut usize, next: Index) -> Index {
        if *at >= self.text.len() {
            return FAIL;
        }
        match self.value(table, *at) {
            member::YES => *at += 1,
            member::WIDE => *at = after(self.text, *at),
            member::NO => return FAIL,
            _ => return UNSURE,
        }
        next
    }

    #[inline(always)]
    fn run_op(&mut self, scan: u16, min: u16, at: &mut usize, next: Index) -> Index {
        let start = *at;
        let scan = &self.program.scans[usize::from(scan)];
        let end = scan.run(self.text, start);
        *at = end;
        if self
            .text
            .get(end)
            .is_some_and(|&b| scan.stop[usize::from(b)] == stop::UNSURE)
        {
            return UNSURE;
        }
        verdict(end - start >= usize::from(min), next)
    }

    #[inline]
    fn run_counted(
        &mut self,
        table: u16,
        min: u16,
        max: u16,
        at: &mut usize,
        next: Index,
    ) -> Index {
        let start = *at;
        while *at - start < usize::from(max) && *at < self.text.len() {
            match self.value(table, *at) {
                member::YES => *at += 1,
                member::NO => break,
                _ => return UNSURE,
            }
        }
        verdict(*at - start >= usize::from(min), next)
    }

    #[inline]
    fn greedy(&mut self, greedy: u16, pc: Index, at: &mut usize, next: Index) -> Index {
        let greedy = &self.program.greedies[usize::from(greedy)];
        let scan = &self.program.scans[usize::from(greedy.scan)];
        let start = *at;
        let mut end = scan.run(self.text, start);
        self.budget -= (end - start) as i64 >> 5;
        if self
            .text
            .get(end)
            .is_some_and(|&b| scan.stop[usize::from(b)] == stop::UNSURE)
        {
            return UNSURE;
        }
        let mut least = start;
        if greedy.min > 1 || greedy.max != u32::MAX {
            if !self.text[start..end].is_ascii() {
                return UNSURE;
            }
            end = end.min(start.saturating_add(greedy.max as usize));
            least = start + greedy.min as usize;
        } else if greedy.min == 1 && end > start {
            least = after(self.text, start);
        } else if greedy.min == 1 {
            return FAIL;
        }
        if end < least {
            return FAIL;
        }
        *at = end;
        if self.program.nexts[usize::from(greedy.follow)][self.peek(end)] {
            if end > least {
                self.push(pc, end, least as u32);
            }
            return next;
        }
        self.give_back(pc, at, least)
    }

    /// Gives back until what follows may fit.
    fn give_back(&mut self, pc: Index, at: &mut usize, least: usize) -> Index {
        let Op::Greedy { greedy } = self.program.ops[pc as usize] else {
            return UNSURE;
        };
        let follow =
            &self.program.nexts[usize::from(self.program.greedies[usize::from(greedy)].follow)];
        let from = *at;
        while *at > least {
            *at = before(self.text, *at);
            if follow[usize::from(self.text[*at])] {
                self.budget -= (from - *at) as i64 >> 5;
                if *at > least {
                    self.push(pc, *at, least as u32);
                }
                return pc + 1;
            }
        }
        self.budget -= (from - *at) as i64 >> 5;
        FAIL
    }

    #[inline]
    fn lazy(&mut self, lazy: u16, pc: Index, at: &mut usize, next: Index) -> Index {
        let lazy = &self.program.lazies[usize::from(lazy)];
        for _ in 0..lazy.min {
            if let verdict @ (FAIL | UNSURE) = self.set(lazy.table, at, next) {
                return verdict;
            }
        }
        self.take_more(pc, at)
    }

    /// Takes up to the next place where what follows may fit.
    #[inline]
    fn take_more(&mut self, pc: Index, at: &mut usize) -> Index {
        let Op::Lazy { lazy } = self.program.ops[pc as usize] else {
            return UNSURE;
        };
        let lazy = &self.program.lazies[usize::from(lazy)];
        let scan = &self.program.scans[usize::from(lazy.scan)];
        let end = scan.run(self.text, *at);
        self.budget -= (end - *at) as i64 >> 5;
        *at = end;
        let Some(&byte) = self.text.get(end) else {
            return verdict(lazy.end, pc + 1);
        };
        match scan.stop[usize::from(byte)] {
            stop::CANDIDATE => {
                if lazy.again {
                    self.push(pc, end, 0);
                }
                pc + 1
            }
            stop::OUTSIDE => FAIL,
            _ => UNSURE,
        }
    }

    /// Takes the first of the viable branches.
    #[inline(always)]
    fn branch(&mut self, switch: u16, viable: u32, pc: Index, at: usize) -> Index {
        if viable == 0 {
            return FAIL;
        }
        let rest = viable & (viable - 1);
        if rest != 0 {
            self.push(pc, at, rest);
        }
        self.program.switches[usize::from(switch)].targets[viable.trailing_zeros() as usize]
    }

    #[inline(always)]
    fn shortcut(
        &mut self,
        shortcut: Shortcut,
        register: u16,
        end: Index,
        pc: Index,
        at: &mut usize,
    ) -> Index {
        match atom::shortcut(shortcut, self.text, *at) {
            Some(to) => {
                self.push(pc, *at, to as u32);
                *at = to;
                end
            }
            None => {
                self.scratch.registers[usize::from(register)] = u32::MAX;
                pc + 1
            }
        }
    }

    /// Revises the last choice: gives the operation to go on with, `MATCH` when there is no choice left.
    fn backtrack(&mut self, at: &mut usize) -> Index {
        loop {
            let Some(Frame {
                op: pc,
                at: place,
                aux,
            }) = self.scratch.frames.pop()
            else {
                return MATCH;
            };
            self.budget -= 1;
            if self.budget < 0 || self.scratch.frames.len() > FRAMES_MAX {
                return UNSURE;
            }
            *at = place as usize;
            let next = match self.program.ops[pc as usize] {
                Op::Switch { switch } => self.branch(switch, aux, pc, *at),
                Op::Greedy { .. } => self.give_back(pc, at, aux as usize),
                Op::Lazy { lazy } => {
                    let table = self.program.lazies[usize::from(lazy)].table;
                    match self.set(table, at, pc) {
                        verdict @ (FAIL | UNSURE) => verdict,
                        _ => self.take_more(pc, at),
                    }
                }
                Op::NotStart { otherwise, .. } => otherwise,
                Op::CaptureGuard(capture) => {
                    self.spans[usize::from(capture)] = Span {
                        start: place,
                        end: aux,
                    };
                    FAIL
                }
                Op::Shortcut { register, .. } => {
                    self.scratch.registers[usize::from(register)] = aux;
                    pc + 1
                }
                _ => UNSURE,
            };
            if next != FAIL {
                return next;
            }
        }
    }
}

#[inline(always)]
fn verdict(fits: bool, next: Index) -> Index {
    if fits { next } else { FAIL }
}

#[inline(always)]
fn jump_to(end: Option<usize>, at: &mut usize, next: Index) -> Index {
    match end {
        Some(end) => {
            *at = end;
            next
        }
        None => FAIL,
    }
}

fn look(value: u8, negative: bool, next: Index) -> Index {
    match value {
        member::UNSURE => UNSURE,
        value => verdict((value != member::NO) != negative, next),
    }
}

/// Whether a word begins or ends at `at`, which PCRE2 has to say where a code point beyond ASCII is near.
#[inline(always)]
fn word_edge(text: &[u8], at: usize, negative: bool, next: Index) -> Index {
    let before = if at > 0 { text[at - 1] } else { b' ' };
    let after = text.get(at).copied().unwrap_or(b' ');
    if !(before | after).is_ascii() {
        return UNSURE;
    }
    let word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    verdict((word(before) != word(after)) != negative, next)
}

/// The code point after the one at `at`.
fn after(text: &[u8], at: usize) -> usize {
    let mut end = at + 1;
    while text.get(end).is_some_and(|b| b & 0xc0 == 0x80) {
        end += 1;
    }
    end
}

/// The code point before `at`, which is not 0.
fn before(text: &[u8], at: usize) -> usize {
    let mut start = at - 1;
    while start > 0 && text[start] & 0xc0 == 0x80 {
        start -= 1;
    }
    start
}
