//! Looks through the content of a file without delivering it: to see whether it is one that is known already.
//!
//! A compressed copy of a log can only be recognised by inflating it. The checkpoints that this gives make going on in
//! it immediate.

use std::io;
use std::sync::Arc;

use codec::compress::Format;

use super::content::{Content, Scratch};
use super::state::{File, StoredCheckpoint};
use super::trail::Trail;
use super::watch::FoundFile;
use crate::reading::content::Got;

/// Decompressed bytes looked through at once.
const SLICE_BYTES: u64 = 16 << 20;

/// Why a file is looked through.
pub(crate) enum Purpose {
    /// It may hold what this file held, and is read up to where that one was read to.
    Adopt(Arc<File>),
    /// It may be a copy of this file, which is still there, and is read to its end.
    Compare(Arc<File>),
    /// It begins with this and is only read to its end, to know how long it is.
    Measure(Vec<u8>),
}

/// A file that is looked through.
pub(crate) struct Probe {
    pub(crate) found: FoundFile,
    pub(crate) format: Option<Format>,
    pub(crate) purpose: Purpose,
    /// The known files that it was compared with and that it is not.
    pub(crate) unlike: Vec<u128>,
    /// Up to where the known file was read.
    pub(crate) position: u64,
    /// The place to look through up to.
    pub(crate) target: u64,
    /// What was passed so far.
    pub(crate) trail: Trail,
    /// The newest checkpoint so far.
    pub(crate) checkpoint: Option<StoredCheckpoint>,
    content: Option<Content>,
}

/// What came of it.
#[derive(Debug)]
pub(crate) enum Seen {
    /// There is more to look through.
    More,
    /// The target was reached.
    Reached,
    /// The content ends here, before the target. `is_whole` says whether it cannot go on.
    Ended { at: u64, is_whole: bool },
    /// It cannot be read.
    Failed(io::Error),
}

impl Probe {
    /// Looks through a file up to `target`.
    pub(crate) fn new(
        found: FoundFile,
        format: Option<Format>,
        purpose: Purpose,
        target: u64,
        unlike: Vec<u128>,
    ) -> Box<Self> {
        Box::new(Self {
            found,
            format,
            purpose,
            unlike,
            position: target,
            target,
            trail: Trail::default(),
            checkpoint: None,
            content: None,
        })
    }

    /// Looks through some of it.
    pub(crate) fn slice(&mut self, scratch: &mut Scratch) -> Seen {
        match self.look(scratch) {
            Ok(seen) => seen,
            Err(error) => Seen::Failed(error),
        }
    }

    fn look(&mut self, scratch: &mut Scratch) -> io::Result<Seen> {
        if self.content.is_none() {
            let file = self.found.open()?;
            let content = Content::of_file(file, self.format, None).map_err(io::Error::other)?;
            self.content = Some(content);
        }
        let content = self.content.as_mut().expect("it was opened before");
        let got = content.pass(self.target, SLICE_BYTES, &mut self.trail, scratch)?;
        if let Some(checkpoint) = content.take_checkpoint() {
            self.checkpoint = StoredCheckpoint::new(&checkpoint, content.file()).ok();
        }
        let at = content.offset();
        if at < self.target && !content.is_compressed() {
            // It is compared by more than its last bytes.
            self.trail = content.retrace(scratch)?;
        }
        Ok(match got {
            _ if at == self.target => Seen::Reached,
            Got::Bytes(_) if content.is_compressed() => Seen::More,
            Got::End | Got::Broken(_) => Seen::Ended { at, is_whole: true },
            Got::Bytes(_) | Got::Nothing | Got::Truncated(_) | Got::Replaced => Seen::Ended {
                at,
                is_whole: false,
            },
        })
    }
}
