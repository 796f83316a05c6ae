//! A part of a message that comes from the first of several texts whose fields an event has.
//!
//! What is the same for all rows of a batch, such as the name of the host in most of them, is written once for each batch.

use std::sync::Arc;

use batch::{Batch, FieldRead};
use expr::{Absent, BoundTemplate, Template};

/// The texts, the preferred one first.
#[derive(Debug, Clone)]
pub struct Choice {
    texts: Vec<Template>,
    /// Whether a user has named the fields, and wants to hear if no event has them.
    is_set: bool,
}

/// The texts over the columns of one batch.
pub enum BoundChoice<'a> {
    /// The same for every row; empty where there is none.
    Constant(Vec<u8>),
    /// By row, with a text to fall back on.
    ByRow(Vec<BoundTemplate<'a>>),
}

impl Choice {
    /// Of the text in a setting.
    pub fn set(text: Template) -> Self {
        Self {
            texts: vec![text],
            is_set: true,
        }
    }

    /// Of the values of fields.
    ///
    /// # Panics
    /// One is no field, which a test finds.
    pub fn fields(names: &[&str]) -> Self {
        let template = |name: &&str| {
            Template::parse(&format!("%{{{name}}}"))
                .expect("a constant that is the name of a field")
        };
        Self {
            texts: names.iter().map(template).collect(),
            is_set: false,
        }
    }

    /// The fields that a user has named.
    pub fn reads(&self) -> impl Iterator<Item = Arc<FieldRead>> {
        let texts = self.texts.iter().filter(|_| self.is_set);
        texts.flat_map(Template::reads)
    }

    /// The texts over the columns of one batch; `clean` is shown a text that holds for all rows.
    pub fn bind<'a>(
        &'a self,
        batch: &Batch,
        clean: impl Fn(&mut Vec<u8>, usize),
    ) -> BoundChoice<'a> {
        let mut texts = Vec::new();
        for template in &self.texts {
            let mut bound = template.bind(batch, Absent::Text(""));
            if !bound.is_constant() {
                texts.push(bound);
                continue;
            }
            if !bound.is_given(0) {
                continue;
            }
            if texts.is_empty() {
                let mut text = Vec::new();
                bound.write(0, &mut text);
                clean(&mut text, 0);
                return BoundChoice::Constant(text);
            }
            texts.push(bound);
            break;
        }
        match texts.is_empty() {
            true => {
                let mut text = Vec::new();
                clean(&mut text, 0);
                BoundChoice::Constant(text)
            }
            false => BoundChoice::ByRow(texts),
        }
    }
}

impl BoundChoice<'_> {
    /// Appends the text of a row; `clean` is shown where it begins.
    #[inline]
    pub fn write(&mut self, row: usize, out: &mut Vec<u8>, clean: impl Fn(&mut Vec<u8>, usize)) {
        match self {
            Self::Constant(text) => out.extend_from_slice(text),
            Self::ByRow(texts) => {
                let start = out.len();
                if let Some(text) = texts.iter_mut().find(|text| text.is_given(row)) {
                    text.write(row, out);
                }
                clean(out, start);
            }
        }
    }
}
