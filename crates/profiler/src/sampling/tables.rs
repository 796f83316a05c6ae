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
//! # Limits
//! A function has up to [`INSTRUCTIONS_MAX`] instructions, and as many before them for all functions of its kind. An expression has up to
//! [`OPERATIONS_MAX`] operations, none of which jumps.

use std::collections::HashSet;

use gimli::{
    BaseAddresses, CallFrameInstruction, CallFrameInstructionIter, CieOrFde, DebugFrame, EhFrame,
    EhFrameHdr, Encoding, EndianSlice, LittleEndian, Operation, UnwindExpression, UnwindSection,
};

/// The most instructions of a function.
const INSTRUCTIONS_MAX: usize = 32 << 10;
/// The most operations of an expression.
const OPERATIONS_MAX: usize = 256;

type Slice<'a> = EndianSlice<'a, LittleEndian>;

/// Where the sections begin that tables refer to.
pub(super) fn bases(eh_frame: u64, eh_frame_hdr: u64, text: u64) -> BaseAddresses {
    BaseAddresses::default()
        .set_eh_frame(eh_frame)
        .set_eh_frame_hdr(eh_frame_hdr)
        .set_text(text)
}

/// Where the functions of `.eh_frame` stand in it; none where it is beyond the limits.
pub(super) fn of_eh_frame(data: &[u8], bases: &BaseAddresses) -> Option<HashSet<usize>> {
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
pub(super) fn is_list_of(functions: &HashSet<usize>, data: &[u8], bases: &BaseAddresses) -> bool {
    let read = || {
        let header = EhFrameHdr::new(data, LittleEndian).parse(bases, 8).ok()?;
        let table = header.table()?;
        let start = header.eh_frame_ptr().direct().ok()?;
        let mut rows = table.iter(bases);
        while let Ok(Some((_, pointer))) = rows.next() {
            let offset = pointer.direct().ok()?.checked_sub(start)?;
            let is_function = usize::try_from(offset).is_ok_and(|at| functions.contains(&at));
            is_function.then_some(())?;
        }
        Some(())
    };
    read().is_some()
}

fn functions<'a, S: UnwindSection<Slice<'a>>>(
    section: &S,
    bases: &BaseAddresses,
) -> Option<HashSet<usize>> {
    let mut functions = HashSet::new();
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
        if known != Some(common.offset()) {
            instructions(section, common.instructions(section, bases), encoding)?;
            known = Some(common.offset());
        }
        instructions(section, function.instructions(section, bases), encoding)?;
        functions.insert(function.offset());
    }
    Some(functions)
}

fn instructions<'a, S: UnwindSection<Slice<'a>>>(
    section: &S,
    mut instructions: CallFrameInstructionIter<'_, Slice<'a>>,
    encoding: Encoding,
) -> Option<()> {
    let mut count = 0;
    while let Ok(Some(instruction)) = instructions.next() {
        count += 1;
        (count <= INSTRUCTIONS_MAX).then_some(())?;
        match instruction {
            CallFrameInstruction::DefCfaExpression { expression: found }
            | CallFrameInstruction::Expression {
                expression: found, ..
            }
            | CallFrameInstruction::ValExpression {
                expression: found, ..
            } => expression(section, found, encoding)?,
            _ => {}
        }
    }
    Some(())
}

fn expression<'a, S: UnwindSection<Slice<'a>>>(
    section: &S,
    found: UnwindExpression<usize>,
    encoding: Encoding,
) -> Option<()> {
    // One that cannot be read cannot be executed.
    let Ok(found) = found.get(section) else {
        return Some(());
    };
    let mut operations = found.operations(encoding);
    let mut count = 0;
    while let Ok(Some(operation)) = operations.next() {
        count += 1;
        let is_jump = matches!(operation, Operation::Bra { .. } | Operation::Skip { .. });
        (!is_jump && count <= OPERATIONS_MAX).then_some(())?;
    }
    Some(())
}
