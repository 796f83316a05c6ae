//! The kernel's events: opened, read, in the order of their time.
//!
//! A core has two buffers where the whole machine is sampled: one of samples, and one of what processes do (begin, end, map files, get names). So what
//! the kernel reports as lost in the first are samples, and samples never leave processes without the records that explain them. Threads
//! that are sampled by themselves have one buffer for both, since the system limits how much memory a user without rights may have for buffers:
//! there the number of lost samples includes the other records, which are few.
//!
//! Source: perf_event_open(2).

use std::fs;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::Duration;

use mio::unix::SourceFd;
use mio::{Interest, Poll, Token, Waker};
use perf_event::data::endian::Native;
use perf_event::data::parse::{ParseConfig, Parser};
use perf_event::data::{
    Comm, Exit, Fork, Lost, LostSamples, Mmap2, RecordMetadata, Sample, Visitor,
};
use perf_event::events::Software;
use perf_event::{Builder, Clock, SampleFlag, Sampler};
use rustix::time::{ClockId, clock_gettime};

use super::{Options, SamplingError, Target};

/// What the system says of a process that has ended.
const NO_SUCH_PROCESS: i32 = 3;

/// More samples than a buffer can hold: whoever reads looks by the clock.
const NEVER: usize = 1 << 20;

/// How many bytes wait for each core of what processes do: a program that starts, runs and ends gives some 2 KiB.
const CHANGES_BYTES: usize = 512 << 10;

/// Bytes of what stands before each record.
const HEADER_BYTES: usize = 8;

/// The flag of a name that a process got by starting a program.
const MISC_COMM_EXEC: u16 = 1 << 13;

/// What follows in a list of return addresses is the kernel's.
const CONTEXT_KERNEL: u64 = -128_i64 as u64;
/// Marks for what follows, the kernel's among them, are not below this.
const CONTEXT_MAX: u64 = -4095_i64 as u64;

/// How many general registers x86-64 has.
pub(super) const GENERAL: usize = 16;

/// The registers that unwinding needs, as numbers of perf's masks: the general ones in the order of DWARF's numbers, and the instruction.
#[cfg(target_arch = "x86_64")]
const REGISTERS: [u32; GENERAL + 1] = [0, 3, 2, 1, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23, 8];
#[cfg(target_arch = "aarch64")]
const REGISTERS: [u32; 4] = [29, 30, 31, 32];

/// The registers of a user stack.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Registers {
    /// The instruction.
    pub ip: u64,
    /// The top of the stack.
    pub sp: u64,
    /// The frame.
    pub fp: u64,
    /// Where the function returns to, on arm64.
    pub lr: u64,
    /// The general ones by DWARF's numbers, on x86-64.
    pub general: [u64; GENERAL],
}

/// One sample.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StackSample {
    /// The process; 0 for a core without anything to do.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
    /// When, in nanoseconds of the monotonic clock.
    pub time_ns: u64,
    /// How many times the time between two samples it stands for; more than once where those before it could not be taken.
    pub periods: u32,
    /// The kernel's addresses, from the innermost function on.
    pub kernel: Vec<u64>,
    /// The registers with which the program runs, where it has any.
    pub registers: Option<Registers>,
    /// What its stack holds from `sp` on.
    pub stack: Vec<u8>,
}

/// Code that a process can run from now on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mapped {
    /// The process.
    pub pid: u32,
    /// Its address in the process.
    pub start: u64,
    /// How many bytes.
    pub bytes: u64,
    /// Where it begins in the file.
    pub file_offset: u64,
    /// The file, or a name in brackets.
    pub path: String,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A sample was taken.
    Sample(Box<StackSample>),
    /// A process can run more code.
    Mapped(Mapped),
    /// A thread has a new name; `is_exec` where the process runs another program.
    Named {
        /// The process.
        pid: u32,
        /// The thread.
        tid: u32,
        /// The name.
        name: String,
        /// Whether it is another program.
        is_exec: bool,
    },
    /// A process or thread began.
    Began {
        /// The process.
        pid: u32,
        /// The process that it is a copy of; itself for a thread.
        parent: u32,
        /// The thread.
        tid: u32,
    },
    /// A thread ended, with its process where it is the first.
    Ended {
        /// The process.
        pid: u32,
        /// The thread.
        tid: u32,
    },
    /// So many samples found no room.
    Lost(u64),
    /// Records of what processes do found no room.
    Missed,
}

