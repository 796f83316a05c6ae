//! Texts with fields and times in outputs: in codecs, paths and URLs.

use config::{ConfigError, Node};
use expr::{Absent, Template, zone_setting};

/// What an absent field gives in the texts of outputs.
pub const ABSENT: Absent = Absent::Text("-");

/// The template in a setting of an output, `at`, with times in the zone of the output's setting `timezone`.
///
/// # Errors
/// What is wrong with one of the two, with its place.
pub fn template(output: &Node, at: &Node, text: &str) -> Result<Template, ConfigError> {
    let zone = zone_setting(output)?;
    let template = Template::parse(text).map_err(|error| error.in_setting(at))?;
    if let Some(format) = time_without_plus(text) {
        let error = at.error(format!(
            "`%{{{format}}}` stands for a field of that name; did you mean `%{{+{format}}}`?"
        ));
        return Err(error.note("the time of an event is written with a `+`"));
    }
    Ok(template.in_zone(zone))
}

/// What stands between braces as a field's name and reads as the format of a time: the letters of dates, in groups that only such
/// formats have.
fn time_without_plus(text: &str) -> Option<&str> {
    let names = text.split("%{").skip(1);
    let mut names = names.filter_map(|rest| rest.split_once('}').map(|(name, _)| name));
    names.find(|name| {
        if name.starts_with('+') {
            return false;
        }
        let words = name.split(|letter: char| !letter.is_ascii_alphanumeric());
        let mut words = words.filter(|word| !word.is_empty()).peekable();
        let is_part = |word: &str| {
            let parts = [
                "yyyy", "yy", "MM", "MMM", "dd", "HH", "mm", "ss", "xxxx", "ww",
            ];
            parts.contains(&word) || ["yyyyMMdd", "yyyyMM", "HHmmss", "HHmm"].contains(&word)
        };
        words
            .peek()
            .is_some_and(|first| first.starts_with("yyyy") || *first == "xxxx")
            && words.all(is_part)
    })
}

/// Escapes a text, from `start` on, as within a JSON string.
pub fn escape_json(out: &mut Vec<u8>, start: usize) {
    let needs_it = |byte: &u8| matches!(byte, b'"' | b'\\' | 0..=0x1f);
    if !out[start..].iter().any(needs_it) {
        return;
    }
    let text = String::from_utf8_lossy(&out[start..]).into_owned();
    if let Ok(quoted) = serde_json::to_string(&text) {
        out.truncate(start);
        out.extend_from_slice(&quoted.as_bytes()[1..quoted.len() - 1]);
    }
}
