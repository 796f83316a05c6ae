//! What an operator made of an event, for people.

use batch::FieldPath;
use pipeline::tap::TapOutcome;
use serde_json::{Map, Value};

use crate::api::tap::TappedEvent;
use crate::colour::Painter;
use crate::console::escaped;

/// A field that is not what it was.
#[derive(Debug, PartialEq)]
enum FieldChange<'a> {
    Added(&'a Value),
    Removed(&'a Value),
    Changed(&'a Value, &'a Value),
}

/// The lines of an event and an empty one behind them.
pub fn block(event: &TappedEvent, painter: Painter) -> String {
    let head = format!("{} {}: {}", event.time, event.id, fate(event));
    let mut lines = vec![painter.strong(&escaped(&head))];
    let mut changes = Vec::new();
    if let (Some(Value::Object(before)), Some(Value::Object(after))) = (&event.before, &event.after)
    {
        compare(&mut Vec::new(), before, after, &mut changes);
    }
    lines.extend(changes.into_iter().map(|(field, change)| match change {
        FieldChange::Added(value) => painter.good(&escaped(&format!("+ {field}: {value}"))),
        FieldChange::Removed(value) => painter.bad(&escaped(&format!("- {field}: {value}"))),
        FieldChange::Changed(from, to) => {
            painter.changed(&escaped(&format!("~ {field}: {from} → {to}")))
        }
    }));
    lines.join("\n") + "\n\n"
}

/// What became of it, in words.
fn fate(event: &TappedEvent) -> String {
    let why = match (&event.tag, &event.reason) {
        (Some(tag), Some(reason)) => format!(", {tag}: {reason}"),
        (None, Some(reason)) => format!(" by {reason}"),
        _ => String::new(),
    };
    match event.outcome {
        None | Some(TapOutcome::Changed) => "changed".to_owned(),
        Some(TapOutcome::Unchanged) => "unchanged".to_owned(),
        Some(TapOutcome::Failed) => format!("failed{why}"),
        Some(TapOutcome::Dropped) => format!("dropped{why}"),
        Some(TapOutcome::DeadLetter) => match event.tag {
            Some(_) => format!("became a dead letter{why}"),
            None => "became a dead letter".to_owned(),
        },
    }
}

/// The fields that differ, with their paths. Objects are compared field by field, all else as a whole.
fn compare<'a>(
    keys: &mut Vec<&'a str>,
    before: &'a Map<String, Value>,
    after: &'a Map<String, Value>,
    changes: &mut Vec<(String, FieldChange<'a>)>,
) {
    for (key, from) in before {
        keys.push(key);
        match (from, after.get(key)) {
            (from, None) => each(keys, from, changes, FieldChange::Removed),
            (Value::Object(from), Some(Value::Object(to))) => compare(keys, from, to, changes),
            (from, Some(to)) if from != to => {
                changes.push((path(keys), FieldChange::Changed(from, to)));
            }
            _ => {}
        }
        keys.pop();
    }
    for (key, to) in after.iter().filter(|(key, _)| !before.contains_key(*key)) {
        keys.push(key);
        each(keys, to, changes, FieldChange::Added);
        keys.pop();
    }
}

/// Every field below a value, or the value itself.
fn each<'a>(
    keys: &mut Vec<&'a str>,
    value: &'a Value,
    changes: &mut Vec<(String, FieldChange<'a>)>,
    change: fn(&'a Value) -> FieldChange<'a>,
) {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            for (key, value) in fields {
                keys.push(key);
                each(keys, value, changes, change);
                keys.pop();
            }
        }
        value => changes.push((path(keys), change(value))),
    }
}

fn path(keys: &[&str]) -> String {
    FieldPath::from_keys(keys.iter().copied()).to_string()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn event(outcome: &str, before: &Value, after: Option<&Value>) -> TappedEvent {
        let mut event = json!({
            "number": 1, "time": "T", "id": "ID", "outcome": outcome, "before": before,
        });
        if let Some(after) = after {
            event["after"] = after.clone();
        }
        serde_json::from_value(event).expect("an event")
    }

    #[test]
    fn fields_that_differ_are_shown() {
        let before = json!({
            "same": 1, "message": "GET /", "log": { "level": "info", "gone": [1] }, "was": { "a": 1, "b": {} }, "n": 1.0,
        });
        let after = json!({
            "same": 1, "message": "GET", "log": { "level": "info", "new": true }, "n": { "x": 1 }, "url": { "path": "/", "a.b": null },
        });
        let expected = "\
T ID: changed
~ message: \"GET /\" → \"GET\"
- log.gone: [1]
+ log.new: true
- was.a: 1
- was.b: {}
~ n: 1.0 → {\"x\":1}
+ url.path: \"/\"
+ url[a.b]: null

";
        let event = event("changed", &before, Some(&after));
        assert_eq!(block(&event, Painter::plain()), expected);
        let coloured = block(&event, Painter::always());
        assert!(coloured.contains("\x1b[32m+ log.new: true\x1b[0m\n"));
    }

    #[test]
    fn the_head_says_what_became_of_it() {
        let event = |outcome: &str, tag: Option<&str>, reason: Option<&str>| TappedEvent {
            tag: tag.map(str::to_owned),
            reason: reason.map(str::to_owned),
            ..event(outcome, &json!({ "a": 1 }), None)
        };
        let (tag, reason) = (Some("_t"), Some("\u{9b}why"));
        for (event, expected) in [
            (event("unchanged", None, None), "unchanged"),
            (event("dropped", None, Some("drop")), "dropped by drop"),
            (event("dropped", tag, reason), "dropped, _t: \\u{9b}why"),
            (event("failed", tag, reason), "failed, _t: \\u{9b}why"),
            (
                event("dead_letter", tag, reason),
                "became a dead letter, _t: \\u{9b}why",
            ),
            (
                event("dead_letter", None, Some("dead letter")),
                "became a dead letter",
            ),
        ] {
            assert_eq!(
                block(&event, Painter::plain()),
                format!("T ID: {expected}\n\n")
            );
        }
    }
}
