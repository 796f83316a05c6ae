//! The streams of events: their labels, and how many different ones there may be.
//!
//! A stream is a set of labels with their values. Loki keeps an index and a file for each, so that many small ones slow it down.
//! Names: <https://grafana.com/docs/loki/latest/get-started/labels/>; tenants: <https://grafana.com/docs/loki/latest/operations/multi-tenancy/>.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use batch::{Batch, Bitmap, FieldRead};
use config::{ConfigError, Node};
use expr::{Absent, Template};
use parking_lot::Mutex;

use crate::members::Members;
use crate::partition::{Group, partition};

/// A stream without an event for so long is not counted any more. Loki closes it earlier by default (`chunk_idle_period`).
const FORGOTTEN_AFTER: Duration = Duration::from_secs(3600);

/// The longest tenant that Loki accepts, in bytes.
const TENANT_BYTES_MAX: usize = 150;

/// What stands between the labels and the tenant in the name of a destination. Neither holds one.
const BETWEEN: char = '\n';

/// The streams of an output.
pub struct Streams {
    labels: Members,
    tenant: Option<Template>,
    max: usize,
    known: Mutex<HashMap<Arc<str>, Instant>>,
    /// Events of streams beyond the limit.
    rejected: AtomicU64,
}

impl Streams {
    /// Streams with these labels, each a name with the template of its value, as they stand in the settings.
    ///
    /// # Errors
    /// A name or a template cannot be used, at its place.
    pub fn new(
        output: &Node,
        labels: &[(String, String)],
        tenant: Option<&str>,
        max: usize,
    ) -> Result<Self, ConfigError> {
        let at = output.nearest("labels");
        if labels.is_empty() {
            let error =
                at.error("`labels` is missing: Loki needs at least one label for each event");
            return Err(error.note("such as `labels: { host: '%{host.name}' }`"));
        }
        let mut members = Members::default();
        for (name, text) in labels {
            if !is_name(name) {
                let error = at.error(format!("`{name}` cannot be the name of a label"));
                return Err(error.note(
                    "a name consists of letters, digits and `_`, and begins with a letter or a single `_`",
                ));
            }
            members.add(output, at.get(name).unwrap_or(at), name, text)?;
        }
        let tenant = tenant.map(|text| {
            let at = output.nearest("tenant");
            let template = crate::codec::template(output, at, text)?;
            match template
                .constant()
                .and_then(|text| check_tenant(text).err())
            {
                Some(problem) => Err(at.error(problem)),
                None => Ok(template),
            }
        });
        Ok(Self {
            labels: members,
            tenant: tenant.transpose()?,
            max,
            known: Mutex::default(),
            rejected: AtomicU64::new(0),
        })
    }

    /// The fields that its templates name.
    pub fn reads(&self) -> impl Iterator<Item = Arc<FieldRead>> {
        let tenant = self.tenant.iter().flat_map(Template::reads);
        self.labels.reads().chain(tenant)
    }

    /// The rows of a batch by stream.
    pub fn groups(&self, batch: &Batch, rows: &Bitmap) -> Vec<Group> {
        let mut labels = self.labels.bind(batch);
        let tenant = self.tenant.as_ref();
        let mut tenant = tenant.map(|tenant| tenant.bind(batch, Absent::Text("")));
        let render = |row: usize, out: &mut Vec<u8>| {
            labels.write_object(b"", row, out);
            if let Some(tenant) = &mut tenant {
                out.push(BETWEEN as u8);
                tenant.write(row, out);
            }
        };
        let over: Arc<str> = format!(
            "more than {} streams (`max_streams`) were used within an hour: use labels with fewer different values",
            self.max
        )
        .into();
        let groups = partition(batch, rows, render, |name| self.checked(name, &over));
        let is_over = |group: &&Group| {
            let reason = group.destination.as_ref().err();
            reason.is_some_and(|reason| Arc::ptr_eq(reason, &over))
        };
        let rejected: usize = groups
            .iter()
            .filter(is_over)
            .map(|group| group.rows.count())
            .sum();
        self.rejected.fetch_add(rejected as u64, Ordering::Relaxed);
        groups
    }

    fn checked(&self, name: &[u8], over: &Arc<str>) -> Result<Arc<str>, Arc<str>> {
        let name = String::from_utf8_lossy(name);
        let (labels, tenant) = parts(&name);
        if labels.is_empty() {
            return Err("none of the labels of the event has a value".into());
        }
        if let Some(problem) = tenant.and_then(|tenant| check_tenant(tenant).err()) {
            return Err(problem.into());
        }
        let now = Instant::now();
        let mut known = self.known.lock();
        if let Some((_, used)) = known
            .get_key_value(&*name)
            .map(|(name, used)| (name.clone(), used))
        {
            // Written only where that says something new, since the name need not be copied then.
            if now.duration_since(*used) > FORGOTTEN_AFTER / 60 {
                known.insert(name.as_ref().into(), now);
            }
            return Ok(name.into());
        }
        if known.len() >= self.max {
            known.retain(|_, used| now.duration_since(*used) < FORGOTTEN_AFTER);
            if known.len() >= self.max {
                return Err(over.clone());
            }
        }
        let name: Arc<str> = name.into();
        known.insert(name.clone(), now);
        Ok(name)
    }

