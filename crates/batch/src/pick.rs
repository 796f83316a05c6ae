//! Some rows of a batch as a batch of their own, and a copy to go back to.
//!
//! Neither copies a document: cells move, buffers are shared. A frozen form of few rows holds their bytes alone.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::batch::{Batch, Encoding, ROW_OVERHEAD};
use crate::bitmap::Bitmap;
use crate::cell::Cell;
use crate::column::{Cells, Column, ColumnBuilder};
use crate::ids::Ids;
use crate::origin::{Origin, Stream};
use crate::tree::{METADATA, Node};
use crate::writer::JsonWriter;

impl Batch {
    /// The batch as it is now. What is done to one of the two does not touch the other.
    #[must_use]
    pub fn snapshot(&self) -> Self {
        Self {
            root: self.root.clone(),
            encoding: self.encoding,
            origin: self.origin.clone(),
            host: self.host.clone(),
            received: self.received,
            alive: self.alive.clone(),
            sealed: self.sealed.clone(),
            drops: self.drops.clone(),
            cache: Mutex::default(),
            dotted: self.dotted,
            size: self.size,
            reentry: self.reentry.clone(),
            charge: None,
        }
    }

    /// These rows as a batch of their own, in this order: their documents, edits, ids and places. All of them are in its
    /// selection, also those that a filter dropped here.
    ///
    /// # Panics
    /// A row is not in the batch.
    #[must_use]
    pub fn pick(&self, rows: &[usize]) -> Self {
        let origin = pick_origin(&self.origin, rows);
        let root = pick_node(&self.root, rows, &self.origin, &origin);
        let share = match self.len() {
            0 => 0,
            len => (self.size as u128 * rows.len() as u128 / len as u128) as usize,
        };
        Self {
            root,
            encoding: self.encoding,
            origin,
            host: self.host.clone(),
            received: self.received,
            alive: Bitmap::all(rows.len()),
            sealed: Bitmap::from_fn(rows.len(), |row| self.sealed.contains(rows[row])),
            drops: Vec::new(),
            cache: Mutex::default(),
            dotted: self.dotted,
            size: share.max(rows.len() * ROW_OVERHEAD),
            reentry: self.reentry.clone(),
            charge: None,
        }
    }
}

impl Batch {
    /// The same events with documents that are written anew as JSON, so that they hold what was written to them and not what was removed.
    #[must_use]
    pub fn rewritten(&self) -> Self {
        let writer = JsonWriter::new(self);
        let mut documents = ColumnBuilder::new(self.len());
        for row in 0..self.len() {
            let span = documents.append(|out| writer.write(row, out));
            documents.set(row, Cell::Json(span));
        }
        let mut rewritten = self.snapshot();
        rewritten.encoding = Encoding::Json;
        rewritten.dotted = true;
        rewritten.root = Node {
            key: self.root.key.clone(),
            own: Some(Arc::new(documents.finish())),
            children: self
                .root
                .children
                .iter()
                .filter(|child| &*child.key == METADATA)
                .cloned()
                .collect(),
        };
        rewritten
    }

    /// Parts of these rows, each given by its row and its index among the parts of that: they have the documents, edits and places of their rows, and
    /// ids that follow from theirs. Rows follow each other.
    ///
    /// # Panics
    /// A row is not in the batch.
    #[must_use]
    pub fn parts(&self, parts: &[(usize, u32)]) -> Self {
        let rows: Vec<usize> = parts.iter().map(|(row, _)| *row).collect();
        let mut picked = self.pick(&rows);
        let mut bases = ColumnBuilder::new(parts.len());
        let mut known: Option<(usize, Cell)> = None;
        for (index, &row) in rows.iter().enumerate() {
            if !self.origin.has_own_id(row) {
                continue;
            }
            let base = match known {
                Some((of, base)) if of == row => base,
                _ => Cell::Text(bases.append(|out| self.origin.write_id(row, out))),
            };
            known = Some((row, base));
            bases.set(index, base);
        }
        let indexes = parts.iter().map(|(_, index)| Some(*index)).collect();
        picked.origin = picked.origin.with_ids(Ids::new(bases.finish(), indexes));
        picked
    }
}

fn pick_origin(origin: &Origin, rows: &[usize]) -> Origin {
    let mut streams: Vec<(u32, Arc<Stream>)> = Vec::new();
    for (place, &row) in rows.iter().enumerate() {
        let stream = origin.stream(row);
        if streams
            .last()
            .is_none_or(|(_, last)| !Arc::ptr_eq(last, stream))
        {
            streams.push((place as u32, stream.clone()));
        }
    }
    let starts = rows.iter().map(|&row| origin.start(row)).collect();
    let ends = rows.iter().map(|&row| origin.end(row)).collect();
    let ids = origin.ids().and_then(|ids| {
        let bases = pick_cells(ids.bases(), rows);
        Ids::new(bases, rows.iter().map(|&row| ids.part(row)).collect())
    });
    Origin::new(streams, starts, ends).with_ids(ids)
}

fn pick_node(node: &Node, rows: &[usize], from: &Origin, to: &Origin) -> Node {
    let children = node.children.iter();
    Node {
        key: node.key.clone(),
        own: node
            .own
            .as_ref()
            .map(|own| Arc::new(pick_column(own, rows, from, to))),
        children: children
            .map(|child| pick_node(child, rows, from, to))
            .collect(),
    }
}

