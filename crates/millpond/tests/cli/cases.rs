//! `millpond test`: pipelines under test, in process.

use crate::program::{Ended, Folder, command, ended, millpond};

/// The page that documents test files, whose examples are run here.
const PAGE: &str = include_str!("../../src/test.md");

/// The blocks of a page in this language, in their order.
fn blocks<'p>(page: &'p str, language: &str) -> Vec<&'p str> {
    let mut blocks = Vec::new();
    let mut parts = page.split("```");
    while let (Some(_), Some(block)) = (parts.next(), parts.next()) {
        if let Some(text) = block.strip_prefix(&format!("{language}\n")) {
            blocks.push(text);
        }
    }
    blocks
}

fn test_in(folder: &Folder, args: &[&str]) -> Ended {
    let output = command(&["test"])
        .args(args)
        .current_dir(folder.path(""))
        .output();
    ended(output.expect("the executable runs"))
}

/// What a run printed, without the time that it took.
fn timeless(text: &str) -> String {
    let lines = text.lines().map(|line| match line.rsplit_once(" in ") {
        Some((before, time)) if time.ends_with(" s") => format!("{before} in 0.1 s\n"),
        _ => format!("{line}\n"),
    });
    lines.collect()
}

#[test]
fn the_documented_example_does_what_its_page_says() {
    let folder = Folder::new();
    let yaml = blocks(PAGE, "yaml");
    folder.write("web.yaml", yaml[0]);
    folder.write("web.test.yaml", yaml[1]);
    let shown = blocks(PAGE, "");
    let passed = test_in(&folder, &["web.test.yaml"]).expect(0);
    assert_eq!(
        format!("$ millpond test web.test.yaml\n{}", timeless(&passed.out)),
        shown[0]
    );
    assert_eq!(passed.err, "");
    let changed = yaml[1]
        .replace("dropped: drop\n", "dropped: where\n")
        .replace("{ status: 500,", "{ status: \"500\",");
    folder.write("web.test.yaml", changed);
    let failed = test_in(&folder, &["web.test.yaml"]).expect(1);
    assert_eq!(timeless(&failed.out), shown[1]);
    // Neither outputs nor dead letters wrote anything.
    let mut names: Vec<_> = std::fs::read_dir(folder.path(""))
        .expect("a folder")
        .map(|entry| entry.expect("an entry").file_name())
        .collect();
    names.sort();
    assert_eq!(names, ["web.test.yaml", "web.yaml"]);
}

#[test]
fn events_are_read_as_the_input_reads_them() {
    let folder = Folder::new();
    folder.write("rows.csv", "a,b\n1,x\n2,y\n");
    folder.write("lines.log.gz", gzip(b"start one\n  more\nstart two\n"));
    let config = r#"
pipelines:
  lines:
    input: { file: { paths: [/var/log/app.log*, /other], multiline: { pattern: "^ " } } }
    output: discard
  rows: file /data/rows.csv | discard
  json: { input: { file: { paths: [/var/log/eve.json], add_fields: true } }, output: discard }
  network: tcp :5170 | pipeline last
  last: { input: pipeline, processors: ["set id = @metadata.id"], output: discard }
"#;
    folder.write("all.yaml", config);
    let tests = r#"
config: all.yaml
tests:
  - name: records of several lines
    pipeline: lines
    events: ["start one\n  more", start two]
    expect:
      - { message: "start one\n  more", log.file.path: /var/log/app.log, log.offset: 0, host.name: localhost }
      - { message: start two, "@timestamp": "2026-01-01T00:00:00.000Z" }
  - name: a compressed file
    pipeline: lines
    file: lines.log.gz
    path: /var/log/app.log.1.gz
    expect:
      - { message: "start one\n  more", log.file.path: /var/log/app.log.1.gz }
      - { message: start two }
  - name: rows
    pipeline: rows
    file: rows.csv
    exact: true
    expect: [{ a: "1", b: x }, { a: "2", b: y }]
  - name: rows in the test
    pipeline: rows
    events: ["a,b", "1,x"]
    exact: true
    expect: [{ a: "1", b: x }]
  - name: JSON by the name of the input's file
    pipeline: json
    events: ['{"n":1}']
    expect: [{ n: 1, log.file.path: /var/log/eve.json }]
  - name: documents for an input of text
    pipeline: lines
    events: [{ n: 1, x: { y: [1, 2.5, true, null] }, t: "5" }]
    exact: true
    expect: [{ n: 1, x.y: [1, 2.5, true, null], t: "5" }]
  - name: documents from the network
    pipeline: network
    events: ['{"n":1}', '{"n":2}']
    exact: true
    expect: [{ n: 1 }, { n: 2 }]
  - name: a pipeline that others feed
    pipeline: last
    path: a
    events: [{ n: 1 }]
    expect: [{ n: 1, id: 4b31f4e200a6ac07e7c0cf0b9d6291f8-0-8 }]
"#;
    folder.write("all.test.yaml", tests);
    let ran = test_in(&folder, &["."]).expect(0);
    assert!(ran.out.starts_with("8 tests, 8 passed in "), "{}", ran.out);
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    use std::io::Write;
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).expect("memory takes everything");
    encoder.finish().expect("memory takes everything")
}

