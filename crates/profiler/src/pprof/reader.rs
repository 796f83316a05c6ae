//! Makes profiles of pprof files, of whatever program.

use std::borrow::Cow;
use std::collections::HashMap;

use foldhash::fast::RandomState;
use prost::Message;

use super::file::{PprofError, PprofFile, each_sample, missing, raw};
use super::message::Dictionary;
use super::stacks::Stacks;
use crate::profile::{FrameId, Profile, StackId, Weight};
use crate::work::Work;

/// Reads a pprof file, compressed or not.
///
/// # Errors
/// It is none, it is damaged, or it is not about processor time.
pub fn read(bytes: &[u8]) -> Result<Profile, PprofError> {
    let mut buffer = Vec::new();
    let raw = raw(bytes, &mut buffer)?;
    let mut work = Work::of(raw.len());
    let dictionary = Dictionary::decode(raw)?;
    let file = PprofFile::new(raw, &dictionary)?;
    let mut profile = file.empty_profile()?;
    // From the outermost function on.
    let mut frames: HashMap<u64, Vec<FrameId>, RandomState> = HashMap::default();
    for location in file.locations() {
        let mut of_location = Vec::with_capacity(location.lines.len().max(1));
        file.frames(location, &mut work, |frame| {
            of_location.push(profile.frame(frame));
        })?;
        frames.insert(location.id, of_location);
    }
    let mut stacks = Stacks::default();
    // The last stack and those that it was called from, the outermost first.
    let mut callers = vec![StackId::EMPTY];
    each_sample(raw, |sample| {
        let kept = stacks.go_to(sample.locations())?;
        callers.truncate(kept + 1);
        for location in stacks.fresh() {
            let mut stack = *callers.last().unwrap_or(&StackId::EMPTY);
            let known = frames.get(&location);
            for frame in known.ok_or(missing("location", location as i64))? {
                work.frame(profile.stack_count())?;
                stack = profile.call(stack, *frame);
            }
            callers.push(stack);
        }
        let stack = *callers.last().unwrap_or(&StackId::EMPTY);
        let labels = file.labels(&sample.labels, &mut work)?;
        let labels: Vec<_> = labels
            .iter()
            .map(|(name, value): &(&str, Cow<'_, str>)| (*name, &**value))
            .collect();
        let labels = profile.labels(&labels);
        let events = file.values.events(&sample.values);
        let weight = file.values.weight(&sample.values)?;
        if events > 0 {
            profile.count_events(labels, events);
        }
        if events == 0 || weight != Weight::default() {
            profile.add(stack, labels, weight);
        }
        Ok(())
    })?;
    Ok(profile)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::super::file::LABELS_MAX;
    use super::super::message::{Label, Location, ValueType};
    use super::super::{LOST, message};
    use super::*;
    use crate::pprof::message::{Function, Line, Sample};
    use crate::work::Excess;

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
        for (lines, samples) in [(10_000, 10_000), (100_000, 1000)] {
            let mut message = repeated(lines, samples);
            // The same stack again and again makes no work.
            assert!(read(&message.encode_to_vec()).is_ok());
            let mut other = message.locations[0].clone();
            other.id = 2;
            message.locations.push(other);
            let every_other = message.samples.iter_mut().step_by(2);
            every_other.for_each(|sample| sample.locations = vec![2]);
            let error = read(&message.encode_to_vec()).unwrap_err();
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
