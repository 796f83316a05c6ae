//! The end of a service, which limits what is still done about profiles.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

/// Whether a service ends, and since when. Clones share it.
#[derive(Debug, Clone)]
pub struct Ending(watch::Sender<Option<Instant>>);

impl Default for Ending {
    fn default() -> Self {
        Self(watch::Sender::new(None))
    }
}

impl Ending {
    /// The service ends from now on, unless it did already.
    pub fn begin(&self) {
        self.0.send_if_modified(|begun| {
            let is_first = begun.is_none();
            begun.get_or_insert_with(Instant::now);
            is_first
        });
    }

    /// Whether the service ends.
    pub fn has_begun(&self) -> bool {
        self.0.borrow().is_some()
    }

    /// Waits until the service has been ending for so long.
    pub async fn after(&self, time: Duration) {
        let mut begun = self.0.subscribe();
        // `self` has the sender, so that it is there.
        let begun = begun.wait_for(Option::is_some).await;
        let begun = begun.ok().and_then(|begun| *begun);
        if let Some(begun) = begun {
            sleep_until(begun + time).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn it_begins_once() {
        let ending = Ending::default();
        let never = tokio::time::timeout(Duration::from_millis(1), ending.after(Duration::ZERO));
        assert!(never.await.is_err() && !ending.has_begun());
        ending.begin();
        let begun = *ending.0.borrow();
        ending.clone().begin();
        assert_eq!(*ending.0.borrow(), begun);
        assert!(ending.has_begun());
        ending.after(Duration::ZERO).await;
    }
}
