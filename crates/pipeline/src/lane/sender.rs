//! A lane whose output sends requests: workers render and join rows, the lane keeps requests in flight.
//!
//! A batch is *released* as soon as it is part of requests: from then on these count, up to a limit of their own, which is charged
//! to the memory budget. The batch counts no longer, neither in the size of the queue nor in the lag of the output. It is passed
//! when all of its rows are safe or refused, and those refused are on disk as dead letters. Then the cursor advances.
//!
//! A row is sent again until it is taken, refused, or the retry time limit (`give_up_after`) is reached; never by two requests
//! at once.
//!
//! Rendered rows are kept while their request is in flight: a row that must be sent again is cut out of the request's text. With
//! a data directory the batch is kept as well, and counts together with the requests, because a dead letter is stored as an
//! event, not as the output rendered it. Without one, the buffers of the batch return to the inputs.

use std::collections::VecDeque;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use batch::{Account, Batch};
use component::{Limit, Phase, RequestOrder, Requests, RowAnswer, Rows, SendError, Sender, Sent};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use parking_lot::{Mutex, MutexGuard};

use super::compress::compress;
use super::ids::Ids;
use super::kept::Kept;
use super::letters::{LaneLetters, Refused};
use super::offers::{Item, Next};
use super::request::{Assembly, Growing, Piece, Ready, Share};
use super::schedule::Schedule;
use super::spare::Spare;
use super::trouble::Trouble;
use super::{Common, Ending, LAST_ATTEMPT, next_phase, until};
use crate::retry::{Panicked, caught, pause};
use crate::settings::SendingSettings;

/// What is special about such a lane.
pub struct SenderLane {
    sender: Arc<dyn Sender>,
    requests: Requests,
    ids: Ids,
    settings: SendingSettings,
    in_flight_max: usize,
    /// What requests count for, from the first row that they get to their end.
    account: Account,
    /// There is room where there was none; the lane's thread tells the workers.
    has_made_room: AtomicBool,
    assembly: Mutex<Assembly>,
    spare: Arc<Spare>,
    ready: Mutex<VecDeque<Ready>>,
    /// Rows on their way to the dead letters.
    refused: Mutex<Vec<Refused>>,
}

/// How a request ended.
struct Answer {
    ready: Ready,
    sent: Instant,
    result: Result<Result<Sent, SendError>, Panicked>,
}

/// What the thread of a lane knows while it runs.
struct Course {
    schedule: Schedule,
    trouble: Trouble,
    /// Requests in flight are not waited for beyond this.
    stop_by: Option<Instant>,
}

/// How long requests in flight are waited for when nothing depends on their answers any more.
const LAST_ANSWERS: Duration = Duration::from_secs(2);

/// What an output fails with whose requests were not answered by then.
const TOO_LATE: &str = "no response by the shutdown deadline";

/// Which part of the memory for requests may be kept for later ones.
const SPARE_PART: usize = 4;

impl SenderLane {
    pub fn new(
        sender: Arc<dyn Sender>,
        settings: &SendingSettings,
        in_flight_max: usize,
        account: Account,
    ) -> Self {
        let mut requests = sender.requests();
        settings.apply(&mut requests.limits);
        // A single request may not take everything.
        requests.limits.size_max = requests.limits.size_max.min(in_flight_max / 2).max(1);
        let spare = Arc::new(Spare::new(in_flight_max / SPARE_PART));
        let assembly = Assembly::new(&requests, spare.clone());
        Self {
            assembly: Mutex::new(assembly),
            spare,
            sender,
            requests,
            ids: Ids::new(),
            settings: settings.clone(),
            in_flight_max,
            account,
            has_made_room: AtomicBool::new(false),
            ready: Mutex::default(),
            refused: Mutex::default(),
        }
    }

    /// Whether requests may take in another batch.
    pub fn has_room(&self) -> bool {
        self.account.used() < self.in_flight_max
    }

    /// Whether requests are made in the order of the events.
    fn is_in_order(&self) -> bool {
        self.requests.order != RequestOrder::Free
    }

    fn schedule(&self, common: &Common) -> Schedule {
        let one_at_a_time = self.requests.order == RequestOrder::ByDestination;
        Schedule::new(self.settings.concurrency, common.retry, one_at_a_time)
    }

