use proptest::prelude::*;

use super::*;
use crate::testing::{
    batch_of, build, build_error, build_yaml, check, check_errors, lines_of, process, process_rows,
    run, text_batch,
};

/// What becomes of a text with presets and no other settings.
fn masked(presets: &str, text: &str) -> String {
    let mut processor = build(&SPEC, &format!("redact presets=[{presets}]")).expect(presets);
    let mut batch = text_batch([text]);
    process(processor.as_mut(), &mut batch);
    let event: serde_json::Value = serde_json::from_str(&lines_of(&batch)[0]).expect("an object");
    event["message"].as_str().expect("a text").to_owned()
}

/// Each text is a secret, wherever it stands.
fn all_found(preset: &str, secrets: &[&str]) {
    const AROUND: [(&str, &str); 14] = [
        ("", ""),
        ("a ", " z"),
        ("\"", "\""),
        ("(", ")"),
        ("key=", "&b=1"),
        ("key=", ";"),
        ("[", "], x"),
        ("<", ">"),
        ("kept_", "_z"),
        ("日本", "語"),
        ("q%3D", "%26r"),
        ("line\\n", "\\nnext"),
        ("\x1b[31m", "\x1b[0m"),
        ("ends ", ". Next"),
    ];
    for secret in secrets {
        for (before, behind) in AROUND {
            // `_`, letters of other scripts, encoded bytes and what looks like them may be part of these.
            let extends = match preset {
                "email" => !before.is_empty() && !before.ends_with([' ', '"', '(', '[', '<', '=']),
                "ip" => before == "q%3D" && secret.find(':').is_some_and(|colon| colon < 3),
                "card" | "iban" => false,
                _ => behind == "_z",
            };
            if extends {
                continue;
            }
            let text = format!("{before}{secret}{behind}");
            let expected = format!("{before}***{behind}");
            assert_eq!(masked(preset, &text), expected, "{text}");
        }
    }
}

fn none_found(preset: &str, texts: &[&str]) {
    for text in texts {
        assert_eq!(masked(preset, text), *text);
    }
}

#[test]
fn cards_are_found_in_many_forms() {
    all_found(
        "card",
        &[
            "4111111111111111",
            "4111 1111 1111 1111",
            "4111-1111-1111-1111",
            "4111.1111.1111.1111",
            "4111+1111+1111+1111",
            "4111%201111%201111%201111",
            "4111\u{a0}1111\u{a0}1111\u{a0}1111",
            "4111 - 1111 - 1111 - 1111",
            "4111 1111-1111 1111",
            "4111 11111111 1111",
            "4222222222222",
            "4917610000000000003",
            "5105105105105100",
            "5555 5555 5555 4444",
            "2223003122003222",
            "378282246310005",
            "3782 822463 10005",
            "30569309025904",
            "3056 930902 5904",
            "6011111111111117",
            "3530111333300000",
            "6200000000000005",
            "2200000000000004",
            "6759649826438453",
            "5018000000000009",
        ],
    );
}

#[test]
fn numbers_that_are_no_cards_stay() {
    none_found(
        "card",
        &[
            "4111111111111112",
            "41111111111111111",
            "14111111111111111",
            "x4111111111111111",
            "4111111111111111x",
            "0.4111111111111111",
            "4111111111111111.25",
            "411111111111",
            "1732717652123456",
            "1234567812345670",
            "2026-11-27 14:27:32.123456",
            "41 11 11 11 11 11 11 11",
            "4111.11111111.1111",
            "550e8400-e29b-41d4-a716-446655440000",
            "550e8400-e29b-41d4-a716-501800000009",
            "501800000009-e29b",
            "41111111-1111-1111",
            "4111 111111 111111",
            "4111-111111111111",
            "1234 4111 1111 1111 1111",
            "4111 1111 1111 1111 5678",
            "1 22 333 4111 1111 1111 1111",
            "abcd-4111-1111-1111-1111",
            "",
            "4",
            "4111",
            "4111 ",
            "4111%",
        ],
    );
}

