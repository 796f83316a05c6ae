//! `nest`: makes objects of fields with names such as `a.b`.

use std::collections::HashMap;
use std::sync::Arc;

use batch::json::{self, Kind};
use batch::{Batch, Bitmap, Failures};
use component::{Build, BuildContext, Example, Order, Processor, Spec, parse};
use config::{ConfigError, Node, Positional};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::names;
use crate::reshape::{Reshape, called_twice, close, reshape, separator, shown, write_key};

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
        shape: Nested {
            wanted,
            separator: separator(node, &config.separator)?,
        },
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

/// The most parts of a name.
const PARTS_MAX: usize = 100;

/// Writes events with nested objects.
#[derive(Clone)]
struct Nested {
    /// The objects that are made, by their names as they stand in JSON; none for all.
    wanted: Option<Vec<Vec<u8>>>,
    separator: Vec<u8>,
}

impl Reshape for Nested {
    fn write(&mut self, object: &[u8], out: &mut Vec<u8>) -> Result<bool, String> {
        if !self.has_names(object, true) {
            return Ok(false);
        }
        let mut tree = Tree::new(self);
        tree.add_members(0, object)?;
        tree.write(0, out);
        let is_deep = tree.depth_max + tree.value_bytes_max / 2 > json::DEPTH_MAX;
        match is_deep && json::validate_object(out).is_err() {
            true => Err(format!(
                "it would be nested deeper than {} levels",
                json::DEPTH_MAX
            )),
            false => Ok(true),
        }
    }
}

impl Nested {
    /// Whether a name in an object, or in an object within it, is taken apart.
    fn has_names(&self, object: &[u8], is_event: bool) -> bool {
        memchr::memmem::find(object, &self.separator).is_some()
            && json::members(object).any(|member| {
                let parts = self.parts(member.key);
                let first = parts.as_ref().map_or(member.key, |parts| parts[0]);
                let value = &object[member.value];
                let is_wanted = !is_event || self.wants(first);
                let has_names =
                    || json::kind(value) == Kind::Object && self.has_names(value, false);
                is_wanted && (parts.is_some() || has_names())
            })
    }

    /// The parts of a name; none where it stays as it is.
    fn parts<'k>(&self, key: &'k [u8]) -> Option<Vec<&'k [u8]>> {
        let mut parts = Vec::new();
        let mut start = 0;
        for at in memchr::memmem::find_iter(key, &self.separator) {
            parts.push(&key[start..at]);
            start = at + self.separator.len();
        }
        if parts.is_empty() || key.contains(&b'\\') {
            return None;
        }
        parts.push(&key[start..]);
        let is_whole = parts.len() <= PARTS_MAX && parts.iter().all(|part| !part.is_empty());
        is_whole.then_some(parts)
    }

    fn wants(&self, name: &[u8]) -> bool {
        let wanted = self.wanted.as_ref();
        wanted.is_none_or(|wanted| wanted.iter().any(|known| known == name))
    }
}

/// An event as a tree of names. Its root is the first node.
struct Tree<'o> {
    shape: &'o Nested,
    nodes: Vec<TreeNode<'o>>,
    /// Nodes by the node above and their name.
    known: HashMap<(usize, &'o [u8]), usize, foldhash::fast::RandomState>,
    depth_max: usize,
    value_bytes_max: usize,
}

struct TreeNode<'o> {
    key: &'o [u8],
    above: usize,
    depth: usize,
    content: Content<'o>,
}

enum Content<'o> {
    /// Nothing yet.
    New,
    /// A value that is not taken apart, as JSON.
    Value(&'o [u8]),
    /// The members of an object.
    Members(Vec<usize>),
}

impl<'o> Tree<'o> {
    fn new(shape: &'o Nested) -> Self {
        let root = TreeNode {
            key: b"",
            above: 0,
            depth: 0,
            content: Content::Members(Vec::new()),
        };
        Self {
            shape,
            nodes: vec![root],
            known: HashMap::default(),
            depth_max: 0,
            value_bytes_max: 0,
        }
    }

