//! `stdout` writes events to standard output.
//!
//! The bytes of a batch go out in one `write(2)` where the system takes them. A pipe that is nearly full takes a part only,
//! so that all `stdout` outputs of the process, in whatever pipeline, share one [`Gate`]: who is through has written all of
//! its bytes, or left the rest in the gate after an error (a full disk). That rest goes out before anything else, whoever
//! comes next: nothing is written twice, no line is torn, and an output that gave up holds up nobody.

use std::fs::File;
use std::io::{self, IsTerminal};
use std::os::fd::AsFd;
use std::sync::Arc;

use async_trait::async_trait;
use batch::{Batch, Bitmap, FieldRead, JsonWriter};
use component::terminal::has_colours;
use component::{
    Build, BuildContext, Encoded, Example, Output, Spec, WriteError, Writer, Written, WrittenFiles,
    standard,
};
use config::{ConfigError, Node, Positional};
use parking_lot::Mutex;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::codec::{Codec, CodecName, CodecSettings};
use crate::pretty::Pretty;
use crate::schema::codec_beside;
use crate::sink::{self, Sink};

/// The description of `stdout`.
pub const SPEC: Spec = Spec {
    name: "stdout",
    aliases: &[],
    summary: "Writes events to standard output.",
    description: concat!("\
Events are written in order. A JSON event that no processor changed is written byte for byte as it was received. If the reader closes the pipe (`| head -1`), the pipeline ends without an error; if standard output is a file on a full disk, writing is retried and resumes exactly where it stopped. Several `stdout` outputs, in one pipeline or in several, do not mix their lines.

The codecs are described on the page [codecs](codecs.md). Two are only here: `pretty` is JSON for reading, in which what fits on a line of 80 characters stands on one and the rest is indented, in colours on a terminal unless `--color never` is given or the environment sets `NO_COLOR` or `TERM=dumb`; `dots` is one dot per event.

In a `template`, ", expr::template_syntax!(), " A field that is absent or null is written as `-`."),
    positional: Positional::fields(&["codec", "template"]),
    one_line: &[],
    examples: &[
        Example { title: "For reading on a terminal; JSON, one event per line, in a file or a pipe", stage: "stdout", input: "", output: "" },
        Example { title: "JSON, one event per line, on a terminal too", stage: "stdout json", input: "", output: "" },
        Example { title: "Two fields per line", stage: r#"stdout template "%{clientip} %{response}""#, input: "", output: "" },
        Example { title: "A line for people: time, level, message, and other fields behind them", stage: "stdout compact", input: "", output: "" },
        Example { title: "The text of events", stage: "stdout text", input: "", output: "" },
        Example { title: "CSV with a header", stage: "stdout csv csv.columns=[clientip, response, bytes]", input: "", output: "" },
    ],
    schema: |generator| {
        let own = Config::json_schema(generator);
        codec_beside(own, generator, CodecName::Json)
    },
    build: Build::Writer { ordered: true, build },
};

/// The settings of `stdout`, without those that all codecs share.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct Config {
    /// How events are written: page [codecs](codecs.md), and `pretty` and `dots` besides. Default: `pretty` on a terminal, `json` everywhere
    /// else.
    codec: Option<StdoutCodec>,
}

/// How events are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum StdoutCodec {
    /// JSON for reading: what fits on a line of 80 characters stands on one, the rest is indented. In colours on a terminal,
    /// unless `--color never` is given or the environment sets `NO_COLOR` or `TERM=dumb`.
    Pretty,
    /// One dot per event.
    Dots,
    /// A JSON object on one line.
    Json,
    /// The same as `json`.
    Ndjson,
    /// `key=value` pairs on one line.
    Logfmt,
    /// Time, level, host and message on one line, and behind them all other fields as `key=value`: for people.
    Compact,
    /// A row of CSV, with the fields in `csv.columns`.
    Csv,
    /// The text of `template`.
    Template,
    /// The field `message` as it is, or another field that `text.field` names. An event without it is written as JSON.
    Text,
    /// A MessagePack map.
    Msgpack,
}

/// How events stand on standard output.
#[derive(Debug, Clone)]
enum Format {
    /// As a stream of this codec.
    Stream(Codec),
    /// As JSON for people.
    Pretty(Pretty),
    /// As one dot each.
    Dots,
}

