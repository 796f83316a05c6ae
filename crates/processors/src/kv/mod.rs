//! `kv`: makes fields of `key=value` pairs.
//!
//! Values are views into the text; keys become columns as they appear ([`crate::keyed`] states the limits). The rules of
//! splitting, quoting and brackets are those of Logstash's `kv` filter: at characters ([`split`]) or at regular
//! expressions ([`pattern`]). Values with pairs of their own ([`nested`]) are copied.

mod nested;
mod pattern;
mod split;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use batch::{Batch, Bitmap, Edit, Failures, FieldPath, FieldRead};
use component::{Build, BuildContext, Example, Order, Processor, Spec, parse};
use config::{ConfigError, Node, Positional};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::keyed::{Keyed, ValueLocation};
use crate::literal::Literal;
use crate::names::{field, target};
use crate::text::{Texts, Trim};
use pattern::PatternSplitter;
use split::{Pair, Quotes, Splitter};

const FAILURE_TAG: &str = "_kvparsefailure";

/// The processor's description.
pub const SPEC: Spec = Spec {
    name: "kv",
    aliases: &[],
    summary: "Parses key=value pairs into fields.",
    description: "Turns pairs such as `user=ann status=200` into fields; other words are ignored. Values are strings. Quotes (`\"…\"`, `'…'`) or brackets (`(…)`, `[…]`, `<…>`) around a value are removed if the pair ends after the closing one; backslashes stay as they are, but the \
                  byte after one splits nothing. Pairs without a value are left out, and so are pairs without a \
                  key.\n\n\
                  Keys become fields as they are, dots included: the field `a.b` of `a.b=1` is found by that name. A key that occurs twice gives a list. Existing fields are replaced in their place; new ones follow in alphabetical order, capitals first, so that texts with the same pairs give the same object.\n\n\
                  Text without pairs is not a failure, nor is a field that is absent or null. Where `target` or \
                  something above it is not an object, the event fails with `_kvparsefailure`.\n\n\
                  With `recursive: true` a value that holds pairs itself becomes an object of these, up to \
                  eight levels deep: `a=(b=1 c=2)` gives `{\"a\":{\"b\":\"1\",\"c\":\"2\"}}`.\n\n\
                  The first 128 distinct keys of a batch are processed in columns; events with further keys take several times as long.",
    positional: Positional::fields(&["field"]),
    one_line: &[],
    examples: &[
        Example {
            title: "Words and pairs",
            stage: "kv body",
            input: r#"{"body":"login user=ann from=(192.0.2.7) note='no mail' role=a role=b"}"#,
            output: r#"{"body":"login user=ann from=(192.0.2.7) note='no mail' role=a role=b","from":"192.0.2.7","note":"no mail","role":["a","b"],"user":"ann"}"#,
        },
        Example {
            title: "The parameters of a query, below a field of their own",
            stage: "kv query field_split='&' target=url exclude_keys=token",
            input: r#"{"query":"page=2&q=a b&token=x"}"#,
            output: r#"{"query":"page=2&q=a b&token=x","url":{"page":"2","q":"a b"}}"#,
        },
        Example {
            title: "Splitters of several characters, and pairs in values",
            stage: "kv line field_split_pattern='; *' value_split_pattern='->|:=' recursive=true",
            input: r#"{"line":"user->ann;  at:=(x->1; y->2)"}"#,
            output: r#"{"line":"user->ann;  at:=(x->1; y->2)","at":{"x":"1","y":"2"},"user":"ann"}"#,
        },
    ],
    schema: |generator| generator.subschema_for::<Config>(),
    build: Build::Processor {
        order: Order::Stateless,
        sees_sealed: false,
        build,
    },
};

