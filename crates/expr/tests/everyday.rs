//! Expressions as users write them, over events as they come: fields that are missing, nulls, and types that differ from event
//! to event.
//!
//! What the CEL specification (github.com/google/cel-spec, doc/langdef.md) or cel-go's extensions say is what comes out, except where
//! the page `expressions` says otherwise: those cases name the page's sentence they follow.

mod common;

use common::check;

/// An nginx access log as grok gives it: numbers are texts.
const ACCESS: &str = r#"{"clientip":"10.20.30.40","ident":"-","verb":"GET","request":"/api/v1/users?id=7&debug=true","response":"502","bytes":"-","took":"0.250","agent":"Mozilla/5.0 (X11; Linux x86_64)","@timestamp":"2024-02-29T12:34:56.789Z","tags":["beats","prod"],"message":"token=abcd1234 user=ann"}"#;

/// A JSON log of a service, with nulls and nested objects.
const SERVICE: &str = r#"{"level":"WARN","status":404,"duration_ms":1250,"error":null,"user":{"id":7,"name":"Ann Lee","roles":["admin","dev"]},"http":{"user-agent":"curl/8.5.0","headers":{"x-request-id":"r-1"}},"items":[{"sku":"a","qty":2},{"sku":"b","qty":5}],"price":19.99,"zip":"00123","active":true,"ts":1709210096789,"k8s.pod":"web-1"}"#;

