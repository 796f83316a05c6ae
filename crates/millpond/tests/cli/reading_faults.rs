//! Files that cannot be read: by a failing disk, without permission, with settings that mean nothing.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use testkit::rights::leave_out;

use crate::program::{Ended, Folder, ended, millpond};
use crate::running::{Mount, Place, Service, append, numbered};

/// A small ext4 in a file, mounted, whose end is cut away: what lies there gives EIO until it is put back.
struct FailingDisk {
    mount: Mount,
    /// The file that can be read, without `.log`.
    good: &'static str,
    /// The file that can be read only up to some place behind its 1000th line.
    bad: &'static str,
    image: String,
    cut: Vec<u8>,
    _folder: Folder,
}

const BLOCK: usize = 4096;

/// Lines of each of the two files.
const LINES: usize = 10_000;

impl FailingDisk {
    fn new() -> Option<Self> {
        let folder = Folder::new();
        let image = folder.write("image", "");
        let sized = OpenOptions::new().write(true).open(&image).expect("opens");
        sized.set_len(8 << 20).expect("has a size");
        let made = Command::new("mkfs.ext4")
            .args(["-q", "-F", "-O", "^has_journal", "-b", "4096", &image])
            .status();
        if !made.is_ok_and(|status| status.success()) {
            leave_out("there is no mkfs.ext4");
            return None;
        }
        let loop_device = ["-o", "loop", &image];
        let mount = Mount::new(&loop_device)?;
        for name in ["one", "two"] {
            let mut file = File::create(mount.path(&format!("{name}.log"))).expect("made");
            let lines = numbered(name, 0..LINES);
            file.write_all(lines.as_bytes()).expect("written");
            file.sync_all().expect("has its place on the disk");
        }
        mount.unmount();
        let bytes = std::fs::read(&image).expect("read");
        let finder = |text: &str| {
            let mut windows = bytes.windows(text.len());
            windows.position(|window| window == text.as_bytes())
        };
        let find = |text: &str| finder(text).expect("it was written");
        // The one that lies further behind loses its end.
        let is_in_order = find("one line 0\n") < find("two line 0\n");
        let (good, bad) = if is_in_order {
            ("one", "two")
        } else {
            ("two", "one")
        };
        let at = (find(&format!("{bad} line 1000\n")) + BLOCK) / BLOCK * BLOCK;
        let end_of_good = find(&format!("{good} line {}\n", LINES - 1));
        assert!(end_of_good + BLOCK < at, "the other one lies before");
        let mount = Mount::new(&loop_device)?;
        sized.set_len(at as u64).expect("can be cut");
        let disk = Self {
            mount,
            good,
            bad,
            image,
            cut: bytes[at..].to_vec(),
            _folder: folder,
        };
        let mut file = File::open(disk.path_of_bad()).expect("opens");
        assert!(file.read_to_end(&mut Vec::new()).is_err(), "it fails");
        Some(disk)
    }

    fn path_of_bad(&self) -> String {
        self.mount.path(&format!("{}.log", self.bad))
    }

    fn all(&self) -> String {
        numbered(self.good, 0..LINES) + &numbered(self.bad, 0..LINES)
    }

    /// A configuration that reads it.
    fn yaml(&self, place: &Place, settings: &str) -> String {
        let yaml = place.yaml(settings);
        let text = place.folder.read("service.yaml");
        let text = text.replace(&place.log("*"), &self.mount.path("*.log"));
        place.folder.write("service.yaml", text);
        yaml
    }

    /// Checks that what can be read was delivered: of the bad file what lies before the block that fails.
    fn expect_readable(&self, place: &Place) {
        let delivered = place.delivered();
        let count = |name: &str| {
            let messages = delivered.values();
            messages.filter(|line| line.starts_with(name)).count()
        };
        assert_eq!(count(self.good), LINES);
        assert!(
            (1001..2000).contains(&count(self.bad)),
            "{}",
            count(self.bad)
        );
    }

    /// Puts back what was cut away.
    fn mend(&self) {
        let mut image = OpenOptions::new()
            .append(true)
            .open(&self.image)
            .expect("opens");
        image.write_all(&self.cut).expect("is written");
    }
}

