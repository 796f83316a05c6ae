//! Files that are read as what their names say: JSON, CSV, and text otherwise.

use serde_json::{Value, json};

use crate::program::{Folder, gzip, millpond, run, run_on};
use crate::running::{Service, append};

const ROWS: &str = "id,name,note\n1,ada,\n00123,\"b, \"\"c\"\"\",\"two\nlines\"\n";

fn rows() -> Value {
    json!([
        { "id": "1", "name": "ada", "note": "" },
        { "id": "00123", "name": "b, \"c\"", "note": "two\nlines" },
    ])
}

/// The events of a run that has to end well.
fn events(pipeline: &str) -> Value {
    Value::Array(run(pipeline).expect(0).events())
}

#[test]
fn a_file_is_read_as_what_its_name_says() {
    let folder = Folder::new();
    let lines = "{\"a\":1}\n{\"a\":2}\n";
    for name in ["a.json", "a.ndjson", "a.jsonl.1"] {
        let path = folder.write(name, lines);
        assert_eq!(
            events(&format!("file {path}")),
            json!([{ "a": 1 }, { "a": 2 }]),
            "{name}"
        );
    }
    let packed = folder.write("b.json.gz", gzip(lines.as_bytes()));
    assert_eq!(
        events(&format!("file {packed}")),
        json!([{ "a": 1 }, { "a": 2 }])
    );
    for (name, content) in [
        ("a.csv", ROWS.as_bytes().to_vec()),
        ("a.csv.gz", gzip(ROWS.as_bytes())),
        ("a.csv-20260102.gz", gzip(ROWS.as_bytes())),
        (
            "windows.csv",
            ["\u{feff}", &ROWS.replace('\n', "\r\n")]
                .concat()
                .into_bytes(),
        ),
        (
            "a.tsv",
            b"id\tname\tnote\n1\tada\t\n00123\t\"b, \"\"c\"\"\"\t\"two\nlines\"\n".to_vec(),
        ),
    ] {
        let path = folder.write(name, content);
        assert_eq!(events(&format!("file {path}")), rows(), "{name}");
    }
    // Each file as itself, in one pipeline; and in YAML.
    let mixed = folder.write("c.log", "text\n");
    let (json, csv) = (folder.path("a.json"), folder.path("a.csv"));
    let pipeline = format!("file {mixed} {json} {csv} | keep message a id");
    let all =
        json!([{ "message": "text" }, { "a": 1 }, { "a": 2 }, { "id": "1" }, { "id": "00123" }]);
    assert_eq!(events(&pipeline), all);
    let yaml = format!(
        "pipelines: {{ p: {{ input: {{ file: {{ paths: ['{csv}'], follow: false }} }}, output: stdout }} }}\n"
    );
    let yaml = folder.write("p.yaml", yaml);
    assert_eq!(
        Value::Array(millpond(&["run", &yaml]).expect(0).events()),
        rows()
    );
}

#[test]
fn json_is_read_in_any_layout() {
    let folder = Folder::new();
    let expected = json!([{ "a": 1, "b": { "c": [1, "x\ny"] } }, { "a": 2 }]);
    let pretty = serde_json::to_string_pretty(&expected).expect("JSON");
    let documents = expected.as_array().expect("a list");
    let each = documents
        .iter()
        .map(|one| serde_json::to_string_pretty(one).expect("JSON"));
    let each: String = each.map(|one| one + "\n").collect();
    for content in [expected.to_string(), pretty.clone(), each] {
        let path = folder.write("a.json", &content);
        let ended = run(&format!("file {path}")).expect(0);
        assert_eq!(Value::Array(ended.events()), expected, "{content}");
        assert_eq!(ended.out.lines().count(), 2, "{}", ended.out);
        let packed = folder.write("b.json.gz", gzip(content.as_bytes()));
        assert_eq!(events(&format!("file {packed}")), expected, "{content}");
        let piped = run_on(content.as_bytes(), "stdin codec=json").expect(0);
        assert_eq!(Value::Array(piped.events()), expected, "{content}");
        let sampled = millpond(&["check", "http 8080", "--sample", &path]).expect(0);
        assert_eq!(Value::Array(sampled.events()), expected, "{content}");
    }
    // What is broken is tagged and takes nothing with it.
    let broken = pretty.replace("\"a\": 1", "\"a\": ");
    let path = folder.write("c.json", &broken);
    let seen = events(&format!("file {path}"));
    assert_eq!(seen[0]["tags"], json!(["_jsonparsefailure"]));
    assert_eq!(seen[1], expected[1]);
    assert_eq!(seen.as_array().map(Vec::len), Some(2));
    // A document may be as long as a line, and an array of any length.
    let many = Value::Array(vec![json!({ "a": "x".repeat(90) }); 100]).to_string();
    let path = folder.write("d.json", many);
    let seen = events(&format!("file {path} max_line_bytes=100"));
    assert_eq!(seen.as_array().map(Vec::len), Some(100));
    let ended = run(&format!(
        "file {path} max_line_bytes=50 | where '_truncated' in tags"
    ))
    .expect(0);
    assert_eq!(ended.events().len(), 100);
    assert!(ended.err.contains("was truncated"), "{}", ended.err);
}

