//! What a writer that was killed leaves behind: a file that ends in half a line, or in half a compressed member.
//!
//! Such an end was never acknowledged as delivered, so it is cut when the file is opened again; otherwise the next line
//! would continue it. What does not look like a torn end of our own is never cut:
//! - a last line of JSON that lacks nothing but its newline, and any last line of text, where nothing tells ours from
//!   somebody else's, is kept and gets a newline ([`ExistingFile::Unended`]);
//! - a file that holds something else is refused ([`ExistingFile::Foreign`]);
//! - damage in the middle of a compressed file, or one of MessagePack, is left as it is, and so is a file of nothing but zeros, or with nothing whole
//!   before its torn end ([`ExistingFile::Damaged`]): the file has to be put aside, unless the journal of an earlier run told that it
//!   is ours ([`super::mend`]).
//!
//! A tail of zeros behind something of ours, which some file systems leave after a power failure, counts as torn. Memory
//! is bounded; finding the last whole member takes one pass of decompression over the file.

use std::fs::File;
use std::io::{self, BufRead, Read};
use std::os::unix::fs::FileExt;

use batch::msgpack::Extent;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::error::Category;

use component::Compression;

const CHUNK: usize = 64 * 1024;

/// What a file holds that is there already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExistingFile {
    /// It can be appended to once it is cut to `keep` bytes.
    Torn {
        /// Bytes to keep.
        keep: u64,
    },
    /// It can be appended to.
    Whole,
    /// It can be appended to once it is cut to `keep` bytes and the line that ends there got its newline.
    Unended {
        /// Bytes to keep.
        keep: u64,
    },
    /// Everything up to this byte is fine, then comes something that is broken although the file goes on.
    Damaged {
        /// Where the broken part begins.
        at: u64,
    },
    /// It is something else than what the output writes.
    Foreign,
}

/// What the events of an uncompressed file are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lines {
    /// A JSON object each.
    Json,
    /// Any text: nothing tells a torn line of ours from somebody else's.
    Text,
    /// MessagePack maps, one after the other, and no lines.
    MsgPack,
}

/// Looks at the end of a file.
///
/// # Errors
/// The file cannot be read.
pub fn examine(file: &File, compression: Compression, lines: Lines) -> io::Result<ExistingFile> {
    let len = file.metadata()?.len();
    match compression {
        _ if len == 0 => Ok(ExistingFile::Whole),
        Compression::None if lines == Lines::MsgPack => examine_maps(file, len),
        Compression::None => examine_lines(file, len, lines),
        compression => Ok(match examine_members(file, 0, len, compression)? {
            // Nothing whole stands before it, so nothing says that it is ours: it is put aside, not cut away.
            ExistingFile::Torn { keep: 0 } => ExistingFile::Damaged { at: 0 },
            found => found,
        }),
    }
}

fn examine_lines(file: &File, len: u64, lines: Lines) -> io::Result<ExistingFile> {
    let mut last = [0];
    file.read_exact_at(&mut last, len - 1)?;
    if last == *b"\n" {
        return Ok(ExistingFile::Whole);
    }
    if lines == Lines::Text {
        return Ok(ExistingFile::Unended { keep: len });
    }
    let start = after_last(file, len, |part| memchr::memrchr(b'\n', part))?;
    let end = after_last(file, len, |part| part.iter().rposition(|&byte| byte != 0))?;
    if end == 0 {
        return Ok(ExistingFile::Damaged { at: 0 });
    }
    examine_json(file, start, end)
}

/// Where the last byte ends that `find` finds in a part of the file; 0 where there is none.
fn after_last(file: &File, len: u64, find: impl Fn(&[u8]) -> Option<usize>) -> io::Result<u64> {
    let mut chunk = vec![0; CHUNK];
    let mut end = len;
    while end > 0 {
        let start = end.saturating_sub(CHUNK as u64);
        let part = &mut chunk[..(end - start) as usize];
        file.read_exact_at(part, start)?;
        if let Some(at) = find(part) {
            return Ok(start + at as u64 + 1);
        }
        end = start;
    }
    Ok(0)
}