#[test]
fn a_failing_disk_is_named_and_what_is_readable_is_delivered() {
    let Some(disk) = FailingDisk::new() else {
        return;
    };
    let place = Place::new();
    let yaml = disk.yaml(&place, "follow: false");
    for _ in 0..2 {
        let ended = millpond(&["run", &yaml]).expect(1);
        let said = format!(
            "error: pipeline one: input file: {}: cannot be read: input/output error\n",
            disk.path_of_bad()
        );
        assert_eq!(ended.err, said);
        disk.expect_readable(&place);
    }
    disk.mend();
    let ended = millpond(&["run", &yaml]).expect(0);
    assert_eq!(ended.err, "");
    place.expect_lines(&disk.all());
}

#[test]
fn a_disk_that_works_again_is_read_on_by_a_service() {
    let Some(disk) = FailingDisk::new() else {
        return;
    };
    let place = Place::new();
    let yaml = disk.yaml(&place, "follow: true");
    let mut service = Service::start(&place.folder, &["run", &yaml]);
    service.until_said(&format!(
        "{}: cannot be read: input/output error",
        disk.path_of_bad()
    ));
    service.until("the other one", || place.count() > LINES + 1000);
    disk.expect_readable(&place);
    disk.mend();
    service.until("the rest", || place.count() == 2 * LINES);
    let said = service.stop();
    assert_eq!(said.matches(disk.bad).count(), 1, "told once: {said}");
    place.expect_lines(&disk.all());
}

/// The executable where everybody may run it, and how to run it as nobody.
pub struct Nobody {
    executable: String,
    folder: Folder,
}

impl Nobody {
    pub fn new() -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            leave_out("only root can run a program as somebody else");
            return None;
        }
        let folder = Folder::new();
        allow(folder.as_ref(), 0o777);
        let executable = folder.path("millpond");
        std::fs::copy(env!("CARGO_BIN_EXE_millpond"), &executable).expect("copied");
        allow(Path::new(&executable), 0o755);
        let nobody = Self { executable, folder };
        if !nobody
            .command(&["--version"])
            .output()
            .is_ok_and(|output| output.status.success())
        {
            leave_out("there is no setpriv");
            return None;
        }
        Some(nobody)
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new("setpriv");
        command
            .args(["--reuid", "65534", "--regid", "65534", "--clear-groups"])
            .arg(&self.executable)
            .args(args)
            .stdin(Stdio::null())
            .current_dir("/");
        command
    }

    pub fn run(&self, args: &[&str]) -> Ended {
        ended(self.command(args).output().expect("runs"))
    }
}

fn allow(path: &Path, mode: u32) {
    std::fs::set_permissions(path, Permissions::from_mode(mode)).expect("allowed");
}

#[test]
fn a_file_that_may_not_be_read_is_named_and_the_others_are_read() {
    let Some(nobody) = Nobody::new() else { return };
    let place = Place::new();
    allow(place.folder.as_ref(), 0o777);
    append(&place.log("open.log"), "open\n");
    append(&place.log("secret.log"), "secret\n");
    allow(Path::new(&place.log("secret.log")), 0o600);
    let ended = nobody.run(&["run", &place.yaml("follow: false")]).expect(1);
    let said = format!(
        "error: pipeline one: input file: {}: permission denied\n",
        place.log("secret.log")
    );
    assert_eq!(ended.err, said);
    place.expect_lines("open\n");

    let mut service = Service::spawn(
        &nobody.folder,
        nobody.command(&["run", &place.yaml("follow: true")]),
    );
    service.until_said("secret.log: permission denied");
    append(&place.log("open.log"), "more\n");
    service.until("the others", || place.count() == 2);
    allow(Path::new(&place.log("secret.log")), 0o644);
    service.until("what may be read now", || place.count() == 3);
    let said = service.stop();
    assert_eq!(said.matches("secret.log").count(), 1, "{said}");
    place.expect_lines("open\nmore\nsecret\n");
}

#[test]
fn a_data_directory_without_permission_is_named() {
    let Some(nobody) = Nobody::new() else { return };
    let folder = Folder::new();
    allow(folder.as_ref(), 0o755);
    let data = folder.path("data");
    let log = nobody.folder.path("x.log");
    append(&log, "x\n");
    let pipeline = format!("file {log} | stdout codec=text");
    let run = ["run", &pipeline, "--data-dir", &data];
    let ended = nobody.run(&run).expect(2);
    let said = format!("error: cannot create the data directory {data}: Permission denied\n");
    assert_eq!((ended.err, ended.out.as_str()), (said, ""));
    // Made by somebody else, who keeps it.
    millpond(&run).expect(0);
    for command in [&run[..], &["files", "--data-dir", &data]] {
        let ended = nobody.run(command).expect(2);
        assert!(
            ended.err.contains(&data) && ended.err.contains("Permission denied"),
            "{}",
            ended.err
        );
        assert_eq!((ended.out.as_str(), ended.err.lines().count()), ("", 1));
    }
}

