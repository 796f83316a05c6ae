//! Damage to the files of a disk queue while no process has it, after a clean stop and after SIGKILL: what was acknowledged is
//! delivered or counted as lost, by the run with exit code 1 and by `millpond queue verify` before it, and nothing is counted
//! that was delivered.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use queue::log::segment_name;
use serde_json::Value;

use crate::program::{Ended, Folder, millpond};
use crate::queue_place::QueuePlace;

/// Lines that wait in the queue.
const LINES: usize = 6000;

/// A queue with a backlog that was written in bursts, of which damaged copies are made.
struct Scene {
    place: QueuePlace,
    /// The data directory as the run left it, the queue's folder in it.
    kept: Folder,
}

impl Scene {
    fn new(settings: &str, is_killed: bool) -> Self {
        let mut place = QueuePlace::new(&format!("min_free_bytes: 0, {settings}"));
        place.one.down();
        place.two.down();
        let mut lines = String::new();
        for number in 0..LINES {
            let length = 300 + number % 7 * 30;
            writeln!(lines, "line {number} {:x<length$}", "").expect("text");
        }
        fs::write(place.place.log("app"), &lines).expect("written");
        let mut service = place.follow();
        place.until_acknowledged(&mut service, LINES);
        match is_killed {
            true => service.kill(),
            false => drop(service.stop()),
        }
        place.one.up();
        place.two.up();
        let kept = Folder::new();
        copy_folder(Path::new(&place.place.data), kept.as_ref());
        Self { place, kept }
    }

    /// Puts everything back as the run left it.
    fn restore(&self) {
        let data = Path::new(&self.place.place.data);
        fs::remove_dir_all(data).expect("removed");
        fs::create_dir(data).expect("made");
        copy_folder(self.kept.as_ref(), data);
        for outlet in [&self.place.one, &self.place.two] {
            fs::write(outlet.path(), "").expect("written");
        }
    }

    fn segments(&self) -> Vec<PathBuf> {
        self.place.segments().into_iter().map(Into::into).collect()
    }

    fn files(&self, prefix: &str) -> Vec<PathBuf> {
        let entries = fs::read_dir(&self.place.folder).expect("a folder");
        let paths = entries.map(|entry| entry.expect("an entry").path());
        let is_one = |path: &PathBuf| {
            let name = path.file_name().expect("a name");
            name.to_string_lossy().starts_with(prefix)
        };
        let mut paths: Vec<_> = paths.filter(is_one).collect();
        paths.sort();
        paths
    }

    /// The file and the offset of each block.
    fn blocks(&self) -> Vec<(PathBuf, u64)> {
        let ended = millpond(&["queue", "inspect", &self.place.folder, "--json", "--blocks"]);
        let report: Value = serde_json::from_str(&ended.expect(0).out).expect("JSON");
        let mut blocks = Vec::new();
        for segment in report["segments"].as_array().expect("segments") {
            let number = segment["number"].as_u64().expect("a number");
            let path = Path::new(&self.place.folder).join(segment_name(number));
            for block in segment["list"].as_array().expect("blocks") {
                blocks.push((path.clone(), block["offset"].as_u64().expect("an offset")));
            }
        }
        blocks
    }

    /// Looks with the tool, delivers what is left, and compares; how many events were lost, or what is wrong.
    fn judge(&self) -> Result<usize, String> {
        let verified = millpond(&["queue", "verify", &self.place.folder]);
        let ended = self.place.deliver();
        let (delivered, repeats) = self.place.one.delivered();
        let lost = LINES - delivered.len();
        let is_right = repeats == 0
            && self.place.two.delivered() == (delivered, 0)
            && told(&ended) == lost
            && missing(&verified) == lost
            && ended.code == Some(i32::from(lost > 0))
            && (lost == 0 || verified.code == Some(1));
        if !is_right {
            return Err(format!(
                "{lost} events are lost\nexit code {:?}: {}verify, {:?}: {}{}",
                ended.code, ended.err, verified.code, verified.out, verified.err
            ));
        }
        let again = self.place.deliver();
        match again.code == Some(0) && !again.err.contains("lost") {
            true => Ok(lost),
            false => Err(format!("it is said twice: {}", again.err)),
        }
    }
}

