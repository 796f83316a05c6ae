//! Names of OpenTelemetry's semantic conventions, and ours for the same.
//!
//! Sources: <https://opentelemetry.io/docs/specs/semconv/registry/attributes/> (`host`, `service`, `container`, `process`, `thread`)
//! and <https://opentelemetry.io/docs/specs/semconv/registry/attributes/profile/>.

use std::borrow::Cow;

use crate::profile::label;

/// The build id of an executable, and other names for executables without one, with what they begin with here: none of them is a build id that a
/// file has.
const BUILD_IDS: [(&str, &str); 3] = [
    ("process.executable.build_id.gnu", ""),
    ("process.executable.build_id.go", "go:"),
    ("process.executable.build_id.htlhash", "htlhash:"),
];
/// What kind of code a frame is.
pub const FRAME_TYPE: &str = "profile.frame.type";
/// Samples that were lost while a profile was recorded; a name of our own.
pub const LOST: &str = "millpond.profile.lost_samples";

/// How often a stack was seen.
pub const SAMPLES: (&str, &str) = ("samples", "count");
/// Processor time.
pub const CPU: (&str, &str) = ("cpu", "nanoseconds");

/// Our labels, their attributes, and whether these belong to the resource.
const LABELS: [(&str, &str, bool); 8] = [
    (label::HOST, "host.name", true),
    (label::SERVICE, "service.name", true),
    (label::CONTAINER, "container.id", true),
    (label::PROCESS, "process.executable.name", true),
    (label::PID, "process.pid", true),
    (label::THREAD, "thread.name", false),
    (label::PIPELINE, "millpond.pipeline", false),
    (label::OPERATOR, "millpond.operator", false),
];

/// The type of a frame that stands for callers that were not found, and what we call it.
pub const ABORTED: (&str, &str) = ("abort-marker", "[broken stack]");

/// Types of frames that are machine code of a file.
const NATIVE: [&str; 4] = ["", "native", "go", "rust"];

/// Types of frames, and what we call their binaries.
const FRAME_TYPES: [(&str, &str); 9] = [
    ("kernel", "[kernel]"),
    ("jvm", "[jvm]"),
    ("cpython", "[python]"),
    ("v8js", "[node]"),
    ("php", "[php]"),
    ("ruby", "[ruby]"),
    ("perl", "[perl]"),
    ("dotnet", "[dotnet]"),
    ("beam", "[beam]"),
];

/// The label for an attribute; others keep their names.
pub fn label_of(attribute: &str) -> &str {
    let mut labels = LABELS.iter();
    let known = labels.find(|(_, name, _)| *name == attribute);
    known.map_or(attribute, |(label, ..)| label)
}

/// The attribute for a label, and whether it belongs to the resource.
pub fn attribute_of(label: &str) -> (&str, bool) {
    let mut labels = LABELS.iter();
    let known = labels.find(|(name, ..)| *name == label);
    known.map_or((label, false), |(_, name, is_resource)| {
        (name, *is_resource)
    })
}

/// The build id that one of several attributes has, the most telling one first. `find` gives the value of an attribute; empty for none.
pub fn build_id<E>(mut find: impl FnMut(&str) -> Result<String, E>) -> Result<String, E> {
    for (name, prefix) in BUILD_IDS {
        let value = find(name)?;
        if !value.is_empty() {
            return Ok(prefix.to_owned() + &value);
        }
    }
    Ok(String::new())
}

/// The attribute for a build id, and its value.
pub fn build_id_attribute(build_id: &str) -> (&'static str, &str) {
    let [gnu, others @ ..] = BUILD_IDS;
    let mut others = others.into_iter();
    let other = others.find_map(|(name, prefix)| Some((name, build_id.strip_prefix(prefix)?)));
    other.unwrap_or((gnu.0, build_id))
}

/// The binary for a type of frames that has no file of its own. `file` is that of its mapping: custom types without one are taken for those of
/// interpreters.
pub fn binary_of(frame_type: &str, file: &str) -> Option<Cow<'static, str>> {
    let mut types = FRAME_TYPES.iter();
    let known = types.find(|(name, _)| *name == frame_type);
    match known {
        Some((_, binary)) => Some(Cow::Borrowed(binary)),
        None if file.is_empty() && !NATIVE.contains(&frame_type) => {
            Some(Cow::Owned(format!("[{frame_type}]")))
        }
        None => None,
    }
}

/// The type of the frames of a binary. Those of other names in brackets have none.
pub fn frame_type_of(binary: &str) -> Option<&'static str> {
    let mut types = FRAME_TYPES.iter();
    let known = types.find(|(_, name)| *name == binary);
    match known {
        Some((name, _)) => Some(name),
        None if binary.is_empty() || binary.starts_with('[') => None,
        None => Some("native"),
    }
}

/// Nanoseconds of a unit of time.
pub fn nanoseconds(unit: &str) -> Option<f64> {
    match unit {
        "nanoseconds" | "ns" => Some(1.0),
        "microseconds" | "us" => Some(1e3),
        "milliseconds" | "ms" => Some(1e6),
        "seconds" | "s" => Some(1e9),
        _ => None,
    }
}
