//! What a response of ClickHouse means.
//!
//! The code of the exception decides, because the status that goes with it differs between versions (18.16 responds with 500 where later
//! ones respond with 400). It stands in the header `X-ClickHouse-Exception-Code`, and, always, in the text.
//! Codes: `src/Common/ErrorCodes.cpp` of <https://github.com/ClickHouse/ClickHouse>.
//!
//! | codes | what becomes of the request |
//! | --- | --- |
//! | [`UNFIT`]: a value that cannot be parsed or does not fit its column | each half is sent on its own, and a single row refused |
//! | [`BUSY`]: too many parts or queries, memory, quota | sent again later |
//! | [`BLOCKED`]: credentials, a missing table or database, a setting | sent again once a person has mended something |
//! | any other | sent again |
//!
//! An insert is one block, which ClickHouse stores as a whole or not at all, so that halves repeat nothing.

use std::time::Duration;

use component::SendError;
use http::{HeaderMap, StatusCode};

use crate::answer::words;

/// The header with the code of an exception.
const CODE: &str = "x-clickhouse-exception-code";

/// The most bytes of a text that are shown.
const SHOWN_BYTES_MAX: usize = 300;

/// Codes of rows that cannot be stored. All but 6, 25, 32, 53, 70, 321, 349, 407, 441, 536 and 676 were provoked with version 26.9.
const UNFIT: &[u32] = &[
    6, 25, 26, 27, 32, 33, 38, 41, 53, 69, 70, 72, 117, 130, 131, 321, 349, 376, 407, 441, 467,
    469, 536, 675, 676, 691,
];

/// Codes of a server that has too much to do.
const BUSY: &[u32] = &[201, 202, 203, 241, 252, 290, 364, 745];

/// Codes of what a person must mend.
const BLOCKED: &[u32] = &[
    16, 46, 47, 48, 60, 62, 73, 81, 115, 164, 192, 193, 194, 195, 291, 452, 497, 516,
];

/// What became of an insert: nothing to say where it is stored.
///
/// # Errors
/// It is not.
pub fn judge(
    status: StatusCode,
    headers: &HeaderMap,
    body: &[u8],
    origin: &str,
    after: Option<Duration>,
) -> Result<(), SendError> {
    let text = words(&String::from_utf8_lossy(
        &body[..body.len().min(SHOWN_BYTES_MAX)],
    ));
    let code = headers.get(CODE).and_then(|value| value.to_str().ok());
    let code = code.and_then(|code| code.parse().ok());
    let code = code.or_else(|| code_in(&text)).filter(|code| *code != 0);
    if status.is_success() && code.is_none() && body.is_empty() {
        return Ok(());
    }
    let reason = match text.is_empty() {
        true => format!("{origin} responded with {status}"),
        false => format!("{origin} responded with {status}: {text}"),
    };
    Err(match code {
        Some(code) if UNFIT.contains(&code) => SendError::Unfit(reason),
        Some(code) if BUSY.contains(&code) => SendError::Later { reason, after },
        Some(code) if BLOCKED.contains(&code) => SendError::Blocked(reason),
        Some(_) => SendError::Retry(reason),
        None => by_status(status, reason, after),
    })
}

/// Something else than ClickHouse has responded, such as a proxy.
fn by_status(status: StatusCode, reason: String, after: Option<Duration>) -> SendError {
    match status.as_u16() {
        429 | 503 => SendError::Later { reason, after },
        408 | 500..=599 if after.is_some() => SendError::Later { reason, after },
        // An insert has nothing to say when it works: this is a page of a proxy's.
        408 | 500..=599 | 200..=299 => SendError::Retry(reason),
        413 => SendError::Unfit(reason),
        _ => SendError::Blocked(reason),
    }
}

/// The code in a text such as `Code: 60. DB::Exception: …`.
fn code_in(text: &str) -> Option<u32> {
    let start = text.find("Code: ")?;
    let rest = &text[start + "Code: ".len()..];
    let digits = rest.find(|letter: char| !letter.is_ascii_digit())?;
    // What stands before it may be a page that quotes something.
    rest[digits..]
        .contains("DB::Exception")
        .then(|| rest[..digits].parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(status: u16, code: Option<u32>, body: &str) -> &'static str {
        let status = StatusCode::from_u16(status).expect("a status");
        let mut headers = HeaderMap::new();
        if let Some(code) = code {
            headers.insert(CODE, code.into());
        }
        match judge(status, &headers, body.as_bytes(), "o", None) {
            Ok(()) => "stored",
            Err(SendError::Retry(_)) => "retry",
            Err(SendError::Later { .. }) => "later",
            Err(SendError::Blocked(_)) => "blocked",
            Err(SendError::Unfit(_)) => "unfit",
            Err(SendError::Refused(_)) => "refused",
            Err(SendError::Fatal(_)) => "fatal",
        }
    }

    #[test]
    fn codes_decide_whatever_the_status() {
        assert_eq!(verdict(200, None, ""), "stored");
        for (code, expected) in [
            (27, "unfit"),
            (117, "unfit"),
            (60, "blocked"),
            (516, "blocked"),
            (115, "blocked"),
            (252, "later"),
            (241, "later"),
            (242, "retry"),
            (999, "retry"),
            (1002, "retry"),
        ] {
            for status in [200, 400, 404, 500] {
                assert_eq!(verdict(status, Some(code), "text"), expected, "{code}");
                let text = format!("Code: {code}. DB::Exception: text. (NAME) (version 24.1)");
                assert_eq!(verdict(status, None, &text), expected, "{text}");
                let old = format!("Code: {code}, e.displayText() = DB::Exception: text");
                assert_eq!(verdict(status, None, &old), expected, "{old}");
            }
        }
    }

    #[test]
    fn what_clickhouse_did_not_say_loses_nothing() {
        for (status, expected) in [
            (200, "retry"),
            (400, "blocked"),
            (401, "blocked"),
            (404, "blocked"),
            (408, "retry"),
            (413, "unfit"),
            (429, "later"),
            (502, "retry"),
            (503, "later"),
        ] {
            assert_eq!(
                verdict(status, None, "<html>Code: 27</html>"),
                expected,
                "{status}"
            );
        }
    }
}
