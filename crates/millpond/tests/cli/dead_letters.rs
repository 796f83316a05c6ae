//! What outputs refuse and processors cannot handle becomes dead letters, which are shown, delivered later and removed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use serde_json::Value;
use testkit::http::{Answer, HttpServer, Taken};

use crate::program::{Ended, Folder, millpond, run};
use crate::running::{Mount, Service, append, eventually, numbered};

/// A folder with a log, a server that refuses what is `poison` until it is mended, and a file that takes everything.
pub struct World {
    pub folder: Folder,
    pub server: HttpServer,
    is_mended: Arc<AtomicBool>,
    pub data: String,
}

impl World {
    pub fn new(log: &str) -> Self {
        let is_mended = Arc::new(AtomicBool::new(false));
        let seen = is_mended.clone();
        let folder = Folder::new();
        folder.write("app.log", log);
        std::fs::create_dir(folder.path("data")).expect("a writable folder");
        let behaviour =
            move |taken: &Taken, _| match taken.text().contains("poison") && !seen.load(SeqCst) {
                true => Answer::new(400).body("mapper: cannot parse"),
                false => Answer::new(200),
            };
        Self {
            data: folder.path("data"),
            server: HttpServer::start(behaviour),
            folder,
            is_mended,
        }
    }

    pub fn mend(&self) {
        self.is_mended.store(true, SeqCst);
    }

    /// A service that sends the log to the server and to the file.
    pub fn yaml(&self, settings: &str, processors: &str) -> String {
        let yaml = format!(
            "data_dir: '{data}'
pipelines:
  one:
    input: {{ file: {{ paths: ['{log}'] }} }}
    {settings}
    processors: [{processors}]
    outputs:
      - http: {{ name: web, url: '{url}', batch: {{ max_events: 20 }} }}
      - file: {{ path: '{out}' }}
    retry: {{ initial: 20ms, max: 100ms, give_up_after: 20s }}
",
            data = self.data,
            log = self.folder.path("app.log"),
            url = self.server.url(),
            out = self.folder.path("out.ndjson"),
        );
        self.folder.write("service.yaml", yaml)
    }

    pub fn start(&self, yaml: &str) -> Service {
        Service::start(&self.folder, &["run", yaml])
    }

    /// `millpond dead-letters`, with the data directory.
    pub fn letters(&self, args: &[&str]) -> Ended {
        let (command, rest) = args.split_first().expect("a command");
        let all = ["dead-letters", command, "--data-dir", &self.data];
        millpond(&[&all[..], rest].concat())
    }

    pub fn list(&self) -> Vec<Value> {
        self.letters(&["list", "--json"]).expect(0).events()
    }

    /// The lines that the file has.
    pub fn lines(&self) -> Vec<Value> {
        let out = std::fs::read_to_string(self.folder.path("out.ndjson")).unwrap_or_default();
        let whole = out.rfind('\n').map_or("", |end| &out[..end]);
        let lines = whole.lines();
        lines
            .map(|line| serde_json::from_str(line).expect("a JSON line"))
            .collect()
    }

    /// The messages that the server took.
    pub fn taken(&self) -> Vec<String> {
        let taken = self.server.taken().into_iter();
        let bodies = taken.filter(|taken| taken.status == 200);
        let events = bodies.flat_map(|taken| {
            let text = taken.text();
            let lines = text.lines();
            lines
                .map(|line| serde_json::from_str(line).expect("JSON"))
                .collect::<Vec<Value>>()
        });
        let text = |event: Value| event["message"].as_str().expect("text").to_owned();
        events.map(text).collect()
    }
}

const POISON: &str = "a poison one\nfine\nthe poison two\n";

