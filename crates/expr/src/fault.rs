//! Why an expression has no value for a row.
//!
//! A fault is a few words without text of its own, so that a batch in which every row fails costs no allocation a row;
//! it becomes a sentence when somebody wants to read it.

use std::fmt;
use std::ops::Range;

use crate::types::Type;

/// What went wrong, without saying where.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub(crate) enum What {
    #[error("cannot order {0} and {1}")]
    Unordered(Type, Type),
    #[error("`{0}` does not work on {1} and {2}{hint}", hint = hint(.1, .2))]
    Operator(&'static str, Type, Type),
    #[error("needs {0}, got {1}")]
    Needs(&'static str, Type),
    #[error("the value does not read as {0}")]
    Unreadable(&'static str),
    #[error("division by zero")]
    DivisionByZero,
    #[error("the result does not fit into 64 bits")]
    Overflow,
    #[error("{0}")]
    Other(&'static str),
}

/// Says how text becomes a number where that may have been meant.
fn hint(a: &Type, b: &Type) -> &'static str {
    match (a, b) {
        (Type::Text, Type::Text) => "; int(…) or double(…) makes a number of a text",
        (Type::Text, other) | (other, Type::Text) if other.is_number() => {
            "; int(…) or double(…) makes a number of a text, string(…) a text of a number"
        }
        _ => "",
    }
}

/// What went wrong in which part of the expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Fault {
    what: What,
    start: u32,
    end: u32,
}

impl Fault {
    pub fn new(what: What, at: &Range<usize>) -> Self {
        Self {
            what,
            start: at.start as u32,
            end: at.end as u32,
        }
    }

    /// The sentence; `source` is the expression's text, and `value` what could not be read.
    pub fn in_text<'s>(self, source: &'s str, value: Option<&'s str>) -> impl fmt::Display + 's {
        let part = source
            .get(self.start as usize..self.end as usize)
            .unwrap_or(source);
        fmt::from_fn(move |f| {
            match part.char_indices().nth(PART_MAX) {
                None => write!(f, "`{part}`")?,
                Some((end, _)) => write!(f, "`{}…`", &part[..end])?,
            }
            match (self.what, value) {
                (What::Unreadable(wanted), Some(value)) => {
                    let shown: String = value.chars().take(VALUE_MAX).collect();
                    let more = if shown.len() < value.len() { "…" } else { "" };
                    return write!(f, ": {shown:?}{more} does not read as {wanted}");
                }
                _ => write!(f, ": {}", self.what)?,
            }
            match (self.what, dashed_name(part)) {
                (What::Operator(sign @ ("-" | "/"), a, b), Some(name))
                    if a == Type::Absent || b == Type::Absent =>
                {
                    let sign = if sign == "-" { "dash" } else { "slash" };
                    write!(
                        f,
                        "; a name with a {sign} in it stands in backticks: {name}"
                    )
                }
                (What::Operator(_, a, b), _)
                    if [a, b]
                        .iter()
                        .any(|kind| matches!(kind, Type::Absent | Type::Null)) =>
                {
                    write!(f, "; `field ?? value` gives a default")
                }
                _ => Ok(()),
            }
        })
    }

    /// Whether the sentence shows a value of the row.
    pub fn shows_value(self) -> bool {
        matches!(self.what, What::Unreadable(_))
    }

    /// What went wrong.
    pub fn what(self) -> What {
        self.what
    }

    /// Bytes of the expression's text.
    pub fn at(self) -> Range<usize> {
        self.start as usize..self.end as usize
    }
}

/// What looks like the name of one field but is a subtraction or a division, `http.user-agent`, with backticks around the part with
/// the dash or slash.
fn dashed_name(part: &str) -> Option<String> {
    let is_name = |c: char| c.is_alphanumeric() || matches!(c, '_' | '@' | '.' | '-' | '/');
    if !part.contains(['-', '/']) || !part.chars().all(is_name) {
        return None;
    }
    let quoted = |key: &str| match key.contains(['-', '/']) {
        true => format!("`{key}`"),
        false => key.to_owned(),
    };
    Some(part.split('.').map(quoted).collect::<Vec<_>>().join("."))
}

/// How many characters of a value are shown.
const VALUE_MAX: usize = 60;

/// How many characters of the faulty part are shown.
const PART_MAX: usize = 80;
