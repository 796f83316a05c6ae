//! User agents with the crate of the project that keeps the rules: what `user_agent` does, with nothing else around it.

use std::fs::File;
use std::io::{BufRead, BufReader};

use ua_parser::{Extractor, Regexes};

const RULES: &str = include_str!("../../../crates/processors/src/user_agent/regexes.yaml");

/// Reads a user agent from each line and writes how many were known.
pub fn print(file: &str) {
    let rules: Regexes = serde_yaml_ng::from_str(RULES).expect("valid rules");
    let extractor = Extractor::try_from(rules).expect("valid rules");
    let lines = BufReader::new(File::open(file).expect("a file")).lines();
    let mut known = [0_u64; 3];
    for line in lines {
        let line = line.expect("a line");
        known[0] += u64::from(extractor.ua.extract(&line).is_some());
        known[1] += u64::from(extractor.os.extract(&line).is_some());
        known[2] += u64::from(extractor.dev.extract(&line).is_some());
    }
    println!("{known:?} browsers, systems and devices were known");
}