/// The gate of standard output. It is a static, because the descriptor that it guards belongs to the whole process:
/// outputs of different pipelines share nothing else.
static STANDARD_OUTPUT: Gate = Gate::new();

/// Lets one buffer at a time through to a descriptor.
struct Gate {
    unfinished: Mutex<Unfinished>,
}

/// The rest of a buffer of which only the beginning arrived; empty where there is none.
struct Unfinished {
    rest: Vec<u8>,
    /// Bytes of the rest that arrived since.
    done: usize,
}

impl Gate {
    const fn new() -> Self {
        let unfinished = Mutex::new(Unfinished {
            rest: Vec::new(),
            done: 0,
        });
        Self { unfinished }
    }

    /// Writes bytes behind whatever is unfinished. When only their beginning arrives, the gate owns the rest: `is_begun`
    /// says so, and calling again with the same bytes brings that rest out, if nobody did so in the meantime.
    fn write(&self, sink: &mut dyn Sink, bytes: &[u8], is_begun: &mut bool) -> io::Result<()> {
        // A buffer of another output that panicked is as unfinished as one that failed.
        let mut unfinished = self.unfinished.lock();
        let Unfinished { rest, done } = &mut *unfinished;
        sink::write_rest(sink, rest, done)?;
        // A rest is rare and may be large: its memory is not kept.
        *rest = Vec::new();
        *done = 0;
        if std::mem::take(is_begun) {
            return Ok(());
        }
        let mut written = 0;
        let outcome = sink::write_rest(sink, bytes, &mut written);
        if outcome.is_err() && written > 0 {
            *is_begun = true;
            rest.extend_from_slice(&bytes[written..]);
        }
        outcome
    }
}

struct Stdout {
    format: Format,
    /// The file that standard output goes to, where it is one.
    written: Arc<WrittenFiles>,
    /// Dots end with a newline on a terminal, where the shell's prompt follows.
    ends_with_newline: bool,
    gate: &'static Gate,
    state: Mutex<WriteState>,
}

struct WriteState {
    sink: Box<dyn Sink>,
    /// The beginning of the current batch arrived before a write failed; its rest is the gate's.
    is_begun: bool,
    /// Whether anything was written since the last newline of our own.
    dirty: bool,
    /// What stands before the first event was written, if anything does.
    has_header: bool,
}

fn build(node: &Node, _: &BuildContext) -> Result<Arc<dyn Writer>, ConfigError> {
    if let Some(fault) = standard::stdout_fault() {
        let error = node.error(format!("{fault}: all events would be lost"));
        return Err(error.note("redirect it to a file or a pipe, or use another output"));
    }
    let stdout = io::stdout();
    let fd = stdout.as_fd().try_clone_to_owned();
    let fd = fd.map_err(|error| node.error(format!("standard output cannot be used: {error}")))?;
    let is_terminal = stdout.is_terminal();
    let has_colours = has_colours(is_terminal);
    let terminal = is_terminal.then_some(Terminal { has_colours });
    let format = Format::new(node, terminal)?;
    let gate = &STANDARD_OUTPUT;
    let metadata = fd.try_clone().map(File::from);
    let metadata = metadata.and_then(|file| file.metadata());
    let output = Stdout::new(format, is_terminal, Box::new(fd), gate);
    if let Ok(metadata) = metadata {
        output.written.note(&metadata);
    }
    Ok(Arc::new(output))
}

/// What is known of the terminal that shows the events.
#[derive(Debug, Clone, Copy)]
struct Terminal {
    has_colours: bool,
}

