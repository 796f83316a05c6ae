//! What the events of a profile look like.

use std::collections::BTreeMap;

use profiler::Profile;
use profiler::advice::{self, Rule};
use profiler::breakdown::{Function, Key, Row, breakdown};
use profiler::cost::{Cost, Rates};
use profiler::profile::{FrameKind, LabelsId, StackId, Weight, label};
use serde::Serialize;

/// What stands for the rows that are not shown.
const OTHER: &str = "(other)";

/// What events are made.
#[derive(Debug)]
pub(super) enum Layout {
    /// Rows of the list of the costliest functions.
    Top(TopLayout),
    /// Distinct stacks with their labels.
    Samples,
}

/// Which rows, and what a core costs.
#[derive(Debug)]
pub(super) struct TopLayout {
    /// What has a row of its own.
    pub(super) key: Key,
    /// How many rows there are at most, without that of the others.
    pub(super) max_rows: usize,
    /// What a core costs.
    pub(super) rates: Rates,
}

impl Layout {
    /// What tells events apart that come of the same profile with other settings.
    pub(super) fn identity(&self) -> String {
        match self {
            Self::Samples => "samples".to_owned(),
            Self::Top(TopLayout { key, max_rows, .. }) => {
                let labels = key.labels.join(",");
                format!("top {labels} {} {max_rows}", key.is_by_function)
            }
        }
    }

    /// Makes the documents of a profile, in an order that follows from its content, until `each` fails.
    ///
    /// # Errors
    /// What `each` gives.
    pub(super) fn documents<E>(
        &self,
        profile: &Profile,
        path: Option<&str>,
        mut each: impl FnMut(&Document<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let window_ns = profile.window.duration_ns;
        let common = Common {
            window: (window_ns > 0).then(|| Length {
                seconds: window_ns as f64 / 1e9,
            }),
            log: path.map(|path| Log {
                file: LogFile { path },
            }),
        };
        match self {
            Self::Top(layout) => layout.documents(profile, &common, &mut each),
            Self::Samples => samples(profile, &common, &mut each),
        }
    }
}

impl TopLayout {
    fn documents<E>(
        &self,
        profile: &Profile,
        common: &Common<'_>,
        each: &mut impl FnMut(&Document<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let found = breakdown(profile, &self.key);
        let host = only_host(profile);
        let (shown, others) = found.rows.split_at(found.rows.len().min(self.max_rows));
        let mut rest = found.all;
        for row in shown {
            each(&self.document(row, found.all, profile, common, host))?;
            rest = less(rest, row.own);
        }
        if others.is_empty() || rest == Weight::default() {
            return Ok(());
        }
        let labels = self.key.labels.iter().map(|name| (&**name, OTHER));
        each(&Document {
            common,
            labels: Labels::new(labels).on(host),
            code: self.key.is_by_function.then_some(Code {
                function: OTHER,
                binary: None,
                kind: None,
                advice: None,
            }),
            content: Content::Top(Times {
                own: Time::new(rest, found.all),
                total: None,
                a_year: self.a_year(rest, profile),
                other_rows: Some(others.len()),
            }),
        })
    }

    fn document<'d>(
        &'d self,
        row: &'d Row,
        all: Weight,
        profile: &Profile,
        common: &'d Common<'d>,
        host: Option<&'d str>,
    ) -> Document<'d> {
        let names = self.key.labels.iter().map(|name| &**name);
        let labels = names.zip(row.labels.iter().map(|value| &**value));
        Document {
            common,
            labels: Labels::new(labels).on(host),
            code: row.function.as_ref().map(Code::of),
            content: Content::Top(Times {
                own: Time::new(row.own, all),
                total: Some(Time::new(row.total, all)),
                a_year: self.a_year(row.own, profile),
                other_rows: None,
            }),
        }
    }

    /// What a row costs is its own time, so that rows add up.
    fn a_year(&self, weight: Weight, profile: &Profile) -> Option<Yearly> {
        let window_ns = profile.window.duration_ns;
        (window_ns > 0).then(|| {
            let cost = Cost::a_year(weight, window_ns, &self.rates);
            Yearly {
                core_hours: cost.core_hours,
                usd: cost.usd,
                co2_tonnes: cost.co2_tonnes,
            }
        })
    }
}

