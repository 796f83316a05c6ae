//! The settings of `object_store`, without those of the codec.

use std::collections::BTreeMap;
use std::sync::Arc;

use component::{Compression, WrittenFiles};
use config::{ConfigError, Count, Node, Period, Positive, Size};
use net::{Client, ClientSettings, ClientTls, Secret};
use object_store::ClientOptions;
use object_store::aws::AmazonS3Builder;
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use schemars::JsonSchema;
use serde::Deserialize;

use super::columns::{ColumnType, Columns};
use super::folder::Folder;
use super::http::Connector;
use super::location::{Location, StoreKind};
use super::store::{Bucket, Store, retries};
use crate::codec::CodecName;
use crate::compression::CompressionName;

/// The settings of `object_store`, without those of the codec.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Where objects go: `s3://BUCKET/PREFIX`, `gs://BUCKET/PREFIX`, `az://CONTAINER/PREFIX`, or a directory: `file:///PATH`, `/PATH` or `./PATH`.
    pub url: String,
    /// The names of objects between the prefix and the part that makes each one unique; may contain `%{field}` and `%{+time format}`. There is one
    /// open object for each different text. An empty text leaves it out.
    #[serde(default = "path")]
    pub path: String,
    /// How events are written: page [codecs](codecs.md); or `parquet`, which makes a Parquet file of each object.
    #[serde(default)]
    pub codec: ObjectCodec,
    /// With `codec: parquet`: the columns.
    pub parquet: Option<ParquetSettings>,
    /// How objects are compressed. Default: `gzip`; with `codec: parquet`, whose pages are compressed, `zstd`.
    pub compression: Option<CompressionName>,
    /// The compression level: gzip 0 to 9, zstd 1 to 22. Default: 6 for gzip, 3 for zstd, 1 for the zstd of Parquet.
    pub compression_level: Option<i32>,
    /// An object ends when its events have this size, before compression.
    #[serde(default = "max_bytes")]
    pub max_bytes: Positive<Size>,
    /// An object ends this long after its first event.
    #[serde(default = "max_age")]
    pub max_age: Positive<Period>,
    /// The maximum number of open objects; beyond that, the one without events for the longest time ends.
    #[serde(default = "max_open")]
    pub max_open_objects: Positive<Count>,
    /// S3: the URL of a server other than Amazon's, such as `http://localhost:9000`. Google, Azure: that of an emulator.
    pub endpoint: Option<String>,
    /// S3: the region. Default: the environment variable `AWS_REGION`, or `us-east-1`.
    pub region: Option<String>,
    /// S3: the access key. Default: `AWS_ACCESS_KEY_ID`, or the role of the machine, container or service account.
    pub access_key_id: Option<Secret>,
    /// S3: its secret. Default: `AWS_SECRET_ACCESS_KEY`.
    pub secret_access_key: Option<Secret>,
    /// S3: the token of temporary credentials. Default: `AWS_SESSION_TOKEN`.
    pub session_token: Option<Secret>,
    /// Google: the key of a service account, as JSON; `file:PATH` reads it from a file. Default: the file that `GOOGLE_SERVICE_ACCOUNT` or
    /// `GOOGLE_APPLICATION_CREDENTIALS` names, or the service account of the machine.
    pub service_account: Option<Secret>,
    /// Azure: the storage account. Default: `AZURE_STORAGE_ACCOUNT_NAME`.
    pub account: Option<String>,
    /// Azure: its key. Default: `AZURE_STORAGE_ACCOUNT_KEY`, or the identity of the machine.
    pub account_key: Option<Secret>,
    /// The maximum time to establish a connection, including TLS.
    #[serde(default = "connect_timeout")]
    pub connect_timeout: Positive<Period>,
    /// The maximum time for a request, from connecting to the end of the response.
    #[serde(default = "timeout")]
    pub timeout: Positive<Period>,
    /// The proxy to use, such as `http://proxy:3128`; `none` for no proxy. Default: the environment variables `http_proxy`, `https_proxy` and
    /// `no_proxy`.
    pub proxy: Option<Secret>,
    /// TLS settings.
    #[serde(default)]
    pub tls: ClientTls,
}

/// How events are written.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ObjectCodec {
    /// A JSON object on one line.
    #[default]
    Json,
    /// The same as `json`.
    Ndjson,
    /// `key=value` pairs on one line.
    Logfmt,
    /// Time, level, host and message on one line, and behind them all other fields as `key=value`.
    Compact,
    /// A row of CSV, with the fields in `csv.columns`.
    Csv,
    /// The text of `template`.
    Template,
    /// The field `message` as it is, or another field that `text.field` names.
    Text,
    /// A MessagePack map.
    Msgpack,
    /// A row of a Parquet file, with the columns in `parquet.columns`.
    Parquet,
}

