//! Programs that ask much of whoever samples them: thousands of processes that end soon, very deep stacks, and maps of made code that change while they
//! are read. Needs a C compiler, and the right to sample.

mod programs;

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use profiler::Profile;
use profiler::profile::{FrameKind, label};
use profiler::sampling::unwind::FRAMES_MAX;
use profiler::sampling::{Options, Recorder, Stats, Target};
use profiler::symbols::Symbols;
use profiler::symbols::perf_map::PerfMap;

use programs::program;

/// One test at a time: the others would take its time.
static ALONE: Mutex<()> = Mutex::new(());

fn compile(folder: &Path, source: &str, name: &str, flags: &[&str]) -> PathBuf {
    let out = folder.join(name);
    let mut cc = Command::new("cc");
    cc.args(["-O1", "-fno-optimize-sibling-calls", "-o"])
        .arg(&out);
    cc.arg(program(source)).args(flags);
    assert!(cc.status().expect("a C compiler").success());
    out
}

/// What is sampled of a program and the programs that it starts, until it ends; `each` looks at the recorder meanwhile, and once behind the end.
fn record(command: &mut Command, hz: u32, mut each: impl FnMut(&Recorder)) -> (Profile, Stats) {
    let mut child = command.spawn().expect("a program");
    let target = Target::Processes(vec![child.id()]);
    let mut recorder = Recorder::start(&Options::new(target, hz)).expect("the right to sample");
    let begin = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().expect("a child") {
            break status;
        }
        let is_late = begin.elapsed() > Duration::from_secs(300);
        assert!(!is_late, "it does not end");
        std::thread::sleep(Duration::from_millis(100));
        recorder.drain();
        each(&recorder);
    };
    assert!(status.success(), "{status}");
    recorder.stop();
    // What has ended is forgotten when the next samples are read.
    recorder.drain();
    recorder.drain();
    each(&recorder);
    let recorded = recorder.take();
    (Symbols::new().name(&recorded.profile), recorded.stats)
}

/// The resident memory of this process.
fn resident_bytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("its own status");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kib.expect("a size") * 1024
}

#[test]
fn thousands_of_processes_have_names_and_are_forgotten() {
    const PROCESSES: usize = 10_000;
    let _alone = ALONE.lock();
    let folder = tempfile::tempdir().expect("a folder");
    let program = compile(folder.path(), "many.c", "many", &[]);
    // The kernel keeps 15 bytes of a name.
    let short = folder.path().join("short-lived");
    fs::copy(&program, &short).expect("a copy");
    let mut command = Command::new(&program);
    command.arg(PROCESSES.to_string()).arg(&short);
    let begin = Instant::now();
    let mut known = Vec::new();
    let (profile, stats) = record(&mut command, 997, |recorder| {
        known.push((recorder.known_processes(), resident_bytes()));
    });
    // 10,000 a minute.
    let expected = Duration::from_millis(6 * PROCESSES as u64);
    println!(
        "{:?} of {expected:?}, {stats:?}, {known:?}",
        begin.elapsed()
    );
    let (first, last) = (known[0], known[known.len() - 1]);
    let most = known.iter().map(|(processes, _)| *processes).max();
    // Others come and go meanwhile; those of a tenth of a second are known at once.
    assert!(most < Some(first.0 + 500), "{known:?}");
    assert!(last.0 < first.0 + 100, "{known:?}");
    // The ring buffers are full once, and other programs of the machine begin. What a process leaves is counted beside the code.
    assert!(last.1 < first.1 + (256 << 20), "{known:?}");
    assert!(stats.broken * 50 < stats.samples, "{stats:?}");
    assert_eq!(stats.lost, 0);
    let (mut pids, mut cut) = (HashSet::new(), 0);
    for (stack, labels, weight) in profile.samples() {
        let frames = profile.frame_ids(stack);
        let frames: Vec<_> = frames.map(|frame| profile.frame_of(frame)).collect();
        let is_cut = frames
            .last()
            .is_some_and(|frame| frame.function == "[stack cut off]");
        let native = frames
            .iter()
            .filter(|frame| frame.kind() == FrameKind::Native);
        cut += u64::from(is_cut && native.count() > 2) * weight.samples;
        let is_brief = frames.iter().any(|frame| frame.function == "briefly");
        if is_brief {
            let name = profile.label_of(labels, label::PROCESS);
            assert_eq!(name, Some("short-lived"));
            pids.insert(profile.label_of(labels, label::PID));
        }
    }
    // While a program takes the place of another one, no stack is there to be copied, and only the call of `execve` is known.
    assert!(cut * 200 < stats.samples, "{cut} cut, {stats:?}");
    assert!(stats.cut * 10 < stats.samples, "{stats:?}");
    assert!(pids.len() * 10 > PROCESSES * 9, "{} processes", pids.len());
}

