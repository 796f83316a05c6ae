//! Reads OTLP profiles, of whatever program.

use std::borrow::Cow;
use std::collections::HashMap;

use prost::Message;

use super::message as proto;
use super::message::{
    AnyValue, Dictionary, KeyValue, Location, ProfilesData, Resource, Sample, ScopeProfiles, Value,
    ValueType,
};
use super::names;
use crate::profile::{Frame, FrameId, LabelsId, Profile, SECOND_NS, StackId, Weight, Window};
use crate::work::{Excess, Work};

/// The most bytes that a message may have.
pub const MESSAGE_BYTES_MAX: usize = 256 << 20;
/// The most labels of a sample; further ones are left out.
pub const LABELS_MAX: usize = 64;
/// The most bytes of a label's value; longer ones are cut.
pub const LABEL_BYTES_MAX: usize = 1024;

/// From here on programs are loaded whose addresses begin at 0 in their files. Lower mappings have the addresses of the file: they are of programs that are
/// loaded where they were linked for, or of senders that take off where a program was loaded, as the eBPF profiler does.
const LOADED_START: u64 = 1 << 32;

/// The most bytes of names of functions and files; longer ones are cut.
pub const NAME_BYTES_MAX: usize = 4096;

/// Why bytes are no profiles.
#[derive(Debug, thiserror::Error)]
pub enum OtlpError {
    /// They are too many.
    #[error("it has more than {MESSAGE_BYTES_MAX} bytes")]
    TooLarge,
    /// They stand for too much.
    #[error(transparent)]
    Excess(#[from] Excess),
    /// They are no message.
    #[error("it is not an OTLP profile: {0}")]
    Message(prost::DecodeError),
    /// The message refers to what its dictionary does not have.
    #[error("it is damaged: {what} number {number} is not in its dictionary")]
    Missing {
        /// What kind of thing.
        what: &'static str,
        /// Its number.
        number: i32,
    },
}

// Its text is part of this one's, so that it is no source: whoever prints those as well would print it twice.
impl From<prost::DecodeError> for OtlpError {
    fn from(error: prost::DecodeError) -> Self {
        Self::Message(error)
    }
}

/// What a message had.
#[derive(Debug, Clone, Default)]
pub struct Received {
    /// All of its profiles of processor time, as one.
    pub profile: Profile,
    /// How many profiles were left out, as they are not about processor time.
    pub rejected: u64,
}

/// Reads a message: a file, or a request to a collector.
///
/// # Errors
/// The bytes are none, or too many, or refer to what is not there.
pub fn read(bytes: &[u8]) -> Result<Received, OtlpError> {
    if bytes.len() > MESSAGE_BYTES_MAX {
        return Err(OtlpError::TooLarge);
    }
    message(&ProfilesData::decode(bytes)?, bytes.len())
}

/// Reads a message that had so many bytes.
pub(super) fn message(message: &ProfilesData, bytes: usize) -> Result<Received, OtlpError> {
    let mut work = Work::of(bytes);
    let empty = Dictionary::default();
    let dictionary = message.dictionary.as_ref().unwrap_or(&empty);
    let mut received = Received::default();
    let stacks = stacks(dictionary, &mut work, &mut received.profile)?;
    let mut importer = Importer {
        dictionary,
        work,
        stacks,
        received,
    };
    for resource in &message.resources {
        let labels = importer.resource_labels(resource.resource.as_ref())?;
        for scope in &resource.scopes {
            importer.scope(scope, &labels)?;
        }
    }
    Ok(importer.received)
}

/// An element of a table. Where the table has none at all, 0 is nothing.
fn element<'a, T>(
    table: &'a [T],
    number: i32,
    what: &'static str,
) -> Result<Option<&'a T>, OtlpError> {
    let element = usize::try_from(number).ok().and_then(|at| table.get(at));
    match (element, number) {
        (_, 0) => Ok(None),
        (Some(element), _) => Ok(Some(element)),
        (None, _) => Err(OtlpError::Missing { what, number }),
    }
}

