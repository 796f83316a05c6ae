//! The JSON Schema of the configuration, put together from the components' own.
//!
//! A component's schema says what a setting is; the whole one also allows the ways to write it that the configuration
//! takes: one text for a list of one, and a variable where a number, a truth value or a word is wanted.

use component::{Build, Spec};
use config::{Shape, StageRole};
use pipeline::settings::{
    InputSettings, OnFailure, OutputSettings, ProcessSettings, ProcessorSettings, QueueSettings,
    RetrySettings, SendingSettings,
};
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value, json};

use crate::REGISTRY;
use crate::api::settings::{self as api, ApiSettings};
use crate::profile::settings::{ProfileSettings, SETTING};
use crate::sources::{IGNORED, INCLUDE};

/// The schema of a whole configuration file, as text.
pub fn schema() -> String {
    let mut root = settings::<ProcessSettings>();
    let pipelines =
        json!({ "type": "object", "minProperties": 1, "additionalProperties": pipeline() });
    if let Some(properties) = root.get_mut("properties").and_then(Value::as_object_mut) {
        properties.insert("pipelines".to_owned(), pipelines);
        properties.insert(SETTING.to_owned(), settings::<ProfileSettings>());
        let mut of_api = settings::<ApiSettings>();
        of_api["type"] = json!(["object", "boolean", "null"]);
        properties.insert(api::SETTING.to_owned(), of_api);
        properties.insert(
            INCLUDE.to_owned(),
            json!({
                "description": "Other YAML files whose settings belong to the configuration too: paths, relative to this file's folder, in which the last part may have wildcards.",
                "type": ["string", "array"],
                "items": { "type": "string" },
            }),
        );
    }
    root["patternProperties"] = json!({ format!("^{IGNORED}"): {} });
    root["$defs"] = Value::Object(definitions());
    root["anyOf"] = json!([{ "required": ["pipelines"] }, { "required": [SETTING] }, { "required": [INCLUDE] }]);
    root["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    root["title"] = json!("Millpond configuration");
    loosen(&mut root);
    let mut text = serde_json::to_string_pretty(&root).unwrap_or_default();
    text.push('\n');
    text
}

/// What stands more than once: the components of each role, and each component's settings, which an alias has too.
fn definitions() -> Map<String, Value> {
    let mut all = Map::new();
    for role in [StageRole::Input, StageRole::Processor, StageRole::Output] {
        all.insert(role.word().to_owned(), any_component(role));
        for spec in REGISTRY.of(role) {
            all.insert(definition(role, spec), component(spec));
        }
    }
    all
}

/// The name of the definition of a component's settings.
fn definition(role: StageRole, spec: &Spec) -> String {
    format!("{}-{}", role.word(), spec.name)
}

fn reference(definition: &str) -> Value {
    json!({ "$ref": format!("#/$defs/{definition}") })
}

fn pipeline() -> Value {
    let [input, output] = [StageRole::Input, StageRole::Output].map(|role| reference(role.word()));
    let list = |item: &Value| json!({ "type": "array", "items": item, "minItems": 1 });
    let one_or_list = |item: &Value| json!({ "anyOf": [item, list(item)] });
    let mut on_failure = settings::<ProcessorSettings>()["properties"]["on_failure"].clone();
    on_failure["description"] = json!(
        "What happens to an event that a processor cannot handle, unless the processor says otherwise."
    );
    on_failure["default"] = json!(OnFailure::default());
    let long = json!({
        "type": "object",
        "additionalProperties": false,
        "properties": {
            "input": one_or_list(&input),
            "inputs": one_or_list(&input),
            "queue": settings::<QueueSettings>(),
            "processors": processors(""),
            "on_failure": on_failure,
            "output": one_or_list(&output),
            "outputs": one_or_list(&output),
            "retry": settings::<RetrySettings>(),
        },
        "allOf": [
            { "not": { "required": ["input", "inputs"] } },
            { "not": { "required": ["output", "outputs"] } },
        ],
    });
    let one_line =
        json!({ "type": "string", "pattern": r"\|", "description": "A one-line pipeline." });
    json!({ "anyOf": [long, one_line] })
}

/// A list of processors.
fn processors(description: &str) -> Value {
    let processor = reference(StageRole::Processor.word());
    let mut list = json!({ "type": "array", "items": processor });
    if !description.is_empty() {
        list["description"] = json!(description);
    }
    list
}

/// A component of this role: its bare name, a stage of a one-line pipeline, or its name with settings.
fn any_component(role: StageRole) -> Value {
    let named = || {
        let specs = REGISTRY.of(role).iter();
        specs.flat_map(|spec| spec.names().map(move |name| (name, spec)))
    };
    let names: Vec<&str> = named().map(|(name, _)| name).collect();
    let with_settings = named().map(|(name, spec)| {
        let properties =
            Map::from_iter([(name.to_owned(), json!({ "anyOf": alternatives(role, spec) }))]);
        json!({ "type": "object", "properties": properties, "required": [name], "additionalProperties": false })
    });
    let stages = json!({ "type": "string", "pattern": format!(r"^({})\s", names.join("|")) });
    let all: Vec<Value> = [json!({ "enum": names }), stages]
        .into_iter()
        .chain(with_settings)
        .collect();
    json!({ "anyOf": all })
}

/// What may stand behind a component's name: its settings, nothing, or what a stage of a one-line pipeline has there.
fn alternatives(role: StageRole, spec: &Spec) -> Vec<Value> {
    let settings = reference(&definition(role, spec));
    let mut all = vec![settings, json!({ "type": "null" })];
    if let Some(field) = spec.positional.fields.first() {
        let short = match spec.positional.shape {
            Shape::Expression | Shape::Assignments | Shape::Renames => json!({ "type": "string" }),
            Shape::Names => json!({ "type": ["string", "array"], "items": { "type": "string" } }),
            Shape::Values | Shape::Rest | Shape::List => {
                component(spec)["properties"][field].clone()
            }
        };
        all.push(short);
    }
    all
}

/// The settings of a component, those that every component of its kind takes included.
pub fn component(spec: &Spec) -> Value {
    let mut schema = (spec.schema)(&mut generator()).to_value();
    let common = common(spec);
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

/// The settings that every component of the kind takes.
pub fn common(spec: &Spec) -> Value {
    match spec.build {
        Build::Input(_) | Build::Fed(_) => settings::<InputSettings>(),
        Build::Processor { .. } => settings::<ProcessorSettings>(),
        Build::Writer { .. } | Build::Feeder(_) => output_settings(),
        Build::Sender(_) => {
            let mut all = output_settings();
            let mut sending = settings::<SendingSettings>();
            if let (Some(all), Some(sending)) = (
                all["properties"].as_object_mut(),
                sending["properties"].as_object_mut(),
            ) {
                all.append(sending);
            }
            all
        }
    }
}

/// The settings that every output takes.
fn output_settings() -> Value {
    let mut all = settings::<OutputSettings>();
    all["properties"]["processors"] = processors(
        "Processors that only the events of this output go through, in order, behind those of the pipeline; each is written as there. What they drop, other outputs still get.",
    );
    all
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

/// Allows what the configuration takes beside the plain form, in this schema and all within it.
fn loosen(schema: &mut Value) {
    let Some(keywords) = schema.as_object_mut() else {
        return;
    };
    // Two branches may allow the same variable. Branches that only require are there to exclude each other.
    let branches = keywords.get("oneOf").and_then(Value::as_array);
    if branches.is_some_and(|all| all.iter().any(|branch| branch.get("required").is_none()))
        && let Some(branches) = keywords.remove("oneOf")
    {
        keywords.insert("anyOf".to_owned(), branches);
    }
    for (keyword, value) in keywords.iter_mut() {
        match (keyword.as_str(), value) {
            ("properties" | "patternProperties" | "$defs", Value::Object(named)) => {
                named.values_mut().for_each(loosen);
            }
            ("anyOf" | "allOf" | "oneOf" | "prefixItems", Value::Array(all)) => {
                all.iter_mut().for_each(loosen);
            }
            ("items" | "additionalProperties", within) => loosen(within),
            _ => {}
        }
    }
    let item = keywords.get("items").filter(|item| is_scalar(item));
    let alternative = if let Some(item) = item {
        item.clone()
    } else if takes_no_variable(schema) {
        json!({ "type": "string", "pattern": r"\$\{" })
    } else {
        return;
    };
    allow(schema, &alternative);
}

/// Makes a schema one of two. What it says about the setting as a whole stays at the top.
fn allow(schema: &mut Value, alternative: &Value) {
    let mut plain = schema.take();
    let mut either = Map::new();
    for about in ["title", "description", "default"] {
        if let Some(text) = plain.as_object_mut().and_then(|plain| plain.remove(about)) {
            either.insert(about.to_owned(), text);
        }
    }
    either.insert("anyOf".to_owned(), json!([plain, alternative]));
    *schema = Value::Object(either);
}

/// Whether every value that the schema allows is a text, a number, a truth value or null.
fn is_scalar(schema: &Value) -> bool {
    let is_scalar_type = |name: &Value| !matches!(name.as_str(), Some("array" | "object"));
    if let Some(branches) = schema.get("anyOf").and_then(Value::as_array) {
        return branches.iter().all(is_scalar);
    }
    match schema.get("type") {
        Some(Value::Array(types)) => types.iter().all(is_scalar_type),
        Some(name) => is_scalar_type(name),
        None => schema.get("enum").is_some() || schema.get("const").is_some(),
    }
}

/// Whether it is a scalar that refuses a text with a variable in it.
fn takes_no_variable(schema: &Value) -> bool {
    let is_text = match schema.get("type") {
        Some(Value::Array(types)) => types.iter().any(|name| name == "string"),
        Some(name) => name == "string",
        None => false,
    };
    let is_bound = ["enum", "const", "pattern"]
        .iter()
        .any(|keyword| schema.get(keyword).is_some());
    let is_null = schema.get("type").is_some_and(|name| name == "null");
    schema.get("anyOf").is_none() && is_scalar(schema) && !is_null && (!is_text || is_bound)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every description in a schema that states a default although the code gives one.
    fn defaults_said_twice(schema: &Value) -> Vec<String> {
        let is_empty = |default: &Value| {
            default.as_array().is_some_and(Vec::is_empty)
                || default.as_object().is_some_and(Map::is_empty)
        };
        let description = schema["description"].as_str().unwrap_or_default();
        let default = schema.get("default");
        let has_default = default.is_some_and(|it| !it.is_null() && !is_empty(it));
        let own = has_default && description.contains("Default:");
        let within: Vec<&Value> = match schema {
            Value::Object(members) => members.values().collect(),
            Value::Array(items) => items.iter().collect(),
            _ => Vec::new(),
        };
        let mut found: Vec<String> = within.into_iter().flat_map(defaults_said_twice).collect();
        found.extend(own.then(|| description.to_owned()));
        found
    }

    #[test]
    fn a_default_is_said_once() {
        let schema = serde_json::from_str(&schema()).expect("JSON");
        assert_eq!(defaults_said_twice(&schema), [""; 0]);
    }

    #[test]
    fn the_whole_schema_allows_other_spellings() {
        let variable = json!({ "type": "string", "pattern": r"\$\{" });
        for (plain, expected) in [
            (
                json!({ "type": "array", "items": { "type": "string" }, "description": "d" }),
                json!({ "description": "d", "anyOf": [
                    { "type": "array", "items": { "type": "string" } }, { "type": "string" }
                ] }),
            ),
            (
                json!({ "type": "boolean", "default": true }),
                json!({ "default": true, "anyOf": [{ "type": "boolean" }, variable] }),
            ),
            (
                json!({ "oneOf": [{ "const": "a" }, { "type": "null" }] }),
                json!({ "anyOf": [{ "anyOf": [{ "const": "a" }, variable] }, { "type": "null" }] }),
            ),
            (
                json!({ "type": "object", "properties": { "type": { "type": "integer" } } }),
                json!({ "type": "object", "properties": { "type": { "anyOf": [{ "type": "integer" }, variable] } } }),
            ),
        ] {
            let mut loosened = plain;
            loosen(&mut loosened);
            assert_eq!(loosened, expected);
        }
        for same in [
            json!({ "type": "string" }),
            json!(true),
            json!({ "oneOf": [{ "required": ["a"] }, { "required": ["b"] }] }),
            json!({ "type": "array", "items": { "type": "object" } }),
        ] {
            let mut loosened = same.clone();
            loosen(&mut loosened);
            assert_eq!(loosened, same);
        }
    }
}
