//! `nest`: makes objects of fields with names such as `a.b`.
//!
//! | module | holds |
//! | --- | --- |
//! | `rules` | which names are taken apart |
//! | `tree` | an event as a tree of names |
//! | `layout` | what the last events had in common, so that one like them needs no tree |

mod layout;
mod rules;
mod tree;

use std::sync::Arc;

use batch::json;
use batch::{Batch, Bitmap, Failures};
use component::{Build, BuildContext, Example, Order, Processor, Spec, parse};
use config::{ConfigError, Node, Positional};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::names;
use crate::reshape::{Reshape, reshape, separator};
use crate::setting_words::{is_no_field, refuse_words};
use layout::NestLayout;
use rules::NestRules;
use tree::{NameTree, too_deep};

const FAILURE_TAG: &str = "_nestfailure";

/// The processor's description.
pub const SPEC: Spec = Spec {
    name: "nest",
    aliases: &[],
    summary: "Makes objects of fields with names such as `a.b`.",
    description: DESCRIPTION,
    positional: Positional::list(&["fields"]),
    one_line: &[],
    examples: &[
        Example {
            title: "All names with dots",
            stage: "nest",
            input: r#"{"user.name":"ann","n":1,"user.home.city":"Bonn","user":{"id":7}}"#,
            output: r#"{"user":{"name":"ann","home":{"city":"Bonn"},"id":7},"n":1}"#,
        },
        Example {
            title: "Some names with another text between their parts",
            stage: "nest http separator=_",
            input: r#"{"http_method":"GET","http_status":200,"user_name":"ann"}"#,
            output: r#"{"http":{"method":"GET","status":200},"user_name":"ann"}"#,
        },
        Example {
            title: "A value where an object would be",
            stage: "nest",
            input: r#"{"user":"ann","user.id":7}"#,
            output: r#"{"user":"ann","user.id":7,"tags":["_nestfailure"],"error":{"message":"user.id cannot be nested: there is a value above it that is not an object"}}"#,
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
The reverse of [`flatten`](processor-flatten.md). A name is taken apart at each `separator`: all of its parts but the last are the names of objects, one in the other. Objects with one name become one, also with an object that is there
already; it stands where the first of its members stood. Names within objects are taken apart likewise.

With `fields`, which are first parts of names, only these objects are made: `nest http` makes `http` of `http.method` and `http.status`, and takes names within it apart.

A name stays as it is if one of its parts would be empty (`a..b`, `.a`), if it has more than 100 parts, or if it has a quote, a backslash or a control character. Parts that are numbers are names too: no lists are made.

An event fails with `_nestfailure`, and stays as it is, if two fields would have the same name, or a field would lie in a value that is not an object.

The event is written anew as JSON: values keep all of their digits, and what lies under `@metadata` is not touched.
";

/// Settings of `nest`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Config {
    /// The objects to make, by the first parts of names. Default: all.
    fields: Option<Vec<String>>,
    /// The text between the parts of a name.
    #[serde(default = "default_separator")]
    separator: String,
}

fn default_separator() -> String {
    ".".to_owned()
}

fn build(node: &Node, context: &BuildContext) -> Result<Box<dyn Processor>, ConfigError> {
    let is_setting = |name: &str, value: &str| name == "separator" && is_no_field(value);
    refuse_words(node, is_setting, &[])?;
    let config: Config = parse(node)?;
    let wanted = match &config.fields {
        None => None,
        Some(fields) if fields.is_empty() => {
            let error = node.nearest("fields").error("name at least one object");
            return Err(error.note("leave `fields` out to nest all names"));
        }
        Some(fields) => {
            let object = |(index, text): (usize, &String)| {
                let place = node.nearest(&format!("fields[{index}]"));
                let path = names::path(place, text)?;
                match path.keys() {
                    [name] => {
                        let mut out = Vec::new();
                        json::write_string_body(&mut out, name.as_bytes());
                        Ok(out)
                    }
                    _ => Err(place
                        .error(format!("`{text}` lies in another object"))
                        .note("a name here is the first part of the names that are nested")),
                }
            };
            Some(
                fields
                    .iter()
                    .enumerate()
                    .map(object)
                    .collect::<Result<_, _>>()?,
            )
        }
    };
    Ok(Box::new(Nest {
        shape: Nested::new(wanted, &separator(node, &config.separator)?),
        tag: context.tag_or(FAILURE_TAG),
    }))
}

#[derive(Clone)]
struct Nest {
    shape: Nested,
    tag: Arc<str>,
}

impl Processor for Nest {
    fn process(&mut self, batch: &mut Batch, rows: &Bitmap) -> Failures {
        // Names that stay may have dots.
        reshape(batch, rows, &mut self.shape, true, &self.tag)
    }
}

/// Writes events with nested objects.
#[derive(Clone)]
struct Nested {
    rules: NestRules,
    layout: NestLayout,
    /// The event at hand. Kept for its memory.
    tree: NameTree,
}

impl Nested {
    fn new(wanted: Option<Vec<Vec<u8>>>, separator: &[u8]) -> Self {
        Self {
            rules: NestRules::new(wanted, separator),
            layout: NestLayout::default(),
            tree: NameTree::default(),
        }
    }
}

impl Reshape for Nested {
    fn write(&mut self, object: &[u8], out: &mut Vec<u8>) -> Result<bool, String> {
        let Self {
            rules,
            layout,
            tree,
        } = self;
        if layout.fits(rules, object) {
            layout.write(object, out);
            return Ok(true);
        }
        if !rules.has_names(object, true) {
            return Ok(false);
        }
        let start = out.len();
        tree.write(rules, object, out)?;
        if tree.may_be_too_deep() && json::validate_object(&out[start..]).is_err() {
            return Err(too_deep());
        }
        layout.learn(rules, tree, object);
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::tree::NAMES_MAX;
    use super::*;
    use crate::testing::{check, check_errors, run};

    #[test]
    fn names_become_objects() {
        check(
            &SPEC,
            &[
                (
                    "nest",
                    r#"{"a.b.c":1.50,"d":[{"e.f":1}]}"#,
                    r#"{"a":{"b":{"c":1.50}},"d":[{"e.f":1}]}"#,
                ),
                (
                    "nest",
                    r#"{"a":{"b.c":1},"x":2}"#,
                    r#"{"a":{"b":{"c":1}},"x":2}"#,
                ),
                (
                    "nest",
                    r#"{"a.b":{"c":1},"a":{"b.d":2},"a.b.e":{}}"#,
                    r#"{"a":{"b":{"c":1,"d":2,"e":{}}}}"#,
                ),
                ("nest", r#"{"a":{},"a.b":1}"#, r#"{"a":{"b":1}}"#),
                (
                    "nest",
                    r#"{"a.b":{},"a":{"b":{"c":1}}}"#,
                    r#"{"a":{"b":{"c":1}}}"#,
                ),
                ("nest", r#"{"a.b":1,"a":{}}"#, r#"{"a":{"b":1}}"#),
                (
                    "nest",
                    r#"{"a..b":1,".c":2,"d.":3,".":4}"#,
                    r#"{"a..b":1,".c":2,"d.":3,".":4}"#,
                ),
                ("nest", r#"{"a.0":1,"a.1":2}"#, r#"{"a":{"0":1,"1":2}}"#),
                ("nest", r#"{ "a" : "x.y" }"#, r#"{ "a" : "x.y" }"#),
                (
                    "nest separator=::",
                    r#"{"a::b":1,"a:c":2}"#,
                    r#"{"a":{"b":1},"a:c":2}"#,
                ),
                (
                    "nest a",
                    r#"{"a.b":{"c.d":1},"e.f":2,"a":{"g.h":3},"i":{"j.k":4}}"#,
                    r#"{"a":{"b":{"c":{"d":1}},"g":{"h":3}},"e.f":2,"i":{"j.k":4}}"#,
                ),
                (
                    "nest a b",
                    r#"{"a.b":1,"b.c":2,"c.d":3}"#,
                    r#"{"a":{"b":1},"b":{"c":2},"c.d":3}"#,
                ),
            ],
        );
        let shape = Nested::new(None, b".");
        let first = shape.rules.first_part(br#"a\".b"#);
        assert_eq!(first, None, "a name with an escape");
        let long = vec!["a"; 101].join(".");
        let event = format!(r#"{{"{long}":1}}"#);
        assert_eq!(run(&SPEC, "nest", &event), [event]);
    }

    #[test]
    fn events_with_many_names_are_nested_too() {
        let (mut wide, mut nested) = (String::new(), String::new());
        for name in 0..NAMES_MAX {
            wide += &format!(r#""{name}.a.b":{name},"{name}":{{"c":[]}},"#);
            nested += &format!(r#""{name}":{{"a":{{"b":{name}}},"c":[]}},"#);
        }
        for (input, expected) in [
            (r#""x.y":1"#, r#"{NESTED"x":{"y":1}}"#),
            (
                r#""0.d.e":1,"0.d.f":2"#,
                r#"{"0":{"a":{"b":0},"c":[],"d":{"e":1,"f":2}},REST}"#,
            ),
            (
                r#""3.c":2"#,
                r#"{WIDE"3.c":2,"tags":["_nestfailure"],"error":{"message":"two fields would be called 3.c"}}"#,
            ),
        ] {
            let rest = &nested[nested.find(r#""1":"#).expect("a second name")..];
            let expected = expected
                .replace("WIDE", &wide)
                .replace("NESTED", &nested)
                .replace("REST", rest.trim_end_matches(','));
            // Events with few names, before and behind it, are not affected.
            let events = [
                r#"{"a.b":1}"#,
                &format!("{{{wide}{input}}}"),
                r#"{"a.c":1}"#,
            ];
            let got = run(&SPEC, "nest", &events.join("\n"));
            assert_eq!(got, [r#"{"a":{"b":1}}"#, &expected, r#"{"a":{"c":1}}"#]);
        }
    }

    #[test]
    fn events_like_the_last_ones_become_what_each_alone_does() {
        let events = [
            r#"{"a.b":1,"n":{"x":[]},"a.c.d":"x.y","e.f":{}}"#,
            r#"{"a.b":1,"n":{"x.y":[]},"a.c.d":"x.y","e.f":{}}"#,
            r#"{"a.b":{"g.h":2},"n":0,"a.c.d":"x.y","e.f":{}}"#,
            r#"{"a.b":1,"n":0,"a.c.d":"x.y"}"#,
            r#"{"a.b":1,"n":0,"a.c.d":"x.y","e.f":null,"z":1}"#,
            r#"{"a.b":1,"a":{"c.d":2}}"#,
            r#"{"a.b":1,"a":2}"#,
            r#"{ "n" : 0 , "a.b":1 }"#,
            "{}",
        ];
        for stage in ["nest", "nest a"] {
            let alone = events.map(|event| run(&SPEC, stage, event).remove(0));
            for (first, second) in (0..events.len()).zip((0..events.len()).cycle().skip(1)) {
                let mut order = vec![first; 5];
                order.extend([second, first, second, second, second, first, first]);
                let input: Vec<&str> = order.iter().map(|event| events[*event]).collect();
                let expected: Vec<&str> = order.iter().map(|event| &*alone[*event]).collect();
                assert_eq!(run(&SPEC, stage, &input.join("\n")), expected);
            }
        }
        // As deep as it may be with one level more.
        let mut shape = Nested::new(None, b".");
        for (levels, expected) in [(1, true), (2, true), (3, true), (1022, true), (1023, false)] {
            let (open, close) = ("[".repeat(levels), "]".repeat(levels));
            let event = format!(r#"{{"a.b":{open}{close}}}"#);
            let got = shape.write(event.as_bytes(), &mut Vec::new());
            assert_eq!(got.is_ok(), expected, "{levels}");
        }
    }

    #[test]
    fn conflicts_fail() {
        for (event, reason) in [
            (
                r#"{"a":1,"a.b":2"#,
                "a.b cannot be nested: there is a value above it that is not an object",
            ),
            (
                r#"{"a.b.c":2,"a":null"#,
                "a.b cannot be nested: there is a value above it that is not an object",
            ),
            (r#"{"a":{"b":1},"a.b":2"#, "two fields would be called a.b"),
            (
                r#"{"a":{"b":1,"c.d":{"e":[]}},"a.c":{"d.e":2}"#,
                "two fields would be called a.c.d.e",
            ),
        ] {
            let failed =
                format!(r#"{event},"tags":["_nestfailure"],"error":{{"message":"{reason}"}}}}"#);
            assert_eq!(run(&SPEC, "nest", &format!("{event}}}")), [failed]);
        }
        // As deep as JSON may be, and one level more.
        let deep = |levels: usize| {
            let (open, close) = ("[".repeat(levels), "]".repeat(levels));
            let mut shape = Nested::new(None, b".");
            let event = format!(r#"{{"a.b":{open}{close}}}"#);
            shape.write(event.as_bytes(), &mut Vec::new())
        };
        assert_eq!(deep(json::DEPTH_MAX - 2), Ok(true));
        let refused = deep(json::DEPTH_MAX - 1).expect_err("it is too deep");
        assert_eq!(refused, "it would be nested deeper than 1024 levels");
    }

    #[test]
    fn bad_settings_are_refused() {
        check_errors(
            &SPEC,
            &[
                ("nest fields=[]", "name at least one object"),
                ("nest a.b", "`a.b` lies in another object"),
                ("nest separator=''", "the text between names is empty"),
            ],
        );
    }
}
