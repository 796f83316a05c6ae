//! Repetitions of one class.

use super::{FAIL, Index, Machine, UNSURE, verdict};
use crate::fast::lower::member;
use crate::fast::program::{Op, Program, Scan, stop};

impl Machine<'_> {
    #[inline(always)]
    pub(super) fn set(&self, table: u16, at: &mut usize, next: Index) -> Index {
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
    pub(super) fn run_counted(
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
    pub(super) fn greedy(
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
        self.charge(start, end);
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
    pub(super) fn give_back(&mut self, pc: Index, at: &mut usize, least: usize) -> Index {
        let Op::Greedy { greedy, .. } = self.program.steps[pc as usize].op else {
            return UNSURE;
        };
        let follow =
            &self.program.nexts[usize::from(self.program.greedies[usize::from(greedy)].follow)];
        let from = *at;
        while *at > least {
            *at = before(self.text, *at);
            if follow[usize::from(self.text[*at])] {
                self.charge(*at, from);
                if *at > least {
                    self.push(pc, *at, least as u32);
                }
                return pc + 1;
            }
        }
        self.charge(*at, from);
        FAIL
    }

    #[inline(never)]
    pub(super) fn lazy(&mut self, lazy: u16, pc: Index, at: &mut usize, next: Index) -> Index {
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
    pub(super) fn take_more(&mut self, pc: Index, at: &mut usize) -> Index {
        let Op::Lazy { lazy, .. } = self.program.steps[pc as usize].op else {
            return UNSURE;
        };
        let lazy = &self.program.lazies[usize::from(lazy)];
        let scan = &self.program.scans[usize::from(lazy.scan)];
        let end = scan.run(self.text, *at);
        self.charge(*at, end);
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
}

/// As many members as there are.
#[inline(always)]
pub(super) fn run(scan: &Scan, text: &[u8], min: u16, at: &mut usize, next: Index) -> Index {
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
pub(super) fn word(scan: &Scan, text: &[u8], at: &mut usize, next: Index) -> Index {
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