impl Format {
    /// As the settings say, and the terminal, where there is one.
    fn new(node: &Node, terminal: Option<Terminal>) -> Result<Self, ConfigError> {
        let (settings, own) = CodecSettings::divide_without(node, &["codec"])?;
        let config: Config = settings.parse_rest(&own)?;
        let by_default = match terminal {
            Some(_) => StdoutCodec::Pretty,
            None => StdoutCodec::Json,
        };
        settings.refuse_idle_zone(node)?;
        let name = match config.codec.unwrap_or(by_default) {
            StdoutCodec::Pretty => {
                settings.refuse_idle(node, None)?;
                // Elsewhere only where somebody asks for them.
                let elsewhere = || has_colours(false);
                let colours = terminal.map_or_else(elsewhere, |terminal| terminal.has_colours);
                return Ok(Self::Pretty(Pretty { colours }));
            }
            StdoutCodec::Dots => {
                settings.refuse_idle(node, None)?;
                return Ok(Self::Dots);
            }
            StdoutCodec::Json => CodecName::Json,
            StdoutCodec::Ndjson => CodecName::Ndjson,
            StdoutCodec::Logfmt => CodecName::Logfmt,
            StdoutCodec::Compact => CodecName::Compact,
            StdoutCodec::Csv => CodecName::Csv,
            StdoutCodec::Template => CodecName::Template,
            StdoutCodec::Text => CodecName::Text,
            StdoutCodec::Msgpack => CodecName::Msgpack,
        };
        settings.codec(node, name).map(Self::Stream)
    }

    /// What stands before the first event.
    fn header(&self) -> &[u8] {
        match self {
            Self::Stream(codec) => codec.header().unwrap_or_default(),
            Self::Pretty(_) | Self::Dots => b"",
        }
    }

    /// Appends rows, each with its end.
    fn write(&self, batch: &Batch, rows: &Bitmap, out: &mut Vec<u8>) {
        match self {
            Self::Stream(codec) => codec.bind(batch).write_rows(rows, out, |_, _| {}),
            Self::Dots => out.resize(out.len() + rows.count(), b'.'),
            Self::Pretty(pretty) => {
                let writer = JsonWriter::new(batch);
                let mut event = Vec::new();
                for row in rows.iter() {
                    event.clear();
                    writer.write(row, &mut event);
                    pretty.write(&event, out);
                    out.push(b'\n');
                }
            }
        }
    }
}

impl Stdout {
    fn new(format: Format, is_terminal: bool, sink: Box<dyn Sink>, gate: &'static Gate) -> Self {
        let ends_with_newline = is_terminal && matches!(format, Format::Dots);
        let has_header = format.header().is_empty();
        Self {
            format,
            written: Arc::default(),
            ends_with_newline,
            gate,
            state: Mutex::new(WriteState {
                sink,
                is_begun: false,
                dirty: false,
                has_header,
            }),
        }
    }

    fn write_bytes(&self, bytes: &[u8]) -> Result<(), WriteError> {
        let mut state = self.state.lock();
        let WriteState {
            sink,
            is_begun,
            dirty,
            ..
        } = &mut *state;
        let outcome = self.gate.write(&mut **sink, bytes, is_begun);
        *dirty |= *is_begun || (outcome.is_ok() && !bytes.is_empty());
        outcome.map_err(|error| sink::failure("standard output", &error))
    }

    /// Writes what stands before the first event, once. An error half way is dealt with as one of any other buffer.
    fn write_header(&self) -> Result<(), WriteError> {
        if !self.state.lock().has_header {
            self.write_bytes(self.format.header())?;
            self.state.lock().has_header = true;
        }
        Ok(())
    }

    fn is_dirty(&self) -> bool {
        self.state.lock().dirty
    }
}

#[async_trait]
impl Output for Stdout {
    fn encode(&self, batch: &Batch, rows: &Bitmap, encoded: &mut Encoded) {
        self.format.write(batch, rows, &mut encoded.bytes);
        encoded.rows = rows.count();
    }

    fn reads(&self) -> Vec<Arc<FieldRead>> {
        match &self.format {
            Format::Stream(codec) => codec.reads(),
            Format::Pretty(_) | Format::Dots => Vec::new(),
        }
    }

    fn uses_standard_output(&self) -> bool {
        true
    }

    fn written(&self) -> Option<Arc<WrittenFiles>> {
        Some(self.written.clone())
    }
}

#[async_trait]
impl Writer for Stdout {
    async fn write(&self, encoded: &Encoded) -> Result<Written, WriteError> {
        if !encoded.bytes.is_empty() {
            self.write_header()?;
        }
        self.write_bytes(&encoded.bytes)?;
        Ok(Written::default())
    }

