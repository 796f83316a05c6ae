//! Joins what the kernel tells to profiles.
//!
//! Whoever records calls [`Recorder::drain`] a few times a second and takes what has come together with [`Recorder::take`].

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use mio::Waker;

use super::events::{Event, Events, StackSample};
use super::hints::{Hint, Hints, Seen};
use super::made::MadeCode;
use super::processes::Processes;
use super::runtimes::Runtime;
use super::timers::{self, Timers};
use super::unwind::{Ending, Memory, Unwound};
use super::v8::{self, Running, Scripts, StackCopy};
use super::wanted::Wanted;
use super::{Options, SamplingError, Target};
use crate::profile::{Frame, FrameKind, Profile, SECOND_NS, StackId, Weight, Window, label};
use crate::symbols::kernel;

/// The frame outside of a stack whose outermost part was not copied.
const CUT: &str = "[stack cut off]";
/// The frame outside of a stack where no further caller could be found.
const BROKEN: &str = "[broken stack]";

/// What came of the samples.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stats {
    /// Samples that were taken.
    pub samples: u64,
    /// Samples that found no room.
    pub lost: u64,
    /// Samples whose stack is cut, since it is longer than its copy.
    pub cut: u64,
    /// Samples whose stack ends where no caller was found.
    pub broken: u64,
}

/// What was recorded for a profile.
#[derive(Debug)]
pub struct Recorded {
    /// The samples, with addresses where names are not known yet.
    pub profile: Profile,
    /// What came of all samples so far.
    pub stats: Stats,
    /// What would show more of programs than was seen of them; each program once.
    pub hints: Vec<Hint>,
}

/// What a thread of this process worked for at a time in nanoseconds of the monotonic clock, as a pipeline and a component of it.
pub type Purposes = Box<dyn Fn(u32, u64) -> Option<(Arc<str>, Arc<str>)> + Send>;

/// Where samples come from.
enum Source {
    /// The kernel.
    Events(Events),
    /// Timers of this process's threads.
    Timers(Timers),
}

impl Source {
    fn open(options: &Options) -> Result<Self, SamplingError> {
        if options.by_timers && options.target == Target::This {
            return Ok(Self::Timers(Timers::open(options)?));
        }
        match Events::open(options) {
            Err(SamplingError::Forbidden { .. } | SamplingError::Unsupported(_))
                if options.target == Target::This =>
            {
                Ok(Self::Timers(Timers::open(options)?))
            }
            opened => Ok(Self::Events(opened?)),
        }
    }

    fn drain(&mut self, each: impl FnMut(Event)) {
        match self {
            Self::Events(events) => events.drain(each),
            Self::Timers(timers) => timers.drain(each),
        }
    }
}

/// Records profiles.
pub struct Recorder {
    source: Source,
    options: Options,
    wanted: Wanted,
    host: String,
    /// What the kernel's addresses are valid for.
    boot: String,
    purposes: Option<Purposes>,
    processes: Processes,
    memory: Memory,
    made: MadeCode,
    scripts: Scripts,
    hints: Hints,
    profile: Profile,
    stats: Stats,
    began: SystemTime,
    /// When sampling was ended.
    ended: Option<SystemTime>,
}

impl Recorder {
    /// Begins to sample.
    ///
    /// # Errors
    /// The kernel refuses, or a process is not there.
    pub fn start(options: &Options) -> Result<Self, SamplingError> {
        let source = Source::open(options)?;
        let mut options = options.clone();
        if let Source::Timers(timers) = &source {
            options.frequency_hz = timers.frequency_hz;
        }
        let host = rustix::system::uname();
        Ok(Self {
            source,
            wanted: Wanted::of(&options.target),
            host: host.nodename().to_string_lossy().into_owned(),
            boot: kernel::boot_id(),
            purposes: None,
            processes: Processes::default(),
            memory: Memory::default(),
            made: MadeCode::new(options.frequency_hz, options.attaches),
            scripts: Scripts::default(),
            hints: Hints::new(options.frequency_hz),
            profile: Profile::new(Window::default(), f64::from(options.frequency_hz)),
            options,
            stats: Stats::default(),
            began: SystemTime::now(),
            ended: None,
        })
    }

    /// Labels samples of this process's own threads with what they worked for.
    pub fn label_own(&mut self, purposes: Purposes) {
        self.purposes = Some(purposes);
    }

    /// Whether the kernel's functions are seen; not where it allows no performance events, so that timers take the samples.
    pub fn is_by_timers(&self) -> bool {
        matches!(self.source, Source::Timers(_))
    }

    /// Waits until there is something to drain or the time is over. Only [`Target::This`] is told of samples at once.
    pub fn wait(&mut self, timeout: Duration) {
        match &mut self.source {
            Source::Events(events) => events.wait(timeout),
            Source::Timers(_) => std::thread::sleep(timeout.min(timers::LOOK)),
        }
    }

