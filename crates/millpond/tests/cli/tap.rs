//! Live events of a running pipeline: `millpond tap`, and the paths of the API that it uses.

use std::io::{BufRead, BufReader, Read};
use std::process::Child;
use std::thread::{sleep, spawn};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::api::{Answer, ask, expect_described, get, on_a_free_port, port};
use crate::program::{Ended, Folder, command, ended, millpond};
use crate::running::{Service, append, eventually, numbered};

/// What an ordinary program of the machine may not see.
#[test]
fn events_are_shown_to_the_own_user_alone() {
    let it = Tapped::start(&on_a_free_port());
    let folder = Folder::new();
    let user = crate::unprivileged::Unprivileged::new(&folder);
    let (api, url) = (it.port.to_string(), format!("http://127.0.0.1:{}", it.port));
    for address in [&api, &url] {
        let mut tap = user.command();
        let output = tap.args(["tap", "web", "--api", address]).output();
        let refused = ended(output.expect("runs")).expect(2);
        let reason = "without `api.token`, events are shown only to programs of the user";
        assert!(refused.err.contains(reason), "{}", refused.err);
    }
    let mut top = user.command();
    let shown = top.args(["top", "--once", "--interval", "100ms", "--api", &api]);
    ended(shown.output().expect("runs")).expect(0);
}

const LINES: &str = "GET /index 200\nPOST /form 500\nnonsense\n";

/// A service that follows a log, and is fed while somebody looks.
struct Tapped {
    folder: Folder,
    service: Service,
    port: u16,
    log: String,
}

/// The pipeline, with this pattern.
fn web(log: &str, out: &str, pattern: &str) -> Value {
    json!({
        "input": { "file": { "paths": [log] } },
        "processors": [
            { "grok": { "pattern": pattern } },
            { "drop": { "if": "method == 'POST'" } },
            { "set": { "fields": { "@metadata.kept": "'here'" } } },
        ],
        "outputs": [{ "file": { "path": out, "name": "out" } }, { "discard": {} }],
    })
}

const PATTERN: &str = "%{WORD:method} %{NOTSPACE:path} %{INT:status:int}";

impl Tapped {
    fn start(api: &Value) -> Self {
        let folder = Folder::new();
        let log = folder.write("log", LINES);
        let web = web(&log, &folder.path("out"), PATTERN);
        let pipelines = json!({
            "web": web,
            "other": { "input": { "generate": { "format": "apache", "rate": 1 } }, "output": "discard" },
        });
        let configuration = json!({ "api": api, "pipelines": pipelines });
        let path = folder.write("service.yaml", configuration.to_string());
        let mut service = Service::start(&folder, &["run", &path]);
        let port = port(&mut service);
        service.until("the pipelines", || get(port, "/ready").status == 200);
        Self {
            folder,
            service,
            port,
            log,
        }
    }

    fn spawn(&self, args: &[&str]) -> Child {
        let api = self.port.to_string();
        let args = [&["tap", "--api", &api], args].concat();
        command(&args).spawn().expect("the executable runs")
    }

    /// What is shown, while the log grows.
    fn shows(&self, args: &[&str]) -> Ended {
        let mut child = self.spawn(args);
        eventually("the end", || {
            append(&self.log, LINES);
            sleep(Duration::from_millis(20));
            child.try_wait().expect("a child").is_some()
        });
        ended(child.wait_with_output().expect("it has ended"))
    }

    fn open(&self, query: &str) -> Answer {
        ask(self.port, &format!("POST /api/v1/tap?{query}"), "")
    }

    /// The key of a tap.
    fn key(&self, query: &str) -> String {
        let opened = self.open(query);
        assert_eq!(opened.status, 201, "{}", opened.text());
        opened.json()["tap"].as_str().expect("a key").to_owned()
    }

    fn poll(&self, key: &str, rest: &str) -> Value {
        let answer = get(self.port, &format!("/api/v1/tap?tap={key}{rest}"));
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.json()
    }
}

