//! Rows of CSV are those that were written, however the content was read, with stops and resumes anywhere.

mod reading;

use batch::Encoding;
use codec::{Csv, Settings};
use proptest::prelude::*;
use reading::{Plan, read};
use serde_json::{Map, Value};

fn settings(record_max: usize) -> Settings {
    Settings {
        csv: Some(Csv::new(b',', &[])),
        ..Settings::new(Encoding::Text, record_max)
    }
}

fn plans() -> impl Strategy<Value = Plan> {
    (
        1usize..300,
        proptest::collection::vec(1usize..90, 1..5),
        1usize..6,
        1usize..12,
        proptest::collection::vec(1usize..4, 0..6),
    )
        .prop_map(|(buffer, reads, take_every, release_every, stops)| Plan {
            buffer,
            reads,
            take_every,
            release_every,
            stops,
            ..Plan::simple()
        })
}

/// A field as it may be written.
fn written(field: &str, quotes: bool) -> String {
    let needs_them = field.is_empty() || field.contains([',', '"', '\n']) || field.trim() != field;
    match quotes || needs_them {
        true => format!("\"{}\"", field.replace('"', "\"\"")),
        false => field.to_owned(),
    }
}

fn line(fields: &[(String, bool)], end: &str) -> String {
    let fields = fields.iter().map(|(field, quotes)| written(field, *quotes));
    fields.collect::<Vec<_>>().join(",") + end
}

const NAMES: [&str; 3] = ["id", "name \n1", "note"];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn rows_are_those_that_were_written(
        rows in proptest::collection::vec(
            (proptest::collection::vec(("[a-c,\"\n é]{0,6}", any::<bool>()), 3), any::<bool>()), 0..30),
        blank in any::<bool>(),
        plan in plans(),
    ) {
        let header = NAMES.map(|name| (name.to_owned(), false));
        let mut content = line(&header, if blank { "\n\n" } else { "\n" });
        for (row, is_windows) in &rows {
            content += &line(row, if *is_windows { "\r\n" } else { "\n" });
        }
        let expected: Vec<Value> = rows.iter().map(|(row, _)| {
            let fields = NAMES.iter().zip(row);
            Value::Object(fields.map(|(name, (field, _))| ((*name).to_owned(), field.clone().into())).collect::<Map<_, _>>())
        }).collect();
        let events = read(content.as_bytes(), &settings(1000), &plan);
        let seen: Vec<Value> = events.iter().map(|event| serde_json::from_str(&event.text).expect("a row")).collect();
        prop_assert_eq!(seen, expected, "{}", content.escape_debug());
    }

    #[test]
    fn anything_at_all_does_not_depend_on_stops(
        content in "(a,b\n)?[a-c,\"\n\r]{0,200}",
        record_max in prop_oneof![Just(20usize), Just(1000)],
        plan in plans(),
    ) {
        let content = format!("x,y\n{content}");
        let whole = read(content.as_bytes(), &settings(record_max), &Plan::simple());
        prop_assert_eq!(read(content.as_bytes(), &settings(record_max), &plan), whole, "{}", content.escape_debug());
    }
}
