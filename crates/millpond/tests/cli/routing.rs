//! Several inputs, outputs and pipelines.

use crate::program::{Folder, millpond};

#[test]
fn every_output_takes_the_events_for_which_its_condition_holds() {
    let folder = Folder::new();
    let one = folder.write("one.log", "a 1\nb 2\n");
    let two = folder.write("two.log", "c 3\n");
    let yaml = format!(
        r#"
pipelines:
  split:
    inputs:
      - file: {{ paths: ["{one}"], follow: false }}
      - file: {{ paths: ["{two}"], follow: false, name: second }}
    processors:
      - grok: {{ pattern: "%{{WORD:w}} %{{INT:n:int}}" }}
    outputs:
      - file: {{ path: "{small}", name: small, if: "n < 3", codec: template, template: "%{{w}}" }}
      - file: {{ path: "{all}", name: all, codec: template, template: "%{{w}}" }}
  other:
    input:
      file: {{ paths: ["{two}"], follow: false }}
    outputs:
      - file: {{ path: "{other}", codec: text }}
"#,
        small = folder.path("small.txt"),
        all = folder.path("all.txt"),
        other = folder.path("other.txt"),
    );
    let path = folder.write("split.yaml", yaml);
    let ended = millpond(&["run", &path, "--metrics"]).expect(0);
    let sorted = |name: &str| {
        let mut lines: Vec<String> = folder.read(name).lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    assert_eq!(sorted("small.txt"), ["a", "b"]);
    assert_eq!(sorted("all.txt"), ["a", "b", "c"]);
    assert_eq!(sorted("other.txt"), ["c 3"]);
    for name in ["second", "small", "all", "pipeline other"] {
        assert!(ended.err.contains(name), "{}", ended.err);
    }
}

#[test]
fn an_output_takes_what_no_condition_holds_for() {
    let folder = Folder::new();
    // The example of the page.
    let page = include_str!("../../src/pipeline.md");
    let (_, section) = page
        .split_once("## Routing by condition")
        .expect("the section");
    let (_, yaml) = section.split_once("```yaml\n").expect("an example");
    let (yaml, _) = yaml.split_once("```").expect("its end");
    let yaml = folder.write(
        "p.yaml",
        yaml.replace("path: ", &format!("path: {}/", folder.path(""))),
    );
    let events = [
        r#"{"n":1,"level":"ERROR","took_ms":2000}"#,
        r#"{"n":2,"level":"INFO"}"#,
        // Cannot be evaluated, and has no level.
        r#"{"n":3,"took_ms":"x"}"#,
        r#"{"n":4,"took_ms":[]}"#,
        r#"{"n":5,"level":"INFO","took_ms":1001}"#,
    ];
    let input = folder.write("in.ndjson", events.join("\n"));
    let mut command = crate::program::command(&["run", &yaml, "--metrics"]);
    command.stdin(std::fs::File::open(input).expect("opens"));
    let ended = command.output().expect("runs");
    let err = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success(), "{err}");
    assert!(!err.contains("no output"), "{err}");
    let numbers = |name: &str| {
        let lines = folder.read(name);
        let of = |line: &str| line[5..6].to_owned();
        lines.lines().map(of).collect::<String>()
    };
    for (name, expected) in [
        ("errors", "1"),
        ("slow", "15"),
        ("rest", "234"),
        ("all", "12345"),
    ] {
        assert_eq!(
            numbers(&format!("{name}.ndjson")),
            expected,
            "{name}: {err}"
        );
    }
    for (outputs, said) in [
        (
            "[{ discard: { otherwise: true } }]",
            "no other output has an `if`",
        ),
        (
            "[{ discard: { if: a == 1, otherwise: true } }]",
            "`otherwise` and `if` cannot be combined",
        ),
    ] {
        let yaml = format!("pipelines: {{ p: {{ input: stdin, outputs: {outputs} }} }}\n");
        let refused = millpond(&["check", &folder.write("bad.yaml", yaml)]).expect(2);
        assert!(refused.err.contains(said), "{}", refused.err);
    }
}

