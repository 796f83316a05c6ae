//! Names of JavaScript functions of a Node that was started without any option for that.
//!
//! V8 keeps frame pointers in all code that it makes, and each frame of a function has a reference to the function. The unwinder says where frames
//! have their bases, the copy of the stack has the reference, and the memory of the process has the name ([`reading`]), at places that the
//! binary says ([`layout`]). Memory is read when samples are looked at, a moment after they were taken.
//!
//! An interpreted function has no code of its own: its frame belongs to the interpreter, which is part of the binary.
//!
//! # Limits
//! - A function that was moved in between has no name. There may be another function where it was, so names are taken only of functions on pages from
//!   which functions do not move ([`Pages`]): closures that live shorter than it takes until samples are looked at have no names.
//! - The innermost function has no frame while it is entered and left. On x86-64, its instructions tell; elsewhere its caller's name is taken.
//! - Names are kept until the next samples are looked at, up to [`NAMES_MAX`] of a process.

pub mod layout;
mod lines;
pub mod reading;

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use layout::Layout;
use lines::Lines;
use reading::{Memory, ObjectReader};

use super::processes::Process;
use super::unwind::Unwound;

/// What the frames of functions have in place of a file.
pub const BINARY: &str = "[node]";

/// The most names of a process between two looks.
const NAMES_MAX: usize = 4 << 10;
/// The most processes whose memory is open at a time.
const PROCESSES_MAX: usize = 32;
/// Pages of V8's heap have so many bytes, and all objects of one are old or young.
const PAGE_BYTES: u64 = 256 << 10;
/// The most pages of a process that are remembered.
const PAGES_MAX: usize = 4 << 10;
/// Of so many functions of a page that is trusted, less than one had moved.
const MOVED_ONE_OF: u32 = 8;

/// The memory of a process.
struct ProcessMemory(Option<File>);

impl Memory for ProcessMemory {
    fn read(&self, address: u64, buffer: &mut [u8]) -> Option<()> {
        self.0.as_ref()?.read_exact_at(buffer, address).ok()
    }
}

/// What is known of a process.
#[derive(Default)]
struct Known {
    /// None where it was not opened since the last look; closed soon, so that it is that of the program that the process runs.
    memory: Option<ProcessMemory>,
    types: HashMap<u64, Option<u16>>,
    names: HashMap<u64, Option<Arc<str>>>,
    /// Whether code has a frame, by its addresses.
    frames: HashMap<u64, bool>,
    /// What was found before the last look.
    earlier: Earlier,
    pages: Pages,
    lines: Lines,
}

/// What was found at earlier looks: the memory of a process that has ended since cannot be read any more.
#[derive(Default)]
struct Earlier {
    names: HashMap<u64, Arc<str>>,
    frames: HashMap<u64, bool>,
}

impl Earlier {
    fn add(&mut self, names: &mut HashMap<u64, Option<Arc<str>>>, frames: &mut HashMap<u64, bool>) {
        if self.names.len() + names.len() > NAMES_MAX {
            self.names.clear();
        }
        if self.frames.len() + frames.len() > NAMES_MAX {
            self.frames.clear();
        }
        let names = names.drain();
        let found = names.filter_map(|(function, name)| Some((function, name?)));
        self.names.extend(found);
        self.frames.extend(frames.drain());
    }
}

/// How many references to functions were right, and how many led to something else, by the page to which they led. Young objects move often.
#[derive(Debug, Default)]
struct Pages(HashMap<u64, (u32, u32)>);

impl Pages {
    /// Counts a reference, and says whether the page is trusted.
    fn count(&mut self, function: u64, is_function: bool) -> bool {
        if self.0.len() >= PAGES_MAX {
            self.0.clear();
        }
        let (right, wrong) = self.0.entry(function / PAGE_BYTES).or_default();
        let counter = if is_function {
            &mut *right
        } else {
            &mut *wrong
        };
        *counter = counter.saturating_add(1);
        wrong.saturating_mul(MOVED_ONE_OF) <= *right
    }
}

/// Where a function runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Running {
    /// In this frame.
    Here(Arc<str>),
    /// In the next outer frame, which the unwinder has not seen: the code of this one has not made a frame.
    Outside(Arc<str>),
}

/// Names of functions.
#[derive(Default)]
pub struct Scripts {
    processes: HashMap<u32, Known>,
}

impl Scripts {
    /// Memory may have changed.
    pub fn look_again(&mut self) {
        let is_full = self.processes.len() >= PROCESSES_MAX;
        self.processes
            .retain(|_, known| !is_full || known.memory.is_some());
        for known in self.processes.values_mut() {
            known.memory = None;
            known.types.clear();
            known.earlier.add(&mut known.names, &mut known.frames);
        }
    }

    /// Processes have ended.
    pub fn end(&mut self, gone: &[u32]) {
        for pid in gone {
            self.processes.remove(pid);
        }
    }

