//! The whole queue: inputs send, workers take, outputs pass, the writer writes, syncs and saves, in an order drawn from the
//! seed, also in the middle of each other's disk operations; machines stop and start again.

mod model;
mod settings;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};

use batch::Batch;
use disk::simulation::seeds::{Stage, for_each_seed};
use disk::simulation::{Kind, SimDisk};
use disk::{PAGE, PagePool};
use fastrand::Rng;
use parking_lot::{Mutex, MutexGuard};
use queue::cursor::{Cursors, Examined, Saved};
use queue::log::{BLOCK_HEADER, Log, LogSettings, QUARANTINE};
use queue::{Durability, Entry, Mode, Offer, Queue, QueuePhase, Refused, Taken, WhenFull};

use self::model::{Model, Sent};
use self::settings::Setup;
use crate::support::batches::{self, Content};

#[test]
fn the_queue_delivers_what_it_acknowledged() {
    for_each_seed(|seed, stage| World::new(seed, stage.clone()).live());
}

/// What a part of the system does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    Send,
    Take,
    Pass,
    Write,
    Sync,
    Upkeep,
    Note,
}

/// A machine with its disk, over its crashes.
struct World {
    me: Weak<Self>,
    stage: Stage,
    setup: Setup,
    random: Mutex<Rng>,
    disk: Mutex<SimDisk>,
    queue: Mutex<Option<Arc<Queue>>>,
    model: Mutex<Model>,
    /// What is offered until it is taken.
    offer: Mutex<Option<(Content, Offer)>>,
    clock: Arc<AtomicI64>,
    /// What is being done, while it waits for the disk.
    outer: Mutex<Option<Action>>,
    /// Something happens in the middle of it.
    is_inside: AtomicBool,
    was_flipped: AtomicBool,
    was_cut: AtomicBool,
    /// After a failure some of what was acknowledged may have to be written again.
    is_rewriting: AtomicBool,
    /// Failures of the disk before this run.
    failures_before: AtomicU64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock()
}

impl World {
    fn new(seed: u64, stage: Stage) -> Arc<Self> {
        let mut random = Rng::with_seed(seed);
        let disk = SimDisk::new(random.u64(..));
        let setup = Setup::draw(&mut random);
        stage.show(&disk);
        disk.note(|| format!("{setup:#?}"));
        Arc::new_cyclic(|me| Self {
            me: me.clone(),
            stage,
            setup,
            random: Mutex::new(random),
            disk: Mutex::new(disk),
            queue: Mutex::default(),
            model: Mutex::default(),
            offer: Mutex::default(),
            clock: Arc::new(AtomicI64::new(1)),
            outer: Mutex::default(),
            is_inside: AtomicBool::new(false),
            was_flipped: AtomicBool::new(false),
            was_cut: AtomicBool::new(false),
            is_rewriting: AtomicBool::new(false),
            failures_before: AtomicU64::new(0),
        })
    }

    fn disk(&self) -> SimDisk {
        self.disk.lock().clone()
    }

    fn queue(&self) -> Arc<Queue> {
        lock(&self.queue).clone().expect("the queue is open")
    }

