//! Writes objects to S3, Google Cloud Storage, Azure Blob Storage or a directory.
//!
//! | module | holds |
//! | --- | --- |
//! | [`settings`] | the settings, but for those of the store, which the crate `stores` has |
//! | [`format`](mod@format) | what an object consists of |
//! | [`columns`], [`parquet`] | events as columns, and Parquet files of them |
//! | [`objects`] | open objects, and when they end |
//! | [`ledger`] | which batches went into which object |
//! | [`traffic`] | objects on their way: tasks, repeats |
//! | [`store`], [`folder`] | a store; a directory as one |

mod columns;
mod folder;
mod format;
mod ledger;
mod objects;
mod parquet;
mod settings;
mod store;
#[cfg(test)]
mod tests;
mod traffic;

use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use batch::{Batch, Bitmap, FieldRead};
use component::{
    Anchor, Build, BuildContext, Collector, Compression, DestinationPart, Encoded, Example, Output,
    Spec, Warning, WriteError, Writer, Written, WrittenFiles,
};
use config::{ConfigError, Node, Positional, setting_names};
use expr::Template;
use net::Client;
use parking_lot::Mutex;
use schemars::JsonSchema;

use crate::codec::{ABSENT, BoundCodec, Codec, CodecName, CodecSettings};
use crate::compression::CompressionName;
use crate::partition::{Group, clean_name, partition, refuse_rows};
use crate::schema::with_codec;
use columns::{BoundColumns, Columns};
use folder::Folder;
use format::Format;
use objects::{ObjectSettings, Objects};
use parquet::ParquetFormat;
use settings::Config;
use store::Store;
use stores::{Location, StoreSettings};
use traffic::Traffic;

pub const SPEC: Spec = Spec {
    name: "object_store",
    aliases: &[],
    summary: "Writes objects to S3, Google Cloud Storage, Azure Blob Storage or a directory.",
    description: include_str!("description.md"),
    positional: Positional::fields(&["url"]).nested(&["parquet.columns"]),
    one_line: &[],
    examples: &[
        Example {
            title: "JSON lines, compressed with gzip, in a bucket of S3",
            stage: "object_store s3://my-bucket/logs region=eu-central-1",
            input: "",
            output: "",
        },
        Example {
            title: "A directory for each service and hour, as Hive, Spark and DuckDB read them",
            stage: r#"object_store s3://my-bucket/logs path="service=%{service.name}/date=%{+yyyy-MM-dd}/hour=%{+HH}" compression=zstd"#,
            input: "",
            output: "",
        },
        Example {
            title: "A server of your own with the interface of S3",
            stage: "object_store s3://logs endpoint=http://minio:9000 access_key_id=shipper secret_access_key=file:/etc/millpond/minio.key",
            input: "",
            output: "",
        },
        Example {
            title: "Parquet files with typed columns, and everything else as JSON",
            stage: r#"object_store s3://my-bucket/logs codec=parquet parquet.columns.@timestamp=timestamp parquet.columns.clientip=text parquet.columns.status=int"#,
            input: "",
            output: "",
        },
        Example {
            title: "A local directory, a new object every minute",
            stage: "object_store /tmp/lake max_age=1m",
            input: "",
            output: "",
        },
    ],
    schema: |generator| {
        let own = with_codec::<Config>(generator, CodecName::Json);
        component::beside(own, StoreSettings::json_schema(generator))
    },
    build: Build::Writer {
        ordered: true,
        build,
    },
};

/// The longest name of an object that S3 takes, in bytes. The others take it too.
const KEY_BYTES_MAX: usize = 1024;

/// Some of it is left for the prefix and the part that makes the name unique.
const PATH_BYTES_MAX: usize = 600;

/// The longest part of a path between two `/`: the name of a directory.
const PART_BYTES_MAX: usize = 255;