fn pick_column(column: &Column, rows: &[usize], from: &Origin, to: &Origin) -> Column {
    match column.cells() {
        Cells::Offsets(starts) if Arc::ptr_eq(starts, from.starts()) => {
            Column::offsets(to.starts().clone())
        }
        _ => pick_cells(column, rows),
    }
}

fn pick_cells(column: &Column, rows: &[usize]) -> Column {
    let cells = match column.cells() {
        Cells::Constant(cell, _) => Cells::Constant(*cell, rows.len()),
        Cells::Rows(_) | Cells::Offsets(_) => {
            Cells::Rows(rows.iter().map(|&row| column.cell(row)).collect())
        }
    };
    let places = column.places().map(|places| places.pick(rows));
    Column::from_cells(cells, column.buffers().clone()).with_places(places)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::{
        BatchBuilder, Column, ColumnBuilder, Edit, Encoding, FieldPath, HostInfo, JsonWriter,
        Reentry, Span,
    };

    fn path(path: &str) -> FieldPath {
        FieldPath::parse(path).expect("a path")
    }

    fn batch(encoding: Encoding) -> Batch {
        let host = Arc::new(HostInfo { name: "h".into() });
        let mut builder = BatchBuilder::new(encoding, &host, 5, true);
        let buffer = builder.buffer(Bytes::from_static(
            br#"{"a":0}{"a":1}{"a":2}{"a":3}{"a":4}{"a":5}id"#,
        ));
        let streams = [
            Arc::new(Stream::file(1, "/one")),
            Arc::new(Stream::file(2, "/two")),
        ];
        for row in 0..6u32 {
            builder.stream(&streams[row as usize / 3]);
            let document = Span {
                buffer,
                start: row * 7,
                len: 7,
            };
            builder.push(document, u64::from(row) * 7, u64::from(row) * 7 + 7);
            if row == 4 {
                let id = Span {
                    buffer,
                    start: 42,
                    len: 2,
                };
                builder.id_last(id).expect("an id");
            }
        }
        let mut batch = builder.finish();
        let mut edit = Edit::new();
        let mut texts = ColumnBuilder::new(6);
        (0..6).for_each(|row| texts.set_text(row, format!("row {row}").as_bytes()));
        edit.set(path("b.c"), texts.finish());
        edit.set(path("d"), Column::constant_text(b"all", 6));
        assert!(batch.apply(edit).is_empty());
        batch
    }

    fn shown(batch: &Batch, row: usize) -> (String, String) {
        let mut event = Vec::new();
        JsonWriter::new(batch).write(row, &mut event);
        let event = String::from_utf8(event).expect("JSON is UTF-8");
        (event, batch.origin().shown_id(row))
    }

    #[test]
    fn rows_that_are_picked_are_what_they_were() {
        for encoding in [Encoding::Json, Encoding::Text] {
            let mut whole = batch(encoding);
            let dropped = Bitmap::from_fn(6, |row| row == 1);
            whole.drop_rows(&dropped, &"d".into());
            whole.seal(&Bitmap::from_fn(6, |row| row == 3));
            let rows = [1, 3, 4];
            let picked = whole.pick(&rows);
            let snapshot = whole.snapshot();
            let frozen = picked.freeze();
            let bytes = [frozen.head.into()].into_iter().chain(frozen.documents);
            let bytes: Vec<u8> = bytes.flat_map(|part: Bytes| part.to_vec()).collect();
            let thawed = Batch::thaw(bytes.into()).expect("it comes back");
            for some in [&picked, &thawed] {
                assert_eq!(some.len(), 3);
                assert!(some.alive().is_full());
                for (place, row) in rows.into_iter().enumerate() {
                    assert_eq!(shown(some, place), shown(&whole, row), "row {row}");
                    assert_eq!(shown(&snapshot, row), shown(&whole, row));
                    assert_eq!(some.sealed().contains(place), row == 3);
                }
                assert_eq!(some.origin().streams().count(), 2);
            }
        }
    }

    #[test]
    fn a_snapshot_does_not_see_what_comes_later() {
        let mut later = batch(Encoding::Json);
        let before = later.snapshot();
        let mut edit = Edit::new();
        edit.set(path("d"), Column::constant_text(b"else", 6));
        assert!(later.apply(edit).is_empty());
        assert!(shown(&before, 0).0.contains(r#""d":"all""#));
        assert!(shown(&later, 0).0.contains(r#""d":"else""#));
    }

    #[test]
    fn where_a_batch_goes_on_is_stored() {
        let places = [
            Reentry::Start,
            Reentry::Processor {
                index: 3,
                name: "grok".into(),
            },
            Reentry::Output { name: "es".into() },
            Reentry::OutputProcessor {
                output: "es".into(),
                index: 1,
                name: "grok".into(),
            },
        ];
        for place in places {
            let place = Arc::new(place);
            let frozen = batch(Encoding::Json).reentering(place.clone()).freeze();
            let version = match *place {
                Reentry::OutputProcessor { .. } => 4,
                _ => 3,
            };
            assert_eq!(frozen.version, version);
            let bytes = [frozen.head.into()].into_iter().chain(frozen.documents);
            let bytes: Vec<u8> = bytes.flat_map(|part: Bytes| part.to_vec()).collect();
            let thawed = Batch::thaw(bytes.clone().into()).expect("it comes back");
            assert_eq!(thawed.reentry(), Some(&place));
            // A version that does not know it says nothing of it.
            let mut older = bytes;
            older[0] = version - 1;
            assert!(Batch::thaw(older.into()).is_err());
        }
        assert!(batch(Encoding::Json).reentry().is_none());
    }
}
