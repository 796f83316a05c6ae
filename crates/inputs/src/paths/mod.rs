//! Paths with wildcards, and the files they stand for.
//!
//! `*`, `?`, `[a-z]` and `{a,b}` match within one name, `**` as a whole name matches any number of folders. A wildcard
//! does not match the dot at the start of a hidden name, and `**` enters no hidden folders. A path
//! that exists as it is written stands for itself, whatever characters it has. Where it is a folder, it stands for the files
//! in it, as `folder/*` does.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Component, Path, PathBuf};

use globset::{GlobBuilder, GlobMatcher, GlobSet, GlobSetBuilder};

pub(crate) mod meta;
pub(crate) mod walk;

/// A path that may have wildcards.
#[derive(Debug)]
pub(crate) struct Pattern {
    text: String,
    absolute: bool,
    steps: Vec<NamePattern>,
    /// What a folder at its end stands for.
    inside: NamePattern,
}

/// One name of a path.
#[derive(Debug)]
struct NamePattern {
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
        let mut steps: Vec<NamePattern> = Vec::new();
        for component in path.components().filter(|it| *it != Component::RootDir) {
            let step = NamePattern::parse(component.as_os_str())?;
            let any_depth = |step: &NamePattern| matches!(step.rule, Rule::AnyDepth);
            if !(any_depth(&step) && steps.last().is_some_and(any_depth)) {
                steps.push(step);
            }
        }
        if matches!(
            steps.last(),
            Some(NamePattern {
                rule: Rule::AnyDepth,
                ..
            })
        ) {
            steps.push(NamePattern::parse(OsStr::new("*"))?);
        }
        Ok(Self {
            text: text.to_owned(),
            absolute: path.is_absolute(),
            steps,
            inside: NamePattern::parse(OsStr::new("*"))?,
        })
    }

    /// The path as it was written.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Whether it stands for one path only.
    pub(crate) fn is_plain(&self) -> bool {
        let is_name = |step: &NamePattern| matches!(step.rule, Rule::Name);
        self.steps.iter().all(is_name) || fs::symlink_metadata(&self.text).is_ok()
    }
}

impl Pattern {
    /// Whether the file at a path, which need not exist yet, is one that the pattern stands for. Links that a wildcard finds are not
    /// followed.
    pub(crate) fn stands_for(&self, path: &Path) -> bool {
        let by_name = resolve(path.parent().unwrap_or(Path::new("")));
        let by_name = by_name.join(path.file_name().unwrap_or_default());
        let target = fs::canonicalize(path).unwrap_or_else(|_| by_name.clone());
        if self.is_plain() {
            return self.names(&by_name) || self.names(&target) || self.is_same_file(&target);
        }
        let is_name = |step: &&NamePattern| matches!(step.rule, Rule::Name);
        let fixed = self.steps.iter().take_while(is_name).count();
        let root = if self.absolute { "/" } else { "" };
        let mut folder = Path::new(root).to_owned();
        folder.extend(self.steps[..fixed].iter().map(|step| &step.name));
        let folder = resolve(&folder);
        [by_name, target].iter().any(|path| {
            let Ok(below) = path.strip_prefix(&folder) else {
                return false;
            };
            let names: Vec<&OsStr> = below.iter().collect();
            matches(&self.steps[fixed..], &names)
        })
    }

    /// Whether a pattern without wildcards is the path, or the folder that holds it.
    fn names(&self, path: &Path) -> bool {
        let own = resolve(Path::new(&self.text));
        let is_inside = || {
            let is_hidden = path.file_name().is_some_and(is_hidden);
            path.parent() == Some(&*own) && !own.is_file() && !is_hidden
        };
        own == path || is_inside()
    }

    /// Whether both paths lead to one file, by links with or without a path of their own.
    fn is_same_file(&self, path: &Path) -> bool {
        let place = |path: &Path| meta::Meta::of(path).map(|meta| (meta.device, meta.inode));
        let places = place(Path::new(&self.text)).ok().zip(place(path).ok());
        places.is_some_and(|(one, other)| one == other)
    }
}

/// The real path of what exists of a path, with the rest as it is written.
fn resolve(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).or_else(|_| std::env::current_dir());
    let absolute = absolute.unwrap_or_else(|_| path.to_owned());
    for ancestor in absolute.ancestors() {
        if let Ok(real) = fs::canonicalize(ancestor) {
            let rest = absolute.strip_prefix(ancestor).unwrap_or(Path::new(""));
            // Nothing to join would leave a slash at the end.
            return real.join(rest).components().collect();
        }
    }
    absolute
}

/// Whether steps match names, all of both.
fn matches(steps: &[NamePattern], names: &[&OsStr]) -> bool {
    let Some((step, steps)) = steps.split_first() else {
        return names.is_empty();
    };
    let takes = |name: &&OsStr| match &step.rule {
        Rule::Name => step.name == *name,
        Rule::Match { glob, hidden } => (*hidden || !is_hidden(name)) && glob.is_match(name),
        Rule::AnyDepth => !is_hidden(name),
    };
    let rest = |count: usize| matches(steps, &names[count..]);
    match step.rule {
        Rule::AnyDepth => {
            let most = names.iter().take_while(|name| takes(name)).count();
            (0..=most).any(rest)
        }
        _ => names.first().is_some_and(takes) && rest(1),
    }
}

impl NamePattern {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_need_not_exist() {
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path();
        for name in ["logs", "real"] {
            fs::create_dir(root.join(name)).expect("created");
        }
        fs::write(root.join("logs/a.log"), "1").expect("written");
        fs::hard_link(root.join("logs/a.log"), root.join("other")).expect("linked");
        std::os::unix::fs::symlink(root.join("logs/a.log"), root.join("link")).expect("linked");
        std::os::unix::fs::symlink(root.join("real"), root.join("way")).expect("linked");
        for (pattern, path, expected) in [
            ("logs/a.log", "logs/a.log", true),
            ("logs/a.log", "logs/../logs/a.log", true),
            ("logs/a.log", "link", true),
            ("link", "logs/a.log", true),
            ("logs/a.log", "other", true),
            ("logs/a.log", "logs/b.log", false),
            ("none.log", "none.log", true),
            ("none", "none/x.log", true),
            ("logs", "logs/b.log", true),
            ("logs/", "logs/b.log", true),
            ("logs", "logs/.b.log", false),
            ("logs", "logs/sub/b.log", false),
            ("way", "real/b.log", true),
            ("real/*.log", "way/b.log", true),
            ("logs/*.log", "link", true),
            ("logs/*.log", "logs/b.log", true),
            ("logs/*.log", "logs/b.txt", false),
            ("logs/*.log", "logs/.b.log", false),
            ("*/b.log", "logs/b.log", true),
            ("**/*.log", "logs/x/y/b.log", true),
            ("**/*.log", "b.log", true),
            ("logs/**", "logs/x/b", true),
            ("none/*", "none/b.log", true),
        ] {
            let pattern_path = root.join(pattern);
            let parsed = Pattern::parse(&pattern_path.to_string_lossy()).expect("a pattern");
            assert_eq!(
                parsed.stands_for(&root.join(path)),
                expected,
                "{pattern} and {path}"
            );
        }
    }
}
