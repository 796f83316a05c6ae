//! `generate`: makes log lines out of nothing, as fast as one likes.
//!
//! The events of a run depend on `format` and `seed` alone: content, order, offsets and ids are the same in every run.
//! Their time starts at 2026-01-01T00:00:00Z and goes on by a thousandth of a second an event, whatever the clock says.
//!
//! | module | holds |
//! | --- | --- |
//! | [`line`] | [`line::Line`]: writing into a buffer; the time of an event |
//! | [`random`] | random numbers, and things of which some are more popular than others |
//! | [`vocabulary`] | addresses, hosts, user agents, paths |
//! | [`apache`], [`suricata`], [`syslog`] | the formats |

mod apache;
mod line;
mod random;
mod suricata;
mod syslog;
mod vocabulary;

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use batch::{Batch, BatchBuilder, Encoding, Source, Span, Stream};
use codec::BATCH_EVENTS_MAX;
use component::{Build, BuildContext, Example, Input, InputContext, InputError, Spec};
use config::{ConfigError, Count, Node, Positional};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::reading::emitter::now;
use crate::reading::identity::Identity;
use crate::reading::on_blocking_thread;
use line::Line;

/// The component.
pub const SPEC: Spec = Spec {
    name: "generate",
    aliases: &[],
    summary: "Generates realistic log lines for experiments and benchmarks.",
    description: "\
| format | events |\n| --- | --- |\n\
| `apache` | lines of an access log in the combined format, 237 bytes on average: about 1,700 addresses and 500 user agents, \
a few of which are frequent; one line in 10,000 is truncated |\n\
| `suricata` | nested JSON documents like those of Suricata's EVE log, 700 bytes on average: `event_type` is `flow`, `dns`, `http`, \
`tls` or `alert` |\n\
| `syslog` | lines in the format of RFC 3164, with priority, time, host, program and process id |\n\n\
The same `format` and `seed` generate the same bytes in every run, and in every version unless the changelog says \
otherwise. The time in the events starts at 2026-01-01T00:00:00Z and advances by one millisecond per event.",
    positional: Positional::fields(&["format"]),
    one_line: &[],
    examples: &[
        Example {
            title: "A million lines of an access log",
            stage: "generate apache count=1M",
            input: "",
            output: "",
        },
        Example {
            title: "500 JSON documents a second",
            stage: "generate suricata rate=500",
            input: "",
            output: "",
        },
    ],
    schema: |generator| generator.subschema_for::<Config>(),
    build: Build::Input(build),
};

/// Settings of the input `generate`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Config {
    /// The format of the events.
    format: Format,
    /// How many events to generate. Default: no limit.
    #[serde(default)]
    count: Option<Count>,
    /// Events per second. Default: as fast as the pipeline accepts them.
    #[serde(default)]
    rate: Option<Count>,
    /// The seed of the random sequence of events.
    #[serde(default)]
    seed: u64,
}

/// What events look like.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Format {
    /// Access log lines in the combined format.
    Apache,
    /// JSON documents like Suricata's EVE log.
    Suricata,
    /// Lines in the format of RFC 3164.
    Syslog,
}

/// Writes the events of one format.
trait Writer: Send {
    /// Writes event number `number`, which has at most [`EVENT_MAX`] bytes.
    fn write(&mut self, number: u64, line: &mut Line<'_>);
}

/// The longest event, in bytes.
const EVENT_MAX: usize = 4096;

/// Events made at a rate are sent this often.
const RATE_TIME: Duration = Duration::from_millis(50);

impl Format {
    fn writer(self, seed: u64) -> Box<dyn Writer> {
        match self {
            Self::Apache => Box::new(apache::Apache::new(seed)),
            Self::Suricata => Box::new(suricata::Suricata::new(seed)),
            Self::Syslog => Box::new(syslog::Syslog::new(seed)),
        }
    }

    fn encoding(self) -> Encoding {
        if self == Self::Suricata {
            Encoding::Json
        } else {
            Encoding::Text
        }
    }
}

fn build(node: &Node, _: &BuildContext) -> Result<Box<dyn Input>, ConfigError> {
    let config: Config = component::parse(node)?;
    if config.rate == Some(Count(0)) {
        return Err(node
            .nearest("rate")
            .error("a `rate` of 0 would never generate an event"));
    }
    Ok(Box::new(Generate { config }))
}

struct Generate {
    config: Config,
}

#[async_trait]
impl Input for Generate {
    fn can_wait(&self) -> bool {
        true
    }

