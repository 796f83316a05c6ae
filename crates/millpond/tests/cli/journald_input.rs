//! The input `journald`, with journalctl and real files of a journal, which `systemd-journal-remote` writes.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use testkit::rights::leave_out;

use crate::program::{Ended, Folder, command, ended, millpond};

/// What writes a journal, where packages put it.
const WRITERS: [&str; 2] = [
    "/usr/lib/systemd/systemd-journal-remote",
    "/lib/systemd/systemd-journal-remote",
];

/// The program that writes a journal; none on a machine without it, where the test is left out.
fn writer() -> Option<&'static str> {
    let has_reader = Command::new("journalctl").arg("--version").output().is_ok();
    let writer = WRITERS.into_iter().find(|path| Path::new(path).exists());
    let writer = writer.filter(|_| has_reader);
    if writer.is_none() {
        leave_out(
            "journalctl and systemd-journal-remote are missing (packages systemd and systemd-journal-remote)",
        );
    }
    writer
}

/// An entry in the export format.
fn entry(number: u64, fields: &[(&str, &str)]) -> String {
    let time = 1_764_065_472_000_000 + number * 10;
    let mut text = format!(
        "__REALTIME_TIMESTAMP={time}\n__MONOTONIC_TIMESTAMP={number}\n_BOOT_ID=0123456789abcdef0123456789abcdef\n"
    );
    for (name, value) in fields {
        text.push_str(&format!("{name}={value}\n"));
    }
    text + "\n"
}

fn numbered(number: u64) -> String {
    let message = format!("entry {number}");
    entry(
        number,
        &[("MESSAGE", &message), ("_PID", "42"), ("PRIORITY", "6")],
    )
}

/// A journal that is being written.
struct Journal(Child, Option<ChildStdin>);

impl Journal {
    fn new(writer: &str, file: &str) -> Self {
        let mut command = Command::new(writer);
        command.args(["--output", file, "-"]);
        command.stdin(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().expect("it runs");
        let input = child.stdin.take();
        Self(child, input)
    }

    fn add(&mut self, text: &str) {
        let input = self.1.as_mut().expect("it is open");
        input.write_all(text.as_bytes()).expect("written");
    }

    /// Writes a journal of these entries.
    fn whole(writer: &str, file: &str, text: &str) {
        let mut journal = Self::new(writer, file);
        journal.add(text);
        journal.end();
    }

    fn end(mut self) {
        self.1 = None;
        assert!(self.0.wait().expect("it ends").success());
    }
}

/// A folder with the directory of a journal.
fn place() -> Folder {
    let folder = Folder::new();
    fs::create_dir(folder.path("journal")).expect("a directory");
    folder
}

/// The configuration of a service that reads the journal.
fn config(folder: &Folder, settings: &str) -> String {
    let text = format!(
        "data_dir: {}\npipelines:\n  p:\n    input: {{ journald: {{ directory: {}{settings} }} }}\n    processors: [set id = @metadata.id]\n    queue: disk\n    output: {{ file: {{ path: {} }} }}\n",
        folder.path("state"),
        folder.path("journal"),
        folder.path("out"),
    );
    folder.write("c.yaml", text)
}

fn events(folder: &Folder) -> Vec<Value> {
    let text = fs::read_to_string(folder.path("out")).unwrap_or_default();
    // The last line may be half written.
    let lines = text
        .split_inclusive('\n')
        .filter(|line| line.ends_with('\n'));
    lines
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect()
}

/// How many lines there are.
fn written(folder: &Folder) -> usize {
    let text = fs::read(folder.path("out")).unwrap_or_default();
    text.iter().filter(|byte| **byte == b'\n').count()
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < Duration::from_secs(30), "{what}");
        sleep(Duration::from_millis(5));
    }
}

/// Ends a service with a signal.
fn end(child: Child, signal: Signal) -> Ended {
    let pid = Pid::from_raw(child.id() as i32).expect("a process");
    kill_process(pid, signal).expect("signalled");
    ended(child.wait_with_output().expect("it ends"))
}

/// Reads what is there.
fn read(folder: &Folder, settings: &str) -> Vec<String> {
    let _ = fs::remove_file(folder.path("out"));
    let _ = fs::remove_dir_all(folder.path("state"));
    millpond(&[
        "run",
        &config(folder, &format!(", follow: false{settings}")),
    ])
    .expect(0);
    let message = |event: &Value| event["message"].as_str().unwrap_or_default().to_owned();
    events(folder).iter().map(message).collect()
}

