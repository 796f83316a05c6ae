//! `flatten`: makes fields of the members of objects.

use std::sync::Arc;

use batch::json::{self, Kind};
use batch::{Batch, Bitmap, Failures, FieldPath, FieldRead};
use component::{Build, BuildContext, Example, Order, Processor, Spec, parse};
use config::{ConfigError, Count, Node, Positional, Positive};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::reshape::{Reshape, check_names, close, reshape, separator, write_key};
use crate::setting_words::{is_no_field, refuse_words};

const FAILURE_TAG: &str = "_flattenfailure";

/// An event may become so many times as long as it was: names of objects are repeated for each of their members.
const GROWTH_MAX: usize = 16;
/// An event may become so long, however short it was.
const EVENT_BYTES_MIN: usize = 64 * 1024;

/// The processor's description.
pub const SPEC: Spec = Spec {
    name: "flatten",
    aliases: &[],
    summary: "Makes fields of the members of objects, with names such as `a.b`.",
    description: DESCRIPTION,
    positional: Positional::list(&["fields"]),
    one_line: &[],
    examples: &[
        Example {
            title: "A whole event",
            stage: "flatten",
            input: r#"{"user":{"name":"ann","groups":["x"],"home":{"city":"Bonn"}},"n":1}"#,
            output: r#"{"user.name":"ann","user.groups":["x"],"user.home.city":"Bonn","n":1}"#,
        },
        Example {
            title: "One object, for labels that must not have dots, and lists too",
            stage: "flatten labels separator=_ lists=index",
            input: r#"{"labels":{"app":{"name":"shop"},"ports":[80,{"tls":443}]},"user":{"name":"ann"}}"#,
            output: r#"{"labels_app_name":"shop","labels_ports_0":80,"labels_ports_1_tls":443,"user":{"name":"ann"}}"#,
        },
        Example {
            title: "The members of an object within another one, and not what lies deeper",
            stage: "flatten a.b depth=1",
            input: r#"{"a":{"b":{"c":1,"d":{"e":2}},"f":{"g":3}}}"#,
            output: r#"{"a":{"b.c":1,"b.d":{"e":2},"f":{"g":3}}}"#,
        },
        Example {
            title: "A name that is taken",
            stage: "flatten",
            input: r#"{"a":{"b":1},"a.b":2}"#,
            output: r#"{"a":{"b":1},"a.b":2,"tags":["_flattenfailure"],"error":{"message":"two fields would be called a.b"}}"#,
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
Without `fields`, all objects of the event are flattened; with them, the objects in these fields. A member gets the names of the objects in which it lies, and its own, with `separator` between them, and takes the place of the object.
A field within an object stays there: `flatten a.b` makes `b.c` in `a`. Fields that are no objects, or that an event does not have, stay as they are, and so do empty objects.

With `lists=index`, the elements of lists get their numbers as names, from 0 on; empty lists stay. `depth` says how many names a member may have beside that of the field; what lies deeper stays an object.

An event in which two fields would have the same name fails with `_flattenfailure` and stays as it is. So does one that would become longer than 16 times its size and longer than 64 KiB, because the names of objects are repeated for each of their members. Expressions and other processors find `a.b` with and without `flatten`. [`nest`](processor-nest.md) makes objects again, except of lists.

The event is written anew as JSON: values keep all of their digits, and what lies under `@metadata` is not touched.
";

/// Settings of `flatten`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Config {
    /// The fields with the objects. Default: all fields of the event.
    fields: Option<Vec<String>>,
    /// The text between names.
    #[serde(default = "default_separator")]
    separator: String,
    /// What becomes of lists.
    #[serde(default)]
    lists: Lists,
    /// How many levels of objects are flattened. Default: all.
    depth: Option<Positive<Count>>,
}

/// What becomes of lists.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Lists {
    /// They stay.
    #[default]
    Keep,
    /// Their elements become fields, with numbers as names.
    Index,
}

fn default_separator() -> String {
    ".".to_owned()
}

fn is_setting(name: &str, value: &str) -> bool {
    match name {
        "separator" => is_no_field(value),
        "lists" => ["keep", "index"].contains(&value),
        "depth" => value.parse::<Count>().is_ok(),
        _ => false,
    }
}

fn build(node: &Node, context: &BuildContext) -> Result<Box<dyn Processor>, ConfigError> {
    refuse_words(node, is_setting, &[])?;
    let config: Config = parse(node)?;
    let empty = "name at least one field, or leave `fields` out to flatten all";
    let fields = config
        .fields
        .map(|fields| component::fields(node, "fields", &fields, empty))
        .transpose()?;
    let mut wanted = Wanted::default();
    match &fields {
        None => wanted.is_all = true,
        Some(fields) => fields.iter().for_each(|field| wanted.add(field.keys())),
    }
    Ok(Box::new(Flatten {
        fields: fields.unwrap_or_default(),
        shape: Flattened {
            wanted: Arc::new(wanted),
            separator: separator(node, &config.separator)?,
            lists: config.lists,
            depth: config.depth.map_or(u64::MAX, |depth| depth.0),
            name: Vec::new(),
            is_ambiguous: false,
            event_start: 0,
            event_bytes_max: 0,
        },
        dotted_keys: config.separator.contains('.'),
        tag: context.tag_or(FAILURE_TAG),
    }))
}

/// Which members of an object are flattened.
#[derive(Debug, Default)]
struct Wanted {
    /// Each of them.
    is_all: bool,
    /// Members by their names, as they stand in JSON: those that are flattened are [`Wanted::is_field`].
    members: Vec<(Vec<u8>, Wanted)>,
    is_field: bool,
}

impl Wanted {
    /// Adds the field with these keys, in all spellings with dots.
    fn add(&mut self, keys: &[Box<str>]) {
        self.is_field |= keys.is_empty();
        for taken in 1..=keys.len() {
            let mut name = Vec::new();
            json::write_string_body(&mut name, keys[..taken].join(".").as_bytes());
            let known = self.members.iter().position(|(known, _)| *known == name);
            let index = known.unwrap_or_else(|| {
                self.members.push((name, Self::default()));
                self.members.len() - 1
            });
            self.members[index].1.add(&keys[taken..]);
        }
    }

    fn member(&self, key: &[u8]) -> Option<&Self> {
        let mut members = self.members.iter();
        members
            .find(|(name, _)| name == key)
            .map(|(_, member)| member)
    }
}

#[derive(Clone)]
struct Flatten {
    fields: Vec<FieldPath>,
    shape: Flattened,
    dotted_keys: bool,
    tag: Arc<str>,
}

impl Processor for Flatten {
    fn process(&mut self, batch: &mut Batch, rows: &Bitmap) -> Failures {
        reshape(batch, rows, &mut self.shape, self.dotted_keys, &self.tag)
    }

    fn reads(&self) -> Vec<Arc<FieldRead>> {
        let read = |path: &FieldPath| Arc::new(FieldRead::always(path.clone()));
        self.fields.iter().map(read).collect()
    }
}

/// Writes events with flattened objects.
#[derive(Clone)]
struct Flattened {
    wanted: Arc<Wanted>,
    separator: Vec<u8>,
    lists: Lists,
    depth: u64,
    /// The name of the member at hand.
    name: Vec<u8>,
    /// A name has the first byte of the separator in itself, so that another one may become the same.
    is_ambiguous: bool,
    /// Where the event at hand begins, behind those that were written before, and how long it may become.
    event_start: usize,
    event_bytes_max: usize,
}

impl Reshape for Flattened {
    fn write(&mut self, object: &[u8], out: &mut Vec<u8>) -> Result<bool, String> {
        let wanted = self.wanted.clone();
        self.is_ambiguous = false;
        self.event_start = out.len();
        self.event_bytes_max = EVENT_BYTES_MIN.max(object.len().saturating_mul(GROWTH_MAX));
        self.object(&wanted, object, out)
    }
}

impl Flattened {
    /// Appends an object, of which some members are flattened. Whether one was.
    fn object(
        &mut self,
        wanted: &Wanted,
        object: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<bool, String> {
        let start = out.len();
        let mut is_flattened = false;
        let mut is_changed = false;
        out.push(b'{');
        for member in json::members(object) {
            let value = &object[member.value];
            self.note(member.key);
            let within = wanted.member(member.key);
            let is_field = wanted.is_all || within.is_some_and(|within| within.is_field);
            if is_field && self.opens(value) {
                is_flattened = true;
                self.name.clear();
                self.name.extend_from_slice(member.key);
                self.members(value, self.depth, out)?;
                continue;
            }
            write_key(member.key, out);
            match within {
                Some(within) if json::kind(value) == Kind::Object => {
                    is_changed |= self.object(within, value, out)?;
                }
                _ => out.extend_from_slice(value),
            }
            out.push(b',');
        }
        close(start, out);
        if is_flattened && self.is_ambiguous {
            check_names(&out[start..])?;
        }
        Ok(is_flattened || is_changed)
    }

    /// Looks whether a name may have a part of the separator in itself.
    fn note(&mut self, key: &[u8]) {
        self.is_ambiguous |= key.contains(&self.separator[0]);
    }

    /// Whether a value has members to flatten.
    fn opens(&self, value: &[u8]) -> bool {
        match json::kind(value) {
            Kind::Object => !json::is_empty(value),
            Kind::Array => self.lists == Lists::Index && !json::is_empty(value),
            _ => false,
        }
    }

    /// Appends the members of a value, which is called `name`, with their names, each with a comma.
    fn members(&mut self, value: &[u8], depth: u64, out: &mut Vec<u8>) -> Result<(), String> {
        if json::kind(value) == Kind::Object {
            for member in json::members(value) {
                self.note(member.key);
                self.member(member.key, &value[member.value], depth, out)?;
            }
        } else {
            let mut number = Vec::new();
            for (index, at) in json::elements(value).enumerate() {
                number.clear();
                json::write_u64(&mut number, index as u64);
                self.note(&number);
                self.member(&number, &value[at], depth, out)?;
            }
        }
        Ok(())
    }

    fn member(
        &mut self,
        key: &[u8],
        value: &[u8],
        depth: u64,
        out: &mut Vec<u8>,
    ) -> Result<(), String> {
        let len = self.name.len();
        self.name.extend_from_slice(&self.separator);
        self.name.extend_from_slice(key);
        if depth > 1 && self.opens(value) {
            self.members(value, depth - 1, out)?;
        } else {
            let written = out.len() - self.event_start;
            if written + self.name.len() + value.len() > self.event_bytes_max {
                let max = self.event_bytes_max;
                return Err(format!("it would become longer than {max} bytes"));
            }
            write_key(&self.name, out);
            out.extend_from_slice(value);
            out.push(b',');
        }
        self.name.truncate(len);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{
        batch_of, build, check, check_errors, lines_of, process, run, text_batch,
    };
    use proptest::prelude::*;

    #[test]
    fn objects_become_fields() {
        check(
            &SPEC,
            &[
                (
                    "flatten",
                    r#"{"a":{"b":{"c":1.50}},"d":[{"e":1}]}"#,
                    r#"{"a.b.c":1.50,"d":[{"e":1}]}"#,
                ),
                (
                    "flatten",
                    r#"{"a":{},"b":{"c":{}},"d":[]}"#,
                    r#"{"a":{},"b.c":{},"d":[]}"#,
                ),
                ("flatten", r#"{ "a" : 1 }"#, r#"{ "a" : 1 }"#),
                (
                    "flatten lists=index",
                    r#"{"a":[],"b":[[1,{"c":2}],{}]}"#,
                    r#"{"a":[],"b.0.0":1,"b.0.1.c":2,"b.1":{}}"#,
                ),
                (
                    "flatten depth=2",
                    r#"{"a":{"b":{"c":{"d":1}}}}"#,
                    r#"{"a.b.c":{"d":1}}"#,
                ),
                (
                    "flatten depth=1 lists=index",
                    r#"{"a":[[1]],"b":{"c":[2]}}"#,
                    r#"{"a.0":[1],"b.c":[2]}"#,
                ),
                (
                    "flatten a, c.d",
                    r#"{"a":{"b":1},"b":{"x":2},"c":{"d":{"e":3},"f":{"g":4}}}"#,
                    r#"{"a.b":1,"b":{"x":2},"c":{"d.e":3,"f":{"g":4}}}"#,
                ),
                (
                    "flatten a.b",
                    r#"{"a.b":{"c":1},"a":{"x":{"y":1}}}"#,
                    r#"{"a.b.c":1,"a":{"x":{"y":1}}}"#,
                ),
                ("flatten a", r#"{"b":1}"#, r#"{"b":1}"#),
                ("flatten a", r#"{"a":"text"}"#, r#"{"a":"text"}"#),
                (
                    "flatten separator='\"'",
                    r#"{"a":{"b":1}}"#,
                    r#"{"a\"b":1}"#,
                ),
            ],
        );
    }

    #[test]
    fn two_fields_never_have_one_name() {
        for (stage, event, name) in [
            ("flatten", r#"{"a":{"b":1},"a.b":2"#, "a.b"),
            ("flatten", r#"{"a":{"b.c":1,"b":{"c":2}}"#, "a.b.c"),
            (
                "flatten separator=_",
                r#"{"a_b":{"c":1},"a":{"b_c":2}"#,
                "a_b_c",
            ),
            (
                "flatten separator=__",
                r#"{"a_":{"b":1},"a":{"_b":2}"#,
                "a___b",
            ),
            ("flatten lists=index", r#"{"a":[1],"a.0":2"#, "a.0"),
            ("flatten x.a", r#"{"x":{"a":{"b":1},"a.b":2}"#, "a.b"),
        ] {
            let failed = format!(
                r#"{event},"tags":["_flattenfailure"],"error":{{"message":"two fields would be called {name}"}}}}"#
            );
            assert_eq!(
                run(&SPEC, stage, &format!("{event}}}")),
                [failed],
                "{stage}"
            );
        }
        check(
            &SPEC,
            &[(
                "flatten",
                r#"{"a":{"c":1},"a.b":2}"#,
                r#"{"a.c":1,"a.b":2}"#,
            )],
        );
    }

    #[test]
    fn an_event_that_would_grow_beyond_its_limit_fails() {
        let event = |name: usize, members: usize| {
            let members: Vec<String> = (0..members).map(|n| format!("\"{n}\":1")).collect();
            format!(r#"{{"{}":{{{}}}}}"#, "k".repeat(name), members.join(","))
        };
        let long = event(500_000, 10_000);
        let failed = run(&SPEC, "flatten", &long);
        let kept = &long[..long.len() - 1];
        assert!(failed[0].starts_with(kept), "the fields stay");
        let reason = format!("it would become longer than {} bytes", long.len() * 16);
        assert!(failed[0].contains("_flattenfailure") && failed[0].contains(&reason));
        // What it may become does not depend on the events before it.
        let short = r#"{"user":{"name":"ann","home":{"city":"Bonn"}}}"#;
        let many = run(&SPEC, "flatten", &[short; 5_000].join("\n"));
        let is_flat = |event: &String| event == r#"{"user.name":"ann","user.home.city":"Bonn"}"#;
        assert_eq!(many.iter().filter(|event| is_flat(event)).count(), 5_000);
        // Short events may grow more: 100 names of 600 bytes.
        let flat = run(&SPEC, "flatten", &event(600, 100));
        assert!(flat[0].len() > 60_000 && !flat[0].contains("tags"));
        let failed = run(&SPEC, "flatten", &event(700, 100));
        assert!(failed[0].contains("longer than 65536 bytes"));
    }

    #[test]
    fn fields_of_lines_and_what_was_written_are_flattened() {
        let mut batch = text_batch(["one", "two"]);
        process(
            build(&SPEC, "flatten host").expect("it builds").as_mut(),
            &mut batch,
        );
        let lines = lines_of(&batch);
        assert!(lines[0].contains(r#""host.name":"h""#), "{}", lines[0]);
        assert!(lines[1].contains(r#""message":"two""#), "{}", lines[1]);
        let column = batch.column(&FieldPath::from_keys(["host", "name"]));
        assert_eq!(column.value(1), batch::Value::Text(b"h"));
        let mut batch = batch_of([r#"{"a":{"b":1}}"#, r#"{"a":2}"#]);
        let mut edit = batch::Edit::new();
        let written = batch::Column::constant_text(b"x", 2);
        edit.set(FieldPath::from_keys(["a", "c"]), written.clone());
        edit.set(FieldPath::from_keys(["@metadata", "m"]), written);
        batch.apply(edit);
        process(
            build(&SPEC, "flatten").expect("it builds").as_mut(),
            &mut batch,
        );
        assert_eq!(lines_of(&batch), [r#"{"a.b":1,"a.c":"x"}"#, r#"{"a":2}"#]);
        let column = batch.column(&FieldPath::from_keys(["@metadata", "m"]));
        assert_eq!(column.value(0), batch::Value::Text(b"x"));
    }

    #[test]
    fn bad_settings_are_refused() {
        check_errors(
            &SPEC,
            &[
                ("flatten fields=[]", "name at least one field"),
                ("flatten a..b", "`a..b` is not a field name"),
                ("flatten separator=''", "the text between names is empty"),
                ("flatten depth=0", "at least 1 is expected"),
                ("flatten lists=drop", "drop"),
            ],
        );
    }

    fn document() -> impl Strategy<Value = serde_json::Value> {
        let leaf = prop_oneof![
            any::<i32>().prop_map(serde_json::Value::from),
            "[a-c\"]{0,3}".prop_map(Into::into),
            Just(serde_json::json!({})),
            Just(serde_json::json!([1, {"a": 2}])),
        ];
        let value = leaf.prop_recursive(4, 24, 4, |inner| {
            prop::collection::btree_map("[a-cé]{1,2}", inner, 0..4)
                .prop_map(|map| serde_json::Value::Object(map.into_iter().collect()))
        });
        prop::collection::btree_map("[a-cé]{1,2}", value, 0..4)
            .prop_map(|map| serde_json::Value::Object(map.into_iter().collect()))
    }

    proptest! {
        /// `nest` gives back what was flattened.
        #[test]
        fn nest_is_the_reverse(events in prop::collection::vec(document(), 1..6)) {
            let lines: Vec<String> = events.iter().map(ToString::to_string).collect();
            let mut batch = batch_of(lines.iter().map(String::as_str));
            process(build(&SPEC, "flatten").unwrap().as_mut(), &mut batch);
            for (line, event) in lines_of(&batch).iter().zip(&events) {
                let flat: serde_json::Value = serde_json::from_str(line).unwrap();
                let nested = |value: &serde_json::Value| value.as_object().is_some_and(|object| !object.is_empty());
                prop_assert!(!flat.as_object().unwrap().values().any(nested), "{}", line);
                prop_assert_eq!(flat.as_object().unwrap().len(), leaves(event));
            }
            process(build(&crate::nest::SPEC, "nest").unwrap().as_mut(), &mut batch);
            for (line, event) in lines_of(&batch).iter().zip(&events) {
                let value: serde_json::Value = serde_json::from_str(line).unwrap();
                prop_assert_eq!(&value, event);
            }
        }
    }

    /// How many values an event has that are no objects with members.
    fn leaves(event: &serde_json::Value) -> usize {
        let count = |value: &serde_json::Value| match value.as_object() {
            Some(object) if !object.is_empty() => leaves(value),
            _ => 1,
        };
        event.as_object().unwrap().values().map(count).sum()
    }
}
