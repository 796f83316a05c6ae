//! `/metrics`: every counter of the process as a family of metrics.

use std::collections::BTreeMap;
use std::iter;
use std::time::{Duration, Instant};

use component::Role;
use component::metrics::Snapshot;
use component::series::{Metric, MetricKind, SampleValue};
use parking_lot::Mutex;
use pipeline::view::{OutputState, OutputView, PipelineView};
use pipeline::{OperatorReport, View};

use super::exposition::{Exposition, Family, Format, Kind};
use super::process::Process;

/// How long what was found about files counts: an input may read thousands.
const FILES_FRESH: Duration = Duration::from_secs(5);

/// What a family has a sample of for each operator.
struct OfOperators {
    family: Family<'static>,
    value: fn(&Snapshot) -> f64,
}

/// What a family has a sample of for each pipeline.
struct OfPipelines {
    family: Family<'static>,
    value: fn(&PipelineView) -> Option<f64>,
}

const fn counter(name: &'static str, unit: &'static str, help: &'static str) -> Family<'static> {
    let kind = Kind::Counter;
    Family {
        name,
        kind,
        unit,
        help,
    }
}

const fn gauge(name: &'static str, unit: &'static str, help: &'static str) -> Family<'static> {
    let kind = Kind::Gauge;
    Family {
        name,
        kind,
        unit,
        help,
    }
}

/// Families with a sample for each operator.
static OPERATORS: [OfOperators; 9] = [
    OfOperators {
        family: counter("millpond_operator_events_in", "", "Events that came in."),
        value: |counts| counts.events_in as f64,
    },
    OfOperators {
        family: counter("millpond_operator_events_out", "", "Events that left."),
        value: |counts| counts.events_out as f64,
    },
    OfOperators {
        family: counter(
            "millpond_operator_bytes",
            "bytes",
            "Source bytes read by inputs, bytes written by outputs.",
        ),
        value: |counts| counts.bytes as f64,
    },
    OfOperators {
        family: counter("millpond_operator_failed_events", "", "Events that failed."),
        value: |counts| counts.failures as f64,
    },
    OfOperators {
        family: counter(
            "millpond_operator_dropped_events",
            "",
            "Events that were dropped.",
        ),
        value: |counts| counts.dropped as f64,
    },
    OfOperators {
        family: counter(
            "millpond_operator_dead_letters",
            "",
            "Events that became dead letters.",
        ),
        value: |counts| counts.dead_letters as f64,
    },
    OfOperators {
        family: counter(
            "millpond_operator_cpu_seconds",
            "seconds",
            "CPU time, all threads together.",
        ),
        value: |counts| counts.cpu.as_secs_f64(),
    },
    OfOperators {
        family: counter(
            "millpond_operator_busy_seconds",
            "seconds",
            "Time at work by the wall clock, all instances together.",
        ),
        value: |counts| counts.busy.as_secs_f64(),
    },
    OfOperators {
        family: counter(
            "millpond_operator_wait_seconds",
            "seconds",
            "Time spent waiting: for the queue, for memory, for the destination.",
        ),
        value: |counts| counts.wait.as_secs_f64(),
    },
];

/// Families with a sample for each pipeline.
static PIPELINES: [OfPipelines; 9] = [
    OfPipelines {
        family: gauge(
            "millpond_queue_events",
            "",
            "Events that came in and that some output has not taken.",
        ),
        value: |pipeline| Some(pipeline.queue.events as f64),
    },
    OfPipelines {
        family: gauge(
            "millpond_queue_memory_bytes",
            "bytes",
            "Memory of what waits in the queue or is being worked on.",
        ),
        value: |pipeline| Some(pipeline.queue.memory_bytes as f64),
    },
    OfPipelines {
        family: gauge(
            "millpond_queue_disk_bytes",
            "bytes",
            "Size of the queue on disk, reserved room included.",
        ),
        value: |pipeline| {
            pipeline
                .is_on_disk
                .then_some(pipeline.queue.disk_bytes as f64)
        },
    },
    OfPipelines {
        family: gauge(
            "millpond_queue_oldest_age_seconds",
            "seconds",
            "How long the oldest event has been in the queue; 0 where it is empty.",
        ),
        value: |pipeline| Some(pipeline.queue.oldest.unwrap_or_default().as_secs_f64()),
    },
    OfPipelines {
        family: gauge(
            "millpond_queue_paused",
            "",
            "1 where events cannot be stored, because the disk is full or fails.",
        ),
        value: |pipeline| {
            let is_paused = u8::from(pipeline.queue.is_paused);
            pipeline.is_on_disk.then_some(is_paused.into())
        },
    },
    OfPipelines {
        family: counter(
            "millpond_pipeline_unclaimed_events",
            "",
            "Events that went to no output, because no condition was true.",
        ),
        value: |pipeline| Some(pipeline.unclaimed as f64),
    },
    OfPipelines {
        family: counter(
            "millpond_pipeline_refused_events",
            "",
            "Events that outputs refused and that are lost, because there are no dead letters.",
        ),
        value: |pipeline| Some(pipeline.refused as f64),
    },
    OfPipelines {
        family: counter(
            "millpond_pipeline_cpu_seconds",
            "seconds",
            "CPU time of the work of the pipeline that is none of its operators'.",
        ),
        value: |pipeline| Some(pipeline.own.cpu.as_secs_f64()),
    },
    OfPipelines {
        family: counter(
            "millpond_pipeline_blocked_seconds",
            "seconds",
            "Time that workers waited because outputs had no room.",
        ),
        value: |pipeline| Some(pipeline.own.wait.as_secs_f64()),
    },
];

const OCCURRENCES: Family<'static> = counter(
    "millpond_operator_occurrences",
    "",
    "What happened at an operator, by kind, such as retries or refused connections.",
);
const CONNECTIONS: Family<'static> = gauge(
    "millpond_input_connections",
    "",
    "Connections of clients that are open.",
);
const IN_FLIGHT: Family<'static> = gauge(
    "millpond_output_requests_in_flight",
    "",
    "Requests that were sent and not answered.",
);
const WAITING: Family<'static> = gauge(
    "millpond_output_requests_waiting",
    "",
    "Requests that wait to be sent, or to be sent again.",
);
const PAUSED: Family<'static> = gauge(
    "millpond_output_paused",
    "",
    "1 where the output waits before it tries again.",
);
const FAILED: Family<'static> = gauge(
    "millpond_output_failed",
    "",
    "1 where the output has failed for good.",
);
const LAG: Family<'static> = gauge(
    "millpond_input_lag_events",
    "",
    "Events of the source of an input that were not delivered, where the source tells.",
);
const FILES: Family<'static> = gauge("millpond_input_files", "", "Files that an input knows.");
const FILE_LAG: Family<'static> = gauge(
    "millpond_input_file_lag_bytes",
    "bytes",
    "Bytes of the files of an input that are not read yet.",
);
const FILE_AGE: Family<'static> = gauge(
    "millpond_input_file_lag_seconds",
    "seconds",
    "How long something has been in a file of the input that is not read yet: the longest.",
);