#[test]
fn events_are_shown_around_an_operator() {
    let tapped = Tapped::start(&on_a_free_port());
    let shows = |args: &[&str]| {
        let rest = ["--count", "9", "--rate", "1000"];
        tapped.shows(&[args, &rest].concat()).expect(0)
    };
    let has = |event: &Value, field: &str| event.get(field).is_some();
    for (point, fields) in [
        ("web:file", false),
        ("web:grok", true),
        ("web:processor:grok", true),
        ("web:drop", true),
        ("web:output:out", true),
        ("web", true),
    ] {
        let shown = shows(&[point]);
        assert_eq!(shown.events().len(), 9, "{point}");
        let gets = shown.events();
        let mut gets = gets.iter().filter(|event| {
            event["message"]
                .as_str()
                .is_some_and(|it| it.starts_with("GET"))
        });
        let first = gets.next().expect("one of three");
        assert_eq!(has(first, "method"), fields, "{point}: {first}");
        assert!(!has(first, "@metadata"), "{first}");
        assert!(shown.err.contains("shown"), "{}", shown.err);
    }
    for point in ["web:grok", "web"] {
        let shown = shows(&[point, "--before"]);
        assert!(!shown.events().iter().any(|event| has(event, "method")));
    }
    let posts = |shown: &Ended| shown.out.contains("POST");
    assert!(posts(&shows(&["web:drop", "--before"])) && !posts(&shows(&["web:drop"])));
    let shown = shows(&["web", "--metadata"]);
    let event = &shown.events()[0];
    assert_eq!(event["@metadata"]["kept"], "here", "{event}");
    let path = &event["@metadata"]["log"]["file"]["path"];
    assert_eq!(path, &json!(tapped.log), "{event}");
    assert!(has(&event["@metadata"], "id"), "{event}");
}

#[test]
fn events_are_shown_for_which_an_expression_is_true() {
    let tapped = Tapped::start(&on_a_free_port());
    let shows = |args: &[&str]| {
        let rest = ["--count", "5", "--rate", "1000"];
        tapped.shows(&[args, &rest].concat()).expect(0)
    };
    let shown = shows(&["web:grok", "--if", "status >= 500"]);
    let is_post = |event: &Value| event["method"] == "POST";
    assert!(shown.events().iter().all(is_post), "{}", shown.out);
    // As the events come to the operator, there is no status.
    let fields = ["method", "status", "path"];
    let shown = shows(&["web:grok", "--before", "--if", "message.contains('POST')"]);
    for event in shown.events() {
        assert!(
            fields.iter().all(|field| event.get(field).is_none()),
            "{event}"
        );
        assert_eq!(event["message"], "POST /form 500");
    }
    let shown = shows(&["web:drop", "--diff", "--if", "method == 'POST'"]);
    let heads = shown.out.lines().filter(|line| !line.is_empty());
    assert!(
        heads.clone().all(|line| line.ends_with("dropped by drop")),
        "{}",
        shown.out
    );
    assert_eq!(heads.count(), 5);
    let key = tapped.key("pipeline=web&operator=grok&if=status+%3E+999");
    let other = tapped.key("pipeline=web&operator=grok");
    append(&tapped.log, LINES);
    eventually("events", || tapped.poll(&other, "")["passed"] != json!(0));
    let poll = tapped.poll(&key, "");
    assert_eq!((&poll["events"], &poll["matched"]), (&json!([]), &json!(0)));
    let long = format!("message == '{}'", "x".repeat(65_000));
    let refused = millpond(&["tap", "web", "--api", "1", "--if", &long]).expect(2);
    let reason = "the expression of a tap has at most 16,384 bytes, and this has 65,013 bytes";
    assert!(refused.err.contains(reason), "{}", refused.err);
    assert!(refused.err.len() < 1000, "{}", refused.err);
    let wrong = millpond(&["tap", "web", "--api", "1", "--if", "status >="]).expect(2);
    assert!(wrong.err.contains("--> --if:1:"), "{}", wrong.err);
    let refused = tapped.open("pipeline=web&if=status+%3E%3D");
    assert_eq!(refused.status, 400);
    assert!(refused.text().contains("--if"), "{}", refused.text());
}

