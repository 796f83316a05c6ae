//! `queue: kafka`: several machines that share the work of a pipeline, with a real broker.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::Value;
use testkit::kafka::KafkaBroker;

use crate::program::{Folder, millpond};
use crate::running::{Service, append, numbered};

/// A machine with some of the roles of the pipeline `app`. One that receives reads `NAME.log`; one that processes writes files with its name.
fn machine(folder: &Folder, broker: &KafkaBroker, name: &str, role: &str) -> Service {
    let yaml = format!(
        "data_dir: '{data}'
pipelines:
  app:
    input:
      file: {{ paths: ['{log}'] }}
    queue:
      kafka:
        brokers: '{broker}'
        roles: {role}
        max_record_bytes: 16KiB
        options: {{ session.timeout.ms: 6000 }}
    processors:
      - set: {{ fields: {{ id: '@metadata.id' }} }}
    outputs:
      - file: {{ name: all, path: '{all}' }}
      - file: {{ name: few, path: '{few}', if: 'message.matches(\"00$\")' }}
",
        data = folder.path(&format!("{name}.state")),
        log = folder.path(&format!("{name}.log")),
        all = folder.path(&format!("{name}.all.ndjson")),
        few = folder.path(&format!("{name}.few.ndjson")),
        broker = broker.address(),
    );
    let path = folder.write(&format!("{name}.yaml"), yaml);
    Service::start(folder, &["run", &path])
}

/// A field of all events in the files of these machines, each value once.
fn values(folder: &Folder, machines: &[&str], output: &str, field: &str) -> BTreeSet<String> {
    let mut values = BTreeSet::new();
    for machine in machines {
        let path = folder.path(&format!("{machine}.{output}.ndjson"));
        let out = std::fs::read_to_string(path).unwrap_or_default();
        // The last line may be half written.
        let whole = out.rfind('\n').map_or("", |end| &out[..end]);
        for line in whole.lines() {
            let event: Value = serde_json::from_str(line).expect("a JSON line");
            values.insert(event[field].as_str().expect("text").to_owned());
        }
    }
    values
}

#[test]
fn machines_share_the_work_and_lose_nothing_when_they_are_killed() {
    let Some(mut broker) = KafkaBroker::start() else {
        return;
    };
    let folder = Folder::new();
    // Several records together are larger than a request may be.
    let topic = ["--create", "--topic", "millpond.app", "--partitions", "4"];
    let limit = ["--config", "max.message.bytes=20000"];
    broker.command(
        "org.apache.kafka.tools.TopicCommand",
        &[&topic[..], &limit].concat(),
    );
    // What other programs put there is left out.
    let foreign = folder.write("foreign.log", "hello\n{}\n");
    let send = format!(
        "file {foreign} | kafka {} topic=millpond.app",
        broker.address()
    );
    millpond(&["run", &send]).expect(0);
    let mut expected = BTreeSet::new();
    let mut write = |name: &str, numbers: std::ops::Range<usize>| {
        let lines = numbered(name, numbers);
        append(&folder.path(&format!("{name}.log")), &lines);
        expected.extend(lines.lines().map(str::to_owned));
    };
    write("r1", 0..5000);
    write("r2", 0..5000);
    let first = machine(&folder, &broker, "r1", "receive");
    let second = machine(&folder, &broker, "r2", "receive");
    let busy = machine(&folder, &broker, "p1", "process");
    let both = ["p1", "p2"];
    let mut other = machine(&folder, &broker, "p2", "process");
    let some = || !values(&folder, &both, "all", "id").is_empty();
    other.until("some events", some);
    busy.kill();
    first.kill();
    write("r1", 5000..8000);
    broker.kill();
    write("r2", 5000..8000);
    std::thread::sleep(Duration::from_millis(500));
    broker.start_again();
    let first = machine(&folder, &broker, "r1", "receive");
    write("r1", 8000..10_000);
    let count = expected.len();
    let all = || values(&folder, &both, "all", "message").len() == count;
    other.until("every event", all);
    let few: BTreeSet<String> = expected
        .iter()
        .filter(|line| line.ends_with("00"))
        .cloned()
        .collect();
    let of_few = || values(&folder, &both, "few", "message").len() == few.len();
    other.until("every event of the second output", of_few);
    assert_eq!(values(&folder, &both, "all", "message"), expected);
    assert_eq!(values(&folder, &both, "few", "message"), few);
    let ids = values(&folder, &both, "all", "id").len();
    assert_eq!(ids, count, "repeats have the ids that they had");
    for service in [first, second, other] {
        let said = service.stop();
        assert!(!said.contains("not delivered"), "{said}");
        assert!(!said.contains("went to no output"), "{said}");
    }
}