#[test]
fn an_array_that_grows_is_read_on() {
    for is_packed in [false, true] {
        let folder = Folder::new();
        let data = folder.path("data");
        let name = if is_packed { "a.json.gz" } else { "a.json" };
        let mut content = "[\n  {\n    \"a\": 1\n  },\n  {\n    \"a\"".to_owned();
        let write = |content: &str| match is_packed {
            true => folder.write(name, gzip(content.as_bytes())),
            false => folder.write(name, content),
        };
        let path = write("");
        let out = folder.path("out.ndjson");
        let yaml = format!(
            "data_dir: {data}\npipelines: {{ p: {{ input: {{ file: {{ paths: ['{path}'] }} }}, output: {{ file: '{out}' }} }} }}\n"
        );
        let yaml = folder.write("p.yaml", yaml);
        let lines = || std::fs::read_to_string(&out).unwrap_or_default();
        for (count, more) in [
            (1, ": 2\n  },\n  {"),
            (2, "\n    \"a\": 3\n  }\n]\n"),
            (3, "{\"a\":4}"),
        ] {
            write(&content);
            let mut service = Service::start(&folder, &["run", &yaml]);
            service.until("the next document", || lines().lines().count() == count);
            service.stop();
            content += more;
        }
        let ended = millpond(&["files", "--data-dir", &data]).expect(0);
        let read = content.len() - "{\"a\":4}".len();
        assert!(
            is_packed || ended.out.contains(&read.to_string()),
            "{}",
            ended.out
        );
        let seen: Vec<Value> = lines()
            .lines()
            .map(|line| serde_json::from_str(line).expect("JSON"))
            .collect();
        assert_eq!(
            seen,
            [json!({ "a": 1 }), json!({ "a": 2 }), json!({ "a": 3 })],
            "{name}"
        );
    }
}

#[test]
fn a_setting_overrules_the_name() {
    let folder = Folder::new();
    let csv = folder.write("a.csv", "{\"a\":1}\n");
    assert_eq!(
        events(&format!("file {csv} codec=json")),
        json!([{ "a": 1 }])
    );
    assert_eq!(
        events(&format!("file {csv} codec=text | keep message")),
        json!([{ "message": "{\"a\":1}" }])
    );
    let log = folder.write("a.log", "a;b\n1;2\n");
    assert_eq!(
        events(&format!("file {log} codec=csv csv.delimiter=';'")),
        json!([{ "a": "1", "b": "2" }])
    );
    assert_eq!(
        events(&format!(
            "file {log} codec=csv csv.delimiter=';' csv.columns=[x, y]"
        )),
        json!([{ "x": "a", "y": "b" }, { "x": "1", "y": "2" }])
    );
    let json = folder.write("a.json", "one\n  two\n");
    let start = format!("file {json} multiline.start='^\\S' | keep message");
    assert_eq!(events(&start), json!([{ "message": "one\n  two" }]));
    let ended = run_on(ROWS.as_bytes(), "stdin codec=csv | stdout").expect(0);
    assert_eq!(Value::Array(ended.events()), rows());
    for (settings, said) in [
        ("codec=csv multiline.start=x", "mean nothing together"),
        ("codec=text csv.delimiter=x", "`csv` is for `codec: csv`"),
        ("codec=csv csv.delimiter=ab", "one ASCII character"),
    ] {
        let refused = run(&format!("file {log} {settings}")).expect(2);
        assert!(refused.err.contains(said), "{}", refused.err);
    }
}

#[test]
fn a_bad_row_is_tagged_and_not_lost() {
    let folder = Folder::new();
    let text = "a,b\n\n1,2\nonly\n3,4,5\n5\" disk,\"x\"\n7,8\n9,\"never closed\n";
    let path = folder.write("a.csv", text);
    let ended = millpond(&["run", &format!("file {path}"), "--metrics"]).expect(0);
    let events = ended.events();
    let shown: Vec<Value> = events
        .iter()
        .map(|event| match event.get("tags") {
            Some(tags) => json!([event["message"], tags, event["error"]["message"]]),
            None => event.clone(),
        })
        .collect();
    let tags = json!(["_csvparsefailure"]);
    assert_eq!(
        Value::Array(shown),
        json!([
            { "a": "1", "b": "2" },
            ["only", tags, "the row has 1 fields and the header 2"],
            ["3,4,5", tags, "the row has 3 fields and the header 2"],
            { "a": "5\" disk", "b": "x" },
            { "a": "7", "b": "8" },
            ["9,\"never closed", tags, "a quote in the row is not closed"],
        ])
    );
    assert!(ended.err.contains("broken_csv_rows 3"), "{}", ended.err);
    assert!(
        ended
            .err
            .contains("the line at byte 9 does not fit the header"),
        "{}",
        ended.err
    );
}