#[test]
fn events_that_are_too_large_are_told_of() {
    let tapped = Tapped::start(&on_a_free_port());
    let mut child = tapped.spawn(&[
        "web:grok",
        "--diff",
        "--count",
        "1",
        "--if",
        "size(message) > 100",
    ]);
    let key = tapped.key("pipeline=web&operator=grok&show=both");
    let mut err = BufReader::new(child.stderr.take().expect("piped"));
    let reading = spawn(move || {
        let mut said = String::new();
        err.read_line(&mut said).expect("a line");
        (err, said)
    });
    // Before and after it take more than there is room for.
    let large = format!("{}\n", "x".repeat(3 << 20));
    eventually("a warning", || {
        append(&tapped.log, &large);
        sleep(Duration::from_millis(200));
        reading.is_finished()
    });
    assert_ne!(tapped.poll(&key, "")["too_large"], json!(0));
    let (mut err, mut said) = reading.join().expect("it was read");
    assert!(
        said.starts_with("warning: ") && said.contains("larger than 2.0 MiB"),
        "{said}"
    );
    let small = format!("{}\n", "x".repeat(200));
    eventually("the end", || {
        append(&tapped.log, &small);
        sleep(Duration::from_millis(200));
        child.try_wait().expect("a child").is_some()
    });
    assert!(child.wait().expect("it ends").success());
    err.read_to_string(&mut said).expect("text");
    assert!(said.contains("too large"), "{said}");
}

#[test]
fn nobody_waits_for_a_pipeline_that_does_not_start_again() {
    let folder = Folder::new();
    let api = crate::posting::free_port().to_string();
    let pipeline = "generate apache count=400 rate=200 | discard";
    let mut service = Service::start(&folder, &["run", pipeline, "--api", &api]);
    service.until("the API", || {
        std::net::TcpStream::connect(format!("127.0.0.1:{api}")).is_ok()
    });
    let shown = millpond(&["tap", "main", "--api", &api]).expect(1);
    assert!(!shown.out.is_empty());
    let is_over = shown.err.contains("error: the pipeline `main` has ended");
    assert!(
        is_over || shown.err.contains("error: Millpond has stopped"),
        "{}",
        shown.err
    );
    assert!(!shown.err.contains("may start it again"), "{}", shown.err);
    service.until_ended(0);
}

#[test]
fn a_diff_shows_what_an_operator_did() {
    let tapped = Tapped::start(&on_a_free_port());
    let shows = |point: &str| {
        let args = [point, "--diff", "--count", "30", "--rate", "1000"];
        tapped.shows(&args).expect(0).out
    };
    let grok = shows("web:grok");
    let id = grok.split(' ').nth(1).expect("an id behind the time");
    assert!(id.ends_with(':') && id.len() > 20, "{grok}");
    for part in [
        ": changed\n+ method: \"GET\"\n+ path: \"/index\"\n+ status: 200\n\n",
        ": failed, _grokparsefailure: ",
        "+ tags: [\"_grokparsefailure\"]\n",
    ] {
        assert!(grok.contains(part), "{part:?} in {grok}");
    }
    assert!(!grok.contains("\n~ "), "{grok}");
    let drop = shows("web:drop");
    let heads = drop.lines().filter(|line| !line.is_empty());
    assert!(
        heads
            .clone()
            .all(|line| line.ends_with(": dropped by drop")),
        "{drop}"
    );
    assert_eq!(heads.count(), 30, "{drop}");
    let web = shows("web");
    for part in [": dropped by drop\n\n", "+ status: 200\n"] {
        assert!(web.contains(part), "{part:?} in {web}");
    }
}

