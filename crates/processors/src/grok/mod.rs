//! `grok`: parses text into fields using named patterns.
//!
//! Patterns are compiled by the `grok` crate when the pipeline is built ([`settings`]). Most rows are simple: one match, each
//! field captured once and not in the event before; their captures become cells that point into the source's buffers. All
//! other rows go through [`general`], which collects values first and knows the rules for what meets in one field.
//!
//! Limits: a match takes a bounded number of steps (`match_limit`); texts of 4 GiB and more are given up.

mod general;
mod settings;

use std::sync::Arc;

use batch::{
    Batch, Bitmap, Cell, Column, ColumnBuilder, Edit, Failures, FieldPath, FieldRead, Span, Value,
};
use bytes::Bytes;
use component::{Build, Example, Order, Processor, Spec};
use config::Positional;
use grok::{CaptureType, Outcome, Pattern, Scratch};

use general::Row;
use settings::Config;

/// The `grok` processor.
pub const SPEC: Spec = Spec {
    name: "grok",
    aliases: &[],
    summary: "Parses text into fields using named patterns.",
    description: DESCRIPTION,
    positional: Positional::with_rest(&["pattern"]),
    one_line: &[],
    examples: &[
        Example {
            title: "A line of an access log",
            stage: "grok \"%{COMMONAPACHELOG}\"",
            input: "192.0.2.7 - - [17/May/2015:10:05:03 +0000] \"GET /index.html HTTP/1.1\" 200 3638\nno request at all",
            output: "{\"message\":\"192.0.2.7 - - [17/May/2015:10:05:03 +0000] \\\"GET /index.html HTTP/1.1\\\" 200 3638\",\
                     \"clientip\":\"192.0.2.7\",\"ident\":\"-\",\"auth\":\"-\",\"timestamp\":\"17/May/2015:10:05:03 +0000\",\
                     \"verb\":\"GET\",\"request\":\"/index.html\",\"httpversion\":\"1.1\",\"response\":\"200\",\"bytes\":\"3638\"}\n\
                     {\"message\":\"no request at all\",\"tags\":[\"_grokparsefailure\"],\
                     \"error\":{\"message\":\"grok: no pattern matches\"}}",
        },
        Example {
            title: "Types, nested fields, an expression without a definition, and a field that is replaced",
            stage: "grok '%{IP:[source][ip]} %{NUMBER:took:float} %{INT:status:int} (?<level>[A-Z]+): %{GREEDYDATA:message}' \
                    overwrite=message",
            input: r#"{"message":"192.0.2.7 0.25 404 WARN: not here"}"#,
            output: "{\"message\":\"not here\",\"source\":{\"ip\":\"192.0.2.7\"},\"took\":0.25,\"status\":404,\"level\":\"WARN\"}",
        },
        Example {
            title: "Several patterns, the names of the Elastic Common Schema, another field",
            stage: "grok '%{HTTPD_COMMONLOG}' '%{SYSLOGLINE}' pattern_set=ecs-v1 field=event.original",
            input: r#"{"event":{"original":"Oct 11 22:14:15 web1 sshd[42]: session opened"}}"#,
            output: "{\"event\":{\"original\":\"Oct 11 22:14:15 web1 sshd[42]: session opened\"},\
                     \"timestamp\":\"Oct 11 22:14:15\",\"host\":{\"hostname\":\"web1\"},\
                     \"process\":{\"name\":\"sshd\",\"pid\":42},\"message\":\"session opened\"}",
        },
    ],
    schema: |generator| generator.subschema_for::<Config>(),
    build: Build::Processor {
        order: Order::Stateless,
        sees_sealed: false,
        build: settings::build,
    },
};

const DESCRIPTION: &str = "\
`%{NAME:field}` refers to the definition `NAME` and captures what it matches into `field`; `%{NAME:field:int}` and
`:float` convert it to a number, `%{NAME:[a][b]}` or `%{NAME:a.b}` a field in an object, and `(?<field>…)` captures without a
definition. `%{NAME=expression}` and `%{NAME:field=expression}` define `NAME` for the rest of the pattern; braces in the
expression must come in pairs or be escaped. Text after a space is a comment: `%{NAME:field comment}`.

Two sets of definitions are built in: `legacy` with flat names (`%{COMBINEDAPACHELOG}` gives
`clientip`, `verb`, `response`) and `ecs-v1` with those of the Elastic Common Schema (`source.address`, `http.request.method`), which
new configurations should prefer: `pattern_set=ecs-v1`. Regular expressions follow Oniguruma:
`^` and `$` match at every line, `\\A` and `\\z` at the ends of the text, `\\h` is a hexadecimal digit.

