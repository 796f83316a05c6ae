//! The verdict on pipelines of which one stage is known to be slow. One test, because tests that run at once would use the CPUs that
//! the verdict is about.

mod common;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use batch::{Batch, Bitmap, Failures, Stream};
use component::{
    AnyOutput, Encoded, Input, InputContext, InputError, Order, Output, Processor, WriteError,
    Writer, Written,
};
use config::Size;
use pipeline::graph::{InputNode, OutputNode, StageNode};
use pipeline::settings::{
    MemoryQueueSettings, OnFailure, ProcessSettings, QueueSettings, SendingSettings,
};
use pipeline::usage::Usage;
use pipeline::verdict::Span;
use pipeline::{Graph, PipelineGraph, Run};
use rustix::time::{ClockId, clock_gettime};

use common::{numbered, options, retry};

const BATCHES: usize = 150;

/// What a stage does for each batch.
#[derive(Debug, Clone, Copy, Default)]
struct Pace {
    /// CPU time that it uses.
    cpu: Duration,
    /// Time that it waits for somebody else.
    wait: Duration,
}

impl Pace {
    const QUICK: Self = Self {
        cpu: Duration::from_micros(50),
        wait: Duration::ZERO,
    };
    const BUSY: Self = Self {
        cpu: Duration::from_millis(3),
        wait: Duration::ZERO,
    };
    const WAITING: Self = Self {
        cpu: Duration::ZERO,
        wait: Duration::from_millis(3),
    };

    fn work(self) {
        let used = || {
            let time = clock_gettime(ClockId::ThreadCPUTime);
            Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
        };
        let begin = used();
        while used() - begin < self.cpu {}
        std::thread::sleep(self.wait);
    }
}

struct Lines(Pace);

#[async_trait]
impl Input for Lines {
    async fn run(self: Box<Self>, ctx: InputContext) -> Result<(), InputError> {
        let stream = Arc::new(Stream::unnamed(1));
        for number in 0..BATCHES {
            let begin = std::time::Instant::now();
            self.0.work();
            let batch = numbered(&ctx.host, &stream, number);
            ctx.metrics.busy(begin.elapsed());
            if ctx.send(batch).await.is_err() {
                break;
            }
        }
        Ok(())
    }
}

#[derive(Clone)]
struct Stage(Pace);

impl Processor for Stage {
    fn process(&mut self, _batch: &mut Batch, _rows: &Bitmap) -> Failures {
        self.0.work();
        Failures::none()
    }
}

struct Destination {
    encode: Pace,
    write: Pace,
}

impl Output for Destination {
    fn encode(&self, _batch: &Batch, rows: &Bitmap, encoded: &mut Encoded) {
        self.encode.work();
        encoded.bytes.push(b'x');
        encoded.rows = rows.count();
    }
}

#[async_trait]
impl Writer for Destination {
    async fn write(&self, _encoded: &Encoded) -> Result<Written, WriteError> {
        self.write.work();
        Ok(Written::default())
    }
}

/// How fast the stages are: the input, three processors, rendering, writing.
#[derive(Debug, Clone, Copy)]
struct Paces {
    input: Pace,
    processors: [Pace; 3],
    encode: Pace,
    write: Pace,
}

impl Default for Paces {
    fn default() -> Self {
        Self {
            input: Pace::QUICK,
            processors: [Pace::QUICK; 3],
            encode: Pace::QUICK,
            write: Pace::QUICK,
        }
    }
}