#[test]
fn answers_are_as_described() {
    let tapped = Tapped::start(&on_a_free_port());
    let description = get(tapped.port, "/api/v1/openapi.json").json();
    let path = "/api/v1/tap";
    let check = |method: &str, query: &str| {
        let request = format!("{} {path}?{query}", method.to_uppercase());
        let answer = ask(tapped.port, &request, "");
        assert!(answer.status < 300, "{}", answer.text());
        expect_described(
            &description,
            path,
            &description["paths"][path][method],
            &answer,
        );
        answer.json()
    };
    let opened = check("post", "pipeline=web&operator=grok&show=both");
    let key = opened["tap"].as_str().expect("a key");
    append(&tapped.log, LINES);
    let poll = check("get", &format!("tap={key}&wait=20"));
    let event = &poll["events"][0];
    assert_eq!(
        (&event["number"], &event["outcome"]),
        (&json!(1), &json!("changed"))
    );
    check("delete", &format!("tap={key}"));
}

#[test]
fn what_cannot_be_tapped_is_said() {
    let tapped = Tapped::start(&on_a_free_port());
    let api = tapped.port.to_string();
    let fails = |args: &[&str]| {
        let args = [&["tap"], args].concat();
        millpond(&args).expect(2).err
    };
    for (args, parts) in [
        (
            &["wbe", "--api", &api][..],
            &["no pipeline `wbe`", "did you mean `web`", "web, other"][..],
        ),
        (
            &["web:gork", "--api", &api],
            &["did you mean `grok`", "file, grok, drop, set, out, discard"],
        ),
        (
            &["web:discard", "--diff", "--api", &api],
            &["`discard` is no processor"],
        ),
        (
            &["web", "--api", "1"],
            &["no Millpond answers at http://127.0.0.1:1/", "`--api 9610`"],
        ),
        (&["web", "--api", "nonsense"], &["--api is not an address"]),
        (&["web", "--rate", "0"], &["--rate"]),
        (&["web", "--before", "--diff"], &["cannot be used with"]),
    ] {
        let said = fails(args);
        for part in parts {
            assert!(said.contains(part), "{part:?} in {said}");
        }
    }
    for (query, status) in [
        ("", 400),
        ("pipeline=web&show=all", 400),
        ("pipeline=web&rate=1001", 400),
        ("pipeline=web&metadata=1", 400),
        ("pipeline=x", 404),
    ] {
        assert_eq!(tapped.open(query).status, status, "{query}");
    }
    for (query, reason) in [
        (
            "pipeline=web&rat=5",
            "there is no parameter `rat`, did you mean `rate`?",
        ),
        ("pipeline=web&rate=5&rate=6", "`rate` is given twice"),
    ] {
        let refused = tapped.open(query);
        assert_eq!(refused.status, 400, "{query}");
        assert!(refused.text().contains(reason), "{}", refused.text());
    }
    let unknown = get(tapped.port, "/api/v1/tap?tap=x&since=1");
    assert_eq!(unknown.status, 400, "{}", unknown.text());
    assert_eq!(get(tapped.port, "/api/v1/tap?tap=x").status, 404);
    assert_eq!(get(tapped.port, "/api/v1/tap?tap=x&wait=21").status, 400);
}

#[test]
fn events_are_shown_to_those_who_have_the_token() {
    let folder = Folder::new();
    let token = folder.write("token", "right\n");
    let wrong = folder.write("wrong", "mistaken\n");
    let api = json!({ "address": "127.0.0.1:0", "token": format!("file:{token}") });
    let tapped = Tapped::start(&api);
    for args in [&["web"][..], &["web", "--token-file", &wrong]] {
        let refused = tapped.shows(args).expect(2);
        let said = &refused.err;
        assert!(
            said.contains("wrong or missing token") && said.contains("--token-file"),
            "{said}"
        );
        assert_eq!(refused.out, "");
    }
    let refused = tapped.open("pipeline=web");
    assert_eq!(refused.status, 401);
    let shown = tapped.shows(&["web", "--token-file", &token, "--count", "1"]);
    assert_eq!(shown.expect(0).events().len(), 1);
}

