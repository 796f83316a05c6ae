//! A store, and objects that are sent to it in parts.

use std::sync::Arc;

use bytes::Bytes;
use component::WriteError;
use object_store::multipart::PartId;
use object_store::path::Path;
use object_store::{Error, MultipartId, ObjectStoreExt, PutPayload};
use stores::Bucket;
use stores::answers::reason;

use super::folder::{Folder, Growing};

/// Where objects are put.
pub enum Store {
    /// A directory.
    Folder(Folder),
    /// A bucket; with its name for messages.
    Bucket(Arc<dyn Bucket>, String),
}

/// An object whose parts are being sent.
pub enum Parts {
    /// To a directory.
    Folder(Growing),
    /// To a bucket.
    Bucket {
        /// What the store calls it.
        id: MultipartId,
        /// What the store said of the parts before.
        parts: Vec<PartId>,
        /// Their length.
        bytes: u64,
    },
}

impl Store {
    /// Looks whether objects can be put there, such as one with this key. Leaves nothing behind.
    ///
    /// # Errors
    /// They cannot now; the same for the other functions.
    pub async fn check(&self, key: &str) -> Result<(), WriteError> {
        match self {
            Self::Folder(folder) => folder.check(),
            Self::Bucket(bucket, shown) => {
                let path = path_of(key);
                let id = bucket.create_multipart(&path).await;
                let id = id.map_err(|error| failed(shown, &error))?;
                let aborted = bucket.abort_multipart(&path, &id).await;
                aborted.map_err(|error| failed(shown, &error))
            }
        }
    }

    /// Puts a whole object.
    pub async fn put(&self, key: &str, bytes: Bytes) -> Result<(), WriteError> {
        match self {
            Self::Folder(folder) => {
                let mut object = folder.begin(key)?;
                object.write(&bytes)?;
                object.complete()
            }
            Self::Bucket(bucket, shown) => {
                let put = bucket.put(&path_of(key), PutPayload::from(bytes)).await;
                put.map(drop).map_err(|error| failed(shown, &error))
            }
        }
    }

    /// Begins an object of several parts.
    pub async fn begin(&self, key: &str) -> Result<Parts, WriteError> {
        match self {
            Self::Folder(folder) => folder.begin(key).map(Parts::Folder),
            Self::Bucket(bucket, shown) => {
                let id = bucket.create_multipart(&path_of(key)).await;
                Ok(Parts::Bucket {
                    id: id.map_err(|error| failed(shown, &error))?,
                    parts: Vec::new(),
                    bytes: 0,
                })
            }
        }
    }

    /// Sends the next part.
    pub async fn send(&self, key: &str, to: &mut Parts, part: &Bytes) -> Result<(), WriteError> {
        match (self, to) {
            (Self::Bucket(bucket, shown), Parts::Bucket { id, parts, bytes }) => {
                let payload = PutPayload::from(part.clone());
                let path = path_of(key);
                let sent = bucket.put_part(&path, id, parts.len(), payload).await;
                parts.push(sent.map_err(|error| lost_parts(shown, &error))?);
                *bytes += part.len() as u64;
                Ok(())
            }
            (_, Parts::Folder(object)) => object.write(part),
            (Self::Folder(_), Parts::Bucket { .. }) => unreachable!("parts go where they began"),
        }
    }

    /// Makes an object of the parts.
    pub async fn complete(&self, key: &str, of: &mut Parts) -> Result<(), WriteError> {
        match (self, of) {
            (Self::Bucket(bucket, shown), Parts::Bucket { id, parts, bytes }) => {
                let path = path_of(key);
                let completed = bucket.complete_multipart(&path, id, parts.clone()).await;
                let Err(error) = completed else { return Ok(()) };
                // The answer to an earlier attempt may have been lost.
                match bucket.head(&path).await {
                    Ok(there) if there.size == *bytes => Ok(()),
                    _ => Err(lost_parts(shown, &error)),
                }
            }
            (_, Parts::Folder(object)) => object.complete(),
            (Self::Folder(_), Parts::Bucket { .. }) => unreachable!("parts go where they began"),
        }
    }

    /// Forgets the parts. What cannot be removed, the store removes by its own rules.
    pub async fn abort(&self, key: &str, parts: Parts) {
        if let (Self::Bucket(bucket, _), Parts::Bucket { id, .. }) = (self, parts) {
            let _ = bucket.abort_multipart(&path_of(key), &id).await;
        }
    }
}

/// The key as a path, byte for byte, so that objects are found under the names that they were given.
fn path_of(key: &str) -> Path {
    Path::parse(key).unwrap_or_else(|_| Path::from(key))
}

/// As [`failed`], for an object whose parts the store no longer knows.
fn lost_parts(shown: &str, error: &Error) -> WriteError {
    match error {
        // As S3 says it; anything else may be a proxy on the way.
        Error::NotFound { .. } if error.to_string().contains("NoSuchUpload") => {
            WriteError::Fatal(format!(
                "{shown}: the store has dropped the parts of an object before it was complete: {}",
                reason(error, "writing")
            ))
        }
        _ => failed(shown, error),
    }
}

fn failed(shown: &str, error: &Error) -> WriteError {
    let text = format!("{shown}: {}", reason(error, "writing"));
    match error {
        Error::PermissionDenied { .. }
        | Error::Unauthenticated { .. }
        | Error::NotFound { .. }
        | Error::NotSupported { .. }
        | Error::InvalidPath { .. } => WriteError::Blocked(text),
        _ => WriteError::Retry(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_stay_as_they_are() {
        for key in ["pre~fix/a", "\u{f6}ut/team{a} 1/%2e.ndjson.gz", "a=b/c+d&e"] {
            assert_eq!(path_of(key).as_ref(), key);
        }
    }
}