fn samples<E>(
    profile: &Profile,
    common: &Common<'_>,
    each: &mut impl FnMut(&Document<'_>) -> Result<(), E>,
) -> Result<(), E> {
    let all = profile.total();
    for (stack, labels, weight) in profile.samples() {
        let (names, leaf) = names(profile, stack);
        each(&Document {
            common,
            labels: Labels::new(profile.labels_of(labels)),
            code: leaf.as_ref().map(Code::of),
            content: Content::Sample {
                stack: &names,
                time: Time::new(weight, all),
            },
        })?;
    }
    Ok(())
}

/// The functions of a stack, from the outermost on, and the innermost one.
fn names(profile: &Profile, stack: StackId) -> (Vec<String>, Option<Function>) {
    let frames = profile.frame_ids(stack);
    let frames = frames.map(|frame| profile.frame_of(frame));
    let mut names: Vec<String> = frames.map(|frame| frame.name().into_owned()).collect();
    names.reverse();
    let leaf = profile.split(stack).map(|(frame, _)| {
        let frame = profile.frame_of(frame);
        Function {
            name: frame.name().into_owned(),
            binary: frame.binary.to_string(),
            kind: frame.kind(),
        }
    });
    (names, leaf)
}

/// The host of all samples; none where they have several, or none.
fn only_host(profile: &Profile) -> Option<&str> {
    let host = |set: LabelsId| profile.label_of(set, label::HOST);
    let mut hosts = profile.samples().map(|(_, labels, _)| host(labels));
    let first = hosts.next()??;
    hosts.all(|host| host == Some(first)).then_some(first)
}

fn less(from: Weight, what: Weight) -> Weight {
    Weight {
        samples: from.samples.saturating_sub(what.samples),
        cpu_ns: from.cpu_ns.saturating_sub(what.cpu_ns),
    }
}

/// An event.
#[derive(Debug, Serialize)]
pub(super) struct Document<'d> {
    #[serde(flatten)]
    common: &'d Common<'d>,
    #[serde(flatten)]
    labels: Labels<'d>,
    #[serde(flatten)]
    code: Option<Code<'d>>,
    #[serde(flatten)]
    content: Content<'d>,
}

/// What all events of a profile have.
#[derive(Debug, Serialize)]
struct Common<'d> {
    #[serde(skip_serializing_if = "Option::is_none")]
    window: Option<Length>,
    #[serde(skip_serializing_if = "Option::is_none")]
    log: Option<Log<'d>>,
}

#[derive(Debug, Serialize)]
struct Length {
    seconds: f64,
}

#[derive(Debug, Serialize)]
struct Log<'d> {
    file: LogFile<'d>,
}

#[derive(Debug, Serialize)]
struct LogFile<'d> {
    path: &'d str,
}

/// Labels that are set. Names that the tools do not know are below `labels`.
#[derive(Debug, Default, Serialize)]
struct Labels<'d> {
    #[serde(skip_serializing_if = "Option::is_none")]
    host: Option<HostName<'d>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    service: Option<&'d str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    container: Option<&'d str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    process: Option<&'d str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pid: Option<Pid<'d>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thread: Option<&'d str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pipeline: Option<&'d str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    operator: Option<&'d str>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    labels: BTreeMap<String, &'d str>,
}

