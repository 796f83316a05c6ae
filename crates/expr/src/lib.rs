//! What is computed from events: expressions, and texts with fields in them ([`Template`]).
//!
//! # Expressions
//! They are CEL (Common Expression Language) over a batch of events.
//!
//! An expression is parsed and checked once, when the configuration is read, and then evaluated over batches: [`Expr::filter`]
//! for conditions, [`Expr::evaluate`] for values.
//!
//! # Where it differs from CEL
//! CEL expects typed data; log fields come and go and change their type from event to event. So here
//! - an absent field equals nothing and has no order: `x == "a"` and `x > 5` are false and `x != "a"` is true where `x` is
//!   absent, without an error. Where a truth value belongs, what is absent or null is false. Arithmetic with it is an error.
//! - text that reads as a number compares with numbers, and text that reads as an RFC 3339 time with timestamps. Whole
//!   numbers of any length compare exactly; anything with a fraction compares as a 64-bit float.
//! - whole numbers and floats mix in arithmetic, and values of different types are unequal, not an error.
//! - `a.b` and `a['x-y']` name a field; names may hold `@`, and CEL's reserved words are names like any other.
//! - an index beyond a list or a key that a map does not have gives an absent value, and `a ?? b` a default.
//! - the keys of a map are texts; a number or a truth value as a key stands for its text.
//! - numbers do not begin with a zero, and an order with a number in quotes is refused.
//! - bytes, messages and unsigned numbers as a type of their own do not exist.
//!
//! # Errors
//! Whatever does not depend on the event is refused by [`Expr::parse`], with its place in the text. The rest is an error of
//! one row: the row is false for a filter and has no value otherwise.
//!
//! # Map
//! | module | step |
//! | --- | --- |
//! | `lexer`, `parser` | text → tokens → syntax |
//! | `check` | syntax → nodes: names, argument counts, regexes, constants |
//! | `dashed`, `slips`, `type_check` | what parses and cannot be meant: names without backticks, notations of other tools, types that never work |
//! | `filter`, `evaluate` | nodes over sets of rows; nodes for one row |
//! | `value`, `types`, `number`, `time` | values and how they compare |
//! | `functions` | the functions and their reference, a module for each group |
//! | `template` | texts with fields and times in them |

mod check;
mod columns;
mod dashed;
mod evaluate;
mod event_times;
mod fault;
mod filter;
mod functions;
mod lexer;
mod node;
mod number;
mod parser;
mod slips;
mod template;
mod time;
mod time_letters;
mod type_check;
mod types;
mod url;
mod value;

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use batch::{Batch, Bitmap, Cell, Column, ColumnBuilder, FieldPath, FieldRead};

pub use event_times::EventTimes;
pub use functions::{
    EXAMPLE_DOCUMENT, FUNCTION_GROUPS, FunctionDoc, FunctionGroup, functions, read_network,
};
pub use template::{Absent, BoundTemplate, Template, TemplateError, zone_setting};
pub use time_letters::{FormatUse, MisusedLetter, check_time_letters};
pub use url::{UrlError, UrlParts};

use columns::Columns;
use fault::Fault;
use functions::Bound;
use node::{Node, Op};

/// A checked expression. Cheap to clone.
#[derive(Clone)]
pub struct Expr {
    inner: Arc<Inner>,
}

struct Inner {
    text: Box<str>,
    node: Node,
    /// The fields that it reads, by number.
    reads: Vec<Arc<FieldRead>>,
}

/// Why a text is not an expression.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}{}", .suggestion.as_ref().map(|right| format!("; did you mean `{right}`?")).unwrap_or_default())]
pub struct ExprError {
    /// What is wrong, without the suggestion.
    pub message: String,
    /// Which bytes of the text are wrong; empty where something is missing.
    pub at: Range<usize>,
    /// What may have been meant instead.
    pub suggestion: Option<String>,
}

impl ExprError {
    pub(crate) fn new(message: impl Into<String>, at: Range<usize>) -> Self {
        Self {
            message: message.into(),
            at,
            suggestion: None,
        }
    }

    pub(crate) fn suggest(self, right: &str) -> Self {
        Self {
            suggestion: Some(right.to_owned()),
            ..self
        }
    }

