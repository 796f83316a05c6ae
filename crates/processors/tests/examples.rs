//! Every documented example gives what it says.

#[test]
fn documented_examples_hold() {
    testkit::examples::run_processor_examples(processors::SPECS);
}
