//! For tests only: what must hold for the decoders of foreign bytes, whatever the bytes are.
//!
//! A *target* is a decoder with its properties: it does not panic, keeps to its limits, gives the same from bytes that come
//! in other pieces, and whatever it accepts can be written and read again. The fuzzer in the folder `fuzz` runs each target on bytes
//! that it makes up; what it found worth keeping, the [`corpus`], is run by this crate's tests as well.
//!
//! | module | targets |
//! | --- | --- |
//! | [`clients`] | what clients send to the inputs `beats`, `forward`, `elasticsearch`, `otlp`, `splunk_hec` and `loki` |
//! | [`servers`] | what servers answer to the outputs `elasticsearch` and `otlp`, and what the latter sends |
//! | [`streams`] | files and sockets: lines, framing, multi-line records, CSV, containers, syslog, documents |
//! | [`documents`] | JSON and MessagePack documents, bodies of requests |
//! | [`compressed`] | gzip, zstd and deflate |
//! | [`profiles`] | profiles of other programs, tables of programs, maps and names of code |
//! | [`texts`] | what users write: expressions, templates, patterns, formats, configurations |
//! | [`stored`] | what Millpond wrote to disk, and damage may have changed |

mod clients;
mod compressed;
pub mod corpus;
mod documents;
mod profiles;
mod rows;
mod servers;
mod stored;
mod streams;
mod texts;

/// Runs a decoder on bytes.
///
/// # Panics
/// A property does not hold.
pub type Target = fn(&[u8]);

/// Every target, by name.
pub const TARGETS: &[(&str, Target)] = &[
    ("batch", stored::batch),
    ("beats", clients::beats),
    ("body", documents::body),
    ("bulk", clients::bulk),
    ("bulk_reply", servers::reply),
    ("bulk_route", clients::route),
    ("collapsed", profiles::collapsed),
    ("config_oneline", texts::oneline),
    ("config_yaml", texts::yaml),
    ("container", streams::container),
    ("csv", streams::csv),
    ("date", texts::date),
    ("deflate", compressed::deflate),
    ("dissect", texts::dissect),
    ("elf_symbols", profiles::elf_symbols),
    ("elf_tables", profiles::elf_tables),
    ("expr", texts::expression),
    ("forward", clients::forward),
    ("forward_handshake", clients::handshake),
    ("framing", streams::framing),
    ("grok", texts::grok),
    ("gzip", compressed::gzip),
    ("journal", streams::journal),
    ("json", documents::json),
    ("json_stream", streams::json),
    ("kallsyms", profiles::kallsyms),
    ("kv", texts::kv),
    ("loki", clients::loki),
    ("mangled", profiles::mangled),
    ("msgpack", documents::msgpack),
    ("msgpack_stream", streams::msgpack),
    ("multiline", streams::multiline),
    ("otlp", profiles::otlp),
    ("otlp_answer", servers::otlp_answer),
    ("otlp_event", servers::otlp_event),
    ("otlp_logs", clients::otlp_logs),
    ("otlp_reply", profiles::otlp_reply),
    ("perf_map", profiles::perf_map),
    ("perf_script", profiles::perf_script),
    ("pprof", profiles::pprof),
    ("queue", stored::queue),
    ("registry", stored::registry),
    ("splunk_hec", clients::splunk_hec),
    ("syslog", streams::syslog),
    ("template", texts::template),
    ("zstd", compressed::zstd),
];

/// Runs the target of a name.
///
/// # Panics
/// There is none, or one of its properties does not hold.
pub fn run(name: &str, bytes: &[u8]) {
    let target = TARGETS.iter().find(|(known, _)| *known == name);
    let (_, target) = target.unwrap_or_else(|| panic!("there is no target {name:?}"));
    target(bytes);
}

/// The first byte, which says how the others are read, and these.
fn choice(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let (first, rest) = bytes.split_first()?;
    Some((usize::from(*first), rest))
}
