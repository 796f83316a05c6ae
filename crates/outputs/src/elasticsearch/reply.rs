//! What a reply to a bulk request means.
//!
//! A reply is read whole and believed only when it has one item for each row: a reply that was cut, is no JSON, or has
//! another number of items fails the request, which is sent again. [`FILTER`] keeps replies small: of a document that was
//! stored nothing but its status is left, 25 bytes.
//!
//! | status of an item | what becomes of the document |
//! | --- | --- |
//! | 2xx | stored |
//! | 409 for `create` with an id | stored before |
//! | 429, 5xx; 409 otherwise; what is no 4xx | sent again |
//! | 401, 403, 404 | sent again once a person has mended something |
//! | 400 for what is no fault of the document ([`is_blocked`]) | the same |
//! | any other 4xx | refused, with type and reason |
//!
//! Of a whole request every 4xx status but 408, 413 and 429 waits for a person: none of them says that a document is wrong.

use std::sync::Arc;

use component::{RowAnswer, SendError, Sent, plural};
use http::StatusCode;
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::Value;

use super::action::Verb;
use crate::answer::words;

/// What of a reply is wanted.
pub const FILTER: &str = "errors,items.*.status,items.*.error.type,items.*.error.reason,\
                          items.*.error.caused_by.type,items.*.error.caused_by.reason";

/// The most characters of a reason, cause included.
const REASON_CHARS_MAX: usize = 500;

/// How a request's rows were meant.
#[derive(Debug, Clone, Copy)]
pub struct Asked {
    pub verb: Verb,
    /// Whether documents have ids, so that a repeated one is known.
    pub finds_repeats: bool,
    /// Whether events have no say in the index.
    pub is_fixed: bool,
    pub rows: usize,
}

/// What became of the rows, and how many were there already.
#[derive(Debug, Default)]
pub struct Judged {
    pub sent: Sent,
    pub repeats: u64,
}

#[derive(Deserialize)]
struct Reply {
    #[serde(default)]
    items: Vec<Item>,
}

/// An item without the name of its action around it.
struct Item(Outcome);

#[derive(Deserialize)]
struct Outcome {
    status: u16,
    #[serde(default)]
    error: Option<Fault>,
}

/// What is said of an error. Whatever else a server or a proxy puts in its place is an error of which nothing is said.
#[derive(Default, Deserialize)]
#[serde(from = "Value")]
struct Fault {
    kind: String,
    reason: Option<String>,
    caused_by: Option<Box<Fault>>,
}

/// The body of an answer that is about the whole request.
#[derive(Deserialize)]
struct Failure {
    error: Fault,
}

impl From<Value> for Fault {
    fn from(value: Value) -> Self {
        let mut members = match value {
            Value::Object(members) => members,
            Value::String(reason) => {
                return Self {
                    reason: Some(reason),
                    ..Self::default()
                };
            }
            _ => return Self::default(),
        };
        let mut text = |name: &str| match members.remove(name) {
            Some(Value::String(text)) => Some(text),
            _ => None,
        };
        let (kind, reason) = (text("type").unwrap_or_default(), text("reason"));
        let cause = members.remove("caused_by").filter(Value::is_object);
        Self {
            kind,
            reason,
            caused_by: cause.map(|cause| Box::new(cause.into())),
        }
    }
}

impl<'de> Deserialize<'de> for Item {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Inner;
        impl<'de> Visitor<'de> for Inner {
            type Value = Outcome;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an item with its action")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Outcome, A::Error> {
                let first = map.next_entry::<IgnoredAny, Outcome>()?;
                let (_, outcome) = first.ok_or_else(|| {
                    serde::de::Error::custom("an item says nothing of its document")
                })?;
                match map.next_entry::<IgnoredAny, IgnoredAny>()? {
                    None => Ok(outcome),
                    Some(_) => Err(serde::de::Error::custom("an item is about two actions")),
                }
            }
        }
        deserializer.deserialize_map(Inner).map(Item)
    }
}

