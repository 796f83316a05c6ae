//! The settings of `profile`.

use config::{ConfigError, Count, Node, Period, Positive};
use profiler::breakdown::Key;
use profiler::cost::{GivenRates, Rates};
use profiler::profile::label;
use profiler::sampling::{Options, Target};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::documents::{Layout, TopLayout};
use crate::paths::{Exclusion, Pattern};

/// Settings of the input `profile`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Config {
    /// Profiles to read in place of sampling: pprof files, OTLP (`.otlp`), collapsed stacks, or what `perf script` prints. Wildcards are
    /// allowed, and a folder stands for the files in it. Default: none, and this machine is sampled.
    #[serde(default, deserialize_with = "config::paths")]
    paths: Vec<String>,
    /// What an event is.
    #[serde(default)]
    rows: Rows,
    /// What has a row of its own with `rows: top`: one or more of `function`, `host`, `service`, `container`, `process`, `pid`, `thread`,
    /// `pipeline` and `operator`. Default: `process` and `function`.
    #[serde(default)]
    by: Option<Vec<By>>,
    /// How many rows each interval or file has with `rows: top`, those with the most processor time. All others together are one
    /// more row, `(other)`. Default: 100.
    #[serde(default)]
    max_rows: Option<Positive<Count>>,
    /// How long an interval is, from 1s to 1h. Intervals end at multiples of this, such as full minutes. Default: 1m.
    #[serde(default)]
    every: Option<Period>,
    /// How often each core is sampled per second, from 1 to 10,000. Default: 20.
    #[serde(default)]
    frequency: Option<u32>,
    /// Whether Java virtual machines are asked for the names of their functions, by `SIGQUIT` and the attach protocol. Default: true.
    #[serde(default)]
    attach: Option<bool>,
    /// The processes to sample, with those that they start. Default: all of the machine.
    #[serde(default)]
    pid: Vec<u32>,
    /// The price of a core-hour in USD. Default: 0.0425.
    #[serde(default)]
    usd_per_core_hour: Option<f64>,
    /// The power that a core takes, in kW. Default: 0.007 on x86-64, 0.0028 on arm64.
    #[serde(default)]
    kw_per_core: Option<f64>,
    /// Tonnes of CO2 per kWh. Default: 0.000379069.
    #[serde(default)]
    co2_tonnes_per_kwh: Option<f64>,
    /// Power usage effectiveness of the data centre. Default: 1.7.
    #[serde(default)]
    pue: Option<f64>,
}

/// What an event is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum Rows {
    /// A row of the list of the costliest functions.
    #[default]
    Top,
    /// A distinct stack with its labels.
    Samples,
}

/// What has a row of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum By {
    /// Each function.
    Function,
    /// Each machine.
    Host,
    /// Each service.
    Service,
    /// Each container.
    Container,
    /// Each name of processes.
    Process,
    /// Each process.
    Pid,
    /// Each name of threads.
    Thread,
    /// Each pipeline of Millpond.
    Pipeline,
    /// Each component of a pipeline.
    Operator,
}

impl By {
    /// The label; none for functions.
    fn label(self) -> Option<&'static str> {
        match self {
            Self::Function => None,
            Self::Host => Some(label::HOST),
            Self::Service => Some(label::SERVICE),
            Self::Container => Some(label::CONTAINER),
            Self::Process => Some(label::PROCESS),
            Self::Pid => Some(label::PID),
            Self::Thread => Some(label::THREAD),
            Self::Pipeline => Some(label::PIPELINE),
            Self::Operator => Some(label::OPERATOR),
        }
    }
}

/// Where profiles come from.
#[derive(Debug)]
pub(super) enum Origin {
    /// This machine is sampled.
    Live { options: Options, every: Period },
    /// Files are read.
    Files {
        patterns: Vec<Pattern>,
        exclusion: Exclusion,
    },
}

const EVERY_DEFAULT: Period = Period::from_secs(60);
const EVERY_MIN_SECS: u64 = 1;
const EVERY_MAX_SECS: u64 = 3600;
const FREQUENCY_DEFAULT: u32 = 20;
const FREQUENCY_MAX: u32 = 10_000;
const ROWS_DEFAULT: u64 = 100;

impl Config {
    /// Where profiles come from.
    ///
    /// # Errors
    /// Settings that make no sense, with their places.
    pub(super) fn origin(&self, node: &Node) -> Result<Origin, ConfigError> {
        if self.paths.is_empty() {
            if node.get("paths").is_some() {
                let error = "`paths` needs at least one path";
                return Err(node.nearest("paths").error(error));
            }
            return self.live(node);
        }
        for (name, is_set) in [
            ("every", self.every.is_some()),
            ("frequency", self.frequency.is_some()),
            ("attach", self.attach.is_some()),
            ("pid", !self.pid.is_empty()),
        ] {
            if is_set {
                let error = format!("`{name}` is for sampling: it has no effect with `paths`");
                return Err(node.nearest(name).error(error));
            }
        }
        let parse = |(index, path): (usize, &String)| {
            Pattern::parse(path).map_err(|error| {
                node.nearest(&format!("paths[{index}]"))
                    .error(format!("not a valid pattern: {error}"))
            })
        };
        let patterns = self.paths.iter().enumerate().map(parse);
        let exclusion = Exclusion::new(&[]).map_err(|(_, error)| node.error(error.to_string()))?;
        Ok(Origin::Files {
            patterns: patterns.collect::<Result<_, _>>()?,
            exclusion,
        })
    }

