//! OpenTelemetry logs, as requests of OTLP carry them.
//!
//! | module | holds |
//! | --- | --- |
//! | [`wire`] | Protocol Buffers, read in place and written straight into a buffer |
//! | [`any`] | values and attributes from JSON, and as JSON |
//! | [`documents`] | [`Documents`]: the log records of a request as JSON documents |
//! | [`json`] | requests in the JSON encoding of OTLP |
//! | [`severity`] | names of severities and their numbers |
//! | [`status`] | [`Status`]: why a request was not taken |
//!
//! # Messages
//! ```text
//! ExportLogsServiceRequest  1 ResourceLogs …
//! ResourceLogs  1 Resource, 2 ScopeLogs …, 3 schema_url
//! ScopeLogs     1 InstrumentationScope, 2 LogRecord …, 3 schema_url
//! Resource      1 KeyValue …, 2 dropped_attributes_count
//! InstrumentationScope  1 name, 2 version, 3 KeyValue …, 4 dropped_attributes_count
//! LogRecord     1 time_unix_nano (fixed64), 2 severity_number, 3 severity_text, 5 body (AnyValue), 6 KeyValue …,
//!               7 dropped_attributes_count, 8 flags (fixed32), 9 trace_id, 10 span_id, 11 observed_time_unix_nano (fixed64), 12 event_name
//! ```
//! Source: `logs/v1/logs.proto`, `resource/v1/resource.proto` and `common/v1/common.proto` of
//! <https://github.com/open-telemetry/opentelemetry-proto>.
//!
//! # Fields
//! What a log record has beside its attributes is a field of the document with one of the names of [`Reserved`]; its attributes are fields
//! with their own names. An attribute with a name that is taken in its record stands below `attributes`, so that nothing is lost.

pub mod any;
pub mod documents;
pub mod json;
pub mod severity;
pub mod status;
pub mod wire;

pub use documents::{Document, Documents};
pub use status::Status;

/// The attribute with the id of an event. Source: <https://opentelemetry.io/docs/specs/semconv/general/logs/#general-log-identification-attributes>.
pub const RECORD_UID: &[u8] = b"log.record.uid";

/// The field below which attributes stand whose names are taken.
pub const ATTRIBUTES: &[u8] = b"attributes";

/// A field of documents that is no attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u16)]
pub enum Reserved {
    /// `@timestamp`: when it happened.
    Timestamp = 1,
    /// `message`: the body, if it is a text.
    Message = 1 << 1,
    /// `body`: any other body.
    Body = 1 << 2,
    /// `log.level`: the text of the severity.
    Level = 1 << 3,
    /// `severity_number`, where it does not follow from the text.
    SeverityNumber = 1 << 4,
    /// `trace.id`, in hexadecimal.
    Trace = 1 << 5,
    /// `span.id`, in hexadecimal.
    Span = 1 << 6,
    /// `trace_flags`: the flags.
    Flags = 1 << 7,
    /// `event_name`.
    EventName = 1 << 8,
    /// `dropped_attributes_count`.
    Dropped = 1 << 9,
    /// `resource`: an object with `attributes` and `schema_url`.
    Resource = 1 << 10,
    /// `scope`: an object with `name`, `version`, `attributes` and `schema_url`.
    Scope = 1 << 11,
}

impl Reserved {
    /// The field with this name.
    #[inline]
    pub fn of(name: &[u8]) -> Option<Self> {
        Some(match name {
            b"@timestamp" => Self::Timestamp,
            b"message" => Self::Message,
            b"body" => Self::Body,
            b"log.level" => Self::Level,
            b"severity_number" => Self::SeverityNumber,
            b"trace.id" => Self::Trace,
            b"span.id" => Self::Span,
            b"trace_flags" => Self::Flags,
            b"event_name" => Self::EventName,
            b"dropped_attributes_count" => Self::Dropped,
            b"resource" => Self::Resource,
            b"scope" => Self::Scope,
            _ => return None,
        })
    }
}
