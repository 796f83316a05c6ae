//! Finds files and tells when something happened to them, at almost no cost while nothing does.
//!
//! Where the kernel tells of changes ([`notify`]) nothing runs until it does; what it cannot tell of, such as what other
//! hosts write to a network file system, is polled. Both see the same folders, those that [`Walk`] visits:
//! every folder on the way of a pattern, so that what does not exist yet is found when it appears.
//!
//! # Invariants
//! - A [`Change::Scan`] is complete: every file that matches, as it was after the folder's watch was set. What is
//!   written later is told later.
//! - When events are lost, a scan replaces them.
//!
//! # Limits
//! - A file that is deleted, or renamed to a name that no pattern stands for, is told of once, by a scan
//!   without it. What is written to it after that is not: who holds it open has to look.
//! - Writes through a hard link in another folder and through a memory map are seen by the scan every 30 s only; so is a
//!   mount over a folder.
//! - Rights that change on the way to a folder are seen by that scan too.

mod found;
mod known;
mod notify;
mod scan;
mod schedule;
mod waker;

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::paths::walk::{Folder, Walk};
use crate::paths::{Exclusion, Pattern};
pub(crate) use found::{FoundFile, WatchMode};
use known::Known;
use notify::{Happened, Notify};
use scan::{Difference, Polled, Scan, difference, refusal};
use schedule::Schedule;
pub(crate) use waker::Waker;

/// Without a bell to wake it, a wait looks for wakes so often.
const BELL_LACKS: Duration = Duration::from_millis(100);

/// What is watched, and how.
pub(crate) struct WatchSettings {
    pub(crate) patterns: Vec<Pattern>,
    pub(crate) exclusion: Exclusion,
    /// Whether links that wildcards find are followed; one that a pattern names always is.
    pub(crate) follow_links: bool,
    /// How often folders are looked at of which the kernel does not tell.
    pub(crate) scan_interval: Duration,
    pub(crate) mode: WatchMode,
}

/// What changed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// The first one, and after anything but a write to a known file; also every 30 s for safety.
    Scan {
        /// All files, each once: in the order of the patterns, and sorted by name.
        files: Vec<FoundFile>,
        /// Folders that cannot be listed and the like; each is told when it begins.
        problems: Vec<String>,
        /// Indices of the patterns that stand for nothing.
        unmatched: Vec<usize>,
    },
    /// Something was written to these files of the last scan, or their attributes changed.
    Written(Vec<Arc<Path>>),
}

/// Watches files.
pub(crate) struct Watch {
    settings: WatchSettings,
    waker: Waker,
    notify: Option<Notify>,
    folders: Vec<Folder>,
    polled: Vec<Polled>,
    /// For each pattern, whether it was a path that exists as it is written.
    literal: Vec<bool>,
    known: Known,
    schedule: Schedule,
    /// Problems of the last scan.
    told: HashSet<String>,
    warnings: Vec<String>,
}

impl Watch {
    /// Without inotify everything is polled, which [`Self::take_warnings`] tells.
    pub(crate) fn new(settings: WatchSettings) -> Self {
        let mut watch = Self {
            waker: Waker::new(),
            notify: None,
            folders: Vec::new(),
            polled: Vec::new(),
            literal: Vec::new(),
            known: Known::default(),
            schedule: Schedule::new(settings.scan_interval),
            told: HashSet::new(),
            warnings: Vec::new(),
            settings,
        };
        if watch.settings.mode != WatchMode::Poll {
            match Notify::new() {
                Ok(notify) => watch.notify = Some(notify),
                Err(error) => watch.warn(refusal(None, error)),
            }
        }
        watch
    }

    /// Waits until something changed, at most for `timeout`; the first call gives a scan at once.
    ///
    /// Gives nothing when the time is over or [`Waker::wake`] was called.
    pub(crate) fn wait(&mut self, timeout: Duration) -> Option<Change> {
        let now = Instant::now();
        let until = now
            .checked_add(timeout)
            .unwrap_or(now + Duration::from_secs(86_400));
        loop {
            let change = self.due();
            if change.is_some() {
                return change;
            }
            if self.sleep(until) {
                self.drain();
            }
            if self.waker.take() || Instant::now() >= until {
                return self.due();
            }
        }
    }

    /// Ends a wait from another thread.
    pub(crate) fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// What the user should know since the last call: that something is polled for want of a resource. Worth telling once.
    pub(crate) fn take_warnings(&mut self) -> Vec<String> {
        std::mem::take(&mut self.warnings)
    }

    fn warn(&mut self, warning: String) {
        self.warnings.push(warning);
    }

    /// The change to tell now.
    fn due(&mut self) -> Option<Change> {
        let now = Instant::now();
        if self.schedule.is_scan_due(now) {
            return Some(self.scan());
        }
        if self.schedule.is_poll_due(now) && !self.poll() {
            return Some(self.scan());
        }
        let written = self.known.take_written();
        (!written.is_empty()).then_some(Change::Written(written))
    }

