//! What happens at a listener.

use std::fmt;

/// What happens at a listener.
#[derive(Clone, Copy)]
pub enum Notice<'a> {
    /// A person should hear this.
    Warning(&'a str),
    /// A connection was accepted.
    Accepted,
    /// A connection has ended.
    Ended,
    /// There are as many connections as are allowed, and none that is silent: a client waits until one of them ends.
    Full,
    /// The connection of this client is closed, because it was silent and another client needs its place.
    Displaced(&'a dyn fmt::Display),
}
