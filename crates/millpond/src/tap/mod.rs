//! `millpond tap`: live events of a running pipeline, over its API.

mod diff;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::Args;
use component::terminal::is_control;
use component::{grouped, plural, plural_were};
use http::Method;
use pipeline::report::bytes;
use pipeline::tap::BYTES_MAX;
use serde_json::Value;
use tokio::time::timeout;

use crate::api::tap::{PATH, TapAnswer, TapKey, TapState, TappedEvent, WAIT_MAX, condition};
use crate::api_client::{ApiArgs, ApiClient, ApiError};
use crate::colour::Painter;
use crate::console::{say, write};
use crate::interruption::interruption;
use crate::log;

/// How long the end waits for the tap to be closed; without that it is closed soon, too.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// How soon it is said again that events are too large.
const LARGE_PAUSE: Duration = Duration::from_secs(10);

#[derive(Args)]
pub struct TapArgs {
    /// The pipeline; behind a colon, an input, processor or output of it, such as web:grok. Without one, events are shown as all
    /// processors together leave them.
    #[arg(value_name = "PIPELINE[:OPERATOR]")]
    point: String,
    /// Shows events as they come to the operator, not as they leave it.
    #[arg(long, conflicts_with = "diff")]
    before: bool,
    /// Shows what the operator changed: which fields it added (+), removed (-) and changed (~), and events that it dropped.
    #[arg(long)]
    diff: bool,
    /// Only events for which this expression is true, such as 'status >= 500'.
    #[arg(long = "if", value_name = "EXPRESSION")]
    condition: Option<String>,
    /// The most events a second. Of those that pass, as many are picked.
    #[arg(long, value_name = "COUNT", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=1000))]
    rate: u64,
    /// Ends after so many events.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Also shows what is readable under `@metadata`.
    #[arg(long)]
    metadata: bool,
    #[command(flatten)]
    api: ApiArgs,
}

impl TapArgs {
    /// The pipeline, and the operator if there is one.
    fn point(&self) -> (&str, Option<&str>) {
        match self.point.split_once(':') {
            Some((pipeline, operator)) => (pipeline, Some(operator)),
            None => (&self.point, None),
        }
    }
}

/// A tap that is open.
struct Following<'a> {
    args: &'a TapArgs,
    client: &'a ApiClient,
    tap: String,
    painter: Painter,
    /// The number of the last event that arrived.
    last: u64,
    shown: u64,
    passed: u64,
    looked_at: u64,
    matched: u64,
    skipped: u64,
    too_large: u64,
    /// When it was last said that events are too large.
    large_said: Option<Instant>,
    state: TapState,
}

/// Why there are no further events.
enum TapEnd {
    /// As many were shown as were asked for, or nobody reads them any more.
    Enough,
    /// The point does not exist any more.
    Gone(String),
}

/// Shows events until it is interrupted.
pub fn run(args: &TapArgs) -> anyhow::Result<ExitCode> {
    // The server checks it as well, and does not know where it was written.
    if let Some(text) = &args.condition {
        condition(text)?;
    }
    let client = args.api.connect()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("the system refuses an event loop")?;
    runtime.block_on(async {
        let mut interrupted = std::pin::pin!(interruption());
        let opened = tokio::select! {
            _ = &mut interrupted => return Ok(ExitCode::SUCCESS),
            opened = Following::open(args, &client) => opened,
        };
        let mut following = opened?;
        let ended = tokio::select! {
            _ = &mut interrupted => Ok(TapEnd::Enough),
            ended = following.run() => ended,
        };
        let code = match ended {
            Ok(TapEnd::Enough) => ExitCode::SUCCESS,
            Ok(TapEnd::Gone(reason)) => {
                log::fail(&reason);
                ExitCode::FAILURE
            }
            Err(error) => {
                log::fail(&format!("{error:#}"));
                ExitCode::FAILURE
            }
        };
        following.close().await;
        Ok(code)
    })
}

impl<'a> Following<'a> {
    async fn open(args: &'a TapArgs, client: &'a ApiClient) -> Result<Self, ApiError> {
        let (pipeline, operator) = args.point();
        let show = match (args.before, args.diff) {
            (_, true) => "both",
            (true, false) => "before",
            (false, false) => "after",
        };
        let (rate, metadata) = (args.rate.to_string(), args.metadata.to_string());
        let mut query = vec![
            ("pipeline", pipeline),
            ("show", show),
            ("rate", &rate),
            ("metadata", &metadata),
        ];
        query.extend(operator.map(|operator| ("operator", operator)));
        query.extend(args.condition.as_deref().map(|text| ("if", text)));
        let opened: TapKey = client.ask(Method::POST, PATH, &query).await?;
        Ok(Self {
            args,
            client,
            tap: opened.tap,
            painter: Painter::stdout(),
            last: 0,
            shown: 0,
            passed: 0,
            looked_at: 0,
            matched: 0,
            skipped: 0,
            too_large: 0,
            large_said: None,
            state: TapState::Open,
        })
    }

