//! What a suite file says.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, anyhow};
use config::{ConfigError, Count, Node, NodeKind, Period, Positive, Size, Source, parse_yaml};
use schemars::JsonSchema;
use serde::Deserialize;

/// How often each scenario is run by default.
const RUNS: u64 = 5;

/// A suite.
pub struct Suite {
    /// How often each scenario is run.
    pub runs: usize,
    /// What may be worse than in the baseline.
    pub tolerance: Tolerance,
    /// The scenarios, in their order.
    pub scenarios: Vec<Scenario>,
}

/// By how many per cent a median may be worse than that of the baseline.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Tolerance {
    /// Of events a second, in per cent.
    pub throughput: f64,
    /// Of CPU-seconds for a million events, in per cent.
    pub cpu: f64,
    /// Of the peak of memory, in per cent.
    pub memory: f64,
}

impl Default for Tolerance {
    fn default() -> Self {
        Self {
            throughput: 10.0,
            cpu: 5.0,
            memory: 10.0,
        }
    }
}

/// Something that is measured.
pub struct Scenario {
    /// Its name, which is one in the suite.
    pub name: String,
    /// Its settings.
    pub settings: ScenarioSettings,
    /// What is run.
    pub work: Work,
    /// Where it stands.
    pub node: Node,
}

/// What is run.
pub enum Work {
    /// A pipeline in one line.
    Line(String),
    /// A pipeline with settings, as it stands below its name in a configuration; it has a data directory.
    Configured(Node),
    /// Another program, and the input of Millpond that it sends to.
    Foreign {
        command: Node,
        receive: Option<String>,
        write: BTreeMap<String, String>,
    },
}

/// The settings of a scenario that are not about what is run.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ScenarioSettings {
    /// The files that are generated for it. They are kept for later runs. The folder is `${FILES}`.
    pub files: Option<Files>,
    /// How many events must be read or arrive. Required without `files`. Default: the events in `files`.
    pub events: Option<Positive<Count>>,
    /// The maximum time of a run.
    #[serde(default = "timeout")]
    pub timeout: Positive<Period>,
}

/// The settings of a scenario, as they are documented: what [`ScenarioSettings`] has, and what is run.
#[derive(JsonSchema)]
#[allow(dead_code, reason = "for the reference alone")]
pub struct DocumentedScenario {
    #[schemars(flatten)]
    common: ScenarioSettings,
    /// A pipeline in one line, or the settings of a pipeline as they stand below its name in a YAML file. Required, unless there is a `command`.
    pipeline: Option<String>,
    /// A program and its arguments, in place of `pipeline`.
    command: Option<Vec<String>>,
    /// With `command`: the input of Millpond that the program sends to, such as `beats ${PORT}`.
    receive: Option<String>,
    /// With `command`: files that are written to `${WORK}` before each run, by name.
    write: Option<BTreeMap<String, String>>,
}

fn timeout() -> Positive<Period> {
    Positive::<Period>::from_secs(600)
}

/// Files that are generated.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Files {
    /// How many; `--scale` changes it.
    pub count: Positive<Count>,
    /// The size of each, about, before it is compressed. With a `count` of 1, `--scale` changes it.
    pub size: Positive<Size>,
    /// What the events look like: page `input-generate`. Default: `apache`.
    #[serde(default)]
    pub format: Format,
    /// How the files are compressed. Default: `none`.
    #[serde(default)]
    pub compression: Compression,
}

/// What events look like.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    #[default]
    Apache,
    Suricata,
    Syslog,
}

impl Format {
    /// Its name.
    pub fn word(self) -> &'static str {
        match self {
            Self::Apache => "apache",
            Self::Suricata => "suricata",
            Self::Syslog => "syslog",
        }
    }

    /// The bytes of an event, on average, with its line end.
    pub fn event_bytes(self) -> u64 {
        match self {
            Self::Apache => 237,
            Self::Suricata => 700,
            Self::Syslog => 105,
        }
    }
}

/// How files are compressed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Compression {
    #[default]
    None,
    Gzip,
}

