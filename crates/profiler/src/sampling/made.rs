//! Names of code that is made while programs run, from their perf maps; those of JVMs are asked for ([`jvm`](super::jvm)).
//!
//! Code is moved and freed, so it is named when it is sampled. A map may come later than the code: what has no name by then is looked up once more when a
//! profile is finished.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use super::jvm::asking::Asking;
use super::runtimes::Runtime;
use crate::profile::{FrameKind, Profile, StackId, label};
use crate::symbols::perf_map::PerfMap;

/// A JVM is asked once so much of its time was in code without names: shorter programs are left alone.
const UNNAMED_MIN: Duration = Duration::from_millis(250);

/// Names of the code of all processes.
#[derive(Default)]
pub struct MadeCode {
    maps: HashMap<u32, PerfMap>,
    /// Those that were looked at since the buffers were emptied last.
    fresh: HashSet<u32>,
    /// Samples of processes with code that had no name, of the profile that is not finished.
    unnamed: HashMap<u32, u32>,
    /// Processes that have ended, with code that had no name.
    ended: HashSet<u32>,
    asking: Option<Asking>,
    /// So many samples without names are [`UNNAMED_MIN`].
    samples_min: u32,
}

impl MadeCode {
    /// Names for samples that are taken so many times a second. With `asks`, JVMs are asked for theirs.
    pub fn new(frequency_hz: u32, asks: bool) -> Self {
        Self {
            asking: asks.then(Asking::start).flatten(),
            samples_min: (UNNAMED_MIN.as_secs_f64() * f64::from(frequency_hz)) as u32,
            ..Self::default()
        }
    }

    /// Maps that have changed are read again, and those that JVMs have given are taken.
    pub fn look_again(&mut self) {
        self.fresh.clear();
        let given = self.asking.as_mut().map(Asking::maps);
        self.keep(given.unwrap_or_default());
    }

    fn keep(&mut self, given: Vec<(u32, Vec<u8>)>) {
        for (pid, text) in given {
            let map = self.maps.entry(pid).or_insert_with(|| PerfMap::of(pid));
            map.replace(&text);
        }
    }

    /// The function at an address of a process.
    pub fn name(&mut self, pid: u32, address: u64) -> Option<String> {
        let map = self.maps.entry(pid).or_insert_with(|| PerfMap::of(pid));
        if self.fresh.insert(pid) {
            // One that is not there, or was read before and is gone, is as it was.
            let _ = map.refresh();
        }
        map.name(address)
    }

    /// A sample of a process has code without a name.
    pub fn miss(&mut self, pid: u32, runtime: Option<Runtime>) {
        let samples = self.unnamed.entry(pid).or_default();
        *samples = samples.saturating_add(1);
        if let Some(asking) = &mut self.asking
            && runtime == Some(Runtime::Jvm)
            && *samples > self.samples_min
        {
            asking.want(pid);
        }
    }

    /// Asks JVMs whose code had no names once more, and waits so long for their maps.
    pub fn finish(&mut self, timeout: Duration) {
        let given = self.asking.as_mut().map(|asking| asking.finish(timeout));
        self.keep(given.unwrap_or_default());
    }

    /// Why a JVM has given no map.
    pub fn failure(&self, pid: u32) -> Option<String> {
        match &self.asking {
            Some(asking) => asking.failure(pid).map(ToString::to_string),
            None => Some(format!(
                "it is not asked for one; `jcmd {pid} Compiler.perfmap` does that"
            )),
        }
    }

    /// A finished profile with the names that are known by now.
    pub fn name_late(&mut self, profile: Profile) -> Profile {
        self.look_again();
        let mut maps = HashMap::new();
        for (pid, map) in &mut self.maps {
            if self.unnamed.contains_key(pid) {
                // As above.
                let _ = map.refresh();
                maps.insert(pid.to_string(), &*map);
            }
        }
        maps.retain(|_, map| !map.is_empty());
        let profile = match maps.is_empty() {
            true => profile,
            false => renamed(&profile, &maps),
        };
        self.unnamed.clear();
        for pid in std::mem::take(&mut self.ended) {
            self.forget(pid);
        }
        profile
    }

    /// A process has begun, perhaps with the number of one that has ended.
    pub fn begin(&mut self, pid: u32) {
        self.ended.remove(&pid);
        self.forget(pid);
    }

    /// Processes have ended.
    pub fn end(&mut self, gone: &[u32]) {
        for pid in gone {
            match self.unnamed.contains_key(pid) {
                true => drop(self.ended.insert(*pid)),
                false => self.forget(*pid),
            }
        }
    }

    fn forget(&mut self, pid: u32) {
        self.maps.remove(&pid);
        if let Some(asking) = &mut self.asking {
            asking.forget(pid);
        }
    }
}

/// A profile with the names of the maps of its processes.
fn renamed(profile: &Profile, maps: &HashMap<String, &PerfMap>) -> Profile {
    let mut named = Profile::new(profile.window, profile.frequency_hz);
    named.lost = profile.lost;
    for (stack, set, weight) in profile.samples() {
        let map = profile
            .label_of(set, label::PID)
            .and_then(|pid| maps.get(pid));
        let mut frames: Vec<_> = profile.frame_ids(stack).collect();
        frames.reverse();
        let mut of_named = StackId::EMPTY;
        for frame in frames {
            let mut frame = profile.frame_of(frame);
            let is_open = frame.function.is_empty() && frame.kind() == FrameKind::Interpreted;
            if let Some(map) = map.filter(|_| is_open)
                && let Some(name) = map.name(frame.address)
            {
                (frame.function, frame.address) = (name.into(), 0);
            }
            let frame = named.frame(&frame);
            of_named = named.call(of_named, frame);
        }
        let labels: Vec<_> = profile.labels_of(set).collect();
        let labels = named.labels(&labels);
        named.add(of_named, labels, weight);
    }
    for (set, events) in profile.events() {
        let labels: Vec<_> = profile.labels_of(set).collect();
        let labels = named.labels(&labels);
        named.count_events(labels, events);
    }
    named
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::{Frame, Weight, Window};

    #[test]
    fn code_is_named_by_the_map_of_its_process() {
        let mut profile = Profile::new(Window::default(), 20.0);
        profile.lost = 3;
        let made = |address| Frame {
            binary: "[jvm]".into(),
            address,
            ..Frame::default()
        };
        let native = Frame {
            binary: "/bin/java".into(),
            address: 0x10,
            ..Frame::default()
        };
        let stack = profile.stack([native, made(0x10), made(0x30)]);
        let weight = Weight {
            samples: 1,
            cpu_ns: 2,
        };
        for pid in ["1", "2"] {
            let labels = profile.labels(&[(label::PID, pid)]);
            profile.add(stack, labels, weight);
            profile.count_events(labels, 5);
        }
        let mut map = PerfMap::default();
        map.add(b"10 10 a.B::c\n");
        let named = renamed(&profile, &HashMap::from([("2".to_owned(), &map)]));
        assert_eq!((named.lost, named.total()), (3, profile.total()));
        assert_eq!(named.events().map(|(_, events)| events).sum::<u64>(), 10);
        let mut stacks: Vec<Vec<String>> = named
            .samples()
            .map(|(stack, _, _)| {
                let frames = named.frame_ids(stack);
                frames
                    .map(|frame| named.frame_of(frame).name().into_owned())
                    .collect()
            })
            .collect();
        stacks.sort();
        assert_eq!(
            stacks,
            [
                ["[jvm]+0x30", "[jvm]+0x10", "java+0x10"],
                ["[jvm]+0x30", "a.B::c", "java+0x10"]
            ]
        );
    }
}
