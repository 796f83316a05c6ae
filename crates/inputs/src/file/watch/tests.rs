use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use rustix::time::{ClockId, clock_gettime};
use tempfile::TempDir;

use super::*;

/// Nothing here takes so long unless it never comes.
const DEADLINE: Duration = Duration::from_secs(20);

/// A folder, a watch of patterns in it, and what the watch told.
struct Bench {
    folder: TempDir,
    watch: Watch,
    files: Vec<String>,
    written: BTreeSet<String>,
    problems: Vec<String>,
    unmatched: Vec<usize>,
    scans: usize,
}

impl Bench {
    fn new(folder: TempDir, patterns: &[&str], mode: WatchMode) -> Self {
        Self::with(folder, patterns, |settings| settings.mode = mode)
    }

    fn with(folder: TempDir, patterns: &[&str], change: impl FnOnce(&mut WatchSettings)) -> Self {
        let pattern = |text: &&str| {
            let text = folder.path().join(text);
            Pattern::parse(text.to_str().expect("UTF-8")).expect("a pattern")
        };
        let patterns = patterns.iter().map(pattern).collect();
        let mut settings = WatchSettings {
            patterns,
            exclusion: Exclusion::none(),
            follow_links: false,
            scan_interval: Duration::from_millis(20),
            mode: WatchMode::Auto,
        };
        change(&mut settings);
        Self {
            folder,
            watch: Watch::new(settings),
            files: Vec::new(),
            written: BTreeSet::new(),
            problems: Vec::new(),
            unmatched: Vec::new(),
            scans: 0,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn name(&self, path: &Path) -> String {
        let name = path.strip_prefix(self.folder.path()).expect("below");
        name.to_str().expect("UTF-8").to_owned()
    }

    /// Waits once; false when nothing changed.
    fn step(&mut self, timeout: Duration) -> bool {
        match self.watch.wait(timeout) {
            None => return false,
            Some(Change::Scan {
                files,
                problems,
                unmatched,
            }) => {
                self.files = files.iter().map(|file| self.name(&file.path)).collect();
                self.problems.extend(problems);
                self.unmatched = unmatched;
                self.scans += 1;
            }
            Some(Change::Written(paths)) => {
                for path in paths {
                    let name = self.name(&path);
                    assert!(self.files.contains(&name), "{name} is a known file");
                    self.written.insert(name);
                }
            }
        }
        true
    }

    fn until(&mut self, what: &str, is_met: impl Fn(&Self) -> bool) {
        let deadline = Instant::now() + DEADLINE;
        while !is_met(self) {
            assert!(
                Instant::now() < deadline,
                "{what}: files {:?}, written {:?}",
                self.files,
                self.written
            );
            self.step(Duration::from_millis(100));
        }
    }

    /// Takes what was still on the way.
    fn settle(&mut self) {
        while self.step(Duration::from_millis(150)) {}
        self.written.clear();
    }
}

fn folder(files: &[&str]) -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    for name in files {
        put(folder.path(), name);
    }
    folder
}

fn put(folder: &Path, name: &str) {
    let path = folder.join(name);
    fs::create_dir_all(path.parent().expect("a folder")).expect("made");
    fs::write(path, "first\n").expect("written");
}

fn append(folder: &Path, name: &str) {
    let mut file = OpenOptions::new()
        .append(true)
        .open(folder.join(name))
        .expect("opened");
    file.write_all(b"more\n").expect("written");
}

fn rename(folder: &Path, from: &str, to: &str) {
    fs::rename(folder.join(from), folder.join(to)).expect("renamed");
}

/// What is found in the end, and what was told to be written.
enum Told {
    Files(&'static [&'static str]),
    Written(&'static str),
    Scan,
}
use Told::{Files, Scan as Scanned, Written};

struct Case {
    name: &'static str,
    files: &'static [&'static str],
    patterns: &'static [&'static str],
    before: &'static [&'static str],
    act: fn(&Path),
    told: Told,
}

