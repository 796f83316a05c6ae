//! Stacks through functions whose frames are found by unusual rules. Needs a C compiler, and the right to sample.
#![cfg(target_arch = "x86_64")]

mod programs;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use profiler::Profile;
use profiler::sampling::{Options, Recorder, Stats, Target};
use profiler::symbols::Symbols;

use programs::program;

fn compile(folder: &Path) -> PathBuf {
    let source = program("frames.c");
    let out = folder.join("frames");
    let mut cc = Command::new("cc");
    cc.args(["-O1", "-fomit-frame-pointer", "-fno-optimize-sibling-calls"]);
    cc.arg("-o").arg(&out).arg(source);
    assert!(cc.status().expect("a C compiler").success());
    out
}

fn record(program: &Path, which: &str) -> (Profile, Stats) {
    let mut command = Command::new(program);
    let mut child = command.args([which, "1"]).spawn().expect("a program");
    let target = Target::Processes(vec![child.id()]);
    let mut recorder = Recorder::start(&Options::new(target, 997)).expect("the right to sample");
    let begin = Instant::now();
    while child.try_wait().expect("a child").is_none() {
        let is_late = begin.elapsed() > Duration::from_secs(60);
        assert!(!is_late, "it does not end");
        std::thread::sleep(Duration::from_millis(50));
        recorder.drain();
    }
    recorder.stop();
    recorder.drain();
    let recorded = recorder.take();
    (Symbols::new().name(&recorded.profile), recorded.stats)
}

/// How many samples have `work` on their stacks, and how many of these these functions as its callers.
fn count(profile: &Profile, callers: &[&str]) -> (u64, u64) {
    let (mut all, mut called) = (0, 0);
    for (stack, _, weight) in profile.samples() {
        let frames = profile.frame_ids(stack);
        let names: Vec<_> = frames
            .map(|frame| profile.frame_of(frame).function.into_owned())
            .collect();
        let Some(at) = names.iter().position(|name| name == "work") else {
            continue;
        };
        let above = names[at + 1..].iter().take(callers.len());
        all += weight.samples;
        called += weight.samples * u64::from(above.eq(callers));
    }
    (all, called)
}

#[test]
fn callers_are_found_from_other_registers_and_from_memory() {
    let folder = tempfile::tempdir().expect("a folder");
    let program = compile(folder.path());
    for (which, function) in [("register", "by_register"), ("aligned", "aligned")] {
        let (profile, stats) = record(&program, which);
        let (all, called) = count(&profile, &[function, "middle", "main"]);
        assert!(all > 100, "{which}: {stats:?}");
        assert!(called * 100 >= all * 99, "{which}: {called} of {all}");
        assert!(stats.broken * 100 <= stats.samples, "{which}: {stats:?}");
        assert!(stats.cut * 100 <= stats.samples, "{which}: {stats:?}");
    }
}

#[test]
fn stacks_that_a_large_frame_cuts_are_not_called_broken() {
    let folder = tempfile::tempdir().expect("a folder");
    let (profile, stats) = record(&compile(folder.path()), "large");
    let (all, called) = count(&profile, &["large", "[stack cut off]"]);
    assert!(all > 100, "{stats:?}");
    assert!(called * 100 >= all * 99, "{called} of {all}");
    assert!(stats.broken * 100 <= stats.samples, "{stats:?}");
}
