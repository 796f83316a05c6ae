//! What outputs write with a codec, inputs read back.

use std::process::Stdio;

use serde_json::{Map, Value, json};

use crate::program::{Folder, command, run, run_on};

/// Documents with what is easily lost: nesting, digits, escapes, line breaks, other letters.
const DOCUMENTS: &str = r#"{"a":1.50,"b":{"c":[1,"x",{"d":null}],"e":{}},"f":"two\nlines","g":"\"é\\\u0000"}
{}
{"big":123456789012345678901234567890,"a.b":true,"message":"m"}
"#;

/// What a run printed as bytes.
fn bytes(input: &[u8], pipeline: &str) -> Vec<u8> {
    let folder = Folder::new();
    let path = folder.write("input", input);
    let output = command(&["run", pipeline])
        .stdin(Stdio::from(std::fs::File::open(path).expect("a file")))
        .output()
        .expect("the executable runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{pipeline}: {said}");
    output.stdout
}

fn values(lines: &[u8]) -> Vec<Value> {
    let lines = String::from_utf8_lossy(lines);
    let values = lines.lines().map(serde_json::from_str);
    values.collect::<Result<_, _>>().expect("JSON lines")
}

#[test]
fn json_comes_back_as_it_was() {
    for codec in ["json", "ndjson"] {
        let pipeline = format!("stdin codec={codec} | stdout {codec}");
        assert_eq!(bytes(DOCUMENTS.as_bytes(), &pipeline), DOCUMENTS.as_bytes());
    }
    // With an edit, which makes the output render the document.
    let edited = "stdin codec=json | set x = 1 | remove x | stdout json";
    let out = bytes(DOCUMENTS.as_bytes(), edited);
    assert_eq!(values(&out), values(DOCUMENTS.as_bytes()));
}

#[test]
fn messagepack_comes_back_as_it_was() {
    // A number with more digits than 64 bits have becomes a float.
    let documents = DOCUMENTS
        .replace("123456789012345678901234567890", "18446744073709551615")
        .replace("1.50", "1.5");
    let packed = bytes(documents.as_bytes(), "stdin codec=json | stdout msgpack");
    assert!(!packed.ends_with(b"\n"));
    let read = bytes(&packed, "stdin codec=msgpack | stdout json");
    assert_eq!(values(&read), values(documents.as_bytes()));
    let copied = bytes(&packed, "stdin codec=msgpack | stdout msgpack");
    assert_eq!(copied, packed);
}

#[test]
fn text_comes_back_as_it_was() {
    let lines = "a line\n\n  {\"not\": json\t\u{1}é\\n\nlast\n";
    assert_eq!(
        bytes(lines.as_bytes(), "stdin | stdout text"),
        lines.as_bytes()
    );
    // An event without the field stands on its line as JSON.
    let documents = b"{\"a\":{\"b\":1}}\n{\"message\":\"m\"}\n{\"message\":null}\n";
    let out = bytes(documents, "stdin codec=json | stdout text");
    assert_eq!(out, b"{\"a\":{\"b\":1}}\nm\n{\"message\":null}\n");
    let out = bytes(documents, "stdin codec=json | stdout text text.field=a.b");
    assert_eq!(out, b"1\n{\"message\":\"m\"}\n{\"message\":null}\n");
}

#[test]
fn logfmt_is_read_by_kv() {
    let documents =
        b"{\"level\":\"info\",\"msg\":\"user = in\",\"user\":{\"id\":7,\"tags\":[1,2]}}\n";
    let out = bytes(documents, "stdin codec=json | stdout logfmt");
    assert_eq!(
        out,
        b"level=info msg=\"user = in\" user.id=7 user.tags=[1,2]\n"
    );
    let read = bytes(
        &out,
        "stdin | kv message include_brackets=false | remove message, @timestamp, host | stdout json",
    );
    assert_eq!(
        values(&read),
        [json!({ "level": "info", "msg": "user = in", "user.id": "7", "user.tags": "[1,2]" })]
    );
}

/// A text that is hard on readers of CSV.
fn text(random: &mut fastrand::Rng, delimiter: char) -> String {
    let letters = [
        'a', ' ', '"', '\n', '\r', '\t', ',', delimiter, 'é', '\u{feff}', '\u{0}', '\u{2028}',
    ];
    let len = random.usize(0..6);
    let text: String = (0..len)
        .map(|_| letters[random.usize(..letters.len())])
        .collect();
    // The inputs read CRLF as a line feed alone.
    text.replace(['\r', '\n'], if random.bool() { "\r" } else { "\n" })
}

