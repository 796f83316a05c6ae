//! The batch: documents, edits, the selection, and where every row came from.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

use crate::bitmap::Bitmap;
use crate::budget::Charge;
use crate::cell::{Cell, Span};
use crate::column::{Column, ColumnBuilder};
use crate::edit::Failures;
use crate::ids::{self, ID_OVERHEAD, IdError, Ids, IdsBuilder, Parent, Window};
use crate::json::{self, JsonError, Scan};
use crate::member_places::{MemberPlaces, MembersWanted};
use crate::origin::{Origin, Source, Stream};
use crate::path::FieldPath;
use crate::reentry::Reentry;
use crate::tree::{METADATA, Node};
use crate::{read, walk};

/// How the documents of a batch are encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// A line of text each.
    Text,
    /// A JSON object each.
    Json,
    /// A MessagePack map each.
    MsgPack,
}

/// Facts of the machine that reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostInfo {
    /// The host's name, written as `host.name`.
    pub name: Arc<str>,
}

/// Events of one input, in order.
///
/// Within one processor rows never move: what a filter drops leaves the selection ([`Batch::alive`]), what failed is
/// sealed ([`Batch::sealed`]).
#[derive(Debug)]
pub struct Batch {
    pub(crate) root: Node,
    pub(crate) encoding: Encoding,
    pub(crate) origin: Origin,
    pub(crate) host: Arc<HostInfo>,
    pub(crate) received: i64,
    pub(crate) alive: Bitmap,
    pub(crate) sealed: Bitmap,
    pub(crate) drops: Vec<Drops>,
    /// Fields that were read; what a write touches is taken out.
    pub(crate) cache: Mutex<Vec<(FieldPath, Arc<Column>)>>,
    /// Some key of some document holds a dot.
    pub(crate) dotted: bool,
    pub(crate) size: usize,
    /// Where it goes on in its pipeline, when it does not come from an input.
    pub(crate) reentry: Option<Arc<Reentry>>,
    /// What it takes of the memory budget beside the buffers of inputs, until it is gone.
    pub(crate) charge: Option<Charge>,
}

/// Rows that left the selection, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drops {
    /// The reason, such as the name of the filter.
    pub reason: Arc<str>,
    /// The rows.
    pub rows: Bitmap,
}

impl Batch {
    /// Number of rows, dropped ones included.
    pub fn len(&self) -> usize {
        self.alive.len()
    }

    /// Whether the batch has no rows.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How the documents are encoded.
    pub fn encoding(&self) -> Encoding {
        self.encoding
    }

    /// Where every row came from.
    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    /// The machine that the batch was received on.
    pub fn host(&self) -> &Arc<HostInfo> {
        &self.host
    }

    /// When the batch was received, in nanoseconds since 1970: what `now()` gives.
    pub fn received(&self) -> i64 {
        self.received
    }

    /// Bytes of the documents and what is kept with each row: what the queue counts.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Where the batch goes on in its pipeline; `None` for what an input brought in.
    pub fn reentry(&self) -> Option<&Arc<Reentry>> {
        self.reentry.as_ref()
    }

    /// Says where the batch goes on in its pipeline.
    #[must_use]
    pub fn reentering(mut self, at: Arc<Reentry>) -> Self {
        self.reentry = Some(at);
        self
    }

    /// The rows that no filter dropped.
    pub fn alive(&self) -> &Bitmap {
        &self.alive
    }

    /// The rows that failed: processors that write skip them.
    pub fn sealed(&self) -> &Bitmap {
        &self.sealed
    }

    /// The rows that left the selection, with the reasons.
    pub fn drops(&self) -> &[Drops] {
        &self.drops
    }

    /// Takes rows out of the selection.
    pub fn drop_rows(&mut self, rows: &Bitmap, reason: &Arc<str>) {
        let mut rows = rows.clone();
        rows.and(&self.alive);
        if rows.is_empty() {
            return;
        }
        self.alive.and_not(&rows);
        match self.drops.iter_mut().find(|drops| drops.reason == *reason) {
            Some(drops) => drops.rows.or(&rows),
            None => self.drops.push(Drops {
                reason: reason.clone(),
                rows,
            }),
        }
    }

