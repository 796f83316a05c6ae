//! Who a client says that it is: a user with a password, a bearer token (RFC 7617, RFC 6750), or a key as Elasticsearch and
//! OpenSearch give them out.
//!
//! The same setting serves both ways: a client sends it, a server asks for it. Servers compare in constant time.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use config::{ConfigError, Node};
use http::HeaderValue;
use http::header::{AUTHORIZATION, HeaderMap};
use schemars::JsonSchema;
use serde::Deserialize;
use subtle::ConstantTimeEq;

use crate::secret::{Secret, SecretError};

/// Who a client is.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Auth {
    /// A user and a password.
    Basic(Basic),
    /// A token, sent as `Authorization: Bearer TOKEN`.
    Bearer(Secret),
    /// An API key of Elasticsearch, sent as `Authorization: ApiKey KEY`: in the encoded form shown when it is
    /// created, or as `ID:KEY`.
    #[serde(rename = "api_key")]
    ApiKey(Secret),
}

/// A user and a password.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Basic {
    /// The user name, without a colon.
    pub user: String,
    /// The password: `${VARIABLE}`, or `file:PATH` for the content of a file.
    pub password: Secret,
}

/// Why there is no header to send.
#[derive(Debug, thiserror::Error)]
pub enum AuthError {
    /// The secret cannot be read.
    #[error(transparent)]
    Secret(#[from] SecretError),
    /// The secret has characters that no header can have.
    #[error("the token contains characters that are not allowed in a header, such as a newline")]
    NoHeader,
}

impl Auth {
    /// The value of the `Authorization` header, marked so that it is never shown.
    ///
    /// # Errors
    /// The secret cannot be read, or cannot be sent.
    pub fn header(&self) -> Result<HeaderValue, AuthError> {
        let mut value = HeaderValue::try_from(self.text()?).map_err(|_| AuthError::NoHeader)?;
        value.set_sensitive(true);
        Ok(value)
    }

    /// Whether the secret can be read and sent; an empty one would let everybody in.
    ///
    /// # Errors
    /// It cannot, at the setting's place; `node` is that of `auth`.
    pub fn check(&self, node: &Node) -> Result<(), ConfigError> {
        let (setting, secret) = match self {
            Self::Basic(basic) => ("basic.password", &basic.password),
            Self::Bearer(token) => ("bearer", token),
            Self::ApiKey(key) => ("api_key", key),
        };
        let failed = |message: String| node.nearest(setting).error(message).hiding_value();
        let revealed = secret.reveal().map_err(|error| failed(error.to_string()))?;
        if revealed.is_empty() {
            return Err(failed("the secret is empty".to_owned()));
        }
        if let Self::Basic(Basic { user, .. }) = self
            && user.contains(':')
        {
            let user = node.nearest("basic.user");
            return Err(user
                .error("a user name must not contain a colon (RFC 7617)")
                .hiding_value());
        }
        self.header()
            .map_err(|error| failed(error.to_string()))
            .map(|_| ())
    }

    /// What must not get into messages, the encoded form included.
    pub(crate) fn hidden(&self) -> Vec<String> {
        let (Self::Basic(Basic {
            password: secret, ..
        })
        | Self::Bearer(secret)
        | Self::ApiKey(secret)) = self;
        let sent = self.text().unwrap_or_default();
        let sent = sent.split_once(' ').map(|(_, sent)| sent.to_owned());
        let plain = secret.reveal().ok().map(|secret| secret.to_string());
        plain.into_iter().chain(sent).collect()
    }

    fn text(&self) -> Result<String, SecretError> {
        Ok(match self {
            Self::Basic(Basic { user, password }) => {
                let pair = STANDARD.encode(format!("{user}:{}", password.reveal()?));
                format!("Basic {pair}")
            }
            Self::Bearer(token) => format!("Bearer {}", token.reveal()?),
            Self::ApiKey(key) => {
                let key = key.reveal()?;
                // What is encoded holds no colon.
                match key.contains(':') {
                    true => format!("ApiKey {}", STANDARD.encode(&*key)),
                    false => format!("ApiKey {key}"),
                }
            }
        })
    }

