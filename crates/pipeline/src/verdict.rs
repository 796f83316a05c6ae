//! What limits a pipeline over a span of time: how each stage spent it, and one sentence.
//!
//! # How it is found
//! In a pipeline that has more to do than it can, the stages before the slowest one wait for it to take events, and those behind it wait
//! for events. The rules are tried in this order:
//!
//! 1. *Outputs*: workers had batches and waited because outputs had no room. The output that waited longest for its destination, or used
//!    its own thread most, limits. Writes that a queue on disk makes come here too: its inputs waited, the workers did not.
//! 2. *Other programs*: all CPUs were in use, others had a notable part of them, and stages had work to do.
//! 3. *A processor or output* that uses most of the time of busy workers, or *the CPUs*, where all were in use and nobody had most.
//! 4. *An output* that waits for its destination while inputs wait for the memory, or the room in the queue, that its events take.
//! 5. *An input* that was at work most of the time.
//! 6. Nothing: the pipeline waited for events.
//!
//! Which operator uses the most is said of CPU time, because where CPUs are short, time by the wall clock passes for those that wait too.

use std::time::Duration;

use component::metrics::Snapshot;
use component::{Component, plural};

use crate::report::{OperatorReport, PipelineReport, Role};
use crate::usage::Usage;

/// From this share of the time on, a stage is called busy, or waiting.
const MOST: f64 = 0.5;

/// From this share of their time on, CPUs are called fully used.
const FULL: f64 = 0.9;

/// From this share of the CPUs on, other programs are named.
const OTHERS: f64 = 0.15;

/// How a stage spent a span of time; the shares add up to 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Shares {
    /// At work.
    pub busy: f64,
    /// Waiting for what comes from the stage before it, or from the source.
    pub waiting_for_input: f64,
    /// Waiting for the stage behind it, or for the destination or the disk.
    pub waiting_for_output: f64,
}

/// What limits a pipeline.
#[derive(Debug, Clone, PartialEq)]
pub struct Verdict {
    /// The operator that limits; none where it is the machine, or nothing.
    pub limits: Option<Component>,
    /// One or two sentences: what limits and what would help.
    pub text: String,
}

/// What a pipeline did in a span of time, and what the process used in it.
#[derive(Debug, Clone, Copy)]
pub struct Span<'a> {
    /// The pipeline's own work.
    pub own: &'a Snapshot,
    /// Its operators in the order of the flow.
    pub operators: &'a [OperatorReport],
    /// What the process used.
    pub usage: &'a Usage,
    /// How long events were under way that had been read before: at the end of a run, since nothing more was read; in a window, since
    /// the oldest one that is in the queue was read.
    pub lag: Duration,
}

impl<'a> Span<'a> {
    /// A whole run.
    pub fn of_run(pipeline: &'a PipelineReport, usage: &'a Usage) -> Self {
        Self {
            own: &pipeline.own,
            operators: &pipeline.operators,
            usage,
            lag: pipeline.after_reading,
        }
    }

    /// Names what limits the pipeline.
    pub fn verdict(&self) -> Verdict {
        self.outputs()
            .or_else(|| self.disk())
            .or_else(|| self.others())
            .or_else(|| self.workers())
            .or_else(|| self.cpus())
            .or_else(|| self.held())
            .or_else(|| self.inputs())
            .or_else(|| self.behind())
            .unwrap_or_else(|| self.nothing())
    }

    fn of_wall(&self, time: Duration) -> f64 {
        (time.as_secs_f64() / self.usage.wall.as_secs_f64().max(1e-9)).clamp(0.0, 1.0)
    }

    /// The share of all workers' time.
    fn of_workers(&self, time: Duration) -> f64 {
        self.of_wall(time / self.usage.workers.max(1) as u32)
    }

    /// How much of the time workers had batches and outputs had no room.
    fn blocked(&self) -> f64 {
        self.of_workers(self.own.wait)
    }

