//! How a file is kept in the registry: a MessagePack map with short names, so that later versions may add some.
//!
//! Key kind 1 holds files, kind 2 the newest checkpoint of a compressed file that is needed, both under the file's id. A
//! checkpoint has a hash of the compressed bytes before it, so that reading does not resume in the middle of rewritten data.
//! Kind 3 says, under a hash of its name, that an input has looked at its files once: what appears later is read from its
//! beginning. Kind 4 says, under the file's id, up to where events were sent at least: an offset, then length and hash of the
//! bytes before it, little-endian.
//!
//! That offset ties ids to content: an id and an offset always refer to the same bytes. It is written before events are sent, so
//! that a file that is rewritten after a crash is recognised as a different one. A longer fingerprint would not do, because
//! fingerprints fail if files share a header. The cost is one write to the registry per chunk, for the first 64 KiB of a file
//! only.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use codec::compress::Format;
use codec::{Check, Resume, Skip};
use component::{Dropped, FileStatus};
use registry::Key;
use serde::{Deserialize, Serialize};

use super::state::{Counts, DeviceInode, FileStat, FileState, KnownEnds, Lost};

/// The kind of keys under which files are.
pub(crate) const FILE: u8 = 1;
/// The kind of keys under which checkpoints are.
pub(crate) const CHECKPOINT: u8 = 2;

/// The kind of the key that says that an input has looked at its files once.
pub(crate) const LOOKED: u8 = 3;

/// The kind of keys under which it is noted up to where events were sent.
pub(crate) const GIVEN: u8 = 4;

/// The kind of keys under which objects of the input `object_store` are, as files are.
pub(crate) const OBJECT: u8 = 6;

/// The kind of keys under which checkpoints of objects are.
pub(crate) const OBJECT_CHECKPOINT: u8 = 7;

/// The kind of the key under which the input `object_store` has the key of an object up to which everything was read.
pub(crate) const FRONTIER: u8 = 8;

/// The key of what was sent of a file.
pub(crate) fn given_key(id: u128) -> Key {
    Key { kind: GIVEN, id }
}

/// What the registry keeps of how far a file was sent.
pub(crate) fn encode_given((offset, check): (u64, Check)) -> Vec<u8> {
    let mut bytes = offset.to_le_bytes().to_vec();
    bytes.extend(check.len.to_le_bytes());
    bytes.extend(check.hash.to_le_bytes());
    bytes
}

/// What the registry kept of it; none where it cannot be understood.
pub(crate) fn decode_given(bytes: &[u8]) -> Option<(u64, Check)> {
    let (offset, rest) = bytes.split_first_chunk()?;
    let (len, rest) = rest.split_first_chunk()?;
    let check = Check {
        len: u16::from_le_bytes(*len),
        hash: u128::from_le_bytes(*rest.first_chunk()?),
    };
    Some((u64::from_le_bytes(*offset), check))
}

/// The key that says that the input called `scope` has looked at its files once.
pub(crate) fn looked_key(scope: &str) -> Key {
    Key {
        kind: LOOKED,
        id: batch::fnv::fnv128(scope.as_bytes()),
    }
}

/// The key of a file.
pub(crate) fn file_key(id: u128) -> Key {
    Key { kind: FILE, id }
}

/// The key of a file's checkpoint.
pub(crate) fn checkpoint_key(id: u128) -> Key {
    Key {
        kind: CHECKPOINT,
        id,
    }
}