    /// Makes requests of what is encoded.
    pub fn assemble(&self, common: &Common) {
        let mut complete = Vec::new();
        {
            let mut assembly = self.lock_assembly();
            let is_encoded =
                |item: &Item| item.encoded.is_some() || item.rows.is_empty() || !common.works();
            while let Next::Item(item) = common.offers.take(self.is_in_order(), is_encoded) {
                complete.extend(self.add(common, &mut assembly, item));
            }
            if self.is_in_order() {
                // Under the lock, or a later request could come first.
                return self.seal(common, complete);
            }
        }
        self.seal(common, complete);
    }

    /// Adds a batch to the requests that grow; gives those that are complete.
    fn add(&self, common: &Common, assembly: &mut Assembly, mut item: Item) -> Vec<Growing> {
        let Some(mut encoded) = item.encoded.take() else {
            // No row of it is wanted, or nothing is.
            match item.rows.is_empty() {
                true => item.ticket.pass(common.index),
                false => common.decline(&item.ticket),
            }
            return Vec::new();
        };
        if !common.works() {
            common.decline(&item.ticket);
            common.offers.give_back(Some(encoded));
            return Vec::new();
        }
        common.refuse(&encoded.refused);
        let letters = common.letters.as_ref();
        let refused = match letters {
            Some(_) => std::mem::take(&mut encoded.refused),
            None => Vec::new(),
        };
        let mut complete = Vec::new();
        if encoded.ends.is_empty() && refused.is_empty() {
            item.ticket.pass(common.index);
        } else {
            item.ticket.release(common.index);
            let wanted = std::mem::take(&mut item.rows);
            let kept = letters.map(|_| Kept::new(&item.batch, wanted, &encoded));
            let rows = encoded.ends.len() + refused.len();
            let piece = Piece::new(item.ticket, rows, kept);
            self.grow(piece.cost());
            if let Some(letters) = letters.filter(|_| !refused.is_empty()) {
                self.put(letters, &piece, &item.batch, refused);
            }
            if !encoded.ends.is_empty() {
                let (ended, cost) = assembly.add(&mut encoded, &piece, Instant::now());
                self.grow(cost);
                complete = ended;
            }
        }
        common.offers.give_back(Some(encoded));
        complete
    }

    /// Has refused rows of a batch written down. The batch passes when they are.
    fn put(
        &self,
        letters: &LaneLetters,
        piece: &Arc<Piece>,
        batch: &Arc<Batch>,
        refused: Vec<RowAnswer>,
    ) {
        let rows = refused.len();
        let stored = letters.put(batch, &piece.ticket, refused);
        let refused = Refused {
            piece: piece.clone(),
            rows,
            stored,
        };
        self.lock_refused().push(refused);
    }

    /// Has complete requests sent.
    fn seal(&self, common: &Common, complete: Vec<Growing>) {
        for growing in complete {
            let _entered = common.activity.enter();
            let begin = Instant::now();
            let cost = growing.cost();
            if let Some(ready) = self.pack(common, growing) {
                self.lock_ready().push_back(ready);
            }
            self.shrink(cost);
            common.metrics.busy(begin.elapsed());
        }
    }

