//! Whether every written line was delivered, and counted by id exactly once.
//!
//! Three facts are held: each id has one line, each written line has one id, each delivered line is one that was written.
//! The same line under the same id again is no fault (delivery is at least once, ids are stable) and is counted.

use std::collections::HashMap;
use std::fmt::Write;

use super::lines::{Journal, Lines};

/// How many faults of a kind are shown.
const SHOWN: usize = 5;

/// Takes what was delivered, an event at a time.
pub struct Checker<'a> {
    lines: &'a Lines,
    journal: &'a Journal,
    ids: HashMap<String, u64>,
    seen: Vec<bool>,
    report: Report,
}

/// What was found.
#[derive(Debug, Default)]
pub struct Report {
    pub repeats: u64,
    pub ids: usize,
    /// Sequence numbers of lines that never came.
    pub missing: Vec<u64>,
    /// Sequence numbers of lines that came under a second id.
    pub doubled: Vec<u64>,
    /// Ids that stood for a second line, with that line.
    pub ambiguous: Vec<(String, String)>,
    /// What came and was never written, with its id: pieces of lines, lines grown together.
    pub damaged: Vec<(String, String)>,
}

impl<'a> Checker<'a> {
    pub fn new(lines: &'a Lines, journal: &'a Journal) -> Self {
        Self {
            lines,
            journal,
            ids: HashMap::new(),
            seen: vec![false; usize::try_from(journal.lines).expect("they fit")],
            report: Report::default(),
        }
    }

    pub fn add(&mut self, id: &str, message: &str) {
        let known = self
            .lines
            .recognise(message)
            .filter(|&(generation, sequence)| {
                sequence < self.journal.lines && self.journal.generation(sequence) == generation
            });
        let Some((_, sequence)) = known else {
            self.report.damaged.push((id.into(), message.into()));
            return;
        };
        match self.ids.get(id) {
            Some(&earlier) if earlier == sequence => self.report.repeats += 1,
            Some(_) => self.report.ambiguous.push((id.into(), message.into())),
            None => {
                self.ids.insert(id.into(), sequence);
                let seen = &mut self.seen[usize::try_from(sequence).expect("it fits")];
                if std::mem::replace(seen, true) {
                    self.report.doubled.push(sequence);
                }
            }
        }
    }

    /// The findings, and the faults in words; `place` says where the lines of a generation were held.
    pub fn finish(mut self, place: impl Fn(u32) -> String) -> (Report, Option<String>) {
        let missing = (0..).zip(&self.seen).filter(|(_, seen)| !**seen);
        self.report.missing = missing.map(|(sequence, _)| sequence).collect();
        self.report.ids = self.ids.len();
        let words = self.words(place);
        (self.report, (!words.is_empty()).then_some(words))
    }

    fn words(&self, place: impl Fn(u32) -> String) -> String {
        let mut words = String::new();
        let report = &self.report;
        let name = |sequence: u64| {
            let generation = self.journal.generation(sequence);
            let offset = self.offset(generation, sequence);
            let place = place(generation);
            format!("{generation}:{sequence} (at {offset} of {place})")
        };
        section(&mut words, "missing", &report.missing, |&line| name(line));
        section(&mut words, "doubled", &report.doubled, |&line| {
            let ids = self.ids.iter().filter(|(_, other)| **other == line);
            let ids: Vec<&str> = ids.map(|(id, _)| id.as_str()).collect();
            format!("{} under {}", name(line), ids.join(" and "))
        });
        section(&mut words, "ambiguous", &report.ambiguous, |(id, line)| {
            format!("{id}: {} and {:?}", name(self.ids[id]), start(line))
        });
        section(&mut words, "damaged", &report.damaged, |(id, line)| {
            format!("{id}: {} bytes, {:?}", line.len(), start(line))
        });
        words
    }

    /// Where a line starts in its file.
    fn offset(&self, generation: u32, sequence: u64) -> usize {
        let mut before = Vec::new();
        let mut offset = 0;
        for earlier in self.journal.firsts[generation as usize]..sequence {
            before.clear();
            self.lines.append(generation, earlier, &mut before);
            offset += before.len() + 1;
        }
        offset
    }
}