#[derive(Debug, Serialize)]
struct HostName<'d> {
    name: &'d str,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Pid<'d> {
    Number(u32),
    Text(&'d str),
}

impl<'d> Labels<'d> {
    fn new(labels: impl Iterator<Item = (&'d str, &'d str)>) -> Self {
        let mut all = Self::default();
        for (name, value) in labels.filter(|(_, value)| !value.is_empty()) {
            match name {
                label::HOST => all.host = Some(HostName { name: value }),
                label::SERVICE => all.service = Some(value),
                label::CONTAINER => all.container = Some(value),
                label::PROCESS => all.process = Some(value),
                label::PID => all.pid = Some(Pid::of(value)),
                label::THREAD => all.thread = Some(value),
                label::PIPELINE => all.pipeline = Some(value),
                label::OPERATOR => all.operator = Some(value),
                name => {
                    all.labels.insert(plain(name), value);
                }
            }
        }
        all
    }

    /// With this host where there is no other.
    fn on(mut self, host: Option<&'d str>) -> Self {
        self.host = self.host.or(host.map(|name| HostName { name }));
        self
    }
}

impl<'d> Pid<'d> {
    fn of(text: &'d str) -> Self {
        text.parse().map_or(Self::Text(text), Self::Number)
    }
}

/// A name that is a key as it stands: neither dots nor characters that JSON escapes.
fn plain(name: &str) -> String {
    let is_plain = |letter: &char| letter.is_alphanumeric() || matches!(letter, '_' | '-' | '/');
    let letters = name.chars();
    let name: String = letters
        .map(|letter| if is_plain(&letter) { letter } else { '_' })
        .collect();
    if name.is_empty() {
        return "_".to_owned();
    }
    name
}

/// The function of an event, in samples the innermost one.
#[derive(Debug, Serialize)]
struct Code<'d> {
    function: &'d str,
    #[serde(skip_serializing_if = "Option::is_none")]
    binary: Option<&'d str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    advice: Option<Advice>,
}

impl<'d> Code<'d> {
    fn of(function: &'d Function) -> Self {
        let binary = &*function.binary;
        Self {
            function: &function.name,
            binary: (!binary.is_empty()).then_some(binary),
            kind: Some(match function.kind {
                FrameKind::Kernel => "kernel",
                FrameKind::Native => "native",
                FrameKind::Interpreted => "interpreted",
            }),
            advice: advice::of_names(&function.name, binary).map(Advice::of),
        }
    }
}

#[derive(Debug, Serialize)]
struct Advice {
    title: &'static str,
    text: &'static str,
    url: &'static str,
}

impl Advice {
    fn of(rule: &'static Rule) -> Self {
        Self {
            title: rule.title,
            text: rule.advice,
            url: rule.source_url,
        }
    }
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Content<'d> {
    Top(Times),
    Sample {
        stack: &'d [String],
        #[serde(flatten)]
        time: Time,
    },
}

#[derive(Debug, Serialize)]
struct Times {
    #[serde(rename = "self")]
    own: Time,
    #[serde(skip_serializing_if = "Option::is_none")]
    total: Option<Time>,
    #[serde(skip_serializing_if = "Option::is_none")]
    a_year: Option<Yearly>,
    /// How many rows the row of the others stands for.
    #[serde(skip_serializing_if = "Option::is_none")]
    other_rows: Option<usize>,
}

#[derive(Debug, Serialize)]
struct Time {
    samples: u64,
    cpu_ns: u64,
    share: f64,
}

impl Time {
    fn new(weight: Weight, all: Weight) -> Self {
        let share = match all.cpu_ns {
            // Without processor time samples count.
            0 => weight.samples as f64 / all.samples.max(1) as f64,
            cpu_ns => weight.cpu_ns as f64 / cpu_ns as f64,
        };
        Self {
            samples: weight.samples,
            cpu_ns: weight.cpu_ns,
            share,
        }
    }
}

#[derive(Debug, Serialize)]
struct Yearly {
    core_hours: f64,
    usd: f64,
    co2_tonnes: f64,
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use profiler::profile::{Frame, SECOND_NS, Window};
    use serde_json::{Value, json};

    use super::*;

    fn profile(window: Window) -> Profile {
        let mut profile = Profile::new(window, 20.0);
        let mut add = |functions: &[(&'static str, &'static str)], process: &str, samples| {
            let frames = functions.iter();
            let frames = frames.map(|(name, binary)| Frame::function(*name, *binary));
            let stack = profile.stack(frames);
            let labels = [
                ("host", "h"),
                ("process", process),
                ("pid", "7"),
                ("a.\"b", "c"),
            ];
            let labels = profile.labels(&labels);
            let cpu_ns = samples * SECOND_NS / 20;
            profile.add(stack, labels, Weight { samples, cpu_ns });
        };
        add(&[("main", "/bin/a"), ("inflate_fast", "/bin/a")], "a", 6);
        add(&[("main", "/bin/b")], "b", 3);
        add(&[("main", "/bin/b"), ("clear_page", "[kernel]")], "b", 1);
        profile
    }