    /// Seals rows: processors that write skip them from now on.
    pub fn seal(&mut self, rows: &Bitmap) {
        self.sealed.or(rows);
    }

    /// The field's value in every row of the selection. Read once, kept until something writes there.
    pub fn column(&self, path: &FieldPath) -> Arc<Column> {
        let mut cache = self.cache.lock();
        if let Some((_, column)) = cache.iter().find(|(known, _)| known == path) {
            return column.clone();
        }
        let column = match self.system_column(path.keys()) {
            Some(column) => Arc::new(column),
            None => read::extract(&self.root, path.keys(), &self.alive, self.dotted),
        };
        cache.push((path.clone(), column.clone()));
        column
    }

    /// The columns of several fields. Those that were not read before are read in one pass over the documents.
    pub fn columns<'p>(&self, paths: impl IntoIterator<Item = &'p FieldPath>) -> Vec<Arc<Column>> {
        let paths: Vec<&FieldPath> = paths.into_iter().collect();
        let mut cache = self.cache.lock();
        let mut new: Vec<&FieldPath> = Vec::new();
        for &path in &paths {
            let is_known = new.contains(&path) || cache.iter().any(|(known, _)| known == path);
            if !is_known && self.system_column(path.keys()).is_none() {
                new.push(path);
            }
        }
        if new.len() > 1 {
            let keys: Vec<&[Box<str>]> = new.iter().map(|path| path.keys()).collect();
            let columns = read::extract_all(&self.root, &keys, &self.alive, self.dotted);
            let new = new.into_iter().cloned();
            cache.extend(new.zip(columns));
        }
        drop(cache);
        paths.into_iter().map(|path| self.column(path)).collect()
    }

    /// Where the elements of a JSON array lie that one of a row's columns has, as [`json::elements`] gives them, but mostly without a look at
    /// what lies between.
    pub fn elements<'a>(
        &'a self,
        row: usize,
        array: &'a [u8],
    ) -> impl Iterator<Item = Range<usize>> + 'a {
        let documents = self.root.own.as_deref();
        let noted = documents.and_then(|documents| {
            let document = documents.bytes(documents.cell(row).span()?);
            documents.places()?.elements(row, document, array)
        });
        let others = noted.is_none().then(|| json::elements(array));
        let noted = noted.into_iter().flatten();
        noted.chain(others.into_iter().flatten())
    }

    /// Whether events are documents; otherwise they have no fields but those that were written.
    pub fn has_documents(&self) -> bool {
        self.root.own.is_some()
    }

    /// The bytes of a row's document as it lies in the batch, without what was written since; zero without a document.
    pub fn document_len(&self, row: usize) -> usize {
        let document = self.root.own.as_ref().map(|own| own.cell(row));
        let span = document.and_then(Cell::span);
        span.map_or(0, |span| span.len as usize)
    }

    /// Whether an event may have the field, dots in keys as they are: what is known without looking at rows.
    pub fn may_have(&self, path: &FieldPath) -> bool {
        let mut node = &self.root;
        for key in path.keys() {
            match (&node.own, node.child(key.as_bytes())) {
                (Some(_), _) => return true,
                (None, Some(child)) => node = child,
                (None, None) => return false,
            }
        }
        true
    }

    /// Sets a field below `@metadata` for a batch that was just built, whatever `@metadata` is in its documents. Costs nothing
    /// for each row, because nothing below `@metadata` is written out.
    pub fn set_metadata(&mut self, key: &str, column: Column) {
        self.forget(&[METADATA.into(), key.into()]);
        let metadata = self.root.child_or_insert(METADATA);
        metadata.child_or_insert(key).write(column);
    }

    /// Sets a field of a batch that was just built, where no document has the first key of its path, nor several of its keys joined
    /// by dots. Nothing is looked up.
    pub fn set_new(&mut self, path: &FieldPath, column: Column) {
        self.forget(path.keys());
        self.root.descend_or_insert(path.keys()).write(column);
    }

    pub(crate) fn root(&self) -> &Node {
        &self.root
    }

    pub(crate) fn forget(&mut self, keys: &[Box<str>]) {
        let cache = self.cache.get_mut();
        cache.retain(|(path, _)| !path.overlaps(keys));
    }

    pub(crate) fn forget_all(&mut self) {
        self.cache.get_mut().clear();
    }

    /// What is always readable under `@metadata`, unless something was written there.
    fn system_column(&self, keys: &[Box<str>]) -> Option<Column> {
        let (first, rest) = keys.split_first()?;
        if &**first != METADATA || self.root.descend(keys).is_some() {
            return None;
        }
        let rest: Vec<&str> = rest.iter().map(|key| &**key).collect();
        match rest.as_slice() {
            ["id"] => Some(self.ids()),
            ["timestamp"] => Some(Column::constant(Cell::Time(self.received), self.len())),
            ["host", "name"] => Some(Column::constant_text(self.host.name.as_bytes(), self.len())),
            ["log", "offset"] => Some(Column::offsets(self.origin.starts().clone())),
            ["log", "file", "path"] => Some(self.source_column(Source::path)),
            ["log", "source", "address"] => Some(self.source_column(Source::peer)),
            ["log", "source", "listener"] => Some(self.source_column(Source::listener)),
            ["topic", "name"] => Some(self.source_column(Source::topic)),
            ["topic", "partition"] => Some(self.partitions()),
            _ => None,
        }
    }

    fn ids(&self) -> Column {
        if let Some(whole) = self.origin.ids().and_then(Ids::whole) {
            return whole.clone();
        }
        let mut ids = ColumnBuilder::new(self.len());
        for row in self.alive.iter() {
            let span = ids.append(|out| self.origin.write_id(row, out));
            ids.set(row, Cell::Text(span));
        }
        ids.finish()
    }

    /// What every row's source says of itself; absent where that is nothing.
    fn source_column(&self, text: impl Fn(&Source) -> Option<&str>) -> Column {
        let len = self.len();
        let mut streams = self.origin.streams();
        if let (Some((_, only)), None) = (streams.next(), streams.next()) {
            return match text(&only.source) {
                Some(text) => Column::constant_text(text.as_bytes(), len),
                None => Column::constant(Cell::Missing, len),
            };
        }
        let mut texts = ColumnBuilder::new(len);
        for (rows, stream) in self.origin.streams() {
            let Some(text) = text(&stream.source) else {
                continue;
            };
            let span = texts.append(|out| out.extend_from_slice(text.as_bytes()));
            for row in rows {
                texts.set(row, Cell::Text(span));
            }
        }
        texts.finish()
    }

    fn partitions(&self) -> Column {
        let mut partitions = ColumnBuilder::new(self.len());
        for (rows, stream) in self.origin.streams() {
            if let Source::Topic { partition, .. } = stream.source {
                for row in rows {
                    partitions.set(row, Cell::Int(partition.into()));
                }
            }
        }
        partitions.finish()
    }
}