As in Logstash, the dot also matches line ends, as if every pattern began with `(?m)`. `%{GREEDYDATA:m}` therefore takes all
lines of an event such as a stack trace, and `CATALINALOG`, `TOMCATLOG` and `HTTPD_ERRORLOG` match such events. `(?-m)` turns
that off: the dot then stops at a line end. Flags such as `(?i)` apply up to the end of their group, and in the definitions
that it refers to: `(?i)%{LOGLEVEL:level}`, `(?-m:%{GREEDYDATA:first_line})`. `(?x)` therefore ignores the spaces in those
definitions as well.

- Patterns are tried in order. The first match wins, and no later field is searched either, unless `break_on_match` is false.
- An event that no pattern matches, or that does not have the field, fails with the tag `_grokparsefailure`. If the search takes
  more steps than `match_limit` allows, it fails with `_groktimeout`. No built-in definition
  comes near the limit on ordinary log lines: what failed once at a position is not tried there again. That does not hold
  for patterns with a few constructs, such as a back-reference (`\\k<name>`) or a repetition of something that can be empty
  (`(?:a*b*)*`); for them a limit above 10,000,000 has no further effect.
- Empty captures are left out. A name captured twice, or captured where the event has a value, becomes an
  array of both, as in Logstash, unless `overwrite` names it: `'%{WORD:level} %{GREEDYDATA:message}'` makes `message` a list of the
  whole line and its end, and with `overwrite=message` it is the end alone. A capture is left out where the event has an object of that name.
- As in Logstash, the fields `agent` and `referrer` of the legacy `COMBINEDAPACHELOG` keep their quotes: `where agent == \"curl/8.5.0\"` finds
  nothing there. With `pattern_set=ecs-v1`, `user_agent.original` and `http.request.referrer` have none.
- A name alone, such as `level`, is refused as a second pattern; the field to search is the setting `field=level`.
- If the field is a list, every element is tried, and the captures of all matching elements are kept. Numbers and booleans are
  matched as they are written.
- With `:int`, text that begins with a whole number becomes that number: `12ms` gives 12. `:float` also reads a fraction and
  an exponent: `12.5ms` gives 12.5. Any other text stays a string; Logstash turns it into 0.
";

/// The patterns of one field.
#[derive(Clone)]
struct Source {
    field: FieldPath,
    patterns: Vec<Compiled>,
}

/// A pattern with where its captures go.
#[derive(Clone)]
struct Compiled {
    pattern: Pattern,
    scratch: Scratch,
    /// For each capture, its field's index in [`Grok::fields`] and its type.
    captures: Vec<(usize, CaptureType)>,
    /// Whether every capture has a field of its own.
    is_plain: bool,
}

/// A field that captures go to.
#[derive(Clone)]
struct Field {
    path: FieldPath,
    overwrites: bool,
}

#[derive(Clone)]
struct Grok {
    sources: Vec<Source>,
    fields: Vec<Field>,
    break_on_match: bool,
    keep_empty: bool,
    tag: Arc<str>,
    timeout_tag: Arc<str>,
    no_match: Arc<str>,
    timeout: Arc<str>,
    row: Row,
}

/// The columns of one batch.
struct Columns {
    sources: Vec<Arc<Column>>,
    /// For each source, where its buffers begin in the list that all written columns share.
    bases: Vec<u32>,
    written: Vec<ColumnBuilder>,
    /// What the event has in each field already; nothing to ask where that is overwritten or absent in all rows.
    present: Vec<Option<Arc<Column>>>,
    /// Whether a plain match may be written at once.
    is_plain: bool,
}

impl Processor for Grok {
    fn process(&mut self, batch: &mut Batch, rows: &Bitmap) -> Failures {
        let mut columns = self.columns(batch);
        let mut failures = Failures::none();
        for row in rows.iter() {
            match self.row(row, &mut columns) {
                Outcome::Match => {}
                Outcome::NoMatch => failures.push(row, &self.tag, &self.no_match),
                Outcome::LimitReached => failures.push(row, &self.timeout_tag, &self.timeout),
            }
        }
        let mut edit = Edit::new();
        let written = self.fields.iter().zip(columns.written);
        for (field, column) in written.filter(|(_, column)| !column.is_untouched()) {
            edit.set(field.path.clone(), column.finish());
        }
        failures.extend_refused(batch.apply(edit), &self.tag);
        failures
    }

    fn reads(&self) -> Vec<Arc<FieldRead>> {
        let sources = self.sources.iter().map(|source| source.field.clone());
        sources
            .map(|field| Arc::new(FieldRead::always(field)))
            .collect()
    }
}

impl Grok {
    fn columns(&self, batch: &Batch) -> Columns {
        let sources: Vec<Arc<Column>> = self
            .sources
            .iter()
            .map(|source| batch.column(&source.field))
            .collect();
        let (buffers, bases) = joined_buffers(&sources);
        let present = |field: &Field| {
            let column = (!field.overwrites).then(|| batch.column(&field.path))?;
            (column.as_constant() != Some(Cell::Missing)).then_some(column)
        };
        let present: Vec<_> = self.fields.iter().map(present).collect();
        Columns {
            bases,
            written: self
                .fields
                .iter()
                .map(|_| ColumnBuilder::over(batch.len(), buffers.clone()))
                .collect(),
            is_plain: self.break_on_match
                && !self.keep_empty
                && present.iter().all(Option::is_none),
            present,
            sources,
        }
    }

