//! When a token expires.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;

/// How long a token is used that does not say when it expires.
const USED_FOR: Duration = Duration::from_secs(300);

/// The claims of a JSON Web Token that matter here (RFC 7519, section 4.1).
#[derive(Default, Deserialize)]
struct Claims {
    sub: Option<String>,
    exp: Option<f64>,
}

/// Whom a token stands for, and when it expires, in milliseconds since 1970.
pub fn described(token: &str, now: SystemTime) -> (String, i64) {
    let claims = claims(token).unwrap_or_default();
    let millis = |time: SystemTime| {
        let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
        i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
    };
    let expires = claims.exp.map(|seconds| (seconds * 1000.0) as i64);
    let name = claims.sub.unwrap_or_else(|| "millpond".to_owned());
    (name, expires.unwrap_or_else(|| millis(now + USED_FOR)))
}

fn claims(token: &str) -> Option<Claims> {
    let payload = token.split('.').nth(1)?;
    let payload = URL_SAFE_NO_PAD.decode(payload.trim_end_matches('=')).ok()?;
    serde_json::from_slice(&payload).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_web_token_says_when_it_expires() {
        let now = UNIX_EPOCH + Duration::from_secs(1000);
        let web = |claims: &str| format!("e30.{}.x", URL_SAFE_NO_PAD.encode(claims));
        let other = ("millpond".to_owned(), 1_300_000);
        for (token, expected) in [
            (
                web(r#"{"sub":"shipper","exp":2000,"aud":["k"]}"#),
                ("shipper".to_owned(), 2_000_000),
            ),
            (web("{}"), other.clone()),
            ("opaque".to_owned(), other.clone()),
            ("a.b.c".to_owned(), other),
        ] {
            assert_eq!(described(&token, now), expected, "{token}");
        }
    }
}
