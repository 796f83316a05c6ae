//! What a writer that was killed leaves behind: a file that ends in half a line, or in half a compressed member.
//!
//! Such an end was never acknowledged as delivered, so it is cut when the file is opened again; otherwise the next line
//! would continue it. What does not look like a torn end of our own is never cut:
//! - a file that holds something else is refused ([`Found::Foreign`]);
//! - damage in the middle of a compressed file is left as it is ([`Found::Damaged`]), the file has to be put aside.
//!
//! A tail of zeros, which some file systems leave after a power failure, counts as torn. Memory is bounded; finding the
//! last whole member takes one pass of decompression over the file.

use std::fs::File;
use std::io::{self, BufRead, Read};
use std::os::unix::fs::FileExt;

use super::compressor::Compression;

const CHUNK: usize = 64 * 1024;

/// What a file holds that is there already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// It can be appended to once it is cut to `keep` bytes.
    Torn {
        /// Bytes to keep.
        keep: u64,
    },
    /// It can be appended to.
    Whole,
    /// Members up to this byte are fine, then comes one that is broken although the file goes on.
    Damaged {
        /// Where the broken member begins.
        at: u64,
    },
    /// It is something else than what the output writes.
    Foreign,
}

/// Looks at the end of a file. `begins` is the byte that each line begins with, where that is known.
///
/// # Errors
/// The file cannot be read.
pub fn examine(file: &File, compression: Compression, begins: Option<u8>) -> io::Result<Found> {
    let len = file.metadata()?.len();
    match compression {
        _ if len == 0 => Ok(Found::Whole),
        Compression::None => examine_lines(file, len, begins),
        compression => examine_members(file, len, compression),
    }
}

fn examine_lines(file: &File, len: u64, begins: Option<u8>) -> io::Result<Found> {
    let mut chunk = vec![0; CHUNK];
    let mut end = len;
    let keep = loop {
        let start = end.saturating_sub(CHUNK as u64);
        let part = &mut chunk[..(end - start) as usize];
        file.read_exact_at(part, start)?;
        match memchr::memrchr(b'\n', part) {
            Some(at) => break start + at as u64 + 1,
            None if start == 0 => break 0,
            None => end = start,
        }
    };
    if keep == len {
        return Ok(Found::Whole);
    }
    let mut first = [0];
    file.read_exact_at(&mut first, keep)?;
    let is_ours = begins.is_none_or(|begins| first[0] == begins || first[0] == 0);
    Ok(if is_ours {
        Found::Torn { keep }
    } else {
        Found::Foreign
    })
}

fn examine_members(file: &File, len: u64, compression: Compression) -> io::Result<Found> {
    let mut reader = Reader::new(file);
    let mut scratch = vec![0; CHUNK];
    while reader.position() < len {
        let start = reader.position();
        let result = match compression {
            Compression::Zstd(_) => skip_zstd(&mut reader, &mut scratch),
            _ => skip_all(flate2::bufread::GzDecoder::new(&mut reader), &mut scratch),
        };
        let Err(error) = result else { continue };
        if error.raw_os_error().is_some() {
            return Err(error);
        }
        let magic: &[u8] = match compression {
            Compression::Zstd(_) => &[0x28, 0xb5, 0x2f, 0xfd],
            _ => &[0x1f, 0x8b],
        };
        let mut head = [0; 4];
        let head = &mut head[..magic.len().min((len - start) as usize)];
        file.read_exact_at(head, start)?;
        let begins_well = magic.starts_with(head);
        let is_torn =
            (begins_well && reader.is_at_end()) || is_zeros(file, start, len, &mut scratch)?;
        return Ok(match (is_torn, start, begins_well) {
            (true, keep, _) => Found::Torn { keep },
            (false, 0, false) => Found::Foreign,
            (false, at, _) => Found::Damaged { at },
        });
    }
    Ok(Found::Whole)
}

fn skip_zstd(reader: &mut Reader<'_>, scratch: &mut [u8]) -> io::Result<()> {
    skip_all(
        zstd::stream::read::Decoder::with_buffer(reader)?.single_frame(),
        scratch,
    )
}

fn skip_all(mut decoder: impl Read, scratch: &mut [u8]) -> io::Result<()> {
    while decoder.read(scratch)? > 0 {}
    Ok(())
}

