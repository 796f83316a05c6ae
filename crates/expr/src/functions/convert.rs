//! Functions that make one type of another.

use super::Takes::{Any, Text};
use super::{FunctionDoc, Kind, text_of};
use crate::fault::What;
use crate::number::{Num, whole};
use crate::time;
use crate::value::Val;

pub(super) const FUNCTIONS: &[FunctionDoc] = &[
    FunctionDoc::new(
        "int",
        &[Any],
        Kind::Call(int),
        [
            "int(value) -> int",
            "A whole number from a text or a number, cut towards zero; from a timestamp its seconds since 1970, from a duration its whole seconds.",
            "int(status) + 1 == 503 && int(took) == 1 && int(duration('90s')) == 90",
        ],
    ),
    FunctionDoc::new(
        "double",
        &[Any],
        Kind::Call(double),
        [
            "double(value) -> double",
            "A floating-point number from a text or a number; from a timestamp its seconds since 1970, from a duration its seconds, with decimals.",
            "double(status) / 4 == 125.5 && double(duration('1500ms')) == 1.5",
        ],
    ),
    FunctionDoc::new(
        "float",
        &[Any],
        Kind::Call(double),
        [
            "float(value) -> double",
            "The same as `double`.",
            "float('1.50') == took",
        ],
    ),
    FunctionDoc::new(
        "string",
        &[Any],
        Kind::Call(string),
        [
            "string(value) -> string",
            "The value as text: a timestamp in RFC 3339, a duration in seconds, a list or map in JSON.",
            "string(bytes) + ' bytes' == '2048 bytes'",
        ],
    ),
    FunctionDoc::new(
        "bool",
        &[Any],
        Kind::Call(bool),
        [
            "bool(value) -> bool",
            "A truth value from the texts `true` and `false` (also `True`, `TRUE`, `t`, `1` and so on).",
            "bool('true') && !bool('0')",
        ],
    ),
    FunctionDoc::new(
        "parseBytes",
        &[Text],
        Kind::Call(parse_bytes),
        [
            "parseBytes(text) -> int",
            "A number of bytes from a text: `512`, `10 KB`, `1.5MiB`. KB, MB, GB, TB and PB go by 1000; KiB, MiB and so on, and K, M, G, T and P alone, by 1024. Upper and lower case are the same.",
            "parseBytes('1.5 KiB') == 1536 && parseBytes('10kB') == 10000",
        ],
    ),
];

fn int<'a>(args: &[Val<'a>]) -> Result<Val<'a>, What> {
    let number = match &args[0] {
        Val::Text(text) => Num::read(text.trim_ascii()).ok_or(What::Unreadable("a number"))?,
        Val::Time(nanos) => return Ok(Val::Int(nanos.div_euclid(time::NANOS_PER_SECOND))),
        Val::Duration(nanos) => return Ok(Val::Int(nanos / time::NANOS_PER_SECOND)),
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

fn double<'a>(args: &[Val<'a>]) -> Result<Val<'a>, What> {
    let number = match &args[0] {
        Val::Text(text) => Num::read(text.trim_ascii()).ok_or(What::Unreadable("a number"))?,
        Val::Time(nanos) | Val::Duration(nanos) => Num::Float(time::seconds(*nanos)),
        other => other
            .number()
            .ok_or(What::Needs("a number or a text", other.kind()))?,
    };
    // JSON has no infinity: `1e400` would leave as null.
    match number.to_f64() {
        number if number.is_finite() => Ok(Val::Float(number)),
        _ => Err(What::Overflow),
    }
}

fn string<'a>(args: &[Val<'a>]) -> Result<Val<'a>, What> {
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

fn bool<'a>(args: &[Val<'a>]) -> Result<Val<'a>, What> {
    if let Val::Bool(value) = args[0] {
        return Ok(Val::Bool(value));
    }
    match text_of(&args[0])? {
        "true" | "True" | "TRUE" | "t" | "1" => Ok(Val::Bool(true)),
        "false" | "False" | "FALSE" | "f" | "0" => Ok(Val::Bool(false)),
        _ => Err(What::Unreadable("true or false")),
    }
}

/// Units in bytes, by their lower-case names.
const UNITS: [(&str, u64); 17] = [
    ("", 1),
    ("b", 1),
    ("k", 1 << 10),
    ("m", 1 << 20),
    ("g", 1 << 30),
    ("t", 1 << 40),
    ("p", 1 << 50),
    ("kib", 1 << 10),
    ("mib", 1 << 20),
    ("gib", 1 << 30),
    ("tib", 1 << 40),
    ("pib", 1 << 50),
    ("kb", 1_000),
    ("mb", 1_000_000),
    ("gb", 1_000_000_000),
    ("tb", 1_000_000_000_000),
    ("pb", 1_000_000_000_000_000),
];

fn parse_bytes<'a>(args: &[Val<'a>]) -> Result<Val<'a>, What> {
    const UNREADABLE: What = What::Unreadable("a number of bytes such as 512, 10KB or 1.5MiB");
    let text = text_of(&args[0])?.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.');
    let (number, unit) = text.split_at(digits.unwrap_or(text.len()));
    let unit = unit.trim_start();
    let known = UNITS
        .iter()
        .find(|(name, _)| name.eq_ignore_ascii_case(unit));
    let factor = known.ok_or(UNREADABLE)?.1;
    match Num::read(number.as_bytes()).ok_or(UNREADABLE)? {
        Num::Int(number) => number.checked_mul(factor.into()),
        Num::Float(number) => {
            let bytes = (number * factor as f64).round();
            (bytes < 1e20).then_some(bytes as i128)
        }
        Num::Big(_) => None,
    }
    .and_then(whole)
    .ok_or(What::Overflow)
}
