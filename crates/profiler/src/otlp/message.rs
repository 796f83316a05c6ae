//! The messages of OTLP profiles, of opentelemetry-proto 1.10.0, as far as they are read or written here.
//!
//! Source of names and numbers:
//! <https://github.com/open-telemetry/opentelemetry-proto/blob/v1.10.0/opentelemetry/proto/profiles/v1development/profiles.proto>,
//! `collector/profiles/v1development/profiles_service.proto`, `common/v1/common.proto` and `resource/v1/resource.proto` beside it.
//!
//! The first element of each table of the dictionary is an empty one, so that 0 stands for none.

use prost::{Message, Oneof};

/// A file, and the request of the collector's service, which has the same fields.
#[derive(Clone, PartialEq, Message)]
pub struct ProfilesData {
    #[prost(message, repeated, tag = "1")]
    pub resources: Vec<ResourceProfiles>,
    #[prost(message, optional, tag = "2")]
    pub dictionary: Option<Dictionary>,
}

/// The answer of the collector's service.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ExportResponse {
    #[prost(message, optional, tag = "1")]
    pub partial_success: Option<PartialSuccess>,
}

/// What was not taken.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct PartialSuccess {
    #[prost(int64, tag = "1")]
    pub rejected_profiles: i64,
    #[prost(string, tag = "2")]
    pub error_message: String,
}

/// What all profiles of a message share.
#[derive(Clone, PartialEq, Message)]
pub struct Dictionary {
    #[prost(message, repeated, tag = "1")]
    pub mappings: Vec<Mapping>,
    #[prost(message, repeated, tag = "2")]
    pub locations: Vec<Location>,
    #[prost(message, repeated, tag = "3")]
    pub functions: Vec<Function>,
    #[prost(message, repeated, tag = "4")]
    pub links: Vec<Link>,
    #[prost(string, repeated, tag = "5")]
    pub strings: Vec<String>,
    #[prost(message, repeated, tag = "6")]
    pub attributes: Vec<Attribute>,
    #[prost(message, repeated, tag = "7")]
    pub stacks: Vec<Stack>,
}

/// Profiles of one process, service or host.
#[derive(Clone, PartialEq, Message)]
pub struct ResourceProfiles {
    #[prost(message, optional, tag = "1")]
    pub resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    pub scopes: Vec<ScopeProfiles>,
}

/// What the profiles are of.
#[derive(Clone, PartialEq, Message)]
pub struct Resource {
    #[prost(message, repeated, tag = "1")]
    pub attributes: Vec<KeyValue>,
}

/// Profiles that one program took.
#[derive(Clone, PartialEq, Message)]
pub struct ScopeProfiles {
    #[prost(message, optional, tag = "1")]
    pub scope: Option<Scope>,
    #[prost(message, repeated, tag = "2")]
    pub profiles: Vec<Profile>,
}

/// That program.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Scope {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub version: String,
}

/// Samples of one type.
#[derive(Clone, PartialEq, Message)]
pub struct Profile {
    #[prost(message, optional, tag = "1")]
    pub sample_type: Option<ValueType>,
    #[prost(message, repeated, tag = "2")]
    pub samples: Vec<Sample>,
    #[prost(fixed64, tag = "3")]
    pub time_ns: u64,
    #[prost(uint64, tag = "4")]
    pub duration_ns: u64,
    #[prost(message, optional, tag = "5")]
    pub period_type: Option<ValueType>,
    #[prost(int64, tag = "6")]
    pub period: i64,
    #[prost(int32, repeated, tag = "11")]
    pub attributes: Vec<i32>,
}

/// A span that a sample belongs to; none is written.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Link {
    #[prost(bytes = "vec", tag = "1")]
    pub trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub span_id: Vec<u8>,
}

/// What a value counts, and in which unit.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct ValueType {
    #[prost(int32, tag = "1")]
    pub kind: i32,
    #[prost(int32, tag = "2")]
    pub unit: i32,
}

/// A stack with its values: one, or one for each time at which it was seen. Without values each time counts 1.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Sample {
    #[prost(int32, tag = "1")]
    pub stack: i32,
    #[prost(int32, repeated, tag = "2")]
    pub attributes: Vec<i32>,
    #[prost(int32, tag = "3")]
    pub link: i32,
    #[prost(int64, repeated, tag = "4")]
    pub values: Vec<i64>,
    #[prost(fixed64, repeated, tag = "5")]
    pub times_ns: Vec<u64>,
}

/// A file in memory.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Mapping {
    #[prost(uint64, tag = "1")]
    pub start: u64,
    #[prost(uint64, tag = "2")]
    pub limit: u64,
    #[prost(uint64, tag = "3")]
    pub file_offset: u64,
    #[prost(int32, tag = "4")]
    pub file: i32,
    #[prost(int32, repeated, tag = "5")]
    pub attributes: Vec<i32>,
}

/// Locations from the innermost on.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Stack {
    #[prost(int32, repeated, tag = "1")]
    pub locations: Vec<i32>,
}

/// An instruction: the function that it is part of, behind those that were inlined there.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Location {
    #[prost(int32, tag = "1")]
    pub mapping: i32,
    #[prost(uint64, tag = "2")]
    pub address: u64,
    #[prost(message, repeated, tag = "3")]
    pub lines: Vec<Line>,
    #[prost(int32, repeated, tag = "4")]
    pub attributes: Vec<i32>,
}

/// A line of a function.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Line {
    #[prost(int32, tag = "1")]
    pub function: i32,
    #[prost(int64, tag = "2")]
    pub line: i64,
}

/// A function.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Function {
    #[prost(int32, tag = "1")]
    pub name: i32,
    #[prost(int32, tag = "2")]
    pub system_name: i32,
    #[prost(int32, tag = "3")]
    pub file: i32,
}

/// An attribute of the dictionary.
#[derive(Clone, PartialEq, Message)]
pub struct Attribute {
    #[prost(int32, tag = "1")]
    pub key: i32,
    #[prost(message, optional, tag = "2")]
    pub value: Option<AnyValue>,
}

/// An attribute of a resource; its key is a text or the number of one.
#[derive(Clone, PartialEq, Message)]
pub struct KeyValue {
    #[prost(string, tag = "1")]
    pub key: String,
    #[prost(message, optional, tag = "2")]
    pub value: Option<AnyValue>,
    #[prost(int32, tag = "3")]
    pub key_number: i32,
}

/// A value. Lists, maps and bytes are passed over.
#[derive(Clone, PartialEq, Message)]
pub struct AnyValue {
    #[prost(oneof = "Value", tags = "1, 2, 3, 4, 8")]
    pub value: Option<Value>,
}

/// The kinds of values that can be labels.
#[derive(Clone, PartialEq, Oneof)]
pub enum Value {
    #[prost(string, tag = "1")]
    Text(String),
    #[prost(bool, tag = "2")]
    Bool(bool),
    #[prost(int64, tag = "3")]
    Int(i64),
    #[prost(double, tag = "4")]
    Double(f64),
    #[prost(int32, tag = "8")]
    TextNumber(i32),
}
