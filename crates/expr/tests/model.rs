//! Random expressions over random documents, against a plain evaluation of one row at a time; and random texts, which
//! must never do worse than be refused.

mod common;

use std::cmp::Ordering;

use batch::{Bitmap, Value as BatchValue};
use common::batch;
use expr::Expr;
use proptest::prelude::*;
use serde_json::Value;

/// A logical expression, small enough for its meaning to be obvious.
#[derive(Clone, Debug)]
enum Logic {
    Compare(&'static str, Operand, Operand),
    In(Operand, Vec<Operand>),
    Has(usize),
    Bare(usize),
    Contains(usize, String),
    Not(Box<Logic>),
    And(Vec<Logic>),
    Or(Vec<Logic>),
    Conditional(Box<[Logic; 3]>),
}

#[derive(Clone, Debug)]
enum Operand {
    Field(usize),
    Literal(Value),
}

/// `None` is an error.
type Answer = Option<bool>;

const FIELDS: [&str; 4] = ["a", "b", "c", "d.e"];

impl Operand {
    fn text(&self) -> String {
        match self {
            Self::Field(field) => FIELDS[*field].to_owned(),
            Self::Literal(value) => value.to_string(),
        }
    }

    fn value<'v>(&'v self, document: &'v Value) -> Option<&'v Value> {
        match self {
            Self::Field(field) => field_of(document, *field),
            Self::Literal(value) => Some(value),
        }
    }
}

fn field_of(document: &Value, field: usize) -> Option<&Value> {
    document.pointer(&format!("/{}", FIELDS[field].replace('.', "/")))
}

impl Logic {
    fn text(&self) -> String {
        let all = |parts: &[Self], between: &str| {
            let parts: Vec<String> = parts.iter().map(Self::text).collect();
            format!("({})", parts.join(between))
        };
        match self {
            Self::Compare(operator, a, b) => format!("{} {operator} {}", a.text(), b.text()),
            Self::In(item, list) => {
                let list: Vec<String> = list.iter().map(Operand::text).collect();
                format!("{} in [{}]", item.text(), list.join(", "))
            }
            Self::Has(field) => format!("has({})", FIELDS[*field]),
            Self::Bare(field) => FIELDS[*field].to_owned(),
            Self::Contains(field, part) => format!("{}.contains('{part}')", FIELDS[*field]),
            Self::Not(inner) => format!("!({})", inner.text()),
            Self::And(parts) => all(parts, " && "),
            Self::Or(parts) => all(parts, " || "),
            Self::Conditional(parts) => {
                format!(
                    "(({}) ? ({}) : ({}))",
                    parts[0].text(),
                    parts[1].text(),
                    parts[2].text()
                )
            }
        }
    }

    /// Whether the value is true or false in every row without an error.
    fn gives_bool(&self) -> bool {
        match self {
            Self::Bare(_) => false,
            Self::Conditional(parts) => parts[1].gives_bool() && parts[2].gives_bool(),
            _ => true,
        }
    }

    fn answer(&self, document: &Value) -> Answer {
        match self {
            Self::Compare(operator, a, b) => {
                compare(operator, a.value(document), b.value(document))
            }
            Self::In(item, list) => {
                let item = item.value(document);
                Some(list.iter().any(|other| equal(item, other.value(document))))
            }
            Self::Has(field) => Some(field_of(document, *field).is_some()),
            Self::Bare(field) => match field_of(document, *field) {
                None | Some(Value::Null) => Some(false),
                Some(value) => value.as_bool(),
            },
            Self::Contains(field, part) => match field_of(document, *field) {
                None | Some(Value::Null) => Some(false),
                Some(value) => value.as_str().map(|text| text.contains(part.as_str())),
            },
            Self::Not(inner) => inner.answer(document).map(|answer| !answer),
            Self::And(parts) => any_is(false, parts, document),
            Self::Or(parts) => any_is(true, parts, document),
            Self::Conditional(parts) => {
                let [condition, yes, no] = &**parts;
                if condition.answer(document)? {
                    yes.answer(document)
                } else {
                    no.answer(document)
                }
            }
        }
    }
}

/// All answers are looked at: the deciding one wins over errors, errors over the rest.
fn any_is(deciding: bool, parts: &[Logic], document: &Value) -> Answer {
    let answers: Vec<Answer> = parts.iter().map(|part| part.answer(document)).collect();
    if answers.contains(&Some(deciding)) {
        Some(deciding)
    } else if answers.contains(&None) {
        None
    } else {
        Some(!deciding)
    }
}

fn compare(operator: &str, a: Option<&Value>, b: Option<&Value>) -> Answer {
    match operator {
        "==" => return Some(equal(a, b)),
        "!=" => return Some(!equal(a, b)),
        _ => {}
    }
    let (Some(a), Some(b)) = (a, b) else {
        return Some(false);
    };
    if a.is_null() || b.is_null() {
        return Some(false);
    }
    let order = order(a, b)?;
    Some(match operator {
        "<" => order == Ordering::Less,
        "<=" => order != Ordering::Greater,
        ">" => order == Ordering::Greater,
        _ => order != Ordering::Less,
    })
}

fn equal(a: Option<&Value>, b: Option<&Value>) -> bool {
    match (a, b) {
        (Some(Value::Null), Some(Value::Null)) => true,
        (Some(a), Some(b)) => order(a, b) == Some(Ordering::Equal),
        _ => false,
    }
}

fn order(a: &Value, b: &Value) -> Option<Ordering> {
    match (a, b) {
        (Value::String(a), Value::String(b)) => Some(a.cmp(b)),
        (Value::Bool(a), Value::Bool(b)) => Some(a.cmp(b)),
        _ => number(a)?.partial_cmp(&number(b)?),
    }
}

/// The documents' numbers are small, so that floats are exact.
fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => text.parse().ok(),
        _ => None,
    }
}