    /// The function whose frame an unwound one has left. The innermost one may have no frame of its own.
    pub fn function(
        &mut self,
        pid: u32,
        process: &Process,
        frame: Unwound,
        is_innermost: bool,
        stack: &StackCopy<'_>,
    ) -> Option<Running> {
        let (layout, base) = process.v8().zip(frame.base)?;
        let is_made = process.is_made(frame.address);
        (is_made || process.is_of_v8(frame.address)).then_some(())?;
        let name = self.name(pid, layout, base, stack)?;
        let is_here = !is_innermost || is_made && self.has_frame(pid, frame.address);
        Some(match is_here {
            true => Running::Here(name),
            false => Running::Outside(name),
        })
    }

    /// The name of the function whose frame has its base there, if it is a frame of a function. `stack` is what is at `top` and above.
    fn name(
        &mut self,
        pid: u32,
        layout: &Layout,
        base: u64,
        stack: &StackCopy<'_>,
    ) -> Option<Arc<str>> {
        let context = stack.word(base.checked_add_signed(layout.frame_context)?)?;
        // Frames that are not of a function have a mark there, which is a small integer.
        (context & 1 == 1).then_some(())?;
        let function = stack.word(base.checked_add_signed(layout.frame_function)?)?;
        let known = self.known(pid)?;
        if let Some(name) = known.names.get(&function) {
            return name.clone();
        }
        (known.names.len() < NAMES_MAX).then_some(())?;
        let memory = known.memory.as_ref()?;
        let mut name = None;
        if memory.read(function & !7, &mut [0; 8]).is_some() {
            let mut reader = ObjectReader::new(layout, memory, &mut known.types, &mut known.lines);
            let shared = reader.shared(function);
            let is_trusted = known.pages.count(function, shared.is_some());
            let shared = shared.filter(|_| is_trusted);
            name = shared
                .and_then(|shared| reader.name(shared))
                .map(Into::into);
        } else if let Some(earlier) = known.earlier.names.get(&function) {
            name = Some(Arc::clone(earlier));
        }
        known.names.insert(function, name.clone());
        name
    }

    /// Whether the code at an address has its own frame: not where it is entered and left.
    fn has_frame(&mut self, pid: u32, address: u64) -> bool {
        let Some(known) = self.known(pid) else {
            return false;
        };
        if let Some(has_frame) = known.frames.get(&address) {
            return *has_frame;
        }
        let mut code = [0; BEFORE + BEHIND];
        let start = address.saturating_sub(BEFORE as u64);
        let memory = known.memory.as_ref();
        let has_frame = match memory.and_then(|memory| memory.read(start, &mut code)) {
            Some(()) => !is_at_edge(&code),
            None => known.earlier.frames.get(&address) == Some(&true),
        };
        if known.frames.len() < NAMES_MAX {
            known.frames.insert(address, has_frame);
        }
        has_frame
    }

    fn known(&mut self, pid: u32) -> Option<&mut Known> {
        let is_full = self.processes.len() >= PROCESSES_MAX;
        (!is_full || self.processes.contains_key(&pid)).then_some(())?;
        let known = self.processes.entry(pid).or_default();
        let open = || ProcessMemory(File::open(format!("/proc/{pid}/mem")).ok());
        known.memory.get_or_insert_with(open);
        Some(known)
    }
}

/// The copy of a stack.
#[derive(Debug, Clone, Copy)]
pub struct StackCopy<'a> {
    /// Where it begins.
    pub top: u64,
    /// What is there.
    pub bytes: &'a [u8],
}

impl StackCopy<'_> {
    fn word(&self, address: u64) -> Option<u64> {
        let start = usize::try_from(address.checked_sub(self.top)?).ok()?;
        let bytes = self.bytes.get(start..start.checked_add(8)?)?;
        Some(u64::from_ne_bytes(bytes.try_into().ok()?))
    }
}

/// How much code is looked at before an instruction, and from there on.
const BEFORE: usize = 24;
const BEHIND: usize = 48;

/// Whether the instruction in the middle of some code is among those with which V8 enters a function (`push rbp; mov rbp, rsp; push rsi; push rdi`, and what comes
/// before) or leaves it (from `mov rsp, rbp; pop rbp` on). Source: `src/compiler/backend/x64/code-generator-x64.cc` and
/// `src/baseline/x64/baseline-compiler-x64-inl.h` of V8.
fn is_at_edge(code: &[u8; BEFORE + BEHIND]) -> bool {
    const ENTRY: &[u8] = &[0x55, 0x48, 0x89, 0xe5];
    /// Up to here from the beginning of that, the function is not on the stack.
    const ENTRY_BYTES: usize = 6;
    const LEAVES: [&[u8]; 2] = [&[0x48, 0x8b, 0xe5, 0x5d], &[0x48, 0x89, 0xec, 0x5d]];
    if !cfg!(target_arch = "x86_64") {
        return false;
    }
    let has = |code: &[u8], wanted: &[u8]| code.windows(wanted.len()).any(|found| found == wanted);
    has(&code[BEFORE - ENTRY_BYTES + 1..], ENTRY)
        || LEAVES.iter().any(|leave| has(&code[..BEFORE], leave))
}
