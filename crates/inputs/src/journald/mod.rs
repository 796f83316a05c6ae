//! `journald`: reads the systemd journal through the program `journalctl`.
//!
//! # Guarantees
//! - An entry is passed over only when its receipt has resolved: the cursor in the registry is that of the last entry up to which
//!   everything is safe. After a kill, entries that were not known to be safe are read again, with the same ids.
//! - Ids are hashes of cursors, which are unique for an entry's content and place.
//! - Nothing of an entry is left out, but for what is beyond `max_event_bytes`.
//!
//! # Why journalctl
//! The journal's files have no stable library in Rust, their format grows (compact files, zstd, keyed hashes), and libsystemd
//! cannot be linked into a static binary. journalctl is there where a journal is, and reads every version of it; Filebeat
//! and Vector use it too.
//!
//! # Parts
//! [`command`] calls journalctl, [`reader`] reads what it writes and starts it again when it ends, [`export`] finds entries in that,
//! [`document`] writes documents, [`position`] remembers how far everything is safe.

mod command;
mod document;
mod export;
mod position;
pub(crate) mod probe;
mod reader;
mod settings;

use std::process::{Command, Stdio};

use async_trait::async_trait;
use component::{Build, BuildContext, Effects, Example, Input, InputContext, InputError, Spec};
use config::{ConfigError, Node, Positional};

use self::position::Position;
use self::reader::JournalReader;
use self::settings::Config;
use crate::error::RunError;
use crate::reading::describe::describe;
use crate::reading::on_blocking_thread;

/// The component.
pub const SPEC: Spec = Spec {
    name: "journald",
    aliases: &[],
    summary: "Reads the systemd journal, through the program `journalctl`.",
    description: include_str!("rules.md"),
    positional: Positional::NONE,
    one_line: &[],
    examples: &[
        Example {
            title: "The whole journal of this machine",
            stage: "journald",
            input: "",
            output: "",
        },
        Example {
            title: "New entries of two units, with the kernel's messages",
            stage: "journald units=nginx,postgresql kernel=true since=now follow=true",
            input: "",
            output: "",
        },
        Example {
            title: "Errors since the last start of the machine",
            stage: "journald priority=err boot=true",
            input: "",
            output: "",
        },
    ],
    schema: |generator| generator.subschema_for::<Config>(),
    build: Build::Input(build),
};

fn build(node: &Node, context: &BuildContext) -> Result<Box<dyn Input>, ConfigError> {
    let config: Config = component::parse(node)?;
    config.check(node)?;
    Ok(Box::new(Journald {
        follows: config.follow.unwrap_or(!context.finite) && context.effects == Effects::All,
        config,
        node: node.clone(),
    }))
}

struct Journald {
    config: Config,
    follows: bool,
    node: Node,
}

#[async_trait]
impl Input for Journald {
    async fn open(&mut self) -> Result<(), ConfigError> {
        let mut version = Command::new(&self.config.program);
        version.arg("--version").stdin(Stdio::null());
        let program = self.config.program.display();
        let failed = |what: String| Err(self.node.nearest("program").error(what));
        match version.output() {
            Ok(output) if output.status.success() => Ok(()),
            Ok(output) => failed(format!("`{program} --version` failed ({})", output.status)),
            Err(error) => {
                let error = describe(&error);
                failed(format!(
                    "`{program}` cannot be run: {error}; install systemd, or name the program with `program`"
                ))
            }
        }
    }

    async fn run(self: Box<Self>, ctx: InputContext) -> Result<(), InputError> {
        let position = Position::open(&ctx).map_err(RunError::from)?;
        on_blocking_thread(ctx, move |ctx| {
            JournalReader::new(ctx, &self.config, self.follows, position).run()
        })
        .await
    }

    fn can_wait(&self) -> bool {
        true
    }
}
