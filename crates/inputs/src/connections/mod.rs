//! What inputs on the network have in common.
//!
//! | module | holds |
//! | --- | --- |
//! | [`answer`] | [`Answer`]: tells a connection what became of its message |
//! | [`batcher`] | [`Batcher`]: joins the messages of many connections into batches |

pub(crate) mod answer;
pub(crate) mod batcher;
