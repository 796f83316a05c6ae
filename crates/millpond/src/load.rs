//! Reading a pipeline from the command line or a file.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use batch::HostInfo;
use component::{AnyOutput, Effects};
use config::{
    ConfigError, Environment, Node, NodeKind, Source, StageRole, expand_short_forms,
    expand_variables, parse_oneline, to_yaml,
};
use pipeline::graph::OutputNode;
use pipeline::settings::QueueSettings;
use pipeline::{BuildOptions, Graph, PipelineGraph};

use crate::REGISTRY;
use crate::api::settings::{self as api, ApiConfig};
use crate::profile::settings::{Profiling, SETTING};
use crate::sources::{self, Seen};

/// Settings at the top of a configuration that are not of pipelines.
pub const BESIDE: &[&str] = &[SETTING, api::SETTING];

/// What a configuration says beside its pipelines.
pub struct Beside {
    pub profiling: Profiling,
    pub api: ApiConfig,
    /// The whole configuration as it was read, variables not expanded.
    pub written: Node,
}

/// A configuration as it was read, variables not expanded.
#[derive(Clone)]
pub struct Loaded {
    root: Node,
    /// Whether it is a one-line pipeline, which ends when its inputs end.
    pub finite: bool,
    /// The files and folders that it was read from.
    pub files: Vec<Seen>,
}

/// Whether a text is the path of a YAML file or of a folder of them. One with `|` in it is a pipeline; so is one that names no file and does
/// not look like a path.
pub fn is_path(text: &str) -> bool {
    let is_yaml = text.ends_with(".yaml") || text.ends_with(".yml");
    !text.contains('|') && (is_yaml || Path::new(text).exists())
}

/// Reads a one-line pipeline, or YAML files and folders of them, which are one configuration.
pub fn load(given: &[String]) -> anyhow::Result<Loaded> {
    if let [pipeline] = given
        && !is_path(pipeline)
    {
        return Ok(Loaded {
            root: parse_oneline(&Source::command_line(pipeline), &REGISTRY)?,
            finite: true,
            files: Vec::new(),
        });
    }
    let (tree, files) = sources::read(given)?;
    Ok(Loaded {
        root: expand_short_forms(tree, &REGISTRY)?,
        finite: false,
        files,
    })
}

/// Reads a one-line pipeline that stands in a file.
///
/// # Errors
/// It is no pipeline, at its place.
pub fn of_line(line: &Node) -> Result<Loaded, ConfigError> {
    let (source, span) = (line.source(), line.span);
    let above = |name: &str, below: Node| {
        let key = Node::scalar(source, span, name, true);
        Node::map(source, span, vec![(key, below)])
    };
    let root = above("pipelines", above("main", line.clone()));
    Ok(Loaded {
        root: expand_short_forms(root, &REGISTRY)?,
        finite: true,
        files: Vec::new(),
    })
}

/// How a run is built that leaves the data directory alone and changes what `effects` allows.
pub fn trial_options(finite: bool, effects: Effects) -> BuildOptions {
    BuildOptions {
        finite,
        data_dir: None,
        effects,
        beside: BESIDE,
        needs_pipelines: true,
    }
}

impl Loaded {
    /// The configuration as YAML, which does the same when it is run as a file.
    pub fn yaml(mut self) -> String {
        if self.finite {
            say_defaults(&mut self.root);
        }
        to_yaml(&self.root)
    }

    /// The components, ready to run. A `data_dir` of the command line stands in the place of the configuration's.
    pub fn build(self, host: &Arc<HostInfo>, data_dir: Option<PathBuf>) -> anyhow::Result<Graph> {
        Ok(self.build_service(host, data_dir)?.0)
    }

    /// As [`Self::build`], with what stands beside the pipelines.
    pub fn build_service(
        self,
        host: &Arc<HostInfo>,
        data_dir: Option<PathBuf>,
    ) -> anyhow::Result<(Graph, Beside)> {
        let options = BuildOptions {
            finite: self.finite,
            data_dir,
            effects: Effects::All,
            beside: BESIDE,
            needs_pipelines: true,
        };
        self.build_with(host, options)
    }

