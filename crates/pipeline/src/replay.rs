//! The dead letters of a run: opened before anything is read, and handed to their pipeline again where a tool asks for it.
//!
//! A replay is one more input of the pipeline. Its batches say where they go on ([`batch::Reentry`]), so that workers start
//! there and lanes that are not concerned skip them. They pass the queue like all others, and have receipts; a letter is
//! removed when its receipt has resolved. So a crash at any point leaves a letter in the store, in the queue, or in both,
//! when an output gets the event a second time with the same id.
//!
//! Limits: [`WINDOW`] batches are on their way at once. Where a pipeline has a disk queue, a receipt says that the queue has the
//! letters; what is refused behind it becomes a letter again, which the answer to the request cannot tell. What a full queue drops
//! stays a letter.

use std::collections::VecDeque;
use std::io;
use std::ops::ControlFlow;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use batch::{Batch, Reentry};
use component::input::Sink;
use component::thread;
use component::{Diagnostics, Phase, Phases, Receipt, grouped, plural_were};
use queue::letters::request::{self, Action, Outcome, Request};
use queue::letters::{DeadLetters, Done, LetterFolder, Options, OriginalError, Page, ranges};
use queue::{Inlet, Queue};
use tokio::runtime::Handle;
use tokio::sync::watch;

use crate::graph::PipelineGraph;
use crate::settings::ProcessSettings;
use crate::start::{RunOptions, StartError};
use crate::worker::{Gone, Parts};

/// Why letters cannot be sent again.
#[derive(Debug, thiserror::Error)]
enum ReplayError {
    #[error(transparent)]
    Gone(#[from] Gone),
    #[error(
        "the dead letters of {0} cannot be replayed through the whole pipeline, because other outputs may have accepted them; replay them without --from-start"
    )]
    OneOutput(Reentry),
    #[error(transparent)]
    Original(#[from] OriginalError),
}

/// How often it is looked whether a tool asks for something.
const LOOK: Duration = Duration::from_millis(500);

/// How often it is said how far a request is.
const TELL: Duration = Duration::from_millis(500);

/// Batches that may be on their way at once.
const WINDOW: usize = 16;

/// How far a pipeline is, and its dead letters.
pub type Opened = (Phases, Option<Arc<DeadLetters>>);

/// The dead letters of every pipeline, where there is a data directory.
///
/// # Errors
/// A store cannot be used.
pub fn open_letters(
    pipelines: &[PipelineGraph],
    settings: &ProcessSettings,
    options: &RunOptions,
) -> Result<Vec<Opened>, StartError> {
    let open = |pipeline: &PipelineGraph| {
        let phases = Phases::default();
        let Some(data_dir) = &settings.data_dir else {
            return Ok((phases, None));
        };
        let retry = options.retry(pipeline.retry);
        let letters = DeadLetters::open(Options {
            folder: queue::letters::folder(data_dir, &pipeline.name),
            pipeline: pipeline.name.as_str().into(),
            settings: settings.dead_letters,
            phases: phases.clone(),
            give_up_after: retry.give_up_after.map(|limit| limit.0),
            diagnostics: options.diagnostics.for_pipeline(&pipeline.name),
        })?;
        Ok((phases, Some(letters)))
    };
    pipelines.iter().map(open).collect()
}

/// What looks after requests while a pipeline runs.
pub struct Replayer {
    parts: Arc<Parts>,
    letters: Arc<DeadLetters>,
    queue: Arc<Queue>,
    folder: LetterFolder,
    phases: Phases,
    diagnostics: Diagnostics,
    /// Whether nothing more is to be sent.
    is_over: watch::Receiver<bool>,
}

/// A replayer at work.
pub struct Replaying {
    task: tokio::task::JoinHandle<()>,
    is_over: watch::Sender<bool>,
    has_sent: watch::Receiver<bool>,
}