    async fn run(self: Box<Self>, ctx: InputContext) -> Result<(), InputError> {
        on_blocking_thread(ctx, move |ctx| {
            self.make(ctx);
            Vec::new()
        })
        .await
    }
}

impl Generate {
    fn make(&self, ctx: &InputContext) {
        let Config {
            format,
            count,
            rate,
            seed,
        } = self.config;
        let mut maker = Maker::new(format, seed, ctx);
        let count = count.map_or(u64::MAX, |count| count.0);
        let pace = rate.map(|rate| Pace {
            rate: rate.0,
            start: Instant::now(),
        });
        while maker.made < count && !ctx.stop.is_stopped() {
            let due = pace.as_ref().map_or(count, |pace| pace.due().min(count));
            if due <= maker.made {
                thread::sleep(RATE_TIME);
                continue;
            }
            let batch = maker.batch((due - maker.made).min(BATCH_EVENTS_MAX as u64) as usize);
            if ctx.send_blocking(batch).is_err() {
                return;
            }
        }
    }
}

/// How many events there should be by now.
struct Pace {
    rate: u64,
    start: Instant,
}

impl Pace {
    fn due(&self) -> u64 {
        let due = self.start.elapsed().as_nanos() * u128::from(self.rate) / 1_000_000_000;
        u64::try_from(due).unwrap_or(u64::MAX)
    }
}

/// Makes batches.
struct Maker<'c> {
    writer: Box<dyn Writer>,
    encoding: Encoding,
    stream: Arc<Stream>,
    ctx: &'c InputContext,
    /// Events so far.
    made: u64,
    /// Their bytes, a line end for each included.
    offset: u64,
    /// Rows of the batch before.
    rows_before: usize,
}

impl<'c> Maker<'c> {
    fn new(format: Format, seed: u64, ctx: &'c InputContext) -> Self {
        let name = format!("generate {format:?}");
        let identity = Identity::new([
            ctx.host.name.as_bytes(),
            name.as_bytes(),
            &seed.to_le_bytes(),
        ]);
        Self {
            writer: format.writer(seed),
            encoding: format.encoding(),
            stream: Arc::new(Stream::new(identity.id(), Source::Generated)),
            ctx,
            made: 0,
            offset: 0,
            rows_before: 0,
        }
    }

    /// How many bytes so many events need: few where a rate is asked for, so that small batches do not hold large buffers.
    fn expected_bytes(&self, events: usize) -> usize {
        let each = self.offset.checked_div(self.made);
        let each = each.map_or(EVENT_MAX, |each| each as usize + each as usize / 4);
        (events * each).max(EVENT_MAX) + EVENT_MAX
    }

    /// The next events: as many as a buffer takes, `events_max` at most.
    fn batch(&mut self, events_max: usize) -> Batch {
        let waiting = self.ctx.metrics.waiting();
        let mut buffer = self.ctx.pool.take_small(self.expected_bytes(events_max));
        drop(waiting);

        let start = Instant::now();
        let mut builder = BatchBuilder::new(self.encoding, &self.ctx.host, now(), false);
        builder.stream(&self.stream);
        builder.reserve(events_max.min(self.rows_before + self.rows_before / 8));
        let mut used = 0;
        while builder.len() < events_max && buffer.len() - used >= EVENT_MAX {
            let mut line = Line::new(&mut buffer[used..]);
            self.writer.write(self.made, &mut line);
            let len = line.len();
            let end = self.offset + len as u64 + 1;
            builder.push(
                Span {
                    buffer: 0,
                    start: used as u32,
                    len: len as u32,
                },
                self.offset,
                end,
            );
            (self.made, self.offset, used) = (self.made + 1, end, used + len);
        }
        builder.buffer(buffer.freeze(used));
        self.rows_before = builder.len();
        self.ctx.metrics.bytes(used + builder.len());
        let batch = builder.finish();
        self.ctx.metrics.busy(start.elapsed());
        batch
    }
}
