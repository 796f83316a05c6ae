//! Profiles as lines of text, as the tools around `flamegraph.pl` write and read them: `a;b;c 12`, from the outermost function to
//! the innermost, and how often the stack was seen.
//!
//! Names lose semicolons and line ends, which become colons and blanks. Labels are not part of the format; a first frame can
//! stand for one of them.
//!
//! # Limits
//! A text has up to [`TEXT_BYTES_MAX`] bytes.

use std::fmt::Write;

use crate::cost::weight;
use crate::filter::Filter;
use crate::profile::{Frame, Profile, StackId, Window};

/// The most bytes that a text may have.
pub const TEXT_BYTES_MAX: usize = 1 << 30;

/// Why a text has no stacks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CollapsedError {
    /// It is too long.
    #[error("it has more than {TEXT_BYTES_MAX} bytes")]
    TooLarge,
    /// A line is no stack.
    #[error(
        "line {line} is not a stack: it should end in a blank and a whole number, as in `main;work 12`"
    )]
    Line {
        /// Its number, from 1 on.
        line: usize,
    },
}

/// The stacks of a profile that a filter takes, in alphabetical order. With the name of a label, its value becomes the outermost frame.
pub fn write(profile: &Profile, filter: &Filter, label: Option<&str>) -> String {
    let matching = filter.of(profile);
    let mut lines = std::collections::BTreeMap::<String, u64>::new();
    for (stack, labels, weight) in profile.samples() {
        if matching.takes(stack, labels) {
            let first = label.map(|name| profile.label_of(labels, name).unwrap_or("[none]"));
            let samples = lines.entry(line(profile, stack, first)).or_default();
            *samples = samples.saturating_add(weight.samples);
        }
    }
    let mut text = String::new();
    for (line, samples) in lines {
        // Writing to a string never fails.
        let _ = writeln!(text, "{line} {samples}");
    }
    text
}

fn line(profile: &Profile, stack: StackId, first: Option<&str>) -> String {
    let frames = profile
        .frame_ids(stack)
        .map(|frame| profile.frame_of(frame));
    let mut names: Vec<String> = frames.map(|frame| plain(&frame.name())).collect();
    names.extend(first.map(plain));
    names.reverse();
    let line = names.join(";");
    match line.starts_with('#') {
        // It would be a remark.
        true => format!(" {line}"),
        false => line,
    }
}

fn plain(name: &str) -> String {
    let plain = |letter: char| match letter {
        ';' => ':',
        letter if letter.is_control() => ' ',
        letter => letter,
    };
    name.chars().map(plain).collect()
}

/// Reads lines, which were sampled so often a second. The marks that other tools write behind names, `_[k]` for the kernel, `_[j]` for
/// compiled code and `_[i]` for inlined functions, say what a frame is.
///
/// # Errors
/// The text is too long, or has a line that is no stack. Empty lines and those that begin with `#` are passed over.
pub fn read(text: &str, frequency_hz: f64) -> Result<Profile, CollapsedError> {
    if text.len() > TEXT_BYTES_MAX {
        return Err(CollapsedError::TooLarge);
    }
    let mut profile = Profile::new(Window::default(), frequency_hz);
    let labels = profile.labels(&[]);
    for (index, line) in text.lines().enumerate() {
        let line = line.trim_end();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let error = CollapsedError::Line { line: index + 1 };
        let (names, count) = line.rsplit_once(' ').ok_or(error.clone())?;
        let count: u64 = count.parse().map_err(|_| error)?;
        let stack = profile.stack(names.split(';').map(frame));
        profile.add(stack, labels, weight(count, frequency_hz));
    }
    Ok(profile)
}

fn frame(name: &str) -> Frame<'_> {
    for (mark, binary, is_inlined) in [
        ("_[k]", "[kernel]", false),
        ("_[j]", "[jit]", false),
        ("_[i]", "", true),
    ] {
        if let Some(name) = name.strip_suffix(mark) {
            return Frame {
                is_inlined,
                ..Frame::function(name, binary)
            };
        }
    }
    Frame::function(name, "")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::FrameKind;

    #[test]
    fn what_is_read_is_written() {
        let text = "main 1\nmain;a b 2\nmain;read_[k] 3\n";
        let profile = read(&format!("# x\n\n{text}main 4\r\n"), 20.0).unwrap();
        let all = Filter::default();
        assert_eq!(
            write(&profile, &all, None),
            "main 5\nmain;a b 2\nmain;read 3\n"
        );
        assert_eq!(
            write(&profile, &all, Some("host")),
            "[none];main 5\n[none];main;a b 2\n[none];main;read 3\n"
        );
        let kinds = profile
            .frames()
            .filter(|(_, frame)| frame.kind() == FrameKind::Kernel);
        assert_eq!(kinds.count(), 1);
        assert_eq!(profile.total().cpu_ns, 500_000_000);
    }

    #[test]
    fn names_cannot_break_lines() {
        let mut profile = Profile::default();
        let stack = profile.stack([Frame::function("a;b\nc", "")]);
        let labels = profile.labels(&[]);
        profile.add(stack, labels, weight(1, 1.0));
        let stack = profile.stack([Frame::function("#1", "")]);
        profile.add(stack, labels, weight(2, 1.0));
        let text = write(&profile, &Filter::default(), None);
        assert_eq!(text, " #1 2\na:b c 1\n");
        assert_eq!(read(&text, 1.0).unwrap().total().samples, 3);
    }

    #[test]
    fn counts_end_at_the_largest() {
        let profile = read(&format!("a_[k] {0}\na {0}\n", u64::MAX), 1.0).unwrap();
        let text = write(&profile, &Filter::default(), None);
        assert_eq!(text, format!("a {}\n", u64::MAX));
    }

    #[test]
    fn what_is_no_stack_is_named() {
        for text in ["a 1\nb", "a 1\nb x", "a 1\nb -1", "a 1\nb 1.5"] {
            let error = read(text, 1.0).unwrap_err();
            assert_eq!(error, CollapsedError::Line { line: 2 }, "{text}");
        }
    }
}
