//! `stdout` writes events to standard output.
//!
//! The bytes of a batch go out in one `write(2)` where the system takes them. What was written before an error is
//! remembered, so that the pipeline's next try goes on behind it: nothing is written twice, no line is torn.

use std::io::{self, IsTerminal};
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use batch::{Batch, Bitmap};
use component::{Build, BuildContext, Encoded, Example, Output, Spec, WriteError, Written, parse};
use config::{ConfigError, Node, Positional};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::format::Format;
use crate::pretty::Pretty;
use crate::sink::{self, Sink};

/// The description of `stdout`.
pub const SPEC: Spec = Spec {
    name: "stdout",
    summary: "Writes events to standard output.",
    description: concat!("\
Events leave in order. A JSON event that nothing changed leaves byte for byte as it came. When the reader goes away \
(`| head -1`) the pipeline ends quietly; when standard output is a file on a full disk, writing is tried again and goes \
on exactly where it stopped.

In a `template`, ", expr::template_syntax!(), " A field that is absent or null gives `-`."),
    positional: Positional::fields(&["format", "template"]),
    examples: &[
        Example { title: "JSON, an event a line", stage: "stdout", input: "", output: "" },
        Example { title: "Indented JSON for reading", stage: "stdout pretty", input: "", output: "" },
        Example { title: "Two fields a line", stage: r#"stdout line "%{clientip} %{response}""#, input: "", output: "" },
    ],
    schema: |generator| Config::json_schema(generator),
    build: Build::Output { ordered: true, build },
};

/// The settings of `stdout`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct Config {
    /// How events are written.
    format: FormatName,
    /// With `format: line`: the text of a line, with `%{field}` and `%{+time format}` in it. `%{message}` by default.
    template: Option<String>,
}

/// How events are written.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum FormatName {
    /// A JSON object a line.
    #[default]
    Json,
    /// Indented JSON, in colours on a terminal unless the environment sets `NO_COLOR`.
    Pretty,
    /// A dot an event.
    Dots,
    /// The text of `template`, a line an event.
    Line,
    /// MessagePack maps, one after the other.
    MsgPack,
}

struct Stdout {
    format: Format,
    /// Dots end with a newline on a terminal, where the shell's prompt follows.
    ends_with_newline: bool,
    state: Mutex<State>,
}

struct State {
    sink: Box<dyn Sink>,
    /// Bytes of the current batch that arrived before a write failed.
    done: usize,
    /// Whether anything was written since the last newline of our own.
    dirty: bool,
}

fn build(node: &Node, _: &BuildContext) -> Result<Arc<dyn Output>, ConfigError> {
    let config: Config = parse(node)?;
    let stdout = io::stdout();
    let fd = stdout.as_fd().try_clone_to_owned();
    let fd = fd.map_err(|error| node.error(format!("standard output cannot be used: {error}")))?;
    let is_terminal = stdout.is_terminal();
    let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let format = format(&config, node, is_terminal && !no_color)?;
    Ok(Arc::new(Stdout::new(format, is_terminal, Box::new(fd))))
}

fn format(config: &Config, node: &Node, colours: bool) -> Result<Format, ConfigError> {
    if config.template.is_some() && config.format != FormatName::Line {
        return Err(node
            .nearest("template")
            .error("`template` needs `format: line`"));
    }
    Ok(match config.format {
        FormatName::Json => Format::Json,
        FormatName::Pretty => Format::Pretty(Pretty { colours }),
        FormatName::Dots => Format::Dots,
        FormatName::Line => Format::line(node, config.template.as_deref())?,
        FormatName::MsgPack => Format::MsgPack,
    })
}

impl Stdout {
    fn new(format: Format, is_terminal: bool, sink: Box<dyn Sink>) -> Self {
        let ends_with_newline = is_terminal && matches!(format, Format::Dots);
        Self {
            format,
            ends_with_newline,
            state: Mutex::new(State {
                sink,
                done: 0,
                dirty: false,
            }),
        }
    }

    fn write_bytes(&self, bytes: &[u8]) -> Result<(), WriteError> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let State { sink, done, dirty } = &mut *state;
        let outcome = sink::write_rest(&mut **sink, bytes, done);
        *dirty |= *done > 0;
        outcome.map_err(|error| sink::failure("standard output", &error))?;
        *done = 0;
        Ok(())
    }

    fn is_dirty(&self) -> bool {
        self.state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .dirty
    }
}

#[async_trait]
impl Output for Stdout {
    fn encode(&self, batch: &Batch, rows: &Bitmap, encoded: &mut Encoded) {
        self.format.bind(batch).write(rows, &mut encoded.bytes);
        encoded.rows = rows.count();
    }

