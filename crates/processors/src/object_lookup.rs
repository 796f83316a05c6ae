//! Lookups of the values of a field, as `geoip` and `user_agent` do them.
//!
//! Each distinct value is looked up once and its object remembered ([`ObjectCache`]); the objects of a batch are merged into
//! the target in one edit. What values are looked up in is a [`Source`].

use std::sync::Arc;

use batch::{
    Batch, Bitmap, Cell, ColumnBuilder, Edit, Failures, FieldPath, FieldRead, Span, Value,
};
use component::{BuildContext, Processor};
use config::{ConfigError, Node};

use crate::object_cache::ObjectCache;

/// The default of the setting `cache_entries`.
pub(crate) fn default_cache_entries() -> usize {
    10_000
}

/// What values are looked up in.
pub(crate) trait Source: Clone + Send + 'static {
    /// What the cache tells values apart by.
    type Key: Clone + Send;

    /// What a value is called in messages.
    const VALUE: &'static str;
    /// The tag of failures.
    const TAG: &'static str;
    /// Whether rows with a value that has no object get the tag.
    const TAGS_UNKNOWN: bool;

    /// The value to look up, of a field that holds another one than a text.
    fn value(value: Value<'_>) -> Value<'_> {
        value
    }

    /// The object of a text, by [`ObjectCache::object`]; nothing where it has none.
    fn object(
        &mut self,
        text: &[u8],
        cache: &mut ObjectCache<Self::Key>,
        objects: &mut ColumnBuilder,
    ) -> Option<Span>;

    /// How often the source failed since the last call, and the name of that counter.
    fn take_errors(&mut self) -> Option<(&'static str, u64)> {
        None
    }
}

/// A processor that looks the values of a field up.
#[derive(Clone)]
pub(crate) struct ObjectLookup<S: Source> {
    field: FieldPath,
    target: FieldPath,
    tag: Arc<str>,
    source: S,
    cache: ObjectCache<S::Key>,
    /// The text of a value that is not a text.
    text: Vec<u8>,
}

impl<S: Source> ObjectLookup<S> {
    /// The processor with these settings of `node`: `field`, `target` and `cache_entries`.
    ///
    /// # Errors
    /// A cache without room, or a text that is not a field name, with its place.
    pub fn new(
        node: &Node,
        context: &BuildContext,
        (name, target, cache_entries): (&str, &str, usize),
        source: S,
    ) -> Result<Self, ConfigError> {
        if cache_entries == 0 {
            return Err(node.nearest("cache_entries").error(format!(
                "the cache needs room for one {} at least",
                S::VALUE
            )));
        }
        Ok(Self {
            field: crate::names::field(node, "field", name)?,
            target: crate::names::field(node, "target", target)?,
            tag: context.tag_or(S::TAG),
            source,
            cache: ObjectCache::new(cache_entries),
            text: Vec::new(),
        })
    }
}

impl<S: Source> Processor for ObjectLookup<S> {
    fn process(&mut self, batch: &mut Batch, rows: &Bitmap) -> Failures {
        let source = batch.column(&self.field);
        let mut objects = self.cache.column(batch.len());
        let mut unknown = Bitmap::none(batch.len());
        for row in rows.iter() {
            let object = match source.value(row) {
                Value::Missing | Value::Null => continue,
                Value::Text(text) => self.source.object(text, &mut self.cache, &mut objects),
                other => {
                    self.text.clear();
                    S::value(other).write_text(&mut self.text);
                    self.source
                        .object(&self.text, &mut self.cache, &mut objects)
                }
            };
            match object {
                Some(span) => objects.set(row, Cell::Json(span)),
                None => unknown.insert(row),
            }
        }
        let mut failures = Failures::none();
        // In many logs no database knows any of a batch's addresses: then there is nothing to write.
        if !objects.is_untouched() {
            let objects = objects.finish();
            self.cache.keep(&objects);
            let mut edit = Edit::new();
            edit.merge(Some(self.target.clone()), objects, false);
            failures.extend_refused(batch.apply(edit), &self.tag);
        }
        if S::TAGS_UNKNOWN {
            batch.add_tag(&unknown, &self.tag);
        }
        failures
    }

    fn reads(&self) -> Vec<Arc<FieldRead>> {
        vec![Arc::new(FieldRead::always(self.field.clone()))]
    }

    fn take_counters(&mut self) -> Vec<(&'static str, u64)> {
        let mut counters = self.cache.take_counters();
        counters.extend(self.source.take_errors());
        counters
    }
}
