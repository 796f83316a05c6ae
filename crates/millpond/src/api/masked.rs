//! The configuration as it was understood, without its secrets.
//!
//! Variables are not expanded, and what stands in a setting that may hold a secret is left out, unless it is a variable or the name
//! of a file. Which settings these are comes from the schema, so that none can be forgotten; one of the same name that holds no
//! secret is left out, too.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use config::{Node, NodeKind};
use serde_json::{Map, Value};

use crate::schema;

/// What stands for a secret.
const HIDDEN: &str = "[secret]";

/// The names of settings that hold secrets.
static SECRETS: LazyLock<BTreeSet<String>> = LazyLock::new(|| {
    let mut names = BTreeSet::new();
    if let Ok(schema) = serde_json::from_str(&schema::schema()) {
        collect(&schema, &mut names);
    }
    names
});

fn collect(schema: &Value, names: &mut BTreeSet<String>) {
    match schema {
        Value::Object(map) => {
            if let Some(Value::Object(properties)) = map.get("properties") {
                let secret = properties.iter().filter(|(_, value)| is_secret(value));
                names.extend(secret.map(|(name, _)| name.clone()));
            }
            map.values().for_each(|value| collect(value, names));
        }
        Value::Array(items) => items.iter().for_each(|item| collect(item, names)),
        _ => {}
    }
}

/// Whether the value of a setting, or one of its parts that have no names of their own, is a secret.
fn is_secret(schema: &Value) -> bool {
    match schema {
        Value::Object(map) => {
            map.get("format").is_some_and(|format| format == "password")
                || map
                    .iter()
                    .any(|(key, value)| key != "properties" && is_secret(value))
        }
        Value::Array(items) => items.iter().any(is_secret),
        _ => false,
    }
}

/// A configuration as JSON, without its secrets.
pub fn masked(node: &Node) -> Value {
    value(node, false)
}

fn value(node: &Node, is_secret: bool) -> Value {
    match &node.kind {
        NodeKind::Null => Value::Null,
        NodeKind::Scalar { text, .. } if is_secret => match tells_nothing(text) {
            true => text.clone().into(),
            false => HIDDEN.into(),
        },
        NodeKind::Scalar { text, quoted: true } => without_password(text).into(),
        NodeKind::Scalar { text, .. } => match serde_json::from_str(text) {
            Ok(plain @ (Value::Bool(_) | Value::Number(_))) => plain,
            _ => without_password(text).into(),
        },
        NodeKind::List(items) => items.iter().map(|item| value(item, is_secret)).collect(),
        NodeKind::Map(entries) => {
            let entries = entries.iter().map(|(key, below)| {
                let name = key.as_str().unwrap_or_default();
                let is_secret = is_secret || SECRETS.contains(name);
                (name.to_owned(), value(below, is_secret))
            });
            Value::Object(entries.collect::<Map<_, _>>())
        }
    }
}

/// Whether the text of a secret is only where it comes from: `${NAME}` or `file:PATH`.
fn tells_nothing(text: &str) -> bool {
    let variable = text
        .strip_prefix("${")
        .and_then(|text| text.strip_suffix('}'));
    let is_name = |name: &str| {
        !name.is_empty()
            && name
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    };
    text.starts_with("file:") || variable.is_some_and(is_name)
}

/// A text in which a URL names no password.
fn without_password(text: &str) -> String {
    let Some((scheme, rest)) = text.split_once("://") else {
        return text.to_owned();
    };
    let end = rest.find(['/', '?', '#', ' ']).unwrap_or(rest.len());
    let authority = rest[..end].rsplit_once('@');
    match authority.and_then(|(user, host)| Some((user.split_once(':')?.0, host))) {
        Some((user, host)) => {
            let behind = without_password(&rest[end..]);
            format!("{scheme}://{user}:{HIDDEN}@{host}{behind}")
        }
        None => format!("{scheme}://{}", without_password(rest)),
    }
}

#[cfg(test)]
mod tests {
    use config::Source;
    use serde_json::json;

    use super::*;

    #[test]
    fn secrets_are_left_out_and_all_else_is_shown() {
        for name in ["password", "bearer", "api_key", "token", "headers", "proxy"] {
            assert!(SECRETS.contains(name), "{name}");
        }
        for name in [
            "user",
            "address",
            "url",
            "basic",
            "auth",
            "tls",
            "pipelines",
        ] {
            assert!(!SECRETS.contains(name), "{name}");
        }
        let text = "
api: { token: hunter1, address: ':9610' }
pipelines:
  one:
    input: { http: { address: 8080, auth: { basic: { user: me, password: hunter2 } } } }
    output:
      http:
        url: https://me:hunter3@host.example:1/a?b
        headers: { X-Key: hunter4, Y: '${KEY}', Z: file:/etc/z, W: '${KEY:-hunter5}' }
        max_retries: 3
        on: true
        name: '3'
";
        let node = config::parse_yaml(&Source::new("c.yaml", text)).expect("a tree");
        let shown = masked(&node);
        assert!(!shown.to_string().contains("hunter"), "{shown:#}");
        let output = &shown["pipelines"]["one"]["output"]["http"];
        let headers = json!({ "X-Key": HIDDEN, "Y": "${KEY}", "Z": "file:/etc/z", "W": HIDDEN });
        assert_eq!(output["headers"], headers);
        assert_eq!(output["url"], "https://me:[secret]@host.example:1/a?b");
        let others = (&output["max_retries"], &output["on"], &output["name"]);
        assert_eq!(others, (&json!(3), &json!(true), &json!("3")));
        let basic = &shown["pipelines"]["one"]["input"]["http"]["auth"]["basic"];
        assert_eq!(*basic, json!({ "user": "me", "password": HIDDEN }));
    }
}
