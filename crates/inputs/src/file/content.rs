//! A file as a source of bytes, and its content from any place on.
//!
//! Everything is read by position, so that two readers of one file never disturb each other, and nothing read ahead is
//! kept between two calls: an idle file costs its descriptor, and a compressed one that is being read its window.
//!
//! A plain file that is truncated and written again while it is read would give foreign bytes at our position. So every
//! read begins a little before the position, and what lies there must be what lay there before. The first read must give
//! what the file began with when it was judged.

use std::fs::File;
use std::io::{self, IoSliceMut};
use std::os::fd::AsFd;

use codec::compress::{Checkpoint, Decompressor, Format, recognise};
use codec::{CHECK_BYTES, Check, CodecError};
use rustix::fs::SeekFrom;
use rustix::io::{Errno, pread, preadv};

use super::pread::{read_exact_at, retry};
use super::state::fingerprint;
use super::trail::Trail;
use crate::reading::content::{self, ByteSource, Got};
use crate::reading::settings::Compression;

/// Compressed bytes read at once.
const COMPRESSED_BYTES: usize = 32 * 1024;

/// Bytes inflated at once where they are only passed over.
const PASSED_BYTES: usize = 64 * 1024;

/// Bytes before the position that every read of a plain file sees again.
const GUARD_BYTES: usize = 64;

/// NULs that are looked through, at most, for something behind them.
const NULS_MAX: u64 = 16 << 20;

/// Compressed bytes that are read to see how a file begins.
const HEAD_COMPRESSED_BYTES: usize = 8 * 1024;

/// Memory that a thread reads with, whatever the file is.
#[derive(Debug)]
pub(crate) struct Scratch {
    pub(crate) compressed: Vec<u8>,
    passed: Vec<u8>,
}

impl Default for Scratch {
    fn default() -> Self {
        Self {
            compressed: vec![0; COMPRESSED_BYTES],
            passed: vec![0; PASSED_BYTES],
        }
    }
}

/// The content of a file from some place on.
pub(crate) type Content = content::Content<FileSource>;

/// The bytes of a file.
pub(crate) struct FileSource {
    file: File,
    /// The bytes before the position, in a plain file.
    guard: Vec<u8>,
    /// Whether NULs at the end are taken for room that is still to be written to.
    awaits_nuls: bool,
    /// What the content must begin with, where its start was not read yet.
    beginning: Option<Check>,
}

impl ByteSource for FileSource {
    fn read(&mut self, offset: u64, into: &mut [u8]) -> io::Result<Got> {
        read_plain(&self.file, offset, &mut self.guard, into, self.awaits_nuls)
    }

    fn compressed<'a>(
        &'a mut self,
        offset: u64,
        scratch: &'a mut [u8],
        _: bool,
    ) -> io::Result<Option<&'a [u8]>> {
        let read = retry(|| pread(self.file.as_fd(), &mut *scratch, offset))?;
        Ok(Some(&scratch[..read]))
    }

    fn size(&self) -> Option<u64> {
        self.file.metadata().ok().map(|found| found.len())
    }

    fn begins_right(&mut self, first: &[u8], room: usize, is_compressed: bool) -> io::Result<bool> {
        let Some(expected) = self.beginning.take() else {
            return Ok(true);
        };
        let len = usize::from(expected.len);
        if let Some(head) = first.get(..len) {
            return Ok(fingerprint(head) == expected);
        }
        if is_compressed {
            // With less room than the fingerprint is long nobody can tell.
            return Ok(first.len() == room);
        }
        let mut head = vec![0; len];
        let again = read_exact_at(&self.file, &mut head, 0)?;
        Ok(head.starts_with(first) && fingerprint(&head[..again]) == expected)
    }
}

impl Content {
    /// The content of a file from its start, or from a checkpoint on.
    ///
    /// # Errors
    /// A checkpoint that cannot be used.
    pub(crate) fn of_file(
        file: File,
        format: Option<Format>,
        checkpoint: Option<&Checkpoint>,
    ) -> Result<Self, CodecError> {
        let decompressor = match (format, checkpoint) {
            (None, _) => None,
            (Some(_), Some(checkpoint)) => Some(Decompressor::resume(checkpoint)?),
            (Some(format), None) => Some(Decompressor::new(format)),
        };
        let source = FileSource {
            file,
            guard: Vec::new(),
            awaits_nuls: false,
            beginning: None,
        };
        Ok(Self::new(source, decompressor))
    }