impl Dictionary {
    fn text(&self, number: i32) -> Result<&str, OtlpError> {
        let text = element(&self.strings, number, "text")?;
        Ok(text.map_or("", |text| text))
    }

    /// A value as text, cut to what a label may have; empty for lists and maps.
    fn value<'a>(&'a self, value: Option<&'a AnyValue>) -> Result<Cow<'a, str>, OtlpError> {
        let Some(value) = value.and_then(|value| value.value.as_ref()) else {
            return Ok(Cow::Borrowed(""));
        };
        Ok(match value {
            Value::Text(text) => Cow::Borrowed(cut(text)),
            Value::TextNumber(number) => Cow::Borrowed(cut(self.text(*number)?)),
            Value::Bool(value) => Cow::Owned(value.to_string()),
            Value::Int(value) => Cow::Owned(value.to_string()),
            Value::Double(value) => Cow::Owned(value.to_string()),
        })
    }

    /// Name and value of an attribute; empty for the one that stands for none.
    fn attribute(&self, number: i32) -> Result<(&str, Cow<'_, str>), OtlpError> {
        match element(&self.attributes, number, "attribute")? {
            Some(attribute) => Ok((
                cut(self.text(attribute.key)?),
                self.value(attribute.value.as_ref())?,
            )),
            None => Ok(("", Cow::Borrowed(""))),
        }
    }

    /// The value that one of several attributes has; the first 64 are looked at.
    fn find(&self, attributes: &[i32], name: &str) -> Result<Cow<'_, str>, OtlpError> {
        for number in attributes.iter().take(LABELS_MAX) {
            let (known, value) = self.attribute(*number)?;
            if known == name {
                return Ok(value);
            }
        }
        Ok(Cow::Borrowed(""))
    }
}

fn cut_name(text: &str) -> &str {
    &text[..text.floor_char_boundary(NAME_BYTES_MAX)]
}

fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(LABEL_BYTES_MAX)]
}

/// The stacks of the dictionary.
fn stacks(
    dictionary: &Dictionary,
    work: &mut Work,
    profile: &mut Profile,
) -> Result<Vec<StackId>, OtlpError> {
    // From the outermost function on.
    let mut frames = Vec::with_capacity(dictionary.locations.len());
    for location in &dictionary.locations {
        frames.push(location_frames(dictionary, location, work, profile)?);
    }
    let mut stacks = Vec::with_capacity(dictionary.stacks.len());
    for stack in &dictionary.stacks {
        let mut id = StackId::EMPTY;
        for location in stack.locations.iter().rev() {
            let frames = element(&frames, *location, "location")?;
            for frame in frames.into_iter().flatten() {
                work.frame(profile.stack_count())?;
                id = profile.call(id, *frame);
            }
        }
        stacks.push(id);
    }
    Ok(stacks)
}

