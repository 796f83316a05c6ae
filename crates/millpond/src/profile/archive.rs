//! Copies of a store's files in a bucket, and how commands read them.
//!
//! Objects are called as the files are: `PREFIX/HOST/20261124T000000.000Z+86400s.pb.gz`. A file is copied when it will not be joined to a longer one any
//! more, so that the bucket never has the same time twice, and nothing there needs to be deleted. An object is written at once, or not at all; one that is
//! written again is the same.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::{Context, anyhow};
use component::thread::{self, Work};
use component::{Diagnostics, Limit};
use config::{ConfigError, Node, Source};
use futures_util::{StreamExt, TryStreamExt};
use object_store::ObjectStoreExt;
use object_store::path::Path as Key;
use profiler::store::compaction::DAY_REST;
use profiler::store::name::{self, SliceName, nanoseconds};
use profiler::store::{Slice, Store};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Deserialize;
use stores::answers::reason;
use stores::{Bucket, Location, StoreSettings};
use tempfile::TempDir;

/// How long after a day its hours are joined for certain.
const REST: Duration = Duration::from_secs(2 * 3600);

const DAY_MS: i64 = 86_400_000;
const HOUR_NS: u64 = 3_600_000_000_000;

/// How many objects are read at once.
const TOGETHER: usize = 8;

/// A bucket that gets a copy of the store.
#[derive(Debug, Clone)]
pub struct ArchiveSettings {
    location: Location,
    store: StoreSettings,
    node: Node,
}

/// The settings that are not those of every store.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Own {
    /// The bucket: `s3://BUCKET/PREFIX`, `gs://BUCKET/PREFIX` or `az://CONTAINER/PREFIX`.
    url: String,
}

impl ArchiveSettings {
    /// Reads the settings `archive`.
    ///
    /// # Errors
    /// A setting cannot be used, with its place.
    pub fn of(node: &Node) -> Result<Self, ConfigError> {
        let (store, own) = StoreSettings::divide(node)?;
        let Own { url } = component::parse(&own)?;
        let location = Location::new(node.nearest("url"), &url)?;
        if let Location::Folder(_) = location {
            let error = node.nearest("url").error("expected the URL of a bucket");
            return Err(error.note("several machines may have one directory as their `store`"));
        }
        store.check(node, &location)?;
        Ok(Self {
            location,
            store,
            node: node.clone(),
        })
    }

    /// The bucket that a URL names, with what the environment says of it.
    fn of_url(url: &str) -> anyhow::Result<Self> {
        let node = config::parse_yaml(&Source::new(url, "{}"))?;
        let location = Location::new(&node, url).map_err(|error| anyhow!("{url}: {error}"))?;
        Ok(Self {
            location,
            store: StoreSettings::default(),
            node,
        })
    }

    fn open(&self) -> Result<Archive, ConfigError> {
        let client = self.store.client(&self.node, &self.location)?;
        let client = client.ok_or_else(|| self.node.error("expected the URL of a bucket"))?;
        Ok(Archive {
            bucket: client.bucket,
            location: self.location.clone(),
            known: HashSet::new(),
        })
    }
}

/// The schema of the settings, with those of every store.
pub fn schema(generator: &mut SchemaGenerator) -> Schema {
    component::beside(
        Own::json_schema(generator),
        StoreSettings::json_schema(generator),
    )
}

/// A bucket with copies.
struct Archive {
    bucket: Arc<dyn Bucket>,
    location: Location,
    /// Objects that are there, with their sizes.
    known: HashSet<(String, u64)>,
}

impl Archive {
    /// The objects that are files of a store, with host and name.
    async fn list(&self) -> anyhow::Result<Vec<(Key, u64, String, SliceName)>> {
        let prefix = self.location.key("");
        let key = Key::parse(&prefix).with_context(|| self.location.shown())?;
        let listed: Vec<_> = self
            .bucket
            .list(Some(&key))
            .try_collect()
            .await
            .map_err(|error| self.failed(&error, "listing"))?;
        let objects = listed.into_iter().filter_map(|meta| {
            let text = meta.location.to_string();
            let (folder, file) = text.strip_prefix(&prefix)?.split_once('/')?;
            let (host, name) = (name::host_of(folder)?, SliceName::parse(file)?);
            Some((meta.location, meta.size, host, name))
        });
        Ok(objects.collect())
    }