    /// Whether a request with these headers comes from who it must come from.
    ///
    /// # Errors
    /// The secret to compare with cannot be read.
    pub fn admits(&self, headers: &HeaderMap) -> Result<bool, SecretError> {
        let expected = self.text()?;
        let Some(given) = headers.get(AUTHORIZATION) else {
            return Ok(false);
        };
        // The scheme is compared without regard to case (RFC 9110, section 11.1).
        let (expected_scheme, expected) = expected.split_once(' ').unwrap_or_default();
        let given = given.as_bytes();
        let Some(space) = given.iter().position(|byte| *byte == b' ') else {
            return Ok(false);
        };
        let (scheme, given) = (&given[..space], given[space..].trim_ascii());
        let same_scheme = scheme.eq_ignore_ascii_case(expected_scheme.as_bytes());
        Ok(same_scheme && bool::from(given.ct_eq(expected.as_bytes())))
    }

    /// The value of the `WWW-Authenticate` header with which a server asks for it.
    pub fn challenge(&self) -> HeaderValue {
        HeaderValue::from_static(match self {
            Self::Basic(_) => "Basic realm=\"millpond\", charset=\"UTF-8\"",
            Self::Bearer(_) => "Bearer realm=\"millpond\"",
            Self::ApiKey(_) => "ApiKey realm=\"millpond\"",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn basic() -> Auth {
        Auth::Basic(Basic {
            user: "Aladdin".into(),
            password: Secret::new("open sesame"),
        })
    }

    #[test]
    fn who_is_sent_is_admitted() {
        // The pair and its header are the example of RFC 7617, section 2.
        let header = basic().header().expect("a header");
        assert_eq!(header, "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==");
        assert!(!format!("{header:?}").contains("QWxh"));
        let bearer = Auth::Bearer(Secret::new("abc"));
        for (auth, given, admitted) in [
            (basic(), Some("Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="), true),
            (basic(), Some("basic  QWxhZGRpbjpvcGVuIHNlc2FtZQ== "), true),
            (basic(), Some("Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ="), false),
            (basic(), Some("Bearer QWxhZGRpbjpvcGVuIHNlc2FtZQ=="), false),
            (basic(), Some("Basic"), false),
            (basic(), None, false),
            (bearer.clone(), Some("Bearer abc"), true),
            (bearer.clone(), Some("Bearer abd"), false),
            (bearer, Some(""), false),
        ] {
            let mut headers = HeaderMap::new();
            if let Some(given) = given {
                headers.insert(AUTHORIZATION, given.parse().expect("a value"));
            }
            assert_eq!(
                auth.admits(&headers).expect("readable"),
                admitted,
                "{given:?}"
            );
        }
    }

    #[test]
    fn a_key_is_sent_encoded_whichever_way_it_is_given() {
        // The pair of Elasticsearch's documentation of the API that makes keys.
        for given in [
            "VuaCfGcBCdbkQm-e5aOx:ui2lp2axTNmsyakw9tvNnw",
            "VnVhQ2ZHY0JDZGJrUW0tZTVhT3g6dWkybHAyYXhUTm1zeWFrdzl0dk5udw==",
        ] {
            let auth = Auth::ApiKey(Secret::new(given));
            let header = auth.header().expect("a header");
            assert_eq!(
                header,
                "ApiKey VnVhQ2ZHY0JDZGJrUW0tZTVhT3g6dWkybHAyYXhUTm1zeWFrdzl0dk5udw=="
            );
            let headers = HeaderMap::from_iter([(AUTHORIZATION, header)]);
            assert!(auth.admits(&headers).expect("readable"));
            assert!(auth.hidden().iter().any(|hidden| hidden == given));
        }
    }

    #[test]
    fn a_token_that_no_header_can_hold_is_an_error() {
        let error = Auth::Bearer(Secret::new("two\nlines")).header();
        assert!(matches!(error, Err(AuthError::NoHeader)));
        let missing = Auth::Bearer(Secret::new("file:/nowhere/token"));
        assert!(missing.header().is_err() && missing.admits(&HeaderMap::new()).is_err());
    }
}
