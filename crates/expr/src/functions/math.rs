//! Functions of numbers. Whole numbers stay whole; texts that read as numbers go through `int` or `double` first.

use std::cmp::Ordering;
use std::fmt::{self, Write};

use super::Takes::{Any, Number, Within};
use super::{FunctionDoc, Kind, number_of, whole_of};
use crate::fault::What;
use crate::number::Num;
use crate::value::{Val, whole};

pub(super) const FUNCTIONS: &[FunctionDoc] = &[
    FunctionDoc::new(
        "math.round",
        &[Number, Within(0, DECIMALS_MAX, DECIMALS)],
        Kind::Call(round),
        [
            "math.round(number[, decimals]) -> int or double",
            "The nearest whole number, halves away from zero, or the number with so many decimals (0 to 15). A whole number stays one, a double stays a double: `int(math.round(x))` makes it whole.",
            "math.round(took) == 2 && math.round(2.345, 2) == 2.35 && math.round(-0.5) == -1",
        ],
    )
    .optional(1),
    FunctionDoc::new(
        "math.floor",
        &[Number],
        Kind::Call(|args| float_part(&args[0], f64::floor)),
        [
            "math.floor(number) -> int or double",
            "The greatest whole number not above this one.",
            "math.floor(took) == 1 && math.floor(-1.5) == -2",
        ],
    ),
    FunctionDoc::new(
        "math.ceil",
        &[Number],
        Kind::Call(|args| float_part(&args[0], f64::ceil)),
        [
            "math.ceil(number) -> int or double",
            "The least whole number not below this one.",
            "math.ceil(took) == 2 && math.ceil(-1.5) == -1",
        ],
    ),
    FunctionDoc::new(
        "math.trunc",
        &[Number],
        Kind::Call(|args| float_part(&args[0], f64::trunc)),
        [
            "math.trunc(number) -> int or double",
            "The number without its decimals.",
            "math.trunc(-1.5) == -1",
        ],
    ),
    FunctionDoc::new(
        "math.abs",
        &[Number],
        Kind::Call(abs),
        [
            "math.abs(number) -> int or double",
            "The number without its sign.",
            "math.abs(-3) == 3 && math.abs(took) == 1.5",
        ],
    ),
    FunctionDoc::new(
        "math.sign",
        &[Number],
        Kind::Call(sign),
        [
            "math.sign(number) -> int",
            "-1, 0 or 1, as the number is below, equal to or above zero.",
            "math.sign(-2.5) == -1 && math.sign(bytes) == 1",
        ],
    ),
    FunctionDoc::new(
        "math.least",
        &[Any],
        Kind::Call(|args| extreme(args, Ordering::Less)),
        [
            "math.least(number, …) -> int or double",
            "The least of the numbers, or of the numbers in a list. An absent or null one is an error, as in arithmetic.",
            "math.least(bytes, 100, took) == 1.5 && math.least([3, 2]) == 2",
        ],
    )
    .repeats()
    .of_nothing(),
    FunctionDoc::new(
        "math.greatest",
        &[Any],
        Kind::Call(|args| extreme(args, Ordering::Greater)),
        [
            "math.greatest(number, …) -> int or double",
            "The greatest of the numbers, or of the numbers in a list. An absent or null one is an error, as in arithmetic.",
            "math.greatest(bytes, 100) == 2048",
        ],
    )
    .repeats()
    .of_nothing(),
];

/// So many decimals of a 64-bit float are exact.
const DECIMALS_MAX: i64 = 15;
const DECIMALS: &str = "the number of decimals is 0 to 15";

fn round<'a>(args: &[Val<'a>]) -> Result<Val<'a>, What> {
    let decimals = args.get(1).map(whole_of).transpose()?.unwrap_or(0);
    if !(0..=DECIMALS_MAX).contains(&decimals) {
        return Err(What::Other(DECIMALS));
    }
    if decimals == 0 {
        return float_part(&args[0], f64::round);
    }
    float_part(&args[0], |number| rounded(number, decimals as usize))
}

/// Digits of a number in decimal notation, without memory of their own.
struct Digits {
    bytes: [u8; 64],
    len: usize,
}

impl Write for Digits {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let end = self.len + text.len();
        let room = self.bytes.get_mut(self.len..end).ok_or(fmt::Error)?;
        room.copy_from_slice(text.as_bytes());
        self.len = end;
        Ok(())
    }
}

