//! What was written and where it went, byte by byte: from this follows what must be delivered, and what may be missing.
//!
//! All lines, one after the other, are the *stream*. A *span* is the part of the stream that went to one file, or to the
//! log until it was truncated. Of a span that was copied while the writer went on, only the part that the copy holds is
//! sure to be there later: what came between the end of the copy and the truncation is in the *gap*. Millpond may have
//! read it from the log, or may not. Of a span that was written over while Millpond was down, nothing is sure.
//!
//! A line that ends of spans cut has *parts*, one in each span. What Millpond may make of a part is its [`Claim`].

use std::collections::HashSet;

use anyhow::{Result, ensure};

use super::lines::Lines;

/// What ended a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The writer went on in another file, or paused while the log was copied: all of it is there.
    Left,
    /// The log was truncated while the writer wrote.
    Truncated,
    /// The log was written over while Millpond was down.
    Overwritten,
}

/// What the writer wrote, by its own account.
#[derive(Debug, Default)]
pub struct Journal {
    /// Where in the stream each line starts.
    starts: Vec<u64>,
    headed: HashSet<u64>,
    /// Where in the stream a span ended, and by what; the last span is not among them.
    ends: Vec<(u64, End)>,
    /// Bytes of all lines that were composed, with their ends.
    composed: u64,
    /// Bytes that were written.
    pub bytes: u64,
}

impl Journal {
    /// The number of lines.
    pub fn lines(&self) -> u64 {
        self.starts.len() as u64
    }

    /// The current span.
    pub fn span(&self) -> usize {
        self.ends.len()
    }

    /// Appends the next line to what is to be written.
    pub fn compose(&mut self, lines: &Lines, is_first: bool, pending: &mut Vec<u8>) {
        let (sequence, before) = (self.lines(), pending.len());
        let is_headed = is_first && lines.has_header();
        lines.append(sequence, is_headed, pending);
        pending.push(b'\n');
        if is_headed {
            self.headed.insert(sequence);
        }
        self.starts.push(self.composed);
        self.composed += (pending.len() - before) as u64;
    }

    /// Ends the current span where writing is.
    pub fn end_span(&mut self, end: End) {
        self.ends.push((self.bytes, end));
    }
}

/// Part of the stream that went to one file.
#[derive(Debug, Clone, Copy)]
struct Span {
    begin: u64,
    /// Until here it is sure to be in a file.
    held: u64,
    end: u64,
    by: End,
}

/// What Millpond owes of a part of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claim {
    /// It must come, as it is.
    Must,
    /// It was written over: it comes as it is, or not at all.
    Whole,
    /// It lies in a gap, or has no end: it comes as it is, as any beginning of it, or not at all.
    Beginning,
}

/// The part of a line that is in one span.
#[derive(Debug, Clone, Copy)]
pub struct Part {
    pub sequence: u64,
    pub span: usize,
    /// Where it is in the stream, the end of the line included.
    begin: u64,
    end: u64,
    /// Where it starts in its file.
    pub offset: u64,
    pub claim: Claim,
    /// Whether the line is in one piece.
    pub is_line: bool,
}

/// The stream and its spans.
pub struct Layout {
    lines: Lines,
    journal: Journal,
    spans: Vec<Span>,
}

impl Layout {
    /// `copies` are the sizes of the copies that were made while the writer wrote, in order.
    pub fn new(lines: &Lines, journal: Journal, copies: &[u64]) -> Result<Self> {
        let mut sizes = copies.iter();
        let mut spans = Vec::new();
        let last = (journal.bytes, End::Left);
        ensure!(journal.composed == journal.bytes, "all lines were written");
        let mut begin = 0;
        for &(end, by) in journal.ends.iter().chain([&last]) {
            let held = match by {
                End::Left => end,
                End::Overwritten => begin,
                End::Truncated => begin + sizes.next().copied().unwrap_or(u64::MAX - begin),
            };
            ensure!(held <= end, "a copy holds at most what its log held");
            spans.push(Span {
                begin,
                held,
                end,
                by,
            });
            begin = end;
        }
        ensure!(sizes.len() == 0, "the writer met every truncation");
        Ok(Self {
            lines: lines.clone(),
            journal,
            spans,
        })
    }

    /// The number of lines.
    pub fn lines(&self) -> u64 {
        self.journal.lines()
    }

