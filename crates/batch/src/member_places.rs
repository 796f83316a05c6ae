//! Where the members of JSON documents stand, and the elements of those that are arrays.
//!
//! The validator passes all of them. Once fields of such documents are read, it notes their places on the way. A field is then found by a look
//! at the places of the members, mostly at one of them: documents that follow each other tend to have their members in the same order.
//! A document that was edited is written by them, without a look at the values that are copied.
//!
//! A place takes two bytes, and each document four for its members, and four for elements if it has any. Documents that are too long for such
//! places or have very many members have none, nor do those that were rewritten or lay in a queue on disk: they are searched.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::json::{JsonError, Noted, Scan, end_before, validate_object, validate_object_noting};

/// Whether fields of an input's documents are read, so that places are worth keeping. The input's decoders and its batches share it.
#[derive(Clone, Debug, Default)]
pub struct MembersWanted(Arc<AtomicBool>);

impl MembersWanted {
    fn are_wanted(&self) -> bool {
        self.0.load(Relaxed)
    }
}

/// The places in the documents of a batch, each from the beginning of its document.
#[derive(Debug)]
pub(crate) struct MemberPlaces {
    /// Where the opening quotes of the keys stand.
    members: Places,
    /// Where the elements of members that are arrays begin.
    elements: Places,
    /// Those of the document that was validated last; none where places are not kept in this batch.
    last: Option<Box<Noted>>,
    wanted: MembersWanted,
}

/// Places by row.
#[derive(Debug, Default)]
struct Places {
    places: Vec<u16>,
    /// How many there are up to the end of each row; rows behind the last one have none.
    ends: Vec<u32>,
}

impl Places {
    /// Adds those of a row behind all rows before.
    fn add(&mut self, row: usize, places: &[u16]) {
        if !places.is_empty() {
            self.ends.resize(row, self.places.len() as u32);
            self.places.extend_from_slice(places);
            self.ends.push(self.places.len() as u32);
        }
    }

    #[inline]
    fn of(&self, row: usize) -> &[u16] {
        let Some(&end) = self.ends.get(row) else {
            return &[];
        };
        let start = row.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.places[start as usize..end as usize]
    }

    fn pick(&self, rows: &[usize]) -> Self {
        let mut picked = Self::default();
        if !self.places.is_empty() {
            rows.iter()
                .enumerate()
                .for_each(|(to, &from)| picked.add(to, self.of(from)));
        }
        picked
    }
}

impl MemberPlaces {
    /// Of no document yet.
    pub fn new(wanted: &MembersWanted) -> Self {
        Self {
            members: Places::default(),
            elements: Places::default(),
            last: wanted.are_wanted().then(|| Box::new(Noted::new())),
            wanted: wanted.clone(),
        }
    }

    /// As [`validate_object`]; [`Self::keep`] may follow.
    pub fn validate_object(&mut self, text: &[u8]) -> Result<Scan, JsonError> {
        match &mut self.last {
            Some(last) if text.len() <= usize::from(u16::MAX) => validate_object_noting(text, last),
            Some(last) => {
                last.clear();
                validate_object(text)
            }
            None => validate_object(text),
        }
    }

    /// Keeps what the last call of [`Self::validate_object`] noted for the document of this row, which is after all those before.
    pub fn keep(&mut self, row: usize) {
        if let Some(last) = &self.last {
            self.members.add(row, last.members());
            self.elements.add(row, last.elements());
        }
    }

    /// Those of the documents of these rows, in this order.
    pub fn pick(&self, rows: &[usize]) -> Self {
        Self {
            members: self.members.pick(rows),
            elements: self.elements.pick(rows),
            last: None,
            wanted: self.wanted.clone(),
        }
    }

    /// The places of the members of a row's document; none if they are not known.
    #[inline]
    pub fn of(&self, row: usize) -> &[u16] {
        self.members.of(row)
    }

    /// The elements of an array that is a part of a row's document, if their places are known.
    pub fn elements<'a>(
        &'a self,
        row: usize,
        document: &[u8],
        array: &'a [u8],
    ) -> Option<impl Iterator<Item = Range<usize>> + 'a> {
        let offset = (array.as_ptr() as usize).checked_sub(document.as_ptr() as usize)?;
        let end = offset + array.len();
        let places = self.elements.of(row);
        let first = places.partition_point(|place| usize::from(*place) <= offset);
        let behind = places.partition_point(|place| usize::from(*place) < end);
        let own = places.get(first..behind).filter(|own| !own.is_empty())?;
        // A part of another kind has none of its own, but an array may have an element in itself that is a part.
        let is_whole = end <= document.len() && array.first() == Some(&b'[');
        is_whole.then(|| {
            (0..own.len()).map(move |index| {
                let start = usize::from(own[index]) - offset;
                let next = own.get(index + 1).map(|place| usize::from(*place) - offset);
                start..end_before(array, start, next)
            })
        })
    }

    /// Says that a field of these documents is read, for batches to come.
    pub fn want(&self) {
        if self.last.is_none() {
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

    #[test]
    fn elements_are_those_that_a_walk_finds() {
        let many: Vec<String> = (0..300).map(|n| n.to_string()).collect();
        let lines = [
            r#"{"a":[1,"b]",{"c":[7,8]},[9,10],[],{}],"z":[11,{"a":[12]}],"o":{"a":[13,14]}}"#
                .to_owned(),
            r#"{ "o" : { "a" : [ [ 1 , 2 ] ] } , "a" : [ 3 , {"a":[4]} , "," ] , "z": [ ] }"#
                .to_owned(),
            "{}".to_owned(),
            format!(r#"{{"z":[{}],"a":[1,2]}}"#, many.join(",")),
            r#"{"a":[ "x"],"z":[["y"],["w"] ]}"#.to_owned(),
            "[1,2]".to_owned(),
            r#"{"a":{"b":[1]},"z":[{"b":[1]}]}"#.to_owned(),
        ];
        let wanted = MembersWanted::default();
        let _ = column(&batch(&lines, &wanted), "a");
        let noted = batch(&lines, &wanted);
        let mut listed = 0;
        for field in ["a", "z", "o.a", "o", "a.b"] {
            let column = noted.column(&FieldPath::parse(field).expect("a path"));
            for (row, line) in lines.iter().enumerate() {
                let crate::Value::Json(text) = column.value(row) else {
                    continue;
                };
                if text[0] != b'[' {
                    continue;
                }
                let found: Vec<_> = noted.elements(row, text).collect();
                let expected: Vec<_> = crate::json::elements(text).collect();
                assert_eq!(found, expected, "{field} in {line}");
                let documents = noted.root().own.as_ref().expect("documents");
                let document = documents.bytes(documents.cell(row).span().expect("a document"));
                let places = documents.places().expect("noted");
                listed += usize::from(places.elements(row, document, text).is_some());
            }
        }
        assert_eq!(
            listed, 6,
            "the others are nested, empty, or of a row with very many"
        );
    }
}
