//! What inputs on the network have in common.
//!
//! | module | holds |
//! | --- | --- |
//! | [`answer`] | [`Answer`](answer::Answer): tells a connection what became of its message |
//! | [`batcher`] | [`Batcher`](batcher::Batcher): joins the messages of many connections into batches |
//! | [`closing`] | [`Fault`](closing::Fault): why a connection is closed, and how that is reported |
//! | [`framed`] | [`Speaker`](framed::Speaker): connections of protocols that are no HTTP |
//! | [`inflate`] | decompression, whole and piece by piece |
//! | [`intake`] | [`Intake`](intake::Intake): reads frames into memory of the budget |
//! | [`pages`] | [`Pages`](pages::Pages): what was received, in buffers of the pool |
//! | [`refusal`] | [`Refusal`](refusal::Refusal): why a request is not taken, as text for its client |
//! | [`rendered`] | [`Rendered`](rendered::Rendered): documents that are written anew for a batch |
//! | [`request`] | [`Requests`](request::Requests): HTTP requests, from their checks to what became of their events |
//! | [`server`] | [`Server`](server::Server): inputs that listen |
//! | [`session`] | [`Session`](session::Session): a connection as the stream of its events |
//! | [`settings`] | settings that all listeners have |

pub(crate) mod answer;
pub(crate) mod batcher;
pub(crate) mod closing;
pub(crate) mod framed;
pub(crate) mod inflate;
pub(crate) mod intake;
pub(crate) mod pages;
pub(crate) mod refusal;
pub(crate) mod rendered;
pub(crate) mod request;
pub(crate) mod server;
pub(crate) mod session;
pub(crate) mod settings;
pub(crate) mod testing;
