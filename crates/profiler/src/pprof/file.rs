//! A pprof file but for its samples: what they are numbers of, and the samples as they are in the file.
//!
//! # Limits
//! Decompressed, a file has up to [`FILE_BYTES_MAX`], and up to [`RATIO_MAX`] times its own bytes where that is more than
//! [`SMALL_BYTES_MAX`]: files of profilers shrink to a third up to a thirtieth. The first [`LABELS_MAX`] labels of a sample count. What
//! stacks and names add up to is limited by [`Excess`].

use std::borrow::Cow;
use std::collections::HashMap;
use std::io::{self, Read};

use bytes::Buf;
use flate2::read::MultiGzDecoder;
use foldhash::fast::RandomState;
use prost::Message;
use prost::encoding::{WireType, decode_key, decode_varint};

use super::message::{
    Dictionary, Function, Label, Location, Mapping, SAMPLES_TAG, STRINGS_TAG, ValueType,
};
use super::{CPU, EVENTS, FILE_BYTES_MAX, HAS_ADDRESSES, LOST, SAMPLES, TOTAL_CPU, TOTAL_SAMPLES};
use crate::profile::{Frame, Profile, SECOND_NS, Weight, Window};
use crate::work::{Excess, Work};

/// How many times its own bytes a file may have when it is decompressed.
const RATIO_MAX: u64 = 100;
/// So many bytes a file may have in any case when it is decompressed.
const SMALL_BYTES_MAX: u64 = 16 << 20;
/// The most labels of a sample; further ones are left out.
pub(super) const LABELS_MAX: usize = 64;

/// Why bytes are no profile of processor time.
#[derive(Debug, thiserror::Error)]
pub enum PprofError {
    /// They cannot be decompressed.
    #[error("it cannot be decompressed: {0}")]
    Compression(io::Error),
    /// They are too many.
    #[error(
        "it has more than {0} bytes when decompressed, which is the most for a file of its size"
    )]
    TooLarge(u64),
    /// The message stands for too much.
    #[error(transparent)]
    Excess(#[from] Excess),
    /// They are no message.
    #[error("it is not a pprof profile: {0}")]
    Message(prost::DecodeError),
    /// The message ends in the middle of something.
    #[error("it is not a pprof profile: it ends in the middle of a field")]
    Cut,
    /// It has a field of a kind that such messages do not have.
    #[error("it is not a pprof profile: it has a group")]
    Group,
    /// The message refers to what it does not have.
    #[error("it is damaged: {what} number {number} is not in it")]
    Missing {
        /// What kind of thing.
        what: &'static str,
        /// Its number.
        number: i64,
    },
    /// A sample has fewer values than there are types.
    #[error("it is damaged: a sample has fewer values than the profile has types")]
    Values,
    /// It counts something else.
    #[error(
        "it counts {0}, not processor time: a sample type `cpu` in `nanoseconds`, or `samples` with a period, is needed"
    )]
    NoCpu(String),
}

// Their texts are part of this one's, so that they are no sources: whoever prints those as well would print them twice.
impl From<io::Error> for PprofError {
    fn from(error: io::Error) -> Self {
        Self::Compression(error)
    }
}

impl From<prost::DecodeError> for PprofError {
    fn from(error: prost::DecodeError) -> Self {
        Self::Message(error)
    }
}

/// The bytes of a file, decompressed into `buffer` where it is compressed.
pub(super) fn raw<'b>(bytes: &'b [u8], buffer: &'b mut Vec<u8>) -> Result<&'b [u8], PprofError> {
    let raw = match bytes.starts_with(&[0x1f, 0x8b]) {
        true => decompressed(bytes, buffer)?,
        false => bytes,
    };
    match raw.len() as u64 > FILE_BYTES_MAX {
        true => Err(PprofError::TooLarge(FILE_BYTES_MAX)),
        false => Ok(raw),
    }
}

