//! What the system gives the process, or does not: threads, standard input, standard output, and name servers.

use std::fs::{self, File};
use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::time::Duration;

use testkit::name_server::{NameRecord, NameReply, NameServer};

use crate::program::{Ended, Folder, command, ended, gzip, millpond};
use crate::queue_outlet::Outlet;
use crate::running::{append, eventually, numbered};
use crate::unprivileged::Unprivileged;

/// Runs a one-line pipeline in a shell, which redirects as told.
fn redirected(pipeline: &str, redirections: &str) -> Ended {
    let script = format!("exec \"$0\" run \"$1\" {redirections}");
    let output = Command::new("sh")
        .args(["-c", &script, env!("CARGO_BIN_EXE_millpond"), pipeline])
        .stdin(Stdio::null())
        .output();
    ended(output.expect("a shell"))
}

#[test]
fn without_standard_output_nothing_is_discarded_in_silence() {
    let folder = Folder::new();
    let log = folder.write("log", numbered("app", 0..10));
    let data = folder.path("data");
    for (redirection, fault) in [
        (">&-", "standard output is closed"),
        ("1</dev/null", "standard output is open for reading only"),
    ] {
        let redirections = format!("--data-dir '{data}' {redirection}");
        let refused = redirected(&format!("file {log} | stdout"), &redirections).expect(2);
        assert!(refused.err.contains(fault), "{}", refused.err);
        assert!(refused.err.contains("all events would be lost"));
    }
    // Nothing was taken for delivered.
    let ended = millpond(&["run", &format!("file {log} | stdout"), "--data-dir", &data]).expect(0);
    assert_eq!(ended.events().len(), 10);
    let schema = format!("'{}' schema >&-", env!("CARGO_BIN_EXE_millpond"));
    let output = Command::new("sh").args(["-c", &schema]).output();
    let refused = crate::program::ended(output.expect("a shell")).expect(2);
    assert!(refused.err.contains("standard output is closed"));
}

#[test]
fn a_standard_output_that_somebody_discards_is_fine() {
    let pipeline = "generate apache count=10 | stdout";
    redirected(pipeline, ">/dev/null").expect(0);
    // What stands in the place of a closed one is opened like this.
    redirected(pipeline, "1<>/dev/null").expect(0);
    redirected(pipeline, "<&- 2>&-").expect(0);
    let other = "generate apache count=10 | discard";
    redirected(other, "<&- >&- 2>&-").expect(0);
}

#[test]
fn without_standard_input_there_is_nothing_to_read() {
    let refused = redirected("stdin | stdout", "<&-").expect(2);
    assert!(
        refused.err.contains("standard input is closed"),
        "{}",
        refused.err
    );
    let ended = redirected("stdin | stdout", "</dev/null").expect(0);
    assert_eq!(ended.err, "");
}

/// Runs with ever more threads until that is enough; how often it was not. What is refused is told.
fn until_it_runs(user: &Unprivileged, mut run: impl FnMut(Command) -> Ended) -> usize {
    for threads in 1..64 {
        let ended = run(user.with_threads(threads));
        match ended.code {
            Some(0) => return threads - 1,
            Some(1) => assert!(
                ended.err.contains("thread")
                    && ended.err.contains("Resource temporarily unavailable"),
                "{threads} threads: {}",
                ended.err
            ),
            _ => panic!("{threads} threads: {ended:?}"),
        }
        if !user.is_alone() {
            // The user has other processes: how many threads would do is not known.
            return 1;
        }
    }
    panic!("64 threads are not enough")
}

#[test]
fn a_refused_thread_is_told_and_nothing_is_lost() {
    let folder = Folder::new();
    let user = Unprivileged::new(&folder);
    fs::create_dir(folder.path("logs")).expect("a writable folder");
    let lines = numbered("app", 0..2000);
    append(&folder.path("logs/app"), &lines);
    folder.write("logs/more.gz", gzip(numbered("more", 0..2000).as_bytes()));
    let yaml = format!(
        "data_dir: '{data}'
workers: 2
pipelines:
  one:
    input: {{ file: {{ paths: ['{logs}'], follow: false }} }}
    queue: {{ disk: {{ min_free_bytes: 0 }} }}
    processors:
      - set: {{ fields: {{ id: '@metadata.id' }} }}
    outputs:
      - file: {{ name: one, path: '{one}' }}
      - file: {{ name: two, path: '{two}' }}
",
        data = folder.path("data"),
        logs = folder.path("logs/*"),
        one = folder.path("one.ndjson"),
        two = folder.path("two.ndjson"),
    );
    let path = folder.write("all.yaml", yaml);
    let refused = until_it_runs(&user, |mut command| {
        ended(command.args(["run", &path]).output().expect("it runs"))
    });
    assert!(refused > 0, "one thread is not enough");
    if !user.is_alone() {
        user.command()
            .args(["run", &path])
            .output()
            .expect("it runs");
    }
    let all = lines + &numbered("more", 0..2000);
    for name in ["one.ndjson", "two.ndjson"] {
        Outlet::new(folder.path(name)).expect_once(&all);
    }
}

