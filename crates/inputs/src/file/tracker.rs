//! Decides what every file that is found is: known, renamed, truncated, a copy, or new.
//!
//! It runs on one thread; readers tell it what happened by [`Event`]s. A scan is taken in two steps: first the files at
//! places that are known, which shows what was renamed, truncated or replaced, then the others, which may be copies of
//! those ([`super::judge`]).
//!
//! # Invariants
//! - The id of a new file is durable in the registry before the file is read.
//! - A place belongs to one known file at most; a known file has one place at most.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fs::File as Opened;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use codec::Resume;
use codec::fnv::Fnv128;
use component::{FileStatus, InputContext};

use super::acknowledge::Dirty;
use super::content::{Head, read_exact_at};
use super::judge::{Held, open_found};
use super::known::Known;
use super::pool::{Order, Pool};
use super::probe::{Probe, Purpose};
use super::readers::Event;
use super::settings::{Following, StartAt};
use super::state::{Counts, File, FileState, Look, Lost, Place, UNKNOWN_PLACE, fingerprint};
use super::task::{OpenError, Outcome, Task};
use super::watch::Found;
use crate::paths::meta::{Kind, Meta};
use crate::reading::emitter::now;
use crate::reading::reader::describe;

/// Files that are taken in at once.
const BACKLOG_PART: usize = 1024;

/// Files that may wait for a reader before more are taken in.
const WAITING_MAX: usize = 1024;

