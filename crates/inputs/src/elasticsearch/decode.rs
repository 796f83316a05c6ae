//! From the body of a request to events.

use std::sync::Arc;

use batch::Encoding;
use tokio::sync::oneshot;

use super::bulk::{Defaults, Items};
use super::failure::Failure;
use super::filter::Filter;
use super::reply::{Draft, Reply};
use super::target::{self, Runs, Verb};
use crate::connections::answer::Answer;
use crate::connections::batcher::{Completion, Joiner, Protocol};
use crate::connections::request::{Fault, Received};
use crate::connections::session::Session;

/// A request that was read whole.
pub(super) struct Message {
    pub(super) received: Received,
    pub(super) session: Arc<Session>,
    pub(super) content: Content,
    pub(super) defaults: Defaults,
    /// Where the reply goes, before the events are safe.
    pub(super) reply: oneshot::Sender<Reply>,
}

/// What is in the body.
pub(super) enum Content {
    Bulk { filter: Filter },
    Document { verb: Verb, id: Option<String> },
}

/// How requests become events.
pub(super) struct Decoding {
    pub(super) body_max: usize,
    pub(super) items_max: usize,
    pub(super) items: Items,
    pub(super) draft: Draft,
}

type BulkJoiner = Joiner<Runs, Failure>;

impl Protocol for Decoding {
    type Message = Message;
    type Mark = Runs;
    type Reason = Failure;

    fn add(&mut self, mut message: Message, answer: Answer<Failure>, joiner: &mut BulkJoiner) {
        let (reply, first) = match self.read(&mut message, joiner) {
            Ok(read) => read,
            Err(failure) => return answer.reject(failure),
        };
        // A connection that has gone needs no reply.
        let _ = message.reply.send(reply);
        let (body, place) = (&message.received.bytes, (&message.session.stream, first));
        let (mut from, count) = (0, self.items.len());
        while from < count {
            joiner.join_with((Encoding::Json, false), &answer, |builder| {
                let runs;
                (from, runs) = self.items.push(body, from, place, builder);
                runs
            });
        }
        answer.complete();
    }

    fn completion(&self) -> Completion<Runs> {
        Box::new(|batch, marks| {
            target::lay(batch, marks);
        })
    }
}

impl Decoding {
    /// Decompresses and reads a message, and writes its reply; gives the number of its first event.
    fn read(
        &mut self,
        message: &mut Message,
        joiner: &mut BulkJoiner,
    ) -> Result<(Reply, u64), Failure> {
        let Message {
            received,
            session,
            content,
            defaults,
            ..
        } = message;
        received
            .inflate(self.body_max, joiner)
            .map_err(Fault::from)?;
        let body = &received.bytes;
        joiner.ctx.metrics.bytes(body.len());
        match content {
            Content::Bulk { .. } => self.items.read(body, defaults, self.items_max)?,
            Content::Document { verb, id } => {
                self.items.single(body, defaults, *verb, id.as_deref())?;
                if let Some(error) = self.items.errors().first() {
                    return Err(Failure::new(error.status, error.kind, &*error.reason));
                }
            }
        }
        warn_of_documents(joiner, session, &self.items);
        let first = session.numbers(self.items.len());
        let place = (&*session.stream, first);
        let reservation = &mut received.reservation;
        match content {
            Content::Bulk { filter } => {
                let grow = |more| joiner.grow(reservation, more);
                self.draft.bulk(&self.items, body, place, filter, grow);
            }
            Content::Document { .. } => self.draft.document(&self.items, body, place),
        }
        let mut charged = |bytes: &[u8]| joiner.copy(reservation, bytes);
        let reply = self.draft.finish(&mut charged);
        let rewritten = self.items.rewritten();
        if !rewritten.is_empty() {
            let side = charged(rewritten).freeze(rewritten.len());
            self.items.keep_beside(side);
        }
        Ok((reply, first))
    }
}

/// Counts documents that were refused, and says why the first one was.
fn warn_of_documents(joiner: &BulkJoiner, session: &Session, items: &Items) {
    let [first, ..] = items.errors() else {
        return;
    };
    let (refused, count) = (items.errors().len(), items.len());
    joiner
        .ctx
        .metrics
        .count("refused_documents", refused as u64);
    session.warn(&joiner.ctx, "refused_documents", || {
        let reason = &first.reason;
        format!(
            "{refused} of {count} documents of a request were refused, the first one because: {reason}"
        )
    });
}
