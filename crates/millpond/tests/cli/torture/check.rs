//! Whether every written line was delivered, and counted by id exactly once.
//!
//! Three facts are held: each id has one line, each written line has one id, each delivered line is one that was written,
//! at its place in its file. An id is `file-start-end`, and each file has its own: an id that is used for a second file is
//! a fault even where no start and end are alike. The same line under the same id again is no fault (delivery is at least
//! once, ids are stable) and is counted. What nature loses may be missing, and what it cuts may come cut: of that the
//! [`Layout`] knows.

use std::collections::{HashMap, HashSet};
use std::fmt::Write;

use super::crowd::{self, Small};
use super::journal::{Claim, Layout, Part};

/// How many faults of a kind are shown.
const SHOWN: usize = 5;

/// Lines of one span of which only the beginning comes: the last one that was read from the log, and the last one of the
/// copy.
const HALVES_MAX: usize = 2;

/// A part of a line: of which line, and in which span.
type Key = (u64, usize);

/// What is held of an event.
pub struct Delivered<'a> {
    pub id: &'a str,
    pub message: &'a str,
    /// Where it starts in its file.
    pub offset: u64,
}

/// Takes what was delivered, an event at a time.
pub struct Checker<'a> {
    layout: &'a Layout,
    ids: HashMap<String, Key>,
    /// The first lines that came, by their ids without the end.
    starts: HashMap<String, Key>,
    /// The first line of each file, by the file's part of the id.
    files: HashMap<String, Key>,
    /// What was delivered may be delivered again, and be shorter then, as Millpond was killed.
    is_killed: bool,
    /// Whole lines that came.
    seen: Vec<bool>,
    /// The parts that are no whole lines, or may be missing, by where they start in their files.
    odd: HashMap<u64, Vec<Part>>,
    /// Which of these came.
    seen_odd: HashSet<Key>,
    /// Lines of which only a beginning came, by span.
    halves: HashMap<usize, HashSet<u64>>,
    /// The small files beside the log.
    crowd: crowd::Seen,
    report: Report,
}

/// What was found.
#[derive(Debug, Default)]
pub struct Report {
    pub repeats: u64,
    pub ids: usize,
    /// Lines and parts of lines that came cut, as nature may cut them.
    pub halves: usize,
    /// Lines and parts of lines that did not come, and need not.
    pub lost_by_nature: usize,
    /// Sequence numbers of lines that never came.
    pub missing: Vec<u64>,
    /// Sequence numbers of lines that came under a second id.
    pub doubled: Vec<u64>,
    /// Ids that stood for a second line, with that line.
    pub ambiguous: Vec<(String, String)>,
    /// Ids of which the file's part stood for a second file, with the first line of that one.
    pub mixed: Vec<(String, String)>,
    /// What came and was never written, or not there, with its id: pieces of lines, lines grown together.
    pub damaged: Vec<(String, String)>,
    /// Lines that were not seen of small files, or came twice.
    pub crowd: Vec<String>,
}

impl<'a> Checker<'a> {
    /// With whether Millpond was killed.
    pub fn new(layout: &'a Layout, small: &Small, is_killed: bool) -> Self {
        let mut odd: HashMap<u64, Vec<Part>> = HashMap::new();
        for part in layout.odd() {
            odd.entry(part.offset).or_default().push(part);
        }
        Self {
            layout,
            ids: HashMap::new(),
            starts: HashMap::new(),
            files: HashMap::new(),
            is_killed,
            seen: vec![false; usize::try_from(layout.lines()).expect("they fit")],
            odd,
            seen_odd: HashSet::new(),
            halves: HashMap::new(),
            crowd: crowd::Seen::new(small),
            report: Report::default(),
        }
    }

    pub fn add(&mut self, event: &Delivered<'_>) {
        let Delivered { id, message, .. } = *event;
        if self.crowd.takes(id, message) {
            return;
        }
        let Some((part, is_half)) = self.part(event) else {
            self.report.damaged.push((id.into(), message.into()));
            return;
        };
        let key = (part.sequence, part.span);
        match self.ids.get(id) {
            Some(&earlier) if earlier == key => self.report.repeats += 1,
            Some(_) => self.report.ambiguous.push((id.into(), message.into())),
            None => self.add_new(id, message, &part, is_half),
        }
    }

