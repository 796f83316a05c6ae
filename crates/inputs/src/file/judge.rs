//! Whether a file that is found is a copy of a known one.
//!
//! A rename keeps the inode and is no question. What makes a new inode with known content is a copy: `copytruncate` of
//! logrotate, compressing, or a move to another file system. Two services that write the same first kilobyte look like
//! that too. So a file that begins like a known one is judged by what became of that one:
//!
//! | the known file | the new one | verdict |
//! | --- | --- | --- |
//! | is where it was | compressed, the known one plain | held back while it is being written; then compared as a whole: a copy stays held back, anything else is new |
//! | is where it was | a part of it, byte for byte at its end | held back a moment, because a copy is made before its original is truncated; new if the original stays |
//! | is where it was | anything else | new |
//! | was truncated | holds what lies before the position | takes over id and position |
//! | was truncated | is at the very inode | new: it was written since |
//! | is gone | compressed, and holds what lies before the position | takes over id and position, unless what is known is so short that it is alike by chance |
//! | is gone | compressed, and ends where the known one once ended | takes over, and everything in it was read |
//! | is gone | plain, and was held back while the known one was there | takes over |
//! | is gone | plain, and not seen before | new: it may have been written anew |
//!
//! Whenever the content differs, or it is not sure, the file is new and read from its start: never is data passed over.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs::File as Opened;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use codec::{CHECK_BYTES, Check};
use component::FileStatus;

use super::content::{Head, read_exact_at};
use super::pool::Order;
use super::probe::{Probe, Purpose, Seen};
use super::state::{File, Look, Lost, Place, UNKNOWN_PLACE};
use super::tracker::Tracker;
use super::watch::Found;
use crate::paths::meta::Meta;
use crate::reading::emitter::now;
use crate::reading::reader::describe;

/// How long a compressed copy must not have been written to before it is compared.
const QUIET: Duration = Duration::from_secs(2);

/// How long an original has to be truncated after its copy was written.
const COPY_GRACE: Duration = Duration::from_secs(3);

/// Bytes that must be the same before a compressed file takes over from one that is gone: fewer are alike by chance.
const LIKENESS_MIN: u16 = 32;

/// A file that is not read for now.
pub(crate) struct Held {
    found: Found,
    /// The known file that it looks like.
    like: Arc<File>,
    /// It was compared as a whole, and is a copy.
    is_copy: bool,
    /// It is being looked through.
    is_probed: bool,
    since: Instant,
}

enum Verdict {
    New,
    Adopt(Arc<File>),
    Hold(Arc<File>),
    Compare(Arc<File>),
}

impl Tracker {
    /// Judges files at places that are not known, plain ones first: a compressed one may be a copy of one of these.
    pub(super) fn meet_all(&mut self, strangers: Vec<Found>) {
        let mut compressed = Vec::new();
        let mut places = HashMap::new();
        for (index, found) in strangers.into_iter().enumerate() {
            match places.entry(Place::of(&found.meta)) {
                Entry::Vacant(entry) => drop(entry.insert(index)),
                // Another name of the same file.
                Entry::Occupied(_) => continue,
            }
            let Some(head) = self.head(&found) else {
                continue;
            };
            if head.format.is_some() {
                compressed.push((found, head));
            } else {
                self.meet(found, &head, Vec::new());
            }
        }
        for (found, head) in compressed {
            self.meet(found, &head, Vec::new());
        }
        // They are read in the order in which they were found.
        self.unsaved.sort_by_key(|file| {
            let place = file.lock().place;
            place.and_then(|place| places.get(&place).copied())
        });
    }

    /// How a file begins; none where it is empty, too old, or cannot be read.
    fn head(&mut self, found: &Found) -> Option<Head> {
        let place = Place::of(&found.meta);
        if found.meta.size == 0 || self.is_waiting(place, found) || self.is_too_old(&found.meta) {
            return None;
        }
        let (compression, len) = (self.following.compression, self.following.fingerprint_bytes);
        match open_found(found).and_then(|opened| Head::read(&opened, compression, len)) {
            Ok(head) => (!head.bytes.is_empty() || self.is_hopeless(found, &head)).then_some(head),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => {
                self.fail(&found.path, &describe(&error));
                None
            }
        }
    }

