//! Prints what the functions of a pprof file took themselves, one a line: samples, and the name as the symbol table has it, so that
//! what the compiler put into a function counts for that function. `bench/profile-perf` compares that with perf.
//!
//! - `self_time functions FILE`
//! - `self_time broken FILE`: samples whose stack has no end, by process, with all samples of the process

#![allow(clippy::print_stdout)]

use std::collections::HashMap;
use std::error::Error;

use profiler::profile::{Profile, label};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [what, file] = &arguments[..] else {
        return Err("two arguments are needed: functions or broken, and a file".into());
    };
    let profile = profiler::pprof::read(&std::fs::read(file)?)?;
    match &**what {
        "broken" => broken(&profile),
        _ => functions(&profile),
    }
    Ok(())
}

fn functions(profile: &Profile) {
    let mut samples: HashMap<String, u64> = HashMap::new();
    for (stack, _, weight) in profile.samples() {
        let frames = profile.frame_ids(stack).map(|id| profile.frame_of(id));
        let mut frames = frames.skip_while(|frame| frame.is_inlined);
        let name = frames.next().map(|frame| frame.name().into_owned());
        *samples.entry(name.unwrap_or_default()).or_default() += weight.samples;
    }
    for (name, samples) in samples {
        println!("{samples}\t{name}");
    }
}

fn broken(profile: &Profile) {
    let mut samples: HashMap<&str, [u64; 3]> = HashMap::new();
    for (stack, labels, weight) in profile.samples() {
        let outermost = profile.frame_ids(stack).last();
        let outermost = outermost.map(|id| profile.frame_of(id).name().into_owned());
        let process = profile.label_of(labels, label::PROCESS).unwrap_or_default();
        let counts = samples.entry(process).or_default();
        counts[0] += weight.samples;
        match outermost.as_deref() {
            Some("[broken stack]") => counts[1] += weight.samples,
            Some("[stack cut off]") => counts[2] += weight.samples,
            _ => {}
        }
    }
    for (process, [all, broken, cut]) in samples {
        println!("{broken}\t{cut}\t{all}\t{process}");
    }
}
