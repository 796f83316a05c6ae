//! `xml`: parses an XML document into an object.
//!
//! [`document`] states how elements become members, and the limits.

mod document;

use std::sync::Arc;

use batch::{Batch, Bitmap, Cell, ColumnBuilder, Edit, Failures, FieldPath, FieldRead};
use component::{Build, BuildContext, Example, Order, Processor, Spec, parse};
use config::{ConfigError, Node, Positional, Positive, Size};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::names::{field, target};
use crate::text::Texts;
use document::{XmlDocument, XmlError, XmlNames};

const FAILURE_TAG: &str = "_xmlparsefailure";

/// The processor's description.
pub const SPEC: Spec = Spec {
    name: "xml",
    aliases: &[],
    summary: "Parses an XML document into an object.",
    description: DESCRIPTION,
    positional: Positional::fields(&["field"]),
    one_line: &[],
    examples: &[
        Example {
            title: "An event of Windows",
            stage: "xml body remove_namespaces=true keep_source=false",
            input: r#"{"body":"<Event xmlns='http://schemas.microsoft.com/win/2004/08/events/event'><System><Provider Name='Microsoft-Windows-Security-Auditing'/><EventID>4624</EventID><TimeCreated SystemTime='2026-01-31T12:00:00.000Z'/><Computer>dc1</Computer></System><EventData><Data Name='TargetUserName'>ann</Data><Data Name='IpAddress'>192.0.2.7</Data></EventData></Event>"}"#,
            output: r##"{"Event":{"System":{"Provider":{"@Name":"Microsoft-Windows-Security-Auditing"},"EventID":"4624","TimeCreated":{"@SystemTime":"2026-01-31T12:00:00.000Z"},"Computer":"dc1"},"EventData":{"Data":[{"@Name":"TargetUserName","#text":"ann"},{"@Name":"IpAddress","#text":"192.0.2.7"}]}}}"##,
        },
        Example {
            title: "A list also of one element, with other names",
            stage: "xml body target=order lists=item attribute_prefix='' text_key=text",
            input: r#"{"body":"<order id='7'><item n='1'>a &amp; b</item><note/></order>"}"#,
            output: r#"{"body":"<order id='7'><item n='1'>a &amp; b</item><note/></order>","order":{"order":{"id":"7","item":[{"n":"1","text":"a & b"}],"note":""}}}"#,
        },
        Example {
            title: "Text that is not XML",
            stage: "xml body",
            input: r#"{"body":"<a><b></a>"}"#,
            output: r#"{"body":"<a><b></a>","tags":["_xmlparsefailure"],"error":{"message":"body: ill-formed document: expected `</b>`, but `</a>` was found at byte 6"}}"#,
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
The document becomes an object whose member is the root element. Without a `target` it becomes a field of the event, and is merged with what that field holds, member by member; with a `target` the object replaces that field,
which may be the one that is read.

An element with neither attributes nor elements is a string. Any other one is an object: of its attributes (`@name`), of its elements, and of its text, if it has any, as `#text`. Elements of the same name in one element are a list, in the
order of the document, and those in `lists` are one also where they come once. All values are strings; blanks and line ends around texts are removed, and the texts between elements are joined. CDATA is text. Comments and processing
instructions are left out.

Names keep their namespace prefix, as in `soap:Body`, unless `remove_namespaces: true` is set. Names with dots are one key.

References to characters (`&#233;`) and to the five entities of XML (`&amp;`, `&lt;`, `&gt;`, `&quot;`, `&apos;`) are resolved. A document type declaration is passed over: nothing is fetched, and any other entity is a failure.

The event fails with `_xmlparsefailure` and keeps its fields if the text is not a well-formed document as far as this is checked, if elements nest deeper than 64 levels, or if the text is longer than `max_bytes`. Texts are read as UTF-8, whatever their declaration names.
Checked are tags, attributes, references, `<` in attributes and `]]>` in text, how names begin, and that there is one root element and at most one document type declaration; not every character of a name, what a document type declaration says, and where an XML declaration stands. If the field is
absent or null, nothing happens.
";

/// Settings of `xml`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct Config {
    /// The field to parse.
    field: String,
    /// The field that gets the object. Default: none; the root element becomes a field of the event.
    target: Option<String>,
    /// Whether the field that was read stays.
    keep_source: bool,
    /// What stands before the names of attributes.
    attribute_prefix: String,
    /// The name of the text of an element that has attributes or elements as well.
    text_key: String,
    /// Names of elements that give a list also where they come once. Default: none.
    lists: Vec<String>,
    /// Whether names lose their namespace prefix, and declarations of namespaces (`xmlns`) are left out.
    remove_namespaces: bool,
    /// The maximum size of a text, in bytes.
    max_bytes: Positive<Size>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            field: "message".into(),
            target: None,
            keep_source: true,
            attribute_prefix: "@".into(),
            text_key: "#text".into(),
            lists: Vec::new(),
            remove_namespaces: false,
            max_bytes: Positive::<Size>::from_bytes(1 << 20),
        }
    }
}