    /// Sends what is offered until the lane is closed and empty.
    pub async fn run(&self, common: &Common, ended: &(dyn Fn() + Sync)) {
        let mut course = Course {
            schedule: self.schedule(common),
            trouble: Trouble::default(),
            stop_by: None,
        };
        let mut flying = FuturesUnordered::new();
        let mut storing = FuturesUnordered::new();
        loop {
            self.encode_waiting(common);
            self.seal_due(common);
            if self.has_made_room.swap(false, Ordering::SeqCst) {
                // Workers left batches in the queue, and nobody else tells them.
                common.queue.wake_workers();
            }
            self.give_up_overdue(common, &course);
            if !common.works() {
                course.stop_by.get_or_insert(Instant::now() + LAST_ANSWERS);
                self.let_everything_go(common, &mut course);
                ended();
                common.queue.wake_workers();
            }
            while let Some(ready) = self.next(common, &mut course) {
                flying.push(self.send(ready));
            }
            self.show(common, &course, flying.len());
            storing.extend(self.lock_refused().drain(..).map(Refused::outcome));
            let gives_up = course.stop_by.is_some_and(|by| by <= Instant::now());
            if gives_up && common.works() {
                match common.phases.now() {
                    Phase::Aborted => common.fail(TOO_LATE),
                    _ => common.end(Ending::Left),
                }
                continue;
            }
            if gives_up {
                // Whoever waits for the events in them hears that there will be no answer.
                flying.clear();
            }
            let is_idle = flying.is_empty() && storing.is_empty();
            if (is_idle || gives_up) && self.is_over(common, &course) {
                break;
            }
            let is_flying = !flying.is_empty();
            // A destination that is away has no requests, and yet is waited for.
            let is_waiting = is_flying || self.unsent(&course) > 0;
            let waiting = is_waiting.then(|| common.metrics.waiting());
            let phase = common.phases.now();
            tokio::select! {
                Some(answer) = flying.next(), if is_flying => {
                    self.settle(common, &mut course, answer);
                    common.report();
                }
                Some((piece, rows, stored)) = storing.next(), if !storing.is_empty() => {
                    if common.stored(stored) {
                        self.done(common, &piece, rows);
                    } else {
                        self.leave(common, &piece);
                    }
                }
                () = common.offered.notified() => {}
                () = until(self.wakes_at(common, &course)) => {}
                () = common.phases.reached(next_phase(phase)), if phase < Phase::Aborted => {
                    self.hurry(common, &mut course);
                }
            }
            common.queue.note_cursors();
            drop(waiting);
        }
    }

    /// Shows what is under way.
    fn show(&self, common: &Common, course: &Course, in_flight: usize) {
        let is_paused = course.schedule.is_paused();
        common.gauges.set(in_flight, self.unsent(course), is_paused);
    }

    /// Requests that wait to be sent, or to be sent again.
    fn unsent(&self, course: &Course) -> usize {
        course.schedule.again() + self.lock_ready().len()
    }

    /// Encodes what found no room when it was offered.
    fn encode_waiting(&self, common: &Common) {
        self.assemble(common);
        while common.works() && self.has_room() {
            // Where order matters, nothing may come between taking a batch and adding its rows.
            let mut in_order = self.is_in_order().then(|| self.lock_assembly());
            let Next::Item(mut item) = common.offers.take(self.is_in_order(), |_| true) else {
                break;
            };
            if item.encoded.is_none() && !item.rows.is_empty() {
                let spare = common.offers.reserve();
                item.encoded = Some(common.encode(&item, spare));
            }
            let complete = match &mut in_order {
                Some(assembly) => self.add(common, assembly, item),
                None => self.add(common, &mut self.lock_assembly(), item),
            };
            self.seal(common, complete);
        }
    }

    /// Has requests sent that have waited long enough; all of them where nothing more comes.
    fn seal_due(&self, common: &Common) {
        let all = common.offers.is_over();
        let mut assembly = self.lock_assembly();
        let due = assembly.due(Instant::now(), all);
        match self.is_in_order() {
            true => self.seal(common, due),
            false => {
                drop(assembly);
                self.seal(common, due);
            }
        }
    }

    fn is_over(&self, common: &Common, course: &Course) -> bool {
        common.offers.is_over()
            && course.schedule.is_over()
            && self.lock_ready().is_empty()
            && self.lock_assembly().is_empty()
    }

    /// The next request that may be sent.
    fn next(&self, common: &Common, course: &mut Course) -> Option<Ready> {
        if !common.works() {
            return None;
        }
        let mut ready = self.lock_ready();
        course.schedule.next(&mut ready, Instant::now())
    }

    async fn send(&self, ready: Ready) -> Answer {
        let sent = Instant::now();
        let result = caught(self.sender.send(&ready.request)).await;
        Answer {
            ready,
            sent,
            result,
        }
    }

