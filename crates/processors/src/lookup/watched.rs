//! A table that is read again when its file changes.
//!
//! A thread of its own looks at the file every few seconds, from the first batch on and until nobody uses the table any more. It reads a
//! changed file when two looks in a row found the same, so that one that is being written is left alone, and does not use what it
//! read of one that changed meanwhile. Then it puts the new table in the place of the old one, which goes when the last batch that
//! points into it is gone. Workers never wait: they take the table that is there.

use std::convert::Infallible;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use component::Warning;
use net::Stamp;
use parking_lot::{Mutex, RwLock};

use super::error::TableError;
use super::plan::Plan;
use super::read::read_table;
use super::table::Table;

/// How often the thread looks at the file.
pub(super) const EVERY: Duration = Duration::from_secs(2);

/// A table that is shared by all instances of a processor.
#[derive(Debug)]
pub(super) struct WatchedTable {
    plan: Plan,
    table: RwLock<Arc<Table>>,
    /// What was read, at the start.
    first: Seen,
    every: Duration,
    /// Ends the thread when it is dropped.
    thread: OnceLock<Option<SyncSender<Infallible>>>,
    news: Mutex<News>,
}

/// What happened since it was last asked for.
#[derive(Debug, Default)]
struct News {
    reloads: u64,
    failed: u64,
    warnings: Vec<Warning>,
}

/// What a look at a file found: its stamp, or why there is none.
type Seen = Result<Stamp, String>;

fn look(path: &str) -> Seen {
    Stamp::of(Path::new(path)).map_err(|error| error.to_string())
}

impl WatchedTable {
    /// Reads the table. Its file is looked at again so often.
    ///
    /// # Errors
    /// The table cannot be used.
    pub fn open(plan: Plan, every: Duration) -> Result<Arc<Self>, TableError> {
        let first = look(&plan.path);
        let table = read_table(&plan)?;
        if let Some(unknown) = table.unknown.first() {
            return Err(TableError::UnknownColumn(unknown.clone()));
        }
        Ok(Arc::new(Self {
            table: RwLock::new(Arc::new(table)),
            plan,
            first,
            every,
            thread: OnceLock::new(),
            news: Mutex::default(),
        }))
    }

    /// How the table is read.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The table as it is now.
    pub fn table(self: &Arc<Self>) -> Arc<Table> {
        self.thread.get_or_init(|| self.start());
        self.table.read().clone()
    }

    /// How often the table was read again since the last call, and how often it could not be used.
    pub fn take_reloads(&self) -> (u64, u64) {
        let mut news = self.news.lock();
        let News {
            reloads, failed, ..
        } = &mut *news;
        (std::mem::take(reloads), std::mem::take(failed))
    }

    /// What a user should hear, since the last call.
    pub fn take_warnings(&self) -> Vec<Warning> {
        std::mem::take(&mut self.news.lock().warnings)
    }

    fn start(self: &Arc<Self>) -> Option<SyncSender<Infallible>> {
        let (stop, stopped) = sync_channel(0);
        let (watched, every) = (Arc::downgrade(self), self.every);
        let mut reloads = Reloads {
            handled: self.first.clone(),
            found: self.first.clone(),
        };
        let work = move || {
            while has_passed(every, &stopped) && reloads.look(&watched) {}
        };
        match component::thread::start("lookup", work) {
            Ok(_) => Some(stop),
            Err(error) => {
                let text = format!(
                    "no thread to read the table `{}` again when it changes: {error}",
                    self.plan.path
                );
                self.news.lock().warnings.push(text.into());
                None
            }
        }
    }

    /// Puts a table that was read again in the place of the old one, or says why not.
    fn replace(&self, read: Result<Table, String>) {
        match read {
            Ok(table) => {
                *self.table.write() = Arc::new(table);
                self.news.lock().reloads += 1;
            }
            Err(reason) => {
                let text = format!(
                    "the table `{}` has changed and cannot be used: {reason}; the one from before stays in use",
                    self.plan.path
                );
                let mut news = self.news.lock();
                news.failed += 1;
                news.warnings.push(text.into());
            }
        }
    }
}

/// Whether the time is over; not if it should not go on.
fn has_passed(time: Duration, stopped: &Receiver<Infallible>) -> bool {
    matches!(stopped.recv_timeout(time), Err(RecvTimeoutError::Timeout))
}

/// What the thread knows of the file.
struct Reloads {
    /// What was read, or could not be.
    handled: Seen,
    /// What the last look found.
    found: Seen,
}

impl Reloads {
    /// Looks at the file, and reads it where it has changed. `false` when nobody uses the table any more.
    fn look(&mut self, watched: &Weak<WatchedTable>) -> bool {
        let Some(watched) = watched.upgrade() else {
            return false;
        };
        let path = &watched.plan.path;
        let before = std::mem::replace(&mut self.found, look(path));
        if self.found == self.handled || self.found != before {
            return true;
        }
        let read = match &self.found {
            Ok(_) => read_table(&watched.plan).map_err(|error| error.to_string()),
            Err(error) => Err(error.clone()),
        };
        if look(path) == self.found {
            self.handled = self.found.clone();
            watched.replace(read);
        }
        true
    }
}
