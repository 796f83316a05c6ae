//! Settings that all inputs that read bytes have.

use batch::Encoding;
use codec::compress::Format;
use config::{ConfigError, Node, Size};
use schemars::JsonSchema;
use serde::Deserialize;

/// How the events of a stream are written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Codec {
    /// Each line is an event with the line as `message`.
    #[default]
    Text,
    /// Each line is a JSON object. Blank lines count for nothing; a line that is no JSON object becomes an event of text
    /// with the tag `_jsonparsefailure`.
    Json,
    /// MessagePack maps, one after the other. A broken one ends the stream with an error.
    Msgpack,
}

/// How a stream is compressed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Compression {
    /// Gzip and zstd are recognised by their first bytes, whatever the name is.
    #[default]
    Auto,
    /// The bytes are taken as they are.
    None,
    /// The stream must be gzip.
    Gzip,
    /// The stream must be zstd.
    Zstd,
}

impl Compression {
    /// The one that was set, without looking at the stream.
    pub(crate) fn format(self) -> Option<Format> {
        match self {
            Self::Auto | Self::None => None,
            Self::Gzip => Some(Format::Gzip),
            Self::Zstd => Some(Format::Zstd),
        }
    }
}

/// The default of `max_line_bytes`.
pub(crate) fn line_size_default() -> Size {
    Size(1 << 20)
}

/// The most that `max_line_bytes` may be: places in a batch are 32-bit numbers.
const LINE_SIZE_MAX: Size = Size(1 << 30);

/// What a decoder needs to know.
///
/// # Errors
/// A `max_line_bytes` beyond what is possible.
pub(crate) fn codec_settings(
    node: &Node,
    codec: Codec,
    add_fields: bool,
    max_line_bytes: Size,
) -> Result<codec::Settings, ConfigError> {
    if max_line_bytes < Size(1) || max_line_bytes > LINE_SIZE_MAX {
        let message = format!("`max_line_bytes` is at least 1B and at most {LINE_SIZE_MAX}");
        return Err(node.nearest("max_line_bytes").error(message));
    }
    let encoding = match codec {
        Codec::Text => Encoding::Text,
        Codec::Json => Encoding::Json,
        Codec::Msgpack => Encoding::MsgPack,
    };
    Ok(codec::Settings {
        encoding,
        record_max: max_line_bytes.bytes(),
        add_fields,
    })
}
