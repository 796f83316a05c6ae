//! Profiles as files of several formats, and stores with a range of time.

use std::collections::HashSet;
use std::fs;
use std::io::{Read, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, bail};
use batch::HostInfo;
use component::plural;
use parking_lot::Mutex;
use profiler::advice::Summary;
use profiler::filter::Filter;
use profiler::pprof::Scanned;
use profiler::profile::Window;
use profiler::store::query::{Query, QueryError};
use profiler::store::{Slice, Store, by_host, small};
use profiler::symbols::Symbols;
use profiler::top::Group;
use profiler::{Profile, collapsed, firefox, formats, otlp, pprof};
use tempfile::TempDir;

use super::archive;
use crate::console::say;
use crate::load::host;

/// The path that stands for standard input or output.
const STANDARD: &str = "-";

/// How many damaged files are named.
const UNREAD_SHOWN: usize = 3;

/// All times.
pub const ALWAYS: Range<i64> = i64::MIN..i64::MAX;

/// Names of addresses of this machine. Without the right to read them, the kernel's are missing.
pub fn names() -> Symbols {
    Symbols::of_this_machine().0
}

/// What a command reads: files, and directories that are stores.
pub struct Sources {
    sources: Vec<Source>,
    /// Names of this machine, and what the machine is called.
    symbols: Mutex<Symbols>,
    host: Arc<HostInfo>,
    /// Whether damaged files were reported.
    has_warned: AtomicBool,
    /// What was read of buckets, which is deleted with this.
    _copies: Vec<TempDir>,
}

/// A path of a command.
enum Source {
    /// A file, which is read whenever it is needed: there may be many.
    File(PathBuf),
    /// What came from standard input, which can be read once only.
    Input(Box<Profile>),
    /// The files of a store.
    Store(Vec<Slice>),
}

impl Sources {
    /// Files, and stores, which are listed: their files of a range of time count.
    ///
    /// # Errors
    /// A directory or standard input cannot be read. There is a range, and a path is no directory, or nothing is of that time.
    pub fn new(paths: &[PathBuf], range: &Range<i64>) -> anyhow::Result<Self> {
        let is_store = |path: &Path| path.is_dir() || archive::is_url(path);
        let file = paths.iter().find(|path| !is_store(path));
        if let (Some(file), false) = (file, *range == ALWAYS) {
            let file = file.display();
            bail!("a range of time is for stores, and {file} is not a directory");
        }
        let mut symbols = names();
        let mut copies = Vec::new();
        let sources = paths.iter().map(|path| match path {
            path if path.is_dir() => slices(path, range).map(Source::Store),
            path if archive::is_url(path) => {
                let copy = archive::fetched(path, range)?;
                let found = slices_in(copy.path(), path, range).map(Source::Store);
                copies.push(copy);
                found
            }
            path if path == STANDARD => read_with(path, &mut symbols)
                .map(Box::new)
                .map(Source::Input),
            path => Ok(Source::File(path.clone())),
        });
        let sources = sources.collect::<anyhow::Result<_>>()?;
        Ok(Self {
            sources,
            symbols: Mutex::new(symbols),
            host: host(),
            has_warned: AtomicBool::new(false),
            _copies: copies,
        })
    }

    /// Says once which files of a store are left out.
    fn warn(&self, unread: &[QueryError]) {
        if unread.is_empty() || self.has_warned.swap(true, Ordering::Relaxed) {
            return;
        }
        for error in unread.iter().take(UNREAD_SHOWN) {
            say(&format!("left out: {error}"));
        }
        if let Some(others) = unread.len().checked_sub(UNREAD_SHOWN).filter(|n| *n > 0) {
            say(&format!(
                "left out: {} more that cannot be read",
                plural(others as u64, "file")
            ));
        }
    }

