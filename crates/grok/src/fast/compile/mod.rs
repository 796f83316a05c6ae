//! From the matcher's tree to a program.
//!
//! `follow` is always the set of bytes that can begin what comes after the part at hand, up to the end of the
//! pattern or of the innermost atomic group or look-around: beyond that end nothing may influence a choice.
//!
//! Captures need no reset between attempts: every path writes each capture or clears it, at the branch that
//! leaves it out. Inside of a loop a capture keeps the value of the last round that wrote it, so there nothing
//! is cleared; the captures are cleared before the loop and guarded at every write.

mod repeat;

use crate::ast::Assertion;
use crate::fast::atom::Atom;
use crate::fast::first::{First, first, first_of_all};
use crate::fast::layout::lay_out;
use crate::fast::lower::{Table, Tree};
use crate::fast::program::{Index, NO_CAPTURE, Op, Program, Scan, Short, Shortcut, Switch};

/// Larger programs are left to PCRE2.
const OPS_MAX: usize = 60_000;

/// Branches of one choice; more become a choice of choices.
const BRANCHES_MAX: usize = 32;

type Done = Result<(), &'static str>;

/// Compiles a whole pattern.
pub(super) fn compile(tree: &Tree) -> Result<Program, &'static str> {
    let mut compiler = Compiler {
        ops: Vec::new(),
        program: Program::default(),
        in_loop: false,
        in_look: false,
    };
    compiler.emit(tree, &First::accept())?;
    compiler.op(Op::Match);
    let Compiler {
        ops, mut program, ..
    } = compiler;
    lay_out(&ops, &mut program);
    Ok(program)
}

struct Compiler {
    ops: Vec<Op>,
    program: Program,
    in_loop: bool,
    in_look: bool,
}

impl Compiler {
    fn op(&mut self, op: Op) {
        self.ops.push(op);
    }

    fn here(&self) -> Index {
        self.ops.len() as Index
    }

    fn register(&mut self, count: usize) -> u16 {
        self.program.registers += count;
        (self.program.registers - count) as u16
    }

    fn emit(&mut self, tree: &Tree, follow: &First) -> Done {
        if self.ops.len() > OPS_MAX {
            return Err("its size");
        }
        match tree {
            Tree::Empty => {}
            Tree::Literal(text) => self.literal(text),
            Tree::Set(table) => {
                let table = self.table(table)?;
                self.op(Op::Set { table });
            }
            Tree::Concat(all) => {
                for (index, part) in all.iter().enumerate() {
                    self.emit(part, &first_of_all(&all[index + 1..], follow))?;
                    self.join_word();
                }
            }
            Tree::Alt(all) => self.alternation(all, follow)?,
            Tree::Repeat {
                body,
                min,
                max,
                lazy,
            } => self.repeat(body, *min, *max, *lazy, follow)?,
            Tree::Capture(number, body) => self.capture(*number, body, follow)?,
            Tree::Atomic(body) => self.atomic(body)?,
            Tree::Look {
                behind: true,
                negative,
                body,
            } => self.look_behind(*negative, body)?,
            Tree::Look {
                behind: false,
                negative,
                body,
            } => self.look_ahead(*negative, body)?,
            Tree::Assert(assertion) => self.assertion(*assertion),
            Tree::Atom(atom, body) => self.atom(*atom, body, follow)?,
        }
        Ok(())
    }

    /// Makes one operation of `\b\w+\b`.
    fn join_word(&mut self) {
        let edge = Op::WordEdge { negative: false };
        if let [
            ..,
            before,
            Op::Run {
                scan,
                min: 1,
                capture,
            },
            after,
        ] = self.ops[..]
            && before == edge
            && after == edge
            && self.program.scans[usize::from(scan)].is_word()
            && !self.is_target(self.here() - 1)
            && !self.is_target(self.here() - 2)
        {
            self.ops.truncate(self.ops.len() - 3);
            self.op(Op::Word { scan, capture });
        }
    }

    /// Whether a choice leads to an operation.
    fn is_target(&self, at: Index) -> bool {
        self.program
            .switches
            .iter()
            .any(|switch| switch.targets.contains(&at))
    }

    fn literal(&mut self, text: &[u8]) {
        if let [byte] = text {
            return self.op(Op::Byte(*byte));
        }
        if let Some(short) = Short::new(text)
            && let Ok(short) = intern(&mut self.program.shorts, &short)
        {
            return self.op(Op::Short { short });
        }
        let at = self.add_literal(text);
        self.op(Op::Literal {
            at,
            len: text.len() as Index,
        });
    }

    fn add_literal(&mut self, text: &[u8]) -> Index {
        self.program.literals.extend_from_slice(text);
        (self.program.literals.len() - text.len()) as Index
    }

