//! `millpond files`: what became of every file that a data directory knows.

use std::path::Path;
use std::process::ExitCode;

use component::{FileLedger, grouped, plural};
use inputs::{FileEntries, read_ledger};
use pipeline::report::file_table;

use crate::console::{print, say};
use crate::run::sentence;

/// Prints the ledger, as a table or as one JSON object a line.
pub fn files(directory: &Path, as_json: bool) -> anyhow::Result<ExitCode> {
    let FileEntries { files, reading } =
        read_ledger(directory).map_err(|error| sentence(&error))?;
    for problem in &reading.problems {
        say(&format!("warning: {problem}"));
    }
    if as_json {
        let mut text = Vec::new();
        for file in &files {
            serde_json::to_writer(&mut text, file)?;
            text.push(b'\n');
        }
        print(&text)?;
        return Ok(ExitCode::SUCCESS);
    }
    print(file_table(&files, usize::MAX).as_bytes())?;
    print(summary(&files, reading.is_locked_by).as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

fn summary(files: &[FileLedger], user: Option<u32>) -> String {
    let sum = |of: fn(&FileLedger) -> u64| files.iter().map(of).sum::<u64>();
    let user = match user {
        Some(0) => "in use by another process; positions are up to a second old".to_owned(),
        Some(process) => {
            format!("in use by process {process}; positions are up to a second old")
        }
        None => "not in use".to_owned(),
    };
    format!(
        "{}, {} read, {} acknowledged, lag {}; {user}\n",
        plural(files.len() as u64, "file"),
        plural(sum(|file| file.read_events), "event"),
        grouped(sum(|file| file.acknowledged_events)),
        plural(sum(|file| file.lag_bytes), "byte"),
    )
}
