//! An object as a list shows it, and what a store may answer instead of it.

use object_store::ObjectMeta;

use crate::paths::meta::Meta;

/// An object as a list shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Listed {
    /// Its key in the bucket, or its path below the directory.
    pub(super) key: String,
    /// Its size in bytes.
    pub(super) size: u64,
    /// When it was written, in nanoseconds since 1970.
    pub(super) modified_ns: i64,
    /// What changes when it is written again: the ETag without its quotes; of a file its inode, its size and the time of its last write.
    pub(super) version: String,
    /// Whether the version is an ETag, which requests can ask for.
    pub(super) has_etag: bool,
}

/// What a store does not do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum StoreError {
    /// The object is not there any more.
    Gone,
    /// The object was written again.
    Changed,
    /// The store will not do it until somebody changes something: wrong credentials, no such bucket.
    Refused(String),
    /// It may work later.
    Failed(String),
    /// Something that is listed cannot be read; the list goes on behind it.
    LeftOut(String),
    /// It was time to stop.
    Stopped,
}

impl From<ObjectMeta> for Listed {
    fn from(meta: ObjectMeta) -> Self {
        let modified_ns = meta.last_modified.timestamp_nanos_opt().unwrap_or_default();
        // Lists of Azure have ETags without quotes.
        let etag = meta.e_tag.map(|etag| etag.trim_matches('"').to_owned());
        let etag = etag.filter(|etag| !etag.is_empty());
        Self {
            has_etag: etag.is_some(),
            version: etag.unwrap_or_else(|| format!("{}-{modified_ns}", meta.size)),
            key: meta.location.into(),
            size: meta.size,
            modified_ns,
        }
    }
}

/// The version of a file.
pub(super) fn version_of(meta: &Meta) -> String {
    format!("{}-{}-{}", meta.inode, meta.size, meta.modified_ns)
}

impl StoreError {
    /// What a person is told.
    pub(super) fn text(&self) -> &str {
        match self {
            Self::Gone => "it was deleted before it was read to its end",
            Self::Changed => "it was written again while it was read",
            Self::Refused(text) | Self::Failed(text) | Self::LeftOut(text) => text,
            Self::Stopped => "it was time to stop",
        }
    }
}
