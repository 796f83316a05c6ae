//! Configurations that cannot be taken are refused before anything is read, with the place and a way out.

use crate::program::{Folder, millpond, run};

#[test]
fn refusals_point_at_the_fault_and_at_the_way_out() {
    for (pipeline, said) in [
        (
            "file x | grk '%{WORD:a}' | stdout",
            vec!["`grk`", "1:10", "did you mean `grok`?"],
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
            "file x | stdout format=jsn",
            vec!["`jsn`", "json", "did you mean"],
        ),
        ("file x", vec!["output"]),
        ("file x | date timestamp 'dd/QQQ' | stdout", vec!["Q", "^"]),
        (
            "file x | json on_failure=dead_letter | stdout",
            vec!["dead letters", "publish"],
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
    let yaml = "pipelines:\n  one:\n    input:\n      file: { paths: ['${LOG}'], follow: false }\n    processors:\n      - set: { field: where, value: '${PLACE:no|where: [x]}' }\n      - set: { field: plain, value: '$${LOG}' }\n    outputs: [stdout]\n";
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
        ("memory: 10", "memory"),
        ("worker: 2", "did you mean `workers`?"),
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