#[test]
fn an_event_that_the_topic_does_not_take_becomes_a_dead_letter() {
    let Some(broker) = KafkaBroker::start() else {
        return;
    };
    let folder = Folder::new();
    let topic = ["--create", "--topic", "millpond.app"];
    let limit = ["--config", "max.message.bytes=9000"];
    broker.command(
        "org.apache.kafka.tools.TopicCommand",
        &[&topic[..], &limit].concat(),
    );
    // It is packed before the topic was asked for its limit.
    let lines = format!("first\n{}\nlast\n", "x".repeat(12_000));
    append(&folder.path("r1.log"), &lines);
    let mut both = machine(&folder, &broker, "r1", "receive,process");
    let data = folder.path("r1.state");
    let mut listed = String::new();
    both.until("a dead letter and the other events", || {
        let list = ["dead-letters", "list", "--json", "--data-dir", &data];
        listed = millpond(&list).out;
        !listed.is_empty() && values(&folder, &["r1"], "all", "message").len() == 2
    });
    assert!(
        listed.contains("a record of the topic may have"),
        "{listed}"
    );
    assert_eq!(listed.lines().count(), 1, "{listed}");
    both.stop();
}

#[test]
fn what_needs_all_events_in_one_place_is_refused() {
    let folder = Folder::new();
    let check = |pipeline: &str| {
        let yaml = format!(
            "pipelines:\n  web:\n    input: {{ generate: {{ format: apache }} }}\n{pipeline}"
        );
        let path = folder.write("t.yaml", yaml);
        millpond(&["check", &path])
    };
    let queue = "    queue: { kafka: { brokers: 'b:1' } }\n";
    for (rest, part) in [
        (
            "    processors: [{ dedupe: { fields: [a] } }]\n    output: discard\n",
            "`dedupe` needs all events in sequence",
        ),
        (
            "    output: { discard: { processors: [{ head: { count: 3 } }] } }\n",
            "`head` needs all events in sequence",
        ),
        (
            "    processors: [{ metric: { metric: hits, type: counter } }]\n    outputs: [discard, { discard: { name: b } }]\n",
            "count each event once for each output",
        ),
        (
            "    output: discard\n  web.discard:\n    input: { generate: { format: apache } }\n    output: discard\n",
            "is called `web.discard`, too",
        ),
        (
            "    output: discard\n  other:\n    input: { generate: { format: apache } }\n    queue: { kafka: { brokers: 'b:1', topic: millpond.web } }\n    output: discard\n",
            "already uses topic millpond.web",
        ),
    ] {
        let said = check(&format!("{queue}{rest}")).expect(2).err;
        assert!(said.contains(part), "{rest}: {said}");
    }
    for (queue, rest, parts) in [
        (
            queue,
            "    output: discard\n",
            &["web: generate", "web.discard: "][..],
        ),
        (
            "    queue: { kafka: { brokers: 'b:1', shared: true, roles: process } }\n",
            "    processors: [{ metric: { metric: hits, type: counter } }]\n    outputs: [discard, { discard: { name: b } }]\n",
            &["web.process: "],
        ),
    ] {
        let said = check(&format!("{queue}{rest}")).expect(0).out;
        for part in parts {
            assert!(said.contains(part), "{rest}: {said}");
        }
        assert_eq!(said.lines().count(), parts.len() + 1, "{said}");
    }
    // Senders hear that events are safe when the topic has them, however long an object takes.
    let yaml = format!(
        "data_dir: '{}'\npipelines:\n  web:\n    input: {{ http: {{ address: '127.0.0.1:8080' }} }}\n{queue}    output: {{ object_store: {{ url: '{}' }} }}\n",
        folder.path("data"),
        folder.path("objects"),
    );
    millpond(&["check", &folder.write("late.yaml", yaml)]).expect(0);
}
