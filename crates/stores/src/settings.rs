//! The settings of a client of a store, which components have among their own.

use std::sync::Arc;

use config::{ConfigError, Node, Period, Positive, setting_names};
use net::{Client, ClientSettings, ClientTls, Secret};
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::{GcpCredential, GoogleCloudStorageBuilder};
use object_store::{ClientOptions, StaticCredentialProvider};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::http::Connector;
use crate::location::{Location, StoreKind};
use crate::{Bucket, retries};

/// A client of a bucket.
pub struct StoreClient {
    /// What is asked for objects.
    pub bucket: Arc<dyn Bucket>,
    /// What it sends requests with.
    pub http: Client,
}

/// The settings of a client of a store, beside `url`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct StoreSettings {
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
    pub connect_timeout: Positive<Period>,
    /// The maximum time for a request, from connecting to the end of the response.
    pub timeout: Positive<Period>,
    /// The proxy to use, such as `http://proxy:3128`; `none` for no proxy. Default: the environment variables `http_proxy`, `https_proxy` and
    /// `no_proxy`.
    pub proxy: Option<Secret>,
    /// TLS settings.
    pub tls: ClientTls,
}

impl Default for StoreSettings {
    fn default() -> Self {
        Self {
            endpoint: None,
            region: None,
            access_key_id: None,
            secret_access_key: None,
            session_token: None,
            service_account: None,
            account: None,
            account_key: None,
            connect_timeout: Positive::<Period>::from_secs(10),
            timeout: Positive::<Period>::from_secs(60),
            proxy: None,
            tls: ClientTls::default(),
        }
    }
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

impl StoreSettings {
    /// Takes these settings out of those of a component; gives them and the rest.
    ///
    /// # Errors
    /// One of them cannot be used, at its place.
    pub fn divide(node: &Node) -> Result<(Self, Node), ConfigError> {
        let (mine, own) = node.divide(setting_names::<Self>());
        let mine = mine.map(|mine| component::parse(&mine)).transpose()?;
        Ok((mine.unwrap_or_default(), own))
    }

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

    /// A client of the bucket; none for a directory.
    ///
    /// # Errors
    /// A setting that cannot be used, with its place.
    pub fn client(
        &self,
        node: &Node,
        location: &Location,
    ) -> Result<Option<StoreClient>, ConfigError> {
        let Location::Bucket { kind, bucket, .. } = location else {
            return Ok(None);
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
        Ok(Some(StoreClient {
            bucket: built,
            http: client,
        }))
    }

    fn s3(
        &self,
        node: &Node,
        bucket: &str,
        options: ClientOptions,
        client: Client,
    ) -> Result<Arc<dyn Bucket>, ConfigError> {
        let mut builder = s3_from_environment(self.access_key_id.is_none())
            .with_bucket_name(bucket)
            .with_client_options(options)
            .with_retry(retries())
            // Not every server can delete several objects at once.
            .with_disable_bulk_delete(true)
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
            if self.service_account.is_none() {
                // The library would ask the machine for a token all the same when it writes.
                let bearer = String::new();
                let nobody = StaticCredentialProvider::new(GcpCredential { bearer });
                builder = builder.with_credentials(Arc::new(nobody));
            }
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

/// What the environment says, with or without who the client is: a token there belongs to another key than one of the settings.
fn s3_from_environment(with_credentials: bool) -> AmazonS3Builder {
    if with_credentials {
        return AmazonS3Builder::from_env();
    }
    let mut builder = AmazonS3Builder::new();
    for (name, value) in std::env::vars() {
        let key = name.starts_with("AWS_").then(|| name.to_ascii_lowercase());
        let Some(Ok(key)) = key.map(|key| key.parse::<AmazonS3ConfigKey>()) else {
            continue;
        };
        let is_secret = matches!(
            key,
            AmazonS3ConfigKey::AccessKeyId
                | AmazonS3ConfigKey::SecretAccessKey
                | AmazonS3ConfigKey::Token
        );
        if !is_secret {
            builder = builder.with_config(key, value);
        }
    }
    builder
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
