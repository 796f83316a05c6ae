//! A folder of logs, a data directory, and a reader of the logs that is started, stopped and checked.
//!
//! Whatever a scenario does, each line that was written must be delivered exactly once by event id, and the ledger must
//! add up: at every look while it runs, in the registry after each run, and in sum at the end. A last run over the same
//! files, with a new registry, must find nothing left to deliver.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use batch::{Batch, Budget, FieldPath, Value};
use component::{Diagnostics, FileLedger, FileStatus, InputContext, InputError, Ledger, Stop};
use parking_lot::Mutex;
use registry::Registry;
use tempfile::TempDir;

use crate::common::{Collector, Receipts, Taken, build, host};

/// How long anything may take on a busy machine.
const DEADLINE: Duration = Duration::from_secs(40);

/// How the logs are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Followed in one run; the kernel tells of changes.
    Inotify,
    /// Followed in one run by polling.
    Poll,
    /// Followed in a new run after each step.
    Restarts,
    /// Read once, in a new run after each step.
    Once,
}

pub const ALL: &[Mode] = &[Mode::Inotify, Mode::Poll, Mode::Restarts, Mode::Once];
pub const FOLLOWED: &[Mode] = &[Mode::Inotify, Mode::Poll, Mode::Restarts];
pub const LIVE: &[Mode] = &[Mode::Inotify, Mode::Poll];
pub const SEPARATE: &[Mode] = &[Mode::Restarts, Mode::Once];

/// What is kept of an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    pub id: String,
    pub text: String,
}

fn look(batch: &Batch) -> Vec<Seen> {
    let messages = batch.column(&FieldPath::parse("message").expect("a path"));
    let seen = |row| {
        let mut id = Vec::new();
        batch.origin().write_id(row, &mut id);
        let text = match messages.value(row) {
            Value::Text(text) => String::from_utf8_lossy(text).into_owned(),
            _ => String::new(),
        };
        let id = String::from_utf8(id).expect("ids are ASCII");
        Seen { id, text }
    };
    (0..batch.len()).map(seen).collect()
}

/// A reader at work.
struct Running {
    stop: Stop,
    ledger: Arc<Ledger>,
    thread: JoinHandle<Result<(), InputError>>,
}

/// Logs and their reader.
pub struct World {
    pub mode: Mode,
    /// Where the logs are.
    pub folder: TempDir,
    data: TempDir,
    patterns: Vec<String>,
    settings: String,
    lines: u64,
    /// How often each line is to be delivered.
    expected: BTreeMap<String, usize>,
    pub sink: Arc<Collector<Vec<Seen>>>,
    running: Option<Running>,
    warnings: Arc<Mutex<Vec<String>>>,
    /// Events may be sent again, with the same ids.
    pub may_repeat: bool,
    /// Streams of a container are interleaved in the files.
    pub is_interleaved: bool,
    /// Whether a last run that reads once must find nothing.
    pub is_final: bool,
}

impl World {
    /// Logs that match these patterns, relative to the folder, read with these settings.
    pub fn new(mode: Mode) -> Self {
        Self {
            mode,
            folder: tempfile::tempdir().expect("a folder"),
            data: tempfile::tempdir().expect("a folder"),
            patterns: vec!["*.log*".into()],
            settings: String::new(),
            lines: 0,
            expected: BTreeMap::new(),
            sink: Arc::new(Collector::new(look, Receipts::AtOnce, Duration::ZERO)),
            running: None,
            warnings: Arc::default(),
            may_repeat: false,
            is_interleaved: false,
            is_final: true,
        }
    }

    /// Sets what is read.
    pub fn paths(&mut self, patterns: &[&str]) {
        self.patterns = patterns.iter().map(|path| (*path).to_owned()).collect();
    }

    /// Sets further settings in YAML.
    pub fn set(&mut self, settings: &str) {
        self.settings = settings.to_owned();
    }

    /// A path in the folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    // --- writing ---

    /// New lines, to be delivered once each.
    pub fn text(&mut self, count: usize) -> String {
        let mut text = String::new();
        for _ in 0..count {
            self.lines += 1;
            let line = format!("line {} of a log with some words in it", self.lines);
            text.push_str(&line);
            text.push('\n');
            self.expect(&line);
        }
        text
    }

    /// A number that no line has had.
    pub fn number(&mut self) -> u64 {
        self.lines += 1;
        self.lines
    }

