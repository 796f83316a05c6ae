//! `url`: the parts of a URL, as fields of the Elastic Common Schema.
//!
//! Texts are taken apart as `url.parse` of expressions does it ([`expr::UrlParts`]). Parts are views into the text; only
//! parameters that are percent-encoded are copied.

use std::sync::Arc;

use batch::{
    Batch, Bitmap, Cell, Column, ColumnBuilder, Edit, Failures, FieldPath, FieldRead, Span,
};
use component::{Build, BuildContext, Example, Order, Processor, Spec, parse};
use config::{ConfigError, Node, Positional};
use expr::UrlParts;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::keyed::{Keyed, ValueLocation};
use crate::names::{below, field, overlap};
use crate::text::{Texts, part};

const FAILURE_TAG: &str = "_urlparsefailure";

/// The processor's description.
pub const SPEC: Spec = Spec {
    name: "url",
    aliases: &[],
    summary: "Parses a URL into its parts.",
    description: DESCRIPTION,
    positional: Positional::fields(&["field", "target"]),
    one_line: &[],
    examples: &[
        Example {
            title: "All parts",
            stage: "url link",
            input: r#"{"link":"https://ann:pw@example.com:8443/a/b.tar.gz?x=1#top"}"#,
            output: r#"{"link":"https://ann:pw@example.com:8443/a/b.tar.gz?x=1#top","url":{"original":"https://ann:pw@example.com:8443/a/b.tar.gz?x=1#top","scheme":"https","username":"ann","password":"pw","domain":"example.com","port":8443,"path":"/a/b.tar.gz","extension":"gz","query":"x=1","fragment":"top"}}"#,
        },
        Example {
            title: "The path of a request, with the parameters of its query",
            stage: "url request parameters=url.parameters",
            input: r#"{"request":"/search?q=caf%C3%A9+au+lait&page=2&tag=a&tag=b"}"#,
            output: r#"{"request":"/search?q=caf%C3%A9+au+lait&page=2&tag=a&tag=b","url":{"original":"/search?q=caf%C3%A9+au+lait&page=2&tag=a&tag=b","path":"/search","query":"q=caf%C3%A9+au+lait&page=2&tag=a&tag=b","parameters":{"page":"2","q":"café au lait","tag":["a","b"]}}}"#,
        },
        Example {
            title: "In the place of the text",
            stage: "url url keep_original=false",
            input: r#"{"url":"http://[2001:db8::7]/"}"#,
            output: r#"{"url":{"scheme":"http","domain":"2001:db8::7","path":"/"}}"#,
        },
        Example {
            title: "Text that is no URL",
            stage: "url link",
            input: r#"{"link":"example.com/a"}"#,
            output: r#"{"link":"example.com/a","tags":["_urlparsefailure"],"error":{"message":"link: the text is not a URL: it begins with a scheme, as in `https://example.com/a`, or with `/`"}}"#,
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
Writes these fields of the [Elastic Common Schema](https://www.elastic.co/docs/reference/ecs/ecs-url) below `target`. Parts that a URL does not have make no field. Fields of `target` that are
there stay where the URL has no such part: beside an old `url.query` that belongs to another URL, use `remove url` first, or another `target`.

| field | of `https://ann:pw@example.com:8443/a/b.tar.gz?x=1#top` |
| --- | --- |
| `original` | the whole text |
| `scheme` | `https` |
| `username`, `password` | `ann`, `pw` |
| `domain` | `example.com`; an IP address likewise, an IPv6 address without its brackets |
| `port` | 8443, a number; none where the URL names none |
| `path` | `/a/b.tar.gz` |
| `extension` | `gz`: what stands behind the last dot in the last part of the path |
| `query` | `x=1` |
| `fragment` | `top` |

The text is a URL with a scheme, or a path such as `/a?b=1`, as access logs hold it; a query or a fragment alone (`?b=1`, `#top`) is taken, too, and so is the `*` of `OPTIONS *`. Of `//host/path`, which has no scheme, `host` is the `domain` and `/path` the `path`: in an access log, a request for a
path that begins with two slashes looks the same. Nothing is decoded or normalised: letters keep their case, and `%20` stays. The function `url.decode` decodes a field. `registered_domain`,
`subdomain` and `top_level_domain` are not written: they need the list of public suffixes, which changes every week.

`password` is the password as it stands in the URL, without anything that tells `redact` that it is one, and `original` has it too. Put `redact` in front of `url`, which masks it in the text, or `remove url.password, url.original` behind it.

`parameters` names a field that gets the parameters of the query as an object. There, names and values are decoded as in forms: `%20` and `+` are a blank; bytes that are not UTF-8 then become U+FFFD. A
parameter without `=` is an empty string, one without a name is left out, and one that occurs twice gives a list. Names with dots are one key. New fields of the object are in alphabetical order, capitals first.

The event fails with `_urlparsefailure` and keeps its fields if the text is no URL, its port is no number up to 65535, brackets hold something else than an IPv6 address, or `target` or something above it is not an object. `target` may be the field itself, which becomes an object then. If the field
is absent or null, nothing happens.
";

/// Settings of `url`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Config {
    /// The field that holds the URL.
    field: String,
    /// The object to write into.
    #[serde(default = "url")]
    target: String,
    /// Whether the whole text is written too, as `original`.
    #[serde(default = "yes")]
    keep_original: bool,
    /// The field that gets the parameters of the query, such as `url.parameters`. Default: none.
    #[serde(default)]
    parameters: Option<String>,
}

fn url() -> String {
    "url".into()
}

fn yes() -> bool {
    true
}

/// The fields that parts make, in order.
const PARTS: [&str; 10] = [
    "original",
    "scheme",
    "username",
    "password",
    "domain",
    "port",
    "path",
    "extension",
    "query",
    "fragment",
];

/// The place of the port, which is a number, in [`PARTS`].
const PORT: usize = 5;

fn build(node: &Node, context: &BuildContext) -> Result<Box<dyn Processor>, ConfigError> {
    let config: Config = parse(node)?;
    let source = field(node, "field", &config.field)?;
    let target = field(node, "target", &config.target)?;
    let parameters = config.parameters.as_deref();
    let parameters = parameters
        .map(|text| field(node, "parameters", text))
        .transpose()?;
    let paths = PARTS.map(|name| below(Some(&target), [name]));
    if let Some(parameters) = &parameters
        && let Some(path) = paths.iter().find(|path| overlap(path, parameters))
    {
        return Err(node.nearest("parameters").error(format!(
            "{parameters} and {path} cannot both be set: one lies in the other"
        )));
    }
    Ok(Box::new(Url {
        plan: Arc::new(Plan {
            takes_place: source == target,
            source,
            paths,
            keeps_original: config.keep_original,
            parameters,
        }),
        tag: context.tag_or(FAILURE_TAG),
    }))
}

#[derive(Clone)]
struct Url {
    plan: Arc<Plan>,
    tag: Arc<str>,
}

/// What the settings come down to.
struct Plan {
    source: FieldPath,
    /// Whether the parts are written below the field itself.
    takes_place: bool,
    /// The fields of [`PARTS`].
    paths: [FieldPath; PARTS.len()],
    keeps_original: bool,
    parameters: Option<FieldPath>,
}

impl Processor for Url {
    fn process(&mut self, batch: &mut Batch, rows: &Bitmap) -> Failures {
        let plan = &*self.plan;
        let texts = Texts::of(batch, &plan.source, rows);
        let mut columns = PARTS.map(|_| texts.builder(batch.len()));
        let name = |key: &[u8]| Some(decoded(key)).filter(|name| !name.is_empty());
        let mut parameters = Keyed::new(batch.len(), &texts, name);
        let mut parsed = Bitmap::none(batch.len());
        let mut failures = Failures::none();
        for row in rows.iter() {
            let Some((span, bytes)) = texts.get(row) else {
                continue;
            };
            let text = std::str::from_utf8(bytes).unwrap_or_default();
            match UrlParts::read(text) {
                Ok(parts) => {
                    parsed.insert(row);
                    plan.put(row, span, text, &parts, &mut columns);
                    if let (Some(_), Some(query)) = (&plan.parameters, parts.query) {
                        add_parameters(bytes, range_in(text, query), &mut parameters);
                        parameters.end_row(row, span, bytes, false);
                    }
                }
                Err(error) => {
                    let reason = format!("{}: {error}", plan.source);
                    failures.push(row, &self.tag, &reason.into());
                }
            }
        }
        let mut edit = Edit::new();
        for (path, column) in plan.paths.iter().zip(columns) {
            if !column.is_untouched() {
                edit.set(path.clone(), column.finish());
            }
        }
        parameters.finish(plan.parameters.as_ref(), &mut edit);
        if !edit.is_empty() {
            failures.extend_refused(plan.apply(batch, edit, &parsed), &self.tag);
        }
        failures
    }

    fn reads(&self) -> Vec<Arc<FieldRead>> {
        vec![Arc::new(FieldRead::always(self.plan.source.clone()))]
    }
}

impl Plan {
    /// Sets a row of the columns to the parts of its text.
    #[inline]
    fn put(
        &self,
        row: usize,
        span: Span,
        text: &str,
        parts: &UrlParts<'_>,
        columns: &mut [ColumnBuilder; PARTS.len()],
    ) {
        let values = [
            self.keeps_original.then_some(text),
            parts.scheme,
            parts.username,
            parts.password,
            parts.domain,
            None,
            parts.path,
            parts.extension(),
            parts.query,
            parts.fragment,
        ];
        for (column, value) in columns.iter_mut().zip(values) {
            if let Some(value) = value.filter(|value| !value.is_empty()) {
                let (start, end) = range_in(text, value);
                column.set(row, Cell::Text(part(span, start, end)));
            }
        }
        if let Some(port) = parts.port {
            columns[PORT].set(row, Cell::Int(port.into()));
        }
    }

    /// Applies the edit, after the field has become an object if the parts are written below it. A row whose edit is refused keeps
    /// its text.
    fn apply(&self, batch: &mut Batch, edit: Edit, parsed: &Bitmap) -> Vec<(usize, Arc<str>)> {
        if !self.takes_place {
            return batch.apply(edit);
        }
        let before = batch.column(&self.source);
        let mut objects = ColumnBuilder::new(batch.len());
        let object = objects.append(|out| out.extend_from_slice(b"{}"));
        for row in parsed.iter() {
            objects.set(row, Cell::Json(object));
        }
        self.replace(batch, objects.finish());
        let refused = batch.apply(edit);
        if !refused.is_empty() {
            let mut texts = ColumnBuilder::over(batch.len(), before.buffers().clone());
            for (row, _) in &refused {
                texts.set(*row, before.cell(*row));
            }
            self.replace(batch, texts.finish());
        }
        refused
    }

    fn replace(&self, batch: &mut Batch, values: Column) {
        let mut edit = Edit::new();
        edit.set(self.source.clone(), values);
        let refused = batch.apply(edit);
        debug_assert!(refused.is_empty(), "a value that is there can be replaced");
    }
}

/// Adds the parameters of the query that stands in this range of a text.
fn add_parameters<N: Fn(&[u8]) -> Option<String>>(
    text: &[u8],
    (mut start, end): (usize, usize),
    parameters: &mut Keyed<'_, N>,
) {
    while start < end {
        let len = memchr::memchr(b'&', &text[start..end]);
        let pair_end = len.map_or(end, |len| start + len);
        let pair = &text[start..pair_end];
        let key_len = memchr::memchr(b'=', pair).unwrap_or(pair.len());
        let value_start = (start + key_len + 1).min(pair_end);
        let value = &text[value_start..pair_end];
        let location = match memchr::memchr2(b'%', b'+', value) {
            None => ValueLocation::Text(value_start, pair_end),
            Some(_) => {
                let from = parameters.changed.len();
                let value = decoded(value);
                parameters.changed.extend_from_slice(value.as_bytes());
                ValueLocation::Changed(from, parameters.changed.len())
            }
        };
        parameters.add(text, (start, start + key_len), location);
        start = pair_end + 1;
    }
}

/// A name or a value of a parameter without its encoding.
fn decoded(text: &[u8]) -> String {
    let blanks = text
        .iter()
        .map(|byte| if *byte == b'+' { b' ' } else { *byte });
    let blanks: Vec<u8> = blanks.collect();
    let bytes: Vec<u8> = percent_encoding::percent_decode(&blanks).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Where a part of a text stands in it, in bytes.
fn range_in(text: &str, part: &str) -> (usize, usize) {
    let start = part.as_ptr().addr() - text.as_ptr().addr();
    (start, start + part.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{batch_of, build, check, check_errors, lines_of, process};
    use proptest::prelude::*;

    #[test]
    fn urls_have_parts() {
        for (text, parts) in [
            (
                "http://example.com",
                r#""scheme":"http","domain":"example.com""#,
            ),
            (
                "http://example.com/",
                r#""scheme":"http","domain":"example.com","path":"/""#,
            ),
            (
                "HTTPS://Example.COM:443/A",
                r#""scheme":"HTTPS","domain":"Example.COM","port":443,"path":"/A""#,
            ),
            ("http://a:/b", r#""scheme":"http","domain":"a","path":"/b""#),
            (
                "http://ann@a",
                r#""scheme":"http","username":"ann","domain":"a""#,
            ),
            (
                "http://ann:@a",
                r#""scheme":"http","username":"ann","domain":"a""#,
            ),
            (
                "http://[::1]:80/",
                r#""scheme":"http","domain":"::1","port":80,"path":"/""#,
            ),
            (
                "http://[fe80::1%25eth0]",
                r#""scheme":"http","domain":"fe80::1%25eth0""#,
            ),
            (
                "http://[v1.a:b]:/",
                r#""scheme":"http","domain":"v1.a:b","path":"/""#,
            ),
            (
                "file:///etc/x.conf",
                r#""scheme":"file","path":"/etc/x.conf","extension":"conf""#,
            ),
            (
                "mailto:ann@example.com",
                r#""scheme":"mailto","path":"ann@example.com","extension":"com""#,
            ),
            ("/a.b/c?d=e.f", r#""path":"/a.b/c","query":"d=e.f""#),
            ("/.profile", r#""path":"/.profile""#),
            ("/a.", r#""path":"/a.""#),
            ("/a%20b?#", r#""path":"/a%20b""#),
            ("?a=1#b", r#""query":"a=1","fragment":"b""#),
            (
                "http://bücher.example/ü.png?ä",
                r#""scheme":"http","domain":"bücher.example","path":"/ü.png","extension":"png","query":"ä""#,
            ),
            ("*", r#""path":"*""#),
        ] {
            let event = serde_json::json!({ "a": text }).to_string();
            let start = &event[..event.len() - 1];
            let plain = format!("{start},\"url\":{{{parts}}}}}");
            let original = format!("{start},\"t\":{{\"original\":\"{text}\",{parts}}}}}");
            check(
                &SPEC,
                &[
                    ("url a keep_original=false", &event, &plain),
                    ("url a t", &event, &original),
                ],
            );
        }
    }

    #[test]
    fn parameters_are_decoded() {
        for (query, parameters) in [
            ("a=1&b=2", r#"{"a":"1","b":"2"}"#),
            ("a&b=&=c&&d=e=f", r#"{"a":"","b":"","d":"e=f"}"#),
            ("a%3D=%26&b+c=d+%2B", r#"{"a=":"&","b c":"d +"}"#),
            ("a=%zz&b=%", r#"{"a":"%zz","b":"%"}"#),
            ("a=%ff", "{\"a\":\"\u{fffd}\"}"),
            ("a.b=1", r#"{"a.b":"1"}"#),
            ("%61=1&a=2", r#"{"a":["1","2"]}"#),
        ] {
            let event = format!(r#"{{"a":"/?{query}"}}"#);
            let expected = format!(
                r#"{{"a":"/?{query}","url":{{"path":"/","query":"{query}"}},"p":{parameters}}}"#
            );
            let stage = "url a keep_original=false parameters=p";
            check(&SPEC, &[(stage, &event, &expected)]);
        }
    }

    #[test]
    fn fields_that_are_there() {
        check(
            &SPEC,
            &[
                ("url a", r#"{"a":null}"#, r#"{"a":null}"#),
                ("url a", r#"{"b":1}"#, r#"{"b":1}"#),
                (
                    "url url.original",
                    r#"{"url":{"original":"/a","port":1,"x":2}}"#,
                    r#"{"url":{"original":"/a","port":1,"x":2,"path":"/a"}}"#,
                ),
                (
                    "url url parameters=url.p",
                    r#"{"url":"/a?b=c"}"#,
                    r#"{"url":{"original":"/a?b=c","path":"/a","query":"b=c","p":{"b":"c"}}}"#,
                ),
            ],
        );
    }

    const BRACKETS: &str = "a: the text is not a URL: brackets hold an IPv6 address, behind which nothing but a port stands, as in `http://[::1]:80/`";

    #[test]
    fn failures_say_what_is_wrong_and_change_nothing() {
        for (stage, event, reason) in [
            (
                "url a",
                r#"{"a":"example.com"}"#,
                "a: the text is not a URL: it begins with a scheme, as in `https://example.com/a`, or with `/`",
            ),
            (
                "url a",
                r#"{"a":"http://b:70000/"}"#,
                "a: the text is not a URL, whose port is a number",
            ),
            (
                "url a",
                r#"{"a":"http://b:+80/"}"#,
                "a: the text is not a URL, whose port is a number",
            ),
            ("url a", r#"{"a":"http://[::1]evil.com:80/"}"#, BRACKETS),
            ("url a", r#"{"a":"http://[zz]/"}"#, BRACKETS),
            ("url a", r#"{"a":"http://[10.0.0.1]/"}"#, BRACKETS),
            ("url a", r#"{"a":"http://[/"}"#, BRACKETS),
            (
                "url a",
                r#"{"a":""}"#,
                "a: the text is not a URL: it begins with a scheme, as in `https://example.com/a`, or with `/`",
            ),
            (
                "url a",
                r#"{"a":"/","url":"x"}"#,
                "cannot write url.original: there is a value above it that is not an object",
            ),
            (
                "url url parameters=b.c",
                r#"{"url":"/?x=1","b":7}"#,
                "cannot write b.c.x: there is a value above it that is not an object",
            ),
        ] {
            let mut batch = batch_of([r#"{"a":"/","url":"/"}"#, event]);
            let rows = Bitmap::from_fn(batch.len(), |row| row == 1);
            let failures = build(&SPEC, stage).expect(stage).process(&mut batch, &rows);
            let last = failures.rows().last().expect(event);
            assert_eq!(
                (last.row, &*last.tag, &*last.reason),
                (1, FAILURE_TAG, reason)
            );
            assert_eq!(lines_of(&batch)[1], event);
        }
    }

    #[test]
    fn bad_settings_are_refused() {
        check_errors(
            &SPEC,
            &[
                ("url", "field"),
                (
                    "url a parameters=url",
                    "url and url.original cannot both be set",
                ),
                (
                    "url a parameters=url.query.x",
                    "url.query.x and url.query cannot both be set",
                ),
                ("url a keep_original=2", "expected true or false"),
            ],
        );
    }

    proptest! {
        #[test]
        fn parts_come_back(
            user in "([a-z%]{1,4}(:[a-z0-9]{1,4})?@)?",
            domain in "[a-z.]{1,8}",
            port in proptest::option::of(any::<u16>()),
            path in "(/[a-z%.]{0,5}){0,3}",
            query in "(\\?[a-z=&/?]{1,8})?",
            fragment in "(#[a-zé/?#]{1,4})?",
        ) {
            let named = port.map(|port| format!(":{port}")).unwrap_or_default();
            let text = format!("http://{user}{domain}{named}{path}{query}{fragment}");
            let mut batch = batch_of([&*serde_json::json!({ "a": text }).to_string()]);
            process(build(&SPEC, "url a").unwrap().as_mut(), &mut batch);
            let event: serde_json::Value = serde_json::from_str(&lines_of(&batch)[0]).unwrap();
            let found = |name: &str| event["url"][name].as_str().unwrap_or_default();
            let with = |before: &str, name: &str| match found(name) {
                "" => String::new(),
                text => format!("{before}{text}"),
            };
            let at = if user.is_empty() { "" } else { "@" };
            let again = format!(
                "http://{}{}{at}{}{named}{}{}{}",
                found("username"), with(":", "password"), found("domain"), found("path"), with("?", "query"), with("#", "fragment")
            );
            prop_assert_eq!(again, text);
            prop_assert_eq!(event["url"]["port"].as_u64(), port.map(u64::from));
        }
    }
}
