//! `redact`: masks secrets in texts.

mod addresses;
mod candidates;
mod disguise;
mod finder;
mod numbers;
mod preset;
#[cfg(test)]
mod tests;
mod tokens;

use std::sync::Arc;

use batch::{Batch, Bitmap, Failures, FieldPath, FieldRead, NewText, TextChange};
use component::{Build, BuildContext, Example, Order, Processor, Spec, parse};
use config::{ConfigError, Node, Positional};
use net::Secret;
use regex_automata::meta::Regex;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::setting_words::{as_field, in_backticks, is_no_field, refuse_words};
use disguise::Disguise;
use finder::SecretFinder;
use preset::{Preset, PresetCounts, PresetSet, SecretMatch};

/// The processor's description.
pub const SPEC: Spec = Spec {
    name: "redact",
    aliases: &[],
    summary: "Masks secrets in texts: card numbers, email addresses, IBANs, IP addresses, keys and tokens, and what patterns match.",
    description: include_str!("description.md"),
    positional: Positional::list(&["fields"]),
    one_line: &[],
    examples: &[
        Example {
            title: "All texts of the event",
            stage: "redact",
            input: r#"{"message":"paid with 4111 1111 1111 1111","user":{"mail":"joe@example.com"},"took":12}"#,
            output: r#"{"message":"paid with ***","user":{"mail":"***"},"took":12}"#,
        },
        Example {
            title: "Card numbers of one field, of which the last four digits stay",
            stage: "redact message presets=card keep=4",
            input: r#"{"message":"card 5105-1051-0510-5100, order 1234567890123456","mail":"joe@example.com"}"#,
            output: r#"{"message":"card ***5100, order 1234567890123456","mail":"joe@example.com"}"#,
        },
        Example {
            title: "Pseudonyms that cannot be guessed without the key, the same for all ways to write a value",
            stage: "redact presets=[ip, email] action=hmac key=a-long-key",
            input: "{\"message\":\"Joe@example.com from 2001:db8::1\"}\n{\"message\":\"joe@example.com from 2001:DB8:0::0:1\"}",
            output: "{\"message\":\"c3885d720d21c466 from 5adcfbc6013f6e7a\"}\n{\"message\":\"c3885d720d21c466 from 5adcfbc6013f6e7a\"}",
        },
        Example {
            title: "A pattern of one's own, of which the group is masked, and no preset",
            stage: r#"redact presets=[] patterns=["session=(\\w+)"] mask=hidden"#,
            input: r#"{"message":"session=abc123 from 192.0.2.7"}"#,
            output: r#"{"message":"session=hidden from 192.0.2.7"}"#,
        },
    ],
    schema: |generator| generator.subschema_for::<Config>(),
    build: Build::Processor {
        order: Order::Stateless,
        // What could not be parsed holds secrets, too.
        sees_sealed: true,
        build,
    },
};

/// Settings of `redact`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Config {
    /// The fields whose texts are looked at. Default: all.
    fields: Option<Vec<String>>,
    /// The kinds of secrets to look for; `all` stands for every one. Default: every one but `ip`.
    presets: Option<Vec<Preset>>,
    /// Regular expressions of what is masked as well. Of one with groups, only what the groups match is masked.
    #[serde(default)]
    patterns: Vec<String>,
    /// What is written in the place of a secret.
    #[serde(default)]
    action: Action,
    /// The text in the place of a secret, for the action `mask`. Default: `***`.
    mask: Option<String>,
    /// How many characters at the end of a secret stay behind the mask, for the action `mask`. Of a secret with fewer than twice as many, none stay.
    #[serde(default)]
    keep: usize,
    /// The key of the action `hmac`. It is read once, at the start.
    key: Option<Secret>,
}

/// What is written in the place of a secret.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Action {
    /// The same text for all secrets.
    #[default]
    Mask,
    /// The first 16 hexadecimal digits of the SHA-256 of the secret.
    Hash,
    /// The first 16 hexadecimal digits of an HMAC with SHA-256 of the secret, with a key.
    Hmac,
}

fn build(node: &Node, _: &BuildContext) -> Result<Box<dyn Processor>, ConfigError> {
    refuse_words(node, is_setting, &[])?;
    refuse_presets(node)?;
    let config: Config = parse(node)?;
    let empty = "name at least one field, or leave `fields` out to redact all texts";
    let fields = config
        .fields
        .as_deref()
        .map(|fields| component::fields(node, "fields", fields, empty))
        .transpose()?;
    let defaults = || {
        Preset::ALL
            .into_iter()
            .filter(|preset| *preset != Preset::Ip)
    };
    let presets: PresetSet = match &config.presets {
        Some(presets) => presets.iter().copied().collect(),
        None => defaults().collect(),
    };
    if presets.is_empty() && config.patterns.is_empty() {
        return Err(node
            .nearest("presets")
            .error("there is nothing to look for")
            .note("name presets, or `patterns` of your own"));
    }
    let patterns = config.patterns.iter().enumerate();
    let patterns = patterns
        .map(|(index, pattern)| {
            let setting = node.nearest(&format!("patterns[{index}]"));
            compile(pattern).map_err(|reason| setting.error(reason))
        })
        .collect::<Result<_, _>>()?;
    Ok(Box::new(Redact {
        fields,
        masking: Masking {
            finder: Arc::new(SecretFinder::new(presets, patterns)),
            disguise: disguise(node, &config)?,
            found: Vec::new(),
            counts: PresetCounts::default(),
        },
    }))
}

