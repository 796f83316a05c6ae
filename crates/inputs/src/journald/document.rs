//! From entries to documents.
//!
//! Fields with a meaning of their own have names of the Elastic Common Schema, everything else is below `journald`, under the
//! name that it has in the journal (`systemd.journal-fields(7)`).

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use batch::fnv::Fnv128;
use batch::json;
use datetime::rfc3339::write_rfc3339;

use super::export::Export;
use crate::connections::rendered::{Rendered, Row};

/// The tag of events that are not whole.
const CUT_TAG: &str = "_truncated";

/// How a value is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text,
    /// As a number, where it is one.
    Number,
    /// A severity by its name.
    Level,
}

/// Where a field goes.
struct Target {
    field: &'static [u8],
    path: &'static [&'static str],
    kind: Kind,
}

const fn target(field: &'static str, path: &'static [&'static str], kind: Kind) -> Target {
    Target {
        field: field.as_bytes(),
        path,
        kind,
    }
}

/// Fields by where they go: those below the same name stand together.
static TARGETS: &[Target] = &[
    target("MESSAGE", &["message"], Kind::Text),
    target("_HOSTNAME", &["host", "name"], Kind::Text),
    target("_MACHINE_ID", &["host", "id"], Kind::Text),
    target("_BOOT_ID", &["host", "boot", "id"], Kind::Text),
    target("PRIORITY", &["log", "level"], Kind::Level),
    target(
        "PRIORITY",
        &["log", "syslog", "severity", "code"],
        Kind::Number,
    ),
    target(
        "SYSLOG_FACILITY",
        &["log", "syslog", "facility", "code"],
        Kind::Number,
    ),
    target(
        "SYSLOG_IDENTIFIER",
        &["log", "syslog", "appname"],
        Kind::Text,
    ),
    target("SYSLOG_PID", &["log", "syslog", "procid"], Kind::Text),
    target("_PID", &["process", "pid"], Kind::Number),
    target("_COMM", &["process", "name"], Kind::Text),
    target("_EXE", &["process", "executable"], Kind::Text),
    target("_CMDLINE", &["process", "command_line"], Kind::Text),
    target("_UID", &["user", "id"], Kind::Text),
    target("_GID", &["user", "group", "id"], Kind::Text),
    target("_TRANSPORT", &["systemd", "transport"], Kind::Text),
    target("_SYSTEMD_UNIT", &["systemd", "unit"], Kind::Text),
    target("_SYSTEMD_USER_UNIT", &["systemd", "user_unit"], Kind::Text),
    target("_SYSTEMD_SLICE", &["systemd", "slice"], Kind::Text),
    target(
        "_SYSTEMD_USER_SLICE",
        &["systemd", "user_slice"],
        Kind::Text,
    ),
    target("_SYSTEMD_CGROUP", &["systemd", "cgroup"], Kind::Text),
    target("_SYSTEMD_SESSION", &["systemd", "session"], Kind::Text),
    target("_SYSTEMD_OWNER_UID", &["systemd", "owner_uid"], Kind::Text),
    target(
        "_SYSTEMD_INVOCATION_ID",
        &["systemd", "invocation_id"],
        Kind::Text,
    ),
];

/// Severities by number (RFC 5424, section 6.2.1), in lower case as levels are.
const LEVELS: [&str; 8] = [
    "emergency",
    "alert",
    "critical",
    "error",
    "warning",
    "notice",
    "informational",
    "debug",
];

/// Fields that are not written: what they say is in the event's time, or is its cursor.
fn is_left_out(name: &[u8]) -> bool {
    matches!(name, b"__CURSOR" | b"__REALTIME_TIMESTAMP")
}

fn is_name(name: &[u8]) -> bool {
    let is_valid = |byte: &u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || *byte == b'_';
    !name.is_empty() && name.iter().all(is_valid)
}

impl Kind {
    fn admits(self, value: &[u8]) -> bool {
        match self {
            Self::Text => true,
            Self::Number => {
                let is_short = (1..=18).contains(&value.len());
                let has_zero = value.len() > 1 && value[0] == b'0';
                is_short && !has_zero && value.iter().all(u8::is_ascii_digit)
            }
            Self::Level => matches!(value, [b'0'..=b'7']),
        }
    }

    fn write(self, value: &[u8], out: &mut Vec<u8>) {
        match (self, value) {
            (Self::Number, digits) => out.extend_from_slice(digits),
            (Self::Level, [digit, ..]) => {
                let level = LEVELS[usize::from(digit - b'0') & 7];
                json::write_string(out, level.as_bytes());
            }
            (_, text) => write_text(text, out),
        }
    }
}

/// Writes text; what is not UTF-8 becomes U+FFFD.
fn write_text(text: &[u8], out: &mut Vec<u8>) {
    match simdutf8::basic::from_utf8(text) {
        Ok(_) => json::write_string(out, text),
        Err(_) => json::write_string(out, String::from_utf8_lossy(text).as_bytes()),
    }
}

/// Writes an entry as a document, with an id that is made of its cursor; gives whether it has one. `received` is its time where it
/// says none.
pub(super) fn write(entry: &Export, received: i64, rendered: &mut Rendered) -> bool {
    let (mut cursor, mut time) = (&b""[..], None);
    // The first value of each target; the others are kept below `journald`.
    let mut found: [Option<&[u8]>; 32] = [None; 32];
    let mut others: Vec<(&[u8], &[u8])> = Vec::new();
    for (name, value) in entry.fields() {
        match name {
            b"__CURSOR" => cursor = value,
            b"__REALTIME_TIMESTAMP" => time = micros(value),
            _ => {}
        }
        if is_left_out(name) || !is_name(name) {
            continue;
        }
        let mut is_placed = false;
        for (target, found) in TARGETS.iter().zip(&mut found) {
            if target.field == name && found.is_none() && target.kind.admits(value) {
                *found = Some(value);
                is_placed = true;
            }
        }
        if !is_placed {
            others.push((name, value));
        }
    }
    let (start, out) = (rendered.position(), rendered.out());
    out.extend_from_slice(b"{\"@timestamp\":\"");
    write_rfc3339(out, time.unwrap_or(received));
    out.push(b'"');
    write_targets(&found, out);
    write_others(others, &found, out);
    out.push(b'}');
    let mut row = Row {
        document: start..out.len(),
        ..Row::default()
    };
    if entry.is_cut() {
        row.tag = Some((CUT_TAG, "the entry is longer than `max_event_bytes`"));
    }
    if !cursor.is_empty() {
        let id = out.len();
        let mut hash = Fnv128::new();
        hash.add_part(cursor);
        out.extend_from_slice(format!("{:032x}", hash.value()).as_bytes());
        row.id = id..out.len();
        out.extend_from_slice(b"{\"journald\":{\"cursor\":");
        write_text(cursor, out);
        out.extend_from_slice(b"}}");
        row.metadata = row.id.end..out.len();
    }
    rendered.push(row);
    !cursor.is_empty()
}

/// Microseconds as nanoseconds.
fn micros(value: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(value).ok()?;
    text.parse::<i64>().ok()?.checked_mul(1000)
}

/// Writes the values that were found, each below the names of its path.
fn write_targets(found: &[Option<&[u8]>; 32], out: &mut Vec<u8>) {
    let mut open: &[&str] = &[];
    for (target, value) in TARGETS.iter().zip(found) {
        let Some(value) = value else { continue };
        let (name, parents) = target.path.split_last().unwrap_or((&"", &[]));
        let same = open.iter().zip(parents).take_while(|(a, b)| a == b).count();
        out.extend(std::iter::repeat_n(b'}', open.len() - same));
        for parent in &parents[same..] {
            member(parent, out);
            out.push(b'{');
        }
        open = parents;
        member(name, out);
        target.kind.write(value, out);
    }
    out.extend(std::iter::repeat_n(b'}', open.len()));
}

/// Writes a name of the object that is open, with the comma before it.
fn member(name: &str, out: &mut Vec<u8>) {
    if out.last() != Some(&b'{') {
        out.push(b',');
    }
    out.push(b'"');
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"\":");
}

