//! The journal's export format (`systemd.io/JOURNAL_EXPORT_FORMATS`), read piece by piece.
//!
//! ```text
//! entry  field… | "\n"
//! field  NAME "=" value "\n"                       a value that is text of one line
//!        NAME "\n" | length u64 LE | value | "\n"  any value
//! ```
//!
//! Unlike JSON, it has every value as it is, also large ones and such as are no text, and costs journalctl the least.

use std::ops::Range;

use memchr::memchr;

/// How many fields of an entry are kept. The journal itself allows 1,024.
const FIELDS_MAX: usize = 4096;

/// How long a name may be. The journal itself allows 64 bytes.
const NAME_BYTES_MAX: usize = 64;

/// How much is kept at least of each value, in bytes.
const VALUE_BYTES_MIN: usize = 256;

/// A field of an entry.
#[derive(Debug, Clone)]
struct Field {
    name: Range<usize>,
    value: Range<usize>,
}

/// Reads entries.
#[derive(Debug)]
pub(super) struct Export {
    /// How much is kept of an entry before values are cut.
    bytes_max: usize,
    /// Names and values of the entry.
    store: Vec<u8>,
    fields: Vec<Field>,
    /// Something of the entry was cut.
    is_cut: bool,
    expected: Expected,
    /// The entry is complete.
    is_done: bool,
}

/// What comes next.
#[derive(Debug, Clone, Copy)]
enum Expected {
    /// A line, which begins at `start` of the store; `name` ends at `equals` where that has come.
    Line { start: usize, equals: Option<usize> },
    Length {
        name: usize,
        bytes: [u8; 8],
        have: usize,
    },
    /// A value of which so many bytes are still to come.
    Value {
        name: usize,
        start: usize,
        left: u64,
    },
    /// The line feed behind a value.
    End,
}

const BEGIN: Expected = Expected::Line {
    start: 0,
    equals: None,
};

impl Export {
    /// Keeps `bytes_max` bytes of an entry, and a little of each value behind these.
    pub(super) fn new(bytes_max: usize) -> Self {
        Self {
            bytes_max,
            store: Vec::new(),
            fields: Vec::new(),
            is_cut: false,
            expected: BEGIN,
            is_done: false,
        }
    }

    /// Forgets what was read, for another process.
    pub(super) fn restart(&mut self) {
        self.clear();
    }

    fn clear(&mut self) {
        self.store.clear();
        self.store.shrink_to(64 << 10);
        self.fields.clear();
        self.is_cut = false;
        self.is_done = false;
        self.expected = BEGIN;
    }

    /// Reads on; gives how much was read, and whether an entry is complete, which stays until the next call.
    pub(super) fn read(&mut self, input: &[u8]) -> (usize, bool) {
        if self.is_done {
            self.clear();
        }
        let mut at = 0;
        while at < input.len() {
            at += self.step(&input[at..]);
            if self.is_done {
                return (at, true);
            }
        }
        (at, false)
    }

    /// The names and values of the entry.
    pub(super) fn fields(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let text = |range: &Range<usize>| &self.store[range.clone()];
        let fields = self.fields.iter();
        fields.map(move |field| (text(&field.name), text(&field.value)))
    }

    /// Whether something of the entry was cut.
    pub(super) fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// Reads something, at least one byte.
    fn step(&mut self, input: &[u8]) -> usize {
        match self.expected {
            Expected::Line { start, equals } => self.line(start, equals, input),
            Expected::Length {
                name,
                mut bytes,
                have,
            } => {
                let count = (8 - have).min(input.len());
                bytes[have..have + count].copy_from_slice(&input[..count]);
                let have = have + count;
                self.expected = match have {
                    8 => Expected::Value {
                        name,
                        start: self.store.len(),
                        left: u64::from_le_bytes(bytes),
                    },
                    _ => Expected::Length { name, bytes, have },
                };
                self.end_of_value();
                count
            }
            Expected::Value { name, start, left } => {
                let count = usize::try_from(left).unwrap_or(usize::MAX).min(input.len());
                self.keep(start, &input[..count]);
                self.expected = Expected::Value {
                    name,
                    start,
                    left: left - count as u64,
                };
                self.end_of_value();
                count
            }
            Expected::End => {
                self.expected = Expected::Line {
                    start: self.store.len(),
                    equals: None,
                };
                1
            }
        }
    }

