//! The inputs that make events of what Millpond does itself: `metrics` and `internal_log`.

use std::fs;

use serde_json::{Value, json};

use crate::posting::free_port;
use crate::program::{Folder, millpond};
use crate::running::Service;

/// What was written so far, whole lines only.
fn events(path: &str) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap_or_default();
    let whole = text.lines().filter(|line| line.ends_with('}'));
    whole
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect()
}

#[test]
fn counters_and_messages_become_events() {
    let folder = Folder::new();
    let [metrics, log] = ["metrics.ndjson", "log.ndjson"].map(|name| folder.path(name));
    let away = format!("http://127.0.0.1:{}/", free_port());
    let configuration = json!({
        "data_dir": folder.path("state"),
        "api": false,
        "shutdown_deadline": "2s",
        "pipelines": {
            "web": {
                "input": { "generate": { "format": "apache", "count": 50 } },
                "queue": "disk",
                "processors": [{ "set": { "fields": { "a": "1" } } }],
                "outputs": [{ "http": { "url": away, "name": "archive" } }, "discard"],
            },
            "numbers": { "input": { "metrics": { "every": "1s" } }, "output": { "file": { "path": metrics } } },
            "messages": {
                "input": "internal_log",
                // What is said of this output makes no events.
                "outputs": [{ "file": { "path": log } }, { "http": { "url": away, "name": "mirror" } }],
            },
        },
    });
    let path = folder.write("own.yaml", configuration.to_string());
    let mut service = Service::start(&folder, &["run", &path]);
    let of_kind = |kind: &str| -> Vec<Value> {
        let all = events(&metrics).into_iter();
        all.filter(|event| event["millpond"]["kind"] == kind)
            .collect()
    };
    service.until("two looks", || of_kind("process").len() >= 2);
    let is_warning =
        |event: &Value| event["component"] == "output archive" && event["level"] == "warn";
    service.until("a warning", || events(&log).iter().any(is_warning));
    // Its last events are not delivered: their output is away.
    let (_, said) = service.end();
    assert!(said.contains("output mirror"), "{said}");

    let process = &of_kind("process")[0];
    assert!(
        process["millpond"]["cpu_seconds"]
            .as_f64()
            .is_some_and(|cpu| cpu > 0.0)
    );
    assert!(
        process["host"]["name"].is_string() && process["@timestamp"].is_string(),
        "{process}"
    );
    let last = |kind: &str, is_it: &dyn Fn(&Value) -> bool| -> Value {
        let mut all = of_kind(kind)
            .into_iter()
            .map(|mut event| event["millpond"].take());
        all.rfind(|it| it["pipeline"] == "web" && is_it(it))
            .expect("it is there")
    };
    assert_eq!(last("pipeline", &|_| true)["events_in"], 50);
    let set = last("operator", &|it| it["name"] == "set");
    assert_eq!(
        (&set["role"], &set["events_out"]),
        (&json!("processor"), &json!(50))
    );
    assert_eq!(last("queue", &|_| true)["kind_of_queue"], "disk");
    let archive = last("output", &|it| it["name"] == "archive");
    assert!(
        archive["reason"]
            .as_str()
            .is_some_and(|it| it.contains("cannot connect")),
        "{archive}"
    );

    let messages = events(&log);
    let warning = messages.iter().find(|it| is_warning(it)).expect("one");
    assert_eq!(warning["pipeline"], "web");
    assert!(
        warning["message"]
            .as_str()
            .is_some_and(|it| it.contains("cannot connect")),
        "{warning}"
    );
    let text = |event: &Value| event["message"].as_str().unwrap_or_default().to_owned();
    assert!(
        messages.iter().any(|it| text(it).contains("started")),
        "also what was said before"
    );
    assert!(
        messages.iter().all(|it| it["pipeline"] != "messages"),
        "{messages:?}"
    );
}

#[test]
fn what_never_ends_cannot_be_measured() {
    for stage in ["metrics", "internal_log"] {
        let ended = millpond(&["bench", &format!("{stage} | discard")]).expect(2);
        assert!(ended.err.contains("never ends"), "{}", ended.err);
    }
    let ended = millpond(&["check", "metrics every=1ms | discard"]).expect(2);
    assert!(
        ended.err.contains("`every` is at least 1s"),
        "{}",
        ended.err
    );
    let ended = millpond(&["check", "internal_log level=warn | discard"]).expect(2);
    assert!(ended.err.contains("level"), "{}", ended.err);
}