/// The files of an input together.
#[derive(Debug, Clone, Default)]
struct FilesOfInput {
    files: u64,
    lag_bytes: u64,
    lag_seconds: u64,
}

/// What a sample says of something.
type Value<T> = fn(&T) -> u64;

type Files = BTreeMap<(String, String), FilesOfInput>;

/// Writes the metrics of a process.
#[derive(Default)]
pub struct MetricsPage {
    files: Mutex<Option<(Instant, Files)>>,
}

impl MetricsPage {
    /// The page.
    pub fn text(&self, format: Format, view: &View, process: &Process) -> String {
        let pipelines = view.look(false);
        let mut text = Exposition::new(format);
        build(&mut text);
        of_process(&mut text, process);
        for OfPipelines { family, value } in &PIPELINES {
            text.family(family);
            for pipeline in &pipelines {
                if let Some(value) = value(pipeline) {
                    text.sample(&[("pipeline", &pipeline.name)], value);
                }
            }
        }
        for OfOperators { family, value } in &OPERATORS {
            text.family(family);
            each_operator(&pipelines, |labels, operator| {
                text.sample(labels, value(&operator.counts));
            });
        }
        text.family(&OCCURRENCES);
        each_operator(&pipelines, |[pipeline, role, name], operator| {
            for (kind, count) in &operator.counts.named {
                text.sample(&[*pipeline, *role, *name, ("kind", kind)], count);
            }
        });
        text.family(&CONNECTIONS);
        each_operator(&pipelines, |[pipeline, _, (_, name)], operator| {
            if let Some(open) = open_connections(operator) {
                text.sample(&[*pipeline, ("input", name)], open);
            }
        });
        text.family(&LAG);
        each_operator(&pipelines, |[pipeline, _, (_, name)], operator| {
            if let Some(lag) = operator.counts.lag {
                text.sample(&[*pipeline, ("input", name)], lag);
            }
        });
        of_outputs(&mut text, &pipelines);
        self.of_files(&mut text, view);
        of_events(&mut text, &pipelines);
        text.finish()
    }

