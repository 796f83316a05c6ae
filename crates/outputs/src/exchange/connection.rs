//! One connection at work: it writes requests, reads answers, and says how each request ended.
//!
//! It ends when the server closes it, breaks the protocol or is silent for too long, and when nobody has requests for it any
//! more. Then every request in flight on it has failed, but for the rows that were acknowledged.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut, buf::Chain};
use component::{Request, RowAnswer, SendError, Sent};
use net::{DialError, Dialed, Dialer, Endpoint};
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf, split};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until, timeout};

use super::{Answer, GreetError, Outcome, Protocol};
use crate::failover::Failed;

/// What is read at once. Answers are small.
const READ_BYTES: usize = 4096;

/// The longest answer.
const ANSWER_BYTES_MAX: usize = 64 << 10;

const CLOSED: &str = "the server closed the connection";

/// A request for a connection.
pub struct Job {
    pub request: Request,
    pub answer: oneshot::Sender<Outcome>,
}

/// A connection before it is made.
pub struct Connection<P> {
    pub protocol: Arc<P>,
    pub dialer: Dialer,
    pub endpoint: Endpoint,
    pub pipelining: usize,
    pub connect_timeout: Duration,
    pub patience: Duration,
    pub inbox: mpsc::Receiver<Job>,
}

/// A request in flight.
struct Waiting {
    id: u128,
    rows: usize,
    /// How many of its rows are safe.
    done: usize,
    /// Where rows are acknowledged one by one: which are not, and what became of those that were not taken.
    one_by_one: Option<RowAnswers>,
    answer: oneshot::Sender<Outcome>,
}

/// Rows that are acknowledged one by one.
#[derive(Default)]
struct RowAnswers {
    answered: Vec<bool>,
    sent: Sent,
}

impl Waiting {
    fn taken(self) {
        let sent = self.one_by_one.map_or_else(Sent::default, |rows| rows.sent);
        // Whoever gave the request up does not want to know.
        let _ = self.answer.send(Ok(sent));
    }

    /// Notes what became of a row; whether all of them are known.
    fn row(&mut self, row: usize, result: Result<(), SendError>) -> bool {
        let rows = self.one_by_one.get_or_insert_default();
        rows.answered.resize(self.rows, false);
        if let Some(answered @ false) = rows.answered.get_mut(row) {
            *answered = true;
            self.done += 1;
            match result {
                Ok(()) => {}
                Err(SendError::Refused(reason)) => rows.sent.refused.push(RowAnswer {
                    row,
                    reason: reason.into(),
                }),
                Err(error) => {
                    let reason = error.to_string().into();
                    rows.sent.retry.push(RowAnswer { row, reason });
                    rows.sent.because = Some(error);
                }
            }
        }
        self.done == self.rows
    }

    /// The connection broke: what was not acknowledged is to be sent again.
    fn broken(self, reason: &str) {
        let outcome = match (self.done, self.one_by_one) {
            (0, _) => Err(Failed::broken(reason.to_owned())),
            (_, Some(RowAnswers { answered, mut sent })) => {
                let missing = (0..self.rows).filter(|row| !answered[*row]);
                sent.retry.extend(missing.map(|row| RowAnswer {
                    row,
                    reason: reason.into(),
                }));
                sent.retry.sort_by_key(|answer| answer.row);
                sent.because = Some(SendError::Retry(reason.to_owned()));
                Ok(sent)
            }
            (done, None) => {
                let reason: Arc<str> = reason.into();
                let again = (done..self.rows).map(|row| RowAnswer {
                    row,
                    reason: reason.clone(),
                });
                Ok(Sent {
                    retry: again.collect(),
                    refused: Vec::new(),
                    because: Some(SendError::Retry(reason.to_string())),
                })
            }
        };
        let _ = self.answer.send(outcome);
    }
}

/// What is left to write of a request.
#[derive(Default)]
struct Outgoing {
    rest: Option<Chain<Chain<Bytes, Bytes>, Bytes>>,
    /// What follows that and is of no request.
    replies: Vec<&'static [u8]>,
    is_reply: bool,
    needs_flush: bool,
}

impl Outgoing {
    fn is_empty(&self) -> bool {
        self.rest.is_none() && self.replies.is_empty() && !self.needs_flush
    }

    /// Whether something of a request is left that was not handed to the connection.
    fn is_partial(&self) -> bool {
        self.rest.is_some() && !self.is_reply
    }

    fn begin(&mut self, [head, body, tail]: [Bytes; 3]) {
        self.rest = Some(head.chain(body).chain(tail));
    }