#[test]
fn an_interrupt_ends_it_well() {
    let tapped = Tapped::start(&on_a_free_port());
    let child = tapped.spawn(&["other", "--rate", "1"]);
    let nothing = tapped.spawn(&["other", "--if", "message == ''"]);
    // It handles signals before it connects, and a tap is open when there are events.
    sleep(Duration::from_secs(2));
    let pid = Pid::from_child(&child);
    kill_process(pid, Signal::INT).expect("it runs");
    let ended = ended(child.wait_with_output().expect("it ends")).expect(0);
    assert!(!ended.events().is_empty(), "{}", ended.err);
    assert!(ended.err.contains("shown"), "{}", ended.err);
    // What has passed is known even if nothing was shown.
    kill_process(Pid::from_child(&nothing), Signal::INT).expect("it runs");
    let said = nothing.wait_with_output().expect("it ends").stderr;
    let said = String::from_utf8_lossy(&said);
    let among = said.split_once("0 of 0 events shown for which --if is true, among ");
    assert!(
        among.is_some_and(|(_, rest)| !rest.starts_with('0')),
        "{said}"
    );
}

#[test]
fn whoever_looks_learns_of_the_end() {
    let tapped = Tapped::start(&on_a_free_port());
    let child = tapped.spawn(&["web:grok"]);
    let key = tapped.key("pipeline=other&rate=1000");
    eventually("an event", || {
        tapped.poll(&key, "&wait=1")["passed"] != json!(0)
    });
    sleep(Duration::from_secs(1));
    tapped.service.stop();
    let ended = ended(child.wait_with_output().expect("it ends")).expect(1);
    let said = &ended.err;
    assert!(said.contains("error: Millpond has stopped"), "{said}");
}

#[test]
fn a_pipeline_waits_for_nobody_who_looks() {
    let mut tapped = Tapped::start(&on_a_free_port());
    let key = tapped.key("pipeline=web&operator=grok&show=both&rate=1000");
    const COUNT: usize = 40_000;
    for batch in 0..4 {
        let lines = numbered("more", batch * COUNT / 4..(batch + 1) * COUNT / 4);
        append(&tapped.log, &lines);
        sleep(Duration::from_millis(1100));
    }
    let out = tapped.folder.path("out");
    let count = || {
        std::fs::read_to_string(&out)
            .unwrap_or_default()
            .lines()
            .count()
    };
    tapped.service.until("every event", || count() == COUNT + 2);
    let poll = tapped.poll(&key, "");
    let events = poll["events"].as_array().expect("a list");
    assert!(
        events.len() <= 1000 && !events.is_empty(),
        "{}",
        events.len()
    );
    let number = |key: &str| poll[key].as_u64().expect("a number") as usize;
    assert!(number("passed") >= COUNT, "{}", number("passed"));
    assert!(number("skipped") > 0 && number("skipped") <= 5000, "{poll}");
    let last = events.last().expect("some")["number"]
        .as_u64()
        .expect("one");
    let rest = tapped.poll(&key, &format!("&after={last}"));
    assert_eq!(rest["events"], json!([]));
}

#[test]
fn an_expensive_expression_does_not_slow_a_pipeline_down() {
    let mut tapped = Tapped::start(&on_a_free_port());
    const COUNT: u64 = 20_000;
    let pattern = |digits| format!("message.matches(\"(a|b|c).*(x|y).*[0-9]{{{digits}}}\")");
    let patterns: Vec<String> = (2..12).map(pattern).collect();
    let expression = patterns.join(" || ");
    let condition: String = form_urlencoded::byte_serialize(expression.as_bytes()).collect();
    let key = tapped.key(&format!("pipeline=web&operator=out&if={condition}"));
    let lines = ("abcxyz".repeat(200) + "\n").repeat(COUNT as usize);
    append(&tapped.log, &lines);
    let port = tapped.port;
    let poll = || get(port, &format!("/api/v1/tap?tap={key}")).json();
    let number = |poll: &Value, key: &str| poll[key].as_u64().expect("a number");
    let passed = || number(&poll(), "passed");
    tapped.service.until("every event", || passed() >= COUNT);
    let end = poll();
    let looked_at = number(&end, "looked_at");
    assert!((1..COUNT * 3 / 4).contains(&looked_at), "{end}");
    assert_eq!(number(&end, "matched"), 0, "{end}");
}

