//! Decides what every file that is found is: known, renamed, truncated, a copy, or new.
//!
//! It runs on one thread; readers tell it what happened by [`Event`]s. A scan is taken in two steps: first the files at
//! places that are known, which shows what was renamed, truncated or replaced, then the others, which may be copies of
//! those ([`super::judge`]).
//!
//! # Invariants
//! - The id of a new file is durable in the registry before the file is read.
//! - A place belongs to one known file at most; a known file has one place at most.

use std::cmp::Reverse;
use std::collections::{HashMap, VecDeque};
use std::fs::File as Opened;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use batch::fnv::Fnv128;
use codec::{Check, Resume};
use component::{FileStatus, InputContext, Limit};

use super::acknowledge::Dirty;
use super::content::{Head, written_end};
use super::held::Held;
use super::known::Known;
use super::order::Order;
use super::pool::Pool;
use super::pread::read_exact_at;
use super::probe::{Probe, Purpose};
use super::readers::Event;
use super::settings::{Following, StartAt};
use super::state::{
    Counts, DeviceInode, File, FileStat, FileState, Likeness, Lost, UNKNOWN_PLACE, fingerprint,
};
use super::task::{OpenError, Outcome, Task};
use super::watch::FoundFile;
use crate::paths::meta::{Kind, Meta};
use crate::reading::describe::describe;
use crate::reading::emitter::now;

/// Files that are taken in at once.
const BACKLOG_PART: usize = 1024;

/// Files that may wait for a reader before more are taken in.
const WAITING_MAX: usize = 1024;

/// When a file is tried again that could not be opened for want of descriptors.
const SHORT_WAIT: Duration = Duration::from_millis(500);

/// How long to wait for changes while nothing is due by time but retrying and forgetting.
const AT_REST: Duration = Duration::from_secs(1);

/// Decides what every file is.
pub(crate) struct Tracker {
    pub(super) following: Following,
    pub(super) ctx: InputContext,
    pub(super) known: Known,
    pub(super) pool: Arc<Pool>,
    pub(super) dirty: Arc<Dirty>,
    pub(super) events: Receiver<Event>,
    /// Files that are not read for now because they look like copies.
    pub(super) held: HashMap<DeviceInode, Held>,
    /// Files whose content was truncated away, with what was read of them and not given.
    pub(super) orphans: HashMap<u128, (Box<Task>, Instant)>,
    /// Files that nothing is known of, until their turn comes: originals before their copies.
    pub(super) backlog: VecDeque<FoundFile>,
    /// Files that were written to meanwhile: they may be copies of what is in the backlog, and are taken in after it.
    late: HashMap<DeviceInode, FoundFile>,
    /// New files whose ids are not durable yet.
    pub(super) unsaved: Vec<Arc<File>>,
    /// Files that nothing is known of and that cannot be looked at, with when to try again.
    pub(super) postponed: HashMap<DeviceInode, (FoundFile, Instant)>,
    /// Files that cannot be opened or read, with when to try again.
    pub(super) retries: HashMap<u128, Instant>,
    /// What went wrong, where files are not followed.
    pub(crate) problems: Vec<String>,
    pub(super) is_first_scan: bool,
    /// A scan of this run was taken.
    has_scanned: bool,
    pub(super) saved: Instant,
    pub(super) swept: Instant,
    /// The registry could not be written to.
    pub(super) save_fails: bool,
}

impl Tracker {
    pub(crate) fn new(
        following: Following,
        ctx: &InputContext,
        known: Known,
        pool: &Arc<Pool>,
        dirty: &Arc<Dirty>,
        events: Receiver<Event>,
    ) -> Self {
        let is_first_scan = !known.has_looked();
        Self {
            following,
            ctx: ctx.clone(),
            known,
            pool: pool.clone(),
            dirty: dirty.clone(),
            events,
            held: HashMap::new(),
            orphans: HashMap::new(),
            backlog: VecDeque::new(),
            late: HashMap::new(),
            unsaved: Vec::new(),
            postponed: HashMap::new(),
            retries: HashMap::new(),
            problems: Vec::new(),
            is_first_scan,
            has_scanned: false,
            saved: Instant::now(),
            swept: Instant::now(),
            save_fails: false,
        }
    }