#[test]
fn policies_conditions_and_routes_are_those_of_a_run() {
    let folder = Folder::new();
    let tests = r#"
config: |-
  stdin codec=json | json body if='has(body)' on_failure=drop name=body | where n > 0 | head 3 | set now = now() | stdout
time: 2026-02-03T04:05:06Z
tests:
  - name: every fate
    events:
      - { n: 1, body: '{"x":1}' }
      - { n: 2, body: 'broken' }
      - { n: 0 }
      - { n: 3 }
      - { n: 4 }
      - { n: 5 }
    expect:
      - { x: 1, now: "2026-02-03T04:05:06.000Z" }
      - dropped: body
      - dropped: where
      - { n: 3 }
      - { n: 4 }
      - dropped: head
    count: 3
    dropped: 3
    dead_letters: 0
  - name: nothing comes out
    events: [{ n: 0 }]
    expect: []
  - name: an event that a processor cannot handle
    events: [{ n: 1, body: 5 }]
    expect: [dropped]
"#;
    folder.write("a.test.yaml", tests);
    let ran = test_in(&folder, &["a.test.yaml"]).expect(0);
    assert!(ran.out.starts_with("3 tests, 3 passed in "), "{}", ran.out);
    let routes = r#"
pipelines:
  app:
    input: stdin codec=json
    outputs:
      - file: { path: errors, name: errors, if: level == "ERROR" }
      - file: { path: rest, name: rest, otherwise: true, processors: [drop: { if: n == 2, name: second }, keep n] }
"#;
    folder.write("app.yaml", routes);
    let tests = r#"
config: app.yaml
output: rest
tests:
  - name: the rest
    events: [{ level: ERROR, n: 1 }, { level: INFO, n: 2 }, { level: INFO, n: 3 }]
    exact: true
    expect: [dropped: if, dropped: rest/second, { n: 3 }]
  - name: both
    output: errors
    events: [{ level: ERROR, n: 1 }, { level: INFO, n: 2 }]
    expect: [{ n: 1 }]
    dropped: 1
"#;
    folder.write("app.test.yaml", tests);
    test_in(&folder, &["app.test.yaml"]).expect(0);
}