#[test]
fn cards_between_other_numbers_are_found() {
    for (text, expected) in [
        ("12345 4111 1111 1111 1111 2027", "12345 *** 2027"),
        ("4111111111111111 123", "*** 123"),
        ("4111111111111111,5105105105105100", "***,***"),
        ("1 4111111111111111 2 378282246310005", "1 *** 2 ***"),
        (";4111111111111111=2512101?", ";***=2512101?"),
        ("%B4111111111111111^DOE/J^2512", "%B***^DOE/J^2512"),
        ("50%4111111111111111", "50%***"),
        ("id 2026-4111111111111111-0042", "id 2026-***-0042"),
        ("card-4111-1111-1111-1111", "card-***"),
        ("4111-1111-1111-1111-2027 123", "***-2027 123"),
        ("20.00 4111 1111 1111 1111 2027", "20.00 *** 2027"),
        ("[4111 1111 1111 1111] 1234 5678", "[***] 1234 5678"),
        ("12:30:00 4111 1111 1111 1111", "12:30:00 ***"),
    ] {
        assert_eq!(masked("card", text), expected);
    }
}

#[test]
fn ibans_are_found_in_many_forms() {
    all_found(
        "iban",
        &[
            "DE89370400440532013000",
            "DE89 3704 0044 0532 0130 00",
            "de89 3704 0044 0532 0130 00",
            "de89370400440532013000",
            "De89-3704-0044-0532-0130-00",
            "DE89+3704+0044+0532+0130+00",
            "DE89%203704%200044%200532%200130%2000",
            "DE89\u{a0}3704\u{a0}0044\u{a0}0532\u{a0}0130\u{a0}00",
            "GB29NWBK60161331926819",
            "GB29 NWBK 6016 1331 9268 19",
            "FR14 2004 1010 0505 0001 3M02 606",
            "FR14 20041 01005 0500013M026 06",
            "NO9386011117947",
            "MT84MALT011000012345MTLCAST001S",
            "LC55HEMM000100010012001200023015",
            "SC18SSCB11010000000000001497USD",
            "CH9300762011623852957",
            "NL91 ABNA 0417 1643 00",
            "PL61109010140000071219812874",
        ],
    );
    none_found(
        "iban",
        &[
            "DE89370400440532013001",
            "DE893704004405320130001",
            "XDE89370400440532013000",
            "ZZ89370400440532013000",
            "DE8937040044053201300",
            "DE89",
            "de12 is not an account number of anybody",
            "D",
            "DE",
        ],
    );
    assert_eq!(
        masked("iban", "IBAN: DE89 3704 0044 0532 0130 00 BIC COBADEFFXXX"),
        "IBAN: *** BIC COBADEFFXXX"
    );
}

#[test]
fn addresses_of_hosts_are_found_in_many_forms() {
    all_found(
        "ip",
        &[
            "192.0.2.1",
            "255.255.255.255",
            "10.0.0.1",
            "010.001.002.003",
            "2001:db8::1",
            "2001:DB8::A:B",
            "2001:0db8:0000:0000:0000:ff00:0042:8329",
            "::1",
            "fe80::1",
            "2001:db8::",
            "::ffff:192.0.2.128",
            "::ffff:c000:280",
            "64:ff9b::192.0.2.33",
            "0:0:0:0:0:ffff:192.0.2.1",
            "1:2:3:4:5:6:7::",
        ],
    );
    for (text, expected) in [
        ("192.0.2.1:8080", "***:8080"),
        ("10.0.0.0/8", "***/8"),
        ("http://10.0.0.1/x", "http://***/x"),
        ("[2001:db8::1]:443", "[***]:443"),
        ("fe80::1%eth0", "***%eth0"),
        ("from fe80::1: timeout", "from ***: timeout"),
        ("src:2001:db8::1,", "src:***,"),
        ("inside/10.1.2.3", "inside/***"),
        ("fe80::1:eth0", "***:eth0"),
        ("1.0.0.10.in-addr.arpa", "***.in-addr.arpa"),
        ("10.0.0.1, 10.0.0.2", "***, ***"),
    ] {
        assert_eq!(masked("ip", text), expected);
    }
    none_found(
        "ip",
        &[
            "256.1.1.1",
            "1.2.3",
            "1.2.3.4.5",
            "1.3.6.1.4.1.311",
            "Chrome/120.0.0.0 Safari/537.36",
            "12:00:00",
            "01/May/2026:12:00:00 +0000",
            "00:11:22:33:44:55",
            "std::vec::Vec",
            "Foo::add(1)",
            "::",
            "1:2:3:4:5:6:7:8:9:10:11",
            "aa:bb:cc:dd:ee:ff:00:11:22:33:44:55:66:77:88:99",
            "a:b",
            ":",
            "x1.2.3.4",
            "1.2.3.4x",
        ],
    );
}

