//! Tests of OTLP messages.

use proptest::prelude::*;
use prost::Message;

use super::message::{
    AnyValue, Attribute, Dictionary, Function, KeyValue, Line, Location, Mapping, ProfilesData,
    Resource, ResourceProfiles, Sample, ScopeProfiles, Stack, Value, ValueType,
};
use super::*;
use crate::profile::{Frame, FrameKind, Profile, Weight, Window};

fn frame() -> impl Strategy<Value = Frame<'static>> {
    let names = proptest::sample::select(vec!["", "main", "a;b", "work"]);
    let binaries = proptest::sample::select(vec![
        "", "/bin/a", "[kernel]", "[jvm]", "[python]", "[node]", "[vdso]", "[jit]",
    ]);
    (names, binaries, 0..3_u32, 0..3_u64).prop_map(|(name, binary, line, address)| Frame {
        line: if name.is_empty() { 0 } else { line },
        file: if line > 0 && !name.is_empty() {
            "a.c"
        } else {
            ""
        }
        .into(),
        build_id: if binary == "/bin/a" { "0af1" } else { "" }.into(),
        // Addresses belong to instructions.
        address: if name.is_empty() { address } else { 0 },
        ..Frame::function(name, binary)
    })
}

/// Profiles whose processor times fit their frequency, or not.
fn profiles() -> impl Strategy<Value = Profile> {
    let stack = proptest::collection::vec((frame(), any::<bool>()), 0..6);
    let value = || proptest::sample::select(vec!["", "x", "y", "12", "012"]);
    let sample = (stack, value(), value(), 1..100_u64);
    let samples = proptest::collection::vec(sample, 0..20);
    (samples, any::<bool>()).prop_map(|(samples, is_plain)| {
        let window = Window {
            start_ns: 1_700_000_000_000_000_000,
            duration_ns: 60_000_000_000,
        };
        let mut profile = Profile::new(window, 20.0);
        profile.lost = 3;
        for (frames, host, other, samples) in samples {
            let mut stack: Vec<Frame<'_>> = Vec::new();
            for (mut frame, is_inlined) in frames {
                // One and the same instruction has one binary.
                if let Some(outer) = stack.last()
                    && is_inlined
                    && !frame.function.is_empty()
                    && !outer.function.is_empty()
                {
                    frame.is_inlined = true;
                    frame.binary = outer.binary.clone();
                    frame.build_id = outer.build_id.clone();
                }
                stack.push(frame);
            }
            let stack = profile.stack(stack);
            let labels = profile.labels(&[
                ("host", host),
                ("pid", other),
                ("thread", host),
                ("operator", other),
                ("own", other),
            ]);
            let cpu_ns = samples * 50_000_000 + u64::from(!is_plain) * 5_000;
            profile.add(stack, labels, Weight { samples, cpu_ns });
        }
        profile
    })
}

/// What a profile has, in whatever order it came.
fn text(profile: &Profile) -> Vec<String> {
    let samples = profile.samples().map(|(stack, labels, weight)| {
        let frames = profile
            .frame_ids(stack)
            .map(|frame| profile.frame_of(frame));
        let labels: Vec<_> = profile.labels_of(labels).collect();
        format!("{:?} {labels:?} {weight:?}", frames.collect::<Vec<_>>())
    });
    let (window, hz, lost) = (profile.window, profile.frequency_hz, profile.lost);
    let head = format!("{window:?} {hz} {lost}");
    let mut text: Vec<_> = samples.chain([head]).collect();
    text.sort();
    text
}

proptest! {
    #[test]
    fn what_is_written_is_read(profile in profiles()) {
        let received = read(&write(&profile, "1")).unwrap();
        prop_assert_eq!(text(&received.profile), text(&profile));
        prop_assert_eq!(received.rejected, 0);
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = read(&bytes);
        let _ = read_response(&bytes);
    }

    #[test]
    fn damaged_messages_are_read_or_refused(profile in profiles(), at in any::<usize>(), byte in any::<u8>()) {
        let mut bytes = write(&profile, "1");
        let length = bytes.len();
        bytes[at % length] = byte;
        let _ = read(&bytes);
    }
}

fn any_text(text: &str) -> Option<AnyValue> {
    let value = Some(Value::Text(text.to_owned()));
    Some(AnyValue { value })
}

