//! A table in memory: its rows ([`super::rows`]), and what finds the row of an event.

use std::net::IpAddr;
use std::sync::Arc;

use batch::{Bitmap, Column, FieldPath, Value};
use bytes::Bytes;

use super::intervals::{FourIntervals, Intervals};
use super::keys::{KeyIndex, Probes, touch};
use super::rows::RowCells;
use crate::address;
use crate::text::first_of;

/// A column that is written to events.
#[derive(Clone, Debug)]
pub(super) struct TableColumn {
    pub name: Box<str>,
    /// The field that gets its values.
    pub path: FieldPath,
}

/// A table that was read.
#[derive(Debug)]
pub(super) struct Table {
    /// The text of all rows, as the only one, so that columns can share it.
    pub text: Arc<[Bytes]>,
    pub index: Index,
    pub columns: Vec<TableColumn>,
    /// Columns that were asked for and that no row has.
    pub unknown: Vec<String>,
    /// Some key within a value holds a dot.
    pub has_dotted_keys: bool,
}

/// What finds rows.
#[derive(Debug)]
pub(super) enum Index {
    Keys(KeyIndex),
    Addresses(AddressIndex),
    Numbers(Intervals),
}

/// Rows by ranges of addresses.
#[derive(Debug)]
pub(super) struct AddressIndex {
    pub four: FourIntervals,
    pub six: Intervals,
}

/// What was found for the rows of a batch.
#[derive(Clone, Debug, Default)]
pub(super) struct FoundRows {
    /// Rows of the batch with those of the table.
    pub hits: Vec<(usize, u32)>,
    /// Rows of the batch that have a value which is not in the table.
    pub misses: Vec<usize>,
    probes: Probes,
    addresses: Vec<(usize, Option<IpAddr>)>,
}

impl Table {
    /// Looks up the values of `columns`, one for each part of a key.
    pub fn look_up(&self, columns: &[Arc<Column>], rows: &Bitmap, found: &mut FoundRows) {
        let FoundRows {
            hits,
            misses,
            probes,
            addresses,
        } = found;
        hits.clear();
        misses.clear();
        let text = &*self.text[0];
        let mut put = |row: usize, found: Option<u32>| match found {
            Some(at) => hits.push((row, at)),
            None => misses.push(row),
        };
        match &self.index {
            Index::Keys(keys) => keys.find_all(text, columns, rows, probes, put),
            Index::Numbers(index) => {
                for (row, value) in values(&columns[0], rows) {
                    put(row, number_of(value).and_then(|number| index.find(number)));
                }
            }
            Index::Addresses(index) => {
                addresses.clear();
                let read = |(row, value): (usize, Value<'_>)| match value {
                    Value::Text(text) => (row, address::parse(text)),
                    _ => (row, None),
                };
                addresses.extend(values(&columns[0], rows).map(read));
                for (row, address) in addresses {
                    put(*row, address.and_then(|address| index.find(address)));
                }
                touch(text, hits.iter().map(|(_, at)| *at as usize));
            }
        }
    }

    /// The values of a row of the table, in the order of its columns.
    #[inline]
    pub fn cells(&self, row: u32) -> RowCells<'_> {
        let (text, at) = (&*self.text[0], row as usize);
        let key = match &self.index {
            Index::Keys(index) => index.key_len(text, at),
            _ => 0,
        };
        RowCells::new(text, at + key)
    }
}

impl AddressIndex {
    #[inline]
    fn find(&self, address: IpAddr) -> Option<u32> {
        match address {
            IpAddr::V4(four) => self.four.find(four.into()),
            IpAddr::V6(six) => self.six.find(six.into()),
        }
    }
}

/// The values that are there, with their rows; of a list its first one.
fn values<'c>(
    column: &'c Column,
    rows: &'c Bitmap,
) -> impl Iterator<Item = (usize, Value<'c>)> + 'c {
    let values = rows.iter().map(|row| (row, first_of(column.value(row))));
    values.filter(|(_, value)| !matches!(value, Value::Missing | Value::Null))
}

/// How many bits of [`number_of`] are behind the point.
const FRACTION_BITS: u32 = 62;

/// A number that is above another one where the value is: its whole part from −2⁶⁴ to 2⁶⁴ and 62 bits behind the point, so that
/// whole numbers of 64 bits are exact. A text counts if it is written as a number. None for everything else.
pub(super) fn number_of(value: Value<'_>) -> Option<u128> {
    match value {
        Value::Int(n) => of_whole(n.into()),
        Value::UInt(n) => of_whole(n.into()),
        Value::Float(n) => of_float(n),
        Value::Number(text) | Value::Text(text) => {
            let text = std::str::from_utf8(text.trim_ascii()).ok()?;
            match text.parse() {
                Ok(whole) => of_whole(whole),
                Err(_) => of_float(text.parse().ok()?),
            }
        }
        _ => None,
    }
}

fn of_whole(whole: i128) -> Option<u128> {
    let is_near = whole.unsigned_abs() <= 1 << 64;
    is_near.then_some(((whole << FRACTION_BITS) as u128) ^ 1 << 127)
}

fn of_float(number: f64) -> Option<u128> {
    let whole = number.floor();
    let near = (whole.abs() < 18_446_744_073_709_551_616.0).then_some(whole as i128)?;
    let fraction = (number - whole) * (1_u64 << FRACTION_BITS) as f64;
    Some(of_whole(near)? + fraction as u128)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn numbers_have_the_order_of_their_values() {
        let ascending = [
            "-18446744073709551616",
            "-9223372036854775809",
            "-1.5",
            "-1",
            "-1e-3",
            "0",
            "0.1",
            "0.25",
            "1",
            "9007199254740993",
            "9007199254740994",
            "18446744073709551614",
            "18446744073709551615",
            "18446744073709551616",
        ];
        let numbers = ascending.map(|text| number_of(Value::Text(text.as_bytes())));
        assert!(numbers.iter().all(Option::is_some), "{numbers:?}");
        assert!(numbers.is_sorted_by(|a, b| a < b), "{numbers:?}");
        for (one, other) in [
            (Value::Int(-7), Value::Number(b"-7.0")),
            (Value::UInt(u64::MAX), Value::Text(b"18446744073709551615")),
            (Value::Float(0.1), Value::Text(b" 0.1 ")),
            (Value::Int(1000), Value::Number(b"1e3")),
            (Value::Int(0), Value::Number(b"-0")),
        ] {
            assert_eq!(number_of(one), number_of(other), "{one:?}");
        }
        for none in ["", "x", "1x", "inf", "NaN", "1e30", "18446744073709551617"] {
            assert_eq!(number_of(Value::Text(none.as_bytes())), None, "{none}");
        }
        assert_eq!(number_of(Value::Bool(true)), None);
    }

    proptest! {
        #[test]
        fn floats_and_whole_numbers_compare(a in -1e6..1e6f64, b in -1_000_000..1_000_000i64) {
            let (x, y) = (number_of(Value::Float(a)), number_of(Value::Int(b)));
            prop_assert_eq!(x.cmp(&y), a.partial_cmp(&(b as f64)).expect("numbers"));
        }
    }
}