    /// Whether a file that gives nothing is taken in, because its reader must say what is wrong with it.
    fn is_hopeless(&self, found: &Found, head: &Head) -> bool {
        let quiet = age(&found.meta) > QUIET || !self.following.follow;
        head.bytes.is_empty() && head.format.is_some() && quiet
    }

    /// Whether a file is held back and nothing has changed for it.
    fn is_waiting(&mut self, place: Place, found: &Found) -> bool {
        let Some(held) = self.held.get_mut(&place) else {
            return false;
        };
        if held.is_probed {
            return true;
        }
        if Look::of(&held.found.meta) != Look::of(&found.meta) {
            self.held.remove(&place);
            return false;
        }
        let is_original_there = held.like.lock().lost.is_none();
        held.found = found.clone();
        let is_over = held.since.elapsed() >= COPY_GRACE.max(QUIET);
        is_original_there && (held.is_copy || !is_over)
    }

    fn is_too_old(&self, meta: &Meta) -> bool {
        self.following
            .ignore_older
            .is_some_and(|limit| age(meta) > limit)
    }

    /// Judges a file by every known one that begins alike, those left out that it is known not to be.
    fn meet(&mut self, found: Found, head: &Head, mut unlike: Vec<u128>) {
        let place = Place::of(&found.meta);
        let held = self.held.remove(&place);
        let waited = held.as_ref().map(|held| (held.like.id, held.since));
        for like in self.known.beginning_with(&head.bytes) {
            if unlike.contains(&like.id) {
                continue;
            }
            let waited = waited
                .filter(|(id, _)| *id == like.id)
                .map(|(_, since)| since);
            let (purpose, target) = match self.judge(&like, &found, head, waited) {
                Verdict::New => {
                    unlike.push(like.id);
                    continue;
                }
                Verdict::Hold(like) => {
                    let since = waited.unwrap_or_else(Instant::now);
                    let held = Held {
                        found,
                        like,
                        is_copy: false,
                        is_probed: false,
                        since,
                    };
                    self.held.insert(place, held);
                    return;
                }
                Verdict::Adopt(like) => {
                    like.lock().is_claimed = true;
                    let target = like.lock().sent.offset;
                    (Purpose::Adopt(like), target)
                }
                Verdict::Compare(like) => (Purpose::Compare(like), u64::MAX),
            };
            let held = Held {
                found: found.clone(),
                like,
                is_copy: false,
                is_probed: true,
                since: Instant::now(),
            };
            self.held.insert(place, held);
            let probe = Probe::new(found, head.format, purpose, target, unlike);
            return self.pool.probe(probe);
        }
        self.welcome(&found, head);
    }

