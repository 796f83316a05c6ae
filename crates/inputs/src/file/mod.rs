//! `file`: follows files, or reads them once, each event delivered once whatever is done to the files.
//!
//! | module | holds |
//! | --- | --- |
//! | [`watch`] | which files there are, and which were written to |
//! | [`tracker`], [`judge`], [`held`], [`verdict`] | what each file is: known, renamed, truncated, a copy, new |
//! | [`known`], [`state`], [`trail`] | the known files, and what is known of each and of its content |
//! | [`pool`], [`order`], [`readers`] | which file is read next, and the threads that read |
//! | [`formats`] | how events are written in each file |
//! | [`task`], [`content`], [`pread`], [`probe`] | one file being read: decompressed, cut into records, sent |
//! | [`acknowledge`] | moves positions when receipts resolve |
//! | [`save`], [`record`], [`upkeep`] | what the registry keeps; what happens by time |
//! | [`fixture`] | a file that stands in for an input in a test |
//!
//! # Limits
//! - A file that is deleted before it was opened, or while more than `max_open_files` others are open, is lost.
//! - Bytes written and truncated away before they were read or copied are lost; what is known to be lost is told.

pub(crate) mod acknowledge;
mod compare;
mod content;
pub(crate) mod content_settings;
mod fixture;
pub(crate) mod formats;
mod held;
mod judge;
mod known;
mod ledger;
mod order;
mod pool;
pub(crate) mod pread;
mod probe;
pub(crate) mod readers;
pub(crate) mod record;
mod save;
mod settings;
pub(crate) mod state;
pub(crate) mod task;
mod tracker;
mod trail;
mod upkeep;
mod verdict;
mod watch;

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use async_trait::async_trait;
use component::activity::carry;
use component::{
    Build, BuildContext, Effects, Example, Input, InputContext, InputError, Limit, Spec,
    plural_were, thread,
};
use config::{ConfigError, Node, Positional};
use parking_lot::Mutex;
use schemars::JsonSchema;

use crate::error::RunError;
use crate::paths::meta::{Kind, Meta};
use crate::paths::{Exclusion, Pattern};
use crate::reading::describe::describe;
use crate::reading::stream::{open_pipe, read_stream};
use acknowledge::{Dirty, SENT_MAX, acknowledge};
use content_settings::ContentSettings;
pub use fixture::{Fixture, fixture};
use formats::Formats;
use known::Known;
pub use ledger::{FileEntries, read_ledger};
use pool::Pool;
use readers::{Readers, Rules};
use settings::{Config, Following, StartAt};
use tracker::Tracker;
use watch::{Change, FoundFile, Watch, WatchMode, WatchSettings};

/// The component.
pub const SPEC: Spec = Spec {
    name: "file",
    aliases: &[],
    summary: "Follows files or reads them once, plain or compressed (gzip, zstd), through rotation, renaming and compression.",
    description: include_str!("description.md"),
    positional: Positional::list(&["paths"]),
    one_line: &[("follow", "false")],
    examples: &[
        Example {
            title: "All logs of a web server, including rotated and compressed ones",
            stage: "file /var/log/apache2/access.log*",
            input: "",
            output: "",
        },
        Example {
            title: "Several files, and all files in a folder",
            stage: "file a.log, b.log /var/log/nginx/ ~/x.log",
            input: "",
            output: "",
        },
        Example {
            title: "JSON documents: one per line, of several lines, or in an array",
            stage: "file eve.json.gz result.json",
            input: "",
            output: "",
        },
        Example {
            title: "Only lines written from now on, like `tail -F`",
            stage: "file /var/log/syslog follow=true start_at=end codec=syslog",
            input: "",
            output: "",
        },
        Example {
            title: "JSON logs of all containers on a Kubernetes node",
            stage: "file /var/log/containers/*.log container=auto codec=json",
            input: "",
            output: "",
        },
    ],
    schema: |generator| {
        let own = Config::json_schema(generator);
        component::beside(own, ContentSettings::json_schema(generator))
    },
    build: Build::Input(build),
};