#[test]
fn what_an_output_refuses_goes_to_that_output_only() {
    for queue in ["", "queue: disk"] {
        let world = World::new(&(numbered("a", 0..100) + POISON));
        let mut service = world.start(&world.yaml(queue, ""));
        service.until("the letters", || world.list().len() == 2);
        service.until("the file", || world.lines().len() == 103);
        service.until("the server", || world.taken().len() == 101);
        // The halves of the request that held both were answered in any order.
        let list = world.list();
        let first = |event: &Value| event["message"] == "a poison one";
        let letter = list.iter().find(|letter| first(&letter["event"]));
        let letter = letter.expect("a letter of the first");
        assert_eq!(
            (&letter["pipeline"], &letter["role"], &letter["component"]),
            (&"one".into(), &"output".into(), &"web".into())
        );
        let reason = letter["reason"].as_str().expect("a text");
        assert!(reason.contains("mapper: cannot parse"), "{reason}");
        assert_eq!(letter["attempts"], 1);
        let table = world.letters(&["list"]).expect(0).out;
        assert!(table.contains("output web") && table.contains("2 dead letters"));
        let number = letter["number"].to_string();
        let shown = world.letters(&["show", &number]).expect(0).out;
        assert!(shown.contains(letter["id"].as_str().expect("a text")));
        assert!(shown.contains("a poison one"), "{shown}");
        let exported = world.letters(&["export"]).expect(0).events();
        assert_eq!(exported.len(), 2);
        assert!(exported.iter().any(first), "{exported:?}");
        if queue.is_empty() {
            eventually("the ledger", || {
                let files = millpond(&["files", "--json", "--data-dir", &world.data]);
                files.expect(0).events()[0]["dead_letters"] == 2
            });
        }
        // It is refused again: one letter for each event all the same.
        let again = world.letters(&["replay"]);
        if queue.is_empty() {
            let again = again.expect(1);
            assert!(
                again
                    .out
                    .contains("0 delivered, 2 became dead letters again, 0 left"),
                "{}",
                again.out
            );
        }
        service.until("letters of a second attempt", || {
            let list = world.list();
            list.len() == 2 && list.iter().all(|letter| letter["attempts"] == 2)
        });
        world.mend();
        let replayed = world.letters(&["replay", "--reason", "mapper"]).expect(0);
        assert!(replayed.out.contains("one: 2 "), "{}", replayed.out);
        service.until("the server has all", || world.taken().len() == 103);
        service.until("no letters", || world.list().is_empty());
        assert_eq!(world.lines().len(), 103, "the file does not get them again");
        let said = service.stop();
        assert!(said.contains("it is kept as a dead letter"), "{said}");
        assert_eq!(world.taken().len(), 103);
        // Nothing comes again in a later run.
        let service = world.start(&world.folder.path("service.yaml"));
        std::thread::sleep(std::time::Duration::from_millis(500));
        service.stop();
        assert_eq!((world.taken().len(), world.list().len()), (103, 0));
    }
}

#[test]
fn without_a_data_directory_refused_events_are_told_at_the_end() {
    let world = World::new(POISON);
    let pipeline = format!(
        "file {} | http {} batch.max_events=1",
        world.folder.path("app.log"),
        world.server.url()
    );
    let ended = run(&pipeline).expect(1);
    assert!(
        ended
            .err
            .contains("it is lost, because `data_dir` is not set"),
        "{}",
        ended.err
    );
    assert!(
        ended
            .err
            .contains("error: 2 events were rejected by outputs and lost"),
        "{}",
        ended.err
    );
    assert_eq!(world.taken(), ["fine"]);
    // With one it is no failure, and the table has a column for them.
    let args = ["run", &pipeline, "--data-dir", &world.data, "--metrics"];
    let ended = millpond(&args).expect(0);
    let heads = ended
        .err
        .lines()
        .find(|line| line.contains("events in"))
        .expect("a table");
    let output = ended
        .err
        .lines()
        .find(|line| line.starts_with("http"))
        .expect("a row");
    let column = |line: &str| {
        let end = heads.find("dead letters").expect("a column") + "dead letters".len();
        line[..end]
            .split_whitespace()
            .next_back()
            .expect("a cell")
            .to_owned()
    };
    assert_eq!(column(output), "2", "{}", ended.err);
    assert_eq!(world.list().len(), 2);
}

