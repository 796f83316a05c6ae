//! `cef`: events in ArcSight's Common Event Format.
//!
//! The rules are those of "ArcSight Common Event Format (CEF) Implementation Standard". Values of the extension
//! hold blanks, so that a value ends where the next key begins: at a word without special characters that stands behind a blank
//! and before a `=` without a backslash. A `=` behind anything else is text, though the standard demands a backslash: senders
//! forget it in addresses and user agents.

use std::sync::LazyLock;

use component::{Build, BuildContext, Example, Order, Processor, Spec, parse};
use config::{ConfigError, Node, Positional};
use memchr::memmem::Finder;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::device_event::{
    DeviceEvent, DeviceEventError, DeviceEvents, DeviceFormat, DevicePair, TextPart, version_at,
};

/// The processor's description.
pub const SPEC: Spec = Spec {
    name: "cef",
    aliases: &[],
    summary: "Parses events in the Common Event Format (CEF).",
    description: DESCRIPTION,
    positional: Positional::fields(&["field", "target"]),
    one_line: &[],
    examples: &[
        Example {
            title: "An event behind a syslog header",
            stage: "cef line",
            input: r#"{"line":"Sep 19 08:26:10 host CEF:0|security|threatmanager|1.0|100|worm successfully stopped|10|src=10.0.0.1 dst=2.1.2.2 msg=Detected a threat.\\n No action needed. spt=1232"}"#,
            output: r#"{"line":"Sep 19 08:26:10 host CEF:0|security|threatmanager|1.0|100|worm successfully stopped|10|src=10.0.0.1 dst=2.1.2.2 msg=Detected a threat.\\n No action needed. spt=1232","cef":{"version":"0","device":{"vendor":"security","product":"threatmanager","version":"1.0","event_class_id":"100"},"name":"worm successfully stopped","severity":"10","extensions":{"dst":"2.1.2.2","msg":"Detected a threat.\n No action needed.","spt":"1232","src":"10.0.0.1"}}}"#,
        },
        Example {
            title: "Custom fields by their labels",
            stage: "cef line custom_labels=true",
            input: r#"{"line":"CEF:0|Citrix|NetScaler|NS10.0|APPFW|APPFW_STARTURL|6|cn1=233 cn1Label=Transaction ID act=blocked"}"#,
            output: r#"{"line":"CEF:0|Citrix|NetScaler|NS10.0|APPFW|APPFW_STARTURL|6|cn1=233 cn1Label=Transaction ID act=blocked","cef":{"version":"0","device":{"vendor":"Citrix","product":"NetScaler","version":"NS10.0","event_class_id":"APPFW"},"name":"APPFW_STARTURL","severity":"6","extensions":{"Transaction ID":"233","act":"blocked"}}}"#,
        },
        Example {
            title: "Text that is no such event",
            stage: "cef line",
            input: r#"{"line":"CEF:0|security|threatmanager|1.0|100"}"#,
            output: r#"{"line":"CEF:0|security|threatmanager|1.0|100","tags":["_cefparsefailure"],"error":{"message":"line: the header has 5 fields, and not 7"}}"#,
        },
    ],
    schema: |generator| generator.subschema_for::<Config>(),
    build: Build::Processor {
        order: Order::Stateless,
        sees_sealed: false,
        build,
    },
};

const DESCRIPTION: &str = "\
Parses events of CEF, version 0 and 1, by ArcSight's implementation standard:
`CEF:version|vendor|product|version|event class|name|severity|extension`. What stands before `CEF:`, such as a syslog header, is passed over. The fields below `target` have the names that Filebeat's `decode_cef` gives them:

| field | meaning |
| --- | --- |
| `version` | the version of CEF |
| `device.vendor`, `device.product`, `device.version` | the device |
| `device.event_class_id` | the kind of event |
| `name`, `severity` | the event, in words, and how important it is: 0 to 10, or a word |
| `extensions` | the pairs of the extension, with their keys as they are (`src`, `cs1`) |

