//! Profiles as files that every pprof tool reads: gzip around one protobuf message.
//!
//! | what | where |
//! | --- | --- |
//! | how often, processor time | the sample types `samples`/`count` and `cpu`/`nanoseconds` |
//! | log events that passed | where there are any, the sample type `events`/`count`, of samples without a stack |
//! | frequency | the period, in `cpu`/`nanoseconds` |
//! | labels | labels of samples, as text |
//! | binary and build id | mappings; those of interpreters and of the kernel have names in brackets |
//! | inlined functions | lines of one location |
//! | lost samples | a comment, `lost samples: 12` |
//!
//! Samples stand in the order of [`Profile::in_order`](crate::Profile::in_order), so that each has much in common with the one before.
//!
//! A file of others needs one of the two sample types; from the other one and the period comes the missing one.
//!
//! # Limits
//! A file has up to [`FILE_BYTES_MAX`] bytes once it is decompressed.

mod file;
mod flat;
mod message;
mod reader;
mod scan;
mod stacks;
mod writer;

pub use file::PprofError;
pub use flat::write_table;
pub use reader::read;
pub use scan::{Scanned, Scanner, scan};
pub use writer::write;

/// The most bytes that a file may have once it is decompressed.
pub const FILE_BYTES_MAX: u64 = 2 << 30;

const SAMPLES: (&str, &str) = ("samples", "count");
const EVENTS: (&str, &str) = ("events", "count");
const CPU: (&str, &str) = ("cpu", "nanoseconds");
/// What tables have beside them ([`flat`]).
const TOTAL_SAMPLES: (&str, &str) = ("total_samples", "count");
const TOTAL_CPU: (&str, &str) = ("total_cpu", "nanoseconds");

/// What a comment begins with that says how many samples were lost.
const LOST: &str = "lost samples: ";

