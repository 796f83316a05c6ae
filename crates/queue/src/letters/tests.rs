//! The store by what is handed to it and what is read back.

use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use batch::{Batch, BatchBuilder, Encoding, HostInfo, JsonWriter, Reentry, Span, Stream};
use component::{Diagnostics, Phase, Phases};
use disk::FolderStorage;
use parking_lot::Mutex;
use tempfile::TempDir;

use super::removed::Removed;
use super::request::{Action, Request};
use super::*;

/// A store in a folder of its own.
struct World {
    folder: TempDir,
    settings: LetterSettings,
    phases: Phases,
    said: Arc<Mutex<Vec<String>>>,
}

const PLENTY: LetterSettings = LetterSettings {
    max_bytes: Size(64 << 20),
    max_age: None,
    when_full: WhenLettersFull::Block,
};

impl World {
    fn new(settings: LetterSettings) -> Self {
        Self {
            folder: tempfile::tempdir().expect("a folder"),
            settings,
            phases: Phases::default(),
            said: Arc::default(),
        }
    }

    fn path(&self) -> PathBuf {
        folder(self.folder.path(), "one/two")
    }

    fn open(&self) -> Arc<DeadLetters> {
        let said = self.said.clone();
        DeadLetters::open(Options {
            folder: self.path(),
            pipeline: "one/two".into(),
            settings: self.settings,
            phases: self.phases.clone(),
            give_up_after: None,
            diagnostics: Diagnostics::new(move |text| {
                said.lock().push(text.to_owned());
            }),
        })
        .expect("it opens")
    }

    fn pages(&self) -> Vec<Page> {
        let mut pages = Vec::new();
        self.folder_of_letters()
            .each(&|_| true, &mut |page| {
                pages.push(page);
                ControlFlow::Continue(())
            })
            .expect("it is read");
        pages
    }

    fn folder_of_letters(&self) -> LetterFolder {
        LetterFolder::at(self.path(), "one/two")
    }

    /// What is known of each letter, with its event.
    fn letters(&self) -> Vec<(Letter, String)> {
        let pages = self.pages();
        let letters = pages.iter().flat_map(|page| {
            let letter = |row: &usize| (page.letter(*row), event(&page.batch, *row));
            page.rows.iter().map(letter)
        });
        letters.collect()
    }

    fn numbers(&self) -> Vec<u64> {
        let letters = self.letters().into_iter();
        letters.map(|(letter, _)| letter.number).collect()
    }
}

fn event(batch: &Batch, row: usize) -> String {
    let mut event = Vec::new();
    JsonWriter::new(batch).write(row, &mut event);
    String::from_utf8(event).expect("JSON is UTF-8")
}

