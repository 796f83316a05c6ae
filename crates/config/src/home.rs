//! `~` at the beginning of paths.
//!
//! A shell expands it only at the beginning of a word, which a path in a pipeline hardly ever is. `~` alone and `~/…` stand for
//! the folder in `HOME`; `~name`, the folder of somebody else, is not known here and refused, so that no folder of that name is
//! made. A file that is called so is written `./~name`.

use std::path::PathBuf;

use serde::de::{Deserialize, Deserializer, Error};

/// Why `~` stands for nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HomeError {
    /// There is no `HOME`.
    #[error("`~` stands for the environment variable HOME, which is not set")]
    NotSet,
    /// The folder of somebody else.
    #[error(
        "`{0}` is not known: only `~/` stands for a home directory; a file that is called so is written `./{0}`"
    )]
    OfOther(String),
}

/// A path as text, with `~` at its beginning replaced.
///
/// # Errors
/// It begins with `~`, and `HOME` is not set, empty or not UTF-8, or something other than a slash follows.
pub fn expand_home(path: &str) -> Result<String, HomeError> {
    let home = std::env::var("HOME").ok();
    expand(path, home.as_deref())
}

fn expand(path: &str, home: Option<&str>) -> Result<String, HomeError> {
    match path.strip_prefix('~') {
        Some(rest) if rest.is_empty() || rest.starts_with('/') => {
            let home = home
                .filter(|home| !home.is_empty())
                .ok_or(HomeError::NotSet)?;
            Ok(home.trim_end_matches('/').to_owned() + rest)
        }
        Some(_) => {
            let name = path.split('/').next().unwrap_or_default();
            Err(HomeError::OfOther(name.to_owned()))
        }
        None => Ok(path.to_owned()),
    }
}

/// What a setting may hold paths in.
pub trait Paths: Sized {
    /// The same with `~` replaced.
    ///
    /// # Errors
    /// As [`expand_home`].
    fn with_home(self) -> Result<Self, HomeError>;
}

impl Paths for String {
    fn with_home(self) -> Result<Self, HomeError> {
        expand_home(&self)
    }
}

impl Paths for PathBuf {
    fn with_home(self) -> Result<Self, HomeError> {
        match self.to_str() {
            Some(text) => expand_home(text).map(Self::from),
            None => Ok(self),
        }
    }
}

impl<P: Paths> Paths for Option<P> {
    fn with_home(self) -> Result<Self, HomeError> {
        self.map(P::with_home).transpose()
    }
}

impl<P: Paths> Paths for Vec<P> {
    fn with_home(self) -> Result<Self, HomeError> {
        self.into_iter().map(P::with_home).collect()
    }
}

/// Reads a setting that holds paths: `#[serde(deserialize_with = "config::paths")]`.
///
/// # Errors
/// It is of another type, or [`HomeError`].
pub fn paths<'de, P, D>(deserializer: D) -> Result<P, D::Error>
where
    P: Paths + Deserialize<'de>,
    D: Deserializer<'de>,
{
    P::deserialize(deserializer)?
        .with_home()
        .map_err(D::Error::custom)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_own_folder_is_known() {
        for (path, home, expected) in [
            ("~/x.log", Some("/home/ada"), Ok("/home/ada/x.log")),
            ("~", Some("/home/ada/"), Ok("/home/ada")),
            ("~/", Some("/"), Ok("/")),
            (
                "~bob/x",
                Some("/home/ada"),
                Err(HomeError::OfOther("~bob".to_owned())),
            ),
            ("./~/x", Some("/home/ada"), Ok("./~/x")),
            ("/a/~", None, Ok("/a/~")),
            ("", None, Ok("")),
            ("~/x", None, Err(HomeError::NotSet)),
            ("~", Some(""), Err(HomeError::NotSet)),
        ] {
            let expected = expected.map(str::to_owned);
            assert_eq!(expand(path, home), expected, "{path} {home:?}");
        }
    }
}
