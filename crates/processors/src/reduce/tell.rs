//! Makes events of groups that have ended.

use batch::{Batch, Bitmap, Cell, Column, ColumnBuilder, Edit, FieldPath, json};

use crate::derived::{event_builder, push_event};
use crate::text::plain_cell;

use super::open::{Ended, Group};
use super::{KeptField, Reduce};

/// Rows of a batch of results at most.
const ROWS_MAX: usize = 4096;

/// So many bytes of groups are in a batch of results, and one group more.
const BATCH_BYTES: usize = 16 << 20;

impl Reduce {
    /// Makes events of the groups that have ended.
    pub(super) fn tell(&mut self, behind: &Batch) {
        let mut ended = std::mem::take(&mut self.ended).into_iter().peekable();
        while ended.peek().is_some() {
            let mut size = 0;
            let some = std::iter::from_fn(|| {
                let has_room = size < BATCH_BYTES;
                ended.next_if(|_| has_room).inspect(|(group, _)| {
                    size += group.size();
                })
            });
            let some: Vec<(Group, Ended)> = some.take(ROWS_MAX).collect();
            let batch = self.results(some, behind);
            self.derived.push(batch);
        }
    }

    fn results(&mut self, ended: Vec<(Group, Ended)>, behind: &Batch) -> Batch {
        let len = ended.len();
        let mut builder = event_builder(behind.host(), behind.received());
        let columns = self.kept.iter().map(|_| ColumnBuilder::new(len));
        let mut columns: Vec<ColumnBuilder> = columns.collect();
        let mut summaries = ColumnBuilder::new(len);
        let mut late = Bitmap::none(len);
        for (row, (group, how)) in ended.into_iter().enumerate() {
            for ((kept, values), column) in self.kept.iter().zip(&group.values).zip(&mut columns) {
                if !values.is_empty() {
                    set_json(column, row, values, kept.is_list);
                }
            }
            write_summary(&mut summaries, row, &group);
            push_event(&mut builder, group.text, group.id_len);
            match how {
                Ended::ByTime => {
                    self.counts.timed_out += 1;
                    if self.end.is_some() {
                        late.insert(row);
                    }
                }
                Ended::ForRoom => self.counts.for_room += 1,
                Ended::ByEvent | Ended::AtEnd => {}
            }
        }
        let mut batch = builder.finish();
        let kept = self.kept.iter().zip(columns);
        let mut writes: Vec<(&FieldPath, Column)> = kept
            .map(|(KeptField { path, .. }, column)| (path, column.finish()))
            .collect();
        writes.push((&self.target, summaries.finish()));
        let mut edit = Edit::new();
        for (path, column) in writes {
            clear_way(&mut batch, path, &column);
            edit.set(path.clone(), column);
        }
        let refused = batch.apply(edit);
        debug_assert!(refused.is_empty(), "nothing is in the way any more");
        batch.add_tag(&late, &self.tag);
        batch
    }
}

/// Writes the object that `target` gets.
fn write_summary(column: &mut ColumnBuilder, row: usize, group: &Group) {
    let duration = group.latest.saturating_sub(group.earliest) as f64 / 1e6;
    let span = column.append(|out| {
        out.extend_from_slice(b"{\"events\":");
        json::write_u64(out, group.events);
        out.extend_from_slice(b",\"duration_ms\":");
        json::write_f64(out, duration);
        out.push(b'}');
    });
    column.set(row, Cell::Json(span));
}

/// Removes the values that are no objects and stand above a field, where a column is to be written to it: results are those of the whole group, and that
/// value is one of its first event alone.
fn clear_way(batch: &mut Batch, path: &FieldPath, column: &Column) {
    let keys = path.keys();
    for depth in 1..keys.len() {
        let above = FieldPath::from_keys(keys[..depth].iter().cloned());
        let present = batch.column(&above);
        let is_blocked = |row: usize| {
            let value = present.value(row);
            column.cell(row) != Cell::Keep && !value.is_missing() && !value.is_object()
        };
        let blocked = Bitmap::from_fn(batch.len(), is_blocked);
        if !blocked.is_empty() {
            let mut edit = Edit::new();
            edit.remove(above, &blocked);
            batch.apply(edit);
        }
    }
}

/// Writes JSON values to a row: a list of them, or the only one.
fn set_json(column: &mut ColumnBuilder, row: usize, values: &[u8], is_list: bool) {
    if is_list {
        let span = column.append(|out| {
            out.push(b'[');
            out.extend_from_slice(values);
            out.push(b']');
        });
        return column.set(row, Cell::Json(span));
    }
    let cell = match json::kind(values) {
        json::Kind::String => {
            let body = &values[1..values.len() - 1];
            Cell::Text(column.append(|out| json::unescape(body, out)))
        }
        kind => {
            let span = column.append(|out| out.extend_from_slice(values));
            plain_cell(kind, values, span)
        }
    };
    column.set(row, cell);
}
