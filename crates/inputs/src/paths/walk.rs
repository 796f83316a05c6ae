//! Finds the files that patterns stand for, all patterns in one walk.
//!
//! The patterns are read like one state machine over names: a [`PatternStep`] is a pattern and its next step, a folder is
//! visited once with all states that lead into it, and listed only if one of them has a wildcard there. What the states
//! of a folder say of a name decides about a listed name and, in [`Walk::concerns`], about a name that the kernel
//! reported.
//!
//! # Invariants
//! - Entries of a folder are visited in the order of their names, folders in the place of theirs: paths come sorted.
//! - What vanishes while the walk runs is left out without a problem.
//!
//! # Limits
//! Where links are followed, a folder that can be reached through several links is visited through each, though never
//! inside itself.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir};
use rustix::io::Errno;

use super::meta::{Kind, Meta, stat_at};
use super::{Exclusion, NamePattern, Pattern, Rule, is_hidden};
use crate::reading::describe::describe;

/// Bytes of names that are read from a folder at once.
const LISTING_BYTES: usize = 32 * 1024;

/// A pattern and the step it takes next; the one behind its last takes what is in the folder that it named.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct PatternStep {
    pattern: u32,
    step: u32,
    /// Wildcards stand for themselves, because the path exists as it is written.
    literal: bool,
}

/// A folder that patterns lead into.
#[derive(Debug)]
pub(crate) struct Folder {
    /// As the pattern spells it; empty for the current one.
    pub(crate) written: PathBuf,
    /// An absolute path.
    pub(crate) full: PathBuf,
    /// Whether a pattern may end here, so that writes to what is in the folder matter.
    pub(crate) has_files: bool,
    states: Vec<PatternStep>,
}

impl Folder {
    /// The path of one of its files.
    pub(crate) fn path_of(&self, name: &OsStr) -> Arc<Path> {
        self.full.join(name).into()
    }
}

/// Something in a folder that a pattern stands for or leads through.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) name: OsString,
    pub(crate) is_link: bool,
    /// What it leads to; none for a link that leads nowhere.
    pub(crate) kind: Option<Kind>,
    /// Of files, and of what links lead to.
    pub(crate) meta: Option<Meta>,
    /// The first pattern that stands for it as a file.
    pub(crate) file: Option<usize>,
    states: Vec<PatternStep>,
}

impl Entry {
    /// Whether patterns lead into it.
    pub(crate) fn is_way(&self) -> bool {
        !self.states.is_empty()
    }
}

/// What a walk calls.
pub(crate) trait Visitor {
    /// Before the folder is read.
    fn enter(&mut self, _folder: &Folder) {}
    /// A file, after all that are sorted before it.
    fn file(&mut self, folder: &Folder, entry: &Entry, pattern: usize);
    /// After everything below the folder.
    fn leave(&mut self, _folder: Folder, _entries: Vec<Entry>) {}
}

/// What the states of a folder say of a name.
#[derive(Default)]
struct Role {
    /// The first pattern that ends here.
    file: Option<u32>,
    /// Other patterns that end here.
    also: Vec<u32>,
    /// A pattern without wildcards ends here.
    plain: Option<u32>,
    /// Where patterns stand inside.
    states: Vec<PatternStep>,
}

/// A walk.
pub(crate) struct Walk<'a> {
    patterns: &'a [Pattern],
    exclusion: &'a Exclusion,
    /// Whether links found by a wildcard are followed; one that a pattern names always is.
    follow_links: bool,
    /// Folders that cannot be listed, files that cannot be looked at.
    pub(crate) problems: Vec<String>,
    /// For each pattern, whether it stood for something.
    pub(crate) matched: Vec<bool>,
    /// For each pattern, whether it is a path that exists as it is written.
    pub(crate) literal: Vec<bool>,
    /// Device and inode of the folders around, where links might lead back to them.
    around: Vec<(u64, u64)>,
    buffer: Vec<MaybeUninit<u8>>,
}

