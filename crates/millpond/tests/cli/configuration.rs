//! Configurations that cannot be taken are refused before anything is read, with the place and a way out.

use crate::program::{Folder, millpond, run};

#[test]
fn refusals_point_at_the_fault_and_at_the_way_out() {
    for (pipeline, said) in [
        (
            "file x | grk '%{WORD:a}' | stdout",
            vec!["`grk`", "1:10", "did you mean `grok`?"],
        ),
        ("file x | grep foo | stdout", vec!["did you mean `where`?"]),
        ("file x | filter a == 1", vec!["did you mean `where`?"]),
        ("file x | limit 3 | stdout", vec!["did you mean `head`?"]),
        ("file x | print", vec!["did you mean `stdout`?"]),
        ("file x | where a =>500", vec!["did you mean `>=`?"]),
        (
            "file x | where a in ('x', 'y')",
            vec!["a list stands in square brackets"],
        ),
        (
            "file x | where @timestamp > '2015-05-17 12:30:00'",
            vec!["did you mean `\"2015-05-17T12:30:00Z\"`?"],
        ),
        (
            "file x | grok '%{WORD:a}' patern=x | stdout",
            vec!["`patern`", "did you mean `pattern`?"],
        ),
        (
            "file x | grok '%{WRD:a}' | stdout",
            vec!["WRD", "WORD", "^"],
        ),
        ("file x | grok '(' | stdout", vec!["grok", "^"]),
        ("file x | where 'status >=' | stdout", vec!["^"]),
        ("file x | where status >= | stdout", vec!["^"]),
        ("file x | where nosuch(a) | stdout", vec!["nosuch"]),
        ("file x | head ten | stdout", vec!["`ten`", "count"]),
        (
            "file x | stdout codec=jsn",
            vec!["`jsn`", "json", "did you mean"],
        ),
        (
            "file x | drop if=level==\"DEBUG\" | stdout",
            vec![
                "does not accept the setting `if`",
                "drop level == \"DEBUG\"",
                "1:15",
            ],
        ),
        ("file x | set zip 00123", vec!["expected `=`", "1:18"]),
        ("file x | set zip = 00123", vec!["00123"]),
        ("file x | rename a b", vec!["expected `->`"]),
        ("file x | date timestamp 'dd/QQQ' | stdout", vec!["Q", "^"]),
        (
            "file x | json on_failure=dead_letter | stdout",
            vec!["dead letters", "`data_dir` is not set", "--data-dir"],
        ),
        (
            "file x | geoip clientip database=/no/such.mmdb | stdout",
            vec!["/no/such.mmdb"],
        ),
        ("file 'x | stdout", vec!["quote", "1:6"]),
    ] {
        let ended = run(pipeline).expect(2);
        assert!(ended.out.is_empty(), "{pipeline}: nothing ran");
        for part in said {
            assert!(
                ended.err.contains(part),
                "{pipeline}: `{part}` is not in\n{}",
                ended.err
            );
        }
    }
}

#[test]
fn a_yaml_file_names_line_and_column() {
    let folder = Folder::new();
    let path = folder.write(
        "millpond.yaml",
        "pipelines:\n  one:\n    input:\n      stdin: {}\n    processors:\n      - grok: { patern: \"x\" }\n    outputs:\n      - stdout\n",
    );
    for command in ["run", "check"] {
        let ended = millpond(&[command, &path]).expect(2);
        assert!(ended.err.contains("millpond.yaml:6:17"), "{}", ended.err);
        assert!(
            ended.err.contains("pipelines.one.processors[0].grok"),
            "{}",
            ended.err
        );
    }
}

#[test]
fn both_spellings_are_one_configuration() {
    let folder = Folder::new();
    let log = folder.write("x.log", "a 1\nb 2\n");
    // By itself a file is read once on the command line, and followed in YAML.
    let oneliner = format!(
        "file {log} follow=false | grok '%{{WORD:w}} %{{INT:n:int}}' | where n > 1 | stdout"
    );
    let yaml = millpond(&["run", "--print-config", &oneliner])
        .expect(0)
        .out;
    let path = folder.write("same.yaml", &yaml);
    let without_time = |text: String| {
        text.lines()
            .map(|line| line.split("\"message\"").nth(1).unwrap_or(line).to_owned())
            .collect::<Vec<_>>()
    };
    let direct = run(&oneliner).expect(0).out;
    assert_eq!(
        without_time(millpond(&["run", &path]).expect(0).out),
        without_time(direct.clone())
    );
    assert!(
        direct.contains("\"n\":2") && direct.lines().count() == 1,
        "{direct}"
    );
}

