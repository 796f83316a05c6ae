//! Templates over small batches.

use batch::{BatchBuilder, Encoding, HostInfo, Span, Stream};

use super::*;

/// A batch of JSON documents, received at the epoch.
fn documents(documents: &[&str]) -> Batch {
    let host = Arc::new(HostInfo {
        name: "test-host".into(),
    });
    let mut builder = BatchBuilder::new(Encoding::Json, &host, 0, false);
    builder.stream(&Arc::new(Stream::unnamed(1)));
    builder.dotted_keys();
    for document in documents {
        let len = document.len() as u32;
        let buffer = builder.buffer(document.as_bytes().to_vec().into());
        let start = 0;
        builder.push(Span { buffer, start, len }, 0, 0);
    }
    builder.finish()
}

fn render(template: &str, batch: &Batch, absent: Absent) -> Vec<String> {
    let template = Template::parse(template).expect("a template");
    let mut bound = template.bind(batch, absent);
    let text = |row| {
        let mut out = Vec::new();
        bound.write(row, &mut out);
        String::from_utf8(out).expect("text")
    };
    (0..batch.len()).map(text).collect()
}

#[test]
fn fields_and_times_are_filled_in() {
    let batch = documents(&[
        r#"{"@timestamp":"2024-02-29T23:05:09.5Z","a":{"b":7},"x.y":"dot","n":null,"list":[1,"z"]}"#,
        r#"{"a":{"b":"text","}":1,"it's":2}}"#,
    ]);
    for (template, first, second) in [
        ("plain", "plain", "plain"),
        ("", "", ""),
        ("100% %%{a} %", "100% %{a} %", "100% %{a} %"),
        ("<%{a.b}>", "<7>", "<text>"),
        ("%{[a][b]}%{n}", "7-", "text-"),
        ("%{list} %{[x.y]}", "[1,\"z\"] dot", "- -"),
        ("%{a['}']}%{a[\"}\"]}", "--", "11"),
        ("%{a.it's} %{a.it's}", "- -", "2 2"),
        ("%{+yyyy-MM-dd}", "2024-02-29", "1970-01-01"),
        ("%{+yy.M.d H:m:s}", "24.2.29 23:5:9", "70.1.1 0:0:0"),
        (
            "%{+HHmmss}.%{+xxxx'W'ww}",
            "230509.2024W09",
            "000000.1970W01",
        ),
        (
            "%{+DDD MMM MMMM ''}",
            "060 Feb February '",
            "001 Jan January '",
        ),
        ("%{+yyyy'}'}", "2024}", "1970}"),
        ("%{@metadata.host.name}", "test-host", "test-host"),
    ] {
        let rendered = render(template, &batch, Absent::Text("-"));
        assert_eq!(rendered, [first, second], "{template}");
    }
}

#[test]
fn the_caller_says_what_an_absent_field_gives() {
    let batch = documents(&[r#"{"n":null,"a":""}"#]);
    for (absent, expected) in [
        (Absent::Text("-"), "-,-,"),
        (Absent::Text(""), ",,"),
        (Absent::AsWritten, "%{n},%{[gone]['x']},"),
    ] {
        let rendered = render("%{n},%{[gone]['x']},%{a}", &batch, absent);
        assert_eq!(rendered, [expected], "{absent:?}");
    }
}

#[test]
fn only_what_fields_give_is_cleaned() {
    let batch = documents(&[r#"{"a":"x/y"}"#]);
    let template = Template::parse("/%{a}/%{b}").expect("a template");
    let mut out = b"/".to_vec();
    let clean = |out: &mut Vec<u8>, start: usize| {
        assert_eq!(&out[start..], b"x/y");
        out.truncate(start);
        out.push(b'_');
    };
    let mut bound = template.bind(&batch, Absent::Text("a/b"));
    bound.write_with(0, &mut out, clean);
    assert_eq!(out, b"//_/a/b");
}

#[test]
fn what_is_the_same_for_all_rows_is_known() {
    let batch = documents(&[r#"{"a":1}"#, r#"{"a":2}"#]);
    for (text, expected) in [
        ("text", true),
        ("%{@metadata.host.name}", true),
        ("%{@metadata.host.name} %{a}", false),
        ("%{+yyyy}", false),
    ] {
        let template = Template::parse(text).expect(text);
        let bound = template.bind(&batch, Absent::Text(""));
        assert_eq!(bound.is_constant(), expected, "{text}");
    }
}

#[test]
fn the_time_follows_the_event() {
    let batch = documents(&[
        r#"{"@timestamp":"2024-01-01T00:00:59Z"}"#,
        r#"{"@timestamp":"2024-01-01T00:01:00Z"}"#,
        r#"{"@timestamp":"nonsense"}"#,
        r#"{"@timestamp":"1969-12-31T23:59:59.9Z"}"#,
        r#"{"@timestamp":"2024-01-01T01:00:59+01:00"}"#,
    ]);
    assert_eq!(
        render("%{+HH:mm}", &batch, Absent::AsWritten),
        ["00:00", "00:01", "00:00", "23:59", "00:00"]
    );
    assert_eq!(
        render("%{+yyyy}", &batch, Absent::AsWritten),
        ["2024", "2024", "1970", "1969", "2024"]
    );
}

#[test]
fn errors_point_into_the_text() {
    for (template, at, message) in [
        ("a %{b", 2..5, "not closed"),
        ("a %{}", 4..4, "not a field name"),
        ("a %{b..c}", 4..8, "not a field name"),
        ("a %{['b}", 4..7, "not a field name"),
        ("%{+}", 3..3, "time format"),
        ("%{+yyyy-QQ}", 8..9, "`Q`"),
        ("%{+YYYY.MM.dd}", 3..7, "`yyyy`"),
        ("%{+yyyy-mm-dd}", 8..10, "`MM`"),
        ("a%{+%Y-%M-%d}", 7..9, "`%m`"),
        ("%{+yyyy'T}", 7..9, "quote"),
    ] {
        let error = Template::parse(template).expect_err(template);
        assert_eq!(error.at, at, "{template}");
        assert!(error.message.contains(message), "{template}: {error}");
    }
}

#[test]
fn constants_are_known() {
    for (text, constant, prefix) in [
        ("a%%b", Some("a%b"), "a%b"),
        ("", Some(""), ""),
        ("/logs/%{a}", None, "/logs/"),
        ("%{+yyyy}", None, ""),
    ] {
        let template = Template::parse(text).expect(text);
        assert_eq!((template.constant(), template.prefix()), (constant, prefix));
    }
}