    /// Takes the complete list of files.
    pub(crate) fn scanned(&mut self, files: Vec<FoundFile>) {
        self.known.begin_scan();
        // It is complete: what waited since the last one is in it again.
        self.backlog.clear();
        self.late.clear();
        for (index, found) in files.into_iter().enumerate() {
            if self.is_file(&found) {
                let stranger = self.recognise(found);
                self.backlog.extend(stranger);
            }
            if index % BACKLOG_PART == BACKLOG_PART - 1 {
                self.let_sleep();
            }
        }
        if self.following.follow {
            // Parts of it are taken in one after the other, and no copy before its original.
            let backlog = self.backlog.make_contiguous();
            backlog.sort_by_key(|found| by_age(&found.meta));
        }
        self.notice_missing();
        self.meet_backlog();
    }

    /// Takes in files that nothing is known of, as many as readers can do with for now.
    pub(super) fn meet_backlog(&mut self) {
        while !self.backlog.is_empty() {
            if self.pool.waiting() >= WAITING_MAX || !self.unsaved.is_empty() {
                return;
            }
            let part = self.backlog.len().min(BACKLOG_PART);
            let part = self.backlog.drain(..part);
            // One that was written to while it waited its turn is known by now.
            let is_unknown =
                |found: &FoundFile| self.known.find(DeviceInode::of(&found.meta)).is_none();
            let part: Vec<FoundFile> = part.filter(is_unknown).collect();
            self.meet_all(part);
            self.release_new();
            self.let_sleep();
        }
        if !self.late.is_empty() {
            let late = std::mem::take(&mut self.late).into_values();
            let late = late.filter_map(|found| self.recognise(found)).collect();
            self.meet_all(late);
            self.release_new();
        }
        if std::mem::take(&mut self.is_first_scan) {
            self.save_look();
        }
    }

    /// Takes paths that were written to.
    pub(crate) fn written(&mut self, paths: &[Arc<Path>]) {
        let mut strangers = Vec::new();
        for path in paths {
            // What vanished meanwhile shows in the next scan.
            let Ok(meta) = Meta::of(path) else { continue };
            let found = FoundFile {
                path: path.clone(),
                meta,
            };
            if self.is_file(&found) {
                strangers.extend(self.recognise(found));
            }
        }
        if self.backlog.is_empty() {
            self.meet_all(strangers);
            self.release_new();
        } else {
            let late = strangers.into_iter();
            self.late
                .extend(late.map(|found| (DeviceInode::of(&found.meta), found)));
        }
    }

    fn is_file(&mut self, found: &FoundFile) -> bool {
        if found.meta.kind != Kind::File && self.following.follow {
            let message = format!(
                "{}: is not a regular file and cannot be followed",
                found.path.display()
            );
            self.warn_once(&message);
        }
        found.meta.kind == Kind::File && !self.is_own(found)
    }

    /// Whether the file is written with the events that are read here.
    fn is_own(&mut self, found: &FoundFile) -> bool {
        if !self.ctx.writes(&found.meta.identity()) {
            return false;
        }
        self.warn_once(&format!(
            "{}: is not read, because an output writes the events of this input to it and they would be read again without end",
            found.path.display()
        ));
        true
    }

    /// Handles a file at a known place; gives back one that is not known there.
    fn recognise(&mut self, found: FoundFile) -> Option<FoundFile> {
        let place = DeviceInode::of(&found.meta);
        let Some(file) = self.known.find(place) else {
            return Some(found);
        };
        let born = file.lock().look.born_ns;
        if born.is_some() && found.meta.born_ns.is_some() && born != found.meta.born_ns {
            // The inode was deleted and is used again.
            self.lose(&file, Lost::Gone);
            return Some(found);
        }
        if self.is_replaced(&file, &found) {
            self.lose(&file, Lost::Truncated);
            return Some(found);
        }
        self.renew(&file, &found);
        None
    }

    /// Whether something else is in a known file than what was read from it.
    pub(super) fn is_replaced(&self, file: &Arc<File>, found: &FoundFile) -> bool {
        let known = Likeness::from(&*file.lock());
        // With the same times, size and birth it is what it was.
        if FileStat::of(&found.meta) == known.look {
            return false;
        }
        // Nothing is known of what cannot be read now; it is tried again when it is opened.
        self.holds_other_content(&known, found).unwrap_or(false)
    }

