//! Every file of the fuzzer's corpus is an ordinary test: `fuzz/corpus/TARGET/*`.

use std::any::Any;
use std::fs;
use std::panic::catch_unwind;
use std::path::PathBuf;

use fuzzkit::TARGETS;

fn corpus() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus")
}

fn text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    text.unwrap_or_default()
}

#[test]
fn every_file_of_the_corpus_holds_its_properties() {
    let mut failures = Vec::new();
    for (name, target) in TARGETS {
        let folder = corpus().join(name);
        let entries = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{name}: {error}"));
        let mut files = 0;
        for entry in entries {
            let path = entry.expect("a readable entry").path();
            let bytes = fs::read(&path).expect("a readable file");
            files += 1;
            if let Err(panic) = catch_unwind(|| target(&bytes)) {
                failures.push(format!("{}: {}", path.display(), text(&*panic)));
            }
        }
        assert!(files > 0, "{name} has a corpus");
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn every_folder_of_the_corpus_has_a_target() {
    for entry in fs::read_dir(corpus()).expect("a corpus") {
        let name = entry.expect("a readable entry").file_name();
        let name = name.to_string_lossy();
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
