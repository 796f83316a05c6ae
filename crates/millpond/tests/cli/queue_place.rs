//! A service with a disk queue between the log files of a folder and the outputs `one` and `two`.

use std::process::{Command, Stdio};

use serde_json::Value;
use testkit::rights::leave_out;

use crate::program::{Ended, millpond};
use crate::queue_outlet::Outlet;
use crate::running::{Mount, Place, Service, append, numbered};

/// What is read, how it is queued and where it goes. Everything may be changed between two runs.
pub struct QueuePlace {
    pub place: Place,
    /// The queue's folder.
    pub folder: String,
    /// Further settings of the queue.
    pub settings: String,
    /// Further processors.
    pub processors: &'static str,
    /// The names of the outputs that are configured.
    pub outputs: Vec<&'static str>,
    pub one: Outlet,
    pub two: Outlet,
}

/// Small segments, and no regard to how full the disk of the tests is.
pub const SMALL: &str = "segment_bytes: 64KiB, min_free_bytes: 0, cache_bytes: 64KiB";

impl QueuePlace {
    /// With the queue in the data directory.
    pub fn new(settings: &str) -> Self {
        let place = Place::new();
        let folder = format!("{}/queue/one", place.data);
        Self::with_queue(place, folder, settings)
    }

    /// With the queue in a folder elsewhere.
    pub fn elsewhere(folder: String, settings: &str) -> Self {
        Self::with_queue(Place::new(), folder, settings)
    }

    fn with_queue(place: Place, folder: String, settings: &str) -> Self {
        let outlet = |name: &str| Outlet::new(place.folder.path(name));
        Self {
            one: outlet("one.ndjson"),
            two: outlet("two.ndjson"),
            outputs: vec!["one", "two"],
            folder,
            settings: settings.to_owned(),
            processors: "",
            place,
        }
    }

    /// Writes the configuration.
    pub fn yaml(&self, follow: bool) -> String {
        let output = |name: &&str| {
            let path = match *name {
                "one" => self.one.path().to_owned(),
                "two" => self.two.path().to_owned(),
                other => self.place.folder.path(&format!("{other}.ndjson")).into(),
            };
            format!("{{ file: {{ name: {name}, path: '{}' }} }}", path.display())
        };
        let outputs: Vec<String> = self.outputs.iter().map(output).collect();
        let yaml = format!(
            "data_dir: '{data}'
pipelines:
  one:
    input:
      file: {{ paths: ['{logs}'], follow: {follow} }}
    queue:
      disk: {{ path: '{folder}', {settings} }}
    processors:
      - set: {{ fields: {{ id: '@metadata.id' }} }}
{processors}
    outputs: [{outputs}]
    retry: {{ initial: 20ms, max: 100ms }}
",
            data = self.place.data,
            logs = self.place.log("*"),
            folder = self.folder,
            settings = self.settings,
            processors = self.processors,
            outputs = outputs.join(", "),
        );
        self.place.folder.write("service.yaml", yaml)
    }

    /// Starts following.
    pub fn follow(&self) -> Service {
        Service::start(&self.place.folder, &["run", &self.yaml(true)])
    }

    /// Reads what is there and delivers everything.
    pub fn deliver(&self) -> Ended {
        millpond(&["run", &self.yaml(false)])
    }

    /// Appends numbered lines to the log `app`; what was appended.
    pub fn write(&self, numbers: std::ops::Range<usize>) -> String {
        let lines = numbered("app", numbers);
        append(&self.place.log("app"), &lines);
        lines
    }

    /// How many events the registry says are acknowledged, that is, safe in the queue.
    pub fn acknowledged(&self) -> usize {
        self.sum_of_files(|row| row["acknowledged_events"].as_u64())
    }

    /// How many events the input has done with: safe in the queue, or dropped.
    pub fn done(&self) -> usize {
        self.sum_of_files(|row| {
            let in_flight = row["in_flight_events"].as_u64()?;
            Some(row["read_events"].as_u64()? - in_flight)
        })
    }

    fn sum_of_files(&self, number: impl Fn(&Value) -> Option<u64>) -> usize {
        let files = ["files", "--data-dir", &self.place.data, "--json"];
        let ended = millpond(&files);
        // The service may be about to make the registry.
        let events = if ended.code == Some(0) {
            ended.events()
        } else {
            Vec::new()
        };
        let counts = events.iter().map(number);
        let sum: u64 = counts.map(|count| count.expect("a number")).sum();
        usize::try_from(sum).expect("it fits")
    }

    /// Waits until so many events are acknowledged.
    pub fn until_acknowledged(&self, service: &mut Service, count: usize) {
        service.until(&format!("{count} events in the queue"), || {
            self.acknowledged() >= count
        });
    }

    /// Bytes of the files in the queue's folder.
    pub fn size(&self) -> u64 {
        folder_size(&self.folder)
    }

    /// The segments, oldest first.
    pub fn segments(&self) -> Vec<String> {
        let Ok(entries) = std::fs::read_dir(&self.folder) else {
            return Vec::new();
        };
        let paths = entries.map(|entry| entry.expect("a file").path().display().to_string());
        let mut segments: Vec<String> = paths.filter(|path| path.ends_with(".log")).collect();
        segments.sort();
        segments
    }
}

