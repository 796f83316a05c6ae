//! User stacks from copies of stack memory.
//!
//! Frames are found by the tables of the program's files; where there are none, by frame pointers. A stack is *whole* where it ends as the
//! tables say it ends, at the first function of the thread, or where the kernel has put a program's arguments, since the first function of most dynamic
//! linkers has no tables.
//!
//! Tables come from the files of any program. Those that loop are left out before (`tables`); if the library that reads them panics, the stack is broken,
//! and no other one of the process is unwound: its addresses are those of the interrupted instructions.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use framehop::{CacheNative, FrameAddress, Module, Unwinder, UnwinderNative};

use super::binaries::{Binary, Table};
pub use super::callers::Unwound;
use super::callers::{Context, Followed, Known, Parts};
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

/// What code is at an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CodeKind {
    /// That of a file.
    File,
    /// That of CPython.
    Python,
    /// Code that was made while the program runs.
    Made,
}

/// What is remembered of instructions, for all processes.
#[derive(Default)]
pub struct Memory {
    rules: CacheNative<framehop::MayAllocateDuringUnwind>,
    context: Context,
}

/// The code of one process.
#[derive(Clone, Default)]
pub struct Code {
    unwinder: UnwinderNative<Table, framehop::MayAllocateDuringUnwind>,
    parts: Parts,
    /// Whether its tables were more than the library was made for.
    is_bad: Cell<bool>,
}

impl Code {
    /// Adds a part of a file. `bias` is what is to be added to the file's addresses.
    pub fn add(&mut self, name: &str, start: u64, end: u64, bias: u64, binary: &Arc<Binary>) {
        let added = catch_unwind(AssertUnwindSafe(|| {
            let in_file = start.wrapping_sub(bias)..end.wrapping_sub(bias);
            let sections = binary.sections(&in_file);
            let module = Module::new(name.to_owned(), start..end, bias, sections);
            self.unwinder.add_module(module);
            self.parts.add(start, end, bias, binary);
        }));
        self.is_bad.set(self.is_bad.get() || added.is_err());
    }

    /// Takes away what begins there.
    pub fn remove(&mut self, start: u64) {
        self.unwinder.remove_module(start);
        self.parts.remove(start);
    }

    /// Appends the frames, from the innermost on. `place` says what is at an address that a process can run.
    pub fn unwind(
        &self,
        registers: Registers,
        stack: &[u8],
        memory: &mut Memory,
        place: impl Fn(u64) -> Option<CodeKind>,
        frames: &mut Vec<Unwound>,
    ) -> Ending {
        if self.is_bad.get() {
            frames.push(registers.ip.into());
            return Ending::Broken;
        }
        let unwound = catch_unwind(AssertUnwindSafe(|| {
            self.trusting(registers, stack, memory, place, frames)
        }));
        self.is_bad.set(unwound.is_err());
        unwound.unwrap_or(Ending::Broken)
    }

    fn trusting(
        &self,
        registers: Registers,
        stack: &[u8],
        memory: &mut Memory,
        place: impl Fn(u64) -> Option<CodeKind>,
        frames: &mut Vec<Unwound>,
    ) -> Ending {
        let copy = TopOfStack::of(stack, registers.sp);
        let mut read = |address| copy.read(address);
        let is_code = |address| place(address).is_some();
        let mut state = start(registers);
        let mut followed = Followed::from(&registers);
        let mut address = FrameAddress::from_instruction_pointer(registers.ip);
        frames.push(registers.ip.into());
        loop {
            if frames.len() == FRAMES_MAX {
                return Ending::Cut;
            }
            let before = state;
            if address.is_return_address()
                && place(address.address_for_lookup()) == Some(CodeKind::Made)
                && let Some(caller) = trampoline(&mut state, &place, &mut read)
            {
                frames.push(caller.address_for_lookup().into());
                address = caller;
                continue;
            }
            let caller = self.caller(address, &mut state, &mut followed, frames, memory, &copy);
            let caller = match caller {
                Ok(Some(caller)) if caller != 0 && is_code(caller - 1) => {
                    if let Some(frame) = frames.last_mut() {
                        frame.base = left_base(&before, &state);
                    }
                    FrameAddress::from_return_address(caller)
                }
                Err(Failed::Beyond) => return ending(stack, registers.sp, state.sp(), true),
                ended => {
                    state = before;
                    let above = (!address.is_return_address())
                        .then(|| framed(&mut state, &is_code, stack, registers.sp));
                    match (above.flatten(), ended) {
                        (None, Ok(None | Some(0))) => return Ending::Whole,
                        (None, _) => interrupted(&mut state, &is_code, &mut read)
                            .map(FrameAddress::from_instruction_pointer),
                        (framed, _) => framed,
                    }
                }
            };
            match caller {
                Some(caller) => {
                    // The call stands before the address to which it returns.
                    frames.push(caller.address_for_lookup().into());
                    address = caller;
                }
                None => {
                    let is_beyond = copy.is_beyond.get();
                    return ending(stack, registers.sp, state.sp(), is_beyond);
                }
            }
        }
    }

