//! Paths with wildcards, and the files they stand for.
//!
//! `*`, `?`, `[a-z]` and `{a,b}` match within one name, `**` as a whole name matches any number of folders. A wildcard
//! does not match the dot at the start of a hidden name; `**` enters neither hidden folders nor links. A path
//! that exists as it is written stands for itself, whatever characters it has.

use std::fs;
use std::path::{Component, Path, PathBuf};

use globset::{GlobBuilder, GlobMatcher, GlobSet, GlobSetBuilder};

use crate::reading::reader::describe;

/// A path that may have wildcards.
#[derive(Debug)]
pub(crate) struct Pattern {
    text: String,
    steps: Vec<Step>,
}

/// One name of a path.
#[derive(Debug)]
enum Step {
    Name(PathBuf),
    Match { glob: GlobMatcher, hidden: bool },
    AnyDepth,
}

impl Pattern {
    /// Reads a path.
    ///
    /// # Errors
    /// A wildcard that is not finished.
    pub(crate) fn parse(text: &str) -> Result<Self, globset::Error> {
        let steps = Path::new(text)
            .components()
            .map(Step::parse)
            .collect::<Result<_, _>>()?;
        Ok(Self {
            text: text.to_owned(),
            steps,
        })
    }

    /// The path as it was written.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Whether it stands for one path only.
    pub(crate) fn is_plain(&self) -> bool {
        let is_name = |step: &Step| matches!(step, Step::Name(_));
        self.steps.iter().all(is_name) || fs::symlink_metadata(&self.text).is_ok()
    }

    /// What it stands for, sorted by name; folders that cannot be listed are pushed to `problems`.
    pub(crate) fn expand(&self, problems: &mut Vec<String>) -> Vec<PathBuf> {
        if self.is_plain() {
            return vec![PathBuf::from(&self.text)];
        }
        let mut paths = vec![PathBuf::new()];
        for step in &self.steps {
            paths = paths
                .into_iter()
                .flat_map(|path| step.below(path, problems))
                .collect();
        }
        paths.retain(|path| !path.is_dir());
        paths.sort();
        paths.dedup();
        paths
    }
}

impl Step {
    fn parse(component: Component<'_>) -> Result<Self, globset::Error> {
        let name = component.as_os_str();
        let text = name.to_string_lossy();
        if text == "**" {
            return Ok(Self::AnyDepth);
        }
        if !text.contains(['*', '?', '[', '{', '\\']) {
            return Ok(Self::Name(name.into()));
        }
        Ok(Self::Match {
            glob: matcher(&text)?,
            hidden: text.starts_with('.'),
        })
    }

    /// What this step stands for in the folder `path`.
    fn below(&self, path: PathBuf, problems: &mut Vec<String>) -> Vec<PathBuf> {
        match self {
            Self::Name(name) => {
                let path = path.join(name);
                if path.symlink_metadata().is_ok() {
                    vec![path]
                } else {
                    Vec::new()
                }
            }
            Self::Match { glob, hidden } => {
                let names = names_in(&path, problems);
                let matching = names
                    .into_iter()
                    .filter(|name| (*hidden || !is_hidden(name)) && glob.is_match(name));
                matching.map(|name| path.join(name)).collect()
            }
            Self::AnyDepth => {
                let mut folders = vec![path];
                let mut next = 0;
                while let Some(folder) = folders.get(next).cloned() {
                    let names = names_in(&folder, problems)
                        .into_iter()
                        .filter(|name| !is_hidden(name));
                    let below = names.map(|name| folder.join(name));
                    folders.extend(
                        below.filter(|path| {
                            path.symlink_metadata().is_ok_and(|found| found.is_dir())
                        }),
                    );
                    next += 1;
                }
                folders
            }
        }
    }
}

/// The names in a folder; none where it is no folder.
fn names_in(folder: &Path, problems: &mut Vec<String>) -> Vec<PathBuf> {
    let listed = if folder.as_os_str().is_empty() {
        Path::new(".")
    } else {
        folder
    };
    if !listed.is_dir() {
        return Vec::new();
    }
    match fs::read_dir(listed) {
        Ok(entries) => entries
            .flatten()
            .map(|entry| entry.file_name().into())
            .collect(),
        Err(error) => {
            problems.push(format!(
                "{}: cannot be listed: {}",
                listed.display(),
                describe(&error)
            ));
            Vec::new()
        }
    }
}

fn is_hidden(name: &Path) -> bool {
    name.as_os_str().as_encoded_bytes().starts_with(b".")
}

fn matcher(text: &str) -> Result<GlobMatcher, globset::Error> {
    Ok(GlobBuilder::new(text)
        .literal_separator(true)
        .backslash_escape(true)
        .build()?
        .compile_matcher())
}

/// Files that are left out.
#[derive(Debug)]
pub(crate) struct Exclusion(GlobSet);

impl Exclusion {
    /// Leaves out what one of the patterns matches, as a whole path or as the file's name alone.
    ///
    /// # Errors
    /// A wildcard that is not finished, with the index of its pattern.
    pub(crate) fn new(patterns: &[String]) -> Result<Self, (usize, globset::Error)> {
        let mut set = GlobSetBuilder::new();
        for (index, pattern) in patterns.iter().enumerate() {
            let glob = GlobBuilder::new(pattern)
                .literal_separator(true)
                .backslash_escape(true)
                .build();
            set.add(glob.map_err(|error| (index, error))?);
        }
        set.build().map(Self).map_err(|error| (0, error))
    }

    /// Whether the file is left out.
    pub(crate) fn has(&self, path: &Path) -> bool {
        self.0.is_match(path) || path.file_name().is_some_and(|name| self.0.is_match(name))
    }
}