fn is_zeros(file: &File, start: u64, len: u64, scratch: &mut [u8]) -> io::Result<bool> {
    let mut pos = start;
    while pos < len {
        let part = scratch.len().min((len - pos) as usize);
        file.read_exact_at(&mut scratch[..part], pos)?;
        if scratch[..part].iter().any(|&byte| byte != 0) {
            return Ok(false);
        }
        pos += part as u64;
    }
    Ok(true)
}

/// A buffered reader that knows exactly how far it was consumed, and whether that was all.
struct Reader<'a> {
    file: &'a File,
    buffer: Vec<u8>,
    /// Where the buffer begins in the file.
    base: u64,
    pos: usize,
    len: usize,
    ended: bool,
}

impl<'a> Reader<'a> {
    fn new(file: &'a File) -> Self {
        Self {
            file,
            buffer: vec![0; CHUNK],
            base: 0,
            pos: 0,
            len: 0,
            ended: false,
        }
    }

    fn position(&self) -> u64 {
        self.base + self.pos as u64
    }

    /// Whether somebody wanted to read beyond the end.
    fn is_at_end(&self) -> bool {
        self.ended
    }
}

impl BufRead for Reader<'_> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.pos == self.len {
            self.base += self.len as u64;
            self.pos = 0;
            self.len = 0;
            self.len = self.file.read_at(&mut self.buffer, self.base)?;
            self.ended = self.len == 0;
        }
        Ok(&self.buffer[self.pos..self.len])
    }

    fn consume(&mut self, amount: usize) {
        self.pos += amount;
    }
}

impl Read for Reader<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let mut available = self.fill_buf()?;
        let read = available.read(out)?;
        self.consume(read);
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::super::compressor::Compressor;
    use super::*;

    fn examined(content: &[u8], compression: Compression) -> Found {
        let mut file = tempfile::tempfile().expect("a temporary file");
        file.write_all(content).expect("it takes the bytes");
        examine(&file, compression, Some(b'{')).expect("it reads")
    }

    #[test]
    fn half_a_line_is_found() {
        let long = [b"{\"a\":1}\n".as_slice(), b"{", &[b'x'; 200_000]].concat();
        for (content, expected) in [
            (b"".as_slice(), Found::Whole),
            (b"{}\n", Found::Whole),
            (b"{}\n{\"a", Found::Torn { keep: 3 }),
            (b"{\"a", Found::Torn { keep: 0 }),
            (b"{}\n\0\0\0", Found::Torn { keep: 3 }),
            (long.as_slice(), Found::Torn { keep: 8 }),
            (b"a letter to my friend", Found::Foreign),
            (b"{}\nroot:x", Found::Foreign),
        ] {
            assert_eq!(examined(content, Compression::None), expected);
        }
    }

    fn member(text: &[u8], compression: Compression) -> Vec<u8> {
        let mut compressor = Compressor::new(compression);
        let mut out = Vec::new();
        compressor.write(text, &mut out).expect("it compresses");
        compressor.end_member(&mut out).expect("it ends");
        out
    }

    #[test]
    fn half_a_member_is_found_wherever_it_breaks() {
        let text: Vec<u8> = (0..100_000_u32)
            .flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes())
            .collect();
        for compression in [Compression::Gzip(1), Compression::Zstd(1)] {
            let first = member(&text, compression);
            let second = member(b"{\"a\":\"a few words more\"}\n", compression);
            let keep = first.len() as u64;
            let whole = [first.clone(), second.clone()].concat();
            assert_eq!(examined(&whole, compression), Found::Whole);
            for cut in 1..second.len() {
                assert_eq!(
                    examined(&whole[..first.len() + cut], compression),
                    Found::Torn { keep },
                    "{cut}"
                );
            }
            assert_eq!(
                examined(&first[..first.len() / 2], compression),
                Found::Torn { keep: 0 }
            );
            assert_eq!(
                examined(&[first.clone(), vec![0; 100_000]].concat(), compression),
                Found::Torn { keep }
            );
            let mut damaged = [first.clone(), second.clone(), first.clone()].concat();
            damaged[first.len() + second.len() / 2] ^= 0x55;
            assert_eq!(examined(&damaged, compression), Found::Damaged { at: keep });
            assert_eq!(examined(b"{\"plain\":1}\n", compression), Found::Foreign);
        }
    }
}
