//! The processor `metric`: what it makes of events, and where that is seen.

use std::fs;

use serde_json::{Value, json};

use crate::api::{ask, get, on_a_free_port, port};
use crate::program::{Folder, millpond};
use crate::running::{Service, append};

const LINES: usize = 40_000;

fn lines(folder: &Folder, name: &str) -> usize {
    let text = fs::read_to_string(folder.path(name)).unwrap_or_default();
    text.lines().count()
}

/// The value of a sample of `/metrics`.
fn sample(text: &str, name: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim_start().parse().ok()
}

#[test]
fn every_event_is_measured_once_though_an_output_lags_behind() {
    let folder = Folder::new();
    let line = |number: usize| {
        let (status, took) = (200 + number % 2, number % 4);
        format!(
            "{{\"n\":{number},\"status\":{status},\"took\":{took},\"more\":\"{number:0200}\"}}\n"
        )
    };
    let text: String = (0..LINES).map(line).collect();
    let input = folder.write("in.ndjson", &text);
    folder.write("away", "a file in the place of a folder");
    let metric = |settings: Value| json!({ "metric": settings });
    let configuration = json!({
        "data_dir": folder.path("state"),
        "api": on_a_free_port(),
        "pipelines": {
            "web": {
                "input": { "file": { "paths": [input] } },
                "queue": { "disk": { "segment_bytes": "64KiB", "cache_bytes": "64KiB" } },
                "processors": [
                    metric(json!({ "metric": "requests", "by": ["code = status"], "help": "What \"came\"." })),
                    metric(json!({ "metric": "took_seconds", "type": "histogram", "value": "took", "buckets": [1, 2] })),
                    metric(json!({ "metric": "last", "type": "gauge", "value": "n", "if": "status == 200" })),
                ],
                "outputs": [
                    { "file": { "path": folder.path("one"), "name": "one" } },
                    { "file": { "path": folder.path("away/two"), "name": "two" } },
                ],
            },
            "numbers": {
                "input": { "metrics": { "every": "1s" } },
                "processors": [{ "where": "millpond.kind == 'metric'" }],
                "output": { "file": { "path": folder.path("numbers") } },
            },
        },
    });
    let path = folder.write("service.yaml", configuration.to_string());
    let mut service = Service::start(&folder, &["run", &path]);
    let port = port(&mut service);
    service.until("the first output", || lines(&folder, "one") == LINES);
    fs::remove_file(folder.path("away")).expect("it is there");
    service.until("the second output", || lines(&folder, "away/two") == LINES);

    let text = get(port, "/metrics").text().to_owned();
    let read_back = "millpond_operator_occurrences_total{pipeline=\"web\",role=\"queue\",operator=\"disk\",kind=\"read_back\"}";
    assert!(
        sample(&text, read_back).is_some_and(|events| events > 0.0),
        "{text}"
    );
    let half = (LINES / 2) as f64;
    for (name, expected) in [
        ("requests_total{pipeline=\"web\",code=\"200\"}", half),
        ("requests_total{pipeline=\"web\",code=\"201\"}", half),
        ("took_seconds_bucket{pipeline=\"web\",le=\"1\"}", half),
        ("took_seconds_bucket{pipeline=\"web\",le=\"2\"}", half * 1.5),
        (
            "took_seconds_bucket{pipeline=\"web\",le=\"+Inf\"}",
            half * 2.0,
        ),
        ("took_seconds_sum{pipeline=\"web\"}", half * 3.0),
        ("took_seconds_count{pipeline=\"web\"}", half * 2.0),
    ] {
        assert_eq!(sample(&text, name), Some(expected), "{name}");
    }
    assert!(sample(&text, "last{pipeline=\"web\"}").is_some_and(|last| last % 2.0 == 0.0));
    assert!(text.contains("# HELP requests_total What \"came\".\n# TYPE requests_total counter\n"));
    let open = ask(
        port,
        "GET /metrics",
        "Accept: application/openmetrics-text\r\n",
    );
    assert!(
        open.text()
            .contains("# HELP requests What \\\"came\\\".\n# TYPE requests counter\n")
    );
    assert!(
        open.text()
            .contains("took_seconds_bucket{pipeline=\"web\",le=\"1.0\"} 20000\n")
    );

    let documents = || -> Vec<Value> {
        let text = fs::read_to_string(folder.path("numbers")).unwrap_or_default();
        let whole = text.lines().filter(|line| line.ends_with('}'));
        whole
            .map(|line| serde_json::from_str::<Value>(line).expect("JSON")["millpond"].take())
            .collect()
    };
    let expected = [
        json!({ "kind": "metric", "pipeline": "web", "operator": "metric", "name": "requests", "type": "counter", "labels": { "code": "201" }, "value": half }),
        json!({ "kind": "metric", "pipeline": "web", "operator": "metric #2", "name": "took_seconds", "type": "histogram", "labels": {}, "sum": half * 3.0,
                "count": LINES, "bounds": [1.0, 2.0], "bucket_counts": [LINES / 2, LINES / 4, LINES / 4] }),
    ];
    service.until("the documents", || {
        expected.iter().all(|it| documents().contains(it))
    });

    // A reload that changes the pipeline begins anew, and one that does not leaves everything.
    let changed = configuration
        .to_string()
        .replace("\"took_seconds\"", "\"seconds\"");
    folder.write("service.yaml", changed);
    assert_eq!(ask(port, "POST /api/v1/reload", "").status, 200);
    append(&folder.path("in.ndjson"), &line(0));
    let name = "requests_total{pipeline=\"web\",code=\"200\"}";
    let now = || get(port, "/metrics").text().to_owned();
    service.until("the next event", || sample(&now(), name) == Some(1.0));
    assert!(!now().contains("took_seconds"));
    assert_eq!(ask(port, "POST /api/v1/reload", "").status, 200);
    assert_eq!(sample(&now(), name), Some(1.0));
    service.end();
}

