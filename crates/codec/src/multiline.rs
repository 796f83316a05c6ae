//! Which lines belong to one record.
//!
//! Two ways to say it. A *pattern* tells which lines go on (`negate` turns the answer round), and `match` whether such a
//! line belongs to the one before it (`after`) or to the one behind it (`before`): that is Filebeat's way. Or `start` tells
//! where a record begins, and `end`, if there is one, where it ends; lines between an end and the next start are records of
//! their own, and a start where the end is missing begins a new record.
//!
//! Patterns see a line decoded, without its terminator, and of a line longer than a record may be no more than that.

use config::Period;
use regex::bytes::Regex;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::csv::{Csv, Scan};

/// Where lines belong that a pattern is about.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Match {
    /// To the line behind them.
    Before,
    /// To the line before them.
    #[default]
    After,
}

/// How lines are combined. Either `pattern` or `start` is required.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct MultilineConfig {
    /// A regular expression for lines that belong to an adjacent line.
    pub pattern: Option<String>,
    /// Whether the lines that do not match `pattern` belong to an adjacent line, instead of those that match.
    pub negate: bool,
    /// Where these lines are in their event: `after` its first line, or `before` its last line. Default: `after`.
    #[serde(rename = "match")]
    pub matching: Option<Match>,
    /// A regular expression for the first line of an event.
    pub start: Option<String>,
    /// A regular expression for the last line of an event. Default: an event ends where the next one starts.
    pub end: Option<String>,
    /// The maximum number of lines in an event; further lines are discarded, and the event is tagged `_truncated`.
    pub max_lines: usize,
    /// How long an event waits for its next line.
    pub timeout: Period,
}

impl Default for MultilineConfig {
    fn default() -> Self {
        Self {
            pattern: None,
            negate: false,
            matching: None,
            start: None,
            end: None,
            max_lines: 500,
            timeout: Period::from_secs(5),
        }
    }
}

/// What is wrong with a [`MultilineConfig`].
#[derive(Debug, Clone, thiserror::Error)]
pub enum MultilineError {
    /// Nothing says which lines belong together.
    #[error("either `pattern` or `start` is required")]
    NoPattern,
    /// Two ways at once.
    #[error("`start` and `end` cannot be used with `pattern`, `negate` and `match`: remove `{0}`")]
    Mixed(&'static str),
    /// An end without a start.
    #[error("`end` requires `start`")]
    EndOnly,
    /// No line would be left.
    #[error("`max_lines` must be at least 1")]
    NoLines,
    /// A regular expression that cannot be read.
    #[error("`{setting}`: {error}")]
    Regex {
        /// The setting.
        setting: &'static str,
        /// What is wrong with it.
        error: regex::Error,
    },
}

/// Which lines belong to one record.
#[derive(Debug)]
pub struct Multiline {
    rule: Rule,
    lines_max: usize,
}

#[derive(Debug)]
enum Rule {
    Continues {
        pattern: Regex,
        negate: bool,
        matching: Match,
    },
    Between {
        start: Regex,
        end: Option<Regex>,
    },
    /// A line goes on while a quote of a CSV row is open.
    Quotes(Scan),
}

/// What a line does to the record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LineEffect {
    /// It begins one: what was open ends before it.
    pub(crate) begins: bool,
    /// It ends one.
    pub(crate) ends: bool,
}

impl Multiline {
    /// Reads the patterns.
    ///
    /// # Errors
    /// Settings that contradict each other, and patterns that are no regular expressions.
    pub fn new(config: &MultilineConfig) -> Result<Self, MultilineError> {
        let regex = |setting: &'static str, pattern: &str| {
            Regex::new(pattern).map_err(|error| MultilineError::Regex { setting, error })
        };
        let rule = match (&config.pattern, &config.start, &config.end) {
            (None, None, None) => return Err(MultilineError::NoPattern),
            (None, None, Some(_)) => return Err(MultilineError::EndOnly),
            (Some(_), Some(_), _) => return Err(MultilineError::Mixed("start")),
            (Some(_), None, Some(_)) => return Err(MultilineError::Mixed("end")),
            (None, Some(_), _) if config.negate => return Err(MultilineError::Mixed("negate")),
            (None, Some(_), _) if config.matching.is_some() => {
                return Err(MultilineError::Mixed("match"));
            }
            (Some(pattern), None, None) => Rule::Continues {
                pattern: regex("pattern", pattern)?,
                negate: config.negate,
                matching: config.matching.unwrap_or_default(),
            },
            (None, Some(start), end) => Rule::Between {
                start: regex("start", start)?,
                end: end.as_deref().map(|end| regex("end", end)).transpose()?,
            },
        };
        if config.max_lines == 0 {
            return Err(MultilineError::NoLines);
        }
        Ok(Self {
            rule,
            lines_max: config.max_lines,
        })
    }

    /// Rows of CSV, of any number of lines.
    pub(crate) fn of_csv(csv: &Csv) -> Self {
        Self {
            rule: Rule::Quotes(csv.scan()),
            lines_max: usize::MAX,
        }
    }

    pub(crate) fn lines_max(&self) -> usize {
        self.lines_max
    }

    /// Whether a record ends where it has become too long: a quote that nobody closes must not take in all rows that follow.
    pub(crate) fn ends_too_long(&self) -> bool {
        matches!(self.rule, Rule::Quotes(_))
    }

    /// What a line does, while a record is open or none is.
    pub(crate) fn step(&self, line: &[u8], is_open: bool) -> LineEffect {
        match &self.rule {
            Rule::Continues {
                pattern,
                negate,
                matching,
            } => {
                let goes_on = pattern.is_match(line) != *negate;
                match matching {
                    Match::After => LineEffect {
                        begins: !goes_on,
                        ends: false,
                    },
                    Match::Before => LineEffect {
                        begins: false,
                        ends: !goes_on,
                    },
                }
            }
            Rule::Between { start, end } => {
                let begins = start.is_match(line);
                let ends = end
                    .as_ref()
                    .is_some_and(|end| (!begins && !is_open) || end.is_match(line));
                LineEffect { begins, ends }
            }
            // A row that is open is one whose quote is.
            Rule::Quotes(scan) => LineEffect {
                begins: false,
                ends: !scan.is_open_after(line, is_open),
            },
        }
    }
}
