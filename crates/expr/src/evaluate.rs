//! An expression's value for one row.
//!
//! The way of everything that [`crate::filter`] has no shorter way for. `&&` and `||` absorb an error of one side where
//! the other side decides, as CEL has it, and so do `exists` and `all`. What a node does beyond a few lines is kept out of
//! [`evaluate`] itself, whose stack frame every level of nesting pays for.

use std::ops::Range;

use crate::columns::Columns;
use crate::fault::{Fault, What};
use crate::functions::{Bound, Macro};
use crate::node::{Arithmetic, Node, Op};
use crate::number::Num;
use crate::types::Type;
use crate::value::{Val, is_in, map_of, whole};

/// The variables of the macros around, the innermost first.
pub(crate) struct Scope<'s, 'a> {
    value: Val<'a>,
    outer: Option<&'s Scope<'s, 'a>>,
}

type Locals<'s, 'a> = Option<&'s Scope<'s, 'a>>;

/// The value of `node` for `row`.
pub(crate) fn evaluate<'a>(
    node: &'a Node,
    columns: &'a Columns<'_>,
    row: usize,
    locals: Locals<'_, 'a>,
) -> Result<Val<'a>, Fault> {
    let value = |node: &'a Node| evaluate(node, columns, row, locals);
    let holds = |node: &'a Node| truth(&value(node)?, node);
    let both = |pair: &'a [Node; 2]| Ok((value(&pair[0])?, value(&pair[1])?));
    let outcome = match &node.op {
        Op::Const(value) => return Ok(value.borrowed()),
        Op::Field(field) => return Ok(columns.column(*field).value(row).into()),
        Op::Local(distance) => return Ok(local(locals, *distance)),
        Op::Not(operand) => return Ok(Val::Bool(!holds(operand)?)),
        Op::And(operands) => return until(false, operands.iter().map(holds)),
        Op::Or(operands) => return until(true, operands.iter().map(holds)),
        Op::Conditional(parts) => return value(&parts[if holds(&parts[0])? { 1 } else { 2 }]),
        Op::List(items) => {
            return Ok(Val::list(
                items.iter().map(value).collect::<Result<_, _>>()?,
            ));
        }
        Op::Now => return Ok(Val::Time(columns.received())),
        Op::Negate(operand) => negate(&value(operand)?),
        Op::Test(operand, test) => test.holds(&value(operand)?).map(Val::Bool),
        Op::Compare(comparison, pair) => {
            let (a, b) = both(pair)?;
            comparison.holds(&a, &b).map(Val::Bool)
        }
        Op::Arithmetic(operator, pair) => {
            let (a, b) = both(pair)?;
            calculate(*operator, &a, &b)
        }
        Op::In(pair) => {
            let (item, container) = both(pair)?;
            is_in(&item, &container).map(Val::Bool)
        }
        Op::Index(pair) => {
            let (of, index) = both(pair)?;
            of.get(&index)
        }
        Op::Map(entries) => {
            let entry = |(key, item): &'a (Node, Node)| Ok((value(key)?, value(item)?));
            map_of(
                &entries
                    .iter()
                    .map(entry)
                    .collect::<Result<Vec<_>, Fault>>()?,
            )
        }
        Op::Coalesce(operands) => return first_of(operands, value),
        Op::Try(operands) => return first_that_works(operands, value),
        Op::Call(function, args) => return call(function, node, args, value),
        Op::Macro(kind, pair) => {
            let [list, body] = &**pair;
            let scope = |value, outer| Scope { value, outer };
            let in_scope = |item| evaluate(body, columns, row, Some(&scope(item, locals)));
            match items(&value(list)?) {
                Ok(items) => return over_items(*kind, items, body, in_scope),
                Err(what) => Err(what),
            }
        }
    };
    outcome.map_err(|what| Fault::new(what, &node.at))
}

/// The first value that is there, else the last one.
#[inline(never)]
fn first_of<'a>(
    operands: &'a [Node],
    value: impl Fn(&'a Node) -> Result<Val<'a>, Fault>,
) -> Result<Val<'a>, Fault> {
    let mut last = Val::Absent;
    for operand in operands {
        last = value(operand)?;
        if !last.is_nothing() {
            break;
        }
    }
    Ok(last)
}