#[test]
fn emails_are_found_in_many_forms() {
    all_found(
        "email",
        &[
            "joe@example.com",
            "Joe.Doe+tag@mail.example.co.uk",
            "o'brien@example.ie",
            "jörg@bücher.example",
            "a_b-c@x-y.museum",
            "joe%40example.com",
            "joe%2Btag%40example.com",
            "1@example.org",
        ],
    );
    for (text, expected) in [
        ("'joe@example.com'", "'***'"),
        ("\"joe doe\"@example.com!", "***!"),
        ("mailto:joe@example.com?subject=x", "mailto:***?subject=x"),
        ("a@x.de,b@y.de;c@z.de", "***,***;***"),
        ("4111111111111111@example.com", "***"),
        ("joe@example.com.", "***."),
        ("joe@example.com.png", "***.png"),
        ("git@github.com:a/b", "***:a/b"),
        ("joe@example.com-", "***-"),
    ] {
        assert_eq!(masked("email, card", text), expected);
    }
    none_found(
        "email",
        &[
            "@",
            "a@",
            "@b.de",
            "a@b",
            "a@b.c",
            "user@localhost",
            "lodash@4.17.21",
            "icon@2x.png",
            "getty@tty1.service",
            "joe@192.0.2.1",
            "%40",
            "a b @ c.de",
            "\"@example.com",
        ],
    );
}

#[test]
fn tokens_are_found() {
    let long =
        "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8s9T0u1V2w3X4y5Z6a7B8c9D0e1F2g3H4i5J6k7L8m9N0o1P2";
    let first = |len: usize| &long[..len];
    for (preset, prefix, len) in [
        ("github", "ghp_", 36),
        ("github", "gho_", 40),
        ("github", "ghs_", 80),
        ("github", "github_pat_", 82),
        ("gitlab", "glpat-", 20),
        ("google", "AIza", 35),
        ("google", "GOCSPX-", 28),
        ("google", "ya29.", 60),
        ("slack", "xoxb-123456789012-", 24),
        ("slack", "xoxe-1-", 60),
        ("slack", "xapp-1-A012-", 40),
        ("slack", "hooks.slack.com/services/T0/B0/", 24),
        ("stripe", "sk_live_", 24),
        ("stripe", "whsec_", 32),
        ("api_key", "npm_", 36),
        ("api_key", "sk-ant-api03-", 60),
        ("api_key", "sk-", 48),
        ("api_key", "SG.", 66),
        ("api_key", "hf_", 34),
    ] {
        all_found(preset, &[&format!("{prefix}{}", first(len))]);
        none_found(
            preset,
            &[
                &format!("x{prefix}{}", first(len)),
                &prefix[..4.min(prefix.len())],
                &format!("{}abc", &prefix[..4.min(prefix.len())]),
            ],
        );
    }
    let rotated = format!("xoxe.xoxp-1-{}", first(60));
    all_found("slack", &[&rotated]);
    all_found("aws", &["AKIAIOSFODNN7EXAMPLE", "ASIAIOSFODNN7EXAMPLE"]);
    none_found(
        "aws",
        &[
            "AKIAIOSFODNN7",
            "XAKIAIOSFODNN7EXAMPLE",
            "AKIAIOSFODNN7EXAMPLEx",
        ],
    );
}

