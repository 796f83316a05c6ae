//! `millpond dead-letters`: events that outputs rejected or processors could not handle.
//!
//! Reading needs no lock. What changes a store is asked of the process that has it, by a request that is left in its folder, or done
//! here where nobody has it.

mod change;
mod show;

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;

use anyhow::{anyhow, bail};
use clap::{Args, Subcommand};
use component::{plural, plural_were};
use config::Period;
use queue::letters::{Letter, LetterFolder, Page, Unreadable};

use crate::console::say;
use crate::queue::now;

/// The commands for dead letters.
#[derive(Subcommand)]
pub enum DeadLettersCommand {
    /// Lists dead letters, the oldest first.
    List(ListArgs),
    /// Shows a dead letter with its event.
    Show(ShowArgs),
    /// Prints the events, one JSON object per line.
    Export(Selection),
    /// Delivers them again: those of an output to that output only, those of a processor starting at that processor.
    Replay(ReplayArgs),
    /// Removes dead letters.
    Purge(PurgeArgs),
}

/// Which dead letters.
#[derive(Args)]
pub struct Selection {
    /// The data directory; it may be in use by a running Millpond.
    #[arg(long, value_name = "DIR")]
    data_dir: PathBuf,
    /// Only those of this pipeline.
    #[arg(long, value_name = "NAME")]
    pipeline: Option<String>,
    /// Only those of this output or processor; of an output also those of its processors.
    #[arg(long, value_name = "NAME")]
    component: Option<String>,
    /// Only those whose reason contains this text.
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Only those created at or after this time: 2026-01-31T12:00:00Z, 2026-01-31 (in UTC), or a duration before now, such as 2h.
    #[arg(long, value_name = "TIME", value_parser = time)]
    since: Option<i64>,
    /// Only those created before this time.
    #[arg(long, value_name = "TIME", value_parser = time)]
    until: Option<i64>,
    /// Only those with these numbers, as shown by `list`.
    #[arg(long, value_name = "NUMBER")]
    number: Vec<u64>,
    /// At most this many, the oldest first.
    #[arg(long, value_name = "COUNT")]
    limit: Option<usize>,
}

#[derive(Args)]
pub struct ListArgs {
    #[command(flatten)]
    selection: Selection,
    /// Prints one JSON object per dead letter, with its event.
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
pub struct ShowArgs {
    /// The number, as shown by `list`.
    number: u64,
    /// The data directory; it may be in use by a running Millpond.
    #[arg(long, value_name = "DIR")]
    data_dir: PathBuf,
    /// The pipeline, if several have dead letters.
    #[arg(long, value_name = "NAME")]
    pipeline: Option<String>,
    /// Prints one JSON object.
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
pub struct ReplayArgs {
    #[command(flatten)]
    selection: Selection,
    /// Sends the original events of failed processors through the whole pipeline.
    #[arg(long)]
    from_start: bool,
    /// The YAML file of the pipelines, if no service is running: they run until the dead letters are processed, and read no input.
    #[arg(value_name = "FILE")]
    configuration: Option<String>,
}

#[derive(Args)]
pub struct PurgeArgs {
    #[command(flatten)]
    selection: Selection,
    /// Removes all dead letters; needed if no other option selects them.
    #[arg(long)]
    all: bool,
}

/// Who sees the letters, each with its store, its page and its row there.
type Visit<'v> =
    dyn FnMut(&LetterFolder, &Page, usize, Letter) -> anyhow::Result<ControlFlow<()>> + 'v;

/// Carries out a command.
pub fn dead_letters(command: &DeadLettersCommand) -> anyhow::Result<ExitCode> {
    match command {
        DeadLettersCommand::List(args) => show::list(&args.selection, args.json),
        DeadLettersCommand::Show(args) => show::show(args),
        DeadLettersCommand::Export(selection) => show::export(selection),
        DeadLettersCommand::Replay(args) => change::replay(args),
        DeadLettersCommand::Purge(args) => change::purge(args),
    }
}

/// A point in time, in nanoseconds since 1970.
fn time(text: &str) -> Result<i64, String> {
    let clamp = |nanos: i128| i64::try_from(nanos).unwrap_or(i64::MAX);
    if let Ok(time) = jiff::Timestamp::from_str(text) {
        return Ok(clamp(time.as_nanosecond()));
    }
    if let Ok(date) = jiff::civil::Date::from_str(text)
        && let Ok(time) = date.to_zoned(jiff::tz::TimeZone::UTC)
    {
        return Ok(clamp(time.timestamp().as_nanosecond()));
    }
    match Period::from_str(text) {
        Ok(ago) => Ok(now().saturating_sub(clamp(ago.0.as_nanos().cast_signed()))),
        Err(_) => Err(
            "expected a time such as 2026-01-31T12:00:00Z, a date such as 2026-01-31 (its beginning in UTC), or a duration before now, such as 2h"
                .to_owned(),
        ),
    }
}

impl Selection {
    /// All of a pipeline's, or of all pipelines.
    fn all(data_dir: PathBuf, pipeline: Option<String>) -> Self {
        Self {
            data_dir,
            pipeline,
            component: None,
            reason: None,
            since: None,
            until: None,
            number: Vec::new(),
            limit: None,
        }
    }

    /// Whether anything says which dead letters.
    fn is_restricted(&self) -> bool {
        self.pipeline.is_some() || !self.is_everything()
    }

    /// Whether all letters of the stores are wanted.
    fn is_everything(&self) -> bool {
        self.component.is_none()
            && self.reason.is_none()
            && self.since.is_none()
            && self.until.is_none()
            && self.limit.is_none()
            && self.number.is_empty()
    }

