use super::*;
use crate::testing::{batch_of, build, check, check_errors, lines_of, process, run};
use proptest::prelude::*;

/// The object of a document.
fn object(settings: &str, text: &str) -> String {
    let event = serde_json::json!({ "a": text }).to_string();
    let line = run(&SPEC, &format!("xml a target=o {settings}"), &event).remove(0);
    let event: serde_json::Value = serde_json::from_str(&line).expect("JSON");
    assert_eq!(event["error"], serde_json::Value::Null, "{text}");
    event["o"].to_string()
}

#[test]
fn documents_become_objects() {
    for (settings, text, expected) in [
        ("", "<a/>", r#"{"a":""}"#),
        ("", "<a></a>", r#"{"a":""}"#),
        ("", "<a> x\n</a>", r#"{"a":"x"}"#),
        (
            "",
            "<?xml version='1.0' encoding='ISO-8859-1'?>\n<!-- c --><a>é</a>\n<?p q?>",
            r#"{"a":"é"}"#,
        ),
        ("", "\u{feff}<a>1.50</a>", r#"{"a":"1.50"}"#),
        (
            "",
            "<a b='1' c=\"x 'y'\"/>",
            r#"{"a":{"@b":"1","@c":"x 'y'"}}"#,
        ),
        ("", "<a b='1'>t</a>", r##"{"a":{"@b":"1","#text":"t"}}"##),
        (
            "",
            "<a><b>1</b><c/><b>2</b></a>",
            r#"{"a":{"b":["1","2"],"c":""}}"#,
        ),
        (
            "",
            "<a>x<b/>y<b/>z</a>",
            r##"{"a":{"b":["",""],"#text":"xyz"}}"##,
        ),
        (
            "",
            "<a><![CDATA[<b> & ]]>&lt;c&gt;&#233;&#xe9;&quot;&apos;&amp;</a>",
            r#"{"a":"<b> & <c>éé\"'&"}"#,
        ),
        ("", "<a b='&lt;&#10;&amp;'/>", r#"{"a":{"@b":"<\n&"}}"#),
        ("", "<a>1\r\n2</a>", r#"{"a":"1\n2"}"#),
        ("", "<!DOCTYPE a [<!ENTITY x 'y'>]><a>z</a>", r#"{"a":"z"}"#),
        (
            "",
            "<s:a xmlns:s='u'><s:b/></s:a>",
            r#"{"s:a":{"@xmlns:s":"u","s:b":""}}"#,
        ),
        (
            "remove_namespaces=true",
            "<s:a xmlns:s='u' xmlns='v' s:x='1'><s:b/><b/></s:a>",
            r#"{"a":{"@x":"1","b":["",""]}}"#,
        ),
        ("lists=[b,a]", "<a><b/></a>", r#"{"a":[{"b":[""]}]}"#),
        (
            "attribute_prefix=''",
            "<a b='1'><b>2</b></a>",
            r#"{"a":{"b":["1","2"]}}"#,
        ),
        ("text_key=b", "<a><b>2</b>1</a>", r#"{"a":{"b":["2","1"]}}"#),
    ] {
        assert_eq!(object(settings, text), expected, "{text}");
    }
}

#[test]
fn objects_go_to_the_event_or_a_target() {
    check(
        &SPEC,
        &[
            (
                "xml a",
                r#"{"a":"<b><c>1</c></b>","b":{"d":2}}"#,
                r#"{"a":"<b><c>1</c></b>","b":{"d":2,"c":"1"}}"#,
            ),
            (
                "xml a keep_source=false",
                r#"{"a":"<b>1</b>"}"#,
                r#"{"b":"1"}"#,
            ),
            (
                "xml a keep_source=false",
                r#"{"a":"<a>1</a>"}"#,
                r#"{"a":"1"}"#,
            ),
            (
                "xml a target=a",
                r#"{"a":"<b>1</b>"}"#,
                r#"{"a":{"b":"1"}}"#,
            ),
            ("xml a", r#"{"a":null}"#, r#"{"a":null}"#),
            ("xml a", r#"{"b":1}"#, r#"{"b":1}"#),
        ],
    );
    for (stage, path) in [("xml a", "b.c"), ("xml a target=t", "t.b.c")] {
        let mut batch = batch_of([r#"{"a":"<b.c>1</b.c>"}"#]);
        process(build(&SPEC, stage).unwrap().as_mut(), &mut batch);
        let column = batch.column(&FieldPath::parse(path).unwrap());
        assert_eq!(column.value(0), batch::Value::Text(b"1"), "{stage}");
    }
}

#[test]
fn failures_say_what_is_wrong_and_change_nothing() {
    let deep = |depth| format!("{}{}", "<a>".repeat(depth), "</a>".repeat(depth));
    let (deepest, too_deep) = (deep(document::DEPTH_MAX), deep(document::DEPTH_MAX + 1));
    for (stage, text, reason) in [
        ("xml a", "", "a: there is no element"),
        ("xml a", "<!-- a -->", "a: there is no element"),
        (
            "xml a",
            "text",
            "a: there is text outside of the root element before byte 4",
        ),
        (
            "xml a",
            "<a/>text",
            "a: there is text outside of the root element before byte 8",
        ),
        (
            "xml a",
            "<a/><b/>",
            "a: there is text outside of the root element before byte 8",
        ),
        ("xml a", "<a><b>", "a: the element <b> is not closed"),
        (
            "xml a",
            "<a></b>",
            "a: ill-formed document: expected `</a>`, but `</b>` was found at byte 3",
        ),
        ("xml a", "<a b='1' b='2'/>", "a: "),
        ("xml a", "<a b=1/>", "a: "),
        ("xml a", "<a", "a: syntax error"),
        (
            "xml a",
            "<a>&x;</a>",
            "a: the entity `&x;` before byte 6 is not one of XML itself",
        ),
        (
            "xml a",
            "<!DOCTYPE a [<!ENTITY x SYSTEM 'file:///etc/passwd'>]><a>&x;</a>",
            "a: the entity `&x;`",
        ),
        ("xml a", "<1a/>", "a: `1a` before byte 5 is not a name"),
        (
            "xml a",
            "<a -b=''/>",
            "a: `-b` before byte 10 is not a name",
        ),
        (
            "xml a",
            "<a b='<'/>",
            "a: `<` before byte 10 must be written with an entity",
        ),
        (
            "xml a",
            "<a>]]></a>",
            "a: `]]>` before byte 6 must be written with an entity",
        ),
        (
            "xml a",
            "<!DOCTYPE a><!DOCTYPE a><a/>",
            "a: there is a second document type declaration",
        ),
        (
            "xml a",
            "<a/><!DOCTYPE a>",
            "a: there is a second document type declaration",
        ),
        ("xml a", "<a b='&x;'/>", "a: "),
        ("xml a", "<a>&</a>", "a: "),
        ("xml a", "<a>&#0;</a>", "a: "),
        (
            "xml a max_bytes=8B",
            "<a>12</a>",
            "a: the text has 9 bytes, and `max_bytes` allows 8",
        ),
        ("xml a", &too_deep, "a: elements nest deeper than 64 levels"),
        (
            "xml a target=a.b",
            "<a/>",
            "cannot write a.b: there is a value above it that is not an object",
        ),
    ] {
        let event = serde_json::json!({ "a": text }).to_string();
        let mut batch = batch_of([r#"{"b":1}"#, r#"{"a":null}"#, &event]);
        let rows = batch.alive().clone();
        let failures = build(&SPEC, stage).expect(stage).process(&mut batch, &rows);
        let last = failures.rows().last().expect(text);
        assert_eq!((last.row, &*last.tag), (2, FAILURE_TAG), "{text}");
        assert!(last.reason.starts_with(reason), "{text}: {}", last.reason);
        assert_eq!(lines_of(&batch)[2], event, "{text}");
    }
    object("", &deepest);
    check_errors(
        &SPEC,
        &[
            ("xml a..b", "`a..b` is not a field name"),
            ("xml a text_key=''", "`text_key` is empty"),
            ("xml a max_bytes=0", "at least 1B"),
        ],
    );
}

/// A document, and the object that it is.
fn any_element() -> impl Strategy<Value = (String, serde_json::Value)> {
    let text = "[a-c<&\"'é]{0,5}";
    let leaf = text.prop_map(|text| (escaped(&text), serde_json::Value::from(text)));
    leaf.prop_recursive(4, 40, 5, |inner| {
        prop::collection::vec(("[ab.]", inner), 1..5).prop_map(|members| {
            let mut object = serde_json::Map::new();
            let mut written = String::new();
            for (name, (text, value)) in members {
                let name = format!("x{name}");
                written += &format!("<{name}>{text}</{name}>");
                match object.get_mut(&name) {
                    None => drop(object.insert(name, serde_json::json!([value]))),
                    Some(values) => values.as_array_mut().expect("a list").push(value),
                }
            }
            (written, serde_json::Value::Object(object))
        })
    })
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('"', "&quot;")
}

proptest! {
    #[test]
    fn written_documents_come_back((text, value) in any_element()) {
        let found = object("lists=[xa,xb,'x.']", &format!("<r>{text}</r>"));
        let found: serde_json::Value = serde_json::from_str(&found).unwrap();
        prop_assert_eq!(&found["r"], &value);
    }

    #[test]
    fn any_text_gives_valid_json_or_a_reason(text in "[<>/ab=\"'&;#x!\\[\\]CDAT? -]{0,40}") {
        let names = XmlNames { attribute_prefix: "@".into(), text_key: "#text".into(), lists: Vec::new(), removes_namespaces: false };
        let mut document = XmlDocument::new(&names);
        if document.read(&text).is_ok() {
            let mut out = Vec::new();
            document.write(&mut out);
            let scan = batch::json::validate_object(&out);
            prop_assert!(scan.is_ok_and(|scan| !scan.rewrite), "{}", String::from_utf8_lossy(&out));
        }
    }
}