    /// Gives nothing unless the content begins with what this fingerprint was made of: between the two the file may have been
    /// truncated and written again.
    pub(crate) fn expect_beginning(&mut self, fingerprint: Check) {
        let is_at_start = self.offset() == 0;
        self.source_mut().beginning = Some(fingerprint).filter(|_| is_at_start);
    }

    /// Takes NULs at the end of a plain file for room that was reserved and is still to be written to: they are not read.
    pub(crate) fn await_nuls(&mut self) {
        self.source_mut().awaits_nuls = true;
    }

    /// Whether a plain file has bytes behind the offset that can be read.
    pub(crate) fn has_more(&self) -> bool {
        let (file, offset) = (self.file(), self.offset());
        let size = file.metadata().map_or(0, |found| found.len());
        !self.is_compressed()
            && size > offset
            && !(self.source().awaits_nuls && is_unwritten(file, offset).unwrap_or(false))
    }

    /// The file.
    pub(crate) fn file(&self) -> &File {
        &self.source().file
    }

    /// Passes over what lies before `target`, `limit` bytes at most. `trail` learns what was passed; what it knows at the start
    /// was said by a checkpoint.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn pass(
        &mut self,
        target: u64,
        limit: u64,
        trail: &mut Trail,
        scratch: &mut Scratch,
    ) -> io::Result<Got> {
        if !self.is_compressed() {
            return self.jump(target, trail);
        }
        let Scratch { compressed, passed } = scratch;
        let end = target.min(self.offset().saturating_add(limit));
        let mut got = Ok(Got::Bytes(0));
        while self.offset() < end {
            let room = passed.len().min((end - self.offset()) as usize);
            got = self.read(&mut passed[..room], compressed);
            let Ok(Got::Bytes(read)) = got else { break };
            trail.add(self.offset() - read as u64, &passed[..read]);
        }
        got
    }

    /// Goes to `target` in a plain file and reads what lies before it.
    fn jump(&mut self, target: u64, trail: &mut Trail) -> io::Result<Got> {
        let size = self.file().metadata()?.len();
        let target = target.min(size);
        let start = target.saturating_sub(CHECK_BYTES as u64);
        let mut tail = vec![0; (target - start) as usize];
        if read_exact_at(self.file(), &mut tail, start)? < tail.len() {
            return Ok(Got::Replaced);
        }
        *trail = Trail::starting_at(target, &tail);
        self.go_to(target);
        let guard = &mut self.source_mut().guard;
        guard.clear();
        guard.extend_from_slice(&tail[tail.len().saturating_sub(GUARD_BYTES)..]);
        Ok(Got::Bytes(0))
    }

    /// Reads the last part of a plain file again that was passed by a jump, for what a trail wants to know of it.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn retrace(&self, scratch: &mut Scratch) -> io::Result<Trail> {
        let start = Trail::start_before(self.offset());
        let mut trail = Trail::starting_at(start, &[]);
        while trail.end() < self.offset() {
            let room = scratch
                .passed
                .len()
                .min((self.offset() - trail.end()) as usize);
            let read = read_exact_at(self.file(), &mut scratch.passed[..room], trail.end())?;
            if read == 0 {
                break;
            }
            trail.add(trail.end(), &scratch.passed[..read]);
        }
        Ok(trail)
    }
}

