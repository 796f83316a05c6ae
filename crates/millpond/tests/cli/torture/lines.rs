//! The lines that the writer writes: each unique, and each made again from its number alone.
//!
//! A line is `generation:sequence`, most with a time before it and text after it. A *generation* is the span between two
//! openings (or truncations) of the log, so it names the file that a line went to. The text is a piece of one long
//! random text, chosen by the sequence number: nothing has to be kept to know what a line must look like.

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
}

impl Lines {
    pub fn new(seed: u64) -> Self {
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
        Self { seed, text }
    }

    /// Appends a line, without its end.
    pub fn append(&self, generation: u32, sequence: u64, out: &mut Vec<u8>) {
        let mut rng = Rng::with_seed(self.seed ^ sequence.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let length = length(&mut rng);
        if length > 0 {
            out.extend_from_slice(TIME.as_bytes());
        }
        out.extend_from_slice(format!("{generation}:{sequence}").as_bytes());
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

    /// Generation and sequence number of a line, if it is one of this run's, whole and unharmed.
    pub fn recognise(&self, line: &str) -> Option<(u32, u64)> {
        let numbers = line.strip_prefix(TIME).unwrap_or(line);
        let (generation, rest) = numbers.split_once(':')?;
        let generation = generation.parse().ok()?;
        let sequence = rest.split(' ').next()?.parse().ok()?;
        let mut whole = Vec::with_capacity(line.len());
        self.append(generation, sequence, &mut whole);
        (whole == line.as_bytes()).then_some((generation, sequence))
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

/// What was written: the first sequence number of every generation, and how many lines there are.
#[derive(Clone, Debug, Default)]
pub struct Journal {
    pub firsts: Vec<u64>,
    pub lines: u64,
    pub bytes: u64,
}

impl Journal {
    pub fn generation(&self, sequence: u64) -> u32 {
        let after = self.firsts.partition_point(|first| *first <= sequence);
        u32::try_from(after - 1).expect("few generations")
    }
}

#[test]
fn only_whole_lines_are_recognised() {
    let lines = Lines::new(5);
    for sequence in 0..5_000 {
        let mut line = Vec::new();
        lines.append(7, sequence, &mut line);
        assert!(!line.contains(&b'\n') && line.last() != Some(&b'\r'));
        let line = String::from_utf8(line).expect("text");
        assert_eq!(lines.recognise(&line), Some((7, sequence)));
        let cut = line.char_indices().next_back().expect("not empty").0;
        assert_ne!(lines.recognise(&line[..cut]), Some((7, sequence)));
        assert_eq!(lines.recognise(&line[1..]), None, "{line}");
    }
}