#[test]
fn an_access_log() {
    check(
        ACCESS,
        &[
            // Page: text that reads as a number compares with numbers.
            ("response >= 500", "true"),
            ("response == 502", "true"),
            ("response == '502'", "true"),
            ("response in ['500', '502', '503']", "true"),
            ("response in [500, 502, 503]", "true"),
            ("response >= 500 && verb == 'GET'", "true"),
            ("verb in ['POST', 'PUT']", "false"),
            ("!(verb in ['POST', 'PUT'])", "true"),
            // Page: a text that is no number has no order with one; the event is false, and counted.
            (
                "bytes > 1000",
                "error: `bytes > 1000`: cannot order string and int",
            ),
            ("bytes == '-' ? 0 : int(bytes)", "0"),
            ("double(took) * 1000", "250.0"),
            ("int(double(took) * 1000.0)", "250"),
            (
                "took * 1000",
                "error: `took * 1000`: `*` does not work on string and int; int(…) or double(…) makes a number of a text, string(…) a text of a number",
            ),
            ("int(response) / 100", "5"),
            ("request.startsWith('/api/')", "true"),
            (
                "request.startsWith('/api/') && !request.contains('health')",
                "true",
            ),
            ("request.split('?')[0]", "\"/api/v1/users\""),
            ("url.parse(request).path", "\"/api/v1/users\""),
            ("parseKv(url.parse(request).query, '&').id", "\"7\""),
            (r#"regex.extract(request, r"[?&]id=(\d+)")"#, "\"7\""),
            (
                r#"regex.replace(message, r"token=\w+", "token=***")"#,
                "\"token=*** user=ann\"",
            ),
            (r#"agent.matches("(?i)linux|bsd")"#, "true"),
            (
                "ip.inCidr(clientip, ['10.0.0.0/8', '192.168.0.0/16'])",
                "true",
            ),
            ("!ip.isPrivate(clientip)", "false"),
            ("'prod' in tags", "true"),
            ("tags + ['seen']", "[\"beats\",\"prod\",\"seen\"]"),
            ("verb.lower() + ' ' + string(request.size())", "\"get 29\""),
            ("'%s %s'.format([verb, response])", "\"GET 502\""),
            ("formatTime(@timestamp, 'yyyy.MM.dd')", "\"2024.02.29\""),
            ("@timestamp.getHours('02:00')", "14"),
            (
                "@timestamp >= '2024-02-01T00:00:00Z' && @timestamp < '2024-03-01T00:00:00Z'",
                "true",
            ),
            ("now() - timestamp(@timestamp) > duration('1h')", "true"),
            ("ident == '-' ? null : ident", "null"),
        ],
    );
}

#[test]
fn a_service_log() {
    check(
        SERVICE,
        &[
            ("level == 'DEBUG'", "false"),
            ("level != 'DEBUG'", "true"),
            ("level in ['WARN', 'ERROR', 'FATAL']", "true"),
            ("status >= 400 && status < 500", "true"),
            // CEL: equality between types is false. Page: text that reads as a number is the exception.
            ("status == 'not found'", "false"),
            ("status == '404'", "true"),
            ("duration_ms / 1000", "1"),
            ("duration_ms / 1000.0", "1.25"),
            (
                "duration('1s') * duration_ms / 1000 > duration('1s')",
                "true",
            ),
            // Page: an absent field equals nothing and has no order.
            ("userid == 7", "false"),
            ("userid != 7", "true"),
            ("userid > 5", "false"),
            ("has(userid)", "false"),
            ("has(error)", "true"),
            ("error == null", "true"),
            ("error != null", "false"),
            ("has(error) && error != null", "false"),
            ("error.contains('timeout')", "false"),
            ("error.size() > 0", "false"),
            ("user.email ?? user.name", "\"Ann Lee\""),
            ("user.email ?? error ?? 'unknown'", "\"unknown\""),
            ("user.roles.exists(r, r == 'admin')", "true"),
            ("user.roles.exists_one(r, r.startsWith('d'))", "true"),
            ("user.roles[0]", "\"admin\""),
            ("user.roles[5] ?? 'none'", "\"none\""),
            ("items.map(i, i.qty)", "[2,5]"),
            ("items.filter(i, i.qty > 3).map(i, i.sku)", "[\"b\"]"),
            ("items.all(i, i.qty > 0)", "true"),
            ("math.greatest(items.map(i, i.qty))", "5"),
            (
                "http.user-agent > 1",
                "error: `http.user-agent`: `-` does not work on an absent field and an absent field; a name with a dash in it stands in backticks: http.`user-agent`",
            ),
            ("duration_ms-status == 846", "true"),
            ("duration_ms-status == '846'", "true"),
            ("http.`user-agent` == 'curl/8.5.0'", "true"),
            ("http['user-agent'].startsWith('curl')", "true"),
            ("http.headers['x-request-id']", "\"r-1\""),
            ("k8s.pod", "\"web-1\""),
            ("zip == '00123'", "true"),
            // Two texts compare as texts, as in CEL.
            ("zip == '123'", "false"),
            ("zip == 123", "true"),
            ("math.round(price)", "20.0"),
            ("int(math.round(price))", "20"),
            ("math.round(price * 1.19, 2)", "23.79"),
            ("active", "true"),
            ("active == 'true'", "false"),
            ("!active || status == 404", "true"),
            ("epochMillis(ts)", "\"2024-02-29T12:34:56.789Z\""),
            ("timestamp(ts / 1000)", "\"2024-02-29T12:34:56.000Z\""),
            ("string(status) + ' ' + level", "\"404 WARN\""),
            (
                "status + ' ' + level",
                "error: `status + ' '`: `+` does not work on int and string; int(…) or double(…) makes a number of a text, string(…) a text of a number",
            ),
            (
                "{200: 'ok', 404: 'missing'}[status] ?? 'other'",
                "\"missing\"",
            ),
            ("user.name.lower().replace(' ', '.')", "\"ann.lee\""),
            (
                "merge(user, {'name': sha256(user.name).substring(0, 8)})",
                "{\"id\":7,\"roles\":[\"admin\",\"dev\"],\"name\":\"a36e143c\"}",
            ),
            ("level > 5 || status == 404", "true"),
            ("level > 5 && status == 200", "false"),
            ("price > 1e3 ? 'dear' : 'cheap'", "\"cheap\""),
            (
                "type(user) + ' ' + type(zip) + ' ' + type(nothing)",
                "\"map string absent\"",
            ),
        ],
    );
}

/// The specification's own examples of its operators, macros and functions.
#[test]
fn what_the_specification_says() {
    check(
        r#"{"x":{"a":1},"l":[1,2,3]}"#,
        &[
            ("1 + 2 * 3 - 4 / 2 % 2", "7"),
            ("-7 / 2", "-3"),
            ("-7 % 2", "-1"),
            ("1 == 1.0", "true"),
            ("1u == 1", "true"),
            ("'a' < 'b' && 'B' < 'a'", "true"),
            ("'9' > '10'", "true"),
            (
                "[1, 2] == [1, 2] && {'a': 1, 'b': 2} == {'b': 2, 'a': 1}",
                "true",
            ),
            ("2 in [1, 2, 3] && 'a' in {'a': 1}", "true"),
            ("true || 1 / (size(l) - 3) == 1", "true"),
            ("1 / (size(l) - 3) == 1 || true", "true"),
            ("false && 1 / (size(l) - 3) == 1", "false"),
            ("false ? 1 : 'no'", "\"no\""),
            (
                "l.exists(e, e > 2) && l.all(e, e > 0) && l.exists_one(e, e == 2)",
                "true",
            ),
            ("l.map(e, e * 2).filter(e, e > 2)", "[4,6]"),
            (
                "size('ä') == 1 && size([1, 2]) == 2 && size({'a': 1}) == 1",
                "true",
            ),
            (
                "int(-1.9) == -1 && int('7') == 7 && double('1.5') == 1.5",
                "true",
            ),
            ("string(1.5) + string(true)", "\"1.5true\""),
            (
                "timestamp('2009-02-13T23:31:30Z') == timestamp(1234567890)",
                "true",
            ),
            ("duration('1.5h') == duration('90m')", "true"),
            ("timestamp('2024-12-31T23:00:00Z').getDayOfYear()", "365"),
            ("timestamp('2024-12-31T23:00:00Z').getDate('01:00')", "1"),
            ("timestamp('2024-12-31T23:00:00Z').getHours('-01:30')", "21"),
            ("has(x.a) && !has(x.b)", "true"),
            (
                r#"r"\d" == '\\d' && '\u00e4' == 'ä' && """a"b""" == 'a"b'"#,
                "true",
            ),
        ],
    );
}

/// An event with a field of every kind, and one that is missing: `gone`.
const MIXED: &str = r#"{"i":5,"f":2.5,"s":"abc","num":"42","nul":null,"t":true,"l":[1,2.0,"3",null],"m":{"a":1,"b":null,"2":"two"},"ts":"2024-02-29T12:34:56Z","e":"","big":18446744073709551616,"neg":-7,"items":[{"k":1},{"k":"x"},{}]}"#;

/// Where an expected result comes from.
enum Source {
    /// The CEL specification, or cel-go's extensions.
    Spec,
    /// A sentence of the page `expressions`, where that differs or the specification says nothing.
    Page(&'static str),
}

const PAGE: &str = include_str!("../../millpond/src/expressions.md");

const ABSENT: Source = Source::Page("An absent field equals nothing, null included");
const HAS: Source = Source::Page("`has(x)` tests whether it exists.");
const NO_ORDER: Source = Source::Page("Absent and null have no order: `x > 5` is false.");
const IS_FALSE: Source = Source::Page("As a condition, both are false.");
const NOTHING: Source = Source::Page("Arithmetic with an absent field or null is an error.");
const DEFAULT: Source = Source::Page("`a ?? b` is `a` unless that is absent or null.");
const BEYOND: Source =
    Source::Page("An index beyond a list and a key that a map does not have give an absent value.");
const FIRST: Source =
    Source::Page("A function of an absent or null first argument gives that back");
const EMPTY: Source = Source::Page("take an absent list and null as an empty one.");
const QUESTION: Source =
    Source::Page("`contains`, `startsWith`, `endsWith` and `matches` of such a text are false.");
const NUMBERS: Source = Source::Page("**A text and a number compare as numbers**");
const UNORDERED: Source = Source::Page("ordering it and a number is an error");
const ONLY_NUMBERS: Source = Source::Page("Arithmetic takes numbers only");
const EXACT: Source = Source::Page("Whole numbers in events compare exactly at any length");
const LIMITS: Source = Source::Page("one beyond is an error, and so is a division by zero");
const TIMES: Source = Source::Page("Text that reads as an RFC 3339 time compares with timestamps");
const TEXT_KEYS: Source = Source::Page("The keys of a map are texts.");
const TYPES: Source = Source::Page(
    "Integers and doubles can be mixed in arithmetic, and values of different types are unequal",
);
const LEFT_OUT: Source =
    Source::Page("`substring` and `slice` leave out what lies beyond the text or the list.");

#[test]
fn missing_fields_nulls_and_mixed_types() {
    use Source::Spec;
    let cases: &[(&str, &str, Source)] = &[
        ("gone == null", "false", ABSENT),
        ("gone != null", "true", ABSENT),
        ("gone == gone", "false", ABSENT),
        ("gone == ''", "false", ABSENT),
        ("gone in l", "false", ABSENT),
        ("nul == null", "true", Spec),
        ("null == 0", "false", Spec),
        ("null == ''", "false", Spec),
        ("null == false", "false", Spec),
        ("null in l", "true", Spec),
        (
            "has(nul) && has(m.b) && !has(m.c) && !has(s.x)",
            "true",
            HAS,
        ),
        ("gone < 5", "false", NO_ORDER),
        ("gone >= 5", "false", NO_ORDER),
        ("nul < 5", "false", NO_ORDER),
        ("!gone", "true", IS_FALSE),
        ("!nul", "true", IS_FALSE),
        ("gone || t", "true", IS_FALSE),
        ("t && gone", "false", IS_FALSE),
        ("nul ? 1 : 2", "2", IS_FALSE),
        (
            "s + gone",
            "error: `s + gone`: `+` does not work on string and an absent field; `field ?? value` gives a default",
            NOTHING,
        ),
        (
            "s + nul",
            "error: `s + nul`: `+` does not work on string and null; `field ?? value` gives a default",
            NOTHING,
        ),
        ("e ?? 'd'", "\"\"", DEFAULT),
        ("gone ?? nul ?? 3", "3", DEFAULT),
        ("coalesce(gone, nul, 1)", "1", DEFAULT),
        ("l[9]", "absent", BEYOND),
        ("l[-i]", "absent", BEYOND),
        ("m.c", "absent", BEYOND),
        ("m.c.d", "absent", BEYOND),
        ("m.b", "null", Spec),
        ("'b' in m && !('c' in m)", "true", Spec),
        ("m[2]", "\"two\"", TEXT_KEYS),
        ("size(gone)", "absent", FIRST),
        ("size(nul)", "null", FIRST),
        ("double(nul)", "null", FIRST),
        ("gone.lower()", "absent", FIRST),
        ("gone.contains('a')", "false", QUESTION),
        ("nul.matches('a')", "false", QUESTION),
        ("s.startsWith(nul)", "false", QUESTION),
        ("i == 5.0", "true", Spec),
        ("[1, 2] == [1.0, 2]", "true", Spec),
        ("{'a': 1} == {'a': 1.0}", "true", Spec),
        ("i == '5'", "true", NUMBERS),
        ("num == 42", "true", NUMBERS),
        ("num > 41.5", "true", NUMBERS),
        ("num in [42]", "true", NUMBERS),
        ("3 in l", "true", NUMBERS),
        ("num == '42.0'", "false", Spec),
        ("e < s", "true", Spec),
        (
            "s < 5",
            "error: `s < 5`: cannot order string and int",
            UNORDERED,
        ),
        ("t == 1", "false", TYPES),
        ("t == 'true'", "false", TYPES),
        ("s == 5", "false", TYPES),
        ("i + f", "7.5", TYPES),
        ("i / 2", "2", Spec),
        ("neg % 3", "-1", Spec),
        ("f * 2", "5.0", TYPES),
        ("num + '1'", "\"421\"", Spec),
        (
            "num + 1",
            "error: `num + 1`: `+` does not work on string and int; int(…) or double(…) makes a number of a text, string(…) a text of a number",
            ONLY_NUMBERS,
        ),
        ("int(num) + 1", "43", Spec),
        ("i / 0", "error: `i / 0`: division by zero", LIMITS),
        ("f / 0.0", "error: `f / 0.0`: division by zero", LIMITS),
        (
            "big + 1",
            "error: `big + 1`: the result does not fit into 64 bits",
            LIMITS,
        ),
        ("big == 18446744073709551616 && big > 1", "true", EXACT),
        ("int(-2.5)", "-2", Spec),
        (
            "i ? 1 : 2",
            "error: `i`: needs true or false, got int",
            Spec,
        ),
        ("i / 0 == 1 || t", "true", Spec),
        ("timestamp(ts) > '2024-01-01T00:00:00Z'", "true", TIMES),
        (
            "timestamp(ts) - duration('1h')",
            "\"2024-02-29T11:34:56.000Z\"",
            Spec,
        ),
        ("timestamp(ts).getMonth()", "1", Spec),
        ("timestamp(ts).getDayOfMonth()", "28", Spec),
        ("duration('90s') > duration('1m')", "true", Spec),
        ("items.exists(x, x.k == 'x')", "true", Spec),
        ("items.all(x, has(x.k))", "false", Spec),
        ("items.exists(x, x.k > 0)", "true", Spec),
        ("gone.exists(x, x > 1)", "false", EMPTY),
        ("gone.all(x, x > 1)", "true", EMPTY),
        ("nul.map(x, x)", "[]", EMPTY),
        ("l.exists_one(x, x == 2)", "true", Spec),
        ("size(e) == 0 && s.contains('')", "true", Spec),
        ("s.matches('^a.c$')", "true", Spec),
        ("s.substring(1) + s.substring(5)", "\"bc\"", LEFT_OUT),
        ("s.indexOf('z')", "-1", Spec),
        ("t ? 1 : 'x'", "1", Spec),
    ];
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let page = words(PAGE);
    for (expression, expected, source) in cases {
        check(MIXED, &[(expression, expected)]);
        if let Source::Page(sentence) = source {
            assert!(page.contains(sentence), "the page says: {sentence}");
        }
    }
}
