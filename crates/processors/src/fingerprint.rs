//! `fingerprint`: a hash of fields.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use batch::{Batch, Bitmap, Cell, Column, ColumnBuilder, Edit, Failures, FieldPath, FieldRead};
use component::{Build, BuildContext, Example, Order, Processor, Spec, parse};
use config::{ConfigError, Node, Positional};
use hmac::{Hmac, KeyInit, Mac};
use md5::Md5;
use net::Secret;
use schemars::JsonSchema;
use serde::Deserialize;
use sha1::Sha1;
use sha2::{Digest, Sha256, Sha512};

use crate::setting_words::refuse_words;
use crate::text::write_hex;

const FAILURE_TAG: &str = "_fingerprintfailure";

/// The processor's description.
pub const SPEC: Spec = Spec {
    name: "fingerprint",
    aliases: &[],
    summary: "Writes a hash of fields into a field.",
    description: "One field is hashed as its text. Several are hashed together with their names, sorted by name: `|host|web1|user|joe|`; \
                  `names` chooses otherwise, and without names the values follow each other in the same form, `|web1|joe|`. Numbers count with their digits, times in RFC 3339, objects and lists as the JSON that an \
                  output would write, in which the sequence of members matters. A field that is absent or null counts as an empty text; if all are, nothing is written. \
                  An existing `target` is replaced. If the target lies below something that is no object, the event fails with `_fingerprintfailure`.\n\n\
                  `key` makes it an HMAC: a hash of an address or a user can be found by trying all of them, an HMAC only by whoever has the key. \
                  `xxh3` has 64 bits and is the fastest, for grouping and sharding; it takes no key and is no protection.\n\n\
                  The result is that of Logstash's `fingerprint` for one field, and for several with `concatenate_sources`, where the values are texts and whole \
                  numbers and fields have the names that Logstash gives them (it writes nested ones as `[a][b]`); and that of the processor `fingerprint` of Beats for such values, with `names=true` also for one field. It is not that of Elasticsearch's \
                  ingest processor, which hashes binary forms of values.\n\n\
                  To make Elasticsearch store an event once, none of this is needed: outputs give the events ids of their own.",
    positional: Positional::list(&["fields"]),
    one_line: &[],
    examples: &[
        Example {
            title: "One field",
            stage: "fingerprint user target=user_hash",
            input: r#"{"user":"joe"}"#,
            output: r#"{"user":"joe","user_hash":"78675cc176081372c43abab3ea9fb70c74381eb02dc6e93fb6d44d161da6eeb3"}"#,
        },
        Example {
            title: "Several fields together",
            stage: "fingerprint user, host method=md5 target=id",
            input: r#"{"user":"joe","host":"web1"}"#,
            output: r#"{"user":"joe","host":"web1","id":"89493f30e4d5c34087e30c7ea8d21217"}"#,
        },
        Example {
            title: "With a key, in base64",
            stage: "fingerprint user method=sha1 key=a-long-key encoding=base64",
            input: r#"{"user":"joe"}"#,
            output: r#"{"user":"joe","fingerprint":"7g9EsNmY6vaL13w8y3s8wmOZreQ="}"#,
        },
    ],
    schema: |generator| generator.subschema_for::<Config>(),
    build: Build::Processor {
        order: Order::Stateless,
        sees_sealed: false,
        build,
    },
};

/// Settings of `fingerprint`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Config {
    /// The fields to hash.
    fields: Vec<String>,
    /// The field to write.
    #[serde(default = "default_target")]
    target: String,
    /// The hash function.
    #[serde(default)]
    method: HashMethod,
    /// How the hash is written.
    #[serde(default)]
    encoding: HashEncoding,
    /// Whether the names of the fields are hashed, too. Default: false for one field, true for several.
    names: Option<bool>,
    /// The key of an HMAC. It is read once, at the start.
    key: Option<Secret>,
}

fn default_target() -> String {
    "fingerprint".to_owned()
}

