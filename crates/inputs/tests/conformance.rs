//! Every input does what all inputs must do.

use std::fs::File;
use std::io::Write;

use testkit::conformance::input::{InputCase, check};

static CASES: &[InputCase] = &[
    InputCase {
        name: "file",
        settings: |place| format!("paths: {}", place.path("*.log").display()),
        feed: |place, events| {
            let mut file = File::create(place.path("a.log")).expect("a file");
            (0..events).for_each(|event| writeln!(file, "line {event}").expect("written"));
        },
        reads: true,
    },
    InputCase {
        name: "generate",
        settings: |_| "{format: apache, count: 300}".to_owned(),
        feed: |_, _| {},
        reads: true,
    },
    InputCase {
        name: "stdin",
        settings: |_| "{}".to_owned(),
        // Standard input of this process: nobody else in this program reads it.
        feed: |place, events| {
            let mut file = File::create(place.path("stdin")).expect("a file");
            (0..events).for_each(|event| writeln!(file, "line {event}").expect("written"));
            let file = File::open(place.path("stdin")).expect("it was just made");
            rustix::stdio::dup2_stdin(file).expect("standard input");
        },
        reads: true,
    },
];

#[test]
fn every_input_conforms() {
    check(inputs::SPECS, CASES);
}
