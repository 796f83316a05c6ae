//! What a document's action says of where it goes, as metadata of its event.
//!
//! The documents of an agent nearly always go to the same place. A [`Target`] is therefore made once and shared, and a batch
//! whose events have the same one gets columns of a single cell.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use batch::{Batch, Cell, Column, ColumnBuilder};

/// How many targets are remembered.
const KNOWN_MAX: usize = 1024;

/// What is done with a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verb {
    Create,
    Index,
    Update,
    Delete,
}

impl Verb {
    pub(super) const ALL: [Self; 4] = [Self::Create, Self::Index, Self::Update, Self::Delete];

    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Index => "index",
            Self::Update => "update",
            Self::Delete => "delete",
        }
    }

    pub(super) fn of(word: &[u8]) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|verb| verb.word().as_bytes() == word)
    }
}

/// Where a document goes, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) verb: Verb,
    pub(super) index: Box<str>,
    pub(super) pipeline: Option<Box<str>>,
    pub(super) routing: Option<Box<str>>,
}

impl Target {
    /// Whether this is what an action says.
    pub(super) fn is(&self, verb: Verb, said: &Said) -> bool {
        let is = |text: &Option<Box<str>>, said: &[u8]| {
            text.as_deref().unwrap_or_default().as_bytes() == said
        };
        self.verb == verb
            && self.index.as_bytes() == said.index
            && is(&self.pipeline, &said.pipeline)
            && is(&self.routing, &said.routing)
    }

    /// What the event's `@metadata.op_type` is: an update stores its document, as `index` does.
    fn op_type(&self) -> &'static str {
        match self.verb {
            Verb::Create => "create",
            _ => "index",
        }
    }
}

/// What an action says, before it is a target. Empty texts are none.
#[derive(Debug, Default)]
pub(super) struct Said {
    pub(super) index: Vec<u8>,
    pub(super) pipeline: Vec<u8>,
    pub(super) routing: Vec<u8>,
}

impl Said {
    /// How many bytes the texts have.
    pub(super) fn bytes(&self) -> usize {
        self.index.len() + self.pipeline.len() + self.routing.len()
    }
}

/// Targets that were seen.
#[derive(Debug, Default)]
pub(super) struct Targets {
    known: HashMap<Box<[u8]>, Arc<Target>>,
    key: Vec<u8>,
}

impl Targets {
    /// The target that an action says. Its texts are UTF-8.
    pub(super) fn get(&mut self, verb: Verb, said: &Said) -> Arc<Target> {
        self.key.clear();
        self.key.push(verb as u8);
        for text in [&said.index, &said.pipeline, &said.routing] {
            self.key.extend_from_slice(&text.len().to_le_bytes());
            self.key.extend_from_slice(text);
        }
        if let Some(known) = self.known.get(&*self.key) {
            return known.clone();
        }
        if self.known.len() >= KNOWN_MAX {
            self.known.clear();
        }
        let text = |text: &[u8]| String::from_utf8_lossy(text).into_owned().into_boxed_str();
        let given = |bytes: &Vec<u8>| (!bytes.is_empty()).then(|| text(bytes));
        let target = Arc::new(Target {
            verb,
            index: text(&said.index),
            pipeline: given(&said.pipeline),
            routing: given(&said.routing),
        });
        self.known
            .insert(self.key.as_slice().into(), target.clone());
        target
    }
}

/// The targets of consecutive rows.
pub(super) type Runs = Vec<(usize, Arc<Target>)>;

/// A text of a target, where it has that.
type Field = fn(&Target) -> Option<&str>;

/// Sets the metadata of a batch whose rows come from messages with these targets.
pub(super) fn lay(batch: &mut Batch, messages: &[(Range<usize>, Runs)]) {
    let fields: [(&str, Field); 4] = [
        ("index", |target| Some(&target.index)),
        ("op_type", |target| Some(target.op_type())),
        ("pipeline", |target| target.pipeline.as_deref()),
        ("routing", |target| target.routing.as_deref()),
    ];
    for (key, field) in fields {
        if let Some(column) = column(batch.len(), messages, field) {
            batch.set_metadata(key, column);
        }
    }
}

/// A field of the targets; none where no row has it.
fn column(rows: usize, messages: &[(Range<usize>, Runs)], field: Field) -> Option<Column> {
    let mut targets = messages.iter().flat_map(|(_, runs)| runs);
    let first = field(&targets.next()?.1);
    if targets.all(|(_, target)| field(target) == first) {
        return first.map(|text| Column::constant_text(text.as_bytes(), rows));
    }
    let mut column = ColumnBuilder::new(rows);
    for (place, runs) in messages {
        let mut row = place.start;
        for (count, target) in runs {
            if let Some(text) = field(target) {
                let text = column.append(|out| out.extend_from_slice(text.as_bytes()));
                (row..row + count).for_each(|row| column.set(row, Cell::Text(text)));
            }
            row += count;
        }
    }
    Some(column.finish())
}
