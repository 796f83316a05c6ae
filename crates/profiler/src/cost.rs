//! What processor time costs in a year: core-hours, money and CO2.
//!
//! The formulas and defaults are those that Elastic publishes for its Universal Profiling: samples of a window stand for as much
//! processor time all year long,
//!
//! ```text
//! core-hours a year  = samples / frequency × (seconds of a year / seconds of the window) / 3,600
//! USD a year         = core-hours a year × price of a core-hour (0.0425)
//! tonnes CO2 a year  = core-hours a year × kW of a core × tonnes of CO2 a kWh (0.000379069) × PUE (1.7)
//! ```
//!
//! with 0.007 kW for a core of x86-64 and 0.0028 for one of arm64. A year has 31,536,000 seconds.

use crate::filter::matches;
use crate::profile::{Profile, SECOND_NS, Weight, label};

/// Seconds of a year of 365 days.
pub const YEAR_SECONDS: f64 = 31_536_000.0;

/// What a core costs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rates {
    /// The price of a core-hour, in USD.
    pub usd_per_core_hour: f64,
    /// What a core takes, in kW.
    pub kw_per_core: f64,
    /// Tonnes of CO2 for each kWh.
    pub co2_tonnes_per_kwh: f64,
    /// Power usage effectiveness: what the data centre takes for each kWh of its machines.
    pub pue: f64,
}

impl Rates {
    /// The published defaults for x86-64.
    pub const X86_64: Self = Self {
        usd_per_core_hour: 0.0425,
        kw_per_core: 0.007,
        co2_tonnes_per_kwh: 0.000_379_069,
        pue: 1.7,
    };

    /// The published defaults for arm64.
    pub const ARM64: Self = Self {
        kw_per_core: 0.0028,
        ..Self::X86_64
    };

    /// The defaults for the machine that this runs on.
    pub fn here() -> Self {
        match cfg!(target_arch = "aarch64") {
            true => Self::ARM64,
            false => Self::X86_64,
        }
    }
}

/// Rates of which some are given.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct GivenRates {
    /// The price of a core-hour, in USD.
    pub usd_per_core_hour: Option<f64>,
    /// What a core takes, in kW.
    pub kw_per_core: Option<f64>,
    /// Tonnes of CO2 for each kWh.
    pub co2_tonnes_per_kwh: Option<f64>,
    /// Power usage effectiveness.
    pub pue: Option<f64>,
}

impl GivenRates {
    /// The names of the rates as settings, in the order of the fields.
    pub const NAMES: [&str; 4] = [
        "usd_per_core_hour",
        "kw_per_core",
        "co2_tonnes_per_kwh",
        "pue",
    ];

    /// These rates; what is not given is as in `base`.
    pub fn over(self, base: Rates) -> Rates {
        Rates {
            usd_per_core_hour: self.usd_per_core_hour.unwrap_or(base.usd_per_core_hour),
            kw_per_core: self.kw_per_core.unwrap_or(base.kw_per_core),
            co2_tonnes_per_kwh: self.co2_tonnes_per_kwh.unwrap_or(base.co2_tonnes_per_kwh),
            pue: self.pue.unwrap_or(base.pue),
        }
    }

    /// The first of them that is too small or no number, with its name and what is wrong.
    pub fn wrong(self) -> Option<(&'static str, String)> {
        let rates = [
            (self.usd_per_core_hour, 0),
            (self.kw_per_core, 0),
            (self.co2_tonnes_per_kwh, 0),
            // A data centre takes no less than its machines.
            (self.pue, 1),
        ];
        Self::NAMES
            .into_iter()
            .zip(rates)
            .find_map(|(name, (rate, least))| {
                let rate = rate?;
                let is_wrong = !rate.is_finite() || rate < f64::from(least);
                is_wrong.then(|| (name, format!("{rate}: a number from {least} on is needed")))
            })
    }
}

