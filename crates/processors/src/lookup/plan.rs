//! How a table is read: what the settings say, checked.

use std::collections::BTreeMap;
use std::path::Path;

use batch::FieldPath;
use component::plural;
use config::{ConfigError, Node};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::literal::Literal;
use crate::names;

/// Settings of `lookup`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Config {
    /// The field whose value is looked up; several for a key of several columns.
    pub fields: Vec<String>,
    /// The path of the file.
    #[serde(deserialize_with = "config::paths")]
    pub table: String,
    /// The format of the file. Default: as its name ends.
    pub format: Option<FormatName>,
    /// The character between the fields of CSV: one ASCII character, or `tab`. Default: a comma; a tab in files called `.tsv`.
    pub delimiter: Option<String>,
    /// The columns whose texts are those of the fields. Default: those with the names of the fields.
    pub key: Option<Vec<String>>,
    /// The column with the network in which the address lies.
    pub network: Option<String>,
    /// The column with the lowest value of a range.
    pub from: Option<String>,
    /// The column with the highest value of a range.
    pub to: Option<String>,
    /// The columns to write, each by its name, or as `column -> field`. Default: all but those of the key.
    pub columns: Option<Vec<String>>,
    /// The object to write into. Default: none; columns become fields of the event.
    pub target: Option<String>,
    /// Columns with the values that are written where the table has none. Default: none.
    #[serde(default)]
    pub default: BTreeMap<String, Literal>,
}

/// The name of a format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum FormatName {
    /// Rows with a header.
    Csv,
    /// An object a line.
    Ndjson,
    /// The MaxMind format.
    Mmdb,
}

/// How a table is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TableFormat {
    /// Rows with this character between fields, the first of them the header.
    Csv {
        delimiter: u8,
    },
    Ndjson,
    Mmdb,
}

/// The columns by which rows are found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum KeyColumns {
    /// Their texts are those of the fields.
    Exact(Vec<String>),
    /// The address lies in the network.
    Network(String),
    /// The value lies between the two, or is one of them.
    Range(String, String),
    /// The networks of a database.
    Database,
}

impl KeyColumns {
    /// Their names, in the order in which a row has them.
    pub fn names(&self) -> Vec<&str> {
        match self {
            Self::Exact(columns) => columns.iter().map(String::as_str).collect(),
            Self::Network(column) => vec![column],
            Self::Range(from, to) => vec![from, to],
            Self::Database => Vec::new(),
        }
    }

    /// The setting that names them.
    pub fn setting(&self, column: usize) -> &'static str {
        match (self, column) {
            (Self::Network(_), _) => "network",
            (Self::Range(..), 0) => "from",
            (Self::Range(..), _) => "to",
            _ => "key",
        }
    }
}

/// A column that the settings name.
#[derive(Clone, Debug)]
pub(super) struct WantedColumn {
    pub name: String,
    /// The field that gets its values, below the target; none where it has the column's name.
    pub path: Option<FieldPath>,
}

/// How a table is read.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub path: String,
    pub format: TableFormat,
    pub key: KeyColumns,
    /// The columns that are written; none for all but those of the key.
    pub columns: Option<Vec<WantedColumn>>,
    pub target: Option<FieldPath>,
    /// What columns have where a row has no value, and where there is no row.
    pub defaults: Vec<(String, Literal)>,
}

impl Plan {
    /// Whether all columns are written, and this one is among them.
    pub fn takes(&self, column: &str) -> bool {
        self.columns.is_none() && !self.key.names().contains(&column)
    }
}

/// Reads the settings that say how a table is read.
///
/// # Errors
/// Settings that do not go together, with their place.
pub(super) fn plan(node: &Node, config: &Config) -> Result<Plan, ConfigError> {
    let format = format(node, config)?;
    let key = key_columns(node, config, format)?;
    let wanted = match &key {
        KeyColumns::Exact(columns) => columns.len(),
        _ => 1,
    };
    if config.fields.len() != wanted {
        let fields = plural(config.fields.len() as u64, "field");
        let message = match &key {
            KeyColumns::Exact(_) => format!(
                "{fields} cannot be looked up in {}: each column of the key needs its field",
                plural(wanted as u64, "column")
            ),
            _ => "one field is looked up in networks and ranges".to_owned(),
        };
        return Err(node.nearest("fields").error(message));
    }
    let columns = config.columns.as_ref().map(|columns| {
        let column = |(index, text): (usize, &String)| {
            wanted_column(node.nearest(&format!("columns[{index}]")), text)
        };
        columns.iter().enumerate().map(column).collect()
    });
    let columns: Option<Vec<WantedColumn>> = columns.transpose()?;
    for name in config.default.keys() {
        let is_other = |columns: &Vec<WantedColumn>| columns.iter().all(|it| it.name != *name);
        if columns.as_ref().is_some_and(is_other) {
            let place = node.nearest(&format!("default.{name}"));
            return Err(place.error(format!(
                "`{name}` is not among the columns that are written"
            )));
        }
    }
    let defaults = config.default.iter();
    Ok(Plan {
        path: config.table.clone(),
        format,
        key,
        columns,
        target: names::target(node, config.target.as_deref())?,
        defaults: defaults
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect(),
    })
}

