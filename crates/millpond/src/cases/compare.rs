//! What a test expects against what became of its events.

use component::{grouped, plural};
use indexmap::IndexMap;
use serde_json::{Number, Value};

use super::settings::{DEAD_LETTER, DROPPED, Expected, Wanted};
use super::trial::Outcome;
use super::watched::Fate;
use crate::leaves::leaves;

/// How many pairs of expected and found events are compared at most to find those that belong together; beyond that, those in the
/// same place do.
const PAIRS_MAX: usize = 1_000_000;

/// How many events that are other than expected are shown.
const SHOWN_MAX: u64 = 20;

/// A line of a difference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DiffLine {
    /// Which event it is about.
    About(String),
    /// What was expected.
    Expected(String),
    /// What came instead.
    Got(String),
}

/// The differences between what a test expects and what became of its events; none where it passes.
pub fn differences(expected: &Expected, outcomes: &[Outcome]) -> Vec<DiffLine> {
    let mut lines = Vec::new();
    if let Some(wanted) = &expected.outcomes {
        let names_fates = wanted.iter().any(|it| !matches!(it, Wanted::Event(_)));
        let is_compared = |it: &&Outcome| names_fates || matches!(it, Outcome::Event(_));
        let found: Vec<&Outcome> = outcomes.iter().filter(is_compared).collect();
        compare_lists(expected, wanted, &found, &mut lines);
        if !names_fates && !lines.is_empty() {
            lines.extend(gone(outcomes));
        }
    }
    let count =
        |is_one: fn(&Outcome) -> bool| outcomes.iter().filter(|it| is_one(it)).count() as u64;
    for (name, wanted, got) in [
        (
            "count",
            expected.count,
            count(|it| matches!(it, Outcome::Event(_))),
        ),
        (
            DROPPED,
            expected.dropped,
            count(|it| matches!(it, Outcome::Gone(fate) if !fate.is_dead)),
        ),
        (
            "dead_letters",
            expected.dead_letters,
            count(|it| matches!(it, Outcome::Gone(fate) if fate.is_dead)),
        ),
    ] {
        if let Some(wanted) = wanted.filter(|wanted| *wanted != got) {
            lines.push(DiffLine::Expected(format!("{name}: {wanted}")));
            lines.push(DiffLine::Got(format!("{name}: {got}")));
        }
    }
    lines
}

/// What became of the events that did not come out: nobody would know why one is missing.
fn gone(outcomes: &[Outcome]) -> Vec<DiffLine> {
    let mut fates: IndexMap<String, u64> = IndexMap::new();
    let gone = outcomes.iter().filter(|it| matches!(it, Outcome::Gone(_)));
    gone.for_each(|it| *fates.entry(it.to_string()).or_default() += 1);
    let line = |(fate, count): (String, u64)| {
        let events = plural(count, "event");
        DiffLine::About(format!("{events} did not come out: {fate}"))
    };
    fates
        .into_iter()
        .take(SHOWN_MAX as usize)
        .map(line)
        .collect()
}

/// Compares what is expected of events with what became of them.
fn compare_lists(
    expected: &Expected,
    wanted: &[Wanted],
    found: &[&Outcome],
    lines: &mut Vec<DiffLine>,
) {
    let matches =
        |one: usize, other: usize| compare_events(expected, &wanted[one], found[other]).is_empty();
    let mut pairs = pairs(wanted.len(), found.len(), matches);
    // Behind the last one that is as expected.
    pairs.push((wanted.len(), found.len()));
    let (mut one, mut other, mut differ) = (0, 0, 0);
    for (next_one, next_other) in pairs {
        // Between two that are as expected, those in the same place belong together.
        while one < next_one || other < next_other {
            let wanted = (one < next_one).then(|| &wanted[one]);
            let found = (other < next_other).then(|| (other + 1, found[other]));
            differ += 1;
            if differ <= SHOWN_MAX {
                lines.extend(difference(expected, wanted, found));
            }
            one = next_one.min(one + 1);
            other = next_other.min(other + 1);
        }
        (one, other) = (next_one + 1, next_other + 1);
    }
    if differ > SHOWN_MAX {
        let more = grouped(differ - SHOWN_MAX);
        lines.push(DiffLine::About(format!(
            "and {more} more that are not shown"
        )));
    }
}

