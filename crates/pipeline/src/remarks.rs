//! What is likely a slip of the configuration and only shows at the end of a run.

use component::metrics::Snapshot;
use component::plural;

use crate::report::{Problem, Role};
use crate::stage::EXPRESSION_ERRORS;
use crate::worker::Ends;

/// Fields that were read and that no event had, and conditions of outputs that could not be evaluated.
pub fn remarks(ends: &Ends) -> Vec<Problem> {
    let mut all = Vec::new();
    for stage in &ends.stages {
        let (name, sentences) = stage.missing();
        all.push((Role::Processor, name.to_owned(), sentences));
    }
    for lane in &ends.lanes {
        let (metrics, mut sentences) = (lane.metrics().snapshot(), lane.missing());
        sentences.extend(failed_conditions(&metrics));
        all.push((Role::Output, lane.name().to_owned(), sentences));
        for stage in lane.stages() {
            let (name, sentences) = stage.missing();
            let name = format!("{}/{name}", lane.name());
            all.push((Role::Processor, name, sentences));
        }
    }
    all.into_iter()
        .flat_map(|(role, name, sentences)| {
            let remark = move |text| Problem::new(role, &name, text);
            sentences.into_iter().map(remark)
        })
        .collect()
}

/// What is to be said of conditions of an output that could not be evaluated.
fn failed_conditions(metrics: &Snapshot) -> Option<String> {
    let count = *metrics.named.get(EXPRESSION_ERRORS)?;
    let events = plural(count, "event");
    Some(format!(
        "`if` could not be evaluated for {events}, which did not go to this output"
    ))
}