impl Suite {
    /// Reads a suite file.
    ///
    /// # Errors
    /// It cannot be read, or a setting is wrong, at its place.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let name = path.display().to_string();
        let text = std::fs::read(path).with_context(|| format!("cannot read {name}"))?;
        let text = String::from_utf8(text)
            .map_err(|_| anyhow!("{name} is not a suite: it is not valid UTF-8"))?;
        Ok(Self::of(&parse_yaml(&Source::new(name, text))?)?)
    }

    fn of(root: &Node) -> Result<Self, ConfigError> {
        let mut reader = root.map_reader("a suite")?;
        let runs: Option<Positive<Count>> = reader.parse("runs")?;
        let tolerance = reader.parse("tolerance")?.unwrap_or_default();
        let scenarios = reader.take("scenarios");
        reader.finish()?;
        let Some(list) = scenarios.filter(|node| !node.is_null()) else {
            return Err(root.error("a suite needs `scenarios`"));
        };
        let Some(entries) = list.as_map() else {
            return Err(list.error("`scenarios` is a map: a name for each scenario"));
        };
        if entries.is_empty() {
            return Err(list.error("`scenarios` is empty: there is nothing to be measured"));
        }
        let scenarios = entries.iter().map(|(key, node)| Scenario::of(key, node));
        Ok(Self {
            runs: runs.map_or(RUNS, |runs| runs.0) as usize,
            tolerance,
            scenarios: scenarios.collect::<Result<_, _>>()?,
        })
    }
}

impl Scenario {
    fn of(key: &Node, node: &Node) -> Result<Self, ConfigError> {
        let name = key.as_str().unwrap_or_default();
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        if name.is_empty() || !name.bytes().all(is_name) || name.starts_with('.') {
            let words = "the name of a scenario has letters, digits, `-`, `_` and `.`";
            return Err(key.error(words));
        }
        let own = ["pipeline", "command", "receive", "write"];
        let (about, rest) = node.divide(&own);
        let settings: ScenarioSettings = rest
            .deserialize()
            .map_err(|error: ConfigError| error.accepted_beside(&rest, &own))?;
        let about = about.unwrap_or_else(|| rest.clone());
        if settings.files.is_none() && settings.events.is_none() {
            return Err(node.error(format!(
                "`{name}` needs `files`, or `events`: how many events there are"
            )));
        }
        Ok(Self {
            name: name.to_owned(),
            work: Work::of(name, &about)?,
            settings,
            node: node.clone(),
        })
    }

    /// How long a run may take.
    pub fn timeout(&self) -> Duration {
        self.settings.timeout.0
    }
}

impl Work {
    fn of(name: &str, node: &Node) -> Result<Self, ConfigError> {
        let text = |key: &str| node.get(key).map(Node::deserialize).transpose();
        match (node.get("pipeline"), node.get("command")) {
            (Some(pipeline), None) => {
                for key in ["receive", "write"] {
                    if let Some(setting) = node.get(key) {
                        return Err(setting.error(format!("`{key}` is for a `command`")));
                    }
                }
                match &pipeline.kind {
                    NodeKind::Scalar { text, .. } => Ok(Self::Line(text.clone())),
                    NodeKind::Map(_) => Ok(Self::Configured(pipeline.clone())),
                    _ => {
                        Err(pipeline.error("`pipeline` is one line, or the settings of a pipeline"))
                    }
                }
            }
            (None, Some(command)) => {
                let words: Vec<String> = command.deserialize()?;
                if words.is_empty() {
                    return Err(command.error("`command` is empty"));
                }
                let write = node.get("write").map(Node::deserialize).transpose()?;
                let write: BTreeMap<String, String> = write.unwrap_or_default();
                if let Some(file) = write.keys().find(|file| file.contains('/')) {
                    let files = node.nearest("write");
                    return Err(files.error(format!("`{file}` is not a file name")));
                }
                Ok(Self::Foreign {
                    command: command.clone(),
                    receive: text("receive")?,
                    write,
                })
            }
            (Some(_), Some(command)) => Err(command.error(format!(
                "`{name}` has a `pipeline`, and cannot have a `command` as well"
            ))),
            (None, None) => Err(node.error(format!("`{name}` needs a `pipeline` or a `command`"))),
        }
    }
}