fn scalar() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-3i64..10).prop_map(Value::from),
        (-4i64..8).prop_map(|n| Value::from(n as f64 / 2.0)),
        (-3i64..10).prop_map(|n| Value::from(n.to_string())),
        "[abz]{0,3}".prop_map(Value::from),
    ]
}

fn document() -> impl Strategy<Value = Value> {
    prop::collection::vec(prop::option::weighted(0.8, scalar()), 4).prop_map(|values| {
        let mut document = serde_json::Map::new();
        for (field, value) in values.into_iter().enumerate() {
            let Some(value) = value else { continue };
            match FIELDS[field].split_once('.') {
                None => document.insert(FIELDS[field].to_owned(), value),
                Some((outer, inner)) => {
                    document.insert(outer.to_owned(), serde_json::json!({ inner: value }))
                }
            };
        }
        Value::Object(document)
    })
}

fn operand() -> impl Strategy<Value = Operand> {
    prop_oneof![2 => (0usize..4).prop_map(Operand::Field), 1 => scalar().prop_map(Operand::Literal)]
}

fn logic() -> impl Strategy<Value = Logic> {
    let operators = prop::sample::select(vec!["==", "!=", "<", "<=", ">", ">="]);
    let field = 0usize..4;
    let leaf = prop_oneof![
        4 => (operators, field.clone(), operand(), any::<bool>()).prop_map(|(operator, field, b, turned)| {
            // An order with a number in quotes is refused at the start.
            let is_quoted = matches!(&b, Operand::Literal(Value::String(text)) if text.parse::<f64>().is_ok());
            let operator = if is_quoted && !operator.ends_with("==") && operator != "!=" { "==" } else { operator };
            // A field on one side at least: constant comparisons that fail are refused at the start.
            let a = Operand::Field(field);
            if turned { Logic::Compare(operator, b, a) } else { Logic::Compare(operator, a, b) }
        }),
        2 => (field.clone(), prop::collection::vec(operand(), 0..4))
            .prop_map(|(field, list)| Logic::In(Operand::Field(field), list)),
        1 => field.clone().prop_map(Logic::Has),
        1 => field.clone().prop_map(Logic::Bare),
        1 => (field, "[abz]{0,2}").prop_map(|(field, part)| Logic::Contains(field, part)),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            inner.clone().prop_map(|inner| Logic::Not(Box::new(inner))),
            prop::collection::vec(inner.clone(), 2..4).prop_map(Logic::And),
            prop::collection::vec(inner.clone(), 2..4).prop_map(Logic::Or),
            [inner.clone(), inner.clone(), inner]
                .prop_map(|parts| Logic::Conditional(Box::new(parts))),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn rows_answer_as_the_model_does(
        logic in logic(),
        documents in prop::collection::vec(document(), 1..70),
        seed: u64,
    ) {
        let text = logic.text();
        let expr = Expr::parse(&text).map_err(|error| TestCaseError::fail(format!("{text}: {error}")))?;
        let batch = batch(&documents.iter().map(Value::to_string).collect::<Vec<_>>());
        let rows = Bitmap::from_fn(documents.len(), |row| seed >> (row % 64) & 1 == 1);
        let filtered = expr.filter(&batch, &rows);
        let evaluated = expr.evaluate(&batch, &rows);
        let answers: Vec<(usize, Answer)> = rows.iter().map(|row| (row, logic.answer(&documents[row]))).collect();

        let holds: Vec<usize> = answers.iter().filter(|(_, a)| *a == Some(true)).map(|(row, _)| *row).collect();
        prop_assert_eq!(filtered.holds.iter().collect::<Vec<_>>(), holds, "{}", text);
        let failed: Vec<usize> = answers.iter().filter(|(_, a)| a.is_none()).map(|(row, _)| *row).collect();
        prop_assert_eq!(filtered.errors, failed.len(), "{}", text);
        prop_assert_eq!(filtered.first_error.map(|error| error.0), failed.first().copied(), "{}", text);

        // A bare field is a value like any other; only as a condition must it be true or false.
        if logic.gives_bool() {
            let errors: Vec<usize> = evaluated.errors.iter().map(|error| error.0).collect();
            prop_assert_eq!(errors, failed, "{}", text);
            for (row, answer) in &answers {
                let value = evaluated.column.value(*row);
                let expected = answer.map_or(BatchValue::Missing, BatchValue::Bool);
                prop_assert_eq!(value, expected, "{} for {}", text, documents[*row]);
            }
        }
    }

    #[test]
    fn any_text_is_an_expression_or_an_error_inside_it(text in "\\PC{0,40}") {
        check_text(&text)?;
    }

    #[test]
    fn any_tokens_are_an_expression_or_an_error_inside_them(tokens in prop::collection::vec(token(), 0..30)) {
        check_text(&tokens.join(" "))?;
        check_text(&tokens.concat())?;
    }
}

fn token() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "a",
        "b.c",
        "@t",
        "in",
        "true",
        "null",
        "1",
        "-",
        "2.5",
        "'x'",
        "\"",
        "'",
        "r'\\d'",
        "(",
        ")",
        "[",
        "]",
        "{",
        "}",
        "?",
        ":",
        ",",
        ".",
        "!",
        "&&",
        "||",
        "==",
        "<",
        "+",
        "/",
        "%",
        "size(",
        ".contains(",
        "matches(",
        "exists(x,",
        "duration('1h')",
        "now()",
        "//",
        "\n",
        "ä",
        "`",
        "\\",
        "=",
        "0x",
        "1e",
        "5m",
        "9223372036854775808",
        "has(",
    ])
}