fn graph(paces: Paces) -> Graph {
    let stage = |(name, pace): (&str, Pace)| StageNode {
        fingerprint: 0,
        name: name.into(),
        is_named: false,
        kind: "stage",
        component: Box::new(Stage(pace)) as Box<dyn Processor>,
        order: Order::Stateless,
        sees_sealed: false,
        condition: None,
        on_failure: OnFailure::Publish,
        would_bury: false,
    };
    let names = ["first", "second", "third"];
    let pipeline = PipelineGraph {
        name: "main".into(),
        inputs: vec![InputNode {
            name: "lines".into(),
            component: Box::new(Lines(paces.input)),
        }],
        fed: None,
        queue: QueueSettings::Memory(MemoryQueueSettings {
            max_bytes: Size(4 << 10),
            ..MemoryQueueSettings::default()
        }),
        stages: names.into_iter().zip(paces.processors).map(stage).collect(),
        outputs: vec![OutputNode {
            name: "away".into(),
            component: AnyOutput::Writer(Arc::new(Destination {
                encode: paces.encode,
                write: paces.write,
            })),
            ordered: true,
            sending: SendingSettings::default(),
            condition: None,
            otherwise: Vec::new(),
            stages: Vec::new(),
        }],
        retry: retry(),
        fingerprint: 0,
        written: Arc::default(),
        is_watched: false,
        is_part: false,
    };
    Graph {
        process: ProcessSettings {
            workers: 1,
            ..ProcessSettings::default()
        },
        fingerprints: Default::default(),
        pipelines: vec![pipeline],
    }
}

#[test]
fn the_slow_stage_is_named() {
    let slow_processor = |slow: usize| Paces {
        processors: std::array::from_fn(|index| match index == slow {
            true => Pace::BUSY,
            false => Pace::QUICK,
        }),
        ..Paces::default()
    };
    let quick = Paces::default();
    let cases = [
        (
            "input lines",
            "the workers were idle",
            Paces {
                input: Pace::BUSY,
                ..quick
            },
        ),
        (
            "input lines",
            "reading from its source",
            Paces {
                input: Pace::WAITING,
                ..quick
            },
        ),
        (
            "processor first",
            "settings that make it cheaper",
            slow_processor(0),
        ),
        (
            "processor second",
            "settings that make it cheaper",
            slow_processor(1),
        ),
        (
            "processor third",
            "settings that make it cheaper",
            slow_processor(2),
        ),
        (
            "output away",
            "less to render",
            Paces {
                encode: Pace::BUSY,
                ..quick
            },
        ),
        (
            "output away",
            "waited for its destination",
            Paces {
                write: Pace::WAITING,
                ..quick
            },
        ),
        (
            "output away",
            "CPU time of rendering",
            Paces {
                write: Pace::BUSY,
                ..quick
            },
        ),
    ];
    for (name, why, paces) in cases {
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        let options = options();
        let activities = options.activities.clone();
        let report = runtime.block_on(async {
            let run = Run::start(graph(paces), options).await;
            run.expect("a memory queue always starts").finish().await
        });
        let pipeline = &report.pipelines[0];
        // Where other programs use the CPUs too, they may be the verdict.
        let usage = Usage {
            others_cpu: Duration::ZERO,
            cpus: report.usage.cpus.max(2),
            ..report.usage
        };
        let verdict = Span::of_run(pipeline, &usage).verdict();
        let limits = verdict.limits.map(|component| component.to_string());
        assert_eq!(limits.as_deref(), Some(name), "{}", verdict.text);
        assert!(verdict.text.contains(why), "{why}: {}", verdict.text);
        // Every stage is charged with what it used, and all together with what the process did.
        let of = |operator: &str| {
            let mut operators = pipeline.operators.iter();
            let found = operators.find(|it| it.name == operator);
            found.expect("the operator").counts.cpu
        };
        let known: Duration = pipeline.operators.iter().map(|it| it.counts.cpu).sum();
        let known = known + pipeline.own.cpu + activities.runtime_cpu();
        assert!(known <= usage.cpu, "{known:?} of {usage:?}");
        for (operator, paces) in [
            ("lines", vec![paces.input]),
            ("first", vec![paces.processors[0]]),
            ("third", vec![paces.processors[2]]),
            ("away", vec![paces.encode, paces.write]),
        ] {
            let used: Duration =
                paces.iter().map(|pace| pace.cpu).sum::<Duration>() * BATCHES as u32;
            let charged = of(operator);
            assert!(
                charged >= used && charged < used + used / 5 + Duration::from_millis(60),
                "{operator} used {used:?} and was charged {charged:?}"
            );
        }
    }
}
