//! Type checks: the types that are known before any event is seen, and what no event could make work.
//!
//! A field may be of any type, so that nothing is known of it; the results of most functions and operators are of one type.
//! Comparisons and arithmetic of such results and literals that are an error or false for every event are refused.

use std::net::IpAddr;

use datetime::span;

use crate::ExprError;
use crate::functions::{Macro, read_bytes};
use crate::node::{Arithmetic, Node, Op};
use crate::number::Num;
use crate::time;
use crate::types::Known;
use crate::value::Val;

/// The type of a part's value, where every event gives the same.
pub(crate) fn known(node: &Node) -> Option<Known> {
    match &node.op {
        Op::Const(value) => Known::of(value.kind()),
        Op::Field(_) | Op::Local(_) | Op::Index(_) | Op::Coalesce(_) | Op::Try(_) => None,
        Op::Not(_) | Op::And(_) | Op::Or(_) | Op::Compare(..) | Op::In(_) | Op::Test(..) => {
            Some(Known::Bool)
        }
        Op::Negate(operand) => known(operand),
        Op::Arithmetic(operator, pair) => match (operator, known(&pair[0])?, known(&pair[1])?) {
            (_, Known::Number, Known::Number) => Some(Known::Number),
            (Arithmetic::Add, a, b) if a == b => Some(a),
            _ => None,
        },
        Op::Conditional(parts) => known(&parts[1]).filter(|yes| known(&parts[2]) == Some(*yes)),
        Op::List(_) => Some(Known::List),
        Op::Map(_) => Some(Known::Map),
        Op::Now => Some(Known::Time),
        Op::Macro(Macro::Map | Macro::Filter, _) => Some(Known::List),
        Op::Macro(..) => Some(Known::Bool),
        Op::Call(function, _) => function.gives(),
    }
}

fn constant(node: &Node) -> Option<&Val<'static>> {
    match &node.op {
        Op::Const(value) => Some(value),
        _ => None,
    }
}

/// The text of a part that is a literal.
pub(crate) fn literal_text(node: &Node) -> Option<&str> {
    match constant(node)? {
        Val::Text(text) => std::str::from_utf8(text).ok(),
        _ => None,
    }
}

/// The right form of a duration that was written as a text or a number of seconds.
fn as_duration(node: &Node) -> Option<String> {
    match (literal_text(node), constant(node)?.number()) {
        (Some(text), _) if span::parse(text).is_some() => Some(format!("duration(\"{text}\")")),
        (Some(text), _) if span::parse_loose(text).is_some() => {
            Some(format!("parseDuration(\"{text}\")"))
        }
        (None, Some(Num::Int(seconds))) => Some(format!("duration(\"{}s\")", seconds.abs())),
        _ => None,
    }
}

/// A date, or a time without a zone.
fn is_part_of_time(text: &str) -> bool {
    let bytes = text.as_bytes();
    let begins = bytes.len() >= 7 && bytes[..4].iter().all(u8::is_ascii_digit) && bytes[4] == b'-';
    begins && time::parse_time(bytes).is_none()
}

/// What is probably meant by a part of a time: what is missing is zero, and the time is in UTC.
fn whole_time(text: &str) -> String {
    let date = text.get(..10).unwrap_or("2015-05-18");
    let time = text.get(11..).unwrap_or("00:00:00");
    let candidates = ["", ":00", ":00:00"].map(|rest| format!("{date}T{time}{rest}Z"));
    let whole = candidates
        .into_iter()
        .find(|text| time::parse_time(text.as_bytes()).is_some());
    whole.unwrap_or_else(|| format!("{date}T00:00:00Z"))
}