    /// Whether the content of a known file is not what was read from it.
    fn holds_other_content(&self, known: &Likeness, found: &FoundFile) -> io::Result<bool> {
        let opened = found.open()?;
        let (compression, len) = (self.following.compression, known.fingerprint.len);
        if known.format.is_none() {
            // Readers go on meanwhile, so the size must be younger than what is known.
            let size = Meta::of_fd(&opened)?.size;
            let short_end = known.short_end.filter(|_| size < known.sent.0);
            let end = short_end.unwrap_or(known.sent);
            if !holds(&opened, size, end)? || !holds(&opened, size, known.given)? {
                return Ok(true);
            }
        }
        let head = Head::read(&opened, compression, len.into())?;
        Ok(head.format != known.format || fingerprint(&head.bytes) != known.fingerprint)
    }

    /// Notes what the system says of a known file, and has it read if there is something to read.
    fn renew(&mut self, file: &Arc<File>, found: &FoundFile) {
        let mut state = file.lock();
        let look = FileStat::of(&found.meta);
        let is_changed = look != state.look || !state.is_seen;
        // A file of two names keeps the one under which it was found first.
        let is_there = |path: &Path| {
            Meta::of(path).is_ok_and(|meta| DeviceInode::of(&meta) == DeviceInode::of(&found.meta))
        };
        if *state.path != *found.path && !is_there(&state.path) {
            state.path = found.path.to_path_buf();
            state.is_renamed = true;
            self.dirty.note(file, &mut state);
        }
        let has_grown = look.size != state.look.size || look.modified_ns != state.look.modified_ns;
        if has_grown {
            self.dirty.note(file, &mut state);
            if matches!(state.status, FileStatus::Done | FileStatus::Broken) {
                if state.status == FileStatus::Broken {
                    // Something was mended: nothing inside is trusted but the position.
                    state.checkpoints.clear();
                    state.saved_checkpoint = Some(UNKNOWN_PLACE);
                }
                state.status = FileStatus::Idle;
                state.problem = None;
            }
        }
        state.look = look;
        state.is_seen = true;
        state.lost = None;
        if look.size >= state.sent.offset {
            state.short_end = None;
        }
        // One that could not be opened because it was just being renamed is still to be read.
        let is_left = state.format.is_none()
            && !self.pool.has(file.id)
            && !self.retries.contains_key(&file.id);
        let wants_reading = state.wants_reading() && (is_changed || is_left);
        let is_short = usize::from(state.fingerprint.len) < self.following.fingerprint_bytes
            && look.size > u64::from(state.fingerprint.len);
        drop(state);
        if is_short && has_grown {
            self.lengthen_fingerprint(file, found);
        }
        if wants_reading {
            self.read(file);
        }
    }

    /// Gives a file whose beginning is longer by now a longer fingerprint.
    pub(super) fn lengthen_fingerprint(&mut self, file: &Arc<File>, found: &FoundFile) {
        let Ok(opened) = found.open() else {
            return;
        };
        let head = Head::read(
            &opened,
            self.following.compression,
            self.following.fingerprint_bytes,
        );
        let Ok(head) = head else { return };
        let mut state = file.lock();
        if head.bytes.len() > usize::from(state.fingerprint.len) {
            self.dirty.note(file, &mut state);
            drop(state);
            self.known.set_fingerprint(file, fingerprint(&head.bytes));
        }
    }

    /// Has a file read, from where it was read to.
    pub(super) fn read(&mut self, file: &Arc<File>) {
        {
            let mut state = file.lock();
            if state.awaits_id {
                return;
            }
            if state.status == FileStatus::Idle {
                state.status = FileStatus::Open;
            }
            if !self.pool.has(file.id) {
                let left = state.look.size.saturating_sub(match state.format {
                    None => state.sent.offset,
                    Some(_) => 0,
                });
                self.ctx.progress.add_total(left);
            }
        }
        self.pool.request(file, Order::Read);
    }

    /// A known file is no longer where it was.
    pub(super) fn lose(&mut self, file: &Arc<File>, how: Lost) {
        {
            let mut state = file.lock();
            state.lost = Some(how);
            state.left = state.place.filter(|_| how == Lost::Truncated);
            state.lost_since = Some(seconds_now());
            self.dirty.note(file, &mut state);
        }
        self.known.set_place(file, None);
        if let Some(task) = self.pool.take_idle(file.id) {
            self.orphans.insert(file.id, (task, Instant::now()));
        }
    }

