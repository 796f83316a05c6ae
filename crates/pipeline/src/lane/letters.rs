//! Rows that an output refuses become dead letters, and their batch passes when these are on disk.
//!
//! Without a data directory there is nowhere to keep them: they are counted, and the run ends with exit code 1.

use std::sync::Arc;

use batch::{Batch, Reentry};
use component::RowAnswer;
use queue::Ticket;
use queue::letters::{Dead, DeadLetters, Draft};
use tokio::sync::oneshot;

use super::request::Piece;

/// Where the dead letters of one output go.
pub struct LaneLetters {
    letters: Arc<DeadLetters>,
    at: Arc<Reentry>,
}

/// Resolves when letters are on disk, with how many there were, or says why they are not.
pub type Stored = oneshot::Receiver<Result<u64, Arc<str>>>;

impl LaneLetters {
    pub fn new(letters: Arc<DeadLetters>, output: &str) -> Self {
        let name = output.into();
        Self {
            letters,
            at: Arc::new(Reentry::Output { name }),
        }
    }

    /// Has rows of a batch written down.
    pub fn put(&self, batch: &Arc<Batch>, ticket: &Ticket, refused: Vec<RowAnswer>) -> Stored {
        ticket.bury(batch, refused.iter().map(|answer| answer.row));
        let dead = |answer: RowAnswer| Dead {
            row: answer.row,
            reason: answer.reason,
            tag: None,
        };
        let draft = Draft {
            batch: batch.clone(),
            original: None,
            at: self.at.clone(),
            sequence: ticket.sequence(),
            rows: refused.into_iter().map(dead).collect(),
        };
        let (sender, stored) = oneshot::channel();
        // A lane that has ended does not wait any more.
        let done = Box::new(move |result| drop(sender.send(result)));
        self.letters.put(draft, done);
        stored
    }
}

/// What became of letters that were waited for.
pub async fn outcome(stored: Stored) -> Result<u64, Arc<str>> {
    let ended = || Err("the thread that writes dead letters has stopped".into());
    stored.await.unwrap_or_else(|_| ended())
}

/// Refused rows of a batch that is part of requests.
pub struct Refused {
    pub piece: Arc<Piece>,
    pub rows: usize,
    pub stored: Stored,
}

impl Refused {
    /// Waits until they are on disk.
    pub async fn outcome(self) -> (Arc<Piece>, usize, Result<u64, Arc<str>>) {
        (self.piece, self.rows, outcome(self.stored).await)
    }
}
