//! Real runtimes: their programs' own functions have names and callers, alone and below native code that they call. Needs a JVM of Java 17 or later, Node,
//! CPython 3.12 or later, Go, and the right to sample.

mod programs;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use profiler::Profile;
use profiler::collapsed::write;
use profiler::filter::Filter;
use profiler::sampling::{Hint, Options, Recorder, Stats, Target};
use profiler::symbols::Symbols;
use profiler::symbols::kernel::Kernel;

use programs::program;

/// Seldom enough for a build without optimisation on a machine that does other things as well.
const FREQUENCY_HZ: u32 = 199;
/// How long the programs work.
const SECONDS: &str = "3";

/// One test at a time: the others would take its time.
static ALONE: Mutex<()> = Mutex::new(());

/// Samples a process until it ends.
fn record(command: &mut Command) -> (Profile, Stats) {
    let (profile, stats, _) = record_with_hints(command);
    (profile, stats)
}

fn record_with_hints(command: &mut Command) -> (Profile, Stats, Vec<Hint>) {
    record_to(command, Stdio::null())
}

/// What the program prints goes to `output`.
fn record_to(command: &mut Command, output: Stdio) -> (Profile, Stats, Vec<Hint>) {
    // Node leaves a log where it runs.
    let folder = tempfile::tempdir().expect("a folder");
    let command = command.current_dir(&folder).stdout(output);
    let mut child: Child = command.spawn().expect("the program");
    let target = Target::Processes(vec![child.id()]);
    let options = Options::new(target, FREQUENCY_HZ);
    let mut recorder = Recorder::start(&options).expect("the right to sample");
    let begin = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().expect("a child") {
            break status;
        }
        assert!(begin.elapsed() < Duration::from_secs(60), "it does not end");
        std::thread::sleep(Duration::from_millis(50));
        recorder.drain();
    };
    assert!(status.success(), "{status}");
    recorder.stop();
    recorder.drain();
    // What the runtime has left; none where it writes no map.
    let _ = std::fs::remove_file(format!("/tmp/perf-{}.map", child.id()));
    let kernel = Kernel::running().expect("the kernel's functions");
    let recorded = recorder.take();
    let profile = Symbols::with_kernel(kernel).name(&recorded.profile);
    (profile, recorded.stats, recorded.hints)
}

/// The share of samples in which functions call each other, directly or not: names that begin with these, the outermost first.
fn share(profile: &Profile, calls: &[&str]) -> f64 {
    let mut found = 0;
    for (stack, _, weight) in profile.samples() {
        let mut wanted = calls.iter().rev().peekable();
        for frame in profile.frame_ids(stack) {
            let frame = profile.frame_of(frame);
            wanted.next_if(|name| frame.function.starts_with(**name));
        }
        if wanted.peek().is_none() {
            found += weight.samples;
        }
    }
    found as f64 / profile.total().samples.max(1) as f64
}

/// Each of these lists of calls has at least so much of the samples.
fn check(name: &str, (profile, stats): &(Profile, Stats), least: &[(f64, &[&str])]) {
    assert!(stats.samples > 100, "{name}: {stats:?}");
    for (least, calls) in least {
        let share = share(profile, calls);
        assert!(
            share >= *least,
            "{name}: {calls:?} has {share}; {stats:?}\n{}",
            write(profile, &Filter::default(), None)
        );
    }
}

/// A CPython that writes perf maps.
fn python() -> PathBuf {
    let root = std::env::var_os("PYENV_ROOT").map_or_else(
        || Path::new(&std::env::var_os("HOME").unwrap_or_default()).join(".pyenv"),
        PathBuf::from,
    );
    let installed = std::fs::read_dir(root.join("versions"));
    let installed = installed.into_iter().flatten().flatten();
    let mut candidates: Vec<PathBuf> = installed
        .map(|version| version.path().join("bin/python3"))
        .collect();
    candidates.sort();
    candidates.extend(["python3", "python3.13", "python3.12"].map(PathBuf::from));
    let is_new = |candidate: &PathBuf| {
        let check = "import sys; sys.exit(not sys.is_stack_trampoline_active())";
        let run = Command::new(candidate)
            .args(["-X", "perf", "-c", check])
            .stderr(Stdio::null())
            .status();
        run.is_ok_and(|status| status.success())
    };
    let found = candidates.into_iter().rev().find(is_new);
    found.expect("CPython 3.12 or later, in the path or of pyenv")
}

#[test]
fn python_functions_have_names_and_callers() {
    let _alone = ALONE.lock();
    let mut command = Command::new(python());
    command.args(["-X", "perf"]).arg(program("busy.py"));
    let recorded = record(command.arg(SECONDS));
    check(
        "python",
        &recorded,
        &[
            (0.2, &["<module> (", "own_loop (", "own_leaf ("]),
            (0.2, &["<module> (", "own_native (", "deflate"]),
        ],
    );
    let (_, stats) = recorded;
    assert!(stats.broken * 10 <= stats.samples, "{stats:?}");
}