    fn judge(
        &mut self,
        like: &Arc<File>,
        found: &Found,
        head: &Head,
        waited: Option<Instant>,
    ) -> Verdict {
        let Some(lost) = self.fate(like) else {
            return Verdict::Hold(like.clone());
        };
        let (format, size, left, is_short) = {
            let state = like.lock();
            (
                state.format,
                state.look.size.max(state.sent.offset),
                state.left,
                state.fingerprint.len < LIKENESS_MIN && state.sent.offset < u64::from(LIKENESS_MIN),
            )
        };
        let is_packed = head.format.is_some() && format.is_none();
        match lost {
            None => {
                let grace = |limit: Duration| {
                    self.following.follow
                        && (age(&found.meta) < limit
                            || waited.is_some_and(|since| since.elapsed() < limit))
                };
                if is_packed && grace(QUIET) {
                    Verdict::Hold(like.clone())
                } else if is_packed {
                    Verdict::Compare(like.clone())
                } else if format == head.format
                    && grace(COPY_GRACE)
                    && is_part_of(found, like).unwrap_or(None) != Some(false)
                {
                    Verdict::Hold(like.clone())
                } else {
                    Verdict::New
                }
            }
            // What is where it was truncated was written since.
            Some(Lost::Truncated) if left == Some(Place::of(&found.meta)) => Verdict::New,
            Some(Lost::Truncated) => Verdict::Adopt(like.clone()),
            // A plain file that was not there before the other one went may have been written anew.
            Some(Lost::Gone) if head.format.is_none() && waited.is_none() => Verdict::New,
            // Few bytes are alike by chance, unless a compressed file is exactly that.
            Some(Lost::Gone)
                if is_short && !(is_packed && head.is_whole && head.bytes.len() as u64 == size) =>
            {
                Verdict::New
            }
            Some(Lost::Gone) => Verdict::Adopt(like.clone()),
        }
    }

    /// What became of a known file: whether it is lost, and how. None while that is not clear.
    fn fate(&mut self, like: &Arc<File>) -> Option<Option<Lost>> {
        let is_in_place = self.known.is_in_place(like);
        let (lost, path, place) = {
            let mut state = like.lock();
            if state.is_claimed {
                return None;
            }
            // What no scan has found, and is not at its path either, is gone.
            if state.lost.is_none() && !is_in_place {
                let meta = Meta::of(&state.path);
                if !meta.is_ok_and(|meta| state.place == Some(Place::of(&meta))) {
                    state.lost = Some(Lost::Gone);
                }
            }
            (state.lost, state.path.clone(), state.place)
        };
        match lost {
            // What is gone and still open is read to its end first.
            Some(Lost::Gone) if self.pool.is_busy(like.id) => None,
            Some(lost) => Some(Some(lost)),
            None => {
                // It may have been truncated since it was looked at, a moment after its copy was made.
                let meta = Meta::of(&path).ok()?;
                if place != Some(Place::of(&meta)) {
                    return None;
                }
                let found = Found {
                    path: path.into(),
                    meta,
                };
                if !self.is_replaced(like, &found) {
                    return Some(None);
                }
                self.lose(like, Lost::Truncated);
                Some(Some(Lost::Truncated))
            }
        }
    }

    /// A file was looked through.
    pub(super) fn probed(&mut self, probe: Probe, seen: &Seen) {
        let held = self.held.remove(&Place::of(&probe.found.meta));
        if let Seen::Failed(error) = seen
            && error.kind() != io::ErrorKind::NotFound
        {
            self.fail(&probe.found.path, &describe(error));
        }
        match &probe.purpose {
            Purpose::Adopt(like) => {
                let like = like.clone();
                like.lock().is_claimed = false;
                if self.has_moved(&like, probe.target) {
                    return self.hold_again(held, false);
                }
                match self.outcome(&like, &probe, seen) {
                    Some(true) => self.adopt(&like, probe, matches!(seen, Seen::Ended { .. })),
                    Some(false) => self.is_unlike(probe, like.id),
                    None => self.hold_again(held, false),
                }
            }
            Purpose::Compare(like) => {
                let id = like.id;
                let is_copy = match seen {
                    Seen::Ended { at, .. } => ends_alike(like, *at, &probe.tail),
                    _ => Ok(Some(false)),
                };
                match is_copy.unwrap_or(Some(false)) {
                    Some(true) => self.hold_again(held, true),
                    Some(false) => self.is_unlike(probe, id),
                    // It is judged again once a scan has seen what became of the original.
                    None => self.hold_again(held, false),
                }
            }
            Purpose::Measure(_) => self.measured(&probe, seen),
        }
    }

