//! What each thread of the process works for at each moment, which component of which pipeline, and the CPU time that it takes for it.
//!
//! A thread says when it turns to what ([`Activity::enter`]). The CPU time that it has used since it last said so is charged to what it worked
//! for until then ([`OperatorMetrics::cpu`]); time for no pipeline is [`Activities::runtime_cpu`]. Threads that [`crate::thread::start`]
//! starts, and futures that [`carry`] wraps, work for what started them. A thread that stays with one component calls [`charge`] once a batch,
//! so that the counters of a running process are up to date.
//!
//! A profiler learns of a sample some time after it was taken, when the thread may be at something else. For it, each thread also notes
//! when it turned to what ([`Activities::noted`]), and whoever reads a sample asks what the thread did at the sample's time ([`Activities::at`]).
//!
//! # Costs and limits
//! To turn to something reads the thread's CPU clock, a system call of 0.1 to 0.3 µs. Operators do so twice a batch, futures twice a poll. A note
//! costs a look at the clock and three stores more; without a profiler none is taken. The last [`NOTES_MAX`] notes of a thread are kept,
//! and those of the last [`ENDED_MAX`] threads that have ended.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use indexmap::IndexSet;
use parking_lot::Mutex;

use crate::{Diagnostics, OperatorMetrics};

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
pub struct Activities(Arc<Board>);

#[derive(Debug, Default)]
struct Board {
    /// CPU time of threads that say what they work for, while they worked for no pipeline.
    runtime_cpu_ns: AtomicU64,
    /// What a profiler needs; none where there is none.
    notes: Option<NoteBoard>,
}

#[derive(Debug)]
struct NoteBoard {
    /// The labels count from 1.
    purposes: Mutex<IndexSet<Purpose>>,
    threads: Mutex<Vec<Arc<Notes>>>,
    origin: Instant,
    origin_ns: u64,
}

impl Activities {
    /// Also notes for a profiler what threads work for from now on.
    pub fn noted() -> Self {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        Self(Arc::new(Board {
            runtime_cpu_ns: AtomicU64::new(0),
            notes: Some(NoteBoard {
                purposes: Mutex::default(),
                threads: Mutex::default(),
                origin: Instant::now(),
                origin_ns: now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64,
            }),
        }))
    }

    /// Work for the pipeline and component whose messages these are; its CPU time is charged to these counters.
    pub fn of(&self, whose: &Diagnostics, metrics: &Arc<OperatorMetrics>) -> Activity {
        let label = self.0.notes.as_ref().map_or(NOTHING, |notes| {
            let (pipeline, component) = whose.origin();
            let component = component.as_ref().map(ToString::to_string);
            notes.label(Purpose {
                pipeline: pipeline.unwrap_or_default().into(),
                operator: component.unwrap_or_default().into(),
            })
        });
        Activity(Some(Arc::new(Account {
            board: self.0.clone(),
            label,
            metrics: metrics.clone(),
        })))
    }

    /// CPU time that threads which also work for pipelines used for none: the async runtime's and the workers' own.
    pub fn runtime_cpu(&self) -> Duration {
        Duration::from_nanos(self.0.runtime_cpu_ns.load(Ordering::Relaxed))
    }

