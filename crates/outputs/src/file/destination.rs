//! Which file an event goes to: the `path` setting, fixed or with fields and times in it.
//!
//! What a field gives can never leave the directory it stands in: slashes, NUL and other control characters become `_`,
//! and so does a value that is empty or consists of dots. A name that no file system takes refuses the row.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use batch::{Batch, Bitmap};
use component::Warning;
use config::{ConfigError, Node};
use expr::Template;
use rustix::fs::{Access, access};

use crate::codec::ABSENT;
use crate::partition::{Group, clean_name, partition};

/// Bytes in one part of a path. Some are left for the time and number of a rotated file.
const NAME_MAX: usize = 255 - "-20240229T123456Z-000000".len();
/// Bytes in a path.
const PATH_MAX: usize = 4095;

/// The `path` setting.
#[derive(Debug)]
pub enum Destination {
    /// The same file for every event.
    Fixed(Arc<str>),
    /// A path for each event.
    Template {
        /// Gives the path.
        template: Template,
        /// The directory that all paths have in common; empty for the working directory.
        base: PathBuf,
    },
}

/// Why no file can be written for now, although the path is one that could.
#[derive(Debug)]
pub struct Obstacle {
    /// What is in the way.
    pub message: String,
    /// What may help.
    pub note: Option<&'static str>,
}

impl From<String> for Obstacle {
    fn from(message: String) -> Self {
        let note = None;
        Self { message, note }
    }
}

impl Destination {
    /// Reads the `path` setting of `node`.
    ///
    /// # Errors
    /// It can never be the path of a file.
    pub fn new(node: &Node, path: &str) -> Result<Self, ConfigError> {
        let at = node.nearest("path");
        let template = crate::codec::template(node, at, path)?;
        if path.is_empty() || path.ends_with('/') {
            return Err(at.error("`path` names no file"));
        }
        let Some(fixed) = template.constant() else {
            let prefix = template.prefix();
            let base = &prefix[..prefix.rfind('/').map_or(0, |slash| slash + 1)];
            // With a slash at its end it would not be seen to be a file.
            let base = Path::new(base).components().as_path().to_owned();
            return Ok(Self::Template { template, base });
        };
        check_name(fixed).map_err(|reason| at.error(&*reason))?;
        if Path::new(fixed).is_dir() {
            return Err(at.error(format!("`{fixed}` is a directory")));
        }
        Ok(Self::Fixed(fixed.into()))
    }

    /// The template, where each event has a path of its own.
    pub fn template(&self) -> Option<&Template> {
        match self {
            Self::Fixed(_) => None,
            Self::Template { template, .. } => Some(template),
        }
    }

    /// Looks whether files can be written there now.
    ///
    /// # Errors
    /// What is in the way, and may be gone later.
    pub fn look(&self, create_dirs: bool, rotates: bool) -> Result<(), Obstacle> {
        let path = match self {
            Self::Fixed(path) => Path::new(&**path),
            Self::Template { base, .. } => return check_directory(base, create_dirs),
        };
        if path.exists() {
            let shown = path.display();
            access(path, Access::WRITE_OK)
                .map_err(|error| format!("cannot write to `{shown}`: {error}"))?;
        }
        if rotates || !path.exists() {
            check_directory(path.parent().unwrap_or(Path::new("")), create_dirs)?;
        }
        Ok(())
    }

    /// The directory that all paths have in common; empty for the working directory.
    pub fn directory(&self) -> &Path {
        match self {
            Self::Fixed(path) => Path::new(&**path).parent().unwrap_or(Path::new("")),
            Self::Template { base, .. } => base,
        }
    }

    /// A path that may be written; nothing for a device, which does not keep what is written to it.
    pub fn example(&self) -> Option<PathBuf> {
        let path = match self {
            Self::Fixed(path) => PathBuf::from(&**path),
            Self::Template { template, .. } => template.with_each("x").into(),
        };
        (!path.starts_with("/dev")).then_some(path)
    }

    /// What is to be said of a fixed path that holds a time or a field as other tools write them.
    pub fn foreign_time(&self) -> Option<Warning> {
        let Self::Fixed(path) = self else { return None };
        let foreign = ["%Y", "%m", "%d", "%H", "%F", "{{"];
        let found = foreign.iter().find(|part| path.contains(**part))?;
        let text = format!(
            "`{found}` is a part of the file name `{path}` as it stands; a time is written like `%{{+%Y-%m-%d}}`, a field like `%{{name}}`"
        );
        Some(text.into())
    }

    /// Whether the directory that all paths have in common is there, so that what is wrong with one of them is its own fault.
    pub fn has_base(&self) -> bool {
        match self {
            Self::Fixed(_) => false,
            Self::Template { base, .. } => named(base).is_dir(),
        }
    }
}

