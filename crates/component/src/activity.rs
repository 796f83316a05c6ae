//! What each thread of the process works for at each moment: which component of which pipeline.
//!
//! A profiler learns of a sample some time after it was taken, when the thread may be at something else. So each thread notes when it
//! turns to what ([`Activity::enter`]), and whoever reads a sample asks what the thread did at the sample's time ([`Activities::at`]).
//! Threads that [`crate::thread::start`] starts, and futures that [`carry`] wraps, work for what started them.
//!
//! # Limits
//! The last [`NOTES_MAX`] notes of a thread are kept, and those of the last [`ENDED_MAX`] threads that have ended. A note costs a look at the
//! clock and three stores; without a profiler ([`Activities::default`]) nothing is noted.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Instant;

use indexmap::IndexSet;
use parking_lot::Mutex;

use crate::Diagnostics;

/// How many notes of a thread are kept.
pub const NOTES_MAX: usize = CHUNK * CHUNKS;

/// Of how many threads that have ended notes are kept.
pub const ENDED_MAX: usize = 64;

/// Notes come in pieces, so that a thread that always does the same takes little memory.
const CHUNK: usize = 256;
const CHUNKS: usize = 64;

/// The label of a thread that works for no pipeline.
const NOTHING: u32 = 0;

/// What a thread works for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Purpose {
    /// The pipeline.
    pub pipeline: Arc<str>,
    /// The component, as messages name it; empty for the pipeline's own work.
    pub operator: Arc<str>,
}

/// What the threads of a process work for. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Activities(Option<Arc<Board>>);

#[derive(Debug)]
struct Board {
    /// The labels count from 1.
    purposes: Mutex<IndexSet<Purpose>>,
    threads: Mutex<Vec<Arc<Notes>>>,
    origin: Instant,
    origin_ns: u64,
}

impl Activities {
    /// Notes what threads work for from now on.
    pub fn noted() -> Self {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        Self(Some(Arc::new(Board {
            purposes: Mutex::default(),
            threads: Mutex::default(),
            origin: Instant::now(),
            origin_ns: now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64,
        })))
    }

    /// Work for the pipeline and component whose messages these are.
    pub fn of(&self, whose: &Diagnostics) -> Activity {
        let Some(board) = &self.0 else {
            return Activity::default();
        };
        let (pipeline, component) = whose.origin();
        let purpose = Purpose {
            pipeline: pipeline.unwrap_or_default().into(),
            operator: component.map_or_else(|| "".into(), |component| component.to_string().into()),
        };
        let (index, _) = board.purposes.lock().insert_full(purpose);
        Activity {
            board: Some(board.clone()),
            label: u32::try_from(index + 1).unwrap_or(NOTHING),
        }
    }

    /// What a thread, by the system's number, worked for at a time in nanoseconds of the monotonic clock; none where it worked for no
    /// pipeline, or where that is not known any more.
    pub fn at(&self, thread: u32, time_ns: u64) -> Option<Purpose> {
        let board = self.0.as_ref()?;
        let threads = board.threads.lock();
        // The system gives numbers of threads that have ended to others.
        let mut known = threads.iter().rev().filter(|notes| notes.thread == thread);
        let label = known.find_map(|notes| notes.at(time_ns))?;
        drop(threads);
        let index = usize::try_from(label).ok()?.checked_sub(1)?;
        board.purposes.lock().get_index(index).cloned()
    }
}

/// Notes of one thread: each a time and from then on a label. Only the thread writes.
#[derive(Debug)]
struct Notes {
    thread: u32,
    /// How many were written.
    written: AtomicU64,
    chunks: [OnceLock<Box<[Note; CHUNK]>>; CHUNKS],
    has_ended: AtomicBool,
}

#[derive(Debug, Default)]
struct Note {
    time_ns: AtomicU64,
    label: AtomicU64,
}

impl Notes {
    fn new(thread: u32) -> Self {
        Self {
            thread,
            written: AtomicU64::new(0),
            chunks: [const { OnceLock::new() }; CHUNKS],
            has_ended: AtomicBool::new(false),
        }
    }