/// Looks at a last line from `start` to `end`, behind which there are only zeros: it is ours when it is a JSON object or
/// the beginning of one.
fn examine_json(file: &File, start: u64, end: u64) -> io::Result<ExistingFile> {
    let torn = ExistingFile::Torn { keep: start };
    if start == end {
        return Ok(torn);
    }
    let mut first = [0];
    file.read_exact_at(&mut first, start)?;
    if first != *b"{" {
        return Ok(ExistingFile::Foreign);
    }
    let line = CountingReader::from(file, start).take(end - start);
    let mut parser = serde_json::Deserializer::from_reader(line);
    match IgnoredAny::deserialize(&mut parser).and_then(|_| parser.end()) {
        Ok(()) => Ok(ExistingFile::Unended { keep: end }),
        Err(error) => match error.classify() {
            Category::Eof => Ok(torn),
            Category::Io => Err(error.into()),
            Category::Syntax | Category::Data => Ok(ExistingFile::Foreign),
        },
    }
}

/// Looks at a file of MessagePack maps from its beginning, because nothing in it marks where one begins.
fn examine_maps(file: &File, len: u64) -> io::Result<ExistingFile> {
    // A head is shorter, so that a map that goes on behind its bytes needs no more of them than these.
    const HEAD: usize = 16;
    let mut chunk = vec![0; CHUNK];
    let mut start = 0;
    while start < len {
        let mut extent = Extent::default();
        let mut at = start;
        let size = loop {
            let part = &mut chunk[..CHUNK.min((len - at) as usize)];
            file.read_exact_at(part, at)?;
            let is_map = at > start || matches!(part.first(), Some(0x80..=0x8f | 0xde | 0xdf));
            match extent.advance(part) {
                Ok(Some(size)) if is_map => break Some(at - start + size as u64),
                Ok(None) if is_map && at + (part.len() as u64) < len => {
                    let passed = part.len() - HEAD;
                    extent.forget(passed);
                    at += passed as u64;
                }
                Ok(None) if is_map => break None,
                _ => return foreign_map(file, start, len, &mut chunk),
            }
        };
        match size {
            Some(size) => start += size,
            // Nothing whole stands before it, so nothing says that it is ours: it is put aside, not cut away.
            None if start == 0 => return Ok(ExistingFile::Damaged { at: 0 }),
            None => return Ok(ExistingFile::Torn { keep: start }),
        }
    }
    Ok(ExistingFile::Whole)
}

/// What stands from `start` on, where a map should begin and none does.
fn foreign_map(file: &File, start: u64, len: u64, scratch: &mut [u8]) -> io::Result<ExistingFile> {
    let is_zeros = is_zeros(file, start, len, scratch)?;
    Ok(match start {
        0 if !is_zeros => ExistingFile::Foreign,
        keep if keep > 0 && is_zeros => ExistingFile::Torn { keep },
        at => ExistingFile::Damaged { at },
    })
}

/// Looks at the members from byte `from` on of a compressed file of `len` bytes.
///
/// # Errors
/// The file cannot be read.
pub fn examine_members(
    file: &File,
    from: u64,
    len: u64,
    compression: Compression,
) -> io::Result<ExistingFile> {
    let mut reader = CountingReader::from(file, from);
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
            (true, keep, _) => ExistingFile::Torn { keep },
            (false, 0, false) => ExistingFile::Foreign,
            (false, at, _) => ExistingFile::Damaged { at },
        });
    }
    Ok(ExistingFile::Whole)
}

