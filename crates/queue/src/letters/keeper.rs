//! The thread that writes the letters of a pipeline: many at a time, with one sync.

use std::collections::{HashSet, VecDeque};
use std::io;
use std::mem;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use component::thread::{self, Work};
use component::{Diagnostics, Limit, Phase, Phases, plural_were};
use parking_lot::{Condvar, Mutex, MutexGuard};

use super::store::{Prepared, Store, StoreError};
use super::{Draft, LetterSettings, Purge};
use crate::QueueError;

/// The first pause after a failure, and the longest.
const PAUSE: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// How often it is looked whether the pipeline is on its way to its end.
const LOOK: Duration = Duration::from_millis(200);

/// How often it is looked which letters are too old.
const AGE_CHECK: Duration = Duration::from_secs(1);

/// Told what became of letters or of a removal: how many there were, or why they are not written.
pub type Done = Box<dyn FnOnce(Result<u64, Arc<str>>) + Send>;

/// Letters to be written, and numbers to be removed, each with whoever waits for it.
type Drafts = Vec<(Draft, Done)>;
type Removals = Vec<(Removal, Done)>;

/// Numbers to be removed.
enum Removal {
    /// Whatever becomes of them.
    Purge(Purge),
    /// Because they were delivered, or became letters once more.
    Settle(Vec<Range<u64>>),
}

/// What a store is opened with.
#[derive(Debug, Clone)]
pub struct Options {
    /// Its folder.
    pub folder: PathBuf,
    /// The pipeline.
    pub pipeline: Arc<str>,
    /// How it is kept.
    pub settings: LetterSettings,
    /// How far the pipeline is on its way to its end.
    pub phases: Phases,
    /// How long writing is tried again; none for as long as it takes.
    pub give_up_after: Option<Duration>,
    /// Where warnings go.
    pub diagnostics: Diagnostics,
}

/// The dead letters of a pipeline that runs.
pub struct DeadLetters {
    options: Options,
    inbox: Mutex<Inbox>,
    wake: Condvar,
    thread: Mutex<Option<Work<()>>>,
    /// Letters on their way again that became letters once more.
    again: Mutex<HashSet<u64>>,
    counts: Mutex<Counts>,
}

/// What became of letters beside being written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Dropped because the store had its largest size.
    pub dropped: u64,
    /// Dropped because they were too old.
    pub expired: u64,
}

#[derive(Default)]
struct Inbox {
    drafts: Drafts,
    removals: Removals,
    is_open: bool,
    is_closed: bool,
}

impl std::fmt::Debug for DeadLetters {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DeadLetters")
            .field("folder", &self.options.folder)
            .finish_non_exhaustive()
    }
}

impl DeadLetters {
    /// The letters of a pipeline. The folder is made for the first one; where it is there, it is opened now.
    ///
    /// # Errors
    /// Another process has the folder, a later version wrote there, or the system refused.
    pub fn open(options: Options) -> Result<Arc<Self>, QueueError> {
        let letters = Arc::new(Self {
            options,
            inbox: Mutex::default(),
            wake: Condvar::new(),
            thread: Mutex::default(),
            again: Mutex::default(),
            counts: Mutex::default(),
        });
        if letters.options.folder.exists() {
            let (store, notes) = Store::open(&letters.options.folder, letters.options.settings)?;
            letters.say(notes);
            letters.start(Some(store)).map_err(QueueError::Thread)?;
        }
        Ok(letters)
    }

    /// The folder.
    pub fn folder(&self) -> &std::path::Path {
        &self.options.folder
    }

    /// Has letters written. `done` is called on the store's own thread when they are on disk, with how many there were that were
    /// not there already.
    pub fn put(self: &Arc<Self>, draft: Draft, done: Done) {
        self.send(|inbox| inbox.drafts.push((draft, done)));
    }

    /// Has letters removed. `done` is told how many there were.
    pub fn purge(self: &Arc<Self>, purge: Purge, done: Done) {
        self.send(|inbox| inbox.removals.push((Removal::Purge(purge), done)));
    }