    /// The bytes of all lines.
    pub fn bytes(&self) -> u64 {
        self.journal.bytes
    }

    /// The bytes of the last span.
    pub fn last_bytes(&self) -> u64 {
        self.spans.last().map_or(0, |span| span.end - span.begin)
    }

    /// The spans whose ends were of this kind, in order.
    pub fn spans_by(&self, by: End) -> impl Iterator<Item = usize> {
        let spans = self.spans.iter().enumerate();
        spans.filter_map(move |(index, span)| (span.by == by).then_some(index))
    }

    /// The whole lines of which nothing is sure, by what ended their spans.
    pub fn unsure(&self, by: End) -> u64 {
        let unsure = self
            .odd()
            .filter(|part| part.claim != Claim::Must && self.spans[part.span].by == by);
        unsure.filter(|part| part.is_line).count() as u64
    }

    /// The sequence number of a whole line, if it was written.
    pub fn recognise(&self, message: &str) -> Option<u64> {
        let (sequence, is_headed) = self.lines.recognise(message)?;
        let is_written = sequence < self.lines();
        (is_written && self.journal.headed.contains(&sequence) == is_headed).then_some(sequence)
    }

    /// The parts of a line: one, unless an end of a span cut it.
    pub fn parts(&self, sequence: u64) -> impl Iterator<Item = Part> {
        let (start, end) = self.range(sequence);
        let first = self.span_at(start);
        let spans = (first..self.spans.len()).take_while(move |&span| {
            // Spans may be empty.
            span == first || self.spans[span].begin < end
        });
        spans
            .map(move |index| self.part(sequence, index, (start, end)))
            .filter(|part| part.begin < part.end)
    }

    fn part(&self, sequence: u64, index: usize, (start, end): (u64, u64)) -> Part {
        let span = self.spans[index];
        let part = (start.max(span.begin), end.min(span.end));
        let has_end = part.1 == end;
        let claim = match span.by {
            _ if has_end && end <= span.held => Claim::Must,
            End::Overwritten => Claim::Whole,
            _ => Claim::Beginning,
        };
        Part {
            sequence,
            span: index,
            begin: part.0,
            end: part.1,
            offset: part.0 - span.begin,
            claim,
            is_line: part == (start, end),
        }
    }

    /// The parts that are no whole lines, or that need not come.
    pub fn odd(&self) -> impl Iterator<Item = Part> {
        let ranges = self.spans.iter().filter(|span| span.end > span.begin);
        // The line that ends a span may be cut there, and so may the one before the end of the copy.
        let ranges = ranges.map(|span| {
            let to = self.line_at(span.end - 1);
            let from = match span.held < span.end {
                true => self.line_at(span.held.saturating_sub(1).max(span.begin)),
                false => to,
            };
            (from, to)
        });
        let mut next = 0;
        ranges
            .flat_map(move |(from, to)| {
                let from = from.max(next);
                next = next.max(to + 1);
                from..=to
            })
            .flat_map(|sequence| self.parts(sequence))
            .filter(|part| part.claim != Claim::Must || !part.is_line)
    }

    /// Whether a message is what a part of a line may come as.
    pub fn allows(&self, part: &Part, message: &str) -> bool {
        let bytes = self.stream(part.begin, part.end);
        let text = bytes.strip_suffix(b"\n").unwrap_or(&bytes);
        let text = String::from_utf8_lossy(text);
        // Half a character may be at either end.
        let trim = |text: &str| text.trim_matches('\u{FFFD}').to_owned();
        let (text, message) = (trim(&text), trim(message));
        match part.claim {
            Claim::Must | Claim::Whole => text == message,
            Claim::Beginning => text.starts_with(&message),
        }
    }

    /// What a file holds that has all that is sure of a span.
    pub fn held(&self, span: usize) -> Vec<u8> {
        let Span { begin, held, .. } = self.spans[span];
        self.stream(begin, held)
    }

    /// The bytes of the stream from one place to another.
    fn stream(&self, from: u64, to: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        if from == to {
            return bytes;
        }
        let first = self.line_at(from);
        let (start, _) = self.range(first);
        let mut sequence = first;
        while start + (bytes.len() as u64) < to {
            let is_headed = self.journal.headed.contains(&sequence);
            self.lines.append(sequence, is_headed, &mut bytes);
            bytes.push(b'\n');
            sequence += 1;
        }
        let usize = |at: u64| usize::try_from(at - start).expect("it fits");
        bytes.truncate(usize(to));
        bytes.split_off(usize(from))
    }