/// Whether a file is empty, or an archive of nothing, as mending leaves it where nothing was whole.
///
/// # Errors
/// The file cannot be read.
pub fn holds_nothing(file: &File, compression: Compression) -> io::Result<bool> {
    const ARCHIVE_SIZE_MAX: u64 = 64;
    let metadata = file.metadata()?;
    let len = metadata.len();
    if len == 0 || !metadata.is_file() {
        return Ok(true);
    }
    if len > ARCHIVE_SIZE_MAX || compression == Compression::None {
        return Ok(false);
    }
    let mut archive = vec![0; len as usize];
    file.read_exact_at(&mut archive, 0)?;
    let mut content = Vec::new();
    match compression {
        Compression::Zstd(_) => zstd::stream::copy_decode(&*archive, &mut content)?,
        _ => {
            flate2::read::MultiGzDecoder::new(&*archive).read_to_end(&mut content)?;
        }
    }
    Ok(content.is_empty())
}

fn skip_zstd(reader: &mut CountingReader<'_>, scratch: &mut [u8]) -> io::Result<()> {
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
struct CountingReader<'a> {
    file: &'a File,
    buffer: Vec<u8>,
    /// Where the buffer begins in the file.
    base: u64,
    pos: usize,
    len: usize,
    ended: bool,
}

