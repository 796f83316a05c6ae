//! From the body of a request to events.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::oneshot;

use super::document::{Defaults, Writing};
use super::envelope::Envelopes;
use super::failure::Failure;
use crate::connections::answer::Answer;
use crate::connections::batcher::{Completion, Joiner, Protocol};
use crate::connections::rendered::{Rendered, id_key};
use crate::connections::request::{Fault, Received};
use crate::connections::session::Session;

/// How events are written in a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    /// Envelopes, one after the other.
    Envelopes,
    /// A line for each event.
    Lines,
}

/// A request that was read whole.
pub(super) struct Message {
    pub(super) received: Received,
    pub(super) format: Format,
    pub(super) defaults: Defaults,
    /// When it came, in nanoseconds since 1970.
    pub(super) time: i64,
    pub(super) session: Arc<Session>,
    /// Told when the body was read and checked, before its events are safe.
    pub(super) checked: Option<oneshot::Sender<()>>,
}

/// How requests become events.
pub(super) struct Decoding {
    body_max: usize,
    id_key: Option<Vec<u8>>,
    envelopes: Envelopes,
    rendered: Rendered,
}

type HecJoiner = Joiner<(), Failure>;

impl Protocol for Decoding {
    type Message = Message;
    type Mark = ();
    type Reason = Failure;

    fn add(&mut self, mut message: Message, answer: Answer<Failure>, joiner: &mut HecJoiner) {
        let (body, count) = match self.check(&mut message, joiner) {
            Ok(checked) => checked,
            Err(failure) => return answer.reject(failure),
        };
        if let Some(checked) = message.checked.take() {
            // A connection that has gone needs no answer.
            let _ = checked.send(());
        }
        let first = message.session.numbers(count);
        self.push(&mut message, &body, first, &answer, joiner);
        answer.complete();
    }

    fn completion(&self) -> Completion<()> {
        Box::new(|_, _| {})
    }
}

impl Decoding {
    /// Bodies hold `body_max` bytes at most. `id_field` is the member of `fields` that is an event's id.
    pub(super) fn new(body_max: usize, id_field: Option<&str>) -> Self {
        Self {
            body_max,
            id_key: id_field.map(id_key),
            envelopes: Envelopes::default(),
            rendered: Rendered::default(),
        }
    }

    /// Decompresses and checks a body; gives it and how many events it has.
    fn check(
        &mut self,
        message: &mut Message,
        joiner: &mut HecJoiner,
    ) -> Result<(Bytes, usize), Failure> {
        let whole = message.received.whole(self.body_max, joiner);
        let body = whole.map_err(Fault::from)?;
        joiner.ctx.metrics.bytes(body.len());
        let count = match message.format {
            Format::Envelopes => self.envelopes.check(&body)?,
            Format::Lines => lines(&body).count(),
        };
        match count {
            0 => Err(Failure::no_data()),
            count => Ok((body, count)),
        }
    }

    /// Writes the events of a body that was checked, and adds them to batches.
    fn push(
        &mut self,
        message: &mut Message,
        body: &[u8],
        first: u64,
        answer: &Answer<Failure>,
        joiner: &mut HecJoiner,
    ) {
        let Message {
            received,
            session,
            defaults,
            ..
        } = message;
        let reservation = &mut received.reservation;
        let has_dots = message.format == Format::Envelopes && self.envelopes.has_dots;
        let writing = Writing {
            defaults,
            received: message.time,
            id_key: self.id_key.as_deref(),
            has_dots,
        };
        let mut next = first;
        let mut leave = |rendered: &mut Rendered, is_last: bool| {
            if is_last || rendered.is_full() {
                if has_dots {
                    rendered.dotted_keys();
                }
                let place = (&session.stream, next);
                next += rendered.len() as u64;
                rendered.leave(&(), place, reservation, answer, joiner);
            }
        };
        // A panic may have left something.
        self.rendered.clear();
        match message.format {
            Format::Envelopes => {
                self.envelopes.restart(body);
                while let Some(envelope) = self.envelopes.next(body) {
                    writing.envelope(&envelope, &mut self.rendered);
                    leave(&mut self.rendered, false);
                }
            }
            Format::Lines => {
                for line in lines(body) {
                    writing.line(String::from_utf8_lossy(line).as_bytes(), &mut self.rendered);
                    leave(&mut self.rendered, false);
                }
            }
        }
        leave(&mut self.rendered, true);
    }
}

/// The lines of a body, but for blank ones.
fn lines(body: &[u8]) -> impl Iterator<Item = &[u8]> {
    let body = body.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(body);
    let lines = body.split(|byte| *byte == b'\n');
    let lines = lines.map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    lines.filter(|line| !line.trim_ascii().is_empty())
}
