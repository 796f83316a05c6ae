//! Removing letters of a pipeline that does not run.

use std::sync::{Arc, mpsc};
use std::time::Duration;

use component::{Diagnostics, Phases};
use config::Size;

use super::{DeadLetters, LetterFolder, LetterSettings, Options, Purge, WhenLettersFull};
use crate::QueueError;

/// Why letters were not removed.
#[derive(Debug, thiserror::Error)]
pub enum RemovalError {
    /// The store cannot be used; [`QueueError::InUse`] if a process has it.
    #[error(transparent)]
    Store(#[from] QueueError),
    /// What was removed cannot be written down.
    #[error("{0}")]
    Write(Arc<str>),
}

/// Removes letters of a store that no process has, and gives how many there were.
///
/// # Errors
/// See [`RemovalError`].
pub fn remove(
    store: &LetterFolder,
    purge: Purge,
    diagnostics: Diagnostics,
) -> Result<u64, RemovalError> {
    let letters = DeadLetters::open(Options {
        folder: store.path().to_owned(),
        pipeline: store.pipeline().into(),
        settings: LetterSettings {
            max_bytes: Size(u64::MAX),
            max_age: None,
            when_full: WhenLettersFull::Block,
        },
        phases: Phases::default(),
        give_up_after: Some(Duration::ZERO),
        diagnostics,
    })?;
    let (sender, removed) = mpsc::sync_channel(1);
    letters.purge(purge, Box::new(move |result| drop(sender.send(result))));
    let result = removed.recv();
    letters.close();
    let ended = |_| RemovalError::Write("the thread that writes dead letters has stopped".into());
    result.map_err(ended)?.map_err(RemovalError::Write)
}
