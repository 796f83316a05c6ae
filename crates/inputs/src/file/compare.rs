//! Compares the bytes of a file that was found with those of a known one, as they are on disk.

use std::fs::File as Opened;
use std::io;
use std::sync::Arc;

use codec::{CHECK_BYTES, Check};

use super::pread::read_exact_at;
use super::state::{DeviceInode, File};
use super::watch::FoundFile;
use crate::paths::meta::Meta;

/// Whether a file is the beginning of a known one, judged by its last bytes as they are on disk: their check where it is.
/// None where the known one is not what it was a moment ago.
pub(super) fn is_part_of(found: &FoundFile, like: &Arc<File>) -> io::Result<Option<Option<Check>>> {
    let (path, place, least) = {
        let state = like.lock();
        // A position in compressed content says nothing about the size of the file.
        let least = match state.format {
            None => state.sent.offset,
            Some(_) => state.look.size,
        };
        (state.path.clone(), state.place, least)
    };
    let original = Opened::open(path)?;
    let meta = Meta::of_fd(&original)?;
    if place != Some(DeviceInode::of(&meta)) || meta.size < least {
        return Ok(None);
    }
    if meta.size < found.meta.size {
        return Ok(Some(None));
    }
    let len = found.meta.size.min(CHECK_BYTES as u64);
    let start = found.meta.size - len;
    let (mut one, mut other) = (vec![0; len as usize], vec![0; len as usize]);
    read_exact_at(&Opened::open(&found.path)?, &mut one, start)?;
    read_exact_at(&original, &mut other, start)?;
    if one == other {
        return Ok(Some(Some(Check::of(&one))));
    }
    // Different bytes say nothing about a file that was truncated meanwhile.
    let is_whole = Meta::of_fd(&original)?.size >= meta.size;
    Ok(is_whole.then_some(None))
}

/// Whether what a known file holds before `end` ends with `tail`; none where it is not at its path any more.
pub(super) fn ends_alike(like: &Arc<File>, end: u64, tail: &[u8]) -> io::Result<Option<bool>> {
    let (path, place) = {
        let state = like.lock();
        (state.path.clone(), state.place)
    };
    let original = match Opened::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other?,
    };
    let meta = Meta::of_fd(&original)?;
    if place != Some(DeviceInode::of(&meta)) {
        return Ok(None);
    }
    if meta.size < end {
        return Ok(Some(false));
    }
    let mut other = vec![0; tail.len()];
    read_exact_at(&original, &mut other, end - tail.len() as u64)?;
    Ok(Some(other == tail))
}

#[cfg(test)]
mod tests {
    use codec::Resume;
    use codec::compress::Format;

    use super::super::state::{FileStat, FileState};
    use super::*;

    #[test]
    fn a_compressed_file_is_compared_by_its_own_bytes() {
        let folder = tempfile::tempdir().expect("a folder");
        let write = |name: &str, bytes: &[u8]| {
            let path = folder.path().join(name);
            std::fs::write(&path, bytes).expect("written");
            let meta = Meta::of(&path).expect("there");
            (path, meta)
        };
        let (path, meta) = write("known.gz", b"as compressed: abcdefgh");
        let state = FileState {
            path,
            place: Some(DeviceInode::of(&meta)),
            look: FileStat::of(&meta),
            format: Some(Format::Gzip),
            sent: Resume {
                offset: 1 << 20,
                ..Resume::default()
            },
            ..FileState::default()
        };
        let known = File::new(1, state);
        for (bytes, wanted) in [
            (&b"as compressed: abcd"[..], Some(true)),
            (b"as compressed: xyzx", Some(false)),
            (b"as compressed: abcdefgh and more", Some(false)),
        ] {
            let (path, meta) = write("found.gz", bytes);
            let path = path.into();
            let part = is_part_of(&FoundFile { path, meta }, &known).expect("read");
            assert_eq!(part.map(|check| check.is_some()), wanted);
        }
    }
}
