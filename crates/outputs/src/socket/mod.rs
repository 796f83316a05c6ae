//! What `tcp`, `udp`, `unix` and `syslog` have in common: protocols without acknowledgements.
//!
//! | module | holds |
//! | --- | --- |
//! | [`framing`] | where an event ends in what is sent |
//! | [`stream`] | connections: what counts as delivered, and what is sent again |
//! | [`recent`] | what was sent last, and may not have been read |
//! | [`address`] | addresses of sockets on this machine |
//! | [`datagrams`] | sockets of datagrams |
//! | [`channel`] | either of the two |
//! | [`output`] | an output that sends what it renders over a channel |
//!
//! Requests go out one at a time, in the order of the events ([`RequestOrder::ByDestination`](component::RequestOrder)).

mod address;
pub mod channel;
pub mod datagrams;
pub mod framing;
pub mod output;
pub mod recent;
pub mod settings;
pub mod stream;

#[cfg(test)]
mod tests;