    /// Writes as much as the connection takes. Safe to cancel.
    async fn write(&mut self, writer: &mut WriteHalf<Dialed>) -> io::Result<()> {
        let Some(rest) = &mut self.rest else {
            if let Some(reply) = self.replies.pop() {
                let [reply, none, more] = [reply, &[], &[]].map(Bytes::from_static);
                self.rest = Some(reply.chain(none).chain(more));
                self.is_reply = true;
                return Ok(());
            }
            writer.flush().await?;
            self.needs_flush = false;
            return Ok(());
        };
        if writer.write_buf(rest).await? == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        if !rest.has_remaining() {
            self.rest = None;
            self.is_reply = false;
            self.needs_flush = true;
        }
        Ok(())
    }
}

/// An open connection.
struct Open<P> {
    protocol: Arc<P>,
    patience: Duration,
    reader: ReadHalf<Dialed>,
    writer: WriteHalf<Dialed>,
    received: BytesMut,
    /// In the order in which they were written; the last one may not be written completely.
    waiting: VecDeque<Waiting>,
    outgoing: Outgoing,
    /// When the server took or sent something last, or began to have something to answer.
    heard: Instant,
}

impl<P: Protocol> Connection<P> {
    /// Makes the connection, and serves those who have requests for it.
    pub async fn run(mut self) {
        match self.open().await {
            Err(error) => self.fail_all(&error).await,
            Ok(mut open) => {
                let ended = open.serve(&mut self.inbox, self.pipelining).await;
                // Requests that wait in the inbox go to another connection when it is dropped.
                self.inbox.close();
                if let Err(reason) = ended {
                    let reason = format!("{}: {reason}", self.endpoint);
                    let waiting = open.waiting.drain(..);
                    waiting.for_each(|waiting| waiting.broken(&reason));
                }
            }
        }
    }

    async fn open(&self) -> Result<Open<P>, SendError> {
        let endpoint = &self.endpoint;
        let stream = self.protocol.dial(&self.dialer, endpoint).await;
        let mut stream = stream.map_err(|error| {
            let text = format!("{endpoint}: {error}");
            match error {
                DialError::Refused(_) => SendError::Blocked(text),
                _ => SendError::Retry(text),
            }
        })?;
        let greeting = timeout(self.connect_timeout, self.protocol.greet(&mut stream)).await;
        match greeting {
            Ok(Ok(())) => {}
            Ok(Err(error @ GreetError::Refused(_))) => {
                return Err(SendError::Blocked(format!("{endpoint}: {error}")));
            }
            Ok(Err(GreetError::Broken(error))) => {
                let reason = broken(&error);
                return Err(SendError::Retry(format!(
                    "{endpoint}: the handshake failed: {reason}"
                )));
            }
            Err(_) => {
                let limit = config::Period(self.connect_timeout);
                return Err(SendError::Retry(format!(
                    "{endpoint}: no handshake within {limit} (`connect_timeout`)"
                )));
            }
        }
        let (reader, writer) = split(stream);
        Ok(Open {
            protocol: self.protocol.clone(),
            patience: self.patience,
            reader,
            writer,
            received: BytesMut::new(),
            waiting: VecDeque::new(),
            outgoing: Outgoing::default(),
            heard: Instant::now(),
        })
    }

    /// Nothing was written of the requests that wait to be.
    async fn fail_all(&mut self, error: &SendError) {
        self.inbox.close();
        while let Some(job) = self.inbox.recv().await {
            let _ = job.answer.send(Err(Failed::unsent(error.clone())));
        }
    }
}

impl<P: Protocol> Open<P> {
    /// Writes and reads until nobody has requests any more.
    ///
    /// # Errors
    /// The connection is of no use any more, for this reason.
    async fn serve(
        &mut self,
        inbox: &mut mpsc::Receiver<Job>,
        pipelining: usize,
    ) -> Result<(), String> {
        loop {
            let may_begin = self.outgoing.is_empty() && self.waiting.len() < pipelining;
            let overdue = self.heard + self.patience;
            self.received.reserve(READ_BYTES);
            tokio::select! {
                job = inbox.recv(), if may_begin => match job {
                    Some(job) => self.begin(job),
                    None if self.waiting.is_empty() => return Ok(()),
                    // Those in flight are answered first, and may_begin would spin.
                    None => return self.finish().await,
                },
                written = self.outgoing.write(&mut self.writer), if !self.outgoing.is_empty() => {
                    written.map_err(|error| broken(&error))?;
                    self.heard = Instant::now();
                }
                read = self.reader.read_buf(&mut self.received) => {
                    self.hear(read)?;
                }
                () = sleep_until(overdue), if !self.waiting.is_empty() => return Err(self.silence()),
            }
        }
    }

