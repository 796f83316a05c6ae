//! The functions at their edges: absent and null values, mixed types, and what they refuse.

mod common;

use common::check;
use expr::Expr;

#[test]
fn texts_are_searched_and_changed() {
    check(
        r#"{"m":"Ärger: GET /x","n":5,"null":null,"l":["a",["b",["c"]]]}"#,
        &[
            ("'hello mellow'.indexOf('')", "0"),
            ("'hello mellow'.indexOf('ello', 2)", "7"),
            (
                "m.indexOf('x', 20)",
                "error: `m.indexOf('x', 20)`: the index lies outside the text",
            ),
            ("m.indexOf('GET')", "7"),
            ("'hello mellow'.lastIndexOf('')", "12"),
            ("'hello mellow'.lastIndexOf('ello', 6)", "1"),
            ("'hello mellow'.lastIndexOf('jello')", "-1"),
            ("'äöä'.lastIndexOf('ä', 1)", "0"),
            ("'äöä'.lastIndexOf('öä', 1)", "1"),
            ("m.charAt(0)", "\"Ä\""),
            ("m.charAt(12)", "\"x\""),
            ("m.charAt(13)", "\"\""),
            (
                "m.charAt(14)",
                "error: `m.charAt(14)`: the index lies outside the text",
            ),
            (
                "m.charAt(-n)",
                "error: `m.charAt(-n)`: the index lies outside the text",
            ),
            (
                "m.substring(-n)",
                "error: `m.substring(-n)`: positions are counted from 0, so that none is below it",
            ),
            ("m.lower()", "\"ärger: get /x\""),
            ("m.lowerAscii()", "\"Ärger: get /x\""),
            ("m.upper().lower() == m.lower()", "true"),
            ("gone.upper()", "absent"),
            ("null.upper()", "null"),
            ("n.upper()", "error: `n.upper()`: needs a text, got int"),
            ("'ab'.reverse() + m.reverse()", "\"bax/ TEG :regrÄ\""),
            ("l.reverse()", "[[\"b\",[\"c\"]],\"a\"]"),
            (
                "n.reverse()",
                "error: `n.reverse()`: needs a text or a list, got int",
            ),
            ("'aaa'.replace('a', 'b', 2)", "\"bba\""),
            ("'aaa'.replace('a', 'b', 0)", "\"aaa\""),
            ("'aaa'.replace('a', 'b', -1)", "\"bbb\""),
            ("'ab'.replace('', '-')", "\"-a-b-\""),
            (r"'C:\\data'.contains('C:\\data')", "true"),
        ],
    );
}