    /// Adds the members of an object to a node.
    fn add_members(&mut self, at: usize, object: &'o [u8]) -> Result<(), String> {
        for member in json::members(object) {
            let value = &object[member.value];
            let parts = self.shape.parts(member.key);
            let first = parts.as_ref().map_or(member.key, |parts| parts[0]);
            let is_wanted = at != 0 || self.shape.wants(first);
            let mut node = at;
            match parts.filter(|_| is_wanted) {
                Some(parts) => {
                    for part in parts {
                        node = self.member(node, part)?;
                    }
                }
                None => node = self.member(node, member.key)?,
            }
            self.put(node, value, is_wanted)?;
        }
        Ok(())
    }

    /// The member of a node with this name.
    fn member(&mut self, above: usize, key: &'o [u8]) -> Result<usize, String> {
        self.open(above, key)?;
        if let Some(node) = self.known.get(&(above, key)) {
            return Ok(*node);
        }
        let node = self.nodes.len();
        let depth = self.nodes[above].depth + 1;
        if let Content::Members(members) = &mut self.nodes[above].content {
            members.push(node);
        }
        self.depth_max = self.depth_max.max(depth);
        if depth > json::DEPTH_MAX {
            return Err(format!(
                "it would be nested deeper than {} levels",
                json::DEPTH_MAX
            ));
        }
        self.nodes.push(TreeNode {
            key,
            above,
            depth,
            content: Content::New,
        });
        self.known.insert((above, key), node);
        Ok(node)
    }

    /// Makes a node one with members, of which `key` will be one.
    fn open(&mut self, node: usize, key: &[u8]) -> Result<(), String> {
        let members = Content::Members(Vec::new());
        match self.nodes[node].content {
            Content::Members(_) => Ok(()),
            Content::New => {
                self.nodes[node].content = members;
                Ok(())
            }
            Content::Value(value) if json::kind(value) == Kind::Object => {
                self.nodes[node].content = members;
                self.add_members(node, value)
            }
            Content::Value(_) => Err(self.blocked(&[self.name(node), shown(key)].join("."))),
        }
    }

    /// Gives a node its value. An object is taken apart only where that is needed.
    fn put(&mut self, node: usize, value: &'o [u8], is_wanted: bool) -> Result<(), String> {
        let is_object = is_wanted && json::kind(value) == Kind::Object;
        match self.nodes[node].content {
            Content::New if is_object && self.shape.has_names(value, false) => {
                self.nodes[node].content = Content::Members(Vec::new());
                self.add_members(node, value)
            }
            Content::New => {
                self.nodes[node].content = Content::Value(value);
                self.value_bytes_max = self.value_bytes_max.max(value.len());
                Ok(())
            }
            Content::Members(_) if is_object => self.add_members(node, value),
            Content::Value(old) if is_object && json::kind(old) == Kind::Object => {
                self.nodes[node].content = Content::Members(Vec::new());
                self.add_members(node, old)?;
                self.add_members(node, value)
            }
            Content::Value(_) => Err(called_twice(&self.name(node))),
            Content::Members(ref members) => {
                let below = members.first().map_or(node, |member| *member);
                Err(self.blocked(&self.name(below)))
            }
        }
    }

    fn blocked(&self, name: &str) -> String {
        format!("{name} cannot be nested: there is a value above it that is not an object")
    }

    /// The names above a node, and its own.
    fn name(&self, mut node: usize) -> String {
        let mut names = Vec::new();
        while node != 0 {
            names.push(shown(self.nodes[node].key));
            node = self.nodes[node].above;
        }
        names.reverse();
        names.join(".")
    }

    fn write(&self, node: usize, out: &mut Vec<u8>) {
        match &self.nodes[node].content {
            Content::New => out.extend_from_slice(b"null"),
            Content::Value(value) => out.extend_from_slice(value),
            Content::Members(members) => {
                let start = out.len();
                out.push(b'{');
                for member in members {
                    write_key(self.nodes[*member].key, out);
                    self.write(*member, out);
                    out.push(b',');
                }
                close(start, out);
            }
        }
    }
}

#[cfg(test)]
mod tests {
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
        let shape = Nested {
            wanted: None,
            separator: b".".to_vec(),
        };
        assert_eq!(shape.parts(br#"a\".b"#), None, "a name with an escape");
        let long = vec!["a"; 101].join(".");
        let event = format!(r#"{{"{long}":1}}"#);
        assert_eq!(run(&SPEC, "nest", &event), [event]);
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
            let mut shape = Nested {
                wanted: None,
                separator: b".".to_vec(),
            };
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