#[test]
fn a_directory_that_may_not_be_listed_is_named() {
    let Some(nobody) = Nobody::new() else { return };
    let place = Place::new();
    allow(place.folder.as_ref(), 0o777);
    append(&place.log("open.log"), "open\n");
    std::fs::create_dir(place.log("closed")).expect("made");
    allow(Path::new(&place.log("closed")), 0o700);
    let pipeline = format!(
        "file '{}/**/*.log' | stdout codec=text",
        place.folder.path("logs")
    );
    let ended = nobody.run(&["run", &pipeline]).expect(1);
    assert_eq!(ended.out, "open\n");
    assert!(
        ended.err.contains(&place.log("closed")) && ended.err.contains("ermission denied"),
        "{}",
        ended.err
    );
}

#[test]
fn settings_that_mean_nothing_are_refused_with_their_place() {
    let folder = Folder::new();
    for (settings, said, place) in [
        (
            "fingerprint_bytes: 1B",
            "between 64B and 32KiB",
            "fingerprint_bytes",
        ),
        (
            "fingerprint_bytes: 1MiB",
            "between 64B and 32KiB",
            "fingerprint_bytes",
        ),
        (
            "delete_after: 1m, follow: false",
            "`delete_after` needs `follow: true`",
            "delete_after",
        ),
        ("encoding: klingon", "accepted: utf-8, ", "encoding"),
        ("scan_interval: 1ms", "at least 10ms", "scan_interval"),
        ("max_open_files: 0", "at least 1", "max_open_files"),
        ("start_at: middle", "accepted: beginning, end", "start_at"),
        ("watch: often", "accepted: auto, inotify, poll", "watch"),
        ("close: { idle: 1m }", "`idle`", "close"),
        ("exclude: ['[']", "not a valid pattern", "exclude"),
        ("include_lines: ['(']", "unclosed group", "include_lines"),
        (
            "exclude_lines: [a, 'b{2,1}']",
            "invalid regular expression",
            "exclude_lines",
        ),
        ("multiline: {}", "`pattern`", "multiline"),
        (
            "multiline: { pattern: '(' }",
            "unclosed group",
            "multiline.pattern",
        ),
        (
            "multiline: { pattern: a, start: b }",
            "`start`",
            "multiline",
        ),
        ("multiline: { end: b }", "`start`", "multiline.end"),
        (
            "multiline: { start: b, negate: true }",
            "`negate`",
            "multiline",
        ),
        (
            "multiline: { pattern: a, max_lines: 0 }",
            "max_lines",
            "multiline.max_lines",
        ),
        (
            "multiline: { pattern: a, match: above }",
            "accepted: before, after",
            "match",
        ),
        (
            "codec: msgpack, multiline: { pattern: a }",
            "`codec: msgpack` has none",
            "multiline",
        ),
        (
            "codec: msgpack, container: auto",
            "`codec: msgpack` has none",
            "container",
        ),
        ("timezone: Mars/Base", "`codec: syslog`", "timezone"),
        (
            "codec: syslog, timezone: Mars/Base",
            "is not a time zone",
            "timezone",
        ),
        (
            "codec: xml",
            "accepted: text, json, ndjson, msgpack, syslog",
            "codec",
        ),
        ("folow: true", "did you mean `follow`?", "folow"),
    ] {
        let yaml = format!(
            "pipelines:\n  one:\n    input:\n      file: {{ paths: ['/x'], {settings} }}\n    output: stdout\n"
        );
        let path = folder.write("x.yaml", yaml);
        for verb in ["check", "run"] {
            let ended = millpond(&[verb, &path]).expect(2);
            assert!(ended.err.contains(said), "{settings}: {}", ended.err);
            assert!(
                ended.err.contains("x.yaml:4:") && ended.err.contains(place),
                "{settings}: {}",
                ended.err
            );
        }
    }
}
