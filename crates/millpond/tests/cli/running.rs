//! Following files: a service that is started, watched and stopped, what it delivered, and places that fail.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use testkit::rights::leave_out;

use crate::program::{Folder, millpond, plain};

/// How long anything that is awaited may take.
const DEADLINE: Duration = Duration::from_secs(180);

/// Waits until something holds.
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < DEADLINE, "waited {DEADLINE:?} for {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Appends to a file, which is made where it is not there.
pub fn append(path: &str, text: &str) {
    let mut options = OpenOptions::new();
    let mut file = options.append(true).create(true).open(path).expect("opens");
    file.write_all(text.as_bytes()).expect("is written");
}

/// So many lines that say which they are.
pub fn numbered(name: &str, numbers: std::ops::Range<usize>) -> String {
    numbers
        .map(|number| format!("{name} line {number}\n"))
        .collect()
}

/// A folder with `logs` that are read into `out.ndjson` with their ids, `data` remembering how far.
pub struct Place {
    pub folder: Folder,
    pub data: String,
}

impl Place {
    pub fn new() -> Self {
        let folder = Folder::new();
        std::fs::create_dir(folder.path("logs")).expect("a writable folder");
        let data = folder.path("data");
        Self { folder, data }
    }

    /// With the data directory elsewhere.
    pub fn with_data(data: String) -> Self {
        Self {
            data,
            ..Self::new()
        }
    }

    pub fn log(&self, name: &str) -> String {
        self.folder.path(&format!("logs/{name}"))
    }

    /// A configuration with these further settings of the input.
    pub fn yaml(&self, settings: &str) -> String {
        let yaml = format!(
            "data_dir: '{data}'
pipelines:
  one:
    input:
      file: {{ paths: ['{logs}'], {settings} }}
    processors:
      - set: {{ fields: {{ id: '@metadata.id' }} }}
    outputs:
      - file: {{ path: '{out}' }}
",
            data = self.data,
            logs = self.log("*"),
            out = self.folder.path("out.ndjson"),
        );
        self.folder.write("service.yaml", yaml)
    }

    /// Starts following.
    pub fn follow(&self) -> Service {
        Service::start(&self.folder, &["run", &self.yaml("follow: true")])
    }

    /// Reads once to the end.
    pub fn read_once(&self) -> crate::program::Ended {
        millpond(&["run", &self.yaml("follow: false")])
    }

    /// What was delivered so far: messages by id. An id stands for one message whatever happens.
    pub fn delivered(&self) -> BTreeMap<String, String> {
        let out = std::fs::read_to_string(self.folder.path("out.ndjson")).unwrap_or_default();
        // The last line may be half written.
        let whole = out.rfind('\n').map_or("", |end| &out[..end]);
        let mut events = BTreeMap::new();
        for line in whole.lines() {
            let event: Value = serde_json::from_str(line).expect("a JSON line");
            let text = |field: &str| event[field].as_str().expect("text").to_owned();
            let message = text("message");
            let before = events.insert(text("id"), message.clone());
            assert!(before.is_none_or(|before| before == message), "{line}");
        }
        events
    }

    /// How many events were delivered, each id counted once.
    pub fn count(&self) -> usize {
        self.delivered().len()
    }

    /// Checks that exactly these lines were delivered, each under one id.
    pub fn expect_lines(&self, lines: &str) {
        let delivered = self.delivered();
        let messages: BTreeSet<&str> = delivered.values().map(String::as_str).collect();
        let expected: BTreeSet<&str> = lines.lines().collect();
        let lost: Vec<_> = expected.difference(&messages).take(3).collect();
        let foreign: Vec<_> = messages.difference(&expected).take(3).collect();
        assert!(
            lost.is_empty() && foreign.is_empty(),
            "lost, such as {lost:?}; not written, such as {foreign:?}"
        );
        let mut ids: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (id, message) in &delivered {
            ids.entry(message).or_default().push(id);
        }
        let doubled: Vec<_> = ids.iter().filter(|(_, ids)| ids.len() > 1).collect();
        assert!(
            doubled.is_empty(),
            "{} lines have several ids, such as {:?}",
            doubled.len(),
            &doubled[..doubled.len().min(3)]
        );
    }

