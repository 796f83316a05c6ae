//! The codec `compact`: an event on one line, for people.
//!
//! Time, level, host where it is another one than this machine, and message stand at the beginning without their names; all other
//! fields follow as pairs of logfmt. Control characters are escaped, so that an event is one line and does nothing to a terminal.

use std::sync::Arc;

use batch::{Batch, Column, FieldPath, Value};
use component::terminal::escaped;

use super::logfmt::BoundLogfmt;

/// Fields that hold the level of an event; the first one that is there counts.
const LEVELS: [&str; 3] = ["log.level", "level", "log.syslog.severity.name"];

/// The events of one batch.
#[derive(Debug)]
pub struct BoundCompact<'a> {
    time: Named,
    levels: [Named; 3],
    host: Named,
    message: Named,
    /// The machine whose name is left out.
    own_host: Arc<str>,
    pairs: BoundLogfmt<'a>,
}

/// A field with its name.
#[derive(Debug)]
struct Named {
    name: &'static str,
    column: Arc<Column>,
}

impl Named {
    fn new(batch: &Batch, name: &'static str) -> Self {
        let column = batch.column(&FieldPath::from_keys(name.split('.')));
        Self { name, column }
    }

    /// The value in a row, unless it is absent or null.
    fn value(&self, row: usize) -> Option<Value<'_>> {
        match self.column.value(row) {
            Value::Missing | Value::Null => None,
            value => Some(value),
        }
    }
}

impl<'a> BoundCompact<'a> {
    /// A writer for the events of `batch`.
    pub fn new(batch: &'a Batch) -> Self {
        let named = |name| Named::new(batch, name);
        Self {
            time: named("@timestamp"),
            levels: LEVELS.map(named),
            host: named("host.name"),
            message: named("message"),
            own_host: batch.host().name.clone(),
            pairs: BoundLogfmt::new(batch),
        }
    }

    /// Appends the event of a row.
    pub fn write(&mut self, row: usize, out: &mut Vec<u8>) {
        let start = out.len();
        self.pairs.skip_none();
        let level = self.levels.iter().find(|level| level.value(row).is_some());
        let fields = [
            Some(&self.time),
            level,
            Some(&self.host),
            Some(&self.message),
        ];
        for field in fields.into_iter().flatten() {
            let Some(value) = field.value(row) else {
                continue;
            };
            let before = out.len();
            if before > start {
                out.push(b' ');
            }
            let from = out.len();
            value.write_text(out);
            let is_own = field.name == self.host.name && out[from..] == *self.own_host.as_bytes();
            self.pairs.skip(field.name, &out[from..]);
            if is_own {
                out.truncate(before);
            }
        }
        self.pairs.write_behind(row, start, out);
        escape(out, start);
    }
}

/// Escapes characters that control how text is shown, from `start` on.
fn escape(out: &mut Vec<u8>, start: usize) {
    let text = &out[start..];
    // With the bytes that others begin with: U+0080 to U+009F, U+061C, U+2028 and so on.
    let may_control = |byte: &u8| byte.is_ascii_control() || matches!(byte, 0xc2 | 0xd8 | 0xe2);
    if text.iter().any(may_control) {
        let line = escaped(&String::from_utf8_lossy(text));
        out.truncate(start);
        out.extend_from_slice(line.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    fn line(document: &str) -> String {
        let batch = testing::documents(&[document]);
        let mut out = Vec::new();
        BoundCompact::new(&batch).write(0, &mut out);
        String::from_utf8_lossy(&out).into_owned()
    }

    #[test]
    fn what_people_look_for_stands_first() {
        for (document, expected) in [
            ("{}", ""),
            (r#"{"a":1,"b":{"c":"x y"}}"#, r#"a=1 b.c="x y""#),
            (
                r#"{"n":1,"message":"say \"hi\"","level":"WARN","@timestamp":"2026-01-31T12:00:00Z","host":{"name":"web1","os":"x"}}"#,
                r#"2026-01-31T12:00:00Z WARN web1 say "hi" n=1 host.os=x"#,
            ),
            (
                r#"{"level":"a","log.level":"b","message":"m"}"#,
                "b m level=a",
            ),
            (
                r#"{"log":{"level":"b","x":1},"message":null,"@timestamp":""}"#,
                "b log.x=1 message=null",
            ),
            (r#"{"message":{"a":1},"level":3}"#, r#"3 {"a":1}"#),
            (
                r#"{"message":"a\nb\t\u001b[1mc\\","n":"x\ny"}"#,
                r#"a\nb\t\u{1b}[1mc\ n="x\ny""#,
            ),
            (
                r#"{"message":"a\u009b31mb\u00e9","k\u0085":"v\u009b"}"#,
                r"a\u{9b}31mbé k\u{85}=v\u{9b}",
            ),
            (
                r#"{"message":"a\u202eb\u2028c – €","k":"\u061c"}"#,
                r"a\u{202e}b\u{2028}c – € k=\u{61c}",
            ),
            (
                r#"{"log.level":"a","log":{"level":"\u0062"},"message":"m"}"#,
                "b m log.level=a",
            ),
            (
                r#"{"log":{"level":"b"},"log.level":"b","message":"m\tn"}"#,
                r"b m\tn",
            ),
        ] {
            assert_eq!(line(document), expected, "{document}");
        }
    }

    #[test]
    fn the_name_of_this_machine_is_left_out() {
        let batch = testing::documents(&["{}"]);
        let own = &batch.host().name;
        let document = format!(r#"{{"message":"m","host":{{"name":"{own}"}}}}"#);
        assert_eq!(line(&document), "m");
    }
}