/// The comment of a table that was made of a file with addresses without names.
const HAS_ADDRESSES: &str = "addresses without names";

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::profile::{Frame, Profile, Weight, Window};

    fn frame() -> impl Strategy<Value = Frame<'static>> {
        let names = proptest::sample::select(vec!["", "main", "a;b", "work"]);
        let binaries = proptest::sample::select(vec!["", "/bin/a", "[kernel]"]);
        (names, binaries, 0..3_u32, 0..3_u64, any::<bool>()).prop_map(
            |(name, binary, line, address, is_inlined)| Frame {
                line: if name.is_empty() { 0 } else { line },
                file: if line > 0 && !name.is_empty() {
                    "a.c".into()
                } else {
                    "".into()
                },
                build_id: if binary == "/bin/a" {
                    "0af1".into()
                } else {
                    "".into()
                },
                // Addresses belong to instructions, and inlined functions to the next outer one.
                address: if name.is_empty() && !is_inlined {
                    address
                } else {
                    0
                },
                is_inlined: is_inlined && !name.is_empty(),
                ..Frame::function(name, binary)
            },
        )
    }

    fn profiles() -> impl Strategy<Value = Profile> {
        let stack = proptest::collection::vec(frame(), 0..6);
        let value = proptest::sample::select(vec!["", "x", "y"]);
        let sample = (stack, value, 1..100_u64, 0..3_u64);
        proptest::collection::vec(sample, 0..20).prop_map(|samples| {
            let window = Window {
                start_ns: 1_700_000_000_000_000_000,
                duration_ns: 60_000_000_000,
            };
            let mut profile = Profile::new(window, 20.0);
            profile.lost = 3;
            for (mut frames, value, samples, events) in samples {
                // One and the same location has one binary, and the outermost function is inlined nowhere.
                if let Some(first) = frames.first_mut() {
                    first.is_inlined = false;
                }
                for index in 1..frames.len() {
                    if frames[index].is_inlined {
                        let (binary, build_id) = (
                            frames[index - 1].binary.clone(),
                            frames[index - 1].build_id.clone(),
                        );
                        frames[index].binary = binary;
                        frames[index].build_id = build_id;
                        if frames[index - 1].function.is_empty() {
                            frames[index].is_inlined = false;
                        }
                    }
                }
                let stack = profile.stack(frames);
                let labels = profile.labels(&[("host", value)]);
                let weight = Weight {
                    samples,
                    cpu_ns: samples * 50_000_000,
                };
                profile.add(stack, labels, weight);
                if events > 0 {
                    profile.count_events(labels, events);
                }
            }
            profile
        })
    }

    fn text(profile: &Profile) -> Vec<String> {
        let samples = profile.samples().map(|(stack, labels, weight)| {
            let frames = profile
                .frame_ids(stack)
                .map(|frame| profile.frame_of(frame));
            let labels: Vec<_> = profile.labels_of(labels).collect();
            format!("{:?} {labels:?} {weight:?}", frames.collect::<Vec<_>>())
        });
        let mut samples: Vec<String> = samples.collect();
        samples.sort();
        let head = format!(
            "{:?} {} {}",
            profile.window, profile.frequency_hz, profile.lost
        );
        let events = profile.events().map(|(labels, events)| {
            let labels: Vec<_> = profile.labels_of(labels).collect();
            format!("{labels:?} {events}")
        });
        [head].into_iter().chain(samples).chain(events).collect()
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(profile in profiles()) {
            let read = read(&write(&profile)).unwrap();
            prop_assert_eq!(text(&read), text(&profile));
        }

        #[test]
        fn a_scan_gives_the_table_of_the_profile(
            profile in profiles(),
            function in proptest::option::of(proptest::sample::select(vec!["main", "WORK", "a"])),
            host in proptest::option::of(proptest::sample::select(vec!["x", "*", ""])),
            is_by_label in any::<bool>(),
        ) {
            use crate::filter::Filter;
            use crate::top::{Group, table};
            let filter = Filter {
                labels: host.map(|host| ("host".to_owned(), host.to_owned())).into_iter().collect(),
                function: function.map(str::to_owned),
            };
            let group = match is_by_label {
                true => Group::Label("host".to_owned()),
                false => Group::Function,
            };
            let bytes = write(&profile);
            let scanned = scan(&bytes, &filter, &group).unwrap();
            let expected = table(&read(&bytes).unwrap(), &filter, &group);
            prop_assert_eq!(scanned.table.all, expected.all);
            let sorted = |mut rows: Vec<crate::top::Row>| {
                rows.sort_by(|one, other| (&one.name, &one.binary).cmp(&(&other.name, &other.binary)));
                rows
            };
            prop_assert_eq!(sorted(scanned.table.rows), sorted(expected.rows));
            prop_assert_eq!((scanned.window, scanned.lost), (profile.window, profile.lost));
        }

        #[test]
        fn a_table_gives_what_a_scan_gives(
            profile in profiles(),
            host in proptest::option::of(proptest::sample::select(vec!["x", "*", ""])),
            is_by_label in any::<bool>(),
        ) {
            use crate::filter::Filter;
            use crate::top::Group;
            let filter = Filter {
                labels: host.map(|host| ("host".to_owned(), host.to_owned())).into_iter().collect(),
                function: None,
            };
            let group = match is_by_label {
                true => Group::Label("host".to_owned()),
                false => Group::Function,
            };
            let ordered = |mut scanned: Scanned| {
                scanned.table.sort();
                scanned
            };
            let expected = scan(&write(&profile), &filter, &group).unwrap();
            let table = write_table(&profile, |name| name == "host");
            let scanned = Scanner::default().scan_table(&table, &filter, &group).unwrap();
            prop_assert_eq!(ordered(scanned), ordered(expected));
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = read(&bytes);
            let _ = scan(&bytes, &Default::default(), &crate::top::Group::Function);
        }

        #[test]
        fn damaged_files_are_read_or_refused(profile in profiles(), at in any::<usize>(), byte in any::<u8>()) {
            use prost::Message;
            let mut bytes = writer::message(&profile).encode_to_vec();
            let length = bytes.len();
            if length > 0 {
                bytes[at % length] = byte;
            }
            let _ = read(&bytes);
            let _ = Scanner::default().scan_table(&bytes, &Default::default(), &crate::top::Group::Function);
        }
    }
}
