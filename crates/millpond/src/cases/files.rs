//! Which files have tests.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use crate::sources::is_test;

/// The files with tests in a folder and in those below it, by path. Hidden ones are not read.
///
/// # Errors
/// A folder cannot be read, or there are none.
pub fn test_files(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        let shown = folder.display();
        let entries = fs::read_dir(&folder).with_context(|| format!("cannot read {shown}"))?;
        for entry in entries {
            let entry = entry.with_context(|| format!("cannot read {shown}"))?;
            let (path, name) = (entry.path(), entry.file_name());
            let name = name.to_string_lossy();
            // Not through links, which may lead in a circle.
            match entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                _ if name.starts_with('.') => {}
                true => folders.push(path),
                false if is_test(&name) => files.push(path),
                false => {}
            }
        }
    }
    if files.is_empty() {
        let shown = folder.display();
        bail!("{shown} contains no test file (*.test.yaml)");
    }
    files.sort();
    Ok(files)
}
