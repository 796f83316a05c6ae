//! Protocol Buffers: messages are read in place, and written straight into a buffer.
//!
//! Source: <https://protobuf.dev/programming-guides/encoding/>. Groups, which are deprecated, are malformed here.

/// A message is malformed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// The bytes end within a field.
    #[error("the message ends within a field")]
    Truncated,
    /// A varint of more than 64 bits.
    #[error("a number has more than 64 bits")]
    Overlong,
    /// A tag that no field has.
    #[error("a field has an invalid tag")]
    InvalidTag,
    /// A known field with the wire type of another.
    #[error("field {0} has the wrong type")]
    WrongType(u32),
    /// Values nest too deeply.
    #[error("values are nested too deeply")]
    TooDeep,
}

/// The value of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wire<'a> {
    /// A varint.
    Varint(u64),
    /// Eight bytes.
    Fixed64(u64),
    /// A text, bytes or a message.
    Bytes(&'a [u8]),
    /// Four bytes.
    Fixed32(u32),
}

impl<'a> Wire<'a> {
    /// The bytes of field `number`.
    ///
    /// # Errors
    /// It has another type.
    #[inline]
    pub fn bytes(self, number: u32) -> Result<&'a [u8], WireError> {
        match self {
            Self::Bytes(bytes) => Ok(bytes),
            _ => Err(WireError::WrongType(number)),
        }
    }

    /// The varint of field `number`.
    ///
    /// # Errors
    /// It has another type.
    #[inline]
    pub fn varint(self, number: u32) -> Result<u64, WireError> {
        match self {
            Self::Varint(value) => Ok(value),
            _ => Err(WireError::WrongType(number)),
        }
    }

    /// The eight bytes of field `number`.
    ///
    /// # Errors
    /// It has another type.
    #[inline]
    pub fn fixed64(self, number: u32) -> Result<u64, WireError> {
        match self {
            Self::Fixed64(value) => Ok(value),
            _ => Err(WireError::WrongType(number)),
        }
    }

    /// The four bytes of field `number`.
    ///
    /// # Errors
    /// It has another type.
    #[inline]
    pub fn fixed32(self, number: u32) -> Result<u32, WireError> {
        match self {
            Self::Fixed32(value) => Ok(value),
            _ => Err(WireError::WrongType(number)),
        }
    }
}

/// The fields of a message, in their order. Ends after an error.
#[derive(Debug, Clone)]
pub struct Fields<'a> {
    rest: &'a [u8],
}

/// Iterates over the fields of `message`.
#[inline]
pub fn fields(message: &[u8]) -> Fields<'_> {
    Fields { rest: message }
}

impl<'a> Fields<'a> {
    #[inline]
    fn varint(&mut self) -> Result<u64, WireError> {
        // Most are of one byte.
        if let Some((&byte @ 0..0x80, rest)) = self.rest.split_first() {
            self.rest = rest;
            return Ok(u64::from(byte));
        }
        let mut value = 0;
        for (index, &byte) in self.rest.iter().enumerate().take(10) {
            if index == 9 && byte > 1 {
                return Err(WireError::Overlong);
            }
            value |= u64::from(byte & 0x7F) << (7 * index);
            if byte < 0x80 {
                self.rest = &self.rest[index + 1..];
                return Ok(value);
            }
        }
        Err(WireError::Truncated)
    }

    #[inline]
    fn take<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let (bytes, rest) = self.rest.split_first_chunk().ok_or(WireError::Truncated)?;
        self.rest = rest;
        Ok(*bytes)
    }

    #[inline]
    fn field(&mut self) -> Result<(u32, Wire<'a>), WireError> {
        let tag = self.varint()?;
        let number = u32::try_from(tag >> 3).map_err(|_| WireError::InvalidTag)?;
        if number == 0 {
            return Err(WireError::InvalidTag);
        }
        let value = match tag & 7 {
            0 => Wire::Varint(self.varint()?),
            1 => Wire::Fixed64(u64::from_le_bytes(self.take()?)),
            2 => {
                let length = usize::try_from(self.varint()?).unwrap_or(usize::MAX);
                let split = self.rest.split_at_checked(length);
                let (bytes, rest) = split.ok_or(WireError::Truncated)?;
                self.rest = rest;
                Wire::Bytes(bytes)
            }
            5 => Wire::Fixed32(u32::from_le_bytes(self.take()?)),
            _ => return Err(WireError::InvalidTag),
        };
        Ok((number, value))
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u32, Wire<'a>), WireError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_err() {
            self.rest = &[];
        }
        Some(field)
    }
}