/// What an eBPF profiler sends: samples with times, frames of the kernel, of files without names, and of a virtual machine.
fn foreign() -> ProfilesData {
    let strings = [
        "",
        "samples",
        "count",
        "cpu",
        "nanoseconds",
        "vmlinux",
        "/usr/bin/a",
        "work",
        "profile.frame.type",
        "thread.name",
        "process.executable.build_id.gnu",
        "off_cpu",
        "milliseconds",
    ];
    let attribute = |key, value| Attribute {
        key,
        value: any_text(value),
    };
    let line = |function| Line { function, line: 7 };
    let location = |mapping, address, lines, attribute| Location {
        mapping,
        address,
        lines,
        attributes: vec![attribute],
    };
    let dictionary = Dictionary {
        mappings: vec![
            Mapping::default(),
            Mapping {
                file: 5,
                ..Mapping::default()
            },
            Mapping {
                start: 0x5500_0000_1000,
                file_offset: 0x100,
                file: 6,
                attributes: vec![4],
                ..Mapping::default()
            },
        ],
        locations: vec![
            Location::default(),
            location(1, 0xff, vec![line(1)], 1),
            location(2, 0x5500_0000_1010, Vec::new(), 0),
            location(0, 0, vec![line(1), line(1)], 2),
        ],
        functions: vec![
            Function::default(),
            Function {
                name: 7,
                ..Function::default()
            },
        ],
        strings: strings.map(str::to_owned).to_vec(),
        attributes: vec![
            Attribute::default(),
            attribute(8, "kernel"),
            attribute(8, "jvm"),
            attribute(9, "t"),
            attribute(10, "0af1"),
        ],
        stacks: vec![
            Stack::default(),
            Stack {
                locations: vec![1, 2, 3],
            },
        ],
        ..Dictionary::default()
    };
    let value = |kind, unit| Some(ValueType { kind, unit });
    let sample = |values: &[i64], times_ns: &[u64]| Sample {
        stack: 1,
        attributes: vec![3],
        values: values.to_vec(),
        times_ns: times_ns.to_vec(),
        ..Sample::default()
    };
    let profile = |sample_type, samples| message::Profile {
        sample_type,
        samples,
        time_ns: 5,
        duration_ns: 10,
        period_type: value(3, 4),
        period: 50_000_000,
        ..message::Profile::default()
    };
    let profiles = vec![
        profile(
            value(1, 2),
            vec![sample(&[], &[6, 7, 8]), sample(&[2], &[])],
        ),
        profile(value(11, 4), vec![sample(&[1, 2], &[6, 7])]),
    ];
    let resource = Resource {
        attributes: vec![KeyValue {
            key: "container.id".to_owned(),
            value: any_text("c1"),
            key_number: 0,
        }],
    };
    ProfilesData {
        resources: vec![ResourceProfiles {
            resource: Some(resource),
            scopes: vec![ScopeProfiles {
                scope: None,
                profiles,
            }],
        }],
        dictionary: Some(dictionary),
    }
}

#[test]
fn messages_of_others_are_read() {
    let mut message = foreign();
    let received = read(&message.encode_to_vec()).unwrap();
    assert_eq!(received.rejected, 1, "the one about waiting");
    let profile = received.profile;
    assert_eq!(profile.frequency_hz, 20.0);
    assert_eq!(
        (profile.window.start_ns, profile.window.duration_ns),
        (5, 10)
    );
    let (stack, labels, weight) = profile.samples().next().unwrap();
    assert_eq!(profile.len(), 1);
    assert_eq!((weight.samples, weight.cpu_ns), (5, 250_000_000));
    let labels: Vec<_> = profile.labels_of(labels).collect();
    assert_eq!(labels, [("container", "c1"), ("thread", "t")]);
    let frames = profile.frame_ids(stack).map(|id| {
        let frame = profile.frame_of(id);
        let (binary, inlined) = (&frame.binary, frame.is_inlined);
        format!("{} {binary} {} {inlined}", frame.name(), frame.build_id)
    });
    assert_eq!(
        frames.collect::<Vec<_>>(),
        [
            "work [kernel]  false",
            "a+0x110 /usr/bin/a 0af1 false",
            "work [jvm]  true",
            "work [jvm]  false",
        ]
    );

    // Processor time instead of samples, in milliseconds.
    let first = &mut message.resources[0].scopes[0].profiles[0];
    first.sample_type = Some(ValueType { kind: 3, unit: 12 });
    first.samples = vec![Sample {
        stack: 1,
        values: vec![50, 100],
        ..Sample::default()
    }];
    let total = read(&message.encode_to_vec()).unwrap().profile.total();
    assert_eq!((total.samples, total.cpu_ns), (3, 150_000_000));

    // Samples without a period say nothing about processor time.
    let first = &mut message.resources[0].scopes[0].profiles[0];
    first.sample_type = Some(ValueType { kind: 1, unit: 2 });
    first.period = 0;
    let received = read(&message.encode_to_vec()).unwrap();
    assert_eq!((received.rejected, received.profile.len()), (2, 0));
}

