//! Functions that make one type of another.

use datetime::NANOS_PER_SECOND;

use super::Takes::Any;
use super::{FunctionDoc, Kind, text_of};
use crate::fault::What;
use crate::number::Num;
use crate::time;
use crate::value::{Val, whole};

pub(super) const FUNCTIONS: &[FunctionDoc] = &[
    FunctionDoc::new(
        "int",
        &[Any],
        Kind::Call(int),
        [
            "int(value) -> int",
            "A whole number from a text (`502`, ` 502 `, `+5`, `0x1F`, `1.9`) or a number, cut towards zero; from a timestamp its seconds since 1970, from a duration its whole seconds.",
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
        &[Any],
        Kind::Call(parse_bytes),
        [
            "parseBytes(value) -> int",
            "A number of bytes from a text: `512`, `10 KB`, `1.5MiB`, `12 bytes`; a whole number is one of bytes already. KB, MB, GB, TB and PB go by 1000; KiB, MiB and so on, and Ki, K, M, G, T and P alone, by 1024. Upper and lower case are the same, except that `Mb` and the like, which are bits, are an error. Parts of a byte are rounded.",
            "parseBytes('1.5 KiB') == 1536 && parseBytes('10kB') == 10000 && parseBytes(bytes) == 2048",
        ],
    ),
];

fn int<'a>(args: &[Val<'a>]) -> Result<Val<'a>, What> {
    let number = match &args[0] {
        Val::Text(text) => read_number(text)?,
        Val::Time(nanos) => return Ok(Val::Int(nanos.div_euclid(NANOS_PER_SECOND))),
        Val::Duration(nanos) => return Ok(Val::Int(nanos / NANOS_PER_SECOND)),
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

/// The number that a text reads as: as in comparisons, and also with a plus sign, or hexadecimal after `0x`.
fn read_number(text: &[u8]) -> Result<Num<'_>, What> {
    let text = text.trim_ascii();
    let number = Num::read(text).or_else(|| {
        if let Some(digits) = text.strip_prefix(b"+") {
            return Num::read(digits).filter(|_| digits[0] != b'-');
        }
        let (sign, digits) = match text.strip_prefix(b"-") {
            Some(digits) => (-1, digits),
            None => (1, text),
        };
        let digits = digits
            .strip_prefix(b"0x")
            .or_else(|| digits.strip_prefix(b"0X"))?;
        if !digits.iter().all(u8::is_ascii_hexdigit) {
            return None;
        }
        let number = u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
        Some(Num::Int(sign * i128::from(number)))
    });
    number.ok_or(What::Unreadable("a number"))
}

fn double<'a>(args: &[Val<'a>]) -> Result<Val<'a>, What> {
    let number = match &args[0] {
        Val::Text(text) => read_number(text)?,
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
const UNITS: [(&str, u64); 24] = [
    ("", 1),
    ("b", 1),
    ("byte", 1),
    ("bytes", 1),
    ("ki", 1 << 10),
    ("mi", 1 << 20),
    ("gi", 1 << 30),
    ("ti", 1 << 40),
    ("pi", 1 << 50),
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
    match &args[0] {
        Val::Text(_) => read_bytes(text_of(&args[0])?),
        other => match other.number() {
            Some(Num::Int(number)) => whole(number).ok_or(What::Overflow),
            _ => Err(What::Needs("a text or a whole number", other.kind())),
        },
    }
}

/// Reads a number of bytes with a unit.
pub(crate) fn read_bytes<'a>(text: &str) -> Result<Val<'a>, What> {
    const UNREADABLE: What = What::Unreadable("a number of bytes such as 512, 10KB or 1.5MiB");
    const BITS: What =
        What::Unreadable("a number of bytes: a small b behind a capital letter stands for bits");
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.');
    let (number, unit) = text.split_at(digits.unwrap_or(text.len()));
    let unit = unit.trim_start();
    let known = UNITS
        .iter()
        .find(|(name, _)| name.eq_ignore_ascii_case(unit));
    let factor = known.ok_or(UNREADABLE)?.1;
    let is_bits = unit.len() > 1 && unit.starts_with(|c: char| c.is_ascii_uppercase());
    if is_bits && unit.ends_with('b') {
        return Err(BITS);
    }
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
