//! What is written to standard output and standard error.

use std::io::{ErrorKind, Write};
use std::path::Path;

use anyhow::{Context, bail};
use component::standard;

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

/// A text whose control characters are escaped: it has one line, and does nothing to a terminal.
pub fn escaped(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for character in text.chars() {
        match character.is_control() {
            true => line.extend(character.escape_default()),
            false => line.push(character),
        }
    }
    line
}

/// A message without `(os error 2)`, which the standard library adds to the text of an error: the text says the same.
fn without_error_numbers(text: &str) -> String {
    const START: &str = " (os error ";
    let mut parts = text.split(START);
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let digits = part.bytes().take_while(u8::is_ascii_digit).count();
        match part[digits..].strip_prefix(')') {
            Some(rest) if digits > 0 => out.push_str(rest),
            _ => out.extend([START, part]),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_show_no_error_numbers() {
        for (text, expected) in [
            ("x: No such file (os error 2)", "x: No such file"),
            ("a (os error 2): b (os error 13); c", "a: b; c"),
            (
                "a file (os error x) (os error )",
                "a file (os error x) (os error )",
            ),
            ("none", "none"),
        ] {
            assert_eq!(without_error_numbers(text), expected);
        }
    }
}
