//! A service with two outputs, one of which cannot write for a while: the other goes on, the service starts in that state,
//! and goes on by itself when a person has mended it.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use crate::program::{Folder, command, ended, millpond};
use crate::queue_outlet::Outlet;
use crate::running::{Mount, Service, append, numbered};
use crate::unprivileged::Unprivileged;

/// What is done to the folder of an output.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Damage {
    /// A file stands in its place: ENOTDIR.
    Replaced,
    /// It is not there: ENOENT.
    Gone,
    /// It may not be entered: EACCES.
    Closed,
    /// It is on a file system that is read-only: EROFS.
    ReadOnly,
}

impl Damage {
    fn error(self) -> &'static str {
        match self {
            Self::Replaced => "Not a directory",
            Self::Gone => "the directory does not exist",
            Self::Closed => "Permission denied",
            Self::ReadOnly => "Read-only file system",
        }
    }
}

/// The log `app`, a pipeline with the queue that is wanted, and its outputs `bad` and `good`.
struct Place {
    folder: Folder,
    user: Unprivileged,
    queue: &'static str,
    /// Settings of the output `bad`.
    settings: &'static str,
    retry: &'static str,
    bad: Outlet,
    good: Outlet,
    read_only: Option<Mount>,
    written: String,
}

impl Place {
    fn new(queue: &'static str) -> Self {
        let folder = Folder::new();
        let user = Unprivileged::new(&folder);
        for name in ["logs", "real"] {
            fs::create_dir(folder.path(name)).expect("a writable folder");
            user.may_write(&folder.path(name));
        }
        symlink(folder.path("real"), folder.path("sent")).expect("a writable folder");
        Self {
            user,
            queue,
            settings: "create_dirs: false",
            retry: "{ initial: 20ms, max: 100ms }",
            bad: Outlet::new(folder.path("real/bad.ndjson")),
            good: Outlet::new(folder.path("good.ndjson")),
            read_only: None,
            written: String::new(),
            folder,
        }
    }

    fn yaml(&self, follow: bool) -> String {
        let yaml = format!(
            "data_dir: '{data}'
pipelines:
  one:
    input:
      file: {{ paths: ['{logs}'], follow: {follow} }}
    queue: {queue}
    processors:
      - set: {{ fields: {{ id: '@metadata.id' }} }}
    outputs:
      - file: {{ name: bad, path: '{bad}', {settings} }}
      - file: {{ name: good, path: '{good}' }}
    retry: {retry}
",
            data = self.folder.path("data"),
            logs = self.folder.path("logs/*"),
            queue = self.queue,
            bad = self.folder.path("sent/bad.ndjson"),
            settings = self.settings,
            good = self.folder.path("good.ndjson"),
            retry = self.retry,
        );
        self.folder.write("service.yaml", yaml)
    }

    fn follow(&self) -> Service {
        let mut command = self.user.command();
        command.args(["run", &self.yaml(true)]);
        Service::spawn(&self.folder, command)
    }

    fn write(&mut self, count: usize) {
        let from = self.written.lines().count();
        let lines = numbered("app", from..from + count);
        append(&self.folder.path("logs/app"), &lines);
        self.written.push_str(&lines);
    }

    fn until_good(&self, service: &mut Service) {
        let count = self.written.lines().count();
        service.until("the good output", || self.good.count() == count);
    }

    fn until_bad(&self, service: &mut Service) {
        let count = self.written.lines().count();
        service.until("the bad output", || self.bad.count() == count);
    }

    /// False where that is impossible here.
    fn damage(&mut self, damage: Damage) -> bool {
        let sent = self.folder.path("sent");
        match damage {
            Damage::Closed => self.allow(0o000),
            Damage::ReadOnly => {
                let args = ["-t", "tmpfs", "-o", "ro", "millpond-test"];
                let Some(mount) = Mount::new(&args) else {
                    return false;
                };
                let damaged = self.folder.path("damaged");
                symlink(mount.path(""), &damaged).expect("a writable folder");
                fs::rename(damaged, &sent).expect("a writable folder");
                self.read_only = Some(mount);
            }
            Damage::Replaced | Damage::Gone => {
                fs::remove_file(&sent).expect("it is a link");
                if damage == Damage::Replaced {
                    fs::write(&sent, "").expect("a writable folder");
                }
            }
        }
        true
    }

