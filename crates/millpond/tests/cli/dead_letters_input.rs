//! The input `dead_letters`: dead letters go where an output writes, and are gone from the data directory when they are there.

use std::collections::BTreeSet;
use std::fs;
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::program::{Folder, millpond};
use crate::running::{Service, append};

/// A pipeline `web` that cannot handle every third line, and one that takes its dead letters.
struct World {
    folder: Folder,
    data: String,
    log: String,
}

impl World {
    fn new() -> Self {
        let folder = Folder::new();
        let data = folder.path("data");
        fs::create_dir(&data).expect("a folder");
        Self {
            data,
            log: folder.write("app.log", ""),
            folder,
        }
    }

    fn yaml(&self, input: &Value) -> String {
        let lake = self.folder.path("lake");
        let configuration = json!({
            "data_dir": self.data,
            "pipelines": {
                "web": {
                    "input": { "file": { "paths": [self.log] } },
                    "processors": [
                        { "grok": { "pattern": "^%{NUMBER:n:int} ok", "on_failure": "dead_letter" } },
                    ],
                    "output": "discard",
                },
                "rejected": {
                    "input": { "dead_letters": input },
                    "output": { "object_store": {
                        "url": lake, "path": "of=%{dead_letter.pipeline}", "max_age": "200ms",
                    } },
                },
            },
        });
        self.folder.write("service.yaml", configuration.to_string())
    }

    fn write(&self, numbers: std::ops::Range<usize>) {
        let line = |number: usize| match number % 3 {
            0 => format!("broken {number}\n"),
            _ => format!("{number} ok\n"),
        };
        append(&self.log, &numbers.map(line).collect::<String>());
    }

    /// The events in the objects.
    fn taken(&self) -> Vec<Value> {
        let mut events = Vec::new();
        let lake = self.folder.path("lake/of=web");
        for object in fs::read_dir(lake).into_iter().flatten() {
            let path = object.expect("an entry").path();
            if path.extension().is_some_and(|extension| extension == "gz") {
                let bytes = fs::read(&path).expect("an object");
                let mut text = String::new();
                let mut reader = flate2::read::MultiGzDecoder::new(&bytes[..]);
                std::io::Read::read_to_string(&mut reader, &mut text).expect("gzip");
                events.extend(
                    text.lines()
                        .map(|line| -> Value { serde_json::from_str(line).expect("JSON") }),
                );
            }
        }
        events
    }

    fn left(&self) -> usize {
        let listed = millpond(&["dead-letters", "list", "--json", "--data-dir", &self.data]);
        listed.expect(0).out.lines().count()
    }
}

fn message(event: &Value) -> String {
    event["message"].as_str().expect("a text").to_owned()
}

#[test]
fn dead_letters_go_to_an_output_and_are_gone() {
    let world = World::new();
    let mut service = Service::start(&world.folder, &["run", &world.yaml(&json!({}))]);
    world.write(0..30);
    service.until("the events", || world.taken().len() == 10);
    service.until("no letters", || world.left() == 0);
    world.write(30..60);
    service.until("more events", || world.taken().len() == 20);
    service.until("no letters", || world.left() == 0);
    service.stop();
    let event = world.taken().swap_remove(0);
    let letter = &event["dead_letter"];
    assert_eq!(letter["pipeline"], "web", "{event}");
    assert_eq!(
        (&letter["role"], &letter["component"], &letter["attempts"]),
        (&json!("processor"), &json!("grok"), &json!(1)),
        "{event}"
    );
    assert!(letter["reason"].is_string() && letter["time"].is_string());
    assert!(message(&event).starts_with("broken"));
    let requests = fs::read_dir(world.folder.path("data/dead-letters/web/requests"));
    assert_eq!(requests.expect("a folder").count(), 0);
}

#[test]
fn young_dead_letters_stay() {
    let world = World::new();
    let yaml = world.yaml(&json!({ "min_age": "2s", "pipelines": ["web"] }));
    let mut service = Service::start(&world.folder, &["run", &yaml]);
    world.write(0..3);
    service.until("a letter", || world.left() == 1);
    assert_eq!(world.taken().len(), 0);
    service.until("the event", || world.taken().len() == 1);
    service.until("no letters", || world.left() == 0);
    service.stop();
}

#[test]
fn kills_lose_no_dead_letter() {
    const COUNT: usize = 30_000;
    let world = World::new();
    let yaml = world.yaml(&json!({}));
    world.write(0..COUNT);
    for pause in [300, 600, 900, 1200, 1500, 700] {
        let service = Service::start(&world.folder, &["run", &yaml]);
        thread::sleep(Duration::from_millis(pause));
        service.kill();
    }
    let mut service = Service::start(&world.folder, &["run", &yaml]);
    let messages = || -> BTreeSet<String> { world.taken().iter().map(message).collect() };
    service.until("the events", || messages().len() == COUNT / 3);
    service.until("no letters", || world.left() == 0);
    service.stop();
}

#[test]
fn a_one_line_pipeline_takes_what_is_there() {
    let world = World::new();
    let mut service = Service::start(
        &world.folder,
        &["run", &world.yaml(&json!({ "min_age": "1d" }))],
    );
    world.write(0..3000);
    service.until("the letters", || world.left() == 1000);
    service.stop();
    let run = |pipeline: &str| millpond(&["run", "--data-dir", &world.data, pipeline]).expect(0);
    assert_eq!(
        run("dead_letters pipelines=[other] | stdout codec=json").out,
        ""
    );
    let printed = run("dead_letters | stdout codec=json").out;
    assert_eq!(printed.lines().count(), 1000, "{printed}");
    assert_eq!(world.left(), 0);
}

#[test]
fn what_cannot_work_is_refused() {
    for (pipeline, said) in [
        ("dead_letters | discard", "`data_dir` is not set"),
        ("dead_letters pipelines=[] | discard", "the list is empty"),
    ] {
        let ended = millpond(&["check", pipeline]).expect(2);
        assert!(ended.err.contains(said), "{}", ended.err);
    }
}
