//! Keys and tokens that begin with a name, and others with a form of their own.
//!
//! Sources:
//! * AWS: <https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_identifiers.html> (`AKIA`, `ASIA`, `ABIA`, `ACCA`)
//! * JWT: RFC 7519 and 7516; PEM: RFC 7468
//! * most others: the rules of <https://github.com/gitleaks/gitleaks>
//!
//! Lengths are minimums here: most tokens have become longer over time.

use std::ops::Range;

use super::addresses::begins_word;
use super::preset::{Preset, PresetSet};

/// The characters of a token behind its prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Alphabet {
    /// Digits and capitals.
    Capitals,
    /// Letters and digits.
    Alphanumeric,
    /// Letters, digits and `_`.
    Word,
    /// Letters, digits, `_` and `-`.
    Dashed,
    /// Letters, digits, `_`, `-` and `.`.
    Dotted,
    /// Base64, also percent-encoded.
    Base64,
    /// Letters, digits, `_` and `/`.
    Path,
}

impl Alphabet {
    fn has(self, byte: u8) -> bool {
        byte.is_ascii_alphanumeric() && (self != Self::Capitals || !byte.is_ascii_lowercase())
            || match self {
                Self::Capitals | Self::Alphanumeric => false,
                Self::Word => byte == b'_',
                Self::Dashed => b"_-".contains(&byte),
                Self::Dotted => b"_-.".contains(&byte),
                Self::Base64 => b"+/=".contains(&byte),
                Self::Path => b"_/".contains(&byte),
            }
    }

    /// The length of the longest text of this alphabet at the beginning of `rest`.
    fn len(self, rest: &[u8]) -> usize {
        let mut len = 0;
        loop {
            len += rest[len..]
                .iter()
                .take_while(|byte| self.has(**byte))
                .count();
            match rest[len..] {
                [b'%', b'2', b'B' | b'b' | b'F' | b'f', ..] | [b'%', b'3', b'D' | b'd', ..]
                    if self == Self::Base64 =>
                {
                    len += 3;
                }
                // JSON within the text may write `/` so.
                [b'\\', b'/', ..] if self.has(b'/') => len += 2,
                _ => return len,
            }
        }
    }
}

/// What tokens of a service look like.
#[derive(Debug, Clone, Copy)]
pub(super) struct TokenShape {
    preset: Preset,
    prefix: &'static str,
    alphabet: Alphabet,
    /// The number of characters behind the prefix.
    len_min: usize,
}

const fn shape(
    preset: Preset,
    prefix: &'static str,
    alphabet: Alphabet,
    len_min: usize,
) -> TokenShape {
    TokenShape {
        preset,
        prefix,
        alphabet,
        len_min,
    }
}