/// Builds a batch from documents in shared buffers.
#[derive(Debug)]
pub struct BatchBuilder {
    encoding: Encoding,
    host: Arc<HostInfo>,
    received: i64,
    add_fields: bool,
    documents: Vec<Cell>,
    buffers: Vec<Bytes>,
    streams: Vec<(u32, Arc<Stream>)>,
    starts: Vec<u64>,
    ends: Vec<u64>,
    tags: Vec<RowTag>,
    /// Made for the first row whose id does not follow from its place.
    ids: Option<Box<IdsBuilder>>,
    /// What senders gave beside their documents; rows behind the last one that was set have nothing.
    metadata: Vec<Cell>,
    /// Where members of documents stand, where that may be wanted.
    places: Option<MemberPlaces>,
    dotted: bool,
    size: usize,
}

/// A row's tag, with the error message that goes with it.
type RowTag = (usize, Arc<str>, Option<Arc<str>>);

/// What the queue counts for a row beside its document: its cell, start and end.
pub(crate) const ROW_OVERHEAD: usize = 32;

impl BatchBuilder {
    /// An empty builder. `received` is in nanoseconds since 1970. `add_fields` gives JSON and MessagePack events the
    /// fields that lines of text always have.
    pub fn new(encoding: Encoding, host: &Arc<HostInfo>, received: i64, add_fields: bool) -> Self {
        Self {
            encoding,
            host: host.clone(),
            received,
            add_fields,
            documents: Vec::new(),
            buffers: Vec::new(),
            streams: Vec::new(),
            starts: Vec::new(),
            ends: Vec::new(),
            tags: Vec::new(),
            ids: None,
            metadata: Vec::new(),
            places: None,
            dotted: false,
            size: 0,
        }
    }

