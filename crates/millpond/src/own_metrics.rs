//! The documents of the input `metrics`: what `/api/v1/stats` tells, one thing each.

use std::collections::BTreeMap;

use component::Own;
use component::own::LogTails;
use component::series::{Metric, MetricKind, SampleValue};
use pipeline::View;
use pipeline::view::PipelineView;
use serde::Serialize;
use serde_json::{Value, json};

use crate::api::process::Process;
use crate::api::stats::PipelineStats;

/// What a process of this host tells of itself.
pub fn own(view: &View, host: &str, tails: &LogTails) -> Own {
    let (view, host, process) = (view.clone(), host.to_owned(), Process::new());
    let all = move || {
        let mut documents = vec![of("process", None, &process.stats())];
        for pipeline in view.look(false) {
            documents.extend(of_events(&pipeline));
            documents.extend(of_pipeline(pipeline));
        }
        let document = |it: Value| json!({ "host": { "name": host }, "millpond": it }).to_string();
        documents
            .into_iter()
            .map(|it| document(it).into_bytes())
            .collect()
    };
    Own::new(all, tails.clone())
}

/// A thing of this kind.
fn of(kind: &str, pipeline: Option<&str>, stats: &impl Serialize) -> Value {
    let mut object = json!({ "kind": kind });
    if let Some(pipeline) = pipeline {
        object["pipeline"] = pipeline.into();
    }
    if let Value::Object(stats) = json!(stats) {
        for (name, value) in stats {
            // A queue says what kind it is of.
            let name = if name == "kind" {
                "kind_of_queue".to_owned()
            } else {
                name
            };
            object[name] = value;
        }
    }
    object
}

/// What the processors of a pipeline measure of events, a document for each series.
fn of_events(pipeline: &PipelineView) -> Vec<Value> {
    let operators = pipeline.operators.iter();
    let metrics = operators.filter_map(|it| Some((&*it.name, it.metric.as_ref()?)));
    metrics
        .flat_map(|(operator, metric)| of_metric(&pipeline.name, operator, metric))
        .collect()
}

fn of_metric(pipeline: &str, operator: &str, metric: &Metric) -> Vec<Value> {
    let definition = metric.definition();
    let documents = metric.samples().into_iter().map(|sample| {
        let labels = definition.labels.iter().cloned().zip(sample.labels);
        let mut object = json!({
            "kind": "metric",
            "pipeline": pipeline,
            "operator": operator,
            "name": definition.name,
            "type": definition.kind.word(),
            "labels": labels.collect::<BTreeMap<_, _>>(),
        });
        match (sample.value, &definition.kind) {
            (SampleValue::Distribution { sum, buckets }, MetricKind::Histogram(bounds)) => {
                object["sum"] = sum.into();
                object["count"] = buckets.iter().sum::<u64>().into();
                object["bounds"] = bounds.clone().into();
                object["bucket_counts"] = buckets.into();
            }
            (SampleValue::Distribution { sum: value, .. } | SampleValue::Number(value), _) => {
                object["value"] = value.into();
            }
        }
        object
    });
    documents.collect()
}

fn of_pipeline(pipeline: PipelineView) -> Vec<Value> {
    let stats = PipelineStats::of(pipeline, Vec::new(), 0);
    let name = Some(stats.name.as_str());
    let counts = json!({
        "state": stats.state,
        "events_in": stats.events_in,
        "events_out": stats.events_out,
        "unclaimed_events": stats.unclaimed_events,
        "refused_events": stats.refused_events,
        "cpu_seconds": stats.cpu_seconds,
        "blocked_seconds": stats.blocked_seconds,
    });
    let operators = stats.operators.iter().map(|it| of("operator", name, it));
    let outputs = stats.outputs.iter().map(|it| of("output", name, it));
    let queue = of("queue", name, &stats.queue);
    let pipeline = of("pipeline", name, &counts);
    [pipeline, queue]
        .into_iter()
        .chain(operators)
        .chain(outputs)
        .collect()
}