    /// Takes what comes under an id that is new.
    fn add_new(&mut self, id: &str, message: &str, part: &Part, is_half: bool) {
        let key = (part.sequence, part.span);
        self.ids.insert(id.into(), key);
        let start = id.rsplit_once('-').map_or(id, |(start, _)| start);
        let file = id.split('-').next().unwrap_or(id);
        let known = self.files.entry(file.into()).or_insert(key);
        if known.1 != part.span {
            // One for each further file.
            *known = key;
            self.report.mixed.push((id.into(), message.into()));
        }
        if !self.has_seen(part) {
            if part.claim == Claim::Beginning {
                self.starts.insert(start.into(), key);
            }
        } else if self.is_killed && self.starts.get(start) == Some(&key) {
            // The log had more of it than the copy.
            self.report.repeats += 1;
        } else {
            self.report.doubled.push(part.sequence);
        }
        self.see(part);
        if is_half {
            let halves = self.halves.entry(part.span).or_default();
            halves.insert(part.sequence);
            if halves.len() > HALVES_MAX {
                self.report.damaged.push((id.into(), message.into()));
            }
        }
    }

    /// What was delivered, and whether only its beginning was.
    fn part(&self, event: &Delivered<'_>) -> Option<(Part, bool)> {
        if let Some(sequence) = self.layout.recognise(event.message)
            && let mut parts = self.layout.parts(sequence)
            && let Some(part) = parts.find(|part| part.is_line && part.offset == event.offset)
        {
            return Some((part, false));
        }
        let there = self.odd.get(&event.offset)?;
        let allowed = |part: &&Part| self.layout.allows(part, event.message);
        let known = self.ids.get(event.id);
        let is_known = |part: &&Part| known == Some(&(part.sequence, part.span));
        // Short pieces may be alike.
        let mut found = there.iter().filter(allowed);
        let first = found.next()?;
        let all = || [first].into_iter().chain(found.clone());
        let best = all().find(is_known);
        let best = best.or_else(|| all().find(|part| !self.has_seen(part)));
        let part = *best.unwrap_or(first);
        Some((part, part.claim == Claim::Beginning))
    }

    fn has_seen(&self, part: &Part) -> bool {
        match part.is_line {
            true => self.seen[usize::try_from(part.sequence).expect("it fits")],
            false => self.seen_odd.contains(&(part.sequence, part.span)),
        }
    }

    fn see(&mut self, part: &Part) {
        match part.is_line {
            true => self.seen[usize::try_from(part.sequence).expect("it fits")] = true,
            false => drop(self.seen_odd.insert((part.sequence, part.span))),
        }
    }

    /// The findings, and the faults in words; `place` says where the lines of a span were held.
    pub fn finish(mut self, place: impl Fn(usize) -> String) -> (Report, Option<String>) {
        for sequence in 0..self.layout.lines() {
            for part in self.layout.parts(sequence) {
                match part.claim {
                    _ if self.has_seen(&part) => {}
                    Claim::Must => self.report.missing.push(sequence),
                    _ => self.report.lost_by_nature += 1,
                }
            }
        }
        self.report.ids = self.ids.len();
        self.report.halves = self.halves.values().map(HashSet::len).sum();
        self.report.crowd = self.crowd.faults();
        let words = self.words(place);
        (self.report, (!words.is_empty()).then_some(words))
    }

