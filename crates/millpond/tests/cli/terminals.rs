//! What people see on a terminal: colours, and the line at the end.

use std::io::Read;
use std::process::Stdio;

use crate::notation::terminal;
use crate::program::{Folder, command, millpond};

/// Runs a command whose standard error is a terminal; what that shows, with its escapes.
fn on_terminal(args: &[&str], environment: &[(&str, &str)]) -> String {
    let (mut controller, user) = terminal();
    let mut command = command(args);
    command
        .stdout(Stdio::null())
        .stderr(user)
        .env_remove("NO_COLOR")
        .env("TERM", "xterm")
        .envs(environment.iter().copied());
    let mut child = command.spawn().expect("the executable runs");
    // The command holds a descriptor of the terminal; without it, reading ends when the child has ended.
    drop(command);
    let mut shown = Vec::new();
    // The end of a terminal is an error.
    let _ = controller.read_to_end(&mut shown);
    child.wait().expect("it ends");
    String::from_utf8(shown)
        .expect("text")
        .replace("\r\n", "\n")
}

#[test]
fn a_run_ends_with_what_it_did() {
    let folder = Folder::new();
    let events = folder.write("a.json", "{\"n\":1}\n{\"n\":\"x\"}\n");
    let state = folder.path("state");
    let pipeline = format!("file {events} | date n UNIX on_failure=dead_letter | discard");
    let args = ["run", &pipeline, "--data-dir", &state];
    let shown = on_terminal(&args, &[]);
    // Behind what clears the progress bar.
    let last = shown.lines().last().unwrap_or_default();
    let last = last.rsplit("\u{1b}[2K").next().unwrap_or_default();
    assert!(
        last.starts_with("2 events in 0.") && last.ends_with(" s, 1 dead letter"),
        "{shown}"
    );
    let pipeline = format!("file {events} | head 1 | discard");
    let shown = on_terminal(&["run", &pipeline], &[]);
    assert!(
        shown.contains(" events in 0.") && shown.ends_with(" s\n"),
        "{shown}"
    );
    assert_eq!(on_terminal(&["run", &pipeline, "--quiet"], &[]), "");
    // Elsewhere nothing is said.
    assert_eq!(millpond(&["run", &pipeline]).expect(0).err, "");
}

#[test]
fn a_quiet_run_says_what_is_wrong_alone() {
    let folder = Folder::new();
    let lines = folder.write("a.log", "x\n");
    let config = folder.write(
        "a.yaml",
        format!("api: off\npipelines: {{ a: {{ input: {{ file: {{ paths: {lines}, follow: false }} }}, processors: [where nothing == 1], output: discard }} }}"),
    );
    let loud = millpond(&["run", &config]).expect(0);
    assert!(loud.err.contains("no event had the field"), "{}", loud.err);
    let run = |args: &[&str]| {
        let output = command(args).output().expect("the executable runs");
        String::from_utf8(output.stderr).expect("text")
    };
    assert!(run(&["run", &config]).contains(" INFO "));
    let quiet = run(&["run", "-q", &config]);
    assert_eq!(quiet.lines().count(), 1, "{quiet}");
    assert!(quiet.contains(" WARN ") && quiet.contains("no event had the field"));
}

#[test]
fn messages_have_colours_where_they_are_wanted() {
    let painted = "\u{1b}[1;31merror:\u{1b}[0m there is no page named `x`";
    let warned = "\u{1b}[33mwarning:\u{1b}[0m processor where: no event had the field `a`";
    let docs: &[&str] = &["docs", "x"];
    let run: &[&str] = &["run", "generate apache count=1 | where a == 1 | discard"];
    for (args, shown) in [(docs, painted), (run, warned)] {
        let plain = shown.replace("\u{1b}[0m", "").replace("\u{1b}[1;31m", "");
        let plain = plain.replace("\u{1b}[33m", "");
        let never = [args, &["--color", "never"]].concat();
        let always = [&["--color=always"], args].concat();
        for (args, environment, expected) in [
            (args, ("X", ""), shown),
            (args, ("NO_COLOR", "1"), &plain),
            (args, ("TERM", "dumb"), &plain),
            (&never, ("X", ""), &plain),
            (&always, ("NO_COLOR", "1"), shown),
        ] {
            let found = on_terminal(args, &[environment]);
            assert!(
                found.contains(expected),
                "{args:?} {environment:?}\n{found:?}"
            );
        }
        assert!(millpond(args).err.contains(&plain));
        assert!(millpond(&always).err.contains(shown));
    }
    // Those of the command line itself, too.
    for args in [&["run", "--nothing"][..], &["--help"]] {
        let has_colours = |when: &str| {
            let ended = millpond(&[&[when][..], args].concat());
            (ended.out + &ended.err).contains('\u{1b}')
        };
        assert!(has_colours("--color=always"), "{args:?}");
        assert!(!has_colours("--color=auto"), "{args:?}");
        let never = [args, &["--color", "never"]].concat();
        let shown = on_terminal(&never, &[]);
        assert!(!shown.contains('\u{1b}'), "{shown:?}");
    }
    let ended = millpond(&["docs", "--color", "maybe"]).expect(2);
    assert!(ended.err.contains("auto, always, never"), "{}", ended.err);
}

#[test]
fn an_invalid_configuration_is_shown_with_its_place_and_the_word_in_colour() {
    let folder = Folder::new();
    let config = folder.write(
        "a.yaml",
        "pipelines: { a: { input: stdn, output: discard } }",
    );
    let shown = on_terminal(&["check", &config], &[]);
    let expected = format!("\n  --> {config}:1:");
    assert!(
        shown.starts_with("\u{1b}[1;31merror:\u{1b}[0m ") && shown.contains(&expected),
        "{shown}"
    );
}

#[test]
fn readable_json_has_the_colours_that_were_chosen() {
    let folder = Folder::new();
    let events = folder.write("a.json", "{\"n\":1}\n");
    let pipeline = format!("file {events} | stdout pretty");
    let plain = millpond(&["run", &pipeline]).expect(0).out;
    assert_eq!(plain, "{\"n\": 1}\n");
    let always = millpond(&["run", &pipeline, "--color", "always"])
        .expect(0)
        .out;
    assert!(
        always.contains("\u{1b}[") && always.ends_with("}\n"),
        "{always:?}"
    );
}
