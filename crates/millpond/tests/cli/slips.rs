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