#[test]
fn node_functions_have_names_and_callers() {
    let _alone = ALONE.lock();
    let mut command = Command::new("node");
    command
        .args(["--perf-basic-prof", "--interpreted-frames-native-stack"])
        .arg(program("busy.js"));
    let recorded = record(command.arg(SECONDS));
    check(
        "node",
        &recorded,
        &[
            // The optimising compiler puts the leaf into the loop.
            (0.2, &["Builtins_JSEntry", "ownLoop "]),
            (0.2, &["Builtins_JSEntry", "ownNative ", "deflate"]),
        ],
    );
}

#[test]
fn an_unprepared_node_has_names_and_callers() {
    let _alone = ALONE.lock();
    let mut command = Command::new("node");
    let recorded = record(command.arg(program("busy.js")).arg(SECONDS));
    check(
        "node",
        &recorded,
        &[
            // The outer ones are called by the interpreter, and the script itself has no name.
            (0.2, &["Builtins_JSEntry", "(anonymous) /", "ownLoop /"]),
            (
                0.2,
                &[
                    "Builtins_JSEntry",
                    "(anonymous) /",
                    "ownNative /",
                    "deflate",
                ],
            ),
        ],
    );
}

#[test]
fn python_without_a_map_gets_a_hint() {
    let _alone = ALONE.lock();
    let mut command = Command::new(python());
    let (_, _, hints) = record_with_hints(command.arg(program("busy.py")).arg(SECONDS));
    let hints: Vec<String> = hints.iter().map(ToString::to_string).collect();
    assert!(
        hints.len() == 1 && hints[0].contains("-X perf"),
        "{hints:?}"
    );
}

/// The Java program, compiled, as a command of the JVM.
fn java(folder: &Path, options: &[&str]) -> Command {
    let mut compiler = Command::new("javac");
    compiler.arg("-d").arg(folder).arg(program("Busy.java"));
    assert!(compiler.status().expect("javac").success());
    let mut java = Command::new("java");
    java.args(options).arg("-cp").arg(folder);
    java.args(["Busy", SECONDS]);
    java
}

#[test]
fn java_functions_have_names_and_callers() {
    let _alone = ALONE.lock();
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = java(folder.path(), &["-XX:+PreserveFramePointer"]);
    let (profile, stats, hints) = record_with_hints(&mut command);
    let recorded = (profile, stats);
    check(
        "java",
        &recorded,
        &[
            (0.1, &["JavaMain", "StubRoutines", "int Busy.ownLoop("]),
            (0.2, &["JavaMain", "int Busy.ownNative(", "deflate"]),
        ],
    );
    assert!(stats.broken * 50 <= stats.samples, "{stats:?}");
    assert_eq!(hints, []);
}

#[test]
fn an_unprepared_jvm_has_names_and_gets_a_hint() {
    let _alone = ALONE.lock();
    let folder = tempfile::tempdir().expect("a folder");
    let mut recorded = record_with_hints(&mut java(folder.path(), &[]));
    for _ in 0..2 {
        // Whether stacks end in compiled code depends on where its samples were taken.
        if recorded.2.is_empty() {
            recorded = record_with_hints(&mut java(folder.path(), &[]));
        }
    }
    let (profile, stats, hints) = recorded;
    check("java", &(profile, stats), &[(0.2, &["int Busy.ownLoop("])]);
    let hints: Vec<String> = hints.iter().map(ToString::to_string).collect();
    assert_eq!(hints.len(), 1, "{hints:?}");
    let hint = &hints[0];
    assert!(hint.starts_with("java (process "), "{hint}");
    assert!(hint.contains("-XX:+PreserveFramePointer"), "{hint}");
}

#[test]
fn a_jvm_that_takes_no_commands_is_left_alone() {
    let _alone = ALONE.lock();
    let folder = tempfile::tempdir().expect("a folder");
    for option in ["-XX:+DisableAttachMechanism", "-Xrs"] {
        let said = folder.path().join("said");
        let file = std::fs::File::create(&said).expect("a file");
        let options = [option, "-XX:+PreserveFramePointer"];
        let mut command = java(folder.path(), &options);
        // It would print a dump of its threads there.
        let (_, _, hints) = record_to(&mut command, file.into());
        let said = std::fs::read_to_string(said).expect("what it printed");
        assert_eq!(said.lines().count(), 1, "{said}");
        let hints: Vec<String> = hints.iter().map(ToString::to_string).collect();
        assert!(hints.len() == 1 && hints[0].contains(option), "{hints:?}");
    }
}

#[test]
fn go_functions_have_names_and_callers() {
    let _alone = ALONE.lock();
    let folder = tempfile::tempdir().expect("a folder");
    let built = folder.path().join("busy");
    let mut go = Command::new("go");
    go.args(["build", "-o"])
        .arg(&built)
        .arg(program("busy.go"))
        .env("GOCACHE", folder.path().join("cache"));
    assert!(go.status().expect("Go").success());
    let recorded = record(Command::new(built).arg(SECONDS));
    check(
        "go",
        &recorded,
        &[
            (0.2, &["main.main", "main.ownLoop", "main.ownLeaf"]),
            (0.1, &["main.main", "main.ownNative", "vfs_read"]),
        ],
    );
}