fn decompressed<'b>(bytes: &[u8], buffer: &'b mut Vec<u8>) -> Result<&'b [u8], PprofError> {
    let by_ratio = (bytes.len() as u64).saturating_mul(RATIO_MAX);
    let limit = by_ratio.clamp(SMALL_BYTES_MAX, FILE_BYTES_MAX);
    buffer.clear();
    MultiGzDecoder::new(bytes)
        .take(limit + 1)
        .read_to_end(buffer)?;
    match buffer.len() as u64 > limit {
        true => Err(PprofError::TooLarge(limit)),
        false => Ok(buffer),
    }
}

/// Which value is what.
#[derive(Debug, Clone)]
pub(super) struct Values {
    samples: Option<usize>,
    cpu: Option<usize>,
    events: Option<usize>,
    total_samples: Option<usize>,
    total_cpu: Option<usize>,
    /// Nanoseconds of processor time for each unit of the value.
    cpu_scale: f64,
    /// Nanoseconds of processor time for each sample.
    period_ns: f64,
    /// What is counted, where it is not processor time.
    others: Option<String>,
}

impl Values {
    /// How many log events a sample without a stack counts.
    pub(super) fn events(&self, values: &[i64]) -> u64 {
        let value = self.events.and_then(|index| values.get(index));
        value.map_or(0, |value| u64::try_from(*value).unwrap_or(0))
    }

    /// What a function of a table took together with what it called.
    pub(super) fn total(&self, values: &[i64]) -> Result<Weight, PprofError> {
        let value = |index: Option<usize>| -> Result<u64, PprofError> {
            let value = index.and_then(|index| values.get(index));
            let value = value.ok_or(PprofError::Values)?;
            Ok(u64::try_from(*value).unwrap_or(0))
        };
        Ok(Weight {
            samples: value(self.total_samples)?,
            cpu_ns: value(self.total_cpu)?,
        })
    }

    pub(super) fn weight(&self, values: &[i64]) -> Result<Weight, PprofError> {
        // A profile without samples may count anything.
        if let Some(others) = &self.others {
            return Err(PprofError::NoCpu(others.clone()));
        }
        let value = |index: usize| -> Result<u64, PprofError> {
            let value = values.get(index).ok_or(PprofError::Values)?;
            // Differences of two profiles have negative ones.
            Ok(u64::try_from(*value).unwrap_or(0))
        };
        let samples = self.samples.map(value).transpose()?;
        let cpu = self.cpu.map(value).transpose()?;
        let cpu = cpu.map(|cpu| (cpu as f64 * self.cpu_scale) as u64);
        let cpu_ns = match (cpu, samples) {
            (Some(cpu), _) => cpu,
            (None, Some(samples)) => (samples as f64 * self.period_ns) as u64,
            (None, None) => 0,
        };
        let counted = match self.period_ns > 0.0 {
            true => (cpu_ns as f64 / self.period_ns).round() as u64,
            false => 0,
        };
        Ok(Weight {
            samples: samples.unwrap_or(counted.max(u64::from(cpu_ns > 0))),
            cpu_ns,
        })
    }
}

/// A file but for its samples.
pub(super) struct PprofFile<'a> {
    message: &'a Dictionary,
    texts: Vec<Cow<'a, str>>,
    mappings: HashMap<u64, &'a Mapping, RandomState>,
    functions: HashMap<u64, &'a Function, RandomState>,
    /// Which of a sample's values is what.
    pub values: Values,
}

impl<'a> PprofFile<'a> {
    /// `message` is what was decoded of `raw`.
    pub fn new(raw: &'a [u8], message: &'a Dictionary) -> Result<Self, PprofError> {
        let mut texts = Vec::new();
        each_field(raw, |tag, field| {
            if tag == STRINGS_TAG {
                // Some writers put text there that is not UTF-8.
                texts.push(String::from_utf8_lossy(field));
            }
            Ok(())
        })?;
        Ok(Self {
            values: values(message, &texts)?,
            texts,
            mappings: message.mappings.iter().map(|one| (one.id, one)).collect(),
            functions: message.functions.iter().map(|one| (one.id, one)).collect(),
            message,
        })
    }