    /// Whether more was read of a file while its copy was looked through, or is still to be read from the open original.
    fn has_moved(&self, like: &Arc<File>, target: u64) -> bool {
        if self.pool.is_busy(like.id) || like.lock().sent.offset != target {
            return true;
        }
        let mut has_more = false;
        self.pool.each_idle(|task| {
            has_more |= task.file.id == like.id && task.has_more();
        });
        if has_more && like.lock().lost == Some(Lost::Gone) {
            self.pool.request(like, Order::Read);
            return true;
        }
        false
    }

    /// Whether what was looked through holds what a known file held; none while it is still being written.
    fn outcome(&self, like: &Arc<File>, probe: &Probe, seen: &Seen) -> Option<bool> {
        let state = like.lock();
        match seen {
            Seen::Reached => Some(state.sent.check.matches(&probe.tail)),
            Seen::Ended {
                is_whole: false, ..
            } if probe.format.is_some() && self.following.follow => None,
            // It may have been compressed before the last lines were written.
            Seen::Ended { at, .. } if probe.format.is_some() => {
                let is_end = |(end, check): &(u64, Check)| end == at && check.matches(&probe.tail);
                Some(state.ends.iter().any(is_end))
            }
            _ => Some(false),
        }
    }

    fn hold_again(&mut self, held: Option<Held>, is_copy: bool) {
        if let Some(mut held) = held {
            held.is_probed = false;
            held.is_copy = is_copy;
            self.held.insert(Place::of(&held.found.meta), held);
        }
    }

    /// A known file goes on in another one that has its content.
    /// Everything in that one `is_read` if it ends before the position.
    fn adopt(&mut self, like: &Arc<File>, probe: Probe, is_read: bool) {
        if let Some((task, _)) = self.orphans.remove(&like.id) {
            task.suspend();
        }
        if let Some(task) = self.pool.take_idle(like.id) {
            task.suspend();
        }
        self.known
            .set_place(like, Some(Place::of(&probe.found.meta)));
        {
            let mut state = like.lock();
            state.path = probe.found.path.to_path_buf();
            state.look = Look::of(&probe.found.meta);
            state.format = probe.format;
            state.lost = None;
            state.left = None;
            state.lost_since = None;
            state.is_seen = true;
            state.status = if is_read {
                FileStatus::Done
            } else {
                FileStatus::Idle
            };
            state.problem = None;
            state.checkpoints.clear();
            state.saved_checkpoint = Some(UNKNOWN_PLACE);
            state.checkpoints.extend(probe.checkpoint);
            self.dirty.note(like, &mut state);
        }
        self.lengthen_fingerprint(like, &probe.found);
        if like.lock().wants_reading() {
            self.read(like);
        }
    }

    /// A file is not a copy of one of the known ones it begins like: it is compared with the others.
    fn is_unlike(&mut self, probe: Probe, id: u128) {
        let (compression, len) = (self.following.compression, self.following.fingerprint_bytes);
        let Probe {
            found, mut unlike, ..
        } = probe;
        unlike.push(id);
        // What vanished meanwhile is not there to be read; a scan finds what took its place.
        if let Ok(head) =
            open_found(&found).and_then(|opened| Head::read(&opened, compression, len))
        {
            self.meet(found, &head, unlike);
        }
    }

    fn measured(&mut self, probe: &Probe, seen: &Seen) {
        let Purpose::Measure(head) = &probe.purpose else {
            return;
        };
        let Seen::Ended { at, .. } = *seen else {
            return;
        };
        let head = Head {
            format: probe.format,
            bytes: head.clone(),
            is_whole: true,
        };
        let before = std::mem::replace(
            &mut self.following.start_at,
            super::settings::StartAt::Beginning,
        );
        self.welcome(&probe.found, &head);
        self.following.start_at = before;
        if let Some(file) = self.unsaved.last().cloned() {
            self.skip_to(&file, at);
            file.lock().status = FileStatus::Done;
        }
    }