/// Writes the other fields below `journald`, those with several values as arrays, and values that are no text in base64 as well.
fn write_others(mut others: Vec<(&[u8], &[u8])>, found: &[Option<&[u8]>; 32], out: &mut Vec<u8>) {
    let is_text = |value: &[u8]| simdutf8::basic::from_utf8(value).is_ok();
    let placed = TARGETS.iter().zip(found);
    let placed = placed.filter_map(|(target, value)| Some((target.field, (*value)?)));
    let binary: Vec<(&[u8], &[u8])> = placed
        .chain(others.iter().copied())
        .filter(|(_, value)| !is_text(value))
        .collect();
    if others.is_empty() && binary.is_empty() {
        return;
    }
    member("journald", out);
    out.push(b'{');
    others.sort_by_key(|(name, _)| *name);
    write_groups(&others, write_text, out);
    if !binary.is_empty() {
        let mut binary = binary;
        binary.sort_by_key(|(name, _)| *name);
        member("binary", out);
        out.push(b'{');
        let encoded = |value: &[u8], out: &mut Vec<u8>| {
            json::write_string(out, STANDARD.encode(value).as_bytes());
        };
        write_groups(&binary, encoded, out);
        out.push(b'}');
    }
    out.push(b'}');
}

/// Writes values by their names, which are in order.
fn write_groups(fields: &[(&[u8], &[u8])], write: impl Fn(&[u8], &mut Vec<u8>), out: &mut Vec<u8>) {
    for group in fields.chunk_by(|(a, _), (b, _)| a == b) {
        let [(name, first), others @ ..] = group else {
            continue;
        };
        member(std::str::from_utf8(name).unwrap_or_default(), out);
        if others.is_empty() {
            write(first, out);
            continue;
        }
        out.push(b'[');
        write(first, out);
        for (_, value) in others {
            out.push(b',');
            write(value, out);
        }
        out.push(b']');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document(text: &[u8]) -> String {
        let mut export = Export::new(1 << 20);
        assert!(export.read(text).1, "an entry");
        let mut rendered = Rendered::default();
        write(&export, 0, &mut rendered);
        let text = String::from_utf8(rendered.written().to_vec()).expect("UTF-8");
        let end = text.find("}{").or(text.rfind('}')).expect("an object");
        text[..=end].to_owned()
    }

    #[test]
    fn fields_have_names_of_the_common_schema() {
        let entry = b"__REALTIME_TIMESTAMP=1700000000000001\nMESSAGE=a \"b\"\nPRIORITY=3\n_PID=42\n_UID=0\n_HOSTNAME=h\n_BOOT_ID=b\n_SYSTEMD_UNIT=app.service\nCODE_FILE=x.c\nSYSLOG_FACILITY=oops\n\n";
        let expected = format!(
            r#"{{"@timestamp":"2023-11-14T22:13:20.000001Z","message":"a \"b\"","host":{{"name":"h","boot":{{"id":"b"}}}},"log":{{"level":"{}","syslog":{{"severity":{{"code":3}}}}}},"process":{{"pid":42}},"user":{{"id":"0"}},"systemd":{{"unit":"app.service"}},"journald":{{"CODE_FILE":"x.c","SYSLOG_FACILITY":"oops"}}}}"#,
            LEVELS[3]
        );
        assert_eq!(document(entry), expected);
    }

    #[test]
    fn nothing_of_an_entry_is_lost() {
        let entry = b"MESSAGE\n\x02\0\0\0\0\0\0\0a\xff\nMESSAGE=second\nX=1\nX=2\nA\n\x01\0\0\0\0\0\0\0\xfe\n\n";
        let expected = "{\"@timestamp\":\"1970-01-01T00:00:00.000Z\",\"message\":\"a\u{fffd}\",\"journald\":{\"A\":\"\u{fffd}\",\"MESSAGE\":\"second\",\"X\":[\"1\",\"2\"],\"binary\":{\"A\":\"/g==\",\"MESSAGE\":\"Yf8=\"}}}";
        assert_eq!(document(entry), expected);
        assert_eq!(
            document(b"_PID=007\n\n"),
            r#"{"@timestamp":"1970-01-01T00:00:00.000Z","journald":{"_PID":"007"}}"#
        );
    }
}
