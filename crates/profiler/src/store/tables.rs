//! Tables beside the files of a store: what each function took, by host, service, process, pipeline and operator, so that a table of a day of a fleet
//! is made without looking at a stack.
//!
//! Compaction writes one for each file of an hour or more ([`pprof::write_table`]). Its name begins with a dot, and has the size and the name of the file that
//! it is of: a table of another file that had that name before fits no more. A table can be deleted at any time: queries read the file then, and the
//! next compaction makes it anew.
//!
//! # Limits
//! Queries that ask for threads, process numbers, containers, other labels, or for what called a function read the files.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use super::{HOUR_NS, Slice, Store, UNFINISHED, entries, name};
use crate::filter::Filter;
use crate::pprof;
use crate::profile::label;
use crate::top::Group;

/// What the name of a table begins with.
const TABLE: &str = ".table-";

/// The labels by which tables tell samples apart. There are few values of each on a host: others would have a row for nearly each stack.
const LABELS: [&str; 5] = [
    label::HOST,
    label::SERVICE,
    label::PROCESS,
    label::PIPELINE,
    label::OPERATOR,
];

/// The name of the table of a file; none where it has no name that can be read.
pub(super) fn name_of(file: &Path, bytes: u64) -> Option<String> {
    let file = file.file_name()?.to_str()?;
    Some(format!("{TABLE}{bytes}-{file}"))
}

/// Whether that is the name of a table.
pub(super) fn is_table(name: &str) -> bool {
    name.starts_with(TABLE)
}

/// Whether tables answer a query.
pub(super) fn answer(filter: &Filter, group: &Group) -> bool {
    let knows = |name: &String| LABELS.contains(&&**name);
    let knows_group = match group {
        Group::Function => true,
        Group::Label(name) => knows(name),
    };
    knows_group && filter.function.is_none() && filter.labels.iter().all(|(name, _)| knows(name))
}

impl Store {
    /// Writes the tables of a host that are missing, and deletes those whose file is gone.
    pub(super) fn write_tables(&self, host: &str) -> io::Result<()> {
        let folder = self.folder.join(name::folder_of(host));
        let slices = self.slices_of(host)?;
        remove_others(&folder, &slices)?;
        for slice in slices {
            if slice.window.duration_ns < HOUR_NS || slice.table.is_some() {
                continue;
            }
            let Some(table) = name_of(&slice.path, slice.bytes) else {
                continue;
            };
            // One that is gone or damaged needs no table.
            let Ok(Ok(profile)) = fs::read(&slice.path).map(|bytes| pprof::read(&bytes)) else {
                continue;
            };
            let bytes = pprof::write_table(&profile, |name| LABELS.contains(&name));
            let unfinished = folder.join(format!("{UNFINISHED}{}-{table}", std::process::id()));
            let written = File::create(&unfinished).and_then(|mut file| {
                file.write_all(&bytes)?;
                file.sync_all()?;
                fs::rename(&unfinished, folder.join(&table))
            });
            if written.is_err() {
                // On a full disk it would take space that others need.
                let _ = fs::remove_file(&unfinished);
            }
            written?;
        }
        Ok(())
    }
}

/// Deletes the tables of a folder that are of none of these files.
pub(super) fn remove_others(folder: &Path, slices: &[Slice]) -> io::Result<()> {
    let known: HashSet<_> = slices
        .iter()
        .filter_map(|slice| name_of(&slice.path, slice.bytes))
        .collect();
    for entry in entries(folder)? {
        let name = entry.file_name().into_string().unwrap_or_default();
        if is_table(&name) && !known.contains(&name) {
            match fs::remove_file(entry.path()) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
    }
    Ok(())
}