impl ObjectCodec {
    /// The codec of a stream; none for Parquet.
    pub fn of_stream(self) -> Option<CodecName> {
        Some(match self {
            Self::Json => CodecName::Json,
            Self::Ndjson => CodecName::Ndjson,
            Self::Logfmt => CodecName::Logfmt,
            Self::Compact => CodecName::Compact,
            Self::Csv => CodecName::Csv,
            Self::Template => CodecName::Template,
            Self::Text => CodecName::Text,
            Self::Msgpack => CodecName::Msgpack,
            Self::Parquet => return None,
        })
    }
}

/// The columns of Parquet files.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ParquetSettings {
    /// The columns, each with its type: `text`, `int`, `float`, `bool`, `timestamp` or `json`. The name is that of a field. Default:
    /// `@timestamp: timestamp`.
    pub columns: BTreeMap<String, ColumnType>,
    /// The name of a column with everything that no other column has, as JSON. An empty text means none: what no column has is not written.
    pub rest: String,
    /// A row group ends when it has so many rows, with the batch that reaches them.
    pub row_group_rows: Positive<Count>,
}

impl Default for ParquetSettings {
    fn default() -> Self {
        Self {
            columns: BTreeMap::new(),
            rest: "rest".to_owned(),
            row_group_rows: Positive::<Count>::from_count(250_000),
        }
    }
}

impl Config {
    /// The columns of Parquet files, where they are wanted. `node` holds all settings.
    ///
    /// # Errors
    /// A column cannot be, or settings do not go together, with their place.
    pub fn parquet(&self, node: &Node) -> Result<Option<(Columns, Compression)>, ConfigError> {
        if self.codec != ObjectCodec::Parquet {
            return match node.get("parquet").filter(|set| !set.is_null()) {
                Some(set) => Err(set.error("`parquet` requires `codec: parquet`")),
                None => Ok(None),
            };
        }
        let compression = match self.compression.unwrap_or(CompressionName::Zstd) {
            CompressionName::Gzip => {
                let error = node
                    .nearest("compression")
                    .error("Parquet files are not compressed with gzip here");
                return Err(error.note("use `compression: zstd`, which is the default, or `none`"));
            }
            CompressionName::Zstd => {
                CompressionName::Zstd.with_level(node, Some(self.compression_level.unwrap_or(1)))?
            }
            none => none.with_level(node, self.compression_level)?,
        };
        let settings = self.parquet.clone().unwrap_or_default();
        let at = node.get("parquet").and_then(|set| set.get("columns"));
        Ok(Some((Columns::new(at, &settings.rest)?, compression)))
    }
}

fn path() -> String {
    "%{+yyyy/MM/dd}".to_owned()
}

fn max_bytes() -> Positive<Size> {
    Positive::<Size>::from_bytes(256 << 20)
}

fn max_age() -> Positive<Period> {
    Positive::<Period>::from_secs(300)
}

fn max_open() -> Positive<Count> {
    Positive::<Count>::from_count(64)
}

fn connect_timeout() -> Positive<Period> {
    Positive::<Period>::from_secs(10)
}

fn timeout() -> Positive<Period> {
    Positive::<Period>::from_secs(60)
}

/// The settings that only one kind of store has.
const OWN: &[(&str, StoreKind)] = &[
    ("region", StoreKind::S3),
    ("access_key_id", StoreKind::S3),
    ("secret_access_key", StoreKind::S3),
    ("session_token", StoreKind::S3),
    ("service_account", StoreKind::Google),
    ("account", StoreKind::Azure),
    ("account_key", StoreKind::Azure),
];

impl Config {
    /// Refuses settings that the store does not have. `node` holds all of them.
    ///
    /// # Errors
    /// There is one, with its place.
    pub fn check(&self, node: &Node, location: &Location) -> Result<(), ConfigError> {
        let kind = match location {
            Location::Folder(_) => None,
            Location::Bucket { kind, .. } => Some(*kind),
        };
        for (name, owner) in OWN {
            if let Some(set) = node.get(name).filter(|_| kind != Some(*owner)) {
                let message = format!("`{name}` is for {}:// URLs", owner.scheme());
                return Err(set.error(message).hiding_value());
            }
        }
        if let Some(set) = node.get("endpoint").filter(|_| kind.is_none()) {
            return Err(set.error("a directory has no `endpoint`"));
        }
        if let Some(endpoint) = &self.endpoint {
            net::client::url(node.nearest("endpoint"), endpoint)?;
        }
        if self.access_key_id.is_some() != self.secret_access_key.is_some() {
            let place = node.nearest("access_key_id");
            let message = "`access_key_id` and `secret_access_key` require each other";
            return Err(place.error(message).hiding_value());
        }
        Ok(())
    }

