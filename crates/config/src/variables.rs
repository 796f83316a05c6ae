//! `${NAME}` and `${NAME:default}` in the values of a tree.
//!
//! Expansion happens in scalar values of the finished tree, never in keys: a variable's value may hold any character
//! and still is part of one value. `$${` stands for a literal `${`. A default reaches to the next `}` and is used when
//! the variable is not set; a variable that is set to nothing gives nothing. As in a shell, `${NAME:-default}` gives the
//! default in that case too. Values are not expanded again.

use std::collections::BTreeMap;

use crate::closest::closest;
use crate::error::ConfigError;
use crate::node::{Node, NodeKind};

/// Where variables come from.
pub trait Variables {
    /// The value of a variable; none when it is not set.
    fn get(&self, name: &str) -> Option<String>;
    /// All names, to find the closest one to a name that is not set.
    fn names(&self) -> Vec<String>;
}

/// The environment of the process. Variables whose value is not UTF-8 count as not set.
#[derive(Debug, Clone, Copy, Default)]
pub struct Environment;

impl Variables for Environment {
    fn get(&self, name: &str) -> Option<String> {
        std::env::var(name).ok()
    }

    fn names(&self) -> Vec<String> {
        std::env::vars_os()
            .filter_map(|(name, _)| name.into_string().ok())
            .collect()
    }
}

impl Variables for BTreeMap<String, String> {
    fn get(&self, name: &str) -> Option<String> {
        BTreeMap::get(self, name).cloned()
    }

    fn names(&self) -> Vec<String> {
        self.keys().cloned().collect()
    }
}

/// Replaces the variables in every scalar value below `node`, itself included.
///
/// Errors: a variable that is neither set nor has a default, and a `${` that starts no variable.
pub fn expand_variables(node: &mut Node, variables: &dyn Variables) -> Result<(), ConfigError> {
    match &mut node.kind {
        NodeKind::Null => {}
        NodeKind::Scalar { text, .. } => {
            if !text.contains("${") {
                return Ok(());
            }
            let expanded = expand(text, variables);
            match expanded {
                Ok(expanded) => *text = expanded,
                Err(problem) => return Err(problem.into_error(node)),
            }
        }
        NodeKind::List(items) => {
            for item in items {
                expand_variables(item, variables)?;
            }
        }
        NodeKind::Map(entries) => {
            for (_, value) in entries {
                expand_variables(value, variables)?;
            }
        }
    }
    Ok(())
}

/// What is wrong with a value, and at which bytes of it.
struct Problem {
    range: std::ops::Range<usize>,
    message: String,
    suggestion: Option<String>,
}

impl Problem {
    fn into_error(self, node: &Node) -> ConfigError {
        let error = node.error(self.message).pointing_at_range(self.range);
        match self.suggestion {
            Some(name) => error.suggest(name),
            None => error.note(
                "`${NAME:default}` sets a default, `${NAME:-default}` also for a variable that is empty; without a default a variable must be set; `$${` is a literal `${`",
            ),
        }
    }
}

fn expand(text: &str, variables: &dyn Variables) -> Result<String, Problem> {
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    while let Some(found) = text[at..].find("${") {
        let start = at + found;
        if text[at..start].ends_with('$') {
            out.push_str(&text[at..start - 1]);
            out.push_str("${");
            at = start + 2;
            continue;
        }
        out.push_str(&text[at..start]);
        let body = &text[start + 2..];
        let Some(length) = body.find('}') else {
            let message = "a variable without a closing `}`";
            return Err(problem(start..start + 2, message));
        };
        at = start + 2 + length + 1;
        out.push_str(&value(&body[..length], start..at, variables)?);
    }
    out.push_str(&text[at..]);
    Ok(out)
}