const CASES: &[Case] = &[
    Case {
        name: "a new file",
        files: &["a.log", "b.txt"],
        patterns: &["*.log"],
        before: &["a.log"],
        act: |at| put(at, "b.log"),
        told: Files(&["a.log", "b.log"]),
    },
    Case {
        name: "appended to",
        files: &["a.log", "b.log"],
        patterns: &["*.log"],
        before: &["a.log", "b.log"],
        act: |at| append(at, "b.log"),
        told: Written("b.log"),
    },
    Case {
        name: "truncated",
        files: &["a.log"],
        patterns: &["a.log"],
        before: &["a.log"],
        act: |at| drop(File::create(at.join("a.log")).expect("truncated")),
        told: Written("a.log"),
    },
    Case {
        name: "renamed to a name that matches",
        files: &["a.log"],
        patterns: &["a.log*"],
        before: &["a.log"],
        act: |at| rename(at, "a.log", "a.log.1"),
        told: Files(&["a.log.1"]),
    },
    Case {
        name: "renamed to a name that does not",
        files: &["a.log"],
        patterns: &["*.log"],
        before: &["a.log"],
        act: |at| rename(at, "a.log", "a.old"),
        told: Files(&[]),
    },
    Case {
        name: "deleted",
        files: &["a.log", "b.log"],
        patterns: &["*.log"],
        before: &["a.log", "b.log"],
        act: |at| fs::remove_file(at.join("a.log")).expect("removed"),
        told: Files(&["b.log"]),
    },
    Case {
        name: "replaced under its name",
        files: &["a.log", "new"],
        patterns: &["a.log"],
        before: &["a.log"],
        act: |at| rename(at, "new", "a.log"),
        told: Scanned,
    },
    Case {
        name: "a new hard link",
        files: &["a.log"],
        patterns: &["a*"],
        before: &["a.log"],
        act: |at| fs::hard_link(at.join("a.log"), at.join("a2")).expect("linked"),
        told: Files(&["a.log", "a2"]),
    },
    Case {
        name: "a new folder below `**`",
        files: &["x/a.log"],
        patterns: &["**/*.log"],
        before: &["x/a.log"],
        act: |at| put(at, "x/y/z/b.log"),
        told: Files(&["x/a.log", "x/y/z/b.log"]),
    },
    Case {
        name: "a folder that is moved to below `**`",
        files: &["in/a.log", "out/x/b.log"],
        patterns: &["in/**"],
        before: &["in/a.log"],
        act: |at| rename(at, "out/x", "in/x"),
        told: Files(&["in/a.log", "in/x/b.log"]),
    },
    Case {
        name: "a folder that is deleted",
        files: &["x/a.log", "y/b.log"],
        patterns: &["*/*.log"],
        before: &["x/a.log", "y/b.log"],
        act: |at| fs::remove_dir_all(at.join("x")).expect("removed"),
        told: Files(&["y/b.log"]),
    },
    Case {
        name: "folders that appear later",
        files: &[],
        patterns: &["x/y/*/a.log"],
        before: &[],
        act: |at| put(at, "x/y/z/a.log"),
        told: Files(&["x/y/z/a.log"]),
    },
    Case {
        name: "a folder that is replaced",
        files: &["x/a.log", "new/b.log"],
        patterns: &["x/*.log"],
        before: &["x/a.log"],
        act: |at| {
            rename(at, "x", "old");
            rename(at, "new", "x");
        },
        told: Files(&["x/b.log"]),
    },
    Case {
        name: "a file that is named as it is written",
        files: &["x1"],
        patterns: &["x[1]"],
        before: &["x1"],
        act: |at| put(at, "x[1]"),
        told: Files(&["x[1]"]),
    },
];

#[test]
fn both_modes_tell_the_same() {
    for case in CASES {
        for mode in [WatchMode::Inotify, WatchMode::Auto, WatchMode::Poll] {
            let what = format!("{} ({mode:?})", case.name);
            let mut bench = Bench::new(folder(case.files), case.patterns, mode);
            assert!(bench.step(Duration::ZERO), "{what}: a scan at once");
            assert_eq!(bench.files, case.before, "{what}");
            bench.settle();
            let scans = bench.scans;
            (case.act)(bench.folder.path());
            match case.told {
                Files(files) => bench.until(&what, |bench| bench.files == files),
                Written(name) => {
                    bench.until(&what, |bench| bench.written.contains(name));
                    assert_eq!((bench.scans, bench.written.len()), (scans, 1), "{what}");
                }
                Scanned => bench.until(&what, |bench| bench.scans > scans),
            }
            // What was found is watched.
            bench.settle();
            if let Some(name) = bench.files.first().cloned() {
                append(bench.folder.path(), &name);
                bench.until(&what, |bench| bench.written.contains(&name));
            }
            assert_eq!(bench.problems, [""; 0], "{what}");
            assert_eq!(bench.watch.take_warnings(), [""; 0], "{what}");
        }
    }
}

