//! When events happened.

use std::sync::Arc;

use batch::{Batch, Cell, Column, FieldPath};
use datetime::rfc3339::TimeReader;

use crate::time::parse_next_time;

/// When the events of a batch happened: their `@timestamp`; where that is absent or no RFC 3339 time, the time at which they
/// were received.
#[derive(Debug)]
pub struct EventTimes {
    column: Arc<Column>,
    received: i64,
    reader: std::cell::Cell<TimeReader>,
}

impl EventTimes {
    /// The times of a batch.
    pub fn of(batch: &Batch) -> Self {
        Self::in_field(batch, &FieldPath::from_keys(["@timestamp"]))
    }

    /// The same, with the times in another field.
    pub fn in_field(batch: &Batch, path: &FieldPath) -> Self {
        Self {
            column: batch.column(path),
            received: batch.received(),
            reader: TimeReader::default().into(),
        }
    }

    /// The time of a row, in nanoseconds since 1970.
    pub fn nanos(&self, row: usize) -> i64 {
        self.own_nanos(row).unwrap_or(self.received)
    }

    /// The time of a row that has one of its own, in nanoseconds since 1970.
    #[inline]
    pub fn own_nanos(&self, row: usize) -> Option<i64> {
        match self.column.cell(row) {
            Cell::Time(nanos) => Some(nanos),
            Cell::Text(span) => {
                let mut reader = self.reader.get();
                let nanos = parse_next_time(self.column.bytes(span), &mut reader);
                self.reader.set(reader);
                nanos
            }
            _ => None,
        }
    }
}