    fn mend(&mut self, damage: Damage) {
        let sent = self.folder.path("sent");
        if damage == Damage::Closed {
            return self.allow(0o777);
        }
        // In one step: in between, there would be something else wrong.
        let mended = self.folder.path("mended");
        symlink(self.folder.path("real"), &mended).expect("a writable folder");
        fs::rename(mended, &sent).expect("a writable folder");
        self.read_only = None;
    }

    fn allow(&self, mode: u32) {
        let mode = fs::Permissions::from_mode(mode);
        fs::set_permissions(self.folder.path("real"), mode).expect("it is ours");
    }
}

const DISK: &str = "{ disk: { segment_bytes: 64KiB, min_free_bytes: 0, cache_bytes: 64KiB } }";

fn once(said: &str, text: &str) {
    assert_eq!(said.matches(text).count(), 1, "{text} in: {said}");
}

#[test]
fn an_output_that_cannot_write_waits_until_it_can_and_the_others_go_on() {
    for damage in [
        Damage::Replaced,
        Damage::Gone,
        Damage::Closed,
        Damage::ReadOnly,
    ] {
        let mut place = Place::new(DISK);
        let mut service = place.follow();
        place.write(500);
        place.until_bad(&mut service);
        if !place.damage(damage) {
            continue;
        }
        place.write(4500);
        place.until_good(&mut service);
        service.until_said("output bad: ");
        let said = service.stop();
        once(&said, "output bad: ");
        once(
            &said,
            "; retrying until it works; meanwhile its events are kept in the disk queue",
        );
        assert!(said.contains(damage.error()), "{damage:?}: {said}");
        assert!(
            said.contains("4,500 events remain in the disk queue"),
            "{said}"
        );

        // The next start is not refused.
        let mut service = place.follow();
        service.until_said("its events wait until this is fixed");
        place.write(1000);
        place.until_good(&mut service);
        place.mend(damage);
        place.until_bad(&mut service);
        service.until_said("output bad: works again after");
        place.write(100);
        place.until_bad(&mut service);
        let said = service.stop();
        once(&said, "retrying until it works");
        once(&said, "works again after");
        assert!(!said.contains("error: "), "{said}");
        place.bad.expect_once(&place.written);
        place.good.expect_once(&place.written);
    }
}

#[test]
fn with_a_memory_queue_inputs_wait_and_nothing_is_lost() {
    let mut place = Place::new("memory");
    let mut service = place.follow();
    place.write(500);
    place.until_bad(&mut service);
    assert!(place.damage(Damage::Replaced));
    place.write(4000);
    service.until_said("inputs wait once the queue is full");
    place.until_good(&mut service);
    place.mend(Damage::Replaced);
    place.until_bad(&mut service);
    service.until_said("output bad: works again after");
    service.stop();
    place.bad.expect_once(&place.written);
    place.good.expect_once(&place.written);
}

#[test]
fn a_compressed_file_and_one_with_fsync_wait_as_well() {
    // An output that makes its directory would do so while it is being mended.
    for settings in [
        "create_dirs: false, compression: gzip",
        "create_dirs: false, fsync: true",
    ] {
        let mut place = Place::new(DISK);
        place.settings = settings;
        let mut service = place.follow();
        place.write(500);
        let real = place.folder.path("real/bad.ndjson");
        service.until("the bad output", || {
            fs::metadata(&real).is_ok_and(|file| file.len() > 0)
        });
        place.until_good(&mut service);
        assert!(place.damage(Damage::Replaced));
        place.write(4500);
        place.until_good(&mut service);
        service.until_said("Not a directory");
        place.mend(Damage::Replaced);
        service.until_said("output bad: works again after");
        assert!(!service.stop().contains("error: "));
        millpond(&["run", &place.yaml(false)]).expect(0);
        let plain = place.folder.path("plain.ndjson");
        let pipeline = format!("file {real} codec=json | file {plain}");
        millpond(&["run", &pipeline]).expect(0);
        Outlet::new(plain).expect_once(&place.written);
        place.good.expect_once(&place.written);
    }
}