#[test]
fn metrics_of_one_name_must_be_alike() {
    let folder = Folder::new();
    let pipeline = |stages: &str| {
        format!("{{ input: {{ udp: 127.0.0.1:0 }}, processors: [{stages}], output: discard }}")
    };
    let check = |first: &str, second: &str| {
        let text = format!(
            "pipelines:\n  a: {}\n  a/b: {}\n",
            pipeline(first),
            pipeline(second)
        );
        millpond(&["check", &folder.write("a.yaml", text)])
    };
    let alike = "metric: { metric: a, by: [x] }";
    check(alike, &alike.replace("metric: a", "metric: a_total")).expect(0);
    for (first, second, message) in [
        (
            alike,
            "metric: { metric: a }",
            "pipeline `a` has a metric `a` of another type, or with other labels",
        ),
        (
            alike,
            "metric: { metric: a, by: [x], type: gauge, value: y }",
            "of another type",
        ),
        (
            "metric: other",
            &*format!("{alike}, {alike}"),
            "a second metric of this pipeline is called `a`",
        ),
        (
            alike,
            "metric: { metric: a_total, type: gauge, value: y }",
            "`a_total` would also stand for the counter `a` of pipeline `a`",
        ),
        (
            "metric: { metric: a, type: histogram, value: y }",
            "metric: { metric: a_count, type: gauge, value: y }",
            "`a_count` would also stand for the histogram `a`",
        ),
    ] {
        let said = check(first, second).expect(2).err;
        assert!(said.contains(message), "{second}: {said}");
    }
}

#[test]
fn the_end_of_a_run_tells_what_was_measured() {
    let folder = Folder::new();
    let text: String = (0..100)
        .map(|n| format!("{{\"n\":{n},\"took\":0.25}}\n"))
        .collect();
    let input = folder.write("in.ndjson", text);
    let pipeline = format!(
        "file {input} | metric events by=[n] | metric took type=histogram value=took | discard"
    );
    let said = millpond(&["run", &pipeline, "--metrics"]).expect(0).err;
    for line in [
        "events{n=\"0\"} 1\n",
        "events … and 50 more\n",
        "took count 100 sum 25\n",
    ] {
        assert!(said.contains(line), "{line}: {said}");
    }
}
