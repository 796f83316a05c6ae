//! Unary calls of gRPC, as bodies of HTTP/2 requests: message framing, compression and status trailers.
//!
//! ```text
//! message  compressed u8 (0 or 1) | length u32, big endian | bytes
//! ```
//!
//! A server's answer has the status in trailers, also where there is no message. Source:
//! <https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md>.
//!
//! # Limits
//! One message each way. `grpc-timeout` is not read: a client that gives up resets its request. Compression is gzip or none.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::io::{self, Read};

use base64::Engine;
use base64::prelude::BASE64_STANDARD_NO_PAD as STANDARD_NO_PAD;
use bytes::{BufMut, Bytes, BytesMut};
use flate2::read::GzDecoder;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue, Response};
use http_body_util::combinators::WithTrailers;
use http_body_util::{BodyExt, Full};
use hyper::body::Body;
use percent_encoding::{AsciiSet, CONTROLS, percent_decode, utf8_percent_encode};

/// The `Content-Type` of requests and answers.
pub const MEDIA_TYPE: HeaderValue = HeaderValue::from_static("application/grpc");

const ENCODING: HeaderName = HeaderName::from_static("grpc-encoding");
const ACCEPTED: HeaderName = HeaderName::from_static("grpc-accept-encoding");
const STATUS: HeaderName = HeaderName::from_static("grpc-status");
const MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
const DETAILS: HeaderName = HeaderName::from_static("grpc-status-details-bin");

/// How long the head of a message is.
const PREFIX_BYTES: usize = 5;

/// What is not written as it is in `grpc-message`: everything but printable ASCII, and `%`.
const ESCAPED: &AsciiSet = &CONTROLS.add(b'%');

/// The body of an answer.
pub type AnswerBody = WithTrailers<Full<Bytes>, Ready<Option<Result<HeaderMap, Infallible>>>>;

/// Why a call failed, or that it did not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Code {
    /// It worked.
    Ok = 0,
    /// The message is wrong, whatever the state of the server.
    InvalidArgument = 3,
    /// It took too long.
    DeadlineExceeded = 4,
    /// The message is too large.
    ResourceExhausted = 8,
    /// There is no such method or compression.
    Unimplemented = 12,
    /// Framing that no client should send.
    Internal = 13,
    /// The server cannot do it now; a client may try again.
    Unavailable = 14,
    /// Credentials are missing or wrong.
    Unauthenticated = 16,
}

/// The names of the codes, in their order. Source: <https://github.com/grpc/grpc/blob/master/doc/statuscodes.md>.
const NAMES: [&str; 17] = [
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
];

/// The name of a status, such as `UNAVAILABLE`.
pub fn name(code: u32) -> &'static str {
    let index = usize::try_from(code).unwrap_or(usize::MAX);
    NAMES.get(index).copied().unwrap_or("unknown status")
}

/// A code with its reason.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// The code.
    pub code: Code,
    /// The reason, for people.
    pub message: String,
    /// A `google.rpc.Status` with more of it, if there is more.
    pub details: Vec<u8>,
}

impl Failure {
    /// A failure with a reason.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            details: Vec::new(),
        }
    }

    /// The same with a `google.rpc.Status`.
    #[must_use]
    pub fn with_details(self, details: Vec<u8>) -> Self {
        Self { details, ..self }
    }

    fn too_large(max_bytes: usize) -> Self {
        let message = format!("the message is larger than {max_bytes} bytes");
        Self::new(Code::ResourceExhausted, message)
    }
}

/// Whether a request is a call.
pub fn is_call(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes);
    let rest = kind.and_then(|kind| kind.strip_prefix(MEDIA_TYPE.as_bytes()));
    rest.is_some_and(|rest| matches!(rest, [] | [b'+' | b';', ..]))
}

/// Whether messages of a request or an answer are compressed where their head says so.
///
/// # Errors
/// They are, in another way than gzip.
pub fn is_gzip(headers: &HeaderMap) -> Result<bool, Failure> {
    match headers.get(ENCODING).map(HeaderValue::as_bytes) {
        None | Some(b"identity") => Ok(false),
        Some(b"gzip") => Ok(true),
        Some(_) => {
            let message = "the compression of the message is not supported: gzip or none";
            Err(Failure::new(Code::Unimplemented, message))
        }
    }
}

