//! `stdin`: reads standard input until it ends.
//!
//! What comes slowly is sent after 50 ms, so that a pipeline behind `tail -f` shows a line at once. Reading stops within
//! 100 ms when the run is told to stop; a line that is not finished then is not sent.

use std::fs::File;
use std::io::{self, IsTerminal};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use codec::MultilineConfig;
use component::{Build, BuildContext, Example, Input, InputContext, InputError, Spec, standard};
use config::{ConfigError, Node, Positional, Size};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::reading::describe::describe;
use crate::reading::identity::Identity;
use crate::reading::on_blocking_thread;
use crate::reading::pipe::Pipe;
use crate::reading::records::Records;
use crate::reading::settings::{Codec, Compression, CsvSettings, line_size_default};
use crate::reading::stream::{Opened, read_stream};

/// The component.
pub const SPEC: Spec = Spec {
    name: "stdin",
    aliases: &[],
    summary: "Reads standard input until it ends, plain or compressed with gzip or zstd.",
    description: "\
Lines, documents (JSON in any layout) and gzip are read in the same way as by the input `file`, with the same tags and counters. Events are sent within 50 ms of their arrival, or earlier if there are many.\n\n\
Each run is a separate stream: if the same lines are piped in twice, they are different events with different ids.",
    positional: Positional::NONE,
    one_line: &[],
    examples: &[
        Example {
            title: "Lines of text",
            stage: "stdin",
            input: "",
            output: "",
        },
        Example {
            title: "JSON documents: one per line, of several lines, or in an array",
            stage: "stdin codec=json",
            input: "",
            output: "",
        },
    ],
    schema: |generator| generator.subschema_for::<Config>(),
    build: Build::Input(build),
};

/// Settings of the input `stdin`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Config {
    /// The format of events.
    #[serde(default)]
    codec: Codec,
    /// Adds `@timestamp` and `host.name` to JSON and MessagePack events that do not have these fields; lines of text
    /// always get them.
    #[serde(default)]
    add_fields: bool,
    /// The maximum length of a line in bytes, without its line ending; longer lines are truncated. Also the maximum
    /// size of a MessagePack document; a larger one ends the input with an error. At most 1GiB.
    #[serde(default = "line_size_default")]
    max_line_bytes: Size,
    /// Combines several lines into one event; `timeout` does not apply. Default: each line is an event.
    #[serde(default)]
    multiline: Option<MultilineConfig>,
    /// How rows of CSV are written, with `codec: csv`.
    #[serde(default)]
    csv: Option<CsvSettings>,
    /// How standard input is compressed.
    #[serde(default)]
    compression: Compression,
}

fn build(node: &Node, _: &BuildContext) -> Result<Box<dyn Input>, ConfigError> {
    let config: Config = component::parse(node)?;
    if let Some(fault) = standard::stdin_fault() {
        return Err(node.error(format!("{fault}: there is nothing to read")));
    }
    Ok(Box::new(Stdin {
        compression: config.compression,
        settings: Records {
            codec: config.codec,
            add_fields: config.add_fields,
            max_line_bytes: config.max_line_bytes,
            multiline: config.multiline.as_ref(),
            csv: config.csv.as_ref(),
            delimiter: b',',
            ..Records::default()
        }
        .settings(node)?,
    }))
}

struct Stdin {
    compression: Compression,
    settings: codec::Settings,
}

#[async_trait]
impl Input for Stdin {
    async fn run(self: Box<Self>, ctx: InputContext) -> Result<(), InputError> {
        on_blocking_thread(ctx, move |ctx| self.read(ctx)).await
    }

    fn exclusive(&self) -> Option<String> {
        Some("standard input".to_owned())
    }

    fn reads_terminal(&self) -> bool {
        io::stdin().is_terminal()
    }
}

impl Stdin {
    /// Reads to the end; gives what went wrong.
    fn read(&self, ctx: &InputContext) -> Vec<String> {
        let name = "standard input";
        let problem = match io::stdin().as_fd().try_clone_to_owned() {
            Ok(fd) => {
                let opened = Opened {
                    name: name.to_owned(),
                    source: batch::Source::Unnamed,
                    identity: identity(ctx),
                    pipe: pipe(fd, ctx),
                    received: None,
                };
                read_stream(opened, self.compression, &self.settings, ctx)
            }
            Err(error) => Some(format!("{name}: cannot be opened: {}", describe(&error))),
        };
        problem.into_iter().collect()
    }
}

/// A file that standard input was directed from never keeps us waiting, and its size is known.
fn pipe(fd: OwnedFd, ctx: &InputContext) -> Pipe {
    let file = File::from(fd);
    match file.metadata() {
        Ok(found) if found.is_file() => {
            ctx.progress.add_total(found.len());
            Pipe::of_file(file)
        }
        _ => Pipe::new(file.into()),
    }
}

/// Something that no other run has.
fn identity(ctx: &InputContext) -> Identity {
    let process = std::process::id().to_le_bytes();
    let time = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |time| time.as_nanos())
        .to_le_bytes();
    Identity::new([ctx.host.name.as_bytes(), b"stdin", &process, &time])
}
