//! `date`: the time that a field's text says, as a point in time.
//!
//! Formats are compiled when the pipeline is built ([`format`]); a text is read step by step ([`read`], [`fields`]) with
//! the calendar and zones of [`datetime`]. The minute read last is remembered ([`minute`]), so that the next event of the same minute
//! costs two comparisons.
//!
//! Limits: points in time are nanoseconds in 64 bits, 1677-09-21 to 2262-04-11.

mod fields;
mod format;
mod item;
mod literal;
mod minute;
mod names;
mod read;
mod strftime;

use std::sync::Arc;

use batch::{
    Batch, Bitmap, Cell, Column, ColumnBuilder, Edit, Failures, FieldPath, FieldRead, Value,
};
use component::{Build, BuildContext, Example, Order, Processor, Spec};
use config::{ConfigError, Node, Positional};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::text::first_of;
use datetime::Zone;
use fields::{Fault, Surroundings};
use format::Format;
use minute::Minute;
use names::Names;

/// The `date` processor.
pub const SPEC: Spec = Spec {
    name: "date",
    aliases: &[],
    summary: "Parses the time in a field and sets `@timestamp` to it.",
    description: DESCRIPTION,
    positional: Positional::with_rest(&["field", "formats"]),
    one_line: &[],
    examples: &[
        Example {
            title: "The time of an access log",
            stage: r#"date timestamp "dd/MMM/yyyy:HH:mm:ss Z""#,
            input: r#"{"timestamp":"17/May/2015:10:05:03 +0200"}"#,
            output: r#"{"timestamp":"17/May/2015:10:05:03 +0200","@timestamp":"2015-05-17T08:05:03.000Z"}"#,
        },
        Example {
            title: "The letters of strftime",
            stage: r#"date at "%b %e %Y %I:%M:%S %p" timezone=UTC"#,
            input: r#"{"at":"Jan  5 2026 01:02:03 PM"}"#,
            output: r#"{"at":"Jan  5 2026 01:02:03 PM","@timestamp":"2026-01-05T13:02:03.000Z"}"#,
        },
        Example {
            title: "Several formats, and a zone for texts without one",
            stage: r#"date at ISO8601 UNIX timezone=Europe/Berlin target=seen"#,
            input: "{\"at\":\"2024-07-01 12:00:00,123456789\"}\n{\"at\":1719828000.5}\n{\"at\":\"noon\"}",
            output: "{\"at\":\"2024-07-01 12:00:00,123456789\",\"seen\":\"2024-07-01T10:00:00.123456789Z\"}\n\
                     {\"at\":1719828000.5,\"seen\":\"2024-07-01T10:00:00.500Z\"}\n\
                     {\"at\":\"noon\",\"tags\":[\"_dateparsefailure\"],\"error\":{\"message\":\"date: `noon` is not in the format ISO8601 or UNIX\"}}",
        },
        Example {
            title: "A date in German",
            stage: r#"date datum "d. MMMM yyyy HH:mm" locale=de timezone=Europe/Berlin"#,
            input: r#"{"datum":"3. März 2024 12:00"}"#,
            output: r#"{"datum":"3. März 2024 12:00","@timestamp":"2024-03-03T11:00:00.000Z"}"#,
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
Formats are tried in order; the first one that matches the whole text is used. They are written with the letters of Joda-Time:
`y` year, `M` month (`MMM` by name), `d` day, `D` day of the year, `w` week with `x` its year and `e` or `E` the weekday,
`H` hour (`k` from 1 to 24, `h` from 1 to 12 and `K` from 0 to 11 with `a` for AM or PM), `m` minute, `s` second, `S` fraction
of a second, `Z` offset (`+0200`, `+02:00`, `Z`), `ZZZ` the name of a zone, `G` era. Other letters must be in single quotes.
`z` (`CET`, `CST`) is refused, because such abbreviations are ambiguous.

A format that contains a `%` is a strftime format: `%Y-%m-%d %H:%M:%S`, `%d/%b/%Y:%H:%M:%S %z`, `%s` alone for seconds since
1970, `%f` for a fraction of up to nine digits, `%3f` of three, `%Q` the name of a zone.

A format whose letters cannot be meant so is refused with the right letter, as in `yyyy-mm-dd` (`mm` is the minute), `YYYY-MM-DD` (`DD` is the
day of the year) and `hh:mm` without `a` (an hour of 12).

A format may also be one of `ISO8601` (with `T` or a space, a point or a comma), `UNIX` (seconds, fractions too),
`UNIX_MS` or `TAI64N`.

- If the field is absent or null, nothing happens. If no format matches, the event fails with the tag `_dateparsefailure`, as
  it does for a time outside 1677-09-21 to 2262-04-11.
- Nanoseconds are kept.
- Without a year, a December date read in January belongs to last year and a January date read in December to next year, as with
  Logstash; any other date is one of the current year, also where that lies ahead. (`codec: syslog` takes the last year instead.)
  A year of two digits is the one between 80 years ago and 19 years ahead.
- A time without a zone is in `timezone`. Of a time that the clock shows twice the earlier one is taken. A time that the clock
  skips, such as 02:30 in the night in which `Europe/Berlin` goes from 02:00 to 03:00, is read as if the clock had not been put forward: 03:30.
  (Logstash fails for such a time and tags the event.)
- An event that fails keeps the `@timestamp` that it had: the time at which it was read, unless something else has set it. It thus matches
  `where @timestamp > now() - duration(\"24h\")`; add `&& !has(error.message)`, or give `date` the setting `on_failure=drop`.
- Names are English, or those of `locale` as the GNU C library writes them (`März`, `Mär`, `févr.`), in any case and with or without a point
  behind them. Unlike with Logstash, the host's locale changes nothing.
- A weekday beside a full date is not checked.
- If the field is a list, its first value is used.
";

/// The settings of `date`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Config {
    /// The field that holds the time, as text or as a number.
    field: String,
    /// The formats to try, in order.
    formats: Vec<String>,
    /// The field to write.
    #[serde(default = "default_target")]
    target: String,
    /// The zone of times that do not name one: an IANA name such as `Europe/Berlin`, an offset such as `+02:00`, or
    /// `%{field}` for a field of the event that holds one of these. Default: the zone of the host.
    timezone: Option<String>,
    /// The language of month names, weekdays, and AM and PM: `de`, `de-AT` or `de_AT`. Default: English.
    locale: Option<String>,
}

fn default_target() -> String {
    "@timestamp".to_owned()
}

/// Where the zone of texts without one comes from.
#[derive(Clone, Debug)]
enum ZoneSource {
    Given(Zone),
    Field(FieldPath),
}

#[derive(Clone)]
struct Date {
    field: FieldPath,
    target: FieldPath,
    formats: Arc<[Format]>,
    zone: ZoneSource,
    /// What the formats are called in error messages.
    expected: Arc<str>,
    tag: Arc<str>,
    /// The minute read last, for each format.
    minutes: Vec<Option<Minute>>,
    /// The zone that a field named last, by its name.
    last_zone: Option<(Box<[u8]>, Zone)>,
    /// The text of a value that is not a text.
    text: Vec<u8>,
}

fn build(node: &Node, context: &BuildContext) -> Result<Box<dyn Processor>, ConfigError> {
    let config: Config = component::parse(node)?;
    if config.formats.is_empty() {
        return Err(node
            .nearest("formats")
            .error("`date` needs at least one format")
            .accepted(literal::Literal::NAMES));
    }
    let names = names(node, config.locale.as_deref())?;
    let mut formats = Vec::new();
    for (index, text) in config.formats.iter().enumerate() {
        let at = node.nearest(&format!("formats[{index}]"));
        formats.push(
            Format::compile(text, names.as_ref())
                .map_err(|error| at.error(error.message).pointing_at(error.offset))?,
        );
    }
    Ok(Box::new(Date {
        field: crate::names::field(node, "field", &config.field)?,
        target: crate::names::field(node, "target", &config.target)?,
        zone: zone_source(node, config.timezone.as_deref())?,
        expected: config.formats.join(" or ").into(),
        tag: context.tag_or("_dateparsefailure"),
        minutes: vec![None; formats.len()],
        formats: formats.into(),
        last_zone: None,
        text: Vec::new(),
    }))
}

/// The names of a locale; nothing for English.
fn names(node: &Node, locale: Option<&str>) -> Result<Option<Arc<Names>>, ConfigError> {
    let Some(locale) = locale else {
        return Ok(None);
    };
    let names = Names::of(locale).map_err(|_| {
        let error = node
            .nearest("locale")
            .error(format!("`{locale}` is not a known locale"));
        error.accepted([
            "a language such as `de`",
            "a language and a territory such as `de-AT` or `de_AT`",
        ])
    })?;
    Ok(names.map(Arc::new))
}

fn zone_source(node: &Node, timezone: Option<&str>) -> Result<ZoneSource, ConfigError> {
    let Some(text) = timezone else {
        return Ok(ZoneSource::Given(Zone::of_host()));
    };
    if let Some(name) = text
        .strip_prefix("%{")
        .and_then(|rest| rest.strip_suffix('}'))
    {
        return Ok(ZoneSource::Field(crate::names::field(
            node, "timezone", name,
        )?));
    }
    Zone::named(text).map(ZoneSource::Given).ok_or_else(|| {
        let field = "%{field} for a field that holds one";
        config::no_zone(node.nearest("timezone"), text, &[field])
    })
}

impl Processor for Date {
    fn process(&mut self, batch: &mut Batch, rows: &Bitmap) -> Failures {
        let mut failures = Failures::none();
        let source = batch.column(&self.field);
        let zones = match &self.zone {
            ZoneSource::Field(path) => Some(batch.column(path)),
            ZoneSource::Given(_) => None,
        };
        self.forget_what_needs_now();
        let mut times = ColumnBuilder::new(batch.len());
        for row in rows.iter() {
            if let Some(zones) = &zones {
                self.take_zone(zones, row);
            }
            match self.time(source.value(row), batch.received()) {
                Ok(Some(nanos)) => times.set(row, Cell::Time(nanos)),
                Ok(None) => {}
                Err(fault) => failures.push(row, &self.tag, &self.reason(fault, source.value(row))),
            }
        }
        let mut edit = Edit::new();
        edit.set(self.target.clone(), times.finish());
        failures.extend_refused(batch.apply(edit), &self.tag);
        failures
    }

    fn reads(&self) -> Vec<Arc<FieldRead>> {
        vec![Arc::new(FieldRead::always(self.field.clone()))]
    }
}

impl Date {
    /// The time that a value says; `None` where there is no value.
    #[inline]
    fn time(&mut self, value: Value<'_>, received: i64) -> Result<Option<i64>, Fault> {
        match value {
            Value::Text(text) => self.read(text, received).map(Some),
            Value::Missing | Value::Null => Ok(None),
            Value::Time(nanos) => Ok(Some(nanos)),
            other => {
                let mut text = std::mem::take(&mut self.text);
                text.clear();
                first_of(other).write_text(&mut text);
                let time = self.read(&text, received);
                self.text = text;
                time.map(Some)
            }
        }
    }

    #[inline]
    fn read(&mut self, text: &[u8], received: i64) -> Result<i64, Fault> {
        // The formats before one must be tried first: only the first one's minute may be asked without that.
        if let Some(Some(minute)) = self.minutes.first()
            && let Some(nanos) = minute.read(text)
        {
            return Ok(nanos);
        }
        self.read_by_format(text, received)
    }

    fn read_by_format(&mut self, text: &[u8], received: i64) -> Result<i64, Fault> {
        let zone = match &self.zone {
            ZoneSource::Given(zone) => Some(zone),
            ZoneSource::Field(_) => self.last_zone.as_ref().map(|(_, zone)| zone),
        };
        let around = Surroundings { zone, received };
        let mut fault = Fault::Mismatch;
        for (format, minute) in self.formats.iter().zip(&mut self.minutes) {
            if let Some(nanos) = minute.as_ref().and_then(|minute| minute.read(text)) {
                return Ok(nanos);
            }
            match format.read(text, &around) {
                Ok(moment) => {
                    *minute = Minute::remember(text, moment);
                    return Ok(moment.nanos);
                }
                Err(Fault::Mismatch) => {}
                Err(other) => fault = other,
            }
        }
        Err(fault)
    }

    fn forget_what_needs_now(&mut self) {
        for (format, minute) in self.formats.iter().zip(&mut self.minutes) {
            if format.needs_now() {
                *minute = None;
            }
        }
    }

    /// Takes the zone that the event's field names. Minutes of another zone are forgotten.
    fn take_zone(&mut self, zones: &Column, row: usize) {
        let mut name = Vec::new();
        zones.value(row).write_text(&mut name);
        if self
            .last_zone
            .as_ref()
            .is_some_and(|(known, _)| **known == *name)
        {
            return;
        }
        self.minutes.fill(None);
        let zone = std::str::from_utf8(&name).ok().and_then(Zone::named);
        self.last_zone = zone.map(|zone| (name.into(), zone));
    }

    fn reason(&self, fault: Fault, value: Value<'_>) -> Arc<str> {
        const SHOWN_MAX: usize = 100;
        let mut text = Vec::new();
        value.write_text(&mut text);
        let mut text = String::from_utf8_lossy(&text).into_owned();
        if text.len() > SHOWN_MAX {
            text.truncate(text.floor_char_boundary(SHOWN_MAX));
            text.push('…');
        }
        match (fault, &self.zone) {
            (Fault::OutOfRange, _) => {
                format!("date: `{text}` is outside of 1677-09-21 to 2262-04-11")
            }
            (Fault::NoZone, ZoneSource::Field(path)) => {
                format!("date: the field {path} does not hold a time zone for `{text}`")
            }
            _ => format!("date: `{text}` is not in the format {}", self.expected),
        }
        .into()
    }
}

#[cfg(test)]
mod tests;