    fn write(&self, time_ns: u64, label: u32) {
        let number = self.written.load(Ordering::Relaxed);
        let index = number as usize % NOTES_MAX;
        let chunk = self.chunks[index / CHUNK]
            .get_or_init(|| Box::new(std::array::from_fn(|_| Note::default())));
        let note = &chunk[index % CHUNK];
        note.time_ns.store(time_ns, Ordering::Release);
        note.label.store(u64::from(label), Ordering::Release);
        self.written.store(number + 1, Ordering::Release);
    }

    /// The label at a time; none before the first note that is kept.
    fn at(&self, time_ns: u64) -> Option<u32> {
        let written = self.written.load(Ordering::Acquire);
        let oldest = written.saturating_sub(NOTES_MAX as u64);
        let mut number = written;
        let mut label = None;
        while number > oldest {
            number -= 1;
            let index = number as usize % NOTES_MAX;
            let note = &self.chunks[index / CHUNK].get()?[index % CHUNK];
            if note.time_ns.load(Ordering::Acquire) <= time_ns {
                label = Some(note.label.load(Ordering::Acquire) as u32);
                break;
            }
        }
        // What was read may have been written over meanwhile, the note that is being written included.
        let is_kept = self.written.load(Ordering::Acquire) < number + NOTES_MAX as u64;
        label.filter(|_| is_kept)
    }
}

impl Board {
    fn time_ns(&self) -> u64 {
        self.origin_ns + self.origin.elapsed().as_nanos() as u64
    }

    fn register(self: &Arc<Self>) -> Track {
        let thread = rustix::thread::gettid().as_raw_nonzero().get();
        let notes = Arc::new(Notes::new(thread.unsigned_abs()));
        let mut threads = self.threads.lock();
        let mut ended: VecDeque<usize> = (0..threads.len())
            .filter(|index| threads[*index].has_ended.load(Ordering::Relaxed))
            .collect();
        if ended.len() > ENDED_MAX {
            let oldest = ended.pop_front().map(|index| threads.remove(index));
            drop(oldest);
        }
        threads.push(notes.clone());
        Track {
            board: self.clone(),
            notes,
            label: NOTHING,
        }
    }
}

/// A thread's notes, as the thread has them.
struct Track {
    board: Arc<Board>,
    notes: Arc<Notes>,
    label: u32,
}

impl Track {
    /// Turns to something else; what it was.
    fn turn(&mut self, label: u32) -> u32 {
        if label != self.label {
            self.notes.write(self.board.time_ns(), label);
        }
        std::mem::replace(&mut self.label, label)
    }
}

impl Drop for Track {
    fn drop(&mut self) {
        self.notes.has_ended.store(true, Ordering::Relaxed);
    }
}

thread_local! {
    static TRACK: RefCell<Option<Track>> = const { RefCell::new(None) };
}

/// Something that threads work for. Clones are the same.
#[derive(Debug, Clone, Default)]
pub struct Activity {
    board: Option<Arc<Board>>,
    label: u32,
}

/// That this thread works for something, until this is dropped; then it works for what it did before.
#[derive(Debug)]
#[must_use = "the thread works for it until this is dropped"]
pub struct Entered {
    /// What the thread did before; none where nothing is noted.
    before: Option<u32>,
    of_thread: PhantomData<*const ()>,
}

impl Activity {
    /// This thread works for it from now on.
    pub fn enter(&self) -> Entered {
        let enter = |board: &Arc<Board>| {
            TRACK.with_borrow_mut(|track| {
                let is_known = |track: &&mut Track| Arc::ptr_eq(&track.board, board);
                let track = match track.as_mut().filter(is_known) {
                    Some(_) => track.as_mut(),
                    None => Some(track.insert(board.register())),
                };
                track.map(|track| track.turn(self.label))
            })
        };
        Entered {
            before: self.board.as_ref().and_then(enter),
            of_thread: PhantomData,
        }
    }

    /// A future, whoever polls it works for this.
    pub fn carry<F: Future>(&self, future: F) -> Carried<F> {
        Carried {
            activity: self.clone(),
            future: Box::pin(future),
        }
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        let Some(before) = self.before else { return };
        // At the end of a thread nobody notes anything any more.
        let _ = TRACK.try_with(|track| {
            if let Some(track) = &mut *track.borrow_mut() {
                track.turn(before);
            }
        });
    }
}

