//! Compares files that are found with the known ones that they begin like, and does what [`super::verdict`] says.
//!
//! A file that is held back or looked through stands in [`Tracker::held`] meanwhile. What could not be read is compared
//! again later, never taken for another file.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use codec::Check;
use component::FileStatus;

use super::compare::{ends_alike, is_part_of};
use super::content::Head;
use super::held::{COPY_GRACE, Held, QUIET, Stage, Wait};
use super::order::Order;
use super::probe::{Probe, Purpose, Seen};
use super::state::{DeviceInode, File, FileStat, Lost, UNKNOWN_PLACE};
use super::tracker::{Tracker, by_age};
use super::verdict::{Ending, Facts, Fate, Passed, Verdict, continuation, verdict};
use super::watch::FoundFile;
use crate::paths::meta::Meta;
use crate::reading::describe::describe;
use crate::reading::emitter::ago;

/// How long half a line of a truncated file waits for a copy that goes on with it.
const ORPHAN_PATIENCE: Duration = Duration::from_secs(6);

/// How long it waits while a file is held back that looks like another one: it may turn out to be that copy.
const ORPHAN_PATIENCE_MAX: Duration = Duration::from_secs(30);

impl Tracker {
    /// Judges files at places that are not known, originals before their copies, and plain files before compressed ones.
    pub(super) fn meet_all(&mut self, strangers: Vec<FoundFile>) {
        let mut places = HashMap::new();
        let mut met = Vec::new();
        for (index, found) in strangers.into_iter().enumerate() {
            match places.entry(DeviceInode::of(&found.meta)) {
                Entry::Vacant(entry) => drop(entry.insert(index)),
                // Another name of the same file.
                Entry::Occupied(_) => continue,
            }
            if let Some(head) = self.head(&found) {
                met.push((found, head));
            }
        }
        met.sort_by_key(|(found, head)| (head.format.is_some(), by_age(&found.meta)));
        for (found, head) in met {
            self.meet(found, &head, Vec::new());
        }
        // They are read in the order in which they were found.
        self.unsaved.sort_by_key(|file| {
            let place = file.lock().place;
            place.and_then(|place| places.get(&place).copied())
        });
    }

    /// How a file begins; none where it is empty, too old, or cannot be read.
    fn head(&mut self, found: &FoundFile) -> Option<Head> {
        let place = DeviceInode::of(&found.meta);
        if found.meta.size == 0 || self.is_waiting(place, found) || self.is_too_old(&found.meta) {
            return None;
        }
        let (compression, len) = (self.following.compression, self.following.fingerprint_bytes);
        match found
            .open()
            .and_then(|opened| Head::read(&opened, compression, len))
        {
            Ok(head) => (!head.bytes.is_empty() || self.is_hopeless(found, &head)).then_some(head),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => {
                self.postpone(found, &error);
                None
            }
        }
    }

    /// Whether a file that gives nothing is taken in, because its reader must say what is wrong with it.
    fn is_hopeless(&self, found: &FoundFile, head: &Head) -> bool {
        let quiet = age(&found.meta) > QUIET || !self.following.follow;
        head.bytes.is_empty() && head.format.is_some() && quiet
    }

    /// Whether a file is held back and nothing has changed for it.
    fn is_waiting(&mut self, place: DeviceInode, found: &FoundFile) -> bool {
        let Some(held) = self.held.get_mut(&place) else {
            return false;
        };
        if held.stage == Stage::Probed {
            return true;
        }
        let has_changed = FileStat::of(&held.found.meta) != FileStat::of(&found.meta);
        held.found = found.clone();
        if has_changed && held.stage != Stage::Growing {
            held.wait.since = Instant::now();
            held.wait.was_part = false;
            return false;
        }
        let is_over = held.wait.since.elapsed() >= held.patience();
        let is_original_there = held.like.lock().lost.is_none();
        match held.stage {
            // Looking through it once more costs as much as the first time.
            Stage::Growing | Stage::Unreadable => !is_over,
            Stage::Copy => is_original_there,
            Stage::Unclear => false,
            Stage::Waiting | Stage::Probed => is_original_there && !is_over,
        }
    }