impl Replaying {
    /// Begins to look for requests; with `once`, until all that there are now are carried out.
    pub fn start(parts: &Arc<Parts>, pipeline: &str, once: bool) -> Option<Self> {
        let letters = parts.letters.clone()?;
        let (over, is_over) = watch::channel(false);
        let (sent, has_sent) = watch::channel(false);
        let replayer = Replayer {
            folder: LetterFolder::at(letters.folder().to_owned(), pipeline),
            letters,
            queue: parts.queue.clone(),
            phases: parts.phases.clone(),
            diagnostics: parts.diagnostics.clone(),
            parts: parts.clone(),
            is_over,
        };
        Some(Self {
            task: tokio::spawn(async move {
                Arc::new(replayer).run(once).await;
                sent.send_replace(true);
            }),
            is_over: over,
            has_sent,
        })
    }

    /// Waits until all requests are carried out, or the pipeline ends.
    pub async fn done(&mut self, phases: &Phases) {
        tokio::select! {
            // It is sent, or the task is gone.
            _ = self.has_sent.wait_for(|sent| *sent) => {}
            () = phases.reached(Phase::Draining) => {}
        }
    }

    /// Nothing more is to be sent.
    pub fn stop(&self) {
        self.is_over.send_replace(true);
    }

    /// Waits for the end, after the queue has resolved all receipts.
    pub async fn ended(self) {
        // A panic there has been said; its request is left.
        let _ = self.task.await;
    }
}

impl Replayer {
    async fn run(self: Arc<Self>, once: bool) {
        // A purge waits for no replay: it may be what that one waits for.
        tokio::join!(self.serve(true, once), self.serve(false, once));
    }

    /// Carries out purges, or all other requests, one at a time.
    async fn serve(self: &Arc<Self>, purges: bool, once: bool) {
        loop {
            let has_more = self.look(purges).await;
            if self.is_stopped() || (once && !has_more) {
                return;
            }
            let mut is_over = self.is_over.clone();
            tokio::select! {
                () = tokio::time::sleep(LOOK) => {}
                _ = is_over.wait_for(|over| *over) => return,
                () = self.phases.reached(Phase::Draining) => return,
            }
        }
    }

    fn is_stopped(&self) -> bool {
        *self.is_over.borrow() || self.phases.now() > Phase::Running
    }

    /// Carries out those requests that there are; whether there were any.
    async fn look(self: &Arc<Self>, purges: bool) -> bool {
        let store = self.letters.folder();
        let is_purge = |request: &Request| request.action.removes();
        let mut left = request::left(store).unwrap_or_default();
        left.retain(|(_, request)| request.as_ref().is_ok_and(is_purge) == purges);
        let has_any = !left.is_empty();
        for (id, request) in left {
            if self.is_stopped() {
                break;
            }
            let request = match request {
                Ok(request) => request,
                Err(reason) => {
                    self.diagnostics.warn(&format!(
                        "a dead letter request in {} cannot be read and has been removed: {reason}",
                        store.display()
                    ));
                    let _ = request::finish(store, &id);
                    continue;
                }
            };
            let replayer = self.clone();
            let carry_out = move || replayer.carry_out(&id, &request);
            match thread::start("replay", carry_out) {
                Ok(work) => drop(work.ended().await),
                // There may be one at the next look.
                Err(_) => break,
            }
        }
        has_any
    }

    /// Carries out one request, on a thread of its own.
    fn carry_out(self: &Arc<Self>, id: &str, request: &Request) {
        let store = self.letters.folder();
        let mut replay = Replay {
            replayer: self,
            id,
            request,
            outcome: Outcome {
                is_queued: self.queue.is_on_disk(),
                ..Outcome::default()
            },
            waiting: VecDeque::new(),
            told: Instant::now(),
            is_left: false,
            seen: 0,
        };
        match request.action {
            Action::Purge | Action::HandedOn => replay.purge(),
            Action::Replay | Action::ReplayFromStart => replay.run(),
        }
        let Replay {
            mut outcome,
            is_left,
            ..
        } = replay;
        outcome.is_done = !is_left;
        if request.action == Action::HandedOn {
            return self.handed_on(id, outcome.problem);
        }
        // Where there is no room for the result, whoever waits for it is told that.
        let told = request::report(store, id, &outcome);
        let finished = match is_left {
            true => Ok(()),
            false => request::finish(store, id),
        };
        if let Err(error) = told {
            self.diagnostics.warn(&format!(
                "the result of a dead letter request cannot be written to {}: {error}",
                store.display()
            ));
        }
        self.check_finished(finished);
        self.diagnostics.info(&text(request.action, &outcome));
    }

