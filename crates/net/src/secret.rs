//! Passwords, tokens and other settings that are never printed.
//!
//! A secret is the text of the setting, which `${VAR}` fills from the environment like any other setting, or the content of
//! a file. A file is read when the secret is used, and again when the file has changed, so that a rotated password needs no
//! restart. Neither `Debug` nor `Serialize` shows it; there is no `Display`.
//!
//! Limit: a secret that is written out in the configuration itself can be seen by whoever sees the configuration, and in the
//! line that an error of a setting beside it quotes.

use std::borrow::Cow;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Deserializer, Error as _};
use serde::{Deserialize, Serialize, Serializer};

use crate::stamp::Stamp;

/// What stands for a secret where it would be shown.
pub(crate) const HIDDEN: &str = "[secret]";

/// A secret in a file is no longer than this: a wrong path shall not read a disk.
const BYTES_MAX: u64 = 64 * 1024;

/// A setting that is never printed. Clones share what was read.
#[derive(Clone)]
pub struct Secret(Source);

#[derive(Clone)]
enum Source {
    Text(Arc<str>),
    File(Arc<SecretFile>),
}

struct SecretFile {
    path: PathBuf,
    read: Mutex<Option<(Stamp, Arc<str>)>>,
}

/// Why a secret cannot be read. Does not hold it.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// The file cannot be read.
    #[error("cannot read the secret in {}: {source}", .path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file is too long to be a secret.
    #[error("{} is too long for a secret: at most 64 KiB are allowed", .0.display())]
    TooLong(PathBuf),
    /// The file holds something else than text.
    #[error("the secret in {} is not valid UTF-8", .0.display())]
    NotText(PathBuf),
}

impl Secret {
    /// The secret of a setting: the text itself, or the file that it names after `file:`.
    pub fn new(setting: &str) -> Self {
        Self(match setting.strip_prefix("file:") {
            Some(path) => Source::File(Arc::new(SecretFile {
                path: path.into(),
                read: Mutex::new(None),
            })),
            None => Source::Text(setting.into()),
        })
    }

    /// The secret itself. Must not get into messages.
    ///
    /// # Errors
    /// Its file cannot be read.
    pub fn reveal(&self) -> Result<Arc<str>, SecretError> {
        match &self.0 {
            Source::Text(text) => Ok(text.clone()),
            Source::File(file) => file.reveal(),
        }
    }
}

impl SecretFile {
    fn reveal(&self) -> Result<Arc<str>, SecretError> {
        let unreadable = |source| SecretError::Unreadable {
            path: self.path.clone(),
            source,
        };
        let mut read = self.read.lock();
        // Looked at before it is read: a file that changes in between is read again next time.
        let stamp = Stamp::of(&self.path).map_err(unreadable)?;
        if let Some((known, secret)) = &*read
            && *known == stamp
        {
            return Ok(secret.clone());
        }
        let secret = self.content().map_err(unreadable)?;
        if secret.len() as u64 > BYTES_MAX {
            return Err(SecretError::TooLong(self.path.clone()));
        }
        let secret = String::from_utf8(secret);
        let secret = secret.map_err(|_| SecretError::NotText(self.path.clone()))?;
        let secret: Arc<str> = without_newline(&secret).into();
        *read = Some((stamp, secret.clone()));
        Ok(secret)
    }

    fn content(&self) -> io::Result<Vec<u8>> {
        let mut content = Vec::new();
        let file = File::open(Path::new(&self.path))?;
        file.take(BYTES_MAX + 1).read_to_end(&mut content)?;
        Ok(content)
    }
}

/// The text without the newline that editors and `echo` put at its end.
fn without_newline(text: &str) -> &str {
    let text = text.strip_suffix('\n').unwrap_or(text);
    text.strip_suffix('\r').unwrap_or(text)
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(HIDDEN)
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(HIDDEN)
    }
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let setting = String::deserialize(deserializer)?;
        let Some(path) = setting.strip_prefix("file:") else {
            return Ok(Self::new(&setting));
        };
        let path = config::expand_home(path).map_err(D::Error::custom)?;
        Ok(Self::new(&format!("file:{path}")))
    }
}

impl JsonSchema for Secret {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Secret".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "format": "password",
            "description": "A secret: `${VARIABLE}` reads it from the environment, `file:PATH` from a file, without the trailing newline. It is never printed.",
            "examples": ["${PASSWORD}", "file:/run/secrets/password"],
        })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_secret_comes_from_its_text_or_its_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("password");
        for (content, secret) in [
            ("hunter2\n", "hunter2"),
            ("two\n\n", "two\n"),
            ("windows\r\n", "windows"),
            (" spaces ", " spaces "),
            ("", ""),
        ] {
            fs::write(&path, content).expect("written");
            let file = Secret::new(&format!("file:{}", path.display()));
            assert_eq!(&*file.reveal().expect("readable"), secret, "{content:?}");
        }
        assert_eq!(&*Secret::new("plain").reveal().expect("there"), "plain");
    }

    #[test]
    fn a_changed_file_is_read_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("token");
        fs::write(&path, "first").expect("written");
        let secret = Secret::new(&format!("file:{}", path.display()));
        assert_eq!(&*secret.reveal().expect("readable"), "first");
        fs::write(folder.path().join("next"), "second").expect("written");
        fs::rename(folder.path().join("next"), &path).expect("replaced");
        assert_eq!(&*secret.reveal().expect("readable"), "second");
        fs::remove_file(&path).expect("removed");
        let error = secret.reveal().expect_err("it is gone").to_string();
        assert!(error.contains("token"), "{error}");
    }

    #[test]
    fn what_is_no_secret_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("big");
        let secret = Secret::new(&format!("file:{}", path.display()));
        fs::write(&path, vec![b'x'; 70_000]).expect("written");
        assert!(matches!(secret.reveal(), Err(SecretError::TooLong(_))));
        fs::write(&path, [0xff, 0xfe]).expect("written");
        assert!(matches!(secret.reveal(), Err(SecretError::NotText(_))));
    }

    #[test]
    fn it_is_never_shown() {
        for setting in ["hunter2", "file:/hunter2"] {
            let secret: Secret =
                serde_json::from_value(serde_json::json!(setting)).expect("a secret");
            let shown = format!("{secret:?} {:?}", Some(&secret));
            let json = serde_json::to_string(&secret).expect("JSON");
            assert!(!shown.contains("hunter2"), "{shown}");
            assert_eq!(json, r#""[secret]""#);
        }
    }
}
