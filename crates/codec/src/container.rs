//! What container engines write to the log files of their containers.
//!
//! # The formats
//! CRI (containerd, CRI-O), a line each: time, stream, tags and the text, with one space between them. The first of the
//! tags, which colons separate, is `P` where the line goes on in the next one of the same stream, and `F` where it is whole.
//! ```text
//! 2016-10-06T00:17:09.669794202Z stdout P the first part and
//! 2016-10-06T00:17:09.669794203Z stdout F the second
//! ```
//! Docker's `json-file`, an object each; the text ends with a line feed where the line is whole.
//! ```text
//! {"log":"text\n","stream":"stderr","time":"2019-03-01T10:00:00.123456789Z"}
//! ```
//! With the logging options `labels`, `env` and `tag` it has an object `attrs` of these, too.
//!
//! Sources: <https://github.com/kubernetes/design-proposals-archive/blob/main/node/kubelet-cri-logging.md>,
//! <https://docs.docker.com/engine/logging/drivers/json-file/>.

use std::ops::Range;

use batch::json;
use jiff::fmt::temporal::DateTimeParser;
use schemars::JsonSchema;
use serde::Deserialize;

/// What wrote the lines of a container's log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ContainerFormat {
    /// Either of the two, detected for each line.
    Auto,
    /// Docker's `json-file`: `{"log":"…\n","stream":"stdout","time":"…"}`.
    Docker,
    /// The Container Runtime Interface of Kubernetes: `2026-01-02T03:04:05.678901234Z stdout F …`.
    Cri,
}

/// What a container says of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// When its first line was written, in nanoseconds since 1970, and where to.
    Written {
        time: i64,
        is_stderr: bool,
        /// The number of its attributes, among those of its chunk.
        attrs: Option<u32>,
    },
    /// Nothing: it is no line of a container.
    Other,
}

/// A line of a container.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ContainerLine {
    /// Nanoseconds since 1970.
    pub(crate) time: i64,
    pub(crate) is_stderr: bool,
    pub(crate) is_partial: bool,
    /// Where the text stands in the line.
    pub(crate) text: Range<usize>,
    /// The text is the body of a JSON string.
    pub(crate) is_escaped: bool,
    /// Where the attributes stand in the line: a JSON object.
    pub(crate) attrs: Option<Range<usize>>,
}

impl ContainerLine {
    pub(crate) fn origin(&self, attrs: Option<u32>) -> Origin {
        Origin::Written {
            time: self.time,
            is_stderr: self.is_stderr,
            attrs,
        }
    }
}

/// Reads a line; none where it is not of the format.
pub(crate) fn parse(format: ContainerFormat, line: &[u8]) -> Option<ContainerLine> {
    match format {
        ContainerFormat::Cri => parse_cri(line),
        ContainerFormat::Docker => parse_docker(line),
        ContainerFormat::Auto if line.first() == Some(&b'{') => parse_docker(line),
        ContainerFormat::Auto => parse_cri(line),
    }
}

fn parse_cri(line: &[u8]) -> Option<ContainerLine> {
    let space = |from: usize| Some(from + memchr::memchr(b' ', &line[from..])?);
    let time_end = space(0)?;
    let stream_end = space(time_end + 1)?;
    // A line without text may lack the space in front of it.
    let tags_end = space(stream_end + 1).unwrap_or(line.len());
    let tags = line[stream_end + 1..tags_end].split(|byte| *byte == b':');
    let is_partial = match tags.into_iter().next()? {
        b"P" => true,
        b"F" | b"F\r" => false,
        _ => return None,
    };
    Some(ContainerLine {
        is_stderr: is_stderr(&line[time_end + 1..stream_end])?,
        time: time(&line[..time_end])?,
        is_partial,
        text: (tags_end + 1).min(line.len())..line.len(),
        is_escaped: false,
        attrs: None,
    })
}

