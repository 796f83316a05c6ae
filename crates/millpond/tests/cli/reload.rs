//! Putting a changed configuration in force while a service runs.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::net::TcpStream;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use crate::posting::{Answer, free_port, request};
use crate::program::Folder;
use crate::running::{Service, append, eventually, numbered};

const RELOADS: usize = 100;

/// Posts lines, each request on a connection of its own, until it is time to stop; how many lines were taken.
fn post(port: u16, stop: &AtomicBool, refused: &AtomicUsize) -> usize {
    const LINES: usize = 20;
    let mut taken = 0;
    while !stop.load(Ordering::SeqCst) {
        let body = numbered("posted", taken..taken + LINES);
        let answer = (|| {
            let mut stream = TcpStream::connect(("127.0.0.1", port))?;
            stream.set_read_timeout(Some(Duration::from_secs(20)))?;
            stream.write_all(&request("/", "", body.as_bytes()))?;
            std::io::Result::Ok(Answer::read(&mut stream))
        })();
        match answer {
            Ok(answer) if answer.status == 200 => taken += LINES,
            // It says that nothing was taken, and the client sends it again.
            Ok(answer) => {
                assert_eq!(answer.status, 503, "{answer:?}");
                refused.fetch_add(1, Ordering::SeqCst);
            }
            Err(error) => panic!("no connection: {error}"),
        }
    }
    taken
}

/// Reloads under load, with this queue.
fn reloads_under_load(queue: &str) {
    let folder = Folder::new();
    let (port, log) = (free_port(), folder.write("log", ""));
    let configuration = |version: usize| {
        format!(
            "data_dir: {data}
pipelines:
  web:
    inputs:
      - http: {{ address: {port}, codec: text }}
      - file: {{ paths: '{log}' }}
    queue: {queue}
    processors:
      - set: version = {version}
    output:
      file: {out}
  steady:
    input:
      generate: {{ format: apache, rate: 100 }}
    output: discard
",
            data = folder.path("data"),
            out = folder.path("out.ndjson"),
        )
    };
    let path = folder.write("service.yaml", configuration(0));
    let mut service = Service::start(&folder, &["run", &path]);
    service.until("a listener", || {
        TcpStream::connect(("127.0.0.1", port)).is_ok()
    });
    let (stop, refused) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicUsize::new(0)),
    );
    let client = thread::spawn({
        let (stop, refused) = (stop.clone(), refused.clone());
        move || post(port, &stop, &refused)
    });
    let mut appended = 0;
    for version in 1..=RELOADS {
        for _ in 0..10 {
            append(&log, &numbered("appended", appended..appended + 20));
            appended += 20;
            thread::sleep(Duration::from_millis(1));
        }
        folder.write("service.yaml", configuration(version));
        service.signal(Signal::HUP);
        let number = version + 1;
        service.until_said(&format!(
            "configuration reloaded, version {number}: changed web; unchanged steady"
        ));
    }
    stop.store(true, Ordering::SeqCst);
    let posted = client.join().expect("the client ends");
    let events = || -> Vec<Value> {
        let text = fs::read_to_string(folder.path("out.ndjson")).unwrap_or_default();
        let whole = text.lines().filter(|line| line.ends_with('}'));
        whole
            .map(|line| serde_json::from_str(line).expect("JSON"))
            .collect()
    };
    service.until("every line", || events().len() >= posted + appended);
    let said = service.stop();
    assert!(!said.contains("error:"), "{said}");
    let events = events();
    let mut times: BTreeMap<&str, usize> = BTreeMap::new();
    for event in &events {
        let message = event["message"].as_str().expect("a message");
        *times.entry(message).or_default() += 1;
    }
    let repeated = times.iter().find(|(_, times)| **times > 1);
    assert_eq!(repeated, None);
    let expected = numbered("posted", 0..posted) + &numbered("appended", 0..appended);
    let missing = expected.lines().find(|line| !times.contains_key(line));
    assert_eq!(missing, None);
    assert_eq!(times.len(), posted + appended);
    // Every version handled something, or nearly every one.
    let mut versions: Vec<u64> = events
        .iter()
        .filter_map(|it| it["version"].as_u64())
        .collect();
    versions.sort_unstable();
    versions.dedup();
    assert!(versions.len() > RELOADS / 2, "{} versions", versions.len());
    let refused = refused.load(Ordering::SeqCst);
    assert!(
        posted > 10 * 20,
        "{posted} posted, {refused} requests refused"
    );
}