/// A hash function.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum HashMethod {
    /// SHA-256, 64 hexadecimal digits.
    #[default]
    Sha256,
    /// SHA-512, 128 hexadecimal digits.
    Sha512,
    /// SHA-1, 40 hexadecimal digits. Not for security, except with a key.
    Sha1,
    /// MD5, 32 hexadecimal digits. Not for security, except with a key.
    Md5,
    /// XXH3, 16 hexadecimal digits. Not for security.
    Xxh3,
}

/// How a hash is written.
#[derive(Debug, Clone, Copy, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum HashEncoding {
    /// In small hexadecimal digits.
    #[default]
    Hex,
    /// In base64, with `=` at the end.
    Base64,
}

fn build(node: &Node, context: &BuildContext) -> Result<Box<dyn Processor>, ConfigError> {
    refuse_words(node, is_setting, &["target"])?;
    let config: Config = parse(node)?;
    let paths = component::fields(node, "fields", &config.fields, "name at least one field")?;
    let mut fields: Vec<_> = config.fields.into_iter().zip(paths).collect();
    fields.sort_by(|(one, _), (other, _)| one.cmp(other));
    let names = config.names.unwrap_or(fields.len() > 1);
    let field = |(name, path): (String, FieldPath)| NamedField {
        name: names.then(|| name.into()),
        path,
    };
    Ok(Box::new(Fingerprint {
        is_plain: !names && fields.len() == 1,
        fields: fields.into_iter().map(field).collect(),
        target: component::field(node, "target", &config.target)?,
        hasher: hasher(node, config.method, config.key.as_ref())?,
        encoding: config.encoding,
        tag: context.tag_or(FAILURE_TAG),
    }))
}

fn hasher(
    node: &Node,
    method: HashMethod,
    key: Option<&Secret>,
) -> Result<FieldHasher, ConfigError> {
    let Some(key) = key else {
        return Ok(FieldHasher::Plain(method));
    };
    let refuse = |reason: String| node.nearest("key").error(reason);
    if method == HashMethod::Xxh3 {
        return Err(refuse("`method: xxh3` takes no key".to_owned()));
    }
    let key = key.reveal().map_err(|error| refuse(error.to_string()))?;
    if key.is_empty() {
        return Err(refuse("the key is empty".to_owned()));
    }
    FieldHasher::keyed(method, key.as_bytes())
        .ok_or_else(|| refuse("the key cannot be used".to_owned()))
}

/// A hash function, with its key.
#[derive(Clone)]
enum FieldHasher {
    Plain(HashMethod),
    Md5(Box<Hmac<Md5>>),
    Sha1(Box<Hmac<Sha1>>),
    Sha256(Box<Hmac<Sha256>>),
    Sha512(Box<Hmac<Sha512>>),
}

impl FieldHasher {
    fn keyed(method: HashMethod, key: &[u8]) -> Option<Self> {
        fn mac<M: KeyInit>(key: &[u8]) -> Option<Box<M>> {
            M::new_from_slice(key).ok().map(Box::new)
        }
        Some(match method {
            HashMethod::Md5 => Self::Md5(mac(key)?),
            HashMethod::Sha1 => Self::Sha1(mac(key)?),
            HashMethod::Sha256 => Self::Sha256(mac(key)?),
            HashMethod::Sha512 => Self::Sha512(mac(key)?),
            HashMethod::Xxh3 => return None,
        })
    }

