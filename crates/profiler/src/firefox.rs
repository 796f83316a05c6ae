//! Profiles as files that <https://profiler.firefox.com> shows: gzip around JSON, in its «processed profile format».
//!
//! | what | where |
//! | --- | --- |
//! | processor time | weights of samples, in milliseconds (`tracing-ms`); where none is known, how often a stack was seen (`samples`) |
//! | labels | `process` (else `service`), `pid` and `thread` make the threads; `host` stands before the process's name where there are several |
//! | kind of frame | categories: kernel orange, native blue, interpreted yellow |
//! | binary and build id | libraries |
//!
//! A profile of ours does not know when each sample was taken: those of a thread are spread evenly over the window. The shown times
//! say nothing; the call tree and the flame graph are right.
//!
//! The format has version [`VERSION`]; the profiler converts older versions itself. The crate `fxprof-processed-profile` writes the
//! same version, but has whole numbers as weights and no source lines.
//!
//! Sources: <https://github.com/firefox-devtools/profiler/blob/main/docs-developer/processed-profile-format.md>, the types in
//! <https://github.com/firefox-devtools/profiler/blob/main/src/types/profile.ts>, and the changes of the format in
//! <https://github.com/firefox-devtools/profiler/blob/main/docs-developer/CHANGELOG-formats.md>.

use std::collections::{HashMap, HashSet};

use flate2::Compression;
use flate2::write::GzEncoder;
use indexmap::{IndexMap, IndexSet};

use crate::filter::Filter;
use crate::profile::{Frame, FrameId, FrameKind, LabelsId, Profile, StackId, Weight, label};

mod format;

pub use format::VERSION;
use format::{
    Category, Document, FrameTable, FuncTable, Library, Meta, ResourceTable, SampleTable,
    StackTable, ThreadTables,
};

/// The largest whole number that JavaScript has exactly.
const EXACT_MAX: u64 = 1 << 53;

/// The colours of the kinds of frames; the first one has to be grey and stands for no kind.
const CATEGORIES: [Category; 4] = [
    Category::new("Other", "grey"),
    Category::new("Kernel", "orange"),
    Category::new("Native", "blue"),
    Category::new("Interpreted", "yellow"),
];

/// A file with the samples that a filter takes. `product` is what the profiler shows as the name of the whole.
pub fn write(profile: &Profile, filter: &Filter, product: &str) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    serde_json::to_writer(&mut encoder, &document(profile, filter, product))
        .expect("numbers and texts become JSON in memory");
    encoder.finish().expect("writing to memory never fails")
}

/// What makes a thread: host, process, pid and thread.
type ThreadKey<'a> = (&'a str, &'a str, &'a str, &'a str);

fn thread_key(profile: &Profile, labels: LabelsId) -> ThreadKey<'_> {
    let label_of = |name: &str| profile.label_of(labels, name).unwrap_or_default();
    let process = match label_of(label::PROCESS) {
        "" => label_of(label::SERVICE),
        process => process,
    };
    (
        label_of(label::HOST),
        process,
        label_of(label::PID),
        label_of(label::THREAD),
    )
}

fn document<'a>(profile: &'a Profile, filter: &Filter, product: &'a str) -> Document<'a> {
    let matching = filter.of(profile);
    let mut threads: IndexMap<ThreadKey<'_>, IndexMap<StackId, Weight>> = IndexMap::new();
    for (stack, labels, weight) in profile.samples() {
        if matching.takes(stack, labels) {
            let thread = threads.entry(thread_key(profile, labels)).or_default();
            *thread.entry(stack).or_default() += weight;
        }
    }
    // Threads of a process stand together.
    threads.sort_keys();
    let is_timed = threads.values().any(|samples| {
        let mut weights = samples.values();
        weights.any(|weight| weight.cpu_ns > 0)
    });
    let mut names = ProcessNames::new(threads.keys());
    let mut libraries = IndexSet::new();
    let mut written = Vec::with_capacity(threads.len());
    for (key, samples) in &threads {
        let mut tables = ThreadWriter::new(profile, &mut libraries);
        let samples = tables.samples(samples, is_timed);
        let mut thread = tables.finish(samples);
        thread.tid = written.len() + 1;
        names.name(key, &mut thread);
        written.push(thread);
    }
    let interval = match profile.frequency_hz > 0.0 {
        true => 1e3 / profile.frequency_hz,
        false => 1.0,
    };
    Document::new(
        Meta::new(
            interval,
            profile.window.start_ns as f64 / 1e6,
            product,
            &CATEGORIES,
        ),
        libraries.into_iter().map(library).collect(),
        written,
    )
}

/// A binary and its build id.
fn library((path, build_id): (String, String)) -> Library {
    let name = path.rsplit('/').next().unwrap_or_default().to_owned();
    Library::new(name, path, (!build_id.is_empty()).then_some(build_id))
}

/// What processes are called.
struct ProcessNames<'a> {
    has_hosts: bool,
    /// The number of each process as the profiler shows it: no two have the same one.
    pids: HashMap<(&'a str, &'a str, &'a str), String>,
    known: HashSet<String>,
    with_main: HashSet<String>,
}

impl<'a> ProcessNames<'a> {
    fn new<'b>(keys: impl Iterator<Item = &'b ThreadKey<'a>>) -> Self
    where
        'a: 'b,
    {
        let hosts: HashSet<&str> = keys.map(|(host, ..)| *host).collect();
        Self {
            has_hosts: hosts.len() > 1,
            pids: HashMap::new(),
            known: HashSet::new(),
            with_main: HashSet::new(),
        }
    }

