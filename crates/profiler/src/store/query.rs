//! Tables and profiles of a range of time.
//!
//! Tables of compacted files are made of the tables beside them where those tell enough ([`super::tables`]). Other files are scanned, not read
//! ([`pprof::scan`]). All cores take part. Files that are not compacted may have addresses without names; those of this
//! host get names when they are asked for. Damaged files are left out, and returned.
//!
//! # Limits
//! The profile of a range of time is for flame graphs. Lines and numbers of processes are left out. While it has up to [`small::STACKS_MAX`] stacks
//! with labels, every stack is in it; when there are more, names of threads are left out too, and small stacks are counted at their callers, in each
//! file that follows and in what was read before ([`small`]). Labels that the filter asks for stay. Which stacks are small can depend on the order in
//! which files are read. Tables leave nothing out.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use foldhash::fast::RandomState;
use parking_lot::Mutex;

use super::{Slice, content, small, tables};
use crate::cost::{Cost, Rates, core_hours};
use crate::filter::{Filter, matches};
use crate::pprof::{self, PprofError, Scanned, Scanner};
use crate::profile::{Profile, Weight, Window, label};
use crate::symbols::Symbols;
use crate::top::{Group, Row, Table, table};

/// A file of the store cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("cannot read {}: {source}", path.display())]
pub struct QueryError {
    /// The file.
    pub path: PathBuf,
    /// Why.
    source: FileError,
}

/// Why a file cannot be read.
#[derive(Debug, thiserror::Error)]
enum FileError {
    /// The system refuses.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// It is no profile.
    #[error(transparent)]
    Pprof(#[from] PprofError),
}

/// Files of a store that a query reads.
#[derive(Debug)]
pub struct Query<'q> {
    /// The files.
    pub slices: &'q [Slice],
    /// Which samples count.
    pub filter: &'q Filter,
    /// What names addresses of this host's files, and the host; none where no names are wanted.
    pub names: Option<(&'q str, &'q Mutex<Symbols>)>,
}

impl Query<'_> {
    /// The table of each file, as they come.
    ///
    /// Returns the files that could not be read. One that is gone was compacted or deleted meanwhile, and is not among them.
    ///
    /// # Errors
    /// None of the files can be read.
    pub fn tables(
        &self,
        group: &Group,
        each: impl FnMut(&Slice, Scanned) + Send,
    ) -> Result<Vec<QueryError>, QueryError> {
        let are_enough = tables::answer(self.filter, group);
        let scan = |scanner: &mut Scanner, slice: &Slice| {
            if are_enough && let Some(scanned) = self.scanned_table(scanner, slice, group) {
                return Ok(Some(scanned));
            }
            let Some(bytes) = content(&slice.path)? else {
                return Ok(None);
            };
            let scanned = scanner.scan(&bytes, self.filter, group)?;
            let Some(symbols) = self.names_for(slice, scanned.has_addresses) else {
                return Ok(Some(scanned));
            };
            let named = symbols.lock().name(&pprof::read(&bytes)?);
            Ok(Some(Scanned {
                table: table(&named, self.filter, group),
                ..scanned
            }))
        };
        self.each(scan, each)
    }

    /// The table of a file, of the table beside it; none where that is not there, or has addresses that get names here.
    fn scanned_table(
        &self,
        scanner: &mut Scanner,
        slice: &Slice,
        group: &Group,
    ) -> Option<Scanned> {
        let (path, _) = slice.table.as_ref()?;
        // One that is damaged is none: the file says the same.
        let scanned = scanner.scan_table(&fs::read(path).ok()?, self.filter, group);
        let scanned = scanned.ok()?;
        let is_named = self.names_for(slice, scanned.has_addresses).is_none();
        is_named.then_some(scanned)
    }

    /// The profile of what the filter takes of all files, with at most [`small::STACKS_MAX`] stacks and a file's. Whoever shows it may not filter it
    /// once more: a function that the filter asks for may be part of a small stack.
    ///
    /// Returns the files that could not be read as well.
    ///
    /// # Errors
    /// None of the files can be read.
    pub fn profile(&self) -> Result<(Profile, Vec<QueryError>), QueryError> {
        self.profile_up_to(small::STACKS_MAX)
    }

    /// The same with at most `stacks_max` stacks and a file's.
    pub(super) fn profile_up_to(
        &self,
        stacks_max: usize,
    ) -> Result<(Profile, Vec<QueryError>), QueryError> {
        let asked = |name: &str| self.filter.labels.iter().any(|(known, _)| known == name);
        let mut whole = Profile::default();
        let is_full = AtomicBool::new(false);
        let read = |profile: &Profile| {
            let is_full = is_full.load(Ordering::Relaxed);
            let keeps = |name: &str| match name {
                label::PID => asked(name),
                label::THREAD => !is_full || asked(name),
                _ => true,
            };
            let taken = small::taken(profile, self.filter, keeps);
            match is_full {
                true => small::pruned(&taken, small::PARTS, |_| true),
                false => taken,
            }
        };
        let unread = self.profiles(read, |profile: Profile| {
            whole.merge(&profile, |_| true);
            if small::bound(&mut whole, stacks_max, asked) {
                is_full.store(true, Ordering::Relaxed);
            }
        })?;
        Ok((whole, unread))
    }

    /// What `read` makes of the profile of each file, all its samples, as they come.
    ///
    /// Returns the files that could not be read.
    ///
    /// # Errors
    /// None of the files can be read.
    pub fn profiles<T: Send>(
        &self,
        read: impl Fn(&Profile) -> T + Sync,
        mut each: impl FnMut(T) + Send,
    ) -> Result<Vec<QueryError>, QueryError> {
        let read = |_: &mut Scanner, slice: &Slice| {
            let Some(bytes) = content(&slice.path)? else {
                return Ok(None);
            };
            let profile = pprof::read(&bytes)?;
            Ok(Some(match self.names_for(slice, true) {
                Some(symbols) => {
                    let named = symbols.lock().name(&profile);
                    read(&named)
                }
                None => read(&profile),
            }))
        };
        self.each(read, |_, made| each(made))
    }

    fn names_for(&self, slice: &Slice, has_addresses: bool) -> Option<&Mutex<Symbols>> {
        let (_, symbols) = self
            .names
            .filter(|(host, _)| has_addresses && slice.host == *host)?;
        Some(symbols)
    }

    /// Whether a filter can take samples of a host.
    fn takes(&self, host: &str) -> bool {
        let mut wanted = self
            .filter
            .labels
            .iter()
            .filter(|(name, _)| name == label::HOST);
        let has_none = wanted.clone().next().is_none();
        has_none || wanted.any(|(_, pattern)| matches(pattern, host))
    }

    /// Reads the files that the filter can take samples of, on all cores; returns those that could not be read.
    fn each<T: Send>(
        &self,
        read: impl Fn(&mut Scanner, &Slice) -> Result<Option<T>, FileError> + Sync,
        each: impl FnMut(&Slice, T) + Send,
    ) -> Result<Vec<QueryError>, QueryError> {
        let next = AtomicUsize::new(0);
        let has_read = AtomicBool::new(false);
        let unread = Mutex::new(Vec::new());
        let each = Mutex::new(each);
        let work = || {
            let mut scanner = Scanner::default();
            while let Some(slice) = self.slices.get(next.fetch_add(1, Ordering::Relaxed)) {
                if !self.takes(&slice.host) {
                    continue;
                }
                match read(&mut scanner, slice) {
                    Ok(found) => {
                        has_read.store(true, Ordering::Relaxed);
                        if let Some(found) = found {
                            (*each.lock())(slice, found);
                        }
                    }
                    Err(source) => unread.lock().push(QueryError {
                        path: slice.path.clone(),
                        source,
                    }),
                }
            }
        };
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        std::thread::scope(|scope| {
            let others: Vec<_> = (1..cores.min(self.slices.len()))
                .filter_map(|_| std::thread::Builder::new().spawn_scoped(scope, work).ok())
                .collect();
            work();
            for other in others {
                if let Err(panic) = other.join() {
                    std::panic::resume_unwind(panic);
                }
            }
        });
        let mut unread = unread.into_inner();
        unread.sort_by(|one, other| one.path.cmp(&other.path));
        match has_read.into_inner() || unread.is_empty() {
            true => Ok(unread),
            false => Err(unread.swap_remove(0)),
        }
    }
}

