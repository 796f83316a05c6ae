//! `millpond queue`: inspects disk queues, also while they are in use. Nothing is locked or written.

mod export;
mod inspect;
mod quarantine;
mod verify;

use std::io::{ErrorKind, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use queue::inspect::QueueFolder;

/// The commands for queues.
#[derive(Subcommand)]
pub enum QueueCommand {
    /// Shows segments, cursors and their lag, damage, and which process uses the queue.
    Inspect(InspectArgs),
    /// Verifies every checksum. Exit code 0: no damage, 1: damaged, 2: the queue cannot be read.
    Verify(Folder),
    /// Prints events, one JSON object per line.
    Export(ExportArgs),
    /// Lists the quarantined, damaged data, or prints the events in it.
    #[command(subcommand)]
    Quarantine(QuarantineCommand),
}

#[derive(Args)]
pub struct Folder {
    /// The directory of a queue or a copy of it, or a data directory.
    #[arg(value_name = "FOLDER")]
    path: PathBuf,
}

#[derive(Args)]
pub struct InspectArgs {
    #[command(flatten)]
    folder: Folder,
    /// Prints one JSON object per queue.
    #[arg(long)]
    json: bool,
    /// Also shows every block.
    #[arg(long)]
    blocks: bool,
}

#[derive(Args)]
pub struct ExportArgs {
    #[command(flatten)]
    folder: Folder,
    /// The first sequence number to print.
    #[arg(long, value_name = "SEQ")]
    from: Option<u64>,
    /// The last sequence number to print.
    #[arg(long, value_name = "SEQ")]
    to: Option<u64>,
    /// Starts with the first event that this output has not acknowledged.
    #[arg(long, value_name = "OUTPUT", conflicts_with = "from")]
    cursor: Option<String>,
    /// Adds each event's id and sequence as `@metadata`.
    #[arg(long)]
    ids: bool,
}

/// The commands for quarantined data.
#[derive(Subcommand)]
pub enum QuarantineCommand {
    /// Shows the quarantined ranges and files, and why they were quarantined.
    List(ListArgs),
    /// Prints the events in them that are still readable, one JSON object per line.
    Export(SalvageArgs),
}

#[derive(Args)]
pub struct ListArgs {
    #[command(flatten)]
    folder: Folder,
    /// Prints one JSON object per file.
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
pub struct SalvageArgs {
    #[command(flatten)]
    folder: Folder,
    /// One of the files that `list` shows. Default: all of them.
    file: Option<String>,
}

/// Carries out a command.
pub fn queue(command: &QueueCommand) -> anyhow::Result<ExitCode> {
    match command {
        QueueCommand::Inspect(args) => inspect::inspect(args),
        QueueCommand::Verify(folder) => verify::verify(folder),
        QueueCommand::Export(args) => export::export(args),
        QueueCommand::Quarantine(QuarantineCommand::List(args)) => quarantine::list(args),
        QueueCommand::Quarantine(QuarantineCommand::Export(args)) => quarantine::export(args),
    }
}

impl Folder {
    /// The queue in the folder, or all of a data directory.
    fn all(&self) -> anyhow::Result<Vec<QueueFolder>> {
        Ok(QueueFolder::find(&self.path)?)
    }

    /// The queue in the folder, or the only one of a data directory.
    fn only(&self) -> anyhow::Result<QueueFolder> {
        let mut queues = self.all()?;
        match queues.pop() {
            Some(queue) if queues.is_empty() => Ok(queue),
            last => {
                let all = queues.iter().chain(&last);
                let names: Vec<_> = all
                    .map(|queue| queue.path().display().to_string())
                    .collect();
                bail!(
                    "{} contains several queues; specify one of them: {}",
                    self.path.display(),
                    names.join(", ")
                )
            }
        }
    }
}

/// Nanoseconds since 1970.
pub fn now() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| i64::try_from(now.as_nanos()).unwrap_or(i64::MAX))
}

/// Standard output, whose reader may go away.
pub struct Out {
    is_open: bool,
}

impl Out {
    pub fn new() -> Self {
        Self { is_open: true }
    }

    /// Whether somebody reads it.
    pub fn is_open(&self) -> bool {
        self.is_open
    }

    pub fn write(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        if let Some(fault) = component::standard::stdout_fault() {
            anyhow::bail!("{fault}");
        }
        match std::io::stdout().lock().write_all(bytes) {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => self.is_open = false,
            outcome => outcome.context("cannot write to standard output")?,
        }
        Ok(())
    }

    pub fn flush(&mut self) -> anyhow::Result<()> {
        match std::io::stdout().lock().flush() {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => self.is_open = false,
            outcome => outcome.context("cannot write to standard output")?,
        }
        Ok(())
    }
}

/// Rows as a table; the first is the heading, and the first column is aligned to the left.
fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().zip(&widths).enumerate();
        let cells = cells.map(|(column, (cell, width))| match column {
            0 => format!("{cell:<width$}"),
            _ => format!("{cell:>width$}"),
        });
        let line = cells.collect::<Vec<_>>().join("  ");
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// A time that passed, in the unit that suits it.
pub fn age(seconds: Option<f64>) -> String {
    match seconds {
        None => "-".to_owned(),
        Some(seconds) if seconds < 120.0 => format!("{seconds:.1} s"),
        Some(seconds) if seconds < 7200.0 => format!("{:.0} min", seconds / 60.0),
        Some(seconds) if seconds < 172_800.0 => format!("{:.1} h", seconds / 3600.0),
        Some(seconds) => format!("{:.1} d", seconds / 86400.0),
    }
}