#[test]
fn variables_are_replaced_in_values_only() {
    let folder = Folder::new();
    let log = folder.write("x.log", "a\n");
    let yaml = "pipelines:\n  one:\n    input:\n      file: { paths: ['${LOG}'], follow: false }\n    processors:\n      - set: { values: { where: '${PLACE:no|where: [x]}' } }\n      - set: { values: { plain: '$${LOG}' } }\n    outputs: [stdout]\n";
    let path = folder.write("v.yaml", yaml);
    let output = crate::program::command(&["run", &path])
        .env("LOG", &log)
        .output()
        .expect("runs");
    let event = &crate::program::ended(output).expect(0).events()[0];
    assert_eq!(event["where"], "no|where: [x]");
    assert_eq!(event["plain"], "${LOG}");
    let ended = millpond(&["run", &path]).expect(2);
    assert!(
        ended.err.contains("LOG") && ended.err.contains("v.yaml:4:"),
        "{}",
        ended.err
    );
}

#[test]
fn a_second_output_of_a_kind_must_have_a_name() {
    let folder = Folder::new();
    let path = folder.write(
        "two.yaml",
        "pipelines:\n  one:\n    input: stdin\n    outputs: [stdout, stdout]\n",
    );
    assert!(millpond(&["check", &path]).expect(2).err.contains("name"));
    let path = folder.write(
        "named.yaml",
        "pipelines:\n  one:\n    input: stdin\n    outputs: [stdout, stdout: {name: b}]\n",
    );
    let ended = millpond(&["check", &path]).expect(0);
    assert!(
        ended.out.contains("one: stdin | stdout, b") && ended.out.contains("valid"),
        "{}",
        ended.out
    );
}

#[test]
fn files_that_are_no_configuration_are_refused() {
    let folder = Folder::new();
    for (content, said) in [
        ("", "pipelines"),
        ("pipelines: {}\n", "pipelines"),
        ("a: [\n", ":"),
        ("pipelines:\n  x: {}\n", "input"),
    ] {
        let path = folder.write("x.yaml", content);
        let ended = millpond(&["run", &path]).expect(2);
        assert!(ended.err.contains(said), "{content:?}: {}", ended.err);
    }
    assert!(
        millpond(&["run", "/no/such.yaml"])
            .expect(2)
            .err
            .contains("/no/such.yaml")
    );
}

#[test]
fn what_only_one_component_can_use_is_given_to_one() {
    let folder = Folder::new();
    for (components, said) in [
        (
            "    inputs: [stdin, stdin: {name: b}]\n    output: stdout\n",
            "standard input",
        ),
        (
            "    input: stdin\n    outputs:\n      - file: {path: /tmp/one.txt}\n      - file: {path: /tmp/one.txt, name: b}\n",
            "/tmp/one.txt",
        ),
    ] {
        let path = folder.write("two.yaml", format!("pipelines:\n  one:\n{components}"));
        let ended = millpond(&["check", &path]).expect(2);
        assert!(
            ended.err.contains(said) && ended.err.contains("already"),
            "{}",
            ended.err
        );
    }
}

#[test]
fn settings_of_the_process_have_bounds() {
    let folder = Folder::new();
    let rest = "pipelines: {one: {input: stdin, output: stdout}}\n";
    for (setting, said) in [
        ("workers: 100000", "workers"),
        ("max_memory_bytes: 10", "memory"),
        ("worker: 2", "did you mean `workers`?"),
        ("max_disk_bytes: 0", "at least 256KiB"),
    ] {
        let path = folder.write("x.yaml", format!("{setting}\n{rest}"));
        assert!(millpond(&["check", &path]).expect(2).err.contains(said));
    }
    let path = folder.write(
        "x.yaml",
        "pipelines:\n  one:\n    input: stdin\n    outputt: stdout\n",
    );
    let ended = millpond(&["check", &path]).expect(2);
    assert!(
        ended.err.contains("`outputt`") && ended.err.contains("did you mean `output`?"),
        "{}",
        ended.err
    );
}