impl Default for Rates {
    fn default() -> Self {
        Self::here()
    }
}

/// What processor time costs if it goes on like this for a year.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Cost {
    /// Core-hours a year.
    pub core_hours: f64,
    /// USD a year.
    pub usd: f64,
    /// Tonnes of CO2 a year.
    pub co2_tonnes: f64,
}

impl Cost {
    /// What so many core-hours cost.
    pub fn of_core_hours(core_hours: f64, rates: &Rates) -> Self {
        Self {
            core_hours,
            usd: core_hours * rates.usd_per_core_hour,
            co2_tonnes: core_hours * rates.kw_per_core * rates.co2_tonnes_per_kwh * rates.pue,
        }
    }

    /// What the processor time of a window costs in a year; nothing where the window has no length.
    pub fn a_year(weight: Weight, window_ns: u64, rates: &Rates) -> Self {
        if window_ns == 0 {
            return Self::default();
        }
        let share_of_window = weight.cpu_ns as f64 / window_ns as f64;
        Self::of_core_hours(share_of_window * YEAR_SECONDS / 3600.0, rates)
    }
}

/// Rates of hosts.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Tariff {
    /// Those of all other hosts.
    pub rates: Rates,
    /// Those of hosts whose names fit a pattern, in which `*` stands for any text. The first one that fits counts.
    pub hosts: Vec<(String, Rates)>,
}

impl Tariff {
    /// The rates of a host.
    pub fn of(&self, host: &str) -> &Rates {
        let mut hosts = self.hosts.iter();
        let found = hosts.find(|(pattern, _)| matches(pattern, host));
        found.map_or(&self.rates, |(_, rates)| rates)
    }

    /// One set of rates with which the whole profile costs what its hosts cost.
    pub fn mean(&self, profile: &Profile) -> Rates {
        let hosts = profile.samples().map(|(_, labels, weight)| {
            let host = profile.label_of(labels, label::HOST);
            (host.unwrap_or_default(), weight.cpu_ns)
        });
        self.mean_of(hosts)
    }

    /// The same of hosts, each with its nanoseconds of processor time.
    pub fn mean_of<'h>(&self, all: impl IntoIterator<Item = (&'h str, u64)>) -> Rates {
        if self.hosts.is_empty() {
            return self.rates;
        }
        let (mut hours, mut usd, mut kw) = (0.0, 0.0, 0.0);
        let Rates {
            co2_tonnes_per_kwh,
            pue,
            ..
        } = self.rates;
        let co2_per_kw = co2_tonnes_per_kwh * pue;
        for (host, cpu_ns) in all {
            let (rates, share) = (self.of(host), cpu_ns as f64);
            hours += share;
            usd += share * rates.usd_per_core_hour;
            kw += share * rates.kw_per_core * rates.co2_tonnes_per_kwh * rates.pue;
        }
        if hours == 0.0 || co2_per_kw == 0.0 {
            return self.rates;
        }
        Rates {
            usd_per_core_hour: usd / hours,
            kw_per_core: kw / hours / co2_per_kw,
            ..self.rates
        }
    }
}

/// Core-hours of processor time in nanoseconds.
pub fn core_hours(cpu_ns: u64) -> f64 {
    cpu_ns as f64 / SECOND_NS as f64 / 3600.0
}

impl Cost {
    /// The cost of a window, if it goes on like this for a year; nothing where the window has no length.
    pub fn over_a_year(self, window_ns: u64) -> Self {
        let times = match window_ns {
            0 => 0.0,
            _ => YEAR_SECONDS * SECOND_NS as f64 / window_ns as f64,
        };
        Self {
            core_hours: self.core_hours * times,
            usd: self.usd * times,
            co2_tonnes: self.co2_tonnes * times,
        }
    }
}

impl std::ops::AddAssign for Cost {
    fn add_assign(&mut self, other: Self) {
        self.core_hours += other.core_hours;
        self.usd += other.usd;
        self.co2_tonnes += other.co2_tonnes;
    }
}

