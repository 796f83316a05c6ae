//! The input `redis` with a real server, which is killed, and whose connections are cut, while Millpond is killed too.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use serde_json::Value;
use testkit::cutter::Cutter;

use crate::program::{Folder, millpond, run};
use crate::redis_output::Redis;
use crate::running::{Service, eventually, numbered};

/// A service that takes what is under `logs` and writes it to a file with the ids of the events. The folder is its own.
fn receive(own: &Folder, out: &str, address: SocketAddr, settings: &str) -> Service {
    let yaml = format!(
        "pipelines:
  one:
    input:
      redis: {{ hosts: '{address}', key: logs, password: secret, {settings} }}
    processors:
      - set: {{ fields: {{ id: '@metadata.id' }} }}
    outputs:
      - file: {{ path: '{out}' }}
",
    );
    let path = own.write("reader.yaml", yaml);
    Service::start(own, &["run", &path])
}

/// The ids of each message in files; lines that a kill has left half written do not count.
fn ids(paths: &[&str]) -> BTreeMap<String, BTreeSet<String>> {
    let mut ids: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for path in paths {
        let out = std::fs::read_to_string(path).unwrap_or_default();
        let whole = out.rfind('\n').map_or("", |end| &out[..end]);
        for line in whole.lines() {
            let event: Value = serde_json::from_str(line).expect("a JSON line");
            let text = |field: &str| event[field].as_str().expect("text").to_owned();
            ids.entry(text("message")).or_default().insert(text("id"));
        }
    }
    ids
}

/// Checks that these lines arrived, each under one id.
fn expect(arrived: &BTreeMap<String, BTreeSet<String>>, lines: &str) {
    let messages: BTreeSet<&str> = arrived.keys().map(String::as_str).collect();
    assert_eq!(messages, lines.lines().collect());
    let doubled: Vec<_> = arrived.iter().filter(|(_, ids)| ids.len() != 1).collect();
    assert!(doubled.is_empty(), "several ids: {doubled:?}");
    let different: BTreeSet<&String> = arrived.values().flatten().collect();
    assert_eq!(different.len(), arrived.len(), "an id of two messages");
}

fn fill(folder: &Folder, redis: &Redis, lines: &str, settings: &str) {
    let log = folder.write("log", lines);
    let to = format!("redis 127.0.0.1:{} key=logs password=secret", redis.port);
    millpond(&["run", &format!("file {log} | {to} {settings}")]).expect(0);
}

#[test]
fn a_list_is_taken_through_kills_and_cuts() {
    let folder = Folder::new();
    let Some(mut redis) = Redis::start(&folder) else {
        return;
    };
    let lines = numbered("app", 0..40_000);
    fill(&folder, &redis, &lines, "");
    let cutter = Cutter::start(redis.address(), 3, 2_000_000);
    let settings = "consumer: one";
    let out = folder.path("out.ndjson");
    for share in 1..4 {
        let reader = receive(&folder, &out, cutter.address(), settings);
        eventually("a part has arrived", || ids(&[&out]).len() >= share * 8_000);
        if share == 2 {
            redis.kill();
        }
        reader.kill();
    }
    let mut reader = receive(&folder, &out, cutter.address(), settings);
    reader.until("every event", || ids(&[&out]).len() == 40_000);
    reader.stop();
    expect(&ids(&[&out]), &lines);
    assert!(cutter.cut() > 0, "no connection was cut");
    assert_eq!(redis.count("LLEN", "logs"), 0);
    assert_eq!(redis.count("LLEN", "logs:millpond:one"), 0, "all is safe");
}