/// A file as it is kept.
#[derive(Debug, Serialize, Deserialize)]
struct Record {
    /// Pipeline and input.
    #[serde(rename = "s")]
    scope: String,
    #[serde(rename = "p", with = "serde_bytes")]
    path: Vec<u8>,
    #[serde(rename = "d", default)]
    device: u64,
    #[serde(rename = "i", default)]
    inode: u64,
    #[serde(rename = "b", default)]
    born_ns: Option<i64>,
    /// 0 where it is at its place, 1 gone, 2 truncated.
    #[serde(rename = "l", default)]
    lost: u8,
    #[serde(rename = "ls", default)]
    lost_since: Option<u64>,
    #[serde(rename = "z", default)]
    size: u64,
    #[serde(rename = "m", default)]
    modified_ns: i64,
    /// 0 plain, 1 gzip, 2 zstd.
    #[serde(rename = "f", default)]
    format: u8,
    /// Bytes of the disk that were read.
    #[serde(rename = "do", default)]
    disk_offset: u64,
    #[serde(rename = "fp")]
    fingerprint: Hash,
    #[serde(rename = "o")]
    offset: u64,
    #[serde(rename = "c")]
    check: Hash,
    /// Of interleaved container logs: where each stream is.
    #[serde(rename = "k", default)]
    skip: Option<(u64, u64, u64)>,
    /// Earlier ends, with the bytes before.
    #[serde(rename = "n", default)]
    ends: Vec<(u64, Hash)>,
    /// Where copies end.
    #[serde(rename = "nc", default)]
    copies: Vec<(u64, Hash)>,
    /// Where it ends before the position.
    #[serde(rename = "ne", default)]
    short_end: Option<(u64, Hash)>,
    #[serde(rename = "ff", default)]
    first_fingerprint: Option<Hash>,
    #[serde(rename = "rn", default)]
    is_renamed: bool,
    #[serde(rename = "be", default)]
    big_endian: Option<bool>,
    #[serde(rename = "st", default)]
    status: u8,
    #[serde(rename = "e", default)]
    problem: Option<String>,
    #[serde(rename = "r", default)]
    read: (u64, u64),
    #[serde(rename = "a", default)]
    acknowledged: (u64, u64),
    #[serde(rename = "x", default)]
    dropped: Vec<(String, u64, u64)>,
    #[serde(default)]
    dead_letters: u64,
    #[serde(rename = "fl", default)]
    in_flight: (u64, u64),
}

/// Length, and the two halves of the hash.
type Hash = (u16, u64, u64);

fn hash(check: Check) -> Hash {
    (check.len, (check.hash >> 64) as u64, check.hash as u64)
}

fn check((len, high, low): Hash) -> Check {
    Check {
        len,
        hash: u128::from(high) << 64 | u128::from(low),
    }
}

/// What the registry keeps of a file.
pub(crate) fn encode(scope: &str, state: &FileState) -> Vec<u8> {
    let place = state.place.or(state.left);
    let counts = &state.counts;
    let dropped = |dropped: &Dropped| (dropped.reason.clone(), dropped.events, dropped.bytes);
    let record = Record {
        scope: scope.to_owned(),
        path: state.path.as_os_str().as_bytes().to_vec(),
        device: place.map_or(0, |place| place.device),
        inode: place.map_or(0, |place| place.inode),
        born_ns: state.look.born_ns,
        lost: match state.lost {
            None => 0,
            Some(Lost::Gone) => 1,
            Some(Lost::Truncated) => 2,
        },
        lost_since: state.lost_since,
        size: state.look.size,
        modified_ns: state.look.modified_ns,
        format: match state.format {
            None => 0,
            Some(Format::Gzip) => 1,
            Some(Format::Zstd) => 2,
        },
        disk_offset: state.disk_offset,
        fingerprint: hash(state.fingerprint),
        offset: state.position.offset,
        check: hash(state.position.check),
        skip: state
            .position
            .skip
            .map(|skip| (skip.stdout, skip.stderr, skip.other)),
        big_endian: state.position.big_endian,
        ends: earlier_ends(state),
        copies: state.ends.copies.iter().copied().map(end).collect(),
        short_end: state.short_end.map(end),
        first_fingerprint: state.first_fingerprint.map(hash),
        is_renamed: state.is_renamed,
        status: status_number(state.status),
        problem: state.problem.clone(),
        read: (counts.read_events, counts.read_bytes),
        acknowledged: (counts.acknowledged_events, counts.acknowledged_bytes),
        dropped: counts.dropped.iter().map(dropped).collect(),
        dead_letters: counts.dead_letters,
        in_flight: (
            counts.in_flight_events,
            counts.in_flight_bytes + counts.pending_bytes,
        ),
    };
    rmp_serde::to_vec_named(&record).expect("a record has nothing that cannot be written")
}

/// The ends that the position does not tell.
fn earlier_ends(state: &FileState) -> Vec<(u64, Hash)> {
    let ends = state.ends.read.iter().copied();
    ends.filter(|(end, _)| *end != state.position.offset)
        .map(end)
        .collect()
}

fn end((end, bytes): (u64, Check)) -> (u64, Hash) {
    (end, hash(bytes))
}

fn end_of((end, bytes): (u64, Hash)) -> (u64, Check) {
    (end, check(bytes))
}

impl Record {
    fn position(&self) -> Resume {
        Resume {
            offset: self.offset,
            check: check(self.check),
            skip: self.skip.map(|(stdout, stderr, other)| Skip {
                stdout,
                stderr,
                other,
            }),
            big_endian: self.big_endian,
        }
    }

    fn lost(&self) -> Option<Lost> {
        match self.lost {
            0 => None,
            2 => Some(Lost::Truncated),
            _ => Some(Lost::Gone),
        }
    }