    /// Sleeps until something is due, a wake, or events; says whether there are events.
    fn sleep(&mut self, until: Instant) -> bool {
        let now = Instant::now();
        let (due, events_welcome) = self.schedule.next(now);
        let mut until = due.map_or(until, |due| due.min(until));
        let mut sources = Vec::with_capacity(2);
        match self.waker.bell() {
            Some(bell) => sources.push(PollFd::from_borrowed_fd(bell, PollFlags::IN)),
            None => until = until.min(now + BELL_LACKS),
        }
        let notify = self.notify.as_ref().filter(|_| events_welcome);
        let events_at = notify.map(|notify| {
            sources.push(PollFd::from_borrowed_fd(notify.queue(), PollFlags::IN));
            sources.len() - 1
        });
        let timeout = Timespec::try_from(until.saturating_duration_since(now)).ok();
        // An interruption is like the end of a sleep: the caller looks what is due.
        let woken = poll(&mut sources, timeout.as_ref()).is_ok_and(|ready| ready > 0);
        woken && events_at.is_some_and(|at| !sources[at].revents().is_empty())
    }

    fn walk(settings: &WatchSettings) -> Walk<'_> {
        let WatchSettings {
            patterns,
            exclusion,
            follow_links,
            ..
        } = settings;
        Walk::new(patterns, exclusion, *follow_links)
    }

    /// Indices of the patterns that stand for nothing now.
    pub(crate) fn unmatched(settings: &WatchSettings) -> Vec<usize> {
        let mut walk = Self::walk(settings);
        walk.run(&mut Scan::new(WatchMode::Poll, None));
        unmatched(&walk.matched)
    }

    fn scan(&mut self) -> Change {
        let started = Instant::now();
        let settings = &self.settings;
        let mut walk = Self::walk(settings);
        if let Some(notify) = &mut self.notify {
            notify.begin();
        }
        let mut scan = Scan::new(settings.mode, self.notify.as_mut());
        walk.run(&mut scan);
        let (matched, problems) = (walk.matched, walk.problems);
        self.literal = walk.literal;
        self.folders = scan.take_folders();
        self.polled = std::mem::take(&mut scan.polled);
        let has_watched = scan.has_watched;
        let (found, new_links) = (scan.files, scan.new_links);
        let refused = scan.refused;
        if let Some(notify) = &mut self.notify {
            notify.end();
        }
        if let Some((path, error)) = refused {
            self.warn(refusal(Some(&path), error));
        }
        let files = self.renew(found, &new_links);
        self.schedule
            .scanned(started, has_watched, !self.polled.is_empty());
        Change::Scan {
            files,
            problems: self.begun(problems),
            unmatched: unmatched(&matched),
        }
    }

    /// Takes the files of a scan as the known ones, each once, in the order of the patterns.
    fn renew(
        &mut self,
        mut found: Vec<(usize, FoundFile)>,
        new_links: &[Arc<Path>],
    ) -> Vec<FoundFile> {
        if self.settings.patterns.len() > 1 {
            found.sort_by_key(|(pattern, _)| *pattern);
        }
        let mut known = Known::with_capacity(found.len());
        let mut files = Vec::with_capacity(found.len());
        for (_, file) in found {
            if known.add(&file.path) {
                files.push(file);
            }
        }
        // Written before the watch was set and after the scan saw it, or told of and not yet passed on.
        for path in self.known.take_written().iter().chain(new_links) {
            known.mark(path);
        }
        self.known = known;
        files
    }

    /// The problems that the scan before did not have.
    fn begun(&mut self, problems: Vec<String>) -> Vec<String> {
        let mut all = HashSet::new();
        let mut begun = Vec::new();
        for problem in problems {
            if all.insert(problem.clone()) && !self.told.contains(&problem) {
                begun.push(problem);
            }
        }
        self.told = all;
        begun
    }

    /// Looks at the folders without watch and notes what was written; false if there is more to it.
    fn poll(&mut self) -> bool {
        let settings = &self.settings;
        let literal = settings.patterns.iter().map(Pattern::is_plain);
        if !literal.eq(self.literal.iter().copied()) {
            return false;
        }
        for polled in &mut self.polled {
            let mut walk = Self::walk(settings);
            let folder = &self.folders[polled.folder];
            let entries = walk.read(folder);
            match difference(&polled.entries, &entries) {
                Difference::Named => return false,
                Difference::Written(written) => {
                    for entry in written {
                        self.known.mark_in(&folder.full, &entry.name);
                    }
                }
            }
            polled.entries = entries;
        }
        self.schedule.polled();
        true
    }

    /// Takes the kernel's events.
    fn drain(&mut self) {
        let settings = &self.settings;
        let walk = Self::walk(settings);
        let (folders, known) = (&self.folders, &mut self.known);
        let Some(notify) = &mut self.notify else {
            return;
        };
        let mut needs_scan = false;
        notify.drain(|place, name, happened| {
            let Some(place) = place.filter(|_| happened != Happened::Lost) else {
                needs_scan = true;
                return;
            };
            let links = place.aliases.get(name);
            let (is_folder, is_write) = match happened {
                Happened::Written { is_folder } => (is_folder, true),
                Happened::Named { is_folder } => (is_folder, false),
                Happened::Lost => return,
            };
            for link in links.into_iter().flatten() {
                needs_scan |= !(is_write && known.mark(link));
            }
            for folder in place.folders.iter().map(|index| &folders[*index]) {
                let is_known = is_write && !is_folder && known.mark_in(&folder.full, name);
                if !is_known && !needs_scan {
                    needs_scan = walk.concerns(folder, name, is_folder);
                }
            }
        });
        self.schedule.drained();
        if needs_scan {
            self.schedule.request_scan(Instant::now());
        }
    }
}

/// Indices of the patterns that stand for nothing.
fn unmatched(matched: &[bool]) -> Vec<usize> {
    let indices = 0..matched.len();
    indices.filter(|index| !matched[*index]).collect()
}

#[cfg(test)]
mod tests;