fn build(node: &Node, context: &BuildContext) -> Result<Box<dyn Input>, ConfigError> {
    let mut config = Config::read(node)?;
    if config.paths.is_empty() {
        return Err(node
            .nearest("paths")
            .error("`paths` needs at least one path"));
    }
    let refused = |setting: &str, index: usize, error: &globset::Error| {
        node.nearest(&format!("{setting}[{index}]"))
            .error(format!("not a valid pattern: {error}"))
    };
    let parse = |(index, path): (usize, &String)| {
        Pattern::parse(path).map_err(|error| refused("paths", index, &error))
    };
    let patterns = config.paths.iter().enumerate().map(parse);
    let exclusion = Exclusion::new(&config.exclude)
        .map_err(|(index, error)| refused("exclude", index, &error))?;
    let mut follow = config.follow.unwrap_or(!context.finite);
    check(node, &config, follow)?;
    if context.effects != Effects::All {
        // What is there is read, once, and stays.
        follow = false;
        config.start_at = StartAt::Beginning;
        config.delete_after = None;
    }
    // A line of a container that was split waits for its rest as long as a record of several lines does.
    let timeout = config
        .content
        .multiline
        .clone()
        .unwrap_or_default()
        .timeout
        .0;
    Ok(Box::new(FileInput {
        formats: config.content.formats(node)?,
        following: Following::new(&config, follow, timeout),
        watch: WatchSettings {
            patterns: patterns.collect::<Result<_, _>>()?,
            exclusion,
            follow_links: config.follow_links,
            scan_interval: config.scan_interval.0,
            mode: if follow {
                config.watch.into()
            } else {
                WatchMode::Poll
            },
        },
    }))
}

/// Refuses settings that make no sense.
fn check(node: &Node, config: &Config, follow: bool) -> Result<(), ConfigError> {
    let bytes = config.fingerprint_bytes.bytes();
    if !(64..=32 << 10).contains(&bytes) {
        return Err(node
            .nearest("fingerprint_bytes")
            .error("`fingerprint_bytes` must be between 64B and 32KiB"));
    }
    if config.max_open_files == 0 {
        return Err(node
            .nearest("max_open_files")
            .error("`max_open_files` must be at least 1"));
    }
    if config.scan_interval.0 < Duration::from_millis(10) {
        return Err(node
            .nearest("scan_interval")
            .error("`scan_interval` must be at least 10ms"));
    }
    let content = &config.content;
    let may_be_csv = !content.is_text() && formats::may_be_csv(&config.paths);
    if content.csv.is_some() && content.codec.is_none() && !may_be_csv {
        let error = node
            .nearest("csv")
            .error("`csv` has no effect: none of the files is read as CSV");
        return Err(error.note("files called `.csv` and `.tsv` are; for others set `codec: csv`"));
    }
    if config.delete_after.is_some() && !follow {
        return Err(node
            .nearest("delete_after")
            .error("`delete_after` needs `follow: true`"));
    }
    Ok(())
}

/// How often a follower looks at what is due by time alone, where nothing happens.
const TICK: Duration = Duration::from_millis(250);

/// What is wrong when the last positions of a run cannot be written.
const NOT_REMEMBERED: &str = "file positions cannot be saved: the next run will deliver the most recent events again, with the same ids";

struct FileInput {
    formats: Formats,
    following: Following,
    watch: WatchSettings,
}

#[async_trait]
impl Input for FileInput {
    fn can_wait(&self) -> bool {
        true
    }

    fn repeats_in_order(&self) -> bool {
        // Records of container logs may stand between the lines of one that ends later.
        let has_containers = self.formats.each(|settings| settings.container.is_some());
        !has_containers.contains(&true)
    }

    fn notices(&self) -> Vec<String> {
        let unmatched = Watch::unmatched(&self.watch).into_iter();
        let text = |index: usize| missing(self.watch.patterns[index].text());
        unmatched.map(text).collect()
    }

    fn reads(&self, path: &Path) -> bool {
        let mut patterns = self.watch.patterns.iter();
        patterns.any(|pattern| pattern.stands_for(path)) && !self.watch.exclusion.has(path)
    }

