//! What is recorded is what programs say of themselves: a C program measures the time of each of its functions, and the profile's shares
//! are within three points of that. Needs a C compiler, and the right to sample.

mod programs;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use profiler::Profile;
use profiler::filter::Filter;
use profiler::sampling::{Options, Recorder, Stats, Target};
use profiler::symbols::Symbols;
use profiler::symbols::kernel::Kernel;
use profiler::top::{Group, Row, table};

use programs::program;

/// So many samples of a thread that the shares of one are within a point of each other, by chance alone.
const FREQUENCY_HZ: u32 = 1997;
const SECONDS: &str = "4";

/// One test at a time: the others would take its time.
static ALONE: Mutex<()> = Mutex::new(());

/// How far a share may be from the truth, in points.
const POINTS: f64 = 3.0;

/// How far that of the other thread may be.
const THREAD_POINTS: f64 = 30.0;

fn compile(folder: &Path, name: &str, flags: &[&str]) -> PathBuf {
    let out = folder.join(name);
    let is_library = name.ends_with(".so");
    let mut cc = Command::new("cc");
    cc.args(["-O2", "-o"]).arg(&out);
    match is_library {
        true => cc.args(["-shared", "-fPIC"]).arg(program("library.c")),
        false => cc.arg(program("split.c")),
    };
    cc.args(flags).args(["-pthread", "-ldl"]);
    assert!(cc.status().expect("a C compiler").success());
    out
}

fn record(child: &mut Child, target: Target) -> (Profile, Stats) {
    let mut recorder =
        Recorder::start(&Options::new(target, FREQUENCY_HZ)).expect("the right to sample");
    let begin = Instant::now();
    while child.try_wait().expect("a child").is_none() {
        assert!(begin.elapsed() < Duration::from_secs(60), "it does not end");
        std::thread::sleep(Duration::from_millis(100));
        recorder.drain();
    }
    recorder.stop();
    recorder.drain();
    let recorded = recorder.take();
    (recorded.profile, recorded.stats)
}

/// What a program says that its functions took, as shares of all of them.
fn truth(child: Child) -> HashMap<String, f64> {
    let output = child.wait_with_output().expect("its output");
    let text = String::from_utf8(output.stdout).expect("text");
    let line = |line: &str| {
        let (name, seconds) = line.split_once(' ')?;
        Some((name.to_owned(), seconds.parse::<f64>().ok()?))
    };
    let seconds: HashMap<String, f64> = text.lines().filter_map(line).collect();
    shares_of(seconds)
}

/// The shares of functions. What the kernel does meanwhile, such as interrupts, is of the innermost of them, as the program's clock has it.
fn shares(profile: &Profile, names: &HashMap<String, f64>) -> HashMap<String, f64> {
    let mut samples: HashMap<String, u64> = HashMap::new();
    for (stack, _, weight) in profile.samples() {
        let mut functions = profile
            .frame_ids(stack)
            .map(|frame| profile.frame_of(frame));
        let innermost = functions.find(|frame| names.contains_key(&*frame.function));
        if let Some(frame) = innermost {
            *samples.entry(frame.function.into_owned()).or_default() += weight.samples;
        }
    }
    let samples = samples
        .into_iter()
        .map(|(name, samples)| (name, samples as f64));
    shares_of(samples.collect())
}

/// The shares of the main thread's functions, and that of the other thread's against all of them. Two threads run on two cores, and a virtual
/// machine's cores lose different parts of their time to others: that counts for a thread's clock, and cannot be sampled.
fn shares_of(amounts: HashMap<String, f64>) -> HashMap<String, f64> {
    let of_main = |(name, amount): (&String, &f64)| (name != "in_thread").then_some(*amount);
    let all: f64 = amounts.iter().filter_map(of_main).sum();
    assert!(all > 0.0, "{amounts:?}");
    amounts
        .into_iter()
        .map(|(name, amount)| (name, amount / all))
        .collect()
}

/// Runs and samples a program: its profile, and what it says that its functions took.
fn run(program: &Path, library: &Path) -> (Profile, Stats, HashMap<String, f64>) {
    let mut child = Command::new(program)
        .arg(SECONDS)
        .arg(library)
        .stdout(Stdio::piped())
        .spawn()
        .expect("a program");
    let target = Target::Processes(vec![child.id()]);
    let (profile, stats) = record(&mut child, target);
    let truth = truth(child);
    (profile, stats, truth)
}

