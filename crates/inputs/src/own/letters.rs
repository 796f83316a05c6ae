//! `dead_letters`: the dead letters of the other pipelines, which are removed once they are delivered.
//!
//! The stores are read as tools read them, and removals are left as requests for the pipelines that have the stores
//! ([`queue::letters::request`]). Numbers of letters ascend, so that for each store one number says which were sent. A letter that was sent
//! is in the store until its receipt has resolved and the request is carried out; requests that a stop left are known at the next start.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::fs;
use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use async_trait::async_trait;
use batch::{Batch, Bitmap, Cell, Column, ColumnBuilder, Edit, FieldPath};
use component::{
    Build, BuildContext, Example, Input, InputContext, InputError, Limit, Receipt, Spec, Stopped,
};
use config::{ConfigError, Node, Period, Positional};
use queue::letters::request::{self, Action, Request};
use queue::letters::{Letter, LetterFolder, Page, ranges};
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::runtime::Handle;

use crate::connections::settings::check_unending;
use crate::reading::emitter::now;
use crate::reading::on_blocking_thread;

/// The component.
pub const SPEC: Spec = Spec {
    name: "dead_letters",
    aliases: &[],
    summary: "Takes the dead letters of the other pipelines and removes them once they are delivered.",
    description: include_str!("letters.md"),
    positional: Positional::NONE,
    one_line: &[],
    examples: &[Example {
        title: "Dead letters of the pipelines `web` and `audit` that nobody has replayed in a week",
        stage: "dead_letters pipelines=[web, audit] min_age=7d",
        input: "",
        output: "",
    }],
    schema: |generator| generator.subschema_for::<Config>(),
    build: Build::Input(build),
};

/// How often it is looked for new letters.
const LOOK: Duration = Duration::from_secs(1);

/// How soon a stop is noticed.
const STOP_WAIT: Duration = Duration::from_millis(100);

/// The object of an event that says why it became a letter.
const FIELD: &str = "dead_letter";

/// Settings of the input `dead_letters`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct Config {
    /// The pipelines whose dead letters are taken. Default: all but this one and those that get its events.
    pipelines: Option<BTreeSet<String>>,
    /// How old a dead letter is at least; until then it can be replayed.
    min_age: Period,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            pipelines: None,
            min_age: Period(Duration::ZERO),
        }
    }
}

fn build(node: &Node, context: &BuildContext) -> Result<Box<dyn Input>, ConfigError> {
    let config: Config = component::parse(node)?;
    check_unending("dead_letters", node, context)?;
    if config.pipelines.as_ref().is_some_and(BTreeSet::is_empty) {
        return Err(node.nearest("pipelines").error("the list is empty"));
    }
    Ok(Box::new(DeadLetterInput {
        config,
        finite: context.finite,
    }))
}

struct DeadLetterInput {
    config: Config,
    finite: bool,
}

#[async_trait]
impl Input for DeadLetterInput {
    fn can_wait(&self) -> bool {
        true
    }

    fn needs_data_dir(&self) -> bool {
        true
    }

    async fn run(self: Box<Self>, ctx: InputContext) -> Result<(), InputError> {
        on_blocking_thread(ctx, move |ctx| {
            let Some(data_dir) = ctx.data_dir.clone() else {
                return vec!["there is no data directory".to_owned()];
            };
            let mut taking = Taking {
                data_dir,
                config: self.config,
                finite: self.finite,
                ctx,
                stores: HashMap::new(),
            };
            // Stopping is no fault.
            let _ = taking.run();
            taking.end();
            Vec::new()
        })
        .await
    }
}

struct Taking<'c> {
    data_dir: Arc<Path>,
    config: Config,
    /// Whether it ends when it has taken what is there.
    finite: bool,
    ctx: &'c InputContext,
    stores: HashMap<PathBuf, Progress>,
}

/// How far a store is.
struct Progress {
    folder: LetterFolder,
    /// Letters of lower numbers were sent.
    next: u64,
    /// Requests that an earlier run left: what they name was delivered.
    left: Vec<Request>,
    /// What the files of the store looked like when they were read.
    seen: Vec<(PathBuf, Option<SystemTime>, u64)>,
    /// Whether there are letters that were too young.
    has_young: bool,
    sent: VecDeque<Sent>,
    /// Letters that are delivered and not removed yet, and their originals.
    delivered: Vec<u64>,
    originals: Vec<u64>,
}

/// Letters on their way.
struct Sent {
    receipt: Receipt,
    letters: Vec<u64>,
    originals: Vec<u64>,
}