    /// How an operator spent the time.
    pub fn shares(&self, operator: &OperatorReport) -> Shares {
        let counts = &operator.counts;
        let (busy, out) = match operator.role {
            // Several threads may read.
            Role::Input => self.of_threads(counts.busy, counts.wait),
            Role::Processor => (self.of_workers(counts.busy), self.blocked()),
            Role::Queue => (self.of_wall(counts.cpu), self.of_wall(counts.wait)),
            // Its thread sends while it waits, so that the CPU time says what it did.
            Role::Output => (self.of_wall(counts.cpu), self.of_wall(counts.wait)),
        };
        let busy = busy.min(1.0);
        let out = out.min(1.0 - busy);
        Shares {
            busy,
            waiting_for_output: out,
            waiting_for_input: (1.0 - busy - out).max(0.0),
        }
    }

    /// Times of as many threads as they must have been.
    fn of_threads(&self, busy: Duration, wait: Duration) -> (f64, f64) {
        let wall = self.usage.wall.as_secs_f64().max(1e-9);
        let (busy, wait) = (busy.as_secs_f64() / wall, wait.as_secs_f64() / wall);
        let threads = (busy + wait).max(1.0);
        (busy / threads, wait / threads)
    }

    fn of_role(&self, roles: &[Role]) -> impl Iterator<Item = &OperatorReport> {
        let operators = self.operators.iter();
        operators.filter(move |operator| roles.contains(&operator.role))
    }

    /// How much of the time the inputs waited for the pipeline: that of the one that waited most.
    fn inputs_waited(&self) -> f64 {
        let inputs = self.of_role(&[Role::Input]);
        let waited = inputs.map(|input| self.shares(input).waiting_for_output);
        waited.fold(0.0, f64::max)
    }

    fn workers_busy(&self) -> f64 {
        let at_work = self.of_role(&[Role::Processor, Role::Output]);
        self.of_workers(at_work.map(|operator| operator.counts.busy).sum())
    }

    /// An output that has no room for what the workers have.
    fn outputs(&self) -> Option<Verdict> {
        if self.blocked() < MOST {
            return None;
        }
        let held_up = |output: &&OperatorReport| {
            let shares = self.shares(output);
            ((shares.busy + shares.waiting_for_output) * 1e6) as u64
        };
        let output = self.of_role(&[Role::Output]).max_by_key(held_up)?;
        let Shares {
            busy,
            waiting_for_output,
            ..
        } = self.shares(output);
        let blocked = percent(self.blocked());
        Some(if busy > waiting_for_output {
            limits(
                output,
                &format!(
                    "the CPU time of rendering, compressing and sending was {} of the time, and the workers waited for it {blocked}",
                    percent(busy)
                ),
                "less compression, or a second output of the same kind that takes a part of the events",
            )
        } else {
            limits(
                output,
                &format!(
                    "it waited for its destination {} of the time, and the workers waited for it {blocked}",
                    percent(waiting_for_output)
                ),
                "a faster destination, more requests at once, or larger ones",
            )
        })
    }

    /// A queue whose writes take the time, so that inputs wait and workers do not get enough.
    fn disk(&self) -> Option<Verdict> {
        let queue = self.of_role(&[Role::Queue]).next()?;
        let writes = self.of_wall(queue.counts.wait);
        let waited = self.inputs_waited();
        let is_slowest = writes > MOST && waited > MOST && self.workers_busy() < writes;
        is_slowest.then(|| {
            limits(
                queue,
                &format!(
                    "its writes took {} of the time, and the inputs waited {}",
                    percent(writes),
                    percent(waited)
                ),
                "a faster disk, or compression of the queue",
            )
        })
    }

    fn cpus_used(&self) -> f64 {
        let others = self.usage.share(self.usage.others_cpu);
        self.usage.share(self.usage.cpu) + others
    }

    /// Whether there was something to do most of the time, for workers or an input, that no destination held up.
    fn has_work(&self) -> bool {
        let inputs = self.of_role(&[Role::Input]);
        let had_events = inputs.map(|input| 1.0 - self.shares(input).waiting_for_input);
        let most = had_events.fold(self.workers_busy(), f64::max);
        most >= MOST && self.held().is_none()
    }