#[test]
fn frames_of_the_ebpf_profiler_have_kinds() {
    use crate::profile::FrameKind::{Interpreted, Kernel, Native};

    let hash = ("process.executable.build_id.htlhash", "ff00");
    let gnu = ("process.executable.build_id.gnu", "0af1");
    type Case<'a> = (
        &'a str,
        &'a str,
        &'a [(&'a str, &'a str)],
        &'a str,
        (&'a str, &'a str, FrameKind),
    );
    let cases: [Case<'_>; 9] = [
        (
            "native",
            "a",
            &[hash, gnu],
            "",
            ("a+0x1010", "a 0af1", Native),
        ),
        (
            "native",
            "a",
            &[hash],
            "",
            ("a+0x1010", "a htlhash:ff00", Native),
        ),
        ("go", "a", &[hash, gnu], "f", ("f", "a 0af1", Native)),
        ("rust", "", &[], "f", ("f", " ", Native)),
        (
            "kernel",
            "vmlinux",
            &[hash],
            "f",
            ("f", "[kernel] ", Kernel),
        ),
        ("v8js", "", &[hash], "f", ("f", "[node] ", Interpreted)),
        ("jvm", "", &[hash], "f", ("f", "[jvm] ", Interpreted)),
        ("luajit", "", &[], "f", ("f", "[luajit] ", Interpreted)),
        ("abort-marker", "", &[], "", ("[broken stack]", " ", Native)),
    ];
    for (kind, file, ids, function, (name, binary, expected)) in cases {
        let profile = read(&one_frame(kind, file, ids, function)).unwrap().profile;
        let (_, frame) = profile.frames().last().unwrap();
        assert_eq!(frame.name(), name, "{kind}");
        assert_eq!(format!("{} {}", frame.binary, frame.build_id), binary);
        assert_eq!(frame.kind(), expected, "{kind}");
        // And the same again from what is written.
        let again = read(&write(&profile, "1")).unwrap().profile;
        assert_eq!(again.frames().last().unwrap().1, frame);
    }
}

/// A message with a stack of one frame, as the eBPF profiler writes it: the mapping and the address are those of the file.
fn one_frame(kind: &str, file: &str, ids: &[(&str, &str)], function: &str) -> Vec<u8> {
    let mut message = foreign();
    let dictionary = message.dictionary.as_mut().unwrap();
    let mut text = |text: &str| {
        dictionary.strings.push(text.to_owned());
        dictionary.strings.len() as i32 - 1
    };
    let (file, name) = (text(file), text(function));
    let mut attributes = vec![(8, kind)];
    attributes.extend(ids.iter().map(|(key, value)| (text(key), *value)));
    dictionary.attributes.truncate(4);
    for (key, value) in attributes {
        let value = any_text(value);
        dictionary.attributes.push(Attribute { key, value });
    }
    dictionary.mappings[1] = Mapping {
        start: 0x1000,
        limit: 0x2000,
        file_offset: 0x800,
        file,
        attributes: (0..ids.len() as i32).map(|id| id + 5).collect(),
    };
    dictionary.functions[1].name = name;
    let function = Line {
        function: 1,
        line: 0,
    };
    dictionary.locations.truncate(1);
    dictionary.locations.push(Location {
        mapping: 1,
        address: 0x1010,
        lines: (!dictionary.strings[name as usize].is_empty())
            .then_some(function)
            .into_iter()
            .collect(),
        attributes: vec![4],
    });
    dictionary.stacks[1].locations = vec![1];
    message.encode_to_vec()
}