impl Event {
    /// The process of which it tells; none where that is not known.
    pub fn pid(&self) -> Option<u32> {
        match self {
            Self::Sample(sample) => Some(sample.pid),
            Self::Mapped(mapped) => Some(mapped.pid),
            Self::Named { pid, .. } | Self::Began { pid, .. } | Self::Ended { pid, .. } => {
                Some(*pid)
            }
            Self::Lost(_) | Self::Missed => None,
        }
    }
}

/// Where the kernel writes records.
struct Buffer {
    sampler: Sampler,
    config: ParseConfig<Native>,
    has_samples: bool,
}

impl Buffer {
    /// Opens an event, on a core and for a thread or all threads. A thread that has ended meanwhile has none.
    fn open(
        builder: &Builder<'static>,
        (cpu, thread): (usize, Option<i32>),
        has_samples: bool,
        bytes: usize,
    ) -> io::Result<Option<Self>> {
        let mut builder = builder.clone();
        match thread {
            None => builder.any_pid(),
            Some(thread) => builder.observe_pid(thread).inherit(true),
        };
        let counter = match builder.one_cpu(cpu).build() {
            Err(error) if thread.is_some() && error.raw_os_error() == Some(NO_SUCH_PROCESS) => {
                return Ok(None);
            }
            counter => counter?,
        };
        Ok(Some(Self {
            sampler: counter.sampled(bytes)?,
            config: ParseConfig::from(*builder.attrs()),
            has_samples,
        }))
    }

    /// Appends what it holds, with times.
    fn read(&mut self, events: &mut Vec<(u64, Event)>) {
        let mut bytes = Vec::new();
        while let Some(record) = self.sampler.next_record() {
            bytes.clear();
            bytes.extend_from_slice(&record.ty().to_ne_bytes());
            bytes.extend_from_slice(&record.misc().to_ne_bytes());
            let size = u16::try_from(record.len() + HEADER_BYTES).unwrap_or(u16::MAX);
            bytes.extend_from_slice(&size.to_ne_bytes());
            record
                .data()
                .iter()
                .for_each(|piece| bytes.extend_from_slice(piece));
            let mut parser = Parser::new(&*bytes, self.config.clone());
            // What the kernel writes and this does not know is none of its events.
            let event = parser.parse_record(Reading {
                has_samples: self.has_samples,
            });
            events.extend(event.ok().flatten());
        }
    }
}

/// The events of all cores.
pub struct Events {
    buffers: Vec<Buffer>,
    poll: Poll,
    waker: Arc<Waker>,
    /// What was read, with its time.
    waiting: Vec<(u64, Event)>,
    /// How old an event is at least when it is told.
    age_min: Duration,
    is_stopped: bool,
}

/// How long the kernel may take to write a record of which it has taken the time.
const WRITING: Duration = Duration::from_millis(1);

/// What wakes the thread that waits for events; no event has this number.
const WAKE: Token = Token(usize::MAX);

/// What is tried, the most first.
struct Attempt<'t> {
    target: &'t Target,
    has_kernel: bool,
}

impl Events {
    /// Begins to sample. For other processes that is the whole machine where the kernel allows it, whatever the target: a list of threads is
    /// out of date as soon as it is made. Without that right each thread of the target is sampled by itself, and without the right to the
    /// kernel's functions, only the program's.
    ///
    /// # Errors
    /// The kernel refuses, or a process is not there.
    pub fn open(options: &Options) -> Result<Self, SamplingError> {
        if let Target::Processes(processes) = &options.target {
            check(processes)?;
        }
        let targets: &[&Target] = match &options.target {
            Target::All => &[&Target::All],
            Target::This => &[&Target::This],
            target @ Target::Processes(_) => &[&Target::All, target],
        };
        let mut attempts: Vec<Attempt<'_>> = Vec::new();
        for target in targets {
            attempts.push(Attempt {
                target,
                has_kernel: true,
            });
            if **target != Target::All {
                attempts.push(Attempt {
                    target,
                    has_kernel: false,
                });
            }
        }
        let mut attempts = attempts.into_iter();
        loop {
            let Some(attempt) = attempts.next() else {
                unreachable!("the last attempt ends the loop");
            };
            match Self::open_at(options, &attempt) {
                Err(SamplingError::Forbidden { .. }) if !attempts.as_slice().is_empty() => {}
                opened => return opened,
            }
        }
    }

