//! Callers of functions that the library which unwinds has no short rule for: those with a frame larger than 256 KiB, and those whose
//! frame is found from another register than the stack and frame pointers, or from memory.
//!
//! The library knows three registers, and follows frame pointers where these do not suffice, whatever the function keeps in the register. Here all
//! general registers are followed, from the innermost frame on, but only in stacks with such a function on them: the frames between are walked
//! a second time. A register whose value is not known is none, not a guess.
//!
//! Examples are `_dl_runtime_resolve_xsavec` of glibc, which aligns its frame to 64 bytes and finds it from `rbx`, functions of GCC with aligned
//! frames, and functions of compilers that keep large values on the stack.
//!
//! Source: <https://gitlab.com/x86-psABIs/x86-64-ABI>, "DWARF Register Number Mapping" and "Registers"; DWARF 5, chapter 6.4.

use std::collections::BTreeMap;
use std::sync::Arc;

use gimli::{
    CfaRule, EhFrame, Encoding, EvaluationResult, Register, RegisterRule, UnwindContext,
    UnwindExpression, UnwindSection, UnwindTableRow, Value, X86_64,
};

use super::binaries::Binary;
use super::events::{GENERAL, Registers};
use super::tables::{FrameTable, Slice};

/// A frame of a stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unwound {
    /// The instruction that is running, or the call that has not returned.
    pub address: u64,
    /// Where the caller's frame pointer was found, with the return address behind it; none where it was not needed. Until the function has
    /// made a frame, that is the caller's.
    pub base: Option<u64>,
}

impl From<u64> for Unwound {
    fn from(address: u64) -> Self {
        let base = None;
        Self { address, base }
    }
}

/// What evaluating a function's rules needs, kept for the next one.
pub(super) type Context = UnwindContext<usize>;

/// The registers of a frame by DWARF's numbers: the general ones, and the instruction behind them. None where the value is not known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Known([Option<u64>; GENERAL + 1]);

impl Known {
    /// Those of the innermost frame.
    pub fn of(registers: &Registers) -> Self {
        let mut known = Self(std::array::from_fn(|number| {
            registers.general.get(number).copied()
        }));
        known.set(X86_64::RA, Some(registers.ip));
        known.set(X86_64::RSP, Some(registers.sp));
        known.set(X86_64::RBP, Some(registers.fp));
        known
    }

    /// Those of a frame of which no others are known.
    pub fn few(ip: u64, sp: u64, fp: u64) -> Self {
        let mut known = Self::default();
        known.set(X86_64::RA, Some(ip));
        known.set(X86_64::RSP, Some(sp));
        known.set(X86_64::RBP, Some(fp));
        known
    }

    /// The instruction, the top of the stack, and the frame pointer.
    pub fn few_of(&self) -> Option<(u64, u64, u64)> {
        let of = |register| self.get(register);
        Some((of(X86_64::RA)?, of(X86_64::RSP)?, of(X86_64::RBP)?))
    }

    pub fn get(&self, register: Register) -> Option<u64> {
        *self.0.get(usize::from(register.0))?
    }

    fn set(&mut self, register: Register, value: Option<u64>) {
        if let Some(known) = self.0.get_mut(usize::from(register.0)) {
            *known = value;
        }
    }
}

/// A part of a file that has unusual functions, in the memory of a process.
#[derive(Debug, Clone)]
struct MappedCode {
    end: u64,
    bias: u64,
    binary: Arc<Binary>,
}

/// The code of a process.
#[derive(Debug, Clone, Default)]
pub(super) struct Parts {
    all: BTreeMap<u64, MappedCode>,
    /// Where those begin that have unusual functions; most have none.
    unusual: Vec<u64>,
}

impl Parts {
    pub fn add(&mut self, start: u64, end: u64, bias: u64, binary: &Arc<Binary>) {
        if binary.has_unusual() {
            let at = self.unusual.partition_point(|other| *other < start);
            self.unusual.insert(at, start);
        }
        let binary = Arc::clone(binary);
        self.all.insert(start, MappedCode { end, bias, binary });
    }

    pub fn remove(&mut self, start: u64) {
        self.all.remove(&start);
        self.unusual.retain(|other| *other != start);
    }

    /// The table that has the function of an address, and the address in the file.
    fn table(&self, address: u64) -> Option<(FrameTable<'_>, u64)> {
        let (_, part) = self.all.range(..=address).next_back()?;
        (address < part.end).then_some(())?;
        let in_file = address.wrapping_sub(part.bias);
        Some((part.binary.frame_table(in_file)?, in_file))
    }

    /// Where the function of an address stands in its table, if it is unusual.
    pub fn unusual(&self, address: u64) -> Option<usize> {
        let before = self.unusual.partition_point(|start| *start <= address);
        let start = self.unusual.get(before.checked_sub(1)?)?;
        let part = self.all.get(start)?;
        (address < part.end).then_some(())?;
        let in_file = address.wrapping_sub(part.bias);
        part.binary.frame_table(in_file)?.unusual(in_file)
    }

    /// The registers of the caller of a function, which stands at `offset` in its table.
    fn caller(
        &self,
        address: u64,
        offset: Option<usize>,
        known: &Known,
        context: &mut Context,
        read: &mut impl FnMut(u64) -> Result<u64, ()>,
    ) -> Option<Known> {
        let (table, in_file) = self.table(address)?;
        let offset = offset.or_else(|| table.function(in_file))?;
        let section = table.section();
        let function = section
            .fde_from_offset(&table.bases, offset.into(), EhFrame::cie_from_offset)
            .ok()?;
        let encoding = function.cie().encoding();
        let row = function
            .unwind_info_for_address(&section, &table.bases, context, in_file)
            .ok()?;
        let rules = Rules {
            section: &section,
            encoding,
            known,
        };
        rules.caller(row, read)
    }
}