    /// Appends the bytes of the hash.
    fn write(&self, text: &[u8], out: &mut Vec<u8>) {
        fn code<M: Mac + Clone>(mac: &M, text: &[u8], out: &mut Vec<u8>) {
            let mut mac = mac.clone();
            mac.update(text);
            out.extend_from_slice(&mac.finalize().into_bytes());
        }
        match self {
            Self::Plain(HashMethod::Md5) => out.extend_from_slice(&Md5::digest(text)),
            Self::Plain(HashMethod::Sha1) => out.extend_from_slice(&Sha1::digest(text)),
            Self::Plain(HashMethod::Sha256) => out.extend_from_slice(&Sha256::digest(text)),
            Self::Plain(HashMethod::Sha512) => out.extend_from_slice(&Sha512::digest(text)),
            Self::Plain(HashMethod::Xxh3) => {
                out.extend_from_slice(&xxhash_rust::xxh3::xxh3_64(text).to_be_bytes());
            }
            Self::Md5(mac) => code(&**mac, text, out),
            Self::Sha1(mac) => code(&**mac, text, out),
            Self::Sha256(mac) => code(&**mac, text, out),
            Self::Sha512(mac) => code(&**mac, text, out),
        }
    }
}

/// A field that is hashed.
#[derive(Clone)]
struct NamedField {
    /// The name that is hashed with it.
    name: Option<Box<str>>,
    path: FieldPath,
}

fn is_setting(name: &str, value: &str) -> bool {
    match name {
        "method" => ["sha256", "sha512", "sha1", "md5", "xxh3"].contains(&value),
        "encoding" => ["hex", "base64"].contains(&value),
        "names" => value.parse::<bool>().is_ok(),
        _ => false,
    }
}

#[derive(Clone)]
struct Fingerprint {
    /// Whether the text of the only field is hashed as it is.
    is_plain: bool,
    fields: Vec<NamedField>,
    target: FieldPath,
    hasher: FieldHasher,
    encoding: HashEncoding,
    tag: Arc<str>,
}

impl Fingerprint {
    /// Writes what is hashed of a row. Whether any of the fields has a value.
    fn write_text(&self, columns: &[Arc<Column>], row: usize, out: &mut Vec<u8>) -> bool {
        out.clear();
        let mut any = false;
        for (field, column) in self.fields.iter().zip(columns) {
            if let Some(name) = &field.name {
                out.push(b'|');
                out.extend_from_slice(name.as_bytes());
            }
            if !self.is_plain {
                out.push(b'|');
            }
            let value = column.value(row);
            any |= !column.cell(row).is_absent() && column.cell(row) != Cell::Null;
            value.write_text(out);
        }
        if !self.is_plain {
            out.push(b'|');
        }
        any
    }
}

impl Processor for Fingerprint {
    fn process(&mut self, batch: &mut Batch, rows: &Bitmap) -> Failures {
        let columns = batch.columns(self.fields.iter().map(|field| &field.path));
        let mut written = ColumnBuilder::new(batch.len());
        let (mut text, mut hash) = (Vec::new(), Vec::new());
        for row in rows.iter() {
            if !self.write_text(&columns, row, &mut text) {
                continue;
            }
            hash.clear();
            self.hasher.write(&text, &mut hash);
            let span = written.append(|out| match self.encoding {
                HashEncoding::Hex => write_hex(&hash, out),
                HashEncoding::Base64 => out.extend_from_slice(STANDARD.encode(&hash).as_bytes()),
            });
            written.set(row, Cell::Text(span));
        }
        let mut failures = Failures::none();
        if !written.is_untouched() {
            let mut edit = Edit::new();
            edit.set(self.target.clone(), written.finish());
            failures.extend_refused(batch.apply(edit), &self.tag);
        }
        failures
    }