fn parse_docker(line: &[u8]) -> Option<ContainerLine> {
    if simdutf8::basic::from_utf8(line).is_err() || json::validate_object(line).is_err() {
        return None;
    }
    let (mut log, mut stream, mut written, mut attrs) = (None, None, None, None);
    for member in json::members(line) {
        let value = &line[member.value.clone()];
        match json::kind(value) {
            json::Kind::String => {}
            json::Kind::Object if member.key == b"attrs" => {
                attrs = Some(member.value);
                continue;
            }
            _ => continue,
        }
        let body = member.value.start + 1..member.value.end - 1;
        match member.key {
            b"log" => log = Some(body),
            b"stream" => stream = Some(is_stderr(&line[body])?),
            b"time" => written = Some(time(&line[body])?),
            _ => {}
        }
    }
    let log = log?;
    let body = &line[log.clone()];
    let is_whole = ends_with_newline(body);
    let text = log.start..log.end - if is_whole { 2 } else { 0 };
    Some(ContainerLine {
        time: written?,
        is_stderr: stream?,
        is_partial: !is_whole,
        is_escaped: json::has_escape(&line[text.clone()]),
        text,
        attrs,
    })
}

/// Whether the body of a JSON string ends with the escape of a line feed, and not with an `n` behind an escaped backslash.
fn ends_with_newline(body: &[u8]) -> bool {
    body.strip_suffix(b"n").is_some_and(|rest| {
        let others = rest.iter().rev().take_while(|byte| **byte == b'\\');
        others.count() % 2 == 1
    })
}

fn is_stderr(stream: &[u8]) -> Option<bool> {
    match stream {
        b"stdout" => Some(false),
        b"stderr" => Some(true),
        _ => None,
    }
}

fn time(text: &[u8]) -> Option<i64> {
    static PARSER: DateTimeParser = DateTimeParser::new();
    let time = PARSER.parse_timestamp(text).ok()?;
    i64::try_from(time.as_nanosecond()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(line: &str) -> Option<(i64, bool, bool, &str, bool)> {
        let parsed = parse(ContainerFormat::Auto, line.as_bytes())?;
        let text = &line[parsed.text];
        let times = (parsed.time, parsed.is_stderr, parsed.is_partial);
        Some((times.0, times.1, times.2, text, parsed.is_escaped))
    }

    #[test]
    fn lines_of_containers() {
        let nanos = 1_475_713_029_669_794_202;
        let cases = [
            (
                "2016-10-06T00:17:09.669794202Z stdout P partial text ",
                Some((nanos, false, true, "partial text ", false)),
            ),
            (
                "2016-10-06T02:17:09.669794202+02:00 stderr F:x:y a",
                Some((nanos, true, false, "a", false)),
            ),
            (
                "2016-10-06T00:17:09.669794202Z stdout F ",
                Some((nanos, false, false, "", false)),
            ),
            (
                "2016-10-06T00:17:09.669794202Z stdout F",
                Some((nanos, false, false, "", false)),
            ),
            ("2016-10-06T00:17:09.669794202Z stdout X a", None),
            ("2016-10-06T00:17:09.669794202Z stdlog F a", None),
            ("yesterday stdout F a", None),
            ("", None),
            (
                r#"{"log":"a\n","stream":"stdout","time":"2016-10-06T00:17:09.669794202Z"}"#,
                Some((nanos, false, false, "a", false)),
            ),
            (
                r#"{"log":"a\\n","attrs":{"log":"b"},"stream":"stderr","time":"2016-10-06T00:17:09.669794202Z"}"#,
                Some((nanos, true, true, r"a\\n", true)),
            ),
            (
                r#"{"log":"\"\\\n","stream":"stderr","time":"2016-10-06T00:17:09.669794202Z"}"#,
                Some((nanos, true, false, r#"\"\\"#, true)),
            ),
            (
                r#"{"log":1,"stream":"stdout","time":"2016-10-06T00:17:09Z"}"#,
                None,
            ),
            (r#"{"log":"a\n","stream":"stdout"}"#, None),
            (r#"{"log":"a\n","#, None),
        ];
        for (line, expected) in cases {
            assert_eq!(seen(line), expected, "{line}");
        }
    }
}