fn copy_folder(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).expect("a folder") {
        let entry = entry.expect("an entry");
        let target = to.join(entry.file_name());
        if entry.file_type().expect("a type").is_dir() {
            fs::create_dir(&target).expect("made");
            copy_folder(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).expect("copied");
        }
    }
}

/// The number before one of these words, without its commas; 0 if they are not there.
fn number_before(text: &str, words: [&str; 2]) -> usize {
    let Some(end) = words.iter().find_map(|words| text.find(words)) else {
        return 0;
    };
    let word = text[..end].split_whitespace().next_back();
    let digits = word.expect("a number").replace(',', "");
    digits.parse().expect("a number")
}

fn told(ended: &Ended) -> usize {
    let many = " events were lost because its files are damaged";
    number_before(
        &ended.err,
        [many, " event was lost because its files are damaged"],
    )
}

fn missing(ended: &Ended) -> usize {
    number_before(&ended.out, [" events missing", " event missing"])
}

fn flip(path: &Path, offset: u64, bit: u8) {
    let file = fs::File::options().read(true).write(true).open(path);
    let file = file.expect("a file");
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).expect("read");
    let byte = [byte[0] ^ (1 << bit)];
    file.write_all_at(&byte, offset).expect("written");
}

fn truncate(path: &Path, length: u64) {
    let file = fs::File::options().write(true).open(path).expect("a file");
    file.set_len(length).expect("cut");
}

fn remove(paths: &[PathBuf]) {
    for path in paths {
        fs::remove_file(path).expect("removed");
    }
}

fn swap(one: &Path, other: &Path) {
    let aside = one.with_extension("aside");
    for (from, to) in [(one, aside.as_path()), (other, one), (&aside, other)] {
        fs::rename(from, to).expect("renamed");
    }
}

/// A segment file with a number that the queue has not reached.
fn stray(scene: &Scene) -> PathBuf {
    Path::new(&scene.place.folder).join(segment_name(0xfff))
}

type Harm = fn(&Scene);