    async fn write(&self, encoded: &Encoded) -> Result<Written, WriteError> {
        self.write_bytes(&encoded.bytes)?;
        Ok(Written::default())
    }

    async fn close(&self) -> Result<(), WriteError> {
        if self.ends_with_newline && self.is_dirty() {
            self.write_bytes(b"\n")?;
            self.state
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .dirty = false;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use rustix::io::Errno;

    use super::*;
    use crate::sink::tests::{Script, Step};
    use crate::testing;

    fn stdout(format: Format, is_terminal: bool, steps: &[Step]) -> (Stdout, Script) {
        let script = Script::new(steps.iter().copied());
        (
            Stdout::new(format, is_terminal, Box::new(script.clone())),
            script,
        )
    }

    #[test]
    fn a_full_disk_neither_doubles_nor_loses_anything() {
        let full = Step::Fail(Errno::NOSPC);
        let (output, script) = stdout(
            Format::Json,
            false,
            &[Step::Take(5), full, Step::Take(3), full, full],
        );
        let batches = [
            testing::documents(&[r#"{"a":1}"#, r#"{"a":2}"#]),
            testing::documents(&[r#"{"a":3}"#]),
        ];
        let mut retries = 0;
        for batch in &batches {
            let encoded = testing::encode(&output, batch);
            while let Err(error) = testing::wait(output.write(&encoded)) {
                assert!(matches!(error, WriteError::Retry(_)), "{error}");
                retries += 1;
            }
        }
        assert_eq!(retries, 3);
        assert_eq!(
            *script.taken.lock().unwrap(),
            b"{\"a\":1}\n{\"a\":2}\n{\"a\":3}\n"
        );
    }

    #[test]
    fn a_closed_pipe_ends_the_pipeline() {
        let (output, _) = stdout(Format::Json, false, &[Step::Fail(Errno::PIPE)]);
        let encoded = testing::encode(&output, &testing::lines(&["a"]));
        assert_eq!(
            testing::wait(output.write(&encoded)).expect_err("nobody reads"),
            WriteError::Closed
        );
    }

    #[test]
    fn dots_end_with_a_newline_on_a_terminal_only() {
        for (is_terminal, rows, expected) in [(true, 2, "..\n"), (false, 2, ".."), (true, 0, "")] {
            let (output, script) = stdout(Format::Dots, is_terminal, &[]);
            let encoded = testing::encode(&output, &testing::lines(&["a", "b"][..rows]));
            testing::wait(output.write(&encoded)).expect("it takes everything");
            testing::wait(output.close()).expect("it takes everything");
            assert_eq!(*script.taken.lock().unwrap(), expected.as_bytes());
        }
    }

    #[test]
    fn settings_choose_the_format() {
        for (yaml, colours, expected) in [
            ("{}", true, "{\"a\":1}\n"),
            ("format: json", true, "{\"a\":1}\n"),
            ("format: pretty", false, "{\n  \"a\": 1\n}\n"),
            (
                "format: pretty",
                true,
                "{\n  \x1b[34m\"a\"\x1b[0m: \x1b[33m1\x1b[0m\n}\n",
            ),
            ("format: dots", true, "."),
            ("format: line", true, "-\n"),
            ("{format: line, template: 'a is %{a}'}", true, "a is 1\n"),
            ("format: msgpack", true, "\u{81}\u{a1}a\u{1}"),
        ] {
            let node = config::parse_yaml(&config::Source::new("t.yaml", yaml)).expect("YAML");
            let format = format(&parse(&node).expect(yaml), &node, colours).expect(yaml);
            let mut out = Vec::new();
            let batch = testing::documents(&[r#"{"a":1}"#]);
            format.bind(&batch).write(batch.alive(), &mut out);
            let expected: Vec<u8> = expected.chars().map(|letter| letter as u8).collect();
            assert_eq!(out, expected, "{yaml}");
        }
    }

    #[test]
    fn wrong_settings_are_refused_with_their_place() {
        for (yaml, message, column) in [
            ("format: jsn", "jsn", 9),
            ("template: x", "needs `format: line`", 11),
            ("{format: line, template: 'a %{b'}", "not closed", 29),
            ("colour: x", "colour", 1),
        ] {
            let Err(error) = testing::build(&SPEC, yaml) else {
                panic!("{yaml} must be refused")
            };
            assert!(error.to_string().contains(message), "{yaml}: {error}");
            assert_eq!(error.column(), Some(column), "{yaml}: {error}");
        }
    }
}