fn read_plain(
    file: &File,
    offset: u64,
    guard: &mut Vec<u8>,
    into: &mut [u8],
    awaits_nuls: bool,
) -> io::Result<Got> {
    let mut seen = [0; GUARD_BYTES];
    let seen = &mut seen[..guard.len()];
    let len = seen.len();
    let mut parts = [IoSliceMut::new(seen), IoSliceMut::new(into)];
    let read = retry(|| preadv(file.as_fd(), &mut parts, offset - len as u64))?;
    if read < len || seen != &guard[..] {
        return Ok(Got::Replaced);
    }
    let mut read = read - len;
    if awaits_nuls && into[..read].ends_with(&[0]) {
        read = written_bytes(file, offset, &mut into[..read])?;
        if read == 0 {
            return Ok(Got::Nothing);
        }
    }
    if read == 0 {
        // Where the disk fails right behind what was seen again, the system gives just that: asked for what follows
        // alone, it says why there is no more.
        retry(|| pread(file.as_fd(), &mut [0], offset))?;
        return Ok(Got::Nothing);
    }
    let kept = &into[read.saturating_sub(GUARD_BYTES)..read];
    guard.drain(..(guard.len() + kept.len()).saturating_sub(GUARD_BYTES));
    guard.extend_from_slice(kept);
    Ok(Got::Bytes(read))
}

/// How many of the bytes at `offset`, which end with NULs, are content and not room that is still to be written to.
///
/// Somebody may be writing there. So what stands before the first NUL is given first; and NULs before something else are content
/// only if they are still there when that has been seen, because room is written to from its start.
fn written_bytes(file: &File, offset: u64, bytes: &mut [u8]) -> io::Result<usize> {
    let before_nul = |bytes: &[u8]| bytes.iter().position(|byte| *byte == 0);
    let written = before_nul(bytes).unwrap_or(bytes.len());
    if written > 0 {
        return Ok(written);
    }
    if is_unwritten(file, offset)? {
        return Ok(0);
    }
    let read = read_exact_at(file, bytes, offset)?;
    let bytes = &bytes[..read];
    let nuls = bytes.iter().take_while(|byte| **byte == 0).count();
    let behind = &bytes[nuls..];
    Ok(nuls + before_nul(behind).unwrap_or(behind.len()))
}

/// How many bytes there are before the NULs at the end.
fn without_nuls(bytes: &[u8]) -> usize {
    let last = bytes.iter().rposition(|byte| *byte != 0);
    last.map_or(0, |last| last + 1)
}

/// Whether a file holds nothing but NULs from an offset to its end: somebody reserved room, and writes to it later. Where
/// there are too many to look through, they are content.
fn is_unwritten(file: &File, mut from: u64) -> io::Result<bool> {
    let mut bytes = vec![0; PASSED_BYTES];
    let limit = from.saturating_add(NULS_MAX);
    while from < limit {
        // What was never written to needs no reading, where the file system tells.
        match rustix::fs::seek(file, SeekFrom::Data(from)) {
            Ok(data) => from = data,
            Err(Errno::NXIO) => return Ok(true),
            Err(_) => {}
        }
        let read = read_exact_at(file, &mut bytes, from)?;
        if read == 0 {
            return Ok(true);
        }
        if bytes[..read].iter().any(|byte| *byte != 0) {
            return Ok(false);
        }
        from += read as u64;
    }
    Ok(false)
}

/// Where the NULs begin that a plain file ends with; its size where it ends with something else, or with too many of them.
///
/// # Errors
/// What the system says.
pub(crate) fn written_end(file: &File, size: u64) -> io::Result<u64> {
    let mut bytes = vec![0; PASSED_BYTES];
    let mut end = size;
    while end > size.saturating_sub(NULS_MAX) {
        let start = end.saturating_sub(bytes.len() as u64);
        let read = read_exact_at(file, &mut bytes[..(end - start) as usize], start)?;
        let written = without_nuls(&bytes[..read]);
        if written > 0 {
            return Ok(start + written as u64);
        }
        end = start;
    }
    Ok(if end == 0 { 0 } else { size })
}

/// How a file begins.
#[derive(Debug)]
pub(crate) struct Head {
    pub(crate) format: Option<Format>,
    /// The first bytes, decompressed.
    pub(crate) bytes: Vec<u8>,
    /// Whether these are all there are, and no more can come without the file being changed.
    pub(crate) is_whole: bool,
}

