//! Ids of requests: no two requests have the same one, also in different runs.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

/// Gives ids.
pub struct Ids {
    /// A random number of the lane.
    lane: u64,
    next: AtomicU64,
}

impl Ids {
    pub fn new() -> Self {
        Self {
            // The standard library seeds its hashes at random.
            lane: RandomState::new().build_hasher().finish(),
            next: AtomicU64::new(0),
        }
    }

    /// An id that was not given before.
    pub fn next(&self) -> u128 {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        u128::from(self.lane) << 64 | u128::from(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_id_is_given_twice() {
        let lanes = [Ids::new(), Ids::new()];
        let mut ids: Vec<u128> = lanes
            .iter()
            .flat_map(|lane| (0..100).map(|_| lane.next()))
            .collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), 200);
    }
}