/// JSON events that begin with this number.
fn batch(first: u64, count: u64) -> Batch {
    let host = Arc::new(HostInfo { name: "h".into() });
    let mut builder = BatchBuilder::new(Encoding::Json, &host, 5, false);
    builder.stream(&Arc::new(Stream::file(7, "/log")));
    for number in first..first + count {
        let text = format!(r#"{{"n":{number},"x":"{number:0200}"}}"#);
        let span = Span {
            buffer: 0,
            start: 0,
            len: text.len() as u32,
        };
        let buffer = builder.buffer(text.into());
        builder.push(Span { buffer, ..span }, number, number + 1);
    }
    builder.finish()
}

fn output() -> Arc<Reentry> {
    Arc::new(Reentry::Output { name: "es".into() })
}

fn draft(batch: Batch, rows: &[usize]) -> Draft {
    let dead = |row: &usize| Dead {
        row: *row,
        reason: format!("row {row} is bad").into(),
        tag: None,
    };
    Draft {
        batch: Arc::new(batch),
        original: None,
        at: output(),
        sequence: SEQUENCES.fetch_add(1, Relaxed),
        rows: rows.iter().map(dead).collect(),
    }
}

/// Batches of the queue that drafts are of.
static SEQUENCES: AtomicU64 = AtomicU64::new(0);

fn put(letters: &Arc<DeadLetters>, draft: Draft) -> Receiver<Result<u64, Arc<str>>> {
    let (sender, receiver) = mpsc::sync_channel(1);
    letters.put(draft, Box::new(move |result| drop(sender.send(result))));
    receiver
}

fn remove(letters: &Arc<DeadLetters>, numbers: Range<u64>) -> u64 {
    let (sender, receiver) = mpsc::sync_channel(1);
    let done = Box::new(move |result| drop(sender.send(result)));
    letters.purge(Purge::of(&[numbers]), done);
    written(&receiver)
}

fn written(receiver: &Receiver<Result<u64, Arc<str>>>) -> u64 {
    let result = receiver.recv_timeout(Duration::from_secs(20));
    result.expect("an answer").expect("it is written")
}

/// Ends a store as a run does.
fn end(letters: &DeadLetters) {
    letters.close();
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    runtime.expect("a runtime").block_on(letters.ended());
}

fn segments(path: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(path).expect("a folder");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let mut segments: Vec<PathBuf> = paths
        .filter(|path| path.extension().is_some_and(|kind| kind == "log"))
        .collect();
    segments.sort();
    segments
}

#[test]
fn letters_are_there_with_what_is_known_of_them() {
    let world = World::new(PLENTY);
    let letters = world.open();
    assert!(!world.path().exists(), "nothing is made for nothing");
    let first = draft(batch(0, 5), &[1, 3]);
    assert_eq!(written(&put(&letters, first.clone())), 2);
    let found = world.letters();
    assert_eq!(found.len(), 2);
    let (letter, event) = &found[1];
    assert_eq!(
        (letter.number, letter.role, &*letter.component),
        (1, "output", "es")
    );
    assert_eq!(letter.pipeline, "one/two");
    assert_eq!(letter.reason, "row 3 is bad");
    assert_eq!(letter.attempts, 1);
    assert_eq!(letter.id, "00000000000000000000000000000007-3-4");
    assert!(event.starts_with(r#"{"n":3,"#), "{event}");
    assert!(!event.contains("dead_letter"), "{event}");
    // A second pass, in this run and in a later one.
    assert_eq!(written(&put(&letters, first)), 0);
    end(&letters);
    let letters = world.open();
    assert_eq!(written(&put(&letters, draft(batch(0, 5), &[1, 2, 3]))), 1);
    assert_eq!(world.numbers(), [0, 1, 2]);
    // Another component has its own letter.
    let other = Draft {
        at: Arc::new(Reentry::Output { name: "b".into() }),
        ..draft(batch(0, 5), &[1])
    };
    assert_eq!(written(&put(&letters, other)), 1);
    end(&letters);
    assert_eq!(world.letters().len(), 4);
}

#[test]
fn what_is_removed_stays_gone_and_numbers_come_once() {
    let world = World::new(PLENTY);
    let letters = world.open();
    written(&put(
        &letters,
        draft(batch(0, 10), &(0..10).collect::<Vec<_>>()),
    ));
    assert_eq!(remove(&letters, 2..4), 2);
    assert_eq!(remove(&letters, 3..5), 1, "one of them was gone already");
    assert_eq!(world.numbers(), [0, 1, 5, 6, 7, 8, 9]);
    end(&letters);
    let letters = world.open();
    assert_eq!(world.numbers(), [0, 1, 5, 6, 7, 8, 9]);
    assert_eq!(remove(&letters, 0..u64::MAX), 7);
    assert!(world.numbers().is_empty());
    written(&put(&letters, draft(batch(100, 1), &[0])));
    assert_eq!(world.numbers(), [10]);
    // Its event came again, and is refused again.
    let came_again = draft(batch(0, 2), &[0]);
    assert_eq!(written(&put(&letters, came_again.clone())), 1);
    assert_eq!(written(&put(&letters, came_again)), 0);
    remove(&letters, 10..12);
    assert_eq!(written(&put(&letters, draft(batch(100, 1), &[0]))), 1);
    assert_eq!(world.numbers(), [12]);
    end(&letters);
    let letters = world.open();
    assert_eq!(written(&put(&letters, draft(batch(100, 1), &[0]))), 0);
    assert_eq!(written(&put(&letters, draft(batch(0, 2), &[0]))), 1);
    assert_eq!(world.numbers(), [12, 13]);
    remove(&letters, 13..14);
    end(&letters);
    // A new segment was begun: the old one, of which nothing was left, can go.
    let letters = world.open();
    remove(&letters, 0..1);
    assert!(segments(&world.path()).len() <= 2);
    assert_eq!(world.numbers(), [12]);
    end(&letters);
}

/// Letters of a page as they come back to the store when they are refused again.
fn again(page: &Page) -> Draft {
    let batch = page.again(&page.rows, None);
    let rows: Vec<usize> = (0..batch.len()).collect();
    draft(batch, &rows)
}

#[test]
fn what_is_refused_again_takes_the_place_of_its_letter() {
    let world = World::new(PLENTY);
    let letters = world.open();
    written(&put(&letters, draft(batch(0, 3), &[0, 1, 2])));
    let pages = world.pages();
    assert_eq!(written(&put(&letters, again(&pages[0]))), 3);
    let found = world.letters();
    let known: Vec<_> = found.iter().map(|(l, _)| (l.number, l.attempts)).collect();
    assert_eq!(known, [(3, 2), (4, 2), (5, 2)]);
    assert!(letters.take_again(0) && !letters.take_again(0));
    // A second pass of the same replay.
    assert_eq!(written(&put(&letters, again(&pages[0]))), 0);
    end(&letters);
}

#[test]
fn a_replaced_letter_counts_until_the_other_is_there() {
    let world = World::new(PLENTY);
    let letters = world.open();
    written(&put(&letters, draft(batch(0, 2), &[0, 1])));
    end(&letters);
    let condition = |new| {
        let storage = FolderStorage::open(&world.path()).expect("it is free");
        let mut removed = Removed::default();
        removed.replace(0, new);
        removed.save(&storage).expect("saved");
    };
    condition(1);
    assert_eq!(world.numbers(), [1], "the other is there");
    condition(2);
    assert_eq!(world.numbers(), [0, 1], "the other was never written");
    let letters = world.open();
    // The condition does not outlive the start: number 2 is another letter now.
    written(&put(&letters, draft(batch(5, 1), &[0])));
    assert_eq!(world.numbers(), [0, 1, 2]);
    end(&letters);
    assert_eq!(world.numbers(), [0, 1, 2]);
}

#[test]
fn originals_go_with_the_letters_of_processors() {
    let world = World::new(PLENTY);
    let letters = world.open();
    let at = Arc::new(Reentry::Processor {
        index: 2,
        name: "grok".into(),
    });
    let with_original = Draft {
        original: Some(Arc::new(batch(100, 3))),
        at,
        ..draft(batch(0, 3), &[0, 2])
    };
    assert_eq!(written(&put(&letters, with_original)), 2);
    let pages = world.pages();
    assert_eq!(pages.len(), 1);
    let page = &pages[0];
    assert_eq!(page.letter(1).position, Some(3));
    assert_eq!(page.original_number(1), Some(3));
    let originals = world.folder_of_letters().originals(page).expect("there");
    assert!(event(&originals, 1).starts_with(r#"{"n":102,"#));
    // One that fails again keeps its original.
    let again = Draft {
        at: page.batch.reentry().expect("a place").clone(),
        ..draft(page.again(&[1], None), &[0])
    };
    assert_eq!(written(&put(&letters, again)), 1);
    let pages = world.pages();
    assert_eq!(pages.len(), 2);
    assert_eq!(pages[0].rows, [0]);
    let originals = world.folder_of_letters().originals(&pages[1]);
    assert!(event(&originals.expect("there"), 0).starts_with(r#"{"n":102,"#));
    end(&letters);
}

const SMALL: LetterSettings = LetterSettings {
    max_bytes: Size(1 << 20),
    max_age: None,
    when_full: WhenLettersFull::Block,
};

/// Letters that take some room, however they are compressed.
fn large(number: u64) -> Draft {
    let host = Arc::new(HostInfo { name: "h".into() });
    let mut builder = BatchBuilder::new(Encoding::Json, &host, 5, false);
    builder.stream(&Arc::new(Stream::file(8, "/log")));
    let mut random = fastrand::Rng::with_seed(number);
    let noise: String = (0..60_000).map(|_| random.alphanumeric()).collect();
    let text = format!(r#"{{"n":{number},"noise":"{noise}"}}"#);
    let len = text.len() as u32;
    let buffer = builder.buffer(text.into());
    builder.push(
        Span {
            buffer,
            start: 0,
            len,
        },
        number,
        number + 1,
    );
    draft(builder.finish(), &[0])
}

#[test]
fn a_full_store_makes_who_writes_wait_until_there_is_room() {
    let world = World::new(SMALL);
    let letters = world.open();
    let mut number = 0;
    let waiting = loop {
        let receiver = put(&letters, large(number));
        if receiver.recv_timeout(Duration::from_millis(700)).is_err() {
            break receiver;
        }
        number += 1;
        assert!(number < 100, "it never is full");
    };
    assert!(number > 5, "{number}");
    let said = world.said.lock().join("\n");
    assert!(said.contains("`max_bytes` is reached"), "{said}");
    assert_eq!(world.letters().len() as u64, number);
    assert_eq!(remove(&letters, 0..number / 2), number / 2);
    assert_eq!(written(&waiting), 1);
    end(&letters);
    assert_eq!(world.letters().len() as u64, number - number / 2 + 1);
    let size: u64 = segments(&world.path())
        .iter()
        .map(|path| fs::metadata(path).expect("a segment").len())
        .sum();
    assert!(size <= SMALL.max_bytes.0, "{size}");
}

#[test]
fn nobody_waits_for_a_full_store_when_the_pipeline_ends() {
    let world = World::new(SMALL);
    let letters = world.open();
    let receivers: Vec<_> = (0..30).map(|number| put(&letters, large(number))).collect();
    std::thread::sleep(Duration::from_millis(500));
    world.phases.advance(Phase::Aborted);
    end(&letters);
    let results: Vec<_> = receivers
        .iter()
        .map(|receiver| receiver.recv().expect("an answer"))
        .collect();
    let is_written = |result: &&Result<u64, Arc<str>>| result.is_ok();
    assert_eq!(
        results.iter().filter(is_written).count(),
        world.letters().len()
    );
    let refused = results.iter().find_map(|result| result.clone().err());
    assert!(refused.expect("not all fit").contains("cannot be written"));
}

#[test]
fn a_full_store_drops_the_oldest_where_that_is_set() {
    let world = World::new(LetterSettings {
        when_full: WhenLettersFull::DropOldest,
        ..SMALL
    });
    let letters = world.open();
    for number in 0..40 {
        assert_eq!(written(&put(&letters, large(number))), 1);
    }
    let left = world.letters();
    let dropped = letters.counts().dropped;
    assert!(dropped > 10, "{dropped}");
    assert_eq!(left.len() as u64 + dropped, 40);
    assert_eq!(left.last().expect("some").0.number, 39, "the newest stay");
    let said = world.said.lock().join("\n");
    assert!(said.contains("dropped, the oldest first"), "{said}");
    end(&letters);
}

#[test]
fn letters_that_are_too_old_are_dropped() {
    let world = World::new(LetterSettings {
        max_age: Some(Period::from_secs(3)),
        ..PLENTY
    });
    let letters = world.open();
    written(&put(&letters, draft(batch(0, 2), &[0, 1])));
    end(&letters);
    std::thread::sleep(Duration::from_millis(1500));
    let letters = world.open();
    written(&put(&letters, draft(batch(5, 1), &[0])));
    let mut waited = 0;
    while world.letters().len() > 1 && waited < 100 {
        std::thread::sleep(Duration::from_millis(100));
        waited += 1;
    }
    assert_eq!(letters.counts().expired, 2);
    assert_eq!(world.numbers(), [2], "the other is younger");
    end(&letters);
}

#[test]
fn damage_costs_its_letters_alone() {
    let world = World::new(PLENTY);
    let letters = world.open();
    for number in 0..3 {
        written(&put(&letters, draft(batch(number * 10, 2), &[0, 1])));
    }
    end(&letters);
    let segment = &segments(&world.path())[0];
    let mut bytes = fs::read(segment).expect("a segment");
    // Groups begin at pages: the second one's payload.
    bytes[2 * 4096 + 80] ^= 1;
    fs::write(segment, &bytes).expect("written");
    let mut numbers = Vec::new();
    let unreadable = world
        .folder_of_letters()
        .each(&|_| true, &mut |page| {
            numbers.extend(page.rows.iter().map(|row| page.number(*row)));
            ControlFlow::Continue(())
        })
        .expect("it is read");
    assert_eq!(numbers, [0, 1, 4, 5]);
    assert_eq!(unreadable.damage.len(), 1, "{unreadable:?}");
    assert!(unreadable.lost.is_empty(), "{unreadable:?}");
    let letters = world.open();
    assert_eq!(written(&put(&letters, draft(batch(0, 3), &[0, 1, 2]))), 1);
    end(&letters);
    let said = world.said.lock().join("\n");
    assert!(said.contains("is damaged at offset"), "{said}");
}

#[test]
fn a_damaged_list_of_what_is_gone_loses_nothing() {
    let world = World::new(PLENTY);
    let letters = world.open();
    written(&put(&letters, draft(batch(0, 3), &[0, 1, 2])));
    remove(&letters, 0..2);
    end(&letters);
    let file = world.path().join("removed");
    let mut bytes = fs::read(&file).expect("the file");
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    fs::write(&file, bytes).expect("written");
    let letters = world.open();
    let said = world.said.lock().join("\n");
    assert!(said.contains("may reappear"), "{said}");
    assert_eq!(world.numbers(), [0, 1, 2]);
    end(&letters);
}

#[test]
fn requests_say_which_numbers_they_want() {
    let request = Request {
        action: Action::Replay,
        numbers: vec![(2, 4), (10, 11)],
        others: Vec::new(),
        cleared: None,
    };
    for (range, is_wanted) in [
        (0..2, false),
        (0..3, true),
        (3..5, true),
        (4..10, false),
        (4..11, true),
        (10..11, true),
        (11..20, false),
    ] {
        assert_eq!(request.wants(&range), is_wanted, "{range:?}");
    }
    let world = World::new(PLENTY);
    let store = world.path();
    fs::create_dir_all(&store).expect("a folder");
    assert!(request::left(&store).expect("none").is_empty());
    let id = request.leave(&store).expect("left");
    let left = request::left(&store).expect("one");
    let left = left
        .into_iter()
        .map(|(id, left)| (id, left.expect("whole")));
    assert!(left.eq([(id.clone(), request)]));
    assert_eq!(request::outcome(&store, &id), None);
    let outcome = request::Outcome {
        delivered: 3,
        ..Default::default()
    };
    request::report(&store, &id, &outcome).expect("told");
    assert_eq!(request::outcome(&store, &id), Some(outcome));
    request::finish(&store, &id).expect("done");
    request::forget(&store, &id);
    assert!(request::left(&store).expect("none").is_empty());
}

/// The events of a batch that another way brings: the same ids, and of what number says, another content.
fn other_way(count: u64) -> Batch {
    let host = Arc::new(HostInfo { name: "h".into() });
    let mut builder = BatchBuilder::new(Encoding::Json, &host, 5, false);
    builder.stream(&Arc::new(Stream::file(7, "/log")));
    for number in 0..count {
        let text = format!(r#"{{"n":{number},"way":"other"}}"#);
        let span = Span {
            buffer: builder.buffer(text.clone().into()),
            start: 0,
            len: text.len() as u32,
        };
        builder.push(span, number, number + 1);
    }
    builder.finish()
}

#[test]
fn events_of_one_id_have_a_letter_each() {
    let world = World::new(PLENTY);
    let letters = world.open();
    let all: Vec<usize> = (0..10).collect();
    // Those of two ways, in batches of their own; and one that is twice in its batch.
    assert_eq!(written(&put(&letters, draft(batch(0, 10), &all))), 10);
    assert_eq!(written(&put(&letters, draft(other_way(10), &all))), 10);
    let twice = || draft(batch(20, 2).pick(&[0, 1, 1]), &[0, 1, 2]);
    assert_eq!(written(&put(&letters, twice())), 3);
    // One that was read again is known in the same run as well.
    assert_eq!(written(&put(&letters, draft(batch(0, 10), &all))), 0);
    assert_eq!(world.letters().len(), 23);
    // After a crash they come again.
    end(&letters);
    let letters = world.open();
    assert_eq!(written(&put(&letters, draft(other_way(10), &all))), 0);
    assert_eq!(written(&put(&letters, draft(batch(0, 11), &[3, 10]))), 1);
    assert_eq!(written(&put(&letters, twice())), 0);
    end(&letters);
    assert_eq!(world.letters().len(), 24);
}

#[test]
fn a_letter_that_was_replaced_is_known_after_a_crash() {
    let world = World::new(PLENTY);
    let letters = world.open();
    written(&put(&letters, draft(batch(0, 3), &[0, 1, 2])));
    let pages = world.pages();
    assert_eq!(written(&put(&letters, again(&pages[0]))), 3);
    end(&letters);
    let letters = world.open();
    // The input reads the events again.
    assert_eq!(written(&put(&letters, draft(batch(0, 3), &[0, 1, 2]))), 0);
    let known = world.letters();
    assert!(known.len() == 3 && known.iter().all(|(letter, _)| letter.attempts == 2));
    end(&letters);
}

/// Fills a store that blocks; the letter for which there was no room.
fn fill(letters: &Arc<DeadLetters>) -> (u64, Receiver<Result<u64, Arc<str>>>) {
    for number in 0..100 {
        let receiver = put(letters, large(number));
        if receiver.recv_timeout(Duration::from_millis(700)).is_err() {
            return (number, receiver);
        }
    }
    panic!("it never is full");
}

fn settle(letters: &Arc<DeadLetters>, number: u64) {
    let (sender, receiver) = mpsc::sync_channel(1);
    let done = Box::new(move |result| drop(sender.send(result)));
    letters.settle(std::iter::once(number..number + 1).collect(), done);
    written(&receiver);
}

#[test]
fn what_is_refused_again_by_a_full_store_waits_for_nobody() {
    let world = World::new(SMALL);
    let letters = world.open();
    let (count, waiting) = fill(&letters);
    for round in 0..3 {
        // Every second one first, so that no segment becomes free for long.
        let pages = world.pages();
        let halves = pages
            .iter()
            .step_by(2)
            .chain(pages.iter().skip(1).step_by(2));
        for page in halves {
            assert_eq!(written(&put(&letters, again(page))), 1, "round {round}");
            let number = page.number(0);
            assert!(letters.take_again(number));
            settle(&letters, number);
        }
        let left = world.letters();
        // The one that waits may have found room.
        let all = count..=count + 1;
        assert!(all.contains(&(left.len() as u64)), "round {round}");
        let ids: std::collections::BTreeSet<_> =
            left.iter().map(|(letter, _)| &letter.id).collect();
        assert_eq!(ids.len(), left.len());
        let size: u64 = segments(&world.path())
            .iter()
            .map(|path| fs::metadata(path).expect("a segment").len())
            .sum();
        assert!(size <= SMALL.max_bytes.0, "{size}");
    }
    assert!(
        world
            .letters()
            .iter()
            .any(|(letter, _)| letter.attempts > 1)
    );
    remove(&letters, 0..u64::MAX);
    assert_eq!(written(&waiting), 1);
    end(&letters);
}

#[test]
fn what_is_refused_again_is_not_dropped() {
    let world = World::new(LetterSettings {
        when_full: WhenLettersFull::DropOldest,
        ..SMALL
    });
    let letters = world.open();
    for number in 0..30 {
        written(&put(&letters, large(number)));
    }
    let dropped = letters.counts().dropped;
    let before = world.letters().len();
    assert_eq!(before as u64 + dropped, 30);
    for page in world.pages() {
        assert_eq!(written(&put(&letters, again(&page))), 1);
    }
    assert_eq!(world.letters().len(), before);
    assert_eq!(letters.counts().dropped, dropped);
    end(&letters);
}

/// What `spoil` does to the only segment is told by the next start and to who reads.
fn is_told(spoil: impl Fn(&Path), lost: Option<Range<u64>>, parts: usize) {
    let lost: Vec<Range<u64>> = lost.into_iter().collect();
    let world = World::new(PLENTY);
    let letters = world.open();
    written(&put(&letters, draft(batch(0, 4), &[0, 1, 2, 3])));
    written(&put(&letters, draft(batch(10, 2), &[0, 1])));
    end(&letters);
    let segment = &segments(&world.path())[0];
    spoil(segment);
    let look = || {
        let folder = world.folder_of_letters();
        let unreadable = folder.each(&|_| true, &mut |_| ControlFlow::Continue(()));
        let unreadable = unreadable.expect("it is read");
        (unreadable.lost.clone(), unreadable.damage.len(), unreadable)
    };
    let (found, damage, _) = look();
    assert_eq!((&found, damage), (&lost, parts), "before the start");
    let letters = world.open();
    let said = world.said.lock().join("\n");
    let is_said = said.contains("damaged at offset") || said.contains("cannot be found");
    assert!(is_said, "{said}");
    assert_eq!(parts > 0, world.path().join("quarantine").exists());
    // Numbers of lost letters are not given again.
    written(&put(&letters, draft(batch(20, 1), &[0])));
    assert_eq!(world.numbers().last(), Some(&6));
    let (found, damage, unreadable) = look();
    assert_eq!((&found, damage), (&lost, parts), "after the start");
    // A person purges all of it.
    let purge = Purge {
        letters: std::iter::once(0..7).collect(),
        others: std::iter::once(0..unreadable.end).collect(),
        cleared: Some(unreadable.parts()),
    };
    let (sender, receiver) = mpsc::sync_channel(1);
    letters.purge(purge, Box::new(move |result| drop(sender.send(result))));
    written(&receiver);
    assert!(look().2.is_empty(), "{:?}", look().2);
    end(&letters);
    world.said.lock().clear();
    end(&world.open());
    assert_eq!(world.said.lock().join("\n"), "");
    assert!(look().2.is_empty());
}

fn change(segment: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = fs::read(segment).expect("a segment");
    change(&mut bytes);
    fs::write(segment, bytes).expect("written");
}

#[test]
fn damage_at_the_end_is_told() {
    let flip = |segment: &Path| change(segment, |bytes| bytes[2 * 4096 + 80] ^= 1);
    is_told(flip, None, 1);
    let zeros = |segment: &Path| change(segment, |bytes| bytes[2 * 4096..].fill(0));
    is_told(zeros, Some(4..6), 0);
    let cut = |segment: &Path| change(segment, |bytes| bytes.truncate(2 * 4096));
    is_told(cut, Some(4..6), 0);
    is_told(
        |segment| fs::remove_file(segment).expect("removed"),
        Some(0..6),
        0,
    );
}