/// Reads the one message of a body. It has up to `max_bytes`, as it is sent and decompressed.
///
/// # Errors
/// There is none, or more than one, or it is too large, damaged or cut off.
pub async fn message<B>(mut body: B, is_gzip: bool, max_bytes: usize) -> Result<Bytes, Failure>
where
    B: Body<Data = Bytes> + Unpin,
{
    let mut read = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| {
            let message = "the connection ended in the middle of the message";
            Failure::new(Code::InvalidArgument, message)
        })?;
        if let Ok(data) = frame.into_data() {
            read.extend_from_slice(&data);
        }
        if length(&read).is_some_and(|length| length > max_bytes) {
            return Err(Failure::too_large(max_bytes));
        }
        if length(&read).is_some_and(|length| read.len() > PREFIX_BYTES + length) {
            let message = "the call has more than one message";
            return Err(Failure::new(Code::InvalidArgument, message));
        }
    }
    unframed(read.freeze(), is_gzip, max_bytes)
}

/// The length of a message whose head is there.
fn length(read: &[u8]) -> Option<usize> {
    let length = read.get(1..PREFIX_BYTES)?.try_into().ok()?;
    usize::try_from(u32::from_be_bytes(length)).ok()
}

/// A whole message without its head.
fn unframed(mut read: Bytes, is_gzip: bool, max_bytes: usize) -> Result<Bytes, Failure> {
    if length(&read).is_none_or(|length| read.len() != PREFIX_BYTES + length) {
        let message = "the message is cut off";
        return Err(Failure::new(Code::InvalidArgument, message));
    }
    let message = read.split_off(PREFIX_BYTES);
    match (read[0], is_gzip) {
        (0, _) => Ok(message),
        (1, true) => decompressed(&message, max_bytes),
        _ => {
            let message = "the message is compressed, and `grpc-encoding` does not say how";
            Err(Failure::new(Code::Internal, message))
        }
    }
}

fn decompressed(message: &[u8], max_bytes: usize) -> Result<Bytes, Failure> {
    let mut plain = Vec::new();
    let limit = u64::try_from(max_bytes)
        .unwrap_or(u64::MAX)
        .saturating_add(1);
    let read = GzDecoder::new(message).take(limit).read_to_end(&mut plain);
    read.map_err(|error: io::Error| {
        let message = format!("the gzip message is damaged: {error}");
        Failure::new(Code::InvalidArgument, message)
    })?;
    match plain.len() > max_bytes {
        true => Err(Failure::too_large(max_bytes)),
        false => Ok(plain.into()),
    }
}

/// The head of a message of so many bytes.
///
/// # Errors
/// They are 4 GiB or more.
pub fn head(is_compressed: bool, length: usize) -> Result<[u8; PREFIX_BYTES], Failure> {
    let Ok(length) = u32::try_from(length) else {
        return Err(Failure::too_large(u32::MAX as usize));
    };
    let [a, b, c, d] = length.to_be_bytes();
    Ok([u8::from(is_compressed), a, b, c, d])
}

/// A message with its head, not compressed.
///
/// # Errors
/// It has 4 GiB or more.
pub fn framed(message: &[u8]) -> Result<Bytes, Failure> {
    let head = head(false, message.len())?;
    let mut framed = BytesMut::with_capacity(PREFIX_BYTES + message.len());
    framed.put_slice(&head);
    framed.put_slice(message);
    Ok(framed.freeze())
}

/// The answer of a server to a call: a message, or why there is none.
pub fn answer(result: Result<&[u8], Failure>) -> Response<AnswerBody> {
    let (body, status) = match result.and_then(framed) {
        Ok(body) => (body, Failure::new(Code::Ok, "")),
        Err(failure) => (Bytes::new(), failure),
    };
    let mut trailers = HeaderMap::with_capacity(2);
    trailers.insert(STATUS, HeaderValue::from(status.code as u16));
    let message = utf8_percent_encode(&status.message, ESCAPED).to_string();
    if let (false, Ok(message)) = (message.is_empty(), HeaderValue::try_from(message)) {
        trailers.insert(MESSAGE, message);
    }
    let details = STANDARD_NO_PAD.encode(&status.details);
    if let (false, Ok(details)) = (details.is_empty(), HeaderValue::try_from(details)) {
        trailers.insert(DETAILS, details);
    }
    let body = Full::new(body).with_trailers(ready(Some(Ok(trailers))));
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, MEDIA_TYPE);
    headers.insert(ACCEPTED, HeaderValue::from_static("gzip"));
    response
}

/// The status that an answer has in its trailers, or in its headers where nothing else follows: the number of its code, and its reason.
/// None where there is no status.
pub fn status(headers: &HeaderMap, trailers: Option<&HeaderMap>) -> Option<(u32, String)> {
    let of = |fields: &HeaderMap| {
        let code = fields.get(STATUS)?.to_str().ok()?.parse().ok()?;
        let message = fields.get(MESSAGE).map_or(&b""[..], HeaderValue::as_bytes);
        let message = percent_decode(message).decode_utf8_lossy();
        Some((code, message.into_owned()))
    };
    trailers.and_then(of).or_else(|| of(headers))
}