    /// Ends a request for which nobody waits.
    fn handed_on(&self, id: &str, problem: Option<String>) {
        if let Some(problem) = problem {
            self.diagnostics.warn(&format!(
                "dead letters that another pipeline has delivered cannot be removed, and the next start will deliver them again: {problem}"
            ));
        }
        self.check_finished(request::finish(self.letters.folder(), id));
    }

    fn check_finished(&self, finished: io::Result<()>) {
        if let Err(error) = finished {
            self.diagnostics.warn(&format!(
                "a dead letter request in {} cannot be removed: {error}",
                self.letters.folder().display()
            ));
        }
    }
}

/// What became of a request, as people read it.
fn text(action: Action, outcome: &Outcome) -> String {
    let Outcome {
        delivered,
        again,
        purged,
        problem,
        ..
    } = outcome;
    let problem = problem
        .as_ref()
        .map_or_else(String::new, |problem| format!("; {problem}"));
    match action {
        Action::Replay | Action::ReplayFromStart => format!(
            "dead letters replayed: {} accepted, {} became dead letters again{problem}",
            grouped(*delivered),
            grouped(*again)
        ),
        Action::Purge | Action::HandedOn => {
            format!("dead letters purged: {}{problem}", grouped(*purged))
        }
    }
}

/// Letters on their way.
struct Sent {
    receipt: Receipt,
    letters: Vec<u64>,
    originals: Vec<u64>,
}

/// One request that is carried out.
struct Replay<'a> {
    replayer: &'a Arc<Replayer>,
    id: &'a str,
    request: &'a Request,
    outcome: Outcome,
    waiting: VecDeque<Sent>,
    told: Instant,
    /// Whether some of it is left for the next start.
    is_left: bool,
    /// Letters that were asked for and are there.
    seen: u64,
}

