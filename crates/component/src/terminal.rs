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

/// Whether a character controls how text is shown: a control character, one that ends a line (U+2028, U+2029), or one that turns the direction
/// of writing (`Bidi_Control` of Unicode), with which a text can look like another one.
pub fn is_control(character: char) -> bool {
    let turns = ['\u{61c}', '\u{200e}', '\u{200f}'].contains(&character);
    character.is_control()
        || turns
        || matches!(character, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// A text whose characters that control how it is shown ([`is_control`]) are escaped: it has one line, and does nothing to a terminal.
pub fn escaped(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for character in text.chars() {
        match is_control(character) {
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
        for number in
            "61c 200e 200f 2028 2029 202a 202b 202c 202d 202e 2066 2067 2068 2069".split(' ')
        {
            let character = u32::from_str_radix(number, 16)
                .ok()
                .and_then(char::from_u32);
            let text = character.map(|it| escaped(&format!("a{it}b")));
            assert_eq!(text, Some(format!("a\\u{{{number}}}b")));
        }
        // Those beside them, of which names of people and families of emojis have some.
        let other = "\u{200d}\u{200b}\u{2010}\u{2027}\u{202f}\u{2065}\u{206a}";
        assert_eq!(escaped(other), other);
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