    fn line(&mut self, start: usize, equals: Option<usize>, input: &[u8]) -> usize {
        let end = memchr(b'\n', input);
        let piece = &input[..end.unwrap_or(input.len())];
        let mut equals = equals;
        if equals.is_none() {
            let found = memchr(b'=', piece);
            let name = &piece[..found.unwrap_or(piece.len())];
            let room = NAME_BYTES_MAX.saturating_sub(self.store.len() - start);
            self.is_cut |= name.len() > room;
            self.store.extend_from_slice(&name[..name.len().min(room)]);
            if let Some(found) = found {
                equals = Some(self.store.len());
                self.keep(self.store.len(), &piece[found + 1..]);
            }
        } else {
            self.keep(equals.unwrap_or(start), piece);
        }
        let Some(end) = end else {
            self.expected = Expected::Line { start, equals };
            return piece.len();
        };
        match equals {
            Some(equals) => {
                self.push(start..equals, equals..self.store.len());
                self.expected = Expected::Line {
                    start: self.store.len(),
                    equals: None,
                };
            }
            None if self.store.len() == start => self.is_done = !self.fields.is_empty(),
            None => {
                self.expected = Expected::Length {
                    name: start,
                    bytes: [0; 8],
                    have: 0,
                };
            }
        }
        end + 1
    }

    /// Goes on behind a value of which everything has come.
    fn end_of_value(&mut self) {
        if let Expected::Value {
            name,
            start,
            left: 0,
        } = self.expected
        {
            self.push(name..start, start..self.store.len());
            self.expected = Expected::End;
        }
    }

    /// Keeps bytes of the value that begins at `start`, as far as they are allowed.
    fn keep(&mut self, start: usize, bytes: &[u8]) {
        let has = self.store.len() - start;
        let most = self.bytes_max.saturating_sub(start).max(VALUE_BYTES_MIN);
        let room = match self.fields.len() < FIELDS_MAX {
            true => most.saturating_sub(has),
            false => 0,
        };
        self.is_cut |= bytes.len() > room;
        self.store
            .extend_from_slice(&bytes[..bytes.len().min(room)]);
    }

    fn push(&mut self, name: Range<usize>, value: Range<usize>) {
        if self.fields.len() < FIELDS_MAX {
            self.fields.push(Field { name, value });
        } else {
            self.is_cut = true;
            self.store.truncate(name.start);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The entries of a text that comes in pieces.
    fn entries(text: &[u8], piece: usize, bytes_max: usize) -> Vec<String> {
        let mut export = Export::new(bytes_max);
        let mut entries = Vec::new();
        for mut piece in text.chunks(piece) {
            while !piece.is_empty() {
                let (read, is_entry) = export.read(piece);
                piece = &piece[read..];
                if is_entry {
                    let field = |(name, value): (&[u8], &[u8])| {
                        format!(
                            "{}={:?} ",
                            name.escape_ascii(),
                            value.escape_ascii().to_string()
                        )
                    };
                    let fields: String = export.fields().map(field).collect();
                    entries.push(format!("{fields}{}", export.is_cut()));
                }
            }
        }
        entries
    }

    #[test]
    fn entries_are_the_same_in_pieces_of_any_size() {
        let text = b"\n\n__CURSOR=s=1;i=2\nMESSAGE=a\n\nMESSAGE\n\x05\0\0\0\0\0\0\0b\n\xff=c\nEMPTY\n\0\0\0\0\0\0\0\0\nX=\n\nUNFINISHED=1\n";
        let expected = [
            "__CURSOR=\"s=1;i=2\" MESSAGE=\"a\" false",
            r#"MESSAGE="b\\n\\xff=c" EMPTY="" X="" false"#,
        ];
        for piece in 1..text.len() {
            assert_eq!(entries(text, piece, 1000), expected, "{piece}");
        }
    }

    #[test]
    fn a_large_entry_is_cut_and_nothing_behind_it_is_lost() {
        let mut text = b"A=1\nBIG\n".to_vec();
        text.extend_from_slice(&100_000_u64.to_le_bytes());
        text.extend(std::iter::repeat_n(b'x', 100_000));
        text.extend_from_slice(b"\nLINE=");
        text.extend(std::iter::repeat_n(b'y', 5000));
        text.extend_from_slice(b"\nC=3\n\nA=2\n\n");
        for piece in [7, 1000, 1 << 20] {
            let entries = entries(&text, piece, 600);
            assert_eq!(entries.len(), 2);
            let (first, second) = (&entries[0], &entries[1]);
            assert!(first.contains("C=\"3\" true"), "{first}");
            let count = |letter| first.matches(letter).count();
            assert_eq!((count('x'), count('y')), (595, 256));
            assert_eq!(second, "A=\"2\" false");
        }
    }

    #[test]
    fn too_many_fields_are_cut() {
        let text = "A=1\n".repeat(FIELDS_MAX + 5) + "\n";
        let mut export = Export::new(1 << 20);
        let (read, is_entry) = export.read(text.as_bytes());
        assert_eq!((read, is_entry), (text.len(), true));
        assert!(export.is_cut());
        assert_eq!(export.fields().count(), FIELDS_MAX);
    }
}