fn is_setting(name: &str, value: &str) -> bool {
    match name {
        "presets" => Preset::of(value).is_some(),
        "action" => ["mask", "hash", "hmac"].contains(&value),
        "keep" => value.parse::<usize>().is_ok(),
        "mask" | "patterns" => is_no_field(value),
        _ => false,
    }
}

/// Refuses `redact card`, which means a preset and would look at the field `card`. With `fields=`, a field is meant.
fn refuse_presets(node: &Node) -> Result<(), ConfigError> {
    let Some((name, fields)) = node.entry("fields") else {
        return Ok(());
    };
    // Without the name of the setting, it stands where its value stands.
    if name.span.start != fields.span.start {
        return Ok(());
    }
    let fields = match fields.items() {
        [] => std::slice::from_ref(fields),
        items => items,
    };
    let names = fields
        .iter()
        .map(|field| field.as_str().unwrap_or_default());
    let mut presets = names
        .enumerate()
        .filter(|(_, name)| Preset::of(name).is_some());
    let Some((index, first)) = presets.next() else {
        return Ok(());
    };
    let all: Vec<&str> = [first]
        .into_iter()
        .chain(presets.map(|(_, name)| name))
        .collect();
    let error = as_field(node, "fields", index, first, "preset");
    let error = match &*all {
        [only] => error.note(format!("write presets={only}")),
        all => error.note(format!("write presets=[{}]", all.join(", "))),
    };
    Err(in_backticks(error, first))
}

fn compile(pattern: &str) -> Result<Regex, String> {
    let hir = regex_syntax::parse(pattern)
        .map_err(|error| format!("`{pattern}` is not a supported regular expression: {error}"))?;
    if hir.properties().minimum_len() == Some(0) {
        return Err(format!(
            "`{pattern}` matches an empty text, which is no secret"
        ));
    }
    Regex::builder()
        .build_from_hir(&hir)
        .map_err(|error| format!("`{pattern}` cannot be used: {error}"))
}

fn disguise(node: &Node, config: &Config) -> Result<Disguise, ConfigError> {
    let is_mask = config.action == Action::Mask;
    for (name, is_there) in [("mask", config.mask.is_some()), ("keep", config.keep > 0)] {
        if is_there && !is_mask {
            let message = format!("`{name}` only applies to `action: mask`");
            return Err(node.nearest(name).error(message));
        }
    }
    match (config.action, &config.key) {
        (Action::Hmac, None) => Err(node
            .nearest("action")
            .error("`action: hmac` needs a key")
            .note("give it as key=${VARIABLE} or key=file:PATH")),
        (Action::Hmac, Some(key)) => {
            let refuse = |reason: String| node.nearest("key").error(reason);
            let key = key.reveal().map_err(|error| refuse(error.to_string()))?;
            if key.is_empty() {
                return Err(refuse("the key is empty".to_owned()));
            }
            Disguise::hmac(key.as_bytes())
                .ok_or_else(|| refuse("the key cannot be used".to_owned()))
        }
        (_, Some(_)) => Err(node
            .nearest("key")
            .error("`key` only applies to `action: hmac`")),
        (Action::Hash, None) => Ok(Disguise::Hash),
        (Action::Mask, None) => Ok(Disguise::Mask {
            text: config.mask.as_deref().unwrap_or("***").into(),
            keep: config.keep,
        }),
    }
}

#[derive(Clone)]
struct Redact {
    /// The fields to look at; none for all.
    fields: Option<Vec<FieldPath>>,
    masking: Masking,
}

/// Masks the secrets in one text after the other.
#[derive(Clone)]
struct Masking {
    finder: Arc<SecretFinder>,
    disguise: Disguise,
    /// The secrets of a text.
    found: Vec<SecretMatch>,
    counts: PresetCounts,
}

impl Processor for Redact {
    fn process(&mut self, batch: &mut Batch, rows: &Bitmap) -> Failures {
        match &self.fields {
            None => batch.change_texts(&mut self.masking, rows),
            Some(fields) => batch.change_fields(fields, &mut self.masking, rows),
        };
        Failures::none()
    }

    fn reads(&self) -> Vec<Arc<FieldRead>> {
        let fields = self.fields.iter().flatten().cloned();
        let read = |path| Arc::new(FieldRead::always(path));
        fields.map(read).collect()
    }

    fn take_counters(&mut self) -> Vec<(&'static str, u64)> {
        self.masking.counts.take()
    }
}

impl TextChange for Masking {
    #[inline]
    fn leaves_len(&self, len: usize) -> bool {
        self.finder.is_too_short(len)
    }

    fn leaves_json(&mut self, value: &[u8]) -> bool {
        self.finder.is_free(value, &mut self.found)
    }

    fn would_change(&mut self, text: &[u8]) -> bool {
        self.finder.find(text, &mut self.found);
        !self.found.is_empty()
    }

    fn change(&mut self, text: &[u8], out: &mut Vec<u8>) -> NewText {
        if !self.would_change(text) {
            return NewText::Same;
        }
        let mut copied = 0;
        for secret in &self.found {
            self.counts.count(secret.preset);
            out.extend_from_slice(&text[copied..secret.start]);
            self.disguise.write(text, secret, out);
            copied = secret.end;
        }
        out.extend_from_slice(&text[copied..]);
        NewText::Written
    }
}