/// What is done to the files, and whether it costs events.
const HARMS: [(&str, bool, Harm); 24] = [
    ("nothing", false, |_| ()),
    ("the first segment removed", true, |scene| {
        remove(&scene.segments()[..1]);
    }),
    ("the last segment removed", true, |scene| {
        remove(&scene.segments()[scene.segments().len() - 1..]);
    }),
    ("all segments in between removed", true, |scene| {
        let segments = scene.segments();
        remove(&segments[1..segments.len() - 1]);
    }),
    ("all but the first segment removed", true, |scene| {
        remove(&scene.segments()[1..]);
    }),
    ("all but the last segment removed", true, |scene| {
        let segments = scene.segments();
        remove(&segments[..segments.len() - 1]);
    }),
    ("all segments removed", true, |scene| {
        remove(&scene.segments());
    }),
    ("a segment emptied", true, |scene| {
        truncate(&scene.segments()[1], 0);
    }),
    ("a segment cut in its first block", true, |scene| {
        truncate(&scene.segments()[1], 5000);
    }),
    ("the last segment cut to its header", true, |scene| {
        truncate(scene.segments().last().expect("one"), 4096);
    }),
    ("the last segment cut in its last block", true, |scene| {
        let (path, offset) = scene.blocks().pop().expect("one");
        truncate(&path, offset + 100);
    }),
    ("a header in the middle flipped", true, |scene| {
        let blocks = scene.blocks();
        let (path, offset) = &blocks[blocks.len() / 2];
        flip(path, offset + 20, 3);
    }),
    ("the first header flipped", true, |scene| {
        let (path, offset) = &scene.blocks()[0];
        flip(path, offset + 50, 0);
    }),
    ("the last header flipped", true, |scene| {
        let (path, offset) = scene.blocks().pop().expect("one");
        flip(&path, offset + 17, 1);
    }),
    ("a payload in the middle flipped", true, |scene| {
        let blocks = scene.blocks();
        let (path, offset) = &blocks[blocks.len() / 2];
        flip(path, offset + 200, 3);
    }),
    ("the last payload flipped", true, |scene| {
        let (path, offset) = scene.blocks().pop().expect("one");
        flip(&path, offset + 99, 1);
    }),
    ("the header of a segment flipped", false, |scene| {
        flip(&scene.segments()[1], 30, 2);
    }),
    ("two segments exchanged", true, |scene| {
        let segments = scene.segments();
        swap(&segments[1], &segments[2]);
    }),
    ("a segment copied over the next one", true, |scene| {
        let segments = scene.segments();
        fs::copy(&segments[1], &segments[2]).expect("copied");
    }),
    ("a segment copied behind the last one", false, |scene| {
        fs::copy(&scene.segments()[1], stray(scene)).expect("copied");
    }),
    ("a stray empty segment", false, |scene| {
        fs::write(stray(scene), "").expect("written");
    }),
    ("one cursor removed", false, |scene| {
        remove(&scene.files("cursor-one"));
    }),
    ("one cursor and the last segment removed", true, |scene| {
        remove(&scene.files("cursor-one"));
        remove(&scene.segments()[scene.segments().len() - 1..]);
    }),
    ("the cursors flipped", false, |scene| {
        for path in scene.files("cursor-") {
            flip(&path, 20, 1);
        }
    }),
];

/// Segments of two sizes, each written in groups that are longer than a segment.
const SETTINGS: [&str; 2] = ["segment_bytes: 64KiB", "segment_bytes: 256KiB"];

#[test]
fn what_damage_costs_is_counted() {
    let mut wrong = String::new();
    for settings in SETTINGS {
        for is_killed in [false, true] {
            let scene = Scene::new(settings, is_killed);
            assert!(scene.segments().len() > 3, "{:?}", scene.segments());
            for (name, costs, harm) in HARMS {
                scene.restore();
                harm(&scene);
                let judged = scene.judge();
                if judged.as_ref().is_ok_and(|lost| (*lost > 0) == costs) {
                    continue;
                }
                writeln!(
                    wrong,
                    "{settings}, killed: {is_killed}, {name}: {judged:#?}"
                )
                .expect("text");
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn a_folder_named_lock_stops_nothing() {
    let scene = Scene::new(SETTINGS[0], false);
    let folders = [&scene.place.folder, &scene.place.place.data];
    for folder in folders {
        let lock = Path::new(folder).join("lock");
        fs::remove_file(&lock).expect("removed");
        fs::create_dir_all(lock.join("something")).expect("made");
    }
    let ended = scene.place.deliver().expect(0);
    assert_eq!(scene.place.one.count(), LINES);
    for folder in folders {
        let aside = Path::new(folder).join("lock.1");
        assert!(aside.join("something").is_dir());
        let said = format!("it has been renamed to {}", aside.display());
        assert!(ended.err.contains(&said), "{said}: {}", ended.err);
    }
}

#[test]
fn a_stray_segment_hides_nothing() {
    let scene = Scene::new(SETTINGS[0], false);
    let look = |words: [&str; 2]| millpond(&[words[0], words[1], &scene.place.folder]);
    let exported = look(["queue", "export"]).expect(0).out;
    assert_eq!(exported.lines().count(), LINES);
    for content in ["", "something else"] {
        fs::write(stray(&scene), content).expect("written");
        assert!(look(["queue", "export"]).out == exported);
        let text = look(["queue", "verify"]).out;
        assert!(text.contains("6,000 events"), "{text}");
    }
}
