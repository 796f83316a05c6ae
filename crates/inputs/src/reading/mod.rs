//! What inputs that read bytes have in common: from a file or a pipe to batches in the queue.
//!
//! | module | holds |
//! | --- | --- |
//! | [`settings`] | the settings `codec`, `compression`, `add_fields` and `max_line_bytes` |
//! | [`records`] | the settings that say how lines make records |
//! | [`source`] | where bytes come from: a file, or something that may keep us waiting |
//! | [`identity`] | the ids of streams |
//! | [`reader`] | [`Reader`]: one stream from its start to its end, decompressed, as chunks |
//! | [`emitter`] | [`Emitter`]: chunks to batches, and these to the queue |
//!
//! A plain stream is read and split by one thread. A compressed one is inflated by a thread of its own where there is a
//! second core, because inflating takes longer than splitting.

pub(crate) mod emitter;
pub(crate) mod identity;
pub(crate) mod reader;
pub(crate) mod records;
pub(crate) mod settings;
pub(crate) mod source;

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::panic::resume_unwind;
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use batch::Stream;
use codec::Chunk;
use component::{InputContext, InputError, Limit};

use emitter::{Emitter, End};
use identity::Identity;
use reader::{Reader, STOP_CHECK_TIME, describe};
use settings::Compression;
use source::Source;

/// Chunks between the inflating and the splitting thread, beside the one that each works on.
const CHUNKS_BETWEEN: usize = 2;

/// How long a pipe may lack a writer before somebody is told.
const WRITER_PATIENCE: Duration = Duration::from_secs(1);

/// Reads a stream to its end. Problems are pushed to `problems`.
///
/// # Errors
/// The pipeline takes no more.
pub(crate) fn read_stream(
    mut reader: Reader,
    emitter: &mut Emitter,
    problems: &mut Vec<String>,
) -> Result<(), End> {
    let name = reader.name().to_owned();
    reader.recognise();
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let (end, problem) = if reader.is_compressed() && cores > 1 {
        read_on_two_threads(reader, emitter)
    } else {
        read_here(reader, emitter)
    };
    let mut tell = |problem: String| problems.push(format!("{name}: {problem}"));
    match end {
        Err(End::Broken(broken)) => tell(broken),
        Err(End::Stopped) => return Err(End::Stopped),
        Ok(()) => problem.into_iter().for_each(tell),
    }
    Ok(())
}

/// Reads and emits on this thread.
fn read_here(mut reader: Reader, emitter: &mut Emitter) -> (Result<(), End>, Option<String>) {
    let mut end = Ok(());
    while end.is_ok()
        && let Some((stream, chunk)) = reader.next_chunk()
    {
        end = emitter.emit(&stream, chunk);
    }
    (end, reader.into_problem())
}

/// Reads on a second thread and emits on this one; all on this one where the system refuses a second.
fn read_on_two_threads(reader: Reader, emitter: &mut Emitter) -> (Result<(), End>, Option<String>) {
    // The thread takes it from here; if there is none, it is still there to be read on this one.
    let shared = &Mutex::new(Some(reader));
    thread::scope(|scope| {
        let (sender, receiver) = sync_channel::<(Arc<Stream>, Chunk)>(CHUNKS_BETWEEN);
        let take = || shared.lock().unwrap_or_else(PoisonError::into_inner).take();
        let read = move || {
            let mut reader = take()?;
            while let Some(chunk) = reader.next_chunk() {
                if sender.send(chunk).is_err() {
                    break;
                }
            }
            reader.into_problem()
        };
        let thread = match thread::Builder::new()
            .name("inflate".to_owned())
            .spawn_scoped(scope, read)
        {
            Ok(thread) => thread,
            Err(_) => return take().map_or((Ok(()), None), |reader| read_here(reader, emitter)),
        };
        // The receiver goes at the end of the loop, which ends the thread's sending where this side ended first.
        let end = receiver
            .into_iter()
            .try_for_each(|(stream, chunk)| emitter.emit(&stream, chunk));
        let problem = thread.join().unwrap_or_else(|panic| resume_unwind(panic));
        (end, problem)
    })
}

/// Runs blocking work of an input on a blocking thread.
///
/// # Errors
/// What the work gives.
pub(crate) async fn on_blocking_thread(
    ctx: InputContext,
    work: impl FnOnce(&InputContext) -> Vec<String> + Send + 'static,
) -> Result<(), InputError> {
    let work =
        component::thread::start("read", move || work(&ctx)).map_err(|error| no_thread(&error))?;
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

/// The system refuses the thread that an input reads on.
pub(crate) fn no_thread(error: &io::Error) -> InputError {
    InputError::new(format!("cannot create a reader thread: {error}"))
}

/// A reader of something that is no regular file, such as a named pipe. None when it was time to stop before somebody
/// opened the pipe to write.
///
/// # Errors
/// It cannot be opened.
pub(crate) fn open_pipe(
    path: &Path,
    compression: Compression,
    settings: &codec::Settings,
    ctx: &InputContext,
) -> Result<Option<Reader>, String> {
    let Some(file) = open_patiently(path, ctx).map_err(|error| describe(&error))? else {
        return Ok(None);
    };
    let found = file.metadata().map_err(|error| describe(&error))?;
    let shown = path.to_string_lossy();
    let (device, inode) = (found.dev().to_le_bytes(), found.ino().to_le_bytes());
    let identity = Identity::new([ctx.host.name.as_bytes(), shown.as_bytes(), &device, &inode]);
    Ok(Some(Reader::new(
        &shown,
        batch::Source::File {
            path: shown.as_ref().into(),
        },
        identity,
        Source::Pipe(file.into()),
        compression,
        settings,
        ctx,
    )))
}

/// Opens a file on a thread of its own, because a named pipe keeps its opener until a writer comes; none when it was time
/// to stop before. The thread then waits on, and ends with the process at the latest.
fn open_patiently(path: &Path, ctx: &InputContext) -> io::Result<Option<File>> {
    let (opened, receiver) = sync_channel(1);
    let owned = path.to_owned();
    // Where nobody waits any more the file is closed again.
    let open = move || drop(opened.send(File::open(owned)));
    thread::Builder::new().name("open".to_owned()).spawn(open)?;
    let begin = Instant::now();
    while !ctx.stop.is_stopped() {
        match receiver.recv_timeout(STOP_CHECK_TIME) {
            Ok(file) => return file.map(Some),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                return Err(io::Error::other("the thread that opens it has ended"));
            }
        }
        if begin.elapsed() >= WRITER_PATIENCE {
            let shown = path.display().to_string();
            let limit = Limit::once_for("pipe without writer", &shown);
            ctx.diagnostics.warn_limited(limit, || {
                format!("{shown}: is a pipe without a writer; waiting for one")
            });
        }
    }
    Ok(None)
}
