//! Messages on their way to a batch.
//!
//! Values are copied one after the other into one buffer, and so is what is told about each message under `@metadata`. Both go into
//! memory of the budget when a batch is made of them.

use std::ops::Range;
use std::sync::Arc;

use batch::Stream;

/// A message that was read.
#[derive(Debug)]
pub(crate) struct GatheredMessage<T> {
    /// Its number in its stream.
    pub(crate) number: u64,
    /// Where its value is in the values.
    pub(crate) value: Range<usize>,
    /// Where what is told about it is in the metadata.
    pub(crate) metadata: Range<usize>,
    /// What the server is told when it is safe.
    pub(crate) token: T,
}

/// Messages in the order in which they came.
#[derive(Debug)]
pub(crate) struct Gathered<T> {
    pub(crate) values: Vec<u8>,
    pub(crate) metadata: Vec<u8>,
    pub(crate) messages: Vec<GatheredMessage<T>>,
    /// Those of one stream that follow each other.
    pub(crate) runs: Vec<(Arc<Stream>, Range<usize>)>,
}

impl<T> Gathered<T> {
    pub(crate) fn new() -> Self {
        Self {
            values: Vec::new(),
            metadata: Vec::new(),
            messages: Vec::new(),
            runs: Vec::new(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.messages.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Takes a message: `value` writes its value, `metadata` a JSON object of what is told about it.
    pub(crate) fn push(
        &mut self,
        (stream, number): (&Arc<Stream>, u64),
        token: T,
        value: impl FnOnce(&mut Vec<u8>),
        metadata: impl FnOnce(&mut Vec<u8>),
    ) {
        let (at, about) = (self.values.len(), self.metadata.len());
        value(&mut self.values);
        metadata(&mut self.metadata);
        let index = self.messages.len();
        self.messages.push(GatheredMessage {
            number,
            value: at..self.values.len(),
            metadata: about..self.metadata.len(),
            token,
        });
        match self.runs.last_mut() {
            Some((of, messages)) if of.id == stream.id => messages.end += 1,
            _ => self.runs.push((stream.clone(), index..index + 1)),
        }
    }
}
