//! The JSON Schema of the configuration, put together from the components' own.

use component::Spec;
use config::StageRole;
use pipeline::settings::{
    InputSettings, MemoryQueueSettings, OutputSettings, ProcessSettings, ProcessorSettings,
    RetrySettings,
};
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value, json};

use crate::REGISTRY;

/// The schema of a whole configuration file, as text.
pub fn schema() -> String {
    let mut root = settings::<ProcessSettings>();
    let pipelines =
        json!({ "type": "object", "minProperties": 1, "additionalProperties": pipeline() });
    if let Some(properties) = root.get_mut("properties").and_then(Value::as_object_mut) {
        properties.insert("pipelines".to_owned(), pipelines);
    }
    root["required"] = json!(["pipelines"]);
    root["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    root["title"] = json!("Millpond configuration");
    let mut text = serde_json::to_string_pretty(&root).unwrap_or_default();
    text.push('\n');
    text
}

fn pipeline() -> Value {
    let [input, processor, output] =
        [StageRole::Input, StageRole::Processor, StageRole::Output].map(any_component);
    let list = |item: &Value| json!({ "type": "array", "items": item, "minItems": 1 });
    let one_or_list = |item: &Value| json!({ "anyOf": [item, list(item)] });
    json!({
        "type": "object",
        "additionalProperties": false,
        "properties": {
            "input": one_or_list(&input),
            "inputs": one_or_list(&input),
            "queue": { "anyOf": [
                { "const": "memory" },
                { "type": "object", "additionalProperties": false, "properties": { "memory": settings::<MemoryQueueSettings>() } },
            ] },
            "processors": { "type": "array", "items": processor },
            "output": one_or_list(&output),
            "outputs": one_or_list(&output),
            "retry": settings::<RetrySettings>(),
        },
        "allOf": [
            { "oneOf": [{ "required": ["input"] }, { "required": ["inputs"] }] },
            { "oneOf": [{ "required": ["output"] }, { "required": ["outputs"] }] },
        ],
    })
}

/// A component of this role: its bare name, or its name with settings.
fn any_component(role: StageRole) -> Value {
    let names: Vec<&str> = REGISTRY.of(role).iter().map(|spec| spec.name).collect();
    let with_settings = REGISTRY.of(role).iter().map(|spec| {
        let properties = Map::from_iter([(spec.name.to_owned(), component(spec))]);
        json!({ "type": "object", "properties": properties, "required": [spec.name], "additionalProperties": false })
    });
    let all: Vec<Value> = std::iter::once(json!({ "enum": names }))
        .chain(with_settings)
        .collect();
    json!({ "anyOf": all })
}

/// The settings of a component, those that every component of its kind takes included.
pub fn component(spec: &Spec) -> Value {
    let mut schema = (spec.schema)(&mut generator()).to_value();
    let common = common(spec.kind());
    if !schema.get("properties").is_some_and(Value::is_object) {
        schema["properties"] = json!({});
        schema["type"] = json!("object");
        schema["additionalProperties"] = json!(false);
    }
    if let (Some(own), Some(common)) = (
        schema["properties"].as_object_mut(),
        common["properties"].as_object(),
    ) {
        own.extend(common.clone());
    }
    schema["description"] = json!(spec.summary);
    schema
}

/// The settings that every component of a kind takes.
pub fn common(role: StageRole) -> Value {
    match role {
        StageRole::Input => settings::<InputSettings>(),
        StageRole::Processor => settings::<ProcessorSettings>(),
        StageRole::Output => settings::<OutputSettings>(),
    }
}

/// The schema of a settings struct, complete in itself.
pub fn settings<T: JsonSchema>() -> Value {
    T::json_schema(&mut generator()).to_value()
}

fn generator() -> SchemaGenerator {
    SchemaSettings::draft2020_12()
        .with(|settings| settings.inline_subschemas = true)
        .into_generator()
}
