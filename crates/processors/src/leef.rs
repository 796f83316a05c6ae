//! `leef`: events in QRadar's Log Event Extended Format, versions 1.0 and 2.0.
//!
//! The rules are those of IBM's "Log Event Extended Format (LEEF), Version 2". The format has no escapes.

use std::sync::LazyLock;

use component::{Build, BuildContext, Example, Order, Processor, Spec, parse};
use config::{ConfigError, Node, Positional};
use memchr::memmem::{self, Finder};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::device_event::{
    DeviceEvent, DeviceEventError, DeviceEvents, DeviceFormat, DevicePair, TextPart, version_at,
};

/// The processor's description.
pub const SPEC: Spec = Spec {
    name: "leef",
    aliases: &[],
    summary: "Parses events in the Log Event Extended Format (LEEF).",
    description: DESCRIPTION,
    positional: Positional::fields(&["field", "target"]),
    one_line: &[],
    examples: &[
        Example {
            title: "Version 2.0, with a separator of its own",
            stage: "leef line",
            input: r#"{"line":"LEEF:2.0|Lancope|StealthWatch|1.0|41|^|src=10.0.1.8^dst=10.0.0.5^sev=5^msg=a = b"}"#,
            output: r#"{"line":"LEEF:2.0|Lancope|StealthWatch|1.0|41|^|src=10.0.1.8^dst=10.0.0.5^sev=5^msg=a = b","leef":{"version":"2.0","device":{"vendor":"Lancope","product":"StealthWatch","version":"1.0"},"event_id":"41","attributes":{"dst":"10.0.0.5","msg":"a = b","sev":"5","src":"10.0.1.8"}}}"#,
        },
        Example {
            title: "Version 1.0 behind a syslog header",
            stage: "leef line",
            input: r#"{"line":"Jan 18 11:07:53 192.168.1.1 LEEF:1.0|QRadar|QRM|1.0|NEW_PORT_DISCOVERD|src=172.5.6.67\tcat=anomaly\tmsg=there are spaces in this message"}"#,
            output: r#"{"line":"Jan 18 11:07:53 192.168.1.1 LEEF:1.0|QRadar|QRM|1.0|NEW_PORT_DISCOVERD|src=172.5.6.67\tcat=anomaly\tmsg=there are spaces in this message","leef":{"version":"1.0","device":{"vendor":"QRadar","product":"QRM","version":"1.0"},"event_id":"NEW_PORT_DISCOVERD","attributes":{"cat":"anomaly","msg":"there are spaces in this message","src":"172.5.6.67"}}}"#,
        },
        Example {
            title: "Tabs that a relay has escaped",
            stage: "leef line delimiter='#011'",
            input: r#"{"line":"LEEF:1.0|IBM|Guardium|9.0|7|src=10.0.1.8#011usrName=ann"}"#,
            output: r#"{"line":"LEEF:1.0|IBM|Guardium|9.0|7|src=10.0.1.8#011usrName=ann","leef":{"version":"1.0","device":{"vendor":"IBM","product":"Guardium","version":"9.0"},"event_id":"7","attributes":{"src":"10.0.1.8","usrName":"ann"}}}"#,
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
Parses events of LEEF by IBM's guide: `LEEF:1.0|vendor|product|version|event id|attributes`, in version 2.0 with the separator of the attributes before them: `…|event id|^|attributes`. What stands before `LEEF:`, such as a syslog
header, is passed over. The fields below `target` are:

| field | meaning |
| --- | --- |
| `version` | the version of LEEF |
| `device.vendor`, `device.product`, `device.version` | the product that sent the event |
| `event_id` | the kind of event |
| `attributes` | the attributes, with their keys as they are (`src`, `usrName`) |

All values are strings; existing fields are replaced. Attributes are separated by tabs, or in version 2.0 by the separator that the event names: one character, its number in hexadecimal, such as `x5E` or `0x5E`, or `\\t` or `tab` for a tab. Where it names none, and where it
is left out, they are separated by tabs. `delimiter` takes the place of either, whatever the event names. The first `=` of an attribute ends its key, and blanks around keys are removed; a part without `=` belongs to the value before it, separator included. A key that occurs
twice gives a list. New fields of `attributes` are in alphabetical order, capitals first. Blanks at the end of the text are removed.

The event fails with `_leefparsefailure` and keeps its fields if there is no `LEEF:` with a version, the header is incomplete, it names another separator, such as `;;`, the attributes do not begin with a key, or `target` or something above it is not an object. If the field is absent or null, nothing happens. The
first 128 distinct keys of a batch are processed in columns; events with further keys take several times as long.
";

/// Settings of `leef`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct Config {
    /// The field to parse.
    field: String,
    /// The object to write into.
    target: String,
    /// The text between attributes, in place of a tab or of what the event names; `\n` and `\t` stand for a line feed and a tab. Default: none.
    delimiter: Option<String>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            field: "message".into(),
            target: "leef".into(),
            delimiter: None,
        }
    }
}