    const MINUTE: Window = Window {
        start_ns: 1_700_000_000_000_000_000,
        duration_ns: 60 * SECOND_NS,
    };

    fn documents(layout: &Layout, window: Window, path: Option<&str>) -> Vec<Value> {
        let mut found = Vec::new();
        let each = |document: &Document<'_>| -> Result<(), Infallible> {
            let text = serde_json::to_string(document).unwrap();
            found.push(serde_json::from_str(&text).unwrap());
            Ok(())
        };
        layout.documents(&profile(window), path, each).unwrap();
        found
    }

    fn top(labels: &[&str], is_by_function: bool, max_rows: usize) -> Layout {
        Layout::Top(TopLayout {
            key: Key {
                labels: labels.iter().map(|name| (*name).to_owned()).collect(),
                is_by_function,
            },
            max_rows,
            rates: Rates::X86_64,
        })
    }

    #[test]
    fn rows_say_what_functions_take_and_cost() {
        let found = documents(&top(&["process"], true, 10), MINUTE, None);
        assert_eq!(found.len(), 4);
        let first = &found[0];
        assert_eq!(first["process"], "a");
        assert_eq!(first["host"], json!({ "name": "h" }));
        assert_eq!(first["function"], "inflate_fast");
        assert_eq!(
            (&first["kind"], &first["binary"]),
            (&json!("native"), &json!("/bin/a"))
        );
        assert_eq!(first["window"]["seconds"].as_f64(), Some(60.0));
        assert_eq!(first["self"]["cpu_ns"].as_u64(), Some(300_000_000));
        assert_eq!(first["self"]["share"].as_f64(), Some(0.6));
        // 0.3 s of 60 s: a two-hundredth of 8,760 hours.
        assert_eq!(first["a_year"]["core_hours"].as_f64(), Some(43.8));
        assert!(
            first["advice"]["url"]
                .as_str()
                .unwrap()
                .starts_with("https://")
        );
        assert!(
            found
                .iter()
                .all(|row| row.get("labels").is_none() && row.get("pid").is_none())
        );
        assert_eq!(found[2]["kind"], "kernel");
        assert_eq!(
            (&found[3]["function"], &found[3]["process"]),
            (&json!("main"), &json!("a"))
        );
        assert_eq!(found[3]["total"]["samples"].as_u64(), Some(6));
    }

    #[test]
    fn what_is_beyond_the_rows_is_one_more() {
        let found = documents(&top(&["process"], true, 1), MINUTE, None);
        assert_eq!(found.len(), 2);
        let other = &found[1];
        assert_eq!(
            (&other["function"], &other["process"]),
            (&json!(OTHER), &json!(OTHER))
        );
        assert_eq!(other["self"]["samples"].as_u64(), Some(4));
        assert_eq!(other["other_rows"].as_u64(), Some(3));
        assert!(other.get("total").is_none() && other.get("kind").is_none());
        let exact = documents(&top(&["process"], false, 2), MINUTE, None);
        assert_eq!(exact.len(), 2, "nothing is left for others");
        assert!(exact[0].get("function").is_none());
    }

    #[test]
    fn stacks_begin_with_the_outermost_function() {
        let found = documents(&Layout::Samples, Window::default(), Some("/x/a.pb"));
        assert_eq!(found.len(), 3);
        let first = &found[0];
        assert_eq!(first["stack"], json!(["main", "inflate_fast"]));
        assert_eq!(first["function"], "inflate_fast");
        assert_eq!(first["samples"].as_u64(), Some(6));
        assert_eq!(first["pid"].as_u64(), Some(7));
        assert_eq!(first["labels"], json!({ "a__b": "c" }));
        assert_eq!(first["log"]["file"]["path"], "/x/a.pb");
        assert!(first.get("window").is_none() && first.get("a_year").is_none());
    }

    #[test]
    fn labels_that_are_keys_stay_as_they_are() {
        for (name, expected) in [
            ("http/path-1", "http/path-1"),
            ("a.b", "a_b"),
            ("", "_"),
            ("é\n\"", "é__"),
        ] {
            assert_eq!(plain(name), expected);
        }
    }
}
