//! What a run says of itself.

use serde_json::Value;

use crate::program::{Folder, millpond, run_on};

#[test]
fn the_table_counts_what_came_what_left_and_why_not() {
    let ended = {
        let mut child = crate::program::command(&[
            "run",
            "stdin | grok '%{INT:n:int}' | where n > 1 || has(tags) | stdout",
            "--metrics",
        ]);
        let mut child = child
            .stdin(std::process::Stdio::piped())
            .spawn()
            .expect("runs");
        std::io::Write::write_all(&mut child.stdin.take().expect("a pipe"), b"1\n2\n3\nx\n")
            .expect("written");
        crate::program::ended(child.wait_with_output().expect("ends")).expect(0)
    };
    let row = |name: &str| -> Vec<String> {
        let line = ended
            .err
            .lines()
            .find(|line| line.starts_with(name))
            .unwrap_or_else(|| panic!("{name} in\n{}", ended.err));
        line.split_whitespace().map(str::to_owned).collect()
    };
    assert_eq!(row("stdin")[2], "4");
    assert_eq!(row("grok")[1..5], ["4", "4", "0", "1"]);
    assert_eq!(row("where")[1..5], ["4", "3", "1", "0"]);
    assert_eq!(row("stdout")[1..3], ["3", "3"]);
}

#[test]
fn an_expression_that_fails_is_counted_under_one_name_everywhere() {
    let pipeline = "stdin | json message if='message + 1 > 0' | where message + 1 > 0 | stdout";
    let mut child = crate::program::command(&["run", pipeline, "--metrics"])
        .stdin(std::process::Stdio::piped())
        .spawn()
        .expect("runs");
    let mut pipe = child.stdin.take().expect("a pipe");
    std::io::Write::write_all(&mut pipe, b"one\n").expect("written");
    drop(pipe);
    let ended = crate::program::ended(child.wait_with_output().expect("ends")).expect(0);
    for operator in ["json", "where"] {
        let row = ended
            .err
            .lines()
            .find(|line| line.starts_with(operator) && line.ends_with("(expression_errors 1)"));
        assert!(row.is_some(), "{operator}: {}", ended.err);
    }
}

#[test]
fn nothing_but_events_goes_to_standard_output_and_nothing_needless_to_standard_error() {
    let ended = run_on(b"one\n", "stdin | stdout codec=text").expect(0);
    assert_eq!((ended.out.as_str(), ended.err.as_str()), ("one\n", ""));
}

#[test]
fn bench_says_what_a_pipeline_costs_and_what_limits_it() {
    let pipeline = "generate apache count=50k | grok '%{COMBINEDAPACHELOG}' | discard";
    let text = millpond(&["bench", pipeline]).expect(0).out;
    for part in [
        "50,000 events in",
        "CPU-seconds per million events",
        "peak memory",
        "input generate",
        "processor grok",
        "output discard",
        "the pipeline itself",
        "async runtime",
        "in the kernel",
        "limit",
    ] {
        assert!(text.contains(part), "{part} in\n{text}");
    }
    let json: Value = serde_json::from_str(&millpond(&["bench", "--json", pipeline]).expect(0).out)
        .expect("JSON");
    assert_eq!(json["events"], 50_000);
    assert!(
        json["cpu_seconds_per_million_events"]
            .as_f64()
            .is_some_and(|cost| cost > 0.0)
    );
    assert!(
        json["memory_peak_bytes"]
            .as_u64()
            .is_some_and(|bytes| bytes > 1 << 20)
    );
    let operators = json["pipelines"][0]["operators"]
        .as_array()
        .expect("operators");
    assert_eq!(
        operators
            .iter()
            .map(|operator| operator["name"].as_str().expect("a name"))
            .collect::<Vec<_>>(),
        ["generate", "grok", "discard"]
    );
    let seconds = |value: &Value| value.as_f64().expect("a number");
    let pipeline = &json["pipelines"][0];
    let charged: f64 = operators.iter().map(|it| seconds(&it["cpu_seconds"])).sum();
    let named = charged
        + seconds(&pipeline["own_cpu_seconds"])
        + seconds(&json["runtime_cpu_seconds"])
        + seconds(&json["other_cpu_seconds"]);
    let cpu = seconds(&json["cpu_seconds"]);
    assert!((named - cpu).abs() < 1e-6, "{named} of {cpu}");
    assert!(charged > 0.8 * cpu, "{charged} of {cpu} s: {json}");
    assert_eq!(json["verdict"], pipeline["verdict"]);
    assert!(
        json["pipelines"][0]["verdict"]
            .as_str()
            .is_some_and(|sentence| sentence.ends_with('.'))
    );
}

#[test]
fn the_ledger_ends_true_after_head() {
    let lines: String = (0..20_000).map(|n| format!("line {n}\n")).collect();
    let folder = Folder::new();
    let path = folder.write("many.log", lines);
    for (stages, read, dropped) in [
        ("head 100", "100", "0"),
        ("drop message == \"line 1\" | head 100", "101", "1"),
    ] {
        let pipeline = format!("file {path} | {stages} | discard");
        let data_dir = folder.path(&format!("state{dropped}"));
        let (plain, kept): (&[&str], &[&str]) = (&[], &["--data-dir", &data_dir]);
        for more in [plain, kept] {
            let args = [&["run", &pipeline, "--metrics"][..], more].concat();
            let ended = millpond(&args).expect(0);
            let row = ended.err.lines().find(|line| line.contains("many.log"));
            let row = row.unwrap_or_else(|| panic!("{}", ended.err));
            let cells: Vec<&str> = row.split_whitespace().collect();
            // Read, acknowledged, dropped, dead letters, in flight.
            let found = &cells[cells.len() - 6..cells.len() - 1];
            assert_eq!(
                found,
                [read, "100", dropped, "0", "0"],
                "{stages}: {}",
                ended.err
            );
        }
    }
}

#[test]
fn texts_that_were_cut_are_tagged_and_counted() {
    let folder = Folder::new();
    let log = folder.write("a.log", "short\na longer line\nanother long line\n");
    let stage = "truncate message max=8 suffix=…";
    for pipeline in [
        format!("file {log} | {stage} | keep message, tags | stdout"),
        folder.write(
            "p.yaml",
            format!(
                "pipelines: {{ p: {{ input: {{ file: {{ paths: ['{log}'], follow: false }} }}, \
                 processors: [{{ truncate: {{ fields: [message], max: 8B, suffix: … }} }}, keep: [message, tags]], \
                 output: stdout }} }}"
            ),
        ),
    ] {
        let ended = millpond(&["run", &pipeline, "--metrics"]).expect(0);
        assert_eq!(
            ended.out,
            "{\"message\":\"short\"}\n\
             {\"message\":\"a lon…\",\"tags\":[\"_truncated\"]}\n\
             {\"message\":\"anoth…\",\"tags\":[\"_truncated\"]}\n"
        );
        let row = ended.err.lines().find(|line| line.starts_with("truncate"));
        assert!(
            row.is_some_and(|row| row.ends_with("(truncated 2)")),
            "{}",
            ended.err
        );
    }
    let wrong = millpond(&["check", "stdin | truncate max=2 suffix=… | stdout"]).expect(2);
    for part in [
        "the suffix has 3 bytes, and `max` allows 2",
        "counts towards `max`",
        "suffix=…",
    ] {
        assert!(wrong.err.contains(part), "{part}: {}", wrong.err);
    }
}
