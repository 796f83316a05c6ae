//! What outputs over HTTP have in common when they look at an answer, or at its absence.

use std::time::{Duration, SystemTime};

use component::SendError;
use http::HeaderMap;
use http::header::RETRY_AFTER;
use net::RequestError;
use net::client::reqwest::Response;

/// What is read of an answer, so that its connection can be used again. A longer one ends the connection.
const READ_BYTES_MAX: usize = 64 * 1024;

/// What is shown of an error's text.
const SHOWN_BYTES_MAX: usize = 200;

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
