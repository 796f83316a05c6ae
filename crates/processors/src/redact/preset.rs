//! The kinds of secrets that are known by name.

use schemars::JsonSchema;
use serde::Deserialize;

/// A kind of secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum Preset {
    /// Numbers of payment cards, with their check digit.
    Card,
    /// Email addresses.
    Email,
    /// International bank account numbers, with their check digits.
    Iban,
    /// IPv4 and IPv6 addresses.
    Ip,
    /// JSON Web Tokens.
    Jwt,
    /// Access keys of Amazon Web Services.
    Aws,
    /// Keys of Azure Storage and of other services with such keys, and signatures of shared access.
    Azure,
    /// API keys, OAuth tokens and client secrets of Google.
    Google,
    /// Tokens of GitHub.
    Github,
    /// Tokens of GitLab.
    Gitlab,
    /// Tokens and webhooks of Slack.
    Slack,
    /// Secret keys of Stripe.
    Stripe,
    /// Keys and tokens of other services that begin with a name.
    ApiKey,
    /// Private keys in PEM.
    PrivateKey,
    /// Passwords in URLs.
    UrlPassword,
    /// All of them.
    All,
}

/// The number of presets, without the one that stands for all.
pub(super) const PRESETS: usize = 15;

/// The name of what is found by the user's own patterns, for counters.
const OWN: &str = "patterns";

impl Preset {
    /// Every preset, in the sequence of their numbers.
    pub const ALL: [Self; PRESETS] = [
        Self::Card,
        Self::Email,
        Self::Iban,
        Self::Ip,
        Self::Jwt,
        Self::Aws,
        Self::Azure,
        Self::Google,
        Self::Github,
        Self::Gitlab,
        Self::Slack,
        Self::Stripe,
        Self::ApiKey,
        Self::PrivateKey,
        Self::UrlPassword,
    ];

    /// The preset of a name.
    pub fn of(name: &str) -> Option<Self> {
        let mut all = Self::ALL.into_iter().chain([Self::All]);
        all.find(|preset| preset.name() == name)
    }

    /// Its name, which is also that of the counter.
    const fn name(self) -> &'static str {
        match self {
            Self::Card => "card",
            Self::Email => "email",
            Self::Iban => "iban",
            Self::Ip => "ip",
            Self::Jwt => "jwt",
            Self::Aws => "aws",
            Self::Azure => "azure",
            Self::Google => "google",
            Self::Github => "github",
            Self::Gitlab => "gitlab",
            Self::Slack => "slack",
            Self::Stripe => "stripe",
            Self::ApiKey => "api_key",
            Self::PrivateKey => "private_key",
            Self::UrlPassword => "url_password",
            Self::All => "all",
        }
    }
}

/// Some of the presets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct PresetSet(u16);

impl PresetSet {
    pub fn has(self, preset: Preset) -> bool {
        self.0 & 1 << preset as u16 != 0
    }

    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl FromIterator<Preset> for PresetSet {
    fn from_iter<I: IntoIterator<Item = Preset>>(presets: I) -> Self {
        let bits = |preset| match preset {
            Preset::All => (1 << PRESETS) - 1,
            preset => 1 << preset as u16,
        };
        Self(
            presets
                .into_iter()
                .map(bits)
                .fold(0, |set, bits| set | bits),
        )
    }
}

/// A secret in a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SecretMatch {
    pub start: usize,
    pub end: usize,
    /// What it is; none for the user's own patterns, and for what consists of several that overlap.
    pub preset: Option<Preset>,
}

/// How many secrets were replaced, by preset.
#[derive(Debug, Clone, Default)]
pub(super) struct PresetCounts {
    presets: [u64; PRESETS],
    own: u64,
}

impl PresetCounts {
    pub fn count(&mut self, preset: Option<Preset>) {
        match preset {
            Some(preset) => self.presets[preset as usize] += 1,
            None => self.own += 1,
        }
    }

    /// The counts since the last call, without those that are zero.
    pub fn take(&mut self) -> Vec<(&'static str, u64)> {
        let counts = std::mem::take(self);
        let presets = Preset::ALL.into_iter().zip(counts.presets);
        presets
            .map(|(preset, count)| (preset.name(), count))
            .chain([(OWN, counts.own)])
            .filter(|(_, count)| *count > 0)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names_are_those_of_the_settings() {
        for (number, preset) in Preset::ALL.into_iter().enumerate() {
            assert_eq!(preset as usize, number);
            let name = format!("\"{}\"", preset.name());
            let read: Preset = serde_json::from_str(&name).expect(&name);
            assert_eq!(read, preset);
        }
    }
}
