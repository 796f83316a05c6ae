//! Processors below an output: routing, shapes that differ, failures, dead letters, and queues.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

use serde_json::Value;
use testkit::http::{Answer, HttpServer, Taken};

use crate::dead_letters::World;
use crate::program::{Folder, millpond};
use crate::running::{Service, append, ledger};

const LEVELS: [&str; 4] = ["INFO", "ERROR", "DEBUG", "WARN"];

/// Lines of which each has one of four levels.
fn levels(count: usize) -> String {
    (0..count)
        .map(|number| format!("{} line {number}\n", LEVELS[number % 4]))
        .collect()
}

fn events(folder: &Folder, name: &str) -> Vec<Value> {
    folder
        .read(name)
        .lines()
        .map(|line| serde_json::from_str(line).expect("a JSON line"))
        .collect()
}

#[test]
fn events_are_routed_by_level_into_files() {
    let folder = Folder::new();
    let log = folder.write("app.log", levels(4000));
    let yaml = format!(
        r#"
pipelines:
  app:
    input: {{ file: {{ paths: ["{log}"], follow: false }} }}
    processors:
      - dissect: "%{{level}} %{{text}}"
      - set: '@metadata.route = "kept"'
    outputs:
      - file:
          path: "{errors}"
          name: errors
          processors:
            - where level == "ERROR" || level == "WARN"
            - set route = @metadata.route
            - remove message, host, log
      - file: {{ path: "{debug}", name: debug, if: level == "DEBUG", processors: [{{ rename: level -> severity }}] }}
      - file: {{ path: "{all}", name: all }}
"#,
        errors = folder.path("errors.ndjson"),
        debug = folder.path("debug.ndjson"),
        all = folder.path("all.ndjson"),
    );
    let path = folder.write("app.yaml", yaml);
    let checked = millpond(&["check", &path]).expect(0);
    let flow = "app: file | dissect | set | (where | set | remove | errors), (rename | debug), all";
    assert!(checked.out.contains(flow), "{}", checked.out);
    let ended = millpond(&["run", &path, "--metrics"]).expect(0);
    let errors = events(&folder, "errors.ndjson");
    assert_eq!(errors.len(), 2000);
    for (index, event) in errors.iter().enumerate() {
        let number = 1 + 2 * index;
        assert_eq!(event["level"], LEVELS[number % 4]);
        assert_eq!(event["text"], format!("line {number}"), "in order");
        assert_eq!(event["route"], "kept");
        let names = ["message", "host", "log", "severity"];
        assert!(
            names.iter().all(|name| event.get(name).is_none()),
            "{event}"
        );
    }
    let debug = events(&folder, "debug.ndjson");
    assert_eq!(debug.len(), 1000);
    assert!(debug.iter().all(|event| {
        event["severity"] == "DEBUG"
            && event.get("level").is_none()
            && event.get("message").is_some()
    }));
    let all = events(&folder, "all.ndjson");
    assert_eq!(all.len(), 4000);
    assert!(all.iter().all(|event| {
        event.get("level").is_some()
            && event.get("route").is_none()
            && event.get("message").is_some()
    }));
    for (name, numbers) in [("errors/where", "4,000"), ("errors/remove", "2,000")] {
        let row = ended
            .err
            .lines()
            .find(|line| line.trim_start().starts_with(name));
        let row = row.unwrap_or_else(|| panic!("no row {name}: {}", ended.err));
        assert!(row.contains(numbers), "{row}");
    }
}

#[test]
fn mistakes_below_an_output_are_told_at_their_place() {
    let folder = Folder::new();
    let check = |output: &str| {
        let yaml = format!("pipelines:\n  one:\n    input: stdin\n    output:\n      {output}\n");
        let path = folder.write("bad.yaml", yaml);
        millpond(&["check", &path]).expect(2).err
    };
    for (output, said) in [
        ("stdout: { processors: [where] }", "outputs"),
        (
            "stdout: { processors: [wher a == 1] }",
            "did you mean `where`",
        ),
        ("stdout: { processors: [where a ==] }", "bad.yaml:5:"),
        ("stdout: { processors: [stdin] }", "`stdin` is an input"),
        (
            "stdout: { processors: [{ set: { value: x } }] }",
            "bad.yaml:5:",
        ),
        (
            "stdout: { procesors: [] }",
            "name, if, otherwise, processors",
        ),
        (
            "stdout: { processors: [{ grok: { pattern: x, on_failure: dead_letter } }] }",
            "`data_dir` is not set",
        ),
    ] {
        let err = check(output);
        let is_told = said == "outputs" || err.contains(said);
        assert!(is_told && err.contains("bad.yaml:5:"), "{output}: {err}");
    }
}

