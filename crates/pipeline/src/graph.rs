//! The configuration tree read into components that are ready to run.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use batch::HostInfo;
use batch::fnv::fnv64;
use component::settings::PROCESSORS;
use component::{AnyOutput, Build, BuildContext, Effects, Spec};
use config::{ConfigError, Node, Size, StageRole, setting_names, to_yaml};
use expr::Expr;
use queue::{DISK_SIZE_MIN, QueueSettings, check_file_name};
use serde::de::DeserializeOwned;

use crate::dry::dry;
use crate::links::Links;
use crate::loops::Loops;
use crate::measured::Measured;
use crate::registry::Registry;
use crate::settings::{
    InputSettings, LETTERS_SIZE_MIN, OnFailure, OutputSettings, ProcessSettings, ProcessorSettings,
    SendingSettings,
};
use crate::spread::{check_names, spread};

pub use crate::nodes::{InputNode, OutputNode, PipelineGraph, StageNode};

/// Every pipeline of a configuration, ready to run.
pub struct Graph {
    /// Settings of the process.
    pub process: ProcessSettings,
    /// For each setting at the top of the configuration but `pipelines`, a number that changes with what it says.
    pub fingerprints: BTreeMap<String, u64>,
    /// The pipelines, in the order of the configuration.
    pub pipelines: Vec<PipelineGraph>,
}

/// What [`Graph::build`] gets beside the configuration.
#[derive(Debug, Clone, Default)]
pub struct BuildOptions {
    /// Whether it is a one-line pipeline, which runs until its inputs end.
    pub finite: bool,
    /// A data directory from elsewhere, such as the command line, which stands in the place of the configuration's.
    pub data_dir: Option<PathBuf>,
    /// What the run may change outside the process. Unless it is everything, the data directory is left alone: nothing is
    /// remembered, queues are in memory, and what would become a dead letter is dropped.
    pub effects: Effects,
    /// Settings at the top of the configuration that the caller reads by itself.
    pub beside: &'static [&'static str],
    /// Whether a configuration without pipelines is an error.
    pub needs_pipelines: bool,
}

impl Graph {
    /// Reads a configuration and builds its components.
    ///
    /// # Errors
    /// The first setting that cannot be taken, with its place.
    pub fn build(
        registry: &Registry,
        root: &Node,
        host: &Arc<HostInfo>,
        options: BuildOptions,
    ) -> Result<Self, ConfigError> {
        let mut top = root.map_reader("the configuration")?;
        let pipelines = top.take("pipelines");
        for &key in setting_names::<ProcessSettings>()
            .iter()
            .chain(options.beside)
        {
            top.take(key);
        }
        if pipelines.is_none() {
            let missing = options.needs_pipelines.then(|| {
                let error = root.error("the configuration has no `pipelines`");
                error.note(PIPELINES_FORM)
            });
            misplaced(root).or(missing).map_or(Ok(()), Err)?;
        }
        top.finish()?;
        let (mut process, _) = split::<ProcessSettings>(root)?;
        process.data_dir = options.data_dir.or(process.data_dir);
        check_process(root, &process)?;
        let entries = match pipelines {
            None => &[],
            Some(pipelines) => entries(pipelines)?,
        };
        let mut builder = Builder {
            registry,
            host,
            finite: options.finite,
            effects: options.effects,
            claims: BTreeSet::new(),
            data_dir: process.data_dir.as_deref(),
            queues: BTreeMap::new(),
            links: Links::default(),
            loops: Loops::default(),
            measured: Measured::default(),
        };
        let mut pipelines = Vec::new();
        for (name, node) in entries {
            let parts = builder.parts(name, node)?.into_iter();
            pipelines.extend(parts.map(|part| (part, name.clone())));
        }
        check_names(&pipelines)?;
        let mut pipelines: Vec<PipelineGraph> =
            pipelines.into_iter().map(|(part, _)| part).collect();
        let names: Vec<&str> = pipelines.iter().map(|it| it.name.as_str()).collect();
        builder.links.check(&names)?;
        builder.loops.check(&mut pipelines, &builder.links)?;
        let mut graph = Self {
            process,
            fingerprints: fingerprints(root),
            pipelines,
        };
        if options.effects != Effects::All {
            graph.leave_data_dir();
        }
        Ok(graph)
    }