fn build(node: &Node, context: &BuildContext) -> Result<Box<dyn Processor>, ConfigError> {
    let config: Config = parse(node)?;
    if config.delimiter.as_deref() == Some("") {
        let error = node.nearest("delimiter").error("the delimiter is empty");
        return Err(error.note("without the setting, attributes are separated as the event says"));
    }
    let format = Leef {
        delimiter: config
            .delimiter
            .map(|text| text.replace("\\n", "\n").replace("\\t", "\t").into_bytes()),
    };
    let settings = (&*config.field, &*config.target);
    Ok(Box::new(DeviceEvents::new(
        node, context, settings, format,
    )?))
}

/// What begins an event.
const NAME: &str = "LEEF:";

static NAME_FINDER: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(NAME));

#[derive(Clone)]
struct Leef {
    delimiter: Option<Vec<u8>>,
}

impl DeviceFormat for Leef {
    const TAG: &'static str = "_leefparsefailure";

    const HEADER: &'static [&'static [&'static str]] = &[
        &["version"],
        &["device", "vendor"],
        &["device", "product"],
        &["device", "version"],
        &["event_id"],
    ];

    const PAIRS: &'static str = "attributes";

    #[inline]
    fn read(&self, text: &[u8], event: &mut DeviceEvent) -> Result<(), DeviceEventError> {
        let text = text.trim_ascii_end();
        let start = version_at(text, &NAME_FINDER).ok_or(DeviceEventError::NoHeader(NAME))?;
        let mut pos = read_header(text, start, &mut event.header)?;
        let mut named = Some('\t');
        let start = pos;
        let has_separator = event.header[0].of(text).starts_with(b"2");
        if has_separator && let Some((name, next)) = separator_at(text, pos) {
            named = separator_of(name);
            pos = next;
        }
        if named.is_none() && self.delimiter.is_none() {
            return Err(DeviceEventError::Separator(start));
        }
        let mut written = [0; 4];
        let named = named.unwrap_or('\t').encode_utf8(&mut written).as_bytes();
        let delimiter = self.delimiter.as_deref().unwrap_or(named);
        read_attributes(text, pos, delimiter, &mut event.pairs)
    }

    fn unescape(value: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(value);
    }
}

/// Reads the fields of the header from `start` on, and gives the place behind them. The last one may end the text.
fn read_header(
    text: &[u8],
    mut start: usize,
    header: &mut Vec<TextPart>,
) -> Result<usize, DeviceEventError> {
    let wanted = Leef::HEADER.len();
    for found in 1..=wanted {
        let end = memchr::memchr(b'|', &text[start..]).map(|len| start + len);
        header.push(TextPart::plain(start, end.unwrap_or(text.len())));
        start = match end {
            Some(end) => end + 1,
            None if found == wanted => text.len(),
            None => return Err(DeviceEventError::Header { found, wanted }),
        };
    }
    Ok(start)
}

/// What an event of version 2.0 has in the place of its separator at `pos`, and the place behind. Nothing where the attributes
/// begin at `pos`.
fn separator_at(text: &[u8], pos: usize) -> Option<(&[u8], usize)> {
    let len = memchr::memchr(b'|', &text[pos..])?;
    // A separator that is a bar ends itself.
    let len = if len == 0 && text.get(pos + 1) == Some(&b'|') {
        1
    } else {
        len
    };
    let name = &text[pos..pos + len];
    let is_attribute = len > 1 && name.contains(&b'=');
    (!is_attribute).then_some((name, pos + len + 1))
}

