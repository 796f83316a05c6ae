//! The inputs that make events of what Millpond does itself: `metrics` and `internal_log`.

use std::fs;
use std::thread::sleep;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::posting::free_port;
use crate::program::{Folder, command, millpond};
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
    let is_why = |it: &str| it.contains("cannot connect") && !it.contains("(os error");
    assert!(archive["reason"].as_str().is_some_and(is_why), "{archive}");

    let messages = events(&log);
    let warning = messages.iter().find(|it| is_warning(it)).expect("one");
    assert_eq!(warning["pipeline"], "web");
    assert!(warning["message"].as_str().is_some_and(is_why), "{warning}");
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
fn messages_of_what_ships_them_make_no_events() {
    let folder = Folder::new();
    let (web, mail, log) = (free_port(), free_port(), folder.path("log.ndjson"));
    let away = |port: u16| format!("http://127.0.0.1:{port}/");
    let configuration = |path: &str| {
        let configuration = json!({
            "api": false,
            "shutdown_deadline": "2s",
            "pipelines": {
                "messages": {
                    "input": "internal_log",
                    "processors": [{ "set": { "fields": { "a": format!("'{path}'") } } }],
                    "outputs": [
                        { "file": { "path": log } },
                        { "http": { "url": away(web), "name": "mirror" } },
                        { "pipeline": "further" },
                    ],
                },
                "further": { "input": "pipeline", "output": { "pipeline": "last" } },
                "last": { "input": "pipeline", "output": { "http": { "url": away(mail), "name": "mail" } } },
            },
        });
        folder.write("own.yaml", configuration.to_string())
    };
    let path = configuration("1");
    let mut command = command(&["run", &path]);
    command.env("RUST_LOG", "trace");
    let mut service = Service::spawn(&folder, command);
    service.until_said("output mail: ");
    service.until_said("output mirror: ");
    let text = |event: &Value| event["message"].as_str().unwrap_or_default().to_owned();
    service.until("a first event", || !events(&log).is_empty());
    // Once it is reloaded, it tells of that, and of nothing twice.
    configuration("2");
    service.signal(Signal::HUP);
    let is_reload = |event: &Value| text(event).contains("configuration reloaded, version 2");
    service.until("the reload", || events(&log).iter().any(is_reload));
    sleep(Duration::from_secs(1));
    let (_, said) = service.end();
    let all = events(&log);
    let libraries = said.lines().filter(|line| line.starts_with("TRACE "));
    assert!(libraries.count() > 0, "{said}");
    let is_of_them = |event: &&Value| event["pipeline"].is_string() || event["library"].is_string();
    assert_eq!(all.iter().filter(is_of_them).count(), 0, "{all:#?}");
    assert!(all.len() < 40, "{all:#?}");
    let mut texts: Vec<String> = all
        .iter()
        .map(|event| format!("{} {}", event["@timestamp"], text(event)))
        .collect();
    texts.sort();
    let count = texts.len();
    texts.dedup();
    assert_eq!(texts.len(), count, "{texts:#?}");
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