#[test]
fn an_old_name_of_a_setting_is_answered_with_the_new_one() {
    let folder = Folder::new();
    let pipeline = |top: &str, input: &str, rest: &str| {
        format!("{top}\npipelines:\n  one:\n    input: {{ {input} }}\n{rest}\n    output: stdout\n")
    };
    let file = "file: { paths: [/x] }";
    for (text, old, new) in [
        (
            pipeline("memory: 1GiB", file, ""),
            "memory",
            "max_memory_bytes",
        ),
        (pipeline("disk: 1GiB", file, ""), "disk", "max_disk_bytes"),
        (
            pipeline("dead_letters: { max_size: 1GiB }", file, ""),
            "max_size",
            "max_bytes",
        ),
        (
            pipeline("", file, "    queue: { memory: { max_size: 1MiB } }"),
            "max_size",
            "max_bytes",
        ),
        (
            pipeline("", file, "    queue: { disk: { memory: 1MiB } }"),
            "memory",
            "cache_bytes",
        ),
        (
            pipeline("", file, "    queue: { disk: { min_free: 0 } }"),
            "min_free",
            "min_free_bytes",
        ),
        (
            pipeline("", "file: { paths: [/x], time_zone: UTC }", ""),
            "time_zone",
            "timezone",
        ),
        (
            pipeline("", "http: { address: 80, max_request_size: 1MiB }", ""),
            "max_request_size",
            "max_request_bytes",
        ),
        (
            pipeline(
                "",
                file,
                "    processors: [{ user_agent: { field: a, cache_size: 9 } }]",
            ),
            "cache_size",
            "cache_entries",
        ),
    ] {
        let path = folder.write("x.yaml", &text);
        let ended = millpond(&["check", &path]).expect(2);
        let said = format!("`{old}` has been renamed to `{new}`");
        assert!(ended.err.contains(&said), "{text}{}", ended.err);
    }
    for (stage, old, new) in [
        ("file x rotate.size=1MB", "size", "max_bytes"),
        ("http http://h/ batch.max_size=1MB", "max_size", "max_bytes"),
    ] {
        let ended = millpond(&["check", &format!("stdin | {stage}")]).expect(2);
        let said = format!("`{old}` has been renamed to `{new}`");
        assert!(ended.err.contains(&said), "{stage}: {}", ended.err);
    }
}

#[test]
fn what_is_accepted_is_what_the_map_takes() {
    let folder = Folder::new();
    for (settings, accepted) in [
        (
            "close: {foo: 1}",
            "accepted: inactive, removed, renamed, after\n",
        ),
        ("foo: 1", ", name\n"),
    ] {
        let path = folder.write(
            "x.yaml",
            format!("pipelines:\n  one:\n    input:\n      file: {{ paths: [/x], {settings} }}\n    output: stdout\n"),
        );
        let ended = millpond(&["check", &path]).expect(2);
        assert!(ended.err.contains("unknown setting `foo`"), "{}", ended.err);
        assert!(ended.err.contains(accepted), "{}", ended.err);
        // The word that begins an error is there once.
        assert_eq!(ended.err.matches("error:").count(), 1, "{}", ended.err);
    }
}

/// A configuration with one pipeline, whose queue is written here.
fn with_queue(queue: &str) -> String {
    format!("pipelines:\n  one:\n    input: stdin\n    queue: {queue}\n    output: stdout\n")
}

#[test]
fn a_queue_that_cannot_work_is_refused_with_its_place() {
    let folder = Folder::new();
    for (queue, said) in [
        (
            "dsk",
            vec!["unknown queue `dsk`", "x.yaml:5:12", "did you mean `disk`?"],
        ),
        (
            "{ disk: { max_byte: 1 } }",
            vec!["x.yaml:5:22", "did you mean `max_bytes`?"],
        ),
        (
            "{ disk: { when_full: drop_olds } }",
            vec!["drop_olds", "did you mean `drop_oldest`?"],
        ),
        (
            "{ disk: { durability: sync } }",
            vec!["`sync`", "accepted: fsync, interval"],
        ),
        (
            "{ disk: { compression: gzip } }",
            vec!["`gzip`", "none, lz4, zstd"],
        ),
        (
            "{ disk: { new_output: newest } }",
            vec!["`newest`", "oldest, now"],
        ),
        (
            "{ disk: { max_bytes: 0 } }",
            vec!["x.yaml:5:33", "at least 256KiB"],
        ),
        (
            "{ disk: { max_bytes: 255KiB } }",
            vec!["`max_bytes` of a disk queue must be at least 256KiB"],
        ),
        (
            "{ disk: { segment_bytes: 1KiB } }",
            vec!["`segment_bytes` of a disk queue must be at least 64KiB"],
        ),
        (
            "{ disk: { max_events: 0 } }",
            vec!["x.yaml:5:34", "`max_events` must be greater than 0"],
        ),
        (
            "{ disk: { max_age: 0 } }",
            vec!["`max_age` of 0", "omit the setting"],
        ),
        (
            "{ disk: { cache_bytes: 0 } }",
            vec!["`cache_bytes` must be greater than 0"],
        ),
        ("{ disk: { path: '' } }", vec!["is empty", "x.yaml:5:28"]),
        (
            "{ disk: { group_time: 5 } }",
            vec!["`5` has no unit", "5ms"],
        ),
        (
            "{ memory: { max_bytes: 0 } }",
            vec!["`max_bytes` must be greater than 0"],
        ),
        (
            "{ memory: { overflow: dsk } }",
            vec!["`dsk`", "did you mean `disk`?"],
        ),
        (
            "{ memory: { overflow: { disk: { cache_bytes: 1MiB } } } }",
            vec![
                "`max_bytes` of the memory queue",
                "queue.memory.overflow.disk.cache_bytes",
            ],
        ),
        (
            "{ memory: { overflow: { disk: { max_age: 0 } } } }",
            vec!["`max_age` of 0", "queue.memory.overflow.disk.max_age"],
        ),
    ] {
        let path = folder.write("x.yaml", format!("data_dir: data\n{}", with_queue(queue)));
        let ended = millpond(&["check", &path]).expect(2);
        for part in said {
            assert!(
                ended.err.contains(part),
                "{queue}: `{part}` is not in\n{}",
                ended.err
            );
        }
    }
}