    fn open_at(options: &Options, attempt: &Attempt<'_>) -> Result<Self, SamplingError> {
        let is_of_all = *attempt.target == Target::All;
        let refuse = |error| SamplingError::of_open(error, is_of_all);
        let (mut samples, mut changes) = (
            sampling(options, attempt.has_kernel),
            common(Software::DUMMY, attempt.has_kernel),
        );
        tell_changes(if is_of_all {
            &mut changes
        } else {
            &mut samples
        });
        let places = places(attempt.target)?;
        let mut buffers = Vec::new();
        // What processes do is recorded first, so that nothing is sampled of which that is not known.
        for place in places.iter().filter(|_| is_of_all) {
            let buffer = Buffer::open(&changes, *place, false, CHANGES_BYTES);
            buffers.extend(buffer.map_err(refuse)?);
        }
        for place in places {
            let buffer = Buffer::open(&samples, place, true, options.ring_bytes);
            buffers.extend(buffer.map_err(refuse)?);
        }
        let (poll, waker) = watch(&buffers).map_err(|source| SamplingError::Io {
            action: "watch performance events",
            source,
        })?;
        for buffer in &mut buffers {
            let counter = buffer.sampler.as_counter_mut();
            counter.enable().map_err(refuse)?;
        }
        Ok(Self {
            buffers,
            poll,
            waker,
            waiting: Vec::new(),
            // Whoever is woken by a sample wants that sample; the other records of a single process need no order between cores.
            age_min: match options.wakes {
                true => Duration::ZERO,
                false => WRITING,
            },
            is_stopped: false,
        })
    }

    /// Waits until there is something to drain, as far as the kernel tells ([`Options::wakes`]), somebody wakes it, or the time is over.
    pub fn wait(&mut self, timeout: Duration) {
        let mut events = mio::Events::with_capacity(64);
        // An interruption is a look too many.
        let _ = self.poll.poll(&mut events, Some(timeout));
    }

    /// What ends a wait.
    pub fn waker(&self) -> Arc<Waker> {
        self.waker.clone()
    }

    /// Tells what has happened since the last call, in the order of time. What happens while buffers are read waits for the next call: one core's
    /// buffer may have been read before a process began there, and the next one's after it had moved to that one.
    pub fn drain(&mut self, each: impl FnMut(Event)) {
        let now = clock_gettime(ClockId::Monotonic);
        let now = Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec as u32);
        let until = now.saturating_sub(self.age_min).as_nanos() as u64;
        for buffer in &mut self.buffers {
            buffer.read(&mut self.waiting);
        }
        self.waiting.sort_by_key(|(time, _)| *time);
        let ready = match self.is_stopped {
            true => self.waiting.len(),
            false => self.waiting.partition_point(|(time, _)| *time <= until),
        };
        self.waiting
            .drain(..ready)
            .map(|(_, event)| event)
            .for_each(each);
    }

    /// Ends sampling.
    pub fn stop(&mut self) {
        self.is_stopped = true;
        for buffer in &mut self.buffers {
            // One that cannot be stopped ends when it is dropped.
            let _ = buffer.sampler.as_counter_mut().disable();
        }
    }
}

/// Tells when there is something in a buffer.
fn watch(buffers: &[Buffer]) -> io::Result<(Poll, Arc<Waker>)> {
    let poll = Poll::new()?;
    for (number, buffer) in buffers.iter().enumerate() {
        let descriptor = buffer.sampler.as_raw_fd();
        poll.registry().register(
            &mut SourceFd(&descriptor),
            Token(number),
            Interest::READABLE,
        )?;
    }
    let waker = Waker::new(poll.registry(), WAKE)?;
    Ok((poll, Arc::new(waker)))
}

