//! What pipelines may be written like, as users write them.

use serde_json::Value;

use crate::program::{Ended, Folder, command, ended};

/// Runs a one-line pipeline in a folder, which is the home directory too.
fn run_in(folder: &Folder, pipeline: &str) -> Ended {
    let mut command = command(&["run", pipeline]);
    command
        .current_dir(folder.path(""))
        .env("HOME", folder.path("home"));
    ended(command.output().expect("the executable runs"))
}

fn messages(ended: &Ended) -> Vec<String> {
    let text = |event: &Value| event["message"].as_str().expect("a text").to_owned();
    ended.events().iter().map(text).collect()
}

fn logs() -> Folder {
    let folder = Folder::new();
    for name in ["nginx/deeper", "home"] {
        std::fs::create_dir_all(folder.path(name)).expect("made");
    }
    for name in [
        "a.log",
        "b.log",
        "nginx/access.log",
        "nginx/error.log",
        "nginx/.hidden",
        "nginx/deeper/d.log",
        "home/x.log",
    ] {
        folder.write(name, format!("{name}\n"));
    }
    folder
}

#[test]
fn several_files_folders_and_the_home_directory() {
    let folder = logs();
    for (pipeline, expected) in [
        (
            "file a.log b.log nginx/ ~/x.log | stdout",
            &[
                "a.log",
                "b.log",
                "nginx/access.log",
                "nginx/error.log",
                "home/x.log",
            ][..],
        ),
        ("file a.log, b.log | stdout", &["a.log", "b.log"]),
        ("file {b,a}.log,~/*.log", &["a.log", "b.log", "home/x.log"]),
        ("file nginx", &["nginx/access.log", "nginx/error.log"]),
        ("file ~", &["home/x.log"]),
        (
            "file nginx/** exclude=~/x.log",
            &["nginx/access.log", "nginx/deeper/d.log", "nginx/error.log"],
        ),
    ] {
        let ended = run_in(&folder, pipeline).expect(0);
        assert_eq!(messages(&ended), expected, "{pipeline}");
    }
    let lists = "pipelines: { p: { input: { file: [a.log, nginx, ~/x.log] }, output: { file: ~/out.ndjson } } }\n";
    let yaml = folder.write("p.yaml", lists.replace("nginx,", "nginx, follow.log,"));
    let mut check = command(&["check", &yaml]);
    check.env_remove("HOME");
    let refused = ended(check.output().expect("the executable runs")).expect(2);
    assert!(
        refused
            .err
            .contains("environment variable HOME, which is not set"),
        "{}",
        refused.err
    );
    assert!(refused.err.contains("~/x.log"), "{}", refused.err);
}

#[test]
fn paths_of_outputs_and_settings_know_the_home_directory() {
    let folder = logs();
    run_in(&folder, "file a.log | file ~/out/%{+yyyy}-x.ndjson").expect(0);
    let files = std::fs::read_dir(folder.path("home/out")).expect("a folder");
    let count = files.filter(|file| {
        file.as_ref()
            .is_ok_and(|file| file.file_name().to_string_lossy().ends_with("-x.ndjson"))
    });
    assert_eq!(count.count(), 1);
    folder.write("home/token", "secret\n");
    let secret = run_in(
        &folder,
        "file a.log | http http://localhost:1/ auth.bearer=file:~/no-token",
    );
    let path = folder.path("home/no-token");
    assert!(secret.expect(2).err.contains(&path));
    let yaml = "data_dir: ~/state\npipelines: { p: { input: stdin, output: discard, queue: { disk: { path: ~/queue } } } }\n";
    let yaml = folder.write("p.yaml", yaml);
    run_in(&folder, &yaml).expect(0);
    for name in ["home/state", "home/queue"] {
        assert!(std::path::Path::new(&folder.path(name)).is_dir(), "{name}");
    }
}

/// A terminal, as its user and as a program sees it.
pub fn terminal() -> (std::fs::File, std::fs::File) {
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    let controller = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
    grantpt(&controller).expect("granted");
    unlockpt(&controller).expect("unlocked");
    let name = ptsname(&controller, Vec::new()).expect("a name");
    let options = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(name.to_str().expect("a path"));
    (controller.into(), options.expect("opens"))
}

#[test]
fn whoever_forgets_the_input_is_told_that_the_terminal_is_read() {
    use std::io::Write;
    let hint = "reading events from the terminal, one per line; Ctrl-D ends them (to read a file: file PATH | …)\n";
    for (pipeline, stdin, expected) in [
        ("keep message | stdout codec=json", true, hint),
        ("stdin | keep message | stdout codec=json", true, hint),
        ("generate apache count=1 | discard", true, ""),
        ("keep message | stdout codec=json", false, ""),
    ] {
        let (mut controller, user) = terminal();
        let mut command = command(&["run", pipeline]);
        let is_given = match stdin {
            true => command.stdin(user),
            false => command.stdin(std::fs::File::open("/dev/null").expect("opens")),
        };
        let child = is_given.spawn().expect("the executable runs");
        drop(command);
        controller.write_all(b"one\n\x04").expect("typed");
        let ended = child.wait_with_output().expect("it ends");
        assert_eq!(
            String::from_utf8_lossy(&ended.stderr),
            expected,
            "{pipeline}"
        );
        let out = if !expected.is_empty() {
            "{\"message\":\"one\"}\n"
        } else {
            ""
        };
        assert_eq!(String::from_utf8_lossy(&ended.stdout), out, "{pipeline}");
    }
}

