//! User stacks from copies of stack memory.
//!
//! Frames are found by the tables of the program's files; where there are none, by frame pointers. A stack is *whole* where it ends as the
//! tables say it ends, at the first function of the thread.

use std::sync::Arc;

use framehop::{CacheNative, FrameAddress, Module, Unwinder, UnwinderNative};

use super::binaries::{Binary, Table};
use super::events::Registers;

/// No more frames than this are taken of a stack.
pub const FRAMES_MAX: usize = 512;

/// How an unwound stack ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// At the first function of the thread.
    Whole,
    /// Where the copy of the stack ended, or behind [`FRAMES_MAX`] frames.
    Cut,
    /// Where no caller could be found.
    Broken,
}

/// What is remembered of instructions, for all processes.
#[derive(Default)]
pub struct Memory(CacheNative<framehop::MayAllocateDuringUnwind>);

/// The code of one process.
#[derive(Clone, Default)]
pub struct Code(UnwinderNative<Table, framehop::MayAllocateDuringUnwind>);

impl Code {
    /// Adds a part of a file. `bias` is what is to be added to the file's addresses.
    pub fn add(&mut self, name: &str, start: u64, end: u64, bias: u64, binary: &Arc<Binary>) {
        let module = Module::new(name.to_owned(), start..end, bias, binary.sections());
        self.0.add_module(module);
    }

    /// Takes away what begins there.
    pub fn remove(&mut self, start: u64) {
        self.0.remove_module(start);
    }

    /// Appends the addresses of the frames, from the innermost on. Each is of an instruction that is running or of the call that has
    /// not returned.
    pub fn unwind(
        &self,
        registers: Registers,
        stack: &[u8],
        memory: &mut Memory,
        frames: &mut Vec<u64>,
    ) -> Ending {
        let mut is_beyond = false;
        let mut read = |address: u64| {
            let value = word(stack, address.wrapping_sub(registers.sp));
            is_beyond |= value.is_none();
            value.ok_or(())
        };
        #[cfg(target_arch = "x86_64")]
        let start =
            framehop::x86_64::UnwindRegsX86_64::new(registers.ip, registers.sp, registers.fp);
        #[cfg(target_arch = "aarch64")]
        let start =
            framehop::aarch64::UnwindRegsAarch64::new(registers.lr, registers.sp, registers.fp);
        let mut iterator = self
            .0
            .iter_frames(registers.ip, start, &mut memory.0, &mut read);
        let ending = loop {
            match iterator.next() {
                Ok(Some(_)) if frames.len() == FRAMES_MAX => break Ending::Cut,
                Ok(Some(FrameAddress::InstructionPointer(address))) => frames.push(address),
                Ok(Some(FrameAddress::ReturnAddress(address))) => {
                    // The call stands before the address to which it returns.
                    frames.push(address.get() - 1);
                }
                Ok(None) => break Ending::Whole,
                Err(_) => break Ending::Broken,
            }
        };
        match ending {
            Ending::Broken if is_beyond => Ending::Cut,
            ending => ending,
        }
    }
}

/// Eight bytes of the stack.
fn word(stack: &[u8], offset: u64) -> Option<u64> {
    let start = usize::try_from(offset).ok()?;
    let bytes = stack.get(start..start.checked_add(8)?)?;
    Some(u64::from_ne_bytes(bytes.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_without_tables_is_unwound_by_frame_pointers() {
        let stack: Vec<u8> = [0_u64, 0x1020, 0x400, 7, 0, 0x500, 1, 1]
            .iter()
            .flat_map(|word| word.to_ne_bytes())
            .collect();
        let registers = Registers {
            ip: 0x300,
            sp: 0x1000,
            fp: 0x1008,
            lr: 0,
        };
        let mut frames = Vec::new();
        let ending = Code::default().unwind(registers, &stack, &mut Memory::default(), &mut frames);
        assert_eq!(frames, [0x300, 0x3ff, 0x4ff]);
        assert_eq!(ending, Ending::Whole);
        frames.clear();
        let ending =
            Code::default().unwind(registers, &stack[..24], &mut Memory::default(), &mut frames);
        assert_eq!((&frames[..], ending), (&[0x300, 0x3ff][..], Ending::Cut));
    }
}