    /// When there is something to do although nothing happens.
    fn wakes_at(&self, common: &Common, course: &Course) -> Option<Instant> {
        let now = Instant::now();
        let sends = course.schedule.wakes_at(&self.lock_ready(), now);
        let grown = self.lock_assembly().due_at();
        let overdue = overdue_at(common, course);
        let stop_by = course.stop_by.filter(|by| *by > now);
        [sends, grown, overdue, stop_by].into_iter().flatten().min()
    }

    /// Fails where the retry time limit (`give_up_after`) is reached although the destination asked for more.
    fn give_up_overdue(&self, common: &Common, course: &Course) {
        let is_over = overdue_at(common, course);
        if is_over.is_some_and(|at| at <= Instant::now()) {
            let said = course.trouble.reason();
            common.fail(said.unwrap_or("the retry time limit (`give_up_after`) is reached"));
        }
    }

    /// What became of a request.
    fn settle(&self, common: &Common, course: &mut Course, answer: Answer) {
        let Answer {
            ready,
            sent,
            result,
        } = answer;
        common.metrics.count("requests", 1);
        let now = Instant::now();
        let destination = ready.request.destination.clone();
        course.schedule.ended(&destination);
        let error = match result {
            Ok(Ok(answer)) => {
                if self.weigh(common, course, &ready, &answer, [sent, now]) {
                    self.settle_rows(common, course, &ready, answer);
                    return self.spare.give_back(ready.into_text());
                }
                return self.drop_request(common, &ready);
            }
            Ok(Err(error)) => error,
            Err(panic) => {
                common.fail_panicked("`send`", &panic);
                return self.drop_request(common, &ready);
            }
        };
        match error {
            SendError::Unfit(reason) if ready.request.rows > 1 => {
                course.schedule.works(&destination);
                common.metrics.count("requests_halved", 1);
                self.halve(common, course, &ready, &reason);
            }
            SendError::Unfit(reason) | SendError::Refused(reason) => {
                course.schedule.works(&destination);
                self.refuse_all(common, course, &ready, &reason);
            }
            error => match self.failed(common, course, &destination, &error, [sent, now]) {
                true => self.repeat(common, course, ready, &error.to_string()),
                false => self.drop_request(common, &ready),
            },
        }
    }

    /// What a request that was answered says of its destination; whether the output goes on.
    fn weigh(
        &self,
        common: &Common,
        course: &mut Course,
        ready: &Ready,
        answer: &Sent,
        [sent, now]: [Instant; 2],
    ) -> bool {
        let destination = &ready.request.destination;
        let took_some = answer.retry.len() < ready.request.rows;
        match &answer.because {
            None => course.schedule.succeeded(destination, sent, now),
            // It works, and is given less at a time.
            Some(SendError::Retry(_) | SendError::Later { after: None, .. }) if took_some => {
                course.schedule.works(destination);
                course.schedule.too_many(sent, now);
            }
            Some(error) => return self.failed(common, course, destination, error, [sent, now]),
        }
        true
    }

    /// A destination did not take what was sent; whether that is sent again.
    fn failed(
        &self,
        common: &Common,
        course: &mut Course,
        destination: &Arc<str>,
        error: &SendError,
        [sent, now]: [Instant; 2],
    ) -> bool {
        let after = match error {
            SendError::Later { after, .. } => *after,
            _ => None,
        };
        let is_final = match error {
            SendError::Fatal(_) => true,
            SendError::Blocked(_) => common.is_finite,
            _ => false,
        };
        if course.schedule.failed(destination, after, sent, now) {
            common.metrics.count("circuit_opened", 1);
        }
        if is_final {
            common.fail(&error.to_string());
        }
        !is_final
    }

    /// Sends a request again after a pause, unless the time for that is over.
    fn repeat(&self, common: &Common, course: &mut Course, mut ready: Ready, reason: &str) {
        let now = Instant::now();
        common.metrics.count("retries", 1);
        course.trouble.say(common, reason);
        let since = *ready.failing_since.get_or_insert(now);
        let limit = common.retry.give_up_after;
        let is_over = limit.is_some_and(|limit| now.duration_since(since) >= limit.0);
        match common.phases.now() {
            Phase::Leaving => {
                common.end(Ending::Left);
                return self.drop_request(common, &ready);
            }
            Phase::Running | Phase::Draining if !is_over => {}
            _ => {
                common.fail(reason);
                return self.drop_request(common, &ready);
            }
        }
        ready.due = Some(now + pause(&common.retry, ready.request.attempt));
        ready.request.attempt += 1;
        course.schedule.repeat(ready);
    }