    fn reads(&self) -> Vec<Arc<FieldRead>> {
        let read = |field: &NamedField| {
            Arc::new(FieldRead::always(field.path.clone()).may_be_absent(true))
        };
        self.fields.iter().map(read).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{build_yaml, check, check_errors, run};

    /// The fingerprint of an event.
    fn of(settings: &str, event: &str) -> String {
        let lines = run(&SPEC, &format!("fingerprint {settings} target=h"), event);
        let event: serde_json::Value = serde_json::from_str(&lines[0]).expect("an object");
        event["h"].as_str().unwrap_or_default().to_owned()
    }

    #[test]
    fn methods_are_those_of_other_programs() {
        for (settings, hash) in [
            ("method=md5", "900150983cd24fb0d6963f7d28e17f72"),
            ("method=sha1", "a9993e364706816aba3e25717850c26c9cd0d89d"),
            (
                "",
                "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
            ),
            (
                "encoding=base64",
                "ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0=",
            ),
            ("method=xxh3", "78af5f94892f3950"),
        ] {
            assert_eq!(
                of(&format!("a {settings}"), r#"{"a":"abc"}"#),
                hash,
                "{settings}"
            );
        }
        let wanted = r#"{"a":"what do ya want for nothing?"}"#;
        assert_eq!(
            of("a method=md5 key=Jefe", wanted),
            "750c783e6ab0b503eaa86e310a5db738"
        );
        assert_eq!(
            of("a method=sha1 key=Jefe", wanted),
            "effcdf6ae5eb2fa2d27416d5f184df9c259a7c79"
        );
        assert_eq!(
            of("a key=Jefe", wanted),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
        );
        assert!(
            of("a method=sha512 key=Jefe", wanted).starts_with("164b7a7bfcf819e2e395fbe73b56e0a3")
        );
        assert!(
            of("a method=sha512", r#"{"a":"abc"}"#).starts_with("ddaf35a193617abacc417349ae204131")
        );
    }

    #[test]
    fn several_fields_are_hashed_in_the_form_of_logstash() {
        let event = r#"{"b":"2","a":"x","n":12,"o":{"k":[1]}}"#;
        let same = |settings: &str, text: &str| {
            let quoted = serde_json::to_string(text).expect("a text");
            let expected = of("t", &format!(r#"{{"t":{quoted}}}"#));
            assert_eq!(of(settings, event), expected, "{settings}");
        };
        same("b, a", "|a|x|b|2|");
        same("a, b", "|a|x|b|2|");
        same("a names=true", "|a|x|");
        same("a, b names=false", "|x|2|");
        same("n, c, o.k", "|c||n|12|o.k|[1]|");
        same("n", "12");
        same("o", r#"{"k":[1]}"#);
        assert_ne!(
            of("a, b", r#"{"a":"xb","b":""}"#),
            of("a, b", r#"{"a":"x","b":"b"}"#)
        );
    }

    #[test]
    fn nothing_is_written_without_values_and_targets_are_replaced() {
        check(
            &SPEC,
            &[
                ("fingerprint a, b", r#"{"a":null}"#, r#"{"a":null}"#),
                (
                    "fingerprint a method=xxh3 target=a",
                    r#"{"a":"abc"}"#,
                    r#"{"a":"78af5f94892f3950"}"#,
                ),
                (
                    "fingerprint a method=xxh3 target=e.hash",
                    r#"{"a":"abc","e":{"id":1}}"#,
                    r#"{"a":"abc","e":{"id":1,"hash":"78af5f94892f3950"}}"#,
                ),
            ],
        );
        let failed = run(&SPEC, "fingerprint a target=e.hash", r#"{"a":"abc","e":1}"#);
        assert!(failed[0].contains("_fingerprintfailure"), "{failed:?}");
        assert!(failed[0].contains(r#""e":1"#), "{failed:?}");
    }

    #[test]
    fn bad_settings_are_refused() {
        check_errors(
            &SPEC,
            &[
                ("fingerprint", "fields"),
                ("fingerprint fields=[]", "name at least one field"),
                ("fingerprint a method=sha3", "sha3"),
                ("fingerprint a method=xxh3 key=k", "takes no key"),
                ("fingerprint a key=''", "the key is empty"),
                (
                    "fingerprint a key=file:/nonexistent/key",
                    "cannot read the secret",
                ),
                ("fingerprint a target=b..c", "`b..c` is not a field name"),
            ],
        );
        assert!(build_yaml(&SPEC, "{ fields: [a, b], method: sha1, target: id }").is_ok());
    }
}