    /// Has letters removed whose events were delivered or became letters once more. Those that were refused again and stay as they
    /// are, because the store is full, are not.
    pub fn settle(self: &Arc<Self>, numbers: Vec<Range<u64>>, done: Done) {
        self.send(|inbox| inbox.removals.push((Removal::Settle(numbers), done)));
    }

    /// Whether a letter that was on its way again became one once more. Answered once.
    pub fn take_again(&self, number: u64) -> bool {
        lock(&self.again).remove(&number)
    }

    /// What became of letters so far.
    pub fn counts(&self) -> Counts {
        *lock(&self.counts)
    }

    /// Nothing more is handed over.
    pub fn close(&self) {
        lock(&self.inbox).is_closed = true;
        self.wake.notify_all();
    }

    /// Waits until everything was written or given up, after [`DeadLetters::close`].
    pub async fn ended(&self) {
        let thread = lock(&self.thread).take();
        if let Some(thread) = thread {
            // A panic there has been said; nobody was told that its letters are safe.
            let _ = thread.ended().await;
        }
    }

    fn send(self: &Arc<Self>, add: impl FnOnce(&mut Inbox)) {
        add(&mut lock(&self.inbox));
        self.wake.notify_all();
        let is_open = mem::replace(&mut lock(&self.inbox).is_open, true);
        if !is_open && let Err(error) = self.start(None) {
            let reason: Arc<str> =
                format!("the system cannot create another thread: {error}").into();
            let mut inbox = lock(&self.inbox);
            inbox.is_open = false;
            let Inbox {
                drafts, removals, ..
            } = mem::take(&mut *inbox);
            drop(inbox);
            let waiting = drafts.into_iter().map(|(_, done)| done);
            let waiting = waiting.chain(removals.into_iter().map(|(_, done)| done));
            waiting.for_each(|done| done(Err(reason.clone())));
        }
    }

    fn start(self: &Arc<Self>, store: Option<Store>) -> io::Result<()> {
        lock(&self.inbox).is_open = true;
        let keeper = Keeper {
            letters: self.clone(),
            store,
            pending: VecDeque::new(),
            unprepared: Vec::new(),
            trouble: None,
        };
        let work = thread::start("dead letters", move || keeper.run())?;
        *lock(&self.thread) = Some(work);
        Ok(())
    }

