//! Compression in members: each is complete in itself (a gzip member, a zstd frame), and a file is any number of them,
//! one after the other, which every reader of these formats accepts.
//!
//! A flush ends the member and does not just write a flush point: everything acknowledged is in complete members, and
//! removing an incomplete one after a crash loses nothing. The cost is worse compression of slow streams.

use std::io::{self, Write};

use component::Compression;
use flate2::write::GzEncoder;

/// Compresses into one member after the other.
pub struct Compressor {
    compression: Compression,
    member: Option<Member>,
}

enum Member {
    Gzip(GzEncoder<Vec<u8>>),
    Zstd(zstd::stream::write::Encoder<'static, Vec<u8>>),
}

impl Compressor {
    /// A compressor without a member begun.
    pub fn new(compression: Compression) -> Self {
        Self {
            compression,
            member: None,
        }
    }

    /// Compresses `bytes` and appends to `out` what came of it so far; begins a member where none is.
    ///
    /// # Errors
    /// The compressor cannot be set up or is out of memory.
    pub fn write(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
        let member = match &mut self.member {
            Some(member) => member,
            None => self.member.insert(Member::begin(self.compression)?),
        };
        let ready = match member {
            Member::Gzip(encoder) => {
                encoder.write_all(bytes)?;
                encoder.get_mut()
            }
            Member::Zstd(encoder) => {
                encoder.write_all(bytes)?;
                encoder.get_mut()
            }
        };
        out.append(ready);
        Ok(())
    }

    /// Ends the member, if one is begun, and appends the rest of it to `out`.
    ///
    /// # Errors
    /// The compressor is out of memory.
    pub fn end_member(&mut self, out: &mut Vec<u8>) -> io::Result<()> {
        let mut rest = match self.member.take() {
            None => return Ok(()),
            Some(Member::Gzip(encoder)) => encoder.finish()?,
            Some(Member::Zstd(encoder)) => encoder.finish()?,
        };
        out.append(&mut rest);
        Ok(())
    }
}

impl Member {
    fn begin(compression: Compression) -> io::Result<Self> {
        Ok(match compression {
            Compression::Zstd(level) => {
                let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), level)?;
                encoder.include_checksum(true)?;
                Self::Zstd(encoder)
            }
            Compression::Gzip(level) => {
                Self::Gzip(GzEncoder::new(Vec::new(), flate2::Compression::new(level)))
            }
            Compression::None => {
                return Err(io::Error::other("an uncompressed file has no members"));
            }
        })
    }
}
