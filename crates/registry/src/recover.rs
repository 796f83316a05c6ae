//! Reading a log into an index, and what is said about the parts that could not be read.

use std::path::Path;

use disk::{StoredFile, Window};

use crate::error::{self, RegistryError};
use crate::format::{HEADER_BYTES, Header, VERSION};
use crate::index::{Index, ValuePosition};
use crate::scan::{Piece, Scan, WINDOW_BYTES};

/// A log as it was found.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub index: Index,
    /// Its id; 0 when nothing told it, in which case the log is damaged.
    pub log: u64,
    /// Of the last good frame.
    pub sequence: u64,
    /// Where the last good frame ends.
    pub end: u64,
    pub damage: Damage,
    /// Bytes of a torn end.
    pub torn_bytes: u64,
}

/// What does not verify.
#[derive(Debug, Default)]
pub(crate) struct Damage {
    has_no_header: bool,
    bytes: u64,
    /// Commits known to be lost; more may be when the end is damaged.
    commits: u64,
    is_at_end: bool,
    good_frames: u64,
}

impl Damage {
    pub fn is_any(&self) -> bool {
        self.has_no_header || self.bytes > 0
    }

    /// The sentence about it.
    pub fn describe(&self, path: &Path) -> String {
        let (path, bytes) = (path.display(), self.bytes);
        if self.good_frames == 0 {
            return format!(
                "the registry {path} contained nothing readable in its {bytes} bytes: inputs start as if for the first time"
            );
        }
        let commits = match (self.commits, self.is_at_end) {
            (0, false) => "no commit".to_owned(),
            (1, false) => "1 commit".to_owned(),
            (commits, false) => format!("{commits} commits"),
            (0, true) => "at least 1 commit".to_owned(),
            (commits, true) => format!("at least {} commits", commits + 1),
        };
        format!(
            "the registry {path} was damaged: {bytes} bytes were unreadable and {commits} lost, so inputs may read some data again"
        )
    }
}

/// Reads a whole log. Refuses one of a newer version.
pub(crate) fn load(file: &dyn StoredFile, path: &Path) -> Result<Loaded, RegistryError> {
    let failed = || error::io("read the registry", path);
    let (mut scan, header) = Scan::new(file).map_err(failed())?;
    if let Header::Newer { version } = header {
        return Err(RegistryError::NewerVersion {
            path: path.to_owned(),
            found: version,
            known: VERSION,
        });
    }
    let (mut index, mut damage) = (Index::default(), Damage::default());
    damage.has_no_header = header == Header::Damaged;
    let (mut end, mut torn_bytes) = (HEADER_BYTES as u64, 0);
    while let Some(piece) = scan.next().map_err(failed())? {
        match piece {
            Piece::Frame { at, bytes } => {
                index.apply(bytes, at);
                damage.good_frames += 1;
                end = at + bytes.len() as u64;
            }
            Piece::Gap { bytes, commits } => {
                damage.bytes += bytes;
                damage.commits += commits;
            }
            Piece::DamagedEnd { bytes } => {
                damage.bytes += bytes;
                damage.is_at_end = true;
            }
            // Without a header in front of it, nobody knows what that is.
            Piece::TornEnd { bytes } if damage.has_no_header => damage.bytes += bytes,
            Piece::TornEnd { bytes } => torn_bytes = bytes,
        }
    }
    let (log, sequence) = scan.last();
    Ok(Loaded {
        index,
        log: log.unwrap_or_default(),
        sequence,
        end,
        damage,
        torn_bytes,
    })
}

/// Gives the values of a kind in the order of the log.
pub(crate) fn each_value(
    file: &dyn StoredFile,
    path: &Path,
    entries: &[(u128, ValuePosition)],
    each: &mut dyn FnMut(u128, &[u8]),
) -> Result<(), RegistryError> {
    let failed = || error::io("read the registry", path);
    let mut window = Window::new(WINDOW_BYTES);
    for (id, place) in entries {
        let end = u64::MAX;
        let value = window
            .get(file, place.offset(), place.length(), WINDOW_BYTES, end)
            .map_err(failed())?;
        if value.len() < place.length() {
            return Err(RegistryError::Damaged {
                path: path.to_owned(),
            });
        }
        each(*id, value);
    }
    Ok(())
}
