//! What users of other tools write, and what Millpond says to it: nothing that cannot be meant runs.

use crate::program::{Ended, Folder, millpond, run_on};

const EVENT: &[u8] =
    br#"{"level":"DEBUG","message":"id 1234","host":"h","zip":"00123","user-agent":"curl","n":5}"#;

fn on_event(stage: &str) -> Ended {
    run_on(EVENT, &format!("stdin codec=json | {stage} | stdout"))
}

#[cfg(not(feature = "kafka"))]
#[test]
fn a_component_that_this_build_is_without_says_how_to_get_it() {
    for (pipeline, code, part) in [
        ("stdin | kafka b topic=t", 2, "--features kafka"),
        ("kafka b topics=t group=g | stdout", 2, "--features kafka"),
        ("stdin | kafka b topik=t", 2, "did you mean `topic`?"),
    ] {
        let said = millpond(&["check", pipeline]).expect(code).err;
        assert!(said.contains(part), "{pipeline}: {said}");
    }
}

#[test]
fn what_stands_in_the_wrong_place_is_named_with_its_right_place() {
    let folder = Folder::new();
    let pipeline = |rest: &str| format!("pipelines:\n  p:\n    input: stdin\n{rest}");
    for (yaml, parts) in [
        (
            pipeline("    processors:\n      - drop: { condition: n == 1 }\n"),
            [
                "5:17",
                "unknown setting `condition` for drop",
                "did you mean `if`?",
            ],
        ),
        (
            pipeline("    outputs:\n      stdout: {}\n      file: { path: x }\n"),
            [
                "5:7",
                "`outputs` is a list, and each component in it starts with its own `-`",
                "write `- stdout: …` and `- file: …`",
            ],
        ),
        (
            pipeline("    processors:\n      - where: n == 2\n        name: w\n"),
            [
                "6:9",
                "`name` is a setting of `where` and must be indented below it",
                "write `where: { name: …, … }`",
            ],
        ),
        (
            pipeline("    name: q\n"),
            [
                "4:5",
                "unknown setting `name` for a pipeline",
                "called by the key that it stands under",
            ],
        ),
        (
            "input: stdin\noutput: stdout\n".to_owned(),
            [
                "1:1",
                "`input` belongs to a pipeline",
                "`pipelines: { NAME: { input: …, processors: […], output: … } }`",
            ],
        ),
        (
            "a:\n  input: stdin\n  output: stdout\n".to_owned(),
            ["1:1", "`a` looks like a pipeline", "`pipelines: { NAME: "],
        ),
        (
            "workers: 2\n".to_owned(),
            [
                "1:1",
                "the configuration has no `pipelines`",
                "`pipelines: { NAME: ",
            ],
        ),
        (
            String::new(),
            [
                "1:1",
                "the configuration has no `pipelines`",
                "`pipelines: { NAME: ",
            ],
        ),
    ] {
        let path = folder.write("p.yaml", &yaml);
        let ended = millpond(&["check", &path]).expect(2);
        for part in parts {
            assert!(ended.err.contains(part), "{yaml}: {part}: {}", ended.err);
        }
    }
    for (line, parts) in [
        (
            "http 80a",
            [
                "1:6",
                "`80a` is not a port: expected a number from 0 to 65535",
            ],
        ),
        (
            "follow a.log",
            ["there is no input `follow`", "file PATH follow=true"],
        ),
        ("stdin | follow", ["follow`", "file PATH follow=true"]),
        (
            "tail a.log | stdout",
            ["`a.log` is not a count", "file PATH follow=true"],
        ),
    ] {
        let ended = millpond(&["check", line]).expect(2);
        for part in parts {
            assert!(ended.err.contains(part), "{line}: {part}: {}", ended.err);
        }
    }
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
            "set minutes = n // 60",
            ["`//` starts a comment", "did you mean `/`?"],
        ),
        (
            "where message.contains(\"error|fatal\")",
            ["reads as a regular expression", "\"error\" + \"|fatal\""],
        ),
        (
            "where \"level\" == \"DEBUG\"",
            ["reads no field", "did you mean `level == \"DEBUG\"`?"],
        ),
        (
            "where n > \"5k\"",
            ["texts are ordered", "parseBytes(n) > parseBytes(\"5k\")"],
        ),
        (
            "where @timestamp >= \"2015-05-18\"",
            ["a timestamp compares", "\"2015-05-18T00:00:00Z\""],
        ),
        (
            "where [level] == \"DEBUG\"",
            ["a field stands without brackets", "did you mean `level`?"],
        ),
        (
            "drop if [level] == \"DEBUG\"",
            ["there is no `if`", "a condition stands alone"],
        ),
        (
            "where n in 404",
            ["`in` needs a list", "did you mean `n in [404]`?"],
        ),
        (
            "where n == [404, 500]",
            ["a list itself", "did you mean `n in [404, 500]`?"],
        ),
        ("set m = level.charAt(-1)", ["counted from 0", "charAt(-1)"]),
        (
            "set m = \"%{level}-x\"",
            ["outside of expressions", "did you mean `level + \"-x\"`?"],
        ),
        (
            "set m = TRUE",
            ["`TRUE` would be a field", "did you mean `true`?"],
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
            "set a = try(int(level), 0), t = \"2015-05-18T08:30:00+02:00\" | set later = t >= \"2015-05-18T07:00:00Z\" | keep a later",
            r#"{"a":0,"later":false}"#,
        ),
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