/// The outputs `web`, with processors, and a file that takes everything as it came.
fn yaml(world: &World, queue: &str, pattern: &str) -> String {
    let yaml = format!(
        "data_dir: '{data}'
pipelines:
  one:
    input: {{ file: {{ paths: ['{log}'] }} }}
    {queue}
    processors:
      - set id = @metadata.id
    outputs:
      - http:
          name: web
          url: '{url}'
          batch: {{ max_events: 100 }}
          processors:
            - set first = \"yes\"
            - grok: {{ pattern: '{pattern}', on_failure: dead_letter }}
            - set last = \"yes\"
      - file: {{ path: '{out}' }}
    retry: {{ initial: 20ms, max: 100ms, give_up_after: 20s }}
",
        data = world.data,
        log = world.folder.path("app.log"),
        url = world.server.url(),
        out = world.folder.path("out.ndjson"),
    );
    world.folder.write("service.yaml", yaml)
}

#[test]
fn what_fails_below_an_output_goes_on_there_and_nowhere_else() {
    for queue in ["", "queue: disk"] {
        let world = World::new("1 ok\nbroken\n2 ok\nbroken too\n");
        let strict = yaml(&world, queue, "^%{NUMBER:n:int} ok");
        let mut service = world.start(&strict);
        service.until("the letters", || world.list().len() == 2);
        service.until("the others", || world.taken().len() == 2);
        service.until("the file", || world.lines().len() == 4);
        let list = world.list();
        let letter = &list[0];
        assert_eq!(
            (&letter["role"], &letter["component"], &letter["position"]),
            (&"processor".into(), &"web/grok".into(), &2.into())
        );
        let event = &letter["event"];
        assert_eq!(
            (&event["message"], &event["first"]),
            (&"broken".into(), &"yes".into())
        );
        assert!(
            event.get("last").is_none() && event.get("tags").is_none(),
            "{event}"
        );
        let table = world
            .letters(&["list", "--component", "web/grok"])
            .expect(0)
            .out;
        assert!(table.contains("processor web/grok"), "{table}");
        if queue.is_empty() {
            // The input may remember that they were handled.
            crate::running::eventually("the ledger", || {
                let row = &ledger(&world.data)[0];
                row["in_flight_events"] == 0 && row["dead_letters"] == 2
            });
        }
        service.stop();
        let from_start = world
            .letters(&["replay", "--from-start", &strict])
            .expect(1);
        let both = from_start.out + &from_start.err;
        assert!(
            both.contains("cannot be replayed through the whole pipeline"),
            "{both}"
        );
        let mended = yaml(&world, queue, "^(%{NUMBER:n:int} ok|broken)");
        world.letters(&["replay", &mended]).expect(0);
        assert!(world.list().is_empty());
        let taken: Vec<String> = world.taken();
        assert!(
            taken[2..].iter().all(|text| text.starts_with("broken")),
            "{taken:?}"
        );
        let bodies: String = world.server.taken().iter().map(Taken::text).collect();
        assert_eq!(
            bodies.matches("\"last\":\"yes\"").count(),
            4,
            "they went on there"
        );
        assert_eq!(world.lines().len(), 4, "the other output had them");
    }
}

#[test]
fn a_letter_whose_processor_is_gone_stays() {
    let world = World::new("1 ok\nbroken\n");
    let strict = yaml(&world, "", "^%{NUMBER:n:int} ok");
    let mut service = world.start(&strict);
    service.until("the letter", || world.list().len() == 1);
    service.stop();
    let without = world
        .folder
        .read("service.yaml")
        .replace("grok: {", "drop: { if: 'false' } #");
    world.folder.write("service.yaml", without);
    let told = world.letters(&["replay", &strict]).expect(1);
    let both = told.out + &told.err;
    assert!(
        both.contains("processor grok (number 2) of output web is no longer in the configuration"),
        "{both}"
    );
    assert_eq!(world.list().len(), 1);
}

