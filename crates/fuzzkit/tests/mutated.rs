//! Runs every target on inputs of the corpus that were changed at random. The fuzzer in `fuzz` does that better, because it sees
//! which code an input reaches; this runs wherever the tests do.
//!
//! `FUZZ_SECONDS=60 cargo test -p fuzzkit --test mutated` runs each target for a minute instead of a fixed number of inputs, and
//! `FUZZ_TARGETS=beats,forward` some of them; inputs that break a property are then left in `fuzz/artifacts/TARGET`.

use std::any::Any;
use std::fs;
use std::panic::{catch_unwind, set_hook, take_hook};
use std::time::{Duration, Instant};

use fastrand::Rng;
use fuzzkit::corpus::{Corpus, of_repository, quote};
use fuzzkit::{TARGETS, Target};

/// How many inputs are tried where no time is said.
const ROUNDS: u64 = 300;

/// Longer inputs only take longer.
const BYTES_MAX: usize = 8 << 10;

/// An input takes no longer, on a machine with much else to do.
const SLOW: Duration = Duration::from_secs(10);

/// Changes an input in a few places.
fn mutated(corpus: &[Vec<u8>], rng: &mut Rng) -> Vec<u8> {
    let mut bytes = corpus[rng.usize(..corpus.len())].clone();
    for _ in 0..rng.usize(1..6) {
        let at = rng.usize(..=bytes.len());
        match rng.u8(..8) {
            0 | 1 if at < bytes.len() => bytes[at] ^= 1 << rng.u8(..8),
            2 if at < bytes.len() => bytes[at] = rng.u8(..),
            3 => bytes.insert(
                at,
                *rng.choice(b"\0\x01\xff\x7f\x80\n\r\"\\{}[]%,:=<> 09aT")
                    .expect("some"),
            ),
            4 => drop(bytes.drain(at..(at + rng.usize(..20)).min(bytes.len()))),
            5 => bytes.truncate(at),
            6 => {
                let other = &corpus[rng.usize(..corpus.len())];
                let from = rng.usize(..=other.len());
                let len = rng.usize(..=other.len() - from).min(400);
                bytes.splice(at..at, other[from..from + len].iter().copied());
            }
            _ => {
                let len = rng.usize(..=(bytes.len() - at).min(64));
                let piece = bytes[at..at + len].repeat(rng.usize(1..5));
                bytes.splice(at..at, piece);
            }
        }
    }
    bytes.truncate(BYTES_MAX);
    bytes
}

fn text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    text.unwrap_or_default().chars().take(2000).collect()
}

/// Runs a target; what broke, and how many inputs there were.
fn run(name: &str, target: Target, time: Option<Duration>) -> (Vec<String>, u64) {
    let inputs = Corpus::of_repository().inputs(name).expect("a corpus");
    let corpus: Vec<_> = inputs.into_iter().map(|input| input.bytes).collect();
    // Each panic is told once, at the end.
    set_hook(Box::new(|_| {}));
    let seed = if time.is_some() { fastrand::u64(..) } else { 1 };
    let (mut rng, begin) = (Rng::with_seed(seed), Instant::now());
    let (mut problems, mut rounds) = (Vec::new(), 0);
    while problems.len() < 3 && time.map_or(rounds < ROUNDS, |time| begin.elapsed() < time) {
        let bytes = mutated(&corpus, &mut rng);
        rounds += 1;
        let start = Instant::now();
        let broken = catch_unwind(|| target(&bytes))
            .err()
            .map(|panic| text(&*panic));
        let slow = (start.elapsed() > SLOW).then(|| format!("took {:?}", start.elapsed()));
        if let Some(problem) = broken.or(slow) {
            problems.push(format!("{name}: {problem}: {}", quote(&bytes)));
            if time.is_some() {
                let folder = of_repository("artifacts").join(name);
                fs::create_dir_all(&folder).expect("a folder");
                let file = folder.join(format!("mutated-{:016x}", rng.u64(..)));
                fs::write(file, &bytes).expect("written");
            }
        }
    }
    let _ = take_hook();
    (problems, rounds)
}

#[test]
fn changed_inputs_hold_their_properties() {
    let seconds = std::env::var("FUZZ_SECONDS").ok();
    let time = seconds.map(|text| Duration::from_secs(text.parse().expect("seconds")));
    let wanted = std::env::var("FUZZ_TARGETS").unwrap_or_default();
    let is_wanted = |name: &str| wanted.is_empty() || wanted.split(',').any(|one| one == name);
    let mut problems = Vec::new();
    for (name, target) in TARGETS {
        if is_wanted(name) {
            let (found, rounds) = run(name, *target, time);
            if time.is_some() {
                let line = format!("{name}: {rounds} inputs, {} findings\n", found.len());
                std::io::Write::write_all(&mut std::io::stderr(), line.as_bytes())
                    .expect("written");
            }
            problems.extend(found);
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}