    /// The caller of the last frame, by tables, or by frame pointers where there are none.
    fn caller(
        &self,
        address: FrameAddress,
        state: &mut UnwindRegisters,
        followed: &mut Followed,
        frames: &[Unwound],
        memory: &mut Memory,
        copy: &TopOfStack<'_>,
    ) -> Result<Option<u64>, Failed> {
        let at = address.address_for_lookup();
        if let Some(offset) = self.parts.unusual(at) {
            let few = Known::few(at, state.sp(), fp(state));
            let was_beyond = copy.is_beyond.replace(false);
            let mut read = |address| copy.read(address);
            let context = &mut memory.context;
            let found = followed.caller(&self.parts, frames, offset, few, context, &mut read);
            let is_beyond = copy.is_beyond.get();
            copy.is_beyond.set(is_beyond || was_beyond);
            match found.and_then(|caller| caller.few_of()) {
                Some((ip, sp, fp)) => {
                    *state = UnwindRegisters::new(ip, sp, fp);
                    return Ok(Some(ip));
                }
                None if is_beyond => return Err(Failed::Beyond),
                // As if the tables were not there.
                None => {}
            }
        }
        let mut read = |address| copy.read(address);
        let rules = &mut memory.rules;
        let caller = self.unwinder.unwind_frame(address, state, rules, &mut read);
        caller.map_err(|_| Failed::Other)
    }
}

/// Why no caller was found.
enum Failed {
    /// It is known where the caller is: beyond the copy of the stack.
    Beyond,
    /// Anything else.
    Other,
}

/// A copy of the top of a stack.
struct TopOfStack<'a> {
    bytes: &'a [u8],
    top: u64,
    /// Whether more was asked for than it has.
    is_beyond: Cell<bool>,
}

impl<'a> TopOfStack<'a> {
    fn of(bytes: &'a [u8], top: u64) -> Self {
        let is_beyond = Cell::new(false);
        Self {
            bytes,
            top,
            is_beyond,
        }
    }

    fn read(&self, address: u64) -> Result<u64, ()> {
        let value = word(self.bytes, address.wrapping_sub(self.top));
        self.is_beyond.set(self.is_beyond.get() || value.is_none());
        value.ok_or(())
    }
}

/// How a stack ends where no caller is found. `top` is where its copy begins, `sp` where the last frame ends.
fn ending(stack: &[u8], top: u64, sp: u64, is_beyond: bool) -> Ending {
    match is_beyond {
        _ if is_program_start(stack, sp.wrapping_sub(top), sp) => Ending::Whole,
        true => Ending::Cut,
        false => Ending::Broken,
    }
}

#[cfg(target_arch = "x86_64")]
type UnwindRegisters = framehop::x86_64::UnwindRegsX86_64;
#[cfg(target_arch = "aarch64")]
type UnwindRegisters = framehop::aarch64::UnwindRegsAarch64;

#[cfg(target_arch = "x86_64")]
fn start(registers: Registers) -> UnwindRegisters {
    UnwindRegisters::new(registers.ip, registers.sp, registers.fp)
}

#[cfg(target_arch = "aarch64")]
fn start(registers: Registers) -> UnwindRegisters {
    UnwindRegisters::new(registers.lr, registers.sp, registers.fp)
}

