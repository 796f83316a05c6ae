//! What a processor met that a user should hear of: fields that no event had, events that failed.
//!
//! The end of a run reports it; a run that goes on does so after its first minute and then once an hour.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use batch::{Batch, Bitmap, Failure, Failures};
use component::grouped;
use component::metrics::OperatorMetrics;

use crate::reading::{LONG_RUN, Reading};
use crate::settings::OnFailure;

/// How often a long run reports events that fail.
const INTERVAL: Duration = Duration::from_secs(3600);

/// The counter of events for which a condition could not be evaluated.
pub const EXPRESSION_ERRORS: &str = "expression_errors";

/// What one processor met.
pub struct Findings {
    condition: Reading,
    processor: Reading,
    /// Whether what failed is dropped only because this run writes no dead letters.
    pub would_bury: bool,
    /// The first event that failed.
    first: OnceLock<Failure>,
    failed: AtomicU64,
    begin: Instant,
    /// When failures are reported next, in milliseconds after the beginning.
    next_ms: AtomicU64,
}

impl Findings {
    /// For a processor that reads, with its condition, these fields.
    pub fn new(condition: Reading, processor: Reading) -> Self {
        Self {
            condition,
            processor,
            would_bury: false,
            first: OnceLock::new(),
            failed: AtomicU64::new(0),
            begin: Instant::now(),
            next_ms: AtomicU64::new(LONG_RUN.as_millis() as u64),
        }
    }

    /// Looks at the rows that the condition decides on.
    pub fn note_condition(&self, batch: &Batch, rows: &Bitmap, is_first: bool) {
        note(&self.condition, batch, rows, is_first);
    }

    /// Looks at the rows that the processor handles.
    pub fn note_processor(&self, batch: &Batch, rows: &Bitmap, is_first: bool) {
        note(&self.processor, batch, rows, is_first);
    }

    /// Remembers the events that failed.
    pub fn failed(&self, failures: &Failures) {
        if let Some(first) = failures.rows().first() {
            self.first.get_or_init(|| first.clone());
            self.failed.fetch_add(failures.rows().len() as u64, Relaxed);
        }
    }

    /// What a run that goes on reports now, if anything.
    pub fn so_far(&self, now: Instant, kind: &str, policy: OnFailure) -> Vec<String> {
        let mut sentences = self.condition.missing_so_far(now);
        sentences.extend(self.processor.missing_so_far(now));
        let elapsed_ms = now.saturating_duration_since(self.begin).as_millis() as u64;
        let due_ms = self.next_ms.load(Relaxed);
        if elapsed_ms >= due_ms
            && let Some(sentence) = self.failures(kind, policy)
        {
            let next_ms = elapsed_ms + INTERVAL.as_millis() as u64;
            let exchanged = self
                .next_ms
                .compare_exchange(due_ms, next_ms, Relaxed, Relaxed);
            sentences.extend(exchanged.ok().map(|_| sentence));
        }
        sentences
    }

    /// What the end of a run reports.
    pub fn at_end(&self, kind: &str, policy: OnFailure, metrics: &OperatorMetrics) -> Vec<String> {
        let mut sentences = self.condition.missing();
        sentences.extend(self.processor.missing());
        sentences.dedup();
        let evaluated = self.condition.events().max(self.processor.events());
        sentences.extend(expression_errors(metrics, evaluated));
        sentences.extend(self.failures(kind, policy));
        sentences
    }

    /// How many events failed, and why the first one did. Where the configuration says what becomes of them, it is only worth
    /// a word that no event was left.
    fn failures(&self, kind: &str, policy: OnFailure) -> Option<String> {
        let Failure { tag, reason, .. } = self.first.get()?;
        let (failed, all) = (self.failed.load(Relaxed), self.processor.events());
        let were = if failed == 1 { "was" } else { "were" };
        let became = match policy {
            OnFailure::DeadLetter => return None,
            OnFailure::Drop | OnFailure::Continue if failed < all => return None,
            OnFailure::Drop if self.would_bury => match failed {
                1 => " and would become a dead letter".to_owned(),
                _ => " and would become dead letters".to_owned(),
            },
            OnFailure::Drop => format!(" and {were} dropped"),
            _ if tag.is_empty() => String::new(),
            _ => format!(" and {were} tagged `{tag}`"),
        };
        let reason = reason
            .strip_prefix(kind)
            .and_then(|rest| rest.strip_prefix(": "))
            .unwrap_or(reason);
        let the_first = if failed == 1 { "" } else { "the first: " };
        let (failed, all) = (grouped(failed), grouped(all));
        let events = if all == "1" { "event" } else { "events" };
        Some(format!(
            "{failed} of {all} {events} failed{became}; {the_first}{reason}"
        ))
    }
}

