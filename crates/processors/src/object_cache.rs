//! JSON objects that a lookup made, remembered by key and written without a copy for each event.
//!
//! The texts of the objects lie in a few shared buffers. A batch's column is built over the list of these buffers, so that
//! a remembered object costs a cell; objects that are new go into the column's own text, which then becomes one more
//! buffer of the list ([`ObjectCache::keep`]).
//!
//! Entries live in two generations: a new one goes into the young one, and when that holds half of the cache, the old one
//! is dropped and the young one takes its place; an entry asked for in the old one moves to the young one. So what is asked
//! for often stays, and no more than `capacity` entries are kept. Dropped entries leave their texts behind; when a
//! generation ends, and when the list of buffers grows long, the texts still in use are copied into one buffer.

use std::sync::Arc;

use batch::{Column, ColumnBuilder, Span};
use bytes::Bytes;
use foldhash::fast::RandomState;
use hashbrown::HashTable;

/// How long the list of buffers may grow: each column shares the whole of it.
const BUFFERS_MAX: usize = 32;

/// What lookups found, by key.
#[derive(Clone, Debug)]
pub(crate) struct ObjectCache<K> {
    young: HashTable<Entry<K>>,
    old: HashTable<Entry<K>>,
    generation_size: usize,
    buffers: Arc<[Bytes]>,
    is_untidy: bool,
    pub state: RandomState,
    lookups: u64,
    misses: u64,
}

#[derive(Clone, Debug)]
struct Entry<K> {
    hash: u64,
    key: K,
    object: Option<Span>,
}

impl<K> ObjectCache<K> {
    /// An empty cache of at most `capacity` entries, at least two.
    pub fn new(capacity: usize) -> Self {
        Self {
            young: HashTable::new(),
            old: HashTable::new(),
            generation_size: (capacity / 2).max(1),
            buffers: Arc::new([]),
            is_untidy: false,
            state: RandomState::default(),
            lookups: 0,
            misses: 0,
        }
    }

    /// A builder for a batch's column of objects.
    pub fn column(&self, rows: usize) -> ColumnBuilder {
        ColumnBuilder::over(rows, self.buffers.clone())
    }

    /// The object of a key: what its lookup gave, or else what `write` appends to `objects`, the column of the batch, and tells
    /// to be an object.
    #[inline]
    pub fn object(
        &mut self,
        hash: u64,
        is_key: impl Fn(&K) -> bool,
        key: impl FnOnce() -> K,
        objects: &mut ColumnBuilder,
        write: impl FnOnce(&mut Vec<u8>) -> bool,
    ) -> Option<Span> {
        self.lookups += 1;
        match self.get(hash, is_key) {
            Some(object) => object,
            None => self.look_up(hash, key(), objects, write),
        }
    }

    #[cold]
    fn look_up(
        &mut self,
        hash: u64,
        key: K,
        objects: &mut ColumnBuilder,
        write: impl FnOnce(&mut Vec<u8>) -> bool,
    ) -> Option<Span> {
        self.misses += 1;
        let mut is_known = false;
        let span = objects.append(|out| is_known = write(out));
        let object = is_known.then_some(span);
        self.insert(hash, key, object);
        object
    }

    /// What the lookup of a key gave: an object, or nothing. `None` when the key is not known here.
    #[inline]
    fn get(&mut self, hash: u64, is_key: impl Fn(&K) -> bool) -> Option<Option<Span>> {
        let wanted = |entry: &Entry<K>| entry.hash == hash && is_key(&entry.key);
        match self.young.find(hash, wanted) {
            Some(entry) => Some(entry.object),
            None => self.get_old(hash, wanted),
        }
    }

    #[cold]
    fn get_old(&mut self, hash: u64, wanted: impl Fn(&Entry<K>) -> bool) -> Option<Option<Span>> {
        let (entry, _) = self.old.find_entry(hash, wanted).ok()?.remove();
        let object = entry.object;
        self.insert(hash, entry.key, object);
        Some(object)
    }

    fn insert(&mut self, hash: u64, key: K, object: Option<Span>) {
        if self.young.len() >= self.generation_size {
            self.old = std::mem::take(&mut self.young);
            self.is_untidy = true;
        }
        self.young
            .insert_unique(hash, Entry { hash, key, object }, |entry| entry.hash);
    }

    /// Takes over what the batch's column added. Must be called with every column that was built over this cache.
    pub fn keep(&mut self, column: &Column) {
        self.buffers = column.buffers().clone();
        if self.is_untidy || self.buffers.len() > BUFFERS_MAX {
            self.tidy();
        }
    }

    /// How many lookups the cache answered since the last call, and how many not.
    pub fn take_counters(&mut self) -> Vec<(&'static str, u64)> {
        let [lookups, misses] = [&mut self.lookups, &mut self.misses].map(std::mem::take);
        vec![("cache_hits", lookups - misses), ("cache_misses", misses)]
    }

    /// Copies the texts in use into one buffer.
    fn tidy(&mut self) {
        let mut text = Vec::new();
        for entry in self.young.iter_mut().chain(self.old.iter_mut()) {
            if let Some(span) = &mut entry.object {
                let from = span.start as usize;
                let start = text.len() as u32;
                text.extend_from_slice(
                    &self.buffers[span.buffer as usize][from..from + span.len as usize],
                );
                *span = Span {
                    buffer: 0,
                    start,
                    len: span.len,
                };
            }
        }
        self.buffers = [Bytes::from(text)].into();
        self.is_untidy = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use batch::{Cell, Value};
    use proptest::prelude::*;

    /// One batch of lookups: each key's object is its own digits in braces, and odd thousands have none.
    fn look_up(cache: &mut ObjectCache<u32>, keys: &[u32]) -> (Column, u64) {
        let mut column = cache.column(keys.len());
        let before = cache.misses;
        for (row, &key) in keys.iter().enumerate() {
            let hash = u64::from(key % 7);
            let write = |out: &mut Vec<u8>| {
                out.extend_from_slice(format!("{{{key}}}").as_bytes());
                key / 1000 % 2 == 0
            };
            let object = cache.object(hash, |known| *known == key, || key, &mut column, write);
            if let Some(span) = object {
                column.set(row, Cell::Json(span));
            }
        }
        let column = column.finish();
        cache.keep(&column);
        (column, cache.misses - before)
    }

    proptest! {
        #[test]
        fn every_row_gets_its_object(batches in proptest::collection::vec(proptest::collection::vec(0..3000u32, 0..60), 1..50), capacity in 0..100usize) {
            let mut cache = ObjectCache::new(capacity);
            for keys in batches {
                let (column, _) = look_up(&mut cache, &keys);
                for (row, key) in keys.iter().enumerate() {
                    let text = format!("{{{key}}}");
                    let expected = if key / 1000 % 2 == 0 { Value::Json(text.as_bytes()) } else { Value::Missing };
                    prop_assert_eq!(column.value(row), expected);
                }
                prop_assert!(cache.young.len() + cache.old.len() <= capacity.max(2));
                prop_assert!(cache.buffers.len() <= BUFFERS_MAX);
            }
        }
    }

    #[test]
    fn what_is_asked_for_often_stays() {
        let mut cache = ObjectCache::new(10);
        look_up(&mut cache, &[1]);
        for key in 10..500 {
            let (_, misses) = look_up(&mut cache, &[1, key]);
            assert_eq!(misses, 1, "{key}");
        }
        let bytes: usize = cache.buffers.iter().map(Bytes::len).sum();
        assert!(
            bytes < 1000,
            "texts of dropped entries are let go: {bytes} bytes"
        );
    }
}