fn section<T>(words: &mut String, what: &str, faults: &[T], show: impl Fn(&T) -> String) {
    if faults.is_empty() {
        return;
    }
    writeln!(words, "{} lines {what}:", faults.len()).expect("memory");
    for fault in faults.iter().take(SHOWN) {
        writeln!(words, "  {}", show(fault)).expect("memory");
    }
    // The last one shows how far the fault reaches.
    if faults.len() > SHOWN {
        let last = &faults[faults.len() - 1];
        writeln!(words, "  … {}", show(last)).expect("memory");
    }
}

fn start(line: &str) -> String {
    line.chars().take(80).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two generations of ten lines. `change` may alter what is delivered: the ids and the lines.
    fn outcome(change: impl Fn(&mut Vec<(String, String)>)) -> (Report, Option<String>) {
        let lines = Lines::new(1);
        let journal = Journal {
            firsts: vec![0, 10],
            lines: 20,
            bytes: 0,
        };
        let mut delivered = Vec::new();
        for sequence in 0..20 {
            let mut line = Vec::new();
            lines.append(journal.generation(sequence), sequence, &mut line);
            let line = String::from_utf8(line).expect("text");
            delivered.push((format!("id-{sequence}"), line));
        }
        change(&mut delivered);
        let mut checker = Checker::new(&lines, &journal);
        for (id, message) in &delivered {
            checker.add(id, message);
        }
        checker.finish(|generation| format!("file {generation}"))
    }

    #[test]
    fn all_lines_once_and_repeats_under_the_same_id_are_right() {
        let (report, fault) = outcome(|_| ());
        assert_eq!((report.ids, report.repeats, fault), (20, 0, None));
        let (report, fault) = outcome(|all| all.extend_from_within(3..9));
        assert_eq!((report.ids, report.repeats, fault), (20, 6, None));
    }

    #[test]
    fn a_lost_line_is_found_and_placed() {
        let (report, fault) = outcome(|all| drop(all.remove(13)));
        assert_eq!(report.missing, [13]);
        let lines = Lines::new(1);
        let mut before = Vec::new();
        (10..13).for_each(|sequence| lines.append(1, sequence, &mut before));
        let offset = before.len() + 3;
        let expected = format!("1 lines missing:\n  1:13 (at {offset} of file 1)\n");
        assert_eq!(fault, Some(expected));
    }

    #[test]
    fn a_line_under_two_ids_is_found() {
        let (report, fault) = outcome(|all| all.push(("other".into(), all[4].1.clone())));
        assert_eq!((report.doubled.as_slice(), report.ids), (&[4][..], 21));
        let fault = fault.expect("a fault");
        assert!(fault.contains("other") && fault.contains("id-4"), "{fault}");
    }

    #[test]
    fn a_line_that_was_split_is_damaged_and_missing() {
        let (report, fault) = outcome(|all| {
            let (id, line) = all[6].clone();
            let middle = (line.len() / 2..).find(|at| line.is_char_boundary(*at));
            let (one, two) = line.split_at(middle.expect("a boundary"));
            all[6].1 = one.to_owned();
            all.insert(7, (id + "b", two.to_owned()));
        });
        assert_eq!(
            (report.missing.as_slice(), report.damaged.len()),
            (&[6][..], 2)
        );
        assert!(fault.is_some_and(|fault| fault.contains("2 lines damaged")));
    }

    #[test]
    fn two_lines_under_one_id_are_found() {
        let (report, fault) = outcome(|all| all[5].0 = "id-4".into());
        assert_eq!(
            (report.ambiguous.len(), report.missing.as_slice()),
            (1, &[5][..])
        );
        assert!(fault.is_some_and(|fault| fault.contains("id-4: 0:4 (at ")));
    }

    #[test]
    fn lines_that_were_never_written_are_damaged() {
        let lines = Lines::new(1);
        let mut wrong_generation = Vec::new();
        lines.append(0, 15, &mut wrong_generation);
        let mut too_late = Vec::new();
        lines.append(1, 20, &mut too_late);
        for line in [
            wrong_generation,
            too_late,
            b"something else".to_vec(),
            vec![],
        ] {
            let line = String::from_utf8(line).expect("text");
            let (report, fault) = outcome(|all| all.push(("new".into(), line.clone())));
            assert_eq!(report.damaged, [("new".to_owned(), line)]);
            assert!(fault.is_some());
        }
    }
}