/// Tables of several files, added.
#[derive(Debug, Default)]
pub struct TableSum {
    rows: HashMap<(String, String), (Row, Cost), RandomState>,
    all: Weight,
    cost: Cost,
    /// From the first beginning to the last end.
    pub window: Window,
    /// How often a second each core was sampled, at least and at most.
    pub frequency_hz: Option<(f64, f64)>,
    /// Samples that were lost.
    pub lost: u64,
    /// Log events that passed, by the value of the label that rows are of.
    pub events: HashMap<String, u64>,
}

impl TableSum {
    /// Adds the table of a file, whose host has these rates.
    pub fn add(&mut self, scanned: Scanned, rates: &Rates) {
        let cost_of = |weight: Weight| Cost::of_core_hours(core_hours(weight.cpu_ns), rates);
        self.all += scanned.table.all;
        self.cost += cost_of(scanned.table.all);
        self.window = self.window.join(scanned.window);
        self.lost = self.lost.saturating_add(scanned.lost);
        let hz = scanned.frequency_hz;
        let (least, most) = self.frequency_hz.unwrap_or((hz, hz));
        self.frequency_hz = Some((least.min(hz), most.max(hz)));
        for (name, events) in scanned.events {
            *self.events.entry(name).or_default() += events;
        }
        for mut row in scanned.table.rows {
            let key = (
                std::mem::take(&mut row.name),
                std::mem::take(&mut row.binary),
            );
            let row_cost = cost_of(row.own);
            match self.rows.get_mut(&key) {
                Some((known, cost)) => {
                    known.own += row.own;
                    known.total += row.total;
                    *cost += row_cost;
                }
                None => drop(self.rows.insert(key, (row, row_cost))),
            }
        }
    }

    /// What a row's own time costs a year.
    pub fn cost_of(&self, row: &Row) -> Cost {
        let known = self.rows.get(&(row.name.clone(), row.binary.clone()));
        let cost = known.map_or_else(Cost::default, |(_, cost)| *cost);
        cost.over_a_year(self.window.duration_ns)
    }

    /// What all of it costs a year.
    pub fn cost(&self) -> Cost {
        self.cost.over_a_year(self.window.duration_ns)
    }

    /// The table, the costliest by their own time first.
    pub fn table(&self) -> Table {
        let rows = self.rows.iter().map(|((name, binary), (row, _))| Row {
            name: name.clone(),
            binary: binary.clone(),
            ..row.clone()
        });
        let mut table = Table {
            rows: rows.collect(),
            all: self.all,
        };
        table.sort();
        table
    }
}
