//! `lookup`: adds what a table says of an event's values.
//!
//! | module | holds |
//! | --- | --- |
//! | `plan` | the settings, checked |
//! | `csv`, `objects`, `mmdb` | the formats of tables |
//! | `builder` | makes a table of rows |
//! | `read` | reads a file |
//! | `table`, `rows` | a table in memory |
//! | `keys`, `intervals` | how rows are found |
//! | `watched` | reads the table again when its file changes |
//!
//! Values of the table become views of its text: a hit costs a cell for each column, and no copy.

mod builder;
mod csv;
mod error;
mod intervals;
mod keys;
mod lines;
mod mmdb;
mod objects;
mod plan;
mod read;
mod rows;
mod table;
#[cfg(test)]
mod tests;
mod watched;

use std::sync::Arc;

use batch::{Batch, Bitmap, Cell, ColumnBuilder, Edit, Failures, FieldPath, FieldRead};
use component::{Build, BuildContext, Example, Order, Processor, Spec, Warning, parse};
use config::{ConfigError, Node, Positional};

use error::TableError;
use plan::{Config, plan};
use table::{FoundRows, Table};
use watched::WatchedTable;

const FAILURE_TAG: &str = "_lookupfailure";

/// The processor's description.
pub const SPEC: Spec = Spec {
    name: "lookup",
    aliases: &[],
    summary: "Adds what a table says of an event's values: CSV, NDJSON or a MaxMind database, by key, network or range.",
    description: DESCRIPTION,
    positional: Positional::list(&["fields"]),
    one_line: &[],
    examples: &[
        Example {
            title: "By a key; `hosts.csv` has the lines `ip,name,owner`, `10.0.0.1,web-1,shop` and `10.0.0.2,db-1,`",
            stage: "lookup clientip table=hosts.csv key=ip default.owner=nobody",
            input: "{\"clientip\":\"10.0.0.1\"}\n{\"clientip\":\"10.0.0.2\"}\n{\"clientip\":\"10.9.9.9\"}\n{\"client\":\"10.0.0.1\"}",
            output: "{\"clientip\":\"10.0.0.1\",\"name\":\"web-1\",\"owner\":\"shop\"}\n{\"clientip\":\"10.0.0.2\",\"name\":\"db-1\",\"owner\":\"nobody\"}\n\
                     {\"clientip\":\"10.9.9.9\",\"owner\":\"nobody\"}\n{\"client\":\"10.0.0.1\"}",
        },
        Example {
            title: "By the network of an address; `networks.csv` has the lines `network,site`, `10.0.0.0/8,office`, `10.1.0.0/16,lab` and `2001:db8::/32,cloud`",
            stage: "lookup clientip table=networks.csv network=network columns='site -> source.site' tag=_unknown_network",
            input: "{\"clientip\":\"10.1.2.3\"}\n{\"clientip\":\"10.2.3.4\"}\n{\"clientip\":\"2001:db8::7\"}\n{\"clientip\":\"192.0.2.1\"}",
            output: "{\"clientip\":\"10.1.2.3\",\"source\":{\"site\":\"lab\"}}\n{\"clientip\":\"10.2.3.4\",\"source\":{\"site\":\"office\"}}\n\
                     {\"clientip\":\"2001:db8::7\",\"source\":{\"site\":\"cloud\"}}\n{\"clientip\":\"192.0.2.1\",\"tags\":[\"_unknown_network\"]}",
        },
        Example {
            title: "By a range; `classes.ndjson` has the lines `{\"low\":200,\"high\":399,\"class\":\"ok\",\"alert\":false}` and `{\"low\":500,\"high\":599,\"class\":\"broken\",\"alert\":true}`",
            stage: "lookup status table=classes.ndjson from=low to=high target=http",
            input: "{\"status\":204}\n{\"status\":\"503\"}\n{\"status\":404}",
            output: "{\"status\":204,\"http\":{\"class\":\"ok\",\"alert\":false}}\n{\"status\":\"503\",\"http\":{\"class\":\"broken\",\"alert\":true}}\n{\"status\":404}",
        },
        Example {
            title: "Single values of a database",
            stage: "lookup clientip table=GeoLite2-City.mmdb columns=['country.iso_code -> client.country', 'city.names.en -> client.city']",
            input: r#"{"clientip":"81.2.69.142"}"#,
            output: r#"{"clientip":"81.2.69.142","client":{"country":"GB","city":"London"}}"#,
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
The value of a field is looked up in a table, and the columns of the row that is found are written to the event, over what is there.

**Tables.** The name of the file says its format, unless `format` does:

| ending | format |
| --- | --- |
| `.csv`, `.tsv` | CSV (RFC 4180) with a header, a comma or a tab between fields, or `delimiter`. All values are texts |
| `.ndjson`, `.jsonl`, `.json` | a JSON object a line. Values keep their types; a column may be a member of an object within: `a.b` |
| `.mmdb` | a database in the MaxMind format, of any type. A column may be a member of an object within: `country.iso_code` |

The texts are UTF-8; blank lines count for nothing. The names of columns are those of the header, or of the members of all objects.

**How a row is found.** One of these:

| settings | a row is found if |
| --- | --- |
| `key=ip`, `key=[user, host]` | the texts of the fields are those of the columns, in the same order. Without `key`, the columns have the names of the fields |
| `network=net` | the address lies in the network (`10.0.0.0/8`, `2001:db8::/32`, or an address). Of several networks, the one with the longest prefix counts |
| `from=first to=last` | the value lies between the two, or is one of them. Both are numbers, or IP addresses |
| a `.mmdb` file | the address lies in the network |

Texts are compared byte for byte: `Web-1` is not `web-1` (`set host = lower(host)` before it helps). A number or truth value counts as the text that it is written as; a text counts as a number in ranges of numbers.
Of a list, the first value is looked up. IPv4 addresses within IPv6 (`::ffff:10.0.0.1`) count as IPv4.

**What is written.** All columns but those of the key, or those in `columns`, to fields of their names; `a.b` is `b` in the object `a`. `column -> field` gives another name. With `target`, all of that lies in this object. An empty
text of CSV and a null of NDJSON are no value: nothing is written.

**Without a row**, nothing is written, except that the columns in `default` get their values there, as they do where a row has no value. With `tag`, events without a row get this tag; this is not a failure, and later
processors still run. If the field, or one of several, is absent or null, nothing happens at all. An event in which a field cannot be written, because a value above it is not an object, fails with `_lookupfailure` (or `tag`).

**What is refused** when the pipeline starts, with the line: a row with more or fewer fields than the header, an object that is not valid JSON, a key without a value, a key or network that is there twice, ranges that overlap, a
network or range that is none, and text that is not UTF-8.

**Changes.** The file is looked at every 2 seconds, and read again on a thread of its own when it has changed and the last look found the same; events wait for nothing. A new table that would be refused, or a file that is gone, gives a
warning, and the table from before stays in use. Write a new file beside it and rename it, or change it in place: what is read while it changes is not used. An event that is processed again after a crash may find another
table than before.

**Memory.** The table is kept in memory once for all workers, without its file: the bytes of the keys and of the values that are written, a byte for each value (two from 32 bytes on) and for each row, and for each row

| row | bytes |
| --- | --- |
| with a key | 12, and a byte for each column of the key (two from 128 bytes on) |
| with a network or range of IPv4 addresses | 10 to 24 |
| with a network or range of IPv6 addresses, or a range of numbers | 20 to 40 |

A CSV file of 44.7 MB with 1,000,000 rows takes 58 MB. A `.mmdb` file has such a row for each network, and the values of each entry once. While a table is read again there are two. A table has at most 4 GiB of keys and values, and writes at most 128 columns.
";

fn build(node: &Node, context: &BuildContext) -> Result<Box<dyn Processor>, ConfigError> {
    let config: Config = parse(node)?;
    let empty = "name the field whose value is looked up";
    let fields = component::fields(node, "fields", &config.fields, empty)?;
    let plan = plan(node, &config)?;
    let path = plan.path.clone();
    let source = WatchedTable::open(plan, watched::EVERY).map_err(|error| {
        let setting = match &error {
            TableError::NoColumn { setting, .. } => setting,
            TableError::UnknownColumn(_) => "columns",
            _ => "table",
        };
        node.nearest(setting)
            .error(format!("cannot use the table `{path}`: {error}"))
    })?;
    Ok(Box::new(Lookup {
        fields,
        source,
        miss_tag: context.tag.clone(),
        failure_tag: context.tag_or(FAILURE_TAG),
        found: FoundRows::default(),
        hits: 0,
        misses: 0,
    }))
}

#[derive(Clone)]
struct Lookup {
    fields: Vec<FieldPath>,
    source: Arc<WatchedTable>,
    /// The tag of events whose value is not in the table.
    miss_tag: Option<Arc<str>>,
    failure_tag: Arc<str>,
    found: FoundRows,
    hits: u64,
    misses: u64,
}

impl Processor for Lookup {
    fn process(&mut self, batch: &mut Batch, rows: &Bitmap) -> Failures {
        let table = self.source.table();
        let fields = batch.columns(&self.fields);
        table.look_up(&fields, rows, &mut self.found);
        self.hits += self.found.hits.len() as u64;
        self.misses += self.found.misses.len() as u64;
        let edit = self.edit(&table, batch.len());
        let mut failures = Failures::none();
        if !edit.is_empty() {
            failures.extend_refused(batch.apply(edit), &self.failure_tag);
        }
        if let Some(tag) = &self.miss_tag
            && !self.found.misses.is_empty()
        {
            let mut unknown = Bitmap::none(batch.len());
            self.found
                .misses
                .iter()
                .for_each(|row| unknown.insert(*row));
            for failure in failures.rows() {
                unknown.remove(failure.row);
            }
            batch.add_tag(&unknown, tag);
        }
        failures
    }

    fn reads(&self) -> Vec<Arc<FieldRead>> {
        let read = |path: &FieldPath| Arc::new(FieldRead::always(path.clone()));
        self.fields.iter().map(read).collect()
    }

    fn take_counters(&mut self) -> Vec<(&'static str, u64)> {
        let [hits, misses] = [&mut self.hits, &mut self.misses].map(std::mem::take);
        let mut counters = vec![("hits", hits), ("misses", misses)];
        let (reloads, failed) = self.source.take_reloads();
        counters.extend((reloads > 0).then_some(("reloads", reloads)));
        counters.extend((failed > 0).then_some(("failed_reloads", failed)));
        counters
    }

    fn take_warnings(&mut self) -> Vec<Warning> {
        self.source.take_warnings()
    }
}

impl Lookup {
    /// What the rows of the table, and the defaults, write.
    fn edit(&self, table: &Table, len: usize) -> Edit {
        let mut written: Vec<ColumnBuilder> = table
            .columns
            .iter()
            .map(|_| ColumnBuilder::over(len, table.text.clone()))
            .collect();
        for (row, at) in &self.found.hits {
            for (column, cell) in written.iter_mut().zip(table.cells(*at)) {
                column.set(*row, cell);
            }
        }
        for (name, value) in &self.source.plan().defaults {
            let columns = table.columns.iter().zip(&mut written);
            let Some((_, column)) = columns.into_iter().find(|(it, _)| *it.name == **name) else {
                continue;
            };
            let cell = value.cell(column);
            let hits = self.found.hits.iter().map(|(row, _)| *row);
            for row in hits.chain(self.found.misses.iter().copied()) {
                if column.cell(row) == Cell::Keep {
                    column.set(row, cell);
                }
            }
        }
        let mut edit = Edit::new();
        for (column, values) in table.columns.iter().zip(written) {
            if !values.is_untouched() {
                edit.set(column.path.clone(), values.finish());
            }
        }
        if table.has_dotted_keys && !edit.is_empty() {
            edit.dotted_keys();
        }
        edit
    }
}
