//! The log: what Millpond says on standard error while it runs.
//!
//! Messages of components, engine and queue come in by a [`Diagnostics`], those of libraries as `tracing` or `log` events;
//! both leave here, one line each. A service writes time and level on each line, as text or JSON; a one-line pipeline, which a
//! person watches, writes `warning: …` and `error: …`, unless RUST_LOG is set. What is said before the configuration is read
//! does not pass through here.
//!
//! In text a control character is escaped, so that no file name can make up a line of its own.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::env;
use std::fmt::{self, Write};
use std::panic;

use anyhow::{anyhow, bail};
use component::own::{LogEntry, LogTails};
use component::terminal::escaped;
use component::words::without_error_numbers;
use component::{Diagnostics, Level, Message};
use config::closest;
use jiff::Timestamp;
use pipeline::settings::{LogFormat, LogSettings};
use serde_json::{Map, Value};
use tracing::field::{Field, Visit, display};
use tracing::{Event, Subscriber, dispatcher};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, registry};

use crate::console::say;
use crate::progress::Bar;

/// The variable that says what is logged, above the configuration.
const VARIABLE: &str = "RUST_LOG";

/// The target of Millpond's own messages; libraries' have the names of their modules.
const TARGET: &str = "millpond";

/// Libraries that log each message that they cannot use, or each request that fails, as a warning: a single server could fill the log. What it
/// means for events, their components report. Only a RUST_LOG that names them turns them on.
const NOISY: &str = "hickory_net=off,hickory_proto=off,hickory_resolver=off,object_store=off";

/// How a line looks.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Style {
    /// `warning: …` and `error: …`, for a person who watches a single run.
    Plain { names_pipelines: bool },
    /// Time, level and message.
    Text,
    /// A JSON object.
    Json,
}

/// Begins to log, for the rest of the process. `is_watched` is for a run that a person watches; `names_pipelines` says whether
/// it has several of them.
///
/// # Errors
/// RUST_LOG is wrong.
pub fn start(
    settings: &LogSettings,
    is_watched: bool,
    names_pipelines: bool,
    bar: &Bar,
    tails: &LogTails,
) -> anyhow::Result<Diagnostics> {
    let directives = directives()?;
    let style = match settings.format {
        _ if is_watched && directives.is_none() => Style::Plain { names_pipelines },
        LogFormat::Text => Style::Text,
        LogFormat::Json => Style::Json,
    };
    let filter = filter(settings.level.word(), directives.as_deref())?;
    let lines = Lines {
        style,
        bar: bar.clone(),
        tails: tails.clone(),
    };
    registry().with(lines.with_filter(filter)).try_init()?;
    if !matches!(style, Style::Plain { .. }) {
        panic::set_hook(Box::new(|info| tell_panic(&info.to_string())));
    }
    Ok(Diagnostics::to_sink(emit))
}

/// What is logged, by the level of the configuration and what RUST_LOG says.
///
/// # Errors
/// RUST_LOG is wrong.
fn filter(level: &str, directives: Option<&str>) -> anyhow::Result<EnvFilter> {
    // What stands later goes before what is equally specific: a RUST_LOG that only names a library leaves the rest as it is.
    let all = format!("{level},{NOISY},{}", directives.unwrap_or_default());
    EnvFilter::builder()
        .parse(all)
        .map_err(|error| wrong(&error.to_string()))
}

/// What RUST_LOG says, if it says anything.
fn directives() -> anyhow::Result<Option<String>> {
    let Some(value) = env::var_os(VARIABLE).filter(|value| !value.is_empty()) else {
        return Ok(None);
    };
    let value = value
        .into_string()
        .map_err(|_| wrong("it is not valid UTF-8"))?;
    check(&value)?;
    Ok(Some(value))
}

/// Refuses what would be taken for the name of a library and is meant for a level.
fn check(directives: &str) -> anyhow::Result<()> {
    const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];
    for word in directives.split(',').map(str::trim) {
        let is_level = LEVELS.iter().any(|level| word.eq_ignore_ascii_case(level));
        if is_level || !word.bytes().all(|byte| byte.is_ascii_alphabetic()) {
            continue;
        }
        if let Some(level) = closest(&word.to_ascii_lowercase(), LEVELS) {
            bail!(
                "{}",
                wrong(&format!(
                    "`{word}` is not a level; did you mean `{level}`? Accepted: {}, and TARGET=LEVEL",
                    LEVELS.join(", ")
                ))
            );
        }
    }
    Ok(())
}

