//! Reads pprof files, of whatever program.
//!
//! # Limits
//! Decompressed, a file has up to [`FILE_BYTES_MAX`], and up to [`RATIO_MAX`] times its own bytes where that is more than
//! [`SMALL_BYTES_MAX`]: files of profilers shrink to a third up to a thirtieth. The first [`LABELS_MAX`] labels of a sample count. What
//! stacks and names add up to is limited by [`Excess`].

use std::borrow::Cow;
use std::collections::HashMap;
use std::io::{self, Read};

use flate2::read::MultiGzDecoder;
use prost::Message;

use super::message::{Label, Location, Mapping, ValueType};
use super::{CPU, EVENTS, FILE_BYTES_MAX, LOST, SAMPLES, message};
use crate::profile::{Frame, FrameId, LabelsId, Profile, SECOND_NS, StackId, Weight, Window};
use crate::work::{Excess, Work};

/// How many times its own bytes a file may have when it is decompressed.
const RATIO_MAX: u64 = 100;
/// So many bytes a file may have in any case when it is decompressed.
const SMALL_BYTES_MAX: u64 = 16 << 20;
/// The most labels of a sample; further ones are left out.
const LABELS_MAX: usize = 64;

/// Why bytes are no profile of processor time.
#[derive(Debug, thiserror::Error)]
pub enum PprofError {
    /// They cannot be decompressed.
    #[error("it cannot be decompressed: {0}")]
    Compression(#[from] io::Error),
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
    Message(#[from] prost::DecodeError),
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

/// Reads a pprof file, compressed or not.
///
/// # Errors
/// It is none, it is damaged, or it is not about processor time.
pub fn read(bytes: &[u8]) -> Result<Profile, PprofError> {
    let raw = match bytes.starts_with(&[0x1f, 0x8b]) {
        true => Cow::Owned(decompressed(bytes)?),
        false => Cow::Borrowed(bytes),
    };
    if raw.len() as u64 > FILE_BYTES_MAX {
        return Err(PprofError::TooLarge(FILE_BYTES_MAX));
    }
    let work = Work::of(raw.len());
    let message = message::Profile::decode(&*raw)?;
    drop(raw);
    MessageReader::new(&message)?.read(work)
}

fn decompressed(bytes: &[u8]) -> Result<Vec<u8>, PprofError> {
    let by_ratio = (bytes.len() as u64).saturating_mul(RATIO_MAX);
    let limit = by_ratio.clamp(SMALL_BYTES_MAX, FILE_BYTES_MAX);
    let mut raw = Vec::new();
    MultiGzDecoder::new(bytes)
        .take(limit + 1)
        .read_to_end(&mut raw)?;
    match raw.len() as u64 > limit {
        true => Err(PprofError::TooLarge(limit)),
        false => Ok(raw),
    }
}

/// Which value is what.
#[derive(Debug, Clone, Copy)]
struct Values {
    samples: Option<usize>,
    cpu: Option<usize>,
    events: Option<usize>,
    /// Nanoseconds of processor time for each unit of the value.
    cpu_scale: f64,
    /// Nanoseconds of processor time for each sample.
    period_ns: f64,
}

impl Values {
    /// How many log events a sample without a stack counts.
    fn events(self, values: &[i64]) -> u64 {
        let value = self.events.and_then(|index| values.get(index));
        value.map_or(0, |value| u64::try_from(*value).unwrap_or(0))
    }

    fn weight(self, values: &[i64]) -> Result<Weight, PprofError> {
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

struct MessageReader<'a> {
    message: &'a message::Profile,
    texts: Vec<Cow<'a, str>>,
    mappings: HashMap<u64, &'a Mapping>,
    functions: HashMap<u64, &'a message::Function>,
    values: Values,
}

impl<'a> MessageReader<'a> {
    fn new(message: &'a message::Profile) -> Result<Self, PprofError> {
        let texts: Vec<_> = message
            .strings
            .iter()
            .map(|bytes| String::from_utf8_lossy(bytes))
            .collect();
        Ok(Self {
            values: values(message, &texts)?,
            texts,
            mappings: message.mappings.iter().map(|one| (one.id, one)).collect(),
            functions: message.functions.iter().map(|one| (one.id, one)).collect(),
            message,
        })
    }

    fn read(&self, mut work: Work) -> Result<Profile, PprofError> {
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
        // From the outermost function on.
        let mut frames: HashMap<u64, Vec<FrameId>> = HashMap::new();
        for location in &message.locations {
            let of_location = self.frames(location, &mut profile, &mut work)?;
            frames.insert(location.id, of_location);
        }
        for sample in &message.samples {
            let mut stack = StackId::EMPTY;
            for location in sample.locations.iter().rev() {
                let known = frames.get(location);
                for frame in known.ok_or(missing("location", *location as i64))? {
                    work.frame(profile.stack_count())?;
                    stack = profile.call(stack, *frame);
                }
            }
            let labels = self.labels(&sample.labels, &mut profile, &mut work)?;
            let events = self.values.events(&sample.values);
            let weight = self.values.weight(&sample.values)?;
            if events > 0 {
                profile.count_events(labels, events);
            }
            if events == 0 || weight != Weight::default() {
                profile.add(stack, labels, weight);
            }
        }
        Ok(profile)
    }

    fn labels(
        &self,
        of_sample: &[Label],
        profile: &mut Profile,
        work: &mut Work,
    ) -> Result<LabelsId, PprofError> {
        let mut labels = Vec::with_capacity(of_sample.len().min(LABELS_MAX));
        for label in of_sample.iter().take(LABELS_MAX) {
            let (name, value) = (self.text(label.key)?, self.value(label)?);
            work.text(name.len() + value.len())?;
            labels.push((name, value));
        }
        let labels: Vec<_> = labels
            .iter()
            .map(|(name, value)| (*name, &**value))
            .collect();
        Ok(profile.labels(&labels))
    }

    fn frames(
        &self,
        location: &Location,
        profile: &mut Profile,
        work: &mut Work,
    ) -> Result<Vec<FrameId>, PprofError> {
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
        let mut frames = Vec::with_capacity(location.lines.len().max(1));
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
            frames.push(profile.frame(&frame));
        }
        if frames.is_empty() {
            work.text(of_binary)?;
            let start = mapping.map_or(0, |mapping| mapping.start);
            let offset = mapping.map_or(0, |mapping| mapping.file_offset);
            let frame = Frame {
                binary: binary.into(),
                build_id: build_id.into(),
                address: location.address.wrapping_sub(start).wrapping_add(offset),
                ..Frame::default()
            };
            frames.push(profile.frame(&frame));
        }
        Ok(frames)
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

fn missing(what: &'static str, number: i64) -> PprofError {
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
fn values(message: &message::Profile, texts: &[Cow<'_, str>]) -> Result<Values, PprofError> {
    let mut values = Values {
        samples: None,
        cpu: None,
        events: None,
        cpu_scale: 1.0,
        period_ns: 0.0,
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
    // An empty message is a profile without samples.
    match is_known || message.samples.is_empty() {
        true => Ok(values),
        false if known.is_empty() => Err(PprofError::NoCpu("nothing".to_owned())),
        false => Err(PprofError::NoCpu(known.join(" and "))),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;
    use crate::pprof::message::{Function, Line, Sample};

    fn compressed(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    /// A message of processor time whose samples name one location with so many lines.
    fn repeated(lines: usize, samples: usize) -> message::Profile {
        let strings = ["", "samples", "count", "cpu", "nanoseconds", "work"];
        let kind = |kind, unit| ValueType { kind, unit };
        message::Profile {
            sample_types: vec![kind(1, 2), kind(3, 4)],
            strings: strings
                .iter()
                .map(|text| text.as_bytes().to_vec())
                .collect(),
            functions: vec![Function {
                id: 1,
                name: 5,
                ..Function::default()
            }],
            locations: vec![Location {
                id: 1,
                lines: vec![
                    Line {
                        function: 1,
                        line: 7
                    };
                    lines
                ],
                ..Location::default()
            }],
            samples: vec![
                Sample {
                    locations: vec![1],
                    values: vec![1, 10],
                    labels: Vec::new(),
                };
                samples
            ],
            ..message::Profile::default()
        }
    }

    #[test]
    fn small_files_cannot_stand_for_endless_stacks() {
        let profile = read(&repeated(20, 1000).encode_to_vec()).unwrap();
        assert_eq!((profile.total().samples, profile.stack_count()), (1000, 20));
        for (lines, samples) in [(10_000, 10_000), (100_000, 100)] {
            let error = read(&repeated(lines, samples).encode_to_vec()).unwrap_err();
            assert!(
                matches!(error, PprofError::Excess(Excess::Frames)),
                "{error}"
            );
        }
        // A few locations many times.
        let mut message = repeated(100, 1);
        message.samples[0].locations = vec![1; 100_000];
        let error = read(&message.encode_to_vec()).unwrap_err();
        assert!(
            matches!(error, PprofError::Excess(Excess::Frames | Excess::Nodes)),
            "{error}"
        );
    }

    #[test]
    fn long_names_cannot_be_referred_to_without_end() {
        let mut message = repeated(1, 10_000);
        message.strings.push(vec![b'x'; 1 << 20]);
        let label = Label {
            key: 5,
            text: 6,
            ..Label::default()
        };
        for sample in &mut message.samples {
            sample.labels = vec![label];
        }
        let error = read(&message.encode_to_vec()).unwrap_err();
        assert!(matches!(error, PprofError::Excess(Excess::Text)), "{error}");
    }

    #[test]
    fn further_labels_are_left_out() {
        let mut message = repeated(1, 1);
        for number in 0..10_000_i64 {
            message.strings.push(number.to_string().into_bytes());
            message.samples[0].labels.push(Label {
                key: 6 + number,
                text: 5,
                ..Label::default()
            });
        }
        let profile = read(&message.encode_to_vec()).unwrap();
        let (_, labels, _) = profile.samples().next().unwrap();
        assert_eq!(profile.labels_of(labels).count(), LABELS_MAX);
    }

    #[test]
    fn what_decompresses_without_end_is_refused() {
        let bomb = compressed(&vec![0; 64 << 20]);
        assert!(bomb.len() < 100_000);
        let error = read(&bomb).unwrap_err().to_string();
        assert_eq!(
            error,
            "it has more than 16777216 bytes when decompressed, which is the most for a file of its size"
        );
        // Members that follow count as well.
        let many = compressed(&vec![0; 1 << 20]).repeat(100);
        assert!(matches!(read(&many), Err(PprofError::TooLarge(_))));
        let good = compressed(&repeated(1, 1000).encode_to_vec());
        assert_eq!(read(&good).unwrap().total().samples, 1000);
    }

    #[test]
    fn lost_samples_do_not_overflow() {
        let mut message = repeated(1, 1);
        message
            .strings
            .push(format!("{LOST}{}", u64::MAX).into_bytes());
        message.comments = vec![6, 6];
        assert_eq!(read(&message.encode_to_vec()).unwrap().lost, u64::MAX);
    }
}
