//! Many small files beside the log, created and written to while Millpond runs, so that it is busy with other things than
//! the log.

use std::collections::HashMap;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use fastrand::Rng;

/// What the lines of small files begin with.
const WORD: &str = "crowd ";

/// Files that are created at once.
const BURST: u32 = 50;

/// Lines that each new file brings on average: one for itself, the others for older ones.
const LINES: u32 = 4;

/// Creates files in a thread.
pub struct Crowd {
    stop: Sender<()>,
    thread: JoinHandle<Result<Small>>,
}

/// The small files that there are.
#[derive(Clone, Debug, Default)]
pub struct Small {
    /// The lines of each file.
    pub lines: Vec<u32>,
    /// The bytes of all.
    pub bytes: u64,
}

impl Crowd {
    /// Starts to create so many files in `dir`, spread over most of the time.
    pub fn start(dir: &Path, files: u32, time: Duration, mut rng: Rng) -> Self {
        let (stop, stopped) = channel();
        let dir = dir.to_owned();
        let thread = std::thread::spawn(move || {
            let begin = Instant::now();
            let mut small = Small::default();
            for file in 0..files {
                let due = time.mul_f64(0.9 * f64::from(file / BURST * BURST) / f64::from(files));
                let wait = due.saturating_sub(begin.elapsed());
                if stopped.recv_timeout(wait) != Err(RecvTimeoutError::Timeout) {
                    break;
                }
                small.lines.push(0);
                small.append(&dir, file)?;
                for _ in 1..LINES {
                    small.append(&dir, rng.u32(..=file))?;
                }
            }
            Ok(small)
        });
        Self { stop, thread }
    }

    /// Ends it; gives what files there are.
    pub fn stop(self) -> Result<Small> {
        // Where nobody receives, everything was created.
        let _ = self.stop.send(());
        let ended = self.thread.join();
        ended.map_err(|_| anyhow!("the creation of small files panicked"))?
    }
}

impl Small {
    /// The name of a file.
    pub fn name(file: u32) -> String {
        format!("{file:06}.log")
    }

    fn append(&mut self, dir: &Path, file: u32) -> Result<()> {
        let lines = &mut self.lines[file as usize];
        let line = format!("{WORD}{file} {lines}\n");
        *lines += 1;
        self.bytes += line.len() as u64;
        let mut options = OpenOptions::new();
        let opened = options
            .append(true)
            .create(true)
            .open(dir.join(Self::name(file)));
        let mut opened = opened.context("opening a small file")?;
        opened.write_all(line.as_bytes())?;
        Ok(())
    }
}

/// Which lines of small files came, and under which id.
pub struct Seen {
    small: Small,
    ids: HashMap<(u32, u32), String>,
    faults: Vec<String>,
}

impl Seen {
    pub fn new(small: &Small) -> Self {
        Self {
            small: small.clone(),
            ids: HashMap::new(),
            faults: Vec::new(),
        }
    }

    /// Takes an event if it is of a small file.
    pub fn takes(&mut self, id: &str, message: &str) -> bool {
        let Some(line) = self.line(message) else {
            return false;
        };
        let known = self.ids.entry(line).or_insert_with(|| id.to_owned());
        if known != id {
            let fault = format!("{message} came under {known} and {id}");
            self.faults.push(fault);
        }
        true
    }

    /// File and number of a line that was written.
    fn line(&self, message: &str) -> Option<(u32, u32)> {
        let (file, line) = message.strip_prefix(WORD)?.split_once(' ')?;
        let (file, line) = (file.parse().ok()?, line.parse().ok()?);
        let lines = *self.small.lines.get(file as usize)?;
        (line < lines).then_some((file, line))
    }

    /// What came twice or is missing.
    pub fn faults(&self) -> Vec<String> {
        let files = (0..).zip(&self.small.lines);
        let all = files.flat_map(|(file, lines)| (0..*lines).map(move |line| (file, line)));
        let missing = all.filter(|line| !self.ids.contains_key(line));
        let missing = missing.map(|(file, line)| format!("{WORD}{file} {line} is missing"));
        self.faults.iter().cloned().chain(missing).collect()
    }
}

#[test]
fn each_line_of_small_files_comes_once() {
    let mut seen = Seen::new(&Small {
        lines: vec![1, 2],
        bytes: 0,
    });
    for (id, message) in [("a", "crowd 0 0"), ("b", "crowd 1 1"), ("a", "crowd 0 0")] {
        assert!(seen.takes(id, message));
    }
    assert_eq!(seen.faults(), ["crowd 1 0 is missing"]);
    assert!(seen.takes("c", "crowd 1 1"));
    assert_eq!(seen.faults()[0], "crowd 1 1 came under b and c");
    for message in ["crowd", "crowd 0 1", "crowd 2 0", "crowd x 0", "12: crowd"] {
        assert!(!seen.takes("d", message));
    }
}
