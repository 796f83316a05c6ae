//! Messages that a server keeps until it is told that they are safe: what inputs that take them from it have in common.
//!
//! | module | holds |
//! | --- | --- |
//! | [`settings`] | settings with the same names in all of them |
//! | [`gather`] | messages on their way to a batch |
//! | [`batches`] | makes batches of them |
//! | [`in_flight`] | what was sent, until it is known what became of it |
//! | [`working`] | the work: connect, read, send, tell what is safe, and begin again when the connection breaks |

pub(crate) mod batches;
pub(crate) mod gather;
pub(crate) mod in_flight;
pub(crate) mod settings;
pub(crate) mod working;
