//! The messages of pprof's `profile.proto`, of which files hold one, compressed with gzip.
//!
//! Source of names and numbers: <https://github.com/google/pprof/blob/main/proto/profile.proto>. Texts are numbers of the string table.

use prost::Message;

/// A profile.
#[derive(Clone, PartialEq, Message)]
pub struct Profile {
    #[prost(message, repeated, tag = "1")]
    pub sample_types: Vec<ValueType>,
    #[prost(message, repeated, tag = "2")]
    pub samples: Vec<Sample>,
    #[prost(message, repeated, tag = "3")]
    pub mappings: Vec<Mapping>,
    #[prost(message, repeated, tag = "4")]
    pub locations: Vec<Location>,
    #[prost(message, repeated, tag = "5")]
    pub functions: Vec<Function>,
    /// Bytes, as some writers put text there that is not UTF-8.
    #[prost(bytes = "vec", repeated, tag = "6")]
    pub strings: Vec<Vec<u8>>,
    #[prost(int64, tag = "9")]
    pub time_ns: i64,
    #[prost(int64, tag = "10")]
    pub duration_ns: i64,
    #[prost(message, optional, tag = "11")]
    pub period_type: Option<ValueType>,
    #[prost(int64, tag = "12")]
    pub period: i64,
    #[prost(int64, repeated, tag = "13")]
    pub comments: Vec<i64>,
}

/// A profile without its samples and its texts.
#[derive(Clone, PartialEq, Message)]
pub struct Dictionary {
    #[prost(message, repeated, tag = "1")]
    pub sample_types: Vec<ValueType>,
    #[prost(message, repeated, tag = "3")]
    pub mappings: Vec<Mapping>,
    #[prost(message, repeated, tag = "4")]
    pub locations: Vec<Location>,
    #[prost(message, repeated, tag = "5")]
    pub functions: Vec<Function>,
    #[prost(int64, tag = "9")]
    pub time_ns: i64,
    #[prost(int64, tag = "10")]
    pub duration_ns: i64,
    #[prost(message, optional, tag = "11")]
    pub period_type: Option<ValueType>,
    #[prost(int64, tag = "12")]
    pub period: i64,
    #[prost(int64, repeated, tag = "13")]
    pub comments: Vec<i64>,
}

/// The number of a profile's field of samples.
pub const SAMPLES_TAG: u32 = 2;

/// The number of a profile's field of texts.
pub const STRINGS_TAG: u32 = 6;

/// What a value counts, and in which unit.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct ValueType {
    #[prost(int64, tag = "1")]
    pub kind: i64,
    #[prost(int64, tag = "2")]
    pub unit: i64,
}

/// A stack, from the innermost location on, with a value of each type.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Sample {
    #[prost(uint64, repeated, tag = "1")]
    pub locations: Vec<u64>,
    #[prost(int64, repeated, tag = "2")]
    pub values: Vec<i64>,
    #[prost(message, repeated, tag = "3")]
    pub labels: Vec<Label>,
}

/// A label of a sample: a text or a number.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Label {
    #[prost(int64, tag = "1")]
    pub key: i64,
    #[prost(int64, tag = "2")]
    pub text: i64,
    #[prost(int64, tag = "3")]
    pub number: i64,
    #[prost(int64, tag = "4")]
    pub unit: i64,
}

/// A file in the memory of the process.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Mapping {
    #[prost(uint64, tag = "1")]
    pub id: u64,
    #[prost(uint64, tag = "2")]
    pub start: u64,
    #[prost(uint64, tag = "3")]
    pub limit: u64,
    #[prost(uint64, tag = "4")]
    pub file_offset: u64,
    #[prost(int64, tag = "5")]
    pub file: i64,
    #[prost(int64, tag = "6")]
    pub build_id: i64,
    #[prost(bool, tag = "7")]
    pub has_functions: bool,
    #[prost(bool, tag = "8")]
    pub has_files: bool,
    #[prost(bool, tag = "9")]
    pub has_lines: bool,
    #[prost(bool, tag = "10")]
    pub has_inlined: bool,
}

/// An instruction: the function that it is part of, behind those that were inlined there.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Location {
    #[prost(uint64, tag = "1")]
    pub id: u64,
    #[prost(uint64, tag = "2")]
    pub mapping: u64,
    #[prost(uint64, tag = "3")]
    pub address: u64,
    #[prost(message, repeated, tag = "4")]
    pub lines: Vec<Line>,
}

/// A line of a function.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Line {
    #[prost(uint64, tag = "1")]
    pub function: u64,
    #[prost(int64, tag = "2")]
    pub line: i64,
}

/// A function.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Function {
    #[prost(uint64, tag = "1")]
    pub id: u64,
    #[prost(int64, tag = "2")]
    pub name: i64,
    #[prost(int64, tag = "3")]
    pub system_name: i64,
    #[prost(int64, tag = "4")]
    pub file: i64,
    #[prost(int64, tag = "5")]
    pub start_line: i64,
}