/// The separator of this name: one character, its number, or a tab, as it is written, or where the name is empty.
fn separator_of(name: &[u8]) -> Option<char> {
    if name.is_empty() || name == b"\\t" || name.eq_ignore_ascii_case(b"tab") {
        return Some('\t');
    }
    let name = std::str::from_utf8(name).ok()?;
    let mut characters = name.chars();
    if let (Some(only), None) = (characters.next(), characters.next()) {
        return Some(only);
    }
    let digits = name.strip_prefix("0x").or(name.strip_prefix('x'))?;
    let is_number = digits.len() <= 4 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    let number = u32::from_str_radix(digits, 16).ok().filter(|_| is_number)?;
    char::from_u32(number)
}

/// Reads the attributes from `start` on.
fn read_attributes(
    text: &[u8],
    start: usize,
    delimiter: &[u8],
    pairs: &mut Vec<DevicePair>,
) -> Result<(), DeviceEventError> {
    let mut next = Some(start);
    while let Some(pos) = next.filter(|pos| *pos < text.len()) {
        let end = match delimiter {
            [byte] => memchr::memchr(*byte, &text[pos..]),
            delimiter => memmem::find(&text[pos..], delimiter),
        };
        next = end.map(|len| pos + len + delimiter.len());
        let end = end.map_or(text.len(), |len| pos + len);
        let key_end = memchr::memchr(b'=', &text[pos..end]).map(|len| pos + len);
        let key = key_end.map(|key_end| (trimmed(text, pos, key_end), key_end));
        match (key.filter(|(key, _)| key.start < key.end), pairs.last_mut()) {
            (Some((key, key_end)), _) => pairs.push(DevicePair {
                key,
                value: TextPart::plain(key_end + 1, end),
            }),
            (None, _) if pos == end => {}
            (None, Some(pair)) => pair.value.end = end,
            (None, None) => return Err(DeviceEventError::NoKey(pos)),
        }
    }
    Ok(())
}

