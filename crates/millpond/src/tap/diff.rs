//! What an operator made of an event, for people.

use batch::FieldPath;
use component::terminal::escaped;
use indexmap::IndexMap;
use pipeline::tap::TapOutcome;
use serde_json::Value;

use crate::api::tap::TappedEvent;
use crate::colour::Painter;
use crate::leaves::leaves;

/// The lines of an event and an empty one behind them.
pub fn block(event: &TappedEvent, painter: Painter) -> String {
    let head = format!("{} {}: {}", event.time, event.id, fate(event));
    let mut lines = vec![painter.strong(&escaped(&head))];
    if let (Some(before @ Value::Object(_)), Some(after @ Value::Object(_))) =
        (&event.before, &event.after)
    {
        lines.extend(changes(before, after, painter));
    }
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

/// The lines of the fields that differ: those that are gone or changed, and those that are new.
fn changes(before: &Value, after: &Value, painter: Painter) -> Vec<String> {
    let path = |keys: &[&str]| FieldPath::from_keys(keys.iter().copied()).to_string();
    let before: IndexMap<_, _> = leaves(before).into_iter().collect();
    let after: IndexMap<_, _> = leaves(after).into_iter().collect();
    let mut lines = Vec::new();
    for (keys, from) in &before {
        let field = path(keys);
        match after.get(keys) {
            None => lines.push(painter.bad(&escaped(&format!("- {field}: {from}")))),
            Some(to) if from != to => {
                lines.push(painter.changed(&escaped(&format!("~ {field}: {from} → {to}"))));
            }
            Some(_) => {}
        }
    }
    let added = after.iter().filter(|(keys, _)| !before.contains_key(*keys));
    lines.extend(
        added.map(|(keys, value)| painter.good(&escaped(&format!("+ {}: {value}", path(keys))))),
    );
    lines
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
- was.a: 1
- was.b: {}
- n: 1.0
+ log.new: true
+ n.x: 1
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
