//! Makes a [`Table`] of the rows of a file, one after the other.

use std::net::IpAddr;

use batch::{FieldPath, Value};
use bytes::Bytes;
use ipnet::IpNet;

use super::error::{RowError, TableError};
use super::intervals::{Interval, Nesting, Overlap, Starts};
use super::keys::KeyIndex;
use super::plan::{KeyColumns, Plan};
use super::rows::{TEXT_BYTES_MAX, write_key, write_number, write_value};
use super::table::{AddressIndex, Index, Table, TableColumn, number_of};
use crate::address;
use crate::names::below;

/// The most columns that are written to events.
const COLUMNS_MAX: usize = 128;

/// The keys of the rows so far.
enum Keys {
    Exact(KeyIndex),
    Networks {
        four: Vec<Interval>,
        six: Vec<Interval>,
    },
    Ranges(Ranges),
    /// Networks that come in their order.
    Database {
        four: Starts,
        six: Starts,
    },
}

#[derive(Default)]
struct Ranges {
    four: Vec<Interval>,
    six: Vec<Interval>,
    numbers: Vec<Interval>,
}

/// Takes rows: for each [`TableBuilder::begin`], then [`TableBuilder::count`] and the values.
pub(super) struct TableBuilder<'p> {
    plan: &'p Plan,
    text: Vec<u8>,
    keys: Keys,
    pub columns: Vec<TableColumn>,
    /// For each column, whether some row has it.
    is_met: Vec<bool>,
    pub has_dotted_keys: bool,
}

impl<'p> TableBuilder<'p> {
    pub fn new(plan: &'p Plan) -> Self {
        let keys = match &plan.key {
            KeyColumns::Exact(columns) => Keys::Exact(KeyIndex::new(columns.len())),
            KeyColumns::Network(_) => Keys::Networks {
                four: Vec::new(),
                six: Vec::new(),
            },
            KeyColumns::Range(..) => Keys::Ranges(Ranges::default()),
            KeyColumns::Database => Keys::Database {
                four: Starts::default(),
                six: Starts::default(),
            },
        };
        Self {
            plan,
            text: Vec::new(),
            keys,
            columns: Vec::new(),
            is_met: Vec::new(),
            has_dotted_keys: false,
        }
    }

    /// Adds a column whose values are written to a field: `path`, or the one that its name says.
    pub fn column(&mut self, name: &str, path: Option<&FieldPath>) -> Result<(), TableError> {
        let path = path.cloned().unwrap_or_else(|| {
            let is_path = name.split('.').all(|key| !key.is_empty());
            let keys: Vec<&str> = match is_path {
                true => name.split('.').collect(),
                false => vec![name],
            };
            FieldPath::from_keys(keys)
        });
        let path = below(self.plan.target.as_ref(), path.keys().iter().cloned());
        if let Some(other) = self.columns.iter().find(|it| it.path.overlaps(path.keys())) {
            let names = (other.name.to_string(), name.to_owned());
            return Err(TableError::SameField(names.0, names.1, path));
        }
        if self.columns.len() == COLUMNS_MAX {
            return Err(TableError::TooManyColumns(COLUMNS_MAX));
        }
        self.columns.push(TableColumn {
            name: name.into(),
            path,
        });
        self.is_met.push(false);
        Ok(())
    }

