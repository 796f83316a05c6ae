//! Which unwinding tables are used: those that end.
//!
//! The library that unwinds executes what the tables say, for each frame of each sample: a list of instructions for each function, some of them with
//! expressions, which may jump. A program could bring tables that loop for ever, or take long, and so stop the sampling of the whole machine. So
//! each table is walked once, when its file is first seen, and is not used if it is beyond the limits; stacks then go through the file by frame pointers.
//! Compilers and assemblers write no jumps into expressions of unwinding tables.
//!
//! Source: DWARF 5, <https://dwarfstd.org/doc/DWARF5.pdf>, chapters 2.5 and 6.4;
//! <https://refspecs.linuxfoundation.org/LSB_5.0.0/LSB-Core-generic/LSB-Core-generic/ehframechpt.html>.
//!
//! While they are walked, those functions are noted that the library cannot make a short rule of (see [`Unusual`]).
//!
//! # Limits
//! A function has up to [`INSTRUCTIONS_MAX`] instructions, and as many before them for all functions of its kind. An expression has up to
//! [`OPERATIONS_MAX`] operations, none of which jumps.

use std::collections::HashSet;

use gimli::{
    BaseAddresses, CallFrameInstruction, CallFrameInstructionIter, CieOrFde, DebugFrame, EhFrame,
    EhFrameHdr, Encoding, EndianSlice, LittleEndian, Operation, Register, UnwindExpression,
    UnwindSection, X86_64,
};

/// The most instructions of a function.
const INSTRUCTIONS_MAX: usize = 32 << 10;
/// The most operations of an expression.
const OPERATIONS_MAX: usize = 256;

/// The largest frame of which the library makes a short rule: it keeps offsets as 16 bits, in words.
const FRAME_BYTES_MAX: i64 = (i16::MAX as i64) * 8;

pub(super) type Slice<'a> = EndianSlice<'a, LittleEndian>;

/// A function that the library evaluates by its slow path: its frame is larger than a short rule can say, or is found from another
/// register than the stack and frame pointers, or from memory. Where that path fails, as it does where the frame is larger than the copy of the stack,
/// the library remembers for the address that frame pointers are to be followed. Such functions are evaluated by `callers` instead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Unusual {
    /// The first address of the function.
    pub start: u64,
    /// The address behind it.
    pub end: u64,
    /// Where it stands in the table.
    pub offset: usize,
}

/// The functions of a table.
#[derive(Debug, Default)]
pub(super) struct Functions {
    /// Where they stand in it.
    pub offsets: HashSet<usize>,
    /// Those that the library has no short rule for, by address.
    pub unusual: Vec<Unusual>,
}

/// Where the sections begin that tables refer to.
pub(super) fn bases(eh_frame: u64, eh_frame_hdr: u64, text: u64) -> BaseAddresses {
    BaseAddresses::default()
        .set_eh_frame(eh_frame)
        .set_eh_frame_hdr(eh_frame_hdr)
        .set_text(text)
}

/// The functions of `.eh_frame`; none where it is beyond the limits.
pub(super) fn of_eh_frame(data: &[u8], bases: &BaseAddresses) -> Option<Functions> {
    let mut section = EhFrame::new(data, LittleEndian);
    section.set_address_size(8);
    functions(&section, bases)
}

/// Whether `.debug_frame` is within the limits.
pub(super) fn is_debug_frame(data: &[u8]) -> bool {
    let mut section = DebugFrame::new(data, LittleEndian);
    section.set_address_size(8);
    functions(&section, &BaseAddresses::default()).is_some()
}

/// Whether the list of functions refers to those only.
pub(super) fn is_list_of(functions: &Functions, data: &[u8], bases: &BaseAddresses) -> bool {
    let read = || {
        let header = EhFrameHdr::new(data, LittleEndian).parse(bases, 8).ok()?;
        let table = header.table()?;
        let start = header.eh_frame_ptr().direct().ok()?;
        let mut rows = table.iter(bases);
        while let Ok(Some((_, pointer))) = rows.next() {
            let offset = pointer.direct().ok()?.checked_sub(start)?;
            let is_function =
                usize::try_from(offset).is_ok_and(|at| functions.offsets.contains(&at));
            is_function.then_some(())?;
        }
        Some(())
    };
    read().is_some()
}

/// A table that is within the limits.
pub(super) struct FrameTable<'a> {
    /// `.eh_frame`.
    pub data: &'a [u8],
    /// `.eh_frame_hdr`, if the file has it.
    pub list: Option<&'a [u8]>,
    /// The unusual functions.
    pub unusual: &'a [Unusual],
    /// Where the sections begin.
    pub bases: BaseAddresses,
}