/// Settings of `kv`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct Config {
    /// The field to parse.
    field: String,
    /// The field that gets the pairs. Default: none; they become fields of the event.
    target: Option<String>,
    /// The characters that split pairs, each of them alone; ASCII.
    field_split: String,
    /// A regular expression that splits pairs, in place of `field_split`, such as `,\s*` or `\+\+`; without look-around and
    /// back references. Several times slower. Default: none.
    field_split_pattern: Option<String>,
    /// The characters that split a key from its value, each of them alone; ASCII.
    value_split: String,
    /// A regular expression that splits a key from its value, in place of `value_split`. Default: none.
    value_split_pattern: Option<String>,
    /// Whether spaces around the splitter of key and value are passed over, as in `key = value`: `lenient` or `strict`.
    /// In `a= b=1`, which Logstash reads as one pair, `a` has no value either way.
    whitespace: Whitespace,
    /// Whether values may stand in `(…)`, `[…]` and `<…>`.
    include_brackets: bool,
    /// Whether a value that holds pairs becomes an object of these.
    recursive: bool,
    /// Characters to remove from both ends of keys.
    trim_key: String,
    /// Characters to remove from both ends of values.
    trim_value: String,
    /// Characters to remove from keys wherever they stand.
    remove_char_key: String,
    /// Characters to remove from values wherever they stand.
    remove_char_value: String,
    /// Changes the case of keys. Default: no change.
    transform_key: Option<Case>,
    /// Changes the case of values. Default: no change.
    transform_value: Option<Case>,
    /// The only keys to take, as they are after trimming. Default: all.
    include_keys: BTreeSet<String>,
    /// Keys to leave out, as they are after trimming. Default: none.
    exclude_keys: BTreeSet<String>,
    /// A text to put before every key.
    prefix: String,
    /// Fields, without prefix, that an event gets when its text has no such pair. Default: none.
    default_keys: BTreeMap<String, Literal>,
    /// Whether pairs without a value give empty texts.
    allow_empty_values: bool,
    /// Whether a value that comes twice with the same key is kept twice.
    allow_duplicate_values: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Whitespace {
    Lenient,
    Strict,
}

/// How letters are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Case {
    /// All small.
    Lowercase,
    /// All capital.
    Uppercase,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            field: "message".into(),
            target: None,
            field_split: " ".into(),
            field_split_pattern: None,
            value_split: "=".into(),
            value_split_pattern: None,
            whitespace: Whitespace::Lenient,
            include_brackets: true,
            recursive: false,
            trim_key: String::new(),
            trim_value: String::new(),
            remove_char_key: String::new(),
            remove_char_value: String::new(),
            transform_key: None,
            transform_value: None,
            include_keys: BTreeSet::new(),
            exclude_keys: BTreeSet::new(),
            prefix: String::new(),
            default_keys: BTreeMap::new(),
            allow_empty_values: false,
            allow_duplicate_values: true,
        }
    }
}

fn build(node: &Node, context: &BuildContext) -> Result<Box<dyn Processor>, ConfigError> {
    let config: Config = parse(node)?;
    let source = field(node, "field", &config.field)?;
    let target = target(node, config.target.as_deref())?;
    if config.default_keys.len() > DEFAULTS_MAX {
        return Err(node
            .nearest("default_keys")
            .error(format!("at most {DEFAULTS_MAX} default keys are possible")));
    }
    let splitter = splitter(node, &config)?;
    let plain_values = config.remove_char_value.is_empty() && config.transform_value.is_none();
    let tag = context.tag_or(FAILURE_TAG);
    Ok(Box::new(Kv {
        config: Arc::new(config),
        splitter,
        source,
        target,
        plain_values,
        tag,
    }))
}

/// How the settings split a text.
fn splitter(node: &Node, config: &Config) -> Result<AnySplitter, ConfigError> {
    let patterns = [&config.field_split_pattern, &config.value_split_pattern];
    let names = [
        ("field_split", "field_split_pattern", &config.field_split),
        ("value_split", "value_split_pattern", &config.value_split),
    ];
    for ((name, _, characters), pattern) in names.into_iter().zip(patterns) {
        if pattern.is_none() && (characters.is_empty() || !characters.is_ascii()) {
            return Err(node
                .nearest(name)
                .error(format!("`{name}` must be one or more ASCII characters")));
        }
    }
    let lenient = config.whitespace == Whitespace::Lenient;
    if patterns.iter().any(|pattern| pattern.is_some()) {
        let compile = |(_, name, characters): (_, &str, &String), pattern: &Option<String>| {
            let pattern = pattern.clone();
            let pattern = pattern.unwrap_or_else(|| pattern::class(characters));
            pattern::compile(&pattern).map_err(|message| node.nearest(name).error(message))
        };
        let quotes = Quotes {
            brackets: config.include_brackets,
        };
        return Ok(AnySplitter::Patterns(PatternSplitter::new(
            compile(names[0], patterns[0])?,
            compile(names[1], patterns[1])?,
            quotes,
            lenient,
        )));
    }
    let mut both = config.value_split.chars();
    if let Some(both) = both.find(|c| config.field_split.contains(*c)) {
        return Err(node
            .nearest("value_split")
            .error(format!("`{both}` cannot split both pairs and their values")));
    }
    Ok(AnySplitter::Characters(Box::new(Splitter::new(
        &config.field_split,
        &config.value_split,
        config.include_brackets,
        lenient,
    ))))
}