    /// The profile of what a filter takes of all of them, for a flame graph: small stacks of large stores count at their callers. A function that the
    /// filter asks for may be part of one, so that whoever shows the profile may not filter it once more.
    pub fn graph(&self, filter: &Filter) -> anyhow::Result<Profile> {
        let mut all = Profile::default();
        for source in &self.sources {
            let profile = match source {
                Source::Store(slices) => {
                    let (profile, unread) = self.query(slices, filter).profile()?;
                    self.warn(&unread);
                    profile
                }
                Source::Input(profile) => small::taken(profile, filter, |_| true),
                Source::File(path) => small::taken(&self.read(path)?, filter, |_| true),
            };
            all.merge(&profile, |_| true);
        }
        Ok(all)
    }

    /// What kinds of work take, of what a filter takes of all of them.
    pub fn advice(&self, filter: &Filter) -> anyhow::Result<Summary> {
        let mut all = Summary::default();
        for source in &self.sources {
            match source {
                Source::Store(slices) => {
                    let query = self.query(slices, filter);
                    let of = |profile: &Profile| Summary::of(profile, filter);
                    self.warn(&query.profiles(of, |of| all.add(of))?);
                }
                Source::Input(profile) => all.add(Summary::of(profile, filter)),
                Source::File(path) => all.add(Summary::of(&self.read(path)?, filter)),
            }
        }
        Ok(all)
    }

    /// The tables of all of them, each with its host.
    pub fn tables(
        &self,
        filter: &Filter,
        group: &Group,
        mut each: impl FnMut(&str, Scanned) + Send,
    ) -> anyhow::Result<()> {
        for source in &self.sources {
            let mut each_of = |profile: &Profile| {
                for (host, part) in by_host(profile, "") {
                    each(&host, Scanned::of(&part, filter, group));
                }
            };
            match source {
                Source::Input(profile) => each_of(profile),
                Source::File(path) => each_of(&self.read(path)?),
                Source::Store(slices) => {
                    let query = self.query(slices, filter);
                    let each = |slice: &Slice, scanned| each(&slice.host, scanned);
                    self.warn(&query.tables(group, each)?);
                }
            }
        }
        Ok(())
    }

    /// How many bytes of stores are to be read.
    pub fn stored_bytes(&self) -> u64 {
        self.slices().map(|slice| slice.bytes).sum()
    }

    /// How many files of stores others have as well.
    pub fn shared(&self, others: &Self) -> usize {
        let known: HashSet<&Path> = others.slices().map(|slice| &*slice.path).collect();
        self.slices()
            .filter(|slice| known.contains(&*slice.path))
            .count()
    }

    /// The files of stores.
    fn slices(&self) -> impl Iterator<Item = &Slice> {
        let stores = self.sources.iter().filter_map(|source| match source {
            Source::Store(slices) => Some(slices),
            Source::File(_) | Source::Input(_) => None,
        });
        stores.flatten()
    }

    fn read(&self, path: &Path) -> anyhow::Result<Profile> {
        read_with(path, &mut self.symbols.lock())
    }

    fn query<'q>(&'q self, slices: &'q [Slice], filter: &'q Filter) -> Query<'q> {
        Query {
            slices,
            filter,
            names: Some((&self.host.name, &self.symbols)),
        }
    }
}

fn slices(store: &Path, range: &Range<i64>) -> anyhow::Result<Vec<Slice>> {
    slices_in(store, store, range)
}

/// The files of a folder, which messages call otherwise.
fn slices_in(store: &Path, called: &Path, range: &Range<i64>) -> anyhow::Result<Vec<Slice>> {
    let shown = called.display();
    let slices = Store::at(store).slices(range);
    let slices = slices.with_context(|| format!("cannot read {shown}"))?;
    if slices.is_empty() {
        match *range == ALWAYS {
            true => bail!("{shown} holds no profiles"),
            false => bail!("{shown} holds no profiles of that time"),
        }
    }
    Ok(slices)
}

/// Reads a profile, and gives names to those addresses of which this machine has the files.
pub fn read(path: &Path) -> anyhow::Result<Profile> {
    read_with(path, &mut names())
}

