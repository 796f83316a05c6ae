//! Why a pattern, a definition or a pattern file was refused.

use std::fmt;

/// Where in a pattern an error was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorPosition {
    /// The library definition that holds the error; `None` when it is in the pattern given to
    /// [`Pattern::compile`](crate::Pattern::compile) itself.
    pub definition: Option<String>,
    /// Byte offset into that definition or pattern.
    pub offset: usize,
}

impl fmt::Display for ErrorPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.definition {
            Some(name) => write!(f, "definition {name}, byte {}", self.offset),
            None => write!(f, "byte {}", self.offset),
        }
    }
}

/// A refused pattern, definition or pattern file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GrokError {
    /// The regular expression is broken, or uses a construct that is not supported.
    #[error("{place}: {message}")]
    Syntax {
        /// Where the construct stands.
        place: ErrorPosition,
        /// What is wrong with it and, where there is one, what to write instead.
        message: String,
    },
    /// `%{NAME}` names no definition.
    #[error("{place}: unknown pattern {name}{}", suggestion(.closest))]
    UnknownPattern {
        /// Where the reference stands.
        place: ErrorPosition,
        /// The name as written.
        name: String,
        /// The closest known names, best first; empty when none is close.
        closest: Vec<String>,
    },
    /// A definition refers to itself.
    #[error("{place}: definitions refer to each other in a circle: {}", .cycle.join(" -> "))]
    Recursion {
        /// Where the reference that closes the circle stands.
        place: ErrorPosition,
        /// The names on the circle; the first is repeated at the end.
        cycle: Vec<String>,
    },
    /// A name given to [`Library::add`](crate::Library::add) or a line of a pattern file is unusable.
    #[error("{}{message}", line_prefix(.line))]
    Definition {
        /// Line of the pattern file, counted from 1; `None` for a single definition.
        line: Option<usize>,
        /// What is wrong.
        message: String,
    },
    /// PCRE2 refused the translated pattern.
    #[error("the pattern cannot be compiled: {message}")]
    Engine {
        /// The message of PCRE2.
        message: String,
    },
}

impl GrokError {
    /// Where the error is, if it is in a pattern or in a definition.
    pub fn place(&self) -> Option<&ErrorPosition> {
        match self {
            GrokError::Syntax { place, .. }
            | GrokError::UnknownPattern { place, .. }
            | GrokError::Recursion { place, .. } => Some(place),
            GrokError::Definition { .. } | GrokError::Engine { .. } => None,
        }
    }
}

fn suggestion(closest: &[String]) -> String {
    match closest {
        [] => String::new(),
        [one] => format!("; did you mean {one}?"),
        [rest @ .., last] => format!("; did you mean {} or {last}?", rest.join(", ")),
    }
}

fn line_prefix(line: &Option<usize>) -> String {
    line.map_or_else(String::new, |line| format!("line {line}: "))
}
