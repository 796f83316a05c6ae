//! Fields that no event had are reported at the end of a run, and `check --sample` shows what a pipeline makes of a file.

use std::path::Path;

use crate::program::{Ended, Folder, millpond, run_on};

const ACCESS: &[u8] =
    br#"{"response":500,"verb":"GET","http":{"status_code":200},"tags":["a"],"message":"m"}
{"response":200,"verb":"PUT","note":null}
"#;

fn on_access(stages: &str) -> Ended {
    run_on(ACCESS, &format!("stdin codec=json | {stages} | stdout")).expect(0)
}

#[test]
fn a_field_that_no_event_had_is_reported() {
    for (stages, expected) in [
        (
            "where respnse >= 500",
            "warning: processor where: no event had the field `respnse`; did you mean `response`?\n",
        ),
        (
            "where status_code == 200",
            "warning: processor where: no event had the field `status_code`; did you mean `http.status_code`?\n",
        ),
        (
            "where verb == GET",
            "warning: processor where: no event had the field `GET`; a text stands in quotes: \"GET\"\n",
        ),
        (
            "drop verbb == \"GET\"",
            "warning: processor drop: no event had the field `verbb`; did you mean `verb`?\n",
        ),
        (
            "grok '%{WORD:a}' field=nowhere",
            "warning: processor grok: no event had the field `nowhere`\nwarning: processor grok: 2 of 2 events failed and were tagged `_grokparsefailure`; the first: no pattern matches\n",
        ),
        (
            "rename respons -> a | where a == 1",
            "warning: processor rename: no event had the field `respons`; did you mean `response`?\nwarning: processor where: no event had the field `a`\n",
        ),
        (
            "keep messages",
            "warning: processor keep: no event had the field `messages`; did you mean `message`?\n",
        ),
        (
            "keep ip, verb",
            "warning: processor keep: no event had the field `ip`\n",
        ),
        (
            "keep message, VERB",
            "warning: processor keep: no event had the field `VERB`; did you mean `verb`?\n",
        ),
        (
            "sample 10% key=client_ip",
            "warning: processor sample: no event had the field `client_ip`\n",
        ),
        ("remove veb", ""),
        (
            "where has(vreb) || true",
            "warning: processor where: no event had the field `vreb`; did you mean `verb`?\n",
        ),
        (
            "remove messages",
            "warning: processor remove: no event had the field `messages`; did you mean `message`?\n",
        ),
        (
            "where has(respnse)",
            "warning: processor where: no event had the field `respnse`; did you mean `response`?\n",
        ),
    ] {
        assert_eq!(on_access(stages).err, expected, "{stages}");
    }
}

#[test]
fn fields_in_templates_that_no_event_had_are_reported() {
    let folder = Folder::new();
    let path = folder.path("%{levl}-%{level}.log");
    let event = br#"{"level":"info","message":"m"}"#;
    let hint = "no event had the field `levl`; did you mean `level`?\n";
    for (stages, component) in [
        (format!("file '{path}'"), "output file"),
        (
            "stdout codec=template template='%{levl}: %{message} %{+yyyy}'".to_owned(),
            "output stdout",
        ),
    ] {
        let ended = run_on(event, &format!("stdin codec=json | {stages}")).expect(0);
        assert_eq!(
            ended.err,
            format!("warning: {component}: {hint}"),
            "{stages}"
        );
    }
    let yaml = |outputs: &str| {
        folder.write(
            "p.yaml",
            format!("pipelines: {{ p: {{ input: {{ stdin: {{ codec: json }} }}, processors: [{{ set: {{ values: {{ x: '%{{levl}}' }} }} }}], outputs: [{outputs}] }} }}\n"),
        )
    };
    // Nothing is sent where a sample is tried, and the templates are filled in nevertheless.
    let sample = folder.write("a.json", event);
    for (outputs, field) in [
        ("{ http: { url: 'http://127.0.0.1:9/%{indx}' } }", "indx"),
        (
            "{ http: { url: 'http://127.0.0.1:9/', headers: { X-Level: '%{levle}' } } }",
            "levle",
        ),
        (
            "{ http: { url: 'http://127.0.0.1:9/', body: single, codec: template, template: '%{mesage}' } }",
            "mesage",
        ),
        (
            "{ elasticsearch: { hosts: ['http://127.0.0.1:9'], index: 'logs-%{servce}' } }",
            "servce",
        ),
        (
            "{ elasticsearch: { hosts: ['http://127.0.0.1:9'], index: logs, routing: '%{usr}' } }",
            "usr",
        ),
    ] {
        let ended = millpond(&["check", &yaml(outputs), "--sample", &sample]);
        let output = outputs
            .trim_start_matches("{ ")
            .split(':')
            .next()
            .unwrap_or_default();
        let expected = format!("output {output}: no event had the field `{field}`");
        assert!(ended.err.contains(&expected), "{outputs}: {}", ended.err);
        assert!(
            ended
                .err
                .contains("processor set: no event had the field `levl`; did you mean `level`?"),
            "{}",
            ended.err
        );
    }
    // The output's own processors come first, and rows that it does not take say nothing.
    let ended = run_on(
        event,
        "stdin codec=json | set a = 1 | stdout codec=template template='%{a}%{level}'",
    );
    assert_eq!(ended.expect(0).err, "");
}

