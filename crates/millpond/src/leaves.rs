//! What an event holds, field by field, for those who compare events.

use serde_json::{Map, Value};

/// The fields of an event that are no objects, or empty ones, with the keys that lead to them.
pub fn leaves(event: &Value) -> Vec<(Vec<&str>, &Value)> {
    fn add<'v>(
        keys: &mut Vec<&'v str>,
        fields: &'v Map<String, Value>,
        out: &mut Vec<(Vec<&'v str>, &'v Value)>,
    ) {
        for (key, value) in fields {
            keys.push(key);
            match value {
                Value::Object(below) if !below.is_empty() => add(keys, below, out),
                value => out.push((keys.clone(), value)),
            }
            keys.pop();
        }
    }
    let mut out = Vec::new();
    if let Value::Object(fields) = event {
        add(&mut Vec::new(), fields, &mut out);
    }
    out
}
