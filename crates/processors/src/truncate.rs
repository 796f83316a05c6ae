//! `truncate`: shortens texts that are too long.

use std::sync::Arc;

use batch::{Batch, Bitmap, ChangedTexts, Failures, FieldPath, FieldRead, TextLimit};
use component::{Build, BuildContext, Example, Order, Processor, Spec, parse};
use config::{ConfigError, Node, Positional, Positive, Size};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::setting_words::{is_no_field, refuse_words};

const TAG: &str = "_truncated";

/// The processor's description.
pub const SPEC: Spec = Spec {
    name: "truncate",
    aliases: &[],
    summary: "Shortens texts that are too long.",
    description: "Cuts every text that has more than `max` bytes of UTF-8, so that destinations with limits accept the event. \
                  Without `fields`, these are all texts of the event, also in objects and lists, except `@timestamp` and the \
                  fields below `@metadata`. With `fields`, they are the texts of these fields, in all spellings of their names with dots; an object or a list stands for all texts in it.\n\n\
                  A text is cut between two characters, never within one; accents and other combining marks stay with their letter, and so do the parts of an emoji. Only where not one whole character fits, it is cut between its code points. \
                  `suffix` is appended to texts that were cut, and counts towards `max`. Numbers, booleans and times stay as they are, and so do \
                  names of fields. A field that an event does not have is not a failure.\n\n\
                  Events of which a text was cut are tagged `_truncated` (or `tag`; with an empty `tag`, not at all). This is not a \
                  failure: later processors still run. The tag is added after the cuts; `tags` that were there before are texts like all others. The counter `truncated` has the number of texts that were cut.\n\n\
                  `max` limits each text, not the event as a whole. The limit holds for the text itself: the quotes and escapes that an output \
                  writes come on top.",
    positional: Positional::list(&["fields"]),
    one_line: &[],
    examples: &[
        Example {
            title: "All texts of the event",
            stage: "truncate max=8",
            input: r#"{"message":"connection refused","took":1234567890,"http":{"agents":["curl/8.5.0","wget"]}}"#,
            output: r#"{"message":"connecti","took":1234567890,"http":{"agents":["curl/8.5","wget"]},"tags":["_truncated"]}"#,
        },
        Example {
            title: "Some fields, with a mark at the end",
            stage: "truncate message, error.stack max=12 suffix=…",
            input: r#"{"message":"short","error":{"stack":"at main.rs:12 in run","type":"a long name of a type"}}"#,
            output: r#"{"message":"short","error":{"stack":"at main.r…","type":"a long name of a type"},"tags":["_truncated"]}"#,
        },
        Example {
            title: "Another tag",
            stage: "truncate message max=3 tag=cut",
            input: "{\"message\":\"abcdef\"}\n{\"message\":\"abc\"}",
            output: "{\"message\":\"abc\",\"tags\":[\"cut\"]}\n{\"message\":\"abc\"}",
        },
    ],
    schema: |generator| generator.subschema_for::<Config>(),
    build: Build::Processor {
        order: Order::Stateless,
        sees_sealed: false,
        build,
    },
};

/// Settings of `truncate`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Config {
    /// The fields to shorten. Default: all.
    fields: Option<Vec<String>>,
    /// The maximum size of a text, in bytes of UTF-8.
    max: Positive<Size>,
    /// What is appended to a text that was cut. It counts towards `max`.
    #[serde(default)]
    suffix: String,
}

fn build(node: &Node, context: &BuildContext) -> Result<Box<dyn Processor>, ConfigError> {
    refuse_words(node, is_setting, &[])?;
    let config: Config = parse(node)?;
    let empty = "name at least one field, or leave `fields` out to shorten all texts";
    let fields = config
        .fields
        .map(|fields| component::fields(node, "fields", &fields, empty))
        .transpose()?;
    let limit = TextLimit::new(config.max.bytes(), &config.suffix).ok_or_else(|| {
        let message = format!(
            "the suffix has {} bytes, and `max` allows {}",
            config.suffix.len(),
            *config.max
        );
        node.nearest("suffix")
            .error(message)
            .note("the suffix counts towards `max`; use a shorter one, or a larger `max`")
    })?;
    Ok(Box::new(Truncate {
        fields,
        limit,
        tag: context.tag_or(TAG),
        texts: 0,
    }))
}