#[test]
fn a_disk_queue_needs_a_folder_of_its_own() {
    let folder = Folder::new();
    for (queue, place) in [
        ("disk", "x.yaml:4:12"),
        ("{ disk: { max_bytes: 1GiB } }", "pipelines.one.queue.disk"),
        (
            "{ memory: { overflow: disk } }",
            "pipelines.one.queue.memory.overflow",
        ),
    ] {
        let path = folder.write("x.yaml", with_queue(queue));
        for command in ["run", "check"] {
            let ended = millpond(&[command, &path]).expect(2);
            for part in [place, "`data_dir` is not set", "--data-dir DIR", "a `path`"] {
                assert!(
                    ended.err.contains(part),
                    "{queue}: `{part}` is not in\n{}",
                    ended.err
                );
            }
        }
        millpond(&["check", &path, "--data-dir", &folder.path("data")]).expect(0);
    }
    let two = |one: &str, two: &str| {
        format!(
            "data_dir: {}\npipelines:\n  one: {{ input: stdin, queue: {one}, output: stdout }}\n  two: {{ input: {{ file: {{ paths: [/x] }} }}, queue: {two}, output: discard }}\n",
            folder.path("data")
        )
    };
    let at = |path: &str| format!("{{ disk: {{ path: {} }} }}", folder.path(path));
    for (first, second, said) in [
        (at("q"), at("q"), "pipeline `one` already uses"),
        (at("q"), at("./q/"), "pipeline `one` already uses"),
        (
            "disk".to_owned(),
            at("data/queue/one"),
            "pipeline `one` already uses",
        ),
        ("disk".to_owned(), at("data"), "data directory itself"),
    ] {
        let path = folder.write("x.yaml", two(&first, &second));
        let ended = millpond(&["check", &path]).expect(2);
        assert!(
            ended.err.contains(said) && ended.err.contains("x.yaml:4:"),
            "{}",
            ended.err
        );
    }
    let path = folder.write("x.yaml", two("disk", "disk"));
    millpond(&["check", &path]).expect(0);
    let name = "n".repeat(256);
    let text = with_queue("disk").replace("one:", &format!("{name}:"));
    let path = folder.write("x.yaml", format!("data_dir: data\n{text}"));
    let ended = millpond(&["check", &path]).expect(2);
    assert!(
        ended.err.contains("too long") && ended.err.contains("`path`"),
        "{}",
        ended.err
    );
}

#[test]
fn check_says_which_queue_a_pipeline_has() {
    let folder = Folder::new();
    let data = folder.path("data");
    for (queue, said) in [
        ("memory", String::new()),
        (
            "disk",
            format!("  queue: disk, at most 1GiB, in {data}/queue/one\n"),
        ),
        (
            "{ disk: { path: /q, max_bytes: 10GB } }",
            "  queue: disk, at most 10GB, in /q\n".to_owned(),
        ),
        (
            "{ memory: { overflow: disk } }",
            format!("  queue: memory, then disk, at most 1GiB, in {data}/queue/one\n"),
        ),
    ] {
        let path = folder.write(
            "x.yaml",
            format!("data_dir: /elsewhere\n{}", with_queue(queue)),
        );
        let ended = millpond(&["check", &path, "--data-dir", &data]).expect(0);
        let expected = format!("one: stdin | stdout\n{said}The configuration is valid.\n");
        assert_eq!(ended.out, expected, "{queue}");
    }
}