fn location_frames(
    dictionary: &Dictionary,
    location: &Location,
    work: &mut Work,
    profile: &mut Profile,
) -> Result<Vec<FrameId>, OtlpError> {
    let mapping = element(&dictionary.mappings, location.mapping, "mapping")?;
    let frame_type = dictionary.find(&location.attributes, names::FRAME_TYPE)?;
    if frame_type == names::ABORTED.0 {
        return Ok(vec![profile.frame(&Frame::function(names::ABORTED.1, ""))]);
    }
    let mut whole = Frame::default();
    let mut address = location.address;
    if let Some(mapping) = mapping {
        whole.binary = cut_name(dictionary.text(mapping.file)?).into();
        let find = |name: &str| {
            dictionary
                .find(&mapping.attributes, name)
                .map(Cow::into_owned)
        };
        whole.build_id = names::build_id(find)?.into();
        if mapping.start >= LOADED_START {
            address = address
                .wrapping_sub(mapping.start)
                .wrapping_add(mapping.file_offset);
        }
    }
    if let Some(binary) = names::binary_of(&frame_type, &whole.binary) {
        whole.binary = binary;
        // That of a script or a class, which one function of an interpreter need not have.
        whole.build_id = Cow::Borrowed("");
    }
    let of_binary = whole.binary.len() + whole.build_id.len();
    work.text(of_binary)?;
    let mut frames = Vec::with_capacity(location.lines.len().max(1));
    for (depth, line) in location.lines.iter().enumerate().rev() {
        let function = element(&dictionary.functions, line.function, "function")?;
        let function = function.copied().unwrap_or_default();
        let name = match dictionary.text(function.name)? {
            "" => dictionary.text(function.system_name)?,
            name => name,
        };
        let (name, file) = (cut_name(name), cut_name(dictionary.text(function.file)?));
        work.text(of_binary + name.len() + file.len())?;
        let frame = Frame {
            function: name.into(),
            file: file.into(),
            line: u32::try_from(line.line).unwrap_or(0),
            address: if name.is_empty() { address } else { 0 },
            is_inlined: depth + 1 < location.lines.len(),
            ..whole.clone()
        };
        frames.push(profile.frame(&frame));
    }
    if frames.is_empty() {
        whole.address = address;
        frames.push(profile.frame(&whole));
    }
    Ok(frames)
}

/// Names and values of labels.
type Labels<'a> = Vec<(&'a str, Cow<'a, str>)>;

/// What the values of a profile are.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Counted {
    Samples,
    /// Nanoseconds of each unit.
    Cpu(f64),
}

struct Importer<'a> {
    dictionary: &'a Dictionary,
    work: Work,
    stacks: Vec<StackId>,
    received: Received,
}