/// A pipeline that cannot be meant, and what the refusal says.
type Slip = (&'static str, &'static [&'static str]);

fn all_refused(slips: &[Slip]) {
    for (pipeline, parts) in slips {
        let refused = run_on(EVENT, pipeline).expect(2);
        for part in *parts {
            assert!(
                refused.err.contains(part),
                "{pipeline}: {part} in\n{}",
                refused.err
            );
        }
    }
}

#[test]
fn expressions_that_lose_their_quotes_or_their_end_are_refused() {
    all_refused(&[
        (
            r#"stdin | grok "%{WORD:w}" if=type=="message""#,
            &["only partly quoted", r#"if='type=="message"'"#],
        ),
        (
            r#"stdin | json message if=message.contains("x") | stdout"#,
            &[r#"if='message.contains("x")'"#],
        ),
        (
            r#"stdin | stdout if=level=='DEBUG'"#,
            &["only partly quoted", r#"if="level=='DEBUG'""#],
        ),
        (
            r#"stdin | sample 10% key=level=="x""#,
            &["only partly quoted"],
        ),
        (
            r#"stdin | grok "%{NUMBER:w}" if=ok == false"#,
            &["contains blanks and is not quoted", "if='ok == false'"],
        ),
        (
            r#"stdin | json message if= level == "x" target=a"#,
            &["not quoted", r#"if='level == "x"'"#],
        ),
        (
            r#"stdin | json message if='level' in levels"#,
            &["contains blanks and is not quoted"],
        ),
        ("file a.log if=n > 1 | stdout", &["if='n > 1'"]),
    ]);
}

#[test]
fn operators_and_missing_bars_are_refused() {
    all_refused(&[
        (
            "file nginx.log > out.json",
            &["`>` is not a value of `file`", "separated by `|`"],
        ),
        ("file nginx.log >out.json", &["| file out.ndjson"]),
        (
            "file levels.ndjson -> stdout",
            &["`->` is not a value of `file`", "separated by `|`"],
        ),
        (
            r#"stdin | grok "%{WORD:l} %{INT:n}" where n == 2"#,
            &["`where` is a processor: did you forget the `|`"],
        ),
        (
            "file a.log stdout",
            &["`stdout` is an output: did you forget the `|`"],
        ),
        ("stdin | date ts ISO8601 head 3", &["`head` is a processor"]),
        (
            r#"stdin | grok { match => { "message" => "%{WORD:w}" } }"#,
            &["`{` is not a value of `grok`", "name=value"],
        ),
        ("file x.log --follow", &["follow=true"]),
        ("file x.log -f", &["follow=true"]),
        (
            "stdin | where (n == 502 | level)",
            &["`|` is not an operator", "did you mean `||`?"],
        ),
        (
            "stdin | set a = 1 b = 2",
            &["a comma is missing before `b`"],
        ),
        ("stdin | set a = 1; b = 2", &["separated by commas"]),
        (
            r#"stdin | drop level == "DEBUG" on_failure=drop"#,
            &["`on_failure` cannot be set behind an expression", "in YAML"],
        ),
        (
            "stdin | set fields.a=1",
            &["without `fields.`", "write set a = EXPRESSION"],
        ),
        ("stdin | rename a=b", &["expected `->`"]),
        (r#"stdin | where level="DEBUG""#, &["did you mean `==`?"]),
        (
            "stdin | wher response == 500",
            &["no processor or output `wher`", "did you mean `where`?"],
        ),
        (
            "stdin | file errors.log | file rest.log",
            &["one-line pipeline has one output", "`outputs` in YAML"],
        ),
        ("nginx.log | stdout", &["file nginx.log"]),
        (
            "stdin | grok '%{NGINXACCESS}'",
            &[
                "did you mean `COMBINEDAPACHELOG`?",
                "nginx writes",
                "docs grok-patterns",
            ],
        ),
        (
            "stdin | grok '%{COMBINDAPACHELOG}'",
            &["did you mean `COMBINEDAPACHELOG`?", "docs grok-patterns"],
        ),
        ("file x.log codec=docker | stdout", &["container=docker"]),
        ("syslog 514 | stdout", &["accepted: udp, tcp"]),
        (
            r"file x.log multiline='^\d{4}' | stdout",
            &[
                "expected a map of settings",
                "multiline.SETTING=VALUE",
                "start,",
            ],
        ),
    ]);
}

#[test]
fn names_that_no_field_has_are_refused_unless_in_backticks() {
    all_refused(&[
        (
            r#"stdin | keep "level, n""#,
            &["`level, n` is not a field name", "backticks"],
        ),
        ("stdin | keep level;message", &["`;` is not part"]),
        ("stdin | keep -message", &["`-` is not part"]),
        ("stdin | remove !clientip", &["`!` is not part"]),
        ("stdin | keep *", &["wildcards are not supported"]),
        ("stdin | remove user.*", &["wildcards are not supported"]),
        (
            "stdin | user_agent agent, target",
            &["`agent,` is not a field name", "a name is one field"],
        ),
        ("stdin | json message,host", &["a name is one field"]),
        ("stdin | rename *.a -> b", &["wildcards are not supported"]),
    ]);
    let event = br#"{"a":{"b.c":1,"d":2},"user name":"x","x,y":3}"#;
    for (stage, expected) in [
        ("keep a.`b.c`", r#"{"a":{"b.c":1}}"#),
        ("keep `user name`, `x,y`", r#"{"user name":"x","x,y":3}"#),
        ("remove a.`b.c`, `user name` `x,y`", r#"{"a":{"d":2}}"#),
        (
            "rename a.`b.c` -> `p q`, `user name` -> r | remove a `x,y`",
            r#"{"p q":1,"r":"x"}"#,
        ),
        ("set `n.o` = a.`b.c` | keep `n.o`", r#"{"n.o":1}"#),
        (
            "set j = \"[1]\" | rename j -> `a | b` | json `a | b` target=`t u` | keep `t u`",
            r#"{"t u":[1]}"#,
        ),
    ] {
        let ended = run_on(event, &format!("stdin codec=json | {stage} | stdout")).expect(0);
        assert_eq!(ended.out.trim_end(), expected, "{stage}");
    }
}

/// What `check` says to a configuration of one pipeline.
fn checked(pipeline: &str) -> Ended {
    let folder = Folder::new();
    let yaml = folder.write("p.yaml", format!("pipelines:\n  p:\n{pipeline}\n"));
    millpond(&["check", &yaml])
}

#[test]
fn one_value_stands_behind_a_name_in_yaml() {
    for (pipeline, part) in [
        (
            "    processors: [json: message target=app]",
            "json message target=app",
        ),
        ("    processors: [date: ts ISO8601]", "date ts ISO8601"),
        ("    processors: [date: 'ts ISO8601']", "reads like several"),
        (
            "    processors: [json: 'message target=app']",
            "is not a field name",
        ),
        (
            "    output: { file: out.json compression=gzip }",
            "file out.json compression=gzip",
        ),
        (
            "    outputs:\n      - file: e.log if='level == \"ERROR\"'",
            "in quotes as a whole: 'file …'",
        ),
        (
            "    input: { file: \"p1.txt, p2.txt\" }",
            "takes each value as it stands",
        ),
        (
            "    input: { file: \"p1.txt codec=json\" }",
            "reads like several",
        ),
        ("    input: { file: p1.txt p2.txt }", "file p1.txt p2.txt"),
        (
            "    processors: [set: { values: { zip: 00123 } }]",
            "did you mean `\"00123\"`?",
        ),
        (
            "    processors: [set: { values: { a: [1, 0x1F] } }]",
            "`0x1F` is the number 31",
        ),
        (
            "    processors: [set: { values: { a: { b: +5 } } }]",
            "did you mean `\"+5\"`?",
        ),
        (
            "    processors: [keep: [\"level, n\"]]",
            "is not a field name",
        ),
        (
            "    processors: [rename: { level: log.level }]",
            "{ fields: … }",
        ),
        (
            "    processors: [set: { pod: a }]",
            "{ values: { pod: … } }",
        ),
    ] {
        let refused = checked(pipeline).expect(2);
        assert!(
            refused.err.contains(part),
            "{pipeline}: {part} in\n{}",
            refused.err
        );
    }
    for pipeline in [
        "    processors: [grok: '%{WORD:a} x=%{INT:b}']",
        "    processors: [date: { field: t, formats: [\"dd MM\"] }]",
        "    output: { file: 'my file.log' }",
        "    input: { file: [\"a, b.log\", x y=z] }",
        "    processors: [set: { values: { a: 123, b: -1.50, c: \"007\", d: 1e5, e: 1.2.3 } }]",
        "    processors: [keep: [\"`level, n`\", a.`b.c`]]",
    ] {
        checked(pipeline).expect(0);
    }
}

#[test]
fn the_ends_of_a_pipeline_may_be_left_out_in_yaml() {
    let folder = Folder::new();
    let yaml = folder.write(
        "p.yaml",
        "pipelines:\n  p: { processors: [keep message] }\n",
    );
    let ended = run_on(b"one\n", &yaml).expect(0);
    assert_eq!(ended.out, "{\"message\":\"one\"}\n");
    let refused = checked("    { inptu: stdin }").expect(2);
    assert!(refused.err.contains("`inptu`"), "{}", refused.err);
}

#[test]
fn arguments_and_topics_that_are_something_else_say_so() {
    for (arguments, part) in [
        (
            &["run", "file", "nginx.log"][..],
            "put it in quotes, 'file nginx.log'",
        ),
        (&["docs", "parseBytes"], "millpond docs functions"),
        (&["docs", "notatio"], "did you mean `notation`?"),
    ] {
        let refused = millpond(arguments).expect(2);
        assert!(refused.err.contains(part), "{arguments:?}: {}", refused.err);
    }
    let patterns = millpond(&["docs", "grok-patterns"]).expect(0).out;
    for name in ["COMBINEDAPACHELOG", "CATALINALOG", "SYSLOGBASE"] {
        assert!(patterns.contains(&format!("| `{name}` |")), "{name}");
    }
}
