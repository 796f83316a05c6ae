//! `kubernetes`: what the path of a container's log says.

use std::ops::Range;
use std::sync::Arc;

use batch::{Batch, Bitmap, Cell, ColumnBuilder, Edit, Failures, FieldPath, FieldRead};
use component::{Build, BuildContext, Example, Order, Processor, Spec, parse};
use config::{ConfigError, Node, Positional};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::names::field;
use crate::text::{Texts, part};

const FAILURE_TAG: &str = "_kubernetesfailure";

/// The processor's description.
pub const SPEC: Spec = Spec {
    name: "kubernetes",
    aliases: &[],
    summary: "Makes fields of the path of a container's log: pod, namespace, container.",
    description: DESCRIPTION,
    positional: Positional::fields(&["field"]),
    one_line: &[],
    examples: &[
        Example {
            title: "A link in `/var/log/containers`",
            stage: "kubernetes path",
            input: r#"{"path":"/var/log/containers/web-7d4b9_shop_nginx-0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef.log"}"#,
            output: "{\"path\":\"/var/log/containers/web-7d4b9_shop_nginx-0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef.log\",\
                     \"kubernetes\":{\"namespace\":\"shop\",\"pod\":{\"name\":\"web-7d4b9\"},\"container\":{\"name\":\"nginx\"}},\
                     \"container\":{\"id\":\"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\"}}",
        },
        Example {
            title: "A file in `/var/log/pods`, and one of no pod",
            stage: "kubernetes path tag=_no_pod",
            input: "{\"path\":\"/var/log/pods/shop_web-7d4b9_0a1b2c3d-0000-4000-8000-0123456789ab/nginx/2.log\"}\n{\"path\":\"/var/log/syslog\"}",
            output: "{\"path\":\"/var/log/pods/shop_web-7d4b9_0a1b2c3d-0000-4000-8000-0123456789ab/nginx/2.log\",\
                     \"kubernetes\":{\"namespace\":\"shop\",\"pod\":{\"name\":\"web-7d4b9\",\"uid\":\"0a1b2c3d-0000-4000-8000-0123456789ab\"},\
                     \"container\":{\"name\":\"nginx\"}}}\n\
                     {\"path\":\"/var/log/syslog\",\"tags\":[\"_no_pod\"]}",
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
Reads the path under which Kubernetes keeps the log of a container, by default in `log.file.path`, which events from files have, and writes what it says under the names of the Elastic Common Schema and of Filebeat:

| path | fields |
| --- | --- |
| `/var/log/containers/POD_NAMESPACE_CONTAINER-ID.log` | `kubernetes.pod.name`, `kubernetes.namespace`, `kubernetes.container.name`, `container.id` |
| `/var/log/pods/NAMESPACE_POD_UID/CONTAINER/N.log` | `kubernetes.namespace`, `kubernetes.pod.name`, `kubernetes.pod.uid`, `kubernetes.container.name` |

The folders above these may be others. `ID` has 64 hexadecimal digits, `UID` is a UUID, or 32 hexadecimal digits for a static pod. `N`, which counts restarts, is a number; rotated files, such as `0.log.20260501-120000` and
`0.log.20260501-115500.gz`, count too.

An event with another path, or without one, stays as it is; with `tag`, those with another path get this tag. This is not a failure, and later processors still run. The counter `other_paths` has their number. An event in
which a field cannot be written, because `kubernetes` or `container` is no object, fails with `_kubernetesfailure` (or `tag`).

The path of Docker's own logs, `/var/lib/docker/containers/ID/ID-json.log`, names no pod and counts as another path: `grok` or `dissect` takes the id of the container out of it.

Lines in these files are read by `container: auto` of the input [`file`](input-file.md), which joins those that were split, and sets `stream` and `@timestamp`:

```
file /var/log/containers/*.log container=auto | kubernetes | elasticsearch http://localhost:9200
```

Labels and annotations of pods are not in the path, and are not asked for; [`lookup`](processor-lookup.md) adds them from a table.
";

/// Settings of `kubernetes`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Config {
    /// The field with the path.
    #[serde(default = "default_field")]
    field: String,
}

fn default_field() -> String {
    "log.file.path".to_owned()
}

fn build(node: &Node, context: &BuildContext) -> Result<Box<dyn Processor>, ConfigError> {
    let config: Config = parse(node)?;
    Ok(Box::new(Kubernetes {
        field: field(node, "field", &config.field)?,
        targets: TARGETS.map(|keys| FieldPath::from_keys(keys.iter().copied())),
        miss_tag: context.tag.clone(),
        failure_tag: context.tag_or(FAILURE_TAG),
        other_paths: 0,
    }))
}

/// The fields that are written, in the order of [`LogPath::parts`].
const TARGETS: [&[&str]; 5] = [
    &["kubernetes", "namespace"],
    &["kubernetes", "pod", "name"],
    &["kubernetes", "pod", "uid"],
    &["kubernetes", "container", "name"],
    &["container", "id"],
];

/// What a path says: where it says it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct LogPath {
    namespace: Range<usize>,
    pod: Range<usize>,
    uid: Option<Range<usize>>,
    container: Range<usize>,
    id: Option<Range<usize>>,
}

impl LogPath {
    fn of(path: &[u8]) -> Option<Self> {
        let file = memchr::memrchr(b'/', path).map_or(0, |slash| slash + 1);
        Self::of_link(path, file).or_else(|| Self::of_pod(path, file))
    }

    /// `POD_NAMESPACE_CONTAINER-ID.log`, which begins at `file`.
    fn of_link(path: &[u8], file: usize) -> Option<Self> {
        let end = file + path[file..].strip_suffix(b".log")?.len();
        let [pod, namespace, last] = in_three(path, file..end)?;
        let dash = last.end.checked_sub(65).filter(|dash| *dash > last.start)?;
        let id = dash + 1..last.end;
        let is_id = path[dash] == b'-' && path[id.clone()].iter().all(u8::is_ascii_hexdigit);
        is_id.then_some(Self {
            namespace,
            pod,
            uid: None,
            container: last.start..dash,
            id: Some(id),
        })
    }

    /// `NAMESPACE_POD_UID/CONTAINER/N.log`, of which the last part begins at `file`.
    fn of_pod(path: &[u8], file: usize) -> Option<Self> {
        let digits = path[file..].iter().take_while(|byte| byte.is_ascii_digit());
        let number = file + digits.count();
        let rest = path[number..].strip_prefix(b".log")?;
        if number == file || !(rest.is_empty() || rest.starts_with(b".")) {
            return None;
        }
        let container_end = file.checked_sub(1)?;
        let container = memchr::memrchr(b'/', &path[..container_end])? + 1;
        let folder = memchr::memrchr(b'/', &path[..container - 1]).map_or(0, |slash| slash + 1);
        let [namespace, pod, uid] = in_three(path, folder..container - 1)?;
        let is_uid = matches!(uid.len(), 32 | 36)
            && path[uid.clone()]
                .iter()
                .all(|byte| byte.is_ascii_hexdigit() || *byte == b'-');
        (is_uid && container < container_end).then_some(Self {
            namespace,
            pod,
            uid: Some(uid),
            container: container..container_end,
            id: None,
        })
    }

    /// The parts, in the order of [`TARGETS`].
    fn parts(self) -> [Option<Range<usize>>; 5] {
        let (namespace, pod, container) = (self.namespace, self.pod, self.container);
        [
            Some(namespace),
            Some(pod),
            self.uid,
            Some(container),
            self.id,
        ]
    }
}

/// The three parts of a range that underscores separate: no name in Kubernetes has one.
fn in_three(path: &[u8], range: Range<usize>) -> Option<[Range<usize>; 3]> {
    let mut bars = memchr::memchr_iter(b'_', &path[range.clone()]).map(|at| range.start + at);
    let (first, second) = (bars.next()?, bars.next()?);
    let parts = [range.start..first, first + 1..second, second + 1..range.end];
    (bars.next().is_none() && parts.iter().all(|part| !part.is_empty())).then_some(parts)
}

#[derive(Clone)]
struct Kubernetes {
    field: FieldPath,
    targets: [FieldPath; 5],
    /// The tag of events with another path.
    miss_tag: Option<Arc<str>>,
    failure_tag: Arc<str>,
    other_paths: u64,
}

impl Processor for Kubernetes {
    fn process(&mut self, batch: &mut Batch, rows: &Bitmap) -> Failures {
        let texts = Texts::of(batch, &self.field, rows);
        let mut columns = [(); 5].map(|()| texts.builder(batch.len()));
        let mut others = Bitmap::none(batch.len());
        // Events of one file have one path.
        let mut last = None;
        for row in rows.iter() {
            let Some((span, text)) = texts.get(row) else {
                continue;
            };
            if last.as_ref().is_none_or(|(known, _)| *known != text) {
                last = Some((text, LogPath::of(text).map(LogPath::parts)));
            }
            match &last {
                Some((_, Some(parts))) => {
                    for (column, found) in columns.iter_mut().zip(parts) {
                        if let Some(found) = found {
                            let cell = Cell::Text(part(span, found.start, found.end));
                            column.set(row, cell);
                        }
                    }
                }
                _ => others.insert(row),
            }
        }
        let failures = self.write(batch, columns);
        self.other_paths += others.iter().count() as u64;
        if let Some(tag) = &self.miss_tag {
            batch.add_tag(&others, tag);
        }
        failures
    }

    fn reads(&self) -> Vec<Arc<FieldRead>> {
        vec![Arc::new(FieldRead::always(self.field.clone()))]
    }

    fn take_counters(&mut self) -> Vec<(&'static str, u64)> {
        match std::mem::take(&mut self.other_paths) {
            0 => Vec::new(),
            others => vec![("other_paths", others)],
        }
    }
}

impl Kubernetes {
    fn write(&self, batch: &mut Batch, columns: [ColumnBuilder; 5]) -> Failures {
        let mut edit = Edit::new();
        for (target, column) in self.targets.iter().zip(columns) {
            if !column.is_untouched() {
                edit.set(target.clone(), column.finish());
            }
        }
        let mut failures = Failures::none();
        if !edit.is_empty() {
            failures.extend_refused(batch.apply(edit), &self.failure_tag);
        }
        failures
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{batch_of, build, check, check_errors, process, run};

    const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789ABCDEF";
    const UID: &str = "0a1b2c3d-0000-4000-8000-0123456789ab";

    /// What a path says, joined by blanks; `-` for nothing.
    fn said(path: &str) -> Option<String> {
        let parts = LogPath::of(path.as_bytes())?.parts();
        let text = |part: Option<Range<usize>>| part.map_or("-", |at| &path[at]);
        Some(parts.map(text).join(" "))
    }

    #[test]
    fn paths_of_both_forms_are_read() {
        for (path, expected) in [
            (
                format!("/var/log/containers/web-0_shop_ng-inx-{ID}.log"),
                format!("shop web-0 - ng-inx {ID}"),
            ),
            (
                format!("a.b.c_kube-system_x-{ID}.log"),
                format!("kube-system a.b.c - x {ID}"),
            ),
            (
                format!("/var/log/pods/shop_web-0_{UID}/nginx/0.log"),
                format!("shop web-0 {UID} nginx -"),
            ),
            (
                format!("shop_web-0_{UID}/nginx/12.log.20260501-115500.gz"),
                format!("shop web-0 {UID} nginx -"),
            ),
            (
                format!("/x/kube-system_etcd-node_{}/etcd/3.log", &ID[..32]),
                format!("kube-system etcd-node {} etcd -", &ID[..32]),
            ),
        ] {
            assert_eq!(said(&path), Some(expected), "{path}");
        }
    }

    #[test]
    fn other_paths_say_nothing() {
        for path in [
            String::new(),
            "/".into(),
            "0.log".into(),
            "/0.log".into(),
            "a/0.log".into(),
            "/var/log/syslog".into(),
            "/var/log/pods/a_b_c/d/0.log".into(),
            format!("/var/log/containers/web_shop_nginx-{}.log", &ID[1..]),
            format!("/var/log/containers/web_shop_nginx{ID}.log"),
            format!("/var/log/containers/web_shop_-{ID}.log"),
            format!("/var/log/containers/web_shop_nginx-{ID}.txt"),
            format!("/var/log/containers/web_shop_ng_inx-{ID}.log"),
            format!("/var/log/containers/_shop_nginx-{ID}.log"),
            format!("/var/log/pods/shop_web_{UID}/nginx/x.log"),
            format!("/var/log/pods/shop_web_{UID}/nginx/.log"),
            format!("/var/log/pods/shop_web_{UID}/nginx/0.logs"),
            format!("/var/log/pods/shop_web_{UID}//0.log"),
            format!("/var/log/pods/web_{UID}/nginx/0.log"),
            format!("{UID}/0.log"),
            "/var/log/pods/é_ü_ß/nginx/0.log".into(),
        ] {
            assert_eq!(said(&path), None, "{path}");
        }
    }

    #[test]
    fn fields_are_written_beside_what_is_there() {
        let path = format!("/var/log/pods/shop_web_{UID}/nginx/0.log");
        let event = |rest: &str| format!(r#"{{"log":{{"file":{{"path":"{path}"}}}}{rest}}}"#);
        let lines = run(
            &SPEC,
            "kubernetes",
            &event(r#","kubernetes":{"pod":{"name":"old","ip":"10.0.0.1"}}"#),
        );
        let rest = format!(
            r#","kubernetes":{{"pod":{{"name":"web","ip":"10.0.0.1","uid":"{UID}"}},"namespace":"shop","container":{{"name":"nginx"}}}}"#
        );
        assert_eq!(lines, [event(&rest)]);
        let lines = run(&SPEC, "kubernetes", &event(r#","kubernetes":"x""#));
        assert!(lines[0].contains("_kubernetesfailure"), "{lines:?}");
        check(
            &SPEC,
            &[
                (
                    "kubernetes p tag=t",
                    r#"{"p":"x"}"#,
                    r#"{"p":"x","tags":["t"]}"#,
                ),
                ("kubernetes p", r#"{"p":7}"#, r#"{"p":7}"#),
                ("kubernetes p tag=t", r#"{"p":null}"#, r#"{"p":null}"#),
                ("kubernetes tag=t", r#"{"p":"x"}"#, r#"{"p":"x"}"#),
            ],
        );
        check_errors(&SPEC, &[("kubernetes a..b", "`a..b` is not a field name")]);
    }

    #[test]
    fn other_paths_are_counted() {
        let mut processor = build(&SPEC, "kubernetes p").expect("it builds");
        process(
            processor.as_mut(),
            &mut batch_of([r#"{"p":"x"}"#, "{}", r#"{"p":"x"}"#]),
        );
        assert_eq!(processor.take_counters(), [("other_paths", 2)]);
        assert!(processor.take_counters().is_empty());
    }
}
