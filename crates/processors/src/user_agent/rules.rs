//! The rules of uap-core, read from the file that is part of the program or from another one.
//!
//! The file is YAML, of which the program's own uses little: three lists of maps, whose values are `null` or text in single
//! quotes on one line. [`Rules::embedded`] knows that much and no more, because a full reader takes longer than all other
//! preparations; a test compares it with the YAML reader of the `config` crate, which reads the files of others.

use std::borrow::Cow;
use std::path::Path;

use config::{ConfigError, Node, Source};

/// The rule file. Its origin and licence stand in `NOTICE` beside it.
const FILE: &str = include_str!("regexes.yaml");

/// How many rules of a kind there may be.
const RULES_MAX: usize = u16::MAX as usize;

/// How many parts a rule may give: a name and four parts of a version.
pub(super) const PARTS: usize = 5;

/// One rule: what to look for, and what to make of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Rule {
    /// The expression to look for.
    pub regex: Cow<'static, str>,
    /// Whether case does not matter.
    pub ignores_case: bool,
    /// What replaces the groups of the expression: the name, then the version from its first part on. `$1` to `$9` stand
    /// for groups.
    pub replacements: [Option<Cow<'static, str>>; PARTS],
}

/// Why rules cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum RulesError {
    #[error("{0}")]
    Io(#[from] std::io::Error),
    #[error("{0}")]
    Yaml(#[from] ConfigError),
    #[error("it has no list `user_agent_parsers`")]
    NoList,
    #[error("`{0}` has more than {RULES_MAX} rules")]
    TooMany(&'static str),
    #[error("rule {index} of `{name}` has no `regex`")]
    NoRegex { name: &'static str, index: usize },
    #[error(
        "the expression `{0}` is invalid, too large, or needs look-around or back references, which are not supported"
    )]
    Regex(Cow<'static, str>),
}

/// The rules of one kind, the first that matches wins.
#[derive(Clone, Debug, Default)]
pub(super) struct Rules {
    pub browsers: Vec<Rule>,
    pub systems: Vec<Rule>,
    pub devices: Vec<Rule>,
}

impl Rules {
    /// The rules of the file that is part of the program.
    pub fn embedded() -> Self {
        Self::parse(FILE)
    }

    /// The rules of a file of uap-core's form.
    ///
    /// # Errors
    /// It cannot be read, or does not hold rules.
    pub fn from_file(path: &Path) -> Result<Self, RulesError> {
        let text = std::fs::read_to_string(path)?;
        let source = Source::new(path.display().to_string(), text);
        let yaml = config::parse_yaml(&source)?;
        let list = |name: &'static str| -> Result<Vec<Rule>, RulesError> {
            let items = yaml.get(name).map(Node::items).unwrap_or_default();
            if items.len() > RULES_MAX {
                return Err(RulesError::TooMany(name));
            }
            let rule = |(index, item): (usize, &Node)| {
                Rule::from_node(item).ok_or(RulesError::NoRegex { name, index })
            };
            items.iter().enumerate().map(rule).collect()
        };
        let rules = Self {
            browsers: list("user_agent_parsers")?,
            systems: list("os_parsers")?,
            devices: list("device_parsers")?,
        };
        if rules.browsers.is_empty() {
            return Err(RulesError::NoList);
        }
        Ok(rules)
    }

    fn parse(text: &'static str) -> Self {
        let mut rules = Self::default();
        let mut list = &mut rules.browsers;
        for line in text.lines() {
            match line {
                "user_agent_parsers:" => list = &mut rules.browsers,
                "os_parsers:" => list = &mut rules.systems,
                "device_parsers:" => list = &mut rules.devices,
                _ => {
                    let is_first = line.starts_with("  - ");
                    let Some((key, value)) = entry(line) else {
                        continue;
                    };
                    if is_first {
                        list.push(Rule::default());
                    }
                    if let Some(rule) = list.last_mut() {
                        rule.set(key, value.into());
                    }
                }
            }
        }
        rules
    }
}

/// The key and the quoted value of a line; the latter is empty for `null`.
fn entry(line: &'static str) -> Option<(&'static str, &'static str)> {
    let line = line
        .strip_prefix("  - ")
        .or_else(|| line.strip_prefix("    "))?;
    let (key, value) = line.split_once(": ")?;
    let value = value
        .trim_start()
        .strip_prefix('\'')
        .map_or("", |rest| rest.split('\'').next().unwrap_or_default());
    Some((key, value))
}

impl Rule {
    /// A rule of a file; none without an expression.
    fn from_node(node: &Node) -> Option<Self> {
        let mut rule = Self::default();
        for (key, value) in node.as_map()? {
            if let Some(value) = value.as_str() {
                rule.set(key.as_str()?, value.to_owned().into());
            }
        }
        (!rule.regex.is_empty()).then_some(rule)
    }

    fn set(&mut self, key: &str, value: Cow<'static, str>) {
        let part = match key {
            "regex" => {
                self.regex = value;
                return;
            }
            "regex_flag" => {
                self.ignores_case = value == "i";
                return;
            }
            "family_replacement" | "os_replacement" | "device_replacement" => 0,
            "v1_replacement" | "os_v1_replacement" => 1,
            "v2_replacement" | "os_v2_replacement" => 2,
            "v3_replacement" | "os_v3_replacement" => 3,
            "v4_replacement" | "os_v4_replacement" => 4,
            // Brand and model of a device have no place in the event.
            _ => return,
        };
        self.replacements[part] = Some(value).filter(|value| !value.trim().is_empty());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_read_as_yaml_reads_it() {
        let yaml = config::parse_yaml(&Source::new("regexes.yaml", FILE)).unwrap();
        let rules = Rules::embedded();
        for (name, list) in [
            ("user_agent_parsers", &rules.browsers),
            ("os_parsers", &rules.systems),
            ("device_parsers", &rules.devices),
        ] {
            let items = yaml.get(name).unwrap().items();
            let expected: Vec<Rule> = items
                .iter()
                .map(|item| Rule::from_node(item).unwrap())
                .collect();
            assert!(expected.len() > 200, "{name}");
            assert_eq!(list.len(), expected.len(), "{name}");
            for (found, expected) in list.iter().zip(&expected) {
                assert_eq!(found, expected, "{name}");
            }
        }
    }
}