fn format(node: &Node, config: &Config) -> Result<TableFormat, ConfigError> {
    let extension = Path::new(&config.table).extension();
    let extension = extension
        .unwrap_or_default()
        .to_string_lossy()
        .to_lowercase();
    let named = match (config.format, &*extension) {
        (Some(format), _) => format,
        (None, "csv" | "tsv") => FormatName::Csv,
        (None, "ndjson" | "jsonl" | "json") => FormatName::Ndjson,
        (None, "mmdb") => FormatName::Mmdb,
        (None, _) => {
            let message = format!("the name of `{}` does not say its format", config.table);
            let error = node.nearest("table").error(message);
            return Err(error.note("add format=csv, format=ndjson or format=mmdb"));
        }
    };
    if named != FormatName::Csv && config.delimiter.is_some() {
        return Err(node.nearest("delimiter").error("`delimiter` is for CSV"));
    }
    Ok(match named {
        FormatName::Ndjson => TableFormat::Ndjson,
        FormatName::Mmdb => TableFormat::Mmdb,
        FormatName::Csv => TableFormat::Csv {
            delimiter: match config.delimiter.as_deref() {
                None if extension == "tsv" => b'\t',
                None => b',',
                Some(text) => codec::csv_delimiter(text).ok_or_else(|| {
                    let place = node.nearest("delimiter");
                    place.error("the delimiter is one ASCII character, or `tab`")
                })?,
            },
        },
    })
}

fn key_columns(
    node: &Node,
    config: &Config,
    format: TableFormat,
) -> Result<KeyColumns, ConfigError> {
    let given = [
        ("key", config.key.is_some()),
        ("network", config.network.is_some()),
        ("from", config.from.is_some()),
        ("to", config.to.is_some()),
    ];
    let given: Vec<&str> = given.iter().filter(|it| it.1).map(|it| it.0).collect();
    if let (TableFormat::Mmdb, Some(name)) = (format, given.first()) {
        let message = format!("`{name}` has no effect: in a database, addresses are looked up");
        return Err(node.nearest(name).error(message));
    }
    match (&config.key, &config.network, &config.from, &config.to) {
        _ if format == TableFormat::Mmdb => Ok(KeyColumns::Database),
        (None, None, None, None) => Ok(KeyColumns::Exact(config.fields.clone())),
        (Some(key), None, None, None) => match key.is_empty() {
            true => Err(node.nearest("key").error("name at least one column")),
            false => Ok(KeyColumns::Exact(key.clone())),
        },
        (None, Some(network), None, None) => Ok(KeyColumns::Network(network.clone())),
        (None, None, Some(from), Some(to)) => Ok(KeyColumns::Range(from.clone(), to.clone())),
        (None, None, Some(_), None) => Err(node.nearest("from").error("`from` needs `to`")),
        (None, None, None, Some(_)) => Err(node.nearest("to").error("`to` needs `from`")),
        _ => {
            let message = format!("`{}` and `{}` do not go together", given[0], given[1]);
            let error = node.nearest(given[1]).error(message);
            Err(error.note("a row is found by its key, by a network, or by a range"))
        }
    }
}

/// A column by its name, or as `column -> field`.
fn wanted_column(node: &Node, text: &str) -> Result<WantedColumn, ConfigError> {
    let (name, field) = match text.split_once("->") {
        Some((name, field)) => (name.trim(), Some(field.trim())),
        None => (text.trim(), None),
    };
    if name.is_empty() {
        return Err(node.error("the name of a column is missing"));
    }
    Ok(WantedColumn {
        name: name.to_owned(),
        path: field.map(|field| names::path(node, field)).transpose()?,
    })
}
