//! How the text of a scalar reads: the YAML 1.2 core schema, and typed readings.

/// What a plain scalar is when nobody says what it should be.
#[derive(Debug, PartialEq, Clone, Copy)]
pub(crate) enum Resolved {
    Bool(bool),
    Integer(i128),
    Float(f64),
    Text,
}

/// True for the spellings of null in the core schema, the empty text included.
pub(crate) fn is_null(text: &str) -> bool {
    matches!(text, "" | "~" | "null" | "Null" | "NULL")
}

/// Resolves a plain scalar that is not null. Integers beyond 128 bits stay text, so that no digit is lost.
pub(crate) fn resolve(text: &str) -> Resolved {
    if let Some(value) = read_bool(text) {
        return Resolved::Bool(value);
    }
    if let Some(value) = read_integer(text) {
        return Resolved::Integer(value);
    }
    if is_digits(text.strip_prefix(['+', '-']).unwrap_or(text)) {
        return Resolved::Text;
    }
    read_float(text).map_or(Resolved::Text, Resolved::Float)
}

/// `true` and `false`, in the three letter cases of the core schema.
pub(crate) fn read_bool(text: &str) -> Option<bool> {
    match text {
        "true" | "True" | "TRUE" => Some(true),
        "false" | "False" | "FALSE" => Some(false),
        _ => None,
    }
}

/// Decimal with an optional sign, `0o17` or `0xff`; none when it is anything else or beyond 128 bits.
pub(crate) fn read_integer(text: &str) -> Option<i128> {
    for (prefix, radix) in [("0x", 16), ("0o", 8)] {
        if let Some(digits) = text.strip_prefix(prefix) {
            // The standard parser takes a sign of its own, which the schema does not allow here.
            let digits = digits
                .starts_with(|c: char| c.is_digit(radix))
                .then_some(digits)?;
            return i128::from_str_radix(digits, radix).ok();
        }
    }
    text.parse().ok()
}

/// A decimal number with an optional fraction and exponent, or `.inf` and `.nan`.
pub(crate) fn read_float(text: &str) -> Option<f64> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    match unsigned {
        ".inf" | ".Inf" | ".INF" if text.starts_with('-') => return Some(f64::NEG_INFINITY),
        ".inf" | ".Inf" | ".INF" => return Some(f64::INFINITY),
        ".nan" | ".NaN" | ".NAN" if unsigned.len() == text.len() => return Some(f64::NAN),
        _ => {}
    }
    // The standard parser also takes the words `inf`, `infinity` and `nan`, which are text here.
    let numeric = unsigned.starts_with(|c: char| c.is_ascii_digit() || c == '.');
    numeric.then(|| text.parse().ok()).flatten()
}

/// True for what JSON's grammar calls a number.
pub(crate) fn is_json_number(text: &str) -> bool {
    let unsigned = text.strip_prefix('-').unwrap_or(text);
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (unsigned, None),
    };
    let (whole, fraction) = match mantissa.split_once('.') {
        Some((whole, fraction)) => (whole, Some(fraction)),
        None => (mantissa, None),
    };
    let is_power = |power: &str| is_digits(power.strip_prefix(['+', '-']).unwrap_or(power));
    is_digits(whole)
        && (whole == "0" || !whole.starts_with('0'))
        && fraction.is_none_or(is_digits)
        && exponent.is_none_or(is_power)
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn follows_the_core_schema() {
        for (text, expected) in [
            ("true", Resolved::Bool(true)),
            ("FALSE", Resolved::Bool(false)),
            ("yes", Resolved::Text),
            ("0", Resolved::Integer(0)),
            ("-12", Resolved::Integer(-12)),
            ("+7", Resolved::Integer(7)),
            ("0x1F", Resolved::Integer(31)),
            ("0o17", Resolved::Integer(15)),
            ("0x-1", Resolved::Text),
            ("0x", Resolved::Text),
            ("1.5", Resolved::Float(1.5)),
            (".5", Resolved::Float(0.5)),
            ("1e3", Resolved::Float(1000.0)),
            ("-.inf", Resolved::Float(f64::NEG_INFINITY)),
            ("inf", Resolved::Text),
            ("nan", Resolved::Text),
            ("1_000", Resolved::Text),
            ("1.2.3", Resolved::Text),
            ("-", Resolved::Text),
            (".", Resolved::Text),
            ("99999999999999999999999999999999999999999", Resolved::Text),
        ] {
            assert_eq!(resolve(text), expected, "{text}");
        }
        assert!(matches!(resolve(".nan"), Resolved::Float(value) if value.is_nan()));
    }

    #[test]
    fn numbers_of_json() {
        for text in ["0", "-1", "10.50", "1e5", "1.0E-07", "-0.1e+3"] {
            assert!(is_json_number(text), "{text}");
        }
        for text in [
            "", "-", "01", ".5", "1.", "+1", "1e", "0x1", "1.2.3", "--1", "1e5.0", ".inf", "1_0",
        ] {
            assert!(!is_json_number(text), "{text}");
        }
    }
}