#[test]
fn what_events_may_do_without_is_not_reported() {
    for stages in [
        // One event has it; in another one it is null.
        "where note == 1 || http.status_code > 1",
        // The configuration says that it may be absent.
        "where !has(user.email) && size(nothing ?? []) == 0 && error != null || true",
        "set a = user.name ?? verb, b = coalesce(gone, verb)",
        "remove gone, http.gone",
        // Never looked at.
        "where verb == 'nothing' && gone == 1",
        "where verb == 'nothing' | where gone == 1",
        "set a = 1 | where a == 1",
        // No event fails on a good day.
        "remove tags | keep message, verb, tags, error.message | drop '_grokparsefailure' in tags || error.message == 'm'",
    ] {
        assert_eq!(on_access(stages).err, "", "{stages}");
    }
    // No events, no fields.
    assert_eq!(
        run_on(b"", "stdin codec=json | where a == 1 | stdout")
            .expect(0)
            .err,
        ""
    );
}

const TIMES: &[u8] = b"{\"t\":\"2024-01-02\"}\n{\"t\":\"noon\"}\n{\"t\":\"night\"}\n";

#[test]
fn events_that_fail_are_counted_at_the_end() {
    for (stages, expected) in [
        (
            "date t yyyy-MM-dd",
            "warning: processor date: 2 of 3 events failed and were tagged `_dateparsefailure`; the first: `noon` is not in the format yyyy-MM-dd\n",
        ),
        (
            "head 1 | date t ISO8601 UNIX | date t UNIX",
            "warning: processor date #2: 1 of 1 event failed and was tagged `_dateparsefailure`; `2024-01-02` is not in the format UNIX\n",
        ),
        (
            "grok '%{INT:n}x' field=t tag=''",
            "warning: processor grok: 3 of 3 events failed; the first: no pattern matches\n",
        ),
        // What the configuration handles is its own business, as long as something is left.
        ("date t yyyy-MM-dd on_failure=drop", ""),
        ("date t yyyy-MM-dd on_failure=continue", ""),
        (
            "date t UNIX on_failure=drop",
            "warning: processor date: 3 of 3 events failed and were dropped; the first: `2024-01-02` is not in the format UNIX\n",
        ),
    ] {
        let ended = run_on(TIMES, &format!("stdin codec=json | {stages} | stdout")).expect(0);
        assert_eq!(ended.err, expected, "{stages}");
        assert!(!ended.out.contains("\"\""), "{stages}: {}", ended.out);
    }
}

#[test]
fn conditions_that_cannot_be_evaluated_are_counted_at_the_end() {
    let expected =
        "the condition could not be evaluated for 3 of 3 events and counts as false for them\n";
    for stages in [
        "where t + 1 == 2 | stdout",
        "json t if='t + 1 == 2' | stdout",
        "stdout if='t + 1 == 2'",
    ] {
        let ended = run_on(TIMES, &format!("stdin codec=json | {stages}")).expect(0);
        assert!(ended.err.contains(expected), "{stages}: {}", ended.err);
    }
    let folder = Folder::new();
    let sample = folder.write("a.json", TIMES);
    let pipeline = "stdin codec=json | where t + 1 == 2";
    let ended = millpond(&["check", pipeline, "--sample", &sample]).expect(0);
    assert!(
        ended.err.contains("where: 3 dropped, 3 failed"),
        "{}",
        ended.err
    );
}

