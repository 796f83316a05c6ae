//! `profile`: where processor time goes, as events.
//!
//! | module | holds |
//! | --- | --- |
//! | [`settings`] | the settings, and what is refused |
//! | [`documents`] | what events look like |
//! | [`sending`] | documents to batches, and these to the queue |
//! | [`live`] | samples of this machine |
//! | [`files`] | profiles in files |
//!
//! # Limits
//! Buffers with events are charged to the memory budget; profiles and tables of symbols are not. The former are bounded by
//! the samples of an interval and by [`live`]'s limit of what waits, the latter by the number of files that [`profiler::symbols`] keeps.

mod documents;
mod files;
mod live;
mod sending;
mod settings;

use std::path::Path;

use async_trait::async_trait;
use component::{Build, BuildContext, Example, Input, InputContext, InputError, Spec};
use config::{ConfigError, Node, Positional};
use documents::Layout;
use live::Sampler;
use settings::{Config, Origin};

use crate::error::RunError;
use crate::reading::on_blocking_thread;

/// The component.
pub const SPEC: Spec = Spec {
    name: "profile",
    aliases: &[],
    summary: "Samples where the processor time of this machine goes, or reads profiles: an event for each function or stack.",
    description: include_str!("rules.md"),
    positional: Positional::list(&["paths"]),
    one_line: &[],
    examples: &[
        Example {
            title: "The costliest functions of this machine, each minute",
            stage: "profile",
            input: "",
            output: "",
        },
        Example {
            title: "What each process and service takes, every 10 seconds",
            stage: "profile by=[service, process] every=10s",
            input: "",
            output: "",
        },
        Example {
            title: "All stacks of two processes",
            stage: "profile rows=samples pid=[814, 1207] frequency=99",
            input: "",
            output: "",
        },
        Example {
            title: "The costliest functions of a profile of any program",
            stage: "profile busy.pb.gz by=function",
            input: "",
            output: "",
        },
    ],
    schema: |generator| generator.subschema_for::<Config>(),
    build: Build::Input(build),
};

fn build(node: &Node, _: &BuildContext) -> Result<Box<dyn Input>, ConfigError> {
    let config: Config = component::parse(node)?;
    Ok(Box::new(ProfileInput {
        origin: config.origin(node)?,
        layout: config.layout(node)?,
        node: node.clone(),
        sampler: None,
    }))
}

struct ProfileInput {
    origin: Origin,
    layout: Layout,
    /// The settings, for the places of errors.
    node: Node,
    sampler: Option<Sampler>,
}

#[async_trait]
impl Input for ProfileInput {
    async fn open(&mut self) -> Result<(), ConfigError> {
        if let Origin::Live { options, every } = &self.origin {
            let sampler = Sampler::start(options, *every);
            let node = self.node.nearest("pid");
            self.sampler = Some(sampler.map_err(|error| node.error(error.to_string()))?);
        }
        Ok(())
    }

    async fn run(mut self: Box<Self>, ctx: InputContext) -> Result<(), InputError> {
        if self.sampler.is_none() {
            self.open().await.map_err(RunError::from)?;
        }
        on_blocking_thread(ctx, move |ctx| self.work(ctx)).await
    }

    fn can_wait(&self) -> bool {
        matches!(self.origin, Origin::Files { .. })
    }

    fn notices(&self) -> Vec<String> {
        match &self.origin {
            Origin::Live { .. } => Vec::new(),
            Origin::Files {
                patterns,
                exclusion,
            } => files::notices(patterns, exclusion),
        }
    }

    fn reads(&self, path: &Path) -> bool {
        match &self.origin {
            Origin::Live { .. } => false,
            Origin::Files { patterns, .. } => {
                patterns.iter().any(|pattern| pattern.stands_for(path))
            }
        }
    }
}

impl ProfileInput {
    /// Works until the end; gives what went wrong.
    fn work(self, ctx: &InputContext) -> Vec<String> {
        match (self.origin, self.sampler) {
            (
                Origin::Files {
                    patterns,
                    exclusion,
                },
                _,
            ) => files::read(&patterns, &exclusion, &self.layout, ctx),
            (Origin::Live { .. }, Some(sampler)) => {
                sampler.work(&self.layout, ctx);
                Vec::new()
            }
            (Origin::Live { .. }, None) => Vec::new(),
        }
    }
}
