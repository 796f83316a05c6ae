//! `object_store` reads objects of S3, Google Cloud Storage, Azure Blob Storage or a directory, each event delivered once.
//!
//! | module | holds |
//! | --- | --- |
//! | [`settings`] | the settings, but for those of the store, which the crate `stores` has |
//! | [`store`], [`walk`], [`listed`] | a store; a directory as one; what they list |
//! | [`lister`] | lists objects: which are new, which are done with |
//! | [`known`] | what is known of objects, in memory and in the registry |
//! | [`pool`] | the objects that wait |
//! | [`source`], [`reader`] | the bytes of an object; one being read, from where an earlier run was |
//! | [`shared`] | what the threads share; saves positions, deletes objects |
//!
//! # Threads
//! One lists objects, `concurrency` threads read one object each, one saves positions four times a second and deletes objects.
//!
//! # Ids
//! An object is one version of what a key names. Its id is made of the name of the input, the key and the version (the ETag), so that a later run, or
//! one without a registry, gives its events the same ids. The bytes of a version never change, and so a position needs no check but its number. The
//! position is kept as that of a file is: see [`crate::file::state`] and [`crate::file::acknowledge`].

mod known;
mod listed;
mod lister;
mod pool;
mod reader;
mod settings;
mod shared;
mod source;
mod store;
mod walk;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use component::activity::carry;
use component::thread::Work;
use component::{
    Build, BuildContext, Effects, Example, Input, InputContext, InputError, Spec, thread,
};
use config::{ConfigError, Node, Positional, setting_names};
use parking_lot::Mutex;
use schemars::JsonSchema;
use stores::{Location, StoreSettings};

use crate::error::RunError;
use crate::file::acknowledge::{Dirty, SENT_MAX, Sent, acknowledge};
use crate::file::content_settings::ContentSettings;
use crate::file::formats::Formats;
use crate::file::readers::Sending;
use crate::paths::Exclusion;
use crate::reading::settings::Compression;
use known::KnownObjects;
use lister::{Choice, Lister};
use pool::ObjectPool;
use reader::ObjectReader;
use settings::{CONCURRENCY_MAX, Config};
use shared::Shared;
use store::SourceStore;

/// The component.
pub const SPEC: Spec = Spec {
    name: "object_store",
    aliases: &[],
    summary: "Reads objects of S3, Google Cloud Storage, Azure Blob Storage or a directory, plain or compressed (gzip, zstd).",
    description: include_str!("description.md"),
    positional: Positional::fields(&["url"]),
    one_line: &[("follow", "false")],
    examples: &[
        Example {
            title: "All objects below a prefix, whose names say what is in them",
            stage: "object_store s3://my-bucket/logs region=eu-central-1",
            input: "",
            output: "",
        },
        Example {
            title: "New objects as they appear, deleted when their events are delivered",
            stage: "object_store s3://my-bucket/logs match=*.ndjson.gz follow=true scan_interval=30s delete_after=0s",
            input: "",
            output: "",
        },
        Example {
            title: "Names that begin with a date, from a day on",
            stage: "object_store gs://my-bucket/logs ordered=true start_after=2026/11/01 follow=true",
            input: "",
            output: "",
        },
        Example {
            title: "A server of your own with the interface of S3",
            stage: "object_store s3://logs endpoint=http://minio:9000 access_key_id=shipper secret_access_key=file:/etc/millpond/minio.key",
            input: "",
            output: "",
        },
    ],
    schema: |generator| {
        let own = Config::json_schema(generator);
        let own = component::beside(own, ContentSettings::json_schema(generator));
        component::beside(own, StoreSettings::json_schema(generator))
    },
    build: Build::Input(build),
};

fn build(node: &Node, context: &BuildContext) -> Result<Box<dyn Input>, ConfigError> {
    let (of_store, own) = StoreSettings::divide(node)?;
    let (content, own) = ContentSettings::divide(&own)?;
    let names = [
        setting_names::<StoreSettings>(),
        setting_names::<ContentSettings>(),
    ]
    .concat();
    let config = component::parse(&own);
    let mut config: Config = config.map_err(|error| error.accepted_beside(&own, &names))?;
    config.content = content;
    let location = Location::new(node.nearest("url"), &config.url)?;
    of_store.check(node, &location)?;
    if config.concurrency.get().0 > CONCURRENCY_MAX {
        let message = format!("`concurrency` must be between 1 and {CONCURRENCY_MAX}");
        return Err(node.nearest("concurrency").error(message));
    }
    if node.get("lookback").is_some() && !config.ordered {
        let error = node.nearest("lookback");
        return Err(error.error("`lookback` requires `ordered: true`"));
    }
    if context.effects != Effects::All {
        // What is there is read, once, and stays.
        config.follow = Some(false);
        config.delete_after = None;
    }
    let formats = config.content.formats(node)?;
    Ok(Box::new(ObjectStoreInput {
        follow: config.follow.unwrap_or(!context.finite),
        choice: choice(&config, node)?,
        formats,
        node: node.clone(),
        location,
        of_store,
        config,
    }))
}