    /// A number is one of a single pipeline.
    ///
    /// # Errors
    /// There are several.
    fn one_store(&self, stores: &[LetterFolder]) -> anyhow::Result<()> {
        match self.number.is_empty() || stores.len() < 2 {
            true => Ok(()),
            false => Err(several(stores)),
        }
    }

    /// The stores.
    fn stores(&self) -> anyhow::Result<Vec<LetterFolder>> {
        // A run that has just begun may not have written anything.
        let is_known = |name: &str| self.data_dir.join(name).exists();
        let is_empty = std::fs::read_dir(&self.data_dir)
            .ok()
            .is_none_or(|mut entries| entries.next().is_none());
        if !is_empty
            && !["lock", "registry", "queue", "dead-letters", "profile"]
                .into_iter()
                .any(is_known)
        {
            bail!(
                "{} is not a data directory: it contains no `registry`, `queue` or `dead-letters`",
                self.data_dir.display()
            );
        }
        let mut stores = LetterFolder::find(&self.data_dir)?;
        let Some(wanted) = &self.pipeline else {
            return Ok(stores);
        };
        let known: Vec<String> = stores
            .iter()
            .map(|store| format!("`{}`", store.pipeline()))
            .collect();
        stores.retain(|store| store.pipeline() == wanted);
        if stores.is_empty() {
            let known = match known.len() {
                0 => "no pipeline has dead letters".to_owned(),
                _ => format!("pipelines with dead letters: {}", known.join(", ")),
            };
            bail!(
                "the pipeline `{wanted}` has no dead letters in {}; {known}",
                self.data_dir.display()
            );
        }
        Ok(stores)
    }

    fn holds(&self, letter: &Letter) -> bool {
        self.is_of(letter)
            && self
                .reason
                .as_ref()
                .is_none_or(|text| letter.reason.contains(text.as_str()))
            && self.since.is_none_or(|since| letter.time >= since)
            && self.until.is_none_or(|until| letter.time < until)
            && (self.number.is_empty() || self.number.contains(&letter.number))
    }

    /// Whether a letter is of the component that is wanted: the whole name, or of `OUTPUT/PROCESSOR` one of both.
    fn is_of(&self, letter: &Letter) -> bool {
        self.component.as_ref().is_none_or(|wanted| {
            let parts = letter.component.split_once('/');
            *wanted == letter.component
                || parts.is_some_and(|(output, name)| wanted == output || wanted == name)
        })
    }

    /// Shows the dead letters that are wanted, with the page that they are on; for each store what cannot be read. An error of
    /// `visit` ends it.
    fn each(
        &self,
        stores: &[LetterFolder],
        visit: &mut Visit<'_>,
    ) -> anyhow::Result<Vec<Unreadable>> {
        let mut left = self.limit.unwrap_or(usize::MAX);
        let mut all = Vec::new();
        let mut components = BTreeSet::new();
        let mut is_known = self.component.is_none();
        let is_wanted = |numbers: std::ops::Range<u64>| {
            self.number.is_empty() || self.number.iter().any(|number| numbers.contains(number))
        };
        for store in stores {
            let mut outcome = Ok(ControlFlow::Continue(()));
            let unreadable = store.each(&is_wanted, &mut |page| {
                for &row in &page.rows {
                    if left == 0 {
                        return ControlFlow::Break(());
                    }
                    let letter = page.letter(row);
                    is_known |= self.is_of(&letter);
                    if !is_known && !components.contains(&letter.component) {
                        components.insert(letter.component.clone());
                    }
                    if !self.holds(&letter) {
                        continue;
                    }
                    left -= 1;
                    outcome = visit(store, &page, row, letter);
                    if !matches!(outcome, Ok(ControlFlow::Continue(()))) {
                        return ControlFlow::Break(());
                    }
                }
                ControlFlow::Continue(())
            })?;
            report(store, &unreadable);
            all.push(unreadable);
            if outcome?.is_break() {
                break;
            }
        }
        if let Some(wanted) = self.component.as_ref().filter(|_| !is_known)
            && !components.is_empty()
        {
            let known: Vec<String> = components.iter().map(|name| format!("`{name}`")).collect();
            bail!(
                "no dead letter belongs to the component `{wanted}`; components with dead letters: {}",
                known.join(", ")
            );
        }
        Ok(all)
    }
}

/// Says what cannot be read.
fn report(store: &LetterFolder, unreadable: &Unreadable) {
    for damage in &unreadable.damage {
        let lost = match damage.events {
            0 => "the dead letters in it are lost".to_owned(),
            events => format!("{} lost", plural_were(events, "dead letter")),
        };
        say(&format!(
            "error: {} is damaged at offset {}, {}: {}; {lost}; `purge --all` removes the damage",
            store.path().join(&damage.file).display(),
            damage.offset,
            plural(damage.length, "byte"),
            damage.reason
        ));
    }
    for range in &unreadable.lost {
        say(&format!(
            "error: pipeline {}: {}: they were stored and cannot be found; `purge --all` ends this report",
            store.pipeline(),
            queue::letters::missing(range)
        ));
    }
}

/// Which store a letter is looked for in.
fn only(stores: Vec<LetterFolder>, data_dir: &std::path::Path) -> anyhow::Result<LetterFolder> {
    if stores.len() > 1 {
        return Err(several(&stores));
    }
    let none = || anyhow!("there are no dead letters in {}", data_dir.display());
    stores.into_iter().next().ok_or_else(none)
}

fn several(stores: &[LetterFolder]) -> anyhow::Error {
    let names: Vec<String> = stores
        .iter()
        .map(|store| format!("`{}`", store.pipeline()))
        .collect();
    anyhow!(
        "several pipelines have dead letters; select one with --pipeline: {}",
        names.join(", ")
    )
}
