//! What librdkafka says about its connections, and the tokens that it asks for.
//!
//! librdkafka mends connections itself and goes on for ever; [`LinkState`] keeps what a component has to tell its user meanwhile: the
//! trouble that lasts, and warnings.

use std::error::Error;
use std::sync::Arc;
use std::time::SystemTime;

use component::{Limit, Warning};
use net::Secret;
use parking_lot::Mutex;
use rdkafka::client::{ClientContext, OAuthToken};
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use tokio::sync::Notify;

use crate::token::described;

/// Warnings that are kept until somebody takes them.
const WARNINGS_MAX: usize = 16;

/// Why brokers take and give nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trouble {
    /// None can be reached.
    Down(String),
    /// They refuse the client: a person must mend something.
    Refused(String),
}

/// What is known of the connections of a client.
#[derive(Debug, Default)]
pub struct LinkState {
    trouble: Mutex<Option<Trouble>>,
    /// Why the last connection failed.
    last: Mutex<Option<String>>,
    warnings: Mutex<Vec<Warning>>,
    changed: Notify,
    /// Whether producers and consumers have the same options, so that each gets some that mean nothing to it.
    shares_options: bool,
}

impl LinkState {
    /// Of a client of a queue.
    pub fn of_queue() -> Self {
        Self {
            shares_options: true,
            ..Self::default()
        }
    }

    /// The trouble that lasts, if there is any.
    pub fn trouble(&self) -> Option<Trouble> {
        self.trouble.lock().clone()
    }

    /// The trouble that came up since the last call, if there is any.
    pub fn take_trouble(&self) -> Option<Trouble> {
        self.trouble.lock().take()
    }

    /// A broker has answered.
    pub fn works(&self) {
        *self.trouble.lock() = None;
    }

    /// Waits until trouble comes up after the call, or comes up again.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }

    /// What a person should hear since the last call.
    pub fn take_warnings(&self) -> Vec<Warning> {
        std::mem::take(&mut self.warnings.lock())
    }

    /// Keeps a warning until it is taken.
    pub fn warn(&self, text: Warning) {
        let mut warnings = self.warnings.lock();
        if warnings.len() < WARNINGS_MAX {
            warnings.push(text);
        }
    }

    fn fail(&self, trouble: Trouble) {
        let mut known = self.trouble.lock();
        // Brokers that refuse the client count as down for librdkafka, which says so afterwards.
        if !matches!(
            (&*known, &trouble),
            (Some(Trouble::Refused(_)), Trouble::Down(_))
        ) {
            *known = Some(trouble);
        }
        drop(known);
        self.changed.notify_waiters();
    }
}

/// The context of a client, together with what a component does with messages.
#[derive(Debug)]
pub struct Link {
    state: Arc<LinkState>,
    token: Option<Secret>,
}

impl Link {
    /// For a client with these connections, and the token that it shows.
    pub fn new(state: &Arc<LinkState>, token: Option<Secret>) -> Self {
        Self {
            state: state.clone(),
            token,
        }
    }

    /// What is known of its connections.
    pub fn state(&self) -> &Arc<LinkState> {
        &self.state
    }
}

impl ClientContext for Link {
    const ENABLE_REFRESH_OAUTH_TOKEN: bool = true;

    fn log(&self, level: RDKafkaLogLevel, kind: &str, text: &str) {
        // Errors come as such, too.
        let is_known = matches!(kind, "FAIL" | "ERROR" | "REQTMOUT" | "SSL" | "SASL");
        let is_foreign = self.state.shares_options && text.contains(" will be ignored by this ");
        if is_known || is_foreign || level as i32 > RDKafkaLogLevel::Warning as i32 {
            return tracing::debug!("librdkafka: {kind}: {text}");
        }
        let limit = Limit::events("librdkafka");
        let text = format!("librdkafka: {}", words(text));
        self.state.warn(Warning::limited(limit, text));
    }