/// The first value that can be computed and is there, else what the last one gives.
#[inline(never)]
fn first_that_works<'a>(
    operands: &'a [Node],
    value: impl Fn(&'a Node) -> Result<Val<'a>, Fault>,
) -> Result<Val<'a>, Fault> {
    let mut last = Ok(Val::Absent);
    for operand in operands {
        last = value(operand);
        if matches!(&last, Ok(value) if !value.is_nothing()) {
            break;
        }
    }
    last
}

/// A function of the values of its arguments.
#[inline(never)]
fn call<'a>(
    function: &'a Bound,
    node: &'a Node,
    args: &'a [Node],
    value: impl Fn(&'a Node) -> Result<Val<'a>, Fault>,
) -> Result<Val<'a>, Fault> {
    with_values(args, value, |values| {
        let found = function.value(values);
        found.map_err(|what| Fault::new(what, &node.at))
    })
}

/// Runs `with` on the values of the arguments, which take no memory of their own as long as they are few.
#[inline(always)]
fn with_values<'a, T>(
    args: &'a [Node],
    value: impl Fn(&'a Node) -> Result<Val<'a>, Fault>,
    with: impl FnOnce(&[Val<'a>]) -> Result<T, Fault>,
) -> Result<T, Fault> {
    match args {
        [] => with(&[]),
        [a] => with(&[value(a)?]),
        [a, b] => with(&[value(a)?, value(b)?]),
        [a, b, c] => with(&[value(a)?, value(b)?, value(c)?]),
        args => with(&args.iter().map(value).collect::<Result<Vec<_>, _>>()?),
    }
}

/// Appends the text that a call gives for `row`; gives the value instead where it is no text. A call that fails may have appended a
/// part.
pub(crate) fn write_call<'a>(
    (function, node, args): (&'a Bound, &'a Node, &'a [Node]),
    columns: &'a Columns<'_>,
    row: usize,
    out: &mut Vec<u8>,
) -> Result<Option<Val<'a>>, Fault> {
    let value = |node: &'a Node| evaluate(node, columns, row, None);
    with_values(args, value, |values| {
        let written = function.write(values, out);
        written.map_err(|what| Fault::new(what, &node.at))
    })
}

/// The text of `row` that a function could not read, which stands at `at`; nothing where it cannot be told.
pub(crate) fn unreadable(
    node: &Node,
    at: &Range<usize>,
    columns: &Columns<'_>,
    row: usize,
) -> Option<String> {
    let args = match &node.op {
        Op::Call(_, args) if node.at == *at => args,
        op => {
            let mut operands = op.operands().into_iter();
            return operands.find_map(|operand| unreadable(operand, at, columns, row));
        }
    };
    // Of several texts any may be the one.
    let varying = args.iter().filter(|arg| !matches!(arg.op, Op::Const(_)));
    let mut texts = varying.filter_map(|arg| match evaluate(arg, columns, row, None) {
        Ok(Val::Text(text)) => Some(String::from_utf8_lossy(&text).into_owned()),
        _ => None,
    });
    texts.next().filter(|_| texts.next().is_none())
}

/// A macro: `run` gives what its body makes of an item.
#[inline(never)]
fn over_items<'a>(
    kind: Macro,
    items: Vec<Val<'a>>,
    body: &Node,
    run: impl Fn(Val<'a>) -> Result<Val<'a>, Fault>,
) -> Result<Val<'a>, Fault> {
    let holds = |item: Val<'a>| truth(&run(item)?, body);
    match kind {
        Macro::Exists => until(true, items.into_iter().map(holds)),
        Macro::All => until(false, items.into_iter().map(holds)),
        Macro::ExistsOne => {
            let mut count = 0;
            for item in items {
                count += usize::from(holds(item)?);
            }
            Ok(Val::Bool(count == 1))
        }
        Macro::Map => Ok(Val::list(
            items.into_iter().map(run).collect::<Result<_, _>>()?,
        )),
        Macro::Filter => {
            let mut kept = Vec::new();
            for item in items {
                if holds(item.clone())? {
                    kept.push(item);
                }
            }
            Ok(Val::list(kept))
        }
    }
}