All values are strings; existing fields are replaced. In the header `\\|` and `\\\\` stand for `|` and `\\`; in the extension `\\=` and `\\\\` stand for `=` and `\\`, `\\n` and `\\r` for line ends. Other backslashes stay.
A value of the extension goes up to the blank before the next key, which consists of letters, digits and `_.,-[]`; a `=` after anything else belongs to the value. Blanks at the end of the text are removed. A key that
occurs twice gives a list. New fields of `extensions` are in alphabetical order, capitals first.

With `custom_labels: true`, a pair such as `cs1=…` whose label is sent too, as `cs1Label=Rule name`, gets the label for its name: `extensions` has `Rule name` and neither `cs1` nor `cs1Label`.

The event fails with `_cefparsefailure` and keeps its fields if there is no `CEF:` with a version, the header is incomplete, the extension does not begin with a key, or `target` or something above it is not an object. If the field is absent or null, nothing happens.
The first 128 distinct keys of a batch are processed in columns; events with further keys take several times as long.
";

/// Settings of `cef`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct Config {
    /// The field to parse.
    field: String,
    /// The object to write into.
    target: String,
    /// Whether values with a label (`cs1` with `cs1Label`) get it for their name.
    custom_labels: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            field: "message".into(),
            target: "cef".into(),
            custom_labels: false,
        }
    }
}

fn build(node: &Node, context: &BuildContext) -> Result<Box<dyn Processor>, ConfigError> {
    let config: Config = parse(node)?;
    let format = Cef {
        custom_labels: config.custom_labels,
    };
    let settings = (&*config.field, &*config.target);
    Ok(Box::new(DeviceEvents::new(
        node, context, settings, format,
    )?))
}

/// What begins an event.
const NAME: &str = "CEF:";

static NAME_FINDER: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(NAME));

/// What the key of a label ends with.
const LABEL: &[u8] = b"Label";

#[derive(Clone)]
struct Cef {
    custom_labels: bool,
}

impl DeviceFormat for Cef {
    const TAG: &'static str = "_cefparsefailure";

    const HEADER: &'static [&'static [&'static str]] = &[
        &["version"],
        &["device", "vendor"],
        &["device", "product"],
        &["device", "version"],
        &["device", "event_class_id"],
        &["name"],
        &["severity"],
    ];

    const PAIRS: &'static str = "extensions";

    #[inline]
    fn read(&self, text: &[u8], event: &mut DeviceEvent) -> Result<(), DeviceEventError> {
        let text = text.trim_ascii_end();
        let start = version_at(text, &NAME_FINDER).ok_or(DeviceEventError::NoHeader(NAME))?;
        let extension = read_header(text, start, &mut event.header)?;
        read_extension(text, extension, &mut event.pairs)?;
        if self.custom_labels {
            apply_labels(text, &mut event.pairs);
        }
        Ok(())
    }

    fn unescape(value: &[u8], out: &mut Vec<u8>) {
        let mut rest = value;
        while let Some(at) = memchr::memchr(b'\\', rest) {
            out.extend_from_slice(&rest[..at]);
            let plain = match rest.get(at + 1) {
                Some(byte @ (b'|' | b'=' | b'\\')) => *byte,
                Some(b'n') => b'\n',
                Some(b'r') => b'\r',
                _ => {
                    out.push(b'\\');
                    rest = &rest[at + 1..];
                    continue;
                }
            };
            out.push(plain);
            rest = &rest[at + 2..];
        }
        out.extend_from_slice(rest);
    }
}

