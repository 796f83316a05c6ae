//! The language by example: document, expression, result.

mod common;

use batch::{Bitmap, Cell, ColumnBuilder, Edit, FieldPath};
use common::{RECEIVED, batch, check, messagepack_batch, value};
use expr::{EXAMPLE_DOCUMENT, Expr, functions};

#[test]
fn absent_null_and_values() {
    check(
        r#"{"a":"x","n":null,"f":false,"o":{"p":1}}"#,
        &[
            ("gone == 'a'", "false"),
            ("gone != 'a'", "true"),
            ("'a' != gone", "true"),
            ("gone == null", "false"),
            ("gone == other", "false"),
            ("gone != other", "true"),
            ("n == null", "true"),
            ("n != null", "false"),
            ("a == null", "false"),
            ("n == 'a'", "false"),
            ("gone < 5", "false"),
            ("gone >= 5", "false"),
            ("5 < gone", "false"),
            ("n > 5", "false"),
            ("n <= null", "false"),
            ("gone < other", "false"),
            ("gone in ['a', null]", "false"),
            ("n in ['a', null]", "true"),
            ("'a' in gone", "false"),
            ("gone.contains('x')", "false"),
            ("n.matches('x')", "false"),
            ("a.contains(gone)", "false"),
            ("gone.lowerAscii()", "absent"),
            ("n.size()", "null"),
            ("size(gone) == 0", "false"),
            (
                "gone + 1",
                "error: `gone + 1`: `+` does not work on an absent field and int; `field ?? value` gives a default",
            ),
            (
                "1 - n",
                "error: `1 - n`: `-` does not work on int and null; `field ?? value` gives a default",
            ),
            (
                "-gone",
                "error: `-gone`: needs a number behind `-`, got an absent field",
            ),
            ("gone", "absent"),
            ("!gone", "true"),
            ("gone || a == 'x'", "true"),
            ("gone && a == 'x'", "false"),
            ("gone ? 1 : 2", "2"),
            ("has(gone)", "false"),
            ("has(n)", "true"),
            ("has(o.p) && !has(o.q)", "true"),
            ("!(gone > 5)", "true"),
            ("type(gone) + type(n)", "\"absentnull\""),
        ],
    );
}

#[test]
fn numbers_and_texts_that_read_as_numbers() {
    check(
        r#"{"t":"502","i":502,"d":1.50,"neg":-3,"big":123456789012345678901234567890,"u":18446744073709551615,"w":"abc","huge":99999999999999999999999999999999999999999999999999,"e":2e2}"#,
        &[
            ("t >= 500", "true"),
            ("t == 502", "true"),
            ("t == '502'", "true"),
            ("i == '502'", "true"),
            ("500 <= t", "true"),
            ("t in [200, 502]", "true"),
            ("i in ['502']", "true"),
            ("t in ['0502']", "false"),
            ("t == i", "true"),
            ("i == t", "true"),
            ("w == 502", "false"),
            ("w != 502", "true"),
            ("w > 502", "error: `w > 502`: cannot order string and int"),
            ("t > 'a'", "false"),
            ("w < 'b'", "true"),
            ("d == 1.5", "true"),
            ("d == '1.500'", "true"),
            ("i > d", "true"),
            ("e == 200", "true"),
            ("big == 123456789012345678901234567890", "true"),
            ("big == 123456789012345678901234567891", "false"),
            ("big < 123456789012345678901234567891", "true"),
            (
                "huge > 99999999999999999999999999999999999999999999999998",
                "true",
            ),
            (
                "huge == 99999999999999999999999999999999999999999999999999",
                "true",
            ),
            ("u == 18446744073709551615u", "true"),
            ("u > 9223372036854775807", "true"),
            ("u", "18446744073709551615"),
            ("d", "1.50"),
            ("u - 1", "18446744073709551614"),
            (
                "u + 1",
                "error: `u + 1`: the result does not fit into 64 bits",
            ),
            (
                "huge + 1",
                "error: `huge + 1`: the result does not fit into 64 bits",
            ),
            ("9223372036854775807 + 1", "9223372036854775808"),
            ("-9223372036854775808", "-9223372036854775808"),
            ("i + 1", "503"),
            ("i / 5", "100"),
            ("neg / 2", "-1"),
            ("neg % 2", "-1"),
            ("-neg", "3"),
            ("i / 4.0", "125.5"),
            ("d * 2", "3.0"),
            ("i / (neg + 3)", "error: `i / (neg + 3)`: division by zero"),
            (
                "t + 1",
                "error: `t + 1`: `+` does not work on string and int; int(…) or double(…) makes a number of a text, string(…) a text of a number",
            ),
            ("int(t) + 1", "503"),
            ("int(d)", "1"),
            ("int('-1.9')", "-1"),
            (
                "int(w)",
                "error: `int(w)`: \"abc\" does not read as a number",
            ),
            ("double(t)", "502.0"),
            ("string(d) + '|' + string(i)", "\"1.50|502\""),
            ("string(u)", "\"18446744073709551615\""),
            (
                "bool(w)",
                "error: `bool(w)`: \"abc\" does not read as true or false",
            ),
            ("bool(i == 502)", "true"),
            (
                "type(i) + ' ' + type(d) + ' ' + type(e) + ' ' + type(huge)",
                "\"int double double int\"",
            ),
            ("0xff", "255"),
        ],
    );
}

