//! The settings of outputs together with those that several outputs share.

use component::beside;
use net::ClientSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::Value;

use crate::codec::{CodecName, CodecSettings};

/// The schema of settings that stand beside those of an HTTP client.
pub fn with_client<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    with::<T, ClientSettings>(generator)
}

/// The schema of settings that stand beside others.
pub fn with<T: JsonSchema, O: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    let own = T::json_schema(generator);
    beside(own, O::json_schema(generator))
}

/// The schema of settings that stand beside those of a codec.
pub fn with_codec<T: JsonSchema>(generator: &mut SchemaGenerator, default: CodecName) -> Schema {
    let own = T::json_schema(generator);
    codec_beside(own, generator, default)
}

/// A schema of settings with those of a codec added.
pub fn codec_beside(own: Schema, generator: &mut SchemaGenerator, default: CodecName) -> Schema {
    let mut codec = CodecSettings::json_schema(generator);
    let setting = codec.pointer_mut("/properties/codec");
    if let (Some(Value::Object(setting)), Ok(name)) = (setting, serde_json::to_value(default)) {
        setting.insert("default".to_owned(), name);
    }
    beside(own, codec)
}