/// How far the registers of a stack have been followed.
#[derive(Debug)]
pub(super) struct Followed {
    known: Known,
    /// The frame that has them.
    frame: usize,
}

impl Followed {
    /// From the innermost frame on.
    pub fn from(registers: &Registers) -> Self {
        let known = Known::of(registers);
        Self { known, frame: 0 }
    }

    /// The registers of the caller of the last frame, whose function stands at `offset` in its table. `few` are those that are known of the frame.
    pub fn caller(
        &mut self,
        parts: &Parts,
        frames: &[Unwound],
        offset: usize,
        few: Known,
        context: &mut Context,
        read: &mut impl FnMut(u64) -> Result<u64, ()>,
    ) -> Option<Known> {
        let last = frames.len().checked_sub(1)?;
        let address = frames.get(last)?.address;
        if self.follow(parts, frames, context, read).is_none()
            || self.known.get(X86_64::RSP) != few.get(X86_64::RSP)
        {
            self.known = few;
        }
        self.frame = last;
        let caller = parts.caller(address, Some(offset), &self.known, context, read)?;
        (self.known, self.frame) = (caller, last + 1);
        Some(caller)
    }

    /// Follows the registers to the last frame, by way of those that the frames before return to.
    fn follow(
        &mut self,
        parts: &Parts,
        frames: &[Unwound],
        context: &mut Context,
        read: &mut impl FnMut(u64) -> Result<u64, ()>,
    ) -> Option<()> {
        for pair in frames.get(self.frame..)?.windows(2) {
            let [frame, next] = pair else { return None };
            self.known = parts.caller(frame.address, None, &self.known, context, read)?;
            let behind = self.known.get(X86_64::RA)?.checked_sub(next.address)?;
            // The call stands before the address to which it returns; a signal returns to what it has interrupted.
            (behind <= 1).then_some(())?;
        }
        Some(())
    }
}

/// The rules of a table for one frame.
struct Rules<'a> {
    section: &'a EhFrame<Slice<'a>>,
    encoding: Encoding,
    known: &'a Known,
}

impl Rules<'_> {
    fn caller(
        &self,
        row: &UnwindTableRow<usize>,
        read: &mut impl FnMut(u64) -> Result<u64, ()>,
    ) -> Option<Known> {
        let base = match row.cfa() {
            CfaRule::RegisterAndOffset { register, offset } => {
                self.known.get(*register)?.checked_add_signed(*offset)?
            }
            CfaRule::Expression(expression) => self.value(expression, None, read)?,
        };
        let mut caller = Known::default();
        for register in (0..).map(Register).take(caller.0.len()) {
            let value = match (row.register(register), register) {
                (None, X86_64::RSP) => Some(base),
                (None, X86_64::RBX | X86_64::RBP | X86_64::R12) => self.known.get(register),
                (None, X86_64::R13 | X86_64::R14 | X86_64::R15) => self.known.get(register),
                (None, _) => None,
                (Some(rule), _) => self.register(register, &rule, base, read),
            };
            caller.set(register, value);
        }
        let is_above = caller.get(X86_64::RSP)? > self.known.get(X86_64::RSP)?;
        (is_above && caller.get(X86_64::RA).is_some()).then_some(caller)
    }

    fn register(
        &self,
        register: Register,
        rule: &RegisterRule<usize>,
        base: u64,
        read: &mut impl FnMut(u64) -> Result<u64, ()>,
    ) -> Option<u64> {
        match rule {
            RegisterRule::SameValue => self.known.get(register),
            RegisterRule::Offset(offset) => {
                let at = base.checked_add_signed(*offset)?;
                match self.known.get(X86_64::RSP) {
                    // It has been restored already; tables do not always say so.
                    Some(top) if at < top => self.known.get(register),
                    _ => read(at).ok(),
                }
            }
            RegisterRule::ValOffset(offset) => base.checked_add_signed(*offset),
            RegisterRule::Register(other) => self.known.get(*other),
            RegisterRule::Expression(expression) => {
                let at = self.value(expression, Some(base), read)?;
                read(at).ok()
            }
            RegisterRule::ValExpression(expression) => self.value(expression, Some(base), read),
            _ => None,
        }
    }

    /// The value of an expression, which begins with that of `first` on its stack.
    fn value(
        &self,
        expression: &UnwindExpression<usize>,
        first: Option<u64>,
        read: &mut impl FnMut(u64) -> Result<u64, ()>,
    ) -> Option<u64> {
        let expression = expression.get(self.section).ok()?;
        let mut evaluation = expression.evaluation(self.encoding);
        if let Some(first) = first {
            evaluation.set_initial_value(first);
        }
        let mut result = evaluation.evaluate().ok()?;
        loop {
            result = match result {
                EvaluationResult::Complete => break,
                EvaluationResult::RequiresRegister { register, .. } => {
                    let value = Value::Generic(self.known.get(register)?);
                    evaluation.resume_with_register(value).ok()?
                }
                EvaluationResult::RequiresMemory {
                    address, size: 8, ..
                } => {
                    let value = Value::Generic(read(address).ok()?);
                    evaluation.resume_with_memory(value).ok()?
                }
                _ => return None,
            }
        }
        match evaluation.as_result().last()?.location {
            gimli::Location::Address { address } => Some(address),
            _ => None,
        }
    }
}