    /// Other programs on CPUs that are fully used.
    fn others(&self) -> Option<Verdict> {
        let others = self.usage.share(self.usage.others_cpu);
        let is_so = others >= OTHERS && self.cpus_used() >= FULL && self.has_work();
        is_so.then(|| Verdict {
            limits: None,
            text: format!(
                "Other programs limit this pipeline: they used {} of {}, and Millpond {}.{} A machine of its own would help.",
                percent(others),
                plural(self.usage.cpus as u64, "CPU"),
                percent(self.usage.share(self.usage.cpu)),
                self.most_for()
            ),
        })
    }

    /// What used the most CPU time, as a sentence.
    fn most_for(&self) -> String {
        let most = self.operators.iter();
        most.max_by_key(|it| it.counts.cpu)
            .filter(|most| most.counts.cpu > Duration::ZERO)
            .map_or_else(String::new, |most| {
                let share = most.counts.cpu.as_secs_f64() / self.usage.cpu.as_secs_f64().max(1e-9);
                format!(
                    " Of its CPU time, {} used the most: {}.",
                    component_of(most),
                    percent(share)
                )
            })
    }

    /// A processor, or the rendering of an output, that has most of the time of busy workers.
    fn workers(&self) -> Option<Verdict> {
        let inputs = self.of_role(&[Role::Input]);
        let input_cpu = inputs.map(|it| it.counts.cpu).max()?;
        let at_work = self.of_role(&[Role::Processor, Role::Output]);
        let most = at_work.max_by_key(|operator| operator.counts.cpu)?;
        let (busy, own) = (self.workers_busy(), self.of_workers(most.counts.busy));
        let per_worker = most.counts.cpu / self.usage.workers.max(1) as u32;
        // Where CPUs are short, everybody seems busy: then it is the one that uses most of them.
        let is_slowest = match self.usage.share(self.usage.cpu) >= FULL {
            true => most.counts.cpu * 2 > self.usage.cpu,
            false => busy > MOST && per_worker > input_cpu,
        };
        is_slowest.then(|| {
            let who = match self.usage.workers {
                1 => "the worker".to_owned(),
                2 => "both workers".to_owned(),
                count => format!("all {count} workers"),
            };
            let more = match self.usage.workers < self.usage.cpus {
                true => format!("more `workers`, for there are {} CPUs", self.usage.cpus),
                false => "more CPUs".to_owned(),
            };
            limits(
                most,
                &format!(
                    "it had {} of the time of {who}, all operators together {}; the inputs waited {}",
                    percent(own),
                    percent(busy),
                    percent(self.inputs_waited())
                ),
                &match most.role {
                    Role::Output => format!("{more}, or less to render"),
                    _ => format!("{more}, or settings that make it cheaper"),
                },
            )
        })
    }

    /// CPUs that are fully used, by no operator most.
    fn cpus(&self) -> Option<Verdict> {
        let own = self.usage.share(self.usage.cpu);
        // Another pipeline of the process may be what uses them.
        (own >= FULL && self.has_work()).then(|| Verdict {
            limits: None,
            text: format!(
                "The CPUs limit this pipeline: Millpond used {} of {}.{} More CPUs would help.",
                percent(own),
                plural(self.usage.cpus as u64, "CPU"),
                self.most_for()
            ),
        })
    }

    /// An output whose events take the room that inputs wait for.
    fn held(&self) -> Option<Verdict> {
        let waited = self.inputs_waited();
        if waited < MOST {
            return None;
        }
        let waiting = |output: &&OperatorReport| output.counts.wait;
        let output = self.of_role(&[Role::Output]).max_by_key(waiting)?;
        let for_destination = self.shares(output).waiting_for_output;
        (for_destination >= MOST).then(|| {
            limits(
                output,
                &format!(
                    "it waited for its destination {} of the time, and the inputs waited {} for room that its events take",
                    percent(for_destination),
                    percent(waited)
                ),
                "a faster destination, a larger queue, or more `max_memory_bytes`",
            )
        })
    }

