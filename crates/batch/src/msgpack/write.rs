//! Writing values, each in its smallest encoding.

/// Appends nil.
#[inline]
pub fn write_nil(out: &mut Vec<u8>) {
    out.push(0xC0);
}

/// Appends a boolean.
#[inline]
pub fn write_bool(out: &mut Vec<u8>, value: bool) {
    out.push(0xC2 + u8::from(value));
}

/// Appends an integer.
#[inline]
pub fn write_i64(out: &mut Vec<u8>, value: i64) {
    if let Ok(value) = u64::try_from(value) {
        write_u64(out, value);
    } else if value >= -32 {
        out.push(value as u8);
    } else if let Ok(value) = i8::try_from(value) {
        put(out, 0xD0, value.to_be_bytes());
    } else if let Ok(value) = i16::try_from(value) {
        put(out, 0xD1, value.to_be_bytes());
    } else if let Ok(value) = i32::try_from(value) {
        put(out, 0xD2, value.to_be_bytes());
    } else {
        put(out, 0xD3, value.to_be_bytes());
    }
}

/// Appends an integer.
#[inline]
pub fn write_u64(out: &mut Vec<u8>, value: u64) {
    if value < 0x80 {
        out.push(value as u8);
    } else if let Ok(value) = u8::try_from(value) {
        put(out, 0xCC, value.to_be_bytes());
    } else if let Ok(value) = u16::try_from(value) {
        put(out, 0xCD, value.to_be_bytes());
    } else if let Ok(value) = u32::try_from(value) {
        put(out, 0xCE, value.to_be_bytes());
    } else {
        put(out, 0xCF, value.to_be_bytes());
    }
}

/// Appends a float, always with 64 bits.
#[inline]
pub fn write_f64(out: &mut Vec<u8>, value: f64) {
    put(out, 0xCB, value.to_be_bytes());
}

/// Appends a string of less than 4 GiB.
#[inline]
pub fn write_str(out: &mut Vec<u8>, text: &[u8]) {
    if text.len() < 32 {
        out.push(0xA0 | text.len() as u8);
    } else {
        sized(out, text.len(), [0xD9, 0xDA, 0xDB]);
    }
    out.extend_from_slice(text);
}

/// Appends binary data of less than 4 GiB.
#[inline]
pub fn write_bin(out: &mut Vec<u8>, data: &[u8]) {
    sized(out, data.len(), [0xC4, 0xC5, 0xC6]);
    out.extend_from_slice(data);
}

/// Appends an extension of less than 4 GiB.
#[inline]
pub fn write_ext(out: &mut Vec<u8>, kind: i8, data: &[u8]) {
    match data.len() {
        len @ (1 | 2 | 4 | 8 | 16) => out.push(0xD4 + len.trailing_zeros() as u8),
        len => sized(out, len, [0xC7, 0xC8, 0xC9]),
    }
    out.push(kind as u8);
    out.extend_from_slice(data);
}

/// Appends the head of a map of `members`, which follow as keys and values in turn.
#[inline]
pub fn write_map_header(out: &mut Vec<u8>, members: usize) {
    if members < 16 {
        out.push(0x80 | members as u8);
    } else {
        sized_wide(out, members, [0xDE, 0xDF]);
    }
}

/// Begins a map whose members are not counted yet, and gives its place for [`close_map`].
#[inline]
pub(crate) fn open_map(out: &mut Vec<u8>) -> usize {
    out.push(0x80);
    out.len() - 1
}

/// Sets the number of members in the head of the map at `start`, behind which they stand.
#[inline]
pub(crate) fn close_map(start: usize, members: usize, out: &mut Vec<u8>) {
    match u8::try_from(members) {
        Ok(members @ ..16) => out[start] = 0x80 | members,
        _ => widen(start, out, |head| write_map_header(head, members)),
    }
}

/// Replaces the head of one byte at `start` by a longer one.
#[cold]
pub(super) fn widen(start: usize, out: &mut Vec<u8>, write_head: impl FnOnce(&mut Vec<u8>)) {
    let mut head = Vec::with_capacity(5);
    write_head(&mut head);
    out.splice(start..=start, head);
}

/// Appends the head of an array of `elements`, which follow.
#[inline]
pub fn write_array_header(out: &mut Vec<u8>, elements: usize) {
    if elements < 16 {
        out.push(0x90 | elements as u8);
    } else {
        sized_wide(out, elements, [0xDC, 0xDD]);
    }
}

/// Appends a size of one byte with its marker, or a larger one.
#[inline(always)]
fn sized(out: &mut Vec<u8>, size: usize, [one, two, four]: [u8; 3]) {
    match u8::try_from(size) {
        Ok(size) => put(out, one, [size]),
        Err(_) => sized_wide(out, size, [two, four]),
    }
}

/// Appends a size of two or four bytes with its marker.
///
/// # Panics
/// The format has nothing for sizes from 4 GiB on; events are bounded far below that.
#[inline(always)]
fn sized_wide(out: &mut Vec<u8>, size: usize, [two, four]: [u8; 2]) {
    match u16::try_from(size) {
        Ok(size) => put(out, two, size.to_be_bytes()),
        Err(_) => {
            let size = u32::try_from(size).expect("nothing in an event reaches 4 GiB");
            put(out, four, size.to_be_bytes());
        }
    }
}

#[inline(always)]
fn put<const N: usize>(out: &mut Vec<u8>, marker: u8, bytes: [u8; N]) {
    out.push(marker);
    out.extend_from_slice(&bytes);
}
