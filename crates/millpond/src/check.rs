//! `millpond check`: what a configuration holds, and what would be wrong with it.

use std::path::PathBuf;
use std::process::ExitCode;

use component::Warning;
use pipeline::Graph;

use crate::console::{print, say};
use crate::load::{flow, host, load, queue};
use crate::sample::sample;

/// Checks a configuration and says what it holds.
pub fn check(pipeline: &[String], data_dir: Option<PathBuf>) -> anyhow::Result<ExitCode> {
    let graph = load(pipeline)?.build(&host(), data_dir)?;
    let data_dir = graph.process.data_dir.as_deref();
    for pipeline in &graph.pipelines {
        print(format!("{}: {}\n", pipeline.name, flow(pipeline)).as_bytes())?;
        if let Some(queue) = queue(pipeline, data_dir) {
            print(format!("  queue: {queue}\n").as_bytes())?;
        }
    }
    tell_missing(&graph);
    tell_warnings(&graph);
    print(b"The configuration is valid.\n")?;
    Ok(ExitCode::SUCCESS)
}

/// Checks a configuration and shows what it makes of the first `lines` events of a file.
pub fn check_sample(
    pipeline: &[String],
    data_dir: Option<PathBuf>,
    file: &str,
    lines: u64,
) -> anyhow::Result<ExitCode> {
    tell_warnings(&load(pipeline)?.build(&host(), data_dir)?);
    sample(load(pipeline)?, file, lines)
}

/// What inputs would not find now.
fn tell_missing(graph: &Graph) {
    for pipeline in &graph.pipelines {
        for input in &pipeline.inputs {
            for text in input.component.notices() {
                let (pipeline, input) = (&pipeline.name, &input.name);
                say(&format!(
                    "warning: pipeline {pipeline}: input {input}: {text}"
                ));
            }
        }
    }
}

/// What outputs have to say of their settings.
fn tell_warnings(graph: &Graph) {
    for pipeline in &graph.pipelines {
        for output in &pipeline.outputs {
            for Warning { text, .. } in output.component.output().take_warnings() {
                let (pipeline, output) = (&pipeline.name, &output.name);
                say(&format!(
                    "warning: pipeline {pipeline}: output {output}: {text}"
                ));
            }
        }
    }
}
