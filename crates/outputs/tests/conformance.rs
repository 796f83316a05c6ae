//! Every output does what all outputs must do.

use testkit::conformance::output::{OutputCase, check};

static CASES: &[OutputCase] = &[
    OutputCase {
        name: "discard",
        settings: |_| "{}".to_owned(),
        remote: None,
    },
    OutputCase {
        name: "file",
        settings: |place| format!("path: {}", place.path("out.ndjson").display()),
        remote: Some(|place| {
            let path = place.path("out.ndjson");
            Box::new(move || {
                let text = std::fs::read_to_string(&path).expect("it was written");
                text.lines().count()
            })
        }),
    },
    OutputCase {
        name: "stdout",
        settings: |_| "{}".to_owned(),
        // It is the test's own.
        remote: None,
    },
];

#[test]
fn every_output_conforms() {
    check(outputs::SPECS, CASES);
}
