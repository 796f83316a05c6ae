//! The crate's error: what is wrong with a configuration, where, and what would be right.

use std::ops::Range;
use std::sync::Arc;

use crate::closest::closest;
use crate::path::Path;
use crate::source::{Source, Span};

/// Something wrong in a configuration.
///
/// It displays as a message, the place, the line with a caret below the fault, what is accepted and the closest word.
/// The text ends without a newline.
#[derive(Debug, Clone, thiserror::Error)]
pub struct ConfigError(Box<Details>);

#[derive(Debug, Clone)]
pub(crate) struct Details {
    pub message: String,
    pub place: Option<ErrorLocation>,
    pub accepted: Vec<String>,
    pub suggestion: Option<String>,
    pub notes: Vec<String>,
    /// The name of a setting that does not exist, where that is what is wrong.
    pub unknown_setting: Option<String>,
}

#[derive(Debug, Clone)]
pub(crate) struct ErrorLocation {
    pub source: Arc<Source>,
    pub span: Span,
    pub path: Path,
    /// The text of the scalar at fault.
    pub value: Option<String>,
    /// A place within the value, when it cannot be shown in the source because of quotes, escapes or variables.
    pub inner: Option<Range<usize>>,
    /// Whether the text is shown: not that of a secret.
    pub is_secret: bool,
}

impl ConfigError {
    /// An error that belongs to no place, such as a file that cannot be read.
    pub fn new(message: impl Into<String>) -> Self {
        Self(Box::new(Details {
            message: message.into(),
            place: None,
            accepted: Vec::new(),
            suggestion: None,
            notes: Vec::new(),
            unknown_setting: None,
        }))
    }

    /// An error at a place.
    pub(crate) fn at(place: ErrorLocation, message: impl Into<String>) -> Self {
        let mut error = Self::new(message);
        error.0.place = Some(place);
        error
    }

    /// An error at a place of a text that has no tree yet.
    pub fn in_source(source: &Arc<Source>, span: Span, message: impl Into<String>) -> Self {
        let place = ErrorLocation::new(source, span, Path::default(), None);
        Self::at(place, message)
    }

    /// Adds what would have been accepted.
    pub fn accepted<S: Into<String>>(mut self, accepted: impl IntoIterator<Item = S>) -> Self {
        self.0.accepted.extend(accepted.into_iter().map(Into::into));
        self
    }

    /// Sets what was probably meant.
    pub fn suggest(mut self, suggestion: impl Into<String>) -> Self {
        self.0.suggestion = Some(suggestion.into());
        self
    }

    /// Suggests the accepted word (given before by [`ConfigError::accepted`]) that is closest to `word`, if one is near.
    pub fn closest_to(mut self, word: &str) -> Self {
        self.0.suggestion =
            closest(word, self.0.accepted.iter().map(String::as_str)).map(str::to_owned);
        self
    }

    /// Adds a line of advice at the end.
    pub fn note(mut self, note: impl Into<String>) -> Self {
        self.0.notes.push(note.into());
        self
    }

    /// Points into the value of the scalar that the error stands at, by a byte offset into its text: for a broken
    /// pattern or expression. No effect on an error at anything but a scalar.
    pub fn pointing_at(self, offset: usize) -> Self {
        self.pointing_at_range(offset..offset)
    }

    /// As [`ConfigError::pointing_at`], marking a whole range of the value's text.
    pub fn pointing_at_range(mut self, range: Range<usize>) -> Self {
        if let Some(place) = &mut self.0.place {
            place.point_into_value(range);
        }
        self
    }

    /// Shows neither the value nor its line, only where they stand: for errors of settings that hold secrets.
    pub fn hiding_value(mut self) -> Self {
        if let Some(place) = &mut self.0.place {
            place.is_secret = true;
            place.value = None;
        }
        self
    }

    pub(crate) fn details(&self) -> &Details {
        &self.0
    }

    /// What is wrong, in one sentence.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// Where in the text, in bytes.
    pub fn span(&self) -> Option<Span> {
        self.0.place.as_ref().map(|place| place.span)
    }

    /// The line, from 1.
    pub fn line(&self) -> Option<usize> {
        self.position().map(|(line, _)| line)
    }

    /// The column, from 1, in characters.
    pub fn column(&self) -> Option<usize> {
        self.position().map(|(_, column)| column)
    }

    fn position(&self) -> Option<(usize, usize)> {
        let place = self.0.place.as_ref()?;
        Some(place.source.locate(place.span.start))
    }

    /// The path in the tree; empty at the root and for syntax errors.
    pub fn path(&self) -> String {
        let place = self.0.place.as_ref();
        place
            .map(|place| place.path.to_string())
            .unwrap_or_default()
    }

    /// The text of the scalar at fault.
    pub fn value(&self) -> Option<&str> {
        self.0.place.as_ref()?.value.as_deref()
    }

    /// What would have been accepted.
    pub fn accepted_words(&self) -> &[String] {
        &self.0.accepted
    }

    /// The name of a setting that does not exist, where that is what is wrong.
    pub fn unknown_setting(&self) -> Option<&str> {
        self.0.unknown_setting.as_deref()
    }

    /// Says that the setting `name` does not exist.
    pub(crate) fn about_unknown_setting(mut self, name: &str) -> Self {
        self.0.unknown_setting = Some(name.to_owned());
        self
    }

    /// What was probably meant.
    pub fn suggestion(&self) -> Option<&str> {
        self.0.suggestion.as_deref()
    }
}

impl ErrorLocation {
    pub fn new(source: &Arc<Source>, span: Span, path: Path, value: Option<String>) -> Self {
        Self {
            source: Arc::clone(source),
            span,
            path,
            value,
            inner: None,
            is_secret: false,
        }
    }

    fn point_into_value(&mut self, range: Range<usize>) {
        let Some(value) = &self.value else { return };
        let start = value.floor_char_boundary(range.start);
        let end = value.floor_char_boundary(range.end).max(start);
        // The value stands in the source as it is when only quotes surround it: then the source can be pointed at.
        let raw = self.source.slice(self.span);
        let quotes = match raw.len().checked_sub(value.len()) {
            Some(0) if raw == value => 0,
            Some(2) if raw.starts_with(['"', '\'']) && raw.get(1..raw.len() - 1) == Some(value) => {
                1
            }
            _ => {
                self.inner = Some(start..end);
                return;
            }
        };
        let base = self.span.start + quotes;
        self.span = Span::new(base + start, base + end);
    }
}