/// The `google.rpc.Status` of an answer, which may be in the same places as its [`status`].
pub fn details(headers: &HeaderMap, trailers: Option<&HeaderMap>) -> Option<Vec<u8>> {
    let of = |fields: &HeaderMap| {
        let text = fields.get(DETAILS)?.as_bytes().trim_ascii_end();
        STANDARD_NO_PAD
            .decode(
                text.strip_suffix(b"=")
                    .map_or(text, |text| text.strip_suffix(b"=").unwrap_or(text)),
            )
            .ok()
    };
    trailers.and_then(of).or_else(|| of(headers))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn head(is_compressed: u8, length: u32) -> Vec<u8> {
        [&[is_compressed][..], &length.to_be_bytes()].concat()
    }

    fn with_head(is_compressed: u8, message: &[u8]) -> Vec<u8> {
        [head(is_compressed, message.len() as u32), message.to_vec()].concat()
    }

    async fn read(bytes: Vec<u8>, is_gzip: bool) -> Result<Bytes, Failure> {
        message(Full::new(Bytes::from(bytes)), is_gzip, 100).await
    }

    #[tokio::test]
    async fn messages_are_read() {
        for (bytes, is_gzip, expected) in [
            (with_head(0, b"plain"), false, &b"plain"[..]),
            (with_head(0, b""), false, b""),
            (with_head(0, b"also plain"), true, b"also plain"),
            (with_head(1, &gzip(b"packed")), true, b"packed"),
            (with_head(0, &[7; 100]), false, &[7; 100]),
        ] {
            assert_eq!(read(bytes, is_gzip).await.unwrap(), expected);
        }
    }

    #[tokio::test]
    async fn wrong_messages_have_codes() {
        let mut damaged = gzip(b"packed");
        damaged.truncate(12);
        for (bytes, is_gzip, code) in [
            (Vec::new(), false, Code::InvalidArgument),
            (vec![0; 4], false, Code::InvalidArgument),
            (head(0, 5), false, Code::InvalidArgument),
            (head(0, 101), false, Code::ResourceExhausted),
            (
                with_head(1, &gzip(&[7; 101])),
                true,
                Code::ResourceExhausted,
            ),
            (with_head(1, &damaged), true, Code::InvalidArgument),
            (with_head(1, b"packed"), false, Code::Internal),
            (with_head(2, b"packed"), true, Code::Internal),
            (
                [with_head(0, b"a"), with_head(0, b"b")].concat(),
                false,
                Code::InvalidArgument,
            ),
        ] {
            assert_eq!(
                read(bytes.clone(), is_gzip).await.unwrap_err().code,
                code,
                "{bytes:?}"
            );
        }
    }

    #[tokio::test]
    async fn answers_end_with_a_status() {
        let failure = Failure::new(Code::Unavailable, "50 % größer\n");
        let failure = failure.with_details(b"details\xFF".to_vec());
        for (result, body, status_of) in [
            (Ok(&b"done"[..]), with_head(0, b"done"), (0, String::new())),
            (Err(failure.clone()), Vec::new(), (14, failure.message)),
        ] {
            let given = result.as_ref().err().map(|failure| failure.details.clone());
            let response = answer(result);
            assert!(is_call(response.headers()));
            let headers = response.headers().clone();
            let collected = response.into_body().collect().await.unwrap();
            let trailers = collected.trailers().cloned();
            assert_eq!(collected.to_bytes(), body);
            assert_eq!(status(&headers, trailers.as_ref()), Some(status_of));
            assert_eq!(details(&headers, trailers.as_ref()), given);
        }
        assert_eq!(status(&HeaderMap::new(), None), None);
    }

    #[test]
    fn codes_have_names() {
        assert_eq!(name(Code::Ok as u32), "OK");
        assert_eq!(name(Code::Unavailable as u32), "UNAVAILABLE");
        assert_eq!(name(Code::Unauthenticated as u32), "UNAUTHENTICATED");
        assert_eq!(name(17), "unknown status");
    }

    #[test]
    fn calls_are_told_by_their_type() {
        for (kind, expected) in [
            ("application/grpc", true),
            ("application/grpc+proto", true),
            ("application/grpc;charset=x", true),
            ("application/grpc-web", false),
            ("application/json", false),
        ] {
            let headers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(kind))]);
            assert_eq!(is_call(&headers), expected, "{kind}");
        }
        let headers = HeaderMap::from_iter([(ENCODING, HeaderValue::from_static("snappy"))]);
        assert_eq!(is_gzip(&headers).unwrap_err().code, Code::Unimplemented);
    }
}