#[test]
fn logic_absorbs_errors() {
    check(
        r#"{"t":true,"f":false,"w":"abc"}"#,
        &[
            ("w > 1 || t", "true"),
            ("t || w > 1", "true"),
            ("w > 1 && f", "false"),
            ("f && w > 1", "false"),
            ("w > 1 || f", "error: `w > 1`: cannot order string and int"),
            (
                "t && w > 1 && w > 2",
                "error: `w > 1`: cannot order string and int",
            ),
            ("!(w > 1)", "error: `(w > 1)`: cannot order string and int"),
            (
                "w > 1 ? 1 : 2",
                "error: `w > 1`: cannot order string and int",
            ),
            ("t ? 1 : w + 1", "1"),
            ("w && t", "error: `w`: needs true or false, got string"),
            ("!t == f", "true"),
            ("t == true && f != true", "true"),
            ("f < t", "true"),
            ("t || f && f", "true"),
            ("(t || f) && f", "false"),
        ],
    );
    let batch = batch(&[r#"{"w":"abc"}"#]);
    let filtered = Expr::parse("w").unwrap().filter(&batch, &Bitmap::all(1));
    let message = "`w`: needs true or false, got string";
    assert_eq!(
        (filtered.errors, filtered.first_error),
        (1, Some((0, message.to_owned())))
    );
}

#[test]
fn lists_maps_and_paths() {
    check(
        r#"{"tags":["a","b",3,null],"o":{"x-y":{"k.l":1,"p":[{"q":"deep"}]},"e\"s":2},"a.b":"dotted","@meta":{"id":7},"package":"p","in":1,"key":"x-y","empty":[]}"#,
        &[
            ("'a' in tags", "true"),
            ("'z' in tags", "false"),
            ("3 in tags && '3' in tags", "true"),
            ("null in tags", "true"),
            ("key in o", "true"),
            ("'nope' in o", "false"),
            (
                "1 in key",
                "error: `1 in key`: needs a list or a map behind `in`, got string",
            ),
            ("key in ['a', key]", "true"),
            ("key in {'x-y': 1}", "true"),
            ("tags[1]", "\"b\""),
            ("tags[9]", "absent"),
            ("tags[size(tags) - 5]", "absent"),
            ("tags['0']", "absent"),
            ("o['x-y'].p[0].q", "\"deep\""),
            ("o[key].p[0]['q']", "\"deep\""),
            ("o[\"x-y\"]['k.l'] == 1", "true"),
            ("o['e\"s']", "2"),
            ("o[key + '']['k.l']", "1"),
            ("o[1]", "absent"),
            (
                "o[tags]",
                "error: `o[tags]`: needs a text, a number or a truth value as the key of a map, got list",
            ),
            (
                "key[0]",
                "error: `key[0]`: needs a list or a map in front of the index, got string",
            ),
            ("o.gone[0].gone", "absent"),
            ("a.b", "\"dotted\""),
            ("@meta.id", "7"),
            ("package", "\"p\""),
            ("`in`", "1"),
            ("o.`x-y`.p[0].q", "\"deep\""),
            ("tags == ['a', 'b', 3, null]", "true"),
            ("tags == [] + ['a', 'b']", "false"),
            ("tags != [] + ['a', 'b']", "true"),
            ("o['x-y'].p == [{'q': 'deep'}]", "true"),
            ("{'b': 1, 'a': [2]} == {'a': [2], 'b': 1}", "true"),
            ("[key, 1, [gone]]", "[\"x-y\",1,[null]]"),
            (
                "{'k': key, 'gone': gone, 'k2': tags}",
                "{\"k\":\"x-y\",\"k2\":[\"a\",\"b\",3,null]}",
            ),
            ("{'GET': 'read', 'POST': 'write'}['POST']", "\"write\""),
            ("tags + [1]", "[\"a\",\"b\",3,null,1]"),
            ("size(tags) + size(o) + size(empty)", "6"),
            ("tags < 3", "error: `tags < 3`: cannot order list and int"),
            ("tags.exists(t, t == 'b')", "true"),
            ("tags.exists(t, t > 2)", "true"),
            ("tags.all(t, t > 2)", "false"),
            ("empty.all(t, t > 2) && !empty.exists(t, t > 2)", "true"),
            ("gone.exists(t, true)", "false"),
            ("o.exists(name, name == 'x-y')", "true"),
            (
                "tags.filter(t, t != null).map(t, [t, key])",
                "[[\"a\",\"x-y\"],[\"b\",\"x-y\"],[3,\"x-y\"]]",
            ),
            (
                "[[1, 2], [3]].exists(row, row.exists(cell, cell == size(row) && row != key))",
                "true",
            ),
            ("o['x-y'].p.map(key, key.q)", "[\"deep\"]"),
            (
                "key.exists(t, true)",
                "error: `key.exists(t, true)`: needs a list or a map, got string",
            ),
        ],
    );
}

#[test]
fn deep_documents_compare_without_deep_stacks() {
    let deep = |inner: &str| format!("{}{inner}{}", "[".repeat(1000), "]".repeat(1000));
    let document = format!(
        r#"{{"a":{},"b":{},"c":{}}}"#,
        deep("1"),
        deep("1"),
        deep("2")
    );
    check(
        &document,
        &[
            ("a == b", "true"),
            ("a == c", "false"),
            ("[a] == [c]", "false"),
            ("c in [a, b]", "false"),
        ],
    );
}

#[test]
fn texts() {
    check(
        r#"{"m":"Ärger: \"GET /x\" 502","n":5,"csv":"a,b,,c","s":" x "}"#,
        &[
            ("m.contains('GET')", "true"),
            ("contains(m, 'POST')", "false"),
            ("m.startsWith('Ä') && m.endsWith('502')", "true"),
            ("m.contains(m.substring(1, 4))", "true"),
            (
                "n.contains('5')",
                "error: `n.contains('5')`: needs a text, got int",
            ),
            (
                "n.startsWith(m)",
                "error: `n.startsWith(m)`: needs a text, got int",
            ),
            (r"matches(m, '/\\w ?')", "true"),
            (r#"m.matches(r"^\w+: .GET")"#, "true"),
            ("m.matches('^GET')", "false"),
            (
                "n.matches('5')",
                "error: `n.matches('5')`: needs a text, got int",
            ),
            ("m.lowerAscii().matches('get')", "true"),
            ("size(m)", "19"),
            (
                "size(n)",
                "error: `size(n)`: needs a text, a list or a map, got int",
            ),
            ("m.upperAscii().substring(0, 5)", "\"ÄRGER\""),
            ("m.substring(0, 1)", "\"Ä\""),
            ("m.substring(16)", "\"502\""),
            ("m.substring(5, 2) == ''", "true"),
            ("m.substring(100) == ''", "true"),
            ("csv.split(',')", "[\"a\",\"b\",\"\",\"c\"]"),
            ("csv.split(',', 2)", "[\"a\",\"b,,c\"]"),
            ("csv.split('').join('-')", "\"a-,-b-,-,-c\""),
            ("csv.split('', 2)", "[\"a\",\",b,,c\"]"),
            ("csv.replace(',', ';', 1)", "\"a;b,,c\""),
            ("csv.replace(',', '')", "\"abc\""),
            ("[1, 'a', null, 2.5].join('|')", "\"1|a||2.5\""),
            ("s.trim() + s", "\"x x \""),
            ("string([m.substring(0, 5), n])", "\"[\\\"Ärger\\\",5]\""),
        ],
    );
}

#[test]
fn times() {
    check(
        r#"{"@timestamp":"2024-02-29T12:34:56.789Z","end":"2024-02-29T14:35:56.789+02:00","suricata":"2024-02-29T12:34:56.789000+0000","s":1709210096,"bad":"soon"}"#,
        &[
            ("now()", "\"2024-03-01T00:00:00.000Z\""),
            ("@metadata.timestamp == now()", "true"),
            ("@metadata.timestamp == '2024-03-01T01:00:00+01:00'", "true"),
            ("@metadata.timestamp > '2024-02-29T00:00:00Z'", "true"),
            (
                "@metadata.timestamp > bad",
                "error: `@metadata.timestamp > bad`: cannot order timestamp and string",
            ),
            ("@metadata.timestamp == bad", "false"),
            ("@metadata.timestamp != 'soon'", "true"),
            ("@timestamp < now()", "true"),
            (
                "@timestamp == timestamp('2024-02-29T12:34:56.789Z')",
                "true",
            ),
            ("timestamp(@timestamp) == timestamp(suricata)", "true"),
            ("timestamp(end) - timestamp(@timestamp)", "\"60s\""),
            (
                "timestamp(end) - timestamp(@timestamp) == duration('1m')",
                "true",
            ),
            ("now() - @timestamp > duration('11h')", "true"),
            (
                "@timestamp + duration('1.5s') == timestamp('2024-02-29T12:34:58.289Z')",
                "true",
            ),
            ("duration('1h') + now()", "\"2024-03-01T01:00:00.000Z\""),
            ("now() - duration('1d')", "\"2024-02-29T00:00:00.000Z\""),
            ("-duration('90s') + duration('1m')", "\"-30s\""),
            ("duration('1h') > duration('59m')", "true"),
            (
                "duration('1h') > s",
                "error: `duration('1h') > s`: cannot order int and duration",
            ),
            ("timestamp(s)", "\"2024-02-29T12:34:56.000Z\""),
            ("int(now())", "1709251200"),
            (
                "timestamp(bad)",
                "error: `timestamp(bad)`: \"soon\" does not read as an RFC 3339 timestamp",
            ),
            ("now().getDayOfWeek()", "5"),
            ("now().getHours('America/New_York')", "19"),
            ("now().getHours('05:30')", "5"),
            ("now().getHours('-02:00')", "22"),
            (
                "now().getHours(bad)",
                "error: `now().getHours(bad)`: \"soon\" does not read as a time zone",
            ),
            (
                "bad.getHours()",
                "error: `bad.getHours()`: needs a timestamp, got string",
            ),
            (
                "string(now()) + ' ' + string(duration('90s'))",
                "\"2024-03-01T00:00:00.000Z 90s\"",
            ),
        ],
    );
}

#[test]
fn every_function_example_is_true() {
    for function in functions() {
        assert_eq!(
            value(EXAMPLE_DOCUMENT, function.example),
            "true",
            "{}",
            function.example
        );
    }
}

#[test]
fn what_the_start_refuses() {
    let cases: &[(&str, std::ops::Range<usize>, &str)] = &[
        (
            "m.contain('x')",
            2..9,
            "unknown function `contain`; did you mean `contains`?",
        ),
        ("frobnicate(m)", 0..10, "unknown function `frobnicate`"),
        (
            "m.contains()",
            0..12,
            "wrong number of arguments; the function is `text.contains(part) -> bool`",
        ),
        (
            "now(1)",
            0..6,
            "wrong number of arguments; the function is `now() -> timestamp`",
        ),
        (
            "m.matches('a(b')",
            10..15,
            "broken regular expression: unclosed group",
        ),
        (
            "m.matches(n)",
            10..11,
            "the regular expression of `matches` must be a text literal",
        ),
        (
            "has(1)",
            4..5,
            "`has` takes a field, such as has(user.name)",
        ),
        ("a == 1 || 2", 10..11, "expected true or false, found int"),
        (
            "a > 1 && 'x'",
            9..12,
            "expected true or false, found string",
        ),
        (
            "a > 1 && size(b)",
            9..16,
            "expected true or false, which this never is",
        ),
        (
            "!(a + 1)",
            1..8,
            "expected true or false, which this never is",
        ),
        ("x + 1 / 0", 4..9, "division by zero"),
        (
            "x > duration('soon')",
            4..20,
            "the value does not read as a duration such as 90s, 1h30m or 250ms",
        ),
        (
            "x > timestamp('2024')",
            4..21,
            "the value does not read as an RFC 3339 timestamp",
        ),
        ("duration('1h') > 5", 0..18, "cannot order duration and int"),
        (
            "x > 5m",
            4..6,
            "`5m` is not a number; did you mean `duration(\"5m\")`?",
        ),
        ("x = 5", 2..3, "`=` is not an operator; did you mean `==`?"),
        (
            "tags.exists('t', true)",
            12..15,
            "expected a name for the element; the function is `list.exists(x, condition) -> bool`",
        ),
        ("a['']", 0..5, "a field name has an empty part"),
        (
            "zip == 00123",
            7..12,
            "`00123` begins with a zero, which a number does not; a text is quoted; did you mean `\"00123\"`?",
        ),
        (
            "x < 1e400",
            4..9,
            "`1e400` is beyond the range of 64-bit floats, about 1.8e308",
        ),
        (
            "x == double('-1e400')",
            5..21,
            "the result does not fit into 64 bits",
        ),
        (
            "status >= '500'",
            10..15,
            "texts are ordered by their characters, so that \"9\" is above \"10\"; write the number without quotes; did you mean `500`?",
        ),
        (
            r#"m.replace(r"\d{4}", "X")"#,
            10..18,
            "`replace` takes plain text, and this reads as a regular expression, which `regex.replace` takes; a text that is meant as it stands is written in two parts: \"\\\\\" + \"d{4}\"",
        ),
        (
            "m.contains('[0-9]+')",
            11..19,
            "`contains` takes plain text, and this reads as a regular expression, which `matches` takes; a text that is meant as it stands is written in two parts: \"[\" + \"0-9]+\"",
        ),
        ("m.replace('a', 5)", 15..16, "needs a text, got int"),
        (
            "now().getHours('Nowhere')",
            15..24,
            "the value does not read as a time zone",
        ),
        (
            "regex.replace(m, n, 'x')",
            17..18,
            "the regular expression of `regex.replace` must be a text literal",
        ),
        (
            "regex.replace(m, 'a(b', 'x')",
            17..22,
            "broken regular expression: unclosed group",
        ),
        (
            "regex.replace(m, '(?-u:.)', 'x')",
            17..26,
            "broken regular expression: pattern can match invalid UTF-8",
        ),
        (
            "regex.extract(m, '(((a{100}){100}){100}){100}')",
            17..46,
            "broken regular expression: it is too large when compiled",
        ),
        (
            "regex.replace(m, '(a)', '$1')",
            24..28,
            "a group is written `\\1`, not `$1`; a dollar sign before a digit or brace is `\\$`",
        ),
        (
            r"regex.replace(m, 'a', r'\1')",
            22..27,
            "the regular expression has no such group",
        ),
        (
            "regex.extract(m, '(a)(b)')",
            17..25,
            "`regex.extract` takes a regular expression with one group at most, this has 2; `(?:…)` groups without capturing",
        ),
        (
            "m.regex.replace('a', 'b')",
            0..25,
            "`regex.replace` does not stand behind its first argument; it is `regex.replace(text, regex, by[, times]) -> string`",
        ),
        (
            "ip.isPrivate()",
            0..14,
            "wrong number of arguments; the function is `ip.isPrivate(address) -> bool`",
        ),
        (
            "math.rond(x)",
            0..9,
            "unknown function `math.rond`; did you mean `math.round`?",
        ),
        (
            "ip.inCidr(client, '10.0.0.0/33')",
            18..31,
            "the value does not read as a network such as 10.0.0.0/8",
        ),
        (
            "env('MILLPOND_NEVER_SET')",
            4..24,
            "the environment variable `MILLPOND_NEVER_SET` is not set; env(\"MILLPOND_NEVER_SET\", \"…\") gives a default",
        ),
        (
            "formatTime(now(), 'yyyy-bb')",
            18..27,
            "broken time format: `b` is not a letter of time formats here: they are y M d D H m s x w S h a E Z z; text stands in single quotes",
        ),
        (
            "'%d'.format([])",
            0..4,
            "the format has 1 places, and the list 0 elements",
        ),
        (
            "'%q'.format([m])",
            0..4,
            "a format has %s, %d, %f, %.2f, %e, %x, %X, %o and %b; a percent sign is %%",
        ),
        (
            r"m.matches('\d')",
            11..13,
            "`\\d` is not an escape; in a regex write `\\\\d`, or r\"…\" for the whole",
        ),
    ];
    for (text, at, message) in cases {
        let error = Expr::parse(text).expect_err(text);
        assert_eq!(
            (error.at.clone(), &*error.to_string()),
            (at.clone(), *message),
            "{text}"
        );
    }
}

#[test]
fn conditions_may_be_true() {
    for text in [
        "lower(a)",
        "size(a)",
        "regex.extract(a, 'x')",
        "a.map(b, true)",
        "a + 1",
        "now()",
        "uuid()",
        "42",
        "'a == 1'",
    ] {
        let error = Expr::parse_condition(text).expect_err(text);
        assert!(error.message.contains("never true"), "{text}: {error}");
    }
    for text in [
        "parseJson(a)",
        "merge(a).b",
        "ip.isPrivate(a)",
        "true",
        "a.exists_one(b, b)",
        "a",
        "a ?? false",
        "has(a)",
        "coalesce(a, b)",
        "a ? b : c",
    ] {
        assert!(Expr::parse_condition(text).is_ok(), "{text}");
    }
}

#[test]
fn fields_are_listed_once_and_in_order() {
    let expr = Expr::parse("a.b > 1 && c['x-y'] == a.b || list.exists(a, a.z == d)").unwrap();
    let fields: Vec<String> = expr.fields().map(ToString::to_string).collect();
    assert_eq!(fields, ["a.b", "c.x-y", "list", "d"]);
    assert!(Expr::parse("has(gone)").unwrap().fields().len() == 1);
}

#[test]
fn only_the_rows_asked_for_count() {
    let batch = batch(&[
        r#"{"a":1}"#,
        r#"{"a":2}"#,
        r#"{"a":"x"}"#,
        r#"{}"#,
        r#"{"a":1}"#,
    ]);
    let rows = Bitmap::from_fn(5, |row| row > 0);
    let filtered = Expr::parse("a < 3").unwrap().filter(&batch, &rows);
    assert_eq!(filtered.holds.iter().collect::<Vec<_>>(), [1, 4]);
    assert_eq!(filtered.errors, 1);
    assert_eq!(filtered.first_error.map(|error| error.0), Some(2));
    for (text, cells) in [
        ("a", [false, true, true, true, true]),
        ("'k'", [false, true, true, true, true]),
        ("a + 1", [false, true, false, false, true]),
    ] {
        let evaluated = Expr::parse(text).unwrap().evaluate(&batch, &rows);
        let touched: Vec<bool> = (0..5)
            .map(|row| evaluated.column.cell(row) != Cell::Keep)
            .collect();
        assert_eq!(touched, cells, "{text}");
    }
    let evaluated = Expr::parse("a").unwrap().evaluate(&batch, &rows);
    assert_eq!(evaluated.column.cell(3), Cell::Missing);
}

#[test]
fn written_columns_hold_every_kind_of_cell() {
    let mut batch = batch(&["{}"; 8]);
    let mut column = ColumnBuilder::new(8);
    let noon = RECEIVED + 43_200_000_000_000;
    let cells = [
        Cell::Int(502),
        Cell::UInt(u64::MAX),
        Cell::Float(502.0),
        Cell::Bool(true),
        Cell::Null,
        Cell::Time(noon),
    ];
    for (row, cell) in cells.into_iter().enumerate() {
        column.set(row, cell);
    }
    column.set_text(6, b"502");
    batch.apply({
        let mut edit = Edit::new();
        edit.set(FieldPath::from_keys(["v"]), column.finish());
        edit
    });
    for (text, rows, errors) in [
        ("v == 502", vec![0, 2, 6], 0),
        ("v != 502", vec![1, 3, 4, 5, 7], 0),
        ("v > 500", vec![0, 1, 2, 6], 2),
        ("v == 18446744073709551615", vec![1], 0),
        ("v == '502'", vec![0, 2, 6], 0),
        ("v in [true, 502]", vec![0, 2, 3, 6], 0),
        ("v in ['502', null]", vec![0, 2, 4, 6], 0),
        ("v", vec![3], 5),
        ("has(v)", vec![0, 1, 2, 3, 4, 5, 6], 0),
        ("v == '2024-03-01T12:00:00Z'", vec![5], 0),
        ("v > now() + duration('11h')", vec![5], 5),
        ("v.contains('0')", vec![6], 5),
        ("string(v).contains('02')", vec![0, 2, 5, 6], 0),
        ("v == v", vec![0, 1, 2, 3, 4, 5, 6], 0),
    ] {
        let filtered = Expr::parse(text)
            .expect(text)
            .filter(&batch, &Bitmap::all(8));
        assert_eq!(filtered.holds.iter().collect::<Vec<_>>(), rows, "{text}");
        assert_eq!(
            filtered.errors, errors,
            "{text}: {:?}",
            filtered.first_error
        );
    }
}

#[test]
fn lists_and_maps_of_messagepack_are_read_like_those_of_json() {
    let documents = [r#"{"tags":["a",200,null],"o":{"k-1":{"deep":[1.5]}},"status":502}"#];
    let batch = messagepack_batch(&documents);
    for (text, expected) in [
        ("'a' in tags && '200' in tags && null in tags", true),
        ("tags == ['a', 200, null]", true),
        ("tags[1] == 200 && size(tags) == 3", true),
        ("o['k-1'].deep[0] == 1.5", true),
        ("'k-1' in o && o == {'k-1': {'deep': [1.5]}}", true),
        ("tags.exists(t, t > 100 && t < 300)", true),
        ("status >= 500 && status == '502'", true),
        ("has(o.gone)", false),
    ] {
        let filtered = Expr::parse(text)
            .expect(text)
            .filter(&batch, &Bitmap::all(1));
        assert_eq!(filtered.holds.contains(0), expected, "{text}");
    }
}

#[test]
fn the_deepest_expressions_run() {
    let deep =
        |open: &str, close: &str, count| format!("{}a{}", open.repeat(count), close.repeat(count));
    let batch = batch(&[r#"{"a":true}"#]);
    for (open, close) in [
        ("(", ")"),
        ("!", ""),
        ("[", "]"),
        ("a ? b : ", ""),
        ("size(", ")"),
        ("!(a && ", ")"),
    ] {
        let deepest = (1..=100)
            .rev()
            .find_map(|count| Expr::parse(&deep(open, close, count)).ok());
        let expr = deepest.expect(open);
        assert!(expr.text().len() > 20 * open.len(), "{open}");
        expr.filter(&batch, &Bitmap::all(1));
        expr.evaluate(&batch, &Bitmap::all(1));
    }
}

#[test]
fn expressions_cross_threads() {
    fn crosses<T: Send + Sync + Clone>() {}
    crosses::<Expr>();
}