impl Fault {
    /// Type, reason and cause in one line.
    fn text(&self) -> String {
        let mut text = self.own_text();
        if let Some(cause) = self.caused_by.as_ref().map(|cause| cause.own_text())
            && !text.contains(&cause)
        {
            text = format!("{text} ({cause})");
        }
        let end = text.char_indices().nth(REASON_CHARS_MAX);
        match end {
            Some((end, _)) => format!("{}…", &text[..end]),
            None => text,
        }
    }

    fn own_text(&self) -> String {
        let reason = self.reason.as_deref().unwrap_or("no reason is given");
        let reason = without_id(&words(reason));
        match self.kind.is_empty() {
            true => reason,
            false => format!("{}: {reason}", self.kind),
        }
    }
}

/// A reason without the id of its document, which would make every one another reason.
fn without_id(reason: &str) -> String {
    const BEFORE: &str = " in document with id '";
    if let Some(start) = reason.find(BEFORE)
        && let Some(len) = reason[start + BEFORE.len()..].find('\'')
    {
        let end = start + BEFORE.len() + len + 1;
        return [&reason[..start], &reason[end..]].concat();
    }
    reason.to_owned()
}

/// Whether an error with status 400 is no fault of the document, but of the settings or the cluster's state, so that every
/// document meets it until a person has mended something.
fn is_blocked(fault: &Fault, asked: &Asked) -> bool {
    let reason = fault.reason.as_deref().unwrap_or_default();
    match fault.kind.as_str() {
        // Such as too many shards to make another index.
        "validation_exception" | "index_closed_exception" => true,
        "invalid_index_name_exception" => asked.is_fixed,
        // By how they begin: what stands behind may come from a document.
        "illegal_argument_exception" => {
            (reason.starts_with("pipeline with id [") && reason.ends_with("] does not exist"))
                || reason.starts_with("no write index is defined for alias [")
                || reason.starts_with("no matching index template found for data stream [")
                || reason.starts_with("only write ops with an op_type of create are allowed in")
        }
        _ => false,
    }
}

/// Why rows are sent again, from what needs a person to what passes by itself.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Why {
    Fails,
    Busy,
    Blocked,
}

/// What becomes of a document.
enum Verdict {
    Stored,
    /// It was stored before.
    Repeated,
    Again(Why),
    Refused,
}

fn verdict(outcome: &Outcome, asked: &Asked) -> Verdict {
    match outcome.status {
        200..=299 => Verdict::Stored,
        409 if asked.finds_repeats => Verdict::Repeated,
        429 => Verdict::Again(Why::Busy),
        // Below 400 nothing says that the document is wrong, such as a redirect of some proxy's.
        409 | ..=399 | 500.. => Verdict::Again(Why::Fails),
        401 | 403 | 404 => Verdict::Again(Why::Blocked),
        _ => match &outcome.error {
            Some(fault) if is_blocked(fault, asked) => Verdict::Again(Why::Blocked),
            _ => Verdict::Refused,
        },
    }
}