#[test]
fn what_processors_derive_comes_out() {
    let folder = Folder::new();
    let tests = r#"
config: stdin codec=json | split l | split l | summarize count(), sum(l) by=[k] | stdout
tests:
  - name: parts and sums
    events:
      - { k: 1, l: [[1, 2], [3]] }
      - { k: 2, l: 5 }
    expect:
      - dropped: split
      - dropped: summarize
      - { k: 2, count: 1, l_sum: 5 }
      - { k: 1, count: 3, l_sum: 6 }
"#;
    folder.write("a.test.yaml", tests);
    let ran = test_in(&folder, &["a.test.yaml"]).expect(0);
    assert!(ran.out.starts_with("1 test, 1 passed in "), "{}", ran.out);
    let parts = r#"
config: stdin codec=json | split l | split l | stdout
tests:
  - name: parts of parts
    events:
      - { l: [[1, 2], [3]] }
    expect:
      - { l: 1 }
      - { l: 2 }
      - { l: 3 }
"#;
    folder.write("b.test.yaml", parts);
    let ran = test_in(&folder, &["b.test.yaml"]).expect(0);
    assert!(ran.out.starts_with("1 test, 1 passed in "), "{}", ran.out);
}

#[test]
fn failures_go_to_the_report_as_xml() {
    let folder = Folder::new();
    let tests = "config: stdin | stdout\ntests:\n  - name: a <b> & \"c\"\n    events: [\"x\\e[1m\"]\n    expect: [{ message: '<&>' }]\n  - { name: other, events: [y], count: 1 }\n";
    folder.write("a.test.yaml", tests);
    std::fs::create_dir_all(folder.path("below/.hidden")).expect("a folder");
    folder.write(
        "below/b.test.yaml",
        "config: stdin | stdout\ntests: [{ name: third, events: [], count: 0 }]",
    );
    folder.write("below/.hidden/c.test.yaml", "nonsense: true");
    folder.write("below/d.yaml", "nonsense: true");
    let ran = test_in(&folder, &[".", "--junit", "results.xml"]).expect(1);
    assert!(
        ran.out
            .contains("    - message: \"<&>\"\n    + message: \"x\\u001b[1m\"\n"),
        "{}",
        ran.out
    );
    let xml = folder.read("results.xml");
    for part in [
        "<testsuites name=\"millpond test\" tests=\"3\" failures=\"1\" ",
        "<testsuite name=\"./a.test.yaml\" tests=\"2\" failures=\"1\" ",
        "<testcase name=\"a &lt;b&gt; &amp; &quot;c&quot;\" classname=\"./a.test.yaml\" file=\"./a.test.yaml\" line=\"3\" ",
        "<failure message=\"event 1; - message: &quot;&lt;&amp;&gt;&quot;; + message: &quot;x\\u001b[1m&quot;\"",
        "<testsuite name=\"./below/b.test.yaml\" tests=\"1\" failures=\"0\" ",
    ] {
        assert!(xml.contains(part), "{part}\n{xml}");
    }
    let ran = test_in(&folder, &[".", "--filter", "other"]).expect(0);
    assert!(ran.out.starts_with("1 test, 1 passed in "), "{}", ran.out);
}

