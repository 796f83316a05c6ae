//! Metrics as text: the Prometheus text format 0.0.4 and OpenMetrics 1.0, which differ in the names of counters, in units and in the
//! end.

use std::fmt::{Display, Write};

use http::HeaderMap;
use http::header::ACCEPT;

/// A format of metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// The Prometheus text format 0.0.4.
    Prometheus,
    /// OpenMetrics 1.0.0.
    OpenMetrics,
}

/// The type of a family of metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// It only grows.
    Counter,
    /// It goes up and down.
    Gauge,
    /// Facts in labels.
    Info,
    /// Values in buckets.
    Histogram,
}

/// A family of metrics.
pub struct Family<'a> {
    /// Its name, without what the formats put behind those of counters and facts.
    pub name: &'a str,
    pub kind: Kind,
    /// The unit that the name ends with; empty where there is none.
    pub unit: &'a str,
    /// One sentence.
    pub help: &'a str,
}

impl Format {
    /// The media type.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }

    /// What a client accepts: OpenMetrics where it prefers it, or likes both as well.
    pub fn accepted(headers: &HeaderMap) -> Self {
        let ranges = headers.get_all(ACCEPT).iter();
        let ranges = ranges.filter_map(|value| value.to_str().ok());
        let (mut open, mut text) = (0.0_f64, 0.0_f64);
        for range in ranges.flat_map(|value| value.split(',')) {
            let mut parts = range.split(';').map(str::trim);
            let kind = parts.next().unwrap_or_default().to_ascii_lowercase();
            let mut quality = 1.0;
            let mut is_known_version = true;
            for parameter in parts {
                match parameter.split_once('=') {
                    Some(("q", value)) => quality = value.parse().unwrap_or(0.0),
                    Some(("version", version)) => {
                        is_known_version = matches!(version.trim_matches('"'), "1.0.0" | "0.0.1");
                    }
                    _ => {}
                }
            }
            match &*kind {
                "application/openmetrics-text" if is_known_version => open = open.max(quality),
                "text/plain" | "text/*" | "*/*" => text = text.max(quality),
                _ => {}
            }
        }
        match open > 0.0 && open >= text {
            true => Self::OpenMetrics,
            false => Self::Prometheus,
        }
    }
}

/// Text that is being written.
pub struct Exposition {
    format: Format,
    text: String,
    /// The name of the samples of the family at hand.
    sample: String,
}

impl Exposition {
    pub fn new(format: Format) -> Self {
        Self {
            format,
            text: String::with_capacity(16 << 10),
            sample: String::new(),
        }
    }

    /// Begins a family, whose samples follow.
    pub fn family(&mut self, family: &Family<'_>) {
        let Family {
            name,
            kind,
            unit,
            help,
        } = family;
        debug_assert!(
            unit.is_empty() || name.ends_with(&format!("_{unit}")),
            "{name}"
        );
        let suffix = match kind {
            Kind::Counter => "_total",
            Kind::Gauge | Kind::Histogram => "",
            Kind::Info => "_info",
        };
        self.sample.clear();
        let _ = write!(self.sample, "{name}{suffix}");
        let (named, kind) = match (self.format, kind) {
            (Format::OpenMetrics, Kind::Counter) => (*name, "counter"),
            (Format::OpenMetrics, Kind::Info) => (*name, "info"),
            (Format::Prometheus, Kind::Counter) => (&*self.sample, "counter"),
            (_, Kind::Gauge | Kind::Info) => (&*self.sample, "gauge"),
            (_, Kind::Histogram) => (*name, "histogram"),
        };
        let _ = write!(self.text, "# HELP {named} ");
        // Only OpenMetrics has escaped quotes here.
        escape(&mut self.text, help, self.format == Format::OpenMetrics);
        self.text.push('\n');
        let _ = writeln!(self.text, "# TYPE {named} {kind}");
        if self.format == Format::OpenMetrics && !unit.is_empty() {
            let _ = writeln!(self.text, "# UNIT {named} {unit}");
        }
    }

    /// A sample of the family.
    pub fn sample(&mut self, labels: &[(&str, &str)], value: impl Display) {
        self.sample_of("", labels, value);
    }

    /// A sample of the family whose name has something behind it.
    fn sample_of(&mut self, suffix: &str, labels: &[(&str, &str)], value: impl Display) {
        self.text.push_str(&self.sample);
        self.text.push_str(suffix);
        for (place, (name, value)) in labels.iter().enumerate() {
            self.text.push(if place == 0 { '{' } else { ',' });
            self.text.push_str(name);
            self.text.push_str("=\"");
            escape(&mut self.text, value, true);
            self.text.push('"');
        }
        if !labels.is_empty() {
            self.text.push('}');
        }
        let _ = writeln!(self.text, " {value}");
    }