    /// A profile without samples.
    pub fn empty_profile(&self) -> Result<Profile, PprofError> {
        let message = self.message;
        let window = Window {
            start_ns: message.time_ns,
            duration_ns: u64::try_from(message.duration_ns).unwrap_or(0),
        };
        let frequency_hz = match self.values.period_ns > 0.0 {
            // Periods are whole nanoseconds.
            true => (SECOND_NS as f64 / self.values.period_ns * 1e3).round() / 1e3,
            false => 0.0,
        };
        let mut profile = Profile::new(window, frequency_hz);
        for comment in &message.comments {
            let lost = self.text(*comment)?.strip_prefix(LOST);
            let lost = lost.and_then(|lost| lost.parse().ok()).unwrap_or(0);
            profile.lost = profile.lost.saturating_add(lost);
        }
        Ok(profile)
    }

    /// Whether it says that it was made of a file with addresses without names.
    pub fn says_addresses(&self) -> bool {
        let mut comments = self.message.comments.iter();
        comments.any(|comment| self.text(*comment).is_ok_and(|text| text == HAS_ADDRESSES))
    }

    /// Its locations.
    pub fn locations(&self) -> impl Iterator<Item = &'a Location> {
        self.message.locations.iter()
    }

    /// The labels of a sample.
    pub fn labels(
        &self,
        of_sample: &[&[u8]],
        work: &mut Work,
    ) -> Result<Vec<(&str, Cow<'_, str>)>, PprofError> {
        let mut labels = Vec::with_capacity(of_sample.len().min(LABELS_MAX));
        for bytes in of_sample.iter().take(LABELS_MAX) {
            let label = Label::decode(*bytes)?;
            let (name, value) = (self.text(label.key)?, self.value(&label)?);
            work.text(name.len() + value.len())?;
            labels.push((name, value));
        }
        Ok(labels)
    }

    /// Tells the functions of a location, from the outermost on.
    pub fn frames<'s>(
        &'s self,
        location: &Location,
        work: &mut Work,
        mut each: impl FnMut(&Frame<'s>),
    ) -> Result<(), PprofError> {
        let mapping = match location.mapping {
            0 => None,
            id => Some(
                *self
                    .mappings
                    .get(&id)
                    .ok_or(missing("mapping", id as i64))?,
            ),
        };
        let (binary, build_id) = match mapping {
            Some(mapping) => (self.text(mapping.file)?, self.text(mapping.build_id)?),
            None => ("", ""),
        };
        let of_binary = binary.len() + build_id.len();
        for (depth, line) in location.lines.iter().enumerate().rev() {
            let function = self.functions.get(&line.function);
            let function = function.ok_or(missing("function", line.function as i64))?;
            let name = match self.text(function.name)? {
                "" => self.text(function.system_name)?,
                name => name,
            };
            let file = self.text(function.file)?;
            work.text(of_binary + name.len() + file.len())?;
            let frame = Frame {
                file: file.into(),
                line: u32::try_from(line.line).unwrap_or(0),
                build_id: build_id.into(),
                is_inlined: depth + 1 < location.lines.len(),
                ..Frame::function(name, binary)
            };
            each(&frame);
        }
        if location.lines.is_empty() {
            work.text(of_binary)?;
            let start = mapping.map_or(0, |mapping| mapping.start);
            let offset = mapping.map_or(0, |mapping| mapping.file_offset);
            let frame = Frame {
                binary: binary.into(),
                build_id: build_id.into(),
                address: location.address.wrapping_sub(start).wrapping_add(offset),
                ..Frame::default()
            };
            each(&frame);
        }
        Ok(())
    }

    fn text(&self, number: i64) -> Result<&str, PprofError> {
        text(&self.texts, number)
    }

    /// What a label says, as text.
    fn value(&self, label: &Label) -> Result<Cow<'_, str>, PprofError> {
        match (label.text, label.unit) {
            (0, 0) => Ok(Cow::Owned(label.number.to_string())),
            (0, unit) => Ok(Cow::Owned(format!("{} {}", label.number, self.text(unit)?))),
            (text, _) => Ok(Cow::Borrowed(self.text(text)?)),
        }
    }
}