    /// The ledger, after a look at its sums.
    pub fn ledger(&self) -> Vec<Value> {
        ledger(&self.data)
    }
}

/// The ledger of a data directory. Read = acknowledged + dropped + in flight for every file.
pub fn ledger(data: &str) -> Vec<Value> {
    let files = millpond(&["files", "--data-dir", data, "--json"]).expect(0);
    let rows = files.events();
    for row in &rows {
        let number = |field: &str| row[field].as_u64().expect("a number");
        let sum =
            number("acknowledged_bytes") + number("dropped_bytes") + number("in_flight_bytes");
        assert_eq!(number("read_bytes"), sum, "{row}");
    }
    rows
}

/// The executable at work.
pub struct Service {
    child: Option<Child>,
    err: PathBuf,
}

impl Service {
    pub fn start(folder: &Folder, args: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_millpond"));
        command.args(args).env_remove("RUST_LOG");
        Self::spawn(folder, command)
    }

    pub fn spawn(folder: &Folder, mut command: Command) -> Self {
        let err = PathBuf::from(folder.path("err"));
        File::create(&err).expect("a writable folder");
        // Several services at a time would write over each other without.
        let log = OpenOptions::new().append(true).open(&err);
        let log = log.expect("a writable file");
        let child = command
            .stdin(Stdio::null())
            .stdout(File::create(folder.path("out")).expect("a writable folder"))
            .stderr(log)
            .spawn()
            .expect("the executable runs");
        let child = Some(child);
        Self { child, err }
    }

    fn child(&mut self) -> &mut Child {
        self.child.as_mut().expect("it was not stopped")
    }

    pub fn id(&mut self) -> u32 {
        self.child().id()
    }

    /// The file with what it says on standard error.
    pub fn said_in(&self) -> PathBuf {
        self.err.clone()
    }

    /// What it said on standard error, as [`plain`] has it.
    pub fn said(&self) -> String {
        plain(&std::fs::read_to_string(&self.err).expect("a readable file"))
    }