/// What all events have in common.
fn common(event: Software, has_kernel: bool) -> Builder<'static> {
    let mut builder = Builder::new(event);
    builder
        .sample(SampleFlag::TID | SampleFlag::TIME)
        .sample_id_all(true)
        .exclude_kernel(!has_kernel)
        .exclude_hv(!has_kernel)
        .clockid(Clock::MONOTONIC)
        .wakeup_events(NEVER);
    builder
}

/// Samples with stacks.
fn sampling(options: &Options, has_kernel: bool) -> Builder<'static> {
    let mut builder = common(Software::CPU_CLOCK, has_kernel);
    builder
        .sample_frequency(u64::from(options.frequency_hz))
        .sample(SampleFlag::CALLCHAIN)
        .sample(SampleFlag::REGS_USER | SampleFlag::STACK_USER)
        .sample_regs_user(REGISTERS.iter().map(|register| 1 << register).sum())
        .sample_stack_user(options.stack_bytes)
        .exclude_callchain_user(true)
        .exclude_idle(true)
        .wakeup_events(if options.wakes { 1 } else { NEVER });
    builder
}

/// Makes an event tell what processes do.
fn tell_changes(builder: &mut Builder<'static>) {
    builder
        .mmap(true)
        .mmap2(true)
        .comm(true)
        .comm_exec(true)
        .task(true);
}

/// Whether processes are there.
fn check(processes: &[u32]) -> Result<(), SamplingError> {
    let is_gone = |process: &&u32| fs::metadata(format!("/proc/{process}")).is_err();
    match processes.iter().find(is_gone) {
        Some(process) => Err(SamplingError::NoProcess(*process)),
        None => Ok(()),
    }
}

/// The cores, each with the thread that is sampled there; none for all.
fn places(target: &Target) -> Result<Vec<(usize, Option<i32>)>, SamplingError> {
    let cores = cores()?;
    let own = [std::process::id()];
    let processes: &[u32] = match target {
        Target::All => return Ok(cores.into_iter().map(|core| (core, None)).collect()),
        Target::This => &own,
        Target::Processes(processes) => processes,
    };
    let threads: Result<Vec<_>, _> = processes.iter().copied().map(threads_of).collect();
    let threads = threads?.concat();
    let of_core = |core: usize| threads.iter().map(move |thread| (core, Some(*thread)));
    Ok(cores.into_iter().flat_map(of_core).collect())
}

/// The threads of a process.
pub(super) fn threads_of(process: u32) -> Result<Vec<i32>, SamplingError> {
    let entries = fs::read_dir(format!("/proc/{process}/task"));
    let entries = entries.map_err(|_| SamplingError::NoProcess(process))?;
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    Ok(names.filter_map(|name| name.parse().ok()).collect())
}

/// The numbers of the cores that work.
fn cores() -> Result<Vec<usize>, SamplingError> {
    let text = fs::read_to_string("/sys/devices/system/cpu/online");
    let text = text.map_err(|source| SamplingError::Io {
        action: "read which cores work from /sys/devices/system/cpu/online",
        source,
    })?;
    Ok(listed(&text))
}

/// The numbers of a list such as `0-3,8`.
fn listed(text: &str) -> Vec<usize> {
    let mut numbers = Vec::new();
    for piece in text.trim().split(',') {
        let (first, last) = piece.split_once('-').unwrap_or((piece, piece));
        if let (Ok(first), Ok(last)) = (first.parse::<usize>(), last.parse()) {
            numbers.extend(first..=last);
        }
    }
    numbers
}

/// Makes events of the kernel's records.
struct Reading {
    /// Whether the buffer is one of samples.
    has_samples: bool,
}

type Read = Option<(u64, Event)>;

impl<'a> Visitor<'a> for Reading {
    type Output = Read;

    fn visit_unimplemented(self, _: RecordMetadata) -> Read {
        None
    }

    fn visit_sample(self, sample: Sample<'a>, _: RecordMetadata) -> Read {
        let time_ns = sample.time()?;
        let sample = StackSample {
            pid: sample.pid()?,
            tid: sample.tid()?,
            time_ns,
            periods: 1,
            kernel: kernel_part(sample.callchain().unwrap_or_default()),
            registers: sample.regs_user().and_then(registers),
            stack: sample.stack_user().unwrap_or_default().to_vec(),
        };
        Some((time_ns, Event::Sample(Box::new(sample))))
    }