    /// What ends a wait at once; none where waits are short.
    pub fn waker(&self) -> Option<Arc<Waker>> {
        match &self.source {
            Source::Events(events) => Some(events.waker()),
            Source::Timers(_) => None,
        }
    }

    /// Reads what has happened since the last call.
    pub fn drain(&mut self) {
        let gone = self.processes.forget();
        self.wanted.forget(&gone);
        self.made.end(&gone);
        self.scripts.end(&gone);
        self.made.look_again();
        self.scripts.look_again();
        let mut events = Vec::new();
        self.source.drain(|event| events.push(event));
        let (mut lost, mut seen, before) = (0_u64, 0_u64, self.stats.samples);
        for event in events {
            match &event {
                Event::Lost(samples) => lost = lost.saturating_add(*samples),
                // A core without anything to do runs process 0.
                Event::Sample(sample) => seen += u64::from(sample.pid != 0),
                _ => {}
            }
            self.hear(event);
        }
        self.lose(lost, self.stats.samples - before, seen);
    }

    /// Samples were lost. Nobody knows of which processes: those that are sampled here had this part of the others.
    fn lose(&mut self, lost: u64, taken: u64, seen: u64) {
        let part = match seen {
            0 => lost,
            seen => (u128::from(lost) * u128::from(taken) / u128::from(seen)) as u64,
        };
        self.stats.lost = self.stats.lost.saturating_add(part);
        self.profile.lost = self.profile.lost.saturating_add(part);
    }

    fn hear(&mut self, event: Event) {
        if let Event::Began { pid, parent, .. } = event {
            self.wanted.begin(pid, parent);
        }
        // What other processes do costs nothing.
        if event.pid().is_some_and(|pid| !self.wanted.has(pid)) {
            return;
        }
        match event {
            Event::Sample(sample) => self.sample(&sample),
            Event::Mapped(mapped) => self.processes.map(&mapped),
            Event::Named {
                pid,
                tid,
                name,
                is_exec,
            } => self.processes.name(pid, tid, name, is_exec),
            Event::Began { pid, parent, tid } => {
                self.processes.begin(pid, parent, tid);
                if pid != parent {
                    self.made.begin(pid);
                    self.scripts.end(&[pid]);
                }
            }
            Event::Ended { pid, tid } => self.processes.end(pid, tid),
            // Where buffers hold both, other records were lost with the samples.
            Event::Lost(_) | Event::Missed => self.processes.doubt(),
        }
    }

    /// Ends sampling; what was sampled by then is still to be drained.
    pub fn stop(&mut self) {
        match &mut self.source {
            Source::Events(events) => events.stop(),
            Source::Timers(timers) => timers.stop(),
        }
        self.ended = Some(SystemTime::now());
    }

    /// What was recorded since the last call; begins another profile.
    pub fn take(&mut self) -> Recorded {
        let now = self.ended.unwrap_or_else(SystemTime::now);
        let start = self.began.duration_since(UNIX_EPOCH).unwrap_or_default();
        let length = now.duration_since(self.began).unwrap_or_default();
        let window = Window {
            start_ns: i64::try_from(start.as_nanos()).unwrap_or(i64::MAX),
            duration_ns: u64::try_from(length.as_nanos()).unwrap_or(u64::MAX),
        };
        self.began = now;
        let fresh = Profile::new(Window::default(), f64::from(self.options.frequency_hz));
        let mut profile = std::mem::replace(&mut self.profile, fresh);
        profile.window = window;
        // Before names of processes that have ended are forgotten.
        let hints = self.hints.take(|pid| self.made.failure(pid));
        Recorded {
            profile: self.made.name_late(profile),
            stats: self.stats,
            hints,
        }
    }

    /// Asks JVMs whose code had no names for them once more, and waits up to so long for them.
    pub fn ask_for_names(&mut self, timeout: Duration) {
        self.made.finish(timeout);
    }

    /// Of how many processes something is known; those that have ended are forgotten at the next [`Recorder::drain`].
    pub fn known_processes(&self) -> usize {
        self.processes.len()
    }

