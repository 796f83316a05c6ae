//! Tests of files for the Firefox Profiler.

use std::io::Read;

use flate2::read::GzDecoder;
use serde_json::Value;

use super::*;
use crate::profile::{SECOND_NS, Window};

/// Labels, frames from the outermost on with their binaries, samples.
type Line = (
    &'static [(&'static str, &'static str)],
    &'static [(&'static str, &'static str)],
    u64,
);

fn profile(lines: &[Line]) -> Profile {
    let window = Window {
        start_ns: 1_700_000_000_000_000_000,
        duration_ns: 10 * SECOND_NS,
    };
    let mut profile = Profile::new(window, 20.0);
    for (labels, frames, samples) in lines {
        let frames = frames.iter().map(|(name, binary)| Frame {
            line: u32::from(*name == "work") * 7,
            file: if *name == "work" { "w.rs" } else { "" }.into(),
            address: if name.is_empty() { 0x1f } else { 0 },
            build_id: if *binary == "/bin/a" { "0af1" } else { "" }.into(),
            ..Frame::function(*name, *binary)
        });
        let stack = profile.stack(frames);
        let labels = profile.labels(labels);
        let weight = Weight {
            samples: *samples,
            cpu_ns: samples * SECOND_NS / 20,
        };
        profile.add(stack, labels, weight);
    }
    profile
}

fn json(profile: &Profile, filter: &Filter) -> Value {
    let file = write(profile, filter, "a test");
    let mut text = String::new();
    let mut decoder = GzDecoder::new(&*file);
    decoder.read_to_string(&mut text).unwrap();
    serde_json::from_str(&text).unwrap()
}

fn number(value: &Value) -> usize {
    value.as_u64().unwrap() as usize
}

/// The samples of a thread as the profiler would show them.
fn samples(thread: &Value) -> Vec<String> {
    let text = |number_of: &Value| thread["stringArray"][number(number_of)].as_str().unwrap();
    let table = &thread["samples"];
    let lines = (0..number(&table["length"])).map(|index| {
        let mut names = Vec::new();
        let mut stack = &table["stack"][index];
        while let Some(at) = stack.as_u64().map(|at| at as usize) {
            let frame = number(&thread["stackTable"]["frame"][at]);
            let frames = &thread["frameTable"];
            let function = number(&frames["func"][frame]);
            let functions = &thread["funcTable"];
            let category = CATEGORIES.len() - 1;
            assert!(number(&frames["category"][frame]) <= category);
            let line = match &frames["line"][frame] {
                Value::Null => String::new(),
                line => format!("@{}:{line}", text(&functions["fileName"][function])),
            };
            let resource = match functions["resource"][function].as_i64().unwrap() {
                -1 => "",
                resource => text(&thread["resourceTable"]["name"][resource as usize]),
            };
            names.push(format!(
                "{}|{resource}{line}",
                text(&functions["name"][function])
            ));
            stack = &thread["stackTable"]["prefix"][at];
            // Callers come first.
            assert!(stack.as_u64().is_none_or(|caller| (caller as usize) < at));
        }
        names.reverse();
        format!("{} {}", names.join(";"), table["weight"][index])
    });
    lines.collect()
}

/// Every table has columns of its length.
fn check_columns(value: &Value) {
    match value {
        Value::Object(object) => {
            if let Some(length) = object.get("length") {
                for (name, column) in object {
                    if let Value::Array(column) = column {
                        assert_eq!(column.len(), number(length), "{name}");
                    }
                }
            }
            object.values().for_each(check_columns);
        }
        Value::Array(array) => array.iter().for_each(check_columns),
        _ => (),
    }
}