#[test]
fn links() {
    for mode in [WatchMode::Inotify, WatchMode::Poll] {
        for follow_links in [true, false] {
            let folder = folder(&["in/a.log", "far/1.log", "far/deep/d.log"]);
            symlink("../far/hop", folder.path().join("in/l.log")).expect("linked");
            symlink("../far2/1.log", folder.path().join("far/hop")).expect("linked");
            symlink("../../far/deep", folder.path().join("in/sub")).expect("leads nowhere");
            fs::create_dir(folder.path().join("in/x")).expect("made");
            symlink("../../far/deep", folder.path().join("in/x/sub")).expect("linked");
            symlink("..", folder.path().join("in/x/loop")).expect("linked");
            let mut bench = Bench::with(folder, &["in/**/*.log"], |settings| {
                settings.mode = mode;
                settings.follow_links = follow_links;
            });
            let what = format!("{mode:?}, links followed: {follow_links}");
            bench.step(Duration::ZERO);
            if !follow_links {
                assert_eq!(bench.files, ["in/a.log"], "{what}");
                continue;
            }
            assert_eq!(bench.files, ["in/a.log", "in/x/sub/d.log"], "{what}");
            bench.settle();
            append(bench.folder.path(), "far/deep/d.log");
            let linked = "in/x/sub/d.log".to_owned();
            bench.until(&what, |bench| bench.written.contains(&linked));

            // The end of a chain of links appears, with its folder; then it is written to, rotated, and made again.
            let linked = "in/l.log".to_owned();
            put(bench.folder.path(), "far2/1.log");
            bench.until(&what, |bench| bench.files.contains(&linked));
            bench.settle();
            append(bench.folder.path(), "far2/1.log");
            bench.until(&what, |bench| bench.written.contains(&linked));
            rename(bench.folder.path(), "far2/1.log", "far2/2.log");
            bench.until(&what, |bench| !bench.files.contains(&linked));
            put(bench.folder.path(), "far2/1.log");
            bench.until(&what, |bench| bench.files.contains(&linked));
            // A link on the way is set anew.
            put(bench.folder.path(), "far3");
            fs::remove_file(bench.path("far/hop")).expect("removed");
            symlink("../far3", bench.path("far/hop")).expect("linked");
            bench.settle();
            append(bench.folder.path(), "far3");
            bench.until(&what, |bench| bench.written.contains(&linked));
        }
    }
}

#[test]
fn lost_events_are_replaced_by_a_scan() {
    let mut bench = Bench::new(folder(&["a.log", "b.log"]), &["*.log"], WatchMode::Inotify);
    bench.settle();
    let scans = bench.scans;
    let limit = fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").expect("Linux");
    let limit: usize = limit.trim().parse().expect("a number");
    let open = |name| File::create(bench.path(name)).expect("opened");
    let (mut a, mut b) = (open("a.log"), open("b.log"));
    // Events about the same file are merged only if they follow each other.
    for _ in 0..=limit / 2 {
        a.write_all(b"x").expect("written");
        b.write_all(b"x").expect("written");
    }
    bench.until("an overflow", |bench| bench.scans > scans);
}

#[test]
fn a_scan_comes_without_events_too() {
    let mut bench = Bench::new(folder(&["a.log"]), &["*.log"], WatchMode::Inotify);
    bench.watch.schedule.rescan = Duration::from_millis(50);
    bench.until("scans", |bench| bench.scans > 3);
    let mut bench = Bench::new(folder(&["a.log"]), &["*.log"], WatchMode::Poll);
    bench.settle();
    assert_eq!(bench.scans, 1, "polling tells only of changes");
}