impl<'a> CountingReader<'a> {
    /// A reader that begins at a byte of the file.
    fn from(file: &'a File, base: u64) -> Self {
        Self {
            file,
            buffer: vec![0; CHUNK],
            base,
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

impl BufRead for CountingReader<'_> {
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

impl Read for CountingReader<'_> {
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

    use super::*;
    use crate::compressor::Compressor;

    fn examined(content: &[u8], compression: Compression, lines: Lines) -> ExistingFile {
        let mut file = tempfile::tempfile().expect("a temporary file");
        file.write_all(content).expect("it takes the bytes");
        examine(&file, compression, lines).expect("it reads")
    }

    fn examined_json(content: &[u8], compression: Compression) -> ExistingFile {
        examined(content, compression, Lines::Json)
    }

    #[test]
    fn half_a_line_of_json_is_found_and_nothing_else() {
        let long = [b"{\"a\":1}\n{\"".as_slice(), &[b'x'; 200_000]].concat();
        let binary = [b"{".as_slice(), &[0xfe; 99_600]].concat();
        let zeros_in_between = [b"{}\n".as_slice(), &[0; 70_000], b"end"].concat();
        for (content, expected) in [
            (b"".as_slice(), ExistingFile::Whole),
            (b"{}\n", ExistingFile::Whole),
            (b"{}\n{\"a", ExistingFile::Torn { keep: 3 }),
            (b"{\"a", ExistingFile::Torn { keep: 0 }),
            (b"{\"a\":\"\xc3", ExistingFile::Torn { keep: 0 }),
            (
                b"{}\n{\"a\":[1,{\"b\":tr\0\0",
                ExistingFile::Torn { keep: 3 },
            ),
            (b"{}\n\0\0\0", ExistingFile::Torn { keep: 3 }),
            (long.as_slice(), ExistingFile::Torn { keep: 8 }),
            // Whole events are kept, whoever wrote them.
            (b"{\"a\":1}", ExistingFile::Unended { keep: 7 }),
            (b"{}\n{\"a\":1}", ExistingFile::Unended { keep: 10 }),
            (b"{}\n{\"a\":1}\0\0", ExistingFile::Unended { keep: 10 }),
            (&[0; 100_000], ExistingFile::Damaged { at: 0 }),
            (b"a letter to my friend", ExistingFile::Foreign),
            (b"{}\nroot:x", ExistingFile::Foreign),
            (b"{\n  \"pretty\": 1\n}", ExistingFile::Foreign),
            (b"int main()\n{ return 0; }", ExistingFile::Foreign),
            (b"{\"a\":1} and more", ExistingFile::Foreign),
            (binary.as_slice(), ExistingFile::Foreign),
            (zeros_in_between.as_slice(), ExistingFile::Foreign),
        ] {
            let name = String::from_utf8_lossy(&content[..content.len().min(40)]);
            let found = examined_json(content, Compression::None);
            assert_eq!(found, expected, "{name}");
        }
    }

    #[test]
    fn text_is_never_cut() {
        for (content, expected) in [
            (b"".as_slice(), ExistingFile::Whole),
            (b"a\n", ExistingFile::Whole),
            (
                b"line one\nmy only copy",
                ExistingFile::Unended { keep: 21 },
            ),
            (b"a\n\0\0", ExistingFile::Unended { keep: 4 }),
            (b"\0", ExistingFile::Unended { keep: 1 }),
            (&[b'x'; 99_601], ExistingFile::Unended { keep: 99_601 }),
        ] {
            let found = examined(content, Compression::None, Lines::Text);
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn half_a_map_is_found_and_nothing_else() {
        let small = b"\x81\xa1a\x01".as_slice();
        // A map of a text of 200,000 bytes, and one of as many small values.
        let text = [
            b"\x81\xa1b\xdb\x00\x03\x0d\x40".as_slice(),
            &[b'x'; 200_000],
        ]
        .concat();
        let many = [b"\x81\xa1c\xdd\x00\x03\x0d\x40".as_slice(), &[7; 200_000]].concat();
        for map in [small, &text, &many] {
            let whole = [small, map, small].concat();
            let found = |content: &[u8]| examined(content, Compression::None, Lines::MsgPack);
            assert_eq!(found(&whole), ExistingFile::Whole);
            let behind = small.len() as u64;
            for cut in [1, 2, 3, map.len() / 2, map.len() - 1] {
                let cut = cut.min(map.len() - 1);
                let torn = &whole[..small.len() + cut];
                assert_eq!(found(torn), ExistingFile::Torn { keep: behind }, "{cut}");
                assert_eq!(found(&map[..cut]), ExistingFile::Damaged { at: 0 });
            }
            let at = (small.len() + map.len()) as u64;
            let zeros = [small, map, &[0; 70_000]].concat();
            assert_eq!(found(&zeros), ExistingFile::Torn { keep: at });
            let damaged = [small, map, b"text", small].concat();
            assert_eq!(found(&damaged), ExistingFile::Damaged { at });
        }
        for (content, expected) in [
            (b"".as_slice(), ExistingFile::Whole),
            (b"a letter", ExistingFile::Foreign),
            (b"\x93\x01\x02\x03", ExistingFile::Foreign),
            (&[0; 100], ExistingFile::Damaged { at: 0 }),
            (b"\x81\xc1", ExistingFile::Foreign),
        ] {
            let found = examined(content, Compression::None, Lines::MsgPack);
            assert_eq!(found, expected, "{content:?}");
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
            assert_eq!(examined_json(&whole, compression), ExistingFile::Whole);
            for cut in 1..second.len() {
                assert_eq!(
                    examined_json(&whole[..first.len() + cut], compression),
                    ExistingFile::Torn { keep },
                    "{cut}"
                );
            }
            assert_eq!(
                examined_json(&first[..first.len() / 2], compression),
                ExistingFile::Damaged { at: 0 }
            );
            assert_eq!(
                examined_json(&[first.clone(), vec![0; 100_000]].concat(), compression),
                ExistingFile::Torn { keep }
            );
            let mut damaged = [first.clone(), second.clone(), first.clone()].concat();
            damaged[first.len() + second.len() / 2] ^= 0x55;
            assert_eq!(
                examined_json(&damaged, compression),
                ExistingFile::Damaged { at: keep }
            );
            assert_eq!(
                examined_json(b"{\"plain\":1}\n", compression),
                ExistingFile::Foreign
            );
            let zeros = examined_json(&[0; 100], compression);
            assert_eq!(zeros, ExistingFile::Damaged { at: 0 });
        }
    }
}
