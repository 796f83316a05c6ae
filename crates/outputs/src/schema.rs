//! The settings of outputs that have others among their own, such as those of an HTTP client.

use net::ClientSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::Value;

/// The schema of settings that stand beside those of an HTTP client.
pub fn with_client<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    with::<T, ClientSettings>(generator)
}

/// The schema of settings that stand beside others.
pub fn with<T: JsonSchema, O: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    let mut schema = T::json_schema(generator);
    let mut others = O::json_schema(generator);
    let properties = |schema: &mut Schema| schema.get_mut("properties").map(Value::take);
    let (own, others) = (properties(&mut schema), properties(&mut others));
    if let (Some(Value::Object(mut own)), Some(Value::Object(others))) = (own, others) {
        for (name, setting) in others {
            own.entry(name).or_insert(setting);
        }
        schema.insert("properties".to_owned(), own.into());
    }
    schema
}
