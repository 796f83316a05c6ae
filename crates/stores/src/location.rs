//! Where objects are: the `url` setting.

use std::path::PathBuf;

use config::{ConfigError, Node, expand_home};

/// What kind of store it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreKind {
    /// Amazon S3, or a server with its interface.
    S3,
    /// Google Cloud Storage.
    Google,
    /// Azure Blob Storage.
    Azure,
}

/// Where objects are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Location {
    /// A directory of the file system.
    Folder(PathBuf),
    /// A bucket, or what the store calls so.
    Bucket {
        /// Its store.
        kind: StoreKind,
        /// Its name.
        bucket: String,
        /// What the names of all objects begin with, without a slash at its end; may be empty.
        prefix: String,
    },
}

/// What a URL begins with.
const SCHEMES: &[(&str, StoreKind)] = &[
    ("s3", StoreKind::S3),
    ("s3a", StoreKind::S3),
    ("gs", StoreKind::Google),
    ("az", StoreKind::Azure),
    ("azure", StoreKind::Azure),
];

impl Location {
    /// Reads the `url` setting, which stands at `at`.
    ///
    /// # Errors
    /// It names no store, with its place.
    pub fn new(at: &Node, url: &str) -> Result<Self, ConfigError> {
        let Some((scheme, rest)) = url.split_once("://") else {
            let is_path = url.starts_with(['/', '.', '~']);
            if !is_path {
                let error = at.error("expected a URL");
                return Err(error.note(
                    "use s3://BUCKET/PREFIX, gs://BUCKET/PREFIX, az://CONTAINER/PREFIX, or the path of a directory: /PATH or ./PATH",
                ));
            }
            let path = expand_home(url).map_err(|error| at.error(error.to_string()))?;
            return Ok(Self::Folder(path.into()));
        };
        if scheme == "file" {
            return match rest.starts_with('/') {
                true => Ok(Self::Folder(rest.into())),
                false => {
                    Err(at
                        .error("a `file` URL has three slashes and an absolute path: file:///PATH"))
                }
            };
        }
        let known = SCHEMES.iter().find(|(name, _)| *name == scheme);
        let Some((_, kind)) = known else {
            let error = at.error(format!("`{scheme}` is not the scheme of a known store"));
            return Err(error.note("use s3://, gs://, az:// or file:///"));
        };
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        if bucket.is_empty() || bucket.contains(['@', ':', '?', '#']) {
            let error = at.error("the URL names no bucket");
            return Err(error.note(format!(
                "use {scheme}://BUCKET/PREFIX; a server of your own is set with `endpoint`"
            )));
        }
        Ok(Self::Bucket {
            kind: *kind,
            bucket: bucket.to_owned(),
            prefix: prefix.trim_matches('/').to_owned(),
        })
    }

    /// The location for messages.
    pub fn shown(&self) -> String {
        match self {
            Self::Folder(path) => path.display().to_string(),
            Self::Bucket { kind, bucket, .. } => format!("{}://{bucket}", kind.scheme()),
        }
    }

    /// The name of an object in its bucket or directory.
    pub fn key(&self, name: &str) -> String {
        match self {
            Self::Bucket { prefix, .. } if !prefix.is_empty() => format!("{prefix}/{name}"),
            _ => name.to_owned(),
        }
    }
}

impl StoreKind {
    /// The scheme of its URLs.
    pub fn scheme(self) -> &'static str {
        match self {
            Self::S3 => "s3",
            Self::Google => "gs",
            Self::Azure => "az",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::{Source, parse_yaml};

    fn read(url: &str) -> Result<Location, ConfigError> {
        let node = parse_yaml(&Source::new("test.yaml", "url: x")).expect("it parses");
        Location::new(node.nearest("url"), url)
    }

    #[test]
    fn urls_name_stores() {
        let bucket = |kind, prefix: &str| Location::Bucket {
            kind,
            bucket: "lake".to_owned(),
            prefix: prefix.to_owned(),
        };
        for (url, expected) in [
            ("s3://lake", bucket(StoreKind::S3, "")),
            ("s3a://lake/", bucket(StoreKind::S3, "")),
            ("gs://lake/a/b/", bucket(StoreKind::Google, "a/b")),
            ("az://lake/a", bucket(StoreKind::Azure, "a")),
            ("file:///tmp/lake", Location::Folder("/tmp/lake".into())),
            ("./lake", Location::Folder("./lake".into())),
        ] {
            assert_eq!(read(url).expect(url), expected, "{url}");
        }
        for url in [
            "lake",
            "ftp://lake",
            "s3:///a",
            "s3://user:secret@lake",
            "file://tmp/lake",
        ] {
            assert!(read(url).is_err(), "{url}");
        }
    }

    #[test]
    fn a_key_begins_with_the_prefix() {
        let location = read("s3://lake/logs/").expect("a location");
        assert_eq!(location.key("a/b.parquet"), "logs/a/b.parquet");
        let location = read("s3://lake").expect("a location");
        assert_eq!(location.key("a/b.parquet"), "a/b.parquet");
    }
}
