//! Lists objects, and hands those to the readers that are to be read.

use std::sync::Arc;
use std::time::{Duration, Instant};

use component::{Limit, Stop};
use tokio::runtime::Handle;

use super::known::Sighting;
use super::listed::{Listed, StoreError};
use super::shared::Shared;
use super::store::{Listing, SourceStore};
use crate::paths::Exclusion;
use crate::reading::emitter::{ago, now};
use crate::reading::identity::Identity;

/// How often a list is tried again before an input that does not follow gives up.
const ATTEMPTS_MAX: u32 = 4;

/// The longest pause after a list that failed.
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// Which objects are read.
pub(super) struct Choice {
    pub(super) matching: Option<Exclusion>,
    pub(super) exclusion: Exclusion,
    pub(super) start_after: Option<String>,
    pub(super) ignore_older: Option<Duration>,
    pub(super) scan_interval: Duration,
    pub(super) ordered: bool,
    pub(super) lookback: Duration,
    pub(super) forget_after: Duration,
}

impl Choice {
    /// Whether an object is to be read, by its name behind the prefix.
    pub(super) fn has(&self, name: &str) -> bool {
        let name = name.as_ref();
        self.matching.as_ref().is_none_or(|it| it.has(name)) && !self.exclusion.has(name)
    }
}

/// Lists objects.
pub(super) struct Lister {
    pub(super) shared: Arc<Shared>,
    pub(super) store: SourceStore,
    pub(super) choice: Choice,
    pub(super) stop: Stop,
    pub(super) scope: Arc<str>,
}

/// What a list has shown.
#[derive(Default)]
struct ListReport {
    /// Behind which key to go on after a failure.
    last: Option<String>,
    /// Up to which key everything was read, and the objects up to there.
    frontier: Option<String>,
    passed: Vec<u128>,
    is_interrupted: bool,
    /// Something could not be listed.
    is_partial: bool,
    chosen: u64,
}

impl Lister {
    /// Lists until it is time to stop, or once.
    pub(super) fn run(&self) {
        let mut failures = 0;
        let mut report = ListReport::default();
        self.shared.known.lock().begin_list();
        while !self.stop.is_stopped() {
            let started = Instant::now();
            let pause = match self.list(&mut report) {
                Ok(()) => {
                    if std::mem::take(&mut failures) > 0 && self.shared.follow {
                        self.shared
                            .ctx
                            .diagnostics
                            .info("objects can be listed again");
                    }
                    self.end_list(&mut report);
                    if !self.shared.follow {
                        break;
                    }
                    self.shared.known.lock().begin_list();
                    self.choice.scan_interval.saturating_sub(started.elapsed())
                }
                Err(StoreError::Stopped) => break,
                Err(error) => {
                    failures += 1;
                    if !self.goes_on(&error, failures) {
                        break;
                    }
                    let pause = Duration::from_secs(1 << (failures - 1).min(6));
                    pause.min(PAUSE_MAX)
                }
            };
            self.wait(pause);
        }
        self.shared.pool.close();
    }

    /// Whether to try again after a failure, which is told.
    fn goes_on(&self, error: &StoreError, failures: u32) -> bool {
        let text = error.text();
        if self.shared.follow {
            if failures == 1 {
                let text = format!("objects cannot be listed: {text}; trying again");
                self.shared.ctx.diagnostics.warn(&text);
            }
            return true;
        }
        let is_final = matches!(error, StoreError::Refused(_)) || failures >= ATTEMPTS_MAX;
        if is_final {
            self.shared
                .report(&format!("objects cannot be listed: {text}"));
        }
        !is_final
    }

    fn wait(&self, pause: Duration) {
        let stopped = self.stop.stopped();
        Handle::current().block_on(async {
            let _ = tokio::time::timeout(pause, stopped).await;
        });
    }

    fn next(&self, listing: &mut Listing) -> Option<Result<Listed, StoreError>> {
        Handle::current().block_on(async {
            tokio::select! {
                biased;
                next = listing.next() => next,
                () = self.stop.stopped() => Some(Err(StoreError::Stopped)),
            }
        })
    }

