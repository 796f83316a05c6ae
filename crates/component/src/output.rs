//! Outputs: they take events out of the pipeline.
//!
//! Work is split in two, so that an output that must keep order does not hold back the cores: [`Output::encode`] turns
//! rows into bytes on whichever worker has the batch, [`Output::write`] hands the bytes on, in sequence where the output
//! asks for it. The pipeline owns retry, backoff and shutdown; an output says what became of each write.

use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use batch::{Batch, Bitmap};

/// Takes events out of the pipeline.
#[async_trait]
pub trait Output: Send + Sync {
    /// Mends what an earlier run left behind. Called once, on the thread that writes and before anything is written; not when
    /// a configuration is only checked. What fails here is told as a warning, or by the first write.
    async fn start(&self) {}

    /// Renders rows of a batch into `encoded`, which is empty. Called on any worker, for several batches at once.
    fn encode(&self, batch: &Batch, rows: &Bitmap, encoded: &mut Encoded);

    /// Hands the bytes on.
    ///
    /// # Errors
    /// The whole write failed. After [`WriteError::Retry`] the same bytes are written again; what was already taken
    /// must not be taken twice.
    async fn write(&self, encoded: &Encoded) -> Result<Written, WriteError>;

    /// What no other component of the process may use at the same time, such as a file that is written.
    fn exclusive(&self) -> Option<String> {
        None
    }

    /// Makes everything written so far safe by the output's stated durability.
    ///
    /// # Errors
    /// As for [`Output::write`].
    async fn flush(&self) -> Result<(), WriteError> {
        Ok(())
    }

    /// Flushes and lets go of everything. Nothing is written afterwards. Not called when the output has failed.
    ///
    /// # Errors
    /// As for [`Output::write`].
    async fn close(&self) -> Result<(), WriteError> {
        self.flush().await
    }

    /// Named counters beside those that the engine keeps itself, such as files rotated, since the last call.
    fn take_counters(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }

    /// What a user should hear, such as a torn line that was cut from a file, since the last call. Whoever calls logs
    /// each text as a warning that names the output.
    fn take_warnings(&self) -> Vec<String> {
        Vec::new()
    }
}

/// Rows of one batch as an output renders them. Reused from batch to batch, so that its memory stays warm.
#[derive(Debug, Default)]
pub struct Encoded {
    /// The bytes of all parts, one after the other.
    pub bytes: Vec<u8>,
    /// Bytes by destination, for outputs that have several. Empty where there is one destination.
    pub parts: Vec<Part>,
    /// Rows that cannot be rendered, with the reason.
    pub refused: Vec<Refused>,
    /// Number of rows in `bytes`.
    pub rows: usize,
}

impl Encoded {
    /// Forgets the content and keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.parts.clear();
        self.refused.clear();
        self.rows = 0;
    }
}

/// The bytes that go to one destination.
#[derive(Debug, Clone)]
pub struct Part {
    /// The destination, such as a file's path.
    pub destination: Arc<str>,
    /// Where the bytes lie.
    pub bytes: Range<usize>,
    /// The rows in them, in order.
    pub rows: Vec<usize>,
}

/// A row that an output will never take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// The row in its batch.
    pub row: usize,
    /// Why.
    pub reason: Arc<str>,
}

/// What became of a write that did not fail as a whole.
#[derive(Debug, Default)]
pub struct Written {
    /// Rows to write again.
    pub retry: Vec<usize>,
    /// Rows that the destination refuses for good.
    pub refused: Vec<Refused>,
    /// Whether the other rows are safe only after the next [`Output::flush`].
    pub until_flush: bool,
}

impl From<()> for Written {
    fn from((): ()) -> Self {
        Self::default()
    }
}

/// Why a whole write failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    /// It may work later: a full disk, a destination that is away.
    #[error("{0}")]
    Retry(String),
    /// It works once a person has mended something: a directory that is gone, missing permissions. A service tries again as
    /// after [`WriteError::Retry`]; a run that ends with its inputs gives up at once.
    #[error("{0}")]
    Blocked(String),
    /// The reader is gone and wants no more: the pipeline ends without an error.
    #[error("the reader closed the pipe")]
    Closed,
    /// It will never work, or what was written may be lost. The output fails for good, as it does when one of its functions
    /// panics: it is not called again, and what it did not take stays in the queue or counts as not delivered.
    #[error("{0}")]
    Fatal(String),
}
