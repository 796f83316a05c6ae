//! What parses and cannot be meant is refused, with what was likely meant.

use expr::Expr;

#[test]
fn dashed_names_and_repeated_keys() {
    for (text, at, message) in [
        (
            "has(user-agent)",
            4..14,
            "`has` takes a field, and this is a subtraction; a name with a dash in it stands in backticks: has(`user-agent`)",
        ),
        (
            "http.user-agent == 'curl'",
            0..15,
            "this is a subtraction, which is never equal to a text; a name with a dash in it stands in backticks: http.`user-agent`",
        ),
        (
            "status > 1 && 'a' != x-forwarded-for",
            21..36,
            "this is a subtraction, which is never equal to a text; a name with a dash in it stands in backticks: `x-forwarded-for`",
        ),
        (
            "user-agent in ['a', 'b']",
            0..10,
            "this is a subtraction, which is never equal to a text; a name with a dash in it stands in backticks: `user-agent`",
        ),
        (
            "http.user-agent.contains('curl')",
            0..32,
            "this is a subtraction, and true or false cannot be calculated with; a name with a dash in it stands in backticks: http.`user-agent`",
        ),
        (
            "{'a': 1, 'b': 2, 'a': 3}[x]",
            17..20,
            "the key `a` is given twice",
        ),
        ("{404: x, '404': y}", 9..14, "the key `404` is given twice"),
    ] {
        let error = Expr::parse(text).expect_err(text);
        assert_eq!((error.at.clone(), &*error.message), (at, message), "{text}");
    }
    // Subtractions, and keys that only turn out to be the same.
    for text in [
        "total-used > 5",
        "total-used == '5'",
        "user - agent == 'x'",
        "a-b.size()",
        "has(a) ? a-b : 0",
        "{a: 1, b: 2}",
    ] {
        assert!(Expr::parse(text).is_ok(), "{text}");
    }
}

/// The message, and what is suggested.
fn refused(parsed: Result<Expr, expr::ExprError>, text: &str, part: &str, right: &str) {
    let error = parsed.expect_err(text);
    assert!(error.message.contains(part), "{text}: {error}");
    assert_eq!(
        error.suggestion.as_deref().unwrap_or(""),
        right,
        "{text}: {error}"
    );
    assert!(text.get(error.at.clone()).is_some(), "{text}: {error:?}");
}

#[test]
fn texts_that_read_as_regular_expressions() {
    for text in [
        "m.contains('error|fatal')",
        "m.startsWith('^abc')",
        "m.endsWith('2024$')",
        "m.split(' +')",
        "m.split(', *')",
        "m.replace('a|b', '')",
        "m.replace('^abc', '')",
        "m.replace('abc+', '')",
        "m.replace('$1', '')",
        "m.replace('(abc)', '$1')",
        "m.replace('(abc)', r'<\\1>')",
        r"m.contains('\\d+')",
        r"m.contains('a\\.b')",
        "m.contains('[^ ]')",
        "m.contains('(?i)error')",
        "m.endsWith('*.log')",
        "m.contains('GET.*500')",
        "m.indexOf('a|b') > 1",
    ] {
        let text = text.replace("\\\\", "\\");
        let text = text.replace("'\\d", "r'\\d").replace("'a\\.", "r'a\\.");
        let error = Expr::parse(&text).expect_err(&text);
        let says = ["reads as a regular expression", "are for `regex.replace`"];
        assert!(
            says.iter().any(|part| error.message.contains(part)),
            "{text}: {error}"
        );
    }
    for text in [
        "m.contains('a' + '|b')",
        "m.split('|')",
        "m.startsWith('CEF:0|Cisco|ASA|')",
        "m.contains('C++')",
        "m.split(' + ')",
        "m.contains('/*')",
        "m.contains('[error]')",
        "m.contains('US $5')",
        "m.contains('^')",
        "m.contains('?id=1')",
        r"m.contains('..\\..\\x')",
        r"m.contains('C:\\data')",
        "m.contains('(no)')",
        "m.replace('x', 'costs $5')",
        "m.contains('a.b')",
        "m.endsWith('*')",
    ] {
        Expr::parse(text).expect(text);
    }
}

