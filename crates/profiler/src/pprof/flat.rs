//! Tables as pprof files: what each function took of each set of labels, without stacks.
//!
//! A day of a host has tens of thousands of stacks, but a table of it a few thousand functions. So a query that asks for a table of many files reads
//! such tables instead of the files themselves ([`Scanner::scan_table`](super::Scanner::scan_table)).
//!
//! A sample has one function as its stack, or none for time without a stack, and two more values: the sample types `total_samples`/`count` and
//! `total_cpu`/`nanoseconds`, which are the time of the function together with what it called. Any pprof tool opens such a file, and shows the
//! functions by their own time.

use std::collections::HashMap;
use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use foldhash::fast::RandomState;
use prost::Message;

use super::message::ValueType;
use super::{HAS_ADDRESSES, TOTAL_CPU, TOTAL_SAMPLES, message, writer};
use crate::profile::{Frame, LabelsId, Profile, StackId, Weight};

/// Of each function and set of labels, the time together with what it called.
type Totals = HashMap<(StackId, LabelsId), Weight, RandomState>;

/// The table of a profile, by the labels that `keep` takes.
pub fn write_table(profile: &Profile, keep: impl Fn(&str) -> bool) -> Vec<u8> {
    let (flat, totals) = flat(profile, keep);
    let mut message = writer::message(&flat);
    let clamped = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    let of_stacks = flat.in_order();
    let width = message.sample_types.len();
    for (index, sample) in message.samples.iter_mut().enumerate() {
        // Events, which have no stack, come last.
        let key = of_stacks.get(index).map(|(stack, set, _)| (*stack, *set));
        let total = key.and_then(|key| totals.get(&key)).copied();
        let total = total.unwrap_or_default();
        sample.values.resize(width, 0);
        let values = [clamped(total.samples), clamped(total.cpu_ns)];
        sample.values.extend(values);
    }
    for (kind, unit) in [TOTAL_SAMPLES, TOTAL_CPU] {
        let value_type = ValueType {
            kind: string(&mut message, kind),
            unit: string(&mut message, unit),
        };
        message.sample_types.push(value_type);
    }
    let mut frames = profile.frames();
    if frames.any(|(_, frame)| frame.function.is_empty() && frame.address != 0) {
        let comment = string(&mut message, HAS_ADDRESSES);
        message.comments.push(comment);
    }
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    // Writing to memory never fails.
    let _ = encoder.write_all(&message.encode_to_vec());
    encoder.finish().unwrap_or_default()
}

fn string(message: &mut message::Profile, text: &str) -> i64 {
    message.strings.push(text.as_bytes().to_vec());
    message.strings.len() as i64 - 1
}

/// A profile whose stacks are single functions, with their own time, and their total time.
fn flat(profile: &Profile, keep: impl Fn(&str) -> bool) -> (Profile, Totals) {
    let mut flat = Profile::new(profile.window, profile.frequency_hz);
    flat.lost = profile.lost;
    let functions: Vec<StackId> = profile
        .frames()
        .map(|(_, frame)| flat.stack([Frame::function(frame.name(), frame.binary.clone())]))
        .collect();
    let mut sets = Vec::new();
    for set in profile.label_sets() {
        let labels: Vec<_> = profile
            .labels_of(set)
            .filter(|(name, _)| keep(name))
            .collect();
        sets.push(flat.labels(&labels));
    }
    let places = profile.places_in_tree();
    let samples = profile.samples();
    let mut samples: Vec<_> = samples
        .map(|(stack, set, weight)| (sets[set.index()], stack, weight))
        .collect();
    samples.sort_unstable_by_key(|(set, stack, _)| (*set, places[stack.index()]));
    let mut totals = Totals::default();
    let mut walk = Walk::new(profile, &functions, flat.stack_count());
    for of_set in samples.chunk_by(|one, other| one.0 == other.0) {
        for (_, stack, weight) in of_set {
            walk.count(*stack, *weight);
        }
        for (function, own, total) in walk.end() {
            flat.add(function, of_set[0].0, own);
            totals.insert((function, of_set[0].0), total);
        }
    }
    for (set, events) in profile.events() {
        flat.count_events(sets[set.index()], events);
    }
    (flat, totals)
}

/// Goes from stack to stack in the order of their tree. What stacks with the same beginning took is added up where they part.
struct Walk<'p> {
    profile: &'p Profile,
    /// The function of each frame.
    functions: &'p [StackId],
    /// The stack at hand, from the outermost frame on.
    path: Vec<Level>,
    /// Of each stack, where on the path it is or was.
    depths: Vec<usize>,
    /// Of each function; the first one is of samples without a stack.
    tallies: Vec<Tally>,
    /// The functions that were met.
    met: Vec<StackId>,
}

struct Level {
    stack: StackId,
    function: StackId,
    weight: Weight,
}

#[derive(Clone, Default)]
struct Tally {
    own: Weight,
    total: Weight,
    /// How often the function is on the path.
    on_path: u32,
    is_met: bool,
}

impl<'p> Walk<'p> {
    fn new(profile: &'p Profile, functions: &'p [StackId], count: usize) -> Self {
        Self {
            profile,
            functions,
            path: Vec::new(),
            depths: vec![0; profile.stack_count() + 1],
            tallies: vec![Tally::default(); count + 1],
            met: Vec::new(),
        }
    }

    fn count(&mut self, stack: StackId, weight: Weight) {
        self.go_to(stack);
        let function = match self.path.last_mut() {
            Some(level) => {
                level.weight += weight;
                level.function
            }
            None => {
                self.tally(StackId::EMPTY).total += weight;
                StackId::EMPTY
            }
        };
        self.tally(function).own += weight;
    }

    fn go_to(&mut self, stack: StackId) {
        let (mut missing, mut rest) = (Vec::new(), stack);
        let mut kept = 0;
        while let Some((frame, caller)) = self.profile.split(rest) {
            let depth = self.depths[rest.index()];
            if self
                .path
                .get(depth)
                .is_some_and(|level| level.stack == rest)
            {
                kept = depth + 1;
                break;
            }
            missing.push((rest, self.functions[frame.index()]));
            rest = caller;
        }
        while self.path.len() > kept {
            self.leave();
        }
        for (stack, function) in missing.into_iter().rev() {
            self.tally(function).on_path += 1;
            self.depths[stack.index()] = self.path.len();
            let weight = Weight::default();
            self.path.push(Level {
                stack,
                function,
                weight,
            });
        }
    }

    /// Leaves the innermost frame, and counts its function unless it is further out on the stack as well.
    fn leave(&mut self) {
        let Some(left) = self.path.pop() else {
            return;
        };
        let tally = self.tally(left.function);
        tally.on_path -= 1;
        if tally.on_path == 0 {
            tally.total += left.weight;
        }
        if let Some(caller) = self.path.last_mut() {
            caller.weight += left.weight;
        }
    }

    fn tally(&mut self, function: StackId) -> &mut Tally {
        let tally = &mut self.tallies[function.index()];
        if !tally.is_met {
            tally.is_met = true;
            self.met.push(function);
        }
        tally
    }

    /// Own and total times of the functions that were met. All begin at zero again.
    fn end(&mut self) -> Vec<(StackId, Weight, Weight)> {
        while !self.path.is_empty() {
            self.leave();
        }
        let met = std::mem::take(&mut self.met).into_iter();
        met.map(|function| {
            let tally = std::mem::take(&mut self.tallies[function.index()]);
            (function, tally.own, tally.total)
        })
        .collect()
    }
}
