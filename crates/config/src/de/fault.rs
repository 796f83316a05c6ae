//! What serde reports while a tree is read, on its way to a [`ConfigError`].

use std::fmt;

use serde::de::{Error, Expected, Unexpected};

use super::found;
use crate::error::ConfigError;
use crate::node::Node;
use crate::renamed;

/// A refusal that has no place yet, or has found the innermost one.
#[derive(Debug)]
pub(super) enum Fault {
    UnknownSetting {
        name: String,
        accepted: Vec<String>,
    },
    UnknownVariant {
        name: String,
        accepted: Vec<String>,
    },
    MissingSetting(&'static str),
    Wrong {
        message: String,
        suggestion: Option<String>,
    },
    Located(ConfigError),
}

impl Fault {
    /// Gives the refusal its place, unless it has one.
    pub(super) fn at(self, node: &Node) -> Self {
        Self::Located(self.into_error(node))
    }

    /// The error at a node, or at the inner one that the refusal already stands at.
    pub(super) fn into_error(self, node: &Node) -> ConfigError {
        match self {
            Self::Located(error) => error,
            Self::UnknownSetting { name, accepted } => unknown_setting(node, &name, accepted),
            Self::UnknownVariant { name, accepted } => {
                let error = node
                    .error(format!("`{name}` is not accepted here"))
                    .accepted(accepted)
                    .closest_to(&name);
                match &*name {
                    "docker" | "cri" | "kubernetes" if node.path().last_key() == Some("codec") => {
                        error.note("the wrapping of container logs is a setting of its own: container=docker, container=cri")
                    }
                    _ => error,
                }
            }
            Self::MissingSetting(name) => {
                let owner = owner(node.path().last_key());
                node.error(format!("the setting `{name}` is missing{owner}"))
            }
            Self::Wrong {
                message,
                suggestion,
            } => match suggestion {
                Some(suggestion) => node.error(message).suggest(suggestion),
                None => node.error(message),
            },
        }
    }
}

/// The refusal stands at the key when serde read it from there, else at the map around it.
fn unknown_setting(node: &Node, name: &str, accepted: Vec<String>) -> ConfigError {
    let (at, of) = match node.entry(name) {
        Some((key, _)) => (key, node.path().last_key()),
        None if node.as_str() == Some(name) => (
            node,
            node.path().parent().and_then(|above| above.last_key()),
        ),
        None => (node, node.path().last_key()),
    };
    renamed::unknown_setting(at, name, of, accepted)
}

fn owner(name: Option<&str>) -> String {
    name.map(|name| format!(" for {name}")).unwrap_or_default()
}

impl Error for Fault {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self::Wrong {
            message: message.to_string(),
            suggestion: None,
        }
    }

    fn invalid_type(unexpected: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::custom(format!("expected {expected}, found {}", found(&unexpected)))
    }

    fn invalid_value(unexpected: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::invalid_type(unexpected, expected)
    }

    fn invalid_length(length: usize, expected: &dyn Expected) -> Self {
        Self::custom(format!("expected {expected}, found {length} values"))
    }

    fn unknown_field(name: &str, accepted: &'static [&'static str]) -> Self {
        Self::UnknownSetting {
            name: name.to_owned(),
            accepted: accepted.iter().map(|&name| name.to_owned()).collect(),
        }
    }

    fn unknown_variant(name: &str, accepted: &'static [&'static str]) -> Self {
        Self::UnknownVariant {
            name: name.to_owned(),
            accepted: accepted.iter().map(|&name| name.to_owned()).collect(),
        }
    }

    fn missing_field(name: &'static str) -> Self {
        Self::MissingSetting(name)
    }
}

impl std::error::Error for Fault {}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownSetting { name, .. } => write!(f, "unknown setting `{name}`"),
            Self::UnknownVariant { name, .. } => write!(f, "`{name}` is not accepted here"),
            Self::MissingSetting(name) => write!(f, "the setting `{name}` is missing"),
            Self::Wrong { message, .. } => f.write_str(message),
            Self::Located(error) => f.write_str(error.message()),
        }
    }
}