/// Runs a pipeline whose standard output is a terminal; what it shows.
fn on_terminal(folder: &Folder, pipeline: &str, environment: &[(&str, &str)]) -> String {
    let (mut controller, user) = terminal();
    let mut command = command(&["run", pipeline]);
    command
        .current_dir(folder)
        .stdout(user)
        .env_remove("NO_COLOR")
        .env("TERM", "xterm");
    command.envs(environment.iter().copied());
    let mut child = command.spawn().expect("the executable runs");
    // The command holds a descriptor of the terminal; without it, reading ends when the child has ended.
    drop(command);
    let mut shown = Vec::new();
    // The end of a terminal is an error.
    let _ = std::io::Read::read_to_end(&mut controller, &mut shown);
    assert!(child.wait().expect("it ends").success());
    String::from_utf8(shown)
        .expect("text")
        .replace("\r\n", "\n")
}

#[test]
fn events_are_readable_on_a_terminal_and_json_elsewhere() {
    let folder = Folder::new();
    let long = "x".repeat(70);
    let lines = format!("{{\"a\":1,\"b\":[true,null]}}\n{{\"a\":\"{long}\",\"b\":{{}}}}\n");
    folder.write("a.json", &lines);
    let pipeline = "file a.json codec=json";
    let plain =
        format!("{{\"a\": 1, \"b\": [true, null]}}\n{{\n  \"a\": \"{long}\",\n  \"b\": {{}}\n}}\n");
    assert_eq!(on_terminal(&folder, pipeline, &[("NO_COLOR", "1")]), plain);
    assert_eq!(
        on_terminal(
            &folder,
            &format!("{pipeline} | stdout"),
            &[("TERM", "dumb")]
        ),
        plain
    );
    let coloured = on_terminal(&folder, pipeline, &[("NO_COLOR", "")]);
    assert!(
        coloured.starts_with("{\u{1b}[34m\"a\"\u{1b}[0m: \u{1b}[33m1\u{1b}[0m, "),
        "{coloured}"
    );
    assert_eq!(
        on_terminal(&folder, &format!("{pipeline} | stdout codec=json"), &[]),
        lines
    );
    assert_eq!(run_in(&folder, pipeline).expect(0).out, lines);
    assert_eq!(
        run_in(&folder, &format!("{pipeline} | stdout codec=pretty"))
            .expect(0)
            .out,
        plain
    );
}

/// What a pipeline makes of these events, in one line and with its processors as stages of a YAML file.
fn both(processors: &str, input: &str) -> Vec<Value> {
    let folder = Folder::new();
    folder.write("in.ndjson", input);
    let source = "file in.ndjson codec=json follow=false";
    let one = run_in(&folder, &format!("{source} | {processors} | stdout")).expect(0);
    let items: Vec<String> = processors
        .split(" | ")
        .map(|stage| format!("'{}'", stage.replace('\'', "''")))
        .collect();
    let yaml = format!(
        "pipelines: {{ p: {{ input: '{source}', processors: [{}], output: stdout }} }}\n",
        items.join(", ")
    );
    let yaml = folder.write("p.yaml", yaml);
    let again = run_in(&folder, &yaml).expect(0);
    assert_eq!(one.out, again.out, "{processors}");
    let whole = format!(
        "pipelines: {{ p: '{}' }}\n",
        format!("{source} | {processors}").replace('\'', "''")
    );
    let whole = folder.write("whole.yaml", whole);
    assert_eq!(
        run_in(&folder, &whole).expect(0).out,
        one.out,
        "{processors}"
    );
    one.events()
}

#[test]
fn stages_are_written_as_people_write_them() {
    let event = r#"{"level":"INFO","bytes_in":1,"bytes_out":2,"clientip":"192.0.2.1","verb":"GET","message":"m","host":"h","@timestamp":"2026-01-01T00:00:00Z"}"#;
    let debug = event.replace("INFO", "DEBUG");
    let kept = "keep level, total, env, source, http";
    let cases = [
        (
            r#"drop level == "DEBUG" | keep level"#,
            r#"{"level":"INFO"}"#,
        ),
        (
            &format!(
                r#"drop level == "DEBUG" | set total = bytes_in + bytes_out, env = "prod" | {kept}"#
            ),
            r#"{"level":"INFO","total":3,"env":"prod"}"#,
        ),
        (
            &format!(
                r#"head 1 | rename clientip -> source.ip, verb -> http.request.method | {kept}"#
            ),
            r#"{"level":"INFO","source":{"ip":"192.0.2.1"},"http":{"request":{"method":"GET"}}}"#,
        ),
        (
            "head 1 | keep @timestamp, message",
            r#"{"@timestamp":"2026-01-01T00:00:00Z","message":"m"}"#,
        ),
        (
            "head 1 | keep @timestamp, message, host | remove message, host",
            r#"{"@timestamp":"2026-01-01T00:00:00Z"}"#,
        ),
        ("head 1 | keep message host | remove message host", "{}"),
        (
            r#"where level == "DEBUG" || bytes_in > 5 | keep level"#,
            r#"{"level":"DEBUG"}"#,
        ),
    ];
    for (processors, expected) in cases {
        let expected: Value = serde_json::from_str(expected).expect("JSON");
        assert_eq!(
            both(processors, &format!("{event}\n{debug}\n")),
            [expected],
            "{processors}"
        );
    }
}

