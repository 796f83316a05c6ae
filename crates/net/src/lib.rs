//! What inputs and outputs on the network have in common: addresses, listeners with limits, TLS both ways, HTTP servers
//! and clients, and secrets.
//!
//! | module | holds |
//! | --- | --- |
//! | [`secret`] | [`Secret`]: a setting that is never printed |
//! | [`auth`] | [`Auth`]: user and password, or a token, sent by clients and asked for by servers |
//! | [`tls`] | [`ClientTls`] and [`ServerTls`]: settings, certificates, their renewal |
//! | [`listen`] | [`Address`], [`Listener`]: accepts connections within limits, with or without TLS |
//! | [`accept`] | the accept loop: a task for each connection, and their end |
//! | [`places`] | `max_connections`, and who leaves when another client comes |
//! | [`handler`] | [`Handler`]: what answers requests |
//! | [`server`] | HTTP/1.1 on a listener, and HTTP/2 for handlers that speak it |
//! | [`grpc`] | unary calls of gRPC: message framing, compression, status |
//! | [`guarded`] | limits on writing and closing, for clients that do not read |
//! | [`dial`] | [`Endpoint`], [`Dialer`]: connections to servers, with or without TLS |
//! | [`health`] | [`Health`]: whether the server has closed a connection, and what it has confirmed |
//! | [`client`] | [`Client`]: HTTP requests with time-outs, proxies and a pool of connections |
//! | [`nats`] | the protocol of NATS: logging in, messages |
//! | [`redis`] | the protocol of Redis: commands, answers, logging in |
//!
//! Rules:
//! - Constructors of components read settings only. Files, ports and names are touched by `bind` and `build`, which
//!   components call when they open, and whose errors stand at the setting at fault.
//! - TLS is rustls with the `ring` provider: no other one is compiled in, and no process-wide default is set.
//! - No secret is in an error, a log line or a debug text.

pub mod accept;
pub mod auth;
mod body;
pub mod client;
mod closing;
pub mod dial;
pub mod grpc;
pub mod guarded;
pub mod handler;
pub mod health;
mod http2;
pub mod listen;
pub mod nats;
mod notice;
pub mod places;
pub mod redis;
pub mod secret;
pub mod server;
mod stamp;
pub mod tls;
mod unsent;

pub use accept::{Peer, accept};
pub use auth::Auth;
pub use client::{Client, ClientSettings, RequestError};
pub use dial::{DialError, Dialed, Dialer, Endpoint};
pub use guarded::{BUFFER_BYTES_MAX, Guarded};
pub use handler::{ConnectionError, Handler};
pub use health::Health;
pub use listen::{Address, Connection, Incoming, Listener, Stream};
pub use notice::Notice;
pub use places::{AtWork, Places, Stopping, Watched, at_work};
pub use secret::{Secret, SecretError};
pub use server::serve;
pub use stamp::Stamp;
pub use tls::{ClientTls, ServerTls, is_of_tls};
