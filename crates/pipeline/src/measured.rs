//! The metrics that processors of a configuration make of events: no two say something else under one name.

use std::sync::Arc;

use component::series::Metric;
use config::{ConfigError, Node};

/// The metrics that are known so far, each with its pipeline.
#[derive(Default, Clone)]
pub struct Measured(Vec<(Arc<Metric>, String)>);

impl Measured {
    /// Takes a metric in, whose name stands at `at`.
    ///
    /// # Errors
    /// Another one of its pipeline has the name, or one of any pipeline that is not alike.
    pub fn add(
        &mut self,
        metric: Arc<Metric>,
        pipeline: &str,
        at: &Node,
    ) -> Result<(), ConfigError> {
        let new = metric.definition();
        for (other, of) in &self.0 {
            let known = other.definition();
            let name = &known.name;
            if known.name != new.name {
                let samples = known.sample_names();
                // Names of families count as well: `m` and `m_total` of a counter.
                let is_taken = |name: &String| samples.contains(name) || *name == known.name;
                let taken = new.sample_names().into_iter().find(is_taken);
                let taken = taken.or_else(|| samples.contains(&new.name).then(|| new.name.clone()));
                if let Some(taken) = taken {
                    let word = known.kind.word();
                    let message = format!(
                        "`{taken}` would also stand for the {word} `{name}` of pipeline `{of}`"
                    );
                    return Err(at.error(message).note("give the metric another name"));
                }
            } else if of == pipeline {
                let error = at.error(format!(
                    "a second metric of this pipeline is called `{name}`"
                ));
                return Err(
                    error.note("give it another name, or a condition to the first one: if=…")
                );
            } else if known.kind != new.kind || known.labels != new.labels {
                let error = at.error(format!(
                    "pipeline `{of}` has a metric `{name}` of another type, or with other labels or buckets"
                ));
                return Err(error.note("metrics of one name must be alike"));
            }
        }
        self.0.push((metric, pipeline.to_owned()));
        Ok(())
    }
}