/// Bytes of the segments in a queue's folder.
pub fn folder_size(folder: &str) -> u64 {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return 0;
    };
    let sizes = entries.filter_map(|entry| {
        let entry = entry.ok()?;
        let is_segment = entry.file_name().to_string_lossy().ends_with(".log");
        // A segment may go at any time.
        is_segment.then(|| entry.metadata().map_or(0, |metadata| metadata.len()))
    });
    sizes.sum()
}

/// A file system on a loop device over a sparse file.
pub struct LoopDisk {
    image: String,
    mount: Option<Mount>,
    /// Where the sparse file lies.
    below: Below,
}

/// What is below a loop device.
enum Below {
    Folder(#[allow(dead_code, reason = "removed at the end")] crate::program::Folder),
    Memory(Mount),
}

impl LoopDisk {
    /// A new file system of a kind, such as `ext4`; none, with the test left out, where that is impossible.
    pub fn new(kind: &str) -> Option<Self> {
        let folder = crate::program::Folder::new();
        Self::over(kind, "512M", folder.path("image"), Below::Folder(folder))
    }

    /// A new file system that believes itself larger than the memory file system below it, of this size.
    pub fn hollow(kind: &str, size: &str) -> Option<Self> {
        let memory = Mount::memory(size)?;
        Self::over(kind, "1G", memory.path("image"), Below::Memory(memory))
    }

    fn over(kind: &str, size: &str, image: String, below: Below) -> Option<Self> {
        let force = if kind == "xfs" { "-f" } else { "-F" };
        let make = format!("truncate -s {size} {image} && mkfs.{kind} -q {force} {image}");
        let made = Command::new("sh")
            .args(["-c", &make])
            .output()
            .expect("a shell");
        if !made.status.success() {
            let why = String::from_utf8_lossy(&made.stderr);
            leave_out(&format!("no {kind} can be made here: {why}"));
            return None;
        }
        let mount = Some(Mount::new(&["-o", "loop", &image])?);
        Some(Self {
            image,
            mount,
            below,
        })
    }

    fn mount(&self) -> &Mount {
        self.mount.as_ref().expect("it is mounted")
    }

    pub fn path(&self, name: &str) -> String {
        self.mount().path(name)
    }

    /// Loses power: what is not durable is gone, and every access that is not to a cache fails until [`Self::remount`].
    /// False, which leaves the test out, where that is impossible.
    pub fn lose_power(&self) -> bool {
        let root = self.path("");
        let python = "import fcntl,os,struct,sys
fcntl.ioctl(os.open(sys.argv[1], os.O_RDONLY), 0x8004587D, struct.pack('I', 2))";
        let attempts = [
            vec!["xfs_io", "-x", "-c", "shutdown", &root],
            vec!["python3", "-c", python, &root],
        ];
        let done = attempts.iter().any(|words| {
            let status = Command::new(words[0])
                .args(&words[1..])
                .stderr(Stdio::null())
                .stdout(Stdio::null())
                .status();
            status.is_ok_and(|status| status.success())
                && std::fs::write(self.path("x"), "x").is_err()
        });
        if !done {
            leave_out("neither xfs_io nor python3 can shut a file system down here");
        }
        done
    }

    /// Mounts again what the disk holds, once nobody uses it any more. Paths change.
    pub fn remount(&mut self) {
        if let Some(mount) = self.mount.take() {
            mount.unmount();
        }
        self.mount = Mount::new(&["-o", "loop", &self.image]);
        assert!(self.mount.is_some(), "it was mounted before");
    }

    /// Gives a hollow file system the room that it believes to have.
    pub fn fill_up(&self) {
        if let Below::Memory(memory) = &self.below {
            memory.resize("1100M");
        }
    }
}

impl Drop for LoopDisk {
    fn drop(&mut self) {
        // Before what is below it.
        self.mount = None;
    }
}

/// A place with its queue on a memory file system, 200 lines of which wait for the second output.
pub fn on_small_disk(size: &str, settings: &str) -> Option<(Mount, QueuePlace, Service)> {
    let disk = Mount::memory(size)?;
    let mut place = QueuePlace::elsewhere(disk.path("queue"), settings);
    place.two.down();
    place.write(0..200);
    let mut service = place.follow();
    place.until_acknowledged(&mut service, 200);
    Some((disk, place, service))
}

/// A place where these many lines are in the queue, both outputs having been down, after a clean stop.
pub fn with_backlog(settings: &str, count: usize) -> (QueuePlace, String) {
    let mut place = QueuePlace::new(settings);
    place.one.down();
    place.two.down();
    let written = place.write(0..count);
    let mut service = place.follow();
    place.until_acknowledged(&mut service, count);
    let said = service.stop();
    let grouped = match count / 1000 {
        0 => count.to_string(),
        thousands => format!("{thousands},{:03}", count % 1000),
    };
    let expected =
        format!("pipeline one: {grouped} events remain in the disk queue for the next run");
    assert!(said.contains(&expected), "{said}");
    (place, written)
}
