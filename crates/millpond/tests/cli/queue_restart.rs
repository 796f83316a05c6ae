//! Runs with a disk queue one after the other: what stays, what a changed configuration does to it, and limits.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::program::millpond;
use crate::queue_place::{QueuePlace, SMALL, with_backlog};
use crate::running::{append, eventually, numbered};

#[test]
fn a_backlog_stays_for_the_next_run_which_delivers_it_once() {
    let (mut place, mut written) = with_backlog(SMALL, 5000);
    // The log may go: the queue has everything.
    std::fs::remove_file(place.place.log("app")).expect("removed");
    // One output after the other, and further events between.
    place.one.up();
    append(&place.place.log("other"), &numbered("other", 0..10));
    written.push_str(&numbered("other", 0..10));
    let mut service = place.follow();
    service.until("the first output", || place.one.count() == 5010);
    let said = service.stop();
    assert!(
        said.contains("5,010 events remain in the disk queue"),
        "{said}"
    );
    place.one.expect_once(&written);
    assert_eq!(place.two.count(), 0);
    place.two.up();
    let ended = place.deliver().expect(0);
    assert!(!ended.err.contains("stay"), "{}", ended.err);
    place.one.expect_once(&written);
    place.two.expect_once(&written);
    // Everything has passed: at most the segment in use is left.
    place.deliver().expect(0);
    assert!(place.segments().len() <= 1, "{:?}", place.segments());
}

#[test]
fn a_killed_run_leaves_its_queue_and_its_lock() {
    let (mut place, mut written) = with_backlog(SMALL, 100);
    let mut service = place.follow();
    written.push_str(&place.write(100..200));
    place.until_acknowledged(&mut service, 200);
    // A second process with another data directory and the same queue.
    let other = QueuePlace::elsewhere(place.folder.clone(), SMALL);
    let refused = other.deliver().expect(2);
    let said = format!("process {}", service.id());
    assert!(
        refused.err.contains(&said) && refused.err.contains(&place.folder),
        "{}",
        refused.err
    );
    assert_eq!(refused.err.lines().count(), 1, "{}", refused.err);
    service.kill();
    // The lock of a process that is gone holds nobody up.
    place.one.up();
    place.two.up();
    place.deliver().expect(0);
    place.one.expect_once(&written);
    place.two.expect_once(&written);
}

#[test]
fn with_drain_a_stop_waits_for_the_outputs() {
    let mut place = QueuePlace::new(&format!("{SMALL}, drain: true"));
    place.one.down();
    place.two.down();
    let mut written = place.write(0..3000);
    let mut service = place.follow();
    place.until_acknowledged(&mut service, 3000);
    let stopping = std::thread::spawn(move || service.stop());
    // The stop must not end before the outputs are there; then it must.
    std::thread::sleep(Duration::from_millis(500));
    assert!(!stopping.is_finished(), "it did not wait");
    place.one.up();
    place.two.up();
    let said = stopping.join().expect("it stops");
    assert!(!said.contains("remain in the disk queue"), "{said}");
    place.one.expect_once(&written);
    place.two.expect_once(&written);
    written.push_str(&place.write(3000..3001));
    place.deliver().expect(0);
    place.one.expect_once(&written);
}

#[test]
fn changed_processors_apply_to_what_is_queued() {
    let (mut place, _) = with_backlog(SMALL, 200);
    place.one.up();
    place.two.up();
    place.processors = "      - set: { values: { added: later } }
      - drop: { if: 'message == \"app line 7\"' }";
    place.deliver().expect(0);
    let content = place.one.content();
    assert_eq!(content.lines().count(), 199);
    assert!(
        content
            .lines()
            .all(|line| line.contains("\"added\":\"later\""))
    );
}

#[test]
fn a_new_output_begins_with_the_oldest_or_now() {
    for (setting, expected) in [("oldest", 0..400), ("now", 300..400)] {
        let settings = format!("{SMALL}, new_output: {setting}");
        let (mut place, _) = with_backlog(&settings, 300);
        place.outputs = vec!["one", "two", "three"];
        place.write(300..400);
        place.one.up();
        place.two.up();
        place.deliver().expect(0);
        let three = crate::queue_outlet::Outlet::new(place.place.folder.path("three.ndjson"));
        three.expect_once(&numbered("app", expected));
        place.one.expect_once(&numbered("app", 0..400));
    }
}

#[test]
fn a_removed_output_goes_on_where_it_was_when_it_comes_back() {
    let (mut place, mut written) = with_backlog(SMALL, 300);
    place.one.up();
    place.outputs = vec!["one"];
    written.push_str(&place.write(300..400));
    let ended = place.deliver().expect(0);
    assert!(
        ended.err.contains("output two is no longer configured"),
        "{}",
        ended.err
    );
    place.one.expect_once(&written);
    // Said once.
    let again = place.deliver().expect(0);
    assert!(
        again.err.contains("nothing new") && again.err.lines().count() == 1,
        "{}",
        again.err
    );
    place.two.up();
    place.outputs = vec!["one", "two"];
    place.deliver().expect(0);
    place.two.expect_once(&written);
    place.one.expect_once(&written);
}