    /// The error at the setting that holds the text, pointing into it.
    pub fn in_setting(self, setting: &config::Node) -> config::ConfigError {
        let error = setting.error(self.message).pointing_at_range(self.at);
        match self.suggestion {
            Some(right) => error.suggest(right),
            None => error,
        }
    }
}

/// What [`Expr::filter`] found.
#[derive(Clone, Debug)]
pub struct Filtered {
    /// The rows for which the expression is true.
    pub holds: Bitmap,
    /// How many rows it failed for; they are not in `holds`.
    pub errors: usize,
    /// The first of these rows and what went wrong there.
    pub first_error: Option<(usize, String)>,
}

/// What [`Expr::evaluate`] found.
#[derive(Clone, Debug)]
pub struct Evaluated {
    /// The values: [`Cell::Missing`] where the result is absent, [`Cell::Keep`] for failed rows and those not asked for.
    /// A duration is text, in seconds (`1.5s`).
    pub column: Column,
    /// The rows that failed, ascending, and why.
    pub errors: Vec<(usize, Arc<str>)>,
}

impl Expr {
    /// Parses and checks an expression.
    ///
    /// # Errors
    /// Broken syntax, unknown functions, wrong argument counts, broken regexes, nesting beyond 50 levels, and constant
    /// parts that fail, such as `1 / 0` or `duration("soon")`.
    pub fn parse(text: &str) -> Result<Self, ExprError> {
        Self::checked(text, &parser::parse(text)?)
    }

    fn checked(text: &str, ast: &parser::Ast) -> Result<Self, ExprError> {
        let (node, fields) = check::check(text, ast)?;
        let read = |field: check::Field| {
            let read = FieldRead::lazily(field.path).may_be_absent(field.may_be_absent);
            Arc::new(read)
        };
        Ok(Self {
            inner: Arc::new(Inner {
                text: text.into(),
                node,
                reads: fields.into_iter().map(read).collect(),
            }),
        })
    }

    /// Parses and checks a condition: an expression that may be true.
    ///
    /// # Errors
    /// As for [`Expr::parse`], and where the expression can never be a truth value, such as a text in quotes, or has a part that is
    /// the same for every event, `"response" == 404`; `true` and `false` may stand.
    pub fn parse_condition(text: &str) -> Result<Self, ExprError> {
        let ast = parser::parse(text)?;
        let condition = Self::checked(text, &ast)?;
        let message = match &condition.inner.node.op {
            Op::Const(value::Val::Text(_)) => {
                "this is a text, which is never true; write the expression without quotes around it"
            }
            op if op.is_never_true() => "this is never true or false, so it is no condition",
            _ => {
                slips::refuse_constant(text, &ast)?;
                return Ok(condition);
            }
        };
        Err(ExprError::new(message, 0..text.len()))
    }

    /// The text it was parsed from.
    pub fn text(&self) -> &str {
        &self.inner.text
    }

    /// The fields it reads, in the order of their first mention.
    pub fn fields(&self) -> impl ExactSizeIterator<Item = &FieldPath> {
        self.inner.reads.iter().map(|read| read.path())
    }

    /// The same fields, with whether any event had them so far.
    pub fn reads(&self) -> &[Arc<FieldRead>] {
        &self.inner.reads
    }

    /// The rows of `rows` for which the expression is true. A row that fails is not among them; nor is one for which the
    /// value is absent or null. Any other value than a truth value is an error.
    pub fn filter(&self, batch: &Batch, rows: &Bitmap) -> Filtered {
        let columns = Columns::new(batch, &self.inner.reads);
        let answer = filter::filter(&self.inner.node, &columns, rows);
        let first = answer.faults.iter().min_by_key(|(row, _)| *row);
        let first_error = first.map(|(row, fault)| (*row, self.sentence(*fault, &columns, *row)));
        Filtered {
            holds: answer.holds,
            errors: answer.faults.len(),
            first_error,
        }
    }