#[test]
fn a_stream_is_shared_through_kills_and_cuts() {
    let folder = Folder::new();
    let Some(mut redis) = Redis::start(&folder) else {
        return;
    };
    let lines = numbered("app", 0..40_000);
    fill(&folder, &redis, &lines, "data_type=stream");
    let cutter = Cutter::start(redis.address(), 5, 2_000_000);
    let settings =
        |name: &str| format!("data_type: stream, group: g, consumer: {name}, claim_after: 5s");
    // One that never comes back, whose output takes nothing: what it has read is left.
    let own = Folder::new();
    let left = receive(&own, "/dev/full", redis.address(), &settings("left"));
    eventually("it has read some", || {
        redis
            .ask(&["XPENDING", "logs", "g"])
            .starts_with(|first: char| ('1'..='9').contains(&first))
    });
    left.kill();
    let out = folder.path("out.ndjson");
    for share in 1..4 {
        let reader = receive(&folder, &out, cutter.address(), &settings("one"));
        eventually("a part has arrived", || ids(&[&out]).len() >= share * 8_000);
        if share == 2 {
            redis.kill();
        }
        reader.kill();
    }
    let mut one = receive(&folder, &out, cutter.address(), &settings("one"));
    let (other, other_out) = (Folder::new(), folder.path("other.ndjson"));
    let two = receive(&other, &other_out, cutter.address(), &settings("two"));
    one.until("every event", || ids(&[&out, &other_out]).len() == 40_000);
    one.stop();
    two.stop();
    expect(&ids(&[&out, &other_out]), &lines);
    assert!(cutter.cut() > 0, "no connection was cut");
    let pending = redis.ask(&["XPENDING", "logs", "g"]);
    assert!(pending.starts_with('0'), "all is acknowledged: {pending}");
}

#[test]
fn a_run_ends_at_the_end() {
    let folder = Folder::new();
    let Some(redis) = Redis::start(&folder) else {
        return;
    };
    let from = |settings: &str| {
        format!(
            "redis 127.0.0.1:{} password=secret until=end {settings}",
            redis.port
        )
    };
    redis.ask(&["RPUSH", "l", r#"{"n":1}"#, "{\"n\": 2.50}", "text"]);
    let ended = run(&format!("{} | head 1 | stdout", from("key=l"))).expect(0);
    assert_eq!(ended.out, "{\"n\":1}\n");
    // What nobody wanted is still there.
    let ended = run(&format!(
        "{} | set k=@metadata.topic.name | stdout",
        from("key=l")
    ))
    .expect(0);
    assert!(
        ended.out.starts_with("{\"n\":2.50,\"k\":\"l\"}\n"),
        "{}",
        ended.out
    );
    assert!(ended.out.contains("_jsonparsefailure"), "{}", ended.out);
    assert_eq!(
        run(&format!("{} | stdout", from("key=l"))).expect(0).out,
        ""
    );
    redis.ask(&["XADD", "s", "5-1", "event", r#"{"n":1}"#, "from", "x"]);
    redis.ask(&["XADD", "s", "6-4194304", "a", "b", "c", "d"]);
    let stream = from("key=s data_type=stream group=g");
    let stage = "set i=@metadata.redis.id, f=@metadata.redis.fields.from";
    let ended = run(&format!("{stream} | {stage} | stdout")).expect(0);
    assert_eq!(
        ended.out,
        "{\"n\":1,\"i\":\"5-1\",\"f\":\"x\"}\n{\"a\":\"b\",\"c\":\"d\",\"i\":\"6-4194304\"}\n"
    );
    assert_eq!(run(&format!("{stream} | stdout")).expect(0).out, "");
    redis.ask(&["RPUSH", "m", "x"]);
    for (settings, said) in [
        ("key=s", "WRONGTYPE"),
        ("key=l db=99", "DB index is out of range"),
        ("key=m data_type=stream group=g", "WRONGTYPE"),
    ] {
        let ended = run(&format!("{} | stdout", from(settings))).expect(1);
        assert!(ended.err.contains(said), "{settings}: {}", ended.err);
    }
}

#[test]
fn a_consumer_that_is_used_twice_ends_the_older_reader() {
    let folder = Folder::new();
    let Some(redis) = Redis::start(&folder) else {
        return;
    };
    let out = folder.path("out.ndjson");
    let old = receive(&folder, &out, redis.address(), "codec: text");
    redis.ask(&["RPUSH", "logs", "a"]);
    eventually("it reads", || ids(&[&out]).len() == 1);
    let (other, other_out) = (Folder::new(), folder.path("other.ndjson"));
    let mut new = receive(&other, &other_out, redis.address(), "codec: text");
    let said = old.until_ended(1);
    assert!(
        said.contains("give each reader its own `consumer`"),
        "{said}"
    );
    redis.ask(&["RPUSH", "logs", "b"]);
    new.until("the new one reads", || ids(&[&other_out]).len() == 1);
    std::thread::sleep(Duration::from_millis(100));
    new.stop();
    expect(&ids(&[&out, &other_out]), "a\nb\n");
    assert_eq!(redis.count("LLEN", "logs"), 0);
}