/// The tag of a field below 16 that holds a varint.
pub const fn varint_tag(number: u8) -> u8 {
    number << 3
}

/// The tag of a field below 16 that holds eight bytes.
pub const fn fixed64_tag(number: u8) -> u8 {
    number << 3 | 1
}

/// The tag of a field below 16 that holds a text, bytes or a message.
pub const fn bytes_tag(number: u8) -> u8 {
    number << 3 | 2
}

/// The tag of a field below 16 that holds four bytes.
pub const fn fixed32_tag(number: u8) -> u8 {
    number << 3 | 5
}

/// How many bytes [`write_varint`] writes.
#[inline]
pub const fn varint_len(value: u64) -> usize {
    // A byte for every seven bits, and one for zero.
    (64 - (value | 1).leading_zeros() as usize).div_ceil(7)
}

/// Appends a number in its shortest form.
#[inline]
pub fn write_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends a field that holds bytes.
#[inline]
pub fn write_bytes(out: &mut Vec<u8>, tag: u8, bytes: &[u8]) {
    out.push(tag);
    write_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// A message that is being written, and whose length is not known yet.
#[derive(Debug)]
#[must_use = "a message has a length once it is ended"]
pub struct Open {
    content: usize,
    reserved: usize,
}

impl Open {
    /// Begins a field that holds a message. Its content is not moved if its length takes `reserved` bytes.
    #[inline]
    pub fn begin(out: &mut Vec<u8>, tag: u8, reserved: usize) -> Self {
        out.push(tag);
        out.extend_from_slice(&[0; 4][..reserved]);
        Self {
            content: out.len(),
            reserved,
        }
    }

    /// Where its content begins.
    #[inline]
    pub fn start(&self) -> usize {
        self.content
    }

    /// The one that was begun with `reserved` bytes, whose content begins at `start`.
    #[inline]
    pub fn at(start: usize, reserved: usize) -> Self {
        Self {
            content: start,
            reserved,
        }
    }

    /// Ends it: what was appended since is its content.
    #[inline]
    pub fn end(self, out: &mut Vec<u8>) {
        let Self { content, reserved } = self;
        let length = out.len() - content;
        let needed = varint_len(length as u64);
        let at = content - reserved;
        if needed != reserved {
            out.resize(out.len().max(at + needed + length), 0);
            out.copy_within(content..content + length, at + needed);
            out.truncate(at + needed + length);
        }
        let mut value = length;
        for byte in &mut out[at..at + needed - 1] {
            *byte = value as u8 | 0x80;
            value >>= 7;
        }
        out[at + needed - 1] = value as u8;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_they_are_written() {
        for value in [0, 1, 127, 128, 300, 1 << 35, u64::MAX - 1, u64::MAX] {
            let mut out = vec![varint_tag(1)];
            write_varint(&mut out, value);
            assert_eq!(out.len(), 1 + varint_len(value), "{value}");
            let read: Vec<_> = fields(&out).collect();
            assert_eq!(read, [Ok((1, Wire::Varint(value)))]);
        }
    }

    #[test]
    fn lengths_of_any_size_are_filled_in() {
        for reserved in 0..=4 {
            for length in [0, 1, 127, 128, 16_383, 16_384, 3_000_000] {
                let content = vec![b'x'; length];
                let mut out = b"before".to_vec();
                let open = Open::begin(&mut out, bytes_tag(2), reserved);
                out.extend_from_slice(&content);
                open.end(&mut out);
                let mut expected = b"before".to_vec();
                write_bytes(&mut expected, bytes_tag(2), &content);
                assert!(out == expected, "{reserved}, {length}");
            }
        }
    }

    #[test]
    fn malformed_messages_are_refused_once() {
        for (bytes, error) in [
            (&[0x08][..], WireError::Truncated),
            (&[0x08, 0x80], WireError::Truncated),
            (&[0x09, 1, 2], WireError::Truncated),
            (&[0x0A, 5, 1], WireError::Truncated),
            (&[0x0D, 1], WireError::Truncated),
            (&[0x00, 1], WireError::InvalidTag),
            (&[0x0B], WireError::InvalidTag),
            (
                &[8, 255, 255, 255, 255, 255, 255, 255, 255, 255, 2],
                WireError::Overlong,
            ),
        ] {
            let read: Vec<_> = fields(bytes).collect();
            assert_eq!(read, [Err(error)], "{bytes:?}");
        }
        assert_eq!(Wire::Varint(1).bytes(7), Err(WireError::WrongType(7)));
    }
}