#[test]
fn a_removed_output_expires() {
    let (mut place, written) = with_backlog(&format!("{SMALL}, orphan_retention: 0s"), 20_000);
    let before = place.segments().len();
    assert!(before > 2, "{before}");
    place.one.up();
    place.outputs = vec!["one"];
    let mut service = place.follow();
    service.until_said("the events that output two had not acknowledged are dropped");
    service.until("the room", || place.segments().len() <= 2);
    service.stop();
    place.one.expect_once(&written);
    // It comes back as a new one: what is left is its to take, which is nothing that was dropped.
    place.two.up();
    place.outputs = vec!["one", "two"];
    place.write(20_000..20_010);
    place.deliver().expect(0);
    assert!(place.two.count() < 20_000);
    place
        .one
        .expect_once(&(written + &numbered("app", 20_000..20_010)));
}

/// The dropped events that the table of metrics tells of.
fn told(err: &str, what: &str) -> usize {
    let at = err.rfind(what).unwrap_or_else(|| panic!("{what}: {err}"));
    let digits = |c: &char| c.is_ascii_digit() || *c == ',';
    let after: String = err[at + what.len()..]
        .chars()
        .skip_while(|c| !c.is_ascii_digit())
        .take_while(digits)
        .collect();
    after.replace(',', "").parse().expect("a number")
}

#[test]
fn a_full_queue_drops_what_it_is_told_to() {
    for (when_full, what) in [
        ("drop_newest", "dropped_newest"),
        ("drop_oldest", "dropped_oldest"),
    ] {
        let settings = format!("{SMALL}, max_bytes: 1MiB, when_full: {when_full}");
        let mut place = QueuePlace::new(&settings);
        place.one.down();
        let all = 200_000;
        let written = place.write(0..all);
        let mut service = crate::running::Service::start(
            &place.place.folder,
            &["run", &place.yaml(true), "--metrics"],
        );
        // Everything counts as done: what is not in the queue was dropped.
        service.until("all to be done with", || place.done() >= all);
        // About its size: a page or two beyond are no matter here.
        service.until("a queue within its size", || {
            place.size() <= (1 << 20) + (64 << 10)
        });
        place.one.up();
        service.until("an output without backlog", || {
            let content = place.one.content();
            match when_full {
                "drop_oldest" => content.contains(&format!("app line {}\"", all - 1)),
                _ => content.contains("app line 100\""),
            }
        });
        service.until("a marker", || {
            place.write(all..all + 1);
            place.one.content().contains(&format!("app line {all}\""))
        });
        let said = service.stop();
        let dropped = told(&said, what);
        let (delivered, repeats) = place.one.delivered();
        let written: BTreeSet<&str> = written.lines().collect();
        let lines = delivered.values();
        let of_all = lines.filter(|line| written.contains(line.as_str())).count();
        assert_eq!(repeats, 0);
        assert!(
            dropped > 0 && of_all < all,
            "{when_full}: {dropped} of {all}"
        );
        assert!(
            dropped + of_all >= all,
            "{when_full}: {dropped} dropped, {of_all} delivered: {said}"
        );
    }
}

#[test]
fn a_full_queue_makes_files_wait() {
    for limit in ["max_bytes: 1MiB", "max_events: 60000"] {
        let mut place = QueuePlace::new(&format!("{SMALL}, {limit}"));
        place.one.down();
        place.two.down();
        let written = place.write(0..120_000);
        let mut service = place.follow();
        place.until_acknowledged(&mut service, 10_000);
        let mut last = 0;
        eventually("the queue to be full", || {
            let now = place.acknowledged();
            std::thread::sleep(Duration::from_millis(300));
            let rests = now == last;
            last = now;
            rests
        });
        assert!(last < 120_000, "{limit}: {last}");
        // About its size: a page or two beyond are no matter here.
        service.until("a queue within its size", || {
            place.size() <= (2 << 20) + (64 << 10)
        });
        place.one.up();
        place.two.up();
        service.until("everything", || place.two.count() == 120_000);
        service.until("everything", || place.one.count() == 120_000);
        service.stop();
        place.one.expect_once(&written);
        place.two.expect_once(&written);
    }
}

#[test]
fn what_is_too_old_is_dropped_and_said() {
    let (mut place, _) = with_backlog(&format!("{SMALL}, max_age: 1s"), 200);
    // Older than it may become, whatever the clock's grain.
    std::thread::sleep(Duration::from_millis(1500));
    place.one.up();
    place.two.up();
    let new = place.write(200..300);
    let run = ["run", &place.yaml(false), "--metrics"];
    let ended = millpond(&run).expect(0);
    assert_eq!(told(&ended.err, "dropped_by_age"), 200, "{}", ended.err);
    place.one.expect_once(&new);
    place.two.expect_once(&new);
}

#[test]
fn a_queue_in_a_folder_that_cannot_be_used_is_named() {
    let place = QueuePlace::new(SMALL);
    let file = place.place.folder.write("file", "x");
    for (folder, said) in [
        (format!("{file}/queue"), "Not a directory"),
        ("/proc/millpond/queue".to_owned(), "/proc/millpond"),
    ] {
        let place = QueuePlace::elsewhere(folder.clone(), SMALL);
        place.write(0..10);
        let ended = place.deliver().expect(2);
        assert!(
            ended.err.contains(said) && ended.err.starts_with("error: "),
            "{}",
            ended.err
        );
        assert!(ended.err.contains(&folder), "{}", ended.err);
        assert_eq!(ended.err.lines().count(), 1, "{}", ended.err);
        // Nothing was read, so nothing is lost.
        assert_eq!(place.one.count(), 0);
    }
}
