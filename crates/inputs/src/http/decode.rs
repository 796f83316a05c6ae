//! From the body of a request to events.

use std::sync::Arc;

use bytes::Bytes;
use codec::{BodyFormat, Documents};
use http::StatusCode;

use super::fields::{self, Given};
use crate::connections::answer::Answer;
use crate::connections::batcher::{Completion, Joiner, Protocol};
use crate::connections::refusal::Refusal;
use crate::connections::request::{Fault, Received};
use crate::connections::session::Session;

/// A request that was read whole.
pub(super) struct Message {
    pub(super) received: Received,
    /// None where its first character says.
    pub(super) format: Option<BodyFormat>,
    pub(super) session: Arc<Session>,
    pub(super) fields: Option<Arc<Given>>,
}

/// How requests become events.
pub(super) struct Decoding {
    pub(super) body_max: usize,
    pub(super) add_fields: bool,
    pub(super) documents: Documents,
}

type HttpJoiner = Joiner<Option<Arc<Given>>, Refusal>;

impl Protocol for Decoding {
    type Message = Message;
    type Mark = Option<Arc<Given>>;
    type Reason = Refusal;

    fn add(&mut self, mut message: Message, answer: Answer<Refusal>, joiner: &mut HttpJoiner) {
        let body = match self.read(&mut message, joiner) {
            Ok(body) => body,
            Err(refusal) => return answer.reject(refusal),
        };
        let Message {
            session,
            fields,
            format,
            ..
        } = message;
        let encoding = format.unwrap_or(BodyFormat::Lines).encoding();
        let count = self.documents.len();
        let first = session.numbers(count);
        let mut from = 0;
        while from < count {
            let kind = (encoding, self.add_fields);
            joiner.join(kind, fields.clone(), &answer, |builder| {
                builder.stream(&session.stream);
                from = self.documents.push(&body, from, first, builder);
            });
        }
        answer.complete();
    }

    fn completion(&self) -> Completion<Self::Mark> {
        Box::new(fields::set)
    }
}

impl Decoding {
    /// Decompresses and reads a message; gives its body. Afterwards its format is known.
    fn read(&mut self, message: &mut Message, joiner: &mut HttpJoiner) -> Result<Bytes, Refusal> {
        let whole = message.received.whole(self.body_max, joiner);
        let body = whole.map_err(Fault::from)?;
        joiner.ctx.metrics.bytes(body.len());
        let format = message.format.unwrap_or_else(|| BodyFormat::guess(&body));
        message.format = Some(format);
        self.documents
            .read(&body, format)
            .map_err(|error| Refusal::new(StatusCode::BAD_REQUEST, error.to_string()))?;
        Ok(body)
    }
}
