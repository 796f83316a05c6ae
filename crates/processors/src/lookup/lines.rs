//! The lines of a table's file, with their numbers.

use std::io::{self, BufRead};

/// The lines of a file, one after the other.
pub(super) struct Lines<R> {
    input: R,
    /// The line read last, with its end, if it has one.
    pub line: Vec<u8>,
    /// The number of that line.
    pub number: u32,
}

impl<R: BufRead> Lines<R> {
    pub fn new(input: R) -> Self {
        Self {
            input,
            line: Vec::new(),
            number: 0,
        }
    }

    /// Reads the next line that is not blank. `false` at the end.
    pub fn next(&mut self) -> io::Result<bool> {
        while self.next_of_any()? {
            if !self.line.trim_ascii().is_empty() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Reads the next line. `false` at the end.
    pub fn next_of_any(&mut self) -> io::Result<bool> {
        self.line.clear();
        if self.input.read_until(b'\n', &mut self.line)? == 0 {
            return Ok(false);
        }
        self.number = self.number.saturating_add(1);
        if self.number == 1 && self.line.starts_with(b"\xEF\xBB\xBF") {
            self.line.drain(..3);
        }
        Ok(true)
    }
}