#[test]
fn what_a_processor_cannot_handle_goes_on_there_or_from_the_start() {
    let world = World::new("1 ok\nbroken\n2 ok\nbroken too\n");
    let processors = |first: &str, pattern: &str| {
        format!(
            "{{ set: {{ values: {{ first: {first} }} }} }}, {{ grok: {{ pattern: '{pattern}', on_failure: dead_letter }} }}, {{ set: {{ values: {{ last: x }} }} }}"
        )
    };
    let yaml = world.yaml("", &processors("old", "^%{NUMBER:n:int} ok"));
    let mut service = world.start(&yaml);
    service.until("the letters", || world.list().len() == 2);
    service.until("the others", || world.lines().len() == 2);
    service.stop();
    let list = world.list();
    let letter = &list[0];
    assert_eq!(
        (&letter["role"], &letter["component"]),
        (&"processor".into(), &"grok".into())
    );
    assert_eq!(letter["position"], 2);
    assert_eq!(letter["tag"], "_grokparsefailure");
    let event = &letter["event"];
    assert_eq!(event["first"], "old");
    assert!(
        event.get("tags").is_none() && event.get("last").is_none(),
        "{event}"
    );
    // It fails again: what it was is not lost for that.
    let again = world.letters(&["replay", &yaml]).expect(1);
    assert!(
        again
            .out
            .contains("0 delivered, 2 became dead letters again, 0 left"),
        "{}{}",
        again.out,
        again.err
    );
    let list = world.list();
    assert_eq!((list.len(), &list[0]["attempts"]), (2, &2.into()));
    let mended = world.yaml("", &processors("new", "^(%{NUMBER:n:int} ok|broken)"));
    let number = list[0]["number"].to_string();
    let one = world
        .letters(&["replay", "--number", &number, &mended])
        .expect(0);
    assert!(
        one.out
            .contains("1 delivered, 0 became dead letters again, 0 left"),
        "{}",
        one.out
    );
    let rest = world
        .letters(&["replay", "--from-start", &mended])
        .expect(0);
    assert!(rest.out.contains("1 delivered"), "{}", rest.out);
    assert!(world.list().is_empty());
    let lines = world.lines();
    assert_eq!(lines.len(), 4, "{lines:?}");
    let fields = |line: &Value| {
        let field = |name: &str| line[name].as_str().expect("a text").to_owned();
        (field("message"), field("first"), field("last"))
    };
    let text = |message: &str, first: &str| (message.to_owned(), first.to_owned(), "x".to_owned());
    assert_eq!(fields(&lines[2]), text("broken", "old"));
    assert_eq!(fields(&lines[3]), text("broken too", "new"));
    assert_eq!(
        world.taken().len(),
        4,
        "a processor's letter goes to all outputs"
    );
}

#[test]
fn dead_letters_of_processors_need_a_data_directory() {
    let refused = run("generate apache count=1 | grok x on_failure=dead_letter | stdout").expect(2);
    assert!(
        refused.err.contains("`data_dir` is not set"),
        "{}",
        refused.err
    );
    let folder = Folder::new();
    let yaml = folder.write(
        "small.yaml",
        "dead_letters: { max_bytes: 1KiB }\npipelines: { one: { input: { stdin: {} }, output: { discard: {} } } }\n",
    );
    let refused = millpond(&["check", &yaml]).expect(2);
    assert!(
        refused
            .err
            .contains("`max_bytes` of `dead_letters` must be at least"),
        "{}",
        refused.err
    );
}

#[test]
fn an_output_that_writes_refuses_one_event_and_takes_the_others() {
    let folder = Folder::new();
    let long = "x".repeat(300);
    let log = folder.write("app.log", format!("a\n{long}\nb\n"));
    let data = folder.path("data");
    let pipeline = format!("file {log} | file {}/%{{message}}.out", folder.path("by"));
    let ended = millpond(&["run", &pipeline, "--data-dir", &data]).expect(0);
    assert!(
        ended.err.contains("it is kept as a dead letter"),
        "{}",
        ended.err
    );
    assert_eq!(folder.read("by/a.out").lines().count(), 1);
    assert_eq!(folder.read("by/b.out").lines().count(), 1);
    let list = millpond(&["dead-letters", "list", "--json", "--data-dir", &data]).expect(0);
    let list = list.events();
    assert_eq!(list.len(), 1);
    assert_eq!(
        (&list[0]["component"], &list[0]["event"]["message"]),
        (&"file".into(), &long.into())
    );
}

