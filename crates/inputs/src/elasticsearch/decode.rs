//! From the body of a request to events.

use std::sync::Arc;

use batch::Encoding;
use tokio::sync::oneshot;

use super::bulk::{Defaults, Items};
use super::failure::Failure;
use super::filter::Filter;
use super::reply::{Draft, Reply};
use super::target::{self, Runs};
use crate::connections::answer::Answer;
use crate::connections::batcher::{Completion, Joiner, Protocol};
use crate::connections::request::{Fault, Received};
use crate::connections::session::Session;

/// A request that was read whole.
pub(super) struct Message {
    pub(super) received: Received,
    pub(super) defaults: Defaults,
    pub(super) session: Arc<Session>,
    /// What the client wants of the reply; none where the body is one document.
    pub(super) filter: Option<Filter>,
    /// Where the reply goes, before the events are safe.
    pub(super) reply: oneshot::Sender<Reply>,
}

/// How requests become events.
pub(super) struct Decoding {
    pub(super) body_max: usize,
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
        let (items, place) = (&self.items, (&message.session.stream, first));
        let (mut from, count) = (0, items.len());
        while from < count {
            joiner.join_with((Encoding::Json, false), &answer, |builder| {
                let runs;
                (from, runs) = items.push(from, place, builder);
                runs
            });
        }
        // What it holds of the request is free now.
        self.items.begin(Defaults::default());
        answer.complete();
    }

    fn completion(&self) -> Completion<Runs> {
        Box::new(|batch, marks| {
            target::lay(batch, marks);
        })
    }
}

impl Decoding {
    /// Reads a message and writes its reply; gives the number of its first event.
    fn read(
        &mut self,
        message: &mut Message,
        joiner: &mut BulkJoiner,
    ) -> Result<(Reply, u64), Failure> {
        let Message {
            received,
            session,
            defaults,
            filter,
            ..
        } = message;
        let (items, cut) = (&mut self.items, defaults.cut());
        items.begin(std::mem::take(defaults));
        received
            .read(cut, self.body_max, joiner, items)
            .map_err(Fault::from)?;
        joiner.ctx.metrics.bytes(items.bytes());
        items.end()?;
        if let (None, Some(error)) = (&filter, items.errors().first()) {
            return Err(Failure::new(error.status, error.kind, &*error.reason));
        }
        warn_of_documents(joiner, session, items);
        let first = session.numbers(items.len());
        let place = (&*session.stream, first);
        let reservation = &mut received.reservation;
        match filter {
            Some(filter) => {
                let grow = |more| joiner.grow(reservation, more);
                self.draft.bulk(items, place, filter, grow);
            }
            None => self.draft.document(items, place),
        }
        let reply = self.draft.finish(|bytes| joiner.copy(reservation, bytes));
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
