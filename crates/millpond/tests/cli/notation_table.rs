//! The page `notation`: every row of its tables runs in both forms, which have to give the same.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use testkit::http::{Answer, HttpServer, Taken};
use testkit::lumberjack;
use testkit::mmdb::write_database;

use crate::program::{Ended, Folder, command, ended, millpond};

/// A row of a table: the kind of stage that the table is about, and its three cells.
#[derive(Debug, Clone)]
struct Row {
    kind: String,
    stage: String,
    one_line: String,
    yaml: String,
}

/// The rows of the page, as a reader sees them.
fn rows() -> Vec<Row> {
    let page = millpond(&["docs", "notation"]).expect(0).out;
    let mut kind = String::new();
    let mut rows = Vec::new();
    for line in page.lines() {
        if let Some(title) = line.strip_prefix("## ") {
            kind = title.to_lowercase();
        }
        let Some(row) = line
            .strip_prefix("| ")
            .and_then(|line| line.strip_suffix(" |"))
        else {
            continue;
        };
        let cells: Vec<&str> = row.split(" | ").collect();
        let [stage, one_line, yaml] = cells.as_slice() else {
            panic!("a row has three cells: {line}");
        };
        let Some(one_line) = code(one_line) else {
            continue;
        };
        rows.push(Row {
            kind: kind.clone(),
            stage: stage.trim_matches('`').to_owned(),
            one_line,
            yaml: code(yaml).expect("the YAML form"),
        });
    }
    rows
}

/// What stands between backticks, in a cell of a table.
fn code(cell: &str) -> Option<String> {
    let text = cell.strip_prefix('`')?.strip_suffix('`')?;
    Some(text.replace("\\|", "|"))
}

const EVENTS: &str = r#"{"@timestamp":"2026-05-01T12:00:00Z","message":"GET /a","level":"DEBUG","status":503,"time":"2025-01-02 03:04:05","clientip":"81.2.69.142","verb":"GET","host":"web","bytes_in":1,"bytes_out":2,"body":"{\"a\":1}","query":"a=1&b=2","agent":"Mozilla/5.0 (X11; Linux x86_64; rv:125.0) Gecko/20100101 Firefox/125.0","user":{"roles":["a"]},"pod.id":7,"path":"/var/log/pods/shop_web_0a1b2c3d-0000-4000-8000-0123456789ab/nginx/0.log","link":"https://example.com/a?b=1","cef_line":"CEF:0|a|b|1|2|c|3|cs1=x cs1Label=y","leef_line":"LEEF:1.0|a|b|1|2|src=10.0.0.1","xml_body":"<order><item>a</item></order>"}
{"@timestamp":"2026-05-01T12:00:01Z","message":"PUT /b","level":"INFO","status":200,"time":"2025-01-02 03:04:06","clientip":"10.0.0.1","verb":"PUT","host":"db","bytes_in":3,"bytes_out":4,"body":"{\"a\":2}","query":"a=3","agent":"curl/8.0"}
{"@timestamp":"2026-05-01T12:00:02Z","message":"PUT /c","level":"WARN","status":404,"time":"2025-01-02 03:04:07","clientip":"10.0.0.1","verb":"PUT","host":"db","bytes_in":3,"bytes_out":4,"body":"{\"a\":2}","query":"a=3","agent":"curl/8.0"}
"#;

/// A folder with everything that rows name, the home directory among it.
fn folder() -> Folder {
    let folder = Folder::new();
    for name in ["logs", "home"] {
        fs::create_dir(folder.path(name)).expect("a writable folder");
    }
    for name in ["a.log", "b.log", "logs/c.log", "home/x.log"] {
        folder.write(name, format!("{name} one\n{name} two\n"));
    }
    folder.write("users.csv", "id,message\n1,hello\n");
    let hosts = "ip\tname\tlow\thigh\n10.0.0.1\tweb-1\t200\t499\n";
    folder.write("hosts.tsv", hosts);
    folder.write("stacks.folded", "main;work 3\nmain 1\n");
    folder.write("events.ndjson", EVENTS);
    let london = json!({ "city": { "names": { "en": "London" } } });
    let database = write_database("GeoLite2-City", &[("81.2.69.0/24", london)]);
    folder.write("GeoLite2-City.mmdb", database);
    folder
}