impl Head {
    /// Reads the first `len` bytes of a file.
    ///
    /// # Errors
    /// What the system says, or data that is not compressed as it must be.
    pub(crate) fn read(file: &File, compression: Compression, len: usize) -> io::Result<Self> {
        let mut raw = vec![0; len.max(HEAD_COMPRESSED_BYTES)];
        let read = read_exact_at(file, &mut raw, 0)?;
        raw.truncate(read);
        let format = match compression {
            Compression::None => None,
            Compression::Gzip => Some(Format::Gzip),
            Compression::Zstd => Some(Format::Zstd),
            Compression::Auto => recognise(&raw),
        };
        let Some(format) = format else {
            let is_whole = raw.len() <= len;
            raw.truncate(len);
            if raw.ends_with(&[0]) {
                // What is still to be written to says nothing.
                let written = without_nuls(&raw);
                if is_unwritten(file, written as u64)? {
                    raw.truncate(written);
                }
            }
            return Ok(Self {
                format: None,
                bytes: raw,
                is_whole,
            });
        };
        let mut content = Content::of_file(file.try_clone()?, Some(format), None)
            .expect("the start of a file is no checkpoint");
        let (mut bytes, mut filled) = (vec![0; len], 0);
        let mut scratch = Scratch::default();
        let is_whole = loop {
            if filled == len {
                break false;
            }
            match content.read(&mut bytes[filled..], &mut scratch.compressed)? {
                Got::Bytes(more) => filled += more,
                other => break matches!(other, Got::End),
            }
        };
        bytes.truncate(filled);
        Ok(Self {
            format: Some(format),
            bytes,
            is_whole,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, OpenOptions};
    use std::io::Write;

    use super::*;

    fn open(path: &std::path::Path) -> Content {
        Content::of_file(File::open(path).unwrap(), None, None).unwrap()
    }

    #[test]
    fn a_plain_file_is_read_as_it_grows_and_a_replaced_one_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.log");
        fs::write(&path, "one\n").unwrap();
        let (mut content, mut scratch) = (open(&path), Scratch::default());
        let mut into = [0; 100];
        let mut read =
            |content: &mut Content| content.read(&mut into, &mut scratch.compressed).unwrap();
        assert!(matches!(read(&mut content), Got::Bytes(4)));
        assert!(matches!(read(&mut content), Got::Nothing));
        let mut file = OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(b"two\n").unwrap();
        assert!(matches!(read(&mut content), Got::Bytes(4)));
        assert_eq!(content.offset(), 8);
        fs::write(&path, "other content that is longer\n").unwrap();
        assert!(matches!(read(&mut content), Got::Replaced));
        fs::write(&path, "x").unwrap();
        assert!(matches!(read(&mut content), Got::Replaced));
    }

    #[test]
    fn a_file_that_was_written_again_before_it_was_read_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.log");
        let mut scratch = Scratch::default();
        let judged = b"one\ntwo\n";
        for (now, room, is_same) in [
            ("one\ntwo\n", 100, true),
            ("one\ntwo\nthree\n", 100, true),
            ("one\ntwo\nthree\n", 3, true),
            ("one\ntwn\nthree\n", 100, false),
            ("one\ntwn\nthree\n", 3, false),
            ("one\n", 100, false),
            ("one\n", 3, false),
        ] {
            fs::write(&path, now).unwrap();
            let mut content = open(&path);
            content.expect_beginning(fingerprint(judged));
            let mut into = vec![0; room];
            let got = content.read(&mut into, &mut scratch.compressed).unwrap();
            assert_eq!(
                matches!(got, Got::Bytes(read) if read == room.min(now.len())),
                is_same,
                "{now:?} {room}: {got:?}"
            );
            assert_eq!(matches!(got, Got::Replaced), !is_same);
        }
    }

