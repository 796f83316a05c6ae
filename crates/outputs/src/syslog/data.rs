//! Structured data (RFC 5424, section 6.3): elements from the settings, then those of an object in the event.
//!
//! The object is what the input `syslog` makes: a member for each element, with a member for each parameter. An array gives its
//! parameter several times. Where the input made an array of elements of the same name, which the RFC forbids, they become one.

use std::sync::Arc;

use batch::{Batch, Column, FieldPath, FieldRead, Value, json};
use expr::{Absent, BoundTemplate, Template};

use super::header::write_name;

/// What structured data holds.
#[derive(Debug, Clone, Default)]
pub struct StructuredData {
    /// Elements by their cleaned names.
    pub elements: Vec<(Vec<u8>, Params)>,
    /// The field with the object.
    pub field: Option<FieldPath>,
}

/// Parameters of an element, by their cleaned names.
pub type Params = Vec<(Vec<u8>, Template)>;

/// The same over the columns of one batch.
pub struct BoundData<'a> {
    elements: Vec<BoundElement<'a>>,
    column: Option<Arc<Column>>,
    scratch: Vec<u8>,
}

struct BoundElement<'a> {
    name: &'a [u8],
    params: Vec<(&'a [u8], BoundTemplate<'a>)>,
}

impl StructuredData {
    /// The fields that the templates name.
    pub fn reads(&self) -> impl Iterator<Item = Arc<FieldRead>> {
        let params = self.elements.iter().flat_map(|(_, params)| params);
        params.flat_map(|(_, template)| template.reads())
    }

    /// Over the columns of one batch.
    pub fn bind<'a>(&'a self, batch: &Batch) -> BoundData<'a> {
        let bind = |(name, params): &'a (Vec<u8>, Vec<(Vec<u8>, Template)>)| BoundElement {
            name,
            params: params
                .iter()
                .map(|(name, text)| (name.as_slice(), text.bind(batch, Absent::Text(""))))
                .collect(),
        };
        let column = self.field.as_ref().map(|field| batch.column(field));
        let is_absent =
            |column: &Arc<Column>| column.as_constant().is_some_and(batch::Cell::is_absent);
        BoundData {
            elements: self.elements.iter().map(bind).collect(),
            column: column.filter(|column| !is_absent(column)),
            scratch: Vec::new(),
        }
    }
}

impl BoundData<'_> {
    /// Appends the structured data of a row; the nil value where there is none.
    #[inline]
    pub fn write(&mut self, row: usize, out: &mut Vec<u8>) {
        let start = out.len();
        for element in &mut self.elements {
            element.write(row, out);
        }
        let Self {
            elements,
            column,
            scratch,
        } = self;
        if let Some(column) = column {
            match column.value(row) {
                Value::Json(object) => write_object(object, elements, out),
                value @ Value::MsgPack(_) => {
                    scratch.clear();
                    value.write_json(scratch);
                    write_object(scratch, elements, out);
                }
                _ => {}
            }
        }
        if out.len() == start {
            out.push(b'-');
        }
    }
}

impl BoundElement<'_> {
    /// Appends the element with the parameters whose fields are there; nothing if there are none.
    fn write(&mut self, row: usize, out: &mut Vec<u8>) {
        let start = out.len();
        out.push(b'[');
        out.extend_from_slice(self.name);
        let empty = out.len();
        for (name, text) in &mut self.params {
            if text.is_given(row) {
                begin_param(name, out);
                let value = out.len();
                text.write(row, out);
                escape(out, value);
                out.push(b'"');
            }
        }
        match out.len() == empty {
            true => out.truncate(start),
            false => out.push(b']'),
        }
    }
}