/// A range of a text without the blanks around it.
fn trimmed(text: &[u8], start: usize, end: usize) -> TextPart {
    let part = text[start..end].trim_ascii_start();
    let start = end - part.len();
    TextPart::plain(start, start + part.trim_ascii_end().len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{batch_of, build, check_errors, lines_of, process, run};
    use proptest::prelude::*;

    /// The object that an event gives.
    fn object(settings: &str, text: &str) -> String {
        let event = serde_json::json!({ "a": text }).to_string();
        let line = run(&SPEC, &format!("leef a {settings}"), &event).remove(0);
        let event: serde_json::Value = serde_json::from_str(&line).expect("JSON");
        assert_eq!(event["error"], serde_json::Value::Null, "{text}");
        event["leef"].to_string()
    }

    #[test]
    fn separators_are_known() {
        for (settings, text, attributes) in [
            (
                "",
                "LEEF:1.0|v|p|1|e|a=1\tb=x y\r\n",
                r#"{"a":"1","b":"x y"}"#,
            ),
            ("", "LEEF:2.0|v|p|1|e|^|a=1^b=2", r#"{"a":"1","b":"2"}"#),
            ("", "LEEF:2.0|v|p|1|e|x5E|a=1^b=2", r#"{"a":"1","b":"2"}"#),
            ("", "LEEF:2.0|v|p|1|e|0x7c|a=1|b=2", r#"{"a":"1","b":"2"}"#),
            ("", "LEEF:2.0|v|p|1|e||a=1\tb=2", r#"{"a":"1","b":"2"}"#),
            ("", "LEEF:2.0|v|p|1|e|||a=1|b=2", r#"{"a":"1","b":"2"}"#),
            ("", "LEEF:2.0|v|p|1|e|¦|a=1¦b=2", r#"{"a":"1","b":"2"}"#),
            ("", "LEEF:2.0|v|p|1|e|a=1\tb=2|3", r#"{"a":"1","b":"2|3"}"#),
            ("", "LEEF:1.0|v|p|1|e|^|=1", r#"{"^|":"1"}"#),
            ("", "LEEF:2.0|v|p|1|e|\\t|a=1\tb=2", r#"{"a":"1","b":"2"}"#),
            ("", "LEEF:2.0|v|p|1|e|tab|a=1\tb=2", r#"{"a":"1","b":"2"}"#),
            (
                r"delimiter='\t'",
                "LEEF:2.0|v|p|1|e|^|a=1^\tb=2",
                r#"{"a":"1^","b":"2"}"#,
            ),
            (
                "delimiter=';;'",
                "LEEF:2.0|v|p|1|e|;;|a=1;;b=2",
                r#"{"a":"1","b":"2"}"#,
            ),
            (
                "delimiter=';'",
                "LEEF:2.0|v|p|1|e|^|a=1^;b=2",
                r#"{"a":"1^","b":"2"}"#,
            ),
            (
                "delimiter=', '",
                "LEEF:1.0|v|p|1|e|a=1,2, b=3",
                r#"{"a":"1,2","b":"3"}"#,
            ),
        ] {
            let version = &text[5..8];
            let expected = format!(
                r#"{{"version":"{version}","device":{{"vendor":"v","product":"p","version":"1"}},"event_id":"e","attributes":{attributes}}}"#
            );
            assert_eq!(object(settings, text), expected, "{text}");
        }
    }

    #[test]
    fn attributes_are_read() {
        for (attributes, expected) in [
            ("a=b=c\tk =v\t d=é", r#"{"a":"b=c","d":"é","k":"v"}"#),
            ("a=1\ttail\tb=2", r#"{"a":"1\ttail","b":"2"}"#),
            ("a=1\t\tb=2\t=3", r#"{"a":"1","b":"2\t=3"}"#),
            ("\ta=\tb=", r#"{"a":"","b":""}"#),
            ("a=1\ta=2", r#"{"a":["1","2"]}"#),
            (r"path=C:\new\=x", r#"{"path":"C:\\new\\=x"}"#),
        ] {
            let object = object("", &format!("x LEEF:1.0|v|p|1|e|{attributes}"));
            let found = object.split_once(r#""attributes":"#).map(|(_, rest)| rest);
            assert_eq!(found, Some(&*format!("{expected}}}")), "{attributes}");
        }
        assert!(object("", "LEEF:1.0|v|p|1|e").ends_with(r#""event_id":"e"}"#));
        assert!(object("", "LEEF:1.0|v|p|1|e|\n").ends_with(r#""event_id":"e"}"#));
    }

    const SEPARATOR: &str = "a: the separator at byte 17 is neither one character, nor its number in hexadecimal, nor `\\t` or `tab`; the setting `delimiter` can name it";

    #[test]
    fn failures_say_what_is_wrong_and_change_nothing() {
        for (text, reason) in [
            ("CEF:0|", "a: there is no `LEEF:` with a version"),
            ("LEEF:1.0|v|p", "a: the header has 3 fields, and not 5"),
            ("LEEF:2.0|v|p|1|e|;;|a=1;;b=2", SEPARATOR),
            ("LEEF:2.0|v|p|1|e|xD800|a=1", SEPARATOR),
            (
                "LEEF:1.0|v|p|1|e|words",
                "a: there is no key with a `=` at byte 17",
            ),
        ] {
            let event = serde_json::json!({ "a": text, "leef": {} }).to_string();
            let mut batch = batch_of([r#"{"b":1}"#, r#"{"a":null}"#, &event]);
            let failures = process(build(&SPEC, "leef a").unwrap().as_mut(), &mut batch);
            let last = failures.rows().last().expect(text);
            assert_eq!(
                (last.row, &*last.tag, &*last.reason),
                (2, Leef::TAG, reason)
            );
            assert!(
                lines_of(&batch)[2].starts_with(&event[..event.len() - 1]),
                "{text}"
            );
        }
        check_errors(
            &SPEC,
            &[
                ("leef a delimiter=''", "the delimiter is empty"),
                ("leef a custom_labels=true", "custom_labels"),
            ],
        );
    }

    proptest! {
        #[test]
        fn it_ends_on_any_text(text in "LEEF:[12]\\.0[|a=\t x^é0]{0,40}", delimiter in prop::option::of("[a^]{1,2}")) {
            let leef = Leef { delimiter: delimiter.map(String::into_bytes) };
            let mut event = DeviceEvent::default();
            if leef.read(text.as_bytes(), &mut event).is_ok() {
                for pair in &event.pairs {
                    prop_assert!(text.is_char_boundary(pair.value.start) && text.is_char_boundary(pair.value.end));
                }
            }
        }
    }
}