    /// An input that is at work most of the time.
    fn inputs(&self) -> Option<Verdict> {
        let inputs = self.of_role(&[Role::Input]);
        let busy = |input: &&OperatorReport| (self.shares(input).busy * 1e6) as u64;
        let input = inputs.max_by_key(busy)?;
        let shares = self.shares(input);
        if shares.busy < MOST {
            return None;
        }
        let idle = percent(1.0 - self.workers_busy());
        let Some(read) = self.waits_for_source(input) else {
            return Some(limits(
                input,
                &format!(
                    "it was busy {} of the time, and the workers were idle {idle}",
                    percent(shares.busy)
                ),
                "a second input of its kind with a part of the sources",
            ));
        };
        Some(limits(
            input,
            &format!(
                "reading from its source took {} of the time, and the workers were idle {idle}",
                percent(read)
            ),
            "a faster disk, or compressed files",
        ))
    }

    /// How much of the time an input waited while it read, where that is most of what it did.
    fn waits_for_source(&self, input: &OperatorReport) -> Option<f64> {
        let counts = &input.counts;
        let waited = counts.busy.saturating_sub(counts.cpu);
        let is_most = waited > counts.cpu && self.cpus_used() < FULL;
        is_most.then(|| self.of_threads(waited, counts.wait).0)
    }

    /// An output that is behind with what was read before, while its destination had requests all the time.
    fn behind(&self) -> Option<Verdict> {
        let lag = self.of_wall(self.lag);
        let waiting = |output: &&OperatorReport| output.counts.wait;
        let output = self.of_role(&[Role::Output]).max_by_key(waiting)?;
        let for_destination = self.shares(output).waiting_for_output;
        (lag >= MOST && for_destination >= MOST).then(|| {
            limits(
                output,
                &format!(
                    "it waited for its destination {} of the time, with events that had been read before",
                    percent(for_destination)
                ),
                "a faster destination, more requests at once, or larger ones",
            )
        })
    }

    fn nothing(&self) -> Verdict {
        let inputs = self.of_role(&[Role::Input]);
        let waiting = |input: &OperatorReport| self.shares(input).waiting_for_input;
        let waited = inputs.map(waiting).fold(f64::INFINITY, f64::min);
        let text = match waited {
            f64::INFINITY => "Nothing limits this pipeline: it has no input.".to_owned(),
            MOST.. => format!(
                "Nothing limits this pipeline: its inputs waited for events {} of the time, and the workers were busy {}.",
                percent(waited),
                percent(self.workers_busy())
            ),
            _ => format!(
                "Nothing limits this pipeline by itself: its inputs waited for events {} of the time, the workers were busy {}, and Millpond used {} of {}.{}",
                percent(waited),
                percent(self.workers_busy()),
                percent(self.usage.share(self.usage.cpu)),
                plural(self.usage.cpus as u64, "CPU"),
                self.most_for()
            ),
        };
        Verdict { limits: None, text }
    }
}

fn component_of(operator: &OperatorReport) -> Component {
    Component::new(operator.role, &operator.name)
}

/// That an operator limits, why, and what would help.
fn limits(operator: &OperatorReport, why: &str, help: &str) -> Verdict {
    let component = component_of(operator);
    let name = component.to_string();
    let name = name[..1].to_uppercase() + &name[1..];
    Verdict {
        limits: Some(component),
        text: format!("{name} limits this pipeline: {why}. What would help: {help}."),
    }
}