    fn of_files(&self, text: &mut Exposition, view: &View) {
        let mut last = self.files.lock();
        let is_fresh = |(at, _): &(Instant, Files)| at.elapsed() < FILES_FRESH;
        let known = last.take().filter(is_fresh);
        let (at, files) = known.unwrap_or_else(|| (Instant::now(), files(view)));
        let families: [(Family<'static>, Value<FilesOfInput>); 3] = [
            (FILES, |of| of.files),
            (FILE_LAG, |of| of.lag_bytes),
            (FILE_AGE, |of| of.lag_seconds),
        ];
        for (family, value) in &families {
            text.family(family);
            for ((pipeline, input), of) in &files {
                text.sample(&[("pipeline", pipeline), ("input", input)], value(of));
            }
        }
        *last = Some((at, files));
    }
}

fn build(text: &mut Exposition) {
    text.family(&Family {
        name: "millpond_build",
        kind: Kind::Info,
        unit: "",
        help: "The program.",
    });
    let labels = [
        ("version", env!("CARGO_PKG_VERSION")),
        ("arch", std::env::consts::ARCH),
    ];
    text.sample(&labels, 1);
}

/// The names are those that Prometheus gives every process.
fn of_process(text: &mut Exposition, process: &Process) {
    let stats = process.stats();
    let since = process.started().duration_since(std::time::UNIX_EPOCH);
    let started = since.map_or(0.0, |since| since.as_secs_f64());
    let mut one = |family: Family<'_>, value: f64| {
        text.family(&family);
        text.sample(&[], value);
    };
    one(
        counter("process_cpu_seconds", "seconds", "CPU time."),
        stats.cpu_seconds,
    );
    one(
        gauge("process_resident_memory_bytes", "bytes", "Memory in use."),
        stats.resident_memory_bytes as f64,
    );
    one(
        gauge("process_virtual_memory_bytes", "bytes", "Address space."),
        stats.virtual_memory_bytes as f64,
    );
    one(
        gauge("process_threads", "", "Threads."),
        stats.threads as f64,
    );
    one(
        gauge("process_open_fds", "", "Open files and sockets."),
        stats.open_files as f64,
    );
    if let Some(max) = stats.open_files_max {
        one(
            gauge("process_max_fds", "", "How many files may be open."),
            max as f64,
        );
    }
    one(
        gauge(
            "process_start_time_seconds",
            "seconds",
            "When the process started, in seconds since 1970.",
        ),
        started,
    );
}

fn of_outputs(text: &mut Exposition, pipelines: &[PipelineView]) {
    let families: [(Family<'static>, Value<OutputView>); 4] = [
        (IN_FLIGHT, |output| output.in_flight),
        (WAITING, |output| output.waiting),
        (PAUSED, |output| {
            u64::from(output.state == OutputState::Paused)
        }),
        (FAILED, |output| {
            u64::from(output.state == OutputState::Failed)
        }),
    ];
    for (family, value) in &families {
        text.family(family);
        for pipeline in pipelines {
            for output in &pipeline.outputs {
                let labels = [("pipeline", &*pipeline.name), ("output", &*output.name)];
                text.sample(&labels, value(output));
            }
        }
    }
}

/// What processors measure of events.
fn of_events(text: &mut Exposition, pipelines: &[PipelineView]) {
    let mut families: BTreeMap<&str, Vec<(&str, &Metric)>> = BTreeMap::new();
    for pipeline in pipelines {
        for metric in pipeline
            .operators
            .iter()
            .filter_map(|it| it.metric.as_ref())
        {
            let of_name = families.entry(&metric.definition().name).or_default();
            of_name.push((&pipeline.name, metric));
        }
    }
    for (name, metrics) in families {
        let first = metrics[0].1.definition();
        text.family(&Family {
            name,
            kind: match first.kind {
                MetricKind::Counter => Kind::Counter,
                MetricKind::Gauge => Kind::Gauge,
                MetricKind::Histogram(_) => Kind::Histogram,
            },
            unit: "",
            help: &first.help,
        });
        for (pipeline, metric) in metrics {
            let definition = metric.definition();
            for sample in metric.samples() {
                let own = definition.labels.iter().zip(&sample.labels);
                let labels: Vec<(&str, &str)> = iter::once(("pipeline", pipeline))
                    .chain(own.map(|(name, value)| (&**name, &**value)))
                    .collect();
                match (&sample.value, &definition.kind) {
                    (SampleValue::Distribution { sum, buckets }, MetricKind::Histogram(bounds)) => {
                        text.histogram(&labels, bounds, buckets, *sum);
                    }
                    (SampleValue::Distribution { sum, .. }, _) => text.sample(&labels, sum),
                    (SampleValue::Number(number), _) => text.sample(&labels, number),
                }
            }
        }
    }
}

/// Every operator with its labels.
fn each_operator<'p>(
    pipelines: &'p [PipelineView],
    mut each: impl FnMut(&[(&str, &'p str); 3], &'p OperatorReport),
) {
    for pipeline in pipelines {
        for operator in &pipeline.operators {
            let labels = [
                ("pipeline", &*pipeline.name),
                ("role", operator.role.word()),
                ("operator", &*operator.name),
            ];
            each(&labels, operator);
        }
    }
}

/// The connections that are open, of an input that had any.
pub fn open_connections(operator: &OperatorReport) -> Option<u64> {
    let count = |name| operator.counts.named.get(name).copied();
    let accepted = count("connections").filter(|_| operator.role == Role::Input)?;
    Some(accepted.saturating_sub(count("ended_connections").unwrap_or(0)))
}

fn files(view: &View) -> Files {
    let mut files = Files::new();
    for file in view.look(true).into_iter().flat_map(|one| one.files) {
        let of = files.entry((file.pipeline, file.input)).or_default();
        of.files += 1;
        of.lag_bytes += file.lag_bytes;
        of.lag_seconds = of.lag_seconds.max(file.lag_seconds);
    }
    files
}