    /// Shows events until there are no more.
    async fn run(&mut self) -> anyhow::Result<TapEnd> {
        let wait = WAIT_MAX.to_string();
        loop {
            let after = self.last.to_string();
            let query = [("tap", &*self.tap), ("after", &after), ("wait", &wait)];
            let answer: TapAnswer = self.client.get(PATH, &query).await?;
            self.count(&answer);
            self.note_too_large(answer.too_large);
            for event in answer.events {
                self.last = event.number;
                if !self.show(event)? {
                    return Ok(TapEnd::Enough);
                }
            }
            if let TapState::Gone = answer.state {
                return Ok(TapEnd::Gone(answer.reason.unwrap_or_default()));
            }
            self.note(answer.state);
        }
    }

    fn count(&mut self, answer: &TapAnswer) {
        (self.passed, self.looked_at) = (answer.passed, answer.looked_at);
        (self.matched, self.skipped) = (answer.matched, answer.skipped);
    }

    /// Says that the pipeline has ended or started again.
    fn note(&mut self, state: TapState) {
        if self.state != state {
            self.state = state;
            let (pipeline, _) = self.args.point();
            say(&match state {
                TapState::Waiting => {
                    format!("the pipeline {pipeline} has ended; a reload may start it again")
                }
                TapState::Open | TapState::Gone => {
                    format!("the pipeline {pipeline} has started again")
                }
            });
        }
    }

    /// Says that events are not shown because they are too large: at once, and again after a while if there are more.
    fn note_too_large(&mut self, count: u64) {
        let is_due = self.large_said.is_none_or(|at| at.elapsed() >= LARGE_PAUSE);
        if count > self.too_large && is_due {
            self.large_said = Some(Instant::now());
            let (events, most) = (plural_were(count, "event"), bytes(BYTES_MAX as u64));
            say(&format!(
                "warning: {events} not shown so far, being larger than {most}"
            ));
        }
        self.too_large = count;
    }

    /// Prints an event; whether another one is wanted.
    fn show(&mut self, event: TappedEvent) -> anyhow::Result<bool> {
        let text = match self.args.diff {
            true => diff::block(&event, self.painter),
            false => line(event.before.or(event.after)),
        };
        self.shown += 1;
        let is_read = write(text.as_bytes())?;
        Ok(is_read && self.args.count.is_none_or(|count| self.shown < count))
    }

    /// Closes the tap and says how much of everything was shown.
    async fn close(&mut self) {
        let after = self.last.to_string();
        let query = [("tap", &*self.tap), ("after", &after)];
        // Where nothing was to be shown, the last answer is of long ago.
        let counts = self.client.get::<TapAnswer>(PATH, &query);
        if let Ok(Ok(answer)) = timeout(CLOSE_TIMEOUT, counts).await {
            self.count(&answer);
        }
        let query = [("tap", &*self.tap)];
        let closing = self.client.ask::<TapKey>(Method::DELETE, PATH, &query);
        // It is closed in any case, soon.
        let _ = timeout(CLOSE_TIMEOUT, closing).await;
        let (shown, matched) = (grouped(self.shown), plural(self.matched, "event"));
        let condition = match (&self.args.condition, self.passed - self.looked_at) {
            (None, _) => String::new(),
            (Some(_), 0) => format!(" for which --if is true, among {}", grouped(self.passed)),
            (Some(_), _) => format!(
                " for which --if is true; it was evaluated on {} of {}, which is all that 1 % of the time is enough for",
                grouped(self.looked_at),
                grouped(self.passed)
            ),
        };
        let skipped = match self.skipped {
            0 => String::new(),
            skipped => format!("; {} had no room", grouped(skipped)),
        };
        let too_large = match self.too_large {
            0 => String::new(),
            count => format!("; {} too large", plural_were(count, "event")),
        };
        say(&format!(
            "{shown} of {matched} shown{condition}{skipped}{too_large}"
        ));
    }
}

/// An event as a line of JSON. Characters that control how text is shown, which JSON need not escape from 0x7F on, do nothing to a terminal.
fn line(event: Option<Value>) -> String {
    let text = event.unwrap_or_default().to_string();
    let mut line = String::with_capacity(text.len() + 1);
    for character in text.chars() {
        match is_control(character) {
            true => line.push_str(&format!("\\u{:04x}", u32::from(character))),
            false => line.push(character),
        }
    }
    line.push('\n');
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_does_nothing_to_a_terminal() {
        let event = serde_json::json!({ "a": "\u{1b}[1m\u{9b}1m\u{7f}\u{202e}\n", "b": 1 });
        let text = line(Some(event.clone()));
        assert_eq!(
            text,
            "{\"a\":\"\\u001b[1m\\u009b1m\\u007f\\u202e\\n\",\"b\":1}\n"
        );
        let read: Value = serde_json::from_str(&text).expect("it is JSON");
        assert_eq!(read, event);
    }
}