#[test]
fn the_end_of_a_service_reports_them_too() {
    let folder = Folder::new();
    let log = folder.write("a.log", ACCESS);
    let yaml = folder.write(
        "service.yaml",
        format!(
            "pipelines:
  app:
    input: {{ file: {{ paths: [\"{log}\"], codec: json, follow: false }} }}
    processors:
      - grok: {{ field: verb, pattern: \"%{{WORD:word}}\" }}
      - grok: {{ field: message, pattern: \"%{{WORD:word2}}\", if: \"respnse == 500\" }}
    output: {{ discard: {{ if: \"wrd == 'GET'\" }} }}
"
        ),
    );
    let ended = millpond(&["run", &yaml]).expect(0);
    assert_eq!(
        ended.err,
        "warning: pipeline app: processor grok #2: no event had the field `respnse`; did you mean `response`?\n\
         warning: pipeline app: output discard: no event had the field `wrd`; did you mean `word`?\n\
         warning: pipeline app: 2 events went to no output, because no `if` was true\n"
    );
}

#[test]
fn a_sample_shows_what_comes_out_and_changes_nothing() {
    let folder = Folder::new();
    let root = folder.as_ref().display();
    let log = folder.write(
        "other.log",
        b"{\"n\":1,\"level\":\"debug\"}\n{\"n\":2}\n{\"n\":\"x\"}\n{\"n\":4}\n",
    );
    let yaml = folder.write(
        "service.yaml",
        format!(
            "data_dir: {root}/state
pipelines:
  app:
    input: {{ file: {{ paths: [\"/var/log/app/*.log\"], codec: json, follow: true, delete_after: 0s }} }}
    queue: disk
    processors:
      - drop: level == \"debug\"
      - set: {{ fields: {{ m: n * 2 }}, on_failure: dead_letter }}
      - where: m > 2 && lvel != \"x\"
    outputs:
      - file: {{ path: \"{root}/out.ndjson\", if: m > 4 }}
      - http: {{ url: \"http://127.0.0.1:9/\" }}
"
        ),
    );
    let ended = millpond(&["check", &yaml, "--sample", &log]).expect(0);
    assert_eq!(ended.out, "{\"n\":2,\"m\":4}\n{\"n\":4,\"m\":8}\n");
    assert!(
        ended.err.starts_with(
            "4 events read, 2 events out\n  drop: 1 dropped, 0 failed\n  set: 1 dropped, 1 failed\n  output file: would get 1\n"
        ),
        "{}",
        ended.err
    );
    assert!(
        ended.err.contains("no event had the field `lvel`"),
        "{}",
        ended.err
    );
    let ended = millpond(&["check", &yaml, "--sample", &log, "--lines", "2"]).expect(0);
    assert_eq!(ended.out, "{\"n\":2,\"m\":4}\n");
    assert!(Path::new(&log).exists());
    assert!(
        !folder.as_ref().join("state").exists() && !folder.as_ref().join("out.ndjson").exists()
    );
}

#[test]
fn a_sample_stands_in_for_any_input() {
    let folder = Folder::new();
    let (json, text) = (
        folder.write("a", b"{\"a\":1}\n"),
        folder.write("b", b"one\n  two\nthree\n"),
    );
    let ended = millpond(&["check", "http 8080 | where a == 1", "--sample", &json]).expect(0);
    assert_eq!(ended.out, "{\"a\":1}\n");
    let pipeline = "stdin multiline.start='^\\S' | stdout text";
    let ended = millpond(&["check", pipeline, "--sample", &text]);
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    let messages: Vec<_> = ended
        .events()
        .iter()
        .map(|event| event["message"].clone())
        .collect();
    assert_eq!(messages, ["one\n  two", "three"]);
    let missing =
        millpond(&["check", "stdin | stdout", "--sample", &folder.path("none")]).expect(1);
    assert!(missing.err.contains("none"), "{}", missing.err);
    // What is invalid is refused as without a sample.
    millpond(&["check", "stdin | where a ==", "--sample", &json]).expect(2);
}

#[test]
fn a_sample_goes_through_pipelines_that_feed_each_other() {
    let folder = Folder::new();
    let log = folder.write("a.ndjson", b"{\"n\":1}\n{\"n\":2}\n{\"n\":3}\n");
    let yaml = folder.write(
        "linked.yaml",
        "pipelines:
  one:
    input: { file: { paths: [/var/log/app.log], codec: json } }
    processors: [where: n > 1, head: 5]
    output: pipeline two
  two:
    input: pipeline
    processors: [set: m = n + 1, 'drop n == 3']
    output: discard
  alone: file /var/log/other.log codec=json | set n = n | where n > 5
",
    );
    let ended = millpond(&["check", &yaml, "--sample", &log, "--lines", "2"]).expect(0);
    assert_eq!(ended.out, "{\"n\":2,\"m\":3}\n");
    assert_eq!(
        ended.err,
        "pipeline one: 2 events read, 1 event out
  where: 1 dropped, 0 failed
pipeline two: 1 event read, 1 event out
pipeline alone: 2 events read, 0 events out
  where: 2 dropped, 0 failed
"
    );
}