#[test]
fn an_output_that_gives_up_stays_behind_until_the_next_start() {
    let mut place = Place::new(DISK);
    place.retry = "{ initial: 20ms, max: 100ms, give_up_after: 200ms }";
    let mut service = place.follow();
    place.write(500);
    place.until_bad(&mut service);
    assert!(place.damage(Damage::Replaced));
    place.write(10);
    service.until_said("it accepts no more events until Millpond is restarted");
    place.write(20_000);
    place.until_good(&mut service);
    let (code, said) = service.end();
    assert_eq!(code, Some(1), "{said}");
    once(
        &said,
        "events that it has not accepted remain in the disk queue",
    );
    once(&said, "error: pipeline one: output bad: ");
    assert!(
        said.contains("20,010 events remain in the disk queue"),
        "{said}"
    );
    place.mend(Damage::Replaced);
    let mut service = place.follow();
    place.until_bad(&mut service);
    service.stop();
    place.bad.expect_once(&place.written);
    place.good.expect_once(&place.written);
}

#[test]
fn with_a_memory_queue_files_are_read_again_after_an_output_gave_up() {
    let mut place = Place::new("{ memory: { max_bytes: 1MiB } }");
    place.retry = "{ initial: 20ms, max: 100ms, give_up_after: 200ms }";
    let mut service = place.follow();
    place.write(500);
    place.until_bad(&mut service);
    assert!(place.damage(Damage::Gone));
    place.write(10);
    service.until_said("events that it has not accepted count as undelivered");
    // Many times what the queue holds.
    place.write(100_000);
    place.until_good(&mut service);
    let (code, said) = service.end();
    assert_eq!(code, Some(1), "{said}");
    assert!(
        said.contains("100,010 events were read but not delivered"),
        "{said}"
    );
    place.mend(Damage::Gone);
    let mut service = place.follow();
    place.until_bad(&mut service);
    service.stop();
    place.bad.expect_once(&place.written);
    // The good one gets again, under the same ids, what nobody acknowledged.
    assert_eq!(place.good.expect_lines(&place.written), 100_010);
}

#[test]
fn a_service_whose_outputs_have_all_given_up_ends() {
    for queue in [DISK, "memory"] {
        let mut place = Place::new(queue);
        place.retry = "{ initial: 20ms, give_up_after: 100ms }";
        // The good output's file is a folder, made after the start.
        let mut service = place.follow();
        place.write(500);
        place.until_bad(&mut service);
        place.until_good(&mut service);
        assert!(place.damage(Damage::Gone));
        let good = place.folder.path("good.ndjson");
        fs::rename(&good, place.folder.path("good.moved")).expect("renamed");
        fs::create_dir(&good).expect("a writable folder");
        place.write(500);
        let said = service.until_ended(1);
        once(&said, "no output accepts events any more: Millpond stops");
        for name in ["bad", "good"] {
            once(&said, &format!("error: pipeline one: output {name}: "));
        }
    }
}

#[test]
fn a_one_line_pipeline_ends_at_once() {
    let folder = Folder::new();
    let path = folder.path("none/a.ndjson");
    let begin = std::time::Instant::now();
    let pipeline = format!("generate apache count=10 | file {path} create_dirs=false");
    let refused = millpond(&["run", &pipeline]).expect(2);
    assert!(refused.err.contains("does not exist"), "{}", refused.err);
    // It goes away later.
    let pipeline = format!("generate apache rate=2000 | file {path}");
    let child = command(&["run", &pipeline]).spawn().expect("it runs");
    crate::running::eventually("the file", || fs::metadata(&path).is_ok());
    fs::rename(folder.path("none"), folder.path("moved")).expect("renamed");
    fs::write(folder.path("none"), "").expect("a writable folder");
    let failed = ended(child.wait_with_output().expect("it ends")).expect(1);
    assert!(failed.err.contains("Not a directory"), "{}", failed.err);
    assert!(!failed.err.contains("retrying"), "{}", failed.err);
    assert!(begin.elapsed().as_secs() < 20, "it did not try");
}

#[test]
fn a_check_says_what_a_service_would_wait_for() {
    let mut place = Place::new("memory");
    assert!(place.damage(Damage::Replaced));
    let checked = millpond(&["check", &place.yaml(true)]).expect(0);
    assert!(
        checked.err.contains("warning: pipeline one: output bad: ")
            && checked.err.contains("is not a directory"),
        "{}",
        checked.err
    );
    // What can never work is refused all the same.
    fs::create_dir(place.folder.path("good.ndjson")).expect("a writable folder");
    let refused = millpond(&["run", &place.yaml(true)]).expect(2);
    assert!(refused.err.contains("is a directory"), "{}", refused.err);
}