    /// Takes in a file that nothing is known of.
    pub(super) fn welcome(&mut self, found: &FoundFile, head: &Head) {
        let state = FileState {
            path: found.path.to_path_buf(),
            place: Some(DeviceInode::of(&found.meta)),
            look: FileStat::of(&found.meta),
            is_seen: true,
            format: head.format,
            fingerprint: fingerprint(&head.bytes),
            awaits_id: true,
            ..FileState::default()
        };
        let file = File::new(self.new_id(found, head), state);
        if self.is_first_scan && self.following.start_at == StartAt::End {
            if head.format.is_some() {
                let purpose = Purpose::Measure(head.bytes.clone());
                let probe = Probe::new(found.clone(), head.format, purpose, u64::MAX, Vec::new());
                return self.pool.probe(probe);
            }
            let size = found.meta.size;
            let end = found.open().and_then(|opened| written_end(&opened, size));
            let end = end.ok().filter(|_| self.following.has_room);
            self.skip_to(&file, end.unwrap_or(size));
        }
        self.known.insert(&file);
        self.unsaved.push(file);
    }

    /// An id for a new file: random. Where files are read once and nothing is remembered, it is made of path and
    /// beginning, so that another run gives the same ids.
    fn new_id(&self, found: &FoundFile, head: &Head) -> u128 {
        if self.following.follow || self.ctx.registry.is_some() {
            return u128::from(fastrand::u64(..)) << 64 | u128::from(fastrand::u64(..));
        }
        let mut hasher = Fnv128::new();
        hasher.add(found.path.as_os_str().as_bytes());
        hasher.add(&[0]);
        hasher.add(&head.bytes);
        hasher.value()
    }

    /// Counts what lies before `offset` in a new file as dropped.
    pub(super) fn skip_to(&self, file: &Arc<File>, offset: u64) {
        let mut state = file.lock();
        state.position = Resume {
            offset,
            ..Resume::default()
        };
        state.sent = state.position.clone();
        state.counts = Counts {
            read_bytes: offset,
            ..Counts::default()
        };
        state.counts.drop_rows("start_at", 0, offset);
    }

    /// Makes the ids of new files durable, then has the files read.
    pub(super) fn release_new(&mut self) {
        if self.unsaved.is_empty() {
            return;
        }
        // What became of the files whose places the new ones have is written first.
        if !self.save(false) || !self.save_new() {
            return;
        }
        for file in std::mem::take(&mut self.unsaved) {
            let wants_reading = {
                let mut state = file.lock();
                state.awaits_id = false;
                state.wants_reading()
            };
            if wants_reading {
                self.read(&file);
            }
        }
    }

    /// Files that the scan did not find. The first one of a run looks at all that are known: some may have gone meanwhile.
    fn notice_missing(&mut self) {
        if std::mem::replace(&mut self.has_scanned, true) {
            for file in self.known.awake() {
                self.look_for(&file);
            }
            return;
        }
        for (index, id) in self.known.newly_missing().into_iter().enumerate() {
            if let Some(file) = self.known.get(id) {
                self.look_for(&file);
            }
            if index % BACKLOG_PART == BACKLOG_PART - 1 {
                self.save(false);
                self.let_sleep();
            }
        }
    }

    /// Notes that a file is gone which is not where it was.
    fn look_for(&self, file: &Arc<File>) {
        if self.known.is_in_place(file) {
            return;
        }
        let mut state = file.lock();
        if state.place.is_none() || state.lost.is_some() || is_at_its_path(&state) {
            return;
        }
        state.lost = Some(Lost::Gone);
        state.lost_since = Some(seconds_now());
        self.dirty.note(file, &mut state);
        if self.pool.has(file.id) {
            return;
        }
        let path = state.path.display();
        let unread = state.look.size.saturating_sub(state.sent.offset);
        let loss = match state.format {
            None if unread > 0 => format!("{unread} bytes of it were not read"),
            Some(_) if state.status == FileStatus::Idle => "it was not read to the end".to_owned(),
            _ => return,
        };
        self.ctx.diagnostics.warn(&format!(
            "{path}: has disappeared (deleted, or renamed to a name that `paths` does not match), and {loss}"
        ));
    }

