//! `kafka` reads topics of Apache Kafka as a member of a consumer group.
//!
//! # Guarantees
//! - An offset is committed only when everything before it in its partition is safe: when the receipts of the batches up to it have
//!   resolved. librdkafka commits what is stored (`enable.auto.commit`); nothing is stored but by receipts (`enable.auto.offset.store`
//!   is off).
//! - A record that comes again, after a crash or because its partition went to another member, has the same id: that of its cluster,
//!   topic, partition and offset.
//! - When a partition is taken away, what is safe of it is committed, and the rest is forgotten: the next member reads it again.
//!
//! # Threads
//! One takes records from librdkafka, many at a time, and collects their values ([`gather`]); one makes batches of them and waits while
//! the queue is full ([`batches`]). While the second one waits, the first one reads nothing but goes on polling, so that the input
//! stays in its group; librdkafka fetches up to `queued.max.messages.kbytes` ahead.
//!
//! | module | holds |
//! | --- | --- |
//! | [`settings`] | the settings |
//! | `consumer` | the client, and what happens when partitions come and go |
//! | `partitions` | which partitions are read, and how far everything is safe |
//! | `gather` | records on their way to a batch |
//! | `batches` | makes batches and sends them |
//! | `stored` | the processing half of `queue: kafka`: records that are batches |
//! | `reader` | the thread that reads |

mod settings;

#[cfg(feature = "kafka")]
mod batches;
#[cfg(feature = "kafka")]
mod consumer;
#[cfg(feature = "kafka")]
mod gather;
#[cfg(feature = "kafka")]
mod partitions;
#[cfg(feature = "kafka")]
mod reader;
#[cfg(feature = "kafka")]
mod stored;
#[cfg(all(test, feature = "kafka"))]
mod tests;

use component::{Build, Example, Spec};
use config::Positional;

/// The component.
pub const SPEC: Spec = Spec {
    name: "kafka",
    aliases: &[],
    summary: "Reads topics of Apache Kafka.",
    description: include_str!("kafka.md"),
    positional: Positional::list(&["brokers"]).nested(&["sasl"]),
    one_line: &[],
    examples: &[
        Example {
            title: "JSON records of a topic, shared with the other members of the group",
            stage: "kafka kafka.example topics=access group=millpond",
            input: "",
            output: "",
        },
        Example {
            title: "Lines of all topics whose names begin with `logs-`, from now on",
            stage: "kafka a.example:9092 b.example:9092 topics=^logs- group=millpond codec=text start=end",
            input: "",
            output: "",
        },
        Example {
            title: "What is in a topic, to its end",
            stage: "kafka kafka.example topics=access group=export until=end",
            input: "",
            output: "",
        },
    ],
    schema: settings::schema,
    build: Build::Input(build),
};

#[cfg(feature = "kafka")]
pub use reader::queue_input;

/// Makes the input that takes the events of a pipeline from the topic that is its queue, as a member of this group.
///
/// # Errors
/// This build is without Kafka.
#[cfg(not(feature = "kafka"))]
pub fn queue_input(
    queue: &::kafka::queue::KafkaQueue,
    _: &str,
    _: String,
) -> Result<Box<dyn component::Input>, config::ConfigError> {
    Err(queue.node.error(::kafka::ABSENT))
}

#[cfg(feature = "kafka")]
use reader::build;

#[cfg(not(feature = "kafka"))]
fn build(
    node: &config::Node,
    _: &component::BuildContext,
) -> Result<Box<dyn component::Input>, config::ConfigError> {
    settings::KafkaSettings::read(node)?;
    Err(node.error(::kafka::ABSENT))
}
