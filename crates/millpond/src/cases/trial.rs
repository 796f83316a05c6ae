//! One test run: its pipeline with the test's events in the place of its inputs, and without its outputs.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::sync::Arc;

use anyhow::{Context, anyhow};
use batch::HostInfo;
use component::words::without_error_numbers;
use component::{Diagnostics, Effects, Level, Message};
use config::{ConfigError, Node};
use inputs::{Fixture, fixture};
use parking_lot::Mutex;
use pipeline::graph::{InputNode, OutputNode, StageNode};
use pipeline::report::PipelineReport;
use pipeline::{Graph, PipelineGraph, Run, RunOptions, StartError};
use rustix::fs::{MemfdFlags, memfd_create};
use serde_json::Value;
use tokio::runtime::Runtime;

use super::settings::{Content, Given, Subject, TestCase};
use super::watched::{Fate, Seen, Witness};
use crate::REGISTRY;
use crate::load::trial_options;
use crate::stand_in::{
    beginning, content_settings, file_settings, first_input, read_instead, watcher,
};

/// What the machine is called in tests.
const HOST: &str = "localhost";

/// What the output is called whose events are compared, and the input that gives them.
const NAME: &str = "test";

/// What the processor is called that takes an event away which an output does not want.
const CONDITION: &str = "if";

/// What became of an event.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// It came out.
    Event(Value),
    /// A processor took it away.
    Gone(Fate),
}

/// What a run showed.
#[derive(Default)]
pub struct Trial {
    /// What became of the events, in their order.
    pub outcomes: Vec<Outcome>,
    /// What went wrong in the run, which no test is to have.
    pub problems: Vec<String>,
    /// What else was said.
    pub notes: Vec<String>,
}

impl Trial {
    /// Of a test that could not be run.
    pub fn not_run(error: &anyhow::Error) -> Self {
        // That of a configuration brings the word itself, and shows its place on lines below.
        let text = match error.is::<ConfigError>() {
            true => error.to_string(),
            false => format!("error: {error:#}"),
        };
        Self {
            problems: text.lines().map(without_error_numbers).collect(),
            ..Self::default()
        }
    }
}

/// What is run, and where it is seen.
struct Prepared {
    graph: Graph,
    witness: Witness,
    host: Arc<HostInfo>,
}

/// Whether the test can be run.
///
/// # Errors
/// Its pipeline cannot be built, at its place, or it has no such pipeline or output.
pub fn check(case: &TestCase) -> anyhow::Result<()> {
    prepare(case).map(drop)
}

/// Runs a test.
///
/// # Errors
/// As [`check`].
pub fn run(case: &TestCase, runtime: &Runtime) -> anyhow::Result<Trial> {
    let Prepared {
        graph,
        witness,
        host,
    } = prepare(case)?;
    let said = Arc::<Mutex<Vec<String>>>::default();
    let hear = said.clone();
    let diagnostics = Diagnostics::to_sink(move |message: &Message<'_>| {
        let word = match message.level {
            Level::Error => "error: ",
            Level::Warn => "warning: ",
            Level::Info => return,
        };
        hear.lock().push(format!("{word}{message}"));
    });
    let options = RunOptions {
        host,
        diagnostics,
        activities: Default::default(),
        finite: true,
        stop: Default::default(),
        registry: None,
        ledger: false,
        replays: false,
        view: Default::default(),
        own: Default::default(),
    };
    let report = runtime.block_on(async {
        match Run::start(graph, options).await {
            Err(StartError::Setting(error)) => Err(anyhow::Error::from(error)),
            Err(error) => Err(error.into()),
            Ok(run) => Ok(run.finish().await),
        }
    })?;
    let mut trial = Trial {
        outcomes: outcomes(witness.take(), case.subject.output.is_some())?,
        problems: Vec::new(),
        notes: std::mem::take(&mut said.lock()),
    };
    for PipelineReport {
        problems,
        remarks,
        undelivered,
        ..
    } in &report.pipelines
    {
        let texts = problems.iter().map(|problem| format!("error: {problem}"));
        trial.problems.extend(texts);
        if *undelivered > 0 {
            let text = format!("error: {undelivered} events were read but not delivered");
            trial.problems.push(text);
        }
        let texts = remarks.iter().map(|remark| format!("warning: {remark}"));
        trial.notes.extend(texts);
    }
    Ok(trial)
}