    async fn run(self: Box<Self>, ctx: InputContext) -> Result<(), InputError> {
        let (sent, receiver) = tokio::sync::mpsc::channel(SENT_MAX);
        let dirty = Arc::new(Dirty::default());
        let acknowledging = tokio::spawn(carry(acknowledge(receiver, dirty.clone())));
        let remembers = ctx.registry.is_some();
        let run = thread::start("files", {
            let dirty = dirty.clone();
            move || self.read(&ctx, &dirty, sent)
        });
        let run = run.map_err(RunError::ReaderThread)?;
        let (tracker, mut problems) = match run.ended().await {
            Ok(Ok(ran)) => ran,
            Ok(Err(error)) => return Err(error.into()),
            Err(panic) => std::panic::resume_unwind(panic),
        };
        if remembers {
            // Positions move with the last receipts, which resolve when the outputs have taken everything.
            let _ = acknowledging.await;
            if !save_last(tracker).await {
                problems.push(NOT_REMEMBERED.to_owned());
            }
        }
        if problems.is_empty() {
            Ok(())
        } else {
            Err(InputError { problems })
        }
    }
}

/// Saves the last positions; whether that worked.
async fn save_last(tracker: Tracker) -> bool {
    let tracker = Arc::new(Mutex::new(tracker));
    let save = move || {
        let mut tracker = tracker.lock();
        tracker.save_last()
    };
    match thread::start("save", save.clone()) {
        Ok(saving) => saving.ended().await.unwrap_or(false),
        // No thread to be had: then it is done here, and who else has work on the runtime waits.
        Err(_) => save(),
    }
}

impl FileInput {
    /// Reads until everything is read, or it is time to stop; gives what went wrong.
    fn read(
        self,
        ctx: &InputContext,
        dirty: &Arc<Dirty>,
        sent: tokio::sync::mpsc::Sender<acknowledge::Sent>,
    ) -> Result<(Tracker, Vec<String>), RunError> {
        let known = Known::load(ctx.registry.clone(), &ctx.scope)?;
        let pool = Arc::new(Pool::new(self.following.follow));
        let text = |pattern: &Pattern| pattern.text().to_owned();
        let patterns: Vec<String> = self.watch.patterns.iter().map(text).collect();
        let watch = Watch::new(self.watch);
        let rules = Rules {
            formats: self.formats,
            compression: self.following.compression,
            follow: self.following.follow,
            remembers: ctx.registry.is_some(),
            has_room: self.following.has_room,
        };
        // Two events for each file that the tracker gave to the readers, at most. A bound would let them wait for a tracker that
        // waits for them to end.
        #[allow(clippy::disallowed_methods, reason = "bounded by the files in hand")]
        let (events, heard) = mpsc::channel();
        let waker = watch.waker();
        let tell = move |event| {
            // The tracker outlives the readers.
            let _ = events.send(event);
            waker.wake();
        };
        let readers =
            Readers::start(&pool, &rules, ctx, &sent, tell).map_err(RunError::ReaderThreads)?;
        drop(sent);
        let mut tracker = Tracker::new(self.following, ctx, known, &pool, dirty, heard);
        tracker.show_ledger();
        if rules.follow {
            follow(&mut tracker, watch, &patterns, ctx);
        } else {
            read_once(&mut tracker, watch, &patterns, ctx, &rules);
        }
        pool.end();
        readers.join();
        tracker.handle_events();
        tracker.close_all();
        tracker.ctx.end_sending();
        let problems = std::mem::take(&mut tracker.problems);
        Ok((tracker, problems))
    }
}