#[test]
fn secrets_behind_their_names_are_found() {
    let aws = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";
    let azure = format!("{}==", "Ab1+/z9".repeat(13).get(..86).expect("long enough"));
    for (preset, before, secret, behind) in [
        ("aws", "aws_secret_access_key = ", aws, "\nregion"),
        ("aws", "AWS_SECRET_ACCESS_KEY=", aws, ""),
        ("aws", "{\"SecretAccessKey\": \"", aws, "\"}"),
        ("aws", "awsSecretKey: '", aws, "'"),
        ("azure", "AccountName=x;AccountKey=", &azure, ";Suffix=y"),
        ("azure", "key ", &azure, " end"),
        ("azure", "k%3D", &azure, ""),
        (
            "azure",
            "?sv=2024&sig=",
            "abcdefghijklmnopqrstuvwxyz0123456789abcdefg%3D",
            "&se=1",
        ),
        ("url_password", "https://joe:", "s3cr:e@t", "@example.com/x"),
        ("url_password", "postgres://u:", "p", "@db"),
        // JSON within the text, which may write `/` so.
        ("url_password", r"http:\/\/u:", "s3cret", r"@h\/"),
        (
            "slack",
            r#""url":"https:\/\/"#,
            r"hooks.slack.com\/services\/T0\/B0\/abcdefghijklmnopqrst",
            "\"}",
        ),
        (
            "aws",
            r#"{"AWS_SECRET_ACCESS_KEY":""#,
            &aws.replace('/', r"\/"),
            "\"}",
        ),
        (
            "azure",
            "AccountKey=",
            &azure.replace('/', r"\/"),
            ";Suffix=y",
        ),
        ("azure", "key ", &azure.replace('/', r"\/"), " end"),
        (
            "stripe",
            "",
            &format!("whsec_{}", r"Ab1+\/z9".repeat(6)),
            "\"",
        ),
    ] {
        let text = format!("{before}{secret}{behind}");
        assert_eq!(
            masked(preset, &text),
            format!("{before}***{behind}"),
            "{text}"
        );
    }
    none_found("aws", &["secret_key=short", "the secret key is here"]);
    none_found("azure", &["a==b", "sig=abc", "=", "=="]);
    none_found(
        "url_password",
        &[
            "https://example.com:80/a@b",
            "https://joe@example.com/",
            "://:@",
        ],
    );
    assert_eq!(
        masked("url_password, email", "https://joe:pw@example.com/"),
        "https://joe:***@example.com/"
    );
}

#[test]
fn web_tokens_and_private_keys_are_found() {
    let header = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9";
    let payload = "eyJzdWIiOiIxMjM0NTY3ODkwIn0";
    all_found(
        "jwt",
        &[
            &format!("{header}.{payload}.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U"),
            &format!("{header}.{payload}"),
            &format!(
                "{header}..48V1_ALb6US04U3b.5eym8TW_c8SuK0ltJ3rpYIzOeDQz7TALvtu6UG9oMo4vpzs9tX_EFShS8iB7j6ji.XFBoMYUZodetZdvTiFvSkQ"
            ),
        ],
    );
    none_found(
        "jwt",
        &[
            "eyJ",
            "eyJhbGci",
            header,
            "eyJ.a.b",
            &format!("x{header}.{payload}.abc"),
        ],
    );
    let key = "-----BEGIN RSA PRIVATE KEY-----\nMIIEow\nabc=\n-----END RSA PRIVATE KEY-----";
    all_found("private_key", &[key]);
    assert_eq!(
        masked("private_key", "x -----BEGIN PRIVATE KEY-----\nMIIE"),
        "x ***"
    );
    none_found(
        "private_key",
        &[
            "-----BEGIN CERTIFICATE-----\nMIIE\n-----END CERTIFICATE-----",
            "BEGIN",
        ],
    );
}