impl<'a> Importer<'a> {
    fn resource_labels(&self, resource: Option<&'a Resource>) -> Result<Labels<'a>, OtlpError> {
        let attributes = resource.map_or(&[] as &[KeyValue], |resource| &resource.attributes);
        let mut labels = Vec::new();
        for attribute in attributes.iter().take(LABELS_MAX) {
            let key = match &*attribute.key {
                "" => self.dictionary.text(attribute.key_number)?,
                key => key,
            };
            let value = self.dictionary.value(attribute.value.as_ref())?;
            labels.push((names::label_of(cut(key)), value));
        }
        Ok(labels)
    }

    fn counted(&self, kind: Option<ValueType>) -> Result<Option<Counted>, OtlpError> {
        let kind = kind.unwrap_or_default();
        let names = (
            self.dictionary.text(kind.kind)?,
            self.dictionary.text(kind.unit)?,
        );
        Ok(match names {
            names::SAMPLES => Some(Counted::Samples),
            ("cpu", unit) => names::nanoseconds(unit).map(Counted::Cpu),
            _ => None,
        })
    }

    fn scope(&mut self, scope: &ScopeProfiles, labels: &Labels<'a>) -> Result<(), OtlpError> {
        let mut profiles = Vec::new();
        // Which windows have which types.
        let mut windows: HashMap<(u64, u64), (bool, bool)> = HashMap::new();
        for profile in &scope.profiles {
            let period_ns = match self.counted(profile.period_type)? {
                Some(Counted::Cpu(scale)) => profile.period.max(0) as f64 * scale,
                _ => 0.0,
            };
            let counted = self.counted(profile.sample_type)?;
            let window = (profile.time_ns, profile.duration_ns);
            let (has_samples, has_cpu) = windows.entry(window).or_default();
            *has_samples |= counted == Some(Counted::Samples);
            *has_cpu |= matches!(counted, Some(Counted::Cpu(_)));
            profiles.push((profile, counted, period_ns));
        }
        // Of what was not seen at all, nothing is left out.
        profiles.retain(|(profile, counted, _)| counted.is_some() || !profile.samples.is_empty());
        for (profile, counted, period_ns) in profiles {
            let is_pair = windows[&(profile.time_ns, profile.duration_ns)] == (true, true);
            match counted {
                Some(Counted::Samples) if !is_pair && period_ns == 0.0 => {
                    self.received.rejected += 1;
                }
                Some(counted) => {
                    let values = Values {
                        counted,
                        period_ns,
                        is_pair,
                    };
                    self.profile(profile, values, labels)?;
                }
                None => self.received.rejected += 1,
            }
        }
        Ok(())
    }

    fn profile(
        &mut self,
        profile: &proto::Profile,
        values: Values,
        resource: &Labels<'a>,
    ) -> Result<(), OtlpError> {
        let window = Window {
            start_ns: i64::try_from(profile.time_ns).unwrap_or(i64::MAX),
            duration_ns: profile.duration_ns,
        };
        let joined = &mut self.received.profile;
        joined.window = joined.window.join(window);
        if joined.frequency_hz == 0.0 && values.period_ns > 0.0 {
            joined.frequency_hz = SECOND_NS as f64 / values.period_ns;
        }
        let lost = self.dictionary.find(&profile.attributes, names::LOST)?;
        joined.lost = joined.lost.saturating_add(lost.parse().unwrap_or(0));
        let mut known: HashMap<&[i32], LabelsId> = HashMap::new();
        for sample in &profile.samples {
            let stack = element(&self.stacks, sample.stack, "stack")?;
            let stack = stack.copied().unwrap_or(StackId::EMPTY);
            let labels = match known.get(&*sample.attributes) {
                Some(labels) => *labels,
                None => {
                    let labels = self.labels(&sample.attributes, resource)?;
                    *known.entry(&sample.attributes).or_insert(labels)
                }
            };
            let weight = values.weight(sample);
            self.received.profile.add(stack, labels, weight);
        }
        Ok(())
    }

    fn labels(&mut self, attributes: &[i32], resource: &Labels<'a>) -> Result<LabelsId, OtlpError> {
        let mut labels: Labels<'a> = resource.clone();
        for number in attributes {
            let (key, value) = self.dictionary.attribute(*number)?;
            if labels.len() < LABELS_MAX {
                labels.push((names::label_of(key), value));
            }
        }
        let labels = labels.iter().filter(|(name, _)| !name.is_empty());
        let labels: Vec<_> = labels.map(|(name, value)| (*name, &**value)).collect();
        for (name, value) in &labels {
            self.work.text(name.len() + value.len())?;
        }
        Ok(self.received.profile.labels(&labels))
    }
}

/// How values become weights.
#[derive(Debug, Clone, Copy)]
struct Values {
    counted: Counted,
    period_ns: f64,
    /// Whether another profile of the same window has the other type.
    is_pair: bool,
}

impl Values {
    fn weight(self, sample: &Sample) -> Weight {
        let value = match sample.values.is_empty() {
            true => sample.times_ns.len() as u64,
            false => sample
                .values
                .iter()
                .map(|value| u64::try_from(*value).unwrap_or(0))
                .fold(0, u64::saturating_add),
        };
        match self.counted {
            Counted::Samples if self.is_pair => Weight {
                samples: value,
                cpu_ns: 0,
            },
            Counted::Samples => Weight {
                samples: value,
                cpu_ns: (value as f64 * self.period_ns).round() as u64,
            },
            Counted::Cpu(scale) => {
                let cpu_ns = (value as f64 * scale).round() as u64;
                let counted = match self.period_ns > 0.0 {
                    true => (cpu_ns as f64 / self.period_ns).round() as u64,
                    false => 0,
                };
                let samples = match self.is_pair {
                    true => 0,
                    false => counted.max(u64::from(cpu_ns > 0)),
                };
                Weight { samples, cpu_ns }
            }
        }
    }
}