fn build(node: &Node, context: &BuildContext) -> Result<Box<dyn Processor>, ConfigError> {
    let config: Config = parse(node)?;
    let source = field(node, "field", &config.field)?;
    let target = target(node, config.target.as_deref())?;
    if config.text_key.is_empty() {
        let error = node.nearest("text_key").error("`text_key` is empty");
        return Err(error.note("such as text_key=text"));
    }
    let names = XmlNames {
        attribute_prefix: config.attribute_prefix,
        text_key: config.text_key,
        lists: config.lists,
        removes_namespaces: config.remove_namespaces,
    };
    Ok(Box::new(Xml {
        removes_source: !config.keep_source && target.as_ref() != Some(&source),
        source,
        target,
        names: Arc::new(names),
        bytes_max: config.max_bytes.bytes(),
        tag: context.tag_or(FAILURE_TAG),
    }))
}

#[derive(Clone)]
struct Xml {
    source: FieldPath,
    target: Option<FieldPath>,
    removes_source: bool,
    names: Arc<XmlNames>,
    bytes_max: usize,
    tag: Arc<str>,
}

impl Processor for Xml {
    fn process(&mut self, batch: &mut Batch, rows: &Bitmap) -> Failures {
        let texts = Texts::of(batch, &self.source, rows);
        let mut objects = ColumnBuilder::new(batch.len());
        let mut parsed = Bitmap::none(batch.len());
        let mut document = XmlDocument::new(&self.names);
        let mut failures = Failures::none();
        for row in rows.iter() {
            let Some((_, text)) = texts.get(row) else {
                continue;
            };
            match self.read(text, &mut document) {
                Ok(()) => {
                    parsed.insert(row);
                    let span = objects.append(|out| document.write(out));
                    objects.set(row, Cell::Json(span));
                }
                Err(error) => {
                    let reason = format!("{}: {error}", self.source);
                    failures.push(row, &self.tag, &reason.into());
                }
            }
        }
        if !parsed.is_empty() {
            let mut edit = Edit::new();
            if self.removes_source {
                edit.remove(self.source.clone(), &parsed);
            }
            match &self.target {
                None => {
                    edit.merge(None, objects.finish(), document.dotted_names);
                }
                Some(target) => {
                    edit.set(target.clone(), objects.finish());
                    if document.dotted_names {
                        edit.dotted_keys();
                    }
                }
            }
            failures.extend_refused(batch.apply(edit), &self.tag);
        }
        failures
    }

    fn reads(&self) -> Vec<Arc<FieldRead>> {
        vec![Arc::new(FieldRead::always(self.source.clone()))]
    }
}

impl Xml {
    fn read(&self, text: &[u8], document: &mut XmlDocument<'_>) -> Result<(), XmlError> {
        let (len, max) = (text.len(), self.bytes_max);
        if len > max {
            return Err(XmlError::TooLong { len, max });
        }
        document.read(std::str::from_utf8(text).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests;
