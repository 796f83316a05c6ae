//! Repetitions of one class.

use super::{FAIL, Index, Machine, UNSURE, verdict};
use crate::fast::lower::member;
use crate::fast::program::{Op, Program, Scan, stop};

impl<const THOROUGH: bool> Machine<'_, THOROUGH> {
    #[inline(always)]
    pub(super) fn set(&self, table: u16, at: &mut usize, next: Index) -> Index {
        if *at >= self.text.len() {
            return FAIL;
        }
        match self.value(table, *at) {
            member::YES => *at += 1,
            member::WIDE => *at = after(self.text, *at),
            member::NO => return FAIL,
            value if THOROUGH => return self.wide_set(value, at, next),
            _ => return UNSURE,
        }
        next
    }

    /// The end of the members of a class that begin at `from`.
    #[inline(always)]
    fn end_of(&self, scan: &Scan, from: usize) -> Option<usize> {
        let end = scan.run(self.text, from);
        let following = self.peek(end);
        if following < 256 && scan.stop[following] >= stop::UNSURE {
            return if THOROUGH {
                self.wide_run(scan, end)
            } else {
                None
            };
        }
        Some(end)
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
        let mut count = 0;
        while count < max && *at < self.text.len() {
            match self.value(table, *at) {
                member::YES => *at += 1,
                member::NO => break,
                member::WIDE if THOROUGH => *at = after(self.text, *at),
                value if THOROUGH => match self.wide_set(value, at, next) {
                    FAIL => break,
                    UNSURE => return UNSURE,
                    _ => {}
                },
                _ => return UNSURE,
            }
            count += 1;
        }
        verdict(count >= min, next)
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
        let Some(mut end) = self.end_of(scan, start) else {
            return UNSURE;
        };
        self.charge(start, end);
        let mut least = start + usize::from(greedy.min > 0);
        if greedy.is_counted() && !self.text[start..end].is_ascii() {
            let counted = THOROUGH.then(|| self.wide_count(scan, start, greedy.min, greedy.max));
            let Some((most, fewest)) = counted.flatten() else {
                return UNSURE;
            };
            (end, least) = (most, fewest);
        } else if greedy.is_counted() {
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
            let fits = follow[usize::from(self.text[*at])];
            if fits && !(THOROUGH && self.fails_after(pc, *at)) {
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
        let Some(end) = self.end_of(scan, *at) else {
            return UNSURE;
        };
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
            // Also what turned out to be no member.
            _ => FAIL,
        }
    }

    /// As many members as there are.
    #[inline(always)]
    pub(super) fn run_of(&self, scan: &Scan, min: u16, at: &mut usize, next: Index) -> Index {
        let start = *at;
        let Some(end) = self.end_of(scan, start) else {
            return UNSURE;
        };
        *at = end;
        verdict(end - start >= usize::from(min), next)
    }

    /// A whole word. Where it ends, no ASCII word character follows, so only the code points beyond are doubtful.
    #[inline(always)]
    pub(super) fn word(&self, scan: &Scan, at: &mut usize, next: Index) -> Index {
        let start = *at;
        let end = scan.in_table(self.text, start);
        if end == start {
            return FAIL;
        }
        *at = end;
        let before = if start > 0 {
            self.text[start - 1]
        } else {
            b' '
        };
        if !before.is_ascii() || self.text.get(end).is_some_and(|b| !b.is_ascii()) {
            if !THOROUGH {
                return UNSURE;
            }
            return match (self.is_word_before(start), self.is_word_at(end)) {
                (Some(left), Some(right)) => verdict(!left && !right, next),
                _ => UNSURE,
            };
        }
        verdict(scan.stop[usize::from(before)] != 0, next)
    }
}

/// The code point after the one at `at`.
pub(super) fn after(text: &[u8], at: usize) -> usize {
    let mut end = at + 1;
    while text.get(end).is_some_and(|b| b & 0xc0 == 0x80) {
        end += 1;
    }
    end
}

/// The code point before `at`, which is not 0.
pub(super) fn before(text: &[u8], at: usize) -> usize {
    let mut start = at - 1;
    while start > 0 && text[start] & 0xc0 == 0x80 {
        start -= 1;
    }
    start
}