    /// Waits until something holds, while the service runs.
    pub fn until(&mut self, what: &str, mut holds: impl FnMut() -> bool) {
        let err = self.err.clone();
        let said = || std::fs::read_to_string(&err).unwrap_or_default();
        let begin = Instant::now();
        while !holds() {
            let status = self.child().try_wait().expect("a child");
            assert!(status.is_none(), "it ended, {status:?}: {}", said());
            assert!(
                begin.elapsed() < DEADLINE,
                "waited for {what}; it said: {}",
                said()
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits until it said something.
    pub fn until_said(&mut self, text: &str) {
        let err = self.err.clone();
        self.until(text, || {
            std::fs::read_to_string(&err).is_ok_and(|said| said.contains(text))
        });
    }

    /// Waits until a signal would not simply end it.
    pub fn until_it_handles(&mut self, signal: Signal) {
        let status = format!("/proc/{}/status", self.id());
        self.until("a signal handler", || {
            let status = std::fs::read_to_string(&status).unwrap_or_default();
            let mut lines = status.lines();
            let caught = lines.find_map(|line| line.strip_prefix("SigCgt:\t"));
            let caught = caught.and_then(|caught| u64::from_str_radix(caught, 16).ok());
            caught.is_some_and(|caught| caught >> (signal.as_raw() - 1) & 1 == 1)
        });
    }

    /// Sends it a signal that it handles.
    pub fn signal(&mut self, signal: Signal) {
        self.until_it_handles(signal);
        kill_process(Pid::from_child(self.child()), signal).expect("it runs");
    }

    /// Waits until it ends by itself with this exit code; what it said.
    pub fn until_ended(mut self, code: i32) -> String {
        let mut status = None;
        eventually("the end", || {
            status = self.child().try_wait().expect("a child");
            status.is_some()
        });
        self.child = None;
        let said = self.said();
        assert_eq!(
            status.and_then(|status| status.code()),
            Some(code),
            "{said}"
        );
        said
    }

    /// Ends it with SIGKILL.
    pub fn kill(mut self) {
        self.child().kill().expect("it runs");
        self.child().wait().expect("it ends");
        self.child = None;
    }

    /// Ends it with SIGTERM, which takes a moment and gives exit code 0; what it said.
    pub fn stop(self) -> String {
        let (code, said) = self.end();
        assert_eq!(code, Some(0), "{said}");
        said
    }

    /// Ends it with SIGTERM, which takes a moment; its exit code, and what it said.
    pub fn end(mut self) -> (Option<i32>, String) {
        // Before it handles the signal it would simply end.
        if self.child().try_wait().expect("a child").is_none() {
            self.until_it_handles(Signal::TERM);
        }
        let begin = Instant::now();
        kill_process(Pid::from_child(self.child()), Signal::TERM).expect("it runs");
        let mut code = None;
        eventually("the end after SIGTERM", || {
            code = self.child().try_wait().expect("a child");
            code.is_some()
        });
        self.child = None;
        let said = self.said();
        assert!(begin.elapsed() < Duration::from_secs(20), "{said}");
        (code.and_then(|code| code.code()), said)
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The processor time that a process has used.
pub fn cpu_time(pid: u32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("it runs");
    // The name in brackets may contain anything.
    let (_, fields) = stat.rsplit_once(") ").expect("a name in brackets");
    let ticks = fields.split(' ').skip(11).take(2);
    let ticks = ticks.map(|ticks| ticks.parse::<u64>().expect("a number"));
    Duration::from_millis(ticks.sum::<u64>() * 1000 / rustix::param::clock_ticks_per_second())
}

/// A process that is busy until it is dropped.
pub struct Busy(Child);

impl Busy {
    pub fn new() -> Self {
        let busy = Command::new("sh")
            .args(["-c", "while :; do :; done"])
            .spawn();
        Self(busy.expect("a shell"))
    }

    /// Its number.
    pub fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A file system that is mounted in a folder of its own.
pub struct Mount {
    folder: Folder,
}

impl Mount {
    /// One in memory of this size; none, with the test left out, where mounting is impossible.
    pub fn memory(size: &str) -> Option<Self> {
        let options = format!("size={size}");
        Self::new(&["-t", "tmpfs", "-o", &options, "millpond-test"])
    }

    /// Mounts what `mount` takes these arguments for.
    pub fn new(args: &[&str]) -> Option<Self> {
        let folder = Folder::new();
        let mut command = Command::new("mount");
        let output = command.args(args).arg(folder.as_ref() as &Path).output();
        let why = match output {
            Ok(output) if output.status.success() => return Some(Self { folder }),
            Ok(output) => String::from_utf8_lossy(&output.stderr).replace('\n', " "),
            Err(error) => error.to_string(),
        };
        leave_out(&format!("mounting is impossible here: {why}"));
        None
    }

    pub fn path(&self, name: &str) -> String {
        self.folder.path(name)
    }

    /// Gives a file system in memory another size.
    pub fn resize(&self, size: &str) {
        let place: &Path = self.folder.as_ref();
        let options = format!("remount,size={size}");
        let status = Command::new("mount")
            .args(["-o", &options])
            .arg(place)
            .status();
        assert!(status.is_ok_and(|status| status.success()));
    }

    /// Unmounts it now, so that everything is on its disk.
    pub fn unmount(self) {
        let place: &Path = self.folder.as_ref();
        let status = Command::new("umount").arg(place).status();
        assert!(status.is_ok_and(|status| status.success()));
    }

    /// Takes all room that is left; deleting the file gives it back.
    pub fn fill(&self) -> String {
        let path = self.path("filler");
        let mut file = File::create(&path).expect("a writable folder");
        for size in [1 << 16, 1 << 12, 1] {
            while file.write_all(&vec![0; size]).is_ok() {}
        }
        path
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let place: &Path = self.folder.as_ref();
        let mut command = Command::new("umount");
        // It may be unmounted already.
        let _ = command.arg("-l").arg(place).stderr(Stdio::null()).status();
    }
}
