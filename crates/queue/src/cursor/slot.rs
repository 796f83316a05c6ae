//! The bytes of a slot. The layout stands in the module above.

use std::fmt;
use std::io;

use disk::{PAGE, StoredFile};

use super::{Passed, RUNS_MAX, Saved};

/// The latest version that is known.
pub(crate) const VERSION: u32 = 2;
/// The version that knows no passed sequences beyond the cursor.
const VERSION_PLAIN: u32 = 1;
const MAGIC: &[u8; 8] = b"mpcursor";
const BODY: usize = 28;
const BODY_BYTES_MAX: usize = PAGE - BODY;

/// What a slot holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SlotState {
    /// A cursor.
    Good {
        /// The higher of the two counts.
        generation: u64,
        /// What was saved.
        saved: Box<Saved>,
    },
    /// Only zeros, or nothing at all.
    Blank,
    /// Something else, and why it is taken for damage.
    Damaged(String),
    /// A cursor of a later version of the format.
    Newer(u32),
}

impl fmt::Display for SlotState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Good { generation, .. } => write!(f, "generation {generation}"),
            Self::Blank => f.write_str("never written"),
            Self::Damaged(reason) => f.write_str(reason),
            Self::Newer(version) => write!(f, "of version {version}"),
        }
    }
}

/// Reads a slot of a file.
pub(super) fn read(file: &dyn StoredFile, index: usize) -> SlotState {
    let read = || {
        let mut page = [0; PAGE];
        match file.read_at(&mut page, (index * PAGE) as u64) {
            Ok(length) => decode(&page, length),
            Err(error) => SlotState::Damaged(format!("cannot be read: {error}")),
        }
    };
    match read() {
        // A queue that is in use may just have been writing it.
        SlotState::Damaged(_) => read(),
        state => state,
    }
}

/// Judges the first `length` bytes of a page; what follows them is zeros.
fn decode(page: &[u8; PAGE], length: usize) -> SlotState {
    let damaged = |reason: &str| SlotState::Damaged(reason.to_owned());
    if page.iter().all(|byte| *byte == 0) {
        return SlotState::Blank;
    }
    if !page.starts_with(MAGIC) {
        return damaged("does not start like a cursor");
    }
    if crc(page) != number(page, 12) {
        return damaged(if length < PAGE {
            "is cut"
        } else {
            "wrong checksum"
        });
    }
    match number(page, 8) {
        VERSION_PLAIN | VERSION => {}
        version if version > VERSION => return SlotState::Newer(version),
        _ => return damaged("has an unknown version"),
    }
    let body = number(page, 24) as usize;
    let body = page[BODY..].get(..body).unwrap_or_default();
    match serde_json::from_slice::<Saved>(body) {
        Ok(mut saved) => {
            saved.passed = passed(&saved);
            SlotState::Good {
                generation: u64::from(number(page, 16)) | u64::from(number(page, 20)) << 32,
                saved: Box::new(saved),
            }
        }
        Err(error) => SlotState::Damaged(format!("holds no cursor: {error}")),
    }
}

/// What may be said of sequences beyond the cursor.
pub(super) fn passed(saved: &Saved) -> Passed {
    let range = saved.sequence..saved.end.sequence;
    saved.passed.within(&range, RUNS_MAX)
}

/// The page for a cursor. What does not fit is left out: passed sequences first, then names of outputs.
pub(super) fn encode(generation: u64, saved: &Saved) -> io::Result<Vec<u8>> {
    let mut saved = Saved {
        passed: passed(saved),
        ..saved.clone()
    };
    let mut body = serde_json::to_vec(&saved)?;
    while body.len() > BODY_BYTES_MAX && !saved.passed.is_empty() {
        let runs = saved.passed.runs().len() / 2;
        saved.passed = saved.passed.within(&(0..u64::MAX), runs);
        body = serde_json::to_vec(&saved)?;
    }
    if body.len() > BODY_BYTES_MAX {
        body = serde_json::to_vec(&shortened(&saved)?)?;
    }
    let version = match saved.passed.is_empty() {
        true => VERSION_PLAIN,
        false => VERSION,
    };
    if body.len() > BODY_BYTES_MAX {
        let reason = "the output's name is too long for a cursor file";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
    }
    let mut page = Vec::with_capacity(PAGE);
    page.extend_from_slice(MAGIC);
    page.extend_from_slice(&version.to_le_bytes());
    page.extend_from_slice(&[0; 4]);
    page.extend_from_slice(&generation.to_le_bytes());
    page.extend_from_slice(&(body.len() as u32).to_le_bytes());
    page.extend_from_slice(&body);
    page.resize(PAGE, 0);
    let crc = crc(&page);
    page[12..16].copy_from_slice(&crc.to_le_bytes());
    Ok(page)
}

/// The same with only as many names of outputs as fit.
fn shortened(saved: &Saved) -> io::Result<Saved> {
    let mut short = saved.clone();
    short.outputs.clear();
    // `"outputs":[],` is the one thing that a body without names leaves out.
    let mut length = serde_json::to_vec(&short)?.len() + 13;
    for output in &saved.outputs {
        length += serde_json::to_vec(output)?.len() + 1;
        if length > BODY_BYTES_MAX {
            break;
        }
        short.outputs.push(output.clone());
    }
    Ok(short)
}

fn crc(page: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&page[..12]);
    hasher.update(&page[16..]);
    hasher.finalize()
}

fn number(page: &[u8], offset: usize) -> u32 {
    let bytes = page[offset..].first_chunk().copied().unwrap_or_default();
    u32::from_le_bytes(bytes)
}