fn local<'a>(mut locals: Locals<'_, 'a>, distance: usize) -> Val<'a> {
    for _ in 0..distance {
        locals = locals.and_then(|scope| scope.outer);
    }
    locals.map_or(Val::Absent, |scope| scope.value.clone())
}

/// The truth of a value that stands where a truth value belongs. What is absent or null is not true.
pub(crate) fn truth(value: &Val<'_>, node: &Node) -> Result<bool, Fault> {
    match value {
        Val::Bool(value) => Ok(*value),
        Val::Absent | Val::Null => Ok(false),
        other => Err(Fault::new(
            What::Needs("true or false", other.kind()),
            &node.at,
        )),
    }
}

/// `||` (decided by true) or `&&` (decided by false): an error counts only where nothing decides.
fn until<'a>(
    deciding: bool,
    answers: impl Iterator<Item = Result<bool, Fault>>,
) -> Result<Val<'a>, Fault> {
    let mut fault = None;
    for answer in answers {
        match answer {
            Ok(answer) if answer == deciding => return Ok(Val::Bool(deciding)),
            Ok(_) => {}
            Err(new) => fault = fault.or(Some(new)),
        }
    }
    fault.map_or(Ok(Val::Bool(!deciding)), Err)
}

/// What a macro runs over: the elements of a list or the keys of a map; of nothing, nothing.
#[inline(never)]
fn items<'a>(list: &Val<'a>) -> Result<Vec<Val<'a>>, What> {
    if list.is_nothing() {
        return Ok(Vec::new());
    }
    if let Some(elements) = list.elements() {
        return Ok(elements);
    }
    let members = list
        .members()
        .ok_or(What::Needs("a list or a map", list.kind()))?;
    Ok(members.into_iter().map(|(key, _)| Val::text(key)).collect())
}

#[inline(never)]
fn negate<'a>(value: &Val<'a>) -> Result<Val<'a>, What> {
    if let Val::Duration(nanos) = value {
        return nanos.checked_neg().map(Val::Duration).ok_or(What::Overflow);
    }
    match value.number() {
        Some(Num::Int(n)) => whole(-n).ok_or(What::Overflow),
        // JSON has no infinity, which `1e400` in an event reads as.
        Some(Num::Float(n)) if n.is_finite() => Ok(Val::Float(-n)),
        Some(Num::Float(_)) => Err(What::Overflow),
        Some(Num::Big(_)) => Err(What::Overflow),
        None => Err(What::Needs("a number behind `-`", value.kind())),
    }
}

#[inline(never)]
fn calculate<'a>(operator: Arithmetic, a: &Val<'a>, b: &Val<'a>) -> Result<Val<'a>, What> {
    if let (Some(a), Some(b)) = (a.number(), b.number()) {
        return numbers(operator, a, b);
    }
    let time = |nanos: Option<i64>| nanos.map(Val::Time).ok_or(What::Overflow);
    let duration = |nanos: Option<i64>| nanos.map(Val::Duration).ok_or(What::Overflow);
    match (operator, a, b) {
        (Arithmetic::Add, Val::Text(a), Val::Text(b)) => Ok(Val::text([&a[..], &b[..]].concat())),
        (Arithmetic::Add, Val::Duration(a), Val::Duration(b)) => duration(a.checked_add(*b)),
        (Arithmetic::Sub, Val::Duration(a), Val::Duration(b)) => duration(a.checked_sub(*b)),
        (Arithmetic::Div, Val::Duration(_), Val::Duration(0)) => Err(What::DivisionByZero),
        (Arithmetic::Div, Val::Duration(a), Val::Duration(b)) => {
            Ok(Val::Float(*a as f64 / *b as f64))
        }
        (Arithmetic::Mul, Val::Duration(nanos), factor)
        | (Arithmetic::Mul, factor, Val::Duration(nanos)) => {
            scaled(operator, *nanos, factor).unwrap_or(Err(What::Operator("*", a.kind(), b.kind())))
        }
        (Arithmetic::Div, Val::Duration(nanos), divisor) => scaled(operator, *nanos, divisor)
            .unwrap_or(Err(What::Operator("/", a.kind(), b.kind()))),
        (Arithmetic::Add, Val::Time(a), Val::Duration(b))
        | (Arithmetic::Add, Val::Duration(a), Val::Time(b)) => time(a.checked_add(*b)),
        (Arithmetic::Sub, Val::Time(a), Val::Duration(b)) => time(a.checked_sub(*b)),
        (Arithmetic::Sub, Val::Time(a), Val::Time(b)) => duration(a.checked_sub(*b)),
        (Arithmetic::Add, _, _) if a.kind() == Type::List && b.kind() == Type::List => {
            let mut all = a.elements().unwrap_or_default();
            all.extend(b.elements().unwrap_or_default());
            Ok(Val::list(all))
        }
        _ => with_time_text(operator, a, b),
    }
}

