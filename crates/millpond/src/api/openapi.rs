//! The OpenAPI description, from the table of the paths and the types of the answers.

use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use super::reply::{Described, Failure, Route};

/// The description of these paths, as OpenAPI 3.1.
pub fn description(routes: &[Route]) -> Value {
    let mut settings = SchemaSettings::draft2020_12().for_serialize();
    settings.definitions_path = "/components/schemas".into();
    let mut generator = SchemaGenerator::new(settings);
    let mut paths = Map::new();
    for route in routes {
        let operation = operation(route, &mut generator);
        let path = paths.entry(route.path).or_insert_with(|| json!({}));
        path[route.method.as_str().to_lowercase()] = operation;
    }
    let schemas = generator.take_definitions(true);
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Millpond",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Health, metrics and statistics of a Millpond process.",
            "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
        },
        "servers": [{ "url": "/" }],
        "security": [{}, { "token": [] }],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": { "token": { "type": "http", "scheme": "bearer" } },
        },
    })
}

fn operation(route: &Route, generator: &mut SchemaGenerator) -> Value {
    let parameters = route.query.iter().map(|(name, is_number, what)| {
        let kind = if *is_number { "integer" } else { "string" };
        json!({ "name": name, "in": "query", "description": what, "schema": { "type": kind } })
    });
    let mut responses = Map::new();
    for described in route.answers {
        responses.insert(described.status.to_string(), response(described, generator));
    }
    let failure = generator.subschema_for::<Failure>();
    let failed = json!({
        "description": "The request is refused, for this reason.",
        "content": { "application/json": { "schema": failure } },
    });
    responses.insert("default".to_owned(), failed);
    let mut operation = json!({
        "summary": route.summary,
        "parameters": parameters.collect::<Vec<_>>(),
        "responses": responses,
    });
    if route.is_open {
        operation["security"] = json!([{}]);
    }
    operation
}

fn response(described: &Described, generator: &mut SchemaGenerator) -> Value {
    let content = match described.schema {
        Some(schema) => json!({ "schema": schema(generator) }),
        None => json!({}),
    };
    let mut of_types = Map::new();
    of_types.insert(described.content_type.to_owned(), content);
    json!({ "description": described.what, "content": of_types })
}
