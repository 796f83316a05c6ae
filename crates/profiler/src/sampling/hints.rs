//! What is to be changed where a runtime does not show its functions: which option it must be started with, for example.
//!
//! A program gets one hint, once it has used [`CPU_MIN`] of processor time in the time of one profile, where its own functions were not seen.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::time::Duration;

use super::processes::Process;
use super::runtimes::Runtime;
use crate::process_status::has_option;

/// Programs that use less get no hint.
const CPU_MIN: Duration = Duration::from_millis(500);

/// No more programs than this are known at a time, and no more get hints.
const PROGRAMS_MAX: usize = 256;

/// What would show more of a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hint {
    /// The name of the program: of its service, else of the process.
    pub program: String,
    /// One of its processes.
    pub pid: u32,
    /// What is missing, and what helps.
    pub text: String,
}

impl fmt::Display for Hint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (process {}): {}", self.program, self.pid, self.text)
    }
}

/// What a sample shows of a runtime.
#[derive(Debug, Clone, Copy, Default)]
pub struct Seen {
    /// There is code that was made while the program runs.
    pub is_made: bool,
    /// Some of it has no name.
    pub is_unnamed: bool,
    /// No caller of such code could be found.
    pub is_broken: bool,
    /// There is code of an interpreter.
    pub is_interpreted: bool,
}

#[derive(Debug, Default, Clone, Copy)]
struct Counts {
    pid: u32,
    samples: u64,
    made: u64,
    unnamed: u64,
    broken: u64,
    interpreted: u64,
}

/// What was seen of the programs that run in runtimes.
#[derive(Debug, Default)]
pub struct Hints {
    counts: HashMap<(String, Runtime), Counts>,
    told: HashSet<(String, Runtime)>,
    /// So many samples are [`CPU_MIN`].
    samples_min: u64,
}

impl Hints {
    /// Of samples that are taken so many times a second.
    pub fn new(frequency_hz: u32) -> Self {
        Self {
            samples_min: (CPU_MIN.as_secs_f64() * f64::from(frequency_hz)).ceil() as u64,
            ..Self::default()
        }
    }

    /// Counts a sample of a process.
    pub fn count(&mut self, pid: u32, process: &Process, seen: Seen) {
        let Some(runtime) = process.runtime() else {
            return;
        };
        let program = match &*process.service {
            "" => &*process.name,
            service => service,
        };
        let key = (program.to_owned(), runtime);
        if self.told.contains(&key) {
            return;
        }
        let is_full = self.counts.len() + self.told.len() >= PROGRAMS_MAX;
        if is_full && !self.counts.contains_key(&key) {
            return;
        }
        let counts = self.counts.entry(key).or_default();
        counts.pid = pid;
        counts.samples += 1;
        counts.made += u64::from(seen.is_made);
        counts.unnamed += u64::from(seen.is_unnamed);
        counts.broken += u64::from(seen.is_broken);
        counts.interpreted += u64::from(seen.is_interpreted);
    }

    /// The hints that were not given before. `failure` says why a JVM has written no map.
    pub fn take(&mut self, failure: impl Fn(u32) -> Option<String>) -> Vec<Hint> {
        let mut hints = Vec::new();
        for (key, counts) in &self.counts {
            let enough = counts.samples >= self.samples_min.max(1);
            let text = enough.then(|| text(key.1, counts, failure(counts.pid)));
            if let Some(text) = text.flatten() {
                let (program, pid) = (key.0.clone(), counts.pid);
                hints.push(Hint { program, pid, text });
                self.told.insert(key.clone());
            }
        }
        self.counts.clear();
        hints.sort_by(|a, b| a.program.cmp(&b.program));
        hints
    }
}