    /// Keeps where the members of documents stand, if that is wanted.
    pub fn note_members(&mut self, wanted: &MembersWanted) {
        self.places.get_or_insert_with(|| MemberPlaces::new(wanted));
    }

    /// Checks that `text`, which is UTF-8, is one JSON object, as [`json::validate_object`] does. If it becomes the next document as it is,
    /// [`Self::members_last`] follows.
    ///
    /// # Errors
    /// The first thing that is wrong, with its offset in bytes.
    #[inline]
    pub fn validate_object(&mut self, text: &[u8]) -> Result<Scan, JsonError> {
        match &mut self.places {
            Some(places) => places.validate_object(text),
            None => json::validate_object(text),
        }
    }

    /// Says that the row added last is the document that was validated last.
    #[inline]
    pub fn members_last(&mut self) {
        if let (Some(places), Some(row)) = (&mut self.places, self.documents.len().checked_sub(1)) {
            places.keep(row);
        }
    }

    /// Makes room for `rows` more rows.
    pub fn reserve(&mut self, rows: usize) {
        self.documents.reserve(rows);
        self.starts.reserve(rows);
        self.ends.reserve(rows);
    }

    /// Adds a buffer and gives its number for [`Span`]s.
    pub fn buffer(&mut self, bytes: Bytes) -> u32 {
        self.buffers.push(bytes);
        self.buffers.len() as u32 - 1
    }

    /// As [`Self::buffer`], but one that was added last is not added again.
    pub fn shared_buffer(&mut self, bytes: &Bytes) -> u32 {
        let is_last = |last: &Bytes| (last.as_ptr(), last.len()) == (bytes.as_ptr(), bytes.len());
        match self.buffers.last().is_some_and(is_last) {
            true => self.buffers.len() as u32 - 1,
            false => self.buffer(bytes.clone()),
        }
    }

    /// Says which stream the next rows come from.
    pub fn stream(&mut self, stream: &Arc<Stream>) {
        let first = self.documents.len() as u32;
        match self.streams.last_mut() {
            Some((_, last)) if Arc::ptr_eq(last, stream) => {}
            Some((at, last)) if *at == first => *last = stream.clone(),
            _ => self.streams.push((first, stream.clone())),
        }
    }

    /// Adds a document that lies in a buffer: valid UTF-8 for text, validated and without duplicate or escaped keys
    /// for JSON and MessagePack.
    #[inline]
    pub fn push(&mut self, document: Span, start: u64, end: u64) {
        self.documents.push(match self.encoding {
            Encoding::Text => Cell::Text(document),
            Encoding::Json => Cell::Json(document),
            Encoding::MsgPack => Cell::MsgPack(document),
        });
        self.size += document.len as usize + ROW_OVERHEAD;
        self.starts.push(start);
        self.ends.push(end);
    }

    /// Adds an event of text to a batch of another encoding: what could not be read as a document. The caller tags it.
    pub fn push_text(&mut self, text: Span, start: u64, end: u64) {
        self.push(text, start, end);
        if let Some(last) = self.documents.last_mut() {
            *last = Cell::Text(text);
        }
    }

    /// Tags the row added last, and gives it an error message.
    pub fn tag_last(&mut self, tag: &Arc<str>, message: Option<Arc<str>>) {
        if let Some(row) = self.documents.len().checked_sub(1) {
            self.tags.push((row, tag.clone(), message));
        }
    }

