//! Profiles as files of several formats.

use std::fs;
use std::path::Path;

use anyhow::Context;
use profiler::filter::Filter;
use profiler::{Profile, collapsed, firefox, formats, otlp, pprof};

/// Reads profiles and adds them.
pub fn read_all(paths: &[impl AsRef<Path>]) -> anyhow::Result<Profile> {
    let mut all = Profile::default();
    for path in paths {
        let path = path.as_ref();
        let profile =
            formats::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        all.merge(&profile, |_| true);
    }
    Ok(all)
}

/// Writes a profile in the format that the file's name says.
pub fn write(profile: &Profile, path: &Path) -> anyhow::Result<()> {
    let name = path.to_string_lossy();
    let bytes = match &*name {
        name if name.ends_with(".folded") => {
            collapsed::write(profile, &Filter::default(), None).into_bytes()
        }
        name if name.ends_with(".json.gz") => {
            firefox::write(profile, &Filter::default(), "millpond profile")
        }
        name if name.ends_with(".otlp") => otlp::write(profile, env!("CARGO_PKG_VERSION")),
        _ => pprof::write(profile),
    };
    fs::write(path, bytes).with_context(|| format!("cannot write {}", path.display()))
}
