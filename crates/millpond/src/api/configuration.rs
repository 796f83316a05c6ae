//! The configuration in force, as the API shows it.

use std::path::Path;
use std::time::SystemTime;

use component::Diagnostics;
use config::{Node, to_yaml};
use pipeline::Graph;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::masked::masked;
use super::stats::{ConfigurationVersion, time};
use crate::load::{flow, queue};

/// A configuration.
#[derive(Debug, Clone, Default)]
pub struct Configuration {
    /// Which one it is.
    pub version: ConfigurationVersion,
    /// What stands at its top beside the pipelines, without secrets.
    pub settings: Value,
    /// The pipelines.
    pub pipelines: Vec<PipelineConfiguration>,
}

/// A pipeline as it was understood.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct PipelineConfiguration {
    /// Its name.
    pub name: String,
    /// Its inputs, processors and outputs.
    pub flow: String,
    /// Its queue.
    pub queue: String,
    /// Its settings, as they are written, without secrets; variables are not expanded.
    pub settings: Value,
}

impl Configuration {
    /// Says what runs in the pipelines that have just started.
    pub fn introduce(&self, diagnostics: &Diagnostics, has_started: impl Fn(&String) -> bool) {
        let started = self.pipelines.iter().filter(|it| has_started(&it.name));
        for PipelineConfiguration {
            name, flow, queue, ..
        } in started
        {
            let text = format!("started: {flow}; queue: {queue}");
            diagnostics.for_pipeline(name).info(&text);
        }
    }

    /// That of the tree as it was read, and of what was made of it. It is the first one.
    pub fn new(root: &Node, graph: &Graph) -> Self {
        let hash = Sha256::digest(to_yaml(root));
        let mut settings = masked(root);
        let written = settings
            .as_object_mut()
            .and_then(|settings| settings.shift_remove("pipelines"));
        let data_dir: Option<&Path> = graph.process.data_dir.as_deref();
        let pipelines = graph.pipelines.iter().map(|pipeline| {
            let own = written.as_ref().and_then(|all| all.get(&pipeline.name));
            PipelineConfiguration {
                name: pipeline.name.clone(),
                flow: flow(pipeline),
                queue: queue(pipeline, data_dir).unwrap_or_else(|| "memory".to_owned()),
                settings: own.cloned().unwrap_or_default(),
            }
        });
        Self {
            version: ConfigurationVersion {
                path: root.source().name.to_string(),
                number: 1,
                hash: hash.iter().map(|byte| format!("{byte:02x}")).collect(),
                loaded: time(SystemTime::now()),
            },
            pipelines: pipelines.collect(),
            settings,
        }
    }
}
