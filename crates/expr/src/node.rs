//! A checked expression: what the evaluator walks.

use std::ops::Range;

use regex::bytes::Regex;

use crate::fault::What;
use crate::functions::{Bound, Macro, Question};
use crate::value::{Comparison, Val, equals};

/// A part of a checked expression and where it stands in the text.
#[derive(Debug)]
pub(crate) struct Node {
    pub op: Op,
    pub at: Range<usize>,
}

/// What a node does.
#[derive(Debug)]
pub(crate) enum Op {
    Const(Val<'static>),
    /// A field, by its number in the expression's list.
    Field(usize),
    /// A macro's variable, counted from the innermost.
    Local(usize),
    Not(Box<Node>),
    Negate(Box<Node>),
    And(Vec<Node>),
    Or(Vec<Node>),
    Compare(Comparison, Box<[Node; 2]>),
    Arithmetic(Arithmetic, Box<[Node; 2]>),
    In(Box<[Node; 2]>),
    /// A question about one value with everything else known beforehand.
    Test(Box<Node>, Box<Test>),
    Conditional(Box<[Node; 3]>),
    List(Vec<Node>),
    Map(Vec<(Node, Node)>),
    Index(Box<[Node; 2]>),
    Now,
    Call(Box<Bound>, Vec<Node>),
    /// The first that is neither absent nor null.
    Coalesce(Vec<Node>),
    /// The first that can be computed and is neither absent nor null.
    Try(Vec<Node>),
    /// The list, and what is evaluated for each element.
    Macro(Macro, Box<[Node; 2]>),
}

impl Op {
    /// The parts that it is made of.
    pub fn operands(&self) -> Vec<&Node> {
        match self {
            Self::Const(_) | Self::Field(_) | Self::Local(_) | Self::Now => Vec::new(),
            Self::Not(operand) | Self::Negate(operand) | Self::Test(operand, _) => vec![operand],
            Self::And(operands)
            | Self::Or(operands)
            | Self::List(operands)
            | Self::Coalesce(operands)
            | Self::Try(operands)
            | Self::Call(_, operands) => operands.iter().collect(),
            Self::Compare(_, pair)
            | Self::Arithmetic(_, pair)
            | Self::In(pair)
            | Self::Index(pair)
            | Self::Macro(_, pair) => pair.iter().collect(),
            Self::Conditional(parts) => parts.iter().collect(),
            Self::Map(entries) => entries
                .iter()
                .flat_map(|(key, value)| [key, value])
                .collect(),
        }
    }

    /// Whether the value is neither true nor false, whatever the event has.
    pub fn is_never_true(&self) -> bool {
        match self {
            Self::Const(value) => !matches!(value, Val::Bool(_)),
            Self::Arithmetic(..) | Self::Negate(_) | Self::List(_) | Self::Map(_) | Self::Now => {
                true
            }
            Self::Macro(kind, _) => matches!(kind, Macro::Map | Macro::Filter),
            Self::Call(function, _) => !function.may_be_true(),
            _ => false,
        }
    }
}

/// An arithmetic operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arithmetic {
    Add,
    Sub,
    Mul,
    Div,
    Rem,
}

impl Arithmetic {
    pub fn symbol(self) -> &'static str {
        match self {
            Self::Add => "+",
            Self::Sub => "-",
            Self::Mul => "*",
            Self::Div => "/",
            Self::Rem => "%",
        }
    }
}

/// A question about one value.
#[derive(Debug)]
pub(crate) enum Test {
    Present,
    Compare(Comparison, Val<'static>),
    OneOf(Literals),
    Matches(Regex),
    Contains(Box<memchr::memmem::Finder<'static>>),
    /// Any other question about texts.
    Ask(Question, Box<[u8]>),
}

impl Test {
    /// The answer for a value.
    #[inline]
    pub fn holds(&self, value: &Val<'_>) -> Result<bool, What> {
        match self {
            Self::Present => Ok(!matches!(value, Val::Absent)),
            Self::Compare(comparison, literal) => comparison.holds(value, literal),
            Self::OneOf(literals) => Ok(literals.have(value)),
            Self::Matches(regex) => of_text(value, |text| regex.is_match(text)),
            Self::Contains(finder) => of_text(value, |text| finder.find(text).is_some()),
            Self::Ask(question, part) => of_text(value, |text| question.answer(text, part)),
        }
    }
}

/// A question that only a text can answer; of nothing at all it is not true.
#[inline]
fn of_text(value: &Val<'_>, answer: impl FnOnce(&[u8]) -> bool) -> Result<bool, What> {
    match value {
        Val::Text(text) => Ok(answer(text)),
        Val::Absent | Val::Null => Ok(false),
        other => Err(What::Needs("a text", other.kind())),
    }
}

/// The literals behind an `in`.
#[derive(Debug)]
pub(crate) struct Literals {
    /// Sorted by length, then by bytes: most texts are told apart by a length.
    texts: Vec<Box<[u8]>>,
    others: Vec<Val<'static>>,
}

impl Literals {
    pub fn new(literals: &[Val<'static>]) -> Self {
        let mut sorted = Self {
            texts: Vec::new(),
            others: Vec::new(),
        };
        for literal in literals {
            match literal {
                Val::Text(text) => sorted.texts.push(text.to_vec().into()),
                other => sorted.others.push(other.clone()),
            }
        }
        sorted.texts.sort_by(|a, b| by_length(a, b));
        sorted.texts.dedup();
        sorted
    }

    /// Whether the value equals one of the literals.
    #[inline]
    pub fn have(&self, value: &Val<'_>) -> bool {
        match value {
            Val::Text(text) => self.have_text(text),
            Val::Absent => false,
            _ => {
                let is_text = |text: &[u8]| equals(value, &Val::Text(text.into()));
                self.others.iter().any(|other| equals(value, other))
                    || self.texts.iter().any(|text| is_text(text))
            }
        }
    }

    /// Whether the text equals one of the literals.
    #[inline]
    pub fn have_text(&self, text: &[u8]) -> bool {
        let found = if self.texts.len() <= SCANNED_MAX {
            let same = |known: &[u8]| known.len() == text.len() && known == text;
            self.texts.iter().any(|known| same(known))
        } else {
            self.texts
                .binary_search_by(|known| by_length(known, text))
                .is_ok()
        };
        found
            || self
                .others
                .iter()
                .any(|other| equals(&Val::Text(text.into()), other))
    }
}

/// Up to so many texts are compared one after the other, which mostly means their lengths.
const SCANNED_MAX: usize = 12;

#[inline]
fn by_length(a: &[u8], b: &[u8]) -> std::cmp::Ordering {
    a.len().cmp(&b.len()).then_with(|| a.cmp(b))
}
