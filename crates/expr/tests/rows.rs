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

/// An expression with the values of the document in the places of its fields.
fn without_fields(text: &str, document: &serde_json::Value) -> String {
    let fields: Vec<String> = Expr::parse(text)
        .expect(text)
        .fields()
        .map(ToString::to_string)
        .collect();
    let is_name = |c: char| c.is_alphanumeric() || matches!(c, '_' | '@' | '.');
    let (mut out, mut rest) = (String::new(), text);
    while let Some(first) = rest.chars().next() {
        let quoted = matches!(first, '"' | '\'')
            .then(|| rest[1..].find(first))
            .flatten();
        let len = match quoted {
            Some(len) => len + 2,
            None => rest
                .find(|c| !is_name(c))
                .unwrap_or(rest.len())
                .max(first.len_utf8()),
        };
        let (word, after) = rest.split_at(len);
        // Behind the last dot of a call stands a function.
        let (path, call) = match word.rsplit_once('.').filter(|_| after.starts_with('(')) {
            Some((path, call)) => (path, format!(".{call}")),
            None => (word, String::new()),
        };
        let is_function = expr::functions().any(|function| function.name == word);
        if fields.iter().any(|field| field == path) && !(is_function && after.starts_with('(')) {
            let value = document.pointer(&format!("/{}", path.replace('.', "/")));
            out += &value.map_or("{}.absent".to_owned(), ToString::to_string);
            out += &call;
        } else {
            out += word;
        }
        rest = after;
    }
    out
}

/// Whatever does not depend on the event is computed when the expression is read: every function does, with the values of the
/// example's event in the places of its fields.
#[test]
fn functions_of_constants_are_constants() {
    let document = serde_json::from_str(expr::EXAMPLE_DOCUMENT).expect("an event");
    for function in expr::functions() {
        if matches!(function.name, "now" | "uuid" | "host" | "has") {
            continue;
        }
        let constant = without_fields(function.example, &document);
        let expr = Expr::parse(&constant).unwrap_or_else(|error| panic!("{constant}: {error}"));
        assert_eq!(expr.fields().len(), 0, "{constant}");
        let evaluated = expr.evaluate(&batch(&["{}"; 3]), &Bitmap::all(3));
        let cells: Vec<Cell> = (0..3).map(|row| evaluated.column.cell(row)).collect();
        assert_eq!(cells, [Cell::Bool(true); 3], "{constant}");
        // Keys that are constants must differ, so that this is refused where it is one.
        let map = format!("{{({constant}): 1, true: 2}}");
        let error = Expr::parse(&map).expect_err(&map);
        assert_eq!(error.message, "the key `true` is given twice", "{map}");
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
