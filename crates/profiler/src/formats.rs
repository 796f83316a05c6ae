//! Profiles as files of several formats.
//!
//! OTLP is known by the file's name (`.otlp`), all other formats by their content: a message has bytes that no text has, and
//! `perf script` puts frames below the line of their sample.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use crate::collapsed::CollapsedError;
use crate::otlp::OtlpError;
use crate::perf_script::PerfScriptError;
use crate::pprof::PprofError;
use crate::{Profile, collapsed, otlp, perf_script, pprof};

/// How often a second collapsed stacks count as sampled, since they do not say so.
pub const COLLAPSED_HZ: f64 = 20.0;

/// The most bytes that are read of a file. No format takes more.
pub const FILE_BYTES_MAX: u64 = pprof::FILE_BYTES_MAX;

/// Why a file is no profile.
#[derive(Debug, thiserror::Error)]
pub enum FormatError {
    /// It cannot be read.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// It has more bytes than any format takes.
    #[error("the file is larger than {FILE_BYTES_MAX} bytes")]
    TooLarge,
    /// It has nothing in it.
    #[error("it is empty")]
    Empty,
    /// It is no pprof file.
    #[error(transparent)]
    Pprof(#[from] PprofError),
    /// It is no OTLP message.
    #[error(transparent)]
    Otlp(#[from] OtlpError),
    /// It holds no collapsed stacks.
    #[error(transparent)]
    Collapsed(#[from] CollapsedError),
    /// It is not what `perf script` prints.
    #[error(transparent)]
    PerfScript(#[from] PerfScriptError),
}

/// The content of a file.
///
/// # Errors
/// It cannot be read, or is too large.
pub fn content(path: &Path) -> Result<Vec<u8>, FormatError> {
    let mut bytes = Vec::new();
    let limit = FILE_BYTES_MAX.saturating_add(1);
    File::open(path)?.take(limit).read_to_end(&mut bytes)?;
    match bytes.len() as u64 > FILE_BYTES_MAX {
        true => Err(FormatError::TooLarge),
        false => Ok(bytes),
    }
}

/// The profile in the content of a file with that name.
///
/// # Errors
/// The content is of none of the formats.
pub fn parse(name: &Path, bytes: &[u8]) -> Result<Profile, FormatError> {
    if bytes.is_empty() {
        return Err(FormatError::Empty);
    }
    if name
        .extension()
        .is_some_and(|extension| extension == "otlp")
    {
        return Ok(otlp::read(bytes)?.profile);
    }
    let text = std::str::from_utf8(bytes).ok();
    let text = text.filter(|text| !text.contains(['\0', '\u{1}']));
    Ok(match text {
        Some(text) if text.contains("\n\t") => perf_script::read(bytes, None)?,
        Some(text) => collapsed::read(text, COLLAPSED_HZ)?,
        None => pprof::read(bytes)?,
    })
}

/// Reads a file.
///
/// # Errors
/// It cannot be read, or is of none of the formats.
pub fn read(path: &Path) -> Result<Profile, FormatError> {
    parse(path, &content(path)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_known_by_their_content() {
        let stacks = b"main;work 3\nmain 1\n";
        let profile = parse(Path::new("a"), stacks).unwrap();
        assert_eq!(profile.total().samples, 4);
        let script = b"sh 7 [000] 1.5: 50000000 cpu-clock:\n\t    55d0 work+0x1 (/bin/sh)\n\n";
        let all = [
            ("a.txt", script.to_vec()),
            ("a.pb", pprof::write(&profile)),
            ("a.otlp", otlp::write(&profile, "1")),
        ];
        for (name, bytes) in all {
            let read = parse(Path::new(name), &bytes);
            assert!(!read.unwrap().is_empty(), "{name}");
        }
    }

    #[test]
    fn what_is_no_profile_says_so() {
        for (name, bytes) in [
            ("a", &b""[..]),
            ("a", b"no stacks"),
            ("a", b"\0\xff\x01"),
            ("a", b"\x1f\x8b\x08\0\0\0\0\0\0\x03abc"),
            ("a.otlp", b"\xff\xff\xff"),
            ("a", b"x\n\ty"),
        ] {
            let error = parse(Path::new(name), bytes).unwrap_err();
            assert!(!error.to_string().is_empty());
        }
        let error = read(Path::new("/nowhere/a")).unwrap_err();
        assert!(matches!(error, FormatError::Io(_)), "{error}");
    }
}