#[test]
fn profiles_without_samples_are_not_rejected() {
    let mut message = foreign();
    for profile in &mut message.resources[0].scopes[0].profiles {
        if profile.sample_type == Some(ValueType { kind: 11, unit: 4 }) {
            profile.samples.clear();
        }
    }
    let before = read(&foreign().encode_to_vec()).unwrap();
    let after = read(&message.encode_to_vec()).unwrap();
    assert_eq!((before.rejected, after.rejected), (1, 0));
}

#[test]
fn what_is_missing_is_named() {
    type Damage = fn(&mut ProfilesData);
    fn dictionary(message: &mut ProfilesData) -> &mut Dictionary {
        message.dictionary.as_mut().unwrap()
    }
    fn profile(message: &mut ProfilesData) -> &mut message::Profile {
        &mut message.resources[0].scopes[0].profiles[0]
    }
    let damages: [(&str, i32, Damage); 9] = [
        ("stack", 2, |m| profile(m).samples[0].stack = 2),
        ("stack", -1, |m| profile(m).samples[0].stack = -1),
        ("attribute", 9, |m| {
            profile(m).samples[0].attributes = vec![9];
        }),
        ("text", 99, |m| {
            profile(m).sample_type = Some(ValueType { kind: 99, unit: 0 });
        }),
        ("location", 4, |m| {
            dictionary(m).stacks[1].locations = vec![4];
        }),
        ("mapping", 3, |m| dictionary(m).locations[1].mapping = 3),
        ("function", 2, |m| {
            dictionary(m).locations[1].lines[0].function = 2;
        }),
        ("text", 13, |m| dictionary(m).functions[1].name = 13),
        ("text", 14, |m| dictionary(m).attributes[1].key = 14),
    ];
    for (what, number, damage) in damages {
        let mut message = foreign();
        damage(&mut message);
        let error = read(&message.encode_to_vec()).unwrap_err().to_string();
        let expected = format!("it is damaged: {what} number {number} is not in its dictionary");
        assert_eq!(error, expected);
    }
}

#[test]
fn small_messages_cannot_stand_for_endless_stacks() {
    let mut message = foreign();
    let dictionary = message.dictionary.as_mut().unwrap();
    dictionary.locations[3].lines = vec![Line::default(); 10_000];
    dictionary.stacks[1].locations = vec![3; 10_000];
    let bytes = message.encode_to_vec();
    assert!(bytes.len() < 100_000);
    assert!(matches!(read(&bytes), Err(OtlpError::Excess(_))));
}

#[test]
fn long_texts_are_cut() {
    let mut message = foreign();
    let resource = message.resources[0].resource.as_mut().unwrap();
    resource.attributes[0].value = any_text(&"ä".repeat(LABEL_BYTES_MAX));
    message.dictionary.as_mut().unwrap().strings[7] = "x".repeat(NAME_BYTES_MAX + 1);
    let profile = read(&message.encode_to_vec()).unwrap().profile;
    let names = profile.frames().map(|(_, frame)| frame.function.len());
    assert_eq!(names.max(), Some(NAME_BYTES_MAX));
    let (_, labels, _) = profile.samples().next().unwrap();
    let value = profile.label_of(labels, "container").unwrap();
    assert_eq!(value, "ä".repeat(LABEL_BYTES_MAX / 2));
}

#[test]
fn tables_begin_with_nothing() {
    let dictionary = writing::message(&Profile::default(), "1")
        .dictionary
        .unwrap();
    let lengths = [
        dictionary.mappings.len(),
        dictionary.locations.len(),
        dictionary.functions.len(),
        dictionary.links.len(),
        dictionary.attributes.len(),
        dictionary.stacks.len(),
    ];
    assert_eq!(lengths, [1; 6]);
    assert_eq!(dictionary.strings[0], "");
    assert_eq!(dictionary.attributes[0], Attribute::default());
    assert_eq!(dictionary.locations[0], Location::default());
    assert_eq!(dictionary.mappings[0], Mapping::default());
}

#[test]
fn answers_say_what_was_not_taken() {
    assert!(response(&Answer::default()).is_empty());
    let answer = Answer {
        rejected: 2,
        message: "no processor time".to_owned(),
    };
    assert_eq!(read_response(&response(&answer)).unwrap(), answer);
}
