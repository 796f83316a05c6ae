//! Profiles from the text that `perf script` prints.
//!
//! A sample is a line with process, time and event, lines with the frames from the innermost to the outermost, and an empty line:
//!
//! ```text
//! python3 26817/26859  7466.366285:   20408163 task-clock:
//!         ffffffff81591287 filemap_read+0x1b7 ([kernel.kallsyms])
//!                     6822 compress_impl+0x312 (inlined)
//!                     6822 compress+0x312 (/usr/lib/zlib.so)
//! ```
//!
//! | what | where from |
//! | --- | --- |
//! | `thread` | the name on the line |
//! | `process` | the name of the process's main thread where the file has one, else the thread's |
//! | `pid` | the number; of `pid/tid` the first. Without `-F +pid` perf prints the thread's number alone, which then stands for it |
//! | processor time | the frequency that the caller knows, else the period of the events `cpu-clock` and `task-clock` |
//!
//! Binaries: the kernel and its modules become `[kernel]`, and maps of compilers at run time (`/tmp/perf-PID.map`) `[jit]`. An address
//! without a name stays one; as perf prints it, it is an offset in the file. Samples of the idle task in which the processor waited
//! are left out, as they are no processor time. Of several events in one file the first one counts.
//!
//! Times of perf count from the start of the machine: the window has a duration, and its beginning is left to the caller.
//!
//! Source of the format: <https://man7.org/linux/man-pages/man1/perf-script.1.html>.
//!
//! # Limits
//! A text has up to [`TEXT_BYTES_MAX`] bytes.

use std::collections::HashMap;

use crate::cost::weight;
use crate::profile::{Frame, Profile, SECOND_NS, Weight, Window, label};

/// The most bytes that a text may have.
pub const TEXT_BYTES_MAX: usize = 2 << 30;

/// Where the addresses of the kernel begin, on 64-bit machines.
const KERNEL_ADDRESSES: u64 = 0xffff_0000_0000_0000;

/// The endings of files of kernel modules.
const MODULES: [&str; 4] = [".ko", ".ko.gz", ".ko.xz", ".ko.zst"];

/// Functions of the Linux kernel in which a processor without work waits.
const IDLE: [&str; 13] = [
    "intel_idle",
    "intel_idle_irq",
    "mwait_idle",
    "mwait_idle_with_hints.constprop.0",
    "default_idle",
    "native_safe_halt",
    "pv_native_safe_halt",
    "acpi_safe_halt",
    "acpi_idle_do_entry",
    "arch_cpu_idle",
    "cpu_do_idle",
    "poll_idle",
    "cpuidle_enter_state",
];

/// Why a text is no output of `perf script`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PerfScriptError {
    /// It is too long.
    #[error("it has more than {TEXT_BYTES_MAX} bytes")]
    TooLarge,
    /// A line that should begin a sample does not.
    #[error(
        "line {line} does not begin a sample, as in `bash 12/12 5.000001: 10101010 cpu-clock:`"
    )]
    Sample {
        /// Its number, from 1 on.
        line: usize,
    },
    /// A line that should be a frame is none.
    #[error("line {line} is not a frame, as in `7f3a main+0x12 (/usr/bin/a)`")]
    Frame {
        /// Its number, from 1 on.
        line: usize,
    },
    /// Nothing says how much processor time a sample stands for.
    #[error(
        "how much processor time an event `{0}` stands for is not known: give the frequency it was recorded with"
    )]
    Frequency(String),
}

/// Reads the output of `perf script`. `frequency_hz` is how often a second each core was sampled, as in `perf record -F`; without
/// it the events have to be of a clock, with their periods.
///
/// # Errors
/// The text is too long, has a line that is neither, or the frequency is not known.
pub fn read(text: &[u8], frequency_hz: Option<f64>) -> Result<Profile, PerfScriptError> {
    if text.len() > TEXT_BYTES_MAX {
        return Err(PerfScriptError::TooLarge);
    }
    let frequency_hz = frequency_hz.filter(|hz| *hz > 0.0);
    let text = String::from_utf8_lossy(text);
    let samples = samples(&text)?;
    let event = samples.first().map(|sample| sample.head.event_name());
    let is_wanted = |sample: &&Sample<'_>| Some(sample.head.event_name()) == event;
    let mains = samples.iter().filter(|sample| sample.head.is_main());
    let mains: HashMap<&str, &str> = mains
        .map(|sample| (sample.head.pid, sample.head.thread))
        .collect();
    let mut profile = Profile::new(Window::default(), frequency_hz.unwrap_or(0.0));
    let (mut first_ns, mut last_ns) = (u64::MAX, 0);
    for sample in samples.iter().filter(is_wanted) {
        let head = &sample.head;
        first_ns = first_ns.min(head.time_ns.unwrap_or(u64::MAX));
        last_ns = last_ns.max(head.time_ns.unwrap_or(0));
        if sample.is_idle() {
            continue;
        }
        let weight = head.weight(frequency_hz)?;
        if profile.frequency_hz == 0.0 {
            // To three decimals: periods are whole numbers.
            profile.frequency_hz = (SECOND_NS as f64 * 1e3 / weight.cpu_ns as f64).round() / 1e3;
        }
        let stack = profile.stack(sample.frames.iter().rev().cloned());
        let labels = profile.labels(&[
            (label::PROCESS, mains.get(head.pid).unwrap_or(&head.thread)),
            (label::THREAD, head.thread),
            (label::PID, head.pid),
        ]);
        profile.add(stack, labels, weight);
    }
    if profile.frequency_hz > 0.0 && last_ns >= first_ns {
        // The first sample stands for the time before it.
        let period_ns = (SECOND_NS as f64 / profile.frequency_hz) as u64;
        profile.window.duration_ns = (last_ns - first_ns).saturating_add(period_ns);
    }
    Ok(profile)
}

