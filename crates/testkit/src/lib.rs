//! For tests only: what several crates need to test themselves.
//!
//! | module | holds |
//! | --- | --- |
//! | [`authority`] | an authority, and the certificates that it issues |
//! | [`clickhouse`] | a strict double of ClickHouse's HTTP interface for inserts |
//! | `clients` | clients of a server that is a part of a test |
//! | [`conformance`] | what every input and output must do |
//! | [`cutter`] | a proxy that cuts connections at random bytes |
//! | [`examples`] | checks of the examples that components document |
//! | [`http`] | an HTTP server that does what a test wants and keeps what it got |
//! | [`kafka`] | a real broker of Kafka |
//! | [`loki`] | a strict double of Loki's push endpoint |
//! | [`lumberjack`] | a strict client of the protocol of Beats |
//! | [`mmdb`] | a writer of small MaxMind databases |
//! | [`nats_server`] | a server that acknowledges messages as JetStream does |
//! | [`name_server`] | a name server that answers as a test says |
//! | [`receiver`] | a strict receiver of Lumberjack and Forward |
//! | [`redis_server`] | a server that keeps lists and streams as Redis does |
//! | [`rights`] | what tests need of the machine, and what becomes of them without it |
//! | [`s3`] | a strict double of S3 |
//! | [`search`] | real servers: OpenSearch and Elasticsearch |
//! | [`splunk`] | a strict double of Splunk's HTTP Event Collector |
//! | [`sample`] | the repository's own sample database |

pub mod authority;
pub mod clickhouse;
mod clients;
pub mod conformance;
pub mod cutter;
pub mod examples;
pub mod http;
pub mod kafka;
pub mod loki;
pub mod lumberjack;
pub mod mmdb;
pub mod name_server;
pub mod nats_server;
pub mod ports;
pub mod receiver;
pub mod redis_server;
pub mod rights;
pub mod s3;
pub mod sample;
pub mod search;
pub mod splunk;
