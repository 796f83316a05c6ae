//! Taps: some of the events that pass a point of a running pipeline, for somebody who looks.
//!
//! | module | holds |
//! | --- | --- |
//! | [`point`] | a place in a pipeline that can be tapped, and which events are picked there |
//! | [`event`](mod@event) | an event that was picked, and what became of it |
//! | [`pace`] | how many events a second may be picked |
//! | [`budget`] | how much time conditions may take |
//! | [`tap`](mod@tap) | what one looker gets: the events that wait, counters, and whether the point is still there |
//! | [`taps`] | the taps of a process |
//!
//! There is a [`TapPoint`] where an input sends its batches, around each processor, where an output is offered a batch, and around all
//! processors of a pipeline. While nobody looks, a point costs one relaxed load of a flag for each batch. Where somebody does, each
//! batch costs a look at the clock and two short locks, and the rows that are picked, of which there are [`RATE_MAX`] a second at most,
//! are copied as JSON. A tap with a condition evaluates it on all rows of a batch, while all conditions of the point together take no more
//! than 1 % of the time ([`budget`]); other batches pass without being looked at, and are counted. A batch that is processed a second time, for an output that has fallen behind, is not picked from again.
//!
//! Nothing waits for whoever looks. Events wait in the tap until they are fetched; what has no room there is counted and
//! left out. A tap that nobody asks for [`PATIENCE`] is over, and its point lets go of it with the next batch.
//!
//! # Limits
//! [`TAPS_MAX`] taps; of each, [`EVENTS_MAX`] events and [`BYTES_MAX`] bytes wait. An event of more than [`BYTES_MAX`] is never shown, and
//! counted on its own.

mod budget;
mod event;
mod pace;
mod point;
#[expect(clippy::module_inception, reason = "a tap is the noun of both")]
mod tap;
mod taps;

use std::time::Duration;

use expr::Expr;

pub use event::{TapEvent, TapOutcome};
pub use point::{TapPoint, TappedSink};
pub use tap::{Tap, TapPoll, TapStatus};
pub(crate) use taps::Taps;

/// The most events a second of one tap.
pub const RATE_MAX: usize = 1000;

/// How many taps there may be.
pub const TAPS_MAX: usize = 16;

/// How long a tap lasts that nobody asks.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// How many events of a tap wait.
const EVENTS_MAX: usize = 1000;

/// How many bytes of them, and so of one.
pub const BYTES_MAX: usize = 2 << 20;

/// Which form of an event is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TapSide {
    /// As it comes to the point.
    Before,
    /// As it leaves the point; what is dropped there is not shown.
    After,
    /// Both, and what became of it; events that a processor skips because of its `if` are not shown.
    Both,
}

/// What is tapped.
#[derive(Debug, Clone)]
pub struct TapSettings {
    /// The pipeline.
    pub pipeline: String,
    /// The operator; without one, all processors of the pipeline together.
    pub operator: Option<String>,
    /// Which form is shown.
    pub side: TapSide,
    /// Only events for which this holds: as they come to the point, or, where they are shown as they leave it alone, as they leave it.
    pub condition: Option<Expr>,
    /// The most events a second, from 1 to [`RATE_MAX`].
    pub rate: usize,
    /// Whether events are shown with what is readable under `@metadata`.
    pub with_metadata: bool,
}

/// Why nothing is tapped.
#[derive(Debug, thiserror::Error)]
pub enum TapError {
    /// There is no such pipeline.
    #[error("there is no pipeline `{name}`{}; those there are: {}", meant(name, known), known.join(", "))]
    NoPipeline {
        /// What was asked for.
        name: String,
        /// Those that there are.
        known: Vec<String>,
    },
    /// The pipeline does not run any more.
    #[error("the pipeline `{0}` has ended")]
    Ended(String),
    /// There is no such operator in the pipeline.
    #[error("the pipeline `{pipeline}` has no operator `{name}`{}; those it has: {}", meant(name, known), known.join(", "))]
    NoOperator {
        /// The pipeline.
        pipeline: String,
        /// What was asked for.
        name: String,
        /// Those that it has.
        known: Vec<String>,
    },
    /// Several operators have that name.
    #[error("`{name}` is the name of several operators of the pipeline `{pipeline}`: use {}", .choices.join(" or "))]
    Ambiguous {
        /// The pipeline.
        pipeline: String,
        /// The name.
        name: String,
        /// Names that are of one alone.
        choices: Vec<String>,
    },
    /// Both forms of an event are asked for where it is not changed.
    #[error("`{0}` is no processor, so that events are the same before and after it")]
    NothingChanges(String),
    /// There is no room for another tap.
    #[error("{TAPS_MAX} taps are open, which is as many as there may be; one that nobody asks for {} seconds is closed", PATIENCE.as_secs())]
    TooMany,
    /// There is no such tap.
    #[error("there is no such tap: one that nobody asks for {} seconds is closed", PATIENCE.as_secs())]
    Unknown,
}

/// The word that was most likely meant.
fn meant(word: &str, known: &[String]) -> String {
    let closest = config::closest(word, known.iter().map(String::as_str));
    closest.map_or_else(String::new, |name| format!(", did you mean `{name}`?"))
}
