//! Paths with wildcards, and the files they stand for.
//!
//! `*`, `?`, `[a-z]` and `{a,b}` match within one name, `**` as a whole name matches any number of folders. A wildcard
//! does not match the dot at the start of a hidden name, and `**` enters no hidden folders. A path
//! that exists as it is written stands for itself, whatever characters it has. Where it is a folder, it stands for the files
//! in it, as `folder/*` does.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Component, Path};

use globset::{GlobBuilder, GlobMatcher, GlobSet, GlobSetBuilder};

pub(crate) mod meta;
pub(crate) mod walk;

/// A path that may have wildcards.
#[derive(Debug)]
pub(crate) struct Pattern {
    text: String,
    absolute: bool,
    steps: Vec<Step>,
    /// What a folder at its end stands for.
    inside: Step,
}

/// One name of a path.
#[derive(Debug)]
struct Step {
    /// As it was written.
    name: OsString,
    rule: Rule,
}

/// Which names a step takes.
#[derive(Debug)]
enum Rule {
    /// Its own.
    Name,
    Match {
        glob: GlobMatcher,
        hidden: bool,
    },
    AnyDepth,
}

impl Pattern {
    /// Reads a path. `**` at the end stands for all files below: the same as `**/*`.
    ///
    /// # Errors
    /// A wildcard that is not finished.
    pub(crate) fn parse(text: &str) -> Result<Self, globset::Error> {
        let path = Path::new(text);
        let mut steps: Vec<Step> = Vec::new();
        for component in path.components().filter(|it| *it != Component::RootDir) {
            let step = Step::parse(component.as_os_str())?;
            let any_depth = |step: &Step| matches!(step.rule, Rule::AnyDepth);
            if !(any_depth(&step) && steps.last().is_some_and(any_depth)) {
                steps.push(step);
            }
        }
        if matches!(
            steps.last(),
            Some(Step {
                rule: Rule::AnyDepth,
                ..
            })
        ) {
            steps.push(Step::parse(OsStr::new("*"))?);
        }
        Ok(Self {
            text: text.to_owned(),
            absolute: path.is_absolute(),
            steps,
            inside: Step::parse(OsStr::new("*"))?,
        })
    }

    /// The path as it was written.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Whether it stands for one path only.
    pub(crate) fn is_plain(&self) -> bool {
        let is_name = |step: &Step| matches!(step.rule, Rule::Name);
        self.steps.iter().all(is_name) || fs::symlink_metadata(&self.text).is_ok()
    }
}

impl Step {
    fn parse(name: &OsStr) -> Result<Self, globset::Error> {
        let text = name.to_string_lossy();
        let rule = if text == "**" {
            Rule::AnyDepth
        } else if text.contains(['*', '?', '[', '{', '\\']) {
            Rule::Match {
                glob: matcher(&text)?,
                hidden: text.starts_with('.'),
            }
        } else {
            Rule::Name
        };
        Ok(Self {
            name: name.to_owned(),
            rule,
        })
    }
}

fn is_hidden(name: &OsStr) -> bool {
    name.as_encoded_bytes().starts_with(b".")
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

    /// Leaves out nothing.
    #[cfg(test)]
    pub(crate) fn none() -> Self {
        Self(GlobSet::empty())
    }

    /// Whether nothing is left out.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the file is left out.
    pub(crate) fn has(&self, path: &Path) -> bool {
        self.0.is_match(path) || path.file_name().is_some_and(|name| self.0.is_match(name))
    }
}