/// A sample as it is in the file.
#[derive(Debug, Default)]
pub(super) struct RawSample<'a> {
    /// The ids of its locations, from the innermost on, where they stand in one place.
    locations: &'a [u8],
    /// The same where they stand in several.
    scattered: Vec<u8>,
    pub values: Vec<i64>,
    /// The messages of its labels.
    pub labels: Vec<&'a [u8]>,
    /// What follows the beginning of the first label.
    from_labels: &'a [u8],
    /// Whether that is labels and nothing else.
    ends_in_labels: bool,
}

/// Tells the samples of a file.
pub(super) fn each_sample<'a>(
    raw: &'a [u8],
    mut each: impl FnMut(&RawSample<'a>) -> Result<(), PprofError>,
) -> Result<(), PprofError> {
    let mut sample = RawSample::default();
    each_field(raw, |tag, field| {
        if tag == SAMPLES_TAG {
            sample.read(field)?;
            each(&sample)?;
        }
        Ok(())
    })
}

/// Tells the fields of a message that are bytes, with their tags.
fn each_field<'a>(
    mut raw: &'a [u8],
    mut each: impl FnMut(u32, &'a [u8]) -> Result<(), PprofError>,
) -> Result<(), PprofError> {
    while !raw.is_empty() {
        let (tag, kind) = decode_key(&mut raw)?;
        if let Some(field) = value(&mut raw, kind)? {
            each(tag, field)?;
        }
    }
    Ok(())
}

/// Goes behind the value of a field; gives it where it is bytes.
fn value<'a>(rest: &mut &'a [u8], kind: WireType) -> Result<Option<&'a [u8]>, PprofError> {
    let bytes = match kind {
        WireType::Varint => {
            decode_varint(rest)?;
            return Ok(None);
        }
        WireType::LengthDelimited => usize::try_from(decode_varint(rest)?).unwrap_or(usize::MAX),
        WireType::SixtyFourBit => 8,
        WireType::ThirtyTwoBit => 4,
        WireType::StartGroup | WireType::EndGroup => return Err(PprofError::Group),
    };
    let (field, behind) = rest.split_at_checked(bytes).ok_or(PprofError::Cut)?;
    *rest = behind;
    Ok(Some(field))
}

impl<'a> RawSample<'a> {
    /// The ids of its locations, from the innermost on, as they are encoded.
    pub fn locations(&self) -> &[u8] {
        match self.scattered.is_empty() {
            true => self.locations,
            false => &self.scattered,
        }
    }

