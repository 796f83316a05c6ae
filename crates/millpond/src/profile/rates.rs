//! What a core costs: from options, and from a file with rates by host.

use std::path::PathBuf;

use anyhow::{Context, bail};
use clap::Args;
use config::{Node, Source, parse_yaml};
use profiler::cost::{GivenRates, Tariff};

use super::settings::{ProfileSettings, SETTING};
use super::tariff::TariffSettings;

/// What a core costs.
#[derive(Args)]
pub struct RateArgs {
    /// The price of a core-hour in USD. Default: 0.0425.
    #[arg(long, value_name = "USD")]
    usd_per_core_hour: Option<f64>,
    /// The power of a core in kW. Default: 0.007 on x86-64, 0.0028 on arm64.
    #[arg(long, value_name = "KW")]
    kw_per_core: Option<f64>,
    /// Tonnes of CO2 for each kWh. Default: 0.000379069.
    #[arg(long, value_name = "TONNES")]
    co2_tonnes_per_kwh: Option<f64>,
    /// Power usage effectiveness of the data centre. Default: 1.7.
    #[arg(long, value_name = "FACTOR")]
    pue: Option<f64>,
    /// A YAML file with these rates, also by host; or a configuration of Millpond, whose `profile.rates` are used.
    #[arg(long, value_name = "FILE")]
    rates: Option<PathBuf>,
}

impl RateArgs {
    /// The rates of hosts.
    ///
    /// # Errors
    /// A rate is too small, or the file cannot be read.
    pub fn tariff(&self) -> anyhow::Result<Tariff> {
        let given = GivenRates {
            usd_per_core_hour: self.usd_per_core_hour,
            kw_per_core: self.kw_per_core,
            co2_tonnes_per_kwh: self.co2_tonnes_per_kwh,
            pue: self.pue,
        };
        if let Some((name, wrong)) = given.wrong() {
            let name = name.replace('_', "-");
            bail!("--{name} is {wrong}");
        }
        Ok(self.settings()?.tariff(given))
    }

    fn settings(&self) -> anyhow::Result<TariffSettings> {
        let Some(path) = &self.rates else {
            return Ok(TariffSettings::default());
        };
        let shown = path.display().to_string();
        let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {shown}"))?;
        let root = parse_yaml(&Source::new(&shown, text))?;
        let settings: TariffSettings = match (root.get("pipelines"), root.get(SETTING)) {
            (None, None) => root.deserialize()?,
            (_, profile) => {
                let settings = profile.map(Node::deserialize::<ProfileSettings>);
                settings
                    .transpose()?
                    .map(|settings| settings.rates)
                    .with_context(|| format!("{shown} has no `profile`, and so no rates"))?
            }
        };
        if let Some((name, wrong)) = settings.wrong() {
            bail!("{shown}: `{name}` is {wrong}");
        }
        Ok(settings)
    }
}
