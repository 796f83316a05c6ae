//! From what was received to events.

use std::convert::Infallible;
use std::sync::Arc;

use batch::Stream;
use codec::{Chunk, Decoder};
use component::{InputContext, Limit};
use tokio::sync::SetOnce;

use crate::connections::answer::Answer;
use crate::connections::batcher::{Completion, Joiner, Protocol};
use crate::reading::emitter::count;

/// What is said of a message that was truncated.
const CUT: &str =
    "is longer than `max_line_bytes`, or the connection ended within it, and was truncated";

/// Whole records of one connection, or datagrams of one sender.
pub(super) struct Message {
    pub(super) stream: Arc<Stream>,
    pub(super) chunk: Chunk,
    /// Where it is said why nothing behind a document can be read.
    pub(super) broken: Option<Arc<SetOnce<String>>>,
}

/// How records become events.
pub(super) struct Decoding {
    decoder: Decoder,
    add_fields: bool,
    ctx: InputContext,
}

impl Decoding {
    pub(super) fn new(settings: &codec::Settings, ctx: &InputContext) -> Self {
        Self {
            decoder: Decoder::new(settings, &ctx.host),
            add_fields: settings.add_fields,
            ctx: ctx.clone(),
        }
    }
}

impl Protocol for Decoding {
    type Message = Message;
    type Mark = ();
    /// Nothing is refused: what cannot be understood becomes an event of text.
    type Reason = Infallible;

    fn add(
        &mut self,
        message: Message,
        answer: Answer<Infallible>,
        joiner: &mut Joiner<(), Infallible>,
    ) {
        let Message {
            stream,
            mut chunk,
            broken,
        } = message;
        let kind = (self.decoder.encoding(), self.add_fields);
        // Behind what is broken, nothing is known to be a message.
        let mut has_more = broken.as_ref().is_none_or(|broken| broken.get().is_none());
        while has_more {
            joiner.join(kind, (), &answer, |builder| {
                let added = self.decoder.add(&stream, &mut chunk, builder);
                has_more = added.unwrap_or_else(|error| {
                    if let Some(broken) = &broken {
                        // The first fault is the one that is told.
                        let _ = broken.set(error.to_string());
                    }
                    false
                });
            });
        }
        let dropped: u64 = self
            .decoder
            .take_dropped()
            .iter()
            .map(|dropped| dropped.events)
            .sum();
        if dropped > 0 {
            self.ctx.metrics.count("blank_messages", dropped);
        }
        count(&mut self.decoder, &stream, &self.ctx, CUT);
        answer.complete();
    }

    fn completion(&self) -> Completion<()> {
        let Some(syslog) = self.decoder.completion() else {
            return Box::new(|_, _| {});
        };
        let ctx = self.ctx.clone();
        Box::new(move |batch, _| {
            let counts = syslog.apply(batch);
            if let Some(row) = counts.first_row {
                ctx.metrics.count("broken_syslog_lines", counts.failures);
                ctx.metrics.failures(counts.failures as usize);
                let sender = &batch.origin().stream(row).source;
                let text = || {
                    format!(
                        "{sender}: what was received is not a syslog message: it was kept as text"
                    )
                };
                ctx.diagnostics
                    .warn_limited(Limit::events("broken_syslog_lines"), text);
            }
        })
    }
}