/// Reads the fields of the header from `start` on, and gives the place behind them. The last one may end the text.
fn read_header(
    text: &[u8],
    mut start: usize,
    header: &mut Vec<TextPart>,
) -> Result<usize, DeviceEventError> {
    let wanted = Cef::HEADER.len();
    let mut pos = start;
    let mut has_escapes = false;
    loop {
        let rest = text.get(pos..).unwrap_or_default();
        let at = memchr::memchr2(b'|', b'\\', rest).map(|at| pos + at);
        if let Some(at) = at.filter(|at| text[*at] == b'\\') {
            has_escapes = true;
            pos = at + 2;
            continue;
        }
        let end = at.unwrap_or(text.len());
        header.push(TextPart {
            start,
            end,
            has_escapes,
        });
        let found = header.len();
        match at {
            Some(at) if found == wanted => return Ok(at + 1),
            None if found == wanted => return Ok(end),
            None => return Err(DeviceEventError::Header { found, wanted }),
            Some(at) => start = at + 1,
        }
        pos = start;
        has_escapes = false;
    }
}

/// Reads the pairs from `start` on.
fn read_extension(
    text: &[u8],
    start: usize,
    pairs: &mut Vec<DevicePair>,
) -> Result<(), DeviceEventError> {
    let rest = &text[start..];
    let start = start + rest.len() - rest.trim_ascii_start().len();
    if start == text.len() {
        return Ok(());
    }
    // The pair at work, whose value goes on to the end of the text for all that is known.
    let mut open: Option<DevicePair> = None;
    let mut pos = start;
    while let Some(at) = memchr::memchr2(b'=', b'\\', text.get(pos..).unwrap_or_default()) {
        let at = pos + at;
        if text[at] == b'\\' {
            if let Some(pair) = &mut open {
                pair.value.has_escapes = true;
            }
            pos = at + 2;
            continue;
        }
        pos = at + 1;
        let word = match &open {
            None => Some(start),
            Some(pair) => memchr::memrchr(b' ', &text[pair.value.start..at])
                .map(|blank| pair.value.start + blank + 1),
        };
        let Some(word) = word.filter(|word| is_key(&text[*word..at])) else {
            continue;
        };
        if let Some(mut pair) = open.take() {
            pair.value.end = word - 1;
            pairs.push(pair);
        }
        open = Some(DevicePair {
            key: TextPart::plain(word, at),
            value: TextPart::plain(pos, text.len()),
        });
    }
    pairs.push(open.ok_or(DeviceEventError::NoKey(start))?);
    Ok(())
}

fn is_key(word: &[u8]) -> bool {
    let is_in_key = |byte: &u8| byte.is_ascii_alphanumeric() || b"_.,-[]".contains(byte);
    !word.is_empty() && word.iter().all(is_in_key)
}

