//! What only a thorough search does: it remembers failures and knows code points beyond ASCII.

use super::runs::{after, before};
use super::{FAIL, Frame, Index, Machine, UNSURE, verdict};
use crate::fast::lower::member;
use crate::fast::program::{NO_CHOICE, Op, Scan, WORD_CLASS, stop};

/// Marks a frame that lies below the choices of the operation it names.
const MARKER: Index = 1 << 31;

impl<const THOROUGH: bool> Machine<'_, THOROUGH> {
    /// Whether an operation that chooses failed at this place before. Otherwise a marker is left for it.
    pub(super) fn failed_before(&mut self, pc: Index, at: usize) -> bool {
        let choice = self.program.choices[pc as usize];
        if choice == NO_CHOICE || self.budget > self.memo_below {
            return false;
        }
        let memo = &mut self.scratch.memo;
        memo.begin(self.program.choice_count, self.text.len());
        if !memo.is_on() {
            return false;
        }
        if memo.has(choice, at) {
            return true;
        }
        self.push(pc | MARKER, at, 0);
        false
    }

    /// Whether what follows a run is known to fail at this place.
    pub(super) fn fails_after(&self, pc: Index, at: usize) -> bool {
        let memo = &self.scratch.memo;
        memo.is_on() && memo.has(self.program.choices[pc as usize + 1], at)
    }

    /// Whether a frame is a marker, which is then heeded.
    pub(super) fn is_marker(&mut self, frame: Frame) -> bool {
        if frame.op & MARKER == 0 {
            return false;
        }
        let choice = self.program.choices[(frame.op & !MARKER) as usize];
        self.scratch.memo.add(choice, frame.at as usize);
        true
    }

    /// Whether the code point at `at` belongs to the class that a value of a table stands for.
    fn is_member(&self, value: u8, at: usize) -> Option<bool> {
        let class = usize::from(value - member::UNSURE);
        self.program.classes[class].contains(&self.text[at..after(self.text, at)])
    }

    /// As [`Machine::set`], where the table does not know.
    #[cold]
    pub(super) fn wide_set(&self, value: u8, at: &mut usize, next: Index) -> Index {
        match self.is_member(value, *at) {
            Some(true) => *at = after(self.text, *at),
            Some(false) => return FAIL,
            None => return UNSURE,
        }
        next
    }

    /// As [`super::look`], where the table does not know.
    #[cold]
    pub(super) fn wide_look(&self, value: u8, at: usize, negative: bool, next: Index) -> Index {
        match self.is_member(value, at) {
            Some(is_member) => verdict(is_member != negative, next),
            None => UNSURE,
        }
    }

    /// Goes on with a run that stopped at a code point of which the table does not know whether it is a member.
    #[cold]
    pub(super) fn wide_run(&self, scan: &Scan, from: usize) -> Option<usize> {
        let mut at = from;
        while let Some(&byte) = self.text.get(at) {
            let value = scan.stop[usize::from(byte)];
            if value < stop::UNSURE || !self.is_member(value, at)? {
                break;
            }
            at = scan.run(self.text, after(self.text, at));
        }
        Some(at)
    }

    /// From `min` to `max` members: the end of the most, and of the fewest.
    #[cold]
    pub(super) fn wide_count(
        &self,
        scan: &Scan,
        start: usize,
        min: u32,
        max: u32,
    ) -> Option<(usize, usize)> {
        let (mut at, mut count, mut least) = (start, 0, (min == 0).then_some(start));
        while count < max
            && let Some(&byte) = self.text.get(at)
        {
            let value = scan.stop[usize::from(byte)];
            let takes = value == 0 || (value >= stop::UNSURE && self.is_member(value, at)?);
            if !takes {
                break;
            }
            at = after(self.text, at);
            count += 1;
            if count == min {
                least = Some(at);
            }
        }
        // Where there are too few, the fewest end behind the most, and so the run fails.
        Some((at, least.unwrap_or(at + 1)))
    }

    /// Whether a word begins or ends at `at`, beside a code point beyond ASCII.
    #[cold]
    pub(super) fn wide_word_edge(&self, at: usize, negative: bool, next: Index) -> Index {
        let (Some(left), Some(right)) = (self.is_word_before(at), self.is_word_at(at)) else {
            return UNSURE;
        };
        verdict((left != right) != negative, next)
    }

    pub(super) fn is_word_before(&self, at: usize) -> Option<bool> {
        if at == 0 {
            Some(false)
        } else {
            self.is_word_at(before(self.text, at))
        }
    }

    pub(super) fn is_word_at(&self, at: usize) -> Option<bool> {
        match self.text.get(at) {
            None => Some(false),
            Some(&b) if b.is_ascii() => Some(b.is_ascii_alphanumeric() || b == b'_'),
            Some(_) => self.is_member(member::UNSURE + WORD_CLASS, at),
        }
    }
}

/// Whether failures of an operation are worth remembering: it has choices, or begins what follows a run that gives
/// back, of which every end would be tried again from every beginning.
pub(in crate::fast) fn chooses(before: Option<Op>, op: Op) -> bool {
    let follows = matches!(before, Some(Op::Greedy { .. }));
    follows
        || matches!(
            op,
            Op::Switch { .. }
                | Op::SwitchIpv6 { .. }
                | Op::Greedy { .. }
                | Op::Lazy { .. }
                | Op::Shortcut { .. }
                | Op::AtomicStart { .. }
                | Op::LookStart { .. }
                | Op::NotStart { .. }
        )
}
