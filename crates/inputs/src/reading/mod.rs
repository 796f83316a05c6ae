//! What inputs that read bytes have in common: from a file or a pipe to batches in the queue.
//!
//! | module | holds |
//! | --- | --- |
//! | [`settings`] | the settings `codec`, `compression`, `add_fields` and `max_line_bytes` |
//! | [`records`] | the settings that say how lines make records |
//! | [`content`] | the content of a file or a pipe, decompressed |
//! | [`reader`] | a content that is being cut into records |
//! | [`emitter`] | [`emitter::Emitter`]: chunks to batches, and these to the queue |
//! | [`splitting`] | the thread that does that for compressed content |
//! | [`pipe`], [`stream`] | pipes and what is read like one, from start to end |
//! | [`filling`] | batches of documents that Millpond writes itself |
//! | [`identity`] | the ids of streams |
//! | [`describe`] | what errors of the system are called |
//!
//! What only files have is in [`crate::file`]: positions, checkpoints, and what becomes of them when they are rotated. A plain
//! stream is read and split by one thread, a compressed one by two where there is a second core.

pub(crate) mod content;
pub(crate) mod describe;
pub(crate) mod emitter;
pub(crate) mod filling;
pub(crate) mod identity;
pub(crate) mod pipe;
pub(crate) mod reader;
pub(crate) mod records;
pub(crate) mod settings;
pub(crate) mod splitting;
pub(crate) mod stream;

use std::panic::resume_unwind;

use component::{InputContext, InputError};

use crate::error::RunError;

/// Runs blocking work of an input on a blocking thread.
///
/// # Errors
/// What the work gives.
pub(crate) async fn on_blocking_thread(
    mut ctx: InputContext,
    work: impl FnOnce(&mut InputContext) -> Vec<String> + Send + 'static,
) -> Result<(), InputError> {
    let work =
        component::thread::start("read", move || work(&mut ctx)).map_err(RunError::ReaderThread)?;
    let problems = match work.ended().await {
        Ok(problems) => problems,
        Err(panic) => resume_unwind(panic),
    };
    if problems.is_empty() {
        Ok(())
    } else {
        Err(InputError { problems })
    }
}