/// The difference between what is expected of an event, if one is, and what became of one, if there is one, with its number.
fn difference(
    expected: &Expected,
    wanted: Option<&Wanted>,
    found: Option<(usize, &Outcome)>,
) -> Vec<DiffLine> {
    let (about, mut lines) = match (wanted, found) {
        (Some(wanted), Some((number, found))) => {
            let lines = compare_events(expected, wanted, found);
            (format!("event {number}"), lines)
        }
        (Some(wanted), None) => {
            let line = DiffLine::Expected(wanted.to_string());
            ("missing".to_owned(), vec![line])
        }
        (None, Some((number, found))) => {
            let line = DiffLine::Got(found.to_string());
            (format!("event {number}, not expected"), vec![line])
        }
        (None, None) => return Vec::new(),
    };
    lines.insert(0, DiffLine::About(about));
    lines
}

/// The longest list of pairs that match, in the order of both.
fn pairs(
    wanted: usize,
    found: usize,
    matches: impl Fn(usize, usize) -> bool,
) -> Vec<(usize, usize)> {
    let least = wanted.min(found);
    if wanted == found || wanted.saturating_mul(found) > PAIRS_MAX {
        return (0..least)
            .filter(|&at| matches(at, at))
            .map(|at| (at, at))
            .collect();
    }
    // `longest[one][other]`: of what comes from there on.
    let mut longest = vec![vec![0_u32; found + 1]; wanted + 1];
    let mut equal = vec![vec![false; found]; wanted];
    for one in (0..wanted).rev() {
        for other in (0..found).rev() {
            equal[one][other] = matches(one, other);
            longest[one][other] = match equal[one][other] {
                true => longest[one + 1][other + 1] + 1,
                false => longest[one + 1][other].max(longest[one][other + 1]),
            };
        }
    }
    let (mut one, mut other, mut pairs) = (0, 0, Vec::new());
    while one < wanted && other < found {
        if equal[one][other] {
            pairs.push((one, other));
            (one, other) = (one + 1, other + 1);
        } else if longest[one + 1][other] >= longest[one][other + 1] {
            one += 1;
        } else {
            other += 1;
        }
    }
    pairs
}

/// The differences between what is expected of an event and what became of it.
fn compare_events(expected: &Expected, wanted: &Wanted, found: &Outcome) -> Vec<DiffLine> {
    let is_by = |by: &Option<String>, fate: &Fate| by.as_ref().is_none_or(|by| **by == *fate.by);
    match (wanted, found) {
        (Wanted::Event(wanted), Outcome::Event(found)) => compare_fields(expected, wanted, found),
        (Wanted::Dropped(by), Outcome::Gone(fate)) if !fate.is_dead && is_by(by, fate) => {
            Vec::new()
        }
        (Wanted::DeadLetter(by), Outcome::Gone(fate)) if fate.is_dead && is_by(by, fate) => {
            Vec::new()
        }
        _ => vec![
            DiffLine::Expected(wanted.to_string()),
            DiffLine::Got(found.to_string()),
        ],
    }
}

/// The fields that are other than expected.
fn compare_fields(expected: &Expected, wanted: &Value, found: &Value) -> Vec<DiffLine> {
    let is_ignored = |path: &str| expected.ignored.iter().any(|field| is_within(path, field));
    let mut lines = Vec::new();
    let fields: Vec<_> = dotted(wanted).collect();
    for (path, value) in fields.iter().filter(|(path, _)| !is_ignored(path)) {
        let got = find(found, path);
        if is_equal(value, got.unwrap_or(&Value::Null)) {
            continue;
        }
        lines.push(DiffLine::Expected(format!("{path}: {value}")));
        lines.push(DiffLine::Got(match got {
            Some(got) => format!("{path}: {got}"),
            None => format!("{path} is absent"),
        }));
    }
    if expected.exact {
        let is_known = |path: &str| fields.iter().any(|(field, _)| is_within(path, field));
        for (path, value) in dotted(found) {
            if !is_ignored(&path) && !is_known(&path) && !value.is_null() {
                lines.push(DiffLine::Got(format!("{path}: {value}")));
            }
        }
    }
    lines
}