    /// Bytes that are the same for samples with the same labels in the same order; not the other way round in files of others.
    pub fn label_bytes(&self) -> Cow<'a, [u8]> {
        if self.ends_in_labels {
            return Cow::Borrowed(self.from_labels);
        }
        let mut bytes = Vec::new();
        for label in &self.labels {
            bytes.push(u8::try_from(label.len()).unwrap_or(u8::MAX));
            bytes.extend_from_slice(label);
        }
        Cow::Owned(bytes)
    }

    fn read(&mut self, mut bytes: &'a [u8]) -> Result<(), PprofError> {
        self.locations = &[];
        self.scattered.clear();
        self.values.clear();
        self.labels.clear();
        self.from_labels = &[];
        self.ends_in_labels = true;
        while !bytes.is_empty() {
            let whole = bytes;
            let (tag, kind) = decode_key(&mut bytes)?;
            self.ends_in_labels &= tag == 3 || self.labels.is_empty();
            match (tag, kind) {
                (1, WireType::Varint) => {
                    let id = bytes;
                    decode_varint(&mut bytes)?;
                    self.add_locations(&id[..id.len() - bytes.len()]);
                }
                (2, WireType::Varint) => self.values.push(decode_varint(&mut bytes)? as i64),
                _ => {
                    let field = value(&mut bytes, kind)?.unwrap_or_default();
                    if tag == 3 && self.labels.is_empty() {
                        self.from_labels = whole;
                    }
                    self.field(tag, field)?;
                }
            }
        }
        Ok(())
    }

    fn field(&mut self, tag: u32, mut field: &'a [u8]) -> Result<(), PprofError> {
        match tag {
            1 => self.add_locations(field),
            2 => {
                while field.has_remaining() {
                    self.values.push(decode_varint(&mut field)? as i64);
                }
            }
            3 => self.labels.push(field),
            _ => {}
        }
        Ok(())
    }

    fn add_locations(&mut self, bytes: &'a [u8]) {
        if self.locations.is_empty() {
            self.locations = bytes;
            return;
        }
        if self.scattered.is_empty() {
            self.scattered.extend_from_slice(self.locations);
        }
        self.scattered.extend_from_slice(bytes);
    }
}

pub(super) fn missing(what: &'static str, number: i64) -> PprofError {
    PprofError::Missing { what, number }
}

fn text<'a>(texts: &'a [Cow<'_, str>], number: i64) -> Result<&'a str, PprofError> {
    let text = usize::try_from(number)
        .ok()
        .and_then(|index| texts.get(index));
    match text {
        Some(text) => Ok(text),
        // A message without any text has no empty one either.
        None if number == 0 => Ok(""),
        None => Err(missing("text", number)),
    }
}

/// Nanoseconds of a unit of time.
fn nanoseconds(unit: &str) -> Option<f64> {
    match unit {
        "nanoseconds" | "ns" => Some(1.0),
        "microseconds" | "us" => Some(1e3),
        "milliseconds" | "ms" => Some(1e6),
        "seconds" | "s" => Some(1e9),
        _ => None,
    }
}

/// Finds the values that count.
fn values(message: &Dictionary, texts: &[Cow<'_, str>]) -> Result<Values, PprofError> {
    let mut values = Values {
        samples: None,
        cpu: None,
        events: None,
        total_samples: None,
        total_cpu: None,
        cpu_scale: 1.0,
        period_ns: 0.0,
        others: None,
    };
    let names = |value: &ValueType| -> Result<(String, String), PprofError> {
        let kind = text(texts, value.kind)?.to_owned();
        Ok((kind, text(texts, value.unit)?.to_owned()))
    };
    let mut known = Vec::new();
    for (index, value) in message.sample_types.iter().enumerate() {
        let (kind, unit) = names(value)?;
        if let (true, Some(scale)) = (kind == CPU.0, nanoseconds(&unit)) {
            values.cpu = values.cpu.or(Some(index));
            values.cpu_scale = scale;
        } else if (&*kind, &*unit) == SAMPLES {
            values.samples = values.samples.or(Some(index));
        } else if (&*kind, &*unit) == EVENTS {
            values.events = values.events.or(Some(index));
        } else if (&*kind, &*unit) == TOTAL_SAMPLES {
            values.total_samples = Some(index);
        } else if (&*kind, &*unit) == TOTAL_CPU {
            values.total_cpu = Some(index);
        }
        known.push(format!("`{kind}` in `{unit}`"));
    }
    if let Some(period) = &message.period_type {
        let (kind, unit) = names(period)?;
        if let (true, Some(scale)) = (kind == CPU.0, nanoseconds(&unit)) {
            values.period_ns = message.period.max(0) as f64 * scale;
        }
    }
    let is_known = values.cpu.is_some() || (values.samples.is_some() && values.period_ns > 0.0);
    values.others = match is_known {
        true => None,
        false if known.is_empty() => Some("nothing".to_owned()),
        false => Some(known.join(" and ")),
    };
    Ok(values)
}
