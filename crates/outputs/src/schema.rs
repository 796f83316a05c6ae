//! The settings of outputs over HTTP: their own, and those of the client.

use net::ClientSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::Value;

/// The schema of settings that stand beside those of a client.
pub fn with_client<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    let mut schema = T::json_schema(generator);
    let mut client = ClientSettings::json_schema(generator);
    let properties = |schema: &mut Schema| schema.get_mut("properties").map(Value::take);
    let (own, client) = (properties(&mut schema), properties(&mut client));
    if let (Some(Value::Object(mut own)), Some(Value::Object(client))) = (own, client) {
        for (name, setting) in client {
            own.entry(name).or_insert(setting);
        }
        schema.insert("properties".to_owned(), own.into());
    }
    schema
}
