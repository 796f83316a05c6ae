//! The types that texts are converted to, where a setting asks for it.

use batch::{Cell, Span, json};
use schemars::JsonSchema;
use serde::Deserialize;

/// What a text is converted to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum DataType {
    /// A whole number of at most 64 bits.
    #[serde(alias = "integer", alias = "long")]
    Int,
    /// A number, its digits kept where JSON would write it so.
    #[serde(alias = "double")]
    Float,
    /// `true` or `false`.
    #[serde(alias = "boolean")]
    Bool,
}

impl DataType {
    /// The type that is called `name`.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "int" | "integer" | "long" => Some(Self::Int),
            "float" | "double" => Some(Self::Float),
            "bool" | "boolean" => Some(Self::Bool),
            _ => None,
        }
    }

    /// Why a text cannot be converted, as messages say it of the text.
    pub fn refusal(self, text: &[u8]) -> &'static str {
        let digits = text.strip_prefix(b"-").or(text.strip_prefix(b"+"));
        let digits = digits.unwrap_or(text);
        let is_whole = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
        match self {
            Self::Int if is_whole => "is too large for a whole number of 64 bits",
            Self::Int => "is not a whole number",
            Self::Float => "is not a number",
            Self::Bool => "is not true or false",
        }
    }

    /// The cell of a text that stands at `span`; none when it cannot be converted.
    pub fn convert(self, text: &[u8], span: Span) -> Option<Cell> {
        let is_json = || {
            let bare = text.trim_ascii().len() == text.len();
            bare && json::validate(text).is_ok() && json::kind(text) == json::Kind::Number
        };
        let plain = std::str::from_utf8(text).ok()?;
        match self {
            Self::Int => match plain.parse() {
                Ok(n) => Some(Cell::Int(n)),
                Err(_) => plain.parse().ok().map(Cell::UInt),
            },
            Self::Float if is_json() => Some(Cell::Number(span)),
            Self::Float => plain
                .parse()
                .ok()
                .filter(|n: &f64| n.is_finite())
                .map(Cell::Float),
            Self::Bool => plain.to_ascii_lowercase().parse().ok().map(Cell::Bool),
        }
    }

    /// Appends a text's value as JSON; nothing, and `false`, when it cannot be converted.
    pub fn write_json(self, text: &[u8], out: &mut Vec<u8>) -> bool {
        match self.convert(text, Span::default()) {
            Some(Cell::Int(n)) => json::write_i64(out, n),
            Some(Cell::UInt(n)) => json::write_u64(out, n),
            Some(Cell::Float(n)) => json::write_f64(out, n),
            Some(Cell::Bool(true)) => out.extend_from_slice(b"true"),
            Some(Cell::Bool(false)) => out.extend_from_slice(b"false"),
            Some(_) => out.extend_from_slice(text),
            None => return false,
        }
        true
    }
}