    /// Takes the data directory away.
    fn leave_data_dir(&mut self) {
        self.process.data_dir = None;
        for pipeline in &mut self.pipelines {
            pipeline.queue = pipeline.queue.in_memory();
            let of_outputs = pipeline.outputs.iter_mut().flat_map(|it| &mut it.stages);
            for stage in pipeline.stages.iter_mut().chain(of_outputs) {
                if stage.on_failure == OnFailure::DeadLetter {
                    stage.on_failure = OnFailure::Drop;
                    stage.would_bury = true;
                }
            }
        }
    }

    /// Whether an input of any pipeline waits for what somebody types.
    pub fn reads_terminal(&self) -> bool {
        let mut inputs = self.pipelines.iter().flat_map(|it| &it.inputs);
        inputs.any(|input| input.component.reads_terminal())
    }

    /// Whether events of any pipeline go to standard output.
    pub fn uses_standard_output(&self) -> bool {
        let outputs = self.pipelines.iter().flat_map(|pipeline| &pipeline.outputs);
        outputs
            .map(|output| output.component.output())
            .any(|output| output.uses_standard_output())
    }
}

struct Builder<'a> {
    registry: &'a Registry,
    host: &'a Arc<HostInfo>,
    finite: bool,
    effects: Effects,
    /// What components have for themselves.
    claims: BTreeSet<String>,
    data_dir: Option<&'a Path>,
    /// The folders of disk queues, each with its pipeline.
    queues: BTreeMap<PathBuf, String>,
    links: Links,
    loops: Loops,
    measured: Measured,
}