    /// Where a line is in the stream, its end included.
    fn range(&self, sequence: u64) -> (u64, u64) {
        let index = usize::try_from(sequence).expect("it fits");
        let starts = &self.journal.starts;
        let end = starts.get(index + 1).copied();
        (starts[index], end.unwrap_or(self.journal.composed))
    }

    /// The line that holds this byte of the stream.
    fn line_at(&self, at: u64) -> u64 {
        let after = self.journal.starts.partition_point(|start| *start <= at);
        after as u64 - 1
    }

    /// The span that holds this byte of the stream.
    fn span_at(&self, at: u64) -> usize {
        self.spans.partition_point(|span| span.begin <= at) - 1
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// Twenty lines, in spans of which each ends in a line, so many bytes behind its start.
    pub fn layout(ends: &[(u64, u64, End)], copies: &[u64]) -> Layout {
        let (lines, mut journal) = (Lines::new(1, 0), Journal::default());
        let mut pending = Vec::new();
        for _ in 0..20 {
            journal.compose(&lines, false, &mut pending);
        }
        for &(sequence, behind, by) in ends {
            journal.bytes = journal.starts[sequence as usize] + behind;
            journal.end_span(by);
        }
        journal.bytes = pending.len() as u64;
        Layout::new(&lines, journal, copies).expect("it adds up")
    }

    /// Where a line starts.
    pub fn start(sequence: u64) -> u64 {
        layout(&[], &[]).range(sequence).0
    }

    fn odd(layout: &Layout) -> Vec<(u64, usize, Claim, bool)> {
        let odd = layout.odd();
        odd.map(|part| (part.sequence, part.span, part.claim, part.is_line))
            .collect()
    }

    #[test]
    fn of_what_was_left_everything_must_come() {
        let layout = layout(&[(5, 0, End::Left), (5, 0, End::Left)], &[]);
        assert_eq!(odd(&layout), []);
        let place = |sequence| {
            let parts: Vec<Part> = layout.parts(sequence).collect();
            assert_eq!(parts.len(), 1);
            (parts[0].span, parts[0].offset)
        };
        assert_eq!((place(0), place(5)), ((0, 0), (2, 0)));
        assert_eq!(place(7), (2, start(7) - start(5)));
    }

    #[test]
    fn lines_in_a_gap_may_be_missing_and_those_at_its_ends_be_cut() {
        // The copy ends in line 3, the truncation is in line 6.
        let layout = layout(&[(6, 2, End::Truncated)], &[start(3) + 1]);
        let expected = [
            (3, 0, Claim::Beginning, true),
            (4, 0, Claim::Beginning, true),
            (5, 0, Claim::Beginning, true),
            (6, 0, Claim::Beginning, false),
            (6, 1, Claim::Must, false),
        ];
        assert_eq!(odd(&layout), expected);
        assert_eq!(layout.unsure(End::Truncated), 3);
        let parts: Vec<Part> = layout.parts(6).collect();
        let stream = layout.stream(start(6), start(7));
        let rest = std::str::from_utf8(&stream[2..stream.len() - 1]).expect("text");
        assert!(layout.allows(&parts[1], rest));
        assert!(!layout.allows(&parts[1], &rest[..rest.len() - 1]));
        assert!(layout.allows(&parts[0], std::str::from_utf8(&stream[..1]).expect("text")));
        assert!(!layout.allows(&parts[0], std::str::from_utf8(&stream[..3]).expect("text")));
    }

    #[test]
    fn a_copy_that_ends_with_a_line_has_all_of_it() {
        let copies = [start(4)];
        let layout = layout(&[(6, 0, End::Truncated)], &copies);
        let expected = [4, 5].map(|line| (line, 0, Claim::Beginning, true));
        assert_eq!(odd(&layout), expected);
        assert_eq!(layout.held(0), layout.stream(0, start(4)));
    }

    #[test]
    fn what_was_written_over_comes_whole_or_not_at_all() {
        let layout = layout(&[(2, 0, End::Left), (4, 0, End::Overwritten)], &[]);
        let expected = [2, 3].map(|line| (line, 1, Claim::Whole, true));
        assert_eq!(odd(&layout), expected);
    }
}
