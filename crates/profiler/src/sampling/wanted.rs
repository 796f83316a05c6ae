//! Which processes are sampled: all, or some with those that they start.
//!
//! # Limits
//! Processes are forgotten when they end; where the record of that was lost, when their number is given to another one, or when there are
//! [`UNSEEN_MAX`] more than there were at the last look.

use std::collections::HashSet;
use std::fs;

use super::Target;

/// How many may be added before those are looked for that have ended unseen.
const UNSEEN_MAX: usize = 512;

/// The processes that are sampled.
#[derive(Debug)]
pub(super) struct Wanted {
    /// None where all are.
    pids: Option<HashSet<u32>>,
    look_at: usize,
}

impl Wanted {
    pub(super) fn of(target: &Target) -> Self {
        let pids = match target {
            Target::All => None,
            Target::This => Some(HashSet::from([std::process::id()])),
            Target::Processes(processes) => Some(processes.iter().copied().collect()),
        };
        let given = pids.as_ref().map_or(0, HashSet::len);
        Self {
            pids,
            look_at: given + UNSEEN_MAX,
        }
    }

    /// Whether a process is sampled.
    pub(super) fn has(&self, pid: u32) -> bool {
        self.pids.as_ref().is_none_or(|pids| pids.contains(&pid))
    }

    /// A process began as a copy of another one; itself where it is a thread.
    pub(super) fn begin(&mut self, pid: u32, parent: u32) {
        let Some(pids) = &mut self.pids else {
            return;
        };
        match pids.contains(&parent) {
            true => pids.insert(pid),
            false => pids.remove(&pid),
        };
        if pids.len() >= self.look_at {
            pids.retain(|pid| fs::metadata(format!("/proc/{pid}")).is_ok());
            self.look_at = pids.len() + UNSEEN_MAX;
        }
    }

    /// Forgets processes that have ended.
    pub(super) fn forget(&mut self, gone: &[u32]) {
        if let Some(pids) = &mut self.pids {
            gone.iter().for_each(|pid| {
                pids.remove(pid);
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_that_others_start_are_wanted_until_they_end() {
        let mut wanted = Wanted::of(&Target::Processes(vec![1]));
        wanted.begin(70_000_000, 1);
        wanted.begin(70_000_001, 70_000_000);
        wanted.begin(70_000_002, 2);
        let has =
            |wanted: &Wanted| [1, 70_000_000, 70_000_001, 70_000_002].map(|pid| wanted.has(pid));
        assert_eq!(has(&wanted), [true, true, true, false]);
        wanted.forget(&[70_000_000]);
        // A number that was lost sight of is given to another process.
        wanted.begin(70_000_001, 2);
        assert_eq!(has(&wanted), [true, false, false, false]);
        assert!(Wanted::of(&Target::All).has(70_000_002));
    }

    #[test]
    fn processes_whose_end_was_lost_are_forgotten() {
        let mut wanted = Wanted::of(&Target::This);
        let own = std::process::id();
        for pid in 70_000_000..70_010_000 {
            wanted.begin(pid, own);
            assert!(wanted.has(own) && wanted.pids.as_ref().unwrap().len() <= UNSEEN_MAX + 1);
        }
    }
}
