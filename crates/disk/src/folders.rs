//! Folders for data that outlives a crash.

use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

/// Makes a folder and its parents where they are missing, for the owner alone, and syncs the names that were made by
/// [`sync`]. A folder that is there stays as it is.
///
/// # Errors
/// The system refused, or something else has the name.
pub fn make(folder: &Path) -> io::Result<()> {
    let missing = folder.ancestors().take_while(|path| !path.exists()).count();
    let mut builder = DirBuilder::new();
    builder.recursive(true).mode(0o700).create(folder)?;
    for parent in folder.ancestors().skip(1).take(missing) {
        // A parent that only lets pass cannot be opened to be synced; the folder is usable all the same.
        let _ = sync(parent);
    }
    Ok(())
}

/// Returns once the folder's names are on disk. File systems that know no such thing are taken as they are.
///
/// # Errors
/// They may not be on disk.
pub fn sync(folder: &Path) -> io::Result<()> {
    use io::ErrorKind::{InvalidInput, Unsupported};
    match File::open(folder)?.sync_all() {
        Err(failure) if !matches!(failure.kind(), InvalidInput | Unsupported) => Err(failure),
        _ => Ok(()),
    }
}
