//! Which rows an expression is true for: column by column, with sets of rows between the steps.
//!
//! `&&` and `||` give each operand only the rows that are still open, so that a cheap first condition spares the others.
//! A test of a field runs over the column's cells; whatever has no shorter way is evaluated row by row.

use std::borrow::Cow;

use batch::{Bitmap, Cell, Column};

use crate::columns::Columns;
use crate::evaluate::{evaluate, truth, write_call};
use crate::fault::Fault;
use crate::functions::Bound;
use crate::node::{Node, Op, Test};
use crate::number;
use crate::value::{Comparison, Val};

/// Every row that was asked about is in `holds`, in `faults`, or false.
pub(crate) struct Answer {
    pub holds: Bitmap,
    pub faults: Vec<(usize, Fault)>,
}

impl Answer {
    /// The same answer for all rows.
    fn all(rows: &Bitmap, answer: Result<bool, Fault>) -> Self {
        let none = || Bitmap::none(rows.len());
        match answer {
            Ok(true) => Self {
                holds: rows.clone(),
                faults: Vec::new(),
            },
            Ok(false) => Self {
                holds: none(),
                faults: Vec::new(),
            },
            Err(fault) => Self {
                holds: none(),
                faults: rows.iter().map(|row| (row, fault)).collect(),
            },
        }
    }

    /// An answer for each row.
    #[inline(always)]
    fn each(rows: &Bitmap, mut answer: impl FnMut(usize) -> Result<bool, Fault>) -> Self {
        let mut holds = Bitmap::none(rows.len());
        let mut faults = Vec::new();
        for row in rows.iter() {
            match answer(row) {
                Ok(true) => holds.insert(row),
                Ok(false) => {}
                Err(fault) => faults.push((row, fault)),
            }
        }
        Self { holds, faults }
    }

    /// The rows of `asked` for which the answer was false.
    fn is_false(&self, asked: &Bitmap) -> Bitmap {
        let mut rows = asked.clone();
        rows.and_not(&self.holds);
        for (row, _) in &self.faults {
            rows.remove(*row);
        }
        rows
    }
}

/// The rows of `rows` for which `node` is true.
pub(crate) fn filter(node: &Node, columns: &Columns<'_>, rows: &Bitmap) -> Answer {
    match &node.op {
        Op::Const(value) => Answer::all(rows, truth(value, node)),
        Op::Not(operand) => {
            let answer = filter(operand, columns, rows);
            Answer {
                holds: answer.is_false(rows),
                faults: answer.faults,
            }
        }
        Op::And(operands) => chain(operands, false, columns, rows),
        Op::Or(operands) => chain(operands, true, columns, rows),
        Op::Test(operand, test) => match operand.op {
            Op::Field(field) if !rows.is_empty() => {
                test_column(test, columns.column(field), rows, node)
            }
            Op::Call(ref function, ref args) if function.writes() => {
                test_written(test, (function, operand, args), columns, rows, node)
            }
            _ => row_by_row(node, columns, rows),
        },
        _ => row_by_row(node, columns, rows),
    }
}

fn row_by_row(node: &Node, columns: &Columns<'_>, rows: &Bitmap) -> Answer {
    Answer::each(rows, |row| {
        truth(&evaluate(node, columns, row, None)?, node)
    })
}

/// `||` (decided by true) and `&&` (decided by false). Rows with an error stay open: a later operand may decide them.
fn chain(operands: &[Node], deciding: bool, columns: &Columns<'_>, rows: &Bitmap) -> Answer {
    let mut open = rows.clone();
    let mut decided = Bitmap::none(rows.len());
    let mut faults: Vec<(usize, Fault)> = Vec::new();
    for operand in operands {
        let mut asked = open.clone();
        for (row, _) in &faults {
            asked.insert(*row);
        }
        if asked.is_empty() {
            break;
        }
        let answer = filter(operand, columns, &asked);
        let new = if deciding {
            answer.holds
        } else {
            answer.is_false(&asked)
        };
        faults.retain(|(row, _)| !new.contains(*row));
        for (row, fault) in answer.faults {
            if open.contains(row) {
                open.remove(row);
                faults.push((row, fault));
            }
        }
        open.and_not(&new);
        decided.or(&new);
    }
    Answer {
        holds: if deciding { decided } else { open },
        faults,
    }
}

/// A test of the texts that a function writes, all into the same buffer.
fn test_written(
    test: &Test,
    call: (&Bound, &Node, &[Node]),
    columns: &Columns<'_>,
    rows: &Bitmap,
    node: &Node,
) -> Answer {
    let mut text = Vec::new();
    Answer::each(rows, |row| {
        text.clear();
        let answer = match write_call(call, columns, row, &mut text)? {
            None => test.holds(&Val::Text(Cow::Borrowed(&text))),
            Some(value) => test.holds(&value),
        };
        answer.map_err(|what| Fault::new(what, &node.at))
    })
}

/// A test over a column. Each kind has its own loop, in which a cell of the usual type is answered on the spot.
fn test_column(test: &Test, column: &Column, rows: &Bitmap, node: &Node) -> Answer {
    let slow = |cell: Cell| {
        let value = Val::from(column.value_of(cell));
        test.holds(&value)
            .map_err(|what| Fault::new(what, &node.at))
    };
    if let Some(cell) = column.as_constant() {
        return Answer::all(rows, slow(cell));
    }
    match test {
        Test::Present => Answer::each(rows, |row| Ok(!column.cell(row).is_absent())),
        Test::Compare(Comparison::Eq, Val::Text(literal)) => texts(column, rows, slow, |text| {
            text.len() == literal.len() && *text == **literal
        }),
        Test::Compare(Comparison::Ne, Val::Text(literal)) => texts(column, rows, slow, |text| {
            text.len() != literal.len() || *text != **literal
        }),
        Test::Compare(comparison, Val::Int(literal)) => {
            numbers(column, rows, slow, *comparison, *literal)
        }
        Test::Compare(..) => Answer::each(rows, |row| slow(column.cell(row))),
        Test::OneOf(literals) => texts(column, rows, slow, |text| literals.have_text(text)),
        Test::Matches(regex) => texts(column, rows, slow, |text| regex.is_match(text)),
        Test::Contains(finder) => texts(column, rows, slow, |text| finder.find(text).is_some()),
        Test::Ask(question, part) => texts(column, rows, slow, |text| question.answer(text, part)),
    }
}

/// A question that texts answer quickly.
#[inline(always)]
fn texts(
    column: &Column,
    rows: &Bitmap,
    slow: impl Fn(Cell) -> Result<bool, Fault>,
    answer: impl Fn(&[u8]) -> bool,
) -> Answer {
    Answer::each(rows, |row| match column.cell(row) {
        Cell::Text(span) => Ok(answer(column.bytes(span))),
        cell => slow(cell),
    })
}

/// A comparison with a whole number, which short digits in a text or a document answer quickly.
fn numbers(
    column: &Column,
    rows: &Bitmap,
    slow: impl Fn(Cell) -> Result<bool, Fault>,
    comparison: Comparison,
    literal: i64,
) -> Answer {
    Answer::each(rows, |row| match column.cell(row) {
        Cell::Int(n) => Ok(comparison.accepts(n.cmp(&literal))),
        cell @ (Cell::Number(span) | Cell::Text(span)) => {
            match number::read_short(column.bytes(span)) {
                Some(n) => Ok(comparison.accepts(n.cmp(&literal))),
                None => slow(cell),
            }
        }
        cell => slow(cell),
    })
}