#[test]
fn deep_stacks_are_cut_and_keep_what_is_innermost() {
    let _alone = ALONE.lock();
    let folder = tempfile::tempdir().expect("a folder");
    for (name, flags) in [
        ("tables", &["-fomit-frame-pointer"][..]),
        (
            "frame-pointers",
            &["-fno-omit-frame-pointer", "-fno-asynchronous-unwind-tables"],
        ),
    ] {
        let program = compile(folder.path(), "deep.c", name, flags);
        let before = resident_bytes();
        let mut command = Command::new(program);
        let (profile, stats) = record(command.args(["100000", "2"]), 997, |_| {});
        println!("{name}: {stats:?}, {} stacks", profile.stack_count());
        assert!(stats.samples > 500, "{name}: {stats:?}");
        // It needs some time to get there, and the program begins and ends.
        assert!(stats.cut * 100 > stats.samples * 97, "{name}: {stats:?}");
        assert!(stats.broken * 100 < stats.samples, "{name}: {stats:?}");
        let mut at_the_bottom = 0;
        for (stack, _, weight) in profile.samples() {
            let functions: Vec<_> = profile
                .frame_ids(stack)
                .map(|frame| profile.frame_of(frame).function.into_owned())
                .collect();
            let place = functions.iter().position(|name| name == "at_the_bottom");
            let Some(place) = place else {
                continue;
            };
            at_the_bottom += weight.samples;
            let (last, callers) = functions[place + 1..].split_last().expect("callers");
            assert_eq!(last, "[stack cut off]");
            let is_known = callers.iter().all(|name| name == "descend");
            assert!(is_known && callers.len() > 300, "{name}: {functions:?}");
            assert!(functions.len() <= FRAMES_MAX + 64, "{name}: {functions:?}");
        }
        assert!(
            at_the_bottom * 100 > stats.samples * 97,
            "{name}: {stats:?}"
        );
        let grown = resident_bytes().saturating_sub(before);
        assert!(grown < 64 << 20, "{name}: {grown} bytes");
    }
}

/// Functions of a map: how many, and how many bytes of code each has.
const FUNCTIONS: u64 = 2000;
const FUNCTION_BYTES: u64 = 0x100;

/// A map of which each name tells its place and the map's number, at both ends.
fn lines(number: u64) -> String {
    let line = |function: u64| {
        let start = (function + 1) * FUNCTION_BYTES;
        let fill = "x".repeat(((number * 7 + function) % 60) as usize);
        format!("{start:x} {FUNCTION_BYTES:x} [{function} {number} {fill} {number} {function}]\n")
    };
    (0..FUNCTIONS).map(line).collect()
}

/// Whether a name is that of a function and nothing else.
fn is_whole(name: &str, function: u64) -> bool {
    let inner = name.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
    let fields: Vec<&str> = inner.unwrap_or_default().split(' ').collect();
    let number = function.to_string();
    matches!(fields[..], [first, map, fill, again, last]
        if first == number && last == number && map == again && fill.bytes().all(|byte| byte == b'x'))
}

/// Changes what is there, in another way for each number.
fn change(path: &Path, folder: &Path, number: u64) -> std::io::Result<()> {
    use std::io::Write;
    let text = lines(number);
    let other = folder.join("other");
    let clear = || fs::remove_file(path).or_else(|_| fs::remove_dir(path));
    match number % 8 {
        0 | 6 => {
            let _ = clear();
            fs::write(path, text)
        }
        1 => {
            let mut file = fs::File::options().append(true).open(path)?;
            let mut pieces = text.as_bytes().chunks(1000);
            pieces.try_for_each(|piece| file.write_all(piece))
        }
        2 => {
            fs::write(&other, text)?;
            fs::rename(&other, path)
        }
        3 => {
            clear()?;
            let kind = rustix::fs::FileType::Fifo;
            let mode = rustix::fs::Mode::from_raw_mode(0o600);
            Ok(rustix::fs::mknodat(rustix::fs::CWD, path, kind, mode, 0)?)
        }
        4 => {
            clear()?;
            fs::write(&other, text)?;
            std::os::unix::fs::symlink(&other, path)
        }
        5 => {
            clear()?;
            fs::create_dir(path)
        }
        // What is written over a file of the same length, and then cut in a line.
        _ => {
            fs::write(path, &text)?;
            let file = fs::File::options().write(true).open(path)?;
            file.set_len(text.len() as u64 / 2 + 10)
        }
    }
}

#[test]
fn maps_that_change_while_they_are_read_give_whole_names() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("perf-1.map");
    let is_over = AtomicBool::new(false);
    let (mut read, mut names) = (0, HashSet::new());
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut number = 0;
            while !is_over.load(Ordering::Relaxed) {
                change(&path, folder.path(), number).expect("a change");
                number += 1;
            }
            number
        });
        let begin = Instant::now();
        let mut map = PerfMap::at(&path);
        while begin.elapsed() < Duration::from_secs(5) {
            read += u32::from(map.refresh().is_ok());
            for function in 0..FUNCTIONS {
                let name = map.name((function + 1) * FUNCTION_BYTES + 1);
                let is_right = name.as_ref().is_none_or(|name| is_whole(name, function));
                if !is_right {
                    is_over.store(true, Ordering::Relaxed);
                }
                assert!(is_right, "{function}: {name:?}");
                names.extend(name.filter(|_| function == 0));
            }
        }
        is_over.store(true, Ordering::Relaxed);
        let changes = writer.join().expect("no panic");
        println!(
            "{changes} changes, {read} times read, {} maps seen",
            names.len()
        );
        assert!(changes > 100, "{changes} changes");
    });
    assert!(read > 20 && names.len() > 5, "{read}, {}", names.len());
}