    /// Copies the files that are missing, of all hosts or of one.
    async fn copy(&mut self, store: &Store, host: Option<&str>) -> anyhow::Result<()> {
        let now_ns = nanoseconds(SystemTime::now());
        let hosts = match host {
            Some(host) => vec![host.to_owned()],
            None => store.hosts()?,
        };
        let mut missing = Vec::new();
        for host in hosts {
            let slices = store.slices_of(&host)?.into_iter();
            missing.extend(slices.filter_map(|slice| {
                let key = self.key(&slice)?;
                let is_known = self.known.contains(&(key.clone(), slice.bytes));
                (is_final(&slice, now_ns) && !is_known).then_some((key, slice))
            }));
        }
        if missing.is_empty() {
            return Ok(());
        }
        let listed = self.list().await?.into_iter();
        self.known
            .extend(listed.map(|(key, bytes, ..)| (key.to_string(), bytes)));
        let mut unread = None;
        for (key, slice) in missing {
            let known = (key, slice.bytes);
            if self.known.contains(&known) {
                continue;
            }
            let bytes = match fs::read(&slice.path) {
                Ok(bytes) => bytes,
                // It was deleted meanwhile, because it is old.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => {
                    unread.get_or_insert_with(|| {
                        anyhow!("cannot read {}: {error}", slice.path.display())
                    });
                    continue;
                }
            };
            let put = self.bucket.put(&Key::parse(&known.0)?, bytes.into()).await;
            put.map_err(|error| self.failed(&error, "writing"))?;
            self.known.insert(known);
        }
        unread.map_or(Ok(()), Err)
    }

    fn key(&self, slice: &Slice) -> Option<String> {
        let file = slice.path.file_name()?.to_str()?;
        let folder = name::folder_of(&slice.host);
        Some(self.location.key(&format!("{folder}/{file}")))
    }

    /// Reads what is of a range of time into a folder, as a store.
    async fn fetch(&self, range: &Range<i64>, folder: &Path) -> anyhow::Result<()> {
        let mut objects = self.list().await?;
        objects.retain(|(.., name)| {
            let window = name.window();
            window.start_ns < range.end && window.end_ns() > range.start
        });
        let fetched = objects.iter().map(async |(key, _, host, name)| {
            let got = self.bucket.get(key).await;
            let read = match got {
                Ok(found) => found.bytes().await,
                Err(error) => Err(error),
            };
            let bytes = read.map_err(|error| self.failed(&error, "reading"))?;
            let folder = folder.join(name::folder_of(host));
            fs::create_dir_all(&folder)?;
            fs::write(folder.join(name.to_string()), bytes).context("cannot store a copy")
        });
        let mut fetched = futures_util::stream::iter(fetched).buffer_unordered(TOGETHER);
        while let Some(result) = fetched.next().await {
            result?;
        }
        Ok(())
    }

    fn failed(&self, error: &object_store::Error, doing: &str) -> anyhow::Error {
        anyhow!("{}: {}", self.location.shown(), reason(error, doing))
    }
}

/// Whether a file will not be joined to a longer one any more.
fn is_final(slice: &Slice, now_ns: i64) -> bool {
    let last_ms = slice.window.end_ns() / 1_000_000 - 1;
    let day_ends_ms = (last_ms.div_euclid(DAY_MS) + 1) * DAY_MS;
    let rest_ms = (DAY_REST + REST).as_millis() as i64;
    slice.window.duration_ns >= HOUR_NS && day_ends_ms + rest_ms <= now_ns / 1_000_000
}

/// Copies a store to a bucket, on a thread of its own.
pub struct Archiving {
    store: Store,
    host: Option<String>,
    /// None while a thread has it.
    archive: Option<Archive>,
    copying: Option<Work<Archive>>,
}

impl Archiving {
    /// Makes ready.
    ///
    /// # Errors
    /// A setting cannot be used, with its place.
    pub fn new(
        settings: &ArchiveSettings,
        store: &Store,
        host: Option<&str>,
    ) -> Result<Self, ConfigError> {
        Ok(Self {
            archive: Some(settings.open()?),
            store: store.clone(),
            host: host.map(str::to_owned),
            copying: None,
        })
    }

    /// Begins to copy what is missing, unless the last time is not over.
    pub fn begin(&mut self, diagnostics: &Diagnostics) {
        if let Some(copying) = self.copying.take_if(|copying| copying.is_finished()) {
            // A panic there has been reported, and ended this.
            self.archive = copying.join().ok();
        }
        let Some(mut archive) = self.archive.take() else {
            return;
        };
        let (store, host) = (self.store.clone(), self.host.clone());
        let told = diagnostics.clone();
        let copy = move || {
            let copied = runtime()
                .and_then(|runtime| runtime.block_on(archive.copy(&store, host.as_deref())));
            if let Err(error) = copied {
                told.warn_limited(Limit::events("profile_archive"), || {
                    format!("profiles cannot be copied, which is tried again: {error:#}")
                });
            }
            archive
        };
        match thread::start("profile-archive", copy) {
            Ok(copying) => self.copying = Some(copying),
            Err(error) => diagnostics.warn_limited(Limit::events("profile_archive"), || {
                format!("profiles are no longer copied: cannot create a thread: {error}")
            }),
        }
    }
}

fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.context("the system refuses an event loop")
}

/// Whether a path is the URL of a bucket.
pub fn is_url(path: &Path) -> bool {
    path.to_str().is_some_and(|path| path.contains("://"))
}

/// The files of a bucket that are of a range of time, as a store that lives as long as the folder.
///
/// # Errors
/// The bucket cannot be read.
pub fn fetched(url: &Path, range: &Range<i64>) -> anyhow::Result<TempDir> {
    let url = url.to_string_lossy();
    let settings = ArchiveSettings::of_url(&url)?;
    let archive = settings.open().map_err(|error| anyhow!("{url}: {error}"))?;
    let folder = tempfile::tempdir().context("cannot create a directory for profiles")?;
    runtime()?.block_on(archive.fetch(range, folder.path()))?;
    Ok(folder)
}

#[cfg(test)]
mod tests {
    use profiler::collapsed;
    use profiler::profile::Window;
    use testkit::s3::S3;

    use super::*;

    #[test]
    fn what_may_still_be_joined_waits() {
        let day_ns = 86_400_000_000_000;
        let slice = |start_ns: i64, hours: u64| Slice {
            host: "h".into(),
            window: Window {
                start_ns,
                duration_ns: hours * HOUR_NS,
            },
            path: "/x".into(),
            bytes: 1,
            table: None,
        };
        let day = slice(10 * day_ns, 24);
        let (hour, minutes) = (
            slice(10 * day_ns + 7_200_000_000_000, 1),
            slice(10 * day_ns, 0),
        );
        for (now_ns, expected) in [
            (11 * day_ns, false),
            (12 * day_ns + 3_600_000_000_000, false),
            (12 * day_ns + 7_200_000_000_000, true),
        ] {
            assert_eq!(is_final(&day, now_ns), expected);
            assert_eq!(is_final(&hour, now_ns), expected);
            assert!(!is_final(&minutes, now_ns));
        }
    }

    #[test]
    fn settings_that_cannot_work_are_refused() {
        for (settings, said) in [
            ("url: /profiles", "expected the URL of a bucket"),
            ("url: ftp://lake", "not the scheme of a known store"),
            (
                "{url: 's3://lake', account: x}",
                "`account` is for az:// URLs",
            ),
            ("{url: 's3://lake', colour: red}", "colour"),
            ("region: x", "url"),
        ] {
            let node = config::parse_yaml(&Source::new("test.yaml", settings)).unwrap();
            let refused = ArchiveSettings::of(&node)
                .map(drop)
                .unwrap_err()
                .to_string();
            assert!(refused.contains(said), "{settings}: {refused}");
        }
    }

    #[test]
    fn a_bucket_holds_what_the_store_has() {
        let s3 = S3::new("lake");
        let server = s3.failing(1000);
        let node = testkit::s3::settings("lake", &server).replace(", ", "\n");
        let node = config::parse_yaml(&Source::new("test.yaml", &node)).unwrap();
        let settings = ArchiveSettings::of(&node).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let store = Store::at(folder.path());
        let start_ns = 1_790_035_200_000_000_000;
        for hour in 0..3 {
            let mut profile = collapsed::read("main;work 7\n", 20.0).unwrap();
            profile.window = Window {
                start_ns: start_ns + hour * HOUR_NS as i64,
                duration_ns: HOUR_NS,
            };
            store.write(&profile, "web 1").unwrap();
        }
        let mut archive = settings.open().unwrap();
        let runtime = runtime().unwrap();
        for _ in 0..2 {
            runtime.block_on(archive.copy(&store, None)).unwrap();
            archive.known.clear();
        }
        assert_eq!(runtime.block_on(archive.list()).unwrap().len(), 3);
        assert_eq!((s3.objects().len(), s3.overwritten()), (3, 0));
        let copy = tempfile::tempdir().unwrap();
        let range = start_ns..start_ns + HOUR_NS as i64;
        runtime
            .block_on(archive.fetch(&range, copy.path()))
            .unwrap();
        let slices = Store::at(copy.path())
            .slices(&(i64::MIN..i64::MAX))
            .unwrap();
        assert_eq!(slices.len(), 1);
        assert_eq!(slices[0].host, "web 1");
        let own = store.slices(&range).unwrap();
        assert_eq!(
            fs::read(&slices[0].path).unwrap(),
            fs::read(&own[0].path).unwrap()
        );
    }
}
