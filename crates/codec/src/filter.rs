//! Records that become no events, and what they add up to.

use regex::bytes::RegexSet;

/// Records that became no events, for one reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dropped {
    /// `include_lines`, `exclude_lines`, `blank` (blank lines between JSON documents, byte order marks) or `unreadable`
    /// (what follows a broken MessagePack document).
    pub reason: &'static str,
    /// How many there were.
    pub events: u64,
    /// Their bytes in the stream.
    pub bytes: u64,
}

/// What was dropped since somebody asked.
#[derive(Debug, Default)]
pub(crate) struct Drops(Vec<Dropped>);

impl Drops {
    pub(crate) fn add(&mut self, reason: &'static str, events: u64, bytes: u64) {
        match self.0.iter_mut().find(|dropped| dropped.reason == reason) {
            Some(dropped) => {
                dropped.events += events;
                dropped.bytes += bytes;
            }
            None => self.0.push(Dropped {
                reason,
                events,
                bytes,
            }),
        }
    }

    pub(crate) fn take(&mut self) -> Vec<Dropped> {
        std::mem::take(&mut self.0)
    }
}

/// Which records become events.
#[derive(Debug, Clone)]
pub(crate) struct Filter {
    include: Option<RegexSet>,
    exclude: Option<RegexSet>,
}

impl Filter {
    /// A filter; none where everything passes.
    pub(crate) fn new(include: Option<&RegexSet>, exclude: Option<&RegexSet>) -> Option<Self> {
        let set = |set: Option<&RegexSet>| set.filter(|set| !set.is_empty()).cloned();
        let filter = Self {
            include: set(include),
            exclude: set(exclude),
        };
        (filter.include.is_some() || filter.exclude.is_some()).then_some(filter)
    }

    /// Why a record of this text is dropped; none when it is not.
    pub(crate) fn refuses(&self, text: &[u8]) -> Option<&'static str> {
        let matches = |set: &RegexSet| set.is_match(text);
        if self.include.as_ref().is_some_and(|set| !matches(set)) {
            Some("include_lines")
        } else if self.exclude.as_ref().is_some_and(matches) {
            Some("exclude_lines")
        } else {
            None
        }
    }
}