#[test]
fn thirty_kills_lose_nothing_and_no_id_has_two_contents() {
    const KILLS: usize = 30;
    let Some(writer) = writer() else { return };
    let folder = place();
    let path = config(&folder, "");
    let is_over = std::sync::atomic::AtomicBool::new(false);
    let mut journal = Journal::new(writer, &folder.path("journal/x.journal"));
    let count = scope(|scope| {
        let adding = scope.spawn(|| {
            let mut number = 0;
            while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                let text: String = (number..number + 50).map(numbered).collect();
                journal.add(&text);
                number += 50;
                sleep(Duration::from_millis(20));
            }
            number as usize
        });
        for kill in 0..KILLS {
            let before = written(&folder);
            let child = command(&["run", &path]).spawn().expect("it runs");
            // At another stage each time.
            until("some of it", || written(&folder) > before);
            sleep(Duration::from_millis(kill as u64 * 7 % 60));
            assert_eq!(end(child, Signal::KILL).code, None);
        }
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
        adding.join().expect("no panic")
    });
    journal.end();
    let child = command(&["run", &path]).spawn().expect("it runs");
    let last = format!("entry {}", count - 1);
    until("the last one", || {
        events(&folder)
            .iter()
            .any(|event| event["message"] == last.as_str())
    });
    end(child, Signal::TERM).expect(0);
    let mut contents = BTreeMap::<String, Value>::new();
    let mut messages = BTreeMap::<String, usize>::new();
    for mut event in events(&folder) {
        let id = event["id"].take().as_str().expect("an id").to_owned();
        let message = event["message"].as_str().expect("a message").to_owned();
        *messages.entry(message).or_default() += 1;
        let before = contents.entry(id).or_insert_with(|| event.clone());
        assert_eq!(*before, event, "an id has one content");
    }
    assert_eq!(messages.len(), count, "every entry is there");
    assert_eq!(contents.len(), count, "each under one id");
    let most = messages.values().max().copied().unwrap_or_default();
    let repeated: usize = messages.values().map(|count| count - 1).sum();
    // How often depends on the machine: a kill may come before anything is known to be safe.
    assert!(repeated < count * KILLS, "it moves on");
    // Shown with `--nocapture`.
    let text = format!("{count} entries, {repeated} repeated, each at most {most} times\n");
    let _ = std::io::stdout().write_all(text.as_bytes());
}

#[test]
fn settings_select_entries_and_fields_have_their_names() {
    let Some(writer) = writer() else { return };
    let folder = place();
    let unit = |unit| ("_SYSTEMD_UNIT", unit);
    let mut text = [
        entry(
            1,
            &[
                ("MESSAGE", "a"),
                unit("a.service"),
                ("PRIORITY", "3"),
                ("_PID", "7"),
                ("_HOSTNAME", "h"),
                ("CODE_LINE", "12"),
            ],
        ),
        entry(
            2,
            &[
                ("MESSAGE", "b"),
                unit("b.service"),
                ("PRIORITY", "6"),
                ("_COMM", "x"),
            ],
        ),
        entry(
            3,
            &[
                ("MESSAGE", "kernel"),
                ("_TRANSPORT", "kernel"),
                ("PRIORITY", "4"),
            ],
        ),
        entry(
            4,
            &[
                ("MESSAGE", "started a"),
                ("UNIT", "a.service"),
                ("_PID", "1"),
            ],
        ),
        entry(
            5,
            &[("MESSAGE", "first"), ("MESSAGE", "second"), ("_COMM", "x")],
        ),
    ]
    .concat();
    // Another start of the machine.
    text += &entry(6, &[("MESSAGE", "later")]).replace("_BOOT_ID=0", "_BOOT_ID=f");
    Journal::whole(writer, &folder.path("journal/x.journal"), &text);
    for (settings, expected) in [
        ("", &["a", "b", "kernel", "started a", "first", "later"][..]),
        (", boot: true", &["later"]),
        (
            ", kernel: false",
            &["a", "b", "started a", "first", "later"],
        ),
        (", units: a", &["a", "started a"]),
        (
            ", units: [a.service, b], kernel: true",
            &["a", "b", "kernel", "started a"],
        ),
        (", units: [a, b], matches: _COMM=x", &["b"]),
        (", matches: [_COMM=x, _COMM=y]", &["b", "first"]),
        (", priority: warning", &["a", "kernel"]),
        (", priority: warning..warning", &["kernel"]),
        (
            ", since: \"2025-11-25 10:11:12.000035 UTC\"",
            &["started a", "first", "later"],
        ),
    ] {
        assert_eq!(read(&folder, settings), expected, "{settings}");
    }
    read(&folder, "");
    let mut events = events(&folder);
    events.iter_mut().for_each(|event| {
        let ids = event.as_object_mut().expect("an object").remove("id");
        assert_eq!(ids.expect("an id").as_str().map(str::len), Some(32));
    });
    let boot = "0123456789abcdef0123456789abcdef";
    let expected = json!({
        "@timestamp": "2025-11-25T10:11:12.000010Z", "message": "a", "host": {"name": "h", "boot": {"id": boot}},
        "log": {"level": "error", "syslog": {"severity": {"code": 3}}}, "process": {"pid": 7},
        "systemd": {"unit": "a.service"}, "journald": {"CODE_LINE": "12", "__MONOTONIC_TIMESTAMP": "1"},
    });
    let journald = events[0]["journald"].as_object_mut().expect("an object");
    // Later versions of systemd write these too.
    journald.retain(|name, _| !name.starts_with("__SEQNUM"));
    assert_eq!(events[0], expected);
    assert_eq!(events[4]["journald"]["MESSAGE"], "second");
}

