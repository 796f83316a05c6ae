//! OTLP profiles, in and out: files (`ProfilesData`) and requests to and answers of collectors, as protobuf.
//!
//! | what | where |
//! | --- | --- |
//! | how often | a profile of the type `samples`/`count` |
//! | processor time | its period in `cpu`/`nanoseconds`; where the period does not say it, a second profile of that type |
//! | labels of hosts, services, containers, processes | attributes of the resource |
//! | other labels | attributes of samples: `thread.name`, else under their own names |
//! | kind of code | `profile.frame.type`, for our names in brackets: `jvm` for `[jvm]`, `cpython` for `[python]`, `v8js` for `[node]`; `go` and `rust` are native; another type without a file is an interpreter |
//! | `[broken stack]` | read from `abort-marker`, with which the eBPF profiler says that it found no further caller |
//! | binary and build id | mappings with `process.executable.build_id.gnu`; without it `go:` and `htlhash:` with the identifiers of those names, which find no file |
//! | inlined functions | lines of one location |
//!
//! The signal is in development: the fields are those of opentelemetry-proto 1.10.0. Messages are our own, since the crate
//! `opentelemetry-proto` brings the whole SDK. Profiles of other types, such as memory or waiting, are counted and left out. Two
//! profiles of one program and one time, of which one counts samples and the other one processor time, are one.
//!
//! # Limits
//! A message has up to [`MESSAGE_BYTES_MAX`] bytes, of which the decoded message takes up to 75 times as many; what its stacks and names add
//! up to is limited by [`Excess`](crate::Excess). A set of labels has up to
//! [`LABELS_MAX`] with [`LABEL_BYTES_MAX`] bytes each; more labels and longer values are cut, as are names
//! of functions and files of more than [`NAME_BYTES_MAX`].

mod message;
mod names;
mod reading;
mod response;
mod writing;

pub use reading::{
    LABEL_BYTES_MAX, LABELS_MAX, MESSAGE_BYTES_MAX, NAME_BYTES_MAX, OtlpError, Received, read,
};
pub use response::{Answer, read_response, response};
pub use writing::write;

#[cfg(test)]
mod tests;
