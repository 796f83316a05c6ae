//! How long one event takes: `cargo run --release -p grok --example speed -- FILE [PATTERN] [legacy|ecs]`.
//!
//! Prints nanoseconds an event and captures found, for the whole engine, for the specialised matcher alone and
//! for PCRE2 alone; each is the best of several passes over the lines of the file.
#![allow(clippy::print_stdout, clippy::print_stderr)]

use std::hint::black_box;
use std::process::ExitCode;
use std::time::Instant;

use grok::{Library, Options, Outcome, Pattern, PatternSet, Scratch};

const PASSES: usize = 30;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some(file) = arguments.first() else {
        eprintln!("usage: speed FILE [PATTERN] [legacy|ecs]");
        return ExitCode::from(2);
    };
    let text = match std::fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) => {
            eprintln!("{file}: {error}");
            return ExitCode::FAILURE;
        }
    };
    let source = arguments
        .get(1)
        .map_or("%{COMBINEDAPACHELOG}", String::as_str);
    let set = if arguments.get(2).is_some_and(|set| set == "ecs") {
        PatternSet::EcsV1
    } else {
        PatternSet::Legacy
    };
    let pattern = match Pattern::compile(&Library::new(set), source, &Options::default()) {
        Ok(pattern) => pattern,
        Err(error) => {
            eprintln!("{source}: {error}");
            return ExitCode::FAILURE;
        }
    };
    println!("{}", pattern.explain().lines().next().unwrap_or_default());
    let lines: Vec<&[u8]> = text.lines().map(str::as_bytes).collect();
    measure("engine", &lines, &pattern, |text, scratch| {
        Some(pattern.matches(text, scratch))
    });
    measure("specialised", &lines, &pattern, |text, scratch| {
        pattern.matches_specialised(text, scratch)
    });
    measure("PCRE2", &lines, &pattern, |text, scratch| {
        Some(pattern.matches_with_pcre2(text, scratch))
    });
    ExitCode::SUCCESS
}

fn measure(
    name: &str,
    lines: &[&[u8]],
    pattern: &Pattern,
    run: impl Fn(&[u8], &mut Scratch) -> Option<Outcome>,
) {
    let mut scratch = pattern.new_scratch();
    let (mut matched, mut undecided, mut captured) = (0, 0, 0);
    for line in lines {
        match run(line, &mut scratch) {
            Some(Outcome::Match) => {
                matched += 1;
                captured += scratch
                    .spans()
                    .iter()
                    .filter(|span| !span.is_none())
                    .count();
            }
            Some(_) => {}
            None => undecided += 1,
        }
    }
    let mut best = f64::MAX;
    for _ in 0..PASSES {
        let begun = Instant::now();
        for line in lines {
            black_box(run(line, &mut scratch));
            black_box(scratch.spans());
        }
        best = best.min(begun.elapsed().as_nanos() as f64 / lines.len().max(1) as f64);
    }
    println!(
        "{name:12} {best:8.1} ns/event, {matched} matched, {undecided} undecided, {captured} captures"
    );
}