#[test]
fn documents_are_looked_through() {
    check(
        &SPEC,
        &[
            (
                "redact presets=card",
                r#"{"a":{"b":["x 4111111111111111",{"c":["5105105105105100 y"]}]},"n":4111111111111111}"#,
                r#"{"a":{"b":["x ***",{"c":["*** y"]}]},"n":4111111111111111}"#,
            ),
            (
                "redact presets=email",
                r#"{"a":"say \"hi\" to\njoe@example.com\ttoday","b":"joe\u0040example.com"}"#,
                r#"{"a":"say \"hi\" to\n***\ttoday","b":"***"}"#,
            ),
            (
                "redact a.b, c presets=email",
                r#"{"a":{"b":"a@x.de","c":"a@x.de"},"c":["b@x.de"],"d":"a@x.de"}"#,
                r#"{"a":{"b":"***","c":"a@x.de"},"c":["***"],"d":"a@x.de"}"#,
            ),
            (
                "redact",
                r#"{"joe@example.com":1,"@timestamp":"2026-05-01T12:00:00Z","tags":["a@x.de"]}"#,
                r#"{"joe@example.com":1,"@timestamp":"2026-05-01T12:00:00Z","tags":["***"]}"#,
            ),
            (
                r#"redact message presets=[] mask="\"q\"" patterns=["\\d+"]"#,
                r#"{"message":"a 12 b 34"}"#,
                r#"{"message":"a \"q\" b \"q\""}"#,
            ),
            ("redact", r#"{"ip":"192.0.2.1"}"#, r#"{"ip":"192.0.2.1"}"#),
            (
                "redact presets=all",
                r#"{"ip":"192.0.2.1"}"#,
                r#"{"ip":"***"}"#,
            ),
            ("redact absent", r#"{"a":"a@x.de"}"#, r#"{"a":"a@x.de"}"#),
        ],
    );
}

#[test]
fn a_field_is_found_in_all_spellings_with_dots() {
    for (fields, event, expected) in [
        (
            "user.mail",
            r#"{"user":{"mail":"joe@example.com"},"user.mail":"ann@example.com"}"#,
            r#"{"user":{"mail":"***"},"user.mail":"***"}"#,
        ),
        (
            "user",
            r#"{"user.mail":"joe@example.com","user":["ann@example.com"],"users":"eve@example.com"}"#,
            r#"{"user.mail":"***","user":["***"],"users":"eve@example.com"}"#,
        ),
        (
            "a.b",
            r#"{"a.b.c":"joe@example.com","a":{"b.c":"ann@example.com","bc":"eve@example.com"}}"#,
            r#"{"a.b.c":"***","a":{"b.c":"***","bc":"eve@example.com"}}"#,
        ),
        (
            "a.b.c, x",
            r#"{"a.b":{"c":"joe@example.com","d":"eve@example.com"},"a":{"b.c":{"d":["ann@example.com"]},"b":"eve@example.com"},"x":"joe@example.com","a.y":1}"#,
            r#"{"a.b":{"c":"***","d":"eve@example.com"},"a":{"b.c":{"d":["***"]},"b":"eve@example.com"},"x":"***","a.y":1}"#,
        ),
        (
            "`a.b`",
            r#"{"a.b":"joe@example.com","a":{"b":"eve@example.com"}}"#,
            r#"{"a.b":"***","a":{"b":"eve@example.com"}}"#,
        ),
    ] {
        check(&SPEC, &[(&format!("redact {fields}"), event, expected)]);
    }
    // What was written behind the input, where it hides what the document has.
    let mut batch = batch_of([r#"{"a.b":"joe@example.com","a":{"c":"joe@example.com"}}"#]);
    let mut edit = batch::Edit::new();
    let text = |text: &str| batch::Column::constant_text(text.as_bytes(), 1);
    edit.set(FieldPath::from_keys(["a", "c"]), text("ann@example.com"));
    edit.set(FieldPath::from_keys(["b"]), text("eve@example.com"));
    batch.apply(edit);
    let mut processor = build(&SPEC, "redact a").expect("it builds");
    process(processor.as_mut(), &mut batch);
    assert_eq!(
        lines_of(&batch),
        [r#"{"a.b":"***","a":{"c":"***"},"b":"eve@example.com"}"#]
    );
    assert_eq!(processor.take_counters(), [("email", 2)]);
}

#[test]
fn what_is_written_can_be_chosen() {
    for (settings, event, result) in [
        ("keep=4", "4111 1111 1111 1111", "***1111"),
        ("keep=9", "4111111111111111", "***"),
        ("keep=8", "4111111111111111", "***11111111"),
        ("mask='' keep=2", "a@é.üöä", "öä"),
        ("mask='[x]'", "a@b.de", "[x]"),
        ("mask=''", "a@b.de!", "!"),
        ("action=hash", "4111-1111-1111-1111", "9bbef19476623ca5"),
        (
            "action=hash",
            "4111%201111%201111%201111",
            "9bbef19476623ca5",
        ),
        (
            "action=hmac key=k",
            "de89 3704 0044 0532 0130 00",
            "41fd5fe380f3c8e4",
        ),
        (
            "action=hmac key=k",
            "DE89370400440532013000",
            "41fd5fe380f3c8e4",
        ),
    ] {
        let stage = format!("redact a {settings}");
        let event = format!(r#"{{"a":"{event}"}}"#);
        assert_eq!(
            run(&SPEC, &stage, &event),
            [format!(r#"{{"a":"{result}"}}"#)],
            "{stage}"
        );
    }
    let both = run(
        &SPEC,
        "redact presets=ip action=hash",
        "{\"a\":\"2001:DB8::1\"}\n{\"a\":\"2001:db8:0:0::1\"}",
    );
    assert_eq!(both[0], both[1]);
}

#[test]
fn overlapping_secrets_are_replaced_together() {
    for (patterns, text, result) in [
        (r#"["abcd", "cdef"]"#, "xabcdefx", "x***x"),
        (r#"["cdef", "abcd"]"#, "xabcdefx", "x***x"),
        (r#"["abcdef", "cd"]"#, "abcdef", "***"),
        (r#"["ab", "cd"]"#, "abcd", "******"),
        (r#"["(a)b(c)?"]"#, "ab abc", "***b ***b***"),
        (r#"["é+"]"#, "caféé!", "caf***!"),
        (
            r#"["(?i)PASS=\\S+"]"#,
            "pass=x joe@example.com pass=joe@example.com",
            "*** *** ***",
        ),
    ] {
        let stage = format!("redact patterns={patterns}");
        let event = format!(r#"{{"a":"{text}"}}"#);
        assert_eq!(
            run(&SPEC, &stage, &event),
            [format!(r#"{{"a":"{result}"}}"#)],
            "{stage}"
        );
    }
}

#[test]
fn finds_are_counted_by_preset() {
    let mut redact = build(&SPEC, "redact presets=all patterns=[secret]").expect("it builds");
    let events = [
        r#"{"a":"4111111111111111 and 5105105105105100","b":"secret a@x.de"}"#,
        r#"{"a":"nothing"}"#,
        r#"{"a":"https://u:p@192.0.2.1/"}"#,
    ];
    process(redact.as_mut(), &mut batch_of(events));
    assert_eq!(
        redact.take_counters(),
        [
            ("card", 2),
            ("email", 1),
            ("ip", 1),
            ("url_password", 1),
            ("patterns", 1)
        ]
    );
    assert!(redact.take_counters().is_empty());
}

#[test]
fn other_rows_and_texts_without_secrets_stay_as_they_were_read() {
    for stage in ["redact presets=all", "redact message presets=all"] {
        let mut batch = text_batch(["nothing here", "from 192.0.2.1"]);
        let place = |batch: &Batch| {
            let column = batch.column(&FieldPath::from_keys(["message"]));
            match column.value(0) {
                batch::Value::Text(text) => (text.as_ptr(), text.len()),
                other => panic!("{other:?}"),
            }
        };
        let before = place(&batch);
        let mut redact = build(&SPEC, stage).expect(stage).fork();
        process_rows(
            redact.as_mut(),
            &mut batch,
            &Bitmap::from_fn(2, |row| row == 0),
        );
        assert_eq!(lines_of(&batch)[1], r#"{"message":"from 192.0.2.1"}"#);
        process(redact.as_mut(), &mut batch);
        assert_eq!(place(&batch), before);
        assert_eq!(lines_of(&batch)[1], r#"{"message":"from ***"}"#);
    }
}

#[test]
fn bad_settings_are_refused() {
    check_errors(
        &SPEC,
        &[
            ("redact presets=[]", "there is nothing to look for"),
            ("redact presets=[cards]", "cards"),
            (
                "redact patterns=['(']",
                "`(` is not a supported regular expression",
            ),
            ("redact patterns=['a*']", "matches an empty text"),
            ("redact action=hmac", "needs a key"),
            ("redact action=hmac key=''", "the key is empty"),
            (
                "redact action=hmac key=file:/nonexistent/key",
                "cannot read the secret",
            ),
            ("redact key=k", "`key` only applies to `action: hmac`"),
            (
                "redact action=hash keep=4",
                "`keep` only applies to `action: mask`",
            ),
            (
                "redact action=hash mask=x",
                "`mask` only applies to `action: mask`",
            ),
            ("redact a..b", "`a..b` is not a field name"),
            ("redact fields=[]", "name at least one field"),
        ],
    );
    assert!(build_yaml(&SPEC, "{ fields: [a], presets: [card, all], keep: 4 }").is_ok());
    assert!(!build_error(&SPEC, "redact key=topsecret").contains("topsecret"));
}

/// Parts of which texts with much to look at are made.
const PARTS: [&str; 28] = [
    "4111",
    "1111",
    "4111111111111111",
    " ",
    "-",
    ".",
    ":",
    "::",
    "@",
    "%40",
    "%20",
    "%",
    "\\n",
    "\\",
    "\"",
    "=",
    "a",
    "ex.de",
    "192.0.2.1",
    "2001:db8",
    "DE89",
    "370400440532013000",
    "AKIAIOSFODNN7EXAMPLE",
    "eyJ",
    "é",
    "\u{1b}[",
    "://",
    "-----BEGIN PRIVATE KEY-----",
];

proptest! {
    /// A document without secrets is told by its bytes alone only where none of its texts has one.
    #[test]
    fn documents_are_left_only_if_their_texts_are_free(
        texts in prop::collection::vec(prop::collection::vec(prop::sample::select(&PARTS[..]), 0..12), 1..4)
    ) {
        let texts: Vec<String> = texts.iter().map(|parts| parts.concat()).collect();
        let finder = SecretFinder::new(Preset::ALL.into_iter().collect(), Vec::new());
        let mut found = Vec::new();
        let mut any = false;
        for text in &texts {
            finder.find(text.as_bytes(), &mut found);
            any |= !found.is_empty();
            let mut last = 0;
            for secret in &found {
                prop_assert!(secret.start >= last && secret.start < secret.end && secret.end <= text.len());
                prop_assert!(text.is_char_boundary(secret.start) && text.is_char_boundary(secret.end));
                last = secret.end;
            }
        }
        let document = serde_json::to_string(&texts).expect("an array");
        let is_free = finder.is_free(document.as_bytes(), &mut found);
        prop_assert!(!(is_free && any), "{document}");
    }

    /// A card number is found between any texts that do not touch it with a letter, a digit, or a point and a digit.
    #[test]
    fn cards_do_not_hide(
        before in prop::collection::vec(prop::sample::select(&PARTS[..]), 0..8),
        behind in prop::collection::vec(prop::sample::select(&PARTS[..]), 0..8),
    ) {
        let text = format!("{} card: 4242424242424242, {}", before.concat(), behind.concat());
        prop_assert!(!masked("all", &text).contains("4242424242424242"), "{text}");
    }
}

#[test]
fn long_texts_take_linear_time() {
    let finder = SecretFinder::new(Preset::ALL.into_iter().collect(), Vec::new());
    let mut found = Vec::new();
    for part in PARTS.into_iter().chain([
        "a:",
        "eyJ-",
        "a@a",
        "a%40a",
        "4111 ",
        "1.",
        "://a:",
        "sk-",
        "secret_key=",
        "AKIA",
        "\"@a.de",
        "==",
        "de89 ",
        "%B4",
        "-----BEGIN ",
        "a.",
    ]) {
        let text = part.repeat(400_000 / part.len());
        let begin = std::time::Instant::now();
        finder.find(text.as_bytes(), &mut found);
        let elapsed = begin.elapsed();
        assert!(elapsed.as_secs() < 5, "{part}: {elapsed:?}");
    }
}
