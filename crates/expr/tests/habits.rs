//! The functions on what people and programs write: defaults for what fails, numbers with units, addresses and URLs of all kinds.

mod common;

use common::check;
use expr::Expr;

#[test]
fn a_default_for_what_fails() {
    check(
        r#"{"s":"abc","n":"7","null":null,"l":[1,"x"]}"#,
        &[
            ("try(int(s), 0)", "0"),
            ("try(int(n), 0)", "7"),
            ("try(int(gone), 0)", "0"),
            ("try(int(null), 0)", "0"),
            ("try(int(s), gone)", "absent"),
            ("try(int(s), double(s), 'none')", "\"none\""),
            (
                "try(int(s), int(s) + 1)",
                "error: `int(s)`: \"abc\" does not read as a number",
            ),
            ("int(s).try(0)", "0"),
            ("try(s + 1, 'joined')", "\"joined\""),
            ("l.map(x, try(int(x), -1))", "[1,-1]"),
            ("try(int(s), 5) > 4 && s == 'abc'", "true"),
            ("try(int('abc'), 0)", "0"),
            ("try(1 / 0, 2)", "2"),
        ],
    );
}

#[test]
fn numbers_sizes_and_spans_as_people_write_them() {
    check(
        r#"{"n":2048,"f":1.5,"blank":" 7 ","hex":"0x1F","d":"1,500 ms","long":"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"}"#,
        &[
            ("int(hex) + int('+5') + int('-0x10')", "20"),
            ("double('0x10')", "16.0"),
            ("int(blank)", "7"),
            ("blank > 5 && blank == 7 && blank in [7]", "true"),
            ("parseBytes(n)", "2048"),
            ("parseBytes('12Ki') + parseBytes('12 bytes')", "12300"),
            ("parseBytes('10kb')", "10000"),
            ("parseDuration('5μs') / duration('1µs')", "5.0"),
            ("parseDuration('1 h, 2 m')", "\"3720s\""),
            (
                "parseBytes(f)",
                "error: `parseBytes(f)`: needs a text or a whole number, got double",
            ),
            (
                "parseBytes('12Mb' + blank.trim().substring(1))",
                "error: `parseBytes('12Mb' + blank.trim().substring(1))`: \"12Mb\" does not read as a number of bytes: a small b behind a capital letter stands for bits",
            ),
            (
                "parseDuration(f)",
                "error: `parseDuration(f)`: needs a text with a unit such as \"1.5s\" (a number of seconds is `x * duration(\"1s\")`), got double",
            ),
            (
                "parseDuration(d)",
                "error: `parseDuration(d)`: \"1,500 ms\" does not read as a duration such as 1h 30m, 01:30:00 or PT1H30M",
            ),
            (
                "int(long)",
                "error: `int(long)`: \"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\"… does not read as a number",
            ),
        ],
    );
    for text in [
        "parseDuration('5m ago')",
        "parseDuration('1,2 m')",
        "parseBytes('12Gb')",
        "int('+-5')",
        "int('0x')",
    ] {
        let error = Expr::parse(text).expect_err(text);
        assert!(
            error.message.contains("does not read as"),
            "{text}: {error}"
        );
    }
}

#[test]
fn times_at_their_limits() {
    for (text, message) in [
        (
            "timestamp('9999-12-31T23:59:59Z')",
            "out of range, which is 1677",
        ),
        (
            "timestamp(1709210096789)",
            "`epochMillis(…)` takes milliseconds",
        ),
        ("epochMillis(9999999999999999)", "out of range"),
        (
            "timestamp('9999')",
            "does not read as an RFC 3339 timestamp",
        ),
    ] {
        let error = Expr::parse(text).expect_err(text);
        assert!(error.message.contains(message), "{text}: {error}");
    }
}

#[test]
fn addresses_that_are_not_from_the_public_internet() {
    for address in [
        "255.255.255.255",
        "224.0.0.1",
        "240.0.0.1",
        "192.0.2.1",
        "198.18.0.1",
        "203.0.113.9",
        "0.1.2.3",
        "192.0.0.8",
        "2001:db8::1",
        "ff02::1",
        "100::1",
        "2001:2::1",
        "3fff::1",
        "5f00::1",
        "::",
        "64:ff9b:1::1",
    ] {
        check("{}", &[(&format!("ip.isPrivate('{address}')"), "true")]);
    }
    for address in [
        "1.1.1.1",
        "192.0.0.9",
        "192.0.1.1",
        "198.20.0.1",
        "223.255.255.255",
        "2001:1::1",
        "2001:4860:4860::8888",
        "2001:20::1",
        "64:ff9b::808:808",
        "2a00::1",
    ] {
        check("{}", &[(&format!("ip.isPrivate('{address}')"), "false")]);
    }
    check(
        r#"{"list":["10.0.0.1","8.8.8.8"],"blank":" 81.2.69.142 ","no":"x","none":[]}"#,
        &[
            ("ip.isPrivate(list)", "true"),
            ("ip.inCidr(blank, '81.2.69.0/24')", "true"),
            (
                "ip.isValid(list) && ip.isValid(blank) && ip.isValid('::1')",
                "true",
            ),
            (
                "ip.isValid(no) || ip.isValid(gone) || ip.isValid(none) || ip.isValid(5)",
                "false",
            ),
            (
                "ip.inCidr(none, '10.0.0.0/8')",
                "error: `ip.inCidr(none, '10.0.0.0/8')`: the list of addresses is empty",
            ),
        ],
    );
}

#[test]
fn what_is_no_url() {
    check(
        r#"{"u":"not a url","p":"example.com:8080/a","rel":"index.html"}"#,
        &[
            ("try(url.parse(u).domain, 'none')", "\"none\""),
            (
                "try(url.parse(p).domain, url.parse(rel).path, 'none')",
                "\"none\"",
            ),
            (
                "url.parse('urn:isbn:1')",
                r#"{"scheme":"urn","path":"isbn:1"}"#,
            ),
            ("url.parse('*').path", "\"*\""),
            ("url.parse('/a b').path", "\"/a b\""),
            (
                "url.parse(u)",
                "error: `url.parse(u)`: \"not a url\" does not read as a URL: it begins with a scheme, as in `https://example.com/a`, or with `/`",
            ),
        ],
    );
}