impl<'a> Walk<'a> {
    pub(crate) fn new(
        patterns: &'a [Pattern],
        exclusion: &'a Exclusion,
        follow_links: bool,
    ) -> Self {
        Self {
            patterns,
            exclusion,
            follow_links,
            problems: Vec::new(),
            matched: vec![false; patterns.len()],
            literal: Vec::new(),
            around: Vec::new(),
            buffer: Vec::new(),
        }
    }

    /// Visits everything that the patterns lead to.
    pub(crate) fn run(&mut self, visitor: &mut impl Visitor) {
        self.literal = self.patterns.iter().map(Pattern::is_plain).collect();
        for absolute in [true, false] {
            let mut states = Vec::new();
            for (index, pattern) in self.patterns.iter().enumerate() {
                if pattern.absolute == absolute && !pattern.steps.is_empty() {
                    let state = PatternStep {
                        pattern: u32::try_from(index).unwrap_or(u32::MAX),
                        step: 0,
                        literal: self.literal[index],
                    };
                    self.push(&mut states, state);
                }
            }
            if states.is_empty() {
                continue;
            }
            let (written, full) = if absolute {
                (PathBuf::from("/"), PathBuf::from("/"))
            } else {
                (PathBuf::new(), real_path(Path::new(".")))
            };
            self.visit(self.folder(written, full, states), visitor);
        }
    }

    fn visit(&mut self, folder: Folder, visitor: &mut impl Visitor) {
        visitor.enter(&folder);
        let depth = self.around.len();
        let entries = self.read(&folder);
        for entry in &entries {
            if let Some(pattern) = entry.file {
                visitor.file(&folder, entry, pattern);
            }
            if entry.is_way()
                && entry.kind == Some(Kind::Directory)
                && let Some(inside) = self.inside(&folder, entry)
            {
                self.visit(inside, visitor);
            }
        }
        self.around.truncate(depth);
        visitor.leave(folder, entries);
    }

    /// The folder that an entry is; none for one of those around.
    fn inside(&self, folder: &Folder, entry: &Entry) -> Option<Folder> {
        let id = entry.meta.map(|meta| (meta.device, meta.inode));
        if entry.is_link && id.is_some_and(|id| self.around.contains(&id)) {
            return None;
        }
        let written = folder.written.join(&entry.name);
        let is_dots = entry.name == "." || entry.name == "..";
        let full = if !written.is_absolute() && (entry.is_link || is_dots) {
            real_path(&written)
        } else {
            folder.full.join(&entry.name)
        };
        Some(self.folder(written, full, entry.states.clone()))
    }

    /// What there is in a folder, sorted by name.
    pub(crate) fn read(&mut self, folder: &Folder) -> Vec<Entry> {
        let mut entries = Vec::new();
        let mut names: Vec<&OsStr> = Vec::new();
        let mut lists = false;
        for state in &folder.states {
            match self.step(*state) {
                (step, true) => names.push(&step.name),
                (_, false) => lists = true,
            }
        }
        names.sort_unstable();
        names.dedup();
        let Some((open, can_list)) = self.open(folder, lists) else {
            return entries;
        };
        if self.follow_links
            && let Ok((meta, _)) = stat_at(&open, c"", AtFlags::EMPTY_PATH)
        {
            self.around.push((meta.device, meta.inode));
        }
        for name in &names {
            entries.extend(self.entry(&open, folder, name, FileType::Unknown));
        }
        if lists && can_list {
            self.list(&open, folder, &names, &mut entries);
        }
        entries.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        entries
    }

    /// Opens a folder, and says whether it can be listed.
    fn open(&mut self, folder: &Folder, lists: bool) -> Option<(OwnedFd, bool)> {
        let path = if folder.written.as_os_str().is_empty() {
            Path::new(".")
        } else {
            &folder.written
        };
        let open = |how| {
            let flags = how | OFlags::DIRECTORY | OFlags::CLOEXEC;
            rustix::fs::open(path, flags, Mode::empty())
        };
        if lists {
            match open(OFlags::RDONLY) {
                Ok(opened) => return Some((opened, true)),
                Err(error) => self.cannot(path, "listed", error),
            }
        }
        Some((open(OFlags::PATH).ok()?, false))
    }