fn is_setting(name: &str, value: &str) -> bool {
    match name {
        "max" => value.parse::<Size>().is_ok(),
        "suffix" => is_no_field(value),
        _ => false,
    }
}

#[derive(Clone)]
struct Truncate {
    /// The fields to shorten; none for all.
    fields: Option<Vec<FieldPath>>,
    limit: TextLimit,
    tag: Arc<str>,
    /// How many texts were cut since the counter was asked for.
    texts: u64,
}

impl Processor for Truncate {
    fn process(&mut self, batch: &mut Batch, rows: &Bitmap) -> Failures {
        let Self { fields, limit, .. } = self;
        let done = match fields {
            None => batch.change_texts(limit, rows),
            // To find a field costs far more than to see that its document is shorter than the limit.
            Some(_) if batch.has_documents() && !batch.may_change(limit, rows) => {
                ChangedTexts::none(batch.len())
            }
            Some(fields) => batch.change_fields(fields, limit, rows),
        };
        self.texts += done.texts;
        batch.add_tag(&done.rows, &self.tag);
        Failures::none()
    }

    fn reads(&self) -> Vec<Arc<FieldRead>> {
        let fields = self.fields.iter().flatten().cloned();
        let read = |path| Arc::new(FieldRead::always(path).may_be_absent(true));
        fields.map(read).collect()
    }

    fn take_counters(&mut self) -> Vec<(&'static str, u64)> {
        vec![("truncated", std::mem::take(&mut self.texts))]
    }
}

#[cfg(test)]
mod tests {
    use batch::Edit;

    use super::*;
    use crate::testing::{
        batch_of, build, build_yaml, check, check_errors, lines_of, process, process_rows,
        text_batch,
    };

