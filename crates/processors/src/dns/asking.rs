//! The thread that asks name servers, and the order in which it does.
//!
//! Questions that batches wait for go first, in their order; then those whose batch waits no longer. Each takes a slot while servers have it.
//! If another question waits for one, the question that has been with the servers for the longest time, and longer than [`TURN`], gives its slot
//! up: it goes on in one of a few slots for slow questions or, when these are taken, is asked anew when one of them is free. So questions that
//! nobody answers do not hold up those that are answered, and those that take a while are answered too.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::runtime::Builder;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::task::{AbortHandle, Id, JoinError, JoinSet};
use tokio::time::{sleep_until, timeout};

use super::answers::{Answers, OPEN_MAX, Turn};
use super::question::{Answer, Question};
use super::resolver::{Asker, NameServers, Resolved};

/// How many questions are with servers at the same time, slow ones aside. Each takes a socket, or up to eight: for both kinds of addresses,
/// and when sent again.
const IN_FLIGHT_MAX: usize = 256;

/// How many slow questions are.
const SLOW_MAX: usize = 128;

/// How many questions wait to be asked anew; beyond, they count as not answered.
const AGAIN_MAX: usize = 1024;

/// How long a question keeps its slot though others wait: a while longer than until it is sent for the second time.
const TURN: Duration = Duration::from_millis(400);

/// The longest time for a question in all, with search domains.
const QUESTION_MAX: Duration = Duration::from_secs(10);

/// Starts the thread that asks `servers` what it gets, until the sender is gone.
///
/// # Errors
/// The system gives no thread, or not what one needs to use the network.
pub(super) fn start(servers: NameServers, answers: Arc<Answers>) -> io::Result<Sender<Question>> {
    let (sender, questions) = channel(OPEN_MAX);
    let most = IN_FLIGHT_MAX + SLOW_MAX;
    let asker = servers.asker(most).map_err(io::Error::other)?;
    let runtime = Builder::new_current_thread().enable_all().build()?;
    component::thread::start("dns", move || {
        runtime.block_on(ask_all(questions, Slots::new(asker, answers)));
    })?;
    Ok(sender)
}

async fn ask_all(mut questions: Receiver<Question>, mut slots: Slots) {
    loop {
        slots.fill();
        let turn_ends = slots.turn_ends();
        tokio::select! {
            question = questions.recv() => match question {
                Some(question) => {
                    slots.awaited.push_back(question);
                    while let Ok(question) = questions.try_recv() {
                        slots.awaited.push_back(question);
                    }
                }
                None => break,
            },
            Some(ended) = slots.tasks.join_next_with_id() => slots.ended(ended),
            () = sleep_until(turn_ends.unwrap_or_else(Instant::now).into()), if turn_ends.is_some() => {}
        }
    }
}

/// Questions that are with servers, and those that wait for it.
struct Slots {
    asker: Arc<Asker>,
    answers: Arc<Answers>,
    awaited: VecDeque<Question>,
    /// Those whose batch waits no longer.
    late: VecDeque<Question>,
    /// Those that gave their slot up.
    again: VecDeque<Question>,
    /// In the order in which they were asked.
    in_flight: VecDeque<InFlight>,
    slow: VecDeque<InFlight>,
    tasks: JoinSet<Resolved>,
}

/// A question that is with servers.
struct InFlight {
    question: Question,
    since: Instant,
    task: AbortHandle,
}

impl Slots {
    fn new(asker: Asker, answers: Arc<Answers>) -> Self {
        Self {
            asker: Arc::new(asker),
            answers,
            awaited: VecDeque::new(),
            late: VecDeque::new(),
            again: VecDeque::new(),
            in_flight: VecDeque::new(),
            slow: VecDeque::new(),
            tasks: JoinSet::new(),
        }
    }

    /// Asks what there is room for.
    fn fill(&mut self) {
        let now = Instant::now();
        while self.in_flight.len() < IN_FLIGHT_MAX || self.turn_ended(now) {
            let Some(question) = self.next() else {
                break;
            };
            if self.in_flight.len() >= IN_FLIGHT_MAX
                && let Some(oldest) = self.in_flight.pop_front()
            {
                self.give_way(oldest);
            }
            let asked = self.ask(question);
            self.in_flight.push_back(asked);
        }
        while self.slow.len() < SLOW_MAX
            && let Some(question) = self.again.pop_front()
        {
            let asked = self.ask(question);
            self.slow.push_back(asked);
        }
    }

    /// The question to ask next.
    fn next(&mut self) -> Option<Question> {
        while let Some(question) = self.awaited.pop_front() {
            match self.answers.take_turn(&question, false) {
                Turn::Now => return Some(question),
                Turn::Later => self.late.push_back(question),
                Turn::Never => {}
            }
        }
        while let Some(question) = self.late.pop_front() {
            if self.answers.take_turn(&question, true) == Turn::Now {
                return Some(question);
            }
        }
        None
    }

    fn ask(&mut self, question: Question) -> InFlight {
        let (asker, asked) = (self.asker.clone(), question.clone());
        let task = self.tasks.spawn(async move {
            let resolved = timeout(QUESTION_MAX, asker.resolve(&asked)).await;
            resolved.unwrap_or(Resolved::UNANSWERED)
        });
        InFlight {
            question,
            since: Instant::now(),
            task,
        }
    }

    /// Whether the question that was asked first can give its slot up.
    fn turn_ended(&self, now: Instant) -> bool {
        let oldest = self.in_flight.front();
        oldest.is_some_and(|oldest| now >= oldest.since + TURN)
    }

    /// When the next question gives its slot up to one that waits.
    fn turn_ends(&self) -> Option<Instant> {
        let is_wanted = !self.awaited.is_empty() || !self.late.is_empty();
        let oldest = self.in_flight.front().filter(|_| is_wanted)?;
        Some(oldest.since + TURN)
    }

    fn give_way(&mut self, oldest: InFlight) {
        if self.slow.len() < SLOW_MAX {
            self.slow.push_back(oldest);
            return;
        }
        oldest.task.abort();
        if self.again.len() < AGAIN_MAX {
            self.again.push_back(oldest.question);
        } else {
            self.answers.put(oldest.question, Resolved::UNANSWERED);
        }
    }

    /// A question has its answer, or the library panicked over it, or it gave its slot up before.
    fn ended(&mut self, ended: Result<(Id, Resolved), JoinError>) {
        let (id, resolved) = match ended {
            Ok(ended) => ended,
            Err(error) => (error.id(), Resolved::unheard(Answer::Failed)),
        };
        for lane in [&mut self.in_flight, &mut self.slow] {
            if let Some(at) = lane.iter().position(|it| it.task.id() == id)
                && let Some(asked) = lane.remove(at)
            {
                self.answers.put(asked.question, resolved);
                return;
            }
        }
    }
}
