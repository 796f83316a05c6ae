//! Reads pprof files, of whatever program.

use std::borrow::Cow;
use std::collections::HashMap;
use std::io::{self, Read};

use flate2::read::MultiGzDecoder;
use prost::Message;

use super::message::{Label, Location, Mapping, ValueType};
use super::{CPU, EVENTS, FILE_BYTES_MAX, LOST, SAMPLES, message};
use crate::profile::{Frame, FrameId, Profile, SECOND_NS, StackId, Weight, Window};

/// Why bytes are no profile of processor time.
#[derive(Debug, thiserror::Error)]
pub enum PprofError {
    /// They cannot be decompressed.
    #[error("it cannot be decompressed: {0}")]
    Compression(#[from] io::Error),
    /// They are too many.
    #[error("it has more than {FILE_BYTES_MAX} bytes when decompressed")]
    TooLarge,
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
    let message = match bytes.starts_with(&[0x1f, 0x8b]) {
        true => {
            let mut raw = Vec::new();
            let mut decoder = MultiGzDecoder::new(bytes).take(FILE_BYTES_MAX + 1);
            decoder.read_to_end(&mut raw)?;
            if raw.len() as u64 > FILE_BYTES_MAX {
                return Err(PprofError::TooLarge);
            }
            message::Profile::decode(&*raw)?
        }
        false => message::Profile::decode(bytes)?,
    };
    MessageReader::new(&message)?.read()
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

    fn read(&self) -> Result<Profile, PprofError> {
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
            profile.lost += lost.and_then(|lost| lost.parse().ok()).unwrap_or(0);
        }
        // From the outermost function on.
        let mut frames: HashMap<u64, Vec<FrameId>> = HashMap::new();
        for location in &message.locations {
            frames.insert(location.id, self.frames(location, &mut profile)?);
        }
        for sample in &message.samples {
            let mut stack = StackId::EMPTY;
            for location in sample.locations.iter().rev() {
                let known = frames.get(location);
                for frame in known.ok_or(missing("location", *location as i64))? {
                    stack = profile.call(stack, *frame);
                }
            }
            let mut labels = Vec::with_capacity(sample.labels.len());
            for label in &sample.labels {
                labels.push((self.text(label.key)?, self.value(label)?));
            }
            let labels: Vec<_> = labels
                .iter()
                .map(|(name, value)| (*name, &**value))
                .collect();
            let labels = profile.labels(&labels);
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

    fn frames(
        &self,
        location: &Location,
        profile: &mut Profile,
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
        let mut frames = Vec::with_capacity(location.lines.len().max(1));
        for (depth, line) in location.lines.iter().enumerate().rev() {
            let function = self.functions.get(&line.function);
            let function = function.ok_or(missing("function", line.function as i64))?;
            let name = match self.text(function.name)? {
                "" => self.text(function.system_name)?,
                name => name,
            };
            let frame = Frame {
                file: self.text(function.file)?.into(),
                line: u32::try_from(line.line).unwrap_or(0),
                build_id: build_id.into(),
                is_inlined: depth + 1 < location.lines.len(),
                ..Frame::function(name, binary)
            };
            frames.push(profile.frame(&frame));
        }
        if frames.is_empty() {
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
