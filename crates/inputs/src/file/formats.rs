//! How events are written in each file: as the setting says, or else as its name does.
//!
//! A name says so by its ending, behind which it may have what compression and rotation add: `a.json`, `a.csv.gz`,
//! `a.ndjson.1`, `a.csv-20260102.gz`, `a.json.old`. A file that is rotated to a name without that ending is read as text from its next
//! opening on, where no setting says otherwise.

use config::ConfigError;

use crate::reading::settings::Codec;

/// Which settings each file has.
#[derive(Debug, Clone)]
pub(crate) struct Formats {
    /// One for each of [`Kind`] where names decide; otherwise one for all files.
    all: Vec<codec::Settings>,
}

/// What a name says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text,
    Json,
    Csv,
    Tsv,
}

impl Formats {
    /// Makes the settings of a codec, with the character between fields, for each codec that is needed. `is_text` says that other settings make
    /// every file one of text, where `codec` does not say anything.
    ///
    /// # Errors
    /// What `settings` gives.
    pub(crate) fn new(
        codec: Option<Codec>,
        is_text: bool,
        settings: impl Fn(Codec, u8) -> Result<codec::Settings, ConfigError>,
    ) -> Result<Self, ConfigError> {
        let all = match codec {
            Some(codec) => vec![settings(codec, b',')?],
            None if is_text => vec![settings(Codec::Text, b',')?],
            None => {
                // In the order of `Kind`.
                let kinds = [
                    (Codec::Text, b','),
                    (Codec::Json, b','),
                    (Codec::Csv, b','),
                    (Codec::Csv, b'\t'),
                ];
                let made = kinds.map(|(codec, delimiter)| settings(codec, delimiter));
                made.into_iter().collect::<Result<_, _>>()?
            }
        };
        Ok(Self { all })
    }

    /// The number of a file's settings, by its path.
    pub(crate) fn index(&self, path: &str) -> usize {
        match self.all.len() {
            1 => 0,
            _ => Kind::of(path) as usize,
        }
    }

    /// A file's settings, by its path.
    pub(crate) fn of(&self, path: &str) -> &codec::Settings {
        &self.all[self.index(path)]
    }

    /// Makes something for each of the settings, in the order of their numbers.
    pub(crate) fn each<T>(&self, make: impl Fn(&codec::Settings) -> T) -> Vec<T> {
        self.all.iter().map(make).collect()
    }
}

/// Whether any of the paths may stand for a file whose name says that it is CSV. One with a wildcard or without a dot may stand for
/// many names.
pub(super) fn may_be_csv(paths: &[String]) -> bool {
    let may_be = |path: &String| {
        let name = path.rsplit('/').next().unwrap_or(path);
        let ending = name.rsplit_once('.').map(|(_, ending)| ending);
        let is_open = |ending: &str| ending.contains(['*', '?', '[', '{', '\\']);
        ending.is_none_or(is_open) || matches!(Kind::of(path), Kind::Csv | Kind::Tsv)
    };
    paths.iter().any(may_be)
}

impl Kind {
    fn of(path: &str) -> Self {
        let name = path.rsplit('/').next().unwrap_or(path).to_lowercase();
        let mut name = name.as_str();
        loop {
            let ending = name.rfind('.').map_or("", |dot| &name[dot + 1..]);
            // What logrotate puts behind an ending: `csv-20260102`.
            let is_number = |text: &str| {
                text.starts_with(|c: char| c.is_ascii_digit())
                    && text.bytes().all(|byte| {
                        byte.is_ascii_digit() || matches!(byte, b'-' | b'_' | b't' | b'z')
                    })
            };
            let plain = match ending.split_once(['-', '_']) {
                Some((plain, number)) if is_number(number) => plain,
                _ => ending,
            };
            match plain {
                "json" | "ndjson" | "jsonl" => return Self::Json,
                "csv" => return Self::Csv,
                "tsv" => return Self::Tsv,
                "gz" | "gzip" | "zst" | "zstd" | "old" | "bak" => {}
                number if is_number(number) => {}
                _ => return Self::Text,
            }
            name = &name[..name.len() - ending.len() - 1];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_what_is_in_a_file() {
        for (path, expected) in [
            ("/var/log/eve.json", Kind::Json),
            ("a.ndjson", Kind::Json),
            ("A.JSONL.GZ", Kind::Json),
            ("a.csv", Kind::Csv),
            ("a.csv.gz", Kind::Csv),
            ("a.csv.1", Kind::Csv),
            ("a.csv.2.gz", Kind::Csv),
            ("a.csv-20260102", Kind::Csv),
            ("a.csv-20260102.zst", Kind::Csv),
            ("a.csv.2026-01-02t03-04-05z.gz", Kind::Csv),
            ("a-20260102.csv", Kind::Csv),
            ("a.csv.old", Kind::Csv),
            ("a.tsv", Kind::Tsv),
            ("a.log", Kind::Text),
            ("a.json.log", Kind::Text),
            ("container-json.log", Kind::Text),
            ("/data.csv/a", Kind::Text),
            ("json", Kind::Text),
            ("a.1", Kind::Text),
            (".csv", Kind::Csv),
            ("a.gz", Kind::Text),
            ("", Kind::Text),
        ] {
            assert_eq!(Kind::of(path), expected, "{path}");
        }
    }
}