fn note(reading: &Reading, batch: &Batch, rows: &Bitmap, is_first: bool) {
    reading.note(batch, rows);
    if is_first {
        reading.count(rows.count());
    }
}

/// For how many of these events a condition could not be evaluated. A single one has been reported when it came.
pub fn expression_errors(metrics: &OperatorMetrics, events: u64) -> Option<String> {
    let errors = *metrics.snapshot().named.get(EXPRESSION_ERRORS)?;
    let (errors, all) = (errors, grouped(events));
    (errors > 1).then(|| {
        let errors = grouped(errors);
        format!("the condition could not be evaluated for {errors} of {all} events and counts as false for them")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A processor that failed on some of its events.
    fn findings(failed: usize, events: usize, tag: &str) -> Findings {
        let findings = Findings::new(Reading::new([]), Reading::new([]));
        let mut failures = Failures::none();
        (0..failed).for_each(|row| failures.push(row, &tag.into(), &"date: no time".into()));
        findings.processor.count(events);
        findings.failed(&failures);
        findings
    }

    #[test]
    fn failures_are_reported_unless_the_configuration_handles_them() {
        use OnFailure::{Continue, DeadLetter, Drop, Publish};
        let one = "1 of 1,000 events failed and was tagged `_t`; no time";
        let all = "2 of 2 events failed and were tagged `_t`; the first: no time";
        let dropped = "2 of 2 events failed and were dropped; the first: no time";
        for (failed, events, tag, policy, expected) in [
            (0, 10, "_t", Publish, None),
            (1, 1000, "_t", Publish, Some(one)),
            (1, 1000, "_t", Continue, None),
            (1, 1000, "_t", Drop, None),
            (2, 2, "_t", Continue, Some(all)),
            (2, 2, "_t", Drop, Some(dropped)),
            (2, 2, "_t", DeadLetter, None),
            (1, 1, "", Publish, Some("1 of 1 event failed; no time")),
        ] {
            let findings = findings(failed, events, tag);
            let sentences = findings.at_end("date", policy, &OperatorMetrics::default());
            let expected: Vec<&str> = expected.into_iter().collect();
            assert_eq!(sentences, expected, "{failed} of {events}, {policy:?}");
        }
    }

    #[test]
    fn a_trial_speaks_of_dead_letters() {
        for (failed, expected) in [
            (
                1,
                "1 of 1 event failed and would become a dead letter; no time",
            ),
            (
                2,
                "2 of 2 events failed and would become dead letters; the first: no time",
            ),
        ] {
            let mut findings = findings(failed, failed, "_t");
            findings.would_bury = true;
            let sentences = findings.at_end("date", OnFailure::Drop, &OperatorMetrics::default());
            assert_eq!(sentences, [expected]);
        }
    }

    #[test]
    fn a_long_run_reports_failures_after_a_minute_and_then_every_hour() {
        let findings = findings(1, 10, "_t");
        for (second, is_reported) in [
            (0, false),
            (59, false),
            (60, true),
            (61, false),
            (3659, false),
            (3700, true),
            (3701, false),
        ] {
            let now = findings.begin + Duration::from_secs(second);
            let sentences = findings.so_far(now, "date", OnFailure::Publish);
            assert_eq!(sentences.len(), usize::from(is_reported), "{second} s");
        }
    }

    #[test]
    fn expression_errors_are_counted_from_the_second_on() {
        let metrics = OperatorMetrics::default();
        assert_eq!(expression_errors(&metrics, 5), None);
        metrics.count(EXPRESSION_ERRORS, 1);
        assert_eq!(expression_errors(&metrics, 5), None, "it was reported");
        metrics.count(EXPRESSION_ERRORS, 1);
        let sentence = expression_errors(&metrics, 5).expect("two errors");
        assert!(sentence.contains("for 2 of 5 events"), "{sentence}");
    }
}
