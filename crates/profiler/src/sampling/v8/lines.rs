//! Where lines begin in the sources of scripts.
//!
//! # Limits
//! Sources of more than [`SOURCE_BYTES_MAX`] have no lines, nor those that come when [`STARTS_MAX`] lines of a process are known.

use std::collections::HashMap;

/// The most bytes of a source.
pub const SOURCE_BYTES_MAX: usize = 8 << 20;
/// The most lines of a process.
const STARTS_MAX: usize = 256 << 10;

/// The lines of the scripts of a process. Their sources are told apart by where they are and how long they are.
#[derive(Debug, Default)]
pub struct Lines {
    starts: HashMap<(u64, usize), Vec<u32>>,
    total: usize,
}

impl Lines {
    /// The line and the column of a character, both from 1 on. `read` gives where the lines begin in a source that was not seen before.
    pub fn position(
        &mut self,
        source: (u64, usize),
        character: usize,
        read: impl FnOnce() -> Option<Vec<u32>>,
    ) -> Option<(usize, usize)> {
        (character < source.1).then_some(())?;
        if !self.starts.contains_key(&source) {
            (self.total < STARTS_MAX).then_some(())?;
            let starts = read().unwrap_or_default();
            let total = self.total + starts.len() + 1;
            (total <= STARTS_MAX).then_some(())?;
            self.total = total;
            self.starts.insert(source, starts);
        }
        let starts = self.starts.get(&source)?;
        let line = starts.partition_point(|start| *start as usize <= character);
        let start = starts.get(line.checked_sub(1)?)?;
        Some((line, character - *start as usize + 1))
    }
}

/// Where lines begin in a text that comes in parts.
#[derive(Debug)]
pub struct Starts {
    starts: Vec<u32>,
    characters: u32,
    is_after_return: bool,
}

impl Default for Starts {
    fn default() -> Self {
        Self {
            starts: vec![0],
            characters: 0,
            is_after_return: false,
        }
    }
}

impl Starts {
    /// Goes on with these characters. Lines end as they do in JavaScript.
    pub fn add(&mut self, units: impl Iterator<Item = u16>) {
        const FEED: u16 = 10;
        const RETURN: u16 = 13;
        const SEPARATORS: [u16; 2] = [0x2028, 0x2029];
        for unit in units {
            if std::mem::take(&mut self.is_after_return) && unit != FEED {
                self.starts.push(self.characters);
            }
            self.characters += 1;
            if unit == FEED || SEPARATORS.contains(&unit) {
                self.starts.push(self.characters);
            }
            self.is_after_return = unit == RETURN;
        }
    }

    /// Those that were found.
    pub fn finish(self) -> Vec<u32> {
        self.starts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_have_lines_and_columns() {
        let text = "ab\nc\r\nd\re\u{2028}f";
        let mut starts = Starts::default();
        for unit in text.encode_utf16() {
            starts.add(std::iter::once(unit));
        }
        let starts = starts.finish();
        assert_eq!(starts, [0, 3, 6, 8, 10]);
        let mut lines = Lines::default();
        let source = (1, text.encode_utf16().count());
        let mut at = |character| lines.position(source, character, || Some(starts.clone()));
        assert_eq!(
            (at(0), at(2), at(3)),
            (Some((1, 1)), Some((1, 3)), Some((2, 1)))
        );
        assert_eq!((at(8), at(10), at(11)), (Some((4, 1)), Some((5, 1)), None));
    }

    #[test]
    fn lines_are_bounded() {
        let mut lines = Lines::default();
        let mut reads = 0;
        for address in 0..4 {
            let read = || {
                reads += 1;
                Some((0..STARTS_MAX as u32 / 3).collect())
            };
            let position = lines.position((address, 9), 0, read);
            assert_eq!(position.is_some(), address < 2, "{address}");
        }
        assert_eq!(lines.position((0, 9), 5, || None), Some((6, 1)));
        assert_eq!(reads, 4);
    }
}