#[test]
fn a_hundred_reloads_under_load_lose_and_repeat_nothing() {
    reloads_under_load("{ memory: {} }");
}

#[test]
fn a_hundred_reloads_with_a_disk_queue_lose_and_repeat_nothing() {
    reloads_under_load("{ disk: {} }");
}

/// A service with one pipeline, whose configuration a test changes.
struct Changing {
    folder: Folder,
    path: String,
    service: Service,
}

impl Changing {
    fn start(configuration: impl Fn(&Folder) -> String, args: &[&str]) -> Self {
        let folder = Folder::new();
        let path = folder.write("service.yaml", configuration(&folder));
        let service = Service::start(&folder, &[&["run", &path], args].concat());
        let mut changing = Self {
            folder,
            path,
            service,
        };
        changing.service.until_said("started; configuration");
        changing
    }

    fn reload(&mut self, configuration: &str, says: &str) {
        fs::write(&self.path, configuration).expect("a writable folder");
        self.service.signal(Signal::HUP);
        self.service.until_said(says);
    }
}

#[test]
fn a_broken_configuration_changes_nothing_and_says_why() {
    let port = free_port();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let taken = taken.local_addr().map(|address| (taken, address.port()));
    let (_taken, taken) = taken.expect("an address");
    let good = format!(
        "pipelines:\n  web: {{ input: {{ http: {{ address: {port} }} }}, output: discard }}\n"
    );
    let mut it = Changing::start(|_| good.clone(), &[]);
    let listens = move || TcpStream::connect(("127.0.0.1", port)).is_ok();
    it.service.until("a listener", listens);
    let stays = "the configuration was not reloaded, version 1 stays in force";
    for (broken, says) in [
        ("pipelines: [", "service.yaml:1"),
        (
            &*good.replace("discard", "discrad"),
            "did you mean `discard`",
        ),
        (
            &*good.replace(&port.to_string(), &taken.to_string()),
            "another program is already listening there",
        ),
        (
            &*format!("workers: 3\n{good}"),
            "`workers` cannot change while Millpond runs; restart it",
        ),
    ] {
        it.reload(broken, says);
        let said = it.service.said();
        assert!(said.contains(stays), "{said}");
        assert!(listens(), "it goes on");
    }
    fs::remove_file(&it.path).expect("it is there");
    it.service.signal(Signal::HUP);
    it.service.until_said("cannot read");
    it.reload(&good, "version 2: unchanged web");
    let (code, said) = it.service.end();
    assert_eq!(code, Some(0), "{said}");
}

#[test]
fn pipelines_come_and_go_and_ports_with_them() {
    let ports = [free_port(), free_port()];
    let pipeline = |name: &str, port: u16| {
        format!("  {name}: {{ input: {{ http: {{ address: {port} }} }}, output: discard }}\n")
    };
    let one = format!("pipelines:\n{}", pipeline("one", ports[0]));
    let listens = |port: u16| TcpStream::connect(("127.0.0.1", port)).is_ok();
    let mut it = Changing::start(|_| one.clone(), &[]);
    it.service.until("a listener", || listens(ports[0]));
    let two = format!("{one}{}", pipeline("two", ports[1]));
    it.reload(&two, "version 2: added two; unchanged one");
    assert!(ports.into_iter().all(listens));
    // One takes the port of another that goes, in one step.
    let renamed = format!("pipelines:\n{}", pipeline("three", ports[0]));
    it.reload(&renamed, "version 3: added three; removed one, two");
    assert!(listens(ports[0]));
    assert!(!listens(ports[1]), "nobody has that port any more");
    // Nobody gets the port of one that goes on.
    let both = format!("{renamed}{}", pipeline("four", ports[0]));
    it.reload(&both, "another program is already listening there");
    it.service.stop();
}