fn wrong(reason: &str) -> anyhow::Error {
    anyhow!("{VARIABLE} is invalid: {reason}")
}

/// Says why the process ends: in the log where there is one.
pub fn fail(text: &str) {
    if dispatcher::has_been_set() {
        tracing::error!(target: TARGET, message = without_error_numbers(text));
    } else {
        say(&format!("error: {text}"));
    }
}

/// A panic, as one line.
fn tell_panic(text: &str) {
    let name = std::thread::current().name().unwrap_or("?").to_owned();
    let mut text = text.split('\n').collect::<Vec<_>>().join(" ");
    // As everywhere in Rust, there is one where RUST_BACKTRACE asks for it.
    let backtrace = Backtrace::capture();
    if backtrace.status() == BacktraceStatus::Captured {
        let _ = write!(text, "; backtrace: {backtrace}");
    }
    tracing::error!(target: TARGET, message = format!("internal error: thread {name} {text}"));
}

/// Turns a message into an event.
fn emit(message: &Message<'_>) {
    let (pipeline, text) = (message.pipeline, message.text);
    let component = message.component.map(display);
    match message.level {
        Level::Error => tracing::error!(target: TARGET, pipeline, component, message = text),
        Level::Warn => tracing::warn!(target: TARGET, pipeline, component, message = text),
        Level::Info => tracing::info!(target: TARGET, pipeline, component, message = text),
    }
}

/// Writes a line for each event.
struct Lines {
    style: Style,
    bar: Bar,
    tails: LogTails,
}

impl<S: Subscriber> Layer<S> for Lines {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let metadata = event.metadata();
        let mut fields = Fields::default();
        event.record(&mut fields);
        let target = fields.target.take();
        let target = target.as_deref().unwrap_or(metadata.target());
        let line = Line {
            time: Timestamp::now(),
            level: *metadata.level(),
            library: (target != TARGET).then_some(target),
            fields,
        };
        // Libraries say more with each event that an output ships, so that events of their messages would have no end.
        if line.library.is_none() {
            self.tails.tell(line.entry());
        }
        self.bar.say(&line.render(self.style));
    }
}

/// What an event holds.
#[derive(Default)]
struct Fields {
    pipeline: Option<String>,
    component: Option<String>,
    message: String,
    /// Where an event of the `log` crate comes from.
    target: Option<String>,
    others: Vec<(&'static str, String)>,
}

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        let value = value.to_owned();
        match field.name() {
            "message" => self.message = value,
            "pipeline" => self.pipeline = Some(value),
            "component" => self.component = Some(value),
            "log.target" => self.target = Some(value),
            // The place in the library's source.
            name if name.starts_with("log.") => {}
            name => self.others.push((name, value)),
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.record_str(field, &format!("{value:?}"));
    }
}

/// An event, to be written.
struct Line<'a> {
    time: Timestamp,
    level: tracing::Level,
    /// The module of the library that it comes from.
    library: Option<&'a str>,
    fields: Fields,
}