#[test]
fn names_of_columns_become_fields() {
    let folder = Folder::new();
    let text = "message,@timestamp,host.name, blank ,,a,a\nm,2026-01-02T03:04:05Z,h,x,y,1,2\n";
    let path = folder.write("a.csv", text);
    let row = json!([{ "@timestamp": "2026-01-02T03:04:05Z", "message": "m", "host.name": "h", "blank": "x", "column_5": "y", "a": "1", "a_2": "2" }]);
    assert_eq!(events(&format!("file {path}")), row);
    let path = folder.write("b.csv", "a\n1\n");
    let pipeline =
        format!("file {path} add_fields=true | remove @timestamp host.name log.file.path");
    assert_eq!(
        events(&pipeline),
        json!([{ "host": {}, "log": { "file": {}, "offset": 2 }, "a": "1" }])
    );
}

#[test]
fn a_later_run_knows_the_header() {
    for is_packed in [false, true] {
        let folder = Folder::new();
        let name = if is_packed { "a.csv.gz" } else { "a.csv" };
        let data = folder.path("data");
        let mut content = ROWS.to_owned();
        let write = |content: &str| match is_packed {
            true => folder.write(name, gzip(content.as_bytes())),
            false => folder.write(name, content),
        };
        let path = write(&content);
        let pipeline = format!("file {path} {} | stdout", folder.path("a.csv.1"));
        let pipeline = pipeline.replace(" | ", " follow=false | ");
        let run_again =
            || Value::Array(millpond(&["run", &pipeline, "--data-dir", &data]).events());
        assert_eq!(run_again(), rows());
        content += "2,bob,\"x\ny\"\n3,eve\n";
        write(&content);
        let events = run_again();
        assert_eq!(
            events[0],
            json!({ "id": "2", "name": "bob", "note": "x\ny" }),
            "{name}"
        );
        assert_eq!(events[1]["tags"], json!(["_csvparsefailure"]));
        if is_packed {
            continue;
        }
        // Rotated, with another header in the new file.
        content += "4,dan,last\n";
        write(&content);
        std::fs::rename(folder.path(name), folder.path("a.csv.1")).expect("renamed");
        write("x;y,z\n1;2,3\n");
        let events = run_again();
        // The file that goes on may be read before the new one.
        let (old, new) = (
            json!({ "id": "4", "name": "dan", "note": "last" }),
            json!({ "x;y": "1;2", "z": "3" }),
        );
        assert!(
            events == json!([old, new]) || events == json!([new, old]),
            "{events}"
        );
    }
}

#[test]
fn a_followed_file_may_grow_in_the_middle_of_its_header_and_of_a_row() {
    let folder = Folder::new();
    let path = folder.write("a.csv", "id,na");
    let out = folder.path("out.ndjson");
    let yaml = format!(
        "data_dir: {}\npipelines: {{ p: {{ input: {{ file: {{ paths: ['{path}'] }} }}, output: {{ file: '{out}' }} }} }}\n",
        folder.path("data")
    );
    let yaml = folder.write("p.yaml", yaml);
    let lines = || {
        let text = std::fs::read_to_string(&out).unwrap_or_default();
        text.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let mut service = Service::start(&folder, &["run", &yaml]);
    std::thread::sleep(std::time::Duration::from_millis(300));
    append(&path, "me\n1,\"a");
    std::thread::sleep(std::time::Duration::from_millis(300));
    append(&path, "\nb\"\n2,c\n");
    service.until("two rows", || lines().len() == 2);
    service.stop();
    append(&path, "3,d\n");
    let mut service = Service::start(&folder, &["run", &yaml]);
    service.until("the third", || lines().len() == 3);
    service.stop();
    assert_eq!(
        lines(),
        [
            r#"{"id":"1","name":"a\nb"}"#,
            r#"{"id":"2","name":"c"}"#,
            r#"{"id":"3","name":"d"}"#
        ]
    );
}

#[test]
fn a_quote_that_nobody_closes_takes_in_a_bounded_part_of_the_file() {
    let folder = Folder::new();
    let rows: String = (0..100).map(|number| format!("{number},x\n")).collect();
    let path = folder.write("a.csv", format!("a,b\n1,\"open\n{rows}"));
    let ended = run(&format!("file {path} max_line_bytes=100")).expect(0);
    let events = ended.events();
    let (broken, good): (Vec<_>, Vec<_>) =
        events.iter().partition(|event| event.get("tags").is_some());
    assert_eq!(broken.len(), 1, "{broken:?}");
    assert_eq!(broken[0]["tags"], json!(["_truncated", "_csvparsefailure"]));
    assert!(good.len() > 70, "{}", good.len());
    assert_eq!(good.last().expect("rows"), &&json!({ "a": "99", "b": "x" }));
}