    fn sample(&mut self, sample: &StackSample) {
        // As above.
        if sample.pid == 0 {
            return;
        }
        self.stats.samples += 1;
        let process = self.processes.get(sample.pid);
        let mut frames = Vec::new();
        let ending = match sample.registers {
            Some(registers) => {
                process.unwind(registers, &sample.stack, &mut self.memory, &mut frames)
            }
            // A thread of the kernel.
            None => Ending::Whole,
        };
        let outermost = match ending {
            Ending::Whole => None,
            Ending::Cut => Some((CUT, &mut self.stats.cut)),
            Ending::Broken => Some((BROKEN, &mut self.stats.broken)),
        };
        let mut stack = StackId::EMPTY;
        if let Some((name, count)) = outermost {
            *count += 1;
            let frame = self.profile.frame(&Frame::function(name, ""));
            stack = self.profile.call(stack, frame);
        }
        let broken = ending != Ending::Whole;
        let (stack, seen) = self.user_stack(sample, stack, &frames, broken);
        let process = self.processes.get(sample.pid);
        if seen.is_unnamed {
            self.made.miss(sample.pid, process.runtime());
        }
        self.hints.count(sample.pid, process, seen);
        let stack = kernel_stack(&mut self.profile, stack, &sample.kernel, &self.boot);
        let purpose = self
            .purposes
            .as_ref()
            .filter(|_| sample.pid == std::process::id());
        let purpose = purpose.and_then(|of| of(sample.tid, sample.time_ns));
        let (pipeline, operator) = purpose.unwrap_or_default();
        let pid = sample.pid.to_string();
        let labels = self.profile.labels(&[
            (label::HOST, &self.host),
            (label::SERVICE, &process.service),
            (label::CONTAINER, &process.container),
            (label::PROCESS, &process.name),
            (label::PID, &pid),
            (label::THREAD, process.thread(sample.tid)),
            (label::PIPELINE, &pipeline),
            (label::OPERATOR, &operator),
        ]);
        let weight = weight(sample.periods, self.options.frequency_hz);
        self.profile.add(stack, labels, weight);
    }

    /// The stack of a process's functions that `caller` has entered, from frames of which the innermost comes first. A broken stack has no caller of
    /// the outermost one.
    fn user_stack(
        &mut self,
        sample: &StackSample,
        caller: StackId,
        frames: &[Unwound],
        is_broken: bool,
    ) -> (StackId, Seen) {
        let pid = sample.pid;
        let process = self.processes.get(pid);
        let copy = StackCopy {
            top: sample.registers.map_or(0, |registers| registers.sp),
            bytes: &sample.stack,
        };
        let (mut stack, mut seen) = (caller, Seen::default());
        let interprets = process.runtime().is_some_and(Runtime::is_interpreter);
        for (index, unwound) in frames.iter().enumerate().rev() {
            let mut frame = process.frame(unwound.address);
            let is_made = frame.kind() == FrameKind::Interpreted;
            seen.is_interpreted |= interprets && Runtime::of(&frame.binary).is_some();
            let script = self
                .scripts
                .function(pid, process, *unwound, index == 0, &copy);
            if let Some(Running::Outside(name)) = &script {
                let frame = self.profile.frame(&Frame::function(&**name, v8::BINARY));
                stack = self.profile.call(stack, frame);
            }
            // It may be other code by the time when names are looked up.
            let name = match is_made {
                true => self.made.name(pid, unwound.address),
                false => None,
            };
            if let Some(name) = name {
                (frame.function, frame.address) = (name.into(), 0);
            } else if let Some(Running::Here(name)) = &script {
                frame = Frame::function(name.to_string(), v8::BINARY);
            } else {
                seen.is_unnamed |= is_made;
            }
            seen.is_made |= is_made || script.is_some();
            seen.is_broken |= is_made && is_broken && index == frames.len() - 1;
            let frame = self.profile.frame(&frame);
            stack = self.profile.call(stack, frame);
        }
        (stack, seen)
    }
}

/// What a sample counts: once, with the processor time of all periods of the clock for which it stands.
fn weight(periods: u32, frequency_hz: u32) -> Weight {
    let periods = u64::from(periods);
    Weight {
        samples: 1,
        cpu_ns: SECOND_NS.saturating_mul(periods) / u64::from(frequency_hz.max(1)),
    }
}

/// The stack of the kernel's functions that `caller` has entered, from addresses of which the innermost comes first. `boot` says which kernel
/// the addresses are of.
fn kernel_stack(profile: &mut Profile, caller: StackId, addresses: &[u64], boot: &str) -> StackId {
    let mut stack = caller;
    for (depth, address) in addresses.iter().enumerate().rev() {
        let frame = Frame {
            binary: "[kernel]".into(),
            build_id: boot.into(),
            address: address - u64::from(depth > 0),
            ..Frame::default()
        };
        let frame = profile.frame(&frame);
        stack = profile.call(stack, frame);
    }
    stack
}

impl std::fmt::Debug for Recorder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let target: &Target = &self.options.target;
        f.debug_struct("Recorder")
            .field("target", target)
            .field("stats", &self.stats)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_has_the_time_of_all_its_periods() {
        for (periods, frequency_hz, cpu_ns) in [
            (1, 20, 50_000_000),
            (1, 97, 10_309_278),
            (4, 97, 41_237_113),
            (1, 0, SECOND_NS),
            (u32::MAX, 1, SECOND_NS * u64::from(u32::MAX)),
        ] {
            let expected = Weight { samples: 1, cpu_ns };
            assert_eq!(weight(periods, frequency_hz), expected, "{periods}");
        }
    }
}