#[test]
fn an_output_that_is_away_or_gone_leaves_the_letters() {
    let mut world = World::new(POISON);
    let yaml = world.yaml("", "");
    let mut service = world.start(&yaml);
    service.until("the letters", || world.list().len() == 2);
    service.stop();
    // Nobody listens there any more.
    world.server = world.server.stopped();
    let short = world.folder.read("service.yaml").replace("20s", "300ms");
    let short = world.folder.write("short.yaml", short);
    let failed = world.letters(&["replay", &short]).expect(1);
    assert!(
        failed
            .out
            .contains("0 delivered, 0 became dead letters again, 2 left"),
        "{}{}",
        failed.out,
        failed.err
    );
    assert_eq!(world.list().len(), 2);
    // The output has another name now: what was asked for cannot be done, and says so.
    let other = world
        .folder
        .read("service.yaml")
        .replace("name: web", "name: other");
    let other = world.folder.write("other.yaml", other);
    let failed = world.letters(&["replay", &other]).expect(1);
    assert!(
        failed
            .err
            .contains("output web is no longer in the configuration"),
        "{}",
        failed.err
    );
    assert_eq!(world.list().len(), 2);
    let renamed = world
        .folder
        .read("service.yaml")
        .replace("  one:", "  two:");
    let renamed = world.folder.write("renamed.yaml", renamed);
    let failed = world.letters(&["replay", &renamed]).expect(2);
    assert!(
        failed.err.contains("has no pipeline `one`"),
        "{}",
        failed.err
    );
    let failed = world.letters(&["list", "--pipeline", "three"]).expect(2);
    assert!(
        failed.err.contains("pipelines with dead letters: `one`"),
        "{}",
        failed.err
    );
    let failed = world.letters(&["show", "77"]).expect(2);
    assert!(failed.err.contains("no dead letter 77"), "{}", failed.err);
}

#[test]
fn letters_are_chosen_and_removed_with_and_without_a_service() {
    for is_running in [true, false] {
        let log: String = (0..6).map(|n| format!("poison {n}\n")).collect();
        let world = World::new(&log);
        let mut service = world.start(&world.yaml("", ""));
        service.until("the letters", || world.list().len() == 6);
        let service = match is_running {
            true => Some(service),
            false => {
                service.stop();
                None
            }
        };
        let count = |args: &[&str]| {
            let args = [&["list", "--json"], args].concat();
            world.letters(&args).expect(0).events().len()
        };
        for (args, expected) in [
            (&["--limit", "4"][..], 4),
            (&["--reason", "cannot parse"], 6),
            (&["--reason", "something else"], 0),
            (&["--component", "web"], 6),
            (&["--pipeline", "one"], 6),
            (&["--since", "1h"], 6),
            (&["--until", "1h"], 0),
            (
                &[
                    "--since",
                    "2020-01-01T00:00:00Z",
                    "--until",
                    "2100-01-01T00:00:00Z",
                ],
                6,
            ),
        ] {
            assert_eq!(count(args), expected, "{args:?}");
        }
        let refused = world.letters(&["purge"]).expect(2);
        assert!(refused.err.contains("or use --all"), "{}", refused.err);
        let purged = world.letters(&["purge", "--limit", "2"]).expect(0);
        assert!(
            purged.out.contains("2 dead letters were removed"),
            "{}",
            purged.out
        );
        let left = world.list();
        let numbers: Vec<_> = left.iter().map(|letter| &letter["number"]).collect();
        assert_eq!(numbers, [2, 3, 4, 5], "the oldest went");
        world.letters(&["purge", "--all"]).expect(0);
        assert_eq!(count(&[]), 0);
        if let Some(service) = service {
            service.stop();
        }
        assert_eq!(count(&[]), 0);
    }
}

#[test]
fn a_request_without_a_service_waits_for_its_start() {
    let world = World::new(POISON);
    let yaml = world.yaml("", "");
    let mut service = world.start(&yaml);
    service.until("the letters", || world.list().len() == 2);
    service.stop();
    world.mend();
    let asked = world.letters(&["replay"]).expect(1);
    assert!(
        asked.out.contains("will be replayed when one starts"),
        "{}",
        asked.out
    );
    assert_eq!(world.list().len(), 2);
    let service = world.start(&yaml);
    eventually("the letters are delivered", || world.list().is_empty());
    service.stop();
    assert_eq!(world.taken().len(), 3);
}

#[test]
fn a_full_disk_makes_the_output_wait_and_no_other() {
    let Some(disk) = Mount::memory("16M") else {
        return;
    };
    let mut world = World::new("fine\n");
    world.data = disk.path("data");
    let mut service = world.start(&world.yaml("", ""));
    service.until("the first event", || world.taken().len() == 1);
    let filler = disk.fill();
    append(&world.folder.path("app.log"), POISON);
    service.until_said("dead letters cannot be written");
    service.until("the file has all", || world.lines().len() == 4);
    service.until("the server has the rest", || world.taken().len() == 2);
    assert!(world.list().is_empty());
    std::fs::remove_file(filler).expect("removed");
    service.until("the letters", || world.list().len() == 2);
    service.stop();
}
