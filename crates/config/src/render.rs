//! How an error looks on a terminal.
//!
//! Source lines are shown as they are, except that control characters become a dot (a configuration must not be able
//! to send escape sequences to the terminal) and that long lines (a whole pipeline is one) are cut around the fault.

use std::fmt::{self, Write as _};
use std::ops::Range;

use crate::error::{ConfigError, Details, ErrorLocation};

/// How many characters of a source line are shown.
const WIDTH_MAX: usize = 110;
/// How many characters before the fault are shown at least when a long line is cut.
const LEAD_MAX: usize = 60;
/// How many accepted words are listed.
const ACCEPTED_MAX: usize = 60;

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&render(self.details()))
    }
}

/// The whole error as text, without a newline at its end.
fn render(details: &Details) -> String {
    let mut out = format!("error: {}", details.message);
    if let Some(place) = &details.place {
        render_place(&mut out, place);
    }
    if !details.accepted.is_empty() {
        let shown = &details.accepted[..details.accepted.len().min(ACCEPTED_MAX)];
        let more = if shown.len() < details.accepted.len() {
            ", …"
        } else {
            ""
        };
        push_line(&mut out, &format!("  accepted: {}{more}", shown.join(", ")));
    }
    if let Some(suggestion) = &details.suggestion {
        push_line(&mut out, &format!("  did you mean `{suggestion}`?"));
    }
    for note in &details.notes {
        push_line(&mut out, &format!("  note: {note}"));
    }
    out
}

fn render_place(out: &mut String, place: &ErrorLocation) {
    let (line, column) = place.source.locate(place.span.start);
    let path = place.path.to_string();
    let path = if path.is_empty() {
        path
    } else {
        format!("  ({path})")
    };
    let gutter = line.to_string().len().max(3);
    push_line(
        out,
        &format!("  --> {}:{line}:{column}{path}", place.source.name),
    );
    let (start, text) = place.source.line_at(place.span.start);
    if text.trim().is_empty() || place.is_secret {
        return;
    }
    let marked = place.span.start - start..place.span.end.max(place.span.start) - start;
    let (shown, marks) = excerpt(text, marked);
    push_line(out, &format!("  {line:>gutter$} | {shown}"));
    push_line(out, &format!("  {:>gutter$} | {marks}", ""));
    if let (Some(inner), Some(value)) = (&place.inner, &place.value) {
        let (shown, marks) = value_excerpt(value, inner.clone());
        push_line(out, &format!("  {:>gutter$} = value: {shown}", ""));
        push_line(out, &format!("  {:>gutter$}          {marks}", ""));
    }
}

/// The line of a value that holds the fault, with its marks.
fn value_excerpt(value: &str, inner: Range<usize>) -> (String, String) {
    let start = value[..inner.start]
        .rfind('\n')
        .map_or(0, |newline| newline + 1);
    let line = value[start..].split('\n').next().unwrap_or_default();
    excerpt(line, inner.start - start..inner.end - start)
}

/// One line cut to the width, and the line of marks to put below it. The range is in bytes and may reach past the
/// end of the line.
fn excerpt(line: &str, marked: Range<usize>) -> (String, String) {
    let before = line[..line.floor_char_boundary(marked.start)]
        .chars()
        .count();
    let upto = line[..line.floor_char_boundary(marked.end)].chars().count();
    let total = line.chars().count();
    let skipped = if total > WIDTH_MAX {
        before.saturating_sub(LEAD_MAX)
    } else {
        0
    };
    let mut shown: String = line
        .chars()
        .skip(skipped)
        .take(WIDTH_MAX)
        .map(visible)
        .collect();
    if skipped + WIDTH_MAX < total {
        shown.push('…');
    }
    let cut = if skipped > 0 { "…" } else { "" };
    let marks_max = (WIDTH_MAX + skipped).saturating_sub(before).max(1);
    let count = upto.saturating_sub(before).clamp(1, marks_max);
    let indent: String = line
        .chars()
        .skip(skipped)
        .take(before - skipped)
        .map(blank)
        .collect();
    let pad = " ".repeat(cut.chars().count());
    (
        format!("{cut}{shown}"),
        format!("{pad}{indent}{}", "^".repeat(count)),
    )
}

fn visible(c: char) -> char {
    if c.is_control() && c != '\t' { '·' } else { c }
}

/// Keeps tabs, so that the marks stand below their characters however wide the terminal makes a tab.
fn blank(c: char) -> char {
    if c == '\t' { '\t' } else { ' ' }
}

fn push_line(out: &mut String, line: &str) {
    // Writing to a String cannot fail.
    let _ = write!(out, "\n{line}");
}

#[cfg(test)]
mod tests {
    use crate::source::{Source, Span};
    use crate::{Node, parse_yaml};

    #[test]
    fn shows_the_line_and_the_advice() {
        let source = Source::new("m.yaml", "a:\n  - grok: { patern: \"%{X}\" }\n");
        let root = parse_yaml(&source).expect("valid");
        let grok = root.nearest("a[0].grok");
        let (key, _) = grok.entry("patern").expect("there");
        let error = key
            .error("unknown setting `patern` for grok")
            .accepted(["pattern", "field"])
            .closest_to("patern")
            .note("see `docs grok`");
        let expected = "error: unknown setting `patern` for grok
  --> m.yaml:2:13  (a[0].grok.patern)
    2 |   - grok: { patern: \"%{X}\" }
      |             ^^^^^^
  accepted: pattern, field
  did you mean `pattern`?
  note: see `docs grok`";
        assert_eq!(error.to_string(), expected);
    }

    #[test]
    fn points_into_values() {
        let cases = [
            ("p: (a|b", 3, "t:1:7", None),
            ("p: '(a|b'", 3, "t:1:8", None),
            ("p: \"(a|b\"", 0, "t:1:5", None),
            (
                "p: \"(\\ta\"",
                2,
                "t:1:4",
                Some("= value: (\ta\n                \t^"),
            ),
            (
                "p: |\n  one\n  two\n",
                5,
                "t:2:3",
                Some("= value: two\n                ^"),
            ),
            ("p: abc", 99, "t:1:7", None),
        ];
        for (text, offset, place, value) in cases {
            let root = parse_yaml(&Source::new("t", text)).expect(text);
            let error = root
                .nearest("p")
                .error("broken")
                .pointing_at(offset)
                .to_string();
            assert!(error.contains(place), "{error}");
            match value {
                Some(value) => assert!(error.contains(value), "{error}"),
                None => assert!(!error.contains("= value"), "{error}"),
            }
        }
    }

    #[test]
    fn long_lines_are_cut_and_control_characters_hidden() {
        let text = format!("{}\u{1b}[31mX{}", "a".repeat(200), "b".repeat(200));
        let source = Source::command_line(text);
        let node = Node::scalar(&source, Span::new(205, 206), "X", false);
        let error = node.error("m").to_string();
        let lines: Vec<&str> = error.lines().collect();
        assert!(
            lines[2].contains("a·[31mXbb") && lines[2].ends_with('…'),
            "{error}"
        );
        let column = |line: &str, wanted| line.chars().position(|c| c == wanted);
        assert_eq!(column(lines[2], 'X'), column(lines[3], '^'), "{error}");
    }
}