    /// The expression's value for every row of `rows`.
    pub fn evaluate(&self, batch: &Batch, rows: &Bitmap) -> Evaluated {
        let columns = Columns::new(batch, &self.inner.reads);
        match &self.inner.node.op {
            Op::Field(field) => copied(columns.column(*field), rows),
            Op::Const(value) => constant(value, rows),
            Op::Call(function, args) if function.writes() => {
                self.write_rows((function, &self.inner.node, args), &columns, rows)
            }
            _ => self.evaluate_rows(&columns, rows),
        }
    }

    /// A function that gives text, which goes straight into the column.
    fn write_rows(
        &self,
        call: (&Bound, &Node, &[Node]),
        columns: &Columns<'_>,
        rows: &Bitmap,
    ) -> Evaluated {
        let mut builder = ColumnBuilder::new(rows.len());
        let mut errors = Errors::new(self);
        for row in rows.iter() {
            let mut outcome = Ok(None);
            let span = builder.append(|out| {
                let start = out.len();
                outcome = evaluate::write_call(call, columns, row, out);
                if !matches!(outcome, Ok(None)) {
                    out.truncate(start);
                }
            });
            match outcome {
                Ok(None) => builder.set(row, Cell::Text(span)),
                Ok(Some(value)) => value.with_value(|value| builder.set_value(row, value)),
                Err(fault) => errors.push(row, fault, columns),
            }
        }
        Evaluated {
            column: builder.finish(),
            errors: errors.rows,
        }
    }

    fn evaluate_rows(&self, columns: &Columns<'_>, rows: &Bitmap) -> Evaluated {
        let mut builder = ColumnBuilder::new(rows.len());
        let mut errors = Errors::new(self);
        for row in rows.iter() {
            match evaluate::evaluate(&self.inner.node, columns, row, None) {
                Ok(value) => value.with_value(|value| builder.set_value(row, value)),
                Err(fault) => errors.push(row, fault, columns),
            }
        }
        Evaluated {
            column: builder.finish(),
            errors: errors.rows,
        }
    }

    fn sentence(&self, fault: Fault, columns: &Columns<'_>, row: usize) -> String {
        let value = match fault.shows_value() {
            true => evaluate::unreadable(&self.inner.node, &fault.at(), columns, row),
            false => None,
        };
        fault
            .in_text(&self.inner.text, value.as_deref())
            .to_string()
    }
}

/// The rows that failed. Rows that failed in the same way share a sentence, unless it shows the value.
struct Errors<'e> {
    expr: &'e Expr,
    rows: Vec<(usize, Arc<str>)>,
    sentences: HashMap<Fault, Arc<str>>,
}

impl<'e> Errors<'e> {
    fn new(expr: &'e Expr) -> Self {
        Self {
            expr,
            rows: Vec::new(),
            sentences: HashMap::new(),
        }
    }

    fn push(&mut self, row: usize, fault: Fault, columns: &Columns<'_>) {
        let sentence = || self.expr.sentence(fault, columns, row).into();
        let sentence = match fault.shows_value() {
            true => sentence(),
            false => self.sentences.entry(fault).or_insert_with(sentence).clone(),
        };
        self.rows.push((row, sentence));
    }
}

/// A field's values as they are: cells point into the buffers that hold them already.
fn copied(column: &Column, rows: &Bitmap) -> Evaluated {
    let mut builder = ColumnBuilder::over(rows.len(), column.buffers().clone());
    for row in rows.iter() {
        let cell = column.cell(row);
        builder.set(
            row,
            if cell.is_absent() {
                Cell::Missing
            } else {
                cell
            },
        );
    }
    Evaluated {
        column: builder.finish(),
        errors: Vec::new(),
    }
}

/// The same value in all rows, written once.
fn constant(value: &value::Val<'_>, rows: &Bitmap) -> Evaluated {
    let mut builder = ColumnBuilder::new(rows.len());
    let mut all = rows.iter();
    if let Some(first) = all.next() {
        value.with_value(|value| builder.set_value(first, value));
        let cell = builder.cell(first);
        all.for_each(|row| builder.set(row, cell));
    }
    Evaluated {
        column: builder.finish(),
        errors: Vec::new(),
    }
}

impl fmt::Debug for Expr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Expr").field(&self.inner.text).finish()
    }
}

impl fmt::Display for Expr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.inner.text)
    }
}
