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
use super::program::{Index, Op, Program, Scan, Step, stop};
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
        let program = self.program;
        let steps = program.steps.as_slice();
        let (mut pc, mut at) = (0, start);
        loop {
            let step = &steps[pc as usize];
            let next = self.step(program, step, pc, &mut at);
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
    fn step(&mut self, program: &Program, step: &Step, pc: Index, at: &mut usize) -> Index {
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
                let next = run(&program.scans[usize::from(scan)], self.text, min, at, next);
                self.fill(capture, start, *at);
                self.then(then, at, next)
            }
            Op::Word { scan, capture } => {
                let next = word(&program.scans[usize::from(scan)], self.text, at, next);
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
            Op::Ipv4 { capture } => {
                self.only(atom::ipv4(self.text, start), capture, at, next, then)
            }
            Op::Number { capture } => {
                self.only(atom::number(self.text, start), capture, at, next, then)
            }
            Op::Quoted { capture } => {
                self.only(atom::quoted(self.text, start), capture, at, next, then)
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

    /// The operations that stand for groups and assertions. Not inlined, nor are others that are seldom run: the
    /// loop over the operations then keeps its state in registers.
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
            Op::ShortcutEnd { register } => verdict(
                self.scratch.registers[usize::from(register)] != *at as u32,
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

    #[inline(never)]
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

    #[inline(always)]
    fn greedy(
        &mut self,
        program: &Program,
        greedy: u16,
        pc: Index,
        at: &mut usize,
        next: Index,
    ) -> Index {
        let greedy = &program.greedies[usize::from(greedy)];
        let scan = &program.scans[usize::from(greedy.scan)];
        let start = *at;
        let mut end = scan.run(self.text, start);
        self.budget -= (end - start) as i64 >> 5;
        let following = self.peek(end);
        if following < 256 && scan.stop[following] == stop::UNSURE {
            return UNSURE;
        }
        let mut least = start + usize::from(greedy.min > 0);
        if greedy.is_counted() {
            if !self.text[start..end].is_ascii() {
                return UNSURE;
            }
            end = end.min(start.saturating_add(greedy.max as usize));
            least = start + greedy.min as usize;
        } else if least > start && end > start && !self.text[start].is_ascii() {
            least = after(self.text, start);
        }
        if end < least {
            return FAIL;
        }
        *at = end;
        if !program.nexts[usize::from(greedy.follow)][self.peek(end)] {
            return self.give_back(pc, at, least);
        }
        if end > least {
            self.push(pc, end, least as u32);
        }
        next
    }

    /// Gives back until what follows may fit.
    #[inline(never)]
    fn give_back(&mut self, pc: Index, at: &mut usize, least: usize) -> Index {
        let Op::Greedy { greedy, .. } = self.program.steps[pc as usize].op else {
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

    #[inline(never)]
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
    #[inline(never)]
    fn take_more(&mut self, pc: Index, at: &mut usize) -> Index {
        let Op::Lazy { lazy, .. } = self.program.steps[pc as usize].op else {
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

/// As many members as there are.
#[inline(always)]
fn run(scan: &Scan, text: &[u8], min: u16, at: &mut usize, next: Index) -> Index {
    let start = *at;
    let end = scan.run(text, start);
    *at = end;
    if text
        .get(end)
        .is_some_and(|&b| scan.stop[usize::from(b)] == stop::UNSURE)
    {
        return UNSURE;
    }
    verdict(end - start >= usize::from(min), next)
}

/// A whole word. Where it ends, no ASCII word character follows, so only the code points beyond are doubtful.
#[inline(always)]
fn word(scan: &Scan, text: &[u8], at: &mut usize, next: Index) -> Index {
    let start = *at;
    let end = scan.in_table(text, start);
    if end == start {
        return FAIL;
    }
    *at = end;
    let before = if start > 0 { text[start - 1] } else { b' ' };
    if !before.is_ascii() || text.get(end).is_some_and(|b| !b.is_ascii()) {
        return UNSURE;
    }
    verdict(scan.stop[usize::from(before)] != 0, next)
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