fn read_with(path: &Path, symbols: &mut Symbols) -> anyhow::Result<Profile> {
    let shown = path.display();
    let profile = match path == STANDARD {
        true => {
            let mut bytes = Vec::new();
            let input = std::io::stdin().lock();
            let read = input.take(formats::FILE_BYTES_MAX).read_to_end(&mut bytes);
            read.context("cannot read standard input")?;
            formats::parse(path, &bytes).context("standard input is no profile")?
        }
        false => formats::read(path).with_context(|| format!("cannot read {shown}"))?,
    };
    let is_open = profile
        .frames()
        .any(|(_, frame)| frame.function.is_empty() && frame.address != 0);
    Ok(match is_open {
        true => symbols.name(&profile),
        false => profile,
    })
}

/// Writes a profile in the format that the file's name says.
pub fn write(profile: &Profile, path: &Path) -> anyhow::Result<()> {
    let name = path.to_string_lossy();
    let bytes = match &*name {
        name if name.ends_with(".folded") => {
            collapsed::write(profile, &Filter::default(), None).into_bytes()
        }
        name if name.ends_with(".json.gz") => {
            firefox::write(profile, &Filter::default(), "millpond profile")
        }
        name if name.ends_with(".otlp") => otlp::write(profile, env!("CARGO_PKG_VERSION")),
        _ => pprof::write(profile),
    };
    if path == STANDARD {
        let mut output = std::io::stdout().lock();
        let written = output.write_all(&bytes).and_then(|()| output.flush());
        return written.context("cannot write to standard output");
    }
    save(path, &bytes)
}

/// Writes a file. It gets its name when it is whole, so that no part of one is taken for a profile; pipes and devices are written as they are.
pub fn save(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let written = match unfinished(path) {
        None => fs::write(path, bytes),
        Some(unfinished) => {
            let written =
                fs::write(&unfinished, bytes).and_then(|()| fs::rename(&unfinished, path));
            if written.is_err() {
                // On a full disk it would take room that others need.
                let _ = fs::remove_file(&unfinished);
            }
            written
        }
    };
    written.with_context(|| format!("cannot write {}", path.display()))
}

/// Whether a file can be written, before something takes long that is to be in it.
///
/// # Errors
/// It cannot.
pub fn check_output(path: &Path) -> anyhow::Result<()> {
    let Some(unfinished) = unfinished(path).filter(|_| path != STANDARD) else {
        return Ok(());
    };
    let made = fs::write(&unfinished, []).and_then(|()| fs::remove_file(&unfinished));
    made.with_context(|| format!("cannot write {}", path.display()))
}

/// The name of a file until it is whole; none where it is written as it is, since it is there and no regular file.
fn unfinished(path: &Path) -> Option<PathBuf> {
    let is_other = fs::symlink_metadata(path).is_ok_and(|data| !data.is_file());
    let name = path.file_name()?.to_str().filter(|_| !is_other)?;
    Some(path.with_file_name(format!(".{name}.writing-{}", std::process::id())))
}

/// A window as people read it: `2026-11-24 13:00:00 UTC, 10 min`.
pub fn shown(window: Window) -> String {
    let start = jiff::Timestamp::from_nanosecond(window.start_ns.into());
    let start = start.map_or_else(
        |_| String::new(),
        |start| start.strftime("%F %T UTC").to_string(),
    );
    format!("{start}, {}", length(window.duration_ns))
}

/// A length of time, to about three digits.
pub fn length(ns: u64) -> String {
    let seconds = ns as f64 / 1e9;
    match seconds {
        s if s < 120.0 => format!("{s:.1} s"),
        s if s < 7200.0 => format!("{:.0} min", s / 60.0),
        s if s < 172_800.0 => format!("{:.1} h", s / 3600.0),
        s => format!("{:.1} days", s / 86_400.0),
    }
}
