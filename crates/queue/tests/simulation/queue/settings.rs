//! How a simulated queue is set up.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

use config::{Count, Period, Size};
use disk::PAGE;
use disk::simulation::SimDisk;
use fastrand::Rng;
use queue::log::{Compression, LogEnd, LogSettings};
use queue::{
    DiskOptions, DiskSettings, Durability, Limits, Mode, NewOutput, Queue, QueueError, WhenFull,
};

/// Drawn once for each seed.
#[derive(Debug)]
pub struct Setup {
    pub settings: DiskSettings,
    pub mode: Mode,
    limits: Limits,
    outputs: usize,
    may_part: bool,
    /// Whether processors remember what they saw.
    pub keeps_snapshots: bool,
    /// Whether outputs come and go.
    pub changes_outputs: bool,
    /// Bytes of a document, which may be twenty times as many now and then.
    pub document_max: usize,
    pub flips: bool,
}

fn one_of<T: Copy>(random: &mut Rng, choices: &[T]) -> T {
    choices[random.usize(..choices.len())]
}

impl Setup {
    pub fn draw(random: &mut Rng) -> Self {
        use Compression::{Lz4, None as Plain, Zstd};
        use WhenFull::{Block, DropNewest, DropOldest};
        let page = PAGE as u64;
        let segment_size = random.u64(3..20) * page;
        let minute = Period::from_secs(60);
        let settings = DiskSettings {
            max_bytes: Size(segment_size * random.u64(2..20)),
            max_events: Some(Count(one_of(random, &[10, 50, 1000, u64::MAX / 2]))),
            max_age: (random.u8(..6) == 0).then_some(minute),
            when_full: one_of(random, &[Block, Block, DropNewest, DropOldest]),
            durability: one_of(random, &[Durability::Fsync, Durability::Interval]),
            sync_interval: Period::from_secs(1),
            group_bytes: Size(random.u64(1..20) * page),
            group_time: Period::from_millis(2),
            compression: one_of(random, &[Plain, Plain, Lz4, Zstd]),
            segment_bytes: Size(segment_size),
            cache_bytes: Size(one_of(random, &[1, 1000, 20_000, 1_000_000])),
            min_free_bytes: Size(one_of(random, &[0, 10 * page])),
            new_output: one_of(random, &[NewOutput::Oldest, NewOutput::Now]),
            orphan_retention: Period::from_secs(1 << 32),
            ..DiskSettings::default()
        };
        let mode = one_of(
            random,
            &[Mode::Everything, Mode::Everything, Mode::Overflow],
        );
        let keeps_snapshots = mode == Mode::Everything && random.bool();
        Self {
            mode,
            limits: Limits {
                size_max: one_of(random, &[1, 2000, 50_000]),
                events_max: one_of(random, &[10, 1000]),
            },
            outputs: random.usize(1..4),
            may_part: random.bool(),
            keeps_snapshots,
            changes_outputs: random.u8(..4) == 0,
            document_max: one_of(random, &[10, 100, 1000]),
            flips: random.u8(..4) == 0,
            settings,
        }
    }

    /// Whether what comes to a full queue is dropped.
    pub fn drops_newest(&self) -> bool {
        self.settings.when_full == WhenFull::DropNewest
    }

    /// All outputs there are.
    pub fn outputs(&self) -> Vec<String> {
        (0..self.outputs)
            .map(|index| format!("out{index}"))
            .collect()
    }

    /// Those that one run has.
    pub fn outputs_of_a_run(&self, random: &mut Rng) -> Vec<String> {
        let mut outputs = self.outputs();
        if self.changes_outputs {
            random.shuffle(&mut outputs);
            outputs.truncate(random.usize(1..=self.outputs));
        }
        outputs
    }

    pub fn open(
        &self,
        disk: &SimDisk,
        outputs: &[String],
        clock: &Arc<AtomicI64>,
    ) -> Result<Arc<Queue>, QueueError> {
        let clock = Arc::clone(clock);
        let names: Vec<&str> = outputs.iter().map(String::as_str).collect();
        let options = DiskOptions {
            mode: self.mode,
            limits: self.limits,
            may_part: self.may_part,
            is_ordered: self.keeps_snapshots,
            keeps_snapshots: self.keeps_snapshots,
            clock: Arc::new(move || clock.load(Relaxed)),
            ..DiskOptions::new(self.settings.clone(), &names)
        };
        Queue::open_on(Arc::new(disk.clone()), options)
    }

    pub fn log_settings(&self) -> LogSettings {
        LogSettings {
            segment_size: self.settings.segment_bytes.0,
            quarantine_size_max: 1 << 30,
            synced: LogEnd::START,
            passed: LogEnd::START,
        }
    }

    /// Bytes of the largest batch, as a queue counts them.
    fn largest_batch(&self) -> usize {
        12 * (self.document_max * 20 + 100) + 1000
    }

    pub fn largest_segment(&self) -> usize {
        let segment = usize::try_from(self.settings.segment_bytes.0).expect("a small one");
        segment.max(self.largest_batch() + 3 * PAGE)
    }

    /// The most bytes of batches in memory.
    pub fn memory_bound(&self) -> usize {
        let memory = match self.mode {
            Mode::Everything => self.settings.cache_bytes.bytes(),
            Mode::Overflow => self.limits.size_max,
        };
        2 * memory + 2 * self.largest_batch()
    }

    /// The most bytes of segments: what a limit does not see is what is already on its way when it is met.
    pub fn disk_bound(&self) -> usize {
        let limit = usize::try_from(self.settings.max_bytes.0).expect("a small one");
        limit + 2 * self.largest_segment()
    }
}