struct ObjectStoreOutput {
    config: Config,
    of_store: StoreSettings,
    location: Location,
    /// The output's settings, for errors with their place.
    node: Node,
    path: Template,
    rows: RowCodec,
    format: Format,
    ending: String,
    /// Of streams; Parquet compresses by itself.
    compression: Compression,
    written: Arc<WrittenFiles>,
    /// Made when the output opens.
    opened: OnceLock<Opened>,
}

/// How rows are handed to whoever makes objects of them.
enum RowCodec {
    Stream(Codec),
    Parquet(Columns),
}

/// The same over one batch.
enum BoundRows<'a> {
    Stream(BoundCodec<'a>),
    Parquet(BoundColumns<'a>),
}

struct Opened {
    store: Arc<Store>,
    client: Option<Client>,
    objects: Mutex<Objects>,
}

fn build(node: &Node, _: &BuildContext) -> Result<Arc<dyn Writer>, ConfigError> {
    let (of_store, rest) = StoreSettings::divide(node)?;
    let (codec, own) = CodecSettings::divide_without(&rest, &["codec"])?;
    let names = setting_names::<StoreSettings>();
    let config = codec.parse_rest(&own);
    let config: Config = config.map_err(|error| error.accepted_beside(&own, names))?;
    let location = Location::new(node.nearest("url"), &config.url)?;
    of_store.check(node, &location)?;
    let at = node.nearest("path");
    let text = config.path.trim_matches('/');
    let path = crate::codec::template(node, at, text)?;
    if text.split('/').any(|part| matches!(part, "." | "..")) || text.contains("//") {
        return Err(at.error("`path` contains a part that is empty or consists of dots"));
    }
    if location.key("").len() + text.len() + PATH_BYTES_MAX / 2 > KEY_BYTES_MAX {
        return Err(at.error("the prefix and `path` are too long for the name of an object"));
    }
    let (rows, format, ending) = formats(node, &config, &codec)?;
    let example = match &location {
        Location::Folder(root) => Some(example(root, &path)),
        Location::Bucket { .. } => None,
    };
    Ok(Arc::new(ObjectStoreOutput {
        compression: match format {
            Format::Stream { compression, .. } => compression,
            Format::Parquet(_) => Compression::None,
        },
        rows,
        format,
        ending,
        location,
        path,
        config,
        of_store,
        node: node.clone(),
        written: Arc::new(WrittenFiles::new(example)),
        opened: OnceLock::new(),
    }))
}

/// How rows are written, what objects are made of them, and what the names of these end with.
fn formats(
    node: &Node,
    config: &Config,
    settings: &CodecSettings,
) -> Result<(RowCodec, Format, String), ConfigError> {
    if let Some((columns, compression)) = config.parquet(node)? {
        settings.refuse_idle(node, None)?;
        let parquet = config.parquet.clone().unwrap_or_default();
        let rows = usize::try_from(parquet.row_group_rows.get().0).unwrap_or(usize::MAX);
        let format = ParquetFormat::new(&columns, compression, rows);
        let format = format.map_err(|error| node.nearest("parquet").error(error.to_string()))?;
        let rows = RowCodec::Parquet(columns);
        return Ok((rows, Format::Parquet(format), ".parquet".to_owned()));
    }
    let name = config.compression.unwrap_or(CompressionName::Gzip);
    let compression = name.with_level(node, config.compression_level)?;
    let name = config.codec.of_stream().unwrap_or(CodecName::Json);
    let codec = settings.codec(node, name)?;
    let format = Format::Stream {
        header: codec.header().unwrap_or_default().into(),
        compression,
    };
    let ending = ending(&codec, compression);
    Ok((RowCodec::Stream(codec), format, ending))
}

/// A file that may be written.
fn example(root: &Path, path: &Template) -> PathBuf {
    root.join(path.with_each("x")).join("x")
}

/// What the names of objects end with.
fn ending(codec: &Codec, compression: Compression) -> String {
    let codec = match codec {
        Codec::Json => ".ndjson",
        Codec::Csv(_) => ".csv",
        Codec::MsgPack => ".msgpack",
        Codec::Logfmt | Codec::Compact => ".log",
        Codec::Template { .. } | Codec::Text(_) => ".txt",
    };
    let compression = match compression {
        Compression::None => "",
        Compression::Gzip(_) => ".gz",
        Compression::Zstd(_) => ".zst",
    };
    format!("{codec}{compression}")
}

impl ObjectStoreOutput {
    fn opened(&self) -> Result<&Opened, WriteError> {
        let opened = self.opened.get();
        opened.ok_or_else(|| WriteError::Fatal("the output was not opened".to_owned()))
    }

    /// The store; with its HTTP client where it has one.
    fn store(&self) -> Result<(Store, Option<Client>), ConfigError> {
        let client = self.of_store.client(&self.node, &self.location)?;
        let shown = self.location.shown();
        Ok(match (client, &self.location) {
            (Some(client), _) => (Store::Bucket(client.bucket, shown), Some(client.http)),
            (None, Location::Folder(root)) => {
                let folder = Folder::new(root.clone(), self.written.clone());
                (Store::Folder(folder), None)
            }
            (None, Location::Bucket { .. }) => unreachable!("a bucket has a client"),
        })
    }

    /// The rows of a batch by what `path` gives for them.
    fn by_path(&self, batch: &Batch, rows: &Bitmap) -> Vec<Group> {
        if let Some(fixed) = self.path.constant() {
            return vec![Group {
                destination: Ok(fixed.into()),
                rows: rows.clone(),
            }];
        }
        let mut bound = self.path.bind(batch, ABSENT);
        let render = |row: usize, path: &mut Vec<u8>| bound.write_with(row, path, clean_part);
        partition(batch, rows, render, |path| {
            let path = std::str::from_utf8(path);
            let path = path.map_err(|_| "the name of the object is not valid UTF-8")?;
            let len = path.len();
            if len > PATH_BYTES_MAX {
                return Err(format!(
                    "the `path` of the object has {len} bytes, but at most {PATH_BYTES_MAX} are allowed",
                )
                .into());
            }
            match path.split('/').find(|part| part.len() > PART_BYTES_MAX) {
                Some(part) => Err(format!(
                    "a part of the `path` of the object has {} bytes, but at most {PART_BYTES_MAX} are allowed",
                    part.len()
                )
                .into()),
                None => Ok(path.into()),
            }
        })
    }

    async fn take(&self, encoded: &Encoded, sequence: Option<u64>) -> Result<Written, WriteError> {
        let opened = self.opened()?;
        loop {
            {
                let mut objects = opened.objects.lock();
                if objects.has_room() {
                    let sequence = sequence.unwrap_or(objects.next());
                    objects.take(encoded, sequence)?;
                    return Ok(Written {
                        until_flush: true,
                        ..Written::default()
                    });
                }
                if let Some(trouble) = objects.traffic().trouble() {
                    return Err(trouble);
                }
            }
            self.changed(opened).await;
        }
    }

    async fn changed(&self, opened: &Opened) {
        let traffic = opened.objects.lock().traffic().clone();
        traffic.changed().await;
    }
}

#[async_trait]
impl Output for ObjectStoreOutput {
    async fn open(&self) -> Result<(), ConfigError> {
        let (store, client) = self.store()?;
        let store = Arc::new(store);
        let settings = ObjectSettings {
            location: self.location.clone(),
            format: self.format.clone(),
            ending: self.ending.clone(),
            size_max: self.config.max_bytes.get().0,
            age_max: self.config.max_age.get().0,
            open_max: usize::try_from(self.config.max_open_objects.get().0).unwrap_or(usize::MAX),
            // The standard library seeds its hashes at random.
            run: format!("{:08x}", RandomState::new().build_hasher().finish() as u32),
        };
        let objects = Objects::new(settings, Traffic::new(store.clone()));
        let _ = self.opened.set(Opened {
            store,
            client,
            objects: Mutex::new(objects),
        });
        Ok(())
    }

    fn encode(&self, batch: &Batch, rows: &Bitmap, encoded: &mut Encoded) {
        let mut bound = match &self.rows {
            RowCodec::Stream(codec) => BoundRows::Stream(codec.bind(batch)),
            RowCodec::Parquet(columns) => BoundRows::Parquet(columns.bind(batch, rows)),
        };
        for group in self.by_path(batch, rows) {
            match group.destination {
                Ok(destination) => {
                    let start = encoded.bytes.len();
                    match &mut bound {
                        BoundRows::Stream(codec) => {
                            codec.write_rows(&group.rows, &mut encoded.bytes, |_, _| {});
                        }
                        BoundRows::Parquet(columns) => {
                            columns.write(&group.rows, &mut encoded.bytes);
                        }
                    }
                    let rows: Vec<usize> = group.rows.iter().collect();
                    encoded.rows += rows.len();
                    encoded.parts.push(DestinationPart {
                        destination,
                        bytes: start..encoded.bytes.len(),
                        rows,
                    });
                }
                Err(reason) => refuse_rows(&group.rows, &reason, encoded),
            }
        }
    }

    fn reads(&self) -> Vec<Arc<FieldRead>> {
        let own: Vec<_> = match &self.rows {
            RowCodec::Stream(codec) => codec.reads(),
            RowCodec::Parquet(columns) => columns.reads().collect(),
        };
        self.path.reads().chain(own).collect()
    }

    fn written(&self) -> Option<Arc<WrittenFiles>> {
        matches!(self.location, Location::Folder(_)).then(|| self.written.clone())
    }

    fn take_counters(&self) -> Vec<(&'static str, u64)> {
        let opened = self.opened.get();
        opened.map_or_else(Vec::new, |it| it.objects.lock().take_counters())
    }

    fn take_warnings(&self) -> Vec<Warning> {
        let Some(opened) = self.opened.get() else {
            return Vec::new();
        };
        let mut warnings = std::mem::take(&mut opened.objects.lock().warnings);
        if let Some(client) = &opened.client {
            warnings.extend(client.take_warnings().into_iter().map(Warning::from));
        }
        warnings
    }
}

#[async_trait]
impl Writer for ObjectStoreOutput {
    async fn write(&self, encoded: &Encoded) -> Result<Written, WriteError> {
        self.take(encoded, None).await
    }

    fn compression(&self) -> Compression {
        self.compression
    }

    fn collector(&self) -> Option<&dyn Collector> {
        Some(self)
    }

    fn confirms_late(&self) -> bool {
        true
    }

    /// Ends all objects, and waits until they are complete.
    async fn flush(&self) -> Result<(), WriteError> {
        let opened = self.opened()?;
        opened.objects.lock().end_all()?;
        loop {
            {
                let mut objects = opened.objects.lock();
                objects.tend(false)?;
                if !objects.has_ended() {
                    return Ok(());
                }
            }
            self.changed(opened).await;
        }
    }
}

#[async_trait]
impl Collector for ObjectStoreOutput {
    async fn begin(&self, anchor: Option<Arc<dyn Anchor>>) -> Result<(), WriteError> {
        let opened = self.opened()?;
        let key = self.location.key(".millpond-check");
        opened.store.check(&key).await?;
        opened.objects.lock().begin(anchor);
        Ok(())
    }

    async fn collect(&self, encoded: &Encoded, sequence: u64) -> Result<Written, WriteError> {
        self.take(encoded, Some(sequence)).await
    }

    async fn tend(&self, hurry: bool) -> Result<u64, WriteError> {
        self.opened()?.objects.lock().tend(hurry)
    }
}

/// As [`clean_name`]. A part that would begin with a dot, and so be hidden from whoever reads a directory, begins with `_`.
fn clean_part(path: &mut Vec<u8>, start: usize) {
    clean_name(path, start);
    let is_begin = start == 0 || path[start - 1] == b'/';
    if is_begin && path.get(start) == Some(&b'.') {
        path[start] = b'_';
    }
}