impl Replay<'_> {
    fn purge(&mut self) {
        let purge = self.request.purge();
        let letters = &self.replayer.letters;
        match removed(|done| letters.purge(purge, done)) {
            Ok(gone) => self.outcome.purged = gone,
            Err(reason) => self.outcome.problem = Some(reason.to_string()),
        }
    }

    fn run(&mut self) {
        let (replayer, request) = (self.replayer.clone(), self.request);
        let is_wanted = |numbers: Range<u64>| request.wants(&numbers);
        // Letters that come meanwhile have numbers of their own, for which nobody asked.
        let read = replayer
            .folder
            .each(&is_wanted, &mut |page| self.page(&page));
        match read {
            Ok(unreadable) if unreadable.damage.is_empty() => {}
            Ok(unreadable) => {
                let count = unreadable.damage.len() as u64;
                self.problem(format!("{} skipped", plural_were(count, "damaged range")));
            }
            Err(error) => self.problem(error.to_string()),
        }
        if !self.is_left {
            self.outcome.gone = self.request.count().saturating_sub(self.seen);
        }
        while !self.waiting.is_empty() {
            self.settle();
        }
        if self.outcome.dropped > 0 {
            self.problem(format!(
                "the queue is full and drops new events (`when_full: drop_newest`): {} kept; replay again when the queue has space",
                plural_were(self.outcome.dropped, "dead letter")
            ));
        }
    }

    /// Sends the letters of a page that are wanted.
    fn page(&mut self, page: &Page) -> ControlFlow<()> {
        if self.replayer.is_stopped() {
            self.leave();
            return ControlFlow::Break(());
        }
        let is_wanted = |row: &usize| {
            let number = page.number(*row);
            self.request.wants(&(number..number + 1))
        };
        let rows: Vec<usize> = page.rows.iter().copied().filter(is_wanted).collect();
        if rows.is_empty() {
            return ControlFlow::Continue(());
        }
        self.seen += rows.len() as u64;
        let batch = match self.batch(page, &rows) {
            Ok(batch) => batch,
            Err(error) => {
                self.problem(error.to_string());
                return ControlFlow::Continue(());
            }
        };
        while self.waiting.len() >= WINDOW {
            self.settle();
        }
        let inlet = Inlet {
            queue: self.replayer.queue.clone(),
            can_wait: true,
            repeats_in_order: false,
        };
        let Ok(receipt) = Handle::current().block_on(inlet.send(batch)) else {
            self.leave();
            return ControlFlow::Break(());
        };
        let originals = rows.iter().filter_map(|row| page.original_number(*row));
        self.waiting.push_back(Sent {
            receipt,
            originals: originals.collect(),
            letters: rows.iter().map(|row| page.number(*row)).collect(),
        });
        ControlFlow::Continue(())
    }

    /// Rows of a page as they are sent.
    fn batch(&self, page: &Page, rows: &[usize]) -> Result<Batch, ReplayError> {
        let from_start = self.request.action == Action::ReplayFromStart;
        let at = page.batch.reentry().map_or(&Reentry::Start, |at| &**at);
        if !from_start {
            self.replayer.parts.place_of(at)?;
            return Ok(page.again(rows, None));
        }
        if let Reentry::Output { .. } | Reentry::OutputProcessor { .. } = at {
            return Err(ReplayError::OneOutput(at.clone()));
        }
        let originals = self.replayer.folder.originals(page)?;
        Ok(page.again(rows, Some(&originals)))
    }

    /// Waits for the oldest letters on their way.
    fn settle(&mut self) {
        let Some(sent) = self.waiting.pop_front() else {
            return;
        };
        let mut delivered = Box::pin(sent.receipt.delivered());
        let result = loop {
            let look = async { tokio::time::timeout(TELL, &mut delivered).await };
            match Handle::current().block_on(look) {
                Ok(result) => break result,
                Err(_) => self.tell(),
            }
        };
        match result {
            Err(_) => return self.leave(),
            Ok(delivery) if queue::was_dropped(&delivery) => {
                self.outcome.dropped += sent.letters.len() as u64;
                return;
            }
            Ok(_) => {}
        }
        let numbers = ranges(sent.letters.iter().chain(&sent.originals));
        let letters = &self.replayer.letters;
        let removed = removed(|done| letters.settle(numbers, done));
        for number in sent.letters {
            match self.replayer.letters.take_again(number) {
                true => self.outcome.again += 1,
                false => self.outcome.delivered += 1,
            }
        }
        if let Err(reason) = removed {
            self.problem(format!(
                "delivered events cannot be removed from the dead letters, and the next replay will send them again: {reason}"
            ));
        }
        if self.told.elapsed() >= TELL {
            self.tell();
        }
    }

    /// Some letters stay where they are, and so does the request.
    fn leave(&mut self) {
        self.is_left = true;
        self.problem(
            "the pipeline has ended; the rest will be processed at its next start".to_owned(),
        );
    }

    fn problem(&mut self, problem: String) {
        self.outcome.problem.get_or_insert(problem);
    }

    fn tell(&mut self) {
        self.told = Instant::now();
        // The last report is the one that counts.
        let _: io::Result<()> =
            request::report(self.replayer.letters.folder(), self.id, &self.outcome);
    }
}

/// Waits for a removal.
fn removed(begin: impl FnOnce(Done)) -> Result<u64, Arc<str>> {
    let (sender, removed) = std::sync::mpsc::sync_channel(1);
    begin(Box::new(move |result| drop(sender.send(result))));
    let ended = |_| Err("the thread that writes dead letters has stopped".into());
    removed.recv().unwrap_or_else(ended)
}