    fn is_too_old(&self, meta: &Meta) -> bool {
        self.following
            .ignore_older
            .is_some_and(|limit| age(meta) > limit)
    }

    /// Judges a file by every known one that begins alike, those left out that it is known not to be.
    fn meet(&mut self, found: FoundFile, head: &Head, mut unlike: Vec<u128>) {
        let held = self.held.remove(&DeviceInode::of(&found.meta));
        let waited = held.map(|held| (held.like.id, held.wait));
        let mut unclear = None;
        for like in self.known.beginning_with(&head.bytes) {
            if unlike.contains(&like.id) {
                continue;
            }
            let waited = waited.filter(|(id, _)| *id == like.id);
            let mut wait = waited.map_or_else(Wait::begin, |(_, wait)| wait);
            let Some(facts) = self.facts(&like, &found, head, &mut wait, waited.is_some()) else {
                // While that is not clear, it may turn out to be a copy of another one, which is seen only now.
                unclear.get_or_insert((like, Stage::Unclear, wait));
                continue;
            };
            match verdict(&facts) {
                Verdict::New => unlike.push(like.id),
                Verdict::Hold if facts.is_packed || facts.is_part.is_some() => {
                    unclear = Some((like, Stage::Waiting, wait));
                    break;
                }
                // They could not be compared just now.
                Verdict::Hold => _ = unclear.get_or_insert((like, Stage::Unclear, wait)),
                Verdict::Continues | Verdict::Compare if unclear.is_some() => {}
                verdict => {
                    self.hold(&found, head, (like.clone(), Stage::Probed, wait));
                    return self.look_through(like, found, head, verdict, unlike);
                }
            }
        }
        match unclear {
            Some(judged) => self.hold(&found, head, judged),
            None => self.welcome(&found, head),
        }
    }

    /// Has a file wait that looks like a known one.
    fn hold(
        &mut self,
        found: &FoundFile,
        head: &Head,
        (like, stage, wait): (Arc<File>, Stage, Wait),
    ) {
        let held = Held {
            found: found.clone(),
            like,
            is_compressed: head.format.is_some(),
            stage,
            wait,
        };
        self.held.insert(DeviceInode::of(&found.meta), held);
    }

    /// Has a file looked through, up to where the known one was read or as a whole.
    fn look_through(
        &self,
        like: Arc<File>,
        found: FoundFile,
        head: &Head,
        verdict: Verdict,
        unlike: Vec<u128>,
    ) {
        let (purpose, target) = if verdict == Verdict::Continues {
            let target = {
                let mut state = like.lock();
                state.is_claimed = true;
                state.sent.offset
            };
            (Purpose::Adopt(like), target)
        } else {
            (Purpose::Compare(like), u64::MAX)
        };
        let probe = Probe::new(found, head.format, purpose, target, unlike);
        self.pool.probe(probe);
    }

    /// What is known of a file and a known one that it begins like; none where it is not clear what became of that one.
    fn facts(
        &mut self,
        like: &Arc<File>,
        found: &FoundFile,
        head: &Head,
        wait: &mut Wait,
        has_waited: bool,
    ) -> Option<Facts> {
        let fate = self.fate(like)?;
        let facts = {
            let state = like.lock();
            let (look, meta) = (state.look, &found.meta);
            let is_packed = head.format.is_some() && state.format.is_none();
            let is_moved = look.size == meta.size && look.modified_ns == meta.modified_ns;
            let size = look.size.max(state.sent.offset);
            let is_all_of_it = head.is_whole && head.bytes.len() as u64 == size;
            let is_original = head.format.is_none()
                && state.format.is_some()
                && matches!((meta.born_ns, look.born_ns), (Some(it), Some(known)) if it < known);
            // The number of an inode is used again.
            let is_same_inode = meta.born_ns.is_none() || meta.born_ns == look.born_ns;
            let limit = if is_packed { QUIET } else { COPY_GRACE };
            let is_fresh = last_change(meta) < limit || has_waited && wait.since.elapsed() < limit;
            Facts {
                fate,
                is_packed,
                is_original,
                has_same_format: head.format == state.format,
                is_plain: head.format.is_none(),
                is_fresh: is_fresh && self.following.follow,
                is_part: None,
                was_beside: wait.was_beside || state.ends.has_copy_of(meta.size),
                is_moved,
                is_left_behind: state.left == Some(DeviceInode::of(meta)) && is_same_inode,
                is_tiny: state.is_tiny() && !(is_packed && is_all_of_it) && !is_moved,
            }
        };
        Some(self.compare(facts, like, found, wait))
    }