    /// What a thread, by the system's number, worked for at a time in nanoseconds of the monotonic clock; none where it worked for no
    /// pipeline, or where that is not known any more.
    pub fn at(&self, thread: u32, time_ns: u64) -> Option<Purpose> {
        let board = self.0.notes.as_ref()?;
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

impl NoteBoard {
    fn time_ns(&self) -> u64 {
        self.origin_ns + self.origin.elapsed().as_nanos() as u64
    }

    fn label(&self, purpose: Purpose) -> u32 {
        let (index, _) = self.purposes.lock().insert_full(purpose);
        u32::try_from(index + 1).unwrap_or(NOTHING)
    }

    fn register(&self) -> Arc<Notes> {
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
        notes
    }
}

/// CPU time of this thread so far, in nanoseconds.
fn thread_cpu_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// What a thread works for, and what it has charged so far.
struct Track {
    board: Arc<Board>,
    notes: Option<Arc<Notes>>,
    /// None while it works for no pipeline.
    account: Option<Arc<Account>>,
    charged_ns: u64,
}

impl Track {
    fn new(board: &Arc<Board>) -> Self {
        Self {
            board: board.clone(),
            notes: board.notes.as_ref().map(NoteBoard::register),
            account: None,
            // What came before is not known to be of the run.
            charged_ns: thread_cpu_ns(),
        }
    }

    /// Charges what the thread has used since the last time.
    fn charge(&mut self) {
        let now_ns = thread_cpu_ns();
        let used_ns = now_ns.saturating_sub(self.charged_ns);
        self.charged_ns = now_ns;
        match &self.account {
            Some(account) => account.metrics.cpu(Duration::from_nanos(used_ns)),
            None => {
                let runtime = &self.board.runtime_cpu_ns;
                runtime.fetch_add(used_ns, Ordering::Relaxed);
            }
        }
    }

    /// Turns to something else; what it was.
    fn turn(&mut self, account: Option<Arc<Account>>) -> Option<Arc<Account>> {
        self.charge();
        if let (Some(notes), Some(board)) = (&self.notes, &self.board.notes) {
            let label =
                |account: &Option<Arc<Account>>| account.as_ref().map_or(NOTHING, |it| it.label);
            if label(&account) != label(&self.account) {
                notes.write(board.time_ns(), label(&account));
            }
        }
        std::mem::replace(&mut self.account, account)
    }
}

impl Drop for Track {
    fn drop(&mut self) {
        self.charge();
        if let Some(notes) = &self.notes {
            notes.has_ended.store(true, Ordering::Relaxed);
        }
    }
}

thread_local! {
    static TRACK: RefCell<Option<Track>> = const { RefCell::new(None) };
}

/// Something that threads work for; by default nothing, so that who worked for something goes on with it. Clones are the same.
#[derive(Debug, Clone, Default)]
pub struct Activity(Option<Arc<Account>>);

#[derive(Debug)]
struct Account {
    board: Arc<Board>,
    label: u32,
    metrics: Arc<OperatorMetrics>,
}

/// That this thread works for something, until this is dropped; then it works for what it did before.
#[derive(Debug)]
#[must_use = "the thread works for it until this is dropped"]
pub struct Entered {
    /// Whether the thread turned to anything.
    has_turned: bool,
    /// What it did before.
    before: Option<Arc<Account>>,
    of_thread: PhantomData<*const ()>,
}

impl Activity {
    /// This thread works for it from now on.
    pub fn enter(&self) -> Entered {
        let enter = |account: &Arc<Account>| {
            TRACK.with_borrow_mut(|track| {
                let is_known = |track: &&mut Track| Arc::ptr_eq(&track.board, &account.board);
                let track = match track.as_mut().filter(is_known) {
                    Some(_) => track.as_mut(),
                    None => Some(track.insert(Track::new(&account.board))),
                };
                track.and_then(|track| track.turn(Some(account.clone())))
            })
        };
        Entered {
            has_turned: self.0.is_some(),
            before: self.0.as_ref().and_then(enter),
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
        if !self.has_turned {
            return;
        }
        // At the end of a thread nobody notes anything any more.
        let _ = TRACK.try_with(|track| {
            if let Some(track) = &mut *track.borrow_mut() {
                track.turn(self.before.take());
            }
        });
    }
}

/// Charges the CPU time that this thread has used since the last time to what it works for.
pub fn charge() {
    TRACK.with_borrow_mut(|track| {
        if let Some(track) = track {
            track.charge();
        }
    });
}

/// What this thread works for.
pub fn current() -> Activity {
    Activity(TRACK.with_borrow(|track| track.as_ref()?.account.clone()))
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
        activities.of(&web.for_component(Role::Processor, name), &Arc::default())
    }

    fn thread() -> u32 {
        let thread = rustix::thread::gettid().as_raw_nonzero().get();
        thread.unsigned_abs()
    }

    fn now(activities: &Activities) -> u64 {
        std::thread::sleep(Duration::from_micros(10));
        activities.0.notes.as_ref().expect("noted").time_ns()
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
        let label = || current().0.map_or(NOTHING, |account| account.label);
        let inherit = async {
            let of_task = tokio::spawn(carry(async move { label() }));
            let of_thread = crate::thread::start("test", label).expect("a thread");
            (
                of_task.await.expect("no panic"),
                of_thread.ended().await.expect("no panic"),
            )
        };
        assert_eq!(grok.carry(inherit).await, (1, 1));
        assert_eq!(label(), NOTHING);
    }

    #[test]
    fn without_a_profiler_nothing_is_noted() {
        let activities = Activities::default();
        let _grok = web(&activities, "grok").enter();
        assert_eq!(activities.at(thread(), u64::MAX), None);
    }

    /// Uses CPU time.
    fn work(time: Duration) {
        let begin_ns = thread_cpu_ns();
        while thread_cpu_ns() - begin_ns < time.as_nanos() as u64 {
            std::hint::black_box(thread_cpu_ns());
        }
    }

    #[test]
    fn cpu_time_is_charged_to_what_the_thread_works_for() {
        const TIME: Duration = Duration::from_millis(20);
        let activities = Activities::default();
        let metrics: [Arc<OperatorMetrics>; 2] = Default::default();
        let silent = Diagnostics::silent();
        let [input, grok] = metrics.each_ref().map(|it| activities.of(&silent, it));
        let spent = || metrics.each_ref().map(|it| it.snapshot().cpu);
        let thread = std::thread::spawn(move || {
            let _input = input.enter();
            work(TIME);
            let entered = grok.enter();
            work(2 * TIME);
            // Waiting is not charged.
            std::thread::sleep(TIME);
            drop(entered);
            work(TIME);
            // What is charged is charged once.
            charge();
            charge();
        });
        thread.join().expect("no panic");
        let expected = [2 * TIME, 2 * TIME];
        for (spent, expected) in spent().iter().zip(expected) {
            let limit = expected + TIME / 2;
            assert!(*spent >= expected && *spent < limit, "{spent:?}");
        }
        assert!(activities.runtime_cpu() < TIME / 2);
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
        let known = activities
            .0
            .notes
            .as_ref()
            .expect("noted")
            .threads
            .lock()
            .len();
        assert!(known <= ENDED_MAX + 2, "{known}");
    }
}
