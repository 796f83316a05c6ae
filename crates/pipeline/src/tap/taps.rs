//! The taps of a process.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;

use super::tap::{Tap, TapStatus};
use super::{TAPS_MAX, TapError, TapSettings};

/// The taps of a process, by their keys, which nobody can guess.
#[derive(Debug, Default)]
pub struct Taps(Mutex<BTreeMap<String, Arc<Tap>>>);

impl Taps {
    /// Opens a tap that `attach` puts at its point.
    ///
    /// # Errors
    /// There are too many, or `attach` finds no point.
    pub fn open(
        &self,
        settings: TapSettings,
        attach: impl FnOnce(&Arc<Tap>) -> Result<(), TapError>,
    ) -> Result<String, TapError> {
        let now = Instant::now();
        let mut taps = self.0.lock();
        prune(&mut taps, now);
        if taps.len() >= TAPS_MAX {
            return Err(TapError::TooMany);
        }
        let tap = Arc::new(Tap::new(settings, now));
        attach(&tap)?;
        let [one, two] = [(); 2].map(|()| RandomState::new().hash_one(taps.len()));
        let key = format!("{one:016x}{two:016x}");
        taps.insert(key.clone(), tap);
        Ok(key)
    }

    /// The tap of a key.
    ///
    /// # Errors
    /// There is none, or there is none any more.
    pub fn get(&self, key: &str) -> Result<Arc<Tap>, TapError> {
        let mut taps = self.0.lock();
        prune(&mut taps, Instant::now());
        taps.get(key).cloned().ok_or(TapError::Unknown)
    }

    /// Closes the tap of a key.
    ///
    /// # Errors
    /// There is none, or there is none any more.
    pub fn close(&self, key: &str) -> Result<(), TapError> {
        let tap = self.0.lock().remove(key);
        tap.map(|tap| tap.close()).ok_or(TapError::Unknown)
    }

    /// A pipeline has started, where `attach` finds the points of taps.
    pub fn started(&self, pipeline: &str, attach: impl Fn(&Arc<Tap>) -> Result<(), TapError>) {
        for tap in self.of(pipeline) {
            tap.set_status(match attach(&tap) {
                Ok(()) => TapStatus::Open,
                Err(error) => TapStatus::Gone(error.to_string()),
            });
        }
    }

    /// A pipeline has ended, and may start again.
    pub fn ended(&self, pipeline: &str) {
        let taps = self.of(pipeline);
        taps.iter()
            .for_each(|tap| tap.set_status(TapStatus::Waiting));
    }

    /// A pipeline will not start again, for this reason.
    pub fn gone(&self, pipeline: &str, reason: &str) {
        for tap in self.of(pipeline) {
            tap.set_status(TapStatus::Gone(reason.to_owned()));
        }
    }

    /// Nothing more is shown, for this reason.
    pub fn end(&self, reason: &str) {
        for tap in self.0.lock().values() {
            tap.set_status(TapStatus::Gone(reason.to_owned()));
        }
    }

    fn of(&self, pipeline: &str) -> Vec<Arc<Tap>> {
        let taps = self.0.lock();
        let is_its = |tap: &&Arc<Tap>| tap.settings().pipeline == pipeline;
        taps.values().filter(is_its).cloned().collect()
    }
}

fn prune(taps: &mut BTreeMap<String, Arc<Tap>>, now: Instant) {
    taps.retain(|_, tap| !tap.is_over(now));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tap::{PATIENCE, TapSide};

    fn settings() -> TapSettings {
        TapSettings {
            pipeline: "p".to_owned(),
            operator: None,
            side: TapSide::After,
            condition: None,
            rate: 1,
            with_metadata: false,
        }
    }

    #[test]
    fn there_are_so_many_at_most() {
        let taps = Taps::default();
        let open = || taps.open(settings(), |_| Ok(()));
        let keys: Vec<String> = (0..TAPS_MAX)
            .map(|_| open().expect("there is room"))
            .collect();
        assert!(matches!(open(), Err(TapError::TooMany)));
        taps.close(&keys[0]).expect("it is open");
        assert!(matches!(taps.get(&keys[0]), Err(TapError::Unknown)));
        assert!(open().is_ok() && open().is_err());
    }

    #[test]
    fn a_tap_that_finds_no_point_is_none() {
        let taps = Taps::default();
        let failed = taps.open(settings(), |_| Err(TapError::Ended("p".to_owned())));
        assert!(failed.is_err() && taps.of("p").is_empty());
    }

    #[tokio::test]
    async fn a_tap_outlives_its_pipeline() {
        let taps = Taps::default();
        let key = taps.open(settings(), |_| Ok(())).expect("there is room");
        let tap = taps.get(&key).expect("it is open");
        let status = async || tap.poll(0, std::time::Duration::ZERO).await.status;
        taps.ended("other");
        assert_eq!(status().await, TapStatus::Open);
        taps.ended("p");
        assert_eq!(status().await, TapStatus::Waiting);
        taps.started("p", |_| Ok(()));
        assert_eq!(status().await, TapStatus::Open);
        taps.ended("p");
        taps.started("p", |_| Err(TapError::Ended("why".to_owned())));
        assert!(matches!(status().await, TapStatus::Gone(_)));
        taps.open(settings(), |_| Ok(())).expect("there is room");
        taps.end("stopped");
        let all = taps.of("p");
        let polls = all.iter().map(|tap| tap.poll(0, PATIENCE));
        for poll in polls {
            assert!(matches!(poll.await.status, TapStatus::Gone(_)));
        }
    }
}
