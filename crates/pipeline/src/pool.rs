//! Workers: the threads that take batches from the queues.
//!
//! There is one pool for the process, with a worker per core unless `workers` says otherwise. A worker takes its next batch from
//! the pipeline that has used the least time so far, so that one with costly processors does not hold up the others. A pipeline
//! with a processor that waits for something other than the CPU (`dns`) has a pool of its own, with as many workers: so no other
//! pipeline waits with it, and while it waits it takes no CPU from the others.
//!
//! Workers have a lower priority (niceness 5) than the threads that read and write: a gzip file is decompressed by a single
//! thread, which would otherwise lose the second core to the workers half of the time (0.45 s compared with 0.41 s for 2 million
//! lines, same CPU time).

use std::cell::Cell;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use component::thread::{self, Work};
use parking_lot::Mutex;
use queue::{Bell, Next};

use crate::stage::WorkerStages;
use crate::worker::Job;

/// How much workers give way to other threads: who reads and who writes is what a run waits for in the end, and workers
/// have the queue between.
const WORKER_NICENESS: i32 = 5;

/// How far a pipeline that had nothing to do may lag behind in the time it has used, so that it does not have the workers
/// for itself afterwards.
const ARREARS_MAX: Duration = Duration::from_millis(100);

/// A pipeline with one worker's processors.
type JobStages = (Arc<Job>, WorkerStages);

/// Where workers find the pipelines that they look after, also those that are added while they run.
pub struct Pool {
    bell: Arc<Bell>,
    /// For each worker, those that it has not taken yet.
    added: Vec<Mutex<Vec<JobStages>>>,
    /// None will be added any more.
    is_closed: AtomicBool,
}

impl Pool {
    /// A pool without pipelines, for so many workers.
    pub fn new(workers: usize, bell: Arc<Bell>) -> Arc<Self> {
        Arc::new(Self {
            bell,
            added: (0..workers).map(|_| Mutex::default()).collect(),
            is_closed: AtomicBool::new(false),
        })
    }

    /// What wakes the workers.
    pub fn bell(&self) -> &Arc<Bell> {
        &self.bell
    }

    /// Has the workers look after a pipeline. `stages` are the processors of each.
    pub fn add(&self, job: &Arc<Job>, stages: Vec<WorkerStages>) {
        for (added, stages) in self.added.iter().zip(stages) {
            added.lock().push((job.clone(), stages));
        }
        self.bell.ring();
    }

    /// Starts its threads; they are in `threads` also where the system refuses another one.
    ///
    /// # Errors
    /// It refused one.
    pub fn start(self: &Arc<Self>, threads: &mut Vec<Work<()>>) -> io::Result<()> {
        for index in 0..self.added.len() {
            let worker = Worker::new(self, index);
            threads.push(thread::start("worker", move || worker.run())?);
        }
        Ok(())
    }

    /// Lets the workers end with their pipelines.
    pub fn close(&self) {
        self.is_closed.store(true, Ordering::SeqCst);
        self.bell.ring();
    }
}

/// One thread of the pool.
struct Worker {
    pool: Arc<Pool>,
    /// Its number in the pool.
    index: usize,
    /// The pipelines, each with this worker's processors.
    jobs: Vec<JobStages>,
    /// In which order they are looked at.
    order: Vec<usize>,
    /// Those that had batches at the last look and outputs without room for them.
    blocked: Vec<usize>,
}

/// What a look at all pipelines came to.
enum Round {
    Worked,
    Nothing,
    Over,
}

impl Worker {
    /// A worker of that number.
    fn new(pool: &Arc<Pool>, index: usize) -> Self {
        Self {
            pool: pool.clone(),
            index,
            jobs: Vec::new(),
            order: Vec::new(),
            blocked: Vec::new(),
        }
    }

    fn run(mut self) {
        // Where the system refuses, workers run like everybody else.
        let _ = rustix::process::nice(WORKER_NICENESS);
        loop {
            let seen = self.pool.bell.rung();
            let is_closed = self.pool.is_closed.load(Ordering::SeqCst);
            self.exchange();
            match self.look() {
                Round::Worked => {}
                Round::Nothing => self.wait(seen),
                Round::Over if is_closed => return,
                Round::Over => self.wait(seen),
            }
        }
    }

    /// Lets go of pipelines that are over, and takes those that were added.
    fn exchange(&mut self) {
        let before = self.jobs.len();
        self.jobs
            .retain(|(job, _)| !job.is_over.load(Ordering::SeqCst));
        let kept = self.jobs.len();
        self.jobs.append(&mut self.pool.added[self.index].lock());
        if kept < before || self.jobs.len() > kept {
            self.order = (0..self.jobs.len()).collect();
        }
    }

    /// Waits until the bell is rung, and counts the time for the pipelines whose outputs have no room.
    fn wait(&mut self, seen: u64) {
        let blocked = self.blocked.iter();
        let _waiting: Vec<_> = blocked
            .map(|&index| self.jobs[index].0.parts.own.waiting())
            .collect();
        self.pool.bell.wait(seen);
    }

    /// Handles one batch of the pipeline that has used the least time and has one.
    fn look(&mut self) -> Round {
        let mut order = std::mem::take(&mut self.order);
        let used = |index: &usize| self.jobs[*index].0.used.load(Ordering::Relaxed);
        order.sort_by_cached_key(used);
        let most = order.last().map_or(0, used);
        let mut look = Round::Over;
        self.blocked.clear();
        for &index in &order {
            let (job, stages) = &mut self.jobs[index];
            if job.is_over.load(Ordering::SeqCst) {
                continue;
            }
            let _at_work = job.begin();
            // Before taking: a lane may be waiting for the very batch that a worker holds while later ones fill it.
            let is_blocked = Cell::new(false);
            let has_room = |lane: usize| {
                let has_room = job.parts.lanes[lane].has_room();
                is_blocked.set(is_blocked.get() || !has_room);
                has_room
            };
            match job.parts.queue.next(&has_room) {
                Next::Taken(taken) => {
                    let begin = Instant::now();
                    job.handle(stages, taken);
                    let floor = most.saturating_sub(ARREARS_MAX.as_nanos() as u64);
                    job.used.fetch_max(floor, Ordering::Relaxed);
                    let spent = begin.elapsed().as_nanos() as u64;
                    job.used.fetch_add(spent, Ordering::Relaxed);
                    look = Round::Worked;
                    break;
                }
                Next::Wait => {
                    look = Round::Nothing;
                    self.blocked.extend(is_blocked.get().then_some(index));
                }
                Next::End => job.is_over.store(true, Ordering::SeqCst),
            }
        }
        self.order = order;
        look
    }
}