#[cfg(target_arch = "x86_64")]
fn fp(registers: &UnwindRegisters) -> u64 {
    registers.bp()
}

#[cfg(target_arch = "aarch64")]
fn fp(registers: &UnwindRegisters) -> u64 {
    registers.fp()
}

/// The base of the frame that was left, if it was found by the frame pointer.
fn left_base(before: &UnwindRegisters, after: &UnwindRegisters) -> Option<u64> {
    let base = fp(before);
    (base.checked_add(16) == Some(after.sp())).then_some(base)
}

/// The caller of a trampoline that CPython makes for `-X perf`, if that is what has called. Its code keeps 8 bytes (padding up to 3.12, the frame pointer
/// from 3.13 on) below its return address, and always returns to the interpreter. Frame pointers do not lead there: most builds of CPython use
/// the register for other values. Source: `Python/asm_trampoline.S` of CPython.
#[cfg(target_arch = "x86_64")]
fn trampoline(
    state: &mut UnwindRegisters,
    place: &impl Fn(u64) -> Option<CodeKind>,
    read: &mut impl FnMut(u64) -> Result<u64, ()>,
) -> Option<FrameAddress> {
    let top = state.sp();
    let caller = read(top.checked_add(8)?).ok()?;
    (place(caller.checked_sub(1)?) == Some(CodeKind::Python)).then_some(())?;
    let fp = match state.bp() == top {
        true => read(top).ok()?,
        false => state.bp(),
    };
    *state = UnwindRegisters::new(caller, top.checked_add(16)?, fp);
    FrameAddress::from_return_address(caller)
}

/// The caller of the innermost function, by its frame pointer. The library takes a function that no table covers for one without a frame, if it is
/// the innermost; others such as those of programs without tables have one.
#[cfg(target_arch = "x86_64")]
fn framed(
    state: &mut UnwindRegisters,
    is_code: &impl Fn(u64) -> bool,
    stack: &[u8],
    top: u64,
) -> Option<FrameAddress> {
    let at = |address: u64| word(stack, address.checked_sub(top)?);
    let frame = state.bp();
    let caller = at(frame.checked_add(8)?)?;
    is_code(caller.checked_sub(1)?).then_some(())?;
    *state = UnwindRegisters::new(caller, frame.checked_add(16)?, at(frame)?);
    FrameAddress::from_return_address(caller)
}

/// Not needed here: the innermost function's caller is in a register, or its frame has tables.
#[cfg(target_arch = "aarch64")]
fn framed(
    _: &mut UnwindRegisters,
    _: &impl Fn(u64) -> bool,
    _: &[u8],
    _: u64,
) -> Option<FrameAddress> {
    None
}

/// Not needed here: the trampoline keeps a frame pointer.
#[cfg(target_arch = "aarch64")]
fn trampoline(
    _: &mut UnwindRegisters,
    _: &impl Fn(u64) -> Option<CodeKind>,
    _: &mut impl FnMut(u64) -> Result<u64, ()>,
) -> Option<FrameAddress> {
    None
}

/// Where a signal has interrupted the thread, if the stack pointer is that of a handler that returns: what the kernel has put there are the
/// registers from before. Their places are those of `struct rt_sigframe` (`arch/x86/include/asm/sigframe.h`) and `struct ucontext`.
#[cfg(target_arch = "x86_64")]
fn interrupted(
    state: &mut UnwindRegisters,
    is_code: &impl Fn(u64) -> bool,
    read: &mut impl FnMut(u64) -> Result<u64, ()>,
) -> Option<u64> {
    const FP: u64 = 120;
    const SP: u64 = 160;
    const IP: u64 = 168;
    let top = state.sp();
    let mut at = |offset| read(top.checked_add(offset)?).ok();
    let (fp, sp, ip) = (at(FP)?, at(SP)?, at(IP)?);
    let is_likely = is_code(ip) && sp > top;
    is_likely.then(|| {
        *state = UnwindRegisters::new(ip, sp, fp);
        ip
    })
}

/// Not known here: what the kernel puts there is larger than most copies of a stack.
#[cfg(target_arch = "aarch64")]
fn interrupted(
    _: &mut UnwindRegisters,
    _: &impl Fn(u64) -> bool,
    _: &mut impl FnMut(u64) -> Result<u64, ()>,
) -> Option<u64> {
    None
}

