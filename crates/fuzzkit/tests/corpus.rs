//! Every input of the fuzzer's corpus is an ordinary test: the files `fuzz/corpus/TARGET/*` and the lines of
//! `fuzz/corpus/TARGET.inputs`.

use std::any::Any;
use std::panic::catch_unwind;

use fuzzkit::TARGETS;
use fuzzkit::corpus::{Corpus, quote};

fn text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    text.unwrap_or_default()
}

#[test]
fn every_input_of_the_corpus_holds_its_properties() {
    let mut failures = Vec::new();
    for (name, target) in TARGETS {
        let inputs = match Corpus::of_repository().inputs(name) {
            Ok(inputs) => inputs,
            Err(error) => {
                failures.push(error.to_string());
                continue;
            }
        };
        assert!(!inputs.is_empty(), "{name} has a corpus");
        for input in inputs {
            if let Err(panic) = catch_unwind(|| target(&input.bytes)) {
                let (panic, bytes) = (text(&*panic), quote(&input.bytes));
                failures.push(format!("{}: {bytes}: {panic}", input.place));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn everything_in_the_corpus_has_a_target() {
    for name in Corpus::of_repository().targets().expect("a corpus") {
        assert!(TARGETS.iter().any(|(known, _)| *known == name), "{name}");
    }
}

#[test]
fn nothing_and_one_byte_are_fine_for_every_target() {
    for (name, _) in TARGETS {
        fuzzkit::run(name, b"");
        for byte in 0..=255 {
            fuzzkit::run(name, &[byte]);
            fuzzkit::run(name, &[byte, byte]);
        }
    }
}
