//! Input that is not as it should be: a clear error, nothing lost, nothing stopped that could go on.

use serde_json::json;

use crate::program::{Folder, gzip, run, run_on};

#[test]
fn files_that_cannot_be_read_are_named_and_the_others_are_read() {
    let folder = Folder::new();
    let good = folder.write("good.log", "one\ntwo\n");
    std::fs::create_dir(folder.path("folder.log")).expect("a folder");
    for (bad, said) in [
        ("missing.log", "missing.log"),
        ("folder.log", "no files in this folder"),
        ("*.none", "no file matches"),
    ] {
        let ended = run(&format!("file {} {good} | stdout", folder.path(bad))).expect(1);
        assert_eq!(ended.events().len(), 2, "{bad}");
        assert!(
            ended.err.starts_with("error: input file: ") && ended.err.contains(said),
            "{bad}: {}",
            ended.err
        );
    }
}

#[test]
fn a_file_that_may_not_be_read_is_named() {
    use std::os::unix::fs::PermissionsExt;
    let folder = Folder::new();
    let path = folder.write("secret.log", "one\n");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o000)).expect("own file");
    let ended = run(&format!("file {path} | stdout"));
    if std::fs::File::open(&path).is_ok() {
        // The superuser may read everything: then the file is read like any other.
        assert_eq!(ended.expect(0).events().len(), 1);
    } else {
        let ended = ended.expect(1);
        assert!(
            ended.err.contains("secret.log") && ended.err.contains("ermission denied"),
            "{}",
            ended.err
        );
    }
}

#[test]
fn lines_are_read_whatever_ends_them() {
    let folder = Folder::new();
    for (content, messages) in [
        ("", vec![]),
        ("one", vec!["one"]),
        ("one\n", vec!["one"]),
        ("one\r\ntwo\r\n", vec!["one", "two"]),
        ("one\n\ntwo", vec!["one", "", "two"]),
        ("nul\0byte\n", vec!["nul\0byte"]),
    ] {
        let path = folder.write("x.log", content);
        let events = run(&format!("file {path} | stdout")).expect(0).events();
        let got: Vec<_> = events
            .iter()
            .map(|event| event["message"].as_str().expect("text").to_owned())
            .collect();
        assert_eq!(got, messages, "{content:?}");
    }
}

#[test]
fn invalid_utf8_is_replaced_and_counted() {
    let ended = run_on(b"good\nb\xffd\n", "stdin | stdout").expect(0);
    let messages: Vec<_> = ended
        .events()
        .iter()
        .map(|event| event["message"].clone())
        .collect();
    assert_eq!(messages, [json!("good"), json!("b\u{fffd}d")]);
}

#[test]
fn a_line_of_100_megabytes_is_cut_and_tagged() {
    let mut content = vec![b'x'; 100 << 20];
    content.extend_from_slice(b"\nafter\n");
    let folder = Folder::new();
    let path = folder.write("long.log", &content);
    let ended = run(&format!("file {path} max_line_bytes=64KiB | stdout")).expect(0);
    let events = ended.events();
    assert_eq!(events.len(), 2);
    assert_eq!(events[0]["message"].as_str().map(str::len), Some(64 << 10));
    assert!(
        events[0]["tags"]
            .as_array()
            .is_some_and(|tags| tags.len() == 1),
        "{}",
        events[0]["tags"]
    );
    assert_eq!(events[1]["message"], json!("after"));
    assert_eq!(events[1]["log"]["offset"], json!((100 << 20) + 1));
}

#[test]
fn a_gzip_file_is_read_by_its_content() {
    let folder = Folder::new();
    let mut two_members = gzip(b"one\ntw");
    two_members.extend(gzip(b"o\nthree\n"));
    let path = folder.write("named-otherwise.log", &two_members);
    let events = run(&format!("file {path} | stdout")).expect(0).events();
    let messages: Vec<_> = events
        .iter()
        .map(|event| event["message"].as_str().expect("text"))
        .collect();
    assert_eq!(messages, ["one", "two", "three"]);
    assert_eq!(
        events[2]["log"]["offset"],
        json!(8),
        "offsets count decompressed bytes"
    );
}

#[test]
fn a_broken_gzip_gives_what_is_readable_then_an_error() {
    let lines: String = (0..50_000)
        .map(|n| format!("line {n} {}\n", n * 7919 % 1000))
        .collect();
    let whole = gzip(lines.as_bytes());
    let cut = whole[..whole.len() / 2].to_vec();
    let mut flipped = whole.clone();
    flipped[whole.len() - 6] ^= 0xff;
    let folder = Folder::new();
    for (name, content, all) in [("cut.gz", cut, false), ("checksum.gz", flipped, true)] {
        let path = folder.write(name, content);
        let ended = run(&format!("file {path} | stdout codec=text")).expect(1);
        let read = ended.out.lines().count();
        assert!(
            if all {
                read == 50_000
            } else {
                read > 10_000 && read < 50_000
            },
            "{name}: {read} lines"
        );
        assert!(
            ended
                .out
                .lines()
                .zip(lines.lines())
                .take(read - 1)
                .all(|(got, is)| got == is),
            "{name}: the lines are the file's"
        );
        assert!(
            ended.err.contains(name) && ended.err.starts_with("error: input file: "),
            "{}",
            ended.err
        );
    }
}

#[test]
fn broken_json_lines_are_kept_as_text() {
    let input = b"{\"a\":1}\n{\"a\":\n[1]\n  {\"b\": 2.50 }  \n";
    let ended = run_on(input, "stdin codec=json | stdout").expect(0);
    let lines: Vec<&str> = ended.out.lines().collect();
    assert_eq!(lines[0], r#"{"a":1}"#);
    assert_eq!(lines[3], r#"{"b": 2.50 }"#);
    for (row, message) in [(1, "{\"a\":"), (2, "[1]")] {
        let event = &ended.events()[row];
        assert_eq!(event["message"], json!(message));
        assert_eq!(event["tags"], json!(["_jsonparsefailure"]));
    }
}

#[test]
fn json_nested_a_thousand_deep_passes_untouched() {
    let document = format!("{{\"a\":{}1{}}}", "[".repeat(1000), "]".repeat(1000));
    let ended = run_on(
        format!("{document}\n").as_bytes(),
        "stdin codec=json | where has(a) | stdout",
    )
    .expect(0);
    assert_eq!(ended.out, format!("{document}\n"));
    let deeper = format!("{{\"a\":{}1{}}}", "[".repeat(100_000), "]".repeat(100_000));
    let ended = run_on(
        format!("{deeper}\n").as_bytes(),
        "stdin codec=json | stdout",
    )
    .expect(0);
    assert_eq!(
        ended.events()[0]["message"].as_str().map(str::len),
        Some(deeper.len()),
        "kept as text"
    );
}

#[test]
fn json_that_nobody_touches_leaves_byte_for_byte() {
    let lines = concat!(
        "{\"n\": 1.0e+400, \"big\": 123456789012345678901234567890, \"s\": \"\\u00e9\\/\", \"x\": {\"event_type\": 1}}\n",
        "{\"event_type\":\"alert\",\"a\":[ ],\"b\":{ }}\n",
        "{\"event_type\" : \"flow\"}\n"
    );
    let ended = run_on(
        lines.as_bytes(),
        r#"stdin codec=json | where event_type != "flow" | stdout"#,
    )
    .expect(0);
    let expected: Vec<&str> = lines.lines().take(2).collect();
    assert_eq!(ended.out.lines().collect::<Vec<_>>(), expected);
}
