//! Where documents go: the name of a data stream or of an index.
//!
//! A name made of fields is put into the form that Elasticsearch demands: what fields give is in lower case, and `_` stands for
//! every character that no name may have. So a field can neither choose another path of the server's nor make documents fail
//! because a host is called `WEB-1`. A name that cannot be mended so refuses its documents.
//! Rules: <https://www.elastic.co/docs/api/doc/elasticsearch/operation/operation-indices-create>.
//!
//! The time in a name is the event's own. An event without one gets 1970-01-01: the time at which it was read differs when
//! it is read again, and would put a repeated event into another index, where it is stored a second time.

use std::sync::Arc;

use batch::{Batch, Bitmap, FieldRead};
use config::{ConfigError, Node};
use expr::{Absent, Template};
use net::client::reqwest::Url;

use crate::hosts::below;
use crate::partition::{Group, partition};

/// What an absent field gives in a name, which may not begin with `-`.
const ABSENT: Absent = Absent::Text("unknown");

/// The time of an event that has none, for names.
const UNDATED: i64 = 0;

const NAME_BYTES_MAX: usize = 255;

/// Where documents go.
#[derive(Debug)]
pub struct Target {
    name: Name,
    is_data_stream: bool,
}

#[derive(Debug)]
enum Name {
    Fixed(Arc<str>),
    ByEvent(Template),
}

impl Target {
    /// The fields that its name is made of.
    pub fn reads(&self) -> impl Iterator<Item = Arc<FieldRead>> {
        let template = match &self.name {
            Name::Fixed(_) => None,
            Name::ByEvent(template) => Some(template),
        };
        template.into_iter().flat_map(Template::reads)
    }

    /// The data stream or index of this name, which stands in a setting of the output.
    ///
    /// # Errors
    /// It cannot be a name, with its place.
    pub fn new(
        output: &Node,
        setting: &Node,
        name: &str,
        is_data_stream: bool,
    ) -> Result<Self, ConfigError> {
        let template = crate::codec::template(output, setting, name)?;
        check(&template.with_each("x")).map_err(|problem| {
            let kind = match is_data_stream {
                true => "data stream",
                false => "index",
            };
            setting.error(format!(
                "`{name}` cannot be the name of a {kind}: it {problem}"
            ))
        })?;
        let name = match template.constant() {
            Some(name) => Name::Fixed(name.into()),
            None => Name::ByEvent(template),
        };
        Ok(Self {
            name,
            is_data_stream,
        })
    }

    /// Whether documents need an `@timestamp`, and nothing but `create` works.
    pub fn is_data_stream(&self) -> bool {
        self.is_data_stream
    }

    /// Whether events have no say in the name.
    pub fn is_fixed(&self) -> bool {
        matches!(self.name, Name::Fixed(_))
    }

    /// The name with this text in the place of everything that events have a say in.
    pub fn with_each(&self, place: &str) -> String {
        match &self.name {
            Name::Fixed(name) => name.to_string(),
            Name::ByEvent(template) => template.with_each(place),
        }
    }

    /// The rows of a batch by name; none where all have the same.
    pub fn groups(&self, batch: &Batch, rows: &Bitmap) -> Option<Vec<Group>> {
        let Name::ByEvent(template) = &self.name else {
            return None;
        };
        let mut bound = template.bind(batch, ABSENT).undated(UNDATED);
        let render = |row: usize, name: &mut Vec<u8>| {
            bound.write_with(row, name, clean);
        };
        Some(partition(batch, rows, render, checked))
    }

    /// The address for documents that go to this destination, on a host.
    pub fn url(&self, host: &Url, destination: &str) -> Url {
        let name = match &self.name {
            Name::Fixed(name) => name,
            Name::ByEvent(_) => destination,
        };
        below(host, &[name, "_bulk"])
    }
}

fn is_forbidden(letter: char) -> bool {
    letter.is_control() || letter.is_whitespace() || "\\/*?\"<>|,#:".contains(letter)
}

/// Puts what a field gave, from `start` on, into the form that names have.
fn clean(name: &mut Vec<u8>, start: usize) {
    let is_plain = |byte: &u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'.' | b'_' | b'-');
    if name[start..].iter().all(is_plain) {
        return;
    }
    let text = String::from_utf8_lossy(&name[start..]).to_lowercase();
    name.truncate(start);
    let letters = text.chars();
    let text: String = letters
        .map(|letter| if is_forbidden(letter) { '_' } else { letter })
        .collect();
    name.extend_from_slice(text.as_bytes());
}

fn checked(name: &[u8]) -> Result<Arc<str>, Arc<str>> {
    let name = std::str::from_utf8(name).map_err(|_| "the name of its index is not UTF-8")?;
    match check(name) {
        Ok(()) => Ok(name.into()),
        Err(problem) => Err(format!(
            "`{}` cannot be the name of its index: it {problem}",
            shown(name)
        )
        .into()),
    }
}

