//! The thread that reads.

use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant};

use ::kafka::queue::KafkaQueue;
use ::kafka::rdkafka::consumer::Consumer;
use ::kafka::rdkafka::error::{KafkaError, RDKafkaErrorCode};
use ::kafka::rdkafka::message::Message;
use ::kafka::rdkafka::{Offset, TopicPartitionList};
use ::kafka::{LinkState, Record, Trouble};
use async_trait::async_trait;
use component::{BuildContext, Effects, Input, InputContext, InputError, Limit, thread};
use config::{ConfigError, Node};

use super::batches::Batches;
use super::consumer::{KafkaConsumer, configuration, consumer, store_safe};
use super::gather::Gathered;
use super::partitions::{AssignedPartition, Partitions};
use super::settings::{KafkaSettings, RecordForm};
use super::stored::StoredBatches;
use crate::connections::settings::check_unending;
use crate::error::RunError;
use crate::reading::on_blocking_thread;

/// How long a poll waits while there is nothing.
const POLL: Duration = Duration::from_millis(50);

/// How long a poll waits while the pipeline takes nothing, at first: it has room again soon, as a rule.
const BUSY_POLL: Duration = Duration::from_millis(2);

/// After so long, it waits as long as otherwise.
const BUSY_MAX: Duration = Duration::from_secs(2);

/// How often it is looked what is safe.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// How long a change of the position may take, which the client does by itself, and the question for an offset that was committed.
const SEEK_MAX: Duration = Duration::from_secs(5);

/// How long the end of the client may take.
const LEAVE_MAX: Duration = Duration::from_secs(5);

struct Kafka {
    settings: KafkaSettings,
    node: Node,
    state: Arc<LinkState>,
    partitions: Arc<Partitions>,
    /// Made when the input opens.
    consumer: Option<KafkaConsumer>,
}

/// Makes the input of its settings.
///
/// # Errors
/// One of them cannot be used, at its place.
pub(super) fn build(node: &Node, context: &BuildContext) -> Result<Box<dyn Input>, ConfigError> {
    let settings = KafkaSettings::read(node)?;
    configuration(&settings, node)?;
    if !settings.is_finite {
        check_unending("kafka", node, context)?;
    }
    if context.effects == Effects::Nothing {
        let error = node.error(
            "the offsets of the group would be committed, and here every event is thrown away",
        );
        return Err(error.note(
            "run it with its outputs (`bench --real-outputs`) and a group for that purpose",
        ));
    }
    Ok(Kafka::boxed(settings, node, LinkState::default()))
}

/// Makes the input that takes the events of a pipeline from the topic that is its queue, as a member of this group.
///
/// # Errors
/// A setting cannot be used, at its place.
pub fn queue_input(
    queue: &KafkaQueue,
    pipeline: &str,
    group: String,
) -> Result<Box<dyn Input>, ConfigError> {
    let settings = KafkaSettings::of_queue(queue, queue.topic(pipeline)?, group);
    configuration(&settings, &queue.node)?;
    Ok(Kafka::boxed(settings, &queue.node, LinkState::of_queue()))
}

impl Kafka {
    fn boxed(settings: KafkaSettings, node: &Node, state: LinkState) -> Box<dyn Input> {
        Box::new(Self {
            settings,
            node: node.clone(),
            state: Arc::new(state),
            partitions: Arc::default(),
            consumer: None,
        })
    }
}

#[async_trait]
impl Input for Kafka {
    async fn open(&mut self) -> Result<(), ConfigError> {
        let consumer = consumer(&self.settings, &self.node, &self.state, &self.partitions)?;
        self.consumer = Some(consumer);
        Ok(())
    }

    async fn run(mut self: Box<Self>, ctx: InputContext) -> Result<(), InputError> {
        if self.consumer.is_none() {
            self.open().await.map_err(RunError::from)?;
        }
        let Some(consumer) = self.consumer.take() else {
            return Ok(());
        };
        on_blocking_thread(ctx, move |ctx| {
            let reader = KafkaReader {
                ctx,
                consumer,
                settings: self.settings,
                state: self.state,
                partitions: self.partitions,
                looked: Instant::now(),
                record_size: usize::MAX,
            };
            reader.run()
        })
        .await
    }

    fn can_wait(&self) -> bool {
        true
    }
}

/// What to do with a record.
enum Turn {
    /// It is the next one.
    Read,
    /// It comes again.
    Sought,
    /// It is none.
    Nothing,
}