    fn list(&mut self, open: &OwnedFd, folder: &Folder, known: &[&OsStr], to: &mut Vec<Entry>) {
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.resize(LISTING_BYTES, MaybeUninit::uninit());
        let mut listing = RawDir::new(open, &mut buffer);
        while let Some(next) = listing.next() {
            match next {
                Ok(found) => {
                    let name = OsStr::from_bytes(found.file_name().to_bytes());
                    if name != "." && name != ".." && !known.contains(&name) {
                        to.extend(self.entry(open, folder, name, found.file_type()));
                    }
                }
                Err(error) => {
                    self.cannot(&folder.written, "listed", error);
                    break;
                }
            }
        }
        self.buffer = buffer;
    }

    /// Tells what could not be done, unless the reason is that there is nothing.
    fn cannot(&mut self, path: &Path, what: &str, error: Errno) {
        if !matches!(error, Errno::NOENT | Errno::NOTDIR | Errno::LOOP) {
            let (path, error) = (path.display(), describe(&error.into()));
            self.problems
                .push(format!("{path}: cannot be {what}: {error}"));
        }
    }

    /// What a name in a folder is for the patterns.
    fn entry(
        &mut self,
        open: impl AsFd,
        folder: &Folder,
        name: &OsStr,
        listed_as: FileType,
    ) -> Option<Entry> {
        let mut is_link = listed_as == FileType::Symlink;
        let may_be_folder = !matches!(listed_as, FileType::RegularFile);
        let mut role = self.role(&folder.states, name, is_link, may_be_folder);
        if role.is_none() {
            return None;
        }
        let mut kind = Some(Kind::of_type(listed_as));
        let mut meta = None;
        if listed_as == FileType::Unknown {
            let (found, file_type) = self.look(&open, folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
            is_link = file_type == FileType::Symlink;
            (kind, meta) = (Some(found.kind), Some(found));
            role = self.role(&folder.states, name, is_link, true);
        }
        if is_link {
            meta = self
                .look(&open, folder, name, AtFlags::empty())
                .map(|it| it.0);
            kind = meta.map(|meta| meta.kind);
        } else if meta.is_none() && kind != Some(Kind::Directory) {
            let found = self.look(&open, folder, name, AtFlags::empty())?.0;
            (kind, meta) = (Some(found.kind), Some(found));
        }
        let file = self.file_of(folder, name, &role, kind);
        let is_way = !role.states.is_empty() && matches!(kind, None | Some(Kind::Directory));
        let is_awaited = is_link && kind.is_none() && !role.is_none();
        (file.is_some() || is_way || is_awaited).then(|| Entry {
            name: name.to_owned(),
            is_link,
            kind,
            meta,
            file,
            states: if is_way { role.states } else { Vec::new() },
        })
    }

    /// Looks at a name; nothing if it is gone.
    fn look(
        &mut self,
        open: impl AsFd,
        folder: &Folder,
        name: &OsStr,
        flags: AtFlags,
    ) -> Option<(Meta, FileType)> {
        match stat_at(open, name, flags) {
            Ok(found) => Some(found),
            Err(error) => {
                self.cannot(&folder.written.join(name), "read", error);
                None
            }
        }
    }

    /// The first pattern that stands for the name as a file; notes all of them.
    fn file_of(
        &mut self,
        folder: &Folder,
        name: &OsStr,
        role: &Role,
        kind: Option<Kind>,
    ) -> Option<usize> {
        let first = role.file? as usize;
        if kind? == Kind::Directory {
            return None;
        }
        if self.is_excluded(folder, name) {
            // One that is named and left out is not missing.
            if let Some(plain) = role.plain {
                self.matched[plain as usize] = true;
            }
            return None;
        }
        self.matched[first] = true;
        for pattern in &role.also {
            self.matched[*pattern as usize] = true;
        }
        Some(first)
    }

    fn is_excluded(&self, folder: &Folder, name: &OsStr) -> bool {
        !self.exclusion.is_empty()
            && (self.exclusion.has(&folder.written.join(name))
                || folder.written.is_relative() && self.exclusion.has(&folder.full.join(name)))
    }

    /// Whether a file or folder of this name, new or gone, changes what the patterns stand for.
    pub(crate) fn concerns(&self, folder: &Folder, name: &OsStr, is_folder: bool) -> bool {
        let role = self.role(&folder.states, name, false, true);
        let is_way = !role.states.is_empty() && (is_folder || self.has_way(folder, name));
        let is_file = role.file.is_some() && !is_folder && !self.is_excluded(folder, name);
        is_way
            || is_file
            || role.plain.is_some()
            || folder
                .states
                .iter()
                .any(|state| self.step(*state).0.name == name)
    }

    /// Whether something that is no folder may lead to one: by its name, or because it is a link that `**` enters.
    fn has_way(&self, folder: &Folder, name: &OsStr) -> bool {
        let by_name = self.role(&folder.states, name, true, false);
        if !self.follow_links || !by_name.states.is_empty() {
            return !by_name.states.is_empty();
        }
        fs::symlink_metadata(folder.full.join(name)).is_ok_and(|found| found.is_symlink())
    }

    fn folder(&self, written: PathBuf, full: PathBuf, states: Vec<PatternStep>) -> Folder {
        let steps = |state: &PatternStep| self.patterns[state.pattern as usize].steps.len();
        Folder {
            written,
            full,
            has_files: states
                .iter()
                .any(|state| state.step as usize + 1 >= steps(state)),
            states,
        }
    }

    /// The step that a state takes, and whether it takes one name only.
    fn step(&self, state: PatternStep) -> (&'a NamePattern, bool) {
        let pattern = &self.patterns[state.pattern as usize];
        match pattern.steps.get(state.step as usize) {
            Some(step) => (step, state.literal || matches!(step.rule, Rule::Name)),
            None => (&pattern.inside, false),
        }
    }

    fn role(
        &self,
        states: &[PatternStep],
        name: &OsStr,
        is_link: bool,
        may_be_folder: bool,
    ) -> Role {
        let mut role = Role::default();
        for state in states {
            let (step, is_name) = self.step(*state);
            match &step.rule {
                _ if is_name => {
                    if step.name == name {
                        self.advance(&mut role, *state, true);
                    }
                }
                Rule::Match { glob, hidden } => {
                    if (!is_link || self.follow_links)
                        && (*hidden || !is_hidden(name))
                        && glob.is_match(name)
                    {
                        self.advance(&mut role, *state, false);
                    }
                }
                _ => {
                    if may_be_folder && (!is_link || self.follow_links) && !is_hidden(name) {
                        self.push(&mut role.states, *state);
                    }
                }
            }
        }
        role.states.sort_unstable();
        role.states.dedup();
        role
    }

    fn advance(&self, role: &mut Role, state: PatternStep, by_name: bool) {
        let pattern = &self.patterns[state.pattern as usize];
        let next = PatternStep {
            step: state.step + 1,
            ..state
        };
        if (next.step as usize) < pattern.steps.len() {
            self.push(&mut role.states, next);
            return;
        }
        if by_name
            && pattern
                .steps
                .iter()
                .all(|step| state.literal || matches!(step.rule, Rule::Name))
        {
            role.plain.get_or_insert(state.pattern);
            role.states.push(next);
        }
        match role.file {
            Some(file) if file == state.pattern || role.also.contains(&state.pattern) => {}
            Some(file) => {
                role.also.push(file.max(state.pattern));
                role.file = Some(file.min(state.pattern));
            }
            None => role.file = Some(state.pattern),
        }
    }

    /// Adds a state, and where `**` stands for no folder the one after it.
    fn push(&self, states: &mut Vec<PatternStep>, state: PatternStep) {
        states.push(state);
        if matches!(
            self.step(state),
            (
                NamePattern {
                    rule: Rule::AnyDepth,
                    ..
                },
                false
            )
        ) {
            states.push(PatternStep {
                step: state.step + 1,
                ..state
            });
        }
    }
}

impl Role {
    fn is_none(&self) -> bool {
        self.file.is_none() && self.states.is_empty()
    }
}

fn real_path(folder: &Path) -> PathBuf {
    fs::canonicalize(folder)
        .or_else(|_| std::path::absolute(folder))
        .unwrap_or_else(|_| folder.to_owned())
}