/// A duration times or divided by a number; nothing where the other value is none.
fn scaled<'a>(operator: Arithmetic, nanos: i64, by: &Val<'_>) -> Option<Result<Val<'a>, What>> {
    let result = numbers(operator, Num::Int(nanos.into()), by.number()?);
    Some(result.and_then(|result| {
        match result.number() {
            Some(Num::Int(nanos)) => i64::try_from(nanos)
                .map(Val::Duration)
                .map_err(|_| What::Overflow),
            // The greatest 64-bit number as a float is one more than fits.
            Some(Num::Float(nanos)) if nanos.abs() < i64::MAX as f64 => {
                Ok(Val::Duration(nanos.round() as i64))
            }
            _ => Err(What::Overflow),
        }
    }))
}

/// Arithmetic of a time or a duration with a text that reads as a time; anything else does not work.
fn with_time_text<'a>(operator: Arithmetic, a: &Val<'a>, b: &Val<'a>) -> Result<Val<'a>, What> {
    let pair = match (a, b) {
        (Val::Text(_), Val::Time(_) | Val::Duration(_)) => {
            a.time().map(|a| (Val::Time(a), b.clone()))
        }
        (Val::Time(_) | Val::Duration(_), Val::Text(_)) => {
            b.time().map(|b| (a.clone(), Val::Time(b)))
        }
        _ => None,
    };
    match pair {
        Some((a, b)) => calculate(operator, &a, &b),
        None => Err(What::Operator(operator.symbol(), a.kind(), b.kind())),
    }
}

/// Whole numbers stay whole (division cuts towards zero, as in CEL); with a float on a side the result is one.
fn numbers<'a>(operator: Arithmetic, a: Num<'_>, b: Num<'_>) -> Result<Val<'a>, What> {
    let (a, b) = match (a, b) {
        (Num::Int(a), Num::Int(b)) => {
            let result = match operator {
                Arithmetic::Add => a.checked_add(b),
                Arithmetic::Sub => a.checked_sub(b),
                Arithmetic::Mul => a.checked_mul(b),
                _ if b == 0 => return Err(What::DivisionByZero),
                Arithmetic::Div => a.checked_div(b),
                Arithmetic::Rem => a.checked_rem(b),
            };
            return result.and_then(whole).ok_or(What::Overflow);
        }
        (Num::Float(_), _) | (_, Num::Float(_)) => (a.to_f64(), b.to_f64()),
        _ => return Err(What::Overflow),
    };
    let result = match operator {
        Arithmetic::Add => a + b,
        Arithmetic::Sub => a - b,
        Arithmetic::Mul => a * b,
        _ if b == 0.0 => return Err(What::DivisionByZero),
        Arithmetic::Div => a / b,
        Arithmetic::Rem => a % b,
    };
    // JSON has no infinity, and what is not a number would be lost on the way out.
    if result.is_finite() {
        Ok(Val::Float(result))
    } else {
        Err(What::Overflow)
    }
}
