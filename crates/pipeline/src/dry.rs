//! Outputs that render and write nothing, for runs that measure or try a pipeline.
//!
//! They spend the CPU that the real output spends in this process: rows are rendered, joined into requests and compressed.
//! What they leave out is what happens outside: opening files and connections, system calls, the network, and waiting for the
//! destination. A file's bytes are compressed a batch at a time, where the real output goes on with one stream up to its next flush.

use std::io;
use std::sync::Arc;

use async_trait::async_trait;
use batch::{Batch, Bitmap, FieldRead};
use bytes::Bytes;
use component::{
    AnyOutput, Compression, Encoded, Output, Request, Requests, Rows, SendError, Sender, Sent,
    Warning, WriteError, Writer, Written,
};

use crate::lane::compress;

/// An output that renders as this one does, and writes nothing. What the real one has for itself it does not need.
pub fn dry(output: AnyOutput) -> AnyOutput {
    match output {
        AnyOutput::Writer(writer) => AnyOutput::Writer(Arc::new(Dry(writer))),
        AnyOutput::Sender(sender) => AnyOutput::Sender(Arc::new(Dry(sender))),
        // It stays within the process, where the other pipeline's outputs write nothing.
        AnyOutput::Feeder(feeder) => AnyOutput::Feeder(feeder),
    }
}

/// The output that renders.
struct Dry<T: ?Sized>(Arc<T>);

#[async_trait]
impl<T: Output + ?Sized> Output for Dry<T> {
    fn encode(&self, batch: &Batch, rows: &Bitmap, encoded: &mut Encoded) {
        self.0.encode(batch, rows, encoded);
    }

    fn reads(&self) -> Vec<Arc<FieldRead>> {
        self.0.reads()
    }

    fn take_counters(&self) -> Vec<(&'static str, u64)> {
        self.0.take_counters()
    }

    fn take_warnings(&self) -> Vec<Warning> {
        self.0.take_warnings()
    }
}

impl Dry<dyn Writer> {
    fn compress(&self, bytes: &[u8]) -> Result<(), WriteError> {
        let compressed = compress(self.0.compression(), bytes);
        compressed
            .map(drop)
            .map_err(|error| WriteError::Fatal(error.to_string()))
    }
}

#[async_trait]
impl Writer for Dry<dyn Writer> {
    async fn write(&self, encoded: &Encoded) -> Result<Written, WriteError> {
        if encoded.parts.is_empty() {
            self.compress(&encoded.bytes)?;
        }
        for part in &encoded.parts {
            self.compress(&encoded.bytes[part.bytes.clone()])?;
        }
        Ok(Written::default())
    }

    fn compression(&self) -> Compression {
        self.0.compression()
    }
}

#[async_trait]
impl Sender for Dry<dyn Sender> {
    fn requests(&self) -> Requests {
        self.0.requests()
    }

    fn pack(&self, rows: &mut Rows<'_>) -> io::Result<Option<Bytes>> {
        self.0.pack(rows)
    }

    async fn send(&self, _: &Request) -> Result<Sent, SendError> {
        Ok(Sent::default())
    }
}