/// A directory as the system knows it.
fn named(directory: &Path) -> &Path {
    match directory == Path::new("") {
        true => Path::new("."),
        false => directory,
    }
}

/// Whether files can be made in a directory, or the directory itself where that is wanted.
fn check_directory(directory: &Path, create_dirs: bool) -> Result<(), Obstacle> {
    let named = named(directory);
    let shown = named.display();
    if !create_dirs && !named.exists() {
        return Err(Obstacle {
            message: format!("the directory `{shown}` does not exist"),
            note: Some("`create_dirs: true` creates missing directories"),
        });
    }
    let nearest: PathBuf = named
        .ancestors()
        .find(|ancestor| ancestor.exists())
        .map_or_else(|| PathBuf::from("."), Path::to_owned);
    if !nearest.is_dir() {
        return Err(format!("`{}` is not a directory", nearest.display()).into());
    }
    access(&nearest, Access::WRITE_OK | Access::EXEC_OK)
        .map_err(|error| format!("cannot create files in `{}`: {error}", nearest.display()).into())
}

/// The rows of a batch by the path of the file they go to.
pub fn by_path(template: &Template, batch: &Batch, rows: &Bitmap) -> Vec<Group> {
    let mut bound = template.bind(batch, ABSENT);
    let render = |row: usize, path: &mut Vec<u8>| bound.write_with(row, path, clean_name);
    partition(batch, rows, render, checked)
}

fn checked(path: &[u8]) -> Result<Arc<str>, Arc<str>> {
    let path = std::str::from_utf8(path).map_err(|_| "the path of the file is not valid UTF-8")?;
    check_name(path)?;
    Ok(path.into())
}

fn check_name(path: &str) -> Result<(), Arc<str>> {
    if path.len() > PATH_MAX {
        return Err(format!(
            "the path of the file has {} bytes, but at most {PATH_MAX} are allowed",
            path.len()
        )
        .into());
    }
    if path.contains('\0') {
        return Err("the path of the file contains a NUL byte".into());
    }
    match path.split('/').map(str::len).find(|&len| len > NAME_MAX) {
        Some(len) => Err(format!(
            "a name in the path of the file has {len} bytes, but at most {NAME_MAX} are allowed"
        )
        .into()),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    #[test]
    fn rows_keep_their_order_within_a_file() {
        let batch = testing::documents(&[
            r#"{"a":"x"}"#,
            r#"{"a":"y"}"#,
            r#"{"a":"x"}"#,
            r#"{"a":"x"}"#,
            r#"{"b":1}"#,
        ]);
        let template = Template::parse("/logs/%{a}.log").expect("a template");
        let groups = by_path(&template, &batch, batch.alive());
        let shown: Vec<(String, Vec<usize>)> = groups
            .into_iter()
            .map(|group| {
                (
                    group.destination.expect("a fine path").to_string(),
                    group.rows.iter().collect(),
                )
            })
            .collect();
        let expected = [
            ("/logs/x.log", vec![0, 2, 3]),
            ("/logs/y.log", vec![1]),
            ("/logs/-.log", vec![4]),
        ];
        assert_eq!(shown, expected.map(|(path, rows)| (path.to_owned(), rows)));
    }

    #[test]
    fn a_value_never_leaves_its_directory() {
        for (value, expected) in [
            ("../../etc/passwd", ".._.._etc_passwd"),
            ("..", "_"),
            (".", "_"),
            ("", "_"),
            ("a/b", "a_b"),
            ("/", "_"),
            ("a\\n\\u0000b", "a__b"),
            (".bashrc", ".bashrc"),
            ("größe", "größe"),
        ] {
            let batch = testing::documents(&[&format!(r#"{{"a":"{value}"}}"#)]);
            let template = Template::parse("/logs/%{a}").expect("a template");
            let groups = by_path(&template, &batch, batch.alive());
            assert_eq!(
                groups[0].destination.as_deref(),
                Ok(&*format!("/logs/{expected}")),
                "{value}"
            );
        }
    }

    #[test]
    fn a_name_that_is_too_long_refuses_its_row_only() {
        let long = format!(r#"{{"a":"{}"}}"#, "x".repeat(256));
        let batch = testing::documents(&[r#"{"a":"x"}"#, &long]);
        let template = Template::parse("/logs/%{a}").expect("a template");
        let groups = by_path(&template, &batch, batch.alive());
        assert!(groups[0].destination.is_ok());
        assert!(
            groups[1]
                .destination
                .as_ref()
                .is_err_and(|reason| reason.contains("256 bytes"))
        );
    }
}