#[test]
fn failure_policies_do_what_they_say() {
    for (policy, events, seen) in [("publish", 2, 1), ("continue", 2, 2), ("drop", 1, 1)] {
        let pipeline = format!(
            "stdin | grok '%{{INT:n}}' on_failure={policy} tag=_odd | set seen = 'yes' | stdout"
        );
        let ended = crate::program::run_on(b"1\nx\n", &pipeline).expect(0);
        let all = ended.events();
        assert_eq!(all.len(), events, "{policy}");
        assert_eq!(
            all.iter().filter(|event| event["seen"] == "yes").count(),
            seen,
            "{policy}"
        );
        assert_eq!(
            all.iter()
                .filter(|event| event["tags"][0] == "_odd")
                .count(),
            events - 1,
            "{policy}"
        );
    }
}

#[test]
fn a_processor_handles_the_events_for_which_its_condition_holds() {
    let folder = Folder::new();
    folder.write("in.log", "1\n2\n");
    let yaml = folder.write(
        "one.yaml",
        format!(
            "pipelines:\n  one:\n    input: file {} follow=false\n    processors:\n      - set: {{ values: {{ big: yes }}, if: message > 1 }}\n    output: stdout\n",
            folder.path("in.log"),
        ),
    );
    let ended = millpond(&["run", &yaml]).expect(0);
    assert_eq!(
        ended
            .events()
            .iter()
            .map(|event| event["big"] == "yes")
            .collect::<Vec<_>>(),
        [false, true]
    );
}

#[test]
fn events_that_no_output_takes_are_reported() {
    let folder = Folder::new();
    let events = "{\"n\":1}\n{\"n\":2}\n{\"n\":3}\n{\"m\":\"x\"}\n";
    let input = folder.write("in.ndjson", events);
    let yaml = |name: &str, conditions: [&str; 2]| {
        let output = |(index, condition): (usize, &str)| {
            let path = folder.path(&format!("{name}{index}.out"));
            format!("      - file: {{ path: \"{path}\", name: o{index}{condition} }}\n")
        };
        let outputs: String = conditions.into_iter().enumerate().map(output).collect();
        let text = format!(
            "pipelines:\n  one:\n    input: {{ file: {{ paths: [\"{input}\"], follow: false }} }}\n    outputs:\n{outputs}"
        );
        folder.write(&format!("{name}.yaml"), text)
    };
    let path = yaml("none", [", if: n == 1", ", if: n > 2"]);
    let ended = millpond(&["run", &path, "--metrics"]).expect(0);
    for part in [
        "2 events went to no output, because no `if` was true",
        "(no output)",
    ] {
        assert!(ended.err.contains(part), "{part} in {}", ended.err);
    }
    let row = ended.err.lines().find(|line| line.contains("in.ndjson"));
    let cells: Vec<&str> = row.expect("the file's row").split_whitespace().collect();
    // Read, acknowledged, dropped.
    assert_eq!(
        cells[cells.len() - 6..cells.len() - 3],
        ["4", "2", "2"],
        "{}",
        ended.err
    );
    let sample = millpond(&["check", &path, "--sample", &input]).expect(0);
    assert!(
        sample.err.contains("2 events went to no output"),
        "{}",
        sample.err
    );

    let path = yaml("all", [", if: n == 1", ""]);
    let ended = millpond(&["run", &path, "--metrics"]).expect(0);
    assert!(!ended.err.contains("no output"), "{}", ended.err);

    let path = yaml("fails", [", if: m + 1 > 2", ""]);
    let ended = millpond(&["run", &path]).expect(0);
    assert!(
        ended
            .err
            .contains("the condition could not be evaluated for 4 of 4 events"),
        "{}",
        ended.err
    );
}
