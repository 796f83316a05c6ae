//! What outputs over HTTP have in common when they look at an answer, or at its absence.

use std::io::Read;
use std::time::{Duration, SystemTime};

use component::SendError;
use flate2::read::MultiGzDecoder;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use http::{HeaderMap, StatusCode};
use net::client::reqwest::Response;
use net::{Client, RequestError};

/// What is read of an answer, so that its connection can be used again. A longer one ends the connection.
const READ_BYTES_MAX: usize = 64 * 1024;

/// What is shown of an error's text.
const SHOWN_BYTES_MAX: usize = 200;

/// Secrets shorter than this are not looked for in texts: they would be found in any.
const OWN_SECRET_BYTES_MIN: usize = 4;

/// The longest time that a server is believed to want.
const WAIT_MAX: Duration = Duration::from_secs(3600);

/// What is to be done about an error that is no answer.
pub fn unanswered(origin: &str, error: RequestError) -> SendError {
    match error {
        RequestError::Connect(_) | RequestError::Timeout(_) | RequestError::Broken(_) => {
            SendError::Retry(format!("{origin}: {error}"))
        }
        // What stands behind a `?` may be secret.
        RequestError::Redirect { status, location } => {
            let location = location.split('?').next().unwrap_or_default().to_owned();
            let error = RequestError::Redirect { status, location };
            SendError::Blocked(format!("{origin}: {error}"))
        }
        RequestError::Secret(_) | RequestError::NoHeader(_) => {
            SendError::Blocked(error.to_string())
        }
    }
}

/// Whether an answer is a page for people, such as one to sign in: no server of events answers so.
pub fn is_page(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE);
    kind.is_some_and(|kind| kind.as_bytes().starts_with(b"text/html"))
}

/// What is to be done where a status of success is not that of the server that events are for.
pub fn foreign(origin: &str, status: StatusCode) -> SendError {
    SendError::Retry(format!(
        "{origin} responded with {status}, but not as the server that events are for: check the address"
    ))
}

/// How long the server wants to be left alone: seconds, or a date.
pub fn wait(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let wanted = match is_number {
        // One too large for a number is very long.
        true => text.parse().map_or(WAIT_MAX, Duration::from_secs),
        false => {
            let date = httpdate::parse_http_date(text).ok()?;
            date.duration_since(now).unwrap_or_default()
        }
    };
    Some(wanted.min(WAIT_MAX))
}

/// The beginning of an answer's text; the rest is read and dropped, up to a limit.
pub async fn text(answer: &mut Response) -> String {
    let mut shown = Vec::new();
    let mut read = 0;
    // An answer that breaks off has been given all the same.
    while let Ok(Some(chunk)) = answer.chunk().await {
        let room = SHOWN_BYTES_MAX - shown.len();
        shown.extend_from_slice(&chunk[..room.min(chunk.len())]);
        read += chunk.len();
        if read > READ_BYTES_MAX {
            break;
        }
    }
    words(&String::from_utf8_lossy(&shown))
}

/// The body of an answer, decompressed where a proxy has compressed it unasked.
///
/// # Errors
/// It breaks off, is longer than `bytes_max`, or cannot be decompressed.
pub async fn body(mut answer: Response, bytes_max: usize) -> Result<Vec<u8>, RequestError> {
    let endless = || RequestError::Broken("the reply has no end".to_owned());
    let mut body = Vec::new();
    while let Some(chunk) = answer.chunk().await? {
        body.extend_from_slice(&chunk);
        if body.len() > bytes_max {
            return Err(endless());
        }
    }
    let encoding = answer.headers().get(CONTENT_ENCODING);
    match encoding.map_or(b"".as_slice(), HeaderValue::as_bytes) {
        b"" | b"identity" => Ok(body),
        b"gzip" | b"x-gzip" => {
            let mut text = Vec::new();
            MultiGzDecoder::new(body.as_slice())
                .take(bytes_max as u64 + 1)
                .read_to_end(&mut text)
                .map_err(|error| RequestError::Broken(format!("the reply is damaged: {error}")))?;
            match text.len() > bytes_max {
                true => Err(endless()),
                false => Ok(text),
            }
        }
        other => Err(RequestError::Broken(format!(
            "the reply has the Content-Encoding `{}`, which was not asked for",
            String::from_utf8_lossy(other)
        ))),
    }
}

/// An error without what was sent as a secret, should the server have said it back; `own` is one that the client does not know.
pub fn without_secrets(client: &Client, error: SendError, own: Option<&str>) -> SendError {
    let clean = |text: String| {
        let text = client.without_secrets(text);
        match own.filter(|own| own.len() >= OWN_SECRET_BYTES_MIN) {
            Some(own) => text.replace(own, "[secret]"),
            None => text,
        }
    };
    match error {
        SendError::Retry(text) => SendError::Retry(clean(text)),
        SendError::Blocked(text) => SendError::Blocked(clean(text)),
        SendError::Unfit(text) => SendError::Unfit(clean(text)),
        SendError::Later { reason, after } => SendError::Later {
            reason: clean(reason),
            after,
        },
        SendError::Refused(text) => SendError::Refused(clean(text)),
        SendError::Fatal(text) => SendError::Fatal(clean(text)),
    }
}

/// A text in one line, without control characters.
pub fn words(text: &str) -> String {
    let words: Vec<&str> = text
        .split(|letter: char| letter.is_whitespace() || letter.is_control())
        .filter(|word| !word.is_empty())
        .collect();
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_to_wait_is_a_date_in_any_form() {
        // The example of RFC 9110, section 5.6.7, in its three forms.
        let now = httpdate::parse_http_date("Sun, 06 Nov 1994 08:49:00 GMT").expect("a date");
        for date in [
            "Sun, 06 Nov 1994 08:49:37 GMT",
            "Sunday, 06-Nov-94 08:49:37 GMT",
            "Sun Nov  6 08:49:37 1994",
        ] {
            let headers = HeaderMap::from_iter([(RETRY_AFTER, date.parse().expect("a value"))]);
            assert_eq!(wait(&headers, now), Some(Duration::from_secs(37)), "{date}");
        }
    }
}
