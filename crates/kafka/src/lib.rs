//! What the components for Kafka share: the settings of a client, and a client of librdkafka that reports what goes wrong.
//!
//! | module | holds |
//! | --- | --- |
//! | [`settings`] | [`BrokerSettings`]: brokers, TLS, SASL, options of librdkafka |
//! | [`queue`] | [`KafkaQueue`](queue::KafkaQueue): settings of a queue that is a topic |
//! | `config` | settings as the configuration of librdkafka |
//! | `link` | `Link`: what librdkafka says about its connections, and the tokens that it asks for |
//! | `produced` | `produce`: records for a producer, many at a time |
//! | `records` | `RecordConsumer`: records of a consumer, many at a time |
//! | `token` | when a token expires |
//!
//! **The feature `client`.** librdkafka and OpenSSL are compiled with CMake, Perl and a C++ compiler, and a plain build of Millpond needs
//! none of them. Without the feature there are only the settings, so that the reference, the JSON Schema and the checks of
//! settings are the same in every build; the components are refused with [`ABSENT`] instead of being built.
//!
//! librdkafka rather than a client in Rust: it is what brokers are tested with, keeps order and idempotence through elections,
//! and knows every version of the protocol. Its own threads are no threads of `component::thread`: their processor time counts
//! for the process and for no operator.

pub mod queue;
pub mod settings;

#[cfg(feature = "client")]
mod config;
#[cfg(feature = "client")]
mod link;
#[cfg(feature = "client")]
mod produced;
#[cfg(feature = "client")]
mod records;
#[cfg(feature = "client")]
mod token;

#[cfg(feature = "client")]
pub use rdkafka;

#[cfg(feature = "client")]
pub use crate::config::{OptionOwner, client_config, created};
#[cfg(feature = "client")]
pub use crate::link::{Link, LinkState, Trouble, words};
#[cfg(feature = "client")]
pub use crate::produced::{PlainRecord, produce};
#[cfg(feature = "client")]
pub use crate::records::{Header, Record, RecordConsumer, Records, hold_back};
pub use crate::settings::{BrokerSettings, RecordCompression};

/// Why a component for Kafka is not there, in a build without the feature.
pub const ABSENT: &str = "this build of Millpond is without Kafka; build it with `cargo build --release --features kafka`";

/// Whether a name can be that of a topic: up to 249 letters, digits, `.`, `_` and `-`
/// (`org.apache.kafka.common.internals.Topic`).
pub fn is_topic(name: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    !matches!(name, "" | "." | "..") && name.len() <= 249 && name.bytes().all(is_allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_topics_are_those_that_brokers_accept() {
        for name in ["a", "logs-web_1.x", &"x".repeat(249)] {
            assert!(is_topic(name), "{name}");
        }
        for name in ["", ".", "..", "a b", "a/b", "ä", "a,b", &"x".repeat(250)] {
            assert!(!is_topic(name), "{name}");
        }
    }
}
