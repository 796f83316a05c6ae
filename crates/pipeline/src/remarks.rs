//! What is likely a slip of the configuration and only shows at the end of a run.

use crate::report::{Problem, Role};
use crate::worker::Parts;

/// Fields that were read and that no event had, events that processors failed on, and conditions that could not be evaluated.
pub fn remarks(parts: &Parts) -> Vec<Problem> {
    let mut all = Vec::new();
    for stage in &parts.stages {
        let (name, sentences) = stage.remarks();
        all.push((Role::Processor, name.to_owned(), sentences));
    }
    for lane in &parts.lanes {
        all.push((Role::Output, lane.name().to_owned(), lane.remarks()));
        for stage in lane.stages() {
            let (name, sentences) = stage.remarks();
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