/// The first line of a sample.
#[derive(Debug, PartialEq, Eq)]
struct Head<'a> {
    thread: &'a str,
    pid: &'a str,
    tid: &'a str,
    time_ns: Option<u64>,
    period: Option<u64>,
    event: &'a str,
}

#[derive(Debug)]
struct Sample<'a> {
    head: Head<'a>,
    /// From the innermost on.
    frames: Vec<Frame<'a>>,
}

impl Head<'_> {
    fn is_main(&self) -> bool {
        self.pid == self.tid
    }

    /// The event without modifiers and without the kind of core, both of which perf adds by itself.
    fn event_name(&self) -> &str {
        let is_modifier = |text: &str| text.chars().all(|letter| "ukhHGpPSDIWeb".contains(letter));
        let event = match self.event.split_once(':') {
            Some((event, modifiers)) if is_modifier(modifiers) => event,
            _ => self.event,
        };
        let core = event
            .strip_prefix("cpu_core/")
            .or(event.strip_prefix("cpu_atom/"));
        core.map_or(event, |event| event.trim_end_matches('/'))
    }

    fn weight(&self, frequency_hz: Option<f64>) -> Result<Weight, PerfScriptError> {
        let is_clock = matches!(self.event_name(), "cpu-clock" | "task-clock");
        match (frequency_hz, self.period) {
            (Some(hz), _) => Ok(weight(1, hz)),
            (_, Some(cpu_ns)) if is_clock && cpu_ns > 0 => Ok(Weight { samples: 1, cpu_ns }),
            _ => Err(PerfScriptError::Frequency(self.event_name().to_owned())),
        }
    }
}

impl<'a> Sample<'a> {
    fn is_idle(&self) -> bool {
        let innermost = self.frames.first();
        self.head.pid == "0" && innermost.is_some_and(|frame| IDLE.contains(&&*frame.function))
    }

    /// Adds a frame; inlined ones that wait for the frame that they are part of get its file.
    fn push(&mut self, frame: Frame<'a>) {
        if !frame.is_inlined {
            let inlined = self.frames.iter_mut().rev();
            for inner in inlined.take_while(|inner| inner.is_inlined && inner.binary.is_empty()) {
                inner.binary = frame.binary.clone();
            }
        }
        self.frames.push(frame);
    }
}

fn samples(text: &str) -> Result<Vec<Sample<'_>>, PerfScriptError> {
    let mut samples: Vec<Sample<'_>> = Vec::new();
    let mut is_open = false;
    for (index, line) in text.lines().enumerate() {
        let is_indented = line.starts_with([' ', '\t']);
        let trimmed = line.trim();
        if trimmed.is_empty() {
            is_open = false;
        } else if trimmed.starts_with('#') {
            // Headers of the recording.
        } else if let (true, true, Some(sample)) = (is_open, is_indented, samples.last_mut()) {
            let is_read = match frame(trimmed) {
                Some(frame) => {
                    sample.push(frame);
                    true
                }
                None => source_line(trimmed, sample),
            };
            if !is_read {
                return Err(PerfScriptError::Frame { line: index + 1 });
            }
        } else {
            let head = head(trimmed).ok_or(PerfScriptError::Sample { line: index + 1 })?;
            let (head, rest) = head;
            let mut sample = Sample {
                head,
                frames: Vec::new(),
            };
            // Without stacks, the only frame stands on the same line.
            frame(rest).into_iter().for_each(|frame| sample.push(frame));
            samples.push(sample);
            is_open = true;
        }
    }
    Ok(samples)
}

/// Takes the next word of a text.
fn word<'a>(rest: &mut &'a str) -> Option<&'a str> {
    let text = rest.trim_start();
    let end = text.find(char::is_whitespace).unwrap_or(text.len());
    let (word, behind) = text.split_at(end);
    *rest = behind;
    (!word.is_empty()).then_some(word)
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// The number of a process or thread; perf prints -1 for one that has ended.
fn is_id(text: &str) -> bool {
    is_number(text) || text == "-1"
}