    /// Lists objects to the end, from where an earlier attempt has failed.
    fn list(&self, report: &mut ListReport) -> Result<(), StoreError> {
        let after = report.last.clone().or_else(|| {
            let known = self.shared.known.lock();
            let frontier = known.frontier().filter(|_| self.choice.ordered);
            let start = self
                .choice
                .start_after
                .as_deref()
                .map(|it| self.store.key(it));
            frontier.map(str::to_owned).max(start)
        });
        let mut listing = self.store.list(after.as_deref())?;
        while let Some(next) = self.next(&mut listing) {
            let listed = match next {
                Err(StoreError::LeftOut(text)) => {
                    report.is_partial = true;
                    let limit = Limit::once_for("listed", &text);
                    let warning = || format!("cannot be listed: {text}");
                    self.shared.ctx.diagnostics.warn_limited(limit, warning);
                    continue;
                }
                next => next?,
            };
            report.last = Some(listed.key.clone());
            // An empty object has no events, as those that stand for folders.
            if listed.size > 0 && !self.take(listed, report) {
                return Err(StoreError::Stopped);
            }
        }
        Ok(())
    }

    /// Looks at an object of the list; false when it is time to stop.
    fn take(&self, listed: Listed, report: &mut ListReport) -> bool {
        let shown = self.store.shown(&listed.key);
        let id = id(&self.scope, &shown, &listed.version);
        let is_chosen = self.choice.has(self.store.name(&listed.key));
        report.chosen += u64::from(is_chosen);
        let age = ago(listed.modified_ns);
        let is_old = self.choice.ignore_older.is_some_and(|limit| age > limit);
        let mut known = self.shared.known.lock();
        let sighting = known.see(id);
        let is_settled = match sighting {
            // One that is to be deleted is needed until it is.
            Sighting::Read => !is_chosen || self.shared.delete_after.is_none(),
            Sighting::Broken => true,
            Sighting::New => !is_chosen || is_old,
            Sighting::Begun => !is_chosen,
            Sighting::Open => false,
        };
        report.is_interrupted |= !is_settled || age < self.choice.lookback;
        if self.choice.ordered && !report.is_interrupted {
            report.frontier = Some(listed.key.clone());
            if !matches!(sighting, Sighting::New) {
                report.passed.push(id);
            }
        }
        match sighting {
            Sighting::Read if is_chosen && self.shared.is_to_be_deleted(&listed) => {
                drop(known);
                self.shared.delete_later(id, listed);
            }
            Sighting::New | Sighting::Begun if !is_settled => {
                let size = listed.size;
                let object = known.open(id, listed, shown);
                drop(known);
                let read = object.file.lock().disk_offset;
                let progress = &self.shared.ctx.progress;
                progress.add_total(size.saturating_sub(read));
                return self.shared.pool.add(object);
            }
            _ => {}
        }
        true
    }

    fn end_list(&self, report: &mut ListReport) {
        let report = std::mem::take(report);
        if report.chosen == 0 && !self.shared.follow {
            let text = "there are no objects to read";
            self.shared.ctx.diagnostics.warn(text);
        }
        let now_secs = now() as u64 / 1_000_000_000;
        let (changes, unread) = {
            let mut known = self.shared.known.lock();
            let mut changes = match report.frontier {
                Some(frontier) => known.advance(frontier, &report.passed),
                None => Vec::new(),
            };
            let (missing, unread) = match report.is_partial {
                true => (Vec::new(), 0),
                false => known.end_list(now_secs, self.choice.forget_after.as_secs()),
            };
            changes.extend(missing);
            (changes, unread)
        };
        self.shared.commit(&changes);
        if unread > 0 {
            self.shared.ctx.diagnostics.warn(&format!(
                "{unread} objects were deleted before they were read to their end"
            ));
        }
    }
}

/// The id of an object: of the input, its place and its version.
fn id(scope: &str, shown: &str, version: &str) -> u128 {
    Identity::new([scope, shown, version].map(str::as_bytes)).id()
}
