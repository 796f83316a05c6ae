//! Writes pprof files.

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use foldhash::fast::RandomState;
use prost::Message;

use super::message::{Function, Label, Line, Location, Mapping, Sample, ValueType};
use super::{CPU, EVENTS, LOST, SAMPLES, message};
use crate::profile::{FrameId, LabelsId, Profile, SECOND_NS, StackId};

type IndexMap<K, V> = indexmap::IndexMap<K, V, RandomState>;
type IndexSet<T> = indexmap::IndexSet<T, RandomState>;

/// A pprof file.
pub fn write(profile: &Profile) -> Vec<u8> {
    let bytes = message(profile).encode_to_vec();
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    // Writing to memory never fails.
    let _ = encoder.write_all(&bytes);
    encoder.finish().unwrap_or_default()
}

/// The message of a pprof file.
pub(super) fn message(profile: &Profile) -> message::Profile {
    let mut writer = Writer {
        profile,
        // The first one has to be empty.
        strings: IndexSet::from_iter([String::new()]),
        mappings: IndexMap::default(),
        functions: IndexSet::default(),
        locations: IndexSet::default(),
    };
    let (samples, cpu) = (writer.value_type(SAMPLES), writer.value_type(CPU));
    let mut sample_types = vec![samples, cpu];
    let counted: Vec<_> = profile.events().collect();
    if !counted.is_empty() {
        sample_types.push(writer.value_type(EVENTS));
    }
    let clamped = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    let stacks = profile.in_order();
    let samples_of = |(stack, labels, weight)| {
        let weight: crate::profile::Weight = weight;
        let mut values = vec![clamped(weight.samples), clamped(weight.cpu_ns)];
        values.resize(sample_types.len(), 0);
        Sample {
            locations: writer.locations_of(stack),
            values,
            labels: writer.labels_of(labels),
        }
    };
    let mut written: Vec<Sample> = stacks.into_iter().map(samples_of).collect();
    for (labels, events) in counted {
        written.push(Sample {
            locations: Vec::new(),
            values: vec![0, 0, clamped(events)],
            labels: writer.labels_of(labels),
        });
    }
    let comments = match profile.lost {
        0 => Vec::new(),
        lost => vec![writer.string(&format!("{LOST}{lost}"))],
    };
    let period = match profile.frequency_hz > 0.0 {
        true => (SECOND_NS as f64 / profile.frequency_hz).round() as i64,
        false => 0,
    };
    let mut message = message::Profile {
        sample_types,
        samples: written,
        time_ns: profile.window.start_ns,
        duration_ns: i64::try_from(profile.window.duration_ns).unwrap_or(i64::MAX),
        period_type: Some(cpu),
        period,
        comments,
        ..message::Profile::default()
    };
    writer.finish(&mut message);
    message
}

struct Writer<'a> {
    profile: &'a Profile,
    strings: IndexSet<String>,
    /// Those of a file and a build id, and whether all functions there have names.
    mappings: IndexMap<(i64, i64), bool>,
    /// Name and file.
    functions: IndexSet<(i64, i64)>,
    /// The frames of one instruction, from the innermost inlined one on.
    locations: IndexSet<Vec<FrameId>>,
}

impl Writer<'_> {
    fn string(&mut self, text: &str) -> i64 {
        let index = match self.strings.get_index_of(text) {
            Some(index) => index,
            None => self.strings.insert_full(text.to_owned()).0,
        };
        index as i64
    }

    fn value_type(&mut self, (kind, unit): (&str, &str)) -> ValueType {
        ValueType {
            kind: self.string(kind),
            unit: self.string(unit),
        }
    }

    fn locations_of(&mut self, stack: StackId) -> Vec<u64> {
        let mut locations = Vec::new();
        let mut inlined = Vec::new();
        for frame in self.profile.frame_ids(stack) {
            inlined.push(frame);
            if !self.profile.frame_of(frame).is_inlined {
                let frames = std::mem::take(&mut inlined);
                locations.push(self.locations.insert_full(frames).0 as u64 + 1);
            }
        }
        if !inlined.is_empty() {
            locations.push(self.locations.insert_full(inlined).0 as u64 + 1);
        }
        locations
    }

    fn labels_of(&mut self, labels: LabelsId) -> Vec<Label> {
        let profile = self.profile;
        let label = |(name, value)| Label {
            key: self.string(name),
            text: self.string(value),
            ..Label::default()
        };
        profile.labels_of(labels).map(label).collect()
    }

    fn finish(mut self, message: &mut message::Profile) {
        let locations = std::mem::take(&mut self.locations);
        let located = locations.iter().enumerate().map(|(index, frames)| {
            let mut location = self.location(frames);
            location.id = index as u64 + 1;
            location
        });
        message.locations = located.collect();
        let mapping = |(index, ((file, build_id), has_functions))| Mapping {
            id: index as u64 + 1,
            limit: u64::MAX,
            file,
            build_id,
            has_functions,
            has_files: has_functions,
            has_lines: has_functions,
            has_inlined: has_functions,
            ..Mapping::default()
        };
        message.mappings = self.mappings.into_iter().enumerate().map(mapping).collect();
        let function = |(index, (name, file))| Function {
            id: index as u64 + 1,
            name,
            system_name: name,
            file,
            start_line: 0,
        };
        message.functions = self
            .functions
            .into_iter()
            .enumerate()
            .map(function)
            .collect();
        message.strings = self.strings.into_iter().map(String::into_bytes).collect();
    }

    fn location(&mut self, frames: &[FrameId]) -> Location {
        let mut location = Location::default();
        for id in frames {
            let frame = self.profile.frame_of(*id);
            let key = (self.string(&frame.binary), self.string(&frame.build_id));
            if key != (0, 0) {
                let entry = self.mappings.entry(key);
                location.mapping = entry.index() as u64 + 1;
                *entry.or_insert(true) &= !frame.function.is_empty();
            }
            location.address = frame.address;
            if !frame.function.is_empty() {
                let key = (self.string(&frame.function), self.string(&frame.file));
                location.lines.push(Line {
                    function: self.functions.insert_full(key).0 as u64 + 1,
                    line: i64::from(frame.line),
                });
            }
        }
        location
    }
}
