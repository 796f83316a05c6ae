//! The codec `compact`: an event on one line, for people.
//!
//! Time, level, host where it is another one than this machine, and message stand at the beginning without their names; all other
//! fields follow as pairs of logfmt. Control characters are escaped, so that an event is one line and does nothing to a terminal.

use std::sync::Arc;

use batch::{Batch, Column, FieldPath, Value};

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
            match is_own {
                true => out.truncate(before),
                false => escape(out, from),
            }
            self.pairs.skip(field.name);
        }
        self.pairs.write_behind(row, start, out);
        escape_c1(out, start);
    }
}

/// Escapes the control characters of a text, from `start` on.
fn escape(out: &mut Vec<u8>, start: usize) {
    if !out[start..].iter().any(u8::is_ascii_control) {
        return;
    }
    let text = out.split_off(start);
    for byte in text {
        match byte {
            byte if byte.is_ascii_control() => out.extend(byte.escape_ascii()),
            byte => out.push(byte),
        }
    }
}

/// Escapes the control characters from U+0080 to U+009F, which some terminals obey as well, from `start` on.
fn escape_c1(out: &mut Vec<u8>, start: usize) {
    let is_c1 = |pair: &[u8]| pair[0] == 0xc2 && (0x80..=0x9f).contains(&pair[1]);
    if !out[start..].windows(2).any(is_c1) {
        return;
    }
    let text = out.split_off(start);
    let mut rest = &text[..];
    while let Some((&first, behind)) = rest.split_first() {
        match behind.first() {
            Some(&second) if is_c1(&[first, second]) => {
                out.extend(second.escape_ascii());
                rest = &behind[1..];
            }
            _ => {
                out.push(first);
                rest = behind;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn terminals_get_no_control_characters_beyond_ascii() {
        let line = line(r#"{"message":"a\u009b31mb\u00e9","k\u0085":"v\u009b"}"#);
        assert!(line.contains("a\\x9b31mb\u{e9}"), "{line}");
        assert!(line.contains("k\\x85=v\\x9b"), "{line}");
    }

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
                r#"a\nb\t\x1b[1mc\ n="x\ny""#,
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