fn check(name: &str, program: &Path, library: &Path, symbols: &mut Symbols) {
    let (profile, stats, truth) = run(program, library);
    let named = symbols.name(&profile);
    let found = shares(&named, &truth);
    for (function, expected) in &truth {
        let share = found.get(function).copied().unwrap_or(0.0);
        let points = if function == "in_thread" {
            THREAD_POINTS
        } else {
            POINTS
        };
        assert!(
            (share - expected).abs() * 100.0 <= points,
            "{name}: {function} took {expected:.3} and has {share:.3}; {found:?} of {truth:?}"
        );
    }
    let bad = stats.broken + stats.cut;
    assert!(bad * 50 <= stats.samples, "{name}: {stats:?}");
    assert_eq!(stats.lost, 0, "{name}");
    // Callers are there: all of the main thread's is below `main`, the handler's as well.
    let below = |caller: &str, function: &str| {
        let filter = Filter {
            function: Some(caller.to_owned()),
            ..Filter::default()
        };
        let rows = table(&named, &filter, &Group::Function).rows;
        let row = rows.into_iter().find(|row| row.name == function);
        row.map_or(0, |row| row.own.samples)
    };
    let handler = below("in_handler", "in_handler");
    assert!(handler > 0);
    if !name.contains("stripped") {
        assert!(
            below("on_alarm", "in_handler") * 50 >= handler * 49,
            "{name}"
        );
        let smallest = below("smallest", "smallest");
        assert!(below("main", "smallest") * 50 >= smallest * 49, "{name}");
    }
}

#[test]
fn shares_are_those_of_the_program() {
    let _alone = ALONE.lock();
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let library = compile(folder, "library.so", &[]);
    for (name, flags) in [
        ("plain", &["-fomit-frame-pointer"][..]),
        (
            "frame-pointers",
            &["-fno-omit-frame-pointer", "-fno-asynchronous-unwind-tables"],
        ),
        ("no-pie", &["-fomit-frame-pointer", "-no-pie"]),
        ("debug", &["-fomit-frame-pointer", "-g"]),
        ("stripped", &["-fomit-frame-pointer", "-s", "-rdynamic"]),
    ] {
        let program = compile(folder, name, flags);
        let kernel = Kernel::running().expect("the kernel's functions");
        check(name, &program, &library, &mut Symbols::with_kernel(kernel));
    }
}

#[test]
fn functions_of_stripped_programs_are_a_row_each() {
    let _alone = ALONE.lock();
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let library = compile(folder, "library.so", &[]);
    for (name, link) in [("stripped", "-pie"), ("stripped-static", "-static")] {
        let program = compile(folder, name, &["-fomit-frame-pointer", "-s", link]);
        rows_of(&program, &library);
    }
}

/// Every function of a program without symbols has a row. A single sample may also lie in what starts a program, or in the C library of a
/// static one: functions that the program measures have hundreds.
fn rows_of(program: &Path, library: &Path) {
    let (profile, _, truth) = run(program, library);
    let rows = |profile: &Profile, least: u64| {
        let table = table(profile, &Filter::default(), &Group::Function);
        let own = |row: &&Row| row.binary == program.to_string_lossy() && row.own.samples >= least;
        table.rows.iter().filter(own).count()
    };
    let named = Symbols::new().name(&profile);
    // `main`, which calls them, and the handler have some as well.
    let (most, found) = (truth.len() + 2, rows(&named, 50));
    assert!(
        (truth.len() - 1..=most).contains(&found),
        "{found} of {truth:?}"
    );
    assert!(rows(&profile, 1) > rows(&named, 1), "addresses are more");
}

#[test]
fn stripped_programs_get_names_from_debug_files() {
    let _alone = ALONE.lock();
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let library = compile(folder, "library.so", &[]);
    let program = compile(folder, "split", &["-g", "-Wl,--build-id"]);
    let run = |command: &mut Command| assert!(command.status().expect("binutils").success());
    run(Command::new("objcopy").current_dir(folder).args([
        "--only-keep-debug",
        "split",
        "split.debug",
    ]));
    run(Command::new("strip").arg(&program));
    run(Command::new("objcopy")
        .current_dir(folder)
        .args(["--add-gnu-debuglink=split.debug", "split"]));
    check("stripped", &program, &library, &mut Symbols::new());
}

#[test]
fn the_whole_machine_has_this_program() {
    let _alone = ALONE.lock();
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let library = compile(folder, "library.so", &[]);
    let program = compile(folder, "split-of-machine", &[]);
    let mut child = Command::new(&program)
        .args(["2"])
        .arg(&library)
        .stdout(Stdio::piped())
        .spawn()
        .expect("a program");
    let pid = child.id().to_string();
    let (profile, _) = record(&mut child, Target::All);
    let filter = Filter {
        labels: vec![("pid".to_owned(), pid)],
        ..Filter::default()
    };
    let by = |label: &str| {
        let rows = table(&profile, &filter, &Group::Label(label.to_owned())).rows;
        rows.into_iter().map(|row| row.name).collect::<Vec<_>>()
    };
    // The kernel keeps 15 bytes of a name.
    assert_eq!(by("process"), ["split-of-machin"]);
    assert_eq!(by("host").len(), 1);
    drop(truth(child));
}
