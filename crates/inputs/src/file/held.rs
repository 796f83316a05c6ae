//! A file that looks like a known one and is not read until it is clear what it is.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::state::File;
use super::watch::FoundFile;

/// How long a compressed copy must not have been written to before it is compared.
pub(super) const QUIET: Duration = Duration::from_secs(2);

/// How long after its copy was written an original may be truncated.
pub(super) const COPY_GRACE: Duration = Duration::from_secs(10);

/// How long a compressed file is not judged again beside its original.
const PACKED_PATIENCE: Duration = Duration::from_secs(3);

/// When a file that could not be read is compared again.
const COMPARE_AGAIN: Duration = Duration::from_secs(10);

/// A file that is not read for now.
pub(crate) struct Held {
    pub(super) found: FoundFile,
    /// The known file that it looks like.
    pub(super) like: Arc<File>,
    pub(super) is_compressed: bool,
    pub(super) stage: Stage,
    /// How it stands to the known file.
    pub(super) wait: Wait,
}

/// What is done with a file that is held back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// It is judged again when something happened, or by time.
    Waiting,
    /// It is not clear what became of the known file, and it is judged again soon.
    Unclear,
    /// It is being looked through.
    Probed,
    /// It was compared as a whole, and is a copy.
    Copy,
    /// It is still being written, and is judged again after a while.
    Growing,
    /// It could not be read, and is judged again after a while.
    Unreadable,
}

/// How a file that was held back stands to the known one that it looks like.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wait {
    /// When it was found so, or changed last.
    pub(super) since: Instant,
    /// The known one was there when it was found.
    pub(super) was_beside: bool,
    /// It was seen to be a part of the known one.
    pub(super) was_part: bool,
}

impl Held {
    /// How long it is not judged again, where nothing happens.
    pub(super) fn patience(&self) -> Duration {
        match self.stage {
            Stage::Growing => QUIET,
            Stage::Unreadable => COMPARE_AGAIN,
            _ if self.is_compressed => PACKED_PATIENCE,
            _ => COPY_GRACE,
        }
    }
}
