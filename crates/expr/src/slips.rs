//! What parses and cannot be meant, by its looks alone: notations of other tools, and conditions that read no field.
//!
//! Only what is written down is looked at. A text or list that is put together, `"a" + "|b"`, is taken as it is.

use batch::FieldPath;

use crate::ExprError;
use crate::functions;
use crate::number::Num;
use crate::parser::{Ast, Syntax};
use crate::value::Val;

fn text_of(ast: &Ast) -> Option<&str> {
    match &ast.syntax {
        Syntax::Literal(Val::Text(text)) => std::str::from_utf8(text).ok(),
        _ => None,
    }
}

fn is_path(ast: &Ast) -> bool {
    match &ast.syntax {
        Syntax::Name(_) => true,
        Syntax::Select(of, _) => is_path(of),
        _ => false,
    }
}

fn is_scalar(ast: &Ast) -> bool {
    matches!(&ast.syntax, Syntax::Literal(value) if !value.is_nothing())
}

/// Refuses `%{name}`, which stands for a field in texts outside of expressions.
pub(crate) fn refuse_reference(ast: &Ast) -> Result<(), ExprError> {
    let Some(text) = text_of(ast) else {
        return Ok(());
    };
    let name = text
        .split_once("%{")
        .and_then(|(_, rest)| rest.split_once('}'));
    let Some((name, _)) = name.filter(|(name, _)| !name.is_empty()) else {
        return Ok(());
    };
    let message = "`%{…}` stands for a field only outside of expressions, as in the `values` of `set`; here texts and fields are \
                   joined with `+`";
    let field = match name.starts_with('+') {
        true => "formatTime(@timestamp, \"yyyy.MM.dd\")",
        false => name,
    };
    let (before, after) = text.split_once(&format!("%{{{name}}}")).unwrap_or_default();
    let quoted = |part: &str| (!part.is_empty()).then(|| format!("{part:?}"));
    let parts = [quoted(before), Some(field.to_owned()), quoted(after)];
    let right: Vec<String> = parts.into_iter().flatten().collect();
    Err(ExprError::new(message, ast.at.clone()).suggest(&right.join(" + ")))
}

/// Refuses the field in brackets, `[level] == "DEBUG"`, and the field that is compared with a list of which it may be one.
pub(crate) fn refuse_list(source: &str, operator: &str, a: &Ast, b: &Ast) -> Result<(), ExprError> {
    for (list, other) in [(a, b), (b, a)] {
        let Syntax::List(items) = &list.syntax else {
            continue;
        };
        let text = |ast: &Ast| &source[ast.at.clone()];
        let is_list_of_texts = operator == "in" && matches!(other.syntax, Syntax::List(_));
        if let [field] = &items[..]
            && is_path(field)
            && (operator != "in" || std::ptr::eq(list, a))
            && (is_scalar(other) || is_list_of_texts)
        {
            let message = "this is a list with a field in it, and a list is never equal to one value; a field stands without brackets";
            return Err(ExprError::new(message, list.at.clone()).suggest(text(field)));
        }
        if items.is_empty() || !items.iter().all(is_scalar) || !is_path(other) {
            continue;
        }
        if matches!(operator, "==" | "!=") {
            let is_in = format!("{} in {}", text(other), text(list));
            let right = match operator {
                "==" => is_in,
                _ => format!("!({is_in})"),
            };
            let message = "only a field that is a list itself equals a list (for that compare with `[] + […]`)";
            let at = a.at.start..b.at.end;
            return Err(ExprError::new(message, at).suggest(&right));
        }
        let is_network =
            |item: &Ast| text_of(item).is_some_and(|text| text.parse::<ipnet::IpNet>().is_ok());
        if operator == "in" && items.iter().all(is_network) {
            let message = "an address is never equal to a network (to look for the text of a network, put `[] +` in front of the list)";
            let right = format!("ip.inCidr({}, {})", text(other), text(list));
            let at = a.at.start..b.at.end;
            return Err(ExprError::new(message, at).suggest(&right));
        }
    }
    Ok(())
}

