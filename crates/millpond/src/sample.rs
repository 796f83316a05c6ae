//! `millpond check --sample FILE`: what a pipeline makes of the first lines of a file.
//!
//! The file stands in the place of the pipeline's inputs and is read as the first of them would read it. Outputs render and write
//! nothing, the data directory is left alone, and what came out of the processors is printed.

use std::fs::File;
use std::io::IsTerminal;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, bail};
use batch::HostInfo;
use component::{Build, BuildContext, Effects, grouped, plural};
use config::{Source, StageRole, expand_short_forms, parse_yaml};
use pipeline::graph::{OutputNode, StageNode};
use pipeline::report::{OperatorReport, PipelineReport, Role};
use pipeline::{BuildOptions, Graph, PipelineGraph, Report};

use crate::REGISTRY;
use crate::console::say;
use crate::load::{Loaded, host, trial_options};
use crate::run::Session;
use crate::stand_in::{self, read_instead, watcher};

/// The output that prints.
const PRINTER: &str = "sample";

/// Runs the first `lines` events of a file through every pipeline; events go to standard output, all else to standard error.
pub fn sample(loaded: Loaded, file: &str, lines: u64) -> anyhow::Result<ExitCode> {
    let host = host();
    let mut root = loaded.expanded()?;
    read_instead(&mut root, file, &|| beginning(file))?;
    let options = trial_options(true, Effects::Nothing);
    let graph = Graph::build(&REGISTRY, &root.rooted(), &host, options.clone())?;
    let mut session = Session::begin(&graph, true, false)?;
    let is_alone = graph.pipelines.len() == 1;
    let mut code = 0;
    for mut pipelines in linked(graph.pipelines) {
        for pipeline in &mut pipelines {
            if pipeline.fed.is_none() {
                pipeline
                    .stages
                    .insert(0, limiter(lines, &host, options.clone())?);
            }
            if pipeline
                .outputs
                .iter()
                .any(|output| output.target().is_none())
            {
                pipeline.outputs.push(printer(&host)?);
                pipeline.is_watched = true;
            }
        }
        let group = Graph {
            process: graph.process.clone(),
            fingerprints: graph.fingerprints.clone(),
            pipelines,
        };
        let report = session.execute(group, true, &host, None, false)?;
        say(&summary(&report, is_alone));
        code = code.max(session.conclude(&report));
    }
    Ok(code.into())
}

/// The pipelines in groups: those that feed each other run together, all others alone.
fn linked(pipelines: Vec<PipelineGraph>) -> Vec<Vec<PipelineGraph>> {
    let mut groups: Vec<Vec<PipelineGraph>> = Vec::new();
    for pipeline in pipelines {
        let feeds = |a: &PipelineGraph, b: &PipelineGraph| {
            a.outputs.iter().any(|it| it.target() == Some(&b.name))
        };
        let is_linked = |group: &Vec<PipelineGraph>| {
            group
                .iter()
                .any(|other| feeds(other, &pipeline) || feeds(&pipeline, other))
        };
        let (joined, rest): (Vec<_>, Vec<_>) = groups.into_iter().partition(is_linked);
        groups = rest;
        groups.push(joined.into_iter().flatten().chain([pipeline]).collect());
    }
    groups
}

/// The processor that ends the run after so many events. It is added to what the configuration builds, so that it changes no
/// name there.
fn limiter(lines: u64, host: &Arc<HostInfo>, options: BuildOptions) -> anyhow::Result<StageNode> {
    let text = format!(
        "pipelines: {{ p: {{ input: stdin, processors: [head: {lines}], output: discard }} }}"
    );
    let tree = parse_yaml(&Source::new("the sample's limit", text))?;
    let tree = expand_short_forms(tree, &REGISTRY)?;
    let graph = Graph::build(&REGISTRY, &tree, host, options)?;
    let mut stages = graph
        .pipelines
        .into_iter()
        .flat_map(|pipeline| pipeline.stages);
    stages
        .next()
        .context("internal error: there is no processor `head`")
}

/// How a file begins.
fn beginning(file: &str) -> anyhow::Result<Vec<u8>> {
    let opened = File::open(file).with_context(|| format!("cannot read {file}"))?;
    // What cannot be read is reported by the input.
    Ok(stand_in::beginning(&opened).unwrap_or_default())
}

/// An output that prints to standard output: for reading on a terminal, lines of JSON elsewhere.
fn printer(host: &Arc<HostInfo>) -> anyhow::Result<OutputNode> {
    let codec = match std::io::stdout().is_terminal() {
        true => "codec: pretty",
        false => "codec: json",
    };
    let node = parse_yaml(&Source::new("the sample's output", codec))?;
    let context = BuildContext {
        host: host.clone(),
        tag: None,
        finite: true,
        effects: Effects::All,
    };
    let spec = REGISTRY.find(StageRole::Output, "stdout");
    let Some(Build::Writer { ordered, build }) = spec.map(|spec| spec.build) else {
        bail!("internal error: there is no output `stdout`");
    };
    Ok(watcher(PRINTER, build(&node, &context)?, ordered))
}

/// How many events came, went and failed where.
fn summary(report: &Report, is_alone: bool) -> String {
    let mut lines = Vec::new();
    for PipelineReport {
        name,
        is_fed,
        operators,
        ..
    } in &report.pipelines
    {
        let of = |role| move |operator: &&OperatorReport| operator.role == role;
        let mut stages: Vec<&OperatorReport> =
            operators.iter().filter(of(Role::Processor)).collect();
        let read = match is_fed {
            // What the pipelines before it handed on.
            true => {
                let fed = operators.iter().filter(of(Role::Input));
                fed.map(|input| input.counts.events_out).sum()
            }
            // The first processor is the one that ends the run.
            false => stages.drain(..1).map(|head| head.counts.events_out).sum(),
        };
        let mut outputs: Vec<&OperatorReport> = operators.iter().filter(of(Role::Output)).collect();
        let printed = match outputs.pop_if(|output| output.name == PRINTER) {
            Some(printer) => printer.counts.events_in,
            None => outputs
                .iter()
                .map(|output| output.counts.events_in)
                .max()
                .unwrap_or(0),
        };
        let pipeline = if is_alone {
            String::new()
        } else {
            format!("pipeline {name}: ")
        };
        lines.push(format!(
            "{pipeline}{} read, {} out",
            plural(read, "event"),
            plural(printed, "event")
        ));
        for stage in stages {
            let errors = stage.counts.named.get("expression_errors").copied();
            let failed = stage.counts.failures + errors.unwrap_or_default();
            let dropped = stage.counts.dropped;
            if failed + dropped > 0 {
                let (failed, dropped) = (grouped(failed), grouped(dropped));
                lines.push(format!(
                    "  {}: {dropped} dropped, {failed} failed",
                    stage.name
                ));
            }
        }
        for output in outputs
            .iter()
            .filter(|output| output.counts.events_in < printed)
        {
            let taken = grouped(output.counts.events_in);
            lines.push(format!("  output {}: would get {taken}", output.name));
        }
    }
    lines.join("\n")
}