    #[test]
    fn room_that_was_reserved_is_read_when_it_is_written_to() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.log");
        let mut into = [0; 8192];
        // NULs that were written, and a hole.
        for hole in [false, true] {
            fs::write(&path, if hole { vec![] } else { vec![0; 100_000] }).unwrap();
            let file = OpenOptions::new().write(true).open(&path).unwrap();
            file.set_len(100_000).unwrap();
            let (mut content, mut scratch) = (open(&path), Scratch::default());
            content.await_nuls();
            let mut read =
                |content: &mut Content| content.read(&mut into, &mut scratch.compressed).unwrap();
            let head = Head::read(content.file(), Compression::Auto, 1024).unwrap();
            assert!(head.bytes.is_empty());
            assert!(matches!(read(&mut content), Got::Nothing));
            for (at, line) in [(0, "one\n"), (4, "and two\n")] {
                std::os::unix::fs::FileExt::write_all_at(&file, line.as_bytes(), at).unwrap();
                assert!(content.has_more());
                assert!(matches!(read(&mut content), Got::Bytes(len) if len == line.len()));
                assert!(matches!(read(&mut content), Got::Nothing));
                assert!(!content.has_more());
            }
            let head = Head::read(content.file(), Compression::Auto, 1024).unwrap();
            assert_eq!(head.bytes, b"one\nand two\n");
            assert_eq!(written_end(content.file(), 100_000).unwrap(), 12);
            // NULs before something else are content.
            std::os::unix::fs::FileExt::write_all_at(&file, b"end", 99_997).unwrap();
            assert!(matches!(read(&mut content), Got::Bytes(8192)));
            assert_eq!(content.offset(), 12 + 8192);
            assert_eq!(written_end(content.file(), 100_000).unwrap(), 100_000);
        }
    }

    /// Whatever instant a read falls on, it gives no room before it is written to.
    #[test]
    fn room_that_is_written_to_while_it_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.log");
        fs::write(&path, vec![0; 300_000]).unwrap();
        let line = "a line of the log that somebody is writing just now\n";
        let lines = 4000;
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        let writer = std::thread::spawn(move || {
            for number in 0..lines {
                let at = (number * line.len()) as u64;
                std::os::unix::fs::FileExt::write_all_at(&file, line.as_bytes(), at).unwrap();
            }
        });
        let (mut content, mut scratch) = (open(&path), Scratch::default());
        content.await_nuls();
        let mut into = vec![0; 100_000];
        while content.offset() < (lines * line.len()) as u64 {
            match content.read(&mut into, &mut scratch.compressed).unwrap() {
                Got::Bytes(read) => assert!(!into[..read].contains(&0)),
                got => assert!(matches!(got, Got::Nothing)),
            }
        }
        writer.join().unwrap();
    }

    #[test]
    fn passing_gives_the_bytes_before_the_target() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        let text: Vec<u8> = (0..100_000u32).flat_map(u32::to_le_bytes).collect();
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(&text).unwrap();
        for (format, bytes) in [
            (None, text.clone()),
            (Some(Format::Gzip), gzip.finish().unwrap()),
        ] {
            fs::write(&path, bytes).unwrap();
            let file = File::open(&path).unwrap();
            let mut content = Content::of_file(file, format, None).unwrap();
            let (mut trail, mut scratch) = (Trail::default(), Scratch::default());
            while content.offset() < 300_001 {
                content
                    .pass(300_001, 100_000, &mut trail, &mut scratch)
                    .unwrap();
            }
            assert_eq!(content.offset(), 300_001);
            assert_eq!(trail.tail(), &text[300_001 - CHECK_BYTES..300_001]);
            let mut next = [0; 4];
            assert!(matches!(
                content.read(&mut next, &mut scratch.compressed).unwrap(),
                Got::Bytes(4)
            ));
            assert_eq!(next, text[300_001..300_005]);
        }
    }

    #[test]
    fn a_head_is_decompressed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(b"hello\nworld\n").unwrap();
        fs::write(&path, gzip.finish().unwrap()).unwrap();
        let file = File::open(&path).unwrap();
        let head = Head::read(&file, Compression::Auto, 1024).unwrap();
        assert_eq!(
            (head.format, &head.bytes[..], head.is_whole),
            (Some(Format::Gzip), &b"hello\nworld\n"[..], true)
        );
        let head = Head::read(&file, Compression::Auto, 5).unwrap();
        assert_eq!((&head.bytes[..], head.is_whole), (&b"hello"[..], false));
        let head = Head::read(&file, Compression::None, 2).unwrap();
        assert_eq!((head.format, &head.bytes[..]), (None, &[0x1F, 0x8B][..]));
    }
}