fn value(
    body: &str,
    range: std::ops::Range<usize>,
    variables: &dyn Variables,
) -> Result<String, Problem> {
    let (name, default) = match body.split_once(':') {
        Some((name, default)) => (name, Some(default)),
        None => (body, None),
    };
    let valid = name
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if !valid || name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
        return Err(problem(range, format!("`{name}` is not a variable's name")));
    }
    if let Some(operator @ ('?' | '+' | '=')) = default.and_then(|text| text.chars().next()) {
        let message = format!("`:{operator}` after the name of a variable is not supported");
        return Err(problem(range, message));
    }
    let value = match default.and_then(|text| text.strip_prefix('-')) {
        Some(default) => {
            let value = variables.get(name).filter(|value| !value.is_empty());
            value.or_else(|| Some(default.to_owned()))
        }
        None => variables.get(name).or_else(|| default.map(str::to_owned)),
    };
    value.ok_or_else(|| {
        let names = variables.names();
        let mut missing = problem(range, format!("the variable `{name}` is not set"));
        missing.suggestion = closest(name, names.iter().map(String::as_str)).map(str::to_owned);
        missing
    })
}

fn problem(range: std::ops::Range<usize>, message: impl Into<String>) -> Problem {
    Problem {
        range,
        message: message.into(),
        suggestion: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Source, parse_yaml};

    fn variables() -> BTreeMap<String, String> {
        [
            ("HOST", "es1"),
            ("EMPTY", ""),
            ("EVIL", "x\nadmin: [true] # ${HOST}"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into()
    }

    fn expanded(text: &str) -> Result<Node, ConfigError> {
        let mut node = parse_yaml(&Source::new("t.yaml", text)).expect(text);
        expand_variables(&mut node, &variables()).map(|()| node)
    }

    #[test]
    fn expands_values_only() {
        for (text, expected) in [
            ("a: https://${HOST}:9200", "https://es1:9200"),
            ("a: '${HOST}${HOST}'", "es1es1"),
            ("a: ${NOPE:x:y}", "x:y"),
            ("a: '${NOPE:}'", ""),
            ("a: '${EMPTY:d}'", ""),
            ("a: ${NOPE:-x:y}", "x:y"),
            ("a: ${HOST:-x}", "es1"),
            ("a: '${EMPTY:-d}'", "d"),
            ("a: '${NOPE:-}'", ""),
            ("a: '${NOPE:--1}'", "-1"),
            ("a: '$${HOST}'", "${HOST}"),
            ("a: '$$${HOST}'", "$${HOST}"),
            ("a: '$${${HOST}}'", "${es1}"),
            ("a: $HOST %{x} $", "$HOST %{x} $"),
            ("a: ${EVIL}", "x\nadmin: [true] # ${HOST}"),
        ] {
            let node = expanded(text).expect(text);
            assert_eq!(
                node.get("a").and_then(Node::as_str),
                Some(expected),
                "{text}"
            );
            assert_eq!(node.as_map().map(<[_]>::len), Some(1));
        }
        let keys = expanded("${HOST}: [{x: '${HOST}'}]").expect("valid");
        assert_eq!(format!("{keys:?}"), r#"{${HOST}: [{x: "es1"}]}"#);
    }

    #[test]
    fn refuses_with_place() {
        for (text, column, part) in [
            ("a: x${HOTS}", 5, "the variable `HOTS` is not set"),
            ("a: x${HOTS}", 5, "did you mean `HOST`?"),
            ("a: [b, 'x${QUUX}']", 10, "${NAME:default}"),
            ("a: ${HOST", 4, "without a closing"),
            ("a: '${a b}'", 5, "`a b` is not a variable's name"),
            ("a: '${HOST:?unset}'", 5, "`:?` after the name"),
            (
                "a: '${HOST:?}'",
                5,
                "without a default a variable must be set",
            ),
            ("a: '${HOST:+x}'", 5, "`:+` after the name"),
            ("a: '${HOST-x}'", 5, "`HOST-x` is not a variable's name"),
            ("a: '${}'", 5, "`` is not a variable's name"),
            ("a: '${1}'", 5, "not a variable's name"),
        ] {
            let error = expanded(text).expect_err(text);
            assert_eq!(error.column(), Some(column), "{error}");
            assert!(error.to_string().contains(part), "{error}");
        }
    }
}
