//! Where a request goes: its address, and the headers that differ from event to event.
//!
//! What a field gives can change neither the host nor the number of path segments: templates stand in the path and the
//! query only, and everything but letters, digits, `-`, `.`, `_` and `~` is percent-encoded (RFC 3986, section 2.3). A
//! value of dots only would be taken out of a path (WHATWG URL, "double-dot path segment"), and becomes `_`. In headers control
//! characters become spaces.

use std::sync::Arc;

use batch::{Batch, Bitmap, FieldRead};
use config::{ConfigError, Node};
use expr::Template;
use http::header::{CONNECTION, CONTENT_LENGTH, HOST, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderName, HeaderValue};
use net::client::{reqwest::Url, url};

use crate::codec::ABSENT;
use crate::partition::{Group, partition};

/// The most bytes of an address: what common servers take.
const URL_BYTES_MAX: usize = 8000;

/// What stands between the address and the values of headers in the name of a destination. Neither holds one.
const BETWEEN: char = '\n';

/// Where requests go.
#[derive(Debug)]
pub enum Target {
    /// All to the same place with the same headers.
    Fixed(Box<Url>),
    /// As each event says.
    ByEvent(ByEvent),
}

/// An address and headers of which at least one is made of each event.
#[derive(Debug)]
pub struct ByEvent {
    url: Template,
    headers: Vec<(HeaderName, Template)>,
    /// The address without path, for messages.
    origin: String,
    has_fixed_url: bool,
}

impl Target {
    /// Reads the address of `node`, and the templates among its headers.
    ///
    /// # Errors
    /// One of them cannot be used, with its place.
    pub fn new(node: &Node, address: &str) -> Result<Self, ConfigError> {
        let at = node.nearest("url");
        let template = crate::codec::template(node, at, address)?;
        if address.contains('#') {
            return Err(at.error("the URL cannot contain a fragment (`#`)"));
        }
        let headers = match node.get("headers") {
            Some(headers) => templates(node, headers)?,
            None => Vec::new(),
        };
        let fixed = template
            .constant()
            .map(|fixed| url(at, fixed))
            .transpose()?;
        let origin = match &fixed {
            Some(url) => origin(url),
            None => origin(&authority(at, template.prefix())?),
        };
        match fixed {
            Some(url) if headers.is_empty() => Ok(Self::Fixed(Box::new(url))),
            fixed => Ok(Self::ByEvent(ByEvent {
                url: template,
                headers,
                origin,
                has_fixed_url: fixed.is_some(),
            })),
        }
    }

    /// Scheme, host and port, without what may be secret behind them.
    pub fn origin(&self) -> String {
        match self {
            Self::Fixed(url) => origin(url),
            Self::ByEvent(target) => target.origin.clone(),
        }
    }

    /// The fields that its templates name.
    pub fn reads(&self) -> Vec<Arc<FieldRead>> {
        let Self::ByEvent(target) = self else {
            return Vec::new();
        };
        let headers = target.headers.iter().map(|(_, template)| template);
        let templates = std::iter::once(&target.url).chain(headers);
        templates.flat_map(Template::reads).collect()
    }

    /// Whether requests are encrypted.
    pub fn is_https(&self) -> bool {
        self.origin().starts_with("https:")
    }

    /// Whether events have no say in the address.
    pub fn has_fixed_url(&self) -> bool {
        match self {
            Self::Fixed(_) => true,
            Self::ByEvent(target) => target.has_fixed_url,
        }
    }

    /// The address and the headers that a destination of [`ByEvent::groups`] stands for. None where it is no such.
    pub fn resolve(&self, destination: &str) -> Option<(Url, HeaderMap)> {
        let target = match self {
            Self::Fixed(url) => return Some(((**url).clone(), HeaderMap::new())),
            Self::ByEvent(target) => target,
        };
        let mut parts = destination.split(BETWEEN);
        let url = Url::parse(parts.next()?).ok()?;
        let values = target.headers.iter().zip(parts);
        let headers = values.map(|((name, _), value)| {
            let mut value = HeaderValue::try_from(value).ok()?;
            value.set_sensitive(true);
            Some((name.clone(), value))
        });
        Some((url, headers.collect::<Option<_>>()?))
    }
}