    fn say(&self, notes: Vec<String>) {
        for note in notes {
            self.options
                .diagnostics
                .warn(&format!("dead letters: {note}"));
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock()
}

/// Why nothing can be written.
struct Trouble {
    since: Instant,
    due: Instant,
    pause: Duration,
    said: String,
}

impl Trouble {
    fn is_due(&self) -> bool {
        self.due <= Instant::now()
    }
}

/// Letters that are ready to be written, with whoever waits for them.
struct Pending {
    prepared: Prepared,
    waiting: Vec<Done>,
}

/// The thread's own.
struct Keeper {
    letters: Arc<DeadLetters>,
    store: Option<Store>,
    /// What is to be written, in order.
    pending: VecDeque<Pending>,
    /// Drafts for which the store could not even be read, with whoever waits for them.
    unprepared: Vec<(Draft, Vec<Done>)>,
    trouble: Option<Trouble>,
}

impl Keeper {
    fn run(mut self) {
        loop {
            let Some((drafts, removals)) = self.wait() else {
                return;
            };
            for (numbers, done) in removals {
                done(
                    self.remove(numbers)
                        .map_err(|error| error.to_string().into()),
                );
            }
            let is_due = self.trouble.as_ref().is_some_and(Trouble::is_due);
            let is_late = self.letters.options.phases.now() >= Phase::Leaving;
            if !drafts.is_empty() || is_due || (is_late && self.trouble.is_some()) {
                self.handle(drafts);
            }
            self.expire();
        }
    }

    /// What there is to do; `None` at the end.
    fn wait(&self) -> Option<(Drafts, Removals)> {
        let begin = Instant::now();
        let mut inbox = lock(&self.letters.inbox);
        loop {
            let now = Instant::now();
            let is_late = self.letters.options.phases.now() >= Phase::Leaving;
            let is_due = match &self.trouble {
                // What takes the place of letters may find room where others do not.
                Some(trouble) => {
                    trouble.due <= now
                        || is_late
                        || inbox.drafts.iter().any(|(draft, _)| draft.is_again())
                }
                None => !inbox.drafts.is_empty(),
            };
            if is_due || !inbox.removals.is_empty() || begin.elapsed() >= AGE_CHECK {
                let drafts = match is_due {
                    true => mem::take(&mut inbox.drafts),
                    false => Vec::new(),
                };
                return Some((drafts, mem::take(&mut inbox.removals)));
            }
            let is_idle = inbox.drafts.is_empty() && self.trouble.is_none();
            if inbox.is_closed && is_idle {
                return None;
            }
            self.letters.wake.wait_for(&mut inbox, LOOK);
        }
    }

    /// The store, opened when it is needed.
    fn store(&mut self) -> Result<&mut Store, StoreError> {
        let store = match self.store.take() {
            Some(store) => store,
            None => {
                let options = &self.letters.options;
                let opened = Store::open(&options.folder, options.settings);
                let (store, notes) = opened.map_err(StoreError::Open)?;
                self.letters.say(notes);
                store
            }
        };
        Ok(self.store.insert(store))
    }

    fn remove(&mut self, removal: Removal) -> Result<u64, StoreError> {
        let store = self.store()?;
        let removed = match removal {
            Removal::Purge(purge) => store.purge(&purge),
            Removal::Settle(numbers) => store.settle(&numbers),
        };
        // There may be room again.
        if let Some(trouble) = &mut self.trouble {
            trouble.due = Instant::now();
        }
        Ok(removed?)
    }

    fn expire(&mut self) {
        let Some(store) = &mut self.store else { return };
        // What cannot be removed now is removed at the next look.
        let gone = store.expire().unwrap_or(0);
        if gone > 0 {
            lock(&self.letters.counts).expired += gone;
            let limit = Limit::events("dead_letters_expired");
            self.letters.options.diagnostics.warn_limited(limit, || {
                format!(
                    "{} dropped because of `max_age`",
                    plural_were(gone, "dead letter")
                )
            });
        }
    }

    fn handle(&mut self, drafts: Drafts) {
        let Err(error) = self.attempt(drafts) else {
            return self.recover();
        };
        let reason = error.to_string();
        let now = Instant::now();
        let options = &self.letters.options;
        let trouble = self.trouble.get_or_insert(Trouble {
            since: now,
            due: now,
            pause: PAUSE,
            said: String::new(),
        });
        let waited = now.duration_since(trouble.since);
        let is_over = options.give_up_after.is_some_and(|limit| waited >= limit);
        if is_over || options.phases.now() >= Phase::Leaving {
            let reason: Arc<str> = format!("dead letters cannot be written: {reason}").into();
            self.trouble = None;
            let mut waiting = Vec::new();
            for pending in self.pending.drain(..) {
                if let Some(store) = &mut self.store {
                    store.withdraw(&pending.prepared);
                }
                waiting.extend(pending.waiting);
            }
            waiting.extend(self.unprepared.drain(..).flat_map(|(_, waiting)| waiting));
            waiting
                .into_iter()
                .for_each(|done| done(Err(reason.clone())));
            return;
        }
        if trouble.said != reason {
            options.diagnostics.warn(&format!(
                "dead letters cannot be written to {}: {reason}; retrying, and components with rejected events wait until it works",
                options.folder.display()
            ));
            trouble.said = reason;
        }
        trouble.due = now + trouble.pause;
        trouble.pause = (trouble.pause * 2).min(PAUSE_MAX);
    }

    fn recover(&mut self) {
        if self.trouble.take().is_some() {
            let diagnostics = &self.letters.options.diagnostics;
            diagnostics.info("dead letters can be written again");
        }
    }

    /// Takes drafts in and writes all that wait.
    fn attempt(&mut self, drafts: Drafts) -> Result<(), StoreError> {
        let mut unprepared = mem::take(&mut self.unprepared);
        unprepared.extend(joined(drafts));
        let mut failure = None;
        for (draft, waiting) in unprepared {
            match self.prepare(&draft) {
                Ok(prepared) => self.pending.push_back(Pending { prepared, waiting }),
                Err(reason) => {
                    failure = Some(reason);
                    self.unprepared.push((draft, waiting));
                }
            }
        }
        // What takes the place of letters needs no room that others have to make first.
        let pending = mem::take(&mut self.pending).into_iter();
        let (again, new): (Vec<_>, Vec<_>) =
            pending.partition(|pending| pending.prepared.only_replaces());
        for pending in [again, new] {
            let mut pending: VecDeque<Pending> = pending.into();
            while !pending.is_empty() && failure.is_none() {
                failure = self.write_group(&mut pending).err();
            }
            self.pending.append(&mut pending);
        }
        failure.map_or(Ok(()), Err)
    }

    /// Writes as many of those that wait as make a group.
    fn write_group(&mut self, waiting: &mut VecDeque<Pending>) -> Result<(), StoreError> {
        let group_max = self.store()?.group_size_max();
        let mut size = 0;
        let sizes = waiting.iter().map(|pending| {
            size += pending.prepared.size();
            size
        });
        let count = sizes.take_while(|size| *size <= group_max).count().max(1);
        let mut group: Vec<Pending> = waiting.drain(..count.min(waiting.len())).collect();
        let prepared: Vec<&Prepared> = group.iter().map(|pending| &pending.prepared).collect();
        let written = self.store()?.write(&prepared);
        let said = self.store()?.damage();
        self.letters.say(said);
        match written {
            Ok(dropped) => {
                self.count_dropped(dropped);
                if let Some(trouble) = &mut self.trouble {
                    trouble.since = Instant::now();
                }
                group.into_iter().for_each(|pending| self.done(pending));
                Ok(())
            }
            Err(refusal) => {
                if matches!(refusal, StoreError::Full) {
                    let store = self.store()?;
                    let is_kept = |pending: &mut Pending| store.keep(&pending.prepared);
                    let kept: Vec<Pending> = group.extract_if(.., is_kept).collect();
                    kept.into_iter().for_each(|pending| self.done(pending));
                    if group.is_empty() {
                        return Ok(());
                    }
                }
                group
                    .into_iter()
                    .rev()
                    .for_each(|pending| waiting.push_front(pending));
                Err(refusal)
            }
        }
    }

    /// Tells whoever waits that letters are safe.
    fn done(&self, Pending { prepared, waiting }: Pending) {
        lock(&self.letters.again).extend(prepared.again());
        // The number is told once.
        let numbers = [prepared.letters()].into_iter().chain(std::iter::repeat(0));
        numbers
            .zip(waiting)
            .for_each(|(letters, done)| done(Ok(letters)));
    }

    fn prepare(&mut self, draft: &Draft) -> Result<Prepared, StoreError> {
        let pipeline = self.letters.options.pipeline.clone();
        Ok(self.store()?.prepare(&pipeline, draft)?)
    }

    fn count_dropped(&self, dropped: u64) {
        if dropped == 0 {
            return;
        }
        lock(&self.letters.counts).dropped += dropped;
        let limit = Limit::events("dead_letters_dropped");
        self.letters.options.diagnostics.warn_limited(limit, || {
            format!(
                "{} dropped, the oldest first: `max_bytes` is reached",
                plural_were(dropped, "dead letter")
            )
        });
    }
}

/// Drafts of one batch and place as one.
fn joined(drafts: Drafts) -> Vec<(Draft, Vec<Done>)> {
    let mut joined: Vec<(Draft, Vec<Done>)> = Vec::new();
    for (draft, done) in drafts {
        let same = joined.iter_mut().rev().take(16).find(|(known, _)| {
            Arc::ptr_eq(&known.batch, &draft.batch)
                && known.original.is_none()
                && draft.original.is_none()
                && known.at == draft.at
        });
        match same {
            Some((known, waiting)) => {
                known.rows.extend(draft.rows);
                waiting.push(done);
            }
            None => joined.push((draft, vec![done])),
        }
    }
    joined
}