#[test]
fn compressed_input_is_read_on_one_thread_where_there_is_no_second() {
    let folder = Folder::new();
    let user = Unprivileged::new(&folder);
    let input = folder.write("in.gz", gzip(numbered("app", 0..3000).as_bytes()));
    until_it_runs(&user, |mut command| {
        command.args(["run", "stdin | stdout"]);
        command.stdin(File::open(&input).expect("it was written"));
        let ended = ended(command.output().expect("it runs"));
        if ended.code == Some(0) {
            assert_eq!(ended.events().len(), 3000);
        }
        ended
    });
    // Without a limit, the same.
    let mut command = command(&["run", "stdin | stdout"]);
    command.stdin(File::open(&input).expect("it was written"));
    let ended = ended(command.output().expect("it runs")).expect(0);
    assert_eq!(ended.events().len(), 3000);
}

/// A log in which each address comes ten times, and which makes several batches.
fn addresses(folder: &Folder) -> String {
    let line = |n: u32| {
        format!(
            "{{\"n\":{n},\"a\":\"10.0.{}.{}\"}}\n",
            n / 10 / 250,
            n / 10 % 250
        )
    };
    folder.write("a.ndjson", (0..20_000).map(line).collect::<String>())
}

fn looked_up(log: &str, dns: &str) -> (String, String) {
    let pipeline = format!("file {log} | dns a b {dns} | stdout");
    let ended = millpond(&["run", &pipeline, "--metrics"]).expect(0);
    (ended.out, ended.err)
}

#[test]
fn workers_share_the_answers_of_name_servers() {
    let folder = Folder::new();
    let server =
        NameServer::start(|_| NameReply::Records(300, vec![NameRecord::Name("x.example")]));
    let settings = format!("servers={} timeout=5s", server.address());
    let (out, err) = looked_up(&addresses(&folder), &settings);
    let named = out
        .lines()
        .filter(|line| line.ends_with(r#""b":"x.example"}"#));
    assert_eq!(named.count(), 20_000);
    assert_eq!(server.asked().len(), 2_000);
    assert!(err.contains("queries 2,000"), "{err}");
}

#[test]
fn a_run_ends_though_no_name_server_answers() {
    let folder = Folder::new();
    let server = NameServer::start(|_| NameReply::Nothing);
    let settings = format!("servers={} timeout=300ms", server.address());
    let (out, err) = looked_up(&addresses(&folder), &settings);
    let tagged = out
        .lines()
        .filter(|line| line.ends_with(r#""tags":["_dns_timeout"]}"#));
    assert_eq!(tagged.count(), 20_000);
    assert!(err.contains("timeouts 20,000"), "{err}");
}

#[test]
fn no_other_pipeline_waits_for_name_servers() {
    let folder = Folder::new();
    let (asks, asked) = channel();
    let (goes_on, may_answer) = channel::<()>();
    let server = NameServer::start(move |_| {
        let _ = asks.send(());
        // Closed when the events of the other pipeline have gone through.
        let _ = may_answer.recv_timeout(Duration::from_secs(20));
        NameReply::Records(300, vec![NameRecord::Name("x.example")])
    });
    let (log, named, copied) = (
        addresses(&folder),
        folder.path("named"),
        folder.path("copied"),
    );
    let config = format!(
        "workers: 1
pipelines:
  names: {{ input: file {log}, processors: [dns a b servers={} timeout=5s], output: file {named} }}
  copies: {{ input: stdin, output: file {copied} }}
",
        server.address()
    );
    let config = folder.write("two.yaml", config);
    let mut command = command(&["run", "--quiet", &config]);
    let mut millpond = command.stdin(Stdio::piped()).spawn().expect("it runs");
    asked.recv().expect("the server is asked");
    let mut stdin = millpond.stdin.take().expect("a pipe");
    stdin.write_all(b"a line\n").expect("it reads");
    drop(stdin);
    eventually("the line is copied", || {
        fs::read(&copied).is_ok_and(|text| text.ends_with(b"\n"))
    });
    drop(goes_on);
    eventually("all are named", || {
        let named = fs::read_to_string(&named).unwrap_or_default();
        named.matches(r#""b":"x.example"}"#).count() == 20_000
    });
    millpond.kill().expect("it runs");
    millpond.wait().expect("it ends");
}