impl Builder<'_> {
    /// The pipelines that this machine runs of one of the configuration: that one, unless several machines share its queue.
    fn parts(&mut self, name: &Node, node: &Node) -> Result<Vec<PipelineGraph>, ConfigError> {
        let before = (self.claims.clone(), self.measured.clone());
        let mut pipeline = self.pipeline(name, node)?;
        let queue = match std::mem::take(&mut pipeline.queue) {
            QueueSettings::Kafka(queue) => queue,
            other => {
                pipeline.queue = other;
                return Ok(vec![pipeline]);
            }
        };
        if self.effects != Effects::All {
            return Ok(vec![pipeline]);
        }
        let topic = queue.topic(&pipeline.name)?;
        let brokers = queue.brokers.addresses();
        self.claim(Some(format!("topic {topic} of {brokers}")), &queue.node)?;
        let with_it = (self.claims.clone(), self.measured.clone());
        let registry = self.registry;
        let mut again = || {
            (self.claims, self.measured) = before.clone();
            let again = self.pipeline(name, node)?;
            Ok((again.stages, again.outputs))
        };
        let parts = spread(registry, pipeline, &queue, node, &mut again)?;
        (self.claims, self.measured) = with_it;
        Ok(parts)
    }

    fn pipeline(&mut self, name: &Node, node: &Node) -> Result<PipelineGraph, ConfigError> {
        let mut reader = node.map_reader("a pipeline")?;
        let (input, inputs) = (reader.take("input"), reader.take("inputs"));
        let (output, outputs) = (reader.take("output"), reader.take("outputs"));
        let stages = reader.take(PROCESSORS).map_or(&[][..], Node::items);
        let queue = match reader.take("queue") {
            Some(node) => self.queue(name, node)?,
            None => QueueSettings::default(),
        };
        let retry = reader.parse("retry")?.unwrap_or_default();
        let on_failure = reader.parse("on_failure")?.unwrap_or_default();
        self.check_failure_policy(on_failure, node)?;
        // A misspelt name is told before the one that is missing because of it.
        reader
            .finish()
            .map_err(|error| match error.unknown_setting() {
                Some("name") => error.note("a pipeline is called by the key that it stands under"),
                _ => error,
            })?;
        let inputs = one_or_more(input, inputs, node, "input")?;
        let outputs = one_or_more(output, outputs, node, "output")?;
        let name = name.as_str().unwrap_or_default().to_owned();
        let (inputs, fed) = self.inputs(&name, inputs)?;
        let stages = self.stages(stages, on_failure, &[], (&name, None))?;
        let mut names = BTreeSet::new();
        let nodes = outputs;
        let mut outputs = nodes
            .iter()
            .map(|node| self.output(&name, node, on_failure, &stages, &mut names))
            .collect::<Result<Vec<_>, _>>()?;
        self.take_the_rest(nodes, &mut outputs)?;
        self.check_ends(&queue, &stages, node)?;
        for (output, node) in outputs.iter().zip(nodes) {
            self.check_late(&queue, &inputs, output, node)?;
            self.check_ends_below(&queue, output, node)?;
        }
        Ok(PipelineGraph {
            name,
            inputs,
            fed,
            queue,
            stages,
            outputs,
            retry,
            fingerprint: fingerprint(node),
            written: Arc::default(),
            is_watched: false,
            is_part: false,
        })
    }

    fn queue(&mut self, pipeline: &Node, node: &Node) -> Result<QueueSettings, ConfigError> {
        let queue = QueueSettings::read(node)?;
        let Some(disk) = queue.disk().filter(|_| self.effects == Effects::All) else {
            return Ok(queue);
        };
        let place = queue.place(node);
        let name = pipeline.as_str().unwrap_or_default();
        let Some(folder) = disk.folder(self.data_dir, name) else {
            let error = place.error("a disk queue needs a directory, and `data_dir` is not set");
            return Err(error.note("set `data_dir` at the top of the configuration, use --data-dir DIR, or give this queue a `path`"));
        };
        if disk.path.is_none() {
            check_file_name(pipeline)?;
        }
        let real = real_path(&folder);
        if self.data_dir.is_some_and(|dir| real_path(dir) == real) {
            let error = place.error("the directory of a queue cannot be the data directory itself");
            return Err(error.note("use a directory below it"));
        }
        if let Some(other) = self.queues.insert(real, name.to_owned()) {
            let folder = folder.display();
            let error = place.error(format!(
                "the queue of pipeline `{other}` already uses {folder}"
            ));
            return Err(error.note("each disk queue needs its own directory"));
        }
        Ok(queue)
    }

    /// Refuses processors that hold events until the end of the run where a stop would lose them: an overflow queue may keep what comes before the end
    /// for the next run, and does not keep what they hold.
    fn check_ends(
        &self,
        queue: &QueueSettings,
        stages: &[StageNode],
        node: &Node,
    ) -> Result<(), ConfigError> {
        let is_overflow = matches!(queue, QueueSettings::Memory(_)) && queue.disk().is_some();
        let holds = stages.iter().find(|stage| stage.component.makes_at_end());
        let Some(stage) = holds.filter(|_| is_overflow && self.effects == Effects::All) else {
            return Ok(());
        };
        let error = node.nearest("processors").error(format!(
            "`{}` holds events until the end of the run, and a queue with `overflow: disk` does not keep them over a stop",
            stage.kind
        ));
        Err(error.note("use `queue: disk`, which keeps them, or a queue in memory, with which a stop tells them"))
    }

    /// The same below an output, where nothing is kept, in front of which any queue on disk may keep what comes before the end.
    fn check_ends_below(
        &self,
        queue: &QueueSettings,
        output: &OutputNode,
        node: &Node,
    ) -> Result<(), ConfigError> {
        let holds = output
            .stages
            .iter()
            .find(|stage| stage.component.makes_at_end());
        let is_on_disk = queue.disk().is_some() && self.effects == Effects::All;
        let Some(stage) = holds.filter(|_| is_on_disk) else {
            return Ok(());
        };
        let error = node.nearest("processors").error(format!(
            "`{}` holds events until the end of the run, and below an output a queue on disk does not keep them over a stop",
            stage.kind
        ));
        Err(error.note("put it among the processors of the pipeline"))
    }

    /// Refuses inputs whose senders would wait for minutes to hear that events are safe: they send again, or give up.
    fn check_late(
        &self,
        queue: &QueueSettings,
        inputs: &[InputNode],
        output: &OutputNode,
        node: &Node,
    ) -> Result<(), ConfigError> {
        let is_late = matches!(&output.component, AnyOutput::Writer(it) if it.confirms_late());
        let waits = inputs.iter().find(|input| !input.component.can_wait());
        let is_stored = matches!(queue, QueueSettings::Disk(_) | QueueSettings::Kafka(_));
        let is_safe = self.finite || self.effects != Effects::All || is_stored;
        let Some(input) = waits.filter(|_| is_late && !is_safe) else {
            return Ok(());
        };
        let error = node.error(format!(
            "`{}` says that events are safe only when an object is complete, and senders to the input `{}` would wait so long",
            output.name, input.name
        ));
        Err(error.note("use `queue: disk`, in which events are safe at once"))
    }

    fn context(&self, tag: Option<String>) -> BuildContext {
        BuildContext {
            host: self.host.clone(),
            tag: tag.map(Into::into),
            finite: self.finite,
            effects: self.effects,
        }
    }

    /// The inputs of a pipeline, or what its input is called where others feed it.
    fn inputs(
        &mut self,
        pipeline: &str,
        nodes: &[Node],
    ) -> Result<(Vec<InputNode>, Option<String>), ConfigError> {
        let mut names = BTreeSet::new();
        for node in nodes {
            let (spec, settings) = self.component(StageRole::Input, node)?;
            let Build::Fed(build) = spec.build else {
                continue;
            };
            let (common, own) = split::<InputSettings>(&settings)?;
            build(&own, &self.context(None)).map_err(|error| beside_common(error, spec, &own))?;
            if nodes.len() > 1 {
                return Err(node.error("a pipeline that others feed has no other input"));
            }
            self.links.is_fed(pipeline, node);
            let name = unique(common.name, spec, node, &mut names)?;
            return Ok((Vec::new(), Some(name)));
        }
        let inputs = nodes.iter().map(|node| self.input(node, &mut names));
        Ok((inputs.collect::<Result<_, _>>()?, None))
    }

    fn input(
        &mut self,
        node: &Node,
        names: &mut BTreeSet<String>,
    ) -> Result<InputNode, ConfigError> {
        let (spec, settings) = self.component(StageRole::Input, node)?;
        let (common, own) = split::<InputSettings>(&settings)?;
        let name = unique(common.name, spec, node, names)?;
        let Build::Input(build) = spec.build else {
            return Err(wrong_kind(node, spec));
        };
        let component =
            build(&own, &self.context(None)).map_err(|error| beside_common(error, spec, &own))?;
        self.claim(component.exclusive(), node)?;
        if component.needs_data_dir() {
            self.check_data_dir(node)?;
        }
        Ok(InputNode { name, component })
    }

    /// Refuses a policy that needs a data directory where there is none.
    fn check_failure_policy(&self, policy: OnFailure, settings: &Node) -> Result<(), ConfigError> {
        match policy {
            OnFailure::DeadLetter => self.check_data_dir(settings.nearest("on_failure")),
            _ => Ok(()),
        }
    }

    fn check_data_dir(&self, place: &Node) -> Result<(), ConfigError> {
        if self.effects != Effects::All || self.data_dir.is_some() {
            return Ok(());
        }
        let error = place.error("dead letters need a directory, and `data_dir` is not set");
        Err(error.note("set `data_dir` at the top of the configuration, or use --data-dir DIR"))
    }

    /// Builds processors. One without a name has the component's, and its number among those of its kind from the second on.
    /// Those of an output come after the pipeline's own, `before`.
    fn stages(
        &mut self,
        nodes: &[Node],
        on_failure: OnFailure,
        before: &[StageNode],
        (pipeline, output): (&str, Option<&str>),
    ) -> Result<Vec<StageNode>, ConfigError> {
        let place = match output {
            None => pipeline.to_owned(),
            Some(output) => format!("{pipeline}/{output}"),
        };
        let mut stages: Vec<StageNode> = Vec::with_capacity(nodes.len());
        for node in nodes {
            let mut stage = self.stage(node, on_failure)?;
            let of_kind = |stages: &[StageNode]| {
                let same = stages.iter().filter(|other| other.kind == stage.kind);
                same.count()
            };
            let same = of_kind(&stages);
            let all = of_kind(before) + same;
            stage.component.place(all);
            let number = stages.len() + 1;
            stage.component.stand_at(&format!("{place}/{number}"));
            if let Some(metric) = stage.component.metric() {
                let at = node.nearest(&format!("{}.metric", stage.kind));
                self.measured.add(metric, pipeline, at)?;
            }
            if !stage.is_named {
                stage.name = match same {
                    0 => stage.kind.to_owned(),
                    before => format!("{} #{}", stage.kind, before + 1),
                };
            }
            stages.push(stage);
        }
        let mut names = BTreeSet::new();
        // Names that were given are refused rather than the others that follow from where a processor stands.
        let (named, unnamed): (Vec<_>, Vec<_>) = stages
            .iter()
            .zip(nodes)
            .partition(|(stage, _)| stage.is_named);
        for (stage, node) in unnamed.into_iter().chain(named) {
            if !names.insert(&stage.name) {
                let error = node.error(format!("a second processor is called `{}`", stage.name));
                return Err(error.note("give each a name of its own: name: …"));
            }
        }
        Ok(stages)
    }

    /// A processor of a pipeline with this failure policy.
    fn stage(&self, node: &Node, default: OnFailure) -> Result<StageNode, ConfigError> {
        let (spec, settings) = self.component(StageRole::Processor, node)?;
        let (common, own) = split::<ProcessorSettings>(&settings)?;
        let condition = condition(common.condition.as_deref(), &settings)?;
        let on_failure = common.on_failure.unwrap_or(default);
        if common.on_failure.is_some() {
            self.check_failure_policy(on_failure, &settings)?;
        }
        let Build::Processor {
            order,
            sees_sealed,
            build,
        } = spec.build
        else {
            return Err(wrong_kind(node, spec));
        };
        let component = build(&own, &self.context(common.tag))
            .map_err(|error| beside_common(error, spec, &own))?;
        if condition.is_none() && component.needs_condition() {
            let name = spec.name;
            let error = node.error(format!(
                "`{name}` needs an expression that says which events"
            ));
            return Err(error.note(format!(
                "for example: {name} level == \"DEBUG\"; every event: {name} true"
            )));
        }
        Ok(StageNode {
            is_named: common.name.is_some(),
            name: common.name.unwrap_or_default(),
            kind: spec.name,
            fingerprint: fnv64(to_yaml(node).as_bytes()),
            component,
            order,
            sees_sealed,
            condition,
            on_failure,
            would_bury: false,
        })
    }

    fn output(
        &mut self,
        pipeline: &str,
        node: &Node,
        on_failure: OnFailure,
        before: &[StageNode],
        names: &mut BTreeSet<String>,
    ) -> Result<OutputNode, ConfigError> {
        let (spec, settings) = self.component(StageRole::Output, node)?;
        let (stages, settings) = settings.divide(&[PROCESSORS]);
        let (common, own) = split::<OutputSettings>(&settings)?;
        let condition = condition(common.condition.as_deref(), &settings)?;
        let name = unique(common.name, spec, node, names)?;
        let stages = stages.as_ref().and_then(|map| map.get(PROCESSORS));
        let nodes = stages.map_or(&[][..], Node::items);
        let stages = self.stages(nodes, on_failure, before, (pipeline, Some(&name)))?;
        let context = self.context(None);
        let mut sending = SendingSettings::default();
        let (component, ordered) = match spec.build {
            Build::Writer { ordered, build } => {
                let built =
                    build(&own, &context).map_err(|error| beside_common(error, spec, &own))?;
                (AnyOutput::Writer(built), ordered)
            }
            Build::Sender(build) => {
                let (set, own) = split::<SendingSettings>(&own)?;
                sending = set;
                let built =
                    build(&own, &context).map_err(|error| beside_common(error, spec, &own))?;
                (AnyOutput::Sender(built), false)
            }
            Build::Feeder(build) => {
                let built =
                    build(&own, &context).map_err(|error| beside_common(error, spec, &own))?;
                let place = own.nearest("to");
                self.links.feeds(pipeline, built.pipeline(), place);
                (AnyOutput::Feeder(built), true)
            }
            _ => return Err(wrong_kind(node, spec)),
        };
        self.claim(component.output().exclusive(), node)?;
        if let Some(written) = component.output().written() {
            let place = own.nearest("path");
            self.loops.writes(pipeline, written, place);
        }
        let component = match self.effects {
            Effects::Nothing => dry(component),
            Effects::All | Effects::Outputs => component,
        };
        Ok(OutputNode {
            name,
            component,
            ordered,
            sending,
            condition,
            otherwise: Vec::new(),
            stages,
        })
    }

    /// Gives the outputs that take what no other one does the conditions of the others.
    fn take_the_rest(&self, nodes: &[Node], outputs: &mut [OutputNode]) -> Result<(), ConfigError> {
        let conditions: Vec<Expr> = outputs
            .iter()
            .filter_map(|output| output.condition.clone())
            .collect();
        for (node, output) in nodes.iter().zip(outputs) {
            let (_, settings) = self.component(StageRole::Output, node)?;
            let (common, _) = split::<OutputSettings>(&settings)?;
            if !common.otherwise {
                continue;
            }
            let at = settings.nearest("otherwise");
            if output.condition.is_some() {
                return Err(at.error("`otherwise` and `if` cannot be combined"));
            }
            if conditions.is_empty() {
                let error = at.error("`otherwise` has no effect: no other output has an `if`");
                return Err(error.note("an output without `if` receives every event"));
            }
            output.otherwise.clone_from(&conditions);
        }
        Ok(())
    }

    /// Takes what a component has for itself; refuses it where another one has it.
    fn claim(&mut self, what: Option<String>, node: &Node) -> Result<(), ConfigError> {
        let Some(what) = what else { return Ok(()) };
        if self.claims.contains(&what) {
            return Err(node.error(format!(
                "another component of this configuration already uses {what}"
            )));
        }
        self.claims.insert(what);
        Ok(())
    }

    fn component(
        &self,
        role: StageRole,
        node: &Node,
    ) -> Result<(&'static Spec, Node), ConfigError> {
        let (name, settings) = node.component(role.with_article())?;
        let spec = self.registry.resolve(role, name)?;
        Ok((spec, settings.into_owned()))
    }
}