    fn model(&self) -> MutexGuard<'_, Model> {
        lock(&self.model)
    }

    fn draw<T>(&self, draw: impl FnOnce(&mut Rng) -> T) -> T {
        draw(&mut lock(&self.random))
    }

    fn lanes(&self) -> usize {
        self.model().lanes.len()
    }

    fn note(&self, line: impl FnOnce() -> String) {
        self.disk().note(line);
    }

    /// Some runs, and at last one in which everything is well.
    fn live(&self) {
        for _ in 0..self.draw(|random| random.usize(1..5)) {
            let outputs = self.draw(|random| self.setup.outputs_of_a_run(random));
            self.open(outputs);
            self.misbehave();
            for _ in 0..self.draw(|random| random.usize(10..200)) {
                if self.disk().is_down() {
                    break;
                }
                self.step();
            }
            self.end();
        }
        self.open(self.setup.outputs());
        self.finish();
    }

    /// What will go wrong in this run.
    fn misbehave(&self) {
        let disk = self.disk();
        self.draw(|random| {
            if random.u8(..3) == 0 {
                disk.stop_after(Some(random.u64(..400)));
            }
            let capacity = random.usize(20..300) * PAGE;
            disk.set_capacity((random.u8(..4) == 0).then_some(capacity));
        });
    }

    fn step(&self) {
        match self.draw(|random| random.u8(..100)) {
            0..30 => self.act(Action::Send),
            30..50 => self.act(Action::Take),
            50..70 => self.act(Action::Pass),
            70..80 => self.act(Action::Write),
            80..88 => self.act(Action::Sync),
            88..90 => self.act(Action::Upkeep),
            90..92 => self.act(Action::Note),
            92..95 => self.change_pace(),
            95..97 => self.fail_something(),
            97 => self.disk().set_capacity(None),
            98 if self.setup.flips => self.flip(),
            _ => {
                let time = self.draw(|random| random.i64(0..5_000_000_000));
                self.clock.fetch_add(time, Relaxed);
            }
        }
        self.check();
    }

    /// One of the parts goes on, and in the middle of it others may.
    fn act(&self, action: Action) {
        *lock(&self.outer) = Some(action);
        self.note(|| format!("{action:?}"));
        self.perform(action);
        *lock(&self.outer) = None;
    }

    fn perform(&self, action: Action) {
        match action {
            Action::Send => self.send(),
            Action::Take => self.take(),
            Action::Pass => self.pass(),
            Action::Write => self.write(),
            Action::Sync => self.sync(),
            Action::Upkeep => self.queue().upkeep_step(),
            Action::Note => self.queue().note_cursors(),
        }
        self.poll();
    }

    /// Looks which receipts have resolved.
    fn poll(&self) {
        let is_safe = self.setup.settings.durability == Durability::Fsync;
        self.model().poll(is_safe);
    }

    /// Before an operation of the disk: what others may do meanwhile.
    fn interrupt(&self, kind: Kind, name: &str) {
        let Some(outer) = *lock(&self.outer) else {
            return;
        };
        // The log holds a lock while it removes a segment that does not count, and while it sets damage aside.
        if kind == Kind::Remove || name.starts_with(QUARANTINE) {
            return;
        }
        if self.draw(|random| random.u8(..8)) > 0 || self.is_inside.swap(true, Relaxed) {
            return;
        }
        // The writer does one thing after the other, and who reads keeps others from reading there.
        let others: &[Action] = match outer {
            Action::Take => &[
                Action::Send,
                Action::Pass,
                Action::Write,
                Action::Sync,
                Action::Upkeep,
                Action::Note,
            ],
            _ => &[Action::Send, Action::Pass, Action::Take, Action::Note],
        };
        let action = others[self.draw(|random| random.usize(..others.len()))];
        self.note(|| format!("  meanwhile {action:?}"));
        self.perform(action);
        self.is_inside.store(false, Relaxed);
    }

    fn send(&self) {
        let offered = lock(&self.offer).take();
        let (content, offer) = offered.unwrap_or_else(|| {
            let batch = self.make_batch();
            (Content::of(&batch), batch.into())
        });
        let can_wait = self.draw(|random| random.u8(..4) == 0);
        match self.queue().try_send(offer, can_wait) {
            Ok(receipt) => {
                self.note(|| format!("sent {} of {} events", content.number, content.events));
                let is_for_all = self.setup.mode == Mode::Everything;
                self.model().accept(content, receipt, is_for_all);
            }
            Err(Refused::Full(offer)) => *lock(&self.offer) = Some((content, *offer)),
            Err(Refused::Stopped) => panic!("the queue is open"),
        }
    }

    fn make_batch(&self) -> Batch {
        let number = {
            let mut model = self.model();
            model.next_number += 1;
            model.next_number - 1
        };
        let (events, length, fill) = self.draw(|random| {
            let length = match random.u8(..10) {
                0 => random.usize(..self.setup.document_max * 20),
                _ => random.usize(..self.setup.document_max),
            };
            // One without events stands at the end of a run.
            (random.u64(0..12), length, random.u8(b'a'..=b'z'))
        });
        batches::make(number, events, length, fill)
    }

    fn take(&self) {
        let queue = self.queue();
        // Another worker may take what comes next before the processors of outputs have parted.
        let parting = self.model().parting.clone();
        self.take_one(&queue);
        queue.has_parted(&parting);
        let mut model = self.model();
        model.parting.retain(|place| !parting.contains(place));
    }

    fn take_one(&self, queue: &Arc<Queue>) {
        let has_room = {
            let mut model = self.model();
            let lanes = 0..model.lanes.len();
            let may = lanes.map(|lane| {
                let output = model.output(lane);
                !output.is_slow && output.held.len() < 8
            });
            may.collect::<Vec<_>>()
        };
        match queue.try_take(&|lane| has_room[lane]) {
            Ok(None) => {}
            Ok(Some(Taken::Batch(entry, batch))) => {
                self.note(|| {
                    let number = Content::of(&batch).number;
                    format!(
                        "took {number}, sequence {}, for {:?}",
                        entry.sequence, entry.lanes
                    )
                });
                self.poll();
                self.model().give(&batch, &entry);
                if self.setup.keeps_snapshots {
                    self.remember(&batch, &entry);
                }
                self.check_missed();
            }
            Ok(Some(Taken::Lost(entry))) => {
                self.note(|| format!("lost sequence {}", entry.sequence));
                // What was not synced may be torn. Whether something else is missing is seen when the next one comes.
                let disk = self.disk();
                let may_lose = self.was_flipped.load(Relaxed)
                    || self.was_cut.load(Relaxed)
                    || disk.failures() > 0
                    || disk.is_down();
                assert!(may_lose, "sequence {} is lost", entry.sequence);
                if entry.asks_snapshot {
                    queue.keep_snapshot(entry.sequence, None);
                }
                self.model().give_lost(entry.turn, &entry.lanes);
                if self.setup.keeps_snapshots {
                    self.model().part_and_join(&entry);
                }
                for lane in &entry.lanes {
                    entry.ticket.pass(lane.lane);
                }
            }
            Ok(Some(Taken::AtRest { sequence, turn })) => {
                let states = self.model().at_rest(turn);
                self.note(|| format!("remembers up to {sequence}, at rest"));
                queue.keep_snapshot(sequence, Some(states));
            }
            Err(failure) => {
                let disk = self.disk();
                let may_fail = disk.is_down() || disk.failures() > 0;
                assert!(may_fail, "a read failed: {failure}");
            }
        }
    }

    /// A processor gets the batch, and is asked now and then for what it remembers.
    fn remember(&self, batch: &Batch, entry: &Entry) {
        let is_exact = self.is_exact();
        let mut model = self.model();
        model.remember(entry, Content::of(batch).number, is_exact);
        if entry.asks_snapshot {
            let states = model.states();
            drop(model);
            self.note(|| format!("remembers up to {}", entry.sequence));
            self.queue().keep_snapshot(entry.sequence, Some(states));
        }
    }

    /// Whether processors see every batch once and in sequence, however often the machine stops.
    fn is_exact(&self) -> bool {
        let settings = &self.setup.settings;
        // A power cut takes back what was read after a sync that failed, and with intervals what was acknowledged.
        let is_strict = settings.durability == Durability::Fsync && self.disk().failures() == 0;
        let is_kept = is_strict || !self.was_cut.load(Relaxed);
        let is_dropped = settings.max_age.is_some() || settings.when_full == WhenFull::DropOldest;
        is_kept && !is_dropped && !self.setup.flips
    }

    fn check_missed(&self) {
        let dropped = self.dropped();
        self.model().check_missed(dropped);
    }

    /// Events that policies dropped in this run.
    fn dropped(&self) -> u64 {
        let Some(queue) = lock(&self.queue).clone() else {
            return 0;
        };
        let named = queue.metrics().snapshot().named;
        let of = |name: &str| named.get(name).copied().unwrap_or(0);
        of("dropped_oldest") + of("dropped_by_age")
    }

    fn pass(&self) {
        let held = {
            let mut model = self.model();
            let lane = self.draw(|random| random.usize(..model.lanes.len()));
            let output = model.output(lane);
            let held = output.held.len();
            let index = self.draw(|random| match random.u8(..4) {
                0 if held > 0 => random.usize(..held),
                _ => 0,
            });
            output.pass(index).map(|held| (lane, held))
        };
        if let Some((lane, held)) = held {
            self.note(|| format!("lane {lane} passes {}", held.number));
            held.ticket.pass(lane);
        }
    }

    fn write(&self) {
        match self.queue().write_step() {
            Ok(true) => {}
            Ok(false) => self.is_rewriting.store(false, Relaxed),
            Err(_) => self.is_rewriting.store(true, Relaxed),
        }
    }

    fn sync(&self) {
        self.poll();
        let acked = self.model().acked();
        match self.queue().sync_step() {
            Ok(true) => self.note_synced(&acked),
            Ok(false) => {}
            Err(_) => self.is_rewriting.store(true, Relaxed),
        }
    }

    /// What was acknowledged before a sync that succeeded is safe, unless a failure had made it unwritten again.
    fn note_synced(&self, acked: &[u64]) {
        if !self.is_rewriting.load(Relaxed) {
            self.model().mark_synced(acked);
        }
    }

    fn change_pace(&self) {
        let mut model = self.model();
        let lane = self.draw(|random| random.usize(..model.lanes.len()));
        let output = model.output(lane);
        output.is_slow = !output.is_slow;
    }

    fn fail_something(&self) {
        let mut kinds = vec![
            Kind::Sync,
            Kind::Sync,
            Kind::Write,
            Kind::Create,
            Kind::SyncFolder,
            Kind::Cut,
            Kind::Read,
        ];
        // A cursor that should go and stays does not show that what it stood for was dropped.
        if !self.setup.changes_outputs {
            kinds.push(Kind::Remove);
        }
        let (kind, others) = self.draw(|random| {
            let kind = kinds[random.usize(..kinds.len())];
            (kind, random.u64(..5))
        });
        self.disk().fail(kind, others);
    }

    /// Flips a bit somewhere and excuses the batches that it touches.
    fn flip(&self) {
        let disk = self.disk();
        let names = disk.names();
        let (name, offset, bit) = {
            if names.is_empty() {
                return;
            }
            let name = &names[self.draw(|random| random.usize(..names.len()))];
            let length = disk.bytes(name).len();
            if length == 0 {
                return;
            }
            self.draw(|random| (name, random.usize(..length), random.u8(..8)))
        };
        let touched = blocks(&disk, &self.setup.log_settings());
        for (segment, from, end, number) in touched {
            let is_same = *name == format!("segment-{segment:016x}.log");
            if is_same && (from..end).contains(&(offset as u64)) {
                self.note(|| format!("batch {number} is hurt"));
                let mut model = self.model();
                let sent = model.sent.get_mut(&number);
                sent.expect("it was sent").is_excused = true;
            }
        }
        disk.flip(name, offset, bit);
        self.was_flipped.store(true, Relaxed);
    }

    /// What holds at any time.
    fn check(&self) {
        let disk = self.disk();
        if disk.is_down() {
            return;
        }
        // What was never acknowledged is not counted, however a crash left it.
        if !self.setup.flips && disk.failures() == 0 {
            assert_eq!(self.queue().lost(), 0, "nothing is lost without damage");
        }
        let held = self.queue().held();
        let bound = self.setup.memory_bound();
        assert!(held.memory_size <= bound, "{held:?} of {bound} bytes");
        // What was written in vain lies there until it is written again.
        if disk.failures() == 0 {
            let size = disk.size_of("segment-");
            let bound = self.setup.disk_bound();
            assert!(size <= bound, "segments have {size} of {bound} bytes");
        }
    }

    fn open(&self, outputs: Vec<String>) {
        let disk = self.disk();
        // It may stop again while it recovers.
        while self.draw(|random| random.u8(..6) == 0) {
            let disk = self.disk();
            disk.stop_after(Some(self.draw(|random| random.u64(..40))));
            let opened = self.setup.open(&disk, &outputs, &self.clock);
            assert!(opened.is_ok() || disk.is_down(), "{opened:?}");
            drop(opened);
            self.cut_power();
        }
        drop(disk);
        let disk = self.disk();
        if self.stage.tells() {
            let blocks = blocks(&disk, &self.setup.log_settings());
            disk.note(|| format!("segment, from, to, batch: {blocks:?}"));
        }
        disk.note(|| format!("open for {outputs:?}"));
        let opened = self.setup.open(&disk, &outputs, &self.clock);
        self.stage.show(&disk);
        self.is_rewriting.store(false, Relaxed);
        self.failures_before.store(disk.failures(), Relaxed);
        let queue = opened.expect("it always starts");
        self.model().begin_run(outputs, saved(&disk));
        if self.setup.keeps_snapshots {
            let is_exact = self.is_exact();
            self.model().recall(&queue.take_remembered(), is_exact);
        }
        *lock(&self.queue) = Some(queue);
        self.send_again();
        let me = self.me.clone();
        disk.set_hook(Some(Arc::new(move |kind, name| {
            if let Some(world) = me.upgrade() {
                world.interrupt(kind, name);
            }
        })));
    }

    /// An input sends again what it does not know to be safe, and more. The queue leaves out what it has stored.
    fn send_again(&self) {
        if self.setup.mode == Mode::Overflow {
            return;
        }
        let queue = self.queue();
        let is_exact = self.is_exact() && self.disk().failures() == 0;
        let is_sure = is_exact && !self.setup.drops_newest();
        let mut model = self.model();
        let back = self.draw(|random| random.u64(..4));
        let is_due = |sent: &Sent| !sent.is_acked && !sent.is_given_up;
        let due = model.sent.iter().find(|(_, sent)| is_due(sent));
        let from = due.map_or(model.next_number, |(number, _)| *number);
        let sent = model.sent.range(from.saturating_sub(back)..);
        let again: Vec<(u64, u64)> = sent
            .filter(|(_, sent)| !sent.is_given_up && sent.content.events > 0)
            .map(|(number, sent)| (*number, sent.content.events))
            .collect();
        for (number, events) in again {
            match queue.leave_out(batches::make(number, events, 0, b'x')) {
                Ok(receipt) => {
                    self.note(|| format!("{number} is left out"));
                    model.leave_out(number, receipt, is_sure);
                }
                Err(_) => {
                    let is_stored = model.is_stored(number);
                    assert!(
                        !is_exact || !is_stored,
                        "{number} was stored and is not left out"
                    );
                    let sent = model.sent.get_mut(&number);
                    sent.expect("it was sent").is_given_up = true;
                }
            }
        }
    }

    /// The run ends: cleanly, by the end of the process, or by a power cut.
    fn end(&self) {
        let disk = self.disk();
        let way = self.draw(|random| random.u8(..3));
        let is_clean = !disk.is_down()
            && match way {
                0 => self.stop_cleanly(),
                1 => false,
                _ => self.is_killed_after_a_note(),
            };
        disk.set_hook(None);
        self.poll();
        let dropped = self.dropped();
        let files = disk.names();
        self.model().forget_retired(&files);
        self.model().end_run(is_clean, dropped);
        *lock(&self.offer) = None;
        *lock(&self.queue) = None;
        if disk.is_down() || way == 1 {
            self.cut_power();
        } else {
            // With intervals what was acknowledged after a write is written again after a failure, and may not have been yet.
            if !is_clean && disk.failures() > self.failures_before.load(Relaxed) {
                self.model().excuse_unsynced();
            }
            *lock(&self.disk) = disk.restart();
        }
    }

    /// The process is killed after the outputs said what they passed; whether that cannot have failed.
    fn is_killed_after_a_note(&self) -> bool {
        let disk = self.disk();
        disk.set_hook(None);
        self.queue().note_cursors();
        let saved = saved(&disk);
        let have_all_cursors = self
            .model()
            .lanes
            .iter()
            .all(|lane| saved.contains_key(lane));
        have_all_cursors && self.is_well()
    }

    /// Whether nothing went wrong in this run.
    fn is_well(&self) -> bool {
        let disk = self.disk();
        disk.failures() == self.failures_before.load(Relaxed)
            && !disk.is_down()
            && !self.was_flipped.load(Relaxed)
    }

    fn cut_power(&self) {
        let left = self.disk().crash();
        *lock(&self.disk) = left;
        self.model().cut_power();
        self.was_cut.store(true, Relaxed);
    }

    /// Stops as the program does; whether nothing went wrong with it.
    fn stop_cleanly(&self) -> bool {
        self.note(|| "stop".to_owned());
        let disk = self.disk();
        disk.set_hook(None);
        disk.heal();
        disk.set_capacity(None);
        let queue = self.queue();
        queue.close(QueuePhase::Leaving);
        queue.keep_last_snapshot(|| self.model().states());
        let written = loop {
            match queue.write_step() {
                Ok(true) => {}
                Ok(false) => break true,
                Err(_) => break false,
            }
        };
        let synced = queue.sync_step().is_ok();
        queue.upkeep_step();
        self.poll();
        let acked = self.model().acked();
        if written && synced {
            self.model().mark_synced(&acked);
        }
        self.is_well()
    }

    /// Everything goes well from here on: what was acknowledged reaches all outputs, and the room is given back.
    fn finish(&self) {
        let disk = self.disk();
        disk.heal();
        disk.set_capacity(None);
        for lane in 0..self.lanes() {
            self.model().output(lane).is_slow = false;
        }
        let mut idle = 0;
        while idle < 4 {
            let before = self.progress();
            if lock(&self.offer).is_some() {
                self.act(Action::Send);
            }
            for action in [Action::Take, Action::Pass, Action::Write, Action::Sync] {
                self.act(action);
            }
            for lane in 0..self.lanes() {
                self.pass_all(lane);
            }
            if before == self.progress() {
                idle += 1;
                self.clock.fetch_add(2_000_000_000, Relaxed);
                self.act(Action::Upkeep);
            } else {
                idle = 0;
            }
            self.check();
        }
        self.queue().keep_last_snapshot(|| self.model().states());
        self.act(Action::Upkeep);
        self.model().expect_nothing_more();
        self.check_missed();
        let left = disk.size_of("segment-");
        let bound = 2 * self.setup.largest_segment();
        assert!(left <= bound, "{left} bytes are left of an empty queue");
    }

    fn pass_all(&self, lane: usize) {
        loop {
            let held = self.model().output(lane).pass(0);
            let Some(held) = held else { return };
            held.ticket.pass(lane);
        }
    }

    /// What changes as long as something happens.
    fn progress(&self) -> (u64, usize, usize) {
        let model = self.model();
        (model.given, model.sent.len(), model.acked().len())
    }
}

/// What each output's cursor file says.
fn saved(disk: &SimDisk) -> BTreeMap<String, Saved> {
    let examined = Cursors::examine(disk).unwrap_or_default();
    let saved = examined.iter().filter_map(Examined::current);
    saved
        .map(|saved| (saved.output.clone(), saved.clone()))
        .collect()
}

/// Where each stored batch lies: segment, first byte, the byte behind the last, and its number.
fn blocks(disk: &SimDisk, settings: &LogSettings) -> Vec<(u64, u64, u64, u64)> {
    let copy = Arc::new(disk.copy());
    let Ok((log, _)) = Log::open(copy, *settings) else {
        return Vec::new();
    };
    let pool = PagePool::default();
    let mut reader = log.reader(0);
    let mut blocks = Vec::new();
    while let Ok(Some(found)) = reader.next() {
        let loaded = log.load(&found, &pool).ok();
        let Some(batch) = loaded.and_then(|bytes| Batch::thaw(bytes).ok()) else {
            continue;
        };
        let from = found.place.offset;
        let end = from + (BLOCK_HEADER + found.stored_len()) as u64;
        blocks.push((found.place.segment, from, end, Content::of(&batch).number));
    }
    blocks
}