fn prepare(case: &TestCase) -> anyhow::Result<Prepared> {
    let (subject, given) = (&case.subject, &case.given);
    let mut root = subject.loaded.clone().expanded()?;
    let name = pipeline_name(&root, subject)?;
    let pipeline = root.nearest("pipelines").get(&name);
    let input = pipeline.and_then(first_input);
    let input = input.context("internal error: the pipeline has no input")?;
    let content = given.open()?;
    let beginning = || Ok(beginning(&content)?);
    let path = given.path(input);
    let settings = match given.content {
        Content::Documents(_) => document_settings(input)?,
        _ => content_settings(input, &beginning)?,
    };
    let settings = file_settings(settings, input, &path).rooted();
    read_instead(&mut root, &path, &beginning)?;
    let host = Arc::new(HostInfo { name: HOST.into() });
    let options = trial_options(true, Effects::Nothing);
    let graph = Graph::build(&REGISTRY, &root.rooted(), &host, options)?;
    let mut pipelines = graph.pipelines.into_iter();
    let pipeline = pipelines.find(|pipeline| pipeline.name == name);
    let pipeline = pipeline.context("internal error: the pipeline was not built")?;
    let witness = Witness::default();
    let content = Fixture {
        content,
        path,
        received: subject.received,
    };
    let input = InputNode {
        name: NAME.to_owned(),
        component: witness.input(fixture(&settings, content)?),
    };
    let pipeline = watched(pipeline, input, &witness, subject.output.as_ref())?;
    let mut process = graph.process;
    // Events of one worker come in order, and starting others takes time.
    process.workers = 1;
    let graph = Graph {
        process,
        fingerprints: graph.fingerprints,
        pipelines: vec![pipeline],
    };
    Ok(Prepared {
        graph,
        witness,
        host,
    })
}

/// The name of the pipeline under test.
fn pipeline_name(root: &Node, subject: &Subject) -> Result<String, ConfigError> {
    let pipelines = root.get("pipelines").and_then(Node::as_map);
    let names: Vec<&str> = pipelines
        .unwrap_or_default()
        .iter()
        .filter_map(|(name, _)| name.as_str())
        .collect();
    match (&subject.pipeline, names.as_slice()) {
        (Some(node), _) => {
            let name = node.as_str().unwrap_or_default();
            if names.contains(&name) {
                return Ok(name.to_owned());
            }
            let error = node.error(format!("the configuration has no pipeline `{name}`"));
            Err(error.accepted(names).closest_to(name))
        }
        (None, [name]) => Ok((*name).to_owned()),
        (None, []) => Err(subject.config.error("the configuration has no pipelines")),
        (None, _) => {
            let words =
                "the configuration has several pipelines: `pipeline` says which one is tested";
            Err(subject.config.error(words).accepted(names))
        }
    }
}

/// The pipeline with one input, and with an output that shows what leaves its processors, or what gets to one of its outputs.
fn watched(
    pipeline: PipelineGraph,
    input: InputNode,
    witness: &Witness,
    output: Option<&Node>,
) -> Result<PipelineGraph, ConfigError> {
    let collector = watcher(NAME, witness.output(), true);
    let watch = |stages: Vec<StageNode>, output: Option<&str>| {
        let stages = stages.into_iter();
        stages.map(|stage| witness.watch(stage, output)).collect()
    };
    let output = match output {
        None => collector,
        Some(node) => {
            let name = node.as_str().unwrap_or_default();
            let names: Vec<String> = pipeline.outputs.iter().map(|it| it.name.clone()).collect();
            let mut outputs = pipeline.outputs.into_iter();
            let output = outputs.find(|output| output.name == name).ok_or_else(|| {
                let pipeline = &pipeline.name;
                let error = node.error(format!("pipeline `{pipeline}` has no output `{name}`"));
                error.accepted(names).closest_to(name)
            })?;
            OutputNode {
                name: output.name,
                condition: output.condition,
                otherwise: output.otherwise,
                stages: watch(output.stages, Some(name)),
                ..collector
            }
        }
    };
    Ok(PipelineGraph {
        inputs: vec![input],
        fed: None,
        stages: watch(pipeline.stages, None),
        outputs: vec![output],
        ..pipeline
    })
}