fn shown(name: &str) -> &str {
    &name[..name.floor_char_boundary(100)]
}

/// What is wrong with a name.
fn check(name: &str) -> Result<(), String> {
    if name.is_empty() {
        return Err("is empty".to_owned());
    }
    if name.len() > NAME_BYTES_MAX {
        let len = name.len();
        return Err(format!(
            "has {len} bytes, but at most {NAME_BYTES_MAX} are allowed"
        ));
    }
    if matches!(name, "." | "..") {
        return Err("is a directory's".to_owned());
    }
    if let Some(first) = name.chars().next().filter(|first| "-_+".contains(*first)) {
        return Err(format!("begins with `{first}`"));
    }
    if let Some(letter) = name.chars().find(|letter| is_forbidden(*letter)) {
        return Err(format!("holds `{}`", letter.escape_debug()));
    }
    if name.to_lowercase() != name {
        return Err("is not lower case".to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    fn target(name: &str) -> Result<Target, ConfigError> {
        let source = config::Source::new("t.yaml", format!("index: '{name}'"));
        let node = config::parse_yaml(&source).expect("YAML");
        Target::new(&node, node.nearest("index"), name, false)
    }

    fn names(name: &str, documents: &[&str]) -> Vec<(Result<String, String>, Vec<usize>)> {
        let batch = testing::documents(documents);
        let target = target(name).expect("it can be used");
        let groups = target
            .groups(&batch, batch.alive())
            .expect("events have a say");
        let text = |text: Arc<str>| text.to_string();
        groups
            .into_iter()
            .map(|group| {
                (
                    group.destination.map(text).map_err(text),
                    group.rows.iter().collect(),
                )
            })
            .collect()
    }

    #[test]
    fn fields_and_the_events_own_time_make_names() {
        let documents = [
            r#"{"a":"web","@timestamp":"2024-02-29T23:59:59Z"}"#,
            r#"{"a":"WEB-1 Ä/*","@timestamp":"2024-03-01T00:00:00+02:00"}"#,
            r#"{"@timestamp":"no time"}"#,
            r#"{"a":null}"#,
        ];
        let expected = [
            ("logs-web-2024.02.29", vec![0]),
            ("logs-web-1_ä__-2024.02.29", vec![1]),
            ("logs-unknown-1970.01.01", vec![2, 3]),
        ];
        let expected = expected.map(|(name, rows)| (Ok(name.to_owned()), rows));
        assert_eq!(names("logs-%{a}-%{+yyyy.MM.dd}", &documents), expected);
    }

    #[test]
    fn a_name_that_cannot_be_one_refuses_its_rows_only() {
        let long = format!(r#"{{"a":"{}"}}"#, "x".repeat(300));
        let found = names(
            "%{a}",
            &[
                r#"{"a":"fine"}"#,
                r#"{"a":"-x"}"#,
                r#"{"a":".."}"#,
                r#"{"a":""}"#,
                &long,
            ],
        );
        let reasons = ["begins with `-`", "a directory's", "is empty", "300 bytes"];
        assert_eq!(found[0], (Ok("fine".to_owned()), vec![0]));
        for ((name, _), reason) in found[1..].iter().zip(reasons) {
            let said = name.as_ref().expect_err("it cannot be a name");
            assert!(said.contains(reason), "{said}");
        }
    }

    #[test]
    fn addresses_keep_the_path_of_the_host() {
        for (host, name, destination, expected) in [
            ("http://h:9200", "logs", "", "http://h:9200/logs/_bulk"),
            (
                "http://h:9200/es/",
                "logs",
                "",
                "http://h:9200/es/logs/_bulk",
            ),
            (
                "http://h/es",
                "%{a}",
                "größe",
                "http://h/es/gr%C3%B6%C3%9Fe/_bulk",
            ),
        ] {
            let host = Url::parse(host).expect("an address");
            let url = target(name).expect("a name").url(&host, destination);
            assert_eq!(url.as_str(), expected);
        }
    }

    #[test]
    fn names_that_cannot_work_are_refused_at_their_place() {
        for (name, place, part) in [
            ("", "1:8", "is empty"),
            ("Logs", "1:8", "lower case"),
            ("Logs-%{a}", "1:8", "lower case"),
            ("-logs", "1:8", "begins with `-`"),
            ("a b", "1:8", "holds ` `"),
            ("logs/%{a}", "1:8", "holds `/`"),
            ("logs-%{a", "1:14", "is not closed"),
        ] {
            let error = target(name).expect_err(name).to_string();
            let place = format!("t.yaml:{place}");
            assert!(
                error.contains(&place) && error.contains(part),
                "{name}: {error}"
            );
        }
    }
}
