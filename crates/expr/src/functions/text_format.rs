//! `format`: a text with values in the places of `%s` and the like.

use std::io::Write;

use super::run::{Refused, Run};
use super::{list_of, text_of};
use crate::fault::What;
use crate::number::Num;
use crate::types::Type;
use crate::value::Val;

/// Digits behind the point where none are asked for, as in C.
const DECIMALS: usize = 6;
/// As many as a 64-bit float can need.
const DECIMALS_MAX: usize = 1_100;

enum Piece {
    Literal(Box<[u8]>),
    Place { verb: u8, decimals: usize },
}

/// The function for a format; `spread` where the elements of the list are arguments themselves.
pub(crate) fn prepare(
    format: Option<&Val<'static>>,
    spread: Option<usize>,
) -> Result<Run, Refused> {
    let Some(Val::Text(format)) = format else {
        return Ok(Run::write(move |args, out| {
            let pieces = parse(text_of(&args[0])?.as_bytes()).map_err(What::Other)?;
            if spread.is_some() {
                return write(&pieces, &args[1..], out);
            }
            write(&pieces, &list_of(&args[1])?, out)
        }));
    };
    let pieces = parse(format).map_err(|message| Refused::new(0, message))?;
    let places = pieces
        .iter()
        .filter(|piece| matches!(piece, Piece::Place { .. }));
    let places = places.count();
    match spread {
        Some(elements) if elements != places => Err(Refused::new(
            0,
            format!("the format has {places} places, and the list {elements} elements"),
        )),
        Some(_) => Ok(Run::write(move |args, out| write(&pieces, &args[1..], out))),
        None => Ok(Run::write(move |args, out| {
            write(&pieces, &list_of(&args[1])?, out)
        })),
    }
}

fn parse(format: &[u8]) -> Result<Vec<Piece>, &'static str> {
    let mut pieces = Vec::new();
    let mut literal = Vec::new();
    let mut rest = format;
    while let Some(at) = memchr::memchr(b'%', rest) {
        literal.extend_from_slice(&rest[..at]);
        rest = &rest[at + 1..];
        let mut decimals = DECIMALS;
        if let Some(after) = rest.strip_prefix(b".") {
            let len = after
                .iter()
                .take_while(|byte| byte.is_ascii_digit())
                .count();
            let digits = std::str::from_utf8(&after[..len]).ok();
            decimals = digits
                .and_then(|digits| digits.parse().ok())
                .filter(|decimals| *decimals <= DECIMALS_MAX)
                .ok_or("a number of decimals stands behind `%.`, as in `%.2f`")?;
            rest = &after[len..];
            if !matches!(rest.first(), Some(b'f' | b'e')) {
                return Err("only `%f` and `%e` take a number of decimals");
            }
        }
        match rest.first() {
            Some(b'%') => literal.push(b'%'),
            Some(&verb @ (b's' | b'd' | b'f' | b'e' | b'x' | b'X' | b'o' | b'b')) => {
                if !literal.is_empty() {
                    pieces.push(Piece::Literal(std::mem::take(&mut literal).into()));
                }
                pieces.push(Piece::Place { verb, decimals });
            }
            _ => {
                return Err(
                    "a format has %s, %d, %f, %.2f, %e, %x, %X, %o and %b; a percent sign is %%",
                );
            }
        }
        rest = &rest[1..];
    }
    literal.extend_from_slice(rest);
    if !literal.is_empty() {
        pieces.push(Piece::Literal(literal.into()));
    }
    Ok(pieces)
}

fn write(pieces: &[Piece], values: &[Val<'_>], out: &mut Vec<u8>) -> Result<(), What> {
    let mut values = values.iter();
    for piece in pieces {
        match piece {
            Piece::Literal(text) => out.extend_from_slice(text),
            Piece::Place { verb, decimals } => {
                let value = values
                    .next()
                    .ok_or(What::Other("the list has too few elements for the format"))?;
                write_value(*verb, *decimals, value, out)?;
            }
        }
    }
    match values.next() {
        None => Ok(()),
        Some(_) => Err(What::Other("the list has too many elements for the format")),
    }
}

fn write_value(verb: u8, decimals: usize, value: &Val<'_>, out: &mut Vec<u8>) -> Result<(), What> {
    let written = match (verb, value) {
        (_, Val::Absent) => return Err(What::Needs("a value", Type::Absent)),
        (b's', Val::Null) => out.write_all(b"null"),
        (b's', _) => {
            value.with_value(|value| value.write_text(out));
            Ok(())
        }
        (b'x' | b'X', Val::Text(text)) => {
            for byte in text.iter() {
                write_hex(verb, u128::from(*byte), 2, out)?;
            }
            Ok(())
        }
        (b'f' | b'e', _) => {
            let Some(number) = value.number() else {
                return Err(What::Needs("a number for `%f` or `%e`", value.kind()));
            };
            let number = number.to_f64();
            if !number.is_finite() {
                return Err(What::Overflow);
            }
            match verb {
                b'f' => write!(out, "{number:.decimals$}"),
                _ => write_exponent(number, decimals, out),
            }
        }
        _ => {
            let Some(Num::Int(number)) = value.number() else {
                return Err(What::Needs(
                    "a whole number for `%d`, `%x`, `%o` or `%b`",
                    value.kind(),
                ));
            };
            if verb == b'd' {
                write!(out, "{number}")
            } else {
                if number < 0 {
                    out.push(b'-');
                }
                let number = number.unsigned_abs();
                match verb {
                    b'o' => write!(out, "{number:o}"),
                    b'b' => write!(out, "{number:b}"),
                    _ => return write_hex(verb, number, 0, out),
                }
            }
        }
    };
    written.map_err(|_| What::Other("the value cannot be written"))
}

fn write_hex(verb: u8, number: u128, width: usize, out: &mut Vec<u8>) -> Result<(), What> {
    let written = match verb {
        b'x' => write!(out, "{number:0width$x}"),
        _ => write!(out, "{number:0width$X}"),
    };
    written.map_err(|_| What::Other("the value cannot be written"))
}

/// `1.500000e+00`: a sign and at least two digits behind the `e`, as in C and Go.
fn write_exponent(number: f64, decimals: usize, out: &mut Vec<u8>) -> std::io::Result<()> {
    let text = format!("{number:.decimals$e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let (sign, exponent) = match exponent.strip_prefix('-') {
        Some(exponent) => ('-', exponent),
        None => ('+', exponent),
    };
    write!(out, "{digits}e{sign}{exponent:0>2}")
}