    /// Gives the row added last the id that its sender gave, which lies in a buffer of this builder. On an error the row keeps
    /// the id that follows from its place.
    ///
    /// # Errors
    /// It is empty, longer than [`SENDER_ID_BYTES_MAX`](crate::SENDER_ID_BYTES_MAX) or not UTF-8.
    ///
    /// # Panics
    /// There is no row, or the buffer is not there yet or too short.
    pub fn id_last(&mut self, id: Span) -> Result<(), IdError> {
        let start = id.start as usize;
        let bytes = &self.buffers[id.buffer as usize][start..start + id.len as usize];
        ids::check(bytes)?;
        self.set_id_last(|_, _| Cell::Text(id), None);
        Ok(())
    }

    /// Gives the row added last a JSON object that is readable under `@metadata` and no part of the event. It lies in a buffer
    /// of this builder, validated and without duplicate or escaped keys.
    ///
    /// # Panics
    /// There is no row.
    pub fn metadata_last(&mut self, object: Span) {
        let row = self.documents.len() - 1;
        self.metadata.resize(row, Cell::Keep);
        self.metadata.push(Cell::Json(object));
        self.size += object.len as usize + size_of::<Cell>();
    }

    /// Gives the row added last the id of what sums up a window.
    ///
    /// # Panics
    /// There is no row.
    pub fn window_last(&mut self, window: &Window<'_>) {
        let own = |_, ids: &mut IdsBuilder| Cell::Text(ids.append(|out| window.write(out)));
        self.set_id_last(own, None);
    }

    /// An event of another batch, of which rows of this one will be parts.
    pub fn parent(&mut self, origin: &Origin, row: usize) -> Parent {
        let ids = self.ids.get_or_insert_default();
        let kept = ids.own_len();
        let id = origin.has_own_id(row);
        let id = id.then(|| ids.append(|out| origin.write_id(row, out)));
        let parent = Parent::new(origin.place(row), id);
        self.size += ids.own_len() - kept;
        parent
    }

    /// Makes the row added last a part of an event. Where it has the place of that event, its id takes no text.
    ///
    /// # Panics
    /// There is no row.
    pub fn part_last(&mut self, parent: &Parent, index: u32) {
        self.set_id_last(|place, ids| parent.base(place, ids), Some(index));
    }

    /// Gives the row added last an id, of which the base is made for its place.
    fn set_id_last(
        &mut self,
        base: impl FnOnce((u128, u64, u64), &mut IdsBuilder) -> Cell,
        part: Option<u32>,
    ) {
        let row = self.documents.len() - 1;
        let mut streams = self.streams.iter().rev();
        let stream = streams.find(|(first, _)| *first as usize <= row);
        let stream = stream.map_or(0, |(_, stream)| stream.id);
        let ids = self.ids.get_or_insert_default();
        let kept = ids.own_len();
        let base = base((stream, self.starts[row], self.ends[row]), ids);
        ids.set(row, base, part);
        self.size += ID_OVERHEAD + ids.own_len() - kept;
    }

    /// Says that some key of a document holds a dot.
    pub fn dotted_keys(&mut self) {
        self.dotted = true;
    }

    /// Rows so far.
    pub fn len(&self) -> usize {
        self.documents.len()
    }

    /// Whether there are no rows yet.
    pub fn is_empty(&self) -> bool {
        self.documents.is_empty()
    }

    /// Bytes so far, as [`Batch::size`] will give them.
    pub fn size(&self) -> usize {
        self.size
    }