    /// How long to wait for changes: until something is due by time.
    pub(crate) fn patience(&self, longest: Duration) -> Duration {
        let is_at_rest = self.held.is_empty() && self.is_settled() && !self.pool.has_idle();
        if is_at_rest && self.dirty.is_empty() {
            AT_REST
        } else {
            longest
        }
    }

    /// Whether readers have nothing left to do, and nothing waits for its id to be durable.
    pub(crate) fn is_settled(&self) -> bool {
        self.pool.is_settled() && self.unsaved.is_empty() && self.backlog.is_empty()
    }

    /// Waits until a reader says something, and handles it.
    pub(crate) fn wait_for_event(&mut self, timeout: Duration) {
        if let Ok(event) = self.events.recv_timeout(timeout) {
            self.handle(event);
        }
    }

    /// Handles what readers said.
    pub(crate) fn handle_events(&mut self) {
        while let Ok(event) = self.events.try_recv() {
            self.handle(event);
        }
        self.release_new();
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::NotOpened(file, error) => {
                let again = self.pool.closed(file.id);
                self.not_opened(&file, error);
                if again {
                    self.look_again(&file);
                }
            }
            Event::Ended(task, outcome) => self.ended(task, outcome),
            Event::Unreadable(file, problem) => self.broken(&file, &problem.to_string()),
            Event::Probed(probe, seen) => {
                self.pool.probed();
                self.probed(*probe, &seen);
            }
        }
    }

    fn not_opened(&mut self, file: &Arc<File>, error: OpenError) {
        match error {
            // A scan is under way that finds it.
            OpenError::Moved => file.lock().is_seen = false,
            OpenError::Replaced => {
                let path = file.lock().path.clone();
                if file.lock().lost.is_none() {
                    self.lose(file, Lost::Truncated);
                }
                self.written(&[path.into()]);
            }
            OpenError::Failed(error) if error.kind() == io::ErrorKind::NotFound => {
                let path = {
                    let mut state = file.lock();
                    // It was renamed or deleted just now: where a scan finds it, it is read.
                    state.is_seen = false;
                    state.path.clone()
                };
                if !self.following.follow {
                    self.fail(&path, &describe(&error));
                }
            }
            OpenError::Failed(error) if is_short_of_descriptors(&error) => {
                self.keep_fewer_open();
                file.lock().status = FileStatus::Idle;
                self.retries.insert(file.id, Instant::now() + SHORT_WAIT);
            }
            OpenError::Failed(error) => self.failed(file, &describe(&error)),
        }
    }

    /// The process keeps too many files open: with fewer, there is room for others.
    fn keep_fewer_open(&mut self) {
        self.following.open_files_max = self.pool.close_half();
        self.warn_once(
            "too many open files: from now on, fewer files are kept open after they have been read to the end",
        );
    }

    /// A file that nothing is known of cannot be looked at: it is tried again later.
    pub(super) fn postpone(&mut self, found: &FoundFile, error: &io::Error) {
        let wait = if self.following.follow && is_short_of_descriptors(error) {
            self.keep_fewer_open();
            SHORT_WAIT
        } else {
            self.fail(&found.path, &describe(error));
            self.following.retry_interval
        };
        let again = (found.clone(), Instant::now() + wait);
        self.postponed.insert(DeviceInode::of(&found.meta), again);
    }

    /// Looks again at files that could not be looked at.
    pub(super) fn meet_postponed(&mut self) {
        let now = Instant::now();
        let due = self.postponed.extract_if(|_, (_, at)| *at <= now);
        let paths: Vec<Arc<Path>> = due.map(|(_, (found, _))| found.path).collect();
        if !paths.is_empty() {
            self.written(&paths);
        }
    }

    /// The system does not let a file be read: it is tried again later.
    fn failed(&mut self, file: &Arc<File>, reason: &str) {
        let path = {
            let mut state = file.lock();
            state.status = FileStatus::Idle;
            state.path.clone()
        };
        self.fail(&path, reason);
        self.retries
            .insert(file.id, Instant::now() + self.following.retry_interval);
    }

    /// Says what is wrong with a file: once while files are followed.
    pub(super) fn fail(&mut self, path: &Path, reason: &str) {
        let message = format!("{}: {reason}", path.display());
        if self.following.follow {
            self.warn_once(&message);
        } else if !self.problems.contains(&message) {
            self.problems.push(message);
        }
    }

    pub(super) fn warn_once(&mut self, message: &str) {
        let limit = Limit::once_for("file", message);
        self.ctx
            .diagnostics
            .warn_limited(limit, || message.to_owned());
    }

    fn ended(&mut self, task: Box<Task>, outcome: Outcome) {
        let file = task.file.clone();
        let again = self.pool.closed(file.id);
        let status = match outcome {
            Outcome::Done { has_garbage } => {
                if has_garbage {
                    let path = file.lock().path.display().to_string();
                    let what = "the data after the compressed data was ignored";
                    self.warn_once(&format!("{path}: {what}"));
                }
                Some(FileStatus::Done)
            }
            // What is said of the file that it goes on in stays.
            Outcome::Closed | Outcome::Stopped if task.is_left() => None,
            Outcome::Closed | Outcome::Stopped => Some(FileStatus::Idle),
            Outcome::Truncated(problem) => {
                if !self.following.follow {
                    let path = file.lock().path.clone();
                    self.fail(&path, &problem.to_string());
                }
                Some(FileStatus::Idle)
            }
            Outcome::Broken(problem) => {
                self.broken(&file, &problem.to_string());
                None
            }
            Outcome::Unreadable => {
                self.broken(&file, "broken data");
                None
            }
            Outcome::Replaced => {
                let path = file.lock().path.clone();
                if file.lock().lost.is_none() {
                    self.lose(&file, Lost::Truncated);
                }
                self.orphans.insert(file.id, (task, Instant::now()));
                self.written(&[path.into()]);
                return;
            }
            Outcome::Failed(error) => {
                self.failed(&file, &format!("cannot be read: {}", describe(&error)));
                None
            }
            Outcome::Elsewhere => {
                task.suspend();
                return self.look_again(&file);
            }
            Outcome::More | Outcome::Rest => None,
        };
        // What was read and not given is read again, unless it was given.
        task.suspend();
        let mut state = file.lock();
        if let Some(status) = status
            && state.status != FileStatus::Broken
        {
            state.status = status;
        }
        self.dirty.note(&file, &mut state);
        drop(state);
        if again {
            self.look_again(&file);
        }
    }

    fn broken(&mut self, file: &Arc<File>, problem: &str) {
        let path = {
            let mut state = file.lock();
            state.status = FileStatus::Broken;
            state.problem = Some(problem.to_owned());
            self.dirty.note(file, &mut state);
            state.path.clone()
        };
        self.fail(&path, problem);
    }

    /// Looks at a file for which something came while it was worked on.
    fn look_again(&mut self, file: &Arc<File>) {
        let wants_reading = {
            let state = file.lock();
            state.place.is_some() && state.wants_reading()
        };
        if wants_reading {
            self.read(file);
        }
    }
}