impl Given {
    /// What is read.
    fn open(&self) -> anyhow::Result<File> {
        let bytes = match &self.content {
            Content::Fixture(_, path) => {
                let shown = path.display();
                return File::open(path).with_context(|| format!("cannot read {shown}"));
            }
            Content::Texts(bytes) | Content::Documents(bytes) => bytes,
        };
        let written = memfd_create("millpond-test", MemfdFlags::CLOEXEC)
            .map_err(std::io::Error::from)
            .and_then(|fd| {
                let mut file = File::from(fd);
                file.write_all(bytes)?;
                file.seek(SeekFrom::Start(0))?;
                Ok(file)
            });
        written.context("cannot keep the events of a test")
    }

    /// What events call the file that they come from: as the test says; otherwise the fixture, or the file that the input reads.
    fn path(&self, input: &Node) -> String {
        if let Some(path) = &self.path {
            return path.clone();
        }
        if let Content::Fixture(name, _) = &self.content {
            return name.clone();
        }
        let settings = input.component("an input").map(|(_, settings)| settings);
        let paths = settings.as_ref().ok().and_then(|it| it.get("paths"));
        let first = paths.and_then(|paths| paths.items().first()?.as_str());
        let path = first.unwrap_or_default().replace(['*', '?'], "");
        match path.is_empty() {
            true => NAME.to_owned(),
            false => path,
        }
    }
}

/// How documents are read, whatever the input reads: as JSON, with the fields that the input adds.
fn document_settings(input: &Node) -> anyhow::Result<Vec<(Node, Node)>> {
    let scalar = |text: &str| Node::scalar(input.source(), input.span, text, true);
    let (_, settings) = input.component("an input")?;
    let mut content = vec![(scalar("codec"), scalar("json"))];
    content.extend(
        settings
            .entry("add_fields")
            .map(|(key, value)| (key.clone(), value.clone())),
    );
    Ok(content)
}

/// What became of the events that were read, in their order. `has_condition` says whether an event that is nowhere was not wanted by
/// the output; otherwise nobody asked for it any more.
fn outcomes(seen: Seen, has_condition: bool) -> anyhow::Result<Vec<Outcome>> {
    let Seen { read, fates, out } = seen;
    let known: HashSet<&str> = read.iter().map(String::as_str).collect();
    let mut of_events: HashMap<&str, Vec<Value>> = HashMap::new();
    let mut derived = Vec::new();
    for (id, event) in &out {
        let value = serde_json::from_str(event)
            .map_err(|error| anyhow!("internal error: an event is not JSON: {error}"))?;
        // A part has the id of the event that it is of, and a number.
        let wholes = std::iter::successors(Some(&**id), |id| Some(id.rsplit_once('-')?.0));
        match wholes.into_iter().find(|id| known.contains(id)) {
            Some(id) => of_events.entry(id).or_default().push(value),
            // It sums up others.
            None => derived.push(value),
        }
    }
    let mut outcomes = Vec::new();
    for id in &read {
        if let Some(events) = of_events.remove(&**id) {
            outcomes.extend(events.into_iter().map(Outcome::Event));
        } else if let Some(fate) = fates.get(id) {
            outcomes.push(Outcome::Gone(fate.clone()));
        } else if has_condition {
            outcomes.push(Outcome::Gone(Fate {
                by: CONDITION.into(),
                is_dead: false,
                reason: None,
            }));
        }
    }
    outcomes.extend(derived.into_iter().map(Outcome::Event));
    Ok(outcomes)
}