    /// A request was taken, but for some of its rows.
    fn settle_rows(&self, common: &Common, course: &mut Course, ready: &Ready, sent: Sent) {
        let Sent {
            mut retry,
            mut refused,
            because,
        } = sent;
        let is_known = |row: &RowAnswer| row.row < ready.request.rows;
        retry.retain(is_known);
        refused.retain(is_known);
        retry.sort_by_key(|row| row.row);
        retry.dedup_by_key(|row| row.row);
        refused.sort_by_key(|row| row.row);
        refused.dedup_by_key(|row| row.row);
        refused.retain(|row| retry.binary_search_by_key(&row.row, |row| row.row).is_err());
        let rows: Vec<usize> = retry.iter().map(|row| row.row).collect();
        let done = ready.request.rows - rows.len();
        common.refuse(&refused);
        common
            .metrics
            .events(done, done.saturating_sub(refused.len()));
        common.metrics.bytes(ready.text_len());
        for (place, share) in ready.places() {
            let again = rows.partition_point(|&row| row < place.end)
                - rows.partition_point(|&row| row < place.start);
            let dead = match &common.letters {
                Some(letters) => self.bury(letters, share, &place, &mut refused),
                None => 0,
            };
            self.done(common, &share.piece, place.len() - again - dead);
        }
        let Some(first) = retry.first() else {
            self.finish(course, ready);
            if course.schedule.is_calm() {
                course.trouble.recover(common);
            }
            return;
        };
        common.metrics.count("rows_retried", rows.len() as u64);
        let reason = match because {
            Some(error) => error.to_string(),
            None => format!("some events were temporarily rejected: {}", first.reason),
        };
        let again = ready.select(&rows, self.requests.framing);
        self.shrink(ready.size);
        if let Some(mut again) = self.pack(common, again) {
            again.failing_since = ready.failing_since;
            again.request.attempt = ready.request.attempt;
            self.repeat(common, course, again, &reason);
        }
    }

    /// Has those of the refused rows written down that are of a share; how many these are. The rows are those of the request.
    fn bury(
        &self,
        letters: &LaneLetters,
        share: &Share,
        place: &Range<usize>,
        refused: &mut Vec<RowAnswer>,
    ) -> usize {
        let (Some(kept), false) = (&share.piece.kept, refused.is_empty()) else {
            return 0;
        };
        let of_share = refused.extract_if(.., |answer| place.contains(&answer.row));
        let of_share: Vec<RowAnswer> = of_share
            .filter_map(|answer| {
                let row = share.row(answer.row - place.start)?;
                Some(RowAnswer { row, ..answer })
            })
            .collect();
        let count = of_share.len();
        if count > 0 {
            self.put(letters, &share.piece, &kept.batch, of_share);
        }
        count
    }

