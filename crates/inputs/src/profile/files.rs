//! Reads profiles from files, once.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use component::InputContext;
use profiler::formats::{self, FormatError};

use super::documents::Layout;
use super::sending::send;
use crate::paths::meta::Meta;
use crate::paths::walk::{Entry, Folder, Visitor, Walk};
use crate::paths::{Exclusion, Pattern};
use crate::reading::describe::describe;
use crate::reading::identity::Identity;

/// The files that patterns stand for.
#[derive(Debug, Default)]
struct Listing {
    /// Each with the pattern that stands for it.
    files: Vec<(usize, Arc<Path>, Meta)>,
    /// What could not be looked at, or is not there.
    problems: Vec<String>,
}

impl Visitor for Listing {
    fn file(&mut self, folder: &Folder, entry: &Entry, pattern: usize) {
        if let Some(meta) = entry.meta {
            self.files
                .push((pattern, folder.path_of(&entry.name), meta));
        }
    }
}

impl Listing {
    fn new(patterns: &[Pattern], exclusion: &Exclusion) -> Self {
        let mut listing = Self::default();
        let mut walk = Walk::new(patterns, exclusion, true);
        walk.run(&mut listing);
        let missing = walk.matched.iter().zip(patterns);
        let missing = missing.filter(|(is_matched, _)| !**is_matched);
        listing
            .problems
            .extend(missing.map(|(_, pattern)| format!("{}: no such file", pattern.text())));
        listing.problems.append(&mut walk.problems);
        // In the order of the patterns, then by name.
        listing.files.sort_by_key(|(pattern, _, _)| *pattern);
        listing
    }
}

/// What is not there, or cannot be looked at.
pub(super) fn notices(patterns: &[Pattern], exclusion: &Exclusion) -> Vec<String> {
    Listing::new(patterns, exclusion).problems
}

/// Reads the files that patterns stand for, until it is time to stop; gives what went wrong.
pub(super) fn read(
    patterns: &[Pattern],
    exclusion: &Exclusion,
    layout: &Layout,
    ctx: &InputContext,
) -> Vec<String> {
    let Listing {
        files,
        mut problems,
    } = Listing::new(patterns, exclusion);
    for (_, _, meta) in &files {
        ctx.progress.add_total(meta.size);
    }
    for (_, path, meta) in &files {
        if ctx.stop.is_stopped() {
            break;
        }
        if ctx.writes(&meta.identity()) {
            let text = format!(
                "{}: is written by an output and is not read",
                path.display()
            );
            ctx.diagnostics.warn(&text);
            continue;
        }
        match read_file(path, layout, ctx) {
            Ok(true) => ctx.progress.add_done(meta.size),
            Ok(false) => break,
            Err(error) => problems.push(problem(path, &error)),
        }
    }
    problems
}

/// Sends the events of a file; whether the pipeline takes more.
fn read_file(path: &Path, layout: &Layout, ctx: &InputContext) -> Result<bool, FormatError> {
    let start = Instant::now();
    let bytes = formats::content(path)?;
    let shown = path.to_string_lossy();
    let id = Identity::new([
        ctx.host.name.as_bytes(),
        b"profile",
        shown.as_bytes(),
        layout.identity().as_bytes(),
        &bytes,
    ]);
    let profile = formats::parse(path, &bytes)?;
    drop(bytes);
    ctx.metrics.busy(start.elapsed());
    if profile.is_empty() {
        let text = format!("{shown}: a profile without samples");
        ctx.diagnostics.warn(&text);
    }
    Ok(send(&profile, layout, id.id(), Some(&shown), ctx).is_ok())
}

fn problem(path: &Path, error: &FormatError) -> String {
    let path = path.display();
    match error {
        FormatError::Io(error) => format!("{path}: cannot be read: {}", describe(error)),
        error => format!("{path}: cannot be read as a profile: {error}"),
    }
}
