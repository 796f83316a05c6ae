//! The settings of a client as the configuration of librdkafka.

use config::{ConfigError, Node};
use rdkafka::ClientConfig;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::KafkaError;

use crate::settings::{BrokerSettings, Mechanism};

/// Options of librdkafka that nobody else may set, each with the setting that stands for it; an empty one where Millpond's guarantees
/// depend on the value.
pub type OptionOwner = (&'static str, &'static str);

/// Those of every client.
const OWNERS: &[OptionOwner] = &[
    ("bootstrap.servers", "brokers"),
    ("metadata.broker.list", "brokers"),
    ("client.id", "client_id"),
    ("security.protocol", "tls` and `sasl"),
    ("ssl.ca.location", "tls.ca"),
    ("ssl.certificate.location", "tls.cert"),
    ("ssl.key.location", "tls.key"),
    ("enable.ssl.certificate.verification", "tls.verify"),
    ("sasl.mechanism", "sasl.mechanism"),
    ("sasl.mechanisms", "sasl.mechanism"),
    ("sasl.username", "sasl.user"),
    ("sasl.password", "sasl.password"),
    ("socket.connection.setup.timeout.ms", "connect_timeout"),
    ("log.queue", ""),
    ("log_level", ""),
];

/// The configuration of a client. `own` are the options that the component sets, and `owners` those that the user may not. `node` holds the
/// settings of the component. Reads no files.
///
/// # Errors
/// An option is unknown, has a wrong value, or is not the user's to set, at its place.
pub fn client_config(
    settings: &BrokerSettings,
    node: &Node,
    own: &[(&str, &str)],
    owners: &[OptionOwner],
) -> Result<ClientConfig, ConfigError> {
    let mut config = ClientConfig::new();
    // Less important messages are for developers of librdkafka.
    config.set_log_level(RDKafkaLogLevel::Warning);
    config.set("bootstrap.servers", settings.addresses());
    config.set("client.id", &settings.client_id);
    let timeout = settings.connect_timeout.get().0.as_millis().max(1000);
    config.set("socket.connection.setup.timeout.ms", timeout.to_string());
    let protocol = match (&settings.tls, &settings.sasl) {
        (None, None) => "plaintext",
        (Some(_), None) => "ssl",
        (None, Some(_)) => "sasl_plaintext",
        (Some(_), Some(_)) => "sasl_ssl",
    };
    config.set("security.protocol", protocol);
    if let Some(tls) = &settings.tls {
        let files = [
            ("ssl.ca.location", &tls.ca),
            ("ssl.certificate.location", &tls.cert),
            ("ssl.key.location", &tls.key),
        ];
        for (option, file) in files {
            if let Some(file) = file {
                config.set(option, file.to_string_lossy());
            }
        }
        let verifies = tls.verify.to_string();
        config.set("enable.ssl.certificate.verification", verifies);
    }
    if let Some(sasl) = &settings.sasl {
        config.set("sasl.mechanisms", sasl.mechanism.name());
        if let Some(user) = &sasl.user {
            config.set("sasl.username", user);
        }
    }
    for (option, value) in own {
        config.set(*option, *value);
    }
    let places = node.nearest("options");
    for (option, value) in &settings.options {
        let at = places.get(option).unwrap_or(places);
        let mut all = OWNERS.iter().chain(owners);
        match all.find(|(owned, _)| owned == option) {
            Some((_, "")) => {
                let message = format!(
                    "`{option}` cannot be changed: what Millpond guarantees depends on its value"
                );
                return Err(at.error(message));
            }
            Some((_, setting)) => {
                return Err(at.error(format!("`{option}` is set by `{setting}`")));
            }
            None => config.set(option, value.text()),
        };
        let wrong = |error: KafkaError| match error {
            KafkaError::ClientConfig(_, text, _, _) => at.error(text),
            other => at.error(other.to_string()),
        };
        // Each on its own, for its place.
        let mut alone = ClientConfig::new();
        alone.set(option, value.text());
        alone.create_native_config().map(drop).map_err(wrong)?;
    }
    Ok(config)
}

/// Makes a client of a configuration: reads certificates and the password, and gives both to `make`.
///
/// # Errors
/// A file cannot be used, or librdkafka refuses the configuration, at the place of the setting.
pub fn created<T>(
    settings: &BrokerSettings,
    node: &Node,
    mut config: ClientConfig,
    make: impl FnOnce(&ClientConfig) -> Result<T, KafkaError>,
) -> Result<T, ConfigError> {
    if let Some(tls) = &settings.tls {
        tls.check(node.nearest("tls"))?;
    }
    if let Some(sasl) = &settings.sasl {
        let secrets = [("password", &sasl.password), ("token", &sasl.token)];
        for (name, secret) in secrets {
            let Some(secret) = secret else { continue };
            let at = node.nearest("sasl").nearest(name);
            let text = secret
                .reveal()
                .map_err(|error| at.error(error.to_string()))?;
            if sasl.mechanism != Mechanism::OAuthBearer {
                config.set("sasl.password", &*text);
            }
        }
    }
    make(&config).map_err(|error| {
        let text = match error {
            KafkaError::ClientConfig(_, text, option, _) => format!("{option}: {text}"),
            KafkaError::ClientCreation(text) => text,
            other => other.to_string(),
        };
        node.error(format!("librdkafka refuses the settings: {text}"))
    })
}

#[cfg(test)]
mod tests {
    use ::config::{Source, parse_yaml};

    use super::*;

    fn configured(yaml: &str) -> Result<ClientConfig, ConfigError> {
        let node = parse_yaml(&Source::new("t.yaml", yaml)).expect("YAML");
        let (settings, _) = BrokerSettings::divide(&node)?;
        client_config(&settings, &node, &[("acks", "all")], &[("acks", "acks")])
    }

    #[test]
    fn settings_become_options() {
        let yaml = "{brokers: a, tls: {ca: /ca.pem, verify: false}, sasl: {mechanism: PLAIN, user: u, password: p}, options: {linger.ms: 20}}";
        let config = configured(yaml).expect("a configuration");
        for (option, value) in [
            ("bootstrap.servers", "a:9092"),
            ("security.protocol", "sasl_ssl"),
            ("ssl.ca.location", "/ca.pem"),
            ("enable.ssl.certificate.verification", "false"),
            ("sasl.mechanisms", "PLAIN"),
            ("sasl.username", "u"),
            ("acks", "all"),
            ("linger.ms", "20"),
        ] {
            assert_eq!(config.get(option), Some(value), "{option}");
        }
        assert_eq!(config.get("sasl.password"), None, "it is read at the start");
    }

    #[test]
    fn options_that_cannot_work_are_refused_at_their_place() {
        for (options, part) in [
            ("bootstrap.servers: b", "is set by `brokers`"),
            ("acks: 1", "is set by `acks`"),
            ("log.queue: false", "cannot be changed"),
            ("lingering: 1", "lingering"),
            ("linger.ms: many", "linger.ms"),
        ] {
            let yaml = format!("brokers: a\noptions:\n  {options}\n");
            let error = configured(&yaml).expect_err(options).to_string();
            assert!(error.contains(part), "{options}: {error}");
            assert!(error.contains("t.yaml:3"), "{options}: {error}");
        }
    }
}