/// The tokens of services. Of two prefixes of which one begins with the other, the longer one comes first.
const SHAPES: &[TokenShape] = {
    use Alphabet::{Alphanumeric, Base64, Capitals, Dashed, Dotted, Path, Word};
    use Preset::{ApiKey, Aws, Azure, Github, Gitlab, Google, Slack, Stripe};
    &[
        shape(Aws, "AKIA", Capitals, 16),
        shape(Aws, "ASIA", Capitals, 16),
        shape(Aws, "ABIA", Capitals, 16),
        shape(Aws, "ACCA", Capitals, 16),
        shape(Azure, "AccountKey=", Base64, 40),
        shape(Azure, "SharedAccessKey=", Base64, 40),
        shape(Azure, "sig=", Base64, 43),
        shape(Google, "AIza", Dashed, 35),
        shape(Google, "ya29.", Dotted, 20),
        shape(Google, "GOCSPX-", Dashed, 28),
        shape(Github, "ghp_", Word, 36),
        shape(Github, "gho_", Word, 36),
        shape(Github, "ghu_", Word, 36),
        shape(Github, "ghs_", Dotted, 36),
        shape(Github, "ghr_", Word, 36),
        shape(Github, "github_pat_", Word, 36),
        shape(Gitlab, "glpat-", Dotted, 20),
        shape(Gitlab, "gldt-", Dotted, 20),
        shape(Gitlab, "glrt-", Dotted, 20),
        shape(Gitlab, "glrtr-", Dotted, 20),
        shape(Gitlab, "glcbt-", Dotted, 20),
        shape(Gitlab, "glptt-", Dotted, 20),
        shape(Gitlab, "glft-", Dotted, 20),
        shape(Gitlab, "glimt-", Dotted, 20),
        shape(Gitlab, "glagent-", Dotted, 20),
        shape(Gitlab, "gloas-", Dotted, 20),
        shape(Gitlab, "glsoat-", Dotted, 20),
        shape(Gitlab, "glffct-", Dotted, 20),
        shape(Gitlab, "glwt-", Dotted, 20),
        shape(Gitlab, "GR1348941", Dashed, 20),
        shape(Slack, "xoxb-", Dashed, 10),
        shape(Slack, "xoxp-", Dashed, 10),
        shape(Slack, "xoxa-", Dashed, 10),
        shape(Slack, "xoxr-", Dashed, 10),
        shape(Slack, "xoxs-", Dashed, 10),
        shape(Slack, "xoxe-", Dashed, 10),
        shape(Slack, "xoxe.xox", Dashed, 10),
        shape(Slack, "xoxc-", Dashed, 10),
        shape(Slack, "xoxd-", Base64, 10),
        shape(Slack, "xapp-", Dashed, 10),
        shape(Slack, "xwfp-", Dashed, 10),
        shape(Slack, "hooks.slack.com/services/", Path, 20),
        shape(Slack, "hooks.slack.com/workflows/", Path, 20),
        shape(Slack, "hooks.slack.com/triggers/", Path, 20),
        shape(Stripe, "sk_live_", Alphanumeric, 16),
        shape(Stripe, "sk_test_", Alphanumeric, 16),
        shape(Stripe, "rk_live_", Alphanumeric, 16),
        shape(Stripe, "rk_test_", Alphanumeric, 16),
        shape(Stripe, "whsec_", Base64, 24),
        shape(ApiKey, "ATATT3", Base64, 100),
        shape(ApiKey, "AGE-SECRET-KEY-1", Capitals, 50),
        shape(ApiKey, "LTAI", Alphanumeric, 16),
        shape(ApiKey, "NRAK-", Capitals, 27),
        shape(ApiKey, "PMAK-", Dashed, 50),
        shape(ApiKey, "SG.", Dotted, 40),
        shape(ApiKey, "dapi", Dashed, 32),
        shape(ApiKey, "dckr_pat_", Dashed, 20),
        shape(ApiKey, "dop_v1_", Alphanumeric, 40),
        shape(ApiKey, "doo_v1_", Alphanumeric, 40),
        shape(ApiKey, "dor_v1_", Alphanumeric, 40),
        shape(ApiKey, "glsa_", Word, 32),
        shape(ApiKey, "glc_", Base64, 32),
        shape(ApiKey, "hf_", Alphanumeric, 30),
        shape(ApiKey, "hvs.", Dashed, 24),
        shape(ApiKey, "hvb.", Dashed, 24),
        shape(ApiKey, "lin_api_", Alphanumeric, 32),
        shape(ApiKey, "npm_", Alphanumeric, 36),
        shape(ApiKey, "pypi-", Dashed, 50),
        shape(ApiKey, "rubygems_", Alphanumeric, 40),
        shape(ApiKey, "shpat_", Alphanumeric, 32),
        shape(ApiKey, "shpca_", Alphanumeric, 32),
        shape(ApiKey, "shppa_", Alphanumeric, 32),
        shape(ApiKey, "shpss_", Alphanumeric, 32),
        shape(ApiKey, "sk-", Dashed, 40),
        shape(ApiKey, "sq0atp-", Dashed, 22),
        shape(ApiKey, "sq0csp-", Dashed, 40),
        shape(ApiKey, "tskey-", Dashed, 20),
    ]
};

impl TokenShape {
    /// The shapes of some presets.
    pub fn of(presets: PresetSet) -> impl Iterator<Item = Self> {
        SHAPES
            .iter()
            .copied()
            .filter(move |shape| presets.has(shape.preset))
    }

    pub fn preset(self) -> Preset {
        self.preset
    }

    /// The first two bytes.
    pub fn begin(self) -> [u8; 2] {
        let prefix = self.prefix.as_bytes();
        [prefix[0], prefix[1]]
    }

    /// What follows the prefix at the beginning of a text, with `/` also as JSON may write it.
    fn behind_prefix(self, text: &[u8]) -> Option<&[u8]> {
        let prefix = self.prefix.as_bytes();
        let rest = text.strip_prefix(prefix);
        if rest.is_some() || !prefix.ends_with(b"/") {
            return rest;
        }
        prefix.iter().try_fold(text, |rest, byte| match byte {
            b'/' => slash(rest),
            byte => rest.strip_prefix(&[*byte]),
        })
    }

    /// The token that begins at `start`. Where the prefix ends with `=`, it is a name that stays.
    pub fn find(self, text: &[u8], start: usize) -> Option<Range<usize>> {
        let rest = self.behind_prefix(&text[start..])?;
        let len = self.alphabet.len(rest);
        if len < self.len_min || rest.get(len).is_some_and(u8::is_ascii_alphanumeric) {
            return None;
        }
        let body = text.len() - rest.len();
        let begin = if self.prefix.ends_with('=') {
            body
        } else {
            start
        };
        // A point or dash at the end is one of the sentence.
        let signs = rest[..len].iter().rev();
        let signs = signs.take_while(|byte| b"-.".contains(byte)).count();
        (len - signs >= self.len_min).then_some(begin..body + len - signs)
    }
}

/// What follows a `/`, or `\/` of JSON within the text.
fn slash(text: &[u8]) -> Option<&[u8]> {
    text.strip_prefix(b"/").or(text.strip_prefix(b"\\/"))
}