    fn error(&self, error: KafkaError, reason: &str) {
        let reason = words(reason);
        let state = &self.state;
        match error.rdkafka_error_code() {
            Some(RDKafkaErrorCode::AllBrokersDown) => {
                let last = state.last.lock().clone();
                state.fail(Trouble::Down(last.unwrap_or(reason)));
            }
            Some(
                RDKafkaErrorCode::Authentication
                | RDKafkaErrorCode::SaslAuthenticationFailed
                | RDKafkaErrorCode::UnsupportedSASLMechanism
                | RDKafkaErrorCode::SSL,
            ) => {
                *state.last.lock() = Some(reason.clone());
                state.fail(Trouble::Refused(reason));
            }
            Some(
                RDKafkaErrorCode::BrokerTransportFailure
                | RDKafkaErrorCode::Resolve
                | RDKafkaErrorCode::OperationTimedOut,
            ) => *state.last.lock() = Some(reason),
            // No error.
            Some(RDKafkaErrorCode::PartitionEOF) => {}
            _ => {
                let limit = Limit::events("librdkafka_errors");
                state.warn(Warning::limited(limit, reason));
            }
        }
    }

    fn generate_oauth_token(&self, _: Option<&str>) -> Result<OAuthToken, Box<dyn Error>> {
        let Some(token) = &self.token else {
            return Err("there is no token".into());
        };
        let revealed = token.reveal().inspect_err(|error| {
            self.state.warn(error.to_string().into());
        });
        let token = revealed?.trim().to_owned();
        let (principal_name, lifetime_ms) = described(&token, SystemTime::now());
        Ok(OAuthToken {
            token,
            principal_name,
            lifetime_ms,
        })
    }
}

/// What librdkafka says, in one line and without the name that it has for the client.
pub fn words(text: &str) -> String {
    // `[thrd:…]: ` and `127.0.0.1:9092/bootstrap: ` stand before what happened.
    let text = match text.strip_prefix('[') {
        Some(rest) => rest.split_once("]: ").map_or(text, |(_, rest)| rest),
        None => text,
    };
    let text = text.replace("/bootstrap: ", ": ");
    // How long it took, and how often it happened before, is for those who develop librdkafka.
    let text = text.split(" (after ").next().unwrap_or_default();
    let text = text.split(char::is_control).collect::<Vec<_>>().join(" ");
    text.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_librdkafka_says_is_shortened() {
        for (said, expected) in [
            (
                "[thrd:127.0.0.1:1/bootstrap]: 127.0.0.1:1/bootstrap: Connect to ipv4#127.0.0.1:1 failed: Connection refused (after 0ms in state CONNECT)",
                "127.0.0.1:1: Connect to ipv4#127.0.0.1:1 failed: Connection refused",
            ),
            ("1/1 brokers are down", "1/1 brokers are down"),
            ("[x", "[x"),
            ("a\nb", "a b"),
        ] {
            assert_eq!(words(said), expected);
        }
    }

    #[test]
    fn options_of_the_other_client_of_a_queue_are_no_mistake() {
        let text = "Configuration property session.timeout.ms is a consumer property and will be ignored by this producer instance";
        for (state, warnings) in [(LinkState::default(), 1), (LinkState::of_queue(), 0)] {
            let state = Arc::new(state);
            let link = Link::new(&state, None);
            link.log(RDKafkaLogLevel::Warning, "CONFWARN", text);
            assert_eq!(state.take_warnings().len(), warnings);
        }
    }

    #[test]
    fn trouble_lasts_until_a_broker_answers() {
        let state = Arc::new(LinkState::default());
        let link = Link::new(&state, None);
        let error = |code, reason| link.error(KafkaError::Global(code), reason);
        error(RDKafkaErrorCode::BrokerTransportFailure, "a:1: refused");
        assert_eq!(state.trouble(), None, "another broker may be there");
        error(RDKafkaErrorCode::AllBrokersDown, "1/1 brokers are down");
        let down = Trouble::Down("a:1: refused".to_owned());
        assert_eq!(state.trouble(), Some(down));
        state.works();
        assert_eq!(state.trouble(), None);
        error(RDKafkaErrorCode::Authentication, "a:1: no");
        error(RDKafkaErrorCode::AllBrokersDown, "1/1 brokers are down");
        let refused = Trouble::Refused("a:1: no".to_owned());
        assert_eq!(state.take_trouble(), Some(refused), "it says more");
        error(RDKafkaErrorCode::AllBrokersDown, "1/1 brokers are down");
        let down = Trouble::Down("a:1: no".to_owned());
        assert_eq!(state.trouble(), Some(down));
        error(RDKafkaErrorCode::OffsetOutOfRange, "offset");
        assert_eq!(state.take_warnings().len(), 1);
    }
}