impl ByEvent {
    /// The rows of a batch by destination.
    pub fn groups(&self, batch: &Batch, rows: &Bitmap) -> Vec<Group> {
        let mut url = self.url.bind(batch, ABSENT);
        let headers = self.headers.iter();
        let mut headers: Vec<_> = headers
            .map(|(_, template)| template.bind(batch, ABSENT))
            .collect();
        let render = |row: usize, out: &mut Vec<u8>| {
            url.write_with(row, out, encode);
            for header in &mut headers {
                out.push(BETWEEN as u8);
                header.write_with(row, out, |out, start| without_controls(out, start));
            }
        };
        partition(batch, rows, render, checked)
    }
}

fn origin(url: &Url) -> String {
    url.origin().ascii_serialization()
}

/// The address up to its path, which stands before the first field or time.
fn authority(at: &Node, prefix: &str) -> Result<Url, ConfigError> {
    let host = prefix.find("://").map_or(prefix, |at| &prefix[at + 3..]);
    if host.is_empty() || !host.contains(['/', '?']) {
        let error =
            at.error("fields and times are only allowed in the path and the query of a URL");
        return Err(error.note(
            "otherwise an event could choose the server that receives credentials and other events",
        ));
    }
    url(at, prefix)
}

/// The headers whose values hold fields or times, all names checked.
fn templates(output: &Node, node: &Node) -> Result<Vec<(HeaderName, Template)>, ConfigError> {
    let mut templates = Vec::new();
    for (key, value) in node.as_map().unwrap_or_default() {
        let (Some(name), Some(text)) = (key.as_str(), value.as_str()) else {
            continue;
        };
        let header = HeaderName::try_from(name)
            .map_err(|_| key.error(format!("`{name}` is not the name of a header")))?;
        if [CONNECTION, CONTENT_LENGTH, HOST, TRANSFER_ENCODING].contains(&header) {
            return Err(key.error(format!("the header `{name}` cannot be set")));
        }
        if is_template(text) {
            let template = crate::codec::template(output, value, text);
            let template = template.map_err(ConfigError::hiding_value)?;
            if template
                .constant()
                .is_some_and(|text| text.contains(BETWEEN))
            {
                return Err(value
                    .error("a header cannot contain a newline")
                    .hiding_value());
            }
            templates.push((header, template));
        }
    }
    Ok(templates)
}

/// Whether the value of a header is a template. Another one is sent as it is, percent signs included.
pub fn is_template(value: &str) -> bool {
    value.contains("%{")
}

/// Percent-encodes what a field gave, from `start` on.
fn encode(out: &mut Vec<u8>, start: usize) {
    let value = &out[start..];
    if !value.is_empty() && value.iter().all(|&byte| byte == b'.') {
        out.truncate(start);
        out.push(b'_');
        return;
    }
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~".contains(byte);
    if value.iter().all(is_plain) {
        return;
    }
    for byte in out.split_off(start) {
        match is_plain(&byte) {
            true => out.push(byte),
            false => out.extend([b'%', hex(byte >> 4), hex(byte & 15)]),
        }
    }
}

fn hex(digit: u8) -> u8 {
    b"0123456789ABCDEF"[usize::from(digit)]
}

fn without_controls(out: &mut [u8], start: usize) {
    for byte in &mut out[start..] {
        if byte.is_ascii_control() {
            *byte = b' ';
        }
    }
}