/// A number that changes with what a part of a configuration says.
fn fingerprint(node: &Node) -> u64 {
    let mut hasher = DefaultHasher::new();
    to_yaml(node).hash(&mut hasher);
    hasher.finish()
}

/// For each setting at the top of a configuration but `pipelines`, a number that changes with what it says.
fn fingerprints(root: &Node) -> BTreeMap<String, u64> {
    let settings = root.as_map().unwrap_or_default().iter();
    let named = settings.filter_map(|(key, value)| Some((key.as_str()?, value)));
    let of_process = named.filter(|(key, _)| *key != "pipelines");
    of_process
        .map(|(key, value)| (key.to_owned(), fingerprint(value)))
        .collect()
}

/// The most worker threads: far more than cores, and few enough to start.
const WORKERS_MAX: usize = 1024;

/// The least memory that a run can do with: a few buffers.
const MEMORY_MIN: Size = Size(1 << 20);

fn check_process(root: &Node, process: &ProcessSettings) -> Result<(), ConfigError> {
    if process.workers > WORKERS_MAX {
        let error = root.nearest("workers");
        return Err(error.error(format!("`workers` must be at most {WORKERS_MAX}")));
    }
    if process.max_memory_bytes.0 < MEMORY_MIN.0 {
        let error = root.nearest("max_memory_bytes");
        return Err(error.error(format!("`max_memory_bytes` must be at least {MEMORY_MIN}")));
    }
    let letters = &process.dead_letters;
    let place = || root.nearest("dead_letters");
    if letters.max_bytes < LETTERS_SIZE_MIN {
        return Err(place().nearest("max_bytes").error(format!(
            "`max_bytes` of `dead_letters` must be at least {LETTERS_SIZE_MIN}"
        )));
    }
    if letters.max_age.is_some_and(|age| age.is_zero()) {
        return Err(place()
            .nearest("max_age")
            .error("a `max_age` of 0 would keep no dead letters"));
    }
    if process
        .max_disk_bytes
        .is_some_and(|disk| disk < DISK_SIZE_MIN)
    {
        let error = root.nearest("max_disk_bytes");
        return Err(error.error(format!("`max_disk_bytes` must be at least {DISK_SIZE_MIN}")));
    }
    Ok(())
}