    /// How many events were rejected since the last call because of the limit.
    pub fn take_rejected(&self) -> u64 {
        self.rejected.swap(0, Ordering::Relaxed)
    }
}

/// The labels of a destination as JSON, and the tenant.
pub fn parts(destination: &str) -> (&str, Option<&str>) {
    match destination.split_once(BETWEEN) {
        Some((labels, tenant)) => (labels, Some(tenant)),
        None => (destination, None),
    }
}

/// Whether a label can have this name. Loki keeps those that begin with two underscores to itself.
pub fn is_name(name: &str) -> bool {
    let letters = name
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    let first = name.bytes().next();
    letters && first.is_some_and(|byte| !byte.is_ascii_digit()) && !name.starts_with("__")
}

fn check_tenant(tenant: &str) -> Result<(), &'static str> {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"!-_.*'()".contains(&byte);
    match tenant {
        "" => Err("the tenant is empty"),
        "." | ".." => Err("`.` and `..` cannot be tenants"),
        _ if tenant.len() > TENANT_BYTES_MAX => Err("the tenant is longer than 150 bytes"),
        _ if !tenant.bytes().all(is_allowed) => {
            Err("a tenant consists of letters, digits and `!-_.*'()`")
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    fn streams(labels: &[(&str, &str)], tenant: Option<&str>, max: usize) -> Streams {
        let node = config::parse_yaml(&config::Source::new("t.yaml", "{}")).expect("YAML");
        let owned = |(name, text): &(&str, &str)| (name.to_string(), text.to_string());
        let labels: Vec<_> = labels.iter().map(owned).collect();
        Streams::new(&node, &labels, tenant, max).expect("they can be used")
    }

    fn shown(streams: &Streams, documents: &[&str]) -> Vec<(String, Vec<usize>)> {
        let batch = testing::documents(documents);
        let groups = streams.groups(&batch, batch.alive()).into_iter();
        let text = |group: Group| {
            let name = match group.destination {
                Ok(name) => name.replace('\n', " of "),
                Err(reason) => format!("! {reason}"),
            };
            (name, group.rows.iter().collect())
        };
        groups.map(text).collect()
    }

    #[test]
    fn events_with_the_same_labels_are_of_one_stream() {
        let streams = streams(&[("app", "%{app}"), ("job", "x")], Some("t-%{t}"), 10);
        let documents = [
            r#"{"app":"a\"b","t":1}"#,
            r#"{"app":"c","t":1}"#,
            r#"{"t":1}"#,
            r#"{"app":"c","t":1}"#,
            r#"{"app":"c","t":"/"}"#,
        ];
        let expected = [
            (r#"{"app":"a\"b","job":"x"} of t-1"#, vec![0]),
            (r#"{"app":"c","job":"x"} of t-1"#, vec![1, 3]),
            (r#"{"job":"x"} of t-1"#, vec![2]),
            (
                "! a tenant consists of letters, digits and `!-_.*'()`",
                vec![4],
            ),
        ];
        let expected = expected.map(|(name, rows)| (name.to_owned(), rows));
        assert_eq!(shown(&streams, &documents), expected);
    }

    #[test]
    fn streams_beyond_the_limit_are_rejected_and_counted() {
        let streams = streams(&[("a", "%{a}")], None, 2);
        let documents = [r#"{"a":1}"#, r#"{"a":2}"#, r#"{"a":3}"#, r#"{"a":3}"#, "{}"];
        for _ in 0..2 {
            let found = shown(&streams, &documents);
            assert_eq!(found[0].0, r#"{"a":"1"}"#);
            assert_eq!(found[1].0, r#"{"a":"2"}"#);
            assert!(found[2].0.starts_with("! more than 2 streams"), "{found:?}");
            assert_eq!(found[2].1, [2, 3]);
            assert!(found[3].0.starts_with("! none of the labels"), "{found:?}");
            assert_eq!(streams.take_rejected(), 2);
        }
        // One that had no event for long makes room.
        let long_ago = Instant::now().checked_sub(FORGOTTEN_AFTER * 2);
        let long_ago = long_ago.unwrap_or_else(Instant::now);
        streams.known.lock().insert(r#"{"a":"1"}"#.into(), long_ago);
        if long_ago.elapsed() > FORGOTTEN_AFTER {
            assert_eq!(shown(&streams, &[r#"{"a":3}"#])[0].0, r#"{"a":"3"}"#);
        }
    }

    #[test]
    fn names_of_labels_are_those_that_loki_accepts() {
        for name in ["a", "_a", "A1_b", "level"] {
            assert!(is_name(name), "{name}");
        }
        for name in ["", "1a", "a-b", "a.b", "ä", "__a", "a b", "a:b"] {
            assert!(!is_name(name), "{name}");
        }
    }
}
