//! Events of security devices: a header of fields between `|`, and pairs of keys and values behind it, as `cef` and `leef`
//! parse them.
//!
//! How the texts are written is a [`DeviceFormat`]. The fields of the header get columns, and so do the keys
//! ([`crate::keyed`] states the limits); values are views into the text, except those with escapes.

use std::sync::Arc;

use batch::{Batch, Bitmap, Cell, Edit, Failures, FieldPath, FieldRead};
use component::{BuildContext, Processor};
use config::{ConfigError, Node};
use memchr::memmem::Finder;

use crate::keyed::{Keyed, ValueLocation};
use crate::names::{below, field};
use crate::text::{Texts, part};

/// How events are written.
pub(crate) trait DeviceFormat: Clone + Send + 'static {
    /// The tag of failures.
    const TAG: &'static str;
    /// The fields of the header in order, below the target.
    const HEADER: &'static [&'static [&'static str]];
    /// The object of the pairs, below the target.
    const PAIRS: &'static str;

    /// Takes a text apart.
    ///
    /// # Errors
    /// A text that is no such event.
    fn read(&self, text: &[u8], event: &mut DeviceEvent) -> Result<(), DeviceEventError>;

    /// Appends a value without its escapes.
    fn unescape(value: &[u8], out: &mut Vec<u8>);
}

/// An event, taken apart.
#[derive(Debug, Default)]
pub(crate) struct DeviceEvent {
    /// The fields of the header.
    pub header: Vec<TextPart>,
    pub pairs: Vec<DevicePair>,
}

/// A key and its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DevicePair {
    pub key: TextPart,
    pub value: TextPart,
}

/// A part of a text, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TextPart {
    pub start: usize,
    pub end: usize,
    pub has_escapes: bool,
}

impl TextPart {
    /// A part without escapes.
    pub fn plain(start: usize, end: usize) -> Self {
        Self {
            start,
            end,
            has_escapes: false,
        }
    }

    /// The bytes of the part.
    pub fn of(self, text: &[u8]) -> &[u8] {
        &text[self.start..self.end]
    }
}

/// Why a text is no event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum DeviceEventError {
    #[error("there is no `{0}` with a version")]
    NoHeader(&'static str),
    #[error("the header has {found} fields, and not {wanted}")]
    Header { found: usize, wanted: usize },
    #[error(
        "the separator at byte {0} is neither one character, nor its number in hexadecimal, nor `\\t` or `tab`; the setting `delimiter` can name it"
    )]
    Separator(usize),
    #[error("there is no key with a `=` at byte {0}")]
    NoKey(usize),
}

/// Where the version stands that follows `name` (`CEF:`), in bytes: at the beginning of the text or behind the header of
/// a syslog message.
pub(crate) fn version_at(text: &[u8], name: &Finder<'_>) -> Option<usize> {
    let len = name.needle().len();
    name.find_iter(text).find_map(|at| {
        let is_word = at == 0 || !text[at - 1].is_ascii_alphanumeric();
        let behind = &text[at + len..];
        let version = behind.trim_ascii_start();
        let is_version = version.first().is_some_and(u8::is_ascii_digit);
        (is_word && is_version).then(|| at + len + behind.len() - version.len())
    })
}

/// A processor of events in a format.
#[derive(Clone)]
pub(crate) struct DeviceEvents<F> {
    format: F,
    source: FieldPath,
    header: Arc<[FieldPath]>,
    pairs: FieldPath,
    tag: Arc<str>,
}

impl<F: DeviceFormat> DeviceEvents<F> {
    /// The processor with the settings `field` and `target` of `node`.
    ///
    /// # Errors
    /// A text that is not a field name, with its place.
    pub fn new(
        node: &Node,
        context: &BuildContext,
        (name, target): (&str, &str),
        format: F,
    ) -> Result<Self, ConfigError> {
        let target = field(node, "target", target)?;
        let header = F::HEADER
            .iter()
            .map(|keys| below(Some(&target), keys.iter().copied()));
        Ok(Self {
            format,
            source: field(node, "field", name)?,
            header: header.collect(),
            pairs: below(Some(&target), [F::PAIRS]),
            tag: context.tag_or(F::TAG),
        })
    }
}

impl<F: DeviceFormat> Processor for DeviceEvents<F> {
    fn process(&mut self, batch: &mut Batch, rows: &Bitmap) -> Failures {
        let texts = Texts::of(batch, &self.source, rows);
        let column = |_: &FieldPath| texts.builder(batch.len());
        let mut columns: Vec<_> = self.header.iter().map(column).collect();
        let mut pairs = Keyed::new(batch.len(), &texts, |key: &[u8]| Some(name::<F>(key)));
        let mut failures = Failures::none();
        let mut event = DeviceEvent::default();
        for row in rows.iter() {
            let Some((span, text)) = texts.get(row) else {
                continue;
            };
            event.header.clear();
            event.pairs.clear();
            if let Err(error) = self.format.read(text, &mut event) {
                let reason = format!("{}: {error}", self.source);
                failures.push(row, &self.tag, &reason.into());
                continue;
            }
            for (column, field) in columns.iter_mut().zip(&event.header) {
                let value = match field.has_escapes {
                    false => part(span, field.start, field.end),
                    true => column.append(|out| F::unescape(field.of(text), out)),
                };
                column.set(row, Cell::Text(value));
            }
            for DevicePair { key, value } in &event.pairs {
                let location = match value.has_escapes {
                    false => ValueLocation::Text(value.start, value.end),
                    true => {
                        let start = pairs.changed.len();
                        F::unescape(value.of(text), &mut pairs.changed);
                        ValueLocation::Changed(start, pairs.changed.len())
                    }
                };
                pairs.add(text, (key.start, key.end), location);
            }
            pairs.end_row(row, span, text, false);
        }
        let mut edit = Edit::new();
        for (path, column) in self.header.iter().zip(columns) {
            if !column.is_untouched() {
                edit.set(path.clone(), column.finish());
            }
        }
        pairs.finish(Some(&self.pairs), &mut edit);
        if !edit.is_empty() {
            failures.extend_refused(batch.apply(edit), &self.tag);
        }
        failures
    }

    fn reads(&self) -> Vec<Arc<FieldRead>> {
        vec![Arc::new(FieldRead::always(self.source.clone()))]
    }
}

/// The name of a field that a key makes.
fn name<F: DeviceFormat>(key: &[u8]) -> String {
    let mut name = Vec::new();
    F::unescape(key, &mut name);
    String::from_utf8_lossy(&name).into_owned()
}
