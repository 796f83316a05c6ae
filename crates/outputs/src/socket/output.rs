//! An output that sends what it renders over a [`Channel`].

use std::sync::Arc;

use async_trait::async_trait;
use batch::{Batch, Bitmap, FieldRead};
use component::{Encoded, Output, Request, Requests, SendError, Sender, Sent, Warning};
use config::ConfigError;

use super::channel::Channel;
use super::framing::Framing;
use crate::codec::Codec;

/// Renders events.
pub trait Messages: Send + Sync {
    /// The fields that templates name.
    fn reads(&self) -> Vec<Arc<FieldRead>>;

    /// Appends rows, and says where each ends.
    fn write(&self, batch: &Batch, rows: &Bitmap, encoded: &mut Encoded);
}

/// Events of a codec.
pub struct Events {
    pub codec: Codec,
    pub framing: Framing,
}

impl Messages for Events {
    fn reads(&self) -> Vec<Arc<FieldRead>> {
        self.codec.reads()
    }

    fn write(&self, batch: &Batch, rows: &Bitmap, encoded: &mut Encoded) {
        let mut codec = self.codec.bind(batch);
        self.framing
            .write(rows, encoded, |row, out| codec.write(row, out));
    }
}

/// The output.
pub struct SocketOutput<M> {
    pub messages: M,
    pub channel: Channel,
}

#[async_trait]
impl<M: Messages> Output for SocketOutput<M> {
    async fn open(&self) -> Result<(), ConfigError> {
        self.channel.open()
    }

    fn encode(&self, batch: &Batch, rows: &Bitmap, encoded: &mut Encoded) {
        self.messages.write(batch, rows, encoded);
    }

    fn reads(&self) -> Vec<Arc<FieldRead>> {
        self.messages.reads()
    }

    fn take_counters(&self) -> Vec<(&'static str, u64)> {
        self.channel.take_counters()
    }

    fn take_warnings(&self) -> Vec<Warning> {
        self.channel.take_warnings()
    }
}

#[async_trait]
impl<M: Messages> Sender for SocketOutput<M> {
    fn requests(&self) -> Requests {
        self.channel.requests()
    }

    async fn send(&self, request: &Request) -> Result<Sent, SendError> {
        self.channel.send(request).await
    }
}