/// What a configuration looks like.
const PIPELINES_FORM: &str =
    "a configuration is written `pipelines: { NAME: { input: …, processors: […], output: … } }`";

/// The pipelines of `pipelines`, with their names.
fn entries(pipelines: &Node) -> Result<&[(Node, Node)], ConfigError> {
    let entries = pipelines.as_map().filter(|entries| !entries.is_empty());
    entries.ok_or_else(|| {
        let message = "`pipelines` must contain at least one pipeline, under its name";
        pipelines.error(message).note(PIPELINES_FORM)
    })
}

/// The error for a configuration without pipelines that has at the top what belongs into a pipeline, or is one.
fn misplaced(root: &Node) -> Option<ConfigError> {
    const SETTINGS: &[&str] = &[
        "input", "inputs", "output", "outputs", PROCESSORS, "queue", "retry",
    ];
    let entries = root.as_map().unwrap_or_default();
    let text = |key: &Node| key.as_str().unwrap_or_default().to_owned();
    let setting = entries
        .iter()
        .find(|(key, _)| SETTINGS.contains(&&*text(key)));
    let pipeline = entries
        .iter()
        .find(|(_, node)| SETTINGS.iter().any(|setting| node.get(setting).is_some()));
    let error = match (setting, pipeline) {
        (Some((key, _)), _) => key.error(format!(
            "`{}` belongs to a pipeline, and pipelines stand below `pipelines`, each under its name",
            text(key)
        )),
        (None, Some((key, _))) => key.error(format!(
            "`{}` looks like a pipeline, and pipelines stand below `pipelines`",
            text(key)
        )),
        (None, None) => return None,
    };
    Some(error.note(PIPELINES_FORM))
}