    /// A line is to be delivered once more.
    pub fn expect(&mut self, line: &str) {
        *self.expected.entry(line.to_owned()).or_default() += 1;
    }

    /// A line is not to be delivered, or once less.
    pub fn forget(&mut self, line: &str) {
        let times = self.expected.get_mut(line).expect("it was expected");
        *times -= 1;
    }

    /// Appends new lines to a file, creating it where it is not there.
    pub fn append(&mut self, name: &str, count: usize) {
        let text = self.text(count);
        self.raw(name, text.as_bytes());
    }

    /// Appends bytes that say nothing of what is expected.
    pub fn raw(&self, name: &str, bytes: &[u8]) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().expect("in the folder")).expect("a folder");
        let mut options = OpenOptions::new();
        let mut file = options.create(true).append(true).open(path).expect("open");
        file.write_all(bytes).expect("written");
    }

    pub fn rename(&self, from: &str, to: &str) {
        fs::rename(self.path(from), self.path(to)).expect("renamed");
    }

    pub fn delete(&self, name: &str) {
        fs::remove_file(self.path(name)).expect("deleted");
    }

    /// Copies as `cp` does: a new inode with new times.
    pub fn copy(&self, from: &str, to: &str) {
        let bytes = fs::read(self.path(from)).expect("read");
        fs::write(self.path(to), bytes).expect("written");
    }

    pub fn truncate(&self, name: &str, size: u64) {
        let file = OpenOptions::new().write(true).open(self.path(name));
        file.and_then(|file| file.set_len(size)).expect("truncated");
    }

    /// Makes a file look as if it was written long ago.
    pub fn age(&self, name: &str) {
        let file = File::options().write(true).open(self.path(name));
        let time = std::time::SystemTime::now() - Duration::from_secs(3600);
        file.and_then(|file| file.set_modified(time)).expect("aged");
    }

    pub fn inode(&self, name: &str) -> u64 {
        use std::os::unix::fs::MetadataExt;
        fs::metadata(self.path(name)).expect("there").ino()
    }

    // --- reading ---

    fn start(&mut self, follow: bool) {
        assert!(self.running.is_none(), "it runs");
        let (registry, losses) = Registry::open(self.data.path()).expect("a registry");
        assert!(losses.is_empty(), "{losses:?}");
        let paths: Vec<PathBuf> = self.patterns.iter().map(|name| self.path(name)).collect();
        let watch = if self.mode == Mode::Poll {
            "poll"
        } else {
            "inotify"
        };
        let mut settings = format!("paths: {paths:?}\nfollow: {follow}\nwatch: {watch}\n");
        settings.push_str("scan_interval: 50ms\n");
        settings.push_str(&self.settings);
        let input = build("file", &settings).unwrap_or_else(|error| panic!("{error}"));
        let (warnings, stop, ledger) = (self.warnings.clone(), Stop::default(), Arc::default());
        let ctx = InputContext {
            sink: self.sink.clone(),
            pool: Budget::new(64 << 20).pool(64 << 20, 256 << 10),
            host: host(),
            stop: stop.clone(),
            metrics: Arc::default(),
            progress: Arc::default(),
            diagnostics: Diagnostics::new(move |warning| {
                warnings.lock().push(warning.to_owned());
            }),
            scope: "test/input".into(),
            registry: Some(Arc::new(registry)),
            data_dir: None,
            ledger: Arc::clone(&ledger),
            written: Arc::default(),
            own: Default::default(),
        };
        let thread = std::thread::spawn(move || {
            let mut runtime = tokio::runtime::Builder::new_current_thread();
            let runtime = runtime.enable_time().build().expect("a runtime");
            runtime.block_on(input.run(ctx))
        });
        self.running = Some(Running {
            stop,
            ledger,
            thread,
        });
    }

    /// Starts to follow, if nothing runs.
    pub fn follow(&mut self) {
        if self.running.is_none() {
            self.start(true);
        }
    }

    /// Ends the run. Gives what it says went wrong.
    pub fn stop(&mut self) -> Vec<String> {
        let Some(running) = self.running.take() else {
            return Vec::new();
        };
        running.stop.stop();
        self.sink.give_up();
        self.join(running)
    }

    /// A run that reads once. Gives what it says went wrong.
    pub fn read_once(&mut self) -> Vec<String> {
        self.start(false);
        let running = self.running.take().expect("it was just started");
        let deadline = Instant::now() + DEADLINE;
        while !running.thread.is_finished() {
            check(
                &running.ledger.files(),
                self.is_interleaved,
                "while it runs",
            );
            assert!(Instant::now() < deadline, "{:?} takes for ever", self.mode);
            std::thread::sleep(Duration::from_millis(2));
        }
        self.join(running)
    }

    fn join(&mut self, running: Running) -> Vec<String> {
        let result = running.thread.join().expect("no panic");
        check(
            &running.ledger.files(),
            self.is_interleaved,
            "at the end of a run",
        );
        drop(running.ledger);
        check(&self.kept(), self.is_interleaved, "in the registry");
        result.err().map_or_else(Vec::new, |error| error.problems)
    }

    /// What the registry says of every file.
    pub fn kept(&self) -> Vec<FileLedger> {
        inputs::read_ledger(self.data.path())
            .expect("readable")
            .files
    }

    /// What is said of every file now: live where it is awake, else by the registry.
    pub fn files(&self) -> Vec<FileLedger> {
        let mut files = self
            .running
            .as_ref()
            .map_or_else(Vec::new, |running| running.ledger.files());
        let awake: BTreeSet<String> = files.iter().map(|file| file.id.clone()).collect();
        let kept = self.kept().into_iter();
        files.extend(kept.filter(|file| !awake.contains(&file.id)));
        files
    }

    /// The entry of the file that is at a path now.
    pub fn file(&self, name: &str) -> Option<FileLedger> {
        use std::os::unix::fs::MetadataExt;
        let path = self.path(name);
        let inode = fs::metadata(&path).ok()?.ino();
        let path = path.display().to_string();
        let is_it = |file: &FileLedger| {
            file.path == path && file.inode == inode && !matches!(file.state, FileStatus::Gone)
        };
        self.files().into_iter().find(is_it)
    }

    /// Waits until something is so.
    pub fn wait(&self, what: &str, mut is_so: impl FnMut(&Self) -> bool) {
        let deadline = Instant::now() + DEADLINE;
        loop {
            if let Some(running) = &self.running {
                check(
                    &running.ledger.files(),
                    self.is_interleaved,
                    "while it runs",
                );
                assert!(!running.thread.is_finished(), "the run has ended");
            }
            if is_so(self) {
                return;
            }
            if Instant::now() > deadline {
                let (missing, more) = self.difference();
                panic!(
                    "in vain waited for: {what}\nmissing {missing:?}\ntoo many {more:?}\nwarnings {:?}\n{:#?}",
                    self.warnings(),
                    self.files()
                );
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Has everything read, as the mode says, and checks it.
    pub fn settle(&mut self) {
        if self.mode == Mode::Once {
            let _ = self.read_once();
        } else {
            self.follow();
            self.await_lines();
            if self.mode == Mode::Restarts {
                let _ = self.stop();
            }
        }
        self.verify();
    }

    /// Waits until everything that is expected was delivered and acknowledged.
    pub fn await_lines(&self) {
        self.wait("the lines", |world| {
            world.difference().0.is_empty()
                && world.files().iter().all(|file| file.in_flight_events == 0)
        });
    }

    /// Has a scan made that sees all that was done so far: a new file is read that was written after it.
    pub fn scan(&mut self) {
        self.lines += 1;
        let name = format!("marker-{}.log", self.lines);
        self.append(&name, 1);
        self.settle();
    }

    // --- checking ---

    /// All events that were taken, in order, with whether they were delivered.
    pub fn taken(&self) -> Vec<(Seen, bool)> {
        self.sink.with(|batches| {
            let rows = batches.iter().flat_map(|taken| {
                let seen = taken.look.iter().cloned();
                seen.map(|seen| (seen, taken.is_delivered))
            });
            rows.collect()
        })
    }

    /// How many events were taken.
    pub fn count(&self) -> usize {
        let len = |batches: &[Taken<Vec<Seen>>]| batches.iter().map(|taken| taken.look.len()).sum();
        self.sink.with(len)
    }

    /// How many of them are so.
    pub fn count_of(&self, is_so: impl Fn(&str) -> bool) -> usize {
        self.sink.with(|batches| {
            let rows = batches.iter().flat_map(|taken| &taken.look);
            rows.filter(|seen| is_so(&seen.text)).count()
        })
    }

    /// Ids of the files that lines were delivered from.
    pub fn ids(&self) -> BTreeSet<String> {
        let id = |(seen, _): &(Seen, bool)| seen.id.split('-').next().map(str::to_owned);
        self.taken().iter().filter_map(id).collect()
    }

    pub fn warnings(&self) -> Vec<String> {
        self.warnings.lock().clone()
    }

    /// Lines that were delivered too seldom, and too often, by event id.
    fn difference(&self) -> (Vec<String>, Vec<String>) {
        let mut ids: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        let taken = self.taken();
        for (seen, is_delivered) in &taken {
            if *is_delivered {
                ids.entry(&seen.text).or_default().insert(&seen.id);
            }
        }
        let count = |line: &str| ids.get(line).map_or(0, BTreeSet::len);
        let shown = |line: &String| line.chars().take(60).collect::<String>();
        let missing = |(line, times): &(&String, &usize)| count(line) < **times;
        let missing = self.expected.iter().filter(missing);
        let missing = missing.map(|(line, _)| shown(line)).collect();
        let often = |line: &str| count(line) > self.expected.get(line).copied().unwrap_or(0);
        let more = ids.keys().filter(|line| often(line));
        (
            missing,
            more.map(|line| shown(&(*line).to_owned())).collect(),
        )
    }

    /// Everything that is expected was delivered, once by id, and nothing else.
    pub fn verify(&self) {
        let (missing, more) = self.difference();
        assert!(
            missing.is_empty() && more.is_empty(),
            "{} missing {:?}, {} too many {:?}\nwarnings {:?}\n{:#?}",
            missing.len(),
            &missing[..missing.len().min(5)],
            more.len(),
            &more[..more.len().min(5)],
            self.warnings(),
            self.files()
        );
        let mut texts: BTreeMap<String, String> = BTreeMap::new();
        for (seen, _) in self.taken() {
            let before = texts.insert(seen.id.clone(), seen.text.clone());
            assert!(
                before
                    .as_ref()
                    .is_none_or(|before| self.may_repeat && *before == seen.text),
                "{} was {before:?} and is {:?}",
                seen.id,
                seen.text
            );
        }
    }

    /// Ends the runs and checks everything: a last run finds nothing more than what is expected.
    pub fn finish(mut self) {
        let _ = self.stop();
        if self.is_final {
            let _ = self.read_once();
            self.verify();
            let in_flight = |file: &FileLedger| file.in_flight_bytes + file.in_flight_events;
            let kept = self.kept();
            assert_eq!(kept.iter().map(in_flight).sum::<u64>(), 0, "{kept:#?}");
            let acknowledged: u64 = kept.iter().map(|file| file.acknowledged_events).sum();
            let expected: usize = self.expected.values().sum();
            assert_eq!(acknowledged, expected as u64, "{kept:#?}");
        }
    }
}

/// For every file: read = acknowledged + dropped + in flight, and the position is behind what was settled.
fn check(files: &[FileLedger], is_interleaved: bool, when: &str) {
    for file in files {
        let bytes = file.acknowledged_bytes + file.dropped_bytes;
        assert_eq!(
            file.read_bytes,
            bytes + file.in_flight_bytes,
            "bytes {when}: {file:#?}"
        );
        let dropped: u64 = file.dropped.iter().map(|dropped| dropped.events).sum();
        assert_eq!(
            file.read_events,
            file.acknowledged_events + dropped + file.in_flight_events,
            "events {when}: {file:#?}"
        );
        let dropped: u64 = file.dropped.iter().map(|dropped| dropped.bytes).sum();
        assert_eq!(dropped, file.dropped_bytes, "{file:#?}");
        // Where streams are interleaved, half a record may begin before others that are settled.
        assert!(file.position <= bytes, "position {when}: {file:#?}");
        if !is_interleaved {
            assert_eq!(file.position, bytes, "position {when}: {file:#?}");
        }
    }
}

/// One gzip member.
pub fn gzip(content: &[u8]) -> Vec<u8> {
    // At its fastest level this library makes one block of everything, in which there is no place to resume at.
    let level = flate2::Compression::new(2);
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), level);
    encoder.write_all(content).expect("a vector takes it");
    encoder.finish().expect("a vector takes it")
}

/// One zstd frame with a checksum.
pub fn zstd(content: &[u8]) -> Vec<u8> {
    let mut encoder = zstd::Encoder::new(Vec::new(), 1).expect("an encoder");
    encoder.include_checksum(true).expect("a level that it has");
    encoder.write_all(content).expect("a vector takes it");
    encoder.finish().expect("a vector takes it")
}
