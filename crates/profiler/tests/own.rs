//! A process samples itself: by the kernel's events, and by timers where there are none. Samples have the labels of what their thread worked for
//! when they were taken.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use profiler::Profile;
use profiler::filter::Filter;
use profiler::profile::label;
use profiler::sampling::{Background, Options, Recorded, Stats, Target};
use profiler::symbols::Symbols;
use profiler::top::{Group, table};
use rustix::time::{ClockId, clock_gettime};

/// One test at a time: a process is sampled once.
static ALONE: Mutex<()> = Mutex::new(());

/// Processor time of the two kinds of work. Neither they nor their sum is near to a multiple of the time between two samples.
const HEAVY: Duration = Duration::from_micros(1_757);
const LIGHT: Duration = Duration::from_micros(753);

fn clock(id: ClockId) -> Duration {
    let now = clock_gettime(id);
    Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec as u32)
}

fn now_ns() -> u64 {
    clock(ClockId::Monotonic).as_nanos() as u64
}

/// Processor time of this thread. On a busy machine less than the time that passes, which would cut one kind of work shorter than the other.
fn cpu() -> Duration {
    clock(ClockId::ThreadCPUTime)
}

#[inline(never)]
fn heavy(time: Duration) {
    let begin = cpu();
    while cpu() - begin < time {
        black_box((0..1000_u64).map(black_box).sum::<u64>());
    }
}

#[inline(never)]
fn light(time: Duration) {
    let begin = cpu();
    while cpu() - begin < time {
        black_box((0..1000_u64).map(black_box).product::<u64>());
    }
}

/// What the thread that works did from when on. The others, such as the one that reads the samples, work for nobody.
#[derive(Clone, Default)]
struct Notes {
    thread: Arc<AtomicU32>,
    steps: Arc<Mutex<Vec<(u64, &'static str)>>>,
}

impl Notes {
    fn add(&self, label: &'static str) {
        self.steps.lock().push((now_ns(), label));
    }

    fn at(&self, thread: u32, time: u64) -> Option<&'static str> {
        if thread != self.thread.load(Ordering::Relaxed) {
            return None;
        }
        let steps = self.steps.lock();
        let index = steps.partition_point(|(from, _)| *from <= time);
        let (_, label) = steps[index.checked_sub(1)?];
        (!label.is_empty()).then_some(label)
    }
}

/// Works, and tells the processor time of that.
fn work(notes: &Notes) -> Duration {
    let thread = rustix::thread::gettid().as_raw_nonzero().get();
    notes.thread.store(thread.unsigned_abs(), Ordering::Relaxed);
    let begin = cpu();
    while cpu() - begin < Duration::from_secs(3) {
        notes.add("heavy");
        heavy(HEAVY);
        notes.add("light");
        light(LIGHT);
    }
    notes.add("");
    cpu() - begin
}

/// The profile, what came of the samples, and the processor time of the work.
fn sampled(by_timers: bool) -> (Profile, Stats, Duration) {
    let mut options = Options::new(Target::This, 997);
    options.by_timers = by_timers;
    let notes = Notes::default();
    let known = notes.clone();
    let purpose = move |thread, time| {
        let label = known.at(thread, time)?;
        Some(("test".into(), label.into()))
    };
    let profiles = Arc::new(Mutex::new(Vec::new()));
    let all = profiles.clone();
    let each = move |recorded: Recorded| all.lock().push((recorded.profile, recorded.stats));
    let slice = Duration::from_secs(1);
    let background = Background::start(&options, Some(Box::new(purpose)), slice, each);
    let background = background.expect("the right to sample");
    assert_eq!(background.is_by_timers(), by_timers);
    let worker = std::thread::spawn(move || work(&notes));
    let worked = worker.join().expect("no panic");
    background.stop();
    let profiles = std::mem::take(&mut *profiles.lock());
    assert!(profiles.len() >= 3, "a slice is a second");
    let mut whole = Profile::default();
    let stats = profiles.last().expect("profiles").1;
    profiles
        .iter()
        .for_each(|(profile, _)| whole.merge(profile, |_| true));
    (whole, stats, worked)
}

fn check(by_timers: bool) {
    let _alone = ALONE.lock();
    let (profile, stats, worked) = sampled(by_timers);
    let named = Symbols::new().name(&profile);
    // Where others use the processors a timer's sample stands for several periods.
    let enough = if by_timers { 50 } else { 1000 };
    assert!(stats.samples > enough, "{stats:?}");
    assert!((stats.broken + stats.cut) * 50 < stats.samples, "{stats:?}");
    let of = |operator: &str, function: Option<&str>| {
        let filter = Filter {
            labels: vec![(label::OPERATOR.to_owned(), operator.to_owned())],
            function: function.map(str::to_owned),
        };
        let all = table(&named, &filter, &Group::Function).all;
        all.cpu_ns as f64 / 1e9
    };
    let (heavy, light) = (of("heavy", None), of("light", None));
    let cpu = (heavy + light) / worked.as_secs_f64();
    assert!((0.9..1.1).contains(&cpu), "{cpu} of {worked:?}: {stats:?}");
    let share = heavy / (heavy + light);
    // Five standard deviations of so many samples by chance.
    let points = 5.0 * (0.7 * 0.3 / stats.samples as f64).sqrt();
    assert!((share - 0.7).abs() < points, "{share}: {stats:?}");
    for (operator, other) in [("heavy", "light"), ("light", "heavy")] {
        let right = of(operator, Some(operator));
        let wrong = of(operator, Some(other));
        // Between a note and the function's first instruction there is a little time, in which the kernel may interrupt. It is 4 to 6 % in a build without
        // optimisation.
        let share = right / of(operator, None);
        assert!(share > 0.9, "{operator}: {share}");
        assert!(wrong / of(operator, None) < 0.02, "{operator}: {wrong}");
    }
}

#[test]
fn samples_of_events_know_what_their_thread_worked_for() {
    check(false);
}

#[test]
fn samples_of_timers_know_what_their_thread_worked_for() {
    check(true);
}
