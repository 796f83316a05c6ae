//! What the answer to a request means, and what is to be done about it.
//!
//! | status | without a word of the settings |
//! | --- | --- |
//! | 2xx | every event is taken |
//! | 408, 429, 5xx | sent again; after `Retry-After`, where the answer has one (RFC 9110, section 10.2.3) |
//! | 400, 413, 422 | each half of the events is sent on its own, and a single one refused |
//! | 401, 403, 407, 415, 3xx; 404, 405, 410 of a fixed address | sent again once a person has mended something |
//! | others | every event is refused |

use std::fmt;
use std::str::FromStr;
use std::time::SystemTime;

use component::{SendError, Sent};
use http::{HeaderMap, StatusCode};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Deserializer, Error};
use serde::{Deserialize, Serialize, Serializer};

use crate::answer::wait;

/// The setting `retry_status`: a status such as 404, or a hundred of them such as `5xx`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Statuses {
    first: u16,
    last: u16,
}

/// What is sent again by default.
pub const RETRIED: [Statuses; 3] = [
    Statuses::one(408),
    Statuses::one(429),
    Statuses {
        first: 500,
        last: 599,
    },
];

impl Statuses {
    const fn one(status: u16) -> Self {
        Self {
            first: status,
            last: status,
        }
    }

    fn include(self, status: StatusCode) -> bool {
        (self.first..=self.last).contains(&status.as_u16())
    }
}

impl FromStr for Statuses {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        if let Some(class) = text.strip_suffix("xx") {
            let class: u16 = class.parse().map_err(drop)?;
            let first = Some(class * 100).filter(|_| (3..=5).contains(&class));
            return first
                .map(|first| Self {
                    first,
                    last: first + 99,
                })
                .ok_or(());
        }
        let status: u16 = text.parse().map_err(drop)?;
        Some(Self::one(status))
            .filter(|_| (300..=599).contains(&status))
            .ok_or(())
    }
}

impl fmt::Display for Statuses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.first == self.last {
            true => write!(f, "{}", self.first),
            false => write!(f, "{}xx", self.first / 100),
        }
    }
}

impl<'de> Deserialize<'de> for Statuses {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(|()| {
            D::Error::custom(format!(
                "`{text}` is not an error status: use a number from 300 to 599, or 3xx, 4xx or 5xx for a whole class"
            ))
        })
    }
}

impl Serialize for Statuses {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.first == self.last {
            true => serializer.serialize_u16(self.first),
            false => serializer.collect_str(self),
        }
    }
}

impl JsonSchema for Statuses {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Statuses".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "oneOf": [
                { "type": "integer", "minimum": 300, "maximum": 599 },
                { "type": "string", "enum": ["3xx", "4xx", "5xx"] },
            ],
        })
    }
}

/// What an answer means. Each kind of server has its own view of its statuses; this is that of most.
#[derive(Debug)]
pub struct Judge {
    /// What is sent again.
    pub retried: Vec<Statuses>,
    /// Whether no event has a say in the address, so that a wrong one is a fault of the settings.
    pub has_fixed_url: bool,
}

impl Judge {
    /// What became of a request whose answer has this status, with the text that says so.
    ///
    /// # Errors
    /// It was not taken.
    pub fn judge(
        &self,
        status: StatusCode,
        headers: &HeaderMap,
        reason: String,
    ) -> Result<Sent, SendError> {
        if status.is_success() {
            return Ok(Sent::default());
        }
        if self.retried.iter().any(|known| known.include(status)) {
            let after = wait(headers, SystemTime::now());
            let is_busy = matches!(
                status,
                StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE
            );
            return Err(match is_busy || after.is_some() {
                true => SendError::Later { reason, after },
                false => SendError::Retry(reason),
            });
        }
        Err(match status.as_u16() {
            400 | 413 | 422 => SendError::Unfit(reason),
            401 | 403 | 407 | 415 | 300..=399 => SendError::Blocked(reason),
            404 | 405 | 410 if self.has_fixed_url => SendError::Blocked(reason),
            _ => SendError::Refused(reason),
        })
    }
}

#[cfg(test)]
mod tests {
    use http::header::RETRY_AFTER;

    use super::*;

    fn judge(retried: &[&str], has_fixed_url: bool) -> Judge {
        let retried = match retried {
            [] => RETRIED.to_vec(),
            set => set
                .iter()
                .map(|text| text.parse().expect("statuses"))
                .collect(),
        };
        Judge {
            retried,
            has_fixed_url,
        }
    }

    fn verdict(judge: &Judge, status: u16, retry_after: Option<&str>) -> String {
        let mut headers = HeaderMap::new();
        if let Some(value) = retry_after {
            headers.insert(RETRY_AFTER, value.parse().expect("a value"));
        }
        let status = StatusCode::from_u16(status).expect("a status");
        match judge.judge(status, &headers, "x".into()) {
            Ok(_) => "taken".to_owned(),
            Err(SendError::Retry(_)) => "retry".to_owned(),
            Err(SendError::Later { after: None, .. }) => "later".to_owned(),
            Err(SendError::Later {
                after: Some(after), ..
            }) => format!("after {}", after.as_secs()),
            Err(SendError::Blocked(_)) => "blocked".to_owned(),
            Err(SendError::Unfit(_)) => "unfit".to_owned(),
            Err(SendError::Refused(_)) => "refused".to_owned(),
            Err(SendError::Fatal(_)) => "fatal".to_owned(),
        }
    }

    #[test]
    fn statuses_say_what_to_do() {
        for (statuses, expected) in [
            (&[200, 201, 202, 204, 206, 299][..], "taken"),
            (&[408, 500, 501, 502, 504, 507, 599], "retry"),
            (&[429, 503], "later"),
            (&[400, 413, 422], "unfit"),
            (&[300, 301, 302, 304, 308, 401, 403, 407, 415], "blocked"),
            (&[404, 405, 410], "blocked"),
            (&[402, 406, 409, 412, 414, 418, 431, 451], "refused"),
        ] {
            for &status in statuses {
                assert_eq!(
                    verdict(&judge(&[], true), status, None),
                    expected,
                    "{status}"
                );
            }
        }
        for status in [404, 405, 410] {
            assert_eq!(verdict(&judge(&[], false), status, None), "refused");
        }
    }

    #[test]
    fn the_setting_says_what_is_sent_again() {
        let set = judge(&["404", "503", "4xx"], true);
        for (status, expected) in [
            (404, "retry"),
            (400, "retry"),
            (429, "later"),
            (503, "later"),
            (500, "refused"),
            (200, "taken"),
        ] {
            assert_eq!(verdict(&set, status, None), expected, "{status}");
        }
        for wrong in ["200", "600", "2xx", "6xx", "xx", "", "5x", "-1", "five"] {
            assert!(wrong.parse::<Statuses>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_time_that_is_asked_for_is_obeyed() {
        let default = judge(&[], true);
        for (status, value, expected) in [
            (429, "7", "after 7"),
            (503, " 0 ", "after 0"),
            (500, "3", "after 3"),
            (429, "99999999999999999999999", "after 3600"),
            (503, "soon", "later"),
            (503, "-5", "later"),
            (429, "Sun, 06 Nov 1994 08:49:37 GMT", "after 0"),
            (404, "7", "blocked"),
            (200, "7", "taken"),
        ] {
            assert_eq!(verdict(&default, status, Some(value)), expected, "{value}");
        }
    }
}