    /// Adds what only reading the two files tells.
    fn compare(
        &self,
        mut facts: Facts,
        like: &Arc<File>,
        found: &FoundFile,
        wait: &mut Wait,
    ) -> Facts {
        match facts.fate {
            Fate::InPlace => {
                wait.was_beside = true;
                // Compressed data that is still being written may differ now, and replace the known file when it is whole.
                let is_written = !facts.is_plain && age(&found.meta) < QUIET;
                if facts.has_same_format && facts.is_fresh && !is_written {
                    // Where one of them cannot be read it is not known whether they differ.
                    let part = is_part_of(found, like).unwrap_or(None);
                    facts.is_part = part.map(|check| check.is_some());
                    if let Some(Some(check)) = part {
                        wait.was_part = true;
                        // The ends of compressed files are noted as places in their content.
                        if facts.is_plain {
                            self.note_copy(like, found.meta.size, check);
                        }
                    }
                }
            }
            Fate::Gone if facts.is_plain && !facts.was_beside => {
                facts.was_beside = self.was_there_before_the_end_of(like, found);
                wait.was_beside = facts.was_beside;
            }
            Fate::Gone | Fate::Truncated => {}
        }
        facts
    }

    /// Remembers where a copy of a known file ends, also across a crash.
    fn note_copy(&self, like: &Arc<File>, end: u64, check: Check) {
        let mut state = like.lock();
        state.ends.note_copy(end, check);
        self.dirty.note(like, &mut state);
    }

    /// Whether a file was made before a known one was deleted, which is still open.
    fn was_there_before_the_end_of(&self, like: &Arc<File>, found: &FoundFile) -> bool {
        let mut deleted = None;
        self.pool.each_idle(|task| {
            if task.file.id == like.id
                && let Ok(meta) = Meta::of_fd(task.opened())
                && meta.links == 0
            {
                deleted = Some(meta.changed_ns);
            }
        });
        deleted.is_some_and(|deleted| found.meta.born_ns.is_some_and(|born| born < deleted))
    }

    /// What became of a known file. None while that is not clear.
    fn fate(&mut self, like: &Arc<File>) -> Option<Fate> {
        let is_in_place = self.known.is_in_place(like);
        let (lost, path, place) = {
            let mut state = like.lock();
            if state.is_claimed {
                return None;
            }
            // What no scan has found, and is not at its path either, is gone.
            if state.lost.is_none() && !is_in_place {
                let meta = Meta::of(&state.path);
                if !meta.is_ok_and(|meta| state.place == Some(DeviceInode::of(&meta))) {
                    state.lost = Some(Lost::Gone);
                }
            }
            (state.lost, state.path.clone(), state.place)
        };
        match lost {
            // What is gone and still open is read to its end first.
            Some(Lost::Gone) if self.pool.is_busy(like.id) => None,
            Some(Lost::Gone) => Some(Fate::Gone),
            Some(Lost::Truncated) => Some(Fate::Truncated),
            None => {
                // It may have been truncated since it was looked at, a moment after its copy was made.
                let meta = Meta::of(&path).ok()?;
                if place != Some(DeviceInode::of(&meta)) {
                    return None;
                }
                let found = FoundFile {
                    path: path.into(),
                    meta,
                };
                if !self.is_replaced(like, &found) {
                    return Some(Fate::InPlace);
                }
                self.lose(like, Lost::Truncated);
                Some(Fate::Truncated)
            }
        }
    }