    /// The components for a run that leaves the data directory alone and changes what `effects` allows.
    pub fn build_trial(self, host: &Arc<HostInfo>, effects: Effects) -> anyhow::Result<Graph> {
        let options = trial_options(self.finite, effects);
        Ok(self.build_with(host, options)?.0)
    }

    /// The configuration with its variables expanded.
    pub fn expanded(mut self) -> anyhow::Result<Node> {
        expand_variables(&mut self.root, &Environment)?;
        Ok(self.root)
    }

    fn build_with(
        self,
        host: &Arc<HostInfo>,
        options: BuildOptions,
    ) -> anyhow::Result<(Graph, Beside)> {
        let (written, finite) = (self.root.clone(), self.finite);
        let root = self.expanded()?;
        let profiling = Profiling::of(&root)?;
        let api = ApiConfig::of(&root, finite)?;
        let options = BuildOptions {
            needs_pipelines: options.needs_pipelines && !profiling.works_alone(),
            ..options
        };
        let graph = Graph::build(&REGISTRY, &root, host, options)?;
        // Where nothing can be stored that should be.
        profiling.store(graph.process.data_dir.as_deref())?;
        let beside = Beside {
            written,
            profiling,
            api,
        };
        Ok((graph, beside))
    }
}

/// Facts of this machine.
pub fn host() -> Arc<HostInfo> {
    let name = rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned();
    Arc::new(HostInfo { name: name.into() })
}

/// Its inputs, processors and outputs.
pub fn flow(pipeline: &PipelineGraph) -> String {
    let inputs = pipeline.inputs.iter().map(|input| input.name.as_str());
    let inputs = inputs.chain(pipeline.fed.as_deref());
    let stages = pipeline.stages.iter().map(|stage| stage.name.clone());
    let output = |output: &OutputNode| {
        let stages = output.stages.iter().map(|stage| stage.name.as_str());
        let name = match &output.component {
            AnyOutput::Feeder(feeder) => format!("{} {}", output.name, feeder.pipeline()),
            _ => output.name.clone(),
        };
        let way: Vec<&str> = stages.chain([name.as_str()]).collect();
        match way.len() {
            1 => way.concat(),
            _ => format!("({})", way.join(" | ")),
        }
    };
    let outputs: Vec<String> = pipeline.outputs.iter().map(output).collect();
    let flow: Vec<String> = std::iter::once(inputs.collect::<Vec<_>>().join(", "))
        .chain(stages)
        .chain([outputs.join(", ")])
        .collect();
    flow.join(" | ")
}

/// Which queue a pipeline has, if it has more than memory.
pub fn queue(pipeline: &PipelineGraph, data_dir: Option<&Path>) -> Option<String> {
    let disk = pipeline.queue.disk()?;
    let folder = disk.folder(data_dir, &pipeline.name).unwrap_or_default();
    let kind = match &pipeline.queue {
        QueueSettings::Disk(_) => "disk",
        QueueSettings::Memory(_) | QueueSettings::Kafka(_) => "memory, then disk",
    };
    let (size, folder) = (disk.max_bytes, folder.display());
    Some(format!("{kind}, at most {size}, in {folder}"))
}

/// Writes down what inputs of a one-line pipeline do in another way than those of a YAML file by default.
fn say_defaults(node: &mut Node) {
    let (span, source) = (node.span, node.source().clone());
    match &mut node.kind {
        NodeKind::List(items) => items.iter_mut().for_each(say_defaults),
        NodeKind::Map(entries) => {
            for (key, value) in entries {
                let name = key.as_str().unwrap_or_default();
                if let "pipelines" | "input" | "inputs" | "main" = name {
                    say_defaults(value);
                    continue;
                }
                let spec = REGISTRY.resolve(StageRole::Input, key);
                for (setting, default) in spec.map_or(&[][..], |spec| spec.one_line) {
                    let is_set = value.get(setting).is_some();
                    if let (false, NodeKind::Map(settings)) = (is_set, &mut value.kind) {
                        let scalar = |text: &str| Node::scalar(&source, span, text, false);
                        settings.push((scalar(setting), scalar(default)));
                    }
                }
            }
        }
        NodeKind::Null | NodeKind::Scalar { .. } => {}
    }
}