fn choice(config: &Config, node: &Node) -> Result<Choice, ConfigError> {
    let patterns = |setting: &str, patterns: &[String]| {
        Exclusion::new(patterns).map_err(|(index, error)| {
            let place = node.nearest(&format!("{setting}[{index}]"));
            place.error(format!("not a valid pattern: {error}"))
        })
    };
    let matching = patterns("match", &config.matching)?;
    Ok(Choice {
        matching: (!matching.is_empty()).then_some(matching),
        exclusion: patterns("exclude", &config.exclude)?,
        start_after: config.start_after.clone(),
        ignore_older: config.ignore_older.map(|period| period.0),
        scan_interval: config.scan_interval.get().0,
        ordered: config.ordered,
        lookback: config.lookback.0,
        forget_after: config.forget_after.0,
    })
}

struct ObjectStoreInput {
    config: Config,
    of_store: StoreSettings,
    location: Location,
    node: Node,
    formats: Formats,
    choice: Choice,
    follow: bool,
}

#[async_trait]
impl Input for ObjectStoreInput {
    fn can_wait(&self) -> bool {
        true
    }

    fn repeats_in_order(&self) -> bool {
        // Records of container logs may stand between the lines of one that ends later.
        let has_containers = self.formats.each(|settings| settings.container.is_some());
        !has_containers.contains(&true)
    }

    fn reads(&self, path: &Path) -> bool {
        let Location::Folder(root) = &self.location else {
            return false;
        };
        let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let name = absolute(path);
        let name = name.strip_prefix(absolute(root));
        name.is_ok_and(|name| self.choice.has(&name.to_string_lossy()))
    }

    async fn run(self: Box<Self>, mut ctx: InputContext) -> Result<(), InputError> {
        let store = self.store().map_err(RunError::Config)?;
        let known = KnownObjects::load(ctx.registry.clone(), &ctx.scope, &self.config.url);
        let known = known.map_err(RunError::Registry)?;
        let (sent, received) = tokio::sync::mpsc::channel(SENT_MAX);
        let dirty = Arc::new(Dirty::default());
        let acknowledging = tokio::spawn(carry(acknowledge(received, dirty.clone())));
        let sending_ctx = ctx.clone();
        ctx.end_sending();
        let shared = Arc::new(Shared {
            follow: self.follow,
            delete_after: self.config.delete_after.map(|period| period.0),
            known: Mutex::new(known),
            pool: ObjectPool::new(ctx.stop.clone()),
            dirty,
            deletions: Mutex::default(),
            problems: Mutex::default(),
            save_fails: AtomicBool::new(false),
            ctx,
        });
        shared.show_ledger();
        let is_over = Arc::new(AtomicBool::new(false));
        let keeping = thread::start("keep", {
            let (shared, store, is_over) = (shared.clone(), store.clone(), is_over.clone());
            move || shared.keep(&store, &is_over)
        });
        let keeping = keeping.map_err(RunError::ReaderThread)?;
        let remembers = shared.ctx.registry.is_some() || shared.delete_after.is_some();
        let started = self.start_threads(&shared, &store, &sending_ctx, &sent);
        // The threads have their own: when they end, nothing more is sent.
        drop((sending_ctx, sent));
        let threads = match started {
            Ok(threads) => threads,
            Err(error) => {
                shared.pool.close();
                is_over.store(true, Ordering::Release);
                return Err(RunError::ReaderThreads(error).into());
            }
        };
        for thread in threads {
            ended(thread).await;
        }
        if remembers {
            // Positions move with the last receipts, which resolve when the outputs have taken everything.
            let _ = acknowledging.await;
        }
        is_over.store(true, Ordering::Release);
        ended(keeping).await;
        let problems = std::mem::take(&mut *shared.problems.lock());
        match problems.is_empty() {
            true => Ok(()),
            false => Err(InputError { problems }),
        }
    }
}

impl ObjectStoreInput {
    fn store(&self) -> Result<SourceStore, ConfigError> {
        let client = self.of_store.client(&self.node, &self.location)?;
        Ok(match (client, &self.location) {
            (Some(client), location) => {
                SourceStore::Bucket(client.bucket, Arc::new(location.clone()))
            }
            (None, Location::Folder(root)) => SourceStore::Folder(Arc::new(root.clone())),
            (None, Location::Bucket { .. }) => unreachable!("a bucket has a client"),
        })
    }

    /// Starts the threads that read, and the one that lists.
    fn start_threads(
        self,
        shared: &Arc<Shared>,
        store: &SourceStore,
        ctx: &InputContext,
        sent: &tokio::sync::mpsc::Sender<Sent>,
    ) -> std::io::Result<Vec<Work<()>>> {
        let compression: Compression = self.config.content.compression;
        let mut threads = Vec::new();
        for _ in 0..self.config.concurrency.get().0 {
            let reader = ObjectReader {
                store: store.clone(),
                sending: Sending::new(&self.formats, ctx, sent.clone(), None),
                formats: self.formats.clone(),
                compression,
                ctx: ctx.clone(),
                dirty: shared.dirty.clone(),
                scratch: ObjectReader::scratch(),
            };
            let shared = shared.clone();
            threads.push(thread::start("read", move || shared.read(reader))?);
        }
        let lister = Lister {
            shared: shared.clone(),
            store: store.clone(),
            choice: self.choice,
            stop: ctx.stop.clone(),
            scope: ctx.scope.clone(),
        };
        threads.push(thread::start("list", move || lister.run())?);
        Ok(threads)
    }
}

async fn ended(thread: Work<()>) {
    if let Err(panic) = thread.ended().await {
        std::panic::resume_unwind(panic);
    }
}
