//! What each component of each pipeline costs, with its costliest functions: from a profile of Millpond itself.

use std::collections::HashMap;
use std::fmt::Write;

use component::grouped;
use profiler::Profile;
use profiler::cost::{Cost, Rates};
use profiler::filter::Filter;
use profiler::profile::{Weight, label};
use profiler::top::{Group, table};
use serde_json::{Value, json};

/// How many functions of a component are shown.
const FUNCTIONS_SHOWN: usize = 5;

/// The least share of all processor time that a function is shown with.
const SHARE_MIN: f64 = 0.005;

/// What a component costs.
#[derive(Debug, Clone)]
pub struct OperatorCost {
    /// The pipeline; empty for what belongs to none.
    pub pipeline: String,
    /// The component; empty for the pipeline's own work.
    pub operator: String,
    /// Its part of all processor time, from 0 to 1.
    pub share: f64,
    /// Its samples and processor time.
    pub weight: Weight,
    /// How many events it handled; 0 where that is not known.
    pub events: u64,
    /// What it costs a year.
    pub cost: Cost,
    /// Its costliest functions by their own time, each with its part of all processor time.
    pub functions: Vec<(String, f64)>,
}

/// The components of a profile, the costliest first.
pub fn operators(profile: &Profile, rates: &Rates) -> Vec<OperatorCost> {
    type Key<'p> = (&'p str, &'p str);
    let key = |labels| -> Key<'_> {
        let value = |name| profile.label_of(labels, name).unwrap_or_default();
        (value(label::PIPELINE), value(label::OPERATOR))
    };
    let mut weights: HashMap<Key<'_>, Weight> = HashMap::new();
    for (_, labels, weight) in profile.samples() {
        *weights.entry(key(labels)).or_default() += weight;
    }
    let mut events: HashMap<Key<'_>, u64> = HashMap::new();
    for (labels, count) in profile.events() {
        *events.entry(key(labels)).or_default() += count;
    }
    let all = profile.total().cpu_ns.max(1) as f64;
    let of = |((pipeline, operator), weight): (Key<'_>, Weight)| OperatorCost {
        share: weight.cpu_ns as f64 / all,
        weight,
        events: events.get(&(pipeline, operator)).copied().unwrap_or(0),
        cost: Cost::a_year(weight, profile.window.duration_ns, rates),
        functions: functions(profile, pipeline, operator, all),
        pipeline: pipeline.to_owned(),
        operator: operator.to_owned(),
    };
    let mut found: Vec<OperatorCost> = weights.into_iter().map(of).collect();
    found.sort_by(|one, other| {
        let names = || (&one.pipeline, &one.operator).cmp(&(&other.pipeline, &other.operator));
        other.weight.cmp(&one.weight).then_with(names)
    });
    found
}

fn functions(profile: &Profile, pipeline: &str, operator: &str, all: f64) -> Vec<(String, f64)> {
    let is = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let filter = Filter {
        labels: vec![is(label::PIPELINE, pipeline), is(label::OPERATOR, operator)],
        function: None,
    };
    let rows = table(profile, &filter, &Group::Function).rows;
    rows.into_iter()
        .map(|row| (row.name, row.own.cpu_ns as f64 / all))
        .take_while(|(_, share)| *share >= SHARE_MIN)
        .take(FUNCTIONS_SHOWN)
        .collect()
}

impl OperatorCost {
    /// What messages call it.
    fn name(&self) -> String {
        match (&*self.pipeline, &*self.operator) {
            ("", _) => "threads of no pipeline".to_owned(),
            (pipeline, "") => format!("pipeline {pipeline}, between components"),
            (pipeline, operator) => format!("{operator} of pipeline {pipeline}"),
        }
    }

    /// Processor time for each event, in nanoseconds; none where none were counted.
    fn ns_per_event(&self) -> Option<f64> {
        (self.events > 0).then(|| self.weight.cpu_ns as f64 / self.events as f64)
    }

    /// As an object.
    pub fn json(&self) -> Value {
        let function = |(name, share): &(String, f64)| json!({ "name": name, "share": share });
        json!({
            "pipeline": self.pipeline,
            "operator": self.operator,
            "share": self.share,
            "samples": self.weight.samples,
            "cpu_ns": self.weight.cpu_ns,
            "events": self.events,
            "ns_per_event": self.ns_per_event(),
            "usd_a_year": self.cost.usd,
            "co2_tonnes_a_year": self.cost.co2_tonnes,
            "functions": self.functions.iter().map(function).collect::<Vec<_>>(),
        })
    }
}

/// A paragraph for each component.
pub fn operators_text(operators: &[OperatorCost]) -> String {
    let samples: u64 = operators.iter().map(|it| it.weight.samples).sum();
    let mut text = format!(
        "\n{} samples of processor time; costs if it goes on like this for a year\n",
        grouped(samples)
    );
    for operator in operators {
        let _ = write!(
            text,
            "\n{}: {:.1} % of CPU",
            operator.name(),
            operator.share * 100.0
        );
        if let Some(ns) = operator.ns_per_event() {
            let _ = write!(text, ", {:.2} µs an event", ns / 1e3);
        }
        let _ = writeln!(text, ", {:.0} USD a year", operator.cost.usd);
        for (name, share) in &operator.functions {
            let _ = writeln!(text, "  {:>5.1} %  {name}", share * 100.0);
        }
    }
    text
}
