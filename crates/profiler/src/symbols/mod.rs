//! Names for addresses.
//!
//! | module | holds |
//! | --- | --- |
//! | [`binary`] | files of code: symbol tables, and what their compiler says of functions, inlined ones and lines |
//! | [`kernel`] | the kernel's functions, from `/proc/kallsyms` |
//! | [`perf_map`] | code that was made while a program runs, from `/tmp/perf-PID.map` |
//! | [`demangle`](mod@demangle) | names as their languages write them |
//!
//! Profiles are recorded with addresses, and get names when they are written, or later: [`Symbols::name`] makes of a profile with addresses
//! one with functions. What cannot be named stays an address: that of the function, where the file's unwinding tables say where it begins, so that
//! a function of a stripped program is one row.
//!
//! # Limits
//! A file's tables are read when one of its addresses is asked for, and kept for up to [`BINARIES_MAX`] files, those that were asked for last. A file
//! is taken only where its build id is that of the frames.
//!
//! # Interpreters without perf maps
//! The frames of CPython before 3.12 and of Ruby stay those of the interpreter's own C functions. The libraries that read interpreter frames (`py-spy`,
//! `rbspy`) return the stack at the time of their call, from the memory of the process, while samples are read up to 200 ms after they were taken: that
//! stack belongs to other code, and no time stamp tells whether it has changed. Reading it consistently means to stop the process for each read, and
//! reading it while the process runs gives torn stacks, so neither fits a profiler that is always on.

pub mod binary;
mod debug_info;
pub mod demangle;
pub mod kernel;
pub mod perf_map;

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use crate::profile::{Frame, FrameId, FrameKind, Profile, StackId};
use binary::SymbolFile;
use kernel::{Kernel, KernelError};

/// How many files' tables are kept.
pub const BINARIES_MAX: usize = 64;

/// A function at an address.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Named {
    /// The function.
    pub function: String,
    /// The source file; empty where it is not known.
    pub file: String,
    /// The line of the address; 0 where it is not known.
    pub line: u32,
}

/// Names of addresses in files and in the kernel.
#[derive(Debug, Default)]
pub struct Symbols {
    kernel: Option<Kernel>,
    files: HashMap<(PathBuf, String), Known>,
    asked: u64,
}

#[derive(Debug)]
struct Known {
    file: Option<SymbolFile>,
    last_asked: u64,
}

impl Symbols {
    /// Without names of the kernel.
    pub fn new() -> Self {
        Self::default()
    }

    /// With names of the kernel that runs now.
    pub fn with_kernel(kernel: Kernel) -> Self {
        Self {
            kernel: Some(kernel),
            ..Self::default()
        }
    }

    /// With names of the kernel that runs now, or without them and why.
    pub fn of_this_machine() -> (Self, Option<KernelError>) {
        match Kernel::running() {
            Ok(kernel) => (Self::with_kernel(kernel), None),
            Err(error) => (Self::new(), Some(error)),
        }
    }

    /// The functions at an address of a file, from the innermost inlined one to the one that the file has code for; none where they are not
    /// known.
    pub fn resolve(&mut self, path: &Path, build_id: &str, address: u64) -> Vec<Named> {
        let found = self.ask(path, build_id, |file| file.resolve(address));
        found.unwrap_or_default()
    }

    /// What a file says; none where it cannot be read.
    fn ask<T>(
        &mut self,
        path: &Path,
        build_id: &str,
        ask: impl FnOnce(&SymbolFile) -> T,
    ) -> Option<T> {
        self.asked += 1;
        let key = (path.to_owned(), build_id.to_owned());
        if !self.files.contains_key(&key) && self.files.len() >= BINARIES_MAX {
            let oldest = self.files.iter().min_by_key(|(_, known)| known.last_asked);
            if let Some(oldest) = oldest.map(|(key, _)| key.clone()) {
                self.files.remove(&oldest);
            }
        }
        // A damaged file can be more than the libraries that read it were made for. It is not asked again.
        let opened = || catch_unwind(|| SymbolFile::open(path, build_id).ok());
        let known = self.files.entry(key).or_insert_with(|| Known {
            file: opened().ok().flatten(),
            last_asked: 0,
        });
        known.last_asked = self.asked;
        let file = known.file.as_ref()?;
        let found = catch_unwind(AssertUnwindSafe(|| ask(file)));
        if found.is_err() {
            known.file = None;
        }
        found.ok()
    }

    /// A profile with functions in place of those addresses that have names.
    pub fn name(&mut self, profile: &Profile) -> Profile {
        let mut named = Profile::new(profile.window, profile.frequency_hz);
        named.lost = profile.lost;
        // From the outermost function on.
        let frames: Vec<Vec<FrameId>> = profile
            .frames()
            .map(|(_, frame)| self.frames(&frame, &mut named))
            .collect();
        let mut stacks = vec![StackId::EMPTY];
        for stack in profile.stacks() {
            let mut of_named = StackId::EMPTY;
            if let Some((frame, caller)) = profile.split(stack) {
                of_named = frames[frame.index()]
                    .iter()
                    .fold(stacks[caller.index()], |caller, frame| {
                        named.call(caller, *frame)
                    });
            }
            stacks.push(of_named);
        }
        let sets: Vec<_> = profile
            .label_sets()
            .map(|set| {
                let labels: Vec<_> = profile.labels_of(set).collect();
                named.labels(&labels)
            })
            .collect();
        for (stack, labels, weight) in profile.samples() {
            named.add(stacks[stack.index()], sets[labels.index()], weight);
        }
        for (labels, events) in profile.events() {
            named.count_events(sets[labels.index()], events);
        }
        named
    }