/// What a run gave: standard output, and the files that it made.
#[derive(Debug, PartialEq, Eq)]
struct Given {
    out: String,
    files: BTreeMap<String, String>,
    requests: Vec<String>,
}

/// Runs a one-line pipeline, or the YAML file with this text.
fn start(folder: &Folder, pipeline: &str) -> Child {
    let pipeline = match pipeline.starts_with("pipelines:") {
        true => folder.write("p.yaml", pipeline),
        false => pipeline.to_owned(),
    };
    let mut command = command(&["run", &pipeline]);
    command.current_dir(folder).env("HOME", folder.path("home"));
    command.stdin(Stdio::from(
        fs::File::open(folder.path("events.ndjson")).expect("opens"),
    ));
    command.spawn().expect("the executable runs")
}

fn finish(child: Child) -> Ended {
    ended(child.wait_with_output().expect("the executable ends")).expect(0)
}

/// The files of a folder, with their content.
fn files(folder: &Path, below: &str, found: &mut BTreeMap<String, String>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let entry = entry.expect("an entry");
        let name = format!("{below}{}", entry.file_name().to_string_lossy());
        match entry.file_type().expect("a type").is_dir() {
            true => files(&entry.path(), &format!("{name}/"), found),
            false => drop(found.insert(
                name,
                String::from_utf8_lossy(&fs::read(entry.path()).expect("read")).into_owned(),
            )),
        }
    }
}

fn given(folder: &Folder, ended: &Ended, requests: Vec<String>) -> Given {
    let mut found = BTreeMap::new();
    files(folder.as_ref(), "", &mut found);
    found.remove("p.yaml");
    Given {
        out: ended.out.clone(),
        files: found,
        requests,
    }
}

fn run(pipeline: &str) -> Given {
    let folder = folder();
    given(&folder, &finish(start(&folder, pipeline)), Vec::new())
}

/// Ports of the inputs in the table; they become others here.
const PORTS: [&str; 6] = ["8080", "9200", "5044", "24224", "5514", "5170"];

/// Where a pipeline receives.
struct Place {
    port: u16,
    /// The socket of Unix.
    path: String,
}

impl Place {
    fn connect(&self) -> TcpStream {
        connected(|| TcpStream::connect(("127.0.0.1", self.port)))
    }
}

