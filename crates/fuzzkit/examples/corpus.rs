//! Moves inputs between folders of the fuzzer and the lines of the corpus:
//!
//! - `corpus unpack TARGET FOLDER` writes each line of `fuzz/corpus/TARGET.inputs` as a file into a folder,
//! - `corpus pack TARGET FOLDER` replaces the lines by the files of a folder, without those that `fuzz/corpus/TARGET` has by name.
//!
//! Both print how many inputs they moved. The scripts `bench/fuzz` and `bench/fuzz-minimise` run it.

#![allow(clippy::print_stdout)]

use std::error::Error;
use std::path::Path;

use fuzzkit::TARGETS;
use fuzzkit::corpus::Corpus;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [action, target, folder] = &arguments[..] else {
        return Err("usage: corpus (pack | unpack) TARGET FOLDER".into());
    };
    if !TARGETS.iter().any(|(known, _)| known == target) {
        return Err(format!("there is no target {target:?}").into());
    }
    let (corpus, folder) = (Corpus::of_repository(), Path::new(folder));
    let inputs = match action.as_str() {
        "pack" => corpus.pack(target, folder)?,
        "unpack" => corpus.unpack(target, folder)?,
        _ => return Err(format!("{action:?} is neither `pack` nor `unpack`").into()),
    };
    println!("{inputs}");
    Ok(())
}
