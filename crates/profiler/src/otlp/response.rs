//! The answer to a request with profiles.
//!
//! Source: <https://opentelemetry.io/docs/specs/otlp/#otlphttp-response>.

use prost::{DecodeError, Message};

use super::message::{ExportResponse, PartialSuccess};

/// What a collector says about the profiles that it got.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Answer {
    /// How many it did not take.
    pub rejected: u64,
    /// Why; with nothing rejected a warning.
    pub message: String,
}

/// An answer as bytes; one that has nothing to say is empty.
pub fn response(answer: &Answer) -> Vec<u8> {
    let partial_success = (*answer != Answer::default()).then(|| PartialSuccess {
        rejected_profiles: i64::try_from(answer.rejected).unwrap_or(i64::MAX),
        error_message: answer.message.clone(),
    });
    ExportResponse { partial_success }.encode_to_vec()
}

/// Reads an answer.
///
/// # Errors
/// The bytes are none.
pub fn read_response(bytes: &[u8]) -> Result<Answer, DecodeError> {
    let response = ExportResponse::decode(bytes)?;
    let partial = response.partial_success.unwrap_or_default();
    Ok(Answer {
        rejected: u64::try_from(partial.rejected_profiles).unwrap_or(0),
        message: partial.error_message,
    })
}
