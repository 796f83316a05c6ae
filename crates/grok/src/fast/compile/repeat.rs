//! Repetitions: of one class, and of anything else.

use super::{Compiler, Done, intern};
use crate::fast::first::{First, first};
use crate::fast::lower::{Table, Tree, member};
use crate::fast::program::{Greedy, Lazy, NO_CAPTURE, Op, stop};

impl Compiler {
    pub(super) fn repeat(
        &mut self,
        body: &Tree,
        min: u32,
        max: Option<u32>,
        lazy: bool,
        follow: &First,
    ) -> Done {
        let captures = body.captures();
        if max == Some(0) {
            self.clear(captures);
            return Ok(());
        }
        if let Tree::Set(table) = body
            && !(lazy && max.is_some())
        {
            return self.run(table, min, max, lazy, follow);
        }
        if max != Some(1) && body.nullable() {
            return Err("a repetition of something that can be empty");
        }
        if min == 1 && max == Some(1) {
            return self.emit(body, follow);
        }
        if min == 0 && max == Some(1) {
            return self.optional(body, lazy, follow);
        }
        if self.in_look && !captures.is_empty() {
            return Err("a repeated capture in an atomic group or look-around");
        }
        self.clear(captures);
        let outside = std::mem::replace(&mut self.in_loop, true);
        let done = self.rounds(body, min, max, lazy, follow);
        self.in_loop = outside;
        done
    }

    /// The rounds that must be, then those that may be.
    fn rounds(
        &mut self,
        body: &Tree,
        min: u32,
        max: Option<u32>,
        lazy: bool,
        follow: &First,
    ) -> Done {
        let again = first(body, follow).or(follow);
        for round in 1..=min {
            let last = max == Some(round);
            let more = if round < min {
                first(body, follow)
            } else {
                again.clone()
            };
            self.emit(body, if last { follow } else { &more })?;
        }
        match max {
            None => self.endless(body, lazy, follow, &again),
            Some(max) => self.at_most(body, max - min, lazy, follow, &again),
        }
    }

    fn endless(&mut self, body: &Tree, lazy: bool, follow: &First, again: &First) -> Done {
        let start = self.here();
        let enter = first(body, again);
        let switch = self.enter_or_leave(enter, follow, lazy)?;
        self.emit(body, again)?;
        self.op(Op::Jump(start));
        self.leave_to_here(switch, lazy);
        Ok(())
    }

    /// `(X(X(X)?)?)?`: every round may be the last.
    fn at_most(
        &mut self,
        body: &Tree,
        rounds: u32,
        lazy: bool,
        follow: &First,
        again: &First,
    ) -> Done {
        let mut open = Vec::new();
        for round in 0..rounds {
            let then = if round + 1 == rounds { follow } else { again };
            open.push(self.enter_or_leave(first(body, then), follow, lazy)?);
            self.emit(body, then)?;
        }
        open.into_iter()
            .for_each(|switch| self.leave_to_here(switch, lazy));
        Ok(())
    }

    fn optional(&mut self, body: &Tree, lazy: bool, follow: &First) -> Done {
        let captures = body.captures();
        let switch = self.enter_or_leave(first(body, follow), follow, lazy)?;
        self.emit(body, follow)?;
        if captures.is_empty() || self.in_loop {
            self.leave_to_here(switch, lazy);
            return Ok(());
        }
        let jump = self.ops.len();
        self.op(Op::Jump(0));
        self.leave_to_here(switch, lazy);
        self.clear(captures);
        self.ops[jump] = Op::Jump(self.here());
        Ok(())
    }

    /// A choice between the operations that follow and a place that [`Compiler::leave_to_here`] names.
    fn enter_or_leave(
        &mut self,
        enter: First,
        leave: &First,
        lazy: bool,
    ) -> Result<usize, &'static str> {
        let firsts = if lazy {
            [leave.clone(), enter]
        } else {
            [enter, leave.clone()]
        };
        let switch = self.switch(&firsts, u8::from(lazy))?;
        let here = self.here();
        self.program.switches[switch].targets = vec![here, here];
        Ok(switch)
    }

    fn leave_to_here(&mut self, switch: usize, lazy: bool) {
        self.program.switches[switch].targets[usize::from(!lazy)] = self.here();
    }

    /// A repetition of one class.
    fn run(
        &mut self,
        table: &Table,
        min: u32,
        max: Option<u32>,
        lazy: bool,
        follow: &First,
    ) -> Done {
        if lazy {
            return self.lazy_run(table, min, follow);
        }
        let max = max.unwrap_or(u32::MAX);
        if (min, max) == (1, 1) {
            let table = self.table(table)?;
            self.op(Op::Set { table });
            return Ok(());
        }
        let counted = min > 1 || max != u32::MAX;
        let keeps = follow.always || !follow.meets(table);
        if keeps && counted && min <= 0xffff && max <= 0xffff {
            let table = self.table(table)?;
            self.op(Op::RunCounted {
                table,
                min: min as u16,
                max: max as u16,
            });
            return Ok(());
        }
        let scan = self.scan(table.map(|value| match value {
            member::NO => stop::OUTSIDE,
            unsure @ member::UNSURE.. => unsure,
            _ => 0,
        }))?;
        if keeps && !counted {
            self.op(Op::Run {
                scan,
                min: min as u16,
                capture: NO_CAPTURE,
            });
            return Ok(());
        }
        let mut next = [false; 257];
        next[..256].copy_from_slice(&follow.bytes);
        next[256] = follow.end;
        let follow = intern(&mut self.program.nexts, &next)?;
        let greedy = intern(
            &mut self.program.greedies,
            &Greedy {
                scan,
                min,
                max,
                follow,
            },
        )?;
        self.op(Op::Greedy {
            greedy,
            capture: NO_CAPTURE,
        });
        Ok(())
    }

    fn lazy_run(&mut self, table: &Table, min: u32, follow: &First) -> Done {
        let mut stops = [0; 256];
        for (byte, value) in stops.iter_mut().enumerate() {
            let inner = (0x80..0xc0).contains(&byte);
            *value = match table[byte] {
                _ if follow.bytes[byte] && !inner => stop::CANDIDATE,
                member::NO => stop::OUTSIDE,
                unsure @ member::UNSURE.. => unsure,
                _ => 0,
            };
        }
        let scan = self.scan(stops)?;
        let lazy = Lazy {
            table: self.table(table)?,
            scan,
            min,
            end: follow.end,
            again: follow.meets(table),
        };
        let lazy = intern(&mut self.program.lazies, &lazy)?;
        self.op(Op::Lazy {
            lazy,
            capture: NO_CAPTURE,
        });
        Ok(())
    }
}