/// Reads what there is and what comes, until it is time to stop.
fn follow(tracker: &mut Tracker, mut watch: Watch, patterns: &[String], ctx: &InputContext) {
    let mut is_first = true;
    let waker = watch.waker();
    let stop = ctx.stop.clone();
    let stopping = tokio::runtime::Handle::current().spawn(async move {
        stop.stopped().await;
        waker.wake();
    });
    while !ctx.stop.is_stopped() {
        match watch.wait(tracker.patience(TICK)) {
            Some(Change::Scan {
                files,
                problems,
                unmatched,
            }) => {
                for problem in problems {
                    ctx.diagnostics.warn(&problem);
                }
                if std::mem::take(&mut is_first) {
                    for index in unmatched {
                        let missing = missing(&patterns[index]);
                        ctx.diagnostics
                            .warn(&format!("{missing} yet; waiting for it"));
                    }
                }
                tracker.scanned(files);
            }
            Some(Change::Written(paths)) => tracker.written(&paths),
            None => {}
        }
        for warning in watch.take_warnings() {
            let limit = Limit::once("polled");
            ctx.diagnostics.warn_limited(limit, || warning);
        }
        tracker.tick();
    }
    stopping.abort();
}

/// Reads what there is.
fn read_once(
    tracker: &mut Tracker,
    mut watch: Watch,
    patterns: &[String],
    ctx: &InputContext,
    rules: &Rules,
) {
    let Some(Change::Scan {
        files,
        problems,
        unmatched,
    }) = watch.wait(Duration::from_secs(1))
    else {
        return;
    };
    tracker.problems.extend(problems);
    for index in unmatched {
        tracker.problems.push(missing(&patterns[index]));
    }
    // Files of the kernel say that they are empty and are not: where nothing is remembered they are read like pipes.
    let is_file = |found: &FoundFile| {
        found.meta.kind == Kind::File && (found.meta.size > 0 || rules.remembers)
    };
    let (files, others): (Vec<FoundFile>, Vec<FoundFile>) = files.into_iter().partition(is_file);
    let with_content = files.iter().filter(|found| found.meta.size > 0).count();
    tracker.scanned(files);
    loop {
        tracker.tick_once();
        if tracker.is_settled() || ctx.stop.is_stopped() {
            break;
        }
        tracker.wait_for_event(TICK);
    }
    let is_quiet = tracker.problems.is_empty() && others.is_empty() && !ctx.stop.is_stopped();
    if is_quiet && rules.remembers && with_content > 0 && ctx.metrics.snapshot().bytes == 0 {
        let were = plural_were(with_content as u64, "file");
        ctx.diagnostics.info(&format!(
            "nothing new: {were} already read to the end by an earlier run with this data directory"
        ));
    }
    for found in others {
        if found.meta.kind == Kind::Other && !is_named(&found, patterns) {
            let path = found.path.display();
            ctx.diagnostics.warn(&format!(
                "{path}: is not a regular file and is skipped; to read it, specify its path without wildcards"
            ));
        } else if !ctx.stop.is_stopped() {
            tracker.problems.extend(read_other(&found, ctx, rules));
        }
    }
}

/// Whether one of the paths is the file's own, not one with wildcards that match it.
fn is_named(found: &FoundFile, paths: &[String]) -> bool {
    let is_it = |meta: Meta| (meta.device, meta.inode) == (found.meta.device, found.meta.inode);
    paths
        .iter()
        .any(|path| Meta::of(Path::new(path)).is_ok_and(is_it))
}

/// What is wrong with a path that stands for nothing.
fn missing(pattern: &str) -> String {
    if Path::new(pattern).is_dir() {
        format!("{pattern}: no files in this folder")
    } else if pattern.contains(['*', '?', '[', '{']) {
        format!("no file matches {pattern}")
    } else {
        format!("{pattern}: no such file")
    }
}

/// Reads a pipe or something like it to its end; gives what went wrong.
fn read_other(found: &FoundFile, ctx: &InputContext, rules: &Rules) -> Option<String> {
    let name = found.path.display().to_string();
    match open_pipe(&found.path, ctx) {
        // It was time to stop before somebody wrote.
        Ok(None) => None,
        Ok(Some(opened)) => {
            let settings = rules.formats.of(&name);
            read_stream(opened, rules.compression, settings, ctx)
        }
        Err(error) => Some(format!("{name}: {}", describe(&error))),
    }
}
