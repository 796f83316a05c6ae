//! The batch: up to a few thousand log events of one input, kept as they arrived.
//!
//! # Idea
//! Documents stay, processors work in columns. Each event's bytes stay as received in shared buffers; a field is *extracted*
//! into a [`Column`] the first time somebody asks for it, so that a condition on one field of JSON documents costs the search
//! for one key, and *written* as a column of edits; a writer merges documents and edits once, at the end ([`JsonWriter`],
//! [`MsgPackWriter`]: one mechanism, `format.rs` has what differs). `tree.rs` states the rule by which edits are read, merged and written; `apply.rs` writes them,
//! `read.rs` reads fields and `render.rs` merges.
//!
//! # Map
//! | module | holds |
//! | --- | --- |
//! | [`Bitmap`] | a set of rows: selection, sealed rows, the rows a processor gets |
//! | [`Cell`], [`Column`] | one value of one row, in 16 bytes; a field over the whole batch |
//! | [`FieldPath`] | `a.b`, `[a][b]`, `a['x-y']` |
//! | [`Batch`], [`Edit`], [`Failures`] | the batch, a transactional change of it, rows that failed |
//! | [`Origin`] | where every row came from: streams, offsets, event ids |
//! | [`TextChange`], [`ChangedTexts`], [`TextLimit`] | changing the texts of events one by one, such as cutting those that are too long |
//! | [`Reentry`] | where a batch goes on that is handed to its pipeline again |
//! | [`Parent`], [`Window`] | what ids of derived events are made of |
//! | [`Frozen`] | the bytes of a batch that a queue keeps |
//! | [`MembersWanted`] | whether the validator keeps where the members of documents stand |
//! | [`Budget`] | the process-wide memory budget and its buffers, charged once |
//! | [`json`], [`msgpack`] | byte-level readers and writers |
//! | [`fnv`] | the hash of ids and names |

mod apply;
mod batch;
mod bitmap;
mod branch;
mod budget;
mod cell;
mod change_texts;
mod column;
mod edit;
mod field_read;
pub mod fnv;
mod format;
mod ids;
pub mod json;
mod keep;
mod member_places;
mod mentions;
mod merge;
pub mod msgpack;
mod origin;
mod path;
mod pick;
mod read;
mod reentry;
mod render;
mod short_ids;
mod text_limit;
mod tree;
mod walk;
mod wire;
mod writer;

pub use batch::{Batch, BatchBuilder, Drops, Encoding, HostInfo};
pub use bitmap::Bitmap;
pub use budget::{Account, Budget, BufferPool, Charge, PooledBuffer, Reservation, Shortage};
pub use cell::{Cell, Span, Value};
pub use change_texts::{ChangedTexts, NewText, TextChange};
pub use column::{Column, ColumnBuilder};
pub use edit::{Edit, Failure, Failures};
pub use field_read::FieldRead;
pub use format::{EventFormat, Json, MsgPack};
pub use ids::{IdError, Parent, SENDER_ID_BYTES_MAX, Window};
pub use member_places::MembersWanted;
pub use origin::{Origin, Source, Stream};
pub use path::{FieldPath, PathError};
pub use reentry::Reentry;
pub use short_ids::ShortIds;
pub use text_limit::TextLimit;
pub use wire::{Frozen, WireError};
pub use writer::{EventWriter, FieldsWriter, JsonWriter, MsgPackWriter};