#[test]
fn pipelines_that_feed_each_other_change_together() {
    let configuration = |folder: &Folder, first: u32, last: u32| {
        format!(
            "data_dir: {}
pipelines:
  first: {{ input: file {}, processors: [set first = {first}], output: {{ pipeline: last }} }}
  last: {{ input: pipeline, processors: [set last = {last}], output: file {} }}
  other: {{ input: {{ generate: {{ format: apache, rate: 10 }} }}, output: discard }}
",
            folder.path("data"),
            folder.path("log"),
            folder.path("result"),
        )
    };
    let mut it = Changing::start(|folder| configuration(folder, 1, 1), &[]);
    let (log, result) = (it.folder.path("log"), it.folder.path("result"));
    let versions = [(1, 1), (2, 1), (2, 2)];
    for (lines, (first, last)) in versions.into_iter().enumerate() {
        if lines > 0 {
            let number = lines + 1;
            let says = format!("version {number}: changed first, last; unchanged other");
            let text = configuration(&it.folder, first, last);
            it.reload(&text, &says);
        }
        append(&log, &numbered("a", lines..lines + 1));
        let expected = format!("\"first\":{first},\"last\":{last}");
        it.service.until(&expected, || {
            let text = fs::read_to_string(&result).unwrap_or_default();
            text.lines().count() == lines + 1 && text.contains(&expected)
        });
    }
    it.service.stop();
}

#[test]
fn unix_sockets_stay_and_what_waits_in_them_too() {
    let configuration = |folder: &Folder, version: u32| {
        format!(
            "data_dir: {}\npipelines:\n  local: {{ inputs: [{{ unix: {{ path: {}, kind: datagram }} }}, {{ unix: {{ path: {}, name: stream }} }}], processors: [set version = {version}], output: file {} }}\n",
            folder.path("data"),
            folder.path("datagrams"),
            folder.path("stream"),
            folder.path("result"),
        )
    };
    let mut it = Changing::start(|folder| configuration(folder, 1), &[]);
    let [datagrams, stream] = ["datagrams", "stream"].map(|name| it.folder.path(name));
    eventually("sockets", || {
        fs::metadata(&stream).is_ok() && fs::metadata(&datagrams).is_ok()
    });
    let socket = UnixDatagram::unbound().expect("a socket");
    socket.connect(&datagrams).expect("a receiver");
    let mut sent = 0;
    for version in 2..12 {
        fs::write(&it.path, configuration(&it.folder, version)).expect("a writable folder");
        it.service.signal(Signal::HUP);
        // While it reloads.
        for _ in 0..20 {
            socket
                .send(format!("datagram {sent}").as_bytes())
                .expect("sent");
            // One that is accepted and closed before the line is sent is an error for the client, which sends the line again.
            let line = format!("stream {sent}\n");
            let send = || {
                let mut connection = UnixStream::connect(&stream)?;
                connection.write_all(line.as_bytes())
            };
            eventually("a connection", || send().is_ok());
            sent += 1;
        }
        it.service
            .until_said(&format!("version {version}: changed local"));
    }
    let result = it.folder.path("result");
    let text = || fs::read_to_string(&result).unwrap_or_default();
    thread::sleep(Duration::from_secs(1));
    it.service.stop();
    let text = text();
    for kind in ["datagram", "stream"] {
        let is_missing = |number: &usize| !text.contains(&format!("\"{kind} {number}\""));
        let missing: Vec<usize> = (0..sent).filter(is_missing).collect();
        assert_eq!(missing, [0; 0], "{kind}");
    }
    assert_eq!(text.lines().count(), 2 * sent);
    assert!(
        fs::metadata(&stream).is_err(),
        "the file of the socket is gone"
    );
}

#[test]
fn files_are_watched_where_that_is_asked_for() {
    let configuration = |version: u32| {
        format!(
            "pipelines:\n  one: {{ input: {{ generate: {{ format: apache, rate: 10 }} }}, processors: [set version = {version}], output: discard }}\n"
        )
    };
    let mut it = Changing::start(|_| configuration(1), &["--watch"]);
    fs::write(&it.path, configuration(2)).expect("a writable folder");
    it.service
        .until_said("its files have changed: configuration reloaded, version 2: changed one");
    // Editors write a new file and put it in place.
    let new = it.folder.write("new", "pipelines: nonsense");
    fs::rename(new, &it.path).expect("renamed");
    it.service.until_said("version 2 stays in force");
    it.service.stop();
}
