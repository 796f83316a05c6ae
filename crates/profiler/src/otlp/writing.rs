//! Writes OTLP profiles.

use indexmap::{IndexMap, IndexSet};
use prost::Message;

use super::message::{
    AnyValue, Attribute, Dictionary, Function, KeyValue, Line, Link, Location, Mapping,
    ProfilesData, Resource, ResourceProfiles, Sample, Scope, ScopeProfiles, Stack, Value,
    ValueType,
};
use super::{message, names};
use crate::profile::{FrameId, LabelsId, Profile, SECOND_NS, StackId, Weight};

/// A message with a profile: a file, or a request to a collector. `version` is that of the program.
pub fn write(profile: &Profile, version: &str) -> Vec<u8> {
    message(profile, version).encode_to_vec()
}

/// Names and values of attributes.
type Attributes<'a> = Vec<(&'a str, &'a str)>;

/// The message with a profile.
pub(super) fn message(profile: &Profile, version: &str) -> ProfilesData {
    let mut resources: IndexMap<Attributes<'_>, Vec<(StackId, LabelsId, Weight)>> = IndexMap::new();
    for (stack, labels, weight) in profile.samples() {
        let resource = attributes(profile, labels, true);
        let samples = resources.entry(resource).or_default();
        samples.push((stack, labels, weight));
    }
    if resources.is_empty() {
        // When nothing was seen, too, has been recorded.
        resources.insert(Vec::new(), Vec::new());
    }
    let mut writer = Tables::new(profile);
    let mut lost = match profile.lost {
        0 => Vec::new(),
        lost => vec![writer.attribute(names::LOST, &lost.to_string())],
    };
    let mut written = Vec::with_capacity(resources.len());
    for (attributes, samples) in resources {
        let mut profiles = writer.profiles(&samples);
        if let Some(first) = profiles.first_mut() {
            // Once in the whole message.
            first.attributes = std::mem::take(&mut lost);
        }
        written.push(resource(&attributes, profiles, version));
    }
    ProfilesData {
        resources: written,
        dictionary: Some(writer.finish()),
    }
}

fn resource(
    attributes: &[(&str, &str)],
    profiles: Vec<message::Profile>,
    version: &str,
) -> ResourceProfiles {
    let attribute = |(key, value): &(&str, &str)| KeyValue {
        key: (*key).to_owned(),
        value: Some(any_value(value)),
        key_number: 0,
    };
    ResourceProfiles {
        resource: Some(Resource {
            attributes: attributes.iter().map(attribute).collect(),
        }),
        scopes: vec![ScopeProfiles {
            scope: Some(Scope {
                name: "millpond".to_owned(),
                version: version.to_owned(),
            }),
            profiles,
        }],
    }
}

/// The attributes for labels, of the resource or of the sample.
fn attributes(profile: &Profile, labels: LabelsId, of_resource: bool) -> Attributes<'_> {
    let labels = profile.labels_of(labels).filter_map(|(label, value)| {
        let (attribute, is_resource) = names::attribute_of(label);
        (is_resource == of_resource).then_some((attribute, value))
    });
    labels.collect()
}

/// Numbers are numbers, as the conventions have process ids.
fn any_value(text: &str) -> AnyValue {
    let value = match text.parse::<i64>() {
        Ok(number) if number.to_string() == text => Value::Int(number),
        _ => Value::Text(text.to_owned()),
    };
    AnyValue { value: Some(value) }
}

fn clamped(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// The tables of the dictionary while they are filled; the first element of each is empty.
struct Tables<'a> {
    profile: &'a Profile,
    /// Nanoseconds; 0 where it is not known.
    period_ns: u64,
    strings: IndexSet<String>,
    attributes: IndexSet<(i32, String)>,
    /// File and build id.
    mappings: IndexSet<(i32, i32)>,
    /// Name and file.
    functions: IndexSet<(i32, i32)>,
    /// The frames of one instruction, from the innermost inlined one on.
    locations: IndexSet<Vec<FrameId>>,
    stacks: IndexSet<StackId>,
}

/// The number of an element of a table.
fn number<T: std::hash::Hash + Eq>(table: &mut IndexSet<T>, element: T) -> i32 {
    i32::try_from(table.insert_full(element).0).expect("fewer than 2^31 elements")
}

impl<'a> Tables<'a> {
    fn new(profile: &'a Profile) -> Self {
        let period_ns = match profile.frequency_hz > 0.0 {
            true => (SECOND_NS as f64 / profile.frequency_hz).round() as u64,
            false => 0,
        };
        Self {
            profile,
            period_ns,
            strings: IndexSet::from([String::new()]),
            attributes: IndexSet::from([(0, String::new())]),
            mappings: IndexSet::from([(0, 0)]),
            functions: IndexSet::from([(0, 0)]),
            locations: IndexSet::from([Vec::new()]),
            stacks: IndexSet::from([StackId::EMPTY]),
        }
    }

