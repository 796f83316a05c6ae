//! `kafka` sends events to Apache Kafka.
//!
//! | module | holds |
//! | --- | --- |
//! | [`settings`] | the settings |
//! | `record` | an event as a record, and records in a request |
//! | `flights` | which records of a request brokers have not answered for |
//! | `polled` | a client of librdkafka that is polled |
//! | `producers` | the clients that send records |
//! | `queue` | the receiving half of `queue: kafka` |
//! | `verdict` | what is to be done about a record that was not taken |
//!
//! **Requests and records.** A request of the engine holds many records. [`Sender::send`](component::Sender::send) hands all of them to librdkafka, which makes batches for
//! partitions of them, and waits until it has reported on each.
//!
//! **Nothing twice.** librdkafka tries without end (`message.timeout.ms` is 0), with the sequence numbers of an idempotent producer. If that takes
//! long, `send` reports it and the engine calls it again with the same request: it then waits for the records that are on
//! their way instead of handing them over a second time. Only records that librdkafka has given up are sent anew.
//!
//! **Order.** librdkafka keeps the records of a partition in the order in which it gets them, also when it repeats some. `send` hands records over before it waits,
//! and the engine begins requests in the order of the events ([`RequestOrder::Begun`](component::RequestOrder::Begun)).
//!
//! **Bad company.** Brokers refuse a batch as a whole if it is too large for the topic, or if a record in it is invalid. Its records are
//! sent again by a second client, whose batches hold one record each; a record that is refused there is refused for good.

mod settings;

#[cfg(feature = "kafka")]
mod flights;
#[cfg(feature = "kafka")]
mod polled;
#[cfg(feature = "kafka")]
mod producers;
#[cfg(feature = "kafka")]
mod queue;
#[cfg(feature = "kafka")]
mod record;
#[cfg(feature = "kafka")]
mod sender;
#[cfg(all(test, feature = "kafka"))]
mod tests;
#[cfg(feature = "kafka")]
mod verdict;

use component::{Build, Example, Spec};
use config::Positional;

/// The description of `kafka`.
pub const SPEC: Spec = Spec {
    name: "kafka",
    aliases: &[],
    summary: "Sends events to Apache Kafka.",
    description: concat!(
        include_str!("kafka.md"),
        "\n\n**Texts.** `topic`, `key` and the texts of `headers` may contain fields and times: ",
        expr::template_syntax!(),
    ),
    positional: Positional::list(&["brokers"]).nested(&["sasl"]),
    one_line: &[],
    examples: &[
        Example {
            title: "JSON to a topic, in which the events of a client keep their order",
            stage: "kafka kafka.example topic=access key='%{clientip}' compression=zstd",
            input: "",
            output: "",
        },
        Example {
            title: "Lines to a topic for each service, with headers",
            stage: "kafka a.example:9092 b.example:9092 topic='logs-%{service.name}' codec=text headers.host='%{host.name}' event_ids=true",
            input: "",
            output: "",
        },
        Example {
            title: "Over TLS, with a password",
            stage: "kafka kafka.example:9093 topic=access tls.ca=ca.pem sasl.mechanism=SCRAM-SHA-512 sasl.user=shipper sasl.password=file:/run/secrets/kafka",
            input: "",
            output: "",
        },
    ],
    schema: settings::schema,
    build: Build::Sender(build),
};

#[cfg(feature = "kafka")]
pub use queue::queue_output;
#[cfg(feature = "kafka")]
use sender::build;

/// Makes the output that puts the events of a pipeline into the topic that is its queue.
///
/// # Errors
/// This build is without Kafka.
#[cfg(not(feature = "kafka"))]
pub fn queue_output(
    queue: &::kafka::queue::KafkaQueue,
    _: &str,
) -> Result<std::sync::Arc<dyn component::Writer>, config::ConfigError> {
    Err(queue.node.error(::kafka::ABSENT))
}

#[cfg(not(feature = "kafka"))]
fn build(
    node: &config::Node,
    _: &component::BuildContext,
) -> Result<std::sync::Arc<dyn component::Sender>, config::ConfigError> {
    settings::KafkaSettings::read(node)?;
    Err(node.error(::kafka::ABSENT))
}