#[test]
fn kills_lose_nothing_that_goes_through_processors_of_an_output() {
    const COUNT: usize = 40_000;
    let line = |number: usize| match number % 5 {
        0 => format!("broken {number}\n"),
        _ => format!("{number} ok\n"),
    };
    for queue in ["", "queue: disk"] {
        let world = World::new(&(0..COUNT).map(line).collect::<String>());
        let yaml = yaml(&world, queue, "^%{NUMBER:n:int} ok");
        for pause in [150, 300, 200] {
            let service = world.start(&yaml);
            thread::sleep(Duration::from_millis(pause));
            service.kill();
        }
        let mut service = world.start(&yaml);
        let messages = |lines: Vec<Value>| -> BTreeSet<String> {
            let text = |line: Value| line["message"].as_str().expect("a text").to_owned();
            lines.into_iter().map(text).collect()
        };
        let taken = || world.taken().into_iter().collect::<BTreeSet<_>>();
        service.until("the file", || messages(world.lines()).len() == COUNT);
        service.until("the letters", || world.list().len() >= COUNT / 5);
        service.until("the server", || taken().len() == COUNT - COUNT / 5);
        service.stop();
        let letters = world.list();
        assert_eq!(letters.len(), COUNT / 5, "one for each event");
        let ids: BTreeSet<&str> = letters
            .iter()
            .filter_map(|one| one["id"].as_str())
            .collect();
        assert_eq!(ids.len(), COUNT / 5);
        assert!(taken().iter().all(|text| text.ends_with(" ok")));
    }
}

#[test]
fn a_processor_that_takes_the_first_events_ends_the_run_when_no_output_wants_more() {
    let folder = Folder::new();
    let yaml = folder.write(
        "some.yaml",
        format!(
            "pipelines:\n  one:\n    input: {{ generate: {{ format: apache, count: 100M }} }}\n    outputs:\n      - file: {{ path: '{}', name: a, processors: [head 5] }}\n      - file: {{ path: '{}', name: b, processors: [head 2, remove message] }}\n",
            folder.path("a.ndjson"),
            folder.path("b.ndjson"),
        ),
    );
    let run = millpond(&["run", &yaml]);
    run.expect(0);
    assert_eq!(events(&folder, "a.ndjson").len(), 5);
    let b = events(&folder, "b.ndjson");
    assert_eq!(b.len(), 2);
    assert!(b.iter().all(|event| event.get("message").is_none()));
}

#[test]
fn an_output_that_was_away_has_its_processors_do_their_work_later() {
    const COUNT: usize = 40_000;
    let status = Arc::new(AtomicU16::new(503));
    let answer = status.clone();
    let server = HttpServer::start(move |_, _| Answer::new(answer.load(SeqCst)));
    let folder = Folder::new();
    let (log, out) = (folder.path("app.log"), folder.path("out.ndjson"));
    folder.write("app.log", levels(COUNT / 2));
    let yaml = folder.write(
        "service.yaml",
        format!(
            "data_dir: '{data}'
pipelines:
  one:
    input: file {log}
    queue: {{ disk: {{ cache_bytes: 256KiB }} }}
    processors:
      - dissect \"%{{level}} %{{text}}\"
    outputs:
      - http:
          url: '{url}'
          processors: [where level == \"ERROR\", set late = \"yes\"]
      - file {out}
    retry: {{ initial: 20ms, max: 100ms }}
",
            data = folder.path("data"),
            url = server.url(),
        ),
    );
    let lines = || {
        let out = std::fs::read_to_string(&out).unwrap_or_default();
        out.matches('\n').count()
    };
    let mut service = Service::start(&folder, &["run", &yaml]);
    service.until("the file", || lines() >= COUNT / 2);
    // From here on the input repeats nothing.
    let acknowledged = || ledger(&folder.path("data"))[0]["acknowledged_events"].as_u64();
    service.until("positions", || acknowledged() == Some(COUNT as u64 / 2));
    service.kill();
    append(&log, &levels(COUNT / 2));
    let mut service = Service::start(&folder, &["run", &yaml]);
    service.until("the file", || lines() >= COUNT);
    status.store(200, SeqCst);
    let taken = || -> Vec<Value> {
        let bodies = server.taken().into_iter();
        let bodies = bodies.filter(|taken| taken.status == 200);
        let texts = bodies.map(|taken| taken.text());
        let parse = |text: String| -> Vec<Value> {
            let parsed = text.lines().map(serde_json::from_str);
            parsed.map(|event| event.expect("JSON")).collect()
        };
        texts.flat_map(parse).collect()
    };
    service.until("the server", || taken().len() >= COUNT / 4);
    service.stop();
    let taken = taken();
    assert_eq!(taken.len(), COUNT / 4, "none twice");
    assert!(
        taken
            .iter()
            .all(|event| event["level"] == "ERROR" && event["late"] == "yes")
    );
    assert!(!folder.read("out.ndjson").contains("\"late\""));
}