/// Parses a text, runs what comes out, and checks where an error points.
fn check_text(text: &str) -> Result<(), TestCaseError> {
    match Expr::parse(text) {
        Ok(expr) => {
            let batch = batch(&[r#"{"a":1,"b":{"c":[1,"x"]}}"#, "{}"]);
            let filtered = expr.filter(&batch, &Bitmap::all(2));
            let evaluated = expr.evaluate(&batch, &Bitmap::all(2));
            prop_assert!(filtered.errors >= evaluated.errors.len());
        }
        Err(error) => {
            prop_assert!(!error.message.is_empty());
            prop_assert!(error.at.start <= error.at.end, "{:?}", error);
            prop_assert!(
                text.get(error.at.clone()).is_some(),
                "{:?} in {:?}",
                error,
                text
            );
        }
    }
    Ok(())
}

/// Arguments for functions: fields of every type and literals of every type.
const ARGUMENTS: [&str; 36] = [
    "a",
    "n",
    "f",
    "t",
    "u",
    "l",
    "m",
    "ts",
    "url",
    "null_",
    "huge",
    "nested",
    "null",
    "true",
    "0",
    "1",
    "-1",
    "3.5",
    "9223372036854775807",
    "-9223372036854775808",
    "''",
    "'a'",
    "'ä€'",
    "'%s %d'",
    "'yyyy-MM'",
    "'%Y'",
    "'(a)|b'",
    "'\\\\0'",
    "'UTC'",
    "'10.0.0.0/8'",
    "[]",
    "[1, 'a', null]",
    "{'a': 1}",
    "duration('1s')",
    "now()",
    "x",
];

const EVENT: &str = concat!(
    r#"{"a":"abc","n":7,"f":-2.5,"t":"42","u":"ä€𝄞x","l":[3,1,2],"m":{"k":"v","ä":[1]},"ts":"2024-02-29T12:34:56.789Z","#,
    r#""url":"http://u@h:1/p?q#f","null_":null,"huge":1e400,"nested":[[1,["a"]],{"b":[null]}]}"#
);

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    /// Every function of anything at all gives a value, the same as a value and as a condition, or an error.
    #[test]
    fn functions_of_anything_give_a_value_or_an_error(
        function in prop::sample::select(expr::functions().collect::<Vec<_>>()),
        arguments in prop::collection::vec(prop::sample::select(ARGUMENTS.to_vec()), 0..5),
        outer in prop::option::of(prop::sample::select(vec!["size(", "upper(", "sha1(", "hex(", "type("])),
    ) {
        let call = format!("{}({})", function.name, arguments.join(", "));
        let text = outer.map_or(call.clone(), |outer| format!("{outer}{call})"));
        if let Ok(expr) = Expr::parse(&text) {
            let batch = batch(&[EVENT, "{}"]);
            let rows = Bitmap::all(2);
            let evaluated = expr.evaluate(&batch, &rows);
            let filtered = expr.filter(&batch, &rows);
            for row in 0..2 {
                let failed = evaluated.errors.iter().any(|(failed, _)| *failed == row);
                let holds = !failed && evaluated.column.value(row) == BatchValue::Bool(true);
                prop_assert_eq!(filtered.holds.contains(row), holds, "{}", text);
                if !failed {
                    let mut out = Vec::new();
                    evaluated.column.value(row).write_json(&mut out);
                    prop_assert!(serde_json::from_slice::<Value>(&out).is_ok(), "{}", text);
                }
            }
        }
    }
}