/// Gives values that have a label that label for a key, and removes the pairs of the labels.
fn apply_labels(text: &[u8], pairs: &mut Vec<DevicePair>) {
    let is_label =
        |pair: &DevicePair| pair.key.of(text).ends_with(LABEL) && pair.value.start < pair.value.end;
    let labels: Vec<DevicePair> = pairs.iter().copied().filter(is_label).collect();
    for label in labels {
        let name = label.key.of(text);
        let name = &name[..name.len() - LABEL.len()];
        let mut is_used = false;
        for pair in pairs.iter_mut().filter(|pair| pair.key.of(text) == name) {
            pair.key = label.value;
            is_used = true;
        }
        if is_used {
            pairs.retain(|pair| pair.key != label.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{batch_of, build, check, check_errors, lines_of, process};
    use proptest::prelude::*;

    /// The extension of an event as JSON.
    fn extensions(settings: &str, extension: &str) -> String {
        let text = format!("CEF:0|v|p|1|2|n|3|{extension}");
        let event = serde_json::json!({ "a": text }).to_string();
        let mut batch = batch_of([&*event]);
        let mut processor = build(&SPEC, &format!("cef a {settings}")).expect(settings);
        let failures = process(processor.as_mut(), &mut batch);
        assert!(failures.is_empty(), "{text}: {failures:?}");
        let event: serde_json::Value = serde_json::from_str(&lines_of(&batch)[0]).expect("JSON");
        event["cef"]["extensions"].to_string()
    }

    /// Samples of the implementation standard and of vendors' documentation.
    #[test]
    fn headers_are_read() {
        for (text, header) in [
            (
                r"CEF:0|security|threatmanager|1.0|100|detected a \| in message|10|",
                r#"{"version":"0","device":{"vendor":"security","product":"threatmanager","version":"1.0","event_class_id":"100"},"name":"detected a | in message","severity":"10"}"#,
            ),
            (
                r"<134>1 2021-02-03T04:05:06Z h app - - - CEF:1|a\\b|||x=y|\q|Very-High",
                r#"{"version":"1","device":{"vendor":"a\\b","product":"","version":"","event_class_id":"x=y"},"name":"\\q","severity":"Very-High"}"#,
            ),
            (
                "Feb  3 04:05:06 h : CEF: 0|SkyhighNetworks|Shadow|1|2|n|3",
                r#"{"version":"0","device":{"vendor":"SkyhighNetworks","product":"Shadow","version":"1","event_class_id":"2"},"name":"n","severity":"3"}"#,
            ),
            (
                "about CEF: and NOCEF:7 h CEF:0|a|b|1|2|n|3\r\n",
                r#"{"version":"0","device":{"vendor":"a","product":"b","version":"1","event_class_id":"2"},"name":"n","severity":"3"}"#,
            ),
        ] {
            let event = serde_json::json!({ "a": text }).to_string();
            let expected = format!("{},\"cef\":{header}}}", &event[..event.len() - 1]);
            check(&SPEC, &[("cef a", &event, &expected)]);
        }
    }

    #[test]
    fn extensions_are_read() {
        for (extension, expected) in [
            ("", "null"),
            (
                "src=10.0.0.1 act=blocked a | dst=1.1.1.1",
                r#"{"act":"blocked a |","dst":"1.1.1.1","src":"10.0.0.1"}"#,
            ),
            (
                r"act=blocked a \\ dst=1.1.1.1",
                r#"{"act":"blocked a \\","dst":"1.1.1.1"}"#,
            ),
            (
                r"act=blocked a \= dst=1.1.1.1",
                r#"{"act":"blocked a =","dst":"1.1.1.1"}"#,
            ),
            (
                r"msg=one\ntwo\r\n path=C:\\new",
                r#"{"msg":"one\ntwo\r\n","path":"C:\\new"}"#,
            ),
            (r"msg=a\b \| \", r#"{"msg":"a\\b | \\"}"#),
            ("  src=1  dst=2  ", r#"{"dst":"2","src":"1 "}"#),
            ("src= dst=2 spt=", r#"{"dst":"2","spt":"","src":""}"#),
            (
                "request=http://h/?a=b&c=d suser=x",
                r#"{"request":"http://h/?a=b&c=d","suser":"x"}"#,
            ),
            (
                "app='A/1; =Email:u@h; Guid:t=' cs1=",
                r#"{"app":"'A/1; =Email:u@h; Guid:t='","cs1":""}"#,
            ),
            (
                "ad.field[0]=x ad.Error_,Code=y a-b=z",
                r#"{"a-b":"z","ad.Error_,Code":"y","ad.field[0]":"x"}"#,
            ),
            ("msg=größe é=1 name=ü", r#"{"msg":"größe é=1","name":"ü"}"#),
            ("a=1 b=2 a=3", r#"{"a":["1","3"],"b":"2"}"#),
            ("a=tab\there c=1", r#"{"a":"tab\there","c":"1"}"#),
        ] {
            assert_eq!(extensions("", extension), expected, "{extension}");
        }
    }

    #[test]
    fn labels_name_values() {
        for (extension, expected) in [
            ("cs1=a b cs1Label=Rule name", r#"{"Rule name":"a b"}"#),
            (
                "cs1Label=x cs1=1 cn1=2 cn1Label=y z=3",
                r#"{"x":"1","y":"2","z":"3"}"#,
            ),
            (r"cs1=1 cs1Label=a\=b", r#"{"a=b":"1"}"#),
            (
                "cs1=1 cs2Label=x cs3=2 cs3Label=",
                r#"{"cs1":"1","cs2Label":"x","cs3":"2","cs3Label":""}"#,
            ),
            ("cs1=1 cs1Label=x cs2=2 cs2Label=x", r#"{"x":["1","2"]}"#),
            ("Label=1 a=2", r#"{"Label":"1","a":"2"}"#),
        ] {
            assert_eq!(
                extensions("custom_labels=true", extension),
                expected,
                "{extension}"
            );
        }
        assert_eq!(
            extensions("", "cs1=1 cs1Label=x"),
            r#"{"cs1":"1","cs1Label":"x"}"#
        );
    }

    #[test]
    fn failures_say_what_is_wrong_and_change_nothing() {
        for (stage, text, reason) in [
            ("cef a", "no event", "a: there is no `CEF:` with a version"),
            (
                "cef a",
                "CEF:|a|b|1|2|n|3|",
                "a: there is no `CEF:` with a version",
            ),
            (
                "cef a",
                "CEF:0|a|b",
                "a: the header has 3 fields, and not 7",
            ),
            (
                "cef a",
                r"CEF:0|a|b|1|2|n\|3",
                "a: the header has 6 fields, and not 7",
            ),
            (
                "cef a",
                "CEF:0|a|b|1|2|n|3|words x=1",
                "a: there is no key with a `=` at byte 18",
            ),
            (
                "cef a a",
                "CEF:0|a|b|1|2|n|3|",
                "cannot write a.version: there is a value above it that is not an object",
            ),
        ] {
            let event = serde_json::json!({ "a": text, "cef": { "version": "x" } }).to_string();
            let mut batch = batch_of([r#"{"b":1}"#, r#"{"a":null}"#, &event]);
            let failures = process(build(&SPEC, stage).expect(stage).as_mut(), &mut batch);
            let last = failures.rows().last().expect(text);
            assert_eq!((last.row, &*last.tag, &*last.reason), (2, Cef::TAG, reason));
            assert!(
                lines_of(&batch)[2].starts_with(&event[..event.len() - 1]),
                "{text}"
            );
        }
        check_errors(
            &SPEC,
            &[
                ("cef a..b", "`a..b` is not a field name"),
                ("cef a custom_labels=some", "expected true or false"),
            ],
        );
    }

    proptest! {
        #[test]
        fn written_events_come_back(
            fields in prop::collection::vec("[a|\\\\= ]{0,4}", 6),
            pairs in prop::collection::btree_map("[a-z]{1,3}", "([a-z=|\\\\\n é]{0,6}[a-z])?", 1..6),
        ) {
            let header = |text: &String| text.replace('\\', r"\\").replace('|', r"\|");
            let value = |text: &String| text.replace('\\', r"\\").replace('=', r"\=").replace('\n', r"\n");
            let header: Vec<String> = fields.iter().map(header).collect();
            let extension: Vec<String> = pairs.iter().map(|(key, text)| format!("{key}={}", value(text))).collect();
            let text = format!("CEF:0|{}|{}", header.join("|"), extension.join(" "));
            let mut batch = batch_of([&*serde_json::json!({ "a": text }).to_string()]);
            process(build(&SPEC, "cef a").unwrap().as_mut(), &mut batch);
            let event: serde_json::Value = serde_json::from_str(&lines_of(&batch)[0]).unwrap();
            let cef = &event["cef"];
            prop_assert_eq!(&cef["extensions"], &serde_json::json!(pairs));
            let device = &cef["device"];
            let found = [&device["vendor"], &device["product"], &device["version"], &device["event_class_id"], &cef["name"], &cef["severity"]];
            prop_assert_eq!(found.map(|value| value.as_str().unwrap().to_owned()).to_vec(), fields);
        }

        #[test]
        fn it_ends_on_any_text(text in "CEF:0[|a=\\\\ é]{0,40}") {
            let _ = Cef { custom_labels: true }.read(text.as_bytes(), &mut DeviceEvent::default());
        }
    }
}