    /// A file was looked through.
    pub(super) fn probed(&mut self, probe: Probe, seen: &Seen) {
        let held = self.held.remove(&DeviceInode::of(&probe.found.meta));
        if let Purpose::Adopt(like) = &probe.purpose {
            like.lock().is_claimed = false;
        }
        if let Seen::Failed(error) = seen {
            // What vanished meanwhile is found by the next scan, where it is.
            if error.kind() != io::ErrorKind::NotFound {
                self.fail(&probe.found.path, &describe(error));
                self.hold_again(held, Stage::Unreadable);
            }
            return;
        }
        match &probe.purpose {
            Purpose::Adopt(like) => {
                let like = like.clone();
                self.may_continue(&like, probe, seen, held);
            }
            Purpose::Compare(like) => {
                let Seen::Ended { at, .. } = seen else {
                    let id = like.id;
                    return self.is_unlike(probe, id);
                };
                match ends_alike(like, *at, probe.trail.tail()) {
                    Ok(Some(true)) => {
                        self.note_copy(like, *at, Check::of(probe.trail.tail()));
                        self.hold_again(held, Stage::Copy);
                    }
                    Ok(Some(false)) => {
                        let id = like.id;
                        self.is_unlike(probe, id);
                    }
                    // A scan under way sees what became of the original.
                    Ok(None) => self.hold_again(held, Stage::Unclear),
                    Err(error) => {
                        let path = like.lock().path.clone();
                        self.fail(&path, &describe(&error));
                        self.hold_again(held, Stage::Unreadable);
                    }
                }
            }
            Purpose::Measure(_) => self.measured(&probe, seen),
        }
    }

