//! Profiles as files of several formats, and stores with a range of time.

use std::fs;
use std::io::{Read, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail};
use batch::HostInfo;
use parking_lot::Mutex;
use profiler::filter::Filter;
use profiler::pprof::Scanned;
use profiler::profile::Window;
use profiler::store::query::Query;
use profiler::store::{Slice, Store, by_host};
use profiler::symbols::Symbols;
use profiler::top::Group;
use profiler::{Profile, collapsed, firefox, formats, otlp, pprof};

use crate::load::host;

/// The path that stands for standard input or output.
const STANDARD: &str = "-";

/// All times.
pub const ALWAYS: Range<i64> = i64::MIN..i64::MAX;

/// Names of addresses of this machine. Without the right to read them, the kernel's are missing.
pub fn names() -> Symbols {
    Symbols::of_this_machine().0
}

/// What a command reads: files, and directories that are stores.
pub struct Sources<'a> {
    paths: &'a [PathBuf],
    range: Range<i64>,
    /// Names of this machine, and what the machine is called.
    symbols: Mutex<Symbols>,
    host: Arc<HostInfo>,
}

impl<'a> Sources<'a> {
    /// Files and stores. A range of time is of stores alone.
    ///
    /// # Errors
    /// There is a range, and a path is no directory.
    pub fn new(paths: &'a [PathBuf], range: Range<i64>) -> anyhow::Result<Self> {
        let file = paths.iter().find(|path| !path.is_dir());
        if let (Some(file), false) = (file, range == ALWAYS) {
            let file = file.display();
            bail!("a range of time is for stores, and {file} is not a directory");
        }
        Ok(Self {
            paths,
            range,
            symbols: Mutex::new(names()),
            host: host(),
        })
    }

    /// The profile of all of them.
    pub fn profile(&self, filter: &Filter) -> anyhow::Result<Profile> {
        let mut all = Profile::default();
        for path in self.paths {
            let profile = match path.is_dir() {
                true => self.query(&self.slices(path)?, filter).profile()?,
                false => read_with(path, &mut self.symbols.lock())?,
            };
            all.merge(&profile, |_| true);
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
        for path in self.paths {
            if path.is_dir() {
                let slices = self.slices(path)?;
                let query = self.query(&slices, filter);
                query.tables(group, |slice, scanned| each(&slice.host, scanned))?;
            } else {
                let profile = read_with(path, &mut self.symbols.lock())?;
                for (host, part) in by_host(&profile, "") {
                    each(&host, Scanned::of(&part, filter, group));
                }
            }
        }
        Ok(())
    }

    /// How many bytes of stores are to be read.
    pub fn stored_bytes(&self) -> anyhow::Result<u64> {
        let mut bytes = 0;
        for path in self.paths.iter().filter(|path| path.is_dir()) {
            bytes += self
                .slices(path)?
                .iter()
                .map(|slice| slice.bytes)
                .sum::<u64>();
        }
        Ok(bytes)
    }

    fn query<'q>(&'q self, slices: &'q [Slice], filter: &'q Filter) -> Query<'q> {
        Query {
            slices,
            filter,
            names: Some((&self.host.name, &self.symbols)),
        }
    }

    fn slices(&self, store: &Path) -> anyhow::Result<Vec<Slice>> {
        let shown = store.display();
        let slices = Store::at(store).slices(&self.range);
        let slices = slices.with_context(|| format!("cannot read {shown}"))?;
        if slices.is_empty() {
            match self.range == ALWAYS {
                true => bail!("{shown} holds no profiles"),
                false => bail!("{shown} holds no profiles of that time"),
            }
        }
        Ok(slices)
    }
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
    fs::write(path, bytes).with_context(|| format!("cannot write {}", path.display()))
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