fn checked(destination: &[u8]) -> Result<Arc<str>, Arc<str>> {
    let destination = std::str::from_utf8(destination).map_err(|_| "the URL is not valid UTF-8")?;
    let url = destination.split(BETWEEN).next().unwrap_or_default();
    if url.len() > URL_BYTES_MAX {
        let len = url.len();
        return Err(
            format!("the URL has {len} bytes, but at most {URL_BYTES_MAX} are allowed").into(),
        );
    }
    Url::parse(url).map_err(|error| format!("the URL is invalid: {error}"))?;
    let mut values = destination.split(BETWEEN).skip(1);
    if values.any(|value| HeaderValue::try_from(value).is_err()) {
        return Err("the value of a header contains characters that are not allowed".into());
    }
    Ok(destination.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    fn target(yaml: &str) -> Result<Target, ConfigError> {
        let source = config::Source::new("t.yaml", yaml);
        let node = config::parse_yaml(&source).expect("YAML");
        let address = node.get("url").and_then(Node::as_str).expect("an address");
        Target::new(&node, address)
    }

    /// What each row of the documents is sent to: the address, and the headers.
    fn sent(yaml: &str, documents: &[&str]) -> Vec<(String, Vec<usize>)> {
        let target = target(yaml).expect("it can be used");
        let Target::ByEvent(by_event) = &target else {
            panic!("events have a say in it")
        };
        let batch = testing::documents(documents);
        let groups = by_event.groups(&batch, batch.alive());
        let shown = groups.into_iter().map(|group| {
            let destination = group.destination.expect("it can be sent to");
            let (url, headers) = target.resolve(&destination).expect("it is one of its own");
            let headers = headers.iter().map(|(name, value)| {
                let value = String::from_utf8_lossy(value.as_bytes());
                format!(" {name}={value}")
            });
            let text = format!("{url}{}", headers.collect::<String>());
            (text, group.rows.iter().collect())
        });
        shown.collect()
    }

    #[test]
    fn a_value_changes_neither_host_nor_path() {
        for (value, expected) in [
            ("a-b_c.d~1", "a-b_c.d~1"),
            ("a/b?c#d", "a%2Fb%3Fc%23d"),
            ("..", "_"),
            (".", "_"),
            ("../x", "..%2Fx"),
            ("50% größer", "50%25%20gr%C3%B6%C3%9Fer"),
            ("x\\n@evil.example", "x%0A%40evil.example"),
            ("", ""),
        ] {
            let document = format!(r#"{{"a":"{value}"}}"#);
            let found = sent("url: 'http://h:1/x/%{a}/y?q=%{a}'", &[&document]);
            let expected = format!("http://h:1/x/{expected}/y?q={expected}");
            assert_eq!(found, [(expected, vec![0])], "{value}");
        }
    }

    #[test]
    fn events_are_sent_apart_where_address_or_headers_differ() {
        let documents = [
            r#"{"a":"x","b":"1"}"#,
            r#"{"a":"y","b":"1"}"#,
            r#"{"a":"x","b":"1"}"#,
            r#"{"a":"x","b":"2\r\nEvil: 1"}"#,
            r#"{"a":null}"#,
        ];
        let yaml = "{url: 'http://h/%{a}', headers: {X-B: 'b %{b}', X-Fixed: '100%'}}";
        let expected = [
            ("http://h/x x-b=b 1", vec![0, 2]),
            ("http://h/y x-b=b 1", vec![1]),
            ("http://h/x x-b=b 2  Evil: 1", vec![3]),
            ("http://h/- x-b=b -", vec![4]),
        ];
        let expected = expected.map(|(text, rows)| (text.to_owned(), rows));
        assert_eq!(sent(yaml, &documents), expected);
        let fixed = sent(
            "{url: 'http://h/', headers: {X-B: '%{b}'}}",
            &documents[..1],
        );
        assert_eq!(fixed, [("http://h/ x-b=1".to_owned(), vec![0])]);
    }

    #[test]
    fn an_address_that_is_too_long_refuses_its_row_only() {
        let long = format!(r#"{{"a":"{}"}}"#, "x".repeat(8000));
        let batch = testing::documents(&[r#"{"a":"x"}"#, &long]);
        let Ok(Target::ByEvent(target)) = target("url: 'http://h/%{a}'") else {
            panic!("events have a say in it")
        };
        let groups = target.groups(&batch, batch.alive());
        assert!(groups[0].destination.is_ok());
        let reason = groups[1].destination.as_ref().expect_err("too long");
        assert!(reason.contains("8009 bytes"), "{reason}");
    }

    #[test]
    fn addresses_that_cannot_work_are_refused_at_their_place() {
        for (yaml, place, part) in [
            ("url: localhost:80", "1:6", "such as http://localhost:9200"),
            ("url: ''", "1:6", "invalid URL"),
            ("url: 'http://h/%{a'", "1:16", "is not closed"),
            ("url: 'http://%{host}/'", "1:6", "in the path and the query"),
            ("url: '%{url}'", "1:6", "in the path and the query"),
            ("url: 'http://h%{n}/x'", "1:6", "in the path and the query"),
            ("url: 'http://u:hunter2@h/%{a}'", "1:", "use `auth`"),
            ("url: 'http://h/x#%{a}'", "1:6", "cannot contain a fragment"),
            (
                "{url: 'http://h/', headers: {'a b': x}}",
                "1:30",
                "is not the name of a header",
            ),
            (
                "{url: 'http://h/', headers: {host: x}}",
                "1:30",
                "cannot be set",
            ),
            (
                "{url: 'http://h/', headers: {x: 'hunter2 %{'}}",
                "1:42",
                "is not closed",
            ),
        ] {
            let error = target(yaml).expect_err(yaml).to_string();
            assert!(
                error.contains(&format!("t.yaml:{place}")) && error.contains(part),
                "{yaml}: {error}"
            );
            assert!(!error.contains("hunter2"), "{error}");
        }
    }
}
