//! A tree as YAML, in block style, for people to read and [`crate::parse_yaml`] to read back as an equal tree.

use crate::node::{Node, NodeKind, resolve};
use crate::scalar::{self, Resolved};

/// The tree as a YAML text that ends with a newline.
///
/// Variables that were expanded appear with their values: print before expanding where these may be secret.
pub fn to_yaml(node: &Node) -> String {
    let mut out = String::new();
    match inline(node) {
        Some(text) => out.push_str(&text),
        None => block(node, 0, &mut out),
    }
    if !out.ends_with('\n') {
        out.push('\n');
    }
    out
}

/// Writes a list or map that has entries, each on its line. The caller has written the indent of the first line.
fn block(node: &Node, indent: usize, out: &mut String) {
    let pad = " ".repeat(indent);
    match &node.kind {
        NodeKind::Null | NodeKind::Scalar { .. } => {}
        NodeKind::List(items) => {
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push_str(&pad);
                }
                out.push_str("- ");
                below(item, indent + 2, out, "");
            }
        }
        NodeKind::Map(entries) => {
            for (index, (key, value)) in entries.iter().enumerate() {
                if index > 0 {
                    out.push_str(&pad);
                }
                write_key(key, &pad, out);
                let indent = indent + 2;
                below(value, indent, out, &format!("\n{}", " ".repeat(indent)));
            }
        }
    }
}

/// Writes a value after its key or dash; `separator` stands before one that takes lines of its own.
fn below(node: &Node, indent: usize, out: &mut String, separator: &str) {
    match inline(node) {
        Some(text) => {
            if !separator.is_empty() {
                out.push(' ');
            }
            out.push_str(&text);
            out.push('\n');
        }
        None => {
            out.push_str(separator);
            block(node, indent, out);
        }
    }
}

/// YAML reads `key:` only when the key has fewer characters than this.
const SIMPLE_KEY_MAX: usize = 1000;

fn write_key(key: &Node, pad: &str, out: &mut String) {
    let name = key.as_str().unwrap_or_default();
    let text = if is_plain(name) && name != "<<" {
        name.to_owned()
    } else {
        quote(name)
    };
    if text.len() < SIMPLE_KEY_MAX {
        out.push_str(&text);
        out.push(':');
    } else {
        out.push_str(&format!("? {text}\n{pad}:"));
    }
}

/// The text of a node that fits on the line of its key.
fn inline(node: &Node) -> Option<String> {
    match &node.kind {
        NodeKind::Null => Some("null".to_owned()),
        NodeKind::Scalar { text, quoted } => Some(scalar_text(text, *quoted)),
        NodeKind::List(items) if items.is_empty() => Some("[]".to_owned()),
        NodeKind::Map(entries) if entries.is_empty() => Some("{}".to_owned()),
        NodeKind::List(_) | NodeKind::Map(_) => None,
    }
}

fn scalar_text(text: &str, quoted: bool) -> String {
    let reads_as_text = resolve(text, false) == Resolved::Text && !scalar::is_null(text);
    let means_text = resolve(text, quoted) == Resolved::Text;
    if reads_as_text == means_text && is_plain(text) && !is_old_bool(text) {
        text.to_owned()
    } else {
        quote(text)
    }
}

/// Words that YAML 1.1 readers take for truth values.
fn is_old_bool(text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    matches!(text.as_str(), "yes" | "no" | "on" | "off" | "y" | "n")
}

/// True for a text that needs no quotes anywhere. Errs on the side of quotes.
fn is_plain(text: &str) -> bool {
    let inner = |c: char| c.is_alphanumeric() || "_-./+*=~^;@$()<>:%?! ".contains(c);
    let first = |c: char| c.is_alphanumeric() || "_/.+$(<^;".contains(c);
    let negative =
        text.starts_with('-') && text[1..].starts_with(|c: char| c.is_ascii_digit() || c == '.');
    (text.starts_with(first) || negative)
        && text.chars().all(inner)
        && !text.ends_with([' ', ':'])
        && !text.contains(": ")
        && !text.starts_with("...")
}

/// Double quotes where nothing needs an escape in them, else single quotes, else double quotes with escapes.
fn quote(text: &str) -> String {
    let printable = |c: char| {
        !c.is_control()
            && !matches!(
                c,
                '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}'..='\u{ffff}'
            )
    };
    if !text.chars().all(printable) {
        return escaped(text, printable);
    }
    if text.contains(['"', '\\']) {
        format!("'{}'", text.replace('\'', "''"))
    } else {
        format!("\"{text}\"")
    }
}

fn escaped(text: &str, printable: impl Fn(char) -> bool) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            c if printable(c) => out.push(c),
            c => out.push_str(&format!("\\U{:08X}", u32::from(c))),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Source, parse_yaml};

    #[test]
    fn writes_what_a_person_would() {
        let text = "pipelines:
  main:
    input:
      file:
        paths:
          - /var/log/*.log
    processors:
      - grok:
          pattern: \"%{COMBINEDAPACHELOG}\"
      - where:
          condition: \"a == 'b' && c > 1\"
      - drop:
          if: 'x == \"y\"'
      - set:
          port: 80
          code: \"80\"
          none: null
          word: \"null\"
          lines: \"a\\nb\"
          \"a: b\": \"yes\"
    outputs:
      - discard: {}
      - - - nested
";
        let root = parse_yaml(&Source::new("t", text)).expect("valid");
        assert_eq!(to_yaml(&root), text);
    }
}
