//! A store that objects are read from.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use object_store::path::Path;
use object_store::{Error, ObjectMeta, ObjectStoreExt};
use stores::answers::reason;
use stores::{Bucket, Location};

use super::listed::{Listed, StoreError, version_of};
use super::walk::Walk;
use crate::paths::meta::Meta;
use crate::reading::describe::describe;

/// A store that objects are read from.
#[derive(Clone)]
pub(super) enum SourceStore {
    /// A directory.
    Folder(Arc<PathBuf>),
    /// A bucket.
    Bucket(Arc<dyn Bucket>, Arc<Location>),
}

/// A list of objects that is being read, in the order of their keys.
pub(super) enum Listing {
    Folder(Walk),
    Bucket(BoxStream<'static, object_store::Result<ObjectMeta>>, String),
}

impl SourceStore {
    /// The key of an object, as people see it and as events call it.
    pub(super) fn shown(&self, key: &str) -> String {
        match self {
            Self::Folder(root) => root.join(key).to_string_lossy().into_owned(),
            Self::Bucket(_, location) => format!("{}/{key}", location.shown()),
        }
    }

    /// What stands behind the prefix in a key.
    pub(super) fn name<'k>(&self, key: &'k str) -> &'k str {
        match self {
            Self::Bucket(_, location) => key.strip_prefix(&*location.key("")).unwrap_or(key),
            Self::Folder(_) => key,
        }
    }

    /// The key of a name behind the prefix.
    pub(super) fn key(&self, name: &str) -> String {
        match self {
            Self::Bucket(_, location) => location.key(name),
            Self::Folder(_) => name.to_owned(),
        }
    }

    /// Begins to list objects, those behind the key `after`.
    ///
    /// # Errors
    /// It cannot be listed.
    pub(super) fn list(&self, after: Option<&str>) -> Result<Listing, StoreError> {
        match self {
            Self::Folder(root) => {
                let walk = Walk::new(root.as_ref().clone(), after.map(str::to_owned))?;
                Ok(Listing::Folder(walk))
            }
            Self::Bucket(bucket, location) => {
                let unusable = |error: object_store::path::Error| {
                    StoreError::Refused(format!("{}: {error}", location.shown()))
                };
                let prefix = Path::parse(location.key("")).map_err(unusable)?;
                let listed = match after {
                    Some(after) => {
                        let after = Path::parse(after).map_err(unusable)?;
                        bucket.list_with_offset(Some(&prefix), &after)
                    }
                    None => bucket.list(Some(&prefix)),
                };
                Ok(Listing::Bucket(listed, location.shown()))
            }
        }
    }

    /// Deletes an object, unless it was written again since it was listed. One that is gone already is no error.
    ///
    /// # Errors
    /// It was written again, or the store does not do it.
    pub(super) async fn delete(&self, listed: &Listed) -> Result<(), StoreError> {
        match self {
            Self::Folder(root) => {
                let path = root.join(&listed.key);
                // Between this look and the deletion nothing may be written; that is as close as it gets.
                let gone_or = |error: io::Error| match error.kind() {
                    io::ErrorKind::NotFound => Ok(()),
                    _ => Err(StoreError::Failed(describe(&error))),
                };
                match Meta::of(&path) {
                    Ok(meta) if version_of(&meta) != listed.version => Err(StoreError::Changed),
                    Ok(_) => fs::remove_file(&path).or_else(gone_or),
                    Err(error) => gone_or(error),
                }
            }
            Self::Bucket(bucket, location) => {
                let path = Path::parse(&listed.key);
                let path = path.map_err(|error| StoreError::Refused(error.to_string()))?;
                let gone_or = |error: Error| match of_object(&error, &location.shown()) {
                    StoreError::Gone => Ok(()),
                    other => Err(other),
                };
                match bucket.head(&path).await.map(Listed::from) {
                    Ok(found) if found.version != listed.version => Err(StoreError::Changed),
                    Ok(_) => bucket.delete(&path).await.or_else(gone_or),
                    Err(error) => gone_or(error),
                }
            }
        }
    }
}

impl Listing {
    /// The next object; none at the end.
    pub(super) async fn next(&mut self) -> Option<Result<Listed, StoreError>> {
        match self {
            Self::Folder(walk) => walk.next(),
            Self::Bucket(listed, shown) => {
                let next = listed.next().await?;
                Some(next.map(Listed::from).map_err(|error| match error {
                    Error::NotFound { .. } => {
                        StoreError::Refused(format!("{shown}: {}", reason(&error, "listing")))
                    }
                    error => of_object(&error, shown),
                }))
            }
        }
    }
}

/// What the answer to a request for an object means.
pub(super) fn of_object(error: &Error, shown: &str) -> StoreError {
    match error {
        Error::NotFound { .. } => StoreError::Gone,
        Error::Precondition { .. } | Error::NotModified { .. } => StoreError::Changed,
        Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => {
            StoreError::Refused(format!("{shown}: {}", reason(error, "it")))
        }
        _ => StoreError::Failed(format!("{shown}: {}", reason(error, "it"))),
    }
}
