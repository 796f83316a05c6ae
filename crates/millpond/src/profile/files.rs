//! Profiles as files of several formats.

use std::fs;
use std::path::Path;

use anyhow::Context;
use profiler::filter::Filter;
use profiler::{Profile, collapsed, firefox, otlp, perf_script, pprof};

/// How often collapsed stacks count as sampled, since they do not say so.
const COLLAPSED_HZ: f64 = 20.0;

/// Reads profiles and adds them.
pub fn read_all(paths: &[impl AsRef<Path>]) -> anyhow::Result<Profile> {
    let mut all = Profile::default();
    for path in paths {
        all.merge(&read(path.as_ref())?, |_| true);
    }
    Ok(all)
}

/// Reads a profile. OTLP has a name that says so; which other format it has is seen by its content.
fn read(path: &Path) -> anyhow::Result<Profile> {
    let shown = path.display();
    let bytes = fs::read(path).with_context(|| format!("cannot read {shown}"))?;
    let read = || -> anyhow::Result<Profile> {
        if path
            .extension()
            .is_some_and(|extension| extension == "otlp")
        {
            return Ok(otlp::read(&bytes)?.profile);
        }
        // A message has bytes that no text has.
        let text = std::str::from_utf8(&bytes).ok();
        let text = text.filter(|text| !text.is_empty() && !text.contains(['\0', '\u{1}']));
        Ok(match text {
            // Frames stand below the line of their sample, behind a tab.
            Some(text) if text.contains("\n\t") => perf_script::read(&bytes, None)?,
            Some(text) => collapsed::read(text, COLLAPSED_HZ)?,
            None => pprof::read(&bytes)?,
        })
    };
    read().with_context(|| format!("cannot read {shown}"))
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
