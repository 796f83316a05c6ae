//! `dns`: names of addresses, and addresses of names.
//!
//! | module | holds |
//! | --- | --- |
//! | `settings` | the settings, checked |
//! | `question` | what is asked, and what comes back |
//! | `answers` | the cache, and the wait for answers |
//! | `silence` | whether servers answer at all |
//! | `asking` | the thread that asks them, and in which order |
//! | `resolver` | one question and its answer, by the library |
//! | `local` | what is known without them: `/etc/hosts`, `localhost` |
//!
//! A batch looks each distinct value up once, asks all that nobody knows yet at the same time, and waits for them together.

mod answers;
mod asking;
mod local;
mod question;
mod resolver;
mod settings;
mod silence;
#[cfg(test)]
mod tests;

use std::sync::{Arc, OnceLock};

use batch::{
    Batch, Bitmap, Cell, Column, ColumnBuilder, Edit, Failures, FieldPath, FieldRead, Span, Value,
};
use component::{Build, BuildContext, Example, Order, Processor, Spec, Warning, parse};
use config::{ConfigError, Node, Positional};
use foldhash::fast::RandomState;
use hashbrown::HashMap;
use tokio::sync::mpsc::Sender;

use crate::text::first_of;
use answers::{Answers, Reply};
use local::LocalAnswers;
use question::{Answer, LookupType, Question, Wanted};
use resolver::NameServers;
use settings::Config;

const FAILURE_TAG: &str = "_dns_failure";
const TIMEOUT_TAG: &str = "_dns_timeout";

/// The `dns` processor.
pub const SPEC: Spec = Spec {
    name: "dns",
    aliases: &[],
    summary: "Looks up the name of an IP address, or the addresses of a name, with a cache and a limit to the wait.",
    description: DESCRIPTION,
    positional: Positional::fields(&["field", "target"]),
    one_line: &[],
    examples: &[
        Example {
            title: "The name of a client; what is not an address is tagged",
            stage: "dns client.ip client.domain servers=127.0.0.1",
            input: "{\"client\":{\"ip\":\"127.0.0.9\"}}\n{\"client\":{\"ip\":\"web-1\"}}\n{\"message\":\"x\"}",
            output: "{\"client\":{\"ip\":\"127.0.0.9\",\"domain\":\"localhost\"}}\n{\"client\":{\"ip\":\"web-1\"},\"tags\":[\"_dns_failure\"]}\n{\"message\":\"x\"}",
        },
        Example {
            title: "The addresses of a server; those of an address are itself",
            stage: "dns server type=forward target=host.ip servers=127.0.0.1",
            input: r#"{"server":"192.0.2.7"}"#,
            output: r#"{"server":"192.0.2.7","host":{"ip":["192.0.2.7"]}}"#,
        },
    ],
    schema: |generator| generator.subschema_for::<Config>(),
    build: Build::Processor {
        order: Order::Stateless,
        sees_sealed: false,
        build,
    },
};

const DESCRIPTION: &str = "\
The value of `field` is looked up and the answer written to `target`, over what is there:

| `type` | the field holds | what is written |
| --- | --- | --- |
| `reverse` | an IP address | its name (`PTR` record), a text without a dot at its end. Of several names, the first in alphabetical order |
| `forward` | a name, or an IP address | its addresses (`A` and `AAAA` records), always a list, IPv4 first. Those of an IP address are itself |

Of a list, the first value is looked up. All addresses are looked up, private ones too; to leave some out, use `if`: `dns client.ip client.domain if=\"!ip.isPrivate(client.ip)\"`.

**Without an answer**, nothing is written, and what is in `target` stays:

| event | tag |
| --- | --- |
| the server says that there is no such name or record | none |
| no answer came in time | `_dns_timeout` |
| the value is not an IP address, or not a name; the server answered with an error | `_dns_failure` |
| the field is absent or null | none |

`tag` replaces both tags; with an empty `tag`, there is none. This is not a failure: later processors still run. An event fails, with `_dns_failure` (or `tag`), only if `target` cannot be written, because a value above it is not an
object.

**Time.** Each distinct value of a batch is looked up once. What is not in the cache is asked at the same time. A batch waits until all are answered, and at most `timeout`: all of its events together, and not each of them. A question is waited for at most
`timeout` from when it was first asked, by any worker, so one that nobody answers does not delay later batches again. An answer that comes later is in the cache for later events. With `timeout=0s` no event ever waits: those with a new value get
`_dns_timeout`. Up to 16,384 questions are open at a time; beyond that, values that are not in the cache are not asked, and get `_dns_timeout` at once.

**Other pipelines do not wait**: a pipeline with this processor has worker threads of its own, as many as `workers` says for those that the other pipelines share. Only with `timeout=0s` it shares them too.

**Questions at once.** 256 questions are with servers at the same time, first those that a batch still waits for. If another one needs a place, the oldest one gives its place up when it has had no answer for 400 ms: it goes on in one of 128 places for slow
questions, or is asked anew when one of these is free. Up to 1,024 questions wait for that; beyond, they count as not answered. So addresses that no server answers hardly delay the others, however many there are.