fn percent(share: f64) -> String {
    format!("{:.0} %", (share * 100.0).clamp(0.0, 100.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Times in milliseconds of a span of one second: CPU, busy, waiting.
    type Times = (u64, u64, u64);

    /// A pipeline of an input, a queue on disk, two processors and two outputs, with two workers on two CPUs.
    struct Case {
        operators: [Times; 6],
        /// How long workers waited for outputs, all together.
        blocked: u64,
        others: u64,
        cpus: usize,
        /// How long it was behind.
        lag: u64,
    }

    const NAMES: [(Role, &str); 6] = [
        (Role::Input, "file"),
        (Role::Queue, "disk"),
        (Role::Processor, "grok"),
        (Role::Processor, "date"),
        (Role::Output, "http"),
        (Role::Output, "archive"),
    ];

    impl Case {
        fn new(operators: [Times; 6]) -> Self {
            Self {
                operators,
                blocked: 0,
                others: 0,
                cpus: 2,
                lag: 0,
            }
        }

        fn verdict(&self) -> Verdict {
            let millis = Duration::from_millis;
            let counts = |(cpu, busy, wait): Times| Snapshot {
                cpu: millis(cpu),
                busy: millis(busy),
                wait: millis(wait),
                ..Snapshot::default()
            };
            let named = NAMES.iter().zip(self.operators);
            let operators: Vec<_> = named
                .map(|(&(role, name), times)| OperatorReport {
                    role,
                    name: name.to_owned(),
                    counts: counts(times),
                    metric: None,
                })
                .collect();
            let usage = Usage {
                wall: millis(1000),
                cpus: self.cpus,
                workers: 2,
                cpu: operators.iter().map(|operator| operator.counts.cpu).sum(),
                kernel_cpu: Duration::ZERO,
                others_cpu: millis(self.others),
            };
            let own = counts((0, 0, self.blocked));
            for operator in &operators {
                let span = Span {
                    own: &own,
                    operators: &operators,
                    usage: &usage,
                    lag: millis(self.lag),
                };
                let shares = span.shares(operator);
                let sum = shares.busy + shares.waiting_for_input + shares.waiting_for_output;
                assert!((sum - 1.0).abs() < 1e-9, "{shares:?}");
            }
            let span = Span {
                own: &own,
                operators: &operators,
                usage: &usage,
                lag: millis(self.lag),
            };
            span.verdict()
        }

        fn limits(&self) -> (Option<String>, String) {
            let verdict = self.verdict();
            let limits = verdict.limits.map(|component| component.to_string());
            (limits, verdict.text)
        }
    }

    const IDLE: Times = (1, 1, 0);

    #[test]
    fn the_slowest_stage_limits() {
        let wait = |times: Times| (times.0, times.1, 900);
        let input_waits = wait(IDLE);
        for (operators, blocked, name, why) in [
            // The input has a thread of its own, which never waits.
            (
                [(900, 990, 5), IDLE, (300, 300, 0), IDLE, IDLE, IDLE],
                0,
                "input file",
                "busy 99 %",
            ),
            // It reads from a slow disk.
            (
                [(90, 980, 5), IDLE, (30, 30, 0), IDLE, IDLE, IDLE],
                0,
                "input file",
                "faster disk",
            ),
            (
                [
                    input_waits,
                    IDLE,
                    (1300, 1300, 0),
                    (200, 250, 0),
                    IDLE,
                    IDLE,
                ],
                0,
                "processor grok",
                "65 % of the time of both workers",
            ),
            (
                [
                    input_waits,
                    IDLE,
                    (200, 200, 0),
                    (1300, 1500, 0),
                    IDLE,
                    IDLE,
                ],
                0,
                "processor date",
                "more CPUs",
            ),
            (
                [input_waits, IDLE, IDLE, IDLE, (1200, 1250, 10), IDLE],
                0,
                "output http",
                "less to render",
            ),
            // A request is always under way, and both workers wait.
            (
                [input_waits, IDLE, IDLE, IDLE, (10, 20, 990), (10, 10, 200)],
                1900,
                "output http",
                "waited for its destination 99 %",
            ),
            (
                [input_waits, IDLE, IDLE, IDLE, IDLE, (10, 10, 950)],
                1900,
                "output archive",
                "faster destination",
            ),
            // Its own thread compresses.
            (
                [input_waits, IDLE, IDLE, IDLE, (980, 900, 10), IDLE],
                1500,
                "output http",
                "less compression",
            ),
            // The queue is full, or memory is short, and the workers have nothing.
            (
                [input_waits, IDLE, IDLE, IDLE, (5, 5, 995), IDLE],
                0,
                "output http",
                "room that its events take",
            ),
            (
                [input_waits, (50, 0, 930), IDLE, IDLE, IDLE, IDLE],
                0,
                "queue",
                "its writes took 93 %",
            ),
        ] {
            let mut case = Case::new(operators);
            case.blocked = blocked;
            let (limits, text) = case.limits();
            assert_eq!(limits.as_deref(), Some(name), "{text}");
            assert!(text.contains(why), "{text}");
        }
    }

    #[test]
    fn others_limit_nobody_who_waits() {
        let waits = (1, 1, 990);
        let mut case = Case::new([waits, IDLE, IDLE, IDLE, (5, 5, 995), IDLE]);
        case.others = 1990;
        let (limits, text) = case.limits();
        assert_eq!(limits.as_deref(), Some("output http"), "{text}");
        // Workers that get no CPU, and an input that waits for them.
        let starved = Case {
            others: 1990,
            ..Case::new([(40, 450, 530), IDLE, (200, 700, 0), IDLE, IDLE, IDLE])
        };
        let (limits, text) = starved.limits();
        assert_eq!(limits, None, "{text}");
        assert!(text.starts_with("Other programs limit"), "{text}");
        case.operators[4] = IDLE;
        case.operators[0] = IDLE;
        let (limits, text) = case.limits();
        assert_eq!(limits, None, "{text}");
        assert!(text.starts_with("Nothing limits"), "{text}");
    }

    #[test]
    fn a_destination_limits_while_an_output_is_behind() {
        let latency = [IDLE, IDLE, IDLE, IDLE, (5, 5, 1000), IDLE];
        let mut case = Case::new(latency);
        case.lag = 900;
        let (limits, text) = case.limits();
        assert_eq!(limits.as_deref(), Some("output http"), "{text}");
        assert!(text.contains("had been read before"), "{text}");
        case.operators[4] = IDLE;
        assert_eq!(case.limits().0, None);
    }

    #[test]
    fn requests_under_way_limit_nothing_while_workers_have_nothing() {
        let latency = [IDLE, IDLE, IDLE, IDLE, (5, 5, 1000), IDLE];
        let mut case = Case::new(latency);
        case.lag = 100;
        let (limits, text) = case.limits();
        assert_eq!(limits, None, "{text}");
        assert!(text.starts_with("Nothing limits"), "{text}");
        assert!(text.contains("waited for events 100 %"), "{text}");
    }

    #[test]
    fn where_several_share_the_time_what_used_the_cpus_is_named() {
        let case = Case::new([
            (400, 450, 300),
            IDLE,
            (900, 900, 0),
            (30, 30, 0),
            IDLE,
            IDLE,
        ]);
        let (limits, text) = case.limits();
        assert_eq!(limits, None, "{text}");
        assert!(
            text.starts_with("Nothing limits this pipeline by itself"),
            "{text}"
        );
        assert!(text.contains("inputs waited for events 25 %"), "{text}");
        assert!(text.contains("processor grok used the most"), "{text}");
    }

    #[test]
    fn where_cpus_are_short_the_machine_is_named() {
        // Everybody seems busy, because they wait for the CPU.
        let mut case = Case::new([
            (320, 990, 0),
            IDLE,
            (400, 990, 0),
            (100, 500, 0),
            (170, 100, 0),
            IDLE,
        ]);
        case.cpus = 1;
        let (limits, text) = case.limits();
        assert_eq!(limits, None, "{text}");
        assert!(text.starts_with("The CPUs limit"), "{text}");
        assert!(text.contains("of 1 CPU."), "{text}");
        assert!(
            text.contains("processor grok used the most: 40 %"),
            "{text}"
        );
        // One that uses most of them is what limits.
        case.operators[2].0 = 900;
        assert_eq!(case.limits().0.as_deref(), Some("processor grok"));
        // So do others that use as much.
        case.operators[2].0 = 200;
        case.operators[0].0 = 100;
        case.others = 500;
        let (limits, text) = case.limits();
        assert_eq!(limits, None, "{text}");
        assert!(text.starts_with("Other programs limit"), "{text}");
    }

    #[test]
    fn a_pipeline_that_others_feed_has_no_input_of_its_own() {
        let usage = Usage {
            wall: Duration::from_secs(1),
            cpus: 2,
            workers: 2,
            cpu: Duration::ZERO,
            kernel_cpu: Duration::ZERO,
            others_cpu: Duration::ZERO,
        };
        let span = Span {
            own: &Snapshot::default(),
            operators: &[],
            usage: &usage,
            lag: Duration::ZERO,
        };
        let verdict = span.verdict();
        assert!(verdict.text.contains("no input"), "{}", verdict.text);
    }
}
