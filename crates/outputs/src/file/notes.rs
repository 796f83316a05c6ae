//! What one output does with its journal: mends what earlier runs left, and notes which files are open.
//!
//! The journal is a precaution. Where it cannot be written, in a directory that only allows writing to files that are there,
//! for instance, the output says so once and works without it.

use std::fs::Metadata;
use std::io;
use std::path::Path;
use std::sync::Arc;

use component::{Compression, Limit, Warning};

use super::journal::{Journal, Journals};
use super::mend::{Mended, is_absence, mend};
use super::settings::Settings;

/// The journal of one output.
pub struct Notes {
    settings: Settings,
    /// None for files that are not compressed: opened again, they tell themselves what is torn and ours.
    journals: Option<Journals>,
    journal: Option<Journal>,
    has_mended: bool,
}

impl Notes {
    /// For an output with this `path` setting, whose files are all below `directory`.
    pub fn new(settings: Settings, directory: &Path, path: &str) -> Self {
        let is_compressed = settings.compression != Compression::None;
        // What stands there, such as `/dev/stdout`, is never opened again.
        let keeps_files = is_compressed && !directory.starts_with("/dev");
        Self {
            settings,
            journals: keeps_files.then(|| Journals::new(directory, path)),
            journal: None,
            has_mended: false,
        }
    }

    /// Mends what earlier runs left, the first time the directory is there.
    pub fn mend(&mut self) -> Mended {
        let Some(journals) = self.journals.as_ref().filter(|_| !self.has_mended) else {
            return Mended::default();
        };
        match mend(journals, self.settings.compression) {
            Ok(mended) => {
                self.has_mended = true;
                mended
            }
            // The directory may be made, or come, later.
            Err(error) if is_absence(&error) => Mended::default(),
            Err(error) => {
                let shown = journals.directory().display();
                let warning = format!(
                    "{shown}: the list of files that were open in an interrupted run cannot be read: {error}; incomplete writes at their ends are kept until it can be"
                );
                let limit = Limit::once("journals cannot be read");
                Mended {
                    warnings: vec![Warning::limited(limit, warning)],
                    ..Mended::default()
                }
            }
        }
    }

    /// Notes that a file is about to be opened.
    ///
    /// # Errors
    /// It cannot be written down.
    pub fn opening(&mut self, path: &Arc<str>) -> io::Result<()> {
        let Some(journals) = &self.journals else {
            return Ok(());
        };
        let journal = match &mut self.journal {
            Some(journal) => journal,
            None => {
                let options = self.settings.options;
                if options.create_dirs {
                    std::fs::create_dir_all(journals.directory())?;
                }
                self.journal.insert(journals.begin(options.mode)?)
            }
        };
        journal.opening(path)
    }

    /// Notes that a file is open.
    ///
    /// # Errors
    /// It cannot be written down.
    pub fn opened(&mut self, path: &Arc<str>, metadata: &Metadata) -> io::Result<()> {
        match &mut self.journal {
            Some(journal) => journal.opened(path, metadata, self.settings.sync),
            None => Ok(()),
        }
    }

    /// Notes that a file is closed and whole. What cannot be noted does no harm: the next start finds the file whole.
    pub fn closed(&mut self, path: &Arc<str>) {
        if let Some(journal) = &mut self.journal {
            let _ = journal.closed(path);
        }
    }

    /// Removes the journal, as all files are closed and whole. What is not removed, the next start removes.
    pub fn end(&mut self) {
        if let Some(journal) = self.journal.take() {
            let _ = journal.end();
        }
    }

    /// What a user should hear, once, of a journal that cannot be written.
    pub fn failed(&self, path: &str, error: &io::Error) -> Warning {
        let limit = Limit::once("journal cannot be written");
        Warning::limited(
            limit,
            format!(
                "{path}: the journal next to the file cannot be written: {error}; if the process is killed, an incomplete write at the end of the file may remain, and nothing else is affected"
            ),
        )
    }
}