#[test]
fn what_cannot_be_tested_is_refused_before_anything_runs() {
    let folder = Folder::new();
    folder.write(
        "two.yaml",
        "pipelines: { web: stdin | stdout, app: stdin | file out }",
    );
    let test = "tests: [{ name: a, events: [x], count: 1 }]";
    let one = "config: stdin | stdout";
    for (text, line, part) in [
        (format!("{test}\n"), 1, "a test file needs `config`"),
        (one.to_owned(), 1, "a test file needs `tests`, a list"),
        (format!("{one}\ntest: []"), 2, "did you mean `tests`?"),
        (
            "config: twoo.yaml\ntests: []".to_owned(),
            1,
            "cannot read ./twoo.yaml: No such file",
        ),
        (
            format!("config: two.yaml\n{test}"),
            1,
            "has several pipelines: `pipeline` says which one is tested",
        ),
        (
            format!("config: two.yaml\npipeline: wep\n{test}"),
            2,
            "did you mean `web`?",
        ),
        (
            format!("config: two.yaml\npipeline: web\noutput: file\n{test}"),
            3,
            "pipeline `web` has no output `file`",
        ),
        (
            format!("config: stdin | grokk x | stdout\n{test}"),
            1,
            "did you mean `grok`?",
        ),
        (
            format!("{one}\ntime: noon\n{test}"),
            2,
            "`time` is a time such as",
        ),
        (
            format!("{one}\ntests:\n- name: a\n  event: [x]"),
            4,
            "did you mean `events`?",
        ),
        (
            format!("{one}\ntests:\n- name: a\n  events: [x]"),
            3,
            "`a` expects nothing: it needs `expect`",
        ),
        (
            format!("{one}\ntests:\n- name: a\n  count: 1"),
            3,
            "`a` needs `events`, or a `file`",
        ),
        (
            format!("{one}\ntests:\n- events: [x]\n  count: 1"),
            3,
            "a test needs a `name`",
        ),
        (
            format!("{one}\ntests:\n- name: a\n  file: none.log\n  count: 1"),
            4,
            "cannot read ./none.log: No such file",
        ),
        (
            format!("{one}\ntests:\n- name: a\n  file: .\n  count: 1"),
            4,
            "is not a file",
        ),
        (
            format!("{one}\ntests:\n- name: a\n  events: [x, {{ y: 1 }}]\n  count: 1"),
            4,
            "`events` are all texts, or all maps",
        ),
        (
            format!("{one}\ntests:\n- name: a\n  events: [x]\n  expect: [droped]"),
            5,
            "did you mean `dropped`?",
        ),
        (
            format!("{one}\ntests:\n- name: a\n  events: [x]\n  expect: {{ message: x }}"),
            5,
            "`expect` is a list",
        ),
        (
            format!("{one}\ntests:\n- name: a\n  events: [x]\n  count: many"),
            5,
            "count",
        ),
        (
            format!("{one}\ntests:\n- name: a\n  events: [x]\n  count: 1\n  ignore: [a b]"),
            6,
            "is not a field name",
        ),
    ] {
        folder.write("a.test.yaml", &text);
        let ran = test_in(&folder, &["./a.test.yaml"]).expect(2);
        assert_eq!(ran.out, "", "{text}");
        assert!(ran.err.contains(part), "{text}\n{}", ran.err);
        assert!(
            ran.err.contains(&format!("a.test.yaml:{line}:")),
            "{text}\n{}",
            ran.err
        );
    }
    for (args, part) in [
        (
            vec!["none.test.yaml"],
            "cannot read none.test.yaml: No such file",
        ),
        (vec!["."], "did you mean"),
    ] {
        folder.write("a.test.yaml", format!("{one}\ntest: []"));
        let ran = test_in(&folder, &args).expect(2);
        assert!(ran.err.contains(part), "{args:?}\n{}", ran.err);
    }
    folder.write("a.test.yaml", format!("{one}\n{test}"));
    let ran = test_in(&folder, &[".", "--filter", "zzz"]).expect(2);
    assert_eq!(ran.err, "error: no test has `zzz` in its name\n");
    let ran = test_in(&folder, &[".", "--junit", "none/x.xml"]).expect(2);
    assert!(ran.err.contains("cannot write none/x.xml"), "{}", ran.err);
    let empty = Folder::new();
    let ran = millpond(&["test", &empty.path("")]).expect(2);
    assert!(
        ran.err.contains("contains no test file (*.test.yaml)"),
        "{}",
        ran.err
    );
}

#[test]
fn events_that_would_become_dead_letters_are_not_called_dropped() {
    let folder = Folder::new();
    let config = "data_dir: state
pipelines:
  a:
    input: { file: { paths: [/a.log] } }
    processors: [{ grok: { pattern: '%{INT:n}', on_failure: dead_letter } }]
    output: discard
";
    folder.write("a.yaml", config);
    let tests = "config: a.yaml
tests:
  - { name: dead, events: [x, y], dead_letters: 3 }
";
    folder.write("a.test.yaml", tests);
    let ended = test_in(&folder, &["a.test.yaml"]).expect(1);
    let warning = "2 of 2 events failed and would become dead letters; the first: ";
    assert!(ended.out.contains(warning), "{}", ended.out);
}
