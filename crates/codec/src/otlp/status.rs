//! What a server says about a request that it did not take: `google.rpc.Status`, with `google.rpc.RetryInfo` among its details.
//!
//! ```text
//! Status     1 code, 2 message, 3 Any …
//! Any        1 type_url, 2 value
//! RetryInfo  1 Duration { 1 seconds, 2 nanos }
//! ```
//! Source: <https://opentelemetry.io/docs/specs/otlp/#failures> and `google/rpc/{status,error_details}.proto` of
//! <https://github.com/googleapis/googleapis>.

use std::time::Duration;

use super::wire::{Open, WireError, bytes_tag, fields, varint_tag, write_bytes, write_varint};

const RETRY_INFO: &[u8] = b"type.googleapis.com/google.rpc.RetryInfo";

/// Why a request was not taken.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Status {
    /// The code, as gRPC counts them.
    pub code: u32,
    /// The reason, for people.
    pub message: String,
    /// After how long the request may be sent again.
    pub retry_delay: Option<Duration>,
}

impl Status {
    /// Reads a status.
    ///
    /// # Errors
    /// The bytes are none.
    pub fn read(message: &[u8]) -> Result<Self, WireError> {
        let mut status = Self::default();
        for field in fields(message) {
            match field? {
                (1, code) => status.code = u32::try_from(code.varint(1)?).unwrap_or_default(),
                (2, text) => {
                    status.message = String::from_utf8_lossy(text.bytes(2)?).into_owned();
                }
                (3, detail) => {
                    let delay = retry_delay(detail.bytes(3)?)?;
                    status.retry_delay = delay.or(status.retry_delay);
                }
                _ => {}
            }
        }
        Ok(status)
    }

    /// The status as bytes.
    pub fn write(&self) -> Vec<u8> {
        let mut out = Vec::new();
        if self.code != 0 {
            out.push(varint_tag(1));
            write_varint(&mut out, u64::from(self.code));
        }
        if !self.message.is_empty() {
            write_bytes(&mut out, bytes_tag(2), self.message.as_bytes());
        }
        if let Some(delay) = self.retry_delay {
            let detail = Open::begin(&mut out, bytes_tag(3), 1);
            write_bytes(&mut out, bytes_tag(1), RETRY_INFO);
            let info = Open::begin(&mut out, bytes_tag(2), 1);
            let duration = Open::begin(&mut out, bytes_tag(1), 1);
            out.push(varint_tag(1));
            write_varint(&mut out, delay.as_secs());
            out.push(varint_tag(2));
            write_varint(&mut out, u64::from(delay.subsec_nanos()));
            duration.end(&mut out);
            info.end(&mut out);
            detail.end(&mut out);
        }
        out
    }
}

/// The delay in a detail, if it is one of that kind.
fn retry_delay(detail: &[u8]) -> Result<Option<Duration>, WireError> {
    let (mut kind, mut info) = (&[][..], &[][..]);
    for field in fields(detail) {
        match field? {
            (1, url) => kind = url.bytes(1)?,
            (2, value) => info = value.bytes(2)?,
            _ => {}
        }
    }
    if kind != RETRY_INFO {
        return Ok(None);
    }
    let mut delay = Duration::ZERO;
    for field in fields(info) {
        let (1, duration) = field? else { continue };
        for field in fields(duration.bytes(1)?) {
            match field? {
                // A negative one is none.
                (1, seconds) => {
                    let seconds = i64::try_from(seconds.varint(1)?).unwrap_or_default();
                    delay += Duration::from_secs(seconds.unsigned_abs().min(u64::from(u32::MAX)));
                }
                (2, nanos) => {
                    let nanos = u32::try_from(nanos.varint(2)?).unwrap_or_default();
                    delay += Duration::from_nanos(u64::from(nanos));
                }
                _ => {}
            }
        }
    }
    Ok(Some(delay))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_read_as_it_is_written() {
        for (message, retry_delay) in [
            ("", None),
            ("too much", Some(Duration::from_millis(1500))),
            ("größer", Some(Duration::ZERO)),
        ] {
            let status = Status {
                code: 8,
                message: message.to_owned(),
                retry_delay,
            };
            assert_eq!(Status::read(&status.write()), Ok(status));
        }
        assert_eq!(Status::read(&[]), Ok(Status::default()));
        assert_eq!(Status::read(&[0x1A, 1]), Err(WireError::Truncated));
        // A detail of another kind.
        let other = [0x1A, 3, 0x0A, 1, b'x'];
        assert_eq!(Status::read(&other), Ok(Status::default()));
    }
}