    /// Waits for the answers to what is in flight.
    async fn finish(&mut self) -> Result<(), String> {
        while !self.waiting.is_empty() {
            let overdue = self.heard + self.patience;
            self.received.reserve(READ_BYTES);
            tokio::select! {
                read = self.reader.read_buf(&mut self.received) => self.hear(read)?,
                () = sleep_until(overdue) => return Err(self.silence()),
            }
        }
        Ok(())
    }

    fn silence(&self) -> String {
        format!(
            "no acknowledgement within {} (`timeout`)",
            config::Period(self.patience)
        )
    }

    fn begin(&mut self, job: Job) {
        if job.answer.is_closed() {
            // It was given up meanwhile.
            return;
        }
        if self.waiting.is_empty() {
            self.heard = Instant::now();
        }
        self.outgoing.begin(self.protocol.message(&job.request));
        self.waiting.push_back(Waiting {
            id: job.request.id,
            rows: job.request.rows,
            done: 0,
            one_by_one: None,
            answer: job.answer,
        });
    }

    /// Takes what was read.
    fn hear(&mut self, read: io::Result<usize>) -> Result<(), String> {
        if read.map_err(|error| broken(&error))? == 0 {
            return Err(CLOSED.to_owned());
        }
        self.heard = Instant::now();
        // An alert of TLS, with which a server answers what is none.
        if self.received.starts_with(&[0x15, 3]) {
            return Err("the server expects TLS on this port: set `tls`".to_owned());
        }
        while let Some((answer, len)) = self.protocol.answer(&self.received)? {
            self.received.advance(len);
            self.settle(answer)?;
        }
        match self.received.len() > ANSWER_BYTES_MAX {
            true => Err("the server sent an answer without an end".to_owned()),
            false => Ok(()),
        }
    }

    fn settle(&mut self, answer: Answer) -> Result<(), String> {
        let place = match answer {
            Answer::KeepAlive => return Ok(()),
            Answer::Failed(error) => return self.fail_oldest(error),
            Answer::Reply(reply) => {
                self.outgoing.replies.push(reply);
                return Ok(());
            }
            Answer::Row {
                request,
                row,
                result,
            } => {
                let place = self.waiting.iter().position(|one| one.id == request);
                // One that was given up may be answered all the same.
                let Some(place) = place else { return Ok(()) };
                self.waiting[place].row(row, result).then_some(place)
            }
            Answer::Rows(rows) => {
                let oldest = self.waiting.front_mut();
                let oldest = oldest.ok_or("the server acknowledged events that were not sent")?;
                if rows < oldest.done || rows > oldest.rows {
                    return Err(format!(
                        "the server acknowledged {rows} events of a request of {}",
                        oldest.rows
                    ));
                }
                oldest.done = rows;
                (oldest.done == oldest.rows).then_some(0)
            }
            Answer::Request(id) => {
                let place = self.waiting.iter().position(|waiting| waiting.id == id);
                Some(place.ok_or("the server acknowledged a request that was not sent")?)
            }
        };
        // One that is still being written may not be answered.
        let is_partial =
            |place: usize| self.outgoing.is_partial() && place + 1 == self.waiting.len();
        if place.is_some_and(is_partial) {
            return Err("the server acknowledged a request before it had all of it".to_owned());
        }
        if let Some(waiting) = place.and_then(|place| self.waiting.remove(place)) {
            waiting.taken();
        }
        Ok(())
    }
}

impl<P> Open<P> {
    /// The server answers that it does not take a request.
    fn fail_oldest(&mut self, error: SendError) -> Result<(), String> {
        if self.outgoing.is_partial() && self.waiting.len() == 1 {
            // It reads no more of it.
            return Err(error.to_string());
        }
        let waiting = self.waiting.pop_front();
        let waiting = waiting.ok_or_else(|| format!("without a request: {error}"))?;
        // Whoever gave the request up does not want to know.
        let _ = waiting.answer.send(Err(Failed::unsent(error)));
        Ok(())
    }
}

fn broken(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionReset
        | io::ErrorKind::BrokenPipe
        | io::ErrorKind::UnexpectedEof => CLOSED.to_owned(),
        _ => format!("the connection failed: {error}"),
    }
}