/// Waits until there is a connection.
fn connected<T>(connect: impl Fn() -> std::io::Result<T>) -> T {
    let begin = Instant::now();
    loop {
        match connect() {
            Ok(connection) => return connection,
            Err(error) => assert!(begin.elapsed() < Duration::from_secs(20), "{error}"),
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Runs a pipeline that receives what `send` sends; stops it after the first event.
fn run_receiving(pipeline: &str, send: impl Fn(&Place)) -> Given {
    let port = testkit::ports::free_port();
    let folder = folder();
    let text = port.to_string();
    let pipeline = PORTS.iter().fold(pipeline.to_owned(), |pipeline, known| {
        pipeline.replace(known, &text)
    });
    let mut child = start(&folder, &pipeline);
    let path = folder.path("in.sock");
    send(&Place { port, path });
    let mut stdout = BufReader::new(child.stdout.take().expect("it is piped"));
    let mut out = String::new();
    stdout.read_line(&mut out).expect("an event");
    let id = Pid::from_raw(child.id().try_into().expect("a process")).expect("a process");
    kill_process(id, Signal::TERM).expect("it runs");
    stdout.read_to_string(&mut out).expect("the end");
    let ended = Ended {
        out,
        ..finish(child)
    };
    given(&folder, &ended, Vec::new())
}

/// What runs a row of an input that receives.
fn receiver(stage: &str) -> Option<fn(&str) -> Given> {
    Some(match stage {
        "http" => |pipeline| {
            run_receiving(pipeline, |place| {
                post(place, "/logs", "{\"message\":\"posted\"}\n");
            })
        },
        "elasticsearch" => |pipeline| {
            run_receiving(pipeline, |place| {
                post(
                    place,
                    "/logs/_bulk",
                    "{\"create\":{}}\n{\"message\":\"posted\"}\n",
                );
            })
        },
        "beats" | "lumberjack" => |pipeline| {
            run_receiving(pipeline, |place| {
                let connect = || lumberjack::Client::connect(("127.0.0.1", place.port));
                let mut client = connected(connect);
                client.send(&lumberjack::numbered([1], true)).expect("sent");
                client.acknowledged(b'2', 1).expect("acknowledged");
            })
        },
        "forward" => |pipeline| {
            run_receiving(pipeline, |place| {
                // `["t", 1, {"message": "m"}]`
                let message = b"\x93\xA1t\x01\x81\xA7message\xA1m";
                place.connect().write_all(message).expect("written");
            })
        },
        "tcp" => |pipeline| {
            run_receiving(pipeline, |place| {
                let line = b"{\"message\":\"m\"}\n";
                place.connect().write_all(line).expect("written");
            })
        },
        "unix" => |pipeline| {
            run_receiving(pipeline, |place| {
                let mut stream = connected(|| UnixStream::connect(&place.path));
                stream.write_all(b"m\n").expect("written");
            })
        },
        "udp" | "syslog" => |pipeline| {
            run_receiving(pipeline, |place| {
                // Taken as soon as nobody else can have the port.
                connected(|| match UdpSocket::bind(("127.0.0.1", place.port)) {
                    Ok(_) => Err(std::io::Error::other("nobody receives")),
                    Err(_) => Ok(()),
                });
                let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
                let sent = socket.send_to(b"<13>host app: m", ("127.0.0.1", place.port));
                sent.expect("sent");
            })
        },
        _ => return None,
    })
}

fn post(place: &Place, path: &str, body: &str) {
    let mut stream = place.connect();
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all((head + body).as_bytes()).expect("written");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

/// Runs a pipeline that sends to localhost:9200, where a server takes everything.
fn run_with_server(pipeline: &str) -> Given {
    let server = HttpServer::start(|taken: &Taken, _| {
        let count = taken.text().lines().count() / 2;
        let items = vec![r#"{"create":{"status":201}}"#; count].join(",");
        let is_bulk = taken.path.contains("_bulk");
        let items = if is_bulk { items } else { String::new() };
        Answer::new(200).body(format!(r#"{{"errors":false,"items":[{items}]}}"#))
    });
    let address = server.url().trim_end_matches('/').to_owned();
    let folder = folder();
    let pipeline = pipeline.replace("http://localhost:9200", &address);
    let ended = finish(start(&folder, &pipeline));
    let shown = |taken: Taken| {
        // What an event's id is follows from the file, which is another one in each run.
        let text = taken
            .text()
            .split("\"_id\":")
            .map(|part| {
                part.split_once(['}', ','])
                    .map_or(part, |(_, rest)| rest)
                    .to_owned()
            })
            .collect::<Vec<_>>()
            .join("");
        format!(
            "{} {} team={} {text}",
            taken.method,
            taken.path,
            taken.header("x-team")
        )
    };
    given(
        &folder,
        &ended,
        server.taken().into_iter().map(shown).collect(),
    )
}

/// What a pipeline comes to as a configuration, for stages whose other side is no part of this test.
fn printed(pipeline: &str) -> Given {
    let folder = folder();
    let pipeline = match pipeline.starts_with("pipelines:") {
        true => folder.write("p.yaml", pipeline),
        false => pipeline.to_owned(),
    };
    let mut ended = millpond(&["run", &pipeline, "--print-config"]).expect(0);
    // One pipeline has a name of its own, and lists of one stage may be written without a list.
    let around = ["main:", "p:", "input:", "inputs:", "output:", "outputs:"];
    let lines = ended.out.lines();
    let lines = lines.map(|line| line.trim_start().trim_start_matches("- "));
    let lines: Vec<&str> = lines.filter(|line| !around.contains(line)).collect();
    ended.out = lines.join("\n");
    given(&folder, &ended, Vec::new())
}

/// Both forms of a row as pipelines, and what runs them.
fn both(row: &Row) -> (String, String) {
    let Row { one_line, yaml, .. } = row;
    let source = "file events.ndjson codec=json";
    let yaml_source = "{ file: { paths: [events.ndjson], codec: json, follow: false } }";
    let long = |text: &str| format!("pipelines:\n  p:\n{text}\n");
    match row.kind.as_str() {
        "inputs" => (
            format!("{one_line} | keep message | stdout codec=json"),
            long(&format!(
                "    input:\n      {yaml}\n    processors: [keep message]\n    output: stdout codec=json"
            )),
        ),
        "processors" => (
            format!("{source} | {one_line} | stdout codec=json"),
            long(&format!(
                "    input: {yaml_source}\n    processors:\n      - {yaml}\n    output: stdout codec=json"
            )),
        ),
        "outputs" => (
            format!("{source} | {one_line}"),
            long(&format!(
                "    input: {yaml_source}\n    output:\n      {yaml}"
            )),
        ),
        "whole pipelines" => (one_line.clone(), long(&format!("    {yaml}"))),
        other => panic!("a table below `{other}`"),
    }
}

#[test]
fn both_forms_of_every_row_give_the_same() {
    let untouched = run("file events.ndjson codec=json | stdout codec=json");
    let nothing = run("file events.ndjson | discard");
    for row in rows() {
        let run = match (row.kind.as_str(), row.stage.as_str()) {
            // The plain build refuses it.
            (_, "kafka") if !cfg!(feature = "kafka") => continue,
            (
                "inputs",
                "dead_letters" | "internal_log" | "journald" | "kafka" | "loki" | "metrics"
                | "nats" | "object_store" | "otlp" | "redis" | "splunk_hec",
            ) => printed,
            (
                "outputs",
                "clickhouse" | "forward" | "kafka" | "logstash" | "loki" | "nats" | "object_store"
                | "otlp" | "redis" | "splunk_hec" | "syslog" | "tcp" | "udp" | "unix",
            ) => printed,
            // It leaves events as they are.
            ("processors", "metric") => printed,
            ("inputs", stage) => receiver(stage).unwrap_or(run),
            ("outputs", "http" | "elasticsearch") => run_with_server,
            _ => run,
        };
        let (one_line, yaml) = both(&row);
        let expected = run(&one_line);
        assert_eq!(run(&yaml), expected, "{row:?}");
        let idle = if row.kind == "processors" {
            &untouched
        } else {
            &nothing
        };
        if row.stage != "discard" && !row.one_line.ends_with("100%") {
            assert!(
                expected != *idle,
                "the row has to change what comes out of the test's events: {row:?}\n{}",
                expected.out
            );
        }
        // A stage of a one-line pipeline may stand in YAML as it is.
        if row.kind == "processors" {
            let quoted = row.one_line.replace('\'', "''");
            let (_, yaml) = both(&Row {
                yaml: format!("'{quoted}'"),
                ..row.clone()
            });
            assert_eq!(run(&yaml), expected, "{row:?}");
        }
    }
}

#[test]
fn every_component_has_a_row() {
    let index = millpond(&["docs"]).expect(0).out;
    let known: BTreeSet<(String, String)> = rows()
        .into_iter()
        .map(|row| (row.kind, row.stage))
        .collect();
    let mut components = 0;
    for page in index
        .lines()
        .filter_map(|line| line.strip_prefix("| ")?.split(" | ").next())
    {
        for kind in ["input", "processor", "output"] {
            if let Some(name) = page.strip_prefix(&format!("{kind}-")) {
                if name == "pipeline" {
                    // It joins pipelines of one file, which one line does not have.
                    continue;
                }
                components += 1;
                assert!(
                    known.contains(&(format!("{kind}s"), name.to_owned())),
                    "{page} has no row in the page `notation`"
                );
            }
        }
    }
    assert!(components > 20, "{index}");
}
