//! What is written to standard output and standard error.

use std::io::{ErrorKind, Write};
use std::path::Path;

use anyhow::{Context, bail};
use component::standard;
use component::words::without_error_numbers;

use crate::colour::Painter;

/// Prints to standard output; a reader that is gone is no error.
pub fn print(text: &[u8]) -> anyhow::Result<()> {
    write(text).map(drop)
}

/// Prints to standard output; whether its reader is still there.
pub fn write(text: &[u8]) -> anyhow::Result<bool> {
    if let Some(fault) = standard::stdout_fault() {
        bail!("{fault}");
    }
    match std::io::stdout().lock().write_all(text) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(error).context("cannot write to standard output"),
    }
}

/// Writes a line to standard error, without the error numbers of the operating system.
pub fn say(text: &str) {
    let text = Painter::stderr().message(&without_error_numbers(text));
    // In one piece, so that a reader never sees half a line. Where standard error is gone there is nobody left to tell.
    let line = format!("{text}\n");
    let _ = std::io::stderr().lock().write_all(line.as_bytes());
}

/// Whether a file can be written there, before a long time is spent on its content.
pub fn can_write(path: &Path) -> anyhow::Result<()> {
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    if path.is_dir() || folder.is_some_and(|folder| !folder.is_dir()) {
        bail!(
            "cannot write {}: no such directory, or it is one",
            path.display()
        );
    }
    Ok(())
}
