//! What the components for object stores share: which store a URL names, the settings of a client, and what a store answers.
//!
//! | module | holds |
//! | --- | --- |
//! | [`location`] | [`Location`]: the store, bucket or directory that the setting `url` names |
//! | [`settings`] | [`StoreSettings`]: endpoint, credentials, TLS; makes clients |
//! | [`answers`] | what a store said, for messages |
//! | `http` | the HTTP client of the other components for the library `object_store` |

pub mod answers;
mod http;
pub mod location;
pub mod settings;

use std::time::Duration;

use object_store::multipart::MultipartStore;
use object_store::{BackoffConfig, ObjectStore, RetryConfig};

pub use location::{Location, StoreKind};
pub use settings::StoreSettings;

/// What the library's stores can do that is needed here.
pub trait Bucket: ObjectStore + MultipartStore {}

impl<T: ObjectStore + MultipartStore> Bucket for T {}

/// How the library repeats a request by itself. What takes longer is repeated by the component, which says so.
fn retries() -> RetryConfig {
    RetryConfig {
        backoff: BackoffConfig {
            init_backoff: Duration::from_millis(100),
            max_backoff: Duration::from_secs(1),
            base: 2.0,
        },
        max_retries: 2,
        retry_timeout: Duration::from_secs(20),
    }
}
