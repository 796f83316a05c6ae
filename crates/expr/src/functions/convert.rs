//! Functions that make one type of another.

use super::text_of;
use crate::fault::What;
use crate::number::{Num, whole};
use crate::time;
use crate::value::Val;

pub(super) fn int<'a>(args: &[Val<'a>]) -> Result<Val<'a>, What> {
    let number = match &args[0] {
        Val::Text(text) => Num::read(text.trim_ascii()).ok_or(What::Unreadable("a number"))?,
        Val::Time(nanos) => return Ok(Val::Int(nanos.div_euclid(time::NANOS_PER_SECOND))),
        other => other
            .number()
            .ok_or(What::Needs("a number or a text", other.kind()))?,
    };
    match number {
        Num::Int(n) => whole(n).ok_or(What::Overflow),
        // Casts cut towards zero; the bounds are those between which the result is the number's own whole part.
        Num::Float(n) if n.abs() < 1e38 => whole(n as i128).ok_or(What::Overflow),
        _ => Err(What::Overflow),
    }
}

pub(super) fn double<'a>(args: &[Val<'a>]) -> Result<Val<'a>, What> {
    let number = match &args[0] {
        Val::Text(text) => Num::read(text.trim_ascii()).ok_or(What::Unreadable("a number"))?,
        other => other
            .number()
            .ok_or(What::Needs("a number or a text", other.kind()))?,
    };
    Ok(Val::Float(number.to_f64()))
}

pub(super) fn string<'a>(args: &[Val<'a>]) -> Result<Val<'a>, What> {
    Ok(match &args[0] {
        Val::Text(text) => Val::Text(text.clone()),
        Val::Number(text) => Val::Text(text.clone()),
        other => {
            let mut out = Vec::new();
            other.with_value(|value| value.write_text(&mut out));
            Val::text(out)
        }
    })
}

pub(super) fn bool<'a>(args: &[Val<'a>]) -> Result<Val<'a>, What> {
    if let Val::Bool(value) = args[0] {
        return Ok(Val::Bool(value));
    }
    match text_of(&args[0])? {
        "true" | "True" | "TRUE" | "t" | "1" => Ok(Val::Bool(true)),
        "false" | "False" | "FALSE" | "f" | "0" => Ok(Val::Bool(false)),
        _ => Err(What::Unreadable("true or false")),
    }
}

pub(super) fn timestamp<'a>(args: &[Val<'a>]) -> Result<Val<'a>, What> {
    if let Some(number) = args[0].number() {
        let Num::Int(seconds) = number else {
            return Err(What::Needs("whole seconds", args[0].kind()));
        };
        let nanos = seconds
            .checked_mul(time::NANOS_PER_SECOND.into())
            .and_then(|nanos| i64::try_from(nanos).ok());
        return nanos.map(Val::Time).ok_or(What::Overflow);
    }
    match &args[0] {
        Val::Time(_) | Val::Text(_) => args[0]
            .time()
            .map(Val::Time)
            .ok_or(What::Unreadable("an RFC 3339 timestamp")),
        other => Err(What::Needs("a text or a number of seconds", other.kind())),
    }
}

pub(super) fn duration<'a>(args: &[Val<'a>]) -> Result<Val<'a>, What> {
    if let Val::Duration(nanos) = args[0] {
        return Ok(Val::Duration(nanos));
    }
    let nanos = time::parse_duration(text_of(&args[0])?);
    nanos
        .map(Val::Duration)
        .ok_or(What::Unreadable("a duration such as 90s, 1h30m or 250ms"))
}