#[test]
fn every_row_of_csv_comes_back_as_it_was() {
    let mut random = fastrand::Rng::with_seed(7);
    for (delimiter, setting) in [
        (',', ","),
        (';', ";"),
        ('\t', "tab"),
        (' ', " "),
        ('a', "a"),
    ] {
        for columns in 1..4 {
            let names = &["x", "y.z", "w w"][..columns];
            let mut input = String::new();
            let mut expected = Vec::new();
            for _ in 0..1000 {
                let texts = names.iter().map(|name| {
                    let text = text(&mut random, delimiter);
                    ((*name).to_owned(), Value::from(text))
                });
                let row: Map<String, Value> = texts.collect();
                input += &format!("{}\n", Value::Object(row.clone()));
                expected.push(Value::Object(row));
            }
            let list: Vec<String> = names.iter().map(|name| format!("\"`{name}`\"")).collect();
            let list = list.join(", ");
            let write = format!(
                "stdin codec=json | stdout csv csv.delimiter='{setting}' csv.columns=[{list}]"
            );
            let csv = bytes(input.as_bytes(), &write);
            let read = format!("stdin codec=csv csv.delimiter='{setting}' | stdout json");
            let read = values(&bytes(&csv, &read));
            for (row, (read, expected)) in read.iter().zip(&expected).enumerate() {
                assert_eq!(read, expected, "{delimiter:?}, row {row}");
            }
            assert_eq!(read.len(), expected.len());
        }
    }
}

#[test]
fn values_of_other_types_stand_in_csv_as_text() {
    let documents =
        b"{\"a\":1.50,\"b\":[1,\"x\"]}\n{\"b\":{\"c\":true}}\n{\"a\":null,\"b\":false}\n";
    let out = bytes(
        documents,
        "stdin codec=json | stdout csv csv.columns=[b, a]",
    );
    let expected = "b,a\n\"[1,\"\"x\"\"]\",1.50\n\"{\"\"c\"\":true}\",\nfalse,\n";
    assert_eq!(String::from_utf8_lossy(&out), expected);
    let out = bytes(&out, "stdin codec=csv | stdout json");
    let expected = [
        json!({ "b": "[1,\"x\"]", "a": "1.50" }),
        json!({ "b": "{\"c\":true}", "a": "" }),
        json!({ "b": "false", "a": "" }),
    ];
    assert_eq!(values(&out), expected);
}

#[test]
fn files_have_the_codecs_of_standard_output() {
    let folder = Folder::new();
    for (settings, expected) in [
        (
            "codec=csv csv.columns=[a, message]",
            "a,message\n1,m\n,n\n1,m\n,n\n",
        ),
        (
            "codec=logfmt",
            "a=1 message=m\nmessage=n\na=1 message=m\nmessage=n\n",
        ),
        ("codec=compact", "m a=1\nn\nm a=1\nn\n"),
        ("codec=text", "m\nn\nm\nn\n"),
        (
            "codec=template template='%{a} %{message}'",
            "1 m\n- n\n1 m\n- n\n",
        ),
        (
            "codec=ndjson",
            "{\"a\":1,\"message\":\"m\"}\n{\"message\":\"n\"}\n{\"a\":1,\"message\":\"m\"}\n{\"message\":\"n\"}\n",
        ),
    ] {
        let path = folder.path("out");
        let documents = "{\"a\":1,\"message\":\"m\"}\n{\"message\":\"n\"}\n";
        for _ in 0..2 {
            let pipeline = format!("stdin codec=json | file {path} {settings}");
            run_on(documents.as_bytes(), &pipeline).expect(0);
        }
        let written = std::fs::read_to_string(&path).expect("the file");
        assert_eq!(written, expected, "{settings}");
        std::fs::remove_file(path).expect("it removes");
    }
}

#[test]
fn settings_that_do_not_fit_are_explained() {
    for (output, words) in [
        (
            "stdout format=json",
            vec!["`format` has been renamed to `codec`", "1:"],
        ),
        (
            "stdout format=line",
            vec!["renamed to `codec`", "`codec: text`"],
        ),
        ("stdout line", vec!["`line`", "did you mean `template`?"]),
        ("stdout raw", vec!["did you mean `text`?"]),
        (
            "stdout csv",
            vec!["requires `csv.columns`", "csv.columns=["],
        ),
        (
            "stdout template",
            vec!["requires `template`", "`codec: text`"],
        ),
        ("stdout json '%{a}'", vec!["requires `codec: template`"]),
        ("file x.log codec=pretty", vec!["`pretty`", "logfmt"]),
        (
            "http http://h/ format=single",
            vec!["renamed to `codec`", "`body`"],
        ),
        (
            "http http://h/ codec=csv body=array csv.columns=[a]",
            vec!["`body: array` requires"],
        ),
        (
            "elasticsearch http://h/ codec=json",
            vec!["unknown setting `codec`"],
        ),
    ] {
        let ended = run(&format!("stdin | {output}")).expect(2);
        for word in words {
            assert!(ended.err.contains(word), "{output}: {word}\n{}", ended.err);
        }
    }
}
