//! Opens files that others have named: tables and databases of a configuration, the binaries of a profile, and what processes leave in
//! their folders.
//!
//! Such a name can stand for a pipe, at whose opening a reader waits for ever, or for a device, whose reading has effects or no end. So only
//! regular files are opened, without waiting. Source: open(2), `O_NONBLOCK`.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::OFlags;

/// Opens a regular file.
///
/// # Errors
/// The system refuses, or it is something else.
pub fn open(path: &Path) -> io::Result<File> {
    // A device is not even opened, as far as that can be seen before.
    regular(std::fs::metadata(path)?.is_file())?;
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(OFlags::NONBLOCK.bits().cast_signed())
        .open(path)?;
    regular(file.metadata()?.is_file())?;
    Ok(file)
}

fn regular(is_file: bool) -> io::Result<()> {
    let refused = || io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file");
    is_file.then_some(()).ok_or_else(refused)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pipes_and_devices_are_refused_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status();
        assert!(made.unwrap().success());
        for path in [&*pipe, Path::new("/dev/zero"), folder.path()] {
            let refused = open(path).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::InvalidInput, "{path:?}");
        }
        let gone = open(&folder.path().join("gone")).unwrap_err();
        assert_eq!(gone.kind(), io::ErrorKind::NotFound);
        open(&std::env::current_exe().unwrap()).unwrap();
    }
}