/// How long to wait for changes while nothing is due by time but trying again and forgetting.
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
    pub(super) held: HashMap<Place, Held>,
    /// Files whose content was truncated away, with what was read of them and not given.
    pub(super) orphans: HashMap<u128, (Box<Task>, Instant)>,
    /// Files that nothing is known of, until their turn comes.
    pub(super) backlog: VecDeque<Found>,
    /// New files whose ids are not durable yet.
    pub(super) unsaved: Vec<Arc<File>>,
    /// Files that cannot be opened or read, with when to try again.
    pub(super) retries: HashMap<u128, Instant>,
    /// What was told, so that it is told once.
    pub(super) told: HashSet<String>,
    /// What went wrong, where files are not followed.
    pub(crate) problems: Vec<String>,
    pub(super) is_first_scan: bool,
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
            unsaved: Vec::new(),
            retries: HashMap::new(),
            told: HashSet::new(),
            problems: Vec::new(),
            is_first_scan,
            saved: Instant::now(),
            swept: Instant::now(),
            save_fails: false,
        }
    }

    /// Takes the complete list of files.
    pub(crate) fn scanned(&mut self, files: Vec<Found>) {
        self.known.begin_scan();
        // It is complete: what waited since the last one is in it again.
        self.backlog.clear();
        for (index, found) in files.into_iter().enumerate() {
            if self.is_file(&found) {
                let stranger = self.recognise(found);
                self.backlog.extend(stranger);
            }
            if index % BACKLOG_PART == BACKLOG_PART - 1 {
                self.let_sleep();
            }
        }
        self.notice_missing();
        self.meet_backlog();
    }

    /// Takes in files that nothing is known of, as many as readers can do with for now.
    pub(super) fn meet_backlog(&mut self) {
        while !self.backlog.is_empty() && self.unsaved.is_empty() {
            if self.pool.waiting() >= WAITING_MAX {
                return;
            }
            let part = self.backlog.len().min(BACKLOG_PART);
            let part: Vec<Found> = self.backlog.drain(..part).collect();
            self.meet_all(part);
            self.release_new();
            self.let_sleep();
        }
        if self.backlog.is_empty() && std::mem::take(&mut self.is_first_scan) {
            self.save_look();
        }
    }

    /// Takes paths that were written to.
    pub(crate) fn written(&mut self, paths: &[Arc<Path>]) {
        let mut strangers = Vec::new();
        for path in paths {
            // What vanished meanwhile shows in the next scan.
            let Ok(meta) = Meta::of(path) else { continue };
            let found = Found {
                path: path.clone(),
                meta,
            };
            if self.is_file(&found) {
                strangers.extend(self.recognise(found));
            }
        }
        self.meet_all(strangers);
        self.release_new();
    }

    fn is_file(&mut self, found: &Found) -> bool {
        if found.meta.kind != Kind::File && self.following.follow {
            let message = format!(
                "{}: is no regular file and cannot be followed",
                found.path.display()
            );
            self.warn_once(&message);
        }
        found.meta.kind == Kind::File
    }

    /// Handles a file at a known place; gives back one that is not known there.
    fn recognise(&mut self, found: Found) -> Option<Found> {
        let place = Place::of(&found.meta);
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
    pub(super) fn is_replaced(&self, file: &Arc<File>, found: &Found) -> bool {
        let (look, format, sent, fingerprint) = {
            let state = file.lock();
            (
                state.look,
                state.format,
                state.sent.clone(),
                state.fingerprint,
            )
        };
        let now = Look::of(&found.meta);
        // With the same times, size and birth it is what it was.
        if now == look {
            return false;
        }
        if format.is_none() && now.size < sent.offset {
            return true;
        }
        // Nothing is known of what cannot be read now; it is tried again when it is opened.
        let Ok(opened) = open_found(found) else {
            return false;
        };
        let Ok(head) = Head::read(&opened, self.following.compression, fingerprint.len.into())
        else {
            return false;
        };
        if head.format != format || super::state::fingerprint(&head.bytes) != fingerprint {
            return true;
        }
        format.is_none() && !tail_agrees(&opened, &sent).unwrap_or(true)
    }

    /// Notes what the system says of a known file, and has it read if there is something to read.
    fn renew(&mut self, file: &Arc<File>, found: &Found) {
        let mut state = file.lock();
        let look = Look::of(&found.meta);
        let is_changed = look != state.look || !state.is_seen;
        // A file of two names keeps the one under which it was found first.
        let is_there = |path: &Path| {
            Meta::of(path).is_ok_and(|meta| Place::of(&meta) == Place::of(&found.meta))
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
    pub(super) fn lengthen_fingerprint(&mut self, file: &Arc<File>, found: &Found) {
        let Ok(opened) = open_found(found) else {
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
    pub(super) fn welcome(&mut self, found: &Found, head: &Head) {
        let state = FileState {
            path: found.path.to_path_buf(),
            place: Some(Place::of(&found.meta)),
            look: Look::of(&found.meta),
            is_seen: true,
            format: head.format,
            fingerprint: fingerprint(&head.bytes),
            ..FileState::default()
        };
        let file = File::new(self.new_id(found, head), state);
        if self.is_first_scan && self.following.start_at == StartAt::End {
            if head.format.is_some() {
                let purpose = Purpose::Measure(head.bytes.clone());
                let probe = Probe::new(found.clone(), head.format, purpose, u64::MAX, Vec::new());
                return self.pool.probe(probe);
            }
            self.skip_to(&file, found.meta.size);
        }
        self.known.insert(&file);
        self.unsaved.push(file);
    }

    /// An id for a new file: random. Where files are read once and nothing is remembered, it is made of path and
    /// beginning, so that another run gives the same ids.
    fn new_id(&self, found: &Found, head: &Head) -> u128 {
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
        self.save(false);
        if !self.save_new() {
            return;
        }
        for file in std::mem::take(&mut self.unsaved) {
            if file.lock().wants_reading() {
                self.read(&file);
            }
        }
    }

    /// Files that the scan did not find.
    fn notice_missing(&mut self) {
        let missing: Vec<Arc<File>> = self
            .known
            .awake()
            .into_iter()
            .filter(|file| file.lock().place.is_some() && !self.known.is_in_place(file))
            .collect();
        for file in missing {
            let mut state = file.lock();
            if state.lost.is_some() {
                continue;
            }
            state.lost = Some(Lost::Gone);
            state.lost_since = Some(seconds_now());
            self.dirty.note(&file, &mut state);
            let unread = state.look.size.saturating_sub(state.sent.offset);
            if state.format.is_none() && unread > 0 && !self.pool.has(file.id) {
                let path = state.path.display().to_string();
                drop(state);
                self.ctx.diagnostics.warn(&format!(
                    "{path}: is gone, and {unread} bytes of it were not read"
                ));
            }
        }
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
            Event::Unreadable(file, problem) => self.broken(&file, &problem),
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
                let path = file.lock().path.clone();
                if !self.following.follow {
                    self.fail(&path, &describe(&error));
                }
            }
            OpenError::Failed(error) => self.failed(file, &describe(&error)),
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
        // Bounded: who has thousands of broken files has been told.
        if self.told.len() < 10_000 && self.told.insert(message.to_owned()) {
            self.ctx.diagnostics.warn(message);
        }
    }

    fn ended(&mut self, task: Box<Task>, outcome: Outcome) {
        let file = task.file.clone();
        let again = self.pool.closed(file.id);
        let status = match outcome {
            Outcome::Done { has_garbage } => {
                if has_garbage {
                    let path = file.lock().path.display().to_string();
                    let what = "what follows the compressed data was ignored";
                    self.warn_once(&format!("{path}: {what}"));
                }
                Some(FileStatus::Done)
            }
            Outcome::Closed | Outcome::Stopped => Some(FileStatus::Idle),
            Outcome::Truncated(problem) => {
                if !self.following.follow {
                    let path = file.lock().path.clone();
                    self.fail(&path, &problem);
                }
                Some(FileStatus::Idle)
            }
            Outcome::Broken(problem) => {
                self.broken(&file, &problem);
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

/// Whether the bytes before a position are those that were read.
fn tail_agrees(opened: &Opened, sent: &Resume) -> io::Result<bool> {
    let len = u64::from(sent.check.len).min(sent.offset);
    let mut tail = vec![0; len as usize];
    let read = read_exact_at(opened, &mut tail, sent.offset - len)?;
    Ok(read == tail.len() && sent.check.matches(&tail))
}

/// Seconds since 1970.
pub(super) fn seconds_now() -> u64 {
    Duration::from_nanos(now().max(0) as u64).as_secs()
}