/// The nodes of `input`/`inputs` or `output`/`outputs`: one of the two settings, with at least one component.
fn one_or_more<'n>(
    one: Option<&'n Node>,
    many: Option<&'n Node>,
    pipeline: &Node,
    word: &str,
) -> Result<&'n [Node], ConfigError> {
    let node = match (one, many) {
        (Some(_), Some(second)) => {
            return Err(second.error(format!(
                "`{word}` and `{word}s` are the same setting; use only one of them"
            )));
        }
        (Some(node), None) | (None, Some(node)) => node,
        (None, None) => {
            return Err(pipeline.error(format!("a pipeline needs the setting `{word}`")));
        }
    };
    match node.items() {
        [] => Err(node.error(format!("a pipeline needs at least one {word}"))),
        items => Ok(items),
    }
}

/// A path by which two names of one folder are seen to be one, as far as it exists.
fn real_path(path: &Path) -> PathBuf {
    let absolute = || std::path::absolute(path);
    let real = std::fs::canonicalize(path).or_else(|_| absolute());
    real.unwrap_or_else(|_| path.to_owned())
}

/// The settings of every component of a kind, and what is left for the component itself.
fn split<T: DeserializeOwned + Default>(node: &Node) -> Result<(T, Node), ConfigError> {
    let (shared, own) = node.divide(setting_names::<T>());
    let shared = shared.map(|shared| shared.deserialize()).transpose()?;
    Ok((shared.unwrap_or_default(), own))
}

/// The error of a component's own settings, which knows of those that every component of its kind takes.
fn beside_common(error: ConfigError, spec: &Spec, own: &Node) -> ConfigError {
    error.accepted_beside(own, &spec.build.common_settings())
}

fn condition(text: Option<&str>, settings: &Node) -> Result<Option<Expr>, ConfigError> {
    text.map(|text| {
        Expr::parse_condition(text).map_err(|error| error.in_setting(settings.nearest("if")))
    })
    .transpose()
}

fn unique(
    name: Option<String>,
    spec: &Spec,
    node: &Node,
    names: &mut BTreeSet<String>,
) -> Result<String, ConfigError> {
    let name = name.unwrap_or_else(|| spec.name.to_owned());
    if names.insert(name.clone()) {
        return Ok(name);
    }
    let word = spec.kind().word();
    Err(node
        .error(format!("another {word} is already named `{name}`"))
        .note("give it a different name with `name: …`"))
}

fn wrong_kind(node: &Node, spec: &Spec) -> ConfigError {
    node.error(format!("`{}` is {}", spec.name, spec.kind().with_article()))
}