#[test]
fn what_was_deleted_is_reported_and_the_oldest_entry_is_next() {
    let Some(writer) = writer() else { return };
    let folder = place();
    let (first, second) = (
        folder.path("journal/1.journal"),
        folder.path("journal/2.journal"),
    );
    Journal::whole(writer, &first, &(0..20).map(numbered).collect::<String>());
    let path = config(&folder, ", follow: false");
    millpond(&["run", &path]).expect(0);
    assert_eq!(written(&folder), 20);
    // A stop repeats nothing and loses nothing.
    millpond(&["run", &path]).expect(0);
    assert_eq!(written(&folder), 20);
    fs::remove_file(first).expect("removed");
    Journal::whole(writer, &second, &(30..40).map(numbered).collect::<String>());
    let said = millpond(&["run", &path]).expect(0).err;
    assert!(
        said.contains("the entry at the saved position is not in the journal"),
        "{said}"
    );
    let events = events(&folder);
    assert_eq!(events.len(), 30);
    assert_eq!(
        events[20]["message"], "entry 30",
        "the oldest entry that is there"
    );
    let said = millpond(&["run", &path]).expect(0).err;
    assert!(!said.contains("saved position"), "{said}");
    assert_eq!(written(&folder), 30);
}

#[test]
fn journalctl_is_started_again_behind_what_was_read() {
    let Some(writer) = writer() else { return };
    let folder = place();
    // It ends after half a second.
    let program = folder.write("ending", "#!/bin/sh\nexec timeout 0.5 journalctl \"$@\"\n");
    fs::set_permissions(&program, Permissions::from_mode(0o755)).expect("its own file");
    let mut journal = Journal::new(writer, &folder.path("journal/x.journal"));
    journal.add(&numbered(0));
    let path = config(&folder, &format!(", program: {program}"));
    let child = command(&["run", &path]).spawn().expect("it runs");
    for number in 1..4 {
        until("an entry", || written(&folder) as u64 >= number);
        sleep(Duration::from_millis(700));
        journal.add(&numbered(number));
    }
    until("the last entry", || written(&folder) == 4);
    let said = end(child, Signal::TERM).expect(0).err;
    assert!(
        said.contains("journalctl ended (exit status: 124); it is started again in 1 s"),
        "{said}"
    );
    journal.end();
    assert_eq!(written(&folder), 4, "nothing came twice");
}

#[test]
fn what_cannot_work_ends_the_start() {
    let folder = place();
    for (settings, part) in [
        (
            ", program: /nowhere/journalctl",
            "`/nowhere/journalctl` cannot be run",
        ),
        (", program: \"false\"", "`false --version` failed"),
        (", units: \"a*\"", "the name of a unit is expected"),
        (", matches: [A=1, b]", "`FIELD=value` is expected"),
        (", priority: loud", "`warning..err` is expected"),
        (", max_event_bytes: 1", "1KiB to 64MiB is expected"),
    ] {
        let said = millpond(&["run", &config(&folder, settings)]).expect(2).err;
        assert!(said.contains(part), "{settings}: {said}");
    }
}