    /// The store; with its HTTP client where it has one.
    ///
    /// # Errors
    /// A setting that cannot be used, with its place.
    pub fn store(
        &self,
        node: &Node,
        location: &Location,
        written: &Arc<WrittenFiles>,
    ) -> Result<(Store, Option<Client>), ConfigError> {
        let (kind, bucket) = match location {
            Location::Folder(root) => {
                let folder = Folder::new(root.clone(), written.clone());
                return Ok((Store::Folder(folder), None));
            }
            Location::Bucket { kind, bucket, .. } => (*kind, bucket.as_str()),
        };
        let is_plain = |url: &String| url.starts_with("http://");
        let plain = self.endpoint.as_ref().is_some_and(is_plain);
        let settings = ClientSettings {
            connect_timeout: self.connect_timeout,
            timeout: self.timeout,
            proxy: self.proxy.clone(),
            tls: self.tls.clone(),
            ..ClientSettings::default()
        };
        let client = Client::build(&settings, node, !plain)?;
        let options = ClientOptions::new().with_allow_http(true);
        let built = match kind {
            StoreKind::S3 => self.s3(node, bucket, options, client.clone())?,
            StoreKind::Google => self.google(node, bucket, options, client.clone())?,
            StoreKind::Azure => self.azure(node, bucket, options, client.clone())?,
        };
        Ok((Store::Bucket(built, location.shown()), Some(client)))
    }

    fn s3(
        &self,
        node: &Node,
        bucket: &str,
        options: ClientOptions,
        client: Client,
    ) -> Result<Arc<dyn Bucket>, ConfigError> {
        let mut builder = AmazonS3Builder::from_env()
            .with_bucket_name(bucket)
            .with_client_options(options)
            .with_retry(retries())
            .with_http_connector(Connector(client));
        if let Some(endpoint) = &self.endpoint {
            builder = builder.with_endpoint(endpoint.trim_end_matches('/'));
        }
        if let Some(region) = &self.region {
            builder = builder.with_region(region);
        }
        if let Some(key) = revealed(node, "access_key_id", self.access_key_id.as_ref())? {
            builder = builder.with_access_key_id(&*key);
        }
        let secret = revealed(node, "secret_access_key", self.secret_access_key.as_ref())?;
        if let Some(secret) = secret {
            builder = builder.with_secret_access_key(&*secret);
        }
        if let Some(token) = revealed(node, "session_token", self.session_token.as_ref())? {
            builder = builder.with_token(&*token);
        }
        let built = builder.build();
        Ok(Arc::new(built.map_err(|error| refused(node, &error))?))
    }

    fn google(
        &self,
        node: &Node,
        bucket: &str,
        options: ClientOptions,
        client: Client,
    ) -> Result<Arc<dyn Bucket>, ConfigError> {
        let mut builder = GoogleCloudStorageBuilder::from_env()
            .with_bucket_name(bucket)
            .with_client_options(options)
            .with_retry(retries())
            .with_http_connector(Connector(client));
        if let Some(endpoint) = &self.endpoint {
            builder = builder
                .with_base_url(endpoint.trim_end_matches('/'))
                .with_skip_signature(self.service_account.is_none());
        }
        if let Some(key) = revealed(node, "service_account", self.service_account.as_ref())? {
            builder = builder.with_service_account_key(&*key);
        }
        let built = builder.build();
        Ok(Arc::new(built.map_err(|error| refused(node, &error))?))
    }

    fn azure(
        &self,
        node: &Node,
        container: &str,
        options: ClientOptions,
        client: Client,
    ) -> Result<Arc<dyn Bucket>, ConfigError> {
        let mut builder = MicrosoftAzureBuilder::from_env()
            .with_container_name(container)
            .with_client_options(options)
            .with_retry(retries())
            .with_http_connector(Connector(client));
        if let Some(endpoint) = &self.endpoint {
            builder = builder.with_endpoint(endpoint.trim_end_matches('/').to_owned());
        }
        if let Some(account) = &self.account {
            builder = builder.with_account(account);
        }
        if let Some(key) = revealed(node, "account_key", self.account_key.as_ref())? {
            builder = builder.with_access_key(&*key);
        }
        let built = builder.build();
        Ok(Arc::new(built.map_err(|error| refused(node, &error))?))
    }
}

fn revealed(
    node: &Node,
    name: &str,
    secret: Option<&Secret>,
) -> Result<Option<Arc<str>>, ConfigError> {
    let revealed = secret.map(Secret::reveal).transpose();
    revealed.map_err(|error| node.nearest(name).error(error.to_string()).hiding_value())
}

fn refused(node: &Node, error: &object_store::Error) -> ConfigError {
    node.nearest("url")
        .error(format!("the store cannot be used: {error}"))
}
