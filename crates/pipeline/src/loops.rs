//! Files that are written with what is read from them: what is refused before anything starts, because it would never end.
//!
//! Events come back where an output writes a file that an input reads from which the output gets its events: in one pipeline, or over
//! several that feed each other or read each other's files. What a path with fields in it comes to is only known later: inputs
//! then leave out the files that these outputs have opened ([`component::written`]).

use std::path::Path;
use std::sync::Arc;

use component::WrittenFiles;
use config::{ConfigError, Node};

use crate::links::Links;
use crate::nodes::PipelineGraph;

/// What the outputs of a configuration write.
#[derive(Default)]
pub struct Loops {
    outputs: Vec<FileOutput>,
}

struct FileOutput {
    pipeline: String,
    written: Arc<WrittenFiles>,
    place: Node,
}

impl FileOutput {
    fn path(&self) -> Option<&Path> {
        self.written.path()
    }
}

impl Loops {
    /// An output of a pipeline writes files.
    pub fn writes(&mut self, pipeline: &str, written: Arc<WrittenFiles>, place: &Node) {
        self.outputs.push(FileOutput {
            pipeline: pipeline.to_owned(),
            written,
            place: place.clone(),
        });
    }

    /// Checks that no input reads what its own events are written to, and gives every pipeline the files that it must leave out.
    ///
    /// # Errors
    /// The first output whose file is read by a pipeline from which it gets its events, with its place.
    pub fn check(&self, pipelines: &mut [PipelineGraph], links: &Links) -> Result<(), ConfigError> {
        for index in 0..pipelines.len() {
            let reached = self.reached(&pipelines[index].name, pipelines, links);
            let is_reached = |output: &&FileOutput| reached.contains(&output.pipeline);
            let outputs = self.outputs.iter().filter(is_reached);
            let own = &pipelines[index];
            for output in outputs.clone() {
                let Some(path) = output.path().filter(|path| reads(own, path)) else {
                    continue;
                };
                let reader = match output.pipeline == own.name {
                    true => "the input of this pipeline reads".to_owned(),
                    false => format!(
                        "pipeline `{}`, from which these events come, reads",
                        own.name
                    ),
                };
                let error = output.place.error(format!(
                    "{reader} what is written to `{}`: every event would be read and written again without end",
                    path.display()
                ));
                return Err(error.note("write to a directory that is not read, or leave these files out with `exclude` of the input"));
            }
            let written = outputs.map(|output| output.written.clone()).collect();
            pipelines[index].written = written;
        }
        Ok(())
    }

    /// The pipelines to which events of one can come, itself included.
    fn reached(&self, from: &str, pipelines: &[PipelineGraph], links: &Links) -> Vec<String> {
        let mut reached = vec![from.to_owned()];
        let mut next = 0;
        while next < reached.len() {
            let name = reached[next].clone();
            next += 1;
            let own = self.outputs.iter().filter(|output| output.pipeline == name);
            let paths: Vec<&Path> = own.filter_map(FileOutput::path).collect();
            for pipeline in pipelines {
                let takes = links.has(&name, &pipeline.name)
                    || paths.iter().any(|path| reads(pipeline, path));
                if takes && !reached.contains(&pipeline.name) {
                    reached.push(pipeline.name.clone());
                }
            }
        }
        reached
    }
}

fn reads(pipeline: &PipelineGraph, path: &Path) -> bool {
    let mut inputs = pipeline.inputs.iter();
    inputs.any(|input| input.component.reads(path))
}