**When no server answers**, three batches in a row without any answer, over a second at least, are enough: from then on no batch waits, events with values that are not in the cache get `_dns_timeout` at once, and three questions a second are still asked. The first answer
of a server ends this. Both are reported as a warning, at most once an hour.

**Servers** are those in `servers`, or those of `/etc/resolv.conf`, with its search domains and `options ndots`; it is read when the pipeline starts. Of several servers, two are asked at once, and the first answer counts. Questions are sent over UDP, again after a third of
a second at the earliest, and over TCP if the answer is too long; after about four seconds a question counts as not answered.

**Both kinds of addresses** of a name are asked for at once. If those of one kind are there, those of the other have 250 ms more; without them, the first are the answer, which is remembered for `min_ttl`. At most 64 addresses are written, the first in their order.

**Without servers.** `/etc/hosts`, as it is when the first event comes, goes before the servers in both directions; a name is looked for in it as it is, without search domains, and all of its addresses are those in the file. Names below `localhost` are `127.0.0.1` and `::1`,
and the name of a loopback address that is not in the file is `localhost`. Other names below `invalid` and `onion` do not exist. None of these is asked of a server or waits, also when no server answers, and they count neither as hits nor as misses of the cache.

**Cache.** All workers share it. A record is remembered for its own TTL, but at least `min_ttl` and at most `max_ttl`; that there is no record, an error or no answer, for `negative_ttl`. When `cache_entries` are remembered, the one
that was not used for the longest time goes. An entry takes about 200 bytes, and the text of its answer. The cache is empty after a restart, and after a reload that changes the pipeline.

**What an event gets depends on the network**: on the servers, on their answers at that moment, and on the time that these take. No other processor is like this; an event that is processed again, after a crash or in a test, may get another name, or
none. `millpond test`, `check --sample` and `bench` ask the servers as a run does.
";

fn build(node: &Node, context: &BuildContext) -> Result<Box<dyn Processor>, ConfigError> {
    let config: Config = parse(node)?;
    let servers = config.name_servers(node)?;
    let answers = Answers::new(
        config.times(node)?,
        config.entries_max(node)?,
        servers.to_string(),
    );
    let tag = |default| context.tag_or(default);
    Ok(Box::new(Dns {
        field: crate::names::field(node, "field", &config.field)?,
        target: crate::names::field(node, "target", &config.target)?,
        lookup_type: config.lookup_type,
        timeout_tag: tag(TIMEOUT_TAG),
        failure_tag: tag(FAILURE_TAG),
        shared: Arc::new(Shared {
            servers,
            answers: Arc::new(answers),
            asker: OnceLock::new(),
            local: OnceLock::new(),
        }),
        counters: Counters::default(),
    }))
}

/// What all instances share.
struct Shared {
    servers: NameServers,
    answers: Arc<Answers>,
    /// Ends the thread that asks when it is dropped; none if it could not be started.
    asker: OnceLock<Option<Sender<Question>>>,
    local: OnceLock<LocalAnswers>,
}

impl Shared {
    fn replies(&self, questions: &[Question]) -> Vec<Reply> {
        if questions.is_empty() {
            return Vec::new();
        }
        match self.asker() {
            Some(asker) => self.answers.look_up(questions, asker),
            None => vec![Reply::Late; questions.len()],
        }
    }

    /// The answer to a question that is not for a server.
    fn local_answer(&self, question: &Question) -> Option<Answer> {
        let local = self.local.get_or_init(LocalAnswers::of_system);
        local.answer(question)
    }

    fn asker(&self) -> Option<&Sender<Question>> {
        let start = || match asking::start(self.servers.clone(), self.answers.clone()) {
            Ok(asker) => Some(asker),
            Err(error) => {
                let text =
                    format!("nothing is looked up, because the work cannot be started: {error}");
                self.answers.warn(text.into());
                None
            }
        };
        self.asker.get_or_init(start).as_ref()
    }
}

#[derive(Clone)]
struct Dns {
    field: FieldPath,
    target: FieldPath,
    lookup_type: LookupType,
    timeout_tag: Arc<str>,
    failure_tag: Arc<str>,
    shared: Arc<Shared>,
    counters: Counters,
}

/// Events, since the counters were taken.
#[derive(Debug, Clone, Default)]
struct Counters {
    cache_hits: u64,
    cache_misses: u64,
    without_record: u64,
    timeouts: u64,
    failures: u64,
}

/// The distinct values of a batch, and which of them each row has.
#[derive(Default)]
struct Values<'c> {
    texts: Vec<&'c [u8]>,
    /// Rows with the number of their text.
    rows: Vec<(usize, usize)>,
}

/// What becomes of the events with a value.
struct Outcome {
    result: LookupResult,
    /// Whether the cache had it; none where nothing was asked.
    is_cached: Option<bool>,
}

enum LookupResult {
    Found(Span),
    NoRecord,
    Timeout,
    Failure,
}

