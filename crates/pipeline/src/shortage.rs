//! Says when inputs have waited long for memory, and for whose.

use std::sync::{Arc, Weak};
use std::time::Duration;

use batch::{Budget, Shortage};
use component::{Diagnostics, Limit};
use config::Size;

/// When something is looked at, and reported.
#[derive(Debug, Clone, Copy)]
struct Times {
    /// How often it is looked at.
    period: Duration,
    /// How long a wait is nothing to report: outputs may be busy for a moment.
    patience: Duration,
}

const TIMES: Times = Times {
    period: Duration::from_secs(1),
    patience: Duration::from_secs(10),
};

/// Watches a budget of `limit` until nobody has it any more.
pub(crate) fn watch(budget: &Arc<Budget>, limit: Size, diagnostics: &Diagnostics) {
    let budget = Arc::downgrade(budget);
    tokio::spawn(look(budget, limit, TIMES, diagnostics.clone()));
}

async fn look(budget: Weak<Budget>, limit: Size, times: Times, diagnostics: Diagnostics) {
    let mut was_long = false;
    loop {
        tokio::time::sleep(times.period).await;
        let Some(shortage) = budget.upgrade().map(|budget| budget.shortage()) else {
            return;
        };
        let long = shortage.filter(|shortage| shortage.longest >= times.patience);
        if let Some(shortage) = long.filter(|_| !was_long) {
            let limited = Limit::events("memory_shortages");
            diagnostics.warn_limited(limited, || text(&shortage, limit));
        }
        // One that was let in after a long wait is followed by others.
        let may_go_on = shortage.is_some_and(|shortage| shortage.longest >= times.patience / 2);
        was_long = long.is_some() || was_long && may_go_on;
    }
}

/// What is said of a shortage.
fn text(shortage: &Shortage, limit: Size) -> String {
    let holder = match shortage.is_of_half_read() {
        true => "messages that clients have begun and not sent to their end",
        false => "events that outputs have not taken yet, or lines that have not ended",
    };
    let waited = shortage.longest.as_secs();
    format!(
        "an input has waited {waited} s for memory: most of what is used of `max_memory_bytes` ({limit}) is held by {holder}"
    )
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use super::*;

    #[test]
    fn it_names_who_holds_the_memory() {
        let shortage = Shortage {
            longest: Duration::from_millis(12_900),
            used: 1000,
            half_read: 900,
        };
        let limit = Size(64 << 20);
        let said = text(&shortage, limit);
        assert!(said.starts_with("an input has waited 12 s for memory"));
        assert!(said.contains("(64MiB) is held by messages that clients"));
        let shortage = Shortage {
            half_read: 100,
            ..shortage
        };
        assert!(text(&shortage, limit).contains("held by events that outputs have not taken yet"));
    }

    #[tokio::test]
    async fn a_wait_is_told_once_and_nothing_where_nobody_waits() {
        let said = Arc::new(Mutex::new(Vec::new()));
        let log = said.clone();
        let say = move |text: &str| log.lock().push(text.to_owned());
        let budget = Budget::new(1000);
        let weak = Arc::downgrade(&budget);
        let times = Times {
            period: Duration::from_millis(1),
            patience: Duration::ZERO,
        };
        let looking = look(weak, Size(1000), times, Diagnostics::new(say));
        let looking = tokio::spawn(looking);
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert_eq!(said.lock().len(), 0);
        let pool = budget.pool(0, 100);
        let taken = pool.reserve(1000).await;
        let waiting = tokio::spawn({
            let pool = pool.clone();
            async move { drop(pool.reserve(100).await) }
        });
        while said.lock().is_empty() {
            tokio::time::sleep(times.period).await;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
        let lines = said.lock().clone();
        assert!(
            matches!(&lines[..], [line] if line.contains("has waited 0 s")),
            "{lines:?}"
        );
        drop(taken);
        waiting.await.expect("there is memory");
        drop((pool, budget));
        looking.await.expect("no panic");
    }
}