/// Refuses a comparison that gives the same for every event.
pub(crate) fn check_comparison(
    (operator, is_time): (&str, [bool; 2]),
    a: &Node,
    b: &Node,
) -> Result<(), ExprError> {
    let at = a.at.start..b.at.end;
    for (literal, is_time) in [(a, is_time[1]), (b, is_time[0])] {
        let text = literal_text(literal).filter(|text| is_time && is_part_of_time(text));
        if let Some(text) = text {
            let message = "a timestamp compares with a whole one, which has a date, a time of day and a time zone";
            let right = format!("\"{}\"", whole_time(text));
            return Err(ExprError::new(message, literal.at.clone()).suggest(&right));
        }
    }
    let is_ordering = !matches!(operator, "==" | "!=");
    let (Some(of_a), Some(of_b)) = (known(a), known(b)) else {
        return Ok(());
    };
    let ordered = |kind| !is_ordering || !matches!(kind, Known::List | Known::Map);
    if constant(a).is_some() && constant(b).is_some() || compares(of_a, a, of_b, b) && ordered(of_a)
    {
        return Ok(());
    }
    let what = match is_ordering {
        true => "have no order",
        false => "are never equal",
    };
    let message = format!("{} and {} {what}", of_a.name(), of_b.name());
    let kinds = [of_a, of_b];
    for literal in [a, b] {
        if kinds.contains(&Known::Duration)
            && let Some(right) = as_duration(literal)
        {
            return Err(ExprError::new(message, literal.at.clone()).suggest(&right));
        }
    }
    let hint = if kinds.contains(&Known::Time) && kinds.contains(&Known::Number) {
        "; `timestamp(…)` makes a timestamp of seconds, `epochMillis(…)` of milliseconds"
    } else if kinds.contains(&Known::Time) && kinds.contains(&Known::Text) {
        "; a timestamp compares with a text such as \"2015-05-18T00:00:00Z\""
    } else if kinds.contains(&Known::List) {
        "; `value in list` tests whether a list has a value"
    } else {
        ""
    };
    Err(ExprError::new(format!("{message}{hint}"), at))
}

/// Whether values of these types may be equal: a text may read as a number or a time.
fn compares(of_a: Known, a: &Node, of_b: Known, b: &Node) -> bool {
    let text_beside = |text: &Node, other: Known| match (constant(text), other) {
        (Some(literal), Known::Number) => literal.number_or_text().is_some(),
        (Some(literal), _) => literal.time().is_some(),
        (None, Known::Number) => !matches!(&text.op, Op::Call(function, _) if function.is_wordy()),
        (None, _) => true,
    };
    match (of_a, of_b) {
        (a, b) if a == b => true,
        (Known::Text, other @ (Known::Number | Known::Time)) => text_beside(a, other),
        (other @ (Known::Number | Known::Time), Known::Text) => text_beside(b, other),
        _ => false,
    }
}

/// Refuses the order of a field and a text that holds a number: between texts it would be one of characters.
pub(crate) fn check_order(source: &str, a: &Node, b: &Node) -> Result<(), ExprError> {
    for (literal, other) in [(a, b), (b, a)] {
        let Some(text) = literal_text(literal) else {
            continue;
        };
        if constant(other).is_some() || !text.starts_with(|c: char| c.is_ascii_digit() || c == '-')
        {
            continue;
        }
        let field = &source[other.at.clone()];
        let refused = |message: String, right: &str| {
            Err(ExprError::new(message, literal.at.clone()).suggest(right))
        };
        const ORDER: &str = "texts are ordered by their characters, so that \"9\" is above \"10\"";
        if Num::read(text.as_bytes()).is_some() {
            return refused(format!("{ORDER}; write the number without quotes"), text);
        }
        let percent = text.strip_suffix('%').map(str::trim_end);
        if let Some(number) = percent.filter(|number| Num::read(number.as_bytes()).is_some()) {
            let right = format!("double({field}.replace(\"%\", \"\")) > {number}");
            return refused(
                format!("{ORDER}; compare the number before the percent sign"),
                &right,
            );
        }
        if text.parse::<IpAddr>().is_ok() {
            let message = "texts are ordered by their characters, and so are addresses; networks have a function";
            let right = format!("ip.inCidr({field}, \"{text}/…\")");
            return refused(message.to_owned(), &right);
        }
        if !text.ends_with(|c: char| c.is_alphabetic()) {
            continue;
        }
        for (name, reads) in [
            ("parseDuration", span::parse_loose(text).is_some()),
            ("parseBytes", read_bytes(text).is_ok()),
        ] {
            if reads && known(other).is_none_or(|kind| kind == Known::Text) {
                let right = format!("{name}({field}) > {name}(\"{text}\")");
                return refused(
                    format!("{ORDER}; compare what `{name}` makes of both"),
                    &right,
                );
            }
        }
    }
    Ok(())
}