#[test]
fn names_that_no_pattern_has_cost_no_scan() {
    let mut bench = Bench::with(folder(&["a.log"]), &["*.log", "sub/x.log"], |settings| {
        settings.exclusion = Exclusion::new(&["*.tmp.log".to_owned()]).expect("patterns");
    });
    bench.settle();
    for name in ["b.txt", "c.tmp.log", ".hidden.log", "other/x.log"] {
        put(bench.folder.path(), name);
        append(bench.folder.path(), name);
    }
    bench.settle();
    assert_eq!(bench.scans, 1);
}

#[test]
fn a_wake_ends_a_wait() {
    for mode in [WatchMode::Inotify, WatchMode::Poll] {
        let mut bench = Bench::new(folder(&["a.log"]), &["*.log"], mode);
        bench.settle();
        let waker = bench.watch.waker();
        waker.wake();
        waker.wake();
        assert_eq!(
            bench.watch.wait(DEADLINE),
            None,
            "one that was woken before"
        );
        let thread = thread::spawn(move || waker.wake());
        let start = Instant::now();
        assert_eq!(bench.watch.wait(DEADLINE), None);
        assert!(start.elapsed() < DEADLINE);
        thread.join().expect("no panic");
    }
}

#[test]
fn without_watches_everything_is_polled() {
    let mut bench = Bench::new(folder(&["a.log"]), &["*.log"], WatchMode::Auto);
    bench.watch.notify = None;
    bench.watch.warn(refusal(None, rustix::io::Errno::MFILE));
    bench
        .watch
        .warn(refusal(Some("/x"), rustix::io::Errno::NOSPC));
    bench.settle();
    put(bench.folder.path(), "b.log");
    bench.until("polled", |bench| bench.files.len() == 2);
    assert_eq!(
        bench.watch.take_warnings(),
        [
            "all directories are polled: fs.inotify.max_user_instances or the limit on open files is exhausted".to_owned(),
            refusal(Some("/x"), rustix::io::Errno::NOSPC),
        ]
    );
    assert_eq!(bench.watch.take_warnings(), [""; 0]);
}

#[test]
fn a_new_file_is_found_soon_under_load() {
    let mut bench = Bench::new(folder(&["a.log"]), &["*.log"], WatchMode::Inotify);
    bench.settle();
    let is_over = Arc::new(AtomicBool::new(false));
    let (at, over) = (bench.folder.path().to_owned(), is_over.clone());
    let load = thread::spawn(move || {
        for round in 0.. {
            put(&at, "a.log");
            fs::write(at.join("x.log"), "x").expect("written");
            fs::remove_file(at.join("x.log")).expect("removed");
            if round % 64 == 0 && over.load(Ordering::Relaxed) {
                return;
            }
        }
    });
    for round in 0..5 {
        let name = format!("new{round}.log");
        let start = Instant::now();
        put(bench.folder.path(), &name);
        bench.until(&name, |bench| bench.files.contains(&name));
        assert!(
            start.elapsed() < Duration::from_secs(1),
            "{:?}",
            start.elapsed()
        );
    }
    is_over.store(true, Ordering::Relaxed);
    load.join().expect("no panic");
}

#[test]
fn what_vanishes_during_a_scan_is_left_out() {
    let mut bench = Bench::new(folder(&["a.log"]), &["**/*.log"], WatchMode::Poll);
    let is_over = Arc::new(AtomicBool::new(false));
    let (at, over) = (bench.folder.path().to_owned(), is_over.clone());
    let churn = thread::spawn(move || {
        while !over.load(Ordering::Relaxed) {
            for index in 0..50 {
                put(&at, &format!("x/y{index}/{index}.log"));
            }
            fs::remove_dir_all(at.join("x")).expect("removed");
        }
    });
    bench.until("scans while files vanish", |bench| bench.scans >= 50);
    is_over.store(true, Ordering::Relaxed);
    churn.join().expect("no panic");
    assert_eq!(bench.problems, [""; 0]);
    bench.settle();
    bench.until("the rest", |bench| bench.files == ["a.log"]);
}

#[test]
fn scans_tell_what_is_wrong_once() {
    let folder = folder(&["a.log", "sub/b.log"]);
    put(folder.path(), "out.log");
    let patterns = ["a.log", "sub", "no.log", "*.txt", "out.log"];
    let mut bench = Bench::with(folder, &patterns, |settings| {
        settings.mode = WatchMode::Poll;
        settings.exclusion = Exclusion::new(&["out.log".to_owned()]).expect("a pattern");
    });
    bench.step(Duration::ZERO);
    assert_eq!(bench.unmatched, [2, 3]);
    put(bench.folder.path(), "no.log");
    bench.until("found", |bench| {
        bench.files == ["a.log", "sub/b.log", "no.log"]
    });
    assert_eq!(bench.problems, [""; 0]);
    assert_eq!(bench.unmatched, [3]);
}

