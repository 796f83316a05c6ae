//! Functions over the rows of a batch, as values and as conditions.

mod common;

use batch::{Bitmap, Cell};
use common::batch;
use expr::Expr;

#[test]
fn a_uuid_follows_from_the_event() {
    let documents = [r#"{"a":1}"#, r#"{"a":1}"#];
    let ids = |text: &str| {
        let batch = batch(&documents);
        let evaluated = Expr::parse(text).unwrap().evaluate(&batch, &Bitmap::all(2));
        let text_of = |row| match evaluated.column.value(row) {
            batch::Value::Text(text) => String::from_utf8(text.to_vec()).unwrap(),
            other => panic!("{other:?}"),
        };
        [text_of(0), text_of(1)]
    };
    let [first, second] = ids("uuid()");
    assert_ne!(first, second, "events have their own");
    assert_eq!(
        ids("uuid()"),
        [first.clone(), second],
        "a second pass gives the same"
    );
    assert_eq!((first.len(), &first[14..15]), (36, "5"), "{first}");
    assert!(["8", "9", "a", "b"].contains(&&first[19..20]), "{first}");
    assert_eq!(ids("'id-' + uuid()")[0], format!("id-{first}"));
}

/// Functions that write text put it straight into the column: the rows must not run into each other.
#[test]
fn texts_are_written_into_the_column_row_by_row() {
    let documents = [
        r#"{"m":"GET"}"#,
        r#"{"m":5}"#,
        r#"{}"#,
        r#"{"m":null}"#,
        r#"{"m":"pöst"}"#,
        r#"{"m":"%zz%ff"}"#,
        r#"{"m":"Tail"}"#,
    ];
    let cases: &[(&str, [&str; 7])] = &[
        (
            "m.lower()",
            [
                "\"get\"",
                "error",
                "absent",
                "null",
                "\"pöst\"",
                "\"%zz%ff\"",
                "\"tail\"",
            ],
        ),
        (
            "url.decode(m)",
            [
                "\"GET\"",
                "error",
                "absent",
                "null",
                "\"pöst\"",
                "error",
                "\"Tail\"",
            ],
        ),
        (
            r#"regex.replace(m, r"(.)$", r"\1!")"#,
            [
                "\"GET!\"",
                "error",
                "absent",
                "null",
                "\"pöst!\"",
                "\"%zz%ff!\"",
                "\"Tail!\"",
            ],
        ),
        (
            "'<%s>'.format([m])",
            [
                "\"<GET>\"",
                "\"<5>\"",
                "error",
                "\"<null>\"",
                "\"<pöst>\"",
                "\"<%zz%ff>\"",
                "\"<Tail>\"",
            ],
        ),
        (
            r#"regex.extract(m, r"^[A-Z]\w*$")"#,
            [
                "\"GET\"", "error", "absent", "null", "absent", "absent", "\"Tail\"",
            ],
        ),
    ];
    let batch = batch(&documents);
    let rows = Bitmap::from_fn(documents.len(), |row| row != 0);
    for (text, expected) in cases {
        let evaluated = Expr::parse(text).unwrap().evaluate(&batch, &rows);
        assert_eq!(evaluated.column.cell(0), Cell::Keep, "{text}");
        let evaluated = Expr::parse(text).unwrap().evaluate(&batch, &Bitmap::all(7));
        let found: Vec<String> = (0..7)
            .map(|row| {
                if evaluated.errors.iter().any(|(failed, _)| *failed == row) {
                    assert_eq!(evaluated.column.cell(row), Cell::Keep, "{text}");
                    return "error".to_owned();
                }
                let value = evaluated.column.value(row);
                if value.is_missing() {
                    return "absent".to_owned();
                }
                let mut out = Vec::new();
                value.write_json(&mut out);
                String::from_utf8(out).unwrap()
            })
            .collect();
        assert_eq!(found, expected, "{text}");

        // As a filter they write into one buffer, which must not show what an earlier row left there.
        let filtered = Expr::parse(&format!(
            "{text} in ['get', 'GET', 'tail', 'Tail!', '<pöst>']"
        ));
        let filtered = filtered.unwrap().filter(&batch, &Bitmap::all(7));
        for (row, value) in expected.iter().enumerate() {
            let is_listed =
                ["\"get\"", "\"GET\"", "\"tail\"", "\"Tail!\"", "\"<pöst>\""].contains(value);
            assert_eq!(filtered.holds.contains(row), is_listed, "{text}, row {row}");
        }
        let failed = expected.iter().filter(|value| **value == "error").count();
        assert_eq!(filtered.errors, failed, "{text}");
    }
}

/// Whatever does not depend on the event is computed when the expression is read.
#[test]
fn functions_of_constants_are_constants() {
    for function in expr::functions() {
        let constant = match function.name {
            "now" | "uuid" | "host" | "has" => continue,
            _ => function.example,
        };
        let expr = Expr::parse(constant).expect(constant);
        if expr.fields().len() > 0 {
            continue;
        }
        let evaluated = expr.evaluate(&batch(&["{}"; 3]), &Bitmap::all(3));
        let cells: Vec<Cell> = (0..3).map(|row| evaluated.column.cell(row)).collect();
        assert_eq!(cells, [Cell::Bool(true); 3], "{constant}");
        let condition = format!("{constant} && false || x");
        assert!(Expr::parse_condition(&condition).is_ok(), "{condition}");
    }
    for text in [
        "upper('a')",
        "regex.replace('a1', r'\\d', '')",
        "sha256('a')",
        "math.round(1.5)",
        "formatTime(timestamp(0), 'yyyy')",
        "ip.inCidr('10.0.0.1', '10.0.0.0/8')",
        "'%s'.format([1])",
        "null ?? 1",
    ] {
        // A constant that is no truth value is refused where one belongs, which only a folded one can be.
        let refused = Expr::parse(&format!("x && {text}"));
        let is_bool = text.starts_with("ip.");
        assert_eq!(refused.is_err(), !is_bool, "{text}");
    }
}
