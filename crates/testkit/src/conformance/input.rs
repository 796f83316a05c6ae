//! What every input must do:
//!
//! - It sends every event once, each under an id of its own, and ends when its source ends or it is asked to stop.
//! - It ends soon when it is asked to stop before it has begun, when the pipeline takes no more events, and when receipts
//!   never come.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use batch::{Batch, Budget};
use component::input::Issuer;
use component::{
    Build, Delivery, Diagnostics, InputContext, InputError, Receipt, Sink, Spec, Stop, Stopped,
    receipt,
};
use parking_lot::Mutex;
use tokio::runtime::Runtime;
use tokio::time::timeout;

use super::{Workspace, context, pair, settings};

/// How an input is tried.
pub struct InputCase {
    /// The component.
    pub name: &'static str,
    /// Its settings, in YAML.
    pub settings: fn(&Workspace) -> String,
    /// Has this many events come in. Called before the input begins where it `reads` what is there, and else, on a thread of its
    /// own, when it runs; then its source may be told that they were not taken.
    pub feed: fn(&Workspace, usize),
    /// Whether the input reads what is there, and ends.
    pub reads: bool,
}

/// How long anything may take.
const SOON: Duration = Duration::from_secs(10);

const EVENTS: usize = 300;

/// What the other end does with batches.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Mood {
    Delivers,
    /// Takes no more.
    Stopped,
    /// Takes them, and never says more.
    Silent,
}

struct Pipeline {
    mood: Mood,
    ids: Mutex<Vec<String>>,
    /// None when the run is over.
    held: Mutex<Option<Vec<Issuer>>>,
}

impl Pipeline {
    fn count(&self) -> usize {
        self.ids.lock().len()
    }

    /// The run is over: who waits for a receipt learns that there will be none.
    fn give_up(&self) {
        let mut held = self.held.lock();
        *held = None;
    }
}

#[async_trait]
impl Sink for Pipeline {
    async fn send(&self, batch: Batch) -> Result<Receipt, Stopped> {
        if self.mood == Mood::Stopped {
            return Err(Stopped);
        }
        let (issuer, receipt) = receipt();
        let id = |row| {
            let mut id = Vec::new();
            batch.origin().write_id(row, &mut id);
            String::from_utf8(id).expect("an id is text")
        };
        let mut ids = self.ids.lock();
        ids.extend((0..batch.len()).map(id));
        match self.mood {
            Mood::Silent => {
                let mut held = self.held.lock();
                if let Some(held) = &mut *held {
                    held.push(issuer);
                }
            }
            _ => issuer.resolve(Delivery::accepted(&batch)),
        }
        Ok(receipt)
    }
}

/// Checks every input, but for those that this build is without (`absent`).
///
/// # Panics
/// One does not conform, or has no case.
pub fn check(specs: &'static [Spec], cases: &'static [InputCase], absent: &[&str]) {
    for (spec, case) in pair(specs, cases, absent, |case| case.name) {
        delivers(spec, case);
        for mood in [Mood::Stopped, Mood::Silent] {
            ends(spec, case, mood, false);
        }
        ends(spec, case, Mood::Delivers, true);
    }
}

fn delivers(spec: &'static Spec, case: &'static InputCase) {
    let name = case.name;
    let (pipeline, ended) = run(spec, case, Mood::Delivers, false, |pipeline, stop| {
        wait(name, "all events", || pipeline.count() >= EVENTS);
        if !case.reads {
            stop.stop();
        }
    });
    assert_eq!(ended, Ok(()), "{name}");
    let ids = pipeline.ids.lock();
    assert_eq!(ids.len(), EVENTS, "{name}: every event comes once");
    let different: BTreeSet<&String> = ids.iter().collect();
    assert_eq!(different.len(), EVENTS, "{name}: each has an id of its own");
}

/// It ends soon, whatever becomes of its batches.
fn ends(spec: &'static Spec, case: &'static InputCase, mood: Mood, is_stopped_before: bool) {
    let name = case.name;
    // Whether it ends with an error is its own business.
    let _ = run(spec, case, mood, is_stopped_before, |pipeline, stop| {
        if is_stopped_before {
            return;
        }
        if mood == Mood::Silent {
            wait(name, "an event", || pipeline.count() > 0);
        } else {
            thread::sleep(Duration::from_millis(100));
        }
        stop.stop();
        pipeline.give_up();
    });
}

/// Runs an input until it ends, which it must do soon after `act`.
fn run(
    spec: &'static Spec,
    case: &'static InputCase,
    mood: Mood,
    is_stopped_before: bool,
    act: impl FnOnce(&Pipeline, &Stop) + Send,
) -> (Arc<Pipeline>, Result<(), InputError>) {
    let place = Arc::new(Workspace::new());
    let Build::Input(build) = spec.build else {
        panic!("{} is no input", spec.name)
    };
    if case.reads {
        (case.feed)(&place, EVENTS);
    }
    let input = build(&settings(&(case.settings)(&place)), &context(case.reads));
    let mut input = input.unwrap_or_else(|error| panic!("{}: {error}", case.name));
    let pipeline = Arc::new(Pipeline {
        mood,
        ids: Mutex::default(),
        held: Mutex::new(Some(Vec::new())),
    });
    let stop = Stop::default();
    let context = InputContext {
        sink: pipeline.clone(),
        pool: Budget::new(64 << 20).pool(32 << 20, 256 << 10),
        host: context(true).host,
        stop: stop.clone(),
        metrics: Arc::default(),
        progress: Arc::default(),
        diagnostics: Diagnostics::silent(),
        scope: "test/input".into(),
        registry: None,
        data_dir: Some(place.path("data").into()),
        ledger: Arc::default(),
        written: Arc::default(),
        own: place.own.clone(),
    };
    let runtime = Runtime::new().expect("a runtime");
    let opened = runtime.block_on(input.open());
    opened.unwrap_or_else(|error| panic!("{}: {error}", case.name));
    if is_stopped_before {
        stop.stop();
    }
    let running = runtime.spawn(async move { input.run(context).await });
    if !case.reads {
        let place = place.clone();
        thread::spawn(move || (case.feed)(&place, EVENTS));
    }
    act(&pipeline, &stop);
    let ended = runtime.block_on(async { timeout(SOON, running).await });
    let ended = ended.unwrap_or_else(|_| panic!("{}: it does not end ({mood:?})", case.name));
    runtime.shutdown_background();
    (pipeline, ended.expect("it does not panic"))
}

fn wait(name: &str, what: &str, is_so: impl Fn() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < SOON, "{name}: in vain waited for {what}");
        thread::sleep(Duration::from_millis(5));
    }
}