#[test]
fn a_folder_stands_for_the_files_in_it() {
    for mode in [WatchMode::Inotify, WatchMode::Poll] {
        let folder = folder(&["sub/b.log", "sub/.hidden", "sub/deeper/c.log", "[x]/d.log"]);
        let mut bench = Bench::with(folder, &["sub/", "later", "[x]", "sub/b.log"], |settings| {
            settings.mode = mode;
            settings.scan_interval = Duration::from_millis(50);
        });
        bench.until("what is there", |bench| {
            bench.files == ["sub/b.log", "[x]/d.log"]
        });
        assert_eq!(bench.unmatched, [1]);
        put(bench.folder.path(), "sub/a.log");
        bench.until("a new file", |bench| {
            bench.files.contains(&"sub/a.log".to_owned())
        });
        put(bench.folder.path(), "later/e.log");
        bench.until("a new folder", |bench| {
            bench.files.contains(&"later/e.log".to_owned())
        });
        append(bench.folder.path(), "later/e.log");
        bench.until("a write", |bench| bench.written.contains("later/e.log"));
        // The name may stand for a file first and for a folder later.
        fs::remove_dir_all(bench.folder.path().join("later")).expect("removed");
        bench.until("gone", |bench| {
            !bench.files.contains(&"later/e.log".to_owned())
        });
        put(bench.folder.path(), "later");
        bench.until("a file", |bench| bench.files.contains(&"later".to_owned()));
        assert_eq!(bench.problems, [""; 0]);
    }
}

/// The CPU time of this thread.
fn cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(time).expect("not negative")
}

/// Far above what it costs, and far below what looking without end costs: this is no measurement.
#[test]
fn idle_files_cost_next_to_nothing() {
    for (mode, waits, share_max) in [(WatchMode::Inotify, 10, 0.02), (WatchMode::Poll, 10, 0.5)] {
        let names: Vec<_> = (0..1000).map(|index| format!("{index}.log")).collect();
        let names: Vec<_> = names.iter().map(String::as_str).collect();
        let mut bench = Bench::with(folder(&names), &["*.log"], |settings| {
            settings.mode = mode;
            // Ten times as often as by default.
            settings.scan_interval = Duration::from_millis(100);
        });
        bench.settle();
        let (start, used) = (Instant::now(), cpu());
        for _ in 0..waits {
            assert_eq!(bench.watch.wait(Duration::from_millis(100)), None);
        }
        let share = (cpu() - used).as_secs_f64() / start.elapsed().as_secs_f64();
        assert!(share < share_max, "{mode:?}: {:.2} %", share * 100.0);
    }
}

#[test]
fn a_writer_at_full_speed_wakes_seldom() {
    // One file; then two in turn, whose events the kernel does not merge and of which one does not matter.
    for names in [["a.log", "a.log"], ["a.log", "c.txt"]] {
        let mut bench = Bench::new(folder(&["a.log", "c.txt"]), &["*.log"], WatchMode::Inotify);
        bench.settle();
        let is_over = Arc::new(AtomicBool::new(false));
        let files: Vec<_> = names
            .iter()
            .map(|name| {
                OpenOptions::new()
                    .append(true)
                    .open(bench.path(name))
                    .expect("opened")
            })
            .collect();
        let over = is_over.clone();
        let writer = thread::spawn(move || {
            while !over.load(Ordering::Relaxed) {
                for mut file in &files {
                    file.write_all(b"x\n").expect("written");
                }
            }
        });
        let start = Instant::now();
        let mut told = 0;
        while start.elapsed() < Duration::from_secs(1) {
            told += usize::from(bench.step(Duration::from_millis(100)));
        }
        is_over.store(true, Ordering::Relaxed);
        writer.join().expect("no panic");
        assert!((1..=70).contains(&told), "{told} times told in a second");
        assert!(bench.written.contains("a.log"));
    }
}
