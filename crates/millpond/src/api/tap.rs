//! Events that pass a point of a pipeline, for `millpond tap` and others.
//!
//! A client opens a tap with `POST`, asks it again and again with `GET`, and closes it with `DELETE`. Opening changes what the process
//! does, so that pages of other sites must not do it, which the guard sees by the method. Each question waits until there are events;
//! it names the last event that has arrived, so that none is missed or comes twice if an answer is lost.

use std::time::Duration;

use component::{grouped, plural};
use config::{ConfigError, Node, Source, Span};
use expr::Expr;
use http::StatusCode;
use pipeline::tap::{
    RATE_MAX, TapError, TapEvent, TapOutcome, TapPoll, TapSettings, TapSide, TapStatus,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::reply::{Answer, Request, failed, json};
use super::state::ApiState;
use super::stats::time;

/// The path of taps.
pub const PATH: &str = "/api/v1/tap";

/// Events a second where nothing else is said.
pub const RATE: usize = 10;

/// The longest that a question waits, in seconds: well below what ends silent connections.
pub const WAIT_MAX: usize = 20;

/// The longest expression, in bytes. As a parameter of a URL, of which 65,534 bytes are read, it may take three times as many.
const CONDITION_BYTES_MAX: usize = 16 << 10;

/// A tap that was opened or closed.
#[derive(Serialize, Deserialize, JsonSchema)]
pub struct TapKey {
    /// What names it in further requests.
    pub tap: String,
}

/// What a tap has for whoever asks.
#[derive(Serialize, Deserialize, JsonSchema)]
pub struct TapAnswer {
    /// Events, oldest first.
    pub events: Vec<TappedEvent>,
    /// How many events have passed the point since the tap was opened.
    pub passed: u64,
    /// On how many of these `if` was evaluated. Where that takes more than 1 % of the time, not on all; without `if`, all count.
    pub looked_at: u64,
    /// For how many of these `if` is true; without `if`, all.
    pub matched: u64,
    /// How many were picked and are not shown, because too many waited.
    pub skipped: u64,
    /// How many were picked and are not shown, because they are larger than 2 MiB.
    pub too_large: u64,
    /// Whether the point is there.
    pub state: TapState,
    /// Why the point is gone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Whether the point of a tap is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TapState {
    /// It is.
    Open,
    /// The pipeline has ended, and may start again after a reload.
    Waiting,
    /// It is not, and will not come back.
    Gone,
}

/// An event that passed the point.
#[derive(Serialize, Deserialize, JsonSchema)]
pub struct TappedEvent {
    /// Its number among those of the tap, from 1.
    pub number: u64,
    /// When it passed.
    pub time: String,
    /// Its id.
    pub id: String,
    /// What became of it, with `show=both`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<TapOutcome>,
    /// The event as it came to the point.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<Value>,
    /// The event as it left the point.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<Value>,
    /// The tag of a failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
    /// The reason of a failure; what dropped an event that did not fail.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl TapAnswer {
    fn of(poll: TapPoll) -> Self {
        let (state, reason) = match poll.status {
            TapStatus::Open => (TapState::Open, None),
            TapStatus::Waiting => (TapState::Waiting, None),
            TapStatus::Gone(reason) => (TapState::Gone, Some(reason)),
        };
        Self {
            events: poll.events.into_iter().map(TappedEvent::of).collect(),
            passed: poll.passed,
            looked_at: poll.looked_at,
            matched: poll.matched,
            skipped: poll.skipped,
            too_large: poll.too_large,
            state,
            reason,
        }
    }
}

impl TappedEvent {
    fn of(event: TapEvent) -> Self {
        Self {
            number: event.number,
            time: time(event.time),
            id: event.id,
            outcome: event.outcome,
            before: event.before.map(|text| value(&text)),
            after: event.after.map(|text| value(&text)),
            tag: event.tag.map(|tag| tag.to_string()),
            reason: event.reason.map(|reason| reason.to_string()),
        }
    }
}

/// JSON as a value. Half of a surrogate pair, which JSON allows and a value cannot hold, makes a text of the whole.
fn value(text: &[u8]) -> Value {
    serde_json::from_slice(text)
        .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(text).into_owned()))
}