/// What splits a text.
#[derive(Clone)]
enum AnySplitter {
    Characters(Box<Splitter>),
    Patterns(PatternSplitter),
}

impl AnySplitter {
    /// The first pair at or after `pos`, and where to go on.
    #[inline]
    fn next(&self, text: &[u8], pos: usize) -> Option<(Pair, usize)> {
        match self {
            Self::Characters(splitter) => splitter.next(text, pos),
            Self::Patterns(splitter) => splitter.next(text, pos),
        }
    }
}

/// Default keys always have a column.
const DEFAULTS_MAX: usize = 100;

#[derive(Clone)]
struct Kv {
    config: Arc<Config>,
    splitter: AnySplitter,
    source: FieldPath,
    target: Option<FieldPath>,
    /// Values are views: nothing but their ends is ever cut off.
    plain_values: bool,
    tag: Arc<str>,
}

impl Processor for Kv {
    fn process(&mut self, batch: &mut Batch, rows: &Bitmap) -> Failures {
        let texts = Texts::of(batch, &self.source, rows);
        let mut fields = Keyed::new(batch.len(), &texts, |key: &[u8]| self.name(key));
        for (key, value) in &self.config.default_keys {
            let name = format!("{}{key}", self.config.prefix);
            fields.add_default(&name, |values| value.cell(values));
        }
        for row in rows.iter() {
            let Some((span, text)) = texts.get(row) else {
                continue;
            };
            let mut pos = 0;
            while let Some((pair, next)) = self.splitter.next(text, pos) {
                pos = next;
                let (start, end) = Trim::All.range(text, pair.value, &self.config.trim_value);
                if start < end || self.config.allow_empty_values {
                    let value = self.value(text, start, end, &mut fields.changed);
                    let value = self.nested_in(text, value, &mut fields);
                    fields.add(text, pair.key, value);
                }
            }
            fields.end_row(row, span, text, !self.config.allow_duplicate_values);
        }
        let mut edit = Edit::new();
        fields.finish(self.target.as_ref(), &mut edit);
        let mut failures = Failures::none();
        if !edit.is_empty() {
            failures.extend_refused(batch.apply(edit), &self.tag);
        }
        failures
    }

    fn reads(&self) -> Vec<Arc<FieldRead>> {
        vec![Arc::new(FieldRead::always(self.source.clone()))]
    }
}

impl Kv {
    /// The name of the field that a key makes; none when it makes none.
    fn name(&self, key: &[u8]) -> Option<String> {
        let config = &self.config;
        let (start, end) = Trim::All.range(key, (0, key.len()), &config.trim_key);
        let key = String::from_utf8_lossy(&key[start..end]);
        let key = change(key, &config.remove_char_key, config.transform_key);
        let wanted = config.include_keys.is_empty() || config.include_keys.contains(&*key);
        let takes = !key.is_empty() && wanted && !config.exclude_keys.contains(&*key);
        takes.then(|| format!("{}{key}", config.prefix))
    }

    fn value(&self, text: &[u8], start: usize, end: usize, changed: &mut Vec<u8>) -> ValueLocation {
        if self.plain_values {
            return ValueLocation::Text(start, end);
        }
        let value = String::from_utf8_lossy(&text[start..end]);
        let value = change(
            value,
            &self.config.remove_char_value,
            self.config.transform_value,
        );
        let from = changed.len();
        changed.extend_from_slice(value.as_bytes());
        ValueLocation::Changed(from, changed.len())
    }
}

/// The text without some characters, in another case.
fn change<'a>(text: Cow<'a, str>, remove: &str, case: Option<Case>) -> Cow<'a, str> {
    let text = match remove {
        "" => text,
        remove => text.replace(|c| remove.contains(c), "").into(),
    };
    match case {
        None => text,
        Some(Case::Lowercase) => text.to_lowercase().into(),
        Some(Case::Uppercase) => text.to_uppercase().into(),
    }
}

#[cfg(test)]
mod tests;