    #[test]
    fn long_texts_are_cut() {
        for (settings, event, result) in [
            (
                "max=3",
                r#"{"a":"abcd","b":"abc"}"#,
                r#"{"a":"abc","b":"abc"}"#,
            ),
            (
                "max=3",
                r#"{"a":{"b":["abcd",{"c":"abcd"},[12345]]},"abcd":1}"#,
                r#"{"a":{"b":["abc",{"c":"abc"},[12345]]},"abcd":1}"#,
            ),
            (
                "a.b max=3",
                r#"{"a":{"b":"abcd","c":"abcd"}}"#,
                r#"{"a":{"b":"abc","c":"abcd"}}"#,
            ),
            ("a.b max=3", r#"{"a.b":"abcd"}"#, r#"{"a.b":"abc"}"#),
            (
                "a.b max=3",
                r#"{"a":{"b":"abcd"},"a.b":"abcd","a.bc":"abcd"}"#,
                r#"{"a":{"b":"abc"},"a.b":"abc","a.bc":"abcd"}"#,
            ),
            (
                "a max=3",
                r#"{"a":["abcd",1],"b":"abcd"}"#,
                r#"{"a":["abc",1],"b":"abcd"}"#,
            ),
            ("`a b` max=3", r#"{"a b":"abcd"}"#, r#"{"a b":"abc"}"#),
            ("a max=2", r#"{"a":"\"\n\"\n"}"#, r#"{"a":"\"\n"}"#),
            ("max=2", r#"{"a":"\"\n\"\n"}"#, r#"{"a":"\"\n"}"#),
            ("max=6 suffix=…", r#"{"a":"日本語"}"#, r#"{"a":"日…"}"#),
            ("a max=3 suffix=…", r#"{"a":"abcd"}"#, r#"{"a":"…"}"#),
            ("max=2", "{\"a\":\"e\u{301}\"}", r#"{"a":"e"}"#),
        ] {
            let tagged = format!(r#"{},"tags":["_truncated"]}}"#, &result[..result.len() - 1]);
            check(&SPEC, &[(&format!("truncate {settings}"), event, &tagged)]);
        }
    }

    #[test]
    fn the_tag_can_be_another_one_or_none() {
        check(
            &SPEC,
            &[
                (
                    "truncate max=3 tag=cut",
                    r#"{"a":"abcd"}"#,
                    r#"{"a":"abc","tags":["cut"]}"#,
                ),
                ("truncate max=3 tag=''", r#"{"a":"abcd"}"#, r#"{"a":"abc"}"#),
            ],
        );
    }

    #[test]
    fn what_is_no_long_text_stays() {
        for stage in ["truncate max=3", "truncate a, b.c, @timestamp.x max=3"] {
            for event in [
                r#"{"a":123456.50,"b":{"c":true}}"#,
                r#"{"a":null}"#,
                r#"{ "a" : "abc" }"#,
                r#"{"x":[1234,5678]}"#,
                r#"{"a":"\"\n\""}"#,
                r#"{"@timestamp":"2026-05-01T12:00:00Z"}"#,
            ] {
                check(&SPEC, &[(stage, event, event)]);
            }
        }
    }

    #[test]
    fn texts_as_they_were_read_are_not_copied() {
        for stage in ["truncate max=5", "truncate message max=5"] {
            let mut batch = text_batch(["one", "one two three"]);
            let path = FieldPath::from_keys(["message"]);
            let before = batch.column(&path);
            process(build(&SPEC, stage).expect(stage).as_mut(), &mut batch);
            let after = batch.column(&path);
            let place = |column: &batch::Column, row| match column.value(row) {
                batch::Value::Text(text) => (text.as_ptr(), text.len()),
                other => panic!("{other:?}"),
            };
            assert_eq!(place(&after, 0), place(&before, 0));
            assert_eq!(place(&after, 1), (place(&before, 1).0, 5));
            assert_eq!(
                lines_of(&batch),
                [
                    r#"{"message":"one"}"#,
                    r#"{"message":"one t","tags":["_truncated"]}"#
                ]
            );
        }
    }

    #[test]
    fn the_event_counts_as_it_is_now() {
        let mut batch = batch_of([r#"{"a":"long text","b":"long text","c":{"d":"long text"}}"#]);
        let mut edit = Edit::new();
        let mut column = batch::ColumnBuilder::new(1);
        column.set(0, batch::Cell::Time(0));
        edit.set(FieldPath::from_keys(["a"]), column.finish())
            .remove(FieldPath::from_keys(["b"]), &Bitmap::all(1))
            .set(
                FieldPath::from_keys(["c", "e"]),
                batch::Column::constant_text(b"short", 1),
            );
        assert!(batch.apply(edit).is_empty());
        let mut truncate = build(&SPEC, "truncate max=5").expect("it builds");
        process(truncate.as_mut(), &mut batch);
        assert_eq!(truncate.take_counters(), [("truncated", 1)]);
        assert_eq!(
            lines_of(&batch),
            [
                r#"{"a":"1970-01-01T00:00:00.000Z","c":{"d":"long ","e":"short"},"tags":["_truncated"]}"#
            ]
        );
    }

    #[test]
    fn other_rows_keep_their_texts() {
        for stage in ["truncate max=1", "truncate a max=1"] {
            let mut batch = batch_of([r#"{"a":"xy"}"#, r#"{"a":"xy"}"#]);
            let mut truncate = build(&SPEC, stage).expect(stage).fork();
            let first = Bitmap::from_fn(2, |row| row == 0);
            process_rows(truncate.as_mut(), &mut batch, &first);
            assert_eq!(
                lines_of(&batch),
                [r#"{"a":"x","tags":["_truncated"]}"#, r#"{"a":"xy"}"#]
            );
        }
    }

    #[test]
    fn bad_settings_are_refused() {
        check_errors(
            &SPEC,
            &[
                ("truncate message", "max"),
                ("truncate max=0", "at least 1B"),
                ("truncate max=much", "is not a size"),
                (
                    "truncate max=2 suffix=…",
                    "the suffix has 3 bytes, and `max` allows 2",
                ),
                ("truncate a..b max=2", "`a..b` is not a field name"),
                ("truncate fields=[] max=2", "name at least one field"),
                ("truncate a max=2 prefix=x", "prefix"),
            ],
        );
        assert!(build_yaml(&SPEC, "{ max: 1KiB }").is_ok());
        assert!(build_yaml(&SPEC, "{ fields: [a], max: 1KiB, suffix: ... }").is_ok());
    }
}