#[test]
fn conditions_that_read_no_field() {
    for (text, part, right) in [
        (
            "\"response\" == 404",
            "\"response\" is a text, the field is `response`",
            "response == 404",
        ),
        ("x > 1 && 'a' == 'b'", "\"a\" is a text", "a == 'b'"),
        (
            "!('http.verb' in ['GET'])",
            "is a text, the field is `http.verb`",
            "(http.verb in ['GET'])",
        ),
        ("1 == 1", "reads no field", ""),
        ("'a b' == 'c d'", "reads no field", ""),
        ("[1, 2].exists(x, x == 1)", "reads no field", ""),
        ("'id'.startsWith('a')", "reads no field", ""),
    ] {
        refused(Expr::parse_condition(text), text, part, right);
        // A value may be whatever it is.
        assert!(Expr::parse(text).is_ok(), "{text}");
    }
    for text in [
        "true",
        "false || x",
        "env('MILLPOND_NEVER_SET', 'a') == 'b'",
        "now() > timestamp(0)",
        "host() == 'a'",
        "uuid().startsWith('a')",
        "[1, 2].exists(x, x == y)",
        "'a' in tags",
    ] {
        Expr::parse_condition(text).expect(text);
    }
}

#[test]
fn orders_with_units() {
    for (text, part, right) in [
        (
            "bytes > '5k'",
            "texts are ordered",
            "parseBytes(bytes) > parseBytes(\"5k\")",
        ),
        (
            "'1MB' <= http.bytes",
            "texts are ordered",
            "parseBytes(http.bytes) > parseBytes(\"1MB\")",
        ),
        (
            "took > '90s'",
            "texts are ordered",
            "parseDuration(took) > parseDuration(\"90s\")",
        ),
        (
            "cpu > '50%'",
            "texts are ordered",
            "double(cpu.replace(\"%\", \"\")) > 50",
        ),
        (
            "ip >= '10.0.0.0'",
            "networks have a function",
            "ip.inCidr(ip, \"10.0.0.0/…\")",
        ),
        (
            "@timestamp >= '2015-05-18'",
            "a timestamp compares",
            "\"2015-05-18T00:00:00Z\"",
        ),
        (
            "@timestamp < '2015-05-18 07:00:00'",
            "a timestamp compares",
            "\"2015-05-18T07:00:00Z\"",
        ),
    ] {
        refused(Expr::parse(text), text, part, right);
    }
    for text in [
        "time >= '10:30:00'",
        "day >= '2015-05-18'",
        "name > '3com'",
        "bytes == '5k'",
    ] {
        Expr::parse(text).expect(text);
    }
}

#[test]
fn fields_in_brackets_and_lists_behind_an_equals_sign() {
    for (text, part, right) in [
        (
            "[level] == 'DEBUG'",
            "a field stands without brackets",
            "level",
        ),
        (
            "'POST' != [http.verb]",
            "a field stands without brackets",
            "http.verb",
        ),
        (
            "[level] in ['a', 'b']",
            "a field stands without brackets",
            "level",
        ),
        (
            "[http][status] == 200",
            "a field stands without brackets",
            "http.status",
        ),
        ("if [level] == 'DEBUG'", "there is no `if`", ""),
        (
            "response == [404, 500]",
            "a list itself",
            "response in [404, 500]",
        ),
        ("verb != ['GET']", "a list itself", "!(verb in ['GET'])"),
        (
            "ip in ['10.0.0.0/8']",
            "never equal to a network",
            "ip.inCidr(ip, ['10.0.0.0/8'])",
        ),
        ("response in 404", "`in` needs a list", "response in [404]"),
        (
            "ip in '10.0.0.0/8'",
            "`in` needs a list",
            "ip.inCidr(ip, '10.0.0.0/8')",
        ),
        (
            "'x' in lower(m)",
            "`in` needs a list",
            "lower(m).contains('x')",
        ),
        ("items[-1] == 1", "counted from 0", "items[size(items) - 1]"),
        (
            "[1, 2, 3][-1] == x",
            "counted from 0",
            "[1, 2, 3][size([1, 2, 3]) - 1]",
        ),
        (
            "url.parse(u).host == 'a'",
            "a URL has no part `host`",
            "domain",
        ),
        (
            "url.parse(u)['paht'] == 'a'",
            "a URL has no part `paht`",
            "path",
        ),
        (
            "exists(response)",
            "whether a field is there",
            "has(response)",
        ),
        ("app.kubernetes.io/name == 'web'", "this is a division", ""),
        ("has(app.io/name)", "this is a division", ""),
        ("isNull(x)", "unknown function `isNull`", "has"),
        ("parse_int(x) == 1", "unknown function", "int"),
    ] {
        refused(Expr::parse(text), text, part, right);
    }
    for text in [
        "tags == []",
        "tags == [] + ['a', 'b']",
        "tags.sort() == ['a', 'b']",
        "[a] == [1]",
        "m[-x]",
    ] {
        Expr::parse(text).expect(text);
    }
}

