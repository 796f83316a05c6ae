//! Every documented example is accepted.

#[test]
fn documented_examples_are_accepted() {
    testkit::examples::check_stages(outputs::SPECS, outputs::ABSENT);
}