    fn live(&self, node: &Node) -> Result<Origin, ConfigError> {
        let every = self.every.unwrap_or(EVERY_DEFAULT);
        if every < Period::from_secs(EVERY_MIN_SECS) || every > Period::from_secs(EVERY_MAX_SECS) {
            let error = "`every` must be between 1s and 1h";
            return Err(node.nearest("every").error(error));
        }
        let frequency = self.frequency.unwrap_or(FREQUENCY_DEFAULT);
        if !(1..=FREQUENCY_MAX).contains(&frequency) {
            let error = "`frequency` must be between 1 and 10000";
            return Err(node.nearest("frequency").error(error));
        }
        if self.pid.contains(&0) {
            let error = "0 is no process: without `pid` all of the machine are sampled";
            return Err(node.nearest("pid").error(error));
        }
        let target = match self.pid.is_empty() {
            true => Target::All,
            false => Target::Processes(self.pid.clone()),
        };
        let mut options = Options::new(target, frequency);
        options.attaches = self.attach.unwrap_or(true);
        Ok(Origin::Live { options, every })
    }

    /// What events look like.
    ///
    /// # Errors
    /// Settings that make no sense, with their places.
    pub(super) fn layout(&self, node: &Node) -> Result<Layout, ConfigError> {
        let rates = self.rates(node)?;
        if self.rows == Rows::Samples {
            let only_top = ["by", "max_rows"].into_iter().chain(GivenRates::NAMES);
            if let Some(name) = only_top.into_iter().find(|name| node.get(name).is_some()) {
                let error = format!("`{name}` is for `rows: top`: it has no effect here");
                return Err(node.nearest(name).error(error));
            }
            return Ok(Layout::Samples);
        }
        let default = [By::Process, By::Function];
        let by = self.by.as_deref().unwrap_or(&default);
        if by.is_empty() {
            let error = "`by` needs at least one of `function` and the labels";
            return Err(node.nearest("by").error(error));
        }
        let labels = by.iter().filter_map(|by| by.label());
        let max_rows = self.max_rows.map_or(ROWS_DEFAULT, |count| count.get().0);
        Ok(Layout::Top(TopLayout {
            key: Key {
                labels: labels.map(str::to_owned).collect(),
                is_by_function: by.contains(&By::Function),
            },
            max_rows: usize::try_from(max_rows).unwrap_or(usize::MAX),
            rates,
        }))
    }

    fn rates(&self, node: &Node) -> Result<Rates, ConfigError> {
        let given = GivenRates {
            usd_per_core_hour: self.usd_per_core_hour,
            kw_per_core: self.kw_per_core,
            co2_tonnes_per_kwh: self.co2_tonnes_per_kwh,
            pue: self.pue,
        };
        if let Some((name, wrong)) = given.wrong() {
            let error = format!("`{name}` is {wrong}");
            return Err(node.nearest(name).error(error));
        }
        Ok(given.over(Rates::here()))
    }
}

#[cfg(test)]
mod tests {
    use config::{Source, parse_yaml};

    use super::*;

    fn built(text: &str) -> Result<(Origin, Layout), String> {
        let node = parse_yaml(&Source::new("t.yaml", text)).unwrap();
        let config: Config = component::parse(&node).map_err(|error| error.to_string())?;
        let read = || Ok((config.origin(&node)?, config.layout(&node)?));
        read().map_err(|error: ConfigError| error.to_string())
    }

    #[test]
    fn the_whole_machine_is_sampled_each_minute() {
        let (origin, layout) = built("{}").unwrap();
        let Origin::Live { options, every } = origin else {
            panic!("{origin:?}")
        };
        assert_eq!((options.target, options.frequency_hz), (Target::All, 20));
        assert_eq!(every, Period::from_secs(60));
        let Layout::Top(top) = layout else {
            panic!("{layout:?}")
        };
        assert_eq!((top.max_rows, top.rates), (100, Rates::here()));
        assert_eq!(top.key.labels, ["process"]);
        assert!(top.key.is_by_function);
    }

    #[test]
    fn settings_that_make_no_sense_are_refused() {
        for (text, part) in [
            ("{every: 10ms}", "between 1s and 1h"),
            ("{every: 2h}", "between 1s and 1h"),
            ("{frequency: 0}", "between 1 and 10000"),
            ("{pid: [0]}", "0 is no process"),
            ("{paths: []}", "at least one path"),
            ("{paths: a, every: 1m}", "no effect with `paths`"),
            ("{paths: a, frequency: 9}", "no effect with `paths`"),
            ("{paths: a, pid: 9}", "no effect with `paths`"),
            ("{paths: 'a[', rows: top}", "not a valid pattern"),
            ("{by: []}", "at least one of"),
            ("{by: proces}", "process"),
            ("{max_rows: 0}", "at least 1"),
            ("{rows: samples, by: host}", "`by` is for `rows: top`"),
            ("{rows: samples, max_rows: 5}", "`max_rows` is for"),
            ("{rows: samples, pue: 2}", "`pue` is for"),
            ("{usd_per_core_hour: -1}", "a number from 0 on"),
            ("{pue: .inf}", "number"),
            ("{rows: flame}", "samples"),
        ] {
            let error = built(text).expect_err(text);
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