    fn string(&mut self, text: &str) -> i32 {
        match self.strings.get_index_of(text) {
            Some(index) => index as i32,
            None => number(&mut self.strings, text.to_owned()),
        }
    }

    fn attribute(&mut self, name: &str, value: &str) -> i32 {
        let name = self.string(name);
        number(&mut self.attributes, (name, value.to_owned()))
    }

    fn value_type(&mut self, (kind, unit): (&str, &str)) -> ValueType {
        ValueType {
            kind: self.string(kind),
            unit: self.string(unit),
        }
    }

    /// One profile where the period says the processor time, up to a nanosecond a sample; else one of each type.
    fn profiles(&mut self, samples: &[(StackId, LabelsId, Weight)]) -> Vec<message::Profile> {
        let period_ns = self.period_ns;
        let is_plain = |weight: &Weight| {
            let expected = weight.samples.saturating_mul(period_ns);
            weight.cpu_ns.abs_diff(expected) <= weight.samples
        };
        let are_plain = period_ns > 0 && samples.iter().all(|(_, _, weight)| is_plain(weight));
        let counts = self.profile_of(names::SAMPLES, samples, |weight| weight.samples);
        let times =
            (!are_plain).then(|| self.profile_of(names::CPU, samples, |weight| weight.cpu_ns));
        [counts].into_iter().chain(times).collect()
    }

    fn profile_of(
        &mut self,
        kind: (&str, &str),
        samples: &[(StackId, LabelsId, Weight)],
        value: impl Fn(&Weight) -> u64,
    ) -> message::Profile {
        let mut written = Vec::with_capacity(samples.len());
        for (stack, labels, weight) in samples {
            let attributes = attributes(self.profile, *labels, false);
            let attributes = attributes.iter();
            written.push(Sample {
                stack: number(&mut self.stacks, *stack),
                attributes: attributes
                    .map(|(name, value)| self.attribute(name, value))
                    .collect(),
                values: vec![clamped(value(weight))],
                ..Sample::default()
            });
        }
        message::Profile {
            sample_type: Some(self.value_type(kind)),
            samples: written,
            time_ns: u64::try_from(self.profile.window.start_ns).unwrap_or(0),
            duration_ns: self.profile.window.duration_ns,
            period_type: Some(self.value_type(names::CPU)),
            period: clamped(self.period_ns),
            attributes: Vec::new(),
        }
    }

    fn finish(mut self) -> Dictionary {
        let mut dictionary = Dictionary {
            links: vec![Link::default()],
            ..Dictionary::default()
        };
        for stack in std::mem::take(&mut self.stacks) {
            let stack = self.stack(stack);
            dictionary.stacks.push(stack);
        }
        for frames in std::mem::take(&mut self.locations) {
            let location = self.location(&frames);
            dictionary.locations.push(location);
        }
        for (file, build_id) in std::mem::take(&mut self.mappings) {
            let build_id = self.strings[build_id as usize].clone();
            let attributes = match build_id.is_empty() {
                true => Vec::new(),
                false => {
                    let (name, value) = names::build_id_attribute(&build_id);
                    vec![self.attribute(name, value)]
                }
            };
            dictionary.mappings.push(Mapping {
                file,
                attributes,
                ..Mapping::default()
            });
        }
        let function = |(name, file)| Function {
            name,
            system_name: name,
            file,
        };
        dictionary.functions = self.functions.into_iter().map(function).collect();
        let attribute = |(key, value): (i32, String)| Attribute {
            key,
            value: (key != 0).then(|| any_value(&value)),
        };
        dictionary.attributes = self.attributes.into_iter().map(attribute).collect();
        dictionary.strings = self.strings.into_iter().collect();
        dictionary
    }

    fn stack(&mut self, stack: StackId) -> Stack {
        let mut locations = Vec::new();
        let mut frames = Vec::new();
        for frame in self.profile.frame_ids(stack) {
            frames.push(frame);
            if !self.profile.frame_of(frame).is_inlined {
                let frames = std::mem::take(&mut frames);
                locations.push(number(&mut self.locations, frames));
            }
        }
        if !frames.is_empty() {
            locations.push(number(&mut self.locations, frames));
        }
        Stack { locations }
    }

    fn location(&mut self, frames: &[FrameId]) -> Location {
        let profile = self.profile;
        let mut location = Location::default();
        for id in frames {
            let frame = profile.frame_of(*id);
            if !frame.function.is_empty() {
                let key = (self.string(&frame.function), self.string(&frame.file));
                location.lines.push(Line {
                    function: number(&mut self.functions, key),
                    line: i64::from(frame.line),
                });
            }
        }
        if let Some(outermost) = frames.last() {
            let frame = profile.frame_of(*outermost);
            let key = (self.string(&frame.binary), self.string(&frame.build_id));
            location.mapping = number(&mut self.mappings, key);
            location.address = frame.address;
            if let Some(kind) = names::frame_type_of(&frame.binary) {
                location.attributes = vec![self.attribute(names::FRAME_TYPE, kind)];
            }
        }
        location
    }
}