impl<'a> FrameTable<'a> {
    /// The functions.
    pub fn section(&self) -> EhFrame<Slice<'a>> {
        let mut section = EhFrame::new(self.data, LittleEndian);
        section.set_address_size(8);
        section
    }

    /// Where the function of an address stands, as the list of functions has it.
    pub fn function(&self, address: u64) -> Option<usize> {
        let header = EhFrameHdr::new(self.list?, LittleEndian)
            .parse(&self.bases, 8)
            .ok()?;
        let start = header.eh_frame_ptr().direct().ok()?;
        let pointer = header.table()?.lookup(address, &self.bases).ok()?;
        usize::try_from(pointer.direct().ok()?.checked_sub(start)?).ok()
    }

    /// Where the function of an address stands, if it is unusual.
    pub fn unusual(&self, address: u64) -> Option<usize> {
        let behind = self.unusual.partition_point(|of| of.start <= address);
        let unusual = self.unusual.get(behind.checked_sub(1)?)?;
        (address < unusual.end).then_some(unusual.offset)
    }
}

fn functions<'a, S: UnwindSection<Slice<'a>>>(
    section: &S,
    bases: &BaseAddresses,
) -> Option<Functions> {
    let mut functions = Functions::default();
    let mut known = None;
    let mut entries = section.entries(bases);
    // What follows damage is not read by others either.
    while let Ok(Some(entry)) = entries.next() {
        let CieOrFde::Fde(function) = entry else {
            continue;
        };
        let Ok(function) = function.parse(S::cie_from_offset) else {
            continue;
        };
        let common = function.cie();
        let encoding = common.encoding();
        let begin = match known {
            Some((offset, begin)) if offset == common.offset() => begin,
            _ => {
                let read = common.instructions(section, bases);
                let begin = instructions(section, read, encoding, Kind::default())?;
                known = Some((common.offset(), begin));
                begin
            }
        };
        let read = function.instructions(section, bases);
        let kind = instructions(section, read, encoding, begin)?;
        let offset = function.offset();
        // A handler's caller is found in what the kernel has put on the stack.
        if kind.is_unusual && !common.is_signal_trampoline() && cfg!(target_arch = "x86_64") {
            let (start, end) = (function.initial_address(), function.end_address());
            functions.unusual.push(Unusual { start, end, offset });
        }
        functions.offsets.insert(offset);
    }
    functions.unusual.sort_unstable();
    Some(functions)
}

/// What instructions have said of a function so far.
#[derive(Debug, Clone, Copy)]
struct Kind {
    register: Register,
    offset: i64,
    is_unusual: bool,
}

impl Default for Kind {
    fn default() -> Self {
        Self {
            register: X86_64::RSP,
            offset: 8,
            is_unusual: false,
        }
    }
}

impl Kind {
    /// Takes an instruction into account.
    fn see(&mut self, instruction: &CallFrameInstruction<usize>) {
        match *instruction {
            CallFrameInstruction::DefCfa { register, offset } => {
                (self.register, self.offset) = (register, offset.try_into().unwrap_or(i64::MAX));
            }
            CallFrameInstruction::DefCfaRegister { register } => self.register = register,
            CallFrameInstruction::DefCfaOffset { offset } => {
                self.offset = offset.try_into().unwrap_or(i64::MAX);
            }
            CallFrameInstruction::Expression { register, .. }
            | CallFrameInstruction::ValExpression { register, .. }
            | CallFrameInstruction::Register {
                dest_register: register,
                ..
            } => self.is_unusual |= matches!(register, X86_64::RBP | X86_64::RA),
            _ => return,
        }
        self.is_unusual |= match self.register {
            X86_64::RSP => self.offset > FRAME_BYTES_MAX,
            X86_64::RBP => self.offset != 16,
            _ => true,
        };
    }
}

fn instructions<'a, S: UnwindSection<Slice<'a>>>(
    section: &S,
    mut instructions: CallFrameInstructionIter<'_, Slice<'a>>,
    encoding: Encoding,
    mut kind: Kind,
) -> Option<Kind> {
    let mut count = 0;
    while let Ok(Some(instruction)) = instructions.next() {
        count += 1;
        (count <= INSTRUCTIONS_MAX).then_some(())?;
        match instruction {
            CallFrameInstruction::DefCfaExpression { expression: found } => {
                kind.is_unusual |= expression(section, found, encoding)?;
            }
            CallFrameInstruction::Expression {
                expression: found, ..
            }
            | CallFrameInstruction::ValExpression {
                expression: found, ..
            } => {
                expression(section, found, encoding)?;
            }
            _ => {}
        }
        kind.see(&instruction);
    }
    Some(kind)
}

/// Whether an expression refers to more than the stack and frame pointers and the instruction; none where it is beyond the limits.
fn expression<'a, S: UnwindSection<Slice<'a>>>(
    section: &S,
    found: UnwindExpression<usize>,
    encoding: Encoding,
) -> Option<bool> {
    // One that cannot be read cannot be executed.
    let Ok(found) = found.get(section) else {
        return Some(false);
    };
    let mut operations = found.operations(encoding);
    let (mut count, mut is_unusual) = (0, false);
    while let Ok(Some(operation)) = operations.next() {
        count += 1;
        let is_jump = matches!(operation, Operation::Bra { .. } | Operation::Skip { .. });
        (!is_jump && count <= OPERATIONS_MAX).then_some(())?;
        is_unusual |= match operation {
            Operation::Deref { .. } => true,
            Operation::RegisterOffset { register, .. } => {
                !matches!(register, X86_64::RSP | X86_64::RBP | X86_64::RA)
            }
            _ => false,
        };
    }
    Some(is_unusual)
}