/// The leaves of an event, with their keys in one text.
fn dotted(event: &Value) -> impl Iterator<Item = (String, &Value)> {
    let leaves = leaves(event).into_iter();
    leaves.map(|(keys, value)| (keys.join("."), value))
}

/// Whether a field is that one, or below it.
fn is_within(path: &str, field: &str) -> bool {
    let rest = path.strip_prefix(field);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// The value of a field: `a.b` is `b` in the object `a`, or the key `a.b` where there is none.
fn find<'v>(event: &'v Value, path: &str) -> Option<&'v Value> {
    let fields = event.as_object()?;
    let dots = path.match_indices('.').map(|(at, _)| at);
    let mut divided = dots.filter_map(|at| find(fields.get(&path[..at])?, &path[at + 1..]));
    divided.next().or_else(|| fields.get(path))
}

/// Whether two values are the same. Numbers are by their value.
fn is_equal(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => is_same_number(one, other),
        (Value::Array(one), Value::Array(other)) => {
            let mut pairs = one.iter().zip(other);
            one.len() == other.len() && pairs.all(|(one, other)| is_equal(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            let is_there = |(key, value): (&String, &Value)| {
                other.get(key).is_some_and(|other| is_equal(value, other))
            };
            one.len() == other.len() && one.iter().all(is_there)
        }
        _ => one == other,
    }
}

fn is_same_number(one: &Number, other: &Number) -> bool {
    let (one, other) = (one.as_str(), other.as_str());
    let whole = |text: &str| text.parse::<i128>().ok();
    match (whole(one), whole(other)) {
        (Some(one), Some(other)) => one == other,
        _ => one == other || one.parse::<f64>().ok() == other.parse::<f64>().ok(),
    }
}

impl std::fmt::Display for Wanted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Event(event) => write!(f, "{event}"),
            Self::Dropped(None) => f.write_str(DROPPED),
            Self::Dropped(Some(by)) => write!(f, "{DROPPED}: {by}"),
            Self::DeadLetter(None) => f.write_str(DEAD_LETTER),
            Self::DeadLetter(Some(by)) => write!(f, "{DEAD_LETTER}: {by}"),
        }
    }
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let fate = match self {
            Self::Event(event) => return write!(f, "{event}"),
            Self::Gone(fate) => fate,
        };
        let name = if fate.is_dead { DEAD_LETTER } else { DROPPED };
        write!(f, "{name}: {}", fate.by)?;
        match &fate.reason {
            Some(reason) => write!(f, " ({reason})"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn fields(exact: bool, ignored: &[&str], wanted: Value, found: Value) -> Vec<String> {
        let expected = Expected {
            outcomes: Some(vec![Wanted::Event(wanted)]),
            exact,
            ignored: ignored.iter().map(|&field| field.to_owned()).collect(),
            ..Expected::default()
        };
        texts(differences(&expected, &[Outcome::Event(found)]))
    }

    fn texts(lines: Vec<DiffLine>) -> Vec<String> {
        let text = |line| match line {
            DiffLine::About(text) => text,
            DiffLine::Expected(text) => format!("- {text}"),
            DiffLine::Got(text) => format!("+ {text}"),
        };
        lines.into_iter().map(text).collect()
    }

    #[test]
    fn fields_are_compared_by_name_and_value() {
        let found = json!({"a": {"b": 1, "c": [1, {"d": 2}]}, "x.y": "z", "n": null, "f": 1.0});
        for same in [
            json!({}),
            json!({"a": {"b": 1}}),
            json!({"a.b": 1.0, "x.y": "z"}),
            json!({"x": {"y": "z"}}),
            json!({"a": {"c": [1, {"d": 2}]}}),
            json!({"n": null, "absent": null, "f": 1}),
        ] {
            assert!(
                fields(false, &[], same.clone(), found.clone()).is_empty(),
                "{same}"
            );
        }
        for (other, expected) in [
            (
                json!({"a": {"b": "1"}}),
                vec!["event 1", "- a.b: \"1\"", "+ a.b: 1"],
            ),
            (
                json!({"a.z": 1}),
                vec!["event 1", "- a.z: 1", "+ a.z is absent"],
            ),
            (
                json!({"x.y": null}),
                vec!["event 1", "- x.y: null", "+ x.y: \"z\""],
            ),
            (
                json!({"a.c": [1]}),
                vec!["event 1", "- a.c: [1]", "+ a.c: [1,{\"d\":2}]"],
            ),
        ] {
            assert_eq!(
                fields(false, &[], other.clone(), found.clone()),
                expected,
                "{other}"
            );
        }
    }

    #[test]
    fn exact_events_have_no_other_fields_but_ignored_ones() {
        let found = json!({"a": {"b": 1, "bc": 2}, "time": 5, "n": null});
        assert!(
            fields(
                true,
                &["time"],
                json!({"a": {"b": 1, "bc": 2}}),
                found.clone()
            )
            .is_empty()
        );
        assert!(
            fields(
                true,
                &["time"],
                json!({"a.b": 1, "a.bc": 2, "time": 6}),
                found.clone()
            )
            .is_empty()
        );
        assert_eq!(
            fields(true, &["a.b"], json!({"time": 5}), found),
            ["event 1", "+ a.bc: 2"]
        );
    }

    #[test]
    fn events_that_are_missing_are_found_among_those_that_match() {
        let event = |n: u64| Outcome::Event(json!({ "n": n }));
        let wanted = |n: u64| Wanted::Event(json!({ "n": n }));
        let gone = |by: &str, is_dead| {
            Outcome::Gone(Fate {
                by: by.into(),
                is_dead,
                reason: None,
            })
        };
        let differ = |wanted: Vec<Wanted>, outcomes: &[Outcome]| {
            let expected = Expected {
                outcomes: Some(wanted),
                ..Expected::default()
            };
            texts(differences(&expected, outcomes))
        };
        let all = [event(1), gone("where", false), event(3), gone("grok", true)];
        assert!(differ(vec![wanted(1), wanted(3)], &all).is_empty());
        assert_eq!(
            differ(vec![wanted(1), wanted(2), wanted(3)], &all),
            [
                "missing",
                "- {\"n\":2}",
                "1 event did not come out: dropped: where",
                "1 event did not come out: dead_letter: grok",
            ]
        );
        assert_eq!(
            differ(vec![wanted(3)], &all),
            [
                "event 1, not expected",
                "+ {\"n\":1}",
                "1 event did not come out: dropped: where",
                "1 event did not come out: dead_letter: grok",
            ]
        );
        let dropped = |by: Option<&str>| Wanted::Dropped(by.map(str::to_owned));
        let dead = |by: Option<&str>| Wanted::DeadLetter(by.map(str::to_owned));
        for (one, other) in [
            (dropped(None), dead(None)),
            (dropped(Some("where")), dead(Some("grok"))),
        ] {
            assert!(differ(vec![wanted(1), one, wanted(3), other], &all).is_empty());
        }
        assert_eq!(
            differ(
                vec![wanted(1), dropped(Some("drop")), wanted(3), dropped(None)],
                &all
            ),
            [
                "event 2",
                "- dropped: drop",
                "+ dropped: where",
                "event 4",
                "- dropped",
                "+ dead_letter: grok"
            ]
        );
    }

    #[test]
    fn only_so_many_differences_are_shown() {
        let expected = Expected {
            outcomes: Some(Vec::new()),
            ..Expected::default()
        };
        let found = vec![Outcome::Event(json!({})); SHOWN_MAX as usize + 3];
        let lines = texts(differences(&expected, &found));
        assert_eq!(lines.len(), SHOWN_MAX as usize * 2 + 1);
        assert_eq!(lines[lines.len() - 1], "and 3 more that are not shown");
    }

    #[test]
    fn counts_are_compared() {
        let expected = Expected {
            count: Some(1),
            dropped: Some(1),
            dead_letters: Some(0),
            ..Expected::default()
        };
        assert_eq!(
            texts(differences(&expected, &[Outcome::Event(json!({}))])),
            ["- dropped: 1", "+ dropped: 0"]
        );
    }
}
