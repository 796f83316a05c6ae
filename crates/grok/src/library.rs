//! Pattern libraries: a name for every definition that `%{NAME}` may refer to.
//!
//! Two sets are embedded, both those of logstash-patterns-core (see `patterns/NOTICE`). A later
//! definition of a name replaces the earlier one, as in Logstash. Definitions are only
//! parsed when a pattern uses them, so an unused broken definition harms nobody.

use std::collections::BTreeMap;

use crate::error::GrokError;

/// Which embedded definitions a [`Library`] starts with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatternSet {
    /// The flat field names of the years before the Elastic Common Schema (`clientip`, `verb`).
    Legacy,
    /// The field names of the Elastic Common Schema (`[source][address]`).
    EcsV1,
}

macro_rules! pattern_files {
    ($set:literal: $($file:literal),* $(,)?) => {
        &[$(include_str!(concat!("../patterns/", $set, "/", $file))),*]
    };
}

const LEGACY: &[&str] = pattern_files!("legacy":
    "aws", "bacula", "bind", "bro", "exim", "firewalls", "grok-patterns", "haproxy", "httpd", "java",
    "junos", "linux-syslog", "maven", "mcollective-patterns", "mongodb", "nagios", "postgresql",
    "rails", "redis", "ruby", "squid",
);

const ECS_V1: &[&str] = pattern_files!("ecs-v1":
    "aws", "bacula", "bind", "bro", "exim", "firewalls", "grok-patterns", "haproxy", "httpd", "java",
    "junos", "linux-syslog", "maven", "mcollective", "mongodb", "nagios", "postgresql", "rails",
    "redis", "ruby", "squid", "zeek",
);

/// Names and their definitions.
#[derive(Clone, Debug, Default)]
pub struct Library {
    definitions: BTreeMap<String, String>,
}

impl Library {
    /// A library that holds the embedded definitions of `set`.
    pub fn new(set: PatternSet) -> Library {
        let files = match set {
            PatternSet::Legacy => LEGACY,
            PatternSet::EcsV1 => ECS_V1,
        };
        let mut library = Library::empty();
        for file in files {
            library
                .add_lines(file)
                .expect("the embedded pattern files are well formed");
        }
        library
    }

    /// A library without any definition.
    pub fn empty() -> Library {
        Library::default()
    }

    /// Adds or replaces one definition.
    ///
    /// # Errors
    /// [`GrokError::Definition`] when the name has other characters than letters, digits, `_` and `-`,
    /// or when the definition is empty.
    pub fn add(&mut self, name: &str, definition: &str) -> Result<(), GrokError> {
        let refuse = |message: String| {
            Err(GrokError::Definition {
                line: None,
                message,
            })
        };
        if name.is_empty() || !name.bytes().all(is_name_byte) {
            return refuse(format!(
                "{name:?} is not a pattern name: use letters, digits, _ and -"
            ));
        }
        if definition.is_empty() {
            return refuse(format!("the definition of {name} is empty"));
        }
        self.definitions
            .insert(name.to_owned(), definition.to_owned());
        Ok(())
    }

    /// Adds the definitions of a pattern file: one a line, the name first, then white space, then the
    /// expression up to the end of the line. Blank lines and lines that start with `#` are skipped.
    ///
    /// # Errors
    /// [`GrokError::Definition`] with the line's number; the lines before it have been added.
    pub fn add_lines(&mut self, file_text: &str) -> Result<(), GrokError> {
        for (index, line) in file_text.lines().enumerate() {
            let line = line.trim_start();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (name, definition) = line.split_once([' ', '\t']).unwrap_or((line, ""));
            self.add(name, definition.trim_start())
                .map_err(|error| match error {
                    GrokError::Definition { message, .. } => GrokError::Definition {
                        line: Some(index + 1),
                        message,
                    },
                    other => other,
                })?;
        }
        Ok(())
    }

    /// The definition of `name`.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.definitions.get(name).map(String::as_str)
    }

    /// All names in alphabetical order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.definitions.keys().map(String::as_str)
    }

    /// Up to three known names that look like `name`, best first.
    pub(crate) fn closest(&self, name: &str) -> Vec<String> {
        let wanted = name.to_ascii_uppercase();
        let mut scored: Vec<(f64, &str)> = self
            .names()
            .map(|known| (strsim::jaro_winkler(&wanted, known), known))
            .filter(|(score, _)| *score > 0.85)
            .collect();
        scored.sort_by(|a, b| b.0.total_cmp(&a.0));
        scored
            .into_iter()
            .take(3)
            .map(|(_, known)| known.to_owned())
            .collect()
    }
}

/// Whether a byte may stand in a pattern's name.
pub(crate) fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_embedded_sets_are_complete() {
        assert_eq!(Library::new(PatternSet::Legacy).names().count(), 318);
        assert_eq!(Library::new(PatternSet::EcsV1).names().count(), 361);
    }

    #[test]
    fn a_pattern_file_is_read_line_by_line() {
        let mut library = Library::empty();
        library
            .add_lines("# comment\n\nONE  a b \n\tTWO\tx\n")
            .unwrap();
        assert_eq!(library.get("ONE"), Some("a b "));
        assert_eq!(library.get("TWO"), Some("x"));
    }

    #[test]
    fn broken_lines_are_refused_with_their_number() {
        let mut library = Library::empty();
        for (text, line) in [("OK x\nNOTHING", 2), ("B%D x", 1), ("A b\n\n# c\nE \n", 4)] {
            match library.add_lines(text) {
                Err(GrokError::Definition { line: found, .. }) => {
                    assert_eq!(found, Some(line), "{text:?}");
                }
                other => panic!("{text:?}: {other:?}"),
            }
        }
    }

    #[test]
    fn close_names_are_suggested() {
        let library = Library::new(PatternSet::Legacy);
        assert_eq!(library.closest("COMBINEDAPACHLOG")[0], "COMBINEDAPACHELOG");
        assert_eq!(library.closest("nubmer")[0], "NUMBER");
        assert!(library.closest("qqqqqq").is_empty());
    }
}
