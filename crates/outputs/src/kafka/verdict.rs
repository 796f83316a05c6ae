//! What is to be done about a record that was not taken.
//!
//! Codes: <https://kafka.apache.org/protocol#protocol_error_codes>; those of librdkafka itself: `rdkafka.h`.

use ::kafka::rdkafka::error::RDKafkaErrorCode as Code;
use component::{RowAnswer, SendError, Sent};

use super::flights::FailedRow;

/// What is to be done.
#[derive(Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is sent again in a batch of its own: the batch was refused, and the record may not be the reason.
    Alone,
    /// No broker will ever take it.
    Refused,
    /// It is taken once a person has mended something.
    Blocked,
    /// It is sent again.
    Retry,
}

/// The verdict on a record that was refused with this code; `is_alone` says whether it was in a batch of its own.
pub fn judge(code: Code, is_alone: bool) -> Verdict {
    match code {
        Code::InvalidDifferentRecord if is_alone => Verdict::Retry,
        Code::MessageSizeTooLarge
        | Code::MessageBatchTooLarge
        | Code::InvalidMessageSize
        | Code::InvalidRecord
        | Code::InvalidMessage
        | Code::InvalidTimestamp
        | Code::PolicyViolation
        | Code::InvalidDifferentRecord => match is_alone {
            false => Verdict::Alone,
            true => Verdict::Refused,
        },
        Code::UnknownPartition | Code::InvalidTopic | Code::InvalidArgument => Verdict::Refused,
        Code::UnknownTopic
        | Code::UnknownTopicOrPartition
        | Code::TopicAuthorizationFailed
        | Code::ClusterAuthorizationFailed
        | Code::InvalidRequiredAcks
        | Code::UnsupportedForMessageFormat
        | Code::UnsupportedFeature => Verdict::Blocked,
        _ => Verdict::Retry,
    }
}

/// What a person reads of a code.
pub fn reason(code: Code, topic: &str) -> String {
    match code {
        Code::MessageSizeTooLarge | Code::MessageBatchTooLarge | Code::InvalidMessageSize => {
            format!(
                "topic {topic}: the record is too large: the option `message.max.bytes` of the client, or `max.message.bytes` of the topic, does not allow it"
            )
        }
        Code::UnknownPartition => format!("topic {topic} has no such partition"),
        Code::UnknownTopic | Code::UnknownTopicOrPartition => {
            format!("topic {topic} does not exist, and the brokers do not create it")
        }
        Code::TopicAuthorizationFailed | Code::ClusterAuthorizationFailed => {
            format!("topic {topic}: the client may not write to it ({code})")
        }
        code => format!("topic {topic}: {code}"),
    }
}

/// What became of a request of which these rows were not taken.
pub fn sent(failed: &[FailedRow], is_alone: bool, topic: &str) -> Sent {
    let mut sent = Sent::default();
    for (row, code) in failed {
        let row_answer = RowAnswer {
            row: *row,
            reason: reason(*code, topic).into(),
        };
        match judge(*code, is_alone) {
            Verdict::Refused => sent.refused.push(row_answer),
            Verdict::Blocked => {
                sent.because = Some(SendError::Blocked(row_answer.reason.to_string()));
                sent.retry.push(row_answer);
            }
            Verdict::Alone | Verdict::Retry => {
                let reason = row_answer.reason.to_string();
                sent.because.get_or_insert(SendError::Retry(reason));
                sent.retry.push(row_answer);
            }
        }
    }
    sent
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_judged_one_by_one() {
        let failed = [
            (3, Code::MessageSizeTooLarge),
            (1, Code::MessageTimedOut),
            (4, Code::UnknownTopic),
            (0, Code::UnknownPartition),
        ];
        let sent = sent(&failed, true, "t");
        let rows = |answers: &[RowAnswer]| answers.iter().map(|row| row.row).collect::<Vec<_>>();
        assert_eq!(rows(&sent.refused), [3, 0]);
        assert_eq!(rows(&sent.retry), [1, 4]);
        assert!(matches!(sent.because, Some(SendError::Blocked(_))));
    }

    #[test]
    fn what_is_refused_with_others_is_tried_alone() {
        for code in [Code::MessageSizeTooLarge, Code::InvalidRecord] {
            assert_eq!(judge(code, false), Verdict::Alone);
            assert_eq!(judge(code, true), Verdict::Refused);
        }
        assert_eq!(judge(Code::InvalidDifferentRecord, false), Verdict::Alone);
        assert_eq!(judge(Code::NotEnoughReplicas, true), Verdict::Retry);
    }
}