    /// A file was looked through that may continue a known one.
    fn may_continue(
        &mut self,
        like: &Arc<File>,
        mut probe: Probe,
        seen: &Seen,
        held: Option<Held>,
    ) {
        if self.has_moved(like, probe.position) {
            return self.hold_again(held, Stage::Unclear);
        }
        let was_part = held.as_ref().is_some_and(|held| held.wait.was_part);
        let passed = self.passed(like, &probe, seen, was_part);
        if let Passed::Ended(Ending { agrees: true, .. }) = passed {
            // A later run knows no more than that.
            let check = Check::of(probe.trail.tail());
            self.note_copy(like, probe.trail.end(), check);
        }
        match continuation(passed) {
            Some(true) => {
                let given = like.lock().given.0;
                if matches!(seen, Seen::Reached) && given > probe.target {
                    // Ids were given to what follows the position, too.
                    probe.target = given;
                    like.lock().is_claimed = true;
                    self.hold_again(held, Stage::Probed);
                    return self.pool.probe(Box::new(probe));
                }
                self.adopt(like, probe);
            }
            Some(false) => self.is_unlike(probe, like.id),
            None => self.hold_again(held, Stage::Growing),
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

    /// What was seen of a file that may continue a known one.
    fn passed(&self, like: &Arc<File>, probe: &Probe, seen: &Seen, was_part: bool) -> Passed {
        let state = like.lock();
        match seen {
            Seen::Reached if probe.target == probe.position => {
                Passed::Reached(state.sent.check.matches(probe.trail.tail()))
            }
            Seen::Reached => Passed::Reached(state.given.1.matches(probe.trail.tail())),
            Seen::Ended { at, is_whole } => {
                let is_compressed = probe.format.is_some();
                let is_written = || {
                    let meta = Meta::of(&probe.found.path).unwrap_or(probe.found.meta);
                    !is_whole || age(&meta) < QUIET
                };
                // The time of the loss is known to the second.
                let limit = state
                    .lost_since
                    .map(|lost| (lost as i64 + 2) * 1_000_000_000);
                let born = probe.found.meta.born_ns;
                let is_younger = limit.is_some_and(|limit| born.is_some_and(|born| born > limit));
                Passed::Ended(Ending {
                    is_open: is_compressed && self.following.follow && is_written(),
                    was_part,
                    // The bytes before the position tell more than how files of one kind begin.
                    has_position: probe.target > probe.position
                        && probe.position > state.fingerprint.len.into(),
                    is_known_end: state.ends.holds(*at, probe.trail.tail()),
                    agrees: state.trail.agrees_with(&probe.trail),
                    is_younger: is_younger && !is_compressed,
                })
            }
            Seen::More | Seen::Failed(_) => Passed::Failed,
        }
    }

    fn hold_again(&mut self, held: Option<Held>, stage: Stage) {
        if let Some(mut held) = held {
            if matches!(stage, Stage::Growing | Stage::Unreadable) {
                held.wait.since = Instant::now();
            }
            held.stage = stage;
            self.held.insert(DeviceInode::of(&held.found.meta), held);
        }
    }

    /// A known file goes on in another one that has its content.
    fn adopt(&mut self, like: &Arc<File>, probe: Probe) {
        // Everything in it was read, if it ends before the position.
        let is_read = probe.trail.end() < probe.position;
        if let Some((task, _)) = self.orphans.remove(&like.id) {
            if is_read {
                // What was read behind the end of the copy is nowhere else.
                self.pool.finish(task);
            } else {
                task.suspend();
            }
        }
        if let Some(task) = self.pool.take_idle(like.id) {
            task.suspend();
        }
        self.known
            .set_place(like, Some(DeviceInode::of(&probe.found.meta)));
        {
            let mut state = like.lock();
            state.path = probe.found.path.to_path_buf();
            state.look = FileStat::of(&probe.found.meta);
            state.format = probe.format;
            state.lost = None;
            state.left = None;
            state.lost_since = None;
            state.is_seen = true;
            state.short_end = None;
            if probe.trail.end() < state.given.0 {
                // It was made before those bytes were written.
                state.given = Default::default();
            }
            if is_read {
                let end = (probe.trail.end(), Check::of(probe.trail.tail()));
                state.ends.note_copy(end.0, end.1);
                state.short_end = Some(end);
            }
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
        if let Ok(head) = found
            .open()
            .and_then(|opened| Head::read(&opened, compression, len))
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
        let due: Vec<FoundFile> = self
            .held
            .values()
            .filter(|held| held.stage != Stage::Probed)
            .map(|held| held.found.clone())
            .collect();
        let mut strangers = Vec::new();
        for mut found in due {
            match Meta::of(&found.path) {
                Ok(meta) if DeviceInode::of(&meta) == DeviceInode::of(&found.meta) => {
                    found.meta = meta;
                    strangers.push(found);
                }
                // It is elsewhere by now; the next scan finds it.
                _ => drop(self.held.remove(&DeviceInode::of(&found.meta))),
            }
        }
        self.meet_all(strangers);
        self.bury_orphans();
    }

    /// Gives what was read of truncated files for which no copy came.
    fn bury_orphans(&mut self) {
        if !self.backlog.is_empty() {
            // A copy may be among the files that are still to be looked at.
            return;
        }
        let is_any_held = self.held.values().any(|held| held.stage != Stage::Copy);
        let patience = match is_any_held {
            true => ORPHAN_PATIENCE_MAX,
            false => ORPHAN_PATIENCE,
        };
        let over: Vec<u128> = self
            .orphans
            .iter()
            .filter(|(_, (_, since))| since.elapsed() > patience)
            .map(|(id, _)| *id)
            .filter(|id| !self.may_be_continued(*id))
            .collect();
        for id in over {
            if let Some((task, _)) = self.orphans.remove(&id) {
                let (path, fate, unread) = {
                    let state = task.file.lock();
                    let unread = state.look.size.saturating_sub(state.counts.read_bytes);
                    let fate = match state.lost {
                        Some(Lost::Gone) => "has disappeared",
                        _ => "was truncated",
                    };
                    (state.path.display().to_string(), fate, unread)
                };
                if unread > 0 {
                    self.ctx.diagnostics.warn(&format!(
                        "{path}: {fate}, and {unread} bytes of it were not read"
                    ));
                }
                self.pool.finish(task);
            }
        }
    }

    /// Whether a file is held back that may go on where a known one ended.
    fn may_be_continued(&self, id: u128) -> bool {
        self.held.values().any(|held| held.like.id == id)
    }
}

impl Wait {
    fn begin() -> Self {
        Self {
            since: Instant::now(),
            was_beside: false,
            was_part: false,
        }
    }
}

/// How long ago something was written.
fn age(meta: &Meta) -> Duration {
    ago(meta.modified_ns)
}

/// How long ago a file was written to or made. A copy may have been given the time of its original.
fn last_change(meta: &Meta) -> Duration {
    ago(meta
        .modified_ns
        .max(meta.born_ns.unwrap_or(meta.modified_ns)))
}
