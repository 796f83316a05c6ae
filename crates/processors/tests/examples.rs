//! Every documented example gives what it says.

#[test]
fn documented_examples_hold() {
    for spec in processors::SPECS {
        assert!(!spec.examples.is_empty(), "{} has no example", spec.name);
    }
    testkit::examples::run_processor_examples(processors::SPECS);
}
