//! Profiles as files of several formats.

use std::fs;
use std::path::Path;

use anyhow::Context;
use profiler::filter::Filter;
use profiler::{Profile, collapsed, pprof};

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

/// Reads a profile; which format it has is seen by its first bytes.
fn read(path: &Path) -> anyhow::Result<Profile> {
    let shown = path.display();
    let bytes = fs::read(path).with_context(|| format!("cannot read {shown}"))?;
    // A message has bytes that no text has.
    let is_text = std::str::from_utf8(&bytes)
        .ok()
        .filter(|text| !text.contains(['\0', '\u{1}']));
    match is_text {
        Some(text) if !bytes.is_empty() => {
            collapsed::read(text, COLLAPSED_HZ).with_context(|| format!("cannot read {shown}"))
        }
        _ => pprof::read(&bytes).with_context(|| format!("cannot read {shown}")),
    }
}

/// Writes a profile in the format that the file's name says.
pub fn write(profile: &Profile, path: &Path) -> anyhow::Result<()> {
    let name = path.to_string_lossy();
    let bytes = match name.ends_with(".folded") {
        true => collapsed::write(profile, &Filter::default(), None).into_bytes(),
        false => pprof::write(profile),
    };
    fs::write(path, bytes).with_context(|| format!("cannot write {}", path.display()))
}
