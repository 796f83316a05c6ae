//! Where the members of JSON documents stand.
//!
//! The validator passes every key of a document. Once fields of such documents are read, it notes on the way where the keys of the document's
//! own members stand. A field is then found by a look at these places, mostly at one of them: documents that follow each other tend to have
//! their members in the same order.
//!
//! A place takes two bytes, and each document four. Documents that are too long for such places or have very many members have none, nor do
//! those that were rewritten or lay in a queue on disk: they are searched.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::json::{JsonError, MEMBERS_MAX, Scan, validate_object, validate_object_listing};

/// Whether fields of an input's documents are read, so that the places of members are worth keeping. The input's decoders and its batches share it.
#[derive(Clone, Debug, Default)]
pub struct MembersWanted(Arc<AtomicBool>);

impl MembersWanted {
    fn are_wanted(&self) -> bool {
        self.0.load(Relaxed)
    }
}

/// The places of the members of the documents of a batch. A place is where the key's opening quote stands, from the beginning of its document.
#[derive(Debug)]
pub(crate) struct MemberPlaces {
    places: Vec<u16>,
    /// Those of the document that was validated last, and how many they are.
    last: Box<[u16; MEMBERS_MAX]>,
    last_count: usize,
    /// How many places there are up to the end of each document; rows behind the last one have none.
    ends: Vec<u32>,
    /// Whether places are kept in this batch.
    is_kept: bool,
    wanted: MembersWanted,
}

impl MemberPlaces {
    /// Of no document yet.
    pub fn new(wanted: &MembersWanted) -> Self {
        Self {
            places: Vec::new(),
            last: Box::new([0; MEMBERS_MAX]),
            last_count: 0,
            ends: Vec::new(),
            is_kept: wanted.are_wanted(),
            wanted: wanted.clone(),
        }
    }

    /// As [`validate_object`]; [`Self::keep`] may follow.
    pub fn validate_object(&mut self, text: &[u8]) -> Result<Scan, JsonError> {
        if !self.is_kept || text.len() > usize::from(u16::MAX) {
            self.last_count = 0;
            return validate_object(text);
        }
        let (scan, count) = validate_object_listing(text, &mut self.last)?;
        self.last_count = count;
        Ok(scan)
    }

    /// Keeps what the last call of [`Self::validate_object`] noted for the document of this row, which is after all those before.
    pub fn keep(&mut self, row: usize) {
        if self.is_kept {
            self.ends.resize(row, self.places.len() as u32);
            if self.last_count < MEMBERS_MAX {
                self.places.extend_from_slice(&self.last[..self.last_count]);
            }
            self.ends.push(self.places.len() as u32);
        }
    }

    /// The places in a row's document; none if they are not known.
    #[inline]
    pub fn of(&self, row: usize) -> &[u16] {
        let Some(&end) = self.ends.get(row) else {
            return &[];
        };
        let start = row.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.places[start as usize..end as usize]
    }

    /// Says that a field of these documents is read, for batches to come.
    pub fn want(&self) {
        if !self.is_kept {
            self.wanted.0.store(true, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::{Batch, BatchBuilder, Encoding, FieldPath, HostInfo, Span, Stream};

    /// A batch of these lines; those that hold no document are events of text.
    fn batch(lines: &[String], wanted: &MembersWanted) -> Batch {
        let host = Arc::new(HostInfo { name: "h".into() });
        let mut builder = BatchBuilder::new(Encoding::Json, &host, 0, false);
        builder.note_members(wanted);
        builder.stream(&Arc::new(Stream::file(1, "/one")));
        let buffer = builder.buffer(Bytes::from(lines.concat()));
        let mut start = 0;
        for line in lines {
            let span = Span {
                buffer,
                start,
                len: line.len() as u32,
            };
            match builder.validate_object(line.as_bytes()) {
                Ok(_) => {
                    builder.push(span, 0, 0);
                    builder.members_last();
                }
                Err(_) => builder.push_text(span, 0, 0),
            }
            start += span.len;
        }
        builder.finish()
    }

    fn column(batch: &Batch, field: &str) -> Vec<String> {
        let column = batch.column(&FieldPath::parse(field).expect("a path"));
        let values = (0..batch.len()).map(|row| format!("{:?}", column.value(row)));
        values.collect()
    }

    fn places_of(batch: &Batch, row: usize) -> &[u16] {
        let documents = batch.root().own.as_ref().expect("documents");
        documents.places().expect("they may be noted").of(row)
    }

    #[test]
    fn places_are_noted_once_fields_are_read_and_change_no_value() {
        let many: Vec<String> = (0..300).map(|n| format!("\"m{n}\":{n}")).collect();
        let lines = [
            r#"{"a":1,"b":{"c":"x"},"d":[1]}"#.to_owned(),
            r#"{"b": {"c":true} , "a" : null }"#.to_owned(),
            r#"{"a":1,"b"}"#.to_owned(),
            "{}".to_owned(),
            format!("{{{},\"a\":7}}", many.join(",")),
            format!(r#"{{"long":"{}","a":8}}"#, "x".repeat(70_000)),
            "text".to_owned(),
            r#"{"d":"}","b":{"e":{"c":1},"c":2.5}}"#.to_owned(),
        ];
        let wanted = MembersWanted::default();
        let first = batch(&lines, &wanted);
        assert!((0..lines.len()).all(|row| places_of(&first, row).is_empty()));
        let searched = ["a", "b.c", "d", "b", "e"].map(|field| column(&first, field));
        let second = batch(&lines, &wanted);
        let noted: Vec<usize> = (0..lines.len())
            .map(|row| places_of(&second, row).len())
            .collect();
        assert_eq!(noted, [3, 2, 0, 0, 0, 0, 0, 2]);
        assert_eq!(places_of(&second, 1), [1, 19]);
        let listed = ["a", "b.c", "d", "b", "e"].map(|field| column(&second, field));
        assert_eq!(listed, searched);
        let paths = ["a", "b.c", "d"].map(|field| FieldPath::parse(field).expect("a path"));
        let together = batch(&lines, &wanted).columns(&paths);
        for (column, expected) in together.iter().zip(&searched) {
            let values = (0..lines.len()).map(|row| format!("{:?}", column.value(row)));
            assert_eq!(&values.collect::<Vec<_>>(), expected);
        }
    }
}
