//! Many whole numbers of one kind, in the fewest bytes that hold each of them: differences to the least one.

use super::input::{Input, Result, damaged};

/// Appends a series.
pub(super) fn write(out: &mut Vec<u8>, values: &[i64]) {
    let (mut least, mut most) = (i64::MAX, i64::MIN);
    for &value in values {
        least = least.min(value);
        most = most.max(value);
    }
    if values.is_empty() {
        (least, most) = (0, 0);
    }
    let width = match most.wrapping_sub(least) as u64 {
        0 => 0,
        1..=0xFF => 1,
        0x100..=0xFFFF => 2,
        0x1_0000..=0xFFFF_FFFF => 4,
        _ => 8,
    };
    out.push(width);
    out.extend_from_slice(&least.to_le_bytes());
    match width {
        0 => {}
        1 => out.extend(values.iter().map(|value| value.wrapping_sub(least) as u8)),
        2 => write_as(out, values, |value| {
            (value.wrapping_sub(least) as u16).to_le_bytes()
        }),
        4 => write_as(out, values, |value| {
            (value.wrapping_sub(least) as u32).to_le_bytes()
        }),
        _ => write_as(out, values, |value| value.wrapping_sub(least).to_le_bytes()),
    }
}

fn write_as<const N: usize>(out: &mut Vec<u8>, values: &[i64], bytes: impl Fn(i64) -> [u8; N]) {
    let at = out.len();
    out.resize(at + values.len() * N, 0);
    let (places, _) = out[at..].as_chunks_mut();
    for (place, &value) in places.iter_mut().zip(values) {
        *place = bytes(value);
    }
}

/// Reads a series of `count` values. The caller bounds `count`.
pub(super) fn read(input: &mut Input<'_>, count: usize) -> Result<Vec<i64>> {
    let width = input.u8()?;
    let base = input.i64()?;
    Ok(match width {
        0 => vec![base; count],
        1 => input
            .take(count)?
            .iter()
            .map(|&byte| base.wrapping_add(i64::from(byte)))
            .collect(),
        2 => read_as(input, count, |bytes| {
            base.wrapping_add(i64::from(u16::from_le_bytes(bytes)))
        })?,
        4 => read_as(input, count, |bytes| {
            base.wrapping_add(i64::from(u32::from_le_bytes(bytes)))
        })?,
        8 => read_as(input, count, |bytes| {
            base.wrapping_add(i64::from_le_bytes(bytes))
        })?,
        _ => return damaged("a series of an unknown width"),
    })
}

fn read_as<const N: usize>(
    input: &mut Input<'_>,
    count: usize,
    value: impl Fn([u8; N]) -> i64,
) -> Result<Vec<i64>> {
    Ok(input
        .items(count)?
        .iter()
        .map(|bytes| value(*bytes))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_width_comes_back() {
        let cases: [(&[i64], usize); 9] = [
            (&[], 0),
            (&[7, 7, 7], 0),
            (&[-5, 250], 1),
            (&[-5, 251], 2),
            (&[0, 65_535], 2),
            (&[0, 65_536], 4),
            (&[0, i64::from(u32::MAX)], 4),
            (&[-1, i64::from(u32::MAX)], 8),
            (&[i64::MIN, 0, i64::MAX], 8),
        ];
        for (values, width) in cases {
            let mut out = Vec::new();
            write(&mut out, values);
            assert_eq!(out.len(), 9 + width * values.len(), "{values:?}");
            let mut input = Input::new(&out, out.len());
            assert_eq!(read(&mut input, values.len()).as_deref(), Ok(values));
            for cut in 0..out.len() {
                assert!(read(&mut Input::new(&out[..cut], cut), values.len()).is_err());
            }
        }
    }
}
