//! Who a client is: `Authorization: Splunk TOKEN`, or basic authentication with the token as the password.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use config::{ConfigError, Node};
use http::HeaderMap;
use http::header::AUTHORIZATION;
use net::{Secret, SecretError};
use subtle::ConstantTimeEq;

use super::failure::Failure;

/// What a client says to be allowed to send.
#[derive(Debug, PartialEq, Eq)]
enum Said {
    Nothing,
    Token(Vec<u8>),
    /// Something else.
    Unknown,
}

fn said(headers: &HeaderMap) -> Said {
    let Some(header) = headers.get(AUTHORIZATION) else {
        return Said::Nothing;
    };
    let header = header.as_bytes().trim_ascii();
    let Some(space) = header.iter().position(|byte| *byte == b' ') else {
        return Said::Unknown;
    };
    let (scheme, value) = (&header[..space], header[space..].trim_ascii());
    if scheme.eq_ignore_ascii_case(b"splunk") {
        return Said::Token(value.to_vec());
    }
    if scheme.eq_ignore_ascii_case(b"basic")
        && let Ok(pair) = STANDARD.decode(value)
        && let Some(colon) = pair.iter().position(|byte| *byte == b':')
    {
        return Said::Token(pair[colon + 1..].to_vec());
    }
    Said::Unknown
}

/// Checks that a client has one of the tokens, where there are some.
///
/// # Errors
/// It has none, or, the second error, a token cannot be read.
pub(super) fn check(
    tokens: &[Secret],
    headers: &HeaderMap,
) -> Result<Result<(), Failure>, SecretError> {
    if tokens.is_empty() {
        return Ok(Ok(()));
    }
    let given = match said(headers) {
        Said::Token(given) => given,
        Said::Nothing => return Ok(Err(Failure::token_required())),
        Said::Unknown => return Ok(Err(Failure::invalid_authorization())),
    };
    let mut is_one = false;
    for token in tokens {
        is_one |= bool::from(token.reveal()?.as_bytes().ct_eq(&given));
    }
    Ok(match is_one {
        true => Ok(()),
        false => Err(Failure::invalid_token()),
    })
}

/// Whether the tokens of the settings `node` can be read; an empty one would let everybody in.
pub(super) fn check_settings(tokens: &[Secret], node: &Node) -> Result<(), ConfigError> {
    for (index, token) in tokens.iter().enumerate() {
        let failed = |message: String| {
            let setting = node.nearest(&format!("tokens[{index}]"));
            setting.error(message).hiding_value()
        };
        let revealed = token.reveal().map_err(|error| failed(error.to_string()))?;
        if revealed.is_empty() {
            return Err(failed("the token is empty".to_owned()));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn a_token_opens_in_both_forms() {
        let tokens = [Secret::new("first"), Secret::new("second")];
        let basic = |pair: &str| format!("Basic {}", STANDARD.encode(pair));
        for (header, code) in [
            (None, Some(2)),
            (Some("Splunk first".to_owned()), None),
            (Some("splunk  second ".to_owned()), None),
            (Some(basic("x:second")), None),
            (Some("Splunk third".to_owned()), Some(4)),
            (Some("Splunk ".to_owned()), Some(3)),
            (Some(basic("first:x")), Some(4)),
            (Some("Basic !".to_owned()), Some(3)),
            (Some("Bearer first".to_owned()), Some(3)),
            (Some("first".to_owned()), Some(3)),
        ] {
            let mut headers = HeaderMap::new();
            if let Some(header) = &header {
                let value = HeaderValue::try_from(header.as_str()).expect("a header");
                headers.insert(AUTHORIZATION, value);
            }
            let checked = check(&tokens, &headers).expect("readable");
            let body = checked.map_err(|failure| failure.body());
            match (body, code) {
                (Ok(()), None) => {}
                (Err(body), Some(code)) => {
                    let expected = format!("\"code\":{code}}}");
                    assert!(body.ends_with(expected.as_bytes()), "{header:?}");
                }
                other => panic!("{header:?}: {other:?}"),
            }
            assert!(check(&[], &headers).expect("readable").is_ok());
        }
    }
}