    /// The batch.
    pub fn finish(mut self) -> Batch {
        let len = self.documents.len();
        let ids = self.ids.map(|ids| ids.finish(len, &mut self.buffers));
        let buffers: Arc<[Bytes]> = self.buffers.into();
        let metadata_buffers = buffers.clone();
        let ids = ids.and_then(|(bases, parts)| {
            let bases = Column::new(bases, buffers.clone());
            Ids::new(bases, parts)
        });
        let origin = Origin::new(self.streams, self.starts, self.ends).with_ids(ids);
        let mut batch = Batch {
            root: Node::default(),
            encoding: self.encoding,
            origin,
            host: self.host,
            received: self.received,
            alive: Bitmap::all(len),
            sealed: Bitmap::none(len),
            drops: Vec::new(),
            cache: Mutex::default(),
            dotted: self.dotted,
            size: self.size,
            reentry: None,
            charge: None,
        };
        let is_text = |cell: &Cell| matches!(cell, Cell::Text(_));
        if self.encoding == Encoding::Text {
            batch.lay_fields(
                Some(&Column::new(self.documents, buffers)),
                &Bitmap::all(len),
            );
        } else {
            let texts = Bitmap::from_fn(len, |row| is_text(&self.documents[row]));
            let part = |text: bool, other: Cell| {
                let cells = self
                    .documents
                    .iter()
                    .map(|cell| if is_text(cell) == text { *cell } else { other });
                Column::new(cells.collect(), buffers.clone())
            };
            let messages = (!texts.is_empty()).then(|| part(true, Cell::Keep));
            let documents = part(false, Cell::Missing).with_places(self.places);
            batch.root.own = Some(Arc::new(documents));
            let rows = if self.add_fields {
                Bitmap::all(len)
            } else {
                texts
            };
            batch.lay_fields(messages.as_ref(), &rows);
        }
        if !self.metadata.is_empty() {
            self.metadata.resize(len, Cell::Keep);
            let column = Column::new(self.metadata, metadata_buffers);
            batch.root.child_or_insert(METADATA).write(column);
        }
        batch.lay_tags(&self.tags);
        batch
    }
}

impl Batch {
    /// Gives rows the tags and messages of a builder, all in a few passes: there may be one for every row.
    fn lay_tags(&mut self, tags: &[RowTag]) {
        let mut failures = Failures::none();
        let mut plain: Vec<(&Arc<str>, Bitmap)> = Vec::new();
        for (row, tag, message) in tags {
            if let Some(message) = message {
                failures.push(*row, tag, message);
                continue;
            }
            let index = plain
                .iter()
                .position(|(known, _)| *known == tag)
                .unwrap_or_else(|| {
                    plain.push((tag, Bitmap::none(self.len())));
                    plain.len() - 1
                });
            plain[index].1.insert(*row);
        }
        self.mark_failed(&failures, false);
        for (tag, rows) in plain {
            self.add_tag(&rows, tag);
        }
    }

    /// Lays the fields of an event that came without any over `rows`: where a document has such a field, it stays.
    fn lay_fields(&mut self, messages: Option<&Column>, rows: &Bitmap) {
        if rows.is_empty() {
            return;
        }
        let len = self.len();
        let comes_from = |is: fn(&Source) -> bool| {
            let mut streams = self.origin.streams();
            streams.any(|(_, stream)| is(&stream.source))
        };
        let from_file = comes_from(|source| matches!(source, Source::File { .. }));
        let from_peer = comes_from(|source| matches!(source, Source::Connection { .. }));
        let fields: [(&[&str], bool, Column); 5] = [
            (
                &["@timestamp"],
                true,
                Column::constant(Cell::Time(self.received), len),
            ),
            (
                &["host", "name"],
                true,
                Column::constant_text(self.host.name.as_bytes(), len),
            ),
            (
                &["log", "file", "path"],
                from_file,
                self.source_column(Source::path),
            ),
            (
                &["log", "offset"],
                from_file,
                Column::offsets(self.origin.starts().clone()),
            ),
            (
                &["log", "source", "address"],
                from_peer,
                self.source_column(Source::peer),
            ),
        ];
        for (index, (keys, applies, column)) in fields.into_iter().enumerate() {
            if applies {
                let keys: Vec<Box<str>> = keys.iter().map(|&key| key.into()).collect();
                let column = self.only_where_absent(&keys, column, rows);
                self.root.descend_or_insert(&keys).write(column);
            }
            if index == 0
                && let Some(messages) = messages
            {
                self.root.child_or_insert("message").write(messages.clone());
            }
        }
    }

    fn only_where_absent(&self, keys: &[Box<str>], column: Column, rows: &Bitmap) -> Column {
        if self.root.own.is_none() && rows.is_full() {
            return column;
        }
        let present = read::extract(&self.root, keys, rows, self.dotted);
        let absent = |row| {
            rows.contains(row)
                && present.value(row).is_missing()
                && !walk::is_blocked(&self.root, keys, row)
        };
        column.with_cells((0..self.len()).filter(|&row| !absent(row)), Cell::Keep)
    }
}
