//! What inputs remember across runs: one log file in each data directory.
//!
//! Keys and values are bytes to it. A commit is applied whole or not at all, also across a crash at any instant, and a
//! damaged log never keeps Millpond from starting.
//!
//! Files in the data directory:
//!
//! | file | holds |
//! | --- | --- |
//! | `registry` | the log, as below |
//! | `registry.tmp` | the next log, while one is being written |
//! | `registry.damaged.N` | logs in which damage was found; the newest three are kept |
//! | `lock` | the process id of the instance that holds the `flock` on it |
//!
//! **Writing.** A commit appends one frame. When more than half of a log beyond 1 MiB is garbage, the live entries are
//! written to `registry.tmp`, which is synced and renamed over the log; then the directory is synced. A crash leaves the
//! old log or the new one.
//!
//! **Recovery.** A torn frame at the end is what a crash while appending leaves: it is cut, and one sentence says so.
//! Anything else that does not verify is damage: reading goes on at the next frame that does, a sentence says how much
//! was lost, the damaged log is set aside, and a clean one is written. A lost frame brings back the values from before
//! it, and entries that it deleted. Inputs then read again what they had read, rather than skip what they had not.
//!
//! **Failure.** A commit that fails leaves memory as it was and takes its frame back from the log; while the disk refuses
//! that too, a crash may bring back the failed commit, whole. After a failed sync the kernel may have dropped pages it
//! counts as written, so the next durable commit writes a new log first. A log whose sync failed just before the process
//! ended is trusted by the next run: frames that never reached the disk are then found missing after a power failure.
//!
//! **Limits.** A value holds up to 16 MiB, a commit up to 64 MiB. Memory holds an index of 27 bytes a slot, 7/16 to 7/8 of
//! them in use; a compaction adds 16 bytes an entry. Reading needs memory for the largest frame.
//!
//! **The log**, integers little endian:
//!
//! ```text
//! header  magic 8 | version u16 | zero u16 | log u64 | CRC32 of the 20 bytes before it
//! frame   magic 4 | payload length u32 | log u64 | sequence u64 | changes u32 | CRC32 of these 28 bytes and the payload
//! change  1 | kind u8 | id u128 | length u32 | value        the entry has this value
//!         2 | kind u8 | id u128                             the entry is gone
//! ```
//!
//! `log` is drawn at random for each log file, and sequences count up from 1. So a frame that lies inside a value, because
//! somebody logged or copied a registry, is never taken for one of this log when reading resumes after damage; and a gap
//! in the sequences tells how many commits were lost. Every version keeps magic, version and the header's CRC in place.
//!
//! **Why no library.** A commit that is not synced survives a kill of the process here, and that is what inputs need four times a second;
//! redb (3.1) keeps nothing of such a commit. With its synced ones, 1,000 saves of 100 of 500,000 files take 2.2 s of CPU time and 852 MB of
//! writes, here 0.12 s and 18 MB; loading costs the same time and three times the memory (`bench/libraries/run registry`).

mod compact;
mod error;
mod folder;
mod format;
mod index;
mod reading;
mod recover;
mod scan;
mod store;

pub use error::RegistryError;
pub use format::{COMMIT_BYTES_MAX, Change, Key, VALUE_BYTES_MAX};
pub use reading::{Reading, read};
pub use store::{LockedDirectory, Registry};
