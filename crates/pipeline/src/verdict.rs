//! What limited a run, in one plain sentence.
//!
//! Three kinds of things can limit: an operator that keeps the workers busy (processors and the rendering of outputs
//! run there), an input whose one thread never waits, or a destination that everybody waits for. The row of a queue counts
//! for none of them: what it waits for is what the outputs or its inputs wait for.

use std::time::Duration;

use crate::report::{OperatorReport, PipelineReport, Role};

/// A pipeline whose parts are busy less than this share of the time is limited by nothing of its own.
const BUSY: f64 = 0.5;

/// Names the operator that limits the pipeline, and why.
pub fn verdict(pipeline: &PipelineReport, wall: Duration, workers: usize) -> String {
    let wall = wall.as_secs_f64().max(1e-9);
    let share = |time: Duration, threads: usize| time.as_secs_f64() / wall / threads as f64;
    let busiest = |roles: &[Role]| -> Option<&OperatorReport> {
        let of_roles = pipeline
            .operators
            .iter()
            .filter(|operator| roles.contains(&operator.role));
        of_roles.max_by_key(|operator| operator.counts.busy)
    };
    let Some(input) = busiest(&[Role::Input]) else {
        return "There is no input.".to_owned();
    };
    let Some(worker) = busiest(&[Role::Processor, Role::Output]) else {
        return "There is no output.".to_owned();
    };
    let worker_time: Duration = pipeline
        .operators
        .iter()
        .filter(|operator| matches!(operator.role, Role::Processor | Role::Output))
        .map(|operator| operator.counts.busy)
        .sum();
    let writes = pipeline
        .operators
        .iter()
        .filter(|operator| operator.role == Role::Output)
        .max_by_key(|o| o.counts.wait);
    let (workers_busy, input_busy) = (share(worker_time, workers), share(input.counts.busy, 1));
    let input_waited = percent(share(input.counts.wait, 1));
    if let Some(output) = writes
        && share(output.counts.wait, 1) > BUSY.max(workers_busy).max(input_busy)
    {
        let waited = percent(share(output.counts.wait, 1));
        return format!(
            "{} is the bottleneck: its writes took {waited} of the time; the input waited {input_waited} of the time.",
            output.name
        );
    }
    if workers_busy >= input_busy && workers_busy > BUSY {
        let own = percent(share(worker.counts.busy, workers));
        let both = match workers {
            1 => "the worker".to_owned(),
            2 => "both workers".to_owned(),
            n => format!("all {n} workers"),
        };
        let all = percent(workers_busy);
        return format!(
            "{} is the bottleneck: it used {own} of {both} (all operators together: {all}); the input waited {input_waited} of the time.",
            worker.name
        );
    }
    if input_busy > BUSY {
        let busy = percent(input_busy);
        let idle = percent(1.0 - workers_busy.min(1.0));
        return format!(
            "{} is the bottleneck: its thread was busy {busy} of the time; the workers were idle {idle} of the time.",
            input.name
        );
    }
    format!(
        "No part of the pipeline was the bottleneck: {} was busy {} of the time, the workers {}; the input waited {input_waited} of the time.",
        input.name,
        percent(input_busy),
        percent(workers_busy)
    )
}

fn percent(share: f64) -> String {
    format!("{:.0} %", (share * 100.0).clamp(0.0, 100.0))
}

#[cfg(test)]
mod tests {
    use component::metrics::Snapshot;

    use super::*;

    fn pipeline(times: [(u64, u64); 3]) -> PipelineReport {
        let names = [
            (Role::Input, "file"),
            (Role::Processor, "grok"),
            (Role::Output, "stdout"),
        ];
        let operators = names
            .iter()
            .zip(times)
            .map(|(&(role, name), (busy, wait))| OperatorReport {
                role,
                name: name.to_owned(),
                counts: Snapshot {
                    busy: Duration::from_millis(busy),
                    wait: Duration::from_millis(wait),
                    ..Snapshot::default()
                },
            });
        PipelineReport {
            unclaimed: 0,
            name: "main".into(),
            is_fed: false,
            files: Vec::new(),
            operators: operators.collect(),
            problems: Vec::new(),
            undelivered: 0,
            remarks: Vec::new(),
            letters_dropped: 0,
            refused: 0,
            queued: 0,
        }
    }

    #[test]
    fn the_sentence_names_what_limits() {
        let second = Duration::from_secs(1);
        for (times, expected) in [
            (
                [(290, 710), (1860, 0), (100, 20)],
                "grok is the bottleneck: it used 93 % of both workers",
            ),
            (
                [(950, 20), (400, 0), (100, 20)],
                "file is the bottleneck: its thread was busy 95 %",
            ),
            (
                [(100, 850), (200, 0), (100, 900)],
                "stdout is the bottleneck: its writes took 90 % of the time",
            ),
            (
                [(10, 0), (20, 0), (10, 5)],
                "No part of the pipeline was the bottleneck: file was busy 1 % of the time",
            ),
        ] {
            let mut report = pipeline(times);
            let sentence = verdict(&report, second, 2);
            assert!(sentence.starts_with(expected), "{sentence}");
            let mut queue = report.operators[0].clone();
            (queue.role, queue.name) = (Role::Queue, "queue".into());
            (queue.counts.busy, queue.counts.wait) = (second * 2, second * 2);
            report.operators.insert(1, queue);
            assert_eq!(verdict(&report, second, 2), sentence, "with a queue");
        }
    }
}