#[test]
fn types_that_never_work() {
    for (text, part, right) in [
        ("x.lower() == 5", "a text and a number are never equal", ""),
        (
            "size(x) == 'abc'",
            "a number and a text are never equal",
            "",
        ),
        (
            "parseDuration(d) > '1s'",
            "a duration and a text have no order",
            "duration(\"1s\")",
        ),
        (
            "parseDuration(d) > 1",
            "a duration and a number have no order",
            "duration(\"1s\")",
        ),
        (
            "now() > 1709210096",
            "`timestamp(…)` makes a timestamp of seconds",
            "",
        ),
        ("now() == 'soon'", "compares with a text such as", ""),
        (
            "has(x) == 'true'",
            "true or false and a text are never equal",
            "",
        ),
        ("tags.sort() == 'a'", "`value in list`", ""),
        (
            "now() - 86400 > @timestamp",
            "a span of time is a duration",
            "duration(\"86400s\")",
        ),
        (
            "now() - '24h' > @timestamp",
            "a span of time is a duration",
            "duration(\"24h\")",
        ),
        (
            "@timestamp + '1h'",
            "a span of time is a duration",
            "duration(\"1h\")",
        ),
        (
            "@timestamp - 3600",
            "a span of time is a duration",
            "duration(\"3600s\")",
        ),
        (
            "x - '1h'",
            "a span of time is a duration",
            "duration(\"1h\")",
        ),
        ("x * '5'", "makes a number of a text", ""),
        (
            "regex.extract(m, r'(\\d+)') * 1000",
            "makes a number of a text",
            "",
        ),
        (
            "'n: ' + size(x)",
            "`string(…)` makes a text of a number",
            "",
        ),
        (
            "now() + now()",
            "does not work on a timestamp and a timestamp",
            "",
        ),
        (
            "size(x).contains('5')",
            "`contains` needs a text, and this is a number",
            "",
        ),
        (
            "math.round(x.trim())",
            "`math.round` needs a number, and this is a text",
            "",
        ),
        ("lower(x).map(y, y)", "`map` needs a list or a map", ""),
        ("hmac(s, 'k', 'foo')", "the algorithm is", ""),
        ("s.charAt(-1)", "counted from 0", ""),
        ("s.indexOf('b', -1)", "counted from 0", ""),
        ("s.substring(-3)", "counted from 0", ""),
        ("l.slice(-1, 2)", "counted from 0", ""),
        ("nested.flatten(-1)", "not below 0", ""),
        ("math.round(d, 16)", "0 to 15", ""),
        ("parseKv(m, '')", "a separator is not empty", ""),
        (
            "x == '%{level}-x'",
            "outside of expressions",
            "level + \"-x\"",
        ),
        (
            "'logs-%{+yyyy}'",
            "outside of expressions",
            "\"logs-\" + formatTime(@timestamp, \"yyyy.MM.dd\")",
        ),
        ("formatTime(t, 'yyyy-mm-dd')", "did you mean `MM`?", ""),
        (
            "formatTime(t, 'dd/mm/yyyy HH:mm')",
            "did you mean `MM`?",
            "",
        ),
        (
            "formatTime(t, 'yyyy-MM-dd HH:MM')",
            "did you mean `mm`?",
            "",
        ),
        ("formatTime(t, 'yyyy-MM-DD')", "did you mean `dd`?", ""),
    ] {
        refused(Expr::parse(text), text, part, right);
    }
    for text in [
        "regex.extract(m, r'(\\d+)') == 502",
        "size(x) == '5'",
        "formatTime(t, 'HH:mm:ss')",
        "formatTime(t, 'yyyy-MM-dd HH:mm')",
        "formatTime(t, 'mm:ss')",
        "formatTime(t, 'yyyy.DDD')",
        "@timestamp + ' ' + message",
        "name + '1h'",
        "x - y",
        "m.contains('%{level}')",
        "now() - '2024-01-01T00:00:00Z' > duration('1h')",
    ] {
        Expr::parse(text).expect(text);
    }
}
