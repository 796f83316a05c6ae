//! What a core costs, as settings, also by host.

use indexmap::IndexMap;
use profiler::cost::{GivenRates, Rates, Tariff};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a core costs. What is left out has the default of the machine's architecture.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RateSettings {
    /// The price of a core-hour in USD. Default: 0.0425.
    pub usd_per_core_hour: Option<f64>,
    /// The power of a core in kW. Default: 0.007 on x86-64, 0.0028 on arm64.
    pub kw_per_core: Option<f64>,
    /// Tonnes of CO2 for each kWh. Default: 0.000379069.
    pub co2_tonnes_per_kwh: Option<f64>,
    /// The power usage effectiveness of the data centre. Default: 1.7.
    pub pue: Option<f64>,
}

/// What cores cost, by host.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TariffSettings {
    /// The price of a core-hour in USD. Default: 0.0425.
    pub usd_per_core_hour: Option<f64>,
    /// The power of a core in kW. Default: 0.007 on x86-64, 0.0028 on arm64.
    pub kw_per_core: Option<f64>,
    /// Tonnes of CO2 for each kWh. Default: 0.000379069.
    pub co2_tonnes_per_kwh: Option<f64>,
    /// The power usage effectiveness of the data centre. Default: 1.7.
    pub pue: Option<f64>,
    /// The same settings for hosts whose names match a pattern, in which `*` stands for any text. The first match counts, and what it
    /// leaves out is as for all hosts.
    #[schemars(with = "std::collections::BTreeMap<String, RateSettings>")]
    pub hosts: IndexMap<String, RateSettings>,
}

impl RateSettings {
    fn given(&self) -> GivenRates {
        GivenRates {
            usd_per_core_hour: self.usd_per_core_hour,
            kw_per_core: self.kw_per_core,
            co2_tonnes_per_kwh: self.co2_tonnes_per_kwh,
            pue: self.pue,
        }
    }
}

impl TariffSettings {
    fn all(&self) -> GivenRates {
        GivenRates {
            usd_per_core_hour: self.usd_per_core_hour,
            kw_per_core: self.kw_per_core,
            co2_tonnes_per_kwh: self.co2_tonnes_per_kwh,
            pue: self.pue,
        }
    }

    /// The first of them that is no rate, by its path, and what is wrong.
    pub fn wrong(&self) -> Option<(String, String)> {
        let of_hosts = self.hosts.iter().filter_map(|(host, rates)| {
            let (name, wrong) = rates.given().wrong()?;
            Some((format!("hosts.{host}.{name}"), wrong))
        });
        let of_all = self.all().wrong();
        let of_all = of_all.map(|(name, wrong)| (name.to_owned(), wrong));
        of_all.into_iter().chain(of_hosts).next()
    }

    /// The rates of all hosts, where `given` stands in the place of what is for all.
    pub fn tariff(&self, given: GivenRates) -> Tariff {
        let all = given.over(self.all().over(Rates::here()));
        let hosts = self.hosts.iter();
        Tariff {
            rates: all,
            hosts: hosts
                .map(|(host, rates)| (host.clone(), rates.given().over(all)))
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use config::{Source, parse_yaml};

    use super::*;

    #[test]
    fn hosts_take_over_what_they_leave_out() {
        let text = "usd_per_core_hour: 0.05\nhosts:\n  arm-*: { kw_per_core: 0.002 }\n";
        let root = parse_yaml(&Source::new("rates.yaml", text.to_owned())).unwrap();
        let settings: TariffSettings = root.deserialize().unwrap();
        let given = GivenRates {
            pue: Some(1.1),
            ..GivenRates::default()
        };
        let tariff = settings.tariff(given);
        let arm = tariff.of("arm-7");
        assert_eq!(
            (arm.usd_per_core_hour, arm.kw_per_core, arm.pue),
            (0.05, 0.002, 1.1)
        );
        assert_eq!(tariff.of("web").kw_per_core, Rates::here().kw_per_core);
        let wrong = TariffSettings {
            hosts: IndexMap::from([(
                "a".to_owned(),
                RateSettings {
                    pue: Some(0.9),
                    ..RateSettings::default()
                },
            )]),
            ..TariffSettings::default()
        };
        let (name, wrong) = wrong.wrong().unwrap();
        assert_eq!(
            (&*name, &*wrong),
            ("hosts.a.pue", "0.9: a number from 1 on is needed")
        );
    }
}