    fn name(&mut self, (host, process, pid, name): &ThreadKey<'a>, thread: &mut ThreadTables) {
        let known = &mut self.known;
        let shown = self.pids.entry((*host, *process, *pid)).or_insert_with(|| {
            let mut number = known.len();
            let mut shown = match *pid {
                "" => format!("process {number}"),
                pid => pid.to_owned(),
            };
            while !known.insert(shown.clone()) {
                number += 1;
                shown = format!("{pid}.{number}");
            }
            shown
        });
        thread.pid.clone_from(shown);
        let or_unknown = |text: &str| match text {
            "" => "[unknown]".to_owned(),
            text => text.to_owned(),
        };
        thread.process_name = match self.has_hosts {
            true => format!("{}: {}", or_unknown(host), or_unknown(process)),
            false => or_unknown(process),
        };
        let is_main = name.is_empty() || name == process;
        thread.is_main_thread = is_main && self.with_main.insert(shown.clone());
        thread.name = match *name {
            "" => thread.process_name.clone(),
            name => name.to_owned(),
        };
    }
}

/// The tables of a thread while they are filled.
struct ThreadWriter<'a, 'b> {
    profile: &'a Profile,
    libraries: &'b mut IndexSet<(String, String)>,
    texts: IndexSet<String>,
    /// The library and the name of each resource.
    resources: IndexMap<usize, usize>,
    /// Name, file and resource.
    functions: IndexSet<(usize, Option<usize>, Option<usize>)>,
    function_of: Vec<usize>,
    frames: IndexSet<FrameId>,
    stacks: IndexSet<StackId>,
    stack_table: StackTable,
}

impl<'a, 'b> ThreadWriter<'a, 'b> {
    fn new(profile: &'a Profile, libraries: &'b mut IndexSet<(String, String)>) -> Self {
        Self {
            profile,
            libraries,
            texts: IndexSet::new(),
            resources: IndexMap::new(),
            functions: IndexSet::new(),
            function_of: Vec::new(),
            frames: IndexSet::new(),
            stacks: IndexSet::new(),
            stack_table: StackTable::default(),
        }
    }

    fn samples(&mut self, samples: &IndexMap<StackId, Weight>, is_timed: bool) -> SampleTable {
        let mut table = SampleTable {
            weight_type: if is_timed { "tracing-ms" } else { "samples" },
            ..SampleTable::default()
        };
        let window_ms = self.profile.window.duration_ns as f64 / 1e6;
        let step_ms = window_ms / samples.len().max(1) as f64;
        for (stack, weight) in samples {
            table.length += 1;
            table.stack.push(self.stack(*stack));
            table.weight.push(match is_timed {
                true => weight.cpu_ns as f64 / 1e6,
                false => weight.samples as f64,
            });
            table
                .time_deltas
                .push(if table.length == 1 { 0.0 } else { step_ms });
        }
        table
    }

    /// The number of a stack, with those that call it.
    fn stack(&mut self, stack: StackId) -> Option<usize> {
        let profile = self.profile;
        let mut missing = Vec::new();
        let mut rest = stack;
        while let (None, Some((frame, caller))) =
            (self.stacks.get_index_of(&rest), profile.split(rest))
        {
            missing.push((rest, frame, caller));
            rest = caller;
        }
        for (stack, frame, caller) in missing.into_iter().rev() {
            let prefix = self.stacks.get_index_of(&caller);
            let frame = self.frame(frame);
            self.stack_table.push(frame, prefix);
            self.stacks.insert(stack);
        }
        self.stacks.get_index_of(&stack)
    }

    fn frame(&mut self, id: FrameId) -> usize {
        if let Some(index) = self.frames.get_index_of(&id) {
            return index;
        }
        let frame = self.profile.frame_of(id);
        let name = self.text(&frame.name());
        let file = (!frame.file.is_empty()).then(|| self.text(&frame.file));
        let resource = self.resource(&frame);
        let function = self.functions.insert_full((name, file, resource)).0;
        self.function_of.push(function);
        self.frames.insert_full(id).0
    }

    fn resource(&mut self, frame: &Frame<'_>) -> Option<usize> {
        if frame.binary.is_empty() {
            return None;
        }
        let key = (frame.binary.to_string(), frame.build_id.to_string());
        let library = self.libraries.insert_full(key).0;
        let name = self.text(frame.binary.rsplit('/').next().unwrap_or_default());
        Some(self.resources.insert_full(library, name).0)
    }

    fn text(&mut self, text: &str) -> usize {
        match self.texts.get_index_of(text) {
            Some(index) => index,
            None => self.texts.insert_full(text.to_owned()).0,
        }
    }

    fn finish(self, samples: SampleTable) -> ThreadTables {
        let mut frames = FrameTable::default();
        for (id, function) in self.frames.iter().zip(&self.function_of) {
            let frame = self.profile.frame_of(*id);
            let category = match frame.kind() {
                FrameKind::Kernel => 1,
                FrameKind::Native => 2,
                FrameKind::Interpreted => 3,
            };
            let is_address = frame.function.is_empty() && frame.address <= EXACT_MAX;
            let address = if is_address { frame.address as i64 } else { -1 };
            let line = (frame.line > 0).then_some(frame.line);
            frames.push(*function, address, category, line, frame.is_inlined);
        }
        let mut functions = FuncTable::default();
        for (name, file, resource) in self.functions {
            functions.push(name, file, resource);
        }
        let mut resources = ResourceTable::default();
        for (library, name) in self.resources {
            resources.push(library, name);
        }
        ThreadTables {
            samples,
            frame_table: frames,
            func_table: functions,
            resource_table: resources,
            stack_table: self.stack_table,
            process_type: "default",
            string_array: self.texts.into_iter().collect(),
            ..ThreadTables::default()
        }
    }
}

#[cfg(test)]
mod tests;
