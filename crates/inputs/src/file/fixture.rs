//! A file that stands in for an input in a test of a pipeline.
//!
//! It is read from start to end as the input would read it. Its events have the same ids in every run, and count as received at a
//! time that the test chooses.

use std::fs::File;

use async_trait::async_trait;
use component::{Input, InputContext, InputError};
use config::{ConfigError, Node};

use super::settings::Config;
use crate::reading::identity::Identity;
use crate::reading::on_blocking_thread;
use crate::reading::pipe::Pipe;
use crate::reading::settings::Compression;
use crate::reading::stream::{Opened, read_stream};

/// What stands in for an input.
#[derive(Debug)]
pub struct Fixture {
    /// What is read, from where it stands.
    pub content: File,
    /// What its events call it, as `log.file.path`. Where no codec is set, its ending says how events are written.
    pub path: String,
    /// When its events count as received, in nanoseconds since 1970.
    pub received: i64,
}

/// An input that reads a fixture with the settings of the input `file` in `node`.
///
/// # Errors
/// A setting is wrong, with its place.
pub fn fixture(node: &Node, fixture: Fixture) -> Result<Box<dyn Input>, ConfigError> {
    let content = Config::read(node)?.content;
    let settings = content.formats(node)?.of(&fixture.path).clone();
    Ok(Box::new(FixtureInput {
        fixture,
        compression: content.compression,
        settings,
    }))
}

struct FixtureInput {
    fixture: Fixture,
    compression: Compression,
    settings: codec::Settings,
}

#[async_trait]
impl Input for FixtureInput {
    async fn run(self: Box<Self>, ctx: InputContext) -> Result<(), InputError> {
        let Self {
            fixture,
            compression,
            settings,
        } = *self;
        let opened = Opened {
            name: fixture.path.clone(),
            identity: Identity::new([fixture.path.as_bytes()]),
            source: batch::Source::File {
                path: fixture.path.into(),
            },
            pipe: Pipe::of_file(fixture.content),
            received: Some(fixture.received),
        };
        let read = move |ctx: &mut InputContext| {
            let problem = read_stream(opened, compression, &settings, ctx);
            problem.into_iter().collect()
        };
        on_blocking_thread(ctx, read).await
    }
}
