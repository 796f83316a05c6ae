//! Names with a dash or a slash in them that were written without backticks: `user-agent` is `user` minus `agent`, and
//! `app.kubernetes.io/name` a division.
//!
//! A subtraction is never refused for its looks alone: `total-used` is one. It is refused where no number can come of it, because it is
//! compared with a text, or because a question about a text stands on its right.

use crate::ExprError;
use crate::node::{Node, Op};
use crate::parser::{Ast, Syntax};
use crate::value::Val;

/// The field that this reads like, `` http.`user-agent` `` for `http.user-agent`; none where it is no such subtraction.
pub(crate) fn dashed_name(ast: &Ast) -> Option<String> {
    if !matches!(ast.syntax, Syntax::Binary("-" | "/", ..)) {
        return None;
    }
    let keys = keys(ast)?;
    let quoted = |key: &String| match key.contains(['-', '/']) {
        true => format!("`{key}`"),
        false => key.clone(),
    };
    Some(keys.iter().map(quoted).collect::<Vec<_>>().join("."))
}

/// The keys of a field whose name may have dashes. Blanks around an operator make it one that was meant.
fn keys(ast: &Ast) -> Option<Vec<String>> {
    match &ast.syntax {
        Syntax::Name(name) => Some(vec![name.to_string()]),
        Syntax::Select(of, key) => {
            let mut all = keys(of)?;
            all.push(key.to_string());
            Some(all)
        }
        Syntax::Binary(operator @ ("-" | "/"), a, b) if a.at.end + 1 == b.at.start => {
            let b = match &b.syntax {
                // `user-agent.contains("x")` takes the function of `agent`.
                Syntax::Call { receiver, .. } => receiver.as_deref()?,
                _ => b,
            };
            let (mut all, rest) = (keys(a)?, keys(b)?);
            let (first, rest) = rest.split_first()?;
            let last = all.last_mut()?;
            *last = format!("{last}{operator}{first}");
            all.extend_from_slice(rest);
            Some(all)
        }
        _ => None,
    }
}

/// Refuses the comparison of such a subtraction with a text, of which nothing can come.
pub(crate) fn refuse_compared(a: &Ast, b: &Ast) -> Result<(), ExprError> {
    for (name, other) in [(a, b), (b, a)] {
        if let (Some(right), true) = (dashed_name(name), is_text(other)) {
            return Err(refused(name, &right, "which is never equal to a text"));
        }
    }
    Ok(())
}

/// Refuses a subtraction or division of what is true or false.
pub(crate) fn refuse_subtracted(ast: &Ast, b: &Node) -> Result<(), ExprError> {
    let is_bool = matches!(
        b.op,
        Op::Test(..) | Op::Not(_) | Op::And(_) | Op::Or(_) | Op::Compare(..) | Op::In(_)
    );
    match dashed_name(ast).filter(|_| is_bool) {
        Some(right) => Err(refused(
            ast,
            &right,
            "and true or false cannot be calculated with",
        )),
        None => Ok(()),
    }
}

fn refused(ast: &Ast, right: &str, why: &str) -> ExprError {
    let (what, sign) = words(ast);
    let message =
        format!("this is a {what}, {why}; a name with a {sign} in it stands in backticks: {right}");
    ExprError::new(message, ast.at.clone())
}

/// What the outermost operator does, and what it is called in a name.
pub(crate) fn words(ast: &Ast) -> (&'static str, &'static str) {
    match ast.syntax {
        Syntax::Binary("/", ..) => ("division", "slash"),
        _ => ("subtraction", "dash"),
    }
}

fn is_text(ast: &Ast) -> bool {
    match &ast.syntax {
        // One that reads as a number or a time may be what comes out.
        Syntax::Literal(text @ Val::Text(_)) => {
            text.number_or_text().is_none() && text.time().is_none()
        }
        Syntax::List(items) => !items.is_empty() && items.iter().all(is_text),
        _ => false,
    }
}
