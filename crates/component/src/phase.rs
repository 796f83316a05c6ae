//! How far a run is on its way to its end: one state that everybody watches.

use std::sync::Arc;

use tokio::sync::watch;

/// How far a pipeline is on its way to its end. It only goes forward.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Events come in and leave.
    #[default]
    Running,
    /// Inputs end; what they have sent still leaves.
    Draining,
    /// What the disk queue keeps is left to it: outputs do not wait for what fails.
    Leaving,
    /// Nobody waits for anything any more.
    Aborted,
}

/// The phase that everybody of a pipeline watches. Clones share it.
#[derive(Debug, Clone)]
pub struct Phases {
    sender: Arc<watch::Sender<Phase>>,
}

impl Default for Phases {
    fn default() -> Self {
        Self {
            sender: Arc::new(watch::Sender::new(Phase::default())),
        }
    }
}

impl Phases {
    /// The phase at this moment.
    pub fn now(&self) -> Phase {
        *self.sender.borrow()
    }

    /// Goes on to a phase; not back, where it is further already.
    pub fn advance(&self, phase: Phase) {
        self.sender.send_if_modified(|now| {
            let goes_on = *now < phase;
            *now = (*now).max(phase);
            goes_on
        });
    }

    /// Waits until it is at this phase or further.
    pub async fn reached(&self, phase: Phase) {
        // The sender is alive as long as this is.
        let _ = self.sender.subscribe().wait_for(|now| *now >= phase).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn it_goes_forward_and_wakes_who_waits() {
        let phases = Phases::default();
        let waiter = tokio::spawn({
            let phases = phases.clone();
            async move { phases.reached(Phase::Leaving).await }
        });
        phases.advance(Phase::Draining);
        tokio::task::yield_now().await;
        assert!(!waiter.is_finished());
        phases.advance(Phase::Aborted);
        phases.advance(Phase::Draining);
        assert_eq!(phases.now(), Phase::Aborted);
        waiter.await.expect("it was reached");
        phases.reached(Phase::Running).await;
    }
}