impl Progress {
    fn of(folder: &LetterFolder) -> Self {
        let path = folder.path();
        Self {
            folder: LetterFolder::at(path.to_owned(), folder.pipeline()),
            next: 0,
            left: left(path),
            seen: Vec::new(),
            has_young: false,
            sent: VecDeque::new(),
            delivered: Vec::new(),
            originals: Vec::new(),
        }
    }
}

impl Taking<'_> {
    fn run(&mut self) -> Result<(), Stopped> {
        let mut next = Instant::now();
        while !self.ctx.stop.is_stopped() {
            if Instant::now() < next {
                thread::sleep(STOP_WAIT);
                continue;
            }
            next = Instant::now() + LOOK;
            match LetterFolder::find(&self.data_dir) {
                Ok(folders) => {
                    for folder in &folders {
                        if self.takes(folder) {
                            self.look(folder)?;
                        }
                    }
                }
                Err(error) => self.warn(&self.data_dir, &error.to_string()),
            }
            if self.finite {
                break;
            }
        }
        Ok(())
    }

    /// In a service, those of a pipeline that does not run stay: nobody is there to remove them.
    fn takes(&self, folder: &LetterFolder) -> bool {
        let pipeline = folder.pipeline();
        let (own, _) = self.ctx.scope.split_once('/').unwrap_or(("", ""));
        let named = self.config.pipelines.as_ref();
        // A pipeline with a queue in Kafka runs as several: `web.es` is a part of `web`.
        let is_named = |named: &BTreeSet<String>| {
            let mut parts = pipeline.match_indices('.').map(|(end, _)| &pipeline[..end]);
            named.contains(pipeline) || parts.any(|part| named.contains(part))
        };
        named.is_none_or(is_named)
            && !self.ctx.own.log().downstream(own).contains(pipeline)
            && (self.finite || folder.holder().is_some())
    }

    /// Sends what is new in a store.
    fn look(&mut self, folder: &LetterFolder) -> Result<(), Stopped> {
        let path = folder.path().to_owned();
        let files = files(&path).unwrap_or_default();
        let mut progress = match self.stores.remove(&path) {
            Some(progress) => progress,
            None => Progress::of(folder),
        };
        let mut result = Ok(());
        if progress.has_young || progress.seen != files {
            progress.seen = files;
            progress.has_young = false;
            let newest = now().saturating_sub(nanos(self.config.min_age.0));
            let start = Instant::now();
            let from = progress.next;
            let read = folder.each(&|numbers| numbers.end > from, &mut |page| match self.page(
                &mut progress,
                &page,
                newest,
            ) {
                Ok(flow) => flow,
                Err(stopped) => {
                    result = Err(stopped);
                    ControlFlow::Break(())
                }
            });
            self.ctx.metrics.busy(start.elapsed());
            if let Err(error) = read {
                self.warn(&path, &error.to_string());
            }
        }
        self.settle(&mut progress, false);
        self.stores.insert(path, progress);
        result
    }

    fn page(
        &self,
        progress: &mut Progress,
        page: &Page,
        newest: i64,
    ) -> Result<ControlFlow<()>, Stopped> {
        let is_new = |row: &usize| {
            let number = page.number(*row);
            let is_left = |request: &Request| request.wants(&(number..number + 1));
            number >= progress.next && !progress.left.iter().any(is_left)
        };
        let rows: Vec<usize> = page.rows.iter().copied().filter(is_new).collect();
        let mut letters: Vec<Letter> = rows.iter().map(|row| page.letter(*row)).collect();
        // They are in the order in which they came.
        let old = letters.partition_point(|letter| letter.time <= newest);
        progress.has_young = old < letters.len();
        letters.truncate(old);
        let rows = &rows[..old];
        if let Some(last) = rows.last() {
            let batch = handed_on(&page.batch.pick(rows), &letters);
            self.ctx.metrics.bytes(batch.size());
            let sent = Sent {
                receipt: self.ctx.send_blocking(batch)?,
                letters: letters.iter().map(|letter| letter.number).collect(),
                originals: (rows.iter())
                    .filter_map(|row| page.original_number(*row))
                    .collect(),
            };
            progress.sent.push_back(sent);
            progress.next = page.number(*last) + 1;
            self.settle(progress, false);
        }
        Ok(match progress.has_young || self.ctx.stop.is_stopped() {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        })
    }

    /// Has those removed that are delivered; with `wait`, those that will be as well.
    fn settle(&self, progress: &mut Progress, wait: bool) {
        while let Some(mut sent) = progress.sent.pop_front() {
            let delivered = match wait {
                true => Some(Handle::current().block_on(sent.receipt.delivered())),
                false => match sent.receipt.try_delivered() {
                    None => {
                        progress.sent.push_front(sent);
                        break;
                    }
                    known => known,
                },
            };
            if matches!(delivered, Some(Ok(_))) {
                progress.delivered.append(&mut sent.letters);
                progress.originals.append(&mut sent.originals);
            }
        }
        let few = if wait { 0 } else { self.removed_together() };
        if progress.delivered.len() <= few {
            return;
        }
        let request = Request {
            action: Action::HandedOn,
            numbers: pairs(&progress.delivered),
            others: pairs(&progress.originals),
            cleared: None,
        };
        let folder = &progress.folder;
        let removed = match self.finite {
            true => {
                let diagnostics = self.ctx.diagnostics.clone();
                queue::letters::remove(folder, request.purge(), diagnostics)
                    .map(drop)
                    .map_err(|error| error.to_string())
            }
            false => (request.leave(folder.path()).map(drop)).map_err(|error| error.to_string()),
        };
        match removed {
            Ok(()) => {
                progress.delivered.clear();
                progress.originals.clear();
            }
            // It is tried again, with what is delivered until then.
            Err(error) => self
                .ctx
                .diagnostics
                .warn_limited(Limit::events("unremoved"), || {
                    format!(
                        "dead letters in {} that are delivered cannot be removed: {error}",
                        folder.path().display()
                    )
                }),
        }
    }

    /// More than so many are removed before all are delivered: a store is opened for it where no pipeline has it open.
    fn removed_together(&self) -> usize {
        match self.finite {
            true => 50_000,
            false => 0,
        }
    }

    fn end(mut self) {
        let mut stores = std::mem::take(&mut self.stores);
        for progress in stores.values_mut() {
            self.settle(progress, true);
        }
    }

    fn warn(&self, path: &Path, reason: &str) {
        let limit = Limit::events("unread_letters");
        self.ctx.diagnostics.warn_limited(limit, || {
            let path = path.display();
            format!("dead letters in {path} cannot be read: {reason}")
        });
    }
}

