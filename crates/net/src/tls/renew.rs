//! What is made from files is made anew when they change.
//!
//! Whoever uses it causes the look at the files: at most one in [`LOOK_AGAIN`], a `stat` each. Files that cannot be used, such
//! as a certificate whose key is not there yet, leave in use what was made before; that is said once, and tried again
//! at the next look.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;

use super::Fault;
use crate::stamp::{LOOK_AGAIN, Stamp};

/// A value made from files.
pub struct Renewing<T> {
    files: Vec<PathBuf>,
    make: Box<dyn Fn() -> Result<Arc<T>, Fault> + Send + Sync>,
    state: Mutex<Loaded<T>>,
}

struct Loaded<T> {
    value: Arc<T>,
    /// The files that `value` was made from.
    stamps: Vec<Option<Stamp>>,
    looked: Instant,
    /// What is wrong with the files as they are now.
    fault: Option<Fault>,
    warnings: Vec<String>,
}

impl<T> Renewing<T> {
    /// Makes the value for the first time.
    pub fn new(
        files: Vec<PathBuf>,
        make: impl Fn() -> Result<Arc<T>, Fault> + Send + Sync + 'static,
    ) -> Result<Self, Fault> {
        // Before they are read: a file that changes in between is read again.
        let stamps = stamps(&files);
        let state = Loaded {
            value: make()?,
            stamps,
            looked: Instant::now(),
            fault: None,
            warnings: Vec::new(),
        };
        Ok(Self {
            files,
            make: Box::new(make),
            state: Mutex::new(state),
        })
    }

    /// The value as the files have it.
    pub fn get(&self) -> Arc<T> {
        let mut state = self.state.lock();
        if state.looked.elapsed() >= LOOK_AGAIN {
            self.look(&mut state);
            state.looked = Instant::now();
        }
        state.value.clone()
    }

    fn look(&self, state: &mut Loaded<T>) {
        let stamps = stamps(&self.files);
        if stamps == state.stamps {
            state.fault = None;
            return;
        }
        match (self.make)() {
            Ok(value) => {
                state.value = value;
                state.stamps = stamps;
                state.fault = None;
            }
            Err(fault) if state.fault.as_ref() != Some(&fault) => {
                state.warnings.push(format!(
                    "the renewed certificate cannot be used, the old one stays in use: {fault}"
                ));
                state.fault = Some(fault);
            }
            Err(_) => {}
        }
    }

    /// What a person should hear, since the last call.
    pub fn take_warnings(&self) -> Vec<String> {
        let mut state = self.state.lock();
        std::mem::take(&mut state.warnings)
    }
}

fn stamps(files: &[PathBuf]) -> Vec<Option<Stamp>> {
    files.iter().map(|path| Stamp::of(path).ok()).collect()
}