    /// Begins a row with these values in its key columns, in their order. Gives the row.
    ///
    /// # Errors
    /// The row cannot be used, or there is no more room.
    pub fn begin(&mut self, line: u32, key: &[Value<'_>]) -> Result<u32, TableError> {
        self.check_size()?;
        self.add_key(line, key)
            .map_err(|error| TableError::row(line, error))
    }

    fn add_key(&mut self, line: u32, key: &[Value<'_>]) -> Result<u32, RowError> {
        let row = self.text.len();
        let has_no_text = |value: &Value<'_>| match value {
            Value::Text(text) => text.is_empty(),
            value => matches!(value, Value::Missing | Value::Null | Value::Json(_)),
        };
        if let Some(column) = key.iter().position(has_no_text) {
            let name = self.plan.key.names()[column].to_owned();
            return Err(RowError::NoKey(name));
        }
        let interval = |(first, last): (u128, u128)| Interval {
            first,
            last,
            row: row as u32,
            line,
        };
        match &mut self.keys {
            Keys::Exact(index) => {
                key.iter().for_each(|value| {
                    write_key(*value, &mut self.text);
                });
                if !index.insert(&self.text, row) {
                    let texts: Vec<String> = key.iter().map(shown).collect();
                    return Err(RowError::SameKey(texts.join(", ")));
                }
            }
            Keys::Networks { four, six } => {
                let network = read_network(&key[0])?;
                match network {
                    IpNet::V4(_) => four.push(interval(bounds(network))),
                    IpNet::V6(_) => six.push(interval(bounds(network))),
                }
            }
            Keys::Ranges(ranges) => ranges.push(key[0], key[1], interval)?,
            Keys::Database { .. } => {}
        }
        Ok(row as u32)
    }

    /// Says how many values follow.
    pub fn count(&mut self, values: usize) {
        write_number(values as u32, &mut self.text);
    }

    /// Adds the value of a column. An empty text and null count as none.
    pub fn value(&mut self, column: usize, value: Value<'_>) {
        self.is_met[column] |= !value.is_missing();
        let value = match value {
            Value::Text(b"") => Value::Missing,
            value => value,
        };
        write_value(value, &mut self.text);
    }

    /// Refuses more text than spans can point into.
    fn check_size(&self) -> Result<(), TableError> {
        match self.text.len() > TEXT_BYTES_MAX {
            true => Err(TableError::TooLarge),
            false => Ok(()),
        }
    }

    /// Adds a network of a database, behind all others, with its row.
    pub fn database_network(&mut self, network: IpNet, row: u32) {
        if let Keys::Database { four, six } = &mut self.keys {
            let (first, last) = bounds(network);
            match network {
                IpNet::V4(_) => four.push(first, last, row),
                IpNet::V6(_) => six.push(first, last, row),
            }
        }
    }

    /// The table.
    pub fn finish(mut self) -> Result<Table, TableError> {
        self.check_size()?;
        let same = |overlap: Overlap| {
            TableError::row(overlap.line, RowError::SameNetwork(overlap.earlier))
        };
        let overlapping =
            |overlap: Overlap| TableError::row(overlap.line, RowError::Overlap(overlap.earlier));
        let index = match self.keys {
            Keys::Exact(mut index) => {
                index.shrink();
                Index::Keys(index)
            }
            Keys::Networks { four, six } => Index::Addresses(AddressIndex {
                four: Starts::of(four, Nesting::Allowed).map_err(same)?.into(),
                six: Starts::of(six, Nesting::Allowed).map_err(same)?.into(),
            }),
            Keys::Ranges(ranges) => {
                let starts = |ranges| Starts::of(ranges, Nesting::Refused).map_err(overlapping);
                match ranges.numbers.is_empty() {
                    false => Index::Numbers(starts(ranges.numbers)?.into()),
                    true => Index::Addresses(AddressIndex {
                        four: starts(ranges.four)?.into(),
                        six: starts(ranges.six)?.into(),
                    }),
                }
            }
            Keys::Database { four, six } => Index::Addresses(AddressIndex {
                four: four.into(),
                six: six.into(),
            }),
        };
        let unknown = self.columns.iter().zip(&self.is_met);
        let unknown = unknown.filter(|(_, is_met)| !**is_met && !self.text.is_empty());
        let unknown = unknown.map(|(column, _)| column.name.to_string()).collect();
        self.text.shrink_to_fit();
        Ok(Table {
            unknown,
            text: [Bytes::from(self.text)].into(),
            index,
            columns: self.columns,
            has_dotted_keys: self.has_dotted_keys,
        })
    }
}

impl Ranges {
    fn push(
        &mut self,
        from: Value<'_>,
        to: Value<'_>,
        interval: impl Fn((u128, u128)) -> Interval,
    ) -> Result<(), RowError> {
        let texts = || (shown(&from), shown(&to));
        let (into, others, bounds) = match (number_of(from), number_of(to)) {
            (Some(first), Some(last)) => {
                let others = !self.four.is_empty() || !self.six.is_empty();
                (&mut self.numbers, others, (first, last))
            }
            _ => {
                let others = !self.numbers.is_empty();
                match (address_of(&from), address_of(&to)) {
                    (Some(IpAddr::V4(first)), Some(IpAddr::V4(last))) => {
                        let bounds = (u32::from(first).into(), u32::from(last).into());
                        (&mut self.four, others, bounds)
                    }
                    (Some(IpAddr::V6(first)), Some(IpAddr::V6(last))) => {
                        (&mut self.six, others, (first.into(), last.into()))
                    }
                    _ => {
                        let (from, to) = texts();
                        return Err(RowError::NotRange(from, to));
                    }
                }
            }
        };
        let (from, to) = texts();
        if others {
            return Err(RowError::OtherRange(from, to));
        }
        if bounds.0 > bounds.1 {
            return Err(RowError::Backwards(from, to));
        }
        into.push(interval(bounds));
        Ok(())
    }
}

/// A value as messages show it.
fn shown(value: &Value<'_>) -> String {
    let mut text = Vec::new();
    value.write_text(&mut text);
    String::from_utf8_lossy(&text).into_owned()
}

fn address_of(value: &Value<'_>) -> Option<IpAddr> {
    match value {
        Value::Text(text) => address::parse(text),
        _ => None,
    }
}

fn read_network(value: &Value<'_>) -> Result<IpNet, RowError> {
    let text = shown(value);
    expr::read_network(text.trim()).ok_or(RowError::NotNetwork(text))
}

/// The first and the last address of a network.
fn bounds(network: IpNet) -> (u128, u128) {
    match network {
        IpNet::V4(network) => (
            u32::from(network.network()).into(),
            u32::from(network.broadcast()).into(),
        ),
        IpNet::V6(network) => (network.network().into(), network.broadcast().into()),
    }
}