    fn table(&mut self, table: &Table) -> Result<u16, &'static str> {
        intern(&mut self.program.tables, table)
    }

    fn scan(&mut self, stop: [u8; 256]) -> Result<u16, &'static str> {
        intern(&mut self.program.scans, &Scan::new(stop))
    }

    fn assertion(&mut self, assertion: Assertion) {
        self.op(match assertion {
            Assertion::LineStart => Op::LineStart,
            Assertion::LineEnd => Op::LineEnd,
            Assertion::TextStart => Op::TextStart,
            Assertion::TextEnd => Op::TextEnd,
            Assertion::TextEndLine => Op::TextEndLine,
            Assertion::WordEdge => Op::WordEdge { negative: false },
            Assertion::NoWordEdge => Op::WordEdge { negative: true },
        });
    }

    fn capture(&mut self, number: usize, body: &Tree, follow: &First) -> Done {
        let capture = u16::try_from(number).map_err(|_| "the number of its captures")?;
        if self.in_loop {
            self.op(Op::CaptureGuard(capture));
        } else if let Tree::Atom(Atom::Shortcut(shortcut), body) = body {
            return self.shortcut(*shortcut, capture, body, follow);
        }
        self.op(Op::CaptureStart(capture));
        let start = self.ops.len();
        self.emit(body, follow)?;
        if let [op] = &mut self.ops[start..]
            && let Some(own) = own_capture(op)
            && *own == NO_CAPTURE
        {
            *own = capture;
            // Choices before the capture lead to its first operation, which takes the place of its start.
            self.ops.remove(start - 1);
            return Ok(());
        }
        self.op(Op::CaptureEnd(capture));
        Ok(())
    }

    fn clear(&mut self, captures: impl IntoIterator<Item = usize>) {
        if !self.in_loop {
            captures
                .into_iter()
                .for_each(|number| self.op(Op::CaptureClear(number as u16)));
        }
    }

    /// Branches in order, each left out where the next byte cannot begin it.
    fn alternation(&mut self, all: &[Tree], follow: &First) -> Done {
        if all.len() > BRANCHES_MAX {
            let (head, tail) = all.split_at(BRANCHES_MAX - 1);
            let mut all = head.to_vec();
            all.push(Tree::Alt(tail.to_vec()));
            return self.alternation(&all, follow);
        }
        let firsts: Vec<First> = all.iter().map(|branch| first(branch, follow)).collect();
        let likely = all
            .iter()
            .position(|branch| !matches!(branch, Tree::Literal(_)))
            .unwrap_or(0) as u8;
        let switch = self.switch(&firsts, likely)?;
        if let Some(ipv6) = all
            .iter()
            .position(|branch| matches!(branch, Tree::Atom(Atom::Ipv6, _)))
        {
            *self.ops.last_mut().expect("the choice was just added") = Op::SwitchIpv6 {
                switch: switch as u16,
                likely,
                ipv6: ipv6 as u8,
            };
        }
        let captures: Vec<Vec<usize>> = all.iter().map(Tree::captures).collect();
        let mut jumps = Vec::new();
        for (index, branch) in all.iter().enumerate() {
            self.target(switch);
            let others = captures
                .iter()
                .enumerate()
                .filter(|(other, _)| *other != index);
            self.clear(
                others
                    .flat_map(|(_, numbers)| numbers.clone())
                    .collect::<Vec<_>>(),
            );
            self.emit(branch, follow)?;
            if index + 1 < all.len() {
                jumps.push(self.ops.len());
                self.op(Op::Jump(0));
            }
        }
        let end = self.here();
        jumps
            .into_iter()
            .for_each(|jump| self.ops[jump] = Op::Jump(end));
        Ok(())
    }

    /// Adds a choice whose targets are filled in by [`Compiler::target`].
    fn switch(&mut self, firsts: &[First], likely: u8) -> Result<usize, &'static str> {
        let mut viable = Box::new([0u32; 257]);
        for (branch, first) in firsts.iter().enumerate() {
            let bit = 1 << branch;
            viable
                .iter_mut()
                .zip(&first.bytes)
                .filter(|(_, can)| **can)
                .for_each(|(mask, _)| *mask |= bit);
            viable[256] |= if first.end { bit } else { 0 };
        }
        let index = self.program.switches.len();
        let switch = u16::try_from(index).map_err(|_| "its size")?;
        self.program.switches.push(Switch {
            viable,
            targets: Vec::new(),
        });
        self.op(Op::Switch { switch, likely });
        Ok(index)
    }

    fn target(&mut self, switch: usize) {
        let here = self.here();
        self.program.switches[switch].targets.push(here);
    }

    fn atomic(&mut self, body: &Tree) -> Done {
        let register = self.register(1);
        self.op(Op::AtomicStart { register });
        let start = self.ops.len();
        self.committed(body)?;
        if matches!(
            self.ops[start..],
            [Op::Run { .. } | Op::RunCounted { .. } | Op::Byte(_) | Op::Set { .. }]
        ) {
            // There is nothing to commit to.
            self.ops.remove(start - 1);
            return Ok(());
        }
        self.op(Op::AtomicEnd { register });
        Ok(())
    }

    /// The content of a group whose choices become final at its end.
    fn committed(&mut self, body: &Tree) -> Done {
        if self.in_loop && !body.captures().is_empty() {
            return Err("a repeated capture in an atomic group or look-around");
        }
        let outside = std::mem::replace(&mut self.in_look, true);
        let done = self.emit(body, &First::accept());
        self.in_look = outside;
        done
    }

    fn look_ahead(&mut self, negative: bool, body: &Tree) -> Done {
        if let Tree::Set(table) = body {
            let table = self.table(table)?;
            self.op(Op::AheadSet { table, negative });
            return Ok(());
        }
        if !negative {
            let register = self.register(2);
            self.op(Op::LookStart { register });
            self.committed(body)?;
            self.op(Op::LookEnd { register });
            return Ok(());
        }
        let register = self.register(1);
        let start = self.ops.len();
        self.op(Op::NotStart {
            register,
            otherwise: 0,
        });
        self.committed(body)?;
        self.op(Op::NotEnd { register });
        self.ops[start] = Op::NotStart {
            register,
            otherwise: self.here(),
        };
        Ok(())
    }

    fn look_behind(&mut self, negative: bool, body: &Tree) -> Done {
        match body {
            Tree::Set(table) => {
                let table = self.table(table)?;
                self.op(Op::BehindSet { table, negative });
            }
            Tree::Literal(text) => {
                let at = self.add_literal(text);
                self.op(Op::BehindLiteral {
                    at,
                    len: text.len() as u16,
                    negative,
                });
            }
            _ => return Err("a look-behind that is neither a class nor literal text"),
        }
        Ok(())
    }

    fn atom(&mut self, atom: Atom, body: &Tree, follow: &First) -> Done {
        match atom {
            Atom::Ipv4 => self.op(Op::Ipv4 {
                capture: NO_CAPTURE,
            }),
            Atom::Number => self.op(Op::Number {
                capture: NO_CAPTURE,
            }),
            Atom::Quoted => self.op(Op::Quoted {
                capture: NO_CAPTURE,
            }),
            Atom::Ipv6 => {
                self.op(Op::Ipv6Guard);
                self.emit(body, follow)?;
            }
            // The register would not survive a second round.
            Atom::Shortcut(_) if self.in_loop => self.emit(body, follow)?,
            Atom::Shortcut(shortcut) => self.shortcut(shortcut, NO_CAPTURE, body, follow)?,
        }
        Ok(())
    }

    /// A definition whose first choice has code of its own, alone in a capture or without one.
    fn shortcut(&mut self, shortcut: Shortcut, capture: u16, body: &Tree, follow: &First) -> Done {
        let register = self.register(1);
        let start = self.ops.len();
        self.op(Op::Shortcut {
            shortcut,
            register,
            capture,
            other: self.here() + 2,
        });
        self.op(Op::Jump(0));
        if capture != NO_CAPTURE {
            self.op(Op::CaptureStart(capture));
        }
        self.emit(body, follow)?;
        self.op(Op::ShortcutEnd { register });
        if capture != NO_CAPTURE {
            self.op(Op::CaptureEnd(capture));
        }
        self.ops[start + 1] = Op::Jump(self.here());
        Ok(())
    }
}

/// The capture that an operation can fill itself.
fn own_capture(op: &mut Op) -> Option<&mut u16> {
    match op {
        Op::Run { capture, .. }
        | Op::Word { capture, .. }
        | Op::Greedy { capture, .. }
        | Op::Lazy { capture, .. }
        | Op::Ipv4 { capture }
        | Op::Number { capture }
        | Op::Quoted { capture } => Some(capture),
        _ => None,
    }
}

/// The index of an equal entry, added when there is none.
fn intern<T: Clone + PartialEq>(all: &mut Vec<T>, one: &T) -> Result<u16, &'static str> {
    let index = all
        .iter()
        .position(|other| other == one)
        .unwrap_or_else(|| {
            all.push(one.clone());
            all.len() - 1
        });
    u16::try_from(index).map_err(|_| "its size")
}