impl std::ops::Sub for Cost {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self {
            core_hours: self.core_hours - other.core_hours,
            usd: self.usd - other.usd,
            co2_tonnes: self.co2_tonnes - other.co2_tonnes,
        }
    }
}

/// The weight of samples that were taken at a frequency.
pub fn weight(samples: u64, frequency_hz: f64) -> Weight {
    let cpu_ns = match frequency_hz > 0.0 {
        true => (samples as f64 / frequency_hz * SECOND_NS as f64).round() as u64,
        false => 0,
    };
    Weight { samples, cpu_ns }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 475 samples of a function alone, 950 with what it calls, of 9,500, in 900 s at 19 Hz: Elastic's own example.
    #[test]
    fn the_published_example_holds() {
        let window = 900 * SECOND_NS;
        let rates = Rates::X86_64;
        let round = |number: f64| (number * 1e6).round() / 1e6;
        for (samples, share, core_seconds, core_seconds_a_year) in
            [(475, 5.0, 25.0, 876_000.0), (950, 10.0, 50.0, 1_752_000.0)]
        {
            let weight = weight(samples, 19.0);
            assert_eq!(round(weight.samples as f64 / 9_500.0 * 100.0), share);
            assert_eq!(round(weight.cpu_ns as f64 / 1e9), core_seconds);
            let cost = Cost::a_year(weight, window, &rates);
            assert_eq!(round(cost.core_hours * 3600.0), core_seconds_a_year);
        }
        // The whole: 500 core-seconds in 900 s, 4,866.67 core-hours a year.
        let whole = Cost::a_year(weight(9_500, 19.0), window, &rates);
        assert_eq!(round(whole.core_hours), 4_866.666_667);
        assert_eq!(round(whole.usd), 206.833_333);
        assert_eq!(round(whole.co2_tonnes), 0.021_953);
        let arm = Cost::a_year(weight(9_500, 19.0), window, &Rates::ARM64);
        assert_eq!(round(arm.co2_tonnes), 0.008_781);
    }

    #[test]
    fn hosts_have_rates_of_their_own() {
        let arm = Rates {
            usd_per_core_hour: 0.01,
            ..Rates::ARM64
        };
        let tariff = Tariff {
            rates: Rates::X86_64,
            hosts: vec![("arm-*".to_owned(), arm)],
        };
        assert_eq!(*tariff.of("arm-1"), arm);
        assert_eq!(*tariff.of("web-1"), Rates::X86_64);
        let mut profile = Profile::default();
        let mut by_host = Cost::default();
        for (host, seconds) in [("arm-1", 3600), ("web-1", 1800)] {
            let labels = profile.labels(&[(label::HOST, host)]);
            let cpu_ns = seconds * SECOND_NS;
            let weight = Weight { samples: 1, cpu_ns };
            profile.add(crate::profile::StackId::EMPTY, labels, weight);
            by_host += Cost::of_core_hours(core_hours(cpu_ns), tariff.of(host));
        }
        let all = core_hours(profile.total().cpu_ns);
        let mean = Cost::of_core_hours(all, &tariff.mean(&profile));
        assert!((mean.usd - by_host.usd).abs() < 1e-12);
        assert!((mean.co2_tonnes - by_host.co2_tonnes).abs() < 1e-12);
        assert_eq!(by_host.usd, 0.01 + 0.5 * 0.0425);
        let a_year = by_host.over_a_year(3600 * SECOND_NS);
        assert!((a_year.core_hours - 1.5 * 8760.0).abs() < 1e-6);
    }

    #[test]
    fn nothing_costs_nothing() {
        assert_eq!(weight(5, 0.0).cpu_ns, 0);
        let one = Weight {
            samples: 1,
            cpu_ns: 1,
        };
        assert_eq!(Cost::a_year(one, 0, &Rates::here()), Cost::default());
    }
}