impl Processor for Dns {
    fn process(&mut self, batch: &mut Batch, rows: &Bitmap) -> Failures {
        let column = batch.column(&self.field);
        let values = Values::of(&column, rows);
        let mut written = ColumnBuilder::new(batch.len());
        let outcomes = self.look_up(&values.texts, &mut written);
        let [mut late, mut failed] = [(); 2].map(|()| Bitmap::none(batch.len()));
        for (row, number) in &values.rows {
            let outcome = &outcomes[*number];
            self.counters.count(outcome);
            match outcome.result {
                LookupResult::Found(span) => written.set(*row, self.cell(span)),
                LookupResult::NoRecord => {}
                LookupResult::Timeout => late.insert(*row),
                LookupResult::Failure => failed.insert(*row),
            }
        }
        let mut failures = Failures::none();
        if !written.is_untouched() {
            let mut edit = Edit::new();
            edit.set(self.target.clone(), written.finish());
            failures.extend_refused(batch.apply(edit), &self.failure_tag);
        }
        batch.add_tag(&late, &self.timeout_tag);
        batch.add_tag(&failed, &self.failure_tag);
        failures
    }

    fn may_wait(&self) -> bool {
        self.shared.answers.may_wait()
    }

    fn reads(&self) -> Vec<Arc<FieldRead>> {
        vec![Arc::new(FieldRead::always(self.field.clone()))]
    }

    fn take_counters(&mut self) -> Vec<(&'static str, u64)> {
        let Counters {
            cache_hits,
            cache_misses,
            without_record,
            timeouts,
            failures,
        } = std::mem::take(&mut self.counters);
        let queries = self.shared.answers.take_queries();
        let seldom = [
            ("without_record", without_record),
            ("timeouts", timeouts),
            ("failures", failures),
            ("queries", queries),
        ];
        let always = [("cache_hits", cache_hits), ("cache_misses", cache_misses)];
        let seldom = seldom.into_iter().filter(|counter| counter.1 > 0);
        always.into_iter().chain(seldom).collect()
    }

    fn take_warnings(&mut self) -> Vec<Warning> {
        self.shared.answers.take_warnings()
    }
}

impl<'c> Values<'c> {
    /// The values of a field. Those that are not texts stand for the empty one, which is neither an address nor a name.
    fn of(column: &'c Column, rows: &Bitmap) -> Self {
        let mut values = Self::default();
        let mut numbers: HashMap<&[u8], usize, RandomState> = HashMap::default();
        for row in rows.iter() {
            let text = match first_of(column.value(row)) {
                Value::Text(text) => text,
                Value::Missing => continue,
                Value::Null if matches!(column.cell(row), Cell::Null) => continue,
                _ => b"",
            };
            let number = *numbers.entry(text).or_insert_with(|| {
                values.texts.push(text);
                values.texts.len() - 1
            });
            values.rows.push((row, number));
        }
        values
    }
}

impl Dns {
    /// What becomes of the events with each of these texts. What is found is appended to `written`.
    fn look_up(&self, texts: &[&[u8]], written: &mut ColumnBuilder) -> Vec<Outcome> {
        let mut questions = Vec::new();
        let wanted: Vec<Option<Answer>> = texts
            .iter()
            .map(|text| match Wanted::of_text(text, self.lookup_type) {
                Wanted::Question(question) => {
                    let known = self.shared.local_answer(&question);
                    if known.is_none() {
                        questions.push(question);
                    }
                    known
                }
                Wanted::Itself(address) => Some(Answer::of_addresses([address].into_iter())),
                Wanted::Invalid => Some(Answer::Failed),
            })
            .collect();
        let mut replies = self.shared.replies(&questions).into_iter();
        let mut outcome = |known: Option<Answer>| {
            let (answer, is_cached) = match known {
                Some(answer) => (answer, None),
                None => match replies.next() {
                    Some(Reply::Cached(answer)) => (answer, Some(true)),
                    Some(Reply::Fresh(answer)) => (answer, Some(false)),
                    Some(Reply::Late) | None => (Answer::Unanswered, Some(false)),
                },
            };
            let result = match answer {
                Answer::Found(text) => {
                    LookupResult::Found(written.append(|out| out.extend_from_slice(&text)))
                }
                Answer::NoRecord => LookupResult::NoRecord,
                Answer::Unanswered => LookupResult::Timeout,
                Answer::Failed => LookupResult::Failure,
            };
            Outcome { result, is_cached }
        };
        wanted.into_iter().map(&mut outcome).collect()
    }

    fn cell(&self, span: Span) -> Cell {
        match self.lookup_type {
            LookupType::Reverse => Cell::Text(span),
            LookupType::Forward => Cell::Json(span),
        }
    }
}

impl Counters {
    fn count(&mut self, outcome: &Outcome) {
        match outcome.is_cached {
            Some(true) => self.cache_hits += 1,
            Some(false) => self.cache_misses += 1,
            None => {}
        }
        match outcome.result {
            LookupResult::Found(_) => {}
            LookupResult::NoRecord => self.without_record += 1,
            LookupResult::Timeout => self.timeouts += 1,
            LookupResult::Failure => self.failures += 1,
        }
    }
}