/// The files of a store whose change says that there may be new letters.
fn files(store: &Path) -> io::Result<Vec<(PathBuf, Option<SystemTime>, u64)>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(store)? {
        let entry = entry?;
        if entry.file_name().as_encoded_bytes().starts_with(b"segment") {
            let facts = entry.metadata()?;
            files.push((entry.path(), facts.modified().ok(), facts.len()));
        }
    }
    files.sort();
    Ok(files)
}

/// Requests to remove what was delivered that are not carried out yet.
fn left(store: &Path) -> Vec<Request> {
    let left = request::left(store).unwrap_or_default().into_iter();
    left.filter_map(|(_, request)| request.ok())
        .filter(|request| request.action.removes())
        .collect()
}

/// Letters as events of another pipeline.
fn handed_on(picked: &Batch, letters: &[Letter]) -> Batch {
    let len = letters.len();
    let mut batch = picked.handed_on(&Bitmap::all(len));
    let mut edit = Edit::new();
    edit.remove(FieldPath::from_keys([FIELD]), &Bitmap::all(len));
    batch.apply(edit);
    let text = |of: &dyn Fn(&Letter) -> Option<&str>| {
        let mut column = ColumnBuilder::new(len);
        for (row, letter) in letters.iter().enumerate() {
            match of(letter) {
                Some(text) => column.set_text(row, text.as_bytes()),
                None => column.set(row, Cell::Missing),
            }
        }
        column.finish()
    };
    let cells =
        |of: &dyn Fn(&Letter) -> Cell| Column::new(letters.iter().map(of).collect(), Arc::new([]));
    let columns = [
        ("pipeline", text(&|letter| Some(&letter.pipeline))),
        ("role", text(&|letter| Some(letter.role))),
        ("component", text(&|letter| Some(&letter.component))),
        ("time", cells(&|letter| Cell::Time(letter.time))),
        ("reason", text(&|letter| Some(&letter.reason))),
        ("tag", text(&|letter| letter.tag.as_deref())),
        ("attempts", cells(&|letter| Cell::UInt(letter.attempts))),
    ];
    let mut edit = Edit::new();
    for (name, column) in columns {
        edit.set(FieldPath::from_keys([FIELD, name]), column);
    }
    batch.apply(edit);
    batch
}

/// Numbers as a request names them.
fn pairs(numbers: &[u64]) -> Vec<(u64, u64)> {
    let ranges = ranges(numbers.iter()).into_iter();
    ranges.map(|range| (range.start, range.end)).collect()
}

fn nanos(age: Duration) -> i64 {
    i64::try_from(age.as_nanos()).unwrap_or(i64::MAX)
}
