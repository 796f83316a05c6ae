//! What the tests of outputs that ship events share: real lines, each of which can be told from the others, and services that are killed.

use rustix::process::Signal;
use std::collections::BTreeMap;
use std::time::Duration;

use testkit::http::{Answer, HttpServer, Taken};

use crate::program::{Folder, run};
use crate::running::{Service, eventually};

/// Lines of an Apache log, each with its number before it, in `a.log` of a folder.
pub fn apache(folder: &Folder, count: usize) -> (String, Vec<String>) {
    let raw = folder.path("raw.log");
    run(&format!(
        "generate apache count={count} seed=1 | file {raw} codec=text"
    ))
    .expect(0);
    let lines = folder.read("raw.log");
    let lines = lines.lines().enumerate();
    let lines: Vec<String> = lines
        .map(|(number, line)| format!("#{number} {line}"))
        .collect();
    assert_eq!(lines.len(), count);
    let log = folder.write("a.log", lines.join("\n") + "\n");
    (log, lines)
}

/// Checks that exactly these lines arrived; how many came more than once.
pub fn expect_lines(arrived: &[String], lines: &[String]) -> usize {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for line in arrived {
        *counts.entry(line).or_default() += 1;
    }
    let lost: Vec<_> = lines
        .iter()
        .filter(|line| !counts.contains_key(line.as_str()))
        .collect();
    assert!(
        lost.is_empty(),
        "{} of {} lost, such as {:?}",
        lost.len(),
        lines.len(),
        lost.first()
    );
    assert_eq!(counts.len(), lines.len(), "something else came");
    counts.values().filter(|count| **count > 1).count()
}

/// A server that is busy, fails and is slow at times, and otherwise answers as told.
pub fn moody(port: u16, answer: impl Fn(&Taken) -> Answer + Send + Sync + 'static) -> HttpServer {
    HttpServer::start_at(port, None, move |taken, number| match number % 11 {
        2 => Answer::new(429).header("retry-after", "0"),
        4 => Answer::new(503).header("retry-after", "0"),
        6 => Answer::new(500),
        8 => answer(taken).after(Duration::from_millis(100)),
        _ => answer(taken),
    })
}

/// Has a service read `a.log` into an output through a disk queue, killing Millpond and the server in between; `restarted` is told of
/// each restart of the server. Ends when `is_done`.
pub fn with_kills(
    folder: &Folder,
    output: &str,
    start: impl Fn(u16) -> HttpServer,
    restarted: impl Fn(),
    is_done: impl Fn() -> bool,
) {
    let yaml = |port: u16| {
        let yaml = format!(
            "data_dir: '{data}'
pipelines:
  one:
    input:
      file: {{ paths: ['{log}'] }}
    queue: {{ disk: {{ segment_bytes: 256KiB, min_free_bytes: 0 }} }}
    processors:
      - grok: {{ pattern: '%{{COMBINEDAPACHELOG}}' }}
      - date: {{ field: timestamp, formats: ['dd/MMM/yyyy:HH:mm:ss Z'] }}
    outputs:
      - {output}
    retry: {{ initial: 20ms, max: 200ms }}
",
            data = folder.path("data"),
            log = folder.path("a.log"),
            output = output.replace("PORT", &port.to_string()),
        );
        folder.write("service.yaml", yaml)
    };
    let mut server = start(0);
    let port = server.address().port();
    let path = yaml(port);
    for pause in [200, 350, 250, 450] {
        let service = Service::start(folder, &["run", &path]);
        std::thread::sleep(Duration::from_millis(pause));
        let down = server.stopped();
        restarted();
        std::thread::sleep(Duration::from_millis(pause / 2));
        drop(down);
        server = start(port);
        std::thread::sleep(Duration::from_millis(pause));
        service.kill();
    }
    let mut service = Service::start(folder, &["run", &path]);
    service.until_it_handles(Signal::TERM);
    eventually("every line", is_done);
    let said = service.stop();
    assert!(!said.contains("error: "), "{said}");
    drop(server);
}