/// Refuses `[http][status]`, as Logstash writes the field `http.status`.
pub(crate) fn refuse_brackets(source: &str, of: &Ast, index: &Ast) -> Result<(), ExprError> {
    let Syntax::List(items) = &of.syntax else {
        return Ok(());
    };
    match &items[..] {
        [field] if is_path(field) && is_path(index) => {
            let message = "a field stands without brackets";
            let right = format!(
                "{}.{}",
                &source[field.at.clone()],
                &source[index.at.clone()]
            );
            Err(ExprError::new(message, of.at.start..index.at.end).suggest(&right))
        }
        _ => Ok(()),
    }
}

/// Refuses a condition, or a part of one, that reads no field: it is the same for every event. `true` and `false` may stand.
pub(crate) fn refuse_constant(source: &str, ast: &Ast) -> Result<(), ExprError> {
    match &ast.syntax {
        Syntax::Chain(_, operands) => {
            return operands
                .iter()
                .try_for_each(|operand| refuse_constant(source, operand));
        }
        Syntax::Not(operand) => return refuse_constant(source, operand),
        Syntax::Conditional(parts) => return refuse_constant(source, &parts[0]),
        Syntax::Literal(_) => return Ok(()),
        _ if reads_event(ast, &mut Vec::new()) => return Ok(()),
        _ => {}
    }
    let message = "this condition reads no field, so that it is the same for every event";
    let at = ast.at.clone();
    if let Syntax::Binary(_, a, b) = &ast.syntax {
        for side in [a, b] {
            let name = text_of(side).filter(|name| is_field_name(name));
            if let Some(name) = name {
                let start = side.at.start - ast.at.start;
                let mut right = source[at.clone()].to_owned();
                right.replace_range(start..start + side.at.len(), name);
                let message = format!("{message}: \"{name}\" is a text, the field is `{name}`");
                return Err(ExprError::new(message, at).suggest(&right));
            }
        }
    }
    Err(ExprError::new(message, at))
}

fn is_field_name(text: &str) -> bool {
    let is_name = |c: char| c.is_alphanumeric() || matches!(c, '_' | '@' | '.');
    FieldPath::parse(text).is_ok()
        && text.chars().all(is_name)
        && Num::read(text.as_bytes()).is_none()
}

/// Whether the value depends on the event, the time, the machine or its environment.
fn reads_event<'s>(ast: &'s Ast, locals: &mut Vec<&'s str>) -> bool {
    match &ast.syntax {
        Syntax::Literal(_) => false,
        Syntax::Name(name) => !locals.contains(&&**name),
        Syntax::Select(of, _) | Syntax::Not(of) | Syntax::Negate(of) => reads_event(of, locals),
        Syntax::Index(a, b) | Syntax::Binary(_, a, b) => {
            reads_event(a, locals) || reads_event(b, locals)
        }
        Syntax::Chain(_, all) | Syntax::List(all) => all.iter().any(|ast| reads_event(ast, locals)),
        Syntax::Conditional(parts) => parts.iter().any(|ast| reads_event(ast, locals)),
        Syntax::Map(entries) => entries
            .iter()
            .any(|(key, value)| reads_event(key, locals) || reads_event(value, locals)),
        Syntax::Call {
            name,
            receiver,
            args,
            ..
        } => {
            let receiver = receiver.as_deref();
            let space = match receiver.map(|receiver| &receiver.syntax) {
                Some(Syntax::Name(space)) => Some(&**space),
                _ => None,
            };
            let is_namespace =
                space.is_some_and(|space| functions::find(&format!("{space}.{name}")).is_some());
            let args_of_list = match functions::find(name).map(|function| function.kind) {
                Some(functions::Kind::Macro(_)) => args.first(),
                _ => None,
            };
            if let (
                Some(Ast {
                    syntax: Syntax::Name(variable),
                    ..
                }),
                Some(list),
            ) = (args_of_list, receiver)
            {
                let in_list = reads_event(list, locals);
                locals.push(variable);
                let reads = in_list || args[1..].iter().any(|arg| reads_event(arg, locals));
                locals.pop();
                return reads;
            }
            receiver.is_some_and(|receiver| !is_namespace && reads_event(receiver, locals))
                || receiver.is_none() && matches!(&**name, "now" | "uuid" | "host" | "env")
                || args.iter().any(|arg| reads_event(arg, locals))
        }
    }
}