/// Sorts originals before their copies: older files before younger ones, and where their age is not known larger ones before
/// smaller ones.
pub(super) fn by_age(meta: &Meta) -> (Option<i64>, Reverse<u64>) {
    (meta.born_ns, Reverse(meta.size))
}

/// Whether the process or the system has too many files open.
fn is_short_of_descriptors(error: &io::Error) -> bool {
    let errno = rustix::io::Errno::from_io_error(error);
    matches!(
        errno,
        Some(rustix::io::Errno::MFILE | rustix::io::Errno::NFILE)
    )
}

/// Whether a file that no scan found is at its path all the same: the scan could not see everything, or nobody looks there
/// any more. Where nobody can tell, it is not gone.
fn is_at_its_path(state: &FileState) -> bool {
    match Meta::of(&state.path) {
        Ok(meta) => state.place == Some(DeviceInode::of(&meta)),
        Err(error) => !matches!(
            error.kind(),
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
        ),
    }
}

/// Whether a plain file of this size has the bytes before a place that were read there.
fn holds(opened: &Opened, size: u64, (end, check): (u64, Check)) -> io::Result<bool> {
    if size < end {
        return Ok(false);
    }
    let len = u64::from(check.len).min(end);
    let mut tail = vec![0; len as usize];
    let read = read_exact_at(opened, &mut tail, end - len)?;
    Ok(read == tail.len() && check.matches(&tail))
}

/// Seconds since 1970.
pub(super) fn seconds_now() -> u64 {
    Duration::from_nanos(now().max(0) as u64).as_secs()
}
