//! Bytes that are read piece by piece, never beyond their end.

use super::WireError;

pub(super) type Result<T> = std::result::Result<T, WireError>;

pub(super) fn damaged<T>(what: &'static str) -> Result<T> {
    Err(WireError::Damaged(what))
}

/// Bytes being read, and how much memory what they say may still take.
pub(super) struct Input<'a> {
    bytes: &'a [u8],
    /// Where the next piece begins.
    pub at: usize,
    allowance: usize,
}

impl<'a> Input<'a> {
    /// Reads `bytes` of a payload of `payload_len`.
    pub fn new(bytes: &'a [u8], payload_len: usize) -> Self {
        Self {
            bytes,
            at: 0,
            allowance: payload_len.saturating_add(1 << 20).saturating_mul(64),
        }
    }

    /// Says that `count` items of `size` bytes are about to be allocated.
    pub fn charge(&mut self, count: usize, size: usize) -> Result<()> {
        let left = count
            .checked_mul(size)
            .and_then(|bytes| self.allowance.checked_sub(bytes));
        match left {
            Some(left) => {
                self.allowance = left;
                Ok(())
            }
            None => damaged("it asks for more memory than it can need"),
        }
    }

    /// The next `len` bytes.
    pub fn take(&mut self, len: usize) -> Result<&'a [u8]> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        match rest.get(..len) {
            Some(taken) => {
                self.at += len;
                Ok(taken)
            }
            None => damaged("it ends too early"),
        }
    }

    /// Items of a fixed size.
    pub fn items<const N: usize>(&mut self, count: usize) -> Result<&'a [[u8; N]]> {
        let Some(len) = count.checked_mul(N) else {
            return damaged("it ends too early");
        };
        Ok(self.take(len)?.as_chunks().0)
    }

    pub fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        match self.items(1)? {
            [array] => Ok(*array),
            _ => damaged("it ends too early"),
        }
    }

    pub fn u8(&mut self) -> Result<u8> {
        Ok(self.array::<1>()?[0])
    }

    pub fn u16(&mut self) -> Result<u16> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    pub fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    pub fn i64(&mut self) -> Result<i64> {
        Ok(i64::from_le_bytes(self.array()?))
    }

    pub fn text(&mut self) -> Result<&'a str> {
        let len = self.u32()? as usize;
        match simdutf8::basic::from_utf8(self.take(len)?) {
            Ok(text) => Ok(text),
            Err(_) => damaged("a name is not UTF-8"),
        }
    }
}