    /// The samples of a histogram: how many values are in each bucket, up to each bound and above the last one, and their sum.
    pub fn histogram(
        &mut self,
        labels: &[(&str, &str)],
        bounds: &[f64],
        buckets: &[u64],
        sum: f64,
    ) {
        let bound = |bound: &f64| match self.format {
            Format::Prometheus => bound.to_string(),
            // Its canonical numbers have a point or an exponent.
            Format::OpenMetrics => format!("{bound:?}"),
        };
        let bounds = bounds.iter().map(bound).chain(["+Inf".to_owned()]);
        let bounds: Vec<String> = bounds.collect();
        let mut count = 0;
        for (bound, bucket) in bounds.iter().zip(buckets) {
            count += bucket;
            let labels = [labels, &[("le", bound)]].concat();
            self.sample_of("_bucket", &labels, count);
        }
        self.sample_of("_sum", labels, sum);
        self.sample_of("_count", labels, count);
    }

    /// The whole text.
    pub fn finish(mut self) -> String {
        if self.format == Format::OpenMetrics {
            self.text.push_str("# EOF\n");
        }
        self.text
    }
}

fn escape(text: &mut String, raw: &str, quotes: bool) {
    for letter in raw.chars() {
        match letter {
            '\\' => text.push_str("\\\\"),
            '"' if quotes => text.push_str("\\\""),
            '\n' => text.push_str("\\n"),
            letter => text.push(letter),
        }
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn text(format: Format) -> String {
        let mut exposition = Exposition::new(format);
        exposition.family(&Family {
            name: "a_cpu_seconds",
            kind: Kind::Counter,
            unit: "seconds",
            help: "CPU time.",
        });
        exposition.sample(&[("name", "a\"b\\c\nd"), ("x", "")], 1.5);
        exposition.family(&Family {
            name: "a_depth",
            kind: Kind::Gauge,
            unit: "",
            help: "Depth.",
        });
        exposition.sample(&[], 7);
        exposition.family(&Family {
            name: "a_build",
            kind: Kind::Info,
            unit: "",
            help: "Build.",
        });
        exposition.sample(&[("version", "1")], 1);
        exposition.family(&Family {
            name: "a_took",
            kind: Kind::Histogram,
            unit: "",
            help: "A \"\\\".",
        });
        exposition.histogram(&[("x", "y")], &[0.5, 1.0], &[2, 0, 1], 5.25);
        exposition.finish()
    }

    #[test]
    fn both_formats_are_written_as_specified() {
        let expected = "# HELP a_cpu_seconds_total CPU time.\n# TYPE a_cpu_seconds_total counter\n\
            a_cpu_seconds_total{name=\"a\\\"b\\\\c\\nd\",x=\"\"} 1.5\n\
            # HELP a_depth Depth.\n# TYPE a_depth gauge\na_depth 7\n\
            # HELP a_build_info Build.\n# TYPE a_build_info gauge\na_build_info{version=\"1\"} 1\n\
            # HELP a_took A \"\\\\\".\n# TYPE a_took histogram\na_took_bucket{x=\"y\",le=\"0.5\"} 2\na_took_bucket{x=\"y\",le=\"1\"} 2\n\
            a_took_bucket{x=\"y\",le=\"+Inf\"} 3\na_took_sum{x=\"y\"} 5.25\na_took_count{x=\"y\"} 3\n";
        assert_eq!(text(Format::Prometheus), expected);
        let expected = "# HELP a_cpu_seconds CPU time.\n# TYPE a_cpu_seconds counter\n# UNIT a_cpu_seconds seconds\n\
            a_cpu_seconds_total{name=\"a\\\"b\\\\c\\nd\",x=\"\"} 1.5\n\
            # HELP a_depth Depth.\n# TYPE a_depth gauge\na_depth 7\n\
            # HELP a_build Build.\n# TYPE a_build info\na_build_info{version=\"1\"} 1\n\
            # HELP a_took A \\\"\\\\\\\".\n# TYPE a_took histogram\na_took_bucket{x=\"y\",le=\"0.5\"} 2\na_took_bucket{x=\"y\",le=\"1.0\"} 2\n\
            a_took_bucket{x=\"y\",le=\"+Inf\"} 3\na_took_sum{x=\"y\"} 5.25\na_took_count{x=\"y\"} 3\n# EOF\n";
        assert_eq!(text(Format::OpenMetrics), expected);
    }

    #[test]
    fn clients_get_what_they_accept() {
        use Format::{OpenMetrics, Prometheus};
        for (accept, format) in [
            ("", Prometheus),
            ("*/*", Prometheus),
            ("text/plain", Prometheus),
            ("application/openmetrics-text", OpenMetrics),
            ("application/openmetrics-text; version=1.0.0", OpenMetrics),
            ("application/openmetrics-text; version=2.0.0", Prometheus),
            // That of Prometheus 2 and of 3.
            (
                "application/openmetrics-text;version=1.0.0;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2",
                OpenMetrics,
            ),
            (
                "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.2",
                OpenMetrics,
            ),
            ("application/openmetrics-text;q=0.2, text/plain", Prometheus),
            ("application/openmetrics-text;q=0, */*;q=0", Prometheus),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT, HeaderValue::from_str(accept).expect("a value"));
            assert_eq!(Format::accepted(&headers), format, "{accept}");
        }
    }
}