    fn visit_mmap2(self, map: Mmap2<'a>, metadata: RecordMetadata) -> Read {
        let mapped = Mapped {
            pid: map.pid,
            start: map.addr,
            bytes: map.len,
            file_offset: map.pgoff,
            path: text(&map.filename),
        };
        Some((metadata.sample_id().time()?, Event::Mapped(mapped)))
    }

    fn visit_comm(self, comm: Comm<'a>, metadata: RecordMetadata) -> Read {
        let named = Event::Named {
            pid: comm.pid,
            tid: comm.tid,
            name: text(&comm.comm),
            is_exec: metadata.misc() & MISC_COMM_EXEC != 0,
        };
        Some((metadata.sample_id().time()?, named))
    }

    fn visit_fork(self, fork: Fork, _: RecordMetadata) -> Read {
        let began = Event::Began {
            pid: fork.pid,
            parent: fork.ppid,
            tid: fork.tid,
        };
        Some((fork.time, began))
    }

    fn visit_exit(self, exit: Exit, _: RecordMetadata) -> Read {
        let ended = Event::Ended {
            pid: exit.pid,
            tid: exit.tid,
        };
        Some((exit.time, ended))
    }

    fn visit_lost(self, lost: Lost, metadata: RecordMetadata) -> Read {
        let event = match self.has_samples {
            true => Event::Lost(lost.lost),
            false => Event::Missed,
        };
        Some((metadata.sample_id().time()?, event))
    }

    fn visit_lost_samples(self, lost: LostSamples, metadata: RecordMetadata) -> Read {
        Some((metadata.sample_id().time()?, Event::Lost(lost.lost)))
    }
}

fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0);
    String::from_utf8_lossy(&bytes[..end.unwrap_or(bytes.len())]).into_owned()
}

/// The addresses of the kernel.
fn kernel_part(addresses: &[u64]) -> Vec<u64> {
    let mut is_kernel = false;
    let mut kernel = Vec::new();
    for address in addresses {
        match *address {
            CONTEXT_KERNEL => is_kernel = true,
            mark if mark >= CONTEXT_MAX => is_kernel = false,
            address if is_kernel => kernel.push(address),
            _ => {}
        }
    }
    kernel
}

fn registers(read: &perf_event::data::Registers<'_>) -> Option<Registers> {
    let wanted = |register: u32| {
        let below = (read.mask & ((1 << register) - 1)).count_ones();
        (read.mask >> register & 1 == 1).then(|| read.regs.get(below as usize).copied())?
    };
    #[cfg(target_arch = "x86_64")]
    let registers = {
        let [general @ .., ip] = REGISTERS;
        let mut registers = Registers {
            ip: wanted(ip)?,
            ..Registers::default()
        };
        for (known, number) in registers.general.iter_mut().zip(general) {
            *known = wanted(number)?;
        }
        let [.., fp, sp] = registers.general[..8] else {
            return None;
        };
        (registers.fp, registers.sp) = (fp, sp);
        registers
    };
    #[cfg(target_arch = "aarch64")]
    let registers = Registers {
        fp: wanted(REGISTERS[0])?,
        lr: wanted(REGISTERS[1])?,
        sp: wanted(REGISTERS[2])?,
        ip: wanted(REGISTERS[3])?,
        ..Registers::default()
    };
    Some(registers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cores_are_read() {
        for (text, numbers) in [
            ("0\n", vec![0]),
            ("0-3,8\n", vec![0, 1, 2, 3, 8]),
            ("", vec![]),
            ("x-3", vec![]),
        ] {
            assert_eq!(listed(text), numbers, "{text}");
        }
    }

    #[test]
    fn only_the_kernels_addresses_are_taken() {
        const CONTEXT_USER: u64 = -512_i64 as u64;
        let addresses = [CONTEXT_KERNEL, 1, 2, CONTEXT_USER, 3, CONTEXT_KERNEL, 4];
        assert_eq!(kernel_part(&addresses), [1, 2, 4]);
        assert_eq!(kernel_part(&[1, 2]), [] as [u64; 0]);
    }
}