/// What became of the rows of a request that was answered with a status of success.
///
/// # Errors
/// The reply cannot be believed.
pub fn judge(body: &[u8], origin: &str, asked: &Asked) -> Result<Judged, SendError> {
    if is_all_stored(body, asked) {
        return Ok(Judged::default());
    }
    let reply: Reply = serde_json::from_slice(body).map_err(|error| {
        let len = body.len();
        SendError::Retry(format!(
            "{origin}: the response of {len} bytes cannot be parsed: {error}"
        ))
    })?;
    if reply.items.len() != asked.rows {
        let (items, rows) = (reply.items.len(), asked.rows);
        return Err(SendError::Retry(format!(
            "{origin}: the response is about {}, but {rows} were sent",
            plural(items as u64, "document")
        )));
    }
    let mut judged = Judged::default();
    let mut because: Option<(Why, Arc<str>)> = None;
    let mut last: Arc<str> = "".into();
    for (row, Item(outcome)) in reply.items.into_iter().enumerate() {
        let why = match verdict(&outcome, asked) {
            Verdict::Stored => continue,
            Verdict::Repeated => {
                judged.repeats += 1;
                continue;
            }
            Verdict::Again(why) => Some(why),
            Verdict::Refused => None,
        };
        let text = match &outcome.error {
            Some(fault) => fault.text(),
            None => format!("status {}", outcome.status),
        };
        // Rows that fail, mostly fail alike.
        if *last != *text {
            last = text.into();
        }
        let reason = last.clone();
        match why {
            None => judged.sent.refused.push(RowAnswer { row, reason }),
            Some(why) => {
                if because.as_ref().is_none_or(|(known, _)| why > *known) {
                    because = Some((why, reason.clone()));
                }
                judged.sent.retry.push(RowAnswer { row, reason });
            }
        }
    }
    judged.sent.because = because.map(|(why, reason)| {
        let reason = format!("{origin}: {reason}");
        match why {
            Why::Fails => SendError::Retry(reason),
            Why::Busy => SendError::Later {
                reason,
                after: None,
            },
            Why::Blocked => SendError::Blocked(reason),
        }
    });
    Ok(judged)
}