/// Refuses an `in` behind which there is no list.
pub(crate) fn check_in(source: &str, item: &Node, container: &Node) -> Result<(), ExprError> {
    let Some(kind) = known(container).filter(|kind| !matches!(kind, Known::List | Known::Map))
    else {
        return Ok(());
    };
    let (left, right) = (&source[item.at.clone()], &source[container.at.clone()]);
    let meant = match literal_text(container) {
        Some(text) if text.parse::<ipnet::IpNet>().is_ok() => {
            format!("ip.inCidr({left}, {right})")
        }
        _ if constant(container).is_some() => format!("{left} in [{right}]"),
        _ => format!("{right}.contains({left})"),
    };
    let message = format!(
        "`in` needs a list or a map behind it, and this is {}",
        kind.name()
    );
    Err(ExprError::new(message, container.at.clone()).suggest(&meant))
}

/// Refuses arithmetic that fails for every event. `is_time` says which side is a field that holds a time, perhaps as a text.
pub(crate) fn check_arithmetic(
    operator: Arithmetic,
    a: &Node,
    b: &Node,
    is_time: [bool; 2],
) -> Result<(), ExprError> {
    if constant(a).is_some() && constant(b).is_some() {
        return Ok(());
    }
    // Such a field may be a number of seconds, which is multiplied and divided.
    let is_span = matches!(operator, Arithmetic::Add | Arithmetic::Sub);
    let of = |node: &Node, is_time: bool| match is_time && is_span {
        true => Some(Known::Time),
        false => known(node),
    };
    let (of_a, of_b) = (of(a, is_time[0]), of(b, is_time[1]));
    let is_other_text = |node: &Node| {
        literal_text(node).is_some_and(|text| time::parse_time(text.as_bytes()).is_none())
    };
    let joins_time = is_time.contains(&true)
        && operator == Arithmetic::Add
        && [a, b]
            .iter()
            .any(|node| literal_text(node).is_some() && as_duration(node).is_none());
    let sides = works(operator, of_a, of_b)
        && (operator == Arithmetic::Add || !is_other_text(a) && !is_other_text(b));
    if sides || joins_time {
        return Ok(());
    }
    let kinds = [of_a, of_b];
    let name = |kind: Option<Known>| kind.map_or("a field", Known::name);
    let sign = operator.symbol();
    let message = format!(
        "`{sign}` does not work on {} and {}",
        name(of_a),
        name(of_b)
    );
    let at = a.at.start..b.at.end;
    if is_span && !kinds.contains(&Some(Known::List)) {
        let others = [(a, of_b), (b, of_a)];
        let span = others.iter().find_map(|(node, other)| {
            let is_literal_text = literal_text(node).is_some();
            let may = matches!(other, Some(Known::Time | Known::Duration))
                || is_literal_text && other.is_none();
            as_duration(node).filter(|_| may).map(|right| (node, right))
        });
        if let Some((node, right)) = span {
            let message = format!("{message}; a span of time is a duration");
            return Err(ExprError::new(message, node.at.clone()).suggest(&right));
        }
    }
    let hint = if !kinds.contains(&Some(Known::Text)) {
        ""
    } else if operator == Arithmetic::Add && kinds.contains(&Some(Known::Number)) {
        "; `string(…)` makes a text of a number, `int(…)` or `double(…)` a number of a text"
    } else {
        "; `int(…)` or `double(…)` makes a number of a text"
    };
    Err(ExprError::new(format!("{message}{hint}"), at))
}

/// Whether some values of these types give a result; `None` is any type.
fn works(operator: Arithmetic, a: Option<Known>, b: Option<Known>) -> bool {
    use Known::{Duration, List, Number, Text, Time};
    let both = |pairs: &[(Known, Known)]| {
        pairs
            .iter()
            .any(|(of_a, of_b)| a.is_none_or(|a| a == *of_a) && b.is_none_or(|b| b == *of_b))
    };
    // A text may stand for a time beside a duration, or subtracted from or by a time.
    match operator {
        Arithmetic::Add => both(&[
            (Number, Number),
            (Text, Text),
            (Duration, Duration),
            (Time, Duration),
            (Duration, Time),
            (Text, Duration),
            (Duration, Text),
            (List, List),
        ]),
        Arithmetic::Sub => both(&[
            (Number, Number),
            (Duration, Duration),
            (Time, Duration),
            (Time, Time),
            (Text, Duration),
            (Text, Time),
            (Time, Text),
        ]),
        Arithmetic::Mul => both(&[(Number, Number), (Duration, Number), (Number, Duration)]),
        Arithmetic::Div => both(&[(Number, Number), (Duration, Duration), (Duration, Number)]),
        Arithmetic::Rem => both(&[(Number, Number)]),
    }
}
