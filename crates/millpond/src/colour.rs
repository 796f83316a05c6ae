//! Colours on terminals.

use std::io::IsTerminal;

/// Paints text, or leaves it as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Painter {
    paints: bool,
}

impl Painter {
    /// For standard output: paints on a terminal, unless the environment says otherwise: <https://no-color.org>.
    pub fn stdout() -> Self {
        let refuses = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let is_dumb = std::env::var_os("TERM").is_some_and(|value| value == "dumb");
        Self {
            paints: std::io::stdout().is_terminal() && !refuses && !is_dumb,
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

    fn paint(self, code: &str, text: &str) -> String {
        match self.paints {
            true => format!("\u{1b}[{code}m{text}\u{1b}[0m"),
            false => text.to_owned(),
        }
    }
}