    /// Matches one row and writes its captures.
    #[inline]
    fn row(&mut self, row: usize, columns: &mut Columns) -> Outcome {
        if columns.is_plain
            && let Some(outcome) = self.plain_row(row, columns)
        {
            return outcome;
        }
        self.general_row(row, columns)
    }

    /// The way of most rows: one source with a text, of which the first pattern that matches is plain. `None` for all
    /// others, with nothing written.
    #[inline]
    fn plain_row(&mut self, row: usize, columns: &mut Columns) -> Option<Outcome> {
        let [source] = self.sources.as_mut_slice() else {
            return None;
        };
        let Cell::Text(whole) = columns.sources[0].cell(row) else {
            return None;
        };
        let text = columns.sources[0].bytes(whole);
        for compiled in &mut source.patterns {
            match compiled.pattern.matches(text, &mut compiled.scratch) {
                Outcome::Match if !compiled.is_plain => return None,
                Outcome::Match => {
                    write_plain(compiled, row, whole, text, &mut columns.written);
                    return Some(Outcome::Match);
                }
                Outcome::LimitReached => return Some(Outcome::LimitReached),
                Outcome::NoMatch => {}
            }
        }
        Some(Outcome::NoMatch)
    }
}

/// Writes the captures of a match, each into a field of its own.
#[inline]
fn write_plain(
    compiled: &Compiled,
    row: usize,
    whole: Span,
    text: &[u8],
    written: &mut [ColumnBuilder],
) {
    for (span, &(field, kind)) in compiled.scratch.spans().iter().zip(&compiled.captures) {
        if span.is_none() || span.start == span.end {
            continue;
        }
        let view = Span {
            start: whole.start + span.start,
            len: span.end - span.start,
            ..whole
        };
        let cell = match kind {
            CaptureType::Text => Cell::Text(view),
            _ => span
                .of(text)
                .and_then(|text| number(text, kind))
                .unwrap_or(Cell::Text(view)),
        };
        written[field].set(row, cell);
    }
}

/// The number that a captured text stands for.
fn number(text: &[u8], kind: CaptureType) -> Option<Cell> {
    let text = std::str::from_utf8(text).ok()?;
    match kind {
        CaptureType::Text => None,
        CaptureType::Int => {
            let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
            let length = digits.bytes().take_while(u8::is_ascii_digit).count();
            let whole = &text[..text.len() - digits.len() + length];
            whole
                .parse()
                .map(Cell::Int)
                .or_else(|_| whole.parse().map(Cell::UInt))
                .ok()
        }
        CaptureType::Float => {
            let number = text[..number_end(text)?].parse::<f64>().ok();
            number.filter(|number| number.is_finite()).map(Cell::Float)
        }
    }
}

/// Where the decimal number ends that a text begins with.
fn number_end(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let sign = |at: usize| usize::from(matches!(bytes.get(at), Some(b'+' | b'-')));
    let digits = |from: usize| {
        let rest = bytes.get(from..).unwrap_or_default();
        rest.iter().take_while(|byte| byte.is_ascii_digit()).count()
    };
    let start = sign(0);
    let whole = digits(start);
    let mut end = start + whole;
    let fraction = digits(end + 1);
    if whole + fraction == 0 {
        return None;
    }
    if bytes.get(end) == Some(&b'.') {
        end += 1 + fraction;
    } else if whole == 0 {
        return None;
    }
    if matches!(bytes.get(end), Some(b'e' | b'E')) {
        let exponent = end + 1 + sign(end + 1);
        if digits(exponent) > 0 {
            end = exponent + digits(exponent);
        }
    }
    Some(end)
}

/// The buffers of all sources in one list, and where each source's begin in it.
fn joined_buffers(sources: &[Arc<Column>]) -> (Arc<[Bytes]>, Vec<u32>) {
    if let [only] = sources {
        return (only.buffers().clone(), vec![0]);
    }
    let mut all: Vec<Bytes> = Vec::new();
    let mut bases = Vec::new();
    for source in sources {
        bases.push(all.len() as u32);
        all.extend(source.buffers().iter().cloned());
    }
    (all.into(), bases)
}

/// The text of a value that grok matches; `None` where there is no value.
fn text_of<'v>(value: Value<'v>, written: &'v mut Vec<u8>) -> Option<&'v [u8]> {
    match value {
        Value::Missing | Value::Null => None,
        Value::Text(text) => Some(text),
        other => {
            written.clear();
            other.write_text(written);
            Some(written)
        }
    }
}

#[cfg(test)]
mod tests;
