//! Codecs of outputs: an event as bytes, as the settings `codec`, `template`, `csv` and `text` say.
//!
//! # How an output uses it
//! 1. Settings. [`CodecSettings::divide`] takes the settings of the codec out of the output's node and gives the rest, which the
//!    output reads as its own `Config`; [`CodecSettings::codec`] makes the [`Codec`]. `schema` of its `Spec` is
//!    [`with_codec`](crate::schema::with_codec), which adds these settings to those of `Config`:
//!
//! ```text
//! schema: |generator| with_codec::<Config>(generator, CodecName::Json),
//! …
//! let (codec, own) = CodecSettings::divide(node)?;
//! let config: Config = codec.parse_rest(&own)?;
//! let codec = codec.codec(node, CodecName::Json)?;
//! ```
//!
//!    `timezone`, the zone of times in templates, is one of them. An output without other templates calls
//!    [`CodecSettings::refuse_idle_zone`]. `Output::reads` passes on [`Codec::reads`].
//! 2. Events. [`Codec::bind`] goes over the columns of one batch, and [`BoundCodec::write`](event::BoundCodec::write) appends one event without its end,
//!    for outputs that put something around it (a length before it, a datagram, an element of an array).
//!    [`BoundCodec::write_rows`](event::BoundCodec::write_rows) appends many, each with its end, and is the fast way where lines are wanted; `ended` is told
//!    where each row ends, as [`Encoded::ends`](component::Encoded::ends) wants it: `|row, end| …`.
//! 3. What follows an event is [`BoundCodec::end`](event::BoundCodec::end): a newline, or nothing with `msgpack`. Events of `json`,
//!    `logfmt` and `compact` hold no newline. Those of `template`, `text` and `csv` can: they hold values as they are (`csv` in quotes).
//! 4. [`Codec::header`] is for outputs that know where a stream begins (`file`, `stdout`); others leave it out.

mod compact;
mod csv;
mod event;
mod json;
mod logfmt;
mod settings;
mod template;
mod text;

pub use event::{BoundCodec, Codec};
pub use settings::{CodecName, CodecSettings};
pub use template::{ABSENT, escape_json, template};
