//! What users of other tools write, and what Millpond says to it: nothing that cannot be meant runs.

use crate::program::{Ended, run_on};

const EVENT: &[u8] =
    br#"{"level":"DEBUG","message":"id 1234","host":"h","zip":"00123","user-agent":"curl","n":5}"#;

fn on_event(stage: &str) -> Ended {
    run_on(EVENT, &format!("stdin codec=json | {stage} | stdout"))
}

#[test]
fn what_cannot_be_meant_is_refused_and_the_right_form_named() {
    for (stage, parts) in [
        (
            "drop if=level==\"DEBUG\"",
            [
                "does not accept the setting `if`",
                "example: drop level == \"DEBUG\"",
            ],
        ),
        (
            "drop level = 'DEBUG'",
            ["`=` is not an operator", "did you mean `==`?"],
        ),
        (
            "drop",
            ["`drop` needs an expression", "every event: drop true"],
        ),
        (
            "rename zip -> int(http.code)",
            [
                "`int(http.code)` is not a field name",
                "to convert a value: set http.code = int(zip)",
            ],
        ),
        (
            "rename lower(host) -> name",
            [
                "`lower(host)` is not a field name",
                "to convert a value: set name = lower(host)",
            ],
        ),
        (
            "grok \"%{WORD:x}\" level",
            [
                "`level` is not a pattern",
                "to match another field write field=level",
            ],
        ),
        (
            "grok COMBINEDAPACHELOG",
            [
                "`COMBINEDAPACHELOG` is not a pattern",
                "%{COMBINEDAPACHELOG}",
            ],
        ),
        ("grok ''", ["this pattern is empty", "matches every text"]),
        (
            "dissect %{a} %{b}",
            ["`%{b}` is not a field name", "in quotes"],
        ),
        (
            "dissect '%{?x} %{+?x}'",
            ["`+` and `?` cannot be combined", "`%{?name}`"],
        ),
        (
            "json field=%{message}",
            [
                "`%{message}` is not a field name",
                "as it is called: message",
            ],
        ),
        (
            "date message iso8601",
            ["`iso8601` is not a format", "did you mean `ISO8601`?"],
        ),
        (
            "date message 'dd/mm/yyyy HH:mm'",
            ["`mm` is the minute", "did you mean `MM`?"],
        ),
        (
            "set day = formatTime(now(), 'YYYY-MM-DD')",
            ["`YYYY` is not the year here", "did you mean `yyyy`?"],
        ),
        (
            "set day = formatTime(now(), 'yyyy-MM-DD')",
            ["`DD` is the day of the year", "did you mean `dd`?"],
        ),
        (
            "set zip 00123",
            ["expected `=`", "example: set total = bytes_in + bytes_out"],
        ),
        (
            "set zip = 00123",
            ["begins with a zero", "did you mean `\"00123\"`?"],
        ),
        (
            "where n > 1e400",
            ["`1e400` is beyond the range", "1.8e308"],
        ),
        (
            "set m = message.replace(r\"\\d{4}\", \"X\")",
            ["reads as a regular expression", "`regex.replace` takes"],
        ),
        (
            "where n > \"10\"",
            [
                "texts are ordered by their characters",
                "did you mean `10`?",
            ],
        ),
        (
            "where user-agent == \"curl\"",
            ["this is a subtraction", "backticks: `user-agent`"],
        ),
        (
            "set h = @timestamp.getHours('25:00')",
            ["does not read as a time zone", "'25:00'"],
        ),
        (
            "set m = {1: \"a\", \"1\": \"b\"}",
            ["the key `1` is given twice", "\"1\""],
        ),
    ] {
        let refused = on_event(stage).expect(2);
        for part in parts {
            assert!(
                refused.err.contains(part),
                "{stage}: {part} in\n{}",
                refused.err
            );
        }
    }
}

#[test]
fn what_is_meant_does_what_it_says() {
    for (stage, expected) in [
        (
            "remove message,host | remove level zip",
            r#"{"user-agent":"curl","n":5}"#,
        ),
        ("drop level == \"DEBUG\"", ""),
        (
            "where `user-agent` == 'curl' | set m = regex.replace(message, r\"\\d{4}\", \"X\"), z = zip == 123, t = zip == \"123\"",
            r#""m":"id X","z":true,"t":false}"#,
        ),
        (
            "set m = {1: \"a\", true: \"b\"}, h = timestamp(\"2024-02-29T23:30:00Z\").getHours('02:00')",
            r#""m":{"1":"a","true":"b"},"h":1}"#,
        ),
    ] {
        let ended = on_event(stage).expect(0);
        assert!(
            ended.out.trim_end().ends_with(expected),
            "{stage}: {}",
            ended.out
        );
        assert_eq!(ended.out.is_empty(), expected.is_empty(), "{stage}");
    }
}
