//! From the body of a request to events.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use batch::{Batch, Reservation, Stream};
use bytes::Bytes;
use codec::{BodyFormat, Documents};
use http::StatusCode;

use super::fields::{self, Given};
use super::refusal::Refusal;
use crate::connections::answer::Answer;
use crate::connections::batcher::{Joiner, Protocol};
use crate::connections::inflate::{Coding, InflateError, inflate};

/// What is kept of a connection.
#[derive(Debug)]
pub(super) struct Session {
    /// The stream that its events belong to.
    pub(super) stream: Arc<Stream>,
    /// The number of its next event.
    pub(super) next: AtomicU64,
}

/// A request that was read whole.
pub(super) struct Message {
    pub(super) body: Bytes,
    /// How it is compressed, with the memory that it may grow in.
    pub(super) compressed: Option<(Coding, Reservation)>,
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
        if let Err(refusal) = self.read(&mut message, joiner) {
            return answer.reject(refusal);
        }
        let Message {
            body,
            session,
            fields,
            format,
            ..
        } = message;
        let encoding = format.unwrap_or(BodyFormat::Lines).encoding();
        let count = self.documents.len();
        let first = session.next.fetch_add(count as u64, Ordering::Relaxed);
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

    fn complete(batch: &mut Batch, marks: &[(Range<usize>, Self::Mark)]) {
        fields::set(batch, marks);
    }
}

impl Decoding {
    /// Decompresses and reads a message. Afterwards its format is known.
    fn read(&mut self, message: &mut Message, joiner: &mut HttpJoiner) -> Result<(), Refusal> {
        if let Some((coding, mut reservation)) = message.compressed.take() {
            let body = inflate(
                coding,
                &message.body,
                self.body_max,
                &mut reservation,
                |reservation, more| joiner.grow(reservation, more),
            );
            let body = body.map_err(|error| {
                let status = match error {
                    InflateError::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
                    InflateError::Damaged(_) => StatusCode::BAD_REQUEST,
                };
                Refusal::new(status, error.to_string())
            })?;
            let len = body.len();
            message.body = body.freeze(len);
        }
        joiner.ctx.metrics.bytes(message.body.len());
        let format = message
            .format
            .unwrap_or_else(|| BodyFormat::guess(&message.body));
        message.format = Some(format);
        self.documents
            .read(&message.body, format)
            .map_err(|error| Refusal::new(StatusCode::BAD_REQUEST, error.to_string()))
    }
}
