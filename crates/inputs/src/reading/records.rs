//! The settings that say how bytes become records and events, and what codecs make of them.

use std::sync::Arc;

use batch::Encoding;
use codec::syslog::{self, Syslog};
use codec::{ContainerFormat, Csv, LineEnding, Multiline, MultilineConfig, MultilineError};
use config::{ConfigError, Node, Size};
use datetime::Zone;
use regex::bytes::RegexSet;

use super::settings::{Codec, CsvSettings, LINE_SIZE_MAX};

/// The settings.
#[derive(Debug, Default)]
pub(crate) struct Records<'c> {
    pub(crate) codec: Codec,
    pub(crate) add_fields: bool,
    pub(crate) max_line_bytes: Size,
    pub(crate) encoding: Option<&'c str>,
    pub(crate) line_ending: LineEnding,
    pub(crate) container: Option<ContainerFormat>,
    pub(crate) multiline: Option<&'c MultilineConfig>,
    pub(crate) include_lines: &'c [String],
    pub(crate) exclude_lines: &'c [String],
    pub(crate) timezone: Option<&'c str>,
    pub(crate) csv: Option<&'c CsvSettings>,
    /// The character between the fields of CSV where the settings do not say.
    pub(crate) delimiter: u8,
}

impl Records<'_> {
    /// What codecs make of them.
    ///
    /// # Errors
    /// A setting that cannot be taken, with its place.
    pub(crate) fn settings(&self, node: &Node) -> Result<codec::Settings, ConfigError> {
        if self.max_line_bytes < Size(1) || self.max_line_bytes > LINE_SIZE_MAX {
            let message = format!("`max_line_bytes` must be between 1B and {LINE_SIZE_MAX}");
            return Err(node.nearest("max_line_bytes").error(message));
        }
        self.check(node)?;
        let encoding = match self.codec {
            Codec::Text | Codec::Syslog | Codec::Csv => Encoding::Text,
            Codec::Json | Codec::Ndjson => Encoding::Json,
            Codec::Msgpack => Encoding::MsgPack,
        };
        let mut settings = codec::Settings::new(encoding, self.max_line_bytes.bytes());
        settings.add_fields = self.add_fields;
        settings.charset = self.charset(node)?;
        settings.line_ending = self.line_ending;
        settings.container = self.container;
        settings.multiline = self
            .multiline
            .map(|multiline| read_multiline(node, multiline))
            .transpose()?;
        settings.include_lines = patterns(node, "include_lines", self.include_lines)?;
        settings.exclude_lines = patterns(node, "exclude_lines", self.exclude_lines)?;
        settings.syslog = self.syslog(node)?;
        settings.csv = self.csv(node)?;
        Ok(settings)
    }

    /// Refuses settings that mean nothing together.
    fn check(&self, node: &Node) -> Result<(), ConfigError> {
        let lines_only = [
            ("multiline", self.multiline.is_some()),
            ("container", self.container.is_some()),
            ("encoding", self.encoding.is_some()),
            ("include_lines", !self.include_lines.is_empty()),
            ("exclude_lines", !self.exclude_lines.is_empty()),
        ];
        for (setting, is_set) in lines_only {
            if is_set && self.codec == Codec::Msgpack {
                let message =
                    format!("`{setting}` applies to lines, and `codec: msgpack` has none");
                return Err(node.nearest(setting).error(message));
            }
        }
        for (setting, is_set) in [
            ("multiline", self.multiline.is_some()),
            ("container", self.container.is_some()),
        ] {
            if is_set && self.codec == Codec::Csv {
                let message = format!("`{setting}` and `codec: csv` mean nothing together");
                return Err(node.nearest(setting).error(message));
            }
        }
        if self.timezone.is_some() && self.codec != Codec::Syslog {
            let message = "`timezone` requires `codec: syslog`";
            return Err(node.nearest("timezone").error(message));
        }
        Ok(())
    }

    fn charset(&self, node: &Node) -> Result<Option<&'static encoding_rs::Encoding>, ConfigError> {
        let Some(label) = self.encoding else {
            return Ok(None);
        };
        let known = codec::charset(label);
        known.map(Some).ok_or_else(|| {
            let error = node
                .nearest("encoding")
                .error(format!("`{label}` is not a character encoding"));
            error.accepted([
                "utf-8",
                "utf-16",
                "utf-16le",
                "utf-16be",
                "windows-1252",
                "iso-8859-1",
                "shift_jis",
                "gb18030",
                "any other label of the WHATWG Encoding Standard",
            ])
        })
    }

    fn syslog(&self, node: &Node) -> Result<Option<Syslog>, ConfigError> {
        if self.codec != Codec::Syslog {
            return Ok(None);
        }
        let zone = match self.timezone {
            None => Zone::of_host(),
            Some(name) => Zone::named(name)
                .ok_or_else(|| config::no_zone(node.nearest("timezone"), name, &[]))?,
        };
        Ok(Some(Syslog::new(syslog::Format::Auto, zone)))
    }
}

impl Records<'_> {
    fn csv(&self, node: &Node) -> Result<Option<Csv>, ConfigError> {
        if self.codec != Codec::Csv {
            return match self.csv {
                Some(_) => Err(node.nearest("csv").error("`csv` is for `codec: csv`")),
                None => Ok(None),
            };
        }
        let set = self.csv.cloned().unwrap_or_default();
        let delimiter = match set.delimiter.as_deref() {
            None => self.delimiter,
            Some(text) => codec::csv_delimiter(text).ok_or_else(|| {
                let place = node.nearest("csv.delimiter");
                place.error("the delimiter is one ASCII character, or `tab`")
            })?,
        };
        Ok(Some(Csv::new(delimiter, &set.columns)))
    }
}

fn read_multiline(node: &Node, config: &MultilineConfig) -> Result<Arc<Multiline>, ConfigError> {
    let read = Multiline::new(config).map_err(|error| {
        let place = match &error {
            MultilineError::Regex { setting, .. } | MultilineError::Mixed(setting) => {
                format!("multiline.{setting}")
            }
            MultilineError::EndOnly => "multiline.end".to_owned(),
            MultilineError::NoLines => "multiline.max_lines".to_owned(),
            MultilineError::NoPattern => "multiline".to_owned(),
        };
        node.nearest(&place).error(error.to_string())
    })?;
    Ok(Arc::new(read))
}

fn patterns(
    node: &Node,
    setting: &str,
    patterns: &[String],
) -> Result<Option<RegexSet>, ConfigError> {
    for (index, pattern) in patterns.iter().enumerate() {
        if let Err(error) = regex::bytes::Regex::new(pattern) {
            return Err(node
                .nearest(&format!("{setting}[{index}]"))
                .error(format!("invalid regular expression: {error}")));
        }
    }
    if patterns.is_empty() {
        return Ok(None);
    }
    let set = RegexSet::new(patterns).map_err(|error| {
        let message = format!("the expressions together are too large: {error}");
        node.nearest(setting).error(message)
    })?;
    Ok(Some(set))
}
