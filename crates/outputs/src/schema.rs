//! The settings of outputs together with those that several outputs share.

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

/// A schema with the settings of another one added that it does not have itself.
fn beside(mut own: Schema, mut other: Schema) -> Schema {
    let properties = |schema: &mut Schema| schema.get_mut("properties").map(Value::take);
    let (settings, others) = (properties(&mut own), properties(&mut other));
    if let (settings, Some(Value::Object(others))) = (settings, others) {
        let mut settings = match settings {
            Some(Value::Object(settings)) => settings,
            _ => serde_json::Map::new(),
        };
        for (name, setting) in others {
            settings.entry(name).or_insert(setting);
        }
        own.insert("properties".to_owned(), settings.into());
    }
    own
}