    fn words(&self, place: impl Fn(usize) -> String) -> String {
        let mut words = String::new();
        let report = &self.report;
        let name = |sequence: u64| {
            let parts = self.layout.parts(sequence);
            let parts = parts.map(|part| {
                let what = match part.claim {
                    Claim::Must => "",
                    _ => ", may be missing",
                };
                format!("at {} of {}{what}", part.offset, place(part.span))
            });
            let parts: Vec<String> = parts.collect();
            format!("{sequence} ({})", parts.join("; "))
        };
        section(&mut words, "missing", &report.missing, |&line| name(line));
        section(&mut words, "doubled", &report.doubled, |&line| {
            let ids = self.ids.iter().filter(|(_, other)| other.0 == line);
            let ids: Vec<&str> = ids.map(|(id, _)| id.as_str()).collect();
            format!("{} under {}", name(line), ids.join(" and "))
        });
        section(&mut words, "ambiguous", &report.ambiguous, |(id, line)| {
            format!("{id}: {} and {:?}", name(self.ids[id].0), start(line))
        });
        let what = "under the id of another file";
        section(&mut words, what, &report.mixed, |(id, _)| {
            format!("{id}: {}", name(self.ids[id].0))
        });
        section(&mut words, "damaged", &report.damaged, |(id, line)| {
            format!("{id}: {} bytes, {:?}", line.len(), start(line))
        });
        section(&mut words, "of small files wrong", &report.crowd, |line| {
            line.clone()
        });
        words
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
    use super::super::journal::End;
    use super::super::journal::tests::{layout, start};
    use super::*;

    /// What is delivered: ids, lines and offsets.
    type Events = Vec<(String, String, u64)>;

    /// Two spans of ten lines. `change` may alter what is delivered.
    fn outcome(change: impl Fn(&mut Events)) -> (Report, Option<String>) {
        outcome_of(&layout(&[(10, 0, End::Left)], &[]), change)
    }

    fn outcome_of(layout: &Layout, change: impl Fn(&mut Events)) -> (Report, Option<String>) {
        let mut delivered = Vec::new();
        for sequence in 0..20 {
            for part in layout.parts(sequence) {
                let line = line(sequence);
                let from = match part.is_line || part.offset > 0 {
                    true => 0,
                    // The other half.
                    false => 2,
                };
                let text = match (part.is_line, from) {
                    (false, 0) => line[..2].to_owned(),
                    _ => line[from..].to_owned(),
                };
                let end = part.offset + text.len() as u64;
                let id = format!("{}-{}-{end}", part.span, part.offset);
                delivered.push((id, text, part.offset));
            }
        }
        change(&mut delivered);
        let mut checker = Checker::new(layout, &Small::default(), true);
        for (id, message, offset) in &delivered {
            checker.add(&Delivered {
                id,
                message,
                offset: *offset,
            });
        }
        checker.finish(|span| format!("file {span}"))
    }

    fn line(sequence: u64) -> String {
        let mut line = Vec::new();
        super::super::lines::Lines::new(1, 0).append(sequence, false, &mut line);
        String::from_utf8(line).expect("text")
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
        let offset = start(13) - start(10);
        let expected = format!("1 lines missing:\n  13 (at {offset} of file 1)\n");
        assert_eq!(fault, Some(expected));
    }

    #[test]
    fn a_line_under_two_ids_is_found() {
        let (report, fault) = outcome(|all| {
            let (_, line, offset) = all[4].clone();
            all.push(("other".into(), line, offset));
        });
        assert_eq!((report.doubled.as_slice(), report.ids), (&[4][..], 21));
        let fault = fault.expect("a fault");
        assert!(
            fault.contains("other") && fault.contains(&format!("0-{}", start(4))),
            "{fault}"
        );
    }

    #[test]
    fn a_line_that_was_split_is_damaged_and_missing() {
        let (report, fault) = outcome(|all| {
            let (id, line, offset) = all[6].clone();
            let middle = (line.len() / 2..).find(|at| line.is_char_boundary(*at));
            let (one, two) = line.split_at(middle.expect("a boundary"));
            all[6].1 = one.to_owned();
            all.insert(7, (id + "b", two.to_owned(), offset + one.len() as u64));
        });
        assert_eq!(
            (report.missing.as_slice(), report.damaged.len()),
            (&[6][..], 2)
        );
        assert!(fault.is_some_and(|fault| fault.contains("2 lines damaged")));
    }

    #[test]
    fn two_lines_under_one_id_are_found() {
        let (report, fault) = outcome(|all| all[5].0 = all[4].0.clone());
        assert_eq!(
            (report.ambiguous.len(), report.missing.as_slice()),
            (1, &[5][..])
        );
        assert!(fault.is_some_and(|fault| fault.contains(": 4 (at ")));
    }

    #[test]
    fn an_id_of_two_files_is_found() {
        let (report, fault) = outcome(|all| {
            for event in &mut all[10..] {
                event.0.replace_range(..1, "0");
            }
        });
        assert_eq!(report.mixed.len(), 1);
        assert!(fault.is_some_and(|fault| fault.contains("under the id of another file")));
    }

    #[test]
    fn lines_that_were_never_written_or_not_there_are_damaged() {
        let (line_3, line_20) = (line(3), line(20));
        let wrong = [
            (line_3.as_str(), start(3) + 1),
            (&line_20, start(19)),
            ("something else", 0),
            ("", 0),
        ];
        for (line, offset) in wrong {
            let (report, fault) = outcome(|all| all.push(("new".into(), line.into(), offset)));
            assert_eq!(report.damaged, [("new".to_owned(), line.to_owned())]);
            assert!(fault.is_some());
        }
    }

    /// The copy ends in line 3, the truncation two bytes behind the start of line 6.
    fn gap() -> Layout {
        layout(&[(6, 2, End::Truncated)], &[start(3) + 1])
    }

    #[test]
    fn what_lies_in_a_gap_may_come_or_be_missing_and_what_it_cuts_come_in_parts() {
        let (report, fault) = outcome_of(&gap(), |_| ());
        assert_eq!((report.ids, report.lost_by_nature, fault), (21, 0, None));
        let (report, fault) = outcome_of(&gap(), |all| drop(all.drain(3..7)));
        assert_eq!((report.ids, report.lost_by_nature, fault), (17, 4, None));
        // A beginning of the line in which the copy ends.
        let (report, fault) = outcome_of(&gap(), |all| all[3].1.truncate(1));
        assert_eq!((report.halves, fault), (2, None));
    }

    #[test]
    fn parts_must_come_once_and_under_one_id() {
        // The second part of line 6, the first line after the truncation.
        let (report, _) = outcome_of(&gap(), |all| drop(all.remove(7)));
        assert_eq!(report.missing, [6]);
        let (report, _) = outcome_of(&gap(), |all| {
            let (_, line, offset) = all[7].clone();
            all.push(("other".into(), line, offset));
        });
        assert_eq!(report.doubled, [6]);
        // A whole line of the gap, and its beginning once more.
        let (report, _) = outcome_of(&gap(), |all| {
            let (_, line, offset) = all[4].clone();
            all.push(("other".into(), line[..3].into(), offset));
        });
        assert_eq!(report.doubled, [4]);
        // In the same file it is what a kill brings back.
        let (report, fault) = outcome_of(&gap(), |all| {
            let (id, line, offset) = all[4].clone();
            let start = id.rsplit_once('-').expect("an end").0;
            all.push((format!("{start}-{}", offset + 3), line[..3].into(), offset));
        });
        assert_eq!((report.repeats, fault), (1, None));
    }

    #[test]
    fn more_halves_than_nature_makes_are_damage() {
        let (report, fault) = outcome_of(&gap(), |all| {
            all[3].1.truncate(1);
            all[4].1.truncate(3);
        });
        assert_eq!(report.damaged.len(), 1);
        assert!(fault.is_some());
    }

    #[test]
    fn what_was_written_over_is_never_cut() {
        let layout = layout(&[(2, 0, End::Left), (4, 0, End::Overwritten)], &[]);
        let (report, fault) = outcome_of(&layout, |all| drop(all.remove(2)));
        assert_eq!((report.lost_by_nature, fault), (1, None));
        let (report, _) = outcome_of(&layout, |all| all[3].1.truncate(3));
        assert_eq!((report.damaged.len(), report.missing.len()), (1, 0));
    }
}
