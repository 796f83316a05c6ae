//! What is asked of the topic before anything is sent.

use std::sync::Arc;
use std::time::Duration;

use ::kafka::queue::KafkaQueue;
use ::kafka::rdkafka::admin::{
    AdminClient, AdminOptions, ConfigResource, NewTopic, ResourceSpecifier, TopicReplication,
};
use ::kafka::rdkafka::client::ClientContext;
use ::kafka::rdkafka::config::ClientConfig;
use ::kafka::rdkafka::error::RDKafkaErrorCode;
use ::kafka::{Link, LinkState, created};
use component::{WriteError, thread};
use config::Period;

/// How long brokers may take for an answer.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// Bytes that the protocol adds to a record that is alone in its batch, and some to spare.
const AROUND: usize = 512;

/// With a shorter retention, events may be deleted before a machine that was away for a while has seen them.
const RETENTION_MIN: Duration = Duration::from_secs(60 * 60);

/// What is known of the topic.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct TopicSettings {
    /// The largest record that it takes.
    pub record_max: Option<usize>,
}

/// Creates the topic if it does not exist, and checks its settings.
///
/// # Errors
/// Brokers cannot be asked, or the topic cannot be a queue.
pub async fn checked(
    queue: &KafkaQueue,
    topic: &str,
    config: &ClientConfig,
    state: &Arc<LinkState>,
) -> Result<TopicSettings, WriteError> {
    let sasl = queue.brokers.sasl.as_ref();
    let link = Link::new(state, sasl.and_then(|sasl| sasl.token.clone()));
    let make = |config: &ClientConfig| config.create_with_context(link);
    let client = created(&queue.brokers, &queue.node, config.clone(), make);
    let client: AdminClient<Link> =
        client.map_err(|error| WriteError::Blocked(error.to_string()))?;
    let client = Arc::new(client);
    let partitions = match partitions(&client, topic).await? {
        Some(partitions) => partitions,
        None => {
            create(&client, queue, topic).await?;
            queue.own.partitions as usize
        }
    };
    if partitions == 1 {
        let text = format!(
            "topic {topic} has a single partition, so that one machine at a time processes what is in it"
        );
        state.warn(text.into());
    }
    let options = AdminOptions::new().request_timeout(Some(ANSWER_MAX));
    let resources = [ResourceSpecifier::Topic(topic)];
    let asked = client.describe_configs(&resources, &options).await;
    let asked = asked.map_err(|error| WriteError::Retry(error.to_string()))?;
    match asked.into_iter().next() {
        Some(Ok(resource)) => judge(topic, &resource, state),
        Some(Err(code)) => {
            let text =
                format!("the settings of topic {topic} cannot be checked, brokers say: {code}");
            state.warn(text.into());
            Ok(TopicSettings::default())
        }
        None => Ok(TopicSettings::default()),
    }
}

/// How many partitions the topic has, if it exists.
async fn partitions<C: ClientContext + 'static>(
    client: &Arc<AdminClient<C>>,
    topic: &str,
) -> Result<Option<usize>, WriteError> {
    // Asking for one topic by its name would have brokers create it as they are set to.
    let asking = client.clone();
    let ask = move || asking.inner().fetch_metadata(None, ANSWER_MAX);
    let retry = |error: String| WriteError::Retry(error);
    let asked = thread::start("kafka topic", ask).map_err(|error| retry(error.to_string()))?;
    let answer = match asked.ended().await {
        Ok(answer) => answer.map_err(|error| retry(error.to_string()))?,
        Err(panic) => std::panic::resume_unwind(panic),
    };
    let found = answer.topics().iter().find(|one| one.name() == topic);
    Ok(found.map(|one| one.partitions().len()))
}

async fn create<C: ClientContext>(
    client: &AdminClient<C>,
    queue: &KafkaQueue,
    topic: &str,
) -> Result<(), WriteError> {
    let number = |number: u32| i32::try_from(number).unwrap_or(i32::MAX);
    // −1 is for what brokers are set to.
    let replicas = TopicReplication::Fixed(queue.own.replicas.map_or(-1, number));
    let new = NewTopic::new(topic, number(queue.own.partitions), replicas);
    let options = AdminOptions::new()
        .request_timeout(Some(ANSWER_MAX))
        .operation_timeout(Some(ANSWER_MAX));
    let created = client.create_topics(&[new], &options).await;
    let created = created.map_err(|error| WriteError::Retry(error.to_string()))?;
    match created.into_iter().next() {
        // Another machine was faster.
        None | Some(Ok(_) | Err((_, RDKafkaErrorCode::TopicAlreadyExists))) => Ok(()),
        Some(Err((_, code))) => Err(WriteError::Blocked(format!(
            "topic {topic} does not exist and cannot be created: {code}"
        ))),
    }
}

/// Whether a topic with these settings can be a queue.
fn judge(
    topic: &str,
    resource: &ConfigResource,
    state: &LinkState,
) -> Result<TopicSettings, WriteError> {
    let entry = |name: &str| resource.get(name)?.value.as_deref();
    let number = |name: &str| entry(name)?.parse::<i64>().ok();
    if entry("cleanup.policy").is_some_and(|policy| policy.contains("compact")) {
        return Err(WriteError::Blocked(format!(
            "topic {topic} cannot be a queue: brokers delete records without a key from it (`cleanup.policy` is to be `delete`)"
        )));
    }
    let warn = |text: String| state.warn(text.into());
    if let Some(millis) = number("retention.ms").and_then(|it| u64::try_from(it).ok())
        && Duration::from_millis(millis) < RETENTION_MIN
    {
        let time = Period(Duration::from_millis(millis));
        warn(format!(
            "topic {topic} deletes events after {time} (`retention.ms`), also those that no output has"
        ));
    }
    if let Some(bytes) = number("retention.bytes").filter(|bytes| *bytes >= 0) {
        warn(format!(
            "topic {topic} deletes events when a partition has {bytes} bytes (`retention.bytes`), also those that no output has"
        ));
    }
    let max = number("max.message.bytes").and_then(|max| usize::try_from(max).ok());
    Ok(TopicSettings {
        record_max: max.map(|max| max.saturating_sub(AROUND).max(1)),
    })
}
