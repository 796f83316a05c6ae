//! What components, engine and queue have to say to the person who runs Millpond.

use std::fmt;
use std::sync::Arc;

/// Where warnings for the person who runs Millpond go. Cheap to clone.
#[derive(Clone)]
pub struct Diagnostics(Arc<dyn Fn(&str) + Send + Sync>);

impl Diagnostics {
    /// Warnings go to this function.
    pub fn new(warn: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Self(Arc::new(warn))
    }

    /// Nobody hears the warnings.
    pub fn silent() -> Self {
        Self::new(|_| {})
    }

    /// Says something that a person should know: one line, naming the file, peer or operator.
    pub fn warn(&self, message: &str) {
        (self.0)(message);
    }
}

impl fmt::Debug for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Diagnostics")
    }
}
