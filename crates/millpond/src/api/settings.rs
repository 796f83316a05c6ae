//! The settings of the API, and whether it may be reached from where they say.

use config::{ConfigError, Node, Source};
use net::{Address, Auth, Secret, ServerTls};
use schemars::JsonSchema;
use serde::Deserialize;

/// The name of the API's settings at the top of a configuration.
pub const SETTING: &str = "api";

/// The port where nothing else is said.
pub const PORT: u16 = 9610;

/// The HTTP API: health, metrics and statistics of the process. `false` turns it off, `true` leaves every default.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ApiSettings {
    /// The address to listen on: `9610`, `:9610` or `HOST:9610`. One that other machines can reach needs `token`, or `tls` with `client_ca`.
    pub address: Address,
    /// The token that clients must send, as `Authorization: Bearer TOKEN`. Default: none.
    pub token: Option<Secret>,
    /// TLS settings. Default: no TLS.
    pub tls: Option<ServerTls>,
    /// The maximum number of connections.
    pub max_connections: usize,
}

impl Default for ApiSettings {
    fn default() -> Self {
        Self {
            address: Address::loopback(PORT),
            token: None,
            tls: None,
            max_connections: 64,
        }
    }
}

/// Whether a configuration has an API, and which.
#[derive(Debug, Clone)]
pub struct ApiConfig {
    /// Its settings.
    pub settings: ApiSettings,
    /// Where they stand, or the configuration where there are none.
    pub node: Node,
    /// Whether somebody asked for it, so that a run without it is none.
    pub is_explicit: bool,
    /// Whether there is one.
    pub is_enabled: bool,
}

impl ApiConfig {
    /// That of a configuration. Where it says nothing, a service has one.
    ///
    /// # Errors
    /// A setting cannot work, at its place.
    pub fn of(root: &Node, finite: bool) -> Result<Self, ConfigError> {
        let with = |settings, node: &Node, is_explicit, is_enabled| Self {
            settings,
            node: node.clone(),
            is_explicit,
            is_enabled,
        };
        let default = ApiSettings::default();
        let Some(node) = root.get(SETTING) else {
            return Ok(with(default, root, false, !finite));
        };
        match node.as_str() {
            Some("false" | "off" | "no") => return Ok(with(default, node, true, false)),
            Some("true" | "on" | "yes") => return Ok(with(default, node, true, true)),
            Some(_) => return Err(node.error("`api` is its settings, `true` or `false`")),
            None => {}
        }
        let settings = if node.is_null() {
            default
        } else {
            node.deserialize()?
        };
        let config = with(settings, node, true, true);
        config.check()?;
        Ok(config)
    }

    /// That of the command line: at this address, without a token.
    ///
    /// # Errors
    /// It is no address, or one that other machines can reach.
    pub fn at(address: &str) -> Result<Self, ConfigError> {
        let source = Source::new("--api", address);
        let node = config::parse_yaml(&source)?;
        let settings = ApiSettings {
            address: node.deserialize()?,
            ..ApiSettings::default()
        };
        let config = Self {
            settings,
            node,
            is_explicit: true,
            is_enabled: true,
        };
        config.check()?;
        Ok(config)
    }

    /// Whether clients show a certificate that was checked.
    pub fn is_mutual(&self) -> bool {
        let tls = self.settings.tls.as_ref();
        tls.is_some_and(|tls| tls.client_ca.is_some() && !tls.client_cert_optional)
    }

    /// What clients are asked for.
    pub fn auth(&self) -> Option<Auth> {
        self.settings.token.clone().map(Auth::Bearer)
    }

    /// The error of an address that others can reach without saying who they are.
    pub fn exposed(&self) -> ConfigError {
        let address = &self.settings.address;
        self.node
            .nearest("address")
            .error(format!(
                "other machines can reach the API at {address}: it needs `token`, or `tls` with `client_ca`"
            ))
            .note("a token is best read from a file: token: file:/etc/millpond/api-token")
    }

    fn check(&self) -> Result<(), ConfigError> {
        if let Some(auth) = self.auth() {
            auth.check(self.node.nearest("token"))?;
        }
        let is_guarded = self.settings.token.is_some() || self.is_mutual();
        if !is_guarded && !self.settings.address.is_loopback() {
            return Err(self.exposed());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str, finite: bool) -> Result<ApiConfig, ConfigError> {
        let root = config::parse_yaml(&Source::new("test.yaml", text)).expect("a tree");
        ApiConfig::of(&root, finite)
    }

    #[test]
    fn a_service_has_one_on_this_machine() {
        for (text, finite, is_enabled, is_explicit) in [
            ("pipelines: {}", false, true, false),
            ("pipelines: {}", true, false, false),
            ("api: false", false, false, true),
            ("api: true", true, true, true),
            ("api:", false, true, true),
            ("api: { address: 1234 }", false, true, true),
        ] {
            let api = config(text, finite).expect("it is right");
            let found = (api.is_enabled, api.is_explicit);
            assert_eq!(found, (is_enabled, is_explicit), "{text}");
        }
        let api = config("a: b", false).expect("it is right");
        assert_eq!(api.settings.address.to_string(), "127.0.0.1:9610");
    }

    #[test]
    fn what_others_reach_needs_a_secret() {
        let tls = "cert: a, key: b";
        for (text, is_right) in [
            ("api: { address: ':9610' }".to_owned(), false),
            ("api: { address: 10.0.0.1:9610 }".to_owned(), false),
            ("api: { address: host.example:9610 }".to_owned(), false),
            ("api: { address: '[::1]:9610' }".to_owned(), true),
            ("api: { address: localhost:9610 }".to_owned(), true),
            ("api: { address: 127.0.0.2:9610 }".to_owned(), true),
            ("api: { address: ':9610', token: x }".to_owned(), true),
            ("api: { address: ':9610', token: '' }".to_owned(), false),
            (format!("api: {{ address: ':1', tls: {{ {tls} }} }}"), false),
            (
                format!("api: {{ address: ':1', tls: {{ {tls}, client_ca: c }} }}"),
                true,
            ),
            (
                format!(
                    "api: {{ address: ':1', tls: {{ {tls}, client_ca: c, client_cert_optional: true }} }}"
                ),
                false,
            ),
            ("api: sometimes".to_owned(), false),
            ("api: { port: 1 }".to_owned(), false),
        ] {
            assert_eq!(config(&text, false).is_ok(), is_right, "{text}");
        }
        let error = config("api: { address: ':9610' }", false).expect_err("exposed");
        let text = error.to_string();
        assert!(
            text.contains("token") && text.contains("api.address"),
            "{text}"
        );
    }

    #[test]
    fn the_command_line_gives_an_address() {
        assert!(ApiConfig::at("9999").is_ok() && ApiConfig::at("127.0.0.1:0").is_ok());
        assert!(ApiConfig::at(":9999").is_err() && ApiConfig::at("nonsense").is_err());
    }
}