#[test]
fn what_was_written_otherwise_before_is_refused_with_the_new_form() {
    for (stage, said) in [
        ("set zip 00123", "set total = bytes_in + bytes_out"),
        ("set zip=00123", "`\"00123\"`"),
        ("drop if='level == \"DEBUG\"'", "drop level == \"DEBUG\""),
        (
            "where condition='n == 1'",
            "the rest of the stage belongs to it",
        ),
        ("rename a b", "rename clientip -> source.ip"),
        ("rename from=a to=b", "rename clientip -> source.ip"),
        ("remove fields=[a, b]", "remove message, host"),
        ("where 'n == 1'", "without quotes around it"),
    ] {
        let refused = crate::program::run(&format!("stdin | {stage} | stdout")).expect(2);
        assert!(refused.err.contains(said), "{stage}: {}", refused.err);
    }
    for (stage, said) in [
        ("set: { field: zip, value: 1 }", "`values: { zip: VALUE }`"),
        ("rename: { from: a, to: b }", "`fields: { PRESENT: NEW }`"),
    ] {
        let folder = Folder::new();
        let yaml = format!(
            "pipelines: {{ p: {{ input: stdin, processors: [{stage}], output: stdout }} }}\n"
        );
        let refused = crate::program::millpond(&["check", &folder.write("p.yaml", yaml)]).expect(2);
        assert!(refused.err.contains(said), "{stage}: {}", refused.err);
    }
}

#[test]
fn times_are_written_and_read_in_two_kinds_of_letters_and_in_a_zone() {
    let folder = Folder::new();
    // Just before midnight in UTC, which is the next day in Berlin.
    folder.write(
        "a.json",
        "{\"@timestamp\":\"2026-06-30T23:30:05.25Z\",\"a\":1}\n",
    );
    for (settings, expected) in [
        ("out-%{+yyyy-MM-dd}.ndjson", "out-2026-06-30.ndjson"),
        ("out-%{+%Y-%m-%d}.ndjson", "out-2026-06-30.ndjson"),
        (
            "out-%{+yyyy-MM-dd}.ndjson timezone=Europe/Berlin",
            "out-2026-07-01.ndjson",
        ),
        (
            "out-%{+%Y-%m-%dT%H}.ndjson timezone=+02:00",
            "out-2026-07-01T01.ndjson",
        ),
    ] {
        run_in(&folder, &format!("file a.json | file {settings}")).expect(0);
        assert!(
            std::fs::remove_file(folder.path(expected)).is_ok(),
            "{settings}: {expected}"
        );
    }
    let line = |settings: &str| {
        run_in(
            &folder,
            &format!("file a.json | stdout template {settings}"),
        )
        .expect(0)
        .out
    };
    assert_eq!(line("'%{+HH:mm} %{a}' timezone=Asia/Kolkata"), "05:00 1\n");
    assert_eq!(
        line("'%{+%d/%b/%Y %H:%M:%S.%3f %z} %%'"),
        "30/Jun/2026 23:30:05.250 +0000 %\n"
    );
    let set =
        r#"file a.json | set t = formatTime(@timestamp, "%d.%m.%Y", "Europe/Berlin") | keep t"#;
    assert_eq!(
        run_in(&folder, set).expect(0).out,
        "{\"t\":\"01.07.2026\"}\n"
    );
    folder.write(
        "b.json",
        "{\"at\":\"01/Jul/2026:01:30:05\"}\n{\"at\":\"1782862205\"}\n",
    );
    let date =
        r#"file b.json | date at "%d/%b/%Y:%H:%M:%S" %s timezone=Europe/Berlin | keep @timestamp"#;
    let time = "{\"@timestamp\":\"2026-06-30T23:30:05.000Z\"}\n";
    assert_eq!(run_in(&folder, date).expect(0).out, [time, time].concat());
    for (stage, said) in [
        ("file out-%{+%Q%!}.ndjson", "broken strftime format"),
        (
            "stdout template '%{+yyyy}' timezone=Europe/Berlinn",
            "did you mean `Europe/Berlin`?",
        ),
        (
            "stdout template '%{+yyyy}' time_zone=UTC",
            "`time_zone` has been renamed to `timezone`",
        ),
        ("date at %Y-%q | stdout", "`%q` cannot be read"),
    ] {
        let refused = run_in(&folder, &format!("file a.json | {stage}")).expect(2);
        assert!(refused.err.contains(said), "{stage}: {}", refused.err);
    }
}