    async fn close(&self) -> Result<(), WriteError> {
        if self.ends_with_newline && self.is_dirty() {
            self.write_bytes(b"\n")?;
            self.state.lock().dirty = false;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use rustix::io::Errno;

    use super::*;
    use crate::sink::tests::{Script, ScriptedWrite};
    use crate::testing;

    fn gate() -> &'static Gate {
        Box::leak(Box::new(Gate::new()))
    }

    fn stdout(format: Format, is_terminal: bool, steps: &[ScriptedWrite]) -> (Stdout, Script) {
        let script = Script::new(steps.iter().copied());
        let sink = Box::new(script.clone());
        (Stdout::new(format, is_terminal, sink, gate()), script)
    }

    #[test]
    fn outputs_of_one_process_do_not_tear_each_others_lines() {
        let (mut reader, writer) = io::pipe().expect("a pipe");
        // Without blocking, a write to a pipe that is nearly full takes a part.
        rustix::io::ioctl_fionbio(&writer, true).expect("a pipe that does not block");
        let gate = gate();
        let threads: Vec<_> = ["a", "b", "c"]
            .into_iter()
            .map(|letter| {
                let fd = std::os::fd::OwnedFd::from(writer.try_clone().expect("a descriptor"));
                let output = Stdout::new(Format::Stream(Codec::Json), false, Box::new(fd), gate);
                std::thread::spawn(move || {
                    let line = format!("{}\n", letter.repeat(999));
                    for _ in 0..50 {
                        output
                            .write_bytes(line.repeat(100).as_bytes())
                            .expect("the reader reads");
                    }
                })
            })
            .collect();
        drop(writer);
        let mut read = String::new();
        io::Read::read_to_string(&mut reader, &mut read).expect("the pipe reads");
        for thread in threads {
            thread.join().expect("the writer ends");
        }
        assert_eq!(read.lines().count(), 3 * 50 * 100);
        for line in read.lines() {
            assert!(
                ["a", "b", "c"]
                    .iter()
                    .any(|letter| line == letter.repeat(999)),
                "{line}"
            );
        }
    }

    #[test]
    fn a_rest_goes_out_before_anything_else_and_once() {
        let full = ScriptedWrite::Fail(Errno::NOSPC);
        let steps = [
            ScriptedWrite::Take(3),
            full,
            ScriptedWrite::Take(1),
            full,
            full,
        ];
        let (first, script) = stdout(Format::Stream(Codec::Json), false, &steps);
        let second = Stdout::new(
            Format::Stream(Codec::Json),
            false,
            Box::new(script.clone()),
            first.gate,
        );
        let retry = |outcome: Result<(), WriteError>| {
            assert!(matches!(outcome, Err(WriteError::Retry(_))), "{outcome:?}");
        };
        retry(first.write_bytes(b"first\n"));
        retry(second.write_bytes(b"second\n"));
        retry(first.write_bytes(b"first\n"));
        second.write_bytes(b"second\n").expect("there is room");
        first.write_bytes(b"first\n").expect("it is out already");
        first.write_bytes(b"third\n").expect("there is room");
        assert_eq!(*script.taken.lock(), b"first\nsecond\nthird\n");
    }

    #[test]
    fn a_full_disk_neither_doubles_nor_loses_anything() {
        let full = ScriptedWrite::Fail(Errno::NOSPC);
        let (output, script) = stdout(
            Format::Stream(Codec::Json),
            false,
            &[
                ScriptedWrite::Take(5),
                full,
                ScriptedWrite::Take(3),
                full,
                full,
            ],
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
        assert_eq!(*script.taken.lock(), b"{\"a\":1}\n{\"a\":2}\n{\"a\":3}\n");
    }

    #[test]
    fn a_closed_pipe_ends_the_pipeline() {
        let (output, _) = stdout(
            Format::Stream(Codec::Json),
            false,
            &[ScriptedWrite::Fail(Errno::PIPE)],
        );
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
            assert_eq!(*script.taken.lock(), expected.as_bytes());
        }
    }

    #[test]
    fn settings_choose_the_format() {
        let coloured = "{\x1b[34m\"a\"\x1b[0m: \x1b[33m1\x1b[0m}\n";
        let colours = Some(Terminal { has_colours: true });
        let plain = Some(Terminal { has_colours: false });
        for (yaml, terminal, expected) in [
            ("{}", None, "{\"a\":1}\n"),
            ("{}", colours, coloured),
            ("{}", plain, "{\"a\": 1}\n"),
            ("codec: json", colours, "{\"a\":1}\n"),
            ("codec: ndjson", colours, "{\"a\":1}\n"),
            ("codec: logfmt", colours, "a=1\n"),
            ("codec: pretty", None, "{\"a\": 1}\n"),
            ("codec: pretty", colours, coloured),
            ("codec: dots", colours, "."),
            ("codec: text", colours, "{\"a\":1}\n"),
            ("{codec: text, text: {field: a}}", colours, "1\n"),
            (
                "{codec: template, template: 'a is %{a}'}",
                colours,
                "a is 1\n",
            ),
            (
                "{codec: csv, csv: {columns: [a, b], delimiter: tab}}",
                colours,
                "1\t\n",
            ),
            ("codec: msgpack", colours, "\u{81}\u{a1}a\u{1}"),
        ] {
            let node = config::parse_yaml(&config::Source::new("t.yaml", yaml)).expect("YAML");
            let format = Format::new(&node, terminal).expect(yaml);
            let mut out = Vec::new();
            let batch = testing::documents(&[r#"{"a":1}"#]);
            format.write(&batch, batch.alive(), &mut out);
            let expected: Vec<u8> = expected.chars().map(|letter| letter as u8).collect();
            assert_eq!(out, expected, "{yaml}");
        }
    }

    #[test]
    fn a_header_stands_before_the_first_event_even_if_the_disk_is_full() {
        let yaml = "{codec: csv, csv: {columns: [a]}}";
        let node = config::parse_yaml(&config::Source::new("t.yaml", yaml)).expect("YAML");
        let full = ScriptedWrite::Fail(Errno::NOSPC);
        for steps in [
            &[] as &[_],
            &[full],
            &[ScriptedWrite::Take(1), full, full],
            &[ScriptedWrite::Take(2), full],
            &[ScriptedWrite::Take(2), ScriptedWrite::Take(1), full],
        ] {
            let format = Format::new(&node, None).expect("settings");
            let (output, script) = stdout(format, false, steps);
            for document in [r#"{"a":1}"#, r#"{"a":2}"#] {
                let encoded = testing::encode(&output, &testing::documents(&[document]));
                while testing::wait(output.write(&encoded)).is_err() {}
            }
            assert_eq!(*script.taken.lock(), b"a\n1\n2\n", "{steps:?}");
        }
    }

    #[test]
    fn wrong_settings_are_refused_with_their_place() {
        for (yaml, message, column) in [
            ("codec: jsn", "jsn", 8),
            ("codec: line", "did you mean `template`?", 8),
            ("format: json", "renamed to `codec`", 1),
            ("format: line", "`codec: text`", 1),
            ("template: x", "requires `codec: template`", 11),
            (
                "{codec: dots, template: x}",
                "requires `codec: template`",
                25,
            ),
            ("codec: template", "requires `template`", 8),
            ("codec: csv", "requires `csv.columns`", 8),
            (
                "{codec: csv, csv: {columns: []}}",
                "requires `csv.columns`",
                29,
            ),
            ("{codec: csv, csv: {columns: [a, 'b c']}}", "field name", 33),
            (
                "{codec: csv, csv: {columns: [a], delimiter: ab}}",
                "one ASCII",
                45,
            ),
            ("timezone: Nope", "is not a time zone", 11),
            (
                "{codec: template, template: x, timezone: Nope}",
                "is not a time zone",
                42,
            ),
            ("timezone: Asia/Tokyo", "requires `codec: template`", 11),
            (
                "{codec: template, template: '%{yyyy-MM-dd}'}",
                "did you mean `%{+yyyy-MM-dd}`?",
                29,
            ),
            ("{codec: template, template: 'a %{b'}", "not closed", 32),
            ("colour: x", "colour", 1),
            ("tmeplate: x", "did you mean `template`?", 1),
            ("time_zone: UTC", "renamed to `timezone`", 1),
        ] {
            let Err(error) = testing::build(&SPEC, yaml) else {
                panic!("{yaml} must be refused")
            };
            assert!(error.to_string().contains(message), "{yaml}: {error}");
            assert_eq!(error.column(), Some(column), "{yaml}: {error}");
        }
    }
}
