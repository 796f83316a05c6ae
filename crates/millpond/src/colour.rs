//! Colours of what commands print and say.

use std::io::IsTerminal;

use component::terminal::has_colours;

/// Paints text, or leaves it as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Painter {
    paints: bool,
}

impl Painter {
    /// For standard output.
    pub fn stdout() -> Self {
        Self {
            paints: has_colours(std::io::stdout().is_terminal()),
        }
    }

    /// For standard error.
    pub fn stderr() -> Self {
        Self {
            paints: has_colours(std::io::stderr().is_terminal()),
        }
    }

    /// Never paints.
    pub fn plain() -> Self {
        Self { paints: false }
    }

    /// What is as it should be: green.
    pub fn good(self, text: &str) -> String {
        self.paint("32", text)
    }

    /// What is not: red.
    pub fn bad(self, text: &str) -> String {
        self.paint("31", text)
    }

    /// A message whose first word is painted where it is one of those that say how much it matters.
    pub fn message(self, text: &str) -> String {
        for (word, code) in [("error:", "1;31"), ("warning:", "33")] {
            if let Some(rest) = text.strip_prefix(word) {
                return self.paint(code, word) + rest;
            }
        }
        text.to_owned()
    }

    /// What is another than before: yellow.
    pub fn changed(self, text: &str) -> String {
        self.paint("33", text)
    }

    /// What begins something: bold.
    pub fn strong(self, text: &str) -> String {
        self.paint("1", text)
    }

    /// Always paints.
    #[cfg(test)]
    pub fn always() -> Self {
        Self { paints: true }
    }

    fn paint(self, code: &str, text: &str) -> String {
        match self.paints {
            true => format!("\u{1b}[{code}m{text}\u{1b}[0m"),
            false => text.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_word_alone_is_painted() {
        let painter = Painter { paints: true };
        for (text, expected) in [
            ("error: a\n  b", "\u{1b}[1;31merror:\u{1b}[0m a\n  b"),
            ("warning: a", "\u{1b}[33mwarning:\u{1b}[0m a"),
            ("a warning: b", "a warning: b"),
        ] {
            assert_eq!(painter.message(text), expected);
            assert_eq!(Painter::plain().message(text), text);
        }
    }
}