/// Whether a part of the stack is what a program begins with: the number of its arguments, their addresses, which rise and are above, a zero, and the
/// addresses of the environment. The dynamic linker of glibc has rounded the address down to 16 bytes when it runs the first functions of libraries.
/// Source: <https://gitlab.com/x86-psABIs/x86-64-ABI>, "Initial Stack and Register State"; that of arm64 has the same layout.
fn is_program_start(stack: &[u8], offset: u64, address: u64) -> bool {
    const ARGUMENTS_MAX: u64 = 2048;
    [0, 8].into_iter().any(|rounded| {
        let mut words =
            (0..).map_while(|index: u64| word(stack, offset.checked_add(rounded + 8 * index)?));
        let count = words.next().unwrap_or(0);
        let mut before = address;
        let mut rises = |argument: u64| argument > std::mem::replace(&mut before, argument);
        (1..=ARGUMENTS_MAX).contains(&count)
            && (0..count).all(|_| words.next().is_some_and(&mut rises))
            && words.next() == Some(0)
            && words.next().is_some_and(|first| first == 0 || rises(first))
    })
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

    fn bytes(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    #[test]
    fn a_stack_ends_where_a_program_begins() {
        for (words, is_start) in [
            (&[7, 2, 0x9000, 0x9004, 0, 0x9100, 0x9200, 0][..], true),
            (&[7, 8, 1, 0x9000, 0, 0], true),
            (&[7, 1, 0x9000, 0, 0x800], false),
            (&[7, 2, 0x9004, 0x9000, 0, 0x9100], false),
            (&[7, 2, 0x9000, 0x9004, 5, 0x9100], false),
            (&[7, 3, 0x9000, 0x9004, 0, 0x9100], false),
            (&[7, 0, 0, 0, 0], false),
            (&[7, u64::MAX, 0x9000, 0], false),
            (&[7, 1, 0x9000], false),
            (&[7], false),
        ] {
            assert_eq!(
                is_program_start(&bytes(words), 8, 0x1008),
                is_start,
                "{words:x?}"
            );
        }
        assert!(!is_program_start(&[0; 64], u64::MAX - 7, 0));
    }

    #[test]
    fn the_first_function_of_a_program_has_no_caller() {
        let stack = bytes(&[7, 0x2000, 1, 0x9000, 0, 0x9100, 0, 0]);
        let mut frames = Vec::new();
        let registers = Registers {
            ip: 0x300,
            sp: 0x1000,
            fp: 0x1000,
            ..Registers::default()
        };
        let unwind = |stack: &[u8], frames: &mut Vec<Unwound>| {
            let place = |address| (address < 0x8000).then_some(CodeKind::File);
            Code::default().unwind(registers, stack, &mut Memory::default(), place, frames)
        };
        assert_eq!(unwind(&stack, &mut frames), Ending::Whole);
        let frame = |address, base| Unwound { address, base };
        assert_eq!(frames, [frame(0x300, Some(0x1000)), 0x1fff.into()]);
        frames.clear();
        let other = bytes(&[7, 0x2000, 1, 5, 0, 0x9100, 0, 0]);
        assert_ne!(unwind(&other, &mut frames), Ending::Whole);
    }

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
            ..Registers::default()
        };
        let mut frames = Vec::new();
        let unwind = |stack: &[u8], frames: &mut Vec<Unwound>| {
            Code::default().unwind(
                registers,
                stack,
                &mut Memory::default(),
                |_| Some(CodeKind::Made),
                frames,
            )
        };
        let ending = unwind(&stack, &mut frames);
        let frame = |address, base| Unwound { address, base };
        let (inner, outer) = (frame(0x300, Some(0x1008)), frame(0x3ff, Some(0x1020)));
        assert_eq!(frames, [inner, outer, 0x4ff.into()]);
        assert_eq!(ending, Ending::Whole);
        frames.clear();
        let ending = unwind(&stack[..24], &mut frames);
        let cut = [inner, 0x3ff.into()];
        assert_eq!((&frames[..], ending), (&cut[..], Ending::Cut));
    }
}