#[test]
fn there_are_so_many_taps_and_those_that_nobody_asks_are_closed() {
    let tapped = Tapped::start(&on_a_free_port());
    let keys: Vec<String> = (0..16).map(|_| tapped.key("pipeline=web")).collect();
    let refused = tapped.open("pipeline=web");
    assert_eq!(refused.status, 429, "{}", refused.text());
    let asked = &keys[0];
    let close = ask(
        tapped.port,
        &format!("DELETE /api/v1/tap?tap={}", keys[1]),
        "",
    );
    assert_eq!(close.status, 200);
    assert_eq!(tapped.open("pipeline=web").status, 201);
    assert_eq!(tapped.open("pipeline=web").status, 429);
    eventually("room", || {
        tapped.poll(asked, "");
        sleep(Duration::from_millis(500));
        tapped.open("pipeline=web").status == 201
    });
    tapped.poll(asked, "");
    let gone = get(tapped.port, &format!("/api/v1/tap?tap={}", keys[2]));
    assert_eq!(gone.status, 404, "{}", gone.text());
}

#[test]
fn a_tap_goes_on_after_a_reload() {
    let mut tapped = Tapped::start(&on_a_free_port());
    let (log, out) = (tapped.log.clone(), tapped.folder.path("out"));
    let reload = |pipeline: Value| {
        let configuration = json!({ "api": on_a_free_port(), "pipelines": { "web": pipeline } });
        tapped
            .folder
            .write("service.yaml", configuration.to_string());
        let answer = ask(tapped.port, "POST /api/v1/reload", "");
        assert_eq!(answer.status, 200, "{}", answer.text());
    };
    let key = tapped.key("pipeline=web&operator=grok");
    let child = tapped.spawn(&["web:grok"]);
    // It is open before the pipeline is replaced.
    sleep(Duration::from_secs(1));
    reload(web(&log, &out, "%{WORD:verb} %{NOTSPACE:path}"));
    let mut after = 0;
    eventually("an event of the new one", || {
        append(&log, LINES);
        let poll = tapped.poll(&key, &format!("&after={after}&wait=1"));
        let events = poll["events"].as_array().expect("a list");
        after = events
            .last()
            .map_or(after, |it| it["number"].as_u64().expect("one"));
        events.iter().any(|event| event["after"]["verb"] == "GET")
    });
    let mut without = web(&log, &out, PATTERN);
    without["processors"] = json!([{ "set": { "fields": { "a": "1" } } }]);
    reload(without);
    let poll = tapped.poll(&key, &format!("&after={after}&wait=20"));
    assert_eq!(poll["state"], "gone", "{poll}");
    let ended = ended(child.wait_with_output().expect("it ends")).expect(1);
    for part in ["has started again", "no operator `grok`", "set, out"] {
        assert!(ended.err.contains(part), "{part:?} in {}", ended.err);
    }
    let key = tapped.key("pipeline=web");
    let pipelines = json!({ "new": { "input": { "generate": { "format": "apache", "rate": 1 } }, "output": "discard" } });
    let configuration = json!({ "api": on_a_free_port(), "pipelines": pipelines });
    tapped
        .folder
        .write("service.yaml", configuration.to_string());
    tapped.service.signal(Signal::HUP);
    tapped.service.until_said("configuration reloaded");
    eventually("the end", || {
        tapped.poll(&key, "&wait=1")["state"] == "gone"
    });
}