fn text(runtime: Runtime, counts: &Counts, failure: Option<String>) -> Option<String> {
    let percent = |part: u64| part as f64 * 100.0 / counts.samples.max(1) as f64;
    let interpreter = "the functions of the interpreter are shown, not those of the program";
    let (unnamed, broken) = (percent(counts.unnamed), percent(counts.broken));
    let receive = "the OpenTelemetry eBPF profiler reads them, and `profile.receive` takes the OTLP that it sends over gRPC";
    match runtime {
        Runtime::Jvm => jvm(counts.pid, unnamed, broken, failure),
        // Some of its functions are young and move, above all when it has just begun.
        Runtime::Node => (unnamed > 25.0).then(|| {
            format!(
                "{unnamed:.0} % of its samples have JavaScript functions whose names could not be read from its memory (its build of V8 does not say where they are, or the right to read it is missing, CAP_SYS_PTRACE); start it with --perf-basic-prof --interpreted-frames-native-stack"
            )
        }),
        // It has the interpreter for something else.
        Runtime::Python(_) | Runtime::Ruby if percent(counts.interpreted) < 10.0 => None,
        // With the option, all calls of Python functions go through code that is made for them.
        Runtime::Python(_) if percent(counts.made) > 1.0 => None,
        Runtime::Python(Some(minor)) if minor < 12 => Some(format!(
            "{interpreter}; CPython 3.12 and later show them with -X perf, or {receive}"
        )),
        Runtime::Python(Some(_)) => Some(format!("{interpreter}; start it with -X perf")),
        Runtime::Python(None) => Some(format!(
            "{interpreter}; start it with -X perf, which CPython 3.12 and later have"
        )),
        Runtime::Ruby => Some(format!("{interpreter}; {receive}")),
    }
}

fn jvm(pid: u32, unnamed: f64, broken: f64, failure: Option<String>) -> Option<String> {
    let mut parts = Vec::new();
    if unnamed > 10.0
        && let Some(failure) = failure
    {
        parts.push(format!(
            "{unnamed:.0} % of its samples have Java functions without names, because it writes no map of its code: {failure}"
        ));
    }
    if broken > 1.0 && !has_option(pid, "-XX:+PreserveFramePointer") {
        parts.push(format!(
            "{broken:.0} % of its samples have Java functions without callers; start it with -XX:+PreserveFramePointer for whole stacks"
        ));
    }
    (!parts.is_empty()).then(|| parts.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(samples: u64, made: u64, unnamed: u64, broken: u64) -> Counts {
        Counts {
            pid: u32::MAX,
            samples,
            made,
            unnamed,
            broken,
            interpreted: samples,
        }
    }

    #[test]
    fn hints_name_the_option_that_is_missing() {
        let of = |runtime, counts| text(runtime, &counts, None).unwrap_or_default();
        let node = of(Runtime::Node, counts(100, 90, 60, 0));
        assert!(node.starts_with("60 % ") && node.contains("--perf-basic-prof --interp"));
        assert_eq!(of(Runtime::Node, counts(100, 90, 20, 0)), "");
        assert!(of(Runtime::Python(Some(13)), counts(100, 0, 0, 0)).contains("-X perf"));
        assert!(of(Runtime::Python(Some(9)), counts(100, 0, 0, 0)).contains("3.12 and later"));
        assert_eq!(of(Runtime::Python(Some(13)), counts(100, 60, 0, 0)), "");
        assert!(of(Runtime::Ruby, counts(100, 0, 0, 0)).contains("profile.receive"));
        let links_python = Counts {
            interpreted: 0,
            ..counts(100, 0, 0, 0)
        };
        assert_eq!(of(Runtime::Python(Some(11)), links_python), "");
        let jvm = of(Runtime::Jvm, counts(100, 90, 0, 30));
        assert!(jvm.starts_with("30 % ") && jvm.contains("+PreserveFramePointer"));
        assert_eq!(of(Runtime::Jvm, counts(100, 90, 90, 0)), "");
        let refused = text(Runtime::Jvm, &counts(100, 90, 90, 0), Some("no".to_owned()));
        assert!(refused.unwrap().ends_with("its code: no"));
    }

    #[test]
    fn a_program_gets_one_hint_once_it_has_used_enough() {
        let mut processes = super::super::processes::Processes::default();
        let mut hints = Hints::new(20);
        let mut run = |samples: u32, pid: u32| {
            let process = processes.of_runtime(pid, "ruby", Runtime::Ruby);
            for _ in 0..samples {
                let seen = Seen {
                    is_interpreted: true,
                    ..Seen::default()
                };
                hints.count(pid, process, seen);
            }
            hints.take(|_| None)
        };
        assert_eq!(run(9, 70_000_000), []);
        let told = run(10, 70_000_001);
        assert_eq!((told.len(), told[0].pid), (1, 70_000_001));
        assert_eq!(run(50, 70_000_002), []);
    }
}