impl Line<'_> {
    /// For those who make events of it.
    fn entry(&self) -> LogEntry {
        let fields = &self.fields;
        LogEntry {
            time_ns: i64::try_from(self.time.as_nanosecond()).unwrap_or_default(),
            level: match self.level {
                tracing::Level::ERROR => "error",
                tracing::Level::WARN => "warn",
                _ => "info",
            },
            pipeline: fields.pipeline.clone(),
            component: fields.component.clone(),
            message: fields.message.clone(),
        }
    }

    fn render(self, style: Style) -> String {
        match style {
            Style::Plain { names_pipelines } => {
                let word = match self.level {
                    tracing::Level::ERROR => "error: ",
                    tracing::Level::WARN => "warning: ",
                    _ => "",
                };
                format!("{word}{}", self.text(names_pipelines))
            }
            Style::Text => {
                let (time, level) = (self.time, self.level);
                let mut line = format!("{time:.3} {level:<5} ");
                line.push_str(&escaped(&self.text(true)));
                line
            }
            Style::Json => self.json(),
        }
    }

    /// Pipeline, component and message.
    fn text(&self, names_pipelines: bool) -> String {
        let mut text = String::new();
        let fields = &self.fields;
        let pipeline = fields.pipeline.as_ref().filter(|_| names_pipelines);
        let pipeline = pipeline.map(|name| format!("pipeline {name}"));
        let names = [
            pipeline.as_deref(),
            fields.component.as_deref(),
            self.library,
        ];
        for name in names.into_iter().flatten() {
            let _ = write!(text, "{name}: ");
        }
        text.push_str(&fields.message);
        for (name, value) in &fields.others {
            let _ = write!(text, " {name}={value}");
        }
        text
    }

    fn json(self) -> String {
        let fields = self.fields;
        let mut object = Map::new();
        let mut put = |name: &str, value: Option<String>| {
            if let Some(value) = value {
                object.insert(name.to_owned(), value.into());
            }
        };
        put("time", Some(format!("{:.3}", self.time)));
        put("level", Some(self.level.as_str().to_ascii_lowercase()));
        put("pipeline", fields.pipeline);
        put("component", fields.component);
        put("library", self.library.map(str::to_owned));
        put("message", Some(fields.message));
        for (name, value) in fields.others {
            if !object.contains_key(name) {
                object.insert(name.to_owned(), value.into());
            }
        }
        Value::Object(object).to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line<'a>(library: Option<&'a str>, message: &str) -> Line<'a> {
        let (pipeline, component, others) = match library {
            None => (
                Some("web".to_owned()),
                Some("output archive".to_owned()),
                Vec::new(),
            ),
            Some(_) => (
                None,
                None,
                vec![("peer", "::1".to_owned()), ("time", "9".to_owned())],
            ),
        };
        Line {
            time: "2026-11-22T11:15:35.0419Z".parse().expect("a time"),
            level: tracing::Level::WARN,
            library,
            fields: Fields {
                pipeline,
                component,
                message: message.to_owned(),
                target: None,
                others,
            },
        }
    }

    #[test]
    fn noisy_libraries_are_heard_only_when_they_are_named() {
        for (own, expected) in [
            (None, "hickory_net=off"),
            (Some("debug"), "hickory_net=off"),
            (Some("hickory_net=debug"), "hickory_net=debug"),
        ] {
            let all = filter("info", own).expect("it is right").to_string();
            assert!(all.split(',').any(|it| it == expected), "{all}");
            assert!(
                all.split(',').any(|it| it == "hickory_resolver=off"),
                "{all}"
            );
        }
    }

    #[test]
    fn a_message_is_one_line_in_every_style() {
        let plain = |names_pipelines| Style::Plain { names_pipelines };
        let cases = [
            (plain(false), "warning: output archive: away"),
            (plain(true), "warning: pipeline web: output archive: away"),
            (
                Style::Text,
                "2026-11-22T11:15:35.041Z WARN  pipeline web: output archive: away",
            ),
            (
                Style::Json,
                r#"{"time":"2026-11-22T11:15:35.041Z","level":"warn","pipeline":"web","component":"output archive","message":"away"}"#,
            ),
        ];
        for (style, expected) in cases {
            assert_eq!(line(None, "away").render(style), expected);
        }
    }

    #[test]
    fn events_of_libraries_name_their_module_and_keep_their_fields() {
        let module = Some("hyper::client");
        assert_eq!(
            line(module, "closed").render(Style::Text),
            "2026-11-22T11:15:35.041Z WARN  hyper::client: closed peer=::1 time=9"
        );
        assert_eq!(
            line(module, "closed").render(Style::Json),
            r#"{"time":"2026-11-22T11:15:35.041Z","level":"warn","library":"hyper::client","message":"closed","peer":"::1"}"#
        );
    }

    #[test]
    fn no_message_makes_up_a_line() {
        let forged = "/tmp/a\n2026-11-22T11:15:36.000Z ERROR all is lost\u{1b}[2J: is missing";
        let text = line(None, forged).render(Style::Text);
        assert!(
            text.ends_with(
                r"/tmp/a\n2026-11-22T11:15:36.000Z ERROR all is lost\u{1b}[2J: is missing"
            ),
            "{text}"
        );
        let json = line(None, forged).render(Style::Json);
        assert!(!json.contains('\n'), "{json}");
        let value: Value = serde_json::from_str(&json).expect("a JSON line");
        assert_eq!(value["message"], forged);
    }

    #[test]
    fn misspelt_levels_are_refused() {
        for right in [
            "warn",
            "WARN",
            "info,hyper=debug",
            "hyper",
            "hyper::client",
            "[span{a=1}]=trace",
        ] {
            check(right).expect(right);
        }
        for wrong in ["wran", "hyper=debug,inof", "Debgu"] {
            let error = check(wrong).expect_err(wrong).to_string();
            assert!(
                error.starts_with("RUST_LOG is invalid: ") && error.contains("did you mean"),
                "{error}"
            );
        }
    }
}
