//! What is written for terminals: whether it has colours, and that events control nothing.

use std::ffi::OsString;
use std::sync::atomic::{AtomicU8, Ordering};

/// What the user wants.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Colours {
    /// On terminals, unless the environment refuses them: `NO_COLOR` is set (<https://no-color.org>), or `TERM` is `dumb`.
    #[default]
    Auto,
    /// Everywhere.
    Always,
    /// Nowhere.
    Never,
}

/// What was chosen. Static, because standard output and standard error belong to the whole process.
static CHOSEN: AtomicU8 = AtomicU8::new(Colours::Auto as u8);

/// Chooses for the whole process.
pub fn choose(colours: Colours) {
    CHOSEN.store(colours as u8, Ordering::Relaxed);
}

/// Whether what is written has colours there.
pub fn has_colours(is_terminal: bool) -> bool {
    let chosen = CHOSEN.load(Ordering::Relaxed);
    match chosen {
        _ if chosen == Colours::Always as u8 => true,
        _ if chosen == Colours::Never as u8 => false,
        _ => is_terminal && allows_colours(|name| std::env::var_os(name)),
    }
}

/// A text whose control characters are escaped: it has one line, and does nothing to a terminal.
pub fn escaped(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for character in text.chars() {
        match character.is_control() {
            true => line.extend(character.escape_default()),
            false => line.push(character),
        }
    }
    line
}

/// Whether the environment does not refuse colours.
fn allows_colours(variable: impl Fn(&str) -> Option<OsString>) -> bool {
    let refuses = variable("NO_COLOR").is_some_and(|value| !value.is_empty());
    let is_dumb = variable("TERM").is_some_and(|value| value == "dumb");
    !refuses && !is_dumb
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_controls_a_terminal() {
        assert_eq!(
            escaped("a\nb\t\u{1b}[1m \u{7f} \u{9b}1m é\\"),
            r"a\nb\t\u{1b}[1m \u{7f} \u{9b}1m é\"
        );
    }

    #[test]
    fn the_environment_may_refuse_colours() {
        for (name, value, expected) in [
            ("NO_COLOR", "1", false),
            ("NO_COLOR", "", true),
            ("TERM", "dumb", false),
            ("TERM", "xterm", true),
        ] {
            let variable = |asked: &str| (asked == name).then(|| value.into());
            assert_eq!(allows_colours(variable), expected, "{name}={value}");
        }
    }
}