/// What this thread works for.
pub fn current() -> Activity {
    TRACK.with_borrow(|track| match track {
        Some(track) if track.label != NOTHING => Activity {
            board: Some(track.board.clone()),
            label: track.label,
        },
        _ => Activity::default(),
    })
}

/// A future, whoever polls it works for what this thread works for now.
pub fn carry<F: Future>(future: F) -> Carried<F> {
    current().carry(future)
}

/// A future whose thread works for something while it polls.
#[derive(Debug)]
pub struct Carried<F> {
    activity: Activity,
    future: Pin<Box<F>>,
}

impl<F: Future> Future for Carried<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let this = &mut *self;
        let _entered = this.activity.enter();
        this.future.as_mut().poll(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Role;

    fn web(activities: &Activities, name: &str) -> Activity {
        let web = Diagnostics::silent().for_pipeline("web");
        activities.of(&web.for_component(Role::Processor, name))
    }

    fn thread() -> u32 {
        let thread = rustix::thread::gettid().as_raw_nonzero().get();
        thread.unsigned_abs()
    }

    fn now(activities: &Activities) -> u64 {
        std::thread::sleep(std::time::Duration::from_micros(10));
        activities.0.as_ref().expect("noted").time_ns()
    }

    #[test]
    fn a_time_gives_what_the_thread_did_then() {
        let activities = Activities::noted();
        let (grok, date) = (web(&activities, "grok"), web(&activities, "date"));
        let mut times = vec![now(&activities)];
        {
            let _grok = grok.enter();
            times.push(now(&activities));
            {
                let _date = date.enter();
                times.push(now(&activities));
            }
            times.push(now(&activities));
        }
        times.push(now(&activities));
        let at = |time| {
            activities
                .at(thread(), time)
                .map(|it| it.operator.to_string())
        };
        let names: Vec<_> = times.iter().map(|time| at(*time)).collect();
        let expected = [
            None,
            Some("processor grok"),
            Some("processor date"),
            Some("processor grok"),
            None,
        ];
        assert_eq!(names, expected.map(|name| name.map(str::to_owned)));
        let purpose = activities.at(thread(), times[1]).expect("it was at work");
        assert_eq!(&*purpose.pipeline, "web");
        assert_eq!(activities.at(1, times[1]), None);
    }

    #[test]
    fn old_notes_are_forgotten_and_not_mistaken() {
        let activities = Activities::noted();
        let (grok, date) = (web(&activities, "grok"), web(&activities, "date"));
        let first = {
            let _grok = grok.enter();
            now(&activities)
        };
        assert!(activities.at(thread(), first).is_some());
        for _ in 0..NOTES_MAX {
            let _date = date.enter();
        }
        assert_eq!(activities.at(thread(), first), None);
        let last = {
            let _grok = grok.enter();
            now(&activities)
        };
        let purpose = activities.at(thread(), last).expect("it was at work");
        assert_eq!(&*purpose.operator, "processor grok");
    }

    #[tokio::test]
    async fn threads_and_futures_inherit_it() {
        let activities = Activities::noted();
        let grok = web(&activities, "grok");
        let inherit = async {
            let of_task = tokio::spawn(carry(async { current().label }));
            let of_thread = crate::thread::start("test", || current().label).expect("a thread");
            (
                of_task.await.expect("no panic"),
                of_thread.ended().await.expect("no panic"),
            )
        };
        assert_eq!(grok.carry(inherit).await, (grok.label, grok.label));
        assert_eq!(current().label, NOTHING);
    }

    #[test]
    fn without_a_profiler_nothing_is_noted() {
        let activities = Activities::default();
        let _grok = web(&activities, "grok").enter();
        assert!(current().board.is_none());
        assert_eq!(activities.at(thread(), u64::MAX), None);
    }

    #[test]
    fn threads_that_have_ended_are_forgotten_in_the_end() {
        let activities = Activities::noted();
        let grok = web(&activities, "grok");
        for _ in 0..3 * ENDED_MAX {
            let grok = grok.clone();
            let work = move || drop(grok.enter());
            crate::thread::start("test", work)
                .expect("a thread")
                .join()
                .expect("no panic");
        }
        let known = activities.0.as_ref().expect("noted").threads.lock().len();
        assert!(known <= ENDED_MAX + 2, "{known}");
    }
}
