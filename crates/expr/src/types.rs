//! The types of values.

use std::fmt;

/// The type of a value, by the name that `type()` gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Type {
    Absent,
    Null,
    Bool,
    Int,
    Double,
    Text,
    Time,
    Duration,
    List,
    Map,
}

impl Type {
    pub fn name(self) -> &'static str {
        match self {
            Self::Absent => "absent",
            Self::Null => "null",
            Self::Bool => "bool",
            Self::Int => "int",
            Self::Double => "double",
            Self::Text => "string",
            Self::Time => "timestamp",
            Self::Duration => "duration",
            Self::List => "list",
            Self::Map => "map",
        }
    }

    pub fn is_number(self) -> bool {
        matches!(self, Self::Int | Self::Double)
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Absent => "an absent field",
            other => other.name(),
        })
    }
}

/// The type of a value that is neither absent nor null.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Known {
    Bool,
    Number,
    Text,
    Time,
    Duration,
    List,
    Map,
}

impl Known {
    /// The type with its article.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bool => "true or false",
            Self::Number => "a number",
            Self::Text => "a text",
            Self::Time => "a timestamp",
            Self::Duration => "a duration",
            Self::List => "a list",
            Self::Map => "a map",
        }
    }

    pub fn of(kind: Type) -> Option<Self> {
        Some(match kind {
            Type::Absent | Type::Null => return None,
            Type::Bool => Self::Bool,
            Type::Int | Type::Double => Self::Number,
            Type::Text => Self::Text,
            Type::Time => Self::Time,
            Type::Duration => Self::Duration,
            Type::List => Self::List,
            Type::Map => Self::Map,
        })
    }

    /// Whether it has elements or keys.
    pub fn has_elements(self) -> bool {
        matches!(self, Self::List | Self::Map)
    }

    /// The type that a function's signature ends with.
    pub fn of_signature(signature: &str) -> Option<Self> {
        let (_, result) = signature.rsplit_once("-> ")?;
        Some(match result {
            "bool" => Self::Bool,
            "int" | "double" | "int or double" => Self::Number,
            "string" => Self::Text,
            "timestamp" => Self::Time,
            "duration" => Self::Duration,
            "list" => Self::List,
            "map" => Self::Map,
            _ => return None,
        })
    }
}