#[test]
fn formats_take_as_many_values_as_they_have_places() {
    check(
        r#"{"s":"x","n":42,"f":1.25,"neg":-255,"big":123456789012345678901234567890,"l":[1,"a"],"null":null,"t":"502"}"#,
        &[
            (
                "'%s|%s|%s|%s'.format([s, n, f, null])",
                "\"x|42|1.25|null\"",
            ),
            ("'%s'.format([l])", r#""[1,\"a\"]""#),
            (
                "'%d%%'.format([big])",
                "\"123456789012345678901234567890%\"",
            ),
            ("'%f %.0f %.3f'.format([f, f, n])", "\"1.250000 1 42.000\""),
            ("'%e'.format([n * 1000])", "\"4.200000e+04\""),
            ("'%.1e'.format([0.00012])", "\"1.2e-04\""),
            (
                "'%x %X %o %b'.format([neg, neg, n, n])",
                "\"-ff -FF 52 101010\"",
            ),
            ("'%x'.format(['Aä'])", "\"41c3a4\""),
            ("'%s-%s'.format(l)", "\"1-a\""),
            (
                "'%s'.format(l)",
                "error: `'%s'.format(l)`: the list has too many elements for the format",
            ),
            (
                "'%s%s%s'.format(l)",
                "error: `'%s%s%s'.format(l)`: the list has too few elements for the format",
            ),
            (
                "'%s'.format([gone])",
                "error: `'%s'.format([gone])`: needs a value, got an absent field",
            ),
            (
                "'%d'.format([t])",
                "error: `'%d'.format([t])`: needs a whole number for `%d`, `%x`, `%o` or `%b`, got string",
            ),
            ("gone.format([s])", "absent"),
            ("(s + '=%s').format([n])", "\"x=42\""),
            ("'plain'.format([])", "\"plain\""),
        ],
    );
}

#[test]
fn regular_expressions_extract_and_replace() {
    check(
        r#"{"m":"user=ann id=17 id=4","n":5,"null":null,"e":"a\"1\""}"#,
        &[
            (r#"regex.extract(m, r"id=\d+")"#, "\"id=17\""),
            (r#"regex.extract(m, r"id=(\d+)")"#, "\"17\""),
            (r#"int(regex.extract(m, r"id=(\d+)")) + 1"#, "18"),
            (r#"regex.extract(m, r"(x)?user")"#, "absent"),
            (r#"regex.extract(m, r"nothing")"#, "absent"),
            (r#"regex.extract(m, r"nothing") ?? "-""#, "\"-\""),
            (r#"regex.extract(gone, "a")"#, "absent"),
            (r#"regex.extract(null, "a")"#, "null"),
            (r#"regex.extract(e, r"\d")"#, "\"1\""),
            (
                r#"regex.extract(n, "a")"#,
                r#"error: `regex.extract(n, "a")`: needs a text, got int"#,
            ),
            (r#"regex.extractAll(m, r"id=(\d+)")"#, "[\"17\",\"4\"]"),
            (r#"regex.extractAll(m, r"id=\d+")"#, "[\"id=17\",\"id=4\"]"),
            (r#"regex.extractAll(m, "nothing")"#, "[]"),
            (r#"regex.replace(m, r"\d+", '#')"#, "\"user=ann id=# id=#\""),
            (
                r#"regex.replace(m, r"\d+", '#', 1)"#,
                "\"user=ann id=# id=4\"",
            ),
            (
                r#"regex.replace(m, r"\d+", '#', 0)"#,
                "\"user=ann id=17 id=4\"",
            ),
            (
                r#"regex.replace(m, r"\d+", '#', -1)"#,
                "\"user=ann id=# id=#\"",
            ),
            (
                r#"regex.replace(m, r"(\w+)=(\d+)", r"\2:\1")"#,
                "\"user=ann 17:id 4:id\"",
            ),
            (
                r#"regex.replace(m, r"\d+", r"<\0>")"#,
                "\"user=ann id=<17> id=<4>\"",
            ),
            (r#"regex.replace("5 a", r"\d", r"\$1\\")"#, r#""$1\\ a""#),
            (r#"regex.replace("abc", "", "-")"#, "\"-a-b-c-\""),
            (
                r#"regex.replace("baaac", "a*?", r"<\0>")"#,
                "\"<>b<>a<>a<>a<>c<>\"",
            ),
            (r#"regex.replace(m, "nothing", "x") == m"#, "true"),
            (
                r#"regex.replace(m, r"^(\w+)=.*", m.substring(0, 2))"#,
                "\"us\"",
            ),
            (
                "m.replace('id', regex.extract(m, 'u..r'), 1)",
                "\"user=ann user=17 id=4\"",
            ),
            (
                r#"regex.extractAll("a1 b c3", r"[a-z](\d)?")"#,
                "[\"1\",\"3\"]",
            ),
            (
                r#"regex.replace("aé€b", "(.)", r"[\1]")"#,
                "\"[a][é][€][b]\"",
            ),
            (r#"regex.replace("aé", "", "-")"#, "\"-a-é-\""),
            (
                r#"regex.replace("abcdefghijk", "(a)(b)(c)(d)(e)(f)(g)(h)(i)(j)", r"\9\1\0")"#,
                "\"iaabcdefghijk\"",
            ),
            (r#"regex.replace("a b", r"\b", "|")"#, "\"|a| |b|\""),
            // A namespace gives way to the variable of a macro.
            ("['a-b'].map(regex, regex.replace('-', '+'))", "[\"a+b\"]"),
        ],
    );
}

#[test]
fn numbers_keep_their_kind() {
    check(
        r#"{"i":7,"f":-2.5,"t":"7","big":12345678901234567890123456789012345678901234567890,"l":[3,1.5,2],"w":[1,"a"],"empty":[],"null":null}"#,
        &[
            ("math.round(f)", "-3.0"),
            ("math.round(2.4999)", "2.0"),
            ("math.round(i)", "7"),
            ("math.round(2.675, 2)", "2.68"),
            ("math.round(-1.005, 2)", "-1.01"),
            ("math.round(0.1, 3)", "0.1"),
            ("math.round(1e300, 2)", "1e300"),
            ("math.round(9.996, 2)", "10.0"),
            ("math.floor(f)", "-3.0"),
            ("math.ceil(f)", "-2.0"),
            ("math.trunc(f)", "-2.0"),
            ("math.abs(f)", "2.5"),
            ("math.abs(-9223372036854775808)", "9223372036854775808"),
            ("math.sign(f) + math.sign(i) + math.sign(0.0)", "0"),
            (
                "math.abs(big)",
                "error: `math.abs(big)`: the result does not fit into 64 bits",
            ),
            ("math.floor(big) == big", "true"),
            (
                "math.floor(t)",
                "error: `math.floor(t)`: needs a number, got string",
            ),
            ("math.floor(gone)", "absent"),
            ("math.floor(null)", "null"),
            ("math.least(l)", "1.5"),
            ("math.greatest(i, f, 3)", "7"),
            ("math.greatest(i, big) == big", "true"),
            (
                "math.greatest(empty)",
                "error: `math.greatest(empty)`: the list is empty",
            ),
            (
                "math.greatest(w)",
                "error: `math.greatest(w)`: needs a number, got string",
            ),
            (
                "math.least(gone, 3)",
                "error: `math.least(gone, 3)`: needs a number, got an absent field",
            ),
            (
                "math.least(3, gone)",
                "error: `math.least(3, gone)`: needs a number, got an absent field",
            ),
            ("hex(i)", "\"7\""),
            ("hex(-255)", "\"-ff\""),
            (
                "hex(f)",
                "error: `hex(f)`: needs a text or a whole number, got double",
            ),
            ("parseBytes('512')", "512"),
            ("parseBytes('10 MB')", "10000000"),
            ("parseBytes('1.5GiB')", "1610612736"),
            ("parseBytes('4k')", "4096"),
            (
                "parseBytes('9999999999999 TB' + t.substring(9))",
                "error: `parseBytes('9999999999999 TB' + t.substring(9))`: the result does not fit into 64 bits",
            ),
            (
                "parseBytes(t + 'x')",
                "error: `parseBytes(t + 'x')`: \"7x\" does not read as a number of bytes such as 512, 10KB or 1.5MiB",
            ),
            (
                "double('1e400' + t.substring(9))",
                "error: `double('1e400' + t.substring(9))`: the result does not fit into 64 bits",
            ),
        ],
    );
}

#[test]
fn lists_and_maps() {
    check(
        r#"{"tags":["b","a","b",1,"1",1.0,null,null],"l":[[1],[2,[3]],4],"m":{"x":1,"y z":{"a":1}},"o":{"x":2},"t":"text","null":null}"#,
        &[
            ("tags.distinct()", "[\"b\",\"a\",1,null]"),
            ("[gone, gone, 1].distinct()", "[null,1]"),
            ("['007', 7, '7', 7.0].distinct()", "[\"007\",\"7\"]"),
            (
                "[[1], [1], {'a': 1}, {'a': 1}].distinct()",
                "[[1],{\"a\":1}]",
            ),
            ("['b', 'a', 'B'].sort()", "[\"B\",\"a\",\"b\"]"),
            ("[2, 1.5, -3, 1].sort()", "[-3,1,1.5,2]"),
            (
                "[9007199254740993, 9007199254740992.0, 9007199254740992].sort()",
                "[9007199254740992.0,9007199254740992,9007199254740993]",
            ),
            (
                "tags.sort()",
                "error: `tags.sort()`: cannot order string and int",
            ),
            (
                "m.values().sort()",
                "error: `m.values().sort()`: cannot order int and map",
            ),
            ("l.sort()", "error: `l.sort()`: cannot order list and int"),
            ("[].sort()", "[]"),
            ("l.flatten()", "[1,2,[3],4]"),
            ("l.flatten(2)", "[1,2,3,4]"),
            ("l.flatten(0) == l", "true"),
            ("l.flatten(1000000000)", "[1,2,3,4]"),
            ("l.slice(1, 2)", "[[2,[3]]]"),
            ("l.slice(2, 1)", "[]"),
            ("l.slice(5, 9)", "[]"),
            (
                "l.slice(size(l) - 99, 2)",
                "error: `l.slice(size(l) - 99, 2)`: positions are counted from 0, so that none is below it",
            ),
            ("m.keys()", "[\"x\",\"y z\"]"),
            ("m.values()", "[1,{\"a\":1}]"),
            ("t.keys()", "error: `t.keys()`: needs a map, got string"),
            ("gone.keys()", "absent"),
            ("merge(m, o)", "{\"y z\":{\"a\":1},\"x\":2}"),
            ("merge(gone, m, null)", "{\"x\":1,\"y z\":{\"a\":1}}"),
            (
                "merge(m, t)",
                "error: `merge(m, t)`: needs a map, got string",
            ),
            ("tags.exists_one(tag, tag == 'a')", "true"),
            ("tags.exists_one(tag, tag == 'b')", "false"),
            ("gone.exists_one(tag, true)", "false"),
            (
                "tags.exists_one(tag, tag > 5)",
                "error: `tag > 5`: cannot order string and int",
            ),
            (
                "{1: 'a', true: 'b', 2.5: 'c', 'k': 'd'}",
                "{\"1\":\"a\",\"true\":\"b\",\"2.5\":\"c\",\"k\":\"d\"}",
            ),
            ("{200: 'ok', 404: 'missing'}[int('404')]", "\"missing\""),
            ("{200: 'ok'}['200']", "\"ok\""),
            ("{1: 'a'}[1.0]", "\"a\""),
            (
                "1 in {1: 'a'} && !(2 in {1: 'a'}) && true in {true: 1}",
                "true",
            ),
            ("{1: 'a', m.x: 'b', tags[4]: 'c'}", "{\"1\":\"c\"}"),
        ],
    );
    let error = Expr::parse("{[1]: 'a'} == m").expect_err("a list as a key");
    assert_eq!(
        error.message,
        "needs a text, a number or a truth value as the key of a map, got list"
    );
}

#[test]
fn many_keys_are_told_apart() {
    let entries: Vec<String> = (0..100).map(|n| format!("p + '{}': {n}", n % 40)).collect();
    let text = format!("{{{}}}.keys().size()", entries.join(", "));
    let document = r#"{"p":"k"}"#;
    check(document, &[(&text, "40")]);
    let text = format!("{{{}}}['k3']", entries.join(", "));
    check(document, &[(&text, "83")]);
}

#[test]
fn times_and_durations() {
    check(
        r#"{"ts":"2024-02-29T12:34:56.789Z","d":"1.5s","n":90,"took":"00:01:02.5","bad":"soon","null":null,"zone":"Asia/Tokyo"}"#,
        &[
            ("duration('90s') / duration('1m')", "1.5"),
            ("duration('90s') / 2", "\"45s\""),
            ("duration('1s') * 1.5", "\"1.5s\""),
            ("2 * duration('1s')", "\"2s\""),
            ("duration('1s') / 3", "\"0.333333333s\""),
            (
                "duration(d) / (duration(d) - duration('1.5s'))",
                "error: `duration(d) / (duration(d) - duration('1.5s'))`: division by zero",
            ),
            (
                "duration('100000d') * n",
                "error: `duration('100000d') * n`: the result does not fit into 64 bits",
            ),
            (
                "duration(d) * bad",
                "error: `duration(d) * bad`: `*` does not work on duration and string",
            ),
            ("duration(d) / duration('1ms')", "1500.0"),
            ("int(duration(d) / duration('1ms'))", "1500"),
            ("double(duration(d))", "1.5"),
            ("int(-duration(d))", "-1"),
            ("double(timestamp(ts))", "1709210096.789"),
            ("parseDuration(took) / duration('1ms')", "62500.0"),
            ("parseDuration('1h 30m')", "\"5400s\""),
            ("parseDuration('250 ms')", "\"0.25s\""),
            ("parseDuration('2 days')", "\"172800s\""),
            ("parseDuration('1.5 seconds')", "\"1.5s\""),
            ("parseDuration('PT1H30M')", "\"5400s\""),
            ("parseDuration('-PT1.5S')", "\"-1.5s\""),
            ("parseDuration('5 min')", "\"300s\""),
            (
                "parseDuration(bad)",
                "error: `parseDuration(bad)`: \"soon\" does not read as a duration such as 1h 30m, 01:30:00 or PT1H30M",
            ),
            (
                "parseDuration('1 month' + bad.substring(9))",
                "error: `parseDuration('1 month' + bad.substring(9))`: \"1 month\" does not read as a duration such as 1h 30m, 01:30:00 or PT1H30M",
            ),
            ("parseDuration(gone)", "absent"),
            ("epochMillis(ts)", "1709210096789"),
            ("epochMillis(timestamp('1969-12-31T23:59:59.9995Z'))", "-1"),
            ("epochMillis(1709210096789)", "\"2024-02-29T12:34:56.789Z\""),
            (
                "epochMillis(bad)",
                "error: `epochMillis(bad)`: \"soon\" does not read as an RFC 3339 timestamp",
            ),
            (
                "formatTime(ts, 'EEE, dd MMM yyyy hh:mm a ZZ')",
                "\"Thu, 29 Feb 2024 12:34 PM +00:00\"",
            ),
            (
                "formatTime(ts, \"yyyy-MM-dd'T'HH:mm:ss.SSSSSSZ\", 'America/New_York')",
                "\"2024-02-29T07:34:56.789000-0500\"",
            ),
            (
                "formatTime(ts, 'EEEE MMMM ZZZ z', 'Europe/Berlin')",
                "\"Thursday February Europe/Berlin CET\"",
            ),
            ("formatTime(ts, '%s %j %3f')", "\"1709210096 060 789\""),
            ("formatTime(ts, 'HH', zone)", "\"21\""),
            ("formatTime(ts, 'hh a', '-12:34')", "\"12 AM\""),
            ("formatTime(now(), 'yyyyMMdd')", "\"20240301\""),
            ("formatTime(gone, 'yyyy')", "absent"),
            (
                "formatTime(bad, 'yyyy')",
                "error: `formatTime(bad, 'yyyy')`: \"soon\" does not read as an RFC 3339 timestamp",
            ),
            (
                "formatTime(n, 'yyyy')",
                "error: `formatTime(n, 'yyyy')`: needs a timestamp, got int",
            ),
        ],
    );
    let error = Expr::parse("duration('1s') / 0.0").expect_err("division by zero");
    assert_eq!(error.message, "division by zero");
}

#[test]
fn structured_texts() {
    check(
        r#"{"j":" {\"a\":1.50,\"a\":2,\"b\":[true,null]} ","kv":"level=warn msg=\"a b=c\" path='/x y' flag n= q=\"it \\\"is\\\"\"","bad":"{","null":null,"n":5}"#,
        &[
            ("parseJson(j)", "{\"a\":2,\"b\":[true,null]}"),
            ("parseJson(j).b[0]", "true"),
            ("parseJson('1.50')", "1.50"),
            ("parseJson('\"a\\\\u0041\"')", "\"aA\""),
            (
                "parseJson(bad)",
                "error: `parseJson(bad)`: \"{\" does not read as JSON",
            ),
            ("parseJson(gone)", "absent"),
            (
                "parseJson(n)",
                "error: `parseJson(n)`: needs a text, got int",
            ),
            (
                "toJson(j.trim())",
                r#""\"{\\\"a\\\":1.50,\\\"a\\\":2,\\\"b\\\":[true,null]}\"""#,
            ),
            ("toJson([n, gone, duration('1s')])", r#""[5,null,\"1s\"]""#),
            ("toJson(gone)", "absent"),
            ("toJson(null)", "null"),
            (
                "parseKv(kv)",
                r#"{"level":"warn","msg":"a b=c","path":"/x y","n":"","q":"it \"is\""}"#,
            ),
            ("parseKv('a=1&b=2&a=3&c', '&')", r#"{"b":"2","a":"3"}"#),
            (
                "parseKv('a: 1, b: \"x, y\" , c:', ',', ':')",
                r#"{"a":"1","b":"x, y","c":""}"#,
            ),
            ("parseKv('=x a=b=c \"')", r#"{"a":"b=c"}"#),
            ("parseKv('a=\"open b=1')", r#"{"a":"\"open","b":"1"}"#),
            ("parseKv('')", "{}"),
            (
                "parseKv(kv, gone)",
                "error: `parseKv(kv, gone)`: needs a text, got an absent field",
            ),
        ],
    );
}

#[test]
fn encodings_and_urls() {
    check(
        r#"{"u":"https://ann:pw@[2001:db8::1]:8080/a/b%20c?x=1&y=2#top","b":"w6Q=","bad":"a b","null":null,"n":5}"#,
        &[
            ("base64.decode(b)", "\"ä\""),
            ("base64.encode(base64.decode(b)) == b", "true"),
            ("base64.encode('')", "\"\""),
            (
                "base64.decode(bad)",
                "error: `base64.decode(bad)`: \"a b\" does not read as base64",
            ),
            (
                "base64.decode(b.replace('=', ''))",
                "error: `base64.decode(b.replace('=', ''))`: \"w6Q\" does not read as base64",
            ),
            (
                "base64.decode('/w=='+ bad.substring(9))",
                "error: `base64.decode('/w=='+ bad.substring(9))`: the decoded bytes are not UTF-8",
            ),
            ("base64.decode(gone)", "absent"),
            (
                "base64.encode(n)",
                "error: `base64.encode(n)`: needs a text, got int",
            ),
            ("hex('ä')", "\"c3a4\""),
            ("url.encode('a-b_c.d~e&f=g')", "\"a-b_c.d~e%26f%3Dg\""),
            ("url.decode('100%25+%zz')", "\"100%+%zz\""),
            (
                "url.decode('%ff' + bad.substring(9))",
                "error: `url.decode('%ff' + bad.substring(9))`: the decoded bytes are not UTF-8",
            ),
            (
                "url.parse(u)",
                r#"{"scheme":"https","username":"ann","password":"pw","domain":"2001:db8::1","port":8080,"path":"/a/b%20c","query":"x=1&y=2","fragment":"top"}"#,
            ),
            (
                "url.parse('http://example.com')",
                r#"{"scheme":"http","domain":"example.com"}"#,
            ),
            (
                "url.parse('/index.html?q=a?b')",
                r#"{"path":"/index.html","query":"q=a?b"}"#,
            ),
            (
                "url.parse('//cdn.example/x')",
                r#"{"domain":"cdn.example","path":"/x"}"#,
            ),
            (
                "url.parse('mailto:a@b.c')",
                r#"{"scheme":"mailto","path":"a@b.c"}"#,
            ),
            ("url.parse(gone).domain", "absent"),
            ("parseKv(url.parse(u).query, '&').y", "\"2\""),
        ],
    );
    let error = Expr::parse("url.parse('http://a:99999/')").expect_err("a port");
    assert_eq!(
        error.message,
        "the value does not read as a URL, whose port is a number"
    );
}

#[test]
fn hashes_are_the_published_ones() {
    check(
        r#"{"n":5,"l":["a"],"null":null}"#,
        &[
            (
                "sha256('')",
                "\"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855\"",
            ),
            (
                "sha512('abc')",
                "\"ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a2192992a274fc1a836ba3c23a3feebbd454d4423643ce80e2a9ac94fa54ca49f\"",
            ),
            ("md5('')", "\"d41d8cd98f00b204e9800998ecf8427e\""),
            ("xxh3('')", "\"2d06800538d394c2\""),
            ("sha1(n) == sha1('5') && md5(l) == md5('[\"a\"]')", "true"),
            ("sha256(gone)", "absent"),
            ("sha256(null)", "null"),
            // RFC 4231, case 2; RFC 2202, case 2.
            (
                "hmac('what do ya want for nothing?', 'Jefe')",
                "\"5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843\"",
            ),
            (
                "hmac('what do ya want for nothing?', 'Jefe', 'sha1')",
                "\"effcdf6ae5eb2fa2d27416d5f184df9c259a7c79\"",
            ),
            (
                "hmac('a', gone)",
                "error: `hmac('a', gone)`: needs a text, got an absent field",
            ),
        ],
    );
    let error = Expr::parse("hmac('a', 'k', 'sha3')").expect_err("an unknown algorithm");
    assert_eq!(
        error.message,
        "the algorithm is sha256, sha512, sha1 or md5"
    );
}

#[test]
fn addresses() {
    check(
        r#"{"v4":"10.1.2.3","v6":"2001:db8::1","mapped":"::ffff:10.1.2.3","bad":"db.internal","net":"10.1.0.0/16","null":null,"nets":["127.0.0.0/8","10.0.0.0/8"]}"#,
        &[
            ("ip.inCidr(v4, '10.0.0.0/8')", "true"),
            ("ip.inCidr(v4, '10.1.2.3')", "true"),
            ("ip.inCidr(v4, '0.0.0.0/0')", "true"),
            ("ip.inCidr(v6, '0.0.0.0/0')", "false"),
            ("ip.inCidr(v6, '2001:db8::/32')", "true"),
            ("ip.inCidr(mapped, '10.0.0.0/8')", "true"),
            ("ip.inCidr(v4, '::ffff:10.0.0.0/104')", "true"),
            ("ip.inCidr(v4, net)", "true"),
            ("ip.inCidr(v4, nets)", "true"),
            ("ip.inCidr(v4, ['192.168.0.0/16', v6])", "false"),
            (
                "ip.inCidr(bad, '10.0.0.0/8')",
                "error: `ip.inCidr(bad, '10.0.0.0/8')`: \"db.internal\" does not read as an IP address",
            ),
            (
                "ip.inCidr(v4, bad)",
                "error: `ip.inCidr(v4, bad)`: the value does not read as a network such as 10.0.0.0/8",
            ),
            ("ip.inCidr(gone, '10.0.0.0/8')", "absent"),
            (
                "ip.isPrivate(v4) && ip.isPrivate(mapped) && ip.isPrivate(v6)",
                "true",
            ),
            (
                "['127.0.0.1', '169.254.1.1', '172.31.0.1', '192.168.1.1', '100.64.0.1', '::1', 'fd00::1', 'fe80::1'].all(a, ip.isPrivate(a))",
                "true",
            ),
            (
                "['172.32.0.1', '100.128.0.1', '8.8.8.8', '2a00::1', '192.169.0.1'].exists(a, ip.isPrivate(a))",
                "false",
            ),
            (
                "ip.isPrivate(bad)",
                "error: `ip.isPrivate(bad)`: \"db.internal\" does not read as an IP address",
            ),
            ("!ip.isPrivate(gone)", "true"),
        ],
    );
}

#[test]
fn defaults_and_surroundings() {
    check(
        r#"{"a":"x","null":null,"f":false,"w":"word"}"#,
        &[
            ("gone ?? 'd'", "\"d\""),
            ("null ?? 'd'", "\"d\""),
            ("f ?? true", "false"),
            ("gone ?? null ?? a ?? 'd'", "\"x\""),
            ("gone ?? other", "absent"),
            ("gone ?? null", "null"),
            ("gone ?? 1 + 1 == 2", "true"),
            (
                "int(w) ?? 0",
                "error: `int(w)`: \"word\" does not read as a number",
            ),
            ("a ?? int(w)", "\"x\""),
            ("coalesce(gone, null, a, int(w))", "\"x\""),
            ("coalesce(gone)", "absent"),
            ("host()", "\"test\""),
            ("host() == @metadata.host.name", "true"),
            ("env('MILLPOND_NEVER_SET', 'dev')", "\"dev\""),
            ("env('MILLPOND_NEVER_SET', null) ?? 'dev'", "\"dev\""),
            ("size(env('PATH')) > 0", "true"),
        ],
    );
}

/// A float beyond 64 bits would leave as null.
#[test]
fn what_is_beyond_a_float_is_an_error() {
    let overflow = |text: &str| format!("error: `{text}`: the result does not fit into 64 bits");
    for text in [
        "-huge",
        "huge * 1",
        "huge - huge",
        "double(huge)",
        "double(text)",
        "int(huge)",
        "math.round(huge)",
        "math.abs(huge)",
        "'%f'.format([huge])",
        "duration('1s') * huge",
        "1e308 * ten",
        "parseBytes('1e300' + 'TB' + none)",
    ] {
        let expected = overflow(text);
        let expected = match text.starts_with("parseBytes") {
            true => format!(
                "error: `{text}`: \"1e300TB\" does not read as a number of bytes such as 512, 10KB or 1.5MiB"
            ),
            false => expected,
        };
        check(
            r#"{"huge":1e400,"text":"1e400","ten":10,"none":""}"#,
            &[(text, &expected)],
        );
    }
    check(
        r#"{"huge":1e400}"#,
        &[
            ("huge", "1e400"),
            ("huge > 1e300", "true"),
            ("string(huge)", "\"1e400\""),
        ],
    );
}