/// Reads, and hands over what comes.
struct KafkaReader<'c> {
    ctx: &'c mut InputContext,
    consumer: KafkaConsumer,
    settings: KafkaSettings,
    state: Arc<LinkState>,
    partitions: Arc<Partitions>,
    looked: Instant,
    /// How many bytes the last records had, on average.
    record_size: usize,
}

impl KafkaReader<'_> {
    /// Reads until it is to stop, or, where the run is to end, to the end; gives what went wrong.
    fn run(mut self) -> Vec<String> {
        let (hand_over, taken) = sync_channel(1);
        let batches = match &self.settings.form {
            RecordForm::Documents { codec, event_ids } => {
                let batches = Batches::new(codec, *event_ids, self.ctx, &self.partitions);
                BatchMaker::Documents(Box::new(batches))
            }
            RecordForm::Batches => {
                BatchMaker::Stored(StoredBatches::new(self.ctx, &self.partitions))
            }
        };
        let sending = match thread::start("kafka batches", move || send(batches, &taken)) {
            Ok(sending) => sending,
            Err(error) => return vec![format!("the system cannot create another thread: {error}")],
        };
        let topics = self.settings.topics.iter().map(String::as_str);
        let topics: Vec<&str> = topics.collect();
        let subscribed = self.consumer.consumer().subscribe(&topics);
        let problems = match subscribed {
            Ok(()) => self.read(&hand_over),
            Err(error) => vec![format!("the topics cannot be subscribed to: {error}")],
        };
        drop(hand_over);
        self.finish(&sending);
        if let Err(panic) = sending.join() {
            resume_unwind(panic);
        }
        problems
    }

    fn is_over(&self) -> bool {
        self.ctx.stop.is_stopped() || self.partitions.has_ended()
    }

    fn read(&mut self, hand_over: &SyncSender<Gathered>) -> Vec<String> {
        let form = &self.settings.form;
        let takes_ids = matches!(
            form,
            RecordForm::Documents {
                event_ids: true,
                ..
            }
        );
        let mut gathered = Gathered::new(takes_ids);
        let is_finite = self.settings.is_finite;
        while !self.is_over() {
            if let Err(problem) = self.gather(&mut gathered) {
                return vec![problem];
            }
            let is_due = gathered.is_full() || gathered.patience().is_zero();
            let is_complete = is_finite && self.partitions.are_complete();
            if !gathered.is_empty() && (is_due || is_complete) {
                let full = std::mem::replace(&mut gathered, Gathered::new(takes_ids));
                match self.hand_over(hand_over, full) {
                    Ok(true) => {}
                    Ok(false) => break,
                    Err(problem) => return vec![problem],
                }
            }
            if is_complete {
                break;
            }
            if let Err(problem) = self.look() {
                return vec![problem];
            }
        }
        Vec::new()
    }

    /// Takes what there is, up to a number of records, or waits a moment.
    ///
    /// # Errors
    /// Nothing can be read any more.
    fn gather(&mut self, gathered: &mut Gathered) -> Result<(), String> {
        self.attend(Duration::ZERO)?;
        let before = (gathered.values.len(), gathered.records.len());
        let count = gathered.room(self.record_size);
        let records = self.consumer.read(count, gathered.patience().min(POLL));
        let mut last: Option<(Record<'_>, Option<Arc<AssignedPartition>>)> = None;
        // What follows of these is given again.
        let mut sought: Vec<Arc<AssignedPartition>> = Vec::new();
        for record in records.iter() {
            let known = last.take().filter(|(last, _)| last.is_beside(record));
            let partition = match known {
                Some((_, partition)) => partition,
                None => self.partitions.find(record.topic(), record.partition()),
            };
            // One that was taken away meanwhile is read by another member.
            if let Some(partition) = &partition
                && !(self.settings.is_finite && partition.is_complete())
                && !sought.iter().any(|one| Arc::ptr_eq(one, partition))
            {
                match self.turn(partition, record)? {
                    Turn::Read => gathered.push(partition, record),
                    Turn::Sought => sought.push(partition.clone()),
                    Turn::Nothing => {}
                }
            }
            last = Some((record, partition));
        }
        let bytes = gathered.values.len() - before.0;
        if let Some(size) = bytes.checked_div(gathered.records.len() - before.1) {
            self.record_size = size;
        }
        Ok(())
    }

    /// What to do with a record, or with what is told in its place.
    ///
    /// # Errors
    /// Nothing can be read any more.
    fn turn(&self, partition: &AssignedPartition, record: Record<'_>) -> Result<Turn, String> {
        let offset = record.offset();
        match record.error() {
            // The brokers have lost records, and began anew.
            None if offset < partition.read() && self.seek(partition, offset) => Ok(Turn::Sought),
            None => Ok(Turn::Read),
            Some(RDKafkaErrorCode::PartitionEOF) => {
                partition.reached_end();
                Ok(Turn::Nothing)
            }
            Some(code) => {
                self.failed(&KafkaError::MessageConsumption(code))?;
                Ok(match self.goes_on(partition, record, code) {
                    true => Turn::Sought,
                    false => Turn::Nothing,
                })
            }
        }
    }

    /// Tells of an error in place of a record; whether the partition goes on from another place because of it.
    fn goes_on(
        &self,
        partition: &AssignedPartition,
        record: Record<'_>,
        code: RDKafkaErrorCode,
    ) -> bool {
        use RDKafkaErrorCode::{BadCompression, BadMessage};
        let offset = record.offset();
        let place = || {
            let (topic, partition) = (record.topic(), record.partition());
            format!("partition {partition} of topic {topic} from offset {offset} on")
        };
        if matches!(code, BadMessage | BadCompression) {
            if !partition.note_damaged(offset) {
                // The client goes on only where it gets what follows as well. It does not say how many records these are.
                return self.seek(partition, partition.read().max(offset) + 1);
            }
            self.ctx.metrics.failures(1);
            self.ctx.metrics.count("damaged_records", 1);
            let limit = Limit::events("damaged_records");
            let text = || {
                format!(
                    "records of {} are damaged and are left out ({code})",
                    place()
                )
            };
            self.ctx.diagnostics.warn_limited(limit, text);
            return false;
        }
        let limit = Limit::events("unreadable_partitions");
        let text = || format!("{} cannot be read, which is tried again: {code}", place());
        self.ctx.diagnostics.warn_limited(limit, text);
        match record.broke_off() {
            false => false,
            true if offset >= 0 => self.seek(partition, offset),
            true => {
                // Later: to seek there asks the broker again, which would refuse again at once.
                partition.note_unknown(offset);
                false
            }
        }
    }

    /// Goes on with a partition of which brokers did not say where it begins.
    fn begin(&self, partition: &AssignedPartition, begin: i64) {
        if partition.read() >= 0 {
            return;
        }
        let mut wanted = TopicPartitionList::new();
        wanted.add_partition(&partition.topic, partition.partition);
        let consumer = self.consumer.consumer();
        let Ok(committed) = consumer.committed_offsets(wanted, SEEK_MAX) else {
            return partition.note_unknown(begin);
        };
        let offset = match committed.elements().first() {
            Some(one) => one.offset().to_raw().filter(|offset| *offset >= 0),
            None => None,
        };
        let offset = offset.unwrap_or(begin);
        self.seek(partition, offset);
    }

    /// Goes on with a partition from an offset. If not, it was taken away.
    fn seek(&self, partition: &AssignedPartition, offset: i64) -> bool {
        let (consumer, at) = (self.consumer.consumer(), Offset::from_raw(offset));
        let sought = consumer.seek(&partition.topic, partition.partition, at, SEEK_MAX);
        if sought.is_ok() {
            partition.note_read(offset);
        }
        sought.is_ok()
    }

    /// Takes what is told of everything but records, and waits so long for it.
    ///
    /// # Errors
    /// Nothing can be read any more.
    fn attend(&self, patience: Duration) -> Result<(), String> {
        let consumer = self.consumer.consumer();
        let told = consumer.poll(patience);
        for new in self.partitions.take_new() {
            self.consumer.collect(&new.topic, new.partition);
        }
        match told {
            Some(Err(error)) => self.failed(&error),
            // None comes this way. If one does all the same, it is read again.
            Some(Ok(message)) => {
                let at = Offset::Offset(message.offset());
                let _ = consumer.seek(message.topic(), message.partition(), at, POLL);
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn failed(&self, error: &KafkaError) -> Result<(), String> {
        if let KafkaError::MessageConsumptionFatal(code) = error {
            return Err(format!("reading ended: {code}"));
        }
        let text = match error.rdkafka_error_code() {
            Some(RDKafkaErrorCode::UnknownTopic | RDKafkaErrorCode::UnknownTopicOrPartition) => {
                match self.settings.is_finite {
                    true => "a topic does not exist".to_owned(),
                    false => "a topic does not exist; it is read once it does".to_owned(),
                }
            }
            Some(RDKafkaErrorCode::GroupAuthorizationFailed) => {
                format!(
                    "the client may not read in the group {} ({error})",
                    self.settings.group
                )
            }
            Some(RDKafkaErrorCode::TopicAuthorizationFailed) => {
                format!("the client may not read a topic ({error})")
            }
            Some(
                RDKafkaErrorCode::InconsistentGroupProtocol
                | RDKafkaErrorCode::InvalidGroupId
                | RDKafkaErrorCode::InvalidSessionTimeout
                | RDKafkaErrorCode::GroupMaxSizeReached,
            ) => format!(
                "the client may not be a member of the group {} ({error})",
                self.settings.group
            ),
            // Told as trouble.
            _ => return Ok(()),
        };
        if self.settings.is_finite {
            return Err(text);
        }
        let limit = Limit::once_for("kafka", &text);
        self.ctx.diagnostics.warn_limited(limit, || text.clone());
        Ok(())
    }

    /// Hands records over. While there is no room nothing is read, and the input stays in its group; whether there is somebody who
    /// takes them.
    ///
    /// # Errors
    /// Nothing can be read any more; the records were handed over.
    fn hand_over(
        &mut self,
        hand_over: &SyncSender<Gathered>,
        gathered: Gathered,
    ) -> Result<bool, String> {
        let mut gathered = gathered;
        let mut problem = Ok(true);
        let begin = Instant::now();
        loop {
            match hand_over.try_send(gathered) {
                Ok(()) => return problem,
                Err(TrySendError::Disconnected(_)) => return Ok(false),
                Err(TrySendError::Full(back)) => gathered = back,
            }
            if self.is_over() {
                return Ok(false);
            }
            let patience = match begin.elapsed() < BUSY_MAX {
                true => BUSY_POLL,
                false => POLL,
            };
            let attended = self.attend(patience).and_then(|()| self.look());
            problem = problem.and(attended.map(|()| true));
        }
    }

    /// Looks what has become safe, and what a person should hear.
    ///
    /// # Errors
    /// Brokers refuse the client, and the run is to end by itself.
    fn look(&mut self) -> Result<(), String> {
        if self.looked.elapsed() < LOOK_EVERY {
            return Ok(());
        }
        self.looked = Instant::now();
        let consumer = self.consumer.consumer();
        store_safe(consumer, &self.partitions);
        for (partition, begin) in self.partitions.take_unknown() {
            self.begin(&partition, begin);
        }
        if let Some(lag) = consumer.context().take_lag() {
            self.ctx.metrics.set_lag(lag);
        }
        for warning in self.state.take_warnings() {
            self.ctx.diagnostics.pass_on(warning);
        }
        let text = match self.state.take_trouble() {
            Some(Trouble::Down(reason)) => format!("no broker can be reached: {reason}"),
            Some(Trouble::Refused(reason)) => {
                let text = format!("brokers refuse the client: {reason}");
                if self.settings.is_finite {
                    return Err(text);
                }
                text
            }
            None => return Ok(()),
        };
        let limit = Limit::events("kafka");
        self.ctx.diagnostics.warn_limited(limit, || text);
        Ok(())
    }

    /// Waits until everything that was sent is safe, and leaves the group.
    fn finish(self, sending: &thread::Work<()>) {
        self.ctx.end_sending();
        while !sending.is_finished() || self.partitions.is_waiting() {
            // What went wrong is known, or comes too late.
            let _ = self.attend(POLL);
            store_safe(self.consumer.consumer(), &self.partitions);
        }
        store_safe(self.consumer.consumer(), &self.partitions);
        let consumer = self.consumer;
        // Commits what is stored, and waits for a broker that has gone as long as a session lasts.
        let leave = thread::start("kafka leave", move || drop(consumer));
        let begin = Instant::now();
        while leave.as_ref().is_ok_and(|leave| !leave.is_finished()) {
            if begin.elapsed() > LEAVE_MAX {
                let text = "the group could not be left in time, because no broker answers or its members are just being told their partitions: records since the last commit are read again, with the ids that they had";
                self.ctx.diagnostics.warn(text);
                break;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        for warning in self.state.take_warnings() {
            self.ctx.diagnostics.pass_on(warning);
        }
    }
}

/// Makes batches of records and sends them.
enum BatchMaker {
    Documents(Box<Batches>),
    Stored(StoredBatches),
}

/// Makes batches of what is handed over, until nobody hands anything over or the pipeline takes no more.
fn send(mut batches: BatchMaker, taken: &Receiver<Gathered>) {
    while let Ok(gathered) = taken.recv() {
        let sent = match &mut batches {
            BatchMaker::Documents(batches) => batches.send(gathered),
            BatchMaker::Stored(batches) => batches.send(gathered),
        };
        if sent.is_err() {
            return;
        }
    }
}