    /// Looks again at files that are held back, and gives up waiting for copies of truncated ones.
    pub(super) fn review_held(&mut self) {
        let due: Vec<Found> = self
            .held
            .values()
            .filter(|held| !held.is_probed)
            .map(|held| held.found.clone())
            .collect();
        let mut strangers = Vec::new();
        for mut found in due {
            match Meta::of(&found.path) {
                Ok(meta) if Place::of(&meta) == Place::of(&found.meta) => {
                    found.meta = meta;
                    strangers.push(found);
                }
                // It is elsewhere by now; the next scan finds it.
                _ => drop(self.held.remove(&Place::of(&found.meta))),
            }
        }
        self.meet_all(strangers);
        self.bury_orphans();
    }

    /// Gives what was read of truncated files for which no copy came.
    fn bury_orphans(&mut self) {
        let over: Vec<u128> = self
            .orphans
            .iter()
            .filter(|(_, (_, since))| since.elapsed() > COPY_GRACE * 2)
            .map(|(id, _)| *id)
            .collect();
        for id in over {
            if let Some((task, _)) = self.orphans.remove(&id) {
                let (path, unread) = {
                    let state = task.file.lock();
                    let unread = state.look.size.saturating_sub(state.counts.read_bytes);
                    (state.path.display().to_string(), unread)
                };
                if unread > 0 {
                    self.ctx.diagnostics.warn(&format!(
                        "{path}: was truncated, and {unread} bytes of it were not read"
                    ));
                }
                self.pool.finish(task);
            }
        }
    }
}

/// Opens a file that was found, if it is still there.
///
/// # Errors
/// What the system says; [`io::ErrorKind::NotFound`] where another file is at its path by now: the next scan finds it.
pub(super) fn open_found(found: &Found) -> io::Result<Opened> {
    let opened = Opened::open(&found.path)?;
    let meta = Meta::of_fd(&opened)?;
    if Place::of(&meta) == Place::of(&found.meta) {
        Ok(opened)
    } else {
        Err(io::ErrorKind::NotFound.into())
    }
}

/// How long ago something was written.
fn age(meta: &Meta) -> Duration {
    Duration::from_nanos((now() - meta.modified_ns).max(0) as u64)
}

/// Whether a file is the beginning of a known one, judged by its last bytes as they are on disk; none where the known one is
/// not what it was a moment ago.
fn is_part_of(found: &Found, like: &Arc<File>) -> io::Result<Option<bool>> {
    let (path, place, sent) = {
        let state = like.lock();
        (state.path.clone(), state.place, state.sent.offset)
    };
    let original = Opened::open(path)?;
    let meta = Meta::of_fd(&original)?;
    if place != Some(Place::of(&meta)) || meta.size < sent {
        return Ok(None);
    }
    if meta.size < found.meta.size {
        return Ok(Some(false));
    }
    let len = found.meta.size.min(CHECK_BYTES as u64);
    let start = found.meta.size - len;
    let (mut one, mut other) = (vec![0; len as usize], vec![0; len as usize]);
    read_exact_at(&Opened::open(&found.path)?, &mut one, start)?;
    read_exact_at(&original, &mut other, start)?;
    let is_same = one == other;
    // Different bytes say nothing about a file that was truncated meanwhile.
    let is_whole = Meta::of_fd(&original)?.size >= meta.size;
    Ok((is_same || is_whole).then_some(is_same))
}

/// Whether what a known file holds before `end` ends with `tail`; none where it is not at its path any more.
fn ends_alike(like: &Arc<File>, end: u64, tail: &[u8]) -> io::Result<Option<bool>> {
    let (path, place) = {
        let state = like.lock();
        (state.path.clone(), state.place)
    };
    let original = match Opened::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other?,
    };
    let meta = Meta::of_fd(&original)?;
    if place != Some(Place::of(&meta)) {
        return Ok(None);
    }
    if meta.size < end {
        return Ok(Some(false));
    }
    let mut other = vec![0; tail.len()];
    read_exact_at(&original, &mut other, end - tail.len() as u64)?;
    Ok(Some(other == tail))
}
