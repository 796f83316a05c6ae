//! How much work a message may make: what its stacks and names add up to, in relation to its size.
//!
//! Messages name a thing by its number, in a byte or two, as often as they like: a location with thousands of lines, or a name of
//! megabytes. So a small message could stand for endless stacks and for hours of work. Both are counted while a message is read.
//!
//! # Limits
//! For each byte of a message: [`FRAMES_PER_BYTE_MAX`] frames of stacks, of which [`NODES_PER_BYTE_MAX`] differ, and
//! [`TEXT_PER_BYTE_MAX`] bytes of names and labels, each time that one is referred to. Small messages may have [`NODES_MIN`] and
//! [`TEXT_MIN`] all the same. Profiles of compiled code have less than 2 frames and 50 bytes of names a byte.

/// The most frames that all stacks of a message may have together, for each byte of it.
pub const FRAMES_PER_BYTE_MAX: usize = 16;

/// The most distinct stacks of a message for each byte of it, those that only call others included.
const NODES_PER_BYTE_MAX: usize = 2;
/// So many distinct stacks a message may have in any case.
const NODES_MIN: usize = 16 << 10;

/// The most bytes of names and labels that a message may refer to, for each byte of it.
const TEXT_PER_BYTE_MAX: usize = 256;
/// So many bytes of names and labels a message may refer to in any case.
const TEXT_MIN: usize = 1 << 20;

/// What a message has too much of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Excess {
    /// The stacks are too deep.
    #[error("its stacks have more than {FRAMES_PER_BYTE_MAX} frames for each byte")]
    Frames,
    /// The stacks are too many.
    #[error("it has more than {NODES_PER_BYTE_MAX} distinct stacks for each byte")]
    Nodes,
    /// The names are too long for how often it refers to them.
    #[error("it refers to more than {TEXT_PER_BYTE_MAX} bytes of names for each byte")]
    Text,
}

/// What is left for a message.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Work {
    frames: usize,
    nodes_max: usize,
    text: usize,
}

impl Work {
    /// For a message of so many bytes.
    pub(crate) fn of(bytes: usize) -> Self {
        Self {
            frames: bytes.saturating_mul(FRAMES_PER_BYTE_MAX),
            nodes_max: bytes.saturating_mul(NODES_PER_BYTE_MAX).max(NODES_MIN),
            text: bytes.saturating_mul(TEXT_PER_BYTE_MAX).max(TEXT_MIN),
        }
    }

    /// Takes a frame of a stack; `nodes` is how many distinct stacks there are already.
    pub(crate) fn frame(&mut self, nodes: usize) -> Result<(), Excess> {
        self.frames = self.frames.checked_sub(1).ok_or(Excess::Frames)?;
        match nodes < self.nodes_max {
            true => Ok(()),
            false => Err(Excess::Nodes),
        }
    }

    /// Takes so many bytes of names.
    pub(crate) fn text(&mut self, bytes: usize) -> Result<(), Excess> {
        self.text = self.text.checked_sub(bytes).ok_or(Excess::Text)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_is_gone() {
        let mut work = Work::of(1);
        assert_eq!(work.frame(NODES_MIN), Err(Excess::Nodes));
        for _ in 1..FRAMES_PER_BYTE_MAX {
            assert_eq!(work.frame(0), Ok(()));
        }
        assert_eq!(work.frame(0), Err(Excess::Frames));
        assert_eq!(work.text(TEXT_MIN), Ok(()));
        assert_eq!(work.text(1), Err(Excess::Text));
        let mut large = Work::of(1 << 20);
        assert_eq!(large.frame((2 << 20) - 1), Ok(()));
        assert_eq!(large.text(256 << 20), Ok(()));
    }
}
