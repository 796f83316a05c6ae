//! Files that scenarios read: generated, and kept for later runs.
//!
//! A set of files is a directory whose name says what is in it. It is made beside its place and renamed when it is whole, so that an interrupted
//! run leaves no half of one behind. The same settings make the same bytes.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};

use super::process::{Process, last_lines};
use super::settings::{Compression, Files};
use crate::console::say;
use crate::interruption::Interruption;

/// A set of files.
pub struct DataSet {
    /// Its directory, in which nothing else is.
    pub folder: PathBuf,
    /// Events in all files.
    pub events: u64,
}

/// Where sets are kept by default.
pub fn cache() -> PathBuf {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    let home = || variable("HOME").map(|home| Path::new(&home).join(".cache"));
    let cache = variable("XDG_CACHE_HOME").map(PathBuf::from).or_else(home);
    let cache = cache.unwrap_or_else(std::env::temp_dir);
    cache.join("millpond/bench")
}

/// Removes what runs that were interrupted left: directories with the number of a process that is gone.
pub fn sweep(cache: &Path) {
    for entry in fs::read_dir(cache).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let name = name.to_str().filter(|name| name.starts_with('.'));
        let process = name.and_then(|name| name.rsplit('.').next()?.parse::<u32>().ok());
        if process.is_some_and(|process| !Path::new(&format!("/proc/{process}")).exists()) {
            // Another suite may do the same at this moment.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// A set at a scale: of several files, so many fewer; of one, a smaller one.
pub struct Scaled {
    count: u64,
    /// Events in each file.
    events: u64,
    files: Files,
}

impl Scaled {
    /// `scale` is from 0 to 1, or more.
    pub fn new(files: &Files, scale: f64) -> Self {
        let scaled = |number: u64| ((number as f64 * scale).round() as u64).max(1);
        let (count, size) = (files.count.0, files.size.0);
        let (count, size) = match count {
            1 => (1, scaled(size)),
            count => (scaled(count), size),
        };
        Self {
            count,
            events: (size / files.format.event_bytes()).max(1),
            files: files.clone(),
        }
    }

    fn name(&self) -> String {
        let compression = match self.files.compression {
            Compression::None => "plain",
            Compression::Gzip => "gzip",
        };
        let format = self.files.format.word();
        format!("{format}-{}x{}-{compression}", self.count, self.events)
    }

    /// Where the set is, or will be.
    pub fn set(&self, cache: &Path) -> DataSet {
        DataSet {
            folder: cache.join(self.name()),
            events: self.count * self.events,
        }
    }

    /// Makes the set if it is not there.
    ///
    /// # Errors
    /// It cannot be written, or the suite is interrupted.
    pub fn make(&self, cache: &Path, interruption: &Interruption) -> anyhow::Result<()> {
        let folder = self.set(cache).folder;
        if folder.exists() {
            return Ok(());
        }
        say(&format!("generating {}", folder.display()));
        let part = cache.join(format!(".{}.{}", self.name(), std::process::id()));
        let unwritten = || format!("cannot write {}", part.display());
        fs::create_dir_all(&part).with_context(unwritten)?;
        let made = self.generate(&part, interruption);
        let placed = made.and_then(|()| fs::rename(&part, &folder).with_context(unwritten));
        if placed.is_err() {
            let _ = fs::remove_dir_all(&part);
        }
        placed
    }

    fn generate(&self, folder: &Path, interruption: &Interruption) -> anyhow::Result<()> {
        let said = folder.join("said");
        let (format, ending) = (
            self.files.format.word(),
            match self.files.compression {
                Compression::None => "",
                Compression::Gzip => ".gz",
            },
        );
        let codec = match format {
            "suricata" => "json",
            _ => "text",
        };
        let log = match codec {
            "json" => "json",
            _ => "log",
        };
        for number in 1..=self.count {
            let path = folder.join(format!("{number:06}.{log}{ending}"));
            let pipeline = format!(
                "generate {format} count={} seed={number} | file path='{}' codec={codec}",
                self.events,
                path.display()
            );
            let mut command = Command::new(std::env::current_exe()?);
            command.args(["run", &pipeline]);
            command.stderr(File::create(&said)?);
            let mut process = Process::start(&mut command).context("cannot start Millpond")?;
            let status = process.wait(interruption)?;
            if !status.success() {
                bail!("cannot generate {}:{}", path.display(), last_lines(&said));
            }
        }
        fs::remove_file(&said)?;
        Ok(())
    }
}