    /// Makes a request of complete rows, and counts it. Where that fails, the output does, and the pieces go without being
    /// passed: their events count as not delivered.
    fn pack(&self, common: &Common, growing: Growing) -> Option<Ready> {
        let Requests {
            framing,
            compression,
            ..
        } = self.requests;
        let id = self.ids.next();
        let pack = |rows: &mut Rows<'_>| match self.sender.pack(rows)? {
            Some(packed) => Ok(Some(packed)),
            None => compress(compression, rows.text),
        };
        let sealed = catch_unwind(AssertUnwindSafe(|| growing.seal(id, framing, pack)));
        match sealed {
            Ok(Ok(ready)) => {
                self.grow(ready.size);
                return Some(ready);
            }
            Ok(Err(failure)) => common.fail(&format!("a request cannot be compressed: {failure}")),
            Err(panic) => common.fail_panicked("`pack`", &Panicked::new(&*panic)),
        }
        None
    }

    /// Sends each half of a request on its own.
    fn halve(&self, common: &Common, course: &mut Course, ready: &Ready, reason: &str) {
        let middle = ready.request.rows / 2;
        let rows: Vec<usize> = (0..ready.request.rows).collect();
        let halves = [&rows[..middle], &rows[middle..]];
        let halves = halves.map(|rows| ready.select(rows, self.requests.framing));
        self.shrink(ready.size);
        let halves: Vec<Ready> = halves
            .into_iter()
            .filter_map(|half| self.pack(common, half))
            .collect();
        common
            .diagnostics
            .warn_limited(Limit::events("requests_halved"), || {
                format!("{reason}; the request is split in half, and each half is sent separately")
            });
        course.schedule.finish(&ready.request.destination);
        let mut queue = self.lock_ready();
        // Before everything that came later.
        halves
            .into_iter()
            .rev()
            .for_each(|half| queue.push_front(half));
    }

    fn refuse_all(&self, common: &Common, course: &mut Course, ready: &Ready, reason: &str) {
        let reason: Arc<str> = reason.into();
        let refused = (0..ready.request.rows).map(|row| RowAnswer {
            row,
            reason: reason.clone(),
        });
        let sent = Sent {
            refused: refused.collect(),
            ..Sent::default()
        };
        self.settle_rows(common, course, ready, sent);
    }

    fn done(&self, common: &Common, piece: &Piece, rows: usize) {
        if rows > 0 && piece.done(rows) {
            self.shrink(piece.take_cost());
            piece.ticket.pass_released(common.index);
        }
    }

    /// A request has come to its end.
    fn finish(&self, course: &mut Course, ready: &Ready) {
        self.shrink(ready.size);
        course.schedule.finish(&ready.request.destination);
    }

    /// The output takes nothing more: what it has not sent is let go, or left to the queue without a word.
    fn let_everything_go(&self, common: &Common, course: &mut Course) {
        let growing = self.lock_assembly().due(Instant::now(), true);
        for growing in &growing {
            self.shrink(growing.cost());
            self.let_go(common, growing.shares());
        }
        let ready = std::mem::take(&mut *self.lock_ready());
        for ready in ready.into_iter().chain(course.schedule.take()) {
            self.drop_request(common, &ready);
        }
        self.assemble(common);
    }

    fn drop_request(&self, common: &Common, ready: &Ready) {
        self.shrink(ready.size);
        self.let_go(common, ready.shares());
    }

    fn let_go(&self, common: &Common, shares: &[Share]) {
        for share in shares {
            self.leave(common, &share.piece);
        }
    }

    /// The output does not take a batch that is part of requests.
    fn leave(&self, common: &Common, piece: &Piece) {
        if common.has_failed() && piece.leave() {
            self.shrink(piece.take_cost());
            piece.ticket.let_go_released(common.index);
        }
    }

    /// The pipeline is on its way to its end.
    fn hurry(&self, common: &Common, course: &mut Course) {
        match common.phases.now() {
            Phase::Leaving if !course.schedule.is_calm() => common.end(Ending::Left),
            // What is on its way may still be answered; the queue has it all the same.
            Phase::Leaving => course.stop_by = Some(Instant::now() + LAST_ANSWERS),
            Phase::Aborted => {
                course.schedule.hurry();
                course.stop_by.get_or_insert(Instant::now() + LAST_ATTEMPT);
            }
            _ => {}
        }
    }

    fn grow(&self, bytes: usize) {
        self.account.grow(bytes);
    }

    fn shrink(&self, bytes: usize) {
        let before = self.account.shrink(bytes);
        // Exactly one of those that give back finds that there was no room before and is some now.
        if before >= self.in_flight_max && before - bytes < self.in_flight_max {
            self.has_made_room.store(true, Ordering::SeqCst);
        }
    }

    fn lock_assembly(&self) -> MutexGuard<'_, Assembly> {
        self.assembly.lock()
    }

    fn lock_refused(&self) -> MutexGuard<'_, Vec<Refused>> {
        self.refused.lock()
    }

    fn lock_ready(&self) -> MutexGuard<'_, VecDeque<Ready>> {
        self.ready.lock()
    }
}

/// When the time for retries of some request is over, wherever it stands.
fn overdue_at(common: &Common, course: &Course) -> Option<Instant> {
    let limit = common.retry.give_up_after?.0;
    course.schedule.failing_since().map(|since| since + limit)
}