/// Whether the reply is, byte for byte, that of a request of which every document was stored. It nearly always is, and
/// comparing is ten times as fast as parsing.
fn is_all_stored(body: &[u8], asked: &Asked) -> bool {
    let (item, word): (&[u8], _) = match asked.verb {
        Verb::Create => (br#"{"create":{"status":201}}"#, "create"),
        Verb::Index => (br#"{"index":{"status":201}}"#, "index"),
    };
    debug_assert_eq!(asked.verb.word(), word);
    let items = body.strip_prefix(br#"{"errors":false,"items":["#.as_slice());
    let Some(items) = items.and_then(|items| items.strip_suffix(b"]}")) else {
        return false;
    };
    // A comma stands between two items, and none after the last one.
    (items.len() + 1) == asked.rows * (item.len() + 1)
        && items.chunks(item.len() + 1).all(|chunk| {
            let (one, comma) = chunk.split_at(item.len().min(chunk.len()));
            one == item && (comma.is_empty() || comma == b",")
        })
}

/// What is to be done about an answer to a whole request with another status than one of success.
pub fn failed(
    status: StatusCode,
    body: &[u8],
    origin: &str,
    after: Option<std::time::Duration>,
) -> SendError {
    let text = match serde_json::from_slice::<Failure>(body) {
        Ok(failure) => failure.error.text(),
        Err(_) => {
            let shown = &body[..body.len().min(200)];
            words(&String::from_utf8_lossy(shown))
        }
    };
    let reason = match text.is_empty() {
        true => format!("{origin} responded with {status}"),
        false => format!("{origin} responded with {status}: {text}"),
    };
    match status.as_u16() {
        413 => SendError::Unfit(reason),
        429 | 503 => SendError::Later { reason, after },
        408 | 500.. => match after {
            Some(_) => SendError::Later { reason, after },
            None => SendError::Retry(reason),
        },
        _ => SendError::Blocked(reason),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Replies of OpenSearch 2.19 (`os`), Elasticsearch 7.17 (`es7`) and 8.19 (`es8`), as `bench/elasticsearch-replies` records
    /// them: server, case, status, body.
    const RECORDED: &str = include_str!("replies/recorded.tsv");

    fn recorded() -> impl Iterator<Item = (&'static str, &'static str, u16, &'static str)> {
        RECORDED.lines().map(|line| {
            let mut parts = line.splitn(4, '\t');
            let mut part = || parts.next().expect("four parts");
            let (server, case) = (part(), part());
            let status = part().parse().expect("a status");
            (server, case, status, part())
        })
    }

    fn asked(rows: usize) -> Asked {
        Asked {
            verb: Verb::Create,
            finds_repeats: true,
            is_fixed: true,
            rows,
        }
    }

    /// One letter a row: `.` stored, `r` refused, `a` again; and why again.
    fn shown(judged: &Judged, rows: usize) -> String {
        let letter = |row: usize| {
            let has = |answers: &[RowAnswer]| answers.iter().any(|answer| answer.row == row);
            match (has(&judged.sent.refused), has(&judged.sent.retry)) {
                (true, false) => 'r',
                (false, true) => 'a',
                _ => '.',
            }
        };
        let rows: String = (0..rows).map(letter).collect();
        match &judged.sent.because {
            None => rows,
            Some(SendError::Retry(_)) => rows + " retry",
            Some(SendError::Later { .. }) => rows + " later",
            Some(SendError::Blocked(_)) => rows + " blocked",
            Some(other) => format!("{rows} {other:?}"),
        }
    }

    /// Whatever stands between, a document is refused only by a status that says that it is wrong.
    #[test]
    fn no_other_status_refuses_a_document() {
        for status in [0, 100, 301, 399, 500, 999] {
            let body = format!(r#"{{"errors":true,"items":[{{"create":{{"status":{status}}}}}]}}"#);
            let judged = judge(body.as_bytes(), "es", &asked(1)).expect("it is one item");
            assert_eq!(shown(&judged, 1), "a retry", "{status}");
        }
    }

    #[test]
    fn replies_of_real_servers_mean_what_they_say() {
        // What each case comes to, where it is not the same everywhere with the server before it.
        let expected = [
            ("ds_ok", ".."),
            ("es7 ds_mixed", ".r.."),
            ("ds_mixed", ".rrr"),
            ("ds_full", ".."),
            ("es7 ds_index", "."),
            ("ds_index", "a blocked"),
            ("conflict", ".rr"),
            ("pipeline", "a blocked"),
            ("badname", "a blocked"),
            ("emptyid", "r."),
            ("malformed", "r."),
            ("require_alias", "a blocked"),
            ("require_ds", "a blocked"),
            ("block_read_only_allow_delete", "a later"),
            ("block_write", "a blocked"),
            ("block_read_only", "a blocked"),
            ("no_auto_create", "a blocked"),
            ("shards", "a blocked"),
            ("closed", "a blocked"),
            ("strict", "r"),
            ("immense", "r"),
            ("no_write_index", "a blocked"),
            ("total_fields", "r"),
        ];
        let mut found = 0;
        for (server, case, status, body) in recorded() {
            let of_server = format!("{server} {case}");
            if status != 200 {
                let status = StatusCode::from_u16(status).expect("a status");
                let error = failed(status, body.as_bytes(), "http://h", None);
                assert!(
                    matches!(error, SendError::Blocked(_)),
                    "{of_server}: {error:?}"
                );
                continue;
            }
            let rule = expected.iter().find(|(name, _)| *name == of_server);
            let rule = rule.or_else(|| expected.iter().find(|(name, _)| *name == case));
            let (_, expected) = rule.unwrap_or_else(|| panic!("nothing is expected of {case}"));
            let rows = expected.split(' ').next().unwrap_or_default().len();
            let judged = judge(body.as_bytes(), "http://h", &asked(rows));
            let judged = judged.unwrap_or_else(|error| panic!("{of_server}: {error}"));
            assert_eq!(shown(&judged, rows), *expected, "{of_server}: {body}");
            found += 1;
        }
        assert!(found > 55, "the replies are there: {found}");
    }

    fn items(items: &[&str]) -> String {
        let items: Vec<_> = items
            .iter()
            .map(|item| format!("{{\"create\":{item}}}"))
            .collect();
        format!(
            "{{\"took\":3,\"errors\":true,\"items\":[{}]}}",
            items.join(",")
        )
    }

    #[test]
    fn statuses_say_what_becomes_of_a_document() {
        for (status, expected) in [
            (200, "."),
            (201, "."),
            (409, "."),
            (429, "a later"),
            (500, "a retry"),
            (502, "a retry"),
            (503, "a retry"),
            (599, "a retry"),
            (401, "a blocked"),
            (403, "a blocked"),
            (404, "a blocked"),
            (400, "r"),
            (405, "r"),
            (413, "r"),
            (422, "r"),
        ] {
            let body = items(&[&format!("{{\"status\":{status}}}")]);
            let judged = judge(body.as_bytes(), "http://h", &asked(1)).expect("a reply");
            assert_eq!(shown(&judged, 1), expected, "{status}");
            assert_eq!(judged.repeats, u64::from(status == 409));
        }
        // What needs a person is said before what passes.
        let body = items(&[
            "{\"status\":503}",
            "{\"status\":403}",
            "{\"status\":429}",
            "{\"status\":201}",
        ]);
        let judged = judge(body.as_bytes(), "http://h", &asked(4)).expect("a reply");
        assert_eq!(shown(&judged, 4), "aaa. blocked");
    }

    #[test]
    fn a_conflict_is_a_repeat_only_where_documents_have_ids() {
        let body = items(&["{\"status\":409}"]);
        for (verb, finds_repeats) in [(Verb::Create, false), (Verb::Index, false)] {
            let asked = Asked {
                verb,
                finds_repeats,
                ..asked(1)
            };
            let judged = judge(body.as_bytes(), "http://h", &asked).expect("a reply");
            assert_eq!(shown(&judged, 1), "a retry");
        }
    }

    #[test]
    fn a_name_made_of_fields_can_be_a_documents_own_fault() {
        let error =
            r#"{"status":400,"error":{"type":"invalid_index_name_exception","reason":"x"}}"#;
        for (is_fixed, expected) in [(true, "a blocked"), (false, "r")] {
            let asked = Asked {
                is_fixed,
                ..asked(1)
            };
            let judged = judge(items(&[error]).as_bytes(), "http://h", &asked);
            assert_eq!(shown(&judged.expect("a reply"), 1), expected);
        }
    }

    #[test]
    fn reasons_have_type_and_cause_and_no_id() {
        let long = "y".repeat(2000);
        for (error, expected) in [
            (
                r#"{"type":"mapper_parsing_exception","reason":"failed to parse field [n] of type [long] in document with id 'c'. Preview of field's value: 'x'","caused_by":{"type":"illegal_argument_exception","reason":"For input\n string: \"x\""}}"#,
                "mapper_parsing_exception: failed to parse field [n] of type [long]. Preview of field's value: 'x' (illegal_argument_exception: For input string: \"x\")",
            ),
            (r#"{"type":"a","reason":null}"#, "a: no reason is given"),
            (r#"{"reason":"b"}"#, "b"),
            (r#"{"type":null,"reason":"b"}"#, "b"),
            (
                r#"{"type":7,"reason":["b"],"caused_by":"c"}"#,
                "no reason is given",
            ),
            (r#""b""#, "b"),
            (r#"{}"#, "no reason is given"),
            (r#"[1]"#, "no reason is given"),
            ("null", "status 400"),
            (
                r#"{"type":"a","reason":"b","caused_by":{"type":"a","reason":"b"}}"#,
                "a: b",
            ),
            (
                &format!(r#"{{"type":"a","reason":"{long}"}}"#),
                &format!("a: {}…", &long[..497]),
            ),
        ] {
            let body = items(&[&format!("{{\"status\":400,\"error\":{error}}}")]);
            let judged = judge(body.as_bytes(), "http://h", &asked(1)).expect("a reply");
            assert_eq!(&*judged.sent.refused[0].reason, expected);
        }
    }

    #[test]
    fn what_cannot_be_believed_fails_the_request() {
        let good =
            r#"{"errors":false,"items":[{"create":{"status":201}},{"create":{"status":201}}]}"#;
        assert!(judge(good.as_bytes(), "http://h", &asked(2)).is_ok());
        // Cut anywhere.
        for len in 0..good.len() {
            let judged = judge(&good.as_bytes()[..len], "http://h", &asked(2));
            assert!(matches!(judged, Err(SendError::Retry(_))), "{len}");
        }
        for (body, rows) in [
            (good.to_owned(), 1),
            (good.to_owned(), 3),
            (good.replacen("201", "299", 1), 3),
            (good.replacen("create", "delete", 1) + "x", 2),
            ("{\"errors\":false}".to_owned(), 1),
            ("{\"errors\":false,\"items\":[]}".to_owned(), 1),
            ("[]".to_owned(), 1),
            ("<html>200</html>".to_owned(), 1),
            (r#"{"items":[{}]}"#.to_owned(), 1),
            (r#"{"items":[{"create":{}}]}"#.to_owned(), 1),
            (r#"{"items":[{"create":{"status":"201"}}]}"#.to_owned(), 1),
            (
                r#"{"items":[{"create":{"status":201},"index":{"status":201}}]}"#.to_owned(),
                1,
            ),
        ] {
            let judged = judge(body.as_bytes(), "http://h", &asked(rows));
            assert!(matches!(judged, Err(SendError::Retry(_))), "{body}");
        }
    }

    #[test]
    fn the_quick_answer_is_that_of_the_parser() {
        let reply = |statuses: &[u16]| {
            let items: Vec<_> = statuses
                .iter()
                .map(|status| format!("{{\"create\":{{\"status\":{status}}}}}"))
                .collect();
            format!("{{\"errors\":false,\"items\":[{}]}}", items.join(","))
        };
        for (statuses, rows, is_quick) in [
            (&[201][..], 1, true),
            (&[201; 3], 3, true),
            (&[201; 3], 2, false),
            (&[201, 200], 2, false),
            (&[201, 429], 2, false),
            (&[], 0, false),
        ] {
            let body = reply(statuses);
            assert_eq!(
                is_all_stored(body.as_bytes(), &asked(rows)),
                is_quick,
                "{body}"
            );
        }
        let broken = reply(&[201, 201]).replacen("}},{", "}};{", 1);
        assert!(!is_all_stored(broken.as_bytes(), &asked(2)));
    }

    #[test]
    fn an_answer_to_a_whole_request_never_refuses() {
        let after = Some(std::time::Duration::from_secs(7));
        for (status, after, expected) in [
            (400, None, "blocked"),
            (401, None, "blocked"),
            (403, after, "blocked"),
            (404, None, "blocked"),
            (406, None, "blocked"),
            (422, None, "blocked"),
            (413, None, "unfit"),
            (408, None, "retry"),
            (429, None, "later"),
            (500, None, "retry"),
            (500, after, "later"),
            (503, after, "later"),
        ] {
            let code = StatusCode::from_u16(status).expect("a status");
            let body = r#"{"error":{"type":"security_exception","reason":"unable to authenticate"},"status":401}"#;
            let error = failed(code, body.as_bytes(), "http://h", after);
            let (kind, reason) = match &error {
                SendError::Blocked(reason) => ("blocked", reason),
                SendError::Unfit(reason) => ("unfit", reason),
                SendError::Retry(reason) => ("retry", reason),
                SendError::Later { reason, .. } => ("later", reason),
                other => panic!("{other:?}"),
            };
            assert_eq!(kind, expected, "{status}");
            let expected = format!(
                "http://h responded with {code}: security_exception: unable to authenticate"
            );
            assert_eq!(*reason, expected);
        }
        let error = failed(
            StatusCode::UNAUTHORIZED,
            b"<html>\n go away",
            "http://h",
            None,
        );
        assert_eq!(
            error.to_string(),
            "http://h responded with 401 Unauthorized: <html> go away"
        );
    }
}