#[test]
fn threads_have_samples() {
    let one: &[_] = &[("process", "a"), ("pid", "7"), ("thread", "a")];
    let other: &[_] = &[
        ("process", "a"),
        ("pid", "7"),
        ("thread", "worker"),
        ("x", "1"),
    ];
    let same: &[_] = &[
        ("process", "a"),
        ("pid", "7"),
        ("thread", "worker"),
        ("x", "2"),
    ];
    let profile = profile(&[
        (other, &[("main", "/bin/a"), ("work", "/bin/a")], 3),
        (same, &[("main", "/bin/a"), ("work", "/bin/a")], 1),
        (other, &[("main", "/bin/a"), ("read", "[kernel]")], 2),
        (
            one,
            &[("main", "/bin/a"), ("", "/lib/libc.so"), ("f", "[jvm]")],
            1,
        ),
        (one, &[], 1),
    ]);
    let json = json(&profile, &Filter::default());
    check_columns(&json);
    assert_eq!(json["meta"]["preprocessedProfileVersion"], 55);
    assert_eq!(json["meta"]["interval"], 50.0);
    assert_eq!(json["meta"]["startTime"], 1_700_000_000_000.0);
    assert_eq!(json["meta"]["product"], "a test");
    assert_eq!(json["meta"]["categories"][0]["color"], "grey");
    let threads = json["threads"].as_array().unwrap();
    let head = |thread: &Value| {
        let keys = ["processName", "pid", "name", "isMainThread", "tid"];
        keys.map(|key| thread[key].to_string()).join(" ")
    };
    assert_eq!(head(&threads[0]), r#""a" "7" "a" true 1"#);
    assert_eq!(head(&threads[1]), r#""a" "7" "worker" false 2"#);
    assert_eq!(
        samples(&threads[0]),
        ["main|a;libc.so+0x1f|libc.so;f|[jvm] 50.0", " 50.0"]
    );
    assert_eq!(
        samples(&threads[1]),
        ["main|a;work|a@w.rs:7 200.0", "main|a;read|[kernel] 100.0"]
    );
    assert_eq!(
        threads[0]["frameTable"]["category"],
        serde_json::json!([2, 2, 3])
    );
    assert_eq!(
        threads[0]["frameTable"]["address"],
        serde_json::json!([-1, 31, -1])
    );
    assert_eq!(
        threads[1]["frameTable"]["category"],
        serde_json::json!([2, 2, 1])
    );
    assert_eq!(threads[1]["samples"]["weightType"], "tracing-ms");
    assert_eq!(
        threads[1]["samples"]["timeDeltas"],
        serde_json::json!([0.0, 5000.0])
    );
    assert_eq!(json["libs"][0]["path"], "/bin/a");
    assert_eq!(json["libs"][0]["codeId"], "0af1");
    assert_eq!(json["libs"].as_array().unwrap().len(), 4);
}

#[test]
fn processes_of_several_hosts_are_apart() {
    let stack: &[_] = &[("main", "")];
    let profile = profile(&[
        (&[("host", "h1"), ("service", "s"), ("pid", "1")], stack, 1),
        (&[("host", "h2"), ("service", "s"), ("pid", "1")], stack, 1),
        (&[], stack, 1),
    ]);
    let filter = Filter::default();
    let json = json(&profile, &filter);
    let threads = json["threads"].as_array().unwrap();
    let keys = |thread: &Value| [thread["processName"].clone(), thread["pid"].clone()];
    let names: Vec<_> = threads.iter().map(keys).collect();
    assert_eq!(
        names,
        [
            ["[unknown]: [unknown]", "process 0"],
            ["h1: s", "1"],
            ["h2: s", "1.3"]
        ]
    );
}

#[test]
fn without_processor_time_samples_count() {
    let mut profile = Profile::default();
    let stack = profile.stack([Frame::function("main", "")]);
    let labels = profile.labels(&[("process", "a")]);
    profile.add(
        stack,
        labels,
        Weight {
            samples: 3,
            cpu_ns: 0,
        },
    );
    let all = json(&profile, &Filter::default());
    assert_eq!(all["threads"][0]["samples"]["weightType"], "samples");
    assert_eq!(samples(&all["threads"][0]), ["main| 3.0"]);
    let filter = Filter {
        function: Some("other".to_owned()),
        ..Filter::default()
    };
    assert_eq!(json(&profile, &filter)["threads"], serde_json::json!([]));
}
