//! Samples what the processors of this machine do.
//!
//! | module | holds |
//! | --- | --- |
//! | [`events`] | the kernel's events: opened, read, in the order of their time |
//! | [`rights`] | what is missing where the kernel refuses, and what works without it |
//! | [`processes`] | what is known of processes: names, threads, mapped files, labels |
//! | [`runtimes`] | which runtime a process is of |
//! | [`made`] | names of code that is made while programs run |
//! | [`jvm`] | asks Java virtual machines for such names |
//! | [`v8`] | names of the JavaScript functions of a Node that writes no map |
//! | [`hints`] | which option a runtime needs, where it does not show its functions |
//! | [`binaries`] | files of code: what is needed to unwind stacks and to name addresses |
//! | [`timers`] | samples of this process where the kernel allows no events |
//! | `tables` | which unwinding tables are used: those that end |
//! | `wanted` | which processes are sampled |
//! | [`unwind`] | user stacks from copies of stack memory |
//! | [`recorder`] | joins these to profiles |
//! | [`background`] | a thread that records one profile after the other |
//!
//! Each core has one event, the kernel's processor clock, which fires so many times a second while the core is busy. A sample brings the kernel's
//! own stack, the registers of the user's and a copy of the top of its stack. That copy is unwound here with the tables of the
//! program's files, so that programs need no frame pointers; code without tables is unwound by frame pointers.
//!
//! # Limits
//! - Linux on x86-64 and arm64.
//! - Stacks are cut behind [`unwind::FRAMES_MAX`] frames and where the copy ends ([`Options::stack_bytes`]).
//! - Memory: the ring buffers ([`Options::ring_bytes`] a core), what is known of living processes, and the unwinding tables of the files that they run.

pub mod background;
pub mod binaries;
mod callers;
pub mod events;
pub mod hints;
pub mod jvm;
pub mod made;
pub mod processes;
pub mod recorder;
pub mod rights;
pub mod runtimes;
mod tables;
pub mod timers;
pub mod unwind;
pub mod v8;
mod wanted;

pub use background::Background;
pub use hints::Hint;
pub use recorder::{Purposes, Recorded, Recorder, Stats};
pub use rights::SamplingError;

/// Which processes are sampled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// All of the machine.
    All,
    /// The process that samples, with the threads that it starts.
    This,
    /// These, and the processes that they start.
    Processes(Vec<u32>),
}

/// The least and the most that waits for a core.
const RING_BYTES_MIN: usize = 256 << 10;
const RING_BYTES_MAX: usize = 64 << 20;

/// How samples are taken.
#[derive(Debug, Clone)]
pub struct Options {
    /// Which processes.
    pub target: Target,
    /// How often a second each core is sampled.
    pub frequency_hz: u32,
    /// How many bytes of a user stack are copied; a multiple of 8 below 64 KiB.
    pub stack_bytes: u32,
    /// How many bytes wait for each core between two looks; a power of two of pages.
    pub ring_bytes: usize,
    /// Whether each sample ends a wait.
    pub wakes: bool,
    /// Takes samples by timers also where the kernel allows events; for [`Target::This`].
    pub by_timers: bool,
    /// Whether JVMs are asked for the names of their code ([`jvm`]), which sends them a signal. Not for [`Target::This`].
    pub attaches: bool,
}

impl Options {
    /// So many samples a second of each core, 24 KiB of each stack, and room for what a core gives in a second.
    pub fn new(target: Target, frequency_hz: u32) -> Self {
        const STACK_BYTES: u32 = 24 << 10;
        const RECORD_BYTES: usize = STACK_BYTES as usize + 4096;
        let ring_bytes = frequency_hz as usize * RECORD_BYTES;
        Self {
            wakes: target == Target::This,
            by_timers: false,
            attaches: target != Target::This,
            target,
            frequency_hz,
            stack_bytes: STACK_BYTES,
            ring_bytes: ring_bytes
                .next_power_of_two()
                .clamp(RING_BYTES_MIN, RING_BYTES_MAX),
        }
    }
}
