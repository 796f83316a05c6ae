//! The lines that the writer writes: each unique, and each made again from its number alone.
//!
//! A line is its sequence number, most with a time before it and text after it. The text is a piece of one long random
//! text, chosen by the sequence number: nothing has to be kept to know what a line must look like. The first line of a
//! file may be *headed*: it then begins with a long text that is the same in every file, so that files are told apart by
//! what comes behind that.

use fastrand::Rng;

/// What most lines begin with, so that the files of a run have their first bytes in common, as real logs do.
const TIME: &str = "2026-03-01T12:00:00Z ";
const TEXT_BYTES: usize = 256 * 1024;
const LINE_BYTES_MAX: usize = 40_000;

/// The lines of one run.
#[derive(Clone)]
pub struct Lines {
    seed: u64,
    text: String,
    header: String,
}

impl Lines {
    /// `header_bytes` is the length of what headed lines begin with; none are headed where it is 0.
    pub fn new(seed: u64, header_bytes: usize) -> Self {
        let words = [
            "GET",
            "größer",
            "\"quoted\"",
            "back\\slash",
            "200",
            "a\tb",
            "日本",
            "/index.html",
            "",
        ];
        let mut rng = Rng::with_seed(seed);
        let mut text = String::with_capacity(TEXT_BYTES + 64);
        while text.len() < TEXT_BYTES {
            // Numbers keep the text from being squeezed to nothing.
            text += &format!("{:x} ", rng.u64(..) >> rng.u32(..60));
            text += words[rng.usize(..words.len())];
        }
        let header = "#Fields: date time "
            .chars()
            .cycle()
            .take(header_bytes)
            .collect();
        Self { seed, text, header }
    }

    /// Whether the first line of a file is a headed one.
    pub fn has_header(&self) -> bool {
        !self.header.is_empty()
    }

    /// Appends a line, without its end.
    pub fn append(&self, sequence: u64, is_headed: bool, out: &mut Vec<u8>) {
        let mut rng = Rng::with_seed(self.seed ^ sequence.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let length = length(&mut rng);
        if is_headed {
            out.extend_from_slice(self.header.as_bytes());
        }
        if length > 0 {
            out.extend_from_slice(TIME.as_bytes());
        }
        out.extend_from_slice(format!("{sequence}:").as_bytes());
        if length > 0 {
            let from = self.boundary(rng.usize(..TEXT_BYTES - LINE_BYTES_MAX));
            let to = self.boundary(from + length);
            out.push(b' ');
            out.extend_from_slice(&self.text.as_bytes()[from..to]);
        }
    }

    fn boundary(&self, at: usize) -> usize {
        let fits = |place: &usize| self.text.is_char_boundary(*place);
        (at..).find(fits).expect("the text goes on")
    }

    /// The sequence number of a line, if it is one of this run's, whole and unharmed; and whether it is headed.
    pub fn recognise(&self, line: &str) -> Option<(u64, bool)> {
        let headless = line
            .strip_prefix(&self.header)
            .filter(|_| self.has_header());
        let rest = headless.unwrap_or(line);
        let number = rest.strip_prefix(TIME).unwrap_or(rest).split(':').next()?;
        let sequence = number.parse().ok()?;
        let mut whole = Vec::with_capacity(line.len());
        self.append(sequence, headless.is_some(), &mut whole);
        (whole == line.as_bytes()).then_some((sequence, headless.is_some()))
    }
}

/// Bytes of text of a line: often none, mostly some, at times more than a read buffer holds.
fn length(rng: &mut Rng) -> usize {
    match rng.u32(..1000) {
        0..100 => 0,
        100..700 => rng.usize(1..120),
        700..930 => rng.usize(100..600),
        930..995 => rng.usize(1_000..5_000),
        _ => rng.usize(8_000..LINE_BYTES_MAX),
    }
}

#[test]
fn only_whole_lines_are_recognised() {
    let lines = Lines::new(5, 1_200);
    for sequence in 0..5_000 {
        let is_headed = sequence % 7 == 0;
        let mut line = Vec::new();
        lines.append(sequence, is_headed, &mut line);
        assert!(!line.contains(&b'\n') && line.last() != Some(&b'\r'));
        let line = String::from_utf8(line).expect("text");
        assert_eq!(lines.recognise(&line), Some((sequence, is_headed)));
        let cut = line.char_indices().next_back().expect("not empty").0;
        assert_eq!(lines.recognise(&line[..cut]), None, "{line}");
        let behind = lines.recognise(&line[1..]);
        assert_ne!(behind, Some((sequence, is_headed)), "{line}");
    }
}