    fn ends(&self, position: &Resume) -> KnownEnds {
        let read = self.ends.iter().copied().map(end_of);
        KnownEnds {
            read: read.chain([(position.offset, position.check)]).collect(),
            copies: self.copies.iter().copied().map(end_of).collect(),
        }
    }

    fn counts(&self) -> Counts {
        let dropped = |(reason, events, bytes): &(String, u64, u64)| Dropped {
            reason: reason.clone(),
            events: *events,
            bytes: *bytes,
        };
        Counts {
            read_events: self.read.0,
            read_bytes: self.read.1,
            acknowledged_events: self.acknowledged.0,
            acknowledged_bytes: self.acknowledged.1,
            dropped: self.dropped.iter().map(dropped).collect(),
            dead_letters: self.dead_letters,
            in_flight_events: self.in_flight.0,
            in_flight_bytes: self.in_flight.1,
            pending_bytes: 0,
        }
    }
}

/// A file as the registry kept it, with its scope; none where it cannot be understood.
pub(crate) fn decode(bytes: &[u8]) -> Option<(String, FileState)> {
    let record: Record = rmp_serde::from_slice(bytes).ok()?;
    let (position, lost) = (record.position(), record.lost());
    let place = DeviceInode {
        device: record.device,
        inode: record.inode,
    };
    let state = FileState {
        // What is gone may come back to its place; what was truncated left it.
        place: (lost != Some(Lost::Truncated) && record.inode != 0).then_some(place),
        left: (lost == Some(Lost::Truncated)).then_some(place),
        lost,
        lost_since: record.lost_since,
        look: FileStat {
            born_ns: record.born_ns,
            size: record.size,
            modified_ns: record.modified_ns,
        },
        format: match record.format {
            1 => Some(Format::Gzip),
            2 => Some(Format::Zstd),
            _ => None,
        },
        disk_offset: record.disk_offset,
        fingerprint: check(record.fingerprint),
        first_fingerprint: record.first_fingerprint.map(check),
        ends: record.ends(&position),
        short_end: record.short_end.map(end_of),
        is_renamed: record.is_renamed,
        sent: position.clone(),
        position,
        status: status(record.status),
        counts: record.counts(),
        path: PathBuf::from(OsString::from_vec(record.path)),
        problem: record.problem,
        ..FileState::default()
    };
    Some((record.scope, state))
}

fn status_number(status: FileStatus) -> u8 {
    match status {
        FileStatus::Idle => 0,
        FileStatus::Open => 1,
        FileStatus::Done => 2,
        FileStatus::Gone => 3,
        FileStatus::Broken => 4,
    }
}

fn status(number: u8) -> FileStatus {
    match number {
        1 => FileStatus::Open,
        2 => FileStatus::Done,
        3 => FileStatus::Gone,
        4 => FileStatus::Broken,
        _ => FileStatus::Idle,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_comes_back_as_it_was_kept() {
        let position = Resume {
            offset: 7_000_000_000,
            check: Check {
                len: 256,
                hash: u128::MAX - 5,
            },
            skip: Some(Skip {
                stdout: 1,
                stderr: 8,
                other: 0,
            }),
            big_endian: Some(true),
        };
        let mut state = FileState {
            path: PathBuf::from(OsString::from_vec(b"/log/\xFF.gz".to_vec())),
            place: Some(DeviceInode {
                device: 1,
                inode: 2,
            }),
            look: FileStat {
                born_ns: Some(-5),
                size: 10,
                modified_ns: 11,
            },
            format: Some(Format::Gzip),
            fingerprint: Check { len: 3, hash: 4 },
            sent: position.clone(),
            position,
            status: FileStatus::Broken,
            problem: Some("bad".into()),
            ..FileState::default()
        };
        state.ends.read = [
            (5, Check { len: 1, hash: 2 }),
            (7_000_000_000, state.position.check),
        ]
        .into();
        state.ends.note_copy(6, Check { len: 2, hash: 3 });
        state.short_end = Some((6, Check { len: 2, hash: 3 }));
        state.first_fingerprint = Some(Check { len: 2, hash: 9 });
        state.is_renamed = true;
        state.counts.drop_rows("where", 1, 2);
        state.counts.acknowledged_bytes = 9;
        let (scope, back) = decode(&encode("a/b", &state)).expect("it was just written");
        assert_eq!(scope, "a/b");
        assert_eq!(format!("{back:?}"), format!("{state:?}"));
        assert!(decode(b"nonsense").is_none());
        let given = (77, Check { len: 5, hash: 8 });
        assert_eq!(decode_given(&encode_given(given)), Some(given));
        assert!(decode_given(b"short").is_none());
    }
}
