//! Samples of this process by timers and a signal, where the kernel allows no performance events, as in most containers.
//!
//! Each thread gets a timer that counts its processor time and sends it `SIGPROF`; the handler ([`handler`]) copies registers and stack. Samples
//! have no functions of the kernel. New threads are found within [`LOOK`].
//!
//! Where several programs share a core, the kernel's ticks miss a thread for some of its periods. The next sample then stands for these as well: it counts
//! once, with the processor time of all of them. So there are fewer samples than the frequency promises, and their processor time is right.
//!
//! Source: timer_create(2), `SIGEV_THREAD_ID`; the clock of another thread's processor time: `include/linux/posix-timers_types.h`.

pub mod handler;

use std::collections::HashMap;
use std::fs;
use std::io;
use std::time::{Duration, Instant};

use super::events::{Event, StackSample, threads_of};
use super::{Options, SamplingError};
use handler::{Handler, ThreadTimer};

/// How often it is looked for new threads, and how long what was sampled waits at most.
pub const LOOK: Duration = Duration::from_millis(100);

/// The most samples a second of a thread: the kernel looks at such timers with each tick of its clock, of which there are 250 or 100 a
/// second.
pub const FREQUENCY_HZ_MAX: u32 = 97;

/// The timers of all threads.
pub struct Timers {
    handler: Handler,
    threads: HashMap<i32, ThreadTimer>,
    /// How often a second each thread is sampled while it is busy.
    pub frequency_hz: u32,
    last_look: Option<Instant>,
    /// Threads whose names were not told yet.
    unnamed: Vec<i32>,
    lost: u64,
}

impl Timers {
    /// Begins to sample this process.
    ///
    /// # Errors
    /// Another part of the process samples it already, or the system refuses a timer.
    pub fn open(options: &Options) -> Result<Self, SamplingError> {
        let refuse = |source| SamplingError::Io {
            action: "sample this process by timers",
            source,
        };
        let frequency_hz = options.frequency_hz.clamp(1, FREQUENCY_HZ_MAX);
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let between_looks = (frequency_hz as usize * cores) / 10 + 1;
        let handler = Handler::install(2 * between_looks, options.stack_bytes as usize);
        let mut timers = Self {
            handler: handler.map_err(refuse)?,
            threads: HashMap::new(),
            frequency_hz,
            last_look: None,
            unnamed: Vec::new(),
            lost: 0,
        };
        timers.look().map_err(refuse)?;
        Ok(timers)
    }

    /// Gives new threads timers.
    fn look(&mut self) -> io::Result<()> {
        if self.last_look.is_some_and(|last| last.elapsed() < LOOK) {
            return Ok(());
        }
        self.last_look = Some(Instant::now());
        let threads = threads_of(std::process::id()).map_err(io::Error::other)?;
        self.threads.retain(|thread, _| threads.contains(thread));
        let own = rustix::thread::gettid().as_raw_nonzero().get();
        for thread in threads {
            // What samples is not sampled, so that it never interrupts itself.
            if thread != own && !self.threads.contains_key(&thread) {
                let timer = ThreadTimer::start(&self.handler, thread, self.frequency_hz);
                match timer {
                    Ok(timer) => {
                        self.threads.insert(thread, timer);
                        self.unnamed.push(thread);
                    }
                    Err(error) if self.threads.is_empty() => return Err(error),
                    // A thread that has ended meanwhile.
                    Err(_) => {}
                }
            }
        }
        Ok(())
    }

    /// Tells everything that has happened since the last call.
    pub fn drain(&mut self, mut each: impl FnMut(Event)) {
        // A thread that gets no timer is tried again.
        let _ = self.look();
        let process = std::process::id();
        for thread in std::mem::take(&mut self.unnamed) {
            let name = fs::read_to_string(format!("/proc/self/task/{thread}/comm"));
            let tid = thread.unsigned_abs();
            if let Ok(name) = name {
                each(Event::Named {
                    pid: process,
                    tid,
                    name: name.trim_end().to_owned(),
                    is_exec: false,
                });
            }
        }
        let mut samples = Vec::new();
        self.handler.take(|taken| {
            samples.push(StackSample {
                pid: process,
                tid: taken.thread,
                time_ns: taken.time_ns,
                periods: taken.periods,
                kernel: Vec::new(),
                registers: Some(taken.registers),
                stack: taken.stack.to_vec(),
            });
        });
        samples.sort_by_key(|sample| sample.time_ns);
        let samples = samples.into_iter().map(Box::new).map(Event::Sample);
        samples.for_each(&mut each);
        let lost = self.handler.lost();
        if lost > self.lost {
            each(Event::Lost(lost - self.lost));
            self.lost = lost;
        }
    }

    /// Ends sampling.
    pub fn stop(&mut self) {
        self.threads.clear();
    }
}
