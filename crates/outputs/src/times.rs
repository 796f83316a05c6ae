//! Times as protocols want them.

use batch::json;

/// Appends seconds since 1970 with as many decimals as the time has: none, 3, 6 or 9.
pub fn write_seconds(nanos: i64, out: &mut Vec<u8>) {
    const NANOS: u64 = 1_000_000_000;
    if nanos < 0 {
        out.push(b'-');
    }
    let nanos = nanos.unsigned_abs();
    json::write_u64(out, nanos / NANOS);
    let (mut below, mut digits) = (nanos % NANOS, 9);
    if below == 0 {
        return;
    }
    while below.is_multiple_of(1000) {
        below /= 1000;
        digits -= 3;
    }
    let start = out.len();
    out.resize(start + 1 + digits, b'.');
    for place in (start + 1..out.len()).rev() {
        out[place] = b'0' + (below % 10) as u8;
        below /= 10;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_have_the_decimals_that_they_need() {
        for (nanos, expected) in [
            (0, "0"),
            (1_426_279_439_000_000_000, "1426279439"),
            (1_426_279_439_123_000_000, "1426279439.123"),
            (1_426_279_439_020_000_000, "1426279439.020"),
            (1_426_279_439_000_001_000, "1426279439.000001"),
            (1_426_279_439_000_000_001, "1426279439.000000001"),
            (-1_500_000_000, "-1.500"),
            (i64::MAX, "9223372036.854775807"),
            (i64::MIN, "-9223372036.854775808"),
        ] {
            let mut out = Vec::new();
            write_seconds(nanos, &mut out);
            assert_eq!(String::from_utf8_lossy(&out), expected);
        }
    }
}