impl Digits {
    fn of(text: fmt::Arguments<'_>) -> Option<Self> {
        let mut digits = Self {
            bytes: [0; 64],
            len: 0,
        };
        digits.write_fmt(text).ok()?;
        Some(digits)
    }

    fn text(&self) -> &str {
        std::str::from_utf8(&self.bytes[..self.len]).unwrap_or_default()
    }
}

/// The number with so many decimals: the decimal digits of the number are rounded as they are written, so that 2.345, which as a
/// float is a little less, gives 2.35.
fn rounded(number: f64, decimals: usize) -> f64 {
    if number.abs() < 1e-16 {
        return 0f64.copysign(number);
    }
    // Greater ones are whole.
    if number.abs() >= (1i64 << f64::MANTISSA_DIGITS) as f64 {
        return number;
    }
    by_digits(number, decimals).unwrap_or(number)
}

fn by_digits(number: f64, decimals: usize) -> Option<f64> {
    let digits = Digits::of(format_args!("{number}"))?;
    let text = digits.text();
    let (_, fraction) = text.split_once('.')?;
    if fraction.len() <= decimals {
        return None;
    }
    let kept: f64 = text[..text.len() - fraction.len() + decimals]
        .parse()
        .ok()?;
    if fraction.as_bytes()[decimals] < b'5' {
        return Some(kept);
    }
    let step = 10f64.powi(-(decimals as i32)).copysign(number);
    // Adding the step may leave a last digit that is not there in decimal notation.
    let next = Digits::of(format_args!("{:.decimals$}", kept + step))?;
    next.text().parse().ok()
}

fn float_part<'a>(value: &Val<'a>, part: impl Fn(f64) -> f64) -> Result<Val<'a>, What> {
    match number_of(value)? {
        Num::Float(number) => finite(part(number)),
        _ => Ok(value.clone()),
    }
}

fn finite<'a>(number: f64) -> Result<Val<'a>, What> {
    match number.is_finite() {
        true => Ok(Val::Float(number)),
        false => Err(What::Overflow),
    }
}

fn abs<'a>(args: &[Val<'a>]) -> Result<Val<'a>, What> {
    match number_of(&args[0])? {
        Num::Int(number) => whole(number.abs()).ok_or(What::Overflow),
        Num::Big(_) => Err(What::Overflow),
        Num::Float(number) => finite(number.abs()),
    }
}

fn sign<'a>(args: &[Val<'a>]) -> Result<Val<'a>, What> {
    let order = number_of(&args[0])?.compare(Num::Int(0));
    let order = order.ok_or(What::Other("the value is not a number"))?;
    Ok(Val::Int(order as i64))
}

fn extreme<'a>(args: &[Val<'a>], wanted: Ordering) -> Result<Val<'a>, What> {
    let elements = match args {
        [list] => list.elements(),
        _ => None,
    };
    let all = elements.as_deref().unwrap_or(args);
    let (mut best, rest) = all.split_first().ok_or(What::Other("the list is empty"))?;
    number_of(best)?;
    for value in rest {
        if number_of(value)?.compare(number_of(best)?) == Some(wanted) {
            best = value;
        }
    }
    Ok(best.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn rounding_at_the_edges() {
        let cases = [
            (0.5, 15, 0.5),
            (1e-20, 3, 0.0),
            (0.000_499_9, 3, 0.0),
            (0.0005, 3, 0.001),
            (-0.0005, 3, -0.001),
            (0.999_95, 4, 1.0),
            (123_456_789.125, 2, 123_456_789.13),
            (9_007_199_254_740_993.0, 2, 9_007_199_254_740_993.0),
            (1e300, 2, 1e300),
            (0.1 + 0.2, 15, 0.3),
        ];
        for (number, decimals, expected) in cases {
            assert_eq!(rounded(number, decimals), expected, "{number}, {decimals}");
        }
    }

    proptest! {
        #[test]
        fn a_rounded_number_is_near_and_has_few_decimals(number in -1e6..1e6f64, decimals in 1usize..8) {
            let found = rounded(number, decimals);
            let half = 0.5 * 10f64.powi(-(decimals as i32));
            // Neither number is exact.
            let inexact = 2.0 * f64::EPSILON * number.abs();
            prop_assert!((found - number).abs() <= half + inexact, "{} {}", number, found);
            prop_assert_eq!(found.to_string().parse::<f64>(), format!("{found:.decimals$}").parse::<f64>());
        }
    }
}