/// The JSON Web Token that begins at `start`: three to five parts, or two where the second is an object, too. And where its
/// first part ends: none begins in there if this is none.
pub(super) fn jwt(text: &[u8], start: usize) -> (Option<Range<usize>>, usize) {
    const HEADER_BYTES_MIN: usize = 10;
    if !text[start..].starts_with(b"eyJ") {
        return (None, start);
    }
    let part = |at: usize| at + Alphabet::Dashed.len(&text[at..]);
    let header = part(start);
    let (mut end, mut parts, mut len) = (header, 1, 0);
    while parts < 5 && text.get(end) == Some(&b'.') {
        let next = part(end + 1);
        len += next - end - 1;
        end = next;
        parts += 1;
    }
    while end > header && text[end - 1] == b'.' {
        end -= 1;
    }
    let is_object = text[header..].starts_with(b".eyJ");
    let fits = header - start >= HEADER_BYTES_MIN && len >= HEADER_BYTES_MIN;
    let is_token = fits && (parts >= 3 || is_object);
    (is_token.then_some(start..end), header)
}

/// The private key in PEM whose word `BEGIN` lies at `start`: up to the line that ends it, or else the end of the text.
pub(super) fn private_key(text: &[u8], start: usize) -> Option<Range<usize>> {
    const DASHES: &[u8] = b"-----";
    const LABEL_BYTES_MAX: usize = 64;
    let label = text[start..].strip_prefix(b"BEGIN ")?;
    let label = &label[..label.len().min(LABEL_BYTES_MAX)];
    let label = &label[..memchr::memmem::find(label, DASHES)?];
    if !text[..start].ends_with(DASHES) || memchr::memmem::find(label, b"PRIVATE KEY").is_none() {
        return None;
    }
    let end = memchr::memmem::find(&text[start..], b"-----END ").and_then(|at| {
        let label = start + at + b"-----END ".len();
        let dashes = memchr::memmem::find(&text[label..], DASHES)?;
        Some(label + dashes + DASHES.len())
    });
    Some(start - DASHES.len()..end.unwrap_or(text.len()))
}

/// The secret key or session token of AWS whose name begins at `start`: `aws_secret_access_key = …`, `"SecretAccessKey": "…"`.
pub(super) fn aws_secret(text: &[u8], start: usize) -> Option<Range<usize>> {
    /// `secret` and `key`.
    const NAME_BYTES_MIN: usize = 9;
    const NAME_BYTES_MAX: usize = 40;
    const KEY_BYTES: usize = 40;
    const TOKEN_BYTES_MIN: usize = 100;
    let rest = &text[start..];
    let is_name = |byte: &&u8| byte.is_ascii_alphabetic() || b"_-.".contains(byte);
    let len = rest.iter().take(NAME_BYTES_MAX).take_while(is_name).count();
    if len < NAME_BYTES_MIN {
        return None;
    }
    let mut name = [0; NAME_BYTES_MAX];
    name[..len].copy_from_slice(&rest[..len]);
    name.make_ascii_lowercase();
    let has = |word: &[u8]| memchr::memmem::find(&name, word).is_some();
    let is_token = has(b"token") && (has(b"session") || has(b"security"));
    let is_key = has(b"secret") && has(b"key");
    if !is_token && !is_key {
        return None;
    }
    let signs = rest[len..].iter().take(10);
    let signs = signs
        .take_while(|byte| b"\"' \t:=>\\".contains(byte))
        .count();
    let mut at = start + len + signs;
    if let [b'%', b'3', b'D' | b'd', ..] = text[at..] {
        at += 3;
    }
    let value = &text[at..];
    let value = &value[..Alphabet::Base64.len(value)];
    let escapes = value.iter().filter(|byte| **byte == b'\\').count();
    let bytes = value.len() - escapes;
    let fits = match is_token {
        true => bytes >= TOKEN_BYTES_MIN,
        false => bytes == KEY_BYTES || bytes > KEY_BYTES && value.contains(&b'%'),
    };
    (at > start + len && fits).then(|| at..at + value.len())
}

/// The key of Azure Storage at whose end the first of two `=` lies: 64 bytes in base64.
pub(super) fn azure_key(text: &[u8], sign: usize) -> Option<Range<usize>> {
    const LEN: usize = 86;
    if text.get(sign + 1) != Some(&b'=') || text.get(sign + 2) == Some(&b'=') {
        return None;
    }
    let mut start = sign;
    for _ in 0..LEN {
        start -= match text[..start] {
            [.., b'\\', b'/'] => 2,
            [.., byte] if byte.is_ascii_alphanumeric() || b"+/".contains(&byte) => 1,
            _ => return None,
        };
    }
    let is_longer = matches!(text[..start], [.., b'+' | b'/']);
    (!is_longer && begins_word(text, start)).then_some(start..sign + 2)
}