/// Appends the elements of an object, without those whose names the settings have.
fn write_object(object: &[u8], known: &[BoundElement<'_>], out: &mut Vec<u8>) {
    if json::kind(object) != json::Kind::Object {
        return;
    }
    for element in json::members(object) {
        let value = &object[element.value.clone()];
        let start = out.len();
        out.push(b'[');
        write_key(element.key, out);
        let name = &out[start + 1..];
        let is_new = known.iter().all(|known| known.name != name);
        match json::kind(value) {
            json::Kind::Object if is_new => write_params(value, out),
            json::Kind::Array if is_new => {
                for range in json::elements(value) {
                    write_params(&value[range], out);
                }
            }
            _ => {
                out.truncate(start);
                continue;
            }
        }
        out.push(b']');
    }
}

fn write_params(object: &[u8], out: &mut Vec<u8>) {
    if json::kind(object) != json::Kind::Object {
        return;
    }
    for param in json::members(object) {
        let value = &object[param.value.clone()];
        match json::kind(value) {
            json::Kind::Array => {
                for range in json::elements(value) {
                    write_param(param.key, &value[range], out);
                }
            }
            _ => write_param(param.key, value, out),
        }
    }
}

fn write_param(key: &[u8], value: &[u8], out: &mut Vec<u8>) {
    if json::kind(value) == json::Kind::Null {
        return;
    }
    out.push(b' ');
    write_key(key, out);
    out.extend_from_slice(b"=\"");
    let start = out.len();
    match json::kind(value) {
        json::Kind::String => json::unescape(&value[1..value.len() - 1], out),
        _ => out.extend_from_slice(value),
    }
    escape(out, start);
    out.push(b'"');
}

fn begin_param(name: &[u8], out: &mut Vec<u8>) {
    out.push(b' ');
    out.extend_from_slice(name);
    out.extend_from_slice(b"=\"");
}

/// Appends the key of a JSON object as a name.
fn write_key(key: &[u8], out: &mut Vec<u8>) {
    match json::has_escape(key) {
        false => write_name(key, out),
        true => {
            let mut name = Vec::new();
            json::unescape(key, &mut name);
            write_name(&name, out);
        }
    }
}

/// Puts a backslash before quotes, backslashes and `]` of the value that begins at `start` (section 6.3.3).
fn escape(out: &mut Vec<u8>, start: usize) {
    let needs_it = |byte: &u8| matches!(byte, b'"' | b'\\' | b']');
    if !out[start..].iter().any(needs_it) {
        return;
    }
    for byte in out.split_off(start) {
        if needs_it(&byte) {
            out.push(b'\\');
        }
        out.push(byte);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    fn render(data: &StructuredData, document: &str) -> String {
        let batch = testing::documents(&[document]);
        let mut out = Vec::new();
        data.bind(&batch).write(0, &mut out);
        String::from_utf8(out).expect("UTF-8")
    }

    #[test]
    fn elements_come_from_settings_and_from_the_event() {
        let template = |text: &str| Template::parse(text).expect("a template");
        let data = StructuredData {
            elements: vec![(
                b"mine@1".to_vec(),
                vec![
                    (b"id".to_vec(), template("%{id}")),
                    (b"k".to_vec(), template("<%{k}>")),
                ],
            )],
            field: Some(FieldPath::parse("log.syslog.structured_data").expect("a field")),
        };
        for (document, expected) in [
            ("{}", "-"),
            (r#"{"id":7}"#, r#"[mine@1 id="7"]"#),
            (
                r#"{"id":"a\"b\\c]","k":"x"}"#,
                r#"[mine@1 id="a\"b\\c\]" k="<x>"]"#,
            ),
            (
                r#"{"log":{"syslog":{"structured_data":{"a@1":{"x":"1","y":[2,true,null]},"e":{}}}}}"#,
                r#"[a@1 x="1" y="2" y="true"][e]"#,
            ),
            (
                r#"{"id":1,"log":{"syslog":{"structured_data":{"mine@1":{"x":"1"},"b":[{"x":"1"},{"x":"2"}],"c":1}}}}"#,
                r#"[mine@1 id="1"][b x="1" x="2"]"#,
            ),
            (
                r#"{"log":{"syslog":{"structured_data":{"a b\"":{"c=":"\u00e9\"]\\\n"}}}}}"#,
                "[a_b_ c_=\"\u{e9}\\\"\\]\\\\\n\"]",
            ),
            (r#"{"log":{"syslog":{"structured_data":"text"}}}"#, "-"),
        ] {
            assert_eq!(render(&data, document), expected, "{document}");
        }
    }
}