/// Opens a tap.
pub fn open(state: &ApiState, request: &Request) -> Answer {
    let settings = match settings(request) {
        Ok(settings) => settings,
        Err(answer) => return *answer,
    };
    match state.view.open_tap(settings) {
        Ok(tap) => json(StatusCode::CREATED, &TapKey { tap }),
        Err(error) => refused(&error),
    }
}

/// Reads the condition of a tap.
///
/// # Errors
/// It is no expression, at its place, or too long.
pub fn condition(text: &str) -> Result<Expr, ConfigError> {
    let source = Source::new("--if", text);
    let node = Node::scalar(&source, Span::new(0, text.len()), text, true);
    if text.len() > CONDITION_BYTES_MAX {
        let (length, most) = (
            plural(text.len() as u64, "byte"),
            grouped(CONDITION_BYTES_MAX as u64),
        );
        return Err(node.error(format!(
            "the expression of a tap has at most {most} bytes, and this has {length}"
        )));
    }
    Expr::parse_condition(text).map_err(|error| error.in_setting(&node))
}

fn settings(request: &Request) -> Result<TapSettings, Box<Answer>> {
    let wrong = |text: String| Box::new(failed(StatusCode::BAD_REQUEST, &text));
    let Some(pipeline) = request.parameter("pipeline") else {
        return Err(wrong("`pipeline` is missing".to_owned()));
    };
    let side = match request.parameter("show").as_deref() {
        None | Some("after") => TapSide::After,
        Some("before") => TapSide::Before,
        Some("both") => TapSide::Both,
        Some(other) => {
            let text = format!("`show` is `before`, `after` or `both`, not `{other}`");
            return Err(wrong(text));
        }
    };
    let with_metadata = match request.parameter("metadata").as_deref() {
        None | Some("false") => false,
        Some("true") => true,
        Some(other) => {
            return Err(wrong(format!(
                "`metadata` is `true` or `false`, not `{other}`"
            )));
        }
    };
    let condition = match request.parameter("if") {
        None => None,
        Some(text) => match condition(&text) {
            Ok(condition) => Some(condition),
            Err(error) => return Err(wrong(error.to_string())),
        },
    };
    let rate = request.number("rate", RATE)?;
    if !(1..=RATE_MAX).contains(&rate) {
        return Err(wrong(format!(
            "`rate` must be from 1 to {RATE_MAX}, not {rate}"
        )));
    }
    Ok(TapSettings {
        pipeline,
        operator: request.parameter("operator"),
        side,
        condition,
        rate,
        with_metadata,
    })
}

/// Waits for events of a tap.
pub async fn poll(state: &ApiState, request: &Request) -> Answer {
    let numbers = request
        .number("after", 0)
        .and_then(|after| Ok((after, request.number("wait", 0)?)));
    let (after, wait) = match numbers {
        Ok(numbers) => numbers,
        Err(answer) => return *answer,
    };
    if wait > WAIT_MAX {
        let text = format!("`wait` must be at most {WAIT_MAX} seconds, not {wait}");
        return failed(StatusCode::BAD_REQUEST, &text);
    }
    match state.view.tap(&key(request)) {
        Ok(tap) => {
            let poll = tap.poll(after as u64, Duration::from_secs(wait as u64));
            json(StatusCode::OK, &TapAnswer::of(poll.await))
        }
        Err(error) => refused(&error),
    }
}

/// Closes a tap.
pub fn close(state: &ApiState, request: &Request) -> Answer {
    let tap = key(request);
    match state.view.close_tap(&tap) {
        Ok(()) => json(StatusCode::OK, &TapKey { tap }),
        Err(error) => refused(&error),
    }
}

fn key(request: &Request) -> String {
    request.parameter("tap").unwrap_or_default()
}

fn refused(error: &TapError) -> Answer {
    let status = match error {
        TapError::NoPipeline { .. } | TapError::NoOperator { .. } | TapError::Unknown => {
            StatusCode::NOT_FOUND
        }
        TapError::Ended(_) => StatusCode::CONFLICT,
        TapError::Ambiguous { .. } | TapError::NothingChanges(_) => StatusCode::BAD_REQUEST,
        TapError::TooMany => StatusCode::TOO_MANY_REQUESTS,
    };
    failed(status, &error.to_string())
}