/// Reads the first line of a sample; what comes behind the event is the rest. Names of threads may have blanks.
fn head(line: &str) -> Option<(Head<'_>, &str)> {
    let mut rest = line;
    word(&mut rest)?;
    loop {
        let thread = line[..line.len() - rest.len()].trim_end();
        let ids = word(&mut rest)?;
        let (pid, tid) = ids.split_once('/').unwrap_or((ids, ids));
        if is_id(pid)
            && is_id(tid)
            && let Some(found) = event((thread, pid, tid), rest)
        {
            return Some(found);
        }
    }
}

/// Reads what stands behind the numbers: `[cpu] time: [period] event:`.
fn event<'a>(
    (thread, pid, tid): (&'a str, &'a str, &'a str),
    behind: &'a str,
) -> Option<(Head<'a>, &'a str)> {
    let mut rest = behind;
    let mut next = word(&mut rest)?;
    if next.starts_with('[') && next.ends_with(']') {
        next = word(&mut rest)?;
    }
    let time_ns = next.strip_suffix(':').and_then(nanoseconds);
    if time_ns.is_some() {
        next = word(&mut rest)?;
    }
    let period = next.parse().ok();
    if period.is_some() {
        next = word(&mut rest)?;
    }
    let head = Head {
        event: next.strip_suffix(':')?.trim_end_matches(':'),
        thread,
        pid,
        tid,
        time_ns,
        period,
    };
    Some((head, rest))
}

/// Reads seconds with up to nine decimals.
fn nanoseconds(text: &str) -> Option<u64> {
    let (seconds, decimals) = text.split_once('.')?;
    if !is_number(seconds) || !is_number(decimals) || decimals.len() > 9 {
        return None;
    }
    let seconds: u64 = seconds.parse().ok()?;
    let decimals: u64 = format!("{decimals:0<9}").parse().ok()?;
    seconds.checked_mul(SECOND_NS)?.checked_add(decimals)
}

/// Reads `addr symbol+0xoff (dso)`.
fn frame(line: &str) -> Option<Frame<'_>> {
    let mut rest = line;
    let address = u64::from_str_radix(word(&mut rest)?, 16).ok()?;
    let (symbol, file) = split_file(rest.trim());
    let symbol = match symbol.rsplit_once("+0x") {
        Some((name, offset)) if u64::from_str_radix(offset, 16).is_ok() => name,
        _ => symbol,
    };
    let is_inlined = file == "inlined";
    let is_known = !matches!(symbol, "" | "[unknown]");
    Some(Frame {
        address: if is_known { 0 } else { address },
        is_inlined,
        ..Frame::function(
            if is_known { symbol } else { "" },
            if is_inlined {
                ""
            } else {
                binary(file, address)
            },
        )
    })
}

/// Splits the file in its round brackets off. Both it and the symbol may have blanks and brackets.
fn split_file(text: &str) -> (&str, &str) {
    let Some(body) = text.strip_suffix(')') else {
        return (text, "");
    };
    let (body, is_deleted) = match body.strip_suffix(" (deleted)") {
        Some(body) => (body, true),
        None => (body, false),
    };
    // A path begins behind a bracket, which tells it from the arguments of a C++ function.
    let start = body.find(" (/").or_else(|| body.rfind(" ("));
    match start {
        Some(start) => (body[..start].trim_end(), &body[start + 2..]),
        None if body.starts_with('(') => ("", &body[1..]),
        None if is_deleted => (body, ""),
        None => (text, ""),
    }
}

/// What we call a file.
fn binary(file: &str, address: u64) -> &str {
    let name = file.rsplit('/').next().unwrap_or(file);
    let is_map = |name: &str| {
        let number = name.strip_prefix("perf-");
        number
            .and_then(|number| number.strip_suffix(".map"))
            .is_some_and(is_number)
    };
    let is_kernel = file.starts_with("[kernel")
        || file.starts_with("[guest.kernel")
        || name.starts_with("vmlinux")
        || MODULES.iter().any(|ending| name.ends_with(ending))
        || (address >= KERNEL_ADDRESSES && file != "[vsyscall]" && !file.starts_with('/'));
    match file {
        _ if is_kernel => "[kernel]",
        "[vdso]" | "[vsyscall]" => file,
        _ if is_map(name) || (name.starts_with("jitted-") && name.ends_with(".so")) => "[jit]",
        // Memory without a file: stack, heap.
        _ if file.starts_with('[') || file.starts_with("//anon") => "",
        _ => file,
    }
}

/// Reads `file:line` below a frame, which `-F +srcline` adds; whether it is that.
fn source_line<'a>(line: &'a str, sample: &mut Sample<'a>) -> bool {
    let (Some(frame), Some((file, number))) = (sample.frames.last_mut(), line.rsplit_once(':'))
    else {
        // Without a source, perf prints the file with the address: `libc.so.6[97a90]`.
        return line.ends_with(']') && !sample.frames.is_empty();
    };
    let Ok(number) = number.parse() else {
        return false;
    };
    if !frame.function.is_empty() && !file.starts_with('?') {
        frame.file = file.into();
        frame.line = number;
    }
    true
}

#[cfg(test)]
mod tests;
