//! Compressed files of a service that is killed again and again: whatever it wrote is a whole archive after the next start,
//! every line is in one of them under one id, and files of somebody else stay as they are.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use crate::program::Folder;
use crate::running::{Service, append, ledger, numbered};

/// Lines that are written before each kill: more than the outputs take in the meantime.
const LINES: usize = 60_000;

/// A log that goes to a file that is rotated, and to files by second that are never opened again after a restart.
struct Place {
    folder: Folder,
    ending: &'static str,
    written: usize,
}

impl Place {
    fn new(ending: &'static str) -> Self {
        let folder = Folder::new();
        for name in ["logs", "fixed", "by-time"] {
            fs::create_dir(folder.path(name)).expect("a writable folder");
        }
        Self {
            folder,
            ending,
            written: 0,
        }
    }

    fn start(&self) -> Service {
        let yaml = format!(
            "data_dir: '{data}'
pipelines:
  one:
    input:
      file: {{ paths: ['{logs}'], follow: true }}
    processors:
      - set: {{ fields: {{ id: '@metadata.id' }} }}
    outputs:
      - file: {{ name: fixed, path: '{fixed}', rotate: {{ max_bytes: 200KiB }} }}
      - file: {{ name: by-time, path: '{by_time}', max_open_files: 3 }}
",
            data = self.folder.path("data"),
            logs = self.folder.path("logs/*"),
            fixed = self
                .folder
                .path(&format!("fixed/all.ndjson.{}", self.ending)),
            by_time = self.folder.path(&format!(
                "by-time/%{{+HH}}/%{{+mmss}}.ndjson.{}",
                self.ending
            )),
        );
        let yaml = self.folder.write("service.yaml", yaml);
        Service::start(&self.folder, &["run", &yaml])
    }

    fn write(&mut self) {
        let end = self.written + LINES;
        let log = self.folder.path("logs/app");
        append(&log, &numbered("app", self.written..end));
        self.written = end;
    }

    /// Files of an output that are not hidden.
    fn files(&self, output: &str) -> Vec<PathBuf> {
        let mut files = Vec::new();
        let mut folders = vec![PathBuf::from(self.folder.path(output))];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).expect("a readable folder") {
                let path = entry.expect("an entry").path();
                match path.is_dir() {
                    true => folders.push(path),
                    false if is_hidden(&path) => {}
                    false => files.push(path),
                }
            }
        }
        files
    }

    /// Bytes in the files of an output.
    fn size(&self, output: &str) -> u64 {
        let files = self.files(output).into_iter();
        files
            .filter_map(|path| path.metadata().ok())
            .map(|it| it.len())
            .sum()
    }

    fn is_acknowledged(&self) -> bool {
        let log = fs::metadata(self.folder.path("logs/app")).expect("it was written");
        let rows = ledger(&self.folder.path("data"));
        rows.iter().any(|row| row["position"] == log.len())
    }

    /// Checks that the output's files, but for those of somebody else, are whole archives that hold every line under one id.
    fn expect_whole(&self, output: &str, foreign: &[PathBuf]) {
        let mut lines = BTreeMap::new();
        for path in self.files(output) {
            if foreign.contains(&path) {
                continue;
            }
            let text = match decompressed(&path) {
                Ok(text) => text,
                Err(error) => panic!("{} is broken: {error}", path.display()),
            };
            assert!(
                text.is_empty() || text.ends_with('\n'),
                "{}",
                path.display()
            );
            for line in text.lines() {
                let event: serde_json::Value = serde_json::from_str(line).expect("a JSON line");
                let text = |field: &str| event[field].as_str().expect("text").to_owned();
                let before = lines.insert(text("id"), text("message"));
                assert!(before.is_none_or(|before| before == text("message")));
            }
        }
        let expected = numbered("app", 0..self.written);
        let found: BTreeSet<&str> = lines.values().map(String::as_str).collect();
        let lost = expected.lines().filter(|line| !found.contains(line));
        assert_eq!(lost.count(), 0, "{output}: lines are lost");
        assert_eq!(
            lines.len(),
            self.written,
            "{output}: a line has several ids"
        );
    }
}

fn is_hidden(path: &Path) -> bool {
    let name = path.file_name().expect("it has a name");
    name.as_encoded_bytes().starts_with(b".")
}

fn decompressed(path: &Path) -> std::io::Result<String> {
    let file = File::open(path)?;
    if file.metadata()?.len() == 0 {
        return Err(std::io::Error::other("an empty file is no archive"));
    }
    let mut text = String::new();
    match path.extension().is_some_and(|ending| ending == "gz") {
        true => flate2::read::MultiGzDecoder::new(file).read_to_string(&mut text)?,
        false => zstd::stream::read::Decoder::new(file)?.read_to_string(&mut text)?,
    };
    Ok(text)
}

fn kill_and_count(ending: &'static str) {
    let mut place = Place::new(ending);
    let mut broken = None;
    let torn_file = |place: &Place, output: &str| {
        let mut files = place.files(output).into_iter();
        files.find(|path| decompressed(path).is_err())
    };
    for round in 0..12 {
        let output = ["fixed", "by-time"][round % 2];
        place.write();
        let before = place.size(output);
        let mut service = place.start();
        // At another stage each time; the first times as soon as anything is in the file.
        let more = 1 + (round as u64 / 4) * 150_000;
        service.until("some of it", || place.size(output) >= before + more);
        service.kill();
        let torn = torn_file(&place, output);
        let content = torn.map(|path| fs::read(path).expect("it reads"));
        broken = broken.or(content.filter(|content| content.len() > 1000));
    }
    let broken = broken.expect("no kill tore a file: the test shows nothing");
    // Somebody else's broken archive, in each of the folders.
    let foreign = ["fixed/mine", "by-time/mine"]
        .map(|name| PathBuf::from(place.folder.write(&format!("{name}.{ending}"), &broken)));
    let mut service = place.start();
    service.until("everything", || place.is_acknowledged());
    let said = service.stop();
    assert!(!said.contains("damaged"), "{said}");
    for output in ["fixed", "by-time"] {
        place.expect_whole(output, &foreign);
        let folder = fs::read_dir(place.folder.path(output)).expect("a readable folder");
        let mut entries = folder.map(|entry| entry.expect("an entry").path());
        assert!(entries.all(|path| !is_hidden(&path)), "no journal is left");
    }
    for path in foreign {
        assert!(
            fs::read(path).expect("it is there") == broken,
            "it was touched"
        );
    }
}

#[test]
fn no_gzip_file_of_a_killed_service_stays_torn() {
    kill_and_count("gz");
}

#[test]
fn no_zstd_file_of_a_killed_service_stays_torn() {
    kill_and_count("zst");
}