    /// What takes the place of a frame, from the outermost function on.
    fn frames(&mut self, frame: &Frame<'_>, named: &mut Profile) -> Vec<FrameId> {
        let is_open = frame.function.is_empty() && frame.address != 0;
        let found = match frame.kind() {
            _ if !is_open => Vec::new(),
            FrameKind::Kernel => self.kernel_name(frame),
            FrameKind::Native if frame.binary.starts_with('/') => {
                self.resolve(Path::new(&*frame.binary), &frame.build_id, frame.address)
            }
            FrameKind::Native | FrameKind::Interpreted => Vec::new(),
        };
        if found.is_empty() {
            let start = is_open.then(|| self.start_of(frame)).flatten();
            return vec![named.frame(&Frame {
                address: start.unwrap_or(frame.address),
                ..frame.clone()
            })];
        }
        let outermost = found.len() - 1;
        let build_id = match frame.kind() {
            // Functions of one kernel are the same after it was started again.
            FrameKind::Kernel => "",
            _ => &*frame.build_id,
        };
        let with_name = |(depth, function): (usize, &Named)| {
            named.frame(&Frame {
                function: (&*function.function).into(),
                file: (&*function.file).into(),
                // A function is one frame, whichever of its lines ran.
                line: 0,
                address: 0,
                build_id: build_id.into(),
                is_inlined: depth < outermost,
                ..frame.clone()
            })
        };
        found.iter().enumerate().rev().map(with_name).collect()
    }

    /// Where the function of an address without a name begins.
    fn start_of(&mut self, frame: &Frame<'_>) -> Option<u64> {
        let is_file = frame.kind() == FrameKind::Native && frame.binary.starts_with('/');
        let path = is_file.then(|| Path::new(&*frame.binary))?;
        self.ask(path, &frame.build_id, |file| file.start_of(frame.address))?
    }

    fn kernel_name(&self, frame: &Frame<'_>) -> Vec<Named> {
        let kernel = self.kernel.as_ref();
        let kernel = kernel.filter(|kernel| kernel.has(&frame.build_id));
        let name = kernel.and_then(|kernel| kernel.name(frame.address));
        let named = name.map(|name| Named {
            function: name.to_owned(),
            ..Named::default()
        });
        named.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::Weight;

    #[inline(never)]
    fn marked_function() -> u64 {
        marked_function as *const () as usize as u64
    }

    #[test]
    fn addresses_of_this_program_get_names() {
        let path = std::env::current_exe().unwrap();
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let line = maps.lines().find(|line| line.contains("r-xp")).unwrap();
        let start = u64::from_str_radix(line.split('-').next().unwrap(), 16).unwrap();
        let offset = u64::from_str_radix(line.split_whitespace().nth(2).unwrap(), 16).unwrap();
        let binary = crate::sampling::binaries::Binary::read(&path).unwrap();
        let address = binary.address_of(marked_function() - start + offset);
        let mut symbols = Symbols::new();
        let found = symbols.resolve(&path, &binary.build_id, address);
        let outermost = found.last().unwrap();
        assert!(
            outermost.function.ends_with("::marked_function"),
            "{outermost:?}"
        );
        assert!(outermost.file.ends_with("symbols/mod.rs"), "{outermost:?}");
        assert!(symbols.resolve(&path, "00", address).is_empty());
        assert!(
            symbols
                .resolve(&path, &binary.build_id, u64::MAX)
                .is_empty()
        );
    }

    #[test]
    fn what_has_no_name_stays_an_address() {
        let kernel = Kernel::parse("ffffffff81000000 T start\nffffffff81000100 T work\n").unwrap();
        let mut profile = Profile::default();
        let frame = |binary: &'static str, address| Frame {
            binary: binary.into(),
            address,
            ..Frame::default()
        };
        let stack = profile.stack([
            frame("/nowhere/a", 5),
            frame("[kernel]", 0xffff_ffff_8100_0042),
            frame("[kernel]", 0xffff_ffff_8100_0105),
            Frame::function("known", "[jit]"),
        ]);
        let labels = profile.labels(&[("host", "h")]);
        profile.add(
            stack,
            labels,
            Weight {
                samples: 2,
                cpu_ns: 3,
            },
        );
        let named = Symbols::with_kernel(kernel).name(&profile);
        let (stack, labels, weight) = named.samples().next().unwrap();
        let names: Vec<String> = named
            .frame_ids(stack)
            .map(|frame| named.frame_of(frame).name().into_owned())
            .collect();
        assert_eq!(names, ["known", "work", "start", "a+0x5"]);
        assert_eq!(named.label_of(labels, "host"), Some("h"));
        assert_eq!(weight.cpu_ns, 3);
    }
}
