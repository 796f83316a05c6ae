//! A thread that asks one JVM after the other for its map, so that nobody waits for them.

use std::collections::HashMap;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::Builder;
use std::time::{Duration, Instant};

use super::{AttachError, map};

/// How long the first map of a JVM is good enough. Each further one is for twice as long, up to [`PAUSE_MAX`]: the longer a program runs, the less new code
/// it has.
const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// How many JVMs wait to be asked.
const WAITING_MAX: usize = 64;

/// The thread, and what it was asked to do.
pub struct Asking {
    queue: SyncSender<u32>,
    answers: Receiver<(u32, Result<Vec<u8>, AttachError>)>,
    known: HashMap<u32, Known>,
}

/// What is known of a JVM.
#[derive(Debug, Default)]
struct Known {
    /// When it may be asked again; none while it is being asked, or where that is of no use.
    due: Option<Instant>,
    /// How long the last map was good enough.
    pause: Option<Duration>,
    is_asked: bool,
    failed: Option<AttachError>,
}

impl Asking {
    /// Starts the thread; none where the system has none.
    pub fn start() -> Option<Self> {
        let (queue, waiting) = sync_channel(WAITING_MAX);
        let (to, answers) = sync_channel(WAITING_MAX);
        let run = move || {
            for pid in waiting {
                if to.send((pid, map(pid))).is_err() {
                    return;
                }
            }
        };
        let thread = Builder::new().name("jvm-maps".to_owned()).spawn(run);
        thread.ok().map(|_| Self {
            queue,
            answers,
            known: HashMap::new(),
        })
    }

    /// A JVM has code whose names are wanted. It is asked now, or when its last map is old enough.
    pub fn want(&mut self, pid: u32) {
        let now = Instant::now();
        let known = self.known.entry(pid).or_insert_with(|| Known {
            due: Some(now),
            ..Known::default()
        });
        if known.due.is_some_and(|due| due <= now) {
            ask(&self.queue, pid, known);
        }
    }

    /// The maps that have come.
    pub fn maps(&mut self) -> Vec<(u32, Vec<u8>)> {
        let answers: Vec<_> = self.answers.try_iter().collect();
        let noted = answers
            .into_iter()
            .filter_map(|(pid, answer)| self.note(pid, answer));
        noted.collect()
    }

    /// Asks those once more whose last map may be old, and waits so long for their maps.
    pub fn finish(&mut self, timeout: Duration) -> Vec<(u32, Vec<u8>)> {
        let end = Instant::now() + timeout;
        let mut maps = self.maps();
        for (pid, known) in &mut self.known {
            if known.failed.is_none() && !known.is_asked {
                ask(&self.queue, *pid, known);
            }
        }
        while self.known.values().any(|known| known.is_asked) {
            let rest = end.saturating_duration_since(Instant::now());
            match self.answers.recv_timeout(rest) {
                Ok((pid, answer)) => maps.extend(self.note(pid, answer)),
                // Too slow, or the thread has ended.
                Err(_) => break,
            }
        }
        maps
    }

    /// Why a JVM writes no map.
    pub fn failure(&self, pid: u32) -> Option<&AttachError> {
        self.known.get(&pid)?.failed.as_ref()
    }

    /// A process has ended.
    pub fn forget(&mut self, pid: u32) {
        self.known.remove(&pid);
    }

    fn note(&mut self, pid: u32, answer: Result<Vec<u8>, AttachError>) -> Option<(u32, Vec<u8>)> {
        // One that has ended meanwhile is not known any more.
        let known = self.known.get_mut(&pid)?;
        known.is_asked = false;
        let again = answer.as_ref().err().is_none_or(AttachError::may_pass);
        let pause = known.pause.map_or(PAUSE, |last| (last * 2).min(PAUSE_MAX));
        known.pause = Some(pause);
        known.due = again.then(|| Instant::now() + pause);
        match answer {
            Ok(map) => {
                known.failed = None;
                Some((pid, map))
            }
            Err(error) => {
                known.failed = Some(error);
                None
            }
        }
    }
}

fn ask(queue: &SyncSender<u32>, pid: u32, known: &mut Known) {
    match queue.try_send(pid) {
        Ok(()) => {
            known.is_asked = true;
            known.due = None;
        }
        Err(TrySendError::Full(_)) => {}
        Err(TrySendError::Disconnected(_)) => known.due = None,
    }
}
